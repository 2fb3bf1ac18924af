/* SPDX-License-Identifier: Apache-2.0
 *
 * One packet with a fixed header that always fits: byte 0 says version and side, byte 1 is the
 * first byte of the packet, what the seed has as length is skipped, the rest is the body. What is
 * accepted must be walkable, writable again, and read back as the same.
 */
#include "base/buf.h"
#include "fuzz.h"
#include "mqtt/decode.h"
#include "mqtt/encode.h"
#include "mqtt/props.h"
#include "mqtt/topic.h"

static void walk_props(const sl_mqtt_props *props)
{
    sl_mqtt_prop_view pv;
    uint32_t seen = 0;
    size_t pos = 0;
    while (sl_mqtt_prop_next(props->raw, &pos, &pv))
        seen |= pv.row->bit;
    SL_ASSERT(pos == props->raw.len);
    SL_ASSERT(seen == props->has);
}

static sl_mqtt_props *props_of(sl_mqtt_packet *pkt)
{
    switch (pkt->type) {
    case SL_MQTT_CONNECT:
        walk_props(&pkt->connect.will.props);
        pkt->connect.will.props.use_raw = true;
        return &pkt->connect.props;
    case SL_MQTT_CONNACK:
        return &pkt->connack.props;
    case SL_MQTT_PUBLISH:
        return &pkt->publish.props;
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
        return &pkt->subscribe.props;
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        return &pkt->suback.props;
    case SL_MQTT_DISCONNECT:
    case SL_MQTT_AUTH:
        return &pkt->disconnect.props;
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        return NULL;
    default:
        return &pkt->ack.props;
    }
}

static void walk_list(const sl_mqtt_packet *pkt, sl_mqtt_version version)
{
    uint32_t count = 0;
    size_t pos = 0;
    sl_mqtt_sub_option so;
    if (pkt->type == SL_MQTT_SUBSCRIBE) {
        for (; sl_mqtt_subscribe_next(&pkt->subscribe, version, &pos, &so); count++)
            SL_ASSERT(so.qos < 3 && so.retain_handling < 3);
    } else {
        for (; sl_mqtt_unsubscribe_next(&pkt->subscribe, &pos, &so.filter); count++)
            SL_ASSERT(so.filter.len > 0);
    }
    SL_ASSERT(count == pkt->subscribe.count && pos == pkt->subscribe.list.len);
}

static void check_accepted(sl_mqtt_packet *pkt, sl_mqtt_version version, sl_mqtt_side side)
{
    if (pkt->type == SL_MQTT_CONNECT)
        version = pkt->connect.version;
    if (pkt->type == SL_MQTT_SUBSCRIBE || pkt->type == SL_MQTT_UNSUBSCRIBE)
        walk_list(pkt, version);
    if (pkt->type == SL_MQTT_PUBLISH)
        SL_ASSERT(pkt->publish.topic.len == 0 ||
                  sl_mqtt_topic_check(pkt->publish.topic, 0, NULL) == SL_OK);
    sl_mqtt_props *props = props_of(pkt);
    if (props != NULL) {
        walk_props(props);
        props->use_raw = true;
    }
    sl_buf out;
    sl_buf_init(&out, SL_MQTT_MAX_REMAINING + 5);
    SL_ASSERT(sl_mqtt_encode(pkt, version, &out) == SL_OK);
    sl_mqtt_packet again;
    sl_mqtt_rc rc;
    const char *why;
    SL_ASSERT(sl_mqtt_decode(sl_buf_peek(&out), version, side, &again, &rc, &why) == SL_OK);
    SL_ASSERT(again.type == pkt->type);
    // Once in our form it stays the same to the byte.
    sl_buf twice;
    sl_buf_init(&twice, SL_MQTT_MAX_REMAINING + 5);
    props = props_of(&again);
    if (props != NULL)
        props->use_raw = true;
    SL_ASSERT(sl_mqtt_encode(&again, version, &twice) == SL_OK);
    SL_ASSERT(sl_slice_equal(sl_buf_peek(&out), sl_buf_peek(&twice)));
    sl_buf_fini(&twice);
    sl_buf_fini(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    sl_mqtt_version version = (sl_mqtt_version)(3 + data[0] % 4 % 3);
    sl_mqtt_side side = (data[0] & 4) != 0 ? SL_MQTT_CLIENT_READS : SL_MQTT_SERVER_READS;
    const uint8_t *body = data + 2;
    size_t left = size - 2;
    for (unsigned i = 0; i < 4 && left > 0; i++) { // the seed's own length
        left--;
        if ((*body++ & 0x80) == 0)
            break;
    }
    uint8_t head[8];
    uint32_t head_size = sl_mqtt_publish_head(head, data[1], (uint32_t)left);
    uint8_t *packet = sl_alloc(head_size + left);
    memcpy(packet, head, head_size);
    if (left > 0)
        memcpy(packet + head_size, body, left);
    sl_mqtt_packet pkt;
    sl_mqtt_rc rc = SL_RC_SUCCESS;
    const char *why = NULL;
    sl_err err =
        sl_mqtt_decode(sl_slice_of(packet, head_size + left), version, side, &pkt, &rc, &why);
    if (err == SL_OK)
        check_accepted(&pkt, version, side);
    else
        SL_ASSERT((err == SL_EMALFORMED || err == SL_EPROTOCOL) && rc >= 0x80 && why != NULL);
    sl_free(packet);
    return 0;
}
