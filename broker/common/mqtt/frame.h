/* SPDX-License-Identifier: Apache-2.0
 *
 * frame: the fixed header, incrementally: how long is the packet that begins here? [MQTT-2.1]
 */
#ifndef SL_MQTT_FRAME_H
#define SL_MQTT_FRAME_H

#include "base/err.h"
#include "mqtt/packet.h"
#include "mqtt/reason.h"

typedef struct sl_mqtt_frame {
    uint8_t first;        /* first byte: type and flags */
    uint32_t header_size; /* bytes of the fixed header */
    uint32_t remaining;   /* remaining length */
} sl_mqtt_frame;

/**
 * Reads a fixed header from the front of bytes.
 * Errors  SL_EINCOMPLETE more bytes are needed for the header (or, header read, for the body: *out
 *         is filled then and out->header_size is not 0); SL_EMALFORMED length of five bytes;
 *         SL_ETOOBIG packet (header counted as 5.0 does, [MQTT-3.1.2-24]) over max_packet_bytes,
 *         known from the header alone. *rc and *why are set on the last two.
 * @thread any
 */
SL_MUST_USE sl_err sl_mqtt_frame_read(sl_slice bytes, uint32_t max_packet_bytes, sl_mqtt_frame *out,
                                      sl_mqtt_rc *rc, const char **why);

#endif
