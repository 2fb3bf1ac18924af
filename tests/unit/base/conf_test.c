/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/conf: precedence, types, and messages that say where and what.
 */
#include "sl_test.h"

#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "conf_rows.h"

static void load(sl_conf *cf, const char *yaml)
{
    char *why = NULL;
    if (sl_conf_load_text(cf, "b.yml", sl_slice_str(yaml), &why) != SL_OK)
        fail_msg("%s", why);
}

static void refuse(const char *yaml, const char *want)
{
    char *why = NULL;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    SL_TEST_ERR(sl_conf_load_text(cf, "b.yml", sl_slice_str(yaml), &why), SL_EINVAL);
    assert_string_equal(why, want);
    sl_free(why);
    sl_conf_free(&cf);
    assert_null(cf);
}

static int clear_environment(void **state)
{
    (void)state;
    for (size_t i = 0; i < TEST_ROWS; i++)
        if (test_rows[i].env != NULL)
            unsetenv(test_rows[i].env);
    return 0;
}

static void test_conf_starts_with_defaults(void **state)
{
    (void)state;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    assert_string_equal(sl_conf_str(cf, "name"), test_rows[0].def);
    assert_true(sl_conf_bool(cf, "listener.tcp.enabled"));
    assert_int_equal(sl_conf_int(cf, "listener.tcp.bind_port"), 1883);
    assert_string_equal(sl_conf_str(cf, "storage.log"), "embedded");
    assert_int_equal(sl_conf_int(cf, "storage.retention"), -5);
    sl_conf_free(&cf);
    sl_conf_free(&cf);
}

static void test_conf_file_beats_default_and_environment_beats_file(void **state)
{
    (void)state;
    char *why = NULL;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    load(cf, "listener:\n  tcp:\n    enabled: no\n    bind_port: 2000\n  ws: {bind_port: 9}\n"
             "storage:\n  log: kafka\n  password:\n");
    assert_false(sl_conf_bool(cf, "listener.tcp.enabled"));
    assert_int_equal(sl_conf_int(cf, "listener.tcp.bind_port"), 2000);
    assert_int_equal(sl_conf_int(cf, "listener.ws.bind_port"), 9);
    assert_string_equal(sl_conf_str(cf, "storage.log"), "kafka");
    setenv("SL_TEST_TCP_PORT", "3000", 1);
    setenv("SL_TEST_LOG", "", 1); // set but empty is as if not set
    SL_TEST_OK(sl_conf_load_env(cf, &why));
    assert_int_equal(sl_conf_int(cf, "listener.tcp.bind_port"), 3000);
    assert_string_equal(sl_conf_str(cf, "storage.log"), "kafka");
    SL_TEST_OK(sl_conf_set(cf, "listener.tcp.bind_port", "4000", &why));
    assert_int_equal(sl_conf_int(cf, "listener.tcp.bind_port"), 4000);
    sl_conf_free(&cf);
}

static void test_conf_takes_dotted_keys_and_empty_sections(void **state)
{
    (void)state;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    load(cf, "listener.tcp.bind_port: 5\nlistener:\nstorage: {}\nname: 007\n");
    assert_int_equal(sl_conf_int(cf, "listener.tcp.bind_port"), 5);
    assert_string_equal(sl_conf_str(cf, "name"), "007");
    load(cf, ""); // a second file may be empty, and a key may be set again by another one
    load(cf, "listener.tcp.bind_port: 6\nname: ''\n");
    assert_int_equal(sl_conf_int(cf, "listener.tcp.bind_port"), 6);
    assert_string_equal(sl_conf_str(cf, "name"), "");
    sl_conf_free(&cf);
}

static void test_conf_refuses_unknown_keys_with_the_nearest(void **state)
{
    (void)state;
    refuse("name: x\nlistener:\n  tcp:\n    bind_prot: 1\n",
           "b.yml:4: unknown key \"listener.tcp.bind_prot\", did you mean "
           "\"listener.tcp.bind_port\"?");
    refuse("lisener:\n  tcp: 1\n", "b.yml:1: unknown key \"lisener\", did you mean \"listener\"?");
    refuse("listener: {tpc: {bind_port: 1}}\n",
           "b.yml:1: unknown key \"listener.tpc\", did you mean \"listener.tcp\"?");
    refuse("\n\nzzzzzz: 1\n", "b.yml:3: unknown key \"zzzzzz\"");
    refuse("name.x: 1\n", "b.yml:1: unknown key \"name.x\", did you mean \"name\"?");
}

static void test_conf_refuses_bad_values_with_place_and_range(void **state)
{
    (void)state;
    refuse("listener:\n  tcp:\n    bind_port: 65536\n",
           "b.yml:3: value \"65536\" of \"listener.tcp.bind_port\" is not allowed: expected a "
           "whole number from 0 to 65535");
    refuse("listener.ws.bind_port: 0\n", "b.yml:1: value \"0\" of \"listener.ws.bind_port\" is not "
                                         "allowed: expected a whole number from 1 to 65535");
    refuse("storage.retention: -11\n",
           "b.yml:1: value \"-11\" of \"storage.retention\" is not allowed: expected a whole "
           "number from -10 to 9223372036854775807 ms");
    refuse("storage.log: redis\n", "b.yml:1: value \"redis\" of \"storage.log\" is not allowed: "
                                   "expected one of embedded|kafka|off");
    refuse("listener.tcp.enabled: maybe\n", "b.yml:1: value \"maybe\" of \"listener.tcp.enabled\" "
                                            "is not allowed: expected true or false");
    refuse("listener.tcp.enabled:\n", "b.yml:1: value \"\" of \"listener.tcp.enabled\" is not "
                                      "allowed: expected true or false");
    static const char *const numbers[] = {"1883x", "1.5", "0x10", "1e3",  "9223372036854775808",
                                          "--1",   "+",   " 7 8", "1_000"};
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        char *why = NULL;
        sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
        SL_TEST_ERR(sl_conf_set(cf, "storage.retention", numbers[i], &why), SL_EINVAL);
        assert_non_null(strstr(why, numbers[i]));
        sl_free(why);
        sl_conf_free(&cf);
    }
}

static void test_conf_refuses_wrong_shapes(void **state)
{
    (void)state;
    refuse("name: [a, b]\n", "b.yml:1: \"name\" takes one value, not a list");
    refuse("name:\n  x: 1\n", "b.yml:1: \"name\" takes one value, not a section");
    refuse("\nlistener: on\n", "b.yml:2: \"listener\" is a section, not a value");
    refuse("listener: [tcp]\n", "b.yml:1: \"listener\" is a section, not a value");
    refuse("listener: {tcp: {bind_port: 1}}\nlistener.tcp.bind_port: 2\n",
           "b.yml:2: \"listener.tcp.bind_port\" is set twice");
    refuse("- a\n", "b.yml:1: expected \"key: value\" lines");
    refuse("just words\n", "b.yml:1: expected \"key: value\" lines");
    refuse("name: a\nname: b\n", "b.yml:2: key \"name\" appears twice");
}

static void test_conf_bad_value_leaves_the_old_one(void **state)
{
    (void)state;
    char *why = NULL;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    SL_TEST_ERR(sl_conf_set(cf, "listener.tcp.bind_port", "x", &why), SL_EINVAL);
    sl_free(why);
    assert_int_equal(sl_conf_int(cf, "listener.tcp.bind_port"), 1883);
    SL_TEST_ERR(sl_conf_set(cf, "nam", "x", &why), SL_EINVAL);
    assert_string_equal(why, "setting: unknown key \"nam\", did you mean \"name\"?");
    sl_free(why);
    SL_TEST_ERR(sl_conf_set(cf, "name", "\xC3", &why), SL_EINVAL);
    assert_non_null(strstr(why, "UTF-8"));
    sl_free(why);
    sl_conf_free(&cf);
}

static void test_conf_environment_errors_name_the_variable(void **state)
{
    (void)state;
    char *why = NULL;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    setenv("SL_TEST_TCP_PORT", "70000", 1);
    setenv("SL_TEST_UNHEARD_OF", "1", 1); // not ours, not an error
    SL_TEST_ERR(sl_conf_load_env(cf, &why), SL_EINVAL);
    assert_string_equal(why, "environment variable SL_TEST_TCP_PORT: value \"70000\" of "
                             "\"listener.tcp.bind_port\" is not allowed: expected a whole number "
                             "from 0 to 65535");
    sl_free(why);
    unsetenv("SL_TEST_UNHEARD_OF");
    sl_conf_free(&cf);
}

static void test_conf_messages_mask_secrets(void **state)
{
    (void)state;
    char *why = NULL;
    setenv("SL_TEST_PASSWORD", "hush\xC3", 1);
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    SL_TEST_ERR(sl_conf_load_env(cf, &why), SL_EINVAL);
    assert_null(strstr(why, "hush"));
    assert_non_null(strstr(why, "\"***\""));
    sl_free(why);
    sl_conf_free(&cf);
}

static void test_conf_reads_a_file(void **state)
{
    (void)state;
    char path[] = "/tmp/sl-conf-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "name: file\nport: 1\n", 19), 19);
    close(fd);
    char *why = NULL;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    SL_TEST_ERR(sl_conf_load_file(cf, path, &why), SL_EINVAL);
    assert_int_equal(strncmp(why, path, strlen(path)), 0);
    assert_non_null(strstr(why, ":2: unknown key \"port\""));
    sl_free(why);
    unlink(path);
    SL_TEST_ERR(sl_conf_load_file(cf, path, &why), SL_ENOTFOUND);
    assert_non_null(strstr(why, path));
    sl_free(why);
    sl_conf_free(&cf);
}

int main(void)
{
#define CONF_TEST(fn) cmocka_unit_test_setup_teardown(fn, clear_environment, clear_environment)
    const struct CMUnitTest tests[] = {
        CONF_TEST(test_conf_starts_with_defaults),
        CONF_TEST(test_conf_file_beats_default_and_environment_beats_file),
        CONF_TEST(test_conf_takes_dotted_keys_and_empty_sections),
        CONF_TEST(test_conf_refuses_unknown_keys_with_the_nearest),
        CONF_TEST(test_conf_refuses_bad_values_with_place_and_range),
        CONF_TEST(test_conf_refuses_wrong_shapes),
        CONF_TEST(test_conf_bad_value_leaves_the_old_one),
        CONF_TEST(test_conf_environment_errors_name_the_variable),
        CONF_TEST(test_conf_messages_mask_secrets),
        CONF_TEST(test_conf_reads_a_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
