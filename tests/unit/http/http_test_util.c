/* SPDX-License-Identifier: Apache-2.0
 *
 * http_test_util: see the header.
 */
#include "http_test_util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sl_test.h"

void test_server_make(test_server *ts, sl_http_options options)
{
    *ts = (test_server){0};
    sl_clock_init_fake(&ts->clock, 1000000, 1796071610000);
    SL_TEST_OK(sl_loop_new_manual("http", &ts->clock, &ts->lp));
    (void)sl_loop_turn(ts->lp);
    options.name = "test";
    options.address = "127.0.0.1";
    options.loops = &ts->lp;
    options.loop_count = 1;
    char *why = NULL;
    SL_TEST_OK(sl_http_server_new(&options, &ts->sv, &why));
}

void test_server_go(test_server *ts)
{
    SL_TEST_OK(sl_http_server_start(ts->sv));
}

void test_server_start(test_server *ts, sl_http_options options, const sl_http_route *routes,
                       size_t count)
{
    test_server_make(ts, options);
    sl_http_server_route(ts->sv, routes, count);
    test_server_go(ts);
}

static void on_drained(void *arg)
{
    ((test_server *)arg)->drained = true;
}

void test_server_turn(test_server *ts, int *idle)
{
    if (sl_loop_turn(ts->lp)) {
        *idle = 0;
        return;
    }
    (void)poll(NULL, 0, 1);
    assert_true(++*idle < 5000);
}

void test_server_settle(test_server *ts)
{
    for (int quiet = 0; quiet < 3;)
        quiet = sl_loop_turn(ts->lp) ? 0 : quiet + 1;
}

void test_server_pass(test_server *ts, sl_dur_ms ms)
{
    for (; ms > 0; ms -= 1000) {
        sl_clock_advance(&ts->clock, ms < 1000 ? ms : 1000);
        test_server_settle(ts);
    }
}

void test_server_stop(test_server *ts)
{
    if (!ts->drained)
        sl_http_server_drain(ts->sv, 0, on_drained, ts);
    for (int idle = 0; !ts->drained;) {
        sl_clock_advance(&ts->clock, 200);
        test_server_turn(ts, &idle);
    }
    sl_http_server_free(&ts->sv);
    test_server_settle(ts);
    sl_loop_free(&ts->lp);
}

void test_client_open(test_client *tc, test_server *ts)
{
    *tc = (test_client){.fd = socket(AF_INET, SOCK_STREAM, 0)};
    sl_buf_init(&tc->got, 64u << 20);
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(sl_http_server_port(ts->sv)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(tc->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(fcntl(tc->fd, F_SETFL, O_NONBLOCK), 0);
}

void test_client_close(test_client *tc)
{
    if (tc->fd >= 0)
        close(tc->fd);
    tc->fd = -1;
    sl_buf_fini(&tc->got);
}

void test_client_send_bytes(test_client *tc, const void *ptr, size_t len)
{
    assert_int_equal(send(tc->fd, ptr, len, MSG_NOSIGNAL), (ssize_t)len);
}

void test_client_send(test_client *tc, const char *text)
{
    test_client_send_bytes(tc, text, strlen(text));
}

static void receive(test_client *tc)
{
    for (;;) {
        uint8_t *room = NULL;
        SL_TEST_OK(sl_buf_reserve(&tc->got, 65536, &room));
        ssize_t n = recv(tc->fd, room, 65536, 0);
        if (n <= 0) {
            tc->eof = tc->eof || n == 0 || (errno != EAGAIN && errno != EINTR);
            return;
        }
        sl_buf_commit(&tc->got, (size_t)n);
    }
}

const char *test_client_text(test_client *tc)
{
    uint8_t *room = NULL;
    SL_TEST_OK(sl_buf_reserve(&tc->got, 1, &room));
    *room = '\0';
    return (const char *)sl_buf_peek(&tc->got).ptr;
}

void test_client_forget(test_client *tc)
{
    sl_buf_clear(&tc->got);
}

void test_client_expect(test_client *tc, test_server *ts, const char *text)
{
    for (int idle = 0;;) {
        receive(tc);
        if (strstr(test_client_text(tc), text) != NULL)
            return;
        if (tc->eof)
            fail_msg("ended without \"%s\":\n%s", text, test_client_text(tc));
        if (idle > 3000)
            fail_msg("waited for \"%s\":\n%s", text, test_client_text(tc));
        test_server_turn(ts, &idle);
    }
}

void test_client_expect_eof(test_client *tc, test_server *ts)
{
    for (int idle = 0;; test_server_turn(ts, &idle)) {
        receive(tc);
        if (tc->eof)
            return;
    }
}

unsigned test_client_count(test_client *tc, const char *text)
{
    unsigned n = 0;
    for (const char *at = test_client_text(tc); (at = strstr(at, text)) != NULL; at++)
        n++;
    return n;
}

int test_client_request(test_client *tc, test_server *ts, const char *request)
{
    test_client_forget(tc);
    test_client_send(tc, request);
    test_client_expect(tc, ts, "\r\n\r\n");
    const char *text = test_client_text(tc);
    int status = (int)strtol(text + strlen("HTTP/1.1 "), NULL, 10);
    const char *length = strcasestr(text, "\r\ncontent-length: ");
    size_t want = 0;
    if (length != NULL && strncmp(request, "HEAD", 4) != 0)
        want = strtoul(length + strlen("\r\ncontent-length: "), NULL, 10);
    want += (size_t)(strstr(text, "\r\n\r\n") + 4 - text);
    for (int idle = 0; sl_buf_peek(&tc->got).len < want; test_server_turn(ts, &idle))
        receive(tc);
    assert_int_equal(sl_buf_peek(&tc->got).len, want); // not one byte behind the answer
    return status;
}
