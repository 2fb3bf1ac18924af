/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_rows: the window of live rows against a plain array, packet ids around their wrap.
 */
#include "store/inbox_rows.h"

#include "sl_test.h"

#include "base/alloc.h"

static void test_ids_follow_rows_and_wrap(void **state)
{
    (void)state;
    assert_int_equal(inbox_packet_id(1), 1);
    assert_int_equal(inbox_packet_id(65535), 65535);
    assert_int_equal(inbox_packet_id(65536), 1);
    assert_int_equal(inbox_packet_id(UINT64_C(65535) * 1000 + 7), 7);
}

static void test_choose_skips_ids_in_the_box(void **state)
{
    (void)state;
    inbox_rows rs = {0};
    assert_int_equal(inbox_rows_choose(&rs, 0, 0), 1);
    assert_int_equal(inbox_rows_choose(&rs, 70000, 0), 70001);
    inbox_rows_add(&rs, 5);
    inbox_rows_add(&rs, 6);
    inbox_rows_add(&rs, 65535 + 7);
    assert_int_equal(inbox_rows_choose(&rs, 65535 + 4, 0), 65535 + 7 - 0);
    assert_int_equal(inbox_rows_choose(&rs, 65535 + 7, 0), 65535 + 8);
    /* Ids of rows that go in the same step are free. */
    assert_int_equal(inbox_rows_choose(&rs, 65535 + 4, 5), 65535 + 5);
    /* A row two rounds back counts as well. */
    assert_int_equal(inbox_rows_choose(&rs, 2 * 65535 + 4, 0), 2 * 65535 + 8);
    inbox_rows_fini(&rs);
}

static void test_choose_finds_the_one_free_id(void **state)
{
    (void)state;
    inbox_rows rs = {0};
    inbox_rows_fill(&rs, 1, 65535);
    assert_true(inbox_rows_remove(&rs, 300));
    assert_int_equal(inbox_rows_choose(&rs, 65535, 0), 65535 + 300);
    assert_int_equal(rs.count, 65534);
    inbox_rows_fini(&rs);
}

static void test_find_by_packet_id(void **state)
{
    (void)state;
    inbox_rows rs = {0};
    assert_int_equal(inbox_rows_find(&rs, 0, 1), 0);
    inbox_rows_add(&rs, 3);
    inbox_rows_add(&rs, 65535 + 9);
    uint64_t last = 65535 + 20;
    assert_int_equal(inbox_rows_find(&rs, last, 3), 3);
    assert_int_equal(inbox_rows_find(&rs, last, 9), 65535 + 9);
    assert_int_equal(inbox_rows_find(&rs, last, 20), 0);
    assert_int_equal(inbox_rows_find(&rs, last, 21), 0);
    assert_int_equal(inbox_rows_find(&rs, last, 0), 0);
    assert_int_equal(inbox_rows_find(&rs, 3, 4), 0);
    assert_int_equal(inbox_rows_find(&rs, 3, 65535), 0);
    inbox_rows_fini(&rs);
}

/* A window that moves: rows come in order with gaps, go at random; one stays very long. */
static void test_window_agrees_with_an_array(void **state)
{
    (void)state;
    enum { ROWS = 60000 };
    bool *live = sl_calloc(ROWS + 1, sizeof(*live));
    inbox_rows rs = {0};
    uint64_t rnd = 7, last = 0, first = 1;
    size_t count = 0;
    while (last < ROWS - 70) {
        rnd = rnd * 6364136223846793005u + 1442695040888963407u;
        if (rnd >> 63 != 0) {
            last += 1 + (rnd >> 40) % ((rnd >> 59 & 15) == 0 ? 70 : 2);
            inbox_rows_add(&rs, last);
            live[last] = true;
            count++;
        } else if (count > 0) {
            uint64_t row = first + (rnd >> 30) % (last - first + 1);
            bool keep = row < 100 && last < ROWS / 2;
            if (!keep) {
                assert_int_equal(inbox_rows_remove(&rs, row), live[row]);
                count -= live[row];
                live[row] = false;
            }
        }
        while (first < last && !live[first])
            first++;
        assert_int_equal(rs.count, count);
        assert_int_equal(inbox_rows_first(&rs), count > 0 ? first : 0);
    }
    uint64_t row = 0;
    for (uint64_t i = 1; i <= ROWS; i++) {
        assert_int_equal(inbox_rows_has(&rs, i), live[i]);
        if (live[i])
            assert_int_equal((row = inbox_rows_next(&rs, row)), i);
    }
    assert_int_equal(inbox_rows_next(&rs, row), 0);
    inbox_rows_clear(&rs);
    assert_int_equal(inbox_rows_first(&rs), 0);
    assert_false(inbox_rows_has(&rs, row));
    inbox_rows_add(&rs, UINT64_C(1) << 40);
    assert_int_equal(inbox_rows_first(&rs), UINT64_C(1) << 40);
    inbox_rows_fini(&rs);
    sl_free(live);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ids_follow_rows_and_wrap),
        cmocka_unit_test(test_choose_skips_ids_in_the_box),
        cmocka_unit_test(test_choose_finds_the_one_free_id),
        cmocka_unit_test(test_find_by_packet_id),
        cmocka_unit_test(test_window_agrees_with_an_array),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
