/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/buf: growth, the maximum, both ends.
 */
#include "sl_test.h"

#include <string.h>

#include "base/alloc.h"
#include "base/buf.h"
#include "random.h"

static void test_buf_appends_big_endian(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 100);
    SL_TEST_OK(sl_buf_append_u8(&buf, 0x01));
    SL_TEST_OK(sl_buf_append_u16(&buf, 0x0203));
    SL_TEST_OK(sl_buf_append_u32(&buf, 0x04050607));
    SL_TEST_OK(sl_buf_append_u64(&buf, 0x08090a0b0c0d0e0full));
    SL_TEST_SLICE(sl_buf_peek(&buf),
                  "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f");
    sl_buf_fini(&buf);
}

static void test_buf_refuses_past_maximum_and_keeps_contents(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 5);
    SL_TEST_OK(sl_buf_append_str(&buf, "abcd"));
    SL_TEST_ERR(sl_buf_append_str(&buf, "ef"), SL_ETOOBIG);
    SL_TEST_ERR(sl_buf_append_u16(&buf, 1), SL_ETOOBIG);
    SL_TEST_ERR(sl_buf_printf(&buf, "%d", 12), SL_ETOOBIG);
    uint8_t *room;
    SL_TEST_ERR(sl_buf_reserve(&buf, 2, &room), SL_ETOOBIG);
    SL_TEST_ERR(sl_buf_append(&buf, "x", SIZE_MAX), SL_ETOOBIG);
    SL_TEST_SLICE(sl_buf_peek(&buf), "abcd");
    SL_TEST_OK(sl_buf_printf(&buf, "%c", 'e')); // exactly the maximum
    SL_TEST_SLICE(sl_buf_peek(&buf), "abcde");
    SL_TEST_ERR(sl_buf_append_u8(&buf, 'f'), SL_ETOOBIG);
    sl_buf_consume(&buf, 1);
    SL_TEST_OK(sl_buf_append_u8(&buf, 'f'));
    SL_TEST_SLICE(sl_buf_peek(&buf), "bcdef");
    sl_buf_fini(&buf);
}

static void test_buf_of_maximum_zero_takes_nothing(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 0);
    SL_TEST_OK(sl_buf_append(&buf, NULL, 0));
    SL_TEST_OK(sl_buf_printf(&buf, "%s", ""));
    SL_TEST_ERR(sl_buf_append_u8(&buf, 1), SL_ETOOBIG);
    assert_int_equal(sl_buf_peek(&buf).len, 0);
    sl_buf_fini(&buf);
}

static void test_buf_printf_grows_as_needed(void **state)
{
    (void)state;
    sl_buf buf;
    sl_buf_init(&buf, 10000);
    char want[3001];
    memset(want, 'x', 3000);
    want[3000] = '\0';
    SL_TEST_OK(sl_buf_printf(&buf, "%s", want));
    SL_TEST_OK(sl_buf_printf(&buf, "-%d-%s", -7, "end"));
    sl_slice got = sl_buf_peek(&buf);
    assert_int_equal(got.len, 3007);
    assert_memory_equal(got.ptr, want, 3000);
    assert_memory_equal(got.ptr + 3000, "--7-end", 7);
    sl_buf_fini(&buf);
}

static void test_buf_take_moves_the_bytes_out(void **state)
{
    (void)state;
    sl_buf buf;
    size_t len;
    sl_buf_init(&buf, 100);
    SL_TEST_OK(sl_buf_append_str(&buf, "headbody"));
    sl_buf_consume(&buf, 4);
    uint8_t *bytes = sl_buf_take(&buf, &len);
    assert_int_equal(len, 4);
    assert_memory_equal(bytes, "body", 4);
    sl_free(bytes);
    assert_int_equal(sl_buf_peek(&buf).len, 0);
    bytes = sl_buf_take(&buf, &len);
    assert_non_null(bytes);
    assert_int_equal(len, 0);
    sl_free(bytes);
    SL_TEST_OK(sl_buf_append_str(&buf, "again"));
    SL_TEST_SLICE(sl_buf_peek(&buf), "again");
    sl_buf_truncate(&buf, 2);
    SL_TEST_SLICE(sl_buf_peek(&buf), "ag");
    sl_buf_clear(&buf);
    assert_int_equal(sl_buf_peek(&buf).len, 0);
    sl_buf_fini(&buf);
    sl_buf_fini(&buf); // empty and usable, as often as one likes
}

// A queue of bytes: appended and consumed at random, with a counter as the contents.
static void test_buf_is_a_queue_under_random_use(void **state)
{
    (void)state;
    rng rg = {5};
    sl_buf buf;
    const size_t max = 1000;
    sl_buf_init(&buf, max);
    uint8_t first = 0, last = 0; // next byte to come out, next byte to go in
    size_t len = 0;
    for (int step = 0; step < 20000; step++) {
        if (rng_below(&rg, 2) == 0) {
            size_t add = rng_below(&rg, 200);
            uint8_t *room;
            sl_err err = sl_buf_reserve(&buf, add, &room);
            SL_TEST_ERR(err, len + add <= max ? SL_OK : SL_ETOOBIG);
            if (err == SL_OK) {
                for (size_t i = 0; i < add; i++)
                    room[i] = last++;
                sl_buf_commit(&buf, add);
                len += add;
            }
        } else {
            size_t drop = rng_below(&rg, (unsigned)len + 1);
            sl_slice got = sl_buf_peek(&buf);
            assert_int_equal(got.len, len);
            for (size_t i = 0; i < len; i++)
                assert_int_equal(got.ptr[i], (uint8_t)(first + i));
            sl_buf_consume(&buf, drop);
            first = (uint8_t)(first + drop);
            len -= drop;
        }
    }
    sl_buf_fini(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buf_appends_big_endian),
        cmocka_unit_test(test_buf_refuses_past_maximum_and_keeps_contents),
        cmocka_unit_test(test_buf_of_maximum_zero_takes_nothing),
        cmocka_unit_test(test_buf_printf_grows_as_needed),
        cmocka_unit_test(test_buf_take_moves_the_bytes_out),
        cmocka_unit_test(test_buf_is_a_queue_under_random_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
