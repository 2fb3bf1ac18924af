/* SPDX-License-Identifier: Apache-2.0
 *
 * sink_sqlite: the embedded sink: one file gateway-store.db in the data folder, WAL mode, readable
 * by other processes while the gateway runs (view `documents`). One connection writes; batches of
 * several writer threads that come together share one transaction and one fsync (the first thread
 * works for those that wait). After an error of the file the connection is closed and opened again
 * by the next write, so that a mended disk or file needs no restart.
 */
#include "sink.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/buf.h"
#include "base/logger.h"

#define SQLITE_SINK_MAGIC 0x5353716cu
#define FILE_NAME         "gateway-store.db"
#define APPLICATION_ID    0x534c4757 /* "SLGW" */
#define SCHEMA_VERSION    1
#define BUSY_MS           2000
#define BUSY_DIVISOR      4        /* of the budget */
#define WAL_KEEP_BYTES    67108864 /* after a checkpoint the WAL file is cut to this */
#define DIR_MODE          0750

/* id_key is the type and the canonical text of the identifier: 1 and 1.0 are equal, "1" is not. */
static const char SCHEMA[] =
    "CREATE TABLE IF NOT EXISTS targets("
    "  target_id INTEGER PRIMARY KEY,"
    "  database TEXT NOT NULL,"
    "  collection TEXT NOT NULL,"
    "  UNIQUE(database, collection));"
    "CREATE TABLE IF NOT EXISTS stored("
    "  seq INTEGER PRIMARY KEY,"
    "  target_id INTEGER NOT NULL REFERENCES targets,"
    "  id_key BLOB NOT NULL,"
    "  id TEXT NOT NULL,"
    "  topic TEXT NOT NULL,"
    "  received_at_ms INTEGER NOT NULL,"
    "  doc TEXT NOT NULL,"
    "  UNIQUE(target_id, id_key));"
    "CREATE VIEW IF NOT EXISTS documents(database, collection, id, topic, received_at_ms, doc) AS"
    "  SELECT t.database, t.collection, s.id, s.topic, s.received_at_ms, s.doc"
    "  FROM stored s JOIN targets t USING(target_id);"
    "PRAGMA user_version=1;"
    "PRAGMA application_id=1397507927;"; /* APPLICATION_ID */

typedef enum statement {
    ST_ADD_TARGET,
    ST_FIND_TARGET,
    ST_INSERT,
    ST_REPLACE,
    ST_REPLACE_IF_NEWER,
    ST_FIND_TOPIC,
    ST_COUNT
} statement;

#define SQL_INSERT                                                                                 \
    "INSERT INTO stored(target_id, id_key, id, topic, received_at_ms, doc)"                        \
    " VALUES(?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT(target_id, id_key) DO "
#define SQL_UPDATE                                                                                 \
    "UPDATE SET received_at_ms=excluded.received_at_ms, doc=excluded.doc"                          \
    " WHERE topic=excluded.topic"

static const char *const SQL[ST_COUNT] = {
    [ST_ADD_TARGET] = "INSERT OR IGNORE INTO targets(database, collection) VALUES(?1, ?2)",
    [ST_FIND_TARGET] = "SELECT target_id FROM targets WHERE database=?1 AND collection=?2",
    [ST_INSERT] = SQL_INSERT "NOTHING",
    [ST_REPLACE] = SQL_INSERT SQL_UPDATE,
    [ST_REPLACE_IF_NEWER] = SQL_INSERT SQL_UPDATE " AND received_at_ms<=excluded.received_at_ms",
    [ST_FIND_TOPIC] = "SELECT topic=?3 FROM stored WHERE target_id=?1 AND id_key=?2",
};

/* One thread's batch, on its stack, waiting for the transaction that stores it. */
typedef struct request {
    const sl_sink_target *target;
    const sl_document *const *docs;
    size_t count;
    sl_sink_result *res;
    bool done;
    struct request *next;
} request;

typedef struct sqlite_sink {
    uint32_t magic;
    char *path; /* owned */
    int busy_ms;
    /* lock guards the queue; the thread with leading == true owns everything below it. */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    request *first, *last;
    bool leading;
    sqlite3 *db; /* NULL: to be opened */
    sqlite3_stmt *st[ST_COUNT];
} sqlite_sink;

/* ---- errors ---- */

static sl_sink_outcome classify(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_TOOBIG:
    case SQLITE_CONSTRAINT:
    case SQLITE_MISMATCH:
    case SQLITE_RANGE:
        return SL_SINK_PERMANENT;
    case SQLITE_READONLY:
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_AUTH:
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return SL_SINK_CONFIG;
    default: // FULL, IOERR, BUSY, NOMEM, ...
        return SL_SINK_AWAY;
    }
}

static sl_err to_err(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return SL_ECORRUPT;
    case SQLITE_FULL:
        return SL_ENOSPC;
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return SL_EDENIED;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return SL_ELOCKED;
    default:
        return SL_EIO;
    }
}

static const char *describe(int rc)
{
    switch (rc & 0xff) {
    case SQLITE_FULL:
        return "disk full";
    case SQLITE_READONLY:
        return "file or folder is read-only";
    case SQLITE_CANTOPEN:
        return "cannot be opened";
    case SQLITE_CORRUPT:
        return "file is damaged";
    case SQLITE_NOTADB:
        return "file is not a store of the gateway";
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return "locked by another process";
    default:
        return sqlite3_errstr(rc);
    }
}

/* ---- the connection ---- */

static void db_close(sqlite_sink *sk)
{
    for (int i = 0; i < ST_COUNT; i++) {
        sqlite3_finalize(sk->st[i]);
        sk->st[i] = NULL;
    }
    sqlite3_close(sk->db);
    sk->db = NULL;
}

static int read_pragma(sqlite3 *db, const char *sql, int64_t *out)
{
    sqlite3_stmt *st = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        *out = sqlite3_column_int64(st, 0);
        rc = SQLITE_OK;
    }
    sqlite3_finalize(st);
    return rc;
}

/* A file with tables of somebody else, or of a newer gateway, is left alone. */
static int check_owner(sqlite3 *db)
{
    int64_t app = 0, version = 0, tables = 0;
    int rc = read_pragma(db, "PRAGMA application_id", &app);
    if (rc == SQLITE_OK)
        rc = read_pragma(db, "PRAGMA user_version", &version);
    if (rc == SQLITE_OK)
        rc = read_pragma(db, "SELECT count(*) FROM sqlite_master", &tables);
    if (rc == SQLITE_OK && tables > 0 && (app != APPLICATION_ID || version != SCHEMA_VERSION))
        rc = SQLITE_NOTADB;
    return rc;
}

static int db_prepare(sqlite_sink *sk)
{
    // the owner is checked before anything is written, WAL mode included
    int rc = check_owner(sk->db);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(sk->db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL", NULL, NULL,
                          NULL);
    char limit[64];
    snprintf(limit, sizeof limit, "PRAGMA journal_size_limit=%d", WAL_KEEP_BYTES);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(sk->db, limit, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(sk->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(sk->db, SCHEMA, NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(sk->db, "COMMIT", NULL, NULL, NULL);
    for (int i = 0; rc == SQLITE_OK && i < ST_COUNT; i++)
        rc = sqlite3_prepare_v3(sk->db, SQL[i], -1, SQLITE_PREPARE_PERSISTENT, &sk->st[i], NULL);
    return rc;
}

static int db_open(sqlite_sink *sk)
{
    int rc = sqlite3_open_v2(
        sk->path, &sk->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK) {
        sqlite3_extended_result_codes(sk->db, 1);
        sqlite3_busy_timeout(sk->db, sk->busy_ms);
        rc = db_prepare(sk);
    }
    if (rc != SQLITE_OK)
        db_close(sk);
    return rc;
}

/* ---- writing ---- */

static int find_target(sqlite_sink *sk, const sl_sink_target *target, int64_t *out)
{
    static const statement steps[] = {ST_ADD_TARGET, ST_FIND_TARGET};
    int rc = SQLITE_OK;
    for (int i = 0; i < 2; i++) {
        sqlite3_stmt *st = sk->st[steps[i]];
        sqlite3_bind_text(st, 1, target->database, -1, SQLITE_STATIC);
        sqlite3_bind_text(st, 2, target->collection, -1, SQLITE_STATIC);
        rc = sqlite3_step(st);
        if (rc == SQLITE_ROW)
            *out = sqlite3_column_int64(st, 0);
        sqlite3_reset(st);
        if (rc != SQLITE_ROW && rc != SQLITE_DONE)
            return rc;
    }
    return rc == SQLITE_ROW ? SQLITE_OK : SQLITE_CORRUPT; // added, and not there
}

/* The statement changed nothing: whose is the stored document? */
static int judge_existing(sqlite_sink *sk, int64_t target_id, const sl_document *doc,
                          sl_sink_result *res)
{
    sqlite3_stmt *st = sk->st[ST_FIND_TOPIC];
    sqlite3_bind_int64(st, 1, target_id);
    sqlite3_bind_blob(st, 2, doc->id.key.ptr, (int)doc->id.key.len, SQLITE_STATIC);
    sqlite3_bind_text(st, 3, (const char *)doc->topic.ptr, (int)doc->topic.len, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    bool same = rc == SQLITE_ROW && sqlite3_column_int(st, 0) != 0;
    sqlite3_reset(st);
    if (rc != SQLITE_ROW)
        return rc == SQLITE_DONE ? SQLITE_CORRUPT : rc;
    sl_sink_result_set(res, same ? SL_SINK_DUPLICATE : SL_SINK_CONFLICT, 0, "%s", "");
    return SQLITE_OK;
}

/* Tells of one document; returns an error only when the transaction is lost. */
static int write_one(sqlite_sink *sk, int64_t target_id, const sl_document *doc, sl_buf *json,
                     sl_sink_result *res)
{
    static const statement by_mode[] = {[SL_DOC_INSERT] = ST_INSERT,
                                        [SL_DOC_REPLACE] = ST_REPLACE,
                                        [SL_DOC_REPLACE_IF_NEWER] = ST_REPLACE_IF_NEWER};
    sl_buf_init(json, sl_document_json_bound(doc));
    sl_err err = sl_document_write_json(doc, NULL, json);
    SL_ASSERT(err == SL_OK);
    sl_slice text = sl_buf_peek(json);
    sqlite3_stmt *st = sk->st[by_mode[doc->mode]];
    sqlite3_bind_int64(st, 1, target_id);
    sqlite3_bind_blob(st, 2, doc->id.key.ptr, (int)doc->id.key.len, SQLITE_STATIC);
    sqlite3_bind_text(st, 3, (const char *)doc->id.text.ptr, (int)doc->id.text.len, SQLITE_STATIC);
    sqlite3_bind_text(st, 4, (const char *)doc->topic.ptr, (int)doc->topic.len, SQLITE_STATIC);
    sqlite3_bind_int64(st, 5, sl_document_received_ms(doc));
    int rc =
        sqlite3_bind_text64(st, 6, (const char *)text.ptr, text.len, SQLITE_STATIC, SQLITE_UTF8);
    if (rc == SQLITE_OK)
        rc = sqlite3_step(st);
    int changes = rc == SQLITE_DONE ? sqlite3_changes(sk->db) : 0;
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
    sl_buf_fini(json);
    if (rc == SQLITE_DONE && changes == 0)
        return judge_existing(sk, target_id, doc, res);
    if (rc == SQLITE_DONE) {
        sl_sink_result_set(res, SL_SINK_STORED, 0, "%s", "");
        return SQLITE_OK;
    }
    if (classify(rc) != SL_SINK_PERMANENT)
        return rc;
    sl_sink_result_set(res, SL_SINK_PERMANENT, rc, "%s", sqlite3_errmsg(sk->db));
    return SQLITE_OK;
}

static int write_request(sqlite_sink *sk, request *req)
{
    int64_t target_id = 0;
    int rc = find_target(sk, req->target, &target_id);
    sl_buf json;
    for (size_t i = 0; rc == SQLITE_OK && i < req->count; i++)
        rc = write_one(sk, target_id, req->docs[i], &json, &req->res[i]);
    return rc;
}

/* The transaction failed: nothing of it is stored, whatever was noted before. */
static void fail_requests(sqlite_sink *sk, request *list, int rc)
{
    for (request *req = list; req != NULL; req = req->next) {
        for (size_t i = 0; i < req->count; i++) {
            sl_sink_outcome outcome = classify(rc);
            if (outcome == SL_SINK_PERMANENT)
                outcome = SL_SINK_AWAY; // that is a verdict on one document, never on all
            sl_sink_result_set(&req->res[i], outcome, rc, "%s: %s", sk->path, describe(rc));
        }
    }
}

/* A file that was renamed or deleted under us would swallow documents unseen: use the one that has
 * the name now. */
static void leave_moved_file(sqlite_sink *sk)
{
    int moved = 0;
    if (sk->db == NULL ||
        sqlite3_file_control(sk->db, NULL, SQLITE_FCNTL_HAS_MOVED, &moved) != SQLITE_OK || !moved)
        return;
    sl_error(SL_C_SINK, "STORE-FILE-MOVED", SL_S("file", sk->path));
    db_close(sk);
}

/* @thread the leader */
static void write_list(sqlite_sink *sk, request *list)
{
    leave_moved_file(sk);
    int rc = sk->db != NULL ? SQLITE_OK : db_open(sk);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(sk->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
    for (request *req = list; rc == SQLITE_OK && req != NULL; req = req->next)
        rc = write_request(sk, req);
    if (rc == SQLITE_OK)
        rc = sqlite3_exec(sk->db, "COMMIT", NULL, NULL, NULL);
    if (rc == SQLITE_OK)
        return;
    fail_requests(sk, list, rc);
    // a new connection sees a file that was mended or replaced; closing rolls back
    db_close(sk);
}

/* ---- the port ---- */

static void sqlite_write(void *self, const sl_sink_target *target, const sl_document *const *docs,
                         size_t count, sl_sink_result *res)
{
    sqlite_sink *sk = self;
    SL_CHECK(sk, SQLITE_SINK_MAGIC);
    request mine = {.target = target, .docs = docs, .count = count, .res = res};
    pthread_mutex_lock(&sk->lock);
    if (sk->last != NULL)
        sk->last->next = &mine;
    else
        sk->first = &mine;
    sk->last = &mine;
    while (!mine.done && sk->leading)
        pthread_cond_wait(&sk->ended, &sk->lock);
    if (!mine.done) { // lead: everything that waits by now
        request *list = sk->first;
        sk->first = sk->last = NULL;
        sk->leading = true;
        pthread_mutex_unlock(&sk->lock);
        write_list(sk, list);
        pthread_mutex_lock(&sk->lock);
        sk->leading = false;
        for (request *req = list, *next; req != NULL; req = next) {
            next = req->next; // req's thread may leave once done is set and the lock is free
            req->done = true;
        }
        pthread_cond_broadcast(&sk->ended);
    }
    pthread_mutex_unlock(&sk->lock);
}

static void sqlite_probe(void *self, sl_sink_result *res)
{
    sqlite_sink *sk = self;
    SL_CHECK(sk, SQLITE_SINK_MAGIC);
    // readers do not touch the writer's connection
    sqlite3 *db = NULL;
    int64_t version = 0;
    int rc = sqlite3_open_v2(sk->path, &db, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL);
    if (rc == SQLITE_OK)
        rc = read_pragma(db, "SELECT count(*) FROM targets", &version);
    sqlite3_close(db);
    if (rc == SQLITE_OK)
        sl_sink_result_set(res, SL_SINK_STORED, 0, "%s", "");
    else
        sl_sink_result_set(res, classify(rc), rc, "%s: %s", sk->path, describe(rc));
}

static void sqlite_close(void *self)
{
    sqlite_sink *sk = self;
    SL_CHECK(sk, SQLITE_SINK_MAGIC);
    SL_ASSERT(!sk->leading && sk->first == NULL);
    db_close(sk);
    pthread_cond_destroy(&sk->ended);
    pthread_mutex_destroy(&sk->lock);
    sk->magic = 0;
    sl_free(sk->path);
    sl_free(sk);
}

static char *format_text(const char *fmt, const char *first, const char *second)
{
    int len = snprintf(NULL, 0, fmt, first, second);
    char *text = sl_alloc((size_t)len + 1);
    snprintf(text, (size_t)len + 1, fmt, first, second);
    return text;
}

static sl_err make_folder(const char *dir, char **why)
{
    if (mkdir(dir, DIR_MODE) == 0 || errno == EEXIST)
        return SL_OK;
    sl_err err = sl_err_from_errno(errno);
    *why = format_text("data folder %s cannot be made: %s", dir, sl_err_text(err));
    return err;
}

static sl_err sqlite_open(void **self, const sl_sink_conf *cf, char **why)
{
    sl_err err = make_folder(cf->data_dir, why);
    if (err != SL_OK)
        return err;
    sqlite_sink *sk = sl_calloc(1, sizeof *sk);
    sk->magic = SQLITE_SINK_MAGIC;
    sk->path = format_text("%s/%s", cf->data_dir, FILE_NAME);
    sk->busy_ms = cf->budget_ms > 0 && cf->budget_ms / BUSY_DIVISOR < BUSY_MS
                      ? (int)(cf->budget_ms / BUSY_DIVISOR)
                      : BUSY_MS;
    pthread_mutex_init(&sk->lock, NULL);
    pthread_cond_init(&sk->ended, NULL);
    int rc = db_open(sk);
    if (rc != SQLITE_OK) {
        *why = format_text("store %s: %s", sk->path, describe(rc));
        sqlite_close(sk);
        return to_err(rc);
    }
    *self = sk;
    return SL_OK;
}

const sl_sink_ops sl_sink_sqlite_ops = {
    .name = "sqlite",
    .open = sqlite_open,
    .write = sqlite_write,
    .probe = sqlite_probe,
    .close = sqlite_close,
};
