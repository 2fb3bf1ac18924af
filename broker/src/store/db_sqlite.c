/* SPDX-License-Identifier: Apache-2.0
 *
 * db_sqlite: the embedded adapter of the db port: one file metadata.db in the data folder, one
 * writer thread and a few reader threads. The writer takes what waits and commits it together: one
 * sync for many requests, each in a savepoint of its own, so that one that fails undoes only
 * itself. Requests complete after the commit, in the order they ran.
 *
 * After an error of file or disk the connection is closed; the writer tries again every second, so
 * that a mended disk needs no restart. A file that is no database any more is put aside at start.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "loop/thread.h"
#include "store/db_migrations.h"
#include "store/db_sqlite_conn.h"

#define FILE_NAME    "metadata.db"
#define DIR_MODE     0750
#define MAX_READERS  16
#define GROUP_MS     50 /* a group takes no more requests after this: its first one waits for it */
#define PROBE_MS     1000
#define END_GRACE_MS 2000
#define MAX_GROUP    4096

typedef struct sqlite_db {
    sl_db *db;
    char *path; /* owned */
    _Atomic int64_t end_at;
    db_sqlite_conn writer; /* the writer's, after open */
    int sick_rc;           /* why the writer is sick, SQLITE_OK when it is not */
    db_request **group;    /* owned: room for options.group requests */
    sl_thread *writer_thread;
    struct reader {
        struct sqlite_db *sq;
        db_sqlite_conn conn;
        sl_thread *thread;
    } readers[MAX_READERS];
    unsigned reader_count;
} sqlite_db;

static void note_health(sqlite_db *sq, int rc)
{
    sq->sick_rc = rc;
    db_set_health(sq->db, rc == SQLITE_OK ? NULL : db_sqlite_reason(rc), sqlite3_errstr(rc));
}

/* ---- writing */

static void complete_group(sqlite_db *sq, size_t count)
{
    for (size_t i = 0; i < count; i++)
        db_request_complete(sq->db, sq->group[i]);
}

static void fail_group(sqlite_db *sq, size_t count, int rc)
{
    for (size_t i = 0; i < count; i++) {
        if (sq->group[i]->err == SL_OK)
            db_request_fail(sq->group[i], 0, db_sqlite_err(rc), sqlite3_errstr(rc));
    }
}

// The connection is no good any more; nothing of the open transaction is stored.
static void give_up_writer(sqlite_db *sq, int rc)
{
    db_sqlite_conn_close(&sq->writer);
    note_health(sq, rc);
}

static int begin(sqlite_db *sq, const db_request *first)
{
    int rc = SQLITE_OK;
    if (sq->writer.h == NULL && db_sqlite_conn_open(&sq->writer, sq->path, &rc) != SL_OK)
        return rc;
    sq->writer.stop_at = first->deadline;
    return db_sqlite_run(&sq->writer, "BEGIN IMMEDIATE");
}

// Back to the savepoint. The library undoes the whole transaction by itself after some errors (an
// interrupted UPDATE, a full disk): then there is no savepoint either.
static int undo_one(sqlite_db *sq)
{
    if (sqlite3_get_autocommit(sq->writer.h))
        return SQLITE_ABORT;
    sq->writer.stop_at = INT64_MAX; // the request's time may be over: this is not part of it
    return db_sqlite_run(&sq->writer, "ROLLBACK TO one; RELEASE one");
}

// Runs one request inside the open transaction. SQLITE_OK: it took effect, or failed alone.
static int run_member(sqlite_db *sq, db_request *rq)
{
    sq->writer.stop_at = INT64_MAX;
    int rc = db_sqlite_run(&sq->writer, "SAVEPOINT one");
    if (rc != SQLITE_OK)
        return rc;
    rc = db_sqlite_statements(&sq->writer, rq);
    if (rc == SQLITE_OK)
        return db_sqlite_run(&sq->writer, "RELEASE one");
    return db_sqlite_is_hard(rc) ? rc : undo_one(sq);
}

static int commit(sqlite_db *sq)
{
    sq->writer.stop_at = INT64_MAX; // what is written by now is worth waiting for
    int rc = db_sqlite_run(&sq->writer, "COMMIT");
    if (rc == SQLITE_OK)
        db_count(sq->db, SL_DB_STAT_COMMITS, 1);
    return rc;
}

// Each of the first count requests in a transaction of its own.
static void run_alone(sqlite_db *sq, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        db_request *rq = sq->group[i];
        if (rq->err != SL_OK)
            continue;
        db_count(sq->db, SL_DB_STAT_RETRIED, 1);
        int rc = begin(sq, rq);
        if (rc == SQLITE_OK)
            rc = db_sqlite_statements(&sq->writer, rq);
        if (rc == SQLITE_OK)
            rc = commit(sq);
        if (rc == SQLITE_OK)
            continue;
        if (rq->err == SL_OK)
            db_request_fail(rq, 0, db_sqlite_err(rc), sqlite3_errstr(rc));
        if (db_sqlite_is_hard(rc))
            give_up_writer(sq, rc);
        else if (!sqlite3_get_autocommit(sq->writer.h) &&
                 db_sqlite_run(&sq->writer, "ROLLBACK") != SQLITE_OK)
            give_up_writer(sq, SQLITE_IOERR);
    }
}

static void run_group(sqlite_db *sq, db_request *first)
{
    bool closed;
    size_t count = 0, max = sq->db->options.group;
    sl_mono_ms until = db_now(sq->db) + GROUP_MS;
    int rc = begin(sq, first);
    for (db_request *rq = first; rq != NULL;) {
        sq->group[count++] = rq;
        if (rc == SQLITE_OK)
            rc = run_member(sq, rq);
        bool more = rc == SQLITE_OK && count < max && db_now(sq->db) < until;
        rq = more ? db_queue_take(sq->db, DB_TAKE_WRITES, false, 0, &closed) : NULL;
    }
    if (rc == SQLITE_OK)
        rc = commit(sq);
    if (rc == SQLITE_OK) {
        if (sq->sick_rc != SQLITE_OK)
            note_health(sq, SQLITE_OK);
    } else if (rc == SQLITE_ABORT) {
        run_alone(sq, count); // one of them took the others with it: they did nothing wrong
    } else {
        fail_group(sq, count, rc);
        if (db_sqlite_is_hard(rc) || sq->writer.h == NULL)
            give_up_writer(sq, rc);
        else if (!sqlite3_get_autocommit(sq->writer.h))
            give_up_writer(sq, SQLITE_IOERR);
    }
    complete_group(sq, count);
}

// A write of nothing new: does the file take writes again?
static void probe(sqlite_db *sq)
{
    int rc = SQLITE_OK;
    if (sq->writer.h == NULL && db_sqlite_conn_open(&sq->writer, sq->path, &rc) != SL_OK)
        return note_health(sq, rc);
    sq->writer.stop_at = db_now(sq->db) + PROBE_MS;
    rc = db_sqlite_run(&sq->writer, "UPDATE tb_schema_settings SET product = product");
    if (rc != SQLITE_OK)
        db_sqlite_conn_close(&sq->writer);
    note_health(sq, rc);
}

static void write_requests(void *arg)
{
    sqlite_db *sq = arg;
    bool closed = false;
    while (!closed) {
        sl_dur_ms wait = sq->sick_rc == SQLITE_OK ? -1 : PROBE_MS;
        db_request *rq = db_queue_take(sq->db, DB_TAKE_WRITES, false, wait, &closed);
        if (rq != NULL)
            run_group(sq, rq);
        else if (!closed && sq->sick_rc != SQLITE_OK)
            probe(sq);
    }
}

/* ---- reading */

static int read_one(struct reader *rd, db_request *rq)
{
    int rc = SQLITE_OK;
    if (rd->conn.h == NULL && db_sqlite_conn_open(&rd->conn, rd->sq->path, &rc) != SL_OK)
        return rc;
    // Several statements see one state of the database.
    if (rq->count > 1)
        rc = db_sqlite_run(&rd->conn, "BEGIN");
    if (rc == SQLITE_OK)
        rc = db_sqlite_statements(&rd->conn, rq);
    if (!sqlite3_get_autocommit(rd->conn.h)) {
        int end = db_sqlite_run(&rd->conn, "ROLLBACK"); // nothing was changed
        rc = rc == SQLITE_OK ? end : rc;
    }
    return rc;
}

static void read_requests(void *arg)
{
    struct reader *rd = arg;
    sl_db *db = rd->sq->db;
    bool closed = false;
    while (!closed) {
        db_request *rq = db_queue_take(db, DB_TAKE_READS, false, -1, &closed);
        if (rq == NULL)
            continue;
        int rc = read_one(rd, rq);
        if (rc != SQLITE_OK && rq->err == SL_OK)
            db_request_fail(rq, 0, db_sqlite_err(rc), sqlite3_errstr(rc));
        if (db_sqlite_is_hard(rc) && (rc & 0xff) != SQLITE_READONLY)
            db_sqlite_conn_close(&rd->conn);
        db_request_complete(db, rq);
    }
}

/* ---- opening */

static char *text_of(const char *one, const char *two, const char *three)
{
    size_t size = strlen(one) + strlen(two) + strlen(three) + 1;
    char *text = sl_alloc(size);
    snprintf(text, size, "%s%s%s", one, two, three);
    return text;
}

static sl_err migrate_run(void *arg, const char *sql, char text[64], char **why)
{
    sqlite_db *sq = arg;
    int rc = db_sqlite_text(&sq->writer, sql, text);
    if (rc != SQLITE_OK)
        *why = text_of("the schema of the metadata database cannot be brought up to date: ",
                       sqlite3_errmsg(sq->writer.h), "");
    return rc == SQLITE_BUSY ? SL_ELOCKED : db_sqlite_err(rc);
}

static sl_err open_file(sqlite_db *sq, char **why)
{
    int rc;
    sl_err err = db_sqlite_conn_open(&sq->writer, sq->path, &rc);
    if (err != SL_OK) {
        *why = text_of(db_sqlite_reason(rc), ": ", sq->path);
        return err == SL_EAGAIN ? SL_ELOCKED : err;
    }
    sl_db_migrator mg = {.begin = "BEGIN IMMEDIATE", .run = migrate_run, .arg = sq};
    unsigned from;
    err = sl_db_migrate(&mg, sq->db->options.migrate_to, &from, why);
    if (err != SL_OK)
        db_sqlite_conn_close(&sq->writer);
    return err;
}

// Kept for whoever can mend it; with its WAL, without which it is worth less.
static void put_aside(sqlite_db *sq)
{
    static const char *const SUFFIXES[] = {"", "-wal", "-shm"};
    for (size_t i = 0; i < sizeof(SUFFIXES) / sizeof(SUFFIXES[0]); i++) {
        char *from = text_of(sq->path, SUFFIXES[i], "");
        char stamp[48];
        snprintf(stamp, sizeof(stamp), ".damaged-%lld",
                 (long long)sl_clock_wall(&sq->db->clock) / 1000);
        char *to = text_of(sq->path, stamp, SUFFIXES[i]);
        if (rename(from, to) == 0)
            sl_error(SL_C_DB, "DB-DAMAGED", SL_S("file", from), SL_S("kept_as", to),
                     SL_S("what", "the metadata database was damaged; starting with an empty one"));
        sl_free(from);
        sl_free(to);
    }
}

static sl_err start_threads(sqlite_db *sq)
{
    sl_err err = sl_thread_start("db-writer", write_requests, sq, &sq->writer_thread);
    unsigned wanted = sq->db->options.readers < MAX_READERS ? sq->db->options.readers : MAX_READERS;
    while (err == SL_OK && sq->reader_count < wanted) {
        struct reader *rd = &sq->readers[sq->reader_count];
        rd->sq = sq;
        rd->conn = (db_sqlite_conn){.db = sq->db, .reader = true, .end_at = &sq->end_at};
        char name[16];
        snprintf(name, sizeof(name), "db-reader-%u", sq->reader_count);
        err = sl_thread_start(name, read_requests, rd, &rd->thread);
        if (err == SL_OK)
            sq->reader_count++;
    }
    return err;
}

static void sqlite_close(void *self)
{
    sqlite_db *sq = self;
    atomic_store(&sq->end_at, db_now(sq->db) + END_GRACE_MS);
    sl_thread_join(&sq->writer_thread);
    for (unsigned i = 0; i < sq->reader_count; i++) {
        sl_thread_join(&sq->readers[i].thread);
        db_sqlite_conn_close(&sq->readers[i].conn);
    }
    db_sqlite_conn_close(&sq->writer);
    sl_free(sq->group);
    sl_free(sq->path);
    sl_free(sq);
}

static sl_err sqlite_open(sl_db *db, void **self, char **why)
{
    if (db->options.dir == NULL)
        return SL_EINVAL;
    if (db->options.group > MAX_GROUP)
        db->options.group = MAX_GROUP;
    sqlite_db *sq = sl_calloc(1, sizeof(*sq));
    sq->db = db;
    sq->path = text_of(db->options.dir, "/", FILE_NAME);
    sq->group = sl_calloc(db->options.group, sizeof(db_request *));
    sq->writer = (db_sqlite_conn){.db = db, .end_at = &sq->end_at};
    atomic_init(&sq->end_at, INT64_MAX);
    sl_err err = SL_OK;
    if (mkdir(db->options.dir, DIR_MODE) != 0 && errno != EEXIST) {
        err = sl_err_from_errno(errno);
        *why = text_of("the folder of the metadata database cannot be made: ", db->options.dir, "");
    }
    if (err == SL_OK)
        err = open_file(sq, why);
    if (err == SL_ECORRUPT) {
        put_aside(sq);
        sl_free(*why);
        *why = NULL;
        err = open_file(sq, why);
    }
    if (err == SL_OK)
        err = start_threads(sq);
    if (err != SL_OK) {
        db_queue_close(db);
        sqlite_close(sq);
        return err;
    }
    *self = sq;
    return SL_OK;
}

const sl_db_ops sl_db_sqlite_ops = {.name = "sqlite", .open = sqlite_open, .close = sqlite_close};
