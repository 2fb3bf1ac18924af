/* SPDX-License-Identifier: Apache-2.0
 *
 * figures: the rows, and one function that reads the value of each.
 */
#include "figures.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

/* X(NAME, "metric", KIND, "help") */
#define MQTT_MAP(X)                                                                                \
    X(TOPIC_FILTERS, "mqtt_router_topic_filters", GAUGE,                                           \
      "Registered filters that the broker has granted.")                                           \
    X(LISTENERS, "mqtt_router_listeners", GAUGE, "Registered listeners, live and durable.")        \
    X(CACHED, "mqtt_router_cached_messages", GAUGE, "Topics in the cache of latest messages.")     \
    X(RECEIVED, "mqtt_router_messages_received", COUNTER, "Messages delivered by the broker.")     \
    X(LIVE_DROPPED, "mqtt_router_messages_dropped", COUNTER,                                       \
      "Messages that live listeners did not get because of the rate limit.")                       \
    X(UNMATCHED, "mqtt_router_messages_unmatched", COUNTER,                                        \
      "Messages of filters that nobody wants any more, acknowledged and dropped.")                 \
    X(EVICTIONS, "mqtt_cache_evictions", COUNTER, "Topics pushed out of the cache.")               \
    X(PENDING, "mqtt_router_messages_pending", GAUGE,                                              \
      "Messages that a durable listener has not taken yet.")                                       \
    X(UP, "mqtt_connection_up", GAUGE, "1 while connected to the broker.")                         \
    X(RECONNECTS, "mqtt_connection_reconnects", COUNTER, "Connections after the first one.")       \
    X(TAKEOVERS, "mqtt_connection_takeovers", COUNTER,                                             \
      "Connections ended because another client seems to use our client id.")                      \
    X(SESSION_PRESENT, "mqtt_session_present", GAUGE,                                              \
      "1 while connected with a session that the broker had kept.")                                \
    X(SESSIONS_LOST, "mqtt_sessions_lost", COUNTER,                                                \
      "Reconnections that found no session although one was expected.")                            \
    X(WANTED, "mqtt_subscriptions_wanted", GAUGE, "Filters to be subscribed at the broker.")       \
    X(HELD, "mqtt_subscriptions_granted", GAUGE, "Of them granted.")                               \
    X(REFUSED, "mqtt_subscriptions_refused", GAUGE, "Of them refused by the broker.")              \
    X(UNACKED, "mqtt_inflight_unacked", GAUGE, "Deliveries not yet acknowledged.")                 \
    X(INFLIGHT_LIMIT, "mqtt_inflight_limit", GAUGE, "Most deliveries that may be unacknowledged.") \
    X(OLDEST, "mqtt_inflight_oldest_seconds", GAUGE, "Age of the oldest unacknowledged delivery.") \
    X(ACKS, "mqtt_acks_sent", COUNTER, "PUBACK and PUBREC packets sent.")                          \
    X(REDELIVERED, "mqtt_redelivered", COUNTER, "Messages received with DUP set.")                 \
    X(RETAINED, "mqtt_retained_received", COUNTER, "Messages received with RETAIN set.")           \
    X(SSE_SENT, "mqtt_sse_events_sent", COUNTER, "Events written to streams.")                     \
    X(SSE_DROPPED, "mqtt_sse_dropped", COUNTER, "Messages lost by the queues of slow streams.")    \
    X(SSE_OPEN, "mqtt_sse_open_connections", GAUGE, "Open streams.")                               \
    X(SSE_REJECTED, "mqtt_sse_rejected", COUNTER, "Stream requests refused because of a limit.")   \
    X(SSE_ENDED, "mqtt_sse_ended", COUNTER,                                                        \
      "Streams ended by the gateway: right lost, token or time over.")                             \
    X(DENIED, "mqtt_authorizer_denied", COUNTER, "Requests for topics that are not granted.")

#define HTTP_MAP(X)                                                                                \
    X(CONNECTIONS, "http_connections_open", GAUGE, "Open HTTP connections.")                       \
    X(ACCEPTED, "http_connections_accepted", COUNTER, "HTTP connections accepted.")                \
    X(TURNED_AWAY, "http_connections_refused", COUNTER, "HTTP connections closed by a limit.")     \
    X(REQUESTS, "http_requests_received", COUNTER, "HTTP requests.")                               \
    X(BAD, "http_requests_bad", COUNTER, "HTTP requests that could not be read.")                  \
    X(BUSY, "http_requests_busy", COUNTER, "HTTP requests answered 503 because too many ran.")     \
    X(TIMEOUTS, "http_timeouts", COUNTER, "HTTP connections ended by a deadline.")

typedef enum figure {
#define FIGURE_ENUM(name, metric, kind, help) F_##name,
    MQTT_MAP(FIGURE_ENUM) F_MQTT_END,
    F_HTTP_FIRST = F_MQTT_END - 1, /* the next one continues the count */
    HTTP_MAP(FIGURE_ENUM) F_COUNT
#undef FIGURE_ENUM
} figure;

#define FIGURE_ROW(name, metric, kind, help) {metric, NULL, SL_STAT_##kind, help},
static const sl_stat_row mqtt_rows[] = {MQTT_MAP(FIGURE_ROW) SL_WRITER_STAT_MAP(FIGURE_ROW)};
static const sl_stat_row http_rows[] = {HTTP_MAP(FIGURE_ROW)};
#undef FIGURE_ROW

#define HTTP_ROWS (sizeof http_rows / sizeof http_rows[0])
#define MQTT_ROWS (sizeof mqtt_rows / sizeof mqtt_rows[0])

typedef struct source {
    sl_figures *fg;
    figure id;
} source;

struct sl_figures {
    sl_figures_parts parts;
    sl_stats *tables[2]; /* owned: HTTP, MQTT or NULL */
    size_t table_count;
    source sources[F_COUNT];
};

static int64_t read_router(const sl_figures *fg, figure id)
{
    sl_router_stats st;
    sl_router_read_stats(fg->parts.rt, &st);
    switch (id) {
    case F_LISTENERS:
        return st.listeners;
    case F_CACHED:
        return st.cached;
    case F_RECEIVED:
        return (int64_t)st.received;
    case F_LIVE_DROPPED:
        return (int64_t)st.dropped;
    case F_UNMATCHED:
        return (int64_t)st.unmatched;
    case F_EVICTIONS:
        return (int64_t)st.cache_evictions;
    default:
        return st.pending;
    }
}

static int64_t read_session(const sl_figures *fg, figure id)
{
    sl_session_figures sf;
    sl_session_read(fg->parts.sn, &sf);
    switch (id) {
    case F_TOPIC_FILTERS:
        return sf.listened;
    case F_UP:
        return sf.connected;
    case F_RECONNECTS:
        return (int64_t)sf.reconnects;
    case F_TAKEOVERS:
        return (int64_t)sf.takeovers;
    case F_SESSION_PRESENT:
        return sf.session_present;
    case F_SESSIONS_LOST:
        return (int64_t)sf.sessions_lost;
    case F_WANTED:
        return sf.wanted;
    case F_HELD:
        return sf.held;
    case F_REFUSED:
        return sf.refused;
    case F_UNACKED:
        return sf.unacked;
    case F_INFLIGHT_LIMIT:
        return sf.limit;
    case F_OLDEST:
        return sf.oldest_ms / 1000;
    case F_ACKS:
        return (int64_t)sf.acks_sent;
    case F_REDELIVERED:
        return (int64_t)sf.redelivered;
    default:
        return (int64_t)sf.retained;
    }
}

static int64_t read_sse(const sl_figures *fg, figure id)
{
    sl_sse_figures sf;
    sl_sse_read(fg->parts.sse, &sf);
    switch (id) {
    case F_SSE_SENT:
        return (int64_t)sf.sent;
    case F_SSE_DROPPED:
        return (int64_t)sf.dropped;
    case F_SSE_OPEN:
        return sf.open;
    case F_SSE_REJECTED:
        return (int64_t)sf.rejected;
    default:
        return (int64_t)sf.ended;
    }
}

static int64_t read_http(const sl_figures *fg, figure id)
{
    sl_http_counts hc;
    sl_http_server_counts(fg->parts.sv, &hc);
    switch (id) {
    case F_CONNECTIONS:
        return (int64_t)hc.connections;
    case F_ACCEPTED:
        return (int64_t)hc.accepted;
    case F_TURNED_AWAY:
        return (int64_t)hc.refused;
    case F_REQUESTS:
        return (int64_t)hc.requests;
    case F_BAD:
        return (int64_t)hc.bad_requests;
    case F_BUSY:
        return (int64_t)hc.busy;
    default:
        return (int64_t)hc.timeouts;
    }
}

static int64_t read_figure(void *arg)
{
    const source *src = arg;
    const sl_figures *fg = src->fg;
    if (src->id == F_DENIED)
        return fg->parts.acl != NULL ? (int64_t)sl_acl_denied(fg->parts.acl) : 0;
    if (src->id >= F_MQTT_END)
        return fg->parts.sv != NULL ? read_http(fg, src->id) : 0;
    if (src->id >= F_SSE_SENT)
        return fg->parts.sse != NULL ? read_sse(fg, src->id) : 0;
    if (src->id >= F_UP || src->id == F_TOPIC_FILTERS)
        return fg->parts.sn != NULL ? read_session(fg, src->id) : 0;
    return fg->parts.rt != NULL ? read_router(fg, src->id) : 0;
}

static void bind_sources(sl_figures *fg, sl_stats *st, figure from, figure to)
{
    for (figure id = from; id < to; id++) {
        fg->sources[id] = (source){fg, id};
        sl_stats_set_source(st, (unsigned)(id - from), read_figure, &fg->sources[id]);
    }
}

sl_figures *sl_figures_new(const sl_figures_parts *parts, bool mqtt)
{
    sl_figures *fg = sl_calloc(1, sizeof *fg);
    fg->parts = *parts;
    fg->tables[fg->table_count++] = sl_stats_new(http_rows, HTTP_ROWS);
    bind_sources(fg, fg->tables[0], F_MQTT_END, F_COUNT);
    if (mqtt) {
        sl_stats *st = sl_stats_new(mqtt_rows, MQTT_ROWS);
        fg->tables[fg->table_count++] = st;
        bind_sources(fg, st, 0, F_MQTT_END);
        if (parts->writer != NULL)
            sl_writer_bind_stats(parts->writer, st, F_MQTT_END);
    }
    return fg;
}

void sl_figures_free(sl_figures **fg)
{
    sl_figures *own = *fg;
    *fg = NULL;
    if (own == NULL)
        return;
    for (size_t i = 0; i < own->table_count; i++)
        sl_stats_free(&own->tables[i]);
    sl_free(own);
}

sl_stats *const *sl_figures_tables(const sl_figures *fg, size_t *count)
{
    *count = fg->table_count;
    return fg->tables;
}

/* Does a line of the page belong to the family? Samples of a histogram have suffixes. */
static bool is_of_family(sl_slice line, const char *name)
{
    static const char *const before[] = {"# HELP ", "# TYPE ", ""};
    size_t len = strlen(name);
    for (size_t i = 0; i < sizeof before / sizeof before[0]; i++) {
        size_t skip = strlen(before[i]);
        if (line.len <= skip + len || memcmp(line.ptr, before[i], skip) != 0 ||
            memcmp(line.ptr + skip, name, len) != 0)
            continue;
        sl_slice rest = sl_slice_of(line.ptr + skip + len, line.len - skip - len);
        static const char *const after[] = {" ", "{", "_bucket", "_sum", "_count"};
        for (size_t k = 0; k < sizeof after / sizeof after[0]; k++) {
            size_t want = strlen(after[k]);
            if (rest.len >= want && memcmp(rest.ptr, after[k], want) == 0)
                return true;
        }
    }
    return false;
}

static bool has_family(const sl_figures *fg, const char *name)
{
    for (size_t i = 0; i < HTTP_ROWS; i++) {
        if (strcmp(http_rows[i].name, name) == 0)
            return true;
    }
    for (size_t i = 0; fg->table_count > 1 && i < MQTT_ROWS; i++) {
        if (strcmp(mqtt_rows[i].name, name) == 0)
            return true;
    }
    return false;
}

sl_err sl_figures_write_family(const sl_figures *fg, const char *name, sl_buf *out)
{
    if (!has_family(fg, name))
        return SL_ENOTFOUND;
    sl_buf page;
    sl_buf_init(&page, 1u << 20);
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < fg->table_count; i++)
        err = sl_stats_write_prometheus(fg->tables[i], &page);
    sl_slice left = sl_buf_peek(&page);
    while (err == SL_OK && left.len > 0) {
        const uint8_t *end = memchr(left.ptr, '\n', left.len);
        size_t len = end != NULL ? (size_t)(end - left.ptr) + 1 : left.len;
        if (is_of_family(sl_slice_of(left.ptr, len), name))
            err = sl_buf_append(out, left.ptr, len);
        left = sl_slice_of(left.ptr + len, left.len - len);
    }
    sl_buf_fini(&page);
    return err;
}

static sl_err write_names(const sl_stat_row *rows, size_t count, bool *first, sl_buf *out)
{
    sl_err err = SL_OK;
    for (size_t i = 0; err == SL_OK && i < count; i++) {
        err = sl_buf_printf(out, "%s\"/%s\"", *first ? "" : ",", rows[i].name);
        *first = false;
    }
    return err;
}

sl_err sl_figures_write_names(const sl_figures *fg, sl_buf *out)
{
    bool first = true;
    sl_err err = sl_buf_append_u8(out, '[');
    if (err == SL_OK)
        err = write_names(http_rows, HTTP_ROWS, &first, out);
    if (err == SL_OK && fg->table_count > 1)
        err = write_names(mqtt_rows, MQTT_ROWS, &first, out);
    return err == SL_OK ? sl_buf_append_u8(out, ']') : err;
}

sl_err sl_figures_write_reference(sl_buf *out)
{
    sl_err err = sl_buf_append_str(
        out,
        "# Metrics of sluice-gateway\n\n"
        "Made by `sluice-gateway --print-reference metrics`; do not edit. `GET /metrics` gives "
        "all of them as Prometheus text, `GET /metrics/<name>` one.\n\n");
    if (err == SL_OK)
        err = sl_stats_write_reference(mqtt_rows, MQTT_ROWS, out);
    if (err == SL_OK)
        err = sl_buf_append_str(out, "\n## HTTP\n\n");
    if (err == SL_OK)
        err = sl_stats_write_reference(http_rows, HTTP_ROWS, out);
    return err;
}
