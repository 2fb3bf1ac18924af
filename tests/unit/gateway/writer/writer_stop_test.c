/* SPDX-License-Identifier: Apache-2.0
 *
 * Stop of the writer, by hand and with its threads: drained, dead-lettered or left to the broker.
 */
#include "sl_test.h"

#include <stdio.h>

#include "base/alloc.h"
#include "loop/pool.h"
#include "writer_rig.h"

static void test_writer_stop_writes_what_is_left(void **state)
{
    rig *rg = *state;
    rig_start(rg);
    for (int i = 0; i < 500; i++)
        rig_send(rg, "a", "x");
    sl_writer_stop(rg->w);
    assert_int_equal(rig_taken(rg), 500);
    assert_int_equal(rg->fake->doc_count, 500);
    assert_int_equal(peer_count_lines(rg->dead_path), 0);
}

static void test_writer_stop_dead_letters_what_the_store_did_not_take(void **state)
{
    rig *rg = *state;
    rg->cf.capacity = 600;
    fake_sink_rule(rg->fake, (fake_rule){.from = 1, .outcome = SL_SINK_AWAY});
    rig_start(rg);
    for (int i = 0; i < 1300; i++) // buffered and waiting ones, several groups
        rig_send(rg, "a", "x");
    sl_writer_stop(rg->w);
    assert_int_equal(rig_taken(rg), 1300);
    assert_int_equal(rig_dead_lines(rg, "\"reason\":\"stopped: "), 1300);
}

static void test_writer_takes_nothing_after_stop(void **state)
{
    rig *rg = *state;
    rig_start(rg);
    sl_writer_stop(rg->w);
    size_t late = rig_send(rg, "a", "x");
    assert_false(rig_is_taken(rg, late));
    assert_int_equal(rg->fake->doc_count, 0);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_SIZE), 0);
}

static void check_stop_misconfigured(rig *rg, bool redelivers)
{
    rg->cf.redelivers = redelivers;
    fake_sink_rule(rg->fake, (fake_rule){.from = 1, .outcome = SL_SINK_CONFIG});
    rig_start(rg);
    peer_message pm = {.topic = "a", .payload = "zero", .len = 4, .qos = 0};
    size_t zero = rig_send_to(rg, 0, &pm);
    size_t one = rig_send(rg, "a", "one");
    sl_writer_stop(rg->w);
    assert_true(rig_is_taken(rg, zero));
    assert_int_equal(rig_is_taken(rg, one), !redelivers);
    assert_int_equal(rig_dead_lines(rg, "\"payload\":\"one\""), !redelivers);
    assert_int_equal(rig_dead_lines(rg, "\"payload\":\"zero\""), 1);
}

static void test_writer_stop_leaves_held_messages_to_a_broker_that_redelivers(void **state)
{
    check_stop_misconfigured(*state, true);
}

static void test_writer_stop_dead_letters_held_messages_of_a_clean_session(void **state)
{
    check_stop_misconfigured(*state, false);
}

static void test_writer_stop_keeps_unacknowledged_what_nothing_took(void **state)
{
    rig *rg = *state;
    sl_free(rg->dead_path);
    rg->dead_path = peer_path(rg->dir, "missing/dead.log");
    fake_sink_rule(rg->fake, (fake_rule){.from = 1, .outcome = SL_SINK_AWAY});
    rig_start(rg);
    for (int i = 0; i < 700; i++)
        rig_send(rg, "a", "x");
    sl_writer_stop(rg->w);
    assert_int_equal(rig_taken(rg), 0);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_SIZE), 700);
}

static void test_writer_threads_store_everything_of_two_lanes(void **state)
{
    rig *rg = *state;
    sl_clock_init(&rg->ck);
    rg->cf.manual = false;
    rg->cf.target_count = 2;
    rg->cf.capacity = 100;
    rg->cf.batch_size = 7;
    rg->cf.retry_delay_ms = 1;
    fake_sink_rule(rg->fake, (fake_rule){.from = 3, .to = 6, .outcome = SL_SINK_AWAY});
    fake_sink_rule(rg->fake, (fake_rule){.from = 9, .to = 12, .outcome = SL_SINK_TRANSIENT});
    rig_start(rg);
    long before = peer_taken_count;
    for (int i = 0; i < 2000; i++)
        rig_send_to(rg, (size_t)i % 2,
                    &(peer_message){.topic = "a", .payload = "x", .len = 1, .qos = 1});
    peer_await_taken(before + 2000);
    assert_int_equal(rg->fake->doc_count, 2000);
    sl_writer_stop(rg->w);
    assert_int_equal(peer_count_lines(rg->dead_path), 0);
}

static void stop_writer(void *arg)
{
    rig *rg = arg;
    sl_writer_stop(rg->w);
}

/* Stop does not wait for a store that hangs: the messages go to the dead letter first. */
static void test_writer_stop_is_not_held_by_a_store_that_hangs(void **state)
{
    rig *rg = *state;
    sl_clock_init(&rg->ck);
    rg->cf.manual = false;
    rg->cf.shutdown_timeout_ms = 50;
    rg->fake->hang = true;
    rig_start(rg);
    long before = peer_taken_count;
    rig_send(rg, "a", "x");
    fake_sink_await_hang(rg->fake);
    rig_send(rg, "a", "y");
    sl_thread *th;
    SL_TEST_OK(sl_thread_start("stopper", stop_writer, rg, &th));
    peer_await_taken(before + 2); // while the store still hangs
    assert_int_equal(rig_dead_lines(rg, "\"reason\":\"stopped: "), 2);
    fake_sink_let_go(rg->fake);
    sl_thread_join(&th);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_writer_stop_writes_what_is_left),
        RIG_TEST(test_writer_stop_dead_letters_what_the_store_did_not_take),
        RIG_TEST(test_writer_takes_nothing_after_stop),
        RIG_TEST(test_writer_stop_leaves_held_messages_to_a_broker_that_redelivers),
        RIG_TEST(test_writer_stop_dead_letters_held_messages_of_a_clean_session),
        RIG_TEST(test_writer_stop_keeps_unacknowledged_what_nothing_took),
        RIG_TEST(test_writer_threads_store_everything_of_two_lanes),
        RIG_TEST(test_writer_stop_is_not_held_by_a_store_that_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
