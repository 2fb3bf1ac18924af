/* SPDX-License-Identifier: Apache-2.0
 *
 * What a client session sends of its own: requests, publishes of each QoS, resending after a
 * reconnect, bounds.
 */
#include "sl_test.h"

#include "base/alloc.h"
#include "client_peer.h"
#include "mqtt/reason.h"

static sl_err publish(peer *pr, uint8_t qos, const char *payload)
{
    sl_mqtt_publish pb = {
        .qos = qos, .topic = sl_slice_str("cmd/1"), .payload = sl_slice_str(payload)};
    return sl_mqtt_client_publish(pr->client, &pb, peer_on_published, pr);
}

static uint16_t expect_publish(peer *pr, uint8_t qos, bool dup, const char *payload)
{
    sl_mqtt_packet pkt = peer_expect(pr, SL_MQTT_PUBLISH);
    assert_int_equal(pkt.publish.qos, qos);
    assert_int_equal(pkt.publish.dup, dup);
    assert_true(sl_slice_equal(pkt.publish.payload, sl_slice_str(payload)));
    return pkt.publish.packet_id;
}

/* ---- requests ---- */

static void test_subscribe_brings_the_reasons_in_the_order_asked(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    sl_mqtt_sub_option so[] = {{.filter = sl_slice_str("a/#"),
                                .qos = 2,
                                .retain_as_published = true,
                                .retain_handling = 1},
                               {.filter = sl_slice_str("$share/g/b"), .qos = 1}};
    uint16_t id = 0;
    SL_TEST_OK(sl_mqtt_client_subscribe(pr.client, so, 2, 33, &id));
    sl_mqtt_packet pkt = peer_expect(&pr, SL_MQTT_SUBSCRIBE);
    assert_int_equal(pkt.subscribe.packet_id, id);
    assert_int_equal(pkt.subscribe.count, 2);
    assert_int_equal(pkt.subscribe.props.subscription_id, 33);
    sl_mqtt_sub_option have;
    size_t pos = 0;
    assert_true(sl_mqtt_subscribe_next(&pkt.subscribe, SL_MQTT_V5, &pos, &have));
    SL_TEST_SLICE(have.filter, "a/#");
    assert_int_equal(have.qos, 2);
    assert_true(have.retain_as_published);
    assert_int_equal(have.retain_handling, 1);
    pkt = (sl_mqtt_packet){.type = SL_MQTT_SUBACK,
                           .suback = {.packet_id = id, .reasons = sl_slice_of("\x02\x87", 2)}};
    peer_send(&pr, &pkt);
    assert_int_equal(pr.subacks, 1);
    assert_int_equal(pr.suback_id, id);
    assert_false(pr.suback_is_unsub);
    assert_int_equal(pr.suback_count, 2);
    assert_int_equal(pr.suback_reasons[1], 0x87);
    peer_fini(&pr);
}

static void test_unsubscribe_is_answered_with_and_without_reasons(void **state)
{
    (void)state;
    for (int v = SL_MQTT_V311; v <= SL_MQTT_V5; v++) {
        peer pr;
        peer_init(&pr, (sl_mqtt_version)v);
        peer_connect(&pr);
        sl_slice filters[] = {sl_slice_str("a"), sl_slice_str("b/+")};
        uint16_t id = 0;
        SL_TEST_OK(sl_mqtt_client_unsubscribe(pr.client, filters, 2, &id));
        sl_mqtt_packet pkt = peer_expect(&pr, SL_MQTT_UNSUBSCRIBE);
        assert_int_equal(pkt.subscribe.count, 2);
        pkt = (sl_mqtt_packet){.type = SL_MQTT_UNSUBACK,
                               .suback = {.packet_id = id, .reasons = sl_slice_of("\x00\x11", 2)}};
        peer_send(&pr, &pkt);
        assert_int_equal(pr.subacks, 1);
        assert_true(pr.suback_is_unsub);
        assert_int_equal(pr.suback_count, v == SL_MQTT_V5 ? 2 : 0);
        peer_fini(&pr);
    }
}

static void test_requests_are_refused_with_a_reason(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_start(&pr);
    sl_mqtt_sub_option so = {.filter = sl_slice_str("a")};
    uint16_t id;
    SL_TEST_ERR(sl_mqtt_client_subscribe(pr.client, &so, 1, 0, &id), SL_EAGAIN);
    peer_send_connack(&pr, false);
    SL_TEST_ERR(sl_mqtt_client_subscribe(pr.client, &so, 0, 0, &id), SL_EINVAL);
    SL_TEST_ERR(sl_mqtt_client_unsubscribe(pr.client, NULL, 0, &id), SL_EINVAL);
    SL_TEST_ERR(sl_mqtt_client_subscribe(pr.client, &so, 1, 5, &id), SL_EINVAL); // not in 3.1.1
    so.no_local = true;
    SL_TEST_ERR(sl_mqtt_client_subscribe(pr.client, &so, 1, 0, &id), SL_EINVAL);
    so = (sl_mqtt_sub_option){.filter = sl_slice_str("a#")};
    SL_TEST_ERR(sl_mqtt_client_subscribe(pr.client, &so, 1, 0, &id), SL_EINVAL);
    so.filter = sl_slice_str("a");
    for (unsigned i = 0; i < 64; i++)
        SL_TEST_OK(sl_mqtt_client_subscribe(pr.client, &so, 1, 0, &id));
    SL_TEST_ERR(sl_mqtt_client_subscribe(pr.client, &so, 1, 0, &id), SL_ELIMIT);
    peer_fini(&pr);
}

static void test_suback_that_answers_nothing_ends_the_connection(void **state)
{
    (void)state;
    static const uint8_t two[] = {0, 0};
    for (unsigned kind = 0; kind < 3; kind++) {
        peer pr;
        peer_init(&pr, SL_MQTT_V5);
        peer_connect(&pr);
        sl_mqtt_sub_option so = {.filter = sl_slice_str("a")};
        uint16_t id = 0;
        SL_TEST_OK(sl_mqtt_client_subscribe(pr.client, &so, 1, 0, &id));
        (void)peer_expect(&pr, SL_MQTT_SUBSCRIBE);
        sl_mqtt_packet pkt = {.type = kind == 2 ? SL_MQTT_UNSUBACK : SL_MQTT_SUBACK,
                              .suback = {.packet_id = (uint16_t)(id + (kind == 0)),
                                         .reasons = sl_slice_of(two, kind == 1 ? 2 : 1)}};
        peer_send(&pr, &pkt);
        assert_int_equal(pr.subacks, 0);
        SL_TEST_ERR(pr.down.err, SL_EPROTOCOL);
        peer_fini(&pr);
    }
}

/* ---- publishes ---- */

static void test_publish_completes_by_its_qos(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    SL_TEST_OK(publish(&pr, 0, "zero"));
    assert_int_equal(pr.published, 0); // never before return
    assert_int_equal(expect_publish(&pr, 0, false, "zero"), 0);
    assert_int_equal(pr.published, 1);
    SL_TEST_OK(publish(&pr, 1, "one"));
    uint16_t id = expect_publish(&pr, 1, false, "one");
    assert_int_equal(pr.published, 1);
    peer_send_ack(&pr, SL_MQTT_PUBACK, id, SL_RC_NO_MATCHING_SUBSCRIBERS);
    assert_int_equal(pr.published, 2);
    assert_int_equal(pr.published_reason, 0x10);
    SL_TEST_OK(publish(&pr, 2, "two"));
    id = expect_publish(&pr, 2, false, "two");
    peer_send_ack(&pr, SL_MQTT_PUBREC, id, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBREL, id, 0);
    peer_send_ack(&pr, SL_MQTT_PUBREC, id, 0); // repeated
    peer_expect_ack(&pr, SL_MQTT_PUBREL, id, 0);
    assert_int_equal(pr.published, 2);
    peer_send_ack(&pr, SL_MQTT_PUBCOMP, id, 0);
    assert_int_equal(pr.published, 3);
    SL_TEST_OK(pr.published_err);
    SL_TEST_OK(publish(&pr, 2, "no"));
    id = expect_publish(&pr, 2, false, "no");
    peer_send_ack(&pr, SL_MQTT_PUBREC, id, SL_RC_QUOTA_EXCEEDED);
    assert_int_equal(pr.published, 4);
    assert_int_equal(pr.published_reason, 0x97);
    peer_expect_nothing(&pr);
    assert_int_equal(peer_stats(&pr).inflight, 0);
    peer_fini(&pr);
}

static void test_publish_answers_acknowledgements_of_unknown_ids(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    peer_send_ack(&pr, SL_MQTT_PUBACK, 5, 0);
    peer_send_ack(&pr, SL_MQTT_PUBCOMP, 6, 0);
    peer_expect_nothing(&pr);
    peer_send_ack(&pr, SL_MQTT_PUBREC, 7, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBREL, 7, SL_RC_PACKET_ID_NOT_FOUND);
    assert_int_equal(pr.downs, 0);
    peer_fini(&pr);
}

static void test_publish_is_sent_again_with_dup_when_the_session_is_there(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    SL_TEST_OK(publish(&pr, 1, "one"));
    SL_TEST_OK(publish(&pr, 2, "two"));
    SL_TEST_OK(publish(&pr, 2, "three"));
    uint16_t one = expect_publish(&pr, 1, false, "one");
    uint16_t two = expect_publish(&pr, 2, false, "two");
    uint16_t three = expect_publish(&pr, 2, false, "three");
    peer_send_ack(&pr, SL_MQTT_PUBREC, two, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBREL, two, 0);
    peer_cut(&pr);
    SL_TEST_ERR(publish(&pr, 1, "x"), SL_EAGAIN);
    peer_redial(&pr);
    peer_send_connack(&pr, true);
    assert_int_equal(expect_publish(&pr, 1, true, "one"), one);
    peer_expect_ack(&pr, SL_MQTT_PUBREL, two, 0);
    assert_int_equal(expect_publish(&pr, 2, true, "three"), three);
    peer_send_ack(&pr, SL_MQTT_PUBACK, one, 0);
    peer_send_ack(&pr, SL_MQTT_PUBCOMP, two, 0);
    assert_int_equal(pr.published, 2);
    peer_fini(&pr);
}

static void test_publish_is_new_to_a_new_session(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    SL_TEST_OK(publish(&pr, 1, "one"));
    SL_TEST_OK(publish(&pr, 2, "two"));
    (void)expect_publish(&pr, 1, false, "one");
    uint16_t two = expect_publish(&pr, 2, false, "two");
    peer_send_ack(&pr, SL_MQTT_PUBREC, two, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBREL, two, 0);
    peer_cut(&pr);
    peer_redial(&pr);
    peer_send_connack(&pr, false);
    (void)expect_publish(&pr, 1, false, "one");
    peer_expect_nothing(&pr);
    assert_int_equal(pr.published, 1); // "two" had been taken by the server
    SL_TEST_OK(pr.published_err);
    for (unsigned i = 0; i < 2; i++) { // in the session again, and then in another one
        peer_cut(&pr);
        peer_redial(&pr);
        peer_send_connack(&pr, i == 0);
        (void)expect_publish(&pr, 1, i == 0, "one");
    }
    peer_fini(&pr);
}

static void test_publish_over_a_later_limit_of_the_server_is_given_up(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    SL_TEST_OK(publish(&pr, 1, "a payload that makes it longer than forty"));
    (void)expect_publish(&pr, 1, false, "a payload that makes it longer than forty");
    peer_cut(&pr);
    peer_redial(&pr);
    sl_mqtt_packet pkt = {
        .type = SL_MQTT_CONNACK,
        .connack = {.session_present = true,
                    .props = {.has = SL_PROP_MAXIMUM_PACKET_SIZE, .maximum_packet_size = 40}}};
    peer_send(&pr, &pkt);
    peer_expect_nothing(&pr);
    assert_int_equal(pr.published, 1);
    SL_TEST_ERR(pr.published_err, SL_ETOOBIG);
    peer_fini(&pr);
}

static void test_publish_obeys_the_windows_of_both_sides(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    pr.opt.max_inflight = 4;
    peer_start(&pr);
    sl_mqtt_packet pkt = {.type = SL_MQTT_CONNACK,
                          .connack.props = {.has = SL_PROP_RECEIVE_MAXIMUM, .receive_maximum = 2}};
    peer_send(&pr, &pkt);
    SL_TEST_OK(publish(&pr, 1, "a"));
    SL_TEST_OK(publish(&pr, 2, "b"));
    SL_TEST_OK(publish(&pr, 1, "c"));
    SL_TEST_OK(publish(&pr, 1, "d"));
    SL_TEST_ERR(publish(&pr, 1, "e"), SL_EAGAIN);
    SL_TEST_OK(publish(&pr, 0, "free"));
    uint16_t a = expect_publish(&pr, 1, false, "a");
    uint16_t b = expect_publish(&pr, 2, false, "b");
    (void)expect_publish(&pr, 0, false, "free"); // not held back by the window
    peer_expect_nothing(&pr);
    peer_send_ack(&pr, SL_MQTT_PUBREC, b, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBREL, b, 0);
    peer_expect_nothing(&pr); // PUBREC gives no place back, PUBCOMP does
    assert_int_equal(pr.writables, 0);
    peer_send_ack(&pr, SL_MQTT_PUBACK, a, 0);
    (void)expect_publish(&pr, 1, false, "c");
    assert_int_equal(pr.writables, 1);
    peer_send_ack(&pr, SL_MQTT_PUBCOMP, b, 0);
    (void)expect_publish(&pr, 1, false, "d");
    SL_TEST_OK(publish(&pr, 1, "e"));
    peer_fini(&pr);
}

static void test_publish_is_refused_with_a_reason(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_start(&pr);
    SL_TEST_ERR(publish(&pr, 0, "x"), SL_EAGAIN);
    sl_mqtt_packet pkt = {.type = SL_MQTT_CONNACK,
                          .connack.props = {.has = SL_PROP_MAXIMUM_QOS | SL_PROP_RETAIN_AVAILABLE |
                                                   SL_PROP_MAXIMUM_PACKET_SIZE,
                                            .maximum_qos = 1,
                                            .maximum_packet_size = 40}};
    peer_send(&pr, &pkt);
    SL_TEST_ERR(publish(&pr, 2, "x"), SL_EUNSUPPORTED);
    SL_TEST_ERR(publish(&pr, 3, "x"), SL_EINVAL);
    SL_TEST_ERR(publish(&pr, 1, "a payload that makes it longer than forty"), SL_ETOOBIG);
    sl_mqtt_publish pb = {.topic = sl_slice_str("a/#")};
    SL_TEST_ERR(sl_mqtt_client_publish(pr.client, &pb, NULL, NULL), SL_EINVAL);
    pb = (sl_mqtt_publish){.topic = sl_slice_str("a"), .retain = true};
    SL_TEST_ERR(sl_mqtt_client_publish(pr.client, &pb, NULL, NULL), SL_EUNSUPPORTED);
    pb.retain = false;
    SL_TEST_OK(sl_mqtt_client_publish(pr.client, &pb, NULL, NULL));
    (void)peer_expect(&pr, SL_MQTT_PUBLISH);
    peer_fini(&pr);
}

/* A server that does not read: the queue ends at its bound, and tells when it is open again. */
static void test_publish_queue_is_bounded_while_the_server_does_not_read(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    pr.opt.max_queued_bytes = 100000;
    pr.opt.keep_alive_s = 0;
    peer_connect(&pr);
    char *text = sl_alloc(10001);
    memset(text, 'x', 10000);
    text[10000] = 0;
    unsigned sent = 0;
    while (publish(&pr, 0, text) == SL_OK && sent < 1000) {
        sent++;
        peer_turn(&pr);
    }
    assert_in_range(sent, 10, 900); // what the kernel takes, and our bound
    SL_TEST_ERR(publish(&pr, 0, text), SL_EAGAIN);
    assert_int_equal(pr.writables, 0);
    for (unsigned i = 0; i < sent; i++)
        (void)expect_publish(&pr, 0, false, text);
    peer_expect_nothing(&pr);
    assert_int_equal(pr.writables, 1);
    SL_TEST_OK(publish(&pr, 0, "again"));
    (void)expect_publish(&pr, 0, false, "again");
    assert_int_equal(pr.downs, 0);
    sl_free(text);
    peer_fini(&pr);
}

static void test_publishes_complete_as_closed_when_the_client_ends(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    SL_TEST_OK(publish(&pr, 1, "a"));
    SL_TEST_OK(publish(&pr, 2, "b"));
    peer_cut(&pr);
    assert_int_equal(pr.published, 0);
    peer_fini(&pr);
    assert_int_equal(pr.published, 2);
    SL_TEST_ERR(pr.published_err, SL_ECLOSED);
}

static void test_packet_ids_skip_those_in_use_and_zero(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    SL_TEST_OK(publish(&pr, 1, "held"));
    uint16_t held = expect_publish(&pr, 1, false, "held");
    sl_mqtt_sub_option so = {.filter = sl_slice_str("a")};
    for (uint32_t i = 0; i < 66000; i++) {
        uint16_t id = 0;
        SL_TEST_OK(sl_mqtt_client_subscribe(pr.client, &so, 1, 0, &id));
        assert_true(id != 0 && id != held);
        sl_mqtt_packet pkt = peer_expect(&pr, SL_MQTT_SUBSCRIBE);
        assert_int_equal(pkt.subscribe.packet_id, id);
        pkt = (sl_mqtt_packet){.type = SL_MQTT_SUBACK,
                               .suback = {.packet_id = id, .reasons = sl_slice_of("\x00", 1)}};
        peer_send(&pr, &pkt);
    }
    assert_int_equal(pr.subacks, 66000);
    peer_fini(&pr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_subscribe_brings_the_reasons_in_the_order_asked),
        cmocka_unit_test(test_unsubscribe_is_answered_with_and_without_reasons),
        cmocka_unit_test(test_requests_are_refused_with_a_reason),
        cmocka_unit_test(test_suback_that_answers_nothing_ends_the_connection),
        cmocka_unit_test(test_publish_completes_by_its_qos),
        cmocka_unit_test(test_publish_answers_acknowledgements_of_unknown_ids),
        cmocka_unit_test(test_publish_is_sent_again_with_dup_when_the_session_is_there),
        cmocka_unit_test(test_publish_is_new_to_a_new_session),
        cmocka_unit_test(test_publish_over_a_later_limit_of_the_server_is_given_up),
        cmocka_unit_test(test_publish_obeys_the_windows_of_both_sides),
        cmocka_unit_test(test_publish_is_refused_with_a_reason),
        cmocka_unit_test(test_publish_queue_is_bounded_while_the_server_does_not_read),
        cmocka_unit_test(test_publishes_complete_as_closed_when_the_client_ends),
        cmocka_unit_test(test_packet_ids_skip_those_in_use_and_zero),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
