/* SPDX-License-Identifier: Apache-2.0
 *
 * client_peer: see client_peer.h.
 */
#include "client_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sl_test.h"

#include "base/alloc.h"
#include "mqtt/encode.h"
#include "mqtt/frame.h"

static void on_connack(void *arg, const sl_mqtt_client_connected *cd)
{
    peer *pr = arg;
    pr->connacks++;
    pr->session_present = cd->session_present;
}

static void on_publish(void *arg, const sl_mqtt_publish *pb, sl_mqtt_token token, sl_rbuf *rb,
                       bool redelivery)
{
    peer *pr = arg;
    assert_true(pr->message_count < PEER_MAX_MESSAGES);
    // The payload lies in the buffer that came with it.
    assert_true(pb->payload.len == 0 || (pb->payload.ptr >= rb->data &&
                                         pb->payload.ptr + pb->payload.len <= rb->data + rb->len));
    peer_message *pm = &pr->messages[pr->message_count++];
    *pm = (peer_message){
        .qos = pb->qos, .packet_id = pb->packet_id, .redelivery = redelivery, .token = token};
    size_t len =
        pb->payload.len < sizeof(pm->payload) - 1 ? pb->payload.len : sizeof(pm->payload) - 1;
    if (len > 0)
        memcpy(pm->payload, pb->payload.ptr, len);
    if (pr->on_message != NULL)
        pr->on_message(pr, pm);
}

static void on_suback(void *arg, uint16_t packet_id, bool unsubscribe, sl_slice reasons)
{
    peer *pr = arg;
    pr->subacks++;
    pr->suback_id = packet_id;
    pr->suback_is_unsub = unsubscribe;
    assert_true(reasons.len <= sizeof(pr->suback_reasons));
    pr->suback_count = reasons.len;
    if (reasons.len > 0)
        memcpy(pr->suback_reasons, reasons.ptr, reasons.len);
}

static void on_down(void *arg, const sl_mqtt_client_down *down)
{
    peer *pr = arg;
    pr->downs++;
    pr->down = *down;
}

static void on_writable(void *arg)
{
    ((peer *)arg)->writables++;
}

void peer_on_published(void *arg, sl_err err, uint8_t reason)
{
    peer *pr = arg;
    pr->published++;
    pr->published_err = err;
    pr->published_reason = reason;
}

static void on_closed(void *arg)
{
    ((peer *)arg)->closed = true;
}

static int dial(void *arg, const char *host, uint16_t port, sl_dur_ms timeout)
{
    peer *pr = arg;
    assert_string_equal(host, "broker.test");
    assert_int_equal(port, 1883);
    assert_int_equal(timeout, 5000);
    pr->dials++;
    if (pr->next_fd < 0)
        return pr->next_fd;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    if (pr->fd >= 0)
        close(pr->fd);
    pr->fd = pair[0];
    pr->ended = false;
    sl_buf_clear(&pr->in);
    return pair[1];
}

void peer_init(peer *pr, sl_mqtt_version version)
{
    *pr = (peer){.fd = -1};
    sl_clock_init_fake(&pr->ck, 1000000, 1700000000000);
    SL_TEST_OK(sl_loop_new_manual("test", &pr->ck, &pr->lp));
    sl_buf_init(&pr->in, 1u << 20);
    pr->opt = (sl_mqtt_client_options){.host = "broker.test",
                                       .version = version,
                                       .client_id = sl_slice_str("gw"),
                                       .keep_alive_s = 60,
                                       .session_expiry_s = 3600,
                                       .receive_maximum = 5,
                                       .connect_timeout = 5000,
                                       .reconnect_initial = 1000,
                                       .reconnect_max = 8000,
                                       .seed = 42,
                                       .dial = dial,
                                       .dial_arg = pr};
}

void peer_turn(peer *pr)
{
    for (unsigned i = 0; i < 100 && sl_loop_turn(pr->lp); i++) {
    }
}

void peer_wait(peer *pr, sl_dur_ms span)
{
    while (span > 0) {
        sl_dur_ms step = span < 1000 ? span : 1000;
        sl_clock_advance(&pr->ck, step);
        peer_turn(pr);
        span -= step;
    }
}

static void begin(peer *pr)
{
    static const sl_mqtt_client_events events = {.on_connack = on_connack,
                                                 .on_publish = on_publish,
                                                 .on_suback = on_suback,
                                                 .on_down = on_down,
                                                 .on_writable = on_writable};
    const char *why = "";
    peer_turn(pr);
    SL_TEST_OK(sl_mqtt_client_new(pr->lp, &pr->opt, &events, pr, &pr->client, &why));
    sl_mqtt_client_start(pr->client);
    peer_turn(pr);
}

void peer_start(peer *pr)
{
    begin(pr);
    (void)peer_expect(pr, SL_MQTT_CONNECT);
}

void peer_connect(peer *pr)
{
    peer_start(pr);
    peer_send_connack(pr, false);
    assert_int_equal(sl_mqtt_client_state_of(pr->client), SL_CLIENT_UP);
}

void peer_fini(peer *pr)
{
    if (pr->client != NULL)
        sl_mqtt_client_close(&pr->client, 0, on_closed, pr);
    peer_wait(pr, 3000);
    assert_true(pr->closed);
    if (pr->fd >= 0)
        close(pr->fd);
    sl_buf_fini(&pr->in);
    sl_free(pr->packet);
    sl_loop_free(&pr->lp);
}

void peer_send_bytes(peer *pr, sl_slice bytes)
{
    assert_int_equal(send(pr->fd, bytes.ptr, bytes.len, MSG_NOSIGNAL), bytes.len);
    peer_turn(pr);
}

void peer_send(peer *pr, const sl_mqtt_packet *pkt)
{
    sl_buf out;
    sl_buf_init(&out, 1u << 20);
    SL_TEST_OK(sl_mqtt_encode(pkt, pr->opt.version, &out));
    peer_send_bytes(pr, sl_buf_peek(&out));
    sl_buf_fini(&out);
}

void peer_send_connack(peer *pr, bool session_present)
{
    sl_mqtt_packet pkt = {.type = SL_MQTT_CONNACK, .connack = {.session_present = session_present}};
    peer_send(pr, &pkt);
}

void peer_send_publish(peer *pr, uint8_t qos, uint16_t packet_id, bool dup, const char *payload)
{
    sl_mqtt_packet pkt = {.type = SL_MQTT_PUBLISH,
                          .publish = {.qos = qos,
                                      .dup = dup,
                                      .packet_id = packet_id,
                                      .topic = sl_slice_str("s/t"),
                                      .payload = sl_slice_str(payload)}};
    peer_send(pr, &pkt);
}

void peer_send_ack(peer *pr, sl_mqtt_type type, uint16_t packet_id, uint8_t reason)
{
    sl_mqtt_packet pkt = {.type = type, .ack = {.packet_id = packet_id, .reason = reason}};
    peer_send(pr, &pkt);
}

static void read_all(peer *pr)
{
    peer_turn(pr);
    for (;;) {
        uint8_t *room;
        SL_TEST_OK(sl_buf_reserve(&pr->in, 4096, &room));
        ssize_t n = recv(pr->fd, room, 4096, 0);
        if (n <= 0) {
            pr->ended = pr->ended || n == 0 || (n < 0 && errno == ECONNRESET);
            return;
        }
        sl_buf_commit(&pr->in, (size_t)n);
    }
}

sl_mqtt_packet peer_expect(peer *pr, sl_mqtt_type type)
{
    read_all(pr);
    sl_mqtt_frame frame;
    sl_mqtt_rc rc;
    const char *why = "";
    sl_slice bytes = sl_buf_peek(&pr->in);
    sl_err err = sl_mqtt_frame_read(bytes, 1u << 20, &frame, &rc, &why);
    if (err != SL_OK)
        fail_msg("want packet type %d, got %s of %zu bytes", type, sl_err_name(err), bytes.len);
    size_t size = frame.header_size + frame.remaining;
    sl_free(pr->packet);
    pr->packet = sl_alloc(size);
    memcpy(pr->packet, bytes.ptr, size);
    sl_buf_consume(&pr->in, size);
    sl_mqtt_packet pkt;
    err = sl_mqtt_decode(sl_slice_of(pr->packet, size), pr->opt.version, SL_MQTT_SERVER_READS, &pkt,
                         &rc, &why);
    if (err != SL_OK)
        fail_msg("the client sent a bad packet: %s", why);
    assert_int_equal(pkt.type, type);
    return pkt;
}

void peer_expect_ack(peer *pr, sl_mqtt_type type, uint16_t packet_id, uint8_t reason)
{
    sl_mqtt_packet pkt = peer_expect(pr, type);
    assert_int_equal(pkt.ack.packet_id, packet_id);
    assert_int_equal(pkt.ack.reason, reason);
}

void peer_expect_nothing(peer *pr)
{
    read_all(pr);
    assert_int_equal(sl_buf_peek(&pr->in).len, 0);
}

void peer_expect_end(peer *pr)
{
    read_all(pr);
    assert_int_equal(sl_buf_peek(&pr->in).len, 0);
    assert_true(pr->ended);
}

void peer_cut(peer *pr)
{
    close(pr->fd);
    pr->fd = -1;
    peer_turn(pr);
}

void peer_redial(peer *pr)
{
    unsigned before = pr->dials;
    for (unsigned i = 0; i < 100 && pr->dials == before; i++)
        peer_wait(pr, 1000);
    assert_int_equal(pr->dials, before + 1);
    (void)peer_expect(pr, SL_MQTT_CONNECT);
}

sl_mqtt_client_stats peer_stats(const peer *pr)
{
    sl_mqtt_client_stats st;
    sl_mqtt_client_stats_of(pr->client, &st);
    return st;
}
