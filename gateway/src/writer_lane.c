/* SPDX-License-Identifier: Apache-2.0
 *
 * writer_lane: the buffer of one target and its batches. A batch is what piled up while the last
 * one was in the sink, so a lone message is written at once and a flood in large groups.
 */
#include "writer_int.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/map.h"

#define BATCH_BYTES    (16 << 20) /* of one batch; a larger message goes alone */
#define ENTRY_OVERHEAD 256        /* bytes we hold beside a message's own */
#define AWAY_DIVISOR                                                                               \
    8 /* tries per max_unacked_ms at least, so that a store that is back in time is used */
#define LOG_BURST     5
#define LOG_PERIOD_MS 10000
#define NS_PER_S      1e9

/* A batch on its way. Entries that share an identity share a document, the last one. */
typedef struct batch {
    size_t count;
    sl_writer_entry **entry;  /* owned array; the entries have `writing` set */
    size_t *slot;             /* owned; document of entry[i] */
    const sl_document **docs; /* owned array */
    size_t doc_count;
    sl_mono_ms start;    /* of the write */
    sl_sink_result *res; /* owned */
} batch;

/* ---- entries ---- */

void sl_writer_entry_free(sl_writer_entry **en)
{
    sl_writer_entry *own = *en;
    *en = NULL;
    sl_message_unref(&own->msg);
    sl_document_free(&own->doc);
    sl_free(own->reason);
    sl_free(own);
}

static size_t message_bytes(const sl_message *msg)
{
    size_t bytes = ENTRY_OVERHEAD + msg->topic.len + msg->payload.len +
                   msg->props.content_type.len + msg->props.response_topic.len +
                   msg->props.correlation_data.len;
    for (uint32_t i = 0; i < msg->props.user_count; i++)
        bytes += msg->props.user[i].name.len + msg->props.user[i].value.len;
    return bytes;
}

/* Out of its list, with all the sums that know of it. */
static void unlink_entry(sl_writer_lane *ln, sl_writer_entry *en)
{
    sl_list_remove(&en->node);
    ln->held--;
    ln->doomed -= en->doomed;
    if (en->parked) {
        ln->parked_count--;
        ln->parked_qos0 -= en->msg->qos == 0;
    } else {
        ln->queued--;
        ln->bytes -= (int64_t)en->bytes;
    }
}

void sl_writer_settle(sl_writer_lane *ln, sl_writer_entry *en)
{
    SL_ASSERT(!en->settled);
    unlink_entry(ln, en);
    en->settled = true;
    sl_taken_done(&en->token);
    if (!en->writing && !en->burying)
        sl_writer_entry_free(&en);
}

void sl_writer_drop(sl_writer_lane *ln, sl_writer_entry *en)
{
    sl_writer_count(ln->w, SL_WRITER_STAT_BUFFER_DROPPED, 1);
    uint32_t suppressed;
    if (sl_log_limit_pass(&ln->drop_warning, 1, LOG_PERIOD_MS, &suppressed))
        sl_warn(SL_C_WRITER, "BUFFER-DROPPED", SL_S("sink", ln->target.topic),
                SL_U("buffered", ln->queued), SL_U("suppressed", suppressed));
    sl_writer_settle(ln, en);
}

static bool has_room(const sl_writer_lane *ln, const sl_writer_entry *en)
{
    const sl_writer_conf *cf = &ln->w->cf;
    return ln->queued < cf->capacity &&
           (ln->queued == 0 || ln->bytes + (int64_t)en->bytes <= cf->max_bytes);
}

static void enqueue(sl_writer_lane *ln, sl_writer_entry *en)
{
    sl_list_push_back(&ln->queue, &en->node);
    ln->queued++;
    ln->bytes += (int64_t)en->bytes;
    sl_writer_count(ln->w, SL_WRITER_STAT_BUFFER_ACCEPTED, 1);
}

void sl_writer_admit(sl_writer_lane *ln)
{
    sl_node *node;
    while ((node = sl_list_first(&ln->parked)) != NULL) {
        sl_writer_entry *en = SL_CONTAINER(node, sl_writer_entry, node);
        if (en->burying || !has_room(ln, en))
            return;
        sl_list_remove(node);
        en->parked = false;
        ln->parked_count--;
        ln->parked_qos0 -= en->msg->qos == 0;
        enqueue(ln, en);
    }
}

/* Ring buffer: the oldest that nobody works on makes room. */
static bool evict_oldest(sl_writer_lane *ln)
{
    for (sl_node *node = sl_list_first(&ln->queue); node != NULL;
         node = sl_list_next(&ln->queue, node)) {
        sl_writer_entry *en = SL_CONTAINER(node, sl_writer_entry, node);
        if (en->writing || en->burying)
            continue;
        sl_writer_drop(ln, en);
        return true;
    }
    return false;
}

/* The buffer is full. QoS 1 and 2 messages that wait are bounded by the broker's window, because
 * they are not acknowledged; QoS 0 ones by the capacity. */
static void place_when_full(sl_writer_lane *ln, sl_writer_entry *en)
{
    const sl_writer_conf *cf = &ln->w->cf;
    if (cf->strategy == SL_WRITER_RING_BUFFER) {
        while (!has_room(ln, en) && evict_oldest(ln))
            ;
        if (has_room(ln, en)) {
            enqueue(ln, en);
            return;
        }
    }
    en->parked = true;
    sl_list_push_back(&ln->parked, &en->node);
    ln->parked_count++;
    ln->parked_qos0 += en->msg->qos == 0;
    if (cf->strategy != SL_WRITER_BLOCKING_QUEUE ||
        (en->msg->qos == 0 && ln->parked_qos0 > cf->capacity))
        sl_writer_drop(ln, en);
}

void sl_writer_on_message(sl_writer *w, size_t target, sl_message *msg, sl_taken *token)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    sl_writer_lane *ln = &w->lanes[target];
    sl_writer_entry *en = sl_calloc(1, sizeof *en);
    en->msg = sl_message_ref(msg);
    en->token = token;
    en->arrived = sl_clock_mono(w->ck);
    en->bytes = message_bytes(msg);
    pthread_mutex_lock(&ln->lock);
    if (ln->closed) { // the token stays with the router: not acknowledged, comes again
        pthread_mutex_unlock(&ln->lock);
        sl_writer_entry_free(&en);
        return;
    }
    ln->held++;
    if (ln->parked_count == 0 && has_room(ln, en))
        enqueue(ln, en);
    else
        place_when_full(ln, en);
    sl_writer_poke(ln);
    pthread_mutex_unlock(&ln->lock);
}

sl_document *sl_writer_make_document(sl_writer_lane *ln, sl_message *msg)
{
    sl_writer *w = ln->w;
    bool missing;
    sl_document *doc = sl_document_new(msg, w->cf.id_strategy, w->cf.id_field, &w->oids, &missing);
    if (!missing)
        return doc;
    sl_writer_count(w, SL_WRITER_STAT_WRITER_ID_MISSING, 1);
    uint32_t suppressed;
    if (sl_log_limit_pass(&ln->id_warning, 1, LOG_PERIOD_MS, &suppressed))
        sl_warn(SL_C_WRITER, "ID-MISSING", SL_S("sink", ln->target.topic),
                SL_S("field", w->cf.id_field), SL_B("topic", msg->topic),
                SL_S("action", "inserted under a new identifier"), SL_U("suppressed", suppressed));
    return doc;
}

/* ---- a batch ---- */

static void batch_fini(batch *bt)
{
    sl_free(bt->entry);
    sl_free(bt->slot);
    sl_free(bt->docs);
    sl_free(bt->res);
}

/* Marks the next entries as writing. *due: the soonest time one that has to wait may go. @locks
 * lane */
static void pick(sl_writer_lane *ln, sl_mono_ms now, batch *bt, sl_mono_ms *due)
{
    size_t room = ln->queued < ln->batch_limit ? ln->queued : ln->batch_limit;
    bt->entry = sl_calloc(room + 1, sizeof *bt->entry);
    size_t bytes = 0;
    for (sl_node *node = sl_list_first(&ln->queue); node != NULL && bt->count < room;
         node = sl_list_next(&ln->queue, node)) {
        sl_writer_entry *en = SL_CONTAINER(node, sl_writer_entry, node);
        if (en->burying || en->doomed)
            continue;
        if (en->not_before > now) {
            if (en->not_before < *due)
                *due = en->not_before;
            continue;
        }
        if (bt->count > 0 && bytes + en->bytes > BATCH_BYTES)
            break;
        bytes += en->bytes;
        en->writing = true;
        if (en->attempts++ > 0)
            sl_writer_count(ln->w, SL_WRITER_STAT_WRITER_RETRIES, 1);
        bt->entry[bt->count++] = en;
    }
}

/* Documents of the picked entries. Without the lock: nobody else touches a writing entry's doc
 * while it is NULL. */
static void make_documents(sl_writer_lane *ln, batch *bt)
{
    sl_document **made = sl_calloc(bt->count, sizeof *made);
    for (size_t i = 0; i < bt->count; i++)
        if (bt->entry[i]->doc == NULL)
            made[i] = sl_writer_make_document(ln, bt->entry[i]->msg);
    pthread_mutex_lock(&ln->lock);
    for (size_t i = 0; i < bt->count; i++) {
        sl_writer_entry *en = bt->entry[i];
        if (made[i] != NULL)
            en->doc = made[i];
        // it was overtaken while it waited: it must not replace what came later
        else if (en->doc->mode == SL_DOC_REPLACE && en->not_before > 0)
            en->doc->mode = SL_DOC_REPLACE_IF_NEWER;
    }
    pthread_mutex_unlock(&ln->lock);
    sl_free(made);
}

/* Of the writes to one identity only the last counts: an unordered batch has no "last". */
static void merge_identities(batch *bt)
{
    bt->docs = sl_calloc(bt->count, sizeof *bt->docs);
    bt->slot = sl_calloc(bt->count, sizeof *bt->slot);
    sl_map *seen = sl_map_new(bt->count);
    for (size_t i = 0; i < bt->count; i++) {
        const sl_document *doc = bt->entry[i]->doc;
        bt->slot[i] = bt->doc_count;
        if (doc->mode != SL_DOC_INSERT) {
            sl_buf identity;
            sl_buf_init(&identity, doc->topic.len + doc->id.key.len + 1);
            sl_err err = sl_document_write_identity(doc, &identity);
            SL_ASSERT(err == SL_OK);
            uintptr_t known = (uintptr_t)sl_map_get(seen, sl_buf_peek(&identity));
            if (known != 0)
                bt->slot[i] = known - 1;
            else
                err = sl_map_put(seen, sl_buf_peek(&identity), (void *)(bt->doc_count + 1), NULL);
            SL_ASSERT(err == SL_OK);
            sl_buf_fini(&identity);
        }
        if (bt->slot[i] == bt->doc_count)
            bt->doc_count++;
        bt->docs[bt->slot[i]] = doc;
    }
    sl_map_free(&seen);
    bt->res = sl_calloc(bt->doc_count, sizeof *bt->res);
}

static void write_batch(sl_writer_lane *ln, batch *bt)
{
    sl_writer *w = ln->w;
    uint64_t start = sl_clock_mono_ns(w->ck);
    bt->start = sl_clock_mono(w->ck);
    sl_sink_write(w->sink, &ln->sink_target, bt->docs, bt->doc_count, bt->res);
    if (w->stats == NULL)
        return;
    if (!ln->shard_taken) {
        ln->shard = sl_stats_shard(w->stats);
        ln->shard_taken = true;
    }
    sl_stats_observe(w->stats, ln->shard, w->stats_first + SL_WRITER_STAT_WRITER_BATCH_SECONDS,
                     (double)(sl_clock_mono_ns(w->ck) - start) / NS_PER_S);
}

/* ---- results ---- */

static void note_failure(sl_writer_entry *en, const sl_sink_result *res)
{
    sl_free(en->reason);
    en->reason = sl_strdup(res->reason);
    en->code = res->code;
}

static void doom(sl_writer_lane *ln, sl_writer_entry *en)
{
    en->doomed = true;
    ln->doomed++;
    uint32_t suppressed;
    if (sl_log_limit_pass(&ln->doom_warning, LOG_BURST, LOG_PERIOD_MS, &suppressed))
        sl_warn(SL_C_WRITER, "DOCUMENT-REFUSED", SL_S("sink", ln->target.topic),
                SL_B("topic", en->msg->topic), SL_B("id", en->doc->id.text),
                SL_S("reason", en->reason), SL_I("code", en->code), SL_U("attempts", en->attempts),
                SL_U("suppressed", suppressed));
}

static sl_dur_ms doubled(sl_dur_ms delay, uint32_t times, sl_dur_ms cap)
{
    for (; times > 0 && delay < cap; times--)
        delay *= 2;
    return delay < cap ? delay : cap;
}

static void apply_one(sl_writer_lane *ln, sl_writer_entry *en, const sl_sink_result *res)
{
    const sl_writer_conf *cf = &ln->w->cf;
    en->writing = false;
    if (en->settled) { // the keeper was faster; it is in the dead letter
        if (!en->burying)
            sl_writer_entry_free(&en);
        return;
    }
    if (res->outcome == SL_SINK_STORED || res->outcome == SL_SINK_DUPLICATE) {
        sl_writer_settle(ln, en);
        return;
    }
    note_failure(en, res);
    bool tried_out = en->attempts > cf->max_retries;
    switch (res->outcome) {
    case SL_SINK_CONFLICT:
        sl_writer_count(ln->w, SL_WRITER_STAT_WRITER_CONFLICTS, 1);
        doom(ln, en);
        break;
    case SL_SINK_PERMANENT:
        doom(ln, en);
        break;
    case SL_SINK_TRANSIENT:
        if (tried_out)
            doom(ln, en);
        en->not_before = sl_clock_mono(ln->w->ck) +
                         doubled(cf->retry_delay_ms, en->attempts - 1, SL_WRITER_DELAY_CAP);
        break;
    case SL_SINK_AWAY:
        if (tried_out && cf->max_unacked_ms == 0)
            doom(ln, en);
        break;
    default: // a configuration error holds the message until somebody mended it
        break;
    }
}

static bool is_store_trouble(sl_sink_outcome outcome)
{
    return outcome == SL_SINK_AWAY || outcome == SL_SINK_CONFIG;
}

/* The worst that a batch says of the store as a whole. */
static const sl_sink_result *store_trouble(const batch *bt)
{
    const sl_sink_result *worst = NULL;
    for (size_t i = 0; i < bt->doc_count; i++)
        if (is_store_trouble(bt->res[i].outcome) &&
            (worst == NULL || bt->res[i].outcome > worst->outcome))
            worst = &bt->res[i];
    return worst;
}

bool sl_writer_is_down(const sl_writer_lane *ln, sl_mono_ms now)
{
    sl_dur_ms max = ln->w->cf.max_unacked_ms;
    return ln->state == SL_SINK_AWAY && max > 0 && now - ln->away_since >= max;
}

static void log_state(sl_writer_lane *ln, uint32_t suppressed)
{
    sl_sink_outcome state = ln->state;
    switch (state) {
    case SL_SINK_CONFIG:
        sl_error(SL_C_WRITER, "SINK-MISCONFIGURED", SL_S("sink", ln->target.topic),
                 SL_S("database", ln->target.database), SL_S("collection", ln->target.collection),
                 SL_S("reason", ln->reason),
                 SL_S("action", "messages are held unacknowledged until this is mended"),
                 SL_U("suppressed", suppressed));
        break;
    case SL_SINK_AWAY:
        sl_warn(SL_C_WRITER, "SINK-AWAY", SL_S("sink", ln->target.topic),
                SL_S("reason", ln->reason));
        break;
    default:
        sl_info(SL_C_WRITER, "SINK-BACK", SL_S("sink", ln->target.topic));
        break;
    }
}

/* trouble NULL: the store works. A change is logged, and a configuration error again and again. */
static void note_state(sl_writer_lane *ln, const sl_sink_result *trouble)
{
    sl_sink_outcome before = ln->state;
    ln->state = trouble != NULL ? trouble->outcome : SL_SINK_STORED;
    snprintf(ln->reason, sizeof ln->reason, "%s", trouble != NULL ? trouble->reason : "");
    uint32_t suppressed = 0;
    if (ln->state != before ||
        (ln->state == SL_SINK_CONFIG &&
         sl_log_limit_pass(&ln->state_warning, 1, LOG_PERIOD_MS, &suppressed)))
        log_state(ln, suppressed);
}

/* The wait before the next batch when the store as a whole failed. */
static sl_dur_ms store_delay(const sl_writer_lane *ln)
{
    const sl_writer_conf *cf = &ln->w->cf;
    sl_dur_ms cap = SL_WRITER_DELAY_CAP;
    if (cf->max_unacked_ms > 0 && cf->max_unacked_ms / AWAY_DIVISOR < cap)
        cap = cf->max_unacked_ms / AWAY_DIVISOR;
    return doubled(cf->retry_delay_ms, ln->failures - 1, cap);
}

/* The state and the pause that follow from a batch or a probe that began at start. */
static void judge_store(sl_writer_lane *ln, const sl_sink_result *trouble, sl_mono_ms start)
{
    sl_mono_ms now = sl_clock_mono(ln->w->ck);
    note_state(ln, trouble);
    ln->failures = trouble != NULL ? ln->failures + 1 : 0;
    ln->not_before = trouble != NULL ? now + store_delay(ln) : 0;
    if (ln->state == SL_SINK_AWAY && ln->away_since == 0)
        ln->away_since = start; // a frozen store was away already when it was asked
}

/* A batch that a slow store cannot finish within the adapter's time-out would fail for ever. */
static void adapt_batch(sl_writer_lane *ln, const sl_sink_result *trouble)
{
    uint32_t max = ln->w->cf.batch_size;
    if (trouble == NULL)
        ln->batch_limit = ln->batch_limit > max / 2 ? max : ln->batch_limit * 2;
    else if (ln->batch_limit > 1)
        ln->batch_limit /= 2;
}

static void apply(sl_writer_lane *ln, batch *bt)
{
    sl_writer *w = ln->w;
    for (size_t i = 0; i < bt->doc_count; i++) {
        sl_sink_outcome outcome = bt->res[i].outcome;
        sl_writer_count(w, SL_WRITER_STAT_WRITER_WRITTEN, outcome == SL_SINK_STORED);
        sl_writer_count(w, SL_WRITER_STAT_BUFFER_DUPLICATES, outcome == SL_SINK_DUPLICATE);
    }
    pthread_mutex_lock(&ln->lock);
    for (size_t i = 0; i < bt->count; i++)
        apply_one(ln, bt->entry[i], &bt->res[bt->slot[i]]);
    const sl_sink_result *trouble = store_trouble(bt);
    judge_store(ln, trouble, bt->start);
    adapt_batch(ln, trouble);
    if (trouble == NULL || trouble->outcome != SL_SINK_AWAY)
        ln->away_since = 0;
    if (trouble == NULL)
        ln->progress = sl_clock_mono(w->ck);
    sl_writer_admit(ln);
    pthread_mutex_unlock(&ln->lock);
}

/* Asks a store that was away whether it is back. away_since stays until a batch was written: a
 * store that answers and still takes no writes is down at once when the next batch fails. */
static bool probe_store(sl_writer_lane *ln)
{
    sl_sink_result res = {0};
    sl_mono_ms start = sl_clock_mono(ln->w->ck);
    sl_writer_poke_keeper(ln->w); // this may take its time; messages do not wait for it
    sl_sink_probe(ln->w->sink, &res);
    pthread_mutex_lock(&ln->lock);
    bool back = !is_store_trouble(res.outcome);
    judge_store(ln, back ? NULL : &res, start);
    pthread_mutex_unlock(&ln->lock);
    return back;
}

typedef enum next_step { STEP_WAIT, STEP_PROBE, STEP_WRITE } next_step;

/* What the lane does now; a batch is picked for STEP_WRITE. *due: when to look again. @locks lane
 */
static next_step choose(sl_writer_lane *ln, batch *bt, sl_mono_ms *due)
{
    sl_mono_ms now = sl_clock_mono(ln->w->ck);
    *due = INT64_MAX;
    if (ln->not_before > now) {
        *due = ln->not_before;
        return STEP_WAIT;
    }
    if (sl_writer_is_down(ln, now))
        return STEP_PROBE;
    pick(ln, now, bt, due);
    if (bt->count > 0)
        return STEP_WRITE;
    return ln->state == SL_SINK_AWAY ? STEP_PROBE : STEP_WAIT; // without traffic it heals, too
}

static void bury_all(sl_writer_lane *ln, sl_writer_whom whom)
{
    while (sl_writer_bury(ln, whom))
        ;
}

bool sl_writer_turn_lane(sl_writer *w, size_t target, sl_mono_ms *due)
{
    SL_CHECK(w, SL_WRITER_MAGIC);
    sl_writer_lane *ln = &w->lanes[target];
    batch bt = {0};
    pthread_mutex_lock(&ln->lock);
    ln->poked = false;
    sl_writer_admit(ln);
    next_step step = choose(ln, &bt, due);
    bool down = sl_writer_is_down(ln, sl_clock_mono(w->ck));
    pthread_mutex_unlock(&ln->lock);
    if (step == STEP_WRITE) {
        make_documents(ln, &bt);
        merge_identities(&bt);
        write_batch(ln, &bt);
        apply(ln, &bt);
    }
    batch_fini(&bt);
    if (step == STEP_WRITE) {
        bury_all(ln, SL_BURY_DOOMED);
        return true;
    }
    if (step == STEP_PROBE && probe_store(ln))
        return true;
    if (down)
        bury_all(ln, SL_BURY_DUE);
    if (step == STEP_PROBE) {
        pthread_mutex_lock(&ln->lock);
        *due = ln->not_before;
        pthread_mutex_unlock(&ln->lock);
    }
    return false;
}
