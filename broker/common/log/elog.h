/* SPDX-License-Identifier: Apache-2.0
 *
 * elog: the inside of the embedded log (RocksDB as a log), shared by the log_embedded*.c files and
 * their tests; nobody else includes it. docs/log-embedded.md explains the design.
 *
 * Threads: producers' and consumers' own threads, one writer, one syncer, one keeper (space,
 * retention). Locks, in rank order (a thread takes them only downwards):
 *   topics_lock -> producers_lock -> producer lock
 *   topics_lock -> part lock -> consumer lock
 *   group lock -> groups_lock;  work_lock, sync_lock, ledger lock: leaves.
 */
#ifndef SL_LOG_ELOG_H
#define SL_LOG_ELOG_H

#include <pthread.h>
#include <rocksdb/c.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/logger.h"
#include "base/map.h"
#include "log/batch.h"
#include "log/log_ops.h"
#include "loop/pool.h"

#define ELOG_CHUNK_BYTES    32768u     /* one packed batch; more only for one big record */
#define ELOG_SEGMENT_BYTES  (2u << 20) /* a producer's share of a commit, about */
#define ELOG_HOT_PARTITIONS 12         /* durable topics from here get a CF per partition */
#define ELOG_HOT_MAX        96         /* such CFs in all */
#define ELOG_TICK_MS        100        /* at most this long stays anything unsynced */
#define ELOG_KEY_BYTES      14         /* topic u32, partition u16, offset u64 */
#define ELOG_LEDGER_SHARDS  16
#define ELOG_TOMBS_MAX      65536 /* remembered removals of a compacted partition */

struct elog;
struct elog_part;
struct elog_consumer;

/* ---- the in-memory ring ---- */

typedef struct elog_entry {
    uint64_t base;
    uint64_t end;
    sl_rbuf *buf; /* owned reference */
    uint8_t hints;
} elog_entry;

/* Batches of a partition in offset order; a power of two of slots, first..first+count. */
typedef struct elog_ring {
    elog_entry *slots; /* owned */
    uint32_t cap;
    uint32_t first;
    uint32_t count;
} elog_ring;

/* ---- topics ---- */

/* Where retention may cut: `bytes` were stored in the offsets below `end` since the mark before. */
typedef struct elog_mark {
    uint64_t end;
    uint64_t bytes;
} elog_mark;

/* References of a derived partition to one source partition, of a run of its records. */
typedef struct elog_refmark {
    uint64_t from; /* derived offset where the run begins */
    uint64_t end;  /* and ends */
    struct elog_part *source;
    uint64_t first; /* smallest source offset in the run */
} elog_refmark;

/* A removed key of a compacted partition whose empty row is kept until all readers passed it. */
typedef struct elog_tomb {
    uint64_t seq;
    uint32_t key_len;
    uint8_t key[];
} elog_tomb;

typedef struct elog_part {
    struct elog_topic *topic;
    uint32_t pid; /* dense number over all partitions, for the producers' tables */
    uint16_t partition;
    rocksdb_column_family_handle_t *cf; /* borrowed */
    bool hot;                           /* cf is this partition's own */

    uint64_t next; /* next offset to give; writer only (and init) */

    pthread_mutex_t lock;   /* guards all below */
    _Atomic uint64_t start; /* also read without the lock */
    _Atomic uint64_t floor; /* references below it become copies; >= start */
    uint64_t written;       /* offset after the last written record */
    uint64_t need_sync;     /* offset after the last durable record */
    uint64_t synced;        /* offset that a sync reached */
    uint64_t durable;       /* below it no record waits for a sync */
    elog_ring ring;
    sl_list subs; /* elog_sub.part_node */

    uint64_t bytes;   /* stored, estimate */
    elog_mark *marks; /* owned; oldest first */
    uint32_t mark_count;
    uint32_t mark_cap;
    elog_refmark *refs; /* owned; oldest first */
    uint32_t ref_count;
    uint32_t ref_cap;
    bool refs_unknown;   /* older references than this process saw: to be scanned */
    uint64_t known_from; /* references from this offset on are in refs */

    elog_tomb **tombs; /* owned ring buffer of owned rows; compacted only */
    uint32_t tomb_first;
    uint32_t tomb_count;
    uint32_t tomb_cap;
    bool tombs_lost; /* more than fit: the keeper scans */

    /* the keeper's only */
    uint64_t want;      /* start that retention asks for */
    uint64_t limit;     /* the same, but not past the pinned group */
    uint64_t ref_min;   /* oldest live reference into it */
    uint64_t oldest_at; /* start for which oldest_ms was read */
    sl_wall_ms oldest_ms;
    bool oldest_known;
    uint64_t dropped; /* shared family: the start for which data was deleted */
} elog_part;

typedef struct elog_topic {
    struct sl_log_topic base; /* first */
    struct elog *el;
    uint32_t id;
    bool compacted;
    bool many;
    bool hot;
    bool has_refs; /* its refs/ row is stored; the writer's only */
    _Atomic bool durable;
    _Atomic int64_t retention_ms;
    _Atomic int64_t retention_bytes;
    char *pinned_group; /* owned, or NULL; under topics_lock */
    elog_part *parts;   /* owned, base.partitions of them */
    bool held_logged;   /* keeper only */
} elog_topic;

/* ---- producers ---- */

typedef struct elog_ack {
    uint64_t token;
    uint32_t chunk; /* index in the segment; UINT32_MAX: no record (kv rows, releases) */
    uint32_t index; /* record in the chunk */
} elog_ack;

typedef struct elog_acks {
    elog_ack *at; /* owned */
    uint32_t count;
    uint32_t cap;
} elog_acks;

typedef struct elog_chunk {
    elog_part *part;
    sl_batch_fill fill; /* buf owned; the ring takes a reference of its own */
    uint64_t base;      /* set by the writer */
    sl_err err;
    uint8_t ref_count;
    uint8_t ref_cap;
    elog_refmark *refs; /* owned; one per source partition, `end` unused */
} elog_chunk;

typedef enum elog_class { ELOG_MAIN, ELOG_DERIVED, ELOG_CLASSES } elog_class;

/* What one producer hands to one group commit, of one class. The owner keeps it until its
 * completions are drained; the writer and the syncer work on it in between. */
typedef struct elog_segment {
    struct elog_segment *next;       /* owner's queue, in order */
    struct elog_segment *next_taken; /* writer's list */
    struct elog_producer *pr;
    elog_class cls;
    elog_chunk *chunks; /* owned */
    uint32_t chunk_count;
    uint32_t chunk_cap;
    uint8_t *ops; /* owned: rows to write beside the records (elog_op_*) */
    size_t ops_len;
    size_t ops_cap;
    elog_acks acks[2]; /* at the written end; at the durable end */
    size_t bytes;
    uint32_t records;
    bool needs_sync;
    bool written_drained; /* owner: acks[0] were handed out */
    sl_err err;           /* of the whole; set before state */
    enum { ELOG_OPEN, ELOG_CLOSED, ELOG_TAKEN, ELOG_WRITTEN, ELOG_DONE } state; /* producer lock */
} elog_segment;

/* Open chunk of a partition in the open segment. */
typedef struct elog_slot {
    uint32_t pid;
    uint32_t epoch; /* of the segment it is in; older = free */
    uint32_t chunk;
    uint32_t hint; /* bytes that the last chunk of this partition got */
} elog_slot;

typedef struct elog_queue {
    elog_segment *head;  /* owned list in order: drained from here */
    elog_segment *tail;  /* the open one, if its state is ELOG_OPEN */
    elog_segment *taken; /* last one that the writer took */
    elog_slot *slots;    /* owned */
    uint32_t slot_cap;
    uint32_t slot_used;
    uint32_t epoch;
    size_t bytes; /* not yet complete */
} elog_queue;

typedef struct elog_producer {
    struct sl_log_producer base; /* first */
    struct elog *el;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t done;  /* close waits for the last segment */
    elog_queue queues[ELOG_CLASSES];
    elog_segment *spare; /* owned: drained ones for reuse */
    unsigned spare_count;
    bool wake_open;
    bool starved[ELOG_CLASSES]; /* an append was refused */
    bool closing;
} elog_producer;

/* ---- committed offsets ---- */

typedef struct elog_goff {
    struct elog_goff *next_dirty;
    elog_part *part;
    char *group; /* owned */
    uint64_t offset;
    bool present;
    bool dirty;
    unsigned users; /* subs that point here */
} elog_goff;

/* ---- consumers ---- */

typedef struct elog_sub {
    sl_node part_node;  /* part->subs, part lock */
    sl_node ready_node; /* consumer's ready list, consumer lock */
    struct elog_consumer *co;
    elog_part *part;
    elog_goff *goff; /* NULL without group */
    /* The consumer's thread only; the writer looks at the cursor. */
    uint64_t wcur;           /* next offset of the written stage (both stages only) */
    _Atomic uint64_t cursor; /* next offset of the durable stage */
    bool owed;               /* the durable stage passed records without a hand-out */
    bool paused;
    bool snapshot;      /* reading rows, compacted only */
    uint64_t snap_end;  /* rows below it belong to the snapshot */
    uint8_t *snap_from; /* owned: where the next rows start, NULL = first */
    size_t snap_from_len;
} elog_sub;

/* A subscription of a consumer to a topic through its group. */
typedef struct elog_member {
    sl_node node; /* elog_group.members, group lock */
    sl_node mine; /* elog_consumer.members, own thread */
    struct elog_group *group;
    struct elog_consumer *co;
    sl_log_assign_f *on_assign;
    void *arg;
} elog_member;

/* Members of one group at one topic. */
typedef struct elog_group {
    sl_node node; /* elog.groups */
    elog_topic *topic;
    char *name; /* owned */
    sl_list members;
    elog_member **owner;  /* owned, per partition: who reads it now */
    elog_member **target; /* owned, per partition: who ought to */
} elog_group;

typedef struct elog_consumer {
    struct sl_log_consumer base; /* first */
    struct elog *el;
    sl_imap *subs;        /* pid -> elog_sub; own thread */
    sl_list members;      /* own thread */
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t cond;
    sl_list ready; /* elog_sub.ready_node */
    bool waiting;
    bool wake_open;
    bool interrupted;
    bool assign_dirty;
} elog_consumer;

/* ---- ledger ---- */

typedef struct elog_ledger_shard {
    pthread_mutex_t lock; /* guards clients */
    sl_map *clients;      /* client id -> elog_ids */
} elog_ledger_shard;

/* ---- the log ---- */

typedef struct elog_end {
    elog_part *part;
    uint64_t end;
} elog_end;

/* One group commit on its way from the writer to the syncer. */
typedef struct elog_commit {
    struct elog_commit *next;
    elog_segment *segments; /* those that wait for the sync */
    elog_end *ends;         /* owned */
    uint32_t end_count;
    uint32_t end_cap;
    uint64_t barrier;
    size_t bytes;
    bool needs_sync;
} elog_commit;

/* Column families by purpose; the hot ones and kv ones come on top. */
enum {
    ELOG_CF_DEFAULT,
    ELOG_CF_SMALL,
    ELOG_CF_APP,
    ELOG_CF_ROWS,
    ELOG_CF_QOS2,
    ELOG_CF_OFFSETS,
    ELOG_CF_FIXED
};

typedef struct elog_evict {
    elog_part *part;
    size_t bytes;
} elog_evict;

typedef struct elog {
    sl_log *log;
    char *dir; /* owned */
    int lock_fd;
    rocksdb_t *db;
    rocksdb_writeoptions_t *wo;
    rocksdb_readoptions_t *ro_point; /* single rows */
    rocksdb_readoptions_t *ro_fetch; /* catching up: no cache fill */
    rocksdb_readoptions_t *ro_scan;  /* whole families: read ahead, too */
    struct elog_cfs *cfs;            /* log_embedded_store.c */
    rocksdb_column_family_handle_t *cf[ELOG_CF_FIXED];
    bool fsync;

    pthread_mutex_t topics_lock; /* guards the maps, next ids, topic metadata rows */
    sl_map *topics;              /* name -> elog_topic (not deleted) */
    sl_imap *topics_by_id;       /* id -> elog_topic, deleted ones too; freed at close */
    uint32_t next_topic_id;
    uint32_t next_pid;
    unsigned hot_count;

    pthread_mutex_t producers_lock; /* guards producers */
    elog_producer **producers;      /* owned array */
    size_t producer_count;
    size_t producer_cap;

    pthread_mutex_t group_lock; /* guards groups and everything in them */
    sl_list groups;
    pthread_mutex_t groups_lock; /* guards offsets and dirty */
    sl_map *offsets;             /* group NUL topic id partition -> elog_goff */
    elog_goff *dirty;
    elog_goff **offsets_taken; /* owned; writer only: in the batch being written */
    uint32_t offsets_taken_count;
    uint32_t offsets_taken_cap;

    elog_ledger_shard ledger[ELOG_LEDGER_SHARDS];
    struct sl_embedded_kv *kvs; /* owned list; topics_lock */

    pthread_mutex_t work_lock; /* guards the writer's flags */
    pthread_cond_t work_cond;
    bool work;
    bool writer_idle;    /* to be woken for any work */
    bool writer_gathers; /* to be woken for a hurry only */
    bool hurry;          /* end the gathering */
    bool stop;
    uint64_t barrier_asked;

    pthread_mutex_t sync_lock; /* guards what is between writer, syncer and waiters */
    pthread_cond_t sync_cond;  /* syncer: there are commits */
    pthread_cond_t done_cond;  /* waiters and the writer: a sync is done */
    elog_commit *commits;
    elog_commit *commits_tail;
    size_t commit_bytes;
    uint64_t barrier_written;
    uint64_t barrier_durable;
    bool unsynced;
    bool sync_stop;

    /* writer only */
    rocksdb_writebatch_t *wb;
    elog_evict *evict; /* owned ring buffer, power of two */
    uint32_t evict_cap;
    uint32_t evict_first;
    uint32_t evict_count;
    size_t ring_bytes;
    double rate_per_ms;
    uint64_t last_commit_ns;

    _Atomic int failed; /* sl_err of a fault that only a restart heals, or SL_OK */
    _Atomic bool low;   /* below the low-space mark, or the disk was full */
    /* A write failed: until one succeeds again RocksDB must not be asked to sync (its write-ahead
     * file is in error, and a sync of it then ends the process in builds with assertions). */
    _Atomic bool broken;
    /* Little room: writes and syncs exclude each other, so that no sync meets a failing write. */
    _Atomic bool careful;
    pthread_mutex_t wal_lock; /* held by both while careful; leaf */
    _Atomic bool probe;       /* the writer is to try a write of its own */
    uint64_t space_bytes;     /* writer: written since the free space was looked at */
    _Atomic uint64_t low_space_bytes;
    _Atomic uint64_t corrupt_batches;
    _Atomic uint64_t lost_sources;
    sl_log_limit lost_limit;
    size_t copy_budget; /* bytes that one retention pass copies out at most */

    pthread_mutex_t keeper_lock;
    pthread_cond_t keeper_cond;
    bool keeper_stop;               /* keeper_lock */
    pthread_mutex_t retention_lock; /* one pass at a time; outermost rank */
    sl_thread *writer;
    sl_thread *syncer;
    sl_thread *keeper;
} elog;

static inline elog *elog_of(const sl_log *log)
{
    return log->self;
}

#endif
