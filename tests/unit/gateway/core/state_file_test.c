/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/state_file: round trip, other sessions, damage.
 */
#include "state_file.h"

#include <stdio.h>
#include <unistd.h>

#include "base/alloc.h"
#include "sl_test.h"

typedef struct found {
    char text[1024]; /* filters, each in brackets */
} found;

static char dir[64];
static char path[128];

static int make_dir(void **state)
{
    (void)state;
    snprintf(dir, sizeof dir, "/tmp/sl-state-XXXXXX");
    if (mkdtemp(dir) == NULL)
        return -1;
    snprintf(path, sizeof path, "%s/filters", dir);
    return 0;
}

static int remove_dir(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(dir);
}

static void on_filter(void *arg, sl_slice filter)
{
    found *fd = arg;
    size_t len = strlen(fd->text);
    snprintf(fd->text + len, sizeof fd->text - len, "[%.*s]", (int)filter.len,
             (const char *)filter.ptr);
}

static void write_text(const char *text)
{
    SL_TEST_OK(sl_state_file_save(path, sl_slice_str(text)));
}

static void test_state_file_round_trip(void **state)
{
    (void)state;
    sl_buf out;
    sl_buf_init(&out, 4096);
    SL_TEST_OK(sl_state_file_begin(&out, sl_slice_str("id@host:1883")));
    SL_TEST_OK(sl_state_file_add(&out, sl_slice_str("a/#")));
    SL_TEST_OK(sl_state_file_add(&out, sl_slice_str("line\nbreak \"q\" \xC3\xA9")));
    SL_TEST_OK(sl_state_file_save(path, sl_buf_peek(&out)));
    sl_buf_fini(&out);
    found fd = {""};
    SL_TEST_OK(sl_state_file_load(path, sl_slice_str("id@host:1883"), on_filter, &fd));
    assert_string_equal(fd.text, "[a/#][line\nbreak \"q\" \xC3\xA9]");
    fd.text[0] = '\0';
    SL_TEST_ERR(sl_state_file_load(path, sl_slice_str("other@host:1883"), on_filter, &fd),
                SL_ENOTFOUND);
    assert_string_equal(fd.text, "");
}

static void test_state_file_absent_is_not_found(void **state)
{
    (void)state;
    (void)unlink(path);
    found fd = {""};
    SL_TEST_ERR(sl_state_file_load(path, sl_slice_str("id"), on_filter, &fd), SL_ENOTFOUND);
}

static void test_state_file_damage_is_told(void **state)
{
    (void)state;
    static const char *const damaged[] = {"", "\"id\"\n\"a\"\n\"b", "\"id\"\nnot json\n",
                                          "\"id\"\n17\n", "id\n"};
    for (size_t i = 0; i < sizeof damaged / sizeof damaged[0]; i++) {
        found fd = {""};
        write_text(damaged[i]);
        SL_TEST_ERR(sl_state_file_load(path, sl_slice_str("id"), on_filter, &fd), SL_ECORRUPT);
        assert_string_equal(fd.text, i == 1 ? "[a]" : "");
    }
}

static void test_state_file_cannot_be_saved_into_nowhere(void **state)
{
    (void)state;
    SL_TEST_ERR(sl_state_file_save("/nonexistent/folder/file", sl_slice_str("x")), SL_ENOTFOUND);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_state_file_round_trip),
        cmocka_unit_test(test_state_file_absent_is_not_found),
        cmocka_unit_test(test_state_file_damage_is_told),
        cmocka_unit_test(test_state_file_cannot_be_saved_into_nowhere),
    };
    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
