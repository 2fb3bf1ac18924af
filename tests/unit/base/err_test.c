/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/err: names, texts, and the map from errno.
 */
#include "sl_test.h"

#include <errno.h>
#include <string.h>

static const sl_err all[] = {
#define ERR_VALUE(name, num, text) SL_##name,
    SL_ERR_MAP(ERR_VALUE)
#undef ERR_VALUE
};

static void test_err_names_and_texts_are_distinct(void **state)
{
    (void)state;
    const size_t count = sizeof(all) / sizeof(all[0]);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(all[i], (int)i); // numbers have no gaps: logs and tools show them
        assert_true(strlen(sl_err_text(all[i])) > 1);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(sl_err_name(all[i]), sl_err_name(all[k]));
            assert_string_not_equal(sl_err_text(all[i]), sl_err_text(all[k]));
        }
    }
    assert_string_equal(sl_err_name(SL_ETOOBIG), "ETOOBIG");
    assert_string_equal(sl_err_name((sl_err)999), "UNKNOWN");
    assert_string_equal(sl_err_text((sl_err)999), "unknown error");
}

static void test_err_from_errno_keeps_the_meaning(void **state)
{
    (void)state;
    static const struct {
        int errnum;
        sl_err want;
    } cases[] = {
        {0, SL_OK},
        {EINVAL, SL_EINVAL},
        {EAGAIN, SL_EAGAIN},
        {EMFILE, SL_ELIMIT},
        {EFBIG, SL_ETOOBIG},
        {EPIPE, SL_ECLOSED},
        {ETIMEDOUT, SL_ETIMEDOUT},
        {EIO, SL_EIO},
        {ENOSPC, SL_ENOSPC},
        {EDQUOT, SL_ENOSPC},
        {ENOENT, SL_ENOTFOUND},
        {EEXIST, SL_EEXIST},
        {EADDRINUSE, SL_EEXIST},
        {EBADMSG, SL_ECORRUPT},
        {EPROTO, SL_EPROTOCOL},
        {EACCES, SL_EDENIED},
        {EBUSY, SL_ELOCKED},
        {ECONNREFUSED, SL_ECONN},
        {ECONNRESET, SL_ECONN},
        {ENOTSUP, SL_EUNSUPPORTED},
        {EXDEV, SL_EIO},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        SL_TEST_ERR(sl_err_from_errno(cases[i].errnum), cases[i].want);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_err_names_and_texts_are_distinct),
        cmocka_unit_test(test_err_from_errno_keeps_the_meaning),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
