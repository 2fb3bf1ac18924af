/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/map: both maps against an array of all possible keys, under random operations.
 */
#include "sl_test.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "random.h"

#define KEYS 300u

// Keys of many lengths, some a beginning of others, some with NUL inside.
static sl_slice key_of(unsigned number, char room[64])
{
    memset(room, 0, 64);
    snprintf(room, 64, "k%u", number / 3);
    size_t len = strlen(room) + number % 3 * 7;
    return sl_slice_of(room, len);
}

static void check_against(const sl_map *map, void *const *model)
{
    size_t count = 0;
    for (unsigned i = 0; i < KEYS; i++) {
        char room[64];
        assert_ptr_equal(sl_map_get(map, key_of(i, room)), model[i]);
        count += model[i] != NULL;
    }
    assert_int_equal(sl_map_count(map), count);
    size_t pos = 0, seen = 0;
    sl_slice key;
    void *value;
    bool found[KEYS] = {false};
    while (sl_map_each(map, &pos, &key, &value)) {
        seen++;
        unsigned match = KEYS;
        for (unsigned i = 0; i < KEYS; i++) {
            char room[64];
            if (sl_slice_equal(key, key_of(i, room)))
                match = i;
        }
        assert_true(match < KEYS);
        assert_false(found[match]);
        found[match] = true;
        assert_ptr_equal(value, model[match]);
    }
    assert_int_equal(seen, count);
}

static void test_map_follows_a_model(void **state)
{
    (void)state;
    rng rg = {3};
    sl_map *map = sl_map_new(0);
    void *model[KEYS] = {NULL};
    static char values[1000];
    for (int step = 0; step < 40000; step++) {
        char room[64];
        unsigned number = rng_below(&rg, KEYS);
        sl_slice key = key_of(number, room);
        // The share of puts swings, so that the map fills, empties and is rebuilt both ways.
        unsigned puts = step / 4000 % 2 == 0 ? 70 : 25;
        if (rng_below(&rg, 100) < puts) {
            void *old = &old;
            void *value = &values[rng_below(&rg, 1000)];
            SL_TEST_OK(sl_map_put(map, key, value, rng_below(&rg, 2) == 0 ? NULL : &old));
            assert_true(old == &old || old == model[number]);
            model[number] = value;
        } else {
            assert_ptr_equal(sl_map_remove(map, key), model[number]);
            model[number] = NULL;
        }
        if (step % 1000 == 0)
            check_against(map, model);
    }
    check_against(map, model);
    sl_map_free(&map);
    assert_null(map);
    sl_map_free(&map);
}

static void test_imap_follows_a_model(void **state)
{
    (void)state;
    rng rg = {9};
    sl_imap *map = sl_imap_new(0);
    void *model[KEYS] = {NULL};
    static char values[1000];
    const uint64_t stride = 0x100000000ull; // keys that differ in their high half only
    for (int step = 0; step < 60000; step++) {
        unsigned number = rng_below(&rg, KEYS);
        unsigned puts = step / 5000 % 2 == 0 ? 70 : 25;
        if (rng_below(&rg, 100) < puts) {
            void *old = NULL;
            void *value = &values[rng_below(&rg, 1000)];
            SL_TEST_OK(sl_imap_put(map, number * stride, value, &old));
            assert_ptr_equal(old, model[number]);
            model[number] = value;
        } else {
            assert_ptr_equal(sl_imap_remove(map, number * stride), model[number]);
            model[number] = NULL;
        }
        assert_ptr_equal(sl_imap_get(map, number * stride), model[number]);
    }
    size_t count = 0, seen = 0, pos = 0;
    for (unsigned i = 0; i < KEYS; i++)
        count += model[i] != NULL;
    uint64_t key;
    void *value;
    while (sl_imap_each(map, &pos, &key, &value)) {
        assert_ptr_equal(value, model[key / stride]);
        seen++;
    }
    assert_int_equal(seen, count);
    assert_int_equal(sl_imap_count(map), count);
    sl_imap_free(&map);
    assert_null(map);
    sl_imap_free(&map);
}

static void test_map_stops_at_its_maximum(void **state)
{
    (void)state;
    int value = 0, other = 0;
    sl_map *map = sl_map_new(2);
    SL_TEST_OK(sl_map_put(map, sl_slice_str("a"), &value, NULL));
    SL_TEST_OK(sl_map_put(map, sl_slice_str("b"), &value, NULL));
    SL_TEST_ERR(sl_map_put(map, sl_slice_str("c"), &value, NULL), SL_ELIMIT);
    void *old;
    SL_TEST_OK(sl_map_put(map, sl_slice_str("b"), &other, &old)); // replacing needs no room
    assert_ptr_equal(old, &value);
    assert_ptr_equal(sl_map_remove(map, sl_slice_str("a")), &value);
    SL_TEST_OK(sl_map_put(map, sl_slice_str("c"), &value, NULL));
    sl_map_free(&map);
    sl_imap *imap = sl_imap_new(1);
    SL_TEST_OK(sl_imap_put(imap, 0, &value, NULL));
    SL_TEST_ERR(sl_imap_put(imap, UINT64_MAX, &value, NULL), SL_ELIMIT);
    assert_ptr_equal(sl_imap_remove(imap, 0), &value);
    SL_TEST_OK(sl_imap_put(imap, UINT64_MAX, &value, NULL));
    sl_imap_free(&imap);
}

static void test_map_takes_the_empty_key_and_copies_keys(void **state)
{
    (void)state;
    int value = 0;
    char name[] = "name";
    sl_map *map = sl_map_new(0);
    assert_null(sl_map_get(map, sl_slice_str("x")));
    assert_null(sl_map_remove(map, sl_slice_str("x")));
    SL_TEST_OK(sl_map_put(map, sl_slice_of(NULL, 0), &value, NULL));
    SL_TEST_OK(sl_map_put(map, sl_slice_str(name), &value, NULL));
    name[0] = 'X';
    assert_ptr_equal(sl_map_get(map, sl_slice_str("name")), &value);
    assert_ptr_equal(sl_map_get(map, sl_slice_str("")), &value);
    assert_int_equal(sl_map_count(map), 2);
    sl_map_free(&map);
}

static void test_map_each_allows_removing_what_it_returned(void **state)
{
    (void)state;
    int value = 0;
    sl_map *map = sl_map_new(0);
    sl_imap *imap = sl_imap_new(0);
    for (unsigned i = 0; i < KEYS; i++) {
        char room[64];
        SL_TEST_OK(sl_map_put(map, key_of(i, room), &value, NULL));
        SL_TEST_OK(sl_imap_put(imap, i, &value, NULL));
    }
    size_t pos = 0, seen = 0;
    sl_slice key;
    while (sl_map_each(map, &pos, &key, NULL)) {
        seen++;
        char copy[64];
        memcpy(copy, key.ptr, key.len);
        assert_ptr_equal(sl_map_remove(map, sl_slice_of(copy, key.len)), &value);
    }
    assert_int_equal(seen, KEYS);
    assert_int_equal(sl_map_count(map), 0);
    uint64_t number;
    for (pos = seen = 0; sl_imap_each(imap, &pos, &number, NULL); seen++)
        assert_ptr_equal(sl_imap_remove(imap, number), &value);
    assert_int_equal(seen, KEYS);
    sl_map_free(&map);
    sl_imap_free(&imap);
}

// Adding and removing for ever must neither fill the table with tombstones nor hang a search.
static void test_map_survives_endless_turnover(void **state)
{
    (void)state;
    int value = 0;
    sl_map *map = sl_map_new(4);
    for (unsigned i = 0; i < 200000; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%u", i);
        SL_TEST_OK(sl_map_put(map, sl_slice_str(name), &value, NULL));
        if (i >= 3) {
            snprintf(name, sizeof(name), "%u", i - 3);
            assert_ptr_equal(sl_map_remove(map, sl_slice_str(name)), &value);
        }
    }
    assert_int_equal(sl_map_count(map), 3);
    sl_map_free(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_map_follows_a_model),
        cmocka_unit_test(test_imap_follows_a_model),
        cmocka_unit_test(test_map_stops_at_its_maximum),
        cmocka_unit_test(test_map_takes_the_empty_key_and_copies_keys),
        cmocka_unit_test(test_map_each_allows_removing_what_it_returned),
        cmocka_unit_test(test_map_survives_endless_turnover),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
