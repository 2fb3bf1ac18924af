/* SPDX-License-Identifier: Apache-2.0
 *
 * http/stream: answers from the loop. The handle is the connection itself; what is queued leaves
 * at the end of the turn (server.c).
 */
#include "http/stream.h"

#include "base/assert.h"
#include "base/logger.h"
#include "http/http_int.h"

#define MAX_HEAD_BYTES 4096u

static http_conn *conn_of(sl_http_stream *st)
{
    http_conn *cn = (http_conn *)(void *)st;
    SL_CHECK(cn, HTTP_CONN_MAGIC);
    SL_ON_LOOP(cn->shard->lp);
    return cn;
}

void http_stream_start(http_conn *cn)
{
    cn->held = false;
    cn->ending = false;
    cn->limit_hit = false;
    cn->events = NULL;
    const sl_http_route *route = cn->req->route;
    route->on_loop(route->arg, (sl_http_stream *)(void *)cn);
    if (cn->state == CONN_SERVE && !cn->replied && !cn->held) {
        sl_error(SL_C_HTTP, "HTTP-HANDLER-SILENT", SL_S("route", route->pattern));
        http_conn_reply_msg(cn, 500, "the handler gave no answer");
    }
}

const sl_http_req *sl_http_stream_req(const sl_http_stream *st)
{
    const http_conn *cn = (const http_conn *)(const void *)st;
    SL_CHECK(cn, HTTP_CONN_MAGIC);
    SL_ASSERT(cn->req != NULL);
    return cn->req;
}

sl_http_resp *sl_http_stream_resp(sl_http_stream *st)
{
    http_conn *cn = conn_of(st);
    SL_ASSERT(cn->req != NULL);
    return http_req_resp(cn->req);
}

sl_loop *sl_http_stream_loop(const sl_http_stream *st)
{
    const http_conn *cn = (const http_conn *)(const void *)st;
    return cn->shard->lp;
}

static void set_events(http_conn *cn, const sl_http_stream_events *events, void *arg)
{
    cn->events = events;
    cn->arg = arg;
    if (!cn->held)
        HTTP_COUNT(cn->shard->sv, streams, 1);
    cn->held = true;
}

/* The last callback. */
static void tell_closed(http_conn *cn, sl_err why)
{
    const sl_http_stream_events *events = cn->events;
    void *arg = cn->arg;
    cn->held = false;
    cn->events = NULL;
    cn->arg = NULL;
    HTTP_COUNT(cn->shard->sv, streams, -1);
    events->on_closed(arg, why);
}

void sl_http_stream_hold(sl_http_stream *st, const sl_http_stream_events *events, void *arg)
{
    http_conn *cn = conn_of(st);
    SL_ASSERT(!cn->replied);
    set_events(cn, events, arg);
}

void sl_http_stream_reply(sl_http_stream *st)
{
    http_conn *cn = conn_of(st);
    if (cn->state == CONN_CLOSED)
        return; // held, and the peer has gone: on_closed is on its way
    SL_ASSERT(cn->state == CONN_SERVE && !cn->replied);
    cn->replied = true;
    if (!cn->held) {
        http_conn_reply(cn, http_req_resp(cn->req));
        return;
    }
    cn->ending = true; // http_stream_sent tells the user and goes on
    http_conn_queue_reply(cn, http_req_resp(cn->req));
}

void sl_http_stream_open(sl_http_stream *st, const sl_http_stream_events *events, void *arg,
                         size_t max_queued_bytes)
{
    http_conn *cn = conn_of(st);
    set_events(cn, events, arg);
    if (cn->state == CONN_CLOSED)
        return;
    SL_ASSERT(cn->state == CONN_SERVE && !cn->replied);
    cn->replied = true;
    cn->max_queued = max_queued_bytes;
    const char *framing = "Transfer-Encoding: chunked\r\nConnection: close\r\n";
    if (cn->http_1_0) {
        cn->keep_alive = false; // the end of the connection is the end of the stream
        framing = "Connection: close\r\n";
    } else if (cn->keep_alive) {
        framing = "Transfer-Encoding: chunked\r\nConnection: keep-alive\r\n";
    }
    sl_http_resp *resp = http_req_resp(cn->req);
    http_conn_queue_head(cn, resp, framing, sl_slice_of(NULL, 0));
    http_conn_log(cn, resp->status);
    cn->req->cn = NULL;
    sl_http_req_unref(&cn->req); // an open stream needs none of it
    http_conn_set_state(cn, CONN_STREAM);
    if (cn->is_head)
        cn->ending = true;
    else if (cn->shard->drain_deadline != 0)
        sl_http_stream_end(st);
}

sl_err sl_http_stream_write(sl_http_stream *st, sl_slice head, sl_rbuf *body, uint32_t off,
                            uint32_t len)
{
    http_conn *cn = conn_of(st);
    SL_ASSERT(head.len <= MAX_HEAD_BYTES);
    if (body == NULL)
        len = 0;
    if (cn->state != CONN_STREAM || cn->ending)
        return SL_ECLOSED;
    size_t total = head.len + len;
    if (total == 0)
        return SL_OK; // an empty chunk would end the stream
    // a piece larger than the bound goes alone, or it could never go
    if (cn->out_bytes > 0 && cn->out_bytes + total > cn->max_queued) {
        cn->limit_hit = true;
        HTTP_COUNT(cn->shard->sv, stream_limit, 1);
        return SL_ELIMIT;
    }
    sl_rbuf *ref = len == 0 ? NULL : sl_rbuf_ref(body);
    http_out_queue(cn, head, ref == NULL ? NULL : &ref, off, len, !cn->http_1_0);
    return SL_OK;
}

size_t sl_http_stream_queued(const sl_http_stream *st)
{
    const http_conn *cn = (const http_conn *)(const void *)st;
    SL_CHECK(cn, HTTP_CONN_MAGIC);
    return cn->out_bytes;
}

void sl_http_stream_end(sl_http_stream *st)
{
    http_conn *cn = conn_of(st);
    if (cn->state != CONN_STREAM || cn->ending)
        return;
    cn->ending = true;
    if (!cn->http_1_0)
        http_out_queue(cn, sl_slice_str("0\r\n\r\n"), NULL, 0, 0, false);
    http_shard_mark(cn->shard, cn);
}

void sl_http_stream_abort(sl_http_stream *st)
{
    http_conn_close(conn_of(st));
}

void http_stream_drain(http_conn *cn)
{
    sl_http_stream *st = (sl_http_stream *)(void *)cn;
    if (cn->state == CONN_STREAM) {
        sl_http_stream_end(st);
        return;
    }
    if (!cn->held || cn->replied)
        return; // libmicrohttpd has it, or the answer is on its way
    cn->keep_alive = false;
    sl_http_resp *resp = http_req_resp(cn->req);
    sl_http_resp_msg(resp, 503, "the server is stopping");
    sl_http_resp_add_header(resp, "Retry-After", "1");
    sl_http_stream_reply(st);
}

void http_stream_sent(http_conn *cn)
{
    if (cn->ending && cn->out_first == NULL) {
        cn->ending = false;
        int status = cn->req == NULL ? 0 : http_req_resp(cn->req)->status;
        if (cn->held)
            tell_closed(cn, SL_OK);
        if (cn->state != CONN_CLOSED)
            http_conn_finish(cn, status);
        return;
    }
    if (cn->limit_hit && cn->out_bytes <= cn->max_queued / 2) {
        cn->limit_hit = false;
        if (cn->events->on_writable != NULL)
            cn->events->on_writable(cn->arg);
    }
}

void http_stream_gone(http_conn *cn)
{
    if (cn->held)
        tell_closed(cn, cn->why);
}
