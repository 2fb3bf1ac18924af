/* SPDX-License-Identifier: Apache-2.0
 *
 * actor_int: between the files of the client actor. Everything here runs in the actor, on the loop
 * that won it; what may answer HOLD has changed nothing when it does.
 */
#ifndef SL_SESSION_ACTOR_INT_H
#define SL_SESSION_ACTOR_INT_H

#include "session/client_actor.h"

/* A session event on its way to the log. */
typedef struct sl_request_op {
    sl_session_op base;
    sl_client *cl; /* referenced */
    uint64_t session_id;
} sl_request_op;

sl_client_item *sl_client_item_new(uint32_t kind, sl_conn *cn);
void sl_client_actor_post(sl_io *io, sl_client *cl, sl_client_item *it);
void sl_actor_end_conn(sl_client_item *it, sl_mqtt_rc rc, bool notify);
void sl_actor_connect_next(sl_client *cl, sl_io *io);

/* on_publish.c */
sl_actor_verdict sl_actor_on_publish(sl_client *cl, sl_io *io, sl_client_item *it,
                                     const sl_mqtt_publish *pub, sl_slice wire);
sl_actor_verdict sl_actor_on_pubrel(sl_client *cl, sl_io *io, sl_client_item *it,
                                    const sl_mqtt_ack *ack);
void sl_actor_qos2_remove(sl_client *cl, uint16_t packet_id);

/* on_subscribe.c */
sl_actor_verdict sl_actor_on_subscribe(sl_client *cl, sl_io *io, sl_client_item *it,
                                       const sl_mqtt_subscribe *sub);
sl_actor_verdict sl_actor_on_unsubscribe(sl_client *cl, sl_io *io, sl_client_item *it,
                                         const sl_mqtt_subscribe *sub);
/** Takes all subscriptions of the client out of trie and memory (not out of the log). */
void sl_actor_drop_subs(sl_client *cl, sl_io *io);
/** Sends the changed list to the log; SL_EAGAIN when there is no room (cl->subs_dirty stays). */
SL_MUST_USE sl_err sl_actor_store_subs(sl_client *cl, sl_io *io);
sl_actor_verdict sl_actor_on_subs_stored(sl_client *cl, sl_io *io, sl_err err);

#endif
