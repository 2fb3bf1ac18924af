/* SPDX-License-Identifier: Apache-2.0
 *
 * io: one I/O loop of the broker: its connections, its log producer, its run queue of actors, and
 * the once-a-second wheel of time-outs. Everything here belongs to its loop's thread.
 */
#ifndef SL_SESSION_IO_H
#define SL_SESSION_IO_H

#include "actor/actor.h"
#include "base/list.h"
#include "core.h"
#include "loop/loop.h"
#include "net/listener.h"

struct sl_conn;
struct sl_out_seg;
struct sl_device_acks;

#define SL_IO_TICK_MS 250
#define SL_IO_WHEEL   1024 /* ticks; longer time-outs go round again */

/* What a completion of the log means: the top bits of its token. */
enum {
    SL_TOKEN_ACK = 1, /* an acknowledgement slot of a connection: loop, slot, sequence */
    SL_TOKEN_OP = 2   /* a pointer to an sl_session_op */
};
#define SL_TOKEN(kind, rest) ((uint64_t)(kind) << 60 | (uint64_t)(rest))

/* Something that waits for a record to be stored; made by an actor, finished on this loop. */
typedef struct sl_session_op {
    void (*fn)(struct sl_session_op *op, struct sl_io *io, sl_err err);
    struct sl_session_op *next; /* the user's */
} sl_session_op;

typedef struct sl_io {
    uint32_t magic;
    sl_core *core; /* borrowed */
    sl_loop *lp;   /* owned */
    unsigned index;
    unsigned shard;            /* of the statistics */
    struct sl_rcu_reader *rcu; /* owned; for lookups by index */
    sl_log_producer *producer; /* owned */
    sl_runner runner;
    struct sl_conn **conns; /* by slot; NULL = free */
    uint32_t *slot_gen;     /* generation of each slot */
    uint32_t conn_cap, conn_count;
    uint32_t *free_slots; /* owned, free_count entries */
    uint32_t free_count;
    sl_list dirty; /* connections with bytes to write this turn */
    sl_list held;  /* clients whose actor waits for room in the append queue */
    sl_list wheel[SL_IO_WHEEL];
    uint64_t wheel_at; /* tick last looked at */
    uint64_t last_session_id;
    bool closing; /* sl_io_close_all was called */
    void (*all_closed)(void *arg);
    void *all_closed_arg;
    sl_timer tick;
    struct sl_out_seg *free_segs; /* small blocks to use again */
    unsigned free_seg_count;
    struct sl_device_acks **acks;   /* per persist loop, being filled; NULL = none */
    _Atomic uint32_t backlog_bytes; /* deliveries under way to this loop */
    bool runner_posted;
    sl_mail runner_mail;
    sl_mail drain_mail; /* the producer's completions wait */
} sl_io;

#define SL_IO_MAGIC 0x51c10100u

/** @thread init */
SL_MUST_USE sl_err sl_io_new(sl_core *core, unsigned index, sl_io **out);
/** Closes all connections (reason 0x8B), then calls closed(arg) on the loop when none is left.
 * @thread loop */
void sl_io_close_all(sl_io *io, void (*closed)(void *arg), void *arg);
/** A connection was freed. @thread loop */
void sl_io_conn_gone(sl_io *io, struct sl_conn *cn);
/** A slot for a new connection; false when the table is full. @thread loop */
bool sl_io_add_conn(sl_io *io, struct sl_conn *cn);
/** Looks at the connection again at about that time. @thread loop */
void sl_io_watch(sl_io *io, struct sl_conn *cn, sl_mono_ms at);
/** Flushes the connection at the end of this turn. @thread loop */
void sl_io_dirty(sl_io *io, struct sl_conn *cn);
/** Ends the loop; letters posted later are not run. @thread init */
void sl_io_stop(sl_io *io);
/** After sl_io_stop. @thread init */
void sl_io_free(sl_io **io);

/** A listener's on_accept: arg is the sl_core; finds the io of the stream's loop. */
void sl_io_on_accept(void *arg, sl_stream *sm);
/** A letter full of deliveries. */
void sl_io_on_deliveries(sl_mail *mail);
/** The io whose loop this is; NULL elsewhere. @thread any */
sl_io *sl_io_current(const sl_core *core);
/** The connection of a slot with this generation, or NULL. @thread loop */
struct sl_conn *sl_io_conn(const sl_io *io, uint32_t slot, uint32_t gen);
void sl_io_count(sl_io *io, unsigned stat, int64_t delta);
/** Puts a client whose actor answered HOLD on the list that room() resumes. Takes a reference.
 * @thread loop */
struct sl_client;
void sl_io_hold(sl_io *io, struct sl_client *cl);

#endif
