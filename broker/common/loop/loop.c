/* SPDX-License-Identifier: Apache-2.0
 *
 * loop: the life of a loop and what one turn does, in this order: libuv's ready I/O, due timers,
 * the letters that are there, the turn-end functions; then it sleeps, unless something is left to
 * do.
 */
#include "loop/loop.h"

#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "loop/loop_int.h"

/* The loop this thread turned last. Thread-local, so no state is shared. */
static _Thread_local sl_loop *current_loop;
/* Its address is the number of the thread. */
static _Thread_local char thread_mark;

static uintptr_t this_thread(void)
{
    return (uintptr_t)&thread_mark;
}

static void adopt(sl_loop *lp)
{
    atomic_store_explicit(&lp->owner, this_thread(), memory_order_relaxed);
    current_loop = lp;
}

static void on_wake(uv_async_t *handle)
{
    (void)handle; // being awake is all: the turn looks into the mailbox anyway
}

static void on_alarm(uv_timer_t *handle)
{
    (void)handle; // the turn looks at the timers anyway
}

// Last before libuv's poll: here, and not earlier in the turn, libuv cannot use the alarm up on its
// way to the poll and then sleep without one.
static void on_before_sleep(uv_prepare_t *handle)
{
    sl_loop *lp = handle->data;
    sl_mono_ms due;
    if (!lp->may_wait)
        return;
    if (sl_clock_is_fake(lp->ck) || !timers_first(lp, &due)) {
        uv_timer_stop(&lp->alarm);
        return;
    }
    sl_dur_ms delay = due - sl_clock_mono(lp->ck);
    uv_timer_start(&lp->alarm, on_alarm, delay > 0 ? (uint64_t)delay : 0, 0);
}

static sl_err new_loop(const char *name, sl_clock *ck, bool manual, sl_loop **out)
{
    sl_loop *lp = sl_calloc(1, sizeof(*lp));
    lp->magic = LOOP_MAGIC;
    lp->ck = ck;
    lp->manual = manual;
    snprintf(lp->name, sizeof(lp->name), "%s", name);
    int rc = uv_loop_init(&lp->uv);
    if (rc == 0) {
        rc = uv_async_init(&lp->uv, &lp->wake, on_wake);
        if (rc != 0)
            uv_loop_close(&lp->uv);
    }
    if (rc != 0) {
        sl_free(lp);
        return sl_err_from_errno(-rc);
    }
    lp->uv.data = lp;
    mailbox_init(&lp->box);
    atomic_init(&lp->wakes_done, 0);
    // These two only fill memory in.
    uv_prepare_init(&lp->uv, &lp->before_sleep);
    uv_timer_init(&lp->uv, &lp->alarm);
    lp->before_sleep.data = lp;
    uv_prepare_start(&lp->before_sleep, on_before_sleep);
    uv_run(&lp->uv, UV_RUN_NOWAIT); // lets libuv arm its own descriptors
    lp->now = sl_clock_mono(ck);
    // Until a thread runs it, whoever made the loop sets it up.
    atomic_init(&lp->owner, this_thread());
    *out = lp;
    return SL_OK;
}

sl_err sl_loop_new(const char *name, sl_clock *ck, sl_loop **out)
{
    return new_loop(name, ck, false, out);
}

sl_err sl_loop_new_manual(const char *name, sl_clock *ck, sl_loop **out)
{
    return new_loop(name, ck, true, out);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    size_t *left = arg;
    if (uv_is_closing(handle))
        return;
    const sl_loop *lp = handle->loop->data;
    if (handle != (const uv_handle_t *)&lp->wake && handle != (const uv_handle_t *)&lp->alarm &&
        handle != (const uv_handle_t *)&lp->before_sleep)
        (*left)++;
    uv_close(handle, NULL);
}

// After the stop letter: nobody can post any more.
static void finish(sl_loop *lp)
{
    // A poster that took the wake flag may not have used the handle yet.
    while (atomic_load(&lp->wakes_done) != lp->wakes_owed)
        sched_yield();
    size_t left = 0;
    uv_walk(&lp->uv, close_handle, &left);
    if (left != 0)
        sl_warn(SL_C_LOOP, "LOOP-HANDLES-LEFT", SL_S("loop", lp->name), SL_U("count", left));
    lp->may_wait = false;
    uv_run(&lp->uv, UV_RUN_DEFAULT);
    timers_drop(lp);
    int rc = uv_loop_close(&lp->uv);
    SL_ASSERT(rc == 0);
    lp->finished = true;
}

static void woke(sl_loop *lp)
{
    if (mailbox_woke(&lp->box))
        lp->wakes_owed++;
}

// One turn. Returns whether timers or letters ran.
static bool turn(sl_loop *lp, uv_run_mode mode)
{
    lp->now = sl_clock_mono(lp->ck);
    uv_run(&lp->uv, mode);
    if (lp->may_wait)
        woke(lp);
    lp->may_wait = false;
    lp->now = sl_clock_mono(lp->ck);
    bool did = timers_run(lp) != 0;
    did |= mailbox_run(&lp->box, &lp->stopping) != 0;
    for (size_t i = 0; i < lp->end_count; i++)
        lp->ends[i].fn(lp->ends[i].arg);
    return did;
}

static bool may_sleep(sl_loop *lp)
{
    sl_mono_ms due;
    if (timers_first(lp, &due) && due <= sl_clock_mono(lp->ck))
        return false;
    if (mailbox_may_sleep(&lp->box))
        return true;
    woke(lp);
    return false;
}

static void run(sl_loop *lp)
{
    adopt(lp);
    while (!lp->stopping) {
        lp->may_wait = may_sleep(lp);
        turn(lp, lp->may_wait ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    }
    finish(lp);
}

static void run_thread(void *arg)
{
    run(arg);
    current_loop = NULL;
}

sl_err sl_loop_start(sl_loop *lp)
{
    SL_CHECK(lp, LOOP_MAGIC);
    SL_ASSERT(!lp->manual && lp->thread == NULL && !lp->finished);
    // From here on the loop is not the maker's any more, even before its thread is there.
    atomic_store(&lp->owner, 0);
    sl_err err = sl_thread_start(lp->name, run_thread, lp, &lp->thread);
    if (err != SL_OK)
        atomic_store(&lp->owner, this_thread());
    return err;
}

void sl_loop_run(sl_loop *lp)
{
    SL_CHECK(lp, LOOP_MAGIC);
    SL_ASSERT(lp->manual && !lp->finished);
    run(lp);
}

// Ready I/O; descriptors that libuv has yet to arm count as ready, for they may be.
static bool has_ready_io(sl_loop *lp)
{
    struct pollfd pfd = {.fd = uv_backend_fd(&lp->uv), .events = POLLIN};
    return uv_backend_timeout(&lp->uv) == 0 || poll(&pfd, 1, 0) > 0;
}

bool sl_loop_turn(sl_loop *lp)
{
    SL_CHECK(lp, LOOP_MAGIC);
    SL_ASSERT(lp->manual);
    adopt(lp);
    if (lp->finished)
        return false;
    bool did = has_ready_io(lp);
    did |= turn(lp, UV_RUN_NOWAIT);
    if (lp->stopping) {
        finish(lp);
        return true;
    }
    return did || has_ready_io(lp);
}

static void wake(sl_loop *lp)
{
    uv_async_send(&lp->wake);
    atomic_fetch_add(&lp->wakes_done, 1);
}

void sl_loop_stop(sl_loop *lp)
{
    SL_CHECK(lp, LOOP_MAGIC);
    bool must_wake;
    mailbox_stop(&lp->box, &must_wake);
    if (must_wake)
        wake(lp);
}

void sl_loop_join(sl_loop *lp)
{
    SL_CHECK(lp, LOOP_MAGIC);
    SL_ASSERT(current_loop != lp || lp->thread == NULL);
    if (lp->thread == NULL)
        return;
    sl_thread_join(&lp->thread);
    atomic_store(&lp->owner, this_thread());
}

void sl_loop_free(sl_loop **lp)
{
    sl_loop *mine = *lp;
    *lp = NULL;
    if (mine == NULL)
        return;
    SL_CHECK(mine, LOOP_MAGIC);
    SL_ASSERT(mine->thread == NULL);
    if (!mine->finished) {
        sl_loop_stop(mine);
        run(mine);
    }
    if (current_loop == mine)
        current_loop = NULL;
    mine->magic = 0;
    sl_free(mine);
}

bool sl_loop_post(sl_loop *lp, sl_mail *mail)
{
    bool must_wake;
    if (!mailbox_post(&lp->box, mail, &must_wake))
        return false;
    if (must_wake)
        wake(lp);
    return true;
}

typedef struct call_letter {
    sl_mail mail;
    void (*fn)(void *arg);
    void *arg;
    sem_t ran; /* of a waiting call */
} call_letter;

static void on_call(sl_mail *mail)
{
    call_letter *call = (call_letter *)mail;
    void (*fn)(void *arg) = call->fn;
    void *arg = call->arg;
    sl_free(call);
    fn(arg);
}

static void on_call_wait(sl_mail *mail)
{
    call_letter *call = (call_letter *)mail;
    call->fn(call->arg);
    sem_post(&call->ran); // the caller's stack may be gone from here on
}

bool sl_loop_call(sl_loop *lp, void (*fn)(void *arg), void *arg)
{
    call_letter *call = sl_calloc(1, sizeof(*call));
    call->mail.fn = on_call;
    call->fn = fn;
    call->arg = arg;
    bool taken = sl_loop_post(lp, &call->mail);
    if (!taken)
        sl_free(call);
    return taken;
}

bool sl_loop_call_wait(sl_loop *lp, void (*fn)(void *arg), void *arg)
{
    if (sl_loop_is_current(lp)) {
        if (lp->stopping)
            return false;
        fn(arg);
        return true;
    }
    call_letter call = {.mail.fn = on_call_wait, .fn = fn, .arg = arg};
    sem_init(&call.ran, 0, 0);
    bool taken = sl_loop_post(lp, &call.mail);
    // Interrupted only by a signal handler of the main thread.
    while (taken && sem_wait(&call.ran) != 0)
        continue;
    sem_destroy(&call.ran);
    return taken;
}

void sl_loop_on_turn_end(sl_loop *lp, void (*fn)(void *arg), void *arg)
{
    SL_ON_LOOP(lp);
    SL_ASSERT(lp->end_count < LOOP_TURN_ENDS);
    lp->ends[lp->end_count++] = (turn_end){fn, arg};
}

bool sl_loop_is_current(const sl_loop *lp)
{
    return atomic_load_explicit(&lp->owner, memory_order_relaxed) == this_thread();
}

sl_loop *sl_loop_current(void)
{
    return current_loop;
}

sl_clock *sl_loop_clock(const sl_loop *lp)
{
    return lp->ck;
}

sl_mono_ms sl_loop_now(const sl_loop *lp)
{
    return lp->now;
}

const char *sl_loop_name(const sl_loop *lp)
{
    return lp->name;
}

void sl_loop_set_tag(sl_loop *lp, unsigned tag)
{
    lp->tag = tag;
}

unsigned sl_loop_tag(const sl_loop *lp)
{
    return lp->tag;
}

struct uv_loop_s *sl_loop_uv(sl_loop *lp)
{
    SL_ON_LOOP(lp);
    return &lp->uv;
}
