/* SPDX-License-Identifier: Apache-2.0
 *
 * decode: see decode.h. One function per packet type; each returns false after it said why in the
 * reader. Nothing here depends on session state: what needs it (topic alias range, packet ids in
 * use, a second CONNECT) is checked by the session.
 */
#include "mqtt/decode.h"

#include "mqtt/codec_int.h"
#include "mqtt/props.h"
#include "mqtt/topic.h"
#include "mqtt/utf8.h"

/* What a packet function needs beside the reader. */
typedef struct context {
    sl_mqtt_version version;
    sl_mqtt_side side;
    sl_mqtt_type type;
    uint8_t first;
} context;

static bool topic_invalid(sl_mqtt_reader *rd, const char *why)
{
    return sl_mqtt_reader_fail(rd, SL_EMALFORMED, SL_RC_TOPIC_NAME_INVALID, why);
}

static bool read_packet_id(sl_mqtt_reader *rd, uint16_t *out)
{
    if (!sl_mqtt_read_u16(rd, out))
        return false;
    if (*out == 0)
        return sl_mqtt_violation(rd, "packet identifier is 0 [MQTT-2.2.1-3]");
    return true;
}

static bool at_end(sl_mqtt_reader *rd)
{
    if (rd->at != rd->end)
        return sl_mqtt_malformed(rd, "bytes behind the last field of the packet (2.1.4)");
    return true;
}

/* Properties in 5.0, nothing in 3.x. */
static bool read_props_of(sl_mqtt_reader *rd, const context *cx, sl_mqtt_props *out)
{
    if (cx->version == SL_MQTT_V5)
        return sl_mqtt_read_props(rd, SL_PROPS_OF(cx->type), out);
    *out = (sl_mqtt_props){0};
    return true;
}

/* ---- CONNECT ---- */

static bool read_protocol(sl_mqtt_reader *rd, context *cx, sl_mqtt_connect *out)
{
    sl_slice name;
    uint8_t level;
    if (!sl_mqtt_read_text(rd, &name, NULL) || !sl_mqtt_read_u8(rd, &level))
        return false;
    bool is_mqtt = sl_slice_equal(name, sl_slice_str("MQTT"));
    bool is_v31 = sl_slice_equal(name, sl_slice_str("MQIsdp"));
    out->version = (sl_mqtt_version)level;
    if (!is_mqtt && !is_v31)
        return sl_mqtt_reader_fail(rd, SL_EPROTOCOL, SL_RC_UNSUPPORTED_VERSION,
                                   "protocol name is neither MQTT nor MQIsdp [MQTT-3.1.2-1]");
    if (is_v31 ? level != SL_MQTT_V31 : level != SL_MQTT_V311 && level != SL_MQTT_V5)
        return sl_mqtt_reader_fail(rd, SL_EPROTOCOL, SL_RC_UNSUPPORTED_VERSION,
                                   "protocol level is not supported [MQTT-3.1.2-2]");
    cx->version = out->version;
    return true;
}

/* Whether bits of the flags contradict each other. MQTT 3.1 has no reserved bit and calls the will
 * bits unused without a will, so they are not looked at there. */
static bool check_connect_flags(sl_mqtt_reader *rd, sl_mqtt_version version, uint8_t flags)
{
    bool has_will = (flags & 0x04u) != 0;
    if (version != SL_MQTT_V31) {
        if ((flags & 0x01u) != 0)
            return sl_mqtt_malformed(rd, "reserved connect flag is set [MQTT-3.1.2-3]");
        if (!has_will && (flags & 0x18u) != 0)
            return sl_mqtt_malformed(rd, "will QoS without a will [MQTT-3.1.2-11]");
        if (!has_will && (flags & 0x20u) != 0)
            return sl_mqtt_malformed(rd, "will retain without a will [MQTT-3.1.2-13]");
    }
    if (has_will && (flags & 0x18u) == 0x18u)
        return sl_mqtt_malformed(rd, "will QoS is 3 [MQTT-3.1.2-12]");
    if (version != SL_MQTT_V5 && (flags & 0xC0u) == 0x40u)
        return sl_mqtt_malformed(rd, "password without a user name (3.1.1: [MQTT-3.1.2-22])");
    return true;
}

static bool read_will(sl_mqtt_reader *rd, const context *cx, uint8_t flags, sl_mqtt_will *will)
{
    if (cx->version == SL_MQTT_V5 && !sl_mqtt_read_props(rd, SL_PROPS_OF_WILL, &will->props))
        return false;
    bool wildcard = false;
    if (!sl_mqtt_read_text(rd, &will->topic, &wildcard))
        return false;
    if (will->topic.len == 0)
        return topic_invalid(rd, "will topic is empty [MQTT-4.7.3-1]");
    if (wildcard)
        return topic_invalid(rd, "will topic holds a wildcard [MQTT-4.7.1-1]");
    will->qos = (flags >> 3) & 3u;
    will->retain = (flags & 0x20u) != 0;
    return sl_mqtt_read_binary(rd, &will->payload);
}

static bool read_client_id(sl_mqtt_reader *rd, sl_mqtt_connect *out)
{
    if (!sl_mqtt_read_text(rd, &out->client_id, NULL))
        return false;
    if (out->client_id.len > 0 || out->version == SL_MQTT_V5)
        return true;
    if (out->version == SL_MQTT_V31 || !out->clean_start)
        return sl_mqtt_reader_fail(rd, SL_EPROTOCOL, SL_RC_CLIENT_ID_NOT_VALID,
                                   "client identifier is empty (3.1.1: [MQTT-3.1.3-8])");
    return true;
}

static bool read_login(sl_mqtt_reader *rd, uint8_t flags, sl_mqtt_connect *out)
{
    out->has_username = (flags & 0x80u) != 0;
    out->has_password = (flags & 0x40u) != 0;
    if (out->version == SL_MQTT_V31) {
        // MQTT 3.1 lets the remaining length overrule the flags: a field that is not there is none.
        out->has_username = out->has_username && rd->at != rd->end;
        out->has_password = out->has_password && out->has_username;
    }
    if (out->has_username && !sl_mqtt_read_text(rd, &out->username, NULL))
        return false;
    if (out->version == SL_MQTT_V31)
        out->has_password = out->has_password && rd->at != rd->end;
    return !out->has_password || sl_mqtt_read_binary(rd, &out->password);
}

static bool read_connect(sl_mqtt_reader *rd, context *cx, sl_mqtt_connect *out)
{
    *out = (sl_mqtt_connect){0};
    uint8_t flags;
    if (!read_protocol(rd, cx, out) || !sl_mqtt_read_u8(rd, &flags) ||
        !check_connect_flags(rd, cx->version, flags) || !sl_mqtt_read_u16(rd, &out->keep_alive_s))
        return false;
    out->clean_start = (flags & 0x02u) != 0;
    out->has_will = (flags & 0x04u) != 0;
    if (!read_props_of(rd, cx, &out->props) || !read_client_id(rd, out))
        return false;
    if (out->has_will && !read_will(rd, cx, flags, &out->will))
        return false;
    return read_login(rd, flags, out);
}

static bool read_connack(sl_mqtt_reader *rd, context *cx, sl_mqtt_connack *out)
{
    uint8_t flags;
    if (!sl_mqtt_read_u8(rd, &flags) || !sl_mqtt_read_u8(rd, &out->reason))
        return false;
    out->session_present = false;
    if (cx->version != SL_MQTT_V31) { // 3.1 calls the whole first byte reserved
        if ((flags & 0xFEu) != 0)
            return sl_mqtt_malformed(rd, "reserved CONNACK flag is set [MQTT-3.2.2-1]");
        out->session_present = flags == 1;
        if (out->session_present && out->reason != 0)
            return sl_mqtt_violation(rd, "session present in a refusal [MQTT-3.2.2-6]");
    }
    if (cx->version == SL_MQTT_V5) {
        if (!sl_mqtt_rc_is_allowed(out->reason, SL_MQTT_CONNACK, true))
            return sl_mqtt_violation(rd, "not a reason code of CONNACK [MQTT-3.2.2-8]");
    } else if (out->reason > 5) {
        return sl_mqtt_violation(rd, "not a return code of CONNACK (3.1.1: 3.2.2.3)");
    }
    return read_props_of(rd, cx, &out->props);
}

/* ---- PUBLISH and its acknowledgements ---- */

static bool read_publish(sl_mqtt_reader *rd, const context *cx, sl_mqtt_publish *out)
{
    uint8_t qos = (cx->first >> 1) & 3u;
    out->dup = (cx->first & 0x08u) != 0;
    out->retain = (cx->first & 0x01u) != 0;
    out->qos = qos;
    out->packet_id = 0;
    if (qos == 3)
        return sl_mqtt_malformed(rd, "QoS is 3 [MQTT-3.3.1-4]");
    if (qos == 0 && out->dup)
        return sl_mqtt_malformed(rd, "DUP is set with QoS 0 [MQTT-3.3.1-2]");
    bool wildcard = false;
    if (!sl_mqtt_read_text(rd, &out->topic, &wildcard))
        return false;
    if (wildcard)
        return topic_invalid(rd, "topic name holds a wildcard [MQTT-3.3.2-2]");
    if (qos > 0 && !read_packet_id(rd, &out->packet_id))
        return false;
    if (!read_props_of(rd, cx, &out->props))
        return false;
    if (out->topic.len == 0) {
        if (cx->version != SL_MQTT_V5)
            return topic_invalid(rd, "topic name is empty [MQTT-4.7.3-1]");
        if ((out->props.has & SL_PROP_TOPIC_ALIAS) == 0)
            return sl_mqtt_violation(rd, "topic name is empty and there is no alias (3.3.2.1)");
    }
    if (cx->side == SL_MQTT_SERVER_READS && (out->props.has & SL_PROP_SUBSCRIPTION_ID) != 0)
        return sl_mqtt_violation(rd, "subscription identifier from a client [MQTT-3.3.4-6]");
    out->payload = sl_slice_of(rd->at, sl_mqtt_reader_left(rd));
    rd->at = rd->end;
    return true;
}

static bool read_ack(sl_mqtt_reader *rd, const context *cx, sl_mqtt_ack *out)
{
    out->reason = SL_RC_SUCCESS;
    out->props = (sl_mqtt_props){0};
    if (!read_packet_id(rd, &out->packet_id))
        return false;
    // 5.0 may leave out the reason when it is success, and the property length when it is 0.
    if (cx->version != SL_MQTT_V5 || rd->at == rd->end)
        return true;
    if (!sl_mqtt_read_u8(rd, &out->reason))
        return false;
    if (!sl_mqtt_rc_is_allowed(out->reason, cx->type, cx->side == SL_MQTT_CLIENT_READS))
        return sl_mqtt_violation(rd, "not a reason code of this acknowledgement [MQTT-3.4.2-1]");
    return rd->at == rd->end || sl_mqtt_read_props(rd, SL_PROPS_OF(cx->type), &out->props);
}

/* ---- SUBSCRIBE, UNSUBSCRIBE and their acknowledgements ---- */

/* Filters that begin with "$share/" are only text here: whether a share name is well formed decides
 * the reason code of that one subscription (sl_mqtt_share_parse), not of the packet. */
static bool check_filter(sl_mqtt_reader *rd, sl_slice filter)
{
    if (filter.len >= 7 && memcmp(filter.ptr, "$share/", 7) == 0)
        return true;
    const char *why = NULL;
    if (sl_mqtt_filter_check(filter, 0, &why) != SL_OK)
        return sl_mqtt_malformed(rd, why);
    return true;
}

static bool read_filter(sl_mqtt_reader *rd, sl_slice *filter)
{
    return sl_mqtt_read_text(rd, filter, NULL) && check_filter(rd, *filter);
}

static bool is_share(sl_slice filter)
{
    sl_mqtt_share share;
    return sl_mqtt_share_parse(filter, 0, &share, NULL) == SL_OK && share.is_shared;
}

static bool check_sub_option(sl_mqtt_reader *rd, const context *cx, sl_slice filter, uint8_t byte)
{
    if (cx->version == SL_MQTT_V31) // the upper six bits are unused there
        return (byte & 3u) != 3u || sl_mqtt_malformed(rd, "requested QoS is 3 (3.1: 3.8)");
    if (cx->version == SL_MQTT_V311)
        return byte < 3 || sl_mqtt_malformed(rd, "requested QoS is not 0, 1 or 2 [MQTT-3.8.3-4]");
    if ((byte & 0xC0u) != 0)
        return sl_mqtt_malformed(rd, "reserved subscription option is set [MQTT-3.8.3-5]");
    if ((byte & 3u) == 3u)
        return sl_mqtt_violation(rd, "maximum QoS of a subscription is 3 (3.8.3.1)");
    if ((byte & 0x30u) == 0x30u)
        return sl_mqtt_violation(rd, "retain handling is 3 (3.8.3.1)");
    if ((byte & 0x04u) != 0 && is_share(filter))
        return sl_mqtt_violation(rd, "no local on a shared subscription [MQTT-3.8.3-4]");
    return true;
}

static bool read_subscribe(sl_mqtt_reader *rd, const context *cx, sl_mqtt_subscribe *out)
{
    out->count = 0;
    out->options = NULL;
    if (!read_packet_id(rd, &out->packet_id) || !read_props_of(rd, cx, &out->props))
        return false;
    out->list = sl_slice_of(rd->at, sl_mqtt_reader_left(rd));
    bool subscribe = cx->type == SL_MQTT_SUBSCRIBE;
    while (rd->at != rd->end) {
        sl_slice filter;
        uint8_t byte;
        if (!read_filter(rd, &filter))
            return false;
        if (subscribe && (!sl_mqtt_read_u8(rd, &byte) || !check_sub_option(rd, cx, filter, byte)))
            return false;
        out->count++;
    }
    if (out->count == 0)
        return sl_mqtt_violation(rd,
                                 "no topic filter in the packet [MQTT-3.8.3-2] [MQTT-3.10.3-2]");
    return true;
}

static bool read_suback(sl_mqtt_reader *rd, const context *cx, sl_mqtt_suback *out)
{
    if (!read_packet_id(rd, &out->packet_id) || !read_props_of(rd, cx, &out->props))
        return false;
    out->reasons = sl_slice_of(rd->at, sl_mqtt_reader_left(rd));
    rd->at = rd->end;
    bool v5 = cx->version == SL_MQTT_V5;
    if (cx->type == SL_MQTT_UNSUBACK && !v5)
        return out->reasons.len == 0 ||
               sl_mqtt_malformed(rd, "bytes behind the packet identifier (3.1.1: 3.11.3)");
    if (out->reasons.len == 0)
        return sl_mqtt_malformed(rd, "no reason code in the acknowledgement (3.9.3) (3.11.3)");
    for (size_t i = 0; i < out->reasons.len; i++) {
        uint8_t code = out->reasons.ptr[i];
        bool fine = v5 ? sl_mqtt_rc_is_allowed(code, cx->type, true) : code < 3 || code == 0x80;
        if (!fine)
            return sl_mqtt_violation(rd, "not a reason code of SUBACK or UNSUBACK [MQTT-3.9.3-2]");
    }
    return true;
}

/* ---- DISCONNECT and AUTH ---- */

static bool check_disconnect(sl_mqtt_reader *rd, const context *cx, const sl_mqtt_disconnect *dc)
{
    bool from_server = cx->side == SL_MQTT_CLIENT_READS;
    if (!sl_mqtt_rc_is_allowed(dc->reason, cx->type, from_server))
        return sl_mqtt_violation(rd, "not a reason code this side may send [MQTT-3.14.2-1] "
                                     "[MQTT-3.15.2-1]");
    if (cx->type == SL_MQTT_DISCONNECT) {
        if (from_server && (dc->props.has & SL_PROP_SESSION_EXPIRY) != 0)
            return sl_mqtt_violation(rd, "session expiry in a server's DISCONNECT [MQTT-3.14.2-2]");
        if (!from_server && (dc->props.has & SL_PROP_SERVER_REFERENCE) != 0)
            return sl_mqtt_violation(rd, "server reference from a client (3.14.2.2.5)");
    }
    return true;
}

static bool read_disconnect(sl_mqtt_reader *rd, const context *cx, sl_mqtt_disconnect *out)
{
    out->reason = SL_RC_SUCCESS;
    out->props = (sl_mqtt_props){0};
    if (cx->version != SL_MQTT_V5)
        return true;
    bool empty = rd->at == rd->end;
    if (!empty && !sl_mqtt_read_u8(rd, &out->reason))
        return false;
    if (rd->at != rd->end && !sl_mqtt_read_props(rd, SL_PROPS_OF(cx->type), &out->props))
        return false;
    if (!check_disconnect(rd, cx, out))
        return false;
    // An AUTH without any field means success, which only a server says; else a method is a must.
    if (cx->type == SL_MQTT_AUTH && !empty && (out->props.has & SL_PROP_AUTH_METHOD) == 0)
        return sl_mqtt_violation(rd, "AUTH without an authentication method (3.15.2.2.2)");
    return true;
}

/* ---- the whole packet ---- */

static bool read_fixed_header(sl_mqtt_reader *rd, context *cx)
{
    if (!sl_mqtt_read_u8(rd, &cx->first))
        return false;
    cx->type = (sl_mqtt_type)(cx->first >> 4);
    uint32_t remaining = 0;
    const uint8_t *from = rd->at;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte;
        if (!sl_mqtt_read_u8(rd, &byte))
            return false;
        remaining |= (uint32_t)(byte & 0x7Fu) << shift;
        if ((byte & 0x80u) == 0)
            break;
        if (shift == 21)
            return sl_mqtt_malformed(rd, "remaining length is longer than four bytes (2.1.4)");
    }
    if (remaining != sl_mqtt_reader_left(rd))
        return sl_mqtt_malformed(rd, "remaining length is not the length of the packet (2.1.4)");
    // 3.x does not ask for the shortest form. The version of a CONNECT is not known yet.
    if (cx->version == SL_MQTT_V5 && cx->type != SL_MQTT_CONNECT && rd->at - from > 1 &&
        rd->at[-1] == 0)
        return sl_mqtt_malformed(rd, "remaining length is not in its shortest form [MQTT-1.5.5-1]");
    return true;
}

/* A server that is sent what only servers send, and the other way round. */
static bool check_direction(sl_mqtt_reader *rd, const context *cx)
{
    const uint32_t to_server = 1u << SL_MQTT_CONNECT | 1u << SL_MQTT_SUBSCRIBE |
                               1u << SL_MQTT_UNSUBSCRIBE | 1u << SL_MQTT_PINGREQ;
    const uint32_t to_client = 1u << SL_MQTT_CONNACK | 1u << SL_MQTT_SUBACK |
                               1u << SL_MQTT_UNSUBACK | 1u << SL_MQTT_PINGRESP;
    uint32_t bit = 1u << cx->type;
    if (cx->type == 0 || (cx->type == SL_MQTT_AUTH && cx->version != SL_MQTT_V5))
        return sl_mqtt_malformed(rd, "packet type is reserved (2.1.2)");
    if (cx->side == SL_MQTT_SERVER_READS ? (bit & to_client) != 0 : (bit & to_server) != 0)
        return sl_mqtt_violation(rd, "packet type goes in the other direction only (2.1.2)");
    if (cx->type == SL_MQTT_DISCONNECT && cx->side == SL_MQTT_CLIENT_READS &&
        cx->version != SL_MQTT_V5)
        return sl_mqtt_violation(rd, "DISCONNECT from a server in 3.x (3.1.1: 3.14)");
    return true;
}

/* The low four bits of the first byte [MQTT-2.1.3-1]. MQTT 3.1 has DUP there in packets of QoS 1
 * and calls the bits of all others unused. */
static bool check_flags(sl_mqtt_reader *rd, const context *cx)
{
    if (cx->type == SL_MQTT_PUBLISH)
        return true;
    bool two = cx->type == SL_MQTT_PUBREL || cx->type == SL_MQTT_SUBSCRIBE ||
               cx->type == SL_MQTT_UNSUBSCRIBE;
    uint8_t flags = cx->first & 0x0Fu;
    if (cx->version == SL_MQTT_V31)
        return !two || (flags & 0x06u) == 0x02u ||
               sl_mqtt_malformed(rd, "QoS of the fixed header is not 1 (3.1: 2.1)");
    return flags == (two ? 2 : 0) ||
           sl_mqtt_malformed(rd, "flags of the fixed header are wrong [MQTT-2.1.3-1]");
}

static bool read_body(sl_mqtt_reader *rd, context *cx, sl_mqtt_packet *out)
{
    switch (cx->type) {
    case SL_MQTT_CONNECT:
        // The version, which the checks of the header depend on, is in the body.
        return read_connect(rd, cx, &out->connect) && check_flags(rd, cx);
    case SL_MQTT_CONNACK:
        return read_connack(rd, cx, &out->connack);
    case SL_MQTT_PUBLISH:
        return read_publish(rd, cx, &out->publish);
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
    case SL_MQTT_PUBREL:
    case SL_MQTT_PUBCOMP:
        return read_ack(rd, cx, &out->ack);
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
        return read_subscribe(rd, cx, &out->subscribe);
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        return read_suback(rd, cx, &out->suback);
    case SL_MQTT_DISCONNECT:
    case SL_MQTT_AUTH:
        return read_disconnect(rd, cx, &out->disconnect);
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        return true;
    }
    return sl_mqtt_malformed(rd, "packet type is reserved (2.1.2)");
}

static bool read_packet(sl_mqtt_reader *rd, context *cx, sl_mqtt_packet *out)
{
    if (!read_fixed_header(rd, cx))
        return false;
    out->type = cx->type;
    if (cx->type == SL_MQTT_CONNECT)
        out->connect.version = (sl_mqtt_version)0; // not known, should the packet break off early
    if (!check_direction(rd, cx))
        return false;
    if (cx->type != SL_MQTT_CONNECT && !check_flags(rd, cx))
        return false;
    return read_body(rd, cx, out) && at_end(rd);
}

sl_err sl_mqtt_decode(sl_slice bytes, sl_mqtt_version version, sl_mqtt_side side,
                      sl_mqtt_packet *out, sl_mqtt_rc *rc, const char **why)
{
    sl_mqtt_reader rd = {.at = bytes.ptr, .end = bytes.len > 0 ? bytes.ptr + bytes.len : bytes.ptr};
    context cx = {.version = version, .side = side};
    out->type = (sl_mqtt_type)0;
    out->wire_size = (uint32_t)bytes.len;
    if (read_packet(&rd, &cx, out))
        return SL_OK;
    *rc = rd.rc;
    *why = rd.why;
    return rd.err;
}

bool sl_mqtt_subscribe_next(const sl_mqtt_subscribe *sub, sl_mqtt_version version, size_t *pos,
                            sl_mqtt_sub_option *out)
{
    if (*pos >= sub->list.len)
        return false;
    sl_mqtt_reader rd = {.at = sub->list.ptr + *pos, .end = sub->list.ptr + sub->list.len};
    uint8_t byte;
    *out = (sl_mqtt_sub_option){0};
    if (!sl_mqtt_read_binary(&rd, &out->filter) || !sl_mqtt_read_u8(&rd, &byte))
        return false;
    out->qos = byte & 3u;
    if (version == SL_MQTT_V5) {
        out->no_local = (byte & 0x04u) != 0;
        out->retain_as_published = (byte & 0x08u) != 0;
        out->retain_handling = (byte >> 4) & 3u;
    }
    *pos = (size_t)(rd.at - sub->list.ptr);
    return true;
}

bool sl_mqtt_unsubscribe_next(const sl_mqtt_subscribe *sub, size_t *pos, sl_slice *filter)
{
    if (*pos >= sub->list.len)
        return false;
    sl_mqtt_reader rd = {.at = sub->list.ptr + *pos, .end = sub->list.ptr + sub->list.len};
    if (!sl_mqtt_read_binary(&rd, filter))
        return false;
    *pos = (size_t)(rd.at - sub->list.ptr);
    return true;
}
