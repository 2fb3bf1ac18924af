/* SPDX-License-Identifier: Apache-2.0
 *
 * peer: one MQTT 3.1.1 connection of the load generator, without any code of the product, so that
 * a fault or a slowness of the product's codec cannot hide in the figures. Single thread; the
 * caller owns the epoll set.
 */
#ifndef MQLOAD_PEER_H
#define MQLOAD_PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PEER_STAMP_BYTES 16 /* at the start of each payload: time of sending, sender, number */

/* A byte queue: [start, start + len) of mem. */
typedef struct queue {
    uint8_t *mem;
    size_t start, len, size;
} queue;

typedef struct peer {
    int fd;
    int index;
    bool publisher;
    bool up;         /* CONNACK came */
    bool subscribed; /* SUBACK came */
    bool dead;
    bool want_write; /* EPOLLOUT is asked for */
    uint16_t packet_id;
    uint32_t in_flight; /* published and not acknowledged to the end */
    uint64_t sent;
    queue in, out;
    char topic[128]; /* published to, or the filter subscribed to */
    char client_id[64];
} peer;

/* What the packets of all peers add up to. */
typedef struct counts {
    uint64_t up, refused, subscribed, sent, acked, received, duplicates;
} counts;

/* Called for each PUBLISH received; sent_ns is the stamp of its payload. */
typedef void peer_received_f(void *arg, uint64_t sent_ns);

typedef struct peer_io {
    int epoll;
    counts *total;
    peer_received_f *received;
    void *arg;
    int qos;          /* of subscriptions and publications */
    bool subscribe;   /* SUBSCRIBE as soon as a subscriber is up */
    uint8_t *payload; /* payload_size bytes, the stamp is written into it */
    size_t payload_size;
} peer_io;

/** Connects the socket (blocking, then non-blocking) and sends CONNECT; false with errno.
 * source: address to connect from in host order, 0 for any. */
bool peer_open(peer *pr, const peer_io *io, uint32_t host, int port, uint32_t source, bool clean);
/** Queues one PUBLISH; peer_flush sends. */
void peer_publish(peer *pr, const peer_io *io, uint64_t now_ns);
void peer_flush(peer *pr, const peer_io *io);
/** Reads what is there and handles the complete packets. */
void peer_read(peer *pr, const peer_io *io);
void peer_close(peer *pr, const peer_io *io);

#endif
