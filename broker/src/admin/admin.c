/* SPDX-License-Identifier: Apache-2.0
 *
 * admin: see admin.h. Health answers come from the loop; the metrics page is made on
 * libmicrohttpd's threads.
 */
#include "admin/admin.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "http/pages.h"
#include "http/server.h"
#include "stats/broker_stats.h"
#include "stats/msg_trace.h"
#include "store/db.h"

#define DRAIN_MS 2000

struct sl_admin {
    sl_core *core;
    sl_loop *lp;
    sl_http_server *server;
    sl_stats *tables[1];
    sl_http_metrics metrics;
    bool started;
    pthread_mutex_t lock; /* guards drained */
    pthread_cond_t changed;
    bool drained;
};

static void answer_json(sl_http_stream *st, int status, const char *text)
{
    sl_http_resp_set(sl_http_stream_resp(st), status, "application/json", sl_slice_str(text));
    sl_http_stream_reply(st);
}

static void live(void *arg, sl_http_stream *st)
{
    (void)arg;
    answer_json(st, 200, "{\"status\":\"UP\"}");
}

/* Ready: state replayed, consumers running, the log takes appends, inboxes and metadata can be
 * reached. */
static void ready(void *arg, sl_http_stream *st)
{
    sl_core *core = ((sl_admin *)arg)->core;
    const char *why = NULL;
    if (!atomic_load(&core->ready)) {
        answer_json(st, 503,
                    atomic_load(&core->draining)
                        ? "{\"status\":\"OUT_OF_SERVICE\",\"msg\":\"stopping\"}"
                        : "{\"status\":\"OUT_OF_SERVICE\",\"msg\":\"restoring state\"}");
    } else if (!sl_log_is_healthy(core->log, &why)) {
        sl_http_resp_msg(sl_http_stream_resp(st), 503, why);
        sl_http_stream_reply(st);
    } else if (sl_stats_get(core->stats, SL_BS_INBOX + SL_INBOX_STAT_UNREACHABLE) > 0) {
        answer_json(st, 503,
                    "{\"status\":\"OUT_OF_SERVICE\",\"msg\":\"the inbox store (Redis) cannot be "
                    "reached; messages for persistent clients wait in the log\"}");
    } else if (!sl_db_is_healthy(core->db, &why)) {
        sl_http_resp_msg(sl_http_stream_resp(st), 503, why);
        sl_http_stream_reply(st);
    } else {
        answer_json(st, 200, "{\"status\":\"UP\"}");
    }
}

/* Steps of messages hold topics' places and client indexes, no payloads; still, only for this host.
 */
static void trace(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    sl_core *core = ((sl_admin *)arg)->core;
    const char *peer = sl_http_req_peer_ip(req);
    if (strncmp(peer, "127.", 4) != 0 && strcmp(peer, "::1") != 0) {
        sl_http_resp_msg(resp, 403, "the trace is shown on loopback only");
        return;
    }
    if (!atomic_load(&core->ready) || !atomic_load(&core->trace->on)) {
        sl_http_resp_msg(resp, 404, "message trace is off: start with SLUICE_TRACE_MESSAGES=true");
        return;
    }
    sl_http_resp_add_header(resp, "Content-Type", "application/x-ndjson");
    if (sl_msg_trace_write(core->trace, sl_http_resp_body(resp)) != SL_OK)
        sl_http_resp_msg(resp, 500, "the trace is too long for one answer");
}

static sl_err start_server(sl_admin *ad)
{
    const sl_http_route routes[] = {
        {.methods = SL_HTTP_M(GET), .pattern = "/health/live", .open = true, .on_loop = live},
        {.methods = SL_HTTP_M(GET),
         .pattern = "/health/ready",
         .open = true,
         .on_loop = ready,
         .arg = ad},
        {.methods = SL_HTTP_M(GET),
         .pattern = "/actuator/health",
         .open = true,
         .on_loop = ready,
         .arg = ad},
        {.methods = SL_HTTP_M(GET),
         .pattern = "/metrics",
         .open = true,
         .fn = sl_http_page_metrics,
         .arg = &ad->metrics},
        {.methods = SL_HTTP_M(GET),
         .pattern = "/actuator/prometheus",
         .open = true,
         .fn = sl_http_page_metrics,
         .arg = &ad->metrics},
        {.methods = SL_HTTP_M(GET), .pattern = "/trace", .open = true, .fn = trace, .arg = ad},
    };
    sl_http_server_route(ad->server, routes, sizeof(routes) / sizeof(routes[0]));
    return sl_http_server_start(ad->server);
}

sl_err sl_admin_new(sl_core *core, sl_admin **out, char **why)
{
    sl_admin *ad = sl_calloc(1, sizeof(*ad));
    ad->core = core;
    ad->tables[0] = core->stats;
    ad->metrics = (sl_http_metrics){.tables = ad->tables, .table_count = 1};
    pthread_mutex_init(&ad->lock, NULL);
    pthread_cond_init(&ad->changed, NULL);
    sl_err err = sl_loop_new("http", core->clock, &ad->lp);
    if (err == SL_OK)
        err = sl_loop_start(ad->lp);
    if (err == SL_OK) {
        sl_loop *loops[] = {ad->lp};
        sl_http_options ho = {.name = "admin",
                              .address = sl_conf_str(core->conf, "server.address"),
                              .port = (uint16_t)sl_conf_int(core->conf, "server.port"),
                              .loops = loops,
                              .loop_count = 1,
                              .threads = 1};
        err = sl_http_server_new(&ho, &ad->server, why);
    }
    if (err == SL_OK) {
        err = start_server(ad);
        ad->started = err == SL_OK;
    }
    if (err != SL_OK) {
        if (*why == NULL)
            *why = sl_strdup("the admin HTTP port cannot be served");
        sl_admin_free(&ad);
        return err;
    }
    *out = ad;
    return SL_OK;
}

uint16_t sl_admin_port(const sl_admin *ad)
{
    return sl_http_server_port(ad->server);
}

static void drained(void *arg)
{
    sl_admin *ad = arg;
    pthread_mutex_lock(&ad->lock);
    ad->drained = true;
    pthread_cond_signal(&ad->changed);
    pthread_mutex_unlock(&ad->lock);
}

sl_loop *sl_admin_loop(const sl_admin *ad)
{
    return ad->lp;
}

void sl_admin_stop(sl_admin *ad)
{
    if (ad->started) {
        sl_http_server_drain(ad->server, DRAIN_MS, drained, ad);
        pthread_mutex_lock(&ad->lock);
        while (!ad->drained)
            pthread_cond_wait(&ad->changed, &ad->lock);
        pthread_mutex_unlock(&ad->lock);
    }
    ad->started = false;
    if (ad->server != NULL)
        sl_http_server_free(&ad->server);
}

void sl_admin_free(sl_admin **pointer)
{
    sl_admin *ad = *pointer;
    if (ad == NULL)
        return;
    *pointer = NULL;
    sl_admin_stop(ad);
    if (ad->lp != NULL) {
        sl_loop_stop(ad->lp);
        sl_loop_join(ad->lp);
        sl_loop_free(&ad->lp);
    }
    pthread_cond_destroy(&ad->changed);
    pthread_mutex_destroy(&ad->lock);
    sl_free(ad);
}
