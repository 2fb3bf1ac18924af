/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded: the embedded adapter of the log port: opening, closing and its table of
 * operations. The parts are in log_embedded_*.c; docs/log-embedded.md explains the design.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "base/logger.h"
#include "log/elog_fn.h"

#define COPY_BUDGET (64u << 20)

static void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static elog *elog_new(sl_log *log)
{
    elog *el = sl_calloc(1, sizeof *el);
    el->log = log;
    el->dir = sl_strdup(log->options.dir);
    el->lock_fd = -1;
    el->fsync = log->options.fsync;
    el->copy_budget = COPY_BUDGET;
    atomic_store(&el->low_space_bytes, log->options.low_space_bytes);
    pthread_mutex_init(&el->topics_lock, NULL);
    pthread_mutex_init(&el->producers_lock, NULL);
    pthread_mutex_init(&el->group_lock, NULL);
    pthread_mutex_init(&el->groups_lock, NULL);
    pthread_mutex_init(&el->work_lock, NULL);
    pthread_mutex_init(&el->sync_lock, NULL);
    pthread_mutex_init(&el->keeper_lock, NULL);
    pthread_mutex_init(&el->retention_lock, NULL);
    pthread_mutex_init(&el->wal_lock, NULL);
    cond_init(&el->work_cond);
    cond_init(&el->sync_cond);
    cond_init(&el->done_cond);
    cond_init(&el->keeper_cond);
    sl_list_init(&el->groups);
    return el;
}

static void elog_free(elog *el)
{
    elog_offsets_free(el);
    elog_ledger_free(el);
    elog_topics_free(el);
    elog_kv_free(el);
    SL_ASSERT(el->producer_count == 0);
    sl_free(el->producers);
    pthread_cond_destroy(&el->keeper_cond);
    pthread_cond_destroy(&el->done_cond);
    pthread_cond_destroy(&el->sync_cond);
    pthread_cond_destroy(&el->work_cond);
    pthread_mutex_destroy(&el->wal_lock);
    pthread_mutex_destroy(&el->retention_lock);
    pthread_mutex_destroy(&el->keeper_lock);
    pthread_mutex_destroy(&el->sync_lock);
    pthread_mutex_destroy(&el->work_lock);
    pthread_mutex_destroy(&el->groups_lock);
    pthread_mutex_destroy(&el->group_lock);
    pthread_mutex_destroy(&el->producers_lock);
    pthread_mutex_destroy(&el->topics_lock);
    sl_free(el->dir);
    sl_free(el);
}

static void embedded_close(sl_log *log)
{
    elog *el = elog_of(log);
    elog_keeper_stop(el);
    elog_writer_stop(el);
    elog_store_close(el, atomic_load(&el->failed) == SL_OK && !atomic_load(&el->broken));
    elog_free(el);
    log->self = NULL;
}

static sl_err load(elog *el, char **why)
{
    sl_err err = elog_topics_load(el, why);
    if (err == SL_OK)
        err = elog_offsets_load(el);
    if (err == SL_OK)
        err = elog_ledger_load(el);
    if (err == SL_OK)
        err = elog_writer_start(el);
    if (err == SL_OK)
        err = elog_keeper_start(el);
    if (err != SL_OK && *why == NULL) {
        char *text = NULL;
        if (asprintf(&text, "the log in %s cannot be read: %s", el->dir, sl_err_text(err)) >= 0)
            *why = sl_strdup(text);
        free(text);
    }
    return err;
}

static sl_err embedded_open(sl_log *log, char **why)
{
    elog *el = elog_new(log);
    log->self = el;
    sl_err err = elog_store_open(el, why);
    if (err == SL_OK)
        elog_space_check(el);
    if (err == SL_OK)
        err = load(el, why);
    if (err != SL_OK) {
        elog_keeper_stop(el);
        elog_writer_stop(el);
        elog_store_close(el, false);
        elog_free(el);
        log->self = NULL;
        return err;
    }
    sl_info(SL_C_LOG, "LOG-OPEN", SL_S("dir", el->dir),
            SL_S("durability", el->fsync ? "fsync" : "os"),
            SL_U("topics", sl_map_count(el->topics)));
    return SL_OK;
}

static sl_err embedded_sync(sl_log *log)
{
    return elog_barrier(elog_of(log), true);
}

static bool embedded_is_healthy(const sl_log *log, const char **why)
{
    const elog *el = elog_of(log);
    if (atomic_load(&el->failed) != SL_OK)
        *why = "the log's store failed; restart the process";
    else if (atomic_load(&el->low))
        *why = "the log's disk is nearly full";
    else
        return true;
    return false;
}

const sl_log_ops sl_log_embedded_ops = {
    .name = "embedded",
    .open = embedded_open,
    .close = embedded_close,
    .topic_open = elog_topic_open,
    .topic_delete = elog_topic_delete,
    .topic_describe = elog_topic_describe,
    .topic_each = elog_topic_each,
    .producer_open = elog_producer_open,
    .producer_close = elog_producer_close,
    .append = elog_append,
    .qos2_release = elog_qos2_release,
    .qos2_clear = elog_qos2_clear,
    .qos2_load = elog_qos2_load,
    .append_derived = elog_append_derived,
    .producer_drain = elog_producer_drain,
    .consumer_open = elog_consumer_open,
    .consumer_close = elog_consumer_close,
    .consumer_assign = elog_consumer_assign,
    .consumer_unassign = elog_consumer_unassign,
    .consumer_subscribe = elog_subscribe,
    .consumer_poll = elog_consumer_poll,
    .consumer_interrupt = elog_consumer_interrupt,
    .consumer_pause = elog_consumer_pause,
    .consumer_commit = elog_consumer_commit,
    .batch_next = elog_batch_next,
    .batch_release = elog_batch_release,
    .group_get = elog_group_get,
    .group_set = elog_group_set,
    .group_delete = elog_group_delete,
    .group_each = elog_group_each,
    .sync = embedded_sync,
    .is_healthy = embedded_is_healthy,
};
