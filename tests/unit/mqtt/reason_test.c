/* SPDX-License-Identifier: Apache-2.0
 *
 * Reason codes: texts, their 3.x return codes, our errors.
 */
#include "sl_test.h"

#include "mqtt/reason.h"

static void test_reason_text_of_known_and_unknown_codes(void **state)
{
    (void)state;
    assert_string_equal(sl_mqtt_rc_text(0x8E), "session taken over");
    assert_string_equal(sl_mqtt_rc_text(0x00), "success");
    assert_string_equal(sl_mqtt_rc_text(0x03), "unknown reason");
    assert_string_equal(sl_mqtt_rc_text(0xFF), "unknown reason");
}

static void test_reason_becomes_the_return_code_of_3(void **state)
{
    (void)state;
    assert_int_equal(sl_mqtt_rc_to_v3(SL_RC_SUCCESS), 0);
    assert_int_equal(sl_mqtt_rc_to_v3(SL_RC_UNSUPPORTED_VERSION), 1);
    assert_int_equal(sl_mqtt_rc_to_v3(SL_RC_CLIENT_ID_NOT_VALID), 2);
    assert_int_equal(sl_mqtt_rc_to_v3(SL_RC_SERVER_UNAVAILABLE), 3);
    assert_int_equal(sl_mqtt_rc_to_v3(SL_RC_BAD_USERNAME_OR_PASSWORD), 4);
    assert_int_equal(sl_mqtt_rc_to_v3(SL_RC_NOT_AUTHORIZED), 5);
    assert_int_equal(sl_mqtt_rc_to_v3(SL_RC_MALFORMED_PACKET), 0xFF);
}

static void test_reason_of_every_error_is_one_that_connack_may_carry(void **state)
{
    (void)state;
#define CHECK_ERR(name, num, text)                                                                 \
    assert_true(                                                                                   \
        sl_mqtt_rc_is_allowed((uint8_t)sl_mqtt_rc_of_err(SL_##name), SL_MQTT_CONNACK, true) ||     \
        SL_##name == SL_ECLOSED);
    SL_ERR_MAP(CHECK_ERR)
#undef CHECK_ERR
    assert_int_equal(sl_mqtt_rc_of_err(SL_OK), SL_RC_SUCCESS);
    assert_int_equal(sl_mqtt_rc_of_err(SL_EMALFORMED), SL_RC_MALFORMED_PACKET);
    assert_int_equal(sl_mqtt_rc_of_err(SL_EPROTOCOL), SL_RC_PROTOCOL_ERROR);
    assert_int_equal(sl_mqtt_rc_of_err(SL_ETOOBIG), SL_RC_PACKET_TOO_LARGE);
    assert_int_equal(sl_mqtt_rc_of_err(SL_EDENIED), SL_RC_NOT_AUTHORIZED);
    assert_int_equal(sl_mqtt_rc_of_err(SL_ECLOSED), SL_RC_SERVER_SHUTTING_DOWN);
}

static void test_reason_depends_on_who_says_disconnect(void **state)
{
    (void)state;
    assert_true(sl_mqtt_rc_is_allowed(0x04, SL_MQTT_DISCONNECT, false));
    assert_false(sl_mqtt_rc_is_allowed(0x04, SL_MQTT_DISCONNECT, true));
    assert_true(sl_mqtt_rc_is_allowed(0x8E, SL_MQTT_DISCONNECT, true));
    assert_false(sl_mqtt_rc_is_allowed(0x8E, SL_MQTT_DISCONNECT, false));
    assert_false(sl_mqtt_rc_is_allowed(0x00, SL_MQTT_PUBLISH, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reason_text_of_known_and_unknown_codes),
        cmocka_unit_test(test_reason_becomes_the_return_code_of_3),
        cmocka_unit_test(test_reason_of_every_error_is_one_that_connack_may_carry),
        cmocka_unit_test(test_reason_depends_on_who_says_disconnect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
