/* SPDX-License-Identifier: Apache-2.0
 *
 * sub_trie: topic filter -> subscriptions; the structure that every message walks. Matching takes
 * no lock and allocates nothing but the caller's reusable result; writers are serialised inside.
 * It knows no clients, sessions or shares: a subscriber is a number that the caller hands out (a
 * client, an integration, a share group). Who has a subscription is recorded elsewhere too
 * (tbmq.client.subscriptions); this is its index in memory, rebuilt at start.
 *
 * Rules [MQTT-4.7]: `+` is one level, `#` (last) the parent and everything below; a filter that
 * begins with a wildcard never matches a topic that begins with `$`; empty levels are levels; bytes
 * are compared as they are.
 *
 * Shape: small nodes in a table keyed (parent, level); a node's subscribers are arrays sorted by
 * client in copy-on-write chunks. Empty nodes are pruned at once, level by level.
 */
#ifndef SL_ROUTE_SUB_TRIE_H
#define SL_ROUTE_SUB_TRIE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/slice.h"
#include "route/rcu.h"

/* sl_sub.flags */
enum {
    SL_SUB_NO_LOCAL = 1,
    SL_SUB_RETAIN_AS_PUBLISHED = 2,
    SL_SUB_RETAIN_HANDLING_SHIFT = 2, /* two bits: 0, 1, 2 */
    SL_SUB_RETAIN_HANDLING_MASK = 3 << 2,
    SL_SUB_USER_SHIFT = 4 /* the upper four bits are the caller's */
};

/* A subscription: a value. */
typedef struct sl_sub {
    uint32_t client; /* the caller's number of the subscriber */
    uint32_t sub_id; /* MQTT 5 subscription identifier, 0 none */
    uint32_t stamp;  /* the caller's number of the log ends at the first SUBSCRIBE */
    uint8_t qos;     /* granted */
    uint8_t flags;   /* SL_SUB_* */
} sl_sub;

typedef struct sl_sub_trie sl_sub_trie;

#define SL_SUB_TRIE_MAX_FILTER_BYTES 65535u
/* Bound on nodes, so that filters of thousands of levels cannot take the memory of millions. */
#define SL_SUB_TRIE_NODES_PER_SUBSCRIPTION 8u
#define SL_SUB_TRIE_SPARE_NODES            65536u

/** rcu: borrowed, outlives the trie. max_subscriptions: 1..2^28. @thread init */
sl_sub_trie *sl_sub_trie_new(sl_rcu *rcu, size_t max_subscriptions);
/** No reader is inside. @thread init */
void sl_sub_trie_free(sl_sub_trie **trie);

/**
 * Adds a subscription, or replaces the one with the same (filter, client): QoS, identifier and
 * flags become sub's, the stamp stays the old one's.
 * existed, old: may be NULL; *old is written when *existed.
 * Errors  SL_EINVAL filter empty, longer than SL_SUB_TRIE_MAX_FILTER_BYTES, or with a misplaced
 *         wildcard; SL_ELIMIT max_subscriptions or the bound on nodes. Nothing is changed then.
 * @thread any, outside a read section
 * @locks  trie
 */
SL_MUST_USE sl_err sl_sub_trie_put(sl_sub_trie *trie, sl_slice filter, const sl_sub *sub,
                                   bool *existed, sl_sub *old);
/** False when there was none. old may be NULL. @thread any, outside a read section @locks trie */
bool sl_sub_trie_remove(sl_sub_trie *trie, sl_slice filter, uint32_t client, sl_sub *old);
/** The subscription of (filter, client); false when there is none. @thread any @locks trie */
bool sl_sub_trie_get(sl_sub_trie *trie, sl_slice filter, uint32_t client, sl_sub *out);

/* The result of a match; reused from message to message. Zeroed storage is ready. It grows to at
 * most twice the subscriptions in the trie. */
typedef struct sl_sub_matches {
    sl_sub *items; /* owned; copies, valid as long as the vector */
    size_t count;
    size_t cap;
    size_t lists; /* runs sorted by client that items consists of; 1: no client is there twice */
} sl_sub_matches;

void sl_sub_matches_fini(sl_sub_matches *out);

/** All subscriptions whose filter matches topic (no wildcards, not validated here; an empty one
 * matches nothing). out is emptied first. @thread any, inside a read section */
void sl_sub_trie_match(const sl_sub_trie *trie, sl_slice topic, sl_sub_matches *out);

/** Drops the items for which keep() says no (older stamp, no-local). They are judged one by one,
 * before the merge, because overlapping filters of one client differ in both. @thread any */
void sl_sub_matches_keep(sl_sub_matches *out, bool (*keep)(void *arg, const sl_sub *sub),
                         void *arg);
/** Brings the subscriptions of one client together (items are then sorted by client). Free when one
 * list matched. @thread any */
void sl_sub_matches_merge(sl_sub_matches *out);

/* What one client gets: one delivery for all its overlapping subscriptions. */
typedef struct sl_sub_delivery {
    uint32_t client;
    uint8_t qos;        /* the highest granted */
    uint8_t flags;      /* of that subscription (the first with this QoS) */
    const sl_sub *subs; /* borrowed from the matches: the client's matching subscriptions */
    size_t count;
} sl_sub_delivery;
/** Steps through merged matches; *pos starts at 0; false at the end. @thread any */
bool sl_sub_matches_next(const sl_sub_matches *matches, size_t *pos, sl_sub_delivery *out);
/** The identifiers of a delivery, each once, none for 0; returns how many were written (at most
 * max). @thread any */
size_t sl_sub_delivery_ids(const sl_sub_delivery *dv, uint32_t *ids, size_t max);

typedef struct sl_sub_trie_counts {
    size_t subscriptions;
    size_t nodes; /* without the root */
    size_t bytes; /* heap memory of the trie, what waits for readers not included */
} sl_sub_trie_counts;
/** @thread any @locks trie */
sl_sub_trie_counts sl_sub_trie_count(sl_sub_trie *trie);

#endif
