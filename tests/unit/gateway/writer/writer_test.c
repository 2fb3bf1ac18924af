/* SPDX-License-Identifier: Apache-2.0
 *
 * The writer's buffer: nothing acknowledged before it is stored, batches of what piled up, the
 * three strategies at a full buffer, identities within a batch, configuration.
 */
#include "sl_test.h"

#include <stdio.h>

#include "base/alloc.h"
#include "writer_rig.h"

static const char *numbered(char text[64], int i)
{
    snprintf(text, 64, "{\"messageId\":\"m%d\"}", i);
    return text;
}

static void test_writer_acknowledges_only_what_is_stored(void **state)
{
    rig *rg = *state;
    rig_start(rg);
    size_t first = rig_send(rg, "a", "{\"messageId\":1}");
    size_t second = rig_send(rg, "b", "binary or not");
    assert_false(rig_is_taken(rg, first));
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_SIZE), 2);
    assert_true(rig_stat(rg, SL_WRITER_STAT_BUFFER_BYTES) > 0);
    assert_true(rig_turn(rg) == INT64_MAX);
    assert_true(rig_is_taken(rg, first));
    assert_true(rig_is_taken(rg, second));
    assert_int_equal(rg->fake->doc_count, 2);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_SIZE), 0);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_BYTES), 0);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_ACCEPTED), 2);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_WRITER_WRITTEN), 2);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_WRITER_ID_MISSING), 1);
}

static void test_writer_writes_what_piled_up_in_one_batch(void **state)
{
    rig *rg = *state;
    rg->cf.batch_size = 10;
    rig_start(rg);
    char text[64];
    for (int i = 0; i < 25; i++)
        rig_send(rg, "a", numbered(text, i));
    sl_mono_ms due;
    size_t sizes[3];
    for (int i = 0; i < 3; i++) {
        assert_true(sl_writer_turn_lane(rg->w, 0, &due));
        sizes[i] = rg->fake->last_batch;
    }
    assert_false(sl_writer_turn_lane(rg->w, 0, &due));
    assert_int_equal(sizes[0], 10);
    assert_int_equal(sizes[1], 10);
    assert_int_equal(sizes[2], 5);
    assert_int_equal(rig_taken(rg), 25);
}

static void test_writer_sends_the_last_of_one_identity(void **state)
{
    rig *rg = *state;
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":1,\"v\":1}");
    rig_send(rg, "a", "{\"messageId\":1.0,\"v\":2}");
    rig_send(rg, "a", "{\"messageId\":\"1\",\"v\":3}");
    rig_send(rg, "a", "{\"messageId\":1,\"v\":4}");
    rig_turn(rg);
    assert_int_equal(rg->fake->last_batch, 2);
    assert_int_equal(rig_taken(rg), 4);
    assert_int_equal(rg->fake->doc_count, 2);
    assert_non_null(fake_sink_find(rg->fake, "{\"messageId\":1,\"v\":4}"));
    assert_non_null(fake_sink_find(rg->fake, "{\"messageId\":\"1\",\"v\":3}"));
}

static void test_writer_auto_strategy_keeps_every_delivery(void **state)
{
    rig *rg = *state;
    rg->cf.id_strategy = SL_ID_AUTO;
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":1}");
    rig_send(rg, "a", "{\"messageId\":1}");
    rig_turn(rg);
    assert_int_equal(rg->fake->doc_count, 2);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_WRITER_ID_MISSING), 0);
}

static void test_writer_puts_a_foreign_id_into_the_dead_letter(void **state)
{
    rig *rg = *state;
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":1,\"v\":1}");
    rig_turn(rg);
    size_t other = rig_send(rg, "b", "{\"messageId\":1,\"v\":2}");
    rig_turn(rg);
    assert_true(rig_is_taken(rg, other));
    assert_int_equal(rg->fake->doc_count, 1);
    assert_non_null(fake_sink_find(rg->fake, "{\"messageId\":1,\"v\":1}"));
    assert_int_equal(rig_dead_lines(rg, "\"reason\":\"id-conflict\""), 1);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_WRITER_CONFLICTS), 1);
}

static void test_writer_blocking_queue_lets_the_message_wait(void **state)
{
    rig *rg = *state;
    rg->cf.capacity = 2;
    rig_start(rg);
    char text[64];
    for (int i = 0; i < 5; i++)
        rig_send(rg, "a", numbered(text, i));
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_ACCEPTED), 2);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_SIZE), 5);
    assert_int_equal(rig_taken(rg), 0);
    rig_turn(rg);
    assert_int_equal(rig_taken(rg), 5);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_DROPPED), 0);
    for (int i = 0; i < 5; i++) // in order of arrival
        assert_string_equal(rg->fake->docs[i].payload, numbered(text, i));
}

static void test_writer_waiting_ends_with_a_counted_drop(void **state)
{
    rig *rg = *state;
    rg->cf.capacity = 2;
    rg->cf.max_unacked_ms = 0;
    rg->cf.max_retries = 1000;
    fake_sink_rule(rg->fake, (fake_rule){.from = 1, .outcome = SL_SINK_AWAY});
    rig_start(rg);
    char text[64];
    for (int i = 0; i < 3; i++)
        rig_send(rg, "a", numbered(text, i));
    rig_pass(rg, 29900);
    assert_int_equal(rig_taken(rg), 0);
    rig_pass(rg, 200);
    assert_int_equal(rig_taken(rg), 1);
    assert_true(rig_is_taken(rg, 2));
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_DROPPED), 1);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_WAIT_TIMEOUTS), 1);
    fake_sink_clear_rules(rg->fake);
    rig_pass(rg, 31000);
    assert_int_equal(rig_taken(rg), 3);
    assert_int_equal(rg->fake->doc_count, 2);
}

static void test_writer_max_wait_zero_waits_without_bound(void **state)
{
    rig *rg = *state;
    rg->cf.capacity = 1;
    rg->cf.max_wait_ms = 0;
    rg->cf.max_unacked_ms = 0;
    rg->cf.max_retries = 1000;
    fake_sink_rule(rg->fake, (fake_rule){.from = 1, .outcome = SL_SINK_AWAY});
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":1}");
    rig_send(rg, "a", "{\"messageId\":2}");
    rig_pass(rg, 120000);
    assert_int_equal(rig_taken(rg), 0);
    fake_sink_clear_rules(rg->fake);
    rig_pass(rg, 31000);
    assert_int_equal(rig_taken(rg), 2);
    assert_int_equal(rg->fake->doc_count, 2);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_DROPPED), 0);
}

static void test_writer_bounds_waiting_qos0_messages(void **state)
{
    rig *rg = *state;
    rg->cf.capacity = 2;
    rig_start(rg);
    peer_message pm = {.topic = "a", .payload = "x", .len = 1, .qos = 0};
    for (int i = 0; i < 6; i++)
        rig_send_to(rg, 0, &pm);
    assert_int_equal(rig_taken(rg), 2); // two buffered, two wait
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_DROPPED), 2);
    pm.qos = 1;
    rig_send_to(rg, 0, &pm); // the broker's window bounds these
    assert_int_equal(rig_taken(rg), 2);
    rig_turn(rg);
    assert_int_equal(rg->fake->doc_count, 5);
}

static void test_writer_ring_buffer_drops_the_oldest(void **state)
{
    rig *rg = *state;
    rg->cf.capacity = 2;
    rg->cf.strategy = SL_WRITER_RING_BUFFER;
    rig_start(rg);
    char text[64];
    for (int i = 0; i < 5; i++)
        rig_send(rg, "a", numbered(text, i));
    assert_int_equal(rig_taken(rg), 3);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_DROPPED), 3);
    rig_turn(rg);
    assert_int_equal(rg->fake->doc_count, 2);
    assert_string_equal(rg->fake->docs[0].payload, numbered(text, 3));
}

static void test_writer_drop_incoming_drops_the_newest(void **state)
{
    rig *rg = *state;
    rg->cf.capacity = 2;
    rg->cf.strategy = SL_WRITER_DROP_INCOMING;
    rig_start(rg);
    char text[64];
    for (int i = 0; i < 5; i++)
        rig_send(rg, "a", numbered(text, i));
    assert_int_equal(rig_taken(rg), 3);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_DROPPED), 3);
    rig_turn(rg);
    assert_int_equal(rg->fake->doc_count, 2);
    assert_string_equal(rg->fake->docs[0].payload, numbered(text, 0));
}

static void test_writer_bounds_the_buffer_in_bytes(void **state)
{
    rig *rg = *state;
    rg->cf.max_bytes = 3000;
    rg->cf.strategy = SL_WRITER_DROP_INCOMING;
    rig_start(rg);
    char big[5000];
    memset(big, 'x', sizeof big);
    peer_message pm = {.topic = "a", .payload = big, .len = sizeof big, .qos = 1};
    rig_send_to(rg, 0, &pm); // alone it fits
    pm.len = 1000;
    rig_send_to(rg, 0, &pm);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_DROPPED), 1);
    rig_turn(rg);
    rig_send_to(rg, 0, &pm);
    rig_send_to(rg, 0, &pm);
    rig_send_to(rg, 0, &pm);
    assert_int_equal(rig_stat(rg, SL_WRITER_STAT_BUFFER_DROPPED), 2);
    rig_turn(rg);
    assert_int_equal(rg->fake->doc_count, 3);
}

static void test_writer_limits_a_batch_in_bytes(void **state)
{
    rig *rg = *state;
    rig_start(rg);
    size_t len = 10 << 20;
    char *big = sl_alloc(len);
    memset(big, 'x', len);
    for (int i = 0; i < 3; i++) {
        big[0] = (char)('a' + i);
        rig_send_to(rg, 0, &(peer_message){.topic = "a", .payload = big, .len = len, .qos = 1});
    }
    sl_mono_ms due;
    assert_true(sl_writer_turn_lane(rg->w, 0, &due));
    assert_int_equal(rg->fake->last_batch, 1);
    rig_turn(rg);
    assert_int_equal(rig_taken(rg), 3);
    sl_free(big);
}

static void test_writer_parses_its_words(void **state)
{
    (void)state;
    sl_writer_strategy strategy;
    sl_id_strategy ids;
    SL_TEST_OK(sl_writer_strategy_parse("ring-buffer", &strategy));
    assert_int_equal(strategy, SL_WRITER_RING_BUFFER);
    SL_TEST_ERR(sl_writer_strategy_parse("ringbuffer", &strategy), SL_EINVAL);
    SL_TEST_OK(sl_id_strategy_parse("payload-field", &ids));
    assert_int_equal(ids, SL_ID_PAYLOAD_FIELD);
    SL_TEST_ERR(sl_id_strategy_parse("topic-hash", &ids), SL_EINVAL); // G16
}

static void expect_bad(rig *rg, const char *part)
{
    char *why = NULL;
    SL_TEST_ERR(sl_writer_conf_check(&rg->cf, &why), SL_EINVAL);
    if (strstr(why, part) == NULL)
        fail_msg("\"%s\" does not name %s", why, part);
    sl_free(why);
}

static void test_writer_configuration_errors_name_the_setting(void **state)
{
    rig *rg = *state;
    sl_writer_conf good = rg->cf;
    rg->cf.capacity = 0;
    expect_bad(rg, "buffer/capacity");
    rg->cf = good;
    rg->cf.batch_size = 0;
    expect_bad(rg, "drain/batch-size");
    rg->cf = good;
    rg->cf.max_wait_ms = -1;
    expect_bad(rg, "buffer/max-wait-ms");
    rg->cf = good;
    rg->cf.id_field = " ";
    expect_bad(rg, "id-field");
    rg->cf = good;
    rg->targets[0].topic = "a/#/b";
    expect_bad(rg, "mongo-sink[1]/topic");
    rg->targets[0].topic = "$share/g/a";
    expect_bad(rg, "shared");
    rg->targets[0].topic = NULL;
    expect_bad(rg, "topic");
    rg->targets[0].topic = "a";
    rg->targets[0].collection = "";
    expect_bad(rg, "collection");
    rg->targets[0].collection = "c";
    rg->targets[0].qos = 3;
    expect_bad(rg, "qos");
}

static void test_writer_reports_itself_as_json(void **state)
{
    rig *rg = *state;
    rig_start(rg);
    rig_send(rg, "a", "{\"messageId\":1}");
    sl_buf out;
    sl_buf_init(&out, 10000);
    SL_TEST_OK(sl_writer_write_json(rg->w, &out));
    SL_TEST_SLICE(
        sl_buf_peek(&out),
        "\"buffer\":{\"size\":1,\"bytes\":272,\"accepted\":1,\"dropped\":0,\"waitTimeouts\":0,"
        "\"duplicates\":0,\"capacity\":10000},\"writer\":{\"written\":0,\"retries\":0,"
        "\"idMissing\":0,\"idConflicts\":0,\"deadLetters\":0,\"deadLetterErrors\":0,\"sinks\":["
        "{\"topic\":\"#\",\"database\":\"db\",\"collection\":\"first\",\"state\":\"ok\","
        "\"buffered\":1,\"waiting\":0}]}");
    sl_buf_fini(&out);
    rig_turn(rg);
}

static const sl_stat_row ROWS[] = {
#define ROW(name, metric, kind, help) {metric, NULL, SL_STAT_##kind, help},
    SL_WRITER_STAT_MAP(ROW)
#undef ROW
};

static void test_writer_feeds_the_statistics_table(void **state)
{
    rig *rg = *state;
    sl_stats *st = sl_stats_new(ROWS, SL_WRITER_STAT_COUNT);
    rig_start(rg);
    sl_writer_bind_stats(rg->w, st, 0);
    rig_send(rg, "a", "{\"messageId\":1}");
    assert_int_equal(sl_stats_get(st, SL_WRITER_STAT_BUFFER_SIZE), 1);
    rig_turn(rg);
    assert_int_equal(sl_stats_get(st, SL_WRITER_STAT_WRITER_WRITTEN), 1);
    sl_buf page;
    sl_buf_init(&page, 100000);
    SL_TEST_OK(sl_stats_write_prometheus(st, &page));
    SL_TEST_OK(sl_buf_append_u8(&page, '\0'));
    const char *text = (const char *)sl_buf_peek(&page).ptr;
    assert_non_null(strstr(text, "mqtt_buffer_dropped 0"));
    assert_non_null(strstr(text, "mqtt_writer_batch_seconds_count 1"));
    sl_buf_fini(&page);
    sl_writer_free(&rg->w);
    sl_stats_free(&st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        RIG_TEST(test_writer_acknowledges_only_what_is_stored),
        RIG_TEST(test_writer_writes_what_piled_up_in_one_batch),
        RIG_TEST(test_writer_sends_the_last_of_one_identity),
        RIG_TEST(test_writer_auto_strategy_keeps_every_delivery),
        RIG_TEST(test_writer_puts_a_foreign_id_into_the_dead_letter),
        RIG_TEST(test_writer_blocking_queue_lets_the_message_wait),
        RIG_TEST(test_writer_waiting_ends_with_a_counted_drop),
        RIG_TEST(test_writer_max_wait_zero_waits_without_bound),
        RIG_TEST(test_writer_bounds_waiting_qos0_messages),
        RIG_TEST(test_writer_ring_buffer_drops_the_oldest),
        RIG_TEST(test_writer_drop_incoming_drops_the_newest),
        RIG_TEST(test_writer_bounds_the_buffer_in_bytes),
        RIG_TEST(test_writer_limits_a_batch_in_bytes),
        cmocka_unit_test(test_writer_parses_its_words),
        RIG_TEST(test_writer_configuration_errors_name_the_setting),
        RIG_TEST(test_writer_reports_itself_as_json),
        RIG_TEST(test_writer_feeds_the_statistics_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
