/* SPDX-License-Identifier: Apache-2.0
 *
 * on_publish: PUBLISH from a client into tbmq.msg.all, and PUBREL. A message is stored as an MQTT 5
 * PUBLISH packet; what a version 5 client sent is stored as it came.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "mqtt/encode.h"
#include "mqtt/topic.h"
#include "session/actor_int.h"
#include "stats/broker_stats.h"
#include "stats/msg_trace.h"

/* ---- open QoS 2 packet ids, ascending -----------------------------------------------------------
 */

static uint32_t qos2_find(const sl_client *cl, uint16_t packet_id, bool *found)
{
    // Ids mostly grow: look at the end first.
    uint32_t low = 0, high = cl->qos2_count;
    if (high > 0 && cl->qos2[high - 1] < packet_id) {
        *found = false;
        return high;
    }
    while (low < high) {
        uint32_t mid = (low + high) / 2;
        if (cl->qos2[mid] < packet_id)
            low = mid + 1;
        else
            high = mid;
    }
    *found = low < cl->qos2_count && cl->qos2[low] == packet_id;
    return low;
}

static void qos2_add(sl_client *cl, uint16_t packet_id)
{
    bool found;
    uint32_t at = qos2_find(cl, packet_id, &found);
    if (found)
        return;
    if (cl->qos2_count == cl->qos2_cap) {
        cl->qos2_cap = cl->qos2_cap < 8 ? 8 : cl->qos2_cap * 2;
        cl->qos2 = sl_realloc(cl->qos2, cl->qos2_cap * sizeof(*cl->qos2));
    }
    memmove(cl->qos2 + at + 1, cl->qos2 + at, (cl->qos2_count - at) * sizeof(*cl->qos2));
    cl->qos2[at] = packet_id;
    cl->qos2_count++;
}

void sl_actor_qos2_remove(sl_client *cl, uint16_t packet_id)
{
    bool found;
    uint32_t at = qos2_find(cl, packet_id, &found);
    if (!found)
        return;
    cl->qos2_count--;
    memmove(cl->qos2 + at, cl->qos2 + at + 1, (cl->qos2_count - at) * sizeof(*cl->qos2));
}

/* ---- PUBLISH ------------------------------------------------------------------------------------
 */

/* The slot of this packet is answered without the log. */
static void answer(sl_client_item *it, const sl_mqtt_publish *pub, sl_mqtt_rc rc)
{
    if (pub->qos > 0)
        sl_conn_complete(it->conn, it->seq++, rc);
}

/* What ends the connection or refuses the message before it gets near the log. True: go on. */
static bool check_publish(sl_client *cl, sl_io *io, sl_client_item *it, const sl_mqtt_publish *pub)
{
    const sl_limits *lim = &io->core->limits;
    bool v5 = it->conn->version >= SL_MQTT_V5;
    if ((pub->props.has & SL_PROP_TOPIC_ALIAS) != 0) { // we announced no aliases [MQTT-3.3.2-9]
        sl_actor_end_conn(it, SL_RC_TOPIC_ALIAS_INVALID, true);
        return false;
    }
    if ((pub->props.has & SL_PROP_SUBSCRIPTION_ID) != 0) { // [MQTT-3.3.4-6]
        sl_actor_end_conn(it, SL_RC_PROTOCOL_ERROR, true);
        return false;
    }
    if (v5 && pub->retain) { // Retain Available was 0 [MQTT-3.2.2-14]
        sl_actor_end_conn(it, SL_RC_RETAIN_NOT_SUPPORTED, true);
        return false;
    }
    bool reserved = pub->topic.len > 0 && pub->topic.ptr[0] == '$';
    bool deep =
        lim->max_topic_levels > 0 && sl_mqtt_level_count(pub->topic) - 1 > lim->max_topic_levels;
    if (reserved || deep) {
        // `$` topics are the server's. Version 3 cannot be told: acknowledged, dropped, counted.
        sl_io_count(io, SL_BS_DROP_INVALID_TOPIC, 1);
        answer(it, pub, v5 ? SL_RC_TOPIC_NAME_INVALID : SL_RC_SUCCESS);
        return false;
    }
    if (pub->qos == 2) {
        bool open;
        (void)qos2_find(cl, pub->packet_id, &open);
        if (open) { // a repetition: answered again, delivered once [MQTT-4.3.3-10]
            answer(it, pub, SL_RC_SUCCESS);
            return false;
        }
        if (cl->qos2_count >= lim->max_in_flight) { // [MQTT-3.3.4-7]
            sl_actor_end_conn(it, SL_RC_RECEIVE_MAXIMUM_EXCEEDED, true);
            return false;
        }
    }
    return true;
}

#define HEAD_BYTES 8
static const uint8_t NO_PROPS[1] = {0};

/* The value: an MQTT 5 PUBLISH in pieces. head: room for HEAD_BYTES. */
static void fill_value(sl_log_record_in *rec, const sl_conn *cn, const sl_mqtt_publish *pub,
                       sl_slice wire, uint8_t *head)
{
    uint8_t first = wire.ptr[0] & 0xF7; // DUP is of the hop, not of the message
    if (cn->version >= SL_MQTT_V5) {
        head[0] = first;
        rec->value[0] = sl_slice_of(head, 1);
        rec->value[1] = sl_slice_of(wire.ptr + 1, wire.len - 1);
        return;
    }
    // Topic and packet id stand together in the packet.
    uint32_t topic_and_id = (uint32_t)(2 + pub->topic.len + (pub->qos > 0 ? 2 : 0));
    uint32_t remaining = topic_and_id + 1 + (uint32_t)pub->payload.len;
    rec->value[0] = sl_slice_of(head, sl_mqtt_publish_head(head, first, remaining));
    rec->value[1] = sl_slice_of(pub->topic.ptr - 2, topic_and_id);
    rec->value[2] = sl_slice_of(NO_PROPS, sizeof(NO_PROPS));
    rec->value[3] = pub->payload;
}

static sl_err append(sl_client *cl, sl_io *io, sl_client_item *it, const sl_mqtt_publish *pub,
                     sl_slice wire)
{
    sl_core *core = io->core;
    sl_conn *cn = it->conn;
    uint8_t head[HEAD_BYTES];
    const uint8_t packet_id[2] = {(uint8_t)(pub->packet_id >> 8), (uint8_t)pub->packet_id};
    sl_log_header headers[4] = {
        {SL_LOG_H_PUBLISHER, sl_client_id(cl)},
        {SL_LOG_H_NODE, sl_slice_str(core->service_id)},
        {SL_LOG_H_PACKET_ID, sl_slice_of(packet_id, sizeof(packet_id))},
        {SL_LOG_H_DUP, {NULL, 0}},
    };
    sl_log_record_in rec = {
        .key = pub->topic,
        .headers = headers,
        .header_count = pub->qos < 2 ? 2 : (pub->dup ? 4 : 3),
        .flags = pub->qos == 0 ? SL_LOG_VOLATILE | SL_LOG_NO_ACK : SL_LOG_DURABLE,
        .time_ms = sl_clock_wall(core->clock),
        .attr = pub->qos,
    };
    fill_value(&rec, cn, pub, wire, head);
    uint64_t token = SL_TOKEN(SL_TOKEN_ACK, (uint64_t)cn->io->index << 52 |
                                                (uint64_t)cn->slot << 28 | (it->seq & 0xFFFFFFF));
    // The ids of a session that ends with its connection need no memory beyond it.
    if (pub->qos < 2 || !cl->persistent)
        return sl_log_append(io->producer, core->t_all, SL_LOG_BY_KEY, &rec, token);
    return sl_log_append_qos2(io->producer, core->t_all, SL_LOG_BY_KEY, &rec, sl_client_id(cl),
                              pub->packet_id, token);
}

sl_actor_verdict sl_actor_on_publish(sl_client *cl, sl_io *io, sl_client_item *it,
                                     const sl_mqtt_publish *pub, sl_slice wire)
{
    if (!check_publish(cl, io, it, pub)) {
        sl_io_count(io, SL_BS_IN_QOS0 + pub->qos, 1);
        return SL_ACTOR_DONE;
    }
    if (sl_msg_trace_is_on(io->core->trace))
        sl_msg_trace_record(io->core->trace, SL_STEP_RECEIVED,
                            sl_log_partition_of(io->core->t_all, pub->topic), it->seq,
                            it->conn->slot);
    sl_err err = append(cl, io, it, pub, wire);
    if (err == SL_EAGAIN)
        return SL_ACTOR_HOLD; // the publisher waits for the log, and nobody else
    sl_io_count(io, SL_BS_IN_QOS0 + pub->qos, 1);
    if (err != SL_OK) {
        sl_io_count(io, SL_BS_DROP_NOT_STORED, 1);
        answer(it, pub, err == SL_ENOSPC ? SL_RC_QUOTA_EXCEEDED : SL_RC_UNSPECIFIED_ERROR);
        return SL_ACTOR_DONE;
    }
    if (pub->qos == 2)
        qos2_add(cl, pub->packet_id);
    if (pub->qos > 0)
        it->seq++;
    return SL_ACTOR_DONE;
}

/* ---- PUBREL -------------------------------------------------------------------------------------
 */

typedef struct release_op {
    sl_session_op base;
    sl_conn *cn; /* referenced */
    uint16_t packet_id;
} release_op;

static void send_pubcomp(sl_conn *cn, uint16_t packet_id, sl_mqtt_rc rc)
{
    uint8_t packet[5] = {SL_MQTT_PUBCOMP << 4, 2, (uint8_t)(packet_id >> 8), (uint8_t)packet_id,
                         (uint8_t)rc};
    bool say = rc != SL_RC_SUCCESS && cn->version >= SL_MQTT_V5;
    if (say)
        packet[1] = 3;
    sl_conn_send(cn, sl_slice_of(packet, say ? 5 : 4));
}

/* The release is durable: now PUBCOMP may leave, and the id may be used again. */
static void on_released(sl_session_op *base, sl_io *io, sl_err err)
{
    release_op *op = SL_CONTAINER(base, release_op, base);
    (void)io;
    if (err == SL_OK)
        send_pubcomp(op->cn, op->packet_id, SL_RC_SUCCESS);
    else
        sl_conn_end(op->cn, SL_RC_UNSPECIFIED_ERROR, true); // it will send PUBREL again
    sl_conn_unref(&op->cn);
    sl_free(op);
}

sl_actor_verdict sl_actor_on_pubrel(sl_client *cl, sl_io *io, sl_client_item *it,
                                    const sl_mqtt_ack *ack)
{
    bool open;
    (void)qos2_find(cl, ack->packet_id, &open);
    if (!open) {
        send_pubcomp(it->conn, ack->packet_id, SL_RC_PACKET_ID_NOT_FOUND);
        return SL_ACTOR_DONE;
    }
    if (!cl->persistent) {
        sl_actor_qos2_remove(cl, ack->packet_id);
        send_pubcomp(it->conn, ack->packet_id, SL_RC_SUCCESS);
        return SL_ACTOR_DONE;
    }
    release_op *op = sl_calloc(1, sizeof(*op));
    op->base.fn = on_released;
    op->packet_id = ack->packet_id;
    op->cn = it->conn;
    sl_conn_ref(op->cn);
    sl_err err = sl_log_qos2_release(io->producer, sl_client_id(cl), ack->packet_id,
                                     SL_TOKEN(SL_TOKEN_OP, (uintptr_t)&op->base));
    if (err == SL_OK) {
        sl_actor_qos2_remove(cl, ack->packet_id);
        return SL_ACTOR_DONE;
    }
    sl_conn_unref(&op->cn);
    sl_free(op);
    if (err == SL_EAGAIN)
        return SL_ACTOR_HOLD;
    sl_actor_end_conn(it, SL_RC_UNSPECIFIED_ERROR, true);
    return SL_ACTOR_DONE;
}
