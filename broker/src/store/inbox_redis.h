/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_redis: the inbox adapter on Redis, Valkey or a Cluster of them: what it needs to know. The
 * keys are explained in docs/redis.md. Only the composition of the broker (device.c) and tests see
 * this; the port is inbox.h.
 */
#ifndef SL_STORE_INBOX_REDIS_H
#define SL_STORE_INBOX_REDIS_H

#include "store/inbox.h"
#include "store/redis_client.h"

/* Handed over in sl_inbox_options.redis; made by inbox_redis_conf.c. */
typedef struct sl_inbox_redis_options {
    sl_redis_mode mode;
    sl_redis_address *seeds; /* owned, as in sl_redis_options */
    size_t seed_count;
    sl_tls_ctx *tls;    /* owned; NULL: without TLS */
    const char *master; /* texts are borrowed for the life of the inbox */
    const char *username;
    const char *password;
    const char *sentinel_password;
    const char *prefix; /* of every key; no braces */
    const char *name;   /* of the connections */
    unsigned database;
    sl_dur_ms connect_timeout;
    sl_dur_ms reply_timeout;
} sl_inbox_redis_options;

extern const sl_inbox_ops sl_inbox_redis_ops;

#endif
