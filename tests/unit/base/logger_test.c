/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of base/logger: the line's form, escapes, cuts, levels and trace, the flood limiter, and
 * whole lines from many threads.
 */
#include "sl_test.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/logger.h"

static char last[8192];
static unsigned lines;

static void keep(void *arg, const char *line)
{
    assert_string_equal((const char *)arg, "arg");
    snprintf(last, sizeof(last), "%s", line);
    lines++;
}

static int set_up(void **state)
{
    (void)state;
    last[0] = '\0';
    lines = 0;
    sl_logger_set_sink(keep, "arg");
    sl_logger_set_level(SL_LEVEL_INFO);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    const char *why;
    SL_TEST_OK(sl_logger_set_trace("", &why));
    sl_logger_set_level(SL_LEVEL_INFO);
    sl_logger_set_sink(NULL, NULL);
    return 0;
}

// What stands behind the time.
static const char *body(void)
{
    return strlen(last) > 25 ? last + 25 : "";
}

static void test_logger_writes_time_level_event_and_pairs(void **state)
{
    (void)state;
    sl_warn(SL_C_BROKER, "BROKER-READY", SL_S("tcp", "127.0.0.1:1883"), SL_I("port", -1),
            SL_U("big", UINT64_MAX), SL_B("id", sl_slice_of("ab", 1)), SL_E(SL_EIO));
    assert_string_equal(body(), "warn BROKER-READY component=broker tcp=127.0.0.1:1883 port=-1 "
                                "big=18446744073709551615 id=a error=EIO");
    assert_int_equal(last[4], '-');
    assert_int_equal(last[10], 'T');
    assert_int_equal(last[19], '.');
    assert_int_equal(last[23], 'Z');
    sl_error(SL_C_LOG, "NO-PAIRS");
    assert_string_equal(body(), "error NO-PAIRS component=log");
}

static void value_is(sl_slice value, const char *want)
{
    sl_info(SL_C_TEST, "V", SL_B("v", value));
    const char *got = strstr(last, " v=");
    assert_non_null(got);
    assert_string_equal(got + 3, want);
}

static void test_logger_escapes_what_could_mislead(void **state)
{
    (void)state;
    value_is(sl_slice_str("plain/topic+#"), "plain/topic+#");
    value_is(sl_slice_str(""), "\"\"");
    value_is(sl_slice_str("two words"), "\"two words\"");
    value_is(sl_slice_str("a=b"), "\"a=b\"");
    value_is(sl_slice_str("q\"\\"), "\"q\\\"\\\\\"");
    value_is(sl_slice_str("x\r\ny\x1b[31m\x7f"), "\"x\\x0d\\x0ay\\x1b[31m\\x7f\"");
    value_is(sl_slice_of("\0", 1), "\"\\x00\"");
    value_is(sl_slice_str("caf\xC3\xA9"), "\"caf\xC3\xA9\"");
    value_is(sl_slice_str("\xC2\x9B"), "\"\\xc2\\x9b\"");          // the C1 form of ESC [
    value_is(sl_slice_str("\xE2\x80\xAE"), "\"\\xe2\\x80\\xae\""); // right-to-left override
    value_is(sl_slice_str("\xE2\x80\xA8"), "\"\\xe2\\x80\\xa8\""); // line separator
    value_is(sl_slice_str("bad\xC3("), "\"bad\\xc3(\"");
    sl_info(SL_C_TEST, "V", SL_S("v", NULL));
    assert_string_equal(body(), "info V component=test v=\"\"");
}

static void test_logger_cuts_values_at_characters(void **state)
{
    (void)state;
    char text[600], want[600];
    memset(text, 'a', sizeof(text));
    value_is(sl_slice_of(text, 256), (memset(want, 'a', 256), want[256] = '\0', want));
    snprintf(want, sizeof(want), "\"%.*s...\"", 256, text);
    value_is(sl_slice_of(text, 257), want);
    memcpy(text + 255, "\xC3\xA9", 2); // would end at byte 257
    snprintf(want, sizeof(want), "\"%.*s...\"", 255, text);
    value_is(sl_slice_of(text, 300), want);
}

static void test_logger_leaves_out_pairs_that_do_not_fit(void **state)
{
    (void)state;
    char text[256];
    memset(text, 1, sizeof(text)); // four bytes each in the line
    sl_slice value = sl_slice_of(text, sizeof(text));
    sl_info(SL_C_TEST, "LONG", SL_B("a", value), SL_B("b", value), SL_B("c", value),
            SL_B("d", value), SL_S("e", "x"));
    assert_true(strlen(last) < 4096);
    assert_non_null(strstr(last, " c=\"\\x01"));
    assert_null(strstr(last, " d="));
    assert_string_equal(last + strlen(last) - strlen("\\x01\" cut=true"), "\\x01\" cut=true");
}

static void test_logger_drops_above_its_level(void **state)
{
    (void)state;
    sl_logger_set_level(SL_LEVEL_WARN);
    sl_info(SL_C_TEST, "INFO");
    assert_int_equal(lines, 0);
    sl_warn(SL_C_TEST, "WARN");
    sl_error(SL_C_TEST, "ERROR");
    assert_int_equal(lines, 2);
}

static int evaluated;

static const char *count_evaluation(void)
{
    evaluated++;
    return "x";
}

static void test_logger_traces_chosen_components_only(void **state)
{
    (void)state;
    const char *why = NULL;
    sl_trace(SL_C_NET, "T", SL_S("v", count_evaluation()));
    assert_int_equal(lines, 0);
    assert_int_equal(evaluated, 0); // an idle trace costs no work
    SL_TEST_OK(sl_logger_set_trace("net, mqtt", &why));
    assert_true(sl_logger_traces(SL_C_NET) && sl_logger_traces(SL_C_MQTT));
    assert_false(sl_logger_traces(SL_C_LOG));
    sl_trace(SL_C_NET, "T", SL_S("v", count_evaluation()));
    assert_string_equal(body(), "trace T component=net v=x");
    SL_TEST_OK(sl_logger_set_trace("all,-net", &why));
    assert_false(sl_logger_traces(SL_C_NET));
    assert_true(sl_logger_traces(SL_C_LOG) && sl_logger_traces(SL_C_TEST));
    SL_TEST_ERR(sl_logger_set_trace("net,nte", &why), SL_EINVAL);
    assert_string_equal(why, "nte");
    assert_true(sl_logger_traces(SL_C_LOG)); // nothing changed
    SL_TEST_OK(sl_logger_set_trace("", &why));
    assert_false(sl_logger_traces(SL_C_LOG));
}

static void test_limit_passes_a_burst_and_then_sums_up(void **state)
{
    (void)state;
    sl_log_limit limit = {0};
    uint32_t suppressed = 7;
    for (int64_t start = 500; start < 3000; start += 1000) {
        for (int i = 0; i < 3; i++) {
            assert_true(sl_log_limit_pass_at(&limit, start + i, 3, 1000, &suppressed));
            assert_int_equal(suppressed, start != 500 && i == 0 ? 5 : 0);
        }
        for (int i = 0; i < 5; i++)
            assert_false(sl_log_limit_pass_at(&limit, start + 900, 3, 1000, &suppressed));
    }
    assert_false(sl_log_limit_pass_at(&limit, 10000, 0, 1000, &suppressed)); // burst 0: never
    assert_true(sl_log_limit_pass_at(&limit, 20000, 1, 1000, &suppressed));
    assert_int_equal(suppressed, 6); // what a silent window was told is not lost
}

static void test_limit_uses_the_machines_clock(void **state)
{
    (void)state;
    sl_log_limit limit = {0};
    uint32_t suppressed;
    const int64_t year_ms = 365ll * 24 * 3600 * 1000;
    assert_true(sl_log_limit_pass(&limit, 2, year_ms, &suppressed));
    assert_true(sl_log_limit_pass(&limit, 2, year_ms, &suppressed));
    assert_false(sl_log_limit_pass(&limit, 2, year_ms, &suppressed));
}

#define THREADS 4
#define LINES   200

static void *write_lines(void *arg)
{
    char text[300];
    memset(text, (char)('a' + (int)(intptr_t)arg), sizeof(text));
    for (int i = 0; i < LINES; i++)
        sl_info(SL_C_TEST, "LINE", SL_B("text", sl_slice_of(text, 200)), SL_I("i", i));
    return NULL;
}

static void *read_lines(void *arg)
{
    int fd = *(int *)arg;
    char text[4096];
    ssize_t len;
    unsigned whole = 0;
    // A packet socket keeps each write apart: one write, one packet, one line.
    while ((len = recv(fd, text, sizeof(text), 0)) > 0) {
        const char *end = memchr(text, '\n', (size_t)len);
        if (end != text + len - 1)
            return NULL;
        char *value = memmem(text, (size_t)len, "text=", 5);
        for (int i = 5; i < 205; i++)
            if (value == NULL || value[i] != value[5])
                return NULL;
        whole++;
    }
    return (void *)(uintptr_t)whole;
}

static void test_logger_writes_each_line_whole_from_many_threads(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds), 0);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    sl_logger_set_sink(NULL, NULL);
    pthread_t reader, writers[THREADS];
    assert_int_equal(pthread_create(&reader, NULL, read_lines, &fds[0]), 0);
    dup2(fds[1], STDERR_FILENO);
    for (intptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&writers[i], NULL, write_lines, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(writers[i], NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    shutdown(fds[1], SHUT_RDWR);
    void *whole;
    pthread_join(reader, &whole);
    assert_int_equal((uintptr_t)whole, THREADS * LINES);
    close(fds[0]);
    close(fds[1]);
}

int main(void)
{
#define LOGGER_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        LOGGER_TEST(test_logger_writes_time_level_event_and_pairs),
        LOGGER_TEST(test_logger_escapes_what_could_mislead),
        LOGGER_TEST(test_logger_cuts_values_at_characters),
        LOGGER_TEST(test_logger_leaves_out_pairs_that_do_not_fit),
        LOGGER_TEST(test_logger_drops_above_its_level),
        LOGGER_TEST(test_logger_traces_chosen_components_only),
        LOGGER_TEST(test_limit_passes_a_burst_and_then_sums_up),
        LOGGER_TEST(test_limit_uses_the_machines_clock),
        LOGGER_TEST(test_logger_writes_each_line_whole_from_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
