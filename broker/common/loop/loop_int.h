/* SPDX-License-Identifier: Apache-2.0
 *
 * loop_int: what the files of a loop share: loop.c (life and turns), mailbox.c (letters), timer.c
 * (the heap of timers). Private to this folder.
 */
#ifndef SL_LOOP_LOOP_INT_H
#define SL_LOOP_LOOP_INT_H

#include <stddef.h>

#include <uv.h>

#include "loop/loop.h"
#include "loop/thread.h"

#define LOOP_NAME_BYTES 16
#define LOOP_TURN_ENDS  8
#define LOOP_MAGIC      0x4c4f4f50u

/* Many posters, one reader: a stack of letters that the reader takes whole and turns over. When the
 * loop was told to stop, its stop letter stays on top for ever: nothing can be posted past it. */
typedef struct mailbox {
    sl_mail *_Atomic head;
    _Atomic int asleep; /* the reader may be waiting: the poster who takes the flag wakes it */
    _Atomic int stop_asked;
    sl_mail stop;
} mailbox;

/* A running timer. The heap holds pointers; each knows its place. */
typedef struct timer_node {
    sl_timer *tm; /* borrowed: storage of the user */
    sl_mono_ms due;
    sl_dur_ms repeat;
    uint64_t seq; /* order of starts: decides between equal times, and bounds a pass */
    size_t place;
} timer_node;

typedef struct timer_heap {
    timer_node **at; /* owned */
    size_t count;
    size_t room;
    uint64_t seq;
} timer_heap;

typedef struct turn_end {
    void (*fn)(void *arg);
    void *arg;
} turn_end;

struct sl_loop {
    uint32_t magic;
    unsigned tag;
    char name[LOOP_NAME_BYTES];
    sl_clock *ck; /* borrowed */
    bool manual;
    bool may_wait;           /* this turn may sleep in the poll */
    bool stopping;           /* the stop letter was read */
    bool finished;           /* all handles are closed */
    _Atomic uintptr_t owner; /* which thread may touch the loop now */
    sl_mono_ms now;
    mailbox box;
    timer_heap timers;
    turn_end ends[LOOP_TURN_ENDS];
    size_t end_count;
    uv_loop_t uv;
    uv_async_t wake;
    uint64_t wakes_owed;         /* posters that took the flag */
    _Atomic uint64_t wakes_done; /* posters that are through with wake */
    uv_prepare_t before_sleep;
    uv_timer_t alarm;  /* ends the sleep when the first timer is due */
    sl_thread *thread; /* owned between start and join */
};

void mailbox_init(mailbox *box);
/** False when the loop was stopped: the letter was not taken. *wake says that the reader sleeps and
 * this caller has to wake it. @thread any */
bool mailbox_post(mailbox *box, sl_mail *mail, bool *wake);
/** Posts the stop letter; later calls do nothing. @thread any */
void mailbox_stop(mailbox *box, bool *wake);
/** Runs what was there at the call, in order; *stopped is set when the stop letter was among it,
 * and then this was the last call. Returns how many letters ran. @thread loop */
size_t mailbox_run(mailbox *box, bool *stopped);
/** Says that the reader is about to sleep; false when letters are there. Either way mailbox_woke
 * follows. @thread loop */
bool mailbox_may_sleep(mailbox *box);
/** Takes that back; true when a poster was faster: its wake-up is under way or was. @thread loop */
bool mailbox_woke(mailbox *box);

/** Runs the timers that are due at lp->now and were started before the call. @thread loop */
size_t timers_run(sl_loop *lp);
/** Time of the first timer; false when there is none. @thread loop */
bool timers_first(const sl_loop *lp, sl_mono_ms *due);
/** Forgets all timers (their sl_timer become idle). @thread loop */
void timers_drop(sl_loop *lp);

#endif
