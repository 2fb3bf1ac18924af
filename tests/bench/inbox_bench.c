/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_bench [clients [rows]]: the embedded inbox as a device loop uses it: packs of 2 000 rows of
 * 200 bytes for random clients, one add per client, the next pack when the last add has completed;
 * then every row is read and acknowledged. Prints figures and judges none.
 */
#include <ftw.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/alloc.h"
#include "store/inbox.h"

enum { PACK = 2000, BODY = 200 };

typedef struct bench {
    sl_clock ck;
    sl_log *log;
    sl_inbox *ib;
    pthread_mutex_t lock;
    pthread_cond_t cond;
    bool woken;
    size_t open; /* operations under way */
    uint64_t rows_read;
    uint32_t clients;
} bench;

static uint64_t rnd = 88172645463325252u;

static uint32_t dice(uint32_t sides)
{
    rnd ^= rnd << 13;
    rnd ^= rnd >> 7;
    rnd ^= rnd << 17;
    return (uint32_t)((rnd >> 32) * sides >> 32);
}

static void must(sl_err err, const char *what)
{
    if (err == SL_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, sl_err_text(err));
    exit(1);
}

static void on_wake(void *arg)
{
    bench *be = arg;
    pthread_mutex_lock(&be->lock);
    be->woken = true;
    pthread_cond_signal(&be->cond);
    pthread_mutex_unlock(&be->lock);
}

static void turn(bench *be)
{
    pthread_mutex_lock(&be->lock);
    while (!be->woken)
        pthread_cond_wait(&be->cond, &be->lock);
    be->woken = false;
    pthread_mutex_unlock(&be->lock);
    sl_inbox_drain(be->ib);
}

static sl_slice client_of(uint64_t number, char room[32])
{
    int len = snprintf(room, 32, "device-%llu", (unsigned long long)number);
    return sl_slice_of(room, (size_t)len);
}

/* Acknowledges what a read gave; the token of a read is its client. */
#define READ_ROWS 60000

static void on_done(void *arg, const sl_inbox_done *done)
{
    bench *be = arg;
    char room[32];
    must(done->err, "operation");
    be->open--;
    if (done->op != SL_INBOX_OP_READ)
        return;
    static uint16_t ids[READ_ROWS];
    for (size_t i = 0; i < done->entry_count; i++)
        ids[i] = done->entries[i].packet_id;
    if (done->entry_count == 0)
        return;
    be->open++;
    be->rows_read += done->entry_count;
    must(sl_inbox_remove(be->ib, client_of(done->token, room), 1, ids, done->entry_count,
                         done->token),
         "remove");
}

static double cpu_seconds(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return (double)(ru.ru_utime.tv_sec + ru.ru_stime.tv_sec) +
           (double)(ru.ru_utime.tv_usec + ru.ru_stime.tv_usec) / 1e6;
}

static void add_pack(bench *be, const uint32_t *clients, const uint8_t *body, uint64_t *offset)
{
    sl_inbox_row rows[PACK];
    char room[32];
    for (size_t i = 0; i < PACK;) {
        size_t count = 0;
        for (; i + count < PACK && clients[i + count] == clients[i]; count++)
            rows[count] = (sl_inbox_row){.source_offset = ++*offset,
                                         .qos = 1,
                                         .time_ms = 1,
                                         .packet = {sl_slice_of(body, BODY)}};
        sl_err err;
        while ((err = sl_inbox_add(be->ib, client_of(clients[i], room), 1, rows, count, 0, 1)) ==
               SL_EAGAIN)
            turn(be);
        must(err, "add");
        be->open++;
        i += count;
    }
    while (be->open > 0)
        turn(be);
}

static int by_number(const void *left, const void *right)
{
    uint32_t le = *(const uint32_t *)left, ri = *(const uint32_t *)right;
    return (le > ri) - (le < ri);
}

static void report(const char *name, const bench *be, uint64_t rows, uint64_t begin, double cpu)
{
    double took = (double)(sl_clock_mono_ns(&be->ck) - begin) / 1e9;
    printf("%s rows=%llu rows_per_s=%.0f us_cpu_per_row=%.2f\n", name, (unsigned long long)rows,
           (double)rows / took, (cpu_seconds() - cpu) * 1e6 / (double)rows);
}

static void add_all(bench *be, uint64_t rows)
{
    uint8_t body[BODY];
    uint32_t clients[PACK];
    uint64_t offset = 0, begin = sl_clock_mono_ns(&be->ck);
    double cpu = cpu_seconds();
    memset(body, 'x', sizeof(body));
    for (uint64_t done = 0; done < rows; done += PACK) {
        for (size_t i = 0; i < PACK; i++)
            clients[i] = dice(be->clients);
        qsort(clients, PACK, sizeof(clients[0]), by_number);
        add_pack(be, clients, body, &offset);
    }
    report("add", be, offset, begin, cpu);
}

static void drain_all(bench *be)
{
    char room[32];
    uint64_t begin = sl_clock_mono_ns(&be->ck);
    double cpu = cpu_seconds();
    for (uint32_t i = 0; i < be->clients; i++) {
        must(sl_inbox_read(be->ib, client_of(i, room), 1, 0, READ_ROWS, 1 << 20, i), "read");
        be->open++;
        while (be->open > PACK)
            turn(be);
    }
    while (be->open > 0)
        turn(be);
    report("read+remove", be, be->rows_read, begin, cpu);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

int main(int argc, char **argv)
{
    bench be = {.clients = argc > 1 ? (uint32_t)strtoul(argv[1], NULL, 10) : 10000};
    uint64_t rows = argc > 2 ? strtoull(argv[2], NULL, 10) : 500000;
    if (be.clients == 0 || rows == 0) {
        fprintf(stderr, "usage: inbox_bench [clients [rows]]\n");
        return 2;
    }
    char dir[] = "/tmp/sl-inbox-bench-XXXXXX";
    if (mkdtemp(dir) == NULL)
        return 1;
    sl_clock_init(&be.ck);
    pthread_mutex_init(&be.lock, NULL);
    pthread_cond_init(&be.cond, NULL);
    sl_log_options log_options = {.dir = dir,
                                  .node = "bench",
                                  .fsync = true,
                                  .gather_ms = 2,
                                  .queue_max_bytes = 64 << 20,
                                  .derived_max_bytes = 64 << 20,
                                  .ring_bytes = 1 << 20,
                                  .clock = &be.ck};
    char *why = NULL;
    must(sl_log_open(&sl_log_embedded_ops, &log_options, &be.log, &why), "log");
    sl_inbox_options options = {.log = be.log,
                                .clock = &be.ck,
                                .default_ttl_ms = INT64_C(604800000),
                                .max_cached = 65536,
                                .wake = on_wake,
                                .done = on_done,
                                .arg = &be};
    must(sl_inbox_open(&sl_inbox_embedded_ops, &options, &be.ib), "inbox");
    add_all(&be, rows);
    drain_all(&be);
    sl_inbox_close(&be.ib);
    sl_log_close(&be.log);
    nftw(dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    return 0;
}
