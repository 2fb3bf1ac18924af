/* SPDX-License-Identifier: Apache-2.0
 *
 * A client session that connects by TCP.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sl_test.h"

#include "loop/pool.h"
#include "mqtt/client.h"

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

typedef struct waiting {
    sl_loop *lp;
    bool up;
    bool closed;
} waiting;

static void on_publish(void *arg, const sl_mqtt_publish *pb, sl_mqtt_token token, sl_rbuf *rb,
                       bool redelivery)
{
    (void)arg, (void)pb, (void)token, (void)rb, (void)redelivery;
    fail();
}

static void on_connack(void *arg, const sl_mqtt_client_connected *cd)
{
    waiting *wt = arg;
    wt->up = !cd->session_present;
}

static void on_closed(void *arg)
{
    waiting *wt = arg;
    wt->closed = true;
}

/* All the way: name, pool, socket, CONNECT, CONNACK. */
static void test_client_connects_through_the_pool(void **state)
{
    (void)state;
    uint16_t port;
    int fd = listen_somewhere(&port);
    sl_clock ck;
    sl_clock_init(&ck);
    waiting wt = {0};
    sl_pool *pool = NULL;
    SL_TEST_OK(sl_pool_new(1, 10, &pool));
    SL_TEST_OK(sl_loop_new_manual("test", &ck, &wt.lp));
    sl_mqtt_client_options opt = {.host = "localhost",
                                  .port = port,
                                  .version = SL_MQTT_V311,
                                  .client_id = sl_slice_str("c"),
                                  .pool = pool};
    sl_mqtt_client_events ev = {.on_publish = on_publish, .on_connack = on_connack};
    sl_mqtt_client *client = NULL;
    const char *why;
    (void)sl_loop_turn(wt.lp);
    SL_TEST_OK(sl_mqtt_client_new(wt.lp, &opt, &ev, &wt, &client, &why));
    sl_mqtt_client_start(client);
    int in = -1;
    while (sl_mqtt_client_state_of(client) == SL_CLIENT_DIALING)
        (void)sl_loop_turn(wt.lp);
    in = accept(fd, NULL, NULL);
    assert_true(in >= 0);
    assert_int_equal(send(in, "\x20\x02\x00\x00", 4, MSG_NOSIGNAL), 4);
    while (!wt.up)
        (void)sl_loop_turn(wt.lp);
    assert_int_equal(sl_mqtt_client_state_of(client), SL_CLIENT_UP);
    sl_mqtt_client_close(&client, 0, on_closed, &wt);
    close(in);
    while (!wt.closed)
        (void)sl_loop_turn(wt.lp);
    close(fd);
    sl_pool_free(&pool);
    sl_loop_free(&wt.lp);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_connects_through_the_pool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
