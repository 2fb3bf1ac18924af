/* SPDX-License-Identifier: Apache-2.0
 *
 * will: will messages. A will comes with CONNECT, travels in the session event, and is kept by the
 * session thread beside the session and in its row, so that it outlives the process. One state
 * machine per client; every change goes through one setter:
 *
 *   none --CONNECT--> HELD --lost--> DELAYED --time, end of the session--> published --> none
 *                      |  '--lost, without delay--------------------------^
 *                      '--DISCONNECT 0x00--> none        DELAYED --session taken up--> none
 */
#ifndef SL_SESSION_WILL_H
#define SL_SESSION_WILL_H

#include "base/clock.h"
#include "base/list.h"
#include "base/stats.h"
#include "core.h"
#include "mqtt/packet.h"
#include "mqtt/reason.h"

struct sl_client;

/* state, comment */
#define SL_WILL_STATE_MAP(X)                                                                       \
    X(NEW, "travels with its CONNECT")                                                             \
    X(HELD, "its connection lives")                                                                \
    X(DELAYED, "its connection is lost; its time has not come")                                    \
    X(OVER, "published or discarded; freed")
typedef enum sl_will_state {
#define SL_WILL_STATE_ENUM(name, text) SL_WILL_##name,
    SL_WILL_STATE_MAP(SL_WILL_STATE_ENUM)
#undef SL_WILL_STATE_ENUM
} sl_will_state;

typedef struct sl_will {
    sl_node node;             /* of sl_wills.delayed */
    struct sl_client *client; /* borrowed: whose session keeps it */
    uint8_t state;            /* sl_will_state */
    uint32_t delay_s;
    sl_mono_ms due;    /* while DELAYED */
    sl_wall_ms due_at; /* the same on the wall, for the row; 0 otherwise */
    uint32_t len;
    uint8_t packet[]; /* the message as an MQTT 5 PUBLISH */
} sl_will;

/** What is wrong with the will of a CONNECT; SUCCESS when it may be kept. @thread any */
sl_mqtt_rc sl_will_check(const sl_mqtt_connect *connect, const sl_limits *limits);
/** The will of a checked CONNECT. @thread any */
sl_will *sl_will_new(const sl_mqtt_will *from);
/** From a record; NULL when packet is not a PUBLISH. @thread any */
sl_will *sl_will_restore(sl_slice packet, uint32_t delay_s, sl_wall_ms due_at);
/** Accepts NULL inside. It is on no list. @thread any */
void sl_will_free(sl_will **wl);
sl_slice sl_will_topic(const sl_will *wl);
/** 0 to 2. */
uint8_t sl_will_qos(const sl_will *wl);
/** How long a will of a lost connection waits: the delay, or the session's end if that is earlier.
 * persistent, has_expiry, expiry_s: of the session that stays. @thread any */
sl_dur_ms sl_will_wait(const sl_will *wl, bool persistent, bool has_expiry, uint32_t expiry_s);

/* All wills of this node. @thread session loop */
typedef struct sl_wills {
    sl_list delayed;
    void (*publish)(void *arg, struct sl_client *cl, const sl_will *wl);
    void *arg;
    sl_stats *stats;
    unsigned shard;
} sl_wills;

void sl_wills_init(sl_wills *ws);
/** Wills that wait stay with their sessions (and in the rows), but on no list. */
void sl_wills_fini(sl_wills *ws);
/** A new connection brings this will (NULL: none), taken. The client has none any more. */
void sl_wills_hold(sl_wills *ws, struct sl_client *cl, sl_will **wl);
/** A row of the last run said DELAYED until wl->due_at. */
void sl_wills_resume(sl_wills *ws, struct sl_client *cl, sl_mono_ms now, sl_wall_ms wall);
/** The connection was lost: published now, or after wait. */
void sl_wills_lost(sl_wills *ws, struct sl_client *cl, sl_dur_ms wait, sl_mono_ms now,
                   sl_wall_ms wall);
/** The session has ended: what is delayed is published now. */
void sl_wills_session_ended(sl_wills *ws, struct sl_client *cl);
/** Not to be published: DISCONNECT 0x00, or the session was taken up in time. */
void sl_wills_discard(sl_wills *ws, struct sl_client *cl);
/** Publishes what is due and calls after(arg, cl) for each. Returns the time of the next one, 0
 * for none. */
sl_mono_ms sl_wills_tick(sl_wills *ws, sl_mono_ms now,
                         void (*after)(void *arg, struct sl_client *cl));

#endif
