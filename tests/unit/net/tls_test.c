/* SPDX-License-Identifier: Apache-2.0
 *
 * tls: a client and a server stream with TLS on one loop turned by hand. Their sockets do not meet:
 * the test carries the bytes between them, so that it can cut them in pieces, hold them, end them.
 */
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "net/filter.h"
#include "net/tls.h"
#include "net_test_util.h"
#include "sl_test.h"
#include "tls_test_certs.h"

#define MEGABYTE  (1u << 20)
#define MAX_STEPS 200000

/* A user of a TLS stream. What it wants to write waits in out. */
typedef struct side {
    sl_stream *sm;
    int far; /* the other end of its socket */
    sl_buf got, out;
    size_t most_out;
    int ups, ends, closes, failures, data_calls;
    sl_err end_err;
    char why[512], common_name[256], alpn[256];
    bool echo, stop_after_data, is_blocked;
} side;

typedef struct fixture {
    sl_clock clock;
    sl_loop *lp;
    side client, server;
    size_t chunk; /* bytes carried at a time */
    bool is_held; /* nothing is carried */
} fixture;

/* ---- the two sides --------------------------------------------------------------------------- */

static void send_out(side *sd)
{
    for (sl_slice rest; !sd->is_blocked && (rest = sl_buf_peek(&sd->out)).len > 0;) {
        // two pieces, so that pieces are joined too
        size_t first = rest.len > 1000 ? 1000 : rest.len;
        struct iovec iov[2] = {{(void *)(uintptr_t)rest.ptr, first},
                               {(void *)(uintptr_t)(rest.ptr + first), rest.len - first}};
        size_t written = 0;
        sl_err err = sl_stream_write(sd->sm, iov, 2, &written);
        if (err != SL_OK && err != SL_EAGAIN)
            return;
        sl_buf_consume(&sd->out, written);
        sd->is_blocked = written < rest.len;
    }
}

static void say(side *sd, const void *bytes, size_t len)
{
    SL_TEST_OK(sl_buf_append(&sd->out, bytes, len));
    if (sl_buf_peek(&sd->out).len > sd->most_out)
        sd->most_out = sl_buf_peek(&sd->out).len;
    send_out(sd);
}

static void on_data(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    side *sd = arg;
    sd->data_calls++;
    if (!sd->echo)
        SL_TEST_OK(sl_buf_append(&sd->got, rb->data + off, len));
    else
        say(sd, rb->data + off, len);
    if (sd->stop_after_data || (sd->echo && sl_buf_peek(&sd->out).len > 0))
        sl_stream_read_stop(sd->sm);
}

static void on_end(void *arg, sl_err err)
{
    side *sd = arg;
    sd->ends++;
    sd->end_err = err;
}

static void on_writable(void *arg)
{
    side *sd = arg;
    sd->is_blocked = false;
    send_out(sd);
    if (sd->echo && sl_buf_peek(&sd->out).len == 0)
        sl_stream_read_start(sd->sm);
}

static void on_closed(void *arg)
{
    side *sd = arg;
    sd->closes++;
    sd->sm = NULL;
}

static const sl_stream_events stream_events = {
    .on_data = on_data, .on_end = on_end, .on_writable = on_writable, .on_closed = on_closed};

static void on_up(void *arg, const sl_tls_peer *peer)
{
    side *sd = arg;
    sd->ups++;
    snprintf(sd->common_name, sizeof(sd->common_name), "%s", peer->common_name);
    snprintf(sd->alpn, sizeof(sd->alpn), "%s", peer->alpn);
    assert_memory_equal(peer->version, "TLSv1.", 6);
}

static void on_failure(void *arg, const char *why)
{
    side *sd = arg;
    assert_int_equal(sd->ends, 0); // before the end
    sd->failures++;
    snprintf(sd->why, sizeof(sd->why), "%s", why);
}

static const sl_tls_events tls_events = {.on_up = on_up, .on_failure = on_failure};

static void side_open(fixture *fx, side *sd)
{
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    sd->far = pair[1];
    sl_buf_init(&sd->got, 64u << 20);
    sl_buf_init(&sd->out, 64u << 20);
    SL_TEST_OK(sl_stream_tcp_new(fx->lp, pair[0], &sd->sm));
    sl_stream_set_events(sd->sm, &stream_events, sd);
}

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof(*fx));
    sl_clock_init(&fx->clock);
    SL_TEST_OK(sl_loop_new_manual("test", &fx->clock, &fx->lp));
    (void)sl_loop_turn(fx->lp);
    side_open(fx, &fx->client);
    side_open(fx, &fx->server);
    fx->chunk = 65536;
    *state = fx;
    return 0;
}

static void side_close(fixture *fx, side *sd)
{
    if (sd->sm != NULL) {
        sl_stream_close(sd->sm);
        turn_until(fx->lp, &sd->closes, 1);
    }
    if (sd->far >= 0)
        close(sd->far);
    sl_buf_fini(&sd->got);
    sl_buf_fini(&sd->out);
}

static int teardown(void **state)
{
    fixture *fx = *state;
    side_close(fx, &fx->client);
    side_close(fx, &fx->server);
    sl_loop_free(&fx->lp);
    sl_free(fx);
    return 0;
}

/* Carries at most a chunk; an end is carried too. */
static void carry(const fixture *fx, side *from, side *to)
{
    uint8_t bytes[65536];
    if (from->far < 0 || to->far < 0)
        return;
    ssize_t n = recv(from->far, bytes, fx->chunk, MSG_PEEK);
    if (n == 0)
        (void)shutdown(to->far, SHUT_WR);
    if (n <= 0)
        return;
    ssize_t sent = send(to->far, bytes, (size_t)n, MSG_NOSIGNAL);
    if (sent > 0)
        assert_int_equal(recv(from->far, bytes, (size_t)sent, 0), sent);
}

static void step(fixture *fx)
{
    (void)sl_loop_turn(fx->lp);
    if (fx->is_held)
        return;
    carry(fx, &fx->client, &fx->server);
    carry(fx, &fx->server, &fx->client);
}

static void step_until(fixture *fx, const int *value, int at_least)
{
    for (int steps = 0; *value < at_least; steps++) {
        assert_true(steps < MAX_STEPS);
        step(fx);
    }
}

static void step_until_bytes(fixture *fx, const side *sd, size_t len)
{
    for (int steps = 0; sl_buf_peek(&sd->got).len < len; steps++) {
        assert_true(steps < MAX_STEPS);
        step(fx);
    }
}

static sl_tls_ctx *context(const sl_tls_settings *settings)
{
    sl_tls_ctx *ctx = NULL;
    char *why = NULL;
    sl_err err = sl_tls_ctx_new(settings, &ctx, &why);
    if (err != SL_OK)
        fail_msg("%s", why);
    return ctx;
}

static sl_tls_ctx *client_context(const char *ca)
{
    return context(&(sl_tls_settings){.role = SL_TLS_CLIENT, .ca_file = test_cert_path(ca)});
}

static sl_tls_ctx *server_context(const char *cert, const char *key)
{
    return context(&(sl_tls_settings){
        .role = SL_TLS_SERVER, .cert_file = test_cert_path(cert), .key_file = test_cert_path(key)});
}

static void push_as(side *sd, sl_tls_ctx *ctx, const char *name)
{
    SL_TEST_OK(sl_tls_push(sd->sm, ctx, name, &tls_events, sd));
    sl_stream_read_start(sd->sm);
}

/* Takes both contexts. */
static void begin(fixture *fx, sl_tls_ctx *client, sl_tls_ctx *server, const char *name)
{
    push_as(&fx->client, client, name);
    push_as(&fx->server, server, NULL);
    sl_tls_ctx_unref(&client);
    sl_tls_ctx_unref(&server);
}

static void begin_plainly(fixture *fx)
{
    begin(fx, client_context("ca.crt"), server_context("server.crt", "server.key"), "broker.test");
}

static void connect_plainly(fixture *fx)
{
    begin_plainly(fx);
    step_until(fx, &fx->client.ups, 1);
    step_until(fx, &fx->server.ups, 1);
}

/* ---- connections that work ------------------------------------------------------------------- */

static void test_tls_handshake_then_data_both_ways(void **state)
{
    fixture *fx = *state;
    begin_plainly(fx);
    say(&fx->client, "early", 5); // waits for the handshake
    assert_true(fx->client.is_blocked);
    step_until_bytes(fx, &fx->server, 5);
    say(&fx->server, "answer", 6);
    step_until_bytes(fx, &fx->client, 6);
    SL_TEST_SLICE(sl_buf_peek(&fx->server.got), "early");
    SL_TEST_SLICE(sl_buf_peek(&fx->client.got), "answer");
    assert_string_equal(fx->client.common_name, "server");
    assert_string_equal(fx->server.common_name, "");
    assert_int_equal(fx->client.ups, 1);
    assert_int_equal(fx->server.ups, 1);
}

static void test_tls_server_may_be_named_by_its_address(void **state)
{
    fixture *fx = *state;
    begin(fx, client_context("ca.crt"), server_context("server.crt", "server.key"), "127.0.0.1");
    step_until(fx, &fx->client.ups, 1);
    assert_int_equal(fx->client.failures, 0);
}

static void test_tls_data_in_odd_pieces(void **state)
{
    fixture *fx = *state;
    static const size_t chunks[] = {1, 7, 4097};
    fx->chunk = 3;
    connect_plainly(fx);
    uint8_t bytes[20000];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    for (size_t i = 0; i < 3; i++) {
        fx->chunk = chunks[i];
        sl_buf_clear(&fx->server.got);
        sl_buf_clear(&fx->client.got);
        say(&fx->client, bytes, sizeof(bytes));
        say(&fx->server, bytes, 777);
        step_until_bytes(fx, &fx->server, sizeof(bytes));
        step_until_bytes(fx, &fx->client, 777);
        assert_memory_equal(sl_buf_peek(&fx->server.got).ptr, bytes, sizeof(bytes));
        assert_memory_equal(sl_buf_peek(&fx->client.got).ptr, bytes, 777);
    }
}

static void test_tls_echo_with_a_slow_reader_stays_bounded(void **state)
{
    fixture *fx = *state;
    connect_plainly(fx);
    uint8_t *bytes = sl_alloc(MEGABYTE);
    for (size_t i = 0; i < MEGABYTE; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 65521);
    fx->server.echo = true;
    fx->client.stop_after_data = true;
    say(&fx->client, bytes, MEGABYTE);
    for (int steps = 0; sl_buf_peek(&fx->client.got).len < MEGABYTE; steps++) {
        assert_true(steps < MAX_STEPS);
        step(fx);
        if (steps % 5 == 0)
            sl_stream_read_start(fx->client.sm);
    }
    assert_memory_equal(sl_buf_peek(&fx->client.got).ptr, bytes, MEGABYTE);
    assert_true(fx->server.most_out <= 2 * SL_NET_RBUF_BYTES); // it stopped reading meanwhile
    assert_int_equal(fx->client.ends, 0);
    sl_free(bytes);
}

static void test_tls_stopped_reader_gets_nothing_until_it_starts(void **state)
{
    fixture *fx = *state;
    connect_plainly(fx);
    fx->server.stop_after_data = true;
    for (int i = 0; i < 3; i++)
        say(&fx->client, "record", 6);
    step_until_bytes(fx, &fx->server, 6);
    for (int i = 0; i < 20; i++)
        step(fx);
    assert_int_equal(fx->server.data_calls, 1); // one record a call: the others are kept
    sl_stream_read_start(fx->server.sm);
    assert_int_equal(fx->server.data_calls, 1); // never inside a call of the user
    step_until_bytes(fx, &fx->server, 12);
    assert_int_equal(fx->server.data_calls, 2);
    fx->server.stop_after_data = false;
    sl_stream_read_start(fx->server.sm);
    step_until_bytes(fx, &fx->server, 18);
}

static void test_tls_shutdown_is_behind_the_data_and_ends_cleanly(void **state)
{
    fixture *fx = *state;
    connect_plainly(fx);
    say(&fx->client, "last words", 10);
    sl_stream_shutdown(fx->client.sm);
    step_until(fx, &fx->server.ends, 1);
    SL_TEST_ERR(fx->server.end_err, SL_OK);
    SL_TEST_SLICE(sl_buf_peek(&fx->server.got), "last words");
    say(&fx->server, "reply", 5); // half closed: the other direction works on
    step_until_bytes(fx, &fx->client, 5);
    sl_stream_close(fx->server.sm);
    step_until(fx, &fx->client.ends, 1);
    SL_TEST_ERR(fx->client.end_err, SL_OK);
    size_t written = 0;
    struct iovec iov = {(void *)(uintptr_t) "x", 1};
    SL_TEST_ERR(sl_stream_write(fx->client.sm, &iov, 1, &written), SL_ECLOSED);
}

static void test_tls_close_says_goodbye(void **state)
{
    fixture *fx = *state;
    connect_plainly(fx);
    sl_stream_close(fx->client.sm);
    step_until(fx, &fx->server.ends, 1);
    SL_TEST_ERR(fx->server.end_err, SL_OK);
    assert_int_equal(fx->server.failures, 0);
}

static void test_tls_alpn_is_agreed_on_or_refused(void **state)
{
    fixture *fx = *state;
    static const char *const both[] = {"http/1.1", "mqtt"};
    static const char *const one[] = {"mqtt"};
    static const char *const none[] = {"x-other"};
    sl_tls_settings client = {
        .role = SL_TLS_CLIENT, .ca_file = test_cert_path("ca.crt"), .alpn = both, .alpn_count = 2};
    sl_tls_settings server = {.role = SL_TLS_SERVER,
                              .cert_file = test_cert_path("server.crt"),
                              .key_file = test_cert_path("server.key"),
                              .alpn = one,
                              .alpn_count = 1};
    begin(fx, context(&client), context(&server), "broker.test");
    step_until(fx, &fx->client.ups, 1);
    step_until(fx, &fx->server.ups, 1);
    assert_string_equal(fx->client.alpn, "mqtt");
    assert_string_equal(fx->server.alpn, "mqtt");
    (void)teardown(state);
    (void)setup(state);
    fx = *state;
    server.alpn = none;
    begin(fx, context(&client), context(&server), "broker.test");
    step_until(fx, &fx->client.ends, 1);
    SL_TEST_ERR(fx->client.end_err, SL_EPROTOCOL);
    assert_int_equal(fx->client.ups, 0);
}

static void test_tls_new_context_leaves_old_streams_alone(void **state)
{
    fixture *fx = *state;
    sl_tls_ctx *old = server_context("server.crt", "server.key");
    sl_tls_ctx *ca = client_context("ca.crt");
    push_as(&fx->client, ca, "broker.test");
    push_as(&fx->server, old, NULL);
    sl_tls_ctx_unref(&ca);
    step_until(fx, &fx->client.ups, 1);
    step_until(fx, &fx->server.ups, 1);
    sl_tls_ctx_unref(&old); // the owner has a new one now

    fixture *next = NULL;
    (void)setup((void **)&next);
    begin(next, client_context("other-ca.crt"), server_context("server2.crt", "server2.key"),
          "broker.test");
    step_until(next, &next->client.ups, 1);
    assert_string_equal(next->client.common_name, "server2");
    (void)teardown((void **)&next);

    say(&fx->client, "still here", 10);
    step_until_bytes(fx, &fx->server, 10);
}

/* ---- certificates ---------------------------------------------------------------------------- */

static void expect_refusal(fixture *fx, const char *part)
{
    step_until(fx, &fx->client.ends, 1);
    assert_int_equal(fx->client.ups, 0);
    SL_TEST_ERR(fx->client.end_err, SL_EDENIED);
    if (strstr(fx->client.why, part) == NULL)
        fail_msg("'%s' lacks '%s'", fx->client.why, part);
    step_until(fx, &fx->server.ends, 1); // by the alert, quickly
    assert_int_equal(fx->server.failures, 1);
    assert_int_equal(sl_buf_peek(&fx->server.got).len, 0);
}

static void test_tls_server_of_another_ca_is_refused(void **state)
{
    fixture *fx = *state;
    begin(fx, client_context("other-ca.crt"), server_context("server.crt", "server.key"),
          "broker.test");
    say(&fx->client, "secret", 6);
    expect_refusal(fx, "unable to get local issuer certificate");
    SL_TEST_ERR(fx->server.end_err, SL_EDENIED);
}

static void test_tls_expired_certificate_is_refused(void **state)
{
    fixture *fx = *state;
    begin(fx, client_context("ca.crt"), server_context("expired.crt", "expired.key"),
          "broker.test");
    expect_refusal(fx, "expired");
}

static void test_tls_certificate_of_another_name_is_refused(void **state)
{
    fixture *fx = *state;
    begin(fx, client_context("ca.crt"), server_context("server.crt", "server.key"), "other.test");
    expect_refusal(fx, "not for 'other.test'");
}

static void test_tls_certificate_of_another_address_is_refused(void **state)
{
    fixture *fx = *state;
    begin(fx, client_context("ca.crt"), server_context("server.crt", "server.key"), "127.0.0.2");
    expect_refusal(fx, "not for '127.0.0.2'");
}

static void test_tls_client_needs_a_server_name(void **state)
{
    fixture *fx = *state;
    sl_tls_ctx *ctx = client_context("ca.crt");
    char longer[400];
    memset(longer, 'a', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    SL_TEST_ERR(sl_tls_push(fx->client.sm, ctx, NULL, NULL, NULL), SL_EINVAL);
    SL_TEST_ERR(sl_tls_push(fx->client.sm, ctx, "", NULL, NULL), SL_EINVAL);
    SL_TEST_ERR(sl_tls_push(fx->client.sm, ctx, longer, NULL, NULL), SL_EINVAL);
    sl_tls_ctx_unref(&ctx);
}

static sl_tls_ctx *demanding_server(sl_tls_client_cert wish)
{
    return context(&(sl_tls_settings){.role = SL_TLS_SERVER,
                                      .cert_file = test_cert_path("server.crt"),
                                      .key_file = test_cert_path("server.key"),
                                      .ca_file = test_cert_path("ca.crt"),
                                      .client_cert = wish});
}

static sl_tls_ctx *client_with(const char *cert, const char *key)
{
    return context(&(sl_tls_settings){.role = SL_TLS_CLIENT,
                                      .ca_file = test_cert_path("ca.crt"),
                                      .cert_file = test_cert_path(cert),
                                      .key_file = test_cert_path(key)});
}

static void test_tls_client_certificate_names_the_client(void **state)
{
    fixture *fx = *state;
    begin(fx, client_with("client.crt", "client.key"),
          demanding_server(SL_TLS_CLIENT_CERT_REQUIRED), "broker.test");
    step_until(fx, &fx->server.ups, 1);
    assert_string_equal(fx->server.common_name, "client");
}

static void test_tls_client_certificate_may_be_optional(void **state)
{
    fixture *fx = *state;
    begin(fx, client_context("ca.crt"), demanding_server(SL_TLS_CLIENT_CERT_WANTED), "broker.test");
    step_until(fx, &fx->server.ups, 1);
    assert_string_equal(fx->server.common_name, "");
}

static void test_tls_missing_client_certificate_is_told_to_both(void **state)
{
    fixture *fx = *state;
    begin(fx, client_context("ca.crt"), demanding_server(SL_TLS_CLIENT_CERT_REQUIRED),
          "broker.test");
    step_until(fx, &fx->server.ends, 1);
    step_until(fx, &fx->client.ends, 1);
    assert_int_equal(fx->server.ups, 0);
    SL_TEST_ERR(fx->server.end_err, SL_EDENIED);
    assert_non_null(strstr(fx->server.why, "did not return a certificate"));
    SL_TEST_ERR(fx->client.end_err, SL_EDENIED);
    assert_non_null(strstr(fx->client.why, "certificate required"));
}

static void test_tls_untrusted_client_certificate_is_refused(void **state)
{
    fixture *fx = *state;
    begin(fx, client_with("server2.crt", "server2.key"),
          demanding_server(SL_TLS_CLIENT_CERT_WANTED), "broker.test");
    step_until(fx, &fx->server.ends, 1);
    assert_int_equal(fx->server.ups, 0);
    SL_TEST_ERR(fx->server.end_err, SL_EDENIED);
    assert_non_null(strstr(fx->server.why, "not accepted"));
}

/* ---- peers that misbehave -------------------------------------------------------------------- */

static void cut(side *sd)
{
    assert_int_equal(shutdown(sd->far, SHUT_WR), 0);
}

static void test_tls_end_without_goodbye_is_a_cut(void **state)
{
    fixture *fx = *state;
    connect_plainly(fx);
    fx->is_held = true;
    cut(&fx->server);
    step_until(fx, &fx->server.ends, 1);
    SL_TEST_ERR(fx->server.end_err, SL_ECLOSED);
    assert_non_null(strstr(fx->server.why, "cut"));
}

static void test_tls_end_in_mid_record_is_a_cut(void **state)
{
    fixture *fx = *state;
    connect_plainly(fx);
    step(fx);
    fx->is_held = true;
    uint8_t record[4096] = {0};
    say(&fx->client, record, sizeof(record));
    ssize_t n = recv(fx->client.far, record, 1000, 0);
    assert_int_equal(n, 1000);
    assert_int_equal(send(fx->server.far, record, 1000, 0), 1000);
    cut(&fx->server);
    step_until(fx, &fx->server.ends, 1);
    SL_TEST_ERR(fx->server.end_err, SL_ECLOSED);
    assert_int_equal(sl_buf_peek(&fx->server.got).len, 0);
}

static void test_tls_changed_record_ends_the_stream(void **state)
{
    fixture *fx = *state;
    connect_plainly(fx);
    step(fx);
    fx->is_held = true;
    say(&fx->client, "pay 1 to alice", 14);
    uint8_t record[512];
    ssize_t n = recv(fx->client.far, record, sizeof(record), 0);
    assert_true(n > 20);
    record[12] ^= 1;
    assert_int_equal(send(fx->server.far, record, (size_t)n, 0), n);
    step_until(fx, &fx->server.ends, 1);
    SL_TEST_ERR(fx->server.end_err, SL_EPROTOCOL);
    assert_int_equal(sl_buf_peek(&fx->server.got).len, 0);
    fx->is_held = false;
    step_until(fx, &fx->client.ends, 1);
    assert_non_null(strstr(fx->client.why, "bad record mac"));
}

static void expect_hint(fixture *fx, side *sd, sl_tls_ctx *ctx, const char *bytes, size_t len,
                        const char *hint)
{
    fx->is_held = true;
    push_as(sd, ctx, "broker.test");
    sl_tls_ctx_unref(&ctx);
    assert_int_equal(send(sd->far, bytes, len, 0), (ssize_t)len);
    step_until(fx, &sd->ends, 1);
    SL_TEST_ERR(sd->end_err, SL_EPROTOCOL);
    assert_int_equal(sd->ups, 0);
    if (strstr(sd->why, hint) == NULL)
        fail_msg("'%s' lacks '%s'", sd->why, hint);
}

static void test_tls_mqtt_to_a_server_ends_with_a_hint(void **state)
{
    fixture *fx = *state;
    expect_hint(fx, &fx->server, server_context("server.crt", "server.key"),
                "\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04test", 18, "MQTT without TLS");
}

static void test_tls_http_to_a_server_ends_with_a_hint(void **state)
{
    fixture *fx = *state;
    expect_hint(fx, &fx->server, server_context("server.crt", "server.key"), "GET / HTTP/1.1\r\n",
                16, "HTTP without TLS");
}

static void test_tls_garbage_behind_a_good_first_byte_ends(void **state)
{
    fixture *fx = *state;
    expect_hint(fx, &fx->server, server_context("server.crt", "server.key"),
                "\x16garbage garbage garbage", 24, "TLS: ");
}

static void test_tls_plain_server_ends_with_a_hint(void **state)
{
    fixture *fx = *state;
    expect_hint(fx, &fx->client, client_context("ca.crt"), "-ERR Protocol error\r\n", 21,
                "does the server speak TLS");
}

static void test_tls_end_during_the_handshake_has_a_hint(void **state)
{
    fixture *fx = *state;
    fx->is_held = true;
    sl_tls_ctx *ctx = client_context("ca.crt");
    push_as(&fx->client, ctx, "broker.test");
    sl_tls_ctx_unref(&ctx);
    cut(&fx->client);
    step_until(fx, &fx->client.ends, 1);
    SL_TEST_ERR(fx->client.end_err, SL_ECLOSED);
    assert_non_null(strstr(fx->client.why, "speak TLS on this port"));
}

static void test_tls_close_during_the_handshake_is_silent(void **state)
{
    fixture *fx = *state;
    begin_plainly(fx);
    step(fx);
    sl_stream_close(fx->client.sm);
    step_until(fx, &fx->client.closes, 1);
    assert_int_equal(fx->client.ends, 0);
    assert_int_equal(fx->client.failures, 0);
}

static void on_data_close(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    (void)rb;
    (void)off;
    (void)len;
    side *sd = arg;
    sd->data_calls++;
    sl_stream_close(sd->sm);
}

static void test_tls_user_may_close_inside_on_data(void **state)
{
    fixture *fx = *state;
    static const sl_stream_events closing = {.on_data = on_data_close, .on_closed = on_closed};
    connect_plainly(fx);
    sl_stream_set_events(fx->server.sm, &closing, &fx->server);
    fx->is_held = true;
    say(&fx->client, "one", 3);
    say(&fx->client, "two", 3);
    fx->is_held = false;
    step_until(fx, &fx->server.closes, 1);
    assert_int_equal(fx->server.data_calls, 1);
}

/* ---- figures -----------------------------------------------------------------------------------
 */

static void test_tls_context_counts(void **state)
{
    fixture *fx = *state;
    sl_tls_ctx *ca = client_context("ca.crt");
    begin(fx, sl_tls_ctx_ref(ca), server_context("server.crt", "server.key"), "broker.test");
    step_until(fx, &fx->client.ups, 1);
    fx->is_held = true;
    cut(&fx->client);
    step_until(fx, &fx->client.ends, 1);
    sl_tls_stats stats;
    sl_tls_ctx_stats(ca, &stats);
    assert_int_equal(stats.handshakes, 1);
    assert_int_equal(stats.failures, 1);
    assert_int_equal(stats.cuts, 1);
    assert_int_equal(stats.overflows, 0);
    sl_tls_ctx_unref(&ca);
}

#define IDLE_PAIRS 100

/* Both ends of 100 connections that have talked. The heap of a sanitizer tells nothing. */
static void test_tls_idle_stream_needs_little_memory(void **state)
{
    fixture *fx = *state;
    connect_plainly(fx); // what is made once
    sl_tls_ctx *ca = client_context("ca.crt"), *own = server_context("server.crt", "server.key");
    struct mallinfo2 before = mallinfo2();
    static fixture pairs[IDLE_PAIRS];
    for (size_t i = 0; i < IDLE_PAIRS; i++) {
        fixture *one = &pairs[i];
        *one = (fixture){.lp = fx->lp, .chunk = 65536};
        side_open(one, &one->client);
        side_open(one, &one->server);
        begin(one, sl_tls_ctx_ref(ca), sl_tls_ctx_ref(own), "broker.test");
        say(&one->client, "hello", 5);
        step_until_bytes(one, &one->server, 5);
        say(&one->server, "hello", 5);
        step_until_bytes(one, &one->client, 5);
    }
    struct mallinfo2 after = mallinfo2();
    size_t each = (after.uordblks - before.uordblks) / (2u * IDLE_PAIRS);
    print_message("an idle TLS stream: %zu bytes of heap\n", each);
    assert_true(each < 20000);
    for (size_t i = 0; i < IDLE_PAIRS; i++) {
        side_close(fx, &pairs[i].client);
        side_close(fx, &pairs[i].server);
    }
    sl_tls_ctx_unref(&ca);
    sl_tls_ctx_unref(&own);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tls_handshake_then_data_both_ways),
        TEST(test_tls_server_may_be_named_by_its_address),
        TEST(test_tls_data_in_odd_pieces),
        TEST(test_tls_echo_with_a_slow_reader_stays_bounded),
        TEST(test_tls_stopped_reader_gets_nothing_until_it_starts),
        TEST(test_tls_shutdown_is_behind_the_data_and_ends_cleanly),
        TEST(test_tls_close_says_goodbye),
        TEST(test_tls_alpn_is_agreed_on_or_refused),
        TEST(test_tls_new_context_leaves_old_streams_alone),
        TEST(test_tls_server_of_another_ca_is_refused),
        TEST(test_tls_expired_certificate_is_refused),
        TEST(test_tls_certificate_of_another_name_is_refused),
        TEST(test_tls_certificate_of_another_address_is_refused),
        TEST(test_tls_client_needs_a_server_name),
        TEST(test_tls_client_certificate_names_the_client),
        TEST(test_tls_client_certificate_may_be_optional),
        TEST(test_tls_missing_client_certificate_is_told_to_both),
        TEST(test_tls_untrusted_client_certificate_is_refused),
        TEST(test_tls_end_without_goodbye_is_a_cut),
        TEST(test_tls_end_in_mid_record_is_a_cut),
        TEST(test_tls_changed_record_ends_the_stream),
        TEST(test_tls_mqtt_to_a_server_ends_with_a_hint),
        TEST(test_tls_http_to_a_server_ends_with_a_hint),
        TEST(test_tls_garbage_behind_a_good_first_byte_ends),
        TEST(test_tls_plain_server_ends_with_a_hint),
        TEST(test_tls_end_during_the_handshake_has_a_hint),
        TEST(test_tls_close_during_the_handshake_is_silent),
        TEST(test_tls_user_may_close_inside_on_data),
        TEST(test_tls_context_counts),
        TEST(test_tls_idle_stream_needs_little_memory),
    };
    return cmocka_run_group_tests(tests, test_certs_make, test_certs_remove);
}
