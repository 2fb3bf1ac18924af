/* SPDX-License-Identifier: Apache-2.0
 *
 * dial: see dial.h.
 */
#include "net/dial.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ms(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Waits for a connect in progress; 0 or a negative errno value. */
static int wait_connected(int fd, int64_t deadline)
{
    for (;;) {
        int64_t left = deadline - now_ms();
        if (left <= 0)
            return -ETIMEDOUT;
        struct pollfd pfd = {.fd = fd, .events = POLLOUT};
        int n = poll(&pfd, 1, left > INT32_MAX ? INT32_MAX : (int)left);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n <= 0)
            continue;
        int errnum = 0;
        socklen_t size = sizeof(errnum);
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &size) != 0)
            return -errno;
        return -errnum;
    }
}

static int connect_one(const struct addrinfo *ai, int64_t deadline)
{
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, ai->ai_protocol);
    if (fd < 0)
        return -errno;
    int one = 1;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); // only latency is lost
    int rc = connect(fd, ai->ai_addr, ai->ai_addrlen) == 0 ? 0 : -errno;
    if (rc == -EINPROGRESS)
        rc = wait_connected(fd, deadline);
    if (rc == 0)
        return fd;
    close(fd);
    return rc;
}

int sl_net_dial_tcp(void *arg, const char *host, uint16_t port, sl_dur_ms timeout)
{
    (void)arg;
    int64_t deadline = now_ms() + timeout;
    char service[8];
    snprintf(service, sizeof(service), "%u", port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    struct addrinfo *list = NULL;
    int rc = getaddrinfo(host, service, &hints, &list);
    if (rc != 0)
        return rc == EAI_SYSTEM ? -errno : -EHOSTUNREACH;
    rc = -EHOSTUNREACH;
    for (struct addrinfo *ai = list; ai != NULL; ai = ai->ai_next) {
        rc = connect_one(ai, deadline);
        if (rc >= 0)
            break;
    }
    freeaddrinfo(list);
    return rc;
}
