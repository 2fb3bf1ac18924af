/* SPDX-License-Identifier: Apache-2.0
 *
 * listener: accept, spread, limits, missing descriptors (cases C49), and what it says when it
 * cannot bind.
 */
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "net/listener.h"
#include "net/port_holder.h"
#include "net_test_util.h"
#include "sl_test.h"

#define MAX_CONNS 64

typedef struct fixture {
    sl_clock clock;
    sl_loop *lp;
    sl_listener *ls;
    peer_log conn[MAX_CONNS];
    int accepted;
    int refused_limit;
    int refused_fds;
} fixture;

static void on_accept(void *arg, sl_stream *sm)
{
    fixture *fx = arg;
    peer_log *pl = &fx->conn[fx->accepted++];
    peer_log_init(pl);
    pl->sm = sm;
    sl_stream_set_events(sm, &peer_log_events, pl);
    sl_stream_read_start(sm);
}

static void on_event(void *arg, sl_listener_event event)
{
    fixture *fx = arg;
    if (event == SL_LISTENER_REFUSED_LIMIT)
        fx->refused_limit++;
    else if (event == SL_LISTENER_REFUSED_FDS)
        fx->refused_fds++;
}

static int setup(void **state)
{
    fixture *fx = sl_calloc(1, sizeof(*fx));
    sl_clock_init(&fx->clock);
    SL_TEST_OK(sl_loop_new_manual("test", &fx->clock, &fx->lp));
    (void)sl_loop_turn(fx->lp);
    *state = fx;
    return 0;
}

static void hang_up(fixture *fx, int index)
{
    peer_log *pl = &fx->conn[index];
    if (pl->sm == NULL)
        return;
    sl_stream_close(pl->sm);
    turn_until(fx->lp, &pl->closes, 1);
    peer_log_fini(pl);
}

static int teardown(void **state)
{
    fixture *fx = *state;
    sl_listener *ls = fx->ls; // lives until the last release
    sl_listener_close(&fx->ls);
    for (int i = 0; i < fx->accepted; i++) {
        hang_up(fx, i);
        sl_listener_release(ls);
    }
    turn_idle(fx->lp);
    sl_loop_free(&fx->lp);
    sl_free(fx);
    return 0;
}

static void open_listener(fixture *fx, sl_listener_options lo)
{
    char *why = NULL;
    lo.name = "test";
    lo.address = lo.address == NULL ? "127.0.0.1" : lo.address;
    lo.loops = &fx->lp;
    lo.loop_count = 1;
    lo.on_accept = on_accept;
    lo.on_event = on_event;
    lo.arg = fx;
    SL_TEST_OK(sl_listener_open(&lo, &fx->ls, &why));
    sl_listener_start(fx->ls);
}

static int connect_to(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in addr = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    return fd;
}

static void test_listener_hands_over_connections_with_their_options(void **state)
{
    fixture *fx = *state;
    open_listener(fx, (sl_listener_options){0});
    int fd = connect_to(sl_listener_port(fx->ls));
    turn_until(fx->lp, &fx->accepted, 1);
    assert_string_equal(sl_stream_peer_ip(fx->conn[0].sm), "127.0.0.1");
    assert_int_equal(write(fd, "hi", 2), 2);
    turn_until_bytes(fx->lp, &fx->conn[0], 2);
    close(fd);
    turn_until(fx->lp, &fx->conn[0].ends, 1);
}

static void test_listener_takes_both_families_on_the_dual_address(void **state)
{
    fixture *fx = *state;
    open_listener(fx, (sl_listener_options){.address = "::"});
    int v4 = connect_to(sl_listener_port(fx->ls));
    turn_until(fx->lp, &fx->accepted, 1);
    assert_string_equal(sl_stream_peer_ip(fx->conn[0].sm), "127.0.0.1"); // not ::ffff:127.0.0.1
    int v6 = socket(AF_INET6, SOCK_STREAM, 0);
    struct sockaddr_in6 addr = {.sin6_family = AF_INET6,
                                .sin6_port = htons(sl_listener_port(fx->ls)),
                                .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    assert_int_equal(connect(v6, (struct sockaddr *)&addr, sizeof(addr)), 0);
    turn_until(fx->lp, &fx->accepted, 2);
    assert_string_equal(sl_stream_peer_ip(fx->conn[1].sm), "::1");
    assert_memory_equal(sl_stream_peer(fx->conn[1].sm), "[::1]:", 6);
    close(v4);
    close(v6);
}

static void test_listener_refuses_beyond_max_connections_until_released(void **state)
{
    fixture *fx = *state;
    char byte;
    open_listener(fx, (sl_listener_options){.max_connections = 2});
    int a = connect_to(sl_listener_port(fx->ls));
    int b = connect_to(sl_listener_port(fx->ls));
    turn_until(fx->lp, &fx->accepted, 2);
    int c = connect_to(sl_listener_port(fx->ls));
    turn_until(fx->lp, &fx->refused_limit, 1);
    assert_int_equal(read(c, &byte, 1), 0); // closed, not left hanging
    hang_up(fx, 0);
    sl_listener_release(fx->ls);
    int d = connect_to(sl_listener_port(fx->ls));
    turn_until(fx->lp, &fx->accepted, 3);
    // teardown releases three, one of them was released here
    fx->conn[0] = fx->conn[2];
    sl_stream_set_events(fx->conn[0].sm, &peer_log_events, &fx->conn[0]);
    fx->accepted = 2;
    close(a);
    close(b);
    close(c);
    close(d);
}

static void test_listener_sheds_connections_when_descriptors_are_gone(void **state)
{
    fixture *fx = *state;
    char byte;
    open_listener(fx, (sl_listener_options){0});
    int first = connect_to(sl_listener_port(fx->ls));
    turn_until(fx->lp, &fx->accepted, 1);
    int second = socket(AF_INET, SOCK_STREAM, 0); // made while there are descriptors
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    int next = dup(0);
    assert_true(next >= 0);
    close(next);
    struct rlimit tight = {.rlim_cur = (rlim_t)next, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(sl_listener_port(fx->ls)),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(second, (struct sockaddr *)&addr, sizeof(addr)), 0);
    turn_until(fx->lp, &fx->refused_fds, 1);
    assert_int_equal(read(second, &byte, 1), 0);
    turn_idle(fx->lp); // ends: the loop is quiet, it does not spin on accept
    assert_int_equal(fx->refused_fds, 1);
    assert_int_equal(write(first, "ok", 2), 2); // old connections go on
    turn_until_bytes(fx->lp, &fx->conn[0], 2);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    int third = connect_to(sl_listener_port(fx->ls));
    turn_until(fx->lp, &fx->accepted, 2);
    close(first);
    close(second);
    close(third);
}

static void test_listener_leaves_spare_descriptors_to_others(void **state)
{
    fixture *fx = *state;
    char byte;
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    open_listener(fx, (sl_listener_options){.spare_fds = (uint32_t)limit.rlim_cur});
    int fd = connect_to(sl_listener_port(fx->ls));
    turn_until(fx->lp, &fx->refused_fds, 1);
    assert_int_equal(read(fd, &byte, 1), 0);
    assert_int_equal(fx->accepted, 0);
    close(fd);
}

static void test_listener_names_address_port_and_holder_when_it_cannot_bind(void **state)
{
    fixture *fx = *state;
    open_listener(fx, (sl_listener_options){0});
    char *why = NULL;
    char port[16];
    char self[32];
    sl_listener *second = NULL;
    sl_listener_options lo = {.name = "mqtt",
                              .address = "127.0.0.1",
                              .port = sl_listener_port(fx->ls),
                              .loops = &fx->lp,
                              .loop_count = 1,
                              .on_accept = on_accept,
                              .arg = fx};
    assert_string_not_equal(sl_err_name(sl_listener_open(&lo, &second, &why)), "OK");
    (void)snprintf(port, sizeof(port), "port %u", lo.port);
    (void)snprintf(self, sizeof(self), "process %d (", (int)getpid());
    assert_non_null(strstr(why, "listener mqtt"));
    assert_non_null(strstr(why, "127.0.0.1"));
    assert_non_null(strstr(why, port));
    assert_non_null(strstr(why, self));
    sl_free(why);
    why = NULL;
    lo.address = "no address";
    SL_TEST_ERR(sl_listener_open(&lo, &second, &why), SL_EINVAL);
    assert_non_null(strstr(why, "no address"));
    sl_free(why);
}

static void test_port_holder_of_a_free_port_is_unknown(void **state)
{
    (void)state;
    char text[64];
    SL_TEST_ERR(sl_port_holder_find(1, text, sizeof(text)), SL_ENOTFOUND);
}

/* ---- several loops with threads of their own ---- */

typedef struct spread {
    _Atomic int total;
    _Atomic int closed;
    _Atomic int by_loop[3];
} spread;

static void spread_closed(void *arg)
{
    atomic_fetch_add(&((spread *)arg)->closed, 1);
}

static void spread_end(void *arg, sl_err err)
{
    (void)arg;
    (void)err;
}

static const sl_stream_events spread_events = {.on_end = spread_end, .on_closed = spread_closed};

static void spread_accept(void *arg, sl_stream *sm)
{
    spread *sp = arg;
    assert_ptr_equal(sl_loop_current(), sl_stream_loop(sm));
    atomic_fetch_add(&sp->by_loop[sl_loop_tag(sl_stream_loop(sm))], 1);
    sl_stream_set_events(sm, &spread_events, sp);
    sl_stream_close(sm);
    atomic_fetch_add(&sp->total, 1);
}

static void wait_for(const _Atomic int *value, int at_least)
{
    for (int i = 0; atomic_load(value) < at_least; i++) {
        (void)poll(NULL, 0, 1);
        assert_true(i < 5000);
    }
}

static void test_listener_goes_round_over_the_loops(void **state)
{
    (void)state;
    spread sp = {0};
    sl_clock clock;
    sl_clock_init(&clock);
    sl_loop *loops[3];
    for (unsigned i = 0; i < 3; i++) {
        SL_TEST_OK(sl_loop_new("io", &clock, &loops[i]));
        sl_loop_set_tag(loops[i], i);
        SL_TEST_OK(sl_loop_start(loops[i]));
    }
    sl_listener_options lo = {.name = "test",
                              .address = "127.0.0.1",
                              .loops = loops,
                              .loop_count = 3,
                              .on_accept = spread_accept,
                              .arg = &sp};
    sl_listener *ls = NULL;
    char *why = NULL;
    SL_TEST_OK(sl_listener_open(&lo, &ls, &why));
    sl_listener_start(ls);
    int fds[9];
    for (int i = 0; i < 9; i++)
        fds[i] = connect_to(sl_listener_port(ls));
    wait_for(&sp.total, 9);
    wait_for(&sp.closed, 9);
    for (int i = 0; i < 9; i++) {
        close(fds[i]);
        sl_listener_release(ls);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(atomic_load(&sp.by_loop[i]), 3);
    sl_listener_close(&ls);
    for (int i = 0; i < 3; i++) {
        sl_loop_stop(loops[i]);
        sl_loop_join(loops[i]);
        sl_loop_free(&loops[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define T(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)
        T(test_listener_hands_over_connections_with_their_options),
        T(test_listener_takes_both_families_on_the_dual_address),
        T(test_listener_refuses_beyond_max_connections_until_released),
        T(test_listener_sheds_connections_when_descriptors_are_gone),
        T(test_listener_leaves_spare_descriptors_to_others),
        T(test_listener_names_address_port_and_holder_when_it_cannot_bind),
#undef T
        cmocka_unit_test(test_port_holder_of_a_free_port_is_unknown),
        cmocka_unit_test(test_listener_goes_round_over_the_loops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
