/* SPDX-License-Identifier: Apache-2.0
 *
 * log_bench: how much the embedded log takes, and what it costs.
 *   log_bench [key=value ...]
 *   dir=/tmp/log-bench secs=5 producers=2 partitions=16 bytes=200 inflight=10000 rate=0 (records/s
 *   in all, 0 = saturated) gather=2 fsync=1 volatile=0 (1: all records) consumer=0|1 qos2=0|1 (and
 *   release) *   derive=0|N (targets per record, implies consumer)
 * Prints records/s, CPU per record of the whole process, commits and syncs per second, latency of
 * the acknowledgement, bytes written by the process per byte of payload.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "log/log.h"
#include "log_fixture.h"

#define MAX_SAMPLES 2000000
#define RELEASED    UINT64_MAX /* token of a release */

typedef struct bench_conf {
    const char *dir;
    unsigned secs, producers, partitions, bytes, inflight, rate, gather, fsync, volatile_all,
        consumer, qos2, derive;
} bench_conf;

typedef struct bench {
    bench_conf cf;
    sl_clock clock;
    sl_stats *stats;
    sl_log *log;
    sl_log_topic *topic;
    sl_log_topic *targets[64];
    atomic_bool stop;
    atomic_ulong consumed;
    atomic_ulong derived;
} bench;

typedef struct bench_producer {
    bench *be;
    unsigned id;
    sl_log_producer *pr;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool woken; /* lock */
    uint64_t sent, done;
    uint64_t append_ns;
    sl_slice client;
    uint32_t *samples; /* us */
    size_t sample_count;
} bench_producer;

static const sl_stat_row stat_rows[] = {
#define BENCH_ROW(name, kind, metric, help) {metric, NULL, SL_STAT_##kind, help},
    SL_LOG_STAT_MAP(BENCH_ROW)
#undef BENCH_ROW
};

static uint64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void must(sl_err err, const char *what)
{
    if (err == SL_OK)
        return;
    fprintf(stderr, "log_bench: %s: %s\n", what, sl_err_text(err));
    exit(1);
}

/* ---- producers ---- */

static void on_wake(void *arg)
{
    bench_producer *bp = arg;
    pthread_mutex_lock(&bp->lock);
    bp->woken = true;
    pthread_cond_signal(&bp->cond);
    pthread_mutex_unlock(&bp->lock);
}

static void on_done(void *arg, const sl_log_done *dones, size_t count)
{
    bench_producer *bp = arg;
    uint64_t now = now_ns();
    for (size_t i = 0; i < count; i++) {
        must(dones[i].err, "completion");
        if (dones[i].token == RELEASED)
            continue;
        bp->done++;
        if (bp->sample_count < MAX_SAMPLES)
            bp->samples[bp->sample_count++] = (uint32_t)((now - dones[i].token) / 1000);
        // Completions come in order, so this is the id of the oldest one that is open.
        if (bp->be->cf.qos2 && !atomic_load(&bp->be->stop))
            must(sl_log_qos2_release(bp->pr, bp->client, (uint16_t)(bp->done - 1), RELEASED),
                 "release");
    }
}

static void wait_wake(bench_producer *bp, uint64_t ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)(ns % 1000000000u);
    until.tv_sec += (time_t)(ns / 1000000000u) + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_mutex_lock(&bp->lock);
    int rc = 0;
    while (!bp->woken && rc == 0)
        rc = pthread_cond_timedwait(&bp->cond, &bp->lock, &until);
    bp->woken = false;
    pthread_mutex_unlock(&bp->lock);
}

static bool append_one(bench_producer *bp, const char *payload)
{
    bench *be = bp->be;
    char key[32];
    int key_len = snprintf(key, sizeof key, "sensors/%u/t", (unsigned)(bp->sent % 1000));
    const sl_log_record_in in = {.key = sl_slice_of(key, (size_t)key_len),
                                 .value = {sl_slice_of(payload, be->cf.bytes)},
                                 .flags = be->cf.volatile_all ? SL_LOG_VOLATILE : 0,
                                 .attr = 1};
    uint64_t start = now_ns();
    int partition = (int)(bp->sent % be->cf.partitions);
    sl_err err = be->cf.qos2 ? sl_log_append_qos2(bp->pr, be->topic, partition, &in, bp->client,
                                                  (uint16_t)bp->sent, start)
                             : sl_log_append(bp->pr, be->topic, partition, &in, start);
    if (err == SL_EAGAIN)
        return false;
    must(err, "append");
    bp->append_ns += now_ns() - start;
    bp->sent++;
    return true;
}

static void *produce(void *arg)
{
    bench_producer *bp = arg;
    bench *be = bp->be;
    char *payload = sl_calloc(1, be->cf.bytes + 1);
    memset(payload, 'x', be->cf.bytes);
    uint64_t start = now_ns();
    double per_ns = (double)be->cf.rate / be->cf.producers / 1e9;
    while (!atomic_load(&be->stop)) {
        uint64_t due =
            be->cf.rate == 0 ? UINT64_MAX : (uint64_t)((double)(now_ns() - start) * per_ns);
        while (bp->sent - bp->done < be->cf.inflight && bp->sent < due && append_one(bp, payload))
            ;
        if (sl_log_producer_drain(bp->pr) == 0)
            wait_wake(bp, be->cf.rate == 0 ? 100000000 : 500000);
    }
    sl_log_producer_close(&bp->pr);
    sl_free(payload);
    return NULL;
}

/* ---- consumer ---- */

static void on_derived(void *arg, const sl_log_done *dones, size_t count)
{
    (void)dones;
    *(size_t *)arg -= count;
}

static void derive_batch(bench *be, sl_log_producer *pr, const sl_log_batch *batch, size_t *open)
{
    sl_log_record rec;
    size_t pos = 0;
    while (sl_log_batch_next(batch, &pos, &rec)) {
        if (!sl_log_in_stage(&rec, batch->stages))
            continue;
        atomic_fetch_add_explicit(&be->consumed, 1, memory_order_relaxed);
        for (unsigned i = 0; i < be->cf.derive; i++) {
            const sl_log_record_in in = {.flags = SL_LOG_NO_ACK};
            sl_err err;
            while ((err = sl_log_append_derived(pr, be->targets[i], 0, be->topic, batch->partition,
                                                &rec, &in, 0)) == SL_EAGAIN)
                usleep(200);
            must(err, "derive");
            atomic_fetch_add_explicit(&be->derived, 1, memory_order_relaxed);
        }
    }
    (void)open;
}

static void *consume(void *arg)
{
    bench *be = arg;
    size_t open = 0;
    sl_log_producer *pr = NULL;
    sl_log_consumer *co = NULL;
    const sl_log_producer_options po = {.done = on_derived, .arg = &open};
    const sl_log_consumer_options options = {.group = "bench", .both_stages = true};
    must(sl_log_producer_open(be->log, &po, &pr), "producer");
    must(sl_log_consumer_open(be->log, &options, &co), "consumer");
    for (uint16_t i = 0; i < be->cf.partitions; i++)
        must(sl_log_consumer_assign(co, be->topic, i, 0), "assign");
    while (!atomic_load(&be->stop)) {
        sl_log_batch batches[16];
        size_t count = 0;
        must(sl_log_consumer_poll(co, batches, 16, 50, &count), "poll");
        for (size_t i = 0; i < count; i++) {
            derive_batch(be, pr, &batches[i], &open);
            must(sl_log_consumer_commit(co, be->topic, batches[i].partition, batches[i].next),
                 "commit");
            sl_log_batch_release(&batches[i]);
        }
        sl_log_producer_drain(pr);
    }
    sl_log_consumer_close(&co);
    sl_log_producer_close(&pr);
    return NULL;
}

/* ---- the run ---- */

static unsigned number(const char *text)
{
    return (unsigned)strtoul(text, NULL, 10);
}

static void read_conf(bench_conf *cf, int argc, char **argv)
{
    *cf = (bench_conf){.dir = "/tmp/log-bench",
                       .secs = 5,
                       .producers = 2,
                       .partitions = 16,
                       .bytes = 200,
                       .inflight = 10000,
                       .gather = 2,
                       .fsync = 1};
    const struct {
        const char *name;
        unsigned *value;
    } rows[] = {
        {"secs", &cf->secs},         {"producers", &cf->producers}, {"partitions", &cf->partitions},
        {"bytes", &cf->bytes},       {"inflight", &cf->inflight},   {"rate", &cf->rate},
        {"gather", &cf->gather},     {"fsync", &cf->fsync},         {"volatile", &cf->volatile_all},
        {"consumer", &cf->consumer}, {"qos2", &cf->qos2},           {"derive", &cf->derive}};
    for (int i = 1; i < argc; i++) {
        char *equal = strchr(argv[i], '=');
        bool found = false;
        if (equal != NULL && strncmp(argv[i], "dir=", 4) == 0) {
            cf->dir = equal + 1;
            found = true;
        }
        for (size_t k = 0; equal != NULL && k < sizeof rows / sizeof rows[0]; k++) {
            if (strlen(rows[k].name) == (size_t)(equal - argv[i]) &&
                strncmp(rows[k].name, argv[i], (size_t)(equal - argv[i])) == 0) {
                *rows[k].value = number(equal + 1);
                found = true;
            }
        }
        if (!found) {
            fprintf(stderr, "log_bench: unknown argument '%s'\n", argv[i]);
            exit(2);
        }
    }
    if (cf->producers < 1 || cf->producers > 16 || cf->derive > 64 || cf->partitions < 1) {
        fprintf(stderr, "log_bench: producers 1..16, derive 0..64, partitions 1..\n");
        exit(2);
    }
}

static void open_log(bench *be)
{
    log_fx_remove_dir(be->cf.dir);
    sl_clock_init(&be->clock);
    be->stats = sl_stats_new(stat_rows, SL_LOG_STAT_COUNT);
    const sl_log_options options = {.dir = be->cf.dir,
                                    .node = "bench",
                                    .fsync = be->cf.fsync != 0,
                                    .gather_ms = be->cf.gather,
                                    .clock = &be->clock,
                                    .stats = be->stats};
    char *why = NULL;
    uint64_t start = now_ns();
    must(sl_log_open(&sl_log_embedded_ops, &options, &be->log, &why), why != NULL ? why : "open");
    sl_log_topic_spec spec = {.name = "bench",
                              .partitions = (uint16_t)be->cf.partitions,
                              .durable = true,
                              .retention_ms = -1,
                              .retention_bytes = 256 << 20};
    must(sl_log_topic_open(be->log, &spec, &be->topic), "topic");
    for (unsigned i = 0; i < be->cf.derive; i++) {
        char name[32];
        snprintf(name, sizeof name, "target-%u", i);
        spec = (sl_log_topic_spec){.name = name,
                                   .partitions = 1,
                                   .many = true,
                                   .retention_ms = -1,
                                   .retention_bytes = 64 << 20};
        must(sl_log_topic_open(be->log, &spec, &be->targets[i]), "target");
    }
    printf("opened with %u partitions in %llu ms\n", be->cf.partitions,
           (unsigned long long)((now_ns() - start) / 1000000));
}

static double cpu_us(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) * 1e6 +
           (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec);
}

static uint64_t written_bytes(void)
{
    FILE *file = fopen("/proc/self/io", "r");
    char line[128];
    uint64_t bytes = 0;
    while (file != NULL && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "write_bytes: ", 13) == 0)
            bytes = strtoull(line + 13, NULL, 10);
    if (file != NULL)
        fclose(file);
    return bytes;
}

static int by_value(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return a < b ? -1 : a > b;
}

static void report(bench *be, bench_producer *bps, double secs, double cpu, uint64_t written)
{
    uint64_t done = 0, append_ns = 0, sent = 0;
    uint32_t *all = sl_alloc(sizeof *all * MAX_SAMPLES * be->cf.producers);
    size_t samples = 0;
    for (unsigned i = 0; i < be->cf.producers; i++) {
        done += bps[i].done;
        sent += bps[i].sent;
        append_ns += bps[i].append_ns;
        memcpy(all + samples, bps[i].samples, bps[i].sample_count * sizeof *all);
        samples += bps[i].sample_count;
    }
    qsort(all, samples, sizeof *all, by_value);
    printf("%.0f rec/s  %.2f us CPU/rec  append %llu ns  commits/s %.0f  fsyncs/s %.0f  "
           "written/payload %.2f",
           (double)done / secs, cpu / (double)done, (unsigned long long)(append_ns / (sent + 1)),
           (double)sl_stats_get(be->stats, SL_LOG_STAT_COMMITS) / secs,
           (double)sl_stats_get(be->stats, SL_LOG_STAT_FSYNCS) / secs,
           (double)written / ((double)done * be->cf.bytes));
    if (samples > 0)
        printf("  ack p50 %.2f p99 %.2f ms", all[samples / 2] / 1e3, all[samples * 99 / 100] / 1e3);
    if (be->cf.consumer)
        printf("  consumed/s %.0f derived/s %.0f ring misses %lld",
               (double)atomic_load(&be->consumed) / secs, (double)atomic_load(&be->derived) / secs,
               (long long)sl_stats_get(be->stats, SL_LOG_STAT_RING_MISSES));
    printf("\n");
    sl_free(all);
}

int main(int argc, char **argv)
{
    static bench be;
    read_conf(&be.cf, argc, argv);
    be.cf.consumer = be.cf.consumer || be.cf.derive > 0;
    open_log(&be);
    bench_producer *bps = sl_calloc(be.cf.producers, sizeof *bps);
    char clients[16][16];
    for (unsigned i = 0; i < 16; i++)
        snprintf(clients[i], sizeof clients[i], "client-%u", i);
    pthread_t threads[17];
    double cpu = cpu_us();
    uint64_t written = written_bytes(), start = now_ns();
    if (be.cf.consumer && pthread_create(&threads[16], NULL, consume, &be) != 0)
        return 1;
    for (unsigned i = 0; i < be.cf.producers; i++) {
        bps[i] = (bench_producer){.be = &be, .id = i, .client = sl_slice_str(clients[i])};
        bps[i].samples = sl_alloc(sizeof(uint32_t) * MAX_SAMPLES);
        pthread_mutex_init(&bps[i].lock, NULL);
        pthread_cond_init(&bps[i].cond, NULL);
        const sl_log_producer_options po = {.wake = on_wake, .done = on_done, .arg = &bps[i]};
        must(sl_log_producer_open(be.log, &po, &bps[i].pr), "producer");
        if (pthread_create(&threads[i], NULL, produce, &bps[i]) != 0)
            return 1;
    }
    sleep(be.cf.secs);
    atomic_store(&be.stop, true);
    for (unsigned i = 0; i < be.cf.producers; i++)
        pthread_join(threads[i], NULL);
    double secs = (double)(now_ns() - start) / 1e9;
    if (be.cf.consumer)
        pthread_join(threads[16], NULL);
    report(&be, bps, secs, cpu_us() - cpu, written_bytes() - written);
    sl_log_close(&be.log);
    start = now_ns();
    char *why = NULL;
    const sl_log_options options = {.dir = be.cf.dir, .node = "bench", .clock = &be.clock};
    must(sl_log_open(&sl_log_embedded_ops, &options, &be.log, &why), why != NULL ? why : "open");
    printf("opened again in %llu ms\n", (unsigned long long)((now_ns() - start) / 1000000));
    sl_log_close(&be.log);
    log_fx_remove_dir(be.cf.dir);
    for (unsigned i = 0; i < be.cf.producers; i++)
        sl_free(bps[i].samples);
    sl_free(bps);
    sl_stats_free(&be.stats);
    return 0;
}
