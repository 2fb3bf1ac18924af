/* SPDX-License-Identifier: Apache-2.0
 *
 * db_migrations: the table of steps and the runner. Names of tables and columns are those that TBMQ
 * has for the same thing; types are the few that mean the same in both databases
 * (docs/metadata.md).
 */
#include "store/db_migrations.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"

#define STEP_STATEMENTS 8

typedef struct step {
    const char *statements[STEP_STATEMENTS]; /* ends with NULL */
} step;

/* Step n leads from version n to n + 1. */
static const step STEPS[] = {
    {{"CREATE TABLE admin_settings ("
      " id TEXT NOT NULL PRIMARY KEY,"
      " created_time BIGINT NOT NULL,"
      " key TEXT NOT NULL UNIQUE,"
      " json_value TEXT NOT NULL)"}},
    {{"CREATE TABLE mqtt_client_credentials ("
      " id TEXT NOT NULL PRIMARY KEY,"
      " created_time BIGINT NOT NULL,"
      " name TEXT NOT NULL,"
      " client_type TEXT NOT NULL,"
      " credentials_id TEXT NOT NULL UNIQUE,"
      " credentials_type TEXT NOT NULL,"
      " credentials_value TEXT,"
      " additional_info TEXT)",
      "CREATE INDEX mqtt_client_credentials_created ON mqtt_client_credentials (created_time, "
      "id)"}},
    {{"CREATE TABLE application_session_ctx ("
      " client_id TEXT NOT NULL PRIMARY KEY,"
      " last_updated_time BIGINT NOT NULL,"
      " publish_msg_infos TEXT NOT NULL,"
      " pubrel_msg_infos TEXT NOT NULL)",
      "CREATE TABLE generic_client_session_ctx ("
      " client_id TEXT NOT NULL PRIMARY KEY,"
      " last_updated_time BIGINT NOT NULL,"
      " qos2_publish_packet_ids TEXT NOT NULL)"}},
    {{"CREATE TABLE unauthorized_client ("
      " client_id TEXT NOT NULL PRIMARY KEY,"
      " ip_address TEXT NOT NULL,"
      " ts BIGINT NOT NULL,"
      " username TEXT,"
      " password_provided BOOLEAN NOT NULL,"
      " tls_used BOOLEAN NOT NULL,"
      " reason TEXT NOT NULL)",
      "CREATE INDEX unauthorized_client_ts ON unauthorized_client (ts)"}},
};

#define STEP_COUNT (sizeof(STEPS) / sizeof(STEPS[0]))

unsigned sl_db_schema_version(void)
{
    return STEP_COUNT;
}

static sl_err run(const sl_db_migrator *mg, const char *sql, char **why)
{
    char text[64];
    return mg->run(mg->arg, sql, text, why);
}

static sl_err refuse(char **why, const char *fmt, const char *what)
{
    char text[256];
    snprintf(text, sizeof(text), "the metadata database has a schema %s%s", fmt, what);
    *why = sl_strdup(text);
    return SL_EUNSUPPORTED;
}

static sl_err read_version(const sl_db_migrator *mg, unsigned to, unsigned *from, char **why)
{
    char product[64], text[64];
    sl_err err = run(mg,
                     "CREATE TABLE IF NOT EXISTS tb_schema_settings ("
                     " schema_version BIGINT NOT NULL, product TEXT NOT NULL)",
                     why);
    if (err == SL_OK)
        err = mg->run(mg->arg, "SELECT product FROM tb_schema_settings", product, why);
    if (err == SL_OK)
        err = mg->run(mg->arg, "SELECT schema_version FROM tb_schema_settings", text, why);
    if (err != SL_OK)
        return err;
    if (text[0] == 0) {
        *from = 0;
        return run(mg, "INSERT INTO tb_schema_settings VALUES (0, '" SL_DB_PRODUCT "')", why);
    }
    if (strcmp(product, SL_DB_PRODUCT) != 0)
        return refuse(why, "of another product: ", product);
    char *end;
    unsigned long version = strtoul(text, &end, 10);
    if (*end != 0 || version > to) {
        char needs[160];
        snprintf(needs, sizeof(needs),
                 "%s, newer than this program's %u; start the newer program, or give this one "
                 "another database",
                 text, to);
        return refuse(why, "version ", needs);
    }
    *from = (unsigned)version;
    return SL_OK;
}

sl_err sl_db_migrate(const sl_db_migrator *mg, unsigned to, unsigned *from, char **why)
{
    if (to == 0 || to > STEP_COUNT)
        to = STEP_COUNT;
    *from = 0;
    sl_err err = run(mg, mg->begin, why);
    if (err != SL_OK)
        return err;
    err = read_version(mg, to, from, why);
    for (unsigned at = *from; err == SL_OK && at < to; at++) {
        for (size_t i = 0; err == SL_OK && STEPS[at].statements[i] != NULL; i++)
            err = run(mg, STEPS[at].statements[i], why);
    }
    if (err == SL_OK && *from != to) {
        char update[96];
        snprintf(update, sizeof(update), "UPDATE tb_schema_settings SET schema_version = %u", to);
        err = run(mg, update, why);
    }
    if (err == SL_OK)
        return run(mg, "COMMIT", why);
    char *ignored = NULL; // the first error is the one that says it
    if (run(mg, "ROLLBACK", &ignored) != SL_OK)
        sl_free(ignored);
    return err;
}
