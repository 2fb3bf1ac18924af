/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of will messages: what a CONNECT's will becomes as a message, which are refused, and every
 * path through the state machine, with a clock of the test's own.
 */
#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "mqtt/decode.h"
#include "session/client.h"
#include "session/will.h"
#include "sl_test.h"
#include "stats/broker_stats.h"

typedef struct bench {
    sl_wills ws;
    sl_client *cl;
    unsigned published, after;
    char payload[16];
} bench;

static void take(void *arg, sl_client *cl, const sl_will *wl)
{
    bench *bn = arg;
    assert_ptr_equal(cl, bn->cl);
    bn->published++;
    snprintf(bn->payload, sizeof(bn->payload), "%.*s", 1, (const char *)wl->packet + wl->len - 1);
}

static void gone(void *arg, sl_client *cl)
{
    bench *bn = arg;
    assert_null(cl->session.will);
    bn->after++;
}

static void setup(bench *bn)
{
    *bn = (bench){0};
    sl_wills_init(&bn->ws);
    bn->ws.publish = take;
    bn->ws.arg = bn;
    bn->ws.stats = sl_stats_new(SL_BROKER_STAT_ROWS, SL_BS_COUNT);
    bn->cl = sl_calloc(1, sizeof(*bn->cl));
}

static void teardown(bench *bn)
{
    assert_int_equal(sl_stats_get(bn->ws.stats, SL_BS_WILLS), 0);
    assert_int_equal(sl_stats_get(bn->ws.stats, SL_BS_WILLS_DELAYED), 0);
    assert_int_equal(sl_stats_get(bn->ws.stats, SL_BS_WILLS_PUBLISHED), bn->published);
    assert_null(bn->cl->session.will);
    sl_wills_fini(&bn->ws);
    sl_stats_free(&bn->ws.stats);
    sl_free(bn->cl);
}

static sl_mqtt_will plain(const char *payload)
{
    return (sl_mqtt_will){.topic = sl_slice_str("a/b"), .payload = sl_slice_str(payload), .qos = 1};
}

/* A connection with this will, delayed by so many seconds. */
static void hold(bench *bn, const char *payload, uint32_t delay_s)
{
    sl_mqtt_will will = plain(payload);
    sl_will *wl = sl_will_new(&will);
    wl->delay_s = delay_s;
    sl_wills_hold(&bn->ws, bn->cl, &wl);
    assert_null(wl);
    assert_int_equal(bn->cl->session.will->state, SL_WILL_HELD);
}

static void test_will_becomes_a_publish_without_its_delay(void **state)
{
    (void)state;
    // will delay 5, content type "t", user property a=b
    static const uint8_t raw[] = {0x18, 0, 0, 0, 5, 0x03, 0, 1, 't', 0x26, 0, 1, 'a', 0, 1, 'b'};
    for (uint8_t qos = 0; qos <= 2; qos++) {
        sl_mqtt_will will = plain("payload");
        will.qos = qos;
        will.retain = qos == 1;
        will.props.has = SL_PROP_WILL_DELAY | SL_PROP_CONTENT_TYPE | SL_PROP_USER;
        will.props.will_delay = 5;
        will.props.raw = sl_slice_of(raw, sizeof(raw));
        sl_will *wl = sl_will_new(&will);
        assert_int_equal(wl->delay_s, 5);
        assert_int_equal(sl_will_qos(wl), qos);
        assert_true(sl_slice_equal(sl_will_topic(wl), sl_slice_str("a/b")));
        sl_mqtt_packet pkt;
        sl_mqtt_rc rc;
        const char *why = NULL;
        SL_TEST_OK(sl_mqtt_decode(sl_slice_of(wl->packet, wl->len), SL_MQTT_V5,
                                  SL_MQTT_SERVER_READS, &pkt, &rc, &why));
        assert_int_equal(pkt.publish.qos, qos);
        assert_int_equal(pkt.publish.retain, qos == 1);
        assert_true(sl_slice_equal(pkt.publish.payload, sl_slice_str("payload")));
        assert_int_equal(pkt.publish.props.has, SL_PROP_CONTENT_TYPE | SL_PROP_USER);
        sl_will *back = sl_will_restore(sl_slice_of(wl->packet, wl->len), 5, 77);
        assert_true(back != NULL && back->len == wl->len && back->due_at == 77);
        assert_memory_equal(back->packet, wl->packet, wl->len);
        sl_will_free(&back);
        sl_will_free(&wl);
        assert_null(wl);
    }
}

static void test_damaged_will_of_a_record_is_refused(void **state)
{
    (void)state;
    assert_null(sl_will_restore(sl_slice_of("\x32\x01\x00", 3), 0, 0));
    assert_null(sl_will_restore(sl_slice_of("\x10\x02\x00\x00", 4), 0, 0));
    assert_null(sl_will_restore(sl_slice_of("\x30\x03\x00\x00\x00", 5), 0, 0)); // no topic
    assert_null(sl_will_restore(sl_slice_of(NULL, 0), 0, 0));
}

static void test_will_check_refuses_what_publish_refuses(void **state)
{
    (void)state;
    sl_limits limits = {.max_topic_levels = 2};
    sl_mqtt_connect connect = {.version = SL_MQTT_V5, .has_will = true, .will = plain("x")};
    assert_int_equal(sl_will_check(&connect, &limits), SL_RC_SUCCESS);
    connect.will.topic = sl_slice_str("a/b/c/d");
    assert_int_equal(sl_will_check(&connect, &limits), SL_RC_TOPIC_NAME_INVALID);
    connect.will.topic = sl_slice_str("$a");
    assert_int_equal(sl_will_check(&connect, &limits), SL_RC_TOPIC_NAME_INVALID);
    connect.will.topic = sl_slice_str("a");
    connect.will.retain = true;
    assert_int_equal(sl_will_check(&connect, &limits), SL_RC_RETAIN_NOT_SUPPORTED);
    connect.version = SL_MQTT_V311; // is delivered, not retained, like its PUBLISH
    assert_int_equal(sl_will_check(&connect, &limits), SL_RC_SUCCESS);
}

static void test_wait_is_the_delay_or_the_end_of_the_session(void **state)
{
    (void)state;
    sl_mqtt_will will = plain("x");
    sl_will *wl = sl_will_new(&will);
    assert_int_equal(sl_will_wait(wl, true, true, 20), 0);
    wl->delay_s = 10;
    assert_int_equal(sl_will_wait(wl, true, true, 20), 10000);
    assert_int_equal(sl_will_wait(wl, true, true, 5), 5000);
    assert_int_equal(sl_will_wait(wl, true, true, UINT32_MAX), 10000);
    assert_int_equal(sl_will_wait(wl, true, false, 0), 10000);
    assert_int_equal(sl_will_wait(wl, false, true, 20), 0);
    wl->delay_s = UINT32_MAX;
    assert_int_equal(sl_will_wait(wl, true, true, 4294967294u), 4294967294000);
    sl_will_free(&wl);
}

static void test_lost_connection_publishes_at_once_or_in_time(void **state)
{
    (void)state;
    bench bn;
    setup(&bn);
    hold(&bn, "1", 0);
    sl_wills_lost(&bn.ws, bn.cl, 0, 1000, 50000);
    assert_int_equal(bn.published, 1);
    hold(&bn, "2", 10);
    sl_wills_lost(&bn.ws, bn.cl, 10000, 1000, 50000);
    assert_int_equal(bn.published, 1);
    assert_int_equal(bn.cl->session.will->due_at, 60000);
    assert_int_equal(sl_stats_get(bn.ws.stats, SL_BS_WILLS_DELAYED), 1);
    sl_wills_lost(&bn.ws, bn.cl, 10000, 5000, 54000); // it is lost once
    assert_int_equal(sl_wills_tick(&bn.ws, 10999, gone), 11000);
    assert_int_equal(bn.after, 0);
    assert_int_equal(sl_wills_tick(&bn.ws, 11000, gone), 0);
    assert_int_equal(bn.after, 1);
    assert_int_equal(bn.published, 2);
    assert_string_equal(bn.payload, "2");
    teardown(&bn);
}

static void test_end_of_the_session_publishes_and_discard_does_not(void **state)
{
    (void)state;
    bench bn;
    setup(&bn);
    hold(&bn, "1", 10);
    sl_wills_lost(&bn.ws, bn.cl, 10000, 0, 0);
    sl_wills_session_ended(&bn.ws, bn.cl);
    assert_int_equal(bn.published, 1);
    hold(&bn, "2", 10);
    sl_wills_discard(&bn.ws, bn.cl);
    hold(&bn, "3", 10);
    sl_wills_lost(&bn.ws, bn.cl, 10000, 0, 0);
    sl_wills_discard(&bn.ws, bn.cl);
    sl_wills_session_ended(&bn.ws, bn.cl);
    sl_wills_lost(&bn.ws, bn.cl, 0, 0, 0);
    assert_int_equal(sl_wills_tick(&bn.ws, 1000000, gone), 0);
    assert_int_equal(bn.published, 1);
    teardown(&bn);
}

static void test_restored_will_waits_for_what_is_left_but_never_longer_than_its_delay(void **state)
{
    (void)state;
    static const struct {
        sl_wall_ms wall;
        sl_mono_ms due;
    } rows[] = {{94000, 7000}, {100000, 1000}, {500000, 1000}, {20000, 11000}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bench bn;
        setup(&bn);
        sl_mqtt_will will = plain("r");
        sl_will *wl = sl_will_new(&will);
        bn.cl->session.will = sl_will_restore(sl_slice_of(wl->packet, wl->len), 10, 100000);
        sl_will_free(&wl);
        sl_wills_resume(&bn.ws, bn.cl, 1000, rows[i].wall);
        assert_int_equal(bn.cl->session.will->state, SL_WILL_DELAYED);
        assert_int_equal(sl_wills_tick(&bn.ws, rows[i].due - 1, gone), rows[i].due);
        assert_int_equal(sl_wills_tick(&bn.ws, rows[i].due, gone), 0);
        assert_int_equal(bn.published, 1);
        teardown(&bn);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_will_becomes_a_publish_without_its_delay),
        cmocka_unit_test(test_damaged_will_of_a_record_is_refused),
        cmocka_unit_test(test_will_check_refuses_what_publish_refuses),
        cmocka_unit_test(test_wait_is_the_delay_or_the_end_of_the_session),
        cmocka_unit_test(test_lost_connection_publishes_at_once_or_in_time),
        cmocka_unit_test(test_end_of_the_session_publishes_and_discard_does_not),
        cmocka_unit_test(test_restored_will_waits_for_what_is_left_but_never_longer_than_its_delay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
