/* SPDX-License-Identifier: Apache-2.0
 *
 * device: delivery to persistent DEVICE clients. A device loop consumes its partitions of
 * tbmq.msg.persisted, stores the records in the clients' inboxes, and hands rows to the I/O loop of
 * a client that is connected, within its window; what is not sent waits in the inbox. One pack of
 * records is on its way to the inboxes at a time; its offset is committed behind the rows.
 *
 * A device (the delivery state of one client) exists while the client is connected, and some
 * minutes longer to know which rows were sent before. It belongs to its device loop.
 */
#ifndef SL_DISPATCH_DEVICE_H
#define SL_DISPATCH_DEVICE_H

#include "core.h"
#include "session/client.h"
#include "session/io.h"

typedef struct sl_device_loop sl_device_loop;

/* What a client's answer means for its inbox. */
typedef enum sl_device_ack {
    SL_DEVICE_REMOVE, /* PUBACK, PUBCOMP, or the message cannot be delivered */
    SL_DEVICE_RESUME, /* none: the connection has room again (sl_client.slow) */
    SL_DEVICE_PUBREC  /* to be answered by PUBREL once the marker is durable */
} sl_device_ack;

#define SL_DEVICE_GROUP "device-persisted-msg-consumer-group"

/** @thread init */
SL_MUST_USE sl_err sl_device_loop_new(sl_core *core, unsigned index, sl_device_loop **out);
SL_MUST_USE sl_err sl_device_loop_start(sl_device_loop *dl);
/** Finishes the pack under way, closes inbox and consumer, joins. @thread init */
void sl_device_loop_stop(sl_device_loop *dl);
void sl_device_loop_free(sl_device_loop **dl);

typedef struct sl_device_attachment {
    uint64_t session_id; /* of the connection */
    uint64_t generation; /* of the session */
    sl_route route;
    uint32_t receive_max;
    bool dup_old; /* rows from before this process may have been sent: a crash cut the connection */
} sl_device_attachment;

/** The client is connected: deliver what its inbox holds. @thread any */
void sl_device_attach(sl_core *core, sl_client *cl, const sl_device_attachment *at);
/** The connection is gone. @thread any */
void sl_device_detach(sl_core *core, sl_client *cl, uint64_t session_id);
/** An answer of the client; collected and sent at the end of the turn. @thread an I/O loop */
void sl_device_acked(sl_io *io, uint32_t client_index, uint64_t session_id, uint16_t packet_id,
                     sl_device_ack kind);
/** Posts what sl_device_acked collected. @thread the I/O loop */
void sl_device_post_acks(sl_io *io);
/** Empties the inbox for a new generation (0: for good), then done(arg) on lp, tried until it
 * succeeds. @thread any */
void sl_device_clear(sl_core *core, sl_client *cl, uint64_t generation, sl_loop *lp,
                     void (*done)(void *arg), void *arg);

#endif
