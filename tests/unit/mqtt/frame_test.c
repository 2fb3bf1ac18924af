/* SPDX-License-Identifier: Apache-2.0
 *
 * The fixed header: lengths at their borders, unfinished ones, limits (case C32).
 */
#include "sl_test.h"

#include "mqtt/encode.h"
#include "mqtt/frame.h"

static void test_frame_reads_lengths_at_their_borders(void **state)
{
    (void)state;
    static const uint32_t lengths[] = {0, 1, 127, 128, 16383, 16384, 2097151, 2097152, 268435455};
    for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
        uint8_t head[5];
        uint32_t size = sl_mqtt_publish_head(head, 0x30, lengths[i]);
        assert_int_equal(size, 1 + sl_mqtt_varint_size(lengths[i]));
        sl_mqtt_frame frame;
        sl_mqtt_rc rc;
        const char *why;
        sl_err err = sl_mqtt_frame_read(sl_slice_of(head, size), UINT32_MAX, &frame, &rc, &why);
        SL_TEST_ERR(err, lengths[i] == 0 ? SL_OK : SL_EINCOMPLETE);
        assert_int_equal(frame.first, 0x30);
        assert_int_equal(frame.header_size, size);
        assert_int_equal(frame.remaining, lengths[i]);
    }
}

static void test_frame_without_its_whole_header_tells_nothing(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x30, 0xFF, 0xFF, 0xFF, 0x7F};
    for (size_t len = 0; len < sizeof(bytes); len++) {
        sl_mqtt_frame frame;
        sl_mqtt_rc rc;
        const char *why;
        SL_TEST_ERR(sl_mqtt_frame_read(sl_slice_of(bytes, len), UINT32_MAX, &frame, &rc, &why),
                    SL_EINCOMPLETE);
        assert_int_equal(frame.header_size, 0);
    }
}

static void test_frame_of_five_length_bytes_is_malformed(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x30, 0x80, 0x80, 0x80, 0x80};
    sl_mqtt_frame frame;
    sl_mqtt_rc rc = SL_RC_SUCCESS;
    const char *why = NULL;
    SL_TEST_ERR(sl_mqtt_frame_read(sl_slice_of(bytes, 5), UINT32_MAX, &frame, &rc, &why),
                SL_EMALFORMED);
    assert_int_equal(rc, SL_RC_MALFORMED_PACKET);
    assert_non_null(why);
}

/* C32: the fixed header counts, and the header alone is enough to know. */
static void test_frame_over_the_limit_is_refused_from_its_header(void **state)
{
    (void)state;
    static const uint8_t bytes[] = {0x30, 98};
    sl_mqtt_frame frame;
    sl_mqtt_rc rc = SL_RC_SUCCESS;
    const char *why = NULL;
    SL_TEST_ERR(sl_mqtt_frame_read(sl_slice_of(bytes, 2), 100, &frame, &rc, &why), SL_EINCOMPLETE);
    SL_TEST_ERR(sl_mqtt_frame_read(sl_slice_of(bytes, 2), 99, &frame, &rc, &why), SL_ETOOBIG);
    assert_int_equal(rc, SL_RC_PACKET_TOO_LARGE);
    static const uint8_t huge[] = {0x30, 0xFF, 0xFF, 0xFF, 0x7F};
    SL_TEST_ERR(sl_mqtt_frame_read(sl_slice_of(huge, 5), 268435459, &frame, &rc, &why), SL_ETOOBIG);
    SL_TEST_ERR(sl_mqtt_frame_read(sl_slice_of(huge, 5), 268435460, &frame, &rc, &why),
                SL_EINCOMPLETE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_frame_reads_lengths_at_their_borders),
        cmocka_unit_test(test_frame_without_its_whole_header_tells_nothing),
        cmocka_unit_test(test_frame_of_five_length_bytes_is_malformed),
        cmocka_unit_test(test_frame_over_the_limit_is_refused_from_its_header),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
