/* SPDX-License-Identifier: Apache-2.0
 *
 * client_actor: see client_actor.h. CONNECT, takeover and the end of connections; PUBLISH is
 * on_publish.c, SUBSCRIBE and UNSUBSCRIBE on_subscribe.c.
 */
#include "session/client_actor.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "dispatch/device.h"
#include "mqtt/decode.h"
#include "mqtt/encode.h"
#include "mqtt/frame.h"
#include "session/actor_int.h"
#include "session/manager.h"
#include "session/will.h"
#include "stats/broker_stats.h"

/* cl->actor_state */
enum { STATE_NONE, STATE_WAITING, STATE_LIVE, STATE_ENDING };

/* ---- CONNECT: what needs no session (on the connection's loop) ---------------------------------
 */

static uint64_t new_session_id(sl_io *io)
{
    uint64_t us = (uint64_t)sl_clock_wall_ns(io->core->clock) / 1000;
    io->last_session_id = us > io->last_session_id ? us : io->last_session_id + 1;
    return io->last_session_id * 64 + io->index;
}

/* [MQTT-3.1.3-5..-8], 3.1: one to a limit of bytes. */
static sl_mqtt_rc check_client_id(sl_conn *cn, const sl_mqtt_connect *connect, char *made,
                                  size_t size, sl_slice *id)
{
    const sl_limits *lim = &cn->io->core->limits;
    *id = connect->client_id;
    if (connect->version == SL_MQTT_V31)
        return id->len == 0 || id->len > lim->v31_client_id_bytes ? SL_RC_CLIENT_ID_NOT_VALID
                                                                  : SL_RC_SUCCESS;
    if (id->len > 0)
        return SL_RC_SUCCESS;
    if (connect->version == SL_MQTT_V311 && !connect->clean_start)
        return SL_RC_CLIENT_ID_NOT_VALID;
    int len = snprintf(made, size, "auto%016llx%02x", (unsigned long long)cn->session_id,
                       cn->io->index & 0xFF);
    *id = sl_slice_of(made, (size_t)len);
    cn->assigned_id = true;
    return SL_RC_SUCCESS;
}

static void take_settings(sl_conn *cn, const sl_mqtt_connect *connect)
{
    const sl_limits *lim = &cn->io->core->limits;
    const sl_mqtt_props *props = &connect->props;
    cn->clean_start = connect->clean_start;
    cn->keep_alive_s = connect->keep_alive_s;
    cn->receive_max = lim->flow_control ? (uint16_t)lim->receive_max_v3 : 65535;
    if (connect->version < SL_MQTT_V5) {
        cn->persistent = !connect->clean_start;
        return;
    }
    cn->keep_alive_capped = lim->max_keep_alive_s > 0 && cn->keep_alive_s > lim->max_keep_alive_s;
    if (cn->keep_alive_capped)
        cn->keep_alive_s = (uint16_t)lim->max_keep_alive_s;
    if (lim->flow_control)
        cn->receive_max =
            (props->has & SL_PROP_RECEIVE_MAXIMUM) != 0 ? props->receive_maximum : 65535;
    if ((props->has & SL_PROP_MAXIMUM_PACKET_SIZE) != 0)
        cn->max_packet_out = props->maximum_packet_size;
    cn->has_expiry = true;
    cn->expiry_s = (props->has & SL_PROP_SESSION_EXPIRY) != 0 ? props->session_expiry : 0;
    cn->expiry_capped = cn->expiry_s > lim->max_expiry_s;
    if (cn->expiry_capped)
        cn->expiry_s = lim->max_expiry_s;
    // Clean start 0 without an expiry: what comes while it is connected goes through the inbox, and
    // ends with it [MQTT-3.1.2-23]; or it is kept like a session of version 3.
    if (cn->expiry_s == 0 && !cn->clean_start && lim->v5_clean_start_0_keeps)
        cn->has_expiry = false;
    cn->persistent = cn->expiry_s > 0 || !cn->clean_start;
}

sl_mqtt_rc sl_client_actor_check_connect(sl_conn *cn, const sl_mqtt_connect *connect)
{
    sl_core *core = cn->io->core;
    if (atomic_load(&core->draining))
        return SL_RC_SERVER_SHUTTING_DOWN;
    if ((connect->props.has & SL_PROP_AUTH_METHOD) != 0)
        return SL_RC_BAD_AUTH_METHOD; // no enhanced authentication is configured [MQTT-4.12.0-1]
    cn->session_id = new_session_id(cn->io);
    char made[32];
    sl_slice id;
    sl_mqtt_rc rc = check_client_id(cn, connect, made, sizeof(made), &id);
    if (rc != SL_RC_SUCCESS)
        return rc;
    take_settings(cn, connect);
    if (connect->has_will) {
        rc = sl_will_check(connect, &core->limits);
        if (rc != SL_RC_SUCCESS)
            return rc;
        cn->will = sl_will_new(&connect->will);
    }
    if (sl_registry_get(core->registry, id, &cn->cl) != SL_OK)
        return SL_RC_QUOTA_EXCEEDED;
    return SL_RC_SUCCESS;
}

static void encode_connack(const sl_conn *cn, const sl_mqtt_packet *pkt, sl_buf *buf)
{
    sl_err err = sl_mqtt_encode(pkt, (sl_mqtt_version)cn->version, buf);
    SL_ASSERT(err == SL_OK);
}

/* Properties that repeat the client's own value or the standard's default. */
static void drop_known_props(const sl_conn *cn, sl_mqtt_props *props)
{
    props->has &= ~SL_PROP_SUBSCRIPTION_ID_AVAILABLE;
    if (!cn->expiry_capped)
        props->has &= ~SL_PROP_SESSION_EXPIRY;
    if (!cn->keep_alive_capped)
        props->has &= ~SL_PROP_SERVER_KEEP_ALIVE;
}

void sl_client_actor_write_connack(sl_conn *cn, const sl_conn_accept_info *info)
{
    const sl_limits *lim = &cn->io->core->limits;
    sl_mqtt_packet pkt = {.type = SL_MQTT_CONNACK};
    // 3.1 knows no session present: the byte is reserved there
    pkt.connack.session_present = info->session_present && cn->version >= SL_MQTT_V311;
    if (cn->version >= SL_MQTT_V5) {
        sl_mqtt_props *props = &pkt.connack.props;
        props->has = SL_PROP_SESSION_EXPIRY | SL_PROP_RECEIVE_MAXIMUM | SL_PROP_RETAIN_AVAILABLE |
                     SL_PROP_MAXIMUM_PACKET_SIZE | SL_PROP_SERVER_KEEP_ALIVE |
                     SL_PROP_SUBSCRIPTION_ID_AVAILABLE | SL_PROP_SHARED_AVAILABLE;
        props->session_expiry = cn->expiry_s;
        props->receive_maximum = (uint16_t)lim->max_in_flight;
        props->maximum_packet_size = lim->max_packet_bytes;
        props->server_keep_alive = cn->keep_alive_s;
        props->subscription_id_available = 1;
        if (cn->assigned_id) {
            props->has |= SL_PROP_ASSIGNED_CLIENT_ID;
            props->assigned_client_id = sl_client_id(cn->cl);
        }
    }
    sl_buf buf;
    sl_buf_init(&buf, 1024);
    encode_connack(cn, &pkt, &buf);
    sl_slice bytes = sl_buf_peek(&buf);
    if (bytes.len > cn->max_packet_out) { // then without what the client knows already
        drop_known_props(cn, &pkt.connack.props);
        sl_buf_clear(&buf);
        encode_connack(cn, &pkt, &buf);
        bytes = sl_buf_peek(&buf);
    }
    // A peer that cannot take our CONNACK cannot be served [MQTT-3.1.2-24].
    if (bytes.len > cn->max_packet_out)
        sl_conn_end(cn, SL_RC_PACKET_TOO_LARGE, false);
    else
        sl_conn_put(cn, bytes.ptr, bytes.len);
    sl_buf_fini(&buf);
}

/* ---- items ------------------------------------------------------------------------------------
 */

void sl_client_actor_post(sl_io *io, sl_client *cl, sl_client_item *it)
{
    sl_client_ref(cl);
    sl_actor_post(&cl->actor, &io->runner, &it->item, false);
    sl_client_unref(&cl);
}

sl_client_item *sl_client_item_new(uint32_t kind, sl_conn *cn)
{
    sl_client_item *it = sl_calloc(1, sizeof(*it));
    it->item.kind = kind;
    if (cn != NULL) {
        it->conn = cn;
        sl_conn_ref(cn);
    }
    return it;
}

static void free_item(sl_client_item *it)
{
    sl_rbuf_unref(&it->body);
    sl_conn_unref(&it->conn);
    sl_free(it->answer.open_qos2);
    sl_free(it);
}

void sl_client_actor_qos2_failed(sl_conn *cn, uint16_t packet_id)
{
    sl_client_item *it = sl_client_item_new(SL_ITEM_QOS2_FAILED, cn);
    it->packet_id = packet_id;
    sl_client_actor_post(cn->io, cn->cl, it);
}

void sl_client_actor_clear(sl_io *io, sl_client *cl, uint64_t session_id)
{
    sl_client_item *it = sl_client_item_new(SL_ITEM_CLEAR, NULL);
    it->session_id = session_id;
    sl_client_actor_post(io, cl, it);
}

void sl_client_actor_answer(sl_io *io, sl_client *cl, sl_session_answer *answer)
{
    sl_client_item *it = sl_client_item_new(SL_ITEM_RESPONSE, NULL);
    it->answer = *answer;
    answer->open_qos2 = NULL;
    sl_client_actor_post(io, cl, it);
}

/* ---- CONNECT and takeover ---------------------------------------------------------------------
 */

/* The session event could not be stored: the answer comes from here. */
static void on_request_stored(sl_session_op *base, sl_io *io, sl_err err)
{
    sl_request_op *op = SL_CONTAINER(base, sl_request_op, base);
    if (err != SL_OK) {
        sl_session_answer answer = {.rc = SL_RC_SERVER_UNAVAILABLE, .session_id = op->session_id};
        sl_client_actor_answer(io, op->cl, &answer);
    }
    sl_client_unref(&op->cl);
    sl_free(op);
}

/* Sends the request of the connection in cl->conn to the session thread. */
static sl_err request_session(sl_client *cl, sl_io *io)
{
    const sl_conn *cn = cl->conn;
    sl_session_request rq = {
        .kind = SL_SESSION_CONNECT,
        .client_id = sl_client_id(cl),
        .session_id = cn->session_id,
        .loop = cn->io->index,
        .persistent = cn->persistent,
        .clean_start = cn->clean_start,
        .has_expiry = cn->has_expiry,
        .expiry_s = cn->expiry_s,
        .keep_alive_s = cn->keep_alive_s,
        .mqtt_version = cn->version,
        .peer = cn->peer,
        .will = cn->will,
    };
    sl_request_op *op = sl_calloc(1, sizeof(*op));
    op->base.fn = on_request_stored;
    op->cl = cl;
    op->session_id = cn->session_id;
    sl_client_ref(cl);
    sl_err err = sl_manager_request(io, &rq, &op->base);
    if (err != SL_OK) {
        sl_client_unref(&op->cl);
        sl_free(op);
    }
    return err;
}

static void forget_conn(sl_conn **conn)
{
    sl_conn_unref(conn);
}

static sl_actor_verdict start_connect(sl_client *cl, sl_io *io)
{
    sl_err err = request_session(cl, io);
    if (err == SL_EAGAIN)
        return SL_ACTOR_HOLD;
    if (err != SL_OK) {
        sl_conn_refuse(cl->conn, SL_RC_SERVER_UNAVAILABLE);
        forget_conn(&cl->conn);
        return SL_ACTOR_DONE;
    }
    sl_will_free(&cl->conn->will); // the session thread has it
    cl->actor_state = STATE_WAITING;
    cl->session_id = cl->conn->session_id;
    return SL_ACTOR_DONE;
}

/* Of the connections that wait for the end of the one before, the newest counts. */
static void wait_behind(sl_client *cl, sl_client_item *it)
{
    if (cl->next_conn != NULL) {
        sl_conn_end(cl->next_conn, SL_RC_SESSION_TAKEN_OVER, true);
        forget_conn(&cl->next_conn);
    }
    cl->next_conn = it->conn;
    it->conn = NULL;
}

static sl_actor_verdict on_connect(sl_client *cl, sl_io *io, sl_client_item *it)
{
    if (cl->actor_state == STATE_ENDING) {
        wait_behind(cl, it);
        return SL_ACTOR_DONE;
    }
    if (cl->conn == NULL) {
        cl->conn = it->conn;
        it->conn = NULL;
    } else if (it->conn != NULL) {
        // Takeover [MQTT-3.1.4-3]: the old connection ends first.
        wait_behind(cl, it);
        sl_io_count(io, SL_BS_TAKEOVERS, 1);
        sl_conn_end(cl->conn, SL_RC_SESSION_TAKEN_OVER, true);
        return SL_ACTOR_DONE;
    }
    // Held at this point, the item comes again without its connection.
    return start_connect(cl, io);
}

/* ---- the answer -------------------------------------------------------------------------------
 */

static void go_live(sl_client *cl, sl_io *io, const sl_session_answer *answer)
{
    sl_conn *cn = cl->conn;
    sl_core *core = io->core;
    cl->actor_state = STATE_LIVE;
    cl->persistent = answer->persistent;
    cl->generation = answer->generation;
    if (!answer->session_present)
        sl_actor_drop_subs(cl, io);
    sl_free(cl->qos2);
    cl->qos2 = answer->open_qos2;
    cl->qos2_count = cl->qos2_cap = answer->open_qos2_count;
    sl_route route = {.slot = cn->slot,
                      .gen = cn->gen,
                      .loop = (uint8_t)cn->io->index,
                      .connected = true,
                      .persistent = answer->persistent};
    atomic_store(&cl->slow, false);
    sl_client_set_route(cl, route);
    sl_conn_accept_info info = {.session_present = answer->session_present,
                                .persistent = answer->persistent};
    sl_conn_accept(cn, &info);
    if (answer->persistent) {
        sl_device_attachment at = {.session_id = cn->session_id,
                                   .generation = answer->generation,
                                   .route = route,
                                   .receive_max = cn->receive_max,
                                   .dup_old = answer->dup_old};
        sl_device_attach(core, cl, &at);
    }
    sl_io_count(io, SL_BS_CONNECTED, 1);
}

static sl_actor_verdict on_response(sl_client *cl, sl_io *io, sl_client_item *it)
{
    sl_session_answer *answer = &it->answer;
    if (cl->actor_state != STATE_WAITING || answer->session_id != cl->session_id)
        return SL_ACTOR_DONE; // of a request that has been given up
    if (!answer->success) {
        cl->actor_state = STATE_NONE;
        sl_conn_refuse(cl->conn, answer->rc);
        forget_conn(&cl->conn);
        sl_actor_connect_next(cl, io);
        return SL_ACTOR_DONE;
    }
    go_live(cl, io, answer);
    answer->open_qos2 = NULL;
    return SL_ACTOR_DONE;
}

/* ---- the end ----------------------------------------------------------------------------------
 */

/* A connection that waited for the old one has its turn. */
void sl_actor_connect_next(sl_client *cl, sl_io *io)
{
    if (cl->next_conn == NULL)
        return;
    sl_client_item *it = sl_client_item_new(SL_ITEM_CONNECT, cl->next_conn);
    forget_conn(&cl->next_conn);
    sl_client_actor_post(io, cl, it);
}

/* Why the connection ended, as the will's rules see it: what the client said counts although it
 * closed at once, and a CONNECT that we refused leaves no will. */
static uint8_t end_reason(const sl_client *cl, const sl_conn *cn)
{
    if (cl->actor_state == STATE_WAITING && cn->end_reason == SL_RC_SERVER_UNAVAILABLE)
        return SL_RC_SUCCESS;
    return cn->actor_done ? cn->actor_reason : cn->end_reason;
}

static void on_end_stored(sl_session_op *base, sl_io *io, sl_err err)
{
    sl_request_op *op = SL_CONTAINER(base, sl_request_op, base);
    if (err != SL_OK)
        sl_error(SL_C_SESSION, "DISCONNECT-NOT-STORED", SL_B("client", sl_client_id(op->cl)),
                 SL_E(err)); // repaired by the next CONNECT or start
    sl_client_actor_post(io, op->cl, sl_client_item_new(SL_ITEM_ENDED, NULL));
    sl_client_unref(&op->cl);
    sl_free(op);
}

static sl_actor_verdict on_ended(sl_client *cl, sl_io *io)
{
    cl->actor_state = STATE_NONE;
    sl_actor_connect_next(cl, io);
    return SL_ACTOR_DONE;
}

/* Tells the session thread, then lets the connection go. The next CONNECT may be requested by
 * another loop, through another producer: it waits until this event is in the log, or it could
 * come to stand before it. */
static sl_actor_verdict finish_end(sl_client *cl, sl_io *io)
{
    sl_conn *cn = cl->conn;
    // Gone before the answer came: the session thread has, or will have, the session that was asked
    // for, and the answer is for nobody. Both events are of one partition and stay in order.
    bool waiting = cl->actor_state == STATE_WAITING;
    bool persistent =
        (waiting ? cn->persistent : cl->persistent) && (!cn->has_expiry || cn->expiry_s > 0);
    sl_session_request rq = {.kind = SL_SESSION_DISCONNECT,
                             .client_id = sl_client_id(cl),
                             .session_id = cn->session_id,
                             .persistent = persistent,
                             .has_expiry = cn->has_expiry,
                             .expiry_s = cn->expiry_s,
                             .reason = end_reason(cl, cn)};
    sl_request_op *op = sl_calloc(1, sizeof(*op));
    op->base.fn = on_end_stored;
    op->cl = cl;
    sl_client_ref(cl);
    sl_err err = sl_manager_request(io, &rq, &op->base);
    if (err == SL_EAGAIN) {
        sl_client_unref(&op->cl);
        sl_free(op);
        return SL_ACTOR_HOLD;
    }
    if (cl->actor_state == STATE_LIVE) {
        sl_io_count(io, SL_BS_CONNECTED, -1);
        if (cl->persistent)
            sl_device_detach(io->core, cl, cn->session_id);
    }
    sl_client_set_route(cl, (sl_route){.persistent = persistent});
    if (!persistent || (waiting && cn->clean_start))
        sl_actor_drop_subs(cl, io);
    sl_free(cl->qos2);
    cl->qos2 = NULL;
    cl->qos2_count = cl->qos2_cap = 0;
    cl->persistent = persistent;
    cl->actor_state = STATE_ENDING;
    forget_conn(&cl->conn);
    if (err != SL_OK)
        on_end_stored(&op->base, io, err);
    return SL_ACTOR_DONE;
}

static sl_actor_verdict on_end(sl_client *cl, sl_io *io, sl_client_item *it)
{
    if (it->conn == cl->next_conn) {
        forget_conn(&cl->next_conn);
        return SL_ACTOR_DONE;
    }
    if (it->conn != cl->conn)
        return SL_ACTOR_DONE;
    return finish_end(cl, io);
}

/* The session has expired, or its connection is gone and nobody said so. A connection that came
 * meanwhile keeps it. */
static sl_actor_verdict on_clear(sl_client *cl, sl_io *io, const sl_client_item *it)
{
    if (cl->conn != NULL || cl->next_conn != NULL)
        return SL_ACTOR_DONE;
    sl_session_request rq = {
        .kind = SL_SESSION_CLEAR, .client_id = sl_client_id(cl), .session_id = it->session_id};
    sl_err err = sl_manager_request(io, &rq, NULL);
    if (err == SL_EAGAIN)
        return SL_ACTOR_HOLD;
    if (err != SL_OK || it->session_id != 0)
        return SL_ACTOR_DONE; // the next look tries again, or drops what has ended by then
    sl_actor_drop_subs(cl, io);
    sl_client_set_route(cl, (sl_route){0});
    cl->persistent = false;
    return SL_ACTOR_DONE;
}

/* ---- packets ----------------------------------------------------------------------------------
 */

/* No further packet of this connection counts. */
void sl_actor_end_conn(sl_client_item *it, sl_mqtt_rc rc, bool notify)
{
    it->conn->actor_done = true;
    it->conn->actor_reason = (uint8_t)rc;
    sl_conn_end(it->conn, rc, notify);
}

static void on_disconnect(sl_client_item *it, const sl_mqtt_disconnect *dc)
{
    sl_conn *cn = it->conn;
    if ((dc->props.has & SL_PROP_SESSION_EXPIRY) != 0) {
        if (cn->expiry_s == 0 && dc->props.session_expiry != 0) { // [MQTT-3.14.2.2.2]
            sl_actor_end_conn(it, SL_RC_PROTOCOL_ERROR, true);
            return;
        }
        uint32_t cap = cn->io->core->limits.max_expiry_s;
        cn->expiry_s = dc->props.session_expiry < cap ? dc->props.session_expiry : cap;
    }
    bool will = dc->reason == SL_RC_DISCONNECT_WITH_WILL;
    sl_actor_end_conn(it, will ? SL_RC_DISCONNECT_WITH_WILL : SL_RC_SUCCESS, false);
}

static sl_actor_verdict on_packet(sl_client *cl, sl_io *io, sl_client_item *it,
                                  const sl_mqtt_packet *pkt, sl_slice wire)
{
    switch (pkt->type) {
    case SL_MQTT_PUBLISH:
        return sl_actor_on_publish(cl, io, it, &pkt->publish, wire);
    case SL_MQTT_PUBREL:
        return sl_actor_on_pubrel(cl, io, it, &pkt->ack);
    case SL_MQTT_SUBSCRIBE:
        return sl_actor_on_subscribe(cl, io, it, &pkt->subscribe);
    case SL_MQTT_UNSUBSCRIBE:
        return sl_actor_on_unsubscribe(cl, io, it, &pkt->subscribe);
    case SL_MQTT_DISCONNECT:
        on_disconnect(it, &pkt->disconnect);
        return SL_ACTOR_DONE;
    default: // a second CONNECT [MQTT-3.1.0-2], AUTH without a method, server-only packets
        sl_io_count(io, SL_BS_MALFORMED, 1);
        sl_actor_end_conn(it, SL_RC_PROTOCOL_ERROR, true);
        return SL_ACTOR_DONE;
    }
}

static bool passes_actor(uint8_t first)
{
    sl_mqtt_type type = (sl_mqtt_type)(first >> 4);
    return type != SL_MQTT_PUBACK && type != SL_MQTT_PUBREC && type != SL_MQTT_PUBCOMP &&
           type != SL_MQTT_PINGREQ;
}

static void refuse_packet(sl_client *cl, sl_io *io, sl_client_item *it, sl_mqtt_rc rc,
                          const char *why)
{
    static sl_log_limit limit;
    uint32_t held = 0;
    sl_io_count(io, SL_BS_MALFORMED, 1);
    if (sl_log_limit_pass(&limit, 10, 10000, &held))
        sl_warn(SL_C_SESSION, "PACKET-REFUSED", SL_B("client", sl_client_id(cl)),
                SL_U("reason", rc), SL_S("why", why), SL_U("suppressed", held));
    sl_actor_end_conn(it, rc, true);
}

static sl_actor_verdict on_packets(sl_client *cl, sl_io *io, sl_client_item *it)
{
    sl_conn *cn = it->conn;
    while (it->off < it->end && !cn->actor_done && cn == cl->conn) {
        sl_mqtt_frame fr;
        sl_mqtt_rc rc = SL_RC_MALFORMED_PACKET;
        const char *why = NULL;
        sl_slice rest = sl_slice_of(it->body->data + it->off, it->end - it->off);
        sl_err err = sl_mqtt_frame_read(rest, UINT32_MAX, &fr, &rc, &why);
        SL_ASSERT(err == SL_OK); // the loop framed it
        sl_slice wire = sl_slice_of(rest.ptr, fr.header_size + fr.remaining);
        if (passes_actor(fr.first)) {
            sl_mqtt_packet pkt;
            err = sl_mqtt_decode(wire, (sl_mqtt_version)cn->version, SL_MQTT_SERVER_READS, &pkt,
                                 &rc, &why);
            if (err != SL_OK) {
                refuse_packet(cl, io, it, rc, why);
                break;
            }
            if (on_packet(cl, io, it, &pkt, wire) == SL_ACTOR_HOLD)
                return SL_ACTOR_HOLD;
        }
        it->off += (uint32_t)wire.len;
    }
    if (it->seq != it->seq_end)
        sl_conn_cancel(cn, it->seq, it->seq_end); // packets behind the end of the connection
    sl_conn_item_done(cn);
    return SL_ACTOR_DONE;
}

static sl_actor_verdict handle_item(sl_client *cl, sl_io *io, sl_client_item *it)
{
    if (cl->subs_dirty && cl->sub_op == NULL && sl_actor_store_subs(cl, io) == SL_EAGAIN)
        return SL_ACTOR_HOLD;
    switch (it->item.kind) {
    case SL_ITEM_CONNECT:
        return on_connect(cl, io, it);
    case SL_ITEM_PACKETS:
        return on_packets(cl, io, it);
    case SL_ITEM_END:
        return on_end(cl, io, it);
    case SL_ITEM_ENDED:
        return on_ended(cl, io);
    case SL_ITEM_RESPONSE:
        return on_response(cl, io, it);
    case SL_ITEM_STORE_SUBS:
        return SL_ACTOR_DONE; // done above
    case SL_ITEM_SUBS_STORED:
        return sl_actor_on_subs_stored(cl, io, it->err);
    case SL_ITEM_QOS2_FAILED:
        sl_actor_qos2_remove(cl, it->packet_id);
        return SL_ACTOR_DONE;
    case SL_ITEM_CLEAR:
        return on_clear(cl, io, it);
    default:
        SL_ASSERT(!"a kind of item");
        return SL_ACTOR_DONE;
    }
}

sl_actor_verdict sl_client_actor_handle(sl_actor *actor, sl_runner *runner, sl_actor_item *item)
{
    sl_client *cl = SL_CONTAINER(actor, sl_client, actor);
    sl_client_item *it = SL_CONTAINER(item, sl_client_item, item);
    sl_io *io = runner->owner;
    SL_CHECK(cl, SL_CLIENT_MAGIC);
    sl_actor_verdict verdict = handle_item(cl, io, it);
    if (verdict == SL_ACTOR_HOLD)
        sl_io_hold(io, cl);
    else
        free_item(it);
    return verdict;
}
