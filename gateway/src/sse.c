/* SPDX-License-Identifier: Apache-2.0
 *
 * sse: connections, their rings, and what is written to them. The way from the router's loop is in
 * sse_group.c.
 */
#include "sse.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "sse_int.h"

#define STREAM_BYTES     (256u * 1024) /* that wait in the HTTP stream */
#define PART_BYTES       (64u * 1024)  /* of an event that are offered at once */
#define RING_BYTES       (16u << 20)   /* payload bytes that wait in one ring; one message always */
#define HEAD_BYTES       4000u         /* of an id that is copied in one piece with its number */
#define RING_INITIAL     8u
#define TICK_MS          500
#define RETRY_AFTER      "5"
#define FIRST_BYTES      "retry:3000\n: sluice\n\n"
#define KEEP_ALIVE_BYTES ": keep-alive\n\n"

/* ---- ring ---- */

static uint32_t ring_slot(const sse_conn *cn, uint32_t index)
{
    return (cn->ring_first + index) % cn->ring_cap;
}

static sl_message *ring_pop(sse_conn *cn)
{
    sl_message *msg = cn->ring[cn->ring_first];
    cn->ring_first = ring_slot(cn, 1);
    cn->ring_len--;
    cn->ring_bytes -= msg->payload.len;
    return msg;
}

/* The ring grows up to its capacity: most connections never need more than a few places. */
static void ring_grow(sse_conn *cn)
{
    uint32_t cap = cn->ring_cap == 0 ? RING_INITIAL : cn->ring_cap * 2;
    if (cap > cn->sse->opt.queue_capacity)
        cap = cn->sse->opt.queue_capacity;
    sl_message **fresh = sl_calloc(cap, sizeof(sl_message *));
    for (uint32_t i = 0; i < cn->ring_len; i++)
        fresh[i] = cn->ring[ring_slot(cn, i)];
    sl_free(cn->ring);
    cn->ring = fresh;
    cn->ring_cap = cap;
    cn->ring_first = 0;
}

static void count_drop(sse_conn *cn, uint64_t count)
{
    cn->gap += count;
    atomic_fetch_add_explicit(&cn->sse->dropped, count, memory_order_relaxed);
}

static bool ring_is_full(const sse_conn *cn, const sl_message *msg)
{
    return cn->ring_len >= cn->sse->opt.queue_capacity ||
           (cn->ring_len > 0 && cn->ring_bytes + msg->payload.len > RING_BYTES);
}

static void ring_push(sse_conn *cn, sl_message *msg)
{
    while (ring_is_full(cn, msg)) {
        count_drop(cn, 1);
        if (!cn->sse->opt.drop_oldest)
            return;
        sl_message *oldest = ring_pop(cn);
        sl_message_unref(&oldest);
    }
    if (cn->ring_len == cn->ring_cap)
        ring_grow(cn);
    cn->ring[ring_slot(cn, cn->ring_len)] = sl_message_ref(msg);
    cn->ring_len++;
    cn->ring_bytes += msg->payload.len;
}

/* ---- writing ---- */

static bool put(sse_conn *cn, sl_slice head, sl_rbuf *body, uint32_t off, uint32_t len)
{
    sl_err err = sl_http_stream_write(cn->st, head, body, off, len);
    if (err == SL_OK)
        cn->last_write = sl_loop_now(cn->sse->opt.front);
    return err == SL_OK; // SL_ELIMIT: on_writable goes on; SL_ECLOSED: on_closed follows
}

/* Offers body bytes in parts, the first with head before it. */
static bool put_body(sse_conn *cn, sl_slice head)
{
    sl_event *ev = &cn->event;
    do {
        uint32_t len = ev->body_len < PART_BYTES ? ev->body_len : PART_BYTES;
        if (!put(cn, head, ev->rb, ev->body_off, len))
            return false;
        ev->body_off += len;
        ev->body_len -= len;
        cn->id_sent = true;
        head = (sl_slice){0};
    } while (ev->body_len > 0);
    return true;
}

/* The event under way, from where it stopped. True: it is out. */
static bool put_event(sse_conn *cn)
{
    sl_event *ev = &cn->event;
    char head[HEAD_BYTES + 32];
    if (cn->id_sent)
        return put_body(cn, (sl_slice){0});
    while (ev->id_len > HEAD_BYTES) { // an id too long for one head goes ahead in parts
        uint32_t len = ev->id_len - HEAD_BYTES < PART_BYTES ? ev->id_len - HEAD_BYTES : PART_BYTES;
        if (!put(cn, (sl_slice){0}, ev->rb, ev->id_off, len))
            return false;
        ev->id_off += len;
        ev->id_len -= len;
    }
    memcpy(head, ev->rb->data + ev->id_off, ev->id_len);
    int number = snprintf(head + ev->id_len, 32, "%llu\n", (unsigned long long)cn->number);
    return put_body(cn, sl_slice_of(head, ev->id_len + (size_t)number));
}

static bool put_gap(sse_conn *cn)
{
    char text[96];
    if (cn->gap == 0 || !cn->sse->opt.gap_events)
        return true;
    int len = snprintf(text, sizeof text, "event:mqtt-gap\ndata:{\"dropped\":%llu}\n\n",
                       (unsigned long long)cn->gap);
    if (!put(cn, sl_slice_of(text, (size_t)len), NULL, 0, 0))
        return false;
    cn->gap = 0;
    return true;
}

static void warn_base64(sse_conn *cn, const sl_message *msg)
{
    if (cn->sse->opt.envelope || msg->is_text || cn->sse->warned_base64)
        return;
    cn->sse->warned_base64 = true;
    sl_warn(SL_C_SSE, "SSE-BINARY-PAYLOAD", SL_B("topic", msg->topic),
            SL_S("effect", "sent as base64 without a label; set mqtt-sse/payload-envelope: true"));
}

static bool has_next(const sse_conn *cn)
{
    return cn->replay_at < cn->replay_len || cn->ring_len > 0;
}

/* The next message, with its reference: first the cached ones, then the live ones. */
static sl_message *take_next(sse_conn *cn, bool *replayed)
{
    *replayed = cn->replay_at < cn->replay_len;
    if (!*replayed)
        return ring_pop(cn);
    sl_message *msg = cn->replay[cn->replay_at++];
    if (cn->replay_at == cn->replay_len) {
        sl_free(cn->replay);
        cn->replay = NULL;
        cn->replay_at = cn->replay_len = 0;
    }
    return msg;
}

/* Makes the next event; false: none is left. */
static bool next_event(sse_conn *cn)
{
    while (has_next(cn)) {
        bool replayed;
        sl_message *msg = take_next(cn, &replayed);
        warn_base64(cn, msg);
        sl_err err = sl_event_of(msg, cn->sse->opt.envelope, replayed, &cn->event);
        sl_message_unref(&msg);
        if (err == SL_OK) {
            cn->number++;
            cn->id_sent = false;
            return true;
        }
        count_drop(cn, 1);
    }
    return false;
}

void sse_pump(sse_conn *cn)
{
    if (cn->ended)
        return;
    for (;;) {
        if (cn->event.rb == NULL) {
            // a gap belongs before the next message, so that its number is known then
            if (!has_next(cn) || !put_gap(cn) || !next_event(cn))
                return;
        }
        if (!put_event(cn))
            return;
        sl_rbuf_unref(&cn->event.rb);
        atomic_fetch_add_explicit(&cn->sse->sent, 1, memory_order_relaxed);
    }
}

void sse_offer(sse_conn *cn, sl_message *msg)
{
    if (cn->joined && msg->seq > cn->from_seq)
        ring_push(cn, msg);
}

void sse_note_dropped(sse_conn *cn, uint64_t count)
{
    if (cn->joined)
        count_drop(cn, count);
}

/* The snapshot of the cache goes before anything live. It does not count for the queue's capacity:
 * it comes once and shares its messages with the cache. */
void sse_replay(sse_conn *cn, sl_message ***msgs, size_t count, uint64_t seq)
{
    cn->joined = true;
    cn->from_seq = seq;
    cn->replay = *msgs;
    cn->replay_len = count;
    *msgs = NULL;
    // only now, so that who has read them misses nothing that comes
    put(cn, sl_slice_str(FIRST_BYTES), NULL, 0, 0);
    sse_pump(cn);
}

/* ---- life of a connection ---- */

static void on_writable(void *arg)
{
    sse_pump(arg);
}

static void conn_free(sse_conn *cn)
{
    while (has_next(cn)) {
        bool replayed;
        sl_message *msg = take_next(cn, &replayed);
        sl_message_unref(&msg);
    }
    sl_free(cn->ring);
    sl_free(cn->replay);
    sl_rbuf_unref(&cn->event.rb);
    sl_http_req_unref(&cn->req);
    sl_free(cn);
}

static void on_closed(void *arg, sl_err why)
{
    sse_conn *cn = arg;
    sl_sse *sse = cn->sse;
    sl_trace(SL_C_SSE, "SSE-CLOSED", SL_U("connection", cn->id), SL_E(why));
    sl_list_remove(&cn->node);
    sl_imap_remove(sse->conns, cn->id);
    atomic_fetch_sub_explicit(&sse->open, 1, memory_order_relaxed);
    sse_group_leave(cn);
    conn_free(cn);
}

static void end_stream(sse_conn *cn, const char *why)
{
    if (cn->ended)
        return;
    cn->ended = true;
    atomic_fetch_add_explicit(&cn->sse->ended, 1, memory_order_relaxed);
    sl_info(SL_C_SSE, "SSE-ENDED", SL_U("connection", cn->id), SL_S("why", why));
    sl_http_stream_end(cn->st);
}

/* The right to read may have been taken away since the request was checked. */
static void review_right(sse_conn *cn, sl_mono_ms now)
{
    sl_sse *sse = cn->sse;
    if (cn->expires_at != 0 && now >= cn->expires_at)
        end_stream(cn, "token over");
    else if (sse->opt.max_stream_ms > 0 && now - cn->opened_at >= sse->opt.max_stream_ms)
        end_stream(cn, "max-stream-seconds");
    else if (sse->opt.auth != NULL &&
             sl_auth_version(sse->opt.auth, sl_http_req_user(cn->req)) != cn->auth_version)
        end_stream(cn, "rights of the user changed");
    else if (sl_acl_version(sse->opt.acl) != cn->acl_version) {
        cn->acl_version = sl_acl_version(sse->opt.acl);
        if (!sl_acl_allows_req(sse->opt.acl, cn->req, sse_group_filter(cn->group)))
            end_stream(cn, "topic no longer granted");
    }
}

static void on_tick(void *arg)
{
    sl_sse *sse = arg;
    sl_mono_ms now = sl_loop_now(sse->opt.front);
    for (sl_node *node = sl_list_first(&sse->list), *next; node != NULL; node = next) {
        next = sl_list_next(&sse->list, node);
        sse_conn *cn = SL_CONTAINER(node, sse_conn, node);
        if (cn->ended)
            continue;
        review_right(cn, now);
        bool between = cn->event.rb == NULL; // never inside an event
        if (!cn->ended && between && sse->opt.keep_alive_ms > 0 &&
            now - cn->last_write >= sse->opt.keep_alive_ms)
            put(cn, sl_slice_str(KEEP_ALIVE_BYTES), NULL, 0, 0);
    }
}

/* ---- requests ---- */

/* Is text/event-stream acceptable? Without the header everything is. */
static bool accepts_events(const sl_http_req *req)
{
    const char *accept = sl_http_req_header(req, "Accept");
    return accept == NULL || strcasestr(accept, "text/event-stream") != NULL ||
           strstr(accept, "*/*") != NULL || strcasestr(accept, "text/*") != NULL;
}

static bool take_qos(sl_sse *sse, const sl_http_req *req, sl_http_resp *resp, uint8_t *qos)
{
    unsigned given = 0;
    const char *text = sl_http_query_get(req, "qos", &given);
    *qos = sse->opt.default_qos;
    if (given == 0)
        return true;
    if (given > 1 || strlen(text) != 1 || text[0] < '0' || text[0] > '2') {
        sl_http_resp_msg(resp, 400, "The parameter qos must be 0, 1 or 2, given once");
        return false;
    }
    *qos = (uint8_t)(text[0] - '0');
    return true;
}

static bool refuse_busy(sl_sse *sse, sl_http_resp *resp, const char *why)
{
    atomic_fetch_add_explicit(&sse->rejected, 1, memory_order_relaxed);
    sl_http_resp_msg(resp, 503, why);
    sl_http_resp_add_header(resp, "Retry-After", RETRY_AFTER);
    return false;
}

static bool has_room(sl_sse *sse, const char *filter, sl_http_resp *resp)
{
    if (atomic_load_explicit(&sse->stopping, memory_order_acquire))
        return refuse_busy(sse, resp, "The gateway is stopping");
    if (sse->opt.max_total > 0 && sl_imap_count(sse->conns) >= sse->opt.max_total)
        return refuse_busy(sse, resp, "Too many streams are open");
    if (sse->opt.max_per_topic > 0 &&
        sse_group_size(sse, sl_slice_str(filter)) >= sse->opt.max_per_topic)
        return refuse_busy(sse, resp, "Too many streams are open for this topic");
    return true;
}

static void open_stream(sl_sse *sse, sl_http_stream *st, const char *filter, uint8_t qos)
{
    static const sl_http_stream_events events = {.on_writable = on_writable,
                                                 .on_closed = on_closed};
    const sl_http_req *req = sl_http_stream_req(st);
    sl_http_resp *resp = sl_http_stream_resp(st);
    sse_conn *cn = sl_calloc(1, sizeof *cn);
    cn->sse = sse;
    cn->st = st;
    cn->id = ++sse->next_id;
    cn->req = sl_http_req_ref((sl_http_req *)req);
    cn->opened_at = cn->last_write = sl_loop_now(sse->opt.front);
    cn->acl_version = sl_acl_version(sse->opt.acl);
    if (sse->opt.auth != NULL) {
        cn->expires_at = sl_auth_expires(req);
        cn->auth_version = sl_auth_version(sse->opt.auth, sl_http_req_user(req));
    }
    sl_http_resp_set_status(resp, 200);
    sl_http_resp_add_header(resp, "Content-Type", "text/event-stream;charset=utf-8");
    sl_http_resp_add_header(resp, "Cache-Control", "no-cache, no-transform");
    sl_http_resp_add_header(resp, "X-Accel-Buffering", "no");
    sl_list_push_back(&sse->list, &cn->node);
    sl_err err = sl_imap_put(sse->conns, cn->id, cn, NULL);
    SL_ASSERT(err == SL_OK);
    atomic_fetch_add_explicit(&sse->open, 1, memory_order_relaxed);
    sse_group_join(cn, sl_slice_str(filter), qos);
    sl_http_stream_open(st, &events, cn, STREAM_BYTES);
}

void sl_sse_on_request(void *arg, sl_http_stream *st)
{
    sl_sse *sse = arg;
    const sl_http_req *req = sl_http_stream_req(st);
    sl_http_resp *resp = sl_http_stream_resp(st);
    if (!sse->ticking) { // the first request is the first moment on the front's loop
        sse->ticking = true;
        sl_timer_start(&sse->tick, TICK_MS, TICK_MS);
    }
    const char *filter = NULL;
    uint8_t qos = 0;
    bool passes =
        sl_acl_take_topic(sse->opt.acl, req, sse->opt.default_topic, false, resp, &filter) == SL_OK;
    if (passes && !accepts_events(req)) {
        sl_http_resp_msg(resp, 406, "This resource is a text/event-stream");
        passes = false;
    }
    passes = passes && take_qos(sse, req, resp, &qos) && has_room(sse, filter, resp);
    if (passes)
        open_stream(sse, st, filter, qos);
    else
        sl_http_stream_reply(st);
}

/* ---- the whole ---- */

sl_sse *sl_sse_new(const sl_sse_options *options)
{
    sl_sse *sse = sl_calloc(1, sizeof *sse);
    sse->opt = *options;
    sl_list_init(&sse->list);
    sl_list_init(&sse->dirty);
    sse->conns = sl_imap_new(0); // bounded by max_total and the server's connection limit
    sse->groups = sl_map_new(0); // at most one per connection
    sl_timer_init(&sse->tick, options->front, on_tick, sse);
    sse_group_init(sse);
    return sse;
}

void sl_sse_stop(sl_sse *sse)
{
    atomic_store_explicit(&sse->stopping, true, memory_order_release);
}

void sl_sse_close(sl_sse *sse)
{
    sl_timer_fini(&sse->tick);
}

void sl_sse_free(sl_sse **sse)
{
    sl_sse *own = *sse;
    *sse = NULL;
    if (own == NULL)
        return;
    for (sl_node *node; (node = sl_list_pop_front(&own->list)) != NULL;) {
        sse_conn *cn = SL_CONTAINER(node, sse_conn, node);
        sse_group_forget(cn);
        conn_free(cn);
    }
    sse_group_fini(own);
    sl_imap_free(&own->conns);
    sl_map_free(&own->groups);
    sl_free(own);
}

void sl_sse_read(const sl_sse *sse, sl_sse_figures *out)
{
    *out = (sl_sse_figures){
        .sent = atomic_load_explicit(&sse->sent, memory_order_relaxed),
        .dropped = atomic_load_explicit(&sse->dropped, memory_order_relaxed),
        .rejected = atomic_load_explicit(&sse->rejected, memory_order_relaxed),
        .ended = atomic_load_explicit(&sse->ended, memory_order_relaxed),
        .open = atomic_load_explicit(&sse->open, memory_order_relaxed),
    };
}
