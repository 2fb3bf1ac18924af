/* SPDX-License-Identifier: Apache-2.0
 *
 * db_sqlite_conn: see db_sqlite_conn.h. WAL mode: readers never wait for the writer. Another
 * process may hold the file for a moment; it is waited for within the request's time.
 */
#include "store/db_sqlite_conn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"

#define FILE_MODE      0600 /* credentials are in it */
#define BUSY_SLEEP_NS  2000000
#define PROGRESS_STEPS 5000     /* of SQLite's machine between two looks at the clock */
#define WAL_KEEP_BYTES 16777216 /* after a checkpoint the WAL file is cut to this */

/* ---- errors */

sl_err db_sqlite_err(int rc)
{
    if (rc == SQLITE_CONSTRAINT_UNIQUE || rc == SQLITE_CONSTRAINT_PRIMARYKEY ||
        rc == SQLITE_CONSTRAINT_ROWID)
        return SL_EEXIST;
    switch (rc & 0xff) {
    case SQLITE_OK:
        return SL_OK;
    case SQLITE_ERROR:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
        return SL_EINVAL;
    case SQLITE_TOOBIG:
        return SL_ETOOBIG;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return SL_EAGAIN;
    case SQLITE_INTERRUPT:
        return SL_ETIMEDOUT;
    case SQLITE_FULL:
        return SL_ENOSPC;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return SL_ECORRUPT;
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
        return SL_EDENIED;
    default:
        return SL_EIO;
    }
}

bool db_sqlite_is_hard(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_CANTOPEN:
    case SQLITE_READONLY:
    case SQLITE_NOMEM:
        return true;
    default:
        return false;
    }
}

const char *db_sqlite_reason(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return "the disk of the metadata database is full";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return "the file of the metadata database is damaged";
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return "the file of the metadata database is read-only";
    case SQLITE_CANTOPEN:
        return "the file of the metadata database cannot be opened";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return "the file of the metadata database is locked by another process";
    default:
        return "the file of the metadata database cannot be written or read";
    }
}

/* ---- opening */

static bool is_time_over(const db_sqlite_conn *cn)
{
    sl_mono_ms now = db_now(cn->db);
    return now >= cn->stop_at || now >= atomic_load(cn->end_at);
}

static int on_progress(void *arg)
{
    return is_time_over(arg);
}

static int on_busy(void *arg, int tries)
{
    (void)tries;
    if (is_time_over(arg))
        return 0;
    nanosleep(&(struct timespec){.tv_nsec = BUSY_SLEEP_NS}, NULL);
    return 1;
}

// SQLite would make it readable for everybody; the WAL takes the mode of the file.
static int make_file(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, FILE_MODE);
    if (fd < 0)
        return errno == EACCES || errno == EROFS ? SQLITE_READONLY
               : errno == ENOSPC                 ? SQLITE_FULL
                                                 : SQLITE_CANTOPEN;
    close(fd);
    return SQLITE_OK;
}

static int set_up(db_sqlite_conn *cn)
{
    if (cn->reader)
        return db_sqlite_run(cn, "PRAGMA query_only=1");
    char pragmas[128];
    snprintf(pragmas, sizeof(pragmas),
             "PRAGMA journal_mode=WAL; PRAGMA synchronous=%s; PRAGMA journal_size_limit=%d",
             cn->db->options.fsync ? "FULL" : "NORMAL", WAL_KEEP_BYTES);
    return db_sqlite_run(cn, pragmas);
}

sl_err db_sqlite_conn_open(db_sqlite_conn *cn, const char *path, int *rc)
{
    *rc = make_file(path);
    if (*rc != SQLITE_OK)
        return db_sqlite_err(*rc);
    *rc = sqlite3_open_v2(path, &cn->h, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (*rc == SQLITE_OK) {
        cn->stop_at = db_now(cn->db) + cn->db->options.statement_ms;
        sqlite3_extended_result_codes(cn->h, 1);
        sqlite3_busy_handler(cn->h, on_busy, cn);
        sqlite3_progress_handler(cn->h, PROGRESS_STEPS, on_progress, cn);
        *rc = set_up(cn);
    }
    if (*rc != SQLITE_OK)
        db_sqlite_conn_close(cn);
    else
        db_count(cn->db, SL_DB_STAT_CONNECTS, 1);
    return db_sqlite_err(*rc);
}

void db_sqlite_conn_close(db_sqlite_conn *cn)
{
    for (size_t i = 0; i < DB_SQLITE_CACHED; i++) {
        sqlite3_finalize(cn->cached[i].st);
        cn->cached[i] = (db_sqlite_cached){0};
    }
    sqlite3_close(cn->h);
    cn->h = NULL;
}

/* ---- running */

int db_sqlite_run(db_sqlite_conn *cn, const char *sql)
{
    return sqlite3_exec(cn->h, sql, NULL, NULL, NULL);
}

int db_sqlite_text(db_sqlite_conn *cn, const char *sql, char text[64])
{
    text[0] = 0;
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(cn->h, sql, -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        const unsigned char *got = sqlite3_column_text(st, 0);
        snprintf(text, 64, "%s", got == NULL ? "" : (const char *)got);
    }
    int end = sqlite3_finalize(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : end != SQLITE_OK ? end : rc;
}

// The statement of that text, prepared once. *why: static text when the text itself is wrong.
static int prepare(db_sqlite_conn *cn, const char *sql, sqlite3_stmt **out, const char **why)
{
    uint64_t hash = sl_slice_hash(sl_slice_str(sql));
    db_sqlite_cached *oldest = &cn->cached[0];
    for (size_t i = 0; i < DB_SQLITE_CACHED; i++) {
        db_sqlite_cached *at = &cn->cached[i];
        if (at->st != NULL && at->hash == hash && strcmp(sqlite3_sql(at->st), sql) == 0) {
            at->used = ++cn->uses;
            *out = at->st;
            return SQLITE_OK;
        }
        if (at->used < oldest->used)
            oldest = at;
    }
    sqlite3_stmt *st = NULL;
    const char *tail = "";
    int rc = sqlite3_prepare_v3(cn->h, sql, -1, SQLITE_PREPARE_PERSISTENT, &st, &tail);
    if (rc != SQLITE_OK)
        return rc;
    if (st == NULL || tail[strspn(tail, " \n\t;")] != 0) {
        sqlite3_finalize(st);
        *why = "not one statement";
        return SQLITE_ERROR;
    }
    sqlite3_finalize(oldest->st);
    *oldest = (db_sqlite_cached){.st = st, .hash = hash, .used = ++cn->uses};
    *out = st;
    return SQLITE_OK;
}

static int bind_one(sqlite3_stmt *st, int at, const sl_db_value *value)
{
    // An empty value is not NULL, but a NULL pointer would be to SQLite.
    const void *ptr = value->bytes.len == 0 ? "" : (const void *)value->bytes.ptr;
    switch (value->type) {
    case SL_DB_INT:
    case SL_DB_BOOL:
        return sqlite3_bind_int64(st, at, value->num);
    case SL_DB_DOUBLE:
        return sqlite3_bind_double(st, at, value->real);
    case SL_DB_TEXT:
        return sqlite3_bind_text64(st, at, ptr, value->bytes.len, SQLITE_STATIC, SQLITE_UTF8);
    case SL_DB_BYTES:
        return sqlite3_bind_blob64(st, at, ptr, value->bytes.len, SQLITE_STATIC);
    default:
        return sqlite3_bind_null(st, at);
    }
}

static int bind_all(sqlite3_stmt *st, const sl_db_stmt *stmt, const char **why)
{
    if ((size_t)sqlite3_bind_parameter_count(st) != stmt->param_count) {
        *why = "the statement has another number of parameters";
        return SQLITE_RANGE;
    }
    for (size_t i = 0; i < stmt->param_count; i++) {
        char name[8];
        snprintf(name, sizeof(name), "$%u", (unsigned)i + 1);
        int at = sqlite3_bind_parameter_index(st, name);
        int rc = at == 0 ? SQLITE_RANGE : bind_one(st, at, &stmt->params[i]);
        if (rc != SQLITE_OK) {
            *why = "a parameter is not in the statement or cannot be bound";
            return rc;
        }
    }
    return SQLITE_OK;
}

static sl_err add_cell(sqlite3_stmt *st, int column, db_request *rq, size_t at)
{
    sl_db_value value = {.type = SL_DB_NULL};
    switch (sqlite3_column_type(st, column)) {
    case SQLITE_INTEGER:
        value = SL_DB_P_INT(sqlite3_column_int64(st, column));
        break;
    case SQLITE_FLOAT:
        value = SL_DB_P_DOUBLE(sqlite3_column_double(st, column));
        break;
    case SQLITE_TEXT: { // the pointer first: asking for it may change the length
        const void *text = sqlite3_column_text(st, column);
        value = SL_DB_P_TEXT(sl_slice_of(text, (size_t)sqlite3_column_bytes(st, column)));
        break;
    }
    case SQLITE_BLOB: {
        const void *blob = sqlite3_column_blob(st, column);
        value = SL_DB_P_BYTES(sl_slice_of(blob, (size_t)sqlite3_column_bytes(st, column)));
        break;
    }
    default:
        break;
    }
    return db_rows_add(rq, at, &value);
}

static int step_all(db_sqlite_conn *cn, sqlite3_stmt *st, db_request *rq, size_t at)
{
    int columns = sqlite3_column_count(st);
    db_rows_begin(rq, at, (size_t)columns);
    sqlite3_int64 before = sqlite3_total_changes64(cn->h);
    int rc;
    while ((rc = sqlite3_step(st)) == SQLITE_ROW) {
        for (int i = 0; i < columns; i++) {
            if (add_cell(st, i, rq, at) != SL_OK)
                return SQLITE_TOOBIG;
        }
    }
    if (rc != SQLITE_DONE)
        return rc;
    // After a statement that changes no rows, the number of the one before it would be told.
    if (sqlite3_total_changes64(cn->h) != before)
        rq->rows[at].res.affected = sqlite3_changes64(cn->h);
    return SQLITE_OK;
}

static int run_one(db_sqlite_conn *cn, db_request *rq, size_t at)
{
    const char *why = NULL;
    sqlite3_stmt *st = NULL;
    cn->stop_at = db_now(cn->db) + cn->db->options.statement_ms;
    int rc = prepare(cn, rq->stmts[at].sql, &st, &why);
    if (rc == SQLITE_OK)
        rc = bind_all(st, &rq->stmts[at], &why);
    if (rc == SQLITE_OK)
        rc = step_all(cn, st, rq, at);
    if (rc != SQLITE_OK)
        db_request_fail(rq, at, db_sqlite_err(rc), why != NULL ? why : sqlite3_errmsg(cn->h));
    if (st != NULL) {
        sqlite3_reset(st);
        sqlite3_clear_bindings(st);
    }
    return rc;
}

int db_sqlite_statements(db_sqlite_conn *cn, db_request *rq)
{
    db_request_reset(cn->db, rq);
    int rc = SQLITE_OK;
    for (size_t i = 0; rc == SQLITE_OK && i < rq->count; i++)
        rc = run_one(cn, rq, i);
    return rc;
}
