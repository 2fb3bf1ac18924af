/* SPDX-License-Identifier: Apache-2.0
 *
 * repo_settings: table admin_settings: JSON documents by key. Not for configuration (conf.h).
 */
#ifndef SL_STORE_REPO_SETTINGS_H
#define SL_STORE_REPO_SETTINGS_H

#include "store/repo.h"

typedef struct sl_setting {
    sl_slice id, key, json; /* borrowed for the callback */
    sl_wall_ms created;
} sl_setting;

/* st: NULL unless err is SL_OK. SL_ENOTFOUND: no such key. */
typedef void sl_setting_f(void *arg, sl_err err, const sl_setting *st);

/* All: complete exactly once on lp. Errors as sl_db_exec: then there is no completion.
 * @thread any */

SL_MUST_USE sl_err sl_settings_get(sl_db *db, sl_loop *lp, sl_slice key, sl_setting_f *fn,
                                   void *arg);
/** Inserts or replaces the document; a replaced one keeps id and creation time. */
SL_MUST_USE sl_err sl_settings_put(sl_db *db, sl_loop *lp, sl_slice key, sl_slice json,
                                   sl_wall_ms now, sl_repo_done_f *fn, void *arg);
/** Inserts unless the key is there; completes with what is there then. */
SL_MUST_USE sl_err sl_settings_ensure(sl_db *db, sl_loop *lp, sl_slice key, sl_slice json,
                                      sl_wall_ms now, sl_setting_f *fn, void *arg);
/** SL_ENOTFOUND: there was none. */
SL_MUST_USE sl_err sl_settings_remove(sl_db *db, sl_loop *lp, sl_slice key, sl_repo_done_f *fn,
                                      void *arg);

#endif
