/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/stats: sums over threads, histogram buckets, the Prometheus page.
 */
#include "sl_test.h"

#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/stats.h"

enum { MSG_0, CONNS, MSG_1, LATENCY, RATE, LATENCY_B, ROWS };

static const sl_stat_row rows[ROWS] = {
    [MSG_0] = {"sluice_messages_total", "qos=\"0\"", SL_STAT_COUNTER, "Messages."},
    [CONNS] = {"sluice_connections", NULL, SL_STAT_GAUGE, "Open \\ connections\nnow."},
    [MSG_1] = {"sluice_messages_total", "qos=\"1\"", SL_STAT_COUNTER, "Messages."},
    [LATENCY] = {"sluice_latency_seconds", NULL, SL_STAT_HISTOGRAM, "Latency | all."},
    [RATE] = {"sluice_rate", NULL, SL_STAT_GAUGE, "Rate."},
    [LATENCY_B] = {"sluice_latency_seconds", "op=\"b\"", SL_STAT_HISTOGRAM, "Latency | all."},
};

static char *page_of(const sl_stats *st)
{
    sl_buf buf;
    size_t len;
    sl_buf_init(&buf, 1 << 20);
    SL_TEST_OK(sl_stats_write_prometheus(st, &buf));
    SL_TEST_OK(sl_buf_append_u8(&buf, 0));
    return (char *)sl_buf_take(&buf, &len);
}

static void assert_has(const char *page, const char *part)
{
    if (strstr(page, part) == NULL)
        fail_msg("no \"%s\" in\n%s", part, page);
}

static void test_stats_sums_shards_and_sets(void **state)
{
    (void)state;
    sl_stats *st = sl_stats_new(rows, ROWS);
    unsigned first = sl_stats_shard(st), second = sl_stats_shard(st);
    assert_int_not_equal(first, second);
    sl_stats_add(st, first, MSG_0, 3);
    sl_stats_add(st, second, MSG_0, 4);
    sl_stats_add(st, first, MSG_1, 1);
    sl_stats_add(st, first, CONNS, 5);
    sl_stats_add(st, second, CONNS, -2);
    sl_stats_set(st, RATE, 70);
    sl_stats_set(st, RATE, 69);
    assert_int_equal(sl_stats_get(st, MSG_0), 7);
    assert_int_equal(sl_stats_get(st, MSG_1), 1);
    assert_int_equal(sl_stats_get(st, CONNS), 3);
    assert_int_equal(sl_stats_get(st, RATE), 69);
    sl_stats_free(&st);
    assert_null(st);
    sl_stats_free(&st);
}

static int64_t give_number(void *arg)
{
    return *(int *)arg;
}

static void test_stats_asks_a_source(void **state)
{
    (void)state;
    int number = 12;
    sl_stats *st = sl_stats_new(rows, ROWS);
    sl_stats_set_source(st, CONNS, give_number, &number);
    assert_int_equal(sl_stats_get(st, CONNS), 12);
    number = 13;
    char *page = page_of(st);
    assert_has(page, "\nsluice_connections 13\n");
    sl_free(page);
    sl_stats_free(&st);
}

static void test_stats_page_groups_names(void **state)
{
    (void)state;
    sl_stats *st = sl_stats_new(rows, ROWS);
    sl_stats_add(st, sl_stats_shard(st), MSG_1, 2);
    char *page = page_of(st);
    assert_has(page, "# HELP sluice_messages_total Messages.\n"
                     "# TYPE sluice_messages_total counter\n"
                     "sluice_messages_total{qos=\"0\"} 0\n"
                     "sluice_messages_total{qos=\"1\"} 2\n"
                     "# HELP sluice_connections Open \\\\ connections\\nnow.\n"
                     "# TYPE sluice_connections gauge\n"
                     "sluice_connections 0\n"
                     "# HELP sluice_latency_seconds ");
    const char *first = strstr(page, "# TYPE sluice_latency_seconds histogram\n");
    assert_non_null(first);
    assert_null(strstr(first + 1, "# TYPE sluice_latency_seconds"));
    assert_has(page, "sluice_latency_seconds_bucket{op=\"b\",le=\"0.0001\"} 0\n");
    sl_free(page);
    sl_stats_free(&st);
}

static void test_stats_histogram_fills_buckets(void **state)
{
    (void)state;
    sl_stats *st = sl_stats_new(rows, ROWS);
    unsigned shard = sl_stats_shard(st);
    static const double seconds[] = {0, -1, NAN, 0.0001, 0.00011, 0.001, 100, 100.1};
    for (size_t i = 0; i < sizeof(seconds) / sizeof(seconds[0]); i++)
        sl_stats_observe(st, shard, LATENCY, seconds[i]);
    assert_int_equal(sl_stats_get(st, LATENCY), 8);
    char *page = page_of(st);
    assert_has(page, "sluice_latency_seconds_bucket{le=\"0.0001\"} 4\n"
                     "sluice_latency_seconds_bucket{le=\"0.00025\"} 5\n"
                     "sluice_latency_seconds_bucket{le=\"0.0005\"} 5\n"
                     "sluice_latency_seconds_bucket{le=\"0.001\"} 6\n");
    assert_has(page, "sluice_latency_seconds_bucket{le=\"50\"} 6\n"
                     "sluice_latency_seconds_bucket{le=\"100\"} 7\n"
                     "sluice_latency_seconds_bucket{le=\"+Inf\"} 8\n"
                     "sluice_latency_seconds_sum 200.101210000\n"
                     "sluice_latency_seconds_count 8\n");
    assert_has(page, "sluice_latency_seconds_sum{op=\"b\"} 0.000000000\n"
                     "sluice_latency_seconds_count{op=\"b\"} 0\n");
    sl_free(page);
    sl_stats_free(&st);
}

static void test_stats_shards_run_out_into_a_shared_one(void **state)
{
    (void)state;
    sl_stats *st = sl_stats_new(rows, ROWS);
    for (unsigned i = 0; i < SL_STATS_SHARDS - 1; i++)
        assert_int_equal(sl_stats_shard(st), i);
    assert_int_equal(sl_stats_shard(st), SL_STATS_SHARDS - 1);
    assert_int_equal(sl_stats_shard(st), SL_STATS_SHARDS - 1);
    sl_stats_free(&st);
}

static void test_stats_reference_has_a_line_per_row(void **state)
{
    (void)state;
    sl_buf buf;
    size_t len;
    sl_buf_init(&buf, 1 << 20);
    SL_TEST_OK(sl_stats_write_reference(rows, ROWS, &buf));
    SL_TEST_OK(sl_buf_append_u8(&buf, 0));
    char *page = (char *)sl_buf_take(&buf, &len);
    assert_has(page, "| `sluice_messages_total` | `qos=\"1\"` | counter | Messages. |\n");
    assert_has(page, "| `sluice_latency_seconds` |  | histogram | Latency \\| all. |\n");
    sl_free(page);
    sl_buf_init(&buf, 10);
    SL_TEST_ERR(sl_stats_write_reference(rows, ROWS, &buf), SL_ETOOBIG);
    sl_buf_fini(&buf);
}

#define THREADS 70 /* more than there are shards */
#define COUNTS  2000

static void *count_a_lot(void *arg)
{
    sl_stats *st = arg;
    unsigned shard = sl_stats_shard(st);
    for (int i = 0; i < COUNTS; i++) {
        sl_stats_add(st, shard, MSG_0, 1);
        sl_stats_observe(st, shard, LATENCY, 0.01);
    }
    return NULL;
}

static void test_stats_counts_exactly_from_many_threads(void **state)
{
    (void)state;
    sl_stats *st = sl_stats_new(rows, ROWS);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_a_lot, st), 0);
    int64_t last = 0;
    for (int i = 0; i < 100; i++) { // a page may be made while threads count, and never goes back
        int64_t now = sl_stats_get(st, MSG_0);
        assert_true(now >= last);
        last = now;
    }
    char *page = page_of(st);
    sl_free(page);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(sl_stats_get(st, MSG_0), THREADS * COUNTS);
    assert_int_equal(sl_stats_get(st, LATENCY), THREADS * COUNTS);
    sl_stats_free(&st);
}

static void *count_together(void *arg)
{
    sl_stats *st = arg;
    unsigned shard = sl_stats_shard(st);
    assert_int_equal(shard, SL_STATS_SHARDS - 1);
    while (sl_stats_get(st, CONNS) == 0)
        sched_yield(); // all begin together: only then can a count get lost
    for (int i = 0; i < 100 * COUNTS; i++)
        sl_stats_add(st, shard, MSG_1, 1);
    return NULL;
}

static void test_stats_shared_shard_loses_nothing(void **state)
{
    (void)state;
    sl_stats *st = sl_stats_new(rows, ROWS);
    unsigned mine = sl_stats_shard(st);
    for (unsigned i = 1; i < SL_STATS_SHARDS - 1; i++)
        assert_int_equal(sl_stats_shard(st), i);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_together, st), 0);
    sl_stats_add(st, mine, CONNS, 1); // go
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(sl_stats_get(st, MSG_1), 4 * 100 * COUNTS);
    sl_stats_free(&st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stats_sums_shards_and_sets),
        cmocka_unit_test(test_stats_asks_a_source),
        cmocka_unit_test(test_stats_page_groups_names),
        cmocka_unit_test(test_stats_histogram_fills_buckets),
        cmocka_unit_test(test_stats_shards_run_out_into_a_shared_one),
        cmocka_unit_test(test_stats_reference_has_a_line_per_row),
        cmocka_unit_test(test_stats_counts_exactly_from_many_threads),
        cmocka_unit_test(test_stats_shared_shard_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
