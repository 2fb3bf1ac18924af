/* SPDX-License-Identifier: Apache-2.0
 *
 * A byte stream as a connection sees it: frames are cut off and decoded until something is refused
 * or incomplete. The answer for a frame must not change with how much of the stream is there.
 */
#include "fuzz.h"
#include "mqtt/decode.h"
#include "mqtt/frame.h"

#define LIMIT 20000u

/* Every shorter view says "incomplete" or the same fault; never a packet. */
static void check_prefixes(sl_slice stream, sl_err whole)
{
    for (size_t len = 0; len < stream.len && len < 12; len++) {
        uint8_t *cut = fuzz_copy(sl_slice_of(stream.ptr, len));
        sl_mqtt_frame frame;
        sl_mqtt_rc rc;
        const char *why;
        sl_err err = sl_mqtt_frame_read(sl_slice_of(cut, len), LIMIT, &frame, &rc, &why);
        sl_free(cut);
        if (err == SL_OK) {
            SL_ASSERT(whole == SL_OK && len == frame.header_size + frame.remaining);
            return;
        }
        SL_ASSERT(err == SL_EINCOMPLETE || err == whole);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    sl_mqtt_version version = (sl_mqtt_version)(3 + data[0] % 4 % 3);
    sl_mqtt_side side = (data[0] & 4) != 0 ? SL_MQTT_CLIENT_READS : SL_MQTT_SERVER_READS;
    sl_slice rest = sl_slice_of(data + 1, size - 1);
    for (;;) {
        sl_mqtt_frame frame;
        sl_mqtt_rc rc = SL_RC_SUCCESS;
        const char *why = NULL;
        sl_err err = sl_mqtt_frame_read(rest, LIMIT, &frame, &rc, &why);
        check_prefixes(rest, err);
        if (err != SL_OK) {
            SL_ASSERT(err == SL_EINCOMPLETE || (rc >= 0x80 && why != NULL));
            return 0;
        }
        size_t len = frame.header_size + frame.remaining;
        uint8_t *packet = fuzz_copy(sl_slice_of(rest.ptr, len));
        sl_mqtt_packet pkt;
        err = sl_mqtt_decode(sl_slice_of(packet, len), version, side, &pkt, &rc, &why);
        SL_ASSERT(err != SL_OK || pkt.wire_size == len);
        if (err == SL_OK && pkt.type == SL_MQTT_CONNECT)
            version = pkt.connect.version;
        sl_free(packet);
        if (err != SL_OK)
            return 0;
        rest = sl_slice_of(rest.ptr + len, rest.len - len);
    }
}
