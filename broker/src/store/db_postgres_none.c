/* SPDX-License-Identifier: Apache-2.0
 *
 * db_postgres_none: stands for db_postgres.c in a build without libpq (SL_WITH_POSTGRES=OFF).
 */
#include "base/alloc.h"
#include "store/db.h"

static sl_err no_open(sl_db *db, void **self, char **why)
{
    (void)db;
    (void)self;
    *why = sl_strdup("storage.metadata (SLUICE_METADATA): this build has no PostgreSQL "
                     "(SL_WITH_POSTGRES)");
    return SL_EUNSUPPORTED;
}

static void no_close(void *self)
{
    (void)self;
}

const sl_db_ops sl_db_postgres_ops = {.name = "postgres", .open = no_open, .close = no_close};
