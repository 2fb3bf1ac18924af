/* SPDX-License-Identifier: Apache-2.0
 *
 * rest: the gateway's plain HTTP resources: latest values (GET /mqtt), figures (/mqtt/stats,
 * /metrics), health and readiness. Streams are in sse.h.
 */
#ifndef SL_GATEWAY_REST_H
#define SL_GATEWAY_REST_H

#include <stdatomic.h>
#include <stdbool.h>

#include "acl.h"
#include "figures.h"
#include "http/server.h"
#include "mqtt_session.h"
#include "router.h"
#include "sink.h"
#include "sse.h"
#include "writer.h"

typedef struct sl_rest_options {
    sl_loop *router_loop;
    sl_router *rt;
    sl_session *sn;
    sl_acl *acl;
    sl_sse *sse;         /* NULL: off */
    sl_writer *writer;   /* NULL: off */
    sl_sink *sink;       /* NULL: no writer */
    sl_figures *figures; /* set before the server starts */
    const char *name;    /* core/name, for /ping */
    bool latest;         /* mqtt-rest */
    bool stats;          /* mqtt-stats */
} sl_rest_options;

typedef struct sl_rest sl_rest;

/** Everything is borrowed. @thread init */
sl_rest *sl_rest_new(const sl_rest_options *options);
void sl_rest_free(sl_rest **rs);
/** Adds the routes; figures must be set by sl_rest_set_figures before the server starts. */
void sl_rest_add_routes(sl_rest *rs, sl_http_server *sv);
void sl_rest_set_figures(sl_rest *rs, sl_figures *figures);
/** What /health/ready says. @thread any */
void sl_rest_set_ready(sl_rest *rs, bool ready);

/* Handlers, for tests. @thread http */
void sl_rest_on_latest(void *arg, const sl_http_req *req, sl_http_resp *resp);

#endif
