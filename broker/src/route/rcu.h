/* SPDX-License-Identifier: Apache-2.0
 *
 * rcu: read-copy-update. Readers walk shared structures without a lock; what a writer has taken out
 * is freed only when no reader can still see it. Epoch based, C11 atomics only, so that TSan can
 * check it; no state per process: a domain hangs from the broker, a reader handle from a thread.
 *
 * The rule for users, and why it is right: every atomic load of a pointer (or index) to something
 * that may be freed, and every store that takes one out, is memory_order_seq_cst. A read section
 * begins with a seq_cst store of the epoch, a grace period with seq_cst loads of the readers'
 * states. In the one order of these four either the grace period sees the reader, or the reader's
 * loads see the new pointer. (A seq_cst load is a plain load on x86 and ldar on ARM.)
 */
#ifndef SL_ROUTE_RCU_H
#define SL_ROUTE_RCU_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "base/assert.h"

typedef struct sl_rcu sl_rcu;

/* One thread's handle. In a cache line of its own; the fields are private. */
typedef struct sl_rcu_reader {
    _Alignas(64) _Atomic uint64_t _state; /* 0 outside a section, else the epoch it began in */
    const _Atomic uint64_t *_epoch;       /* borrowed from the domain */
    sl_rcu *_rcu;                         /* borrowed */
    struct sl_rcu_reader *_next;          /* guarded by the domain's lock */
} sl_rcu_reader;

/** @thread init */
sl_rcu *sl_rcu_new(void);
/** All readers are gone; runs what is deferred. @thread init */
void sl_rcu_free(sl_rcu **rcu);

/** A handle for the calling thread, which owns it until sl_rcu_unregister. @thread any */
sl_rcu_reader *sl_rcu_register(sl_rcu *rcu);
/** Outside a section. Sets *rd to NULL; accepts NULL inside. @thread the reader's */
void sl_rcu_unregister(sl_rcu_reader **rd);

/** Begins a read section. Sections do not nest, never block and never last across a wait: one per
 * batch of messages. @thread the reader's */
static inline void sl_rcu_read_lock(sl_rcu_reader *rd)
{
    SL_DASSERT(atomic_load_explicit(&rd->_state, memory_order_relaxed) == 0);
    atomic_store_explicit(&rd->_state, atomic_load_explicit(rd->_epoch, memory_order_seq_cst),
                          memory_order_seq_cst);
}
/** Ends it: nothing found inside may be touched any more. @thread the reader's */
static inline void sl_rcu_read_unlock(sl_rcu_reader *rd)
{
    atomic_store_explicit(&rd->_state, 0, memory_order_release);
}

typedef void sl_rcu_reclaim_f(void *ctx, void *ptr);
/** Runs fn(ctx, ptr) once every read section that may have seen ptr has ended. ptr was taken out
 * before. fn runs inside a later call of this domain on any writer's thread; it must not call the
 * domain. At SL_RCU_MAX_DEFERRED waiting entries the caller waits for a grace period (counted).
 * @thread any, outside a read section */
#define SL_RCU_MAX_DEFERRED 65536
void sl_rcu_defer(sl_rcu *rcu, sl_rcu_reclaim_f *fn, void *ctx, void *ptr);
/** Waits until every read section that has begun is over. @thread any, outside a read section */
void sl_rcu_synchronize(sl_rcu *rcu);
/** Waits the same way and runs everything deferred before the call.
 * @thread any, outside a read section */
void sl_rcu_barrier(sl_rcu *rcu);

typedef struct sl_rcu_counts {
    size_t readers;    /* registered threads */
    size_t deferred;   /* entries that wait */
    uint64_t waits;    /* times a writer had to wait at SL_RCU_MAX_DEFERRED */
    uint64_t reclaims; /* entries run so far */
} sl_rcu_counts;
/** @thread any */
sl_rcu_counts sl_rcu_count(sl_rcu *rcu);

#endif
