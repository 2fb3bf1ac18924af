/* SPDX-License-Identifier: Apache-2.0
 *
 * sse: GET /mqtt-sse, event streams of live messages. Connections live on the HTTP front's loop;
 * all connections with the same filter make a group, which is one live listener of the router on
 * the router's loop. Messages go from loop to loop in batches, one letter per group and turn.
 *
 *   router's loop:  router --> group.outbox --letter (end of turn)--> front's loop
 *   front's loop:   group --> each connection's ring (bounded) --> http stream (bounded)
 *
 * A slow reader loses messages (counted), never delays anything. A new connection gets the cached
 * values first: the group listens before the cache is read, and what the cache had already is
 * skipped by sequence number.
 */
#ifndef SL_GATEWAY_SSE_H
#define SL_GATEWAY_SSE_H

#include <stdbool.h>
#include <stdint.h>

#include "acl.h"
#include "base/clock.h"
#include "http/auth.h"
#include "http/server.h"
#include "loop/loop.h"
#include "router.h"

typedef struct sl_sse sl_sse;

typedef struct sl_sse_options {
    sl_loop *front;  /* where streams live; borrowed */
    sl_loop *router; /* the router's loop; borrowed */
    sl_router *rt;   /* borrowed */
    sl_acl *acl;     /* borrowed */
    sl_auth *auth;   /* borrowed; NULL in tests: rights of users are not watched */
    const char *default_topic;
    uint8_t default_qos;
    uint32_t queue_capacity; /* messages per connection */
    bool drop_oldest;        /* else the newest */
    bool envelope;
    bool replay;             /* cached values at the beginning */
    uint32_t max_per_topic;  /* 0 = no limit */
    uint32_t max_total;      /* 0 = no limit */
    sl_dur_ms keep_alive_ms; /* 0 = none */
    sl_dur_ms max_stream_ms; /* 0 = none */
    bool gap_events;
} sl_sse_options;

typedef struct sl_sse_figures {
    uint64_t sent;     /* events */
    uint64_t dropped;  /* messages that a connection's queue refused or lost */
    uint64_t rejected; /* requests answered 503 */
    uint64_t ended;    /* streams ended by us: right lost, token or time over */
    uint32_t open;     /* connections */
} sl_sse_figures;

/** Strings are borrowed for its life. @thread init */
sl_sse *sl_sse_new(const sl_sse_options *options);
/** Last call on its loop, after the server's drain: no request and no stream is left.
 * @thread front loop */
void sl_sse_close(sl_sse *sse);
/** After close, when both loops have ended. @thread init */
void sl_sse_free(sl_sse **sse);
/** The stream handler; arg is the sl_sse. @thread front loop */
void sl_sse_on_request(void *arg, sl_http_stream *st);
/** New requests are answered 503 from now on; open streams are ended by the server's drain.
 * @thread any */
void sl_sse_stop(sl_sse *sse);
/** @thread any */
void sl_sse_read(const sl_sse *sse, sl_sse_figures *out);

#endif
