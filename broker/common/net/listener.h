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

/* What happened to a connection that knocked, for the owner's counters. */
typedef enum sl_listener_event {
    SL_LISTENER_ACCEPTED,
    SL_LISTENER_REFUSED_LIMIT, /* max_connections: closed at once */
    SL_LISTENER_REFUSED_FDS    /* no descriptor left, or only the spare ones: closed at once */
} sl_listener_event;

typedef struct sl_listener_options {
    const char *name;      /* for the log: "tcp" */
    const char *address;   /* IPv4 or IPv6 text ("::" takes both), or "localhost" */
    uint16_t port;         /* 0: the system chooses, sl_listener_port tells */
    sl_loop *const *loops; /* accepted connections go round over these; borrowed */
    unsigned loop_count;
    int backlog;              /* 0 = 1024 */
    uint32_t max_connections; /* 0 = no limit but the descriptors */
    /* Descriptors below the process's limit that this listener leaves for others (files, other
     * listeners): a connection that would eat into them is closed at once. */
    uint32_t spare_fds;
    /* A connection, on its loop. The stream is the callee's (close it in the end). */
    void (*on_accept)(void *arg, sl_stream *sm);
    /* Each connection that knocked, on the accepting loop (loops[0]). May be NULL. */
    void (*on_event)(void *arg, sl_listener_event event);
    void *arg;
} sl_listener_options;

/** Binds and listens; *why (owned message) names address and port and, when known, what to do.
 * Accepting starts with sl_listener_start. @thread init */
SL_MUST_USE sl_err sl_listener_open(const sl_listener_options *options, sl_listener **out,
                                    char **why);
void sl_listener_start(sl_listener *ls);
/** No new connections (the port is closed); returns when no on_accept of it can come any more.
 * Sets *ls to NULL; accepts NULL inside. @thread not a loop, unless it is a manual one of loops */
void sl_listener_close(sl_listener **ls);
uint16_t sl_listener_port(const sl_listener *ls);
/** A connection given to on_accept has gone: call it once for each (max_connections counts them,
 * and the last one frees a closed listener). @thread any */
void sl_listener_release(sl_listener *ls);

#endif
