/* SPDX-License-Identifier: Apache-2.0
 *
 * contract_consume: reading: order, stages, offsets, waiting, back-pressure, falling behind.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "log_contract.h"
#include "sl_test.h"

static void append_numbers(log_fx *fx, sl_log_topic *topic, int partition, unsigned from,
                           unsigned count, uint32_t flags)
{
    for (unsigned i = from; i < from + count; i++) {
        char text[80];
        snprintf(text, sizeof text, "%u %060u", i, i);
        log_fx_append(fx, topic, partition, "k", text, flags, i);
        if (i % 50 == 49)
            log_fx_wait(fx, fx->done_count + 1); // the small queue of some tests
    }
}

static void test_consume_gets_all_in_order_from_any_offset(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    append_numbers(fx, topic, 1, 0, 300, 0);
    log_fx_wait(fx, 300);
    log_fx_record *records = sl_calloc(300, sizeof *records);
    for (unsigned from = 0; from < 300; from += 77) {
        sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, from % 2 == 0);
        SL_TEST_OK(sl_log_consumer_assign(co, topic, 1, from));
        log_fx_read(co, records, 300 - from);
        for (unsigned i = 0; i < 300 - from; i++) {
            assert_int_equal(records[i].offset, from + i);
            assert_int_equal(strtoul(records[i].value, NULL, 10), from + i);
        }
        log_fx_expect_silence(fx, co);
        sl_log_consumer_close(&co);
    }
    sl_free(records);
}

static void test_consume_begins_at_reset_without_a_committed_offset(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    append_numbers(fx, topic, 0, 0, 10, 0);
    log_fx_wait(fx, 10);
    sl_log_consumer *late = log_fx_consumer(fx, "late", SL_LOG_LATEST, false);
    sl_log_consumer *early = log_fx_consumer(fx, "early", SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(late, topic, 0, SL_LOG_COMMITTED));
    SL_TEST_OK(sl_log_consumer_assign(early, topic, 0, SL_LOG_COMMITTED));
    append_numbers(fx, topic, 0, 10, 1, 0);
    log_fx_record records[11];
    log_fx_read(late, records, 1);
    assert_int_equal(records[0].offset, 10);
    log_fx_read(early, records, 11);
    assert_int_equal(records[0].offset, 0);
    sl_log_consumer_close(&late);
    sl_log_consumer_close(&early);
}

static void test_consume_stages_give_each_record_once(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    sl_log_consumer *both = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, true);
    sl_log_consumer *once = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(both, topic, 0, 0));
    SL_TEST_OK(sl_log_consumer_assign(once, topic, 0, 0));
    for (unsigned i = 0; i < 200; i++)
        log_fx_append(fx, topic, 0, "k", "v", i % 3 == 0 ? SL_LOG_VOLATILE : 0, i);
    log_fx_record *records = sl_calloc(200, sizeof *records);
    bool seen[200] = {false};
    log_fx_read(both, records, 200);
    uint64_t last_volatile = 0, last_durable = 0;
    for (unsigned i = 0; i < 200; i++) {
        uint64_t offset = records[i].offset;
        assert_false(seen[offset]);
        seen[offset] = true;
        bool is_volatile = (records[i].flags & SL_LOG_VOLATILE) != 0;
        assert_int_equal(is_volatile, offset % 3 == 0);
        uint64_t *last = is_volatile ? &last_volatile : &last_durable;
        assert_true(offset >= *last);
        *last = offset;
    }
    log_fx_read(once, records, 200);
    for (unsigned i = 0; i < 200; i++)
        assert_int_equal(records[i].offset, i);
    log_fx_expect_silence(fx, both);
    log_fx_expect_silence(fx, once);
    sl_free(records);
    sl_log_consumer_close(&both);
    sl_log_consumer_close(&once);
}

/* Reads until the durable stage has passed offset; its last `next` is what one may commit. */
static uint64_t read_to(sl_log_consumer *co, uint64_t offset)
{
    uint64_t next = 0;
    while (next < offset) {
        sl_log_batch batches[4];
        size_t count = 0;
        SL_TEST_OK(sl_log_consumer_poll(co, batches, 4, 20000, &count));
        assert_true(count > 0);
        for (size_t i = 0; i < count; i++) {
            if ((batches[i].stages & SL_LOG_STAGE_DURABLE) != 0)
                next = batches[i].next;
            sl_log_batch_release(&batches[i]);
        }
    }
    return next;
}

static void test_consume_durable_stage_passes_volatile_records_too(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    sl_log_consumer *both = log_fx_consumer(fx, "g", SL_LOG_EARLIEST, true);
    SL_TEST_OK(sl_log_consumer_assign(both, topic, 0, 0));
    for (unsigned round = 0; round < 20; round++) {
        log_fx_append(fx, topic, 0, "k", "v", 0, 1);
        for (unsigned i = 0; i < 9; i++)
            log_fx_append(fx, topic, 0, "k", "v", SL_LOG_VOLATILE, 2);
        // However the commits fell: whoever follows `next` gets to the end.
        assert_int_equal(read_to(both, (round + 1) * 10), (round + 1) * 10);
    }
    sl_log_consumer_close(&both);
}

static void test_consume_resumes_at_the_committed_offset(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    append_numbers(fx, topic, 0, 0, 20, 0);
    append_numbers(fx, topic, 1, 20, 20, 0);
    log_fx_wait(fx, 40);
    sl_log_consumer *co = log_fx_consumer(fx, "g", SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, SL_LOG_COMMITTED));
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 1, SL_LOG_COMMITTED));
    log_fx_record records[40];
    log_fx_read(co, records, 40);
    SL_TEST_OK(sl_log_consumer_commit(co, topic, 0, 7));
    SL_TEST_OK(sl_log_consumer_commit(co, topic, 0, 13));
    SL_TEST_OK(sl_log_sync(fx->log));
    sl_log_consumer_close(&co);
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    co = log_fx_consumer(fx, "g", SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, SL_LOG_COMMITTED));
    log_fx_read(co, records, 7);
    assert_int_equal(records[0].offset, 13);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 1, SL_LOG_COMMITTED));
    log_fx_read(co, records, 20);
    assert_int_equal(records[0].offset, 0);
    SL_TEST_ERR(sl_log_consumer_unassign(co, topic, 3), SL_EINVAL);
    SL_TEST_OK(sl_log_consumer_unassign(co, topic, 1));
    SL_TEST_ERR(sl_log_consumer_unassign(co, topic, 1), SL_ENOTFOUND);
    append_numbers(fx, topic, 1, 40, 5, 0);
    log_fx_expect_silence(fx, co);
    sl_log_consumer_close(&co);
}

static void test_consume_slow_reader_loses_nothing(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    sl_log_consumer *slow = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, true);
    SL_TEST_OK(sl_log_consumer_assign(slow, topic, 0, 0));
    unsigned count = 3000; // some ten times the ring
    append_numbers(fx, topic, 0, 0, count, 0);
    log_fx_wait(fx, count);
    log_fx_record *records = sl_calloc(count, sizeof *records);
    log_fx_read(slow, records, count);
    for (unsigned i = 0; i < count; i++) {
        assert_int_equal(records[i].offset, i);
        assert_int_equal(strtoul(records[i].value, NULL, 10), i);
    }
    sl_free(records);
    sl_log_consumer_close(&slow);
}

static void test_consume_body_outlives_the_batch(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    log_fx_append(fx, topic, 0, "key", "payload", 0, 1);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    sl_log_batch batch;
    size_t count = 0, pos = 0;
    SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 20000, &count));
    assert_int_equal(count, 1);
    sl_log_record rec;
    assert_true(sl_log_batch_next(&batch, &pos, &rec));
    sl_rbuf *body = sl_rbuf_ref(rec.body);
    assert_true(rec.value.ptr >= body->data && rec.value.ptr < body->data + body->len);
    sl_log_batch_release(&batch);
    sl_log_consumer_close(&co);
    append_numbers(fx, topic, 0, 10, 1000, 0); // pushes it out of a small ring
    log_fx_wait(fx, 1001);
    SL_TEST_SLICE(rec.value, "payload");
    SL_TEST_SLICE(rec.key, "key");
    sl_rbuf_unref(&body);
}

static void test_consume_pause_holds_back_one_partition(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 1, 0));
    sl_log_consumer_pause(co, topic, 0, true);
    append_numbers(fx, topic, 0, 0, 5, 0);
    append_numbers(fx, topic, 1, 5, 5, 0);
    log_fx_record records[5];
    log_fx_read(co, records, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(records[i].partition, 1);
    log_fx_expect_silence(fx, co);
    sl_log_consumer_pause(co, topic, 0, false);
    log_fx_read(co, records, 5);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(records[i].partition, 0);
    sl_log_consumer_close(&co);
}

static void *interrupter(void *arg)
{
    sl_log_consumer_interrupt(arg);
    return NULL;
}

static void test_consume_interrupt_ends_a_waiting_poll(void **state)
{
    log_fx *fx = *state;
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, interrupter, co), 0);
    sl_log_batch batch;
    size_t count = 9;
    // Longer than the time limit of the test: only the interrupt ends it.
    SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 600000, &count));
    assert_int_equal(count, 0);
    pthread_join(thread, NULL);
    sl_log_consumer_close(&co);
}

typedef struct wake_flag {
    pthread_mutex_t lock;
    pthread_cond_t cond;
    unsigned wakes;
} wake_flag;

static void on_wake(void *arg)
{
    wake_flag *flag = arg;
    pthread_mutex_lock(&flag->lock);
    flag->wakes++;
    pthread_cond_signal(&flag->cond);
    pthread_mutex_unlock(&flag->lock);
}

static void wait_wake(wake_flag *flag)
{
    pthread_mutex_lock(&flag->lock);
    while (flag->wakes == 0)
        pthread_cond_wait(&flag->cond, &flag->lock);
    flag->wakes = 0;
    pthread_mutex_unlock(&flag->lock);
}

static void test_consume_wakes_its_owner_for_news_and_leftovers(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    wake_flag flag = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
    sl_log_consumer *co = NULL;
    const sl_log_consumer_options options = {.wake = on_wake, .wake_arg = &flag};
    SL_TEST_OK(sl_log_consumer_open(fx->log, &options, &co));
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    unsigned got = 0;
    for (unsigned i = 0; i < 6; i++) {
        log_fx_append(fx, topic, 0, "k", "v", 0, i);
        log_fx_wait(fx, i + 1); // a batch each
    }
    while (got < 6) {
        wait_wake(&flag);
        sl_log_batch batch;
        size_t count = 0;
        SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 0, &count));
        if (count == 1) {
            got += batch.count;
            sl_log_batch_release(&batch);
        }
    }
    assert_int_equal(got, 6);
    sl_log_consumer_close(&co);
    pthread_cond_destroy(&flag.cond);
    pthread_mutex_destroy(&flag.lock);
}

static void test_consume_poll_keeps_its_byte_bound(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    char *text = sl_calloc(1, 20001);
    memset(text, 'x', 20000);
    for (unsigned i = 0; i < 20; i++)
        log_fx_append(fx, topic, 0, "k", text, 0, i);
    log_fx_wait(fx, 20);
    sl_log_consumer *co = NULL;
    const sl_log_consumer_options options = {.max_batch_bytes = 50000};
    SL_TEST_OK(sl_log_consumer_open(fx->log, &options, &co));
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    unsigned got = 0;
    while (got < 20) {
        sl_log_batch batches[20];
        size_t count = 0;
        SL_TEST_OK(sl_log_consumer_poll(co, batches, 20, 20000, &count));
        unsigned records = 0;
        for (size_t i = 0; i < count; i++) {
            records += batches[i].count;
            sl_log_batch_release(&batches[i]);
        }
        assert_true(records > 0 && records <= 4); // the bound and one batch more
        got += records;
    }
    sl_free(text);
    sl_log_consumer_close(&co);
}

static void test_consume_deleted_topic_goes_silent(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    sl_log_consumer *co = log_fx_consumer(fx, "g", SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_append(fx, topic, 0, "k", "v", 0, 1);
    log_fx_wait(fx, 1);
    SL_TEST_OK(sl_log_topic_delete(fx->log, "t"));
    log_fx_expect_silence(fx, co);
    SL_TEST_ERR(sl_log_consumer_assign(co, topic, 0, 0), SL_ENOTFOUND);
    SL_TEST_ERR(sl_log_consumer_commit(co, topic, 0, 1), SL_ENOTFOUND);
    sl_log_consumer_close(&co);
}

int log_contract_consume(void)
{
    const struct CMUnitTest tests[] = {
        LOG_CONTRACT_TEST(test_consume_gets_all_in_order_from_any_offset),
        LOG_CONTRACT_TEST(test_consume_begins_at_reset_without_a_committed_offset),
        LOG_CONTRACT_TEST(test_consume_stages_give_each_record_once),
        LOG_CONTRACT_TEST(test_consume_durable_stage_passes_volatile_records_too),
        LOG_CONTRACT_TEST(test_consume_resumes_at_the_committed_offset),
        LOG_CONTRACT_TEST_SMALL(test_consume_slow_reader_loses_nothing),
        LOG_CONTRACT_TEST_SMALL(test_consume_body_outlives_the_batch),
        LOG_CONTRACT_TEST(test_consume_pause_holds_back_one_partition),
        LOG_CONTRACT_TEST(test_consume_interrupt_ends_a_waiting_poll),
        LOG_CONTRACT_TEST(test_consume_wakes_its_owner_for_news_and_leftovers),
        LOG_CONTRACT_TEST(test_consume_poll_keeps_its_byte_bound),
        LOG_CONTRACT_TEST(test_consume_deleted_topic_goes_silent),
    };
    return cmocka_run_group_tests_name("consume", tests, NULL, NULL);
}
