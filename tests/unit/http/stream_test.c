/* SPDX-License-Identifier: Apache-2.0
 *
 * http/stream: answers that stay open, come later, or meet a peer that is slow or gone (cases C99,
 * C100, C101).
 */
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "http_test_util.h"
#include "sl_test.h"

typedef struct user {
    sl_http_stream *st;
    int opens;
    int writables;
    int closes;
    sl_err why;
    size_t max_queued;
    bool reply_in_hold;
} user;

static void on_writable(void *arg)
{
    ((user *)arg)->writables++;
}

static void on_closed(void *arg, sl_err why)
{
    user *us = arg;
    us->closes++;
    us->why = why;
    us->st = NULL;
}

static const sl_http_stream_events events = {.on_writable = on_writable, .on_closed = on_closed};

static void open_stream(void *arg, sl_http_stream *st)
{
    user *us = arg;
    us->st = st;
    us->opens++;
    sl_http_resp *resp = sl_http_stream_resp(st);
    sl_http_resp_add_header(resp, "Content-Type", "text/event-stream");
    sl_http_stream_open(st, &events, us, us->max_queued);
}

static void hold_stream(void *arg, sl_http_stream *st)
{
    user *us = arg;
    us->st = st;
    us->opens++;
    sl_http_stream_hold(st, &events, us);
    if (us->reply_in_hold) {
        sl_http_resp_msg(sl_http_stream_resp(st), 200, "at once");
        sl_http_stream_reply(st);
    }
}

static void silent(void *arg, sl_http_stream *st)
{
    (void)arg;
    (void)st;
}

static void plain(void *arg, sl_http_stream *st)
{
    (void)arg;
    sl_http_resp_msg(sl_http_stream_resp(st), 200, "plain");
    sl_http_stream_reply(st);
}

typedef struct fixture {
    test_server ts;
    test_client tc;
    user us;
} fixture;

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof(*fx));
    fx->us.max_queued = 64 << 10;
    const sl_http_route routes[] = {
        {.methods = SL_HTTP_M(GET), .pattern = "/sse", .on_loop = open_stream, .arg = &fx->us},
        {.methods = SL_HTTP_M(GET), .pattern = "/poll", .on_loop = hold_stream, .arg = &fx->us},
        {.methods = SL_HTTP_M(GET), .pattern = "/silent", .on_loop = silent},
        {.methods = SL_HTTP_M(GET), .pattern = "/plain", .on_loop = plain},
    };
    test_server_start(&fx->ts, (sl_http_options){.write_ms = 10000}, routes, 4);
    test_client_open(&fx->tc, &fx->ts);
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

static void begin(fixture *fx, const char *request)
{
    test_client_send(&fx->tc, request);
    for (int idle = 0; fx->us.opens == 0;)
        test_server_turn(&fx->ts, &idle);
}

static void wait_closed(fixture *fx)
{
    for (int idle = 0; fx->us.closes == 0;)
        test_server_turn(&fx->ts, &idle);
}

static void say(fixture *fx, const char *head, const char *body)
{
    sl_rbuf *rb = NULL;
    uint32_t len = 0;
    if (body != NULL) {
        len = (uint32_t)strlen(body);
        rb = sl_rbuf_new(len);
        memcpy(rb->data, body, len);
        rb->len = len;
    }
    SL_TEST_OK(sl_http_stream_write(fx->us.st, sl_slice_str(head), rb, 0, len));
    sl_rbuf_unref(&rb);
}

static uint64_t streams_now(fixture *fx)
{
    sl_http_counts counts;
    sl_http_server_counts(fx->ts.sv, &counts);
    return counts.streams;
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"

static void test_stream_sends_chunks_and_ends_cleanly(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/sse"));
    test_client_expect(&fx->tc, &fx->ts, "\r\n\r\n");
    assert_non_null(strstr(test_client_text(&fx->tc), "Transfer-Encoding: chunked\r\n"));
    assert_non_null(strstr(test_client_text(&fx->tc), "Connection: keep-alive\r\n"));
    assert_null(strstr(test_client_text(&fx->tc), "Content-Length"));
    assert_int_equal(streams_now(fx), 1);
    test_client_forget(&fx->tc);
    say(fx, "id:1\n", "data:hello\n\n");
    say(fx, ":\n\n", NULL);
    say(fx, "", "twenty bytes of data");
    SL_TEST_OK(sl_http_stream_write(fx->us.st, sl_slice_str(""), NULL, 0, 0)); // no end by mistake
    test_client_expect(&fx->tc, &fx->ts, "twenty bytes of data\r\n");
    assert_string_equal(test_client_text(&fx->tc), "11\r\nid:1\ndata:hello\n\n\r\n"
                                                   "3\r\n:\n\n\r\n"
                                                   "14\r\ntwenty bytes of data\r\n");
    sl_http_stream_end(fx->us.st);
    sl_http_stream_end(fx->us.st);
    SL_TEST_ERR(sl_http_stream_write(fx->us.st, sl_slice_str("x"), NULL, 0, 0), SL_ECLOSED);
    assert_int_equal(fx->us.closes, 0); // never inside the call
    wait_closed(fx);
    SL_TEST_OK(fx->us.why);
    test_client_expect(&fx->tc, &fx->ts, "\r\n0\r\n\r\n");
    assert_int_equal(streams_now(fx), 0);
    // the connection serves on
    assert_int_equal(test_client_request(&fx->tc, &fx->ts, GET("/plain")), 200);
}

static void test_stream_for_http_1_0_ends_with_the_connection(void **state)
{
    fixture *fx = *state;
    begin(fx, "GET /sse HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    say(fx, "data:1\n\n", NULL);
    test_client_expect(&fx->tc, &fx->ts, "\r\n\r\ndata:1\n\n");
    assert_null(strstr(test_client_text(&fx->tc), "chunked"));
    assert_non_null(strstr(test_client_text(&fx->tc), "Connection: close\r\n"));
    sl_http_stream_end(fx->us.st);
    test_client_expect_eof(&fx->tc, &fx->ts);
    wait_closed(fx);
    SL_TEST_OK(fx->us.why);
}

static void test_stream_for_head_has_no_body(void **state)
{
    fixture *fx = *state;
    begin(fx, "HEAD /sse HTTP/1.1\r\nHost: x\r\n\r\n");
    SL_TEST_ERR(sl_http_stream_write(fx->us.st, sl_slice_str("x"), NULL, 0, 0), SL_ECLOSED);
    wait_closed(fx);
    test_client_expect(&fx->tc, &fx->ts, "text/event-stream");
    assert_int_equal(test_client_request(&fx->tc, &fx->ts, GET("/plain")), 200);
}

static void test_stream_learns_that_the_peer_has_gone(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/sse"));
    test_client_close(&fx->tc);
    wait_closed(fx);
    SL_TEST_ERR(fx->us.why, SL_ECLOSED);
    assert_int_equal(fx->us.closes, 1);
    assert_int_equal(streams_now(fx), 0);
}

static void test_stream_bounds_what_waits_and_tells_when_there_is_room(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/sse"));
    static uint8_t block[8192];
    sl_rbuf *rb = sl_rbuf_new(sizeof(block));
    rb->len = sizeof(block);
    memset(rb->data, 'x', sizeof(block));
    sl_err err = SL_OK;
    size_t sent = 0;
    for (int i = 0; i < 100000 && err == SL_OK; i++) { // the peer does not read
        err = sl_http_stream_write(fx->us.st, sl_slice_str(""), rb, 0, rb->len);
        sent += err == SL_OK;
        if (sl_http_stream_queued(fx->us.st) > fx->us.max_queued / 2)
            test_server_settle(&fx->ts);
    }
    SL_TEST_ERR(err, SL_ELIMIT);
    assert_true(sl_http_stream_queued(fx->us.st) <= fx->us.max_queued);
    sl_http_counts counts;
    sl_http_server_counts(fx->ts.sv, &counts);
    assert_int_equal(counts.stream_limit, 1);
    assert_int_equal(fx->us.writables, 0);
    size_t want = 0;
    for (int idle = 0; fx->us.writables == 0; test_server_turn(&fx->ts, &idle)) {
        ssize_t n = recv(fx->tc.fd, block, sizeof(block), 0);
        want += n > 0 ? (size_t)n : 0;
    }
    sl_http_stream_end(fx->us.st);
    test_client_expect(&fx->tc, &fx->ts, "\r\n0\r\n\r\n");
    want += sl_buf_peek(&fx->tc.got).len;
    assert_true(want > sent * (sizeof(block) + 8)); // nothing that was taken is lost
    sl_rbuf_unref(&rb);
}

static void test_stream_lets_a_large_piece_pass_alone(void **state)
{
    fixture *fx = *state;
    fx->us.max_queued = 16;
    begin(fx, GET("/sse"));
    test_client_expect(&fx->tc, &fx->ts, "\r\n\r\n");
    say(fx, "", "more than sixteen bytes");
    SL_TEST_ERR(sl_http_stream_write(fx->us.st, sl_slice_str("y"), NULL, 0, 0), SL_ELIMIT);
    test_client_expect(&fx->tc, &fx->ts, "sixteen bytes\r\n");
    assert_int_equal(fx->us.writables, 1);
}

static void test_stream_of_a_frozen_peer_is_cut_after_the_deadline(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/sse"));
    sl_rbuf *rb = sl_rbuf_new(8192);
    rb->len = 8192;
    memset(rb->data, 'x', rb->len);
    while (sl_http_stream_write(fx->us.st, sl_slice_str(""), rb, 0, rb->len) == SL_OK)
        if (sl_http_stream_queued(fx->us.st) > fx->us.max_queued / 2)
            test_server_settle(&fx->ts);
    sl_rbuf_unref(&rb);
    test_server_pass(&fx->ts, 9000);
    assert_int_equal(fx->us.closes, 0);
    test_server_pass(&fx->ts, 3000);
    wait_closed(fx);
    SL_TEST_ERR(fx->us.why, SL_ETIMEDOUT);
}

static void test_stream_idle_stays_open(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/sse"));
    test_server_pass(&fx->ts, 300000);
    assert_int_equal(fx->us.closes, 0);
    say(fx, "still\n", NULL);
    test_client_expect(&fx->tc, &fx->ts, "still\n");
}

static void test_stream_abort_cuts(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/sse"));
    sl_http_stream_abort(fx->us.st);
    assert_int_equal(fx->us.closes, 0);
    SL_TEST_ERR(sl_http_stream_write(fx->us.st, sl_slice_str("x"), NULL, 0, 0), SL_ECLOSED);
    wait_closed(fx);
    SL_TEST_ERR(fx->us.why, SL_ECLOSED);
    test_client_expect_eof(&fx->tc, &fx->ts);
}

static void test_hold_replies_later(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/poll"));
    test_server_pass(&fx->ts, 100000); // no deadline of ours while the handler waits
    assert_string_equal(sl_http_req_path(sl_http_stream_req(fx->us.st)), "/poll");
    sl_http_resp_msg(sl_http_stream_resp(fx->us.st), 200, "late");
    sl_http_stream_reply(fx->us.st);
    assert_int_equal(fx->us.closes, 0);
    test_client_expect(&fx->tc, &fx->ts, "{\"msg\":\"late\"}");
    wait_closed(fx);
    SL_TEST_OK(fx->us.why);
    assert_int_equal(test_client_request(&fx->tc, &fx->ts, GET("/plain")), 200);
}

static void test_hold_may_reply_inside_the_handler(void **state)
{
    fixture *fx = *state;
    fx->us.reply_in_hold = true;
    begin(fx, GET("/poll"));
    test_client_expect(&fx->tc, &fx->ts, "at once");
    wait_closed(fx);
    SL_TEST_OK(fx->us.why);
}

static void test_hold_learns_that_the_peer_has_gone(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/poll"));
    test_client_close(&fx->tc);
    for (int idle = 0; fx->us.closes == 0; test_server_turn(&fx->ts, &idle))
        ;
    SL_TEST_ERR(fx->us.why, SL_ECLOSED);
}

static void test_handler_that_gives_no_answer_is_a_500(void **state)
{
    fixture *fx = *state;
    assert_int_equal(test_client_request(&fx->tc, &fx->ts, GET("/silent")), 500);
    assert_int_equal(test_client_request(&fx->tc, &fx->ts, GET("/plain")), 200);
}

static void test_pipelined_request_waits_for_the_stream(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/sse") GET("/plain"));
    say(fx, "event\n", NULL);
    test_client_expect(&fx->tc, &fx->ts, "event\n");
    test_server_settle(&fx->ts);
    assert_null(strstr(test_client_text(&fx->tc), "plain"));
    sl_http_stream_end(fx->us.st);
    test_client_expect(&fx->tc, &fx->ts, "0\r\n\r\nHTTP/1.1 200 OK");
    test_client_expect(&fx->tc, &fx->ts, "plain");
}

static void on_drained(void *arg)
{
    *(bool *)arg = true;
}

static void test_drain_ends_streams_with_their_last_chunk(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/sse"));
    say(fx, "last\n", NULL);
    sl_http_server_drain(fx->ts.sv, 5000, on_drained, &fx->ts.drained);
    test_client_expect(&fx->tc, &fx->ts, "last\n\r\n0\r\n\r\n");
    test_client_expect_eof(&fx->tc, &fx->ts);
    assert_int_equal(fx->us.closes, 1);
    SL_TEST_OK(fx->us.why);
    test_client_close(&fx->tc);
    for (int idle = 0; !fx->ts.drained;)
        test_server_turn(&fx->ts, &idle);
}

static void test_drain_answers_held_requests_with_503(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/poll"));
    sl_http_server_drain(fx->ts.sv, 5000, on_drained, &fx->ts.drained);
    test_client_expect(&fx->tc, &fx->ts, "HTTP/1.1 503 ");
    test_client_expect_eof(&fx->tc, &fx->ts);
    assert_int_equal(fx->us.closes, 1);
    test_client_close(&fx->tc);
    for (int idle = 0; !fx->ts.drained;)
        test_server_turn(&fx->ts, &idle);
}

static void test_drain_cuts_what_does_not_end(void **state)
{
    fixture *fx = *state;
    begin(fx, GET("/sse"));
    sl_rbuf *rb = sl_rbuf_new(8192);
    rb->len = 8192;
    memset(rb->data, 'x', rb->len);
    while (sl_http_stream_write(fx->us.st, sl_slice_str(""), rb, 0, rb->len) == SL_OK)
        if (sl_http_stream_queued(fx->us.st) > fx->us.max_queued / 2)
            test_server_settle(&fx->ts);
    sl_rbuf_unref(&rb);
    sl_http_server_drain(fx->ts.sv, 3000, on_drained, &fx->ts.drained);
    test_server_pass(&fx->ts, 2000);
    assert_false(fx->ts.drained);
    test_server_pass(&fx->ts, 2000);
    for (int idle = 0; !fx->ts.drained;)
        test_server_turn(&fx->ts, &idle);
    SL_TEST_ERR(fx->us.why, SL_ECLOSED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
        T(test_stream_sends_chunks_and_ends_cleanly),
        T(test_stream_for_http_1_0_ends_with_the_connection),
        T(test_stream_for_head_has_no_body),
        T(test_stream_learns_that_the_peer_has_gone),
        T(test_stream_bounds_what_waits_and_tells_when_there_is_room),
        T(test_stream_lets_a_large_piece_pass_alone),
        T(test_stream_of_a_frozen_peer_is_cut_after_the_deadline),
        T(test_stream_idle_stays_open),
        T(test_stream_abort_cuts),
        T(test_hold_replies_later),
        T(test_hold_may_reply_inside_the_handler),
        T(test_hold_learns_that_the_peer_has_gone),
        T(test_handler_that_gives_no_answer_is_a_500),
        T(test_pipelined_request_waits_for_the_stream),
        T(test_drain_ends_streams_with_their_last_chunk),
        T(test_drain_answers_held_requests_with_503),
        T(test_drain_cuts_what_does_not_end),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
