/* SPDX-License-Identifier: Apache-2.0
 *
 * repo_unauthorized: see repo_unauthorized.h.
 */
#include "store/repo_unauthorized.h"

#include "base/alloc.h"

#define COLUMNS   "client_id, ip_address, ts, username, password_provided, tls_used, reason"
#define SQL_FOUND " FROM unauthorized_client WHERE lower(client_id) LIKE lower($1) ESCAPE '\\'"

// Records of two nodes may come in the wrong order: the newer one stays.
static const char SQL_PUT[] =
    "INSERT INTO unauthorized_client (" COLUMNS ") VALUES ($1, $2, $3, $4, $5, $6, $7)"
    " ON CONFLICT (client_id) DO UPDATE SET ip_address = excluded.ip_address, ts = excluded.ts,"
    " username = excluded.username, password_provided = excluded.password_provided,"
    " tls_used = excluded.tls_used, reason = excluded.reason"
    " WHERE excluded.ts >= unauthorized_client.ts";
static const char SQL_REMOVE[] = "DELETE FROM unauthorized_client WHERE client_id = $1";
static const char SQL_EXPIRE[] = "DELETE FROM unauthorized_client WHERE ts < $1";
static const char SQL_LIST[] =
    "SELECT " COLUMNS SQL_FOUND " ORDER BY ts DESC, client_id LIMIT $2 OFFSET $3";
static const char SQL_COUNT[] = "SELECT count(*)" SQL_FOUND;

static sl_unauthorized row_of(const sl_db_result *res, size_t row)
{
    return (sl_unauthorized){.client_id = sl_db_get_slice(res, row, 0),
                             .ip = sl_db_get_slice(res, row, 1),
                             .at = sl_db_get_int(res, row, 2),
                             .user = sl_db_get_slice(res, row, 3),
                             .password_given = sl_db_get_bool(res, row, 4),
                             .tls = sl_db_get_bool(res, row, 5),
                             .reason = sl_db_get_slice(res, row, 6)};
}

static void on_rows(void *arg, const sl_db_done *done)
{
    sl_repo_call *call = arg;
    sl_unauthorized_f *fn = (sl_unauthorized_f *)call->fn;
    if (done->err != SL_OK) {
        fn(call->arg, done->err, NULL, 0, 0);
        sl_free(call);
        return;
    }
    const sl_db_result *res = &done->results[0];
    sl_unauthorized *rows = sl_calloc(res->row_count + 1, sizeof(*rows));
    for (size_t i = 0; i < res->row_count; i++)
        rows[i] = row_of(res, i);
    fn(call->arg, SL_OK, rows, res->row_count, (size_t)sl_db_get_int(&done->results[1], 0, 0));
    sl_free(rows);
    sl_free(call);
}

sl_err sl_unauthorized_put(sl_db *db, sl_loop *lp, const sl_unauthorized *un, sl_repo_done_f *fn,
                           void *arg)
{
    const sl_db_value row[] = {SL_DB_P_TEXT(un->client_id),
                               SL_DB_P_TEXT(un->ip),
                               SL_DB_P_INT(un->at),
                               un->user.len == 0 ? SL_DB_P_NULL : SL_DB_P_TEXT(un->user),
                               SL_DB_P_BOOL(un->password_given),
                               SL_DB_P_BOOL(un->tls),
                               SL_DB_P_TEXT(un->reason)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_PUT, row, 7}, 1, SL_DB_IDEMPOTENT,
                        sl_repo_on_done, (void (*)(void))fn, arg);
}

sl_err sl_unauthorized_remove(sl_db *db, sl_loop *lp, sl_slice client_id, sl_repo_done_f *fn,
                              void *arg)
{
    const sl_db_value by_client[] = {SL_DB_P_TEXT(client_id)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_REMOVE, by_client, 1}, 1, 0, sl_repo_on_changed,
                        (void (*)(void))fn, arg);
}

sl_err sl_unauthorized_expire(sl_db *db, sl_loop *lp, sl_wall_ms before, sl_repo_done_f *fn,
                              void *arg)
{
    const sl_db_value by_time[] = {SL_DB_P_INT(before)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_EXPIRE, by_time, 1}, 1, SL_DB_IDEMPOTENT,
                        sl_repo_on_done, (void (*)(void))fn, arg);
}

sl_err sl_unauthorized_list(sl_db *db, sl_loop *lp, const sl_repo_page *page, sl_unauthorized_f *fn,
                            void *arg)
{
    if (page->limit == 0 || page->limit > SL_REPO_MAX_PAGE || page->offset > INT32_MAX)
        return SL_EINVAL;
    char *like = sl_repo_like(page->search);
    const sl_db_value params[] = {SL_DB_P_TEXT(sl_slice_str(like)),
                                  SL_DB_P_INT((int64_t)page->limit),
                                  SL_DB_P_INT((int64_t)page->offset)};
    const sl_db_stmt stmts[] = {{SQL_LIST, params, 3}, {SQL_COUNT, params, 1}};
    sl_err err = sl_repo_exec(db, lp, stmts, 2, SL_DB_READ, on_rows, (void (*)(void))fn, arg);
    sl_free(like);
    return err;
}
