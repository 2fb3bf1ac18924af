/* SPDX-License-Identifier: Apache-2.0
 *
 * stamps: see stamps.h. Vectors live in chunks that never move, so readers need no lock; a number
 * is given out again only after its last subscription has left the trie, and a reader that still
 * has the old number then compares with a newer vector of another subscription. That is why a freed
 * vector is zeroed first and reused last: a stale reader sees "everything counts", which is too low
 * and never too high.
 */
#include "session/stamps.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"

#define CHUNK_BITS 10
#define CHUNK      (1u << CHUNK_BITS)
#define CHUNKS     (SL_STAMPS_MAX >> CHUNK_BITS)

struct sl_stamps {
    pthread_mutex_t lock; /* guards all but the offsets themselves */
    sl_log_topic *topic;  /* borrowed */
    uint16_t width;
    uint32_t next;    /* numbers given out; number n is at index n - 1 */
    uint32_t current; /* the vector made last, or 0 */
    uint32_t *refs;   /* owned, per number - 1 */
    uint32_t refs_cap;
    uint32_t *freed; /* owned: a queue, oldest first */
    uint32_t freed_head, freed_count, freed_cap;
    _Atomic uint64_t *_Atomic chunks[CHUNKS]; /* width offsets each */
};

sl_stamps *sl_stamps_new(sl_log_topic *topic)
{
    sl_stamps *st = sl_calloc(1, sizeof(*st));
    pthread_mutex_init(&st->lock, NULL);
    st->topic = topic;
    st->width = sl_log_topic_partitions(topic);
    return st;
}

void sl_stamps_free(sl_stamps **stamps)
{
    sl_stamps *st = *stamps;
    if (st == NULL)
        return;
    *stamps = NULL;
    for (uint32_t i = 0; i < CHUNKS; i++)
        sl_free((void *)atomic_load(&st->chunks[i]));
    sl_free(st->refs);
    sl_free(st->freed);
    pthread_mutex_destroy(&st->lock);
    sl_free(st);
}

uint16_t sl_stamps_width(const sl_stamps *st)
{
    return st->width;
}

static _Atomic uint64_t *vector(const sl_stamps *st, uint32_t stamp)
{
    uint32_t at = stamp - 1;
    return atomic_load(&st->chunks[at >> CHUNK_BITS]) + (size_t)(at & (CHUNK - 1)) * st->width;
}

/* Freed numbers are used again only when many wait, oldest first. */
#define KEEP_FREED 4096

static uint32_t take_number(sl_stamps *st)
{
    if (st->freed_count > KEEP_FREED) {
        uint32_t stamp = st->freed[st->freed_head];
        st->freed_head = (st->freed_head + 1) % st->freed_cap;
        st->freed_count--;
        return stamp;
    }
    if (st->next == SL_STAMPS_MAX)
        return 0;
    uint32_t at = st->next++;
    if (atomic_load(&st->chunks[at >> CHUNK_BITS]) == NULL) {
        void *chunk = sl_calloc((size_t)CHUNK * st->width, sizeof(_Atomic uint64_t));
        atomic_store(&st->chunks[at >> CHUNK_BITS], (_Atomic uint64_t *)chunk);
    }
    if (at >= st->refs_cap) {
        st->refs_cap = st->refs_cap == 0 ? 1024 : st->refs_cap * 2;
        st->refs = sl_realloc(st->refs, st->refs_cap * sizeof(*st->refs));
    }
    st->refs[at] = 0;
    return at + 1;
}

static void give_number(sl_stamps *st, uint32_t stamp)
{
    _Atomic uint64_t *vec = vector(st, stamp);
    for (uint16_t p = 0; p < st->width; p++)
        atomic_store(&vec[p], 0);
    if (st->freed_count == st->freed_cap) {
        uint32_t cap = st->freed_cap == 0 ? 256 : st->freed_cap * 2;
        uint32_t *queue = sl_alloc(cap * sizeof(*queue));
        for (uint32_t i = 0; i < st->freed_count; i++)
            queue[i] = st->freed[(st->freed_head + i) % st->freed_cap];
        sl_free(st->freed);
        st->freed = queue;
        st->freed_cap = cap;
        st->freed_head = 0;
    }
    st->freed[(st->freed_head + st->freed_count++) % st->freed_cap] = stamp;
}

static bool is_current(const sl_stamps *st, const uint64_t *offsets)
{
    if (st->current == 0)
        return false;
    _Atomic uint64_t *vec = vector(st, st->current);
    for (uint16_t p = 0; p < st->width; p++) {
        if (atomic_load_explicit(&vec[p], memory_order_relaxed) != offsets[p])
            return false;
    }
    return true;
}

uint32_t sl_stamps_add(sl_stamps *st, const uint64_t *offsets, size_t count)
{
    if (count != st->width)
        return 0; // of another partition count: everything counts
    pthread_mutex_lock(&st->lock);
    uint32_t stamp = st->current;
    if (!is_current(st, offsets)) {
        stamp = take_number(st);
        if (stamp != 0) {
            _Atomic uint64_t *vec = vector(st, stamp);
            for (uint16_t p = 0; p < st->width; p++)
                atomic_store(&vec[p], offsets[p]);
            st->current = stamp;
        }
    }
    if (stamp != 0)
        st->refs[stamp - 1]++;
    pthread_mutex_unlock(&st->lock);
    return stamp;
}

uint32_t sl_stamps_now(sl_stamps *st)
{
    uint64_t offsets[1024];
    for (uint16_t p = 0; p < st->width; p++) {
        sl_log_partition_info info = {0};
        if (sl_log_topic_describe(st->topic, p, &info) != SL_OK)
            return 0;
        offsets[p] = info.written;
    }
    return sl_stamps_add(st, offsets, st->width);
}

void sl_stamps_unref(sl_stamps *st, uint32_t stamp)
{
    if (stamp == 0)
        return;
    pthread_mutex_lock(&st->lock);
    SL_ASSERT(st->refs[stamp - 1] > 0);
    if (--st->refs[stamp - 1] == 0) {
        if (st->current == stamp)
            st->current = 0;
        give_number(st, stamp);
    }
    pthread_mutex_unlock(&st->lock);
}

void sl_stamps_get(sl_stamps *st, uint32_t stamp, uint64_t *out)
{
    _Atomic uint64_t *vec = vector(st, stamp);
    for (uint16_t p = 0; p < st->width; p++)
        out[p] = atomic_load(&vec[p]);
}

bool sl_stamps_is_older(const sl_stamps *st, uint32_t stamp, uint16_t partition, uint64_t offset)
{
    if (stamp == 0 || partition >= st->width)
        return false;
    return offset < atomic_load_explicit(&vector(st, stamp)[partition], memory_order_relaxed);
}
