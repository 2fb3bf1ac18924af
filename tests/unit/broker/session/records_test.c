/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of control records: everything comes back as it was put; damaged and newer ones are
 * refused.
 */
#include "temp_log.h"

#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "route/rcu.h"
#include "route/sub_trie.h"
#include "session/records.h"
#include "session/will.h"

static sl_actor_verdict no_items(sl_actor *actor, sl_runner *runner, sl_actor_item *item)
{
    (void)actor;
    (void)runner;
    (void)item;
    return SL_ACTOR_DONE;
}

static void test_session_comes_back_as_it_was(void **state)
{
    (void)state;
    const sl_session ss = {.exists = true,
                           .connected = true,
                           .persistent = true,
                           .has_expiry = true,
                           .clean_start = true,
                           .mqtt_version = 5,
                           .keep_alive_s = 65535,
                           .expiry_s = UINT32_MAX,
                           .session_id = UINT64_MAX,
                           .generation = 1ull << 60,
                           .connected_at = 1234567890123,
                           .disconnected_at = 0};
    sl_buf buf;
    sl_buf_init(&buf, 65536);
    SL_TEST_OK(sl_record_put_session(&buf, &ss, "node-1", "127.0.0.1:5"));
    sl_session got;
    SL_TEST_OK(sl_record_get_session(sl_buf_peek(&buf), &got));
    assert_true(got.exists && got.connected && got.persistent && got.has_expiry && got.clean_start);
    assert_int_equal(got.mqtt_version, 5);
    assert_int_equal(got.keep_alive_s, 65535);
    assert_true(got.expiry_s == UINT32_MAX && got.session_id == UINT64_MAX);
    assert_true(got.generation == 1ull << 60 && got.connected_at == 1234567890123);
    sl_buf_fini(&buf);
}

static void test_will_comes_back_with_its_session_and_its_request(void **state)
{
    (void)state;
    const sl_mqtt_will from = {
        .topic = sl_slice_str("t"), .payload = sl_slice_str("payload"), .qos = 2};
    sl_will *wl = sl_will_new(&from);
    wl->delay_s = 30;
    wl->due_at = 1234567890123;
    const sl_session ss = {.exists = true, .mqtt_version = 5, .will = wl};
    sl_buf buf;
    sl_buf_init(&buf, 65536);
    SL_TEST_OK(sl_record_put_session(&buf, &ss, "n", ""));
    sl_session got;
    SL_TEST_OK(sl_record_get_session(sl_buf_peek(&buf), &got));
    assert_non_null(got.will);
    assert_true(got.will->delay_s == 30 && got.will->due_at == 1234567890123);
    assert_int_equal(got.will->len, wl->len);
    assert_memory_equal(got.will->packet, wl->packet, wl->len);
    sl_will_free(&got.will);
    sl_buf_clear(&buf);
    const sl_session_request rq = {.kind = SL_SESSION_CONNECT, .will = wl};
    SL_TEST_OK(sl_record_put_request(&buf, &rq, "n"));
    sl_session_request back;
    char peer[64];
    SL_TEST_OK(sl_record_get_request(sl_buf_peek(&buf), &back, peer, sizeof(peer)));
    assert_true(back.will != NULL && back.will->delay_s == 30);
    sl_will_free(&back.will);
    wl->packet[0] = 0x10; // no PUBLISH: the record is damaged
    sl_buf_clear(&buf);
    SL_TEST_OK(sl_record_put_session(&buf, &ss, "n", ""));
    SL_TEST_ERR(sl_record_get_session(sl_buf_peek(&buf), &got), SL_ECORRUPT);
    sl_will_free(&wl);
    sl_buf_fini(&buf);
}

static void test_damaged_and_newer_sessions_are_told_apart(void **state)
{
    (void)state;
    sl_session got;
    SL_TEST_ERR(sl_record_get_session(sl_slice_of("\xFF\xFF\xFF", 3), &got), SL_ECORRUPT);
    SL_TEST_ERR(sl_record_get_session(sl_slice_of("", 0), &got), SL_ECORRUPT); // version 0
    SL_TEST_ERR(sl_record_get_session(sl_slice_of("\x08\x02", 2), &got), SL_EUNSUPPORTED);
}

typedef struct seen {
    uint32_t count;
    uint32_t qos, flags, sub_id, stamps[3];
    char filters[3][32];
} seen;

static void take(void *arg, sl_slice filter, const sl_client_sub *sub)
{
    seen *sn = arg;
    assert_in_range(sn->count, 0, 2);
    memcpy(sn->filters[sn->count], filter.ptr, filter.len);
    sn->stamps[sn->count++] = sub->stamp;
    sn->qos = sub->qos;
    sn->flags = sub->flags;
    sn->sub_id = sub->sub_id;
}

static void test_subscriptions_come_back_with_their_stamps(void **state)
{
    (void)state;
    temp_log tl;
    temp_log_open(&tl);
    sl_stamps *st = sl_stamps_new(tl.topic);
    sl_rcu *rcu = sl_rcu_new();
    sl_registry *rg = sl_registry_new(rcu, 10, no_items);
    sl_client *cl = NULL;
    SL_TEST_OK(sl_registry_get(rg, sl_slice_str("c"), &cl));
    const uint64_t old_ends[] = {1, 2, 3, 4}, new_ends[] = {9, 9, 9, 9};
    uint32_t old_stamp = sl_stamps_add(st, old_ends, 4), new_stamp = sl_stamps_add(st, new_ends, 4);
    sl_client_add_sub(cl, sl_slice_str("a/+"), &(sl_client_sub){.stamp = old_stamp});
    sl_client_add_sub(cl, sl_slice_str("b/#"), &(sl_client_sub){.stamp = new_stamp});
    sl_client_add_sub(cl, sl_slice_str("c"),
                      &(sl_client_sub){.qos = 2,
                                       .sub_id = 268435455,
                                       .flags = SL_SUB_NO_LOCAL | SL_SUB_RETAIN_AS_PUBLISHED |
                                                2 << SL_SUB_RETAIN_HANDLING_SHIFT});
    sl_buf buf;
    sl_buf_init(&buf, 65536);
    SL_TEST_OK(sl_record_put_subs(&buf, cl, st));
    seen sn = {0};
    SL_TEST_OK(sl_record_get_subs(sl_buf_peek(&buf), st, take, &sn));
    assert_int_equal(sn.count, 3);
    assert_string_equal(sn.filters[0], "a/+");
    assert_string_equal(sn.filters[2], "c");
    assert_true(sl_stamps_is_older(st, sn.stamps[0], 1, 1));
    assert_false(sl_stamps_is_older(st, sn.stamps[0], 1, 2));
    assert_true(sl_stamps_is_older(st, sn.stamps[1], 0, 8));
    assert_int_equal(sn.stamps[2], 0);
    assert_int_equal(sn.qos, 2);
    assert_int_equal(sn.sub_id, 268435455);
    assert_int_equal(sn.flags, cl->subs[2].flags);
    // Every cut of it is refused or gives fewer filters; none reads past its end.
    for (size_t len = 0; len < sl_buf_peek(&buf).len; len++) {
        uint8_t *cut = sl_alloc(len + 1);
        memcpy(cut, sl_buf_peek(&buf).ptr, len);
        seen part = {0};
        sl_err err = sl_record_get_subs(sl_slice_of(cut, len), st, take, &part);
        assert_true(err == SL_OK || err == SL_ECORRUPT);
        sl_free(cut);
    }
    sl_buf_fini(&buf);
    sl_client_unref(&cl);
    sl_registry_free(&rg);
    sl_rcu_free(&rcu);
    sl_stamps_free(&st);
    temp_log_close(&tl);
}

static void test_request_and_answer_come_back(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 65536);
    const sl_session_request rq = {.kind = SL_SESSION_DISCONNECT,
                                   .session_id = 77,
                                   .persistent = true,
                                   .has_expiry = true,
                                   .expiry_s = 5,
                                   .reason = 0x8E,
                                   .peer = "[::1]:65535"};
    SL_TEST_OK(sl_record_put_request(&buf, &rq, "n"));
    sl_session_request got;
    char peer[64];
    SL_TEST_OK(sl_record_get_request(sl_buf_peek(&buf), &got, peer, sizeof(peer)));
    assert_int_equal(got.kind, SL_SESSION_DISCONNECT);
    assert_int_equal(got.session_id, 77);
    assert_true(got.persistent && got.has_expiry);
    assert_int_equal(got.expiry_s, 5);
    assert_int_equal(got.reason, 0x8E);
    assert_string_equal(peer, "[::1]:65535");
    sl_buf_clear(&buf);
    uint16_t ids[] = {1, 500, 65535};
    const sl_session_answer answer = {.success = true,
                                      .session_present = true,
                                      .persistent = true,
                                      .dup_old = true,
                                      .rc = SL_RC_QUOTA_EXCEEDED,
                                      .session_id = 9,
                                      .generation = 10,
                                      .open_qos2 = ids,
                                      .open_qos2_count = 3};
    SL_TEST_OK(sl_record_put_answer(&buf, &answer));
    sl_session_answer back;
    SL_TEST_OK(sl_record_get_answer(sl_buf_peek(&buf), &back));
    assert_true(back.success && back.session_present && back.persistent && back.dup_old);
    assert_int_equal(back.rc, SL_RC_QUOTA_EXCEEDED);
    assert_true(back.session_id == 9 && back.generation == 10);
    assert_int_equal(back.open_qos2_count, 3);
    assert_memory_equal(back.open_qos2, ids, sizeof(ids));
    sl_free(back.open_qos2);
    SL_TEST_ERR(sl_record_get_answer(sl_slice_of("\xFF", 1), &back), SL_ECORRUPT);
    SL_TEST_ERR(sl_record_get_request(sl_slice_of("\x08\x09", 2), &got, peer, sizeof(peer)),
                SL_ECORRUPT);
    sl_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session_comes_back_as_it_was),
        cmocka_unit_test(test_will_comes_back_with_its_session_and_its_request),
        cmocka_unit_test(test_damaged_and_newer_sessions_are_told_apart),
        cmocka_unit_test(test_subscriptions_come_back_with_their_stamps),
        cmocka_unit_test(test_request_and_answer_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
