/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the client registry: one client per id, references, indexes, routes, the maximum, and
 * gets that race with the last unref.
 */
#include "sl_test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "route/rcu.h"
#include "session/client.h"

static sl_actor_verdict no_items(sl_actor *actor, sl_runner *runner, sl_actor_item *item)
{
    (void)actor;
    (void)runner;
    (void)item;
    return SL_ACTOR_DONE;
}

typedef struct fixture {
    sl_rcu *rcu;
    sl_registry *rg;
} fixture;

static fixture make(uint32_t max)
{
    fixture fx = {.rcu = sl_rcu_new()};
    fx.rg = sl_registry_new(fx.rcu, max, no_items);
    return fx;
}

static void unmake(fixture *fx)
{
    sl_registry_free(&fx->rg);
    sl_rcu_free(&fx->rcu);
}

static void test_registry_gives_one_client_per_id(void **state)
{
    (void)state;
    fixture fx = make(100);
    sl_client *first = NULL, *second = NULL, *other = NULL;
    SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_str("a"), &first));
    SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_str("a"), &second));
    SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_of("a\0b", 3), &other));
    assert_ptr_equal(first, second);
    assert_ptr_not_equal(first, other);
    assert_int_equal(sl_registry_count(fx.rg), 2);
    assert_ptr_equal(sl_registry_at(fx.rg, other->index), other);
    SL_TEST_SLICE(sl_client_id(other), "a\0b");
    sl_client_unref(&first);
    sl_client_unref(&second);
    assert_null(second);
    assert_int_equal(sl_registry_count(fx.rg), 1);
    assert_null(sl_registry_find(fx.rg, sl_slice_str("a")));
    sl_client_unref(&other);
    unmake(&fx);
}

static void test_registry_refuses_more_than_its_maximum(void **state)
{
    (void)state;
    fixture fx = make(2);
    sl_client *a = NULL, *b = NULL, *c = NULL;
    SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_str("a"), &a));
    SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_str("b"), &b));
    SL_TEST_ERR(sl_registry_get(fx.rg, sl_slice_str("c"), &c), SL_ELIMIT);
    sl_client_unref(&a);
    SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_str("c"), &c));
    sl_client_unref(&b);
    sl_client_unref(&c);
    unmake(&fx);
}

static void test_registry_uses_an_index_again_only_after_readers_left(void **state)
{
    (void)state;
    fixture fx = make(100);
    sl_rcu_reader *rd = sl_rcu_register(fx.rcu);
    sl_client *a = NULL, *b = NULL;
    SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_str("a"), &a));
    uint32_t index = a->index;
    sl_rcu_read_lock(rd);
    sl_client_unref(&a);
    assert_null(sl_registry_at(fx.rg, index));
    SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_str("b"), &b));
    assert_int_not_equal(b->index, index);
    sl_rcu_read_unlock(rd);
    sl_client_unref(&b);
    sl_rcu_barrier(fx.rcu);
    sl_rcu_unregister(&rd);
    unmake(&fx);
}

static void test_client_route_keeps_all_its_fields(void **state)
{
    (void)state;
    fixture fx = make(10);
    sl_client *cl = NULL;
    SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_str("a"), &cl));
    assert_false(sl_client_route(cl).connected);
    const sl_route want = {
        .slot = 0xFFFFFF, .gen = 0xABCDEF, .loop = 63, .connected = true, .persistent = true};
    sl_client_set_route(cl, want);
    sl_route got = sl_client_route(cl);
    assert_int_equal(got.slot, want.slot);
    assert_int_equal(got.gen, want.gen);
    assert_int_equal(got.loop, want.loop);
    assert_true(got.connected && got.persistent);
    sl_client_unref(&cl);
    unmake(&fx);
}

static void count_one(void *arg, sl_client *cl)
{
    (void)cl;
    ++*(int *)arg;
}

static void test_registry_each_visits_every_client(void **state)
{
    (void)state;
    fixture fx = make(10000);
    enum { N = 5000 };
    sl_client **all = calloc(N, sizeof(*all));
    for (int i = 0; i < N; i++) {
        char id[16];
        snprintf(id, sizeof(id), "c%d", i);
        SL_TEST_OK(sl_registry_get(fx.rg, sl_slice_str(id), &all[i]));
    }
    int seen = 0;
    sl_registry_each(fx.rg, count_one, &seen);
    assert_int_equal(seen, N);
    for (int i = 0; i < N; i++)
        sl_client_unref(&all[i]);
    assert_int_equal(sl_registry_count(fx.rg), 0);
    free(all);
    unmake(&fx);
}

/* ---- several threads ---------------------------------------------------------------------------
 */

static void *get_and_let_go(void *arg)
{
    fixture *fx = arg;
    for (int i = 0; i < 20000; i++) {
        sl_client *cl = NULL;
        char id[8];
        snprintf(id, sizeof(id), "%d", i % 3);
        if (sl_registry_get(fx->rg, sl_slice_str(id), &cl) != SL_OK)
            return (void *)1;
        if (!sl_slice_equal(sl_client_id(cl), sl_slice_str(id)))
            return (void *)2;
        sl_client_unref(&cl);
    }
    return NULL;
}

static void test_registry_get_races_with_the_last_unref(void **state)
{
    (void)state;
    fixture fx = make(1000);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, get_and_let_go, &fx), 0);
    for (int i = 0; i < 4; i++) {
        void *result = NULL;
        pthread_join(threads[i], &result);
        assert_null(result);
    }
    assert_int_equal(sl_registry_count(fx.rg), 0);
    unmake(&fx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_registry_gives_one_client_per_id),
        cmocka_unit_test(test_registry_refuses_more_than_its_maximum),
        cmocka_unit_test(test_registry_uses_an_index_again_only_after_readers_left),
        cmocka_unit_test(test_client_route_keeps_all_its_fields),
        cmocka_unit_test(test_registry_each_visits_every_client),
        cmocka_unit_test(test_registry_get_races_with_the_last_unref),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
