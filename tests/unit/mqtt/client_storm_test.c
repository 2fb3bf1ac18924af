/* SPDX-License-Identifier: Apache-2.0
 *
 * A client session in a storm: a broker that sends random packets in random pieces, cuts, answers
 * and does not answer, while the owner acknowledges, publishes and subscribes at random. Nothing is
 * expected but that the session's own invariants hold (they are assertions), that its figures fit
 * together, and that it ends.
 */
#include <sys/socket.h>
#include <unistd.h>

#include "sl_test.h"

#include "client_peer.h"
#include "mqtt/encode.h"
#include "random_packet.h"

#define STEPS 4000

typedef struct storm {
    peer pr;
    random_source rs;
} storm;

static void forget(peer *pr, const peer_message *pm)
{
    (void)pm;
    if (pr->message_count == PEER_MAX_MESSAGES)
        pr->message_count = PEER_MAX_MESSAGES / 2; // older tokens are never given back: fine too
}

/* In up to three pieces. */
static void send_in_pieces(storm *st, sl_slice bytes)
{
    while (bytes.len > 0 && st->pr.fd >= 0) {
        size_t piece = random_below(&st->rs, 3) == 0
                           ? bytes.len
                           : 1 + random_below(&st->rs, (uint32_t)bytes.len);
        ssize_t n = send(st->pr.fd, bytes.ptr, piece, MSG_NOSIGNAL);
        if (n <= 0)
            return; // the client has closed, or does not read
        bytes = sl_slice_of(bytes.ptr + n, bytes.len - (size_t)n);
        if (random_below(&st->rs, 2) == 0)
            peer_turn(&st->pr);
    }
}

static void broker_speaks(storm *st)
{
    static const sl_mqtt_type types[] = {SL_MQTT_PUBLISH, SL_MQTT_PUBLISH,  SL_MQTT_PUBLISH,
                                         SL_MQTT_PUBREL,  SL_MQTT_PUBACK,   SL_MQTT_PUBREC,
                                         SL_MQTT_PUBCOMP, SL_MQTT_PINGRESP, SL_MQTT_SUBACK};
    sl_mqtt_type type = types[random_below(&st->rs, sizeof(types) / sizeof(types[0]))];
    if (type == SL_MQTT_SUBACK && random_below(&st->rs, 20) != 0)
        type = SL_MQTT_PINGRESP; // one that answers nothing ends the connection
    sl_mqtt_packet pkt;
    random_packet(&st->rs, type, st->pr.opt.version, SL_MQTT_CLIENT_READS, &pkt);
    // Few ids, so that they meet again.
    if (type == SL_MQTT_PUBLISH) {
        pkt.publish.props.has &= ~(uint32_t)SL_PROP_TOPIC_ALIAS;
        if (pkt.publish.topic.len == 0)
            pkt.publish.topic = sl_slice_str("t");
        if (pkt.publish.qos > 0)
            pkt.publish.packet_id = (uint16_t)(1 + random_below(&st->rs, 6));
    } else if (type != SL_MQTT_PINGRESP && type != SL_MQTT_SUBACK) {
        pkt.ack.packet_id = (uint16_t)(1 + random_below(&st->rs, 8));
    }
    sl_buf out;
    sl_buf_init(&out, 1u << 20);
    SL_TEST_OK(sl_mqtt_encode(&pkt, st->pr.opt.version, &out));
    uint8_t *wire = (uint8_t *)(uintptr_t)sl_buf_peek(&out).ptr;
    size_t len = sl_buf_peek(&out).len;
    if (random_below(&st->rs, 60) == 0) // now and then a broken byte
        wire[random_below(&st->rs, (uint32_t)len)] ^= (uint8_t)(1u << random_below(&st->rs, 8));
    send_in_pieces(st, sl_slice_of(wire, len));
    sl_buf_fini(&out);
}

static void owner_acts(storm *st)
{
    peer *pr = &st->pr;
    uint16_t id;
    sl_mqtt_sub_option so = {.filter = sl_slice_str("a/+"), .qos = 1};
    sl_mqtt_publish pb = {.qos = (uint8_t)random_below(&st->rs, 3),
                          .topic = sl_slice_str("t"),
                          .payload = sl_slice_str("payload")};
    sl_err err = SL_OK;
    switch (random_below(&st->rs, 8)) {
    case 0:
        err = sl_mqtt_client_subscribe(pr->client, &so, 1, 0, &id);
        assert_true(err == SL_OK || err == SL_EAGAIN || err == SL_ELIMIT);
        break;
    case 1:
    case 2:
        err = sl_mqtt_client_publish(pr->client, &pb, peer_on_published, pr);
        assert_true(err == SL_OK || err == SL_EAGAIN);
        break;
    default:
        if (pr->message_count > 0) { // mostly one of the last, so that it still counts
            uint32_t back = 1 + random_below(&st->rs, random_below(&st->rs, 4) == 0 ? 60 : 6);
            uint32_t pick = back < pr->message_count ? pr->message_count - back : 0;
            sl_mqtt_client_ack(pr->client, pr->messages[pick].token, 0);
        }
    }
}

/* Reads what the client sent, so that its queue drains, and answers CONNECT. */
static void broker_reads(storm *st)
{
    uint8_t bytes[4096];
    if (st->pr.fd < 0)
        return;
    while (recv(st->pr.fd, bytes, sizeof(bytes), 0) > 0) {
    }
    if (sl_mqtt_client_state_of(st->pr.client) == SL_CLIENT_HANDSHAKE) {
        bool session = random_below(&st->rs, 2) == 0;
        sl_mqtt_packet pkt = {.type = SL_MQTT_CONNACK, .connack.session_present = session};
        sl_buf out;
        sl_buf_init(&out, 100);
        SL_TEST_OK(sl_mqtt_encode(&pkt, st->pr.opt.version, &out));
        send_in_pieces(st, sl_buf_peek(&out));
        sl_buf_fini(&out);
        peer_turn(&st->pr);
    }
}

static void check_figures(storm *st)
{
    sl_mqtt_client_stats stats = peer_stats(&st->pr);
    assert_true(stats.unacked <= stats.receive_maximum);
    assert_true(stats.inflight <= 100);
    assert_true(stats.unreleased <= 6);
    assert_int_equal(stats.connects, st->pr.connacks);
    assert_int_equal(stats.downs, st->pr.downs);
    bool up = sl_mqtt_client_state_of(st->pr.client) == SL_CLIENT_UP;
    assert_true(up || stats.unacked == 0);
}

static void run_storm(sl_mqtt_version version, uint64_t seed)
{
    static storm st;
    st = (storm){0};
    st.rs.word = seed;
    peer_init(&st.pr, version);
    // Small enough to be met: on 3.1.1 it stops reading, on 5.0 it ends the connection.
    st.pr.opt.receive_maximum = version == SL_MQTT_V5 ? 30 : 4;
    st.pr.on_message = forget;
    peer_start(&st.pr);
    for (unsigned i = 0; i < STEPS; i++) {
        uint32_t dice = random_below(&st.rs, 100);
        if (sl_mqtt_client_state_of(st.pr.client) == SL_CLIENT_WAITING)
            peer_wait(&st.pr, 1000);
        if (sl_mqtt_client_state_of(st.pr.client) == SL_CLIENT_HANDSHAKE && dice < 90)
            broker_reads(&st);
        if (dice < 50)
            broker_speaks(&st);
        else if (dice < 85)
            owner_acts(&st);
        else if (dice < 95)
            broker_reads(&st);
        else if (dice < 99)
            peer_wait(&st.pr, random_below(&st.rs, 3000));
        else if (st.pr.fd >= 0)
            peer_cut(&st.pr);
        peer_turn(&st.pr);
        check_figures(&st);
    }
    assert_true(st.pr.connacks > 10); // it was up, again and again
    sl_mqtt_client_stats stats = peer_stats(&st.pr);
    assert_true(stats.received > 100 && stats.acked > 20);
    peer_fini(&st.pr);
}

static void test_client_of_3_1_1_survives_a_storm(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        run_storm(SL_MQTT_V311, seed * 7919);
}

static void test_client_of_5_survives_a_storm(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 12; seed++)
        run_storm(SL_MQTT_V5, seed * 104729);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_client_of_3_1_1_survives_a_storm),
        cmocka_unit_test(test_client_of_5_survives_a_storm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
