/* SPDX-License-Identifier: Apache-2.0
 *
 * Dialling by TCP against sockets of this machine.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sl_test.h"

#include "net/dial.h"

/* A listening socket on a free port of 127.0.0.1. */
static int listen_somewhere(uint16_t *port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in sin = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(sin);
    assert_int_equal(bind(fd, (struct sockaddr *)&sin, sizeof(sin)), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&sin, &size), 0);
    *port = ntohs(sin.sin_port);
    return fd;
}

static void test_dial_connects_by_address_and_by_name(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listen_somewhere(&port);
    const char *hosts[] = {"127.0.0.1", "localhost"};
    for (unsigned i = 0; i < 2; i++) {
        int out = sl_net_dial_tcp(NULL, hosts[i], port, 5000);
        assert_true(out >= 0);
        int in = accept(fd, NULL, NULL);
        assert_true(in >= 0);
        close(in);
        close(out);
    }
    close(fd);
}

static void test_dial_says_that_nobody_listens(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listen_somewhere(&port);
    close(fd);
    assert_int_equal(sl_net_dial_tcp(NULL, "127.0.0.1", port, 5000), -ECONNREFUSED);
}

static void test_dial_refuses_what_is_no_name(void **state)
{
    (void)state;
    assert_true(sl_net_dial_tcp(NULL, "not a host name", 1883, 5000) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dial_connects_by_address_and_by_name),
        cmocka_unit_test(test_dial_says_that_nobody_listens),
        cmocka_unit_test(test_dial_refuses_what_is_no_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
