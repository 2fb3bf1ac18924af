/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: one libuv loop per thread, a mailbox as the only door for other threads, and timers.
 * The only folder that creates threads of ours. What a loop owns is touched on its thread only.
 */
#ifndef SL_LOOP_LOOP_H
#define SL_LOOP_LOOP_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/err.h"

typedef struct sl_loop sl_loop;
struct uv_loop_s;

/* A letter to a loop: intrusive, owned by the receiver from post to fn (fn may free it). */
typedef struct sl_mail {
    struct sl_mail *_Atomic _next;
    void (*fn)(struct sl_mail *mail); /* runs on the loop, exactly once */
} sl_mail;

typedef struct sl_timer {
    void *_impl; /* owned while running */
    sl_loop *_lp;
    void (*_fn)(void *arg);
    void *_arg;
} sl_timer;

/** A loop with a thread of its own named name (at most 15 bytes). It runs once started.
 * @thread init */
SL_MUST_USE sl_err sl_loop_new(const char *name, sl_clock *ck, sl_loop **out);
/** A loop turned by hand (tests) or run by the caller's thread with sl_loop_run. @thread init */
SL_MUST_USE sl_err sl_loop_new_manual(const char *name, sl_clock *ck, sl_loop **out);
SL_MUST_USE sl_err sl_loop_start(sl_loop *lp);
/** Runs a manual loop until sl_loop_stop. The calling thread becomes the loop's. */
void sl_loop_run(sl_loop *lp);
/** One turn of a manual loop without waiting: ready I/O, due timers, the mail that is there
 * (letters posted by these run in the next turn), turn ends. True if it did anything. The calling
 * thread becomes the loop's. After sl_loop_stop the turn that reads it ends the loop; later ones do
 * nothing. */
bool sl_loop_turn(sl_loop *lp);
/** Asks the loop to end: letters posted before run, then every handle that is left is closed and
 * the loop ends. Letters posted later are refused. @thread any */
void sl_loop_stop(sl_loop *lp);
/** Waits for the thread to end; then the caller's thread may touch what the loop owned.
 * @thread not the loop */
void sl_loop_join(sl_loop *lp);
/** After join, or a loop without a running thread: that one is stopped first, its letters run on
 * the caller's thread. No thread may be inside a post. Sets *lp to NULL, accepts NULL inside. */
void sl_loop_free(sl_loop **lp);

/** Posts a letter: lock-free, wakes the loop at most once per turn. Letters of one thread arrive
 * in order. Unbounded by itself: each user bounds what it posts. False: the loop was stopped, the
 * letter stays the caller's. @thread any */
bool sl_loop_post(sl_loop *lp, sl_mail *mail);
/** Calls fn(arg) on the loop, soon; allocates. False: stopped, it will not run. @thread any */
bool sl_loop_call(sl_loop *lp, void (*fn)(void *arg), void *arg);
/** Same, and waits until it ran; on the loop's own thread it runs at once. False: stopped, it did
 * not run. @thread any */
bool sl_loop_call_wait(sl_loop *lp, void (*fn)(void *arg), void *arg);

/** Registers fn to run once at the end of each turn, after all I/O and mail of the turn and before
 * the loop sleeps (flushes of batched work hang here). At most 8. @thread loop or before start */
void sl_loop_on_turn_end(sl_loop *lp, void (*fn)(void *arg), void *arg);

bool sl_loop_is_current(const sl_loop *lp);
#define SL_ON_LOOP(lp) SL_DASSERT(sl_loop_is_current(lp))
/** The loop whose thread this is, or NULL. @thread any */
sl_loop *sl_loop_current(void);
sl_clock *sl_loop_clock(const sl_loop *lp);
/** Monotonic time taken once per turn. @thread loop */
sl_mono_ms sl_loop_now(const sl_loop *lp);
const char *sl_loop_name(const sl_loop *lp);
/** Index of statistics shard and the like; set by the owner. */
void sl_loop_set_tag(sl_loop *lp, unsigned tag);
unsigned sl_loop_tag(const sl_loop *lp);
/** The libuv loop, for the wrappers in net/ and http/ only. @thread loop */
struct uv_loop_s *sl_loop_uv(sl_loop *lp);

/** @thread loop. Zero delay = next turn. A running timer is restarted. A repeating timer runs once
 * a turn however many of its times have passed. With a fake clock timers run in sl_loop_turn when
 * the clock passed their time. */
void sl_timer_init(sl_timer *tm, sl_loop *lp, void (*fn)(void *arg), void *arg);
void sl_timer_start(sl_timer *tm, sl_dur_ms delay, sl_dur_ms repeat);
void sl_timer_stop(sl_timer *tm);
/** The storage may be reused at once. */
void sl_timer_fini(sl_timer *tm);

#endif
