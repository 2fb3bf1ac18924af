/* SPDX-License-Identifier: Apache-2.0
 *
 * timer: a binary heap of running timers, ordered by time and then by start. Our own and not
 * libuv's, so that a fake clock drives them and their storage is free the moment they stop.
 */
#include "base/alloc.h"
#include "loop/loop_int.h"

static bool is_before(const timer_node *left, const timer_node *right)
{
    return left->due != right->due ? left->due < right->due : left->seq < right->seq;
}

static void place_at(timer_heap *heap, size_t place, timer_node *node)
{
    heap->at[place] = node;
    node->place = place;
}

static void sift_up(timer_heap *heap, timer_node *node)
{
    size_t place = node->place;
    while (place != 0) {
        timer_node *parent = heap->at[(place - 1) / 2];
        if (!is_before(node, parent))
            break;
        place_at(heap, place, parent);
        place = (place - 1) / 2;
    }
    place_at(heap, place, node);
}

static void sift_down(timer_heap *heap, timer_node *node)
{
    size_t place = node->place;
    for (;;) {
        size_t child = place * 2 + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && is_before(heap->at[child + 1], heap->at[child]))
            child++;
        if (!is_before(heap->at[child], node))
            break;
        place_at(heap, place, heap->at[child]);
        place = child;
    }
    place_at(heap, place, node);
}

static void heap_fix(timer_heap *heap, timer_node *node)
{
    sift_up(heap, node);
    sift_down(heap, node);
}

static void heap_add(timer_heap *heap, timer_node *node)
{
    if (heap->count == heap->room) {
        heap->room = heap->room == 0 ? 16 : heap->room * 2;
        heap->at = sl_realloc(heap->at, heap->room * sizeof(timer_node *));
    }
    place_at(heap, heap->count++, node);
    sift_up(heap, node);
}

static void heap_remove(timer_heap *heap, timer_node *node)
{
    timer_node *last = heap->at[--heap->count];
    if (last != node) {
        place_at(heap, node->place, last);
        heap_fix(heap, last);
    }
}

void sl_timer_init(sl_timer *tm, sl_loop *lp, void (*fn)(void *arg), void *arg)
{
    *tm = (sl_timer){._lp = lp, ._fn = fn, ._arg = arg};
}

void sl_timer_start(sl_timer *tm, sl_dur_ms delay, sl_dur_ms repeat)
{
    sl_loop *lp = tm->_lp;
    SL_ON_LOOP(lp);
    timer_node *node = tm->_impl;
    bool running = node != NULL;
    if (!running)
        node = tm->_impl = sl_alloc(sizeof(*node));
    // The clock is read again: counted from the turn's time, a timer would be early by the turn.
    sl_mono_ms now = sl_clock_mono(lp->ck);
    delay = delay < 0 ? 0 : delay;
    node->tm = tm;
    node->due = delay > INT64_MAX - now ? INT64_MAX : now + delay;
    node->repeat = repeat;
    node->seq = ++lp->timers.seq;
    if (running)
        heap_fix(&lp->timers, node);
    else
        heap_add(&lp->timers, node);
}

void sl_timer_stop(sl_timer *tm)
{
    timer_node *node = tm->_impl;
    if (node == NULL)
        return;
    SL_ON_LOOP(tm->_lp);
    heap_remove(&tm->_lp->timers, node);
    tm->_impl = NULL;
    sl_free(node);
}

void sl_timer_fini(sl_timer *tm)
{
    sl_timer_stop(tm);
}

size_t timers_run(sl_loop *lp)
{
    timer_heap *heap = &lp->timers;
    uint64_t last_seq = heap->seq;
    size_t count = 0;
    while (heap->count != 0) {
        timer_node *node = heap->at[0];
        // What a timer starts waits for the next turn; it cannot be earlier than what is left.
        if (node->due > lp->now || node->seq > last_seq)
            break;
        sl_timer *tm = node->tm;
        if (node->repeat > 0) {
            sl_mono_ms next = node->due + node->repeat;
            node->due = next > lp->now ? next : lp->now + node->repeat;
            node->seq = ++heap->seq;
            sift_down(heap, node);
        } else {
            heap_remove(heap, node);
            tm->_impl = NULL;
            sl_free(node);
        }
        count++;
        tm->_fn(tm->_arg); // may end the timer and free its storage
    }
    return count;
}

bool timers_first(const sl_loop *lp, sl_mono_ms *due)
{
    if (lp->timers.count == 0)
        return false;
    *due = lp->timers.at[0]->due;
    return true;
}

void timers_drop(sl_loop *lp)
{
    for (size_t i = 0; i < lp->timers.count; i++) {
        lp->timers.at[i]->tm->_impl = NULL;
        sl_free(lp->timers.at[i]);
    }
    sl_free(lp->timers.at);
    lp->timers = (timer_heap){.at = NULL};
}
