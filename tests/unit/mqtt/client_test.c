/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a client session: CONNECT, reconnecting, keep-alive, closing. (cases C48, C87, C88)
 */
#include "sl_test.h"

#include "client_peer.h"
#include "mqtt/client_int.h"

/* ---- connecting ---- */

static void test_client_says_in_connect_what_its_options_say(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    sl_mqtt_user_prop up = {sl_slice_str("k"), sl_slice_str("v")};
    sl_mqtt_will will = {
        .topic = sl_slice_str("gone"),
        .payload = sl_slice_str("x"),
        .qos = 1,
        .retain = true,
        .props = {.has = SL_PROP_WILL_DELAY, .will_delay = 7, .user = &up, .user_count = 1}};
    pr.opt.will = &will;
    pr.opt.has_username = pr.opt.has_password = true;
    pr.opt.username = sl_slice_str("u");
    pr.opt.password = sl_slice_str("p");
    pr.opt.max_packet_bytes = 5000;
    pr.opt.clean_start = true;
    const char *why;
    static const sl_mqtt_client_events none = {0};
    SL_TEST_ERR(sl_mqtt_client_new(pr.lp, &pr.opt, &none, &pr, &pr.client, &why), SL_EINVAL);
    assert_non_null(strstr(why, "on_publish"));
    peer_start(&pr);
    // peer_start has taken it; cut and look at the next one.
    peer_cut(&pr);
    unsigned before = pr.dials;
    while (pr.dials == before)
        peer_wait(&pr, 1000);
    sl_mqtt_packet pkt = peer_expect(&pr, SL_MQTT_CONNECT);
    assert_int_equal(pkt.connect.version, SL_MQTT_V5);
    assert_true(pkt.connect.clean_start);
    assert_int_equal(pkt.connect.keep_alive_s, 60);
    SL_TEST_SLICE(pkt.connect.client_id, "gw");
    SL_TEST_SLICE(pkt.connect.username, "u");
    SL_TEST_SLICE(pkt.connect.password, "p");
    SL_TEST_SLICE(pkt.connect.will.topic, "gone");
    SL_TEST_SLICE(pkt.connect.will.payload, "x");
    assert_int_equal(pkt.connect.will.qos, 1);
    assert_true(pkt.connect.will.retain);
    assert_int_equal(pkt.connect.will.props.will_delay, 7);
    assert_true((pkt.connect.will.props.has & SL_PROP_USER) != 0);
    assert_int_equal(pkt.connect.props.receive_maximum, 5);
    assert_int_equal(pkt.connect.props.session_expiry, 3600);
    assert_int_equal(pkt.connect.props.maximum_packet_size, 5000);
    peer_fini(&pr);
}

static void test_client_of_3_1_1_connects_without_properties(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    assert_int_equal(pr.connacks, 1);
    assert_false(pr.session_present);
    peer_fini(&pr);
}

static void test_client_refuses_options_that_cannot_work(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    static const sl_mqtt_client_events ev = {
        .on_publish =
            (void (*)(void *, const sl_mqtt_publish *, sl_mqtt_token, sl_rbuf *, bool))abort};
    sl_mqtt_client_options opt = pr.opt;
    const char *why = "";
    opt.client_id.len = 0;
    SL_TEST_ERR(sl_mqtt_client_new(pr.lp, &opt, &ev, NULL, &pr.client, &why), SL_EINVAL);
    assert_non_null(strstr(why, "client_id"));
    opt = pr.opt;
    opt.version = SL_MQTT_V31;
    SL_TEST_ERR(sl_mqtt_client_new(pr.lp, &opt, &ev, NULL, &pr.client, &why), SL_EINVAL);
    opt = pr.opt;
    opt.has_password = true;
    SL_TEST_ERR(sl_mqtt_client_new(pr.lp, &opt, &ev, NULL, &pr.client, &why), SL_EINVAL);
    opt = pr.opt;
    opt.reconnect_max = 10;
    SL_TEST_ERR(sl_mqtt_client_new(pr.lp, &opt, &ev, NULL, &pr.client, &why), SL_EINVAL);
    opt = pr.opt;
    sl_mqtt_will will = {.topic = sl_slice_str("a/#")};
    opt.will = &will;
    SL_TEST_ERR(sl_mqtt_client_new(pr.lp, &opt, &ev, NULL, &pr.client, &why), SL_EINVAL);
    assert_non_null(strstr(why, "wildcard"));
    pr.closed = true;
    peer_fini(&pr);
}

static void test_client_keeps_an_assigned_id(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    pr.opt.client_id.len = 0;
    peer_start(&pr);
    sl_mqtt_packet pkt = {.type = SL_MQTT_CONNACK,
                          .connack.props = {.has = SL_PROP_ASSIGNED_CLIENT_ID,
                                            .assigned_client_id = sl_slice_str("auto-77")}};
    peer_send(&pr, &pkt);
    SL_TEST_SLICE(sl_mqtt_client_id(pr.client), "auto-77");
    peer_cut(&pr);
    unsigned before = pr.dials;
    while (pr.dials == before)
        peer_wait(&pr, 1000);
    pkt = peer_expect(&pr, SL_MQTT_CONNECT);
    SL_TEST_SLICE(pkt.connect.client_id, "auto-77");
    peer_fini(&pr);
}

static void test_client_without_connack_gives_up_in_time(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_start(&pr);
    peer_wait(&pr, 4999);
    assert_int_equal(pr.downs, 0);
    peer_wait(&pr, 1);
    assert_int_equal(pr.downs, 1);
    SL_TEST_ERR(pr.down.err, SL_ETIMEDOUT);
    assert_false(pr.down.was_up);
    peer_expect_end(&pr);
    peer_fini(&pr);
}

static void test_client_reports_a_refusal_with_its_code(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_start(&pr);
    sl_mqtt_packet pkt = {.type = SL_MQTT_CONNACK,
                          .connack = {.reason = SL_RC_BAD_USERNAME_OR_PASSWORD}};
    peer_send(&pr, &pkt);
    assert_int_equal(pr.downs, 1);
    assert_int_equal(pr.connacks, 0);
    SL_TEST_ERR(pr.down.err, SL_EDENIED);
    assert_int_equal(pr.down.reason, 0x86);
    assert_int_equal(sl_mqtt_client_state_of(pr.client), SL_CLIENT_WAITING);
    peer_fini(&pr);
}

static void test_client_refuses_a_session_after_a_clean_start(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    pr.opt.clean_start = true;
    peer_start(&pr);
    peer_send_connack(&pr, true);
    SL_TEST_ERR(pr.down.err, SL_EPROTOCOL);
    peer_fini(&pr);
}

static void test_client_refuses_packets_before_connack(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_start(&pr);
    peer_send_publish(&pr, 0, 0, false, "x");
    SL_TEST_ERR(pr.down.err, SL_EPROTOCOL);
    assert_int_equal(pr.message_count, 0);
    peer_fini(&pr);
}

/* Twice as long each time up to the maximum, between half and all of it. */
static void test_client_waits_longer_after_each_failure(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_start(&pr);
    peer_cut(&pr);
    pr.next_fd = -111; // connection refused from now on
    static const sl_dur_ms full[] = {1000, 2000, 4000, 8000, 8000, 8000};
    for (size_t i = 0; i < 6; i++) {
        assert_int_equal(pr.downs, i + 1);
        assert_in_range(pr.down.retry_in, full[i] / 2, full[i]);
        peer_wait(&pr, pr.down.retry_in);
    }
    SL_TEST_ERR(pr.down.err, SL_ECONN);
    assert_int_equal(pr.dials, 7);
    peer_fini(&pr);
}

static void test_client_begins_anew_after_a_stable_connection(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    pr.opt.stable_after = 20000;
    peer_connect(&pr);
    for (unsigned i = 0; i < 4; i++) { // short ones: the delay grows although CONNACK came
        peer_cut(&pr);
        peer_redial(&pr);
        peer_send_connack(&pr, true);
    }
    assert_int_equal(peer_stats(&pr).short_lived, 4);
    assert_true(pr.down.retry_in >= 4000);
    peer_wait(&pr, 20000);
    peer_cut(&pr);
    assert_true(pr.down.was_up);
    assert_in_range(pr.down.retry_in, 500, 1000);
    assert_int_equal(peer_stats(&pr).short_lived, 4);
    peer_fini(&pr);
}

/* Two clients with one id must not throw each other out for ever (D3, C88). */
static void test_client_waits_longest_when_taken_over(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    sl_mqtt_packet pkt = {.type = SL_MQTT_DISCONNECT,
                          .disconnect.reason = SL_RC_SESSION_TAKEN_OVER};
    peer_send(&pr, &pkt);
    SL_TEST_ERR(pr.down.err, SL_ECLOSED);
    assert_int_equal(pr.down.reason, 0x8E);
    assert_in_range(pr.down.retry_in, 4000, 8000);
    assert_int_equal(peer_stats(&pr).takeovers, 1);
    peer_fini(&pr);
}

/* ---- keep-alive ---- */

static void test_client_pings_when_idle_and_closes_without_an_answer(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    pr.opt.keep_alive_s = 10;
    peer_connect(&pr);
    peer_wait(&pr, 9000);
    peer_expect_nothing(&pr);
    peer_wait(&pr, 1000);
    (void)peer_expect(&pr, SL_MQTT_PINGREQ);
    sl_mqtt_packet pkt = {.type = SL_MQTT_PINGRESP};
    peer_send(&pr, &pkt);
    peer_wait(&pr, 10000);
    (void)peer_expect(&pr, SL_MQTT_PINGREQ);
    peer_wait(&pr, 9000);
    assert_int_equal(pr.downs, 0);
    peer_wait(&pr, 1000);
    assert_int_equal(pr.downs, 1);
    SL_TEST_ERR(pr.down.err, SL_ETIMEDOUT);
    assert_true(pr.down.was_up);
    peer_fini(&pr);
}

/* Sending alone is no sign that the server lives. */
static void test_client_pings_a_silent_server_although_it_sends(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    pr.opt.keep_alive_s = 10;
    peer_connect(&pr);
    sl_mqtt_publish pb = {.topic = sl_slice_str("t")};
    for (unsigned i = 0; i < 9; i++) {
        peer_wait(&pr, 1000);
        SL_TEST_OK(sl_mqtt_client_publish(pr.client, &pb, NULL, NULL));
        (void)peer_expect(&pr, SL_MQTT_PUBLISH);
    }
    peer_wait(&pr, 1000);
    (void)peer_expect(&pr, SL_MQTT_PINGREQ);
    peer_fini(&pr);
}

static void test_client_uses_the_keep_alive_of_the_server(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_start(&pr);
    sl_mqtt_packet pkt = {
        .type = SL_MQTT_CONNACK,
        .connack.props = {.has = SL_PROP_SERVER_KEEP_ALIVE, .server_keep_alive = 5}};
    peer_send(&pr, &pkt);
    peer_wait(&pr, 5000);
    (void)peer_expect(&pr, SL_MQTT_PINGREQ);
    peer_fini(&pr);
}

static void test_client_without_keep_alive_never_pings(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    pr.opt.keep_alive_s = 0;
    peer_connect(&pr);
    peer_wait(&pr, 200000);
    peer_expect_nothing(&pr);
    assert_int_equal(pr.downs, 0);
    peer_fini(&pr);
}

/* ---- closing ---- */

static void test_client_closes_with_disconnect_and_all_acknowledgements(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    peer_send_publish(&pr, 1, 7, false, "a");
    sl_mqtt_client_ack(pr.client, pr.messages[0].token, 0);
    sl_mqtt_client_close(&pr.client, SL_RC_DISCONNECT_WITH_WILL, NULL, NULL);
    assert_null(pr.client);
    peer_expect_ack(&pr, SL_MQTT_PUBACK, 7, 0);
    sl_mqtt_packet pkt = peer_expect(&pr, SL_MQTT_DISCONNECT);
    assert_int_equal(pkt.disconnect.reason, SL_RC_DISCONNECT_WITH_WILL);
    peer_expect_end(&pr);
    assert_int_equal(pr.downs, 0); // nobody is told of a down that was asked for
    pr.closed = true;
    peer_fini(&pr);
}

static void set_true(void *arg)
{
    *(bool *)arg = true;
}

static void close_in_state(sl_mqtt_client_state want)
{
    peer pr;
    bool closed = false;
    peer_init(&pr, SL_MQTT_V311);
    if (want == SL_CLIENT_WAITING || want == SL_CLIENT_DIALING)
        pr.next_fd = -111;
    static const sl_mqtt_client_events ev = {
        .on_publish =
            (void (*)(void *, const sl_mqtt_publish *, sl_mqtt_token, sl_rbuf *, bool))abort};
    const char *why;
    peer_turn(&pr);
    SL_TEST_OK(sl_mqtt_client_new(pr.lp, &pr.opt, &ev, &pr, &pr.client, &why));
    if (want != SL_CLIENT_IDLE)
        sl_mqtt_client_start(pr.client);
    if (want != SL_CLIENT_IDLE && want != SL_CLIENT_DIALING)
        peer_turn(&pr);
    if (want == SL_CLIENT_UP)
        peer_send_connack(&pr, false);
    assert_int_equal(sl_mqtt_client_state_of(pr.client), want);
    sl_mqtt_client_close(&pr.client, 0, set_true, &closed);
    assert_false(closed);
    peer_wait(&pr, 3000);
    assert_true(closed);
    pr.closed = true;
    peer_fini(&pr);
}

static void test_client_closes_in_every_state(void **state)
{
    (void)state;
    close_in_state(SL_CLIENT_IDLE);
    close_in_state(SL_CLIENT_DIALING);
    close_in_state(SL_CLIENT_HANDSHAKE);
    close_in_state(SL_CLIENT_UP);
    close_in_state(SL_CLIENT_WAITING);
}

/* A descriptor that comes after the close belongs to nobody: it is closed, or the process leaks. */
static void test_client_closed_while_dialling_drops_the_connection(void **state)
{
    (void)state;
    peer pr;
    bool closed = false;
    peer_init(&pr, SL_MQTT_V311);
    static const sl_mqtt_client_events ev = {
        .on_publish =
            (void (*)(void *, const sl_mqtt_publish *, sl_mqtt_token, sl_rbuf *, bool))abort};
    const char *why;
    peer_turn(&pr);
    SL_TEST_OK(sl_mqtt_client_new(pr.lp, &pr.opt, &ev, &pr, &pr.client, &why));
    sl_mqtt_client_start(pr.client);
    sl_mqtt_client_close(&pr.client, 0, set_true, &closed);
    peer_turn(&pr);
    assert_true(closed);
    assert_int_equal(pr.dials, 1);
    peer_expect_end(&pr);
    pr.closed = true;
    peer_fini(&pr);
}

static void test_client_closes_while_its_stream_is_closing(void **state)
{
    (void)state;
    peer pr;
    bool closed = false;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    sl_client_lose(pr.client, SL_EIO, 0, "as a failed write would"); // it lasts for part of a turn
    assert_int_equal(sl_mqtt_client_state_of(pr.client), SL_CLIENT_LOST);
    assert_int_equal(pr.downs, 0);
    sl_mqtt_client_close(&pr.client, 0, set_true, &closed);
    assert_false(closed);
    peer_turn(&pr);
    assert_true(closed);
    pr.closed = true;
    peer_fini(&pr);
}

static void close_now(peer *pr, const peer_message *pm)
{
    (void)pm;
    sl_mqtt_client_close(&pr->client, 0, set_true, &pr->closed);
}

static void test_client_may_be_closed_inside_its_callbacks(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    pr.on_message = close_now;
    // Two in one segment: the second must not be given to somebody who has closed.
    peer_send_bytes(&pr, sl_slice_of("\x30\x04\x00\x01t1\x30\x04\x00\x01t2", 12));
    assert_int_equal(pr.message_count, 1);
    (void)peer_expect(&pr, SL_MQTT_DISCONNECT);
    peer_fini(&pr);
}

static void test_client_states_have_names(void **state)
{
    (void)state;
    assert_string_equal(sl_mqtt_client_state_name(SL_CLIENT_WAITING), "waiting");
    assert_string_equal(sl_mqtt_client_state_name(SL_CLIENT_UP), "up");
    assert_string_equal(sl_mqtt_client_state_name(SL_CLIENT_STATE_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_says_in_connect_what_its_options_say),
        cmocka_unit_test(test_client_of_3_1_1_connects_without_properties),
        cmocka_unit_test(test_client_refuses_options_that_cannot_work),
        cmocka_unit_test(test_client_keeps_an_assigned_id),
        cmocka_unit_test(test_client_without_connack_gives_up_in_time),
        cmocka_unit_test(test_client_reports_a_refusal_with_its_code),
        cmocka_unit_test(test_client_refuses_a_session_after_a_clean_start),
        cmocka_unit_test(test_client_refuses_packets_before_connack),
        cmocka_unit_test(test_client_waits_longer_after_each_failure),
        cmocka_unit_test(test_client_begins_anew_after_a_stable_connection),
        cmocka_unit_test(test_client_waits_longest_when_taken_over),
        cmocka_unit_test(test_client_pings_when_idle_and_closes_without_an_answer),
        cmocka_unit_test(test_client_pings_a_silent_server_although_it_sends),
        cmocka_unit_test(test_client_uses_the_keep_alive_of_the_server),
        cmocka_unit_test(test_client_without_keep_alive_never_pings),
        cmocka_unit_test(test_client_closes_with_disconnect_and_all_acknowledgements),
        cmocka_unit_test(test_client_closes_in_every_state),
        cmocka_unit_test(test_client_closed_while_dialling_drops_the_connection),
        cmocka_unit_test(test_client_closes_while_its_stream_is_closing),
        cmocka_unit_test(test_client_may_be_closed_inside_its_callbacks),
        cmocka_unit_test(test_client_states_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
