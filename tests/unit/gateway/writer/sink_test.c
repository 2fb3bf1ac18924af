/* SPDX-License-Identifier: Apache-2.0
 *
 * The sink's front: names of targets, choice of the adapter, errors at opening that name the
 * setting or the file.
 */
#include "sl_test.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/alloc.h"
#include "peer.h"
#include "sink.h"

static void test_sink_target_names_are_what_every_adapter_can_store(void **state)
{
    (void)state;
    static const struct {
        const char *database, *collection;
        bool good;
    } rows[] = {
        {"iot", "sensor-events", true},
        {"iot", "a.b", true},
        {"", "c", false},
        {NULL, "c", false},
        {"d", NULL, false},
        {"d", "", false},
        {"a b", "c", false},
        {"a.b", "c", false},
        {"a$", "c", false},
        {"a/b", "c", false},
        {"d", "c$", false},
        {"d", "system.users", false},
        {"d", ".c", false},
        {"d\xff", "c", false},
        {"d", "\xc3\xa9t\xc3\xa9", true},
        {"d", "\xe9", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sl_sink_target target = {rows[i].database, rows[i].collection};
        const char *why = NULL;
        SL_TEST_ERR(sl_sink_target_check(&target, &why), rows[i].good ? SL_OK : SL_EINVAL);
        assert_true(rows[i].good == (why == NULL));
    }
}

static void expect_open_error(const sl_sink_conf *cf, sl_err want, const char *part)
{
    sl_sink *sink = NULL;
    char *why = NULL;
    SL_TEST_ERR(sl_sink_open(cf, &sink, &why), want);
    assert_non_null(why);
    if (strstr(why, part) == NULL)
        fail_msg("\"%s\" does not name %s", why, part);
    sl_free(why);
}

static void test_sink_sqlite_names_the_file_it_cannot_open(void **state)
{
    (void)state;
    char *dir = peer_folder_new();
    char *file = peer_path(dir, "gateway-store.db");
    char *under_file = peer_path(file, "sub");

    char garbage[8192];
    memset(garbage, 'x', sizeof garbage);
    peer_write_file(file, garbage, sizeof garbage);
    expect_open_error(&(sl_sink_conf){.data_dir = dir}, SL_ECORRUPT, file);
    expect_open_error(&(sl_sink_conf){.data_dir = under_file}, SL_EIO, under_file);

    assert_int_equal(remove(file), 0);
    assert_int_equal(mkdir(file, 0700), 0);
    expect_open_error(&(sl_sink_conf){.data_dir = dir}, SL_EIO, file);

    sl_free(under_file);
    sl_free(file);
    peer_folder_remove(&dir);
}

#ifdef SL_WITH_MONGO
static void test_sink_mongo_names_the_setting_that_is_wrong(void **state)
{
    (void)state;
    const char *key = "mclient/connection-string";
    expect_open_error(&(sl_sink_conf){.connection_string = "nonsense"}, SL_EINVAL, key);
    expect_open_error(&(sl_sink_conf){.connection_string = "mongodb://127.0.0.1/?w=0"}, SL_EINVAL,
                      key);
    expect_open_error(&(sl_sink_conf){.connection_string = "mongodb://127.0.0.1:99999"}, SL_EINVAL,
                      key);
}

static void test_sink_mongo_opens_without_a_server_and_says_away(void **state)
{
    (void)state;
    sl_sink_conf cf = {.connection_string = "mongodb://127.0.0.1:1/", .budget_ms = 3500};
    sl_sink *sink = NULL;
    char *why = NULL;
    SL_TEST_OK(sl_sink_open(&cf, &sink, &why));
    assert_string_equal(sl_sink_name(sink), "mongodb");
    sl_sink_result res;
    sl_sink_probe(sink, &res);
    assert_int_equal(res.outcome, SL_SINK_AWAY);
    assert_string_not_equal(res.reason, "");
    sl_sink_close(&sink);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sink_target_names_are_what_every_adapter_can_store),
        cmocka_unit_test(test_sink_sqlite_names_the_file_it_cannot_open),
#ifdef SL_WITH_MONGO
        cmocka_unit_test(test_sink_mongo_names_the_setting_that_is_wrong),
        cmocka_unit_test(test_sink_mongo_opens_without_a_server_and_says_away),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
