/* SPDX-License-Identifier: Apache-2.0
 *
 * db_pg_conn: one connection to PostgreSQL, used by one thread, which waits with time limits:
 * libpq's own blocking calls have none. What can be said about a request afterwards is a
 * db_pg_outcome. Private to the PostgreSQL adapter; libpq's types stay in db_pg_conn.c.
 */
#ifndef SL_STORE_DB_PG_CONN_H
#define SL_STORE_DB_PG_CONN_H

#include "store/db_int.h"

typedef struct db_pg_target {
    char *url;      /* owned; holds a password */
    char *user;     /* owned; used when the URL names none */
    char *password; /* owned; the same */
} db_pg_target;

typedef struct db_pg_conn {
    sl_db *db;
    int end_fd;           /* borrowed: readable when the port closes */
    struct pg_conn *link; /* owned; NULL: not connected */
    sl_mono_ms born, used;
    char state[6]; /* SQLSTATE of the last error, "" when it had none */
    char why[256]; /* first line of the last error, without secrets */
} db_pg_conn;

typedef enum db_pg_outcome {
    DB_PG_DONE,      /* rq->err is final */
    DB_PG_AGAIN,     /* nothing took effect, the connection is good: run it again */
    DB_PG_LOST,      /* nothing took effect, the connection is gone */
    DB_PG_LOST_MAYBE /* the connection is gone, and with it the answer of a commit */
} db_pg_outcome;

/** False: *why (static text) says what is wrong with the URL. @thread init */
bool db_pg_check_url(const char *url, const char **why);
/** Errors SL_ECONN, SL_ETIMEDOUT; SL_EDENIED user or password refused; SL_ENOTFOUND no such
 * database; SL_EINVAL the URL's options. why is set. */
SL_MUST_USE sl_err db_pg_connect(db_pg_conn *pc, const db_pg_target *target);
void db_pg_close(db_pg_conn *pc);
/** False: not connected, or the server has closed the connection; asks nobody. */
bool db_pg_is_alive(db_pg_conn *pc);
db_pg_outcome db_pg_run(db_pg_conn *pc, db_request *rq);
/** One text without parameters, within limit_ms; text: first column of the first row, "" when there
 * is none. Errors as SL_DB's; SL_ECONN the connection is gone. why is set. */
SL_MUST_USE sl_err db_pg_text(db_pg_conn *pc, const char *sql, sl_dur_ms limit_ms, char text[64]);
/** Sleeps up to ms; false when the port closes. */
bool db_pg_sleep(db_pg_conn *pc, sl_dur_ms ms);

#endif
