/* SPDX-License-Identifier: Apache-2.0
 *
 * http_test_util: a server on a loop turned by hand with a fake clock, and a client on a plain
 * socket.
 */
#ifndef SL_HTTP_TEST_UTIL_H
#define SL_HTTP_TEST_UTIL_H

#include "base/alloc.h"
#include "base/buf.h"
#include "http/server.h"

typedef struct test_server {
    sl_clock clock; /* fake */
    sl_loop *lp;
    sl_http_server *sv;
    bool drained;
} test_server;

/** options: address, port and loops are filled in. Routes are added, the server is started. */
void test_server_start(test_server *ts, sl_http_options options, const sl_http_route *routes,
                       size_t count);
/** In two steps for tests that add routes by themselves. */
void test_server_make(test_server *ts, sl_http_options options);
void test_server_go(test_server *ts);
/** Drains, frees everything. */
void test_server_stop(test_server *ts);
/** One turn, or a moment's wait; fails the test when nothing happens for 5 s. idle counts. */
void test_server_turn(test_server *ts, int *idle);
/** Turns until nothing is ready. */
void test_server_settle(test_server *ts);
/** Lets fake time pass, second by second. */
void test_server_pass(test_server *ts, sl_dur_ms ms);

typedef struct test_client {
    int fd;
    sl_buf got; /* NUL ended behind its length */
    bool eof;
} test_client;

void test_client_open(test_client *tc, test_server *ts);
void test_client_close(test_client *tc);
void test_client_send(test_client *tc, const char *text);
void test_client_send_bytes(test_client *tc, const void *ptr, size_t len);
/** Turns the server until text was received, fails if that never comes. */
void test_client_expect(test_client *tc, test_server *ts, const char *text);
/** Turns the server until the connection ended. */
void test_client_expect_eof(test_client *tc, test_server *ts);
/** What was received so far. */
const char *test_client_text(test_client *tc);
/** Forgets what was received. */
void test_client_forget(test_client *tc);
unsigned test_client_count(test_client *tc, const char *text);
/** Sends a request, waits for the end of the answer's head and its body by Content-Length; returns
 * the status. The answer is test_client_text. */
int test_client_request(test_client *tc, test_server *ts, const char *request);

#endif
