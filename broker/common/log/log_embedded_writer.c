/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_writer: the writer thread: takes what all producers queued, gives offsets, writes
 * one WriteBatch (batches, rows, committed offsets: atomic), publishes the written ends. It never
 * syncs and never walks over records; the syncer (log_embedded_sync.c) makes commits durable
 * while the writer goes on.
 */
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/elog_fn.h"

#define GATHER_RECORDS   32          /* gathering pays from this many records in its time */
#define SYNC_BACKLOG     (64u << 20) /* unsynced bytes at which the writer waits */
#define WB_KEEP_BYTES    (16u << 20)
#define EVICT_FIRST      1024u
#define ENTRY_OVERHEAD   64u
#define RATE_WEIGHT      0.25
#define SPACE_LOOK_BYTES (16u << 20)

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* ---- evicting ---- */

static void evict_note(elog *el, elog_part *part, size_t bytes)
{
    if (el->evict_count == el->evict_cap) {
        uint32_t cap = el->evict_cap == 0 ? EVICT_FIRST : el->evict_cap * 2;
        elog_evict *grown = sl_alloc(cap * sizeof *grown);
        for (uint32_t i = 0; i < el->evict_count; i++)
            grown[i] = el->evict[(el->evict_first + i) & (el->evict_cap - 1)];
        sl_free(el->evict);
        el->evict = grown;
        el->evict_cap = cap;
        el->evict_first = 0;
    }
    el->evict[(el->evict_first + el->evict_count++) & (el->evict_cap - 1)] =
        (elog_evict){part, bytes};
    el->ring_bytes += bytes;
}

static void evict_old(elog *el)
{
    while (el->ring_bytes > el->log->options.ring_bytes && el->evict_count > 1) {
        elog_evict ev = el->evict[el->evict_first & (el->evict_cap - 1)];
        el->evict_first = (el->evict_first + 1) & (el->evict_cap - 1);
        el->evict_count--;
        el->ring_bytes -= ev.bytes;
        pthread_mutex_lock(&ev.part->lock);
        elog_entry entry = elog_ring_pop(&ev.part->ring);
        pthread_mutex_unlock(&ev.part->lock);
        sl_rbuf_unref(&entry.buf);
    }
}

/* ---- building ---- */

static void put_chunk(elog *el, elog_chunk *ch)
{
    elog_part *part = ch->part;
    ch->base = part->next;
    part->next += ch->fill.count;
    sl_batch_finish(&ch->fill, ch->base);
    if (part->topic->compacted) {
        elog_rows_write(el, ch, el->wb);
        return;
    }
    if (ch->ref_count > 0 && !part->topic->has_refs)
        elog_topic_note_refs(part->topic, el->wb);
    uint8_t key[ELOG_KEY_BYTES];
    elog_key(key, part, ch->base);
    rocksdb_writebatch_put_cf(el->wb, part->cf, (const char *)key, sizeof key,
                              (const char *)ch->fill.buf->data, ch->fill.buf->len);
}

static void build(elog *el, elog_segment *list)
{
    for (elog_segment *seg = list; seg != NULL; seg = seg->next_taken) {
        for (uint32_t i = 0; i < seg->chunk_count; i++) {
            elog_chunk *ch = &seg->chunks[i];
            if (atomic_load_explicit(&ch->part->topic->base.deleted, memory_order_acquire))
                ch->err = SL_ENOTFOUND;
            else
                put_chunk(el, ch);
        }
        elog_ops_write(el, seg, el->wb);
    }
}

/* ---- publishing ---- */

static void note_end(elog_commit *cm, elog_part *part, uint64_t end)
{
    if (cm->end_count == cm->end_cap) {
        cm->end_cap = cm->end_cap == 0 ? 16 : cm->end_cap * 2;
        cm->ends = sl_realloc(cm->ends, cm->end_cap * sizeof *cm->ends);
    }
    cm->ends[cm->end_count++] = (elog_end){part, end};
}

/* A chunk is in the store: tail readers get its buffer. True if its end waits for a sync. */
static bool publish_chunk(elog *el, elog_chunk *ch)
{
    elog_part *part = ch->part;
    elog_entry entry = {.base = ch->base,
                        .end = ch->base + ch->fill.count,
                        .buf = sl_rbuf_ref(ch->fill.buf),
                        .hints = ch->fill.hints};
    size_t stored = ch->fill.buf->len;
    part->topic->has_refs = part->topic->has_refs || ch->ref_count > 0;
    bool durable_moved = false;
    pthread_mutex_lock(&part->lock);
    elog_ring_push(&part->ring, &entry);
    part->written = entry.end;
    if (el->fsync && (entry.hints & SL_BATCH_DURABLE) != 0)
        part->need_sync = entry.end;
    if (part->synced >= part->need_sync || !el->fsync) {
        part->durable = part->written;
        durable_moved = true;
    }
    if (ch->ref_count > 0)
        elog_refs_add(part, ch);
    if (!part->topic->compacted)
        elog_marks_add(part, entry.end, stored);
    for (sl_node *nd = sl_list_first(&part->subs); nd != NULL; nd = sl_list_next(&part->subs, nd)) {
        elog_sub *sub = SL_CONTAINER(nd, elog_sub, part_node);
        if (durable_moved || sub->co->base.options.both_stages)
            elog_sub_notify(sub);
    }
    pthread_mutex_unlock(&part->lock);
    evict_note(el, part, (size_t)entry.buf->cap + ENTRY_OVERHEAD);
    return !durable_moved;
}

static void publish(elog *el, elog_segment *list, elog_commit *cm)
{
    uint64_t records = 0, bytes = 0, failed = 0;
    for (elog_segment *seg = list; seg != NULL; seg = seg->next_taken) {
        for (uint32_t i = 0; i < seg->chunk_count; i++) {
            elog_chunk *ch = &seg->chunks[i];
            if (ch->err != SL_OK) {
                failed += ch->fill.count;
                continue;
            }
            records += ch->fill.count;
            bytes += ch->fill.buf->len - SL_BATCH_HEADER_BYTES;
            if (publish_chunk(el, ch))
                note_end(cm, ch->part, ch->base + ch->fill.count);
        }
        cm->needs_sync = cm->needs_sync || (seg->needs_sync && el->fsync);
        cm->bytes += seg->bytes;
        if (!el->fsync)
            seg->needs_sync = false;
    }
    evict_old(el);
    sl_log_count(el->log, SL_LOG_STAT_APPENDED, (int64_t)records);
    sl_log_count(el->log, SL_LOG_STAT_APPENDED_BYTES, (int64_t)bytes);
    sl_log_count(el->log, SL_LOG_STAT_FAILED, (int64_t)failed);
}

/* Completes what is complete at the written end; the rest goes on with the commit. A segment may be
 * gone as soon as its owner learns that it is done. */
static void pass_on(elog *el, elog_segment *list, elog_commit *cm)
{
    elog_segment *finished = NULL, *waiting = NULL;
    elog_segment **finished_tail = &finished, **waiting_tail = &waiting;
    while (list != NULL) {
        elog_segment *seg = list;
        list = seg->next_taken;
        seg->next_taken = NULL;
        elog_segment ***tail = seg->needs_sync ? &waiting_tail : &finished_tail;
        **tail = seg;
        *tail = &seg->next_taken;
    }
    elog_segments_done(el, finished, true);
    elog_segments_done(el, waiting, false);
    cm->segments = waiting;
}

static void fail_segments(elog *el, elog_segment *list, sl_err err)
{
    uint64_t failed = 0;
    for (elog_segment *seg = list; seg != NULL; seg = seg->next_taken) {
        seg->err = err;
        failed += seg->records;
        elog_ops_undo(el, seg);
    }
    sl_log_count(el->log, SL_LOG_STAT_FAILED, (int64_t)failed);
    elog_segments_done(el, list, true);
}

/* ---- one group commit ---- */

static elog_segment *take_all(elog *el, bool everything, bool *left)
{
    elog_segment *list = NULL, **tail = &list;
    *left = false;
    pthread_mutex_lock(&el->producers_lock);
    for (size_t i = 0; i < el->producer_count; i++)
        *left = elog_producer_take(el->producers[i], everything, &tail) || *left;
    pthread_mutex_unlock(&el->producers_lock);
    return list;
}

static size_t count_records(const elog_segment *list)
{
    size_t sum = 0;
    for (; list != NULL; list = list->next_taken)
        sum += list->records;
    return sum;
}

/* The rate decides whether the next commit gathers; a pause forgets it. */
static void note_rate(elog *el, size_t records, uint64_t start_ns)
{
    double span_ms = (double)(start_ns - el->last_commit_ns) / 1e6;
    double rate = span_ms > 0 ? (double)records / span_ms : 0;
    double weight = span_ms > 50 ? 1 : RATE_WEIGHT;
    el->rate_per_ms += weight * (rate - el->rate_per_ms);
    el->last_commit_ns = start_ns;
}

static void reset_batch(elog *el)
{
    size_t size = 0;
    (void)rocksdb_writebatch_data(el->wb, &size);
    if (size > WB_KEEP_BYTES) {
        rocksdb_writebatch_destroy(el->wb);
        el->wb = rocksdb_writebatch_create();
    } else {
        rocksdb_writebatch_clear(el->wb);
    }
}

/* After a failed write the keeper asks whether the store takes one again. */
static void put_probe(elog *el)
{
    if (atomic_exchange(&el->probe, false))
        rocksdb_writebatch_put_cf(el->wb, el->cf[ELOG_CF_DEFAULT], "probe", 5, "", 0);
}

/* RocksDB has left its error behind by a new write-ahead file; it flushed what the old one held. */
static void healed(elog *el)
{
    atomic_store(&el->broken, false);
    sl_info(SL_C_LOG, "LOG-WRITES-AGAIN", SL_S("dir", el->dir));
}

/* A second is long on a fast disk: the free space is looked at by amount, too. */
static void look_at_space(elog *el, size_t written)
{
    el->space_bytes += written;
    if (el->space_bytes < SPACE_LOOK_BYTES)
        return;
    el->space_bytes = 0;
    elog_space_check(el);
}

/* One round; true when a producer has more than its share of this one. */
static bool commit_round(elog *el, uint64_t barrier, bool everything)
{
    uint64_t start_ns = now_ns();
    put_probe(el);
    // The offsets first: whatever their threads queued before they committed is taken below, so
    // an offset never gets to the disk before the derived records that it stands for.
    elog_offsets_write(el, el->wb);
    bool left = false;
    elog_segment *list = take_all(el, everything, &left);
    note_rate(el, count_records(list), start_ns);
    build(el, list);
    elog_commit *cm = sl_calloc(1, sizeof *cm);
    cm->barrier = barrier;
    bool wrote = rocksdb_writebatch_count(el->wb) > 0;
    sl_err err = wrote ? elog_store_write(el, el->wb) : SL_OK;
    if (wrote && err == SL_OK && atomic_load_explicit(&el->broken, memory_order_relaxed))
        healed(el);
    reset_batch(el);
    if (err != SL_OK) {
        elog_offsets_written(el, false);
        fail_segments(el, list, err);
    } else {
        elog_offsets_written(el, true);
        sl_log_count(el->log, SL_LOG_STAT_COMMITS, wrote);
        publish(el, list, cm);
        look_at_space(el, cm->bytes);
        pass_on(el, list, cm);
    }
    elog_sync_push(el, &cm);
    return left;
}

/* ---- the thread ---- */

void elog_writer_wake(elog *el, bool hurry)
{
    pthread_mutex_lock(&el->work_lock);
    el->work = true;
    el->hurry = el->hurry || hurry;
    if (el->writer_idle || (el->writer_gathers && hurry))
        pthread_cond_signal(&el->work_cond);
    pthread_mutex_unlock(&el->work_lock);
}

static struct timespec in_ns(uint64_t at_ns)
{
    return (struct timespec){(time_t)(at_ns / 1000000000u), (long)(at_ns % 1000000000u)};
}

/* With work_lock: waits until there is work, a tick is due or the end came. */
static void wait_for_work(elog *el)
{
    struct timespec until = in_ns(now_ns() + (uint64_t)ELOG_TICK_MS * 1000000u);
    el->writer_idle = true;
    int rc = 0;
    while (!el->work && !el->stop && rc == 0)
        rc = pthread_cond_timedwait(&el->work_cond, &el->work_lock, &until);
    el->writer_idle = false;
}

/* With work_lock: under load lets a commit collect, so that its fixed costs are shared. An idle log
 * commits at once: a lone CONNECT or PUBLISH must not wait. */
static void gather(elog *el)
{
    uint64_t gather_ns = (uint64_t)el->log->options.gather_ms * 1000000u;
    if (gather_ns == 0 ||
        el->rate_per_ms * (double)el->log->options.gather_ms < (double)GATHER_RECORDS)
        return;
    struct timespec until = in_ns(el->last_commit_ns + gather_ns);
    el->writer_gathers = true;
    while (!el->hurry && !el->stop)
        if (pthread_cond_timedwait(&el->work_cond, &el->work_lock, &until) != 0)
            break;
    el->writer_gathers = false;
}

static void writer_main(void *arg)
{
    elog *el = arg;
    uint64_t barrier_done = 0;
    pthread_mutex_lock(&el->work_lock);
    for (;;) {
        if (!el->work && !el->stop)
            wait_for_work(el);
        bool stop = el->stop;
        if (el->work && !stop)
            gather(el);
        uint64_t barrier = el->barrier_asked;
        el->work = el->hurry = false;
        pthread_mutex_unlock(&el->work_lock);
        bool left = commit_round(el, barrier, stop || barrier != barrier_done);
        barrier_done = barrier;
        elog_sync_backlog(el, SYNC_BACKLOG);
        pthread_mutex_lock(&el->work_lock);
        el->work = el->work || left;
        if (stop && !el->work)
            break;
    }
    pthread_mutex_unlock(&el->work_lock);
}

sl_err elog_barrier(elog *el, bool durable)
{
    pthread_mutex_lock(&el->work_lock);
    uint64_t mine = ++el->barrier_asked;
    el->work = el->hurry = true;
    pthread_cond_signal(&el->work_cond);
    pthread_mutex_unlock(&el->work_lock);
    return elog_sync_wait(el, mine, durable);
}

sl_err elog_writer_start(elog *el)
{
    el->wb = rocksdb_writebatch_create();
    el->last_commit_ns = now_ns();
    sl_err err = sl_thread_start("log-sync", elog_sync_main, el, &el->syncer);
    if (err == SL_OK)
        err = sl_thread_start("log-writer", writer_main, el, &el->writer);
    return err;
}

void elog_writer_stop(elog *el)
{
    if (el->writer != NULL) {
        pthread_mutex_lock(&el->work_lock);
        el->stop = true;
        pthread_cond_broadcast(&el->work_cond);
        pthread_mutex_unlock(&el->work_lock);
        sl_thread_join(&el->writer);
    }
    if (el->syncer != NULL) {
        pthread_mutex_lock(&el->sync_lock);
        el->sync_stop = true;
        pthread_cond_broadcast(&el->sync_cond);
        pthread_mutex_unlock(&el->sync_lock);
        sl_thread_join(&el->syncer);
    }
    if (el->wb != NULL)
        rocksdb_writebatch_destroy(el->wb);
    el->wb = NULL;
    sl_free(el->evict);
    el->evict = NULL;
}
