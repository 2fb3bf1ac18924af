/* SPDX-License-Identifier: Apache-2.0
 *
 * device: see device.h. One pack of tbmq.msg.persisted is on its way at a time: its records are
 * grouped by client, one add each; when all are stored (tried until they are) the offset is
 * committed behind them and the next pack is taken. Deliveries to connected clients go out from the
 * stored pack itself when the client is up to date, else from the inbox.
 *
 *   device:  DETACHED --attach--> attached, reading <--> up to date --detach--> DETACHED (kept a
 * while)
 */
#include "dispatch/device.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "base/map.h"
#include "dispatch/delivery.h"
#include "mqtt/encode.h"
#include "session/io.h"
#include "stats/broker_stats.h"
#include "stats/msg_trace.h"
#include "store/inbox.h"

#define PACK_BATCHES     32
#define PACK_BYTES       (4u << 20)
#define READ_ROWS        512
#define READ_BYTES       (256u << 10)
#define WINDOW_BYTES     (4u << 20) /* unacknowledged bytes of one client, at least one message */
#define WINDOW_ROWS      8192       /* unacknowledged messages, whatever the client's maximum */
#define KEEP_DETACHED_MS 300000
#define RETRY_MS         1000
#define MAX_ROWS_OF_ADD  1024
#define DEVICES_MAX      16777216

/* ---- types
 * ---------------------------------------------------------------------------------------------- */

typedef struct device {
    sl_client *cl; /* referenced while attached */
    bool attached;
    bool up_to_date; /* every row of the box was handed out */
    bool reading;
    bool dup_old;
    bool stored_meanwhile; /* rows came while a read was under way */
    uint32_t index;        /* of the client, while attached */
    uint64_t session_id;
    uint64_t generation;
    sl_route route;
    uint32_t receive_max;
    uint32_t open; /* handed out and not acknowledged */
    uint64_t open_bytes;
    uint64_t sent_row; /* last row handed out on this connection */
    uint64_t seen_row; /* last row handed out ever: up to here DUP */
    uint64_t *syncing; /* owned: first rows of adds whose QoS 2 rows are not synced, oldest first */
    uint32_t syncing_count, syncing_cap;
    uint32_t ops; /* inbox operations under way that refer to it */
    sl_mono_ms detached_at;
    sl_node node; /* of the loop's list of devices */
    uint32_t id_len;
    uint8_t id[];
} device;

/* One record of a pack. */
typedef struct pack_row {
    sl_log_record rec;
    sl_inbox_row row;
    uint64_t generation;
    uint8_t head[8];
    uint8_t *props; /* owned: length and properties with our subscription identifiers, or NULL */
    struct pack_row *next; /* of the same client */
} pack_row;

/* The rows of one client in the pack: one add. */
typedef struct pack_add {
    sl_slice client; /* key of its first record */
    device *dv;      /* borrowed; looked up again at completion */
    pack_row *first, *last;
    uint32_t count;
    bool taken, done;
    uint64_t first_row;
} pack_add;

typedef struct pack {
    sl_log_batch batches[PACK_BATCHES];
    size_t batch_count;
    pack_row *rows; /* owned */
    uint32_t row_count, row_cap;
    pack_add *adds; /* owned */
    uint32_t add_count, add_cap;
    uint32_t next_add; /* adds before it have been taken by the inbox */
    uint32_t open;     /* taken, not stored */
} pack;

/* An acknowledgement that the inbox could not take yet. */
typedef struct pending_ack {
    struct pending_ack *next;
    device *dv;
    uint16_t packet_id;
    uint8_t kind;
} pending_ack;

typedef struct clear_op {
    sl_mail mail;
    sl_device_loop *dl;
    struct clear_op *next;
    sl_client *cl; /* referenced */
    uint64_t generation;
    sl_loop *lp;
    void (*done)(void *arg);
    void *arg;
} clear_op;

struct sl_device_loop {
    sl_core *core;
    sl_loop *lp;
    unsigned index;
    unsigned shard;
    sl_log_consumer *consumer;
    sl_inbox *inbox;
    sl_map *by_id;     /* device */
    sl_imap *by_index; /* attached devices, by index of the client */
    sl_list devices;
    pack pk;
    bool packing;
    clear_op *clears, *clears_last; /* to be taken by the inbox */
    pending_ack *acks, *acks_last;
    sl_delivery_mail **out; /* per I/O loop, being filled */
    sl_timer retry, tidy;
    sl_mail poll_mail, drain_mail;
    _Atomic bool poll_posted;
    sl_wall_ms started_at;
    bool stopping;
};

/* What an inbox completion belongs to. */
typedef struct op_ref {
    uint32_t add;        /* of an add: index in the pack */
    device *dv;          /* of a read, a marker, and an add's second completion */
    uint64_t session_id; /* of the connection it is for */
    uint64_t first_row;
    uint16_t packet_id;
    clear_op *clear;
    bool again; /* a second completion follows */
} op_ref;

static void pump(sl_device_loop *dl, device *dv);
static void take_acks(sl_device_loop *dl);
static sl_err give_ack(sl_device_loop *dl, device *dv, uint16_t packet_id, uint8_t kind);
static void take_clears(sl_device_loop *dl);
static void take_pack(sl_device_loop *dl);

static void count(sl_device_loop *dl, unsigned stat, int64_t delta)
{
    sl_stats_add(dl->core->stats, dl->shard, stat, delta);
}

/* dv (may be NULL) stays at least as long as the reference. */
static op_ref *new_ref(device *dv)
{
    op_ref *ref = sl_calloc(1, sizeof(*ref));
    ref->dv = dv;
    if (dv != NULL) {
        ref->session_id = dv->session_id;
        dv->ops++;
    }
    return ref;
}

static void free_ref(op_ref *ref)
{
    if (ref->dv != NULL)
        ref->dv->ops--;
    sl_free(ref);
}

/* ---- devices
 * --------------------------------------------------------------------------------------------- */

static sl_slice device_id(const device *dv)
{
    return sl_slice_of(dv->id, dv->id_len);
}

static device *get_device(sl_device_loop *dl, sl_slice id)
{
    device *dv = sl_map_get(dl->by_id, id);
    if (dv != NULL)
        return dv;
    dv = sl_calloc(1, sizeof(*dv) + id.len);
    dv->id_len = (uint32_t)id.len;
    memcpy(dv->id, id.ptr, id.len);
    sl_err err = sl_map_put(dl->by_id, id, dv, NULL);
    SL_ASSERT(err == SL_OK);
    sl_list_push_back(&dl->devices, &dv->node);
    return dv;
}

static void free_device(sl_device_loop *dl, device *dv)
{
    (void)sl_map_remove(dl->by_id, device_id(dv));
    sl_list_remove(&dv->node);
    sl_client_unref(&dv->cl);
    sl_free(dv->syncing);
    sl_free(dv);
}

/* Up to which row QoS 2 messages may leave. */
static uint64_t synced_row(const device *dv)
{
    return dv->syncing_count == 0 ? UINT64_MAX : dv->syncing[0] - 1;
}

static void add_syncing(device *dv, uint64_t first_row)
{
    if (dv->syncing_count == dv->syncing_cap) {
        dv->syncing_cap = dv->syncing_cap == 0 ? 4 : dv->syncing_cap * 2;
        dv->syncing = sl_realloc(dv->syncing, dv->syncing_cap * sizeof(*dv->syncing));
    }
    dv->syncing[dv->syncing_count++] = first_row;
}

static void end_syncing(device *dv, uint64_t first_row)
{
    for (uint32_t i = 0; i < dv->syncing_count; i++) {
        if (dv->syncing[i] == first_row) {
            dv->syncing_count--;
            memmove(dv->syncing + i, dv->syncing + i + 1,
                    (dv->syncing_count - i) * sizeof(*dv->syncing));
            return;
        }
    }
}

static bool window_open(const device *dv)
{
    uint32_t max = dv->receive_max < WINDOW_ROWS ? dv->receive_max : WINDOW_ROWS;
    return dv->open < max && (dv->open == 0 || dv->open_bytes < WINDOW_BYTES);
}

static sl_delivery_mail *mail_to(sl_device_loop *dl, unsigned loop)
{
    if (dl->out[loop] == NULL)
        dl->out[loop] = sl_delivery_mail_new(dl->core->ios[loop]);
    return dl->out[loop];
}

static void post_all(sl_device_loop *dl)
{
    for (unsigned i = 0; i < dl->core->io_count; i++)
        sl_delivery_post(&dl->out[i]);
}

/* Hands a row to the connection. packet: an MQTT 5 PUBLISH inside body. */
static void hand_out(sl_device_loop *dl, device *dv, const sl_inbox_entry *en, sl_rbuf *body)
{
    sl_delivery_mail *dm = mail_to(dl, dv->route.loop);
    sl_delivery item = {.slot = dv->route.slot,
                        .gen = dv->route.gen,
                        .packet_id = en->packet_id,
                        .qos = en->qos,
                        .flags = SL_DELIVER_INBOX};
    dv->sent_row = en->row;
    if (en->kind == SL_INBOX_PUBREL) {
        item.flags |= SL_DELIVER_PUBREL;
        dv->open++;
        sl_delivery_add(dm, &item, NULL, 0);
        return;
    }
    sl_out_msg msg;
    if (sl_out_msg_init(&msg, en->packet, body, en->time_ms) != SL_OK) {
        // A damaged row would block its box for ever.
        count(dl, SL_BS_DROP_DAMAGED, 1);
        if (give_ack(dl, dv, en->packet_id, SL_DEVICE_REMOVE) != SL_OK)
            sl_warn(SL_C_INBOX, "DAMAGED-ROW-STAYS", SL_B("client", device_id(dv)),
                    SL_U("packet_id", en->packet_id));
        return;
    }
    bool old = en->row <= dv->seen_row || (dv->dup_old && en->time_ms < dl->started_at);
    if (old) {
        item.flags |= SL_DELIVER_DUP; // [MQTT-3.3.1-1]
        count(dl, SL_BS_INBOX_REDELIVERED, 1);
    }
    if ((en->flags & SL_INBOX_RETAIN) != 0)
        item.flags |= SL_DELIVER_RETAIN;
    if (dv->seen_row < en->row)
        dv->seen_row = en->row;
    dv->open++;
    dv->open_bytes += en->packet.len;
    item.msg = sl_delivery_add_msg(dm, &msg);
    sl_delivery_add(dm, &item, NULL, 0);
}

/* ---- reading on from the inbox
 * ------------------------------------------------------------------------------ */

/* Reads on when something is to be read and there is room in the window. */
static void pump(sl_device_loop *dl, device *dv)
{
    if (!dv->attached || dv->up_to_date || dv->reading || !window_open(dv) || dl->stopping)
        return;
    uint32_t max = dv->receive_max < WINDOW_ROWS ? dv->receive_max : WINDOW_ROWS;
    uint32_t rows = max - dv->open < READ_ROWS ? max - dv->open : READ_ROWS;
    op_ref *ref = new_ref(dv);
    sl_err err = sl_inbox_read(dl->inbox, device_id(dv), dv->generation, dv->sent_row, rows,
                               READ_BYTES, (uintptr_t)ref);
    if (err == SL_OK) {
        dv->reading = true;
        dv->stored_meanwhile = false;
        return;
    }
    free_ref(ref);
    if (err != SL_EAGAIN) // room() pumps again after SL_EAGAIN
        sl_error(SL_C_INBOX, "INBOX-NOT-READ", SL_B("client", device_id(dv)), SL_E(err));
    sl_timer_start(&dl->retry, RETRY_MS, 0);
}

static void on_read(sl_device_loop *dl, op_ref *ref, const sl_inbox_done *done)
{
    device *dv = ref->dv;
    dv->reading = false;
    if (!dv->attached || dv->session_id != ref->session_id) {
        pump(dl, dv);
        return;
    }
    if (done->err == SL_ENOTFOUND) {
        dv->up_to_date = true; // an older generation: nothing of it is for this session
        return;
    }
    if (done->err != SL_OK) {
        sl_error(SL_C_INBOX, "INBOX-NOT-READ", SL_B("client", device_id(dv)), SL_E(done->err));
        sl_timer_start(&dl->retry, RETRY_MS, 0);
        return;
    }
    bool all = true;
    for (size_t i = 0; i < done->entry_count; i++) {
        const sl_inbox_entry *en = &done->entries[i];
        bool waits = en->kind == SL_INBOX_PUBLISH && en->qos == 2 && en->row > synced_row(dv);
        if (waits || !window_open(dv)) {
            all = false;
            break;
        }
        hand_out(dl, dv, en, done->body);
    }
    dv->up_to_date = all && !done->more && !dv->stored_meanwhile;
    if (!dv->up_to_date && all)
        pump(dl, dv);
    post_all(dl);
}

/* ---- packs
 * --------------------------------------------------------------------------------------------------
 */

static uint64_t get_u64(sl_slice value)
{
    uint64_t number = 0;
    for (size_t i = 0; i < value.len && i < 8; i++)
        number = number << 8 | value.ptr[i];
    return number;
}

/* The receiver's copy: QoS and RETAIN granted to it, its subscription identifiers. */
static bool make_row(pack_row *pr)
{
    const sl_log_record *rec = &pr->rec;
    sl_slice generation = {0}, sub_qos = {0}, ids = {0}, origin = {0};
    sl_mqtt_publish_layout lay;
    if (!rec->is_derived || !sl_log_header_find(rec->headers, SL_LOG_H_GENERATION, &generation) ||
        generation.len != 8 || !sl_log_header_find(rec->headers, SL_LOG_H_SUB_QOS, &sub_qos) ||
        sub_qos.len != 1 || sl_mqtt_publish_lay_out(rec->value, &lay) != SL_OK)
        return false;
    (void)sl_log_header_find(rec->headers, SL_LOG_H_ORIGIN, &origin);
    bool has_ids = sl_log_header_find(rec->headers, SL_LOG_H_SUB_IDS, &ids) && ids.len >= 4;
    uint8_t stored_qos = lay.first >> 1 & 3, granted = sub_qos.ptr[0] & 3;
    uint8_t qos = granted < stored_qos ? granted : stored_qos;
    bool retain = (sub_qos.ptr[0] & 4) != 0;
    if (qos == 0)
        return false;
    pr->generation = get_u64(generation);
    pr->row = (sl_inbox_row){.source_partition = rec->source_partition,
                             .source_offset = rec->source_offset,
                             .origin = get_u64(origin),
                             .qos = qos,
                             .flags = retain ? SL_INBOX_RETAIN : 0,
                             .time_ms = rec->time_ms};
    sl_out_msg msg;
    if (sl_out_msg_init(&msg, rec->value, rec->body, rec->time_ms) == SL_OK && msg.has_expiry)
        pr->row.expires_at_ms = msg.expires_at;
    uint8_t first = (uint8_t)(SL_MQTT_PUBLISH << 4 | qos << 1 | (retain ? 1 : 0));
    const uint8_t *base = rec->value.ptr;
    uint32_t id_bytes = 0;
    for (size_t at = 0; has_ids && at + 4 <= ids.len; at += 4)
        id_bytes += 1 + sl_mqtt_varint_size((uint32_t)get_u64(sl_slice_of(ids.ptr + at, 4)));
    uint32_t props = lay.props_len + id_bytes;
    uint32_t topic_and_id = 2 + lay.topic_len + 2;
    uint32_t remaining = topic_and_id + sl_mqtt_varint_size(props) + props + lay.payload_len;
    pr->row.packet[0] = sl_slice_of(pr->head, sl_mqtt_publish_head(pr->head, first, remaining));
    if (id_bytes == 0) { // everything behind the head stays as it is
        pr->row.packet[1] = sl_slice_of(base + lay.topic_off, remaining);
        return true;
    }
    pr->props = sl_alloc(4 + props);
    uint8_t *at = pr->props + sl_mqtt_varint_write(pr->props, props);
    memcpy(at, base + lay.props_off, lay.props_len);
    at += lay.props_len;
    for (size_t i = 0; i + 4 <= ids.len; i += 4) {
        *at++ = 0x0B; // subscription identifier
        at += sl_mqtt_varint_write(at, (uint32_t)get_u64(sl_slice_of(ids.ptr + i, 4)));
    }
    pr->row.packet[1] = sl_slice_of(base + lay.topic_off, topic_and_id);
    pr->row.packet[2] = sl_slice_of(pr->props, (size_t)(at - pr->props));
    pr->row.packet[3] = sl_slice_of(base + lay.payload_off, lay.payload_len);
    return true;
}

/* Puts a row with those of its client; a generation change or a full add begins another add. */
static void group_row(sl_device_loop *dl, sl_map *groups, uint32_t at)
{
    pack *pk = &dl->pk;
    pack_row *pr = &pk->rows[at];
    uintptr_t known = (uintptr_t)sl_map_get(groups, pr->rec.key);
    pack_add *add = known != 0 ? &pk->adds[known - 1] : NULL;
    if (add == NULL || add->count == MAX_ROWS_OF_ADD || add->last->generation != pr->generation) {
        if (pk->add_count == pk->add_cap) {
            pk->add_cap = pk->add_cap == 0 ? 64 : pk->add_cap * 2;
            pk->adds = sl_realloc(pk->adds, pk->add_cap * sizeof(*pk->adds));
        }
        add = &pk->adds[pk->add_count++];
        *add = (pack_add){.client = pr->rec.key, .first = pr, .last = pr, .count = 1};
        sl_err err = sl_map_put(groups, pr->rec.key, (void *)(uintptr_t)pk->add_count, NULL);
        SL_ASSERT(err == SL_OK);
        return;
    }
    add->last->next = pr;
    add->last = pr;
    add->count++;
}

static void read_pack(sl_device_loop *dl)
{
    pack *pk = &dl->pk;
    size_t total = 0;
    for (size_t b = 0; b < pk->batch_count; b++)
        total += pk->batches[b].count;
    if (total > pk->row_cap) {
        pk->row_cap = (uint32_t)total;
        pk->rows = sl_realloc(pk->rows, total * sizeof(*pk->rows));
    }
    pk->row_count = pk->add_count = pk->next_add = pk->open = 0;
    for (size_t b = 0; b < pk->batch_count; b++) {
        size_t pos = 0;
        sl_log_record rec;
        while (pk->row_count < total && sl_log_batch_next(&pk->batches[b], &pos, &rec)) {
            pack_row *pr = &pk->rows[pk->row_count];
            *pr = (pack_row){.rec = rec};
            if (make_row(pr)) {
                pk->row_count++;
            } else {
                count(dl, SL_BS_DAMAGED_RECORDS, 1);
                sl_warn(SL_C_INBOX, "PERSISTED-RECORD-DAMAGED", SL_B("client", rec.key),
                        SL_U("offset", rec.offset));
            }
        }
    }
    sl_map *groups = sl_map_new(0); // bounded by the pack
    for (uint32_t i = 0; i < pk->row_count; i++)
        group_row(dl, groups, i);
    sl_map_free(&groups);
}

static void finish_pack(sl_device_loop *dl)
{
    pack *pk = &dl->pk;
    for (size_t b = 0; b < pk->batch_count; b++) {
        sl_err err = sl_inbox_commit_behind(dl->inbox, SL_DEVICE_GROUP, pk->batches[b].topic,
                                            pk->batches[b].partition, pk->batches[b].next);
        if (err != SL_OK && err != SL_EAGAIN) // a later pack commits further
            sl_warn(SL_C_INBOX, "OFFSET-NOT-COMMITTED", SL_U("partition", pk->batches[b].partition),
                    SL_E(err));
        sl_log_batch_release(&pk->batches[b]);
    }
    for (uint32_t i = 0; i < pk->row_count; i++)
        sl_free(pk->rows[i].props);
    pk->batch_count = 0;
    dl->packing = false;
}

/* Rows of an add that was just stored: straight to the connection when nothing waits before them.
 */
static void deliver_add(sl_device_loop *dl, device *dv, const pack_add *add,
                        const sl_inbox_done *done)
{
    if (dv == NULL || !dv->attached)
        return;
    dv->stored_meanwhile = true;
    size_t at = 0;
    for (const pack_row *pr = add->first; pr != NULL && at < done->assigned_count;
         pr = pr->next, at++) {
        const sl_inbox_assigned *as = &done->assigned[at];
        if (as->row == 0)
            continue;
        sl_msg_trace_step(dl->core->trace, SL_STEP_INBOXED, pr->row.source_partition,
                          pr->row.source_offset, dv->index);
        if (!dv->up_to_date || dv->reading || pr->generation != dv->generation ||
            as->row <= dv->sent_row)
            continue;
        bool direct =
            window_open(dv) && pr->props == NULL && !(pr->row.qos == 2 && as->row > synced_row(dv));
        if (!direct) {
            dv->up_to_date = false;
            continue;
        }
        sl_inbox_entry en = {.row = as->row,
                             .packet_id = as->packet_id,
                             .qos = pr->row.qos,
                             .flags = pr->row.flags,
                             .time_ms = pr->row.time_ms,
                             .packet = pr->rec.value};
        hand_out(dl, dv, &en, pr->rec.body);
    }
    pump(dl, dv);
}

static void on_add(sl_device_loop *dl, op_ref *ref, const sl_inbox_done *done)
{
    pack *pk = &dl->pk;
    pack_add *add = &pk->adds[ref->add];
    pk->open--;
    if (done->err != SL_OK) {
        // Tried again, and nothing later of these partitions is taken before it has succeeded.
        static sl_log_limit limit;
        uint32_t held = 0;
        if (sl_log_limit_pass(&limit, 1, 10000, &held))
            sl_error(SL_C_INBOX, "INBOX-NOT-WRITTEN", SL_B("client", add->client), SL_E(done->err),
                     SL_U("suppressed", held));
        add->taken = false;
        if (ref->add < pk->next_add)
            pk->next_add = ref->add;
        sl_timer_start(&dl->retry, RETRY_MS, 0);
        return;
    }
    add->done = true;
    device *dv = sl_map_get(dl->by_id, add->client);
    for (size_t i = 0; i < done->assigned_count && add->first_row == 0; i++)
        add->first_row = done->assigned[i].row;
    ref->again = done->durable_follows;
    if (ref->again && add->first_row != 0) {
        dv = get_device(dl, add->client); // remembers that rows are not synced yet
        if (!dv->attached)
            dv->detached_at = sl_loop_now(dl->lp);
        add_syncing(dv, add->first_row);
        dv->ops++;
        ref->dv = dv;
        ref->first_row = add->first_row;
    }
    deliver_add(dl, dv, add, done);
}

static void on_add_synced(sl_device_loop *dl, const op_ref *ref, const sl_inbox_done *done)
{
    (void)done; // an error here: the rows are not kept back for ever, the log has reported it
    if (ref->dv == NULL)
        return;
    end_syncing(ref->dv, ref->first_row);
    pump(dl, ref->dv);
}

/* Gives adds to the inbox until it has no room or all are taken. */
static void take_adds(sl_device_loop *dl)
{
    pack *pk = &dl->pk;
    bool full = false;
    uint32_t first_left = pk->add_count;
    for (uint32_t i = pk->next_add; i < pk->add_count; i++) {
        pack_add *add = &pk->adds[i];
        if (add->taken || add->done)
            continue;
        sl_err err = SL_EAGAIN;
        if (!full) {
            sl_inbox_row *rows = sl_alloc(add->count * sizeof(*rows));
            uint32_t n = 0;
            for (const pack_row *pr = add->first; pr != NULL; pr = pr->next)
                rows[n++] = pr->row;
            op_ref *ref = new_ref(NULL);
            ref->add = i;
            err = sl_inbox_add(dl->inbox, add->client, add->first->generation, rows, n,
                               dl->core->limits.inbox_limit, (uintptr_t)ref);
            sl_free(rows);
            if (err != SL_OK)
                free_ref(ref);
        }
        if (err == SL_OK) {
            add->taken = true;
            pk->open++;
            continue;
        }
        if (i < first_left)
            first_left = i;
        if (err != SL_EAGAIN) {
            sl_error(SL_C_INBOX, "INBOX-NOT-WRITTEN", SL_B("client", add->client), SL_E(err));
            sl_timer_start(&dl->retry, RETRY_MS, 0);
        }
    }
    pk->next_add = first_left;
}

static void take_pack(sl_device_loop *dl)
{
    if (!dl->packing)
        return;
    take_adds(dl);
    pack *pk = &dl->pk;
    if (pk->open == 0 && pk->next_add == pk->add_count) {
        finish_pack(dl);
        if (!atomic_exchange(&dl->poll_posted, true))
            sl_loop_post(dl->lp, &dl->poll_mail);
    }
}

static void on_poll(sl_mail *mail)
{
    sl_device_loop *dl = SL_CONTAINER(mail, sl_device_loop, poll_mail);
    atomic_store(&dl->poll_posted, false);
    if (dl->packing || dl->stopping)
        return;
    size_t n = 0;
    if (sl_log_consumer_poll(dl->consumer, dl->pk.batches, PACK_BATCHES, 0, &n) != SL_OK || n == 0)
        return;
    dl->pk.batch_count = n;
    dl->packing = true;
    read_pack(dl);
    take_pack(dl);
}

static void wake_poll(void *arg)
{
    sl_device_loop *dl = arg;
    if (!atomic_exchange(&dl->poll_posted, true))
        sl_loop_post(dl->lp, &dl->poll_mail);
}

/* ---- the inbox's completions
 * ----------------------------------------------------------------------------------- */

static void on_pubrel_marked(sl_device_loop *dl, const op_ref *ref, const sl_inbox_done *done)
{
    device *dv = ref->dv;
    if (!dv->attached || dv->session_id != ref->session_id)
        return;
    if (done->err != SL_OK && done->err != SL_ENOTFOUND) {
        sl_error(SL_C_INBOX, "PUBREL-NOT-STORED", SL_B("client", device_id(dv)),
                 SL_E(done->err)); // the client sends PUBREC again when it returns
        return;
    }
    sl_delivery item = {.slot = dv->route.slot,
                        .gen = dv->route.gen,
                        .packet_id = ref->packet_id,
                        .qos = 2,
                        .flags = SL_DELIVER_INBOX | SL_DELIVER_PUBREL};
    sl_delivery_add(mail_to(dl, dv->route.loop), &item, NULL, 0);
}

static void on_cleared(sl_device_loop *dl, op_ref *ref, const sl_inbox_done *done)
{
    clear_op *op = ref->clear;
    if (done->err != SL_OK && done->err != SL_ENOTFOUND) { // again, until it is empty
        op->next = dl->clears;
        dl->clears = op;
        if (dl->clears_last == NULL)
            dl->clears_last = op;
        sl_timer_start(&dl->retry, RETRY_MS, 0);
        return;
    }
    if (op->done != NULL)
        sl_loop_call(op->lp, op->done, op->arg);
    sl_client_unref(&op->cl);
    sl_free(op);
}

static void on_inbox_done(void *arg, const sl_inbox_done *done)
{
    sl_device_loop *dl = arg;
    op_ref *ref = (op_ref *)(uintptr_t)done->token;
    ref->again = false;
    switch (done->op) {
    case SL_INBOX_OP_ADD:
        on_add(dl, ref, done);
        break;
    case SL_INBOX_OP_ADD_DURABLE:
        on_add_synced(dl, ref, done);
        break;
    case SL_INBOX_OP_READ:
        on_read(dl, ref, done);
        break;
    case SL_INBOX_OP_MARK_PUBREL:
        on_pubrel_marked(dl, ref, done);
        break;
    case SL_INBOX_OP_CLEAR:
        on_cleared(dl, ref, done);
        break;
    default:
        break;
    }
    if (!ref->again)
        free_ref(ref);
}

static void on_inbox_room(void *arg)
{
    sl_device_loop *dl = arg;
    take_clears(dl);
    take_acks(dl);
    sl_timer_start(&dl->retry, 0, 0);
}

static void after_work(sl_device_loop *dl)
{
    take_pack(dl);
    post_all(dl);
}

static void on_drain(sl_mail *mail)
{
    sl_device_loop *dl = SL_CONTAINER(mail, sl_device_loop, drain_mail);
    if (dl->inbox == NULL)
        return;
    (void)sl_inbox_drain(dl->inbox);
    after_work(dl);
}

static void wake_drain(void *arg)
{
    sl_device_loop *dl = arg;
    sl_loop_post(dl->lp, &dl->drain_mail);
}

static void on_retry(void *arg)
{
    sl_device_loop *dl = arg;
    take_clears(dl);
    take_acks(dl);
    sl_node *node = sl_list_first(&dl->devices);
    for (; node != NULL; node = sl_list_next(&dl->devices, node))
        pump(dl, SL_CONTAINER(node, device, node));
    after_work(dl);
}

/* ---- letters from the I/O loops and the session loop
 * -------------------------------------------------------------- */

static sl_device_loop *loop_of(sl_core *core, const sl_client *cl)
{
    uint16_t partition = sl_log_partition_of(core->t_persisted, sl_client_id(cl));
    return core->devices[partition % core->device_count];
}

typedef struct attach_mail {
    sl_mail mail;
    sl_device_loop *dl;
    sl_client *cl; /* referenced */
    sl_device_attachment at;
} attach_mail;

static void detach(sl_device_loop *dl, device *dv)
{
    if (!dv->attached)
        return;
    (void)sl_imap_remove(dl->by_index, dv->index);
    dv->attached = false;
    dv->detached_at = sl_loop_now(dl->lp);
    sl_client_unref(&dv->cl);
}

static void on_attach(sl_mail *mail)
{
    attach_mail *am = SL_CONTAINER(mail, attach_mail, mail);
    sl_device_loop *dl = am->dl;
    device *dv = get_device(dl, sl_client_id(am->cl));
    detach(dl, dv);
    if (dv->generation != am->at.generation)
        dv->seen_row = 0; // a new session's box has rows of its own
    dv->cl = am->cl;
    dv->index = am->cl->index;
    dv->attached = true;
    dv->up_to_date = false;
    dv->dup_old = am->at.dup_old;
    dv->session_id = am->at.session_id;
    dv->generation = am->at.generation;
    dv->route = am->at.route;
    dv->receive_max = am->at.receive_max;
    dv->open = 0;
    dv->open_bytes = 0;
    dv->sent_row = 0;
    sl_err err = sl_imap_put(dl->by_index, dv->index, dv, NULL);
    SL_ASSERT(err == SL_OK);
    sl_free(am);
    pump(dl, dv);
}

void sl_device_attach(sl_core *core, sl_client *cl, const sl_device_attachment *at)
{
    attach_mail *am = sl_calloc(1, sizeof(*am));
    am->mail.fn = on_attach;
    am->dl = loop_of(core, cl);
    am->cl = cl;
    am->at = *at;
    sl_client_ref(cl);
    sl_loop_post(am->dl->lp, &am->mail);
}

static void on_detach(sl_mail *mail)
{
    attach_mail *am = SL_CONTAINER(mail, attach_mail, mail);
    device *dv = sl_map_get(am->dl->by_id, sl_client_id(am->cl));
    if (dv != NULL && dv->session_id == am->at.session_id)
        detach(am->dl, dv);
    sl_client_unref(&am->cl);
    sl_free(am);
}

void sl_device_detach(sl_core *core, sl_client *cl, uint64_t session_id)
{
    attach_mail *am = sl_calloc(1, sizeof(*am));
    am->mail.fn = on_detach;
    am->dl = loop_of(core, cl);
    am->cl = cl;
    am->at.session_id = session_id;
    sl_client_ref(cl);
    sl_loop_post(am->dl->lp, &am->mail);
}

static void take_clears(sl_device_loop *dl)
{
    while (dl->clears != NULL) {
        clear_op *op = dl->clears;
        op_ref *ref = new_ref(NULL);
        ref->clear = op;
        sl_err err =
            sl_inbox_clear(dl->inbox, sl_client_id(op->cl), op->generation, (uintptr_t)ref);
        if (err != SL_OK) {
            free_ref(ref);
            if (err != SL_EAGAIN)
                sl_error(SL_C_INBOX, "INBOX-NOT-CLEARED", SL_B("client", sl_client_id(op->cl)),
                         SL_E(err));
            sl_timer_start(&dl->retry, RETRY_MS, 0);
            return;
        }
        dl->clears = op->next;
        if (dl->clears == NULL)
            dl->clears_last = NULL;
    }
}

static void on_clear(sl_mail *mail)
{
    clear_op *op = SL_CONTAINER(mail, clear_op, mail);
    sl_device_loop *dl = op->dl;
    op->next = NULL;
    if (dl->clears_last != NULL)
        dl->clears_last->next = op;
    else
        dl->clears = op;
    dl->clears_last = op;
    take_clears(dl);
}

void sl_device_clear(sl_core *core, sl_client *cl, uint64_t generation, sl_loop *lp,
                     void (*done)(void *arg), void *arg)
{
    clear_op *op = sl_calloc(1, sizeof(*op));
    op->mail.fn = on_clear;
    op->dl = loop_of(core, cl);
    op->cl = cl;
    op->generation = generation;
    op->lp = lp;
    op->done = done;
    op->arg = arg;
    sl_client_ref(cl);
    sl_loop_post(op->dl->lp, &op->mail);
}

/* ---- acknowledgements
 * -----------------------------------------------------------------------------------------------
 */

typedef struct ack_item {
    uint32_t index;
    uint16_t packet_id;
    uint8_t kind;
    uint64_t session_id;
} ack_item;

struct sl_device_acks {
    sl_mail mail;
    sl_device_loop *dl;
    uint32_t count, cap;
    ack_item *items; /* owned */
};

static sl_err give_ack(sl_device_loop *dl, device *dv, uint16_t packet_id, uint8_t kind)
{
    op_ref *ref = new_ref(dv);
    ref->packet_id = packet_id;
    sl_err err =
        kind == SL_DEVICE_PUBREC
            ? sl_inbox_mark_pubrel(dl->inbox, device_id(dv), dv->generation, packet_id,
                                   (uintptr_t)ref)
            : sl_inbox_remove(dl->inbox, device_id(dv), dv->generation, packet_id, (uintptr_t)ref);
    if (err != SL_OK)
        free_ref(ref);
    return err;
}

static void free_slot(device *dv)
{
    if (dv->open == 0)
        return;
    dv->open_bytes -= dv->open_bytes / dv->open; // sizes are not kept: a share of the sum
    dv->open--;
}

static void take_acks(sl_device_loop *dl)
{
    while (dl->acks != NULL) {
        pending_ack *pa = dl->acks;
        sl_err err = give_ack(dl, pa->dv, pa->packet_id, pa->kind);
        if (err == SL_EAGAIN)
            return;
        dl->acks = pa->next;
        if (dl->acks == NULL)
            dl->acks_last = NULL;
        sl_free(pa);
    }
}

static void on_ack(sl_device_loop *dl, const ack_item *it)
{
    device *dv = sl_imap_get(dl->by_index, it->index);
    if (dv == NULL || dv->session_id != it->session_id)
        return; // of an older connection: the rows are sent again
    if (it->kind == SL_DEVICE_REMOVE)
        free_slot(dv);
    sl_err err = dl->acks != NULL ? SL_EAGAIN : give_ack(dl, dv, it->packet_id, it->kind);
    if (err == SL_EAGAIN) { // bounded by the windows of the clients
        pending_ack *pa = sl_calloc(1, sizeof(*pa));
        *pa = (pending_ack){.dv = dv, .packet_id = it->packet_id, .kind = it->kind};
        if (dl->acks_last != NULL)
            dl->acks_last->next = pa;
        else
            dl->acks = pa;
        dl->acks_last = pa;
    } else if (err != SL_OK) {
        sl_error(SL_C_INBOX, "INBOX-NOT-WRITTEN", SL_B("client", device_id(dv)), SL_E(err));
    }
    pump(dl, dv);
}

static void on_acks(sl_mail *mail)
{
    struct sl_device_acks *da = SL_CONTAINER(mail, struct sl_device_acks, mail);
    for (uint32_t i = 0; i < da->count; i++)
        on_ack(da->dl, &da->items[i]);
    sl_free(da->items);
    sl_free(da);
}

void sl_device_acked(sl_io *io, uint32_t client_index, uint64_t session_id, uint16_t packet_id,
                     sl_device_ack kind)
{
    // The client is ours while its connection is: found by its index, for its loop.
    const sl_client *cl = sl_registry_at(io->core->registry, client_index);
    SL_ASSERT(cl != NULL);
    sl_device_loop *dl = loop_of(io->core, cl);
    struct sl_device_acks *da = io->acks[dl->index];
    if (da == NULL) {
        da = io->acks[dl->index] = sl_calloc(1, sizeof(*da));
        da->mail.fn = on_acks;
        da->dl = dl;
    }
    if (da->count == da->cap) {
        da->cap = da->cap == 0 ? 64 : da->cap * 2;
        da->items = sl_realloc(da->items, da->cap * sizeof(*da->items));
    }
    da->items[da->count++] = (ack_item){
        .index = client_index, .packet_id = packet_id, .kind = kind, .session_id = session_id};
}

void sl_device_post_acks(sl_io *io)
{
    for (unsigned i = 0; i < io->core->device_count; i++) {
        struct sl_device_acks *da = io->acks[i];
        io->acks[i] = NULL;
        if (da != NULL)
            sl_loop_post(da->dl->lp, &da->mail);
    }
}

/* ---- life
 * --------------------------------------------------------------------------------------------------------------
 */

/* Devices of clients that have been away for long are forgotten. */
static void on_tidy(void *arg)
{
    sl_device_loop *dl = arg;
    sl_mono_ms now = sl_loop_now(dl->lp);
    sl_node *node = sl_list_first(&dl->devices), *next;
    for (; node != NULL; node = next) {
        next = sl_list_next(&dl->devices, node);
        device *dv = SL_CONTAINER(node, device, node);
        if (!dv->attached && dv->ops == 0 && dl->acks == NULL &&
            now - dv->detached_at >= KEEP_DETACHED_MS)
            free_device(dl, dv);
    }
}

static void start_on_loop(void *arg)
{
    sl_device_loop *dl = arg;
    dl->shard = sl_stats_shard(dl->core->stats);
    sl_timer_init(&dl->retry, dl->lp, on_retry, dl);
    sl_timer_init(&dl->tidy, dl->lp, on_tidy, dl);
    sl_timer_start(&dl->tidy, KEEP_DETACHED_MS / 5, KEEP_DETACHED_MS / 5);
    wake_poll(dl);
}

sl_err sl_device_loop_new(sl_core *core, unsigned index, sl_device_loop **out)
{
    sl_device_loop *dl = sl_calloc(1, sizeof(*dl));
    dl->core = core;
    dl->index = index;
    dl->started_at = sl_clock_wall(core->clock);
    dl->by_id = sl_map_new(0); // bounded by the registry
    dl->by_index = sl_imap_new(0);
    sl_list_init(&dl->devices);
    dl->out = sl_calloc(core->io_count, sizeof(sl_delivery_mail *));
    dl->poll_mail.fn = on_poll;
    dl->drain_mail.fn = on_drain;
    char name[16];
    snprintf(name, sizeof(name), "device-%u", index);
    sl_err err = sl_loop_new(name, core->clock, &dl->lp);
    sl_inbox_options io = {.log = core->log,
                           .clock = core->clock,
                           .default_ttl_ms = core->limits.inbox_ttl,
                           .max_cached = 65536,
                           .wake = wake_drain,
                           .done = on_inbox_done,
                           .room = on_inbox_room,
                           .arg = dl,
                           .stats = core->stats,
                           .stats_base = SL_BS_INBOX,
                           .stats_shard = SL_STATS_SHARDS - 1};
    if (err == SL_OK)
        err = sl_inbox_open(&sl_inbox_embedded_ops, &io, &dl->inbox);
    sl_log_consumer_options co = {.group = SL_DEVICE_GROUP,
                                  .reset = SL_LOG_EARLIEST,
                                  .both_stages = false,
                                  .wake = wake_poll,
                                  .wake_arg = dl,
                                  .max_batch_bytes = PACK_BYTES};
    if (err == SL_OK)
        err = sl_log_consumer_open(core->log, &co, &dl->consumer);
    if (err != SL_OK) {
        sl_device_loop_free(&dl);
        return err;
    }
    *out = dl;
    return SL_OK;
}

sl_err sl_device_loop_start(sl_device_loop *dl)
{
    uint16_t partitions = sl_log_topic_partitions(dl->core->t_persisted);
    for (uint16_t p = 0; p < partitions; p++) {
        if (p % dl->core->device_count != dl->index)
            continue;
        sl_err err =
            sl_log_consumer_assign(dl->consumer, dl->core->t_persisted, p, SL_LOG_COMMITTED);
        if (err != SL_OK)
            return err;
    }
    sl_err err = sl_loop_start(dl->lp);
    if (err == SL_OK)
        sl_loop_call_wait(dl->lp, start_on_loop, dl);
    return err;
}

static void stop_on_loop(void *arg)
{
    sl_device_loop *dl = arg;
    dl->stopping = true;
    sl_inbox_close(&dl->inbox); // completes what is under way
    sl_timer_fini(&dl->retry);
    sl_timer_fini(&dl->tidy);
    if (dl->packing) {
        for (size_t b = 0; b < dl->pk.batch_count; b++)
            sl_log_batch_release(&dl->pk.batches[b]);
        for (uint32_t i = 0; i < dl->pk.row_count; i++)
            sl_free(dl->pk.rows[i].props);
        dl->packing = false;
    }
    for (unsigned i = 0; i < dl->core->io_count; i++)
        sl_delivery_mail_free(&dl->out[i]);
}

void sl_device_loop_stop(sl_device_loop *dl)
{
    sl_loop_call_wait(dl->lp, stop_on_loop, dl);
    sl_loop_stop(dl->lp);
    sl_loop_join(dl->lp);
}

void sl_device_loop_free(sl_device_loop **pointer)
{
    sl_device_loop *dl = *pointer;
    if (dl == NULL)
        return;
    *pointer = NULL;
    if (dl->inbox != NULL)
        sl_inbox_close(&dl->inbox);
    if (dl->consumer != NULL)
        sl_log_consumer_close(&dl->consumer);
    if (dl->lp != NULL)
        sl_loop_free(&dl->lp);
    for (sl_node *node; (node = sl_list_first(&dl->devices)) != NULL;)
        free_device(dl, SL_CONTAINER(node, device, node));
    while (dl->acks != NULL) {
        pending_ack *pa = dl->acks;
        dl->acks = pa->next;
        sl_free(pa);
    }
    while (dl->clears != NULL) {
        clear_op *op = dl->clears;
        dl->clears = op->next;
        sl_client_unref(&op->cl);
        sl_free(op);
    }
    sl_map_free(&dl->by_id);
    sl_imap_free(&dl->by_index);
    sl_free(dl->pk.rows);
    sl_free(dl->pk.adds);
    sl_free(dl->out);
    sl_free(dl);
}
