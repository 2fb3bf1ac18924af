/* SPDX-License-Identifier: Apache-2.0
 *
 * device_int: between the files of the device loop: device.c (devices, deliveries, answers, life)
 * and device_pack.c (records into inboxes). Everything belongs to the device loop's thread.
 */
#ifndef SL_DISPATCH_DEVICE_INT_H
#define SL_DISPATCH_DEVICE_INT_H

#include "base/list.h"
#include "base/map.h"
#include "dispatch/delivery.h"
#include "dispatch/device.h"
#include "store/inbox.h"

#define PACK_BATCHES    32
#define DEVICE_RETRY_MS 1000

typedef struct device {
    sl_client *cl; /* referenced while attached */
    bool attached;
    bool up_to_date; /* every row of the box was handed out */
    bool reading;
    bool dup_old;
    bool waiting;          /* for the connection to ask for more */
    bool stored_meanwhile; /* rows came while a read was under way */
    uint32_t index;        /* of the client, while attached */
    uint64_t session_id;
    uint64_t generation;
    sl_route route;
    uint32_t receive_max;
    uint32_t open; /* handed out and not acknowledged */
    uint64_t open_bytes;
    uint64_t sent_row; /* last row handed out on this connection */
    uint64_t seen_row; /* last row handed out ever: up to here DUP */
    uint64_t *syncing; /* owned: first rows of adds whose QoS 2 rows are not synced, oldest first */
    uint32_t syncing_count, syncing_cap;
    uint32_t ops; /* inbox operations under way that refer to it */
    sl_mono_ms detached_at;
    sl_node node; /* of the loop's list of devices */
    uint32_t id_len;
    uint8_t id[];
} device;

/* One record of a pack. */
typedef struct pack_row {
    sl_log_record rec;
    sl_inbox_row row;
    uint64_t generation;
    uint8_t head[8];
    uint8_t *props; /* owned: length and properties with our subscription identifiers, or NULL */
    struct pack_row *next; /* of the same client */
} pack_row;

/* The rows of one client in the pack: one add. */
typedef struct pack_add {
    sl_slice client; /* key of its first record */
    device *dv;      /* borrowed; looked up again at completion */
    pack_row *first, *last;
    uint32_t count;
    bool taken, done;
    uint64_t first_row;
} pack_add;

typedef struct pack {
    sl_log_batch batches[PACK_BATCHES];
    size_t batch_count;
    pack_row *rows; /* owned */
    uint32_t row_count, row_cap;
    pack_add *adds; /* owned */
    uint32_t add_count, add_cap;
    uint32_t next_add; /* adds before it have been taken by the inbox */
    uint32_t open;     /* taken, not stored */
} pack;

/* An acknowledgement that the inbox could not take yet. */
typedef struct pending_ack {
    struct pending_ack *next;
    device *dv;
    uint16_t packet_id;
    uint8_t kind;
} pending_ack;

typedef struct clear_op {
    sl_mail mail;
    sl_device_loop *dl;
    struct clear_op *next;
    sl_client *cl; /* referenced */
    uint64_t generation;
    sl_loop *lp;
    void (*done)(void *arg);
    void *arg;
} clear_op;

struct sl_device_loop {
    sl_core *core;
    sl_loop *lp;
    unsigned index;
    unsigned shard;
    sl_log_consumer *consumer;
    sl_inbox *inbox;
    sl_map *by_id;     /* device */
    sl_imap *by_index; /* attached devices, by index of the client */
    sl_list devices;
    pack pk;
    bool packing;
    clear_op *clears, *clears_last; /* to be taken by the inbox */
    pending_ack *acks, *acks_last;
    sl_delivery_mail **out; /* per I/O loop, being filled */
    sl_timer retry, tidy;
    sl_mail poll_mail, drain_mail;
    _Atomic bool poll_posted;
    sl_wall_ms started_at;
    bool started;
    bool stopping;
};

/* What an inbox completion belongs to. */
typedef struct op_ref {
    uint32_t add;        /* of an add: index in the pack */
    device *dv;          /* of a read, a marker, and an add's second completion */
    uint64_t session_id; /* of the connection it is for */
    uint64_t first_row;
    uint16_t packet_id;
    clear_op *clear;
    bool again; /* a second completion follows */
} op_ref;

/* device.c */
void sl_device_count(sl_device_loop *dl, unsigned stat, int64_t delta);
/** A reference for an operation of the inbox; dv (may be NULL) stays at least as long. */
op_ref *sl_device_new_ref(device *dv);
void sl_device_free_ref(op_ref *ref);
device *sl_device_get(sl_device_loop *dl, sl_slice id);
sl_slice sl_device_id(const device *dv);
/** Up to which row QoS 2 messages may leave. */
uint64_t sl_device_synced_row(const device *dv);
void sl_device_add_syncing(device *dv, uint64_t first_row);
void sl_device_end_syncing(device *dv, uint64_t first_row);
bool sl_device_window_open(const device *dv);
/** Hands a row to the connection; its packet is an MQTT 5 PUBLISH inside body. */
void sl_device_hand_out(sl_device_loop *dl, device *dv, const sl_inbox_entry *en, sl_rbuf *body);
/** Reads on when something is to be read and there is room in the window. */
void sl_device_pump(sl_device_loop *dl, device *dv);

/* device_pack.c */
void sl_device_on_poll(sl_mail *mail);
void sl_device_wake_poll(void *arg);
void sl_device_on_add(sl_device_loop *dl, op_ref *ref, const sl_inbox_done *done);
void sl_device_on_add_synced(sl_device_loop *dl, const op_ref *ref);
/** Gives what is left of the pack to the inbox; the next pack follows when all is stored. */
void sl_device_take_pack(sl_device_loop *dl);
/** Lets go of a pack that was not finished; its records are read again after the next start. */
void sl_device_drop_pack(sl_device_loop *dl);

#endif
