/* SPDX-License-Identifier: Apache-2.0
 *
 * client: see client.h. The map from id to client is split in shards with a lock each; the table
 * from index to client is read by dispatch without one. A count may fall to 0 and rise again while
 * its shard is locked; who finds it at 0 under the lock takes the client out.
 */
#include "session/client.h"

#include <pthread.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/map.h"
#include "route/rcu.h"
#include "session/will.h"

#define SHARDS      64
#define CHUNK_BITS  12
#define CHUNK       (1u << CHUNK_BITS)
#define MAX_CHUNKS  (1u << 12)
#define MAX_CLIENTS (CHUNK * MAX_CHUNKS)

typedef struct shard {
    pthread_mutex_t lock; /* guards map and the 0 -> 1 and 1 -> 0 steps of refs */
    sl_map *map;
} shard;

typedef struct chunk {
    sl_client *_Atomic at[CHUNK];
} chunk;

struct sl_registry {
    sl_rcu *rcu; /* borrowed */
    sl_actor_f *handle;
    uint32_t max_clients;
    _Atomic uint32_t count;
    shard shards[SHARDS];
    pthread_mutex_t index_lock; /* guards next, freed */
    uint32_t next;              /* indexes given out so far */
    uint32_t *freed;            /* owned: indexes to use again */
    uint32_t freed_count, freed_cap;
    chunk *_Atomic chunks[MAX_CHUNKS];
};

enum { FLAG_CONNECTED = 1, FLAG_PERSISTENT = 2 };

sl_route sl_client_route(const sl_client *cl)
{
    uint64_t word = atomic_load_explicit(&cl->route_word, memory_order_acquire);
    return (sl_route){.slot = (uint32_t)(word >> 40) & 0xFFFFFF,
                      .gen = (uint32_t)(word >> 16) & 0xFFFFFF,
                      .loop = (uint8_t)(word >> 8),
                      .connected = (word & FLAG_CONNECTED) != 0,
                      .persistent = (word & FLAG_PERSISTENT) != 0};
}

void sl_client_set_route(sl_client *cl, sl_route route)
{
    uint64_t word = (uint64_t)(route.slot & 0xFFFFFF) << 40 |
                    (uint64_t)(route.gen & 0xFFFFFF) << 16 | (uint64_t)route.loop << 8 |
                    (route.connected ? FLAG_CONNECTED : 0u) |
                    (route.persistent ? FLAG_PERSISTENT : 0u);
    atomic_store_explicit(&cl->route_word, word, memory_order_release);
}

static void hold_client(sl_actor *actor, int delta)
{
    sl_client *cl = SL_CONTAINER(actor, sl_client, actor);
    if (delta > 0)
        sl_client_ref(cl);
    else
        sl_client_unref(&cl);
}

static uint32_t take_index(sl_registry *rg)
{
    pthread_mutex_lock(&rg->index_lock);
    uint32_t index;
    if (rg->freed_count > 0) {
        index = rg->freed[--rg->freed_count];
    } else {
        index = rg->next++;
        uint32_t at = index >> CHUNK_BITS;
        if (atomic_load(&rg->chunks[at]) == NULL)
            atomic_store(&rg->chunks[at], (chunk *)sl_calloc(1, sizeof(chunk)));
    }
    pthread_mutex_unlock(&rg->index_lock);
    return index;
}

static void give_index(sl_registry *rg, uint32_t index)
{
    pthread_mutex_lock(&rg->index_lock);
    if (rg->freed_count == rg->freed_cap) {
        rg->freed_cap = rg->freed_cap == 0 ? 64 : rg->freed_cap * 2;
        rg->freed = sl_realloc(rg->freed, rg->freed_cap * sizeof(*rg->freed));
    }
    rg->freed[rg->freed_count++] = index;
    pthread_mutex_unlock(&rg->index_lock);
}

static sl_client *_Atomic *entry(const sl_registry *rg, uint32_t index)
{
    chunk *ch = atomic_load(&rg->chunks[index >> CHUNK_BITS]);
    return &ch->at[index & (CHUNK - 1)];
}

static void free_client(void *ctx, void *ptr)
{
    sl_registry *rg = ctx;
    sl_client *cl = ptr;
    give_index(rg, cl->index);
    for (uint32_t i = 0; i < cl->sub_count; i++)
        sl_free(cl->subs[i].filter);
    sl_free(cl->subs);
    sl_free(cl->qos2);
    sl_will_free(&cl->session.will);
    cl->magic = 0;
    sl_free(cl);
}

static shard *shard_of(sl_registry *rg, sl_slice id)
{
    return &rg->shards[sl_slice_hash(id) >> 58];
}

sl_registry *sl_registry_new(sl_rcu *rcu, uint32_t max_clients, sl_actor_f *handle)
{
    SL_ASSERT(max_clients > 0 && max_clients <= MAX_CLIENTS);
    sl_registry *rg = sl_calloc(1, sizeof(*rg));
    rg->rcu = rcu;
    rg->handle = handle;
    rg->max_clients = max_clients;
    for (unsigned i = 0; i < SHARDS; i++) {
        pthread_mutex_init(&rg->shards[i].lock, NULL);
        rg->shards[i].map = sl_map_new(0); // bounded by max_clients
    }
    pthread_mutex_init(&rg->index_lock, NULL);
    return rg;
}

void sl_registry_free(sl_registry **registry)
{
    sl_registry *rg = *registry;
    if (rg == NULL)
        return;
    *registry = NULL;
    sl_rcu_barrier(rg->rcu);
    for (unsigned i = 0; i < SHARDS; i++) {
        size_t pos = 0;
        void *value = NULL;
        while (sl_map_each(rg->shards[i].map, &pos, NULL, &value))
            free_client(rg, value);
        sl_map_free(&rg->shards[i].map);
        pthread_mutex_destroy(&rg->shards[i].lock);
    }
    for (unsigned i = 0; i < MAX_CHUNKS; i++)
        sl_free(atomic_load(&rg->chunks[i]));
    pthread_mutex_destroy(&rg->index_lock);
    sl_free(rg->freed);
    sl_free(rg);
}

static sl_client *new_client(sl_registry *rg, sl_slice id)
{
    sl_client *cl = sl_calloc(1, sizeof(*cl) + id.len);
    cl->magic = SL_CLIENT_MAGIC;
    cl->registry = rg;
    cl->index = take_index(rg);
    atomic_init(&cl->refs, 1);
    sl_actor_init(&cl->actor, rg->handle, hold_client);
    cl->id_len = (uint32_t)id.len;
    if (id.len > 0)
        memcpy(cl->id, id.ptr, id.len);
    return cl;
}

sl_err sl_registry_get(sl_registry *rg, sl_slice id, sl_client **out)
{
    shard *sh = shard_of(rg, id);
    pthread_mutex_lock(&sh->lock);
    sl_client *cl = sl_map_get(sh->map, id);
    if (cl != NULL) {
        sl_client_ref(cl);
    } else if (atomic_load(&rg->count) < rg->max_clients) {
        cl = new_client(rg, id);
        sl_err err = sl_map_put(sh->map, id, cl, NULL);
        SL_ASSERT(err == SL_OK);
        atomic_store(entry(rg, cl->index), cl);
        atomic_fetch_add(&rg->count, 1);
    }
    pthread_mutex_unlock(&sh->lock);
    if (cl == NULL)
        return SL_ELIMIT;
    *out = cl;
    return SL_OK;
}

sl_client *sl_registry_find(sl_registry *rg, sl_slice id)
{
    shard *sh = shard_of(rg, id);
    pthread_mutex_lock(&sh->lock);
    sl_client *cl = sl_map_get(sh->map, id);
    if (cl != NULL)
        sl_client_ref(cl);
    pthread_mutex_unlock(&sh->lock);
    return cl;
}

sl_client *sl_registry_at(const sl_registry *rg, uint32_t index)
{
    if (index >= MAX_CLIENTS || atomic_load(&rg->chunks[index >> CHUNK_BITS]) == NULL)
        return NULL;
    return atomic_load(entry(rg, index));
}

void sl_client_ref(sl_client *cl)
{
    atomic_fetch_add_explicit(&cl->refs, 1, memory_order_relaxed);
}

void sl_client_unref(sl_client **client)
{
    sl_client *cl = *client;
    if (cl == NULL)
        return;
    *client = NULL;
    SL_CHECK(cl, SL_CLIENT_MAGIC);
    // Not the last one: no lock. The last step is made under the shard's lock, so that a get in
    // between cannot hand out what is being freed.
    uint32_t refs = atomic_load_explicit(&cl->refs, memory_order_relaxed);
    while (refs > 1) {
        if (atomic_compare_exchange_weak_explicit(&cl->refs, &refs, refs - 1, memory_order_acq_rel,
                                                  memory_order_relaxed))
            return;
    }
    sl_registry *rg = cl->registry;
    shard *sh = shard_of(rg, sl_client_id(cl));
    pthread_mutex_lock(&sh->lock);
    bool last = atomic_fetch_sub_explicit(&cl->refs, 1, memory_order_acq_rel) == 1;
    if (last) {
        sl_map_remove(sh->map, sl_client_id(cl));
        atomic_store(entry(rg, cl->index), NULL);
        atomic_fetch_sub(&rg->count, 1);
    }
    pthread_mutex_unlock(&sh->lock);
    if (last)
        sl_rcu_defer(rg->rcu, free_client, rg, cl);
}

void sl_registry_each(sl_registry *rg, void (*fn)(void *arg, sl_client *cl), void *arg)
{
    for (unsigned i = 0; i < SHARDS; i++) {
        shard *sh = &rg->shards[i];
        pthread_mutex_lock(&sh->lock);
        size_t count = sl_map_count(sh->map), n = 0;
        sl_client **all = sl_alloc(count * sizeof(sl_client *) + 1);
        size_t pos = 0;
        void *value = NULL;
        while (sl_map_each(sh->map, &pos, NULL, &value)) {
            all[n] = value;
            sl_client_ref(all[n++]);
        }
        pthread_mutex_unlock(&sh->lock);
        for (size_t k = 0; k < n; k++) {
            fn(arg, all[k]);
            sl_client_unref(&all[k]);
        }
        sl_free(all);
    }
}

uint32_t sl_registry_count(const sl_registry *rg)
{
    return atomic_load_explicit(&rg->count, memory_order_relaxed);
}
