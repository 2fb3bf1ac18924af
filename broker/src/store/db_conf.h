/* SPDX-License-Identifier: Apache-2.0
 *
 * db_conf: the settings of the metadata database: rows for the broker's table, and the options made
 * of them. Names of environment variables are TBMQ's where TBMQ has the setting.
 */
#ifndef SL_STORE_DB_CONF_H
#define SL_STORE_DB_CONF_H

#include "base/conf.h"
#include "store/db.h"

/* clang-format off */
#define SL_DB_CONF_TEXT(key, env, def, secret, help) \
    {key, env, SL_CONF_STRING, def, 0, 0, NULL, NULL, secret, help}
#define SL_DB_CONF_INT(key, env, def, min, max, unit, help) \
    {key, env, SL_CONF_INT, def, min, max, NULL, unit, false, help}

/* Elements of a table of sl_conf_row. The URL is a secret since it may hold a password. */
#define SL_DB_CONF_CHOICE \
    {"storage.metadata", "SLUICE_METADATA", SL_CONF_ENUM, "sqlite", 0, 0, "sqlite|postgres", NULL, \
     false, "Where settings and credentials are: metadata.db in the data folder, or PostgreSQL " \
     "(spring.datasource.*)."}
#define SL_DB_CONF_ROWS \
    SL_DB_CONF_TEXT("spring.datasource.url", "SPRING_DATASOURCE_URL", \
        "jdbc:postgresql://localhost:5432/thingsboard_mqtt_broker", true, \
        "The database (PostgreSQL): postgresql://host:port/name with options of libpq, several " \
        "hosts with commas; the form with jdbc: is understood."), \
    SL_DB_CONF_TEXT("spring.datasource.username", "SPRING_DATASOURCE_USERNAME", "postgres", false, \
        "Its user, unless the URL names one."), \
    SL_DB_CONF_TEXT("spring.datasource.password", "SPRING_DATASOURCE_PASSWORD", "postgres", true, \
        "Its password, unless the URL has one."), \
    SL_DB_CONF_INT("spring.datasource.hikari.maximumPoolSize", "SPRING_DATASOURCE_MAXIMUM_POOL_SIZE", \
        "16", 1, 128, NULL, "Connections at most; one more watches the server."), \
    SL_DB_CONF_INT("spring.datasource.hikari.maxLifetime", "SPRING_DATASOURCE_MAX_LIFETIME", "600000", \
        1000, 86400000, "ms", "A connection older than this is replaced when it is idle."), \
    SL_DB_CONF_INT("spring.datasource.hikari.connectionTimeout", \
        "SPRING_DATASOURCE_CONNECTION_TIMEOUT_MS", "30000", 100, 3600000, "ms", \
        "How long a request may wait for the database, either kind; then it fails unexecuted."), \
    SL_DB_CONF_INT("sql.connect-timeout", "SLUICE_DB_CONNECT_TIMEOUT_MS", "5000", 100, 600000, "ms", \
        "How long one attempt to connect may take."), \
    SL_DB_CONF_INT("sql.statement-timeout", "SLUICE_DB_STATEMENT_TIMEOUT_MS", "30000", 100, 3600000, \
        "ms", "A statement that runs longer is undone."), \
    SL_DB_CONF_INT("sql.queue-max", "SLUICE_DB_QUEUE_MAX", "10000", 16, 1000000, "requests", \
        "Requests that may wait for the database; more are refused and counted."), \
    SL_DB_CONF_INT("sql.queue-max-bytes", "SLUICE_DB_QUEUE_MAX_BYTES", "67108864", 1048576, 4294967296, \
        "bytes", "Bytes of these.")
/* clang-format on */

/** The adapter and its options in a loaded configuration, whose strings are borrowed. @thread init
 */
const struct sl_db_ops *sl_db_conf_load(const sl_conf *cf, sl_db_options *out);

#endif
