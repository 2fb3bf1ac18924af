/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_keeper: the keeper thread: looks at the free space and the queues each second and
 * runs retention every ten.
 */
#include <errno.h>
#include <sys/statvfs.h>
#include <time.h>

#include "base/logger.h"
#include "log/elog_fn.h"

#define LOOK_MS         1000
#define RETENTION_LOOKS 10
/* Little room: what other processes write between two looks ought to fit in it. */
#define CAREFUL_BYTES (1ull << 30)

void elog_space_check(elog *el)
{
    struct statvfs fs;
    if (statvfs(el->dir, &fs) != 0) {
        sl_warn(SL_C_LOG, "LOG-SPACE-UNKNOWN", SL_S("dir", el->dir),
                SL_E(sl_err_from_errno(errno)));
        return;
    }
    uint64_t free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
    uint64_t mark = atomic_load(&el->low_space_bytes);
    atomic_store(&el->careful, free_bytes < mark + CAREFUL_BYTES);
    bool was = atomic_load(&el->low);
    if (!was && free_bytes < mark) {
        atomic_store(&el->low, true);
        sl_log_gauge(el->log, SL_LOG_STAT_LOW_SPACE, 1);
        sl_error(SL_C_LOG, "LOG-LOW-SPACE", SL_S("dir", el->dir), SL_U("free_bytes", free_bytes),
                 SL_U("mark_bytes", mark),
                 SL_S("action", "appends are refused until there is more room; reading goes on"));
    } else if (was && free_bytes >= mark + mark / 20 && !atomic_load(&el->broken)) {
        atomic_store(&el->low, false);
        sl_log_gauge(el->log, SL_LOG_STAT_LOW_SPACE, 0);
        sl_info(SL_C_LOG, "LOG-SPACE-BACK", SL_S("dir", el->dir), SL_U("free_bytes", free_bytes));
    }
}

/* A store whose write failed is tried once a look, before appends are taken again. */
static void probe_store(elog *el)
{
    if (!atomic_load(&el->broken) || atomic_load(&el->failed) != SL_OK)
        return;
    atomic_store(&el->probe, true);
    elog_writer_wake(el, false);
}

static void gauge_queues(elog *el)
{
    int64_t sum = 0;
    pthread_mutex_lock(&el->producers_lock);
    for (size_t i = 0; i < el->producer_count; i++) {
        elog_producer *pr = el->producers[i];
        pthread_mutex_lock(&pr->lock);
        sum += (int64_t)(pr->queues[ELOG_MAIN].bytes + pr->queues[ELOG_DERIVED].bytes);
        pthread_mutex_unlock(&pr->lock);
    }
    pthread_mutex_unlock(&el->producers_lock);
    sl_log_gauge(el->log, SL_LOG_STAT_QUEUED_BYTES, sum);
}

/* Sleeps for one look; true at the end. With keeper_lock. */
static bool sleep_a_look(elog *el)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += LOOK_MS / 1000;
    int rc = 0;
    while (!el->keeper_stop && rc == 0)
        rc = pthread_cond_timedwait(&el->keeper_cond, &el->keeper_lock, &until);
    return el->keeper_stop;
}

static void keeper_main(void *arg)
{
    elog *el = arg;
    unsigned looks = 0;
    pthread_mutex_lock(&el->keeper_lock);
    while (!sleep_a_look(el)) {
        pthread_mutex_unlock(&el->keeper_lock);
        probe_store(el);
        elog_space_check(el);
        gauge_queues(el);
        if (++looks % RETENTION_LOOKS == 0)
            elog_retention_run(el);
        pthread_mutex_lock(&el->keeper_lock);
    }
    pthread_mutex_unlock(&el->keeper_lock);
}

sl_err elog_keeper_start(elog *el)
{
    return sl_thread_start("log-keeper", keeper_main, el, &el->keeper);
}

void elog_keeper_stop(elog *el)
{
    if (el->keeper == NULL)
        return;
    pthread_mutex_lock(&el->keeper_lock);
    el->keeper_stop = true;
    pthread_cond_signal(&el->keeper_cond);
    pthread_mutex_unlock(&el->keeper_lock);
    sl_thread_join(&el->keeper);
}
