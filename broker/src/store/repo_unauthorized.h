/* SPDX-License-Identifier: Apache-2.0
 *
 * repo_unauthorized: table unauthorized_client: the last refused connection of each client id, for
 * people who look for a wrong password. One row per client id; gone with its next good connection
 * or after some days.
 */
#ifndef SL_STORE_REPO_UNAUTHORIZED_H
#define SL_STORE_REPO_UNAUTHORIZED_H

#include "store/repo.h"

typedef struct sl_unauthorized {
    sl_slice client_id;
    sl_slice ip;
    sl_wall_ms at;
    sl_slice user; /* user name; empty: none was given */
    bool password_given;
    bool tls;
    sl_slice reason;
} sl_unauthorized;

/* rows: borrowed for the callback; total: rows that fit, of all pages. */
typedef void sl_unauthorized_f(void *arg, sl_err err, const sl_unauthorized *rows, size_t count,
                               size_t total);

/* All: complete exactly once on lp. Errors as sl_db_exec: then there is no completion.
 * @thread any */

/** An older row of the client is replaced. */
SL_MUST_USE sl_err sl_unauthorized_put(sl_db *db, sl_loop *lp, const sl_unauthorized *un,
                                       sl_repo_done_f *fn, void *arg);
/** SL_ENOTFOUND: there was none. */
SL_MUST_USE sl_err sl_unauthorized_remove(sl_db *db, sl_loop *lp, sl_slice client_id,
                                          sl_repo_done_f *fn, void *arg);
/** All rows older than before. */
SL_MUST_USE sl_err sl_unauthorized_expire(sl_db *db, sl_loop *lp, sl_wall_ms before,
                                          sl_repo_done_f *fn, void *arg);
/** Newest first; the search is in the client id. Errors SL_EINVAL as sl_credentials_list. */
SL_MUST_USE sl_err sl_unauthorized_list(sl_db *db, sl_loop *lp, const sl_repo_page *page,
                                        sl_unauthorized_f *fn, void *arg);

#endif
