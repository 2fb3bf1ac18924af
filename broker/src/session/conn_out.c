/* SPDX-License-Identifier: Apache-2.0
 *
 * conn_out: what goes out of a connection: deliveries with packet ids and the in-flight window,
 * acknowledgements, the bounded queue of unsent bytes, one writev per turn. On the loop only.
 */
#include "session/conn.h"

#include <string.h>

#include "base/alloc.h"
#include "dispatch/device.h"
#include "mqtt/props.h"
#include "stats/broker_stats.h"
#include "stats/msg_trace.h"

#define WRITE_IOV     64
#define FREE_SEGS     4096
#define SENT_MIN      16
#define FLUSH_AT      (256u << 10) /* unsent bytes from which we do not wait for the turn's end */
#define PACKET_ID_MAX 65535u

/* ---- the queue of bytes ---------------------------------------------------------------------- */

static sl_out_seg *new_seg(sl_io *io, uint32_t cap)
{
    sl_out_seg *seg;
    if (cap <= SL_OUT_SEG_BYTES && io->free_segs != NULL) {
        seg = io->free_segs;
        io->free_segs = seg->next;
        io->free_seg_count--;
    } else {
        if (cap < SL_OUT_SEG_BYTES)
            cap = SL_OUT_SEG_BYTES;
        seg = sl_alloc(sizeof(*seg) + cap);
        seg->cap = cap;
    }
    seg->next = NULL;
    seg->body = NULL;
    seg->ptr = seg->data;
    seg->off = seg->len = 0;
    return seg;
}

static void free_seg(sl_io *io, sl_out_seg *seg)
{
    sl_rbuf_unref(&seg->body);
    if (seg->cap == SL_OUT_SEG_BYTES && io->free_seg_count < FREE_SEGS) {
        seg->next = io->free_segs;
        io->free_segs = seg;
        io->free_seg_count++;
    } else {
        sl_free(seg);
    }
}

static void link_seg(sl_conn *cn, sl_out_seg *seg)
{
    if (cn->out_last != NULL)
        cn->out_last->next = seg;
    else
        cn->out_first = seg;
    cn->out_last = seg;
}

/* Room for len bytes in one piece; commit follows by seg->len += len. */
static uint8_t *reserve(sl_conn *cn, uint32_t len)
{
    sl_out_seg *seg = cn->out_last;
    if (seg == NULL || seg->body != NULL || seg->cap - seg->len < len) {
        seg = new_seg(cn->io, len);
        link_seg(cn, seg);
    }
    return seg->data + seg->len;
}

static void commit(sl_conn *cn, uint32_t len)
{
    cn->out_last->len += len;
    cn->out_bytes += len;
}

void sl_conn_put(sl_conn *cn, const void *ptr, size_t len)
{
    if (cn->sm == NULL)
        return;
    memcpy(reserve(cn, (uint32_t)len), ptr, len);
    commit(cn, (uint32_t)len);
    sl_io_dirty(cn->io, cn);
}

void sl_conn_put_ack(sl_conn *cn, sl_mqtt_type type, uint16_t packet_id, sl_mqtt_rc rc)
{
    uint8_t packet[5] = {(uint8_t)(type << 4 | (type == SL_MQTT_PUBREL ? 2 : 0)), 2,
                         (uint8_t)(packet_id >> 8), (uint8_t)packet_id, (uint8_t)rc};
    if (rc != SL_RC_SUCCESS && cn->version >= SL_MQTT_V5)
        packet[1] = 3;
    sl_conn_put(cn, packet, 2u + packet[1]);
}

/* A big payload stays where it is. */
static void put_body(sl_conn *cn, sl_rbuf *body, const uint8_t *ptr, uint32_t len)
{
    sl_out_seg *seg = sl_alloc(sizeof(*seg));
    *seg = (sl_out_seg){.body = sl_rbuf_ref(body), .ptr = ptr, .len = len};
    link_seg(cn, seg);
    cn->out_bytes += len;
}

static sl_delayed *take_delayed(sl_conn *cn)
{
    sl_delayed *dl = cn->delayed_first;
    cn->delayed_first = dl->next;
    if (cn->delayed_first == NULL)
        cn->delayed_last = NULL;
    cn->delayed_count--;
    sl_io_count(cn->io, SL_BS_WAITING_QOS, -1);
    return dl;
}

static void free_delayed(sl_delayed *dl)
{
    sl_rbuf_unref(&dl->msg.body);
    sl_free(dl);
}

void sl_conn_drop_out(sl_conn *cn)
{
    while (cn->out_first != NULL) {
        sl_out_seg *seg = cn->out_first;
        cn->out_first = seg->next;
        free_seg(cn->io, seg);
    }
    cn->out_last = NULL;
    cn->out_bytes = 0;
    while (cn->delayed_first != NULL)
        free_delayed(take_delayed(cn));
}

/* The client reads too slowly for what its inbox has: the rest waits there, not in memory. */
static void pause_inbox(sl_conn *cn)
{
    if (cn->inbox_paused)
        return;
    cn->inbox_paused = true;
    atomic_store(&cn->cl->slow, true);
    sl_io_count(cn->io, SL_BS_INBOX_PAUSES, 1);
}

static void resume_inbox(sl_conn *cn)
{
    if (!(cn->inbox_paused || cn->inbox_asked) || cn->state != SL_CONN_CONNECTED ||
        cn->out_bytes > cn->io->core->limits.out_high_bytes / 2)
        return;
    cn->inbox_paused = cn->inbox_asked = false;
    atomic_store(&cn->cl->slow, false);
    sl_device_acked(cn->io, cn->cl->index, cn->session_id, 0, SL_DEVICE_RESUME);
}

/* Takes written bytes off the front. */
static void consume(sl_conn *cn, size_t written)
{
    cn->out_bytes -= (uint32_t)written;
    while (cn->out_first != NULL) {
        sl_out_seg *seg = cn->out_first;
        uint32_t left = seg->len - seg->off;
        if (written < left) {
            seg->off += (uint32_t)written;
            return;
        }
        written -= left;
        cn->out_first = seg->next;
        if (cn->out_first == NULL)
            cn->out_last = NULL;
        free_seg(cn->io, seg);
    }
}

static void after_flush(sl_conn *cn)
{
    if (cn->close_after_flush && cn->out_first == NULL && cn->sm != NULL) {
        cn->close_after_flush = false;
        sl_stream_shutdown(cn->sm); // the peer closes, or the deadline does
    }
}

void sl_conn_flush(sl_conn *cn)
{
    if (cn->sm == NULL || cn->write_blocked)
        return;
    bool was_high = cn->out_bytes >= cn->io->core->limits.out_high_bytes;
    while (cn->out_first != NULL) {
        struct iovec iov[WRITE_IOV];
        int count = 0;
        size_t want = 0, written = 0;
        for (sl_out_seg *seg = cn->out_first; seg != NULL && count < WRITE_IOV; seg = seg->next) {
            iov[count].iov_base = (void *)(uintptr_t)(seg->ptr + seg->off);
            iov[count].iov_len = seg->len - seg->off;
            want += iov[count++].iov_len;
        }
        sl_err err = sl_stream_write(cn->sm, iov, count, &written);
        sl_io_count(cn->io, SL_BS_WRITES, 1);
        sl_io_count(cn->io, SL_BS_OUT_BYTES, (int64_t)written);
        consume(cn, written);
        resume_inbox(cn);
        if (err != SL_OK && err != SL_EAGAIN)
            return; // on_end follows
        if (written < want) {
            cn->write_blocked = true;
            if (cn->state == SL_CONN_CONNECTED) {
                cn->deadline = sl_loop_now(cn->io->lp) + cn->io->core->limits.write_timeout;
                sl_io_watch(cn->io, cn, cn->deadline);
            }
            return;
        }
    }
    if (cn->state == SL_CONN_CONNECTED)
        cn->deadline = 0;
    if (was_high && cn->read_stopped)
        sl_conn_reading_changed(cn);
    after_flush(cn);
}

/* ---- packet ids and what is unanswered --------------------------------------------------------
 */

static sl_sent *find_sent(sl_conn *cn, uint16_t packet_id)
{
    if (cn->sent_cap == 0)
        return NULL;
    sl_sent *st = &cn->sent[packet_id & (cn->sent_cap - 1)];
    return st->packet_id == packet_id && packet_id != 0 ? st : NULL;
}

/* A free place for this id; the table grows until ids that are out together do not collide. */
static sl_sent *add_sent(sl_conn *cn, uint16_t packet_id)
{
    while (cn->sent_cap == 0 || cn->sent[packet_id & (cn->sent_cap - 1)].packet_id != 0) {
        uint32_t cap = cn->sent_cap == 0 ? SENT_MIN : cn->sent_cap * 2;
        SL_ASSERT(cap <= PACKET_ID_MAX + 1);
        sl_sent *table = sl_calloc(cap, sizeof(*table));
        for (uint32_t i = 0; i < cn->sent_cap; i++) {
            if (cn->sent[i].packet_id != 0)
                table[cn->sent[i].packet_id & (cap - 1)] = cn->sent[i];
        }
        sl_free(cn->sent);
        cn->sent = table;
        cn->sent_cap = cap;
    }
    sl_sent *st = &cn->sent[packet_id & (cn->sent_cap - 1)];
    st->packet_id = packet_id;
    cn->sent_count++;
    return st;
}

static uint16_t new_packet_id(sl_conn *cn)
{
    SL_ASSERT(cn->sent_count < PACKET_ID_MAX);
    while (find_sent(cn, cn->next_packet_id) != NULL || cn->next_packet_id == 0)
        cn->next_packet_id++;
    return cn->next_packet_id++;
}

/* ---- PUBLISH ----------------------------------------------------------------------------------
 */

/* Copies the properties, the expiry interval rewritten to what is left of it. */
static uint8_t *write_props(uint8_t *at, const sl_out_msg *msg, uint32_t left_s,
                            const uint32_t *ids, uint32_t id_count)
{
    if (msg->props_bytes > 0)
        memcpy(at, msg->props, msg->props_bytes);
    if (msg->has_expiry) {
        size_t pos = 0;
        sl_mqtt_prop_view view;
        while (sl_mqtt_prop_next(sl_slice_of(msg->props, msg->props_bytes), &pos, &view)) {
            if (view.row->bit == SL_PROP_MESSAGE_EXPIRY) {
                uint8_t *field = at + (view.wire.ptr - msg->props) + 1;
                for (int i = 0; i < 4; i++)
                    field[i] = (uint8_t)(left_s >> (24 - 8 * i));
            }
        }
    }
    at += msg->props_bytes;
    for (uint32_t i = 0; i < id_count; i++) {
        *at++ = 0x0B; // subscription identifier
        at += sl_mqtt_varint_write(at, ids[i]);
    }
    return at;
}

static uint32_t props_size(const sl_out_msg *msg, const uint32_t *ids, uint32_t id_count)
{
    uint32_t size = msg->props_bytes;
    for (uint32_t i = 0; i < id_count; i++)
        size += 1 + sl_mqtt_varint_size(ids[i]);
    return size;
}

typedef struct publish_args {
    uint8_t qos;
    uint8_t flags; /* SL_DELIVER_* */
    uint16_t packet_id;
    const uint32_t *ids;
    uint32_t id_count;
} publish_args;

/* Bytes of the PUBLISH behind its fixed header. */
static uint32_t publish_remaining(const sl_conn *cn, const sl_out_msg *msg, const publish_args *pa,
                                  uint32_t *props)
{
    uint32_t size = msg->topic_bytes + (pa->qos > 0 ? 2 : 0) + msg->payload_bytes;
    *props = 0;
    if (cn->version >= SL_MQTT_V5) {
        *props = props_size(msg, pa->ids, pa->id_count);
        size += sl_mqtt_varint_size(*props) + *props;
    }
    return size;
}

static void write_publish(sl_conn *cn, const sl_out_msg *msg, const publish_args *pa,
                          uint32_t remaining, uint32_t props, uint32_t left_s)
{
    bool refer = msg->payload_bytes >= SL_OUT_REF_BYTES;
    uint32_t copied = 5 + remaining - (refer ? msg->payload_bytes : 0);
    uint8_t *begin = reserve(cn, copied), *at = begin;
    uint8_t first = (uint8_t)(SL_MQTT_PUBLISH << 4 | pa->qos << 1 |
                              ((pa->flags & SL_DELIVER_RETAIN) != 0 ? 1 : 0) |
                              ((pa->flags & SL_DELIVER_DUP) != 0 ? 8 : 0));
    at += sl_mqtt_publish_head(at, first, remaining);
    memcpy(at, msg->topic, msg->topic_bytes);
    at += msg->topic_bytes;
    if (pa->qos > 0) {
        *at++ = (uint8_t)(pa->packet_id >> 8);
        *at++ = (uint8_t)pa->packet_id;
    }
    if (cn->version >= SL_MQTT_V5) {
        at += sl_mqtt_varint_write(at, props);
        at = write_props(at, msg, left_s, pa->ids, pa->id_count);
    }
    if (!refer && msg->payload_bytes > 0) {
        memcpy(at, msg->payload, msg->payload_bytes);
        at += msg->payload_bytes;
    }
    commit(cn, (uint32_t)(at - begin));
    if (refer)
        put_body(cn, msg->body, msg->payload, msg->payload_bytes);
    sl_io_count(cn->io, SL_BS_OUT_QOS0 + pa->qos, 1);
    sl_io_dirty(cn->io, cn);
    sl_msg_trace_step(cn->io->core->trace, SL_STEP_SENT, msg->trace_partition, msg->trace_offset,
                      cn->slot);
}

/* A copy that cannot be sent: counted; one from the inbox is taken off it. */
static void drop_copy(sl_conn *cn, const publish_args *pa, unsigned stat)
{
    sl_io_count(cn->io, stat, 1);
    if ((pa->flags & SL_DELIVER_INBOX) != 0)
        sl_device_acked(cn->io, cn->cl->index, cn->session_id, pa->packet_id, SL_DEVICE_REMOVE);
}

/* Sends it now. False when it was dropped. */
static void send_publish(sl_conn *cn, const sl_out_msg *msg, publish_args *pa)
{
    uint32_t left_s = 0, props = 0;
    if (msg->has_expiry) {
        sl_dur_ms left = msg->expires_at - sl_clock_wall(cn->io->core->clock);
        if (left <= 0) { // [MQTT-3.3.2-5]
            drop_copy(cn, pa, SL_BS_DROP_EXPIRED);
            return;
        }
        left_s = (uint32_t)((left + 999) / 1000);
    }
    uint32_t remaining = publish_remaining(cn, msg, pa, &props);
    if (remaining > SL_MQTT_MAX_REMAINING ||
        1 + sl_mqtt_varint_size(remaining) + remaining > cn->max_packet_out) { // [MQTT-3.1.2-25]
        drop_copy(cn, pa, SL_BS_DROP_TOO_LARGE);
        return;
    }
    if (pa->qos > 0) {
        if ((pa->flags & SL_DELIVER_INBOX) == 0)
            pa->packet_id = new_packet_id(cn);
        sl_sent *st = find_sent(cn, pa->packet_id);
        if (st == NULL)
            st = add_sent(cn, pa->packet_id);
        st->state = pa->qos == 1 ? SL_MQTT_PUBACK : SL_MQTT_PUBREC;
        st->from_inbox = (pa->flags & SL_DELIVER_INBOX) != 0;
    }
    write_publish(cn, msg, pa, remaining, props, left_s);
}

static void delay(sl_conn *cn, const sl_out_msg *msg, const publish_args *pa)
{
    if (cn->delayed_count >= cn->io->core->limits.delayed_max) {
        drop_copy(cn, pa, SL_BS_DROP_IN_FLIGHT);
        return;
    }
    sl_delayed *dl = sl_alloc(sizeof(*dl) + pa->id_count * sizeof(uint32_t));
    dl->next = NULL;
    dl->msg = *msg;
    sl_rbuf_ref(dl->msg.body);
    dl->qos = pa->qos;
    dl->flags = pa->flags;
    dl->until = sl_loop_now(cn->io->lp) + cn->io->core->limits.delayed_ttl;
    dl->ids = (uint16_t)pa->id_count;
    if (pa->id_count > 0)
        memcpy(dl->sub_ids, pa->ids, pa->id_count * sizeof(uint32_t));
    if (cn->delayed_last != NULL)
        cn->delayed_last->next = dl;
    else
        cn->delayed_first = dl;
    cn->delayed_last = dl;
    cn->delayed_count++;
    sl_io_count(cn->io, SL_BS_WAITING_QOS, 1);
    if (cn->delayed_count == 1)
        sl_io_watch(cn->io, cn, dl->until);
}

sl_mono_ms sl_conn_drop_delayed(sl_conn *cn, sl_mono_ms now)
{
    while (cn->delayed_first != NULL && cn->delayed_first->until <= now) {
        sl_io_count(cn->io, SL_BS_DROP_DELAYED, 1);
        free_delayed(take_delayed(cn));
    }
    return cn->delayed_first != NULL ? cn->delayed_first->until : 0;
}

/* A slot of the window has become free. */
static void send_delayed(sl_conn *cn)
{
    while (cn->delayed_first != NULL && cn->sent_count < cn->receive_max) {
        sl_delayed *dl = take_delayed(cn);
        publish_args pa = {
            .qos = dl->qos, .flags = dl->flags, .ids = dl->sub_ids, .id_count = dl->ids};
        send_publish(cn, &dl->msg, &pa);
        free_delayed(dl);
    }
}

static void send_pubrel(sl_conn *cn, uint16_t packet_id)
{
    sl_sent *st = find_sent(cn, packet_id);
    if (st == NULL)
        st = add_sent(cn, packet_id);
    st->state = SL_MQTT_PUBCOMP;
    st->from_inbox = true;
    sl_conn_put_ack(cn, SL_MQTT_PUBREL, packet_id, SL_RC_SUCCESS);
}

void sl_conn_deliver(sl_conn *cn, const sl_delivery_mail *dm, const sl_delivery *item)
{
    bool from_inbox = (item->flags & SL_DELIVER_INBOX) != 0;
    if (cn->state != SL_CONN_CONNECTED || (from_inbox && !cn->persistent)) {
        if (!from_inbox)
            sl_io_count(cn->io, SL_BS_DROP_OFFLINE, 1);
        return; // the inbox keeps its rows until they are acknowledged
    }
    if ((item->flags & SL_DELIVER_PUBREL) != 0) {
        send_pubrel(cn, item->packet_id);
        return;
    }
    if ((item->flags & SL_DELIVER_ASK) != 0) {
        cn->inbox_asked = true;
        resume_inbox(cn);
        return;
    }
    const sl_out_msg *msg = &dm->msgs[item->msg];
    publish_args pa = {.qos = item->qos,
                       .flags = item->flags,
                       .packet_id = item->packet_id,
                       .ids = item->ids > 0 ? dm->sub_ids + item->ids_at : NULL,
                       .id_count = item->ids};
    if (!from_inbox) {
        if (cn->out_bytes >= cn->io->core->limits.out_high_bytes) {
            drop_copy(cn, &pa, SL_BS_DROP_SLOW);
            return;
        }
        if (pa.qos > 0 && (cn->delayed_first != NULL || cn->sent_count >= cn->receive_max)) {
            delay(cn, msg, &pa);
            return;
        }
    }
    send_publish(cn, msg, &pa);
    if (cn->out_bytes >= FLUSH_AT && !cn->write_blocked)
        sl_conn_flush(cn);
    if (from_inbox && cn->out_bytes >= cn->io->core->limits.out_high_bytes)
        pause_inbox(cn);
}

/* ---- answers of the client --------------------------------------------------------------------
 */

static void forget_sent(sl_conn *cn, sl_sent *st, uint8_t kind)
{
    if (st->from_inbox)
        sl_device_acked(cn->io, cn->cl->index, cn->session_id, st->packet_id, kind);
    st->packet_id = 0;
    cn->sent_count--;
    send_delayed(cn);
}

static void on_pubrec(sl_conn *cn, sl_sent *st, const sl_mqtt_ack *ack)
{
    if (st == NULL && ack->reason >= SL_RC_UNSPECIFIED_ERROR)
        return; // a refusal is not answered [MQTT-4.3.3-4]
    if (st == NULL || st->state == SL_MQTT_PUBACK) {
        // [MQTT-4.3.3-4] answers every PUBREC; version 5 says that the id is unknown.
        sl_conn_put_ack(cn, SL_MQTT_PUBREL, ack->packet_id, SL_RC_PACKET_ID_NOT_FOUND);
        return;
    }
    if (ack->reason >= SL_RC_UNSPECIFIED_ERROR) { // refused: the message is done [MQTT-4.4.0-2]
        forget_sent(cn, st, SL_DEVICE_REMOVE);
        return;
    }
    if (st->state == SL_MQTT_PUBCOMP || !st->from_inbox) {
        st->state = SL_MQTT_PUBCOMP;
        sl_conn_put_ack(cn, SL_MQTT_PUBREL, ack->packet_id, SL_RC_SUCCESS);
        return;
    }
    // PUBREL leaves once the inbox has made the marker durable.
    sl_device_acked(cn->io, cn->cl->index, cn->session_id, ack->packet_id, SL_DEVICE_PUBREC);
}

void sl_conn_on_ack(sl_conn *cn, sl_mqtt_type type, const sl_mqtt_ack *ack)
{
    sl_sent *st = find_sent(cn, ack->packet_id);
    if (type == SL_MQTT_PUBREC)
        on_pubrec(cn, st, ack);
    else if (st != NULL && st->state == type)
        forget_sent(cn, st, SL_DEVICE_REMOVE);
}
