/* SPDX-License-Identifier: Apache-2.0
 *
 * stream: sockets read and written through the chain of filters, on a loop turned by hand.
 */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "net/filter.h"
#include "net_test_util.h"
#include "sl_test.h"

typedef struct fixture {
    sl_clock clock;
    sl_loop *lp;
    peer_log log;
    int far; /* the other end of the stream's socket */
} fixture;

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof(*fx));
    sl_clock_init(&fx->clock);
    SL_TEST_OK(sl_loop_new_manual("test", &fx->clock, &fx->lp));
    (void)sl_loop_turn(fx->lp);
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
    fx->far = pair[1];
    peer_log_init(&fx->log);
    SL_TEST_OK(sl_stream_tcp_new(fx->lp, pair[0], &fx->log.sm));
    sl_stream_set_events(fx->log.sm, &peer_log_events, &fx->log);
    *state = fx;
    return 0;
}

static int teardown(void **state)
{
    fixture *fx = *state;
    if (fx->log.sm != NULL) {
        sl_stream_close(fx->log.sm);
        turn_until(fx->lp, &fx->log.closes, 1);
    }
    if (fx->far >= 0)
        close(fx->far);
    peer_log_fini(&fx->log);
    sl_loop_free(&fx->lp);
    sl_free(fx);
    return 0;
}

static void send_far(const fixture *fx, const char *text)
{
    assert_int_equal(write(fx->far, text, strlen(text)), (ssize_t)strlen(text));
}

static sl_err write_text(sl_stream *sm, const char *text, size_t *written)
{
    struct iovec iov = {(void *)(uintptr_t)text, strlen(text)};
    return sl_stream_write(sm, &iov, 1, written);
}

static void test_stream_gives_bytes_up_and_down(void **state)
{
    fixture *fx = *state;
    char back[16] = "";
    size_t written = 0;
    sl_stream_read_start(fx->log.sm);
    send_far(fx, "hello");
    turn_until_bytes(fx->lp, &fx->log, 5);
    SL_TEST_SLICE(sl_buf_peek(&fx->log.got), "hello");
    SL_TEST_OK(write_text(fx->log.sm, "answer", &written));
    assert_int_equal(written, 6);
    assert_int_equal(read(fx->far, back, sizeof(back)), 6);
    assert_memory_equal(back, "answer", 6);
    assert_string_equal(sl_stream_peer(fx->log.sm), "unix");
    assert_string_equal(sl_stream_peer_ip(fx->log.sm), "unix");
    assert_ptr_equal(sl_stream_loop(fx->log.sm), fx->lp);
}

static void test_stream_stopped_gives_nothing_until_started(void **state)
{
    fixture *fx = *state;
    sl_stream_read_start(fx->log.sm);
    sl_stream_read_stop(fx->log.sm);
    send_far(fx, "early");
    turn_idle(fx->lp);
    assert_int_equal(sl_buf_peek(&fx->log.got).len, 0);
    sl_stream_read_start(fx->log.sm);
    turn_until_bytes(fx->lp, &fx->log, 5);
    SL_TEST_SLICE(sl_buf_peek(&fx->log.got), "early");
}

static void test_stream_end_comes_once_behind_the_bytes(void **state)
{
    fixture *fx = *state;
    sl_stream_read_start(fx->log.sm);
    send_far(fx, "last");
    close(fx->far);
    fx->far = -1;
    turn_until(fx->lp, &fx->log.ends, 1);
    SL_TEST_SLICE(sl_buf_peek(&fx->log.got), "last");
    SL_TEST_OK(fx->log.end_err);
    turn_idle(fx->lp);
    assert_int_equal(fx->log.ends, 1);
}

static void test_stream_write_to_a_gone_peer_fails_and_ends(void **state)
{
    fixture *fx = *state;
    size_t written = 0;
    close(fx->far);
    fx->far = -1;
    SL_TEST_ERR(write_text(fx->log.sm, "x", &written), SL_ECLOSED);
    assert_int_equal(fx->log.ends, 0); // never inside the call
    turn_until(fx->lp, &fx->log.ends, 1);
    SL_TEST_ERR(fx->log.end_err, SL_ECLOSED);
}

static void test_stream_short_write_tells_when_there_is_room(void **state)
{
    fixture *fx = *state;
    static char block[1 << 20];
    struct iovec iov = {block, sizeof(block)};
    size_t written = 0;
    size_t total = 0;
    SL_TEST_OK(sl_stream_write(fx->log.sm, &iov, 1, &written));
    assert_true(written < sizeof(block));
    total += written;
    SL_TEST_ERR(sl_stream_write(fx->log.sm, &iov, 1, &written), SL_EAGAIN);
    assert_int_equal(written, 0);
    turn_idle(fx->lp);
    assert_int_equal(fx->log.writables, 0);
    static char sink[1 << 20];
    for (ssize_t n; total > 0; total -= (size_t)n) {
        n = read(fx->far, sink, sizeof(sink));
        assert_true(n > 0);
    }
    turn_until(fx->lp, &fx->log.writables, 1);
    turn_idle(fx->lp);
    assert_int_equal(fx->log.writables, 1);
}

static void test_stream_shutdown_sends_end_and_reads_on(void **state)
{
    fixture *fx = *state;
    char byte;
    sl_stream_read_start(fx->log.sm);
    sl_stream_shutdown(fx->log.sm);
    assert_int_equal(read(fx->far, &byte, 1), 0);
    send_far(fx, "still");
    turn_until_bytes(fx->lp, &fx->log, 5);
}

static void test_stream_close_gives_only_on_closed(void **state)
{
    fixture *fx = *state;
    char byte;
    size_t written = 0;
    sl_stream_read_start(fx->log.sm);
    send_far(fx, "too late");
    sl_stream *sm = fx->log.sm;
    sl_stream_close(sm);
    sl_stream_close(sm); // a second one is nothing
    assert_int_equal(fx->log.closes, 0);
    SL_TEST_ERR(write_text(sm, "x", &written), SL_ECLOSED);
    assert_true(read(fx->far, &byte, 1) <= 0); // the socket is closed at once
    turn_until(fx->lp, &fx->log.closes, 1);
    assert_int_equal(sl_buf_peek(&fx->log.got).len, 0);
    assert_int_equal(fx->log.ends, 0);
}

static void test_read_buffer_is_used_again_when_nobody_kept_it(void **state)
{
    fixture *fx = *state;
    sl_stream_read_start(fx->log.sm);
    for (size_t i = 1; i <= 40; i++) {
        static char block[4096];
        assert_int_equal(write(fx->far, block, sizeof(block)), sizeof(block));
        turn_until_bytes(fx->lp, &fx->log, i * sizeof(block));
        // a buffer that was rewound holds the newest read alone
        assert_int_equal(sl_net_rbuf(2048)->len, 0);
    }
}

static void test_read_buffer_keeps_what_somebody_holds(void **state)
{
    fixture *fx = *state;
    fx->log.keep = true;
    sl_stream_read_start(fx->log.sm);
    send_far(fx, "first");
    turn_until_bytes(fx->lp, &fx->log, 5);
    sl_rbuf *first = sl_rbuf_ref(fx->log.kept);
    for (size_t i = 1; i <= 40; i++) { // more than one buffer
        static char block[4096];
        memset(block, 'x', sizeof(block));
        assert_int_equal(write(fx->far, block, sizeof(block)), sizeof(block));
        turn_until_bytes(fx->lp, &fx->log, 5 + i * sizeof(block));
    }
    assert_memory_equal(first->data, "first", 5);
    assert_ptr_not_equal(first, fx->log.kept);
    sl_rbuf_unref(&first);
}

/* ---- a filter above the socket: exclusive-or of every byte, and a banner as preface ---- */

typedef struct xor_filter {
    sl_filter base;
    uint8_t key;
    int *finis;
} xor_filter;

static xor_filter *xor_of(sl_filter *ft)
{
    return (xor_filter *)(void *)ft;
}

static void xor_on_data(sl_filter *ft, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    sl_rbuf *out = sl_net_rbuf(len);
    assert_true(out != rb || out->len >= off + len); // never over what is being delivered
    uint32_t at = out->len;
    for (uint32_t i = 0; i < len; i++)
        out->data[at + i] = rb->data[off + i] ^ xor_of(ft)->key;
    out->len += len;
    sl_filter_deliver(ft, out, at, len);
}

static sl_err xor_write(sl_filter *ft, const struct iovec *iov, int iovcnt, size_t *written)
{
    size_t total = 0;
    *written = 0;
    for (int i = 0; i < iovcnt; i++) {
        uint8_t block[256];
        size_t part = iov[i].iov_len < sizeof(block) ? iov[i].iov_len : sizeof(block);
        for (size_t j = 0; j < part; j++)
            block[j] = ((const uint8_t *)iov[i].iov_base)[j] ^ xor_of(ft)->key;
        struct iovec one = {block, part};
        size_t took = 0;
        sl_err err = sl_filter_write(ft, &one, 1, &took);
        total += took;
        *written = total;
        if (err != SL_OK || took < iov[i].iov_len)
            return total > 0 ? SL_OK : err;
    }
    return SL_OK;
}

static void xor_close(sl_filter *ft)
{
    struct iovec bye = {"bye", 3};
    size_t took = 0;
    SL_TEST_OK(sl_filter_write(ft, &bye, 1, &took));
}

static void xor_fini(sl_filter *ft)
{
    (*xor_of(ft)->finis)++;
    sl_free(ft);
}

static const sl_filter_ops xor_ops = {
    .name = "xor",
    .on_data = xor_on_data,
    .write = xor_write,
    .close = xor_close,
    .fini = xor_fini,
};

static void push_xor(fixture *fx, uint8_t key, int *finis)
{
    xor_filter *xf = sl_calloc(1, sizeof(*xf));
    xf->base.ops = &xor_ops;
    xf->key = key;
    xf->finis = finis;
    sl_stream_push(fx->log.sm, &xf->base);
}

static void test_filters_stack_without_their_user_knowing(void **state)
{
    fixture *fx = *state;
    int finis = 0;
    char back[16] = "";
    size_t written = 0;
    push_xor(fx, 0x55, &finis);
    push_xor(fx, 0x0f, &finis);
    sl_stream_read_start(fx->log.sm);
    send_far(fx, "\x32\x3f\x36\x36\x35"); // "hello" ^ 0x55 ^ 0x0f
    turn_until_bytes(fx->lp, &fx->log, 5);
    SL_TEST_SLICE(sl_buf_peek(&fx->log.got), "hello");
    SL_TEST_OK(write_text(fx->log.sm, "hello", &written));
    assert_int_equal(written, 5);
    assert_int_equal(read(fx->far, back, sizeof(back)), 5);
    assert_memory_equal(back, "\x32\x3f\x36\x36\x35", 5);
    sl_stream_close(fx->log.sm);
    turn_until(fx->lp, &fx->log.closes, 1);
    assert_int_equal(finis, 2);
    // the upper filter's goodbye goes through the lower one, whose own follows as it is
    assert_int_equal(read(fx->far, back, sizeof(back)), 6);
    assert_memory_equal(back,
                        "\x37\x2c\x30"
                        "bye",
                        6);
}

static void test_filter_tells_the_real_peer(void **state)
{
    fixture *fx = *state;
    int finis = 0;
    xor_filter *xf = sl_calloc(1, sizeof(*xf));
    xf->base.ops = &xor_ops;
    xf->finis = &finis;
    sl_stream_push(fx->log.sm, &xf->base);
    sl_filter_set_peer(&xf->base, "192.0.2.7", 4711);
    assert_string_equal(sl_stream_peer(fx->log.sm), "192.0.2.7:4711");
    assert_string_equal(sl_stream_peer_ip(fx->log.sm), "192.0.2.7");
    sl_filter_set_peer(&xf->base, "2001:db8::1", 1);
    assert_string_equal(sl_stream_peer(fx->log.sm), "[2001:db8::1]:1");
    assert_string_equal(sl_stream_peer_ip(fx->log.sm), "2001:db8::1");
}

static void on_data_close(void *arg, sl_rbuf *rb, uint32_t off, uint32_t len)
{
    (void)rb;
    (void)off;
    (void)len;
    sl_stream_close(((peer_log *)arg)->sm);
}

static void test_stream_may_be_closed_from_its_own_event(void **state)
{
    fixture *fx = *state;
    sl_stream_events events = peer_log_events;
    events.on_data = on_data_close;
    int finis = 0;
    push_xor(fx, 1, &finis);
    sl_stream_set_events(fx->log.sm, &events, &fx->log);
    sl_stream_read_start(fx->log.sm);
    send_far(fx, "x");
    turn_until(fx->lp, &fx->log.closes, 1);
    assert_int_equal(finis, 1);
}

static void test_stream_over_tcp_knows_its_peer_and_a_reset(void **state)
{
    fixture *fx = *state;
    int ls = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    assert_int_equal(bind(ls, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(ls, 1), 0);
    assert_int_equal(getsockname(ls, (struct sockaddr *)&addr, &len), 0);
    int client = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&addr, len), 0);
    peer_log log;
    peer_log_init(&log);
    SL_TEST_OK(sl_stream_tcp_new(fx->lp, accept(ls, NULL, NULL), &log.sm));
    sl_stream_set_events(log.sm, &peer_log_events, &log);
    assert_string_equal(sl_stream_peer_ip(log.sm), "127.0.0.1");
    assert_memory_equal(sl_stream_peer(log.sm), "127.0.0.1:", 10);
    sl_stream_set_user_timeout(log.sm, 30000);
    sl_stream_read_start(log.sm);
    // bytes that came before the reset still count
    assert_int_equal(write(client, "abc", 3), 3);
    struct linger hard = {1, 0};
    assert_int_equal(setsockopt(client, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard)), 0);
    close(client);
    turn_until(fx->lp, &log.ends, 1);
    SL_TEST_ERR(log.end_err, SL_ECLOSED);
    SL_TEST_SLICE(sl_buf_peek(&log.got), "abc");
    sl_stream_close(log.sm);
    turn_until(fx->lp, &log.closes, 1);
    peer_log_fini(&log);
    close(ls);
}

static void test_stream_refuses_what_is_no_connection(void **state)
{
    fixture *fx = *state;
    sl_stream *sm = NULL;
    int fd = open("/dev/null", O_RDWR);
    assert_true(fd >= 0);
    assert_string_not_equal(sl_err_name(sl_stream_tcp_new(fx->lp, fd, &sm)), "OK");
    assert_null(sm);
    assert_int_equal(fcntl(fd, F_GETFD), -1); // taken whatever the result
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
        T(test_stream_gives_bytes_up_and_down),
        T(test_stream_stopped_gives_nothing_until_started),
        T(test_stream_end_comes_once_behind_the_bytes),
        T(test_stream_write_to_a_gone_peer_fails_and_ends),
        T(test_stream_short_write_tells_when_there_is_room),
        T(test_stream_shutdown_sends_end_and_reads_on),
        T(test_stream_close_gives_only_on_closed),
        T(test_read_buffer_is_used_again_when_nobody_kept_it),
        T(test_read_buffer_keeps_what_somebody_holds),
        T(test_filters_stack_without_their_user_knowing),
        T(test_filter_tells_the_real_peer),
        T(test_stream_may_be_closed_from_its_own_event),
        T(test_stream_over_tcp_knows_its_peer_and_a_reset),
        T(test_stream_refuses_what_is_no_connection),
#undef T
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
