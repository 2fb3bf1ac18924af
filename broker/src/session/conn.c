/* SPDX-License-Identifier: Apache-2.0
 *
 * conn: life of a connection, framing of what arrives, acknowledgements in receive order,
 * time-outs. What goes out is conn_out.c. Runs on the connection's loop; the functions that other
 * loops may call send themselves a letter when they are not there.
 */
#include "session/conn.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "mqtt/decode.h"
#include "mqtt/frame.h"
#include "session/client_actor.h"
#include "session/will.h"
#include "stats/broker_stats.h"
#include "stats/msg_trace.h"

#define MAX_ITEMS        8    /* ingress items under way before the socket is not read */
#define LINGER_MS        2000 /* how long a peer may take to read our DISCONNECT */
#define REASON_CANCELLED 0xFF /* a slot whose packet was not handled */

static void update_reading(sl_conn *cn);
static void take_bytes(sl_conn *cn, sl_rbuf *rb, uint32_t off, uint32_t len);
static void begin_close(sl_conn *cn);

/* ---- life ----------------------------------------------------------------------------------- */

void sl_conn_ref(sl_conn *cn)
{
    atomic_fetch_add_explicit(&cn->refs, 1, memory_order_relaxed);
}

static void free_conn(sl_conn *cn)
{
    sl_io *io = cn->io;
    SL_ASSERT(cn->ring_head == cn->ring_tail && cn->stream_closed);
    sl_list_remove(&cn->dirty_node);
    sl_list_remove(&cn->wheel_node);
    sl_conn_drop_out(cn);
    sl_rbuf_unref(&cn->part);
    sl_free(cn->ring);
    sl_free(cn->sent);
    sl_will_free(&cn->will);
    sl_client_unref(&cn->cl);
    cn->magic = 0;
    sl_io_conn_gone(io, cn);
    sl_free(cn);
}

static void free_conn_call(void *arg)
{
    free_conn(arg);
}

void sl_conn_unref(sl_conn **conn)
{
    sl_conn *cn = *conn;
    if (cn == NULL)
        return;
    *conn = NULL;
    if (atomic_fetch_sub_explicit(&cn->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (sl_loop_is_current(cn->io->lp))
        free_conn(cn);
    else
        sl_loop_call(cn->io->lp, free_conn_call, cn);
}

/* The loop's own reference goes when nothing can come for the slot any more. */
static void maybe_let_go(sl_conn *cn)
{
    if (!cn->stream_closed || cn->ring_head != cn->ring_tail || cn->closed_counted)
        return;
    cn->closed_counted = true;
    sl_conn_unref(&cn);
}

static void on_closed(void *arg)
{
    sl_conn *cn = arg;
    cn->sm = NULL;
    cn->stream_closed = true;
    maybe_let_go(cn);
}

static void on_data(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    sl_conn *cn = arg;
    sl_io_count(cn->io, SL_BS_IN_BYTES, len);
    if (cn->discard_input)
        return;
    take_bytes(cn, rb, off, len);
}

static void post_item(sl_conn *cn, uint32_t kind, sl_rbuf *rb, uint32_t off, uint32_t end,
                      uint32_t seq)
{
    sl_client_item *it = sl_calloc(1, sizeof(*it));
    it->item.kind = kind;
    it->conn = cn;
    sl_conn_ref(cn);
    if (rb != NULL) {
        it->body = sl_rbuf_ref(rb);
        it->off = off;
        it->end = end;
        it->seq = seq;
        it->seq_end = cn->ring_tail;
        atomic_fetch_add_explicit(&cn->items, 1, memory_order_relaxed);
    }
    // The client lives while cn has its reference; cn lives while the item has its own.
    sl_client *cl = cn->cl;
    sl_client_ref(cl);
    sl_actor_post(&cl->actor, &cn->io->runner, &it->item, false);
    sl_client_unref(&cl);
}

/* Tells the actor, behind all packets that came before, that this connection is over. */
static void post_end(sl_conn *cn)
{
    if (cn->end_posted || cn->cl == NULL)
        return;
    cn->end_posted = true;
    post_item(cn, SL_ITEM_END, NULL, 0, 0, 0);
}

static void on_end(void *arg, sl_err err)
{
    sl_conn *cn = arg;
    sl_trace(SL_C_SESSION, "CONN-END", SL_U("slot", cn->slot), SL_E(err));
    if (cn->state != SL_CONN_CLOSING) {
        cn->state = SL_CONN_CLOSING;
        cn->end_reason = SL_RC_UNSPECIFIED_ERROR;
        cn->discard_input = true;
        post_end(cn);
    }
    begin_close(cn);
}

static void on_writable(void *arg)
{
    sl_conn *cn = arg;
    cn->write_blocked = false;
    sl_conn_flush(cn);
}

static const sl_stream_events EVENTS = {on_data, on_end, on_writable, on_closed};

void sl_conn_open(sl_io *io, sl_stream **stream)
{
    sl_conn *cn = sl_calloc(1, sizeof(*cn));
    cn->magic = SL_CONN_MAGIC;
    cn->io = io;
    cn->sm = *stream;
    *stream = NULL;
    atomic_init(&cn->refs, 1);
    sl_node_init(&cn->dirty_node);
    sl_node_init(&cn->wheel_node);
    cn->state = SL_CONN_NEW;
    cn->last_in = sl_loop_now(io->lp);
    cn->max_packet_out = UINT32_MAX;
    cn->next_packet_id = 1;
    snprintf(cn->peer, sizeof(cn->peer), "%s", sl_stream_peer(cn->sm));
    sl_io_count(io, SL_BS_ACCEPTED, 1);
    sl_stream_set_events(cn->sm, &EVENTS, cn);
    if (!sl_io_add_conn(io, cn)) {
        static sl_log_limit limit;
        uint32_t held = 0;
        if (sl_log_limit_pass(&limit, 1, 10000, &held))
            sl_warn(SL_C_SESSION, "CONN-TABLE-FULL", SL_S("peer", cn->peer),
                    SL_U("suppressed", held));
        cn->state = SL_CONN_CLOSING;
        cn->discard_input = true;
        sl_stream_close(cn->sm);
        return;
    }
    cn->deadline = cn->last_in + io->core->limits.connect_timeout;
    sl_io_watch(io, cn, cn->deadline);
    sl_stream_read_start(cn->sm);
}

/* Ends the stream now, or, when a DISCONNECT has to reach the peer, once it has. */
static void begin_close(sl_conn *cn)
{
    if (cn->sm == NULL || cn->stream_closed)
        return;
    sl_stream *sm = cn->sm;
    cn->sm = NULL;
    sl_stream_close(sm);
    sl_conn_drop_out(cn);
}

/* ---- what arrives --------------------------------------------------------------------------- */

static void update_reading(sl_conn *cn)
{
    if (cn->sm == NULL)
        return;
    bool want = cn->discard_input || cn->state == SL_CONN_NEW ||
                (cn->state == SL_CONN_CONNECTED &&
                 atomic_load_explicit(&cn->items, memory_order_relaxed) < MAX_ITEMS &&
                 cn->out_bytes < cn->io->core->limits.out_high_bytes);
    if (want == !cn->read_stopped)
        return;
    cn->read_stopped = !want;
    if (want) {
        cn->last_in = sl_loop_now(cn->io->lp);
        sl_stream_read_start(cn->sm);
    } else {
        sl_stream_read_stop(cn->sm);
    }
}

void sl_conn_reading_changed(sl_conn *cn)
{
    update_reading(cn);
}

/* Appends to the connection's partial packet, which grows to what the packet is known to need. */
static void keep_part(sl_conn *cn, const uint8_t *ptr, uint32_t len, uint32_t need)
{
    uint32_t have = cn->part != NULL ? cn->part->len : 0;
    if (cn->part == NULL || cn->part->cap < have + len) {
        // Memory follows what has arrived, at most twice of it: a length alone costs us nothing.
        uint32_t cap = (have + len) * 2 < 64 ? 64 : (have + len) * 2;
        if (need > have + len && need < cap)
            cap = need;
        sl_rbuf *bigger = sl_rbuf_new(cap);
        if (have > 0)
            memcpy(bigger->data, cn->part->data, have);
        bigger->len = have;
        sl_rbuf_unref(&cn->part);
        cn->part = bigger;
    }
    memcpy(cn->part->data + have, ptr, len);
    cn->part->len = have + len;
}

static void log_fault(sl_conn *cn, sl_mqtt_rc rc, const char *why)
{
    static sl_log_limit limit;
    uint32_t held = 0;
    if (sl_log_limit_pass(&limit, 10, 10000, &held))
        sl_warn(SL_C_SESSION, "PACKET-REFUSED", SL_S("peer", cn->peer),
                SL_B("client", cn->cl != NULL ? sl_client_id(cn->cl) : sl_slice_str("")),
                SL_U("reason", rc), SL_S("why", why), SL_U("suppressed", held));
}

/* A fault at the level of frames. What came before it is the actor's and is finished first. */
static void fault(sl_conn *cn, sl_mqtt_rc rc, const char *why)
{
    sl_io_count(cn->io, SL_BS_MALFORMED, 1);
    log_fault(cn, rc, why);
    sl_conn_end(cn, rc, true);
}

/* Reserves an acknowledgement in receive order; false when the client has too many open. */
static bool reserve_slot(sl_conn *cn, uint8_t qos, const uint8_t *body, uint32_t len)
{
    uint32_t open = cn->ring_tail - cn->ring_head;
    if (open >= cn->io->core->limits.max_in_flight)
        return false;
    if (open == cn->ring_cap) {
        uint32_t cap = cn->ring_cap == 0 ? 8 : cn->ring_cap * 2;
        sl_ack_slot *ring = sl_alloc(cap * sizeof(*ring));
        for (uint32_t seq = cn->ring_head; seq != cn->ring_tail; seq++)
            ring[seq & (cap - 1)] = cn->ring[seq & (cn->ring_cap - 1)];
        sl_free(cn->ring);
        cn->ring = ring;
        cn->ring_cap = cap;
    }
    // The packet id, if the packet is as long as it says; if not, decoding it will say so.
    uint32_t at = len >= 2 ? 2 + ((uint32_t)body[0] << 8 | body[1]) : 0;
    uint16_t id = len >= at + 2 ? (uint16_t)(body[at] << 8 | body[at + 1]) : 0;
    cn->ring[cn->ring_tail++ & (cn->ring_cap - 1)] =
        (sl_ack_slot){.packet_id = id, .kind = qos == 1 ? SL_MQTT_PUBACK : SL_MQTT_PUBREC};
    return true;
}

static uint8_t peek_version(sl_slice packet, uint32_t header)
{
    if (packet.len >= header + 7 && memcmp(packet.ptr + header, "\0\4MQTT", 6) == 0)
        return packet.ptr[header + 6];
    return SL_MQTT_V311;
}

static void on_connect(sl_conn *cn, sl_slice packet, uint32_t header)
{
    sl_mqtt_packet pkt;
    sl_mqtt_rc rc = SL_RC_MALFORMED_PACKET;
    const char *why = NULL;
    cn->version = peek_version(packet, header);
    sl_err err = sl_mqtt_decode(packet, SL_MQTT_V5, SL_MQTT_SERVER_READS, &pkt, &rc, &why);
    if (err != SL_OK) {
        sl_io_count(cn->io, SL_BS_MALFORMED, 1);
        log_fault(cn, rc, why);
        sl_conn_refuse(cn, rc);
        return;
    }
    cn->version = (uint8_t)pkt.connect.version;
    rc = sl_client_actor_check_connect(cn, &pkt.connect);
    if (rc != SL_RC_SUCCESS) {
        sl_conn_refuse(cn, rc);
        return;
    }
    cn->state = SL_CONN_CONNECTING;
    cn->deadline = sl_loop_now(cn->io->lp) + cn->io->core->limits.connect_timeout;
    sl_io_watch(cn->io, cn, cn->deadline);
    update_reading(cn);
    post_item(cn, SL_ITEM_CONNECT, NULL, 0, 0, 0);
}

/* PUBACK, PUBREC, PUBCOMP and PINGREQ are answered here: they do not pass the actor. */
static sl_err on_egress_packet(sl_conn *cn, sl_mqtt_type type, sl_slice packet, sl_mqtt_rc *rc,
                               const char **why)
{
    sl_mqtt_packet pkt;
    sl_err err =
        sl_mqtt_decode(packet, (sl_mqtt_version)cn->version, SL_MQTT_SERVER_READS, &pkt, rc, why);
    if (err != SL_OK)
        return err;
    if (type == SL_MQTT_PINGREQ)
        sl_conn_put(cn, "\xD0\x00", 2);
    else
        sl_conn_on_ack(cn, type, &pkt.ack);
    return SL_OK;
}

static bool is_egress_type(sl_mqtt_type type)
{
    return type == SL_MQTT_PUBACK || type == SL_MQTT_PUBREC || type == SL_MQTT_PUBCOMP ||
           type == SL_MQTT_PINGREQ;
}

/* All whole packets in data[off..end): returns where the first incomplete one begins. */
static uint32_t take_packets(sl_conn *cn, sl_rbuf *rb, uint32_t off, uint32_t end)
{
    uint32_t run = off, first_slot = cn->ring_tail;
    bool for_actor = false;
    sl_mqtt_rc rc = SL_RC_SUCCESS;
    const char *why = NULL;
    const sl_limits *lim = &cn->io->core->limits;
    while (off < end && cn->state == SL_CONN_CONNECTED) {
        sl_mqtt_frame fr;
        sl_err err = sl_mqtt_frame_read(sl_slice_of(rb->data + off, end - off),
                                        lim->max_packet_bytes, &fr, &rc, &why);
        if (err == SL_EINCOMPLETE)
            break;
        if (err != SL_OK)
            break; // rc and why say it, below, behind the run
        uint32_t size = fr.header_size + fr.remaining;
        sl_mqtt_type type = (sl_mqtt_type)(fr.first >> 4);
        uint8_t qos = fr.first >> 1 & 3;
        if (is_egress_type(type)) {
            if (on_egress_packet(cn, type, sl_slice_of(rb->data + off, size), &rc, &why) != SL_OK)
                break;
        } else {
            if (type == SL_MQTT_PUBLISH && (qos == 1 || qos == 2) &&
                !reserve_slot(cn, qos, rb->data + off + fr.header_size, fr.remaining)) {
                rc = SL_RC_RECEIVE_MAXIMUM_EXCEEDED;
                why = "more QoS 1 and 2 messages open than Receive Maximum [MQTT-3.3.4-7]";
                break;
            }
            for_actor = true;
        }
        off += size;
    }
    if (off > run)
        cn->last_in = sl_loop_now(cn->io->lp);
    if (for_actor)
        post_item(cn, SL_ITEM_PACKETS, rb, run, off, first_slot);
    if (rc != SL_RC_SUCCESS && cn->state == SL_CONN_CONNECTED)
        fault(cn, rc, why);
    return off;
}

/* The first packet of a connection: CONNECT or nothing [MQTT-3.1.0-1]. True when it was there. */
static bool take_connect(sl_conn *cn, sl_rbuf *rb, uint32_t *off, uint32_t end)
{
    sl_mqtt_frame fr = {0};
    sl_mqtt_rc rc = SL_RC_SUCCESS;
    const char *why = NULL;
    sl_slice bytes = sl_slice_of(rb->data + *off, end - *off);
    if (bytes.len > 0 && bytes.ptr[0] != SL_MQTT_CONNECT << 4) {
        sl_io_count(cn->io, SL_BS_MALFORMED, 1);
        bool is_tls = bytes.ptr[0] == 0x16; // a TLS handshake
        log_fault(cn, SL_RC_PROTOCOL_ERROR,
                  is_tls ? "this looks like TLS, but the port is without TLS"
                         : "the first packet is not CONNECT [MQTT-3.1.0-1]");
        sl_conn_end(cn, SL_RC_PROTOCOL_ERROR, false);
        return false;
    }
    sl_err err = sl_mqtt_frame_read(bytes, cn->io->core->limits.max_packet_bytes, &fr, &rc, &why);
    if (err == SL_EINCOMPLETE)
        return false;
    if (err != SL_OK) {
        sl_io_count(cn->io, SL_BS_MALFORMED, 1);
        log_fault(cn, rc, why);
        sl_conn_end(cn, rc, false);
        return false;
    }
    uint32_t size = fr.header_size + fr.remaining;
    cn->last_in = sl_loop_now(cn->io->lp);
    *off += size;
    on_connect(cn, sl_slice_of(bytes.ptr, size), fr.header_size);
    return true;
}

/* Everything in data[off..end); what is incomplete, or behind a CONNECT, is kept. */
static void feed(sl_conn *cn, sl_rbuf *rb, uint32_t off, uint32_t end)
{
    if (cn->state == SL_CONN_NEW)
        (void)take_connect(cn, rb, &off, end);
    if (cn->state == SL_CONN_CONNECTED)
        off = take_packets(cn, rb, off, end);
    if (off < end && !cn->discard_input && cn->state != SL_CONN_CLOSING)
        keep_part(cn, rb->data + off, end - off, 0);
    update_reading(cn);
}

/* How many more bytes the packet at the front of the part needs (1 when its length is unknown). */
static uint32_t part_needs(const sl_conn *cn)
{
    sl_mqtt_frame fr = {0};
    sl_mqtt_rc rc = SL_RC_SUCCESS;
    const char *why = NULL;
    sl_err err =
        sl_mqtt_frame_read(sl_slice_of(cn->part->data, cn->part->len), UINT32_MAX, &fr, &rc, &why);
    if (err != SL_EINCOMPLETE)
        return 0;
    uint32_t size = fr.header_size + fr.remaining;
    return fr.header_size == 0 || size <= cn->part->len ? 1 : size - cn->part->len;
}

static void take_bytes(sl_conn *cn, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    uint32_t end = off + len;
    while (off < end && cn->part != NULL && !cn->discard_input) {
        if (cn->state == SL_CONN_CONNECTING) {
            // Read before reading stopped; handled after CONNACK [MQTT-3.1.4-5].
            keep_part(cn, rb->data + off, end - off, 0);
            return;
        }
        uint32_t need = part_needs(cn);
        uint32_t take = need < end - off ? need : end - off;
        keep_part(cn, rb->data + off, take, need + cn->part->len);
        off += take;
        // Whole now, or its header has become known: refuse a bad one at once, from the header.
        sl_rbuf *part = cn->part;
        cn->part = NULL;
        feed(cn, part, 0, part->len);
        sl_rbuf_unref(&part);
    }
    if (off < end && !cn->discard_input)
        feed(cn, rb, off, end);
}

/* ---- what the actor tells us ----------------------------------------------------------------- */

/* A call that came on another loop's thread, as a letter to the connection's own. */
typedef struct relay {
    sl_mail mail;
    sl_conn *cn; /* referenced */
    enum { ACCEPT, REFUSE, SEND, COMPLETE, CANCEL, END, ITEM_DONE } what;
    sl_conn_accept_info info;
    sl_mqtt_rc rc;
    bool notify;
    uint32_t from, to;
    size_t len;
    uint8_t bytes[];
} relay;

static void on_relay(sl_mail *mail)
{
    relay *rl = SL_CONTAINER(mail, relay, mail);
    sl_conn *cn = rl->cn;
    switch (rl->what) {
    case ACCEPT:
        sl_conn_accept(cn, &rl->info);
        break;
    case REFUSE:
        sl_conn_refuse(cn, rl->rc);
        break;
    case SEND:
        sl_conn_send(cn, sl_slice_of(rl->bytes, rl->len));
        break;
    case COMPLETE:
        sl_conn_complete(cn, rl->from, rl->rc);
        break;
    case CANCEL:
        sl_conn_cancel(cn, rl->from, rl->to);
        break;
    case END:
        sl_conn_end(cn, rl->rc, rl->notify);
        break;
    case ITEM_DONE:
        sl_conn_item_done(cn);
        break;
    }
    sl_conn_unref(&rl->cn);
    sl_free(rl);
}

/* NULL when the caller is on the connection's loop and can go on itself. */
static relay *relay_new(sl_conn *cn, size_t len)
{
    if (sl_loop_is_current(cn->io->lp))
        return NULL;
    relay *rl = sl_calloc(1, sizeof(*rl) + len);
    rl->mail.fn = on_relay;
    rl->cn = cn;
    rl->len = len;
    sl_conn_ref(cn);
    return rl;
}

static void relay_post(relay *rl)
{
    sl_loop_post(rl->cn->io->lp, &rl->mail);
}

void sl_conn_accept(sl_conn *cn, const sl_conn_accept_info *info)
{
    relay *rl = relay_new(cn, 0);
    if (rl != NULL) {
        rl->what = ACCEPT;
        rl->info = *info;
        relay_post(rl);
        return;
    }
    if (cn->state != SL_CONN_CONNECTING)
        return; // it ended meanwhile; the actor hears of it next
    cn->state = SL_CONN_CONNECTED;
    cn->persistent = info->persistent;
    cn->deadline = 0;
    cn->last_in = sl_loop_now(cn->io->lp);
    if (cn->keep_alive_s > 0)
        sl_io_watch(cn->io, cn, cn->last_in + (sl_mono_ms)cn->keep_alive_s * 1500);
    sl_client_actor_write_connack(cn, info);
    sl_io_count(cn->io, SL_BS_CONNECTS, 1);
    sl_rbuf *part = cn->part;
    cn->part = NULL;
    if (part != NULL)
        feed(cn, part, 0, part->len);
    else
        update_reading(cn);
    sl_rbuf_unref(&part);
}

void sl_conn_refuse(sl_conn *cn, sl_mqtt_rc rc)
{
    relay *rl = relay_new(cn, 0);
    if (rl != NULL) {
        rl->what = REFUSE;
        rl->rc = rc;
        relay_post(rl);
        return;
    }
    if (cn->state != SL_CONN_NEW && cn->state != SL_CONN_CONNECTING)
        return;
    sl_io_count(cn->io, SL_BS_REFUSED, 1);
    uint8_t v3 = sl_mqtt_rc_to_v3(rc);
    if (cn->version >= SL_MQTT_V5) {
        const uint8_t connack[] = {SL_MQTT_CONNACK << 4, 3, 0, (uint8_t)rc, 0};
        if (sizeof(connack) <= cn->max_packet_out) // [MQTT-3.1.2-24]
            sl_conn_put(cn, connack, sizeof(connack));
    } else if (v3 != 0xFF) {
        const uint8_t connack[] = {SL_MQTT_CONNACK << 4, 2, 0, v3};
        sl_conn_put(cn, connack, sizeof(connack));
    }
    sl_conn_end(cn, rc, false);
}

void sl_conn_send(sl_conn *cn, sl_slice bytes)
{
    relay *rl = relay_new(cn, bytes.len);
    if (rl != NULL) {
        rl->what = SEND;
        memcpy(rl->bytes, bytes.ptr, bytes.len);
        relay_post(rl);
        return;
    }
    if (cn->state == SL_CONN_CONNECTED)
        sl_conn_put(cn, bytes.ptr, bytes.len);
}

/* Acknowledgements at the front that are done leave, in receive order. */
static void release_acks(sl_conn *cn)
{
    while (cn->ring_head != cn->ring_tail) {
        sl_ack_slot *slot = &cn->ring[cn->ring_head & (cn->ring_cap - 1)];
        if (!slot->done)
            break;
        sl_msg_trace_step(cn->io->core->trace, SL_STEP_ACKED, 0, cn->ring_head & 0xFFFFFFF,
                          cn->slot);
        uint32_t seq = cn->ring_head++;
        if (slot->reason == REASON_CANCELLED || cn->state != SL_CONN_CONNECTED)
            continue;
        sl_conn_put_ack(cn, (sl_mqtt_type)slot->kind, slot->packet_id, (sl_mqtt_rc)slot->reason);
        sl_msg_trace_step(cn->io->core->trace, SL_STEP_ACKED, 0, seq, cn->slot);
    }
    if (cn->ring_head == cn->ring_tail && cn->stream_closed)
        maybe_let_go(cn);
}

void sl_conn_complete(sl_conn *cn, uint32_t seq, sl_mqtt_rc rc)
{
    relay *rl = relay_new(cn, 0);
    if (rl != NULL) {
        rl->what = COMPLETE;
        rl->from = seq;
        rl->rc = rc;
        relay_post(rl);
        return;
    }
    // Version 3 has no way to say no in an acknowledgement: the connection is closed instead.
    bool refuse = rc >= SL_RC_UNSPECIFIED_ERROR && cn->version < SL_MQTT_V5;
    sl_ack_slot *slot = &cn->ring[seq & (cn->ring_cap - 1)];
    slot->done = true;
    slot->reason = refuse ? REASON_CANCELLED : (uint8_t)rc;
    if (rc >= SL_RC_UNSPECIFIED_ERROR && slot->kind == SL_MQTT_PUBREC)
        sl_client_actor_qos2_failed(cn, slot->packet_id);
    if (refuse)
        sl_conn_end(cn, rc, false);
    if (seq == cn->ring_head)
        release_acks(cn);
}

typedef struct slot_relay {
    sl_mail mail;
    sl_io *owner;
    uint32_t slot, seq;
    sl_mqtt_rc rc;
} slot_relay;

static void on_slot_relay(sl_mail *mail)
{
    slot_relay *rl = SL_CONTAINER(mail, slot_relay, mail);
    sl_conn_complete_slot(rl->owner, rl->slot, rl->seq, rl->rc);
    sl_free(rl);
}

void sl_conn_complete_slot(sl_io *owner, uint32_t slot, uint32_t seq, sl_mqtt_rc rc)
{
    if (!sl_loop_is_current(owner->lp)) {
        slot_relay *rl = sl_alloc(sizeof(*rl));
        *rl = (slot_relay){
            .mail.fn = on_slot_relay, .owner = owner, .slot = slot, .seq = seq, .rc = rc};
        sl_loop_post(owner->lp, &rl->mail);
        return;
    }
    // The connection is there: it stays until all its slots are done. The sequence in the token is
    // 28 bits of it; the ring is far smaller.
    sl_conn *cn = owner->conns[slot];
    uint32_t full = (cn->ring_head & ~0xFFFFFFFu) | seq;
    if ((int32_t)(full - cn->ring_head) < 0)
        full += 0x10000000u;
    sl_conn_complete(cn, full, rc);
}

void sl_conn_cancel(sl_conn *cn, uint32_t from, uint32_t to)
{
    relay *rl = relay_new(cn, 0);
    if (rl != NULL) {
        rl->what = CANCEL;
        rl->from = from;
        rl->to = to;
        relay_post(rl);
        return;
    }
    for (uint32_t seq = from; seq != to; seq++) {
        sl_ack_slot *slot = &cn->ring[seq & (cn->ring_cap - 1)];
        slot->done = true;
        slot->reason = REASON_CANCELLED;
    }
    release_acks(cn);
}

void sl_conn_item_done(sl_conn *cn)
{
    relay *rl = relay_new(cn, 0);
    if (rl != NULL) {
        rl->what = ITEM_DONE;
        relay_post(rl);
        return;
    }
    atomic_fetch_sub_explicit(&cn->items, 1, memory_order_relaxed);
    if (cn->read_stopped)
        update_reading(cn);
}

void sl_conn_end(sl_conn *cn, sl_mqtt_rc rc, bool notify)
{
    relay *rl = relay_new(cn, 0);
    if (rl != NULL) {
        rl->what = END;
        rl->rc = rc;
        rl->notify = notify;
        relay_post(rl);
        return;
    }
    if (cn->state == SL_CONN_CLOSING)
        return;
    bool tell = notify && cn->state == SL_CONN_CONNECTED && cn->version >= SL_MQTT_V5;
    if (tell) {
        const uint8_t packet[] = {SL_MQTT_DISCONNECT << 4, 2, (uint8_t)rc, 0};
        sl_conn_put(cn, packet, sizeof(packet));
    }
    sl_trace(SL_C_SESSION, "CONN-CLOSE", SL_U("slot", cn->slot), SL_U("reason", rc));
    cn->state = SL_CONN_CLOSING;
    cn->end_reason = (uint8_t)rc;
    cn->discard_input = true;
    sl_rbuf_unref(&cn->part);
    post_end(cn);
    // What was put above leaves at the end of this turn; the peer gets a moment to read it, for a
    // close with unread input would make the kernel throw it away.
    cn->close_after_flush = true;
    cn->deadline = sl_loop_now(cn->io->lp) + LINGER_MS;
    sl_io_watch(cn->io, cn, cn->deadline);
    update_reading(cn);
    sl_io_dirty(cn->io, cn);
}

/* ---- time ------------------------------------------------------------------------------------ */

void sl_conn_check_time(sl_conn *cn, sl_mono_ms now)
{
    sl_mono_ms next = 0;
    if (cn->deadline != 0 && now >= cn->deadline) {
        if (cn->state == SL_CONN_CONNECTED) {
            sl_io_count(cn->io, SL_BS_STUCK, 1);
            sl_info(SL_C_SESSION, "CONN-STUCK", SL_B("client", sl_client_id(cn->cl)),
                    SL_U("unsent_bytes", cn->out_bytes));
            sl_conn_end(cn, SL_RC_QUOTA_EXCEEDED, false);
        } else if (cn->state == SL_CONN_CONNECTING) {
            sl_conn_refuse(cn, SL_RC_SERVER_UNAVAILABLE);
        } else if (cn->state == SL_CONN_NEW) {
            sl_conn_end(cn, SL_RC_MAXIMUM_CONNECT_TIME, false);
        } else {
            begin_close(cn);
            return;
        }
    }
    if (cn->deadline != 0)
        next = cn->deadline;
    if (cn->delayed_first != NULL) {
        sl_mono_ms due = sl_conn_drop_delayed(cn, now);
        next = due != 0 && (next == 0 || due < next) ? due : next;
    }
    if (cn->state == SL_CONN_CONNECTED && cn->keep_alive_s > 0) {
        if (cn->read_stopped)
            cn->last_in = now; // it is we who are not reading
        sl_mono_ms due = cn->last_in + (sl_mono_ms)cn->keep_alive_s * 1500;
        if (now >= due) {
            sl_io_count(cn->io, SL_BS_KEEP_ALIVE, 1);
            sl_conn_end(cn, SL_RC_KEEP_ALIVE_TIMEOUT, true); // [MQTT-3.1.2-22]
            due = cn->deadline;
        }
        if (next == 0 || due < next)
            next = due;
    }
    if (next != 0)
        sl_io_watch(cn->io, cn, next);
}
