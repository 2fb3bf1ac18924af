/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_fetch: what a poll reads of one partition: from the ring by reference, from the
 * store by copy when the reader fell behind. Decides the stages of each hand-out. The consumer's
 * thread.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/bytes.h"
#include "log/elog_fn.h"

/* ---- the store ---- */

static bool key_of_part(const char *key, size_t len, const uint8_t *want)
{
    return len == ELOG_KEY_BYTES && memcmp(key, want, 6) == 0;
}

static void log_corrupt(elog *el, const elog_part *part, uint64_t offset)
{
    atomic_fetch_add(&el->corrupt_batches, 1);
    sl_error(SL_C_LOG, "LOG-BATCH-CORRUPT", SL_S("topic", part->topic->base.name),
             SL_U("partition", part->partition), SL_U("offset", offset), SL_S("dir", el->dir),
             SL_S("action", "the batch is passed over; restore a backup if it is needed"));
}

/* Seeks the batch that holds offset, else the next one. */
static void seek_offset(rocksdb_iterator_t *it, const elog_part *part, uint64_t offset)
{
    uint8_t key[ELOG_KEY_BYTES];
    elog_key(key, part, offset);
    rocksdb_iter_seek_for_prev(it, (const char *)key, sizeof key);
    if (rocksdb_iter_valid(it)) {
        size_t len = 0;
        const char *found = rocksdb_iter_key(it, &len);
        if (key_of_part(found, len, key)) {
            const char *value = rocksdb_iter_value(it, &len);
            sl_batch_info info;
            if (sl_batch_open(sl_slice_of(value, len), false, &info) == SL_OK &&
                info.base + info.count > offset)
                return;
        }
    }
    rocksdb_iter_seek(it, (const char *)key, sizeof key);
}

/* A block of the store that cannot be read: where it ends is found by halving, so that no more
 * than the damaged part is lost. Gives the smallest offset at which reading goes on, or end. */
static uint64_t skip_unreadable(elog *el, const elog_part *part, uint64_t offset, uint64_t end)
{
    uint64_t low = offset, high = end;
    while (low + 1 < high) {
        uint64_t mid = low + (high - low) / 2;
        rocksdb_iterator_t *it = rocksdb_create_iterator_cf(el->db, el->ro_point, part->cf);
        uint8_t key[ELOG_KEY_BYTES];
        elog_key(key, part, mid);
        rocksdb_iter_seek(it, (const char *)key, sizeof key);
        bool readable = rocksdb_iter_valid(it);
        rocksdb_iter_destroy(it);
        if (readable)
            high = mid;
        else
            low = mid;
    }
    return high;
}

typedef struct store_walk {
    elog *el;
    const elog_part *part;
    rocksdb_iterator_t *it;
    uint64_t offset; /* next wanted */
    uint64_t end;    /* first not wanted */
    bool seeked;
} store_walk;

/* The next readable batch below end, copied. SL_ENOTFOUND at the end. */
static sl_err walk_next(store_walk *wk, sl_rbuf **out, sl_batch_info *info)
{
    uint8_t want[ELOG_KEY_BYTES];
    elog_key(want, wk->part, 0);
    while (wk->offset < wk->end) {
        if (!wk->seeked)
            seek_offset(wk->it, wk->part, wk->offset);
        wk->seeked = true;
        size_t len = 0;
        if (!rocksdb_iter_valid(wk->it)) {
            char *message = NULL;
            rocksdb_iter_get_error(wk->it, &message);
            if (message == NULL)
                return SL_ENOTFOUND;
            sl_err err = elog_store_error(message, "LOG-READ-FAILED");
            if (err != SL_ECORRUPT)
                return err;
            log_corrupt(wk->el, wk->part, wk->offset);
            wk->offset = skip_unreadable(wk->el, wk->part, wk->offset, wk->end);
            rocksdb_iter_destroy(wk->it);
            wk->it = rocksdb_create_iterator_cf(wk->el->db, wk->el->ro_point, wk->part->cf);
            wk->seeked = false;
            continue;
        }
        const char *key = rocksdb_iter_key(wk->it, &len);
        if (!key_of_part(key, len, want))
            return SL_ENOTFOUND;
        uint64_t base = sl_get_u64((const uint8_t *)key + 6);
        if (base >= wk->end)
            return SL_ENOTFOUND;
        const char *value = rocksdb_iter_value(wk->it, &len);
        sl_slice bytes = sl_slice_of(value, len);
        if (sl_batch_open(bytes, true, info) != SL_OK || info->base != base) {
            log_corrupt(wk->el, wk->part, base);
            rocksdb_iter_next(wk->it);
            continue;
        }
        if (base + info->count > wk->offset) {
            *out = sl_rbuf_new(len);
            memcpy((*out)->data, value, len);
            (*out)->len = (uint32_t)len;
            wk->offset = base + info->count;
            rocksdb_iter_next(wk->it);
            return SL_OK;
        }
        rocksdb_iter_next(wk->it);
    }
    return SL_ENOTFOUND;
}

sl_err elog_store_read(elog *el, const elog_part *part, uint64_t offset, uint64_t end,
                       sl_rbuf **out, sl_batch_info *info)
{
    store_walk wk = {.el = el, .part = part, .offset = offset, .end = end};
    wk.it = rocksdb_create_iterator_cf(el->db, el->ro_point, part->cf);
    sl_err err = walk_next(&wk, out, info);
    rocksdb_iter_destroy(wk.it);
    return err;
}

/* ---- hand-outs ---- */

static void hand_out(elog_fetch *fe, elog_sub *sub, sl_rbuf **buf, unsigned stages, uint64_t from,
                     uint64_t next)
{
    sl_log_batch *ba = &fe->batches[fe->count++];
    *ba = (sl_log_batch){.topic = &sub->part->topic->base,
                         .partition = sub->part->partition,
                         .stages = stages,
                         .base = from,
                         .next = next,
                         .count = (uint32_t)(next - from),
                         ._buf = *buf};
    if (*buf != NULL)
        ba->_impl = elog_resolver_new(sub->co->el, sub->part, *buf);
    size_t bytes = *buf == NULL ? 0 : (*buf)->len;
    fe->bytes_left = bytes >= fe->bytes_left ? 0 : fe->bytes_left - bytes;
    *buf = NULL;
}

static bool is_full(const elog_fetch *fe)
{
    return fe->count == fe->max || fe->bytes_left == 0;
}

/* Hands out one batch in the stages that are due and moves the cursors. buf is taken. */
static void take_batch(elog_sub *sub, elog_fetch *fe, sl_rbuf **buf, uint64_t base, uint64_t end,
                       uint8_t hints, bool durable)
{
    bool both = sub->co->base.options.both_stages;
    uint64_t from = durable ? sub->cursor : sub->wcur;
    from = from > base ? from : base;
    unsigned stages = 0;
    if (!durable)
        stages = (hints & SL_BATCH_VOLATILE) != 0 ? SL_LOG_STAGE_WRITTEN : 0;
    else if (!both || sub->wcur < end)
        stages = SL_LOG_STAGE_WRITTEN | SL_LOG_STAGE_DURABLE;
    else
        stages = (hints & SL_BATCH_DURABLE) != 0 ? SL_LOG_STAGE_DURABLE : 0;
    if (durable) {
        sub->owed = stages == 0;
        sub->cursor = end;
    }
    if (sub->wcur < end)
        sub->wcur = end;
    if (stages != 0)
        hand_out(fe, sub, buf, stages, from, end);
    else
        sl_rbuf_unref(buf);
}

/* The durable stage passed batches that had nothing for it: one empty hand-out tells how far, so
 * that the reader's committed offset can follow. */
static void pay_owed(elog_sub *sub, elog_fetch *fe)
{
    sl_rbuf *none = NULL;
    sub->owed = false;
    hand_out(fe, sub, &none, SL_LOG_STAGE_DURABLE, sub->cursor, sub->cursor);
}

/* Where the next batch comes from: a copy of a ring entry with a reference, or the store. */
typedef struct next_batch {
    bool durable; /* stage it is for */
    bool in_ring;
    elog_entry entry;
    uint64_t from;
    uint64_t end; /* of the stage */
} next_batch;

static bool find_next(elog_sub *sub, next_batch *out)
{
    elog_part *part = sub->part;
    bool both = sub->co->base.options.both_stages && !part->topic->compacted;
    bool found = false;
    pthread_mutex_lock(&part->lock);
    uint64_t start = atomic_load(&part->start);
    if (sub->cursor < start)
        sub->cursor = start; // retention was faster
    if (sub->wcur < sub->cursor)
        sub->wcur = sub->cursor;
    if (sub->cursor < part->durable)
        *out = (next_batch){.durable = true, .from = sub->cursor, .end = part->durable};
    else if (both && sub->wcur < part->written)
        *out = (next_batch){.durable = false, .from = sub->wcur, .end = part->written};
    else
        goto out;
    found = true;
    uint32_t at = elog_ring_find(&part->ring, out->from);
    // The first entry of the ring proves nothing about what came before it.
    out->in_ring =
        at < part->ring.count && (at > 0 || elog_ring_at(&part->ring, 0)->base <= out->from);
    if (out->in_ring) {
        out->entry = *elog_ring_at(&part->ring, at);
        sl_rbuf_ref(out->entry.buf);
    }
out:
    pthread_mutex_unlock(&part->lock);
    return found;
}

static sl_err fetch_store(elog_sub *sub, elog_fetch *fe, const next_batch *nb)
{
    elog *el = sub->co->el;
    sl_log_count(el->log, SL_LOG_STAT_RING_MISSES, 1);
    store_walk wk = {.el = el, .part = sub->part, .offset = nb->from, .end = nb->end};
    wk.it = rocksdb_create_iterator_cf(el->db, el->ro_fetch, sub->part->cf);
    sl_err err = SL_OK;
    while (!is_full(fe)) {
        sl_rbuf *buf = NULL;
        sl_batch_info info;
        err = walk_next(&wk, &buf, &info);
        if (err != SL_OK)
            break;
        take_batch(sub, fe, &buf, info.base, info.base + info.count, info.hints, nb->durable);
    }
    rocksdb_iter_destroy(wk.it);
    if (err != SL_ENOTFOUND)
        return err;
    // Everything below the end was in the store when the iterator was made. What is missing was
    // trimmed, damaged or never written (a failed commit leaves a gap).
    if (nb->durable)
        sub->cursor = nb->end;
    if (sub->wcur < nb->end)
        sub->wcur = nb->end;
    return SL_OK;
}

sl_err elog_fetch_sub(elog_sub *sub, elog_fetch *fe, bool *more)
{
    elog_part *part = sub->part;
    *more = false;
    if (atomic_load_explicit(&part->topic->base.deleted, memory_order_acquire))
        return SL_OK;
    if (sub->snapshot) {
        sl_err err = elog_rows_fetch(sub, fe, more);
        if (err != SL_OK || *more)
            return err;
    }
    next_batch nb;
    while (find_next(sub, &nb)) {
        if (is_full(fe)) {
            if (nb.in_ring)
                sl_rbuf_unref(&nb.entry.buf);
            *more = true;
            return SL_OK;
        }
        if (nb.in_ring) {
            take_batch(sub, fe, &nb.entry.buf, nb.entry.base, nb.entry.end, nb.entry.hints,
                       nb.durable);
        } else if (part->topic->compacted) {
            // Fell off the ring: the rows that changed since say the same.
            elog_rows_restart(sub);
            *more = true;
            return SL_OK;
        } else {
            sl_err err = fetch_store(sub, fe, &nb);
            if (err != SL_OK)
                return err;
        }
    }
    if (sub->owed) {
        if (is_full(fe))
            *more = true;
        else
            pay_owed(sub, fe);
    }
    return SL_OK;
}
