/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_client: an asynchronous client of Redis or Valkey: one server, the master that Sentinels
 * name, or a Cluster. Pipelined; reconnects for ever. An operation is tried until Redis gives a
 * final answer: a lost connection, a moved slot, a script that is not loaded or a server that is
 * not ready yet only delay it. It may then have been done more than once; op->is_repeated says so.
 *
 * Order: operations on keys of one slot (see redis_slot.h) are done and complete in the order in
 * which they were submitted. Only when a server refuses one "for now" and takes the next, the
 * refused one is done behind it; one with is_barrier is never in flight together with others of its
 * slot.
 *
 * Everything on its loop. Not bounded by itself: whoever submits bounds what is open.
 */
#ifndef SL_STORE_REDIS_CLIENT_H
#define SL_STORE_REDIS_CLIENT_H

#include "store/redis_conn.h"

typedef struct sl_redis sl_redis;

typedef enum sl_redis_mode {
    SL_REDIS_STANDALONE,
    SL_REDIS_SENTINEL,
    SL_REDIS_CLUSTER
} sl_redis_mode;

typedef struct sl_redis_address {
    char *host; /* owned by whoever made the list */
    uint16_t port;
} sl_redis_address;

#define SL_REDIS_SHA_BYTES 41

/* A Lua script, loaded at every server before anything else is sent there. */
typedef struct sl_redis_script {
    const char *text;
    char sha[SL_REDIS_SHA_BYTES]; /* hex, by sl_redis_script_name */
} sl_redis_script;

/** Fills script->sha. @thread any */
void sl_redis_script_name(sl_redis_script *script);

typedef struct sl_redis_options {
    sl_loop *lp;
    sl_pool *pool;         /* as in sl_redis_conn_options */
    sl_redis_dial_f *dial; /* NULL: TCP */
    void *dial_arg;
    sl_redis_mode mode;
    const sl_redis_address
        *seeds; /* the server; the Sentinels; some nodes. Borrowed for the life */
    size_t seed_count;
    sl_tls_ctx *tls;      /* borrowed for the life; NULL: without TLS. Sentinels too */
    const char *master;   /* SENTINEL: its name there */
    const char *username; /* "" the default user */
    const char *password; /* "" none */
    const char *sentinel_password;
    const char *name; /* of the connections, as CLIENT LIST shows it */
    unsigned database;
    sl_dur_ms connect_timeout;
    sl_dur_ms reply_timeout;
    const sl_redis_script *scripts; /* borrowed for the life */
    size_t script_count;
    /* Every server that is needed is connected (or not any longer). May be NULL. */
    void (*on_state)(void *arg, bool is_up);
    void *arg;
} sl_redis_options;

typedef struct sl_redis_op {
    /* Last call, the op is the caller's again. reply is borrowed for it; NULL: the client was
     * closed. */
    void (*done)(struct sl_redis_op *op, const sl_redis_reply *reply);
    char *bytes; /* owned until done */
    size_t len;
    uint16_t slot;
    bool is_barrier;
    bool is_repeated; /* result: its answer was lost once: it may have been done more than once */

    /* private */
    sl_redis_call _call;
    sl_redis_call _asking;
    sl_node _node;              /* of its lane */
    struct sl_redis_node *_at;  /* while sent */
    struct sl_redis_node *_ask; /* not the slot's owner: where this one is to be asked */
    sl_redis_reply *_reply;     /* owned: the final one, while others of the lane are before it */
    struct sl_redis *_rd;
    unsigned _tries;
    uint8_t _state;
} sl_redis_op;

/** Formats the command. key: any of the keys it uses. @thread any */
void sl_redis_op_init(sl_redis_op *op, sl_slice key, const sl_slice *argv, size_t argc,
                      void (*done)(sl_redis_op *op, const sl_redis_reply *reply));
/** Frees the command of an operation that was never submitted. @thread any */
void sl_redis_op_fini(sl_redis_op *op);

/** Begins to connect; never fails: an unreachable server is tried again. @thread loop */
sl_redis *sl_redis_new(const sl_redis_options *options);
/** Open operations complete with a NULL reply, inside this call; connections end in later turns.
 * Sets *rd to NULL. @thread loop */
void sl_redis_close(sl_redis **rd);
/** Completes by op->done, never inside this call. @thread loop */
void sl_redis_submit(sl_redis *rd, sl_redis_op *op);
/** Sends what was submitted. @thread loop */
void sl_redis_flush(sl_redis *rd);
/** Operations submitted and not done. @thread loop */
size_t sl_redis_open_ops(const sl_redis *rd);
/** Some server is connected, or is being connected right now. @thread loop */
bool sl_redis_is_trying(const sl_redis *rd);

#endif
