/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer in trouble: every kind of failure at every call, outages shorter and longer than the
 * age bound, poison, configuration errors, a store that hangs, a dead letter that cannot be
 * written.
 */
#include "sl_test.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "loop/pool.h"
#include "writer_rig.h"

static const char *numbered(char text[64], int i)
{
    snprintf(text, 64, "{\"messageId\":\"m%d\"}", i);
    return text;
}

static void fail_from(rig *rg, sl_sink_outcome outcome, const char *part)
{
    fake_sink_rule(rg->fake, (fake_rule){.from = 1, .outcome = outcome, .payload_part = part});
}

/* Nth call fails, in each retryable way, with and without a lost answer: stored exactly once. */
static void check_nth(rig *rg, int nth, sl_sink_outcome outcome, bool stores, sl_id_strategy ids)
{
    rg->cf.batch_size = 3;
    rg->cf.id_strategy = ids;
    fake_sink_rule(rg->fake,
                   (fake_rule){.from = nth, .to = nth, .outcome = outcome, .stores = stores});
    rig_start(rg);
    char text[64];
    for (int i = 0; i < 20; i++)
        rig_send(rg, "a", numbered(text, i));
    rig_turn(rg);
    rig_pass(rg, 10000);
    assert_int_equal(rig_taken(rg), 20);
    assert_int_equal(rg->fake->doc_count, 20);
    for (int i = 0; i < 20; i++)
        assert_non_null(fake_sink_find(rg->fake, numbered(text, i)));
    assert_int_equal(peer_count_lines(rg->dead_path), 0);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_SIZE), 0);
}

static void test_writer_survives_a_failure_of_any_call(void **state)
{
    (void)state;
    static const sl_sink_outcome outcomes[] = {SL_SINK_TRANSIENT, SL_SINK_AWAY, SL_SINK_CONFIG};
    for (int nth = 1; nth <= 8; nth++)
        for (int o = 0; o < 3; o++)
            for (int variant = 0; variant < 4; variant++) {
                void *own = NULL;
                rig_setup(&own);
                check_nth(own, nth, outcomes[o], variant & 1,
                          variant & 2 ? SL_ID_AUTO : SL_ID_PAYLOAD_FIELD);
                rig_teardown(&own);
            }
}

static void test_writer_dead_letters_nothing_in_an_outage_of_ten_seconds(void **state)
{
    rig *rg = *state;
    fail_from(rg, SL_SINK_AWAY, NULL);
    rig_start(rg);
    char text[64];
    for (int i = 0; i < 100; i++) {
        rig_send(rg, "a", numbered(text, i));
        rig_pass(rg, 100);
    }
    sl_writer_health health;
    sl_writer_read_health(rg->w, &health);
    assert_true(health.away);
    assert_false(health.ok);
    assert_string_equal(health.reason, "by rule: store away");
    fake_sink_clear_rules(rg->fake);
    rig_pass(rg, 2000);
    assert_int_equal(rig_taken(rg), 100);
    assert_int_equal(rg->fake->doc_count, 100);
    assert_int_equal(peer_count_lines(rg->dead_path), 0);
    sl_writer_read_health(rg->w, &health);
    assert_true(health.ok);
}

static void test_writer_dead_letters_what_is_older_than_the_bound(void **state)
{
    rig *rg = *state;
    fail_from(rg, SL_SINK_AWAY, NULL);
    rig_start(rg);
    size_t old = rig_send(rg, "a", "{\"messageId\":1}");
    rig_pass(rg, 14900);
    assert_false(rig_is_taken(rg, old));
    rig_pass(rg, 200);
    assert_true(rig_is_taken(rg, old));
    assert_int_equal(
        rig_dead_lines(rg, "\"reason\":\"expired: by rule: store away\",\"code\":4711"), 1);
    assert_int_equal(rig_dead_lines(rg, "\"database\":\"db\",\"collection\":\"first\""), 1);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_DEAD_LETTER_WRITTEN), 1);
    assert_int_equal(rg->fake->doc_count, 0);
}

/* Backpressure is for the slow, the dead letter for the absent. */
static void test_writer_slow_store_dead_letters_nothing(void **state)
{
    rig *rg = *state;
    rg->cf.batch_size = 1;
    rig_start(rg);
    char text[64];
    for (int i = 0; i < 100; i++)
        rig_send(rg, "a", numbered(text, i));
    for (int i = 0; i < 100; i++) {
        sl_mono_ms due;
        sl_clock_advance(&rg->ck, 1000); // a second for each
        sl_writer_turn_lane(rg->w, 0, &due);
        rig_keep(rg);
    }
    assert_int_equal(rg->fake->doc_count, 100);
    assert_int_equal(peer_count_lines(rg->dead_path), 0);
}

/* A batch too large for the store's time-out is not tried again as it was. */
static void test_writer_halves_the_batch_after_a_failure(void **state)
{
    rig *rg = *state;
    fake_sink_rule(rg->fake, (fake_rule){.from = 1, .to = 3, .outcome = SL_SINK_AWAY});
    rig_start(rg);
    char text[64];
    for (int i = 0; i < 1000; i++)
        rig_send(rg, "a", numbered(text, i));
    size_t sizes[8];
    for (int i = 0; i < 8; i++) {
        sl_mono_ms due;
        assert_true(sl_writer_turn_lane(rg->w, 0, &due));
        sizes[i] = rg->fake->last_batch;
        sl_clock_advance(&rg->ck, 2000);
    }
    static const size_t want[] = {200, 100, 50, 25, 50, 100, 200, 200};
    for (int i = 0; i < 8; i++)
        assert_int_equal(sizes[i], want[i]);
}

/* Each outage has its own ten seconds. */
static void test_writer_counts_every_outage_from_its_own_start(void **state)
{
    rig *rg = *state;
    rig_start(rg);
    char text[64];
    for (int outage = 0; outage < 3; outage++) {
        fail_from(rg, SL_SINK_AWAY, NULL);
        rig_send(rg, "a", numbered(text, outage));
        rig_pass(rg, 10000);
        fake_sink_clear_rules(rg->fake);
        rig_pass(rg, 2000);
    }
    assert_int_equal(rg->fake->doc_count, 3);
    assert_int_equal(peer_count_lines(rg->dead_path), 0);
}

/* G19: a store that is down does not hold the broker's window, and so not the dashboards. */
static void test_writer_does_not_hold_messages_for_a_store_that_is_down(void **state)
{
    rig *rg = *state;
    fail_from(rg, SL_SINK_AWAY, NULL);
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":0}");
    rig_pass(rg, 16000);
    int calls = rg->fake->calls;
    for (int i = 1; i < 100; i++) {
        char text[64];
        size_t number = rig_send(rg, "a", numbered(text, i));
        rig_turn(rg); // no time passes
        assert_true(rig_is_taken(rg, number));
    }
    assert_int_equal(peer_count_lines(rg->dead_path), 100);
    assert_int_equal(rg->fake->calls, calls); // it is only asked
    fake_sink_clear_rules(rg->fake);
    rig_pass(rg, 2000);
    sl_writer_health health;
    sl_writer_read_health(rg->w, &health);
    assert_true(health.ok); // without any traffic
    rig_send(rg, "a", "{\"messageId\":\"after\"}");
    rig_turn(rg);
    assert_int_equal(rg->fake->doc_count, 1);
    assert_int_equal(peer_count_lines(rg->dead_path), 100);
}

/* The only message went to the dead letter: nothing is left to try, and still it is asked. */
static void test_writer_heals_without_a_message_to_write(void **state)
{
    rig *rg = *state;
    fail_from(rg, SL_SINK_AWAY, NULL);
    rig_start(rg);
    rig_send(rg, "a", "x");
    sl_clock_advance(&rg->ck, 10000); // the first try took long
    rig_turn(rg);
    sl_clock_advance(&rg->ck, 5100);
    rig_keep(rg);
    assert_int_equal(rig_taken(rg), 1);
    fake_sink_clear_rules(rg->fake);
    assert_int_equal(rig_turn(rg), INT64_MAX);
    sl_writer_health health;
    sl_writer_read_health(rg->w, &health);
    assert_true(health.ok);
    assert_int_equal(rg->fake->probes, 1);
}

/* A full disk of the server: it answers, and takes nothing. */
static void test_writer_store_that_answers_and_takes_nothing_is_down(void **state)
{
    rig *rg = *state;
    rg->fake->probe_lies = true;
    fail_from(rg, SL_SINK_AWAY, NULL);
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":0}");
    rig_pass(rg, 20000);
    assert_int_equal(rig_taken(rg), 1);
    rig_send(rg, "a", "{\"messageId\":1}");
    rig_pass(rg, 2500); // one try, and its pause
    assert_int_equal(rig_taken(rg), 2);
    assert_int_equal(peer_count_lines(rg->dead_path), 2);
    fake_sink_clear_rules(rg->fake);
    rig_send(rg, "a", "{\"messageId\":2}");
    rig_pass(rg, 2500);
    assert_int_equal(rig_taken(rg), 3);
    rig_send(rg, "a", "{\"messageId\":3}");
    rig_turn(rg);
    assert_non_null(fake_sink_find(rg->fake, "{\"messageId\":3}"));
}

static void test_writer_without_age_bound_gives_up_after_its_retries(void **state)
{
    rig *rg = *state;
    rg->cf.max_unacked_ms = 0;
    rg->cf.max_retries = 3;
    fail_from(rg, SL_SINK_AWAY, NULL);
    rig_start(rg);
    size_t number = rig_send(rg, "a", "{\"messageId\":1}");
    rig_turn(rg); // at 0, then 1, 3 and 7 s: doubled each time
    rig_pass(rg, 6900);
    assert_int_equal(rg->fake->calls, 3);
    assert_false(rig_is_taken(rg, number));
    rig_pass(rg, 200);
    assert_int_equal(rg->fake->calls, 4);
    assert_true(rig_is_taken(rg, number));
    assert_int_equal(rig_dead_lines(rg, "\"attempts\":4"), 1);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_WRITER_RETRIES), 3);
}

static void test_writer_delay_never_passes_thirty_seconds(void **state)
{
    rig *rg = *state;
    rg->cf.max_unacked_ms = 0;
    rg->cf.max_retries = 1000;
    rg->cf.retry_delay_ms = 20000;
    fail_from(rg, SL_SINK_AWAY, NULL);
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":1}");
    rig_turn(rg);
    rig_pass(rg, 20000);
    assert_int_equal(rg->fake->calls, 2);
    rig_pass(rg, 30000);
    assert_int_equal(rg->fake->calls, 3);
    rig_pass(rg, 30000);
    assert_int_equal(rg->fake->calls, 4);
}

/* C84 */
static void test_writer_poison_does_not_hold_the_good(void **state)
{
    rig *rg = *state;
    fail_from(rg, SL_SINK_PERMANENT, "poison");
    rig_start(rg);
    for (int i = 0; i < 2000; i++) {
        char text[64];
        snprintf(text, sizeof text, "{\"messageId\":%d,\"v\":\"%s\"}", i,
                 i % 50 == 0 ? "good" : "poison");
        rig_send(rg, "a", text);
    }
    rig_turn(rg); // without any passing of time
    assert_int_equal(rig_taken(rg), 2000);
    assert_int_equal(rg->fake->doc_count, 40);
    assert_int_equal(rig_dead_lines(rg, "by rule: refused"), 1960);
    assert_int_equal(rg->fake->calls, 10);
}

static void test_writer_tries_a_failing_document_again_without_holding_others(void **state)
{
    rig *rg = *state;
    fail_from(rg, SL_SINK_TRANSIENT, "sick");
    rig_start(rg);
    size_t sick = rig_send(rg, "a", "{\"messageId\":1,\"v\":\"sick\"}");
    size_t good = rig_send(rg, "a", "{\"messageId\":2}");
    rig_turn(rg);
    assert_true(rig_is_taken(rg, good));
    assert_false(rig_is_taken(rg, sick));
    good = rig_send(rg, "a", "{\"messageId\":3}");
    rig_turn(rg);
    assert_true(rig_is_taken(rg, good));
    rig_pass(rg, 6900);
    assert_false(rig_is_taken(rg, sick));
    rig_pass(rg, 200);
    assert_true(rig_is_taken(rg, sick));
    assert_int_equal(rig_dead_lines(rg, "\"attempts\":4"), 1);
}

static void test_writer_late_retry_does_not_replace_what_came_later(void **state)
{
    rig *rg = *state;
    fake_sink_rule(rg->fake, (fake_rule){.from = 1, .to = 1, .outcome = SL_SINK_TRANSIENT});
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":1,\"v\":\"old\"}");
    rig_turn(rg);
    sl_clock_advance(&rg->ck, 10);
    rig_send(rg, "a", "{\"messageId\":1,\"v\":\"new\"}");
    rig_turn(rg);
    rig_pass(rg, 2000);
    assert_int_equal(rig_taken(rg), 2);
    assert_int_equal(rg->fake->doc_count, 1);
    assert_non_null(fake_sink_find(rg->fake, "{\"messageId\":1,\"v\":\"new\"}"));
}

/* C98 */
static void test_writer_holds_messages_while_the_store_is_misconfigured(void **state)
{
    rig *rg = *state;
    fail_from(rg, SL_SINK_CONFIG, NULL);
    rig_start(rg);
    size_t number = rig_send(rg, "a", "{\"messageId\":1}");
    rig_turn(rg);
    rig_pass(rg, 120000);
    assert_false(rig_is_taken(rg, number));
    assert_int_equal(peer_count_lines(rg->dead_path), 0);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_WRITER_HELD), 1);
    sl_writer_health health;
    sl_writer_read_health(rg->w, &health);
    assert_true(health.config);
    assert_false(health.ok);
    fake_sink_clear_rules(rg->fake);
    rig_pass(rg, 2000);
    assert_true(rig_is_taken(rg, number));
    assert_int_equal(rg->fake->doc_count, 1);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_WRITER_HELD), 0);
}

/* C97, F2 */
static void test_writer_holds_what_the_dead_letter_does_not_take(void **state)
{
    rig *rg = *state;
    char *sub = peer_path(rg->dir, "missing");
    sl_free(rg->dead_path);
    rg->dead_path = peer_path(sub, "dead.log");
    rg->cf.target_count = 2;
    fail_from(rg, SL_SINK_PERMANENT, "poison");
    rig_start(rg);
    size_t bad = rig_send(rg, "a", "{\"messageId\":1,\"v\":\"poison\"}");
    size_t good =
        rig_send_to(rg, 1, &(peer_message){.topic = "b", .payload = "x", .len = 1, .qos = 1});
    size_t same = rig_send(rg, "a", "{\"messageId\":2}");
    rig_pass(rg, 60000);
    assert_false(rig_is_taken(rg, bad));
    assert_true(rig_is_taken(rg, good)); // other topics go on,
    assert_true(rig_is_taken(rg, same)); // and so do the same sink's
    assert_true(rig_stat(rg, SL_WRITER_STAT_DEAD_LETTER_WRITE_ERRORS) > 10);
    sl_writer_health health;
    sl_writer_read_health(rg->w, &health);
    assert_true(health.dead_letter_failing);
    assert_false(health.ok);
    assert_int_equal(mkdir(sub, 0700), 0);
    rig_pass(rg, 2000);
    assert_true(rig_is_taken(rg, bad));
    assert_int_equal(peer_count_lines(rg->dead_path), 1);
    sl_writer_read_health(rg->w, &health);
    assert_true(health.ok);
    sl_free(sub);
}

static void test_writer_stores_the_aged_when_only_the_store_comes_back(void **state)
{
    rig *rg = *state;
    sl_free(rg->dead_path);
    rg->dead_path = peer_path(rg->dir, "missing/dead.log");
    fail_from(rg, SL_SINK_AWAY, NULL);
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":1}");
    rig_pass(rg, 60000);
    assert_int_equal(rig_taken(rg), 0);
    fake_sink_clear_rules(rg->fake);
    rig_pass(rg, 3000);
    assert_int_equal(rig_taken(rg), 1);
    assert_int_equal(rg->fake->doc_count, 1);
}

static void test_writer_bounded_wait_holds_with_an_unwritable_dead_letter(void **state)
{
    rig *rg = *state;
    sl_free(rg->dead_path);
    rg->dead_path = peer_path(rg->dir, "missing/dead.log");
    rg->cf.capacity = 1;
    fail_from(rg, SL_SINK_PERMANENT, "poison");
    rig_start(rg);
    size_t bad = rig_send(rg, "a", "poison");
    rig_turn(rg);
    size_t waits = rig_send(rg, "a", "{\"messageId\":2}");
    rig_pass(rg, 29900);
    assert_false(rig_is_taken(rg, waits));
    rig_pass(rg, 200);
    assert_true(rig_is_taken(rg, waits));
    assert_false(rig_is_taken(rg, bad));
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_DROPPED), 1);
}

static void run_one_turn(void *arg)
{
    rig *rg = arg;
    sl_mono_ms due;
    sl_writer_turn_lane(rg->w, 0, &due);
}

/* The age bound holds although the lane's thread is stuck in the store. */
static void test_writer_age_bound_holds_while_the_store_hangs(void **state)
{
    rig *rg = *state;
    rg->fake->hang = true;
    rig_start(rg);
    size_t in_store = rig_send(rg, "a", "{\"messageId\":1}");
    sl_thread *th;
    SL_TEST_OK(sl_thread_start("stuck", run_one_turn, rg, &th));
    fake_sink_await_hang(rg->fake);
    size_t behind = rig_send(rg, "a", "{\"messageId\":2}");
    sl_clock_advance(&rg->ck, 14900);
    rig_keep(rg);
    assert_int_equal(rig_taken(rg), 0);
    sl_clock_advance(&rg->ck, 200);
    rig_keep(rg);
    assert_true(rig_is_taken(rg, in_store));
    assert_true(rig_is_taken(rg, behind));
    assert_int_equal(peer_count_lines(rg->dead_path), 2);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_SIZE), 0);
    fake_sink_let_go(rg->fake); // it is stored after all: not acknowledged twice
    sl_thread_join(&th);
    assert_int_equal(rg->fake->doc_count, 1);
    rig_turn(rg);
    assert_int_equal(rg->fake->doc_count, 1);
}

/* The question whether a store is back may take long: messages do not wait for the answer. */
static void test_writer_does_not_hold_messages_while_it_asks(void **state)
{
    rig *rg = *state;
    fail_from(rg, SL_SINK_AWAY, NULL);
    rig_start(rg);
    rig_send(rg, "a", "first");
    rig_pass(rg, 16000);
    sl_clock_advance(&rg->ck, 5000);
    rg->fake->hang = true;
    sl_thread *th;
    SL_TEST_OK(sl_thread_start("asks", run_one_turn, rg, &th));
    fake_sink_await_hang(rg->fake);
    size_t number = rig_send(rg, "a", "second");
    assert_true(rig_keep(rg) <= sl_clock_mono(&rg->ck) + 200);
    assert_true(rig_is_taken(rg, number));
    fake_sink_let_go(rg->fake);
    sl_thread_join(&th);
}

/* A frozen store counts as away from the moment it was first asked, not from the time-out. */
static void test_writer_counts_an_outage_from_the_first_question(void **state)
{
    rig *rg = *state;
    fail_from(rg, SL_SINK_AWAY, NULL);
    rg->fake->hang = true;
    rig_start(rg);
    rig_send(rg, "a", "first");
    sl_thread *th;
    SL_TEST_OK(sl_thread_start("asks", run_one_turn, rg, &th));
    fake_sink_await_hang(rg->fake);
    sl_clock_advance(&rg->ck, 5000);
    fake_sink_let_go(rg->fake);
    sl_thread_join(&th);
    rig_pass(rg, 9900);
    size_t late = rig_send(rg, "a", "late");
    rig_turn(rg);
    assert_false(rig_is_taken(rg, late));
    rig_pass(rg, 200);
    assert_true(rig_is_taken(rg, late));
}

static void test_writer_hanging_collection_does_not_hold_the_other(void **state)
{
    rig *rg = *state;
    rg->cf.target_count = 2;
    rg->cf.manual = false;
    sl_clock_init(&rg->ck);
    rg->fake->hang = true;
    rg->fake->hang_in = "first";
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":1}");
    fake_sink_await_hang(rg->fake);
    long before = peer_taken_count;
    for (int i = 0; i < 50; i++)
        rig_send_to(rg, 1, &(peer_message){.topic = "b", .payload = "x", .len = 1, .qos = 1});
    peer_await_taken(before + 50);
    assert_false(rig_is_taken(rg, 0));
    fake_sink_let_go(rg->fake);
    peer_await_taken(before + 51);
    assert_true(rig_is_taken(rg, 0));
    sl_writer_stop(rg->w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writer_survives_a_failure_of_any_call),
        RIG_TEST(test_writer_dead_letters_nothing_in_an_outage_of_ten_seconds),
        RIG_TEST(test_writer_dead_letters_what_is_older_than_the_bound),
        RIG_TEST(test_writer_counts_every_outage_from_its_own_start),
        RIG_TEST(test_writer_slow_store_dead_letters_nothing),
        RIG_TEST(test_writer_halves_the_batch_after_a_failure),
        RIG_TEST(test_writer_does_not_hold_messages_for_a_store_that_is_down),
        RIG_TEST(test_writer_heals_without_a_message_to_write),
        RIG_TEST(test_writer_store_that_answers_and_takes_nothing_is_down),
        RIG_TEST(test_writer_without_age_bound_gives_up_after_its_retries),
        RIG_TEST(test_writer_delay_never_passes_thirty_seconds),
        RIG_TEST(test_writer_poison_does_not_hold_the_good),
        RIG_TEST(test_writer_tries_a_failing_document_again_without_holding_others),
        RIG_TEST(test_writer_late_retry_does_not_replace_what_came_later),
        RIG_TEST(test_writer_holds_messages_while_the_store_is_misconfigured),
        RIG_TEST(test_writer_holds_what_the_dead_letter_does_not_take),
        RIG_TEST(test_writer_stores_the_aged_when_only_the_store_comes_back),
        RIG_TEST(test_writer_bounded_wait_holds_with_an_unwritable_dead_letter),
        RIG_TEST(test_writer_age_bound_holds_while_the_store_hangs),
        RIG_TEST(test_writer_does_not_hold_messages_while_it_asks),
        RIG_TEST(test_writer_counts_an_outage_from_the_first_question),
        RIG_TEST(test_writer_hanging_collection_does_not_hold_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
