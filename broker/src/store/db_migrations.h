/* SPDX-License-Identifier: Apache-2.0
 *
 * db_migrations: the schema of the metadata database as numbered steps, one SQL text for SQLite and
 * PostgreSQL, and the runner that brings a database to the newest step in one transaction. A step
 * that was released is never changed: what is wrong in it is mended by a later one.
 */
#ifndef SL_STORE_DB_MIGRATIONS_H
#define SL_STORE_DB_MIGRATIONS_H

#include <stdint.h>

#include "base/err.h"

#define SL_DB_PRODUCT "sluice"

/* A connection that the runner works on, blocking. */
typedef struct sl_db_migrator {
    const char *begin; /* starts a transaction in which no other process migrates */
    /* Runs one statement without parameters. text: first column of the first row, "" when there is
     * none. On error *why is set as by the runner. */
    sl_err (*run)(void *arg, const char *sql, char text[64], char **why);
    void *arg;
} sl_db_migrator;

/** The newest schema version of this program. @thread any */
unsigned sl_db_schema_version(void);
/** Brings the schema to version to (0: the newest). *from: what was found. *why: owned message.
 * Errors SL_EUNSUPPORTED schema newer than to or of another product; those of run.
 * @thread pool */
SL_MUST_USE sl_err sl_db_migrate(const sl_db_migrator *mg, unsigned to, unsigned *from, char **why);

#endif
