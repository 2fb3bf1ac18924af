/* SPDX-License-Identifier: Apache-2.0
 *
 * log_ops: the adapter's side of the log port: the operations an adapter gives, and the first part
 * of every handle, which the front functions (log.c) fill and check. Included by log.c, the
 * adapters and their tests only.
 *
 * The front functions have checked the arguments before an operation runs: handles are of the
 * right kind and alive, partitions exist, sizes are within the limits, topics are not deleted.
 */
#ifndef SL_LOG_LOG_OPS_H
#define SL_LOG_LOG_OPS_H

#include <pthread.h>
#include <stdatomic.h>

#include "log/log.h"

#define SL_LOG_MAGIC          0x4c4f4730u
#define SL_LOG_TOPIC_MAGIC    0x4c4f4731u
#define SL_LOG_PRODUCER_MAGIC 0x4c4f4732u
#define SL_LOG_CONSUMER_MAGIC 0x4c4f4733u

struct sl_log {
    uint32_t magic;
    const struct sl_log_ops *ops; /* borrowed, static */
    void *self;                   /* the adapter's, set by open */
    sl_log_options options;       /* dir and node owned; zero values replaced by the defaults */
    pthread_mutex_t stats_lock;   /* guards the use of stats_shard; innermost rank */
    unsigned stats_shard;
};

struct sl_log_topic {
    uint32_t magic;
    sl_log *log;
    char *name; /* owned */
    uint16_t partitions;
    _Atomic bool deleted;
};

struct sl_log_producer {
    uint32_t magic;
    sl_log *log;
    sl_log_producer_options options;
};

struct sl_log_consumer {
    uint32_t magic;
    sl_log *log;
    sl_log_consumer_options options; /* group owned */
};

/* The QoS 2 id that is opened together with an append. */
typedef struct sl_log_qos2 {
    sl_slice client;
    uint16_t packet_id;
} sl_log_qos2;

typedef struct sl_log_ops {
    const char *name; /* the word in the configuration: "embedded", "kafka" */

    /* Reads log->options, sets log->self. Blocks. As sl_log_open. */
    sl_err (*open)(sl_log *log, char **why);
    /* Writes what is queued, ends threads, frees log->self. */
    void (*close)(sl_log *log);

    /* Opens or creates; the same handle for the same name. Blocks. */
    sl_err (*topic_open)(sl_log *log, const sl_log_topic_spec *spec, sl_log_topic **out);
    /* SL_ENOTFOUND when there is none. Sets topic->deleted before anything else. Blocks. */
    sl_err (*topic_delete)(sl_log *log, const char *name);
    sl_err (*topic_describe)(sl_log_topic *topic, uint16_t partition, sl_log_partition_info *out);
    /* fn is called without a lock held. */
    void (*topic_each)(sl_log *log, void (*fn)(void *arg, const sl_log_topic_spec *spec),
                       void *arg);

    /* The adapter allocates its own producer, whose first member is struct sl_log_producer, and
     * fills that member. */
    sl_err (*producer_open)(sl_log *log, const sl_log_producer_options *options,
                            sl_log_producer **out);
    /* Completes what is open, drains, frees. */
    void (*producer_close)(sl_log_producer *pr);
    /* SL_EAGAIN queue full, SL_ENOSPC, SL_EIO. open: NULL or the id to open with the record.
     * Never blocks. */
    sl_err (*append)(sl_log_producer *pr, sl_log_topic *topic, uint16_t partition,
                     const sl_log_record_in *record, const sl_log_qos2 *open, uint64_t token);
    sl_err (*qos2_release)(sl_log_producer *pr, sl_slice client, uint16_t packet_id,
                           uint64_t token);
    sl_err (*qos2_clear)(sl_log_producer *pr, sl_slice client, uint64_t token);
    sl_err (*qos2_load)(sl_log *log, sl_slice client, void (*fn)(void *arg, uint16_t packet_id),
                        void *arg);
    sl_err (*append_derived)(sl_log_producer *pr, sl_log_topic *target, uint16_t partition,
                             const sl_log_topic *source_topic, uint16_t source_partition,
                             const sl_log_record *source, const sl_log_record_in *record,
                             uint64_t token);
    size_t (*producer_drain)(sl_log_producer *pr);

    /* As producer_open. */
    sl_err (*consumer_open)(sl_log *log, const sl_log_consumer_options *options,
                            sl_log_consumer **out);
    void (*consumer_close)(sl_log_consumer *co);
    sl_err (*consumer_assign)(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition,
                              uint64_t offset);
    sl_err (*consumer_unassign)(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition);
    sl_err (*consumer_subscribe)(sl_log_consumer *co, sl_log_topic *topic,
                                 sl_log_assign_f *on_assign, void *arg);
    sl_err (*consumer_poll)(sl_log_consumer *co, sl_log_batch *batches, size_t max,
                            sl_dur_ms wait_ms, size_t *count);
    void (*consumer_interrupt)(sl_log_consumer *co);
    void (*consumer_pause)(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition,
                           bool pause);
    sl_err (*consumer_commit)(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition,
                              uint64_t offset);
    bool (*batch_next)(const sl_log_batch *batch, size_t *pos, sl_log_record *out);
    void (*batch_release)(sl_log_batch *batch);

    sl_err (*group_get)(sl_log *log, const char *group, sl_log_topic *topic, uint16_t partition,
                        uint64_t *offset);
    sl_err (*group_set)(sl_log *log, const char *group, sl_log_topic *topic, uint16_t partition,
                        uint64_t offset);
    sl_err (*group_delete)(sl_log *log, const char *group);
    /* fn is called without a lock held. */
    void (*group_each)(sl_log *log,
                       void (*fn)(void *arg, const char *group, const char *topic,
                                  uint16_t partition, uint64_t offset),
                       void *arg);

    sl_err (*sync)(sl_log *log);
    bool (*is_healthy)(const sl_log *log, const char **why);
} sl_log_ops;

/** Adds to one of the port's counters or gauges; nothing without a table. @thread any */
void sl_log_count(sl_log *log, unsigned stat, int64_t delta);
/** Sets a gauge of the port. @thread any */
void sl_log_gauge(sl_log *log, unsigned stat, int64_t value);

#endif
