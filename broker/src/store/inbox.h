/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox: PORT of the boxes in which messages wait for persistent DEVICE clients ("inbox" in
 * configuration). Adapters: inbox_embedded.c (rows beside the embedded log), inbox_redis.c
 * (Redis: sorted set, bodies and counters per client). The front functions in inbox.c own checks,
 * limits, statistics and trace; callers use nothing else and never ask which adapter it is.
 *
 * A box holds rows, oldest first, each with a packet id that no other row of the box has. A row is
 * a PUBLISH until PUBREC, then a PUBREL marker, and is gone with PUBACK or PUBCOMP. Rows have
 * numbers that grow and are never used twice; a session reads on from a number.
 *
 * Exactly-once of what comes out of the log: every row carries the source it was derived from, the
 * box remembers the last source per (partition, origin) and drops what is not newer. Generation: a
 * clean start begins a new one; an operation of an older generation is dropped; an add or read of
 * a newer one empties the box first. What the box does not know: whether a row was sent before (the
 * session knows, and sets DUP).
 *
 * Threads: an instance belongs to one thread (a persist loop) that owns its clients; everything is
 * asynchronous and completes in sl_inbox_drain on that thread. Two instances never handle the same
 * client at the same time.
 */
#ifndef SL_STORE_INBOX_H
#define SL_STORE_INBOX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/rbuf.h"
#include "base/slice.h"
#include "base/stats.h"
#include "log/log.h"

typedef struct sl_inbox sl_inbox;

/* ---- rows ---------------------------------------------------------------------------------- */

#define SL_INBOX_MAX_ROWS         65535u /* of a box: as many as packet ids; limits are cut to it */
#define SL_INBOX_MAX_CLIENT_BYTES 65535u
#define SL_INBOX_PACKET_PIECES    4

/* sl_inbox_row.flags, sl_inbox_entry.flags */
enum {
    SL_INBOX_RETAIN = 1,   /* deliver with RETAIN set */
    SL_INBOX_NO_SOURCE = 2 /* moved from another box: kept whatever its source (not stored) */
};

/* What to add. Slices are borrowed for the call. */
typedef struct sl_inbox_row {
    uint16_t source_partition; /* of tbmq.msg.all */
    uint64_t source_offset;
    uint64_t origin; /* 0 own subscriptions, else the share group */
    uint8_t qos;     /* 1 or 2 */
    uint8_t flags;
    sl_wall_ms time_ms;
    sl_wall_ms expires_at_ms;                /* 0: now + the port's default_ttl_ms */
    sl_slice packet[SL_INBOX_PACKET_PIECES]; /* an MQTT 5 PUBLISH, pieces; unused ones are empty */
} sl_inbox_row;

/* What became of it. */
typedef struct sl_inbox_assigned {
    uint64_t row;       /* 0: not stored */
    uint16_t packet_id; /* 0: a replay, an older generation, or evicted at once by the limit */
} sl_inbox_assigned;

typedef enum sl_inbox_kind { SL_INBOX_PUBLISH = 0, SL_INBOX_PUBREL = 1 } sl_inbox_kind;

/* A row as read. */
typedef struct sl_inbox_entry {
    uint64_t row;
    uint16_t packet_id;
    sl_inbox_kind kind;
    uint8_t qos;
    uint8_t flags;
    sl_wall_ms time_ms;
    sl_wall_ms expires_at_ms;
    sl_slice packet; /* slice of sl_inbox_done.body; empty with SL_INBOX_PUBREL */
} sl_inbox_entry;

/* ---- completions --------------------------------------------------------------------------- */

typedef enum sl_inbox_op {
    SL_INBOX_OP_ADD,
    SL_INBOX_OP_ADD_DURABLE, /* second completion of an add that holds QoS 2 rows */
    SL_INBOX_OP_READ,
    SL_INBOX_OP_REMOVE,
    SL_INBOX_OP_MARK_PUBREL,
    SL_INBOX_OP_CLEAR,
    SL_INBOX_OP_COUNT
} sl_inbox_op;

typedef struct sl_inbox_done {
    sl_inbox_op op;
    uint64_t token;
    sl_err err; /* SL_OK, SL_EIO, SL_ENOSPC, SL_ECORRUPT, SL_ECLOSED; SL_ENOTFOUND: no such row or
                   an older generation (remove, mark_pubrel, read, clear) */

    /* add: one per row, in order; borrowed for the callback */
    const sl_inbox_assigned *assigned;
    size_t assigned_count;
    size_t dropped;       /* replays and rows of an older generation */
    size_t evicted;       /* oldest rows that had to go, those of this add included */
    bool durable_follows; /* QoS 2 rows may leave only at SL_INBOX_OP_ADD_DURABLE */
    bool is_repeated;     /* an answer of the store was lost and the add was done again: what counts
                             as dropped may be rows of this add, stored all the same; a read finds
                             them */

    /* read: borrowed for the callback; who keeps a packet, takes a reference to body */
    const sl_inbox_entry *entries;
    size_t entry_count;
    size_t expired;  /* rows found expired, now removed */
    size_t repaired; /* entries found without a body, now removed */
    sl_rbuf *body;   /* NULL when no entry has a packet */
    bool more;       /* there are rows behind the last entry */

    size_t removed; /* remove: rows taken off */

    /* read and count */
    size_t count; /* rows in the box */
} sl_inbox_done;

struct sl_inbox_redis_options;

typedef struct sl_inbox_options {
    sl_log *log;                                /* embedded adapter: borrowed, outlives the port */
    const struct sl_inbox_redis_options *redis; /* Redis adapter: borrowed, outlives the port */
    sl_clock *clock;                            /* borrowed */
    sl_dur_ms default_ttl_ms;                   /* of rows without an expiry (7 days) */
    size_t max_cached;                          /* clients whose counters stay in memory (65536) */
    /* Any thread: completions wait; must only arrange that the owner calls sl_inbox_drain soon. At
     * most one wake is open between two drains. NULL for a thread that polls. */
    void (*wake)(void *arg);
    /* From drain. Completions of one client come in the order of its operations, but for
     * ADD_DURABLE and MARK_PUBREL, which wait for the disk. */
    void (*done)(void *arg, const sl_inbox_done *done);
    void (*room)(void *arg); /* from drain, after SL_EAGAIN: try again. May be NULL */
    /* Commits an offset for sl_inbox_commit_behind when the store is not beside the log (Redis):
     * the consumer's own commit. From commit_behind, drain or close. */
    sl_err (*commit)(void *arg, sl_log_topic *topic, uint16_t partition, uint64_t offset);
    void *arg;
    sl_stats *stats;     /* may be NULL */
    unsigned stats_base; /* id of the first row of SL_INBOX_STAT_MAP in stats */
    unsigned stats_shard;
} sl_inbox_options;

/* The port's counters, to be placed in the owner's table in this order. */
#define SL_INBOX_STAT_MAP(X)                                                                       \
    X(ADDED, COUNTER, "sluice_inbox_added_rows_total", "Messages stored in device inboxes.")       \
    X(REPLAYS, COUNTER, "sluice_inbox_dropped_replays_total",                                      \
      "Redelivered or outdated messages that an inbox did not take again.")                        \
    X(EVICTED, COUNTER, "sluice_inbox_evicted_rows_total",                                         \
      "Oldest messages removed because an inbox was full.")                                        \
    X(EXPIRED, COUNTER, "sluice_inbox_expired_rows_total",                                         \
      "Messages removed from inboxes because they expired.")                                       \
    X(REMOVED, COUNTER, "sluice_inbox_removed_rows_total",                                         \
      "Messages removed from inboxes by acknowledgement.")                                         \
    X(REPAIRED, COUNTER, "sluice_inbox_repaired_rows_total",                                       \
      "Entries without a message that were taken out of inboxes.")                                 \
    X(FAILED, COUNTER, "sluice_inbox_failed_operations_total",                                     \
      "Inbox operations that failed in the store.")                                                \
    X(REFUSED, COUNTER, "sluice_inbox_refused_operations_total",                                   \
      "Inbox operations that had to wait because the store's queue was full or an add of the "     \
      "client was under way.")                                                                     \
    X(UNREACHABLE, GAUGE, "sluice_inbox_unreachable",                                              \
      "Inbox stores (one per device loop) that cannot be reached now; their operations wait.")
enum {
#define SL_INBOX_STAT_ENUM(name, kind, metric, help) SL_INBOX_STAT_##name,
    SL_INBOX_STAT_MAP(SL_INBOX_STAT_ENUM)
#undef SL_INBOX_STAT_ENUM
        SL_INBOX_STAT_COUNT
};

/* ---- the port ------------------------------------------------------------------------------ */

struct sl_inbox_ops;
extern const struct sl_inbox_ops sl_inbox_embedded_ops; /* inbox_redis.h has the other */

/** Errors as the adapter's store; SL_EINVAL a bad option. @thread the owner's, or init */
SL_MUST_USE sl_err sl_inbox_open(const struct sl_inbox_ops *ops, const sl_inbox_options *options,
                                 sl_inbox **out);
/** Open operations complete first, inside this call. @thread the owner's */
void sl_inbox_close(sl_inbox **ib);
/** Runs done() for all completions that wait; returns their number. @thread the owner's */
size_t sl_inbox_drain(sl_inbox *ib);

/* All of these: an operation that is taken completes exactly once (add: up to twice) in a later
 * drain.
 * Errors  SL_EAGAIN the store's queue is full, or the client has an add open (an add must know
 *         whether the one before it succeeded: a gap would make its replay look like a duplicate):
 *         nothing was taken, room() will be called; SL_EINVAL client empty or over
 *         SL_INBOX_MAX_CLIENT_BYTES, generation 0, bad row; SL_EIO, SL_ECORRUPT reading the box's
 *         counters.
 * @thread the owner's */

/** Stores rows in order; all or none. Completes when they are written (kill-safe: the source is
 * durable and replayed); with QoS 2 rows a second time when they are below the synced end, if they
 * were not with the first (durable_follows tells). limit:
 * rows the box may hold; the oldest are evicted. 0 = SL_INBOX_MAX_ROWS. */
SL_MUST_USE sl_err sl_inbox_add(sl_inbox *ib, sl_slice client, uint64_t generation,
                                const sl_inbox_row *rows, size_t count, size_t limit,
                                uint64_t token);
/** Reads rows with number > after_row, oldest first, at most max_rows, about max_bytes (one row at
 * least). Sees every operation completed or taken before; a row of an add that is still open is not
 * in it, and comes with that add's completion. Expired rows are removed, entries without a body
 * repaired. */
SL_MUST_USE sl_err sl_inbox_read(sl_inbox *ib, sl_slice client, uint64_t generation,
                                 uint64_t after_row, size_t max_rows, size_t max_bytes,
                                 uint64_t token);
/** The client acknowledged these packet ids for good (PUBACK, PUBCOMP, PUBREC with an error): all
 * or none. Ids that are not in the box, or here twice, do no harm; SL_ENOTFOUND when none is in it.
 * Completes when written. SL_EINVAL: count 0 or over SL_INBOX_MAX_ROWS, an id 0. */
SL_MUST_USE sl_err sl_inbox_remove(sl_inbox *ib, sl_slice client, uint64_t generation,
                                   const uint16_t *packet_ids, size_t count, uint64_t token);
/** PUBREC: the row becomes a PUBREL marker that keeps its place, id and expiry. Completes when that
 * is durable; only then may PUBREL be sent. Marking twice is the same as once. */
SL_MUST_USE sl_err sl_inbox_mark_pubrel(sl_inbox *ib, sl_slice client, uint64_t generation,
                                        uint16_t packet_id, uint64_t token);
/** Empties the box; new_generation is its generation from now on (not below the one it has). 0: the
 * session is gone, nothing of the box is kept. Completes when written. */
SL_MUST_USE sl_err sl_inbox_clear(sl_inbox *ib, sl_slice client, uint64_t new_generation,
                                  uint64_t token);
/** Completes with the number of rows (expired ones included until they are read). */
SL_MUST_USE sl_err sl_inbox_count(sl_inbox *ib, sl_slice client, uint64_t token);
/** The group has handled everything below offset: committed behind all operations taken before,
 * never ahead of them. No completion.
 * Errors SL_EAGAIN too many wait (a later offset goes further); SL_EUNSUPPORTED no commit function
 * in the options; SL_ECLOSED. @thread the owner's */
SL_MUST_USE sl_err sl_inbox_commit_behind(sl_inbox *ib, const char *group, sl_log_topic *topic,
                                          uint16_t partition, uint64_t offset);

/* ---- adapters ------------------------------------------------------------------------------ */

/* What the front has checked is not checked again. Completions go to options->done. */
typedef struct sl_inbox_ops {
    const char *name; /* the word in broker.yml: "embedded", "redis" */
    sl_err (*open)(const sl_inbox_options *options, void **self);
    void (*close)(void *self);   /* completes what is open, then frees */
    size_t (*drain)(void *self); /* runs done() for what is complete */
    sl_err (*add)(void *self, sl_slice client, uint64_t generation, const sl_inbox_row *rows,
                  size_t count, size_t limit, uint64_t token);
    sl_err (*read)(void *self, sl_slice client, uint64_t generation, uint64_t after_row,
                   size_t max_rows, size_t max_bytes, uint64_t token);
    sl_err (*remove)(void *self, sl_slice client, uint64_t generation, const uint16_t *packet_ids,
                     size_t count, uint64_t token);
    sl_err (*mark_pubrel)(void *self, sl_slice client, uint64_t generation, uint16_t packet_id,
                          uint64_t token);
    sl_err (*clear)(void *self, sl_slice client, uint64_t new_generation, uint64_t token);
    sl_err (*count)(void *self, sl_slice client, uint64_t token);
    /* Never reaches the store before an operation taken earlier. */
    sl_err (*commit_behind)(void *self, const char *group, sl_log_topic *topic, uint16_t partition,
                            uint64_t offset);
} sl_inbox_ops;

#endif
