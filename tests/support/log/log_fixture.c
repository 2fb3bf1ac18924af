/* SPDX-License-Identifier: Apache-2.0
 *
 * log_fixture: see log_fixture.h. Waits with conditions; the time limits only end a broken test.
 */
#include "log_fixture.h"

#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "sl_test.h"

#define LIMIT_S 20

#if defined(__SANITIZE_THREAD__)
/* RocksDB is not built for the sanitizer: what it does inside looks like races. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "called_from_lib:librocksdb.so\nrace:librocksdb.so\nmutex:librocksdb.so\n"
           "deadlock:librocksdb.so\ncalled_from_lib:libstdc++.so\n"
           "race:std::__cxx11::basic_string\n";
}
#endif

static int remove_entry(const char *path, const struct stat *st, int kind, struct FTW *walk)
{
    (void)st;
    (void)kind;
    (void)walk;
    return remove(path);
}

void log_fx_remove_dir(const char *dir)
{
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void on_wake(void *arg)
{
    log_fx *fx = arg;
    pthread_mutex_lock(&fx->lock);
    fx->woken = true;
    pthread_cond_signal(&fx->cond);
    pthread_mutex_unlock(&fx->lock);
}

static void on_done(void *arg, const sl_log_done *dones, size_t count)
{
    log_fx *fx = arg;
    if (fx->done_count + count > fx->done_cap) {
        fx->done_cap = (fx->done_count + count) * 2;
        fx->dones = sl_realloc(fx->dones, fx->done_cap * sizeof *fx->dones);
    }
    memcpy(fx->dones + fx->done_count, dones, count * sizeof *dones);
    fx->done_count += count;
}

static void on_room(void *arg)
{
    ((log_fx *)arg)->rooms++;
}

void log_fx_init(log_fx *fx, const struct sl_log_ops *ops, void (*tweak)(sl_log_options *options))
{
    memset(fx, 0, sizeof *fx);
    fx->ops = ops;
    sl_clock_init_fake(&fx->clock, 1000, 1700000000000);
    snprintf(fx->dir, sizeof fx->dir, "/tmp/sl-log-test-XXXXXX");
    assert_non_null(mkdtemp(fx->dir));
    pthread_mutex_init(&fx->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&fx->cond, &attr);
    pthread_condattr_destroy(&attr);
    fx->options = (sl_log_options){.dir = fx->dir,
                                   .node = "node-1",
                                   .fsync = true,
                                   .gather_ms = 2,
                                   .low_space_bytes = 1,
                                   .clock = &fx->clock};
    if (tweak != NULL)
        tweak(&fx->options);
    log_fx_open(fx);
}

void log_fx_open(log_fx *fx)
{
    char *why = NULL;
    sl_err err = sl_log_open(fx->ops, &fx->options, &fx->log, &why);
    if (err != SL_OK)
        fail_msg("open: %s (%s)", sl_err_name(err), why);
    const sl_log_producer_options po = {
        .wake = on_wake, .done = on_done, .room = on_room, .arg = fx};
    SL_TEST_OK(sl_log_producer_open(fx->log, &po, &fx->pr));
}

void log_fx_close(log_fx *fx)
{
    sl_log_producer_close(&fx->pr);
    sl_log_close(&fx->log);
}

void log_fx_fini(log_fx *fx)
{
    log_fx_close(fx);
    log_fx_remove_dir(fx->dir);
    pthread_cond_destroy(&fx->cond);
    pthread_mutex_destroy(&fx->lock);
    sl_free(fx->dones);
}

sl_log_topic *log_fx_topic(log_fx *fx, const char *name, uint16_t partitions, unsigned kind)
{
    sl_log_topic *topic = NULL;
    const sl_log_topic_spec spec = {.name = name,
                                    .partitions = partitions,
                                    .durable = (kind & LOG_FX_VOLATILE) == 0,
                                    .compacted = (kind & LOG_FX_COMPACTED) != 0,
                                    .many = (kind & LOG_FX_MANY) != 0,
                                    .retention_ms = -1,
                                    .retention_bytes = -1};
    SL_TEST_OK(sl_log_topic_open(fx->log, &spec, &topic));
    return topic;
}

void log_fx_append(log_fx *fx, sl_log_topic *topic, int partition, const char *key,
                   const char *value, uint32_t flags, uint64_t token)
{
    const sl_log_record_in record = {.key = sl_slice_str(key),
                                     .value = {sl_slice_str(value)},
                                     .flags = flags,
                                     .time_ms = sl_clock_wall(&fx->clock)};
    SL_TEST_OK(sl_log_append(fx->pr, topic, partition, &record, token));
}

void log_fx_wait(log_fx *fx, size_t count)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LIMIT_S;
    for (;;) {
        sl_log_producer_drain(fx->pr);
        if (fx->done_count >= count)
            return;
        pthread_mutex_lock(&fx->lock);
        int rc = 0;
        while (!fx->woken && rc == 0)
            rc = pthread_cond_timedwait(&fx->cond, &fx->lock, &until);
        fx->woken = false;
        pthread_mutex_unlock(&fx->lock);
        if (rc != 0)
            fail_msg("%zu of %zu completions came", fx->done_count, count);
    }
}

const sl_log_done *log_fx_done(log_fx *fx, uint64_t token)
{
    for (size_t i = 0; i < fx->done_count; i++)
        if (fx->dones[i].token == token)
            return &fx->dones[i];
    fail_msg("no completion of %llu", (unsigned long long)token);
    return NULL;
}

sl_log_consumer *log_fx_consumer(log_fx *fx, const char *group, sl_log_start reset, bool both)
{
    sl_log_consumer *co = NULL;
    const sl_log_consumer_options options = {.group = group, .reset = reset, .both_stages = both};
    SL_TEST_OK(sl_log_consumer_open(fx->log, &options, &co));
    return co;
}

static void copy_text(char out[LOG_FX_TEXT], sl_slice text)
{
    size_t len = text.len < LOG_FX_TEXT - 1 ? text.len : LOG_FX_TEXT - 1;
    if (len > 0)
        memcpy(out, text.ptr, len);
    out[len] = '\0';
}

static void copy_record(log_fx_record *out, const sl_log_batch *ba, const sl_log_record *rec)
{
    *out = (log_fx_record){.partition = ba->partition,
                           .offset = rec->offset,
                           .flags = rec->flags,
                           .attr = rec->attr,
                           .time_ms = rec->time_ms,
                           .value_len = rec->value.len,
                           .is_derived = rec->is_derived,
                           .source_partition = rec->source_partition,
                           .source_offset = rec->source_offset,
                           .stages = ba->stages};
    copy_text(out->key, rec->key);
    copy_text(out->value, rec->value);
    sl_slice value;
    if (sl_log_header_find(rec->headers, SL_LOG_H_PUBLISHER, &value))
        copy_text(out->header, value);
    if (sl_log_header_find(rec->headers, SL_LOG_H_NODE, &value))
        copy_text(out->node, value);
}

static size_t copy_batch(const sl_log_batch *ba, log_fx_record *out, size_t room)
{
    size_t used = 0, pos = 0;
    sl_log_record rec;
    while (sl_log_batch_next(ba, &pos, &rec)) {
        if (!sl_log_in_stage(&rec, ba->stages))
            continue;
        if (used == room)
            fail_msg("more records than expected, next is '%.*s'", (int)rec.key.len,
                     (const char *)rec.key.ptr);
        copy_record(&out[used++], ba, &rec);
    }
    return used;
}

void log_fx_read(sl_log_consumer *co, log_fx_record *out, size_t count)
{
    size_t got = 0;
    time_t limit = time(NULL) + LIMIT_S;
    while (got < count) {
        sl_log_batch batches[4];
        size_t batch_count = 0;
        SL_TEST_OK(sl_log_consumer_poll(co, batches, 4, 500, &batch_count));
        for (size_t i = 0; i < batch_count; i++) {
            got += copy_batch(&batches[i], out + got, count - got);
            sl_log_batch_release(&batches[i]);
        }
        if (time(NULL) > limit)
            fail_msg("%zu of %zu records came", got, count);
    }
}

void log_fx_expect_silence(log_fx *fx, sl_log_consumer *co)
{
    SL_TEST_OK(sl_log_sync(fx->log));
    sl_log_batch batches[4];
    size_t batch_count = 0;
    log_fx_record record;
    SL_TEST_OK(sl_log_consumer_poll(co, batches, 4, 0, &batch_count));
    for (size_t i = 0; i < batch_count; i++) {
        assert_int_equal(copy_batch(&batches[i], &record, 1), 0);
        sl_log_batch_release(&batches[i]);
    }
}
