/* SPDX-License-Identifier: Apache-2.0
 *
 * db_conf: see db_conf.h.
 */
#include "store/db_conf.h"

#include <string.h>

const struct sl_db_ops *sl_db_conf_load(const sl_conf *cf, sl_db_options *out)
{
    *out = (sl_db_options){
        .dir = sl_conf_str(cf, "storage.dir"),
        .fsync = strcmp(sl_conf_str(cf, "storage.durability"), "fsync") == 0,
        .url = sl_conf_str(cf, "spring.datasource.url"),
        .user = sl_conf_str(cf, "spring.datasource.username"),
        .password = sl_conf_str(cf, "spring.datasource.password"),
        .connections = (unsigned)sl_conf_int(cf, "spring.datasource.hikari.maximumPoolSize"),
        .max_lifetime_ms = sl_conf_int(cf, "spring.datasource.hikari.maxLifetime"),
        .wait_ms = sl_conf_int(cf, "spring.datasource.hikari.connectionTimeout"),
        .connect_ms = sl_conf_int(cf, "sql.connect-timeout"),
        .statement_ms = sl_conf_int(cf, "sql.statement-timeout"),
        .max_queued = (size_t)sl_conf_int(cf, "sql.queue-max"),
        .max_queued_bytes = (size_t)sl_conf_int(cf, "sql.queue-max-bytes"),
    };
    return strcmp(sl_conf_str(cf, "storage.metadata"), "postgres") == 0 ? &sl_db_postgres_ops
                                                                        : &sl_db_sqlite_ops;
}
