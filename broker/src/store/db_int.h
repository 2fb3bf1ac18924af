/* SPDX-License-Identifier: Apache-2.0
 *
 * db_int: what the front of the db port and its adapters share: the request, the queue between
 * loops and adapter threads, the result under construction, the health word. Private to this
 * folder.
 *
 * Life of a request: made by sl_db_exec, in the queue, taken by one thread, then either completed
 * or put back to the front of its asker. Whoever takes it out of the queue owns it.
 */
#ifndef SL_STORE_DB_INT_H
#define SL_STORE_DB_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "store/db.h"

/* Growing results of one request. Cells and bytes are in chunks that stay where they are. */
typedef struct db_arena {
    struct db_chunk *first; /* owned */
    size_t total, max;
} db_arena;

typedef struct db_rows {
    sl_db_value *cells; /* owned */
    size_t count, cap;
    sl_db_result res;
} db_rows;

typedef struct db_request {
    sl_mail mail;           /* brings it home */
    sl_node node;           /* in its asker's list, or in the list of reads */
    sl_node age;            /* in the queue's list by age */
    struct db_asker *asker; /* of a write that is queued or taken; borrowed from the queue */
    sl_loop *lp;            /* borrowed */
    unsigned flags;
    sl_mono_ms deadline; /* for the start of its (last) execution */
    size_t bytes;        /* counted against the queue's bound */
    sl_db_done_f *done;
    void *arg;
    sl_db_stmt *stmts; /* with parameters and bytes in the same allocation */
    size_t count;
    /* filled by the adapter */
    sl_err err;
    size_t failed_at;
    char why[256];
    db_arena arena;
    db_rows *rows;         /* owned: one per statement */
    sl_db_result *results; /* owned: made at completion */
} db_request;

/* The writes of one loop that wait. */
typedef struct db_asker {
    sl_loop *lp;
    sl_list waiting; /* of db_request.node */
    bool busy;       /* one of them is taken and not released */
    sl_node ready;   /* linked in queue.ready iff not busy and waiting is not empty */
    sl_node all;
} db_asker;

typedef struct db_queue {
    pthread_mutex_t lock; /* guards all below; innermost lock, held for a few instructions */
    pthread_cond_t more_reads, more_writes;
    sl_list reads;
    sl_list ready;  /* askers, round robin */
    sl_list askers; /* all that have something waiting or taken; owned */
    sl_list ages;   /* every waiting request, oldest deadline first */
    size_t waiting, bytes;
    size_t max_waiting, max_bytes;
    bool mixed_takers; /* set at open: takers take reads and writes */
    bool paused;       /* nothing is given out: the database is away */
    bool closed;
} db_queue;

struct sl_db {
    uint32_t magic;
    const sl_db_ops *ops;
    sl_db_options options; /* defaults filled in; strings borrowed until open returns */
    sl_clock clock;
    db_queue queue;
    _Atomic(const char *) why_sick; /* static text, NULL when healthy */
    _Atomic int64_t stats[SL_DB_STAT_COUNT];
    void *adapter;
};

/* ---- queue (db_queue.c). @thread any, unless said otherwise */

void db_queue_init(db_queue *q, size_t max_waiting, size_t max_bytes);
/** It is closed and empty. */
void db_queue_fini(db_queue *q);
/** Errors SL_ELIMIT, SL_ECLOSED: the request stays the caller's. */
SL_MUST_USE sl_err db_queue_put(db_queue *q, db_request *rq);

/* what a taker asks for */
enum { DB_TAKE_READS = 1, DB_TAKE_WRITES = 2 };

/** The next request, waiting up to wait_ms for one (0: not at all; < 0: for ever). NULL: none came,
 * the queue is paused, or it is closed (*closed). one_per_asker: the asker's next write is held
 * until db_queue_release. Requests whose time is over are completed on the way. */
db_request *db_queue_take(sl_db *db, unsigned what, bool one_per_asker, sl_dur_ms wait_ms,
                          bool *closed);
/** A taken request of this asker (may be NULL) is completed: its next may be taken. */
void db_queue_release(db_queue *q, db_asker *as);
/** Gives a taken request back to where it was: first of its asker. False: the queue is closed, the
 * request is still taken. */
bool db_queue_put_back(db_queue *q, db_request *rq);
/** Completes requests whose time is over. */
void db_queue_expire(sl_db *db);
void db_queue_pause(db_queue *q, bool paused);
/** Nothing more comes in or goes out; what waits completes with SL_ECLOSED. */
void db_queue_close(sl_db *db);
bool db_queue_is_closed(db_queue *q);

/* ---- requests and results (db_result.c) */

/** Forgets results and error of an earlier run. @thread owner of the request */
void db_request_reset(sl_db *db, db_request *rq);
/** Sets the error and what the database said (may be NULL). */
void db_request_fail(db_request *rq, size_t at, sl_err err, const char *why);
/** Sends it home; rq is gone. Errors are in rq->err. */
void db_request_complete(sl_db *db, db_request *rq);
void db_request_free(db_request *rq);
/** Begins the rows of statement at. */
void db_rows_begin(db_request *rq, size_t at, size_t columns);
/** Appends one cell (row by row); bytes are copied. Errors SL_ETOOBIG */
SL_MUST_USE sl_err db_rows_add(db_request *rq, size_t at, const sl_db_value *value);

/* ---- front (db.c) */

void db_count(sl_db *db, unsigned stat, int64_t n);
/** why: static text, NULL = healthy. detail: the database's words or NULL. Logs a change, and says
 * whether it was one. */
bool db_set_health(sl_db *db, const char *why, const char *detail);
sl_mono_ms db_now(sl_db *db);

#endif
