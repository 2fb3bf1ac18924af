/* SPDX-License-Identifier: Apache-2.0
 *
 * What only the embedded sink promises: its file is readable while it writes, troubles with the
 * file are named and heal without a restart, foreign files are left alone.
 */
#include "sl_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#include "base/alloc.h"
#include "peer.h"
#include "store_reader.h"

static const sl_sink_target target = {"iot", "readings"};

typedef struct fixture {
    char *dir, *file;
    sl_sink *sink;
    sl_oid_source oids;
} fixture;

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof *fx);
    fx->dir = peer_folder_new();
    fx->file = peer_path(fx->dir, "gateway-store.db");
    sl_oid_source_init(&fx->oids);
    char *why = NULL;
    sl_sink_conf cf = {.data_dir = fx->dir};
    SL_TEST_OK(sl_sink_open(&cf, &fx->sink, &why));
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    sl_sink_close(&fx->sink);
    peer_folder_remove(&fx->dir);
    sl_free(fx->file);
    sl_free(fx);
    return 0;
}

static sl_sink_result put_bytes(fixture *fx, const char *payload, size_t len)
{
    sl_message *msg =
        peer_message_new(&(peer_message){.topic = "t", .payload = payload, .len = len, .qos = 1});
    bool missing;
    sl_document *doc = sl_document_new(msg, SL_ID_AUTO, NULL, &fx->oids, &missing);
    sl_sink_result res = {0};
    const sl_document *docs[1] = {doc};
    sl_sink_write(fx->sink, &target, docs, 1, &res);
    sl_document_free(&doc);
    sl_message_unref(&msg);
    return res;
}

static sl_sink_outcome put(fixture *fx, const char *payload)
{
    return put_bytes(fx, payload, strlen(payload)).outcome;
}

static size_t count(fixture *fx)
{
    stored_list list = stored_read_sqlite(fx->dir, &target);
    size_t have = list.count;
    stored_free(&list);
    return have;
}

static char *query_text(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *st;
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &st, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(st), SQLITE_ROW);
    char *text = sl_strdup((const char *)sqlite3_column_text(st, 0));
    sqlite3_finalize(st);
    return text;
}

static void test_sink_sqlite_is_read_by_others_while_it_writes(void **state)
{
    fixture *fx = *state;
    assert_int_equal(put(fx, "one"), SL_SINK_STORED);
    sqlite3 *db;
    assert_int_equal(sqlite3_open_v2(fx->file, &db, SQLITE_OPEN_READONLY, NULL), SQLITE_OK);
    char *mode = query_text(db, "PRAGMA journal_mode");
    assert_string_equal(mode, "wal");
    sl_free(mode);
    // a reader in the middle of its transaction neither waits nor is waited for
    assert_int_equal(sqlite3_exec(db, "BEGIN; SELECT count(*) FROM documents", NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(put(fx, "two"), SL_SINK_STORED);
    char *seen = query_text(db, "SELECT count(*) FROM documents");
    assert_string_equal(seen, "1");
    sl_free(seen);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    seen = query_text(db, "SELECT group_concat(json_extract(doc, '$.payload')) FROM documents"
                          " WHERE database='iot' AND collection='readings' AND topic='t'");
    assert_string_equal(seen, "one,two");
    sl_free(seen);
    sqlite3_close(db);
}

static void test_sink_sqlite_is_away_while_another_process_locks_the_file(void **state)
{
    fixture *fx = *state;
    sl_sink_close(&fx->sink);
    char *why;
    sl_sink_conf cf = {.data_dir = fx->dir, .budget_ms = 40}; // waits a part of it for the lock
    SL_TEST_OK(sl_sink_open(&cf, &fx->sink, &why));
    sqlite3 *db;
    assert_int_equal(sqlite3_open(fx->file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    sl_sink_result res = put_bytes(fx, "x", 1);
    assert_int_equal(res.outcome, SL_SINK_AWAY);
    assert_non_null(strstr(res.reason, fx->file));
    sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
    sqlite3_close(db);
    assert_int_equal(put(fx, "x"), SL_SINK_STORED);
    assert_int_equal(count(fx), 1);
}

/* The file may not grow, like on a full disk. */
static void test_sink_sqlite_full_disk_stores_nothing_and_heals(void **state)
{
    fixture *fx = *state;
    assert_int_equal(put(fx, "before"), SL_SINK_STORED);
    char *large = sl_alloc(1 << 20);
    memset(large, 'x', 1 << 20);
    struct rlimit old;
    getrlimit(RLIMIT_FSIZE, &old);
    struct rlimit limit = {200 << 10, old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    sl_sink_result res = put_bytes(fx, large, 1 << 20);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(res.outcome, SL_SINK_AWAY);
    assert_non_null(strstr(res.reason, fx->file));
    assert_int_equal(count(fx), 1);
    assert_int_equal(put_bytes(fx, large, 1 << 20).outcome, SL_SINK_STORED);
    assert_int_equal(count(fx), 2);
    sl_free(large);
}

static void test_sink_sqlite_uses_the_file_that_has_the_name(void **state)
{
    fixture *fx = *state;
    assert_int_equal(put(fx, "old"), SL_SINK_STORED);
    char *away = peer_path(fx->dir, "moved.db");
    assert_int_equal(rename(fx->file, away), 0);
    assert_int_equal(put(fx, "new"), SL_SINK_STORED);
    assert_int_equal(count(fx), 1);
    sl_free(away);
}

static void overwrite(const char *path, const char *bytes, size_t from, size_t len)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes + from, len - from, (off_t)from), len - from);
    close(fd);
}

static void test_sink_sqlite_names_a_file_damaged_under_it_and_heals(void **state)
{
    fixture *fx = *state;
    char *copy = peer_path(fx->dir, "copy.db");
    assert_int_equal(put(fx, "x"), SL_SINK_STORED);
    sl_sink_close(&fx->sink); // checkpoints
    char *why;
    size_t len;
    char *good = peer_read_file(fx->file, &len);
    char *garbage = sl_alloc(len);
    memset(garbage, 0xa5, len);
    sl_sink_conf cf = {.data_dir = fx->dir};
    for (int in_place = 0; in_place < 2; in_place++) {
        SL_TEST_OK(sl_sink_open(&cf, &fx->sink, &why));
        overwrite(fx->file, garbage, 4096, len); // all but the header and the schema's page
        sl_sink_result res = put_bytes(fx, "y", 1);
        assert_int_equal(res.outcome, SL_SINK_CONFIG);
        assert_non_null(strstr(res.reason, fx->file));
        assert_non_null(strstr(res.reason, "damaged"));
        // the operator puts a good file back
        if (in_place) {
            overwrite(fx->file, good, 0, len);
        } else {
            peer_write_file(copy, good, len);
            assert_int_equal(rename(copy, fx->file), 0);
        }
        assert_int_equal(put(fx, "y"), SL_SINK_STORED);
        assert_int_equal(count(fx), 2);
        sl_sink_close(&fx->sink);
        peer_write_file(fx->file, good, len);
    }
    sl_free(garbage);
    sl_free(good);
    sl_free(copy);
}

static void test_sink_sqlite_leaves_a_foreign_database_alone(void **state)
{
    fixture *fx = *state;
    sl_sink_close(&fx->sink);
    assert_int_equal(remove(fx->file), 0);
    sqlite3 *db;
    assert_int_equal(sqlite3_open(fx->file, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE mine(x)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    size_t before, after;
    char *was = peer_read_file(fx->file, &before);
    char *why = NULL;
    sl_sink_conf cf = {.data_dir = fx->dir};
    SL_TEST_ERR(sl_sink_open(&cf, &fx->sink, &why), SL_ECORRUPT);
    assert_non_null(strstr(why, fx->file));
    sl_free(why);
    char *is = peer_read_file(fx->file, &after);
    assert_int_equal(before, after);
    assert_memory_equal(was, is, before);
    sl_free(was);
    sl_free(is);
}

static void test_sink_sqlite_opens_what_a_crash_left(void **state)
{
    fixture *fx = *state;
    char *wal = peer_path(fx->dir, "gateway-store.db-wal");
    assert_int_equal(put(fx, "kept"), SL_SINK_STORED);
    size_t len, wal_len; // as the files are now, without the close that would tidy them
    char *main_file = peer_read_file(fx->file, &len), *wal_file = peer_read_file(wal, &wal_len);
    assert_true(wal_len > 0);
    sl_sink_close(&fx->sink);
    peer_write_file(fx->file, main_file, len);
    peer_write_file(wal, wal_file, wal_len - 10); // the last frame is torn
    char *why;
    sl_sink_conf cf = {.data_dir = fx->dir};
    SL_TEST_OK(sl_sink_open(&cf, &fx->sink, &why));
    assert_int_equal(put(fx, "new"), SL_SINK_STORED);
    assert_int_equal(count(fx), 1); // the torn commit never was acknowledged as a whole
    sl_free(main_file);
    sl_free(wal_file);
    sl_free(wal);
}

#define SQLITE_TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SQLITE_TEST(test_sink_sqlite_is_read_by_others_while_it_writes),
        SQLITE_TEST(test_sink_sqlite_is_away_while_another_process_locks_the_file),
        SQLITE_TEST(test_sink_sqlite_full_disk_stores_nothing_and_heals),
        SQLITE_TEST(test_sink_sqlite_uses_the_file_that_has_the_name),
        SQLITE_TEST(test_sink_sqlite_names_a_file_damaged_under_it_and_heals),
        SQLITE_TEST(test_sink_sqlite_leaves_a_foreign_database_alone),
        SQLITE_TEST(test_sink_sqlite_opens_what_a_crash_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
