/* SPDX-License-Identifier: Apache-2.0
 *
 * db_queue: requests between the loops that ask and the threads of an adapter. Writes wait per
 * asker and askers take turns, so that one loop with thousands of requests does not hold up
 * another; with several connections an asker has one write under way at most, which keeps its
 * order.
 */
#include "store/db_int.h"

#include <time.h>

#include "base/alloc.h"

#define NS_PER_S  1000000000
#define NS_PER_MS 1000000
#define MS_PER_S  1000

void db_queue_init(db_queue *q, size_t max_waiting, size_t max_bytes)
{
    *q = (db_queue){.max_waiting = max_waiting, .max_bytes = max_bytes};
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->more_reads, &attr);
    pthread_cond_init(&q->more_writes, &attr);
    pthread_condattr_destroy(&attr);
    sl_list_init(&q->reads);
    sl_list_init(&q->ready);
    sl_list_init(&q->askers);
    sl_list_init(&q->ages);
}

static void forget_asker(db_asker *as)
{
    sl_list_remove(&as->all);
    sl_list_remove(&as->ready);
    sl_free(as);
}

void db_queue_fini(db_queue *q)
{
    SL_ASSERT(sl_list_is_empty(&q->askers) && sl_list_is_empty(&q->ages));
    pthread_cond_destroy(&q->more_reads);
    pthread_cond_destroy(&q->more_writes);
    pthread_mutex_destroy(&q->lock);
}

static db_asker *asker_of(db_queue *q, sl_loop *lp)
{
    for (sl_node *nd = sl_list_first(&q->askers); nd != NULL; nd = sl_list_next(&q->askers, nd)) {
        db_asker *as = SL_CONTAINER(nd, db_asker, all);
        if (as->lp == lp)
            return as;
    }
    db_asker *as = sl_calloc(1, sizeof(*as));
    as->lp = lp;
    sl_list_init(&as->waiting);
    sl_list_push_back(&q->askers, &as->all);
    return as;
}

// An asker is in the round iff something of it may be taken; one without anything is forgotten.
static void place_asker(db_queue *q, db_asker *as)
{
    bool may = !as->busy && !sl_list_is_empty(&as->waiting);
    if (may && !sl_node_is_linked(&as->ready))
        sl_list_push_back(&q->ready, &as->ready);
    else if (!may)
        sl_list_remove(&as->ready);
    if (!as->busy && sl_list_is_empty(&as->waiting))
        forget_asker(as);
}

static void count_in(db_queue *q, db_request *rq)
{
    q->waiting++;
    q->bytes += rq->bytes;
}

static void count_out(db_queue *q, db_request *rq)
{
    q->waiting--;
    q->bytes -= rq->bytes;
}

// What a taker of that kind sleeps on: takers of both kinds share one.
static pthread_cond_t *cond_of(db_queue *q, unsigned what)
{
    return what == DB_TAKE_READS && !q->mixed_takers ? &q->more_reads : &q->more_writes;
}

sl_err db_queue_put(db_queue *q, db_request *rq)
{
    sl_err err = SL_OK;
    pthread_mutex_lock(&q->lock);
    if (q->closed) {
        err = SL_ECLOSED;
    } else if (q->waiting >= q->max_waiting || rq->bytes > q->max_bytes - q->bytes) {
        err = SL_ELIMIT;
    } else {
        count_in(q, rq);
        sl_list_push_back(&q->ages, &rq->age);
        if ((rq->flags & SL_DB_READ) != 0) {
            sl_list_push_back(&q->reads, &rq->node);
            pthread_cond_signal(cond_of(q, DB_TAKE_READS));
        } else {
            rq->asker = asker_of(q, rq->lp);
            sl_list_push_back(&rq->asker->waiting, &rq->node);
            place_asker(q, rq->asker);
            pthread_cond_signal(cond_of(q, DB_TAKE_WRITES));
        }
    }
    pthread_mutex_unlock(&q->lock);
    return err;
}

static db_request *unlink_request(db_queue *q, db_request *rq)
{
    sl_list_remove(&rq->node);
    sl_list_remove(&rq->age);
    count_out(q, rq);
    return rq;
}

static db_request *take_write(db_queue *q, bool one_per_asker)
{
    sl_node *nd = sl_list_first(&q->ready);
    if (nd == NULL)
        return NULL;
    db_asker *as = SL_CONTAINER(nd, db_asker, ready);
    db_request *rq = SL_CONTAINER(sl_list_first(&as->waiting), db_request, node);
    unlink_request(q, rq);
    sl_list_remove(&as->ready); // and to the back of the round, if at all
    as->busy = one_per_asker;
    if (!one_per_asker)
        rq->asker = NULL;
    place_asker(q, as);
    return rq;
}

static db_request *take_read(db_queue *q)
{
    sl_node *nd = sl_list_first(&q->reads);
    return nd == NULL ? NULL : unlink_request(q, SL_CONTAINER(nd, db_request, node));
}

// Those whose time is over, moved to a list of the caller: completing needs no lock.
static void take_expired(sl_db *db, sl_list *out)
{
    db_queue *q = &db->queue;
    sl_mono_ms now = db_now(db);
    for (sl_node *nd; (nd = sl_list_first(&q->ages)) != NULL;) {
        db_request *rq = SL_CONTAINER(nd, db_request, age);
        if (rq->deadline > now)
            break;
        unlink_request(q, rq);
        if (rq->asker != NULL)
            place_asker(q, rq->asker);
        rq->asker = NULL;
        sl_list_push_back(out, &rq->node);
    }
}

static void complete_all(sl_db *db, sl_list *list, sl_err err, const char *why)
{
    for (sl_node *nd; (nd = sl_list_pop_front(list)) != NULL;) {
        db_request *rq = SL_CONTAINER(nd, db_request, node);
        db_request_fail(rq, 0, err, why);
        db_request_complete(db, rq);
        if (err == SL_EAGAIN)
            db_count(db, SL_DB_STAT_EXPIRED, 1);
    }
}

static void complete_expired(sl_db *db, sl_list *list)
{
    complete_all(db, list, SL_EAGAIN, "the database was away or too slow");
}

// Until a request comes, the oldest one's time is over, or wait_ms (< 0: no limit) passed.
static void wait_for_more(sl_db *db, pthread_cond_t *cond, sl_mono_ms until)
{
    db_queue *q = &db->queue;
    sl_node *oldest = sl_list_first(&q->ages);
    if (oldest != NULL) {
        sl_mono_ms deadline = SL_CONTAINER(oldest, db_request, age)->deadline;
        until = until < deadline ? until : deadline;
    }
    if (until == INT64_MAX) {
        pthread_cond_wait(cond, &q->lock);
        return;
    }
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    sl_dur_ms span = until - db_now(db);
    int64_t ns = at.tv_nsec + (span > 0 ? span % MS_PER_S : 0) * NS_PER_MS;
    at.tv_sec += (span > 0 ? span / MS_PER_S : 0) + ns / NS_PER_S;
    at.tv_nsec = ns % NS_PER_S;
    pthread_cond_timedwait(cond, &q->lock, &at);
}

db_request *db_queue_take(sl_db *db, unsigned what, bool one_per_asker, sl_dur_ms wait_ms,
                          bool *closed)
{
    db_queue *q = &db->queue;
    sl_list expired;
    sl_list_init(&expired);
    db_request *rq = NULL;
    sl_mono_ms until = wait_ms < 0 ? INT64_MAX : db_now(db) + wait_ms;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        take_expired(db, &expired);
        if (!q->closed && !q->paused) {
            if ((what & DB_TAKE_WRITES) != 0)
                rq = take_write(q, one_per_asker);
            if (rq == NULL && (what & DB_TAKE_READS) != 0)
                rq = take_read(q);
        }
        if (rq != NULL || q->closed || !sl_list_is_empty(&expired) || db_now(db) >= until)
            break;
        wait_for_more(db, cond_of(q, what), until);
    }
    *closed = q->closed;
    pthread_mutex_unlock(&q->lock);
    complete_expired(db, &expired);
    return rq;
}

void db_queue_release(db_queue *q, db_asker *as)
{
    if (as == NULL)
        return;
    pthread_mutex_lock(&q->lock);
    as->busy = false;
    place_asker(q, as);
    pthread_cond_signal(&q->more_writes);
    pthread_mutex_unlock(&q->lock);
}

bool db_queue_put_back(db_queue *q, db_request *rq)
{
    pthread_mutex_lock(&q->lock);
    bool open = !q->closed;
    if (open) {
        count_in(q, rq);
        sl_list_push_front(&q->ages, &rq->age); // it was the oldest, or near to it
        if ((rq->flags & SL_DB_READ) != 0) {
            sl_list_push_front(&q->reads, &rq->node);
            pthread_cond_signal(cond_of(q, DB_TAKE_READS));
        } else {
            if (rq->asker == NULL)
                rq->asker = asker_of(q, rq->lp);
            rq->asker->busy = false;
            sl_list_push_front(&rq->asker->waiting, &rq->node);
            place_asker(q, rq->asker);
            pthread_cond_signal(cond_of(q, DB_TAKE_WRITES));
        }
    }
    pthread_mutex_unlock(&q->lock);
    return open;
}

void db_queue_expire(sl_db *db)
{
    sl_list expired;
    sl_list_init(&expired);
    pthread_mutex_lock(&db->queue.lock);
    take_expired(db, &expired);
    pthread_mutex_unlock(&db->queue.lock);
    complete_expired(db, &expired);
}

void db_queue_pause(db_queue *q, bool paused)
{
    pthread_mutex_lock(&q->lock);
    q->paused = paused;
    pthread_cond_broadcast(&q->more_reads);
    pthread_cond_broadcast(&q->more_writes);
    pthread_mutex_unlock(&q->lock);
}

void db_queue_close(sl_db *db)
{
    db_queue *q = &db->queue;
    sl_list left;
    sl_list_init(&left);
    pthread_mutex_lock(&q->lock);
    q->closed = true;
    for (sl_node *nd; (nd = sl_list_first(&q->ages)) != NULL;) {
        db_request *rq = unlink_request(q, SL_CONTAINER(nd, db_request, age));
        if (rq->asker != NULL)
            place_asker(q, rq->asker);
        rq->asker = NULL;
        sl_list_push_back(&left, &rq->node);
    }
    pthread_cond_broadcast(&q->more_reads);
    pthread_cond_broadcast(&q->more_writes);
    pthread_mutex_unlock(&q->lock);
    complete_all(db, &left, SL_ECLOSED, "the port was closed");
}

bool db_queue_is_closed(db_queue *q)
{
    pthread_mutex_lock(&q->lock);
    bool closed = q->closed;
    pthread_mutex_unlock(&q->lock);
    return closed;
}
