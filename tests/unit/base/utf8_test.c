/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of UTF-8 and base64: borders of the code space, every way to be wrong, and a decoder that
 * works by the definition (compute the number, then ask whether it was written in the only way).
 */
#include "sl_test.h"

#include <stdbool.h>
#include <string.h>

#include "base/json.h"
#include "random.h"

// The number of the character at the front by plain arithmetic, or -1; *len gets its bytes.
static long model_decode(const uint8_t *ptr, size_t left, size_t *len)
{
    uint8_t lead = ptr[0];
    size_t need = lead < 0x80       ? 1
                  : lead >> 5 == 6  ? 2
                  : lead >> 4 == 14 ? 3
                  : lead >> 3 == 30 ? 4
                                    : 0;
    if (need == 0 || need > left)
        return -1;
    long code = need == 1 ? lead : lead & ((1 << (7 - need)) - 1);
    for (size_t i = 1; i < need; i++) {
        if (ptr[i] >> 6 != 2)
            return -1;
        code = code * 64 + (ptr[i] & 63);
    }
    static const long smallest[] = {0, 0, 0x80, 0x800, 0x10000};
    if (code < smallest[need] || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        return -1;
    *len = need;
    return code;
}

static bool model_is_valid(const uint8_t *ptr, size_t left)
{
    while (left != 0) {
        size_t len;
        if (model_decode(ptr, left, &len) < 0)
            return false;
        ptr += len;
        left -= len;
    }
    return true;
}

static void check_one(const uint8_t *ptr, size_t len)
{
    assert_int_equal(sl_utf8_is_valid(sl_slice_of(ptr, len)), model_is_valid(ptr, len));
    size_t want_len = 0;
    long want = model_decode(ptr, len, &want_len);
    uint32_t code = 0;
    size_t got = sl_utf8_next(sl_slice_of(ptr, len), &code);
    assert_int_equal(got, want < 0 ? 0 : want_len);
    if (want >= 0)
        assert_int_equal(code, (uint32_t)want);
}

// Bytes at which a rule begins or ends.
static const uint8_t borders[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0,
                                  0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0,
                                  0xF1, 0xF3, 0xF4, 0xF5, 0xF7, 0xF8, 0xFB, 0xFC, 0xFE, 0xFF};

static void test_utf8_agrees_with_the_definition_at_all_borders(void **state)
{
    (void)state;
    const size_t count = sizeof(borders);
    for (unsigned first = 0; first < 256; first++) {
        for (unsigned second = 0; second < 256; second++) {
            uint8_t two[] = {(uint8_t)first, (uint8_t)second};
            check_one(two, 1);
            check_one(two, 2);
        }
        for (size_t a = 0; a < count; a++)
            for (size_t b = 0; b < count; b++) {
                uint8_t four[] = {(uint8_t)first, borders[a], borders[b], 0};
                check_one(four, 3);
                for (size_t c = 0; c < count; c++) {
                    four[3] = borders[c];
                    check_one(four, 4);
                }
            }
    }
}

static void test_utf8_finds_faults_at_any_place_in_ascii(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool valid;
    } cases[] = {
        {"\xC3\xA9", true},
        {"\xE2\x82\xAC", true},
        {"\xF0\x9F\x9A\x80", true},
        {"\x80", false},
        {"\xC3", false},
        {"\xE2\x82", false},
        {"\xF0\x9F\x9A", false},
        {"\xC0\xAF", false},
        {"\xE0\x80\xAF", false},
        {"\xED\xA0\x80", false},
        {"\xED\xBF\xBF", false},
        {"\xF4\x90\x80\x80", false},
        {"\xF8\x88\x80\x80", false},
        {"\xEF\xBF\xBF", true},
        {"\xEE\x80\x80", true},
        {"\xF4\x8F\xBF\xBF", true},
        {"\xE2\x28\xA1", false},
        {"\xFE\xFF", false},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t len = strlen(cases[i].bytes);
        for (size_t before = 0; before < 20; before++)
            for (size_t after = 0; after < 20; after++) {
                uint8_t text[64];
                memset(text, 'a', sizeof(text));
                memcpy(text + before, cases[i].bytes, len);
                assert_int_equal(sl_utf8_is_valid(sl_slice_of(text, before + len + after)),
                                 cases[i].valid);
            }
    }
    assert_true(sl_utf8_is_valid(sl_slice_of(NULL, 0)));
    uint32_t code;
    assert_int_equal(sl_utf8_next(sl_slice_of(NULL, 0), &code), 0);
}

static void test_utf8_agrees_with_the_definition_on_random_text(void **state)
{
    (void)state;
    rng rg = {21};
    for (int round = 0; round < 20000; round++) {
        uint8_t text[48];
        size_t len = rng_below(&rg, sizeof(text) + 1);
        for (size_t i = 0; i < len; i++)
            text[i] = rng_below(&rg, 3) == 0 ? borders[rng_below(&rg, sizeof(borders))]
                                             : (uint8_t)('a' + rng_below(&rg, 26));
        assert_int_equal(sl_utf8_is_valid(sl_slice_of(text, len)), model_is_valid(text, len));
    }
}

static void test_base64_of_known_texts(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"", ""},
        {"s", "cw=="},
        {"sl", "c2w="},
        {"slu", "c2x1"},
        {"sluice", "c2x1aWNl"},
        {"\xff\xfe\xfd", "//79"},
        {"\xfb\xef", "++8="},
    };
    for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
        sl_buf buf;
        sl_buf_init(&buf, 100);
        SL_TEST_OK(sl_base64_write(&buf, sl_slice_str(pairs[i][0])));
        assert_true(sl_slice_equal(sl_buf_peek(&buf), sl_slice_str(pairs[i][1])));
        sl_buf_clear(&buf);
        SL_TEST_OK(sl_base64_decode(&buf, sl_slice_str(pairs[i][1])));
        assert_true(sl_slice_equal(sl_buf_peek(&buf), sl_slice_str(pairs[i][0])));
        sl_buf_fini(&buf);
    }
}

static void test_base64_comes_back_for_random_bytes(void **state)
{
    (void)state;
    rng rg = {4};
    for (int round = 0; round < 2000; round++) {
        uint8_t bytes[100];
        size_t len = rng_below(&rg, sizeof(bytes) + 1);
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)rng_next(&rg);
        sl_buf text, back;
        sl_buf_init(&text, 200);
        sl_buf_init(&back, 200);
        SL_TEST_OK(sl_base64_write(&text, sl_slice_of(bytes, len)));
        SL_TEST_OK(sl_base64_decode(&back, sl_buf_peek(&text)));
        assert_true(sl_slice_equal(sl_buf_peek(&back), sl_slice_of(bytes, len)));
        sl_buf_fini(&text);
        sl_buf_fini(&back);
    }
}

static void test_base64_refuses_what_is_not_canonical(void **state)
{
    (void)state;
    static const char *const bad[] = {"c",    "cw",   "cw=",  "====", "c===",     "cx==",  "c2x=",
                                      "c2 x", "c2x-", "c2x_", "=c2x", "cw==c2x1", "c2x1\n"};
    sl_buf buf;
    sl_buf_init(&buf, 100);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        SL_TEST_ERR(sl_base64_decode(&buf, sl_slice_str(bad[i])), SL_EMALFORMED);
        assert_int_equal(sl_buf_peek(&buf).len, 0);
    }
    sl_buf_fini(&buf);
    sl_buf_init(&buf, 3);
    SL_TEST_ERR(sl_base64_write(&buf, sl_slice_str("a")), SL_ETOOBIG);
    SL_TEST_ERR(sl_base64_decode(&buf, sl_slice_str("c2x1aWNl")), SL_ETOOBIG);
    sl_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_agrees_with_the_definition_at_all_borders),
        cmocka_unit_test(test_utf8_finds_faults_at_any_place_in_ascii),
        cmocka_unit_test(test_utf8_agrees_with_the_definition_on_random_text),
        cmocka_unit_test(test_base64_of_known_texts),
        cmocka_unit_test(test_base64_comes_back_for_random_bytes),
        cmocka_unit_test(test_base64_refuses_what_is_not_canonical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
