/* SPDX-License-Identifier: Apache-2.0
 *
 * encode: MQTT packets to bytes, the mirror of decode. Pure; the caller owns the room.
 */
#ifndef SL_MQTT_ENCODE_H
#define SL_MQTT_ENCODE_H

#include "base/buf.h"
#include "base/err.h"
#include "mqtt/packet.h"

/**
 * Appends the packet in its wire form.
 * Errors SL_ETOOBIG buffer maximum or remaining length over 268 435 455; SL_EINVAL a field that the
 * version cannot carry or a string over 65 535 bytes. Nothing is appended then.
 * @thread any
 */
SL_MUST_USE sl_err sl_mqtt_encode(const sl_mqtt_packet *packet, sl_mqtt_version version,
                                  sl_buf *out);

/* The hot path, without sl_mqtt_packet: a PUBLISH around bytes that stay where they are. */

#define SL_MQTT_PUBLISH_HEAD_MAX 16
typedef struct sl_mqtt_publish_layout {
    uint32_t topic_off; /* into the stored MQTT 5 PUBLISH: the topic's two-byte length */
    uint32_t topic_len; /* without the two bytes */
    uint32_t props_off; /* first byte of the properties, behind their length */
    uint32_t props_len;
    uint32_t payload_off;
    uint32_t payload_len;
    uint8_t first; /* first byte of the stored packet: DUP, QoS, RETAIN */
} sl_mqtt_publish_layout;

/** Lays out a stored MQTT 5 PUBLISH (as written by ourselves; still bounds-checked).
 * Errors SL_EMALFORMED. @thread any */
SL_MUST_USE sl_err sl_mqtt_publish_lay_out(sl_slice packet, sl_mqtt_publish_layout *out);

/**
 * Writes the fixed header of a PUBLISH: first byte and remaining length. Returns its size (2..5).
 * remaining: topic field + packet id + properties + payload.
 */
uint32_t sl_mqtt_publish_head(uint8_t *out, uint8_t first, uint32_t remaining);

/** Bytes of a variable byte integer (1..4). @thread any */
uint32_t sl_mqtt_varint_size(uint32_t value);
/** Writes it, returns its size. @thread any */
uint32_t sl_mqtt_varint_write(uint8_t *out, uint32_t value);

#endif
