/* SPDX-License-Identifier: Apache-2.0
 *
 * db_postgres: the PostgreSQL adapter of the db port: a keeper thread and a pool of workers, each
 * with a connection of its own, made when it is needed. The keeper brings the schema up to date
 * each time it connects, asks the server every second whether it works, and is the only one that
 * says whether the database is there: while it is not, nothing is given out of the queue, and what
 * waits too long expires. A worker that meets a lost connection puts its request back and connects
 * anew.
 */
#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "loop/thread.h"
#include "store/db_migrations.h"
#include "store/db_pg_conn.h"
#include "store/db_url.h"

#define MAX_WORKERS   128
#define PING_MS       1000
#define PING_LIMIT_MS 3000
#define IDLE_MS       30000 /* a connection idle for so long is asked before it is trusted */
#define BACKOFF_MIN   100
#define BACKOFF_MAX   5000
#define CONFLICT_MS   20
#define REMIND_MS     30000
/* Any number, the same for all nodes: one migrates, the others wait. */
#define BEGIN_MIGRATION "BEGIN"
#define LOCK_MIGRATION  "SELECT pg_advisory_xact_lock(5497853135693827)"

typedef struct pg_db {
    sl_db *db;
    int end_fd; /* readable from close on; never read */
    db_pg_target target;
    db_pg_conn keeper;
    sl_mono_ms reminded;
    sl_thread *keeper_thread;
    struct worker {
        struct pg_db *pg;
        db_pg_conn conn;
        sl_dur_ms backoff;
        sl_thread *thread;
    } workers[MAX_WORKERS];
    unsigned worker_count;
    pthread_mutex_t lock; /* guards tried and first_err, first_why */
    pthread_cond_t changed;
    bool tried; /* the first attempt is over */
    sl_err first_err;
    char *first_why; /* owned */
} pg_db;

/* ---- the keeper */

static const char *reason_of(sl_err err)
{
    switch (err) {
    case SL_EDENIED:
        return "PostgreSQL refuses user or password of the metadata database";
    case SL_ENOTFOUND:
        return "PostgreSQL has no database of that name for the metadata";
    case SL_EUNSUPPORTED:
        return "the metadata database has a schema of a newer version or of another product";
    case SL_ETIMEDOUT:
        return "PostgreSQL (metadata) does not answer";
    case SL_ECONN:
        return "PostgreSQL (metadata) cannot be reached";
    default:
        return "PostgreSQL (metadata) does not work";
    }
}

static void note_sick(pg_db *pg, sl_err err, const char *detail)
{
    sl_mono_ms now = db_now(pg->db);
    db_queue_pause(&pg->db->queue, true);
    if (db_set_health(pg->db, reason_of(err), detail))
        pg->reminded = now;
    if (now - pg->reminded < REMIND_MS)
        return;
    pg->reminded = now;
    sl_error(SL_C_DB, "DB-STILL-UNAVAILABLE", SL_S("adapter", "postgres"),
             SL_S("why", reason_of(err)), SL_S("detail", detail == NULL ? "" : detail));
}

static void note_well(pg_db *pg)
{
    db_set_health(pg->db, NULL, NULL);
    db_queue_pause(&pg->db->queue, false);
}

static sl_err migrate_run(void *arg, const char *sql, char text[64], char **why)
{
    pg_db *pg = arg;
    db_pg_conn *pc = &pg->keeper;
    sl_dur_ms limit = pg->db->options.statement_ms;
    sl_err err = db_pg_text(pc, sql, limit, text);
    if (err == SL_OK && strcmp(sql, BEGIN_MIGRATION) == 0)
        err = db_pg_text(pc, LOCK_MIGRATION, limit, text);
    if (err != SL_OK)
        *why = sl_strdup(pc->why);
    return err;
}

static sl_err connect_keeper(pg_db *pg, char **why)
{
    sl_err err = db_pg_connect(&pg->keeper, &pg->target);
    if (err != SL_OK) {
        *why = sl_strdup(pg->keeper.why);
        return err;
    }
    sl_db_migrator mg = {.begin = BEGIN_MIGRATION, .run = migrate_run, .arg = pg};
    unsigned from = 0;
    err = sl_db_migrate(&mg, pg->db->options.migrate_to, &from, why);
    if (err != SL_OK)
        db_pg_close(&pg->keeper);
    return err;
}

static void tell_first(pg_db *pg, sl_err err, const char *why)
{
    pthread_mutex_lock(&pg->lock);
    if (!pg->tried) {
        pg->tried = true;
        pg->first_err = err;
        pg->first_why = why == NULL ? NULL : sl_strdup(why);
        pthread_cond_signal(&pg->changed);
    }
    pthread_mutex_unlock(&pg->lock);
}

static void keep(void *arg)
{
    pg_db *pg = arg;
    sl_dur_ms backoff = BACKOFF_MIN;
    sl_dur_ms wait = 0;
    while (db_pg_sleep(&pg->keeper, wait)) {
        if (pg->keeper.link == NULL) {
            char *why = NULL;
            sl_err err = connect_keeper(pg, &why);
            if (err == SL_OK)
                note_well(pg);
            else
                note_sick(pg, err, why);
            tell_first(pg, err, why);
            sl_free(why);
            wait = err == SL_OK ? PING_MS : backoff;
            backoff = err == SL_OK ? BACKOFF_MIN : backoff * 2;
            backoff = backoff < BACKOFF_MAX ? backoff : BACKOFF_MAX;
            continue;
        }
        char text[64];
        sl_err err = db_pg_text(&pg->keeper, "SELECT 1", PING_LIMIT_MS, text);
        if (err != SL_OK) {
            note_sick(pg, err == SL_ECONN ? SL_ETIMEDOUT : err, pg->keeper.why);
            db_pg_close(&pg->keeper);
        }
        wait = err == SL_OK ? PING_MS : 0;
    }
    db_pg_close(&pg->keeper);
}

/* ---- workers */

// A connection that a firewall forgot looks fine until it is used: asking costs little and is safe.
static bool is_trusted(struct worker *wk)
{
    sl_db *db = wk->pg->db;
    db_pg_conn *pc = &wk->conn;
    sl_mono_ms now = db_now(db);
    // Found out before a write is sent, a lost connection leaves nothing in doubt.
    if (pc->link != NULL && (now - pc->born > db->options.max_lifetime_ms || !db_pg_is_alive(pc)))
        db_pg_close(pc);
    if (pc->link != NULL && now - pc->used > IDLE_MS) {
        char text[64];
        if (db_pg_text(pc, "SELECT 1", PING_LIMIT_MS, text) != SL_OK)
            db_pg_close(pc);
    }
    return pc->link != NULL || db_pg_connect(pc, &wk->pg->target) == SL_OK;
}

static void give_back(sl_db *db, db_request *rq)
{
    if (db_queue_put_back(&db->queue, rq)) {
        db_count(db, SL_DB_STAT_RETRIED, 1);
        return;
    }
    db_asker *as = rq->asker;
    db_request_fail(rq, 0, SL_ECLOSED, "the port was closed");
    db_request_complete(db, rq);
    db_queue_release(&db->queue, as);
}

static void complete(sl_db *db, db_request *rq)
{
    db_asker *as = rq->asker;
    db_request_complete(db, rq);
    db_queue_release(&db->queue, as);
}

static void work_on(struct worker *wk, db_request *rq)
{
    sl_db *db = wk->pg->db;
    if (!is_trusted(wk)) {
        give_back(db, rq);
        wk->backoff = wk->backoff == 0 ? BACKOFF_MIN : wk->backoff * 2;
        wk->backoff = wk->backoff < BACKOFF_MAX ? wk->backoff : BACKOFF_MAX;
        (void)db_pg_sleep(&wk->conn, wk->backoff);
        return;
    }
    wk->backoff = 0;
    bool twice = (rq->flags & (SL_DB_READ | SL_DB_IDEMPOTENT)) != 0;
    switch (db_pg_run(&wk->conn, rq)) {
    case DB_PG_DONE:
        complete(db, rq);
        break;
    case DB_PG_AGAIN:
        give_back(db, rq);
        (void)db_pg_sleep(&wk->conn, CONFLICT_MS);
        break;
    case DB_PG_LOST:
        give_back(db, rq);
        break;
    case DB_PG_LOST_MAYBE:
        if (twice)
            give_back(db, rq);
        else
            complete(db, rq);
        break;
    }
}

static void work(void *arg)
{
    struct worker *wk = arg;
    sl_db *db = wk->pg->db;
    bool closed = false;
    while (!closed) {
        db_request *rq = db_queue_take(db, DB_TAKE_READS | DB_TAKE_WRITES, true,
                                       db->options.max_lifetime_ms, &closed);
        if (rq != NULL)
            work_on(wk, rq);
        else if (wk->conn.link != NULL && db_now(db) - wk->conn.used >= db->options.max_lifetime_ms)
            db_pg_close(&wk->conn); // a burst is over: the server gets its process back
    }
    db_pg_close(&wk->conn);
}

/* ---- opening */

static sl_err set_target(pg_db *pg, char **why)
{
    const sl_db_options *op = &pg->db->options;
    const char *text = NULL;
    char *dropped = NULL;
    sl_err err =
        sl_db_url_translate(op->url == NULL ? "" : op->url, &pg->target.url, &dropped, &text);
    if (err == SL_OK && !db_pg_check_url(pg->target.url, &text))
        err = SL_EINVAL;
    if (err == SL_OK && dropped[0] != 0)
        sl_warn(SL_C_DB, "DB-URL-OPTIONS-IGNORED", SL_S("options", dropped));
    sl_free(dropped);
    if (err != SL_OK) {
        char message[256];
        snprintf(message, sizeof(message), "spring.datasource.url (SPRING_DATASOURCE_URL): %s",
                 text);
        *why = sl_strdup(message);
        return err;
    }
    pg->target.user = sl_strdup(op->user == NULL ? "" : op->user);
    pg->target.password = sl_strdup(op->password == NULL ? "" : op->password);
    return SL_OK;
}

static sl_err start_threads(pg_db *pg)
{
    sl_db *db = pg->db;
    sl_err err = sl_thread_start("db-keeper", keep, pg, &pg->keeper_thread);
    unsigned wanted = db->options.connections < MAX_WORKERS ? db->options.connections : MAX_WORKERS;
    while (err == SL_OK && pg->worker_count < wanted) {
        struct worker *wk = &pg->workers[pg->worker_count];
        wk->pg = pg;
        wk->conn = (db_pg_conn){.db = db, .end_fd = pg->end_fd};
        char name[16];
        snprintf(name, sizeof(name), "db-%u", pg->worker_count);
        err = sl_thread_start(name, work, wk, &wk->thread);
        if (err == SL_OK)
            pg->worker_count++;
    }
    return err;
}

// The first attempt's verdict; a server that is away is no error.
static sl_err wait_first(pg_db *pg, char **why)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += pg->db->options.start_wait_ms / 1000;
    until.tv_nsec += pg->db->options.start_wait_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_nsec -= 1000000000;
        until.tv_sec++;
    }
    pthread_mutex_lock(&pg->lock);
    int rc = 0;
    while (!pg->tried && rc == 0)
        rc = pthread_cond_timedwait(&pg->changed, &pg->lock, &until);
    sl_err err = pg->tried && pg->first_err == SL_EUNSUPPORTED ? SL_EUNSUPPORTED : SL_OK;
    if (err != SL_OK) {
        *why = pg->first_why;
        pg->first_why = NULL;
    }
    pthread_mutex_unlock(&pg->lock);
    return err;
}

static void postgres_close(void *self)
{
    pg_db *pg = self;
    // eight bytes always fit into a fresh event counter
    ssize_t written = write(pg->end_fd, &(uint64_t){1}, sizeof(uint64_t));
    SL_ASSERT(written == (ssize_t)sizeof(uint64_t));
    sl_thread_join(&pg->keeper_thread);
    for (unsigned i = 0; i < pg->worker_count; i++)
        sl_thread_join(&pg->workers[i].thread);
    close(pg->end_fd);
    pthread_cond_destroy(&pg->changed);
    pthread_mutex_destroy(&pg->lock);
    sl_free(pg->target.url);
    sl_free(pg->target.user);
    sl_free(pg->target.password);
    sl_free(pg->first_why);
    sl_free(pg);
}

static sl_err postgres_open(sl_db *db, void **self, char **why)
{
    pg_db *pg = sl_calloc(1, sizeof(*pg));
    pg->db = db;
    pg->end_fd = eventfd(0, EFD_CLOEXEC);
    if (pg->end_fd < 0) {
        sl_free(pg);
        return sl_err_from_errno(errno);
    }
    pg->keeper = (db_pg_conn){.db = db, .end_fd = pg->end_fd};
    pthread_mutex_init(&pg->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&pg->changed, &attr);
    pthread_condattr_destroy(&attr);
    db->queue.mixed_takers = true;
    db->queue.paused = true;
    sl_err err = set_target(pg, why);
    if (err == SL_OK) {
        atomic_store(&db->why_sick, "PostgreSQL (metadata) is not connected yet");
        err = start_threads(pg);
    }
    if (err == SL_OK)
        err = wait_first(pg, why);
    if (err != SL_OK) {
        db_queue_close(db);
        postgres_close(pg);
        return err;
    }
    *self = pg;
    return SL_OK;
}

const sl_db_ops sl_db_postgres_ops = {
    .name = "postgres", .open = postgres_open, .close = postgres_close};
