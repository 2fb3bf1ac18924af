/* SPDX-License-Identifier: Apache-2.0
 *
 * log_retention_test: what the embedded log removes, when, and what holds it back. The passes are
 * called by the test; the clock is the fixture's.
 */
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "log/elog_fn.h"
#include "log_fixture.h"
#include "sl_test.h"

static const sl_stat_row stat_rows[] = {
#define TEST_ROW(name, kind, metric, help) {metric, NULL, SL_STAT_##kind, help},
    SL_LOG_STAT_MAP(TEST_ROW)
#undef TEST_ROW
};

static sl_stats *stats;

static void tweak(sl_log_options *options)
{
    options->stats = stats;
    options->ring_bytes = 64 << 10;
}

static int setup(void **state)
{
    log_fx *fx = sl_calloc(1, sizeof *fx);
    stats = sl_stats_new(stat_rows, SL_LOG_STAT_COUNT);
    log_fx_init(fx, &sl_log_embedded_ops, tweak);
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    log_fx *fx = *state;
    log_fx_fini(fx);
    sl_free(fx);
    sl_stats_free(&stats);
    return 0;
}

static sl_log_topic *open_topic(log_fx *fx, const char *name, uint16_t partitions,
                                int64_t retention_ms, int64_t retention_bytes, const char *pinned)
{
    sl_log_topic *topic = NULL;
    const sl_log_topic_spec spec = {.name = name,
                                    .partitions = partitions,
                                    .durable = true,
                                    .many = partitions == 1,
                                    .retention_ms = retention_ms,
                                    .retention_bytes = retention_bytes,
                                    .pinned_group = pinned};
    SL_TEST_OK(sl_log_topic_open(fx->log, &spec, &topic));
    return topic;
}

static void run(log_fx *fx)
{
    elog_retention_run(elog_of(fx->log));
}

/* Records of 10 kB. */
static void append_bulk(log_fx *fx, sl_log_topic *topic, uint16_t partition, unsigned count)
{
    char *text = sl_alloc(10000);
    memset(text, 'x', 10000);
    for (unsigned i = 0; i < count; i++) {
        const sl_log_record_in in = {.key = sl_slice_str("k"),
                                     .value = {sl_slice_of(text, 10000)},
                                     .time_ms = sl_clock_wall(&fx->clock)};
        SL_TEST_OK(sl_log_append(fx->pr, topic, partition, &in, i));
        if (i % 20 == 19)
            log_fx_wait(fx, fx->done_count + 1);
    }
    sl_free(text);
    SL_TEST_OK(sl_log_sync(fx->log));
    sl_log_producer_drain(fx->pr);
}

static sl_log_partition_info describe(sl_log_topic *topic, uint16_t partition)
{
    sl_log_partition_info info;
    SL_TEST_OK(sl_log_topic_describe(topic, partition, &info));
    return info;
}

static uint64_t first_offset(log_fx *fx, sl_log_topic *topic, uint16_t partition)
{
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, partition, 0));
    sl_log_batch batch;
    size_t count = 0, pos = 0;
    SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 20000, &count));
    assert_int_equal(count, 1);
    sl_log_record rec;
    assert_true(sl_log_batch_next(&batch, &pos, &rec));
    uint64_t offset = rec.offset;
    sl_log_batch_release(&batch);
    sl_log_consumer_close(&co);
    return offset;
}

static void test_retention_by_size_keeps_the_limit(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = open_topic(fx, "app", 1, -1, 2 << 20, NULL);
    append_bulk(fx, topic, 0, 100);
    run(fx);
    assert_int_equal(describe(topic, 0).start, 0); // 1 MB of 2
    append_bulk(fx, topic, 0, 500);
    run(fx);
    sl_log_partition_info info = describe(topic, 0);
    assert_true(info.start > 300 && info.start <= 600 - 209); // 2 MB are some 209 records
    assert_true(info.bytes >= 2 << 20 && info.bytes < (2 << 20) + (200 << 10));
    assert_int_equal(sl_stats_get(stats, SL_LOG_STAT_TRIMMED), info.start);
    assert_int_equal(first_offset(fx, topic, 0), info.start);
    log_fx_close(fx);
    log_fx_open(fx);
    topic = open_topic(fx, "app", 1, -1, 2 << 20, NULL);
    assert_int_equal(describe(topic, 0).start, info.start);
    assert_int_equal(describe(topic, 0).written, 600);
    assert_int_equal(first_offset(fx, topic, 0), info.start);
}

static uint64_t stored_bytes(const char *dir)
{
    uint64_t sum = 0;
    DIR *folder = opendir(dir);
    const struct dirent *entry;
    while ((entry = readdir(folder)) != NULL) {
        char path[512];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (strstr(entry->d_name, ".sst") != NULL && stat(path, &st) == 0)
            sum += (uint64_t)st.st_size;
    }
    closedir(folder);
    return sum;
}

static void test_retention_of_a_hot_partition_deletes_files(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = open_topic(fx, "hot", 12, -1, 8 << 20, NULL);
    append_bulk(fx, topic, 3, 6000); // 60 MB: seven files and a memtable
    log_fx_close(fx);
    log_fx_open(fx);
    topic = open_topic(fx, "hot", 12, -1, 8 << 20, NULL);
    assert_true(stored_bytes(fx->dir) > 55u << 20);
    run(fx);
    sl_log_partition_info info = describe(topic, 3);
    // The sizes of an earlier run are estimates over 32 pieces of the offsets.
    assert_true(info.start > 4500 && info.start < 5400);
    assert_int_equal(first_offset(fx, topic, 3), info.start);
    log_fx_close(fx);
    assert_true(stored_bytes(fx->dir) < 30u << 20);
    log_fx_open(fx);
    topic = open_topic(fx, "hot", 12, -1, 8 << 20, NULL);
    assert_int_equal(describe(topic, 3).written, 6000);
    assert_int_equal(first_offset(fx, topic, 3), info.start);
}

static void test_retention_by_age_follows_the_clock(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = open_topic(fx, "aged", 12, 60000, -1, NULL);
    for (unsigned i = 0; i < 10; i++) {
        log_fx_append(fx, topic, 0, "k", "v", 0, i);
        log_fx_wait(fx, i + 1);
        sl_clock_advance(&fx->clock, 10000);
    }
    run(fx); // now is 100 s: what is older than 60 s goes (0 .. 3)
    assert_int_equal(describe(topic, 0).start, 4);
    assert_int_equal(first_offset(fx, topic, 0), 4);
    sl_clock_advance(&fx->clock, 1000000);
    run(fx);
    assert_int_equal(describe(topic, 0).start, 10);
    // Nothing is left, but the offsets go on.
    log_fx_close(fx);
    log_fx_open(fx);
    topic = open_topic(fx, "aged", 12, 60000, -1, NULL);
    log_fx_append(fx, topic, 0, "k", "v", 0, 99);
    log_fx_wait(fx, 11);
    assert_int_equal(log_fx_done(fx, 99)->offset, 10);
    assert_int_equal(first_offset(fx, topic, 0), 10);
}

static void test_retention_never_passes_a_pinned_group(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = open_topic(fx, "t", 12, 1000, -1, "pin");
    for (unsigned i = 0; i < 10; i++) {
        log_fx_append(fx, topic, 0, "k", "v", 0, i);
        log_fx_wait(fx, i + 1);
    }
    sl_clock_advance(&fx->clock, 100000);
    run(fx);
    assert_int_equal(describe(topic, 0).start, 0); // the group never committed
    assert_int_equal(sl_stats_get(stats, SL_LOG_STAT_RETENTION_HELD), 1);
    SL_TEST_OK(sl_log_group_set(fx->log, "pin", topic, 0, 6));
    run(fx);
    assert_int_equal(describe(topic, 0).start, 6);
    assert_int_equal(sl_stats_get(stats, SL_LOG_STAT_RETENTION_HELD), 1);
    SL_TEST_OK(sl_log_group_set(fx->log, "pin", topic, 0, 10));
    run(fx);
    assert_int_equal(describe(topic, 0).start, 10);
    assert_int_equal(sl_stats_get(stats, SL_LOG_STAT_RETENTION_HELD), 0);
}

/* Derives from offset of the source. */
static void derive(log_fx *fx, sl_log_topic *source, uint64_t offset, sl_log_topic *target)
{
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, source, 0, offset));
    sl_log_batch batch;
    size_t count = 0, pos = 0;
    SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 20000, &count));
    assert_int_equal(count, 1);
    sl_log_record rec;
    assert_true(sl_log_batch_next(&batch, &pos, &rec));
    assert_int_equal(rec.offset, offset);
    const sl_log_record_in in = {.key = sl_slice_str("d")};
    size_t before = fx->done_count;
    SL_TEST_OK(sl_log_append_derived(fx->pr, target, 0, source, 0, &rec, &in, 1));
    log_fx_wait(fx, before + 1);
    sl_log_batch_release(&batch);
    sl_log_consumer_close(&co);
}

static void append_ten(log_fx *fx, sl_log_topic *topic)
{
    for (unsigned i = 0; i < 10; i++) {
        char text[16];
        snprintf(text, sizeof text, "value %u", i);
        log_fx_append(fx, topic, 0, "k", text, 0, i);
        log_fx_wait(fx, fx->done_count + 1);
    }
}

/* Without the right to copy (or when a pass's share is used up) references hold their source. */
static void test_retention_keeps_what_live_references_need(void **state)
{
    log_fx *fx = *state;
    elog_of(fx->log)->copy_budget = 0;
    sl_log_topic *source = open_topic(fx, "s", 12, 1000, -1, NULL);
    sl_log_topic *target = open_topic(fx, "d", 1, -1, -1, "reader");
    append_ten(fx, source);
    derive(fx, source, 4, target);
    derive(fx, source, 7, target);
    sl_clock_advance(&fx->clock, 100000);
    run(fx);
    assert_int_equal(describe(source, 0).start, 4);
    assert_int_equal(sl_stats_get(stats, SL_LOG_STAT_RETENTION_HELD), 1);
    SL_TEST_OK(sl_log_group_set(fx->log, "reader", target, 0, 1)); // 4 was read
    run(fx);
    // References are counted in runs of some hundred: a run holds until all of it was read.
    assert_int_equal(describe(source, 0).start, 4);
    // An earlier process's references are found again, those that still live.
    log_fx_close(fx);
    log_fx_open(fx);
    elog_of(fx->log)->copy_budget = 0;
    source = open_topic(fx, "s", 12, 1000, -1, NULL);
    target = open_topic(fx, "d", 1, -1, -1, "reader");
    run(fx);
    assert_int_equal(describe(source, 0).start, 7);
    sl_log_consumer *co = log_fx_consumer(fx, "reader", SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, SL_LOG_COMMITTED));
    log_fx_record record;
    log_fx_read(co, &record, 1);
    assert_string_equal(record.value, "value 7");
    sl_log_consumer_close(&co);
    SL_TEST_OK(sl_log_group_set(fx->log, "reader", target, 0, 2));
    run(fx);
    assert_int_equal(describe(source, 0).start, 10);
}

/* Who is away does not hold the source: its references become copies. */
static void test_retention_copies_out_what_references_need(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *source = open_topic(fx, "s", 12, 1000, -1, NULL);
    sl_log_topic *target = open_topic(fx, "d", 1, -1, -1, "away");
    append_ten(fx, source);
    derive(fx, source, 4, target);
    derive(fx, source, 4, target);
    derive(fx, source, 7, target);
    // A reader that holds the batches from before.
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    sl_log_batch batches[3];
    size_t count = 0;
    SL_TEST_OK(sl_log_consumer_poll(co, batches, 3, 20000, &count));
    assert_int_equal(count, 3);
    sl_clock_advance(&fx->clock, 100000);
    append_bulk(fx, target, 0, 20); // the ring forgets the sources
    run(fx);
    assert_int_equal(describe(source, 0).start, 10);
    assert_int_equal(sl_stats_get(stats, SL_LOG_STAT_RETENTION_HELD), 0);
    const char *const values[3] = {"value 4", "value 4", "value 7"};
    for (unsigned i = 0; i < 3; i++) {
        sl_log_record rec;
        size_t pos = 0;
        assert_true(sl_log_batch_next(&batches[i], &pos, &rec));
        assert_int_equal(rec.value.len, 7);
        assert_memory_equal(rec.value.ptr, values[i], 7);
        assert_int_equal(rec.key.len, 1);
        assert_false(sl_log_batch_next(&batches[i], &pos, &rec));
        sl_log_batch_release(&batches[i]);
    }
    sl_log_consumer_close(&co);
    assert_int_equal(atomic_load(&elog_of(fx->log)->lost_sources), 0);
    log_fx_close(fx);
    log_fx_open(fx);
    source = open_topic(fx, "s", 12, 1000, -1, NULL);
    assert_int_equal(describe(source, 0).start, 10);
    sl_log_topic_spec spec = {
        .name = "d", .partitions = 1, .many = true, .retention_ms = -1, .retention_bytes = -1};
    SL_TEST_OK(sl_log_topic_open(fx->log, &spec, &target));
    SL_TEST_OK(sl_log_group_set(fx->log, "x", target, 0, 3));
    log_fx_record records[23];
    co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    log_fx_read(co, records, 23);
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(records[i].offset, i);
        assert_string_equal(records[i].key, "d");
        assert_string_equal(records[i].value, values[i]);
        assert_true(records[i].is_derived);
        assert_int_equal(records[i].source_offset, i < 2 ? 4 : 7);
    }
    sl_log_consumer_close(&co);
}

/* Batches that outgrow a piece, sources in several partitions, some of them not due. */
static void test_retention_copies_out_large_batches_in_pieces(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *source = open_topic(fx, "s", 12, 1000, -1, NULL);
    sl_log_topic *young = open_topic(fx, "y", 12, -1, -1, NULL);
    sl_log_topic *target = open_topic(fx, "d", 1, -1, -1, NULL);
    append_bulk(fx, source, 0, 300); // 3 MB
    append_ten(fx, young);
    sl_log_topic *const from[2] = {source, young};
    for (unsigned k = 0; k < 2; k++) {
        sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
        SL_TEST_OK(sl_log_consumer_assign(co, from[k], 0, 0));
        for (unsigned got = 0; got < (k == 0 ? 300u : 10u);) {
            sl_log_batch batch;
            size_t count = 0, pos = 0;
            SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 20000, &count));
            sl_log_record rec;
            for (; count == 1 && sl_log_batch_next(&batch, &pos, &rec); got++) {
                const sl_log_record_in in = {.attr = (uint8_t)k, .flags = SL_LOG_NO_ACK};
                SL_TEST_OK(sl_log_append_derived(fx->pr, target, 0, from[k], 0, &rec, &in, 0));
            }
            sl_log_batch_release(&batch);
        }
        sl_log_consumer_close(&co);
    }
    SL_TEST_OK(sl_log_sync(fx->log));
    uint64_t before = describe(target, 0).bytes;
    sl_clock_advance(&fx->clock, 100000);
    run(fx);
    assert_int_equal(describe(source, 0).start, 300);
    assert_int_equal(describe(young, 0).start, 0);
    assert_true(describe(target, 0).bytes > before + 2900000);
    log_fx_close(fx);
    log_fx_open(fx);
    target = open_topic(fx, "d", 1, -1, -1, NULL);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    log_fx_record *records = sl_calloc(310, sizeof *records);
    log_fx_read(co, records, 310);
    for (unsigned i = 0; i < 310; i++) {
        assert_int_equal(records[i].offset, i);
        assert_int_equal(records[i].attr, i < 300 ? 0 : 1);
        assert_int_equal(records[i].source_offset, i < 300 ? i : i - 300);
        assert_true(i < 300 ? records[i].value_len == 10000 : records[i].value_len == 7);
    }
    sl_free(records);
    sl_log_consumer_close(&co);
}

static void test_retention_makes_copies_of_what_is_about_to_go(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *source = open_topic(fx, "s", 12, 1000, -1, "slow");
    sl_log_topic *target = open_topic(fx, "d", 1, -1, -1, NULL);
    append_ten(fx, source);
    sl_clock_advance(&fx->clock, 100000);
    run(fx); // all of it should go, the slow group holds it
    assert_int_equal(describe(source, 0).start, 0);
    derive(fx, source, 2, target);
    SL_TEST_OK(sl_log_group_set(fx->log, "slow", source, 0, 10));
    run(fx);
    assert_int_equal(describe(source, 0).start, 10); // the derived record does not hold it
    log_fx_close(fx);
    log_fx_open(fx);
    target = open_topic(fx, "d", 1, -1, -1, NULL);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    log_fx_record record;
    log_fx_read(co, &record, 1);
    assert_string_equal(record.value, "value 2");
    assert_string_equal(record.key, "d");
    assert_true(record.is_derived);
    assert_int_equal(record.source_offset, 2);
    sl_log_consumer_close(&co);
}

static void test_retention_of_a_deleted_topic_frees_its_sources(void **state)
{
    log_fx *fx = *state;
    elog_of(fx->log)->copy_budget = 0;
    sl_log_topic *source = open_topic(fx, "s", 12, 1000, -1, NULL);
    sl_log_topic *target = open_topic(fx, "d", 1, -1, -1, "reader");
    append_ten(fx, source);
    derive(fx, source, 0, target);
    sl_clock_advance(&fx->clock, 100000);
    run(fx);
    assert_int_equal(describe(source, 0).start, 0);
    SL_TEST_OK(sl_log_topic_delete(fx->log, "d"));
    run(fx);
    assert_int_equal(describe(source, 0).start, 10);
}

static unsigned count_rows(log_fx *fx)
{
    elog *el = elog_of(fx->log);
    unsigned rows = 0;
    rocksdb_iterator_t *it = rocksdb_create_iterator_cf(el->db, el->ro_point, el->cf[ELOG_CF_ROWS]);
    for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it))
        rows++;
    rocksdb_iter_destroy(it);
    return rows;
}

static void test_retention_collects_rows_of_removed_keys(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_append(fx, topic, 0, "a", "1", 0, 1);
    log_fx_append(fx, topic, 0, "b", "1", 0, 2);
    log_fx_append(fx, topic, 0, "b", "", 0, 3);
    log_fx_wait(fx, 3);
    log_fx_append(fx, topic, 0, "c", "1", 0, 4);
    log_fx_wait(fx, 4);
    assert_int_equal(count_rows(fx), 3); // the reader has not seen that b is gone
    log_fx_record records[4];
    log_fx_read(co, records, 4);
    log_fx_append(fx, topic, 0, "d", "1", 0, 5);
    log_fx_wait(fx, 5);
    assert_int_equal(count_rows(fx), 3); // a, c, d
    sl_log_consumer_close(&co);

    // What a run leaves behind, the next one sweeps.
    log_fx_append(fx, topic, 0, "c", "", 0, 6);
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    assert_int_equal(count_rows(fx), 3);
    run(fx);
    log_fx_append(fx, topic, 0, "e", "1", 0, 7);
    log_fx_wait(fx, 7);
    assert_int_equal(count_rows(fx), 3); // a, d, e
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_retention_by_size_keeps_the_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retention_of_a_hot_partition_deletes_files, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_retention_by_age_follows_the_clock, setup, teardown),
        cmocka_unit_test_setup_teardown(test_retention_never_passes_a_pinned_group, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_retention_keeps_what_live_references_need, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_retention_copies_out_what_references_need, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_retention_copies_out_large_batches_in_pieces, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_retention_makes_copies_of_what_is_about_to_go, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_retention_of_a_deleted_topic_frees_its_sources, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_retention_collects_rows_of_removed_keys, setup,
                                        teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
