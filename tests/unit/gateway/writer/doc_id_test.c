/* SPDX-License-Identifier: Apache-2.0
 *
 * Identifiers of documents: which JSON values are usable, which are equal, what no digit is lost
 * of.
 */
#include "sl_test.h"

#include <stdio.h>

#include "base/alloc.h"
#include "document.h"

static sl_doc_id make(const char *json)
{
    sl_doc_id id;
    sl_err err = sl_doc_id_from_json(sl_slice_str(json), &id);
    if (err != SL_OK)
        fail_msg("%s is not usable", json);
    return id;
}

static void expect(const char *json, sl_doc_id_kind kind, const char *text)
{
    sl_doc_id id = make(json);
    assert_int_equal(id.kind, kind);
    assert_string_equal((const char *)id.text.ptr, text);
    sl_doc_id_fini(&id);
}

static void expect_unusable(const char *json)
{
    sl_doc_id id;
    if (sl_doc_id_from_json(sl_slice_str(json), &id) == SL_OK)
        fail_msg("%s is usable as \"%s\"", json, (const char *)id.text.ptr);
}

static bool is_equal(const char *left, const char *right)
{
    sl_doc_id a = make(left), b = make(right);
    bool equal = sl_slice_equal(a.key, b.key);
    sl_doc_id_fini(&a);
    sl_doc_id_fini(&b);
    return equal;
}

static void test_doc_id_keeps_whole_numbers_exact(void **state)
{
    (void)state;
    expect("1", SL_DOC_ID_INT64, "1");
    expect("9007199254740993", SL_DOC_ID_INT64, "9007199254740993");
    expect("1491926160718000000", SL_DOC_ID_INT64, "1491926160718000000");
    expect("1234567890123460", SL_DOC_ID_INT64, "1234567890123460");
    expect("9223372036854775807", SL_DOC_ID_INT64, "9223372036854775807");
    expect("-9223372036854775808", SL_DOC_ID_INT64, "-9223372036854775808");
    expect("-0", SL_DOC_ID_INT64, "0");
    expect("1e3", SL_DOC_ID_INT64, "1000");
    expect("12.500e1", SL_DOC_ID_INT64, "125");
    expect("0e999999999999999999999", SL_DOC_ID_INT64, "0");
}

static void test_doc_id_gives_other_numbers_one_form(void **state)
{
    (void)state;
    expect("0.1", SL_DOC_ID_DOUBLE, "0.1");
    expect("1.5", SL_DOC_ID_DOUBLE, "1.5");
    expect("-0.00025", SL_DOC_ID_DOUBLE, "-0.00025");
    expect("1e20", SL_DOC_ID_DOUBLE, "100000000000000000000");
    expect("1e-9", SL_DOC_ID_DOUBLE, "1E-9");
    expect("1.25e-12", SL_DOC_ID_DOUBLE, "1.25E-12");
    expect("9223372036854775808", SL_DOC_ID_DECIMAL, "9223372036854775808");
    expect("123456789012345678901234567890", SL_DOC_ID_DECIMAL, "123456789012345678901234567890");
    expect("1e400", SL_DOC_ID_DECIMAL, "1E+400");
    expect("3.141592653589793238462643383279503", SL_DOC_ID_DECIMAL,
           "3.141592653589793238462643383279503");
}

static void test_doc_id_reads_the_double_that_was_written(void **state)
{
    (void)state;
    sl_doc_id id = make("0.1");
    assert_true(id.real == 0.1);
    sl_doc_id_fini(&id);
    id = make("-2.5e10");
    assert_int_equal(id.kind, SL_DOC_ID_INT64);
    sl_doc_id_fini(&id);
    id = make("6.02214076e23");
    assert_true(id.real == 6.02214076e23);
    sl_doc_id_fini(&id);
}

static void test_doc_id_equality_is_by_value_and_type(void **state)
{
    (void)state;
    assert_true(is_equal("1", "1.0"));
    assert_true(is_equal("1", "10e-1"));
    assert_true(is_equal("0", "-0.0"));
    assert_true(is_equal("0.1", "1e-1"));
    assert_true(is_equal("1e-20", "0.00000000000000000001"));
    assert_true(
        is_equal("25e-60", "0.000000000000000000000000000000000000000000000000000000000025"));
    assert_true(is_equal("\"a\\u0062\"", "\"ab\""));
    assert_false(is_equal("1", "\"1\""));
    assert_false(is_equal("true", "\"true\""));
    assert_false(is_equal("true", "1"));
    assert_false(is_equal("9007199254740993", "9007199254740992"));
    assert_false(is_equal("123456789012345678901234567890", "123456789012345678901234567891"));
    assert_false(
        is_equal("{\"$oid\":\"0123456789abcdef01234567\"}", "\"0123456789abcdef01234567\""));
    assert_true(is_equal("{\"$oid\":\"0123456789abcdef01234567\"}",
                         "{ \"$oid\" : \"0123456789ABCDEF01234567\" }"));
}

static void test_doc_id_takes_strings_with_any_character(void **state)
{
    (void)state;
    expect("\"m-1\"", SL_DOC_ID_STRING, "m-1");
    expect("\"$set\"", SL_DOC_ID_STRING, "$set");
    expect("true", SL_DOC_ID_BOOL, "true");
    expect("false", SL_DOC_ID_BOOL, "false");
    sl_doc_id id = make("\"a\\u0000b\"");
    assert_int_equal(id.text.len, 3);
    assert_memory_equal(id.text.ptr, "a\0b", 3);
    sl_doc_id_fini(&id);
}

static void test_doc_id_limits_the_length_of_strings(void **state)
{
    (void)state;
    char *json = sl_alloc(SL_DOC_ID_MAX_BYTES + 4);
    memset(json, 'x', SL_DOC_ID_MAX_BYTES + 3);
    json[0] = json[SL_DOC_ID_MAX_BYTES + 1] = '"';
    json[SL_DOC_ID_MAX_BYTES + 2] = '\0';
    sl_doc_id id = make(json);
    assert_int_equal(id.text.len, SL_DOC_ID_MAX_BYTES);
    sl_doc_id_fini(&id);
    json[SL_DOC_ID_MAX_BYTES + 1] = 'x';
    json[SL_DOC_ID_MAX_BYTES + 2] = '"';
    json[SL_DOC_ID_MAX_BYTES + 3] = '\0';
    expect_unusable(json);
    sl_free(json);
}

static void test_doc_id_refuses_what_is_not_a_scalar(void **state)
{
    (void)state;
    static const char *const unusable[] = {
        "null",
        "\"\"",
        "[]",
        "[1]",
        "{}",
        "{\"$gt\":\"\"}",
        "{\"$oid\":\"0123\"}",
        "{\"$oid\":\"0123456789abcdef0123456g\"}",
        "{\"$oid\":\"0123456789abcdef01234567\",\"x\":1}",
        "{\"x\":1,\"$oid\":\"0123456789abcdef01234567\"}",
        "{\"$oid\":{\"$oid\":\"0123456789abcdef01234567\"}}",
        "\"\\ud800\"",
        "1e7000",
        "1e-7000",
        "1234567890123456789012345678901234567",
    };
    for (size_t i = 0; i < sizeof unusable / sizeof unusable[0]; i++)
        expect_unusable(unusable[i]);
}

static void test_doc_id_objectids_differ_and_carry_the_time(void **state)
{
    (void)state;
    sl_oid_source src;
    sl_oid_source_init(&src);
    uint8_t a[SL_DOC_OID_BYTES], b[SL_DOC_OID_BYTES];
    sl_oid_source_next(&src, 0x12345678ll * 1000000000, a);
    sl_oid_source_next(&src, 0x12345678ll * 1000000000, b);
    assert_memory_equal(a, "\x12\x34\x56\x78", 4);
    assert_memory_equal(a, b, 9);
    assert_memory_not_equal(a, b, SL_DOC_OID_BYTES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_doc_id_keeps_whole_numbers_exact),
        cmocka_unit_test(test_doc_id_gives_other_numbers_one_form),
        cmocka_unit_test(test_doc_id_reads_the_double_that_was_written),
        cmocka_unit_test(test_doc_id_equality_is_by_value_and_type),
        cmocka_unit_test(test_doc_id_takes_strings_with_any_character),
        cmocka_unit_test(test_doc_id_limits_the_length_of_strings),
        cmocka_unit_test(test_doc_id_refuses_what_is_not_a_scalar),
        cmocka_unit_test(test_doc_id_objectids_differ_and_carry_the_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
