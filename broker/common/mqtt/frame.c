/* SPDX-License-Identifier: Apache-2.0
 *
 * frame: the fixed header; see frame.h. Shortest form of the length is checked at decode, where the
 * version is known: 3.x says nothing about it and some embedded clients pad.
 */
#include "mqtt/frame.h"

sl_err sl_mqtt_frame_read(sl_slice bytes, uint32_t max_packet_bytes, sl_mqtt_frame *out,
                          sl_mqtt_rc *rc, const char **why)
{
    *out = (sl_mqtt_frame){0};
    if (bytes.len == 0)
        return SL_EINCOMPLETE;
    uint32_t remaining = 0;
    uint32_t used = 1;
    for (unsigned shift = 0;; shift += 7) {
        if (used >= bytes.len)
            return SL_EINCOMPLETE;
        uint8_t byte = bytes.ptr[used++];
        remaining |= (uint32_t)(byte & 0x7Fu) << shift;
        if ((byte & 0x80u) == 0)
            break;
        if (shift == 21) {
            *rc = SL_RC_MALFORMED_PACKET;
            *why = "remaining length is longer than four bytes (2.1.4)";
            return SL_EMALFORMED;
        }
    }
    if ((uint64_t)used + remaining > max_packet_bytes) {
        *rc = SL_RC_PACKET_TOO_LARGE;
        *why = "packet is larger than the maximum packet size [MQTT-3.1.2-24]";
        return SL_ETOOBIG;
    }
    out->first = bytes.ptr[0];
    out->header_size = used;
    out->remaining = remaining;
    return bytes.len - used < remaining ? SL_EINCOMPLETE : SL_OK;
}
