/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_int: what the files of the Redis inbox share. inbox_redis.c: life, the way of a task
 * between the owner's thread and the Redis thread, completions, commits; inbox_redis_ops.c:
 * commands of the operations, and what their replies mean.
 *
 * Two threads: the owner's takes operations and gives completions; a thread of the adapter's own
 * runs the Redis client on a loop. A task belongs to the one that has it: owner -> (letter) ->
 * Redis thread -> (stack of finished ones) -> owner.
 */
#ifndef SL_STORE_INBOX_REDIS_INT_H
#define SL_STORE_INBOX_REDIS_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "base/logger.h"
#include "base/map.h"
#include "store/inbox_redis.h"

#define REDIS_INBOX_MAX_OPEN   65536              /* operations under way; then SL_EAGAIN */
#define REDIS_INBOX_MAX_BYTES  ((size_t)64 << 20) /* of their commands, or one larger operation */
#define REDIS_INBOX_MAX_COMMIT 4096               /* offsets that wait for operations */
#define REDIS_INBOX_CLOSE_MS   3000               /* how long closing waits for answers */
#define REDIS_INBOX_SOURCES    4096 /* remembered per box; then the quietest are forgotten */

struct inbox_redis;

typedef struct redis_task {
    sl_redis_op op;
    sl_mail mail;
    struct redis_task *next; /* of the finished stack */
    sl_node node;            /* of the open ones, in order */
    struct inbox_redis *ad;
    sl_inbox_op kind;
    uint64_t token;
    uint64_t seq;
    size_t bytes;
    uint8_t *client; /* owned: of an add */
    size_t client_len;

    /* result */
    sl_err err;
    size_t dropped, evicted, expired, repaired, removed, count;
    bool is_repeated;
    bool more;
    sl_inbox_entry *entries; /* owned */
    size_t entry_count;
    sl_rbuf *body; /* owned */
    size_t assigned_count;
    sl_inbox_assigned assigned[];
} redis_task;

/* An offset that may be committed when every operation before it is done. */
typedef struct redis_commit {
    sl_node node;
    uint64_t seq;
    sl_log_topic *topic;
    uint16_t partition;
    uint64_t offset;
} redis_commit;

typedef struct inbox_redis {
    sl_inbox_options options;
    sl_inbox_redis_options redis; /* borrowed texts */

    /* the owner's */
    sl_list open; /* tasks */
    sl_map *adding;
    size_t open_count, open_bytes;
    uint64_t next_seq;
    sl_list commits;
    size_t commit_count;
    uint64_t given_up; /* first operation that closing ended: nothing behind it is committed */
    bool is_refusing;  /* something was refused: room() is owed after the next completion */
    bool is_closing;
    bool is_told_down; /* counted as unreachable */
    sl_log_limit limit;
    sl_log_limit refusals;

    /* between the threads */
    redis_task *_Atomic finished; /* a stack */
    atomic_bool woken;
    atomic_bool is_up;

    /* the Redis thread's */
    sl_clock clock; /* time-outs are the machine's even when the owner's clock is a test's */
    sl_loop *lp;
    sl_pool *pool;
    sl_redis *rd;

    /* closing: the owner waits until nothing is open */
    pthread_mutex_t lock; /* guards is_idle */
    pthread_cond_t idle;
    bool is_idle;
    bool wants_idle; /* the Redis thread's: tell when idle */
    sl_timer patience;
} inbox_redis;

/* ---- inbox_redis.c ---- */

/** Room for the result of an add with so many rows. */
redis_task *redis_task_new(inbox_redis *ad, sl_inbox_op kind, uint64_t token, size_t assigned);
/** SL_EAGAIN (noted, so that room() follows) or SL_ECLOSED when nothing more is taken. */
SL_MUST_USE sl_err redis_may_take(inbox_redis *ad);
SL_MUST_USE sl_err redis_refuse(inbox_redis *ad);
/** Hands the task over; op is initialised, with redis_task_answered. */
void redis_task_submit(inbox_redis *ad, redis_task *tk);
/** @thread the Redis thread */
void redis_task_answered(sl_redis_op *op, const sl_redis_reply *reply);

/* ---- inbox_redis_ops.c ---- */

sl_err inbox_redis_add(void *self, sl_slice client, uint64_t generation, const sl_inbox_row *rows,
                       size_t count, size_t limit, uint64_t token);
sl_err inbox_redis_read(void *self, sl_slice client, uint64_t generation, uint64_t after_row,
                        size_t max_rows, size_t max_bytes, uint64_t token);
sl_err inbox_redis_remove(void *self, sl_slice client, uint64_t generation,
                          const uint16_t *packet_ids, size_t count, uint64_t token);
sl_err inbox_redis_mark_pubrel(void *self, sl_slice client, uint64_t generation, uint16_t packet_id,
                               uint64_t token);
sl_err inbox_redis_clear(void *self, sl_slice client, uint64_t new_generation, uint64_t token);
sl_err inbox_redis_count(void *self, sl_slice client, uint64_t token);
/** What the reply (NULL: closed) means for the task. @thread the Redis thread */
void redis_task_result(redis_task *tk, const sl_redis_reply *reply);

#endif
