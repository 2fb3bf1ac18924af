/* SPDX-License-Identifier: Apache-2.0
 *
 * device_pack: from tbmq.msg.persisted into the inboxes; see device.c for the whole. A pack is what
 * one poll gave; it is finished when every row of it is stored, and then its offset is committed
 * behind the rows.
 */
#include "dispatch/device_int.h"

#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "mqtt/encode.h"
#include "session/io.h"
#include "stats/broker_stats.h"
#include "stats/msg_trace.h"

#define MAX_ROWS_OF_ADD 1024

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
                sl_device_count(dl, SL_BS_DAMAGED_RECORDS, 1);
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
    }
    sl_device_drop_pack(dl);
}

/* Rows of an add that was just stored: straight to the connection when nothing waits before them.
 */
static void deliver_add(sl_device_loop *dl, device *dv, const pack_add *add,
                        const sl_inbox_done *done)
{
    if (dv == NULL || !dv->attached)
        return;
    dv->stored_meanwhile = true;
    if (done->is_repeated && done->dropped > 0)
        dv->up_to_date = false; // rows that look like replays may be of a first attempt
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
        bool direct = sl_device_window_open(dv) && pr->props == NULL &&
                      !(pr->row.qos == 2 && as->row > sl_device_synced_row(dv));
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
        sl_device_hand_out(dl, dv, &en, pr->rec.body);
    }
    sl_device_pump(dl, dv);
}

void sl_device_on_add(sl_device_loop *dl, op_ref *ref, const sl_inbox_done *done)
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
        device *behind = sl_map_get(dl->by_id, add->client);
        if (behind != NULL)
            behind->up_to_date = false; // rows may have been stored all the same
        sl_timer_start(&dl->retry, DEVICE_RETRY_MS, 0);
        return;
    }
    add->done = true;
    device *dv = sl_map_get(dl->by_id, add->client);
    for (size_t i = 0; i < done->assigned_count && add->first_row == 0; i++)
        add->first_row = done->assigned[i].row;
    ref->again = done->durable_follows;
    if (ref->again && add->first_row != 0) {
        dv = sl_device_get(dl, add->client); // remembers that rows are not synced yet
        if (!dv->attached)
            dv->detached_at = sl_loop_now(dl->lp);
        sl_device_add_syncing(dv, add->first_row);
        dv->ops++;
        ref->dv = dv;
        ref->first_row = add->first_row;
    }
    deliver_add(dl, dv, add, done);
}

/* Also after an error: the rows are not kept back for ever, the log has reported it. */
void sl_device_on_add_synced(sl_device_loop *dl, const op_ref *ref)
{
    if (ref->dv == NULL)
        return;
    sl_device_end_syncing(ref->dv, ref->first_row);
    sl_device_pump(dl, ref->dv);
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
            op_ref *ref = sl_device_new_ref(NULL);
            ref->add = i;
            err = sl_inbox_add(dl->inbox, add->client, add->first->generation, rows, n,
                               dl->core->limits.inbox_limit, (uintptr_t)ref);
            sl_free(rows);
            if (err != SL_OK)
                sl_device_free_ref(ref);
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
            sl_timer_start(&dl->retry, DEVICE_RETRY_MS, 0);
        }
    }
    pk->next_add = first_left;
}

void sl_device_take_pack(sl_device_loop *dl)
{
    if (!dl->packing)
        return;
    // A box that is to be emptied for good must not lose what its next session gets meanwhile.
    if (dl->clears == NULL)
        take_adds(dl);
    pack *pk = &dl->pk;
    if (pk->open == 0 && pk->next_add == pk->add_count) {
        finish_pack(dl);
        if (!atomic_exchange(&dl->poll_posted, true))
            sl_loop_post(dl->lp, &dl->poll_mail);
    }
}

void sl_device_on_poll(sl_mail *mail)
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
    sl_device_take_pack(dl);
}

void sl_device_wake_poll(void *arg)
{
    sl_device_loop *dl = arg;
    if (!atomic_exchange(&dl->poll_posted, true))
        sl_loop_post(dl->lp, &dl->poll_mail);
}

void sl_device_drop_pack(sl_device_loop *dl)
{
    pack *pk = &dl->pk;
    if (!dl->packing)
        return;
    for (size_t b = 0; b < pk->batch_count; b++)
        sl_log_batch_release(&pk->batches[b]);
    for (uint32_t i = 0; i < pk->row_count; i++)
        sl_free(pk->rows[i].props);
    pk->batch_count = 0;
    dl->packing = false;
}
