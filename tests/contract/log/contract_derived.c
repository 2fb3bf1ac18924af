/* SPDX-License-Identifier: Apache-2.0
 *
 * contract_derived: records that stand for a source record.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "log_contract.h"
#include "sl_test.h"

typedef void for_each_f(log_fx *fx, sl_log_topic *source, uint16_t partition,
                        const sl_log_record *rec, sl_log_topic *target, uint64_t token);

static void derive(log_fx *fx, sl_log_topic *source, uint16_t partition, const sl_log_record *rec,
                   sl_log_topic *target, uint64_t token)
{
    const sl_log_header header = {SL_LOG_H_NODE, sl_slice_str("derived-by")};
    const sl_log_record_in in = {
        .key = sl_slice_str("client"), .headers = &header, .header_count = 1, .attr = 2};
    SL_TEST_OK(sl_log_append_derived(fx->pr, target, 0, source, partition, rec, &in, token));
}

static void derive_bare(log_fx *fx, sl_log_topic *source, uint16_t partition,
                        const sl_log_record *rec, sl_log_topic *target, uint64_t token)
{
    const sl_log_record_in in = {.attr = 1};
    SL_TEST_OK(sl_log_append_derived(fx->pr, target, 0, source, partition, rec, &in, token));
}

/* Reads count records of a partition and calls fn while they are held. */
static void each_record(log_fx *fx, sl_log_topic *source, uint16_t partition, unsigned count,
                        for_each_f *fn, sl_log_topic *target)
{
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, source, partition, 0));
    unsigned got = 0;
    while (got < count) {
        sl_log_batch batch;
        size_t batch_count = 0, pos = 0;
        SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 20000, &batch_count));
        assert_int_equal(batch_count, 1);
        sl_log_record rec;
        while (sl_log_batch_next(&batch, &pos, &rec))
            fn(fx, source, partition, &rec, target, 10000 + got++);
        sl_log_batch_release(&batch);
    }
    sl_log_consumer_close(&co);
}

static void append_sources(log_fx *fx, sl_log_topic *topic, uint16_t partition, unsigned count)
{
    const sl_log_header header = {SL_LOG_H_PUBLISHER, sl_slice_str("publisher")};
    size_t before = fx->done_count;
    for (unsigned i = 0; i < count; i++) {
        char text[80];
        snprintf(text, sizeof text, "payload %u %050u", i, i);
        const sl_log_record_in in = {.key = sl_slice_str("topic/name"),
                                     .value = {sl_slice_str(text)},
                                     .headers = &header,
                                     .header_count = 1,
                                     .time_ms = 1000 + i};
        SL_TEST_OK(sl_log_append(fx->pr, topic, partition, &in, i));
        if (i % 50 == 49)
            log_fx_wait(fx, before + i - 40);
    }
    log_fx_wait(fx, before + count);
}

static void check_derived(const log_fx_record *rec, uint16_t partition, unsigned index)
{
    char text[80];
    snprintf(text, sizeof text, "payload %u %050u", index, index);
    assert_string_equal(rec->key, "client");
    assert_string_equal(rec->value, text);
    assert_string_equal(rec->header, "publisher");
    assert_string_equal(rec->node, "derived-by");
    assert_int_equal(rec->time_ms, 1000 + index);
    assert_int_equal(rec->attr, 2);
    assert_true(rec->is_derived);
    assert_int_equal(rec->source_partition, partition);
    assert_int_equal(rec->source_offset, index);
}

static void test_derived_record_reads_like_its_source(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *source = log_fx_topic(fx, "s", 4, LOG_FX_PLAIN);
    sl_log_topic *target = log_fx_topic(fx, "d", 1, LOG_FX_MANY);
    append_sources(fx, source, 3, 100);
    each_record(fx, source, 3, 100, derive, target);
    log_fx_wait(fx, 200);
    for (unsigned i = 0; i < 100; i++)
        assert_int_equal(log_fx_done(fx, 10000 + i)->offset, i);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, true);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    log_fx_record *records = sl_calloc(100, sizeof *records);
    log_fx_read(co, records, 100);
    for (unsigned i = 0; i < 100; i++)
        check_derived(&records[i], 3, i);
    sl_log_consumer_close(&co);
    sl_free(records);
}

static void test_derived_records_survive_a_restart(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *source = log_fx_topic(fx, "s", 16, LOG_FX_PLAIN);
    sl_log_topic *target = log_fx_topic(fx, "d", 1, LOG_FX_MANY);
    append_sources(fx, source, 3, 60);
    append_sources(fx, source, 9, 60);
    each_record(fx, source, 3, 60, derive, target);
    each_record(fx, source, 9, 60, derive, target);
    log_fx_close(fx);
    log_fx_open(fx);
    target = log_fx_topic(fx, "d", 1, LOG_FX_MANY);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    log_fx_record *records = sl_calloc(120, sizeof *records);
    log_fx_read(co, records, 120);
    for (unsigned i = 0; i < 120; i++)
        check_derived(&records[i], i < 60 ? 3 : 9, i % 60);
    sl_log_consumer_close(&co);
    sl_free(records);
}

/* The source has left the memory, the derived one has not. */
static void test_derived_record_finds_a_source_that_is_only_stored(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *source = log_fx_topic(fx, "s", 1, LOG_FX_PLAIN);
    sl_log_topic *target = log_fx_topic(fx, "d", 1, LOG_FX_MANY);
    append_sources(fx, source, 0, 1000);
    each_record(fx, source, 0, 20, derive, target);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    sl_log_batch batch;
    unsigned got = 0;
    while (got < 20) {
        size_t count = 0, pos = 0;
        SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 20000, &count));
        assert_int_equal(count, 1);
        sl_log_record rec;
        while (got < 20 && sl_log_batch_next(&batch, &pos, &rec)) {
            char text[80];
            snprintf(text, sizeof text, "payload %u %050u", got, got);
            assert_int_equal(rec.value.len, strlen(text));
            assert_memory_equal(rec.value.ptr, text, rec.value.len);
            // Body: what keeps the value after the batch is gone.
            assert_true(rec.value.ptr >= rec.body->data &&
                        rec.value.ptr + rec.value.len <= rec.body->data + rec.body->len);
            got++;
        }
        sl_log_batch_release(&batch);
    }
    sl_log_consumer_close(&co);
}

static void test_derived_without_key_and_headers_takes_the_sources(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *source = log_fx_topic(fx, "s", 1, LOG_FX_PLAIN);
    sl_log_topic *target = log_fx_topic(fx, "d", 1, LOG_FX_MANY);
    append_sources(fx, source, 0, 1);
    each_record(fx, source, 0, 1, derive_bare, target);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    log_fx_record rec;
    log_fx_read(co, &rec, 1);
    assert_string_equal(rec.key, "topic/name");
    assert_string_equal(rec.header, "publisher");
    assert_string_equal(rec.node, "");
    assert_int_equal(rec.attr, 1);
    sl_log_consumer_close(&co);
}

static void test_derived_of_a_derived_record_holds_the_value(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *source = log_fx_topic(fx, "s", 1, LOG_FX_PLAIN);
    sl_log_topic *middle = log_fx_topic(fx, "m", 1, LOG_FX_PLAIN);
    sl_log_topic *target = log_fx_topic(fx, "d", 1, LOG_FX_MANY);
    append_sources(fx, source, 0, 5);
    each_record(fx, source, 0, 5, derive, middle);
    each_record(fx, middle, 0, 5, derive_bare, target);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    log_fx_record records[5];
    log_fx_read(co, records, 5);
    for (unsigned i = 0; i < 5; i++) {
        char text[80];
        snprintf(text, sizeof text, "payload %u %050u", i, i);
        assert_string_equal(records[i].value, text);
        assert_string_equal(records[i].key, "client");
        assert_string_equal(records[i].header, "publisher");
        assert_int_equal(records[i].source_offset, i);
    }
    sl_log_consumer_close(&co);
}

static void test_derived_whose_source_topic_is_gone_is_passed_over(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *source = log_fx_topic(fx, "s", 1, LOG_FX_PLAIN);
    sl_log_topic *target = log_fx_topic(fx, "d", 1, LOG_FX_MANY);
    append_sources(fx, source, 0, 3);
    each_record(fx, source, 0, 3, derive, target);
    log_fx_wait(fx, 6);
    SL_TEST_OK(sl_log_topic_delete(fx->log, "s"));
    log_fx_append(fx, target, 0, "k", "plain", 0, 1);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, target, 0, 0));
    log_fx_record rec;
    log_fx_read(co, &rec, 1);
    assert_string_equal(rec.value, "plain");
    sl_log_consumer_close(&co);
}

int log_contract_derived(void)
{
    const struct CMUnitTest tests[] = {
        LOG_CONTRACT_TEST(test_derived_record_reads_like_its_source),
        LOG_CONTRACT_TEST(test_derived_records_survive_a_restart),
        LOG_CONTRACT_TEST_SMALL(test_derived_record_finds_a_source_that_is_only_stored),
        LOG_CONTRACT_TEST(test_derived_without_key_and_headers_takes_the_sources),
        LOG_CONTRACT_TEST(test_derived_of_a_derived_record_holds_the_value),
        LOG_CONTRACT_TEST(test_derived_whose_source_topic_is_gone_is_passed_over),
    };
    return cmocka_run_group_tests_name("derived", tests, NULL, NULL);
}
