/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of actor: order, one runner at a time, bounded turns, holding, and no item left behind when
 * several threads post.
 */
#include "sl_test.h"

#include <pthread.h>
#include <stdio.h>

#include "actor/actor.h"
#include "base/alloc.h"

typedef struct box {
    sl_actor actor;
    int order[64];
    int count;
    int hold_at; /* answer HOLD before this item, once */
    int holds;   /* references taken while queued */
    int max_holds;
    _Atomic int inside;
    _Atomic int handled;
    _Atomic bool overlapped;
} box;

typedef struct note {
    sl_actor_item item;
    int number;
} note;

static void hold(sl_actor *actor, int delta)
{
    box *bx = SL_CONTAINER(actor, box, actor);
    bx->holds += delta;
    if (bx->holds > bx->max_holds)
        bx->max_holds = bx->holds;
}

static sl_actor_verdict record(sl_actor *actor, sl_runner *runner, sl_actor_item *item)
{
    box *bx = SL_CONTAINER(actor, box, actor);
    note *nt = SL_CONTAINER(item, note, item);
    (void)runner;
    if (nt->number == bx->hold_at) {
        bx->hold_at = -1;
        return SL_ACTOR_HOLD;
    }
    bx->order[bx->count++] = nt->number;
    sl_free(nt);
    return SL_ACTOR_DONE;
}

static void post(box *bx, sl_runner *rn, int number, bool high)
{
    note *nt = sl_calloc(1, sizeof(*nt));
    nt->number = number;
    sl_actor_post(&bx->actor, rn, &nt->item, high);
}

static void start(box *bx, sl_runner *rn)
{
    *bx = (box){.hold_at = -1};
    sl_actor_init(&bx->actor, record, hold);
    sl_runner_init(rn, NULL);
}

static void test_actor_runs_at_once_on_the_posting_loop(void **state)
{
    (void)state;
    box bx;
    sl_runner rn;
    start(&bx, &rn);
    post(&bx, &rn, 7, false);
    assert_int_equal(bx.count, 1);
    assert_int_equal(bx.order[0], 7);
    assert_true(sl_actor_is_idle(&bx.actor));
}

static void test_actor_keeps_the_order_of_items_that_waited(void **state)
{
    (void)state;
    box bx;
    sl_runner rn;
    start(&bx, &rn);
    bx.hold_at = 0;
    for (int i = 0; i < 4; i++)
        post(&bx, &rn, i, false);
    assert_int_equal(bx.count, 0);
    sl_actor_resume(&bx.actor, &rn);
    assert_int_equal(bx.count, 4);
    for (int i = 0; i < 4; i++)
        assert_int_equal(bx.order[i], i);
}

static void test_actor_takes_high_items_first(void **state)
{
    (void)state;
    box bx;
    sl_runner rn;
    start(&bx, &rn);
    bx.hold_at = 0;
    post(&bx, &rn, 0, false);
    post(&bx, &rn, 1, false);
    post(&bx, &rn, 9, true);
    sl_actor_resume(&bx.actor, &rn);
    const int want[] = {9, 0, 1};
    assert_int_equal(bx.count, 3);
    assert_memory_equal(bx.order, want, sizeof(want));
}

static void test_actor_gives_way_after_a_turn(void **state)
{
    (void)state;
    box bx;
    sl_runner rn;
    start(&bx, &rn);
    bx.hold_at = 0;
    for (int i = 0; i < 2 * SL_ACTOR_TURN_ITEMS + 1; i++)
        post(&bx, &rn, i, false);
    sl_actor_resume(&bx.actor, &rn);
    assert_int_equal(bx.count, SL_ACTOR_TURN_ITEMS);
    assert_int_equal(bx.holds, 1);
    assert_true(sl_runner_run(&rn));
    assert_int_equal(bx.count, 2 * SL_ACTOR_TURN_ITEMS);
    assert_false(sl_runner_run(&rn));
    assert_int_equal(bx.count, 2 * SL_ACTOR_TURN_ITEMS + 1);
    assert_int_equal(bx.holds, 0);
    assert_int_equal(bx.max_holds, 2); // queued again before the old hold was given back
    assert_true(sl_actor_is_idle(&bx.actor));
}

static void test_actor_held_item_comes_again_first(void **state)
{
    (void)state;
    box bx;
    sl_runner rn;
    start(&bx, &rn);
    post(&bx, &rn, 1, false);
    bx.hold_at = 2;
    post(&bx, &rn, 2, false);
    post(&bx, &rn, 3, false);
    assert_int_equal(bx.count, 1);
    sl_actor_resume(&bx.actor, &rn);
    const int want[] = {1, 2, 3};
    assert_memory_equal(bx.order, want, sizeof(want));
}

/* ---- several threads --------------------------------------------------------------------------
 */

enum { POSTERS = 4, EACH = 20000 };

static sl_actor_verdict tally(sl_actor *actor, sl_runner *runner, sl_actor_item *item)
{
    box *bx = SL_CONTAINER(actor, box, actor);
    (void)runner;
    if (atomic_fetch_add(&bx->inside, 1) != 0)
        atomic_store(&bx->overlapped, true);
    bx->count++; // plain: only the winner is here
    atomic_fetch_sub(&bx->inside, 1);
    sl_free(SL_CONTAINER(item, note, item));
    atomic_fetch_add(&bx->handled, 1);
    return SL_ACTOR_DONE;
}

static _Atomic int shared_holds;
static void shared_hold(sl_actor *actor, int delta)
{
    (void)actor;
    atomic_fetch_add(&shared_holds, delta);
}

static void *poster(void *arg)
{
    box *bx = arg;
    sl_runner rn;
    sl_runner_init(&rn, NULL);
    for (int i = 0; i < EACH; i++) {
        post(bx, &rn, i, i % 16 == 0);
        (void)sl_runner_run(&rn);
    }
    while (sl_runner_run(&rn)) {
    }
    return NULL;
}

static void test_actor_loses_no_item_of_many_posters(void **state)
{
    (void)state;
    box *bx = sl_calloc(1, sizeof(*bx));
    bx->hold_at = -1;
    sl_actor_init(&bx->actor, tally, shared_hold);
    pthread_t threads[POSTERS];
    for (int i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, poster, bx), 0);
    for (int i = 0; i < POSTERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(atomic_load(&bx->handled), POSTERS * EACH);
    assert_int_equal(bx->count, POSTERS * EACH);
    assert_false(atomic_load(&bx->overlapped));
    assert_int_equal(atomic_load(&shared_holds), 0);
    assert_true(sl_actor_is_idle(&bx->actor));
    sl_free(bx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_actor_runs_at_once_on_the_posting_loop),
        cmocka_unit_test(test_actor_keeps_the_order_of_items_that_waited),
        cmocka_unit_test(test_actor_takes_high_items_first),
        cmocka_unit_test(test_actor_gives_way_after_a_turn),
        cmocka_unit_test(test_actor_held_item_comes_again_first),
        cmocka_unit_test(test_actor_loses_no_item_of_many_posters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
