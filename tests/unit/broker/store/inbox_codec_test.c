/* SPDX-License-Identifier: Apache-2.0
 *
 * inbox_codec: what is stored reads back, damaged values are refused, keys of a client lie
 * together.
 */
#include "store/inbox_codec.h"

#include "sl_test.h"

static void test_keys_order_by_kind_and_number(void **state)
{
    (void)state;
    uint8_t keys[5][32];
    size_t len[5];
    sl_slice dev = sl_slice_str("dev");
    len[0] = inbox_key(keys[0], dev, INBOX_KEY_META, 0, 0);
    len[1] = inbox_key(keys[1], dev, INBOX_KEY_SOURCE, UINT64_MAX, 65535);
    len[2] = inbox_key(keys[2], dev, INBOX_KEY_ROW, 255, 0);
    len[3] = inbox_key(keys[3], dev, INBOX_KEY_ROW, 256, 0);
    len[4] = inbox_key(keys[4], dev, INBOX_KEY_END, 0, 0);
    for (size_t i = 1; i < 5; i++)
        assert_true(sl_slice_compare(sl_slice_of(keys[i - 1], len[i - 1]),
                                     sl_slice_of(keys[i], len[i])) < 0);
    uint64_t number = 0;
    uint16_t partition = 0;
    assert_int_equal(inbox_key_parse(sl_slice_of(keys[0], len[0]), 3, &number, &partition),
                     INBOX_KEY_META);
    assert_int_equal(inbox_key_parse(sl_slice_of(keys[1], len[1]), 3, &number, &partition),
                     INBOX_KEY_SOURCE);
    assert_true(number == UINT64_MAX && partition == 65535);
    assert_int_equal(inbox_key_parse(sl_slice_of(keys[3], len[3]), 3, &number, &partition),
                     INBOX_KEY_ROW);
    assert_int_equal(number, 256);
    assert_int_equal(inbox_key_parse(sl_slice_of(keys[3], len[3] - 1), 3, &number, &partition),
                     INBOX_KEY_END);
}

static void test_values_read_back(void **state)
{
    (void)state;
    uint8_t bytes[64];
    inbox_meta meta = {.generation = UINT64_MAX, .last_row = 500, .first_row = 7, .count = 400};
    inbox_meta meta_back;
    inbox_meta_encode(&meta, bytes);
    SL_TEST_OK(inbox_meta_decode(sl_slice_of(bytes, INBOX_META_BYTES), &meta_back));
    assert_true(meta_back.generation == UINT64_MAX && meta_back.last_row == 500);
    assert_true(meta_back.first_row == 7 && meta_back.count == 400);
    inbox_source so = {.offset = 77, .row = 5}, so_back = {0};
    inbox_source_encode(&so, bytes);
    SL_TEST_OK(inbox_source_decode(sl_slice_of(bytes, INBOX_SOURCE_BYTES), &so_back));
    assert_true(so_back.offset == 77 && so_back.row == 5);
    sl_inbox_entry entry = {
        .kind = SL_INBOX_PUBLISH, .qos = 2, .flags = 1, .time_ms = -1, .expires_at_ms = INT64_MAX};
    sl_inbox_entry back = {0};
    inbox_row_encode(&entry, bytes);
    bytes[INBOX_ROW_HEAD] = 'x';
    SL_TEST_OK(inbox_row_decode(sl_slice_of(bytes, INBOX_ROW_HEAD + 1), &back));
    assert_true(back.qos == 2 && back.flags == 1 && back.time_ms == -1);
    assert_int_equal(back.expires_at_ms, INT64_MAX);
    SL_TEST_SLICE(back.packet, "x");
}

static void test_damaged_values_are_refused(void **state)
{
    (void)state;
    uint8_t bytes[64];
    inbox_meta meta = {.generation = 1, .last_row = 10, .first_row = 9, .count = 2}, out;
    inbox_meta_encode(&meta, bytes);
    SL_TEST_OK(inbox_meta_decode(sl_slice_of(bytes, INBOX_META_BYTES), &out));
    SL_TEST_ERR(inbox_meta_decode(sl_slice_of(bytes, INBOX_META_BYTES - 1), &out), SL_ECORRUPT);
    bytes[0] = 9; /* a version of the future */
    SL_TEST_ERR(inbox_meta_decode(sl_slice_of(bytes, INBOX_META_BYTES), &out), SL_ECORRUPT);
    const inbox_meta bad[] = {
        {.generation = 0, .last_row = 10, .first_row = 9, .count = 2},
        {.generation = 1, .last_row = 10, .first_row = 9, .count = 3},
        {.generation = 1, .last_row = 10, .first_row = 11, .count = 1},
        {.generation = 1, .last_row = 10, .first_row = 0, .count = 1},
        {.generation = 1, .last_row = 10, .first_row = 1, .count = 0},
        {.generation = 1, .last_row = 100000, .first_row = 1, .count = 65536},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        inbox_meta_encode(&bad[i], bytes);
        SL_TEST_ERR(inbox_meta_decode(sl_slice_of(bytes, INBOX_META_BYTES), &out), SL_ECORRUPT);
    }
    inbox_source so;
    SL_TEST_ERR(inbox_source_decode(sl_slice_of(bytes, 3), &so), SL_ECORRUPT);
    sl_inbox_entry entry = {.kind = SL_INBOX_PUBREL, .qos = 2}, back;
    inbox_row_encode(&entry, bytes);
    SL_TEST_OK(inbox_row_decode(sl_slice_of(bytes, INBOX_ROW_HEAD), &back));
    SL_TEST_ERR(inbox_row_decode(sl_slice_of(bytes, INBOX_ROW_HEAD + 1), &back), SL_ECORRUPT);
    SL_TEST_ERR(inbox_row_decode(sl_slice_of(bytes, INBOX_ROW_HEAD - 1), &back), SL_ECORRUPT);
    entry.kind = SL_INBOX_PUBLISH;
    inbox_row_encode(&entry, bytes);
    SL_TEST_ERR(inbox_row_decode(sl_slice_of(bytes, INBOX_ROW_HEAD), &back), SL_ECORRUPT);
    bytes[1] = 2;
    SL_TEST_ERR(inbox_row_decode(sl_slice_of(bytes, INBOX_ROW_HEAD + 1), &back), SL_ECORRUPT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_keys_order_by_kind_and_number),
        cmocka_unit_test(test_values_read_back),
        cmocka_unit_test(test_damaged_values_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
