/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_reader: consumers: their partitions ("subs"), the list of those with news, waiting
 * and waking. A sub is on the ready list at most once, so a poll costs what has news, however many
 * partitions a consumer has. What is read is log_embedded_fetch.c. The consumer's own thread, but
 * for the notifications.
 */
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "base/assert.h"
#include "log/elog_fn.h"

#define DEFAULT_POLL_BYTES (1u << 20)

/* ---- notifications ---- */

/* With co->lock: lets the owner know, unless it is told already. */
static void rouse(elog_consumer *co)
{
    if (co->waiting) {
        pthread_cond_signal(&co->cond);
    } else if (co->base.options.wake != NULL && !co->wake_open) {
        co->wake_open = true;
        co->base.options.wake(co->base.options.wake_arg);
    }
}

void elog_sub_notify(elog_sub *sub)
{
    elog_consumer *co = sub->co;
    pthread_mutex_lock(&co->lock);
    if (!sl_node_is_linked(&sub->ready_node)) {
        sl_list_push_back(&co->ready, &sub->ready_node);
        rouse(co);
    }
    pthread_mutex_unlock(&co->lock);
}

void elog_consumer_nudge(elog_consumer *co)
{
    pthread_mutex_lock(&co->lock);
    co->assign_dirty = true;
    rouse(co);
    pthread_mutex_unlock(&co->lock);
}

void elog_consumer_interrupt(sl_log_consumer *base)
{
    elog_consumer *co = (elog_consumer *)base;
    pthread_mutex_lock(&co->lock);
    co->interrupted = true;
    rouse(co);
    pthread_mutex_unlock(&co->lock);
}

/* ---- open and close ---- */

sl_err elog_consumer_open(sl_log *log, const sl_log_consumer_options *options,
                          sl_log_consumer **out)
{
    elog_consumer *co = sl_calloc(1, sizeof *co);
    co->base = (struct sl_log_consumer){SL_LOG_CONSUMER_MAGIC, log, *options};
    if (options->group != NULL)
        co->base.options.group = sl_strdup(options->group);
    if (options->max_batch_bytes == 0)
        co->base.options.max_batch_bytes = DEFAULT_POLL_BYTES;
    co->el = elog_of(log);
    co->subs = sl_imap_new(0); // bounded by the partitions that exist
    sl_list_init(&co->members);
    sl_list_init(&co->ready);
    pthread_mutex_init(&co->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&co->cond, &attr);
    pthread_condattr_destroy(&attr);
    *out = &co->base;
    return SL_OK;
}

/* After the removal from the part nobody notifies it any more. */
static void sub_free(elog_sub *sub)
{
    pthread_mutex_lock(&sub->part->lock);
    sl_list_remove(&sub->part_node);
    pthread_mutex_unlock(&sub->part->lock);
    pthread_mutex_lock(&sub->co->lock);
    sl_list_remove(&sub->ready_node);
    pthread_mutex_unlock(&sub->co->lock);
    if (sub->goff != NULL)
        elog_goff_unuse(sub->co->el, &sub->goff);
    sl_free(sub->snap_from);
    sl_free(sub);
}

void elog_consumer_close(sl_log_consumer *base)
{
    elog_consumer *co = (elog_consumer *)base;
    elog_assign_leave(co);
    size_t pos = 0;
    void *value;
    while (sl_imap_each(co->subs, &pos, NULL, &value))
        sub_free(value);
    sl_imap_free(&co->subs);
    pthread_cond_destroy(&co->cond);
    pthread_mutex_destroy(&co->lock);
    sl_free((char *)co->base.options.group);
    sl_free(co);
}

/* ---- partitions ---- */

/* Where a new sub begins. With the part's lock. */
static uint64_t begin_at(const elog_consumer *co, const elog_part *part, uint64_t offset,
                         bool committed, uint64_t committed_at)
{
    if (offset != SL_LOG_COMMITTED)
        return offset;
    if (committed)
        return committed_at;
    return co->base.options.reset == SL_LOG_LATEST ? part->written : atomic_load(&part->start);
}

static void sub_begin(elog_sub *sub, uint64_t offset)
{
    elog_consumer *co = sub->co;
    elog_part *part = sub->part;
    uint64_t committed_at = 0;
    bool committed =
        sub->goff != NULL && elog_goff_get(co->el, co->base.options.group, part, &committed_at);
    pthread_mutex_lock(&part->lock);
    uint64_t at = begin_at(co, part, offset, committed, committed_at);
    uint64_t start = atomic_load(&part->start);
    sub->cursor = sub->wcur = at < start ? start : at;
    sub->owed = false;
    // A compacted topic is read from the ring only if all since the cursor is there.
    sub->snapshot = part->topic->compacted && sub->cursor < part->written &&
                    (part->ring.count == 0 || elog_ring_at(&part->ring, 0)->base > sub->cursor);
    sub->snap_end = part->durable;
    if (!sl_node_is_linked(&sub->part_node))
        sl_list_push_back(&part->subs, &sub->part_node);
    elog_sub_notify(sub);
    pthread_mutex_unlock(&part->lock);
    sl_free(sub->snap_from);
    sub->snap_from = NULL;
}

sl_err elog_consumer_assign(sl_log_consumer *base, sl_log_topic *topic, uint16_t partition,
                            uint64_t offset)
{
    elog_consumer *co = (elog_consumer *)base;
    elog_part *part = &((elog_topic *)topic)->parts[partition];
    elog_sub *sub = sl_imap_get(co->subs, part->pid);
    if (sub == NULL) {
        sub = sl_calloc(1, sizeof *sub);
        sub->co = co;
        sub->part = part;
        if (base->options.group != NULL)
            sub->goff = elog_goff_use(co->el, base->options.group, part);
        SL_ASSERT(sl_imap_put(co->subs, part->pid, sub, NULL) == SL_OK);
    }
    sub_begin(sub, offset);
    return SL_OK;
}

sl_err elog_consumer_unassign(sl_log_consumer *base, sl_log_topic *topic, uint16_t partition)
{
    elog_consumer *co = (elog_consumer *)base;
    if (partition >= topic->partitions)
        return SL_EINVAL;
    elog_sub *sub = sl_imap_remove(co->subs, ((elog_topic *)topic)->parts[partition].pid);
    if (sub == NULL)
        return SL_ENOTFOUND;
    sub_free(sub);
    return SL_OK;
}

static elog_sub *find_sub(elog_consumer *co, sl_log_topic *topic, uint16_t partition)
{
    if (partition >= topic->partitions)
        return NULL;
    return sl_imap_get(co->subs, ((elog_topic *)topic)->parts[partition].pid);
}

void elog_consumer_pause(sl_log_consumer *base, sl_log_topic *topic, uint16_t partition, bool pause)
{
    elog_sub *sub = find_sub((elog_consumer *)base, topic, partition);
    if (sub == NULL || sub->paused == pause)
        return;
    sub->paused = pause;
    if (!pause)
        elog_sub_notify(sub);
}

sl_err elog_consumer_commit(sl_log_consumer *base, sl_log_topic *topic, uint16_t partition,
                            uint64_t offset)
{
    elog_consumer *co = (elog_consumer *)base;
    elog_sub *sub = find_sub(co, topic, partition);
    if (sub == NULL)
        return SL_ENOTFOUND; // not (or no longer) this consumer's to commit
    elog_goff_set(co->el, sub->goff, offset);
    return SL_OK;
}

/* ---- poll ---- */

static struct timespec deadline_after(sl_dur_ms wait_ms)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_sec += (time_t)(wait_ms / 1000);
    ts.tv_nsec += (long)(wait_ms % 1000) * 1000000;
    ts.tv_sec += ts.tv_nsec / 1000000000;
    ts.tv_nsec %= 1000000000;
    return ts;
}

/* Waits for news. With co->lock. False when the time is over or it was interrupted. */
static bool wait_ready(elog_consumer *co, const struct timespec *until)
{
    int rc = 0;
    co->waiting = true;
    while (sl_list_is_empty(&co->ready) && !co->interrupted && !co->assign_dirty && rc == 0)
        rc = until == NULL ? pthread_cond_wait(&co->cond, &co->lock)
                           : pthread_cond_timedwait(&co->cond, &co->lock, until);
    co->waiting = false;
    bool news = !co->interrupted && (!sl_list_is_empty(&co->ready) || co->assign_dirty);
    return news;
}

static elog_sub *next_ready(elog_consumer *co)
{
    pthread_mutex_lock(&co->lock);
    sl_node *node = sl_list_pop_front(&co->ready);
    pthread_mutex_unlock(&co->lock);
    return node == NULL ? NULL : SL_CONTAINER(node, elog_sub, ready_node);
}

/* One turn over the subs that have news, each at most once or until the hand-out is full. */
static sl_err read_ready(elog_consumer *co, elog_fetch *fe)
{
    elog_sub *first_again = NULL;
    while (fe->count < fe->max && fe->bytes_left > 0) {
        elog_sub *sub = next_ready(co);
        if (sub == NULL)
            break;
        if (sub->paused)
            continue;
        bool more = false;
        sl_err err = elog_fetch_sub(sub, fe, &more);
        if (more || err != SL_OK)
            elog_sub_notify(sub);
        if (err != SL_OK)
            return err;
        if (more && sub == first_again)
            break;
        if (more && first_again == NULL)
            first_again = sub;
    }
    return SL_OK;
}

/* What is left over must not sleep until the next record comes. */
static void wake_for_rest(elog_consumer *co)
{
    pthread_mutex_lock(&co->lock);
    if (!sl_list_is_empty(&co->ready))
        rouse(co);
    pthread_mutex_unlock(&co->lock);
}

sl_err elog_consumer_poll(sl_log_consumer *base, sl_log_batch *batches, size_t max,
                          sl_dur_ms wait_ms, size_t *count)
{
    elog_consumer *co = (elog_consumer *)base;
    struct timespec until = deadline_after(wait_ms > 0 ? wait_ms : 0);
    *count = 0;
    for (;;) {
        pthread_mutex_lock(&co->lock);
        co->wake_open = false;
        bool news = !co->interrupted && (!sl_list_is_empty(&co->ready) || co->assign_dirty);
        if (!news && !co->interrupted && wait_ms > 0)
            news = wait_ready(co, &until);
        bool assign = co->assign_dirty;
        co->assign_dirty = co->interrupted = false;
        pthread_mutex_unlock(&co->lock);
        if (assign)
            elog_assign_act(co);
        if (!news)
            return SL_OK;
        elog_fetch fe = {
            .batches = batches, .max = max, .bytes_left = co->base.options.max_batch_bytes};
        sl_err err = read_ready(co, &fe);
        if (fe.count > 0 || err != SL_OK) {
            *count = fe.count;
            wake_for_rest(co);
            return fe.count > 0 ? SL_OK : err;
        }
    }
}
