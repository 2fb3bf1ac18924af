/* SPDX-License-Identifier: Apache-2.0
 *
 * stream: the chain of filters between a socket and its user, and the read buffer that all streams
 * of a thread share. No I/O here: that is tcp.c, the bottom filter.
 */
#include "net/stream.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "net/net_int.h"

#define STREAM_MAGIC 0x534d5354u

struct sl_stream {
    uint32_t magic;
    bool closing; /* sl_stream_close was called: no events but on_closed */
    bool ended;   /* on_end was given to the user */
    uint8_t ip_bytes;
    sl_loop *lp;                    /* borrowed */
    sl_filter *top;                 /* owned chain, top first */
    sl_filter *bottom;              /* the socket, last of the chain */
    const sl_stream_events *events; /* borrowed */
    void *arg;
    char *peer; /* owned: "ip\0ip:port\0" */
};

/* The read buffer. One per thread and not per loop: a thread runs one loop, and tests that turn
 * several loops by hand run them one after the other. It lives as long as the thread has streams.
 */
static _Thread_local struct {
    sl_rbuf *rb;      /* owned */
    uint32_t streams; /* of this thread */
    uint32_t busy;    /* deliveries going on */
} shared_read;

sl_rbuf *sl_net_rbuf(uint32_t min_room)
{
    SL_ASSERT(min_room <= SL_NET_RBUF_BYTES);
    sl_rbuf *rb = shared_read.rb;
    if (rb != NULL && shared_read.busy == 0 && sl_rbuf_is_sole(rb))
        rb->len = 0; // nobody kept a slice of what was read before
    if (rb == NULL || rb->cap - rb->len < min_room) {
        sl_rbuf_unref(&shared_read.rb);
        shared_read.rb = sl_rbuf_new(SL_NET_RBUF_BYTES);
    }
    return shared_read.rb;
}

void sl_net_rbuf_enter(void)
{
    shared_read.busy++;
}

void sl_net_rbuf_leave(void)
{
    shared_read.busy--;
}

static const sl_stream_events no_events = {0};

sl_stream *sl_stream_new(sl_loop *lp, sl_filter *bottom)
{
    SL_ON_LOOP(lp);
    sl_stream *sm = sl_calloc(1, sizeof(*sm));
    sm->magic = STREAM_MAGIC;
    sm->lp = lp;
    sm->top = bottom;
    sm->bottom = bottom;
    sm->events = &no_events;
    bottom->_sm = sm;
    bottom->_above = NULL;
    bottom->_below = NULL;
    shared_read.streams++;
    return sm;
}

void sl_stream_push(sl_stream *sm, sl_filter *ft)
{
    SL_CHECK(sm, STREAM_MAGIC);
    SL_ON_LOOP(sm->lp);
    SL_ASSERT(!sm->closing);
    ft->_sm = sm;
    ft->_above = NULL;
    ft->_below = sm->top;
    sm->top->_above = ft;
    sm->top = ft;
}

void sl_stream_set_events(sl_stream *sm, const sl_stream_events *events, void *arg)
{
    SL_CHECK(sm, STREAM_MAGIC);
    sm->events = events == NULL ? &no_events : events;
    sm->arg = arg;
}

void sl_stream_read_start(sl_stream *sm)
{
    SL_CHECK(sm, STREAM_MAGIC);
    SL_ON_LOOP(sm->lp);
    if (sm->closing || sm->ended)
        return;
    if (sm->top->ops->read_start != NULL)
        sm->top->ops->read_start(sm->top);
    else
        sl_filter_read_start(sm->top);
}

void sl_stream_read_stop(sl_stream *sm)
{
    SL_CHECK(sm, STREAM_MAGIC);
    SL_ON_LOOP(sm->lp);
    if (sm->closing)
        return;
    if (sm->top->ops->read_stop != NULL)
        sm->top->ops->read_stop(sm->top);
    else
        sl_filter_read_stop(sm->top);
}

static sl_err write_at(sl_filter *ft, const struct iovec *iov, int iovcnt, size_t *written)
{
    while (ft->ops->write == NULL)
        ft = ft->_below;
    return ft->ops->write(ft, iov, iovcnt, written);
}

sl_err sl_stream_write(sl_stream *sm, const struct iovec *iov, int iovcnt, size_t *written)
{
    SL_CHECK(sm, STREAM_MAGIC);
    SL_ON_LOOP(sm->lp);
    *written = 0;
    if (sm->closing)
        return SL_ECLOSED;
    return write_at(sm->top, iov, iovcnt, written);
}

void sl_stream_shutdown(sl_stream *sm)
{
    SL_CHECK(sm, STREAM_MAGIC);
    SL_ON_LOOP(sm->lp);
    if (sm->closing)
        return;
    if (sm->top->ops->shutdown != NULL)
        sm->top->ops->shutdown(sm->top);
    else
        sl_filter_shutdown(sm->top);
}

void sl_stream_close(sl_stream *sm)
{
    SL_CHECK(sm, STREAM_MAGIC);
    SL_ON_LOOP(sm->lp);
    if (sm->closing)
        return;
    for (sl_filter *ft = sm->top; ft != sm->bottom; ft = ft->_below)
        if (ft->ops->close != NULL)
            ft->ops->close(ft);
    sm->closing = true;
    sl_tcp_close(sm->bottom);
}

void sl_stream_closed(sl_stream *sm)
{
    SL_CHECK(sm, STREAM_MAGIC);
    for (sl_filter *ft = sm->top, *below; ft != NULL; ft = below) {
        below = ft->_below;
        if (ft->ops->fini != NULL)
            ft->ops->fini(ft);
    }
    sm->top = sm->bottom = NULL;
    if (sm->events->on_closed != NULL)
        sm->events->on_closed(sm->arg);
    sm->magic = 0;
    sl_free(sm->peer);
    sl_free(sm);
    if (--shared_read.streams == 0)
        sl_rbuf_unref(&shared_read.rb);
}

bool sl_stream_is_open(const sl_stream *sm)
{
    return !sm->closing;
}

void sl_stream_set_peer(sl_stream *sm, const char *ip, uint16_t port)
{
    char text[2 * INET6_ADDRSTRLEN + 16];
    size_t ip_len = strnlen(ip, INET6_ADDRSTRLEN);
    bool is_v6 = memchr(ip, ':', ip_len) != NULL;
    memcpy(text, ip, ip_len);
    text[ip_len] = '\0';
    int n = port == 0 && !is_v6 && strchr(ip, '.') == NULL
                ? snprintf(text + ip_len + 1, sizeof(text) - ip_len - 1, "%.*s", (int)ip_len, ip)
                : snprintf(text + ip_len + 1, sizeof(text) - ip_len - 1,
                           is_v6 ? "[%.*s]:%u" : "%.*s:%u", (int)ip_len, ip, port);
    size_t total = ip_len + 1 + (size_t)n + 1;
    SL_ASSERT(total <= sizeof(text));
    sl_free(sm->peer);
    sm->peer = sl_alloc(total);
    memcpy(sm->peer, text, total);
    sm->ip_bytes = (uint8_t)ip_len;
}

const char *sl_stream_peer(const sl_stream *sm)
{
    return sm->peer + sm->ip_bytes + 1;
}

const char *sl_stream_peer_ip(const sl_stream *sm)
{
    return sm->peer;
}

sl_loop *sl_stream_loop(const sl_stream *sm)
{
    return sm->lp;
}

void sl_stream_set_user_timeout(sl_stream *sm, sl_dur_ms ms)
{
    SL_CHECK(sm, STREAM_MAGIC);
    SL_ON_LOOP(sm->lp);
    if (!sm->closing)
        sl_tcp_set_user_timeout(sm->bottom, ms);
}

void sl_filter_deliver(sl_filter *ft, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    sl_stream *sm = ft->_sm;
    if (sm->closing || len == 0)
        return;
    sl_filter *up = ft->_above;
    while (up != NULL && up->ops->on_data == NULL)
        up = up->_above;
    sl_net_rbuf_enter();
    if (up != NULL)
        up->ops->on_data(up, rb, off, len);
    else if (!sm->ended && sm->events->on_data != NULL)
        sm->events->on_data(sm->arg, rb, off, len);
    sl_net_rbuf_leave();
}

void sl_filter_end(sl_filter *ft, sl_err err)
{
    sl_stream *sm = ft->_sm;
    if (sm->closing)
        return;
    sl_filter *up = ft->_above;
    while (up != NULL && up->ops->on_end == NULL)
        up = up->_above;
    if (up != NULL) {
        up->ops->on_end(up, err);
    } else if (!sm->ended) {
        sm->ended = true; // told once, whatever fails next
        if (sm->events->on_end != NULL)
            sm->events->on_end(sm->arg, err);
    }
}

void sl_filter_writable(sl_filter *ft)
{
    sl_stream *sm = ft->_sm;
    if (sm->closing)
        return;
    sl_filter *up = ft->_above;
    while (up != NULL && up->ops->on_writable == NULL)
        up = up->_above;
    if (up != NULL)
        up->ops->on_writable(up);
    else if (sm->events->on_writable != NULL)
        sm->events->on_writable(sm->arg);
}

sl_err sl_filter_write(sl_filter *ft, const struct iovec *iov, int iovcnt, size_t *written)
{
    *written = 0;
    if (ft->_sm->closing)
        return SL_ECLOSED;
    return write_at(ft->_below, iov, iovcnt, written);
}

void sl_filter_read_start(sl_filter *ft)
{
    sl_filter *down = ft->_below;
    while (down->ops->read_start == NULL)
        down = down->_below;
    down->ops->read_start(down);
}

void sl_filter_read_stop(sl_filter *ft)
{
    sl_filter *down = ft->_below;
    while (down->ops->read_stop == NULL)
        down = down->_below;
    down->ops->read_stop(down);
}

void sl_filter_shutdown(sl_filter *ft)
{
    sl_filter *down = ft->_below;
    while (down->ops->shutdown == NULL)
        down = down->_below;
    down->ops->shutdown(down);
}

bool sl_filter_is_open(const sl_filter *ft)
{
    return !ft->_sm->closing;
}

sl_loop *sl_filter_loop(const sl_filter *ft)
{
    return ft->_sm->lp;
}

void sl_filter_set_peer(sl_filter *ft, const char *ip, uint16_t port)
{
    sl_stream_set_peer(ft->_sm, ip, port);
}
