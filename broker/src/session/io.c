/* SPDX-License-Identifier: Apache-2.0
 *
 * io: see io.h.
 */
#include "session/io.h"

#include <stdio.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "dispatch/delivery.h"
#include "dispatch/device.h"
#include "route/rcu.h"
#include "session/conn.h"
#include "stats/broker_stats.h"
#include "stats/msg_trace.h"

#define MAX_SLOTS (1u << 24)

void sl_io_count(sl_io *io, unsigned stat, int64_t delta)
{
    sl_stats_add(io->core->stats, io->shard, stat, delta);
}

/* ---- the table of connections -----------------------------------------------------------------
 */

bool sl_io_add_conn(sl_io *io, sl_conn *cn)
{
    sl_io_count(io, SL_BS_CONNECTIONS, 1);
    io->conn_count++;
    if (io->free_count == 0) {
        uint32_t cap = io->conn_cap == 0 ? 256 : io->conn_cap * 2;
        if (cap > MAX_SLOTS) {
            cn->slot = UINT32_MAX;
            return false;
        }
        io->conns = sl_realloc(io->conns, cap * sizeof(*io->conns));
        io->slot_gen = sl_realloc(io->slot_gen, cap * sizeof(*io->slot_gen));
        io->free_slots = sl_realloc(io->free_slots, cap * sizeof(*io->free_slots));
        for (uint32_t slot = cap; slot-- > io->conn_cap;) {
            io->conns[slot] = NULL;
            io->slot_gen[slot] = 0;
            io->free_slots[io->free_count++] = slot;
        }
        io->conn_cap = cap;
    }
    cn->slot = io->free_slots[--io->free_count];
    cn->gen = io->slot_gen[cn->slot];
    io->conns[cn->slot] = cn;
    return true;
}

void sl_io_conn_gone(sl_io *io, sl_conn *cn)
{
    sl_io_count(io, SL_BS_CONNECTIONS, -1);
    sl_listener_release(io->core->tcp);
    io->conn_count--;
    if (cn->slot != UINT32_MAX) {
        io->conns[cn->slot] = NULL;
        io->slot_gen[cn->slot] = (io->slot_gen[cn->slot] + 1) & 0xFFFFFF;
        io->free_slots[io->free_count++] = cn->slot;
    }
    if (io->closing && io->conn_count == 0 && io->all_closed != NULL) {
        void (*fn)(void *) = io->all_closed;
        io->all_closed = NULL;
        fn(io->all_closed_arg);
    }
}

sl_conn *sl_io_conn(const sl_io *io, uint32_t slot, uint32_t gen)
{
    if (slot >= io->conn_cap || io->conns[slot] == NULL || io->slot_gen[slot] != gen)
        return NULL;
    return io->conns[slot];
}

void sl_io_on_accept(void *arg, sl_stream *sm)
{
    sl_core *core = arg;
    sl_io *io = sl_io_current(core);
    SL_ASSERT(io != NULL);
    if (atomic_load(&core->draining)) {
        sl_stream_close(sm);
        sl_listener_release(core->tcp);
        return;
    }
    sl_conn_open(io, &sm);
}

sl_io *sl_io_current(const sl_core *core)
{
    const sl_loop *lp = sl_loop_current();
    if (lp == NULL)
        return NULL;
    unsigned tag = sl_loop_tag(lp);
    return tag < core->io_count && core->ios[tag]->lp == lp ? core->ios[tag] : NULL;
}

/* ---- once a turn ------------------------------------------------------------------------------
 */

void sl_io_dirty(sl_io *io, sl_conn *cn)
{
    if (!sl_node_is_linked(&cn->dirty_node))
        sl_list_push_back(&io->dirty, &cn->dirty_node);
}

static void run_actors(sl_mail *mail)
{
    sl_io *io = SL_CONTAINER(mail, sl_io, runner_mail);
    io->runner_posted = false;
    (void)sl_runner_run(&io->runner);
}

static void on_turn_end(void *arg)
{
    sl_io *io = arg;
    for (sl_node *node; (node = sl_list_pop_front(&io->dirty)) != NULL;) {
        sl_conn *cn = SL_CONTAINER(node, sl_conn, dirty_node);
        sl_conn_ref(cn);
        sl_conn_flush(cn);
        sl_conn_unref(&cn);
    }
    sl_device_post_acks(io);
    if (!sl_list_is_empty(&io->runner._queue) && !io->runner_posted) {
        io->runner_posted = true; // a letter, so that I/O comes between two turns of an actor
        sl_loop_post(io->lp, &io->runner_mail);
    }
}

/* ---- completions of the log -------------------------------------------------------------------
 */

static sl_mqtt_rc rc_of_store_error(sl_err err)
{
    return err == SL_OK ? SL_RC_SUCCESS
                        : (err == SL_ENOSPC ? SL_RC_QUOTA_EXCEEDED : SL_RC_UNSPECIFIED_ERROR);
}

static void on_acked(sl_io *io, const sl_log_done *done)
{
    unsigned loop = (unsigned)(done->token >> 52) & 0xFF;
    uint32_t slot = (uint32_t)(done->token >> 28) & 0xFFFFFF;
    uint32_t seq = (uint32_t)done->token & 0xFFFFFFF;
    // The slot cannot have been reused: a connection stays until all its acknowledgements are done.
    sl_io *owner = io->core->ios[loop];
    sl_msg_trace_step(io->core->trace, SL_STEP_STORED, slot, done->offset, seq);
    if (done->err != SL_OK)
        sl_io_count(io, SL_BS_DROP_NOT_STORED, 1);
    sl_conn_complete_slot(owner, slot, seq, rc_of_store_error(done->err));
}

static void on_done(void *arg, const sl_log_done *dones, size_t count)
{
    sl_io *io = arg;
    for (size_t i = 0; i < count; i++) {
        if (dones[i].token >> 60 == SL_TOKEN_ACK) {
            on_acked(io, &dones[i]);
        } else {
            sl_session_op *op = (sl_session_op *)(uintptr_t)(dones[i].token & 0xFFFFFFFFFFFFFFF);
            op->fn(op, io, dones[i].err);
        }
    }
}

static void on_wake(void *arg)
{
    sl_io *io = arg;
    sl_loop_post(io->lp, &io->drain_mail);
}

static void on_drain(sl_mail *mail)
{
    sl_io *io = SL_CONTAINER(mail, sl_io, drain_mail);
    if (io->producer != NULL)
        (void)sl_log_producer_drain(io->producer);
}

void sl_io_hold(sl_io *io, sl_client *cl)
{
    sl_io_count(io, SL_BS_HELD_BACK, 1);
    sl_client_ref(cl);
    sl_list_push_back(&io->held, &cl->held_node);
}

static void on_room(void *arg)
{
    sl_io *io = arg;
    sl_list again;
    sl_list_init(&again);
    for (sl_node *node; (node = sl_list_pop_front(&io->held)) != NULL;)
        sl_list_push_back(&again, node);
    for (sl_node *node; (node = sl_list_pop_front(&again)) != NULL;) {
        sl_client *cl = SL_CONTAINER(node, sl_client, held_node);
        sl_actor_resume(&cl->actor, &io->runner);
        sl_client_unref(&cl);
    }
}

/* ---- deliveries -------------------------------------------------------------------------------
 */

void sl_io_on_deliveries(sl_mail *mail)
{
    sl_delivery_mail *dm = SL_CONTAINER(mail, sl_delivery_mail, mail);
    sl_io *io = dm->io;
    for (uint32_t i = 0; i < dm->item_count; i++) {
        const sl_delivery *item = &dm->items[i];
        sl_conn *cn = sl_io_conn(io, item->slot, item->gen);
        if (cn != NULL)
            sl_conn_deliver(cn, dm, item);
        else if ((item->flags & SL_DELIVER_INBOX) == 0)
            sl_io_count(io, SL_BS_DROP_OFFLINE, 1);
    }
    atomic_fetch_sub_explicit(&io->backlog_bytes, dm->bytes, memory_order_relaxed);
    sl_delivery_mail_free(&dm);
}

/* ---- the wheel of time-outs -------------------------------------------------------------------
 */

void sl_io_watch(sl_io *io, sl_conn *cn, sl_mono_ms at)
{
    uint64_t tick = (uint64_t)(at + SL_IO_TICK_MS - 1) / SL_IO_TICK_MS;
    if (tick <= io->wheel_at)
        tick = io->wheel_at + 1;
    if (tick >= io->wheel_at + SL_IO_WHEEL)
        tick = io->wheel_at + SL_IO_WHEEL - 1; // looked at then, and put on again
    if (sl_node_is_linked(&cn->wheel_node)) {
        if (cn->watch_tick <= tick)
            return; // an earlier look re-arms itself
        sl_list_remove(&cn->wheel_node);
    }
    cn->watch_tick = tick;
    sl_list_push_back(&io->wheel[tick % SL_IO_WHEEL], &cn->wheel_node);
}

static void on_tick(void *arg)
{
    sl_io *io = arg;
    sl_mono_ms now = sl_loop_now(io->lp);
    uint64_t tick = (uint64_t)now / SL_IO_TICK_MS;
    while (io->wheel_at < tick) {
        sl_list due;
        sl_list_init(&due);
        io->wheel_at++;
        sl_list *bucket = &io->wheel[io->wheel_at % SL_IO_WHEEL];
        for (sl_node *node; (node = sl_list_pop_front(bucket)) != NULL;)
            sl_list_push_back(&due, node);
        for (sl_node *node; (node = sl_list_pop_front(&due)) != NULL;)
            sl_conn_check_time(SL_CONTAINER(node, sl_conn, wheel_node), now);
    }
}

/* ---- life -------------------------------------------------------------------------------------
 */

static void start_on_loop(void *arg)
{
    sl_io *io = arg;
    io->rcu = sl_rcu_register(io->core->rcu);
    io->shard = sl_stats_shard(io->core->stats);
    io->wheel_at = (uint64_t)sl_loop_now(io->lp) / SL_IO_TICK_MS;
    sl_timer_init(&io->tick, io->lp, on_tick, io);
    sl_timer_start(&io->tick, SL_IO_TICK_MS, SL_IO_TICK_MS);
}

sl_err sl_io_new(sl_core *core, unsigned index, sl_io **out)
{
    sl_io *io = sl_calloc(1, sizeof(*io));
    io->magic = SL_IO_MAGIC;
    io->core = core;
    io->index = index;
    sl_runner_init(&io->runner, io);
    sl_list_init(&io->dirty);
    sl_list_init(&io->held);
    for (unsigned i = 0; i < SL_IO_WHEEL; i++)
        sl_list_init(&io->wheel[i]);
    io->acks = sl_calloc(core->device_count + 1, sizeof(struct sl_device_acks *));
    io->runner_mail.fn = run_actors;
    io->drain_mail.fn = on_drain;
    char name[16];
    snprintf(name, sizeof(name), "io-%u", index);
    sl_err err = sl_loop_new(name, core->clock, &io->lp);
    if (err == SL_OK) {
        sl_loop_set_tag(io->lp, index);
        sl_loop_on_turn_end(io->lp, on_turn_end, io);
        sl_log_producer_options po = {.wake = on_wake, .done = on_done, .room = on_room, .arg = io};
        err = sl_log_producer_open(core->log, &po, &io->producer);
    }
    if (err == SL_OK)
        err = sl_loop_start(io->lp);
    if (err != SL_OK) {
        sl_io_free(&io);
        return err;
    }
    sl_loop_call_wait(io->lp, start_on_loop, io);
    *out = io;
    return SL_OK;
}

void sl_io_close_all(sl_io *io, void (*closed)(void *arg), void *arg)
{
    io->closing = true;
    io->all_closed = closed;
    io->all_closed_arg = arg;
    for (uint32_t slot = 0; slot < io->conn_cap; slot++) {
        if (io->conns[slot] != NULL)
            sl_conn_end(io->conns[slot], SL_RC_SERVER_SHUTTING_DOWN, true);
    }
    if (io->conn_count == 0 && io->all_closed != NULL) {
        io->all_closed = NULL;
        closed(arg);
    }
}

static void stop_on_loop(void *arg)
{
    sl_io *io = arg;
    sl_timer_fini(&io->tick);
    sl_rcu_unregister(&io->rcu);
}

void sl_io_stop(sl_io *io)
{
    if (io->rcu == NULL)
        return; // never started
    sl_loop_call_wait(io->lp, stop_on_loop, io);
    sl_loop_stop(io->lp);
    sl_loop_join(io->lp);
}

void sl_io_free(sl_io **pointer)
{
    sl_io *io = *pointer;
    if (io == NULL)
        return;
    *pointer = NULL;
    if (io->producer != NULL)
        sl_log_producer_close(&io->producer);
    if (io->lp != NULL)
        sl_loop_free(&io->lp);
    while (io->free_segs != NULL) {
        sl_out_seg *seg = io->free_segs;
        io->free_segs = seg->next;
        sl_free(seg);
    }
    sl_free(io->conns);
    sl_free(io->slot_gen);
    sl_free(io->free_slots);
    sl_free(io->acks);
    sl_free(io);
}
