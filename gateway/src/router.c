/* SPDX-License-Identifier: Apache-2.0
 *
 * router: filters without wildcards are found by a hash of the topic, the few with wildcards are
 * tried one by one. A message waits for its durable listeners in a `pending`, which holds their
 * tokens; a token is a letter that comes home when the listener is done.
 */
#include "router.h"

#include <stdlib.h>

#include "base/alloc.h"
#include "base/list.h"
#include "base/logger.h"
#include "base/map.h"
#include "filter.h"
#include "mqtt/topic.h"

#define ROUTER_MAGIC    0x53724f75u
#define TOKEN_COST      1000 /* the bucket counts thousandths of a message */
#define RATE_BURST_MS   1000 /* an idle bucket holds one second's worth */
#define RATE_MAX        1000000000
#define MAX_FILTERS     100000 /* distinct; connection limits bound it earlier */
#define SCRATCH_INITIAL 16
#define CACHE_BYTES     (256ull << 20) /* topics and payloads in the cache; one message always */

typedef enum listener_kind { LIVE, DURABLE, PRIME } listener_kind;

typedef struct filter_entry {
    sl_node node; /* in _all */
    sl_node wild; /* in _wild when it has wildcards */
    char *text;   /* owned */
    sl_slice filter;
    sl_list listeners;
    uint32_t count; /* of those not dead */
    uint32_t durable;
    uint8_t qos; /* the highest of the living */
} filter_entry;

typedef struct listener {
    sl_node node; /* in its filter's list */
    uint64_t id;
    filter_entry *filter;
    listener_kind kind;
    uint8_t qos;
    bool dead; /* unsubscribed while messages are being handed out */
    sl_live_f *live;
    sl_durable_f *durable;
    void *arg;
} listener;

struct sl_taken {
    sl_mail mail;
    struct pending *owner;
};

typedef struct pending {
    sl_node node;
    sl_router *rt;
    sl_delivery delivery;
    uint32_t open; /* tokens not yet back */
    sl_taken tokens[];
} pending;

typedef struct cached {
    sl_node node; /* least recently used first */
    sl_message *msg;
} cached;

struct sl_router {
    uint32_t magic;
    sl_router_options opt;
    sl_list all;
    sl_list wild;
    sl_map *filters;  /* text -> filter_entry */
    sl_imap *by_id;   /* id -> listener */
    sl_list pendings; /* for router_free */
    sl_map *last;     /* topic -> cached */
    sl_list lru;      /* of cached */
    uint64_t cache_bytes;
    listener **hits; /* scratch of one deliver */
    size_t hits_cap;
    uint64_t next_id;
    uint64_t next_seq;
    bool handing_out;
    bool has_dead;
    int64_t bucket; /* thousandths of a message */
    sl_mono_ms bucket_at;
    sl_mail changed;
    bool changed_posted;
    _Atomic uint64_t received, dropped, unmatched, evictions;
    _Atomic uint32_t listeners, filter_count, cached, pending_count;
};

/* The loop is the only writer of these numbers, so a plain load and store is an increment. */
#define BUMP(field, by)                                                                            \
    atomic_store_explicit(&(field), atomic_load_explicit(&(field), memory_order_relaxed) + (by),   \
                          memory_order_relaxed)

static void on_changed(sl_mail *mail)
{
    sl_router *rt = SL_CONTAINER(mail, sl_router, changed);
    rt->changed_posted = false;
    rt->opt.on_filters(rt->opt.arg);
}

static void note_change(sl_router *rt)
{
    if (rt->changed_posted || rt->opt.on_filters == NULL)
        return;
    rt->changed_posted = true;
    rt->changed.fn = on_changed;
    sl_loop_post(rt->opt.loop, &rt->changed);
}

sl_router *sl_router_new(const sl_router_options *options)
{
    sl_router *rt = sl_calloc(1, sizeof *rt);
    rt->magic = ROUTER_MAGIC;
    rt->opt = *options;
    if (rt->opt.live_max_per_second > RATE_MAX)
        rt->opt.live_max_per_second = RATE_MAX;
    rt->bucket = rt->opt.live_max_per_second * TOKEN_COST;
    rt->bucket_at = sl_clock_mono(sl_loop_clock(options->loop));
    sl_list_init(&rt->all);
    sl_list_init(&rt->wild);
    sl_list_init(&rt->pendings);
    sl_list_init(&rt->lru);
    rt->filters = sl_map_new(MAX_FILTERS);
    rt->by_id = sl_imap_new(0); // bounded by MAX_FILTERS and the callers' own limits
    rt->last = sl_map_new(options->cache_size);
    rt->hits_cap = SCRATCH_INITIAL;
    rt->hits = sl_calloc(rt->hits_cap, sizeof *rt->hits);
    return rt;
}

static void filter_free(sl_router *rt, filter_entry *entry)
{
    sl_map_remove(rt->filters, entry->filter);
    sl_list_remove(&entry->node);
    sl_list_remove(&entry->wild);
    sl_free(entry->text);
    sl_free(entry);
    BUMP(rt->filter_count, -1u);
}

static void listener_free(sl_router *rt, listener *ln)
{
    filter_entry *entry = ln->filter;
    sl_list_remove(&ln->node);
    sl_free(ln);
    if (sl_list_is_empty(&entry->listeners))
        filter_free(rt, entry);
}

static uint64_t cache_cost(const sl_message *msg)
{
    return msg->topic.len + msg->payload.len;
}

static void cached_free(sl_router *rt, cached *ce)
{
    rt->cache_bytes -= cache_cost(ce->msg);
    sl_map_remove(rt->last, ce->msg->topic);
    sl_list_remove(&ce->node);
    sl_message_unref(&ce->msg);
    sl_free(ce);
    BUMP(rt->cached, -1u);
}

void sl_router_free(sl_router **rt)
{
    sl_router *own = *rt;
    *rt = NULL;
    if (own == NULL)
        return;
    SL_CHECK(own, ROUTER_MAGIC);
    sl_node *node;
    while ((node = sl_list_first(&own->all)) != NULL) {
        filter_entry *entry = SL_CONTAINER(node, filter_entry, node);
        sl_node *first = sl_list_first(&entry->listeners);
        if (first != NULL)
            listener_free(own, SL_CONTAINER(first, listener, node));
        else
            filter_free(own, entry);
    }
    while ((node = sl_list_first(&own->lru)) != NULL)
        cached_free(own, SL_CONTAINER(node, cached, node));
    while ((node = sl_list_pop_front(&own->pendings)) != NULL)
        sl_free(SL_CONTAINER(node, pending, node));
    sl_map_free(&own->filters);
    sl_map_free(&own->last);
    sl_imap_free(&own->by_id);
    sl_free(own->hits);
    own->magic = 0;
    sl_free(own);
}

static void filter_review_qos(filter_entry *entry)
{
    entry->qos = 0;
    for (sl_node *node = sl_list_first(&entry->listeners); node != NULL;
         node = sl_list_next(&entry->listeners, node)) {
        const listener *ln = SL_CONTAINER(node, listener, node);
        if (!ln->dead && ln->qos > entry->qos)
            entry->qos = ln->qos;
    }
}

static sl_err filter_find_or_add(sl_router *rt, sl_slice filter, filter_entry **out)
{
    filter_entry *entry = sl_map_get(rt->filters, filter);
    if (entry == NULL) {
        entry = sl_calloc(1, sizeof *entry);
        entry->text = sl_strndup(filter.ptr, filter.len);
        entry->filter = sl_slice_of(entry->text, filter.len);
        sl_list_init(&entry->listeners);
        sl_err err = sl_map_put(rt->filters, entry->filter, entry, NULL);
        if (err != SL_OK) {
            sl_free(entry->text);
            sl_free(entry);
            return err;
        }
        sl_list_push_back(&rt->all, &entry->node);
        if (sl_mqtt_filter_has_wildcard(filter))
            sl_list_push_back(&rt->wild, &entry->wild);
        BUMP(rt->filter_count, 1);
    }
    *out = entry;
    return SL_OK;
}

static sl_err add_listener(sl_router *rt, sl_slice filter, uint8_t qos, listener_kind kind,
                           listener **out)
{
    SL_CHECK(rt, ROUTER_MAGIC);
    if (qos > 2 || sl_filter_check(filter, NULL) != SL_OK)
        return SL_EINVAL;
    filter_entry *entry;
    sl_err err = filter_find_or_add(rt, filter, &entry);
    if (err != SL_OK)
        return err;
    listener *ln = sl_calloc(1, sizeof *ln);
    ln->id = ++rt->next_id;
    ln->filter = entry;
    ln->kind = kind;
    ln->qos = qos;
    err = sl_imap_put(rt->by_id, ln->id, ln, NULL);
    SL_ASSERT(err == SL_OK);
    sl_list_push_back(&entry->listeners, &ln->node);
    if (entry->count++ == 0 || qos > entry->qos)
        note_change(rt);
    if (entry->count == 1 || qos > entry->qos)
        entry->qos = qos;
    if (kind == DURABLE)
        entry->durable++;
    if (kind != PRIME)
        BUMP(rt->listeners, 1);
    *out = ln;
    return SL_OK;
}

sl_err sl_router_subscribe(sl_router *rt, sl_slice filter, uint8_t qos, sl_live_f *fn, void *arg,
                           uint64_t *id)
{
    listener *ln;
    sl_err err = add_listener(rt, filter, qos, LIVE, &ln);
    if (err != SL_OK)
        return err;
    ln->live = fn;
    ln->arg = arg;
    *id = ln->id;
    return SL_OK;
}

sl_err sl_router_subscribe_durable(sl_router *rt, sl_slice filter, uint8_t qos, sl_durable_f *fn,
                                   void *arg, uint64_t *id)
{
    listener *ln;
    sl_err err = add_listener(rt, filter, qos, DURABLE, &ln);
    if (err != SL_OK)
        return err;
    ln->durable = fn;
    ln->arg = arg;
    *id = ln->id;
    return SL_OK;
}

sl_err sl_router_prime(sl_router *rt, sl_slice filter, uint8_t qos, uint64_t *id)
{
    listener *ln;
    sl_err err = add_listener(rt, filter, qos, PRIME, &ln);
    if (err == SL_OK)
        *id = ln->id;
    return err;
}

void sl_router_unsubscribe(sl_router *rt, uint64_t id)
{
    SL_CHECK(rt, ROUTER_MAGIC);
    listener *ln = sl_imap_remove(rt->by_id, id);
    if (ln == NULL)
        return;
    filter_entry *entry = ln->filter;
    ln->dead = true;
    entry->count--;
    if (ln->kind == DURABLE)
        entry->durable--;
    if (ln->kind != PRIME)
        BUMP(rt->listeners, -1u);
    uint8_t before = entry->qos;
    filter_review_qos(entry);
    if (entry->count == 0 || entry->qos != before)
        note_change(rt);
    if (rt->handing_out)
        rt->has_dead = true; // deliver still walks over it
    else
        listener_free(rt, ln);
}

static void sweep_dead(sl_router *rt)
{
    rt->has_dead = false;
    for (sl_node *fnode = sl_list_first(&rt->all), *fnext; fnode != NULL; fnode = fnext) {
        fnext = sl_list_next(&rt->all, fnode);
        filter_entry *entry = SL_CONTAINER(fnode, filter_entry, node);
        for (sl_node *node = sl_list_first(&entry->listeners), *next; node != NULL; node = next) {
            next = sl_list_next(&entry->listeners, node);
            listener *ln = SL_CONTAINER(node, listener, node);
            if (ln->dead)
                listener_free(rt, ln); // the last one frees entry too, and next is NULL then
        }
    }
}

/* ---- cache ---- */

static void evict_least_used(sl_router *rt)
{
    cached_free(rt, SL_CONTAINER(sl_list_first(&rt->lru), cached, node));
    BUMP(rt->evictions, 1);
}

static void cache_store(sl_router *rt, sl_message *msg)
{
    cached *ce = sl_map_get(rt->last, msg->topic);
    if (ce != NULL)
        cached_free(rt, ce);
    while (!sl_list_is_empty(&rt->lru) && (sl_map_count(rt->last) >= rt->opt.cache_size ||
                                           rt->cache_bytes + cache_cost(msg) > CACHE_BYTES))
        evict_least_used(rt);
    ce = sl_calloc(1, sizeof *ce);
    ce->msg = sl_message_ref(msg);
    rt->cache_bytes += cache_cost(msg);
    sl_err err = sl_map_put(rt->last, msg->topic, ce, NULL);
    SL_ASSERT(err == SL_OK);
    sl_list_push_back(&rt->lru, &ce->node);
    BUMP(rt->cached, 1);
}

sl_message *sl_router_last(sl_router *rt, sl_slice topic)
{
    cached *ce = sl_map_get(rt->last, topic);
    if (ce == NULL)
        return NULL;
    sl_list_remove(&ce->node);
    sl_list_push_back(&rt->lru, &ce->node);
    return sl_message_ref(ce->msg);
}

static int by_seq(const void *left, const void *right)
{
    const sl_message *lm = *(sl_message *const *)left;
    const sl_message *rm = *(sl_message *const *)right;
    return lm->seq < rm->seq ? -1 : lm->seq > rm->seq;
}

void sl_router_match_cache(sl_router *rt, sl_slice filter, sl_message ***msgs, size_t *count,
                           uint64_t *seq)
{
    *seq = rt->next_seq;
    *count = 0;
    if (!sl_mqtt_filter_has_wildcard(filter)) {
        sl_message *msg = sl_router_last(rt, filter);
        *msgs = sl_calloc(1, sizeof **msgs);
        (*msgs)[0] = msg;
        *count = msg != NULL;
        return;
    }
    *msgs = sl_calloc(sl_map_count(rt->last) + 1, sizeof **msgs);
    size_t pos = 0;
    void *value;
    while (sl_map_each(rt->last, &pos, NULL, &value)) {
        cached *ce = value;
        if (sl_mqtt_filter_matches(filter, ce->msg->topic))
            (*msgs)[(*count)++] = sl_message_ref(ce->msg);
    }
    qsort(*msgs, *count, sizeof **msgs, by_seq);
}

/* ---- deliver ---- */

/* True when the live listeners may have this message. */
static bool take_live_token(sl_router *rt)
{
    int64_t rate = rt->opt.live_max_per_second;
    if (rate <= 0)
        return true;
    sl_mono_ms now = sl_clock_mono(sl_loop_clock(rt->opt.loop));
    sl_dur_ms passed = now - rt->bucket_at;
    if (passed > RATE_BURST_MS)
        passed = RATE_BURST_MS;
    if (passed > 0) {
        rt->bucket_at = now;
        rt->bucket += passed * rate; // rate per second = rate thousandths per millisecond
        if (rt->bucket > rate * TOKEN_COST)
            rt->bucket = rate * TOKEN_COST;
    }
    if (rt->bucket < TOKEN_COST)
        return false;
    rt->bucket -= TOKEN_COST;
    return true;
}

static void collect(sl_router *rt, filter_entry *entry, size_t *count)
{
    for (sl_node *node = sl_list_first(&entry->listeners); node != NULL;
         node = sl_list_next(&entry->listeners, node)) {
        if (*count == rt->hits_cap) {
            rt->hits_cap *= 2;
            rt->hits = sl_realloc(rt->hits, rt->hits_cap * sizeof *rt->hits);
        }
        rt->hits[(*count)++] = SL_CONTAINER(node, listener, node);
    }
}

static size_t collect_all(sl_router *rt, sl_slice topic)
{
    size_t count = 0;
    filter_entry *exact = sl_map_get(rt->filters, topic);
    if (exact != NULL)
        collect(rt, exact, &count);
    for (sl_node *node = sl_list_first(&rt->wild); node != NULL;
         node = sl_list_next(&rt->wild, node)) {
        filter_entry *entry = SL_CONTAINER(node, filter_entry, wild);
        if (sl_mqtt_filter_matches(entry->filter, topic))
            collect(rt, entry, &count);
    }
    return count;
}

static void on_token_home(sl_mail *mail)
{
    sl_taken *token = SL_CONTAINER(mail, sl_taken, mail);
    pending *pe = token->owner;
    sl_router *rt = pe->rt;
    SL_ASSERT(pe->open > 0);
    if (--pe->open > 0)
        return;
    sl_delivery delivery = pe->delivery;
    sl_list_remove(&pe->node);
    sl_free(pe);
    BUMP(rt->pending_count, -1u);
    rt->opt.on_ack(rt->opt.arg, delivery);
}

void sl_taken_done(sl_taken **token)
{
    sl_taken *own = *token;
    *token = NULL;
    own->mail.fn = on_token_home;
    sl_loop_post(own->owner->rt->opt.loop, &own->mail);
}

/* Durable listeners first: nothing a live one does may come between receipt and storage. */
static void hand_to_durable(sl_router *rt, sl_message *msg, size_t hits, uint32_t durable,
                            sl_delivery delivery)
{
    pending *pe = sl_calloc(1, sizeof *pe + durable * sizeof(sl_taken));
    pe->rt = rt;
    pe->delivery = delivery;
    pe->open = durable;
    sl_list_push_back(&rt->pendings, &pe->node);
    BUMP(rt->pending_count, 1);
    uint32_t at = 0;
    for (size_t i = 0; i < hits; i++) {
        listener *ln = rt->hits[i];
        if (ln->kind != DURABLE)
            continue;
        sl_taken *token = &pe->tokens[at++];
        token->owner = pe;
        if (ln->dead)
            sl_taken_done(&token); // unsubscribed by a listener before it
        else
            ln->durable(ln->arg, msg, token);
    }
}

static void hand_to_live(sl_router *rt, sl_message *msg, size_t hits)
{
    for (size_t i = 0; i < hits; i++) {
        listener *ln = rt->hits[i];
        if (ln->kind == LIVE && !ln->dead)
            ln->live(ln->arg, msg);
    }
}

void sl_router_deliver(sl_router *rt, sl_message **msg, sl_delivery delivery)
{
    SL_CHECK(rt, ROUTER_MAGIC);
    SL_ON_LOOP(rt->opt.loop);
    SL_ASSERT(!rt->handing_out);
    sl_message *own = *msg;
    *msg = NULL;
    own->seq = ++rt->next_seq;
    BUMP(rt->received, 1);

    size_t hits = collect_all(rt, own->topic);
    uint32_t durable = 0, live = 0;
    for (size_t i = 0; i < hits; i++) {
        durable += rt->hits[i]->kind == DURABLE;
        live += rt->hits[i]->kind == LIVE;
    }
    if (hits == 0)
        BUMP(rt->unmatched, 1);
    else if (rt->opt.cache && rt->opt.cache_size > 0)
        cache_store(rt, own);

    rt->handing_out = true;
    if (durable > 0)
        hand_to_durable(rt, own, hits, durable, delivery);
    if (live > 0) {
        if (take_live_token(rt))
            hand_to_live(rt, own, hits);
        else
            BUMP(rt->dropped, 1);
    }
    rt->handing_out = false;
    if (rt->has_dead)
        sweep_dead(rt);
    sl_message_unref(&own);
    if (durable == 0)
        rt->opt.on_ack(rt->opt.arg, delivery);
}

bool sl_router_each_filter(const sl_router *rt, size_t *pos, sl_router_filter *out)
{
    void *value;
    while (sl_map_each(rt->filters, pos, NULL, &value)) {
        const filter_entry *entry = value;
        if (entry->count == 0)
            continue; // waits for the end of a delivery to be freed
        *out = (sl_router_filter){.filter = entry->filter,
                                  .qos = entry->qos,
                                  .listeners = entry->count,
                                  .durable = entry->durable > 0};
        return true;
    }
    return false;
}

void sl_router_read_stats(const sl_router *rt, sl_router_stats *out)
{
    *out = (sl_router_stats){
        .received = atomic_load_explicit(&rt->received, memory_order_relaxed),
        .dropped = atomic_load_explicit(&rt->dropped, memory_order_relaxed),
        .unmatched = atomic_load_explicit(&rt->unmatched, memory_order_relaxed),
        .cache_evictions = atomic_load_explicit(&rt->evictions, memory_order_relaxed),
        .listeners = atomic_load_explicit(&rt->listeners, memory_order_relaxed),
        .filters = atomic_load_explicit(&rt->filter_count, memory_order_relaxed),
        .cached = atomic_load_explicit(&rt->cached, memory_order_relaxed),
        .pending = atomic_load_explicit(&rt->pending_count, memory_order_relaxed),
    };
}
