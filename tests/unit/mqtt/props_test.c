/* SPDX-License-Identifier: Apache-2.0
 *
 * The property table and the iterators; where which property may stand is checked by the vectors.
 */
#include "sl_test.h"

#include "mqtt/props.h"

static void test_props_table_has_the_27_properties(void **state)
{
    (void)state;
    unsigned count = 0;
    uint32_t bits = 0;
    for (uint32_t id = 0; id < 300; id++) {
        const sl_mqtt_prop_row *row = sl_mqtt_prop_find(id);
        if (row == NULL)
            continue;
        assert_int_equal(row->id, id);
        assert_int_equal(bits & row->bit, 0);
        assert_int_equal(row->repeat & ~row->where, 0);
        assert_non_null(row->name);
        bits |= row->bit;
        count++;
    }
    assert_int_equal(count, 27);
    assert_int_equal(bits, (1u << 27) - 1);
}

/* 0x26 a=1, 0x0B 5, 0x26 a=2, 0x0B 300 */
static const uint8_t mixed[] = {0x26, 0, 1,   'a', 0, 1,   '1',  0x0B, 5,   0x26,
                                0,    1, 'a', 0,   1, '2', 0x0B, 0xAC, 0x02};

static void test_props_iterators_keep_order_and_repeats(void **state)
{
    (void)state;
    sl_slice raw = sl_slice_of(mixed, sizeof(mixed));
    sl_mqtt_user_prop up;
    size_t pos = 0;
    assert_true(sl_mqtt_user_next(raw, &pos, &up));
    SL_TEST_SLICE(up.name, "a");
    SL_TEST_SLICE(up.value, "1");
    assert_true(sl_mqtt_user_next(raw, &pos, &up));
    SL_TEST_SLICE(up.value, "2");
    assert_false(sl_mqtt_user_next(raw, &pos, &up));
    uint32_t id;
    pos = 0;
    assert_true(sl_mqtt_sub_id_next(raw, &pos, &id));
    assert_int_equal(id, 5);
    assert_true(sl_mqtt_sub_id_next(raw, &pos, &id));
    assert_int_equal(id, 300);
    assert_false(sl_mqtt_sub_id_next(raw, &pos, &id));
}

static void test_props_views_put_together_are_the_whole(void **state)
{
    (void)state;
    sl_slice raw = sl_slice_of(mixed, sizeof(mixed));
    sl_mqtt_prop_view pv;
    size_t pos = 0, total = 0;
    while (sl_mqtt_prop_next(raw, &pos, &pv)) {
        assert_ptr_equal(pv.wire.ptr, mixed + total);
        total += pv.wire.len;
    }
    assert_int_equal(total, sizeof(mixed));
}

static void test_props_iterators_stop_at_bytes_that_are_no_property(void **state)
{
    (void)state;
    sl_mqtt_prop_view pv;
    for (size_t len = 1; len < sizeof(mixed); len++) {
        size_t pos = 0, last = 0;
        while (sl_mqtt_prop_next(sl_slice_of(mixed, len), &pos, &pv))
            last = pos;
        assert_true(last <= len);
    }
    size_t pos = 0;
    assert_false(sl_mqtt_prop_next(sl_slice_of(NULL, 0), &pos, &pv));
    assert_false(sl_mqtt_prop_next(sl_slice_of("\x7f\x01", 2), &pos, &pv));
}

static void test_props_parse_keeps_the_first_subscription_identifier(void **state)
{
    (void)state;
    sl_mqtt_props props;
    sl_mqtt_rc rc;
    const char *why;
    SL_TEST_OK(sl_mqtt_props_parse(sl_slice_of(mixed, sizeof(mixed)), SL_PROPS_OF(SL_MQTT_PUBLISH),
                                   &props, &rc, &why));
    assert_int_equal(props.subscription_id, 5);
    assert_int_equal(props.has, SL_PROP_USER | SL_PROP_SUBSCRIPTION_ID);
    SL_TEST_ERR(
        sl_mqtt_props_parse(sl_slice_of(mixed, sizeof(mixed)), SL_PROPS_OF_WILL, &props, &rc, &why),
        SL_EMALFORMED);
    SL_TEST_OK(sl_mqtt_props_parse(sl_slice_of(NULL, 0), SL_PROPS_OF_WILL, &props, &rc, &why));
    assert_int_equal(props.has, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_props_table_has_the_27_properties),
        cmocka_unit_test(test_props_iterators_keep_order_and_repeats),
        cmocka_unit_test(test_props_views_put_together_are_the_whole),
        cmocka_unit_test(test_props_iterators_stop_at_bytes_that_are_no_property),
        cmocka_unit_test(test_props_parse_keeps_the_first_subscription_identifier),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
