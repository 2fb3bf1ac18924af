/* SPDX-License-Identifier: Apache-2.0
 *
 * sub_trie: nodes, the table of children, the walk. See sub_trie.h.
 *
 * A node is 32 bytes, or 64 for a level that needs the room, in slabs that never move; its index
 * says which. Index 1 is the root, 0 is "none". Children are found in one table keyed (parent,
 * level), in 64 open-addressed parts: each is replaced as a whole when it is too full, so that a
 * SUBSCRIBE never waits for the rehash of a million nodes. A slot is hash << 32 | index. What kinds
 * of children a node has is a flag in the node, so that a reader looks up only what is there.
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
#define WIDE          (1u << 31) /* in an index: of the slab of 64-byte nodes */
#define SEGMENT_SHIFT 10u        /* segment k has 1024 << k nodes: one bit scan finds an index */
#define SEGMENTS      21u
#define PARTS         64u
#define PART_MIN      16u
#define SLOT_EMPTY    UINT64_C(0)
#define SLOT_GONE     UINT64_C(0xffffffff) /* was taken out; probing goes on behind it */

/* Kinds of children, above their number in one word (a child has a subscription in or below it, so
 * there are fewer than 2^29). */
#define HAS_EXACT     (1u << 29)
#define HAS_PLUS      (1u << 30)
#define HAS_HASH      (1u << 31)
#define CHILDREN_MASK (HAS_EXACT - 1)

/* Everything but the atomics is written before the node is published. */
typedef struct node {
    sub_list_slot subs;
    _Atomic uint32_t children; /* HAS_* and their number */
    uint32_t parent;           /* of a free node: the next free one of its slab */
    uint16_t len;              /* of the level */
    uint8_t level[];           /* a level longer than WIDE_BYTES: a pointer to owned bytes */
} node;
#define NARROW_BYTES (32u - (unsigned)offsetof(node, level))
#define WIDE_BYTES   (64u - (unsigned)offsetof(node, level))
_Static_assert(offsetof(node, level) == 18, "levels of 14 and 46 bytes fit in a node");

typedef struct part {
    uint32_t cap;
    uint32_t live; /* writer's */
    uint32_t used; /* writer's: live and gone */
    _Alignas(64) _Atomic uint64_t slots[];
} part;

typedef struct slab {
    uint8_t *_Atomic segments[SEGMENTS]; /* owned; never replaced */
    uint32_t fresh;                      /* the lowest index never used; guarded by lock */
    uint32_t free_head;                  /* guarded by free_lock */
} slab;

struct sl_sub_trie {
    uint32_t magic;
    sl_rcu *rcu; /* borrowed */
    uint64_t seed;
    part *_Atomic parts[PARTS]; /* owned */
    slab slabs[2];              /* narrow, wide */
    pthread_mutex_t lock;       /* rank: before the RCU domain's; guards writing and: */
    size_t max_subscriptions;
    size_t max_nodes;
    size_t subscriptions;
    size_t nodes;
    size_t bytes;
    pthread_mutex_t free_lock; /* a leaf: nodes are recycled on any writer's thread */
};

/* ---- nodes ---------------------------------------------------------------------------------- */

static size_t node_bytes(uint32_t index)
{
    return (index & WIDE) != 0 ? 64 : 32;
}

static node *node_at(const sl_sub_trie *trie, uint32_t index)
{
    const slab *sb = &trie->slabs[index >> 31];
    uint32_t biased = (index & ~WIDE) + (1u << SEGMENT_SHIFT);
    unsigned top = 31u - (unsigned)__builtin_clz(biased);
    uint8_t *segment =
        atomic_load_explicit(&sb->segments[top - SEGMENT_SHIFT], memory_order_acquire);
    return (node *)(void *)(segment + (biased - (1u << top)) * node_bytes(index));
}

static const uint8_t *level_of(const node *nd)
{
    if (nd->len <= WIDE_BYTES)
        return nd->level;
    const uint8_t *bytes;
    memcpy(&bytes, nd->level, sizeof(bytes));
    return bytes;
}

static uint32_t node_take(sl_sub_trie *trie, bool is_wide)
{
    slab *sb = &trie->slabs[is_wide];
    pthread_mutex_lock(&trie->free_lock);
    uint32_t index = sb->free_head;
    if (index != NONE)
        sb->free_head = node_at(trie, index)->parent;
    pthread_mutex_unlock(&trie->free_lock);
    if (index != NONE)
        return index;
    index = sb->fresh++ | (is_wide ? WIDE : 0);
    uint32_t biased = (index & ~WIDE) + (1u << SEGMENT_SHIFT);
    unsigned which = 31u - (unsigned)__builtin_clz(biased) - SEGMENT_SHIFT;
    SL_ASSERT(which < SEGMENTS);
    if (atomic_load_explicit(&sb->segments[which], memory_order_relaxed) == NULL) {
        uint8_t *nodes = aligned_alloc(64, node_bytes(index) << (which + SEGMENT_SHIFT));
        SL_ASSERT(nodes != NULL);
        atomic_store_explicit(&sb->segments[which], nodes, memory_order_release);
    }
    trie->bytes += node_bytes(index);
    return index;
}

static uint32_t node_new(sl_sub_trie *trie, uint32_t parent, sl_slice level)
{
    /* A level that fits in neither is behind a pointer, for which a narrow node will do. */
    bool is_wide = level.len > NARROW_BYTES && level.len <= WIDE_BYTES;
    uint32_t index = node_take(trie, is_wide);
    node *nd = node_at(trie, index);
    atomic_init(&nd->subs, NULL);
    atomic_init(&nd->children, 0);
    nd->parent = parent;
    nd->len = (uint16_t)level.len;
    if (level.len > WIDE_BYTES) {
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
    if (nd->len > WIDE_BYTES)
        sl_free((void *)(uintptr_t)level_of(nd));
    nd->len = 0;
    pthread_mutex_lock(&trie->free_lock);
    nd->parent = trie->slabs[index >> 31].free_head;
    trie->slabs[index >> 31].free_head = index;
    pthread_mutex_unlock(&trie->free_lock);
}

/* ---- the table of children ------------------------------------------------------------------- */

static uint64_t child_hash(const sl_sub_trie *trie, uint32_t parent, sl_slice level)
{
    return XXH3_64bits_withSeed(level.ptr, level.len,
                                trie->seed ^ (parent * UINT64_C(0x9e3779b97f4a7c15)));
}

static uint32_t part_of(uint64_t hash)
{
    return (uint32_t)(hash >> 58);
}

/* Where probing for a hash begins: any capacity will do, not only powers of two. */
static uint32_t home_of(const part *pt, uint32_t hash)
{
    return (uint32_t)((uint64_t)hash * pt->cap >> 32);
}

static uint32_t behind(const part *pt, uint32_t at)
{
    return at + 1 == pt->cap ? 0 : at + 1;
}

static size_t part_bytes(uint32_t cap)
{
    return (sizeof(part) + cap * sizeof(uint64_t) + 63) & ~(size_t)63;
}

static part *part_new(uint32_t cap, size_t *bytes)
{
    part *pt = aligned_alloc(64, part_bytes(cap));
    SL_ASSERT(pt != NULL);
    pt->cap = cap;
    pt->live = pt->used = 0;
    for (uint32_t i = 0; i < cap; i++)
        atomic_init(&pt->slots[i], SLOT_EMPTY);
    *bytes += part_bytes(cap);
    return pt;
}

static void part_free(void *ctx, void *pt)
{
    (void)ctx;
    free(pt);
}

/* Puts a slot that is not there; pt has room. */
static void part_insert(part *pt, uint64_t slot, memory_order order)
{
    uint32_t at = home_of(pt, (uint32_t)(slot >> 32));
    for (;; at = behind(pt, at)) {
        uint64_t old = atomic_load_explicit(&pt->slots[at], memory_order_relaxed);
        if (old == SLOT_EMPTY)
            pt->used++;
        if (old == SLOT_EMPTY || old == SLOT_GONE)
            break;
    }
    atomic_store_explicit(&pt->slots[at], slot, order);
    pt->live++;
}

/* Replaces a part by one of the size its live nodes need: five eighths full. */
static part *part_rebuild(sl_sub_trie *trie, uint32_t which)
{
    part *old = atomic_load_explicit(&trie->parts[which], memory_order_relaxed);
    uint32_t cap = old->live / 5 * 8 + PART_MIN;
    part *next = part_new(cap, &trie->bytes);
    for (uint32_t i = 0; i < old->cap; i++) {
        uint64_t slot = atomic_load_explicit(&old->slots[i], memory_order_relaxed);
        if (slot != SLOT_EMPTY && slot != SLOT_GONE)
            part_insert(next, slot, memory_order_relaxed);
    }
    trie->bytes -= part_bytes(old->cap);
    atomic_store_explicit(&trie->parts[which], next, memory_order_seq_cst);
    sl_rcu_defer(trie->rcu, part_free, NULL, old);
    return next;
}

static void table_add(sl_sub_trie *trie, uint64_t hash, uint32_t index)
{
    part *pt = atomic_load_explicit(&trie->parts[part_of(hash)], memory_order_relaxed);
    if (pt->used + 1 > pt->cap / 5 * 4)
        pt = part_rebuild(trie, part_of(hash));
    part_insert(pt, hash << 32 | index, memory_order_seq_cst);
}

static void table_remove(sl_sub_trie *trie, uint64_t hash, uint32_t index)
{
    part *pt = atomic_load_explicit(&trie->parts[part_of(hash)], memory_order_relaxed);
    uint64_t slot = hash << 32 | index;
    uint32_t at = home_of(pt, (uint32_t)hash);
    while (atomic_load_explicit(&pt->slots[at], memory_order_relaxed) != slot)
        at = behind(pt, at);
    atomic_store_explicit(&pt->slots[at], SLOT_GONE, memory_order_seq_cst);
    pt->live--;
    /* In front of an empty slot a gone one may be empty as well: a probe ends one step earlier. */
    if (atomic_load_explicit(&pt->slots[behind(pt, at)], memory_order_relaxed) == SLOT_EMPTY) {
        while (atomic_load_explicit(&pt->slots[at], memory_order_relaxed) == SLOT_GONE) {
            atomic_store_explicit(&pt->slots[at], SLOT_EMPTY, memory_order_seq_cst);
            pt->used--;
            at = at == 0 ? pt->cap - 1 : at - 1;
        }
    }
    if (pt->cap > PART_MIN && pt->live < pt->cap / 4)
        part_rebuild(trie, part_of(hash));
}

/* The child for a level, or NONE. Read section or the writers' lock. */
static uint32_t child_find(const sl_sub_trie *trie, uint32_t parent, sl_slice level)
{
    uint64_t hash = child_hash(trie, parent, level);
    const part *pt = atomic_load_explicit(&trie->parts[part_of(hash)], memory_order_seq_cst);
    uint32_t tag = (uint32_t)hash;
    for (uint32_t at = home_of(pt, tag);; at = behind(pt, at)) {
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
    trie->slabs[0].fresh = trie->slabs[1].fresh = ROOT;
    uint32_t root = node_new(trie, NONE, (sl_slice){0});
    SL_ASSERT(root == ROOT);
    return trie;
}

static void slab_fini(sl_sub_trie *trie, uint32_t wide)
{
    slab *sb = &trie->slabs[wide >> 31];
    for (uint32_t index = ROOT; index < sb->fresh; index++) {
        node *nd = node_at(trie, index | wide);
        sub_list_free(&nd->subs);
        if (nd->len > WIDE_BYTES)
            sl_free((void *)(uintptr_t)level_of(nd));
    }
    for (uint32_t i = 0; i < SEGMENTS; i++)
        free(atomic_load_explicit(&sb->segments[i], memory_order_relaxed));
}

void sl_sub_trie_free(sl_sub_trie **trie_ptr)
{
    sl_sub_trie *trie = *trie_ptr;
    if (trie == NULL)
        return;
    SL_CHECK(trie, TRIE_MAGIC);
    sl_rcu_barrier(trie->rcu); /* what is deferred points into the trie */
    slab_fini(trie, 0);
    slab_fini(trie, WIDE);
    for (uint32_t i = 0; i < PARTS; i++)
        free(atomic_load_explicit(&trie->parts[i], memory_order_relaxed));
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

static uint32_t kind_of(sl_slice level)
{
    if (is_level(level, '+'))
        return HAS_PLUS;
    return is_level(level, '#') ? HAS_HASH : HAS_EXACT;
}

static uint32_t children_of(node *nd)
{
    return atomic_load_explicit(&nd->children, memory_order_seq_cst);
}

static uint32_t child_add(sl_sub_trie *trie, uint32_t parent, sl_slice level)
{
    uint32_t index = node_new(trie, parent, level);
    node *above = node_at(trie, parent);
    trie->nodes++;
    table_add(trie, child_hash(trie, parent, level), index);
    uint32_t children = children_of(above);
    atomic_store_explicit(&above->children, (children | kind_of(level)) + 1, memory_order_seq_cst);
    return index;
}

static void child_remove(sl_sub_trie *trie, uint32_t index)
{
    node *nd = node_at(trie, index);
    node *above = node_at(trie, nd->parent);
    sl_slice level = sl_slice_of(level_of(nd), nd->len);
    uint32_t kind = kind_of(level);
    uint32_t children = children_of(above) - 1;
    uint32_t wild = ((children & HAS_PLUS) != 0 ? 1u : 0u) + ((children & HAS_HASH) != 0 ? 1u : 0u);
    if (kind != HAS_EXACT || (children & CHILDREN_MASK) == wild)
        children &= ~kind;
    atomic_store_explicit(&above->children, children, memory_order_seq_cst);
    trie->nodes--;
    table_remove(trie, child_hash(trie, nd->parent, level), index);
    if (nd->len > WIDE_BYTES)
        trie->bytes -= nd->len;
    sl_rcu_defer(trie->rcu, node_recycle, trie, (void *)(uintptr_t)index);
}

/* Takes out the node and then its ancestors, as long as nothing is in them. */
static void prune(sl_sub_trie *trie, uint32_t index)
{
    while (index != ROOT) {
        node *nd = node_at(trie, index);
        if (children_of(nd) != 0 || atomic_load_explicit(&nd->subs, memory_order_relaxed) != NULL)
            break;
        uint32_t parent = nd->parent;
        child_remove(trie, index);
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

static uint32_t plus_of(const cursor *cu, uint32_t children)
{
    if ((children & HAS_PLUS) == 0 || (cu->index == ROOT && cu->is_system)) /* [MQTT-4.7.2-1] */
        return NONE;
    return child_find(cu->trie, cu->index, sl_slice_of("+", 1));
}

static void collect_hash(const cursor *cu, uint32_t children, sl_sub_matches *out)
{
    if ((children & HAS_HASH) == 0 || (cu->index == ROOT && cu->is_system))
        return;
    uint32_t hash = child_find(cu->trie, cu->index, sl_slice_of("#", 1));
    if (hash != NONE)
        sub_list_collect(&node_at(cu->trie, hash)->subs, out);
}

/* Goes to a child for the level at pos: the exact one first, `+` when there is none. */
static bool step_down(cursor *cu, uint32_t children)
{
    if (cu->pos > cu->topic.len)
        return false;
    size_t next = cu->pos;
    sl_slice level;
    next_level(cu->topic, &next, &level);
    uint32_t child = NONE;
    if ((children & HAS_EXACT) != 0 && kind_of(level) == HAS_EXACT)
        child = child_find(cu->trie, cu->index, level);
    if (child == NONE)
        child = plus_of(cu, children);
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
        size_t next = cu->pos;
        size_t begin = next - 1; /* the level's end */
        while (begin > 0 && cu->topic.ptr[begin - 1] != '/')
            begin--;
        cu->pos = begin;
        cu->index = nd->parent;
        uint32_t plus = was_plus ? NONE : plus_of(cu, children_of(node_at(cu->trie, cu->index)));
        if (plus != NONE) {
            cu->index = plus;
            cu->pos = next;
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
        uint32_t children;
        do {
            nd = node_at(trie, cu.index);
            children = children_of(nd);
            collect_hash(&cu, children, out);
        } while (step_down(&cu, children));
        if (cu.pos > topic.len)
            sub_list_collect(&nd->subs, out);
    } while (step_across(&cu));
}
