/* SPDX-License-Identifier: Apache-2.0
 *
 * What the embedded sink and the dead letter have reported as stored is there after the process or
 * the machine died in the middle:
 *   sink_sqlite_crash_test kill | cut | cut-half  POWERCUT_LIBRARY
 * A child (this program again) writes documents from three threads and dead letters from a fourth,
 * and reports each stored one through a pipe. It is SIGKILLed, or loses its unsynced writes
 * (tests/support/powercut), at a random moment, 40 times over one folder.
 */
#include "sl_test.h"

#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "dead_letter.h"
#include "loop/pool.h"
#include "peer.h"
#include "store_reader.h"

#define ROUNDS      40
#define CHECK_EVERY 10
#define THREADS     3
#define BATCH       8
#define THREAD_IDS  100000 /* numbers that one thread may use */
#define ROUND_IDS   2000
#define MAX_IDS     (THREADS * THREAD_IDS + ROUNDS * ROUND_IDS)
#define DEAD        0x80000000u /* in a reported number: it is in the dead letter */
#define MOMENT_MS   120

static const sl_sink_target target = {"crash", "docs"};
static const char *how, *library;

/* ---- the child ---- */

typedef struct load {
    sl_sink *sink;
    sl_dead_letter *dl;
    int pipe_fd;
    uint32_t first; /* of this thread's numbers */
} load;

static void report(const load *ld, uint32_t number)
{
    if (write(ld->pipe_fd, &number, sizeof number) != sizeof number)
        _exit(2);
}

static sl_document *make_document(uint32_t number)
{
    char text[64];
    snprintf(text, sizeof text, "{\"messageId\":%u}", number);
    sl_message *msg = peer_text("t", text);
    sl_oid_source none = {0};
    bool missing;
    sl_document *doc = sl_document_new(msg, SL_ID_PAYLOAD_FIELD, "messageId", &none, &missing);
    sl_message_unref(&msg);
    return doc;
}

static void store_for_ever(void *arg)
{
    const load *ld = arg;
    for (uint32_t next = ld->first;; next += BATCH) {
        sl_document *docs[BATCH];
        sl_sink_result res[BATCH];
        memset(res, 0, sizeof res);
        for (uint32_t i = 0; i < BATCH; i++)
            docs[i] = make_document(next + i);
        sl_sink_write(ld->sink, &target, (const sl_document *const *)docs, BATCH, res);
        for (uint32_t i = 0; i < BATCH; i++) {
            if (res[i].outcome == SL_SINK_STORED)
                report(ld, next + i);
            sl_document_free(&docs[i]);
        }
    }
}

static void bury_for_ever(void *arg)
{
    const load *ld = arg;
    for (uint32_t next = ld->first;; next++) {
        sl_document *doc = make_document(next);
        sl_dead_letter_entry entry = {
            doc, {.reason = "test", .database = "crash", .collection = "docs"}};
        if (sl_dead_letter_append(ld->dl, &entry, 1) == SL_OK)
            report(ld, next | DEAD);
        sl_document_free(&doc);
    }
}

static int run_child(const char *dir, int pipe_fd, uint32_t first)
{
    char *why = NULL;
    sl_sink *sink;
    sl_sink_conf cf = {.data_dir = dir};
    if (sl_sink_open(&cf, &sink, &why) != SL_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    char *path = peer_path(dir, "dead.log");
    sl_dead_letter *dl = sl_dead_letter_new(path, 1 << 30);
    sl_thread *threads[THREADS + 1];
    load loads[THREADS + 1];
    for (uint32_t i = 0; i <= THREADS; i++) {
        loads[i] = (load){sink, dl, pipe_fd, first + i % THREADS * THREAD_IDS};
        if (sl_thread_start("load", i < THREADS ? store_for_ever : bury_for_ever, &loads[i],
                            &threads[i]) != SL_OK)
            return 1;
    }
    for (;;)
        pause();
}

/* ---- the test ---- */

typedef struct ledger {
    bool *stored; /* owned; by number */
    bool *buried;
    size_t reports;
} ledger;

static void note(ledger *lg, uint32_t number)
{
    bool *marks = number & DEAD ? lg->buried : lg->stored;
    number &= ~DEAD;
    assert_in_range(number, 0, MAX_IDS - 1);
    marks[number] = true;
    lg->reports++;
}

static void set_number(const char *name, long value)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", value);
    setenv(name, text, 1);
}

static void become_child(const char *dir, int pipe_fd, int round)
{
    char fd[16], first[16];
    snprintf(fd, sizeof fd, "%d", pipe_fd);
    snprintf(first, sizeof first, "%d", round * ROUND_IDS);
    if (strcmp(how, "kill") != 0) {
        setenv("SLUICE_POWERCUT_DIR", dir, 1);
        set_number("SLUICE_POWERCUT_MS", 20 + random() % MOMENT_MS);
        set_number("SLUICE_POWERCUT_KEEP", strcmp(how, "cut-half") == 0 ? 50 : 0);
        set_number("SLUICE_POWERCUT_SEED", random());
        setenv("LD_PRELOAD", library, 1);
        // sanitizer builds want to be first; the library gets along with them
        setenv("ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0", 1);
    }
    execl("/proc/self/exe", "sink_sqlite_crash_test", "child", dir, fd, first, NULL);
    _exit(3);
}

static void run_round(const char *dir, int round, ledger *lg)
{
    int ends[2];
    uint32_t number;
    assert_int_equal(pipe(ends), 0);
    long moment = random() % MOMENT_MS;
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        become_child(dir, ends[1], round);
    }
    close(ends[1]);
    if (strcmp(how, "kill") == 0) {
        assert_int_equal(read(ends[0], &number, sizeof number), sizeof number);
        note(lg, number);
        struct timespec span = {0, moment * 1000000};
        nanosleep(&span, NULL); // the moment of the crash is meant to be any
        assert_int_equal(kill(child, SIGKILL), 0);
    }
    while (read(ends[0], &number, sizeof number) == sizeof number)
        note(lg, number);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status)); // it did not end by itself
    close(ends[0]);
}

static void check_store(const char *dir, const ledger *lg)
{
    stored_list list = stored_read_sqlite(dir, &target);
    bool *seen = sl_calloc(MAX_IDS, sizeof *seen);
    for (size_t i = 0; i < list.count; i++) {
        int64_t number = list.docs[i]->id.num;
        assert_in_range(number, 0, MAX_IDS - 1);
        assert_false(seen[number]);
        seen[number] = true;
    }
    for (size_t i = 0; i < MAX_IDS; i++)
        if (lg->stored[i] && !seen[i])
            fail_msg("document %zu was reported stored and is lost", i);
    sl_free(seen);
    stored_free(&list);
}

static void check_dead_letter(const char *dir, const ledger *lg)
{
    char *path = peer_path(dir, "dead.log"), *text = peer_read_file(path, NULL);
    bool *seen = sl_calloc(MAX_IDS, sizeof *seen);
    for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        sl_document *doc = NULL;
        char *database = NULL, *collection = NULL;
        const char *why;
        if (sl_document_parse_json(sl_slice_of(at, (size_t)(end - at)), &doc, &database,
                                   &collection, &why) == SL_OK)
            seen[doc->id.num] = true; // the others were cut by a crash
        sl_document_free(&doc);
        sl_free(database);
        sl_free(collection);
    }
    for (size_t i = 0; i < MAX_IDS; i++)
        if (lg->buried[i] && !seen[i])
            fail_msg("dead letter %zu was reported written and is lost", i);
    sl_free(seen);
    sl_free(text);
    sl_free(path);
}

static void test_sink_sqlite_keeps_what_it_acknowledged_over_crashes(void **state)
{
    (void)state;
    char *dir = peer_folder_new();
    ledger lg = {.stored = sl_calloc(MAX_IDS, sizeof(bool)),
                 .buried = sl_calloc(MAX_IDS, sizeof(bool))};
    unsigned seed = (unsigned)time(NULL);
    printf("seed %u\n", seed);
    srandom(seed);
    for (int round = 0; round < ROUNDS; round++) {
        run_round(dir, round, &lg);
        char *why = NULL;
        sl_sink *sink; // recovers at once, whatever the crash left
        sl_sink_conf cf = {.data_dir = dir};
        if (sl_sink_open(&cf, &sink, &why) != SL_OK)
            fail_msg("round %d: %s", round, why);
        sl_sink_close(&sink);
        if (round % CHECK_EVERY == CHECK_EVERY - 1) { // what is lost stays lost
            check_store(dir, &lg);
            check_dead_letter(dir, &lg);
        }
    }
    printf("%zu reports in %d rounds\n", lg.reports, ROUNDS);
    assert_true(lg.reports > ROUNDS);
    sl_free(lg.stored);
    sl_free(lg.buried);
    peer_folder_remove(&dir);
}

int main(int argc, char **argv)
{
    if (argc == 5 && strcmp(argv[1], "child") == 0)
        return run_child(argv[2], (int)strtol(argv[3], NULL, 10),
                         (uint32_t)strtoul(argv[4], NULL, 10));
    if (argc != 3) {
        fprintf(stderr, "usage: sink_sqlite_crash_test kill|cut|cut-half POWERCUT_LIBRARY\n");
        return 2;
    }
    how = argv[1];
    library = argv[2];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sink_sqlite_keeps_what_it_acknowledged_over_crashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
