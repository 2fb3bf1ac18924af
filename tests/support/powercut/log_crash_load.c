/* SPDX-License-Identifier: Apache-2.0
 *
 * log_crash_load: what the child does until it dies: a publisher (records, QoS 2 ids, rows), a
 * dispatcher that derives from every record it reads and commits behind, a reader of the derived
 * topic, and retention without pause.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "log/elog_fn.h"
#include "log_crash.h"

#define IN_FLIGHT 2000

static void die(const char *what, sl_err err)
{
    fprintf(stderr, "crash test: %s: %s\n", what, sl_err_name(err));
    _exit(3);
}

static sl_log_topic *open_topic(crash_log *cl, const sl_log_topic_spec *spec)
{
    sl_log_topic *topic = NULL;
    sl_err err = sl_log_topic_open(cl->log, spec, &topic);
    if (err != SL_OK)
        die(spec->name, err);
    return topic;
}

void crash_log_open(crash_log *cl, const char *dir, bool retention)
{
    sl_clock_init(&cl->clock);
    const sl_log_options options = {.dir = dir,
                                    .node = "crash",
                                    .fsync = true,
                                    .gather_ms = 2,
                                    .low_space_bytes = 1,
                                    .ring_bytes = 2 << 20,
                                    .clock = &cl->clock};
    char *why = NULL;
    sl_err err = sl_log_open(&sl_log_embedded_ops, &options, &cl->log, &why);
    if (err != SL_OK)
        die(why != NULL ? why : "open", err);
    sl_log_topic_spec spec = {.name = "all",
                              .partitions = CRASH_PARTITIONS,
                              .durable = true,
                              .retention_ms = -1,
                              .retention_bytes = retention ? 8 << 10 : -1,
                              .pinned_group = "dispatch"};
    cl->all = open_topic(cl, &spec);
    spec = (sl_log_topic_spec){.name = "app",
                               .partitions = 1,
                               .many = true,
                               .retention_ms = -1,
                               .retention_bytes = retention ? 100 << 10 : -1,
                               .pinned_group = "app-reader"};
    cl->app = open_topic(cl, &spec);
    spec = (sl_log_topic_spec){.name = "rows",
                               .partitions = 1,
                               .compacted = true,
                               .durable = true,
                               .retention_ms = -1,
                               .retention_bytes = -1};
    cl->rows = open_topic(cl, &spec);
    spec = (sl_log_topic_spec){
        .name = "q2", .partitions = 1, .durable = true, .retention_ms = -1, .retention_bytes = -1};
    cl->q2 = open_topic(cl, &spec);
}

/* ---- the publisher ---- */

enum { KIND_RECORD, KIND_ROW, KIND_ID, KIND_RELEASE };

typedef struct publisher {
    crash_log *cl;
    crash_acks *acks;
    sl_log_producer *pr;
    uint64_t records, rows;
    uint32_t ids;
    size_t open;
    uint16_t to_release[IN_FLIGHT];
    size_t release_count;
} publisher;

static uint64_t token(unsigned kind, uint64_t number)
{
    return (uint64_t)kind << 56 | number;
}

static void on_done(void *arg, const sl_log_done *dones, size_t count)
{
    publisher *pb = arg;
    for (size_t i = 0; i < count; i++) {
        uint64_t number = dones[i].token & 0xffffffffffffffull;
        pb->open--;
        if (dones[i].err != SL_OK)
            die("completion", dones[i].err);
        switch (dones[i].token >> 56) {
        case KIND_RECORD:
            atomic_store(&pb->acks->offset[number], dones[i].offset + 1);
            break;
        case KIND_ROW:
            atomic_store(&pb->acks->row_acked[number], 1);
            break;
        case KIND_ID:
            atomic_store(&pb->acks->id_acked[number], 1);
            // Every other id stays open.
            if (number % 2 == 0 && pb->release_count < IN_FLIGHT)
                pb->to_release[pb->release_count++] = (uint16_t)number;
            break;
        default:
            atomic_store(&pb->acks->release_acked[number], 1);
        }
    }
}

static void check(publisher *pb, sl_err err)
{
    if (err != SL_OK)
        die("append", err);
    pb->open++;
}

static void publish_record(publisher *pb)
{
    uint64_t index = pb->records;
    if (index == CRASH_RECORDS)
        return;
    crash_payload payload = {.index = index, .check = crash_check(index)};
    const sl_log_record_in in = {.key = sl_slice_of(&payload.index, 8),
                                 .value = {sl_slice_of(&payload, sizeof payload)},
                                 .flags = crash_is_durable(index) ? 0 : SL_LOG_VOLATILE,
                                 .time_ms = sl_clock_wall(&pb->cl->clock)};
    atomic_store(&pb->acks->issued, index + 1);
    check(pb, sl_log_append(pb->pr, pb->cl->all, (int)(index % CRASH_PARTITIONS), &in,
                            token(KIND_RECORD, index)));
    pb->records++;
}

static void publish_row(publisher *pb)
{
    uint64_t write = pb->rows;
    if (write == CRASH_ROW_WRITES)
        return;
    uint64_t key = write % CRASH_KEYS;
    const sl_log_record_in in = {
        .key = sl_slice_of(&key, sizeof key),
        .value = {sl_slice_of(&write, crash_is_removal(write) ? 0 : sizeof write)}};
    atomic_store(&pb->acks->rows_issued, write + 1);
    check(pb, sl_log_append(pb->pr, pb->cl->rows, 0, &in, token(KIND_ROW, write)));
    pb->rows++;
}

static void publish_qos2(publisher *pb)
{
    if (pb->ids == CRASH_IDS)
        return;
    uint32_t id = pb->ids + 1;
    const sl_log_record_in in = {.value = {sl_slice_of(&id, sizeof id)}};
    atomic_store(&pb->acks->ids_issued, id);
    check(pb, sl_log_append_qos2(pb->pr, pb->cl->q2, 0, &in, sl_slice_str("client"), (uint16_t)id,
                                 token(KIND_ID, id)));
    pb->ids = id;
}

static void publish_releases(publisher *pb)
{
    for (size_t i = 0; i < pb->release_count; i++) {
        uint16_t id = pb->to_release[i];
        atomic_store(&pb->acks->release_issued[id], 1);
        check(pb, sl_log_qos2_release(pb->pr, sl_slice_str("client"), id, token(KIND_RELEASE, id)));
    }
    pb->release_count = 0;
}

static void *publish(void *arg)
{
    publisher pb = {.cl = ((void **)arg)[0], .acks = ((void **)arg)[1]};
    const sl_log_producer_options options = {.done = on_done, .arg = &pb};
    if (sl_log_producer_open(pb.cl->log, &options, &pb.pr) != SL_OK)
        die("producer", SL_EINVAL);
    for (;;) {
        while (pb.open < IN_FLIGHT / 2) {
            for (unsigned i = 0; i < 16; i++)
                publish_record(&pb);
            publish_row(&pb);
            publish_qos2(&pb);
            publish_releases(&pb);
            if (pb.records == CRASH_RECORDS)
                break;
        }
        atomic_store(&pb.acks->ready, 1);
        if (sl_log_producer_drain(pb.pr) == 0)
            usleep(200);
    }
    return NULL;
}

/* ---- dispatcher and reader ---- */

static size_t derived_open;

static void on_derived(void *arg, const sl_log_done *dones, size_t count)
{
    (void)arg;
    for (size_t i = 0; i < count; i++)
        if (dones[i].err != SL_OK)
            die("derived completion", dones[i].err);
    derived_open -= count;
}

static void dispatch_batch(crash_log *cl, sl_log_producer *pr, sl_embedded_kv *kv,
                           const sl_log_batch *batch)
{
    sl_log_record rec;
    size_t pos = 0;
    while (sl_log_batch_next(batch, &pos, &rec)) {
        const sl_log_record_in in = {.key = sl_slice_str("app")};
        sl_err err = sl_log_append_derived(pr, cl->app, 0, cl->all, batch->partition, &rec, &in, 1);
        if (err != SL_OK)
            die("derive", err);
        uint64_t key[2] = {batch->partition, rec.offset};
        const sl_embedded_kv_op op = {
            .key = sl_slice_of(key, sizeof key), .value = {sl_slice_str("row")}, .kind = SL_KV_PUT};
        err = sl_embedded_kv_write(pr, kv, &op, 1, false, 2);
        if (err != SL_OK)
            die("kv", err);
        derived_open += 2;
    }
}

static void *dispatch(void *arg)
{
    crash_log *cl = arg;
    sl_log_producer *pr = NULL;
    sl_log_consumer *co = NULL;
    sl_embedded_kv *kv = NULL;
    const sl_log_producer_options po = {.done = on_derived};
    const sl_log_consumer_options options = {.group = "dispatch"};
    if (sl_log_producer_open(cl->log, &po, &pr) != SL_OK ||
        sl_log_consumer_open(cl->log, &options, &co) != SL_OK ||
        sl_embedded_kv_open(cl->log, "inbox", &kv) != SL_OK)
        die("dispatcher", SL_EINVAL);
    for (uint16_t i = 0; i < CRASH_PARTITIONS; i++)
        if (sl_log_consumer_assign(co, cl->all, i, SL_LOG_COMMITTED) != SL_OK)
            die("assign", SL_EINVAL);
    unsigned turn = 0;
    for (;;) {
        sl_log_batch batches[8];
        size_t count = 0;
        if (sl_log_consumer_poll(co, batches, 8, 50, &count) != SL_OK)
            die("poll", SL_EIO);
        for (size_t i = 0; i < count; i++) {
            dispatch_batch(cl, pr, kv, &batches[i]);
            // Both ways to commit: the consumer's and the one behind the producer's writes.
            sl_err err =
                turn++ % 2 == 0
                    ? sl_log_consumer_commit(co, cl->all, batches[i].partition, batches[i].next)
                    : sl_embedded_kv_commit_behind(pr, "dispatch", cl->all, batches[i].partition,
                                                   batches[i].next);
            if (err != SL_OK)
                die("commit", err);
            sl_log_batch_release(&batches[i]);
        }
        do
            sl_log_producer_drain(pr);
        while (derived_open > 20000 && usleep(200) == 0);
    }
    return NULL;
}

static void *read_app(void *arg)
{
    crash_log *cl = arg;
    sl_log_consumer *co = NULL;
    const sl_log_consumer_options options = {.group = "app-reader"};
    if (sl_log_consumer_open(cl->log, &options, &co) != SL_OK ||
        sl_log_consumer_assign(co, cl->app, 0, SL_LOG_COMMITTED) != SL_OK)
        die("reader", SL_EINVAL);
    for (;;) {
        sl_log_batch batches[8];
        size_t count = 0;
        if (sl_log_consumer_poll(co, batches, 8, 50, &count) != SL_OK)
            die("poll", SL_EIO);
        for (size_t i = 0; i < count; i++) {
            if (sl_log_consumer_commit(co, cl->app, 0, batches[i].next) != SL_OK)
                die("commit", SL_EIO);
            sl_log_batch_release(&batches[i]);
        }
        // It lags, so that retention has live references to copy out.
        usleep(100000);
    }
    return NULL;
}

static void *retain(void *arg)
{
    elog *el = elog_of(((crash_log *)arg)->log);
    for (;;) {
        elog_retention_run(el);
        usleep(10000);
    }
    return NULL;
}

static void start_thread(void *(*fn)(void *), void *arg)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, fn, arg) != 0)
        die("thread", SL_EIO);
    pthread_detach(thread);
}

void crash_load(const char *dir, crash_acks *acks, bool retention)
{
    static crash_log cl;
    static void *args[2];
    crash_log_open(&cl, dir, retention);
    args[0] = &cl;
    args[1] = acks;
    start_thread(dispatch, &cl);
    start_thread(read_app, &cl);
    if (retention)
        start_thread(retain, &cl);
    publish(args);
}
