/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/json: fixed texts, and random ones against a parser that recurses by the grammar.
 */
#include "sl_test.h"

#include <stdio.h>
#include <string.h>

#include "base/alloc.h"
#include "base/json.h"
#include "random.h"

/* The model: RFC 8259 written down as one function per rule. */
typedef struct text {
    const char *at;
    const char *end;
} text;

static void model_space(text *tx)
{
    while (tx->at < tx->end && memchr(" \t\n\r", *tx->at, 4) != NULL)
        tx->at++;
}

static bool model_char(text *tx, char want)
{
    if (tx->at == tx->end || *tx->at != want)
        return false;
    tx->at++;
    return true;
}

static bool model_one_of(text *tx, const char *set)
{
    if (tx->at == tx->end || *tx->at == '\0' || strchr(set, *tx->at) == NULL)
        return false;
    tx->at++;
    return true;
}

static bool model_number(text *tx)
{
    model_char(tx, '-');
    if (!model_char(tx, '0')) {
        if (!model_one_of(tx, "123456789"))
            return false;
        while (model_one_of(tx, "0123456789"))
            continue;
    }
    if (model_char(tx, '.')) {
        if (!model_one_of(tx, "0123456789"))
            return false;
        while (model_one_of(tx, "0123456789"))
            continue;
    }
    if (model_one_of(tx, "eE")) {
        model_one_of(tx, "+-");
        if (!model_one_of(tx, "0123456789"))
            return false;
        while (model_one_of(tx, "0123456789"))
            continue;
    }
    return true;
}

static bool model_string(text *tx)
{
    const char *start = tx->at;
    if (!model_char(tx, '"'))
        return false;
    while (tx->at < tx->end) {
        if (model_char(tx, '"'))
            return sl_utf8_is_valid(sl_slice_of(start, (size_t)(tx->at - start)));
        if ((unsigned char)*tx->at < 0x20)
            return false;
        if (!model_char(tx, '\\')) {
            tx->at++;
            continue;
        }
        if (model_char(tx, 'u')) {
            for (int i = 0; i < 4; i++)
                if (!model_one_of(tx, "0123456789abcdefABCDEF"))
                    return false;
        } else if (!model_one_of(tx, "\"\\/bfnrt")) {
            return false;
        }
    }
    return false;
}

static bool model_word(text *tx, const char *word)
{
    size_t len = strlen(word);
    if ((size_t)(tx->end - tx->at) < len || memcmp(tx->at, word, len) != 0)
        return false;
    tx->at += len;
    return true;
}

static bool model_value(text *tx, int depth)
{
    model_space(tx);
    if (tx->at == tx->end)
        return false;
    char first = *tx->at;
    if (first == '"')
        return model_string(tx);
    if (first != '{' && first != '[')
        return model_word(tx, "true") || model_word(tx, "false") || model_word(tx, "null") ||
               model_number(tx);
    char last = first == '{' ? '}' : ']';
    tx->at++;
    if (depth == SL_JSON_MAX_DEPTH)
        return false;
    model_space(tx);
    if (model_char(tx, last))
        return true;
    do {
        model_space(tx);
        if (first == '{') {
            if (!model_string(tx))
                return false;
            model_space(tx);
            if (!model_char(tx, ':'))
                return false;
        }
        if (!model_value(tx, depth + 1))
            return false;
        model_space(tx);
    } while (model_char(tx, ','));
    return model_char(tx, last);
}

static bool model_is_valid(const char *ptr, size_t len)
{
    text tx = {ptr, ptr + len};
    if (!model_value(&tx, 0))
        return false;
    model_space(&tx);
    return tx.at == tx.end;
}

static void put(sl_buf *out, const char *piece)
{
    SL_TEST_OK(sl_buf_append_str(out, piece));
}

static void random_space(rng *rg, sl_buf *out)
{
    static const char *const spaces[] = {"", "", "", " ", "\n", "\t", "\r\n", "  "};
    put(out, spaces[rng_below(rg, 8)]);
}

static void random_json(rng *rg, sl_buf *out, unsigned depth)
{
    static const char *const scalars[] = {"null",
                                          "true",
                                          "false",
                                          "0",
                                          "-0",
                                          "7",
                                          "-12.50",
                                          "1e5",
                                          "2E-07",
                                          "0.1e+3",
                                          "\"\"",
                                          "\"a\"",
                                          "\"\\n\"",
                                          "\"\\u00e9\"",
                                          "\"\\ud83d\\ude80\"",
                                          "\"\xC3\xA9\"",
                                          "\"\\\\\\\"/\"",
                                          "\"a.b\"",
                                          "123456789012345678901234567890"};
    unsigned kind = depth == 0 ? 0 : rng_below(rg, 3);
    random_space(rg, out);
    if (kind == 0) {
        put(out, scalars[rng_below(rg, sizeof(scalars) / sizeof(scalars[0]))]);
    } else {
        put(out, kind == 1 ? "{" : "[");
        unsigned count = rng_below(rg, 4);
        for (unsigned i = 0; i < count; i++) {
            random_space(rg, out);
            if (kind == 1) {
                SL_TEST_OK(sl_buf_printf(out, "\"%c\"", 'a' + (int)rng_below(rg, 4)));
                random_space(rg, out);
                put(out, ":");
            }
            random_json(rg, out, depth - 1);
            if (i + 1 < count)
                put(out, ",");
        }
        random_space(rg, out);
        put(out, kind == 1 ? "}" : "]");
    }
    random_space(rg, out);
}

static void check_copy(const char *ptr, size_t len)
{
    // An exact copy on the heap: reading one byte too far is an error of the sanitizer.
    char *copy = sl_alloc(len);
    memcpy(copy, ptr, len);
    bool want = model_is_valid(copy, len);
    if (sl_json_is_valid(sl_slice_of(copy, len)) != want)
        fail_msg("model says %d for: %.*s", want, (int)len, copy);
    sl_json_value value;
    sl_err err = sl_json_find(sl_slice_of(copy, len), "a.b", &value);
    assert_int_equal(err == SL_EMALFORMED, !want);
    if (err == SL_OK)
        assert_true(sl_json_is_valid(value.raw));
    sl_free(copy);
}

static void test_json_agrees_with_the_grammar_on_random_texts(void **state)
{
    (void)state;
    rng rg = {2024};
    static const char pieces[] = "{}[],:\"\\\\u01e.-+tfn \n\x01\x80\xC3";
    for (int round = 0; round < 20000; round++) {
        sl_buf buf;
        sl_buf_init(&buf, 1 << 20);
        random_json(&rg, &buf, 1 + rng_below(&rg, 5));
        size_t len;
        char *bytes = (char *)sl_buf_take(&buf, &len);
        assert_true(model_is_valid(bytes, len));
        check_copy(bytes, len);
        // Change, cut or double a byte: mostly invalid, sometimes not; the model decides.
        for (int change = 0; change < 4 && len > 1; change++) {
            size_t at = rng_below(&rg, (unsigned)len);
            if (rng_below(&rg, 2) == 0)
                bytes[at] = pieces[rng_below(&rg, sizeof(pieces) - 1)];
            else
                memmove(bytes + at, bytes + at + 1, --len - at);
            check_copy(bytes, len);
        }
        sl_free(bytes);
    }
}

static void test_json_accepts_and_refuses_by_the_book(void **state)
{
    (void)state;
    static const char *const good[] = {"0",           "-0.0e-0", " null ",    "\"\"",
                                       "[]",          "{}",      "[[],[{}]]", "{\"a\":1,\"a\":2}",
                                       "\"\\ud800\"", "1E400",   "\"\x7f\""};
    static const char *const bad[] = {"",
                                      " ",
                                      "nul",
                                      "True",
                                      "NaN",
                                      "Infinity",
                                      "-",
                                      "01",
                                      "1.",
                                      ".5",
                                      "+1",
                                      "1e",
                                      "0x10",
                                      "'a'",
                                      "\"a",
                                      "\"\t\"",
                                      "\"\\x\"",
                                      "\"\\u12g4\"",
                                      "[1,]",
                                      "[,1]",
                                      "[1 2]",
                                      "{\"a\"}",
                                      "{\"a\":}",
                                      "{a:1}",
                                      "{\"a\":1,}",
                                      "{1:2}",
                                      "]",
                                      "[}",
                                      "{]",
                                      "[1]]",
                                      "1 2",
                                      "\xEF\xBB\xBF[1]",
                                      "\"\xC0\xAF\"",
                                      "// c\n1",
                                      "[1]\f",
                                      "[\"\\\"]"};
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(sl_json_is_valid(sl_slice_str(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        if (sl_json_is_valid(sl_slice_str(bad[i])))
            fail_msg("accepted: %s", bad[i]);
    assert_false(sl_json_is_valid(sl_slice_of("1\0", 2)));
}

static void test_json_depth_ends_where_it_says(void **state)
{
    (void)state;
    char deep[2 * SL_JSON_MAX_DEPTH + 4];
    for (size_t depth = SL_JSON_MAX_DEPTH - 1; depth <= SL_JSON_MAX_DEPTH + 1; depth++) {
        memset(deep, '[', depth);
        memset(deep + depth, ']', depth);
        assert_int_equal(sl_json_is_valid(sl_slice_of(deep, 2 * depth)),
                         depth <= SL_JSON_MAX_DEPTH);
    }
    // A megabyte of brackets is refused without a stack that grows with it.
    const size_t many = 1 << 20;
    char *brackets = sl_alloc(many);
    memset(brackets, '[', many);
    assert_false(sl_json_is_valid(sl_slice_of(brackets, many)));
    for (size_t i = 0; i + 5 <= many; i += 5)
        memcpy(brackets + i, "{\"a\":", 5);
    assert_false(sl_json_is_valid(sl_slice_of(brackets, many)));
    sl_free(brackets);
}

static void find_raw(const char *json, const char *path, sl_json_kind kind, const char *raw)
{
    sl_json_value value;
    SL_TEST_OK(sl_json_find(sl_slice_str(json), path, &value));
    assert_int_equal(value.kind, kind);
    assert_int_equal(value.raw.len, strlen(raw));
    assert_memory_equal(value.raw.ptr, raw, value.raw.len);
}

static void test_json_find_returns_the_exact_text(void **state)
{
    (void)state;
    find_raw("{\"n\":123456789012345678901234567890.10}", "n", SL_JSON_NUMBER,
             "123456789012345678901234567890.10");
    find_raw("{ \"a\" : { \"b\" : [ 1, 2 ] } }", "a.b", SL_JSON_ARRAY, "[ 1, 2 ]");
    find_raw("{\"a\":{\"b\":{\"c\":null}}}", "a.b.c", SL_JSON_NULL, "null");
    find_raw("{\"a\":true,\"b\":false}", "b", SL_JSON_BOOL, "false");
    find_raw("{\"a\":{\"x\":1}}", "a", SL_JSON_OBJECT, "{\"x\":1}");
    find_raw("{\"x\":\"},{\",\"s\":\"q\\\"\"}", "s", SL_JSON_STRING, "\"q\\\"\"");
}

static void test_json_find_takes_the_last_duplicate(void **state)
{
    (void)state;
    find_raw("{\"a\":1,\"a\":2,\"b\":3}", "a", SL_JSON_NUMBER, "2");
    find_raw("{\"a\":{\"b\":1},\"a\":{\"b\":2}}", "a.b", SL_JSON_NUMBER, "2");
    sl_json_value value;
    SL_TEST_ERR(sl_json_find(sl_slice_str("{\"a\":{\"b\":1},\"a\":{}}"), "a.b", &value),
                SL_ENOTFOUND);
}

static void test_json_find_knows_escaped_names(void **state)
{
    (void)state;
    find_raw("{\"\\u0061b\":1}", "ab", SL_JSON_NUMBER, "1");
    find_raw("{\"ab\":1,\"\\ud800\":2}", "ab", SL_JSON_NUMBER, "1");
    find_raw("{\"\\u00e9\":1}", "\xC3\xA9", SL_JSON_NUMBER, "1");
    find_raw("{\"\":{\"\":5}}", ".", SL_JSON_NUMBER, "5");
}

static void test_json_find_says_what_is_wrong(void **state)
{
    (void)state;
    sl_json_value value = {SL_JSON_NULL, {NULL, 7}};
    SL_TEST_ERR(sl_json_find(sl_slice_str("{\"a\":1"), "a", &value), SL_EMALFORMED);
    SL_TEST_ERR(sl_json_find(sl_slice_str("{\"a\":1}"), "b", &value), SL_ENOTFOUND);
    SL_TEST_ERR(sl_json_find(sl_slice_str("{\"a\":1}"), "a.b", &value), SL_ENOTFOUND);
    SL_TEST_ERR(sl_json_find(sl_slice_str("[{\"a\":1}]"), "a", &value), SL_ENOTFOUND);
    SL_TEST_ERR(sl_json_find(sl_slice_str("7"), "a", &value), SL_ENOTFOUND);
    SL_TEST_ERR(sl_json_find(sl_slice_str(""), "a", &value), SL_EMALFORMED);
    assert_int_equal(value.raw.len, 7); // written on success only
}

static void decode(const char *raw, sl_err want, const char *plain, size_t len)
{
    sl_buf buf;
    sl_buf_init(&buf, 100);
    SL_TEST_OK(sl_buf_append_str(&buf, ">"));
    SL_TEST_ERR(sl_json_decode_string((sl_json_value){SL_JSON_STRING, sl_slice_str(raw)}, &buf),
                want);
    sl_slice got = sl_buf_peek(&buf);
    assert_int_equal(got.len, len + 1); // on error what was there before stays
    assert_memory_equal(got.ptr + 1, plain, len);
    sl_buf_fini(&buf);
}

static void test_json_decodes_escapes(void **state)
{
    (void)state;
    decode("\"\"", SL_OK, "", 0);
    decode("\"plain\"", SL_OK, "plain", 5);
    decode("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", SL_OK, "\"\\/\b\f\n\r\t", 8);
    decode("\"\\u0000\\u007f\\u0080\\u07ff\"", SL_OK, "\0\x7f\xC2\x80\xDF\xBF", 6);
    decode("\"\\u0800\\uFFFF\"", SL_OK, "\xE0\xA0\x80\xEF\xBF\xBF", 6);
    decode("\"\\ud800\\udc00\\uDBFF\\uDFFF\"", SL_OK, "\xF0\x90\x80\x80\xF4\x8F\xBF\xBF", 8);
    decode("\"x\\ud800\"", SL_EMALFORMED, "", 0);
    decode("\"\\udc00\"", SL_EMALFORMED, "", 0);
    decode("\"\\ud800\\ud800\"", SL_EMALFORMED, "", 0);
    decode("\"\\ud800\\n\"", SL_EMALFORMED, "", 0);
    sl_buf buf;
    sl_buf_init(&buf, 2);
    SL_TEST_ERR(sl_json_decode_string((sl_json_value){SL_JSON_NUMBER, sl_slice_str("12")}, &buf),
                SL_EINVAL);
    SL_TEST_ERR(
        sl_json_decode_string((sl_json_value){SL_JSON_STRING, sl_slice_str("\"a\\nb\"")}, &buf),
        SL_ETOOBIG);
    assert_int_equal(sl_buf_peek(&buf).len, 0);
    sl_buf_fini(&buf);
}

static void test_json_writes_strings_safe_for_pages(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 1000);
    SL_TEST_OK(
        sl_json_write_string(&buf, sl_slice_str("a\"\\\n\x01\x7f</b>&\xE2\x80\xA8\xE2\x82\xAC")));
    SL_TEST_SLICE(sl_buf_peek(&buf),
                  "\"a\\\"\\\\\\n\\u0001\\u007f\\u003c/b\\u003e\\u0026\\u2028\xE2\x82\xAC\"");
    sl_buf_clear(&buf);
    SL_TEST_ERR(sl_json_write_string(&buf, sl_slice_str("ok\xC3")), SL_EMALFORMED);
    assert_int_equal(sl_buf_peek(&buf).len, 0);
    sl_buf_fini(&buf);
    sl_buf_init(&buf, 4);
    SL_TEST_ERR(sl_json_write_string(&buf, sl_slice_str("abc")), SL_ETOOBIG);
    assert_int_equal(sl_buf_peek(&buf).len, 0);
    SL_TEST_OK(sl_json_write_string(&buf, sl_slice_str("ab")));
    sl_buf_fini(&buf);
}

static void test_json_strings_come_back(void **state)
{
    (void)state;
    rng rg = {8};
    for (int round = 0; round < 5000; round++) {
        sl_buf plain, written, back;
        sl_buf_init(&plain, 1000);
        sl_buf_init(&written, 10000);
        sl_buf_init(&back, 1000);
        unsigned count = rng_below(&rg, 20);
        static const char *const letters[] = {"a",
                                              "\"",
                                              "\\",
                                              "\n",
                                              "\x1f",
                                              "<",
                                              ">",
                                              "&",
                                              "/",
                                              "\xC3\xA9",
                                              "\xE2\x80\xA8",
                                              "\xE2\x80\xA9",
                                              "\xE2\x80\xAA",
                                              "\xF0\x9F\x9A\x80",
                                              "\x7f",
                                              ""};
        for (unsigned i = 0; i < count; i++)
            put(&plain, letters[rng_below(&rg, 16)]);
        SL_TEST_OK(sl_buf_append_u8(&plain, 0)); // NUL is a character like others
        SL_TEST_OK(sl_json_write_string(&written, sl_buf_peek(&plain)));
        sl_slice raw = sl_buf_peek(&written);
        assert_true(sl_json_is_valid(raw));
        SL_TEST_OK(sl_json_decode_string((sl_json_value){SL_JSON_STRING, raw}, &back));
        assert_true(sl_slice_equal(sl_buf_peek(&back), sl_buf_peek(&plain)));
        sl_buf_fini(&plain);
        sl_buf_fini(&written);
        sl_buf_fini(&back);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json_agrees_with_the_grammar_on_random_texts),
        cmocka_unit_test(test_json_accepts_and_refuses_by_the_book),
        cmocka_unit_test(test_json_depth_ends_where_it_says),
        cmocka_unit_test(test_json_find_returns_the_exact_text),
        cmocka_unit_test(test_json_find_takes_the_last_duplicate),
        cmocka_unit_test(test_json_find_knows_escaped_names),
        cmocka_unit_test(test_json_find_says_what_is_wrong),
        cmocka_unit_test(test_json_decodes_escapes),
        cmocka_unit_test(test_json_writes_strings_safe_for_pages),
        cmocka_unit_test(test_json_strings_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
