/* SPDX-License-Identifier: Apache-2.0
 *
 * reason: texts and translations of reason codes, and which packet may carry which code.
 */
#include "mqtt/reason.h"

const char *sl_mqtt_rc_text(uint8_t code)
{
    switch (code) {
#define RC_TEXT(name, num, text, v3)                                                               \
    case num:                                                                                      \
        return text;
        SL_MQTT_RC_MAP(RC_TEXT)
#undef RC_TEXT
    default:
        return "unknown reason";
    }
}

uint8_t sl_mqtt_rc_to_v3(sl_mqtt_rc rc)
{
    switch (rc) {
#define RC_V3(name, num, text, v3)                                                                 \
    case SL_RC_##name:                                                                             \
        return v3;
        SL_MQTT_RC_MAP(RC_V3)
#undef RC_V3
    }
    return 0xFF;
}

sl_mqtt_rc sl_mqtt_rc_of_err(sl_err err)
{
    switch (err) {
    case SL_OK:
        return SL_RC_SUCCESS;
    case SL_EINVAL:
    case SL_EUNSUPPORTED:
        return SL_RC_IMPLEMENTATION_ERROR;
    case SL_ELIMIT:
    case SL_ENOSPC:
        return SL_RC_QUOTA_EXCEEDED;
    case SL_ETOOBIG:
        return SL_RC_PACKET_TOO_LARGE;
    case SL_EMALFORMED:
    case SL_EINCOMPLETE:
        return SL_RC_MALFORMED_PACKET;
    case SL_EPROTOCOL:
        return SL_RC_PROTOCOL_ERROR;
    case SL_EDENIED:
        return SL_RC_NOT_AUTHORIZED;
    case SL_EAGAIN:
        return SL_RC_SERVER_BUSY;
    case SL_ECLOSED:
        return SL_RC_SERVER_SHUTTING_DOWN;
    case SL_ECONN:
    case SL_ETIMEDOUT:
        return SL_RC_SERVER_UNAVAILABLE;
    case SL_EIO:
    case SL_ENOTFOUND:
    case SL_EEXIST:
    case SL_ECORRUPT:
    case SL_ELOCKED:
        return SL_RC_UNSPECIFIED_ERROR;
    }
    return SL_RC_UNSPECIFIED_ERROR;
}

/* Who may send a code in which packet: the tables of 3.2.2.2, 3.4.2.1, 3.5.2.1, 3.6.2.1, 3.7.2.1,
 * 3.9.3, 3.11.3, 3.14.2.1 and 3.15.2.1. */
enum {
    IN_CONNACK = 1u << 0,
    IN_PUBACK = 1u << 1, /* and PUBREC */
    IN_PUBREL = 1u << 2, /* and PUBCOMP */
    IN_SUBACK = 1u << 3,
    IN_UNSUBACK = 1u << 4,
    IN_CLIENT_DISCONNECT = 1u << 5,
    IN_SERVER_DISCONNECT = 1u << 6,
    IN_CLIENT_AUTH = 1u << 7,
    IN_SERVER_AUTH = 1u << 8
};

#define IN_BOTH_DISCONNECT (IN_CLIENT_DISCONNECT | IN_SERVER_DISCONNECT)
#define IN_ACKS            (IN_PUBACK | IN_SUBACK | IN_UNSUBACK)

static const uint16_t allowed[256] = {
    [0x00] = IN_CONNACK | IN_ACKS | IN_PUBREL | IN_BOTH_DISCONNECT | IN_SERVER_AUTH,
    [0x01] = IN_SUBACK,
    [0x02] = IN_SUBACK,
    [0x04] = IN_CLIENT_DISCONNECT,
    [0x10] = IN_PUBACK,
    [0x11] = IN_UNSUBACK,
    [0x18] = IN_CLIENT_AUTH | IN_SERVER_AUTH,
    [0x19] = IN_CLIENT_AUTH,
    [0x80] = IN_CONNACK | IN_ACKS | IN_BOTH_DISCONNECT,
    [0x81] = IN_CONNACK | IN_BOTH_DISCONNECT,
    [0x82] = IN_CONNACK | IN_BOTH_DISCONNECT,
    [0x83] = IN_CONNACK | IN_ACKS | IN_BOTH_DISCONNECT,
    [0x84] = IN_CONNACK,
    [0x85] = IN_CONNACK,
    [0x86] = IN_CONNACK,
    [0x87] = IN_CONNACK | IN_ACKS | IN_SERVER_DISCONNECT,
    [0x88] = IN_CONNACK,
    [0x89] = IN_CONNACK | IN_SERVER_DISCONNECT,
    [0x8A] = IN_CONNACK,
    [0x8B] = IN_SERVER_DISCONNECT,
    [0x8C] = IN_CONNACK | IN_SERVER_DISCONNECT,
    [0x8D] = IN_SERVER_DISCONNECT,
    [0x8E] = IN_SERVER_DISCONNECT,
    [0x8F] = IN_SUBACK | IN_UNSUBACK | IN_SERVER_DISCONNECT,
    [0x90] = IN_CONNACK | IN_PUBACK | IN_BOTH_DISCONNECT,
    [0x91] = IN_ACKS,
    [0x92] = IN_PUBREL,
    [0x93] = IN_BOTH_DISCONNECT,
    [0x94] = IN_BOTH_DISCONNECT,
    [0x95] = IN_CONNACK | IN_BOTH_DISCONNECT,
    [0x96] = IN_BOTH_DISCONNECT,
    [0x97] = IN_CONNACK | IN_PUBACK | IN_SUBACK | IN_BOTH_DISCONNECT,
    [0x98] = IN_BOTH_DISCONNECT,
    [0x99] = IN_CONNACK | IN_PUBACK | IN_BOTH_DISCONNECT,
    [0x9A] = IN_CONNACK | IN_SERVER_DISCONNECT,
    [0x9B] = IN_CONNACK | IN_SERVER_DISCONNECT,
    [0x9C] = IN_CONNACK | IN_SERVER_DISCONNECT,
    [0x9D] = IN_CONNACK | IN_SERVER_DISCONNECT,
    [0x9E] = IN_SUBACK | IN_SERVER_DISCONNECT,
    [0x9F] = IN_CONNACK | IN_SERVER_DISCONNECT,
    [0xA0] = IN_SERVER_DISCONNECT,
    [0xA1] = IN_SUBACK | IN_SERVER_DISCONNECT,
    [0xA2] = IN_SUBACK | IN_SERVER_DISCONNECT,
};

bool sl_mqtt_rc_is_allowed(uint8_t code, sl_mqtt_type type, bool from_server)
{
    switch (type) {
    case SL_MQTT_CONNACK:
        return (allowed[code] & IN_CONNACK) != 0;
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
        return (allowed[code] & IN_PUBACK) != 0;
    case SL_MQTT_PUBREL:
    case SL_MQTT_PUBCOMP:
        return (allowed[code] & IN_PUBREL) != 0;
    case SL_MQTT_SUBACK:
        return (allowed[code] & IN_SUBACK) != 0;
    case SL_MQTT_UNSUBACK:
        return (allowed[code] & IN_UNSUBACK) != 0;
    case SL_MQTT_DISCONNECT:
        return (allowed[code] & (from_server ? IN_SERVER_DISCONNECT : IN_CLIENT_DISCONNECT)) != 0;
    case SL_MQTT_AUTH:
        return (allowed[code] & (from_server ? IN_SERVER_AUTH : IN_CLIENT_AUTH)) != 0;
    case SL_MQTT_CONNECT:
    case SL_MQTT_PUBLISH:
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        return false;
    }
    return false;
}
