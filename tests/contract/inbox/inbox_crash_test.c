/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_crash: the embedded inbox under SIGKILL. A child process adds, acknowledges and marks, and
 * writes what was confirmed to it into shared memory; it is killed at a random moment, twenty
 * times over the same store. After each kill: what was confirmed is there (and what was removed is
 * not), packet ids are unique, confirmed sources are replays.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "inbox_embedded_store.h"

enum { CLIENTS = 8, KILLS = 20, MAX_ROWS = 200000, MARKED = 1, REMOVED = 2, REMOVING = 4 };

/* One row as the child knows it; the number is written last. */
typedef struct fact {
    uint64_t source;
    uint16_t packet_id;
    _Atomic uint8_t state; /* MARKED | REMOVED confirmed, REMOVING asked for */
    _Atomic uint64_t row;
} fact;

typedef struct facts {
    _Atomic uint32_t started; /* the child is past its recovery */
    struct {
        _Atomic uint64_t asked_source; /* highest source ever given to add */
        _Atomic uint32_t count;
        fact rows[MAX_ROWS / CLIENTS];
    } clients[CLIENTS];
} facts;

static facts *map_facts(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, sizeof(facts)), 0);
    facts *fc = mmap(NULL, sizeof(*fc), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    assert_true(fc != MAP_FAILED);
    close(fd);
    return fc;
}

static uint64_t next_random(uint64_t *rnd)
{
    *rnd ^= *rnd << 13;
    *rnd ^= *rnd >> 7;
    *rnd ^= *rnd << 17;
    return *rnd;
}

static void client_name(unsigned index, char out[16])
{
    snprintf(out, 16, "crash-%u", index);
}

/* A store that is not made by the factory but given by name. */
typedef struct named_store {
    const char *dir;
    sl_clock *ck;
    sl_log *log;
} named_store;
static named_store the_store;

static void *named_new(sl_clock *ck)
{
    the_store.ck = ck;
    return &the_store;
}
static void named_open(void *arg)
{
    named_store *st = arg;
    st->log = inbox_embedded_open_log(st->dir, st->ck);
}
static sl_log *named_log(void *arg)
{
    return ((named_store *)arg)->log;
}
static void named_close(void *arg)
{
    sl_log_close(&((named_store *)arg)->log);
}
static void named_free(void *arg)
{
    (void)arg;
}
static const inbox_factory named_factory = {.ops = &sl_inbox_embedded_ops,
                                            .new_store = named_new,
                                            .open_store = named_open,
                                            .log_of = named_log,
                                            .close_store = named_close,
                                            .free_store = named_free};

/* ---- the child ------------------------------------------------------------------------------- */

static void child_add(inbox_harness *hs, facts *fc, unsigned index, uint64_t *rnd)
{
    char name[16];
    client_name(index, name);
    size_t count = 1 + next_random(rnd) % 20;
    sl_inbox_row rows[20];
    char bodies[20][32];
    uint64_t source = atomic_load(&fc->clients[index].asked_source);
    for (size_t i = 0; i < count; i++) {
        snprintf(bodies[i], sizeof(bodies[i]), "%llu", (unsigned long long)++source);
        rows[i] = harness_row(source, 1 + (uint8_t)(next_random(rnd) % 2), bodies[i]);
    }
    atomic_store(&fc->clients[index].asked_source, source);
    const sl_inbox_done *done = harness_add(hs, name, 1, rows, count, 0);
    SL_TEST_OK(done->err);
    uint32_t at = atomic_load(&fc->clients[index].count);
    for (size_t i = 0; i < count && at < MAX_ROWS / CLIENTS; i++, at++) {
        fact *ft = &fc->clients[index].rows[at];
        ft->source = rows[i].source_offset;
        ft->packet_id = done->assigned[i].packet_id;
        atomic_store(&ft->row, done->assigned[i].row);
        atomic_store(&fc->clients[index].count, at + 1);
    }
}

/* Acknowledges one of the confirmed rows. */
static void child_ack(inbox_harness *hs, facts *fc, unsigned index, uint64_t *rnd)
{
    char name[16];
    client_name(index, name);
    uint32_t count = atomic_load(&fc->clients[index].count);
    if (count == 0)
        return;
    uint32_t back = (uint32_t)(next_random(rnd) % (count < 40 ? count : 40));
    fact *ft = &fc->clients[index].rows[count - 1 - back];
    uint8_t known = atomic_load(&ft->state);
    if ((known & (REMOVED | REMOVING)) != 0)
        return;
    if (next_random(rnd) % 3 == 0 && (known & MARKED) == 0) {
        SL_TEST_OK(harness_mark(hs, name, 1, ft->packet_id));
        atomic_fetch_or(&ft->state, MARKED);
    } else {
        atomic_fetch_or(&ft->state, REMOVING);
        SL_TEST_OK(harness_remove(hs, name, 1, ft->packet_id));
        atomic_fetch_or(&ft->state, REMOVED);
    }
}

_Noreturn static void child_main(const char *dir, const char *facts_path, uint64_t seed)
{
    facts *fc = map_facts(facts_path);
    the_store.dir = dir;
    inbox_harness hs;
    harness_open(&hs, &named_factory, 3);
    uint64_t rnd = seed;
    atomic_store(&fc->started, 1);
    for (;;) {
        unsigned index = (unsigned)(next_random(&rnd) % CLIENTS);
        if (next_random(&rnd) % 2 == 0)
            child_add(&hs, fc, index, &rnd);
        else
            child_ack(&hs, fc, index, &rnd);
    }
}

/* ---- the checks ------------------------------------------------------------------------------ */

static void check_client(inbox_harness *hs, facts *fc, unsigned index)
{
    char name[16];
    client_name(index, name);
    const sl_inbox_done *read = harness_read(hs, name, 1, 0, SL_INBOX_MAX_ROWS, SIZE_MAX);
    SL_TEST_OK(read->err);
    assert_int_equal(read->repaired, 0);
    bool *ids = sl_calloc(65536, sizeof(*ids));
    for (size_t i = 0; i < read->entry_count; i++) {
        assert_false(ids[read->entries[i].packet_id]);
        ids[read->entries[i].packet_id] = true;
    }
    uint32_t count = atomic_load(&fc->clients[index].count);
    size_t at = 0;
    for (uint32_t i = 0; i < count; i++) {
        fact *ft = &fc->clients[index].rows[i];
        uint8_t known = atomic_load(&ft->state);
        while (at < read->entry_count && read->entries[at].row < ft->row)
            at++;
        bool is_there = at < read->entry_count && read->entries[at].row == ft->row;
        if ((known & REMOVED) != 0)
            assert_false(is_there);
        if ((known & (REMOVED | REMOVING)) != 0)
            continue;
        assert_true(is_there);
        const sl_inbox_entry *entry = &read->entries[at];
        assert_int_equal(entry->packet_id, ft->packet_id);
        if ((known & MARKED) != 0)
            assert_int_equal(entry->kind, SL_INBOX_PUBREL);
        if (entry->kind == SL_INBOX_PUBREL)
            continue;
        char body[32];
        int len = snprintf(body, sizeof(body), "%llu", (unsigned long long)ft->source);
        assert_int_equal(entry->packet.len, len);
        assert_memory_equal(entry->packet.ptr, body, len);
    }
    sl_free(ids);
    if (count == 0)
        return;
    sl_inbox_row replay = harness_row(fc->clients[index].rows[count - 1].source, 1, "replay");
    assert_int_equal(harness_add(hs, name, 1, &replay, 1, 0)->dropped, 1);
}

static void kill_once(const char *self, const char *dir, const char *facts_path, uint64_t seed,
                      facts *fc)
{
    char seed_text[32];
    snprintf(seed_text, sizeof(seed_text), "%llu", (unsigned long long)seed);
    atomic_store(&fc->started, 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        execl(self, self, "child", dir, facts_path, seed_text, (char *)NULL);
        _exit(127);
    }
    struct timespec nap = {.tv_nsec = 1000000};
    int status = 0;
    while (atomic_load(&fc->started) == 0) {
        assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
        nanosleep(&nap, NULL);
    }
    nap.tv_nsec = 5000000 + (long)(seed % 120000000);
    nanosleep(&nap, NULL);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) &&
                WTERMSIG(status) == SIGKILL); /* no failed check of its own */
}

static void test_what_was_confirmed_survives_kills(void **state)
{
    (void)state;
    char dir[] = "/tmp/sl-inbox-crash-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char facts_path[64], store_dir[64], self[256];
    snprintf(facts_path, sizeof(facts_path), "%s/facts", dir);
    snprintf(store_dir, sizeof(store_dir), "%s/store", dir);
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    assert_true(len > 0);
    self[len] = '\0';
    facts *fc = map_facts(facts_path);
    uint64_t rnd = UINT64_C(0x2545f4914f6cdd1d);
    for (unsigned i = 0; i < KILLS; i++) {
        kill_once(self, store_dir, facts_path, next_random(&rnd), fc);
        inbox_harness hs;
        the_store.dir = store_dir;
        harness_open(&hs, &named_factory, 100);
        for (unsigned client = 0; client < CLIENTS; client++)
            check_client(&hs, fc, client);
        harness_close(&hs);
    }
    uint64_t confirmed = 0;
    for (unsigned client = 0; client < CLIENTS; client++)
        confirmed += atomic_load(&fc->clients[client].count);
    print_message("%llu confirmed rows\n", (unsigned long long)confirmed);
    assert_true(confirmed > KILLS);
    munmap(fc, sizeof(*fc));
    inbox_embedded_remove_dir(dir);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "child") == 0)
        child_main(argv[2], argv[3], strtoull(argv[4], NULL, 10));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_confirmed_survives_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
