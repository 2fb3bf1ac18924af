/* SPDX-License-Identifier: Apache-2.0
 *
 * rest: handlers. Those that read the cache or the store run on libmicrohttpd's threads and ask the
 * router's loop; health answers at once on the front's loop.
 */
#include "rest.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/json.h"
#include "http/pages.h"
#include "mqtt/topic.h"

#define PAGE_SIZE     100
#define PAGE_SIZE_MAX 1000
#define PAGE_MAX      1000000
#define ETAG_BYTES    48
#define JSON          "application/json"

struct sl_rest {
    sl_rest_options opt;
    char ping[256];
    _Atomic bool ready;
    _Atomic bool probing; /* a /health/db probe is running */
};

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        if (err == SL_OK)                                                                          \
            err = (expr);                                                                          \
    } while (0)

/* ---- latest values ---- */

/* A look into the cache on the router's loop. */
typedef struct lookup {
    sl_router *rt;
    sl_slice filter;
    sl_message **msgs; /* owned; holds references */
    size_t count;
    uint64_t seq;
} lookup;

static void run_lookup(void *arg)
{
    lookup *lu = arg;
    sl_router_match_cache(lu->rt, lu->filter, &lu->msgs, &lu->count, &lu->seq);
}

static void free_lookup(lookup *lu)
{
    for (size_t i = 0; i < lu->count; i++)
        sl_message_unref(&lu->msgs[i]);
    sl_free(lu->msgs);
}

static int by_topic(const void *left, const void *right)
{
    return sl_slice_compare((*(sl_message *const *)left)->topic,
                            (*(sl_message *const *)right)->topic);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x9E3779B97F4A7C15ull;
}

/* Equal values give equal tags also after a restart: only what is shown goes in. */
static void make_etag(sl_message *const *msgs, size_t count, bool array, char out[ETAG_BYTES])
{
    uint64_t hash = mix(array, count);
    for (size_t i = 0; i < count; i++) {
        hash = mix(hash, sl_slice_hash(msgs[i]->topic));
        hash = mix(hash, (uint64_t)msgs[i]->received_at_ns);
        hash = mix(hash, sl_slice_hash(msgs[i]->payload));
    }
    snprintf(out, ETAG_BYTES, "\"%016llx-%zx\"", (unsigned long long)hash, count);
}

/* One of the tags of If-None-Match, or '*'. */
static bool matches_etag(const char *header, const char *etag)
{
    size_t want = strlen(etag);
    while (header != NULL && *header != '\0') {
        header += strspn(header, " \t,");
        if (strncmp(header, "W/", 2) == 0)
            header += 2;
        size_t len = strcspn(header, ",");
        while (len > 0 && (header[len - 1] == ' ' || header[len - 1] == '\t'))
            len--;
        if ((len == 1 && *header == '*') || (len == want && memcmp(header, etag, want) == 0))
            return true;
        header += strcspn(header, ",");
    }
    return false;
}

static bool take_number(const sl_http_req *req, const char *name, int64_t def, int64_t max,
                        sl_http_resp *resp, int64_t *out)
{
    char text[96];
    unsigned given = 0;
    const char *value = sl_http_query_get(req, name, &given);
    *out = def;
    if (given == 0)
        return true;
    char *end = NULL;
    errno = 0;
    long long number = strtoll(value, &end, 10);
    if (given == 1 && end != value && *end == '\0' && errno == 0 && number >= 1 && number <= max &&
        value[0] >= '0' && value[0] <= '9') {
        *out = number;
        return true;
    }
    snprintf(text, sizeof text, "The parameter %s must be a number from 1 to %lld, given once",
             name, (long long)max);
    sl_acl_error(resp, 400, true, text);
    return false;
}

static sl_err write_all(sl_message *const *msgs, size_t count, bool array, sl_buf *out)
{
    sl_err err = array ? sl_buf_append_u8(out, '[') : SL_OK;
    for (size_t i = 0; err == SL_OK && i < count; i++) {
        if (i > 0)
            err = sl_buf_append_u8(out, ',');
        TRY(sl_message_write_json(msgs[i], SL_MESSAGE_NO_REPLAY_FIELD, out));
    }
    if (array)
        TRY(sl_buf_append_u8(out, ']'));
    return err;
}

static void answer(const sl_http_req *req, sl_http_resp *resp, sl_message *const *msgs,
                   size_t count, bool array)
{
    char etag[ETAG_BYTES];
    make_etag(msgs, count, array, etag);
    sl_http_resp_set(resp, 200, JSON, sl_slice_str(""));
    sl_http_resp_add_header(resp, "ETag", etag);
    sl_http_resp_add_header(resp, "Cache-Control", "no-cache");
    if (matches_etag(sl_http_req_header(req, "If-None-Match"), etag)) {
        sl_http_resp_set_status(resp, 304);
        return;
    }
    if (write_all(msgs, count, array, sl_http_resp_body(resp)) != SL_OK)
        sl_acl_error(resp, 500, true,
                     "The values are too large for one answer: ask for fewer with pagesize");
}

void sl_rest_on_latest(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    sl_rest *rs = arg;
    const char *filter;
    int64_t page = 0, pagesize = 0;
    if (sl_acl_take_topic(rs->opt.acl, req, NULL, true, resp, &filter) != SL_OK ||
        !take_number(req, "page", 1, PAGE_MAX, resp, &page) ||
        !take_number(req, "pagesize", PAGE_SIZE, PAGE_SIZE_MAX, resp, &pagesize))
        return;
    lookup lu = {.rt = rs->opt.rt, .filter = sl_slice_str(filter)};
    sl_loop_call_wait(rs->opt.router_loop, run_lookup, &lu);
    bool array = sl_mqtt_filter_has_wildcard(lu.filter);
    size_t from = 0, count = lu.count;
    if (array) {
        qsort(lu.msgs, lu.count, sizeof *lu.msgs, by_topic);
        from = (size_t)((page - 1) * pagesize);
        from = from < lu.count ? from : lu.count;
        count = lu.count - from < (size_t)pagesize ? lu.count - from : (size_t)pagesize;
    }
    if (!array && lu.count == 0)
        sl_acl_error(resp, 404, true, "No message for this topic has been received");
    else
        answer(req, resp, lu.msgs + from, count, array);
    free_lookup(&lu);
}

/* ---- figures ---- */

static const char *word(bool value)
{
    return value ? "true" : "false";
}

static sl_err write_connection(const sl_session_figures *sf, sl_buf *out)
{
    sl_err err =
        sl_buf_printf(out,
                      ",\"connection\":{\"connected\":%s,\"sessionPresent\":%s,"
                      "\"reconnects\":%llu,\"takeovers\":%llu,\"sessionsLost\":%llu,"
                      "\"subscriptionsWanted\":%u,\"subscriptionsGranted\":%u,"
                      "\"subscriptionsRefused\":%u}",
                      word(sf->connected), word(sf->session_present),
                      (unsigned long long)sf->reconnects, (unsigned long long)sf->takeovers,
                      (unsigned long long)sf->sessions_lost, sf->wanted, sf->held, sf->refused);
    TRY(sl_buf_printf(
        out,
        ",\"inflight\":{\"unacked\":%u,\"limit\":%u,\"oldestMs\":%lld,\"acksSent\":%llu,"
        "\"redelivered\":%llu,\"retained\":%llu}",
        sf->unacked, sf->limit, (long long)sf->oldest_ms, (unsigned long long)sf->acks_sent,
        (unsigned long long)sf->redelivered, (unsigned long long)sf->retained));
    return err;
}

static sl_err write_stats(const sl_rest *rs, sl_buf *out)
{
    sl_router_stats st;
    sl_session_figures sf;
    sl_router_read_stats(rs->opt.rt, &st);
    sl_session_read(rs->opt.sn, &sf);
    sl_err err =
        sl_buf_printf(out,
                      "{\"topicFilters\":%u,\"totalListeners\":%u,\"cachedMessages\":%u,"
                      "\"messagesReceived\":%llu,\"messagesDropped\":%llu,"
                      "\"messagesUnmatched\":%llu,\"cacheEvictions\":%llu",
                      sf.listened, st.listeners, st.cached, (unsigned long long)st.received,
                      (unsigned long long)st.dropped, (unsigned long long)st.unmatched,
                      (unsigned long long)st.cache_evictions);
    TRY(write_connection(&sf, out));
    if (rs->opt.writer != NULL) {
        TRY(sl_buf_append_u8(out, ','));
        TRY(sl_writer_write_json(rs->opt.writer, out));
    }
    if (rs->opt.sse != NULL) {
        sl_sse_figures ss;
        sl_sse_read(rs->opt.sse, &ss);
        TRY(sl_buf_printf(out,
                          ",\"sse\":{\"openConnections\":%u,\"eventsSent\":%llu,\"dropped\":%llu,"
                          "\"rejected\":%llu,\"ended\":%llu}",
                          ss.open, (unsigned long long)ss.sent, (unsigned long long)ss.dropped,
                          (unsigned long long)ss.rejected, (unsigned long long)ss.ended));
    }
    TRY(sl_buf_append_u8(out, '}'));
    return err;
}

static void run_refresh(void *arg)
{
    sl_session_refresh(arg);
}

/* The session's figures as of now, not of its last refresh. */
static void refresh(sl_rest *rs)
{
    if (rs->opt.sn != NULL)
        sl_loop_call_wait(rs->opt.router_loop, run_refresh, rs->opt.sn);
}

static void on_stats(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)req;
    refresh(arg);
    sl_http_resp_set(resp, 200, JSON, sl_slice_str(""));
    sl_http_resp_add_header(resp, "Cache-Control", "no-cache");
    if (write_stats(arg, sl_http_resp_body(resp)) != SL_OK)
        sl_http_resp_msg(resp, 500, "The figures could not be written");
}

/* Prometheus text, unless the request asks for JSON: then the names, as RESTHeart lists them. */
static void on_metrics(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    sl_rest *rs = arg;
    const char *accept = sl_http_req_header(req, "Accept");
    if (accept != NULL && strcasestr(accept, JSON) != NULL && strcasestr(accept, "text/") == NULL) {
        sl_http_resp_set(resp, 200, JSON, sl_slice_str(""));
        if (sl_figures_write_names(rs->opt.figures, sl_http_resp_body(resp)) != SL_OK)
            sl_http_resp_msg(resp, 500, "The names could not be written");
        return;
    }
    refresh(rs);
    sl_http_metrics page;
    page.tables = sl_figures_tables(rs->opt.figures, &page.table_count);
    sl_http_page_metrics(&page, req, resp);
}

static void on_family(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    sl_rest *rs = arg;
    refresh(rs);
    sl_http_resp_set(resp, 200, "text/plain; version=0.0.4; charset=utf-8", sl_slice_str(""));
    sl_err err = sl_figures_write_family(rs->opt.figures, sl_http_req_param(req, "name"),
                                         sl_http_resp_body(resp));
    if (err == SL_ENOTFOUND)
        sl_http_resp_msg(resp, 404, "There are no such metrics");
    else if (err != SL_OK)
        sl_http_resp_msgf(resp, 500, "The metrics could not be written: %s", sl_err_text(err));
}

/* ---- health ---- */

static void on_live(void *arg, sl_http_stream *st)
{
    (void)arg;
    sl_http_resp_set(sl_http_stream_resp(st), 200, JSON, sl_slice_str("{\"status\":\"up\"}"));
    sl_http_stream_reply(st);
}

static void on_ready(void *arg, sl_http_stream *st)
{
    sl_rest *rs = arg;
    bool ready = atomic_load_explicit(&rs->ready, memory_order_acquire);
    sl_http_resp_set(sl_http_stream_resp(st), ready ? 200 : 503, JSON,
                     sl_slice_str(ready ? "{\"status\":\"ready\"}" : "{\"status\":\"not ready\"}"));
    sl_http_stream_reply(st);
}

/* Why the MQTT side is not well; NULL: it is. No topics: the page is public. */
static const char *mqtt_trouble(const sl_rest *rs, const sl_session_figures *sf)
{
    if (!sf->connected)
        return "not connected to the broker";
    if (sf->refused > 0)
        return "a subscription was refused by the broker";
    if (!sf->all_granted)
        return "subscriptions are not granted yet";
    if (rs->opt.writer != NULL) {
        sl_writer_health wh;
        sl_writer_read_health(rs->opt.writer, &wh);
        if (wh.dead_letter_failing)
            return "the dead-letter file cannot be written";
        if (wh.config)
            return "the store refuses the writer";
    }
    return NULL;
}

static void on_health_mqtt(void *arg, sl_http_stream *st)
{
    sl_rest *rs = arg;
    sl_http_resp *resp = sl_http_stream_resp(st);
    sl_session_figures sf;
    sl_session_read(rs->opt.sn, &sf);
    const char *trouble = mqtt_trouble(rs, &sf);
    sl_http_resp_set(resp, trouble == NULL ? 200 : 503, JSON, sl_slice_str(""));
    sl_http_resp_add_header(resp, "Cache-Control", "no-store");
    sl_err err = sl_buf_printf(
        sl_http_resp_body(resp),
        "{\"status\":\"%s\",\"connected\":%s,\"sessionPresent\":%s,\"unacked\":%u,"
        "\"oldestUnackedMs\":%lld%s%s%s}",
        trouble == NULL ? "ok" : "unhealthy", word(sf.connected), word(sf.session_present),
        sf.unacked, (long long)sf.oldest_ms, trouble != NULL ? ",\"description\":\"" : "",
        trouble != NULL ? trouble : "", trouble != NULL ? "\"" : "");
    if (err != SL_OK)
        sl_http_resp_msg(resp, 500, "The answer could not be written");
    sl_http_stream_reply(st);
}

/* One probe at a time: a store that hangs must not take all threads. */
static void on_health_db(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)req;
    sl_rest *rs = arg;
    if (atomic_exchange_explicit(&rs->probing, true, memory_order_acq_rel)) {
        sl_http_resp_msg(resp, 429, "A probe is running already");
        return;
    }
    sl_clock ck;
    sl_clock_init(&ck);
    sl_mono_ms from = sl_clock_mono(&ck);
    sl_sink_result res;
    sl_sink_probe(rs->opt.sink, &res);
    sl_dur_ms took = sl_clock_mono(&ck) - from;
    atomic_store_explicit(&rs->probing, false, memory_order_release);
    bool fine = res.outcome == SL_SINK_STORED;
    sl_http_resp_set(resp, fine ? 200 : 503, JSON, sl_slice_str(""));
    sl_buf *out = sl_http_resp_body(resp);
    sl_err err = sl_buf_printf(out, "{\"status\":\"%s\",\"description\":\"%s\",\"latencyMs\":%lld}",
                               fine ? "ok" : "unhealthy",
                               fine ? "the store answers" : sl_sink_outcome_word(res.outcome),
                               (long long)took);
    if (err != SL_OK)
        sl_http_resp_msg(resp, 500, "The answer could not be written");
}

/* ---- routes ---- */

sl_rest *sl_rest_new(const sl_rest_options *options)
{
    sl_rest *rs = sl_calloc(1, sizeof *rs);
    rs->opt = *options;
    snprintf(rs->ping, sizeof rs->ping, "Greetings from Sluice (%s)!", options->name);
    return rs;
}

void sl_rest_free(sl_rest **rs)
{
    sl_free(*rs);
    *rs = NULL;
}

void sl_rest_set_figures(sl_rest *rs, sl_figures *figures)
{
    rs->opt.figures = figures;
}

void sl_rest_set_ready(sl_rest *rs, bool ready)
{
    atomic_store_explicit(&rs->ready, ready, memory_order_release);
}

void sl_rest_add_routes(sl_rest *rs, sl_http_server *sv)
{
    const unsigned get = SL_HTTP_M(GET);
    const sl_http_route always[] = {
        {.methods = get,
         .pattern = "/ping",
         .open = true,
         .on_loop = sl_http_page_ping,
         .arg = rs->ping},
        {.methods = get, .pattern = "/health/live", .open = true, .on_loop = on_live, .arg = rs},
        {.methods = get, .pattern = "/health/ready", .open = true, .on_loop = on_ready, .arg = rs},
        {.methods = get, .pattern = "/metrics", .fn = on_metrics, .arg = rs},
        {.methods = get, .pattern = "/metrics/{name}", .fn = on_family, .arg = rs},
    };
    sl_http_server_route(sv, always, sizeof always / sizeof always[0]);
    const sl_http_route mqtt = {.methods = get,
                                .pattern = "/health/mqtt",
                                .open = true,
                                .on_loop = on_health_mqtt,
                                .arg = rs};
    const sl_http_route db = {
        .methods = get, .pattern = "/health/db", .open = true, .fn = on_health_db, .arg = rs};
    const sl_http_route latest = {
        .methods = get, .pattern = "/mqtt", .fn = sl_rest_on_latest, .arg = rs};
    const sl_http_route stats = {
        .methods = get, .pattern = "/mqtt/stats", .fn = on_stats, .arg = rs};
    if (rs->opt.sn != NULL)
        sl_http_server_route(sv, &mqtt, 1);
    if (rs->opt.sink != NULL)
        sl_http_server_route(sv, &db, 1);
    if (rs->opt.latest)
        sl_http_server_route(sv, &latest, 1);
    if (rs->opt.stats)
        sl_http_server_route(sv, &stats, 1);
}
