/* SPDX-License-Identifier: Apache-2.0
 *
 * db_sqlite: what only the embedded adapter promises: one commit for many requests, a file that
 * others may lock for a moment, disks that fill up, damaged files, every completed write there
 * after SIGKILL.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/alloc.h"
#include "base/logger.h"
#include "db_fixture.h"

#define INSERT "INSERT INTO pairs (k, v) VALUES ($1, $2)"
#define COUNT  "SELECT count(*) FROM pairs"
#define KILLS  20
#define MANY   2000

static int setup(void **state)
{
    db_fixture *fx = fx_new();
    fx_open(fx);
    fx_do(fx, "CREATE TABLE pairs (k TEXT NOT NULL PRIMARY KEY, v TEXT)");
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fx_free(*state);
    return 0;
}

static void path_of(const db_fixture *fx, char out[96])
{
    snprintf(out, 96, "%s/metadata.db", fx->dir);
}

static void count_ok(void *arg, const sl_db_done *done)
{
    if (done->err == SL_OK)
        fx_count(arg);
}

static void insert_many(db_fixture *fx, int first, int count)
{
    for (int i = first; i < first + count; i++) {
        char key[16];
        snprintf(key, sizeof(key), "%d", i);
        const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(key)), SL_DB_P_INT(i)};
        SL_TEST_OK(sl_db_exec(fx->db, fx->lp, &(sl_db_stmt){INSERT, row, 2}, 1, 0, count_ok, fx));
    }
}

static void test_sqlite_commits_many_requests_at_once(void **state)
{
    db_fixture *fx = *state;
    int64_t before = sl_db_stat(fx->db, SL_DB_STAT_COMMITS);
    insert_many(fx, 0, MANY);
    fx_wait(fx, MANY);
    int64_t commits = sl_db_stat(fx->db, SL_DB_STAT_COMMITS) - before;
    assert_true(commits >= MANY / 256);
    assert_true(commits < MANY / 2); // while one group is synced, the next one gathers
}

static void test_sqlite_file_is_for_its_owner_only(void **state)
{
    char path[96];
    struct stat st;
    path_of(*state, path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

static sqlite3 *lock_file(const db_fixture *fx)
{
    char path[96];
    sqlite3 *other = NULL;
    path_of(fx, path);
    assert_int_equal(sqlite3_open(path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    return other;
}

static void test_sqlite_waits_for_a_lock_of_another_process(void **state)
{
    db_fixture *fx = *state;
    sqlite3 *other = lock_file(fx);
    insert_many(fx, 0, 10);
    assert_int_equal(fx_int(fx, COUNT), 0); // readers do not wait
    assert_int_equal(fx->answers, 0);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    fx_wait(fx, 10);
    assert_int_equal(fx_int(fx, COUNT), 10);
}

static void test_sqlite_gives_up_on_a_lock_after_its_time(void **state)
{
    db_fixture *fx = *state;
    fx_close(fx);
    fx->options.wait_ms = 200;
    fx_open(fx);
    sqlite3 *other = lock_file(fx);
    SL_TEST_ERR(fx_text(fx, 0, INSERT, "k", "v", NULL)->err, SL_EAGAIN);
    assert_int_equal(sqlite3_close(other), SQLITE_OK);
    SL_TEST_OK(fx_text(fx, 0, INSERT, "k", "v", NULL)->err);
    assert_int_equal(fx_int(fx, COUNT), 1);
}

static void limit_files(rlim_t bytes)
{
    struct rlimit rl;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &rl), 0);
    rl.rlim_cur = bytes == 0 ? rl.rlim_max : bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &rl), 0);
}

/* No file may grow: the nearest to a full disk that needs no rights. */
static void test_sqlite_says_that_the_disk_refuses_and_heals(void **state)
{
    db_fixture *fx = *state;
    char big[20001];
    memset(big, 'x', sizeof(big) - 1);
    big[sizeof(big) - 1] = 0;
    SL_TEST_OK(fx_text(fx, 0, INSERT, "before", "v", NULL)->err);
    signal(SIGXFSZ, SIG_IGN);
    limit_files(4096);
    sl_err err = fx_text(fx, 0, INSERT, "refused", big, NULL)->err;
    const char *why = "";
    bool sick = !sl_db_is_healthy(fx->db, &why);
    limit_files(0);
    assert_true(err == SL_EIO || err == SL_ENOSPC);
    assert_true(sick);
    assert_non_null(strstr(why, "metadata"));
    fx_wait_health(fx, true); // by itself
    SL_TEST_OK(fx_text(fx, 0, INSERT, "after", big, NULL)->err);
    assert_int_equal(fx_int(fx, COUNT), 2);
}

static void swallow(void *arg, const char *line)
{
    if (strstr(line, "DB-DAMAGED") != NULL)
        ++*(int *)arg;
}

static void test_sqlite_puts_a_damaged_file_aside(void **state)
{
    db_fixture *fx = *state;
    char path[96], command[160];
    fx_close(fx);
    path_of(fx, path);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    uint8_t noise[512];
    for (size_t i = 0; i < sizeof(noise); i++)
        noise[i] = (uint8_t)(i * 37 + 11);
    assert_int_equal(pwrite(fd, noise, sizeof(noise), 0), sizeof(noise));
    close(fd);
    int said = 0;
    sl_logger_set_sink(swallow, &said);
    fx_open(fx);
    sl_logger_set_sink(NULL, NULL);
    assert_true(said > 0);
    assert_int_equal(fx_int(fx, "SELECT count(*) FROM admin_settings"), 0);
    snprintf(command, sizeof(command), "test -s %s.damaged-*", path);
    assert_int_equal(system(command), 0);
}

/* ---- SIGKILL */

typedef struct facts {
    _Atomic uint32_t completed; /* rows below it are stored, the child was told */
    _Atomic uint32_t asked;
} facts;

static facts *the_facts;

static void on_stored(void *arg, const sl_db_done *done)
{
    if (done->err != SL_OK)
        _exit(1);
    // in order, so the number is enough
    atomic_store(&the_facts->completed, (uint32_t)(uintptr_t)arg + 1);
}

static void run_child(const db_fixture *fx)
{
    sl_clock ck;
    sl_clock_init(&ck);
    sl_loop *lp = NULL;
    sl_db *db = NULL;
    char *why = NULL;
    if (sl_loop_new("child", &ck, &lp) != SL_OK || sl_loop_start(lp) != SL_OK ||
        sl_db_open(&sl_db_sqlite_ops, &fx->options, &db, &why) != SL_OK)
        _exit(2);
    for (;;) {
        uint32_t number = atomic_load(&the_facts->asked);
        char key[16];
        snprintf(key, sizeof(key), "%u", number);
        const sl_db_value row[] = {SL_DB_P_TEXT(sl_slice_str(key)),
                                   SL_DB_P_TEXT(sl_slice_str(key))};
        const sl_db_stmt both[] = {{INSERT, row, 2},
                                   {"UPDATE pairs SET v = 'done' WHERE k = $1", row, 1}};
        sl_err err = sl_db_exec(db, lp, both, 2, 0, on_stored, (void *)(uintptr_t)number);
        if (err == SL_OK)
            atomic_store(&the_facts->asked, number + 1);
        else if (err != SL_ELIMIT)
            _exit(3);
        else
            usleep(100);
    }
}

static void test_sqlite_keeps_every_completed_write_over_sigkill(void **state)
{
    db_fixture *fx = *state;
    fx_close(fx);
    fx->options.max_queued = 500;
    the_facts =
        mmap(NULL, sizeof(*the_facts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(the_facts != MAP_FAILED);
    for (int kill_number = 0; kill_number < KILLS; kill_number++) {
        uint32_t before = atomic_load(&the_facts->completed);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            run_child(fx);
        for (double until = fx_seconds() + 30; atomic_load(&the_facts->completed) < before + 50;) {
            assert_true(fx_seconds() < until);
            usleep(500);
        }
        usleep((useconds_t)(kill_number * 1700 % 23000)); // any moment
        assert_int_equal(kill(pid, SIGKILL), 0);
        int status;
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status)); // and not ended by itself
        uint32_t told = atomic_load(&the_facts->completed);
        fx_open(fx);
        int64_t stored = fx_int(fx, COUNT);
        assert_true(stored >= told);
        // whole requests only, without a gap: the last one stored is the last number
        assert_int_equal(fx_int(fx, "SELECT count(*) FROM pairs WHERE v <> 'done'"), 0);
        assert_int_equal(fx_int(fx, "SELECT max(CAST(k AS BIGINT)) FROM pairs"), stored - 1);
        fx_close(fx);
        atomic_store(&the_facts->completed, (uint32_t)stored);
        atomic_store(&the_facts->asked, (uint32_t)stored);
    }
    munmap(the_facts, sizeof(*the_facts));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        CASE(test_sqlite_commits_many_requests_at_once),
        CASE(test_sqlite_file_is_for_its_owner_only),
        CASE(test_sqlite_waits_for_a_lock_of_another_process),
        CASE(test_sqlite_gives_up_on_a_lock_after_its_time),
        CASE(test_sqlite_says_that_the_disk_refuses_and_heals),
        CASE(test_sqlite_puts_a_damaged_file_aside),
    };
    const struct CMUnitTest crash[] = {
        CASE(test_sqlite_keeps_every_completed_write_over_sigkill),
    };
    if (argc > 1 && strcmp(argv[1], "crash") == 0)
        return cmocka_run_group_tests(crash, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
