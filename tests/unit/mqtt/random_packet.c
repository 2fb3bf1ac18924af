/* SPDX-License-Identifier: Apache-2.0
 *
 * random_packet: see random_packet.h. The generator is xorshift64; property rows come from the
 * table, which the vectors check against a second writing of the rules.
 */
#include "random_packet.h"

#include "base/assert.h"
#include "mqtt/props.h"

uint32_t random_below(random_source *rs, uint32_t limit)
{
    rs->word ^= rs->word << 13;
    rs->word ^= rs->word >> 7;
    rs->word ^= rs->word << 17;
    return (uint32_t)((rs->word >> 16) % limit);
}

static bool chance(random_source *rs)
{
    return random_below(rs, 2) == 0;
}

static sl_slice random_bytes(random_source *rs, size_t max)
{
    size_t len = random_below(rs, (uint32_t)max + 1);
    SL_ASSERT(rs->used + len <= sizeof(rs->pool));
    uint8_t *at = rs->pool + rs->used;
    for (size_t i = 0; i < len; i++)
        at[i] = (uint8_t)random_below(rs, 256);
    rs->used += len;
    return sl_slice_of(at, len);
}

static sl_slice random_text(random_source *rs, size_t min, size_t max)
{
    static const char *const signs[] = {"a", "b", "/", "Z", "0",    " ",
                                        "$", "é", "€", "😀", "\x01", "-"};
    size_t count = min + random_below(rs, (uint32_t)(max - min + 1));
    uint8_t *at = rs->pool + rs->used;
    size_t len = 0;
    for (size_t i = 0; i < count; i++) {
        const char *sign = signs[random_below(rs, sizeof(signs) / sizeof(signs[0]))];
        SL_ASSERT(rs->used + len + 4 <= sizeof(rs->pool));
        memcpy(at + len, sign, strlen(sign));
        len += strlen(sign);
    }
    rs->used += len;
    return sl_slice_of(at, len);
}

static sl_slice random_filter(random_source *rs)
{
    static const char *const levels[] = {"a", "bb", "+", "", "é", "$SYS"};
    uint8_t *at = rs->pool + rs->used;
    size_t len = 0;
    for (unsigned i = 0, n = 1 + random_below(rs, 4); i < n; i++) {
        const char *level = levels[random_below(rs, sizeof(levels) / sizeof(levels[0]))];
        if (i > 0)
            at[len++] = '/';
        memcpy(at + len, level, strlen(level));
        len += strlen(level);
    }
    if (len == 0 || chance(rs)) {
        if (len > 0)
            at[len++] = '/';
        at[len++] = '#';
    }
    rs->used += len;
    SL_ASSERT(rs->used <= sizeof(rs->pool));
    return sl_slice_of(at, len);
}

static void random_value(random_source *rs, const sl_mqtt_prop_row *row, sl_mqtt_props *props)
{
    uint8_t *field = (uint8_t *)props + row->field;
    bool one_up = row->rule == SL_PR_NONZERO || row->rule == SL_PR_ALIAS;
    uint16_t word = (uint16_t)random_below(rs, 65535);
    uint32_t number = random_below(rs, 0x7FFFFFFF);
    sl_slice text;
    switch ((sl_mqtt_prop_type)row->type) {
    case SL_PT_BYTE:
        *field = (uint8_t)random_below(rs, 2);
        break;
    case SL_PT_U16:
        word = (uint16_t)(word + one_up);
        memcpy(field, &word, sizeof(word));
        break;
    case SL_PT_U32:
        number += one_up;
        memcpy(field, &number, sizeof(number));
        break;
    case SL_PT_VARINT:
        number = 1 + random_below(rs, SL_MQTT_MAX_REMAINING >> random_below(rs, 28));
        memcpy(field, &number, sizeof(number));
        break;
    case SL_PT_STRING:
        text = random_text(rs, row->rule == SL_PR_TOPIC, 12);
        memcpy(field, &text, sizeof(text));
        break;
    case SL_PT_BINARY:
        text = random_bytes(rs, 12);
        memcpy(field, &text, sizeof(text));
        break;
    case SL_PT_PAIR:
        break;
    }
}

static void random_users(random_source *rs, sl_mqtt_props *props)
{
    sl_mqtt_user_prop *list = rs->user[rs->user_sets++];
    props->user = list;
    props->user_count = 1 + random_below(rs, 4);
    for (uint32_t i = 0; i < props->user_count; i++)
        list[i] = (sl_mqtt_user_prop){random_text(rs, 0, 5), random_text(rs, 0, 5)};
}

static void random_props(random_source *rs, uint32_t where, sl_mqtt_side side, sl_mqtt_props *props)
{
    *props = (sl_mqtt_props){0};
    bool disconnect = where == SL_PROPS_OF(SL_MQTT_DISCONNECT);
    for (uint32_t id = 1; id < 0x2B; id++) {
        const sl_mqtt_prop_row *row = sl_mqtt_prop_find(id);
        if (row == NULL || (row->where & where) == 0 || chance(rs))
            continue;
        if (row->bit == SL_PROP_AUTH_DATA && (props->has & SL_PROP_AUTH_METHOD) == 0)
            continue;
        if (row->bit == SL_PROP_SUBSCRIPTION_ID && side == SL_MQTT_SERVER_READS &&
            where == SL_PROPS_OF(SL_MQTT_PUBLISH))
            continue;
        if (disconnect && row->bit == (side == SL_MQTT_CLIENT_READS ? SL_PROP_SESSION_EXPIRY
                                                                    : SL_PROP_SERVER_REFERENCE))
            continue;
        random_value(rs, row, props);
        if (row->bit == SL_PROP_USER)
            random_users(rs, props);
        props->has |= row->bit;
    }
    if ((props->has & SL_PROP_SUBSCRIPTION_ID) != 0 && where == SL_PROPS_OF(SL_MQTT_PUBLISH) &&
        chance(rs)) {
        props->sub_id_count = 1 + random_below(rs, 4);
        for (uint32_t i = 0; i < props->sub_id_count; i++)
            rs->sub_ids[i] = 1 + random_below(rs, SL_MQTT_MAX_REMAINING);
        props->sub_ids = rs->sub_ids;
        props->subscription_id = rs->sub_ids[0];
    }
}

static uint8_t random_reason(random_source *rs, sl_mqtt_type type, sl_mqtt_side side)
{
    uint8_t code;
    do {
        code = (uint8_t)random_below(rs, 256);
    } while (!sl_mqtt_rc_is_allowed(code, type, side == SL_MQTT_CLIENT_READS));
    return code;
}

static void random_connect(random_source *rs, sl_mqtt_version version, sl_mqtt_connect *out)
{
    *out = (sl_mqtt_connect){.version = version,
                             .clean_start = chance(rs),
                             .keep_alive_s = (uint16_t)random_below(rs, 65536),
                             .client_id = random_text(rs, version != SL_MQTT_V5, 20),
                             .has_will = chance(rs),
                             .has_username = chance(rs)};
    out->has_password = (version == SL_MQTT_V5 || out->has_username) && chance(rs);
    if (out->has_username)
        out->username = random_text(rs, 0, 10);
    if (out->has_password)
        out->password = random_bytes(rs, 20);
    if (version == SL_MQTT_V5)
        random_props(rs, SL_PROPS_OF(SL_MQTT_CONNECT), SL_MQTT_SERVER_READS, &out->props);
    if (!out->has_will)
        return;
    out->will = (sl_mqtt_will){.topic = random_text(rs, 1, 10),
                               .payload = random_bytes(rs, 200),
                               .qos = (uint8_t)random_below(rs, 3),
                               .retain = chance(rs)};
    if (version == SL_MQTT_V5)
        random_props(rs, SL_PROPS_OF_WILL, SL_MQTT_SERVER_READS, &out->will.props);
}

static void random_publish(random_source *rs, sl_mqtt_version version, sl_mqtt_side side,
                           sl_mqtt_publish *out)
{
    *out = (sl_mqtt_publish){.qos = (uint8_t)random_below(rs, 3),
                             .retain = chance(rs),
                             .topic = random_text(rs, 1, 20),
                             .payload = random_bytes(rs, 500)};
    out->dup = out->qos > 0 && chance(rs);
    out->packet_id = out->qos > 0 ? (uint16_t)(1 + random_below(rs, 65535)) : 0;
    if (version != SL_MQTT_V5)
        return;
    random_props(rs, SL_PROPS_OF(SL_MQTT_PUBLISH), side, &out->props);
    if ((out->props.has & SL_PROP_TOPIC_ALIAS) != 0 && chance(rs))
        out->topic.len = 0;
}

static void random_subscribe(random_source *rs, sl_mqtt_type type, sl_mqtt_version version,
                             sl_mqtt_subscribe *out)
{
    *out = (sl_mqtt_subscribe){.packet_id = (uint16_t)(1 + random_below(rs, 65535)),
                               .count = 1 + random_below(rs, 5),
                               .options = rs->options};
    for (uint32_t i = 0; i < out->count; i++) {
        rs->options[i] = (sl_mqtt_sub_option){.filter = random_filter(rs)};
        if (type == SL_MQTT_SUBSCRIBE)
            rs->options[i].qos = (uint8_t)random_below(rs, 3);
        if (type == SL_MQTT_SUBSCRIBE && version == SL_MQTT_V5) {
            rs->options[i].no_local = chance(rs);
            rs->options[i].retain_as_published = chance(rs);
            rs->options[i].retain_handling = (uint8_t)random_below(rs, 3);
        }
    }
    if (version == SL_MQTT_V5)
        random_props(rs, SL_PROPS_OF(type), SL_MQTT_SERVER_READS, &out->props);
}

static void random_suback(random_source *rs, sl_mqtt_type type, sl_mqtt_version version,
                          sl_mqtt_suback *out)
{
    static const uint8_t v3[] = {0, 1, 2, 0x80};
    *out = (sl_mqtt_suback){.packet_id = (uint16_t)(1 + random_below(rs, 65535))};
    if (version == SL_MQTT_V5)
        random_props(rs, SL_PROPS_OF(type), SL_MQTT_CLIENT_READS, &out->props);
    else if (type == SL_MQTT_UNSUBACK)
        return;
    uint8_t *at = rs->pool + rs->used;
    size_t count = 1 + random_below(rs, 6);
    for (size_t i = 0; i < count; i++)
        at[i] = version == SL_MQTT_V5 ? random_reason(rs, type, SL_MQTT_CLIENT_READS)
                                      : v3[random_below(rs, 4)];
    rs->used += count;
    out->reasons = sl_slice_of(at, count);
}

static void random_connack(random_source *rs, sl_mqtt_version version, sl_mqtt_connack *out)
{
    *out = (sl_mqtt_connack){.session_present = version != SL_MQTT_V31 && chance(rs)};
    if (version == SL_MQTT_V5)
        random_props(rs, SL_PROPS_OF(SL_MQTT_CONNACK), SL_MQTT_CLIENT_READS, &out->props);
    if (!out->session_present)
        out->reason = version == SL_MQTT_V5
                          ? random_reason(rs, SL_MQTT_CONNACK, SL_MQTT_CLIENT_READS)
                          : (uint8_t)random_below(rs, 6);
}

static void random_ack(random_source *rs, sl_mqtt_type type, sl_mqtt_version version,
                       sl_mqtt_side side, sl_mqtt_ack *out)
{
    *out = (sl_mqtt_ack){.packet_id = (uint16_t)(1 + random_below(rs, 65535))};
    if (version != SL_MQTT_V5)
        return;
    out->reason = random_reason(rs, type, side);
    if (chance(rs))
        random_props(rs, SL_PROPS_OF(type), side, &out->props);
}

static void random_disconnect(random_source *rs, sl_mqtt_type type, sl_mqtt_version version,
                              sl_mqtt_side side, sl_mqtt_disconnect *out)
{
    *out = (sl_mqtt_disconnect){0};
    if (version != SL_MQTT_V5)
        return;
    out->reason = random_reason(rs, type, side);
    if (type == SL_MQTT_AUTH || chance(rs))
        random_props(rs, SL_PROPS_OF(type), side, &out->props);
    if (type == SL_MQTT_AUTH && (out->props.has & SL_PROP_AUTH_METHOD) == 0) {
        out->props.has |= SL_PROP_AUTH_METHOD;
        out->props.auth_method = random_text(rs, 1, 8);
    }
}

bool random_type_is_possible(sl_mqtt_type type, sl_mqtt_version version, sl_mqtt_side side)
{
    bool server = side == SL_MQTT_SERVER_READS;
    switch (type) {
    case SL_MQTT_CONNECT:
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
    case SL_MQTT_PINGREQ:
        return server;
    case SL_MQTT_CONNACK:
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
    case SL_MQTT_PINGRESP:
        return !server;
    case SL_MQTT_DISCONNECT:
        return server || version == SL_MQTT_V5;
    case SL_MQTT_AUTH:
        return version == SL_MQTT_V5;
    default:
        return true;
    }
}

void random_packet(random_source *rs, sl_mqtt_type type, sl_mqtt_version version, sl_mqtt_side side,
                   sl_mqtt_packet *out)
{
    rs->used = 0;
    rs->user_sets = 0;
    out->type = type;
    switch (type) {
    case SL_MQTT_CONNECT:
        random_connect(rs, version, &out->connect);
        break;
    case SL_MQTT_CONNACK:
        random_connack(rs, version, &out->connack);
        break;
    case SL_MQTT_PUBLISH:
        random_publish(rs, version, side, &out->publish);
        break;
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
    case SL_MQTT_PUBREL:
    case SL_MQTT_PUBCOMP:
        random_ack(rs, type, version, side, &out->ack);
        break;
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
        random_subscribe(rs, type, version, &out->subscribe);
        break;
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        random_suback(rs, type, version, &out->suback);
        break;
    case SL_MQTT_DISCONNECT:
    case SL_MQTT_AUTH:
        random_disconnect(rs, type, version, side, &out->disconnect);
        break;
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        break;
    }
}
