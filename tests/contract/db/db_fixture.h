/* SPDX-License-Identifier: Apache-2.0
 *
 * db_fixture: a fresh place for a metadata database on the adapter under test (a folder, or a
 * schema of its own in a PostgreSQL server), a loop that asks, and questions that wait for their
 * answer.
 */
#ifndef DB_FIXTURE_H
#define DB_FIXTURE_H

#include <pthread.h>
#include <stdatomic.h>

#include "sl_test.h"
#include "store/db.h"

/* An answer that outlives its completion. */
typedef struct db_answer {
    sl_err err;
    size_t failed_at;
    char why[256];
    bool on_loop; /* it came on the asker's loop */
    size_t result_count;
    sl_db_result results[SL_DB_MAX_STATEMENTS];
} db_answer;

typedef struct db_fixture {
    sl_db *db;
    sl_loop *lp;
    sl_clock ck;
    sl_db_options options; /* a test changes them before fx_open */
    char dir[64];
    char *url; /* with the schema */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t answers;       /* of fx_count, come home so far */
    size_t asked;         /* by fx_ask */
    size_t asked_answers; /* come home */
    db_answer last;       /* of fx_ask */
} db_fixture;

/** The word of the adapter ("sqlite", "postgres"); set by main. */
extern const char *fx_adapter;
bool fx_is_postgres(void);

db_fixture *fx_new(void);
void fx_free(db_fixture *fx);
/** Opens with fx->options; asserts that it works. */
void fx_open(db_fixture *fx);
sl_err fx_try_open(db_fixture *fx, char **why);
void fx_close(db_fixture *fx);
/** Waits until the database is there (or not); asserts that it happens within 60 s. */
void fx_wait_health(db_fixture *fx, bool healthy);

/** Asks and waits for the answer, which stays until the next question. */
const db_answer *fx_ask(db_fixture *fx, const sl_db_stmt *stmts, size_t count, unsigned flags);
/** One statement with up to three text parameters (NULL: no more). */
const db_answer *fx_text(db_fixture *fx, unsigned flags, const char *sql, const char *one,
                         const char *two, const char *three);
/** One statement that must work, without parameters. */
void fx_do(db_fixture *fx, const char *sql);
/** First cell of a query without parameters, which must work. */
int64_t fx_int(db_fixture *fx, const char *sql);

/** For completions of the test's own: counts one more answer. */
void fx_count(db_fixture *fx);
/** Waits until that many answers have been counted since the start; asserts within 60 s. */
void fx_wait(db_fixture *fx, size_t answers);

/* The service script of the server started for this run; skips the test without one. */
void fx_server(const char *command);
/** Seconds since an arbitrary moment. */
double fx_seconds(void);

#endif
