/* SPDX-License-Identifier: Apache-2.0
 *
 * The layout of a stored PUBLISH: any bytes are laid out inside their bounds or refused, and what
 * decodes as a PUBLISH of 5.0 is laid out just as decode sees it.
 */
#include "fuzz.h"
#include "mqtt/decode.h"
#include "mqtt/encode.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    sl_slice bytes = sl_slice_of(data + 1, size - 1); // the seeds begin with a byte of their own
    uint8_t *copy = fuzz_copy(bytes);
    bytes.ptr = copy;
    sl_mqtt_publish_layout lay;
    sl_err err = sl_mqtt_publish_lay_out(bytes, &lay);
    if (err == SL_OK) {
        SL_ASSERT((size_t)lay.topic_off + 2 + lay.topic_len <= lay.props_off);
        SL_ASSERT((size_t)lay.props_off + lay.props_len == lay.payload_off);
        SL_ASSERT((size_t)lay.payload_off + lay.payload_len == bytes.len);
    }
    sl_mqtt_packet pkt;
    sl_mqtt_rc rc;
    const char *why;
    if (sl_mqtt_decode(bytes, SL_MQTT_V5, SL_MQTT_CLIENT_READS, &pkt, &rc, &why) == SL_OK &&
        pkt.type == SL_MQTT_PUBLISH) {
        SL_ASSERT(err == SL_OK);
        SL_ASSERT(lay.topic_len == pkt.publish.topic.len);
        SL_ASSERT(lay.props_len == pkt.publish.props.raw.len);
        SL_ASSERT(lay.payload_len == pkt.publish.payload.len);
        SL_ASSERT(lay.first == bytes.ptr[0]);
    }
    sl_free(copy);
    return 0;
}
