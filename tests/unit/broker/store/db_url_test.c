/* SPDX-License-Identifier: Apache-2.0
 *
 * db_url: URLs as people write them for the JDBC driver become URLs of libpq.
 */
#include "store/db_url.h"

#include "base/alloc.h"
#include "sl_test.h"

static void check(const char *url, const char *want, const char *want_dropped)
{
    char *out = NULL, *dropped = NULL;
    const char *why = NULL;
    SL_TEST_OK(sl_db_url_translate(url, &out, &dropped, &why));
    assert_string_equal(out, want);
    assert_string_equal(dropped, want_dropped);
    sl_free(out);
    sl_free(dropped);
}

static void test_url_of_jdbc_is_stripped(void **state)
{
    (void)state;
    check("jdbc:postgresql://localhost:5432/thingsboard_mqtt_broker",
          "postgresql://localhost:5432/thingsboard_mqtt_broker", "");
    check("JDBC:postgresql://[::1]:5432/db", "postgresql://[::1]:5432/db", "");
    check("postgres://u:p%40ss@a:1,b:2/db", "postgres://u:p%40ss@a:1,b:2/db", "");
    check("postgresql://h/db?", "postgresql://h/db", "");
}

static void test_url_options_are_kept_translated_or_dropped(void **state)
{
    (void)state;
    check("jdbc:postgresql://h/db?user=u&password=p&sslmode=require",
          "postgresql://h/db?user=u&password=p&sslmode=require", "");
    check("jdbc:postgresql://h/db?ssl=true", "postgresql://h/db?sslmode=verify-full", "");
    check("jdbc:postgresql://h/db?ssl=false&currentSchema=s",
          "postgresql://h/db?sslmode=disable&options=-csearch_path%3Ds", "");
    check("jdbc:postgresql://h/db?reWriteBatchedInserts=true&&socketTimeout=3&user=u",
          "postgresql://h/db?user=u", "reWriteBatchedInserts,socketTimeout");
    check("jdbc:postgresql://h/db?targetServerType=primary&ssl=maybe",
          "postgresql://h/db?target_session_attrs=read-write", "ssl");
}

static void test_url_of_another_kind_is_refused(void **state)
{
    (void)state;
    static const char *const BAD[] = {"",
                                      "jdbc:",
                                      "jdbc:mysql://h/db",
                                      "localhost:5432/db",
                                      "jdbc:postgresql:db",
                                      "jdbc:jdbc:postgresql://h/db"};
    for (size_t i = 0; i < sizeof(BAD) / sizeof(BAD[0]); i++) {
        char *out = NULL, *dropped = NULL;
        const char *why = NULL;
        SL_TEST_ERR(sl_db_url_translate(BAD[i], &out, &dropped, &why), SL_EINVAL);
        assert_non_null(why);
        assert_null(out);
        assert_null(dropped);
    }
}

static void test_url_that_is_too_long_is_refused(void **state)
{
    (void)state;
    char *url = sl_alloc(100001);
    memset(url, 'x', 100000);
    memcpy(url, "postgresql://", 13);
    url[100000] = 0;
    char *out = NULL, *dropped = NULL;
    const char *why = NULL;
    SL_TEST_ERR(sl_db_url_translate(url, &out, &dropped, &why), SL_EINVAL);
    sl_free(url);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_url_of_jdbc_is_stripped),
        cmocka_unit_test(test_url_options_are_kept_translated_or_dropped),
        cmocka_unit_test(test_url_of_another_kind_is_refused),
        cmocka_unit_test(test_url_that_is_too_long_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
