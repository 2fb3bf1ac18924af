/* SPDX-License-Identifier: Apache-2.0
 *
 * The dead-letter file: whole lines, private mode, bound, and what happens when it cannot be
 * written (C97).
 */
#include "sl_test.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "dead_letter.h"
#include "peer.h"

/* The linker sends the library's fsync here (--wrap). */
int __real_fsync(int fd);
int __wrap_fsync(int fd);
static int syncs;
static bool sync_fails;
int __wrap_fsync(int fd)
{
    syncs++;
    if (!sync_fails)
        return __real_fsync(fd);
    errno = EIO;
    return -1;
}

typedef struct fixture {
    char *dir, *path, *older;
    sl_oid_source oids;
} fixture;

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof *fx);
    fx->dir = peer_folder_new();
    fx->path = peer_path(fx->dir, "dead.log");
    fx->older = peer_path(fx->dir, "dead.log.1");
    sl_oid_source_init(&fx->oids);
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    peer_folder_remove(&fx->dir);
    sl_free(fx->path);
    sl_free(fx->older);
    sl_free(fx);
    return 0;
}

static sl_err append(fixture *fx, sl_dead_letter *dl, const char *payload, size_t times)
{
    sl_message *msg = peer_text("t/1", payload);
    bool missing;
    sl_document *doc = sl_document_new(msg, SL_ID_AUTO, NULL, &fx->oids, &missing);
    sl_dead_letter_entry *entries = sl_calloc(times, sizeof *entries);
    for (size_t i = 0; i < times; i++)
        entries[i] = (sl_dead_letter_entry){
            doc, {.at_ns = PEER_AT_NS, .reason = "test", .database = "d", .collection = "c"}};
    sl_err err = sl_dead_letter_append(dl, entries, times);
    sl_free(entries);
    sl_document_free(&doc);
    sl_message_unref(&msg);
    return err;
}

static void expect_whole_lines(const char *path, size_t lines)
{
    size_t len;
    char *text = peer_read_file(path, &len);
    size_t good = 0;
    for (char *at = text, *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        sl_document *doc = NULL;
        char *database = NULL, *collection = NULL;
        const char *why = "";
        if (sl_document_parse_json(sl_slice_of(at, (size_t)(end - at)), &doc, &database,
                                   &collection, &why) == SL_OK)
            good++;
        sl_document_free(&doc);
        sl_free(database);
        sl_free(collection);
    }
    sl_free(text);
    assert_int_equal(good, lines);
}

static void test_dead_letter_appends_whole_lines_in_private_mode(void **state)
{
    fixture *fx = *state;
    sl_dead_letter *dl = sl_dead_letter_new(fx->path, 1 << 20);
    SL_TEST_OK(append(fx, dl, "one", 1));
    SL_TEST_OK(append(fx, dl, "two", 3));
    struct stat st;
    assert_int_equal(stat(fx->path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(peer_count_lines(fx->path), 4);
    expect_whole_lines(fx->path, 4);
    sl_dead_letter_stats stats;
    sl_dead_letter_read_stats(dl, &stats);
    assert_int_equal(stats.written, 4);
    assert_int_equal(stats.bytes, st.st_size);
    assert_false(stats.failing);
    sl_dead_letter_free(&dl);
}

static void test_dead_letter_makes_a_relative_path_absolute(void **state)
{
    fixture *fx = *state;
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(fx->dir), 0);
    sl_dead_letter *dl = sl_dead_letter_new("./dead.log", 1 << 20);
    assert_int_equal(chdir(before), 0);
    free(before);
    assert_string_equal(sl_dead_letter_path(dl), fx->path);
    SL_TEST_OK(append(fx, dl, "x", 1));
    assert_int_equal(peer_count_lines(fx->path), 1);
    sl_dead_letter_free(&dl);
}

static void test_dead_letter_closes_a_line_cut_by_a_crash(void **state)
{
    fixture *fx = *state;
    peer_write_file(fx->path, "{\"_id\":\"cut", 11);
    sl_dead_letter *dl = sl_dead_letter_new(fx->path, 1 << 20);
    SL_TEST_OK(append(fx, dl, "whole", 1));
    sl_dead_letter_free(&dl);
    assert_int_equal(peer_count_lines(fx->path), 2);
    expect_whole_lines(fx->path, 1);
}

static void test_dead_letter_is_bounded_by_one_older_generation(void **state)
{
    fixture *fx = *state;
    sl_dead_letter *dl = sl_dead_letter_new(fx->path, 2000);
    for (int i = 0; i < 40; i++)
        SL_TEST_OK(append(fx, dl, "0123456789", 1));
    struct stat st;
    assert_int_equal(stat(fx->path, &st), 0);
    assert_in_range(st.st_size, 1, 2000);
    assert_int_equal(stat(fx->older, &st), 0);
    assert_in_range(st.st_size, 1, 2000);
    assert_int_equal(st.st_mode & 0777, 0600);
    expect_whole_lines(fx->path, peer_count_lines(fx->path));
    expect_whole_lines(fx->older, peer_count_lines(fx->older));
    sl_dead_letter_stats stats;
    sl_dead_letter_read_stats(dl, &stats);
    assert_int_equal(stats.written, 40);
    assert_in_range(stats.rotations, 2, 40);
    sl_dead_letter_free(&dl);
}

static void test_dead_letter_takes_a_line_larger_than_its_bound_alone(void **state)
{
    fixture *fx = *state;
    sl_dead_letter *dl = sl_dead_letter_new(fx->path, 100);
    SL_TEST_OK(append(fx, dl, "first, longer than a hundred bytes as a line", 1));
    SL_TEST_OK(append(fx, dl, "second, longer than a hundred bytes as a line", 1));
    assert_int_equal(peer_count_lines(fx->path), 1);
    assert_int_equal(peer_count_lines(fx->older), 1);
    sl_dead_letter_free(&dl);
}

static void test_dead_letter_in_a_missing_folder_fails_and_heals(void **state)
{
    fixture *fx = *state;
    char *sub = peer_path(fx->dir, "missing");
    char *path = peer_path(sub, "dead.log");
    sl_dead_letter *dl = sl_dead_letter_new(path, 1 << 20);
    sl_dead_letter_stats stats;
    sl_dead_letter_read_stats(dl, &stats);
    assert_true(stats.failing);
    SL_TEST_ERR(append(fx, dl, "x", 1), SL_ENOTFOUND);
    SL_TEST_ERR(append(fx, dl, "x", 1), SL_ENOTFOUND);
    assert_int_equal(mkdir(sub, 0700), 0);
    SL_TEST_OK(append(fx, dl, "x", 1));
    sl_dead_letter_read_stats(dl, &stats);
    assert_false(stats.failing);
    assert_int_equal(stats.write_errors, 2);
    assert_int_equal(stats.written, 1);
    sl_dead_letter_free(&dl);
    sl_free(path);
    sl_free(sub);
}

static void test_dead_letter_is_no_folder_and_no_device(void **state)
{
    fixture *fx = *state;
    sl_dead_letter *dl = sl_dead_letter_new(fx->dir, 1 << 20);
    assert_int_not_equal(append(fx, dl, "x", 1), SL_OK);
    sl_dead_letter_free(&dl);
    dl = sl_dead_letter_new("/dev/null", 1 << 20);
    SL_TEST_ERR(append(fx, dl, "x", 1), SL_EIO);
    sl_dead_letter_free(&dl);
}

/* The file may not grow past a limit in the middle of a line, like a full disk. */
static void test_dead_letter_takes_back_what_a_full_disk_cut(void **state)
{
    fixture *fx = *state;
    sl_dead_letter *dl = sl_dead_letter_new(fx->path, 1 << 20);
    SL_TEST_OK(append(fx, dl, "one", 1));
    struct stat before, after;
    assert_int_equal(stat(fx->path, &before), 0);
    struct rlimit old;
    getrlimit(RLIMIT_FSIZE, &old);
    struct rlimit limit = {(rlim_t)before.st_size + 50, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    assert_int_not_equal(append(fx, dl, "two", 1), SL_OK);
    assert_int_equal(stat(fx->path, &after), 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(after.st_size, before.st_size);
    SL_TEST_OK(append(fx, dl, "three", 1));
    assert_int_equal(peer_count_lines(fx->path), 2);
    expect_whole_lines(fx->path, 2);
    sl_dead_letter_free(&dl);
}

static void test_dead_letter_is_on_the_disk_before_append_returns(void **state)
{
    fixture *fx = *state;
    sl_dead_letter *dl = sl_dead_letter_new(fx->path, 1 << 20);
    SL_TEST_OK(append(fx, dl, "first", 1));
    syncs = 0;
    SL_TEST_OK(append(fx, dl, "all at once", 10));
    assert_int_equal(syncs, 1);
    sync_fails = true;
    sl_err err = append(fx, dl, "not safe", 1);
    sync_fails = false;
    SL_TEST_ERR(err, SL_EIO);
    assert_int_equal(peer_count_lines(fx->path), 11);
    SL_TEST_OK(append(fx, dl, "safe", 1));
    expect_whole_lines(fx->path, 12);
    sl_dead_letter_free(&dl);
}

static void test_dead_letter_follows_its_name_when_the_file_is_replaced(void **state)
{
    fixture *fx = *state;
    char *away = peer_path(fx->dir, "moved");
    sl_dead_letter *dl = sl_dead_letter_new(fx->path, 1 << 20);
    SL_TEST_OK(append(fx, dl, "one", 1));
    assert_int_equal(rename(fx->path, away), 0);
    peer_write_file(fx->path, "", 0);
    SL_TEST_OK(append(fx, dl, "two", 1));
    assert_int_equal(peer_count_lines(away), 1);
    assert_int_equal(peer_count_lines(fx->path), 1);
    sl_dead_letter_free(&dl);
    sl_free(away);
}

static void test_dead_letter_follows_its_name_when_the_file_is_moved(void **state)
{
    fixture *fx = *state;
    char *away = peer_path(fx->dir, "moved");
    sl_dead_letter *dl = sl_dead_letter_new(fx->path, 1 << 20);
    SL_TEST_OK(append(fx, dl, "one", 1));
    assert_int_equal(rename(fx->path, away), 0);
    SL_TEST_OK(append(fx, dl, "two", 1));
    assert_int_equal(peer_count_lines(away), 1);
    assert_int_equal(peer_count_lines(fx->path), 1);
    sl_dead_letter_free(&dl);
    sl_free(away);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_dead_letter_is_on_the_disk_before_append_returns,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_follows_its_name_when_the_file_is_replaced,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_appends_whole_lines_in_private_mode, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_makes_a_relative_path_absolute, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_closes_a_line_cut_by_a_crash, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_is_bounded_by_one_older_generation, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_takes_a_line_larger_than_its_bound_alone,
                                        setup, teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_in_a_missing_folder_fails_and_heals, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_is_no_folder_and_no_device, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_takes_back_what_a_full_disk_cut, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_dead_letter_follows_its_name_when_the_file_is_moved,
                                        setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
