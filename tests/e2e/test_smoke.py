# SPDX-License-Identifier: Apache-2.0
"""The main job in its simplest forms: one of each, for ./test --quick."""
import json

import pytest

import mqtt_raw
from process import wait_until
from sluice import gateway_config

pytestmark = pytest.mark.quick


def test_broker_answers_health_and_metrics(broker):
    for path in ("/health/live", "/health/ready", "/actuator/health"):
        assert broker.get(path).status == 200, path
    for path in ("/metrics", "/actuator/prometheus"):
        page = broker.get(path)
        assert page.status == 200 and "# TYPE sluice_" in page.text, path
    assert broker.get("/nothing-here").status == 404


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_arrives_once_and_unchanged(broker, version, qos):
    with broker.client("sub", version) as subscriber, broker.client("pub", version) as publisher:
        assert subscriber.subscribe("a/+/c", qos).codes == (qos,)
        publisher.publish("a/b/c", b"\0\xff", qos)
        publisher.publish("a/b", b"no", qos)
        got = subscriber.receive()
        assert (got.topic, got.payload, got.qos, got.dup, got.retain) == ("a/b/c", b"\0\xff", qos, False, False)
        assert subscriber.quiet()


def test_what_was_acknowledged_survives_a_crash(broker):
    """Published to an absent persistent session, acknowledged, SIGKILL: all of it comes, in order."""
    with broker.client("keeper", clean=False) as subscriber:
        subscriber.subscribe("keep/#", 1)
        subscriber.send(mqtt_raw.disconnect())
        subscriber.closed()
    with broker.client("pub") as publisher:
        for number in range(200):
            publisher.publish("keep/x", str(number), 1, packet_id=number + 1)
        broker.kill()
    broker.start()
    with broker.raw() as subscriber:
        assert subscriber.connect("keeper", clean=False).session_present
        got = []
        while len(set(got)) < 200:
            got.append(int(subscriber.receive().payload))
    assert list(dict.fromkeys(got)) == list(range(200))


def test_a_second_connection_takes_the_session_over(broker):
    with broker.client("same", 5) as first, broker.client("same", 5):
        packets = first.closed()
        assert [(pkt.kind, pkt.reason) for pkt in packets] == [(mqtt_raw.DISCONNECT, 0x8E)]


def test_a_malformed_packet_ends_its_connection_only(broker):
    with broker.client("good") as good, broker.client("bad", 5) as bad:
        bad.send(mqtt_raw.packet(mqtt_raw.PUBLISH, 6, mqtt_raw.text("t") + b"\0\1\0"))  # QoS 3
        packets = bad.closed()
        assert [pkt.kind for pkt in packets] == [mqtt_raw.DISCONNECT] and packets[0].reason >= 0x80
        good.send(mqtt_raw.pingreq())
        good.expect(mqtt_raw.PINGRESP)


def writer(**more):
    return {"enabled": True, "mongo-sink": [{"topic": "sensors/#", "database": "iot", "collection": "events"}], **more}


def test_gateway_streams_remembers_and_stores(broker, make_gateway):
    gateway = make_gateway(broker, gateway_config(mqtt_mongo_writer=writer())).start()
    wait_until(lambda: gateway.health().status == 200, what="/health/mqtt")
    with gateway.stream("sensors/#") as stream, broker.client("pub") as publisher:
        assert stream.status == 200
        publisher.publish("sensors/a", "21.5", 1)
        seen = stream.until(lambda event: event.data == "21.5")
        assert [event.event for event in seen] == ["mqtt-message"]
    latest = gateway.latest("sensors/a").json()
    assert (latest["topic"], latest["payload"], latest["payloadEncoding"]) == ("sensors/a", "21.5", "text")
    rows = wait_until(lambda: gateway.documents("events"), what="the document")
    assert [row["topic"] for row in rows] == ["sensors/a"]
    assert json.loads(rows[0]["doc"])["payload"] == "21.5"


def test_gateway_asks_for_login_and_right(broker, make_gateway):
    gateway = make_gateway(broker).start()
    for path in ("/mqtt?topic=sensors/a", "/mqtt-sse?topic=sensors/a", "/mqtt/stats", "/metrics"):
        assert gateway.get(path, user=None).status == 401, path
        assert gateway.get(path, user=("admin", "wrong")).status == 401, path
    assert gateway.latest("traffic/#").status == 403
    assert gateway.stream("traffic/#").status == 403
    assert gateway.latest("sensors/never").status == 404
    assert gateway.get("/ping", user=None).status == 200


def test_gateway_crash_loses_nothing(broker, make_gateway):
    """QoS 1 messages before, during and after a SIGKILL of the gateway: each is stored exactly once."""
    config = gateway_config(mqtt_mongo_writer=writer(**{"id-strategy": "payload-field", "id-field": "id"}))
    gateway = make_gateway(broker, config).start()
    wait_until(lambda: gateway.health().status == 200, what="/health/mqtt")
    with broker.client("pub") as publisher:
        for number in range(300):
            if number == 100:
                gateway.kill()
            if number == 200:
                gateway.start()
            publisher.publish(f"sensors/{number % 7}", json.dumps({"id": f"m{number}"}), 1, packet_id=number + 1)
    wait_until(lambda: len(gateway.documents("events")) >= 300, what="300 documents")
    assert sorted(row["id"] for row in gateway.documents("events")) == sorted(f"m{n}" for n in range(300))
