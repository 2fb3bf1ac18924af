/* SPDX-License-Identifier: Apache-2.0
 *
 * packet: MQTT control packets of 3.1, 3.1.1 and 5.0 as plain structs whose bytes are slices of the
 * read buffer. Pure data: no I/O, no allocation. Decode: decode.h. Encode: encode.h.
 * Sources: OASIS MQTT 3.1.1 and 5.0; MQTT V3.1 protocol specification (MQIsdp).
 */
#ifndef SL_MQTT_PACKET_H
#define SL_MQTT_PACKET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

typedef enum sl_mqtt_version {
    SL_MQTT_V31 = 3,  /* "MQIsdp", level 3 */
    SL_MQTT_V311 = 4, /* "MQTT", level 4 */
    SL_MQTT_V5 = 5    /* "MQTT", level 5 */
} sl_mqtt_version;

typedef enum sl_mqtt_type {
    SL_MQTT_CONNECT = 1,
    SL_MQTT_CONNACK = 2,
    SL_MQTT_PUBLISH = 3,
    SL_MQTT_PUBACK = 4,
    SL_MQTT_PUBREC = 5,
    SL_MQTT_PUBREL = 6,
    SL_MQTT_PUBCOMP = 7,
    SL_MQTT_SUBSCRIBE = 8,
    SL_MQTT_SUBACK = 9,
    SL_MQTT_UNSUBSCRIBE = 10,
    SL_MQTT_UNSUBACK = 11,
    SL_MQTT_PINGREQ = 12,
    SL_MQTT_PINGRESP = 13,
    SL_MQTT_DISCONNECT = 14,
    SL_MQTT_AUTH = 15
} sl_mqtt_type;

#define SL_MQTT_MAX_REMAINING 268435455u /* [MQTT-2.1.4] four-byte remaining length */

/* Decoded MQTT 5 properties. Single ones have a bit in `has`; user properties and subscription
 * identifiers may repeat and are read by iteration over `raw` (props.h). All slices are borrowed
 * from the packet. For 3.x packets everything is zero. */
enum {
    SL_PROP_PAYLOAD_FORMAT = 1u << 0,
    SL_PROP_MESSAGE_EXPIRY = 1u << 1,
    SL_PROP_CONTENT_TYPE = 1u << 2,
    SL_PROP_RESPONSE_TOPIC = 1u << 3,
    SL_PROP_CORRELATION_DATA = 1u << 4,
    SL_PROP_SUBSCRIPTION_ID = 1u << 5,
    SL_PROP_SESSION_EXPIRY = 1u << 6,
    SL_PROP_ASSIGNED_CLIENT_ID = 1u << 7,
    SL_PROP_SERVER_KEEP_ALIVE = 1u << 8,
    SL_PROP_AUTH_METHOD = 1u << 9,
    SL_PROP_AUTH_DATA = 1u << 10,
    SL_PROP_REQUEST_PROBLEM_INFO = 1u << 11,
    SL_PROP_WILL_DELAY = 1u << 12,
    SL_PROP_REQUEST_RESPONSE_INFO = 1u << 13,
    SL_PROP_RESPONSE_INFO = 1u << 14,
    SL_PROP_SERVER_REFERENCE = 1u << 15,
    SL_PROP_REASON_STRING = 1u << 16,
    SL_PROP_RECEIVE_MAXIMUM = 1u << 17,
    SL_PROP_TOPIC_ALIAS_MAXIMUM = 1u << 18,
    SL_PROP_TOPIC_ALIAS = 1u << 19,
    SL_PROP_MAXIMUM_QOS = 1u << 20,
    SL_PROP_RETAIN_AVAILABLE = 1u << 21,
    SL_PROP_USER = 1u << 22,
    SL_PROP_MAXIMUM_PACKET_SIZE = 1u << 23,
    SL_PROP_WILDCARD_AVAILABLE = 1u << 24,
    SL_PROP_SUBSCRIPTION_ID_AVAILABLE = 1u << 25,
    SL_PROP_SHARED_AVAILABLE = 1u << 26
};

typedef struct sl_mqtt_props {
    uint32_t has;                 /* bits above; USER and SUBSCRIPTION_ID: at least one */
    uint8_t payload_format;       /* 0 or 1 */
    uint8_t request_problem_info; /* 0 or 1; CONNECT default 1 is NOT filled in */
    uint8_t request_response_info;
    uint8_t maximum_qos;
    uint8_t retain_available;
    uint8_t wildcard_available;
    uint8_t subscription_id_available;
    uint8_t shared_available;
    uint16_t server_keep_alive;
    uint16_t receive_maximum;
    uint16_t topic_alias_maximum;
    uint16_t topic_alias;
    uint32_t message_expiry;      /* seconds */
    uint32_t session_expiry;      /* seconds */
    uint32_t will_delay;          /* seconds */
    uint32_t maximum_packet_size; /* bytes */
    uint32_t subscription_id;     /* the first one */
    sl_slice content_type;
    sl_slice response_topic;
    sl_slice correlation_data;
    sl_slice assigned_client_id;
    sl_slice auth_method;
    sl_slice auth_data;
    sl_slice response_info;
    sl_slice server_reference;
    sl_slice reason_string;
    sl_slice raw; /* the properties without their length; on encode: copied verbatim when set and
                     use_raw is true, else built from the fields above + user[] */
    bool use_raw; /* encode only */
    const struct sl_mqtt_user_prop *user; /* encode only; borrowed */
    uint32_t user_count;                  /* encode only */
    const uint32_t *sub_ids;              /* encode only: PUBLISH subscription identifiers */
    uint32_t sub_id_count;                /* encode only */
} sl_mqtt_props;

typedef struct sl_mqtt_user_prop {
    sl_slice name;
    sl_slice value;
} sl_mqtt_user_prop;

typedef struct sl_mqtt_will {
    sl_slice topic;
    sl_slice payload;
    uint8_t qos;
    bool retain;
    sl_mqtt_props props;
} sl_mqtt_will;

typedef struct sl_mqtt_connect {
    sl_mqtt_version version;
    bool clean_start; /* clean session in 3.x */
    bool has_will;
    bool has_username;
    bool has_password;
    uint16_t keep_alive_s;
    sl_slice client_id;
    sl_slice username;
    sl_slice password;
    sl_mqtt_will will;
    sl_mqtt_props props;
} sl_mqtt_connect;

typedef struct sl_mqtt_connack {
    bool session_present;
    uint8_t reason; /* reason code (5) or return code (3.x), as on the wire */
    sl_mqtt_props props;
} sl_mqtt_connack;

typedef struct sl_mqtt_publish {
    bool dup;
    bool retain;
    uint8_t qos;
    uint16_t packet_id; /* 0 with QoS 0 */
    sl_slice topic;     /* may be empty in 5.0 when a topic alias is given */
    sl_slice payload;
    sl_mqtt_props props;
} sl_mqtt_publish;

/* PUBACK, PUBREC, PUBREL, PUBCOMP */
typedef struct sl_mqtt_ack {
    uint16_t packet_id;
    uint8_t reason; /* 0 for 3.x */
    sl_mqtt_props props;
} sl_mqtt_ack;

typedef struct sl_mqtt_sub_option {
    sl_slice filter;
    uint8_t qos;
    bool no_local;            /* 5.0 */
    bool retain_as_published; /* 5.0 */
    uint8_t retain_handling;  /* 5.0: 0, 1, 2 */
} sl_mqtt_sub_option;

/* SUBSCRIBE and UNSUBSCRIBE: the list is read by iteration, each step checked at decode. */
typedef struct sl_mqtt_subscribe {
    uint16_t packet_id;
    uint32_t count;
    sl_slice list; /* wire form; sl_mqtt_subscribe_next / sl_mqtt_unsubscribe_next */
    const sl_mqtt_sub_option *options; /* encode only; borrowed, count entries */
    sl_mqtt_props props;
} sl_mqtt_subscribe;

/* SUBACK and UNSUBACK; UNSUBACK of 3.x has no reasons. */
typedef struct sl_mqtt_suback {
    uint16_t packet_id;
    sl_slice reasons; /* a byte each */
    sl_mqtt_props props;
} sl_mqtt_suback;

/* DISCONNECT and AUTH */
typedef struct sl_mqtt_disconnect {
    uint8_t reason; /* 0 when absent */
    sl_mqtt_props props;
} sl_mqtt_disconnect;

typedef struct sl_mqtt_packet {
    sl_mqtt_type type;
    uint32_t wire_size; /* whole packet, fixed header included */
    union {
        sl_mqtt_connect connect;
        sl_mqtt_connack connack;
        sl_mqtt_publish publish;
        sl_mqtt_ack ack;
        sl_mqtt_subscribe subscribe;   /* and UNSUBSCRIBE */
        sl_mqtt_suback suback;         /* and UNSUBACK */
        sl_mqtt_disconnect disconnect; /* and AUTH */
    };
} sl_mqtt_packet;

#endif
