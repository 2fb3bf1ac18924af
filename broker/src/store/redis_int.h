/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_int: the inside of the Redis client, shared by redis_client.c (operations and their order),
 * redis_node.c (a server: greeting, scripts, reconnecting) and redis_topology.c (who serves what).
 */
#ifndef SL_STORE_REDIS_INT_H
#define SL_STORE_REDIS_INT_H

#include "base/logger.h"
#include "store/redis_client.h"
#include "store/redis_slot.h"

#define REDIS_LATER_MS     100 /* a server that is not ready is asked again after this */
#define REDIS_BACKOFF_MS   50  /* of the first attempt to reconnect; doubles */
#define REDIS_BACKOFF_MAX  2000
#define REDIS_LOG_BURST    3 /* lines about what does not work in a period */
#define REDIS_LOG_PERIOD   10000
#define REDIS_ADDRESS_TEXT 80

/*   DOWN --dial--> CONNECTING --greeting answered--> READY
 *     ^----------------+------ lost, refused --------+-> STALE (to be closed in the next turn) */
typedef enum redis_node_state {
    REDIS_NODE_DOWN,
    REDIS_NODE_CONNECTING,
    REDIS_NODE_READY,
    REDIS_NODE_STALE
} redis_node_state;

typedef struct sl_redis_node {
    sl_node in_list; /* of the client */
    sl_redis *rd;
    char *host; /* owned */
    uint16_t port;
    redis_node_state state;
    sl_redis_conn *cn;
    bool is_wanted;   /* serves something; else closed when idle */
    unsigned owed;    /* answers of the greeting that are missing */
    unsigned loading; /* answers to SCRIPT LOAD that are missing, after the greeting */
    unsigned failures;
    /* The connection as the server names it; and an older one, which might still do what we sent
     * there: it is killed before anything is sent again. */
    char id[24], address[REDIS_ADDRESS_TEXT];
    char old_id[24], old_address[REDIS_ADDRESS_TEXT];
    sl_timer timer;
    sl_log_limit limit;
} sl_redis_node;

/* Asks for the topology over a connection of its own. */
typedef struct redis_finder {
    sl_redis_conn *cn; /* while asking */
    char *host;        /* owned: of the one asked */
    uint16_t port;
    size_t next; /* candidate to ask next */
    unsigned failures;
    bool is_wanted; /* again, when this one is done */
    sl_redis_call auth, query;
    char *auth_bytes, *query_bytes; /* owned */
    sl_timer timer;
    bool is_waiting; /* the timer runs */
    sl_log_limit limit;
} redis_finder;

/* Operations of one slot, in order: those done or sent first, then those to send. */
typedef struct redis_lane {
    sl_list ops;
    sl_redis_op *next;        /* first one to send */
    struct sl_redis_node *at; /* where the sent ones are */
    unsigned in_flight;
    bool is_disturbed; /* one came back: nothing is sent until all are back */
    bool has_barrier;  /* the one in flight is a barrier */
    sl_mono_ms not_before;
    sl_node waiting; /* of the client, while next is set */
} redis_lane;

struct sl_redis {
    sl_redis_options opt;
    sl_list nodes;
    sl_redis_node *owners[SL_REDIS_SLOTS]; /* CLUSTER */
    size_t owned_slots;
    sl_redis_node *single; /* else */
    redis_finder finder;
    redis_lane *lanes[SL_REDIS_SLOTS]; /* owned; made when first used */
    sl_list waiting;
    size_t open_ops;
    sl_timer later;
    bool is_up;
    bool is_closing;
    uint64_t random;
};

/* redis_client.c */
/** Sends what waits and can go. */
void redis_kick(sl_redis *rd);
/** Operations no longer point to this node. */
void redis_forget_node(sl_redis *rd, const sl_redis_node *nd);
/** Grows with failures, to a limit; a random part keeps many clients apart. */
sl_dur_ms redis_backoff(sl_redis *rd, unsigned failures);

/* redis_node.c */
sl_redis_node *redis_node_new(sl_redis *rd, const char *host, uint16_t port);
void redis_node_free(sl_redis_node **nd);
/** Dials, when it is down. */
void redis_node_connect(sl_redis_node *nd);
/** What it says shows that the connection is of no use: a new one, soon. */
void redis_node_restart(sl_redis_node *nd);
/** Another address for the same role. */
void redis_node_move(sl_redis_node *nd, const char *host, uint16_t port);
/** Loads the scripts (once at a time); what is sent behind it finds them. */
void redis_node_load_scripts(sl_redis_node *nd);

/* redis_topology.c */
void redis_finder_init(sl_redis *rd);
void redis_finder_fini(sl_redis *rd);
/** Asks who serves what, soon; nothing in STANDALONE. */
void redis_find(sl_redis *rd);
/** The node at this address, made when it is new. */
sl_redis_node *redis_node_at(sl_redis *rd, const char *host, uint16_t port);
void redis_own(sl_redis *rd, uint16_t slot, sl_redis_node *nd);
/** "host:port" behind a word and a slot, of MOVED and ASK; a missing host is from's.
 * NULL: not understood. */
sl_redis_node *redis_node_told(sl_redis *rd, const sl_redis_node *from, sl_slice text);
/** Recomputes whether everything is connected, and tells. */
void redis_check_state(sl_redis *rd);

#endif
