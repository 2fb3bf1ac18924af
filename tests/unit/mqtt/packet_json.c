/* SPDX-License-Identifier: Apache-2.0
 *
 * packet_json: see packet_json.h. Texts are JSON strings, bytes are hexadecimal, properties are
 * lists [identifier, value] in their order on the wire.
 */
#include "packet_json.h"

#include <cjson/cJSON.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "mqtt/decode.h"
#include "mqtt/props.h"

const char *packet_type_name(sl_mqtt_type type)
{
    static const char *const names[] = {"RESERVED",  "CONNECT",  "CONNACK",     "PUBLISH",
                                        "PUBACK",    "PUBREC",   "PUBREL",      "PUBCOMP",
                                        "SUBSCRIBE", "SUBACK",   "UNSUBSCRIBE", "UNSUBACK",
                                        "PINGREQ",   "PINGRESP", "DISCONNECT",  "AUTH"};
    return type <= SL_MQTT_AUTH ? names[type] : "?";
}

static cJSON *text_json(sl_slice text)
{
    SL_ASSERT(text.len == 0 || memchr(text.ptr, 0, text.len) == NULL);
    char *copy = sl_strndup(text.len > 0 ? (const char *)text.ptr : "", text.len);
    cJSON *out = cJSON_CreateString(copy);
    sl_free(copy);
    return out;
}

static cJSON *hex_json(sl_slice bytes)
{
    static const char digits[] = "0123456789abcdef";
    char *copy = sl_alloc(bytes.len * 2 + 1);
    for (size_t i = 0; i < bytes.len; i++) {
        copy[2 * i] = digits[bytes.ptr[i] >> 4];
        copy[2 * i + 1] = digits[bytes.ptr[i] & 15];
    }
    copy[bytes.len * 2] = 0;
    cJSON *out = cJSON_CreateString(copy);
    sl_free(copy);
    return out;
}

static cJSON *props_json(const sl_mqtt_props *props)
{
    cJSON *list = cJSON_CreateArray();
    sl_mqtt_prop_view pv;
    size_t pos = 0;
    while (sl_mqtt_prop_next(props->raw, &pos, &pv)) {
        cJSON *one = cJSON_CreateArray();
        cJSON_AddItemToArray(one, cJSON_CreateNumber(pv.row->id));
        switch ((sl_mqtt_prop_type)pv.row->type) {
        case SL_PT_BYTE:
        case SL_PT_U16:
        case SL_PT_U32:
        case SL_PT_VARINT:
            cJSON_AddItemToArray(one, cJSON_CreateNumber(pv.number));
            break;
        case SL_PT_STRING:
            cJSON_AddItemToArray(one, text_json(pv.text));
            break;
        case SL_PT_BINARY:
            cJSON_AddItemToArray(one, hex_json(pv.text));
            break;
        case SL_PT_PAIR:
            cJSON_AddItemToArray(one, text_json(pv.text));
            cJSON_AddItemToArray(one, text_json(pv.value));
            break;
        }
        cJSON_AddItemToArray(list, one);
    }
    SL_ASSERT(pos == props->raw.len);
    return list;
}

static void add_connect(cJSON *out, const sl_mqtt_connect *cn)
{
    cJSON_AddNumberToObject(out, "version", cn->version);
    cJSON_AddBoolToObject(out, "clean_start", cn->clean_start);
    cJSON_AddNumberToObject(out, "keep_alive", cn->keep_alive_s);
    cJSON_AddItemToObject(out, "client_id", text_json(cn->client_id));
    if (cn->has_will) {
        cJSON *will = cJSON_AddObjectToObject(out, "will");
        cJSON_AddItemToObject(will, "topic", text_json(cn->will.topic));
        cJSON_AddItemToObject(will, "payload", hex_json(cn->will.payload));
        cJSON_AddNumberToObject(will, "qos", cn->will.qos);
        cJSON_AddBoolToObject(will, "retain", cn->will.retain);
        cJSON_AddItemToObject(will, "props", props_json(&cn->will.props));
    }
    if (cn->has_username)
        cJSON_AddItemToObject(out, "username", text_json(cn->username));
    if (cn->has_password)
        cJSON_AddItemToObject(out, "password", hex_json(cn->password));
    cJSON_AddItemToObject(out, "props", props_json(&cn->props));
}

static void add_publish(cJSON *out, const sl_mqtt_publish *pb)
{
    cJSON_AddBoolToObject(out, "dup", pb->dup);
    cJSON_AddNumberToObject(out, "qos", pb->qos);
    cJSON_AddBoolToObject(out, "retain", pb->retain);
    cJSON_AddNumberToObject(out, "packet_id", pb->packet_id);
    cJSON_AddItemToObject(out, "topic", text_json(pb->topic));
    cJSON_AddItemToObject(out, "payload", hex_json(pb->payload));
    cJSON_AddItemToObject(out, "props", props_json(&pb->props));
}

static void add_subscribe(cJSON *out, const sl_mqtt_subscribe *sub, sl_mqtt_type type,
                          sl_mqtt_version version)
{
    cJSON_AddNumberToObject(out, "packet_id", sub->packet_id);
    cJSON *list = cJSON_AddArrayToObject(out, "filters");
    size_t pos = 0;
    uint32_t count = 0;
    if (type == SL_MQTT_SUBSCRIBE) {
        sl_mqtt_sub_option so;
        for (; sl_mqtt_subscribe_next(sub, version, &pos, &so); count++) {
            cJSON *one = cJSON_CreateObject();
            cJSON_AddItemToObject(one, "filter", text_json(so.filter));
            cJSON_AddNumberToObject(one, "qos", so.qos);
            cJSON_AddBoolToObject(one, "nl", so.no_local);
            cJSON_AddBoolToObject(one, "rap", so.retain_as_published);
            cJSON_AddNumberToObject(one, "rh", so.retain_handling);
            cJSON_AddItemToArray(list, one);
        }
    } else {
        sl_slice filter;
        for (; sl_mqtt_unsubscribe_next(sub, &pos, &filter); count++)
            cJSON_AddItemToArray(list, text_json(filter));
    }
    SL_ASSERT(count == sub->count);
    cJSON_AddItemToObject(out, "props", props_json(&sub->props));
}

static void add_suback(cJSON *out, const sl_mqtt_suback *sa)
{
    cJSON_AddNumberToObject(out, "packet_id", sa->packet_id);
    cJSON *list = cJSON_AddArrayToObject(out, "reasons");
    for (size_t i = 0; i < sa->reasons.len; i++)
        cJSON_AddItemToArray(list, cJSON_CreateNumber(sa->reasons.ptr[i]));
    cJSON_AddItemToObject(out, "props", props_json(&sa->props));
}

cJSON *packet_json(const sl_mqtt_packet *pkt, sl_mqtt_version version)
{
    cJSON *out = cJSON_CreateObject();
    cJSON_AddStringToObject(out, "type", packet_type_name(pkt->type));
    switch (pkt->type) {
    case SL_MQTT_CONNECT:
        add_connect(out, &pkt->connect);
        break;
    case SL_MQTT_CONNACK:
        cJSON_AddBoolToObject(out, "session_present", pkt->connack.session_present);
        cJSON_AddNumberToObject(out, "reason", pkt->connack.reason);
        cJSON_AddItemToObject(out, "props", props_json(&pkt->connack.props));
        break;
    case SL_MQTT_PUBLISH:
        add_publish(out, &pkt->publish);
        break;
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
    case SL_MQTT_PUBREL:
    case SL_MQTT_PUBCOMP:
        cJSON_AddNumberToObject(out, "packet_id", pkt->ack.packet_id);
        cJSON_AddNumberToObject(out, "reason", pkt->ack.reason);
        cJSON_AddItemToObject(out, "props", props_json(&pkt->ack.props));
        break;
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
        add_subscribe(out, &pkt->subscribe, pkt->type, version);
        break;
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        add_suback(out, &pkt->suback);
        break;
    case SL_MQTT_DISCONNECT:
    case SL_MQTT_AUTH:
        cJSON_AddNumberToObject(out, "reason", pkt->disconnect.reason);
        cJSON_AddItemToObject(out, "props", props_json(&pkt->disconnect.props));
        break;
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        break;
    }
    return out;
}
