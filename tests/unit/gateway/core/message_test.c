/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/message: what is kept of a PUBLISH, and its JSON form.
 */
#include "message.h"

#include "base/alloc.h"
#include "sl_test.h"

#define RECEIVED_NS 1764534410123456789ll /* 2025-11-30T20:26:50.123456789Z */

/* An rbuf that holds text, with cap bytes of room. */
static sl_rbuf *rbuf_of(const void *bytes, size_t len, size_t cap)
{
    sl_rbuf *rb = sl_rbuf_new(cap);
    memcpy(rb->data, bytes, len);
    rb->len = (uint32_t)len;
    return rb;
}

static sl_message *make(const char *topic, const void *payload, size_t len)
{
    sl_rbuf *rb = rbuf_of(payload, len, len + 1);
    sl_mqtt_publish pb = {
        .topic = sl_slice_str(topic), .payload = sl_slice_of(rb->data, len), .qos = 1};
    sl_message *msg = sl_message_new(&pb, rb, RECEIVED_NS);
    sl_rbuf_unref(&rb);
    return msg;
}

static void assert_json(const sl_message *msg, sl_message_replay replay, const char *want)
{
    sl_buf out;
    sl_buf_init(&out, 1 << 20);
    SL_TEST_OK(sl_message_write_json(msg, replay, &out));
    assert_true(sl_buf_peek(&out).len <= sl_message_json_bound(msg));
    SL_TEST_OK(sl_buf_append_u8(&out, '\0'));
    assert_string_equal((const char *)sl_buf_peek(&out).ptr, want);
    sl_buf_fini(&out);
}

static void test_message_text_payload_is_shown_as_text(void **state)
{
    (void)state;
    sl_message *msg = make("a/b", "21.5 \"\xC3\xA9\"", 9);
    assert_true(msg->is_text);
    assert_json(msg, SL_MESSAGE_NO_REPLAY_FIELD,
                "{\"topic\":\"a/b\",\"payload\":\"21.5 \\\"\xC3\xA9\\\"\",\"payloadEncoding\":"
                "\"text\",\"receivedAt\":\"2025-11-30T20:26:50.123456789Z\",\"qos\":1,"
                "\"retain\":false}");
    sl_message_unref(&msg);
    assert_null(msg);
}

static void test_message_bytes_that_are_not_utf8_are_base64(void **state)
{
    (void)state;
    sl_message *msg = make("a", "\x00\xFF\xFE", 3);
    assert_false(msg->is_text);
    assert_json(msg, SL_MESSAGE_LIVE,
                "{\"topic\":\"a\",\"payload\":\"AP/+\",\"payloadEncoding\":\"base64\","
                "\"receivedAt\":\"2025-11-30T20:26:50.123456789Z\",\"qos\":1,\"retain\":false,"
                "\"replay\":false}");
    sl_message_unref(&msg);
    msg = make("a", "\xED\xA0\x80", 3); // a lone surrogate is not UTF-8
    assert_false(msg->is_text);
    sl_message_unref(&msg);
}

static void test_message_empty_payload_is_an_empty_text(void **state)
{
    (void)state;
    sl_message *msg = make("a", "", 0);
    assert_json(msg, SL_MESSAGE_REPLAYED,
                "{\"topic\":\"a\",\"payload\":\"\",\"payloadEncoding\":\"text\",\"receivedAt\":"
                "\"2025-11-30T20:26:50.123456789Z\",\"qos\":1,\"retain\":false,\"replay\":true}");
    sl_message_unref(&msg);
}

/* Properties as they are on the wire: repeated user properties keep their order. */
static const uint8_t raw_props[] = {
    0x26, 0, 1, 'k', 0, 2, 'v', '1', // user property k=v1
    0x26, 0, 1, 'k', 0, 0,           // k=""
    0x26, 0, 1, 'a', 0, 1, 'b',      // a=b
};

static void test_message_keeps_mqtt5_properties_in_order(void **state)
{
    (void)state;
    sl_rbuf *rb = rbuf_of(raw_props, sizeof raw_props, 65536); // much larger than the message
    sl_mqtt_publish pb = {.topic = sl_slice_str("t"), .retain = true, .qos = 2};
    pb.props.has = SL_PROP_USER | SL_PROP_CONTENT_TYPE | SL_PROP_CORRELATION_DATA |
                   SL_PROP_RESPONSE_TOPIC | SL_PROP_PAYLOAD_FORMAT | SL_PROP_MESSAGE_EXPIRY |
                   SL_PROP_TOPIC_ALIAS;
    pb.props.raw = sl_slice_of(rb->data, rb->len);
    pb.props.content_type = sl_slice_str("text/plain");
    pb.props.correlation_data = sl_slice_of("\x00\x01", 2);
    pb.props.response_topic = sl_slice_str("r/t");
    pb.props.payload_format = 1;
    pb.props.message_expiry = 99;
    sl_message *msg = sl_message_new(&pb, rb, RECEIVED_NS);
    assert_true(sl_rbuf_is_sole(rb)); // copied: a small message does not pin a large buffer
    memset(rb->data, 'x', rb->len);
    sl_rbuf_unref(&rb);
    assert_int_equal(msg->props.user_count, 3);
    assert_int_equal(msg->props.has & SL_PROP_TOPIC_ALIAS, 0);
    assert_json(msg, SL_MESSAGE_NO_REPLAY_FIELD,
                "{\"topic\":\"t\",\"payload\":\"\",\"payloadEncoding\":\"text\",\"receivedAt\":"
                "\"2025-11-30T20:26:50.123456789Z\",\"qos\":2,\"retain\":true,\"mqtt5\":{"
                "\"userProperties\":[{\"name\":\"k\",\"value\":\"v1\"},{\"name\":\"k\",\"value\":"
                "\"\"},{\"name\":\"a\",\"value\":\"b\"}],\"contentType\":\"text/plain\","
                "\"correlationData\":\"AAE=\",\"responseTopic\":\"r/t\","
                "\"payloadFormatIndicator\":1,\"messageExpiryInterval\":99}}");
    sl_message_unref(&msg);
}

static void test_message_shares_a_buffer_that_it_fills(void **state)
{
    (void)state;
    char payload[1000];
    memset(payload, 'p', sizeof payload);
    sl_rbuf *rb = rbuf_of(payload, sizeof payload, 1200);
    sl_mqtt_publish pb = {.topic = sl_slice_str("t"),
                          .payload = sl_slice_of(rb->data, sizeof payload)};
    sl_message *msg = sl_message_new(&pb, rb, RECEIVED_NS);
    assert_false(sl_rbuf_is_sole(rb));
    assert_ptr_equal(msg->payload.ptr, rb->data);
    sl_message *second = sl_message_ref(msg);
    sl_message_unref(&msg);
    assert_ptr_equal(second->payload.ptr, rb->data);
    sl_message_unref(&second);
    assert_true(sl_rbuf_is_sole(rb));
    sl_rbuf_unref(&rb);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_message_text_payload_is_shown_as_text),
        cmocka_unit_test(test_message_bytes_that_are_not_utf8_are_base64),
        cmocka_unit_test(test_message_empty_payload_is_an_empty_text),
        cmocka_unit_test(test_message_keeps_mqtt5_properties_in_order),
        cmocka_unit_test(test_message_shares_a_buffer_that_it_fills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
