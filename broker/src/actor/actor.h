/* SPDX-License-Identifier: Apache-2.0
 *
 * actor: a mailbox whose items are handled one at a time, by whichever loop wins it. Posting always
 * enqueues first and then tries to win the actor; the winner runs it at once (usually the loop that
 * just read for it) and looks again after it let go, so no item is left behind. A turn is bounded:
 * what is left goes to the winner's run queue, and other actors run first.
 *
 *     IDLE --post, compare-and-set--> RUNNING --turn used up--> QUEUED (in a loop's run queue)
 *      ^                                 |                          |
 *      '------- mailbox empty -----------'<-------- its turn -------'
 *
 * Actors run on I/O loops only: an item may append to the log through the running loop's producer.
 * An item that cannot go on (the append queue is full) leaves the actor HELD; sl_actor_resume runs
 * it again.
 */
#ifndef SL_ACTOR_ACTOR_H
#define SL_ACTOR_ACTOR_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/list.h"

typedef struct sl_actor sl_actor;
typedef struct sl_runner sl_runner;

typedef struct sl_actor_item {
    struct sl_actor_item *_next;
    uint32_t kind; /* the user's */
} sl_actor_item;

typedef enum sl_actor_verdict {
    SL_ACTOR_DONE, /* the item is finished and belongs to nobody here any more */
    SL_ACTOR_HOLD  /* the item stays at the front; nothing runs until sl_actor_resume */
} sl_actor_verdict;

/* Handles one item. Takes the item unless it answers HOLD. @thread the winning loop */
typedef sl_actor_verdict sl_actor_f(sl_actor *actor, sl_runner *runner, sl_actor_item *item);

/* Keeps the actor's owner alive (+1) while the actor is in a run queue, and lets go (-1).
 * @thread loop */
typedef void sl_actor_hold_f(sl_actor *actor, int delta);

struct sl_actor {
    sl_actor_item *_Atomic _normal; /* newest first (posted), reversed when taken */
    sl_actor_item *_Atomic _high;
    sl_actor_item *_front;      /* taken, oldest first; owned by the winner */
    sl_actor_item *_front_high; /* the same of the high queue */
    _Atomic uint32_t _state;
    sl_actor_f *_handle;
    sl_actor_hold_f *_hold;
    sl_node _run_node; /* in a runner's queue while QUEUED */
};

/* A loop's side of it: the queue of actors with work left. Embedded in the loop's owner. */
struct sl_runner {
    sl_list _queue;
    void *owner; /* the sl_io that runs */
};

#define SL_ACTOR_TURN_ITEMS 5

/** @thread any, before others see the actor */
void sl_actor_init(sl_actor *actor, sl_actor_f *handle, sl_actor_hold_f *hold);
/** True when nothing waits and nobody runs it. @thread any (a snapshot) */
bool sl_actor_is_idle(const sl_actor *actor);
/** Enqueues (high: before all normal items) and runs the actor here if it is free.
 * Ownership takes item; the caller keeps the actor alive during the call.
 * @thread loop of runner */
void sl_actor_post(sl_actor *actor, sl_runner *runner, sl_actor_item *item, bool high);
/** Runs a HELD actor again, on the loop that held it; the caller keeps it alive during the call.
 * @thread that loop */
void sl_actor_resume(sl_actor *actor, sl_runner *runner);

/** @thread init */
void sl_runner_init(sl_runner *runner, void *owner);
/** Gives each actor of the queue one turn. True when some still have work. @thread loop */
bool sl_runner_run(sl_runner *runner);

#endif
