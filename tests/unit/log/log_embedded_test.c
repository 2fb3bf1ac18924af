/* SPDX-License-Identifier: Apache-2.0
 *
 * log_embedded_test: what is the embedded adapter's own: the folder's lock, the store's format,
 * damage, low space, a full disk, recovery of offsets, its counters.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "log/bytes.h"
#include "log/elog_fn.h"
#include "log_fixture.h"
#include "sl_test.h"

static int setup(void **state)
{
    log_fx *fx = sl_calloc(1, sizeof *fx);
    log_fx_init(fx, &sl_log_embedded_ops, NULL);
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    log_fx *fx = *state;
    log_fx_fini(fx);
    sl_free(fx);
    return 0;
}

/* Opens a second log in the folder; gives the error and its words. */
static sl_err try_open(const log_fx *fx, char **why)
{
    sl_log *second = NULL;
    *why = NULL;
    sl_err err = sl_log_open(fx->ops, &fx->options, &second, why);
    sl_log_close(&second);
    return err;
}

static void assert_says(const char *text, const char *part)
{
    assert_non_null(text);
    if (strstr(text, part) == NULL)
        fail_msg("'%s' does not say '%s'", text, part);
}

static void test_embedded_second_process_is_kept_out(void **state)
{
    log_fx *fx = *state;
    char *why = NULL;
    char pid[32];
    snprintf(pid, sizeof pid, "process %ld", (long)getpid());
    SL_TEST_ERR(try_open(fx, &why), SL_ELOCKED);
    assert_says(why, fx->dir);
    assert_says(why, pid);
    sl_free(why);
}

static void test_embedded_folder_that_cannot_be_made_is_named(void **state)
{
    log_fx *fx = *state;
    char file[160], dir[192];
    snprintf(file, sizeof file, "%s/plain-file", fx->dir);
    snprintf(dir, sizeof dir, "%s/sub", file);
    int fd = open(file, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    sl_log_options options = fx->options;
    options.dir = dir;
    sl_log *log = NULL;
    char *why = NULL;
    assert_int_not_equal(sl_log_open(fx->ops, &options, &log, &why), SL_OK);
    assert_says(why, file);
    sl_free(why);
    options.dir = "";
    SL_TEST_ERR(sl_log_open(fx->ops, &options, &log, &why), SL_EINVAL);
    sl_free(why);
}

static void put_raw(log_fx *fx, int cf, const void *key, size_t key_len, const void *value,
                    size_t len)
{
    elog *el = elog_of(fx->log);
    char *message = NULL;
    rocksdb_put_cf(el->db, el->wo, el->cf[cf], key, key_len, value, len, &message);
    assert_null(message);
}

static void test_embedded_newer_format_is_refused(void **state)
{
    log_fx *fx = *state;
    uint8_t version[4];
    sl_put_u32(version, 2);
    put_raw(fx, ELOG_CF_DEFAULT, "format", 6, version, sizeof version);
    log_fx_close(fx);
    char *why = NULL;
    SL_TEST_ERR(try_open(fx, &why), SL_EUNSUPPORTED);
    assert_says(why, fx->dir);
    assert_says(why, "format 2");
    sl_free(why);
    // The test's own end opens it again: put the folder right.
    log_fx_remove_dir(fx->dir);
    log_fx_open(fx);
}

static void write_over(const char *path, off_t offset, const char *bytes, size_t len)
{
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, len, offset), len);
    close(fd);
}

static void test_embedded_damaged_store_is_named(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    log_fx_append(fx, topic, 0, "k", "v", 0, 1);
    log_fx_wait(fx, 1);
    log_fx_close(fx);
    char path[160];
    snprintf(path, sizeof path, "%s/CURRENT", fx->dir);
    write_over(path, 0, "MANIFEST-999999\n", 16);
    char *why = NULL;
    SL_TEST_ERR(try_open(fx, &why), SL_ECORRUPT);
    assert_says(why, fx->dir);
    assert_says(why, "damaged");
    assert_says(why, "backup");
    sl_free(why);
    log_fx_remove_dir(fx->dir);
    log_fx_open(fx);
}

static void test_embedded_damaged_batch_is_passed_over(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    for (uint64_t i = 0; i < 3; i++) {
        log_fx_append(fx, topic, 0, "k", i == 1 ? "damaged" : "whole", 0, i);
        log_fx_wait(fx, i + 1); // a batch each
    }
    uint8_t key[ELOG_KEY_BYTES];
    elog_key(key, &((elog_topic *)topic)->parts[0], 1);
    put_raw(fx, ELOG_CF_SMALL, key, sizeof key, "not a batch at all, but long enough for one", 43);
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_record records[2];
    log_fx_read(co, records, 2);
    assert_int_equal(records[0].offset, 0);
    assert_int_equal(records[1].offset, 2);
    assert_string_equal(records[1].value, "whole");
    assert_int_equal(atomic_load(&elog_of(fx->log)->corrupt_batches), 1);
    sl_log_consumer_close(&co);
}

/* Damages a block of a table file, so that RocksDB itself cannot read it. */
static bool damage_table(const char *dir, const char *pattern)
{
    char command[256];
    snprintf(command, sizeof command, "ls -S %s/*.sst | head -1", dir);
    FILE *list = popen(command, "r");
    char path[256] = "";
    assert_non_null(list);
    if (fgets(path, sizeof path, list) == NULL)
        path[0] = '\0';
    pclose(list);
    path[strcspn(path, "\n")] = '\0';
    FILE *file = fopen(path, "r+");
    if (file == NULL)
        return false;
    static char bytes[4 << 20];
    size_t len = fread(bytes, 1, sizeof bytes, file);
    char *at = memmem(bytes, len, pattern, strlen(pattern));
    if (at != NULL) {
        fseek(file, at - bytes, SEEK_SET);
        fputc('#', file);
    }
    fclose(file);
    return at != NULL;
}

static void test_embedded_unreadable_block_loses_only_itself(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    char *text = sl_calloc(1, 10001);
    for (uint64_t i = 0; i < 100; i++) {
        memset(text, 'x', 10000);
        text[snprintf(text, 32, "record %03u begins", (unsigned)i)] = ' ';
        log_fx_append(fx, topic, 0, "k", text, 0, i);
        log_fx_wait(fx, i + 1);
    }
    sl_free(text);
    log_fx_close(fx);
    assert_true(damage_table(fx->dir, "record 050 begins"));
    log_fx_open(fx);
    topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    log_fx_append(fx, topic, 0, "k", "end", 0, 1000);
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    bool seen[101] = {false};
    while (!seen[100]) {
        sl_log_batch batch;
        size_t count = 0, pos = 0;
        SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 20000, &count));
        assert_int_equal(count, 1);
        sl_log_record rec;
        while (sl_log_batch_next(&batch, &pos, &rec))
            seen[rec.offset] = true;
        sl_log_batch_release(&batch);
    }
    unsigned lost = 0;
    for (unsigned i = 0; i < 100; i++)
        lost += !seen[i];
    assert_false(seen[50]);
    assert_true(lost <= 3); // what shares its block of 16 kB
    assert_true(atomic_load(&elog_of(fx->log)->corrupt_batches) >= 1);
    sl_log_consumer_close(&co);
}

static void test_embedded_low_space_refuses_loudly_and_heals(void **state)
{
    log_fx *fx = *state;
    elog *el = elog_of(fx->log);
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    log_fx_append(fx, topic, 0, "k", "before", 0, 1);
    log_fx_wait(fx, 1);
    atomic_store(&el->low_space_bytes, UINT64_MAX / 2);
    elog_space_check(el);
    const char *why = NULL;
    assert_false(sl_log_is_healthy(fx->log, &why));
    assert_says(why, "full");
    const sl_log_record_in in = {.value = {sl_slice_str("v")}};
    SL_TEST_ERR(sl_log_append(fx->pr, topic, 0, &in, 2), SL_ENOSPC);
    // Reading, committing and what gives space back go on.
    sl_log_consumer *co = log_fx_consumer(fx, "g", SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_record record;
    log_fx_read(co, &record, 1);
    SL_TEST_OK(sl_log_consumer_commit(co, topic, 0, 1));
    SL_TEST_OK(sl_log_qos2_release(fx->pr, sl_slice_str("c"), 1, 3));
    log_fx_wait(fx, 2);
    atomic_store(&el->low_space_bytes, 1);
    elog_space_check(el);
    assert_true(sl_log_is_healthy(fx->log, &why));
    SL_TEST_OK(sl_log_append(fx->pr, topic, 0, &in, 4));
    log_fx_wait(fx, 3);
    sl_log_consumer_close(&co);
}

static void test_embedded_open_below_the_mark_starts_refusing(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    (void)topic;
    log_fx_close(fx);
    fx->options.low_space_bytes = UINT64_MAX / 2;
    log_fx_open(fx);
    topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    const sl_log_record_in in = {.value = {sl_slice_str("v")}};
    SL_TEST_ERR(sl_log_append(fx->pr, topic, 0, &in, 2), SL_ENOSPC);
}

/* ---- a disk that is really full ---- */

/* RocksDB goes on by itself when a memtable of each kind has room again (64 MB). */
#define DISK_BYTES (160u << 20)

static bool mount_small_disk(const char *dir)
{
    char options[32];
    snprintf(options, sizeof options, "size=%u", DISK_BYTES);
    return geteuid() == 0 && mount("tmpfs", dir, "tmpfs", 0, options) == 0;
}

static void fill_disk(const char *path)
{
    int fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    static char bytes[65536];
    while (write(fd, bytes, sizeof bytes) > 0)
        ;
    close(fd);
}

static void test_embedded_full_disk_fails_what_it_must_and_heals(void **state)
{
    (void)state;
    log_fx fx;
    char dir[] = "/tmp/sl-log-full-XXXXXX";
    assert_non_null(mkdtemp(dir));
    if (!mount_small_disk(dir)) {
        print_message("skipped: test_embedded_full_disk needs root and mount(2)\n");
        rmdir(dir);
        skip();
    }
    log_fx_init(&fx, &sl_log_embedded_ops, NULL);
    log_fx_close(&fx);
    log_fx_remove_dir(fx.dir);
    snprintf(fx.dir, sizeof fx.dir, "%s/log", dir);
    log_fx_open(&fx);
    sl_log_topic *topic = log_fx_topic(&fx, "t", 1, LOG_FX_PLAIN);
    char ballast[64];
    snprintf(ballast, sizeof ballast, "%s/ballast", dir);
    log_fx_append(&fx, topic, 0, "k", "before", 0, 1);
    log_fx_wait(&fx, 1);
    fill_disk(ballast);

    char *text = sl_calloc(1, 200001);
    memset(text, 'x', 200000);
    uint64_t token = 2, failed = 0;
    while (failed == 0 && token < 1000) {
        const sl_log_record_in in = {.value = {sl_slice_of(text, 200000)}};
        sl_err err = sl_log_append(fx.pr, topic, 0, &in, token);
        if (err == SL_OK) {
            log_fx_wait(&fx, fx.done_count + 1);
            failed += log_fx_done(&fx, token)->err != SL_OK;
        }
        token++;
    }
    assert_int_equal(failed, 1);
    SL_TEST_ERR(fx.dones[fx.done_count - 1].err, SL_ENOSPC);
    size_t good = fx.done_count - 1;
    const char *why = NULL;
    assert_false(sl_log_is_healthy(fx.log, &why));

    // Room again: appends are taken by and by, without a restart.
    assert_int_equal(unlink(ballast), 0);
    bool healed = false;
    for (unsigned i = 0; i < 300 && !healed; i++) {
        const sl_log_record_in in = {.value = {sl_slice_str("after")}};
        if (sl_log_append(fx.pr, topic, 0, &in, 5000 + i) == SL_OK) {
            log_fx_wait(&fx, fx.done_count + 1);
            healed = fx.dones[fx.done_count - 1].err == SL_OK;
        }
        if (!healed)
            usleep(100000);
    }
    assert_true(healed);
    sl_free(text);

    // What was acknowledged is there, before and behind the gap, also after a restart.
    for (unsigned round = 0; round < 2; round++) {
        sl_log_consumer *co = log_fx_consumer(&fx, NULL, SL_LOG_EARLIEST, false);
        SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
        log_fx_record *records = sl_calloc(good + 1, sizeof *records);
        log_fx_read(co, records, good + 1);
        assert_string_equal(records[0].value, "before");
        assert_string_equal(records[good].value, "after");
        sl_free(records);
        sl_log_consumer_close(&co);
        log_fx_close(&fx);
        log_fx_open(&fx);
        topic = log_fx_topic(&fx, "t", 1, LOG_FX_PLAIN);
    }
    log_fx_fini(&fx);
    umount2(dir, MNT_DETACH);
    rmdir(dir);
}

static bool first_value_is(log_fx *fx, sl_log_topic *topic, const char *want)
{
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    sl_log_batch batch;
    size_t count = 0, pos = 0;
    SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 20000, &count));
    assert_int_equal(count, 1);
    sl_log_record rec;
    bool same =
        sl_log_batch_next(&batch, &pos, &rec) && sl_slice_equal(rec.value, sl_slice_str(want));
    sl_log_batch_release(&batch);
    sl_log_consumer_close(&co);
    return same;
}

/* ---- a disk whose sync fails ---- */

static atomic_bool syncs_fail;

/* RocksDB finds this one before libc's. */
int fdatasync(int fd)
{
    if (atomic_load(&syncs_fail)) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(SYS_fdatasync, fd);
}

static void test_embedded_failed_sync_closes_the_log_to_appends(void **state)
{
    log_fx *fx = *state;
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    log_fx_append(fx, topic, 0, "k", "safe", 0, 1);
    log_fx_wait(fx, 1);
    SL_TEST_OK(fx->dones[0].err);
    atomic_store(&syncs_fail, true);
    log_fx_append(fx, topic, 0, "k", "unknown", 0, 2);
    log_fx_wait(fx, 2);
    SL_TEST_ERR(fx->dones[1].err, SL_EIO);
    atomic_store(&syncs_fail, false);
    // A later sync would prove nothing, so there is none: only a restart goes on.
    const sl_log_record_in in = {.value = {sl_slice_str("v")}};
    SL_TEST_ERR(sl_log_append(fx->pr, topic, 0, &in, 3), SL_EIO);
    SL_TEST_ERR(sl_log_sync(fx->log), SL_EIO);
    const char *why = NULL;
    assert_false(sl_log_is_healthy(fx->log, &why));
    assert_says(why, "restart");
    sl_log_consumer *co = log_fx_consumer(fx, NULL, SL_LOG_EARLIEST, false);
    SL_TEST_OK(sl_log_consumer_assign(co, topic, 0, 0));
    log_fx_record record;
    log_fx_read(co, &record, 1);
    assert_string_equal(record.value, "safe");
    sl_log_batch batch;
    size_t count = 0;
    SL_TEST_OK(sl_log_consumer_poll(co, &batch, 1, 0, &count));
    assert_int_equal(count, 0); // what was not made durable is not shown
    sl_log_consumer_close(&co);
    log_fx_close(fx);
    log_fx_open(fx);
    topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    log_fx_append(fx, topic, 0, "k", "again", 0, 4);
    log_fx_wait(fx, 3);
    SL_TEST_OK(fx->dones[2].err);
    assert_true(first_value_is(fx, topic, "safe"));
}

/* ---- recovery and figures ---- */

static void test_embedded_recovers_ends_of_every_kind_of_topic(void **state)
{
    log_fx *fx = *state;
    const struct {
        const char *name;
        uint16_t partitions;
        unsigned kind;
    } kinds[] = {{"hot", 16, LOG_FX_PLAIN},
                 {"small", 3, LOG_FX_VOLATILE},
                 {"app", 1, LOG_FX_MANY},
                 {"rows", 1, LOG_FX_COMPACTED}};
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < 4; i++) {
            sl_log_topic *topic =
                log_fx_topic(fx, kinds[i].name, kinds[i].partitions, kinds[i].kind);
            sl_log_partition_info info;
            SL_TEST_OK(sl_log_topic_describe(topic, kinds[i].partitions - 1, &info));
            assert_int_equal(info.written, round * 5);
            assert_int_equal(info.durable, round * 5);
            for (unsigned k = 0; k < 5; k++)
                log_fx_append(fx, topic, kinds[i].partitions - 1, "k", "v", 0, k);
        }
        log_fx_close(fx);
        log_fx_open(fx);
    }
}

static void test_embedded_without_fsync_written_is_durable(void **state)
{
    log_fx *fx = *state;
    log_fx_close(fx);
    fx->options.fsync = false;
    log_fx_open(fx);
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    for (unsigned i = 0; i < 100; i++)
        log_fx_append(fx, topic, 0, "k", "v", 0, i);
    log_fx_wait(fx, 100);
    sl_log_partition_info info;
    SL_TEST_OK(sl_log_topic_describe(topic, 0, &info));
    assert_int_equal(info.written, 100);
    assert_int_equal(info.durable, 100);
}

static const sl_stat_row stat_rows[] = {
#define TEST_ROW(name, kind, metric, help) {metric, NULL, SL_STAT_##kind, help},
    SL_LOG_STAT_MAP(TEST_ROW)
#undef TEST_ROW
};

static void test_embedded_counts_what_it_does(void **state)
{
    log_fx *fx = *state;
    log_fx_close(fx);
    sl_stats *stats = sl_stats_new(stat_rows, SL_LOG_STAT_COUNT);
    fx->options.stats = stats;
    log_fx_open(fx);
    sl_log_topic *topic = log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    for (unsigned i = 0; i < 20; i++) {
        log_fx_append(fx, topic, 0, "key", "value", 0, i);
        log_fx_wait(fx, i + 1);
    }
    log_fx_close(fx);
    assert_int_equal(sl_stats_get(stats, SL_LOG_STAT_APPENDED), 20);
    assert_true(sl_stats_get(stats, SL_LOG_STAT_APPENDED_BYTES) >= 20 * 8);
    // One at a time: each has its commit and its sync.
    assert_true(sl_stats_get(stats, SL_LOG_STAT_COMMITS) >= 20);
    assert_true(sl_stats_get(stats, SL_LOG_STAT_FSYNCS) >= 20);
    assert_int_equal(sl_stats_get(stats, SL_LOG_STAT_FAILED), 0);
    fx->options.stats = NULL;
    sl_stats_free(&stats);
    log_fx_open(fx);
}

static void test_embedded_families_of_a_half_made_topic_go(void **state)
{
    log_fx *fx = *state;
    elog *el = elog_of(fx->log);
    rocksdb_column_family_handle_t *cf = NULL;
    log_fx_topic(fx, "whole", 12, LOG_FX_PLAIN);
    pthread_mutex_lock(&el->topics_lock);
    SL_TEST_OK(elog_store_cf(el, "log/99-half/0", &cf));
    pthread_mutex_unlock(&el->topics_lock);
    log_fx_close(fx);
    log_fx_open(fx);
    log_fx_close(fx);
    size_t count = 0;
    char *message = NULL;
    rocksdb_options_t *options = rocksdb_options_create();
    char **names = rocksdb_list_column_families(options, fx->dir, &count, &message);
    assert_null(message);
    unsigned whole = 0;
    for (size_t i = 0; i < count; i++) {
        assert_null(strstr(names[i], "half"));
        whole += strstr(names[i], "whole") != NULL;
    }
    assert_int_equal(whole, 12);
    rocksdb_list_column_families_destroy(names, count);
    rocksdb_options_destroy(options);
    log_fx_open(fx);
}

static void test_embedded_topic_kinds_cannot_change(void **state)
{
    log_fx *fx = *state;
    log_fx_topic(fx, "t", 1, LOG_FX_PLAIN);
    sl_log_topic *topic = NULL;
    const sl_log_topic_spec spec = {.name = "t", .partitions = 1, .compacted = true};
    SL_TEST_ERR(sl_log_topic_open(fx->log, &spec, &topic), SL_EUNSUPPORTED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_embedded_second_process_is_kept_out, setup, teardown),
        cmocka_unit_test_setup_teardown(test_embedded_folder_that_cannot_be_made_is_named, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_embedded_newer_format_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(test_embedded_damaged_store_is_named, setup, teardown),
        cmocka_unit_test_setup_teardown(test_embedded_damaged_batch_is_passed_over, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_embedded_unreadable_block_loses_only_itself, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_embedded_low_space_refuses_loudly_and_heals, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_embedded_open_below_the_mark_starts_refusing, setup,
                                        teardown),
        cmocka_unit_test(test_embedded_full_disk_fails_what_it_must_and_heals),
        cmocka_unit_test_setup_teardown(test_embedded_failed_sync_closes_the_log_to_appends, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_embedded_recovers_ends_of_every_kind_of_topic, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_embedded_without_fsync_written_is_durable, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_embedded_counts_what_it_does, setup, teardown),
        cmocka_unit_test_setup_teardown(test_embedded_families_of_a_half_made_topic_go, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(test_embedded_topic_kinds_cannot_change, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
