/* SPDX-License-Identifier: Apache-2.0
 *
 * peer: see peer.h.
 */
#include "peer.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNACK = 2, PUBLISH = 3, PUBACK = 4, PUBREC = 5, PUBREL = 6, PUBCOMP = 7, SUBACK = 9 };

/* Room for n more bytes at the end; the load generator dies where it gets no memory. */
static uint8_t *queue_grow(queue *q, size_t n)
{
    if (q->start + q->len + n > q->size) {
        if (q->start)
            memmove(q->mem, q->mem + q->start, q->len);
        q->start = 0;
        while (q->len + n > q->size)
            q->size = q->size ? q->size * 2 : 512;
        q->mem = realloc(q->mem, q->size);
        if (!q->mem) {
            perror("mqload: memory");
            exit(2);
        }
    }
    uint8_t *end = q->mem + q->start + q->len;
    q->len += n;
    return end;
}

static void queue_put(queue *q, const void *bytes, size_t n)
{
    memcpy(queue_grow(q, n), bytes, n);
}

static void queue_drop(queue *q, size_t n)
{
    q->start += n;
    q->len -= n;
    if (!q->len)
        q->start = 0;
}

static size_t put_length(uint8_t *to, size_t length)
{
    size_t n = 0;
    do {
        to[n] = (uint8_t)(length % 128);
        length /= 128;
        if (length)
            to[n] |= 128;
        n++;
    } while (length);
    return n;
}

static size_t put_text(uint8_t *to, const char *text)
{
    size_t n = strlen(text);
    to[0] = (uint8_t)(n >> 8);
    to[1] = (uint8_t)n;
    memcpy(to + 2, text, n);
    return n + 2;
}

static void put_packet(peer *pr, uint8_t first, const uint8_t *body, size_t n)
{
    uint8_t head[5] = {first};
    queue_put(&pr->out, head, 1 + put_length(head + 1, n));
    queue_put(&pr->out, body, n);
}

static void put_connect(peer *pr, bool clean)
{
    uint8_t body[128];
    size_t n = put_text(body, "MQTT");
    body[n++] = 4; // protocol level 3.1.1
    body[n++] = clean ? 2 : 0;
    body[n++] = 0; // no keep-alive
    body[n++] = 0;
    n += put_text(body + n, pr->client_id);
    put_packet(pr, 0x10, body, n);
}

static void put_subscribe(peer *pr, int qos)
{
    uint8_t body[160] = {0, 1};
    size_t n = 2 + put_text(body + 2, pr->topic);
    body[n++] = (uint8_t)qos;
    put_packet(pr, 0x82, body, n);
}

static void put_ack(peer *pr, uint8_t first, const uint8_t *packet_id)
{
    uint8_t packet[4] = {first, 2, packet_id[0], packet_id[1]};
    queue_put(&pr->out, packet, sizeof packet);
}

void peer_publish(peer *pr, const peer_io *io, uint64_t now_ns)
{
    uint8_t head[160];
    size_t length = 2 + strlen(pr->topic) + (io->qos ? 2 : 0) + io->payload_size;
    size_t n = 0;
    head[n++] = (uint8_t)(0x30 | io->qos << 1);
    n += put_length(head + n, length);
    n += put_text(head + n, pr->topic);
    if (io->qos) {
        if (++pr->packet_id == 0)
            pr->packet_id = 1;
        head[n++] = (uint8_t)(pr->packet_id >> 8);
        head[n++] = (uint8_t)pr->packet_id;
        pr->in_flight++;
    }
    uint32_t number = (uint32_t)pr->sent;
    memcpy(io->payload, &now_ns, sizeof now_ns);
    memcpy(io->payload + 8, &pr->index, sizeof pr->index);
    memcpy(io->payload + 12, &number, sizeof number);
    queue_put(&pr->out, head, n);
    queue_put(&pr->out, io->payload, io->payload_size);
    pr->sent++;
    io->total->sent++;
}

void peer_close(peer *pr, const peer_io *io)
{
    if (pr->dead)
        return;
    pr->dead = true;
    close(pr->fd);
    if (pr->up)
        io->total->up--;
}

void peer_flush(peer *pr, const peer_io *io)
{
    while (pr->out.len) {
        ssize_t n = send(pr->fd, pr->out.mem + pr->out.start, pr->out.len, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            peer_close(pr, io);
            return;
        }
        queue_drop(&pr->out, (size_t)n);
    }
    bool want = pr->out.len > 0;
    if (want != pr->want_write) {
        struct epoll_event event = {.events = EPOLLIN | (want ? EPOLLOUT : 0), .data.ptr = pr};
        epoll_ctl(io->epoll, EPOLL_CTL_MOD, pr->fd, &event);
        pr->want_write = want;
    }
}

static void on_connack(peer *pr, const peer_io *io, const uint8_t *body, size_t n)
{
    if (n < 2 || body[1] != 0) {
        io->total->refused++;
        peer_close(pr, io);
        return;
    }
    pr->up = true;
    io->total->up++;
    if (!pr->publisher && io->subscribe)
        put_subscribe(pr, io->qos);
}

static void on_publish(peer *pr, const peer_io *io, uint8_t first, const uint8_t *body, size_t n)
{
    int qos = (first >> 1) & 3;
    size_t topic = (size_t)body[0] << 8 | body[1];
    size_t at = 2 + topic + (qos ? 2 : 0);
    uint64_t sent_ns;
    io->total->received++;
    if (first & 8)
        io->total->duplicates++;
    if (n >= at + PEER_STAMP_BYTES) {
        memcpy(&sent_ns, body + at, sizeof sent_ns);
        io->received(io->arg, sent_ns);
    }
    if (qos)
        put_ack(pr, qos == 1 ? 0x40 : 0x50, body + 2 + topic);
}

static void on_packet(peer *pr, const peer_io *io, uint8_t first, const uint8_t *body, size_t n)
{
    switch (first >> 4) {
    case CONNACK:
        on_connack(pr, io, body, n);
        break;
    case SUBACK:
        pr->subscribed = true;
        io->total->subscribed++;
        break;
    case PUBLISH:
        on_publish(pr, io, first, body, n);
        break;
    case PUBREC:
        put_ack(pr, 0x62, body);
        break;
    case PUBREL:
        put_ack(pr, 0x70, body);
        break;
    case PUBACK:
    case PUBCOMP:
        pr->in_flight--;
        io->total->acked++;
        break;
    default:
        break;
    }
}

/* The size of the complete packet at bytes, or 0; *head is the size of its fixed header. */
static size_t whole_packet(const uint8_t *bytes, size_t n, size_t *head)
{
    size_t length = 0;
    for (size_t i = 1; i < n && i < 5; i++) {
        length |= (size_t)(bytes[i] & 127) << (7 * (i - 1));
        if (!(bytes[i] & 128)) {
            *head = i + 1;
            return n >= i + 1 + length ? i + 1 + length : 0;
        }
    }
    return 0;
}

/* Handles the complete packets at bytes and returns how many bytes they took. */
static size_t take_packets(peer *pr, const peer_io *io, const uint8_t *bytes, size_t n)
{
    size_t at = 0, head, size;
    while (!pr->dead && (size = whole_packet(bytes + at, n - at, &head)) > 0) {
        on_packet(pr, io, bytes[at], bytes + at + head, size - head);
        at += size;
    }
    return at;
}

void peer_read(peer *pr, const peer_io *io)
{
    static uint8_t chunk[1 << 18];
    // Bounded rounds: one fast connection must not keep the others waiting.
    for (int round = 0; round < 4 && !pr->dead; round++) {
        ssize_t n = recv(pr->fd, chunk, sizeof chunk, 0);
        if (n < 0 && errno == EAGAIN)
            break;
        if (n <= 0) {
            peer_close(pr, io);
            return;
        }
        if (pr->in.len) {
            queue_put(&pr->in, chunk, (size_t)n);
            queue_drop(&pr->in, take_packets(pr, io, pr->in.mem + pr->in.start, pr->in.len));
        } else {
            // Mostly whole packets: only the cut one at the end is copied.
            size_t used = take_packets(pr, io, chunk, (size_t)n);
            queue_put(&pr->in, chunk + used, (size_t)n - used);
        }
        if ((size_t)n < sizeof chunk)
            break;
    }
    if (!pr->dead)
        peer_flush(pr, io);
}

bool peer_open(peer *pr, const peer_io *io, uint32_t host, int port, uint32_t source, bool clean)
{
    int one = 1;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    struct sockaddr_in from = {.sin_family = AF_INET};
    to.sin_addr.s_addr = htonl(host);
    from.sin_addr.s_addr = htonl(source);
    pr->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (pr->fd < 0)
        return false;
    setsockopt(pr->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (source) {
        // The port is chosen at connect, so it need only be unique per destination.
        setsockopt(pr->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
        if (bind(pr->fd, (const struct sockaddr *)&from, sizeof from))
            return false;
    }
    if (connect(pr->fd, (const struct sockaddr *)&to, sizeof to))
        return false;
    fcntl(pr->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = pr};
    epoll_ctl(io->epoll, EPOLL_CTL_ADD, pr->fd, &event);
    put_connect(pr, clean);
    peer_flush(pr, io);
    return true;
}
