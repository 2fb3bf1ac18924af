/* SPDX-License-Identifier: Apache-2.0
 *
 * client_int: the inside of a client session, shared by client.c (life cycle), client_in.c (packets
 * that arrive), client_ack.c (acknowledgement queue) and client_out.c (what leaves).
 */
#ifndef SL_MQTT_CLIENT_INT_H
#define SL_MQTT_CLIENT_INT_H

#include "base/buf.h"
#include "base/list.h"
#include "base/map.h"
#include "mqtt/client.h"
#include "mqtt/reason.h"
#include "net/stream.h"

#define SL_CLIENT_MAGIC        0x4D515443u /* "MQTC" */
#define SL_CLIENT_ID_WORDS     1024        /* 65 536 packet ids, a bit each */
#define SL_CLIENT_MAX_REQUESTS 64          /* SUBSCRIBEs and UNSUBSCRIBEs without an answer */
#define SL_CLIENT_CONTROL_BYTES                                                                    \
    (1u << 20)                   /* room kept for acknowledgements beside queued PUBLISHes */
#define SL_CLIENT_LINGER_MS 1000 /* how long close waits for the peer to take our last bytes */

/* A PUBLISH of QoS 1 or 2 on its way to be acknowledged. */
typedef struct delivery {
    sl_mono_ms at; /* arrival */
    uint16_t packet_id;
    uint8_t qos;
    uint8_t rc;
    bool taken; /* acknowledged by the owner, waits for those before it */
} delivery;

/* An own PUBLISH. QoS 0 ones are here only to have done called in a later turn. */
typedef struct outgoing {
    sl_node node; /* in order of publishing */
    enum { OUT_WAIT_PUBACK, OUT_WAIT_PUBREC, OUT_WAIT_PUBCOMP, OUT_DONE } state;
    uint16_t packet_id;
    bool sent;      /* on this connection */
    uint8_t reason; /* of OUT_DONE */
    sl_err err;     /* of OUT_DONE */
    uint8_t *bytes; /* owned; the encoded packet */
    size_t len;
    sl_mqtt_published_f *done; /* may be NULL */
    void *arg;
} outgoing;

typedef struct request {
    uint16_t packet_id; /* 0: free */
    uint32_t count;     /* filters */
    bool unsubscribe;
} request;

/* A dial in progress; outlives the client when that is closed meanwhile. */
typedef struct dial_job {
    sl_mqtt_client *client; /* borrowed; NULL when nobody waits any more */
    char *host;             /* owned */
    uint16_t port;
    sl_dur_ms timeout;
    sl_mqtt_dial_f *dial;
    void *dial_arg;
    int fd; /* result: descriptor or negative errno */
} dial_job;

struct sl_mqtt_client {
    uint32_t magic;
    sl_mqtt_client_state state;
    sl_loop *lp;                /* borrowed */
    sl_mqtt_client_options opt; /* texts owned by us */
    sl_mqtt_client_events ev;
    void *arg;
    uint8_t *will_raw; /* owned; properties of the will */
    sl_mqtt_will will;
    uint64_t random;

    /* connecting */
    dial_job *job;            /* of DIALING */
    sl_timer timer;           /* of the state: CONNACK, keep-alive, retry, linger */
    uint32_t failures;        /* since a stable connection: exponent of the delay */
    sl_mqtt_client_down down; /* of LOST and WAITING */
    char *tls_why;            /* owned; what TLS said of the connection's end, or NULL */

    /* the connection */
    sl_stream *sm;            /* owned from HANDSHAKE until its on_closed */
    uint32_t generation;      /* of the last CONNACK */
    uint32_t live_generation; /* the same while UP, else 0 */
    sl_mono_ms up_since;
    sl_mono_ms last_sent;
    sl_mono_ms last_received;
    sl_mono_ms ping_at; /* PINGREQ without PINGRESP, or 0 */
    sl_dur_ms keep_alive;
    uint32_t server_max_packet;
    uint16_t server_receive_maximum;
    uint8_t server_max_qos;
    bool server_retain;

    /* input */
    sl_rbuf *part; /* owned; a packet that came in pieces, cap = its size */
    uint8_t head[5];
    uint32_t head_len; /* bytes of a fixed header that came in pieces */
    bool paused;       /* window full, reading stopped */
    sl_rbuf *rest;     /* owned reference; what was read but not looked at yet */
    uint32_t rest_off;
    uint32_t rest_len;

    /* deliveries, [head, tail) modulo receive_maximum */
    delivery *ring; /* owned */
    uint64_t head_seq;
    uint64_t tail_seq;
    uint32_t window_used; /* as the server counts: PUBLISHes without PUBACK or PUBCOMP */
    uint64_t open_ids[SL_CLIENT_ID_WORDS];       /* in the ring */
    uint64_t unreleased_ids[SL_CLIENT_ID_WORDS]; /* PUBREC sent, PUBREL not seen */
    uint32_t unreleased;

    /* output */
    sl_buf out;
    bool blocked;       /* the socket took less; on_writable comes */
    bool want_writable; /* publish answered SL_EAGAIN */
    bool work_armed;
    sl_timer work;         /* zero delay: flush, go on reading, completions */
    sl_list outgoing_list; /* QoS 1 and 2, oldest first */
    sl_list done_list;     /* completions to call */
    sl_imap *outgoing_map; /* packet id -> outgoing */
    uint32_t outgoing_count;
    uint32_t outgoing_sent;
    request requests[SL_CLIENT_MAX_REQUESTS];
    uint16_t last_packet_id;

    void (*closed)(void *arg);
    void *closed_arg;
    sl_mqtt_client_stats stats; /* counters; gauges are computed when asked for */
};

/* client.c */
/* The only setter: checks the table, traces old and new. */
void sl_client_set_state(sl_mqtt_client *client, sl_mqtt_client_state state);
/* Ends the connection; the client tries again later. */
void sl_client_lose(sl_mqtt_client *client, sl_err err, uint8_t reason, const char *why);
/* The same for a fault of the peer, which 5.0 tells it first. */
void sl_client_fail(sl_mqtt_client *client, sl_err err, sl_mqtt_rc rc, const char *why);
/* Something to do at the next turn. */
void sl_client_arm_work(sl_mqtt_client *client);
/* CONNACK of success has been taken in. */
void sl_client_on_up(sl_mqtt_client *client);
static inline bool sl_client_is_v5(const sl_mqtt_client *client)
{
    return client->opt.version == SL_MQTT_V5;
}

/* client_in.c */
void sl_client_feed(sl_mqtt_client *client, sl_rbuf *rb, uint32_t off, uint32_t len);
/* Goes on where a full window stopped. */
void sl_client_resume(sl_mqtt_client *client);
void sl_client_drop_input(sl_mqtt_client *client);

/* client_ack.c */
typedef enum sl_client_arrival {
    SL_ARRIVAL_NEW,      /* hand over; token is set */
    SL_ARRIVAL_REPEATED, /* its id is open here: counted, nothing to hand over */
    SL_ARRIVAL_TOO_MANY  /* the server exceeds the receive maximum */
} sl_client_arrival;
sl_client_arrival sl_client_arrive(sl_mqtt_client *client, const sl_mqtt_publish *pb,
                                   sl_mqtt_token *token);
bool sl_client_window_is_full(const sl_mqtt_client *client);
void sl_client_on_pubrel(sl_mqtt_client *client, uint16_t packet_id);
/* The connection is over: its deliveries are void. */
void sl_client_void_deliveries(sl_mqtt_client *client);
/* The server has no session for us: no PUBREL will come for ids of before. */
void sl_client_forget_unreleased(sl_mqtt_client *client);
uint32_t sl_client_unacked(const sl_mqtt_client *client);

/* client_out.c */
/* Queues a control packet; a full queue ends the connection. */
void sl_client_send(sl_mqtt_client *client, const sl_mqtt_packet *packet);
void sl_client_send_ack(sl_mqtt_client *client, sl_mqtt_type type, uint16_t packet_id, uint8_t rc);
void sl_client_flush(sl_mqtt_client *client);
void sl_client_on_out_ack(sl_mqtt_client *client, sl_mqtt_type type, const sl_mqtt_ack *ack);
void sl_client_on_suback(sl_mqtt_client *client, bool unsubscribe, const sl_mqtt_suback *sa);
/* A connection begins: sends again what is not complete. */
void sl_client_resume_outgoing(sl_mqtt_client *client, bool session_present);
void sl_client_pump(sl_mqtt_client *client);
void sl_client_tell_writable(sl_mqtt_client *client);
void sl_client_run_completions(sl_mqtt_client *client);
/* The connection is over: requests get no answer, publishes wait for the next one. */
void sl_client_reset_output(sl_mqtt_client *client);
/* The client is over: publishes complete with SL_ECLOSED. */
void sl_client_abandon_outgoing(sl_mqtt_client *client);

#endif
