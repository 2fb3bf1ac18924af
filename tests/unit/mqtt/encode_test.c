/* SPDX-License-Identifier: Apache-2.0
 *
 * Encoding: what it refuses, short forms, the layout of a stored PUBLISH. That it writes what
 * decode reads is checked by the round trips.
 */
#include "sl_test.h"

#include "base/alloc.h"
#include "mqtt/decode.h"
#include "mqtt/encode.h"

static void assert_bytes(const sl_mqtt_packet *pkt, sl_mqtt_version version, const char *bytes,
                         size_t len)
{
    sl_buf out;
    sl_buf_init(&out, 1000);
    SL_TEST_OK(sl_mqtt_encode(pkt, version, &out));
    assert_int_equal(sl_buf_peek(&out).len, len);
    assert_memory_equal(sl_buf_peek(&out).ptr, bytes, len);
    sl_buf_fini(&out);
}

#define ASSERT_BYTES(pkt, version, text) assert_bytes(pkt, version, text, sizeof(text) - 1)

static void assert_refused(const sl_mqtt_packet *pkt, sl_mqtt_version version)
{
    sl_buf out;
    sl_buf_init(&out, 1000);
    SL_TEST_ERR(sl_mqtt_encode(pkt, version, &out), SL_EINVAL);
    assert_int_equal(sl_buf_peek(&out).len, 0);
    sl_buf_fini(&out);
}

static void test_encode_uses_the_short_forms_of_5(void **state)
{
    (void)state;
    sl_mqtt_packet pkt = {.type = SL_MQTT_PUBACK, .ack = {.packet_id = 0x0102}};
    ASSERT_BYTES(&pkt, SL_MQTT_V311, "\x40\x02\x01\x02");
    ASSERT_BYTES(&pkt, SL_MQTT_V5, "\x40\x02\x01\x02");
    pkt.ack.reason = SL_RC_QUOTA_EXCEEDED;
    ASSERT_BYTES(&pkt, SL_MQTT_V5, "\x40\x03\x01\x02\x97");
    pkt.ack.props.has = SL_PROP_REASON_STRING;
    pkt.ack.props.reason_string = sl_slice_str("no");
    ASSERT_BYTES(&pkt, SL_MQTT_V5, "\x40\x09\x01\x02\x97\x05\x1f\x00\x02no");
    pkt = (sl_mqtt_packet){.type = SL_MQTT_DISCONNECT};
    ASSERT_BYTES(&pkt, SL_MQTT_V5, "\xe0\x00");
    pkt.disconnect.reason = SL_RC_SESSION_TAKEN_OVER;
    ASSERT_BYTES(&pkt, SL_MQTT_V5, "\xe0\x01\x8e");
    pkt = (sl_mqtt_packet){.type = SL_MQTT_PUBREL, .ack = {.packet_id = 1}};
    ASSERT_BYTES(&pkt, SL_MQTT_V31, "\x62\x02\x00\x01");
}

static void test_encode_leaves_out_what_3_has_no_word_for(void **state)
{
    (void)state;
    sl_mqtt_packet pkt = {.type = SL_MQTT_PUBACK,
                          .ack = {.packet_id = 1, .reason = SL_RC_NO_MATCHING_SUBSCRIBERS}};
    ASSERT_BYTES(&pkt, SL_MQTT_V311, "\x40\x02\x00\x01");
    pkt = (sl_mqtt_packet){.type = SL_MQTT_UNSUBACK,
                           .suback = {.packet_id = 1, .reasons = sl_slice_of("\x00\x11", 2)}};
    ASSERT_BYTES(&pkt, SL_MQTT_V311, "\xb0\x02\x00\x01");
    ASSERT_BYTES(&pkt, SL_MQTT_V5, "\xb0\x05\x00\x01\x00\x00\x11");
}

static void test_encode_refuses_what_the_version_cannot_carry(void **state)
{
    (void)state;
    sl_mqtt_packet pkt = {.type = SL_MQTT_PUBACK,
                          .ack = {.packet_id = 1, .reason = SL_RC_NOT_AUTHORIZED}};
    assert_refused(&pkt, SL_MQTT_V311); // would read as success
    pkt = (sl_mqtt_packet){.type = SL_MQTT_DISCONNECT,
                           .disconnect = {.reason = SL_RC_SESSION_TAKEN_OVER}};
    assert_refused(&pkt, SL_MQTT_V311);
    pkt = (sl_mqtt_packet){.type = SL_MQTT_AUTH};
    assert_refused(&pkt, SL_MQTT_V311);
    pkt = (sl_mqtt_packet){
        .type = SL_MQTT_PUBLISH,
        .publish = {.topic = sl_slice_str("t"), .props = {.has = SL_PROP_MESSAGE_EXPIRY}}};
    assert_refused(&pkt, SL_MQTT_V311);
    sl_mqtt_sub_option so = {.filter = sl_slice_str("a"), .no_local = true};
    pkt = (sl_mqtt_packet){.type = SL_MQTT_SUBSCRIBE,
                           .subscribe = {.packet_id = 1, .count = 1, .options = &so}};
    assert_refused(&pkt, SL_MQTT_V311);
    pkt = (sl_mqtt_packet){.type = SL_MQTT_CONNACK, .connack = {.reason = 0x87}};
    assert_refused(&pkt, SL_MQTT_V311);
    pkt = (sl_mqtt_packet){.type = SL_MQTT_SUBACK,
                           .suback = {.packet_id = 1, .reasons = sl_slice_of("\x87", 1)}};
    assert_refused(&pkt, SL_MQTT_V311);
}

static void test_encode_refuses_broken_packets(void **state)
{
    (void)state;
    sl_mqtt_packet pkt = {.type = SL_MQTT_PUBLISH, .publish = {.topic = sl_slice_str("t")}};
    pkt.publish.qos = 1; // without a packet id
    assert_refused(&pkt, SL_MQTT_V5);
    pkt.publish.qos = 0;
    pkt.publish.packet_id = 1;
    assert_refused(&pkt, SL_MQTT_V5);
    pkt.publish.packet_id = 0;
    pkt.publish.dup = true;
    assert_refused(&pkt, SL_MQTT_V5);
    pkt.publish.dup = false;
    pkt.publish.topic.len = 0; // no alias either
    assert_refused(&pkt, SL_MQTT_V5);
    pkt = (sl_mqtt_packet){.type = SL_MQTT_PUBACK};
    assert_refused(&pkt, SL_MQTT_V5);
    pkt = (sl_mqtt_packet){.type = SL_MQTT_PUBACK,
                           .ack = {.packet_id = 1, .props = {.has = SL_PROP_TOPIC_ALIAS}}};
    assert_refused(&pkt, SL_MQTT_V5);
    pkt.ack.props.has = SL_PROP_USER; // says there are some, gives none
    assert_refused(&pkt, SL_MQTT_V5);
    pkt = (sl_mqtt_packet){.type = SL_MQTT_SUBSCRIBE, .subscribe = {.packet_id = 1}};
    assert_refused(&pkt, SL_MQTT_V5);
    pkt = (sl_mqtt_packet){.type = SL_MQTT_CONNACK,
                           .connack = {.session_present = true, .reason = 0x80}};
    assert_refused(&pkt, SL_MQTT_V5);
    pkt = (sl_mqtt_packet){.type = (sl_mqtt_type)0};
    assert_refused(&pkt, SL_MQTT_V5);
}

static void test_encode_refuses_texts_over_65535_bytes(void **state)
{
    (void)state;
    static uint8_t big[65536];
    memset(big, 'x', sizeof(big));
    sl_mqtt_packet pkt = {.type = SL_MQTT_PUBLISH, .publish = {.topic = sl_slice_of(big, 65536)}};
    assert_refused(&pkt, SL_MQTT_V311);
    pkt.publish.topic = sl_slice_str("t");
    sl_mqtt_user_prop up = {.name = sl_slice_of(big, 65536)};
    pkt.publish.props.user = &up;
    pkt.publish.props.user_count = 1;
    assert_refused(&pkt, SL_MQTT_V5);
    pkt.publish.props =
        (sl_mqtt_props){.has = SL_PROP_CONTENT_TYPE, .content_type = sl_slice_of(big, 65536)};
    assert_refused(&pkt, SL_MQTT_V5);
}

static void test_encode_appends_nothing_when_the_buffer_is_full(void **state)
{
    (void)state;
    sl_mqtt_packet pkt = {
        .type = SL_MQTT_PUBLISH,
        .publish = {.topic = sl_slice_str("t"), .payload = sl_slice_str("0123456789")}};
    sl_buf out;
    sl_buf_init(&out, 20);
    SL_TEST_OK(sl_mqtt_encode(&pkt, SL_MQTT_V311, &out));
    SL_TEST_ERR(sl_mqtt_encode(&pkt, SL_MQTT_V311, &out), SL_ETOOBIG);
    assert_int_equal(sl_buf_peek(&out).len, 15);
    // Over what a remaining length can say; the payload is never touched.
    pkt.publish.payload = sl_slice_of(out._ptr, SL_MQTT_MAX_REMAINING);
    SL_TEST_ERR(sl_mqtt_encode(&pkt, SL_MQTT_V311, &out), SL_ETOOBIG);
    sl_buf_fini(&out);
}

/* ---- layout of a stored PUBLISH ---- */

static void check_layout(uint8_t qos, sl_slice payload, uint32_t users)
{
    sl_mqtt_user_prop up[3] = {{sl_slice_str("n"), sl_slice_str("v")},
                               {sl_slice_str("n2"), sl_slice_str("v2")},
                               {sl_slice_str(""), sl_slice_str("")}};
    sl_mqtt_packet pkt = {.type = SL_MQTT_PUBLISH,
                          .publish = {.qos = qos,
                                      .retain = true,
                                      .packet_id = qos > 0 ? 0x1234 : 0,
                                      .topic = sl_slice_str("a/b"),
                                      .payload = payload,
                                      .props = {.user = up, .user_count = users}}};
    sl_buf out;
    sl_buf_init(&out, 100000);
    SL_TEST_OK(sl_mqtt_encode(&pkt, SL_MQTT_V5, &out));
    sl_slice wire = sl_buf_peek(&out);
    sl_mqtt_publish_layout lay;
    SL_TEST_OK(sl_mqtt_publish_lay_out(wire, &lay));
    sl_mqtt_packet back;
    sl_mqtt_rc rc;
    const char *why;
    SL_TEST_OK(sl_mqtt_decode(wire, SL_MQTT_V5, SL_MQTT_CLIENT_READS, &back, &rc, &why));
    assert_int_equal(lay.first, wire.ptr[0]);
    assert_int_equal(lay.topic_len, back.publish.topic.len);
    assert_ptr_equal(wire.ptr + lay.topic_off + 2, back.publish.topic.ptr);
    assert_int_equal(wire.ptr[lay.topic_off] << 8 | wire.ptr[lay.topic_off + 1], lay.topic_len);
    assert_ptr_equal(wire.ptr + lay.props_off, back.publish.props.raw.ptr);
    assert_int_equal(lay.props_len, back.publish.props.raw.len);
    assert_int_equal(lay.payload_len, payload.len);
    assert_int_equal(lay.payload_off + lay.payload_len, wire.len);
    // Put together for a 3.1.1 subscriber from the stored bytes, as the egress does.
    uint8_t head[SL_MQTT_PUBLISH_HEAD_MAX];
    uint32_t size = sl_mqtt_publish_head(head, 0x30, 2 + lay.topic_len + lay.payload_len);
    sl_buf three;
    sl_buf_init(&three, 100000);
    SL_TEST_OK(sl_buf_append(&three, head, size));
    SL_TEST_OK(sl_buf_append(&three, wire.ptr + lay.topic_off, 2 + lay.topic_len));
    SL_TEST_OK(sl_buf_append(&three, wire.ptr + lay.payload_off, lay.payload_len));
    SL_TEST_OK(
        sl_mqtt_decode(sl_buf_peek(&three), SL_MQTT_V311, SL_MQTT_CLIENT_READS, &back, &rc, &why));
    SL_TEST_SLICE(back.publish.topic, "a/b");
    assert_true(sl_slice_equal(back.publish.payload, payload));
    sl_buf_fini(&three);
    sl_buf_fini(&out);
}

static void test_layout_finds_the_parts_of_a_stored_publish(void **state)
{
    (void)state;
    static uint8_t payload[20000];
    for (uint8_t qos = 0; qos < 3; qos++) {
        for (uint32_t users = 0; users < 4; users++) {
            check_layout(qos, sl_slice_of(payload, 0), users);
            check_layout(qos, sl_slice_of(payload, 1), users);
            check_layout(qos, sl_slice_of(payload, 20000), users);
        }
    }
}

static void test_layout_of_damaged_bytes_is_malformed(void **state)
{
    (void)state;
    sl_mqtt_packet pkt = {
        .type = SL_MQTT_PUBLISH,
        .publish = {
            .qos = 1, .packet_id = 1, .topic = sl_slice_str("a/b"), .payload = sl_slice_str("x")}};
    sl_buf out;
    sl_buf_init(&out, 1000);
    SL_TEST_OK(sl_mqtt_encode(&pkt, SL_MQTT_V5, &out));
    sl_slice wire = sl_buf_peek(&out);
    sl_mqtt_publish_layout lay;
    for (size_t len = 0; len < wire.len; len++) {
        uint8_t *cut = sl_alloc(len + 1);
        memcpy(cut, wire.ptr, len);
        SL_TEST_ERR(sl_mqtt_publish_lay_out(sl_slice_of(cut, len), &lay), SL_EMALFORMED);
        sl_free(cut);
    }
    uint8_t copy[64];
    memcpy(copy, wire.ptr, wire.len);
    copy[0] = 0x40;
    SL_TEST_ERR(sl_mqtt_publish_lay_out(sl_slice_of(copy, wire.len), &lay), SL_EMALFORMED);
    copy[0] = 0x32;
    copy[3] = 200; // topic beyond the packet
    SL_TEST_ERR(sl_mqtt_publish_lay_out(sl_slice_of(copy, wire.len), &lay), SL_EMALFORMED);
    sl_buf_fini(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_encode_uses_the_short_forms_of_5),
        cmocka_unit_test(test_encode_leaves_out_what_3_has_no_word_for),
        cmocka_unit_test(test_encode_refuses_what_the_version_cannot_carry),
        cmocka_unit_test(test_encode_refuses_broken_packets),
        cmocka_unit_test(test_encode_refuses_texts_over_65535_bytes),
        cmocka_unit_test(test_encode_appends_nothing_when_the_buffer_is_full),
        cmocka_unit_test(test_layout_finds_the_parts_of_a_stored_publish),
        cmocka_unit_test(test_layout_of_damaged_bytes_is_malformed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
