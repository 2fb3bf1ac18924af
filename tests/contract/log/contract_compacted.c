/* SPDX-License-Identifier: Apache-2.0
 *
 * contract_compacted: topics that keep the newest value per key: snapshots, tails, removals. What
 * a reader ends up with is compared with a table that applies the same writes.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "log_contract.h"
#include "sl_test.h"

#define KEYS 40

typedef struct table {
    char values[KEYS][32]; /* "" = absent */
} table;

static void key_name(char out[16], unsigned key)
{
    snprintf(out, 16, "key-%u", key);
}

static void write_key(log_fx *fx, sl_log_topic *topic, table *tb, unsigned key, const char *value)
{
    char name[16];
    key_name(name, key);
    log_fx_append(fx, topic, 0, name, value, 0, 0);
    log_fx_wait(fx, fx->done_count + 1);
    snprintf(tb->values[key], sizeof tb->values[key], "%s", value);
}

static void apply_record(table *tb, const sl_log_record *rec)
{
    char name[16] = "";
    memcpy(name, rec->key.ptr, rec->key.len < 15 ? rec->key.len : 15);
    if (strncmp(name, "key-", 4) != 0)
        return;
    unsigned key = (unsigned)strtoul(name + 4, NULL, 10);
    assert_true(key < KEYS);
    snprintf(tb->values[key], sizeof tb->values[key], "%.*s", (int)rec->value.len,
             rec->value.len > 0 ? (const char *)rec->value.ptr : "");
}

/* Applies everything up to the record with this key. Gives the number of records. */
static unsigned apply_to(sl_log_consumer *co, table *tb, const char *marker)
{
    unsigned records = 0;
    bool found = false;
    while (!found) {
        sl_log_batch batches[2];
        size_t count = 0;
        SL_TEST_OK(sl_log_consumer_poll(co, batches, 2, 20000, &count));
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++) {
            sl_log_record rec;
            size_t pos = 0;
            while (sl_log_batch_next(&batches[i], &pos, &rec)) {
                if (!sl_log_in_stage(&rec, batches[i].stages))
                    continue;
                records++;
                apply_record(tb, &rec);
                found = found || (rec.key.len == strlen(marker) &&
                                  memcmp(rec.key.ptr, marker, rec.key.len) == 0);
            }
            sl_log_batch_release(&batches[i]);
        }
    }
    return records;
}

static void assert_same(const table *got, const table *want)
{
    for (unsigned i = 0; i < KEYS; i++)
        assert_string_equal(got->values[i], want->values[i]);
}

static void test_compacted_new_reader_gets_the_state_then_the_tail(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    table want = {0}, got = {0};
    for (unsigned i = 0; i < KEYS; i++)
        write_key(fx, topic, &want, i, "first");
    for (unsigned i = 0; i < KEYS; i += 2)
        write_key(fx, topic, &want, i, "second");
    for (unsigned i = 0; i < KEYS; i += 5)
        write_key(fx, topic, &want, i, "");
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_append(fx, topic, 0, "marker", "m", 0, 1);
    unsigned records = apply_to(co, &got, "marker");
    assert_int_equal(records, KEYS - KEYS / 5 + 1); // the newest value per key only
    assert_same(&got, &want);
    write_key(fx, topic, &want, 3, "third");
    write_key(fx, topic, &want, 4, "");
    log_fx_append(fx, topic, 0, "end", "e", 0, 1);
    apply_to(co, &got, "end");
    assert_same(&got, &want);
    sl_log_consumer_close(&co);
}

static void test_compacted_sequence_goes_on_after_a_restart(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    log_fx_append(fx, topic, 0, "a", "1", 0, 1);
    log_fx_append(fx, topic, 0, "a", "2", 0, 2);
    log_fx_append(fx, topic, 0, "a", "", 0, 3);
    log_fx_wait(fx, 3);
    uint64_t last = log_fx_done(fx, 3)->offset;
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    log_fx_append(fx, topic, 0, "b", "1", 0, 4);
    log_fx_wait(fx, 4);
    assert_true(log_fx_done(fx, 4)->offset > last);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_record record;
    log_fx_read(co, &record, 1); // "a" was removed before
    assert_string_equal(record.key, "b");
    log_fx_expect_silence(fx, co);
    sl_log_consumer_close(&co);
}

static void test_compacted_keeps_fields_and_offsets_of_rows(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    const sl_log_header header = {SL_LOG_H_PUBLISHER, sl_slice_str("p")};
    const sl_log_record_in in = {.key = sl_slice_str("k"),
                                 .value = {sl_slice_str("v")},
                                 .headers = &header,
                                 .header_count = 1,
                                 .time_ms = 555,
                                 .attr = 3};
    log_fx_append(fx, topic, 0, "k", "old", 0, 1);
    SL_TEST_OK(sl_log_append(fx->pr, topic, 0, &in, 2));
    log_fx_wait(fx, 2);
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_record record;
    log_fx_read(co, &record, 1);
    assert_string_equal(record.value, "v");
    assert_string_equal(record.header, "p");
    assert_int_equal(record.time_ms, 555);
    assert_int_equal(record.attr, 3);
    assert_int_equal(record.offset, log_fx_done(fx, 2)->offset);
    sl_log_consumer_close(&co);
}

/* A reader that stands still while far more is written than the ring holds. */
static void test_compacted_reader_that_fell_behind_learns_removals(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    table want = {0}, got = {0};
    for (unsigned i = 0; i < KEYS; i++)
        write_key(fx, topic, &want, i, "first");
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_append(fx, topic, 0, "marker", "m", 0, 1);
    apply_to(co, &got, "marker");
    assert_same(&got, &want);
    for (unsigned round = 0; round < 30; round++) {
        for (unsigned i = 0; i < KEYS; i++) {
            char text[32];
            snprintf(text, sizeof text, "round %u", round);
            write_key(fx, topic, &want, i, (i + round) % 3 == 0 ? "" : text);
        }
    }
    log_fx_append(fx, topic, 0, "end", "e", 0, 1);
    log_fx_wait(fx, fx->done_count + 1);
    unsigned records = apply_to(co, &got, "end");
    assert_same(&got, &want);
    assert_true(records < 30 * KEYS); // a snapshot, not all the writes
    // And a removed key stays removed for who comes later.
    sl_log_consumer *late = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(late, topic, 0, 0));
    table fresh = {0};
    apply_to(late, &fresh, "end");
    assert_same(&fresh, &want);
    sl_log_consumer_close(&late);
    sl_log_consumer_close(&co);
}

static void test_compacted_snapshot_comes_in_pieces(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    char *text = sl_calloc(1, 2001);
    memset(text, 'x', 2000);
    for (unsigned i = 0; i < 300; i++) {
        char name[16];
        key_name(name, i);
        log_fx_append(fx, topic, 0, name, text, 0, i);
    }
    log_fx_wait(fx, 300);
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "c", 1, LOG_FX_COMPACTED);
    sl_log_consumer *co = NULL;
    const sl_log_consumer_options options = {.max_batch_bytes = 50000};
    SL_TEST_OK(sl_log_consumer_open(fx->log, &options, &co));
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    sl_log_partition_info info;
    SL_TEST_OK(sl_log_topic_describe(topic, 0, &info));
    assert_true(info.bytes > 500000 && info.bytes < 1200000); // 600 kB were stored
    unsigned got = 0, polls = 0;
    while (got < 300) {
        sl_log_batch batches[4];
        size_t count = 0;
        SL_TEST_OK(sl_log_consumer_poll(co, batches, 4, 20000, &count));
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++) {
            got += batches[i].count;
            sl_log_batch_release(&batches[i]);
        }
        polls++;
    }
    assert_int_equal(got, 300);
    assert_true(polls >= 10);
    sl_free(text);
    sl_log_consumer_close(&co);
}

int log_contract_compacted(void)
{
    const struct CMUnitTest tests[] = {
        LOG_CONTRACT_TEST(test_compacted_new_reader_gets_the_state_then_the_tail),
        LOG_CONTRACT_TEST(test_compacted_sequence_goes_on_after_a_restart),
        LOG_CONTRACT_TEST(test_compacted_keeps_fields_and_offsets_of_rows),
        LOG_CONTRACT_TEST_SMALL(test_compacted_reader_that_fell_behind_learns_removals),
        LOG_CONTRACT_TEST(test_compacted_snapshot_comes_in_pieces),
    };
    return cmocka_run_group_tests_name("compacted", tests, NULL, NULL);
}
