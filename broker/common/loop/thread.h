/* SPDX-License-Identifier: Apache-2.0
 *
 * thread: a plain thread of ours (log writer, dispatchers; loops and the pool are made of them):
 * named, with signals blocked, so that only the main thread ever handles one. Threads come from
 * nowhere else.
 */
#ifndef SL_LOOP_THREAD_H
#define SL_LOOP_THREAD_H

#include "base/err.h"

typedef struct sl_thread sl_thread;

/** Runs fn(arg) on a new thread. name: at most 15 bytes are kept.
 * Errors SL_ELIMIT, SL_EAGAIN: the machine gives no thread. @thread any */
SL_MUST_USE sl_err sl_thread_start(const char *name, void (*fn)(void *arg), void *arg,
                                   sl_thread **out);
/** Waits until fn returned; sets *th to NULL, accepts NULL inside. @thread any other */
void sl_thread_join(sl_thread **th);

#endif
