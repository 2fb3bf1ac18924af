/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/cover, by example and against brute force.
 */
#include "cover.h"

#include "filters.h"
#include "sl_test.h"

static bool in_cover(sl_cover_item *items, size_t count, const char *filter, uint8_t *qos)
{
    for (size_t i = 0; i < count; i++) {
        if (sl_slice_equal(items[i].filter, sl_slice_str(filter))) {
            *qos = items[i].qos;
            return items[i].in_cover;
        }
    }
    fail_msg("%s is not in the list", filter);
    return false;
}

static void test_cover_wide_filter_takes_the_highest_qos(void **state)
{
    (void)state;
    sl_cover_item items[] = {{.filter = sl_slice_str("s/#"), .qos = 0},
                             {.filter = sl_slice_str("s/+"), .qos = 1},
                             {.filter = sl_slice_str("s/t"), .qos = 2},
                             {.filter = sl_slice_str("other"), .qos = 1}};
    sl_cover_compute(items, 4);
    uint8_t qos;
    assert_true(in_cover(items, 4, "s/#", &qos));
    assert_int_equal(qos, 2);
    assert_false(in_cover(items, 4, "s/+", &qos));
    assert_false(in_cover(items, 4, "s/t", &qos));
    assert_true(in_cover(items, 4, "other", &qos));
    assert_int_equal(qos, 1);
}

static void test_cover_hash_does_not_cover_dollar(void **state)
{
    (void)state;
    sl_cover_item items[] = {{.filter = sl_slice_str("#"), .qos = 0},
                             {.filter = sl_slice_str("$SYS/#"), .qos = 0}};
    sl_cover_compute(items, 2);
    uint8_t qos;
    assert_true(in_cover(items, 2, "#", &qos));
    assert_true(in_cover(items, 2, "$SYS/#", &qos));
}

static bool is_listed(sl_cover_item *items, size_t count, const char *filter)
{
    for (size_t i = 0; i < count; i++) {
        if (sl_slice_equal(items[i].filter, sl_slice_str(filter)))
            return true;
    }
    return false;
}

/* Every topic that a filter of the list matches, one of the cover matches, at that QoS at least;
 * and no filter of the cover is inside another one. */
static void check_cover(const sl_cover_item *items, const uint8_t *asked, size_t count,
                        const topic_set *set)
{
    for (size_t t = 0; t < set->count; t++) {
        sl_slice topic = sl_slice_str(set->topic[t]);
        int wanted = -1, got = -1;
        for (size_t i = 0; i < count; i++) {
            if (!sl_mqtt_filter_matches(items[i].filter, topic))
                continue;
            if (asked[i] > wanted)
                wanted = asked[i];
            if (items[i].in_cover && items[i].qos > got)
                got = items[i].qos;
        }
        assert_true(got >= wanted);
    }
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < count; k++) {
            if (i != k && items[i].in_cover && items[k].in_cover)
                assert_false(sl_mqtt_filter_covers(items[i].filter, items[k].filter));
        }
    }
}

static void test_cover_of_random_filters_loses_nothing(void **state)
{
    (void)state;
    static topic_set set;
    all_topics(&set);
    uint64_t seed = 1;
    for (int round = 0; round < 300; round++) {
        char texts[12][FILTER_BYTES];
        sl_cover_item items[12];
        uint8_t asked[12];
        size_t count = 0;
        for (int i = 0; i < 12; i++) {
            random_filter(&seed, texts[count]);
            if (is_listed(items, count, texts[count]))
                continue;
            asked[count] = (uint8_t)random_below(&seed, 3);
            items[count] =
                (sl_cover_item){.filter = sl_slice_str(texts[count]), .qos = asked[count]};
            count++;
        }
        sl_cover_compute(items, count);
        check_cover(items, asked, count, &set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cover_wide_filter_takes_the_highest_qos),
        cmocka_unit_test(test_cover_hash_does_not_cover_dollar),
        cmocka_unit_test(test_cover_of_random_filters_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
