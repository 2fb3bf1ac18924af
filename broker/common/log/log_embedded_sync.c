/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_sync: the syncer thread: takes the commits that the writer has written so far, makes
 * them durable with one flush_wal, then publishes durable ends and completes what waited for them.
 * A commit with nothing durable needs no sync of its own; nothing stays unsynced for longer than
 * ELOG_TICK_MS.
 */
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "log/elog_fn.h"

static struct timespec after_ms(sl_dur_ms ms)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_nsec += (long)(ms % 1000) * 1000000;
    ts.tv_sec += (time_t)(ms / 1000) + ts.tv_nsec / 1000000000;
    ts.tv_nsec %= 1000000000;
    return ts;
}

void elog_sync_push(elog *el, elog_commit **cm)
{
    pthread_mutex_lock(&el->sync_lock);
    elog_commit *mine = *cm;
    *cm = NULL;
    bool barrier = mine->barrier > el->barrier_written;
    if (barrier) {
        el->barrier_written = mine->barrier;
        pthread_cond_broadcast(&el->done_cond);
    }
    mine->needs_sync = mine->needs_sync || barrier;
    if (mine->needs_sync || mine->end_count > 0) {
        if (el->commits == NULL)
            el->commits = mine;
        else
            el->commits_tail->next = mine;
        el->commits_tail = mine;
        el->commit_bytes += mine->bytes;
        mine = NULL;
        pthread_cond_signal(&el->sync_cond);
    }
    pthread_mutex_unlock(&el->sync_lock);
    if (mine != NULL)
        sl_free(mine->ends);
    sl_free(mine);
}

void elog_sync_backlog(elog *el, size_t max_bytes)
{
    pthread_mutex_lock(&el->sync_lock);
    while (el->commit_bytes > max_bytes)
        pthread_cond_wait(&el->done_cond, &el->sync_lock);
    pthread_mutex_unlock(&el->sync_lock);
}

sl_err elog_sync_wait(elog *el, uint64_t barrier, bool durable)
{
    pthread_mutex_lock(&el->sync_lock);
    while (durable ? el->barrier_durable < barrier : el->barrier_written < barrier)
        pthread_cond_wait(&el->done_cond, &el->sync_lock);
    pthread_mutex_unlock(&el->sync_lock);
    sl_err failed = (sl_err)atomic_load(&el->failed);
    return failed == SL_OK && atomic_load(&el->broken) ? SL_ENOSPC : failed;
}

static void publish_durable(const elog_end *en)
{
    elog_part *part = en->part;
    pthread_mutex_lock(&part->lock);
    if (en->end > part->synced)
        part->synced = en->end;
    uint64_t durable = part->synced >= part->need_sync ? part->written : part->synced;
    if (durable > part->durable) {
        part->durable = durable;
        sl_node *nd = sl_list_first(&part->subs);
        for (; nd != NULL; nd = sl_list_next(&part->subs, nd))
            elog_sub_notify(SL_CONTAINER(nd, elog_sub, part_node));
    }
    pthread_mutex_unlock(&part->lock);
}

/* Completes a commit after a sync (or its failure). True if its ends are to be kept for the next
 * sync: a full disk heals, and then all that was written is made durable. */
static bool finish_one(elog *el, elog_commit *cm, sl_err err)
{
    for (uint32_t i = 0; err == SL_OK && i < cm->end_count; i++)
        publish_durable(&cm->ends[i]);
    for (elog_segment *seg = cm->segments; err != SL_OK && seg != NULL; seg = seg->next_taken) {
        seg->err = err;
        sl_log_count(el->log, SL_LOG_STAT_FAILED, seg->records);
    }
    elog_segments_done(el, cm->segments, true);
    cm->segments = NULL;
    cm->needs_sync = false;
    cm->bytes = 0;
    return err != SL_OK && atomic_load(&el->failed) == SL_OK && cm->end_count > 0;
}

/* Finishes commits and frees them; those to be kept go to *kept, in order. Gives the last barrier.
 */
static uint64_t finish(elog *el, elog_commit *list, sl_err err, elog_commit **kept)
{
    uint64_t barrier = 0;
    while (list != NULL) {
        elog_commit *cm = list;
        list = cm->next;
        if (cm->barrier > barrier)
            barrier = cm->barrier;
        if (finish_one(el, cm, err)) {
            cm->next = NULL;
            *kept = cm;
            kept = &cm->next;
            continue;
        }
        sl_free(cm->ends);
        sl_free(cm);
    }
    return barrier;
}

/* With sync_lock: kept commits are the oldest again. */
static void put_back(elog *el, elog_commit *kept)
{
    if (kept == NULL)
        return;
    elog_commit *last = kept;
    while (last->next != NULL)
        last = last->next;
    last->next = el->commits;
    if (el->commits == NULL)
        el->commits_tail = last;
    el->commits = kept;
}

static void drop_commits(elog_commit *list)
{
    while (list != NULL) {
        elog_commit *cm = list;
        list = cm->next;
        sl_free(cm->ends);
        sl_free(cm);
    }
}

static bool wants_sync(const elog_commit *list)
{
    for (; list != NULL; list = list->next)
        if (list->needs_sync)
            return true;
    return false;
}

/* With sync_lock: waits until a commit wants a sync or the tick is over. */
static void wait_for_commit(elog *el)
{
    struct timespec until = after_ms(ELOG_TICK_MS);
    int rc = 0;
    while (!wants_sync(el->commits) && !el->sync_stop && rc == 0)
        rc = pthread_cond_timedwait(&el->sync_cond, &el->sync_lock, &until);
}

void elog_sync_main(void *arg)
{
    elog *el = arg;
    pthread_mutex_lock(&el->sync_lock);
    for (;;) {
        wait_for_commit(el);
        bool stop = el->sync_stop;
        elog_commit *list = el->commits;
        size_t bytes = el->commit_bytes;
        el->commits = el->commits_tail = NULL;
        bool unsynced = el->unsynced;
        el->unsynced = false;
        pthread_mutex_unlock(&el->sync_lock);
        sl_err err = (sl_err)atomic_load(&el->failed);
        if (err == SL_OK && unsynced) {
            err = elog_store_sync(el);
            sl_log_count(el->log, SL_LOG_STAT_FSYNCS, err == SL_OK);
        }
        elog_commit *kept = NULL;
        uint64_t barrier = finish(el, list, err, &kept);
        pthread_mutex_lock(&el->sync_lock);
        if (stop)
            drop_commits(kept);
        else
            put_back(el, kept);
        el->commit_bytes -= bytes;
        el->unsynced = el->unsynced || err != SL_OK;
        if (barrier > el->barrier_durable)
            el->barrier_durable = barrier;
        pthread_cond_broadcast(&el->done_cond);
        if (stop && el->commits == NULL)
            break;
    }
    pthread_mutex_unlock(&el->sync_lock);
}
