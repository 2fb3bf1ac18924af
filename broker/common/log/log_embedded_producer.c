/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_producer: the queues between a producer's thread and the writer. A record is
 * serialised once, straight into the chunk of its partition; that buffer becomes the value in the
 * store and the entry of the ring. The writer takes whole segments (chunks, rows, tokens) by
 * pointer; nothing of it walks over records. Completions go back as two states of a segment.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "log/elog_fn.h"

#define FIRST_CHUNK_BYTES 512u
#define FIRST_SLOTS       64u
#define SPARE_SEGMENTS    4u
#define HURRY_BYTES       (1u << 20) /* this much queued ends the gathering */
#define DRAIN_RUN         128

/* ---- open and close ---- */

sl_err elog_producer_open(sl_log *log, const sl_log_producer_options *options,
                          sl_log_producer **out)
{
    elog *el = elog_of(log);
    elog_producer *pr = sl_calloc(1, sizeof *pr);
    pr->base = (struct sl_log_producer){SL_LOG_PRODUCER_MAGIC, log, *options};
    pr->el = el;
    pthread_mutex_init(&pr->lock, NULL);
    pthread_cond_init(&pr->done, NULL);
    for (unsigned i = 0; i < ELOG_CLASSES; i++) {
        pr->queues[i].slots = sl_calloc(FIRST_SLOTS, sizeof(elog_slot));
        pr->queues[i].slot_cap = FIRST_SLOTS;
    }
    pthread_mutex_lock(&el->producers_lock);
    if (el->producer_count == el->producer_cap) {
        el->producer_cap = el->producer_cap == 0 ? 8 : el->producer_cap * 2;
        el->producers = sl_realloc(el->producers, el->producer_cap * sizeof *el->producers);
    }
    el->producers[el->producer_count++] = pr;
    pthread_mutex_unlock(&el->producers_lock);
    *out = &pr->base;
    return SL_OK;
}

static void segment_clear(elog_segment *seg)
{
    for (uint32_t i = 0; i < seg->chunk_count; i++) {
        sl_rbuf_unref(&seg->chunks[i].fill.buf);
        sl_free(seg->chunks[i].refs);
    }
    seg->chunk_count = 0;
    seg->ops_len = 0;
    seg->acks[0].count = seg->acks[1].count = 0;
    seg->bytes = 0;
    seg->records = 0;
    seg->needs_sync = seg->written_drained = false;
    seg->err = SL_OK;
    seg->next = NULL;
}

static void segment_free(elog_segment *seg)
{
    segment_clear(seg);
    sl_free(seg->chunks);
    sl_free(seg->ops);
    sl_free(seg->acks[0].at);
    sl_free(seg->acks[1].at);
    sl_free(seg);
}

static bool has_open_segments(const elog_producer *pr)
{
    for (unsigned i = 0; i < ELOG_CLASSES; i++)
        for (const elog_segment *seg = pr->queues[i].head; seg != NULL; seg = seg->next)
            if (seg->state != ELOG_DONE)
                return true;
    return false;
}

void elog_producer_close(sl_log_producer *base)
{
    elog_producer *pr = (elog_producer *)base;
    elog *el = pr->el;
    elog_writer_wake(el, true);
    pthread_mutex_lock(&pr->lock);
    pr->closing = true; // completions may want to append
    while (has_open_segments(pr))
        pthread_cond_wait(&pr->done, &pr->lock);
    pthread_mutex_unlock(&pr->lock);
    while (elog_producer_drain(base) > 0)
        ;
    pthread_mutex_lock(&el->producers_lock);
    for (size_t i = 0; i < el->producer_count; i++)
        if (el->producers[i] == pr)
            el->producers[i] = el->producers[--el->producer_count];
    pthread_mutex_unlock(&el->producers_lock);
    for (unsigned i = 0; i < ELOG_CLASSES; i++) {
        SL_ASSERT(pr->queues[i].head == NULL);
        sl_free(pr->queues[i].slots);
    }
    while (pr->spare != NULL) {
        elog_segment *seg = pr->spare;
        pr->spare = seg->next;
        segment_free(seg);
    }
    pthread_cond_destroy(&pr->done);
    pthread_mutex_destroy(&pr->lock);
    sl_free(pr);
}

/* ---- filling; with the producer's lock ---- */

static void pop_segment(elog_producer *pr, elog_queue *qu)
{
    elog_segment *seg = qu->head;
    qu->head = seg->next;
    if (qu->tail == seg)
        qu->tail = NULL;
    if (qu->taken == seg)
        qu->taken = NULL;
    if (pr->spare_count == SPARE_SEGMENTS) {
        segment_free(seg);
        return;
    }
    segment_clear(seg);
    seg->next = pr->spare;
    pr->spare = seg;
    pr->spare_count++;
}

static elog_segment *open_segment(elog_producer *pr, elog_class cls)
{
    elog_queue *qu = &pr->queues[cls];
    // Finished ones without completions need no drain.
    while (qu->head != NULL && qu->head->state == ELOG_DONE && qu->head->acks[0].count == 0 &&
           qu->head->acks[1].count == 0)
        pop_segment(pr, qu);
    if (qu->tail != NULL && qu->tail->state == ELOG_OPEN) {
        if (qu->tail->bytes < ELOG_SEGMENT_BYTES)
            return qu->tail;
        qu->tail->state = ELOG_CLOSED;
    }
    elog_segment *seg = pr->spare;
    if (seg != NULL) {
        pr->spare = seg->next;
        pr->spare_count--;
        seg->next = NULL;
    } else {
        seg = sl_calloc(1, sizeof *seg);
    }
    seg->pr = pr;
    seg->cls = cls;
    seg->state = ELOG_OPEN;
    if (qu->tail == NULL)
        qu->head = seg;
    else
        qu->tail->next = seg;
    qu->tail = seg;
    qu->epoch++; // the chunks of the segment before are out of reach now
    qu->slot_used = 0;
    return seg;
}

static elog_slot *find_slot(elog_queue *qu, uint32_t pid);

static void grow_slots(elog_queue *qu)
{
    elog_slot *old = qu->slots;
    uint32_t old_cap = qu->slot_cap;
    qu->slot_cap *= 2;
    qu->slots = sl_calloc(qu->slot_cap, sizeof *qu->slots);
    for (uint32_t i = 0; i < old_cap; i++)
        if (old[i].epoch == qu->epoch && old[i].pid != 0)
            *find_slot(qu, old[i].pid) = old[i];
    sl_free(old);
}

/* The slot of this partition, or the free one where it belongs. Within an epoch slots are only
 * added, so the first free one ends every search. */
static elog_slot *find_slot(elog_queue *qu, uint32_t pid)
{
    uint32_t mask = qu->slot_cap - 1;
    for (uint32_t at = (pid * 0x9e3779b1u) >> 7;; at++) {
        elog_slot *slot = &qu->slots[at & mask];
        if (slot->pid == pid || slot->epoch != qu->epoch)
            return slot;
    }
}

static uint32_t new_chunk(elog_segment *seg, elog_part *part)
{
    if (seg->chunk_count == seg->chunk_cap) {
        seg->chunk_cap = seg->chunk_cap == 0 ? 32 : seg->chunk_cap * 2;
        seg->chunks = sl_realloc(seg->chunks, seg->chunk_cap * sizeof *seg->chunks);
    }
    seg->chunks[seg->chunk_count] = (elog_chunk){.part = part};
    return seg->chunk_count++;
}

/* The chunk that the next record of need bytes goes to; *first_cap its size if it is new. */
static uint32_t chunk_for(elog_queue *qu, elog_segment *seg, elog_part *part, size_t need,
                          size_t *first_cap)
{
    if (qu->slot_used * 2 >= qu->slot_cap)
        grow_slots(qu);
    elog_slot *slot = find_slot(qu, part->pid);
    bool known = slot->pid == part->pid;
    uint32_t hint = known ? slot->hint : 0;
    if (known && slot->epoch == qu->epoch) {
        const elog_chunk *ch = &seg->chunks[slot->chunk];
        if (ch->fill.buf->len + need <= ELOG_CHUNK_BYTES) {
            slot->hint = ch->fill.buf->len + (uint32_t)need;
            return slot->chunk;
        }
        hint = ELOG_CHUNK_BYTES; // a full one was just closed: the next one fills too
    } else {
        qu->slot_used++;
    }
    // As much room as this partition used last time, and a little more.
    size_t cap = hint + hint / 8;
    *first_cap = cap < FIRST_CHUNK_BYTES  ? FIRST_CHUNK_BYTES
                 : cap > ELOG_CHUNK_BYTES ? ELOG_CHUNK_BYTES
                                          : cap;
    *slot = (elog_slot){.pid = part->pid,
                        .epoch = qu->epoch,
                        .chunk = new_chunk(seg, part),
                        .hint = (uint32_t)(SL_BATCH_HEADER_BYTES + need)};
    return slot->chunk;
}

static void add_ack(elog_acks *acks, uint64_t token, uint32_t chunk, uint32_t index)
{
    if (acks->count == acks->cap) {
        acks->cap = acks->cap == 0 ? 64 : acks->cap * 2;
        acks->at = sl_realloc(acks->at, acks->cap * sizeof *acks->at);
    }
    acks->at[acks->count++] = (elog_ack){token, chunk, index};
}

static uint8_t *ops_room(elog_segment *seg, size_t need)
{
    if (seg->ops_cap - seg->ops_len < need) {
        size_t cap =
            seg->ops_cap * 2 > seg->ops_len + need ? seg->ops_cap * 2 : seg->ops_len + need;
        seg->ops = sl_realloc(seg->ops, cap);
        seg->ops_cap = cap;
    }
    uint8_t *at = seg->ops + seg->ops_len;
    seg->ops_len += need;
    return at;
}

static void chunk_note_source(elog_chunk *ch, elog_part *source, uint64_t offset)
{
    for (unsigned i = 0; i < ch->ref_count; i++) {
        if (ch->refs[i].source == source) {
            if (offset < ch->refs[i].first)
                ch->refs[i].first = offset;
            return;
        }
    }
    if (ch->ref_count == ch->ref_cap) {
        ch->ref_cap = ch->ref_cap == 0 ? 4 : ch->ref_cap * 2;
        ch->refs = sl_realloc(ch->refs, ch->ref_cap * sizeof *ch->refs);
    }
    ch->refs[ch->ref_count++] = (elog_refmark){.source = source, .first = offset};
}

/* ---- appending ---- */

static size_t queue_max(const elog_producer *pr, elog_class cls)
{
    const sl_log_options *options = &pr->el->log->options;
    return cls == ELOG_MAIN ? options->queue_max_bytes : options->derived_max_bytes;
}

/* Whether this class takes so much more; only an empty queue takes more than its bound. */
static sl_err admit(elog_producer *pr, elog_class cls, size_t need, bool always)
{
    elog *el = pr->el;
    if (pr->closing)
        return SL_ECLOSED;
    sl_err failed = (sl_err)atomic_load_explicit(&el->failed, memory_order_relaxed);
    if (failed != SL_OK)
        return failed;
    if (!always && atomic_load_explicit(&el->low, memory_order_relaxed))
        return SL_ENOSPC;
    size_t max =
        cls == ELOG_MAIN ? el->log->options.queue_max_bytes : el->log->options.derived_max_bytes;
    if (pr->queues[cls].bytes > 0 && pr->queues[cls].bytes + need > max) {
        pr->starved[cls] = true;
        return SL_EAGAIN;
    }
    return SL_OK;
}

typedef struct append_job {
    elog_class cls;
    elog_part *part;
    sl_batch_parts parts;
    elog_part *source;                  /* of a derived record, or NULL */
    const sl_log_record *source_record; /* the same, to be copied if need be */
    bool must_copy;
    uint32_t flags; /* SL_LOG_* of the caller */
    uint64_t token;
    const sl_log_qos2 *open;
} append_job;

/* Room for the queue's fixed costs of a record; so a flood of empty ones is bounded too. */
#define RECORD_OVERHEAD 32

/* A copy where a reference could not last: a source that is a reference itself or a row that its
 * key's next value replaces, a target that keeps rows, a source that retention is about to take.
 * Decided with the producer's lock: retention raises the floor, then waits for a commit, and so
 * has seen every reference that was decided before. */
static void decide_reference(append_job *job)
{
    sl_batch_parts *parts = &job->parts;
    bool copy =
        job->must_copy ||
        parts->source->offset < atomic_load_explicit(&job->source->floor, memory_order_acquire);
    if (!copy) {
        parts->flags |= SL_BATCH_REFERENCE;
        return;
    }
    if (parts->key.len == 0)
        parts->key = job->source_record->key;
    parts->raw_headers = job->source_record->headers;
    parts->value = &job->source_record->value;
    parts->value_count = 1;
}

static sl_err append_locked(elog_producer *pr, append_job *job, bool *wake, bool *hurry)
{
    if (job->source != NULL)
        decide_reference(job);
    size_t need = sl_batch_record_bound(&job->parts);
    size_t ops = job->open == NULL ? 0 : elog_op_ledger_bytes(job->open->client);
    size_t cost = need + ops + RECORD_OVERHEAD;
    sl_err err = admit(pr, job->cls, cost, false);
    if (err != SL_OK)
        return err;
    elog_queue *qu = &pr->queues[job->cls];
    elog_segment *seg = open_segment(pr, job->cls);
    size_t first_cap = 0;
    uint32_t index = chunk_for(qu, seg, job->part, need, &first_cap);
    elog_chunk *ch = &seg->chunks[index];
    bool durable = (job->parts.flags & SL_LOG_DURABLE) != 0;
    if ((job->flags & SL_LOG_NO_ACK) == 0)
        add_ack(&seg->acks[durable ? 1 : 0], job->token, index, ch->fill.count);
    sl_batch_append(&ch->fill, &job->parts, first_cap, NULL);
    if ((job->parts.flags & SL_BATCH_REFERENCE) != 0)
        chunk_note_source(ch, job->source, job->parts.source->offset);
    if (job->open != NULL) {
        elog_op_put_ledger(ops_room(seg, ops), ELOG_OP_LEDGER_OPEN, job->open->client,
                           job->open->packet_id);
        elog_ledger_set(pr->el, job->open->client, job->open->packet_id, true);
    }
    *wake = seg->bytes == 0;
    seg->needs_sync = seg->needs_sync || durable;
    seg->bytes += cost;
    seg->records++;
    *hurry = qu->bytes < HURRY_BYTES && qu->bytes + cost >= HURRY_BYTES;
    qu->bytes += cost;
    return SL_OK;
}

static sl_err append_job_run(elog_producer *pr, append_job *job)
{
    bool wake = false, hurry = false;
    pthread_mutex_lock(&pr->lock);
    sl_err err = append_locked(pr, job, &wake, &hurry);
    pthread_mutex_unlock(&pr->lock);
    if (err != SL_OK)
        return err;
    if (wake || hurry)
        elog_writer_wake(pr->el, hurry);
    return SL_OK;
}

static uint8_t stored_flags(const elog_topic *tp, uint32_t flags)
{
    if ((flags & SL_LOG_DURABLE) != 0)
        return SL_LOG_DURABLE;
    if ((flags & SL_LOG_VOLATILE) != 0)
        return SL_LOG_VOLATILE;
    return atomic_load_explicit(&tp->durable, memory_order_relaxed) ? SL_LOG_DURABLE
                                                                    : SL_LOG_VOLATILE;
}

sl_err elog_append(sl_log_producer *base, sl_log_topic *topic, uint16_t partition,
                   const sl_log_record_in *record, const sl_log_qos2 *open, uint64_t token)
{
    elog_topic *tp = (elog_topic *)topic;
    append_job job = {.cls = ELOG_MAIN,
                      .part = &tp->parts[partition],
                      .parts = {.flags = stored_flags(tp, record->flags),
                                .attr = record->attr,
                                .time_ms = record->time_ms,
                                .key = record->key,
                                .headers = record->headers,
                                .header_count = record->header_count,
                                .value = record->value,
                                .value_count = 4},
                      .flags = record->flags,
                      .token = token,
                      .open = open};
    return append_job_run((elog_producer *)base, &job);
}

sl_err elog_append_derived(sl_log_producer *base, sl_log_topic *target, uint16_t partition,
                           const sl_log_topic *source_topic, uint16_t source_partition,
                           const sl_log_record *source, const sl_log_record_in *record,
                           uint64_t token)
{
    elog_topic *tp = (elog_topic *)target;
    elog_topic *from = (elog_topic *)source_topic;
    const sl_batch_source position = {from->id, source_partition, source->offset};
    append_job job = {.cls = ELOG_DERIVED,
                      .part = &tp->parts[partition],
                      .parts = {.flags = SL_LOG_VOLATILE | SL_BATCH_DERIVED,
                                .attr = record->attr,
                                .time_ms = source->time_ms,
                                .key = record->key,
                                .headers = record->headers,
                                .header_count = record->header_count,
                                .source = &position},
                      .source = &from->parts[source_partition],
                      .source_record = source,
                      .must_copy = source->is_derived || from->compacted || tp->compacted,
                      .flags = record->flags,
                      .token = token};
    return append_job_run((elog_producer *)base, &job);
}

sl_err elog_queue_ops(elog_producer *pr, elog_class cls, size_t need, bool always, bool durable,
                      bool with_ack, uint64_t token, void (*fill)(void *arg, uint8_t *at),
                      void *arg)
{
    size_t cost = need + RECORD_OVERHEAD;
    pthread_mutex_lock(&pr->lock);
    sl_err err = admit(pr, cls, cost, always);
    bool wake = false;
    if (err == SL_OK) {
        elog_segment *seg = open_segment(pr, cls);
        if (need > 0)
            fill(arg, ops_room(seg, need));
        if (with_ack)
            add_ack(&seg->acks[durable ? 1 : 0], token, UINT32_MAX, 0);
        wake = seg->bytes == 0;
        seg->needs_sync = seg->needs_sync || durable;
        seg->bytes += cost;
        pr->queues[cls].bytes += cost;
    }
    pthread_mutex_unlock(&pr->lock);
    if (wake)
        elog_writer_wake(pr->el, false);
    return err;
}

/* ---- the writer's side ---- */

bool elog_producer_take(elog_producer *pr, bool everything, elog_segment ***tail)
{
    bool left = false;
    pthread_mutex_lock(&pr->lock);
    for (unsigned cls = 0; cls < ELOG_CLASSES; cls++) {
        elog_queue *qu = &pr->queues[cls];
        elog_segment *seg = qu->taken == NULL ? qu->head : qu->taken->next;
        size_t share = 0;
        for (; seg != NULL; seg = seg->next) {
            // Derived appends are taken whole: they are small, bounded, and the committed offsets
            // of this round rest upon them.
            if (cls == ELOG_MAIN && !everything && share >= 2 * ELOG_SEGMENT_BYTES) {
                left = true;
                break;
            }
            share += seg->bytes;
            seg->state = ELOG_TAKEN;
            seg->next_taken = NULL;
            qu->taken = seg;
            **tail = seg;
            *tail = &seg->next_taken;
        }
    }
    pthread_mutex_unlock(&pr->lock);
    return left;
}

static void wake_owner(elog_producer *pr)
{
    if (pr->wake_open || pr->base.options.wake == NULL)
        return;
    pr->wake_open = true;
    pr->base.options.wake(pr->base.options.arg);
}

/* The lock is held over wake(): the owner may close as soon as it sees the state. */
void elog_segments_done(elog *el, elog_segment *list, bool durable)
{
    (void)el;
    while (list != NULL) {
        elog_segment *seg = list;
        list = seg->next_taken;
        elog_producer *pr = seg->pr;
        pthread_mutex_lock(&pr->lock);
        bool finished = durable || !seg->needs_sync || seg->err != SL_OK;
        bool news = seg->acks[0].count > 0 && seg->state == ELOG_TAKEN;
        seg->state = finished ? ELOG_DONE : ELOG_WRITTEN;
        if (finished) {
            pr->queues[seg->cls].bytes -= seg->bytes;
            news = news || seg->acks[1].count > 0 || pr->starved[seg->cls];
            pthread_cond_broadcast(&pr->done);
        }
        if (news)
            wake_owner(pr);
        pthread_mutex_unlock(&pr->lock);
    }
}

/* ---- draining; the owner's thread ---- */

static size_t deliver(elog_producer *pr, const elog_segment *seg, const elog_acks *acks)
{
    sl_log_done run[DRAIN_RUN];
    uint32_t done = 0;
    while (done < acks->count) {
        uint32_t count = acks->count - done < DRAIN_RUN ? acks->count - done : DRAIN_RUN;
        for (uint32_t i = 0; i < count; i++) {
            const elog_ack *ack = &acks->at[done + i];
            run[i] = (sl_log_done){.token = ack->token, .err = seg->err};
            if (ack->chunk == UINT32_MAX)
                continue;
            const elog_chunk *ch = &seg->chunks[ack->chunk];
            run[i].offset = ch->base + ack->index;
            if (ch->err != SL_OK)
                run[i].err = ch->err;
        }
        pr->base.options.done(pr->base.options.arg, run, count);
        done += count;
    }
    return acks->count;
}

/* Hands out what is ready of one class; the lock is held between segments only. */
static size_t drain_class(elog_producer *pr, elog_queue *qu)
{
    size_t total = 0;
    elog_segment *seg = qu->head;
    bool all_before_done = true;
    while (seg != NULL && seg->state >= ELOG_WRITTEN) {
        bool finished = seg->state == ELOG_DONE && all_before_done;
        bool fresh = !seg->written_drained;
        seg->written_drained = true;
        pthread_mutex_unlock(&pr->lock);
        if (fresh)
            total += deliver(pr, seg, &seg->acks[0]);
        if (finished)
            total += deliver(pr, seg, &seg->acks[1]);
        pthread_mutex_lock(&pr->lock);
        elog_segment *next = seg->next;
        if (!finished) {
            all_before_done = false;
            seg = next;
            continue;
        }
        pop_segment(pr, qu);
        seg = next;
    }
    return total;
}

size_t elog_producer_drain(sl_log_producer *base)
{
    elog_producer *pr = (elog_producer *)base;
    size_t total = 0;
    pthread_mutex_lock(&pr->lock);
    pr->wake_open = false;
    for (unsigned i = 0; i < ELOG_CLASSES; i++)
        total += drain_class(pr, &pr->queues[i]);
    bool room = false;
    for (unsigned i = 0; i < ELOG_CLASSES; i++) {
        if (pr->starved[i] && pr->queues[i].bytes <= queue_max(pr, i) / 2) {
            pr->starved[i] = false;
            room = true;
        }
    }
    pthread_mutex_unlock(&pr->lock);
    if (room && pr->base.options.room != NULL)
        pr->base.options.room(pr->base.options.arg);
    return total;
}
