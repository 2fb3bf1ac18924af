/* SPDX-License-Identifier: Apache-2.0
 *
 * embedded_kv: rows beside the embedded log, in the same RocksDB and the same group commits. For
 * the embedded inbox only (broker/src/store/inbox_embedded.c); nothing else includes it.
 */
#ifndef SL_LOG_EMBEDDED_KV_H
#define SL_LOG_EMBEDDED_KV_H

#include "log/log.h"

typedef struct sl_embedded_kv sl_embedded_kv; /* a column family; valid until the log is closed */

/** Opens a family of rows, made when missing. The log's adapter must be the embedded one
 * (asserted). Errors SL_EINVAL a name that is too long; SL_EIO. @thread init */
SL_MUST_USE sl_err sl_embedded_kv_open(sl_log *log, const char *name, sl_embedded_kv **out);

typedef struct sl_embedded_kv_op {
    sl_slice key;
    sl_slice value[2]; /* pieces; ignored for deletes */
    enum { SL_KV_PUT, SL_KV_DELETE, SL_KV_DELETE_RANGE } kind;
    sl_slice end; /* DELETE_RANGE: keys in [key, end) */
} sl_embedded_kv_op;

/**
 * Queues rows for the next group commit, all or none, in order with this producer's other appends
 * and commits (they share the derived queue). Completes at the written end, with `durable` at the
 * synced end. count 0 with durable: completes when everything queued before is synced.
 * Deletions alone are taken without space too. Errors as
 * sl_log_append. @thread the producer's
 */
SL_MUST_USE sl_err sl_embedded_kv_write(sl_log_producer *pr, sl_embedded_kv *kv,
                                        const sl_embedded_kv_op *ops, size_t count, bool durable,
                                        uint64_t token);
/** Committed offset of a group, queued behind this producer's earlier writes, so that it never gets
 * to the disk before them. @thread the producer's */
SL_MUST_USE sl_err sl_embedded_kv_commit_behind(sl_log_producer *pr, const char *group,
                                                sl_log_topic *topic, uint16_t partition,
                                                uint64_t offset);
/** fn gets rows with key in [from, to) in order until it returns false; an empty `to` is no bound.
 * Sees completed writes.
 * Blocks for reads of the store. @thread any */
SL_MUST_USE sl_err sl_embedded_kv_scan(sl_embedded_kv *kv, sl_slice from, sl_slice to,
                                       bool (*fn)(void *arg, sl_slice key, sl_slice value),
                                       void *arg);

#endif
