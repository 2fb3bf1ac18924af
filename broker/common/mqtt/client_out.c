/* SPDX-License-Identifier: Apache-2.0
 *
 * client_out: what leaves: control packets, requests, own publishes and their resending. Everything
 * goes through one bounded buffer that is written once a turn.
 */
#include "base/alloc.h"
#include "base/assert.h"
#include "mqtt/client_int.h"
#include "mqtt/encode.h"
#include "mqtt/topic.h"

static size_t queued_bytes(const sl_mqtt_client *client)
{
    return sl_buf_peek(&client->out).len;
}

void sl_client_send(sl_mqtt_client *client, const sl_mqtt_packet *packet)
{
    sl_err err = sl_mqtt_encode(packet, client->opt.version, &client->out);
    SL_ASSERT(err == SL_OK || err == SL_ETOOBIG);
    if (err == SL_ETOOBIG)
        sl_client_lose(client, SL_ELIMIT, 0, "the server does not read our acknowledgements");
    else
        sl_client_arm_work(client);
}

void sl_client_send_ack(sl_mqtt_client *client, sl_mqtt_type type, uint16_t packet_id, uint8_t rc)
{
    // 3.1.1 knows acknowledgements of success only.
    sl_mqtt_packet pkt = {
        .type = type,
        .ack = {.packet_id = packet_id, .reason = sl_client_is_v5(client) ? rc : SL_RC_SUCCESS}};
    sl_client_send(client, &pkt);
}

void sl_client_flush(sl_mqtt_client *client)
{
    if (client->sm == NULL || client->blocked || queued_bytes(client) == 0)
        return;
    sl_slice bytes = sl_buf_peek(&client->out);
    struct iovec iov = {.iov_base = (void *)(uintptr_t)bytes.ptr, .iov_len = bytes.len};
    size_t written = 0;
    if (sl_stream_write(client->sm, &iov, 1, &written) != SL_OK)
        return; // on_end follows and says why
    if (written > 0)
        client->last_sent = sl_loop_now(client->lp);
    client->blocked = written < bytes.len;
    sl_buf_consume(&client->out, written);
}

/* ---- packet ids and requests ---- */

static request *find_request(sl_mqtt_client *client, uint16_t packet_id)
{
    for (unsigned i = 0; i < SL_CLIENT_MAX_REQUESTS; i++) {
        if (client->requests[i].packet_id == packet_id)
            return &client->requests[i];
    }
    return NULL;
}

/* An id that nothing of ours uses; there always is one, the tables are far smaller than 65 535. */
static uint16_t next_packet_id(sl_mqtt_client *client)
{
    do {
        client->last_packet_id++;
    } while (client->last_packet_id == 0 ||
             sl_imap_get(client->outgoing_map, client->last_packet_id) != NULL ||
             find_request(client, client->last_packet_id) != NULL);
    return client->last_packet_id;
}

static sl_err send_request(sl_mqtt_client *client, sl_mqtt_packet *pkt, uint16_t *packet_id)
{
    if (client->state != SL_CLIENT_UP)
        return SL_EAGAIN;
    if (pkt->subscribe.count == 0)
        return SL_EINVAL;
    request *rq = find_request(client, 0);
    if (rq == NULL)
        return SL_ELIMIT;
    pkt->subscribe.packet_id = next_packet_id(client);
    sl_buf bytes;
    sl_buf_init(&bytes, client->server_max_packet);
    sl_err err = sl_mqtt_encode(pkt, client->opt.version, &bytes);
    if (err == SL_OK)
        err = sl_buf_append_slice(&client->out, sl_buf_peek(&bytes));
    sl_buf_fini(&bytes);
    if (err != SL_OK)
        return err;
    *rq = (request){.packet_id = pkt->subscribe.packet_id,
                    .count = pkt->subscribe.count,
                    .unsubscribe = pkt->type == SL_MQTT_UNSUBSCRIBE};
    *packet_id = rq->packet_id;
    sl_client_arm_work(client);
    return SL_OK;
}

sl_err sl_mqtt_client_subscribe(sl_mqtt_client *client, const sl_mqtt_sub_option *options,
                                uint32_t count, uint32_t subscription_id, uint16_t *packet_id)
{
    SL_CHECK(client, SL_CLIENT_MAGIC);
    SL_ON_LOOP(client->lp);
    for (uint32_t i = 0; i < count; i++) {
        sl_mqtt_share share;
        if (sl_mqtt_share_parse(options[i].filter, 0, &share, NULL) != SL_OK)
            return SL_EINVAL;
    }
    sl_mqtt_packet pkt = {.type = SL_MQTT_SUBSCRIBE,
                          .subscribe = {.count = count, .options = options}};
    if (subscription_id != 0) {
        pkt.subscribe.props.has = SL_PROP_SUBSCRIPTION_ID;
        pkt.subscribe.props.subscription_id = subscription_id;
    }
    return send_request(client, &pkt, packet_id);
}

sl_err sl_mqtt_client_unsubscribe(sl_mqtt_client *client, const sl_slice *filters, uint32_t count,
                                  uint16_t *packet_id)
{
    SL_CHECK(client, SL_CLIENT_MAGIC);
    SL_ON_LOOP(client->lp);
    if (count == 0)
        return SL_EINVAL;
    sl_mqtt_sub_option *options = sl_calloc(count, sizeof(*options));
    for (uint32_t i = 0; i < count; i++)
        options[i].filter = filters[i];
    sl_mqtt_packet pkt = {.type = SL_MQTT_UNSUBSCRIBE,
                          .subscribe = {.count = count, .options = options}};
    sl_err err = send_request(client, &pkt, packet_id);
    sl_free(options);
    return err;
}

void sl_client_on_suback(sl_mqtt_client *client, bool unsubscribe, const sl_mqtt_suback *sa)
{
    request *rq = find_request(client, sa->packet_id);
    bool bare = unsubscribe && !sl_client_is_v5(client);
    if (rq == NULL || rq->unsubscribe != unsubscribe || (!bare && sa->reasons.len != rq->count)) {
        sl_client_fail(client, SL_EPROTOCOL, SL_RC_PROTOCOL_ERROR,
                       "SUBACK or UNSUBACK that answers no request [MQTT-3.8.4-2] [MQTT-3.8.4-6]");
        return;
    }
    *rq = (request){0};
    if (client->ev.on_suback != NULL)
        client->ev.on_suback(client->arg, sa->packet_id, unsubscribe, sa->reasons);
}

/* ---- own publishes ---- */

static void free_outgoing(outgoing *og)
{
    sl_free(og->bytes);
    sl_free(og);
}

/* Out of the table; done is called in a later turn. */
static void complete(sl_mqtt_client *client, outgoing *og, sl_err err, uint8_t reason)
{
    sl_list_remove(&og->node);
    if (og->packet_id != 0) {
        (void)sl_imap_remove(client->outgoing_map, og->packet_id);
        client->outgoing_count--;
        client->outgoing_sent -= og->sent;
    }
    og->state = OUT_DONE;
    og->err = err;
    og->reason = reason;
    sl_list_push_back(&client->done_list, &og->node);
    sl_client_arm_work(client);
}

void sl_client_run_completions(sl_mqtt_client *client)
{
    sl_node *node;
    while ((node = sl_list_pop_front(&client->done_list)) != NULL) {
        outgoing *og = SL_CONTAINER(node, outgoing, node);
        if (og->done != NULL)
            og->done(og->arg, og->err, og->reason);
        free_outgoing(og);
    }
}

static uint32_t inflight_limit(const sl_mqtt_client *client)
{
    uint32_t server = client->server_receive_maximum;
    return client->opt.max_inflight < server ? client->opt.max_inflight : server;
}

static bool has_room(const sl_mqtt_client *client, size_t size)
{
    return queued_bytes(client) + size <= client->opt.max_queued_bytes;
}

/* Puts one into the buffer in the form its state asks for. False: no room now. */
static bool send_outgoing(sl_mqtt_client *client, outgoing *og)
{
    if (og->state == OUT_WAIT_PUBCOMP) {
        og->sent = true;
        client->outgoing_sent++;
        sl_client_send_ack(client, SL_MQTT_PUBREL, og->packet_id, SL_RC_SUCCESS);
        return client->state == SL_CLIENT_UP;
    }
    if (!has_room(client, og->len) || sl_buf_append(&client->out, og->bytes, og->len) != SL_OK)
        return false;
    og->sent = true;
    client->outgoing_sent++;
    sl_client_arm_work(client);
    return true;
}

void sl_client_pump(sl_mqtt_client *client)
{
    if (client->state != SL_CLIENT_UP || client->outgoing_sent == client->outgoing_count)
        return;
    sl_node *node = sl_list_first(&client->outgoing_list);
    while (node != NULL && client->outgoing_sent < inflight_limit(client)) {
        outgoing *og = SL_CONTAINER(node, outgoing, node);
        node = sl_list_next(&client->outgoing_list, node);
        if (!og->sent && !send_outgoing(client, og))
            return;
    }
}

void sl_client_tell_writable(sl_mqtt_client *client)
{
    if (client->state != SL_CLIENT_UP || !client->want_writable || !has_room(client, 1) ||
        client->outgoing_count >= client->opt.max_inflight)
        return;
    client->want_writable = false;
    if (client->ev.on_writable != NULL)
        client->ev.on_writable(client->arg);
}

void sl_client_on_out_ack(sl_mqtt_client *client, sl_mqtt_type type, const sl_mqtt_ack *ack)
{
    outgoing *og = sl_imap_get(client->outgoing_map, ack->packet_id);
    if (og == NULL || !og->sent) {
        // Of an exchange that a lost session took with it; PUBREC wants its PUBREL all the same.
        if (type == SL_MQTT_PUBREC && ack->reason < 0x80)
            sl_client_send_ack(client, SL_MQTT_PUBREL, ack->packet_id, SL_RC_PACKET_ID_NOT_FOUND);
        return;
    }
    if (type == SL_MQTT_PUBACK && og->state == OUT_WAIT_PUBACK) {
        complete(client, og, SL_OK, ack->reason);
    } else if (type == SL_MQTT_PUBREC && ack->reason >= 0x80 && og->state == OUT_WAIT_PUBREC) {
        complete(client, og, SL_OK, ack->reason);
    } else if (type == SL_MQTT_PUBREC && og->state != OUT_WAIT_PUBACK) {
        og->state = OUT_WAIT_PUBCOMP;
        sl_free(og->bytes); // from here on only the PUBREL is ever sent again
        og->bytes = NULL;
        sl_client_send_ack(client, SL_MQTT_PUBREL, ack->packet_id, SL_RC_SUCCESS);
    } else if (type == SL_MQTT_PUBCOMP && og->state == OUT_WAIT_PUBCOMP) {
        complete(client, og, SL_OK, ack->reason);
    }
    sl_client_pump(client);
}

void sl_client_resume_outgoing(sl_mqtt_client *client, bool session_present)
{
    sl_node *node = sl_list_first(&client->outgoing_list);
    while (node != NULL) {
        outgoing *og = SL_CONTAINER(node, outgoing, node);
        node = sl_list_next(&client->outgoing_list, node);
        if (og->state == OUT_WAIT_PUBCOMP) {
            // The server had taken it. Without a session there is nothing left to release.
            if (!session_present)
                complete(client, og, SL_OK, SL_RC_SUCCESS);
            continue;
        }
        if (og->len > client->server_max_packet) { // the server takes less than it did before
            complete(client, og, SL_ETOOBIG, SL_RC_PACKET_TOO_LARGE);
            continue;
        }
        // DUP says "sent before in this session" [MQTT-3.3.1-1]; a new session has seen nothing.
        if (session_present)
            og->bytes[0] |= 0x08u;
        else
            og->bytes[0] &= (uint8_t)~0x08u;
    }
    sl_client_pump(client);
}

void sl_client_reset_output(sl_mqtt_client *client)
{
    sl_buf_clear(&client->out);
    client->blocked = false;
    client->want_writable = false;
    memset(client->requests, 0, sizeof(client->requests));
    sl_node *node = sl_list_first(&client->outgoing_list);
    for (; node != NULL; node = sl_list_next(&client->outgoing_list, node))
        SL_CONTAINER(node, outgoing, node)->sent = false;
    client->outgoing_sent = 0;
}

void sl_client_abandon_outgoing(sl_mqtt_client *client)
{
    sl_node *node;
    while ((node = sl_list_first(&client->outgoing_list)) != NULL)
        complete(client, SL_CONTAINER(node, outgoing, node), SL_ECLOSED, 0);
}

/* What the server said in its CONNACK about messages it does not take. */
static sl_err check_publish(const sl_mqtt_client *client, const sl_mqtt_publish *pb)
{
    if (pb->qos > 2 || sl_mqtt_topic_check(pb->topic, 0, NULL) != SL_OK)
        return SL_EINVAL;
    if (pb->qos > client->server_max_qos || (pb->retain && !client->server_retain))
        return SL_EUNSUPPORTED;
    return SL_OK;
}

static sl_err encode_publish(sl_mqtt_client *client, const sl_mqtt_publish *pb, uint16_t packet_id,
                             sl_buf *bytes)
{
    sl_mqtt_packet pkt = {.type = SL_MQTT_PUBLISH, .publish = *pb};
    pkt.publish.dup = false;
    pkt.publish.packet_id = packet_id;
    sl_err err = sl_mqtt_encode(&pkt, client->opt.version, bytes);
    if (err != SL_OK)
        return err;
    size_t size = sl_buf_peek(bytes).len;
    if (size > client->server_max_packet || size > client->opt.max_queued_bytes)
        return SL_ETOOBIG;
    return SL_OK;
}

/* Makes the record and gives it its way: QoS 0 is complete, the others wait in the table. */
static void enqueue(sl_mqtt_client *client, uint8_t qos, uint16_t packet_id, sl_buf *bytes,
                    sl_mqtt_published_f *done, void *arg)
{
    outgoing *og = sl_calloc(1, sizeof(*og));
    og->done = done;
    og->arg = arg;
    sl_list_push_back(&client->outgoing_list, &og->node);
    if (qos == 0) {
        complete(client, og, SL_OK, SL_RC_SUCCESS);
        return;
    }
    og->packet_id = packet_id;
    og->state = qos == 1 ? OUT_WAIT_PUBACK : OUT_WAIT_PUBREC;
    og->bytes = sl_buf_take(bytes, &og->len);
    sl_err err = sl_imap_put(client->outgoing_map, packet_id, og, NULL);
    SL_ASSERT(err == SL_OK); // max_inflight was checked
    client->outgoing_count++;
    sl_client_pump(client);
}

sl_err sl_mqtt_client_publish(sl_mqtt_client *client, const sl_mqtt_publish *pb,
                              sl_mqtt_published_f *done, void *arg)
{
    SL_CHECK(client, SL_CLIENT_MAGIC);
    SL_ON_LOOP(client->lp);
    if (client->state != SL_CLIENT_UP)
        return SL_EAGAIN;
    sl_err err = check_publish(client, pb);
    if (err != SL_OK)
        return err;
    if (pb->qos > 0 && client->outgoing_count >= client->opt.max_inflight) {
        client->want_writable = true;
        return SL_EAGAIN;
    }
    uint16_t packet_id = pb->qos > 0 ? next_packet_id(client) : 0;
    sl_buf bytes;
    sl_buf_init(&bytes, SL_MQTT_MAX_REMAINING + 5);
    err = encode_publish(client, pb, packet_id, &bytes);
    if (err == SL_OK && !has_room(client, sl_buf_peek(&bytes).len)) {
        client->want_writable = true;
        err = SL_EAGAIN;
    }
    if (err == SL_OK && pb->qos == 0)
        err = sl_buf_append_slice(&client->out, sl_buf_peek(&bytes));
    if (err == SL_OK) {
        enqueue(client, pb->qos, packet_id, &bytes, done, arg);
        sl_client_arm_work(client);
    }
    sl_buf_fini(&bytes);
    return err;
}
