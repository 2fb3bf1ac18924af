/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of msg_trace: off it keeps nothing; on it keeps the newest steps with their times.
 */
#include "sl_test.h"

#include <string.h>

#include "stats/msg_trace.h"

static size_t lines(sl_msg_trace *tr, sl_buf *out)
{
    sl_buf_clear(out);
    SL_TEST_OK(sl_msg_trace_write(tr, out));
    size_t count = 0;
    sl_slice text = sl_buf_peek(out);
    for (size_t i = 0; i < text.len; i++)
        count += text.ptr[i] == '\n';
    return count;
}

static void test_trace_off_keeps_nothing(void **state)
{
    (void)state;
    sl_clock ck;
    sl_clock_init_fake(&ck, 5, 0);
    sl_msg_trace *tr = sl_msg_trace_new(&ck, 8, false);
    sl_msg_trace_step(tr, SL_STEP_SENT, 1, 2, 3);
    sl_buf out;
    sl_buf_init(&out, 65536);
    assert_int_equal(lines(tr, &out), 0);
    sl_buf_fini(&out);
    sl_msg_trace_free(&tr);
}

static void test_trace_keeps_the_newest_steps(void **state)
{
    (void)state;
    sl_clock ck;
    sl_clock_init_fake(&ck, 5, 0);
    sl_msg_trace *tr = sl_msg_trace_new(&ck, 8, true);
    for (uint32_t i = 0; i < 20; i++)
        sl_msg_trace_step(tr, SL_STEP_SENT, 15, 1ull << 40 | i, i);
    sl_buf out;
    sl_buf_init(&out, 65536);
    assert_int_equal(lines(tr, &out), 8);
    sl_slice text = sl_buf_peek(&out);
    const char first[] = "{\"step\":\"SENT\",\"partition\":15,\"id\":1099511627788,\"who\":12,"
                         "\"ns\":5000000}\n";
    assert_memory_equal(text.ptr, first, sizeof(first) - 1);
    sl_buf_fini(&out);
    sl_msg_trace_free(&tr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_trace_off_keeps_nothing),
        cmocka_unit_test(test_trace_keeps_the_newest_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
