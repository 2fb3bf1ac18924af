/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/slice: equality, order, hash, edit distance.
 */
#include "sl_test.h"

#include "base/slice.h"

static int sign(int value)
{
    return (value > 0) - (value < 0);
}

static void test_slice_equal_compares_bytes_not_text(void **state)
{
    (void)state;
    assert_true(sl_slice_equal(sl_slice_of("a\0b", 3), sl_slice_of("a\0b", 3)));
    assert_false(sl_slice_equal(sl_slice_of("a\0b", 3), sl_slice_of("a\0c", 3)));
    assert_false(sl_slice_equal(sl_slice_str("a"), sl_slice_str("ab")));
    assert_true(sl_slice_equal(sl_slice_of(NULL, 0), sl_slice_str("")));
}

static void test_slice_order_is_bytewise_and_shorter_first(void **state)
{
    (void)state;
    static const char *const sorted[] = {"", "a", "aa", "ab", "b", "\x7f", "\x80", "\xff"};
    const int count = (int)(sizeof(sorted) / sizeof(sorted[0]));
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++)
            assert_int_equal(
                sign(sl_slice_compare(sl_slice_str(sorted[i]), sl_slice_str(sorted[k]))),
                sign(i - k));
    assert_int_equal(sl_slice_compare(sl_slice_of(NULL, 0), sl_slice_of(NULL, 0)), 0);
}

static void test_slice_hash_is_xxh3(void **state)
{
    (void)state;
    // Stored data refers to it (partition choice), so the function must not change unnoticed.
    assert_true(sl_slice_hash(sl_slice_of(NULL, 0)) == 0x2d06800538d394c2ull);
    assert_true(sl_slice_hash(sl_slice_str("a")) != sl_slice_hash(sl_slice_str("b")));
    assert_true(sl_slice_hash(sl_slice_of("a\0", 2)) != sl_slice_hash(sl_slice_of("a", 1)));
}

static void test_slice_distance_counts_edits(void **state)
{
    (void)state;
    static const struct {
        const char *left, *right;
        size_t want;
    } cases[] = {
        {"", "", 0},         {"", "abc", 3},       {"port", "port", 0},
        {"prt", "port", 1},  {"port", "sport", 1}, {"port", "pork", 1},
        {"bind", "bnid", 2}, {"abc", "xyz", 3},    {"kitten", "sitting", 3},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sl_slice left = sl_slice_str(cases[i].left), right = sl_slice_str(cases[i].right);
        assert_int_equal(sl_slice_distance(left, right), cases[i].want);
        assert_int_equal(sl_slice_distance(right, left), cases[i].want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slice_equal_compares_bytes_not_text),
        cmocka_unit_test(test_slice_order_is_bytewise_and_shorter_first),
        cmocka_unit_test(test_slice_hash_is_xxh3),
        cmocka_unit_test(test_slice_distance_counts_edits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
