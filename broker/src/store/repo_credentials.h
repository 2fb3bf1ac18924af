/* SPDX-License-Identifier: Apache-2.0
 *
 * repo_credentials: table mqtt_client_credentials. credentials_id is what a client is found by
 * (user name, client id, certificate name, ... as auth makes it); credentials_value is that
 * provider's JSON, password hashes included. What they mean is auth's business.
 */
#ifndef SL_STORE_REPO_CREDENTIALS_H
#define SL_STORE_REPO_CREDENTIALS_H

#include "store/repo.h"

#define SL_CREDENTIALS_MAX_KEYS 8 /* of one search */

typedef struct sl_credentials {
    sl_slice id; /* UUID */
    sl_wall_ms created;
    sl_slice name;
    sl_slice client_type;      /* DEVICE, APPLICATION */
    sl_slice credentials_id;   /* unique */
    sl_slice credentials_type; /* MQTT_BASIC, X_509, SCRAM, ... */
    sl_slice value;            /* JSON or empty */
    sl_slice info;             /* JSON or empty */
} sl_credentials;

/* rows: borrowed for the callback; total: rows that fit, of all pages. */
typedef void sl_credentials_f(void *arg, sl_err err, const sl_credentials *rows, size_t count,
                              size_t total);

/* All: complete exactly once on lp. Errors as sl_db_exec: then there is no completion.
 * @thread any */

/** SL_EEXIST: id or credentials_id is taken. */
SL_MUST_USE sl_err sl_credentials_insert(sl_db *db, sl_loop *lp, const sl_credentials *cr,
                                         sl_repo_done_f *fn, void *arg);
/** All but id and created. SL_ENOTFOUND no such id; SL_EEXIST credentials_id is another's. */
SL_MUST_USE sl_err sl_credentials_update(sl_db *db, sl_loop *lp, const sl_credentials *cr,
                                         sl_repo_done_f *fn, void *arg);
/** SL_ENOTFOUND: no such id. */
SL_MUST_USE sl_err sl_credentials_remove(sl_db *db, sl_loop *lp, sl_slice id, sl_repo_done_f *fn,
                                         void *arg);
/** One row or none (count 0 is no error). */
SL_MUST_USE sl_err sl_credentials_get(sl_db *db, sl_loop *lp, sl_slice id, sl_credentials_f *fn,
                                      void *arg);
/** All rows whose credentials_id is one of keys (1..SL_CREDENTIALS_MAX_KEYS), in no order.
 * Errors SL_EINVAL another number of keys. */
SL_MUST_USE sl_err sl_credentials_find(sl_db *db, sl_loop *lp, const sl_slice *keys, size_t count,
                                       sl_credentials_f *fn, void *arg);
/** By creation, newest first. Errors SL_EINVAL a page without limit or over SL_REPO_MAX_PAGE. */
SL_MUST_USE sl_err sl_credentials_list(sl_db *db, sl_loop *lp, const sl_repo_page *page,
                                       sl_credentials_f *fn, void *arg);

#endif
