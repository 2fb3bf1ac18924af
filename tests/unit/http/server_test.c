/* SPDX-License-Identifier: Apache-2.0
 *
 * http/server: framing, limits, routing and both kinds of handlers, with raw sockets as clients.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http/pages.h"
#include "http_test_util.h"
#include "sl_test.h"

/* ---- handlers ---- */

static void echo(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)arg;
    unsigned count = 0;
    const char *q = sl_http_query_get(req, "q", &count);
    sl_http_resp_set(resp, 200, "text/plain", sl_http_req_body(req));
    char text[256];
    (void)snprintf(text, sizeof(text), "[%s %s q=%s x%u id=%s rest=%s from=%s user=%s]",
                   sl_http_method_name(sl_http_req_method(req)), sl_http_req_path(req),
                   q == NULL ? "-" : q, count,
                   sl_http_req_param(req, "id") == NULL ? "-" : sl_http_req_param(req, "id"),
                   sl_http_req_rest(req), sl_http_req_peer_ip(req),
                   sl_http_req_user(req) == NULL ? "-" : sl_http_req_user(req));
    SL_TEST_OK(sl_buf_append_str(sl_http_resp_body(resp), text));
}

static void big(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)arg;
    (void)req;
    uint8_t *room = NULL;
    size_t len = 8u << 20;
    SL_TEST_OK(sl_buf_reserve(sl_http_resp_body(resp), len, &room));
    for (size_t i = 0; i < len; i++)
        room[i] = (uint8_t)('a' + i % 26);
    sl_buf_commit(sl_http_resp_body(resp), len);
}

/* More than libmicrohttpd has room for: it breaks the connection off. */
static void huge_header(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)arg;
    (void)req;
    char *value = sl_alloc(60001);
    memset(value, 'v', 60000);
    value[60000] = '\0';
    sl_http_resp_add_header(resp, "X-Huge", value);
    sl_free(value);
}

static void no_content(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)arg;
    (void)req;
    sl_http_resp_set_status(resp, 204);
    sl_http_resp_add_header(resp, "X-Forged", "a\r\nX-Evil: 1");
}

static void local(void *arg, sl_http_stream *st)
{
    sl_http_resp *resp = sl_http_stream_resp(st);
    const sl_http_req *req = sl_http_stream_req(st);
    sl_http_resp_set(resp, 200, "text/plain", sl_slice_str(sl_http_req_path(req)));
    (void)arg;
    sl_http_stream_reply(st);
}

static const sl_http_route routes[] = {
    {.methods = SL_HTTP_M(GET) | SL_HTTP_M(POST), .pattern = "/echo", .fn = echo},
    {.methods = SL_HTTP_M(GET), .pattern = "/item/{id}/part", .fn = echo},
    {.methods = SL_HTTP_M(GET), .pattern = "/item/fixed/part", .on_loop = local},
    {.methods = SL_HTTP_M(GET), .pattern = "/files/*", .fn = echo},
    {.methods = SL_HTTP_M(GET), .pattern = "/big", .fn = big},
    {.methods = SL_HTTP_M(GET), .pattern = "/huge-header", .fn = huge_header},
    {.methods = SL_HTTP_M(GET) | SL_HTTP_M(DELETE), .pattern = "/none", .fn = no_content},
    {.methods = SL_HTTP_M(GET) | SL_HTTP_M(POST), .pattern = "/local", .on_loop = local},
    {.methods = SL_HTTP_M(GET),
     .pattern = "/ping",
     .open = true,
     .on_loop = sl_http_page_ping,
     .arg = "hello"},
};

typedef struct fixture {
    test_server ts;
    test_client tc;
} fixture;

static void begin(fixture *fx, sl_http_options options)
{
    test_server_start(&fx->ts, options, routes, sizeof(routes) / sizeof(routes[0]));
    test_client_open(&fx->tc, &fx->ts);
}

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof(*fx));
    fx->tc.fd = -1;
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    test_client_close(&fx->tc);
    test_server_stop(&fx->ts);
    sl_free(fx);
    return 0;
}

static int ask(fixture *fx, const char *request)
{
    return test_client_request(&fx->tc, &fx->ts, request);
}

static void has(fixture *fx, const char *text)
{
    if (strstr(test_client_text(&fx->tc), text) == NULL)
        fail_msg("no \"%s\" in:\n%s", text, test_client_text(&fx->tc));
}

static void has_not(fixture *fx, const char *text)
{
    if (strstr(test_client_text(&fx->tc), text) != NULL)
        fail_msg("\"%s\" in:\n%s", text, test_client_text(&fx->tc));
}

/* ---- tests ---- */

static void test_server_serves_by_libmicrohttpd_and_keeps_the_connection(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    for (int i = 0; i < 3; i++) {
        assert_int_equal(ask(fx, "GET /echo?q=a%20b+c&q=2 HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
        has(fx, "[GET /echo q=a b+c x2 id=- rest= from=127.0.0.1 user=-]");
        has(fx, "Date: ");
        has_not(fx, "Connection: close");
    }
    assert_int_equal(ask(fx, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"),
                     200);
    has(fx, "\r\n\r\nbody[POST");
    sl_http_counts counts;
    sl_http_server_counts(fx->ts.sv, &counts);
    assert_int_equal(counts.requests, 4);
    assert_int_equal(counts.connections, 1);
}

static void test_server_serves_on_the_loop(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    assert_int_equal(ask(fx, "GET /local HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    has(fx, "\r\n\r\n/local");
    has(fx, "Date: Mon, 30 Nov 2026 20:46:50 GMT\r\n");
    assert_int_equal(ask(fx, "GET /ping HTTP/1.1\r\nHost: me:1\r\n\r\n"), 200);
    has(fx, "{\"message\":\"hello\",\"client_ip\":\"127.0.0.1\",\"host\":\"me:1\",\"version\":\"");
}

static void test_server_routes_literals_before_names_before_stars(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    assert_int_equal(ask(fx, "GET /item/7%2B8/part HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    has(fx, "id=7+8 ");
    assert_int_equal(ask(fx, "GET /item/fixed/part HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    has(fx, "\r\n\r\n/item/fixed/part");
    assert_int_equal(ask(fx, "GET /files/a/b.css HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    has(fx, "rest=a/b.css ");
    assert_int_equal(ask(fx, "GET /files HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    assert_int_equal(ask(fx, "GET /filesystem HTTP/1.1\r\nHost: x\r\n\r\n"), 404);
    assert_int_equal(ask(fx, "GET /item//part HTTP/1.1\r\nHost: x\r\n\r\n"), 404);
    has(fx, "{\"msg\":\"");
    assert_int_equal(ask(fx, "PUT /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"), 405);
    has(fx, "Allow: GET, HEAD, POST\r\n");
}

static void test_server_answers_head_and_empty_answers_without_body(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    assert_int_equal(ask(fx, "HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    has(fx, "Content-Length: ");
    assert_int_equal(ask(fx, "HEAD /local HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    has(fx, "Content-Length: 6\r\n");
    assert_int_equal(ask(fx, "HEAD /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"), 404);
    assert_int_equal(ask(fx, "DELETE /none HTTP/1.1\r\nHost: x\r\n\r\n"), 204);
    has_not(fx, "Content-Length");
    has_not(fx, "\nX-Evil");
    assert_int_equal(ask(fx, "GET /local HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
}

static void test_server_answers_pipelined_requests_in_order(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    for (int i = 0; i < 20; i++) {
        char text[128];
        (void)snprintf(text, sizeof(text), "GET /%s?q=%d HTTP/1.1\r\nHost: x\r\n\r\n",
                       i % 3 == 0 ? "local" : "echo", i);
        test_client_send(&fx->tc, text);
    }
    test_client_send(&fx->tc, "GET /echo?q=end HTTP/1.1\r\nHost: x\r\n\r\n");
    test_client_expect(&fx->tc, &fx->ts, "q=end");
    assert_int_equal(test_client_count(&fx->tc, "HTTP/1.1 200 OK"), 21);
    const char *at = test_client_text(&fx->tc);
    for (int i = 0; i < 20; i++) {
        char text[32];
        (void)snprintf(text, sizeof(text), "q=%d ", i);
        at = strstr(at, i % 3 == 0 ? "\r\n\r\n/local" : text);
        assert_non_null(at);
        at++;
    }
}

static void test_server_reads_a_request_byte_by_byte(void **state)
{
    fixture *fx = *state;
    static const char request[] = "POST /echo?q=%41 HTTP/1.1\r\nHost: x\r\nX-Long: a b c\r\n"
                                  "Transfer-Encoding: chunked\r\n\r\n"
                                  "3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\nTrailer: x\r\n\r\n";
    begin(fx, (sl_http_options){0});
    for (size_t i = 0; i < sizeof(request) - 1; i++) {
        test_client_send_bytes(&fx->tc, request + i, 1);
        test_server_settle(&fx->ts);
    }
    test_client_expect(&fx->tc, &fx->ts, "\r\n\r\nabcde[POST /echo q=A x1");
}

static void test_server_big_answer_is_whole(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    assert_int_equal(ask(fx, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    const char *body = strstr(test_client_text(&fx->tc), "\r\n\r\n") + 4;
    size_t len = sl_buf_peek(&fx->tc.got).len - (size_t)(body - test_client_text(&fx->tc));
    assert_int_equal(len, 8u << 20);
    for (size_t i = 0; i < len; i++)
        if (body[i] != (char)('a' + i % 26))
            fail_msg("byte %zu is wrong", i);
}

static void test_server_cuts_a_peer_that_does_not_read_its_answer(void **state)
{
    fixture *fx = *state;
    sl_http_counts counts;
    begin(fx, (sl_http_options){.write_ms = 5000});
    test_client_send(&fx->tc, "GET /big HTTP/1.1\r\nHost: x\r\n\r\n");
    struct pollfd first = {.fd = fx->tc.fd, .events = POLLIN};
    for (int idle = 0; poll(&first, 1, 0) == 0;)
        test_server_turn(&fx->ts, &idle);
    for (int idle = 0; idle < 200;) // until the sockets between us are full
        test_server_turn(&fx->ts, &idle);
    test_server_pass(&fx->ts, 4000);
    sl_http_server_counts(fx->ts.sv, &counts);
    assert_int_equal(counts.connections, 1);
    test_server_pass(&fx->ts, 3000);
    sl_http_server_counts(fx->ts.sv, &counts);
    assert_int_equal(counts.connections, 0);
    assert_int_equal(counts.timeouts, 1);
}

static void test_server_answers_for_libmicrohttpd_when_that_breaks_off(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    assert_int_equal(ask(fx, "GET /huge-header HTTP/1.1\r\nHost: x\r\n\r\n"), 500);
    test_client_expect_eof(&fx->tc, &fx->ts);
}

static void test_server_has_no_protocol_to_upgrade_to(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ask(fx, "GET /local HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n"
                                 "Connection: Upgrade\r\n\r\n"),
                         200);
        assert_int_equal(ask(fx, "POST /local HTTP/1.1\r\nHost: x\r\nUpgrade: h2c\r\n"
                                 "Connection: Upgrade\r\nContent-Length: 3\r\n\r\nabc"),
                         200);
    }
    assert_int_equal(ask(fx, "CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n"), 501);
}

static void test_server_refuses_connections_beyond_the_limit(void **state)
{
    fixture *fx = *state;
    test_client second;
    begin(fx, (sl_http_options){.max_connections = 1});
    assert_int_equal(ask(fx, "GET /local HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    test_client_open(&second, &fx->ts);
    test_client_expect_eof(&second, &fx->ts);
    test_client_close(&second);
    assert_int_equal(ask(fx, "GET /local HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    sl_http_counts counts;
    sl_http_server_counts(fx->ts.sv, &counts);
    assert_int_equal(counts.refused, 1);
    assert_int_equal(counts.accepted, 1);
}

static void test_server_speaks_http_1_0(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    assert_int_equal(ask(fx, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), 200);
    has(fx, "eep-");
    assert_int_equal(ask(fx, "GET /local HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"), 200);
    has(fx, "Connection: keep-alive");
    assert_int_equal(ask(fx, "GET /echo HTTP/1.0\r\n\r\n"), 200);
    test_client_expect_eof(&fx->tc, &fx->ts);
}

static void test_server_closes_when_asked(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    assert_int_equal(ask(fx, "GET /echo HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), 200);
    has(fx, "Connection: close");
    test_client_expect_eof(&fx->tc, &fx->ts);
}

static void test_server_answers_a_peer_that_half_closed(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    test_client_send(&fx->tc, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\nGET /local HTTP/1.1\r\nHost: "
                              "x\r\n\r\n");
    assert_int_equal(shutdown(fx->tc.fd, SHUT_WR), 0);
    test_client_expect_eof(&fx->tc, &fx->ts);
    assert_int_equal(test_client_count(&fx->tc, "200 OK"), 2);
}

static void test_server_says_100_continue_before_the_body(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    test_client_send(&fx->tc, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                              "Content-Length: 5\r\n\r\n");
    test_client_expect(&fx->tc, &fx->ts, "HTTP/1.1 100 Continue\r\n\r\n");
    assert_int_equal(ask(fx, "12345"), 200);
    has(fx, "\r\n\r\n12345[POST");
    assert_int_equal(ask(fx, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: magic\r\n\r\n"), 417);
}

typedef struct bad_case {
    const char *request;
    int status;
} bad_case;

static void test_server_refuses_what_it_cannot_read(void **state)
{
    static const bad_case cases[] = {
        {"GET /echo HTTP/1.1\r\n\r\n", 400},
        {"GET /echo HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        {"GET /a/../echo HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /a/%2e%2e/echo HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /a%2fecho HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /echo%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /echo?q=%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /echo?q=%0 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        {"GET /echo HTTP/2.0\r\nHost: x\r\n\r\n", 505},
        {"TRACE /echo HTTP/1.1\r\nHost: x\r\n\r\n", 501},
        {"BREW /echo HTTP/1.1\r\nHost: x\r\n\r\n", 501},
        {"\x16\x03\x01\x02\x01\x01\xfc", 400},
        {"GET /echo HTTP/1.1\r\nHost: x\r\nBad Header: 1\r\n\r\n", 400},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: "
         "chunked\r\n\r\n",
         400},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1048577\r\n\r\n", 413},
        {"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400},
    };
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        test_client tc;
        test_client_open(&tc, &fx->ts);
        int status = test_client_request(&tc, &fx->ts, cases[i].request);
        if (status != cases[i].status)
            fail_msg("%d instead of %d for %s", status, cases[i].status, cases[i].request);
        test_client_expect_eof(&tc, &fx->ts);
        test_client_close(&tc);
    }
    sl_http_counts counts;
    sl_http_server_counts(fx->ts.sv, &counts);
    assert_int_equal(counts.bad_requests, sizeof(cases) / sizeof(cases[0]));
    assert_int_equal(ask(fx, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
}

static void test_server_bounds_head_headers_and_chunked_body(void **state)
{
    fixture *fx = *state;
    static char text[40000];
    begin(fx, (sl_http_options){.max_headers = 10, .max_body_bytes = 1000});
    memset(text, 'a', sizeof(text));
    memcpy(text, "GET /echo?q=", 12);
    test_client_send_bytes(&fx->tc, text, 17000);
    test_client_expect(&fx->tc, &fx->ts, "HTTP/1.1 431 ");
    test_client_expect_eof(&fx->tc, &fx->ts);
    test_client_close(&fx->tc);

    test_client_open(&fx->tc, &fx->ts);
    test_client_send(&fx->tc, "GET /echo HTTP/1.1\r\nHost: x\r\n");
    for (int i = 0; i < 10; i++)
        test_client_send(&fx->tc, "X: y\r\n");
    test_client_expect(&fx->tc, &fx->ts, "HTTP/1.1 431 ");
    test_client_close(&fx->tc);

    test_client_open(&fx->tc, &fx->ts);
    test_client_send(&fx->tc, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
                              "chunked\r\n\r\n3e9\r\n");
    test_client_send_bytes(&fx->tc, text, 1001);
    test_client_expect(&fx->tc, &fx->ts, "HTTP/1.1 413 ");
}

static void test_server_ends_slow_and_idle_connections(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){.head_ms = 5000, .body_ms = 8000, .idle_ms = 20000});
    test_client_send(&fx->tc, "GET /echo HT");
    test_server_settle(&fx->ts);
    test_server_pass(&fx->ts, 3000);
    test_client_send(&fx->tc, "TP/1.1\r\n"); // a byte now and then does not help
    test_server_pass(&fx->ts, 4000);
    test_client_expect(&fx->tc, &fx->ts, "HTTP/1.1 408 ");
    test_client_expect_eof(&fx->tc, &fx->ts);
    test_client_close(&fx->tc);

    test_client_open(&fx->tc, &fx->ts);
    test_client_send(&fx->tc, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc");
    test_server_settle(&fx->ts);
    test_server_pass(&fx->ts, 10000);
    test_client_expect(&fx->tc, &fx->ts, "HTTP/1.1 408 ");
    test_client_close(&fx->tc);

    test_client_open(&fx->tc, &fx->ts);
    assert_int_equal(ask(fx, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    test_client_forget(&fx->tc);
    test_server_pass(&fx->ts, 22000);
    test_client_expect_eof(&fx->tc, &fx->ts);
    assert_int_equal(sl_buf_peek(&fx->tc.got).len, 0);
    sl_http_counts counts;
    sl_http_server_counts(fx->ts.sv, &counts);
    assert_int_equal(counts.timeouts, 2);
    test_server_pass(&fx->ts, 3000); // a peer that never closes after our FIN is cut
    sl_http_server_counts(fx->ts.sv, &counts);
    assert_int_equal(counts.connections, 0);
}

static void test_server_cors_echoes_origin_and_answers_options(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){.cors = true, .allow_headers = "X-Authorization"});
    assert_int_equal(ask(fx, "GET /local HTTP/1.1\r\nHost: x\r\nOrigin: http://a.b\r\n\r\n"), 200);
    has(fx, "Access-Control-Allow-Origin: http://a.b\r\n");
    has(fx, "Access-Control-Allow-Credentials: true\r\n");
    assert_int_equal(ask(fx, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    has(fx, "Access-Control-Allow-Origin: *\r\n");
    assert_int_equal(ask(fx, "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: http://a.b\r\n\r\n"),
                     204);
    has(fx, "Access-Control-Allow-Methods: GET, PUT, POST, PATCH, DELETE\r\n");
    has(fx, "X-Authorization\r\n");
    has(fx, "Allow: GET, HEAD, POST\r\n");
    assert_int_equal(ask(fx, "OPTIONS /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"), 404);
}

/* ---- the gate ---- */

static void on_drained(void *arg)
{
    *(bool *)arg = true;
}

typedef struct gate {
    sl_http_verdict verdict;
    sl_http_req *later;
    sl_http_resp *resp;
    int calls;
} gate;

static sl_http_verdict test_gate(void *arg, sl_http_req *req, sl_http_resp *resp)
{
    static const char *const roles[] = {"r1", "r2"};
    gate *gt = arg;
    gt->calls++;
    if (!sl_http_req_is_secure(req))
        return SL_HTTP_PASS;
    if (gt->verdict == SL_HTTP_REFUSE)
        sl_http_resp_msg(resp, 403, "no");
    else
        sl_http_req_set_user(req, "ann", roles, 2);
    sl_http_req_add_header(req, "X-Gate", "seen");
    gt->later = req;
    gt->resp = resp;
    return gt->verdict;
}

static void test_gate_stands_before_route_and_body(void **state)
{
    fixture *fx = *state;
    gate gt = {.verdict = SL_HTTP_REFUSE};
    begin(fx, (sl_http_options){.gate = test_gate, .gate_arg = &gt});
    assert_int_equal(ask(fx, "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"), 403);
    assert_int_equal(ask(fx, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"), 403);
    has(fx, "X-Gate: seen");
    assert_int_equal(ask(fx, "GET /ping HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    gt.verdict = SL_HTTP_PASS;
    assert_int_equal(ask(fx, "GET /echo HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    has(fx, "user=ann]");
    has(fx, "X-Gate: seen");
    assert_int_equal(ask(fx, "GET /nowhere HTTP/1.1\r\nHost: x\r\n\r\n"), 404);
    gt.verdict = SL_HTTP_REFUSE;
    // a refused upload is not read, so the connection ends
    assert_int_equal(
        ask(fx, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: "
                "9\r\n\r\n"),
        403);
    has(fx, "Connection: close");
    test_client_expect_eof(&fx->tc, &fx->ts);
}

static void test_gate_may_answer_later(void **state)
{
    fixture *fx = *state;
    gate gt = {.verdict = SL_HTTP_LATER};
    begin(fx, (sl_http_options){.gate = test_gate, .gate_arg = &gt});
    test_client_send(&fx->tc, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi"
                              "GET /local HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int idle = 0; gt.calls < 1;)
        test_server_turn(&fx->ts, &idle);
    test_server_settle(&fx->ts);
    sl_http_gate_done(gt.later, SL_HTTP_PASS);
    test_client_expect(&fx->tc, &fx->ts, "hi[POST");
    for (int idle = 0; gt.calls < 2;)
        test_server_turn(&fx->ts, &idle);
    sl_http_resp_msg(gt.resp, 429, "slow down");
    sl_http_gate_done(gt.later, SL_HTTP_REFUSE);
    test_client_expect(&fx->tc, &fx->ts, "slow down");
    // the connection is cut while the gate thinks
    test_client_send(&fx->tc, "GET /local HTTP/1.1\r\nHost: x\r\n\r\n");
    for (int idle = 0; gt.calls < 3;)
        test_server_turn(&fx->ts, &idle);
    sl_http_server_drain(fx->ts.sv, 0, on_drained, &fx->ts.drained);
    for (int idle = 0; !fx->ts.drained; test_server_turn(&fx->ts, &idle))
        sl_clock_advance(&fx->ts.clock, 200);
    sl_http_gate_done(gt.later, SL_HTTP_PASS); // finds nobody
}

/* ---- many at once ---- */

static pthread_mutex_t wall = PTHREAD_MUTEX_INITIALIZER;

static void blocked(void *arg, const sl_http_req *req, sl_http_resp *resp)
{
    (void)arg;
    (void)req;
    pthread_mutex_lock(&wall);
    pthread_mutex_unlock(&wall);
    sl_http_resp_msg(resp, 200, "through");
}

static const sl_http_route blocked_routes[] = {
    {.methods = SL_HTTP_M(GET), .pattern = "/blocked", .fn = blocked},
    {.methods = SL_HTTP_M(GET), .pattern = "/local", .on_loop = local},
};

static void test_server_answers_503_when_too_many_run(void **state)
{
    fixture *fx = *state;
    test_client more[3];
    test_server_start(&fx->ts, (sl_http_options){.max_running = 2}, blocked_routes, 2);
    pthread_mutex_lock(&wall);
    for (int i = 0; i < 2; i++) {
        test_client_open(&more[i], &fx->ts);
        test_client_send(&more[i], "GET /blocked HTTP/1.1\r\nHost: x\r\n\r\n");
    }
    sl_http_counts counts;
    int idle = 0;
    do {
        test_server_turn(&fx->ts, &idle);
        sl_http_server_counts(fx->ts.sv, &counts);
    } while (counts.requests < 2);
    test_client_open(&fx->tc, &fx->ts);
    assert_int_equal(ask(fx, "GET /blocked HTTP/1.1\r\nHost: x\r\n\r\n"), 503);
    has(fx, "Retry-After: 1");
    assert_int_equal(ask(fx, "GET /local HTTP/1.1\r\nHost: x\r\n\r\n"), 200); // the loop is free
    // one client gives up while its request runs
    test_client_close(&more[0]);
    test_server_settle(&fx->ts);
    pthread_mutex_unlock(&wall);
    test_client_expect(&more[1], &fx->ts, "through");
    test_client_close(&more[1]);
    idle = 0;
    for (int status = 503; status != 200; test_server_turn(&fx->ts, &idle))
        status = ask(fx, "GET /blocked HTTP/1.1\r\nHost: x\r\n\r\n");
}

/* ---- draining ---- */

static void test_drain_finishes_running_requests_and_closes_idle_ones(void **state)
{
    fixture *fx = *state;
    test_client idle_client;
    test_server_start(&fx->ts, (sl_http_options){0}, blocked_routes, 2);
    test_client_open(&fx->tc, &fx->ts);
    test_client_open(&idle_client, &fx->ts);
    assert_int_equal(
        test_client_request(&idle_client, &fx->ts, "GET /local HTTP/1.1\r\nHost: x\r\n\r\n"), 200);
    pthread_mutex_lock(&wall);
    test_client_send(&fx->tc, "GET /blocked HTTP/1.1\r\nHost: x\r\n\r\n");
    sl_http_counts counts;
    int idle = 0;
    do {
        test_server_turn(&fx->ts, &idle);
        sl_http_server_counts(fx->ts.sv, &counts);
    } while (counts.requests < 2);
    sl_http_server_drain(fx->ts.sv, 60000, on_drained, &fx->ts.drained);
    test_client_expect_eof(&idle_client, &fx->ts);
    test_client_close(&idle_client);
    test_server_settle(&fx->ts);
    assert_false(fx->ts.drained);
    pthread_mutex_unlock(&wall);
    test_client_expect(&fx->tc, &fx->ts, "through");
    test_client_expect_eof(&fx->tc, &fx->ts);
    test_client_close(&fx->tc);
    for (idle = 0; !fx->ts.drained;)
        test_server_turn(&fx->ts, &idle);
}

static void test_server_names_what_it_cannot_bind(void **state)
{
    fixture *fx = *state;
    begin(fx, (sl_http_options){0});
    char *why = NULL;
    sl_http_server *second = NULL;
    sl_http_options options = {.name = "admin",
                               .address = "127.0.0.1",
                               .port = sl_http_server_port(fx->ts.sv),
                               .loops = &fx->ts.lp,
                               .loop_count = 1};
    assert_string_not_equal(sl_err_name(sl_http_server_new(&options, &second, &why)), "OK");
    assert_non_null(strstr(why, "admin"));
    sl_free(why);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
        T(test_server_serves_by_libmicrohttpd_and_keeps_the_connection),
        T(test_server_serves_on_the_loop),
        T(test_server_routes_literals_before_names_before_stars),
        T(test_server_answers_head_and_empty_answers_without_body),
        T(test_server_answers_pipelined_requests_in_order),
        T(test_server_reads_a_request_byte_by_byte),
        T(test_server_big_answer_is_whole),
        T(test_server_cuts_a_peer_that_does_not_read_its_answer),
        T(test_server_answers_for_libmicrohttpd_when_that_breaks_off),
        T(test_server_has_no_protocol_to_upgrade_to),
        T(test_server_refuses_connections_beyond_the_limit),
        T(test_server_speaks_http_1_0),
        T(test_server_closes_when_asked),
        T(test_server_answers_a_peer_that_half_closed),
        T(test_server_says_100_continue_before_the_body),
        T(test_server_refuses_what_it_cannot_read),
        T(test_server_bounds_head_headers_and_chunked_body),
        T(test_server_ends_slow_and_idle_connections),
        T(test_server_cors_echoes_origin_and_answers_options),
        T(test_gate_stands_before_route_and_body),
        T(test_gate_may_answer_later),
        T(test_server_answers_503_when_too_many_run),
        T(test_drain_finishes_running_requests_and_closes_idle_ones),
        T(test_server_names_what_it_cannot_bind),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
