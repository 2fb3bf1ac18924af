/* SPDX-License-Identifier: Apache-2.0
 *
 * props: the MQTT 5 property table (2.2.2.2) and all that is made from it: parsing, checking,
 * writing and iteration. A row says identifier, bit of sl_mqtt_props.has, name, wire type, the
 * field it goes to, the packets that may hold it, and what its value must obey.
 */
#ifndef SL_MQTT_PROPS_H
#define SL_MQTT_PROPS_H

#include "base/err.h"
#include "mqtt/packet.h"
#include "mqtt/reason.h"

typedef enum sl_mqtt_prop_type {
    SL_PT_BYTE,
    SL_PT_U16,
    SL_PT_U32,
    SL_PT_VARINT,
    SL_PT_STRING,
    SL_PT_BINARY,
    SL_PT_PAIR
} sl_mqtt_prop_type;

/* Where a property may stand: a bit per packet type, and bit 0 for the will of a CONNECT. */
#define SL_PROPS_OF(type) (1u << (type))
#define SL_PROPS_OF_WILL  (1u << 0)

/* What a value must obey beyond its type; breaking it is a protocol error. */
typedef enum sl_mqtt_prop_rule {
    SL_PR_ANY,
    SL_PR_BOOL,    /* 0 or 1 */
    SL_PR_NONZERO, /* not 0 */
    SL_PR_ALIAS,   /* not 0; its own reason code 0x94 */
    SL_PR_TOPIC    /* a topic name: not empty, no wildcard */
} sl_mqtt_prop_rule;

#define SL_IN_CON SL_PROPS_OF(SL_MQTT_CONNECT)
#define SL_IN_CAK SL_PROPS_OF(SL_MQTT_CONNACK)
#define SL_IN_PUB SL_PROPS_OF(SL_MQTT_PUBLISH)
#define SL_IN_MSG (SL_IN_PUB | SL_PROPS_OF_WILL)
#define SL_IN_SUB SL_PROPS_OF(SL_MQTT_SUBSCRIBE)
#define SL_IN_DIS SL_PROPS_OF(SL_MQTT_DISCONNECT)
#define SL_IN_AUT SL_PROPS_OF(SL_MQTT_AUTH)
#define SL_IN_ACKS                                                                                 \
    (SL_PROPS_OF(SL_MQTT_PUBACK) | SL_PROPS_OF(SL_MQTT_PUBREC) | SL_PROPS_OF(SL_MQTT_PUBREL) |     \
     SL_PROPS_OF(SL_MQTT_PUBCOMP) | SL_PROPS_OF(SL_MQTT_SUBACK) | SL_PROPS_OF(SL_MQTT_UNSUBACK))
#define SL_IN_ALL                                                                                  \
    (SL_IN_CON | SL_IN_CAK | SL_IN_MSG | SL_IN_SUB | SL_PROPS_OF(SL_MQTT_UNSUBSCRIBE) |            \
     SL_IN_DIS | SL_IN_AUT | SL_IN_ACKS)

/* id, bit SL_PROP_*, name, type, field of sl_mqtt_props, packets, rule, may repeat in.
 * PAIR rows have no field of their own (they name `user`, read by iteration). */
#define SL_MQTT_PROP_MAP(X)                                                                        \
    X(0x01, PAYLOAD_FORMAT, "payload format indicator", BYTE, payload_format, SL_IN_MSG, BOOL, 0)  \
    X(0x02, MESSAGE_EXPIRY, "message expiry interval", U32, message_expiry, SL_IN_MSG, ANY, 0)     \
    X(0x03, CONTENT_TYPE, "content type", STRING, content_type, SL_IN_MSG, ANY, 0)                 \
    X(0x08, RESPONSE_TOPIC, "response topic", STRING, response_topic, SL_IN_MSG, TOPIC, 0)         \
    X(0x09, CORRELATION_DATA, "correlation data", BINARY, correlation_data, SL_IN_MSG, ANY, 0)     \
    X(0x0B, SUBSCRIPTION_ID, "subscription identifier", VARINT, subscription_id,                   \
      SL_IN_PUB | SL_IN_SUB, NONZERO, SL_IN_PUB)                                                   \
    X(0x11, SESSION_EXPIRY, "session expiry interval", U32, session_expiry,                        \
      SL_IN_CON | SL_IN_CAK | SL_IN_DIS, ANY, 0)                                                   \
    X(0x12, ASSIGNED_CLIENT_ID, "assigned client identifier", STRING, assigned_client_id,          \
      SL_IN_CAK, ANY, 0)                                                                           \
    X(0x13, SERVER_KEEP_ALIVE, "server keep alive", U16, server_keep_alive, SL_IN_CAK, ANY, 0)     \
    X(0x15, AUTH_METHOD, "authentication method", STRING, auth_method,                             \
      SL_IN_CON | SL_IN_CAK | SL_IN_AUT, ANY, 0)                                                   \
    X(0x16, AUTH_DATA, "authentication data", BINARY, auth_data,                                   \
      SL_IN_CON | SL_IN_CAK | SL_IN_AUT, ANY, 0)                                                   \
    X(0x17, REQUEST_PROBLEM_INFO, "request problem information", BYTE, request_problem_info,       \
      SL_IN_CON, BOOL, 0)                                                                          \
    X(0x18, WILL_DELAY, "will delay interval", U32, will_delay, SL_PROPS_OF_WILL, ANY, 0)          \
    X(0x19, REQUEST_RESPONSE_INFO, "request response information", BYTE, request_response_info,    \
      SL_IN_CON, BOOL, 0)                                                                          \
    X(0x1A, RESPONSE_INFO, "response information", STRING, response_info, SL_IN_CAK, ANY, 0)       \
    X(0x1C, SERVER_REFERENCE, "server reference", STRING, server_reference, SL_IN_CAK | SL_IN_DIS, \
      ANY, 0)                                                                                      \
    X(0x1F, REASON_STRING, "reason string", STRING, reason_string,                                 \
      SL_IN_CAK | SL_IN_ACKS | SL_IN_DIS | SL_IN_AUT, ANY, 0)                                      \
    X(0x21, RECEIVE_MAXIMUM, "receive maximum", U16, receive_maximum, SL_IN_CON | SL_IN_CAK,       \
      NONZERO, 0)                                                                                  \
    X(0x22, TOPIC_ALIAS_MAXIMUM, "topic alias maximum", U16, topic_alias_maximum,                  \
      SL_IN_CON | SL_IN_CAK, ANY, 0)                                                               \
    X(0x23, TOPIC_ALIAS, "topic alias", U16, topic_alias, SL_IN_PUB, ALIAS, 0)                     \
    X(0x24, MAXIMUM_QOS, "maximum QoS", BYTE, maximum_qos, SL_IN_CAK, BOOL, 0)                     \
    X(0x25, RETAIN_AVAILABLE, "retain available", BYTE, retain_available, SL_IN_CAK, BOOL, 0)      \
    X(0x26, USER, "user property", PAIR, user, SL_IN_ALL, ANY, SL_IN_ALL)                          \
    X(0x27, MAXIMUM_PACKET_SIZE, "maximum packet size", U32, maximum_packet_size,                  \
      SL_IN_CON | SL_IN_CAK, NONZERO, 0)                                                           \
    X(0x28, WILDCARD_AVAILABLE, "wildcard subscription available", BYTE, wildcard_available,       \
      SL_IN_CAK, BOOL, 0)                                                                          \
    X(0x29, SUBSCRIPTION_ID_AVAILABLE, "subscription identifiers available", BYTE,                 \
      subscription_id_available, SL_IN_CAK, BOOL, 0)                                               \
    X(0x2A, SHARED_AVAILABLE, "shared subscription available", BYTE, shared_available, SL_IN_CAK,  \
      BOOL, 0)

typedef struct sl_mqtt_prop_row {
    uint8_t id;       /* 0: no such property */
    uint8_t type;     /* sl_mqtt_prop_type */
    uint8_t rule;     /* sl_mqtt_prop_rule */
    uint16_t field;   /* offset in sl_mqtt_props */
    uint32_t bit;     /* SL_PROP_* */
    uint32_t where;   /* SL_PROPS_OF bits */
    uint32_t repeat;  /* SL_PROPS_OF bits where it may stand more than once */
    const char *name; /* for messages */
} sl_mqtt_prop_row;

/** The row of an identifier, or NULL. Static. @thread any */
const sl_mqtt_prop_row *sl_mqtt_prop_find(uint32_t id);

/**
 * Parses and checks the properties in raw (without their length) of a packet `where`
 * (SL_PROPS_OF...). All of *out is written; on an error it is undefined.
 * Errors SL_EMALFORMED, SL_EPROTOCOL with *rc and *why (static, with the clause). @thread any
 */
SL_MUST_USE sl_err sl_mqtt_props_parse(sl_slice raw, uint32_t where, sl_mqtt_props *out,
                                       sl_mqtt_rc *rc, const char **why);

/** Size of the properties in wire form, without their length. Errors SL_EINVAL a property that
 * `where` may not hold, a string over 65 535 bytes, a USER bit without user[]. @thread any */
SL_MUST_USE sl_err sl_mqtt_props_size(const sl_mqtt_props *props, uint32_t where, uint32_t *size);
/** Writes what sl_mqtt_props_size measured; returns the end. @thread any */
uint8_t *sl_mqtt_props_write(const sl_mqtt_props *props, uint8_t *at);

/* Iteration over checked raw properties; *pos starts at 0. */
typedef struct sl_mqtt_prop_view {
    const sl_mqtt_prop_row *row;
    uint32_t number; /* BYTE, U16, U32, VARINT */
    sl_slice text;   /* STRING, BINARY; the name of a PAIR */
    sl_slice value;  /* the value of a PAIR */
    sl_slice wire;   /* the whole property, identifier included */
} sl_mqtt_prop_view;

/** The next property; false at the end (or at bytes that are no property). @thread any */
bool sl_mqtt_prop_next(sl_slice raw, size_t *pos, sl_mqtt_prop_view *out);
/** The next user property, in order of arrival. @thread any */
bool sl_mqtt_user_next(sl_slice raw, size_t *pos, sl_mqtt_user_prop *out);
/** The next subscription identifier. @thread any */
bool sl_mqtt_sub_id_next(sl_slice raw, size_t *pos, uint32_t *out);

#endif
