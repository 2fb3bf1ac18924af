/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_copyout: before retention cuts a source, the references into what goes are replaced
 * by copies, so that a reader that is away for a week pins its own messages and not everybody's.
 * A batch is written again under its key, in pieces if it grew; the ring keeps the old one, whose
 * reader finds the copy in the store when it misses the source (log_embedded_batch.c). The keeper.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/elog_fn.h"

#define PIECE_BYTES (1u << 20)   /* a written-again batch is cut into such pieces */
#define BATCH_MAX   (256u << 20) /* a batch that would grow beyond keeps its references */

/* A batch being written again. */
typedef struct rewrite {
    elog *el;
    elog_part *part;
    rocksdb_writebatch_t *wb;
    sl_batch_fill fill;
    uint64_t base; /* of the piece in fill */
    size_t bytes;  /* of the finished pieces */
} rewrite;

static void finish_piece(rewrite *rw)
{
    if (rw->fill.count == 0)
        return;
    uint8_t key[ELOG_KEY_BYTES];
    elog_key(key, rw->part, rw->base);
    sl_batch_finish(&rw->fill, rw->base);
    rocksdb_writebatch_put_cf(rw->wb, rw->part->cf, (const char *)key, sizeof key,
                              (const char *)rw->fill.buf->data, rw->fill.buf->len);
    rw->base += rw->fill.count;
    rw->bytes += rw->fill.buf->len;
    sl_rbuf_unref(&rw->fill.buf);
    rw->fill = (sl_batch_fill){0};
}

static void add_record(rewrite *rw, const sl_batch_record *rec, const sl_log_record *copy)
{
    sl_batch_parts parts = {.flags = rec->flags,
                            .attr = rec->attr,
                            .time_ms = rec->time_ms,
                            .key = rec->key,
                            .raw_headers = rec->headers,
                            .value = &rec->value,
                            .value_count = 1,
                            .source = &rec->source};
    if (copy != NULL) {
        parts.flags &= (uint8_t)~SL_BATCH_REFERENCE;
        parts.time_ms = copy->time_ms;
        parts.key = copy->key;
        parts.raw_headers = copy->headers;
        parts.value = &copy->value;
    }
    if (rw->fill.buf != NULL && rw->fill.buf->len + sl_batch_record_bound(&parts) > PIECE_BYTES)
        finish_piece(rw);
    sl_batch_append(&rw->fill, &parts, ELOG_CHUNK_BYTES, NULL);
}

/* True when the record refers to what its source's partition is about to lose. */
static bool is_due(elog *el, const sl_batch_record *rec)
{
    if ((rec->flags & SL_BATCH_REFERENCE) == 0)
        return false;
    const elog_topic *tp = elog_topic_by_id(el, rec->source.topic_id);
    return tp != NULL && rec->source.partition < tp->base.partitions &&
           rec->source.offset < tp->parts[rec->source.partition].limit;
}

static bool any_due(elog *el, sl_slice bytes, const sl_batch_info *info)
{
    sl_batch_record rec;
    uint64_t pos = 0;
    while (sl_batch_next(bytes, info, &pos, &rec))
        if (is_due(el, &rec))
            return true;
    return false;
}

/* Fills the pieces. False when the batch would grow too much. A source that is lost already stays
 * a reference: its offset must not move, and its reader counts it. */
static bool rebuild(rewrite *rw, elog_resolver *rs, sl_slice bytes, const sl_batch_info *info)
{
    sl_batch_record rec;
    uint64_t pos = 0;
    rw->base = info->base;
    while (sl_batch_next(bytes, info, &pos, &rec)) {
        sl_log_record copy = {.key = rec.key, .headers = rec.headers};
        bool copied = is_due(rw->el, &rec) && elog_resolve(rs, &rec, &copy);
        add_record(rw, &rec, copied ? &copy : NULL);
        if (rw->bytes > BATCH_MAX)
            return false;
    }
    finish_piece(rw);
    return true;
}

static void note_growth(elog_part *part, uint64_t base, size_t before, size_t after)
{
    uint64_t growth = after > before ? after - before : 0;
    pthread_mutex_lock(&part->lock);
    part->bytes += growth;
    for (uint32_t i = 0; i < part->mark_count; i++) {
        if (part->marks[i].end > base) {
            part->marks[i].bytes += growth;
            break;
        }
    }
    pthread_mutex_unlock(&part->lock);
}

/* Writes one batch again if it has to be. SL_ELIMIT: it keeps its references. */
static sl_err copy_batch(elog *el, elog_part *part, const sl_rbuf *buf, const sl_batch_info *info,
                         size_t *written)
{
    sl_slice bytes = sl_slice_of(buf->data, buf->len);
    if ((info->hints & SL_BATCH_REFS) == 0 || !any_due(el, bytes, info))
        return SL_OK;
    rewrite rw = {.el = el, .part = part, .wb = rocksdb_writebatch_create()};
    elog_resolver *rs = elog_resolver_new(el, part, buf);
    sl_err err = rebuild(&rw, rs, bytes, info) ? SL_OK : SL_ELIMIT;
    if (err == SL_OK)
        err = elog_store_write(el, rw.wb);
    if (err == SL_OK) {
        note_growth(part, info->base, buf->len, rw.bytes);
        *written += rw.bytes;
    }
    elog_resolver_free(&rs);
    sl_rbuf_unref(&rw.fill.buf);
    rocksdb_writebatch_destroy(rw.wb);
    return err;
}

static sl_err copy_run(elog *el, elog_part *part, uint64_t from, uint64_t end, size_t *written)
{
    while (from < end) {
        sl_rbuf *buf = NULL;
        sl_batch_info info;
        sl_err err = elog_store_read(el, part, from, end, &buf, &info);
        if (err == SL_ENOTFOUND)
            return SL_OK;
        if (err == SL_OK)
            err = copy_batch(el, part, buf, &info, written);
        sl_rbuf_unref(&buf);
        if (err != SL_OK)
            return err;
        from = info.base + info.count;
    }
    return SL_OK;
}

/* The next run of references that hold back a source; a copy of its mark. */
static bool next_due(elog_part *part, uint64_t live, elog_refmark *out)
{
    bool found = false;
    pthread_mutex_lock(&part->lock);
    for (uint32_t i = 0; i < part->ref_count && !found; i++) {
        if (part->refs[i].end > live && part->refs[i].first < part->refs[i].source->limit) {
            *out = part->refs[i];
            found = true;
        }
    }
    pthread_mutex_unlock(&part->lock);
    return found;
}

/* All references of the run below the limit are copies now, in whatever source they were; what the
 * writer added to the run meanwhile is above the floor, so above every limit. */
static void note_copied(elog_part *part, const elog_refmark *run)
{
    pthread_mutex_lock(&part->lock);
    for (uint32_t i = 0; i < part->ref_count; i++) {
        elog_refmark *ref = &part->refs[i];
        if (ref->source == run->source && ref->from == run->from && ref->first < ref->source->limit)
            ref->first = ref->source->limit;
    }
    pthread_mutex_unlock(&part->lock);
}

void elog_copy_out(elog *el, elog_part *part, uint64_t live, size_t *budget)
{
    elog_refmark run;
    while (*budget > 0 && next_due(part, live, &run)) {
        size_t written = 0;
        sl_err err = copy_run(el, part, run.from > live ? run.from : live, run.end, &written);
        *budget -= written < *budget ? written : *budget;
        if (err != SL_OK) {
            sl_warn(SL_C_LOG, "LOG-COPY-OUT-FAILED", SL_S("topic", part->topic->base.name),
                    SL_U("offset", run.from), SL_E(err));
            return; // what is left holds its sources back
        }
        note_copied(part, &run);
    }
}
