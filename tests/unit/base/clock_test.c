/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/clock: the fake clock, and dates without the C library's calendar.
 */
#include "sl_test.h"

#include <time.h>

#include "base/clock.h"
#include "random.h"

static void test_fake_clock_stands_until_advanced(void **state)
{
    (void)state;
    sl_clock ck;
    sl_clock_init_fake(&ck, 5, 1000000);
    assert_true(sl_clock_is_fake(&ck));
    assert_int_equal(sl_clock_mono(&ck), 5);
    assert_int_equal(sl_clock_wall(&ck), 1000000);
    sl_clock_advance(&ck, 250);
    assert_int_equal(sl_clock_mono(&ck), 255);
    assert_int_equal(sl_clock_wall(&ck), 1000250);
    assert_true(sl_clock_mono_ns(&ck) == 255000000);
    assert_true(sl_clock_wall_ns(&ck) == 1000250000000);
}

static void test_real_clock_agrees_with_the_machine(void **state)
{
    (void)state;
    sl_clock ck;
    sl_clock_init(&ck);
    assert_false(sl_clock_is_fake(&ck));
    struct timespec before, after;
    clock_gettime(CLOCK_MONOTONIC, &before);
    uint64_t mono = sl_clock_mono_ns(&ck);
    clock_gettime(CLOCK_MONOTONIC, &after);
    assert_true(mono >= (uint64_t)before.tv_sec * 1000000000u + (uint64_t)before.tv_nsec);
    assert_true(mono <= (uint64_t)after.tv_sec * 1000000000u + (uint64_t)after.tv_nsec);
    assert_true(sl_clock_mono(&ck) >= (int64_t)(mono / 1000000));
    time_t wall = time(NULL);
    assert_true(sl_clock_wall(&ck) / 1000 >= (int64_t)wall - 1);
    assert_true(sl_clock_wall_ns(&ck) / 1000000000 >= (int64_t)wall - 1);
}

static void test_iso_format_of_known_times(void **state)
{
    (void)state;
    static const struct {
        int64_t wall_ns;
        const char *want;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000000000Z"},
        {-1, "1969-12-31T23:59:59.999999999Z"},
        {1796070410123456789, "2026-11-30T20:26:50.123456789Z"},
        {951782400000000000, "2000-02-29T00:00:00.000000000Z"},
        {4107542400000000000, "2100-03-01T00:00:00.000000000Z"},
        {INT64_MAX, "2262-04-11T23:47:16.854775807Z"},
        {INT64_MIN, "1677-09-21T00:12:43.145224192Z"},
    };
    char text[SL_CLOCK_ISO_BYTES];
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        sl_clock_format_iso(cases[i].wall_ns, text);
        assert_string_equal(text, cases[i].want);
    }
}

static void test_iso_format_agrees_with_the_calendar(void **state)
{
    (void)state;
    rng rg = {77};
    for (int i = 0; i < 20000; i++) {
        int64_t ns = (int64_t)rng_next(&rg);
        int64_t seconds = ns / 1000000000 - (ns % 1000000000 < 0);
        struct tm tm;
        time_t when = (time_t)seconds;
        assert_non_null(gmtime_r(&when, &tm));
        char want[SL_CLOCK_ISO_BYTES], text[SL_CLOCK_ISO_BYTES];
        assert_true(strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%S", &tm) > 0);
        sl_clock_format_iso(ns, text);
        text[19] = '\0';
        assert_string_equal(text, want);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fake_clock_stands_until_advanced),
        cmocka_unit_test(test_real_clock_agrees_with_the_machine),
        cmocka_unit_test(test_iso_format_of_known_times),
        cmocka_unit_test(test_iso_format_agrees_with_the_calendar),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
