/* SPDX-License-Identifier: Apache-2.0
 *
 * contract_append: producers: completions, order, limits, errors.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "log_contract.h"
#include "sl_test.h"

static void test_append_completes_once_in_order_with_offsets(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    for (uint64_t i = 0; i < 500; i++)
        log_fx_append(fx, topic, 0, "key", "value", 0, i);
    log_fx_wait(fx, 500);
    for (uint64_t i = 0; i < 500; i++) {
        assert_int_equal(fx->dones[i].token, i);
        assert_int_equal(fx->dones[i].offset, i);
        SL_TEST_OK(fx->dones[i].err);
    }
    SL_TEST_OK(sl_log_sync(fx->log));
    assert_int_equal(sl_log_producer_drain(fx->pr), 0);
    assert_int_equal(fx->done_count, 500);
}

static void test_append_by_key_uses_the_partition_of_the_key(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 16, LOG_FX_PLAIN);
    bool used[16] = {false};
    unsigned distinct = 0;
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    for (uint16_t i = 0; i < 16; i++)
        SL_TEST_OK(sl_log_consumer_assign(co, topic, i, 0));
    for (unsigned i = 0; i < 64; i++) {
        char key[16];
        snprintf(key, sizeof key, "key-%u", i);
        log_fx_append(fx, topic, SL_LOG_BY_KEY, key, "v", 0, i);
    }
    log_fx_record records[64];
    log_fx_read(co, records, 64);
    for (unsigned i = 0; i < 64; i++) {
        assert_int_equal(records[i].partition,
                         sl_log_partition_of(topic, sl_slice_str(records[i].key)));
        distinct += !used[records[i].partition];
        used[records[i].partition] = true;
    }
    assert_true(distinct > 8);
    sl_log_consumer_close(&co);
}

static void test_append_keeps_every_field_of_a_record(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    const sl_log_header headers[2] = {{SL_LOG_H_NODE, sl_slice_str("node-7")},
                                      {SL_LOG_H_PUBLISHER, sl_slice_str("client")}};
    const sl_log_record_in record = {
        .key = sl_slice_str("key"),
        .value = {sl_slice_str("a"), sl_slice_str(""), sl_slice_str("bc"), sl_slice_str("d")},
        .headers = headers,
        .header_count = 2,
        .flags = SL_LOG_DURABLE,
        .time_ms = 1234567890123,
        .attr = 7};
    SL_TEST_OK(sl_log_append(fx->pr, topic, 0, &record, 1));
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_record got;
    log_fx_read(co, &got, 1);
    assert_string_equal(got.key, "key");
    assert_string_equal(got.value, "abcd");
    assert_string_equal(got.header, "client");
    assert_string_equal(got.node, "node-7");
    assert_int_equal(got.time_ms, 1234567890123);
    assert_int_equal(got.attr, 7);
    assert_int_equal(got.flags, SL_LOG_DURABLE);
    assert_false(got.is_derived);
    sl_log_consumer_close(&co);
}

static void test_append_without_ack_completes_nothing(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    log_fx_append(fx, topic, 0, "k", "silent", SL_LOG_NO_ACK, 1);
    log_fx_append(fx, topic, 0, "k", "silent", SL_LOG_NO_ACK | SL_LOG_VOLATILE, 2);
    log_fx_append(fx, topic, 0, "k", "loud", 0, 3);
    log_fx_wait(fx, 1);
    SL_TEST_OK(sl_log_sync(fx->log));
    sl_log_producer_drain(fx->pr);
    assert_int_equal(fx->done_count, 1);
    assert_int_equal(fx->dones[0].token, 3);
    assert_int_equal(fx->dones[0].offset, 2);
}

static void test_append_refuses_bad_records(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    sl_log_header headers[SL_LOG_MAX_HEADERS + 1];
    for (unsigned i = 0; i <= SL_LOG_MAX_HEADERS; i++)
        headers[i] = (sl_log_header){SL_LOG_H_NODE, sl_slice_str("x")};
    sl_log_record_in record = {.headers = headers, .header_count = SL_LOG_MAX_HEADERS + 1};
    SL_TEST_ERR(sl_log_append(fx->pr, topic, 0, &record, 1), SL_EINVAL);
    record.header_count = 0;
    record.flags = SL_LOG_DURABLE | SL_LOG_VOLATILE;
    SL_TEST_ERR(sl_log_append(fx->pr, topic, 0, &record, 1), SL_EINVAL);
    record.flags = 0;
    SL_TEST_ERR(sl_log_append(fx->pr, topic, 2, &record, 1), SL_EINVAL);
    SL_TEST_ERR(sl_log_append(fx->pr, topic, -2, &record, 1), SL_EINVAL);
    // The length alone is refused: the bytes are never looked at.
    record.value[0] = sl_slice_of("x", SL_LOG_MAX_RECORD_BYTES + 1);
    SL_TEST_ERR(sl_log_append(fx->pr, topic, 0, &record, 1), SL_ETOOBIG);
    record.value[0] = sl_slice_of("x", 0);
    headers[0].value = sl_slice_of("x", 65536);
    record.header_count = 1;
    SL_TEST_ERR(sl_log_append(fx->pr, topic, 0, &record, 1), SL_ETOOBIG);
    SL_TEST_OK(sl_log_sync(fx->log));
    assert_int_equal(sl_log_producer_drain(fx->pr), 0);
}

static void test_append_takes_records_larger_than_a_batch(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    size_t len = 5u << 20;
    uint8_t *big = sl_alloc(len);
    for (size_t i = 0; i < len; i++)
        big[i] = (uint8_t)(i * 31 >> 3);
    log_fx_append(fx, topic, 0, "k", "before", 0, 1);
    const sl_log_record_in record = {.value = {sl_slice_of(big, len)}};
    SL_TEST_OK(sl_log_append(fx->pr, topic, 0, &record, 2));
    log_fx_append(fx, topic, 0, "k", "after", 0, 3);
    log_fx_wait(fx, 3);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 1));
    sl_log_batch batch;
    size_t count = 0;
    SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 20000, &count));
    assert_int_equal(count, 1);
    sl_log_record rec;
    size_t pos = 0;
    assert_true(sl_log_batch_next(&batch, &pos, &rec));
    assert_int_equal(rec.value.len, len);
    assert_memory_equal(rec.value.ptr, big, len);
    sl_log_batch_release(&batch);
    sl_log_consumer_close(&co);
    sl_free(big);
}

static void test_append_full_queue_says_again_then_room(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    char text[1000];
    memset(text, 'x', sizeof text);
    const sl_log_record_in record = {.value = {sl_slice_of(text, sizeof text)}};
    uint64_t taken = 0;
    sl_err err;
    // The writer empties the queue at the same time, so the bound shows sooner or later.
    while ((err = sl_log_append(fx->pr, topic, 0, &record, taken)) == SL_OK)
        taken++;
    SL_TEST_ERR(err, SL_EAGAIN);
    assert_true(taken >= 60); // 64 kB of queue
    assert_int_equal(fx->rooms, 0);
    log_fx_wait(fx, taken);
    SL_TEST_OK(sl_log_sync(fx->log));
    sl_log_producer_drain(fx->pr);
    assert_int_equal(fx->rooms, 1);
    SL_TEST_OK(sl_log_append(fx->pr, topic, 0, &record, taken));
    log_fx_wait(fx, taken + 1);
    for (uint64_t i = 0; i <= taken; i++)
        assert_int_equal(fx->dones[i].token, i);
}

static void test_append_to_a_deleted_topic_is_refused(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    log_fx_append(fx, topic, 0, "k", "old", 0, 1);
    log_fx_wait(fx, 1);
    SL_TEST_OK(sl_log_group_set(fx->log, "g", topic, 0, 1));
    SL_TEST_OK(sl_log_topic_delete(fx->log, "t"));
    SL_TEST_ERR(sl_log_topic_delete(fx->log, "t"), SL_ENOTFOUND);
    const sl_log_record_in record = {.value = {sl_slice_str("x")}};
    SL_TEST_ERR(sl_log_append(fx->pr, topic, 0, &record, 2), SL_ENOTFOUND);
    sl_log_partition_info info;
    SL_TEST_ERR(sl_log_topic_describe(topic, 0, &info), SL_ENOTFOUND);

    sl_log_topic *again = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    uint64_t offset = 0;
    SL_TEST_ERR(sl_log_group_get(fx->log, "g", again, 0, &offset), SL_ENOTFOUND);
    log_fx_append(fx, again, 0, "k", "new", 0, 3);
    sl_log_consumer *co = log_fx_consumer(fx, "g", SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, again, 0, SL_LOG_COMMITTED));
    log_fx_record got;
    log_fx_read(co, &got, 1);
    assert_string_equal(got.value, "new");
    sl_log_consumer_close(&co);
}

static void test_producer_close_completes_what_is_open(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 4, LOG_FX_PLAIN);
    for (uint64_t i = 0; i < 1000; i++)
        log_fx_append(fx, topic, (int)(i % 4), "k", "v", 0, i);
    sl_log_producer_close(&fx->pr);
    assert_null(fx->pr);
    assert_int_equal(fx->done_count, 1000);
}

typedef struct chained {
    sl_log_producer *pr;
    sl_log_topic *topic;
    unsigned done;
    unsigned refused;
} chained;

/* Appends from its completions, as a release does. */
static void append_again(void *arg, const sl_log_done *dones, size_t count)
{
    chained *ch = arg;
    (void)dones;
    const sl_log_record_in in = {.value = {sl_slice_str("v")}};
    for (size_t i = 0; i < count; i++) {
        ch->done++;
        sl_err err = sl_log_append(ch->pr, ch->topic, 0, &in, 1);
        if (err != SL_OK) {
            SL_TEST_ERR(err, SL_ECLOSED);
            ch->refused++;
        }
    }
}

static void test_producer_close_refuses_what_completions_append(void **state)
{
    log_fx *fx = *state;
    chained ch = {.topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN)};
    const sl_log_producer_options po = {.done = append_again, .arg = &ch};
    SL_TEST_OK(sl_log_producer_open(fx->log, &po, &ch.pr));
    const sl_log_record_in in = {.value = {sl_slice_str("v")}};
    for (unsigned i = 0; i < 10; i++)
        SL_TEST_OK(sl_log_append(ch.pr, ch.topic, 0, &in, 1));
    sl_log_producer *pr = ch.pr;
    sl_log_producer_close(&pr);
    assert_int_equal(ch.done, 10);
    assert_int_equal(ch.refused, 10);
}

static void test_topic_specs_are_checked_and_listed(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = NULL;
    sl_log_topic_spec spec = {.name = "", .partitions = 1};
    SL_TEST_ERR(sl_log_topic_open(fx->log, &spec, &topic), SL_EINVAL);
    spec.name = "x";
    spec.partitions = 0;
    SL_TEST_ERR(sl_log_topic_open(fx->log, &spec, &topic), SL_EINVAL);
    spec.partitions = 1025;
    SL_TEST_ERR(sl_log_topic_open(fx->log, &spec, &topic), SL_EINVAL);
    spec = (sl_log_topic_spec){
        .name = "x", .partitions = 3, .durable = true, .retention_ms = 5, .retention_bytes = 6};
    SL_TEST_OK(sl_log_topic_open(fx->log, &spec, &topic));
    sl_log_topic *again = NULL;
    spec.partitions = 9;
    SL_TEST_OK(sl_log_topic_open(fx->log, &spec, &again));
    assert_ptr_equal(topic, again);
    assert_int_equal(sl_log_topic_partitions(again), 3);
    assert_string_equal(sl_log_topic_name(again), "x");
}

static void collect_spec(void *arg, const sl_log_topic_spec *spec)
{
    sl_log_topic_spec *out = arg;
    if (strcmp(spec->name, "kept") == 0) {
        *out = *spec;
        out->name = NULL;
        assert_string_equal(spec->pinned_group, "pin");
    }
}

static void test_topics_and_records_survive_a_restart(void **state)
{
    log_fx *fx = *state;
    const sl_log_topic_spec spec = {.name = "kept",
                                    .partitions = 12,
                                    .durable = true,
                                    .retention_ms = 77000000,
                                    .retention_bytes = 88000000,
                                    .pinned_group = "pin"};
    sl_log_topic *topic = NULL;
    SL_TEST_OK(sl_log_topic_open(fx->log, &spec, &topic));
    log_fx_append(fx, topic, 5, "k", "one", 0, 1);
    log_fx_append(fx, topic, 5, "k", "two", SL_LOG_VOLATILE, 2);
    log_fx_close(fx);
    log_fx_open(fx);
    sl_log_topic_spec found = {.partitions = 0};
    sl_log_topic_each(fx->log, collect_spec, &found);
    assert_int_equal(found.partitions, 12);
    assert_int_equal(found.retention_ms, 77000000);
    assert_int_equal(found.retention_bytes, 88000000);
    assert_true(found.durable);
    SL_TEST_OK(sl_log_topic_open(fx->log, &spec, &topic));
    sl_log_partition_info info;
    SL_TEST_OK(sl_log_topic_describe(topic, 5, &info));
    assert_int_equal(info.start, 0);
    assert_int_equal(info.written, 2);
    assert_int_equal(info.durable, 2);
    log_fx_append(fx, topic, 5, "k", "three", 0, 3);
    log_fx_wait(fx, 3);
    assert_int_equal(log_fx_done(fx, 3)->offset, 2);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 5, 0));
    log_fx_record records[3];
    log_fx_read(co, records, 3);
    assert_string_equal(records[0].value, "one");
    assert_string_equal(records[1].value, "two");
    assert_string_equal(records[2].value, "three");
    sl_log_consumer_close(&co);
}

static void test_log_is_healthy_when_open(void **state)
{
    log_fx *fx = *state;
    const char *why = NULL;
    assert_true(sl_log_is_healthy(fx->log, &why));
}

int log_contract_append(void)
{
    const struct CMUnitTest tests[] = {
        LOG_CONTRACT_TEST(test_append_completes_once_in_order_with_offsets),
        LOG_CONTRACT_TEST(test_append_by_key_uses_the_partition_of_the_key),
        LOG_CONTRACT_TEST(test_append_keeps_every_field_of_a_record),
        LOG_CONTRACT_TEST(test_append_without_ack_completes_nothing),
        LOG_CONTRACT_TEST(test_append_refuses_bad_records),
        LOG_CONTRACT_TEST(test_append_takes_records_larger_than_a_batch),
        LOG_CONTRACT_TEST_SMALL(test_append_full_queue_says_again_then_room),
        LOG_CONTRACT_TEST(test_append_to_a_deleted_topic_is_refused),
        LOG_CONTRACT_TEST(test_producer_close_completes_what_is_open),
        LOG_CONTRACT_TEST(test_producer_close_refuses_what_completions_append),
        LOG_CONTRACT_TEST(test_topic_specs_are_checked_and_listed),
        LOG_CONTRACT_TEST(test_topics_and_records_survive_a_restart),
        LOG_CONTRACT_TEST(test_log_is_healthy_when_open),
    };
    return cmocka_run_group_tests_name("append", tests, NULL, NULL);
}
