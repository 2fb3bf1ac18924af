/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_batch: reads the records of a batch that a consumer holds, and resolves references
 * to their source records: from the ring (a reference to the source's buffer) or from the store (a
 * copy of the record). The batch's holder, one thread at a time.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/elog_fn.h"

#define CACHED_SOURCES 16 /* one per partition of the usual source topic */

/* The batch of a source partition that was used last, and how far it was read: references come in
 * source order, so that the next one is mostly a few records ahead. */
typedef struct source_view {
    elog_part *part;
    sl_rbuf *buf; /* borrowed from kept, or owned if cold */
    bool cold;    /* read from the store: records are copied out */
    sl_batch_info info;
    uint64_t pos; /* before the record `at` */
    uint64_t at;
} source_view;

struct elog_resolver {
    elog *el;
    elog_part *part;   /* of the references themselves */
    source_view own;   /* the same batch as the store has it by now */
    elog_topic *topic; /* of the last reference */
    source_view views[CACHED_SOURCES];
    sl_rbuf **kept; /* owned: what handed-out records point into */
    uint32_t kept_count;
    uint32_t kept_cap;
};

elog_resolver *elog_resolver_new(elog *el, elog_part *part, const sl_rbuf *buf)
{
    sl_batch_info info;
    if (sl_batch_open(sl_slice_of(buf->data, buf->len), false, &info) != SL_OK ||
        (info.hints & SL_BATCH_REFS) == 0)
        return NULL;
    elog_resolver *rs = sl_calloc(1, sizeof *rs);
    rs->el = el;
    rs->part = part;
    return rs;
}

void elog_resolver_free(elog_resolver **ptr)
{
    elog_resolver *rs = *ptr;
    *ptr = NULL;
    if (rs == NULL)
        return;
    for (uint32_t i = 0; i < rs->kept_count; i++)
        sl_rbuf_unref(&rs->kept[i]);
    for (unsigned i = 0; i < CACHED_SOURCES; i++)
        if (rs->views[i].cold)
            sl_rbuf_unref(&rs->views[i].buf);
    if (rs->own.cold)
        sl_rbuf_unref(&rs->own.buf);
    sl_free(rs->kept);
    sl_free(rs);
}

static void keep(elog_resolver *rs, sl_rbuf *buf)
{
    if (rs->kept_count == rs->kept_cap) {
        rs->kept_cap = rs->kept_cap == 0 ? 8 : rs->kept_cap * 2;
        rs->kept = sl_realloc(rs->kept, rs->kept_cap * sizeof *rs->kept);
    }
    rs->kept[rs->kept_count++] = buf;
}

void elog_batch_release(sl_log_batch *batch)
{
    elog_resolver *rs = batch->_impl;
    elog_resolver_free(&rs);
    batch->_impl = NULL;
    if (batch->_buf != NULL)
        sl_rbuf_unref(&batch->_buf);
}

/* ---- sources ---- */

static void view_set(elog_resolver *rs, source_view *sv, elog_part *part, sl_rbuf *buf, bool cold)
{
    if (sv->cold)
        sl_rbuf_unref(&sv->buf);
    if (buf != NULL && !cold)
        keep(rs, buf);
    *sv = (source_view){.part = part, .buf = buf, .cold = cold};
}

static bool view_load(elog_resolver *rs, source_view *sv, elog_part *part, uint64_t offset)
{
    sl_rbuf *buf = NULL;
    bool deleted = atomic_load_explicit(&part->topic->base.deleted, memory_order_acquire);
    pthread_mutex_lock(&part->lock);
    uint32_t at = elog_ring_find(&part->ring, offset);
    if (!deleted && at < part->ring.count && elog_ring_at(&part->ring, at)->base <= offset)
        buf = sl_rbuf_ref(elog_ring_at(&part->ring, at)->buf);
    uint64_t written = part->written;
    bool gone = deleted || offset < atomic_load(&part->start);
    pthread_mutex_unlock(&part->lock);
    bool cold = buf == NULL;
    sl_batch_info info;
    if (cold && !gone && elog_store_read(rs->el, part, offset, written, &buf, &info) != SL_OK)
        buf = NULL;
    view_set(rs, sv, part, buf, cold && buf != NULL);
    return buf != NULL &&
           sl_batch_open(sl_slice_of(buf->data, buf->len), false, &sv->info) == SL_OK;
}

static bool view_holds(const source_view *sv, const elog_part *part, uint64_t offset)
{
    return sv->part == part && sv->buf != NULL && offset >= sv->info.base &&
           offset < sv->info.base + sv->info.count;
}

/* The record at offset of a view that holds it. */
static bool view_find(source_view *sv, uint64_t offset, sl_batch_record *record)
{
    sl_slice bytes = sl_slice_of(sv->buf->data, sv->buf->len);
    if (offset < sv->at)
        sv->pos = 0;
    for (;;) {
        uint64_t before = sv->pos;
        if (!sl_batch_next(bytes, &sv->info, &sv->pos, record) || record->offset > offset) {
            sv->pos = sv->at = 0;
            return false;
        }
        if (record->offset == offset) {
            sv->pos = before; // several references to one source follow each other
            sv->at = offset;
            return true;
        }
    }
}

static bool find_source(elog_resolver *rs, const sl_batch_source *source, source_view **out,
                        sl_batch_record *record)
{
    if (rs->topic == NULL || rs->topic->id != source->topic_id)
        rs->topic = elog_topic_by_id(rs->el, source->topic_id);
    if (rs->topic == NULL || source->partition >= rs->topic->base.partitions)
        return false;
    elog_part *part = &rs->topic->parts[source->partition];
    source_view *sv = &rs->views[source->partition % CACHED_SOURCES];
    if (!view_holds(sv, part, source->offset) &&
        (!view_load(rs, sv, part, source->offset) || !view_holds(sv, part, source->offset)))
        return false;
    *out = sv;
    return view_find(sv, source->offset, record);
}

/* Key and headers of the reference before those of the source, and the value if it has to be
 * copied: one buffer that the batch keeps. */
static void merge(elog_resolver *rs, const sl_batch_record *ref, const sl_batch_record *source,
                  bool with_value, sl_log_record *out)
{
    size_t headers_len = ref->headers.len + source->headers.len;
    sl_slice key = ref->key.len > 0 ? ref->key : source->key;
    sl_rbuf *buf = sl_rbuf_new(key.len + headers_len + (with_value ? source->value.len : 0) + 1);
    uint8_t *at = buf->data;
    const sl_slice pieces[4] = {key, ref->headers, source->headers,
                                with_value ? source->value : sl_slice_of(NULL, 0)};
    for (unsigned i = 0; i < 4; i++) {
        if (pieces[i].len > 0)
            memcpy(at, pieces[i].ptr, pieces[i].len);
        at += pieces[i].len;
    }
    buf->len = (uint32_t)(at - buf->data);
    keep(rs, buf);
    out->key = sl_slice_of(buf->data, key.len);
    out->headers = sl_slice_of(buf->data + key.len, headers_len);
    if (with_value) {
        out->value = sl_slice_of(buf->data + key.len + headers_len, source->value.len);
        out->body = buf;
    }
}

/* Retention took the source after it had made a copy of this record: this batch is older, the store
 * has the copy. */
static bool resolve_from_copy(elog_resolver *rs, const sl_batch_record *ref, sl_log_record *out)
{
    source_view *sv = &rs->own;
    sl_batch_record copy;
    if (!view_holds(sv, rs->part, ref->offset)) {
        sl_rbuf *buf = NULL;
        sl_batch_info info;
        if (elog_store_read(rs->el, rs->part, ref->offset, ref->offset + 1, &buf, &info) != SL_OK)
            return false;
        view_set(rs, sv, rs->part, buf, true);
        sv->info = info;
    }
    if (!view_holds(sv, rs->part, ref->offset) || !view_find(sv, ref->offset, &copy) ||
        (copy.flags & SL_BATCH_REFERENCE) != 0)
        return false;
    const sl_batch_record nothing = {.offset = ref->offset};
    out->time_ms = copy.time_ms;
    merge(rs, &nothing, &copy, true, out);
    return true;
}

static void note_lost(elog_resolver *rs, const sl_batch_source *source)
{
    uint64_t lost = atomic_fetch_add(&rs->el->lost_sources, 1) + 1;
    uint32_t held = 0;
    if (sl_log_limit_pass(&rs->el->lost_limit, 5, 10000, &held))
        sl_warn(SL_C_LOG, "LOG-SOURCE-LOST", SL_U("topic-id", source->topic_id),
                SL_U("partition", source->partition), SL_U("offset", source->offset),
                SL_U("total", lost), SL_U("suppressed", held));
}

bool elog_resolve(elog_resolver *rs, const sl_batch_record *ref, sl_log_record *out)
{
    source_view *sv = NULL;
    sl_batch_record source;
    if (!find_source(rs, &ref->source, &sv, &source)) {
        if (resolve_from_copy(rs, ref, out))
            return true;
        note_lost(rs, &ref->source);
        return false;
    }
    out->time_ms = source.time_ms;
    out->body = sv->buf;
    out->value = source.value;
    if (sv->cold) {
        merge(rs, ref, &source, true, out);
        return true;
    }
    if (out->key.len == 0)
        out->key = source.key;
    if (ref->headers.len == 0)
        out->headers = source.headers;
    else if (source.headers.len > 0)
        merge(rs, ref, &source, false, out);
    return true;
}

/* ---- records ---- */

static void fill_record(const sl_batch_record *rec, sl_rbuf *buf, sl_log_record *out)
{
    *out = (sl_log_record){.offset = rec->offset,
                           .time_ms = rec->time_ms,
                           .flags = rec->flags & (SL_LOG_VOLATILE | SL_LOG_DURABLE),
                           .attr = rec->attr,
                           .key = rec->key,
                           .value = rec->value,
                           .headers = rec->headers,
                           .body = buf,
                           .is_derived = (rec->flags & SL_BATCH_DERIVED) != 0};
    if (out->is_derived) {
        out->source_partition = rec->source.partition;
        out->source_offset = rec->source.offset;
    }
}

bool elog_batch_next(const sl_log_batch *batch, size_t *pos, sl_log_record *out)
{
    if (batch->_buf == NULL)
        return false;
    sl_slice bytes = sl_slice_of(batch->_buf->data, batch->_buf->len);
    sl_batch_info info;
    if (sl_batch_open(bytes, false, &info) != SL_OK)
        return false;
    sl_batch_record rec;
    uint64_t at = *pos;
    while (sl_batch_next(bytes, &info, &at, &rec)) {
        *pos = at;
        // A reader may have begun in the middle of a batch.
        if ((info.hints & SL_BATCH_ROWS) == 0 && rec.offset < batch->base)
            continue;
        fill_record(&rec, batch->_buf, out);
        if ((rec.flags & SL_BATCH_REFERENCE) == 0 || elog_resolve(batch->_impl, &rec, out))
            return true;
    }
    return false;
}
