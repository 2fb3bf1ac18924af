/* SPDX-License-Identifier: Apache-2.0
 *
 * manager: sessions. One loop consumes tbmq.client.session.event.request, decides in the order of
 * that topic, writes tbmq.client.session, and answers over tbmq.client.session.event.response; it
 * restores sessions and subscriptions at start, repairs what a crash left, and ends sessions that
 * have expired. One node uses the same path as many.
 */
#ifndef SL_SESSION_MANAGER_H
#define SL_SESSION_MANAGER_H

#include "core.h"
#include "session/client.h"
#include "session/io.h"

typedef struct sl_manager sl_manager;
struct sl_will;

#define SL_SESSION_GROUP "client-session-event-consumer-group"

typedef enum sl_session_kind {
    SL_SESSION_CONNECT,
    SL_SESSION_DISCONNECT,
    SL_SESSION_CLEAR
} sl_session_kind;

typedef struct sl_session_request {
    sl_session_kind kind;
    sl_slice client_id;
    uint64_t
        session_id; /* of the connection; CLEAR: of one that is gone, 0 for an expired session */
    unsigned loop;  /* that waits for the answer */
    bool persistent;
    bool clean_start;
    bool has_expiry;
    uint32_t expiry_s;
    uint16_t keep_alive_s;
    uint8_t mqtt_version;
    uint8_t reason;       /* DISCONNECT: MQTT 5 reason code */
    const char *peer;     /* CONNECT: address as text */
    struct sl_will *will; /* CONNECT: NULL for none; borrowed when sent, owned when received */
} sl_session_request;

/** Appends a session event. op (may be NULL) completes on io's loop.
 * Errors SL_EAGAIN no room; SL_ENOSPC and others of the log. @thread an I/O loop */
SL_MUST_USE sl_err sl_manager_request(sl_io *io, const sl_session_request *rq, sl_session_op *op);
/** Appends the client's subscription list; durable when the session is persistent. op completes on
 * io's loop. Errors as above. @thread the client's actor */
SL_MUST_USE sl_err sl_manager_store_subs(sl_io *io, sl_client *cl, sl_session_op *op);

/** Reads sessions and subscriptions into registry and trie, up to a marker of its own; repairs what
 * this node had left connected. Blocks. @thread init, before any loop serves clients */
SL_MUST_USE sl_err sl_manager_load(sl_core *core);

SL_MUST_USE sl_err sl_manager_new(sl_core *core, sl_manager **out);
SL_MUST_USE sl_err sl_manager_start(sl_manager *mg);
/** Handles what has been requested, then ends. @thread init */
void sl_manager_stop(sl_manager *mg);
void sl_manager_free(sl_manager **mg);

#endif
