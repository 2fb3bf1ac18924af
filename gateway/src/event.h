/* SPDX-License-Identifier: Apache-2.0
 *
 * event: the bytes of a server-sent event. A message's event is made once, kept in the message, and
 * shared by all connections that send it; only the number in its id is a connection's own.
 * The payload is split at CR, LF and CRLF into data lines, so that no payload can end an event or
 * forge a field; CR, LF and NUL of a topic are percent-encoded in the id.
 */
#ifndef SL_GATEWAY_EVENT_H
#define SL_GATEWAY_EVENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/rbuf.h"
#include "message.h"

/* Layout of an event's rbuf: the first bytes hold the length of the id part.
 *   [u32 id_len] "id:<topic>-<epoch ms>-"  |  "event:mqtt-message\ndata:...\n\n"
 * On the wire the connection's number and LF stand between the two. */
#define SL_EVENT_HEAD_BYTES 4u

typedef struct sl_event {
    sl_rbuf *rb;     /* owned reference */
    uint32_t id_off; /* "id:..." */
    uint32_t id_len;
    uint32_t body_off; /* "event:..." up to the end */
    uint32_t body_len;
} sl_event;

/**
 * The event of a message, made on first use. envelope: data is the JSON object, else the payload
 * (base64 when it is not UTF-8). replayed: it comes from our cache. A process uses one value of
 * envelope only.
 * Errors  SL_ETOOBIG: it cannot be sent (over 1 GiB).
 * Ownership  out->rb is the caller's reference.
 * @thread any
 */
SL_MUST_USE sl_err sl_event_of(sl_message *msg, bool envelope, bool replayed, sl_event *out);

/** Appends "data:" lines of a text. @thread any */
SL_MUST_USE sl_err sl_event_write_data(sl_buf *out, sl_slice text);
/** Appends a topic as it stands in an id. @thread any */
SL_MUST_USE sl_err sl_event_write_topic(sl_buf *out, sl_slice topic);

#endif
