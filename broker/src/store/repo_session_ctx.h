/* SPDX-License-Identifier: Apache-2.0
 *
 * repo_session_ctx: tables application_session_ctx and generic_client_session_ctx: what a client's
 * session must remember between connections beside inbox and log: open packet ids, as JSON of their
 * owner. One row per client id and table.
 */
#ifndef SL_STORE_REPO_SESSION_CTX_H
#define SL_STORE_REPO_SESSION_CTX_H

#include "store/repo.h"

/* application_session_ctx */
typedef struct sl_app_ctx {
    sl_slice client_id;
    sl_wall_ms updated;
    sl_slice publishes; /* publish_msg_infos, JSON */
    sl_slice pubrels;   /* pubrel_msg_infos, JSON */
} sl_app_ctx;

/* generic_client_session_ctx */
typedef struct sl_qos2_ctx {
    sl_slice client_id;
    sl_wall_ms updated;
    sl_slice packet_ids; /* qos2_publish_packet_ids, JSON */
} sl_qos2_ctx;

/* ctx: borrowed for the callback, NULL unless err is SL_OK. SL_ENOTFOUND: no such client. */
typedef void sl_app_ctx_f(void *arg, sl_err err, const sl_app_ctx *ctx);
typedef void sl_qos2_ctx_f(void *arg, sl_err err, const sl_qos2_ctx *ctx);

/* All: complete exactly once on lp. put inserts or replaces; remove of nothing is SL_ENOTFOUND.
 * Errors as sl_db_exec: then there is no completion. @thread any */
SL_MUST_USE sl_err sl_app_ctx_get(sl_db *db, sl_loop *lp, sl_slice client_id, sl_app_ctx_f *fn,
                                  void *arg);
SL_MUST_USE sl_err sl_app_ctx_put(sl_db *db, sl_loop *lp, const sl_app_ctx *ctx, sl_repo_done_f *fn,
                                  void *arg);
SL_MUST_USE sl_err sl_app_ctx_remove(sl_db *db, sl_loop *lp, sl_slice client_id, sl_repo_done_f *fn,
                                     void *arg);
SL_MUST_USE sl_err sl_qos2_ctx_get(sl_db *db, sl_loop *lp, sl_slice client_id, sl_qos2_ctx_f *fn,
                                   void *arg);
SL_MUST_USE sl_err sl_qos2_ctx_put(sl_db *db, sl_loop *lp, const sl_qos2_ctx *ctx,
                                   sl_repo_done_f *fn, void *arg);
SL_MUST_USE sl_err sl_qos2_ctx_remove(sl_db *db, sl_loop *lp, sl_slice client_id,
                                      sl_repo_done_f *fn, void *arg);

#endif
