/* SPDX-License-Identifier: Apache-2.0
 *
 * backend: libmicrohttpd behind the front. A client connection that needs it gets a socket pair;
 * libmicrohttpd has the other end and the client's address. What travels over it is only the
 * method and the exchange's id: the request itself, which the front has read and checked, is
 * looked up by that id, so there is no second parser to disagree with and nothing a client could
 * forge. The answer comes back as HTTP and is forwarded byte by byte; the front parses it to know
 * its end.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <microhttpd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "http/http_int.h"

#define EXCHANGE_HEADER "X-Exchange"

/* ---- on libmicrohttpd's threads ---- */

static sl_http_req *take_exchange(sl_http_server *sv, uint64_t id)
{
    pthread_mutex_lock(&sv->lock);
    sl_http_req *req = sl_imap_remove(sv->by_id, id);
    pthread_mutex_unlock(&sv->lock);
    return req;
}

static void end_exchange(sl_http_server *sv, sl_http_req **req)
{
    sl_http_req_unref(req);
    HTTP_COUNT(sv, running, -1);
}

static void free_body(void *ptr)
{
    sl_free(ptr);
}

static void add_headers(struct MHD_Response *mhd, const sl_http_resp *resp)
{
    const char *name = NULL;
    const char *value = NULL;
    for (size_t pos = 0; http_resp_each(resp, &pos, &name, &value);) {
        if (strcasecmp(name, "Content-Length") == 0 || strcasecmp(name, "Connection") == 0 ||
            strcasecmp(name, "Transfer-Encoding") == 0)
            continue; // framing is not the handler's
        (void)MHD_add_response_header(mhd, name, value);
    }
}

static enum MHD_Result answer(struct MHD_Connection *connection, sl_http_req *req)
{
    sl_http_resp *resp = sl_http_resp_new();
    req->route->fn(req->route->arg, req, resp);
    size_t len = 0;
    uint8_t *body = sl_buf_take(&resp->body, &len);
    struct MHD_Response *mhd = NULL;
    if (len == 0) {
        sl_free(body);
        mhd = MHD_create_response_from_buffer(0, (void *)(uintptr_t) "", MHD_RESPMEM_PERSISTENT);
    } else {
        mhd = MHD_create_response_from_buffer_with_free_callback(len, body, free_body);
        if (mhd == NULL)
            sl_free(body);
    }
    enum MHD_Result result = MHD_NO;
    if (mhd != NULL) {
        add_headers(mhd, resp);
        if (req->extra != NULL)
            add_headers(mhd, req->extra);
        if (!req->keep_alive)
            (void)MHD_add_response_header(mhd, "Connection", "close");
        result = MHD_queue_response(connection, (unsigned)resp->status, mhd);
        MHD_destroy_response(mhd);
    }
    sl_http_resp_free(&resp);
    return result;
}

/* Called twice for a request: with the head, and when the (empty) body is read. */
static enum MHD_Result on_request(void *cls, struct MHD_Connection *connection, const char *url,
                                  const char *method, const char *version, const char *upload_data,
                                  size_t *upload_data_size, void **request_cls)
{
    (void)url;
    (void)method;
    (void)version;
    (void)upload_data;
    sl_http_server *sv = cls;
    if (*request_cls == NULL) {
        const char *id = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, EXCHANGE_HEADER);
        sl_http_req *taken = id == NULL ? NULL : take_exchange(sv, strtoull(id, NULL, 16));
        *request_cls = taken;
        return taken == NULL ? MHD_NO : MHD_YES; // NULL: the client has left meanwhile
    }
    *upload_data_size = 0;
    return answer(connection, *request_cls);
}

static void on_completed(void *cls, struct MHD_Connection *connection, void **request_cls,
                         enum MHD_RequestTerminationCode code)
{
    (void)connection;
    (void)code;
    sl_http_req *req = *request_cls;
    *request_cls = NULL;
    if (req != NULL)
        end_exchange(cls, &req);
}

static void on_mhd_log(void *cls, const char *fmt, va_list args)
{
    (void)cls;
    char text[256];
    (void)vsnprintf(text, sizeof(text), fmt, args);
    text[strcspn(text, "\n")] = '\0';
    sl_trace(SL_C_HTTP, "HTTP-MHD", SL_S("text", text));
}

sl_err http_backend_start(sl_http_server *sv)
{
    const unsigned flags =
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_NO_LISTEN_SOCKET | MHD_USE_ITC | MHD_USE_ERROR_LOG;
    // each connection has at most one pair; the pool splits the limit unevenly over its threads
    unsigned limit = 2 * (sv->opt.max_connections + sv->opt.max_running);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); // signals are for the process's main thread
    struct MHD_OptionItem items[] = {
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)limit, NULL},
        {sv->opt.threads > 1 ? MHD_OPTION_THREAD_POOL_SIZE : MHD_OPTION_END,
         (intptr_t)sv->opt.threads, NULL},
        {MHD_OPTION_END, 0, NULL},
    };
    sv->daemon = MHD_start_daemon(flags, 0, NULL, NULL, on_request, sv, MHD_OPTION_EXTERNAL_LOGGER,
                                  on_mhd_log, NULL, MHD_OPTION_NOTIFY_COMPLETED, on_completed, sv,
                                  MHD_OPTION_ARRAY, items, MHD_OPTION_END);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return sv->daemon == NULL ? SL_EIO : SL_OK;
}

void http_backend_stop(sl_http_server *sv)
{
    if (sv->daemon != NULL)
        MHD_stop_daemon(sv->daemon);
    sv->daemon = NULL;
}

/* ---- on the loop ---- */

static int on_answer_headers(http_parser *parser)
{
    http_backend *be = parser->data;
    return be->cn->is_head ? 1 : 0; // 1: no body follows, whatever the length says
}

static int on_answer_complete(http_parser *parser)
{
    http_backend *be = parser->data;
    be->done = true;
    http_parser_pause(parser, 1);
    return 0;
}

static const http_parser_settings answer_settings = {
    .on_headers_complete = on_answer_headers,
    .on_message_complete = on_answer_complete,
};

/* libmicrohttpd broke off. */
static void answer_lost(http_conn *cn, bool begun)
{
    http_backend_drop(cn);
    if (begun) {
        http_conn_close(cn); // the client must see that the answer is cut
        return;
    }
    cn->keep_alive = false;
    http_conn_reply_msg(cn, 500, "the request could not be served");
}

static void on_data(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    http_backend *be = arg;
    http_conn *cn = be->cn;
    if (cn == NULL || !be->busy)
        return;
    size_t used =
        http_parser_execute(&be->parser, &answer_settings, (const char *)rb->data + off, len);
    enum http_errno code = HTTP_PARSER_ERRNO(&be->parser);
    if ((code != HPE_OK && code != HPE_PAUSED) || used != len) {
        sl_error(SL_C_HTTP, "HTTP-BACKEND-ANSWER", SL_S("reason", http_errno_description(code)));
        answer_lost(cn, be->begun);
        return;
    }
    be->begun = true;
    sl_rbuf *ref = sl_rbuf_ref(rb);
    http_out_queue(cn, sl_slice_of(NULL, 0), &ref, off, len, false);
    if (!be->done) {
        if (cn->out_bytes > HTTP_OUT_HIGH_BYTES) {
            be->paused = true;
            sl_stream_read_stop(be->sm);
        }
        return;
    }
    http_parser_pause(&be->parser, 0);
    be->busy = false;
    int status = (int)be->parser.status_code;
    if (!http_should_keep_alive(&be->parser))
        http_backend_drop(cn);
    http_conn_finish(cn, status);
}

static void on_end(void *arg, sl_err err)
{
    (void)err;
    http_backend *be = arg;
    http_conn *cn = be->cn;
    if (cn == NULL)
        return;
    if (be->busy)
        answer_lost(cn, be->begun);
    else
        http_backend_drop(cn);
}

static void on_closed(void *arg)
{
    sl_free(arg);
}

static const sl_stream_events backend_events = {
    .on_data = on_data,
    .on_end = on_end,
    .on_closed = on_closed,
};

/* The client's address for libmicrohttpd. */
static socklen_t peer_address(const http_conn *cn, struct sockaddr_storage *out)
{
    const char *ip = sl_stream_peer_ip(cn->sm);
    const char *colon = strrchr(sl_stream_peer(cn->sm), ':');
    uint16_t port = colon == NULL ? 0 : (uint16_t)strtoul(colon + 1, NULL, 10);
    memset(out, 0, sizeof(*out));
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (inet_pton(AF_INET, ip, &v4.sin_addr) == 1) {
        memcpy(out, &v4, sizeof(v4));
        return sizeof(v4);
    }
    if (inet_pton(AF_INET6, ip, &v6.sin6_addr) == 1) {
        memcpy(out, &v6, sizeof(v6));
        return sizeof(v6);
    }
    out->ss_family = AF_UNIX;
    return sizeof(sa_family_t);
}

static sl_err open_pair(http_conn *cn)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
        return sl_err_from_errno(errno);
    struct sockaddr_storage peer;
    socklen_t peer_len = peer_address(cn, &peer);
    // closes pair[1] when it fails
    if (MHD_add_connection(cn->shard->sv->daemon, pair[1], (struct sockaddr *)&peer, peer_len) !=
        MHD_YES) {
        (void)close(pair[0]);
        return SL_ELIMIT;
    }
    sl_stream *sm = NULL;
    sl_err err = sl_stream_tcp_new(cn->shard->lp, pair[0], &sm);
    if (err != SL_OK)
        return err;
    http_backend *be = sl_calloc(1, sizeof(*be));
    be->cn = cn;
    be->sm = sm;
    sl_stream_set_events(sm, &backend_events, be);
    sl_stream_read_start(sm);
    cn->be = be;
    return SL_OK;
}

/* The request line and what libmicrohttpd must know to frame the answer. */
static sl_err send_request(http_backend *be, const sl_http_req *req)
{
    char text[192];
    bool may_have_body =
        req->method == SL_HTTP_POST || req->method == SL_HTTP_PUT || req->method == SL_HTTP_PATCH;
    int n =
        snprintf(text, sizeof(text),
                 "%s / HTTP/1.%c\r\nHost: front\r\n" EXCHANGE_HEADER ": %" PRIx64 "\r\n%s%s\r\n",
                 sl_http_method_name(req->method), req->http_1_0 ? '0' : '1', req->id,
                 may_have_body ? "Content-Length: 0\r\n" : "",
                 !req->keep_alive ? "Connection: close\r\n"
                 : req->http_1_0  ? "Connection: Keep-Alive\r\n"
                                  : "");
    struct iovec iov = {text, (size_t)n};
    size_t written = 0;
    sl_err err = sl_stream_write(be->sm, &iov, 1, &written);
    // the pair is empty between requests, so a short write means that something is broken
    return err == SL_OK && written == (size_t)n ? SL_OK : SL_EIO;
}

void http_backend_submit(http_conn *cn)
{
    sl_http_server *sv = cn->shard->sv;
    sl_http_req *req = cn->req;
    if (atomic_load_explicit(&sv->counters.running, memory_order_relaxed) >=
        (int64_t)sv->opt.max_running) {
        HTTP_COUNT(sv, busy, 1);
        http_conn_reply_msg(cn, 503, "too many requests are running");
        return;
    }
    sl_err err = cn->be != NULL ? SL_OK : open_pair(cn);
    if (err != SL_OK) {
        HTTP_COUNT(sv, busy, 1);
        sl_warn(SL_C_HTTP, "HTTP-BACKEND-FULL", SL_E(err));
        http_conn_reply_msg(cn, 503, "no resources for this request now");
        return;
    }
    http_backend *be = cn->be;
    req->keep_alive = cn->keep_alive;
    HTTP_COUNT(sv, running, 1);
    pthread_mutex_lock(&sv->lock);
    err = sl_imap_put(sv->by_id, req->id, sl_http_req_ref(req), NULL);
    pthread_mutex_unlock(&sv->lock);
    SL_ASSERT(err == SL_OK); // running is bounded, ids are unique
    be->busy = true;
    be->begun = false;
    be->done = false;
    be->paused = false;
    http_parser_init(&be->parser, HTTP_RESPONSE);
    be->parser.data = be;
    if (send_request(be, req) != SL_OK)
        answer_lost(cn, false);
}

void http_backend_resume(http_conn *cn)
{
    cn->be->paused = false;
    sl_stream_read_start(cn->be->sm);
}

void http_backend_drop(http_conn *cn)
{
    http_backend *be = cn->be;
    if (be == NULL)
        return;
    cn->be = NULL;
    be->cn = NULL;
    if (be->busy && cn->req != NULL) {
        sl_http_req *waiting = take_exchange(cn->shard->sv, cn->req->id);
        if (waiting != NULL) // libmicrohttpd has not come to it and will not
            end_exchange(cn->shard->sv, &waiting);
    }
    sl_stream_close(be->sm);
}
