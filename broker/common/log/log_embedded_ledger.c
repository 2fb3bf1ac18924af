/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_ledger: the open inbound QoS 2 packet ids. The store has one row per open id (client
 * length, client, id); memory has the same sets, by client, so that a load reads nothing and a
 * clear deletes only what exists. Only open ids take memory: bounded by the clients' receive
 * maximum. Memory changes when an operation is queued and back again if its commit fails.
 */
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/bytes.h"
#include "log/elog_fn.h"

#define LIST_MAX     64   /* more open ids of one client than this are kept as bits */
#define BITMAP_WORDS 1024 /* 65536 ids */

typedef struct elog_ids {
    uint32_t count;
    uint16_t list[LIST_MAX]; /* unsorted, while bits is NULL */
    uint64_t *bits;          /* owned */
} elog_ids;

static elog_ledger_shard *shard_of(elog *el, sl_slice client)
{
    return &el->ledger[sl_slice_hash(client) % ELOG_LEDGER_SHARDS];
}

static void ids_free(elog_ids *ids)
{
    sl_free(ids->bits);
    sl_free(ids);
}

static bool bit_is_set(const elog_ids *ids, uint32_t id)
{
    return (ids->bits[id / 64] >> (id % 64) & 1) != 0;
}

/* Index in the list; count when it is not there. */
static uint32_t list_find(const elog_ids *ids, uint16_t packet_id)
{
    uint32_t at = 0;
    while (at < ids->count && ids->list[at] != packet_id)
        at++;
    return at;
}

static void list_to_bits(elog_ids *ids)
{
    ids->bits = sl_calloc(BITMAP_WORDS, sizeof *ids->bits);
    for (uint32_t i = 0; i < ids->count; i++)
        ids->bits[ids->list[i] / 64] |= 1ull << (ids->list[i] % 64);
}

static void ids_open(elog_ledger_shard *sh, sl_slice client, uint16_t packet_id)
{
    elog_ids *ids = sl_map_get(sh->clients, client);
    if (ids == NULL) {
        ids = sl_calloc(1, sizeof *ids);
        SL_ASSERT(sl_map_put(sh->clients, client, ids, NULL) == SL_OK);
    }
    if (ids->bits == NULL && list_find(ids, packet_id) < ids->count)
        return;
    if (ids->bits == NULL && ids->count == LIST_MAX)
        list_to_bits(ids);
    if (ids->bits == NULL) {
        ids->list[ids->count++] = packet_id;
    } else if (!bit_is_set(ids, packet_id)) {
        ids->bits[packet_id / 64] |= 1ull << (packet_id % 64);
        ids->count++;
    }
}

static void ids_release(elog_ledger_shard *sh, sl_slice client, uint16_t packet_id)
{
    elog_ids *ids = sl_map_get(sh->clients, client);
    if (ids == NULL)
        return;
    uint32_t at = ids->bits == NULL ? list_find(ids, packet_id) : 0;
    if (ids->bits == NULL && at < ids->count) {
        ids->list[at] = ids->list[--ids->count];
    } else if (ids->bits != NULL && bit_is_set(ids, packet_id)) {
        ids->bits[packet_id / 64] &= ~(1ull << (packet_id % 64));
        ids->count--;
    }
    if (ids->count == 0) {
        sl_map_remove(sh->clients, client);
        ids_free(ids);
    }
}

static void ids_copy(const elog_ids *ids, uint16_t *out)
{
    if (ids->bits == NULL) {
        memcpy(out, ids->list, ids->count * sizeof *out);
        return;
    }
    uint32_t used = 0;
    for (uint32_t id = 0; id < BITMAP_WORDS * 64u; id++)
        if (bit_is_set(ids, id))
            out[used++] = (uint16_t)id;
    SL_ASSERT(used == ids->count);
}

void elog_ledger_set(elog *el, sl_slice client, uint16_t packet_id, bool open)
{
    elog_ledger_shard *sh = shard_of(el, client);
    pthread_mutex_lock(&sh->lock);
    if (open)
        ids_open(sh, client, packet_id);
    else
        ids_release(sh, client, packet_id);
    pthread_mutex_unlock(&sh->lock);
}

sl_err elog_ledger_load(elog *el)
{
    for (unsigned i = 0; i < ELOG_LEDGER_SHARDS; i++) {
        pthread_mutex_init(&el->ledger[i].lock, NULL);
        el->ledger[i].clients = sl_map_new(0); // bounded by sessions with open ids
    }
    rocksdb_iterator_t *it = rocksdb_create_iterator_cf(el->db, el->ro_scan, el->cf[ELOG_CF_QOS2]);
    for (rocksdb_iter_seek_to_first(it); rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
        size_t len = 0;
        const uint8_t *key = (const uint8_t *)rocksdb_iter_key(it, &len);
        if (len < 4 || len != 4 + (size_t)sl_get_u16(key)) {
            sl_warn(SL_C_LOG, "LOG-LEDGER-ROW", SL_U("bytes", len));
            continue;
        }
        elog_ledger_set(el, sl_slice_of(key + 2, len - 4), sl_get_u16(key + len - 2), true);
    }
    char *message = NULL;
    rocksdb_iter_get_error(it, &message);
    rocksdb_iter_destroy(it);
    return message == NULL ? SL_OK : elog_store_error(message, "LOG-LEDGER-UNREAD");
}

void elog_ledger_free(elog *el)
{
    for (unsigned i = 0; i < ELOG_LEDGER_SHARDS; i++) {
        if (el->ledger[i].clients == NULL)
            continue;
        size_t pos = 0;
        void *value;
        while (sl_map_each(el->ledger[i].clients, &pos, NULL, &value))
            ids_free(value);
        sl_map_free(&el->ledger[i].clients);
        pthread_mutex_destroy(&el->ledger[i].lock);
    }
}

/* ---- operations ---- */

typedef struct release_job {
    elog *el;
    sl_slice client;
    const uint16_t *ids;
    uint32_t count;
} release_job;

static void fill_releases(void *arg, uint8_t *at)
{
    const release_job *job = arg;
    for (uint32_t i = 0; i < job->count; i++) {
        at = elog_op_put_ledger(at, ELOG_OP_LEDGER_RELEASE, job->client, job->ids[i]);
        // With the producer's lock held: the writer cannot fail and undo it before.
        elog_ledger_set(job->el, job->client, job->ids[i], false);
    }
}

/* In the queue of the appends, so that a release never overtakes the append that opened the id. */
static sl_err queue_releases(elog_producer *pr, const release_job *job, uint64_t token)
{
    return elog_queue_ops(pr, ELOG_MAIN, job->count * elog_op_ledger_bytes(job->client), true, true,
                          true, token, fill_releases, (void *)job);
}

sl_err elog_qos2_release(sl_log_producer *base, sl_slice client, uint16_t packet_id, uint64_t token)
{
    elog_producer *pr = (elog_producer *)base;
    const release_job job = {pr->el, client, &packet_id, 1};
    return queue_releases(pr, &job, token);
}

/* The open ids of a client; an owned copy. */
static uint16_t *copy_ids(elog *el, sl_slice client, uint32_t *count)
{
    elog_ledger_shard *sh = shard_of(el, client);
    uint16_t *copy = NULL;
    *count = 0;
    pthread_mutex_lock(&sh->lock);
    const elog_ids *ids = sl_map_get(sh->clients, client);
    if (ids != NULL) {
        *count = ids->count;
        copy = sl_alloc(ids->count * sizeof *copy);
        ids_copy(ids, copy);
    }
    pthread_mutex_unlock(&sh->lock);
    return copy;
}

sl_err elog_qos2_clear(sl_log_producer *base, sl_slice client, uint64_t token)
{
    elog_producer *pr = (elog_producer *)base;
    release_job job = {.el = pr->el, .client = client};
    uint16_t *ids = copy_ids(pr->el, client, &job.count);
    job.ids = ids;
    sl_err err;
    if (job.count > 0)
        err = queue_releases(pr, &job, token);
    else // nothing to delete: no reason to wait for the disk
        err = elog_queue_ops(pr, ELOG_MAIN, 0, true, false, true, token, NULL, NULL);
    sl_free(ids);
    return err;
}

sl_err elog_qos2_load(sl_log *log, sl_slice client, void (*fn)(void *arg, uint16_t packet_id),
                      void *arg)
{
    uint32_t count = 0;
    uint16_t *ids = copy_ids(elog_of(log), client, &count);
    for (uint32_t i = 0; i < count; i++)
        fn(arg, ids[i]);
    sl_free(ids);
    return SL_OK;
}
