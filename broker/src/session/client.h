/* SPDX-License-Identifier: Apache-2.0
 *
 * client: what the broker knows of one client id, and the registry of all of them. A client exists
 * while it has a connection, a session, or work in its mailbox (counted references). Its parts
 * belong to different threads; a comment at each says which.
 *
 * Dispatch finds clients by the small index that subscriptions carry, inside an RCU read section.
 */
#ifndef SL_SESSION_CLIENT_H
#define SL_SESSION_CLIENT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "actor/actor.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/slice.h"

/* Where a client's connection is: one word, so that dispatch reads it in one load. */
typedef struct sl_route {
    uint32_t slot;   /* of the connection in its loop's table, 24 bits */
    uint32_t gen;    /* of that slot, 24 bits: a closed connection is not mistaken for the next */
    uint8_t loop;    /* index of the I/O loop */
    bool connected;  /* slot, gen and loop count */
    bool persistent; /* QoS 1 and 2 go through the inbox */
} sl_route;

/* A subscription as the session knows it; the trie has the other half. */
typedef struct sl_client_sub {
    uint8_t *filter; /* owned */
    uint32_t filter_len;
    uint32_t sub_id; /* 0: none */
    uint32_t stamp;  /* index of stamps.h; 0: none */
    uint8_t qos;
    uint8_t flags; /* SL_SUB_* of route/sub_trie.h */
} sl_client_sub;

typedef struct sl_registry sl_registry;
struct sl_session_op;
struct sl_will;
struct sl_conn;
struct sl_rcu;

/* The session as the session-event thread keeps it. @thread session loop */
typedef struct sl_session {
    bool exists;
    bool connected;
    bool persistent;
    bool has_expiry;
    bool clean_start;
    bool was_connected_at_start; /* repaired after a crash: its rows may have been sent before */
    bool looked_lost;            /* the last look found it connected, without a connection */
    uint8_t mqtt_version;
    uint16_t keep_alive_s;
    uint32_t expiry_s;
    uint64_t session_id;
    uint64_t generation;
    sl_wall_ms connected_at;
    sl_wall_ms disconnected_at;
    sl_mono_ms idle_since; /* the same for timers of this run; a wall clock jumps */
    struct sl_will *will;  /* owned, NULL: none; will.h */
} sl_session;

typedef struct sl_client {
    uint32_t magic;
    uint32_t index;
    sl_registry *registry; /* borrowed */
    _Atomic uint32_t refs;
    _Atomic uint64_t route_word;
    sl_actor actor;

    /* @thread actor (whoever runs it) */
    struct sl_conn *conn;      /* current connection, referenced; NULL: none */
    struct sl_conn *next_conn; /* waits for the current one to end; referenced */
    sl_client_sub *subs;       /* owned, sub_count entries */
    uint32_t sub_count, sub_cap;
    uint16_t *qos2; /* owned: open inbound QoS 2 packet ids, ascending */
    uint32_t qos2_count, qos2_cap;
    struct sl_session_op *sub_op;      /* subscription record on its way to the log */
    struct sl_session_op *sub_waiting; /* answers that wait for the next record */
    uint8_t actor_state;               /* enum in client_actor.c */
    bool subs_dirty;
    sl_node held_node; /* in the holding loop's list while the actor is held */
    bool persistent;
    _Atomic uint64_t generation; /* dispatch reads it */
    _Atomic bool slow; /* its connection has too much to write: the inbox waits (written by the
                          connection's loop, read by the device loop) */
    uint64_t session_id;

    sl_session session;

    uint32_t id_len;
    uint8_t id[]; /* client identifier, not terminated */
} sl_client;

#define SL_CLIENT_MAGIC 0x51c11e47u

static inline sl_slice sl_client_id(const sl_client *cl)
{
    return sl_slice_of(cl->id, cl->id_len);
}

/** Adds to the client's own list (not to the trie); filter is copied. @thread actor, or init */
void sl_client_add_sub(sl_client *cl, sl_slice filter, const sl_client_sub *sub);
/** @thread any */
sl_route sl_client_route(const sl_client *cl);
/** @thread the client's actor */
void sl_client_set_route(sl_client *cl, sl_route route);

/** rcu: borrowed. handle: of the client actors. max_clients bounds the table (at most 16 million).
 * @thread init */
sl_registry *sl_registry_new(struct sl_rcu *rcu, uint32_t max_clients, sl_actor_f *handle);
/** All references are gone but those of sessions, which it drops. @thread init */
void sl_registry_free(sl_registry **rg);
/** The client of this id, made if missing; the caller gets a reference. SL_ELIMIT when full.
 * @thread any */
SL_MUST_USE sl_err sl_registry_get(sl_registry *rg, sl_slice id, sl_client **out);
/** NULL when unknown; else with a reference. @thread any */
sl_client *sl_registry_find(sl_registry *rg, sl_slice id);
/** The client at an index of a matched subscription, borrowed; NULL when it is gone.
 * @thread any, inside an RCU read section; valid until its end */
sl_client *sl_registry_at(const sl_registry *rg, uint32_t index);
/** @thread any */
void sl_client_ref(sl_client *cl);
/** Gives a reference back and sets *cl to NULL (accepts NULL inside); the last one frees the client
 * once no reader can see it. @thread any, outside a read section */
void sl_client_unref(sl_client **cl);
/** fn for each client, with a reference held during the call. @thread any */
void sl_registry_each(sl_registry *rg, void (*fn)(void *arg, sl_client *cl), void *arg);
uint32_t sl_registry_count(const sl_registry *rg);

#endif
