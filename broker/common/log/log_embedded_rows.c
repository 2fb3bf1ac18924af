/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_rows: compacted topics. The store keeps one row per key in the family "rows"
 * (topic u32, partition u16, key -> a batch of one record whose base is the write's sequence);
 * the ring keeps the writes in order for tailing readers.
 *
 * A reader gets the rows below S as a snapshot, then the tail from S. A row that was written again
 * after S is left out of the snapshot: its new value comes in the tail. A reader that falls off
 * the ring at C gets a snapshot of what changed in [C, S'): for that, a removed key leaves an
 * empty row until every open reader has passed its sequence.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/bytes.h"
#include "log/elog_fn.h"

#define ROW_HEAD        6
#define COLLECT_A_ROUND 256
#define SWEEP_MAX       4096

static uint8_t *row_key(const elog_part *part, sl_slice key, size_t *len)
{
    uint8_t *out = sl_alloc(ROW_HEAD + key.len + 1);
    sl_put_u32(out, part->topic->id);
    sl_put_u16(out + 4, part->partition);
    if (key.len > 0)
        memcpy(out + ROW_HEAD, key.ptr, key.len);
    *len = ROW_HEAD + key.len;
    return out;
}

/* ---- removed keys; part lock ---- */

/* The sequence that every open reader has passed; UINT64_MAX without readers. */
static uint64_t slowest_reader(const elog_part *part)
{
    uint64_t low = UINT64_MAX;
    sl_node *nd = sl_list_first(&part->subs);
    for (; nd != NULL; nd = sl_list_next(&part->subs, nd)) {
        uint64_t at = SL_CONTAINER(nd, elog_sub, part_node)->cursor;
        low = at < low ? at : low;
    }
    return low;
}

static void tomb_note(elog_part *part, sl_slice key, uint64_t seq)
{
    if (part->tomb_count == ELOG_TOMBS_MAX) {
        part->tombs_lost = true; // the keeper will look for it
        return;
    }
    if (part->tomb_count == part->tomb_cap) {
        uint32_t cap = part->tomb_cap == 0 ? 64 : part->tomb_cap * 2;
        elog_tomb **grown = sl_alloc(cap * sizeof *grown);
        for (uint32_t i = 0; i < part->tomb_count; i++)
            grown[i] = part->tombs[(part->tomb_first + i) & (part->tomb_cap - 1)];
        sl_free(part->tombs);
        part->tombs = grown;
        part->tomb_cap = cap;
        part->tomb_first = 0;
    }
    elog_tomb *tb = sl_alloc(sizeof *tb + key.len);
    tb->seq = seq;
    tb->key_len = (uint32_t)key.len;
    if (key.len > 0)
        memcpy(tb->key, key.ptr, key.len);
    part->tombs[(part->tomb_first + part->tomb_count++) & (part->tomb_cap - 1)] = tb;
}

/* ---- the writer ---- */

/* Deletes the empty row of a removed key, unless the key was written again since. */
static void collect_one(elog *el, const elog_part *part, const elog_tomb *tb,
                        rocksdb_writebatch_t *wb)
{
    size_t key_len = 0, len = 0;
    uint8_t *key = row_key(part, sl_slice_of(tb->key, tb->key_len), &key_len);
    char *message = NULL;
    char *value =
        rocksdb_get_cf(el->db, el->ro_point, part->cf, (const char *)key, key_len, &len, &message);
    if (message != NULL)
        (void)elog_store_error(message, "LOG-ROW-UNREAD");
    sl_batch_info info;
    if (value != NULL && sl_batch_open(sl_slice_of(value, len), false, &info) == SL_OK &&
        info.base == tb->seq)
        rocksdb_writebatch_delete_cf(wb, part->cf, (const char *)key, key_len);
    rocksdb_free(value);
    sl_free(key);
}

void elog_rows_collect(elog *el, elog_part *part, rocksdb_writebatch_t *wb)
{
    elog_tomb *due[COLLECT_A_ROUND];
    uint32_t count = 0;
    pthread_mutex_lock(&part->lock);
    uint64_t passed = slowest_reader(part);
    while (part->tomb_count > 0 && count < COLLECT_A_ROUND) {
        elog_tomb *tb = part->tombs[part->tomb_first & (part->tomb_cap - 1)];
        if (tb->seq >= passed || tb->seq >= part->durable)
            break;
        part->tomb_first = (part->tomb_first + 1) & (part->tomb_cap - 1);
        part->tomb_count--;
        due[count++] = tb;
    }
    pthread_mutex_unlock(&part->lock);
    for (uint32_t i = 0; i < count; i++) {
        collect_one(el, part, due[i], wb);
        sl_free(due[i]);
    }
}

static void put_row(elog_chunk *ch, const sl_batch_record *rec, sl_slice record, uint8_t hints,
                    rocksdb_writebatch_t *wb)
{
    size_t key_len = 0;
    uint8_t *key = row_key(ch->part, rec->key, &key_len);
    uint8_t head[SL_BATCH_HEADER_BYTES];
    sl_batch_row_header(head, record, rec->offset, ch->fill.base_time, hints);
    const char *const keys[1] = {(const char *)key};
    const char *const values[2] = {(const char *)head, (const char *)record.ptr};
    const size_t lens[2] = {sizeof head, record.len};
    rocksdb_writebatch_putv_cf(wb, ch->part->cf, 1, keys, &key_len, 2, values, lens);
    sl_free(key);
}

static void put_next(elog *el, const elog_part *part, rocksdb_writebatch_t *wb)
{
    uint8_t key[5 + ELOG_KEY_BYTES], row[8];
    memcpy(key, "next/", 5);
    elog_key(key + 5, part, 0);
    sl_put_u64(row, part->next);
    rocksdb_writebatch_put_cf(wb, el->cf[ELOG_CF_DEFAULT], (const char *)key, 5 + 6,
                              (const char *)row, sizeof row);
}

void elog_rows_write(elog *el, elog_chunk *ch, rocksdb_writebatch_t *wb)
{
    elog_rows_collect(el, ch->part, wb);
    sl_slice bytes = sl_slice_of(ch->fill.buf->data, ch->fill.buf->len);
    const sl_batch_info info = {.base = ch->base,
                                .base_time = ch->fill.base_time,
                                .count = ch->fill.count,
                                .size = ch->fill.buf->len,
                                .hints = ch->fill.hints};
    uint64_t pos = 0, before = 0;
    sl_batch_record rec;
    while (before = pos, sl_batch_next(bytes, &info, &pos, &rec)) {
        uint8_t hints = (rec.flags & SL_LOG_VOLATILE) != 0 ? SL_BATCH_VOLATILE : SL_BATCH_DURABLE;
        put_row(ch, &rec, sl_batch_span(bytes, before, pos), hints, wb);
        if (rec.value.len > 0)
            continue;
        pthread_mutex_lock(&ch->part->lock);
        tomb_note(ch->part, rec.key, rec.offset);
        pthread_mutex_unlock(&ch->part->lock);
    }
    put_next(el, ch->part, wb);
}

/* ---- the reader ---- */

void elog_rows_restart(elog_sub *sub)
{
    elog_part *part = sub->part;
    sl_log_count(part->topic->base.log, SL_LOG_STAT_RING_MISSES, 1);
    pthread_mutex_lock(&part->lock);
    sub->snapshot = true;
    sub->snap_end = part->durable;
    pthread_mutex_unlock(&part->lock);
    sl_free(sub->snap_from);
    sub->snap_from = NULL;
}

typedef struct row_walk {
    elog_sub *sub;
    sl_batch_fill fill;
    size_t bytes;
} row_walk;

/* Adds a stored row to the hand-out if it belongs to the snapshot. */
static void add_row(row_walk *wk, sl_slice row, sl_slice key)
{
    sl_batch_info info;
    sl_batch_record rec;
    uint64_t pos = 0;
    if (sl_batch_open(row, true, &info) != SL_OK || !sl_batch_next(row, &info, &pos, &rec)) {
        elog *el = wk->sub->co->el;
        atomic_fetch_add(&el->corrupt_batches, 1);
        sl_error(SL_C_LOG, "LOG-ROW-CORRUPT", SL_S("topic", wk->sub->part->topic->base.name),
                 SL_B("key", sl_slice_of(key.ptr + ROW_HEAD, key.len - ROW_HEAD)),
                 SL_S("dir", el->dir), SL_S("action", "the row is passed over"));
        return;
    }
    bool from_start = wk->sub->cursor == 0;
    if (info.base >= wk->sub->snap_end || info.base < wk->sub->cursor ||
        (from_start && rec.value.len == 0))
        return;
    const sl_batch_source source = rec.source;
    const sl_batch_parts parts = {.flags = rec.flags,
                                  .attr = rec.attr,
                                  .time_ms = rec.time_ms,
                                  .key = rec.key,
                                  .raw_headers = rec.headers,
                                  .value = &rec.value,
                                  .value_count = 1,
                                  .source = &source};
    sl_batch_append(&wk->fill, &parts, ELOG_CHUNK_BYTES, &info.base);
}

static void remember_place(elog_sub *sub, const char *key, size_t len)
{
    sl_free(sub->snap_from);
    sub->snap_from = sl_alloc(len);
    memcpy(sub->snap_from, key, len);
    sub->snap_from_len = len;
}

/* One batch of rows of about a chunk; *done: the snapshot is complete. */
static sl_err walk_rows(elog_sub *sub, row_walk *wk, bool *done)
{
    elog *el = sub->co->el;
    uint8_t prefix[ELOG_KEY_BYTES];
    elog_key(prefix, sub->part, 0);
    rocksdb_iterator_t *it = rocksdb_create_iterator_cf(el->db, el->ro_scan, sub->part->cf);
    if (sub->snap_from != NULL)
        rocksdb_iter_seek(it, (const char *)sub->snap_from, sub->snap_from_len);
    else
        rocksdb_iter_seek(it, (const char *)prefix, ROW_HEAD);
    *done = true;
    for (; rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
        size_t key_len = 0, len = 0;
        const char *key = rocksdb_iter_key(it, &key_len);
        if (key_len < ROW_HEAD || memcmp(key, prefix, ROW_HEAD) != 0)
            break;
        if (wk->fill.buf != NULL && wk->fill.buf->len >= wk->bytes) {
            remember_place(sub, key, key_len);
            *done = false;
            break;
        }
        const char *value = rocksdb_iter_value(it, &len);
        add_row(wk, sl_slice_of(value, len), sl_slice_of(key, key_len));
    }
    char *message = NULL;
    rocksdb_iter_get_error(it, &message);
    rocksdb_iter_destroy(it);
    return message == NULL ? SL_OK : elog_store_error(message, "LOG-ROWS-UNREAD");
}

sl_err elog_rows_fetch(elog_sub *sub, elog_fetch *fe, bool *more)
{
    *more = true;
    if (fe->count == fe->max || fe->bytes_left == 0)
        return SL_OK;
    bool done = false;
    row_walk wk = {.sub = sub, .bytes = fe->bytes_left};
    sl_err err = walk_rows(sub, &wk, &done);
    if (err != SL_OK) {
        sl_rbuf_unref(&wk.fill.buf);
        return err;
    }
    uint64_t base = sub->cursor;
    if (done) {
        pthread_mutex_lock(&sub->part->lock);
        sub->cursor = sub->wcur = sub->snap_end;
        sub->snapshot = false;
        pthread_mutex_unlock(&sub->part->lock);
        *more = false;
    }
    if (wk.fill.buf == NULL)
        return SL_OK;
    uint32_t count = wk.fill.count;
    sl_batch_finish(&wk.fill, base);
    size_t bytes = wk.fill.buf->len;
    // Committing `next` is right only when all rows were handed out.
    fe->batches[fe->count++] = (sl_log_batch){.topic = &sub->part->topic->base,
                                              .partition = sub->part->partition,
                                              .stages = SL_LOG_STAGE_WRITTEN | SL_LOG_STAGE_DURABLE,
                                              .base = base,
                                              .next = sub->cursor,
                                              .count = count,
                                              ._buf = wk.fill.buf};
    fe->bytes_left = bytes >= fe->bytes_left ? 0 : fe->bytes_left - bytes;
    return SL_OK;
}

/* ---- the keeper ---- */

void elog_rows_sweep(elog *el, elog_part *part)
{
    uint8_t prefix[ELOG_KEY_BYTES];
    elog_key(prefix, part, 0);
    pthread_mutex_lock(&part->lock);
    part->tombs_lost = false;
    pthread_mutex_unlock(&part->lock);
    rocksdb_iterator_t *it = rocksdb_create_iterator_cf(el->db, el->ro_scan, part->cf);
    uint32_t found = 0;
    rocksdb_iter_seek(it, (const char *)prefix, ROW_HEAD);
    for (; rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
        size_t key_len = 0, len = 0;
        const char *key = rocksdb_iter_key(it, &key_len);
        if (key_len < ROW_HEAD || memcmp(key, prefix, ROW_HEAD) != 0)
            break;
        const char *value = rocksdb_iter_value(it, &len);
        sl_batch_info info;
        sl_batch_record rec;
        uint64_t pos = 0;
        sl_slice row = sl_slice_of(value, len);
        if (sl_batch_open(row, false, &info) != SL_OK || !sl_batch_next(row, &info, &pos, &rec) ||
            rec.value.len > 0)
            continue;
        pthread_mutex_lock(&part->lock);
        tomb_note(part, rec.key, info.base);
        part->tombs_lost = part->tombs_lost || ++found >= SWEEP_MAX;
        pthread_mutex_unlock(&part->lock);
        if (found >= SWEEP_MAX)
            break;
    }
    rocksdb_iter_destroy(it);
}
