/* SPDX-License-Identifier: Apache-2.0
 *
 * db_bench [writes [url]]: upserts of one small row each, asked from one loop with 500 under way:
 * SQLite with one request per commit, SQLite with grouped commits, with and without fsync, and
 * PostgreSQL when a URL is given. Prints figures and judges none.
 */
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/repo_session_ctx.h"

enum { WINDOW = 500 };

typedef struct bench {
    sl_clock ck;
    sl_loop *lp;
    sl_db *db;
    long asked, done, total; /* on the loop */
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool over;
} bench;

static void must(sl_err err, const char *what)
{
    if (err == SL_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, sl_err_text(err));
    exit(1);
}

static void on_put(void *arg, sl_err err);

static void ask(bench *be)
{
    char client[32];
    snprintf(client, sizeof(client), "client-%ld", be->asked++ % 10000);
    sl_qos2_ctx ctx = {.client_id = sl_slice_str(client),
                       .updated = be->asked,
                       .packet_ids = sl_slice_str("[1,2,3,4,5,6,7,8]")};
    must(sl_qos2_ctx_put(be->db, be->lp, &ctx, on_put, be), "put");
}

static void on_put(void *arg, sl_err err)
{
    bench *be = arg;
    must(err, "written");
    if (be->asked < be->total)
        ask(be);
    if (++be->done < be->total)
        return;
    pthread_mutex_lock(&be->lock);
    be->over = true;
    pthread_cond_signal(&be->cond);
    pthread_mutex_unlock(&be->lock);
}

static void begin(void *arg)
{
    bench *be = arg;
    for (int i = 0; i < WINDOW && be->asked < be->total; i++)
        ask(be);
}

static double cpu_seconds(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
           (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

static void measure(const char *name, const sl_db_ops *ops, const sl_db_options *options,
                    long writes)
{
    bench be = {.total = writes};
    pthread_mutex_init(&be.lock, NULL);
    pthread_cond_init(&be.cond, NULL);
    sl_clock_init(&be.ck);
    must(sl_loop_new("asker", &be.ck, &be.lp), "loop");
    must(sl_loop_start(be.lp), "loop");
    char *why = NULL;
    sl_err err = sl_db_open(ops, options, &be.db, &why);
    if (why != NULL)
        fprintf(stderr, "%s\n", why);
    must(err, "open");
    double cpu = cpu_seconds();
    uint64_t start = sl_clock_mono_ns(&be.ck);
    sl_loop_call(be.lp, begin, &be);
    pthread_mutex_lock(&be.lock);
    while (!be.over)
        pthread_cond_wait(&be.cond, &be.lock);
    pthread_mutex_unlock(&be.lock);
    double seconds = (double)(sl_clock_mono_ns(&be.ck) - start) / 1e9;
    cpu = cpu_seconds() - cpu;
    int64_t commits = sl_db_stat(be.db, SL_DB_STAT_COMMITS);
    printf("%-28s %8.0f writes/s  %6.1f us CPU a write  %7.1f writes a commit\n", name,
           (double)writes / seconds, cpu * 1e6 / (double)writes, (double)writes / (double)commits);
    sl_db_close(&be.db);
    sl_loop_stop(be.lp);
    sl_loop_join(be.lp);
    sl_loop_free(&be.lp);
    pthread_cond_destroy(&be.cond);
    pthread_mutex_destroy(&be.lock);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)st;
    (void)kind;
    (void)where;
    return remove(path);
}

static void measure_sqlite(const char *name, unsigned group, bool fsync, long writes)
{
    char dir[] = "./db-bench-XXXXXX"; // on the disk one stands on, not in a memory file system
    if (mkdtemp(dir) == NULL) {
        perror(dir);
        exit(1);
    }
    measure(name, &sl_db_sqlite_ops, &(sl_db_options){.dir = dir, .group = group, .fsync = fsync},
            writes);
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

int main(int argc, char **argv)
{
    long writes = argc > 1 ? strtol(argv[1], NULL, 10) : 20000;
    if (writes <= 0) {
        fputs("usage: db_bench [writes [url]]\n", stderr);
        return 2;
    }
    measure_sqlite("sqlite, one a commit", 1, true, writes);
    measure_sqlite("sqlite, grouped", 0, true, writes);
    measure_sqlite("sqlite, one, no fsync", 1, false, writes);
    measure_sqlite("sqlite, grouped, no fsync", 0, false, writes);
    if (argc > 2)
        measure("postgres", &sl_db_postgres_ops,
                &(sl_db_options){.url = argv[2], .user = "postgres", .password = "postgres"},
                writes);
    return 0;
}
