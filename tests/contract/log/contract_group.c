/* SPDX-License-Identifier: Apache-2.0
 *
 * contract_group: consumer groups: spreading partitions, handing them over, committed offsets.
 */
#include <stdio.h>
#include <string.h>

#include "log_contract.h"
#include "sl_test.h"

#define PARTITIONS 6

typedef struct member {
    sl_log_consumer *co;
    bool owns[PARTITIONS];
    unsigned assigned;
    unsigned revoked;
    bool *owned_by_anyone; /* shared: nobody may have a partition that another still has */
} member;

static void on_assign(void *arg, sl_log_topic *topic, uint16_t partition, bool assigned)
{
    member *mb = arg;
    (void)topic;
    assert_true(mb->owns[partition] != assigned);
    assert_true(mb->owned_by_anyone[partition] != assigned);
    mb->owns[partition] = mb->owned_by_anyone[partition] = assigned;
    mb->assigned += assigned;
    mb->revoked += !assigned;
}

static unsigned owned(const member *mb)
{
    unsigned sum = 0;
    for (unsigned i = 0; i < PARTITIONS; i++)
        sum += mb->owns[i];
    return sum;
}

static unsigned turn(member *mb)
{
    sl_log_batch batches[8];
    size_t count = 0;
    unsigned records = 0;
    SL_TEST_OK(sl_log_consumer_poll(mb->co, batches, 8, 0, &count));
    for (size_t i = 0; i < count; i++) {
        assert_true(mb->owns[batches[i].partition]);
        records += batches[i].count;
        SL_TEST_OK(sl_log_consumer_commit(mb->co, batches[i].topic, batches[i].partition,
                                          batches[i].next));
        sl_log_batch_release(&batches[i]);
    }
    return records;
}

static void join(log_fx *fx, member *mb, sl_log_topic *topic, bool *owned_by_anyone)
{
    *mb = (member){.owned_by_anyone = owned_by_anyone};
    mb->co = log_fx_consumer(fx, "g", SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_subscribe(mb->co, topic, on_assign, mb));
}

static void append_each(log_fx *fx, sl_log_topic *topic, unsigned per_partition)
{
    size_t before = fx->done_count;
    for (unsigned i = 0; i < per_partition * PARTITIONS; i++)
        log_fx_append(fx, topic, (int)(i % PARTITIONS), "k", "v", 0, i);
    log_fx_wait(fx, before + per_partition * PARTITIONS);
}

static void test_group_spreads_partitions_and_hands_them_over(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", PARTITIONS, LOG_FX_PLAIN);
    bool anyone[PARTITIONS] = {false};
    member first, second;
    join(fx, &first, topic, anyone);
    append_each(fx, topic, 2);
    unsigned records = 0;
    while (records < 12)
        records += turn(&first);
    assert_int_equal(owned(&first), PARTITIONS);

    join(fx, &second, topic, anyone);
    assert_int_equal(turn(&second), 0); // nothing is its own before the first gave it up
    assert_int_equal(owned(&second), 0);
    turn(&first);
    turn(&second);
    assert_int_equal(owned(&first), 3);
    assert_int_equal(owned(&second), 3);
    append_each(fx, topic, 2);
    records = 0;
    unsigned of_second = 0;
    while (records < 12) {
        unsigned got = turn(&second);
        of_second += got;
        records += got + turn(&first);
    }
    assert_int_equal(records, 12); // each once: the second began where the first had committed
    assert_int_equal(of_second, 6);

    // The first leaves: what it had goes to the second.
    for (unsigned i = 0; i < PARTITIONS; i++)
        anyone[i] = anyone[i] && !first.owns[i];
    sl_log_consumer_close(&first.co);
    append_each(fx, topic, 1);
    records = 0;
    while (records < 6)
        records += turn(&second);
    assert_int_equal(owned(&second), PARTITIONS);
    sl_log_consumer_close(&second.co);
}

static void test_group_without_a_name_cannot_subscribe_or_commit(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_ERR(sl_log_consumer_subscribe(co, topic, on_assign, NULL), SL_EINVAL);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    SL_TEST_ERR(sl_log_consumer_commit(co, topic, 0, 1), SL_EINVAL);
    sl_log_consumer_close(&co);
}

typedef struct listing {
    unsigned count;
    uint64_t sum;
} listing;

static void list_group(void *arg, const char *group, const char *topic, uint16_t partition,
                       uint64_t offset)
{
    listing *ls = arg;
    (void)partition;
    if (strcmp(group, "g") != 0)
        return;
    assert_string_equal(topic, "t");
    ls->count++;
    ls->sum += offset;
}

static void test_group_offsets_are_set_listed_and_deleted(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    uint64_t offset = 0;
    SL_TEST_ERR(sl_log_group_get(fx->log, "g", topic, 0, &offset), SL_ENOTFOUND);
    SL_TEST_OK(sl_log_group_set(fx->log, "g", topic, 0, 40));
    SL_TEST_OK(sl_log_group_set(fx->log, "g", topic, 1, 2));
    SL_TEST_OK(sl_log_group_set(fx->log, "other", topic, 1, 5));
    char long_name[1026];
    memset(long_name, 'g', sizeof long_name - 1);
    long_name[sizeof long_name - 1] = '\0';
    SL_TEST_ERR(sl_log_group_set(fx->log, "", topic, 1, 5), SL_EINVAL);
    SL_TEST_ERR(sl_log_group_set(fx->log, long_name, topic, 1, 5), SL_EINVAL);
    SL_TEST_ERR(sl_log_group_get(fx->log, long_name, topic, 1, &offset), SL_EINVAL);
    SL_TEST_OK(sl_log_group_set(fx->log, long_name + 1, topic, 1, 5));
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    SL_TEST_OK(sl_log_group_get(fx->log, "g", topic, 0, &offset));
    assert_int_equal(offset, 40);
    listing ls = {0};
    sl_log_group_each(fx->log, list_group, &ls);
    assert_int_equal(ls.count, 2);
    assert_int_equal(ls.sum, 42);
    SL_TEST_OK(sl_log_group_delete(fx->log, "g"));
    SL_TEST_ERR(sl_log_group_delete(fx->log, "g"), SL_ENOTFOUND);
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "t", 2, LOG_FX_PLAIN);
    SL_TEST_ERR(sl_log_group_get(fx->log, "g", topic, 0, &offset), SL_ENOTFOUND);
    SL_TEST_OK(sl_log_group_get(fx->log, "other", topic, 1, &offset));
    assert_int_equal(offset, 5);
}

int log_contract_group(void)
{
    const struct CMUnitTest tests[] = {
        LOG_CONTRACT_TEST(test_group_spreads_partitions_and_hands_them_over),
        LOG_CONTRACT_TEST(test_group_without_a_name_cannot_subscribe_or_commit),
        LOG_CONTRACT_TEST(test_group_offsets_are_set_listed_and_deleted),
    };
    return cmocka_run_group_tests_name("group", tests, NULL, NULL);
}
