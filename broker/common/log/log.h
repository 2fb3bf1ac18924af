/* SPDX-License-Identifier: Apache-2.0
 *
 * log: PORT of the durable, partitioned log ("log" in configuration). Adapters: log_embedded.c
 * (RocksDB, in this process) and, later, Kafka. The contract is what both can do: at-least-once,
 * order per partition, durability by topic and record; who needs exactly-once compares sources.
 *
 * Terms as in Kafka: topic, partition, offset, key, headers, consumer group, committed offset.
 * The front functions in log.c own checks, limits, statistics and trace; the core calls nothing
 * else and never asks which adapter it has. One contract suite (tests/contract/log) runs on each.
 *
 * Threads: a producer belongs to one loop (or one plain thread, with wake NULL and polled drains);
 * a consumer belongs to one thread; everything else may be called from any thread.
 */
#ifndef SL_LOG_LOG_H
#define SL_LOG_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rbuf.h"
#include "base/slice.h"
#include "base/stats.h"

typedef struct sl_log sl_log;
typedef struct sl_log_topic sl_log_topic; /* handle, valid until the log is closed */
typedef struct sl_log_producer sl_log_producer;
typedef struct sl_log_consumer sl_log_consumer;

/* ---- records ------------------------------------------------------------------------------- */

/* Header ids: one byte in the embedded log, the name in Kafka (docs/kafka-topics.md). */
#define SL_LOG_HEADER_MAP(X)                                                                       \
    X(PUBLISHER, 1, "publisher")           /* client id of the publisher, bytes */                 \
    X(CERT_CN, 2, "certCn")                /* common name of its certificate, bytes */             \
    X(NODE, 3, "serviceId")                /* node that wrote the record, bytes */                 \
    X(RECEIVED, 4, "receivedAt")           /* receive time, int64 ms big endian */                 \
    X(PACKET_ID, 5, "packetId")            /* QoS 2: inbound packet id, u16 */                     \
    X(DUP, 6, "dup")                       /* QoS 2: the PUBLISH had DUP, empty value */           \
    X(GENERATION, 7, "generation")         /* session generation of the target, u64 */             \
    X(ORIGIN, 8, "origin")                 /* 0 own subscriptions, else share group hash, u64 */   \
    X(SUB_QOS, 9, "subQos")                /* QoS and flags granted to the target, u8 */           \
    X(SUB_IDS, 10, "subIds")               /* subscription identifiers, u32 each */                \
    X(REQUEST_ID, 11, "requestId")         /* request/response pairing, 16 bytes */                \
    X(REQUEST_TIME, 12, "requestTime")     /* int64 ms */                                          \
    X(RESPONSE_TOPIC, 13, "responseTopic") /* name */                                              \
    X(SOURCE, 14, "source")                /* derived records: u16 partition, u64 offset */        \
    X(EXPIRY, 15, "messageExpiryInterval") /* u32 seconds */

typedef enum sl_log_header_id {
#define SL_LOG_HEADER_ENUM(name, num, word) SL_LOG_H_##name = (num),
    SL_LOG_HEADER_MAP(SL_LOG_HEADER_ENUM)
#undef SL_LOG_HEADER_ENUM
} sl_log_header_id;

typedef struct sl_log_header {
    sl_log_header_id id;
    sl_slice value; /* at most 65535 bytes */
} sl_log_header;

/* Record flags. */
enum {
    SL_LOG_VOLATILE = 1, /* not fsynced; visible and acknowledged at the written end (QoS 0) */
    SL_LOG_DURABLE = 2,  /* fsynced before it is visible or acknowledged. Neither flag: the topic's
                            default */
    SL_LOG_NO_ACK = 4    /* no completion is wanted; a failure is counted and logged only */
};

/* What to append. All slices are borrowed for the call. */
typedef struct sl_log_record_in {
    sl_slice key;
    sl_slice value[4]; /* pieces, concatenated; unused ones are empty */
    const sl_log_header *headers;
    uint32_t header_count; /* at most SL_LOG_MAX_HEADERS */
    uint32_t flags;
    sl_wall_ms time_ms;
    uint8_t attr; /* a byte for the user (the QoS of a message); readable without parsing */
} sl_log_record_in;

#define SL_LOG_MAX_HEADERS      16
#define SL_LOG_MAX_RECORD_BYTES (300u << 20) /* key + value + headers */

/* A record as read: slices of the batch's buffers, valid while the batch is held. */
typedef struct sl_log_record {
    uint64_t offset; /* compacted topics: a sequence that grows with each write */
    sl_wall_ms time_ms;
    uint32_t flags;
    uint8_t attr;
    sl_slice key;
    sl_slice value;
    sl_slice headers; /* encoded; sl_log_header_next / sl_log_header_find read it */
    sl_rbuf *body;    /* borrowed: the buffer that holds key and value; ref it to keep them. Of a
                         derived record it holds the value; its key lives as long as the batch */
    bool is_derived;  /* source_* are set */
    uint16_t source_partition;
    uint64_t source_offset;
} sl_log_record;

/** Steps through encoded headers; *pos starts at 0; false at the end. @thread any */
bool sl_log_header_next(sl_slice headers, size_t *pos, sl_log_header *out);
/** The first header of this id; false when absent. @thread any */
bool sl_log_header_find(sl_slice headers, sl_log_header_id id, sl_slice *out);

/* ---- the log and its topics ----------------------------------------------------------------- */

typedef struct sl_log_options {
    const char *dir;          /* embedded: folder of the store (created) */
    const char *node;         /* service id */
    bool fsync;               /* durability: false = page cache only ("os") */
    sl_dur_ms gather_ms;      /* how long a group commit collects under load (2; 0 = never) */
    size_t queue_max_bytes;   /* bound of each producer's unwritten bytes (64 MB) */
    size_t derived_max_bytes; /* the same for derived appends (64 MB) */
    uint64_t low_space_bytes; /* appends fail with SL_ENOSPC while less is free (256 MB) */
    size_t ring_bytes;        /* appended buffers kept in memory for tailing readers (64 MB) */
    sl_clock *clock;
    sl_stats *stats;     /* may be NULL */
    unsigned stats_base; /* id of the first row of SL_LOG_STAT_ROWS in stats */
} sl_log_options;

/* The port's counters, to be placed in the owner's table in this order. */
#define SL_LOG_STAT_MAP(X)                                                                         \
    X(APPENDED, COUNTER, "sluice_log_appended_records_total", "Records appended to the log.")      \
    X(APPENDED_BYTES, COUNTER, "sluice_log_appended_bytes_total",                                  \
      "Bytes of keys, values and headers appended to the log.")                                    \
    X(COMMITS, COUNTER, "sluice_log_commits_total", "Group commits written.")                      \
    X(FSYNCS, COUNTER, "sluice_log_fsyncs_total", "Syncs of the log to the disk.")                 \
    X(FAILED, COUNTER, "sluice_log_failed_records_total", "Records that could not be stored.")     \
    X(REFUSED, COUNTER, "sluice_log_refused_appends_total",                                        \
      "Appends refused because the append queue was full (the publisher is held back).")           \
    X(QUEUED_BYTES, GAUGE, "sluice_log_queued_bytes", "Bytes waiting to be written.")              \
    X(TRIMMED, COUNTER, "sluice_log_trimmed_records_total", "Records removed by retention.")       \
    X(LOW_SPACE, GAUGE, "sluice_log_low_space", "1 while appends are refused for want of space.")  \
    X(RING_MISSES, COUNTER, "sluice_log_ring_misses_total",                                        \
      "Reads that fell behind the in-memory ring and went to the store.")                          \
    X(RETENTION_HELD, GAUGE, "sluice_log_retention_held_topics",                                   \
      "Topics whose retention is held back by a group that has not read them.")
enum {
#define SL_LOG_STAT_ENUM(name, kind, metric, help) SL_LOG_STAT_##name,
    SL_LOG_STAT_MAP(SL_LOG_STAT_ENUM)
#undef SL_LOG_STAT_ENUM
        SL_LOG_STAT_COUNT
};

struct sl_log_ops;
extern const struct sl_log_ops sl_log_embedded_ops;

/** Opens the log; blocks (recovery). Errors SL_ELOCKED another process has it, SL_EIO, SL_ENOSPC,
 * SL_ECORRUPT, SL_EUNSUPPORTED a newer format; *why: owned message that names the folder and what
 * to do (NULL on success). @thread init */
SL_MUST_USE sl_err sl_log_open(const struct sl_log_ops *ops, const sl_log_options *options,
                               sl_log **out, char **why);
/** All producers and consumers are closed before. Writes and syncs what is queued. @thread init */
void sl_log_close(sl_log **log);

typedef struct sl_log_topic_spec {
    const char *name;
    uint16_t partitions;      /* 1..1024 */
    bool compacted;           /* the newest value per key; an empty value removes the key */
    bool durable;             /* default durability of its records */
    bool many;                /* one of thousands of single-partition topics (per client) */
    int64_t retention_ms;     /* -1 = no limit */
    int64_t retention_bytes;  /* per partition, -1 = no limit */
    const char *pinned_group; /* retention never passes this group's committed offset; or NULL */
} sl_log_topic_spec;

/** Opens a topic, creating it when missing; blocks. An existing topic keeps its partitions; other
 * properties are updated, but compacted and many (SL_EUNSUPPORTED).
 * @thread any but a loop (pool or init) */
SL_MUST_USE sl_err sl_log_topic_open(sl_log *log, const sl_log_topic_spec *spec,
                                     sl_log_topic **out);
/** Removes topic, records, committed offsets of it. Handles to it answer SL_ENOTFOUND.
 * @thread any but a loop */
SL_MUST_USE sl_err sl_log_topic_delete(sl_log *log, const char *name);

typedef struct sl_log_partition_info {
    uint64_t start;   /* first offset that can be read */
    uint64_t written; /* offset after the last written record */
    uint64_t durable; /* offset after the last durable record */
    uint64_t bytes;   /* estimate of what is stored */
} sl_log_partition_info;
SL_MUST_USE sl_err sl_log_topic_describe(sl_log_topic *topic, uint16_t partition,
                                         sl_log_partition_info *out);
const char *sl_log_topic_name(const sl_log_topic *topic);
uint16_t sl_log_topic_partitions(const sl_log_topic *topic);
/** Calls fn for each topic's name. */
void sl_log_topic_each(sl_log *log, void (*fn)(void *arg, const sl_log_topic_spec *spec),
                       void *arg);
/** The partition of a key (murmur2 as Kafka's default partitioner, so both adapters agree). */
uint16_t sl_log_partition_of(const sl_log_topic *topic, sl_slice key);

/* ---- producers ------------------------------------------------------------------------------ */

typedef struct sl_log_done {
    uint64_t token;
    uint64_t offset; /* undefined on error */
    sl_err err;      /* SL_OK, SL_EIO, SL_ENOSPC, SL_ENOTFOUND, SL_ECLOSED */
} sl_log_done;

typedef struct sl_log_producer_options {
    /* Runs on any thread when completions wait: must only arrange that the owner's thread calls
     * sl_log_producer_drain soon (post a letter). At most one wake is open between two drains.
     * May be NULL for a thread that polls. */
    void (*wake)(void *arg);
    /* Called by sl_log_producer_drain on the owner's thread with a run of completions. */
    void (*done)(void *arg, const sl_log_done *dones, size_t count);
    /* After an append answered SL_EAGAIN: there is room again (called from drain). May be NULL. */
    void (*room)(void *arg);
    void *arg;
} sl_log_producer_options;

/** @thread any */
SL_MUST_USE sl_err sl_log_producer_open(sl_log *log, const sl_log_producer_options *options,
                                        sl_log_producer **out);
/** Open appends complete first; what done() appends meanwhile is refused with SL_ECLOSED. Blocks
 * for a group commit. @thread the producer's */
void sl_log_producer_close(sl_log_producer **pr);

#define SL_LOG_BY_KEY (-1)
/** Appends one record; returns after copying it into the queue of the next group commit.
 * Completes  done() with this token, exactly once, in a later drain (not with SL_LOG_NO_ACK).
 *            Embedded: in append order among appends of the same durability (a volatile one does
 *            not wait for the sync of a durable one before it). Kafka: in order per partition.
 * Errors     SL_EAGAIN queue full: nothing was taken, room() will be called; SL_ENOSPC low space;
 *            SL_ETOOBIG; SL_ENOTFOUND topic deleted.
 * @thread    the producer's */
SL_MUST_USE sl_err sl_log_append(sl_log_producer *pr, sl_log_topic *topic, int partition,
                                 const sl_log_record_in *record, uint64_t token);

/* The ledger of open inbound QoS 2 packet ids (MQTT 4.3.3, method B of the receiver): with `open`
 * the id becomes durable together with the record; release must be durable before PUBCOMP. */
/** As sl_log_append, and opens packet_id of client in the ledger atomically with it. */
SL_MUST_USE sl_err sl_log_append_qos2(sl_log_producer *pr, sl_log_topic *topic, int partition,
                                      const sl_log_record_in *record, sl_slice client,
                                      uint16_t packet_id, uint64_t token);
/** Removes an id; completes when that is durable. @thread the producer's */
SL_MUST_USE sl_err sl_log_qos2_release(sl_log_producer *pr, sl_slice client, uint16_t packet_id,
                                       uint64_t token);
/** Removes all ids of a client (its session ended); completes like an append. */
SL_MUST_USE sl_err sl_log_qos2_clear(sl_log_producer *pr, sl_slice client, uint64_t token);
/** Open ids of a client: fn for each. All earlier appends of this producer are seen. Blocks for a
 * read of the store. @thread any */
SL_MUST_USE sl_err sl_log_qos2_load(sl_log *log, sl_slice client,
                                    void (*fn)(void *arg, uint16_t packet_id), void *arg);

/** Appends a record that stands for a source record: readers get the source's value, time and
 * headers with `record`'s key and headers put before them (an empty key: the source's key).
 * Embedded: a reference; Kafka: a copy. The record is volatile, whatever record->flags say.
 * `source` is the record being handled (still held by its consumer). record->value is ignored.
 * Uses the derived queue with its guaranteed share of each group commit. Not fsynced: the source is
 * durable and replayed. Completes like an append, at the written end.
 * Errors as sl_log_append. @thread the producer's */
SL_MUST_USE sl_err sl_log_append_derived(sl_log_producer *pr, sl_log_topic *target, int partition,
                                         const sl_log_topic *source_topic,
                                         uint16_t source_partition, const sl_log_record *source,
                                         const sl_log_record_in *record, uint64_t token);
/** Runs done() for all completions that wait; returns their number. @thread the producer's */
size_t sl_log_producer_drain(sl_log_producer *pr);

/* ---- consumers ------------------------------------------------------------------------------ */

typedef enum sl_log_start { SL_LOG_EARLIEST, SL_LOG_LATEST } sl_log_start;

/* A batch is handed out in up to two stages: first when written (only the volatile records count),
 * then when durable (only the others count). A consumer handles record r of a batch in stage s iff
 * sl_log_in_stage(r, s). Kafka hands both stages in one go. A stage in which no record of a batch
 * counts is passed without a hand-out; whoever follows `next` of the durable stage (to commit it)
 * still gets to the end: if nothing else does, an empty batch (count 0) tells how far it is. */
typedef enum sl_log_stage { SL_LOG_STAGE_WRITTEN = 1, SL_LOG_STAGE_DURABLE = 2 } sl_log_stage;

typedef struct sl_log_consumer_options {
    const char *group;  /* NULL: no group, nothing is committed (a fresh replay) */
    sl_log_start reset; /* where to begin without a committed offset */
    bool both_stages;   /* false: batches come once, when durable (all records of them count) */
    /* Any thread: there are new records or an assignment. Must only arrange that the consumer's
     * thread polls soon. NULL = poll blocks only */
    void (*wake)(void *arg);
    void *wake_arg;
    size_t max_batch_bytes; /* of one poll, about; 0 = 1 MB */
} sl_log_consumer_options;

typedef struct sl_log_batch {
    sl_log_topic *topic;
    uint16_t partition;
    unsigned stages; /* bits of sl_log_stage that this hand-out is for */
    uint64_t base;   /* offset of the first record of interest */
    uint64_t next;   /* offset after the last */
    uint32_t count;  /* records from base to next (compacted snapshots: rows; there `next` passes
                        the snapshot only with its last batch, so that it may be committed) */
    void *_impl;
    sl_rbuf *_buf; /* held */
} sl_log_batch;

SL_MUST_USE sl_err sl_log_consumer_open(sl_log *log, const sl_log_consumer_options *options,
                                        sl_log_consumer **out);
void sl_log_consumer_close(sl_log_consumer **co);
/** Reads this partition. offset: where to begin; SL_LOG_COMMITTED = the group's committed offset,
 * else `reset`. @thread the consumer's */
#define SL_LOG_COMMITTED UINT64_MAX
SL_MUST_USE sl_err sl_log_consumer_assign(sl_log_consumer *co, sl_log_topic *topic,
                                          uint16_t partition, uint64_t offset);
SL_MUST_USE sl_err sl_log_consumer_unassign(sl_log_consumer *co, sl_log_topic *topic,
                                            uint16_t partition);
/** Joins the group for this topic: partitions are spread over the members. Changes arrive through
 * on_assign inside poll, on the consumer's thread; a revoked partition's work is finished or
 * dropped before on_assign returns. Closing the consumer leaves without on_assign. */
typedef void sl_log_assign_f(void *arg, sl_log_topic *topic, uint16_t partition, bool assigned);
SL_MUST_USE sl_err sl_log_consumer_subscribe(sl_log_consumer *co, sl_log_topic *topic,
                                             sl_log_assign_f *on_assign, void *arg);
/** Up to max batches; waits at most wait_ms (0 = no wait) for the first. *count gets how many. Each
 * is released by sl_log_batch_release, in any order, from any thread, before the log is closed.
 * Within a stage the batches of a partition come in offset order without a gap (but for what
 * retention trimmed, and offsets of a commit that failed). An interrupt gives SL_OK with count 0.
 * Errors SL_EIO, SL_ECORRUPT. */
SL_MUST_USE sl_err sl_log_consumer_poll(sl_log_consumer *co, sl_log_batch *batches, size_t max,
                                        sl_dur_ms wait_ms, size_t *count);
/** Makes a waiting poll return at once (SL_OK, count 0). @thread any */
void sl_log_consumer_interrupt(sl_log_consumer *co);
/** Stops and restarts fetching of a partition (back-pressure). @thread the consumer's */
void sl_log_consumer_pause(sl_log_consumer *co, sl_log_topic *topic, uint16_t partition,
                           bool pause);
/** The group has handled everything below offset. Rides in a later group commit, unsynced (derived
 * records, inbox rows and the offset go into one batch). What this thread queued before (derived
 * appends, embedded_kv writes) gets to the disk with it or before it, never after.
 * Errors SL_ENOTFOUND the partition is not this consumer's (any longer). @thread the consumer's */
SL_MUST_USE sl_err sl_log_consumer_commit(sl_log_consumer *co, sl_log_topic *topic,
                                          uint16_t partition, uint64_t offset);

/** Reads the records of a batch in order: *pos starts at 0; false at the end. Resolves references
 * (may read the store; SL_ENOTFOUND sources are skipped and counted). @thread the batch's holder */
bool sl_log_batch_next(const sl_log_batch *batch, size_t *pos, sl_log_record *out);
static inline bool sl_log_in_stage(const sl_log_record *record, unsigned stages)
{
    return (record->flags & SL_LOG_VOLATILE) != 0 ? (stages & SL_LOG_STAGE_WRITTEN) != 0
                                                  : (stages & SL_LOG_STAGE_DURABLE) != 0;
}
void sl_log_batch_release(sl_log_batch *batch);

/* ---- groups, from outside a consumer --------------------------------------------------------- */

/** SL_ENOTFOUND when the group never committed there. @thread any */
SL_MUST_USE sl_err sl_log_group_get(sl_log *log, const char *group, sl_log_topic *topic,
                                    uint16_t partition, uint64_t *offset);
/** Durable when it returns; blocks. @thread any but a loop */
SL_MUST_USE sl_err sl_log_group_set(sl_log *log, const char *group, sl_log_topic *topic,
                                    uint16_t partition, uint64_t offset);
SL_MUST_USE sl_err sl_log_group_delete(sl_log *log, const char *group);
void sl_log_group_each(sl_log *log,
                       void (*fn)(void *arg, const char *group, const char *topic,
                                  uint16_t partition, uint64_t offset),
                       void *arg);

/* ---- waiting for what was asked -------------------------------------------------------------- */

/** Blocks until everything appended before is durable. @thread any but a loop */
SL_MUST_USE sl_err sl_log_sync(sl_log *log);

/* True while the log takes appends (readiness); *why: static text when not. @thread any */
bool sl_log_is_healthy(const sl_log *log, const char **why);

#endif
