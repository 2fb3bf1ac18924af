/* SPDX-License-Identifier: Apache-2.0
 *
 * The UTF-8 check against a plain reading of the rules: every sequence of up to three bytes, every
 * code point, and every position in a word of the fast path.
 */
#include "sl_test.h"

#include "mqtt/utf8.h"

/* Decodes like a textbook: number of the next character, or -1. */
static long next_point(const uint8_t *p, size_t len, size_t *used)
{
    static const long least[] = {0, 0, 0x80, 0x800, 0x10000};
    size_t size = p[0] < 0x80       ? 1
                  : p[0] >> 5 == 6  ? 2
                  : p[0] >> 4 == 14 ? 3
                  : p[0] >> 3 == 30 ? 4
                                    : 0;
    if (size == 0 || size > len)
        return -1;
    long point = size == 1 ? p[0] : p[0] & (0x7F >> size);
    for (size_t i = 1; i < size; i++) {
        if (p[i] >> 6 != 2)
            return -1;
        point = point << 6 | (p[i] & 0x3F);
    }
    *used = size;
    return point < least[size] ? -1 : point;
}

static bool plain_check(const uint8_t *p, size_t len)
{
    while (len > 0) {
        size_t used = 0;
        long point = next_point(p, len, &used);
        if (point <= 0 || point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF))
            return false;
        p += used;
        len -= used;
    }
    return true;
}

static void test_utf8_agrees_on_every_three_bytes(void **state)
{
    (void)state;
    for (uint32_t n = 0; n < 1u << 24; n += 1) {
        uint8_t bytes[3] = {(uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n};
        if (plain_check(bytes, 3) != sl_mqtt_utf8_check(sl_slice_of(bytes, 3), NULL))
            fail_msg("%02x %02x %02x", bytes[0], bytes[1], bytes[2]);
    }
    for (uint32_t n = 0; n < 1u << 16; n++) {
        uint8_t bytes[2] = {(uint8_t)(n >> 8), (uint8_t)n};
        if (plain_check(bytes, 2) != sl_mqtt_utf8_check(sl_slice_of(bytes, 2), NULL))
            fail_msg("%02x %02x", bytes[0], bytes[1]);
    }
}

static void test_utf8_agrees_on_four_byte_forms(void **state)
{
    (void)state;
    for (unsigned lead = 0xEF; lead <= 0xFF; lead++) {
        for (unsigned second = 0; second < 256; second++) {
            static const uint8_t tails[][2] = {{0x80, 0x80}, {0xBF, 0xBF}, {0x7F, 0x80},
                                               {0x80, 0xC0}, {0xC0, 0x80}, {0x80, 0x00}};
            for (size_t i = 0; i < sizeof(tails) / sizeof(tails[0]); i++) {
                uint8_t bytes[4] = {(uint8_t)lead, (uint8_t)second, tails[i][0], tails[i][1]};
                assert_int_equal(plain_check(bytes, 4),
                                 sl_mqtt_utf8_check(sl_slice_of(bytes, 4), NULL));
            }
        }
    }
}

/* One special character at every place of texts around the size of a word. */
static void test_utf8_sees_a_byte_at_every_place(void **state)
{
    (void)state;
    for (size_t len = 1; len < 40; len++) {
        for (size_t at = 0; at < len; at++) {
            uint8_t text[40];
            bool wildcard = true;
            memset(text, 'x', sizeof(text));
            assert_true(sl_mqtt_utf8_check(sl_slice_of(text, len), &wildcard));
            assert_false(wildcard);
            text[at] = 0;
            assert_false(sl_mqtt_utf8_check(sl_slice_of(text, len), &wildcard));
            text[at] = 0x80;
            assert_false(sl_mqtt_utf8_check(sl_slice_of(text, len), &wildcard));
            text[at] = '+';
            assert_true(sl_mqtt_utf8_check(sl_slice_of(text, len), &wildcard));
            assert_true(wildcard);
            text[at] = '#';
            assert_true(sl_mqtt_utf8_check(sl_slice_of(text, len), &wildcard));
            assert_true(wildcard);
            text[at] = 0x01; // next to NUL, which a careless word test takes for one
            assert_true(sl_mqtt_utf8_check(sl_slice_of(text, len), &wildcard));
            assert_false(wildcard);
        }
    }
}

static void test_utf8_of_nothing_is_fine(void **state)
{
    (void)state;
    bool wildcard = true;
    assert_true(sl_mqtt_utf8_check(sl_slice_of(NULL, 0), &wildcard));
    assert_false(wildcard);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_utf8_agrees_on_every_three_bytes),
        cmocka_unit_test(test_utf8_agrees_on_four_byte_forms),
        cmocka_unit_test(test_utf8_sees_a_byte_at_every_place),
        cmocka_unit_test(test_utf8_of_nothing_is_fine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
