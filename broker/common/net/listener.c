/* SPDX-License-Identifier: Apache-2.0
 *
 * listener: one listening socket on loops[0]; accepted descriptors travel to their loops by letter.
 * Socket options are set on the listening socket, from which Linux hands them on, so that a
 * connection costs one accept and nothing else.
 */
#include "net/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <uv.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/logger.h"
#include "net/net_int.h"
#include "net/port_holder.h"

#define LISTENER_MAGIC    0x534c5354u
#define ACCEPTS_PER_EVENT 64
#define PAUSE_MS          100 /* after accept failed and the reserve could not help */

struct sl_listener {
    uint32_t magic;
    uint16_t port;
    bool polling;
    sl_listener_options opt; /* strings and loops are owned copies */
    int fd;                  /* owned; the listening socket */
    int reserve_fd;          /* owned; given up for a moment when descriptors run out; -1: gone */
    rlim_t fd_limit;
    uv_poll_t *poll;        /* owned; of loops[0] */
    sl_timer pause;         /* of loops[0] */
    unsigned next_loop;     /* loops[0] only */
    _Atomic uint32_t refs;  /* the owner's one, and one per connection */
    sl_log_limit log_limit; /* floods of refusals make few lines */
};

/* An accepted descriptor on its way to its loop. */
typedef struct handover {
    sl_mail mail;
    sl_listener *ls; /* a reference */
    sl_loop *lp;     /* borrowed */
    int fd;          /* owned */
    struct sockaddr_storage addr;
} handover;

static void unref(sl_listener *ls)
{
    if (atomic_fetch_sub_explicit(&ls->refs, 1, memory_order_acq_rel) != 1)
        return;
    ls->magic = 0;
    sl_free((void *)(uintptr_t)ls->opt.name);
    sl_free((void *)(uintptr_t)ls->opt.address);
    sl_free((void *)(uintptr_t)ls->opt.loops);
    sl_free(ls);
}

void sl_listener_release(sl_listener *ls)
{
    SL_CHECK(ls, LISTENER_MAGIC);
    unref(ls);
}

uint16_t sl_listener_port(const sl_listener *ls)
{
    return ls->port;
}

static void refused(sl_listener *ls, sl_listener_event event, const char *reason)
{
    if (ls->opt.on_event != NULL)
        ls->opt.on_event(ls->opt.arg, event);
    uint32_t suppressed = 0;
    if (sl_log_limit_pass(&ls->log_limit, 3, 10000, &suppressed))
        sl_warn(SL_C_NET, "CONNECTION-REFUSED", SL_S("listener", ls->opt.name),
                SL_S("reason", reason), SL_U("suppressed", suppressed));
}

/* A connection on its loop. */
static void arrive(sl_listener *ls, sl_loop *lp, int fd, const struct sockaddr *addr)
{
    sl_stream *sm = NULL;
    sl_err err = sl_stream_tcp_accept(lp, fd, addr, &sm);
    if (err != SL_OK) {
        sl_trace(SL_C_NET, "CONNECTION-LOST", SL_S("listener", ls->opt.name), SL_E(err));
        unref(ls);
        return;
    }
    ls->opt.on_accept(ls->opt.arg, sm);
}

static void on_handover(sl_mail *mail)
{
    handover *ho = SL_CONTAINER(mail, handover, mail);
    arrive(ho->ls, ho->lp, ho->fd, (const struct sockaddr *)&ho->addr);
    sl_free(ho);
}

static void spread(sl_listener *ls, int fd, const struct sockaddr_storage *addr)
{
    sl_loop *lp = ls->opt.loops[ls->next_loop++ % ls->opt.loop_count];
    atomic_fetch_add_explicit(&ls->refs, 1, memory_order_relaxed);
    if (ls->opt.on_event != NULL)
        ls->opt.on_event(ls->opt.arg, SL_LISTENER_ACCEPTED);
    if (lp == ls->opt.loops[0]) {
        arrive(ls, lp, fd, (const struct sockaddr *)addr);
        return;
    }
    handover *ho = sl_alloc(sizeof(*ho));
    *ho = (handover){.mail.fn = on_handover, .ls = ls, .lp = lp, .fd = fd, .addr = *addr};
    if (!sl_loop_post(lp, &ho->mail)) { // stopped already
        (void)close(fd);
        sl_free(ho);
        unref(ls);
    }
}

static void set_polling(sl_listener *ls, bool on);

static void on_pause_over(void *arg)
{
    set_polling(arg, true);
}

/* accept said that descriptors are exhausted, which it says before it looks whether anybody waits.
 * The one in reserve makes room to take the newest connection and close it, so that the backlog
 * does not keep the poll ready for ever. True: there may be more. */
static bool shed_one(sl_listener *ls)
{
    bool had_room = ls->reserve_fd >= 0;
    if (had_room)
        (void)close(ls->reserve_fd);
    int fd = had_room ? accept4(ls->fd, NULL, NULL, SOCK_CLOEXEC) : -1;
    bool nobody = had_room && fd < 0 && errno == EAGAIN;
    if (fd >= 0) {
        (void)close(fd);
        refused(ls, SL_LISTENER_REFUSED_FDS, "no file descriptor left");
    }
    ls->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (nobody || (fd >= 0 && ls->reserve_fd >= 0))
        return !nobody;
    // somebody else was faster with the descriptor: no use in trying again at once
    set_polling(ls, false);
    sl_timer_start(&ls->pause, PAUSE_MS, 0);
    return false;
}

/* True: there may be more in the backlog. */
static bool accept_one(sl_listener *ls)
{
    struct sockaddr_storage addr;
    socklen_t addr_len = sizeof(addr);
    int fd = accept4(ls->fd, (struct sockaddr *)&addr, &addr_len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        switch (errno) {
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
            return shed_one(ls);
        case EAGAIN:
            return false;
        default: // the connection broke before we took it: ECONNABORTED, EPROTO, ...
            return true;
        }
    }
    uint32_t open_now = atomic_load_explicit(&ls->refs, memory_order_relaxed) - 1;
    if (ls->opt.max_connections != 0 && open_now >= ls->opt.max_connections) {
        (void)close(fd);
        refused(ls, SL_LISTENER_REFUSED_LIMIT, "max_connections");
    } else if (ls->opt.spare_fds != 0 && (rlim_t)fd + ls->opt.spare_fds >= ls->fd_limit) {
        (void)close(fd); // the lowest free descriptor is this high: only the spare ones are left
        refused(ls, SL_LISTENER_REFUSED_FDS, "only spare file descriptors left");
    } else {
        spread(ls, fd, &addr);
    }
    return true;
}

static void on_poll(uv_poll_t *handle, int status, int events)
{
    (void)status;
    (void)events;
    sl_listener *ls = handle->data;
    for (int i = 0; i < ACCEPTS_PER_EVENT && ls->polling; i++)
        if (!accept_one(ls))
            break;
}

static void set_polling(sl_listener *ls, bool on)
{
    if (on) {
        int rc = uv_poll_start(ls->poll, UV_READABLE, on_poll);
        SL_ASSERT(rc == 0);
    } else {
        uv_poll_stop(ls->poll);
    }
    ls->polling = on;
}

/* "tcp: cannot listen on 0.0.0.0 port 1883: address in use by process 12 (mosquitto); ..." */
static char *explain(const sl_listener_options *options, const char *step, int errnum)
{
    char holder[128];
    char text[512];
    const char *advice = "";
    char detail[256];
    char errtext[128];
    if (errnum == EADDRINUSE && sl_port_holder_find(options->port, holder, sizeof(holder)) == SL_OK)
        (void)snprintf(detail, sizeof(detail), "the port is in use by %s", holder);
    else
        (void)snprintf(detail, sizeof(detail), "%s", strerror_r(errnum, errtext, sizeof(errtext)));
    if (errnum == EADDRINUSE)
        advice = "; stop that process or configure another port";
    else if (errnum == EACCES)
        advice = "; ports below 1024 need the right CAP_NET_BIND_SERVICE";
    else if (errnum == EADDRNOTAVAIL)
        advice = "; no interface of this machine has the address";
    (void)snprintf(text, sizeof(text), "listener %s: cannot %s %s port %u: %s%s", options->name,
                   step, options->address, options->port, detail, advice);
    return sl_strdup(text);
}

static sl_err resolve(const sl_listener_options *options, struct sockaddr_storage *addr,
                      socklen_t *addr_len, char **why)
{
    char port[8];
    (void)snprintf(port, sizeof(port), "%u", options->port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = AI_NUMERICSERV | AI_PASSIVE};
    if (strcmp(options->address, "localhost") != 0)
        hints.ai_flags |= AI_NUMERICHOST;
    else
        hints.ai_family = AF_INET; // the answer must not depend on the order in /etc/hosts
    struct addrinfo *found = NULL;
    int rc = getaddrinfo(options->address, port, &hints, &found);
    if (rc != 0) {
        char text[512];
        (void)snprintf(text, sizeof(text), "listener %s: '%s' is not an IPv4 or IPv6 address: %s",
                       options->name, options->address, gai_strerror(rc));
        *why = sl_strdup(text);
        return SL_EINVAL;
    }
    memcpy(addr, found->ai_addr, found->ai_addrlen);
    *addr_len = found->ai_addrlen;
    freeaddrinfo(found);
    return SL_OK;
}

static void set_options(int fd, int family)
{
    const int on = 1;
    const int off = 0;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    if (family == AF_INET6)
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
}

/* Errors: *why is set. */
static sl_err bind_socket(const sl_listener_options *options, int *out_fd, uint16_t *out_port,
                          char **why)
{
    struct sockaddr_storage addr = {0};
    socklen_t addr_len = 0;
    sl_err err = resolve(options, &addr, &addr_len, why);
    if (err != SL_OK)
        return err;
    const char *step = "open a socket for";
    int fd = socket(addr.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        goto fail;
    set_options(fd, addr.ss_family);
    step = "listen on";
    if (bind(fd, (struct sockaddr *)&addr, addr_len) != 0 ||
        listen(fd, options->backlog > 0 ? options->backlog : 1024) != 0 ||
        getsockname(fd, (struct sockaddr *)&addr, &addr_len) != 0)
        goto fail;
    *out_port = ntohs(addr.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&addr)->sin6_port
                                                 : ((struct sockaddr_in *)&addr)->sin_port);
    *out_fd = fd;
    return SL_OK;
fail:
    err = sl_err_from_errno(errno);
    *why = explain(options, step, errno);
    if (fd >= 0)
        (void)close(fd);
    return err;
}

sl_err sl_listener_open(const sl_listener_options *options, sl_listener **out, char **why)
{
    SL_ASSERT(options->loop_count > 0 && options->on_accept != NULL);
    int fd = -1;
    uint16_t port = 0;
    sl_err err = bind_socket(options, &fd, &port, why);
    if (err != SL_OK)
        return err;
    sl_listener *ls = sl_calloc(1, sizeof(*ls));
    ls->magic = LISTENER_MAGIC;
    ls->opt = *options;
    ls->opt.name = sl_strdup(options->name);
    ls->opt.address = sl_strdup(options->address);
    sl_loop **loops = sl_calloc(options->loop_count, sizeof(sl_loop *));
    memcpy(loops, options->loops, options->loop_count * sizeof(sl_loop *));
    ls->opt.loops = loops;
    ls->fd = fd;
    ls->port = port;
    ls->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct rlimit limit = {.rlim_cur = RLIM_INFINITY};
    (void)getrlimit(RLIMIT_NOFILE, &limit);
    ls->fd_limit = limit.rlim_cur;
    atomic_init(&ls->refs, 1);
    *out = ls;
    return SL_OK;
}

static void start_on_loop(void *arg)
{
    sl_listener *ls = arg;
    sl_loop *lp = ls->opt.loops[0];
    sl_timer_init(&ls->pause, lp, on_pause_over, ls);
    ls->poll = sl_calloc(1, sizeof(*ls->poll));
    int rc = uv_poll_init(sl_loop_uv(lp), ls->poll, ls->fd);
    SL_ASSERT(rc == 0);
    ls->poll->data = ls;
    set_polling(ls, true);
}

void sl_listener_start(sl_listener *ls)
{
    SL_CHECK(ls, LISTENER_MAGIC);
    bool ran = sl_loop_call_wait(ls->opt.loops[0], start_on_loop, ls);
    SL_ASSERT(ran);
}

static void on_poll_closed(uv_handle_t *handle)
{
    sl_free(handle);
}

static void stop_on_loop(void *arg)
{
    sl_listener *ls = arg;
    set_polling(ls, false);
    sl_timer_fini(&ls->pause);
    uv_close((uv_handle_t *)ls->poll, on_poll_closed);
    ls->poll = NULL;
}

static void nothing(void *arg)
{
    (void)arg;
}

void sl_listener_close(sl_listener **lsp)
{
    sl_listener *ls = *lsp;
    *lsp = NULL;
    if (ls == NULL)
        return;
    SL_CHECK(ls, LISTENER_MAGIC);
    if (ls->poll != NULL) {
        bool ran = sl_loop_call_wait(ls->opt.loops[0], stop_on_loop, ls);
        SL_ASSERT(ran); // a loop outlives the listeners on it
        // letters are handled in order: behind this one no on_accept can come
        for (unsigned i = 1; i < ls->opt.loop_count; i++)
            (void)sl_loop_call_wait(ls->opt.loops[i], nothing, NULL);
    }
    (void)close(ls->fd);
    if (ls->reserve_fd >= 0)
        (void)close(ls->reserve_fd);
    unref(ls);
}
