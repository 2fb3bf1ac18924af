/* SPDX-License-Identifier: Apache-2.0
 *
 * repo_credentials: see repo_credentials.h.
 */
#include "store/repo_credentials.h"

#include "base/alloc.h"

#define COLUMNS                                                                                    \
    "id, created_time, name, client_type, credentials_id, credentials_type, credentials_value, "   \
    "additional_info"
#define COLUMN_COUNT 8
#define SQL_SELECT   "SELECT " COLUMNS " FROM mqtt_client_credentials WHERE "
#define SQL_FOUND    " WHERE lower(name) LIKE lower($1) ESCAPE '\\'"

static const char SQL_INSERT[] =
    "INSERT INTO mqtt_client_credentials (" COLUMNS ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
static const char SQL_UPDATE[] =
    "UPDATE mqtt_client_credentials SET name = $2, client_type = $3, credentials_id = $4,"
    " credentials_type = $5, credentials_value = $6, additional_info = $7 WHERE id = $1";
static const char SQL_REMOVE[] = "DELETE FROM mqtt_client_credentials WHERE id = $1";
static const char SQL_GET[] = SQL_SELECT "id = $1";
static const char SQL_FIND[] = SQL_SELECT "credentials_id IN ($1, $2, $3, $4, $5, $6, $7, $8)";
static const char SQL_LIST[] = "SELECT " COLUMNS " FROM mqtt_client_credentials" SQL_FOUND
                               " ORDER BY created_time DESC, id LIMIT $2 OFFSET $3";
static const char SQL_COUNT[] = "SELECT count(*) FROM mqtt_client_credentials" SQL_FOUND;

static sl_credentials row_of(const sl_db_result *res, size_t row)
{
    return (sl_credentials){.id = sl_db_get_slice(res, row, 0),
                            .created = sl_db_get_int(res, row, 1),
                            .name = sl_db_get_slice(res, row, 2),
                            .client_type = sl_db_get_slice(res, row, 3),
                            .credentials_id = sl_db_get_slice(res, row, 4),
                            .credentials_type = sl_db_get_slice(res, row, 5),
                            .value = sl_db_get_slice(res, row, 6),
                            .info = sl_db_get_slice(res, row, 7)};
}

// Rows of the first statement; a second one, if there is one, has their total.
static void on_rows(void *arg, const sl_db_done *done)
{
    sl_repo_call *call = arg;
    sl_credentials_f *fn = (sl_credentials_f *)call->fn;
    if (done->err != SL_OK) {
        fn(call->arg, done->err, NULL, 0, 0);
        sl_free(call);
        return;
    }
    const sl_db_result *res = &done->results[0];
    sl_credentials *rows = sl_calloc(res->row_count + 1, sizeof(*rows));
    for (size_t i = 0; i < res->row_count; i++)
        rows[i] = row_of(res, i);
    size_t total = res->row_count;
    if (done->result_count > 1)
        total = (size_t)sl_db_get_int(&done->results[1], 0, 0);
    fn(call->arg, SL_OK, rows, res->row_count, total);
    sl_free(rows);
    sl_free(call);
}

static sl_db_value or_null(sl_slice text)
{
    return text.len == 0 ? SL_DB_P_NULL : SL_DB_P_TEXT(text);
}

sl_err sl_credentials_insert(sl_db *db, sl_loop *lp, const sl_credentials *cr, sl_repo_done_f *fn,
                             void *arg)
{
    const sl_db_value row[] = {SL_DB_P_TEXT(cr->id),
                               SL_DB_P_INT(cr->created),
                               SL_DB_P_TEXT(cr->name),
                               SL_DB_P_TEXT(cr->client_type),
                               SL_DB_P_TEXT(cr->credentials_id),
                               SL_DB_P_TEXT(cr->credentials_type),
                               or_null(cr->value),
                               or_null(cr->info)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_INSERT, row, COLUMN_COUNT}, 1, 0, sl_repo_on_done,
                        (void (*)(void))fn, arg);
}

sl_err sl_credentials_update(sl_db *db, sl_loop *lp, const sl_credentials *cr, sl_repo_done_f *fn,
                             void *arg)
{
    const sl_db_value row[] = {SL_DB_P_TEXT(cr->id),
                               SL_DB_P_TEXT(cr->name),
                               SL_DB_P_TEXT(cr->client_type),
                               SL_DB_P_TEXT(cr->credentials_id),
                               SL_DB_P_TEXT(cr->credentials_type),
                               or_null(cr->value),
                               or_null(cr->info)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_UPDATE, row, COLUMN_COUNT - 1}, 1,
                        SL_DB_IDEMPOTENT, sl_repo_on_changed, (void (*)(void))fn, arg);
}

sl_err sl_credentials_remove(sl_db *db, sl_loop *lp, sl_slice id, sl_repo_done_f *fn, void *arg)
{
    const sl_db_value by_id[] = {SL_DB_P_TEXT(id)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_REMOVE, by_id, 1}, 1, 0, sl_repo_on_changed,
                        (void (*)(void))fn, arg);
}

sl_err sl_credentials_get(sl_db *db, sl_loop *lp, sl_slice id, sl_credentials_f *fn, void *arg)
{
    const sl_db_value by_id[] = {SL_DB_P_TEXT(id)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_GET, by_id, 1}, 1, SL_DB_READ, on_rows,
                        (void (*)(void))fn, arg);
}

sl_err sl_credentials_find(sl_db *db, sl_loop *lp, const sl_slice *keys, size_t count,
                           sl_credentials_f *fn, void *arg)
{
    if (count == 0 || count > SL_CREDENTIALS_MAX_KEYS)
        return SL_EINVAL;
    sl_db_value list[SL_CREDENTIALS_MAX_KEYS];
    for (size_t i = 0; i < SL_CREDENTIALS_MAX_KEYS; i++) // one text for all: the last is repeated
        list[i] = SL_DB_P_TEXT(keys[i < count ? i : count - 1]);
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_FIND, list, SL_CREDENTIALS_MAX_KEYS}, 1,
                        SL_DB_READ, on_rows, (void (*)(void))fn, arg);
}

sl_err sl_credentials_list(sl_db *db, sl_loop *lp, const sl_repo_page *page, sl_credentials_f *fn,
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
