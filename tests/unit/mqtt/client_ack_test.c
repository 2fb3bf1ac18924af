/* SPDX-License-Identifier: Apache-2.0
 *
 * Deliveries of a client session: acknowledgement by hand and in order, redelivery, QoS 2, the
 * window, packets in pieces. (cases C22, C24, C33, C82)
 */
#include <sys/socket.h>

#include "sl_test.h"

#include "client_peer.h"
#include "mqtt/reason.h"

/* ---- deliveries ---- */

static void test_client_acknowledges_in_the_order_of_arrival(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    peer_send_publish(&pr, 1, 10, false, "a");
    peer_send_publish(&pr, 2, 11, false, "b");
    peer_send_publish(&pr, 1, 12, false, "c");
    peer_send_publish(&pr, 0, 0, false, "q0");
    assert_int_equal(pr.message_count, 4);
    assert_string_equal(pr.messages[1].payload, "b");
    assert_int_equal(pr.messages[3].token.generation, 0);
    peer_expect_nothing(&pr);
    assert_int_equal(peer_stats(&pr).unacked, 3);
    sl_mqtt_client_ack(pr.client, pr.messages[2].token, 0);
    sl_mqtt_client_ack(pr.client, pr.messages[3].token, 0); // QoS 0: nothing is owed
    sl_mqtt_client_ack(pr.client, pr.messages[2].token,
                       SL_RC_QUOTA_EXCEEDED); // the first word counts
    assert_int_equal(peer_stats(&pr).acks_discarded, 1);
    peer_expect_nothing(&pr);
    sl_mqtt_client_ack(pr.client, pr.messages[0].token, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBACK, 10, 0);
    peer_expect_nothing(&pr);
    sl_mqtt_client_ack(pr.client, pr.messages[1].token, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBREC, 11, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBACK, 12, 0);
    assert_int_equal(peer_stats(&pr).unacked, 0);
    assert_int_equal(peer_stats(&pr).acked, 3);
    sl_mqtt_client_ack(pr.client, pr.messages[0].token, 0); // twice
    peer_expect_nothing(&pr);
    assert_int_equal(peer_stats(&pr).acks_discarded, 2);
    peer_fini(&pr);
}

static void test_client_passes_reasons_on_5_and_only_success_on_3(void **state)
{
    (void)state;
    for (int v = SL_MQTT_V311; v <= SL_MQTT_V5; v++) {
        peer pr;
        peer_init(&pr, (sl_mqtt_version)v);
        peer_connect(&pr);
        peer_send_publish(&pr, 1, 1, false, "a");
        peer_send_publish(&pr, 2, 2, false, "b");
        sl_mqtt_client_ack(pr.client, pr.messages[0].token, SL_RC_QUOTA_EXCEEDED);
        sl_mqtt_client_ack(pr.client, pr.messages[1].token, SL_RC_NOT_AUTHORIZED);
        peer_expect_ack(&pr, SL_MQTT_PUBACK, 1, v == SL_MQTT_V5 ? 0x97 : 0);
        peer_expect_ack(&pr, SL_MQTT_PUBREC, 2, v == SL_MQTT_V5 ? 0x87 : 0);
        // On 5.0 the refusal ends the exchange; on 3.1.1 PUBREL is still to come.
        assert_int_equal(peer_stats(&pr).unreleased, v == SL_MQTT_V5 ? 0 : 1);
        peer_fini(&pr);
    }
}

/* D12: redelivery by a timer on the same connection is not a new message. */
static void test_client_counts_what_comes_again_while_unacknowledged(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    peer_send_publish(&pr, 1, 7, false, "a");
    peer_send_publish(&pr, 1, 7, true, "a");
    peer_send_publish(&pr, 1, 7, true, "a");
    assert_int_equal(pr.message_count, 1);
    assert_int_equal(peer_stats(&pr).redelivered, 2);
    sl_mqtt_client_ack(pr.client, pr.messages[0].token, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBACK, 7, 0);
    peer_expect_nothing(&pr);
    peer_send_publish(&pr, 1, 7, false, "b"); // the id is free again: a new message
    assert_int_equal(pr.message_count, 2);
    peer_fini(&pr);
}

/* An acknowledgement goes out on the connection its message came on, or not at all. */
static void test_client_discards_acknowledgements_of_an_older_connection(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    peer_send_publish(&pr, 1, 7, false, "a");
    sl_mqtt_token old = pr.messages[0].token;
    peer_cut(&pr);
    sl_mqtt_client_ack(pr.client, old, 0); // while there is none
    peer_redial(&pr);
    sl_mqtt_client_ack(pr.client, old, 0); // before CONNACK
    peer_send_connack(&pr, true);
    peer_send_publish(&pr, 1, 7, true, "a");
    assert_int_equal(pr.message_count, 2);
    assert_true(pr.messages[1].redelivery);
    sl_mqtt_client_ack(pr.client, old, 0);
    peer_expect_nothing(&pr);
    assert_int_equal(peer_stats(&pr).acks_discarded, 3);
    sl_mqtt_client_ack(pr.client, pr.messages[1].token, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBACK, 7, 0);
    peer_fini(&pr);
}

/* D14, C24 */
static void test_client_gives_a_qos_2_message_once(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    peer_send_publish(&pr, 2, 7, false, "a");
    peer_expect_nothing(&pr);
    sl_mqtt_client_ack(pr.client, pr.messages[0].token, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBREC, 7, 0);
    peer_send_publish(&pr, 2, 7, true, "a"); // PUBREC got lost: say it again, give nothing
    peer_expect_ack(&pr, SL_MQTT_PUBREC, 7, 0);
    assert_int_equal(pr.message_count, 1);
    assert_int_equal(peer_stats(&pr).unreleased, 1);
    peer_send_ack(&pr, SL_MQTT_PUBREL, 7, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBCOMP, 7, 0);
    assert_int_equal(peer_stats(&pr).unreleased, 0);
    peer_send_ack(&pr, SL_MQTT_PUBREL, 7, 0); // repeated, and one never seen
    peer_expect_ack(&pr, SL_MQTT_PUBCOMP, 7, SL_RC_PACKET_ID_NOT_FOUND);
    peer_send_ack(&pr, SL_MQTT_PUBREL, 99, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBCOMP, 99, SL_RC_PACKET_ID_NOT_FOUND);
    peer_send_publish(&pr, 2, 7, false, "b");
    assert_int_equal(pr.message_count, 2);
    assert_int_equal(pr.downs, 0);
    peer_fini(&pr);
}

static void test_client_answers_an_unknown_pubrel_on_3_plainly(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    peer_send_ack(&pr, SL_MQTT_PUBREL, 9, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBCOMP, 9, 0);
    peer_fini(&pr);
}

static void test_client_remembers_qos_2_over_a_reconnect_with_session(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    peer_send_publish(&pr, 2, 7, false, "a");
    sl_mqtt_client_ack(pr.client, pr.messages[0].token, 0);
    peer_expect_ack(&pr, SL_MQTT_PUBREC, 7, 0);
    peer_cut(&pr);
    peer_redial(&pr);
    peer_send_connack(&pr, true);
    peer_send_publish(&pr, 2, 7, true, "a");
    peer_expect_ack(&pr, SL_MQTT_PUBREC, 7, 0);
    assert_int_equal(pr.message_count, 1);
    peer_cut(&pr);
    peer_redial(&pr);
    peer_send_connack(&pr, false); // the session is gone, and with it what 7 meant
    peer_send_publish(&pr, 2, 7, false, "new");
    assert_int_equal(pr.message_count, 2);
    assert_string_equal(pr.messages[1].payload, "new");
    peer_fini(&pr);
}

/* ---- the window ---- */

/* C33: on 5.0 the server knows our receive maximum and must obey it. */
static void test_client_of_5_disconnects_a_server_that_exceeds_the_window(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    for (uint16_t id = 1; id <= 5; id++)
        peer_send_publish(&pr, (uint8_t)(1 + id % 2), id, false, "x");
    peer_send_publish(&pr, 0, 0, false, "QoS 0 is free");
    assert_int_equal(pr.downs, 0);
    peer_send_publish(&pr, 1, 6, false, "too much");
    sl_mqtt_packet pkt = peer_expect(&pr, SL_MQTT_DISCONNECT);
    assert_int_equal(pkt.disconnect.reason, SL_RC_RECEIVE_MAXIMUM_EXCEEDED);
    SL_TEST_ERR(pr.down.err, SL_EPROTOCOL);
    assert_int_equal(pr.message_count, 6);
    peer_fini(&pr);
}

static void test_client_forgives_up_to_its_bound_what_it_did_not_announce(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    pr.opt.announced_maximum = 3;
    peer_start(&pr);
    peer_cut(&pr);
    unsigned before = pr.dials;
    while (pr.dials == before)
        peer_wait(&pr, 1000);
    sl_mqtt_packet pkt = peer_expect(&pr, SL_MQTT_CONNECT);
    assert_int_equal(pkt.connect.props.receive_maximum, 3);
    peer_send_connack(&pr, false);
    pr.downs = 0;
    for (uint16_t id = 1; id <= 5; id++)
        peer_send_publish(&pr, 1, id, false, "x");
    assert_int_equal(pr.downs, 0);
    assert_int_equal(pr.message_count, 5);
    peer_send_publish(&pr, 1, 6, false, "x");
    assert_int_equal(pr.downs, 1);
    peer_fini(&pr);
}

/* A QoS 2 message takes its place until PUBCOMP, an acknowledged QoS 1 message gives it back. */
static void test_client_counts_the_window_as_the_server_does(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    for (uint16_t id = 1; id <= 5; id++) {
        peer_send_publish(&pr, id <= 2 ? 2 : 1, id, false, "x");
        sl_mqtt_client_ack(pr.client, pr.messages[id - 1].token, 0);
    }
    for (uint16_t id = 10; id <= 12; id++) // three places came back
        peer_send_publish(&pr, 1, id, false, "x");
    assert_int_equal(pr.downs, 0);
    peer_send_ack(&pr, SL_MQTT_PUBREL, 1, 0);
    peer_send_publish(&pr, 1, 13, false, "x"); // the fourth, with PUBCOMP
    assert_int_equal(pr.downs, 0);
    peer_send_publish(&pr, 1, 14, false, "x");
    assert_int_equal(pr.downs, 1);
    peer_fini(&pr);
}

/* On 3.1.1 the bound is ours alone: reading stops and goes on, nothing is lost or reordered. */
static void test_client_of_3_stops_reading_when_the_window_is_full(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    for (uint16_t id = 1; id <= 20; id++) {
        char text[8] = {(char)('a' + id), 0};
        peer_send_publish(&pr, 1, id, false, text);
    }
    assert_int_equal(pr.message_count, 5);
    assert_int_equal(peer_stats(&pr).unacked, 5);
    assert_int_equal(peer_stats(&pr).read_stops, 1);
    for (unsigned i = 0; i < 20; i++) {
        assert_true(pr.message_count > i);
        assert_int_equal(pr.messages[i].packet_id, i + 1);
        assert_int_equal(pr.messages[i].payload[0], 'a' + (int)i + 1);
        sl_mqtt_client_ack(pr.client, pr.messages[i].token, 0);
        peer_turn(&pr);
        peer_expect_ack(&pr, SL_MQTT_PUBACK, (uint16_t)(i + 1), 0);
    }
    assert_int_equal(pr.message_count, 20);
    assert_int_equal(pr.downs, 0);
    peer_fini(&pr);
}

/* The same with all in one segment, and with the packet at the border cut in two. */
static void test_client_of_3_goes_on_inside_a_buffer_and_a_cut_packet(void **state)
{
    (void)state;
    for (size_t cut = 0; cut < 3; cut++) {
        peer pr;
        peer_init(&pr, SL_MQTT_V311);
        peer_connect(&pr);
        uint8_t bytes[12 * 9];
        for (uint8_t i = 0; i < 12; i++)
            memcpy(bytes + i * 9, (uint8_t[]){0x32, 7, 0, 1, 't', 0, (uint8_t)(i + 1), 'x', i}, 9);
        size_t first = 5 * 9 + cut; // the sixth finds the window full
        peer_send_bytes(&pr, sl_slice_of(bytes, first));
        peer_send_bytes(&pr, sl_slice_of(bytes + first, sizeof(bytes) - first));
        assert_int_equal(pr.message_count, 5);
        for (unsigned i = 0; i < 12; i++) {
            sl_mqtt_client_ack(pr.client, pr.messages[i].token, 0);
            peer_turn(&pr);
        }
        assert_int_equal(pr.message_count, 12);
        for (uint16_t i = 0; i < 12; i++)
            peer_expect_ack(&pr, SL_MQTT_PUBACK, (uint16_t)(i + 1), 0);
        assert_int_equal(pr.downs, 0);
        peer_fini(&pr);
    }
}

/* C87: the database may stand still for minutes; the link stays up. */
static void test_client_pings_on_while_it_does_not_read(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    pr.opt.keep_alive_s = 10;
    peer_connect(&pr);
    for (uint16_t id = 1; id <= 6; id++)
        peer_send_publish(&pr, 1, id, false, "x");
    assert_int_equal(pr.message_count, 5);
    for (unsigned i = 0; i < 30; i++) { // five minutes
        peer_wait(&pr, 10000);
        (void)peer_expect(&pr, SL_MQTT_PINGREQ);
        sl_mqtt_packet pkt = {.type = SL_MQTT_PINGRESP};
        peer_send(&pr, &pkt);
    }
    assert_int_equal(pr.downs, 0);
    assert_int_equal(peer_stats(&pr).oldest_unacked, 300000);
    sl_mqtt_client_ack(pr.client, pr.messages[0].token, 0);
    peer_turn(&pr);
    assert_int_equal(pr.message_count, 6);
    peer_expect_ack(&pr, SL_MQTT_PUBACK, 1, 0);
    peer_fini(&pr);
}

/* Answers that lay unread do not count against the server once we read again. */
static void test_client_gives_the_server_time_after_it_read_again(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    pr.opt.keep_alive_s = 10;
    peer_connect(&pr);
    for (uint16_t id = 1; id <= 6; id++)
        peer_send_publish(&pr, 1, id, false, "x");
    peer_wait(&pr, 19500); // PINGREQ at 10 s, not answered
    sl_mqtt_client_ack(pr.client, pr.messages[0].token, 0);
    peer_turn(&pr);
    assert_int_equal(pr.message_count, 6);
    peer_wait(&pr, 9500);
    assert_int_equal(pr.downs, 0);
    peer_wait(&pr, 1000);
    assert_int_equal(pr.downs, 1);
    SL_TEST_ERR(pr.down.err, SL_ETIMEDOUT);
    peer_fini(&pr);
}

static void ack_at_once(peer *pr, const peer_message *pm)
{
    sl_mqtt_client_ack(pr->client, pm->token, 0);
}

static void test_client_may_be_acknowledged_inside_its_callbacks(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    pr.on_message = ack_at_once;
    for (uint16_t id = 1; id <= 50; id++)
        peer_send_publish(&pr, 1, id, false, "x");
    for (uint16_t id = 1; id <= 50; id++)
        peer_expect_ack(&pr, SL_MQTT_PUBACK, id, 0);
    assert_int_equal(peer_stats(&pr).read_stops, 0);
    peer_fini(&pr);
}

/* ---- bytes ---- */

static void test_client_reads_a_stream_byte_by_byte(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    peer_connect(&pr);
    static uint8_t big[4 + 3 + 300];
    memcpy(big, (uint8_t[]){0x30, 0xAF, 0x02, 0, 1, 't', 'y'}, 7); // 303 bytes
    memset(big + 7, 'z', sizeof(big) - 7);
    static const uint8_t small[] = {0x32, 7, 0, 1, 't', 0, 9, 'h', 'i', 0xD0, 0};
    for (size_t i = 0; i < sizeof(big) - 1; i++)
        peer_send_bytes(&pr, sl_slice_of(big + i, 1));
    for (size_t i = 0; i < sizeof(small); i++)
        peer_send_bytes(&pr, sl_slice_of(small + i, 1));
    assert_int_equal(pr.message_count, 2);
    assert_int_equal(pr.messages[0].payload[0], 'y');
    assert_int_equal(pr.messages[0].payload[1], 'z');
    assert_string_equal(pr.messages[1].payload, "hi");
    assert_int_equal(pr.messages[1].packet_id, 9);
    assert_int_equal(pr.downs, 0);
    peer_fini(&pr);
}

static void test_client_disconnects_on_malformed_packets(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    peer_send_bytes(&pr, sl_slice_of("\x36\x03\x00\x01t", 5)); // QoS 3
    sl_mqtt_packet pkt = peer_expect(&pr, SL_MQTT_DISCONNECT);
    assert_int_equal(pkt.disconnect.reason, SL_RC_MALFORMED_PACKET);
    SL_TEST_ERR(pr.down.err, SL_EMALFORMED);
    assert_non_null(strstr(pr.down.why, "QoS is 3"));
    peer_fini(&pr);
}

static void test_client_refuses_packets_over_its_limit_from_the_header(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    pr.opt.max_packet_bytes = 1000;
    peer_connect(&pr);
    peer_send_bytes(&pr, sl_slice_of("\x30\xFF\xFF\xFF\x7F", 5));
    sl_mqtt_packet pkt = peer_expect(&pr, SL_MQTT_DISCONNECT);
    assert_int_equal(pkt.disconnect.reason, SL_RC_PACKET_TOO_LARGE);
    SL_TEST_ERR(pr.down.err, SL_ETOOBIG);
    peer_fini(&pr);
}

static void test_client_refuses_aliases_and_server_only_faults(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    peer_connect(&pr);
    sl_mqtt_packet pkt = {.type = SL_MQTT_PUBLISH,
                          .publish = {.topic = sl_slice_str("t"),
                                      .props = {.has = SL_PROP_TOPIC_ALIAS, .topic_alias = 1}}};
    peer_send(&pr, &pkt);
    pkt = peer_expect(&pr, SL_MQTT_DISCONNECT);
    assert_int_equal(pkt.disconnect.reason, SL_RC_TOPIC_ALIAS_INVALID);
    peer_redial(&pr);
    peer_send_connack(&pr, true);
    peer_send_connack(&pr, true); // a second one
    pkt = peer_expect(&pr, SL_MQTT_DISCONNECT);
    assert_int_equal(pkt.disconnect.reason, SL_RC_PROTOCOL_ERROR);
    assert_int_equal(pr.message_count, 0);
    peer_fini(&pr);
}

/* A server that asks for answers without end and reads none: the queue has a bound, then it is
 * over. */
static void test_client_gives_up_a_server_that_does_not_read_its_answers(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V311);
    pr.opt.max_queued_bytes = 1000;
    pr.opt.keep_alive_s = 0;
    peer_connect(&pr);
    static uint8_t pubrels[16384];
    for (size_t i = 0; i < sizeof(pubrels); i += 4)
        memcpy(pubrels + i, (uint8_t[]){0x62, 2, 0, 9}, 4);
    for (unsigned i = 0; i < 400 && pr.downs == 0; i++) {
        (void)send(pr.fd, pubrels, sizeof(pubrels), MSG_NOSIGNAL);
        peer_turn(&pr);
    }
    assert_int_equal(pr.downs, 1);
    SL_TEST_ERR(pr.down.err, SL_ELIMIT);
    peer_fini(&pr);
}

/* ---- a model ---- */

static uint32_t next_random(uint64_t *word, uint32_t limit)
{
    *word ^= *word << 13;
    *word ^= *word >> 7;
    *word ^= *word << 17;
    return (uint32_t)((*word >> 20) % limit);
}

/* Random arrivals, random acknowledgements: what leaves is always the longest acknowledged
 * beginning of what arrived, in that order. */
static void test_client_acknowledges_in_order_whatever_the_owner_does(void **state)
{
    (void)state;
    peer pr;
    peer_init(&pr, SL_MQTT_V5);
    pr.opt.receive_maximum = 40;
    peer_connect(&pr);
    uint64_t word = 4711;
    bool taken[PEER_MAX_MESSAGES] = {false};
    unsigned answered = 0;
    uint16_t id = 0;
    while (answered < 200) {
        bool room = pr.message_count - answered < 20 && pr.message_count < 200;
        if (room && next_random(&word, 2) == 0) {
            peer_send_publish(&pr, (uint8_t)(1 + next_random(&word, 2)), ++id, false, "x");
            continue;
        }
        if (pr.message_count == answered)
            continue;
        unsigned pick = answered + next_random(&word, pr.message_count - answered);
        if (taken[pick])
            continue;
        taken[pick] = true;
        sl_mqtt_client_ack(pr.client, pr.messages[pick].token, 0);
        for (; answered < pr.message_count && taken[answered]; answered++) {
            const peer_message *pm = &pr.messages[answered];
            peer_expect_ack(&pr, pm->qos == 1 ? SL_MQTT_PUBACK : SL_MQTT_PUBREC, pm->packet_id, 0);
        }
        peer_expect_nothing(&pr);
        for (unsigned i = 0; i < answered; i++) { // release what can be, so that the window lasts
            if (pr.messages[i].qos == 2) {
                peer_send_ack(&pr, SL_MQTT_PUBREL, pr.messages[i].packet_id, 0);
                peer_expect_ack(&pr, SL_MQTT_PUBCOMP, pr.messages[i].packet_id, 0);
                pr.messages[i].qos = 3;
            }
        }
    }
    assert_int_equal(pr.downs, 0);
    peer_fini(&pr);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_acknowledges_in_the_order_of_arrival),
        cmocka_unit_test(test_client_passes_reasons_on_5_and_only_success_on_3),
        cmocka_unit_test(test_client_counts_what_comes_again_while_unacknowledged),
        cmocka_unit_test(test_client_discards_acknowledgements_of_an_older_connection),
        cmocka_unit_test(test_client_gives_a_qos_2_message_once),
        cmocka_unit_test(test_client_answers_an_unknown_pubrel_on_3_plainly),
        cmocka_unit_test(test_client_remembers_qos_2_over_a_reconnect_with_session),
        cmocka_unit_test(test_client_of_5_disconnects_a_server_that_exceeds_the_window),
        cmocka_unit_test(test_client_forgives_up_to_its_bound_what_it_did_not_announce),
        cmocka_unit_test(test_client_counts_the_window_as_the_server_does),
        cmocka_unit_test(test_client_of_3_stops_reading_when_the_window_is_full),
        cmocka_unit_test(test_client_of_3_goes_on_inside_a_buffer_and_a_cut_packet),
        cmocka_unit_test(test_client_pings_on_while_it_does_not_read),
        cmocka_unit_test(test_client_gives_the_server_time_after_it_read_again),
        cmocka_unit_test(test_client_may_be_acknowledged_inside_its_callbacks),
        cmocka_unit_test(test_client_reads_a_stream_byte_by_byte),
        cmocka_unit_test(test_client_disconnects_on_malformed_packets),
        cmocka_unit_test(test_client_refuses_packets_over_its_limit_from_the_header),
        cmocka_unit_test(test_client_refuses_aliases_and_server_only_faults),
        cmocka_unit_test(test_client_gives_up_a_server_that_does_not_read_its_answers),
        cmocka_unit_test(test_client_acknowledges_in_order_whatever_the_owner_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
