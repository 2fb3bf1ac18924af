/* SPDX-License-Identifier: Apache-2.0
 *
 * sse_group: all streams of one filter. A group has two halves: the front's (its connections) and
 * the router's (its listener and outbox); letters carry everything between them. The front makes
 * a group and frees it, after the router's half has said good-bye.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "sse_int.h"

/* On the way to the front, per group; then the newest are dropped. */
#define HANDOFF_MESSAGES 8192u
#define HANDOFF_BYTES    (64u << 20) /* of payload; one message always */

struct sse_group {
    sl_sse *sse;
    char *text; /* owned */
    sl_slice filter;
    // front's half
    sl_node node; /* in all_groups */
    sl_list conns;
    uint32_t size;
    // router's half
    uint64_t listener; /* 0: none */
    uint8_t qos;
    sl_node dirty_node;
    sl_message **outbox; /* owned; holds references */
    uint32_t out_len, out_cap;
    uint64_t out_dropped;
    uint64_t out_bytes;
    // both
    _Atomic uint32_t on_the_way; /* messages posted and not yet taken by the front */
    _Atomic uint64_t bytes_on_the_way;
};

typedef struct batch {
    sl_mail mail;
    sse_group *group;
    sl_message **msgs; /* owned; holds references */
    uint32_t count;
    uint64_t bytes;
    uint64_t dropped;
} batch;

typedef struct join {
    sl_mail mail;
    sse_group *group;
    uint64_t conn;
    uint8_t qos;
    // the answer
    sl_message **msgs; /* owned; holds references */
    size_t count;
    uint64_t seq;
} join;

typedef struct part {
    sl_mail mail;
    sse_group *group;
} part;

/* ---- messages: router's loop to front's ---- */

static void free_messages(sl_message **msgs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sl_message_unref(&msgs[i]);
    sl_free(msgs);
}

static void free_batch(batch *bt)
{
    free_messages(bt->msgs, bt->count);
    sl_free(bt);
}

static void on_batch(sl_mail *mail)
{
    batch *bt = SL_CONTAINER(mail, batch, mail);
    sse_group *gr = bt->group;
    atomic_fetch_sub_explicit(&gr->on_the_way, bt->count, memory_order_relaxed);
    atomic_fetch_sub_explicit(&gr->bytes_on_the_way, bt->bytes, memory_order_relaxed);
    for (sl_node *node = sl_list_first(&gr->conns); node != NULL;
         node = sl_list_next(&gr->conns, node)) {
        sse_conn *cn = SL_CONTAINER(node, sse_conn, gnode);
        for (uint32_t i = 0; i < bt->count; i++)
            sse_offer(cn, bt->msgs[i]);
        if (bt->dropped > 0)
            sse_note_dropped(cn, bt->dropped);
        sse_pump(cn);
    }
    free_batch(bt);
}

static void flush_group(sse_group *gr)
{
    batch *bt = sl_calloc(1, sizeof *bt);
    bt->mail.fn = on_batch;
    bt->group = gr;
    bt->msgs = gr->outbox;
    bt->count = gr->out_len;
    bt->bytes = gr->out_bytes;
    bt->dropped = gr->out_dropped;
    gr->outbox = NULL;
    gr->out_len = gr->out_cap = 0;
    gr->out_dropped = gr->out_bytes = 0;
    atomic_fetch_add_explicit(&gr->bytes_on_the_way, bt->bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&gr->on_the_way, bt->count, memory_order_relaxed);
    if (!sl_loop_post(gr->sse->opt.front, &bt->mail))
        free_batch(bt); // the front has ended: there is nobody to read it
}

static void on_turn_end(void *arg)
{
    sl_sse *sse = arg;
    for (sl_node *node; (node = sl_list_pop_front(&sse->dirty)) != NULL;)
        flush_group(SL_CONTAINER(node, sse_group, dirty_node));
}

static bool handoff_is_full(const sse_group *gr, const sl_message *msg)
{
    uint32_t count = atomic_load_explicit(&gr->on_the_way, memory_order_relaxed) + gr->out_len;
    uint64_t bytes =
        atomic_load_explicit(&gr->bytes_on_the_way, memory_order_relaxed) + gr->out_bytes;
    return count >= HANDOFF_MESSAGES || (count > 0 && bytes + msg->payload.len > HANDOFF_BYTES);
}

/* The live listener. */
static void on_live(void *arg, sl_message *msg)
{
    sse_group *gr = arg;
    if (!sl_node_is_linked(&gr->dirty_node))
        sl_list_push_back(&gr->sse->dirty, &gr->dirty_node);
    if (handoff_is_full(gr, msg)) {
        gr->out_dropped++;
        return;
    }
    gr->out_bytes += msg->payload.len;
    if (gr->out_len == gr->out_cap) {
        gr->out_cap = gr->out_cap == 0 ? 16 : gr->out_cap * 2;
        gr->outbox = sl_realloc(gr->outbox, gr->out_cap * sizeof(sl_message *));
    }
    gr->outbox[gr->out_len++] = sl_message_ref(msg);
}

/* ---- joining ---- */

static void free_join(join *jn)
{
    free_messages(jn->msgs, jn->count);
    sl_free(jn);
}

static void on_joined(sl_mail *mail)
{
    join *jn = SL_CONTAINER(mail, join, mail);
    sse_conn *cn = sl_imap_get(jn->group->sse->conns, jn->conn);
    if (cn != NULL) { // it may have gone meanwhile
        sse_replay(cn, &jn->msgs, jn->count, jn->seq);
        jn->count = 0;
    }
    free_join(jn);
}

/* Listens at the highest QoS that a connection asked for. */
static void listen_at(sse_group *gr, uint8_t qos)
{
    uint64_t before = gr->listener;
    if (before != 0 && qos <= gr->qos)
        return;
    sl_router *rt = gr->sse->opt.rt;
    sl_err err = sl_router_subscribe(rt, gr->filter, qos, on_live, gr, &gr->listener);
    if (err != SL_OK) { // the filter was checked, so only the router's maximum is left
        sl_error(SL_C_SSE, "SSE-NO-LISTENER", SL_B("filter", gr->filter), SL_E(err));
        gr->listener = before;
        return;
    }
    gr->qos = qos;
    if (before != 0)
        sl_router_unsubscribe(rt, before);
}

/* On the router's loop: listen first, then read the cache, so that nothing falls between. What is
 * in the outbox already is older than the snapshot and skipped by number. */
static void on_join(sl_mail *mail)
{
    join *jn = SL_CONTAINER(mail, join, mail);
    sse_group *gr = jn->group;
    listen_at(gr, jn->qos);
    sl_router_match_cache(gr->sse->opt.rt, gr->filter, &jn->msgs, &jn->count, &jn->seq);
    if (!gr->sse->opt.replay) {
        free_messages(jn->msgs, jn->count);
        jn->msgs = NULL;
        jn->count = 0;
    }
    jn->mail.fn = on_joined;
    if (!sl_loop_post(gr->sse->opt.front, &jn->mail))
        free_join(jn);
}

static sse_group *make_group(sl_sse *sse, sl_slice filter)
{
    sse_group *gr = sl_calloc(1, sizeof *gr);
    gr->sse = sse;
    gr->text = sl_strndup(filter.ptr, filter.len);
    gr->filter = sl_slice_of(gr->text, filter.len);
    sl_list_init(&gr->conns);
    sl_list_push_back(&sse->all_groups, &gr->node);
    sl_err err = sl_map_put(sse->groups, gr->filter, gr, NULL);
    SL_ASSERT(err == SL_OK);
    return gr;
}

void sse_group_join(sse_conn *cn, sl_slice filter, uint8_t qos)
{
    sl_sse *sse = cn->sse;
    sse_group *gr = sl_map_get(sse->groups, filter);
    if (gr == NULL)
        gr = make_group(sse, filter);
    cn->group = gr;
    gr->size++;
    sl_list_push_back(&gr->conns, &cn->gnode);
    join *jn = sl_calloc(1, sizeof *jn);
    jn->mail.fn = on_join;
    jn->group = gr;
    jn->conn = cn->id;
    jn->qos = qos;
    if (!sl_loop_post(sse->opt.router, &jn->mail))
        free_join(jn); // the router has ended: the stream stays silent until it is ended too
}

/* ---- leaving ---- */

static void free_group(sse_group *gr)
{
    sl_list_remove(&gr->node);
    free_messages(gr->outbox, gr->out_len);
    sl_free(gr->text);
    sl_free(gr);
}

static void on_gone(sl_mail *mail)
{
    part *pt = SL_CONTAINER(mail, part, mail);
    free_group(pt->group);
    sl_free(pt);
}

/* On the router's loop. Batches posted before arrive at the front before the good-bye. */
static void on_part(sl_mail *mail)
{
    part *pt = SL_CONTAINER(mail, part, mail);
    sse_group *gr = pt->group;
    if (gr->listener != 0)
        sl_router_unsubscribe(gr->sse->opt.rt, gr->listener);
    gr->listener = 0;
    sl_list_remove(&gr->dirty_node);
    pt->mail.fn = on_gone;
    if (!sl_loop_post(gr->sse->opt.front, &pt->mail))
        sl_free(pt); // sse_group_fini frees the group
}

void sse_group_forget(sse_conn *cn)
{
    sl_list_remove(&cn->gnode);
    cn->group->size--;
    cn->group = NULL;
}

void sse_group_leave(sse_conn *cn)
{
    sse_group *gr = cn->group;
    sse_group_forget(cn);
    if (gr->size > 0)
        return;
    sl_map_remove(gr->sse->groups, gr->filter); // who comes now gets a group of its own
    part *pt = sl_calloc(1, sizeof *pt);
    pt->mail.fn = on_part;
    pt->group = gr;
    if (!sl_loop_post(gr->sse->opt.router, &pt->mail))
        sl_free(pt);
}

uint32_t sse_group_size(sl_sse *sse, sl_slice filter)
{
    const sse_group *gr = sl_map_get(sse->groups, filter);
    return gr != NULL ? gr->size : 0;
}

sl_slice sse_group_filter(const sse_group *gr)
{
    return gr->filter;
}

void sse_group_init(sl_sse *sse)
{
    sl_list_init(&sse->all_groups);
    sl_loop_on_turn_end(sse->opt.router, on_turn_end, sse);
}

void sse_group_fini(sl_sse *sse)
{
    for (sl_node *node; (node = sl_list_first(&sse->all_groups)) != NULL;)
        free_group(SL_CONTAINER(node, sse_group, node));
}
