/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_conn: one pipelined connection to one Redis server: dials, writes calls in order, gives
 * each its reply in order. Knows nothing of what the calls say, and does not reconnect: that is the
 * client's (redis_client.c). Everything on its loop.
 */
#ifndef SL_STORE_REDIS_CONN_H
#define SL_STORE_REDIS_CONN_H

#include "base/list.h"
#include "loop/pool.h"
#include "net/tls.h"
#include "store/redis_reply.h"

typedef struct sl_redis_conn sl_redis_conn;

/* A command on its way; the caller's storage, from sl_redis_conn_send to done. */
typedef struct sl_redis_call {
    sl_node _node;
    const char *bytes; /* borrowed until done */
    size_t len;
    bool is_sent; /* bytes of it left: the server may have done it even if no reply came */
    /* The reply is the callee's to take (set *reply to NULL) or is freed; NULL inside: the
     * connection ended first. */
    void (*done)(struct sl_redis_call *call, sl_redis_reply **reply);
} sl_redis_call;

/* A connected, non-blocking socket or a negative errno value; blocks. @thread pool */
typedef int sl_redis_dial_f(void *arg, const char *host, uint16_t port, sl_dur_ms timeout);

typedef struct sl_redis_conn_options {
    sl_loop *lp;
    sl_pool *pool; /* NULL: dial does not block and is called from the loop (tests) */
    sl_redis_dial_f *dial;
    void *dial_arg;
    const char *host; /* copied */
    sl_tls_ctx *tls;  /* borrowed until on_open or the end; NULL: none. Verified for host */
    uint16_t port;
    sl_dur_ms connect_timeout; /* of the dialling, and again of the TLS handshake */
    sl_dur_ms reply_timeout;   /* no byte came for so long although a reply is owed: it ends */
    /* Neither is called after sl_redis_conn_close, or inside a call of the user. on_down: to be
     * closed now, which gives its calls back; why is borrowed for the call. */
    void (*on_open)(void *arg);
    void (*on_down)(void *arg, sl_err err, const char *why);
    void *arg;
} sl_redis_conn_options;

/** Begins to dial. @thread loop */
sl_redis_conn *sl_redis_conn_new(const sl_redis_conn_options *options);
/** Calls that are open are done without a reply first. Sets *cn to NULL. @thread loop */
void sl_redis_conn_close(sl_redis_conn **cn);
/** Queues a call; the caller bounds how many. It leaves with the next flush. @thread loop */
void sl_redis_conn_send(sl_redis_conn *cn, sl_redis_call *call);
/** Writes what is queued, as far as the socket takes it. @thread loop */
void sl_redis_conn_flush(sl_redis_conn *cn);
bool sl_redis_conn_is_idle(const sl_redis_conn *cn);

#endif
