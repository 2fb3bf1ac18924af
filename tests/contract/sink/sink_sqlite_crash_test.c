/* SPDX-License-Identifier: Apache-2.0
 *
 * SIGKILL in the middle of writing: everything the sink reported stored is there afterwards, once,
 * and the file opens at once. A child writes from three threads and reports every stored document
 * through a pipe; the parent kills it at a random moment and compares.
 */
#include "sl_test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/alloc.h"
#include "loop/pool.h"
#include "peer.h"
#include "store_reader.h"

#define ROUNDS  40
#define THREADS 3
#define BATCH   8
#define MAX_IDS (1 << 20)

static const sl_sink_target target = {"crash", "docs"};

typedef struct writer_arg {
    sl_sink *sink;
    int pipe_fd;
    uint32_t first; /* of this thread's numbers */
} writer_arg;

static void write_for_ever(void *arg)
{
    writer_arg *wa = arg;
    sl_oid_source oids;
    sl_oid_source_init(&oids);
    for (uint32_t next = wa->first;; next += BATCH) {
        sl_document *docs[BATCH];
        sl_sink_result res[BATCH];
        memset(res, 0, sizeof res);
        for (uint32_t i = 0; i < BATCH; i++) {
            char text[64];
            snprintf(text, sizeof text, "{\"messageId\":%u}", next + i);
            sl_message *msg = peer_text("t", text);
            bool missing;
            docs[i] = sl_document_new(msg, SL_ID_PAYLOAD_FIELD, "messageId", &oids, &missing);
            sl_message_unref(&msg);
        }
        sl_sink_write(wa->sink, &target, (const sl_document *const *)docs, BATCH, res);
        for (uint32_t i = 0; i < BATCH; i++) {
            uint32_t number = next + i;
            if (res[i].outcome == SL_SINK_STORED &&
                write(wa->pipe_fd, &number, sizeof number) != sizeof number)
                _exit(2);
            sl_document_free(&docs[i]);
        }
    }
}

static void run_child(const char *dir, int pipe_fd, uint32_t first)
{
    char *why = NULL;
    sl_sink *sink;
    sl_sink_conf cf = {.data_dir = dir};
    if (sl_sink_open(&cf, &sink, &why) != SL_OK) {
        fprintf(stderr, "%s\n", why);
        _exit(1);
    }
    sl_thread *threads[THREADS];
    writer_arg args[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        args[i] = (writer_arg){sink, pipe_fd, first + i * 100000};
        if (sl_thread_start("writer", write_for_ever, &args[i], &threads[i]) != SL_OK)
            _exit(1);
    }
    for (;;)
        pause();
}

/* Kills the child after at least one acknowledged document and a random time; notes what it
 * acknowledged. */
static void kill_in_the_middle(pid_t child, int pipe_fd, bool *acked)
{
    uint32_t number;
    assert_int_equal(read(pipe_fd, &number, sizeof number), sizeof number);
    acked[number] = true;
    struct timespec span = {0, (long)(random() % 60) * 1000000};
    nanosleep(&span, NULL); // the moment of the crash is meant to be any
    assert_int_equal(kill(child, SIGKILL), 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    while (read(pipe_fd, &number, sizeof number) == sizeof number)
        acked[number] = true;
}

static void test_sink_sqlite_keeps_what_it_acknowledged_over_kills(void **state)
{
    (void)state;
    char *dir = peer_folder_new();
    bool *acked = sl_calloc(MAX_IDS, sizeof *acked);
    unsigned seed = (unsigned)time(NULL);
    printf("seed %u\n", seed);
    srandom(seed);
    for (int round = 0; round < ROUNDS; round++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            close(ends[0]);
            run_child(dir, ends[1], (uint32_t)round * 2000);
        }
        close(ends[1]);
        kill_in_the_middle(child, ends[0], acked);
        close(ends[0]);
    }
    stored_list list = stored_read_sqlite(dir, &target);
    size_t wanted = 0, found = 0;
    for (size_t i = 0; i < MAX_IDS; i++)
        wanted += acked[i];
    bool *seen = sl_calloc(MAX_IDS, sizeof *seen);
    for (size_t i = 0; i < list.count; i++) {
        int64_t number = list.docs[i]->id.num;
        assert_in_range(number, 0, MAX_IDS - 1);
        assert_false(seen[number]);
        seen[number] = true;
        found += acked[number];
    }
    printf("%zu acknowledged, %zu stored\n", wanted, list.count);
    assert_true(wanted > ROUNDS);
    assert_int_equal(found, wanted);
    sl_free(seen);
    sl_free(acked);
    stored_free(&list);
    peer_folder_remove(&dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sink_sqlite_keeps_what_it_acknowledged_over_kills),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
