/* SPDX-License-Identifier: Apache-2.0
 *
 * client: one MQTT client session (3.1.1 or 5.0) that reconnects by itself and acknowledges by
 * hand: a PUBACK or PUBREC leaves only after sl_mqtt_client_ack, whatever time that takes. For the
 * gateway and for tests. Not thread-safe: everything happens on its loop; work that ends elsewhere
 * posts itself to the loop before it acknowledges.
 *
 *            start            dialled          CONNACK 0
 *   IDLE ------------> DIALING -----> HANDSHAKE -------> UP
 *                       ^   |             |              |
 *                 timer |   | failed      +--- lost -----+
 *                       |   v                            v
 *                      WAITING <----- stream closed --- LOST
 *
 *   close: HANDSHAKE, UP -> DRAINING (DISCONNECT, flush, FIN) -> CLOSING -> CLOSED;
 *          LOST -> CLOSING; IDLE, DIALING, WAITING -> CLOSED
 *
 * Deliveries: each PUBLISH of QoS 1 and 2 takes a place in a queue in the order of arrival; the
 * head leaves once it is acknowledged, so acknowledgements go out in that order ([MQTT-4.6.0-2],
 * [MQTT-4.6.0-3]) although they may come in any. The queue belongs to one connection: when it ends,
 * its places are void and the broker delivers again; tokens of older connections are ignored.
 */
#ifndef SL_MQTT_CLIENT_H
#define SL_MQTT_CLIENT_H

#include "base/rbuf.h"
#include "loop/loop.h"
#include "loop/pool.h"
#include "mqtt/packet.h"
#include "net/tls.h"

typedef struct sl_mqtt_client sl_mqtt_client;

#define SL_MQTT_CLIENT_STATE_MAP(X)                                                                \
    X(IDLE, "idle")                                                                                \
    X(DIALING, "dialing")                                                                          \
    X(HANDSHAKE, "handshake")                                                                      \
    X(UP, "up")                                                                                    \
    X(LOST, "lost")                                                                                \
    X(WAITING, "waiting")                                                                          \
    X(DRAINING, "draining")                                                                        \
    X(CLOSING, "closing")                                                                          \
    X(CLOSED, "closed")

typedef enum sl_mqtt_client_state {
#define SL_MQTT_CLIENT_STATE_ENUM(name, word) SL_CLIENT_##name,
    SL_MQTT_CLIENT_STATE_MAP(SL_MQTT_CLIENT_STATE_ENUM)
#undef SL_MQTT_CLIENT_STATE_ENUM
        SL_CLIENT_STATE_COUNT
} sl_mqtt_client_state;

/* What an acknowledgement refers to. generation 0: QoS 0, nothing is owed. */
typedef struct sl_mqtt_token {
    uint64_t seq;
    uint32_t generation; /* number of the connection, from 1 */
} sl_mqtt_token;

typedef struct sl_mqtt_client_connected {
    bool session_present;
    uint32_t generation;
    const sl_mqtt_props *props; /* of CONNACK; borrowed for the call, empty on 3.1.1 */
} sl_mqtt_client_connected;

/* An attempt or a connection ended; another one follows unless the client is being closed. */
typedef struct sl_mqtt_client_down {
    sl_err err; /* ECONN dial or resolve, ETIMEDOUT dial, CONNACK or PINGRESP, EDENIED refused by
                   CONNACK or for a certificate, ECLOSED ended by the peer, EPROTOCOL, EMALFORMED,
                   ETOOBIG, ELIMIT output, EIO */
    uint8_t reason;  /* of the server's CONNACK or DISCONNECT as on the wire; 0 when it gave none */
    const char *why; /* for the log; borrowed for the call */
    bool was_up;     /* CONNACK had been received */
    sl_dur_ms retry_in; /* delay of the next attempt */
} sl_mqtt_client_down;

/* Called on the loop. on_publish is required, the others may be NULL. Every call of this header is
 * allowed inside. */
typedef struct sl_mqtt_client_events {
    void (*on_connack)(void *arg, const sl_mqtt_client_connected *cd);
    /* Slices of pb are inside rb: who keeps one, takes a reference. redelivery: DUP was set. */
    void (*on_publish)(void *arg, const sl_mqtt_publish *pb, sl_mqtt_token token, sl_rbuf *rb,
                       bool redelivery);
    /* Answer to subscribe or unsubscribe: a reason a filter, in the order asked (none for UNSUBACK
     * of 3.1.1). A request that the connection took with it gets no answer. */
    void (*on_suback)(void *arg, uint16_t packet_id, bool unsubscribe, sl_slice reasons);
    void (*on_down)(void *arg, const sl_mqtt_client_down *down);
    /* After sl_mqtt_client_publish answered SL_EAGAIN while connected: there is room. */
    void (*on_writable)(void *arg);
} sl_mqtt_client_events;

/* Opens a connected, non-blocking stream socket. Runs on the pool, so it may block up to timeout.
 * Returns the descriptor, or a negative errno value. */
typedef int sl_mqtt_dial_f(void *arg, const char *host, uint16_t port, sl_dur_ms timeout);

/* Everything is copied at new. Zero means the default in brackets. */
typedef struct sl_mqtt_client_options {
    const char *host;        /* name or address */
    uint16_t port;           /* [1883] */
    sl_mqtt_version version; /* SL_MQTT_V311 or [SL_MQTT_V5] */
    sl_slice client_id;      /* empty: the server assigns one (needs clean_start on 3.1.1) */
    bool clean_start;
    uint16_t keep_alive_s;      /* 0: none */
    uint32_t session_expiry_s;  /* 5.0; 0xFFFFFFFF: for ever */
    uint16_t receive_maximum;   /* unacknowledged deliveries [1000]; on 3.1.1 reading stops there */
    uint16_t announced_maximum; /* 5.0: Receive Maximum told to the server [receive_maximum]; less
                                   than that forgives a server that counts wrongly (Mosquitto 2.0.11
                                   sends more than it was told) */
    uint32_t max_packet_bytes;  /* largest packet accepted [SL_MQTT_MAX_REMAINING + 5] */
    uint32_t max_queued_bytes;  /* own PUBLISHes that wait for the socket [4 MiB] */
    uint16_t max_inflight;      /* own PUBLISHes of QoS 1 and 2 that wait for the server [100] */
    bool has_username;
    bool has_password;
    sl_slice username;
    sl_slice password;
    const sl_mqtt_will *will;    /* NULL: none */
    sl_dur_ms connect_timeout;   /* dial, and again CONNECT to CONNACK [10 s] */
    sl_dur_ms reconnect_initial; /* [1 s] */
    sl_dur_ms reconnect_max;     /* [60 s] */
    sl_dur_ms stable_after;      /* up so long: the delay begins at initial again [10 s] */
    uint64_t seed;               /* of the jitter; 0: from the clock */
    sl_pool *pool;               /* NULL: dial runs on the loop and must not block (tests) */
    sl_mqtt_dial_f *dial;        /* NULL: TCP */
    void *dial_arg;
    sl_tls_ctx *tls;             /* a reference is taken; NULL: without TLS */
    const char *tls_server_name; /* whom the certificate must name [host] */
} sl_mqtt_client_options;

typedef struct sl_mqtt_client_stats {
    uint64_t connects;       /* CONNACKs of success */
    uint64_t downs;          /* attempts and connections that ended */
    uint64_t takeovers;      /* the server said 0x8E: another client has our id */
    uint64_t short_lived;    /* was up for less than stable_after */
    uint64_t received;       /* PUBLISHes handed to on_publish */
    uint64_t redelivered;    /* PUBLISHes not handed over: their id was open on this connection */
    uint64_t acked;          /* PUBACKs and PUBRECs sent */
    uint64_t acks_discarded; /* acknowledgements of an older connection, or repeated */
    uint64_t read_stops;     /* times that the window was full and reading stopped (3.1.1) */
    uint32_t unacked;        /* deliveries whose PUBACK or PUBREC has not left */
    uint32_t unreleased;     /* QoS 2 ids between PUBREC and PUBREL */
    uint32_t inflight;       /* own PUBLISHes of QoS 1 and 2 that are not complete */
    uint32_t receive_maximum;
    sl_dur_ms oldest_unacked; /* age of the oldest of `unacked`, 0 when there is none */
} sl_mqtt_client_stats;

/** Errors SL_EINVAL with *why (static) naming the option. @thread loop (or before it runs) */
SL_MUST_USE sl_err sl_mqtt_client_new(sl_loop *lp, const sl_mqtt_client_options *options,
                                      const sl_mqtt_client_events *events, void *arg,
                                      sl_mqtt_client **out, const char **why);
/** Begins to connect; once. @thread loop */
void sl_mqtt_client_start(sl_mqtt_client *client);
/**
 * Says DISCONNECT with reason (0, or 4: the will is published; 3.1.1 with a reason other than 0
 * just closes), sends what is owed, closes. Pending publishes complete with SL_ECLOSED. Ownership:
 * takes the client and sets it to NULL. Completes closed(arg) once, in a later turn; the last call
 * made.
 * @thread loop
 */
void sl_mqtt_client_close(sl_mqtt_client **client, uint8_t reason, void (*closed)(void *arg),
                          void *arg);

/**
 * The delivery is safe: acknowledge it as soon as all before it are. In any order, at any time.
 * rc: reason code for 5.0; 3.1.1 knows only success. With QoS 2 a code of 0x80 and above ends the
 * exchange. Tokens of QoS 0, of an older connection, or used before, change nothing (the last two
 * are counted). @thread loop
 */
void sl_mqtt_client_ack(sl_mqtt_client *client, sl_mqtt_token token, uint8_t rc);

/** Errors SL_EAGAIN not connected, SL_EINVAL a filter or option the version cannot carry, SL_ELIMIT
 * too many requests are open, SL_ETOOBIG over the server's packet limit. subscription_id 0: none.
 * @thread loop */
SL_MUST_USE sl_err sl_mqtt_client_subscribe(sl_mqtt_client *client,
                                            const sl_mqtt_sub_option *options, uint32_t count,
                                            uint32_t subscription_id, uint16_t *packet_id);
SL_MUST_USE sl_err sl_mqtt_client_unsubscribe(sl_mqtt_client *client, const sl_slice *filters,
                                              uint32_t count, uint16_t *packet_id);

/* reason: of the last acknowledgement (0 on 3.1.1 and QoS 0). err: SL_OK, SL_ECLOSED, SL_ETOOBIG
 * (a later connection's limit). */
typedef void sl_mqtt_published_f(void *arg, sl_err err, uint8_t reason);
/**
 * Publishes; packet_id and dup of pb are ours. QoS 1 and 2 survive a reconnect: what is not
 * complete is sent again. Completes done (may be NULL) exactly once, never before return: QoS 0
 * when the bytes are queued, QoS 1 and 2 at the last acknowledgement. Errors SL_EAGAIN not
 * connected or no room (on_writable follows while connected), SL_EINVAL, SL_ETOOBIG over the
 * server's packet limit, SL_EUNSUPPORTED QoS or retain that the server refused in its CONNACK.
 * @thread loop
 */
SL_MUST_USE sl_err sl_mqtt_client_publish(sl_mqtt_client *client, const sl_mqtt_publish *pb,
                                          sl_mqtt_published_f *done, void *arg);

sl_mqtt_client_state sl_mqtt_client_state_of(const sl_mqtt_client *client);
/** "waiting"; static. @thread any */
const char *sl_mqtt_client_state_name(sl_mqtt_client_state state);
/** The id in use: as configured, or as the server assigned it. Borrowed. @thread loop */
sl_slice sl_mqtt_client_id(const sl_mqtt_client *client);
/** @thread loop */
void sl_mqtt_client_stats_of(const sl_mqtt_client *client, sl_mqtt_client_stats *out);

#endif
