/* SPDX-License-Identifier: Apache-2.0
 *
 * codec_int: the bounded reader under decode.c and props.c. A read that fails says why once and the
 * caller returns false. Internal to the codec.
 */
#ifndef SL_MQTT_CODEC_INT_H
#define SL_MQTT_CODEC_INT_H

#include "base/err.h"
#include "base/slice.h"
#include "mqtt/packet.h"
#include "mqtt/reason.h"

typedef struct sl_mqtt_reader {
    const uint8_t *at;
    const uint8_t *end;
    sl_err err;
    sl_mqtt_rc rc;
    const char *why;
} sl_mqtt_reader;

static inline size_t sl_mqtt_reader_left(const sl_mqtt_reader *rd)
{
    return (size_t)(rd->end - rd->at);
}

static inline bool sl_mqtt_reader_fail(sl_mqtt_reader *rd, sl_err err, sl_mqtt_rc rc,
                                       const char *why)
{
    rd->err = err;
    rd->rc = rc;
    rd->why = why;
    return false;
}

static inline bool sl_mqtt_malformed(sl_mqtt_reader *rd, const char *why)
{
    return sl_mqtt_reader_fail(rd, SL_EMALFORMED, SL_RC_MALFORMED_PACKET, why);
}

static inline bool sl_mqtt_violation(sl_mqtt_reader *rd, const char *why)
{
    return sl_mqtt_reader_fail(rd, SL_EPROTOCOL, SL_RC_PROTOCOL_ERROR, why);
}

static inline bool sl_mqtt_read_u8(sl_mqtt_reader *rd, uint8_t *out)
{
    if (rd->at == rd->end)
        return sl_mqtt_malformed(rd, "packet ends before a byte (1.5.1)");
    *out = *rd->at++;
    return true;
}

static inline bool sl_mqtt_read_u16(sl_mqtt_reader *rd, uint16_t *out)
{
    if (sl_mqtt_reader_left(rd) < 2)
        return sl_mqtt_malformed(rd, "packet ends inside a two byte integer (1.5.2)");
    *out = (uint16_t)((rd->at[0] << 8) | rd->at[1]);
    rd->at += 2;
    return true;
}

static inline bool sl_mqtt_read_u32(sl_mqtt_reader *rd, uint32_t *out)
{
    if (sl_mqtt_reader_left(rd) < 4)
        return sl_mqtt_malformed(rd, "packet ends inside a four byte integer (1.5.3)");
    *out = ((uint32_t)rd->at[0] << 24) | ((uint32_t)rd->at[1] << 16) | ((uint32_t)rd->at[2] << 8) |
           rd->at[3];
    rd->at += 4;
    return true;
}

/* Shortest form only, four bytes at most [MQTT-1.5.5-1]. */
static inline bool sl_mqtt_read_varint(sl_mqtt_reader *rd, uint32_t *out)
{
    uint32_t value = 0;
    for (unsigned shift = 0; shift <= 21; shift += 7) {
        if (rd->at == rd->end)
            return sl_mqtt_malformed(rd, "packet ends inside a variable byte integer (1.5.5)");
        uint8_t byte = *rd->at++;
        value |= (uint32_t)(byte & 0x7Fu) << shift;
        if ((byte & 0x80u) != 0)
            continue;
        if (byte == 0 && shift != 0)
            return sl_mqtt_malformed(
                rd, "variable byte integer is not in its shortest form [MQTT-1.5.5-1]");
        *out = value;
        return true;
    }
    return sl_mqtt_malformed(rd, "variable byte integer is longer than four bytes (1.5.5)");
}

/* Two byte length and bytes. */
static inline bool sl_mqtt_read_binary(sl_mqtt_reader *rd, sl_slice *out)
{
    size_t left = sl_mqtt_reader_left(rd);
    if (left < 2)
        return sl_mqtt_malformed(rd, "packet ends inside a length (1.5.6)");
    size_t len = (size_t)((rd->at[0] << 8) | rd->at[1]);
    if (left - 2 < len)
        return sl_mqtt_malformed(rd, "length of a field goes beyond the packet (1.5.6)");
    *out = sl_slice_of(rd->at + 2, len);
    rd->at += 2 + len;
    return true;
}

/* A UTF-8 encoded string; wildcard as in utf8.h. */
bool sl_mqtt_read_text(sl_mqtt_reader *rd, sl_slice *out, bool *wildcard);

/* Property length and properties, into *out. */
bool sl_mqtt_read_props(sl_mqtt_reader *rd, uint32_t where, sl_mqtt_props *out);

#endif
