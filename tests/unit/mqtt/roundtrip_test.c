/* SPDX-License-Identifier: Apache-2.0
 *
 * Random packets of every type, version and direction: what is written is read back equal in every
 * field, and what is read is written back equal in every byte.
 */
#include "sl_test.h"

#include "base/alloc.h"
#include "mqtt/encode.h"
#include "mqtt/frame.h"
#include "mqtt/props.h"
#include "random_packet.h"

#define ROUNDS 3000

static void assert_slices(sl_slice want, sl_slice have)
{
    assert_int_equal(want.len, have.len);
    if (want.len > 0)
        assert_memory_equal(want.ptr, have.ptr, want.len);
}

static void assert_lists(const sl_mqtt_props *want, const sl_mqtt_props *have)
{
    size_t pos = 0;
    sl_mqtt_user_prop up;
    for (uint32_t i = 0; i < want->user_count; i++) {
        assert_true(sl_mqtt_user_next(have->raw, &pos, &up));
        assert_slices(want->user[i].name, up.name);
        assert_slices(want->user[i].value, up.value);
    }
    assert_false(sl_mqtt_user_next(have->raw, &pos, &up));
    if ((want->has & SL_PROP_SUBSCRIPTION_ID) == 0)
        return;
    uint32_t id;
    pos = 0;
    for (uint32_t i = 0; i < want->sub_id_count; i++) {
        assert_true(sl_mqtt_sub_id_next(have->raw, &pos, &id));
        assert_int_equal(want->sub_ids[i], id);
    }
    assert_int_equal(want->subscription_id, have->subscription_id);
}

/* By name and not by the table's offsets: a wrong row must show. */
static void assert_props(const sl_mqtt_props *want, const sl_mqtt_props *have)
{
    assert_int_equal(want->has, have->has);
    assert_int_equal(want->payload_format, have->payload_format);
    assert_int_equal(want->request_problem_info, have->request_problem_info);
    assert_int_equal(want->request_response_info, have->request_response_info);
    assert_int_equal(want->maximum_qos, have->maximum_qos);
    assert_int_equal(want->retain_available, have->retain_available);
    assert_int_equal(want->wildcard_available, have->wildcard_available);
    assert_int_equal(want->subscription_id_available, have->subscription_id_available);
    assert_int_equal(want->shared_available, have->shared_available);
    assert_int_equal(want->server_keep_alive, have->server_keep_alive);
    assert_int_equal(want->receive_maximum, have->receive_maximum);
    assert_int_equal(want->topic_alias_maximum, have->topic_alias_maximum);
    assert_int_equal(want->topic_alias, have->topic_alias);
    assert_int_equal(want->message_expiry, have->message_expiry);
    assert_int_equal(want->session_expiry, have->session_expiry);
    assert_int_equal(want->will_delay, have->will_delay);
    assert_int_equal(want->maximum_packet_size, have->maximum_packet_size);
    assert_slices(want->content_type, have->content_type);
    assert_slices(want->response_topic, have->response_topic);
    assert_slices(want->correlation_data, have->correlation_data);
    assert_slices(want->assigned_client_id, have->assigned_client_id);
    assert_slices(want->auth_method, have->auth_method);
    assert_slices(want->auth_data, have->auth_data);
    assert_slices(want->response_info, have->response_info);
    assert_slices(want->server_reference, have->server_reference);
    assert_slices(want->reason_string, have->reason_string);
    assert_lists(want, have);
}

static void assert_connect(const sl_mqtt_connect *want, const sl_mqtt_connect *have)
{
    assert_int_equal(want->version, have->version);
    assert_int_equal(want->clean_start, have->clean_start);
    assert_int_equal(want->has_will, have->has_will);
    assert_int_equal(want->has_username, have->has_username);
    assert_int_equal(want->has_password, have->has_password);
    assert_int_equal(want->keep_alive_s, have->keep_alive_s);
    assert_slices(want->client_id, have->client_id);
    assert_slices(want->username, have->username);
    assert_slices(want->password, have->password);
    assert_props(&want->props, &have->props);
    assert_int_equal(want->will.qos, have->will.qos);
    assert_int_equal(want->will.retain, have->will.retain);
    assert_slices(want->will.topic, have->will.topic);
    assert_slices(want->will.payload, have->will.payload);
    assert_props(&want->will.props, &have->will.props);
}

static void assert_publish(const sl_mqtt_publish *want, const sl_mqtt_publish *have)
{
    assert_int_equal(want->dup, have->dup);
    assert_int_equal(want->retain, have->retain);
    assert_int_equal(want->qos, have->qos);
    assert_int_equal(want->packet_id, have->packet_id);
    assert_slices(want->topic, have->topic);
    assert_slices(want->payload, have->payload);
    assert_props(&want->props, &have->props);
}

static void assert_subscribe(sl_mqtt_type type, sl_mqtt_version version,
                             const sl_mqtt_subscribe *want, const sl_mqtt_subscribe *have)
{
    assert_int_equal(want->packet_id, have->packet_id);
    assert_int_equal(want->count, have->count);
    size_t pos = 0;
    sl_mqtt_sub_option so = {0};
    for (uint32_t i = 0; i < want->count; i++) {
        bool more = type == SL_MQTT_SUBSCRIBE ? sl_mqtt_subscribe_next(have, version, &pos, &so)
                                              : sl_mqtt_unsubscribe_next(have, &pos, &so.filter);
        assert_true(more);
        assert_slices(want->options[i].filter, so.filter);
        assert_int_equal(want->options[i].qos, so.qos);
        assert_int_equal(want->options[i].no_local, so.no_local);
        assert_int_equal(want->options[i].retain_as_published, so.retain_as_published);
        assert_int_equal(want->options[i].retain_handling, so.retain_handling);
    }
    assert_int_equal(pos, have->list.len);
    assert_props(&want->props, &have->props);
}

static void assert_packet(sl_mqtt_version version, const sl_mqtt_packet *want,
                          const sl_mqtt_packet *have)
{
    assert_int_equal(want->type, have->type);
    switch (want->type) {
    case SL_MQTT_CONNECT:
        assert_connect(&want->connect, &have->connect);
        break;
    case SL_MQTT_CONNACK:
        assert_int_equal(want->connack.session_present, have->connack.session_present);
        assert_int_equal(want->connack.reason, have->connack.reason);
        assert_props(&want->connack.props, &have->connack.props);
        break;
    case SL_MQTT_PUBLISH:
        assert_publish(&want->publish, &have->publish);
        break;
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
    case SL_MQTT_PUBREL:
    case SL_MQTT_PUBCOMP:
        assert_int_equal(want->ack.packet_id, have->ack.packet_id);
        assert_int_equal(want->ack.reason, have->ack.reason);
        assert_props(&want->ack.props, &have->ack.props);
        break;
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
        assert_subscribe(want->type, version, &want->subscribe, &have->subscribe);
        break;
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        assert_int_equal(want->suback.packet_id, have->suback.packet_id);
        assert_slices(want->suback.reasons, have->suback.reasons);
        assert_props(&want->suback.props, &have->suback.props);
        break;
    case SL_MQTT_DISCONNECT:
    case SL_MQTT_AUTH:
        assert_int_equal(want->disconnect.reason, have->disconnect.reason);
        assert_props(&want->disconnect.props, &have->disconnect.props);
        break;
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        break;
    }
}

static sl_mqtt_props *props_of(sl_mqtt_packet *pkt)
{
    switch (pkt->type) {
    case SL_MQTT_CONNECT:
        return &pkt->connect.props;
    case SL_MQTT_CONNACK:
        return &pkt->connack.props;
    case SL_MQTT_PUBLISH:
        return &pkt->publish.props;
    case SL_MQTT_PUBACK:
    case SL_MQTT_PUBREC:
    case SL_MQTT_PUBREL:
    case SL_MQTT_PUBCOMP:
        return &pkt->ack.props;
    case SL_MQTT_SUBSCRIBE:
    case SL_MQTT_UNSUBSCRIBE:
        return &pkt->subscribe.props;
    case SL_MQTT_SUBACK:
    case SL_MQTT_UNSUBACK:
        return &pkt->suback.props;
    case SL_MQTT_DISCONNECT:
    case SL_MQTT_AUTH:
        return &pkt->disconnect.props;
    case SL_MQTT_PINGREQ:
    case SL_MQTT_PINGRESP:
        break;
    }
    return NULL;
}

static void round_trip(random_source *rs, sl_mqtt_type type, sl_mqtt_version version,
                       sl_mqtt_side side)
{
    sl_mqtt_packet want, have;
    random_packet(rs, type, version, side, &want);
    sl_buf first, second;
    sl_buf_init(&first, 1u << 20);
    sl_buf_init(&second, 1u << 20);
    SL_TEST_OK(sl_mqtt_encode(&want, version, &first));
    sl_slice wire = sl_buf_peek(&first);
    uint8_t *exact = sl_alloc(wire.len);
    memcpy(exact, wire.ptr, wire.len);

    sl_mqtt_frame frame;
    sl_mqtt_rc rc;
    const char *why = "";
    SL_TEST_OK(sl_mqtt_frame_read(sl_slice_of(exact, wire.len), 1u << 20, &frame, &rc, &why));
    assert_int_equal(frame.header_size + frame.remaining, wire.len);
    assert_int_equal(frame.first, exact[0]);

    memset(&have, 0xA5, sizeof(have));
    sl_err err = sl_mqtt_decode(sl_slice_of(exact, wire.len), version, side, &have, &rc, &why);
    if (err != SL_OK)
        fail_msg("type %d version %d: %s", type, version, why);
    assert_packet(version, &want, &have);

    // Written again: properties verbatim, lists verbatim.
    sl_mqtt_props *props = props_of(&have);
    if (props != NULL)
        props->use_raw = true;
    if (type == SL_MQTT_CONNECT)
        have.connect.will.props.use_raw = true;
    SL_TEST_OK(sl_mqtt_encode(&have, version, &second));
    assert_slices(wire, sl_buf_peek(&second));
    sl_free(exact);
    sl_buf_fini(&first);
    sl_buf_fini(&second);
}

static void test_roundtrip_of_random_packets_keeps_every_field_and_byte(void **state)
{
    (void)state;
    static const sl_mqtt_version versions[] = {SL_MQTT_V31, SL_MQTT_V311, SL_MQTT_V5};
    static random_source rs;
    rs.word = 0x5EED5EED5EEDull;
    unsigned done = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        for (unsigned v = 0; v < 3; v++) {
            sl_mqtt_type type = (sl_mqtt_type)(1 + random_below(&rs, 15));
            sl_mqtt_side side = (sl_mqtt_side)random_below(&rs, 2);
            if (!random_type_is_possible(type, versions[v], side))
                continue;
            round_trip(&rs, type, versions[v], side);
            done++;
        }
    }
    assert_true(done > ROUNDS);
}

static void test_roundtrip_reaches_every_type_in_every_version(void **state)
{
    (void)state;
    static random_source rs;
    rs.word = 77;
    for (int version = SL_MQTT_V31; version <= SL_MQTT_V5; version++) {
        for (int type = SL_MQTT_CONNECT; type <= SL_MQTT_AUTH; type++) {
            for (int side = 0; side < 2; side++) {
                for (unsigned n = 0; n < 50; n++) {
                    if (random_type_is_possible((sl_mqtt_type)type, (sl_mqtt_version)version,
                                                (sl_mqtt_side)side))
                        round_trip(&rs, (sl_mqtt_type)type, (sl_mqtt_version)version,
                                   (sl_mqtt_side)side);
                }
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roundtrip_of_random_packets_keeps_every_field_and_byte),
        cmocka_unit_test(test_roundtrip_reaches_every_type_in_every_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
