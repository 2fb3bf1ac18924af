/* SPDX-License-Identifier: Apache-2.0
 *
 * log: the front functions of the log port: checks, limits, statistics and trace, then the
 * adapter's operation. No knowledge of any adapter. Threads as log.h says.
 */
#include "log/log.h"

#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/bytes.h"
#include "log/log_ops.h"

#define DEFAULT_GATHER_MS   2
#define DEFAULT_QUEUE_BYTES (64u << 20)
#define DEFAULT_LOW_SPACE   (256u << 20)
#define DEFAULT_RING_BYTES  (64u << 20)
#define MAX_NAME_BYTES      1024

/* ---- statistics ---- */

void sl_log_count(sl_log *log, unsigned stat, int64_t delta)
{
    if (log->options.stats == NULL || delta == 0)
        return;
    pthread_mutex_lock(&log->stats_lock);
    sl_stats_add(log->options.stats, log->stats_shard, log->options.stats_base + stat, delta);
    pthread_mutex_unlock(&log->stats_lock);
}

void sl_log_gauge(sl_log *log, unsigned stat, int64_t value)
{
    if (log->options.stats != NULL)
        sl_stats_set(log->options.stats, log->options.stats_base + stat, value);
}

/* ---- record headers ---- */

bool sl_log_header_next(sl_slice headers, size_t *pos, sl_log_header *out)
{
    if (headers.len < 3 || *pos > headers.len - 3)
        return false;
    const uint8_t *at = headers.ptr + *pos;
    size_t len = sl_get_u16(at + 1);
    if (len > headers.len - *pos - 3)
        return false;
    *out = (sl_log_header){(sl_log_header_id)at[0], sl_slice_of(at + 3, len)};
    *pos += 3 + len;
    return true;
}

bool sl_log_header_find(sl_slice headers, sl_log_header_id id, sl_slice *out)
{
    size_t pos = 0;
    sl_log_header hd;
    while (sl_log_header_next(headers, &pos, &hd)) {
        if (hd.id == id) {
            *out = hd.value;
            return true;
        }
    }
    return false;
}

/* ---- open and close ---- */

static void free_log(sl_log *log)
{
    pthread_mutex_destroy(&log->stats_lock);
    sl_free((char *)log->options.dir);
    sl_free((char *)log->options.node);
    log->magic = 0;
    sl_free(log);
}

sl_err sl_log_open(const struct sl_log_ops *ops, const sl_log_options *options, sl_log **out,
                   char **why)
{
    SL_ASSERT(options->clock != NULL);
    sl_log *log = sl_calloc(1, sizeof *log);
    log->magic = SL_LOG_MAGIC;
    log->ops = ops;
    log->options = *options;
    log->options.dir = sl_strdup(options->dir != NULL ? options->dir : "");
    log->options.node = sl_strdup(options->node != NULL ? options->node : "");
    if (log->options.gather_ms < 0)
        log->options.gather_ms = DEFAULT_GATHER_MS;
    if (log->options.queue_max_bytes == 0)
        log->options.queue_max_bytes = DEFAULT_QUEUE_BYTES;
    if (log->options.derived_max_bytes == 0)
        log->options.derived_max_bytes = DEFAULT_QUEUE_BYTES;
    if (log->options.low_space_bytes == 0)
        log->options.low_space_bytes = DEFAULT_LOW_SPACE;
    if (log->options.ring_bytes == 0)
        log->options.ring_bytes = DEFAULT_RING_BYTES;
    pthread_mutex_init(&log->stats_lock, NULL);
    if (options->stats != NULL)
        log->stats_shard = sl_stats_shard(options->stats);
    *why = NULL;
    sl_err err = ops->open(log, why);
    if (err != SL_OK) {
        free_log(log);
        return err;
    }
    *out = log;
    return SL_OK;
}

void sl_log_close(sl_log **log)
{
    if (*log == NULL)
        return;
    SL_CHECK(*log, SL_LOG_MAGIC);
    (*log)->ops->close(*log);
    free_log(*log);
    *log = NULL;
}

/* ---- topics ---- */

/* Names of topics and groups go into keys of a bounded size. */
static bool is_name(const char *name)
{
    return name != NULL && name[0] != '\0' && strlen(name) <= MAX_NAME_BYTES;
}

sl_err sl_log_topic_open(sl_log *log, const sl_log_topic_spec *spec, sl_log_topic **out)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    if (!is_name(spec->name) || spec->partitions < 1 || spec->partitions > 1024 ||
        (spec->many && spec->partitions != 1) ||
        (spec->pinned_group != NULL && !is_name(spec->pinned_group)))
        return SL_EINVAL;
    return log->ops->topic_open(log, spec, out);
}

sl_err sl_log_topic_delete(sl_log *log, const char *name)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    return log->ops->topic_delete(log, name);
}

/* What every operation on a partition asks first. */
static sl_err check_partition(const sl_log_topic *topic, int partition)
{
    SL_CHECK(topic, SL_LOG_TOPIC_MAGIC);
    if (partition < 0 || partition >= topic->partitions)
        return SL_EINVAL;
    if (atomic_load_explicit(&topic->deleted, memory_order_acquire))
        return SL_ENOTFOUND;
    return SL_OK;
}

sl_err sl_log_topic_describe(sl_log_topic *topic, uint16_t partition, sl_log_partition_info *out)
{
    sl_err err = check_partition(topic, partition);
    return err != SL_OK ? err : topic->log->ops->topic_describe(topic, partition, out);
}

const char *sl_log_topic_name(const sl_log_topic *topic)
{
    SL_CHECK(topic, SL_LOG_TOPIC_MAGIC);
    return topic->name;
}

uint16_t sl_log_topic_partitions(const sl_log_topic *topic)
{
    SL_CHECK(topic, SL_LOG_TOPIC_MAGIC);
    return topic->partitions;
}

void sl_log_topic_each(sl_log *log, void (*fn)(void *arg, const sl_log_topic_spec *spec), void *arg)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    log->ops->topic_each(log, fn, arg);
}

/* MurmurHash2 with the seed that Kafka's Java client uses. */
static uint32_t murmur2(sl_slice key)
{
    const uint32_t mul = 0x5bd1e995;
    uint32_t hash = 0x9747b28cu ^ (uint32_t)key.len;
    const uint8_t *at = key.ptr;
    size_t left = key.len;
    for (; left >= 4; left -= 4, at += 4) {
        uint32_t word =
            at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
        word *= mul;
        word ^= word >> 24;
        hash = (hash * mul) ^ (word * mul);
    }
    if (left >= 3)
        hash ^= (uint32_t)at[2] << 16;
    if (left >= 2)
        hash ^= (uint32_t)at[1] << 8;
    if (left >= 1)
        hash = (hash ^ at[0]) * mul;
    hash ^= hash >> 13;
    hash *= mul;
    return hash ^ hash >> 15;
}

uint16_t sl_log_partition_of(const sl_log_topic *topic, sl_slice key)
{
    SL_CHECK(topic, SL_LOG_TOPIC_MAGIC);
    return (uint16_t)((murmur2(key) & 0x7fffffffu) % topic->partitions);
}

/* ---- producers ---- */

sl_err sl_log_producer_open(sl_log *log, const sl_log_producer_options *options,
                            sl_log_producer **out)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    SL_ASSERT(options->done != NULL);
    return log->ops->producer_open(log, options, out);
}

void sl_log_producer_close(sl_log_producer **pr)
{
    if (*pr == NULL)
        return;
    SL_CHECK(*pr, SL_LOG_PRODUCER_MAGIC);
    (*pr)->log->ops->producer_close(*pr);
    *pr = NULL;
}

static sl_err check_record(const sl_log_record_in *record)
{
    if (record->header_count > SL_LOG_MAX_HEADERS ||
        (record->flags & (SL_LOG_VOLATILE | SL_LOG_DURABLE)) == (SL_LOG_VOLATILE | SL_LOG_DURABLE))
        return SL_EINVAL;
    size_t sum = record->key.len;
    for (size_t i = 0; i < 4; i++) {
        if (record->value[i].len > SL_LOG_MAX_RECORD_BYTES)
            return SL_ETOOBIG;
        sum += record->value[i].len;
    }
    for (uint32_t i = 0; i < record->header_count; i++) {
        if (record->headers[i].value.len > UINT16_MAX)
            return SL_ETOOBIG;
        sum += 3 + record->headers[i].value.len;
    }
    return sum > SL_LOG_MAX_RECORD_BYTES ? SL_ETOOBIG : SL_OK;
}

/* Checks topic, partition and record of an append; resolves SL_LOG_BY_KEY. */
static sl_err check_append(const sl_log_topic *topic, int *partition,
                           const sl_log_record_in *record)
{
    if (*partition == SL_LOG_BY_KEY)
        *partition = sl_log_partition_of(topic, record->key);
    sl_err err = check_partition(topic, *partition);
    return err != SL_OK ? err : check_record(record);
}

/* Counts and traces a refusal of the adapter. */
static sl_err refused(sl_log *log, const char *what, sl_err err)
{
    if (err == SL_EAGAIN)
        sl_log_count(log, SL_LOG_STAT_REFUSED, 1);
    sl_trace(SL_C_LOG, "LOG-REFUSED", SL_S("operation", what), SL_E(err));
    return err;
}

sl_err sl_log_append(sl_log_producer *pr, sl_log_topic *topic, int partition,
                     const sl_log_record_in *record, uint64_t token)
{
    SL_CHECK(pr, SL_LOG_PRODUCER_MAGIC);
    sl_err err = check_append(topic, &partition, record);
    if (err == SL_OK)
        err = pr->log->ops->append(pr, topic, (uint16_t)partition, record, NULL, token);
    return err == SL_OK ? SL_OK : refused(pr->log, "append", err);
}

sl_err sl_log_append_qos2(sl_log_producer *pr, sl_log_topic *topic, int partition,
                          const sl_log_record_in *record, sl_slice client, uint16_t packet_id,
                          uint64_t token)
{
    SL_CHECK(pr, SL_LOG_PRODUCER_MAGIC);
    sl_err err = check_append(topic, &partition, record);
    if (err == SL_OK && client.len > UINT16_MAX)
        err = SL_ETOOBIG;
    const sl_log_qos2 open = {client, packet_id};
    if (err == SL_OK)
        err = pr->log->ops->append(pr, topic, (uint16_t)partition, record, &open, token);
    return err == SL_OK ? SL_OK : refused(pr->log, "append_qos2", err);
}

sl_err sl_log_qos2_release(sl_log_producer *pr, sl_slice client, uint16_t packet_id, uint64_t token)
{
    SL_CHECK(pr, SL_LOG_PRODUCER_MAGIC);
    if (client.len > UINT16_MAX)
        return SL_ETOOBIG;
    sl_err err = pr->log->ops->qos2_release(pr, client, packet_id, token);
    return err == SL_OK ? SL_OK : refused(pr->log, "qos2_release", err);
}

sl_err sl_log_qos2_clear(sl_log_producer *pr, sl_slice client, uint64_t token)
{
    SL_CHECK(pr, SL_LOG_PRODUCER_MAGIC);
    if (client.len > UINT16_MAX)
        return SL_ETOOBIG;
    sl_err err = pr->log->ops->qos2_clear(pr, client, token);
    return err == SL_OK ? SL_OK : refused(pr->log, "qos2_clear", err);
}

sl_err sl_log_qos2_load(sl_log *log, sl_slice client, void (*fn)(void *arg, uint16_t packet_id),
                        void *arg)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    return log->ops->qos2_load(log, client, fn, arg);
}

sl_err sl_log_append_derived(sl_log_producer *pr, sl_log_topic *target, int partition,
                             const sl_log_topic *source_topic, uint16_t source_partition,
                             const sl_log_record *source, const sl_log_record_in *record,
                             uint64_t token)
{
    SL_CHECK(pr, SL_LOG_PRODUCER_MAGIC);
    SL_CHECK(source_topic, SL_LOG_TOPIC_MAGIC);
    sl_err err = check_append(target, &partition, record);
    if (err == SL_OK && source_partition >= source_topic->partitions)
        err = SL_EINVAL;
    if (err == SL_OK)
        err = pr->log->ops->append_derived(pr, target, (uint16_t)partition, source_topic,
                                           source_partition, source, record, token);
    return err == SL_OK ? SL_OK : refused(pr->log, "append_derived", err);
}

size_t sl_log_producer_drain(sl_log_producer *pr)
{
    SL_CHECK(pr, SL_LOG_PRODUCER_MAGIC);
    return pr->log->ops->producer_drain(pr);
}

/* ---- consumers ---- */

sl_err sl_log_consumer_open(sl_log *log, const sl_log_consumer_options *options,
                            sl_log_consumer **out)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    if (options->group != NULL && !is_name(options->group))
        return SL_EINVAL;
    return log->ops->consumer_open(log, options, out);
}

void sl_log_consumer_close(sl_log_consumer **co)
{
    if (*co == NULL)
        return;
    SL_CHECK(*co, SL_LOG_CONSUMER_MAGIC);
    (*co)->log->ops->consumer_close(*co);
    *co = NULL;
}

sl_err sl_log_consumer_assign(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition,
                              uint64_t offset)
{
    SL_CHECK(co, SL_LOG_CONSUMER_MAGIC);
    sl_err err = check_partition(topic, partition);
    return err != SL_OK ? err : co->log->ops->consumer_assign(co, topic, partition, offset);
}

sl_err sl_log_consumer_unassign(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition)
{
    SL_CHECK(co, SL_LOG_CONSUMER_MAGIC);
    SL_CHECK(topic, SL_LOG_TOPIC_MAGIC);
    return co->log->ops->consumer_unassign(co, topic, partition);
}

sl_err sl_log_consumer_subscribe(sl_log_consumer *co, sl_log_topic *topic,
                                 sl_log_assign_f *on_assign, void *arg)
{
    SL_CHECK(co, SL_LOG_CONSUMER_MAGIC);
    if (co->options.group == NULL)
        return SL_EINVAL;
    sl_err err = check_partition(topic, 0);
    return err != SL_OK ? err : co->log->ops->consumer_subscribe(co, topic, on_assign, arg);
}

sl_err sl_log_consumer_poll(sl_log_consumer *co, sl_log_batch *batches, size_t max,
                            sl_dur_ms wait_ms, size_t *count)
{
    SL_CHECK(co, SL_LOG_CONSUMER_MAGIC);
    return co->log->ops->consumer_poll(co, batches, max, wait_ms, count);
}

void sl_log_consumer_interrupt(sl_log_consumer *co)
{
    SL_CHECK(co, SL_LOG_CONSUMER_MAGIC);
    co->log->ops->consumer_interrupt(co);
}

void sl_log_consumer_pause(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition, bool pause)
{
    SL_CHECK(co, SL_LOG_CONSUMER_MAGIC);
    SL_CHECK(topic, SL_LOG_TOPIC_MAGIC);
    co->log->ops->consumer_pause(co, topic, partition, pause);
}

sl_err sl_log_consumer_commit(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition,
                              uint64_t offset)
{
    SL_CHECK(co, SL_LOG_CONSUMER_MAGIC);
    if (co->options.group == NULL)
        return SL_EINVAL;
    sl_err err = check_partition(topic, partition);
    return err != SL_OK ? err : co->log->ops->consumer_commit(co, topic, partition, offset);
}

bool sl_log_batch_next(const sl_log_batch *batch, size_t *pos, sl_log_record *out)
{
    return batch->topic->log->ops->batch_next(batch, pos, out);
}

void sl_log_batch_release(sl_log_batch *batch)
{
    if (batch->topic != NULL)
        batch->topic->log->ops->batch_release(batch);
    batch->topic = NULL;
}

/* ---- groups and the rest ---- */

sl_err sl_log_group_get(sl_log *log, const char *group, sl_log_topic *topic, uint16_t partition,
                        uint64_t *offset)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    if (!is_name(group))
        return SL_EINVAL;
    sl_err err = check_partition(topic, partition);
    return err != SL_OK ? err : log->ops->group_get(log, group, topic, partition, offset);
}

sl_err sl_log_group_set(sl_log *log, const char *group, sl_log_topic *topic, uint16_t partition,
                        uint64_t offset)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    if (!is_name(group))
        return SL_EINVAL;
    sl_err err = check_partition(topic, partition);
    return err != SL_OK ? err : log->ops->group_set(log, group, topic, partition, offset);
}

sl_err sl_log_group_delete(sl_log *log, const char *group)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    return log->ops->group_delete(log, group);
}

void sl_log_group_each(sl_log *log,
                       void (*fn)(void *arg, const char *group, const char *topic,
                                  uint16_t partition, uint64_t offset),
                       void *arg)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    log->ops->group_each(log, fn, arg);
}

sl_err sl_log_sync(sl_log *log)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    return log->ops->sync(log);
}

bool sl_log_is_healthy(const sl_log *log, const char **why)
{
    SL_CHECK(log, SL_LOG_MAGIC);
    return log->ops->is_healthy(log, why);
}
