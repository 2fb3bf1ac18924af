/* SPDX-License-Identifier: Apache-2.0
 *
 * sub_matches: overlapping subscriptions of one client become one delivery.
 */
#include "sl_test.h"

#include "base/alloc.h"
#include "route/sub_trie.h"

static sl_sub_matches matches_of(const sl_sub *subs, size_t count, size_t lists)
{
    sl_sub_matches mt = {.items = sl_alloc(count * sizeof(*subs)), .count = count, .cap = count};
    memcpy(mt.items, subs, count * sizeof(*subs));
    mt.lists = lists;
    return mt;
}

static void test_merge_gives_highest_qos_and_its_options(void **state)
{
    (void)state;
    const sl_sub subs[] = {
        {.client = 2, .sub_id = 5, .qos = 1},
        {.client = 9, .sub_id = 0, .qos = 0},
        {.client = 2, .sub_id = 6, .qos = 2, .flags = SL_SUB_RETAIN_AS_PUBLISHED},
        {.client = 2, .sub_id = 5, .qos = 2},
    };
    sl_sub_matches mt = matches_of(subs, 4, 3);
    sl_sub_matches_merge(&mt);
    size_t pos = 0;
    sl_sub_delivery dv;
    assert_true(sl_sub_matches_next(&mt, &pos, &dv));
    assert_int_equal(dv.client, 2);
    assert_int_equal(dv.qos, 2);
    assert_int_equal(dv.flags, SL_SUB_RETAIN_AS_PUBLISHED);
    assert_int_equal(dv.count, 3);
    uint32_t ids[4];
    assert_int_equal(sl_sub_delivery_ids(&dv, ids, 4), 2);
    assert_int_equal(ids[0], 5);
    assert_int_equal(ids[1], 6);
    assert_int_equal(sl_sub_delivery_ids(&dv, ids, 1), 1);
    assert_true(sl_sub_matches_next(&mt, &pos, &dv));
    assert_int_equal(dv.client, 9);
    assert_int_equal(dv.count, 1);
    assert_int_equal(sl_sub_delivery_ids(&dv, ids, 4), 0);
    assert_false(sl_sub_matches_next(&mt, &pos, &dv));
    sl_sub_matches_fini(&mt);
    assert_null(mt.items);
}

static void test_merge_of_one_list_moves_nothing(void **state)
{
    (void)state;
    const sl_sub subs[] = {{.client = 1}, {.client = 4}, {.client = 8}};
    sl_sub_matches mt = matches_of(subs, 3, 1);
    const sl_sub *before = mt.items;
    sl_sub_matches_merge(&mt);
    assert_ptr_equal(mt.items, before);
    assert_memory_equal(mt.items, subs, sizeof(subs));
    sl_sub_matches_fini(&mt);
}

/* Runs of every shape; sub_id is the position before, so that stability shows. */
static void test_merge_sorts_any_runs_and_keeps_their_order(void **state)
{
    (void)state;
    uint64_t rnd = 12345;
    for (unsigned round = 0; round < 400; round++) {
        size_t count = 2 + round;
        sl_sub *subs = sl_calloc(count, sizeof(*subs));
        size_t lists = 0;
        uint32_t client = 0;
        for (size_t i = 0; i < count; i++) {
            rnd = rnd * 6364136223846793005u + 1442695040888963407u;
            bool new_run = i == 0 || (rnd >> 60) == 0;
            lists += new_run;
            client = new_run ? (uint32_t)(rnd >> 40) % 50 : client + 1 + (uint32_t)(rnd >> 61);
            subs[i] = (sl_sub){.client = client, .sub_id = (uint32_t)i};
        }
        sl_sub_matches mt = matches_of(subs, count, lists);
        sl_sub_matches_merge(&mt);
        assert_int_equal(mt.count, count);
        uint64_t sum = mt.items[0].sub_id;
        for (size_t i = 1; i < count; i++) {
            const sl_sub *left = &mt.items[i - 1], *right = &mt.items[i];
            sum += right->sub_id;
            assert_true(left->client <= right->client);
            assert_true(left->client < right->client || left->sub_id < right->sub_id);
        }
        assert_int_equal(sum, (uint64_t)count * (count - 1) / 2);
        sl_sub_matches_fini(&mt);
        sl_free(subs);
    }
}

static bool is_even(void *arg, const sl_sub *sub)
{
    (*(unsigned *)arg)++;
    return sub->client % 2 == 0;
}

static void test_keep_drops_and_keeps_order(void **state)
{
    (void)state;
    const sl_sub subs[] = {{.client = 3}, {.client = 4}, {.client = 6}, {.client = 1}};
    sl_sub_matches mt = matches_of(subs, 4, 2);
    unsigned asked = 0;
    sl_sub_matches_keep(&mt, is_even, &asked);
    assert_int_equal(asked, 4);
    assert_int_equal(mt.count, 2);
    assert_int_equal(mt.items[0].client, 4);
    assert_int_equal(mt.items[1].client, 6);
    sl_sub_matches_fini(&mt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_merge_gives_highest_qos_and_its_options),
        cmocka_unit_test(test_merge_of_one_list_moves_nothing),
        cmocka_unit_test(test_merge_sorts_any_runs_and_keeps_their_order),
        cmocka_unit_test(test_keep_drops_and_keeps_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
