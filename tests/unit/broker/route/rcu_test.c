/* SPDX-License-Identifier: Apache-2.0
 *
 * rcu: nothing is freed under a reader, everything is freed behind the last one, and the list of
 * what waits is bounded. A handle may be driven by any thread, so most cases need only one.
 */
#include "route/rcu.h"

#include <sched.h>
#include <stdbool.h>

#include "sl_test.h"

#include "base/alloc.h"
#include "loop/pool.h"

static void count_up(void *ctx, void *ptr)
{
    (void)ptr;
    (*(unsigned *)ctx)++;
}

static void test_rcu_defer_waits_for_the_section_that_may_have_seen(void **state)
{
    (void)state;
    sl_rcu *rcu = sl_rcu_new();
    sl_rcu_reader *early = sl_rcu_register(rcu);
    sl_rcu_reader *late = sl_rcu_register(rcu);
    unsigned ran = 0, filler = 0;
    sl_rcu_read_lock(early);
    sl_rcu_defer(rcu, count_up, &ran, NULL);
    for (int i = 0; i < 500; i++)
        sl_rcu_defer(rcu, count_up, &filler, NULL);
    assert_int_equal(ran, 0);
    /* One that begins afterwards does not hold it. */
    sl_rcu_read_lock(late);
    sl_rcu_read_unlock(early);
    for (int i = 0; i < 200; i++)
        sl_rcu_defer(rcu, count_up, &filler, NULL);
    assert_int_equal(ran, 1);
    sl_rcu_read_unlock(late);
    sl_rcu_barrier(rcu);
    assert_int_equal(filler, 700);
    assert_int_equal(sl_rcu_count(rcu).deferred, 0);
    assert_int_equal(sl_rcu_count(rcu).reclaims, 701);
    sl_rcu_unregister(&early);
    assert_null(early);
    sl_rcu_unregister(&late);
    assert_int_equal(sl_rcu_count(rcu).readers, 0);
    sl_rcu_free(&rcu);
}

static void test_rcu_free_runs_what_is_deferred(void **state)
{
    (void)state;
    sl_rcu *rcu = sl_rcu_new();
    unsigned ran = 0;
    sl_rcu_defer(rcu, count_up, &ran, NULL);
    sl_rcu_free(&rcu);
    assert_int_equal(ran, 1);
    assert_null(rcu);
}

typedef struct holder {
    sl_rcu *rcu;
    _Atomic bool inside;
    _Atomic bool left;
} holder;

static void hold_until_a_writer_waits(void *arg)
{
    holder *ho = arg;
    sl_rcu_reader *rd = sl_rcu_register(ho->rcu);
    sl_rcu_read_lock(rd);
    atomic_store(&ho->inside, true);
    while (sl_rcu_count(ho->rcu).waits == 0)
        continue;
    atomic_store(&ho->left, true);
    sl_rcu_read_unlock(rd);
    sl_rcu_unregister(&rd);
}

static void test_rcu_defer_at_the_bound_waits_for_readers(void **state)
{
    (void)state;
    sl_rcu *rcu = sl_rcu_new();
    holder ho = {.rcu = rcu};
    sl_thread *th;
    SL_TEST_OK(sl_thread_start("holder", hold_until_a_writer_waits, &ho, &th));
    while (!atomic_load(&ho.inside))
        continue;
    unsigned ran = 0;
    for (unsigned i = 0; i < SL_RCU_MAX_DEFERRED; i++)
        sl_rcu_defer(rcu, count_up, &ran, NULL);
    assert_int_equal(ran, 0);
    assert_int_equal(sl_rcu_count(rcu).deferred, SL_RCU_MAX_DEFERRED);
    sl_rcu_defer(rcu, count_up, &ran, NULL);
    assert_true(atomic_load(&ho.left));
    assert_true(ran > 0);
    assert_int_equal(sl_rcu_count(rcu).waits, 1);
    sl_thread_join(&th);
    sl_rcu_free(&rcu);
    assert_int_equal(ran, SL_RCU_MAX_DEFERRED + 1);
}

static void hold_until_a_grace_period_begins(void *arg)
{
    holder *ho = arg;
    sl_rcu_reader *rd = sl_rcu_register(ho->rcu);
    sl_rcu_read_lock(rd);
    uint64_t epoch = atomic_load(rd->_epoch);
    atomic_store(&ho->inside, true);
    while (atomic_load(rd->_epoch) == epoch)
        continue;
    for (int i = 0; i < 2000; i++)
        sched_yield(); /* time for a writer that does not wait to be caught */
    atomic_store(&ho->left, true);
    sl_rcu_read_unlock(rd);
    sl_rcu_unregister(&rd);
}

static void test_rcu_synchronize_waits_for_sections_that_have_begun(void **state)
{
    (void)state;
    sl_rcu *rcu = sl_rcu_new();
    holder ho = {.rcu = rcu};
    sl_thread *th;
    SL_TEST_OK(sl_thread_start("holder", hold_until_a_grace_period_begins, &ho, &th));
    while (!atomic_load(&ho.inside))
        continue;
    sl_rcu_synchronize(rcu);
    assert_true(atomic_load(&ho.left));
    sl_thread_join(&th);
    sl_rcu_free(&rcu);
}

/* Readers look at a value that its writer poisons when it frees it. */
typedef struct box {
    int value;
} box;
typedef struct shared {
    sl_rcu *rcu;
    box *_Atomic current;
    _Atomic bool stop;
    _Atomic unsigned bad;
    _Atomic unsigned reads;
} shared;

static void poison(void *ctx, void *ptr)
{
    (void)ctx;
    ((box *)ptr)->value = -1;
    sl_free(ptr);
}

static void read_box(void *arg)
{
    shared *sh = arg;
    sl_rcu_reader *rd = sl_rcu_register(sh->rcu);
    while (!atomic_load(&sh->stop)) {
        sl_rcu_read_lock(rd);
        const box *bx = atomic_load_explicit(&sh->current, memory_order_seq_cst);
        if (bx->value != 7)
            atomic_fetch_add(&sh->bad, 1);
        sl_rcu_read_unlock(rd);
        atomic_fetch_add(&sh->reads, 1);
    }
    sl_rcu_unregister(&rd);
}

static void test_rcu_readers_never_see_what_was_freed(void **state)
{
    (void)state;
    shared sh = {.rcu = sl_rcu_new()};
    box *first = sl_alloc(sizeof(*first));
    first->value = 7;
    atomic_store(&sh.current, first);
    sl_thread *readers[3];
    for (int i = 0; i < 3; i++)
        SL_TEST_OK(sl_thread_start("reader", read_box, &sh, &readers[i]));
    for (unsigned i = 0; i < 20000 || atomic_load(&sh.reads) < 1000; i++) {
        box *next = sl_alloc(sizeof(*next));
        next->value = 7;
        box *old = atomic_exchange_explicit(&sh.current, next, memory_order_seq_cst);
        if (i % 1000 == 0) {
            sl_rcu_synchronize(sh.rcu);
            poison(NULL, old);
        } else {
            sl_rcu_defer(sh.rcu, poison, NULL, old);
        }
    }
    atomic_store(&sh.stop, true);
    for (int i = 0; i < 3; i++)
        sl_thread_join(&readers[i]);
    assert_int_equal(atomic_load(&sh.bad), 0);
    poison(NULL, atomic_load(&sh.current));
    sl_rcu_free(&sh.rcu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rcu_defer_waits_for_the_section_that_may_have_seen),
        cmocka_unit_test(test_rcu_free_runs_what_is_deferred),
        cmocka_unit_test(test_rcu_defer_at_the_bound_waits_for_readers),
        cmocka_unit_test(test_rcu_synchronize_waits_for_sections_that_have_begun),
        cmocka_unit_test(test_rcu_readers_never_see_what_was_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
