/* SPDX-License-Identifier: Apache-2.0
 *
 * gateway: the composition root. Builds all parts from a configuration, starts them in the order
 * that loses nothing (consumers first, the connection last: a broker redelivers as soon as it says
 * CONNACK), and stops them in the order that acknowledges what was stored.
 *
 *   loops   "gw-router": session, router       "gw-http": front, streams
 *   threads pool (dialling, password hashes), libmicrohttpd's, the writer's
 */
#ifndef SL_GATEWAY_GATEWAY_H
#define SL_GATEWAY_GATEWAY_H

#include "base/err.h"
#include "gateway_conf.h"

typedef struct sl_gateway sl_gateway;

/**
 * Takes *cf. Errors with *why (owned), which names the setting or the port; everything begun was
 * undone. Returns once GATEWAY-READY was logged; the broker need not be there.
 * @thread init, with SIGTERM, SIGINT and SIGHUP blocked
 */
SL_MUST_USE sl_err sl_gateway_start(sl_gateway_conf **cf, const char *data_dir, sl_gateway **out,
                                    char **why);
/** Users, permissions and topic grants of a newly loaded configuration; the rest needs a restart.
 * Errors SL_EINVAL with *why (owned): nothing was changed. @thread init */
SL_MUST_USE sl_err sl_gateway_reload(sl_gateway *gw, const sl_gateway_conf *cf, char **why);
/** Ends streams, drains the writer, acknowledges, disconnects. @thread init */
void sl_gateway_stop(sl_gateway **gw);

/** What --check-config does beyond loading: sinks, predicates, password hashes. @thread init */
SL_MUST_USE sl_err sl_gateway_check(const sl_gateway_conf *cf, char **why);
/** --replay-dead-letter: the configured dead-letter file into the configured store. @thread init */
SL_MUST_USE sl_err sl_gateway_replay(const sl_gateway_conf *cf, const char *data_dir, char **why);

#endif
