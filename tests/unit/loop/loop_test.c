/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of loop/loop: the order inside a turn, who the loop belongs to, real timers and sockets,
 * and every way to end.
 */
#include "sl_test.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <uv.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "loop/loop.h"

typedef struct fixture {
    sl_clock ck;
    sl_loop *lp;
    char log[128];
    sl_timer tm;
    uv_poll_t poll;
    int fds[2];
    bool closed;
} fixture;

static int set_up(void **state)
{
    fixture *fx = sl_calloc(1, sizeof(*fx));
    sl_clock_init_fake(&fx->ck, 0, 0);
    SL_TEST_OK(sl_loop_new_manual("test", &fx->ck, &fx->lp));
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fx->fds), 0);
    *state = fx;
    return 0;
}

static int tear_down(void **state)
{
    fixture *fx = *state;
    sl_loop_free(&fx->lp);
    close(fx->fds[0]);
    close(fx->fds[1]);
    sl_free(fx);
    return 0;
}

static void note(fixture *fx, char what)
{
    size_t len = strlen(fx->log);
    assert_true(len + 1 < sizeof(fx->log));
    fx->log[len] = what;
}

static void note_call(void *arg)
{
    note(arg, 'c');
}

static void note_timer(void *arg)
{
    note(arg, 't');
}

static void note_end(void *arg)
{
    note(arg, 'e');
}

static void on_readable(uv_poll_t *handle, int status, int events)
{
    fixture *fx = handle->data;
    char byte;
    assert_int_equal(status, 0);
    assert_int_equal(events, UV_READABLE);
    assert_int_equal(read(fx->fds[0], &byte, 1), 1);
    note(fx, 'i');
}

static void watch(fixture *fx)
{
    uv_poll_init(sl_loop_uv(fx->lp), &fx->poll, fx->fds[0]);
    fx->poll.data = fx;
    uv_poll_start(&fx->poll, UV_READABLE, on_readable);
}

static void on_closed(uv_handle_t *handle)
{
    ((fixture *)handle->data)->closed = true;
}

static void unwatch(fixture *fx)
{
    uv_close((uv_handle_t *)&fx->poll, on_closed);
    while (!fx->closed)
        sl_loop_turn(fx->lp);
}

static void test_turn_runs_io_then_timers_then_mail_then_ends(void **state)
{
    fixture *fx = *state;
    watch(fx);
    sl_loop_on_turn_end(fx->lp, note_end, fx);
    sl_timer_init(&fx->tm, fx->lp, note_timer, fx);
    sl_timer_start(&fx->tm, 10, 0);
    assert_true(sl_loop_call(fx->lp, note_call, fx));
    assert_int_equal(write(fx->fds[1], "x", 1), 1);
    sl_clock_advance(&fx->ck, 10);
    assert_int_equal(sl_loop_now(fx->lp), 0); // once per turn
    assert_true(sl_loop_turn(fx->lp));
    assert_int_equal(sl_loop_now(fx->lp), 10);
    assert_string_equal(fx->log, "itce");
    assert_false(sl_loop_turn(fx->lp));
    assert_string_equal(fx->log, "itcee");
    unwatch(fx);
}

static void test_turn_sees_ready_io(void **state)
{
    fixture *fx = *state;
    watch(fx);
    sl_loop_turn(fx->lp);
    assert_false(sl_loop_turn(fx->lp));
    assert_int_equal(write(fx->fds[1], "xy", 2), 2);
    assert_true(sl_loop_turn(fx->lp));
    assert_true(sl_loop_turn(fx->lp));
    assert_string_equal(fx->log, "ii");
    assert_false(sl_loop_turn(fx->lp));
    unwatch(fx);
}

static void call_again(void *arg)
{
    fixture *fx = arg;
    note(fx, 'a');
    assert_true(sl_loop_call(fx->lp, note_call, fx));
}

static void test_letters_posted_by_letters_run_in_the_next_turn(void **state)
{
    fixture *fx = *state;
    sl_loop_on_turn_end(fx->lp, note_end, fx);
    assert_true(sl_loop_call(fx->lp, call_again, fx));
    assert_true(sl_loop_turn(fx->lp));
    assert_string_equal(fx->log, "ae");
    assert_true(sl_loop_turn(fx->lp));
    assert_string_equal(fx->log, "aece");
    assert_false(sl_loop_turn(fx->lp));
}

static void test_loop_knows_its_thread(void **state)
{
    fixture *fx = *state;
    assert_true(sl_loop_is_current(fx->lp)); // whoever made it sets it up
    sl_loop_turn(fx->lp);
    assert_ptr_equal(sl_loop_current(), fx->lp);
    assert_ptr_equal(sl_loop_clock(fx->lp), &fx->ck);
    assert_string_equal(sl_loop_name(fx->lp), "test");
    sl_loop_set_tag(fx->lp, 17);
    assert_int_equal(sl_loop_tag(fx->lp), 17);
    assert_true(sl_loop_call_wait(fx->lp, note_call, fx)); // on the loop itself: at once
    assert_string_equal(fx->log, "c");
}

static void test_free_runs_letters_and_closes_what_is_left(void **state)
{
    fixture *fx = *state;
    watch(fx);
    sl_timer_init(&fx->tm, fx->lp, note_timer, fx);
    sl_timer_start(&fx->tm, 1000, 0);
    assert_true(sl_loop_call(fx->lp, note_call, fx));
    uv_close((uv_handle_t *)&fx->poll, on_closed); // its own close callback still runs
    sl_loop_free(&fx->lp);
    assert_string_equal(fx->log, "c");
    assert_true(fx->closed);
    sl_timer_fini(&fx->tm);
}

static char warning[256];

static void keep_warning(void *arg, const char *line)
{
    (void)arg;
    snprintf(warning, sizeof(warning), "%s", line);
}

static void test_free_warns_of_handles_nobody_closed(void **state)
{
    fixture *fx = *state;
    watch(fx);
    sl_logger_set_sink(keep_warning, NULL);
    sl_loop_free(&fx->lp);
    sl_logger_set_sink(NULL, NULL);
    assert_non_null(strstr(warning, "LOOP-HANDLES-LEFT component=loop loop=test count=1"));
}

static void call_refused(void *arg)
{
    fixture *fx = arg;
    note(fx, 'a');
    assert_false(sl_loop_call(fx->lp, note_call, fx)); // behind the stop
}

static void test_stop_ends_a_manual_loop_in_order(void **state)
{
    fixture *fx = *state;
    assert_true(sl_loop_call(fx->lp, call_refused, fx));
    sl_loop_stop(fx->lp);
    assert_false(sl_loop_call(fx->lp, note_call, fx));
    assert_true(sl_loop_turn(fx->lp));
    assert_string_equal(fx->log, "a");
    assert_false(sl_loop_turn(fx->lp));
    assert_false(sl_loop_call_wait(fx->lp, note_call, fx));
    assert_string_equal(fx->log, "a");
}

static void stop_loop(void *arg)
{
    fixture *fx = arg;
    note(fx, 's');
    sl_loop_stop(fx->lp);
}

static void test_run_ends_by_stop_from_a_letter(void **state)
{
    fixture *fx = *state;
    assert_true(sl_loop_call(fx->lp, stop_loop, fx));
    assert_true(sl_loop_call(fx->lp, note_call, fx)); // posted before the stop
    sl_loop_run(fx->lp);
    assert_string_equal(fx->log, "sc");
}

/* From here on: loops with a thread and the real clock. */
typedef struct threaded {
    sl_clock ck;
    sl_loop *lp;
    sl_timer tm;
    _Atomic int fired;
    sl_mono_ms due;
    bool early;
    bool was_current;
    char name[16];
} threaded;

static void start(threaded *th)
{
    *th = (threaded){.fired = 0};
    sl_clock_init(&th->ck);
    SL_TEST_OK(sl_loop_new("threaded", &th->ck, &th->lp));
    assert_true(sl_loop_is_current(th->lp));
    SL_TEST_OK(sl_loop_start(th->lp));
    assert_false(sl_loop_is_current(th->lp));
}

static void stop(threaded *th)
{
    sl_loop_stop(th->lp);
    sl_loop_join(th->lp);
    assert_true(sl_loop_is_current(th->lp)); // the thread is gone, we clean up
    sl_loop_free(&th->lp);
}

static void look_around(void *arg)
{
    threaded *th = arg;
    th->was_current = sl_loop_is_current(th->lp) && sl_loop_current() == th->lp;
    pthread_getname_np(pthread_self(), th->name, sizeof(th->name));
}

static void test_call_wait_runs_on_the_loops_thread(void **state)
{
    (void)state;
    threaded th;
    start(&th);
    assert_true(sl_loop_call_wait(th.lp, look_around, &th));
    assert_true(th.was_current);
    assert_string_equal(th.name, "threaded");
    assert_null(sl_loop_current());
    sl_loop_stop(th.lp);
    sl_loop_join(th.lp);
    assert_false(sl_loop_call_wait(th.lp, look_around, &th));
    sl_loop_free(&th.lp);
}

static void on_fire(void *arg)
{
    threaded *th = arg;
    th->early = th->early || sl_clock_mono(&th->ck) < th->due;
    int fired = atomic_fetch_add(&th->fired, 1) + 1;
    if (fired < 30) { // delays of both sides of the poll's rounding
        th->due = sl_clock_mono(&th->ck) + fired % 4;
        sl_timer_start(&th->tm, fired % 4, 0);
    }
}

static void start_timer(void *arg)
{
    threaded *th = arg;
    sl_timer_init(&th->tm, th->lp, on_fire, th);
    th->due = sl_clock_mono(&th->ck) + 3;
    sl_timer_start(&th->tm, 3, 0);
}

static void end_timer(void *arg)
{
    sl_timer_fini(&((threaded *)arg)->tm);
}

static void test_timers_of_a_thread_wake_it_and_are_never_early(void **state)
{
    (void)state;
    threaded th;
    start(&th);
    assert_true(sl_loop_call_wait(th.lp, start_timer, &th));
    while (atomic_load(&th.fired) < 30) // without a wake-up this would hang
        sched_yield();
    assert_true(sl_loop_call_wait(th.lp, end_timer, &th));
    stop(&th);
    assert_false(th.early);
}

static void test_loop_never_started_is_freed(void **state)
{
    (void)state;
    fixture fx = {.log = ""};
    sl_clock_init(&fx.ck);
    SL_TEST_OK(sl_loop_new("idle", &fx.ck, &fx.lp));
    assert_true(sl_loop_call(fx.lp, note_call, &fx));
    sl_loop_free(&fx.lp);
    assert_string_equal(fx.log, "c");
    sl_loop_free(&fx.lp);
}

int main(void)
{
#define LOOP_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LOOP_TEST(test_turn_runs_io_then_timers_then_mail_then_ends),
        LOOP_TEST(test_turn_sees_ready_io),
        LOOP_TEST(test_letters_posted_by_letters_run_in_the_next_turn),
        LOOP_TEST(test_loop_knows_its_thread),
        LOOP_TEST(test_free_runs_letters_and_closes_what_is_left),
        LOOP_TEST(test_free_warns_of_handles_nobody_closed),
        LOOP_TEST(test_stop_ends_a_manual_loop_in_order),
        LOOP_TEST(test_run_ends_by_stop_from_a_letter),
        cmocka_unit_test(test_call_wait_runs_on_the_loops_thread),
        cmocka_unit_test(test_timers_of_a_thread_wake_it_and_are_never_early),
        cmocka_unit_test(test_loop_never_started_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
