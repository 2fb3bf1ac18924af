/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/conf_write: what is written loads back, secrets stay in, pages are complete.
 */
#include "sl_test.h"

#include <string.h>

#include "base/alloc.h"
#include "conf_rows.h"

static char *text_of(sl_buf *buf)
{
    SL_TEST_OK(sl_buf_append_u8(buf, 0));
    size_t len;
    return (char *)sl_buf_take(buf, &len);
}

static void assert_same_values(const sl_conf *left, const sl_conf *right)
{
    for (size_t i = 0; i < TEST_ROWS; i++) {
        const char *key = test_rows[i].key;
        switch (test_rows[i].type) {
        case SL_CONF_BOOL:
            assert_int_equal(sl_conf_bool(left, key), sl_conf_bool(right, key));
            break;
        case SL_CONF_INT:
            assert_true(sl_conf_int(left, key) == sl_conf_int(right, key));
            break;
        case SL_CONF_STRING:
        case SL_CONF_ENUM:
            assert_string_equal(sl_conf_str(left, key), sl_conf_str(right, key));
            break;
        }
    }
}

static sl_conf *load_back(const char *yaml)
{
    char *why = NULL;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    if (sl_conf_load_text(cf, "back.yml", sl_slice_str(yaml), &why) != SL_OK)
        fail_msg("%s in\n%s", why, yaml);
    return cf;
}

static void test_template_loads_back_to_the_defaults(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 1 << 20);
    SL_TEST_OK(sl_conf_write_template(test_rows, TEST_ROWS, "Broker settings.", NULL, &buf));
    char *yaml = text_of(&buf);
    sl_conf *want = sl_conf_new(test_rows, TEST_ROWS);
    sl_conf *got = load_back(yaml);
    assert_same_values(want, got);
    sl_conf_free(&want);
    sl_conf_free(&got);
    sl_free(yaml);
}

static void test_template_takes_overrides(void **state)
{
    (void)state;
    static const char *const overrides[] = {
        "name", "demo", "storage.log", "off", "listener.ws.bind_port", "99", NULL};
    sl_buf buf;
    sl_buf_init(&buf, 1 << 20);
    SL_TEST_OK(sl_conf_write_template(test_rows, TEST_ROWS, "Demo.", overrides, &buf));
    char *yaml = text_of(&buf);
    assert_non_null(strstr(yaml, "log: \"off\"\n")); // no boolean for other readers
    sl_conf *cf = load_back(yaml);
    assert_string_equal(sl_conf_str(cf, "name"), "demo");
    assert_string_equal(sl_conf_str(cf, "storage.log"), "off");
    assert_int_equal(sl_conf_int(cf, "listener.ws.bind_port"), 99);
    assert_int_equal(sl_conf_int(cf, "listener.tcp.bind_port"), 1883);
    sl_conf_free(&cf);
    sl_free(yaml);
}

static void test_template_nests_and_comments(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 1 << 20);
    SL_TEST_OK(sl_conf_write_template(test_rows, TEST_ROWS, "Title.", NULL, &buf));
    char *yaml = text_of(&buf);
    assert_int_equal(strncmp(yaml, "# Title.\n", 9), 0);
    assert_non_null(strstr(yaml, "listener:\n  tcp:\n    # Whether plain TCP is on.\n"
                                 "    # true or false; default true; environment "
                                 "SL_TEST_TCP_ENABLED\n    enabled: true\n"));
    assert_non_null(strstr(yaml, "    # number, 0 .. 65535; default 1883; environment "
                                 "SL_TEST_TCP_PORT\n    bind_port: 1883\n"));
    assert_non_null(strstr(yaml, "  # word: embedded|kafka|off; default embedded; environment "
                                 "SL_TEST_LOG\n  log: embedded\n"));
    assert_non_null(strstr(yaml, "  # number, -10 .. 9223372036854775807 ms; default -5\n"));
    // A section is written once although its rows are scattered.
    const char *first = strstr(yaml, "listener:\n");
    assert_null(strstr(first + 1, "listener:\n"));
    for (const char *line = yaml; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    sl_free(yaml);
}

static void test_print_shows_effective_values_and_masks_secrets(void **state)
{
    (void)state;
    char *why = NULL;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    SL_TEST_OK(sl_conf_load_text(
        cf, "b.yml", sl_slice_str("name: x\nstorage:\n  password: hunter2\n  log: kafka\n"), &why));
    SL_TEST_OK(sl_conf_set(cf, "listener.tcp.bind_port", "7", &why));
    sl_buf buf;
    sl_buf_init(&buf, 1 << 20);
    SL_TEST_OK(sl_conf_print(cf, &buf));
    char *yaml = text_of(&buf);
    assert_null(strstr(yaml, "hunter2"));
    assert_non_null(strstr(yaml, "  password: \"***\" # b.yml:3\n"));
    assert_non_null(strstr(yaml, "name: \"x\" # b.yml:1\n"));
    assert_non_null(strstr(yaml, "    bind_port: 7 # setting\n"));
    assert_non_null(strstr(yaml, "    enabled: true\n"));
    sl_conf *back = load_back(yaml);
    SL_TEST_OK(sl_conf_set(back, "storage.password", "hunter2", &why));
    assert_same_values(cf, back);
    sl_conf_free(&back);
    sl_conf_free(&cf);
    sl_free(yaml);
}

static void test_print_shows_an_empty_secret_as_empty(void **state)
{
    (void)state;
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    sl_buf buf;
    sl_buf_init(&buf, 1 << 20);
    SL_TEST_OK(sl_conf_print(cf, &buf));
    char *yaml = text_of(&buf);
    assert_non_null(strstr(yaml, "  password: \"\"\n"));
    sl_free(yaml);
    sl_conf_free(&cf);
}

static void test_reference_is_a_table_with_a_line_per_row(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 1 << 20);
    SL_TEST_OK(sl_conf_write_reference(test_rows, TEST_ROWS, &buf));
    char *page = text_of(&buf);
    size_t lines = 0;
    for (const char *at = page; *at != '\0'; at++)
        lines += *at == '\n';
    assert_int_equal(lines, TEST_ROWS + 2);
    assert_non_null(strstr(page, "| `storage.log` | `SL_TEST_LOG` | word | `embedded` | "
                                 "embedded\\|kafka\\|off | Which log \\| is used. |\n"));
    assert_non_null(strstr(page, "| `storage.retention` | | number | `-5` | -10 .. "
                                 "9223372036854775807 ms | How long to keep. |\n"));
    sl_free(page);
}

static void test_writers_stop_at_the_buffers_maximum(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 40);
    sl_conf *cf = sl_conf_new(test_rows, TEST_ROWS);
    SL_TEST_ERR(sl_conf_write_template(test_rows, TEST_ROWS, "T", NULL, &buf), SL_ETOOBIG);
    SL_TEST_ERR(sl_conf_write_reference(test_rows, TEST_ROWS, &buf), SL_ETOOBIG);
    SL_TEST_ERR(sl_conf_print(cf, &buf), SL_ETOOBIG);
    sl_conf_free(&cf);
    sl_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_template_loads_back_to_the_defaults),
        cmocka_unit_test(test_template_takes_overrides),
        cmocka_unit_test(test_template_nests_and_comments),
        cmocka_unit_test(test_print_shows_effective_values_and_masks_secrets),
        cmocka_unit_test(test_print_shows_an_empty_secret_as_empty),
        cmocka_unit_test(test_reference_is_a_table_with_a_line_per_row),
        cmocka_unit_test(test_writers_stop_at_the_buffers_maximum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
