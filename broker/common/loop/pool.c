/* SPDX-License-Identifier: Apache-2.0
 *
 * pool: threads that take jobs from one bounded queue. The queue's lock is held for a few
 * instructions around jobs that last micro- to milliseconds; nothing else is locked with it.
 */
#include "loop/pool.h"

#include <pthread.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/list.h"

typedef struct job {
    sl_mail mail; /* brings the completion to lp */
    sl_node node;
    sl_loop *lp; /* borrowed; NULL: nobody waits */
    void (*work)(void *arg);
    void (*done)(void *arg);
    void *arg;
} job;

struct sl_pool {
    pthread_mutex_t lock; /* guards queue, queued, refused, ending; innermost lock */
    pthread_cond_t more;
    sl_list queue; /* of job.node, owned */
    size_t queued;
    size_t max_queued;
    uint64_t refused;
    bool ending;
    unsigned threads;
    sl_thread **thread; /* owned */
};

static void on_done(sl_mail *mail)
{
    job *jb = (job *)mail;
    void (*done)(void *arg) = jb->done;
    void *arg = jb->arg;
    sl_free(jb);
    if (done != NULL)
        done(arg);
}

// The next job, waiting for one; NULL when the pool ends and the queue is empty.
static job *take_job(sl_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    while (sl_list_is_empty(&pool->queue) && !pool->ending)
        pthread_cond_wait(&pool->more, &pool->lock);
    sl_node *node = sl_list_pop_front(&pool->queue);
    if (node != NULL)
        pool->queued--;
    pthread_mutex_unlock(&pool->lock);
    return node == NULL ? NULL : SL_CONTAINER(node, job, node);
}

static void run_jobs(void *arg)
{
    sl_pool *pool = arg;
    job *jb;
    while ((jb = take_job(pool)) != NULL) {
        jb->work(jb->arg);
        // A loop that was stopped takes no completion any more.
        if (jb->lp == NULL || !sl_loop_post(jb->lp, &jb->mail))
            sl_free(jb);
    }
}

sl_err sl_pool_new(unsigned threads, size_t max_queued, sl_pool **out)
{
    SL_ASSERT(threads != 0 && max_queued != 0);
    sl_pool *pool = sl_calloc(1, sizeof(*pool));
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->more, NULL);
    sl_list_init(&pool->queue);
    pool->max_queued = max_queued;
    pool->thread = sl_calloc(threads, sizeof(sl_thread *));
    sl_err err = SL_OK;
    while (err == SL_OK && pool->threads < threads) {
        char name[16];
        snprintf(name, sizeof(name), "pool-%u", pool->threads);
        err = sl_thread_start(name, run_jobs, pool, &pool->thread[pool->threads]);
        if (err == SL_OK)
            pool->threads++;
    }
    if (err == SL_OK)
        *out = pool;
    else
        sl_pool_free(&pool);
    return err;
}

sl_err sl_pool_run(sl_pool *pool, sl_loop *lp, void (*work)(void *arg), void (*done)(void *arg),
                   void *arg)
{
    job *jb = sl_calloc(1, sizeof(*jb));
    jb->mail.fn = on_done;
    jb->lp = lp;
    jb->work = work;
    jb->done = done;
    jb->arg = arg;
    pthread_mutex_lock(&pool->lock);
    SL_ASSERT(!pool->ending);
    bool room = pool->queued < pool->max_queued;
    if (room) {
        sl_list_push_back(&pool->queue, &jb->node);
        pool->queued++;
        pthread_cond_signal(&pool->more);
    } else {
        pool->refused++;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!room)
        sl_free(jb);
    return room ? SL_OK : SL_ELIMIT;
}

size_t sl_pool_queued(sl_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t queued = pool->queued;
    pthread_mutex_unlock(&pool->lock);
    return queued;
}

uint64_t sl_pool_refused(sl_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    uint64_t refused = pool->refused;
    pthread_mutex_unlock(&pool->lock);
    return refused;
}

void sl_pool_free(sl_pool **pool)
{
    sl_pool *mine = *pool;
    *pool = NULL;
    if (mine == NULL)
        return;
    pthread_mutex_lock(&mine->lock);
    mine->ending = true;
    pthread_cond_broadcast(&mine->more);
    pthread_mutex_unlock(&mine->lock);
    for (unsigned i = 0; i < mine->threads; i++)
        sl_thread_join(&mine->thread[i]);
    pthread_cond_destroy(&mine->more);
    pthread_mutex_destroy(&mine->lock);
    sl_free(mine->thread);
    sl_free(mine);
}
