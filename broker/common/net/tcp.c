/* SPDX-License-Identifier: Apache-2.0
 *
 * tcp: the bottom filter: a connected stream socket (TCP, or AF_UNIX in tests and towards
 * libmicrohttpd) polled by libuv and read and written here. Written for few system calls: one recv
 * per readable event unless the buffer was filled, one sendmsg per write, and the poll set is
 * changed only when a write was short. No memory of its own beyond the poll handle.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <unistd.h>

#include <uv.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/logger.h"
#include "net/net_int.h"

/* Below this room a new read buffer is begun: a smaller recv would cost more than it saves. */
#define READ_ROOM_BYTES 2048u
/* recv calls per readable event before other connections get their turn. */
#define READS_PER_EVENT 4

typedef struct tcp {
    sl_filter base;
    uv_poll_t poll;
    int fd;       /* owned; -1 once closed */
    bool reading; /* the user wants bytes */
    bool writing; /* a write was short: tell when there is room */
    bool failed;  /* a write failed: on_end follows with err */
    bool ended;   /* end of file or failure seen; no more reads */
    bool polling; /* the poll handle is started, for `events` */
    uint8_t events;
    sl_err err; /* of the failed write */
} tcp;

static void on_poll(uv_poll_t *handle, int status, int events);

static tcp *tcp_of(sl_filter *ft)
{
    return SL_CONTAINER(ft, tcp, base);
}

/* Brings the poll set in line with what is wanted, if that differs. */
static void update_poll(tcp *tc)
{
    int want = 0;
    if ((tc->reading && !tc->ended) || tc->failed)
        want |= UV_READABLE;
    if (tc->writing || tc->failed)
        want |= UV_WRITABLE; // a broken socket is always ready, so on_poll comes
    if (tc->polling && tc->events == want)
        return;
    if (want == 0) {
        uv_poll_stop(&tc->poll);
        tc->polling = false;
        return;
    }
    int rc = uv_poll_start(&tc->poll, want, on_poll);
    SL_ASSERT(rc == 0);
    tc->polling = true;
    tc->events = (uint8_t)want;
}

static sl_err err_of_peer(int errnum)
{
    switch (errnum) {
    case EPIPE:
    case ECONNRESET:
    case ENOTCONN:
    case ESHUTDOWN:
        return SL_ECLOSED;
    case ETIMEDOUT:
        return SL_ETIMEDOUT;
    default:
        return SL_EIO;
    }
}

static void end(tcp *tc, sl_err err)
{
    tc->ended = true;
    tc->failed = false;
    tc->writing = tc->writing && err == SL_OK; // a half closed peer may still read
    update_poll(tc);
    sl_filter_end(&tc->base, err);
}

/* One recv. True when the caller may try again at once: the buffer was filled. */
static bool read_once(tcp *tc)
{
    sl_rbuf *rb = sl_net_rbuf(READ_ROOM_BYTES);
    uint32_t off = rb->len;
    uint32_t room = rb->cap - off;
    ssize_t n;
    do {
        n = recv(tc->fd, rb->data + off, room, 0);
    } while (n < 0 && errno == EINTR);
    if (n > 0) {
        rb->len += (uint32_t)n;
        sl_filter_deliver(&tc->base, rb, off, (uint32_t)n);
        return (uint32_t)n == room;
    }
    if (n == 0)
        end(tc, SL_OK);
    else if (errno != EAGAIN && errno != EWOULDBLOCK)
        end(tc, err_of_peer(errno));
    return false;
}

/* Reads until the socket has no more, the user stops, or others must have their turn (true). */
static bool read_some(tcp *tc)
{
    for (int i = 0; i < READS_PER_EVENT; i++) {
        if (tc->fd < 0 || !tc->reading || tc->ended || !read_once(tc))
            return false;
    }
    return true;
}

/* The reason why libuv saw EPOLLERR. */
static sl_err socket_error(const tcp *tc)
{
    int errnum = 0;
    socklen_t len = sizeof(errnum);
    (void)getsockopt(tc->fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
    return err_of_peer(errnum == 0 ? ECONNRESET : errnum);
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    tcp *tc = handle->data;
    bool broken = tc->failed || status < 0;
    if (status < 0)
        tc->polling = false; // libuv has stopped the handle
    if (!broken && (events & UV_WRITABLE) != 0 && tc->writing) {
        tc->writing = false;
        sl_filter_writable(&tc->base);
    }
    // what a peer sent before it broke the connection still counts
    bool more = (broken || (events & UV_READABLE) != 0) && read_some(tc);
    if (tc->fd < 0)
        return;
    if (broken && !more && !tc->ended)
        end(tc, tc->failed ? tc->err : socket_error(tc));
    if (tc->fd >= 0)
        update_poll(tc);
}

static sl_err tcp_write(sl_filter *ft, const struct iovec *iov, int iovcnt, size_t *written)
{
    tcp *tc = tcp_of(ft);
    *written = 0;
    if (tc->failed)
        return tc->err;
    size_t total = 0;
    for (int i = 0; i < iovcnt; i++)
        total += iov[i].iov_len;
    struct msghdr mh = {.msg_iov = (struct iovec *)(uintptr_t)iov,
                        .msg_iovlen = (size_t)(iovcnt < IOV_MAX ? iovcnt : IOV_MAX)};
    ssize_t n;
    do {
        n = sendmsg(tc->fd, &mh, MSG_NOSIGNAL);
    } while (n < 0 && errno == EINTR);
    if (n >= 0) {
        *written = (size_t)n;
        if ((size_t)n < total) {
            tc->writing = true;
            update_poll(tc);
        }
        return SL_OK;
    }
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM) {
        tc->writing = true;
        update_poll(tc);
        return SL_EAGAIN;
    }
    tc->err = err_of_peer(errno);
    if (!tc->ended) {
        tc->failed = true; // on_end in a later turn, never inside this call
        update_poll(tc);
    }
    return tc->err;
}

static void tcp_read_start(sl_filter *ft)
{
    tcp *tc = tcp_of(ft);
    tc->reading = true;
    update_poll(tc);
}

static void tcp_read_stop(sl_filter *ft)
{
    tcp *tc = tcp_of(ft);
    tc->reading = false;
    update_poll(tc);
}

static void tcp_shutdown(sl_filter *ft)
{
    (void)shutdown(tcp_of(ft)->fd, SHUT_WR); // a broken socket needs no goodbye
}

static void on_poll_closed(uv_handle_t *handle)
{
    tcp *tc = handle->data;
    sl_stream_closed(tc->base._sm); // frees tc through fini
}

void sl_tcp_close(sl_filter *ft)
{
    tcp *tc = tcp_of(ft);
    uv_close((uv_handle_t *)&tc->poll, on_poll_closed);
    (void)close(tc->fd);
    tc->fd = -1;
}

static void tcp_fini(sl_filter *ft)
{
    sl_free(tcp_of(ft));
}

static const sl_filter_ops tcp_ops = {
    .name = "tcp",
    .write = tcp_write,
    .read_start = tcp_read_start,
    .read_stop = tcp_read_stop,
    .shutdown = tcp_shutdown,
    .fini = tcp_fini,
};

static void set_peer_of(sl_stream *sm, const struct sockaddr *addr)
{
    char ip[INET6_ADDRSTRLEN] = "unix";
    uint16_t port = 0;
    if (addr->sa_family == AF_INET) {
        struct sockaddr_in v4;
        memcpy(&v4, addr, sizeof(v4));
        (void)inet_ntop(AF_INET, &v4.sin_addr, ip, sizeof(ip));
        port = ntohs(v4.sin_port);
    } else if (addr->sa_family == AF_INET6) {
        struct sockaddr_in6 v6;
        memcpy(&v6, addr, sizeof(v6));
        // an IPv4 peer of a dual stack listener is named as what it is
        if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr))
            (void)inet_ntop(AF_INET, &v6.sin6_addr.s6_addr[12], ip, sizeof(ip));
        else
            (void)inet_ntop(AF_INET6, &v6.sin6_addr, ip, sizeof(ip));
        port = ntohs(v6.sin6_port);
    }
    sl_stream_set_peer(sm, ip, port);
}

sl_err sl_stream_tcp_accept(sl_loop *lp, int fd, const struct sockaddr *addr, sl_stream **out)
{
    struct sockaddr_storage got = {0};
    socklen_t got_len = sizeof(got);
    if (addr == NULL) {
        if (getpeername(fd, (struct sockaddr *)&got, &got_len) != 0) {
            sl_err err = sl_err_from_errno(errno); // gone before we looked, or not a socket
            (void)close(fd);
            return err;
        }
        addr = (const struct sockaddr *)&got;
    }
    tcp *tc = sl_calloc(1, sizeof(*tc));
    int rc = uv_poll_init(sl_loop_uv(lp), &tc->poll, fd); // makes fd non-blocking
    if (rc != 0) {
        sl_free(tc);
        (void)close(fd);
        return sl_err_from_errno(-rc);
    }
    tc->poll.data = tc;
    tc->fd = fd;
    tc->base.ops = &tcp_ops;
    sl_stream *sm = sl_stream_new(lp, &tc->base);
    set_peer_of(sm, addr);
    *out = sm;
    return SL_OK;
}

sl_err sl_stream_tcp_new(sl_loop *lp, int fd, sl_stream **out)
{
    return sl_stream_tcp_accept(lp, fd, NULL, out);
}

void sl_tcp_set_user_timeout(sl_filter *ft, sl_dur_ms ms)
{
    unsigned value = ms < 0 ? 0 : ms > INT_MAX ? INT_MAX : (unsigned)ms;
    // AF_UNIX sockets have no such option and need none
    (void)setsockopt(tcp_of(ft)->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &value, sizeof(value));
}
