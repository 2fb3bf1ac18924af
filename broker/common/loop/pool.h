/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: threads for calls that block (SQL, DNS, password hashes, files). Work is bounded; its
 * completion comes back to a loop as a letter.
 */
#ifndef SL_LOOP_POOL_H
#define SL_LOOP_POOL_H

#include <stddef.h>

#include "loop/loop.h"
#include "loop/thread.h"

typedef struct sl_pool sl_pool;

/** @thread init */
SL_MUST_USE sl_err sl_pool_new(unsigned threads, size_t max_queued, sl_pool **out);
/** Runs work(arg) on a pool thread, then done(arg) on lp (lp NULL: no completion; a loop that was
 * stopped meanwhile gets none either, so the pool is freed before its loops are stopped).
 * Errors SL_ELIMIT the queue is full (nothing will run). @thread any */
SL_MUST_USE sl_err sl_pool_run(sl_pool *pool, sl_loop *lp, void (*work)(void *arg),
                               void (*done)(void *arg), void *arg);
/** Jobs that wait for a thread, and jobs refused so far because the queue was full. @thread any */
size_t sl_pool_queued(sl_pool *pool);
uint64_t sl_pool_refused(sl_pool *pool);
/** Finishes what is queued, joins the threads. Accepts NULL inside. @thread init */
void sl_pool_free(sl_pool **pool);

#endif
