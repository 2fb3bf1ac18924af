/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_embedded_int: what the files of the embedded inbox share: the adapter, its operations, the
 * builder of write batches. inbox_embedded.c: life, completions, simple operations;
 * inbox_embedded_add.c: add; inbox_embedded_read.c: read. The owner's thread.
 */
#ifndef SL_STORE_INBOX_EMBEDDED_INT_H
#define SL_STORE_INBOX_EMBEDDED_INT_H

#include <stdatomic.h>

#include "base/buf.h"
#include "base/logger.h"
#include "store/inbox_cache.h"

#define INBOX_LOG_BURST      10 /* lines about failures in a period */
#define INBOX_LOG_PERIOD_MS  10000
#define INBOX_READ_MAX_BYTES ((size_t)64 << 20) /* of one read, and one row more */

/* An operation under way. It is in one list: open or waiting of its box, ready or unsent of the
 * adapter. */
typedef struct inbox_task {
    sl_node node;
    inbox_box *bx; /* pinned */
    sl_inbox_op op;
    bool silent; /* a repair of our own: nobody waits for it */
    uint64_t token;
    uint64_t seq;
    sl_err err;

    /* read */
    uint64_t after_row;
    size_t max_rows;
    size_t max_bytes;
    size_t removed; /* remove: rows */
    bool is_void;   /* of an older generation, or of a box that was just emptied */

    /* add; its sync is a task of its own that must not complete before it */
    struct inbox_task *peer; /* add: its sync; sync: its add while that is open; or NULL */
    bool is_synced;          /* sync: the log is done with it */
    size_t dropped;
    size_t evicted;
    size_t assigned_count;
    sl_inbox_assigned assigned[];
} inbox_task;

typedef struct inbox_embedded {
    sl_inbox_options options;
    sl_log_producer *pr; /* owned */
    inbox_cache cache;
    sl_list ready;    /* tasks that need no write; they complete in the next drain */
    sl_list unsent;   /* syncs that the full queue refused */
    size_t completed; /* by the drain that runs */
    bool wants_room;  /* call room() at the end of the drain */
    bool has_refused; /* an operation was refused until one under way completes */
    bool is_closing;
    atomic_bool woken;
    sl_log_limit limit; /* of lines about failures: a full disk is one for every client */

    /* The batch being built, reused; keys and small values live in the arena. */
    sl_embedded_kv_op *ops;
    size_t op_count;
    size_t op_cap;
    uint8_t *arena;
    size_t arena_len;
    size_t arena_cap;

    uint8_t *joined; /* packets of an add that came in pieces; owned, reused */
    size_t joined_len;
    size_t joined_cap;

    /* Of a read, reused. */
    sl_buf body;
    sl_inbox_entry *entries;
    size_t entry_cap;
} inbox_embedded;

/* ---- tasks ---- */

inbox_task *inbox_task_new(inbox_box *bx, sl_inbox_op op, uint64_t token, size_t assigned);
void inbox_task_free(inbox_task *tk);
/** Gives a task without a write its place behind the box's open ones. */
void inbox_task_queue(inbox_embedded *ad, inbox_task *tk);
/** Completes in the next drain, whatever else the box does. */
void inbox_task_ready(inbox_embedded *ad, inbox_task *tk);
/* How a batch is written. */
enum {
    INBOX_WRITE_DURABLE = 1,
    /* Without space for its puts, its deletions alone will do: they are how space comes back.
     * Counters left behind are too high, which a read repairs. */
    INBOX_WRITE_DELETES_WILL_DO = 2
};
/** Hands the batch to the log for this task; on an error the task is freed. */
SL_MUST_USE sl_err inbox_task_write(inbox_embedded *ad, inbox_task *tk, unsigned how);
/** Empties a box for a generation (0: for good) and applies that; on an error the task is freed. */
SL_MUST_USE sl_err inbox_task_write_empty(inbox_embedded *ad, inbox_task *tk, uint64_t generation);
/** Asks the log to complete this task when all before it is on the disk; tried again while its
 * queue is full. */
void inbox_sync_start(inbox_embedded *ad, inbox_task *sync);
/** Passes err on; SL_EAGAIN for a reason of ours (an add is open, a failed box is busy): the
 * drain with the next completion calls room(). */
SL_MUST_USE sl_err inbox_refuse(inbox_embedded *ad, sl_err err);
/** The box, or why not. */
SL_MUST_USE sl_err inbox_get_box(inbox_embedded *ad, sl_slice client, inbox_box **out);
/** Tells the owner. */
void inbox_emit(inbox_embedded *ad, const sl_inbox_done *done);

/* ---- batches ---- */

/** An empty batch with room for max_ops operations on this client's keys. */
void inbox_batch_begin(inbox_embedded *ad, sl_slice client, size_t max_ops);
void inbox_batch_put_meta(inbox_embedded *ad, sl_slice client, const inbox_meta *meta);
void inbox_batch_put_source(inbox_embedded *ad, sl_slice client, const inbox_source *so);
void inbox_batch_drop_source(inbox_embedded *ad, sl_slice client, const inbox_source *so);
/** packet: one piece, borrowed until the batch is written; empty for a marker. */
void inbox_batch_put_row(inbox_embedded *ad, sl_slice client, uint64_t row,
                         const sl_inbox_entry *entry, sl_slice packet);
void inbox_batch_drop_row(inbox_embedded *ad, sl_slice client, uint64_t row);
/** Deletes rows and sources, and the counters too when for_good. */
void inbox_batch_empty(inbox_embedded *ad, const inbox_box *bx, bool for_good);

/* ---- operations in files of their own ---- */

SL_MUST_USE sl_err inbox_embedded_add(void *self, sl_slice client, uint64_t generation,
                                      const sl_inbox_row *rows, size_t count, size_t limit,
                                      uint64_t token);
SL_MUST_USE sl_err inbox_embedded_read(void *self, sl_slice client, uint64_t generation,
                                       uint64_t after_row, size_t max_rows, size_t max_bytes,
                                       uint64_t token);
/** Runs a read whose time has come. */
void inbox_read_run(inbox_embedded *ad, inbox_task *tk);

#endif
