/* SPDX-License-Identifier: Apache-2.0
 *
 * dispatcher: see dispatcher.h.
 *
 * A partition's progress is a queue of marks, one per batch: (offset behind it, copies that are not
 * stored yet). Marks leave the front when they have none; then the watermark moves. After a failed
 * copy nothing later of that partition is appended: the partition waits until what is under way has
 * completed, then reads again from its watermark. Live deliveries are not repeated then.
 */
#include "dispatch/dispatcher.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/logger.h"
#include "dispatch/delivery.h"
#include "route/sub_trie.h"
#include "session/client.h"
#include "session/io.h"
#include "session/stamps.h"
#include "stats/broker_stats.h"
#include "stats/msg_trace.h"

#define POLL_BATCHES  32
#define ROUND_BYTES   (1u << 20)
#define RETRY_MS      500
#define MAX_SUB_IDS   64
#define PARTITION_MAX 1024

typedef struct mark {
    uint64_t next;   /* offset behind the batch */
    uint32_t copies; /* derived records under way; one more while the batch is being handled */
} mark;

typedef struct part {
    bool assigned;
    bool failed;        /* a copy failed: wait for the others, then read again */
    uint64_t watermark; /* committed: everything below is where it has to be */
    uint64_t live_done; /* live deliveries of durable records below it were made */
    uint64_t epoch;     /* changes with each new reading; in the tokens of its copies */
    mark *marks;        /* owned ring */
    uint32_t mark_cap, mark_head, mark_count;
    uint32_t under_way; /* copies of all marks, and of abandoned ones */
} part;

/* A target of the record at hand that could not be appended for want of room. */
typedef struct target {
    uint32_t client;
    uint64_t generation; /* of its session when it was matched */
    uint8_t qos;
    uint8_t flags;
    uint32_t ids_at, ids;
} target;

struct sl_dispatcher {
    sl_core *core;
    sl_loop *lp;
    unsigned index;
    unsigned shard;
    struct sl_rcu_reader *rcu;
    sl_log_consumer *consumer;
    sl_log_producer *producer;
    part parts[PARTITION_MAX];
    sl_sub_matches matches;
    sl_delivery_mail **out; /* per I/O loop, being filled */
    /* The round at hand; a batch may be left half done when there is no room for its copies. */
    sl_log_batch batches[POLL_BATCHES];
    size_t batch_count, batch_at;
    size_t pos;        /* in the batch at hand: behind the record at hand */
    sl_log_record rec; /* whose targets are left */
    target *targets;   /* owned: left over, target_at of target_count */
    uint32_t target_count, target_at, target_cap;
    uint32_t *ids; /* owned: their subscription identifiers */
    uint32_t id_count, id_cap;
    sl_timer retry;
    sl_mail poll_mail, drain_mail;
    _Atomic bool poll_posted;
    bool waiting_room;
    bool started;
};

static void wake_poll(void *arg);

static void count(sl_dispatcher *dp, unsigned stat, int64_t delta)
{
    sl_stats_add(dp->core->stats, dp->shard, stat, delta);
}

/* ---- marks and the watermark
 * ---------------------------------------------------------------------- */

static void add_mark(part *pt, uint64_t next, uint32_t copies)
{
    if (pt->mark_count == pt->mark_cap) {
        uint32_t cap = pt->mark_cap == 0 ? 16 : pt->mark_cap * 2;
        mark *ring = sl_alloc(cap * sizeof(*ring));
        for (uint32_t i = 0; i < pt->mark_count; i++)
            ring[i] = pt->marks[(pt->mark_head + i) % pt->mark_cap];
        sl_free(pt->marks);
        pt->marks = ring;
        pt->mark_cap = cap;
        pt->mark_head = 0;
    }
    pt->marks[(pt->mark_head + pt->mark_count++) % pt->mark_cap] =
        (mark){.next = next, .copies = copies};
}

static mark *last_mark(part *pt)
{
    SL_ASSERT(pt->mark_count > 0);
    return &pt->marks[(pt->mark_head + pt->mark_count - 1) % pt->mark_cap];
}

static void move_watermark(sl_dispatcher *dp, uint16_t partition)
{
    part *pt = &dp->parts[partition];
    uint64_t next = pt->watermark;
    while (pt->mark_count > 0 && pt->marks[pt->mark_head].copies == 0) {
        next = pt->marks[pt->mark_head].next;
        pt->mark_head = (pt->mark_head + 1) % pt->mark_cap;
        pt->mark_count--;
    }
    if (next == pt->watermark || pt->failed)
        return;
    pt->watermark = next;
    sl_err err = sl_log_consumer_commit(dp->consumer, dp->core->t_all, partition, next);
    if (err != SL_OK)
        sl_warn(SL_C_DISPATCH, "OFFSET-NOT-COMMITTED", SL_U("partition", partition), SL_E(err));
}

/* Reads the partition again from its watermark, once nothing of it is under way. */
static void restart_part(sl_dispatcher *dp, uint16_t partition)
{
    part *pt = &dp->parts[partition];
    pt->failed = false;
    pt->epoch++;
    pt->mark_count = pt->mark_head = 0;
    count(dp, SL_BS_DISPATCH_RETRIES, 1);
    sl_err err = sl_log_consumer_unassign(dp->consumer, dp->core->t_all, partition);
    if (err == SL_OK)
        err = sl_log_consumer_assign(dp->consumer, dp->core->t_all, partition, pt->watermark);
    if (err != SL_OK) {
        pt->failed = true;
        sl_error(SL_C_DISPATCH, "PARTITION-NOT-READ", SL_U("partition", partition), SL_E(err));
        sl_timer_start(&dp->retry, RETRY_MS, 0);
    }
}

static void fail_part(sl_dispatcher *dp, uint16_t partition, sl_err err)
{
    part *pt = &dp->parts[partition];
    if (pt->failed)
        return;
    static sl_log_limit limit;
    uint32_t held = 0;
    if (sl_log_limit_pass(&limit, 1, 10000, &held))
        sl_error(SL_C_DISPATCH, "COPY-NOT-STORED", SL_U("partition", partition),
                 SL_U("watermark", pt->watermark), SL_E(err), SL_U("suppressed", held));
    pt->failed = true;
    sl_timer_start(&dp->retry, RETRY_MS, 0);
}

/* ---- completions of copies
 * --------------------------------------------------------------------------- */

/* partition 10 bits | epoch 14 bits | offset behind the batch 40 bits */
static uint64_t copy_token(uint16_t partition, uint64_t epoch, uint64_t next)
{
    return (uint64_t)partition << 54 | (epoch & 0x3FFF) << 40 | (next & 0xFFFFFFFFFF);
}

static void on_done(void *arg, const sl_log_done *dones, size_t n)
{
    sl_dispatcher *dp = arg;
    for (size_t i = 0; i < n; i++) {
        uint16_t partition = (uint16_t)(dones[i].token >> 54);
        part *pt = &dp->parts[partition];
        SL_ASSERT(pt->under_way > 0);
        pt->under_way--;
        if ((dones[i].token >> 40 & 0x3FFF) != (pt->epoch & 0x3FFF))
            continue; // of a reading that was given up
        if (dones[i].err != SL_OK) {
            fail_part(dp, partition, dones[i].err);
            continue;
        }
        // Completions come nearly in order: the mark is at the front or close to it.
        for (uint32_t k = 0; k < pt->mark_count; k++) {
            mark *mk = &pt->marks[(pt->mark_head + k) % pt->mark_cap];
            if ((mk->next & 0xFFFFFFFFFF) == (dones[i].token & 0xFFFFFFFFFF)) {
                mk->copies--;
                if (k == 0 && mk->copies == 0)
                    move_watermark(dp, partition);
                break;
            }
        }
    }
}

static void on_room(void *arg)
{
    sl_dispatcher *dp = arg;
    dp->waiting_room = false;
    wake_poll(dp);
}

static void wake_drain(void *arg)
{
    sl_dispatcher *dp = arg;
    sl_loop_post(dp->lp, &dp->drain_mail);
}

static void on_drain(sl_mail *mail)
{
    sl_dispatcher *dp = SL_CONTAINER(mail, sl_dispatcher, drain_mail);
    if (dp->producer != NULL)
        (void)sl_log_producer_drain(dp->producer);
}

/* ---- one record
 * ----------------------------------------------------------------------------------------- */

typedef struct keep_arg {
    const sl_dispatcher *dp;
    const sl_log_record *rec;
    uint16_t partition;
    sl_slice publisher;
} keep_arg;

/* Subscriptions this record is not for: made after it, or no-local of the publisher itself. */
static bool keep_sub(void *arg, const sl_sub *sub)
{
    const keep_arg *ka = arg;
    if (sl_stamps_is_older(ka->dp->core->stamps, sub->stamp, ka->partition, ka->rec->offset))
        return false;
    if ((sub->flags & SL_SUB_NO_LOCAL) != 0) { // [MQTT-3.8.3-3]
        const sl_client *cl = sl_registry_at(ka->dp->core->registry, sub->client);
        if (cl == NULL || sl_slice_equal(sl_client_id(cl), ka->publisher))
            return false;
    }
    return true;
}

static void put_u32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* A copy for the inbox of a persistent client: a reference to the record. */
static sl_err append_copy(sl_dispatcher *dp, const sl_log_batch *batch, const sl_log_record *rec,
                          const sl_client *cl, const target *tg, const uint32_t *ids)
{
    uint8_t generation[8], qos = (uint8_t)(tg->qos | ((tg->flags & SL_DELIVER_RETAIN) ? 4 : 0));
    uint8_t id_bytes[MAX_SUB_IDS * 4];
    for (int i = 0; i < 8; i++)
        generation[i] = (uint8_t)(tg->generation >> (56 - 8 * i));
    for (uint32_t i = 0; i < tg->ids; i++)
        put_u32(id_bytes + (size_t)i * 4, ids[i]);
    const sl_log_header headers[] = {
        {SL_LOG_H_GENERATION, sl_slice_of(generation, sizeof(generation))},
        {SL_LOG_H_SUB_QOS, sl_slice_of(&qos, 1)},
        {SL_LOG_H_SUB_IDS, sl_slice_of(id_bytes, (size_t)tg->ids * 4)}};
    sl_log_record_in in = {.key = sl_client_id(cl),
                           .headers = headers,
                           .header_count = tg->ids > 0 ? 3 : 2,
                           .time_ms = rec->time_ms,
                           .attr = tg->qos};
    part *pt = &dp->parts[batch->partition];
    sl_err err = sl_log_append_derived(dp->producer, dp->core->t_persisted, SL_LOG_BY_KEY,
                                       dp->core->t_all, batch->partition, rec, &in,
                                       copy_token(batch->partition, pt->epoch, batch->next));
    if (err == SL_OK) {
        last_mark(pt)->copies++;
        pt->under_way++;
        count(dp, SL_BS_DERIVED, 1);
        sl_msg_trace_step(dp->core->trace, SL_STEP_DERIVED, batch->partition, rec->offset,
                          tg->client);
    }
    return err;
}

/* Remembers a target for when there is room again. */
static void leave_target(sl_dispatcher *dp, const target *tg, const uint32_t *ids)
{
    if (dp->target_count == dp->target_cap) {
        dp->target_cap = dp->target_cap == 0 ? 64 : dp->target_cap * 2;
        dp->targets = sl_realloc(dp->targets, dp->target_cap * sizeof(*dp->targets));
    }
    if (dp->id_count + tg->ids > dp->id_cap) {
        dp->id_cap = (dp->id_count + tg->ids) * 2;
        dp->ids = sl_realloc(dp->ids, dp->id_cap * sizeof(*dp->ids));
    }
    target *kept = &dp->targets[dp->target_count++];
    *kept = *tg;
    kept->ids_at = dp->id_count;
    if (tg->ids > 0)
        memcpy(dp->ids + dp->id_count, ids, tg->ids * sizeof(*ids));
    dp->id_count += tg->ids;
}

typedef struct record_ctx {
    sl_dispatcher *dp;
    const sl_log_batch *batch;
    const sl_log_record *rec;
    sl_out_msg msg;
    uint8_t qos;
    bool live; /* live deliveries of this record have not been made yet */
    bool full; /* the append queue has no room: the rest is left */
    sl_err err;
} record_ctx;

static void deliver_live(record_ctx *rx, const sl_route *route, uint8_t qos, uint8_t flags,
                         const uint32_t *ids, uint32_t id_count, uint32_t *msg_index)
{
    sl_dispatcher *dp = rx->dp;
    sl_delivery_mail **dm = &dp->out[route->loop];
    if (*dm == NULL)
        *dm = sl_delivery_mail_new(dp->core->ios[route->loop]);
    if (msg_index[route->loop] == UINT32_MAX)
        msg_index[route->loop] = sl_delivery_add_msg(*dm, &rx->msg);
    sl_delivery item = {.slot = route->slot,
                        .gen = route->gen,
                        .msg = msg_index[route->loop],
                        .qos = qos,
                        .flags = flags};
    sl_delivery_add(*dm, &item, ids, id_count);
}

static void dispatch_to(record_ctx *rx, const sl_sub_delivery *dv, uint32_t *msg_index)
{
    sl_dispatcher *dp = rx->dp;
    const sl_client *cl = sl_registry_at(dp->core->registry, dv->client);
    if (cl == NULL)
        return; // gone since
    sl_route route = sl_client_route(cl);
    uint8_t qos = dv->qos < rx->qos ? dv->qos : rx->qos; // [MQTT-3.8.4-8]
    uint8_t flags =
        (dv->flags & SL_SUB_RETAIN_AS_PUBLISHED) != 0 && rx->msg.retain ? SL_DELIVER_RETAIN : 0;
    uint32_t ids[MAX_SUB_IDS];
    uint32_t id_count = (uint32_t)sl_sub_delivery_ids(dv, ids, MAX_SUB_IDS);
    if (route.persistent && qos > 0) {
        target tg = {.client = dv->client,
                     .generation = atomic_load_explicit(&cl->generation, memory_order_acquire),
                     .qos = qos,
                     .flags = flags,
                     .ids = id_count};
        if (!rx->full) {
            sl_err err = append_copy(dp, rx->batch, rx->rec, cl, &tg, ids);
            if (err == SL_EAGAIN)
                rx->full = true;
            else if (err != SL_OK)
                rx->err = err;
        }
        if (rx->full)
            leave_target(dp, &tg, ids);
        return;
    }
    if (!rx->live)
        return;
    if (route.connected)
        deliver_live(rx, &route, qos, flags, ids, id_count, msg_index);
    else
        count(dp, SL_BS_DROP_OFFLINE, 1);
}

/* Inside the RCU read section of the round. */
static void dispatch_record(sl_dispatcher *dp, const sl_log_batch *batch, const sl_log_record *rec)
{
    record_ctx rx = {.dp = dp, .batch = batch, .rec = rec};
    part *pt = &dp->parts[batch->partition];
    if (sl_out_msg_init(&rx.msg, rec->value, rec->body, rec->time_ms) != SL_OK) {
        count(dp, SL_BS_DAMAGED_RECORDS, 1);
        sl_warn(SL_C_DISPATCH, "RECORD-DAMAGED", SL_B("topic", rec->key),
                SL_U("partition", batch->partition), SL_U("offset", rec->offset));
        return;
    }
    rx.msg.trace_partition = batch->partition;
    rx.msg.trace_offset = rec->offset;
    rx.qos = sl_stored_qos(rec->value);
    rx.live = rx.qos == 0 || rec->offset >= pt->live_done;
    keep_arg ka = {.dp = dp, .rec = rec, .partition = batch->partition};
    (void)sl_log_header_find(rec->headers, SL_LOG_H_PUBLISHER, &ka.publisher);
    sl_sub_trie_match(dp->core->trie, rec->key, &dp->matches);
    sl_sub_matches_keep(&dp->matches, keep_sub, &ka);
    count(dp, SL_BS_DISPATCHED, 1);
    if (dp->matches.count == 0) {
        count(dp, SL_BS_DROP_NO_SUBSCRIBER, 1);
        return;
    }
    count(dp, SL_BS_MATCHES, (int64_t)dp->matches.count);
    sl_sub_matches_merge(&dp->matches);
    uint32_t msg_index[256];
    memset(msg_index, 0xFF, dp->core->io_count * sizeof(*msg_index));
    size_t pos = 0;
    sl_sub_delivery dv;
    while (sl_sub_matches_next(&dp->matches, &pos, &dv))
        dispatch_to(&rx, &dv, msg_index);
    sl_msg_trace_step(dp->core->trace, SL_STEP_MATCHED, batch->partition, rec->offset,
                      (uint32_t)dp->matches.count);
    if (rx.err != SL_OK)
        fail_part(dp, batch->partition, rx.err);
}

/* The targets that were left when there was no room. False: still none. */
static bool finish_targets(sl_dispatcher *dp, const sl_log_batch *batch)
{
    while (dp->target_at < dp->target_count) {
        target *tg = &dp->targets[dp->target_at];
        const sl_client *cl = sl_registry_at(dp->core->registry, tg->client);
        // The index may be another client's by now: its generation is another one then.
        if (cl != NULL &&
            atomic_load_explicit(&cl->generation, memory_order_acquire) == tg->generation) {
            sl_err err = append_copy(dp, batch, &dp->rec, cl, tg, dp->ids + tg->ids_at);
            if (err == SL_EAGAIN)
                return false;
            if (err != SL_OK) {
                fail_part(dp, batch->partition, err);
                break;
            }
        }
        dp->target_at++;
    }
    dp->target_at = dp->target_count = dp->id_count = 0;
    return true;
}

/* ---- a round
 * -------------------------------------------------------------------------------------------- */

/* True when the batch is finished; false when it waits for room. */
static bool run_batch(sl_dispatcher *dp, const sl_log_batch *batch)
{
    part *pt = &dp->parts[batch->partition];
    bool durable = (batch->stages & SL_LOG_STAGE_DURABLE) != 0;
    if (dp->target_count > 0 && !finish_targets(dp, batch))
        return false;
    if (dp->pos == 0 && durable)
        add_mark(pt, batch->next, 1);
    while (!pt->failed && sl_log_batch_next(batch, &dp->pos, &dp->rec)) {
        if (!sl_log_in_stage(&dp->rec, batch->stages))
            continue;
        dispatch_record(dp, batch, &dp->rec);
        if ((dp->rec.flags & SL_LOG_VOLATILE) == 0)
            pt->live_done = dp->rec.offset + 1;
        if (dp->target_count > 0)
            return false;
    }
    return true;
}

static void end_batch(sl_dispatcher *dp, sl_log_batch *batch)
{
    part *pt = &dp->parts[batch->partition];
    if ((batch->stages & SL_LOG_STAGE_DURABLE) != 0) {
        last_mark(pt)->copies--;
        move_watermark(dp, batch->partition);
    }
    dp->pos = 0;
    sl_log_batch_release(batch);
}

/* Deliveries that the I/O loops have not written yet are bounded: then dispatch waits, nobody else.
 */
static bool loops_are_full(const sl_dispatcher *dp)
{
    for (unsigned i = 0; i < dp->core->io_count; i++) {
        if (atomic_load_explicit(&dp->core->ios[i]->backlog_bytes, memory_order_relaxed) >
            dp->core->limits.loop_backlog_bytes)
            return true;
    }
    return false;
}

static void run_round(sl_dispatcher *dp)
{
    sl_rcu_read_lock(dp->rcu);
    while (dp->batch_at < dp->batch_count) {
        sl_log_batch *batch = &dp->batches[dp->batch_at];
        if (!run_batch(dp, batch)) {
            dp->waiting_room = true;
            break;
        }
        end_batch(dp, batch);
        dp->batch_at++;
    }
    sl_rcu_read_unlock(dp->rcu);
    for (unsigned i = 0; i < dp->core->io_count; i++)
        sl_delivery_post(&dp->out[i]);
}

static bool poll_once(sl_dispatcher *dp)
{
    if (dp->waiting_room)
        return false;
    if (dp->batch_at == dp->batch_count) {
        dp->batch_at = dp->batch_count = 0;
        if (loops_are_full(dp)) {
            count(dp, SL_BS_DISPATCH_WAITS, 1);
            sl_timer_start(&dp->retry, 1, 0);
            return false;
        }
        if (sl_log_consumer_poll(dp->consumer, dp->batches, POLL_BATCHES, 0, &dp->batch_count) !=
            SL_OK)
            dp->batch_count = 0;
        if (dp->batch_count == 0)
            return false;
    }
    run_round(dp);
    return true;
}

static void on_poll(sl_mail *mail)
{
    sl_dispatcher *dp = SL_CONTAINER(mail, sl_dispatcher, poll_mail);
    atomic_store(&dp->poll_posted, false);
    if (poll_once(dp))
        wake_poll(dp); // look again, after other letters
}

static void wake_poll(void *arg)
{
    sl_dispatcher *dp = arg;
    if (!atomic_exchange(&dp->poll_posted, true))
        sl_loop_post(dp->lp, &dp->poll_mail);
}

static void on_retry(void *arg)
{
    sl_dispatcher *dp = arg;
    bool waits = false;
    for (uint16_t p = 0; p < PARTITION_MAX; p++) {
        part *pt = &dp->parts[p];
        // A batch of it may be at hand, left half done: it ends first.
        bool at_hand = dp->batch_at < dp->batch_count && dp->batches[dp->batch_at].partition == p;
        if (pt->failed && pt->under_way == 0 && !at_hand)
            restart_part(dp, p);
        waits |= pt->failed;
    }
    if (waits)
        sl_timer_start(&dp->retry, RETRY_MS, 0);
    wake_poll(dp);
}

/* ---- life
 * --------------------------------------------------------------------------------------------------
 */

static void on_assign(void *arg, sl_log_topic *topic, uint16_t partition, bool assigned)
{
    sl_dispatcher *dp = arg;
    part *pt = &dp->parts[partition];
    pt->assigned = assigned;
    pt->failed = false;
    pt->epoch++;
    pt->mark_count = pt->mark_head = 0;
    pt->live_done = 0;
    pt->watermark = 0;
    if (assigned && sl_log_group_get(dp->core->log, SL_DISPATCH_GROUP, topic, partition,
                                     &pt->watermark) != SL_OK) {
        sl_log_partition_info info = {0};
        if (sl_log_topic_describe(topic, partition, &info) == SL_OK)
            pt->watermark = info.start;
    }
    sl_trace(SL_C_DISPATCH, "PARTITION", SL_U("partition", partition), SL_U("assigned", assigned),
             SL_U("watermark", pt->watermark));
}

typedef struct start_call {
    sl_dispatcher *dp;
    sl_err err;
} start_call;

/* The consumer is woken from here on, not before: a poll needs all of this. */
static void start_on_loop(void *arg)
{
    start_call *sc = arg;
    sl_dispatcher *dp = sc->dp;
    dp->rcu = sl_rcu_register(dp->core->rcu);
    dp->shard = sl_stats_shard(dp->core->stats);
    sl_timer_init(&dp->retry, dp->lp, on_retry, dp);
    dp->started = true;
    sc->err = sl_log_consumer_subscribe(dp->consumer, dp->core->t_all, on_assign, dp);
    wake_poll(dp);
}

sl_err sl_dispatcher_new(sl_core *core, unsigned index, sl_dispatcher **out)
{
    sl_dispatcher *dp = sl_calloc(1, sizeof(*dp));
    dp->core = core;
    dp->index = index;
    dp->out = sl_calloc(core->io_count, sizeof(sl_delivery_mail *));
    dp->poll_mail.fn = on_poll;
    dp->drain_mail.fn = on_drain;
    char name[16];
    snprintf(name, sizeof(name), "dispatch-%u", index);
    sl_err err = sl_loop_new(name, core->clock, &dp->lp);
    sl_log_producer_options po = {.wake = wake_drain, .done = on_done, .room = on_room, .arg = dp};
    if (err == SL_OK)
        err = sl_log_producer_open(core->log, &po, &dp->producer);
    sl_log_consumer_options co = {.group = SL_DISPATCH_GROUP,
                                  .reset = SL_LOG_EARLIEST,
                                  .both_stages = true,
                                  .wake = wake_poll,
                                  .wake_arg = dp,
                                  .max_batch_bytes = ROUND_BYTES};
    if (err == SL_OK)
        err = sl_log_consumer_open(core->log, &co, &dp->consumer);
    if (err != SL_OK) {
        sl_dispatcher_free(&dp);
        return err;
    }
    *out = dp;
    return SL_OK;
}

sl_err sl_dispatcher_start(sl_dispatcher *dp)
{
    start_call sc = {.dp = dp, .err = sl_loop_start(dp->lp)};
    if (sc.err == SL_OK)
        sl_loop_call_wait(dp->lp, start_on_loop, &sc);
    return sc.err;
}

static void stop_on_loop(void *arg)
{
    sl_dispatcher *dp = arg;
    for (int quiet = 0; quiet < 2;) { // what is durable by now
        bool worked = poll_once(dp);
        (void)sl_log_producer_drain(dp->producer);
        quiet = worked ? 0 : quiet + 1;
        if (!worked && quiet < 2 && sl_log_sync(dp->core->log) != SL_OK)
            break; // what is not stored is dispatched after the next start
    }
    while (dp->batch_at < dp->batch_count)
        sl_log_batch_release(&dp->batches[dp->batch_at++]);
    sl_timer_fini(&dp->retry);
    sl_rcu_unregister(&dp->rcu);
}

void sl_dispatcher_stop(sl_dispatcher *dp)
{
    if (!dp->started)
        return;
    sl_loop_call_wait(dp->lp, stop_on_loop, dp);
    sl_loop_stop(dp->lp);
    sl_loop_join(dp->lp);
}

void sl_dispatcher_free(sl_dispatcher **pointer)
{
    sl_dispatcher *dp = *pointer;
    if (dp == NULL)
        return;
    *pointer = NULL;
    if (dp->producer != NULL)
        sl_log_producer_close(&dp->producer);
    if (dp->consumer != NULL)
        sl_log_consumer_close(&dp->consumer);
    if (dp->lp != NULL)
        sl_loop_free(&dp->lp);
    for (unsigned p = 0; p < PARTITION_MAX; p++)
        sl_free(dp->parts[p].marks);
    for (unsigned i = 0; i < dp->core->io_count; i++)
        sl_delivery_mail_free(&dp->out[i]);
    sl_sub_matches_fini(&dp->matches);
    sl_free(dp->targets);
    sl_free(dp->ids);
    sl_free(dp->out);
    sl_free(dp);
}
