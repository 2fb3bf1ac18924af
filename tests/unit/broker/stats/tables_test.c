/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of the broker's tables: every row is whole, names follow Prometheus' rules, one help text
 * per metric, and the limits follow the configuration.
 */
#include "sl_test.h"

#include <string.h>

#include "base/alloc.h"
#include "broker_conf.h"
#include "stats/broker_stats.h"

static void test_every_counter_row_is_whole(void **state)
{
    (void)state;
    for (unsigned i = 0; i < SL_BS_COUNT; i++) {
        const sl_stat_row *row = &SL_BROKER_STAT_ROWS[i];
        assert_non_null(row->name);
        assert_non_null(row->help);
        assert_memory_equal(row->name, "sluice_", 7);
        size_t len = strlen(row->name);
        bool total = len > 6 && strcmp(row->name + len - 6, "_total") == 0;
        assert_int_equal(total, row->kind == SL_STAT_COUNTER);
        for (unsigned k = 0; k < i; k++) {
            const sl_stat_row *other = &SL_BROKER_STAT_ROWS[k];
            if (strcmp(row->name, other->name) != 0)
                continue;
            assert_string_equal(row->help, other->help);
            assert_true(row->labels != NULL && other->labels != NULL &&
                        strcmp(row->labels, other->labels) != 0);
        }
    }
}

static void test_limits_follow_the_configuration(void **state)
{
    (void)state;
    sl_conf *cf = sl_conf_new(SL_BROKER_CONF_ROWS, SL_BROKER_CONF_COUNT);
    sl_limits lim;
    sl_broker_conf_limits(cf, &lim);
    assert_int_equal(lim.max_in_flight, 1000);
    assert_int_equal(lim.max_packet_bytes, 65536 + 5);
    assert_int_equal(lim.out_high_bytes, 1280 * 1024);
    assert_int_equal(lim.inbox_ttl, 604800000);
    char *why = NULL;
    SL_TEST_OK(sl_conf_set(cf, "mqtt.max-in-flight-msgs", "7", &why));
    sl_broker_conf_limits(cf, &lim);
    assert_int_equal(lim.max_in_flight, 7);
    SL_TEST_ERR(sl_conf_set(cf, "mqtt.max-in-flight-msgs", "40000", &why), SL_EINVAL);
    assert_non_null(strstr(why, "mqtt.max-in-flight-msgs"));
    sl_free(why);
    sl_conf_free(&cf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_counter_row_is_whole),
        cmocka_unit_test(test_limits_follow_the_configuration),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
