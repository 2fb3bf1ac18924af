/* SPDX-License-Identifier: Apache-2.0
 *
 * repo_settings: see repo_settings.h.
 */
#include "store/repo_settings.h"

#include "base/alloc.h"

#define SQL_GET "SELECT id, key, json_value, created_time FROM admin_settings WHERE key = $1"
#define SQL_INSERT                                                                                 \
    "INSERT INTO admin_settings (id, created_time, key, json_value)"                               \
    " VALUES ($1, $2, $3, $4) ON CONFLICT (key) DO "
#define SQL_PUT    SQL_INSERT "UPDATE SET json_value = excluded.json_value"
#define SQL_ENSURE SQL_INSERT "NOTHING"
#define SQL_REMOVE "DELETE FROM admin_settings WHERE key = $1"

// The row of the last statement, which is SQL_GET.
static void on_setting(void *arg, const sl_db_done *done)
{
    sl_repo_call *call = arg;
    sl_setting st, *found = NULL;
    sl_err err = done->err;
    if (err == SL_OK) {
        const sl_db_result *res = &done->results[done->result_count - 1];
        err = res->row_count == 0 ? SL_ENOTFOUND : SL_OK;
        if (err == SL_OK) {
            st = (sl_setting){.id = sl_db_get_slice(res, 0, 0),
                              .key = sl_db_get_slice(res, 0, 1),
                              .json = sl_db_get_slice(res, 0, 2),
                              .created = sl_db_get_int(res, 0, 3)};
            found = &st;
        }
    }
    ((sl_setting_f *)call->fn)(call->arg, err, found);
    sl_free(call);
}

sl_err sl_settings_get(sl_db *db, sl_loop *lp, sl_slice key, sl_setting_f *fn, void *arg)
{
    const sl_db_value by_key[] = {SL_DB_P_TEXT(key)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_GET, by_key, 1}, 1, SL_DB_READ, on_setting,
                        (void (*)(void))fn, arg);
}

sl_err sl_settings_put(sl_db *db, sl_loop *lp, sl_slice key, sl_slice json, sl_wall_ms now,
                       sl_repo_done_f *fn, void *arg)
{
    char id[SL_REPO_ID_BYTES];
    sl_repo_new_id(id);
    const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(id)), SL_DB_P_INT(now), SL_DB_P_TEXT(key),
                               SL_DB_P_TEXT(json)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_PUT, row, 4}, 1, SL_DB_IDEMPOTENT,
                        sl_repo_on_done, (void (*)(void))fn, arg);
}

sl_err sl_settings_ensure(sl_db *db, sl_loop *lp, sl_slice key, sl_slice json, sl_wall_ms now,
                          sl_setting_f *fn, void *arg)
{
    char id[SL_REPO_ID_BYTES];
    sl_repo_new_id(id);
    const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(id)), SL_DB_P_INT(now), SL_DB_P_TEXT(key),
                               SL_DB_P_TEXT(json)};
    const sl_db_stmt stmts[] = {{SQL_ENSURE, row, 4}, {SQL_GET, &row[2], 1}};
    return sl_repo_exec(db, lp, stmts, 2, SL_DB_IDEMPOTENT, on_setting, (void (*)(void))fn, arg);
}

sl_err sl_settings_remove(sl_db *db, sl_loop *lp, sl_slice key, sl_repo_done_f *fn, void *arg)
{
    const sl_db_value by_key[] = {SL_DB_P_TEXT(key)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){SQL_REMOVE, by_key, 1}, 1, 0, sl_repo_on_changed,
                        (void (*)(void))fn, arg);
}
