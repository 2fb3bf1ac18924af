/* SPDX-License-Identifier: Apache-2.0
 *
 * contract_qos2: the ledger of open inbound QoS 2 packet ids.
 */
#include <string.h>

#include "log_contract.h"
#include "sl_test.h"

typedef struct id_set {
    unsigned count;
    uint64_t sum;
} id_set;

static void add_id(void *arg, uint16_t packet_id)
{
    id_set *set = arg;
    set->count++;
    set->sum += packet_id;
}

static void expect_ids(log_fx *fx, const char *client, unsigned count, uint64_t sum)
{
    id_set set = {0};
    SL_TEST_OK(sl_log_qos2_load(fx->log, sl_slice_str(client), add_id, &set));
    assert_int_equal(set.count, count);
    assert_int_equal(set.sum, sum);
}

static void publish(log_fx *fx, sl_log_topic *topic, const char *client, uint16_t packet_id)
{
    const sl_log_record_in in = {.key = sl_slice_str("t"), .value = {sl_slice_str("v")}};
    SL_TEST_OK(
        sl_log_append_qos2(fx->pr, topic, 0, &in, sl_slice_str(client), packet_id, packet_id));
}

static void reopen(log_fx *fx)
{
    log_fx_close(fx);
    log_fx_open(fx);
}

static void test_qos2_ids_open_with_their_record_and_survive(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    publish(fx, topic, "a", 1);
    publish(fx, topic, "a", 65535);
    publish(fx, topic, "ab", 7);   // a client id that begins like another
    expect_ids(fx, "a", 2, 65536); // what was appended is seen at once
    log_fx_wait(fx, 3);
    reopen(fx);
    expect_ids(fx, "a", 2, 65536);
    expect_ids(fx, "ab", 1, 7);
    expect_ids(fx, "b", 0, 0);
}

static void test_qos2_release_and_clear_are_durable(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    for (uint16_t i = 1; i <= 50; i++)
        publish(fx, topic, "a", i);
    publish(fx, topic, "b", 9);
    SL_TEST_OK(sl_log_qos2_release(fx->pr, sl_slice_str("a"), 50, 100));
    SL_TEST_OK(sl_log_qos2_release(fx->pr, sl_slice_str("a"), 999, 101)); // never opened
    log_fx_wait(fx, 53);
    SL_TEST_OK(log_fx_done(fx, 100)->err);
    SL_TEST_OK(log_fx_done(fx, 101)->err);
    reopen(fx);
    expect_ids(fx, "a", 49, 49 * 50 / 2);
    SL_TEST_OK(sl_log_qos2_clear(fx->pr, sl_slice_str("a"), 102));
    SL_TEST_OK(sl_log_qos2_clear(fx->pr, sl_slice_str("nobody"), 103));
    log_fx_wait(fx, 55);
    expect_ids(fx, "a", 0, 0);
    reopen(fx);
    expect_ids(fx, "a", 0, 0);
    expect_ids(fx, "b", 1, 9);
}

/* Many open ids of one client, in any order. */
static void test_qos2_thousands_of_ids_of_one_client(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    unsigned count = 0;
    uint64_t sum = 0;
    for (unsigned i = 0; i < 3000; i++) {
        uint16_t id = (uint16_t)(i * 7919 % 65521 + 1);
        publish(fx, topic, "a", id);
        count++;
        sum += id;
        expect_ids(fx, "a", count, sum);
        if (i % 3 == 2) {
            SL_TEST_OK(sl_log_qos2_release(fx->pr, sl_slice_str("a"), id, 100000));
            count--;
            sum -= id;
        }
    }
    log_fx_wait(fx, 4000);
    reopen(fx);
    expect_ids(fx, "a", count, sum);
    SL_TEST_OK(sl_log_qos2_clear(fx->pr, sl_slice_str("a"), 100001));
    log_fx_wait(fx, 4001);
    reopen(fx);
    expect_ids(fx, "a", 0, 0);
}

static void test_qos2_id_is_used_again_after_its_release(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    for (unsigned round = 0; round < 5; round++) {
        publish(fx, topic, "a", 3);
        SL_TEST_OK(sl_log_qos2_release(fx->pr, sl_slice_str("a"), 3, 1000));
    }
    publish(fx, topic, "a", 3);
    log_fx_wait(fx, 11);
    reopen(fx);
    expect_ids(fx, "a", 1, 3);
}

static void test_qos2_client_ids_are_bounded(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    static uint8_t long_id[65536];
    const sl_log_record_in in = {.value = {sl_slice_str("v")}};
    sl_slice id = sl_slice_of(long_id, sizeof long_id);
    SL_TEST_ERR(sl_log_append_qos2(fx->pr, topic, 0, &in, id, 1, 1), SL_ETOOBIG);
    SL_TEST_ERR(sl_log_qos2_release(fx->pr, id, 1, 1), SL_ETOOBIG);
    SL_TEST_ERR(sl_log_qos2_clear(fx->pr, id, 1), SL_ETOOBIG);
    id.len = 65535;
    SL_TEST_OK(sl_log_append_qos2(fx->pr, topic, 0, &in, id, 1, 1));
    log_fx_wait(fx, 1);
    reopen(fx);
    id_set set = {0};
    SL_TEST_OK(sl_log_qos2_load(fx->log, id, add_id, &set));
    assert_int_equal(set.count, 1);
}

int log_contract_qos2(void)
{
    const struct CMUnitTest tests[] = {
        LOG_CONTRACT_TEST(test_qos2_ids_open_with_their_record_and_survive),
        LOG_CONTRACT_TEST(test_qos2_release_and_clear_are_durable),
        LOG_CONTRACT_TEST(test_qos2_thousands_of_ids_of_one_client),
        LOG_CONTRACT_TEST(test_qos2_id_is_used_again_after_its_release),
        LOG_CONTRACT_TEST(test_qos2_client_ids_are_bounded),
    };
    return cmocka_run_group_tests_name("qos2", tests, NULL, NULL);
}
