/* SPDX-License-Identifier: Apache-2.0
 *
 * router: hands every delivered message to the listeners whose filter matches, by two policies:
 *   live     rate-limited, never waited for, never delays an acknowledgement (SSE, plugins)
 *   durable  every message, acknowledged to the broker only when the last durable listener has
 *            taken it (the writer, plugins)
 * and keeps the last message per topic (LRU). It does not talk MQTT: the session (mqtt_session)
 * feeds it, is told when the set of filters changes, and gets the acknowledgements back.
 *
 *   session --deliver--> router --fn--> live listeners        (may be dropped by the rate limit)
 *                           |  `--fn+token--> durable listeners --sl_taken_done--> (any thread)
 *                           `--on_ack--> session              (after the last token, or at once)
 *
 * Everything runs on the router's loop unless a tag says otherwise.
 */
#ifndef SL_GATEWAY_ROUTER_H
#define SL_GATEWAY_ROUTER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "loop/loop.h"
#include "message.h"

typedef struct sl_router sl_router;
typedef struct sl_taken sl_taken; /* one durable listener's duty for one message */

/* What the session needs to acknowledge a message; opaque to the router. */
typedef struct sl_delivery {
    uint64_t generation; /* connection it came on */
    uint64_t handle;     /* the client's own name for it */
} sl_delivery;

/* A live listener's function: takes its own reference if it keeps the message. Must not block. */
typedef void sl_live_f(void *arg, sl_message *msg);
/* A durable listener's function: it must see to it that sl_taken_done is called exactly once for
 * the token, at any time and from any thread; until then the message stays unacknowledged. It
 * takes its own reference to the message if it keeps it. Must not block; what it keeps it bounds
 * and counts itself. */
typedef void sl_durable_f(void *arg, sl_message *msg, sl_taken *token);

typedef struct sl_router_options {
    sl_loop *loop;               /* borrowed */
    int64_t live_max_per_second; /* token bucket, live listeners only; <= 0 = off */
    bool cache;                  /* last message per topic */
    uint32_t cache_size;         /* topics, LRU */
    /* All durable listeners have taken it (called at once when there is none). */
    void (*on_ack)(void *arg, sl_delivery delivery);
    /* The registered filters or their QoS changed: look at sl_router_each_filter. Once per turn. */
    void (*on_filters)(void *arg);
    void *arg;
} sl_router_options;

/** @thread init */
sl_router *sl_router_new(const sl_router_options *options);
/** Listeners must be gone or silent; tokens that come back later are swallowed by the loop, so the
 * loop is stopped before. @thread init */
void sl_router_free(sl_router **rt);

/**
 * Registers a listener and its interest in filter at qos (the session subscribes for it).
 * Errors     SL_EINVAL filter not valid (or $share), qos > 2.
 * @thread    loop, or init before the loop runs
 */
SL_MUST_USE sl_err sl_router_subscribe(sl_router *rt, sl_slice filter, uint8_t qos, sl_live_f *fn,
                                       void *arg, uint64_t *id);
SL_MUST_USE sl_err sl_router_subscribe_durable(sl_router *rt, sl_slice filter, uint8_t qos,
                                               sl_durable_f *fn, void *arg, uint64_t *id);
/** Interest without a listener: primes the cache. @thread as above */
SL_MUST_USE sl_err sl_router_prime(sl_router *rt, sl_slice filter, uint8_t qos, uint64_t *id);
/** After it returns fn is not called again. An unknown id is ignored. @thread loop or init */
void sl_router_unsubscribe(sl_router *rt, uint64_t id);

/**
 * One message from the session. Sets msg->seq, updates the cache, calls the listeners.
 * Ownership  takes *msg.
 * Completes  on_ack(delivery) once: within the call when no durable listener matched, else from a
 *            later turn. qos 0 messages are reported too (the session ignores them).
 * @thread    loop
 */
void sl_router_deliver(sl_router *rt, sl_message **msg, sl_delivery delivery);

/** The durable listener has stored the message, dead-lettered it, or dropped it with a count. Takes
 * the token. @thread any */
void sl_taken_done(sl_taken **token);

/** The cached message of a topic (a new reference, the caller's) or NULL. Counts as a use for the
 * LRU. @thread loop */
sl_message *sl_router_last(sl_router *rt, sl_slice topic);
/** Every cached message whose topic matches filter, as a new array (sl_free) of new references;
 * order: received first first. Also *seq, the newest sequence number given out so far. @thread loop
 */
void sl_router_match_cache(sl_router *rt, sl_slice filter, sl_message ***msgs, size_t *count,
                           uint64_t *seq);

typedef struct sl_router_filter {
    sl_slice filter; /* borrowed until the next change */
    uint8_t qos;     /* the highest any listener asked for */
    uint32_t listeners;
    bool durable; /* at least one durable listener */
} sl_router_filter;

/** Iterates over the distinct registered filters: start with *pos = 0; false at the end.
 * @thread loop */
bool sl_router_each_filter(const sl_router *rt, size_t *pos, sl_router_filter *out);

/* Figures; the numbers may be read from any thread. */
typedef struct sl_router_stats {
    uint64_t received;        /* every delivery */
    uint64_t dropped;         /* live deliveries refused by the rate limit, one per message */
    uint64_t unmatched;       /* no registered filter matched: acknowledged and dropped */
    uint64_t cache_evictions; /* LRU */
    uint32_t listeners;       /* live + durable */
    uint32_t filters;         /* distinct */
    uint32_t cached;          /* topics in the cache */
    uint32_t pending;         /* messages some durable listener still holds */
} sl_router_stats;
/** @thread any */
void sl_router_read_stats(const sl_router *rt, sl_router_stats *out);

#endif
