/* SPDX-License-Identifier: Apache-2.0
 *
 * admin: the broker's HTTP port: health, readiness and metrics (TBMQ's /actuator paths answer too),
 * and the message trace while it is switched on.
 */
#ifndef SL_ADMIN_ADMIN_H
#define SL_ADMIN_ADMIN_H

#include "core.h"
#include "loop/loop.h"

typedef struct sl_admin sl_admin;

/** Binds, starts serving. Readiness follows core->ready. *why: owned message. @thread init */
SL_MUST_USE sl_err sl_admin_new(sl_core *core, sl_admin **out, char **why);
uint16_t sl_admin_port(const sl_admin *ad);
/** The loop of the HTTP port: for what belongs to no connection. @thread any */
sl_loop *sl_admin_loop(const sl_admin *ad);
/** Finishes running requests and serves no more; the loop goes on until free. @thread init */
void sl_admin_stop(sl_admin *ad);
/** Finishes running requests, then frees. @thread init */
void sl_admin_free(sl_admin **ad);

#endif
