/* SPDX-License-Identifier: Apache-2.0
 *
 * status: which plugins a configuration makes active, and the start-up diagnosis ("mqtt-status"):
 * one line with active and inactive plugins, a warning for each thing that looks like a mistake.
 */
#ifndef SL_GATEWAY_STATUS_H
#define SL_GATEWAY_STATUS_H

#include <stdbool.h>

#include "gateway_conf.h"

/* What runs, with the dependencies between plugins worked in. */
typedef struct sl_active {
    bool http;
    bool client;    /* the MQTT module at all */
    bool router;    /* needs client */
    bool connector; /* needs router */
    bool sse;       /* needs router and http */
    bool rest;      /* needs router and http */
    bool stats;     /* needs router and http */
    bool writer;    /* needs router and a sink */
} sl_active;

/** @thread init */
void sl_active_of(const sl_gateway_conf *cf, sl_active *out);
/** Writes the diagnosis to the log, unless mqtt-status is off. @thread init */
void sl_status_log(const sl_gateway_conf *cf);

#endif
