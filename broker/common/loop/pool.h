/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: threads for calls that block (SQL, DNS, password hashes, files). Work is bounded; its
 * completion comes back to a loop as a letter.
 */
#ifndef SL_LOOP_POOL_H
#define SL_LOOP_POOL_H

#include "loop/loop.h"

typedef struct sl_pool sl_pool;

/** @thread init */
SL_MUST_USE sl_err sl_pool_new(unsigned threads, size_t max_queued, sl_pool **out);
/** Runs work(arg) on a pool thread, then done(arg) on lp (lp NULL: no completion).
 * Errors SL_ELIMIT the queue is full (nothing will run). @thread any */
SL_MUST_USE sl_err sl_pool_run(sl_pool *pool, sl_loop *lp, void (*work)(void *arg),
                               void (*done)(void *arg), void *arg);
/** Finishes what is queued, joins the threads. @thread init */
void sl_pool_free(sl_pool **pool);

/** A plain thread of ours outside the pool and the loops (log writer, dispatchers): named, with
 * signals blocked. The only other place threads come from. @thread any */
typedef struct sl_thread sl_thread;
SL_MUST_USE sl_err sl_thread_start(const char *name, void (*fn)(void *arg), void *arg,
                                   sl_thread **out);
void sl_thread_join(sl_thread **th);

#endif
