/* SPDX-License-Identifier: Apache-2.0
 *
 * rcu: epochs, grace periods and the list of what waits for them. See rcu.h for the proof sketch.
 *
 * An entry deferred in epoch E was taken out before the epoch became E + 1. A reader whose state is
 * above E began after that and cannot have seen it; a reader seen outside a section cannot see it
 * in its next one. So it may be freed once the epoch is above E and no reader's state is in 1..E.
 */
#include "route/rcu.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>

#include "base/alloc.h"

#define RCU_MAGIC     0x72637531u
#define RECLAIM_EVERY 64u  /* defers between two looks at the readers */
#define RUN_MAX       256u /* entries run per turn outside the lock */
#define SPINS         64u  /* yields before a waiting writer begins to sleep */

typedef struct entry {
    sl_rcu_reclaim_f *fn;
    void *ctx;
    void *ptr;
    uint64_t epoch;
} entry;

struct sl_rcu {
    uint32_t magic;
    _Alignas(64) _Atomic uint64_t epoch; /* from 1 */
    _Alignas(64) pthread_mutex_t lock;   /* guards all below; a leaf: nothing is locked inside */
    sl_rcu_reader *readers;
    size_t reader_count;
    entry *ring; /* owned; entries in epoch order */
    size_t head;
    size_t count;
    size_t cap; /* a power of two, at most SL_RCU_MAX_DEFERRED */
    unsigned since_reclaim;
    uint64_t waits;
    uint64_t reclaims;
    size_t running; /* entries taken out of the ring whose fn has not returned */
};

sl_rcu *sl_rcu_new(void)
{
    sl_rcu *rcu = aligned_alloc(64, sizeof(*rcu));
    SL_ASSERT(rcu != NULL);
    *rcu = (sl_rcu){.magic = RCU_MAGIC, .cap = 64};
    atomic_init(&rcu->epoch, 1);
    pthread_mutex_init(&rcu->lock, NULL);
    rcu->ring = sl_calloc(rcu->cap, sizeof(*rcu->ring));
    return rcu;
}

void sl_rcu_free(sl_rcu **rcu_ptr)
{
    sl_rcu *rcu = *rcu_ptr;
    if (rcu == NULL)
        return;
    SL_CHECK(rcu, RCU_MAGIC);
    SL_ASSERT(rcu->readers == NULL);
    sl_rcu_barrier(rcu);
    pthread_mutex_destroy(&rcu->lock);
    sl_free(rcu->ring);
    free(rcu);
    *rcu_ptr = NULL;
}

sl_rcu_reader *sl_rcu_register(sl_rcu *rcu)
{
    SL_CHECK(rcu, RCU_MAGIC);
    sl_rcu_reader *rd = aligned_alloc(64, sizeof(*rd));
    SL_ASSERT(rd != NULL);
    atomic_init(&rd->_state, 0);
    rd->_epoch = &rcu->epoch;
    rd->_rcu = rcu;
    pthread_mutex_lock(&rcu->lock);
    rd->_next = rcu->readers;
    rcu->readers = rd;
    rcu->reader_count++;
    pthread_mutex_unlock(&rcu->lock);
    return rd;
}

void sl_rcu_unregister(sl_rcu_reader **rd_ptr)
{
    sl_rcu_reader *rd = *rd_ptr;
    if (rd == NULL)
        return;
    sl_rcu *rcu = rd->_rcu;
    SL_CHECK(rcu, RCU_MAGIC);
    SL_ASSERT(atomic_load_explicit(&rd->_state, memory_order_relaxed) == 0);
    pthread_mutex_lock(&rcu->lock);
    sl_rcu_reader **at = &rcu->readers;
    while (*at != rd)
        at = &(*at)->_next;
    *at = rd->_next;
    rcu->reader_count--;
    pthread_mutex_unlock(&rcu->lock);
    free(rd);
    *rd_ptr = NULL;
}

/* The oldest epoch a reader is in, or `otherwise` when all are outside. Under the lock. */
static uint64_t oldest_section(const sl_rcu *rcu, uint64_t otherwise)
{
    uint64_t oldest = otherwise;
    for (const sl_rcu_reader *rd = rcu->readers; rd != NULL; rd = rd->_next) {
        uint64_t state = atomic_load_explicit(&rd->_state, memory_order_seq_cst);
        if (state != 0 && state < oldest)
            oldest = state;
    }
    return oldest;
}

/* Starts a grace period and runs at most RUN_MAX entries whose own is over; how many it ran. Called
 * and returns with the lock held; fn runs without it. */
static size_t reclaim(sl_rcu *rcu)
{
    entry run[RUN_MAX];
    uint64_t now = atomic_fetch_add_explicit(&rcu->epoch, 1, memory_order_seq_cst) + 1;
    uint64_t oldest = oldest_section(rcu, now);
    size_t count = 0;
    while (count < RUN_MAX && rcu->count > 0 && rcu->ring[rcu->head].epoch < oldest) {
        run[count++] = rcu->ring[rcu->head];
        rcu->head = (rcu->head + 1) & (rcu->cap - 1);
        rcu->count--;
    }
    rcu->since_reclaim = 0;
    if (count == 0)
        return 0;
    rcu->running += count;
    pthread_mutex_unlock(&rcu->lock);
    for (size_t i = 0; i < count; i++)
        run[i].fn(run[i].ctx, run[i].ptr);
    pthread_mutex_lock(&rcu->lock);
    rcu->running -= count;
    rcu->reclaims += count;
    return count;
}

/* One step of waiting for readers: sections are short, so it yields first, then sleeps 50 us. */
static void pause_for_readers(unsigned *spins)
{
    if ((*spins)++ < SPINS) {
        sched_yield();
        return;
    }
    struct timespec nap = {.tv_nsec = 50000};
    nanosleep(&nap, NULL);
}

static void grow_ring(sl_rcu *rcu)
{
    entry *ring = sl_calloc(rcu->cap * 2, sizeof(*ring));
    for (size_t i = 0; i < rcu->count; i++)
        ring[i] = rcu->ring[(rcu->head + i) & (rcu->cap - 1)];
    sl_free(rcu->ring);
    rcu->ring = ring;
    rcu->head = 0;
    rcu->cap *= 2;
}

void sl_rcu_defer(sl_rcu *rcu, sl_rcu_reclaim_f *fn, void *ctx, void *ptr)
{
    SL_CHECK(rcu, RCU_MAGIC);
    pthread_mutex_lock(&rcu->lock);
    if (rcu->count == SL_RCU_MAX_DEFERRED)
        rcu->waits++;
    for (unsigned spins = 0; rcu->count == SL_RCU_MAX_DEFERRED;) {
        if (reclaim(rcu) > 0)
            continue;
        pthread_mutex_unlock(&rcu->lock);
        pause_for_readers(&spins);
        pthread_mutex_lock(&rcu->lock);
    }
    if (rcu->count == rcu->cap)
        grow_ring(rcu);
    rcu->ring[(rcu->head + rcu->count++) & (rcu->cap - 1)] =
        (entry){fn, ctx, ptr, atomic_load_explicit(&rcu->epoch, memory_order_seq_cst)};
    if (++rcu->since_reclaim >= RECLAIM_EVERY)
        reclaim(rcu);
    pthread_mutex_unlock(&rcu->lock);
}

void sl_rcu_synchronize(sl_rcu *rcu)
{
    SL_CHECK(rcu, RCU_MAGIC);
    pthread_mutex_lock(&rcu->lock);
    uint64_t target = atomic_fetch_add_explicit(&rcu->epoch, 1, memory_order_seq_cst) + 1;
    for (unsigned spins = 0; oldest_section(rcu, target) < target;) {
        pthread_mutex_unlock(&rcu->lock);
        pause_for_readers(&spins);
        pthread_mutex_lock(&rcu->lock);
    }
    pthread_mutex_unlock(&rcu->lock);
}

void sl_rcu_barrier(sl_rcu *rcu)
{
    SL_CHECK(rcu, RCU_MAGIC);
    pthread_mutex_lock(&rcu->lock);
    for (unsigned spins = 0; rcu->count > 0 || rcu->running > 0;) {
        if (rcu->count > 0 && reclaim(rcu) > 0)
            continue;
        pthread_mutex_unlock(&rcu->lock);
        pause_for_readers(&spins);
        pthread_mutex_lock(&rcu->lock);
    }
    pthread_mutex_unlock(&rcu->lock);
}

sl_rcu_counts sl_rcu_count(sl_rcu *rcu)
{
    SL_CHECK(rcu, RCU_MAGIC);
    pthread_mutex_lock(&rcu->lock);
    sl_rcu_counts counts = {rcu->reader_count, rcu->count, rcu->waits, rcu->reclaims};
    pthread_mutex_unlock(&rcu->lock);
    return counts;
}
