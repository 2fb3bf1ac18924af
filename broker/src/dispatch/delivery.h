/* SPDX-License-Identifier: Apache-2.0
 *
 * delivery: a letter full of deliveries for one I/O loop. Messages are laid out once and shared by
 * all their deliveries; a delivery is a small header and an index. Bodies stay where the log has
 * them (counted buffers); the loop copies small ones into the connection's next write and
 * references big ones.
 */
#ifndef SL_DISPATCH_DELIVERY_H
#define SL_DISPATCH_DELIVERY_H

#include "base/rbuf.h"
#include "core.h"
#include "loop/loop.h"
#include "mqtt/encode.h"

/* A message as it goes to subscribers: slices of `body`. */
typedef struct sl_out_msg {
    sl_rbuf *body;        /* kept by the letter */
    const uint8_t *topic; /* two-byte length and topic */
    const uint8_t *props; /* MQTT 5 properties without their length */
    const uint8_t *payload;
    uint32_t topic_bytes; /* with the two bytes of length */
    uint32_t props_bytes;
    uint32_t payload_bytes;
    bool retain;              /* as published */
    bool has_expiry;          /* props hold a message expiry interval */
    sl_wall_ms expires_at;    /* when has_expiry */
    uint32_t trace_partition; /* where it is in tbmq.msg.all, for the trace */
    uint64_t trace_offset;
} sl_out_msg;

enum {
    SL_DELIVER_RETAIN = 1, /* retain flag to be set */
    SL_DELIVER_INBOX = 2,  /* packet_id comes from the inbox */
    SL_DELIVER_DUP = 4,
    SL_DELIVER_PUBREL = 8, /* a PUBREL for packet_id, no message */
    SL_DELIVER_ASK = 16    /* nothing to send: SL_DEVICE_RESUME when there is room for more */
};

typedef struct sl_delivery {
    uint32_t slot; /* connection and generation of its slot */
    uint32_t gen;
    uint32_t msg;    /* index of msgs */
    uint32_t ids_at; /* index of sub_ids */
    uint16_t ids;    /* subscription identifiers */
    uint16_t packet_id;
    uint8_t qos;
    uint8_t flags;
} sl_delivery;

typedef struct sl_delivery_mail {
    sl_mail mail;
    struct sl_io *io; /* the receiver */
    sl_out_msg *msgs; /* owned */
    sl_delivery *items;
    uint32_t *sub_ids;
    sl_rbuf **bodies; /* a reference each */
    uint32_t msg_count, msg_cap;
    uint32_t item_count, item_cap;
    uint32_t id_count, id_cap;
    uint32_t body_count, body_cap;
    uint32_t bytes; /* what the loop's backlog counts */
} sl_delivery_mail;

/** An empty letter to this loop. @thread any */
sl_delivery_mail *sl_delivery_mail_new(struct sl_io *io);
/** Adds a message; its body gets a reference. Returns its index. @thread the writer's */
uint32_t sl_delivery_add_msg(sl_delivery_mail *dm, const sl_out_msg *msg);
/** Adds a delivery of the message added last (or of none, for PUBREL and ASK). @thread the writer's
 */
void sl_delivery_add(sl_delivery_mail *dm, const sl_delivery *item, const uint32_t *ids,
                     uint32_t id_count);
/** Sends it (an empty one is freed); sets *dm to NULL. @thread the writer's */
void sl_delivery_post(sl_delivery_mail **dm);
/** @thread the loop, after it has handled all items */
void sl_delivery_mail_free(sl_delivery_mail **dm);

/** Lays out a stored record's value (an MQTT 5 PUBLISH). received: the record's time, from which
 * the expiry counts. Errors SL_EMALFORMED. @thread any */
SL_MUST_USE sl_err sl_out_msg_init(sl_out_msg *msg, sl_slice value, sl_rbuf *body,
                                   sl_wall_ms received);
/** QoS of a stored PUBLISH, from its first byte. */
static inline uint8_t sl_stored_qos(sl_slice value)
{
    return value.len == 0 ? 0 : (uint8_t)(value.ptr[0] >> 1 & 3);
}

#endif
