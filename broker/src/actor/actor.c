/* SPDX-License-Identifier: Apache-2.0
 *
 * actor: see actor.h. The lists of posted items are Treiber stacks emptied in one exchange, so
 * there is no ABA problem: only the winner takes, and it takes all.
 */
#include "actor/actor.h"

#include <stddef.h>

#include "base/assert.h"

enum { IDLE, RUNNING, QUEUED, HELD };

void sl_actor_init(sl_actor *actor, sl_actor_f *handle, sl_actor_hold_f *hold)
{
    atomic_init(&actor->_normal, NULL);
    atomic_init(&actor->_high, NULL);
    actor->_front = NULL;
    actor->_front_high = NULL;
    atomic_init(&actor->_state, IDLE);
    actor->_handle = handle;
    actor->_hold = hold;
    sl_node_init(&actor->_run_node);
}

bool sl_actor_is_idle(const sl_actor *actor)
{
    return atomic_load(&actor->_state) == IDLE && atomic_load(&actor->_normal) == NULL &&
           atomic_load(&actor->_high) == NULL;
}

static void push(sl_actor_item *_Atomic *stack, sl_actor_item *item)
{
    sl_actor_item *top = atomic_load_explicit(stack, memory_order_relaxed);
    do {
        item->_next = top;
    } while (!atomic_compare_exchange_weak(stack, &top, item));
}

/* Everything that was posted, oldest first, behind what the winner has already. */
static void take_all(sl_actor_item *_Atomic *stack, sl_actor_item **front)
{
    sl_actor_item *item = atomic_exchange(stack, NULL);
    sl_actor_item *oldest = NULL;
    while (item != NULL) {
        sl_actor_item *next = item->_next;
        item->_next = oldest;
        oldest = item;
        item = next;
    }
    while (*front != NULL)
        front = &(*front)->_next;
    *front = oldest;
}

/* The next item to handle; stays linked at its front until pop. */
static sl_actor_item **peek(sl_actor *actor)
{
    if (atomic_load_explicit(&actor->_high, memory_order_relaxed) != NULL)
        take_all(&actor->_high, &actor->_front_high);
    if (actor->_front_high != NULL)
        return &actor->_front_high;
    if (actor->_front == NULL)
        take_all(&actor->_normal, &actor->_front);
    return actor->_front != NULL ? &actor->_front : NULL;
}

/* One turn by the winner (state RUNNING). */
static void run_turn(sl_actor *actor, sl_runner *runner)
{
    for (;;) {
        for (int done = 0; done < SL_ACTOR_TURN_ITEMS; done++) {
            sl_actor_item **front = peek(actor);
            if (front == NULL)
                break;
            // Unlinked before the call: the handler owns the item and may free it, or the actor's
            // owner, when it answers DONE.
            sl_actor_item *item = *front;
            *front = item->_next;
            item->_next = NULL;
            if (actor->_handle(actor, runner, item) == SL_ACTOR_HOLD) {
                item->_next = *front;
                *front = item;
                atomic_store(&actor->_state, HELD);
                return;
            }
        }
        if (peek(actor) != NULL) {
            actor->_hold(actor, 1);
            atomic_store(&actor->_state, QUEUED);
            sl_list_push_back(&runner->_queue, &actor->_run_node);
            return;
        }
        atomic_store(&actor->_state, IDLE);
        // Look again: an item may have come between the look and the release.
        if (atomic_load(&actor->_normal) == NULL && atomic_load(&actor->_high) == NULL)
            return;
        uint32_t idle = IDLE;
        if (!atomic_compare_exchange_strong(&actor->_state, &idle, RUNNING))
            return;
    }
}

void sl_actor_post(sl_actor *actor, sl_runner *runner, sl_actor_item *item, bool high)
{
    push(high ? &actor->_high : &actor->_normal, item);
    uint32_t idle = IDLE;
    if (atomic_compare_exchange_strong(&actor->_state, &idle, RUNNING))
        run_turn(actor, runner);
}

void sl_actor_resume(sl_actor *actor, sl_runner *runner)
{
    SL_ASSERT(atomic_load(&actor->_state) == HELD);
    atomic_store(&actor->_state, RUNNING);
    run_turn(actor, runner);
}

void sl_runner_init(sl_runner *runner, void *owner)
{
    sl_list_init(&runner->_queue);
    runner->owner = owner;
}

bool sl_runner_run(sl_runner *runner)
{
    sl_list ready;
    sl_list_init(&ready);
    // Only those that wait now: one that needs another turn goes behind and waits for the next
    // call.
    for (sl_node *node; (node = sl_list_pop_front(&runner->_queue)) != NULL;)
        sl_list_push_back(&ready, node);
    for (sl_node *node; (node = sl_list_pop_front(&ready)) != NULL;) {
        sl_actor *actor = SL_CONTAINER(node, sl_actor, _run_node);
        atomic_store(&actor->_state, RUNNING);
        run_turn(actor, runner);
        actor->_hold(actor, -1);
    }
    return !sl_list_is_empty(&runner->_queue);
}
