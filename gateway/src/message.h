/* SPDX-License-Identifier: Apache-2.0
 *
 * message: one delivery as the gateway routes it: immutable, reference-counted, made once from the
 * decoded PUBLISH and then shared by the router, the cache, every SSE connection and the writer.
 * Also its JSON form (the message object of GET /mqtt and the SSE envelope). Knows nothing of
 * listeners, sinks or HTTP. Any thread may hold, read, ref and unref one.
 */
#ifndef SL_GATEWAY_MESSAGE_H
#define SL_GATEWAY_MESSAGE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/rbuf.h"
#include "base/slice.h"
#include "mqtt/packet.h"

/* MQTT 5 publish properties as they were delivered. All slices point into the message's body. */
typedef struct sl_message_props {
    uint32_t has; /* SL_PROP_PAYLOAD_FORMAT, _MESSAGE_EXPIRY, _CONTENT_TYPE, _RESPONSE_TOPIC,
                     _CORRELATION_DATA, _USER; 0: no mqtt5 object at all */
    uint8_t payload_format;    /* as claimed by the publisher: recorded, never trusted */
    uint32_t message_expiry_s; /* as received, that is already counted down by the broker */
    sl_slice content_type;
    sl_slice response_topic;
    sl_slice correlation_data;
    const sl_mqtt_user_prop
        *user; /* in the order sent, repeated names kept; owned by the message */
    uint32_t user_count;
} sl_message_props;

typedef struct sl_message {
    _Atomic uint32_t _refs;
    uint8_t qos;            /* as delivered to us */
    bool retain;            /* as delivered: "sent because the subscription was new" */
    bool dup;               /* the broker has sent it before */
    bool is_text;           /* payload is well-formed UTF-8 (strict); false: shown as base64 */
    uint64_t seq;           /* order of delivery in this process, from 1; set by the router */
    int64_t received_at_ns; /* wall time since 1970, UTC */
    sl_slice topic;         /* UTF-8, no wildcards, no NUL */
    sl_slice payload;       /* any bytes, may be empty */
    sl_message_props props;
    sl_rbuf *_body;               /* owned reference: what the slices point into */
    _Atomic(sl_rbuf *) _event[2]; /* owned: the SSE event made from it, live and replayed; sse.c */
} sl_message;

/**
 * A message of one decoded PUBLISH whose slices point into rb. A reference to rb is kept when the
 * message fills most of it, otherwise the bytes are copied, so that a small cached value never pins
 * a large read buffer. seq is 0 until the router sets it.
 * @thread any
 */
sl_message *sl_message_new(const sl_mqtt_publish *publish, sl_rbuf *rb, int64_t received_at_ns);

/** @thread any */
static inline sl_message *sl_message_ref(sl_message *msg)
{
    atomic_fetch_add_explicit(&msg->_refs, 1, memory_order_relaxed);
    return msg;
}
/** Gives one reference back and sets *msg to NULL; accepts NULL inside. @thread any */
void sl_message_unref(sl_message **msg);

typedef enum sl_message_replay {
    SL_MESSAGE_NO_REPLAY_FIELD, /* the message object of GET /mqtt */
    SL_MESSAGE_LIVE,            /* envelope, "replay":false */
    SL_MESSAGE_REPLAYED         /* envelope, "replay":true: it came from our cache */
} sl_message_replay;

/**
 * Appends {topic, payload, payloadEncoding, receivedAt, qos, retain, mqtt5?, replay?}.
 * Errors SL_ETOOBIG the buffer's maximum.
 * @thread any
 */
SL_MUST_USE sl_err sl_message_write_json(const sl_message *msg, sl_message_replay replay,
                                         sl_buf *out);

/** Bytes that the JSON form takes at most, for sizing buffers. @thread any */
size_t sl_message_json_bound(const sl_message *msg);

#endif
