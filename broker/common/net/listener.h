/* SPDX-License-Identifier: Apache-2.0
 *
 * listener: accepts TCP connections and spreads them over loops, within limits. An fd reserve is
 * kept: when descriptors run out, the newest connection is accepted and closed at once instead of
 * spinning on accept (cases C49).
 */
#ifndef SL_NET_LISTENER_H
#define SL_NET_LISTENER_H

#include "base/err.h"
#include "loop/loop.h"
#include "net/stream.h"

typedef struct sl_listener sl_listener;

typedef struct sl_listener_options {
    const char *name;      /* for the log: "tcp" */
    const char *address;   /* IPv4 or IPv6 text */
    uint16_t port;         /* 0: the system chooses, sl_listener_port tells */
    sl_loop *const *loops; /* accepted connections go round over these; borrowed */
    unsigned loop_count;
    int backlog;              /* 0 = 1024 */
    uint32_t max_connections; /* 0 = no limit but the descriptors */
    /* A connection, on its loop. The stream is the callee's (close it in the end). */
    void (*on_accept)(void *arg, sl_stream *sm);
    void *arg;
} sl_listener_options;

/** Binds and listens; *why (owned message) names address and port and, when known, what to do.
 * Accepting starts with sl_listener_start. @thread init */
SL_MUST_USE sl_err sl_listener_open(const sl_listener_options *options, sl_listener **out,
                                    char **why);
void sl_listener_start(sl_listener *ls);
/** No new connections (the port is closed); blocks until the accepting loop has stopped.
 * @thread not a loop */
void sl_listener_close(sl_listener **ls);
uint16_t sl_listener_port(const sl_listener *ls);
/** A connection that max_connections counts has gone. @thread any */
void sl_listener_release(sl_listener *ls);

#endif
