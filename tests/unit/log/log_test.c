/* SPDX-License-Identifier: Apache-2.0
 *
 * log_test: the front functions that need no adapter: key partitions as Kafka's, record headers,
 * defaults and checks before the adapter is asked, counters.
 */
#include <string.h>

#include "log/log_ops.h"
#include "sl_test.h"

static sl_log_topic topic_of(uint16_t partitions)
{
    return (sl_log_topic){.magic = SL_LOG_TOPIC_MAGIC, .partitions = partitions};
}

/* Values of Kafka's own test of its hash (org.apache.kafka.common.utils.UtilsTest). */
static void test_log_partition_of_agrees_with_kafka(void **state)
{
    (void)state;
    const struct {
        const char *key;
        int32_t hash;
    } rows[] = {{"21", -973932308},
                {"foobar", -790332482},
                {"a-little-bit-long-string", -985981536},
                {"a-little-bit-longer-string", -1486304829},
                {"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971},
                {"abc", 479470107}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (uint16_t partitions = 1; partitions <= 1000; partitions += 37) {
            const sl_log_topic topic = topic_of(partitions);
            assert_int_equal(sl_log_partition_of(&topic, sl_slice_str(rows[i].key)),
                             ((uint32_t)rows[i].hash & 0x7fffffffu) % partitions);
        }
    }
}

static void test_log_headers_step_and_find(void **state)
{
    (void)state;
    const uint8_t bytes[] = {1, 0, 2, 'a', 'b', 5, 0, 0, 1, 0, 1, 'c', 9, 0, 9, 'x'};
    size_t pos = 0;
    sl_log_header hd;
    sl_slice value;
    sl_slice whole = sl_slice_of(bytes, 12);
    assert_true(sl_log_header_next(whole, &pos, &hd));
    assert_int_equal(hd.id, SL_LOG_H_PUBLISHER);
    SL_TEST_SLICE(hd.value, "ab");
    assert_true(sl_log_header_next(whole, &pos, &hd));
    assert_int_equal(hd.value.len, 0);
    assert_true(sl_log_header_next(whole, &pos, &hd));
    SL_TEST_SLICE(hd.value, "c");
    assert_false(sl_log_header_next(whole, &pos, &hd));
    assert_true(sl_log_header_find(whole, SL_LOG_H_PUBLISHER, &value));
    SL_TEST_SLICE(value, "ab"); // the first of two
    assert_false(sl_log_header_find(whole, SL_LOG_H_NODE, &value));
    // A header that says it is longer than what is there ends the walk.
    assert_false(sl_log_header_find(sl_slice_of(bytes, sizeof bytes), 9, &value));
    assert_false(sl_log_header_find(sl_slice_of(NULL, 0), 9, &value));
}

/* ---- an adapter that only notes what it is asked ---- */

static sl_log_options seen_options;
static unsigned closes;

static sl_err fake_open(sl_log *log, char **why)
{
    (void)why;
    seen_options = log->options;
    return SL_OK;
}

static void fake_close(sl_log *log)
{
    (void)log;
    closes++;
}

static const sl_log_ops fake_ops = {.name = "fake", .open = fake_open, .close = fake_close};

static const sl_stat_row stat_rows[] = {{"other", NULL, SL_STAT_COUNTER, "Not ours."},
#define TEST_ROW(name, kind, metric, help) {metric, NULL, SL_STAT_##kind, help},
                                        SL_LOG_STAT_MAP(TEST_ROW)
#undef TEST_ROW
};

static void test_log_open_fills_in_defaults_and_counts(void **state)
{
    (void)state;
    sl_clock clock;
    sl_clock_init_fake(&clock, 0, 0);
    sl_stats *stats = sl_stats_new(stat_rows, 1 + SL_LOG_STAT_COUNT);
    const sl_log_options options = {
        .dir = "/x", .gather_ms = -1, .clock = &clock, .stats = stats, .stats_base = 1};
    sl_log *log = NULL;
    char *why = NULL;
    SL_TEST_OK(sl_log_open(&fake_ops, &options, &log, &why));
    assert_null(why);
    assert_int_equal(seen_options.gather_ms, 2);
    assert_int_equal(seen_options.queue_max_bytes, 64 << 20);
    assert_int_equal(seen_options.derived_max_bytes, 64 << 20);
    assert_int_equal(seen_options.low_space_bytes, 256 << 20);
    assert_int_equal(seen_options.ring_bytes, 64 << 20);
    sl_log_count(log, SL_LOG_STAT_TRIMMED, 5);
    sl_log_count(log, SL_LOG_STAT_TRIMMED, 2);
    sl_log_gauge(log, SL_LOG_STAT_LOW_SPACE, 1);
    assert_int_equal(sl_stats_get(stats, 1 + SL_LOG_STAT_TRIMMED), 7);
    assert_int_equal(sl_stats_get(stats, 1 + SL_LOG_STAT_LOW_SPACE), 1);
    assert_int_equal(sl_stats_get(stats, 0), 0);
    sl_log_close(&log);
    assert_null(log);
    assert_int_equal(closes, 1);
    sl_log_close(&log); // none: nothing happens
    assert_int_equal(closes, 1);
    sl_stats_free(&stats);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_partition_of_agrees_with_kafka),
        cmocka_unit_test(test_log_headers_step_and_find),
        cmocka_unit_test(test_log_open_fills_in_defaults_and_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
