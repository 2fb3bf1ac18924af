/* SPDX-License-Identifier: Apache-2.0
 *
 * client_ack: the acknowledgement queue: deliveries in order of arrival, acknowledged by the owner
 * in any order, answered in order ([MQTT-4.6.0-2], [MQTT-4.6.0-3]). One queue for QoS 1 and 2:
 * stricter than asked for, and simple.
 */
#include "base/assert.h"
#include "mqtt/client_int.h"

static bool has_id(const uint64_t *ids, uint16_t id)
{
    return (ids[id / 64] >> (id % 64) & 1u) != 0;
}

static void add_id(uint64_t *ids, uint16_t id)
{
    ids[id / 64] |= 1ull << (id % 64);
}

static void remove_id(uint64_t *ids, uint16_t id)
{
    ids[id / 64] &= ~(1ull << (id % 64));
}

static delivery *at_seq(const sl_mqtt_client *client, uint64_t seq)
{
    return &client->ring[seq % client->opt.receive_maximum];
}

uint32_t sl_client_unacked(const sl_mqtt_client *client)
{
    return (uint32_t)(client->tail_seq - client->head_seq);
}

bool sl_client_window_is_full(const sl_mqtt_client *client)
{
    return sl_client_unacked(client) >= client->opt.receive_maximum;
}

/* The server gets a place of its window back; it never has more than the maximum (4.9). */
static void release_window(sl_mqtt_client *client)
{
    if (client->window_used > 0)
        client->window_used--;
}

sl_client_arrival sl_client_arrive(sl_mqtt_client *client, const sl_mqtt_publish *pb,
                                   sl_mqtt_token *token)
{
    *token = (sl_mqtt_token){0};
    if (pb->qos == 0)
        return SL_ARRIVAL_NEW;
    if (has_id(client->open_ids, pb->packet_id)) {
        // Redelivery by a timer of the server: the first copy is still in the owner's hands.
        client->stats.redelivered++;
        return SL_ARRIVAL_REPEATED;
    }
    if (sl_client_is_v5(client) && client->window_used >= client->opt.receive_maximum)
        return SL_ARRIVAL_TOO_MANY;
    client->window_used++;
    if (pb->qos == 2 && has_id(client->unreleased_ids, pb->packet_id)) {
        // Our PUBREC was lost with a connection; the message is taken already [MQTT-4.3.3-10].
        client->stats.redelivered++;
        sl_client_send_ack(client, SL_MQTT_PUBREC, pb->packet_id, SL_RC_SUCCESS);
        return SL_ARRIVAL_REPEATED;
    }
    SL_ASSERT(!sl_client_window_is_full(client));
    *token = (sl_mqtt_token){.seq = client->tail_seq++, .generation = client->live_generation};
    *at_seq(client, token->seq) =
        (delivery){.at = sl_loop_now(client->lp), .packet_id = pb->packet_id, .qos = pb->qos};
    add_id(client->open_ids, pb->packet_id);
    return SL_ARRIVAL_NEW;
}

static void answer(sl_mqtt_client *client, const delivery *dv)
{
    remove_id(client->open_ids, dv->packet_id);
    client->stats.acked++;
    if (dv->qos == 1) {
        release_window(client);
        sl_client_send_ack(client, SL_MQTT_PUBACK, dv->packet_id, dv->rc);
        return;
    }
    // A refused QoS 2 message is over with its PUBREC; only 5.0 can refuse.
    if (dv->rc >= 0x80 && sl_client_is_v5(client)) {
        release_window(client);
    } else if (!has_id(client->unreleased_ids, dv->packet_id)) {
        add_id(client->unreleased_ids, dv->packet_id);
        client->unreleased++;
    }
    sl_client_send_ack(client, SL_MQTT_PUBREC, dv->packet_id, dv->rc);
}

void sl_mqtt_client_ack(sl_mqtt_client *client, sl_mqtt_token token, uint8_t rc)
{
    SL_CHECK(client, SL_CLIENT_MAGIC);
    SL_ON_LOOP(client->lp);
    SL_ASSERT(sl_mqtt_rc_is_allowed(rc, SL_MQTT_PUBACK, false));
    if (token.generation == 0)
        return;
    if (token.generation != client->live_generation || token.seq < client->head_seq ||
        token.seq >= client->tail_seq || at_seq(client, token.seq)->taken) {
        client->stats.acks_discarded++;
        return;
    }
    at_seq(client, token.seq)->taken = true;
    at_seq(client, token.seq)->rc = rc;
    while (client->head_seq != client->tail_seq && at_seq(client, client->head_seq)->taken) {
        delivery dv = *at_seq(client, client->head_seq);
        client->head_seq++;
        answer(client, &dv);
    }
    sl_client_arm_work(client);
}

void sl_client_on_pubrel(sl_mqtt_client *client, uint16_t packet_id)
{
    uint8_t rc = SL_RC_SUCCESS;
    if (has_id(client->unreleased_ids, packet_id)) {
        remove_id(client->unreleased_ids, packet_id);
        client->unreleased--;
        release_window(client);
    } else {
        rc = SL_RC_PACKET_ID_NOT_FOUND; // not an error: our memory of it went with a restart
    }
    sl_client_send_ack(client, SL_MQTT_PUBCOMP, packet_id, rc);
}

void sl_client_void_deliveries(sl_mqtt_client *client)
{
    client->live_generation = 0;
    client->head_seq = client->tail_seq = 0;
    client->window_used = 0;
    memset(client->open_ids, 0, sizeof(client->open_ids));
}

void sl_client_forget_unreleased(sl_mqtt_client *client)
{
    memset(client->unreleased_ids, 0, sizeof(client->unreleased_ids));
    client->unreleased = 0;
}
