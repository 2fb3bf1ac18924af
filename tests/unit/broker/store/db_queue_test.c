/* SPDX-License-Identifier: Apache-2.0
 *
 * db_queue: the queue of the metadata port, with the test in the place of an adapter: rounds of
 * askers, one write of an asker at a time, requests put back, given up, closed; and threads.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "loop/thread.h"
#include "sl_test.h"
#include "store/db_int.h"

#define LOOPS   3
#define THREADS 4
#define EACH    2000

static sl_db *the_db; /* of the adapter that takes nothing by itself */

static sl_err idle_open(sl_db *db, void **self, char **why)
{
    (void)why;
    the_db = db;
    db->queue.mixed_takers = true;
    *self = NULL;
    return SL_OK;
}

static void idle_close(void *self)
{
    (void)self;
}

static const sl_db_ops IDLE = {.name = "idle", .open = idle_open, .close = idle_close};

typedef struct fixture {
    sl_clock ck;
    sl_loop *loops[LOOPS];
    sl_db *db;
    sl_err last[64]; /* by number of the request */
    unsigned called[64];
} fixture;

typedef struct ticket {
    fixture *fx;
    unsigned number;
} ticket;

static void on_done(void *arg, const sl_db_done *done)
{
    ticket *tk = arg;
    tk->fx->last[tk->number] = done->err;
    tk->fx->called[tk->number]++;
    sl_free(tk);
}

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof(*fx));
    sl_clock_init(&fx->ck);
    for (int i = 0; i < LOOPS; i++)
        SL_TEST_OK(sl_loop_new_manual("hand", &fx->ck, &fx->loops[i]));
    char *why = NULL;
    sl_db_options op = {.max_queued = 8, .wait_ms = 3600000};
    SL_TEST_OK(sl_db_open(&IDLE, &op, &fx->db, &why));
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    sl_db_close(&fx->db);
    for (int i = 0; i < LOOPS; i++)
        sl_loop_free(&fx->loops[i]);
    sl_free(fx);
    return 0;
}

static sl_err ask(fixture *fx, int loop, unsigned number, unsigned flags)
{
    ticket *tk = sl_alloc(sizeof(*tk));
    *tk = (ticket){.fx = fx, .number = number};
    const sl_db_value id[] = {SL_DB_P_INT(number)};
    sl_err err = sl_db_exec(fx->db, fx->loops[loop], &(sl_db_stmt){"SELECT $1", id, 1}, 1, flags,
                            on_done, tk);
    if (err != SL_OK)
        sl_free(tk);
    return err;
}

static int64_t number_of(const db_request *rq)
{
    return rq->stmts[0].params[0].num;
}

static db_request *take(fixture *fx, unsigned what, bool one_per_asker)
{
    bool closed;
    return db_queue_take(fx->db, what, one_per_asker, 0, &closed);
}

static void finish(fixture *fx, db_request *rq)
{
    db_asker *as = rq->asker;
    db_request_reset(fx->db, rq);
    db_request_complete(fx->db, rq);
    db_queue_release(&fx->db->queue, as);
}

static void turn(fixture *fx)
{
    for (int i = 0; i < LOOPS; i++) {
        while (sl_loop_turn(fx->loops[i]))
            ;
    }
}

static void test_queue_takes_askers_in_turn(void **state)
{
    fixture *fx = *state;
    for (unsigned i = 0; i < 3; i++)
        SL_TEST_OK(ask(fx, 0, i, 0));
    SL_TEST_OK(ask(fx, 1, 10, 0));
    SL_TEST_OK(ask(fx, 2, 20, 0));
    static const int64_t WANT[] = {0, 10, 20, 1, 2};
    for (size_t i = 0; i < 5; i++) {
        db_request *rq = take(fx, DB_TAKE_WRITES, false);
        assert_non_null(rq);
        assert_int_equal(number_of(rq), WANT[i]);
        finish(fx, rq);
    }
    assert_null(take(fx, DB_TAKE_WRITES, false));
    turn(fx);
    assert_int_equal(fx->called[2], 1);
}

static void test_queue_holds_the_next_write_of_a_busy_asker(void **state)
{
    fixture *fx = *state;
    SL_TEST_OK(ask(fx, 0, 0, 0));
    SL_TEST_OK(ask(fx, 0, 1, 0));
    SL_TEST_OK(ask(fx, 0, 2, SL_DB_READ));
    SL_TEST_OK(ask(fx, 1, 3, 0));
    db_request *first = take(fx, DB_TAKE_WRITES, true);
    assert_int_equal(number_of(first), 0);
    db_request *other = take(fx, DB_TAKE_WRITES, true);
    assert_int_equal(number_of(other), 3);
    assert_null(take(fx, DB_TAKE_WRITES, true));
    db_request *read = take(fx, DB_TAKE_READS | DB_TAKE_WRITES, true);
    assert_int_equal(number_of(read), 2); // reads are not held
    finish(fx, read);
    finish(fx, first);
    db_request *second = take(fx, DB_TAKE_WRITES, true);
    assert_int_equal(number_of(second), 1);
    finish(fx, second);
    finish(fx, other);
}

static void test_queue_gives_a_returned_request_again_first(void **state)
{
    fixture *fx = *state;
    SL_TEST_OK(ask(fx, 0, 0, 0));
    SL_TEST_OK(ask(fx, 0, 1, 0));
    for (int i = 0; i < 3; i++) {
        db_request *rq = take(fx, DB_TAKE_WRITES, true);
        assert_int_equal(number_of(rq), 0);
        assert_true(db_queue_put_back(&fx->db->queue, rq));
    }
    db_request *rq = take(fx, DB_TAKE_WRITES, true);
    finish(fx, rq);
    rq = take(fx, DB_TAKE_WRITES, true);
    assert_int_equal(number_of(rq), 1);
    finish(fx, rq);
}

static void test_queue_refuses_over_its_bound(void **state)
{
    fixture *fx = *state;
    for (unsigned i = 0; i < 8; i++)
        SL_TEST_OK(ask(fx, (int)i % LOOPS, i, i % 2 == 0 ? 0 : SL_DB_READ));
    SL_TEST_ERR(ask(fx, 0, 8, 0), SL_ELIMIT);
    assert_int_equal(sl_db_stat(fx->db, SL_DB_STAT_REFUSED), 1);
    assert_int_equal(sl_db_stat(fx->db, SL_DB_STAT_QUEUED), 8);
    finish(fx, take(fx, DB_TAKE_READS, false));
    SL_TEST_OK(ask(fx, 0, 8, 0));
}

static void test_queue_paused_gives_out_nothing(void **state)
{
    fixture *fx = *state;
    SL_TEST_OK(ask(fx, 0, 0, 0));
    db_queue_pause(&fx->db->queue, true);
    assert_null(take(fx, DB_TAKE_WRITES, true));
    db_queue_pause(&fx->db->queue, false);
    finish(fx, take(fx, DB_TAKE_WRITES, true));
}

static void test_queue_gives_up_what_waited_too_long(void **state)
{
    fixture *fx = *state;
    the_db->options.wait_ms = -1; // over at once
    SL_TEST_OK(ask(fx, 0, 0, 0));
    SL_TEST_OK(ask(fx, 1, 1, SL_DB_READ));
    the_db->options.wait_ms = 3600000;
    SL_TEST_OK(ask(fx, 0, 2, 0));
    db_queue_pause(&fx->db->queue, true); // also while the database is away
    db_queue_expire(fx->db);
    turn(fx);
    SL_TEST_ERR(fx->last[0], SL_EAGAIN);
    SL_TEST_ERR(fx->last[1], SL_EAGAIN);
    assert_int_equal(fx->called[0] + fx->called[1], 2);
    assert_int_equal(fx->called[2], 0);
    assert_int_equal(sl_db_stat(fx->db, SL_DB_STAT_EXPIRED), 2);
    db_queue_pause(&fx->db->queue, false);
    db_request *rq = take(fx, DB_TAKE_WRITES, true);
    assert_int_equal(number_of(rq), 2);
    finish(fx, rq);
}

static void test_queue_close_completes_what_waits(void **state)
{
    fixture *fx = *state;
    SL_TEST_OK(ask(fx, 0, 0, 0));
    SL_TEST_OK(ask(fx, 0, 1, 0));
    SL_TEST_OK(ask(fx, 1, 2, SL_DB_READ));
    db_request *taken = take(fx, DB_TAKE_WRITES, true);
    db_queue_close(fx->db);
    SL_TEST_ERR(ask(fx, 0, 3, 0), SL_ECLOSED);
    assert_false(db_queue_put_back(&fx->db->queue, taken));
    finish(fx, taken);
    turn(fx);
    SL_TEST_ERR(fx->last[0], SL_OK);
    SL_TEST_ERR(fx->last[1], SL_ECLOSED);
    SL_TEST_ERR(fx->last[2], SL_ECLOSED);
    for (int i = 0; i < 3; i++)
        assert_int_equal(fx->called[i], 1);
}

/* ---- threads */

typedef struct shared {
    sl_db *db;
    sl_loop *lp;
    _Atomic unsigned home;
    _Atomic bool disorder;
} shared;

static void on_home(void *arg, const sl_db_done *done)
{
    shared *sh = arg;
    if (done->err != SL_OK)
        atomic_store(&sh->disorder, true);
    atomic_fetch_add(&sh->home, 1);
}

static void work(void *arg)
{
    sl_db *db = arg;
    bool closed = false;
    unsigned turns = 0;
    while (!closed) {
        db_request *rq = db_queue_take(db, DB_TAKE_READS | DB_TAKE_WRITES, true, 10, &closed);
        if (rq == NULL)
            continue;
        if (++turns % 7 == 0 && db_queue_put_back(&db->queue, rq))
            continue;
        db_asker *as = rq->asker;
        db_request_reset(db, rq);
        db_request_complete(db, rq);
        db_queue_release(&db->queue, as);
    }
}

static void ask_each(void *arg)
{
    shared *sh = arg;
    for (unsigned i = 0; i < EACH; i++) {
        while (sl_db_exec(sh->db, sh->lp, &(sl_db_stmt){.sql = "SELECT 1"}, 1,
                          i % 3 == 0 ? SL_DB_READ : 0, on_home, sh) != SL_OK)
            usleep(50); // the bound is met, as it should be
    }
}

static void test_queue_serves_threads(void **state)
{
    fixture *fx = *state;
    shared sh[2] = {{.db = fx->db}, {.db = fx->db}};
    sl_thread *workers[THREADS], *askers[2];
    for (int i = 0; i < 2; i++) {
        SL_TEST_OK(sl_loop_new("asker", &fx->ck, &sh[i].lp));
        SL_TEST_OK(sl_loop_start(sh[i].lp));
        SL_TEST_OK(sl_thread_start("asks", ask_each, &sh[i], &askers[i]));
    }
    for (int i = 0; i < THREADS; i++)
        SL_TEST_OK(sl_thread_start("works", work, fx->db, &workers[i]));
    for (int i = 0; i < 2; i++)
        sl_thread_join(&askers[i]);
    while (sh[0].home + sh[1].home < 2 * EACH)
        usleep(100);
    db_queue_close(fx->db);
    for (int i = 0; i < THREADS; i++)
        sl_thread_join(&workers[i]);
    for (int i = 0; i < 2; i++) {
        sl_loop_stop(sh[i].lp);
        sl_loop_join(sh[i].lp);
        sl_loop_free(&sh[i].lp);
        assert_int_equal(sh[i].home, EACH);
        assert_false(sh[i].disorder);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(test_queue_takes_askers_in_turn),
        CASE(test_queue_holds_the_next_write_of_a_busy_asker),
        CASE(test_queue_gives_a_returned_request_again_first),
        CASE(test_queue_refuses_over_its_bound),
        CASE(test_queue_paused_gives_out_nothing),
        CASE(test_queue_gives_up_what_waited_too_long),
        CASE(test_queue_close_completes_what_waits),
        CASE(test_queue_serves_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
