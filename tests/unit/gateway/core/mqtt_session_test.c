/* SPDX-License-Identifier: Apache-2.0
 *
 * Tests of gateway/src/mqtt_session on a loop turned by hand; the test plays the broker at the
 * other end of a socket pair.
 */
#include "mqtt_session.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "conf_log.h"
#include "mqtt/decode.h"
#include "mqtt/encode.h"
#include "mqtt/frame.h"
#include "sl_test.h"

#define MAX_TOKENS 32

typedef struct world {
    sl_clock clock;
    sl_loop *loop;
    sl_session *sn;
    sl_router *rt;
    sl_mqtt_version version;
    int fd; /* the broker's end, -1: none */
    unsigned dials;
    bool refuse; /* nobody listens */
    sl_buf in;
    uint8_t *packet; /* owned: what expect() returned points into it */
    sl_taken *tokens[MAX_TOKENS];
    size_t token_count;
    bool stopped;
} world;

static int on_dial(void *arg, const char *host, uint16_t port, sl_dur_ms timeout)
{
    world *wd = arg;
    (void)host;
    (void)port;
    (void)timeout;
    int ends[2];
    if (wd->refuse)
        return -ECONNREFUSED;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0)
        return -errno;
    if (wd->fd >= 0)
        close(wd->fd);
    sl_buf_clear(&wd->in);
    wd->fd = ends[0];
    wd->dials++;
    return ends[1];
}

static void on_durable(void *arg, sl_message *msg, sl_taken *token)
{
    world *wd = arg;
    (void)msg;
    assert_true(wd->token_count < MAX_TOKENS);
    wd->tokens[wd->token_count++] = token;
}

static void on_stopped(void *arg)
{
    ((world *)arg)->stopped = true;
}

static void turn(world *wd)
{
    for (int quiet = 0; quiet < 3;)
        quiet = sl_loop_turn(wd->loop) ? 0 : quiet + 1;
}

static void pass(world *wd, sl_dur_ms span)
{
    for (; span > 0; span -= 100) {
        sl_clock_advance(&wd->clock, 100);
        turn(wd);
    }
}

static world *begin(sl_mqtt_version version, bool reconnect)
{
    conf_log_begin();
    world *wd = sl_calloc(1, sizeof *wd);
    wd->fd = -1;
    wd->version = version;
    sl_buf_init(&wd->in, 1 << 20);
    sl_clock_init_fake(&wd->clock, 5000, 5000);
    SL_TEST_OK(sl_loop_new_manual("t", &wd->clock, &wd->loop));
    char *why = NULL;
    SL_TEST_OK(sl_session_new(&(sl_session_options){.loop = wd->loop,
                                                    .host = "broker",
                                                    .port = 1883,
                                                    .mqtt5 = version == SL_MQTT_V5,
                                                    .client_id = "gw",
                                                    .keep_alive_s = 60,
                                                    .connect_timeout_ms = 10000,
                                                    .session_expiry_s = UINT32_MAX,
                                                    .receive_maximum = 10,
                                                    .max_packet_bytes = 1 << 20,
                                                    .reconnect = reconnect,
                                                    .reconnect_initial_ms = 100,
                                                    .reconnect_max_ms = 200,
                                                    .dial = on_dial,
                                                    .dial_arg = wd},
                              &wd->sn, &why));
    wd->rt = sl_router_new(&(sl_router_options){.loop = wd->loop,
                                                .cache = true,
                                                .cache_size = 10,
                                                .on_ack = sl_session_on_ack,
                                                .on_filters = sl_session_on_filters,
                                                .arg = wd->sn});
    sl_session_set_router(wd->sn, wd->rt);
    return wd;
}

static void end(world *wd)
{
    if (!wd->stopped)
        sl_session_stop(wd->sn, on_stopped, wd);
    for (int i = 0; i < 100 && !wd->stopped; i++)
        pass(wd, 100);
    assert_true(wd->stopped);
    sl_loop_free(&wd->loop);
    sl_router_free(&wd->rt);
    sl_session_free(&wd->sn);
    if (wd->fd >= 0)
        close(wd->fd);
    sl_buf_fini(&wd->in);
    sl_free(wd->packet);
    sl_free(wd);
    sl_logger_set_sink(NULL, NULL);
}

static void send_packet(world *wd, const sl_mqtt_packet *pkt)
{
    sl_buf out;
    sl_buf_init(&out, 1 << 16);
    SL_TEST_OK(sl_mqtt_encode(pkt, wd->version, &out));
    sl_slice all = sl_buf_peek(&out);
    assert_int_equal(write(wd->fd, all.ptr, all.len), all.len);
    sl_buf_fini(&out);
    turn(wd);
}

static void fill(world *wd)
{
    uint8_t bytes[4096];
    ssize_t got;
    while ((got = read(wd->fd, bytes, sizeof bytes)) > 0)
        SL_TEST_OK(sl_buf_append(&wd->in, bytes, (size_t)got));
}

/* The next packet of the gateway, which must be of this type. */
static sl_mqtt_packet expect(world *wd, sl_mqtt_type type)
{
    turn(wd);
    fill(wd);
    sl_mqtt_frame frame;
    sl_mqtt_rc rc;
    const char *why;
    SL_TEST_OK(sl_mqtt_frame_read(sl_buf_peek(&wd->in), 1 << 20, &frame, &rc, &why));
    size_t size = frame.header_size + frame.remaining;
    sl_free(wd->packet);
    wd->packet = sl_alloc(size);
    memcpy(wd->packet, sl_buf_peek(&wd->in).ptr, size);
    sl_buf_consume(&wd->in, size);
    sl_mqtt_packet pkt;
    SL_TEST_OK(sl_mqtt_decode(sl_slice_of(wd->packet, size), wd->version, SL_MQTT_SERVER_READS,
                              &pkt, &rc, &why));
    assert_int_equal(pkt.type, type);
    return pkt;
}

static void expect_nothing(world *wd)
{
    turn(wd);
    fill(wd);
    assert_int_equal(sl_buf_peek(&wd->in).len, 0);
}

static void accept_connect(world *wd, bool session_present)
{
    sl_mqtt_packet pkt = expect(wd, SL_MQTT_CONNECT);
    assert_false(pkt.connect.clean_start);
    if (wd->version == SL_MQTT_V5)
        assert_int_equal(pkt.connect.props.receive_maximum, 10);
    send_packet(wd, &(sl_mqtt_packet){.type = SL_MQTT_CONNACK,
                                      .connack = {.session_present = session_present}});
}

static void grant(world *wd, uint16_t packet_id, uint8_t reason)
{
    send_packet(wd, &(sl_mqtt_packet){
                        .type = SL_MQTT_SUBACK,
                        .suback = {.packet_id = packet_id, .reasons = sl_slice_of(&reason, 1)}});
}

static void publish(world *wd, const char *topic, uint8_t qos, uint16_t packet_id)
{
    send_packet(wd,
                &(sl_mqtt_packet){
                    .type = SL_MQTT_PUBLISH,
                    .publish = {.topic = sl_slice_str(topic), .qos = qos, .packet_id = packet_id}});
}

static sl_session_figures figures(world *wd)
{
    sl_session_figures sf;
    sl_session_refresh(wd->sn);
    sl_session_read(wd->sn, &sf);
    return sf;
}

static void listen_durable(world *wd, const char *filter, uint8_t qos)
{
    uint64_t id;
    SL_TEST_OK(sl_router_subscribe_durable(wd->rt, sl_slice_str(filter), qos, on_durable, wd, &id));
}

/* Started, connected, "s/#" granted. */
static void go_up(world *wd)
{
    listen_durable(wd, "s/#", 1);
    sl_session_start(wd->sn);
    accept_connect(wd, false);
    grant(wd, expect(wd, SL_MQTT_SUBSCRIBE).subscribe.packet_id, 1);
    assert_true(figures(wd).all_granted);
}

static void test_session_subscribes_the_cover_at_the_highest_qos(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V5, true);
    uint64_t id;
    SL_TEST_OK(sl_router_prime(wd->rt, sl_slice_str("s/#"), 0, &id));
    listen_durable(wd, "s/t", 2);
    sl_session_start(wd->sn);
    accept_connect(wd, false);
    assert_false(figures(wd).all_granted);
    sl_mqtt_packet pkt = expect(wd, SL_MQTT_SUBSCRIBE);
    assert_int_equal(pkt.subscribe.count, 1);
    size_t pos = 0;
    sl_mqtt_sub_option option;
    assert_true(sl_mqtt_subscribe_next(&pkt.subscribe, SL_MQTT_V5, &pos, &option));
    SL_TEST_SLICE(option.filter, "s/#");
    assert_int_equal(option.qos, 2);
    grant(wd, pkt.subscribe.packet_id, 2);
    assert_true(figures(wd).all_granted);
    assert_int_equal(figures(wd).listened, 2);
    end(wd);
}

static void test_session_acknowledges_in_order_when_taken(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V5, true);
    go_up(wd);
    publish(wd, "s/a", 1, 11);
    publish(wd, "s/b", 1, 12);
    publish(wd, "nobody", 1, 13); // done at once, but behind the others
    assert_int_equal(wd->token_count, 2);
    assert_int_equal(figures(wd).unacked, 3);
    sl_taken_done(&wd->tokens[1]);
    expect_nothing(wd);
    sl_taken_done(&wd->tokens[0]);
    for (uint16_t id = 11; id <= 13; id++)
        assert_int_equal(expect(wd, SL_MQTT_PUBACK).ack.packet_id, id);
    assert_int_equal(figures(wd).unacked, 0);
    assert_int_equal(figures(wd).acks_sent, 3);
    end(wd);
}

static void test_session_goes_on_when_the_broker_exceeds_its_window(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V5, true);
    go_up(wd);
    for (uint16_t id = 1; id <= 15; id++) // ten were announced
        publish(wd, "s/a", 1, id);
    assert_int_equal(wd->token_count, 15);
    assert_true(figures(wd).connected);
    for (size_t i = 0; i < 15; i++)
        sl_taken_done(&wd->tokens[i]);
    turn(wd);
    end(wd);
}

static void test_session_lost_is_counted_and_subscribed_again(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V311, true);
    go_up(wd);
    shutdown(wd->fd, SHUT_RDWR);
    pass(wd, 500);
    assert_int_equal(wd->dials, 2);
    accept_connect(wd, true); // the session is there: nothing to ask for
    expect_nothing(wd);
    assert_true(figures(wd).all_granted);
    assert_int_equal(figures(wd).sessions_lost, 0);
    pass(wd, 11000); // a connection that lasts
    shutdown(wd->fd, SHUT_RDWR);
    pass(wd, 500);
    accept_connect(wd, false);
    (void)expect(wd, SL_MQTT_SUBSCRIBE);
    assert_int_equal(figures(wd).sessions_lost, 1);
    assert_non_null(strstr(conf_log, "MQTT-SESSION-LOST"));
    end(wd);
}

static void test_session_refusal_is_asked_again_after_a_while(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V5, true);
    listen_durable(wd, "s/#", 1);
    sl_session_start(wd->sn);
    accept_connect(wd, false);
    grant(wd, expect(wd, SL_MQTT_SUBSCRIBE).subscribe.packet_id, 0x87);
    assert_int_equal(figures(wd).refused, 1);
    assert_int_equal(figures(wd).listened, 0);
    assert_non_null(strstr(conf_log, "MQTT-SUBSCRIBE-REFUSED"));
    pass(wd, 29000);
    expect_nothing(wd);
    pass(wd, 2000);
    grant(wd, expect(wd, SL_MQTT_SUBSCRIBE).subscribe.packet_id, 1);
    assert_int_equal(figures(wd).refused, 0);
    assert_true(figures(wd).all_granted);
    end(wd);
}

static void take_over(world *wd)
{
    send_packet(wd, &(sl_mqtt_packet){.type = SL_MQTT_DISCONNECT,
                                      .disconnect = {.reason = SL_RC_SESSION_TAKEN_OVER}});
    shutdown(wd->fd, SHUT_RDWR);
    turn(wd);
}

static void test_session_stays_away_after_a_takeover(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V5, true);
    go_up(wd);
    publish(wd, "s/a", 1, 1);
    take_over(wd);
    assert_int_equal(figures(wd).takeovers, 1);
    pass(wd, 9000);
    assert_int_equal(wd->dials, 1);
    pass(wd, 2000);
    assert_int_equal(wd->dials, 2);
    accept_connect(wd, true);
    sl_taken_done(&wd->tokens[0]); // of the connection before: nothing may be acknowledged
    expect_nothing(wd);
    take_over(wd); // longer this time
    pass(wd, 19000);
    assert_int_equal(wd->dials, 2);
    pass(wd, 2000);
    assert_int_equal(wd->dials, 3);
    assert_int_equal(figures(wd).takeovers, 2);
    end(wd);
}

static void test_session_guesses_a_takeover_without_reason(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V311, true);
    go_up(wd);
    for (unsigned i = 1; i <= 3; i++) {
        shutdown(wd->fd, SHUT_RDWR);
        pass(wd, 500);
        if (i < 3)
            accept_connect(wd, true);
    }
    assert_int_equal(figures(wd).takeovers, 1);
    assert_int_equal(wd->dials, 3);
    pass(wd, 11000);
    assert_int_equal(wd->dials, 4);
    end(wd);
}

static void test_session_sees_no_takeover_in_a_broker_that_was_away(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V311, true);
    go_up(wd);
    for (unsigned i = 1; i <= 5; i++) {
        wd->refuse = true; // the broker is gone for a moment
        shutdown(wd->fd, SHUT_RDWR);
        pass(wd, 300);
        wd->refuse = false;
        pass(wd, 500);
        accept_connect(wd, true);
    }
    assert_int_equal(figures(wd).takeovers, 0);
    end(wd);
}

static void test_session_without_reconnect_stays_down(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V5, false);
    go_up(wd);
    shutdown(wd->fd, SHUT_RDWR);
    pass(wd, 60000);
    assert_int_equal(wd->dials, 1);
    assert_false(figures(wd).connected);
    assert_non_null(strstr(conf_log, "MQTT-STAYS-DOWN"));
    end(wd);
}

static void test_session_stop_says_disconnect_after_what_is_due(void **state)
{
    (void)state;
    world *wd = begin(SL_MQTT_V5, true);
    go_up(wd);
    publish(wd, "s/a", 1, 1);
    sl_taken_done(&wd->tokens[0]);
    sl_loop_turn(wd->loop); // the token is home
    sl_session_stop(wd->sn, on_stopped, wd);
    assert_int_equal(expect(wd, SL_MQTT_PUBACK).ack.packet_id, 1);
    (void)expect(wd, SL_MQTT_DISCONNECT);
    for (int i = 0; i < 100 && !wd->stopped; i++)
        pass(wd, 100);
    end(wd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_session_subscribes_the_cover_at_the_highest_qos),
        cmocka_unit_test(test_session_acknowledges_in_order_when_taken),
        cmocka_unit_test(test_session_goes_on_when_the_broker_exceeds_its_window),
        cmocka_unit_test(test_session_lost_is_counted_and_subscribed_again),
        cmocka_unit_test(test_session_refusal_is_asked_again_after_a_while),
        cmocka_unit_test(test_session_stays_away_after_a_takeover),
        cmocka_unit_test(test_session_guesses_a_takeover_without_reason),
        cmocka_unit_test(test_session_sees_no_takeover_in_a_broker_that_was_away),
        cmocka_unit_test(test_session_without_reconnect_stays_down),
        cmocka_unit_test(test_session_stop_says_disconnect_after_what_is_due),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
