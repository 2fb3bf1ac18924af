/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of loop/timer on a fake clock: order, restart, repeat, and a random model.
 */
#include "sl_test.h"

#include <string.h>

#include "../base/random.h"
#include "base/alloc.h"
#include "loop/loop.h"

typedef struct fixture {
    sl_clock ck;
    sl_loop *lp;
    char log[256]; /* one letter for each timer that ran */
} fixture;

typedef struct letter {
    fixture *fx;
    char name;
    sl_timer tm;
} letter;

static int set_up(void **state)
{
    fixture *fx = sl_calloc(1, sizeof(*fx));
    sl_clock_init_fake(&fx->ck, 1000, 0);
    SL_TEST_OK(sl_loop_new_manual("test", &fx->ck, &fx->lp));
    *state = fx;
    return 0;
}

static int tear_down(void **state)
{
    fixture *fx = *state;
    sl_loop_free(&fx->lp);
    assert_null(fx->lp);
    sl_free(fx);
    return 0;
}

static void note(void *arg)
{
    letter *le = arg;
    size_t len = strlen(le->fx->log);
    assert_true(len + 1 < sizeof(le->fx->log));
    le->fx->log[len] = le->name;
}

static letter letter_of(fixture *fx, char name)
{
    return (letter){.fx = fx, .name = name};
}

static void test_timers_run_by_time_then_by_start(void **state)
{
    fixture *fx = *state;
    letter le[4];
    static const sl_dur_ms delay[] = {30, 10, 20, 10};
    for (int i = 0; i < 4; i++) {
        le[i] = letter_of(fx, (char)('a' + i));
        sl_timer_init(&le[i].tm, fx->lp, note, &le[i]);
        sl_timer_start(&le[i].tm, delay[i], 0);
    }
    assert_false(sl_loop_turn(fx->lp));
    sl_clock_advance(&fx->ck, 9);
    assert_false(sl_loop_turn(fx->lp));
    assert_string_equal(fx->log, "");
    sl_clock_advance(&fx->ck, 1);
    assert_true(sl_loop_turn(fx->lp));
    assert_string_equal(fx->log, "bd");
    sl_clock_advance(&fx->ck, 100);
    assert_true(sl_loop_turn(fx->lp));
    assert_string_equal(fx->log, "bdca");
    assert_false(sl_loop_turn(fx->lp));
    for (int i = 0; i < 4; i++)
        sl_timer_fini(&le[i].tm);
}

static void test_timer_restart_moves_it(void **state)
{
    fixture *fx = *state;
    letter le = letter_of(fx, 'x');
    sl_timer_init(&le.tm, fx->lp, note, &le);
    sl_timer_start(&le.tm, 10, 0);
    sl_clock_advance(&fx->ck, 5);
    sl_timer_start(&le.tm, 10, 0);
    sl_clock_advance(&fx->ck, 9);
    sl_loop_turn(fx->lp);
    assert_string_equal(fx->log, "");
    sl_clock_advance(&fx->ck, 1);
    sl_loop_turn(fx->lp);
    assert_string_equal(fx->log, "x");
    sl_timer_start(&le.tm, 1000, 0);
    sl_timer_start(&le.tm, 1, 0); // earlier than before
    sl_clock_advance(&fx->ck, 1);
    sl_loop_turn(fx->lp);
    assert_string_equal(fx->log, "xx");
    sl_timer_start(&le.tm, 1, 0);
    sl_timer_stop(&le.tm);
    sl_timer_stop(&le.tm);
    sl_clock_advance(&fx->ck, 10);
    sl_loop_turn(fx->lp);
    assert_string_equal(fx->log, "xx");
    sl_timer_fini(&le.tm);
}

static void test_timer_repeats_once_a_turn_without_drift(void **state)
{
    fixture *fx = *state;
    letter le = letter_of(fx, 'r');
    sl_timer_init(&le.tm, fx->lp, note, &le);
    sl_timer_start(&le.tm, 10, 10);
    for (int i = 0; i < 3; i++) {
        sl_clock_advance(&fx->ck, i == 1 ? 12 : 10); // the second turn is late
        sl_loop_turn(fx->lp);
    }
    assert_string_equal(fx->log, "rrr"); // at 10, 22 (for 20), 32 (for 30)
    sl_clock_advance(&fx->ck, 8);        // 40, not 42
    sl_loop_turn(fx->lp);
    assert_string_equal(fx->log, "rrrr");
    sl_clock_advance(&fx->ck, 95); // nine times have passed
    sl_loop_turn(fx->lp);
    sl_loop_turn(fx->lp);
    assert_string_equal(fx->log, "rrrrr");
    sl_timer_fini(&le.tm);
    sl_clock_advance(&fx->ck, 100);
    assert_false(sl_loop_turn(fx->lp));
}

static void start_again(void *arg)
{
    letter *le = arg;
    note(arg);
    sl_timer_start(&le->tm, 0, 0);
}

static void test_timer_of_zero_runs_in_the_next_turn(void **state)
{
    fixture *fx = *state;
    letter le = letter_of(fx, 'z');
    sl_timer_init(&le.tm, fx->lp, start_again, &le);
    sl_timer_start(&le.tm, 0, 0);
    for (int turns = 1; turns <= 3; turns++) {
        assert_true(sl_loop_turn(fx->lp));
        assert_int_equal(strlen(fx->log), turns);
    }
    sl_timer_start(&le.tm, -5, 0); // the past is now
    assert_true(sl_loop_turn(fx->lp));
    assert_string_equal(fx->log, "zzzz");
    sl_timer_fini(&le.tm);
}

static void free_itself(void *arg)
{
    letter *le = arg;
    note(arg);
    sl_timer_fini(&le->tm);
    sl_free(le);
}

static void test_timer_may_end_and_free_itself(void **state)
{
    fixture *fx = *state;
    for (sl_dur_ms repeat = 0; repeat < 2; repeat++) {
        letter *le = sl_alloc(sizeof(*le));
        *le = letter_of(fx, 'f');
        sl_timer_init(&le->tm, fx->lp, free_itself, le);
        sl_timer_start(&le->tm, 5, repeat);
    }
    sl_clock_advance(&fx->ck, 5);
    sl_loop_turn(fx->lp);
    assert_string_equal(fx->log, "ff");
}

typedef struct pair {
    fixture *fx;
    sl_timer first, second;
} pair;

static void stop_second(void *arg)
{
    pair *pr = arg;
    pr->fx->log[strlen(pr->fx->log)] = '1';
    sl_timer_stop(&pr->second);
}

static void note_second(void *arg)
{
    pair *pr = arg;
    pr->fx->log[strlen(pr->fx->log)] = '2';
}

static void test_timer_stopped_by_another_of_the_same_turn_does_not_run(void **state)
{
    fixture *fx = *state;
    pair pr = {.fx = fx};
    sl_timer_init(&pr.first, fx->lp, stop_second, &pr);
    sl_timer_init(&pr.second, fx->lp, note_second, &pr);
    sl_timer_start(&pr.first, 1, 0);
    sl_timer_start(&pr.second, 1, 0);
    sl_clock_advance(&fx->ck, 1);
    sl_loop_turn(fx->lp);
    sl_loop_turn(fx->lp);
    assert_string_equal(fx->log, "1");
}

static void test_timer_may_outlive_its_loop(void **state)
{
    fixture *fx = *state;
    letter le = letter_of(fx, 'o');
    sl_loop *lp;
    SL_TEST_OK(sl_loop_new_manual("other", &fx->ck, &lp));
    sl_timer_init(&le.tm, lp, note, &le);
    sl_timer_start(&le.tm, 5, 0);
    sl_loop_free(&lp);
    sl_timer_fini(&le.tm); // idle since the loop is gone
    assert_string_equal(fx->log, "");
}

#define TIMERS 64

typedef struct modelled {
    sl_timer tm;
    const sl_clock *ck;
    sl_mono_ms due; /* -1: idle */
    sl_dur_ms repeat;
    unsigned *ran;
} modelled;

static void check_due(void *arg)
{
    modelled *md = arg;
    sl_mono_ms now = sl_clock_mono(md->ck);
    assert_true(md->due >= 0 && md->due <= now);
    if (md->repeat > 0)
        md->due = md->due + md->repeat > now ? md->due + md->repeat : now + md->repeat;
    else
        md->due = -1;
    (*md->ran)++;
}

static void test_timers_follow_a_model(void **state)
{
    fixture *fx = *state;
    rng rg = {99};
    static modelled md[TIMERS];
    unsigned ran = 0;
    for (int i = 0; i < TIMERS; i++) {
        md[i] = (modelled){.ck = &fx->ck, .due = -1, .ran = &ran};
        sl_timer_init(&md[i].tm, fx->lp, check_due, &md[i]);
    }
    for (int step = 0; step < 20000; step++) {
        modelled *one = &md[rng_below(&rg, TIMERS)];
        switch (rng_below(&rg, 4)) {
        case 0:
            sl_timer_stop(&one->tm);
            one->due = -1;
            break;
        case 1: {
            unsigned expected = 0;
            sl_clock_advance(&fx->ck, rng_below(&rg, 20));
            for (int i = 0; i < TIMERS; i++)
                expected += md[i].due >= 0 && md[i].due <= sl_clock_mono(&fx->ck);
            ran = 0;
            assert_int_equal(sl_loop_turn(fx->lp), expected != 0);
            assert_int_equal(ran, expected);
            break;
        }
        default: {
            sl_dur_ms delay = rng_below(&rg, 60);
            one->repeat = rng_below(&rg, 3) == 0 ? 1 + rng_below(&rg, 30) : 0;
            one->due = sl_clock_mono(&fx->ck) + delay;
            sl_timer_start(&one->tm, delay, one->repeat);
        }
        }
    }
    for (int i = 0; i < TIMERS; i++)
        sl_timer_fini(&md[i].tm);
    sl_clock_advance(&fx->ck, 1000);
    assert_false(sl_loop_turn(fx->lp));
}

int main(void)
{
#define TIMER_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TIMER_TEST(test_timers_run_by_time_then_by_start),
        TIMER_TEST(test_timer_restart_moves_it),
        TIMER_TEST(test_timer_repeats_once_a_turn_without_drift),
        TIMER_TEST(test_timer_of_zero_runs_in_the_next_turn),
        TIMER_TEST(test_timer_may_end_and_free_itself),
        TIMER_TEST(test_timer_stopped_by_another_of_the_same_turn_does_not_run),
        TIMER_TEST(test_timer_may_outlive_its_loop),
        TIMER_TEST(test_timers_follow_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
