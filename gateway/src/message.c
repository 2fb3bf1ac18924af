/* SPDX-License-Identifier: Apache-2.0
 *
 * message: making a routed message from a decoded PUBLISH, and writing its JSON form.
 */
#include "message.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/json.h"
#include "json_member.h"
#include "mqtt/props.h"

/* Properties of a PUBLISH that the message object shows; aliases and subscription identifiers are
 * between the two ends of a connection and mean nothing to a reader. */
#define SHOWN_PROPS                                                                                \
    (SL_PROP_PAYLOAD_FORMAT | SL_PROP_MESSAGE_EXPIRY | SL_PROP_CONTENT_TYPE |                      \
     SL_PROP_RESPONSE_TOPIC | SL_PROP_CORRELATION_DATA | SL_PROP_USER)

static uint32_t count_user_props(const sl_mqtt_props *props)
{
    uint32_t count = 0;
    size_t pos = 0;
    sl_mqtt_user_prop pair;
    while (sl_mqtt_user_next(props->raw, &pos, &pair))
        count++;
    return count;
}

/* Either keeps the slices as they are (copy NULL), or moves their bytes to the copy. */
static sl_slice keep(sl_rbuf *copy, sl_slice bytes)
{
    if (copy == NULL || bytes.len == 0)
        return bytes;
    uint8_t *to = copy->data + copy->len;
    memcpy(to, bytes.ptr, bytes.len);
    copy->len += (uint32_t)bytes.len;
    return sl_slice_of(to, bytes.len);
}

static void keep_props(sl_message *msg, const sl_mqtt_props *props, sl_rbuf *copy,
                       sl_mqtt_user_prop *pairs)
{
    sl_message_props *own = &msg->props;
    own->has = props->has & SHOWN_PROPS;
    own->payload_format = props->payload_format;
    own->message_expiry_s = props->message_expiry;
    if (own->has & SL_PROP_CONTENT_TYPE)
        own->content_type = keep(copy, props->content_type);
    if (own->has & SL_PROP_RESPONSE_TOPIC)
        own->response_topic = keep(copy, props->response_topic);
    if (own->has & SL_PROP_CORRELATION_DATA)
        own->correlation_data = keep(copy, props->correlation_data);
    size_t pos = 0;
    sl_mqtt_user_prop pair;
    uint32_t at = 0;
    while (at < own->user_count && sl_mqtt_user_next(props->raw, &pos, &pair)) {
        pairs[at].name = keep(copy, pair.name);
        pairs[at].value = keep(copy, pair.value);
        at++;
    }
    own->user = own->user_count > 0 ? pairs : NULL;
}

sl_message *sl_message_new(const sl_mqtt_publish *publish, sl_rbuf *rb, int64_t received_at_ns)
{
    uint32_t users =
        (publish->props.has & SL_PROP_USER) != 0 ? count_user_props(&publish->props) : 0;
    // one allocation: the header and the list of pairs behind it
    sl_message *msg = sl_calloc(1, sizeof *msg + users * sizeof(sl_mqtt_user_prop));
    atomic_init(&msg->_refs, 1);
    msg->qos = publish->qos;
    msg->retain = publish->retain;
    msg->dup = publish->dup;
    msg->received_at_ns = received_at_ns;
    msg->props.user_count = users;

    size_t used = publish->topic.len + publish->payload.len + publish->props.raw.len;
    sl_rbuf *copy = NULL;
    if (used * 2 < rb->cap)
        copy = sl_rbuf_new(used);
    msg->topic = keep(copy, publish->topic);
    msg->payload = keep(copy, publish->payload);
    keep_props(msg, &publish->props, copy, (sl_mqtt_user_prop *)(void *)(msg + 1));
    msg->is_text = sl_utf8_is_valid(msg->payload);
    msg->_body = copy != NULL ? copy : sl_rbuf_ref(rb);
    return msg;
}

void sl_message_unref(sl_message **msg)
{
    sl_message *own = *msg;
    *msg = NULL;
    if (own == NULL || atomic_fetch_sub_explicit(&own->_refs, 1, memory_order_acq_rel) != 1)
        return;
    for (int i = 0; i < 2; i++) {
        sl_rbuf *event = atomic_load_explicit(&own->_event[i], memory_order_acquire);
        sl_rbuf_unref(&event);
    }
    sl_rbuf_unref(&own->_body);
    sl_free(own);
}

size_t sl_message_json_bound(const sl_message *msg)
{
    // a byte becomes at most six ("\u0000"); base64 is shorter than that
    size_t raw = msg->topic.len + msg->payload.len + msg->props.content_type.len +
                 msg->props.response_topic.len + msg->props.correlation_data.len;
    for (uint32_t i = 0; i < msg->props.user_count; i++)
        raw += msg->props.user[i].name.len + msg->props.user[i].value.len + 8;
    return raw * 6 + 512;
}

static sl_err write_base64_field(sl_buf *out, const char *name, sl_slice bytes)
{
    sl_err err = sl_json_member_name(out, name);
    JSON_TRY(sl_buf_append_u8(out, '"'));
    JSON_TRY(sl_base64_write(out, bytes));
    JSON_TRY(sl_buf_append_u8(out, '"'));
    return err;
}

static sl_err write_mqtt5(sl_buf *out, const sl_message_props *props)
{
    sl_err err = sl_buf_append_str(out, ",\"mqtt5\":{");
    if (props->has & SL_PROP_USER)
        JSON_TRY(sl_json_member_user_props(out, props));
    if (props->has & SL_PROP_CONTENT_TYPE)
        JSON_TRY(sl_json_member_text(out, "contentType", props->content_type));
    if (props->has & SL_PROP_CORRELATION_DATA)
        JSON_TRY(write_base64_field(out, "correlationData", props->correlation_data));
    if (props->has & SL_PROP_RESPONSE_TOPIC)
        JSON_TRY(sl_json_member_text(out, "responseTopic", props->response_topic));
    if (props->has & SL_PROP_PAYLOAD_FORMAT)
        JSON_TRY(sl_json_member_number(out, "payloadFormatIndicator", props->payload_format));
    if (props->has & SL_PROP_MESSAGE_EXPIRY)
        JSON_TRY(sl_json_member_number(out, "messageExpiryInterval", props->message_expiry_s));
    JSON_TRY(sl_buf_append_u8(out, '}'));
    return err;
}

sl_err sl_message_write_json(const sl_message *msg, sl_message_replay replay, sl_buf *out)
{
    char when[SL_CLOCK_ISO_BYTES];
    sl_clock_format_iso(msg->received_at_ns, when);
    sl_err err = sl_buf_append_u8(out, '{');
    JSON_TRY(sl_json_member_text(out, "topic", msg->topic));
    if (msg->is_text)
        JSON_TRY(sl_json_member_text(out, "payload", msg->payload));
    else
        JSON_TRY(write_base64_field(out, "payload", msg->payload));
    JSON_TRY(sl_buf_printf(
        out, ",\"payloadEncoding\":\"%s\",\"receivedAt\":\"%s\",\"qos\":%u,\"retain\":%s",
        msg->is_text ? "text" : "base64", when, msg->qos, msg->retain ? "true" : "false"));
    if (msg->props.has != 0)
        JSON_TRY(write_mqtt5(out, &msg->props));
    if (replay != SL_MESSAGE_NO_REPLAY_FIELD)
        JSON_TRY(
            sl_buf_printf(out, ",\"replay\":%s", replay == SL_MESSAGE_REPLAYED ? "true" : "false"));
    JSON_TRY(sl_buf_append_u8(out, '}'));
    return err;
}
