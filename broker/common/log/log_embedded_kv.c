/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_kv: rows of other modules in the log's store and commits (embedded_kv.h). They ride
 * in the producer's derived queue, so they keep its order.
 */
#include "log/embedded_kv.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "log/elog_fn.h"

#define KV_MAX_BYTES    (300u << 20) /* of one key with its value */
#define MAX_GROUP_BYTES 1024         /* as the front's */

struct sl_embedded_kv {
    struct sl_embedded_kv *next;
    elog *el;
    rocksdb_column_family_handle_t *cf;
};

sl_err sl_embedded_kv_open(sl_log *log, const char *name, sl_embedded_kv **out)
{
    SL_ASSERT(log->ops == &sl_log_embedded_ops);
    elog *el = elog_of(log);
    char cf_name[256];
    if ((size_t)snprintf(cf_name, sizeof cf_name, "kv/%s", name) >= sizeof cf_name)
        return SL_EINVAL;
    sl_embedded_kv *kv = sl_calloc(1, sizeof *kv);
    kv->el = el;
    pthread_mutex_lock(&el->topics_lock);
    sl_err err = elog_store_cf(el, cf_name, &kv->cf);
    if (err == SL_OK) {
        kv->next = el->kvs;
        el->kvs = kv;
    }
    pthread_mutex_unlock(&el->topics_lock);
    if (err != SL_OK) {
        sl_free(kv);
        return err;
    }
    *out = kv;
    return SL_OK;
}

void elog_kv_free(elog *el)
{
    while (el->kvs != NULL) {
        sl_embedded_kv *kv = el->kvs;
        el->kvs = kv->next;
        sl_free(kv);
    }
}

typedef struct kv_job {
    sl_embedded_kv *kv;
    const sl_embedded_kv_op *ops;
    size_t count;
} kv_job;

static void fill_ops(void *arg, uint8_t *at)
{
    const kv_job *job = arg;
    for (size_t i = 0; i < job->count; i++) {
        const sl_embedded_kv_op *op = &job->ops[i];
        switch (op->kind) {
        case SL_KV_PUT:
            at = elog_op_put_row(at, ELOG_OP_PUT, job->kv->cf, op->key, op->value, 2);
            break;
        case SL_KV_DELETE:
            at = elog_op_put_row(at, ELOG_OP_DELETE, job->kv->cf, op->key, NULL, 0);
            break;
        case SL_KV_DELETE_RANGE:
            at = elog_op_put_row(at, ELOG_OP_DELETE_RANGE, job->kv->cf, op->key, &op->end, 1);
            break;
        }
    }
}

static size_t op_value_bytes(const sl_embedded_kv_op *op)
{
    if (op->kind == SL_KV_PUT)
        return op->value[0].len + op->value[1].len;
    return op->kind == SL_KV_DELETE_RANGE ? op->end.len : 0;
}

sl_err sl_embedded_kv_write(sl_log_producer *base, sl_embedded_kv *kv, const sl_embedded_kv_op *ops,
                            size_t count, bool durable, uint64_t token)
{
    SL_CHECK(base, SL_LOG_PRODUCER_MAGIC);
    size_t need = 0;
    bool only_deletes = true;
    for (size_t i = 0; i < count; i++) {
        size_t value_len = op_value_bytes(&ops[i]);
        if (value_len > KV_MAX_BYTES || ops[i].key.len > KV_MAX_BYTES)
            return SL_ETOOBIG;
        need += elog_op_row_bytes(ops[i].key.len, value_len);
        only_deletes = only_deletes && ops[i].kind != SL_KV_PUT;
    }
    kv_job job = {kv, ops, count};
    // Deletions are taken without space too: they are how space comes back.
    sl_err err = elog_queue_ops((elog_producer *)base, ELOG_DERIVED, need, only_deletes, durable,
                                true, token, fill_ops, &job);
    if (err == SL_EAGAIN)
        sl_log_count(base->log, SL_LOG_STAT_REFUSED, 1);
    return err;
}

typedef struct goff_job {
    elog_goff *goff;
    uint64_t offset;
} goff_job;

static void fill_goff(void *arg, uint8_t *at)
{
    const goff_job *job = arg;
    elog_op_put_goff(at, job->goff, job->offset);
}

sl_err sl_embedded_kv_commit_behind(sl_log_producer *base, const char *group, sl_log_topic *topic,
                                    uint16_t partition, uint64_t offset)
{
    SL_CHECK(base, SL_LOG_PRODUCER_MAGIC);
    SL_CHECK(topic, SL_LOG_TOPIC_MAGIC);
    if (partition >= topic->partitions || strlen(group) > MAX_GROUP_BYTES)
        return SL_EINVAL;
    elog_producer *pr = (elog_producer *)base;
    goff_job job = {.offset = offset};
    job.goff = elog_goff_use(pr->el, group, &((elog_topic *)topic)->parts[partition]);
    sl_err err = elog_queue_ops(pr, ELOG_DERIVED, ELOG_OP_GOFF_BYTES, true, false, false, 0,
                                fill_goff, &job);
    // Memory after the queue: whoever sees the offset in memory finds the row queued before it.
    if (err == SL_OK)
        elog_goff_set_memory(pr->el, job.goff, offset);
    else
        elog_goff_unuse(pr->el, &job.goff);
    return err;
}

sl_err sl_embedded_kv_scan(sl_embedded_kv *kv, sl_slice from, sl_slice to,
                           bool (*fn)(void *arg, sl_slice key, sl_slice value), void *arg)
{
    rocksdb_readoptions_t *ro = rocksdb_readoptions_create();
    if (to.len > 0)
        rocksdb_readoptions_set_iterate_upper_bound(ro, (const char *)to.ptr, to.len);
    rocksdb_iterator_t *it = rocksdb_create_iterator_cf(kv->el->db, ro, kv->cf);
    rocksdb_iter_seek(it, (const char *)from.ptr, from.len);
    for (; rocksdb_iter_valid(it); rocksdb_iter_next(it)) {
        size_t key_len = 0, len = 0;
        const char *key = rocksdb_iter_key(it, &key_len);
        const char *value = rocksdb_iter_value(it, &len);
        if (!fn(arg, sl_slice_of(key, key_len), sl_slice_of(value, len)))
            break;
    }
    char *message = NULL;
    rocksdb_iter_get_error(it, &message);
    rocksdb_iter_destroy(it);
    rocksdb_readoptions_destroy(ro);
    return message == NULL ? SL_OK : elog_store_error(message, "LOG-KV-UNREAD");
}
