/* SPDX-License-Identifier: Apache-2.0
 *
 * db_sqlite_conn: one SQLite connection of the db port: opening, prepared statements, running a
 * request, errors in our words. One thread at a time. Private to the SQLite adapter.
 */
#ifndef SL_STORE_DB_SQLITE_CONN_H
#define SL_STORE_DB_SQLITE_CONN_H

#include <sqlite3.h>

#include "store/db_int.h"

#define DB_SQLITE_CACHED 64

typedef struct db_sqlite_cached {
    sqlite3_stmt *st; /* owned; its text is inside */
    uint64_t hash;
    uint64_t used; /* when it was last used; the oldest is replaced */
} db_sqlite_cached;

typedef struct db_sqlite_conn {
    sl_db *db;
    sqlite3 *h; /* owned; NULL: to be opened */
    bool reader;
    sl_mono_ms stop_at;            /* what runs is interrupted then */
    const _Atomic int64_t *end_at; /* the same for all connections, when the port closes */
    uint64_t uses;
    db_sqlite_cached cached[DB_SQLITE_CACHED];
} db_sqlite_conn;

/** Errors as db_sqlite_err. *rc: SQLite's code. */
SL_MUST_USE sl_err db_sqlite_conn_open(db_sqlite_conn *cn, const char *path, int *rc);
void db_sqlite_conn_close(db_sqlite_conn *cn);
/** Runs a text without parameters and rows. Returns SQLite's code. */
int db_sqlite_run(db_sqlite_conn *cn, const char *sql);
/** First column of the first row as text ("" when there is none). */
int db_sqlite_text(db_sqlite_conn *cn, const char *sql, char text[64]);
/** Runs all statements of rq until one fails; then rq holds the error. Returns SQLite's code. */
int db_sqlite_statements(db_sqlite_conn *cn, db_request *rq);
sl_err db_sqlite_err(int rc);
/** True: the connection (or the file, or the disk) is to blame, not the statement. */
bool db_sqlite_is_hard(int rc);
/** What db_set_health is told; static text. */
const char *db_sqlite_reason(int rc);

#endif
