/* SPDX-License-Identifier: Apache-2.0
 *
 * reason: MQTT 5.0 reason codes (2.4) and what they become in 3.x; one table.
 */
#ifndef SL_MQTT_REASON_H
#define SL_MQTT_REASON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "mqtt/packet.h"

/* name, code, text, CONNACK return code of 3.x (0xFF: none, just close) */
#define SL_MQTT_RC_MAP(X)                                                                          \
    X(SUCCESS, 0x00, "success", 0x00)                                                              \
    X(GRANTED_QOS_1, 0x01, "granted QoS 1", 0xFF)                                                  \
    X(GRANTED_QOS_2, 0x02, "granted QoS 2", 0xFF)                                                  \
    X(DISCONNECT_WITH_WILL, 0x04, "disconnect with will message", 0xFF)                            \
    X(NO_MATCHING_SUBSCRIBERS, 0x10, "no matching subscribers", 0xFF)                              \
    X(NO_SUBSCRIPTION_EXISTED, 0x11, "no subscription existed", 0xFF)                              \
    X(CONTINUE_AUTHENTICATION, 0x18, "continue authentication", 0xFF)                              \
    X(RE_AUTHENTICATE, 0x19, "re-authenticate", 0xFF)                                              \
    X(UNSPECIFIED_ERROR, 0x80, "unspecified error", 0x03)                                          \
    X(MALFORMED_PACKET, 0x81, "malformed packet", 0xFF)                                            \
    X(PROTOCOL_ERROR, 0x82, "protocol error", 0xFF)                                                \
    X(IMPLEMENTATION_ERROR, 0x83, "implementation specific error", 0x03)                           \
    X(UNSUPPORTED_VERSION, 0x84, "unsupported protocol version", 0x01)                             \
    X(CLIENT_ID_NOT_VALID, 0x85, "client identifier not valid", 0x02)                              \
    X(BAD_USERNAME_OR_PASSWORD, 0x86, "bad user name or password", 0x04)                           \
    X(NOT_AUTHORIZED, 0x87, "not authorized", 0x05)                                                \
    X(SERVER_UNAVAILABLE, 0x88, "server unavailable", 0x03)                                        \
    X(SERVER_BUSY, 0x89, "server busy", 0x03)                                                      \
    X(BANNED, 0x8A, "banned", 0x05)                                                                \
    X(SERVER_SHUTTING_DOWN, 0x8B, "server shutting down", 0x03)                                    \
    X(BAD_AUTH_METHOD, 0x8C, "bad authentication method", 0x05)                                    \
    X(KEEP_ALIVE_TIMEOUT, 0x8D, "keep alive timeout", 0xFF)                                        \
    X(SESSION_TAKEN_OVER, 0x8E, "session taken over", 0xFF)                                        \
    X(TOPIC_FILTER_INVALID, 0x8F, "topic filter invalid", 0xFF)                                    \
    X(TOPIC_NAME_INVALID, 0x90, "topic name invalid", 0x03)                                        \
    X(PACKET_ID_IN_USE, 0x91, "packet identifier in use", 0xFF)                                    \
    X(PACKET_ID_NOT_FOUND, 0x92, "packet identifier not found", 0xFF)                              \
    X(RECEIVE_MAXIMUM_EXCEEDED, 0x93, "receive maximum exceeded", 0xFF)                            \
    X(TOPIC_ALIAS_INVALID, 0x94, "topic alias invalid", 0xFF)                                      \
    X(PACKET_TOO_LARGE, 0x95, "packet too large", 0x03)                                            \
    X(MESSAGE_RATE_TOO_HIGH, 0x96, "message rate too high", 0xFF)                                  \
    X(QUOTA_EXCEEDED, 0x97, "quota exceeded", 0x03)                                                \
    X(ADMINISTRATIVE_ACTION, 0x98, "administrative action", 0xFF)                                  \
    X(PAYLOAD_FORMAT_INVALID, 0x99, "payload format invalid", 0x03)                                \
    X(RETAIN_NOT_SUPPORTED, 0x9A, "retain not supported", 0x03)                                    \
    X(QOS_NOT_SUPPORTED, 0x9B, "QoS not supported", 0x03)                                          \
    X(USE_ANOTHER_SERVER, 0x9C, "use another server", 0x03)                                        \
    X(SERVER_MOVED, 0x9D, "server moved", 0x03)                                                    \
    X(SHARED_NOT_SUPPORTED, 0x9E, "shared subscriptions not supported", 0xFF)                      \
    X(CONNECTION_RATE_EXCEEDED, 0x9F, "connection rate exceeded", 0x03)                            \
    X(MAXIMUM_CONNECT_TIME, 0xA0, "maximum connect time", 0xFF)                                    \
    X(SUBSCRIPTION_IDS_NOT_SUPPORTED, 0xA1, "subscription identifiers not supported", 0xFF)        \
    X(WILDCARD_NOT_SUPPORTED, 0xA2, "wildcard subscriptions not supported", 0xFF)

typedef enum sl_mqtt_rc {
#define SL_MQTT_RC_ENUM(name, code, text, v3) SL_RC_##name = (code),
    SL_MQTT_RC_MAP(SL_MQTT_RC_ENUM)
#undef SL_MQTT_RC_ENUM
} sl_mqtt_rc;

/** "session taken over"; static text, "unknown reason" for others. @thread any */
const char *sl_mqtt_rc_text(uint8_t code);
/** The 3.x CONNACK return code for a refusal; 0xFF when 3.x has none (close silently). */
uint8_t sl_mqtt_rc_to_v3(sl_mqtt_rc rc);
/** Reason code for an error of ours. @thread any */
sl_mqtt_rc sl_mqtt_rc_of_err(sl_err err);
/** May this 5.0 packet carry this reason code? For DISCONNECT and AUTH it depends on who sends.
 * @thread any */
bool sl_mqtt_rc_is_allowed(uint8_t code, sl_mqtt_type type, bool from_server);

#endif
