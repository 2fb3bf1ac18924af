/* SPDX-License-Identifier: Apache-2.0
 *
 * client_actor: the rules of MQTT for one client id: CONNECT and takeover, PUBLISH into the log,
 * SUBSCRIBE, PUBREL, DISCONNECT. Handles items one at a time on whichever I/O loop won the actor;
 * it never blocks.
 *
 *   NONE --CONNECT--> WAITING (session event under way) --response--> LIVE --END--> ENDING
 *     ^<-------------------- refused ----------'                                    |
 *     '---------------------- the end is in the log; now the next CONNECT ----------'
 */
#ifndef SL_SESSION_CLIENT_ACTOR_H
#define SL_SESSION_CLIENT_ACTOR_H

#include "actor/actor.h"
#include "session/conn.h"

enum {
    SL_ITEM_CONNECT = 1, /* conn has decoded a CONNECT */
    SL_ITEM_PACKETS,     /* body[off..end) holds whole packets of conn */
    SL_ITEM_END,         /* conn is over; nothing comes behind */
    SL_ITEM_ENDED,       /* the end of the last connection is in the log */
    SL_ITEM_RESPONSE,    /* the session thread's answer */
    SL_ITEM_STORE_SUBS,  /* the changed list could not be sent to the log: again */
    SL_ITEM_SUBS_STORED, /* the subscription record is stored (or not: err) */
    SL_ITEM_QOS2_FAILED, /* packet_id was not stored */
    SL_ITEM_CLEAR        /* the session has expired or lost its connection unnoticed */
};

/* The session thread's answer to a CONNECT. */
typedef struct sl_session_answer {
    bool success;
    bool session_present;
    bool persistent;
    bool dup_old; /* a crash cut the last connection: old rows of the inbox may have been sent */
    sl_mqtt_rc rc;
    uint64_t session_id;
    uint64_t generation;
    uint16_t *open_qos2; /* owned, ascending */
    uint32_t open_qos2_count;
} sl_session_answer;

typedef struct sl_client_item {
    sl_actor_item item;
    sl_conn *conn; /* referenced, or NULL */
    sl_rbuf *body; /* referenced, or NULL */
    uint32_t off, end;
    uint32_t seq, seq_end; /* acknowledgement slots of the packets in body */
    sl_session_answer answer;
    sl_err err;
    uint64_t session_id; /* CLEAR */
    uint16_t packet_id;
} sl_client_item;

/** The actor's function, for the registry. */
sl_actor_verdict sl_client_actor_handle(sl_actor *actor, sl_runner *runner, sl_actor_item *item);

/** The checks of a CONNECT that need no session; takes over what the connection needs from it and
 * sets cn->cl. Anything but SUCCESS refuses it. @thread conn's loop */
sl_mqtt_rc sl_client_actor_check_connect(sl_conn *cn, const sl_mqtt_connect *connect);
/** Appends the CONNACK of an accepted connection. @thread conn's loop */
void sl_client_actor_write_connack(sl_conn *cn, const sl_conn_accept_info *info);
/** A QoS 2 message could not be stored: its packet id is free again. @thread conn's loop */
void sl_client_actor_qos2_failed(sl_conn *cn, uint16_t packet_id);
/** Hands an answer to the client's actor; takes answer->open_qos2. @thread an I/O loop */
void sl_client_actor_answer(sl_io *io, sl_client *cl, sl_session_answer *answer);

/** The session has expired, or its connection (session_id) is gone and did not say so: the actor
 * confirms it to the session thread if no connection came. @thread an I/O loop */
void sl_client_actor_clear(sl_io *io, sl_client *cl, uint64_t session_id);

#endif
