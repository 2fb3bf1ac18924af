/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_conn: see redis_conn.h. The object outlives its closing while it is on the stack (busy), so
 * that a reply's handler may close the connection it came from.
 */
#include "store/redis_conn.h"

#include <errno.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "net/stream.h"

#define CONN_MAGIC 0x72636f6eu
#define MAX_PIECES 64

/* A dial in progress; outlives a connection that is closed meanwhile. */
typedef struct dial_job {
    sl_redis_conn *cn; /* NULL: closed */
    char *host;        /* owned */
    uint16_t port;
    sl_dur_ms timeout;
    sl_redis_dial_f *dial;
    void *dial_arg;
    int fd;
} dial_job;

struct sl_redis_conn {
    uint32_t magic;
    sl_redis_conn_options opt;
    dial_job *job; /* while dialling */
    sl_stream *sm; /* while connected */
    sl_redis_reader *reader;
    sl_list queued; /* calls; of the first one `head` bytes are written */
    sl_list sent;
    size_t head;
    char *host;      /* owned */
    bool is_opening; /* the TLS handshake is not done */
    bool is_blocked; /* the socket takes no more until on_writable */
    bool is_down;    /* on_down is due or was called */
    bool is_closed;  /* freed when not busy */
    unsigned busy;
    sl_err why;
    char *why_text;      /* owned; NULL: the text of why */
    sl_mono_ms heard_at; /* last byte, or when the oldest call was sent */
    sl_timer timer;
};

static void release(sl_redis_conn *cn)
{
    if (!cn->is_closed || cn->busy > 0)
        return;
    sl_timer_fini(&cn->timer);
    sl_redis_reader_free(&cn->reader);
    sl_free(cn->host);
    sl_free(cn->why_text);
    cn->magic = 0;
    sl_free(cn);
}

static void fail_calls(sl_redis_conn *cn)
{
    sl_list *lists[] = {&cn->sent, &cn->queued};
    for (size_t i = 0; i < 2; i++) {
        for (sl_node *nd; (nd = sl_list_pop_front(lists[i])) != NULL;) {
            sl_redis_call *call = SL_CONTAINER(nd, sl_redis_call, _node);
            sl_redis_reply *none = NULL;
            call->done(call, &none);
        }
    }
}

static void drop_stream(sl_redis_conn *cn)
{
    if (cn->sm == NULL)
        return;
    sl_stream_set_events(cn->sm, NULL, NULL);
    sl_stream_close(cn->sm);
    cn->sm = NULL;
}

/* Told from the timer, never from inside a call of the user. */
static void go_down(sl_redis_conn *cn, sl_err err)
{
    if (cn->is_down || cn->is_closed)
        return;
    cn->is_down = true;
    cn->why = err;
    drop_stream(cn);
    sl_timer_start(&cn->timer, 0, 0);
}

static void watch(sl_redis_conn *cn)
{
    sl_mono_ms now = sl_loop_now(cn->opt.lp);
    if (cn->is_opening) {
        cn->why_text =
            sl_strdup("the TLS handshake took too long: does the server speak TLS on this port?");
        go_down(cn, SL_ETIMEDOUT);
        return;
    }
    if (!sl_list_is_empty(&cn->sent) && now - cn->heard_at >= cn->opt.reply_timeout) {
        go_down(cn, SL_ETIMEDOUT);
        return;
    }
    sl_timer_start(&cn->timer, cn->opt.reply_timeout / 4 + 1, 0);
}

static void on_timer(void *arg)
{
    sl_redis_conn *cn = arg;
    SL_CHECK(cn, CONN_MAGIC);
    if (!cn->is_down) {
        watch(cn);
        return;
    }
    cn->busy++;
    cn->opt.on_down(cn->opt.arg, cn->why,
                    cn->why_text != NULL ? cn->why_text : sl_err_text(cn->why));
    cn->busy--;
    release(cn);
}

/* ---- replies --------------------------------------------------------------------------------- */

static void take_replies(sl_redis_conn *cn)
{
    while (!cn->is_closed && !cn->is_down) {
        sl_redis_reply *reply = NULL;
        sl_err err = sl_redis_reader_next(cn->reader, &reply);
        if (err == SL_OK && reply == NULL)
            return;
        sl_node *nd = err == SL_OK ? sl_list_pop_front(&cn->sent) : NULL;
        if (nd == NULL) { // not RESP, or an answer that nobody asked for
            sl_redis_reply_free(&reply);
            go_down(cn, SL_EPROTOCOL);
            return;
        }
        sl_redis_call *call = SL_CONTAINER(nd, sl_redis_call, _node);
        call->done(call, &reply);
        sl_redis_reply_free(&reply);
    }
}

static void on_data(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    sl_redis_conn *cn = arg;
    SL_CHECK(cn, CONN_MAGIC);
    cn->heard_at = sl_loop_now(cn->opt.lp);
    cn->busy++;
    sl_err err = sl_redis_reader_feed(cn->reader, rb->data + off, len);
    if (err == SL_OK)
        take_replies(cn);
    else
        go_down(cn, err);
    if (!cn->is_closed)
        sl_redis_conn_flush(cn);
    cn->busy--;
    release(cn);
}

static void on_end(void *arg, sl_err err)
{
    sl_redis_conn *cn = arg;
    SL_CHECK(cn, CONN_MAGIC);
    go_down(cn, err == SL_OK ? SL_ECLOSED : err);
}

static void on_writable(void *arg)
{
    sl_redis_conn *cn = arg;
    SL_CHECK(cn, CONN_MAGIC);
    cn->is_blocked = false;
    sl_redis_conn_flush(cn);
}

static const sl_stream_events stream_events = {
    .on_data = on_data, .on_end = on_end, .on_writable = on_writable};

/* ---- calls ----------------------------------------------------------------------------------- */

void sl_redis_conn_send(sl_redis_conn *cn, sl_redis_call *call)
{
    SL_CHECK(cn, CONN_MAGIC);
    call->is_sent = false;
    sl_list_push_back(&cn->queued, &call->_node);
}

static size_t gather(const sl_redis_conn *cn, struct iovec *iov, size_t max)
{
    size_t count = 0;
    for (sl_node *nd = sl_list_first(&cn->queued); nd != NULL && count < max;
         nd = sl_list_next(&cn->queued, nd)) {
        const sl_redis_call *call = SL_CONTAINER(nd, sl_redis_call, _node);
        size_t skip = count == 0 ? cn->head : 0;
        iov[count++] = (struct iovec){(void *)(uintptr_t)(call->bytes + skip), call->len - skip};
    }
    return count;
}

static void advance(sl_redis_conn *cn, size_t written)
{
    if (written > 0 && sl_list_is_empty(&cn->sent))
        cn->heard_at = sl_loop_now(cn->opt.lp);
    cn->head += written;
    for (sl_node *nd; (nd = sl_list_first(&cn->queued)) != NULL && cn->head > 0;) {
        sl_redis_call *call = SL_CONTAINER(nd, sl_redis_call, _node);
        call->is_sent = true;
        if (cn->head < call->len)
            return;
        cn->head -= call->len;
        sl_list_remove(nd);
        sl_list_push_back(&cn->sent, nd);
    }
}

void sl_redis_conn_flush(sl_redis_conn *cn)
{
    SL_CHECK(cn, CONN_MAGIC);
    while (cn->sm != NULL && !cn->is_blocked && !sl_list_is_empty(&cn->queued)) {
        struct iovec iov[MAX_PIECES];
        size_t count = gather(cn, iov, MAX_PIECES), want = 0, written = 0;
        for (size_t i = 0; i < count; i++)
            want += iov[i].iov_len;
        sl_err err = sl_stream_write(cn->sm, iov, (int)count, &written);
        advance(cn, written);
        if (err != SL_OK && err != SL_EAGAIN) {
            go_down(cn, err);
            return;
        }
        cn->is_blocked = written < want;
    }
}

bool sl_redis_conn_is_idle(const sl_redis_conn *cn)
{
    return sl_list_is_empty(&cn->sent) && sl_list_is_empty(&cn->queued);
}

/* ---- dialling -------------------------------------------------------------------------------- */

static void run_dial(void *arg)
{
    dial_job *job = arg;
    job->fd = job->dial(job->dial_arg, job->host, job->port, job->timeout);
}

/* Calls can leave. */
static void become_open(sl_redis_conn *cn)
{
    cn->is_opening = false;
    cn->heard_at = sl_loop_now(cn->opt.lp);
    sl_timer_start(&cn->timer, cn->opt.reply_timeout / 4 + 1, 0);
    cn->busy++;
    cn->opt.on_open(cn->opt.arg);
    if (!cn->is_closed)
        sl_redis_conn_flush(cn);
    cn->busy--;
    release(cn);
}

static void on_tls_up(void *arg, const sl_tls_peer *peer)
{
    (void)peer;
    sl_redis_conn *cn = arg;
    SL_CHECK(cn, CONN_MAGIC);
    become_open(cn);
}

static void on_tls_failure(void *arg, const char *why)
{
    sl_redis_conn *cn = arg;
    SL_CHECK(cn, CONN_MAGIC);
    sl_free(cn->why_text);
    cn->why_text = sl_strdup(why);
}

static const sl_tls_events tls_events = {.on_up = on_tls_up, .on_failure = on_tls_failure};

static void open_stream(sl_redis_conn *cn, int fd)
{
    sl_err err = sl_stream_tcp_new(cn->opt.lp, fd, &cn->sm);
    if (err != SL_OK) {
        cn->sm = NULL;
        go_down(cn, err);
        return;
    }
    sl_stream_set_events(cn->sm, &stream_events, cn);
    if (cn->opt.tls == NULL) {
        sl_stream_read_start(cn->sm);
        become_open(cn);
        return;
    }
    if (sl_tls_push(cn->sm, cn->opt.tls, cn->host, &tls_events, cn) != SL_OK) {
        cn->why_text = sl_strdup("this host name cannot be verified by TLS");
        go_down(cn, SL_EINVAL);
        return;
    }
    cn->is_opening = true;
    sl_timer_start(&cn->timer, cn->opt.connect_timeout, 0);
    sl_stream_read_start(cn->sm);
}

static void on_dialled(void *arg)
{
    dial_job *job = arg;
    sl_redis_conn *cn = job->cn;
    int fd = job->fd;
    sl_free(job->host);
    sl_free(job);
    if (cn == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    SL_CHECK(cn, CONN_MAGIC);
    cn->job = NULL;
    if (fd >= 0)
        open_stream(cn, fd);
    else
        go_down(cn, fd == -ETIMEDOUT ? SL_ETIMEDOUT : SL_ECONN);
}

static void dial_inline(void *arg)
{
    run_dial(arg);
    on_dialled(arg);
}

sl_redis_conn *sl_redis_conn_new(const sl_redis_conn_options *options)
{
    SL_ON_LOOP(options->lp);
    sl_redis_conn *cn = sl_calloc(1, sizeof(*cn));
    cn->magic = CONN_MAGIC;
    cn->opt = *options;
    cn->host = sl_strdup(options->host);
    cn->opt.host = cn->host;
    cn->reader = sl_redis_reader_new();
    sl_list_init(&cn->queued);
    sl_list_init(&cn->sent);
    sl_timer_init(&cn->timer, options->lp, on_timer, cn);
    dial_job *job = cn->job = sl_calloc(1, sizeof(*job));
    *job = (dial_job){.cn = cn,
                      .host = sl_strdup(options->host),
                      .port = options->port,
                      .timeout = options->connect_timeout,
                      .dial = options->dial,
                      .dial_arg = options->dial_arg};
    bool is_taken = options->pool != NULL ? sl_pool_run(options->pool, options->lp, run_dial,
                                                        on_dialled, job) == SL_OK
                                          : sl_loop_call(options->lp, dial_inline, job);
    if (!is_taken) {
        cn->job = NULL;
        sl_free(job->host);
        sl_free(job);
        go_down(cn, SL_ELIMIT);
    }
    return cn;
}

void sl_redis_conn_close(sl_redis_conn **pointer)
{
    sl_redis_conn *cn = *pointer;
    if (cn == NULL)
        return;
    SL_CHECK(cn, CONN_MAGIC);
    *pointer = NULL;
    cn->is_closed = true;
    if (cn->job != NULL)
        cn->job->cn = NULL;
    cn->job = NULL;
    drop_stream(cn);
    sl_timer_stop(&cn->timer);
    cn->busy++;
    fail_calls(cn);
    cn->busy--;
    release(cn);
}
