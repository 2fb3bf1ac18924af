/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_embedded: the inbox adapter on rows beside the embedded log. Writes ride in the log's group
 * commits; what a write changes in memory is applied when the log has taken it, so that the next
 * operation builds on it. If such a write fails, the box is reloaded from the store.
 * Owner's thread but for the wake.
 */
#include "store/inbox_embedded_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"

#define KV_NAME "inbox"

/* ---- tasks ----------------------------------------------------------------------------------- */

inbox_task *inbox_task_new(inbox_box *bx, sl_inbox_op op, uint64_t token, size_t assigned)
{
    inbox_task *tk = sl_calloc(1, sizeof(*tk) + assigned * sizeof(tk->assigned[0]));
    tk->bx = bx;
    tk->op = op;
    tk->token = token;
    tk->assigned_count = assigned;
    tk->seq = bx->next_seq++;
    bx->pins++;
    return tk;
}

void inbox_task_free(inbox_task *tk)
{
    sl_list_remove(&tk->node);
    tk->bx->pins--;
    sl_free(tk);
}

static void wake(inbox_embedded *ad)
{
    if (ad->options.wake != NULL && !atomic_exchange(&ad->woken, true))
        ad->options.wake(ad->options.arg);
}

static void on_log_wake(void *arg)
{
    wake(arg);
}

void inbox_task_ready(inbox_embedded *ad, inbox_task *tk)
{
    sl_list_push_back(&ad->ready, &tk->node);
    wake(ad);
}

void inbox_task_queue(inbox_embedded *ad, inbox_task *tk)
{
    if (sl_list_is_empty(&tk->bx->open))
        inbox_task_ready(ad, tk);
    else
        sl_list_push_back(&tk->bx->waiting, &tk->node);
}

static sl_err write_batch(inbox_embedded *ad, const inbox_task *tk, unsigned how)
{
    bool durable = (how & INBOX_WRITE_DURABLE) != 0;
    uint64_t token = (uint64_t)(uintptr_t)tk;
    sl_err err = sl_embedded_kv_write(ad->pr, ad->cache.kv, ad->ops, ad->op_count, durable, token);
    if (err != SL_ENOSPC || (how & INBOX_WRITE_DELETES_WILL_DO) == 0)
        return err;
    size_t deletes = 0;
    for (size_t i = 0; i < ad->op_count; i++)
        if (ad->ops[i].kind != SL_KV_PUT)
            ad->ops[deletes++] = ad->ops[i];
    return sl_embedded_kv_write(ad->pr, ad->cache.kv, ad->ops, deletes, durable, token);
}

sl_err inbox_task_write(inbox_embedded *ad, inbox_task *tk, unsigned how)
{
    sl_err err = write_batch(ad, tk, how);
    if (err != SL_OK) {
        inbox_task_free(tk);
        return err;
    }
    sl_list_push_back(&tk->bx->open, &tk->node);
    return SL_OK;
}

sl_err inbox_task_write_empty(inbox_embedded *ad, inbox_task *tk, uint64_t generation)
{
    inbox_box *bx = tk->bx;
    inbox_meta meta = {.generation = generation, .last_row = bx->last_row};
    inbox_batch_begin(ad, bx->client, 2);
    inbox_batch_empty(ad, bx, generation == 0);
    if (generation != 0)
        inbox_batch_put_meta(ad, bx->client, &meta);
    sl_err err = write_batch(ad, tk, 0);
    if (err == SL_ENOSPC && generation != 0) {
        /* No room for the counters: nothing stored is as good as an empty box, because rows of an
         * older generation give way to the next operation of this one. */
        inbox_batch_begin(ad, bx->client, 1);
        inbox_batch_empty(ad, bx, true);
        err = write_batch(ad, tk, 0);
    }
    if (err != SL_OK) {
        inbox_task_free(tk);
        return err;
    }
    sl_list_push_back(&bx->open, &tk->node);
    inbox_rows_clear(&bx->rows);
    bx->source_count = 0;
    bx->is_damaged = false;
    bx->generation = generation;
    return SL_OK;
}

void inbox_emit(inbox_embedded *ad, const sl_inbox_done *done)
{
    ad->completed++;
    ad->options.done(ad->options.arg, done);
}

/* ---- batches --------------------------------------------------------------------------------- */

void inbox_batch_begin(inbox_embedded *ad, sl_slice client, size_t max_ops)
{
    /* Two keys (a range) and a value at most for each. */
    size_t arena = max_ops * (2 * (client.len + 16) + INBOX_META_BYTES);
    if (max_ops > ad->op_cap) {
        ad->ops = sl_realloc(ad->ops, max_ops * sizeof(*ad->ops));
        ad->op_cap = max_ops;
    }
    if (arena > ad->arena_cap) {
        ad->arena = sl_realloc(ad->arena, arena);
        ad->arena_cap = arena;
    }
    ad->op_count = ad->arena_len = 0;
}

static uint8_t *arena_take(inbox_embedded *ad, size_t len)
{
    SL_ASSERT(len <= ad->arena_cap - ad->arena_len);
    uint8_t *at = ad->arena + ad->arena_len;
    ad->arena_len += len;
    return at;
}

static sl_slice arena_key(inbox_embedded *ad, sl_slice client, inbox_key_kind kind, uint64_t number,
                          uint16_t partition)
{
    uint8_t *at = arena_take(ad, client.len + 16);
    return sl_slice_of(at, inbox_key(at, client, kind, number, partition));
}

static sl_embedded_kv_op *next_op(inbox_embedded *ad)
{
    SL_ASSERT(ad->op_count < ad->op_cap);
    sl_embedded_kv_op *op = &ad->ops[ad->op_count++];
    *op = (sl_embedded_kv_op){.kind = SL_KV_PUT};
    return op;
}

void inbox_batch_put_meta(inbox_embedded *ad, sl_slice client, const inbox_meta *meta)
{
    sl_embedded_kv_op *op = next_op(ad);
    uint8_t *value = arena_take(ad, INBOX_META_BYTES);
    inbox_meta_encode(meta, value);
    op->key = arena_key(ad, client, INBOX_KEY_META, 0, 0);
    op->value[0] = sl_slice_of(value, INBOX_META_BYTES);
}

void inbox_batch_put_source(inbox_embedded *ad, sl_slice client, const inbox_source *so)
{
    sl_embedded_kv_op *op = next_op(ad);
    uint8_t *value = arena_take(ad, INBOX_SOURCE_BYTES);
    inbox_source_encode(so, value);
    op->key = arena_key(ad, client, INBOX_KEY_SOURCE, so->origin, so->partition);
    op->value[0] = sl_slice_of(value, INBOX_SOURCE_BYTES);
}

void inbox_batch_drop_source(inbox_embedded *ad, sl_slice client, const inbox_source *so)
{
    sl_embedded_kv_op *op = next_op(ad);
    op->kind = SL_KV_DELETE;
    op->key = arena_key(ad, client, INBOX_KEY_SOURCE, so->origin, so->partition);
}

void inbox_batch_put_row(inbox_embedded *ad, sl_slice client, uint64_t row,
                         const sl_inbox_entry *entry, sl_slice packet)
{
    sl_embedded_kv_op *op = next_op(ad);
    uint8_t *head = arena_take(ad, INBOX_ROW_HEAD);
    inbox_row_encode(entry, head);
    op->key = arena_key(ad, client, INBOX_KEY_ROW, row, 0);
    op->value[0] = sl_slice_of(head, INBOX_ROW_HEAD);
    op->value[1] = packet;
}

void inbox_batch_drop_row(inbox_embedded *ad, sl_slice client, uint64_t row)
{
    sl_embedded_kv_op *op = next_op(ad);
    op->kind = SL_KV_DELETE;
    op->key = arena_key(ad, client, INBOX_KEY_ROW, row, 0);
}

void inbox_batch_empty(inbox_embedded *ad, const inbox_box *bx, bool for_good)
{
    /* Ranges cost every later read of the store a little: none for nothing. */
    if (!for_good && bx->rows.count == 0 && bx->source_count == 0 && !bx->is_damaged)
        return;
    sl_embedded_kv_op *op = next_op(ad);
    op->kind = SL_KV_DELETE_RANGE;
    op->key = arena_key(ad, bx->client, for_good ? INBOX_KEY_META : INBOX_KEY_SOURCE, 0, 0);
    op->end = arena_key(ad, bx->client, INBOX_KEY_END, 0, 0);
}

/* ---- completions ----------------------------------------------------------------------------- */

static sl_inbox_done done_of(const inbox_task *tk)
{
    sl_inbox_done done = {.op = tk->op, .token = tk->token, .err = tk->err};
    if (tk->op == SL_INBOX_OP_ADD && tk->err == SL_OK) {
        done.assigned = tk->assigned;
        done.assigned_count = tk->assigned_count;
        done.dropped = tk->dropped;
        done.evicted = tk->evicted;
        done.durable_follows = tk->peer != NULL;
    }
    if (tk->op == SL_INBOX_OP_REMOVE && tk->err == SL_OK)
        done.removed = tk->removed;
    if (tk->op == SL_INBOX_OP_COUNT)
        done.count = tk->bx->rows.count;
    return done;
}

/* What we refused waited for a task to complete; this may have been the one. */
static void note_progress(inbox_embedded *ad)
{
    ad->wants_room = ad->wants_room || ad->has_refused;
    ad->has_refused = false;
}

/* A task without a write, whose time has come. */
static void run(inbox_embedded *ad, inbox_task *tk)
{
    note_progress(ad);
    if (tk->err == SL_OK)
        tk->err = tk->bx->failed;
    if (tk->op == SL_INBOX_OP_READ && tk->err == SL_OK) {
        inbox_read_run(ad, tk);
    } else {
        sl_inbox_done done = done_of(tk);
        inbox_emit(ad, &done);
    }
    inbox_task_free(tk);
}

/* Runs what waited for the operations before it. */
static void run_waiting(inbox_embedded *ad, inbox_box *bx)
{
    for (sl_node *nd; (nd = sl_list_first(&bx->waiting)) != NULL;) {
        inbox_task *tk = SL_CONTAINER(nd, inbox_task, node);
        sl_node *first = sl_list_first(&bx->open);
        if (first != NULL && SL_CONTAINER(first, inbox_task, node)->seq < tk->seq)
            return;
        run(ad, tk);
    }
}

static void finish_sync(inbox_embedded *ad, inbox_task *sync)
{
    sl_inbox_done done = done_of(sync);
    inbox_emit(ad, &done);
    inbox_task_free(sync);
}

/* The add is complete: its sync may follow, or is not wanted when the add failed. */
static void release_peer(inbox_embedded *ad, inbox_task *add)
{
    inbox_task *sync = add->peer;
    if (sync == NULL)
        return;
    add->peer = NULL;
    sync->peer = NULL;
    sync->silent = add->err != SL_OK;
    if (sync->is_synced && sync->silent)
        inbox_task_free(sync);
    else if (sync->is_synced)
        finish_sync(ad, sync);
}

static void complete(inbox_embedded *ad, inbox_task *tk, sl_err err)
{
    inbox_box *bx = tk->bx;
    tk->err = err;
    note_progress(ad);
    if (tk->op == SL_INBOX_OP_ADD_DURABLE) {
        tk->is_synced = true;
        if (tk->peer == NULL && tk->silent)
            inbox_task_free(tk);
        else if (tk->peer == NULL)
            finish_sync(ad, tk);
        return;
    }
    sl_list_remove(&tk->node);
    if (tk->op == SL_INBOX_OP_ADD) {
        bx->add_open = false;
        bx->add_row = 0;
    }
    if (err != SL_OK) {
        uint32_t suppressed;
        if (bx->failed == SL_OK &&
            sl_log_limit_pass(&ad->limit, INBOX_LOG_BURST, INBOX_LOG_PERIOD_MS, &suppressed))
            sl_warn(SL_C_INBOX, "INBOX-WRITE-FAILED", SL_B("client", bx->client), SL_E(err),
                    SL_U("suppressed", suppressed));
        bx->failed = err;
    }
    bx->pins++; /* the callbacks may free every other task of the box */
    if (!tk->silent) {
        sl_inbox_done done = done_of(tk);
        inbox_emit(ad, &done);
    }
    release_peer(ad, tk);
    inbox_task_free(tk);
    run_waiting(ad, bx);
    bx->pins--;
}

static void on_log_done(void *arg, const sl_log_done *dones, size_t count)
{
    for (size_t i = 0; i < count; i++)
        complete(arg, (inbox_task *)(uintptr_t)dones[i].token, dones[i].err);
}

static void on_log_room(void *arg)
{
    inbox_embedded *ad = arg;
    ad->wants_room = true;
}

static sl_err send_sync(inbox_embedded *ad, inbox_task *sync)
{
    sl_err err =
        sl_embedded_kv_write(ad->pr, ad->cache.kv, NULL, 0, true, (uint64_t)(uintptr_t)sync);
    return err;
}

void inbox_sync_start(inbox_embedded *ad, inbox_task *sync)
{
    sl_err err = send_sync(ad, sync);
    if (err == SL_OK)
        return;
    sync->err = err;
    sl_list_push_back(&ad->unsent, &sync->node);
    wake(ad);
}

/* Tries the syncs again that were refused; a refusal that will not pass is their result. */
static void send_unsent(inbox_embedded *ad)
{
    for (sl_node *nd; (nd = sl_list_first(&ad->unsent)) != NULL;) {
        inbox_task *sync = SL_CONTAINER(nd, inbox_task, node);
        sl_err err = ad->is_closing ? SL_ECLOSED : send_sync(ad, sync);
        if (err == SL_EAGAIN)
            return;
        sl_list_remove(nd);
        if (err != SL_OK)
            complete(ad, sync, err);
    }
}

static void run_ready(inbox_embedded *ad)
{
    sl_list now;
    sl_list_init(&now);
    for (sl_node *nd; (nd = sl_list_pop_front(&ad->ready)) != NULL;)
        sl_list_push_back(&now, nd);
    for (sl_node *nd; (nd = sl_list_first(&now)) != NULL;)
        run(ad, SL_CONTAINER(nd, inbox_task, node));
}

static size_t drain(void *self)
{
    inbox_embedded *ad = self;
    atomic_store(&ad->woken, false);
    ad->completed = 0;
    run_ready(ad);
    sl_log_producer_drain(ad->pr);
    send_unsent(ad);
    bool room = ad->wants_room;
    ad->wants_room = false;
    if (room && ad->options.room != NULL)
        ad->options.room(ad->options.arg);
    return ad->completed;
}

/* ---- life ------------------------------------------------------------------------------------ */

static sl_err embedded_open(const sl_inbox_options *options, void **self)
{
    if (options->log == NULL)
        return SL_EINVAL;
    inbox_embedded *ad = sl_calloc(1, sizeof(*ad));
    ad->options = *options;
    sl_list_init(&ad->ready);
    sl_list_init(&ad->unsent);
    sl_buf_init(&ad->body, INBOX_READ_MAX_BYTES + SL_LOG_MAX_RECORD_BYTES);
    sl_embedded_kv *kv = NULL;
    sl_err err = sl_embedded_kv_open(options->log, KV_NAME, &kv);
    if (err != SL_OK)
        goto out;
    sl_log_producer_options producer = {.wake = options->wake != NULL ? on_log_wake : NULL,
                                        .done = on_log_done,
                                        .room = on_log_room,
                                        .arg = ad};
    err = sl_log_producer_open(options->log, &producer, &ad->pr);
    if (err != SL_OK)
        goto out;
    inbox_cache_init(&ad->cache, kv, options->max_cached);
    *self = ad;
    ad = NULL;
out:
    sl_free(ad);
    return err;
}

static void embedded_close(void *self)
{
    inbox_embedded *ad = self;
    ad->is_closing = true;
    sl_log_producer_close(&ad->pr); /* completes what the log has, by on_log_done */
    run_ready(ad);
    send_unsent(ad);
    inbox_cache_fini(&ad->cache);
    sl_buf_fini(&ad->body);
    sl_free(ad->entries);
    sl_free(ad->ops);
    sl_free(ad->arena);
    sl_free(ad->joined);
    sl_free(ad);
}

/* ---- simple operations ----------------------------------------------------------------------- */

sl_err inbox_refuse(inbox_embedded *ad, sl_err err)
{
    if (err == SL_EAGAIN)
        ad->has_refused = true;
    return err;
}

sl_err inbox_get_box(inbox_embedded *ad, sl_slice client, inbox_box **out)
{
    if (ad->is_closing)
        return SL_ECLOSED;
    sl_err err = inbox_cache_get(&ad->cache, client, out);
    uint32_t suppressed;
    if (err != SL_OK && err != SL_EAGAIN &&
        sl_log_limit_pass(&ad->limit, INBOX_LOG_BURST, INBOX_LOG_PERIOD_MS, &suppressed))
        sl_error(SL_C_INBOX, "INBOX-LOAD-FAILED", SL_B("client", client), SL_E(err),
                 SL_U("suppressed", suppressed));
    return inbox_refuse(ad, err);
}

/* Completes without a write, in its turn. */
static sl_err answer(inbox_embedded *ad, inbox_box *bx, sl_inbox_op op, uint64_t token, sl_err err)
{
    inbox_task *tk = inbox_task_new(bx, op, token, 0);
    tk->err = err;
    inbox_task_queue(ad, tk);
    return SL_OK;
}

static int compare_rows(const void *left, const void *right)
{
    uint64_t lt = *(const uint64_t *)left, rt = *(const uint64_t *)right;
    return lt < rt ? -1 : lt > rt;
}

/* The live rows of these ids, ascending, each once. */
static size_t find_rows(const inbox_box *bx, const uint16_t *packet_ids, size_t count,
                        uint64_t *rows)
{
    size_t found = 0, kept = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t row = inbox_rows_find(&bx->rows, bx->last_row, packet_ids[i]);
        if (row != 0)
            rows[found++] = row;
    }
    qsort(rows, found, sizeof(*rows), compare_rows);
    for (size_t i = 0; i < found; i++)
        if (kept == 0 || rows[kept - 1] != rows[i])
            rows[kept++] = rows[i];
    return kept;
}

static sl_err remove_rows(inbox_embedded *ad, inbox_box *bx, const uint64_t *rows, size_t count,
                          uint64_t token)
{
    inbox_meta meta = inbox_box_meta(bx);
    meta.count -= (uint32_t)count;
    inbox_batch_begin(ad, bx->client, count + 1);
    for (size_t i = 0; i < count; i++) {
        if (meta.first_row == rows[i])
            meta.first_row = inbox_rows_next(&bx->rows, rows[i]);
        inbox_batch_drop_row(ad, bx->client, rows[i]);
    }
    inbox_batch_put_meta(ad, bx->client, &meta);
    inbox_task *tk = inbox_task_new(bx, SL_INBOX_OP_REMOVE, token, 0);
    tk->removed = count;
    sl_err err = inbox_task_write(ad, tk, INBOX_WRITE_DELETES_WILL_DO);
    for (size_t i = 0; err == SL_OK && i < count; i++)
        inbox_rows_remove(&bx->rows, rows[i]);
    return err;
}

static sl_err embedded_remove(void *self, sl_slice client, uint64_t generation,
                              const uint16_t *packet_ids, size_t count, uint64_t token)
{
    inbox_embedded *ad = self;
    inbox_box *bx;
    sl_err err = inbox_get_box(ad, client, &bx);
    if (err != SL_OK)
        return err;
    uint64_t *rows = sl_alloc(count * sizeof(*rows));
    size_t found = generation == bx->generation ? find_rows(bx, packet_ids, count, rows) : 0;
    if (found == 0)
        err = answer(ad, bx, SL_INBOX_OP_REMOVE, token, SL_ENOTFOUND);
    else
        err = remove_rows(ad, bx, rows, found, token);
    sl_free(rows);
    return err;
}

/* The marker does not inherit the message's expiry: that must not apply to what was sent
 * [MQTT-4.3.3-7], and a lost PUBREL would leave the receiver with an id that swallows a later
 * message. It stays for the default time. */
static sl_err embedded_mark_pubrel(void *self, sl_slice client, uint64_t generation,
                                   uint16_t packet_id, uint64_t token)
{
    inbox_embedded *ad = self;
    inbox_box *bx;
    sl_err err = inbox_get_box(ad, client, &bx);
    if (err != SL_OK)
        return err;
    uint64_t row =
        generation == bx->generation ? inbox_rows_find(&bx->rows, bx->last_row, packet_id) : 0;
    if (row == 0)
        return answer(ad, bx, SL_INBOX_OP_MARK_PUBREL, token, SL_ENOTFOUND);
    sl_wall_ms now = sl_clock_wall(ad->options.clock);
    sl_inbox_entry marker = {.kind = SL_INBOX_PUBREL,
                             .qos = 2,
                             .time_ms = now,
                             .expires_at_ms = now + ad->options.default_ttl_ms};
    inbox_batch_begin(ad, client, 1);
    inbox_batch_put_row(ad, client, row, &marker, (sl_slice){0});
    return inbox_task_write(ad, inbox_task_new(bx, SL_INBOX_OP_MARK_PUBREL, token, 0),
                            INBOX_WRITE_DURABLE);
}

static sl_err embedded_clear(void *self, sl_slice client, uint64_t new_generation, uint64_t token)
{
    inbox_embedded *ad = self;
    inbox_box *bx;
    sl_err err = inbox_get_box(ad, client, &bx);
    if (err == SL_ECORRUPT)
        bx = inbox_cache_get_empty(&ad->cache, client);
    else if (err != SL_OK)
        return err;
    if (new_generation != 0 && new_generation < bx->generation)
        return answer(ad, bx, SL_INBOX_OP_CLEAR, token, SL_ENOTFOUND);
    if (new_generation == 0 && bx->generation == 0 && !bx->is_damaged)
        return answer(ad, bx, SL_INBOX_OP_CLEAR, token, SL_OK);
    return inbox_task_write_empty(ad, inbox_task_new(bx, SL_INBOX_OP_CLEAR, token, 0),
                                  new_generation);
}

static sl_err embedded_count(void *self, sl_slice client, uint64_t token)
{
    inbox_embedded *ad = self;
    inbox_box *bx;
    sl_err err = inbox_get_box(ad, client, &bx);
    return err != SL_OK ? err : answer(ad, bx, SL_INBOX_OP_COUNT, token, SL_OK);
}

static sl_err embedded_commit_behind(void *self, const char *group, sl_log_topic *topic,
                                     uint16_t partition, uint64_t offset)
{
    inbox_embedded *ad = self;
    if (ad->is_closing)
        return SL_ECLOSED;
    return sl_embedded_kv_commit_behind(ad->pr, group, topic, partition, offset);
}

const sl_inbox_ops sl_inbox_embedded_ops = {
    .name = "embedded",
    .open = embedded_open,
    .close = embedded_close,
    .drain = drain,
    .add = inbox_embedded_add,
    .read = inbox_embedded_read,
    .remove = embedded_remove,
    .mark_pubrel = embedded_mark_pubrel,
    .clear = embedded_clear,
    .count = embedded_count,
    .commit_behind = embedded_commit_behind,
};
