/* SPDX-License-Identifier: Apache-2.0
 *
 * client_peer: a client session on a loop turned by hand and a fake clock, and the other end of its
 * socketpair, where the test plays the broker packet by packet. What the callbacks brought is kept
 * in the fields.
 */
#ifndef SL_TEST_CLIENT_PEER_H
#define SL_TEST_CLIENT_PEER_H

#include "base/buf.h"
#include "mqtt/client.h"
#include "mqtt/decode.h"

#define PEER_MAX_MESSAGES 256

typedef struct peer_message {
    uint8_t qos;
    uint16_t packet_id;
    bool redelivery;
    char payload[32];
    sl_mqtt_token token;
} peer_message;

typedef struct peer {
    sl_clock ck;
    sl_loop *lp;
    sl_mqtt_client *client;
    sl_mqtt_client_options opt;
    int fd;      /* our end; -1 when there is none */
    int next_fd; /* what dial hands out; -1: it fails */
    unsigned dials;
    sl_buf in;       /* bytes of the client not yet taken as packets */
    uint8_t *packet; /* owned; what peer_expect returned points into it */
    bool ended;      /* end of file read */

    unsigned connacks;
    bool session_present;
    unsigned downs;
    sl_mqtt_client_down down;
    peer_message messages[PEER_MAX_MESSAGES];
    unsigned message_count;
    unsigned subacks;
    uint16_t suback_id;
    bool suback_is_unsub;
    uint8_t suback_reasons[16];
    size_t suback_count;
    unsigned writables;
    unsigned published;
    sl_err published_err;
    uint8_t published_reason;
    bool closed;
    void (*on_message)(struct peer *pr, const peer_message *pm); /* or NULL */
} peer;

/** Options of 5.0 with keep-alive 60, receive maximum 5, delays 1 s to 8 s; change them before
 * peer_start. */
void peer_init(peer *pr, sl_mqtt_version version);
/** Makes the client, starts it, takes its CONNECT. */
void peer_start(peer *pr);
/** The same, answered with a CONNACK of success. */
void peer_connect(peer *pr);
/** Closes the client if there is one, frees all. */
void peer_fini(peer *pr);

/** Turns the loop until nothing happens. */
void peer_turn(peer *pr);
/** The clock goes on, in steps of at most a second, the loop turned after each. */
void peer_wait(peer *pr, sl_dur_ms span);
/** Sends a packet to the client, turns. */
void peer_send(peer *pr, const sl_mqtt_packet *pkt);
void peer_send_bytes(peer *pr, sl_slice bytes);
void peer_send_connack(peer *pr, bool session_present);
void peer_send_publish(peer *pr, uint8_t qos, uint16_t packet_id, bool dup, const char *payload);
void peer_send_ack(peer *pr, sl_mqtt_type type, uint16_t packet_id, uint8_t reason);
/** The next packet of the client, which must be of this type. */
sl_mqtt_packet peer_expect(peer *pr, sl_mqtt_type type);
void peer_expect_ack(peer *pr, sl_mqtt_type type, uint16_t packet_id, uint8_t reason);
/** No packet has come. */
void peer_expect_nothing(peer *pr);
/** The client has closed its end. */
void peer_expect_end(peer *pr);
/** Cuts our end, turns. */
void peer_cut(peer *pr);
/** Waits until the client has dialled again, and takes its CONNECT. */
void peer_redial(peer *pr);
/** sl_mqtt_published_f that counts in the peer. */
void peer_on_published(void *arg, sl_err err, uint8_t reason);
sl_mqtt_client_stats peer_stats(const peer *pr);

#endif
