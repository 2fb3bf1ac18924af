/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis_conf: the settings of the Redis inbox: rows for the broker's table, and the options
 * made of them. Names of environment variables are TBMQ's. inbox_redis_none.c takes the place of
 * inbox_redis_conf.c in a build without Redis (SL_WITH_REDIS=OFF).
 */
#ifndef SL_STORE_INBOX_REDIS_CONF_H
#define SL_STORE_INBOX_REDIS_CONF_H

#include "base/conf.h"
#include "store/inbox.h"

/* clang-format off */
#define SL_INBOX_REDIS_TEXT(key, env, def, secret, help) \
    {key, env, SL_CONF_STRING, def, 0, 0, NULL, NULL, secret, help}
#define SL_INBOX_REDIS_INT(key, env, def, min, max, unit, help) \
    {key, env, SL_CONF_INT, def, min, max, NULL, unit, false, help}

/* Elements of a table of sl_conf_row. */
#define SL_INBOX_REDIS_CONF_ROWS \
    {"redis.connection.type", "REDIS_CONNECTION_TYPE", SL_CONF_ENUM, "standalone", 0, 0, \
     "standalone|sentinel|cluster", NULL, false, \
     "One server, the master that Sentinels name, or a Redis Cluster."}, \
    SL_INBOX_REDIS_TEXT("redis.standalone.host", "REDIS_HOST", "localhost", false, \
        "Name or address of the server (standalone)."), \
    SL_INBOX_REDIS_INT("redis.standalone.port", "REDIS_PORT", "6379", 1, 65535, NULL, \
        "Its port."), \
    SL_INBOX_REDIS_TEXT("redis.cluster.nodes", "REDIS_NODES", "", false, \
        "Some nodes of the cluster, host:port with commas; the others are learned from them."), \
    SL_INBOX_REDIS_TEXT("redis.sentinel.master", "REDIS_MASTER", "", false, \
        "Name of the master that the Sentinels watch."), \
    SL_INBOX_REDIS_TEXT("redis.sentinel.sentinels", "REDIS_SENTINELS", "", false, \
        "The Sentinels, host:port with commas."), \
    SL_INBOX_REDIS_TEXT("redis.sentinel.password", "REDIS_SENTINEL_PASSWORD", "", true, \
        "Password of the Sentinels themselves."), \
    SL_INBOX_REDIS_INT("redis.db", "REDIS_DB", "0", 0, 65535, NULL, \
        "Database number; a cluster has only 0."), \
    SL_INBOX_REDIS_TEXT("redis.username", "REDIS_USERNAME", "", false, \
        "ACL user; empty: the default user."), \
    SL_INBOX_REDIS_TEXT("redis.password", "REDIS_PASSWORD", "", true, \
        "Password of the servers."), \
    {"redis.ssl.enabled", "REDIS_SSL_ENABLED", SL_CONF_BOOL, "false", 0, 0, NULL, NULL, false, \
     "TLS to all servers and Sentinels, which must have certificates for the names or addresses " \
     "under which they are reached (a cluster: under which its nodes announce themselves)."}, \
    SL_INBOX_REDIS_TEXT("redis.ssl.cert-file", "REDIS_SSL_CERT_FILE", "", false, \
        "PEM file of the CA certificates that are trusted; empty: the system's."), \
    SL_INBOX_REDIS_TEXT("redis.ssl.user-cert-file", "REDIS_SSL_USER_CERT_FILE", "", false, \
        "PEM file of our own certificate and its chain, for servers that ask for one."), \
    SL_INBOX_REDIS_TEXT("redis.ssl.user-key-file", "REDIS_SSL_USER_KEY_FILE", "", false, \
        "PEM file of its key; empty: the key is in the certificate's file."), \
    SL_INBOX_REDIS_INT("redis.connect-timeout", "REDIS_CLIENT_CONNECT_TIMEOUT", "5000", 100, 600000, \
        "ms", "How long connecting may take before the next attempt."), \
    SL_INBOX_REDIS_INT("redis.command-timeout", "REDIS_LETTUCE_COMMAND_TIMEOUT_SEC", "10", 1, 3600, \
        "s", "A server that owes answers and sends nothing for so long is connected to anew; what " \
        "it did not answer is sent again."), \
    SL_INBOX_REDIS_TEXT("cache.cache-prefix", "CACHE_PREFIX", "", false, \
        "Put in front of every Redis key, for a Redis that is shared. No braces.")
/* clang-format on */

/** The options of a loaded configuration, owned by the caller, and the adapter they are for; cf
 * lives on. Errors SL_EINVAL, SL_EUNSUPPORTED; *why: an owned message. @thread init */
SL_MUST_USE sl_err sl_inbox_redis_load(const sl_conf *cf, struct sl_inbox_redis_options **out,
                                       const struct sl_inbox_ops **ops, char **why);
/** Sets *options to NULL; accepts NULL inside. */
void sl_inbox_redis_options_free(struct sl_inbox_redis_options **options);

#endif
