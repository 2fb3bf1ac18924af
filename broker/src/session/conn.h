/* SPDX-License-Identifier: Apache-2.0
 *
 * conn: one MQTT connection on its I/O loop: framing of what arrives, acknowledgements in receive
 * order, everything that goes out, keep-alive. The rules of the protocol that need the session are
 * the client actor's (client_actor.h), which gets whole packets from here.
 *
 *   NEW --CONNECT--> CONNECTING --accepted--> CONNECTED --error, DISCONNECT, EOF--> CLOSING -->
 * freed
 *    '---- anything else, or time-out ------------------------------------------------^
 *
 * Other threads keep a counted reference and only use the functions marked `@thread any I/O loop`.
 */
#ifndef SL_SESSION_CONN_H
#define SL_SESSION_CONN_H

#include "base/list.h"
#include "base/rbuf.h"
#include "dispatch/delivery.h"
#include "mqtt/packet.h"
#include "mqtt/reason.h"
#include "net/stream.h"
#include "session/client.h"
#include "session/io.h"

/* state, comment */
#define SL_CONN_STATE_MAP(X)                                                                       \
    X(NEW, "waits for CONNECT")                                                                    \
    X(CONNECTING, "CONNECT is with the session thread; nothing is read")                           \
    X(CONNECTED, "CONNACK was sent")                                                               \
    X(CLOSING, "no more packets; waits for what is under way")
typedef enum sl_conn_state {
#define SL_CONN_STATE_ENUM(name, text) SL_CONN_##name,
    SL_CONN_STATE_MAP(SL_CONN_STATE_ENUM)
#undef SL_CONN_STATE_ENUM
} sl_conn_state;

/* An acknowledgement that will leave in receive order [MQTT-4.6.0-2, -3]. */
typedef struct sl_ack_slot {
    uint16_t packet_id;
    uint8_t kind; /* SL_MQTT_PUBACK or SL_MQTT_PUBREC */
    uint8_t reason;
    bool done;
} sl_ack_slot;

/* What the client has not answered yet, by packet id. */
typedef struct sl_sent {
    uint16_t packet_id; /* 0: free */
    uint8_t state;      /* packet type that is expected: PUBACK, PUBREC, PUBCOMP */
    uint8_t from_inbox;
} sl_sent;

typedef struct sl_out_seg {
    struct sl_out_seg *next;
    sl_rbuf *body;      /* bytes of a shared body (a reference), or NULL: own bytes */
    const uint8_t *ptr; /* body's bytes, or data */
    uint32_t off;       /* already written */
    uint32_t len;
    uint32_t cap;
    uint8_t data[];
} sl_out_seg;

#define SL_OUT_SEG_BYTES 4000
#define SL_OUT_REF_BYTES 2048 /* payloads from this size on are referenced, not copied */

/* A delivery that waits for a free in-flight slot (non-persistent sessions). */
typedef struct sl_delayed {
    struct sl_delayed *next;
    sl_out_msg msg; /* holds a reference to its body */
    uint8_t qos;
    uint8_t flags;
    uint16_t ids;
    sl_mono_ms until; /* then it is dropped */
    uint32_t sub_ids[];
} sl_delayed;

typedef struct sl_conn {
    uint32_t magic;
    uint32_t slot;
    uint32_t gen;
    _Atomic uint32_t refs;
    sl_io *io;
    sl_stream *sm;      /* owned until on_closed */
    sl_client *cl;      /* referenced once CONNECT named it */
    uint8_t state;      /* sl_conn_state */
    uint8_t version;    /* sl_mqtt_version */
    uint8_t end_reason; /* why it closes, an MQTT 5 reason code */
    bool stream_closed;
    bool read_stopped;
    bool write_blocked;
    bool inbox_asked;  /* the device loop waits for room before it reads on */
    bool inbox_paused; /* the device loop was told to wait (sl_client.slow) */
    bool clean_start;
    bool persistent;
    bool assigned_id;
    bool end_posted; /* the actor was told that it ends */
    bool close_after_flush;
    bool discard_input; /* after an error: the peer may still read our DISCONNECT */
    uint16_t keep_alive_s;
    uint16_t receive_max; /* the client's */
    uint32_t max_packet_out;
    uint32_t expiry_s;
    bool has_expiry;
    bool expiry_capped;     /* CONNACK has to say so */
    bool keep_alive_capped; /* CONNACK has to say so */
    uint64_t session_id;
    struct sl_will *will; /* owned, from CONNECT until it is with the session event */
    char peer[56];        /* address and port as text */
    sl_mono_ms last_in;
    sl_mono_ms deadline;    /* of the state, or of a blocked write; 0 none */
    _Atomic uint32_t items; /* ingress items the actor has not finished */
    bool actor_done;        /* @thread actor: no further packets are taken from it */
    uint8_t actor_reason;   /* @thread actor: why, an MQTT 5 reason code */

    sl_rbuf *part; /* bytes of an incomplete packet (or of what came behind CONNECT), owned */

    sl_ack_slot *ring;                       /* owned, ring_cap entries, a power of two */
    uint32_t ring_cap, ring_head, ring_tail; /* sequence numbers */

    sl_out_seg *out_first, *out_last; /* owned */
    uint32_t out_bytes;
    sl_sent *sent; /* owned table, sent_cap entries, a power of two, by packet id */
    uint32_t sent_cap, sent_count;
    uint16_t next_packet_id;
    sl_delayed *delayed_first, *delayed_last; /* owned */
    uint32_t delayed_count;
    sl_node dirty_node;
    sl_node wheel_node;
    uint64_t watch_tick; /* of the wheel, while wheel_node is linked */
    bool closed_counted;
} sl_conn;

#define SL_CONN_MAGIC 0x51c1c044u

/** Takes an accepted stream. @thread loop */
void sl_conn_open(sl_io *io, sl_stream **sm);
/** @thread any */
void sl_conn_ref(sl_conn *cn);
/** The last reference frees it, on its loop. Sets *cn to NULL. @thread any */
void sl_conn_unref(sl_conn **cn);

/* What the actor tells a connection; on another loop's thread these travel as letters. */

typedef struct sl_conn_accept_info {
    bool session_present;
    bool persistent;
} sl_conn_accept_info;
/** CONNACK 0; reading goes on. @thread any I/O loop */
void sl_conn_accept(sl_conn *cn, const sl_conn_accept_info *info);
/** CONNACK with a refusal, then close. @thread any I/O loop */
void sl_conn_refuse(sl_conn *cn, sl_mqtt_rc rc);
/** Sends encoded bytes (copied). @thread any I/O loop */
void sl_conn_send(sl_conn *cn, sl_slice bytes);
/** An acknowledgement slot is done; it leaves when those before it are. @thread any I/O loop */
void sl_conn_complete(sl_conn *cn, uint32_t seq, sl_mqtt_rc rc);
/** The same by the slot of the connection in its loop's table: completions of the log find it so.
 * @thread any I/O loop */
void sl_conn_complete_slot(sl_io *owner, uint32_t slot, uint32_t seq, sl_mqtt_rc rc);
/** Slots from..to-1 will not be answered (the packets were not handled). @thread any I/O loop */
void sl_conn_cancel(sl_conn *cn, uint32_t from, uint32_t to);
/** Ends the connection; a version 5 client gets DISCONNECT with rc when notify. @thread any I/O
 * loop
 */
void sl_conn_end(sl_conn *cn, sl_mqtt_rc rc, bool notify);
/** The actor finished an ingress item; reading may go on. @thread any I/O loop */
void sl_conn_item_done(sl_conn *cn);

/* On the loop only. */

/** Time-outs of this connection, once a tick at most. */
void sl_conn_check_time(sl_conn *cn, sl_mono_ms now);
/** Writes what waits. */
void sl_conn_flush(sl_conn *cn);
/** One delivery of a letter. */
void sl_conn_deliver(sl_conn *cn, const sl_delivery_mail *dm, const sl_delivery *item);
/** PUBACK, PUBREC, PUBCOMP from the client. */
void sl_conn_on_ack(sl_conn *cn, sl_mqtt_type type, const sl_mqtt_ack *ack);
/** Appends to what goes out, without limit checks (acknowledgements and control packets). */
void sl_conn_put(sl_conn *cn, const void *ptr, size_t len);
/** Appends a packet without properties: ack types and PINGRESP. */
void sl_conn_put_ack(sl_conn *cn, sl_mqtt_type type, uint16_t packet_id, sl_mqtt_rc rc);
/** Looks again whether the socket is to be read. */
void sl_conn_reading_changed(sl_conn *cn);
/** Drops deliveries that waited too long for an in-flight slot; returns when the next one will
 * have, 0 for none. */
sl_mono_ms sl_conn_drop_delayed(sl_conn *cn, sl_mono_ms now);
/** Frees all that waits to go out. */
void sl_conn_drop_out(sl_conn *cn);

#endif
