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
#include "dispatch/device_int.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "session/io.h"
#include "stats/broker_stats.h"

#define PACK_BYTES       (4u << 20)
#define READ_ROWS        512
#define READ_BYTES       (256u << 10)
#define WINDOW_BYTES     (4u << 20) /* unacknowledged bytes of one client, at least one message */
#define WINDOW_ROWS      8192       /* unacknowledged messages, whatever the client's maximum */
#define KEEP_DETACHED_MS 300000

static void take_acks(sl_device_loop *dl);
static sl_err give_acks(sl_device_loop *dl, device *dv, const uint16_t *packet_ids, size_t count,
                        uint8_t kind);
static void keep_acks(sl_device_loop *dl, device *dv, const uint16_t *packet_ids, size_t count,
                      uint8_t kind);
static void take_clears(sl_device_loop *dl);

void sl_device_count(sl_device_loop *dl, unsigned stat, int64_t delta)
{
    sl_stats_add(dl->core->stats, dl->shard, stat, delta);
}

/* dv (may be NULL) stays at least as long as the reference. */
op_ref *sl_device_new_ref(device *dv)
{
    op_ref *ref = sl_calloc(1, sizeof(*ref));
    ref->dv = dv;
    if (dv != NULL) {
        ref->session_id = dv->session_id;
        dv->ops++;
    }
    return ref;
}

void sl_device_free_ref(op_ref *ref)
{
    if (ref->dv != NULL)
        ref->dv->ops--;
    sl_free(ref);
}

/* ---- devices
 * --------------------------------------------------------------------------------------------- */

sl_slice sl_device_id(const device *dv)
{
    return sl_slice_of(dv->id, dv->id_len);
}

device *sl_device_get(sl_device_loop *dl, sl_slice id)
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
    (void)sl_map_remove(dl->by_id, sl_device_id(dv));
    sl_list_remove(&dv->node);
    sl_client_unref(&dv->cl);
    sl_free(dv->syncing);
    sl_free(dv);
}

/* Up to which row QoS 2 messages may leave. */
uint64_t sl_device_synced_row(const device *dv)
{
    return dv->syncing_count == 0 ? UINT64_MAX : dv->syncing[0] - 1;
}

void sl_device_add_syncing(device *dv, uint64_t first_row)
{
    if (dv->syncing_count == dv->syncing_cap) {
        dv->syncing_cap = dv->syncing_cap == 0 ? 4 : dv->syncing_cap * 2;
        dv->syncing = sl_realloc(dv->syncing, dv->syncing_cap * sizeof(*dv->syncing));
    }
    dv->syncing[dv->syncing_count++] = first_row;
}

void sl_device_end_syncing(device *dv, uint64_t first_row)
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

bool sl_device_window_open(const device *dv)
{
    uint32_t max = dv->receive_max < WINDOW_ROWS ? dv->receive_max : WINDOW_ROWS;
    // What the socket does not take stays in the inbox; the connection says when it goes on.
    if (dv->cl != NULL && atomic_load(&dv->cl->slow))
        return false;
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
void sl_device_hand_out(sl_device_loop *dl, device *dv, const sl_inbox_entry *en, sl_rbuf *body)
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
        sl_device_count(dl, SL_BS_DROP_DAMAGED, 1);
        if (give_acks(dl, dv, &en->packet_id, 1, SL_DEVICE_REMOVE) != SL_OK)
            sl_warn(SL_C_INBOX, "DAMAGED-ROW-STAYS", SL_B("client", sl_device_id(dv)),
                    SL_U("packet_id", en->packet_id));
        return;
    }
    bool old = en->row <= dv->seen_row || (dv->dup_old && en->time_ms < dl->started_at);
    if (old) {
        item.flags |= SL_DELIVER_DUP; // [MQTT-3.3.1-1]
        sl_device_count(dl, SL_BS_INBOX_REDELIVERED, 1);
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
void sl_device_pump(sl_device_loop *dl, device *dv)
{
    if (!dv->attached || dv->up_to_date || dv->reading || dv->waiting ||
        !sl_device_window_open(dv) || dl->stopping)
        return;
    uint32_t max = dv->receive_max < WINDOW_ROWS ? dv->receive_max : WINDOW_ROWS;
    uint32_t rows = max - dv->open < READ_ROWS ? max - dv->open : READ_ROWS;
    op_ref *ref = sl_device_new_ref(dv);
    sl_err err = sl_inbox_read(dl->inbox, sl_device_id(dv), dv->generation, dv->sent_row, rows,
                               READ_BYTES, (uintptr_t)ref);
    if (err == SL_OK) {
        dv->reading = true;
        dv->stored_meanwhile = false;
        return;
    }
    sl_device_free_ref(ref);
    if (err != SL_EAGAIN) // room() pumps again after SL_EAGAIN
        sl_error(SL_C_INBOX, "INBOX-NOT-READ", SL_B("client", sl_device_id(dv)), SL_E(err));
    sl_timer_start(&dl->retry, DEVICE_RETRY_MS, 0);
}

static void on_read(sl_device_loop *dl, op_ref *ref, const sl_inbox_done *done)
{
    device *dv = ref->dv;
    dv->reading = false;
    if (!dv->attached || dv->session_id != ref->session_id) {
        sl_device_pump(dl, dv);
        return;
    }
    if (done->err == SL_ENOTFOUND) {
        dv->up_to_date = true; // an older generation: nothing of it is for this session
        return;
    }
    if (done->err != SL_OK) {
        sl_error(SL_C_INBOX, "INBOX-NOT-READ", SL_B("client", sl_device_id(dv)), SL_E(done->err));
        sl_timer_start(&dl->retry, DEVICE_RETRY_MS, 0);
        return;
    }
    bool all = true;
    for (size_t i = 0; i < done->entry_count; i++) {
        const sl_inbox_entry *en = &done->entries[i];
        bool waits =
            en->kind == SL_INBOX_PUBLISH && en->qos == 2 && en->row > sl_device_synced_row(dv);
        if (waits || !sl_device_window_open(dv)) {
            all = false;
            break;
        }
        sl_device_hand_out(dl, dv, en, done->body);
    }
    dv->up_to_date = all && !done->more && !dv->stored_meanwhile;
    if (done->more && done->entry_count > 0) {
        // One read at a time is on its way to a socket: what is behind it stays in the inbox.
        sl_delivery ask = {.slot = dv->route.slot,
                           .gen = dv->route.gen,
                           .flags = SL_DELIVER_INBOX | SL_DELIVER_ASK};
        sl_delivery_add(mail_to(dl, dv->route.loop), &ask, NULL, 0);
        dv->waiting = true;
    } else if (!dv->up_to_date && all) {
        sl_device_pump(dl, dv);
    }
    post_all(dl);
}

/* ---- the inbox's completions
 * ----------------------------------------------------------------------------------- */

static void on_pubrel_marked(sl_device_loop *dl, const op_ref *ref, const sl_inbox_done *done)
{
    device *dv = ref->dv;
    if (!dv->attached || dv->session_id != ref->session_id)
        return;
    if (done->err != SL_OK && done->err != SL_ENOTFOUND) {
        sl_error(SL_C_INBOX, "PUBREL-NOT-STORED", SL_B("client", sl_device_id(dv)),
                 SL_E(done->err));
        keep_acks(dl, dv, &ref->packet_id, 1, SL_DEVICE_PUBREC); // the client waits for PUBREL
        sl_timer_start(&dl->retry, DEVICE_RETRY_MS, 0);
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
        sl_timer_start(&dl->retry, DEVICE_RETRY_MS, 0);
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
        sl_device_on_add(dl, ref, done);
        break;
    case SL_INBOX_OP_ADD_DURABLE:
        sl_device_on_add_synced(dl, ref);
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
        sl_device_free_ref(ref);
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
    sl_device_take_pack(dl);
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

static sl_err commit(void *arg, sl_log_topic *topic, uint16_t partition, uint64_t offset)
{
    sl_device_loop *dl = arg;
    return sl_log_consumer_commit(dl->consumer, topic, partition, offset);
}

static void on_retry(void *arg)
{
    sl_device_loop *dl = arg;
    take_clears(dl);
    take_acks(dl);
    sl_node *node = sl_list_first(&dl->devices);
    for (; node != NULL; node = sl_list_next(&dl->devices, node))
        sl_device_pump(dl, SL_CONTAINER(node, device, node));
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
    device *dv = sl_device_get(dl, sl_client_id(am->cl));
    detach(dl, dv);
    if (dv->generation != am->at.generation)
        dv->seen_row = 0; // a new session's box has rows of its own
    dv->cl = am->cl;
    dv->index = am->cl->index;
    dv->attached = true;
    dv->up_to_date = false;
    dv->waiting = false;
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
    sl_device_pump(dl, dv);
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
        op_ref *ref = sl_device_new_ref(NULL);
        ref->clear = op;
        sl_err err =
            sl_inbox_clear(dl->inbox, sl_client_id(op->cl), op->generation, (uintptr_t)ref);
        if (err != SL_OK) {
            sl_device_free_ref(ref);
            if (err != SL_EAGAIN)
                sl_error(SL_C_INBOX, "INBOX-NOT-CLEARED", SL_B("client", sl_client_id(op->cl)),
                         SL_E(err));
            sl_timer_start(&dl->retry, DEVICE_RETRY_MS, 0);
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

static sl_err give_acks(sl_device_loop *dl, device *dv, const uint16_t *packet_ids, size_t count,
                        uint8_t kind)
{
    op_ref *ref = sl_device_new_ref(dv);
    ref->packet_id = packet_ids[0];
    sl_err err = kind == SL_DEVICE_PUBREC
                     ? sl_inbox_mark_pubrel(dl->inbox, sl_device_id(dv), dv->generation,
                                            packet_ids[0], (uintptr_t)ref)
                     : sl_inbox_remove(dl->inbox, sl_device_id(dv), dv->generation, packet_ids,
                                       count, (uintptr_t)ref);
    if (err != SL_OK)
        sl_device_free_ref(ref);
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
        sl_err err = give_acks(dl, pa->dv, &pa->packet_id, 1, pa->kind);
        if (err == SL_EAGAIN)
            return;
        dl->acks = pa->next;
        if (dl->acks == NULL)
            dl->acks_last = NULL;
        sl_free(pa);
    }
}

/* The inbox could not take them: later, in order. Bounded by the windows of the clients. */
static void keep_acks(sl_device_loop *dl, device *dv, const uint16_t *packet_ids, size_t count,
                      uint8_t kind)
{
    for (size_t i = 0; i < count; i++) {
        pending_ack *pa = sl_calloc(1, sizeof(*pa));
        *pa = (pending_ack){.dv = dv, .packet_id = packet_ids[i], .kind = kind};
        if (dl->acks_last != NULL)
            dl->acks_last->next = pa;
        else
            dl->acks = pa;
        dl->acks_last = pa;
    }
}

/* A run of answers of one client and kind. */
static void on_ack_run(sl_device_loop *dl, const ack_item *first, const uint16_t *packet_ids,
                       size_t count)
{
    device *dv = sl_imap_get(dl->by_index, first->index);
    if (dv == NULL || dv->session_id != first->session_id)
        return; // of an older connection: the rows are sent again
    if (first->kind == SL_DEVICE_RESUME) {
        dv->waiting = false;
        sl_device_pump(dl, dv);
        return;
    }
    for (size_t i = 0; first->kind == SL_DEVICE_REMOVE && i < count; i++)
        free_slot(dv);
    sl_err err = dl->acks != NULL ? SL_EAGAIN : give_acks(dl, dv, packet_ids, count, first->kind);
    if (err == SL_EAGAIN)
        keep_acks(dl, dv, packet_ids, count, first->kind);
    else if (err != SL_OK)
        sl_error(SL_C_INBOX, "INBOX-NOT-WRITTEN", SL_B("client", sl_device_id(dv)), SL_E(err));
    sl_device_pump(dl, dv);
}

static bool is_same_run(const ack_item *left, const ack_item *right)
{
    return left->kind == SL_DEVICE_REMOVE && right->kind == SL_DEVICE_REMOVE &&
           left->index == right->index && left->session_id == right->session_id;
}

#define ACK_RUN_MAX 512

static void on_acks(sl_mail *mail)
{
    struct sl_device_acks *da = SL_CONTAINER(mail, struct sl_device_acks, mail);
    uint16_t ids[ACK_RUN_MAX];
    for (uint32_t i = 0; i < da->count;) {
        const ack_item *first = &da->items[i];
        size_t count = 0;
        do {
            ids[count++] = da->items[i++].packet_id;
        } while (i < da->count && count < ACK_RUN_MAX && is_same_run(first, &da->items[i]));
        on_ack_run(da->dl, first, ids, count);
    }
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

typedef struct start_call {
    sl_device_loop *dl;
    sl_err err;
} start_call;

/* The consumer is woken from here on, not before: a poll needs all of this. */
static void start_on_loop(void *arg)
{
    start_call *sc = arg;
    sl_device_loop *dl = sc->dl;
    dl->shard = sl_stats_shard(dl->core->stats);
    sl_timer_init(&dl->retry, dl->lp, on_retry, dl);
    sl_timer_init(&dl->tidy, dl->lp, on_tidy, dl);
    sl_timer_start(&dl->tidy, KEEP_DETACHED_MS / 5, KEEP_DETACHED_MS / 5);
    dl->started = true;
    uint16_t partitions = sl_log_topic_partitions(dl->core->t_persisted);
    for (uint16_t p = 0; sc->err == SL_OK && p < partitions; p++) {
        if (p % dl->core->device_count == dl->index)
            sc->err =
                sl_log_consumer_assign(dl->consumer, dl->core->t_persisted, p, SL_LOG_COMMITTED);
    }
    sl_device_wake_poll(dl);
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
    dl->poll_mail.fn = sl_device_on_poll;
    dl->drain_mail.fn = on_drain;
    char name[16];
    snprintf(name, sizeof(name), "device-%u", index);
    sl_err err = sl_loop_new(name, core->clock, &dl->lp);
    sl_inbox_options io = {.log = core->log,
                           .redis = core->inbox_redis,
                           .clock = core->clock,
                           .default_ttl_ms = core->limits.inbox_ttl,
                           .max_cached = 65536,
                           .wake = wake_drain,
                           .done = on_inbox_done,
                           .room = on_inbox_room,
                           .commit = commit,
                           .arg = dl,
                           .stats = core->stats,
                           .stats_base = SL_BS_INBOX,
                           .stats_shard = SL_STATS_SHARDS - 1};
    if (err == SL_OK)
        err = sl_inbox_open(core->inbox_ops, &io, &dl->inbox);
    sl_log_consumer_options co = {.group = SL_DEVICE_GROUP,
                                  .reset = SL_LOG_EARLIEST,
                                  .both_stages = false,
                                  .wake = sl_device_wake_poll,
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
    start_call sc = {.dl = dl, .err = sl_loop_start(dl->lp)};
    if (sc.err == SL_OK)
        sl_loop_call_wait(dl->lp, start_on_loop, &sc);
    return sc.err;
}

static void stop_on_loop(void *arg)
{
    sl_device_loop *dl = arg;
    dl->stopping = true;
    sl_inbox_close(&dl->inbox); // completes what is under way
    sl_timer_fini(&dl->retry);
    sl_timer_fini(&dl->tidy);
    sl_device_drop_pack(dl);
    for (unsigned i = 0; i < dl->core->io_count; i++)
        sl_delivery_mail_free(&dl->out[i]);
}

void sl_device_loop_stop(sl_device_loop *dl)
{
    if (!dl->started)
        return;
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
