/* SPDX-License-Identifier: Apache-2.0
 *
 * on_subscribe: SUBSCRIBE and UNSUBSCRIBE: the client's list, the trie, and the record in
 * tbmq.client.subscriptions. The answer leaves once the record is stored; changes that come while a
 * record is under way go together into the next one.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "mqtt/decode.h"
#include "mqtt/encode.h"
#include "mqtt/topic.h"
#include "route/sub_trie.h"
#include "session/actor_int.h"
#include "session/manager.h"
#include "session/stamps.h"

/* An answer that waits for a record: the whole packet. */
typedef struct sub_answer {
    sl_session_op base; /* next: the list; fn is unused */
    sl_conn *cn;        /* referenced */
    size_t len;
    uint8_t bytes[];
} sub_answer;

static uint32_t find_sub(const sl_client *cl, sl_slice filter)
{
    for (uint32_t i = 0; i < cl->sub_count; i++) {
        if (sl_slice_equal(sl_slice_of(cl->subs[i].filter, cl->subs[i].filter_len), filter))
            return i;
    }
    return UINT32_MAX;
}

void sl_client_add_sub(sl_client *cl, sl_slice filter, const sl_client_sub *sub)
{
    if (cl->sub_count == cl->sub_cap) {
        cl->sub_cap = cl->sub_cap == 0 ? 2 : cl->sub_cap * 2;
        cl->subs = sl_realloc(cl->subs, cl->sub_cap * sizeof(*cl->subs));
    }
    sl_client_sub *cs = &cl->subs[cl->sub_count++];
    *cs = *sub;
    cs->filter = sl_alloc(filter.len);
    cs->filter_len = (uint32_t)filter.len;
    memcpy(cs->filter, filter.ptr, filter.len);
}

static void remove_sub(sl_client *cl, sl_io *io, uint32_t at)
{
    sl_client_sub *cs = &cl->subs[at];
    (void)sl_sub_trie_remove(io->core->trie, sl_slice_of(cs->filter, cs->filter_len), cl->index,
                             NULL);
    sl_stamps_unref(io->core->stamps, cs->stamp);
    sl_free(cs->filter);
    *cs = cl->subs[--cl->sub_count];
}

static void free_answers(sl_session_op **list)
{
    while (*list != NULL) {
        sub_answer *sa = SL_CONTAINER(*list, sub_answer, base);
        *list = sa->base.next;
        sl_conn_unref(&sa->cn);
        sl_free(sa);
    }
}

void sl_actor_drop_subs(sl_client *cl, sl_io *io)
{
    free_answers(&cl->sub_waiting); // of a connection that is gone
    while (cl->sub_count > 0)
        remove_sub(cl, io, cl->sub_count - 1);
    sl_free(cl->subs);
    cl->subs = NULL;
    cl->sub_cap = 0;
    cl->subs_dirty = false;
}

/* Stores what has changed; without room in the append queue an item is left that holds the actor
 * until there is. */
static void store_or_wait(sl_client *cl, sl_io *io)
{
    if (sl_actor_store_subs(cl, io) == SL_EAGAIN)
        sl_client_actor_post(io, cl, sl_client_item_new(SL_ITEM_STORE_SUBS, NULL));
}

/* ---- the record ---------------------------------------------------------------------------------
 */

typedef struct store_op {
    sl_session_op base;
    sl_client *cl; /* referenced */
} store_op;

static void on_stored(sl_session_op *base, sl_io *io, sl_err err)
{
    store_op *op = SL_CONTAINER(base, store_op, base);
    sl_client_item *it = sl_client_item_new(SL_ITEM_SUBS_STORED, NULL);
    it->err = err;
    sl_client_actor_post(io, op->cl, it);
    sl_client_unref(&op->cl);
    sl_free(op);
}

sl_err sl_actor_store_subs(sl_client *cl, sl_io *io)
{
    store_op *op = sl_calloc(1, sizeof(*op));
    op->base.fn = on_stored;
    op->cl = cl;
    sl_client_ref(cl);
    sl_err err = sl_manager_store_subs(io, cl, &op->base);
    if (err != SL_OK) {
        sl_client_unref(&op->cl);
        sl_free(op);
        if (err == SL_EAGAIN)
            return err;
        // Nothing is under way: answer what waits with the error.
        sl_client_item *it = sl_client_item_new(SL_ITEM_SUBS_STORED, NULL);
        it->err = err;
        cl->subs_dirty = false;
        cl->sub_op = cl->sub_waiting;
        cl->sub_waiting = NULL;
        sl_client_actor_post(io, cl, it);
        return SL_OK;
    }
    cl->subs_dirty = false;
    cl->sub_op = cl->sub_waiting; // the answers that this record releases
    cl->sub_waiting = NULL;
    return SL_OK;
}

sl_actor_verdict sl_actor_on_subs_stored(sl_client *cl, sl_io *io, sl_err err)
{
    sl_session_op *op = cl->sub_op;
    cl->sub_op = NULL;
    while (op != NULL) {
        sub_answer *sa = SL_CONTAINER(op, sub_answer, base);
        op = op->next;
        if (err == SL_OK)
            sl_conn_send(sa->cn, sl_slice_of(sa->bytes, sa->len));
        else
            sl_conn_end(sa->cn, SL_RC_UNSPECIFIED_ERROR, true); // not kept: not acknowledged
        sl_conn_unref(&sa->cn);
        sl_free(sa);
    }
    if (err != SL_OK)
        sl_warn(SL_C_SESSION, "SUBSCRIPTIONS-NOT-STORED", SL_B("client", sl_client_id(cl)),
                SL_E(err));
    if (cl->subs_dirty)
        store_or_wait(cl, io);
    return SL_ACTOR_DONE;
}

/* Queues the answer behind the record that holds the change (or sends it when nothing changed). */
static void answer(sl_client *cl, sl_client_item *it, sl_mqtt_type type, uint16_t packet_id,
                   sl_slice reasons, bool changed)
{
    sl_mqtt_packet pkt = {.type = type};
    pkt.suback.packet_id = packet_id;
    pkt.suback.reasons = reasons;
    sl_buf buf;
    sl_buf_init(&buf, reasons.len + 64);
    sl_err err = sl_mqtt_encode(&pkt, (sl_mqtt_version)it->conn->version, &buf);
    SL_ASSERT(err == SL_OK);
    sl_slice bytes = sl_buf_peek(&buf);
    if (bytes.len > it->conn->max_packet_out) { // [MQTT-3.1.2-24]: it would wait for ever
        sl_actor_end_conn(it, SL_RC_PACKET_TOO_LARGE, true);
        if (changed)
            cl->subs_dirty = true; // what was changed is stored all the same
    } else if (!changed && cl->sub_op == NULL && cl->sub_waiting == NULL) {
        sl_conn_send(it->conn, bytes);
    } else {
        sub_answer *sa = sl_calloc(1, sizeof(*sa) + bytes.len);
        sa->cn = it->conn;
        sl_conn_ref(sa->cn);
        sa->len = bytes.len;
        memcpy(sa->bytes, bytes.ptr, bytes.len);
        sl_session_op **last = &cl->sub_waiting;
        while (*last != NULL)
            last = &(*last)->next;
        *last = &sa->base;
        cl->subs_dirty = true;
    }
    sl_buf_fini(&buf);
}

/* ---- SUBSCRIBE ----------------------------------------------------------------------------------
 */

/* 0x80 is the one refusal that 3.1.1 knows. */
static uint8_t refusal(const sl_conn *cn, sl_mqtt_rc rc)
{
    return cn->version >= SL_MQTT_V5 ? (uint8_t)rc : SL_RC_UNSPECIFIED_ERROR;
}

static sl_mqtt_rc check_filter(const sl_limits *lim, sl_slice filter)
{
    unsigned levels = lim->max_topic_levels == 0 ? 0 : lim->max_topic_levels + 1;
    const char *why = NULL;
    sl_mqtt_share share;
    if (sl_mqtt_share_parse(filter, levels, &share, &why) != SL_OK)
        return SL_RC_TOPIC_FILTER_INVALID;
    if (share.is_shared) // CONNACK said: Shared Subscription Available 0
        return SL_RC_SHARED_NOT_SUPPORTED;
    if (!lim->allow_root_wildcard && filter.len == 1 && filter.ptr[0] == '#')
        return SL_RC_TOPIC_FILTER_INVALID;
    return SL_RC_SUCCESS;
}

/* One filter: into list and trie. Returns the reason code of the answer. */
static uint8_t subscribe_one(sl_client *cl, sl_io *io, const sl_conn *cn,
                             const sl_mqtt_sub_option *opt, uint32_t sub_id)
{
    const sl_limits *lim = &io->core->limits;
    sl_mqtt_rc rc = check_filter(lim, opt->filter);
    if (rc != SL_RC_SUCCESS)
        return refusal(cn, rc);
    uint32_t at = find_sub(cl, opt->filter);
    if (at == UINT32_MAX && cl->sub_count >= lim->max_subscriptions)
        return refusal(cn, SL_RC_QUOTA_EXCEEDED);
    sl_client_sub cs = {.sub_id = sub_id,
                        .qos = opt->qos,
                        .flags =
                            (uint8_t)((opt->no_local ? SL_SUB_NO_LOCAL : 0) |
                                      (opt->retain_as_published ? SL_SUB_RETAIN_AS_PUBLISHED : 0) |
                                      opt->retain_handling << SL_SUB_RETAIN_HANDLING_SHIFT)};
    // A repeated SUBSCRIBE keeps the stamp of the first one.
    cs.stamp = at == UINT32_MAX ? sl_stamps_now(io->core->stamps) : cl->subs[at].stamp;
    sl_sub sub = {
        .client = cl->index, .sub_id = sub_id, .stamp = cs.stamp, .qos = cs.qos, .flags = cs.flags};
    if (sl_sub_trie_put(io->core->trie, opt->filter, &sub, NULL, NULL) != SL_OK) {
        if (at == UINT32_MAX)
            sl_stamps_unref(io->core->stamps, cs.stamp);
        return refusal(cn, SL_RC_QUOTA_EXCEEDED);
    }
    if (at == UINT32_MAX) {
        sl_client_add_sub(cl, opt->filter, &cs);
    } else {
        cl->subs[at].sub_id = cs.sub_id;
        cl->subs[at].qos = cs.qos;
        cl->subs[at].flags = cs.flags;
    }
    return opt->qos;
}

sl_actor_verdict sl_actor_on_subscribe(sl_client *cl, sl_io *io, sl_client_item *it,
                                       const sl_mqtt_subscribe *sub)
{
    uint8_t *reasons = sl_alloc(sub->count);
    sl_mqtt_sub_option opt;
    size_t pos = 0;
    uint32_t n = 0;
    bool changed = false;
    uint32_t sub_id =
        (sub->props.has & SL_PROP_SUBSCRIPTION_ID) != 0 ? sub->props.subscription_id : 0;
    while (n < sub->count &&
           sl_mqtt_subscribe_next(sub, (sl_mqtt_version)it->conn->version, &pos, &opt)) {
        reasons[n] = subscribe_one(cl, io, it->conn, &opt, sub_id);
        changed |= reasons[n++] < SL_RC_UNSPECIFIED_ERROR;
    }
    answer(cl, it, SL_MQTT_SUBACK, sub->packet_id, sl_slice_of(reasons, n), changed);
    sl_free(reasons);
    if (cl->subs_dirty && cl->sub_op == NULL)
        store_or_wait(cl, io);
    return SL_ACTOR_DONE;
}

sl_actor_verdict sl_actor_on_unsubscribe(sl_client *cl, sl_io *io, sl_client_item *it,
                                         const sl_mqtt_subscribe *sub)
{
    uint8_t *reasons = sl_alloc(sub->count);
    sl_slice filter;
    size_t pos = 0;
    uint32_t n = 0;
    bool changed = false;
    while (n < sub->count && sl_mqtt_unsubscribe_next(sub, &pos, &filter)) {
        uint32_t at = find_sub(cl, filter);
        reasons[n++] = at == UINT32_MAX ? SL_RC_NO_SUBSCRIPTION_EXISTED : SL_RC_SUCCESS;
        if (at != UINT32_MAX) {
            remove_sub(cl, io, at);
            changed = true;
        }
    }
    bool v5 = it->conn->version >= SL_MQTT_V5;
    answer(cl, it, SL_MQTT_UNSUBACK, sub->packet_id, sl_slice_of(reasons, v5 ? n : 0), changed);
    sl_free(reasons);
    if (cl->subs_dirty && cl->sub_op == NULL)
        store_or_wait(cl, io);
    return SL_ACTOR_DONE;
}
