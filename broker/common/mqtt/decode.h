/* SPDX-License-Identifier: Apache-2.0
 *
 * decode: one whole MQTT packet from bytes; slices point into them. Refuses every malformation with
 * the reason code of the standard and a static text. No allocation, no state.
 */
#ifndef SL_MQTT_DECODE_H
#define SL_MQTT_DECODE_H

#include "base/err.h"
#include "mqtt/packet.h"
#include "mqtt/reason.h"

/* Who reads: some packets and properties are legal in one direction only. */
typedef enum sl_mqtt_side { SL_MQTT_SERVER_READS, SL_MQTT_CLIENT_READS } sl_mqtt_side;

/**
 * Decodes the packet in bytes (exactly one: fixed header and body, as framed).
 * version: of the connection; for CONNECT it is ignored (the packet says it).
 * Errors  SL_EMALFORMED, SL_EPROTOCOL with *rc the 5.0 reason code (0x81, 0x82, 0x84 for an
 *         unsupported protocol, 0x85 ...) and *why a static sentence with the clause.
 * For an unsupported protocol version out->connect.version is what the peer asked for, so that a
 * CONNACK in its dialect can be sent.
 * @thread any
 */
SL_MUST_USE sl_err sl_mqtt_decode(sl_slice bytes, sl_mqtt_version version, sl_mqtt_side side,
                                  sl_mqtt_packet *out, sl_mqtt_rc *rc, const char **why);

/** Steps through the list of a decoded SUBSCRIBE; *pos starts at 0; false at the end.
 * @thread any */
bool sl_mqtt_subscribe_next(const sl_mqtt_subscribe *sub, sl_mqtt_version version, size_t *pos,
                            sl_mqtt_sub_option *out);
/** The same for UNSUBSCRIBE. @thread any */
bool sl_mqtt_unsubscribe_next(const sl_mqtt_subscribe *sub, size_t *pos, sl_slice *filter);

#endif
