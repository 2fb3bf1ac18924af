/* SPDX-License-Identifier: Apache-2.0
 *
 * repo: what the repositories on the metadata port share: identifiers, callbacks without rows, the
 * bridge from a completion of the port to a typed one.
 */
#ifndef SL_STORE_REPO_H
#define SL_STORE_REPO_H

#include "store/db.h"

#define SL_REPO_ID_BYTES 37 /* a UUID and its NUL */
#define SL_REPO_MAX_PAGE 10000

/* A write is through: err as sl_db_done.err; SL_ENOTFOUND when there was no such row. */
typedef void sl_repo_done_f(void *arg, sl_err err);

/** A new random UUID. @thread any */
void sl_repo_new_id(char out[SL_REPO_ID_BYTES]);

/* Pages of lists. */
typedef struct sl_repo_page {
    sl_slice search; /* part of the name, without regard to case; empty: all */
    size_t limit;    /* 1..SL_REPO_MAX_PAGE */
    size_t offset;
} sl_repo_page;

/* For the repositories' own files: the caller's function travels with the request. */
typedef struct sl_repo_call {
    void (*fn)(void); /* cast back by the bridge that it was made for */
    void *arg;
} sl_repo_call;

/** sl_db_exec with a call as argument; the bridge frees the call. Errors as sl_db_exec. */
SL_MUST_USE sl_err sl_repo_exec(sl_db *db, sl_loop *lp, const sl_db_stmt *stmts, size_t count,
                                unsigned flags, sl_db_done_f *bridge, void (*fn)(void), void *arg);
/** Bridge to an sl_repo_done_f: SL_OK as it is. */
void sl_repo_on_done(void *arg, const sl_db_done *done);
/** Bridge to an sl_repo_done_f: SL_ENOTFOUND when the last statement changed no row. */
void sl_repo_on_changed(void *arg, const sl_db_done *done);
/** A pattern of LIKE that finds search anywhere, with \ before its signs; owned. */
char *sl_repo_like(sl_slice search);

#endif
