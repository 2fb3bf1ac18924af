/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of loop/pool: where work and completion run, the bound, and the end.
 */
#include "sl_test.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "base/alloc.h"
#include "loop/pool.h"

typedef struct fixture {
    sl_clock ck;
    sl_loop *lp; /* turned by the test */
    sl_pool *pool;
    sem_t entered, gate;
    pthread_t test_thread;
    _Atomic int worked;
    int done;
} fixture;

static void make(fixture *fx, unsigned threads, size_t max_queued)
{
    sl_clock_init_fake(&fx->ck, 0, 0);
    SL_TEST_OK(sl_loop_new_manual("test", &fx->ck, &fx->lp));
    SL_TEST_OK(sl_pool_new(threads, max_queued, &fx->pool));
    sem_init(&fx->entered, 0, 0);
    sem_init(&fx->gate, 0, 0);
    fx->test_thread = pthread_self();
    fx->done = 0;
    atomic_init(&fx->worked, 0);
}

static void unmake(fixture *fx)
{
    sl_pool_free(&fx->pool);
    assert_null(fx->pool);
    sl_loop_free(&fx->lp);
    sem_destroy(&fx->entered);
    sem_destroy(&fx->gate);
}

static void work(void *arg)
{
    fixture *fx = arg;
    assert_false(pthread_equal(pthread_self(), fx->test_thread));
    atomic_fetch_add(&fx->worked, 1);
}

static void wait_at_gate(void *arg)
{
    fixture *fx = arg;
    sem_post(&fx->entered);
    sem_wait(&fx->gate);
    work(arg);
}

static void done(void *arg)
{
    fixture *fx = arg;
    assert_true(pthread_equal(pthread_self(), fx->test_thread));
    fx->done++;
}

static void test_pool_completes_on_the_loop(void **state)
{
    (void)state;
    fixture fx;
    make(&fx, 2, 1000);
    for (int i = 0; i < 500; i++)
        SL_TEST_OK(sl_pool_run(fx.pool, fx.lp, work, done, &fx));
    while (fx.done < 500)
        if (!sl_loop_turn(fx.lp))
            sched_yield();
    assert_int_equal(atomic_load(&fx.worked), 500);
    assert_int_equal(sl_pool_refused(fx.pool), 0);
    unmake(&fx);
    assert_int_equal(fx.done, 500);
}

static void test_pool_refuses_at_its_bound_and_counts(void **state)
{
    (void)state;
    fixture fx;
    make(&fx, 1, 2);
    SL_TEST_OK(sl_pool_run(fx.pool, fx.lp, wait_at_gate, done, &fx));
    sem_wait(&fx.entered); // the thread is busy, the queue is empty
    assert_int_equal(sl_pool_queued(fx.pool), 0);
    SL_TEST_OK(sl_pool_run(fx.pool, fx.lp, work, done, &fx));
    SL_TEST_OK(sl_pool_run(fx.pool, fx.lp, work, done, &fx));
    assert_int_equal(sl_pool_queued(fx.pool), 2);
    SL_TEST_ERR(sl_pool_run(fx.pool, fx.lp, work, done, &fx), SL_ELIMIT);
    SL_TEST_ERR(sl_pool_run(fx.pool, fx.lp, work, done, &fx), SL_ELIMIT);
    assert_int_equal(sl_pool_refused(fx.pool), 2);
    sem_post(&fx.gate);
    while (fx.done < 3)
        if (!sl_loop_turn(fx.lp))
            sched_yield();
    SL_TEST_OK(sl_pool_run(fx.pool, fx.lp, work, done, &fx));
    unmake(&fx);
    assert_int_equal(atomic_load(&fx.worked), 4);
    assert_int_equal(fx.done, 4);
}

static void test_pool_free_finishes_what_is_queued(void **state)
{
    (void)state;
    fixture fx;
    make(&fx, 3, 100);
    for (int i = 0; i < 50; i++)
        SL_TEST_OK(sl_pool_run(fx.pool, i % 2 == 0 ? fx.lp : NULL, work, done, &fx));
    unmake(&fx); // frees the loop too, which runs the letters that came
    assert_int_equal(atomic_load(&fx.worked), 50);
    assert_int_equal(fx.done, 25);
}

static void test_pool_work_for_a_stopped_loop_runs_without_completion(void **state)
{
    (void)state;
    fixture fx;
    make(&fx, 1, 10);
    sl_loop_stop(fx.lp);
    SL_TEST_OK(sl_pool_run(fx.pool, fx.lp, work, done, &fx));
    unmake(&fx);
    assert_int_equal(atomic_load(&fx.worked), 1);
    assert_int_equal(fx.done, 0);
}

typedef struct asker {
    fixture *fx;
    unsigned taken;
} asker;

static void *ask_often(void *arg)
{
    asker *as = arg;
    for (int i = 0; i < 2000; i++)
        as->taken += sl_pool_run(as->fx->pool, as->fx->lp, work, done, as->fx) == SL_OK;
    return NULL;
}

static void test_pool_serves_many_askers(void **state)
{
    (void)state;
    fixture fx;
    make(&fx, 3, 50);
    asker askers[3];
    pthread_t threads[3];
    for (int i = 0; i < 3; i++) {
        askers[i] = (asker){.fx = &fx};
        assert_int_equal(pthread_create(&threads[i], NULL, ask_often, &askers[i]), 0);
    }
    unsigned taken = 0;
    for (int i = 0; i < 3; i++) {
        pthread_join(threads[i], NULL);
        taken += askers[i].taken;
    }
    assert_int_equal(taken + sl_pool_refused(fx.pool), 6000);
    unmake(&fx);
    assert_int_equal(fx.done, taken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool_completes_on_the_loop),
        cmocka_unit_test(test_pool_refuses_at_its_bound_and_counts),
        cmocka_unit_test(test_pool_free_finishes_what_is_queued),
        cmocka_unit_test(test_pool_work_for_a_stopped_loop_runs_without_completion),
        cmocka_unit_test(test_pool_serves_many_askers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
