/* SPDX-License-Identifier: Apache-2.0
 *
 * broker_conf: the broker's configuration rows: the only source of keys, environment variables,
 * defaults and ranges; etc/broker.yml and docs/configuration-broker.md are made from it. It lists
 * what is built and nothing else. Names of environment variables are TBMQ's where TBMQ has the
 * setting.
 */
#ifndef SL_BROKER_CONF_H
#define SL_BROKER_CONF_H

#include "base/conf.h"
#include "core.h"

extern const sl_conf_row SL_BROKER_CONF_ROWS[];
extern const size_t SL_BROKER_CONF_COUNT;
/** Pairs key, value, ..., NULL that the shipped etc/broker.yml sets differently from the default.
 */
extern const char *const SL_BROKER_CONF_SHIPPED[];

/** The limits of a loaded configuration. @thread init */
void sl_broker_conf_limits(const sl_conf *cf, sl_limits *out);

#endif
