/* SPDX-License-Identifier: Apache-2.0
 *
 * encode: see encode.h. Every packet is measured first, room is reserved once, then it is written
 * by a bare pointer: nothing is appended when it cannot be.
 */
#include "mqtt/encode.h"

#include "base/assert.h"
#include "mqtt/codec_int.h"
#include "mqtt/props.h"
#include "mqtt/reason.h"

#define MAX_TEXT_BYTES 65535u

uint32_t sl_mqtt_varint_size(uint32_t value)
{
    return value < 0x80u ? 1 : value < 0x4000u ? 2 : value < 0x200000u ? 3 : 4;
}

uint32_t sl_mqtt_varint_write(uint8_t *out, uint32_t value)
{
    uint32_t used = 0;
    while (value >= 0x80u) {
        out[used++] = (uint8_t)(value | 0x80u);
        value >>= 7;
    }
    out[used++] = (uint8_t)value;
    return used;
}

uint32_t sl_mqtt_publish_head(uint8_t *out, uint8_t first, uint32_t remaining)
{
    out[0] = first;
    return 1 + sl_mqtt_varint_write(out + 1, remaining);
}

/* ---- measuring ---- */

/* What a packet will look like: filled by measure(), used by write(). */
typedef struct plan {
    sl_mqtt_version version;
    uint8_t first;
    bool short_form; /* 5.0: reason and properties left out */
    uint64_t body;   /* remaining length */
    uint32_t props;  /* properties without their length */
    uint32_t will_props;
} plan;

static sl_err add_text(plan *pl, sl_slice text)
{
    if (text.len > MAX_TEXT_BYTES)
        return SL_EINVAL;
    pl->body += 2 + text.len;
    return SL_OK;
}

/* Properties with their length in 5.0; 3.x must have none. */
static sl_err add_props(plan *pl, const sl_mqtt_props *props, uint32_t where, uint32_t *size)
{
    if (pl->version != SL_MQTT_V5) {
        *size = 0;
        bool none = props->has == 0 && props->user_count == 0 && props->sub_id_count == 0 &&
                    !(props->use_raw && props->raw.len > 0);
        return none ? SL_OK : SL_EINVAL;
    }
    sl_err err = sl_mqtt_props_size(props, where, size);
    if (err == SL_OK)
        pl->body += sl_mqtt_varint_size(*size) + *size;
    return err;
}

static sl_err plan_will(plan *pl, const sl_mqtt_will *will)
{
    if (will->qos > 2 || add_text(pl, will->topic) != SL_OK || add_text(pl, will->payload) != SL_OK)
        return SL_EINVAL;
    return add_props(pl, &will->props, SL_PROPS_OF_WILL, &pl->will_props);
}

static sl_err plan_connect(plan *pl, const sl_mqtt_connect *cn)
{
    pl->version = cn->version;
    if (cn->version != SL_MQTT_V31 && cn->version != SL_MQTT_V311 && cn->version != SL_MQTT_V5)
        return SL_EINVAL;
    if (cn->version != SL_MQTT_V5 && cn->has_password && !cn->has_username)
        return SL_EINVAL;
    pl->body = (cn->version == SL_MQTT_V31 ? 8 : 6) + 1 + 1 + 2;
    sl_err err = add_props(pl, &cn->props, SL_PROPS_OF(SL_MQTT_CONNECT), &pl->props);
    if (err == SL_OK)
        err = add_text(pl, cn->client_id);
    if (err == SL_OK && cn->has_will)
        err = plan_will(pl, &cn->will);
    if (err == SL_OK && cn->has_username)
        err = add_text(pl, cn->username);
    if (err == SL_OK && cn->has_password)
        err = add_text(pl, cn->password);
    return err;
}

static sl_err plan_connack(plan *pl, const sl_mqtt_connack *ca)
{
    if (ca->session_present && (ca->reason != 0 || pl->version == SL_MQTT_V31))
        return SL_EINVAL;
    bool fine = pl->version == SL_MQTT_V5 ? sl_mqtt_rc_is_allowed(ca->reason, SL_MQTT_CONNACK, true)
                                          : ca->reason <= 5;
    if (!fine)
        return SL_EINVAL;
    pl->body = 2;
    return add_props(pl, &ca->props, SL_PROPS_OF(SL_MQTT_CONNACK), &pl->props);
}

static sl_err plan_publish(plan *pl, const sl_mqtt_publish *pb)
{
    if (pb->qos > 2 || (pb->qos == 0 && pb->dup) || (pb->qos > 0) != (pb->packet_id != 0))
        return SL_EINVAL;
    if (pb->topic.len == 0 &&
        (pl->version != SL_MQTT_V5 || (pb->props.has & SL_PROP_TOPIC_ALIAS) == 0))
        return SL_EINVAL;
    pl->first = (uint8_t)(pl->first | (pb->dup ? 8u : 0u) | (unsigned)pb->qos << 1 |
                          (pb->retain ? 1u : 0u));
    if (add_text(pl, pb->topic) != SL_OK)
        return SL_EINVAL;
    pl->body += (pb->qos > 0 ? 2 : 0) + pb->payload.len;
    return add_props(pl, &pb->props, SL_PROPS_OF(SL_MQTT_PUBLISH), &pl->props);
}

static bool has_props(const sl_mqtt_props *props)
{
    return props->use_raw ? props->raw.len > 0
                          : props->has != 0 || props->user_count > 0 || props->sub_id_count > 0;
}

static sl_err plan_ack(plan *pl, sl_mqtt_type type, const sl_mqtt_ack *ack)
{
    if (ack->packet_id == 0)
        return SL_EINVAL;
    pl->body = 2;
    if (pl->version != SL_MQTT_V5) {
        // 3.x has no negative acknowledgement; a reason that is a kind of success needs no word.
        return ack->reason < 0x80 ? add_props(pl, &ack->props, 0, &pl->props) : SL_EINVAL;
    }
    if (!sl_mqtt_rc_is_allowed(ack->reason, type, true))
        return SL_EINVAL;
    pl->short_form = !has_props(&ack->props);
    if (pl->short_form) {
        pl->body += ack->reason != 0;
        return SL_OK;
    }
    pl->body += 1;
    return add_props(pl, &ack->props, SL_PROPS_OF(type), &pl->props);
}

static sl_err plan_subscribe(plan *pl, sl_mqtt_type type, const sl_mqtt_subscribe *sub)
{
    if (sub->packet_id == 0 || sub->count == 0)
        return SL_EINVAL;
    pl->body = 2;
    if (sub->options == NULL)
        pl->body += sub->list.len;
    for (uint32_t i = 0; sub->options != NULL && i < sub->count; i++) {
        const sl_mqtt_sub_option *so = &sub->options[i];
        bool plain = !so->no_local && !so->retain_as_published && so->retain_handling == 0;
        if (so->qos > 2 || so->retain_handling > 2 || (!plain && pl->version != SL_MQTT_V5) ||
            so->filter.len == 0 || add_text(pl, so->filter) != SL_OK)
            return SL_EINVAL;
        pl->body += type == SL_MQTT_SUBSCRIBE;
    }
    return add_props(pl, &sub->props, SL_PROPS_OF(type), &pl->props);
}

static sl_err plan_suback(plan *pl, sl_mqtt_type type, const sl_mqtt_suback *sa)
{
    if (sa->packet_id == 0)
        return SL_EINVAL;
    bool v5 = pl->version == SL_MQTT_V5;
    bool bare = type == SL_MQTT_UNSUBACK && !v5;
    if (!bare && sa->reasons.len == 0)
        return SL_EINVAL;
    for (size_t i = 0; !bare && i < sa->reasons.len; i++) {
        uint8_t code = sa->reasons.ptr[i];
        if (v5 ? !sl_mqtt_rc_is_allowed(code, type, true) : code > 2 && code != 0x80)
            return SL_EINVAL;
    }
    pl->body = 2 + (bare ? 0 : sa->reasons.len);
    return add_props(pl, &sa->props, SL_PROPS_OF(type), &pl->props);
}

static sl_err plan_disconnect(plan *pl, sl_mqtt_type type, const sl_mqtt_disconnect *dc)
{
    pl->body = 0;
    if (pl->version != SL_MQTT_V5) {
        if (type == SL_MQTT_AUTH || dc->reason != 0)
            return SL_EINVAL;
        return add_props(pl, &dc->props, 0, &pl->props);
    }
    if (!sl_mqtt_rc_is_allowed(dc->reason, type, true) &&
        !sl_mqtt_rc_is_allowed(dc->reason, type, false))
        return SL_EINVAL;
    pl->short_form = !has_props(&dc->props);
    if (pl->short_form) {
        pl->body = dc->reason != 0;
        return SL_OK;
    }
    pl->body = 1;
    return add_props(pl, &dc->props, SL_PROPS_OF(type), &pl->props);
}

static sl_err measure(plan *pl, const sl_mqtt_packet *packet)
{
    bool two = packet->type == SL_MQTT_PUBREL || packet->type == SL_MQTT_SUBSCRIBE ||
               packet->type == SL_MQTT_UNSUBSCRIBE;
    pl->first = (uint8_t)((unsigned)packet->type << 4 | (two ? 2u : 0u));
    switch (packet->type) {
    case SL_MQTT_CONNECT:
        return plan_connect(pl, &packet->connect);
    case SL_MQTT_CONNACK:
        return plan_connack(pl, &packet->connack);
    case SL_MQTT_PUBLISH:
        return plan_publish(pl, &packet->publish);
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
    case SL_MQTT_PUBREL:
    case SL_MQTT_PUBCOMP:
        return plan_ack(pl, packet->type, &packet->ack);
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
        return plan_subscribe(pl, packet->type, &packet->subscribe);
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        return plan_suback(pl, packet->type, &packet->suback);
    case SL_MQTT_DISCONNECT:
    case SL_MQTT_AUTH:
        return plan_disconnect(pl, packet->type, &packet->disconnect);
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        return SL_OK;
    }
    return SL_EINVAL;
}

/* ---- writing ---- */

static uint8_t *put_u16(uint8_t *at, unsigned value)
{
    *at++ = (uint8_t)(value >> 8);
    *at++ = (uint8_t)value;
    return at;
}

static uint8_t *put_bytes(uint8_t *at, sl_slice bytes)
{
    if (bytes.len > 0)
        memcpy(at, bytes.ptr, bytes.len);
    return at + bytes.len;
}

static uint8_t *put_text(uint8_t *at, sl_slice text)
{
    return put_bytes(put_u16(at, (unsigned)text.len), text);
}

static uint8_t *put_props(uint8_t *at, const plan *pl, const sl_mqtt_props *props, uint32_t size)
{
    if (pl->version != SL_MQTT_V5)
        return at;
    at += sl_mqtt_varint_write(at, size);
    return sl_mqtt_props_write(props, at);
}

static uint8_t *put_connect(uint8_t *at, const plan *pl, const sl_mqtt_connect *cn)
{
    at = put_text(at, sl_slice_str(cn->version == SL_MQTT_V31 ? "MQIsdp" : "MQTT"));
    *at++ = (uint8_t)cn->version;
    unsigned flags = (cn->clean_start ? 0x02u : 0u) | (cn->has_username ? 0x80u : 0u) |
                     (cn->has_password ? 0x40u : 0u);
    if (cn->has_will)
        flags |= 0x04u | (unsigned)cn->will.qos << 3 | (cn->will.retain ? 0x20u : 0u);
    *at++ = (uint8_t)flags;
    at = put_u16(at, cn->keep_alive_s);
    at = put_props(at, pl, &cn->props, pl->props);
    at = put_text(at, cn->client_id);
    if (cn->has_will) {
        at = put_props(at, pl, &cn->will.props, pl->will_props);
        at = put_text(at, cn->will.topic);
        at = put_text(at, cn->will.payload);
    }
    if (cn->has_username)
        at = put_text(at, cn->username);
    if (cn->has_password)
        at = put_text(at, cn->password);
    return at;
}

static uint8_t *put_publish(uint8_t *at, const plan *pl, const sl_mqtt_publish *pb)
{
    at = put_text(at, pb->topic);
    if (pb->qos > 0)
        at = put_u16(at, pb->packet_id);
    at = put_props(at, pl, &pb->props, pl->props);
    return put_bytes(at, pb->payload);
}

/* Reason and properties as the short forms of 5.0 want it. */
static uint8_t *put_reason(uint8_t *at, const plan *pl, uint8_t reason, const sl_mqtt_props *props)
{
    if (pl->version != SL_MQTT_V5 || (pl->short_form && reason == 0))
        return at;
    *at++ = reason;
    return pl->short_form ? at : put_props(at, pl, props, pl->props);
}

static uint8_t *put_subscribe(uint8_t *at, const plan *pl, sl_mqtt_type type,
                              const sl_mqtt_subscribe *sub)
{
    at = put_u16(at, sub->packet_id);
    at = put_props(at, pl, &sub->props, pl->props);
    if (sub->options == NULL)
        return put_bytes(at, sub->list);
    for (uint32_t i = 0; i < sub->count; i++) {
        const sl_mqtt_sub_option *so = &sub->options[i];
        at = put_text(at, so->filter);
        if (type == SL_MQTT_SUBSCRIBE)
            *at++ =
                (uint8_t)(so->qos | (so->no_local ? 4u : 0u) | (so->retain_as_published ? 8u : 0u) |
                          (unsigned)so->retain_handling << 4);
    }
    return at;
}

static uint8_t *put_body(uint8_t *at, const plan *pl, const sl_mqtt_packet *packet)
{
    switch (packet->type) {
    case SL_MQTT_CONNECT:
        return put_connect(at, pl, &packet->connect);
    case SL_MQTT_CONNACK:
        *at++ = packet->connack.session_present;
        *at++ = packet->connack.reason;
        return put_props(at, pl, &packet->connack.props, pl->props);
    case SL_MQTT_PUBLISH:
        return put_publish(at, pl, &packet->publish);
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
    case SL_MQTT_PUBREL:
    case SL_MQTT_PUBCOMP:
        at = put_u16(at, packet->ack.packet_id);
        return put_reason(at, pl, packet->ack.reason, &packet->ack.props);
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
        return put_subscribe(at, pl, packet->type, &packet->subscribe);
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        at = put_u16(at, packet->suback.packet_id);
        at = put_props(at, pl, &packet->suback.props, pl->props);
        if (packet->type == SL_MQTT_UNSUBACK && pl->version != SL_MQTT_V5)
            return at;
        return put_bytes(at, packet->suback.reasons);
    case SL_MQTT_DISCONNECT:
    case SL_MQTT_AUTH:
        return put_reason(at, pl, packet->disconnect.reason, &packet->disconnect.props);
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        return at;
    }
    return at;
}

sl_err sl_mqtt_encode(const sl_mqtt_packet *packet, sl_mqtt_version version, sl_buf *out)
{
    plan pl = {.version = version};
    sl_err err = measure(&pl, packet);
    if (err != SL_OK)
        return err;
    if (pl.body > SL_MQTT_MAX_REMAINING)
        return SL_ETOOBIG;
    size_t total = 1 + sl_mqtt_varint_size((uint32_t)pl.body) + (size_t)pl.body;
    uint8_t *at;
    err = sl_buf_reserve(out, total, &at);
    if (err != SL_OK)
        return err;
    const uint8_t *end = at + total;
    at += sl_mqtt_publish_head(at, pl.first, (uint32_t)pl.body);
    at = put_body(at, &pl, packet);
    SL_ASSERT(at == end);
    sl_buf_commit(out, total);
    return SL_OK;
}

/* ---- the hot path ---- */

sl_err sl_mqtt_publish_lay_out(sl_slice packet, sl_mqtt_publish_layout *out)
{
    if (packet.len < 5 || packet.len > UINT32_MAX)
        return SL_EMALFORMED;
    sl_mqtt_reader rd = {.at = packet.ptr, .end = packet.ptr + packet.len};
    uint32_t remaining, props_len;
    sl_slice topic;
    uint16_t packet_id;
    uint8_t first;
    if (!sl_mqtt_read_u8(&rd, &first) || first >> 4 != SL_MQTT_PUBLISH ||
        !sl_mqtt_read_varint(&rd, &remaining) || remaining != sl_mqtt_reader_left(&rd) ||
        !sl_mqtt_read_binary(&rd, &topic))
        return SL_EMALFORMED;
    if ((first & 0x06u) != 0 && !sl_mqtt_read_u16(&rd, &packet_id))
        return SL_EMALFORMED;
    if (!sl_mqtt_read_varint(&rd, &props_len) || props_len > sl_mqtt_reader_left(&rd))
        return SL_EMALFORMED;
    out->first = first;
    out->topic_len = (uint32_t)topic.len;
    out->topic_off = (uint32_t)(topic.ptr - packet.ptr) - 2;
    out->props_off = (uint32_t)(rd.at - packet.ptr);
    out->props_len = props_len;
    out->payload_off = out->props_off + props_len;
    out->payload_len = (uint32_t)packet.len - out->payload_off;
    return SL_OK;
}
