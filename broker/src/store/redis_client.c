/* SPDX-License-Identifier: Apache-2.0
 *
 * redis_client: see redis_client.h. Operations and their order. Each slot has a lane; what is sent
 * of a lane is at one server at a time, and once an operation comes back unfinished nothing more of
 * the lane leaves until all that were sent are back: so they are sent again in their order.
 */
#include "store/redis_client.h"

#include <openssl/evp.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "net/dial.h"
#include "store/redis_int.h"

#define TRIES_AT_ONCE 8 /* redirections of one operation before it waits a little */

enum { OP_WAITING, OP_SENT, OP_DONE };

static const char asking[] = "*1\r\n$6\r\nASKING\r\n";

void sl_redis_script_name(sl_redis_script *script)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    int ok = EVP_Digest(script->text, strlen(script->text), digest, &len, EVP_sha1(), NULL);
    SL_ASSERT(ok == 1 && len * 2 + 1 == SL_REDIS_SHA_BYTES);
    for (unsigned i = 0; i < len; i++)
        snprintf(script->sha + (size_t)i * 2, 3, "%02x", digest[i]);
}

sl_dur_ms redis_backoff(sl_redis *rd, unsigned failures)
{
    sl_dur_ms span = failures < 6 ? REDIS_BACKOFF_MS << failures : REDIS_BACKOFF_MAX;
    if (span > REDIS_BACKOFF_MAX)
        span = REDIS_BACKOFF_MAX;
    rd->random ^= rd->random << 13;
    rd->random ^= rd->random >> 7;
    rd->random ^= rd->random << 17;
    return span / 2 + (sl_dur_ms)(rd->random % (uint64_t)(span / 2 + 1));
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static redis_lane *lane_of(sl_redis *rd, uint16_t slot)
{
    redis_lane *ln = rd->lanes[slot];
    if (ln == NULL) {
        ln = rd->lanes[slot] = sl_calloc(1, sizeof(*ln));
        sl_list_init(&ln->ops);
    }
    return ln;
}

static void set_next(sl_redis *rd, redis_lane *ln, sl_redis_op *op)
{
    ln->next = op;
    if (op == NULL)
        sl_list_remove(&ln->waiting);
    else if (!sl_node_is_linked(&ln->waiting))
        sl_list_push_back(&rd->waiting, &ln->waiting);
}

/* The first one to send from this node of the list on. */
static sl_redis_op *first_waiting(const redis_lane *ln, sl_node *nd)
{
    for (; nd != NULL; nd = sl_list_next(&ln->ops, nd)) {
        sl_redis_op *op = SL_CONTAINER(nd, sl_redis_op, _node);
        if (op->_state == OP_WAITING)
            return op;
    }
    return NULL;
}

static void op_answered(sl_redis_call *call, sl_redis_reply **reply);

static void asking_answered(sl_redis_call *call, sl_redis_reply **reply)
{
    (void)call; // what counts is the answer to the operation behind it
    (void)reply;
}

static void send_op(redis_lane *ln, sl_redis_op *op, sl_redis_node *nd)
{
    if (op->_ask != NULL) {
        op->_asking =
            (sl_redis_call){.bytes = asking, .len = sizeof(asking) - 1, .done = asking_answered};
        sl_redis_conn_send(nd->cn, &op->_asking);
    }
    op->_call = (sl_redis_call){.bytes = op->bytes, .len = op->len, .done = op_answered};
    sl_redis_conn_send(nd->cn, &op->_call);
    op->_state = OP_SENT;
    op->_at = nd;
    ln->at = nd;
    ln->in_flight++;
    ln->has_barrier = op->is_barrier;
}

static void send_lane(sl_redis *rd, redis_lane *ln)
{
    if (rd->is_closing || (ln->is_disturbed && ln->in_flight > 0))
        return;
    if (ln->is_disturbed) {
        ln->is_disturbed = false;
        set_next(rd, ln, first_waiting(ln, sl_list_first(&ln->ops)));
    }
    if (sl_loop_now(rd->opt.lp) < ln->not_before)
        return;
    while (ln->next != NULL) {
        sl_redis_op *op = ln->next;
        sl_redis_node *nd = op->_ask != NULL                   ? op->_ask
                            : rd->opt.mode == SL_REDIS_CLUSTER ? rd->owners[op->slot]
                                                               : rd->single;
        if (nd == NULL || nd->state != REDIS_NODE_READY)
            return;
        if (ln->in_flight > 0 && (op->is_barrier || ln->has_barrier || nd != ln->at))
            return;
        send_op(ln, op, nd);
        set_next(rd, ln, first_waiting(ln, sl_list_next(&ln->ops, &op->_node)));
    }
}

void redis_kick(sl_redis *rd)
{
    // Lanes leave the list or stay in it, none joins: one round over what is there.
    sl_list round;
    sl_list_init(&round);
    for (sl_node *nd; (nd = sl_list_pop_front(&rd->waiting)) != NULL;)
        sl_list_push_back(&round, nd);
    for (sl_node *nd; (nd = sl_list_pop_front(&round)) != NULL;) {
        sl_list_push_back(&rd->waiting, nd);
        send_lane(rd, SL_CONTAINER(nd, redis_lane, waiting));
    }
    sl_redis_flush(rd);
}

void redis_forget_node(sl_redis *rd, const sl_redis_node *nd)
{
    for (sl_node *at = sl_list_first(&rd->waiting); at != NULL;
         at = sl_list_next(&rd->waiting, at)) {
        redis_lane *ln = SL_CONTAINER(at, redis_lane, waiting);
        for (sl_node *on = sl_list_first(&ln->ops); on != NULL; on = sl_list_next(&ln->ops, on)) {
            sl_redis_op *op = SL_CONTAINER(on, sl_redis_op, _node);
            if (op->_ask == nd)
                op->_ask = NULL;
        }
    }
}

/* ---- answers --------------------------------------------------------------------------------- */

static void finish(sl_redis *rd, sl_redis_op *op)
{
    sl_redis_reply *reply = op->_reply;
    op->_reply = NULL;
    sl_list_remove(&op->_node);
    sl_redis_op_fini(op);
    rd->open_ops--;
    op->done(op, reply);
    sl_redis_reply_free(&reply);
}

/* Those at the front that are done: in their order. */
static void finish_front(sl_redis *rd, redis_lane *ln)
{
    for (sl_node *nd; (nd = sl_list_first(&ln->ops)) != NULL;) {
        sl_redis_op *op = SL_CONTAINER(nd, sl_redis_op, _node);
        if (op->_state != OP_DONE)
            return;
        finish(rd, op);
    }
}

static void wait_a_little(sl_redis *rd, redis_lane *ln)
{
    ln->not_before = sl_loop_now(rd->opt.lp) + REDIS_LATER_MS;
    sl_timer_start(&rd->later, REDIS_LATER_MS, 0);
}

/* True: not a final answer, the operation is to be sent again. */
static bool is_to_repeat(sl_redis *rd, redis_lane *ln, sl_redis_op *op, const sl_redis_reply *reply)
{
    static const char *const later[] = {"TRYAGAIN", "CLUSTERDOWN", "LOADING", "BUSY", "MASTERDOWN"};
    static const char *const lost[] = {"READONLY", "NOAUTH", "UNBLOCKED"};
    if (reply->kind != SL_REDIS_ERROR)
        return false;
    bool is_moved = sl_redis_is_error(reply, "MOVED");
    if (is_moved || sl_redis_is_error(reply, "ASK")) {
        sl_redis_node *nd = redis_node_told(rd, op->_at, reply->text);
        op->_ask = is_moved ? NULL : nd;
        if (is_moved && nd != NULL)
            redis_own(rd, op->slot, nd);
        if (is_moved)
            redis_find(rd);
        if (nd != NULL)
            redis_node_connect(nd);
        return nd != NULL;
    }
    op->_ask = NULL;
    if (sl_redis_is_error(reply, "NOSCRIPT")) {
        redis_node_load_scripts(op->_at);
        return true;
    }
    for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
        if (!sl_redis_is_error(reply, later[i]))
            continue;
        wait_a_little(rd, ln);
        if (i == 1)
            redis_find(rd); // the map may be what is out of date
        return true;
    }
    for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
        if (!sl_redis_is_error(reply, lost[i]))
            continue;
        redis_node_restart(op->_at);
        redis_find(rd);
        return true;
    }
    return false;
}

static void op_answered(sl_redis_call *call, sl_redis_reply **reply)
{
    sl_redis_op *op = SL_CONTAINER(call, sl_redis_op, _call);
    sl_redis *rd = op->_rd;
    redis_lane *ln = rd->lanes[op->slot];
    SL_ASSERT(op->_state == OP_SENT && ln->in_flight > 0);
    ln->in_flight--;
    ln->has_barrier = false;
    bool is_lost = *reply == NULL;
    if (is_lost) {
        op->is_repeated = op->is_repeated || call->is_sent;
        op->_ask = NULL;
    }
    if (is_lost || is_to_repeat(rd, ln, op, *reply)) {
        op->_state = OP_WAITING;
        ln->is_disturbed = true;
        if (!is_lost && ++op->_tries % TRIES_AT_ONCE == 0)
            wait_a_little(rd, ln);
        if (ln->next == NULL)
            set_next(rd, ln, op); // joins the lanes that wait
    } else {
        op->_state = OP_DONE;
        op->_reply = *reply;
        *reply = NULL;
        finish_front(rd, ln);
    }
    if (ln->next != NULL && ln->in_flight == 0) {
        send_lane(rd, ln);
        sl_redis_flush(rd); // perhaps to another server than the one that answered
    }
}

static void on_later(void *arg)
{
    redis_kick(arg);
}

/* ---- the user's side ------------------------------------------------------------------------- */

void sl_redis_op_init(sl_redis_op *op, sl_slice key, const sl_slice *argv, size_t argc,
                      void (*done)(sl_redis_op *op, const sl_redis_reply *reply))
{
    *op = (sl_redis_op){.done = done, .slot = sl_redis_slot(key)};
    op->bytes = sl_redis_format(argv, argc, &op->len);
}

void sl_redis_op_fini(sl_redis_op *op)
{
    sl_redis_bytes_free(&op->bytes);
}

void sl_redis_submit(sl_redis *rd, sl_redis_op *op)
{
    SL_ON_LOOP(rd->opt.lp);
    redis_lane *ln = lane_of(rd, op->slot);
    op->_rd = rd;
    op->_state = OP_WAITING;
    sl_list_push_back(&ln->ops, &op->_node);
    rd->open_ops++;
    if (ln->next != NULL)
        return;
    set_next(rd, ln, op);
    send_lane(rd, ln);
}

void sl_redis_flush(sl_redis *rd)
{
    for (sl_node *at = sl_list_first(&rd->nodes); at != NULL; at = sl_list_next(&rd->nodes, at)) {
        sl_redis_node *nd = SL_CONTAINER(at, sl_redis_node, in_list);
        if (nd->cn != NULL)
            sl_redis_conn_flush(nd->cn);
    }
}

size_t sl_redis_open_ops(const sl_redis *rd)
{
    return rd->open_ops;
}

bool sl_redis_is_trying(const sl_redis *rd)
{
    if (rd->finder.cn != NULL)
        return true;
    for (sl_node *at = sl_list_first(&rd->nodes); at != NULL; at = sl_list_next(&rd->nodes, at))
        if (SL_CONTAINER(at, sl_redis_node, in_list)->cn != NULL)
            return true;
    return false;
}

sl_redis *sl_redis_new(const sl_redis_options *options)
{
    SL_ON_LOOP(options->lp);
    sl_redis *rd = sl_calloc(1, sizeof(*rd));
    rd->opt = *options;
    if (rd->opt.dial == NULL)
        rd->opt.dial = sl_net_dial_tcp;
    rd->random = (sl_clock_mono_ns(sl_loop_clock(options->lp)) ^ (uintptr_t)rd) | 1;
    sl_list_init(&rd->nodes);
    sl_list_init(&rd->waiting);
    sl_timer_init(&rd->later, options->lp, on_later, rd);
    redis_finder_init(rd);
    const sl_redis_address *seed = &options->seeds[0];
    if (rd->opt.mode != SL_REDIS_CLUSTER) {
        rd->single = redis_node_at(rd, seed->host, seed->port);
        rd->single->is_wanted = true;
    }
    if (rd->opt.mode == SL_REDIS_STANDALONE)
        redis_node_connect(rd->single);
    else
        redis_find(rd);
    return rd;
}

void sl_redis_close(sl_redis **pointer)
{
    sl_redis *rd = *pointer;
    if (rd == NULL)
        return;
    *pointer = NULL;
    SL_ON_LOOP(rd->opt.lp);
    rd->is_closing = true;
    redis_finder_fini(rd);
    for (sl_node *at; (at = sl_list_first(&rd->nodes)) != NULL;) {
        sl_redis_node *nd = SL_CONTAINER(at, sl_redis_node, in_list);
        redis_node_free(&nd);
    }
    sl_timer_fini(&rd->later);
    for (size_t slot = 0; slot < SL_REDIS_SLOTS; slot++) {
        redis_lane *ln = rd->lanes[slot];
        for (sl_node *at; ln != NULL && (at = sl_list_first(&ln->ops)) != NULL;)
            finish(rd, SL_CONTAINER(at, sl_redis_op, _node));
        sl_free(ln);
    }
    sl_free(rd);
}
