/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of stamps: shared vectors, "older than", stored vectors, and numbers that are free again.
 */
#include "temp_log.h"

#include "session/stamps.h"

static void test_stamps_share_a_vector_while_the_log_stands_still(void **state)
{
    (void)state;
    temp_log tl;
    temp_log_open(&tl);
    sl_stamps *st = sl_stamps_new(tl.topic);
    uint32_t first = sl_stamps_now(st), second = sl_stamps_now(st);
    assert_int_not_equal(first, 0);
    assert_int_equal(first, second);
    sl_stamps_unref(st, first);
    sl_stamps_unref(st, second);
    sl_stamps_free(&st);
    temp_log_close(&tl);
}

static void test_stamps_tell_older_records_by_partition(void **state)
{
    (void)state;
    temp_log tl;
    temp_log_open(&tl);
    sl_stamps *st = sl_stamps_new(tl.topic);
    const uint64_t ends[] = {10, 0, 7, 1};
    uint32_t stamp = sl_stamps_add(st, ends, 4);
    assert_true(sl_stamps_is_older(st, stamp, 0, 9));
    assert_false(sl_stamps_is_older(st, stamp, 0, 10));
    assert_false(sl_stamps_is_older(st, stamp, 1, 0));
    assert_true(sl_stamps_is_older(st, stamp, 2, 6));
    assert_false(sl_stamps_is_older(st, stamp, 9, 0)); // a partition it does not know
    assert_false(sl_stamps_is_older(st, 0, 0, 0));     // no stamp: everything counts
    uint64_t got[4];
    sl_stamps_get(st, stamp, got);
    assert_memory_equal(got, ends, sizeof(ends));
    sl_stamps_unref(st, stamp);
    // Freed: a reader that still has the number sees "everything counts".
    assert_false(sl_stamps_is_older(st, stamp, 0, 9));
    sl_stamps_free(&st);
    temp_log_close(&tl);
}

static void test_stamps_of_another_width_count_everything(void **state)
{
    (void)state;
    temp_log tl;
    temp_log_open(&tl);
    sl_stamps *st = sl_stamps_new(tl.topic);
    const uint64_t ends[] = {10, 20};
    assert_int_equal(sl_stamps_add(st, ends, 2), 0);
    sl_stamps_unref(st, 0);
    sl_stamps_free(&st);
    temp_log_close(&tl);
}

static void test_stamps_reuse_numbers_oldest_first(void **state)
{
    (void)state;
    temp_log tl;
    temp_log_open(&tl);
    sl_stamps *st = sl_stamps_new(tl.topic);
    uint32_t highest = 0;
    for (uint64_t i = 1; i <= 20000; i++) {
        const uint64_t ends[] = {i, i, i, i};
        uint32_t stamp = sl_stamps_add(st, ends, 4);
        assert_int_not_equal(stamp, 0);
        assert_true(sl_stamps_is_older(st, stamp, 3, i - 1));
        highest = stamp > highest ? stamp : highest;
        sl_stamps_unref(st, stamp);
    }
    assert_in_range(highest, 1, 5000); // memory does not grow with subscriptions that are gone
    sl_stamps_free(&st);
    temp_log_close(&tl);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stamps_share_a_vector_while_the_log_stands_still),
        cmocka_unit_test(test_stamps_tell_older_records_by_partition),
        cmocka_unit_test(test_stamps_of_another_width_count_everything),
        cmocka_unit_test(test_stamps_reuse_numbers_oldest_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
