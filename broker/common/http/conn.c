/* SPDX-License-Identifier: Apache-2.0
 *
 * conn: a client's connection: parsing of requests, gate, dispatch, and the queue of what goes
 * out. The states are drawn in http_int.h. One request is served at a time; bytes of the next one
 * wait unparsed, and while they wait the socket is not read.
 */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "http/http_int.h"

#define BACKEND_IDLE_MS 5000

static const char *const state_names[CONN_STATES] = {
#define HTTP_STATE_NAME(name, word) [CONN_##name] = (word),
    HTTP_STATE_MAP(HTTP_STATE_NAME)
#undef HTTP_STATE_NAME
};

#define FROM(name) (1u << CONN_##name)
/* Which states may come before. */
static const unsigned legal_before[CONN_STATES] = {
    [CONN_HEAD] = FROM(SERVE) | FROM(STREAM) | FROM(GATE),
    [CONN_GATE] = FROM(HEAD),
    [CONN_BODY] = FROM(GATE),
    [CONN_SERVE] = FROM(BODY),
    [CONN_STREAM] = FROM(SERVE),
    [CONN_DRAIN] = FROM(HEAD) | FROM(GATE) | FROM(BODY) | FROM(SERVE) | FROM(STREAM),
    [CONN_LINGER] = FROM(DRAIN),
    [CONN_CLOSED] = ~0u,
};

void http_conn_set_state(http_conn *cn, http_state state)
{
    SL_ASSERT((legal_before[state] & (1u << cn->state)) != 0);
    sl_trace(SL_C_HTTP, "HTTP-STATE", SL_S("peer", sl_stream_peer(cn->sm)),
             SL_S("from", state_names[cn->state]), SL_S("to", state_names[state]));
    const sl_http_options *opt = &cn->shard->sv->opt;
    sl_mono_ms now = sl_loop_now(cn->shard->lp);
    cn->state = state;
    switch (state) {
    case CONN_HEAD:
        cn->deadline = now + opt->idle_ms;
        break;
    case CONN_BODY:
        cn->deadline = now + opt->body_ms;
        break;
    case CONN_LINGER:
        cn->deadline = now + HTTP_LINGER_MS;
        break;
    default:
        cn->deadline = 0;
    }
}

void http_conn_flush(http_conn *cn)
{
    if (cn->state == CONN_CLOSED || cn->state == CONN_LINGER)
        return;
    if (!cn->blocked)
        http_out_write(cn);
    if (cn->state == CONN_STREAM || cn->held)
        http_stream_sent(cn);
    if (cn->be != NULL && cn->be->paused && cn->out_bytes <= HTTP_OUT_LOW_BYTES)
        http_backend_resume(cn);
    if (cn->state == CONN_DRAIN && cn->out_first == NULL) {
        if (cn->peer_ended) {
            http_conn_close(cn);
            return;
        }
        // closing at once would reset the connection if the peer has sent more than we read, and
        // the reset could overtake the answer
        sl_stream_shutdown(cn->sm);
        http_conn_set_state(cn, CONN_LINGER);
        sl_rbuf_unref(&cn->in);
        cn->in_len = 0;
        if (!cn->reading) {
            cn->reading = true;
            sl_stream_read_start(cn->sm);
        }
        return;
    }
    http_conn_pump(cn);
}

void http_conn_close(http_conn *cn)
{
    if (cn->state == CONN_CLOSED)
        return;
    http_conn_set_state(cn, CONN_CLOSED);
    http_backend_drop(cn);
    if (cn->req != NULL)
        cn->req->cn = NULL; // a gate may still answer
    sl_stream_close(cn->sm);
}

/* ---- answers of our own ---- */

void http_conn_queue_head(http_conn *cn, sl_http_resp *resp, const char *framing, sl_slice body)
{
    sl_buf text;
    sl_buf_init(&text, 1u << 20);
    http_resp_write_head(resp, cn->req == NULL ? NULL : cn->req->extra, http_shard_date(cn->shard),
                         framing, &text);
    size_t head_len = sl_buf_peek(&text).len;
    sl_rbuf *rb = sl_rbuf_new(head_len + body.len);
    memcpy(rb->data, sl_buf_peek(&text).ptr, head_len);
    if (body.len > 0)
        memcpy(rb->data + head_len, body.ptr, body.len);
    rb->len = (uint32_t)(head_len + body.len);
    sl_buf_fini(&text);
    http_out_queue(cn, sl_slice_of(NULL, 0), &rb, 0, rb->len, false);
}

static const char *connection_line(const http_conn *cn)
{
    if (!cn->keep_alive)
        return "Connection: close\r\n";
    return cn->http_1_0 ? "Connection: keep-alive\r\n" : "";
}

void http_conn_queue_reply(http_conn *cn, sl_http_resp *resp)
{
    char framing[96];
    sl_slice body = sl_buf_peek(&resp->body);
    bool bodiless = resp->status == 204 || resp->status == 304;
    char length[48] = "";
    if (!bodiless)
        (void)snprintf(length, sizeof(length), "Content-Length: %zu\r\n", body.len);
    (void)snprintf(framing, sizeof(framing), "%s%s", length, connection_line(cn));
    if (bodiless || cn->is_head)
        body.len = 0;
    http_conn_queue_head(cn, resp, framing, body);
}

void http_conn_reply(http_conn *cn, sl_http_resp *resp)
{
    http_conn_queue_reply(cn, resp);
    http_conn_finish(cn, resp->status);
}

void http_conn_reply_msg(http_conn *cn, int status, const char *msg)
{
    sl_http_resp *resp = sl_http_resp_new();
    sl_http_resp_msg(resp, status, msg);
    if (status == 503)
        sl_http_resp_add_header(resp, "Retry-After", "1");
    http_conn_reply(cn, resp);
    sl_http_resp_free(&resp);
}

void http_conn_log(const http_conn *cn, int status)
{
    const sl_http_req *req = cn->req;
    if (req == NULL || !sl_logger_traces(SL_C_HTTP))
        return;
    sl_trace(SL_C_HTTP, "HTTP-REQUEST", SL_S("method", sl_http_method_name(req->method)),
             SL_S("path", req->path == 0 ? "?" : sl_http_req_path(req)), SL_I("status", status),
             SL_I("ms", sl_loop_now(cn->shard->lp) - req->began),
             SL_S("peer", sl_stream_peer(cn->sm)),
             SL_S("user", req->user == NULL ? "-" : req->user));
}

void http_conn_finish(http_conn *cn, int status)
{
    http_conn_log(cn, status);
    if (cn->req != NULL)
        cn->req->cn = NULL;
    sl_http_req_unref(&cn->req);
    cn->replied = true;
    cn->complete = false;
    if (!cn->keep_alive || cn->shard->drain_deadline != 0) {
        http_backend_drop(cn);
        http_conn_set_state(cn, CONN_DRAIN);
        http_shard_mark(cn->shard, cn);
        return;
    }
    http_conn_set_state(cn, CONN_HEAD);
    if (cn->peer_ended && cn->in_len == 0) {
        http_conn_set_state(cn, CONN_DRAIN);
        http_shard_mark(cn->shard, cn);
        return;
    }
    http_conn_pump(cn);
}

/* The request cannot be read: says why and closes. */
static void reject(http_conn *cn, int status, const char *msg)
{
    HTTP_COUNT(cn->shard->sv, bad_requests, 1);
    sl_trace(SL_C_HTTP, "HTTP-BAD-REQUEST", SL_S("peer", sl_stream_peer(cn->sm)),
             SL_I("status", status), SL_S("reason", msg));
    cn->keep_alive = false;
    http_conn_reply_msg(cn, status, msg);
}

/* ---- parser callbacks: collect, decide nothing ---- */

static int fail(http_conn *cn, int status, const char *why)
{
    cn->reject = status;
    cn->reject_why = why;
    return 1;
}

static int on_begin(http_parser *parser)
{
    http_conn *cn = parser->data;
    http_shard *sh = cn->shard;
    const sl_http_options *opt = &sh->sv->opt;
    SL_ASSERT(cn->req == NULL && cn->state == CONN_HEAD);
    sl_http_req *req = http_req_new(opt->max_head_bytes, opt->max_headers, opt->max_body_bytes);
    req->lp = sh->lp;
    req->cn = cn;
    req->is_tls = opt->tls;
    req->began = sl_loop_now(sh->lp);
    (void)snprintf(req->peer_ip, sizeof(req->peer_ip), "%s", sl_stream_peer_ip(cn->sm));
    cn->req = req;
    cn->reject = 0;
    cn->deadline = req->began + opt->head_ms;
    return 0;
}

/* All callbacks of the head count bytes here: one bound for line and headers together. */
static int head_part(http_conn *cn, sl_err err)
{
    if (err == SL_OK &&
        sl_buf_peek(&cn->req->text).len <= (size_t)cn->shard->sv->opt.max_head_bytes)
        return 0;
    return fail(cn, 431, "request line and headers are too large");
}

static int on_url(http_parser *parser, const char *at, size_t len)
{
    http_conn *cn = parser->data;
    return head_part(cn, http_req_add_target(cn->req, at, len));
}

static int on_header_field(http_parser *parser, const char *at, size_t len)
{
    http_conn *cn = parser->data;
    if (cn->state != CONN_HEAD)
        return 0; // trailers of a chunked body mean nothing to us
    return head_part(cn, http_req_add_name(cn->req, at, len));
}

static int on_header_value(http_parser *parser, const char *at, size_t len)
{
    http_conn *cn = parser->data;
    if (cn->state != CONN_HEAD)
        return 0;
    return head_part(cn, http_req_add_value(cn->req, at, len));
}

static int on_headers(http_parser *parser)
{
    http_parser_pause(parser, 1); // the gate comes before the body
    parser->upgrade = 0;          // no protocol to change to: answered as if it had not been asked
    return 0;
}

static int on_body(http_parser *parser, const char *at, size_t len)
{
    http_conn *cn = parser->data;
    const sl_http_route *route = cn->req->route;
    uint32_t max =
        route->max_body_bytes != 0 ? route->max_body_bytes : cn->shard->sv->opt.max_body_bytes;
    if (sl_buf_peek(&cn->req->body).len + len > max ||
        sl_buf_append(&cn->req->body, at, len) != SL_OK)
        return fail(cn, 413, "request body is too large");
    return 0;
}

static int on_complete(http_parser *parser)
{
    http_conn *cn = parser->data;
    if (cn->req == NULL)
        return 0; // answered already: the gate refused it
    cn->complete = true;
    http_parser_pause(parser, 1); // the next request waits for this one's answer
    return 0;
}

static const http_parser_settings request_settings = {
    .on_message_begin = on_begin,
    .on_url = on_url,
    .on_header_field = on_header_field,
    .on_header_value = on_header_value,
    .on_headers_complete = on_headers,
    .on_body = on_body,
    .on_message_complete = on_complete,
};

/* ---- from head to handler ---- */

static sl_err map_method(unsigned parsed, sl_http_method *out)
{
    return sl_http_method_parse(http_method_str((enum http_method)parsed), out);
}

/* http_parser lets blanks pass in names, where others could see another header than we do. */
static bool names_are_tokens(const sl_http_req *req)
{
    const char *text = (const char *)sl_buf_peek(&req->text).ptr;
    for (uint32_t i = 0; i < req->header_count; i++)
        if (text[req->headers[i].name] == '\0' ||
            strpbrk(text + req->headers[i].name, " \t\"(),/:;<=>?@[\\]{}") != NULL)
            return false;
    return true;
}

static unsigned count_header(const sl_http_req *req, const char *name)
{
    unsigned n = 0;
    const char *text = (const char *)sl_buf_peek(&req->text).ptr;
    for (uint32_t i = 0; i < req->header_count; i++)
        n += strcasecmp(text + req->headers[i].name, name) == 0;
    return n;
}

/* What the request line and the headers say that every request must get right. False: rejected. */
static bool check_head(http_conn *cn)
{
    sl_http_req *req = cn->req;
    const char *why = NULL;
    cn->http_1_0 = req->http_1_0 = cn->parser.http_minor == 0;
    cn->keep_alive = http_should_keep_alive(&cn->parser) != 0;
    req->has_body = (cn->parser.flags & F_CHUNKED) != 0 ||
                    (cn->parser.content_length > 0 && cn->parser.content_length != ULLONG_MAX);
    if (cn->parser.http_major != 1) {
        reject(cn, 505, "only HTTP/1.0 and HTTP/1.1 are spoken here");
        return false;
    }
    if (map_method(cn->parser.method, &req->method) != SL_OK) {
        reject(cn, 501, "unknown method");
        return false;
    }
    cn->is_head = req->method == SL_HTTP_HEAD;
    sl_err err = http_req_finish_head(req, &why);
    if (err != SL_OK) {
        req->path = 0;
        reject(cn, 400, why);
        return false;
    }
    if (!names_are_tokens(req)) {
        reject(cn, 400, "bad header name");
        return false;
    }
    unsigned hosts = count_header(req, "host");
    if (hosts > 1 || (hosts == 0 && !req->http_1_0)) {
        reject(cn, 400, "exactly one Host header is needed");
        return false;
    }
    return true;
}

static void add_cors(const sl_http_options *opt, sl_http_req *req)
{
    const char *origin = sl_http_req_header(req, "origin");
    sl_http_req_add_header(req, "Access-Control-Allow-Origin", origin == NULL ? "*" : origin);
    if (origin != NULL)
        sl_http_req_add_header(req, "Vary", "Origin");
    sl_http_req_add_header(req, "Access-Control-Allow-Credentials", "true");
    sl_http_req_add_header(req, "Access-Control-Expose-Headers",
                           "Location, ETag, Auth-Token, Auth-Token-Valid-Until, "
                           "Auth-Token-Location");
    if (req->method != SL_HTTP_OPTIONS)
        return;
    char allow[512];
    (void)snprintf(allow, sizeof(allow), "%s%s%s",
                   "Authorization, Content-Type, X-Requested-With, No-Auth-Challenge, "
                   "If-Match, If-None-Match, Last-Event-ID",
                   opt->allow_headers == NULL ? "" : ", ",
                   opt->allow_headers == NULL ? "" : opt->allow_headers);
    sl_http_req_add_header(req, "Access-Control-Allow-Methods", "GET, PUT, POST, PATCH, DELETE");
    sl_http_req_add_header(req, "Access-Control-Allow-Headers", allow);
    sl_http_req_add_header(req, "Access-Control-Max-Age", "600");
}

/* An answer before the body was read: then what follows cannot be told from a request. */
static void refuse(http_conn *cn, sl_http_resp *resp)
{
    cn->keep_alive = cn->keep_alive && !cn->req->has_body;
    http_conn_reply(cn, resp);
}

static void refuse_msg(http_conn *cn, int status, const char *msg)
{
    cn->keep_alive = cn->keep_alive && !cn->req->has_body;
    http_conn_reply_msg(cn, status, msg);
}

static void refuse_route(http_conn *cn, unsigned allow)
{
    if (allow == 0) {
        refuse_msg(cn, 404, "nothing is bound to this path");
        return;
    }
    char list[96] = "";
    size_t used = 0;
    for (int i = 0; i < SL_HTTP_METHODS; i++)
        if ((allow & (1u << i)) != 0)
            used += (size_t)snprintf(list + used, sizeof(list) - used, "%s%s",
                                     used == 0 ? "" : ", ", sl_http_method_name((sl_http_method)i));
    sl_http_req_add_header(cn->req, "Allow", list);
    if (cn->req->method == SL_HTTP_OPTIONS) {
        sl_http_resp *resp = sl_http_resp_new();
        sl_http_resp_set_status(resp, 204);
        refuse(cn, resp);
        sl_http_resp_free(&resp);
        return;
    }
    refuse_msg(cn, 405, "this method is not allowed here");
}

/* The gate said yes. */
static void admit(http_conn *cn)
{
    sl_http_req *req = cn->req;
    if (req->route == NULL) {
        unsigned allow = 0;
        (void)http_route_find(cn->shard->sv->routes, cn->shard->sv->route_count, req, &allow);
        refuse_route(cn, allow);
        return;
    }
    uint32_t max = req->route->max_body_bytes != 0 ? req->route->max_body_bytes
                                                   : cn->shard->sv->opt.max_body_bytes;
    if ((cn->parser.flags & F_CHUNKED) == 0 && req->has_body && cn->parser.content_length > max) {
        reject(cn, 413, "request body is too large");
        return;
    }
    const char *expect = sl_http_req_header(req, "expect");
    if (expect != NULL && !req->http_1_0) {
        if (strcasecmp(expect, "100-continue") != 0) {
            refuse_msg(cn, 417, "unknown expectation");
            return;
        }
        if (req->has_body)
            http_out_queue(cn, sl_slice_str("HTTP/1.1 100 Continue\r\n\r\n"), NULL, 0, 0, false);
    }
    http_conn_set_state(cn, CONN_BODY);
    http_conn_pump(cn);
}

void sl_http_gate_done(sl_http_req *req, sl_http_verdict verdict)
{
    SL_CHECK(req, SL_HTTP_REQ_MAGIC);
    SL_ON_LOOP(req->lp);
    http_conn *cn = req->cn;
    if (cn != NULL) {
        SL_ASSERT(cn->state == CONN_GATE && cn->req == req);
        if (verdict == SL_HTTP_PASS)
            admit(cn);
        else
            refuse(cn, http_req_resp(req));
    }
    sl_http_req_unref(&req); // the reference of SL_HTTP_LATER
}

static void head_read(http_conn *cn)
{
    http_shard *sh = cn->shard;
    const sl_http_options *opt = &sh->sv->opt;
    HTTP_COUNT(sh->sv, requests, 1);
    if (!check_head(cn))
        return;
    sl_http_req *req = cn->req;
    req->id = atomic_fetch_add_explicit(&sh->sv->next_id, 1, memory_order_relaxed);
    unsigned allow = 0;
    req->route = http_route_find(sh->sv->routes, sh->sv->route_count, req, &allow);
    if (opt->cors)
        add_cors(opt, req);
    http_conn_set_state(cn, CONN_GATE);
    if (opt->cors && req->method == SL_HTTP_OPTIONS &&
        (req->route == NULL || (req->route->methods & SL_HTTP_M(OPTIONS)) == 0)) {
        refuse_route(cn, allow);
        return;
    }
    if (opt->gate == NULL) {
        admit(cn);
        return;
    }
    sl_http_req_ref(req); // so that a gate that answers later finds it
    sl_http_verdict verdict = opt->gate(opt->gate_arg, req, http_req_resp(req));
    if (verdict != SL_HTTP_LATER)
        sl_http_gate_done(req, verdict);
}

static void serve(http_conn *cn)
{
    cn->replied = false;
    http_conn_set_state(cn, CONN_SERVE);
    // what the gate wrote before it let the request pass is not the answer
    sl_http_resp_free(&cn->req->resp);
    if (cn->req->route->on_loop != NULL)
        http_stream_start(cn);
    else
        http_backend_submit(cn);
}

/* ---- bytes that come in ---- */

static void update_reading(http_conn *cn)
{
    bool want = cn->in_len == 0 && !cn->peer_ended;
    if (want == cn->reading)
        return;
    cn->reading = want;
    if (want)
        sl_stream_read_start(cn->sm);
    else
        sl_stream_read_stop(cn->sm);
}

static void parse_failed(http_conn *cn, enum http_errno code, uint8_t first)
{
    if (cn->state == CONN_HEAD) {
        cn->is_head = false; // still of the request before
        cn->http_1_0 = false;
    }
    if (cn->reject != 0)
        reject(cn, cn->reject, cn->reject_why);
    else if (code == HPE_INVALID_METHOD && first >= 'A' && first <= 'Z')
        reject(cn, 501, "unknown method");
    else if (code == HPE_HEADER_OVERFLOW)
        reject(cn, 431, "request line and headers are too large");
    else
        reject(cn, 400, http_errno_description(code));
}

/* One round of the parser over what waits. */
static void parse_once(http_conn *cn)
{
    sl_rbuf *rb = cn->in; // the reference is ours from here
    uint32_t off = cn->in_off;
    uint32_t len = cn->in_len;
    cn->in = NULL;
    cn->in_len = 0;
    size_t used =
        http_parser_execute(&cn->parser, &request_settings, (const char *)rb->data + off, len);
    enum http_errno code = HTTP_PARSER_ERRNO(&cn->parser);
    if (code == HPE_PAUSED) {
        http_parser_pause(&cn->parser, 0);
        if (used < len) {
            cn->in = sl_rbuf_ref(rb);
            cn->in_off = off + (uint32_t)used;
            cn->in_len = len - (uint32_t)used;
        }
        if (cn->complete)
            serve(cn);
        else
            head_read(cn);
    } else if (code != HPE_OK) {
        parse_failed(cn, code, rb->data[off]);
    }
    sl_rbuf_unref(&rb);
}

/* Bytes that have to wait move out of the read buffer that the whole loop shares: a few of them
 * would keep all of it alive. */
static void unpin(http_conn *cn)
{
    if (cn->in == NULL || cn->in->cap <= 2 * cn->in_len)
        return;
    sl_rbuf *own = sl_rbuf_new(cn->in_len);
    memcpy(own->data, cn->in->data + cn->in_off, cn->in_len);
    own->len = cn->in_len;
    sl_rbuf_unref(&cn->in);
    cn->in = own;
    cn->in_off = 0;
}

void http_conn_pump(http_conn *cn)
{
    if (cn->pumping)
        return; // the loop below goes on
    cn->pumping = true;
    // a peer that sends requests and does not read the answers has to wait
    while (cn->in_len > 0 && (cn->state == CONN_HEAD || cn->state == CONN_BODY) && !cn->blocked &&
           cn->out_bytes <= HTTP_OUT_HIGH_BYTES)
        parse_once(cn);
    cn->pumping = false;
    unpin(cn);
    if (cn->state == CONN_CLOSED)
        return;
    if (cn->state == CONN_HEAD && cn->in_len == 0 && cn->peer_ended && cn->out_first == NULL)
        http_conn_close(cn); // nothing more can come
    else if (cn->state != CONN_LINGER && cn->state != CONN_DRAIN)
        update_reading(cn);
}

static void on_data(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    http_conn *cn = arg;
    SL_CHECK(cn, HTTP_CONN_MAGIC);
    if (cn->state == CONN_LINGER || cn->state == CONN_DRAIN)
        return; // read only so that the peer gets the answer
    if (cn->in != NULL) {
        // a filter may hand up one more piece after reading stopped
        sl_rbuf *both = sl_rbuf_new((size_t)cn->in_len + len);
        memcpy(both->data, cn->in->data + cn->in_off, cn->in_len);
        memcpy(both->data + cn->in_len, rb->data + off, len);
        both->len = cn->in_len + len;
        sl_rbuf_unref(&cn->in);
        cn->in = both;
        cn->in_off = 0;
        cn->in_len = both->len;
    } else {
        cn->in = sl_rbuf_ref(rb);
        cn->in_off = off;
        cn->in_len = len;
    }
    http_conn_pump(cn);
}

static void on_end(void *arg, sl_err err)
{
    http_conn *cn = arg;
    SL_CHECK(cn, HTTP_CONN_MAGIC);
    cn->peer_ended = true;
    cn->reading = false;
    bool waits_for_answer = cn->state == CONN_SERVE && !cn->held;
    if (err == SL_OK &&
        (cn->in_len > 0 || waits_for_answer || cn->state == CONN_GATE || cn->state == CONN_DRAIN))
        return; // it sent FIN behind its request and may still read
    cn->why = err == SL_ETIMEDOUT ? SL_ETIMEDOUT : SL_ECLOSED;
    http_conn_close(cn);
}

static void on_writable(void *arg)
{
    http_conn *cn = arg;
    SL_CHECK(cn, HTTP_CONN_MAGIC);
    cn->blocked = false;
    http_conn_flush(cn);
}

static void on_closed(void *arg)
{
    http_conn *cn = arg;
    SL_CHECK(cn, HTTP_CONN_MAGIC);
    http_shard *sh = cn->shard;
    http_stream_gone(cn);
    sl_list_remove(&cn->in_shard);
    sl_list_remove(&cn->in_dirty);
    http_out_clear(cn);
    sl_rbuf_unref(&cn->in);
    sl_http_req_unref(&cn->req);
    cn->magic = 0;
    sl_free(cn);
    if (sl_list_is_empty(&sh->conns))
        sl_timer_stop(&sh->sweep);
    HTTP_COUNT(sh->sv, connections, -1);
    sl_listener_release(sh->sv->ls_ref);
    http_server_unlive(sh->sv);
}

static const sl_stream_events stream_events = {
    .on_data = on_data,
    .on_end = on_end,
    .on_writable = on_writable,
    .on_closed = on_closed,
};

void http_conn_accept(void *arg, sl_stream *sm)
{
    sl_http_server *sv = arg;
    http_shard *sh = http_shard_of(sv, sl_stream_loop(sm));
    http_conn *cn = sl_calloc(1, sizeof(*cn));
    cn->magic = HTTP_CONN_MAGIC;
    cn->shard = sh;
    cn->sm = sm;
    cn->why = SL_ECLOSED;
    cn->deadline = sl_loop_now(sh->lp) + sv->opt.idle_ms;
    http_parser_init(&cn->parser, HTTP_REQUEST);
    cn->parser.data = cn;
    if (sl_list_is_empty(&sh->conns))
        sl_timer_start(&sh->sweep, 1000, 1000);
    sl_list_push_back(&sh->conns, &cn->in_shard);
    atomic_fetch_add_explicit(&sv->live, 1, memory_order_relaxed);
    HTTP_COUNT(sv, connections, 1);
    sl_stream_set_events(sm, &stream_events, cn);
    sl_stream_set_user_timeout(sm, sv->opt.write_ms);
    if (sv->opt.prepare != NULL && sv->opt.prepare(sv->opt.prepare_arg, sm) != SL_OK) {
        http_conn_close(cn);
        return;
    }
    update_reading(cn);
}

/* ---- time ---- */

void http_conn_check_deadlines(http_conn *cn, sl_mono_ms now)
{
    if (cn->state == CONN_CLOSED)
        return;
    if (cn->write_deadline != 0 && now >= cn->write_deadline) {
        HTTP_COUNT(cn->shard->sv, timeouts, 1);
        cn->why = SL_ETIMEDOUT;
        http_conn_close(cn);
        return;
    }
    bool idle = cn->state == CONN_HEAD && cn->req == NULL && cn->in_len == 0;
    if (idle && cn->be != NULL &&
        now >= cn->deadline - cn->shard->sv->opt.idle_ms + BACKEND_IDLE_MS)
        http_backend_drop(cn); // its memory is worth more than the next request's few calls
    if (cn->deadline == 0 || now < cn->deadline)
        return;
    bool mid_request = cn->req != NULL && (cn->state == CONN_HEAD || cn->state == CONN_BODY);
    if (!mid_request) {
        http_conn_close(cn); // idle, or it never closed after our FIN
        return;
    }
    HTTP_COUNT(cn->shard->sv, timeouts, 1);
    reject(cn, 408,
           cn->state == CONN_HEAD ? "the request took too long" : "the request body took too long");
}

void http_conn_drain(http_conn *cn)
{
    switch (cn->state) {
    case CONN_HEAD:
        if (cn->req == NULL && cn->in_len == 0) {
            http_backend_drop(cn);
            http_conn_set_state(cn, CONN_DRAIN);
            http_shard_mark(cn->shard, cn);
        }
        break;
    case CONN_SERVE:
    case CONN_STREAM:
        http_stream_drain(cn);
        break;
    default:
        break; // finishes by itself and then sees that the server drains
    }
}
