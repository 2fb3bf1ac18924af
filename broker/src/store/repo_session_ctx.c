/* SPDX-License-Identifier: Apache-2.0
 *
 * repo_session_ctx: see repo_session_ctx.h.
 */
#include "store/repo_session_ctx.h"

#include "base/alloc.h"

static const char SQL_APP_GET[] =
    "SELECT client_id, last_updated_time, publish_msg_infos, pubrel_msg_infos"
    " FROM application_session_ctx WHERE client_id = $1";
static const char SQL_APP_PUT[] =
    "INSERT INTO application_session_ctx"
    " (client_id, last_updated_time, publish_msg_infos, pubrel_msg_infos) VALUES ($1, $2, $3, $4)"
    " ON CONFLICT (client_id) DO UPDATE SET last_updated_time = excluded.last_updated_time,"
    " publish_msg_infos = excluded.publish_msg_infos, pubrel_msg_infos = excluded.pubrel_msg_infos";
static const char SQL_APP_REMOVE[] = "DELETE FROM application_session_ctx WHERE client_id = $1";
static const char SQL_QOS2_GET[] = "SELECT client_id, last_updated_time, qos2_publish_packet_ids"
                                   " FROM generic_client_session_ctx WHERE client_id = $1";
static const char SQL_QOS2_PUT[] =
    "INSERT INTO generic_client_session_ctx"
    " (client_id, last_updated_time, qos2_publish_packet_ids) VALUES ($1, $2, $3)"
    " ON CONFLICT (client_id) DO UPDATE SET last_updated_time = excluded.last_updated_time,"
    " qos2_publish_packet_ids = excluded.qos2_publish_packet_ids";
static const char SQL_QOS2_REMOVE[] = "DELETE FROM generic_client_session_ctx WHERE client_id = $1";

static sl_err err_of(const sl_db_done *done)
{
    if (done->err != SL_OK)
        return done->err;
    return done->results[0].row_count == 0 ? SL_ENOTFOUND : SL_OK;
}

static void on_app_ctx(void *arg, const sl_db_done *done)
{
    sl_repo_call *call = arg;
    sl_err err = err_of(done);
    sl_app_ctx ctx = {.updated = 0};
    if (err == SL_OK) {
        const sl_db_result *res = &done->results[0];
        ctx = (sl_app_ctx){.client_id = sl_db_get_slice(res, 0, 0),
                           .updated = sl_db_get_int(res, 0, 1),
                           .publishes = sl_db_get_slice(res, 0, 2),
                           .pubrels = sl_db_get_slice(res, 0, 3)};
    }
    ((sl_app_ctx_f *)call->fn)(call->arg, err, err == SL_OK ? &ctx : NULL);
    sl_free(call);
}

static void on_qos2_ctx(void *arg, const sl_db_done *done)
{
    sl_repo_call *call = arg;
    sl_err err = err_of(done);
    sl_qos2_ctx ctx = {.updated = 0};
    if (err == SL_OK) {
        const sl_db_result *res = &done->results[0];
        ctx = (sl_qos2_ctx){.client_id = sl_db_get_slice(res, 0, 0),
                            .updated = sl_db_get_int(res, 0, 1),
                            .packet_ids = sl_db_get_slice(res, 0, 2)};
    }
    ((sl_qos2_ctx_f *)call->fn)(call->arg, err, err == SL_OK ? &ctx : NULL);
    sl_free(call);
}

static sl_err get(sl_db *db, sl_loop *lp, const char *sql, sl_slice client_id, sl_db_done_f *bridge,
                  void (*fn)(void), void *arg)
{
    const sl_db_value by_client[] = {SL_DB_P_TEXT(client_id)};
    return sl_repo_exec(db, lp, &(sl_db_stmt){sql, by_client, 1}, 1, SL_DB_READ, bridge, fn, arg);
}

static sl_err change(sl_db *db, sl_loop *lp, const sl_db_stmt *stmt, unsigned flags,
                     sl_repo_done_f *fn, void *arg)
{
    return sl_repo_exec(db, lp, stmt, 1, flags, sl_repo_on_changed, (void (*)(void))fn, arg);
}

sl_err sl_app_ctx_get(sl_db *db, sl_loop *lp, sl_slice client_id, sl_app_ctx_f *fn, void *arg)
{
    return get(db, lp, SQL_APP_GET, client_id, on_app_ctx, (void (*)(void))fn, arg);
}

sl_err sl_app_ctx_put(sl_db *db, sl_loop *lp, const sl_app_ctx *ctx, sl_repo_done_f *fn, void *arg)
{
    const sl_db_value row[] = {SL_DB_P_TEXT(ctx->client_id), SL_DB_P_INT(ctx->updated),
                               SL_DB_P_TEXT(ctx->publishes), SL_DB_P_TEXT(ctx->pubrels)};
    return change(db, lp, &(sl_db_stmt){SQL_APP_PUT, row, 4}, SL_DB_IDEMPOTENT, fn, arg);
}

sl_err sl_app_ctx_remove(sl_db *db, sl_loop *lp, sl_slice client_id, sl_repo_done_f *fn, void *arg)
{
    const sl_db_value by_client[] = {SL_DB_P_TEXT(client_id)};
    return change(db, lp, &(sl_db_stmt){SQL_APP_REMOVE, by_client, 1}, 0, fn, arg);
}

sl_err sl_qos2_ctx_get(sl_db *db, sl_loop *lp, sl_slice client_id, sl_qos2_ctx_f *fn, void *arg)
{
    return get(db, lp, SQL_QOS2_GET, client_id, on_qos2_ctx, (void (*)(void))fn, arg);
}

sl_err sl_qos2_ctx_put(sl_db *db, sl_loop *lp, const sl_qos2_ctx *ctx, sl_repo_done_f *fn,
                       void *arg)
{
    const sl_db_value row[] = {SL_DB_P_TEXT(ctx->client_id), SL_DB_P_INT(ctx->updated),
                               SL_DB_P_TEXT(ctx->packet_ids)};
    return change(db, lp, &(sl_db_stmt){SQL_QOS2_PUT, row, 3}, SL_DB_IDEMPOTENT, fn, arg);
}

sl_err sl_qos2_ctx_remove(sl_db *db, sl_loop *lp, sl_slice client_id, sl_repo_done_f *fn, void *arg)
{
    const sl_db_value by_client[] = {SL_DB_P_TEXT(client_id)};
    return change(db, lp, &(sl_db_stmt){SQL_QOS2_REMOVE, by_client, 1}, 0, fn, arg);
}
