/* SPDX-License-Identifier: Apache-2.0
 *
 * db: PORT of the metadata database ("metadata" in configuration): settings, credentials, contexts
 * of sessions; never messages, sessions or subscriptions. Adapters: db_sqlite*.c (one file in the
 * data folder) and db_postgres*.c. One SQL text is valid in both (docs/metadata.md has the rules);
 * repositories (repo_*.h) own that text, and nobody else speaks SQL.
 *
 * A request is one statement or a list of statements that take effect all or none. It is queued
 * from any loop, runs on a thread of the adapter, and comes back as a letter to the asker's loop.
 * No call here blocks but open and close.
 *
 * Order: requests of one loop that are not SL_DB_READ run one after the other, in the order asked.
 * A SL_DB_READ runs beside them: it sees what was complete when it was asked, and maybe more.
 *
 * A lost or slow database: requests wait in the queue, at most for wait_ms; then they complete with
 * SL_EAGAIN and were not executed. The adapter reconnects by itself. A request that meets a lost
 * connection, a deadlock or a busy file is run again within the same time, but never when it might
 * already be stored: that is SL_ECONN, unless it says SL_DB_IDEMPOTENT.
 */
#ifndef SL_STORE_DB_H
#define SL_STORE_DB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/slice.h"
#include "base/stats.h"
#include "loop/loop.h"

typedef struct sl_db sl_db;

/* ---- values -------------------------------------------------------------------------------- */

typedef enum sl_db_type {
    SL_DB_NULL,
    SL_DB_INT,  /* num */
    SL_DB_BOOL, /* num: 0 or 1; SQLite gives it back as SL_DB_INT */
    SL_DB_DOUBLE /* real */,
    SL_DB_TEXT, /* bytes: well-formed UTF-8 without NUL */
    SL_DB_BYTES /* bytes: anything */
} sl_db_type;

typedef struct sl_db_value {
    sl_db_type type;
    int64_t num;
    double real;
    sl_slice bytes; /* borrowed */
} sl_db_value;

/* Parameters of a statement, in the order of $1, $2, ... */
#define SL_DB_P_NULL      ((sl_db_value){.type = SL_DB_NULL})
#define SL_DB_P_INT(v)    ((sl_db_value){.type = SL_DB_INT, .num = (v)})
#define SL_DB_P_BOOL(v)   ((sl_db_value){.type = SL_DB_BOOL, .num = (v) ? 1 : 0})
#define SL_DB_P_DOUBLE(v) ((sl_db_value){.type = SL_DB_DOUBLE, .real = (v)})
#define SL_DB_P_TEXT(v)   ((sl_db_value){.type = SL_DB_TEXT, .bytes = (v)})
#define SL_DB_P_BYTES(v)  ((sl_db_value){.type = SL_DB_BYTES, .bytes = (v)})

/* ---- requests ------------------------------------------------------------------------------ */

#define SL_DB_MAX_PARAMS     64
#define SL_DB_MAX_STATEMENTS 256

typedef struct sl_db_stmt {
    const char *sql; /* one statement; no literal of a peer ever goes in here */
    const sl_db_value *params;
    size_t param_count;
} sl_db_stmt;

/* flags of a request */
enum {
    SL_DB_READ = 1,      /* changes nothing: may overtake and runs beside writes */
    SL_DB_IDEMPOTENT = 2 /* running it twice is the same as once */
};

/* Rows of one statement; valid during the completion only. */
typedef struct sl_db_result {
    size_t row_count;
    size_t column_count;
    int64_t affected;         /* rows inserted, updated or deleted; 0 of a SELECT */
    const sl_db_value *cells; /* row by row */
} sl_db_result;

typedef struct sl_db_done {
    /* SL_OK        all statements took effect
     * SL_EAGAIN    not executed: the database was away or too slow for wait_ms
     * SL_ECONN     the connection was lost at the commit: stored or not, nobody knows
     * SL_ETIMEDOUT a statement ran longer than statement_ms and was undone
     * SL_EEXIST    a unique key is taken
     * SL_EINVAL    another constraint, a value out of range, wrong SQL
     * SL_ETOOBIG   more result bytes than max_result_bytes, or a value over the database's limit
     * SL_EDENIED   no right on the table or the file is read-only
     * SL_ENOSPC, SL_EIO, SL_ECORRUPT; SL_ECLOSED the port was closed first
     * Whatever the error, nothing of the request took effect (SL_ECONN, SL_EIO: perhaps). */
    sl_err err;
    size_t failed_at;            /* statement that failed, when one did */
    const char *why;             /* the database's words, "" when there are none; borrowed */
    const sl_db_result *results; /* one per statement when err is SL_OK */
    size_t result_count;
} sl_db_done;

typedef void sl_db_done_f(void *arg, const sl_db_done *done);

/* ---- options and counters ------------------------------------------------------------------ */

typedef struct sl_db_options {
    const char *dir;  /* sqlite: folder of metadata.db */
    bool fsync;       /* sqlite: a commit survives a power cut */
    unsigned group;   /* sqlite: requests of one commit at most; 0 = 256 */
    unsigned readers; /* sqlite: threads for SL_DB_READ; 0 = 2 */

    const char *url; /* postgres: postgresql://... or jdbc:postgresql://...; may hold a password */
    const char *user;
    const char *password;
    unsigned connections;      /* postgres: at most; one more watches the server; 0 = 16 */
    sl_dur_ms connect_ms;      /* postgres: one attempt; 0 = 5 s */
    sl_dur_ms max_lifetime_ms; /* postgres: an idle connection older than this is replaced; 0 = 10
                                  min */
    sl_dur_ms start_wait_ms;   /* postgres: open waits so long for the server; 0 = 5 s */
    sl_dur_ms wait_ms;         /* 0 = 30 s */
    sl_dur_ms statement_ms;    /* 0 = 30 s */
    size_t max_queued;         /* requests; 0 = 10000 */
    size_t max_queued_bytes;   /* 0 = 64 MiB */
    size_t max_result_bytes;   /* of one request; 0 = 64 MiB */
    unsigned migrate_to;       /* tests: schema version; 0 = the newest */
    sl_stats *stats;           /* may be NULL */
    unsigned stats_base;       /* id of the first row of SL_DB_STAT_MAP in stats */
} sl_db_options;

/* The port's counters, to be placed in the owner's table in this order. */
#define SL_DB_STAT_MAP(X)                                                                          \
    X(QUEUED, GAUGE, "sluice_db_queued_requests", "Requests that wait for the metadata database.") \
    X(DONE, COUNTER, "sluice_db_requests_total",                                                   \
      "Requests to the metadata database that took effect.")                                       \
    X(FAILED, COUNTER, "sluice_db_failed_requests_total",                                          \
      "Requests to the metadata database that failed.")                                            \
    X(REFUSED, COUNTER, "sluice_db_refused_requests_total",                                        \
      "Requests refused because the queue of the metadata database was full.")                     \
    X(EXPIRED, COUNTER, "sluice_db_expired_requests_total",                                        \
      "Requests given up unexecuted because the metadata database was away or slow for too long.") \
    X(RETRIED, COUNTER, "sluice_db_retried_requests_total",                                        \
      "Requests run again after a lost connection, a deadlock or a busy file.")                    \
    X(COMMITS, COUNTER, "sluice_db_commits_total",                                                 \
      "Transactions committed; one of the embedded database may hold many requests.")              \
    X(CONNECTS, COUNTER, "sluice_db_connects_total",                                               \
      "Connections made to the metadata database, or openings of its file.")                       \
    X(HEALTHY, GAUGE, "sluice_db_healthy", "1 while the metadata database works.")
enum {
#define SL_DB_STAT_ENUM(name, kind, metric, help) SL_DB_STAT_##name,
    SL_DB_STAT_MAP(SL_DB_STAT_ENUM)
#undef SL_DB_STAT_ENUM
        SL_DB_STAT_COUNT
};

/* ---- the port ------------------------------------------------------------------------------ */

struct sl_db_ops;
extern const struct sl_db_ops sl_db_sqlite_ops;
extern const struct sl_db_ops sl_db_postgres_ops;

/** Opens the database and brings its schema to the newest version. Blocks: sqlite for the work,
 * postgres at most start_wait_ms; a server that is away by then is no error, the port goes on
 * trying. *why: owned message without secrets.
 * Errors  SL_EUNSUPPORTED the schema is newer than this program or of another product, or the
 *         adapter is not in this build; SL_EINVAL a bad option; sqlite also SL_EIO, SL_ECORRUPT,
 *         SL_EDENIED, SL_ENOSPC, SL_ELOCKED.
 * @thread init */
SL_MUST_USE sl_err sl_db_open(const struct sl_db_ops *ops, const sl_db_options *options,
                              sl_db **out, char **why);
/** What runs is given a moment, the rest completes with SL_ECLOSED; then all is freed. The loops
 * that asked still run (a loop that was stopped gets no completion). Accepts NULL inside.
 * @thread init */
void sl_db_close(sl_db **db);
/** Queues statements that take effect all or none; everything is copied.
 * Completes done(arg, ...) exactly once on lp, never before return. done NULL: nobody waits.
 * Errors    (nothing was queued, done is not called) SL_ELIMIT the queue is full; SL_EINVAL no or
 *           too many statements or parameters, TEXT that is not UTF-8 or holds a NUL;
 *           SL_ECLOSED closing.
 * @thread any */
SL_MUST_USE sl_err sl_db_exec(sl_db *db, sl_loop *lp, const sl_db_stmt *stmts, size_t count,
                              unsigned flags, sl_db_done_f *done, void *arg);
/** False: *why says what is wrong, static text without secrets. @thread any */
bool sl_db_is_healthy(const sl_db *db, const char **why);
/** The word of the adapter. @thread any */
const char *sl_db_name(const sl_db *db);
/** A counter, also without a table of statistics. @thread any */
int64_t sl_db_stat(const sl_db *db, unsigned stat);

/* ---- reading results: row and column are in range, the type may be any; NULL gives the default --
 */

const sl_db_value *sl_db_cell(const sl_db_result *res, size_t row, size_t column);
bool sl_db_is_null(const sl_db_result *res, size_t row, size_t column);
int64_t sl_db_get_int(const sl_db_result *res, size_t row,
                      size_t column); /* of INT, BOOL; else 0 */
bool sl_db_get_bool(const sl_db_result *res, size_t row, size_t column);
double sl_db_get_double(const sl_db_result *res, size_t row, size_t column);  /* also of INT */
sl_slice sl_db_get_slice(const sl_db_result *res, size_t row, size_t column); /* TEXT, BYTES */

/* ---- adapters ------------------------------------------------------------------------------ */

/* What the front has checked is not checked again. */
typedef struct sl_db_ops {
    const char *name; /* the word in broker.yml: "sqlite", "postgres" */
    /* Starts threads that take requests from the front's queue (db_int.h). As sl_db_open. */
    sl_err (*open)(sl_db *db, void **self, char **why);
    /* The queue is closed already: ends the threads and frees; running requests are completed. */
    void (*close)(void *self);
} sl_db_ops;

#endif
