/* SPDX-License-Identifier: Apache-2.0
 *
 * sub_trie: nodes, the table of exact children, the walk. See sub_trie.h.
 *
 * Node 1 is the root, 0 is "none". `+` and `#` children are links in their parent; exact children
 * are in the table: 64 open-addressed parts, each replaced as a whole when it is too full, so that
 * a SUBSCRIBE never waits for the rehash of a million nodes. A slot is hash << 32 | node.
 */
#include "route/sub_trie.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include <xxhash.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "route/sub_list.h"

#define TRIE_MAGIC    0x74726965u
#define NONE          0u
#define ROOT          1u
#define INLINE_BYTES  38u
#define SEGMENT_SHIFT 10u /* segment k has 1024 << k nodes: an index is found by one bit scan */
#define SEGMENTS      22u
#define PARTS         64u
#define PART_MIN      16u
#define SLOT_EMPTY    UINT64_C(0)
#define SLOT_GONE     UINT64_C(0xffffffff) /* was taken out; probing goes on behind it */

/* One cache line. Everything but the atomics is written before the node is published. */
typedef struct node {
    _Alignas(64) sub_list_slot subs;
    _Atomic uint32_t plus;       /* child "+" */
    _Atomic uint32_t hash;       /* child "#" */
    _Atomic uint32_t exact;      /* number of other children */
    uint32_t parent;             /* of a free node: the next free one */
    uint16_t len;                /* of the level */
    uint8_t level[INLINE_BYTES]; /* longer levels: a pointer to owned bytes */
} node;
_Static_assert(sizeof(node) == 64, "a node is one cache line");

typedef struct part {
    uint32_t mask;
    uint32_t live; /* writer's */
    uint32_t used; /* writer's: live and gone */
    _Alignas(64) _Atomic uint64_t slots[];
} part;

struct sl_sub_trie {
    uint32_t magic;
    sl_rcu *rcu; /* borrowed */
    uint64_t seed;
    part *_Atomic parts[PARTS];       /* owned */
    node *_Atomic segments[SEGMENTS]; /* owned; never replaced */
    pthread_mutex_t lock;             /* rank: before the RCU domain's; guards writing and: */
    size_t max_subscriptions;
    size_t max_nodes;
    size_t subscriptions;
    size_t nodes;
    size_t bytes;
    uint32_t fresh;            /* the lowest index never used */
    pthread_mutex_t free_lock; /* a leaf (reclaiming runs on any writer's thread); guards: */
    uint32_t free_head;
};

/* ---- nodes ---------------------------------------------------------------------------------- */

static node *node_at(const sl_sub_trie *trie, uint32_t index)
{
    uint64_t biased = (uint64_t)index + (1u << SEGMENT_SHIFT);
    unsigned top = 63u - (unsigned)__builtin_clzll(biased);
    node *segment =
        atomic_load_explicit(&trie->segments[top - SEGMENT_SHIFT], memory_order_acquire);
    return &segment[biased - (UINT64_C(1) << top)];
}

static const uint8_t *level_of(const node *nd)
{
    if (nd->len <= INLINE_BYTES)
        return nd->level;
    const uint8_t *bytes;
    memcpy(&bytes, nd->level, sizeof(bytes));
    return bytes;
}

static uint32_t node_take(sl_sub_trie *trie)
{
    pthread_mutex_lock(&trie->free_lock);
    uint32_t index = trie->free_head;
    if (index != NONE)
        trie->free_head = node_at(trie, index)->parent;
    pthread_mutex_unlock(&trie->free_lock);
    if (index != NONE)
        return index;
    index = trie->fresh++;
    uint64_t biased = (uint64_t)index + (1u << SEGMENT_SHIFT);
    unsigned segment = 63u - (unsigned)__builtin_clzll(biased) - SEGMENT_SHIFT;
    SL_ASSERT(segment < SEGMENTS);
    if (atomic_load_explicit(&trie->segments[segment], memory_order_relaxed) == NULL) {
        node *nodes = aligned_alloc(64, sizeof(node) << (segment + SEGMENT_SHIFT));
        SL_ASSERT(nodes != NULL);
        atomic_store_explicit(&trie->segments[segment], nodes, memory_order_release);
    }
    trie->bytes += sizeof(node);
    return index;
}

static uint32_t node_new(sl_sub_trie *trie, uint32_t parent, sl_slice level)
{
    uint32_t index = node_take(trie);
    node *nd = node_at(trie, index);
    atomic_init(&nd->subs, NULL);
    atomic_init(&nd->plus, NONE);
    atomic_init(&nd->hash, NONE);
    atomic_init(&nd->exact, 0);
    nd->parent = parent;
    nd->len = (uint16_t)level.len;
    if (level.len > INLINE_BYTES) {
        uint8_t *copy = sl_alloc(level.len);
        memcpy(copy, level.ptr, level.len);
        memcpy(nd->level, &copy, sizeof(copy));
        trie->bytes += level.len;
    } else if (level.len > 0) {
        memcpy(nd->level, level.ptr, level.len);
    }
    return index;
}

/* No reader can see the node any more. */
static void node_recycle(void *ctx, void *ptr)
{
    sl_sub_trie *trie = ctx;
    uint32_t index = (uint32_t)(uintptr_t)ptr;
    node *nd = node_at(trie, index);
    if (nd->len > INLINE_BYTES)
        sl_free((void *)(uintptr_t)level_of(nd));
    nd->len = 0;
    pthread_mutex_lock(&trie->free_lock);
    nd->parent = trie->free_head;
    trie->free_head = index;
    pthread_mutex_unlock(&trie->free_lock);
}

/* ---- the table of exact children ------------------------------------------------------------- */

static uint64_t child_hash(const sl_sub_trie *trie, uint32_t parent, sl_slice level)
{
    return XXH3_64bits_withSeed(level.ptr, level.len,
                                trie->seed ^ (parent * UINT64_C(0x9e3779b97f4a7c15)));
}

static uint32_t part_of(uint64_t hash)
{
    return (uint32_t)(hash >> 58);
}

static part *part_new(uint32_t cap, size_t *bytes)
{
    size_t size = sizeof(part) + cap * sizeof(uint64_t);
    part *pt = aligned_alloc(64, (size + 63) & ~(size_t)63);
    SL_ASSERT(pt != NULL);
    pt->mask = cap - 1;
    pt->live = pt->used = 0;
    for (uint32_t i = 0; i < cap; i++)
        atomic_init(&pt->slots[i], SLOT_EMPTY);
    *bytes += size;
    return pt;
}

static void part_free(void *ctx, void *pt)
{
    (void)ctx;
    free(pt);
}

/* Puts a slot that is not there; pt has room. */
static void part_insert(part *pt, uint64_t slot)
{
    uint32_t at = (uint32_t)(slot >> 32) & pt->mask;
    for (;; at = (at + 1) & pt->mask) {
        uint64_t old = atomic_load_explicit(&pt->slots[at], memory_order_relaxed);
        if (old == SLOT_EMPTY)
            pt->used++;
        if (old == SLOT_EMPTY || old == SLOT_GONE)
            break;
    }
    atomic_store_explicit(&pt->slots[at], slot, memory_order_seq_cst);
    pt->live++;
}

/* Replaces a part by one of the size its live nodes need (load 3/16 to 3/8 afterwards, 3/4 at
 * most). */
static part *part_rebuild(sl_sub_trie *trie, uint32_t which)
{
    part *old = atomic_load_explicit(&trie->parts[which], memory_order_relaxed);
    uint32_t cap = PART_MIN;
    while (cap / 8 * 3 < old->live + 1)
        cap *= 2;
    part *next = part_new(cap, &trie->bytes);
    for (uint32_t i = 0; i <= old->mask; i++) {
        uint64_t slot = atomic_load_explicit(&old->slots[i], memory_order_relaxed);
        if (slot != SLOT_EMPTY && slot != SLOT_GONE)
            part_insert(next, slot);
    }
    trie->bytes -= sizeof(part) + ((size_t)old->mask + 1) * sizeof(uint64_t);
    atomic_store_explicit(&trie->parts[which], next, memory_order_seq_cst);
    sl_rcu_defer(trie->rcu, part_free, NULL, old);
    return next;
}

static void table_add(sl_sub_trie *trie, uint64_t hash, uint32_t index)
{
    part *pt = atomic_load_explicit(&trie->parts[part_of(hash)], memory_order_relaxed);
    if (pt->used + 1 > (pt->mask + 1) / 4 * 3)
        pt = part_rebuild(trie, part_of(hash));
    part_insert(pt, hash << 32 | index);
}

static void table_remove(sl_sub_trie *trie, uint64_t hash, uint32_t index)
{
    part *pt = atomic_load_explicit(&trie->parts[part_of(hash)], memory_order_relaxed);
    uint64_t slot = hash << 32 | index;
    uint32_t at = (uint32_t)hash & pt->mask;
    while (atomic_load_explicit(&pt->slots[at], memory_order_relaxed) != slot)
        at = (at + 1) & pt->mask;
    atomic_store_explicit(&pt->slots[at], SLOT_GONE, memory_order_seq_cst);
    pt->live--;
    /* In front of an empty slot a gone one may be empty as well: a probe ends one step earlier. */
    uint32_t next = (at + 1) & pt->mask;
    if (atomic_load_explicit(&pt->slots[next], memory_order_relaxed) == SLOT_EMPTY) {
        while (atomic_load_explicit(&pt->slots[at], memory_order_relaxed) == SLOT_GONE) {
            atomic_store_explicit(&pt->slots[at], SLOT_EMPTY, memory_order_seq_cst);
            pt->used--;
            at = (at - 1) & pt->mask;
        }
    }
    if (pt->mask + 1 > PART_MIN && pt->live < (pt->mask + 1) / 16)
        part_rebuild(trie, part_of(hash));
}

/* The exact child, or NONE. Read section or the writers' lock. */
static uint32_t table_find(const sl_sub_trie *trie, uint32_t parent, sl_slice level)
{
    uint64_t hash = child_hash(trie, parent, level);
    const part *pt = atomic_load_explicit(&trie->parts[part_of(hash)], memory_order_seq_cst);
    uint32_t tag = (uint32_t)hash;
    for (uint32_t at = tag & pt->mask;; at = (at + 1) & pt->mask) {
        uint64_t slot = atomic_load_explicit(&pt->slots[at], memory_order_seq_cst);
        if (slot == SLOT_EMPTY)
            return NONE;
        if ((uint32_t)(slot >> 32) != tag || slot == SLOT_GONE)
            continue;
        const node *nd = node_at(trie, (uint32_t)slot);
        if (nd->parent == parent && nd->len == level.len &&
            memcmp(level_of(nd), level.ptr, level.len) == 0)
            return (uint32_t)slot;
    }
}

/* ---- life ------------------------------------------------------------------------------------ */

sl_sub_trie *sl_sub_trie_new(sl_rcu *rcu, size_t max_subscriptions)
{
    SL_ASSERT(max_subscriptions > 0 && max_subscriptions <= (size_t)1 << 28);
    sl_sub_trie *trie = sl_calloc(1, sizeof(*trie));
    trie->magic = TRIE_MAGIC;
    trie->rcu = rcu;
    trie->max_subscriptions = max_subscriptions;
    trie->max_nodes =
        max_subscriptions * SL_SUB_TRIE_NODES_PER_SUBSCRIPTION + SL_SUB_TRIE_SPARE_NODES;
    /* Clients choose the levels: without a secret seed they could choose collisions too. */
    ssize_t got = getrandom(&trie->seed, sizeof(trie->seed), 0);
    SL_ASSERT(got == (ssize_t)sizeof(trie->seed));
    pthread_mutex_init(&trie->lock, NULL);
    pthread_mutex_init(&trie->free_lock, NULL);
    trie->bytes = sizeof(*trie);
    for (uint32_t i = 0; i < PARTS; i++)
        atomic_init(&trie->parts[i], part_new(PART_MIN, &trie->bytes));
    trie->fresh = ROOT;
    uint32_t root = node_new(trie, NONE, (sl_slice){0});
    SL_ASSERT(root == ROOT);
    return trie;
}

void sl_sub_trie_free(sl_sub_trie **trie_ptr)
{
    sl_sub_trie *trie = *trie_ptr;
    if (trie == NULL)
        return;
    SL_CHECK(trie, TRIE_MAGIC);
    sl_rcu_barrier(trie->rcu); /* what is deferred points into the trie */
    for (uint32_t index = ROOT; index < trie->fresh; index++) {
        node *nd = node_at(trie, index);
        sub_list_free(&nd->subs);
        if (nd->len > INLINE_BYTES)
            sl_free((void *)(uintptr_t)level_of(nd));
    }
    for (uint32_t i = 0; i < PARTS; i++)
        free(atomic_load_explicit(&trie->parts[i], memory_order_relaxed));
    for (uint32_t i = 0; i < SEGMENTS; i++)
        free(atomic_load_explicit(&trie->segments[i], memory_order_relaxed));
    pthread_mutex_destroy(&trie->lock);
    pthread_mutex_destroy(&trie->free_lock);
    trie->magic = 0;
    sl_free(trie);
    *trie_ptr = NULL;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Steps through the levels of a filter: *pos starts at 0; false behind the last one. */
static bool next_level(sl_slice filter, size_t *pos, sl_slice *level)
{
    if (*pos > filter.len)
        return false;
    const uint8_t *begin = filter.ptr + *pos;
    const uint8_t *end = memchr(begin, '/', filter.len - *pos);
    *level = sl_slice_of(begin, end != NULL ? (size_t)(end - begin) : filter.len - *pos);
    *pos += level->len + 1;
    return true;
}

static bool is_level(sl_slice level, char wild)
{
    return level.len == 1 && level.ptr[0] == (uint8_t)wild;
}

static bool is_filter(sl_slice filter)
{
    if (filter.len == 0 || filter.len > SL_SUB_TRIE_MAX_FILTER_BYTES)
        return false;
    sl_slice level;
    for (size_t pos = 0; next_level(filter, &pos, &level);) {
        bool has_wild =
            memchr(level.ptr, '+', level.len) != NULL || memchr(level.ptr, '#', level.len) != NULL;
        if (has_wild && level.len != 1)
            return false;
        if (is_level(level, '#') && pos <= filter.len)
            return false;
    }
    return true;
}

/* The link to a wildcard child, or NULL for an exact level. */
static _Atomic uint32_t *wild_link(node *parent, sl_slice level)
{
    if (is_level(level, '+'))
        return &parent->plus;
    return is_level(level, '#') ? &parent->hash : NULL;
}

static uint32_t child_find(const sl_sub_trie *trie, uint32_t parent, sl_slice level)
{
    _Atomic uint32_t *link = wild_link(node_at(trie, parent), level);
    return link != NULL ? atomic_load_explicit(link, memory_order_relaxed)
                        : table_find(trie, parent, level);
}

static uint32_t child_add(sl_sub_trie *trie, uint32_t parent, sl_slice level)
{
    uint32_t index = node_new(trie, parent, level);
    node *above = node_at(trie, parent);
    _Atomic uint32_t *link = wild_link(above, level);
    trie->nodes++;
    if (link != NULL) {
        atomic_store_explicit(link, index, memory_order_seq_cst);
        return index;
    }
    atomic_fetch_add_explicit(&above->exact, 1, memory_order_seq_cst);
    table_add(trie, child_hash(trie, parent, level), index);
    return index;
}

static bool is_empty(node *nd)
{
    return atomic_load_explicit(&nd->subs, memory_order_relaxed) == NULL &&
           atomic_load_explicit(&nd->plus, memory_order_relaxed) == NONE &&
           atomic_load_explicit(&nd->hash, memory_order_relaxed) == NONE &&
           atomic_load_explicit(&nd->exact, memory_order_relaxed) == 0;
}

/* Takes out the node and then its ancestors, as long as nothing is in them. */
static void prune(sl_sub_trie *trie, uint32_t index)
{
    while (index != ROOT && is_empty(node_at(trie, index))) {
        node *nd = node_at(trie, index);
        uint32_t parent = nd->parent;
        node *above = node_at(trie, parent);
        sl_slice level = sl_slice_of(level_of(nd), nd->len);
        _Atomic uint32_t *link = wild_link(above, level);
        if (link != NULL) {
            atomic_store_explicit(link, NONE, memory_order_seq_cst);
        } else {
            table_remove(trie, child_hash(trie, parent, level), index);
            atomic_fetch_sub_explicit(&above->exact, 1, memory_order_seq_cst);
        }
        trie->nodes--;
        if (nd->len > INLINE_BYTES)
            trie->bytes -= nd->len;
        sl_rcu_defer(trie->rcu, node_recycle, trie, (void *)(uintptr_t)index);
        index = parent;
    }
}

/* The deepest node that is there on the way to the filter; *pos: where its missing levels begin. */
static uint32_t walk(const sl_sub_trie *trie, sl_slice filter, size_t *pos)
{
    uint32_t index = ROOT;
    sl_slice level;
    *pos = 0;
    for (size_t next = 0; next_level(filter, &next, &level); *pos = next) {
        uint32_t child = child_find(trie, index, level);
        if (child == NONE)
            break;
        index = child;
    }
    return index;
}

static size_t levels_from(sl_slice filter, size_t pos)
{
    size_t count = 0;
    for (sl_slice level; next_level(filter, &pos, &level);)
        count++;
    return count;
}

sl_err sl_sub_trie_put(sl_sub_trie *trie, sl_slice filter, const sl_sub *sub, bool *existed,
                       sl_sub *old)
{
    SL_CHECK(trie, TRIE_MAGIC);
    if (!is_filter(filter))
        return SL_EINVAL;
    sl_err err = SL_OK;
    bool found = false;
    pthread_mutex_lock(&trie->lock);
    size_t pos;
    uint32_t index = walk(trie, filter, &pos);
    size_t missing = levels_from(filter, pos);
    found = missing == 0 && sub_list_find(&node_at(trie, index)->subs, sub->client, NULL);
    if ((!found && trie->subscriptions >= trie->max_subscriptions) ||
        missing > trie->max_nodes - trie->nodes) {
        err = SL_ELIMIT;
        goto out;
    }
    for (sl_slice level; next_level(filter, &pos, &level);)
        index = child_add(trie, index, level);
    sub_list_put(trie->rcu, &node_at(trie, index)->subs, sub, old, &trie->bytes);
    if (!found)
        trie->subscriptions++;
    if (existed != NULL)
        *existed = found;
out:
    pthread_mutex_unlock(&trie->lock);
    return err;
}

bool sl_sub_trie_remove(sl_sub_trie *trie, sl_slice filter, uint32_t client, sl_sub *old)
{
    SL_CHECK(trie, TRIE_MAGIC);
    if (!is_filter(filter))
        return false;
    pthread_mutex_lock(&trie->lock);
    size_t pos;
    uint32_t index = walk(trie, filter, &pos);
    bool removed = pos > filter.len && sub_list_remove(trie->rcu, &node_at(trie, index)->subs,
                                                       client, old, &trie->bytes);
    if (removed) {
        trie->subscriptions--;
        prune(trie, index);
    }
    pthread_mutex_unlock(&trie->lock);
    return removed;
}

bool sl_sub_trie_get(sl_sub_trie *trie, sl_slice filter, uint32_t client, sl_sub *out)
{
    SL_CHECK(trie, TRIE_MAGIC);
    if (!is_filter(filter))
        return false;
    pthread_mutex_lock(&trie->lock);
    size_t pos;
    uint32_t index = walk(trie, filter, &pos);
    bool found = pos > filter.len && sub_list_find(&node_at(trie, index)->subs, client, out);
    pthread_mutex_unlock(&trie->lock);
    return found;
}

sl_sub_trie_counts sl_sub_trie_count(sl_sub_trie *trie)
{
    SL_CHECK(trie, TRIE_MAGIC);
    pthread_mutex_lock(&trie->lock);
    sl_sub_trie_counts counts = {trie->subscriptions, trie->nodes, trie->bytes};
    pthread_mutex_unlock(&trie->lock);
    return counts;
}

/* ---- matching -------------------------------------------------------------------------------- */

/* A walk over the topic: depth first, without a stack, because a node knows its parent and a level
 * its beginning. So a topic of 65 536 levels needs no more memory than one of two. */
typedef struct cursor {
    const sl_sub_trie *trie;
    sl_slice topic;
    uint32_t index; /* where we are */
    size_t pos;     /* where its next level begins; beyond the topic's end when there is none */
    bool is_system; /* the topic begins with '$' */
} cursor;

static uint32_t plus_of(const cursor *cu, node *nd)
{
    if (cu->index == ROOT && cu->is_system)
        return NONE; /* [MQTT-4.7.2-1] */
    return atomic_load_explicit(&nd->plus, memory_order_seq_cst);
}

/* Goes to a child for the level at pos: the exact one first, `+` when there is none. */
static bool step_down(cursor *cu, node *nd)
{
    if (cu->pos > cu->topic.len)
        return false;
    size_t next = cu->pos;
    sl_slice level;
    next_level(cu->topic, &next, &level);
    uint32_t child = NONE;
    if (atomic_load_explicit(&nd->exact, memory_order_seq_cst) > 0)
        child = table_find(cu->trie, cu->index, level);
    if (child == NONE)
        child = plus_of(cu, nd);
    if (child == NONE)
        return false;
    cu->index = child;
    cu->pos = next;
    return true;
}

/* Goes back until an exact child is left whose parent has a `+` not tried yet; false at the root.
 */
static bool step_across(cursor *cu)
{
    while (cu->index != ROOT) {
        const node *nd = node_at(cu->trie, cu->index);
        bool was_plus = nd->len == 1 && nd->level[0] == '+';
        size_t behind = cu->pos;
        size_t begin = behind - 1; /* the level's end */
        while (begin > 0 && cu->topic.ptr[begin - 1] != '/')
            begin--;
        cu->pos = begin;
        cu->index = nd->parent;
        uint32_t plus = was_plus ? NONE : plus_of(cu, node_at(cu->trie, cu->index));
        if (plus != NONE) {
            cu->index = plus;
            cu->pos = behind;
            return true;
        }
    }
    return false;
}

void sl_sub_trie_match(const sl_sub_trie *trie, sl_slice topic, sl_sub_matches *out)
{
    SL_DASSERT(trie->magic == TRIE_MAGIC);
    out->count = out->lists = 0;
    if (topic.len == 0)
        return;
    cursor cu = {.trie = trie, .topic = topic, .index = ROOT, .is_system = topic.ptr[0] == '$'};
    do {
        node *nd;
        do {
            nd = node_at(trie, cu.index);
            uint32_t hash = atomic_load_explicit(&nd->hash, memory_order_seq_cst);
            if (hash != NONE && (cu.index != ROOT || !cu.is_system))
                sub_list_collect(&node_at(trie, hash)->subs, out);
        } while (step_down(&cu, nd));
        if (cu.pos > topic.len)
            sub_list_collect(&nd->subs, out);
    } while (step_across(&cu));
}
