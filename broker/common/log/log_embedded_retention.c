/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_retention: what may be cut off the old end of the partitions, and the cutting. One
 * pass over all topics by the keeper; never past a pinned group's committed offset, never past the
 * oldest live reference. docs/log-embedded.md has the rules.
 *
 * The order in a pass: want (age, size) -> raise the floors (new references below become copies)
 * -> wait for a commit -> copy out old references, count those that are left -> cut -> start rows
 * and copies durable -> delete data.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/bytes.h"
#include "log/elog_fn.h"

#define MARK_MIN_BYTES (16u << 10)
#define MARK_BYTES     (1u << 20) /* without a limit by size */
#define MARKS_PER_PART 64
#define MARKS_MAX      1024u
#define LOAD_MARKS     32
#define REF_RUN        256        /* derived records that share a mark */
#define SHARED_MIN     (1u << 20) /* in a shared family a cut of less is not worth its tombstone */

/* ---- marks: how much is stored where ---- */

static uint64_t mark_granule(const elog_part *part)
{
    int64_t limit = atomic_load_explicit(&part->topic->retention_bytes, memory_order_relaxed);
    if (limit < 0)
        return MARK_BYTES;
    uint64_t granule = (uint64_t)limit / MARKS_PER_PART;
    return granule < MARK_MIN_BYTES ? MARK_MIN_BYTES : granule;
}

/* Neighbours become one: the resolution halves, the memory stays bounded. */
static void merge_marks(elog_part *part)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i + 1 < part->mark_count; i += 2)
        part->marks[kept++] =
            (elog_mark){part->marks[i + 1].end, part->marks[i].bytes + part->marks[i + 1].bytes};
    if (part->mark_count % 2 == 1)
        part->marks[kept++] = part->marks[part->mark_count - 1];
    part->mark_count = kept;
}

void elog_marks_add(elog_part *part, uint64_t end, uint64_t bytes)
{
    part->bytes += bytes;
    if (part->mark_count > 0 &&
        part->marks[part->mark_count - 1].bytes + bytes <= mark_granule(part)) {
        elog_mark *last = &part->marks[part->mark_count - 1];
        last->end = end;
        last->bytes += bytes;
        return;
    }
    if (part->mark_count == MARKS_MAX)
        merge_marks(part);
    if (part->mark_count == part->mark_cap) {
        part->mark_cap = part->mark_cap == 0 ? 4 : part->mark_cap * 2;
        part->marks = sl_realloc(part->marks, part->mark_cap * sizeof *part->marks);
    }
    part->marks[part->mark_count++] = (elog_mark){end, bytes};
}

void elog_marks_load(elog *el, elog_part *part)
{
    uint64_t start = atomic_load(&part->start), end = part->next;
    if (part->topic->compacted || start >= end)
        return;
    uint64_t pieces = part->topic->many ? 1 : LOAD_MARKS;
    if (pieces > end - start)
        pieces = end - start;
    uint8_t from[LOAD_MARKS][ELOG_KEY_BYTES], to[LOAD_MARKS][ELOG_KEY_BYTES];
    const char *froms[LOAD_MARKS], *tos[LOAD_MARKS];
    size_t lens[LOAD_MARKS];
    uint64_t sizes[LOAD_MARKS] = {0};
    for (uint64_t i = 0; i < pieces; i++) {
        elog_key(from[i], part, start + (end - start) * i / pieces);
        elog_key(to[i], part, start + (end - start) * (i + 1) / pieces);
        froms[i] = (const char *)from[i];
        tos[i] = (const char *)to[i];
        lens[i] = ELOG_KEY_BYTES;
    }
    char *message = NULL;
    rocksdb_approximate_sizes_cf(el->db, part->cf, (int)pieces, froms, lens, tos, lens, sizes,
                                 &message);
    if (message != NULL) {
        (void)elog_store_error(message, "LOG-SIZES-UNREAD");
        return;
    }
    for (uint64_t i = 0; i < pieces; i++)
        elog_marks_add(part, start + (end - start) * (i + 1) / pieces, sizes[i]);
}

/* ---- references ---- */

static void refs_push(elog_part *part, const elog_refmark *ref)
{
    // Sources take turns, so the run to join is among the last few.
    uint32_t low = part->ref_count > 64 ? part->ref_count - 64 : 0;
    for (uint32_t i = part->ref_count; i > low; i--) {
        elog_refmark *old = &part->refs[i - 1];
        if (old->source != ref->source)
            continue;
        if (ref->end - old->from > REF_RUN || ref->from < old->from)
            break;
        old->end = ref->end;
        old->first = ref->first < old->first ? ref->first : old->first;
        return;
    }
    if (part->ref_count == part->ref_cap) {
        part->ref_cap = part->ref_cap == 0 ? 4 : part->ref_cap * 2;
        part->refs = sl_realloc(part->refs, part->ref_cap * sizeof *part->refs);
    }
    part->refs[part->ref_count++] = *ref;
}

void elog_refs_add(elog_part *part, const elog_chunk *ch)
{
    for (unsigned i = 0; i < ch->ref_count; i++) {
        elog_refmark ref = ch->refs[i];
        ref.from = ch->base;
        ref.end = ch->base + ch->fill.count;
        refs_push(part, &ref);
    }
}

/* Offsets below this one are of no use to the part's pinned group, or are trimmed. */
static uint64_t live_start(elog *el, elog_part *part, const char *pinned_group)
{
    uint64_t start = atomic_load(&part->start), committed = 0;
    if (pinned_group != NULL && elog_goff_get(el, pinned_group, part, &committed) &&
        committed > start)
        return committed;
    return start;
}

static void scan_batch(elog *el, elog_part *part, const sl_rbuf *buf, const sl_batch_info *info)
{
    sl_batch_record rec;
    uint64_t pos = 0;
    elog_topic *source = NULL;
    while (sl_batch_next(sl_slice_of(buf->data, buf->len), info, &pos, &rec)) {
        if ((rec.flags & SL_BATCH_REFERENCE) == 0)
            continue;
        if (source == NULL || source->id != rec.source.topic_id)
            source = elog_topic_by_id(el, rec.source.topic_id);
        if (source == NULL || rec.source.partition >= source->base.partitions)
            continue;
        const elog_refmark ref = {.from = rec.offset,
                                  .end = rec.offset + 1,
                                  .source = &source->parts[rec.source.partition],
                                  .first = rec.source.offset};
        pthread_mutex_lock(&part->lock);
        refs_push(part, &ref);
        pthread_mutex_unlock(&part->lock);
    }
}

/* References that an earlier run of the process left. */
static sl_err scan_refs(elog *el, elog_part *part, const char *pinned_group)
{
    uint64_t at = live_start(el, part, pinned_group);
    sl_err err = SL_OK;
    while (at < part->known_from) {
        sl_rbuf *buf = NULL;
        sl_batch_info info;
        err = elog_store_read(el, part, at, part->known_from, &buf, &info);
        if (err != SL_OK)
            break;
        if ((info.hints & SL_BATCH_REFS) != 0)
            scan_batch(el, part, buf, &info);
        at = info.base + info.count;
        sl_rbuf_unref(&buf);
    }
    if (err != SL_OK && err != SL_ENOTFOUND)
        return err;
    pthread_mutex_lock(&part->lock);
    part->refs_unknown = false;
    pthread_mutex_unlock(&part->lock);
    return SL_OK;
}

/* Forgets dead references of a derived part and lowers ref_min of the sources of live ones. */
static void count_refs(elog *el, elog_part *part, const char *pinned_group)
{
    uint64_t live = live_start(el, part, pinned_group);
    pthread_mutex_lock(&part->lock);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < part->ref_count; i++) {
        elog_refmark ref = part->refs[i];
        if (ref.end <= live)
            continue;
        part->refs[kept++] = ref;
        if (ref.first < ref.source->ref_min)
            ref.source->ref_min = ref.first;
    }
    part->ref_count = kept;
    pthread_mutex_unlock(&part->lock);
}

/* ---- what retention asks for ---- */

static uint64_t want_by_size(elog_part *part)
{
    int64_t limit = atomic_load(&part->topic->retention_bytes);
    uint64_t start = atomic_load(&part->start);
    if (limit < 0)
        return start;
    pthread_mutex_lock(&part->lock);
    uint64_t want = start, left = part->bytes;
    uint64_t over = left > (uint64_t)limit ? left - (uint64_t)limit : 0;
    bool worth = part->hot || (over >= SHARED_MIN && over >= (uint64_t)limit / 10);
    for (uint32_t i = 0; over > 0 && worth && i < part->mark_count; i++) {
        // Cuts only whole marks: what stays is at least the limit.
        if (left < part->marks[i].bytes || left - part->marks[i].bytes < (uint64_t)limit)
            break;
        left -= part->marks[i].bytes;
        want = part->marks[i].end;
    }
    if (want > part->durable)
        want = part->durable;
    pthread_mutex_unlock(&part->lock);
    return want > start ? want : start;
}

/* First batch at or behind offset; false when there is none below end. */
static bool batch_at(elog *el, elog_part *part, uint64_t offset, uint64_t end, sl_batch_info *info)
{
    sl_rbuf *buf = NULL;
    if (elog_store_read(el, part, offset, end, &buf, info) != SL_OK)
        return false;
    sl_rbuf_unref(&buf);
    return true;
}

static bool oldest_time(elog *el, elog_part *part, uint64_t start, uint64_t end)
{
    if (part->oldest_known && part->oldest_at == start)
        return true;
    sl_batch_info info;
    if (!batch_at(el, part, start, end, &info))
        return false;
    part->oldest_known = true;
    part->oldest_at = start;
    part->oldest_ms = info.base_time;
    return true;
}

static uint64_t want_by_age(elog *el, elog_part *part)
{
    int64_t age = atomic_load(&part->topic->retention_ms);
    uint64_t start = atomic_load(&part->start);
    pthread_mutex_lock(&part->lock);
    uint64_t end = part->durable;
    pthread_mutex_unlock(&part->lock);
    if (age < 0 || start >= end || !oldest_time(el, part, start, end))
        return start;
    sl_wall_ms cutoff = sl_clock_wall(el->log->options.clock) - age;
    if (part->oldest_ms >= (part->hot ? cutoff : cutoff - age / 10))
        return start;
    // The first batch that is young enough, by halving.
    uint64_t low = start, high = end;
    while (low < high) {
        uint64_t mid = low + (high - low) / 2;
        sl_batch_info info;
        if (!batch_at(el, part, mid, end, &info) || info.base_time >= cutoff)
            high = mid;
        else
            low = info.base + info.count;
    }
    return low < end ? low : end;
}

/* ---- cutting ---- */

static void forget_marks(elog_part *part, uint64_t start)
{
    uint32_t gone = 0;
    while (gone < part->mark_count && part->marks[gone].end <= start) {
        part->bytes -= part->marks[gone].bytes;
        gone++;
    }
    part->mark_count -= gone;
    memmove(part->marks, part->marks + gone, part->mark_count * sizeof *part->marks);
}

static sl_err put_start(elog *el, const elog_part *part, uint64_t start)
{
    uint8_t key[6 + ELOG_KEY_BYTES], row[8];
    memcpy(key, "start/", 6);
    elog_key(key + 6, part, 0);
    sl_put_u64(row, start);
    rocksdb_writebatch_t *wb = rocksdb_writebatch_create();
    rocksdb_writebatch_put_cf(wb, el->cf[ELOG_CF_DEFAULT], (const char *)key, 12, (const char *)row,
                              sizeof row);
    sl_err err = elog_store_write(el, wb);
    rocksdb_writebatch_destroy(wb);
    return err;
}

/* Moves the start; true if it moved. */
static bool cut(elog *el, elog_part *part, bool *held)
{
    uint64_t start = atomic_load(&part->start);
    uint64_t to = part->ref_min < part->limit ? part->ref_min : part->limit;
    *held = *held || to < part->want;
    if (to <= start || put_start(el, part, to) != SL_OK)
        return false;
    pthread_mutex_lock(&part->lock);
    atomic_store(&part->start, to);
    forget_marks(part, to);
    pthread_mutex_unlock(&part->lock);
    sl_log_count(el->log, SL_LOG_STAT_TRIMMED, (int64_t)(to - start));
    return true;
}

/* Deletes what lies wholly below the start. A batch that holds the start stays. */
static void delete_data(elog *el, elog_part *part)
{
    uint64_t start = atomic_load(&part->start);
    pthread_mutex_lock(&part->lock);
    uint64_t end = part->written;
    pthread_mutex_unlock(&part->lock);
    if (!part->hot && part->dropped == start)
        return;
    sl_batch_info info;
    uint64_t keep = end;
    if (start < end && batch_at(el, part, start, end, &info))
        keep = info.base;
    if (keep == 0)
        return;
    uint8_t from[ELOG_KEY_BYTES], to[ELOG_KEY_BYTES];
    elog_key(from, part, 0);
    char *message = NULL;
    if (part->hot) {
        elog_key(to, part, keep - 1); // both ends are taken
        rocksdb_delete_file_in_range_cf(el->db, part->cf, (const char *)from, sizeof from,
                                        (const char *)to, sizeof to, &message);
    } else {
        elog_key(to, part, keep);
        rocksdb_writebatch_t *wb = rocksdb_writebatch_create();
        rocksdb_writebatch_delete_range_cf(wb, part->cf, (const char *)from, sizeof from,
                                           (const char *)to, sizeof to);
        if (elog_store_write(el, wb) == SL_OK)
            part->dropped = start;
        rocksdb_writebatch_destroy(wb);
    }
    if (message != NULL)
        (void)elog_store_error(message, "LOG-TRIM-FAILED");
}

/* ---- the pass ---- */

typedef struct topic_view {
    elog_topic *tp;
    char *pinned_group; /* owned copy */
} topic_view;

static topic_view *copy_topics(elog *el, size_t *count)
{
    pthread_mutex_lock(&el->topics_lock);
    topic_view *views = sl_calloc(sl_map_count(el->topics) + 1, sizeof *views);
    size_t pos = 0;
    void *value;
    *count = 0;
    while (sl_map_each(el->topics, &pos, NULL, &value)) {
        elog_topic *tp = value;
        views[(*count)++] =
            (topic_view){tp, tp->pinned_group == NULL ? NULL : sl_strdup(tp->pinned_group)};
    }
    pthread_mutex_unlock(&el->topics_lock);
    return views;
}

/* What retention asks of one partition. True if its start has to move. */
static bool find_want(elog *el, elog_part *part, const char *pinned_group)
{
    uint64_t start = atomic_load(&part->start), committed = start;
    part->want = part->limit = start;
    part->ref_min = UINT64_MAX;
    if (part->topic->compacted)
        return false;
    uint64_t size = want_by_size(part), age = want_by_age(el, part);
    part->want = part->limit = size > age ? size : age;
    if (part->want <= start)
        return false;
    if (pinned_group != NULL &&
        (!elog_goff_get(el, pinned_group, part, &committed) || committed < part->limit))
        part->limit = committed > start ? committed : start;
    if (part->want > atomic_load(&part->floor))
        atomic_store_explicit(&part->floor, part->want, memory_order_release);
    return true;
}

static bool find_wants(elog *el, const topic_view *views, size_t count)
{
    bool any = false;
    for (size_t i = 0; i < count; i++)
        for (uint16_t k = 0; k < views[i].tp->base.partitions; k++)
            any = find_want(el, &views[i].tp->parts[k], views[i].pinned_group) || any;
    return any;
}

/* Copies out what refers to what goes, then counts the references that are left. */
static bool free_sources(elog *el, const topic_view *views, size_t count)
{
    size_t budget = el->copy_budget;
    for (size_t i = 0; i < count; i++) {
        for (uint16_t k = 0; k < views[i].tp->base.partitions; k++) {
            elog_part *part = &views[i].tp->parts[k];
            if (part->refs_unknown && scan_refs(el, part, views[i].pinned_group) != SL_OK)
                return false; // without them nothing may be cut
            elog_copy_out(el, part, live_start(el, part, views[i].pinned_group), &budget);
        }
    }
    for (size_t i = 0; i < count; i++)
        for (uint16_t k = 0; k < views[i].tp->base.partitions; k++)
            count_refs(el, &views[i].tp->parts[k], views[i].pinned_group);
    return true;
}

static void note_held(elog_topic *tp, bool held)
{
    if (held && !tp->held_logged)
        sl_warn(SL_C_LOG, "LOG-RETENTION-HELD", SL_S("topic", tp->base.name),
                SL_S("reason", "a group has not read, or a topic refers to, what retention would "
                               "remove; the topic grows until it has"));
    tp->held_logged = held;
}

static bool cut_all(elog *el, const topic_view *views, size_t count)
{
    bool moved = false;
    int64_t held_topics = 0;
    for (size_t i = 0; i < count; i++) {
        elog_topic *tp = views[i].tp;
        bool held = false;
        for (uint16_t k = 0; k < tp->base.partitions; k++)
            moved = cut(el, &tp->parts[k], &held) || moved;
        note_held(tp, held);
        held_topics += held;
    }
    sl_log_gauge(el->log, SL_LOG_STAT_RETENTION_HELD, held_topics);
    return moved;
}

static void after_cut(elog *el, const topic_view *views, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        elog_topic *tp = views[i].tp;
        for (uint16_t k = 0; k < tp->base.partitions; k++) {
            elog_part *part = &tp->parts[k];
            if (tp->compacted && part->tombs_lost)
                elog_rows_sweep(el, part);
            if (!tp->compacted && atomic_load(&part->start) > 0 && !atomic_load(&tp->base.deleted))
                delete_data(el, part);
        }
    }
}

void elog_retention_run(elog *el)
{
    pthread_mutex_lock(&el->retention_lock);
    size_t count = 0;
    topic_view *views = copy_topics(el, &count);
    bool cuts = find_wants(el, views, count);
    // References that were queued before the floors rose are counted below; later ones are copies.
    if (cuts && elog_barrier(el, false) == SL_OK && free_sources(el, views, count)) {
        bool moved = cut_all(el, views, count);
        // Data goes only when its new start cannot be lost: after all is deleted the start is the
        // one memory of the offsets.
        if (!moved || elog_barrier(el, true) == SL_OK)
            after_cut(el, views, count);
    } else if (!cuts) {
        (void)cut_all(el, views, count);
        after_cut(el, views, count);
    }
    for (size_t i = 0; i < count; i++)
        sl_free(views[i].pinned_group);
    sl_free(views);
    pthread_mutex_unlock(&el->retention_lock);
}
