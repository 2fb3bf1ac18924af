/* SPDX-License-Identifier: Apache-2.0
 *
 * client_in: bytes from the stream to packets, and what each packet means. A packet that lies whole
 * in a read buffer is used there; one that comes in pieces is put together in a buffer of its size.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "mqtt/client_int.h"
#include "mqtt/decode.h"
#include "mqtt/frame.h"

void sl_client_drop_input(sl_mqtt_client *client)
{
    sl_rbuf_unref(&client->part);
    sl_rbuf_unref(&client->rest);
    client->head_len = 0;
    client->rest_len = 0;
    client->paused = false;
}

static bool is_reading(const sl_mqtt_client *client)
{
    return client->state == SL_CLIENT_HANDSHAKE || client->state == SL_CLIENT_UP;
}

static void take_limits(sl_mqtt_client *client, const sl_mqtt_props *props)
{
    client->server_max_packet = (props->has & SL_PROP_MAXIMUM_PACKET_SIZE) != 0
                                    ? props->maximum_packet_size
                                    : SL_MQTT_MAX_REMAINING + 5;
    client->server_receive_maximum =
        (props->has & SL_PROP_RECEIVE_MAXIMUM) != 0 ? props->receive_maximum : UINT16_MAX;
    client->server_max_qos = (props->has & SL_PROP_MAXIMUM_QOS) != 0 ? props->maximum_qos : 2;
    client->server_retain =
        (props->has & SL_PROP_RETAIN_AVAILABLE) == 0 || props->retain_available != 0;
    uint32_t keep_alive_s = (props->has & SL_PROP_SERVER_KEEP_ALIVE) != 0
                                ? props->server_keep_alive
                                : client->opt.keep_alive_s;
    client->keep_alive = (sl_dur_ms)keep_alive_s * 1000;
}

static void on_connack(sl_mqtt_client *client, const sl_mqtt_connack *ca)
{
    if (client->state != SL_CLIENT_HANDSHAKE) {
        sl_client_fail(client, SL_EPROTOCOL, SL_RC_PROTOCOL_ERROR, "second CONNACK (3.2)");
        return;
    }
    if (ca->reason != 0) {
        sl_client_lose(client, SL_EDENIED, ca->reason, "the server refused the connection");
        return;
    }
    if (ca->session_present && client->opt.clean_start) {
        sl_client_fail(client, SL_EPROTOCOL, SL_RC_PROTOCOL_ERROR,
                       "session present after a clean start [MQTT-3.2.2-2]");
        return;
    }
    take_limits(client, &ca->props);
    if ((ca->props.has & SL_PROP_ASSIGNED_CLIENT_ID) != 0 && client->opt.client_id.len == 0) {
        sl_slice id = ca->props.assigned_client_id;
        sl_free((void *)(uintptr_t)client->opt.client_id.ptr);
        client->opt.client_id = sl_slice_of(sl_strndup(id.ptr, id.len), id.len);
    }
    if (!ca->session_present)
        sl_client_forget_unreleased(client);
    sl_client_on_up(client);
    uint32_t generation = client->live_generation;
    sl_client_resume_outgoing(client, ca->session_present);
    sl_mqtt_client_connected cd = {
        .session_present = ca->session_present, .generation = generation, .props = &ca->props};
    if (client->ev.on_connack != NULL && client->live_generation == generation)
        client->ev.on_connack(client->arg, &cd);
}

static void on_publish(sl_mqtt_client *client, const sl_mqtt_publish *pb, sl_rbuf *rb)
{
    if ((pb->props.has & SL_PROP_TOPIC_ALIAS) != 0) {
        sl_client_fail(client, SL_EPROTOCOL, SL_RC_TOPIC_ALIAS_INVALID,
                       "topic alias although we allow none [MQTT-3.1.2-27]");
        return;
    }
    sl_mqtt_token token;
    switch (sl_client_arrive(client, pb, &token)) {
    case SL_ARRIVAL_NEW:
        client->stats.received++;
        client->ev.on_publish(client->arg, pb, token, rb, pb->dup);
        return;
    case SL_ARRIVAL_REPEATED:
        return;
    case SL_ARRIVAL_TOO_MANY:
        sl_client_fail(client, SL_EPROTOCOL, SL_RC_RECEIVE_MAXIMUM_EXCEEDED,
                       "more PUBLISHes than the receive maximum [MQTT-3.3.4-9]");
        return;
    }
}

static void on_disconnect(sl_mqtt_client *client, const sl_mqtt_disconnect *dc)
{
    if (dc->reason == SL_RC_SESSION_TAKEN_OVER)
        client->stats.takeovers++;
    sl_client_lose(client, SL_ECLOSED, dc->reason, "the server said DISCONNECT");
}

static void on_packet(sl_mqtt_client *client, const sl_mqtt_packet *pkt, sl_rbuf *rb)
{
    if (client->state == SL_CLIENT_HANDSHAKE && pkt->type != SL_MQTT_CONNACK) {
        bool refusal = pkt->type == SL_MQTT_DISCONNECT;
        sl_client_lose(client, SL_EPROTOCOL, refusal ? pkt->disconnect.reason : 0,
                       "a packet before CONNACK [MQTT-3.2.0-1]");
        return;
    }
    switch (pkt->type) {
    case SL_MQTT_CONNACK:
        on_connack(client, &pkt->connack);
        return;
    case SL_MQTT_PUBLISH:
        on_publish(client, &pkt->publish, rb);
        return;
    case SL_MQTT_PUBREL:
        sl_client_on_pubrel(client, pkt->ack.packet_id);
        return;
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
    case SL_MQTT_PUBCOMP:
        sl_client_on_out_ack(client, pkt->type, &pkt->ack);
        return;
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        sl_client_on_suback(client, pkt->type == SL_MQTT_UNSUBACK, &pkt->suback);
        return;
    case SL_MQTT_PINGRESP:
        client->ping_at = 0;
        return;
    case SL_MQTT_DISCONNECT:
        on_disconnect(client, &pkt->disconnect);
        return;
    case SL_MQTT_AUTH:
        sl_client_fail(client, SL_EPROTOCOL, SL_RC_PROTOCOL_ERROR,
                       "AUTH although we named no method [MQTT-4.12.0-6]");
        return;
    case SL_MQTT_CONNECT:
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
    case SL_MQTT_PINGREQ:
        SL_ASSERT(false); // decode refuses what only clients send
    }
}

/* On 3.1.1 the server knows no window of ours: when the queue is full, nothing more is read until
 * the owner acknowledged something. */
static bool must_wait(const sl_mqtt_client *client, uint8_t first)
{
    return !sl_client_is_v5(client) && first >> 4 == SL_MQTT_PUBLISH && (first & 0x06u) != 0 &&
           sl_client_window_is_full(client);
}

/* One whole packet inside rb. False: it has to wait. */
static bool take_packet(sl_mqtt_client *client, sl_slice bytes, sl_rbuf *rb)
{
    if (must_wait(client, bytes.ptr[0])) {
        client->paused = true;
        client->stats.read_stops++;
        sl_stream_read_stop(client->sm);
        return false;
    }
    sl_mqtt_packet pkt;
    sl_mqtt_rc rc;
    const char *why;
    sl_err err = sl_mqtt_decode(bytes, client->opt.version, SL_MQTT_CLIENT_READS, &pkt, &rc, &why);
    if (err != SL_OK)
        sl_client_fail(client, err, rc, why);
    else
        on_packet(client, &pkt, rb);
    return true;
}

/* A buffer for a packet whose header is known, with the first len bytes of it. */
static void begin_part(sl_mqtt_client *client, const sl_mqtt_frame *frame, const uint8_t *ptr,
                       uint32_t len)
{
    client->part = sl_rbuf_new((size_t)frame->header_size + frame->remaining);
    memcpy(client->part->data, ptr, len);
    client->part->len = len;
}

static bool part_is_whole(const sl_mqtt_client *client)
{
    return client->part != NULL && client->part->len == client->part->cap;
}

/* Adds a byte to a header in pieces. */
static void grow_head(sl_mqtt_client *client, uint8_t byte)
{
    sl_mqtt_frame frame;
    sl_mqtt_rc rc;
    const char *why;
    client->head[client->head_len++] = byte;
    sl_err err = sl_mqtt_frame_read(sl_slice_of(client->head, client->head_len),
                                    client->opt.max_packet_bytes, &frame, &rc, &why);
    if (err != SL_OK && err != SL_EINCOMPLETE) {
        sl_client_fail(client, err, rc, why);
    } else if (frame.header_size != 0) {
        begin_part(client, &frame, client->head, client->head_len);
        client->head_len = 0;
    }
}

/* A packet that begins at ptr, outside of pieces. Returns the bytes used; 0: it has to wait. */
static uint32_t take_front(sl_mqtt_client *client, sl_rbuf *rb, const uint8_t *ptr, uint32_t len)
{
    sl_mqtt_frame frame;
    sl_mqtt_rc rc;
    const char *why;
    sl_err err =
        sl_mqtt_frame_read(sl_slice_of(ptr, len), client->opt.max_packet_bytes, &frame, &rc, &why);
    if (err == SL_OK) {
        uint32_t size = frame.header_size + frame.remaining;
        return take_packet(client, sl_slice_of(ptr, size), rb) ? size : 0;
    }
    if (err != SL_EINCOMPLETE) {
        sl_client_fail(client, err, rc, why);
    } else if (frame.header_size != 0) {
        begin_part(client, &frame, ptr, len);
    } else {
        memcpy(client->head, ptr, len); // less than a header, so it fits
        client->head_len = len;
    }
    return len;
}

/* The packet in pieces is whole. False: it has to wait. */
static bool take_part(sl_mqtt_client *client)
{
    // The handler may end the connection, which drops the input: hold it until the end.
    sl_rbuf *rb = client->part;
    if (!take_packet(client, sl_slice_of(rb->data, rb->len), sl_rbuf_ref(rb))) {
        sl_rbuf_unref(&rb);
        return false;
    }
    if (client->part == rb)
        sl_rbuf_unref(&client->part);
    sl_rbuf_unref(&rb);
    return true;
}

static uint32_t fill_part(sl_mqtt_client *client, const uint8_t *ptr, uint32_t len)
{
    uint32_t room = client->part->cap - client->part->len;
    uint32_t size = len < room ? len : room;
    memcpy(client->part->data + client->part->len, ptr, size);
    client->part->len += size;
    return size;
}

void sl_client_feed(sl_mqtt_client *client, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    while (is_reading(client) && !client->paused && (len > 0 || part_is_whole(client))) {
        uint32_t used = 0;
        if (part_is_whole(client)) {
            (void)take_part(client);
        } else if (client->part != NULL) {
            used = fill_part(client, rb->data + off, len);
        } else if (client->head_len > 0) {
            grow_head(client, rb->data[off]);
            used = 1;
        } else {
            used = take_front(client, rb, rb->data + off, len);
        }
        off += used;
        len -= used;
    }
    if (client->paused && is_reading(client) && len > 0) {
        client->rest = sl_rbuf_ref(rb);
        client->rest_off = off;
        client->rest_len = len;
    }
}

void sl_client_resume(sl_mqtt_client *client)
{
    if (!client->paused || !is_reading(client) || sl_client_window_is_full(client))
        return;
    client->paused = false;
    client->last_received = sl_loop_now(client->lp); // it was we who did not listen
    sl_rbuf *rb = client->rest;
    uint32_t len = client->rest_len;
    client->rest = NULL;
    client->rest_len = 0;
    sl_client_feed(client, rb, client->rest_off, len);
    sl_rbuf_unref(&rb);
    if (!client->paused && is_reading(client))
        sl_stream_read_start(client->sm);
}
