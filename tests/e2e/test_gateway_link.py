# SPDX-License-Identifier: Apache-2.0
"""The gateway's connection to the broker: absent, lost, refused, taken over; what is subscribed and acknowledged."""
import json
import time

import pytest

import mqtt_raw
from gateway_peers import Mosquitto, ScriptedBroker
from process import wait_until
from sluice import gateway_config


def sink(topic="sensors/#", **more):
    return {"enabled": True, "mongo-sink": [{"topic": topic, "database": "iot", "collection": "events"}], **more}


def primed(*topics):
    return {"subscriptions": [{"topic": topic, "qos": 1} for topic in topics]}


@pytest.fixture
def scripted():
    broker = ScriptedBroker()
    yield broker
    broker.close()


@pytest.fixture
def make_mosquitto(tmp_path, processes):
    def make(*extra):
        processes.append(Mosquitto(tmp_path / "mosquitto", extra))
        return processes[-1]
    return make


def healthy(gateway, timeout=20.0):
    wait_until(lambda: gateway.health().status == 200, timeout, "/health/mqtt")


@pytest.mark.parametrize("kind", ["sluice", "mosquitto"])
def test_broker_that_comes_later(kind, make_broker, make_mosquitto, make_gateway):
    """Cases C87: HTTP serves, health says so, the connection comes by itself."""
    broker = make_broker() if kind == "sluice" else make_mosquitto()
    gateway = make_gateway(broker, gateway_config(mqtt_router=primed("sensors/#"), mqtt_mongo_writer=sink())).start()
    answer = gateway.health()
    assert answer.status == 503 and answer.json()["connected"] is False
    for path in ("/health/live", "/health/ready", "/ping"):
        assert gateway.get(path, user=None).status == 200, path
    assert gateway.latest("sensors/a").status == 404
    with gateway.stream("sensors/#") as stream:  # opened before there is a broker
        assert stream.status == 200
        gateway.wait_log("MQTT-DOWN")
        broker.start()
        healthy(gateway, 60)
        with broker.client("pub") as publisher:
            publisher.publish("sensors/a", "1", 1)
        stream.until(lambda event: event.data == "1")
    wait_until(lambda: len(gateway.documents("events")) == 1, what="the document")
    # and away again
    broker.kill()
    wait_until(lambda: gateway.health().status == 503, what="503")
    assert gateway.latest("sensors/a").json()["payload"] == "1"


@pytest.mark.parametrize("kind", ["sluice", "mosquitto"])
@pytest.mark.parametrize("link", [{"protocol-version": 3}, {"protocol-version": 5, "clean-session": True},
                                  {"protocol-version": 3, "clean-session": True, "username": "u", "password": "p"}])
def test_every_kind_of_session(kind, link, make_broker, make_mosquitto, make_gateway):
    broker = (make_broker() if kind == "sluice" else make_mosquitto()).start()
    gateway = make_gateway(broker, gateway_config(mqtt_client=link, mqtt_mongo_writer={
        "enabled": True, "mongo-sink": [{"topic": "sensors/#", "database": "iot", "collection": "events", "qos": 2}]}))
    gateway.start()
    healthy(gateway)
    with broker.client("pub") as publisher:
        for number in range(30):
            publisher.publish("sensors/a", str(number), number % 3, packet_id=number + 1)
    wait_until(lambda: len(gateway.documents("events")) == 30, what="30 documents")
    qos = [json.loads(row["doc"])["qos"] for row in gateway.documents("events")]
    assert sorted(qos) == [0] * 10 + [1] * 10 + [2] * 10
    wait_until(lambda: gateway.metrics()["mqtt_inflight_unacked"] == 0, what="all acknowledged")
    assert gateway.metrics()["mqtt_acks_sent"] == 20
    gateway.stop()
    assert (gateway.data / "gateway-filters.state").exists() != link.get("clean-session", False)


def test_retained_values_are_marked_not_new(scripted, make_gateway):
    """Cases C90: the session is lost three times; what comes again is stored with retain, and counted."""
    gateway = make_gateway(scripted, gateway_config(
        mqtt_sse={"payload-envelope": True}, mqtt_mongo_writer=sink())).start()
    for _ in range(3):
        link = scripted.accept()
        link.accept_connect()
        link.suback(link.expect_subscribe(), 1)
        link.publish("sensors/a", "old", 1, 1, retain=True)
        link.expect(mqtt_raw.PUBACK)
        link.close()
    assert [json.loads(row["doc"])["retain"] for row in gateway.documents("events")] == [True] * 3
    assert gateway.metrics()["mqtt_retained_received"] == 3
    assert gateway.latest("sensors/a").json()["retain"] is True


def test_retries_are_slow_and_capped(make_gateway, scripted):
    """An absent broker is asked with a growing pause, not in a storm."""
    gateway = make_gateway(scripted, gateway_config())
    scripted.close()
    gateway.start()
    time.sleep(4)
    assert 3 <= len(gateway.events("MQTT-DOWN")) <= 12  # from 100 ms up to 1 s


def test_health_waits_for_every_suback(scripted, make_gateway):
    gateway = make_gateway(scripted, gateway_config(mqtt_router=primed("a", "b/#"))).start()
    link = scripted.accept()
    link.accept_connect()
    asked = link.expect_subscribe()
    assert sorted(name for name, _ in asked.filters) == ["a", "b/#"]
    wait_until(lambda: gateway.health().json()["connected"], what="connected")
    assert gateway.health().status == 503
    link.suback(asked, 1, 1)
    healthy(gateway)
    # a stream wants one more filter
    with gateway.stream("sensors/x") as stream:
        assert stream.status == 200
        asked = link.expect_subscribe()
        assert [name for name, _ in asked.filters] == ["sensors/x"]
        assert gateway.health().status == 503
        link.suback(asked, 1)
        healthy(gateway)
    asked = link.expect_unsubscribe()
    assert asked.filters == ["sensors/x"]
    link.unsuback(asked)
    link.close()


def test_refused_filter_is_visible(scripted, make_gateway):
    """Cases C86: SUBACK 0x87 for one of two filters; and all filters again when the session is gone."""
    gateway = make_gateway(scripted, gateway_config(mqtt_router=primed("a", "b"))).start()
    link = scripted.accept()
    link.accept_connect()
    asked = link.expect_subscribe()
    link.suback(asked, *[0x87 if name == "a" else 1 for name, _ in asked.filters])
    gateway.wait_log("MQTT-SUBSCRIBE-REFUSED.*filter=a")
    assert gateway.health().status == 503 and "refused" in gateway.health().json()["description"]
    figures = gateway.metrics()
    assert figures["mqtt_subscriptions_refused"] == 1 and figures["mqtt_subscriptions_granted"] == 1
    assert figures["mqtt_router_topic_filters"] == 1
    link.close()
    link = scripted.accept()
    link.accept_connect(session_present=False)
    asked = link.expect_subscribe()
    assert sorted(name for name, _ in asked.filters) == ["a", "b"]
    link.suback(asked, 1, 1)
    healthy(gateway)
    assert gateway.events("MQTT-SESSION-LOST")
    link.close()
    link = scripted.accept()  # with the session there is nothing to subscribe
    link.accept_connect(session_present=True)
    healthy(gateway)
    assert link.quiet()
    link.close()


def test_acknowledgement_waits_for_the_store_and_keeps_order(scripted, make_gateway):
    """Cases C82 with the store fast: PUBACK follows storage; retained and unmatched messages are acknowledged too."""
    gateway = make_gateway(scripted, gateway_config(mqtt_mongo_writer=sink())).start()
    link = scripted.accept()
    link.accept_connect()
    link.suback(link.expect_subscribe(), 1)
    for number in range(1, 51):
        link.publish("sensors/a", f"{number}", 1, number, retain=number == 3)
    for number in range(1, 51):
        assert link.expect(mqtt_raw.PUBACK)[:2] == number.to_bytes(2, "big")
    assert len(gateway.documents("events")) == 50
    link.publish("nobody/wants", "x", 1, 60)
    assert link.expect(mqtt_raw.PUBACK)[:2] == (60).to_bytes(2, "big")
    link.publish("sensors/a", "q2", 2, 61)
    assert link.expect(mqtt_raw.PUBREC)[:2] == (61).to_bytes(2, "big")
    assert len(gateway.documents("events")) == 51
    link.send(mqtt_raw.pubrel(61))
    assert link.expect(mqtt_raw.PUBCOMP)[:2] == (61).to_bytes(2, "big")
    figures = gateway.metrics()
    assert figures["mqtt_router_messages_unmatched"] == 1 and figures["mqtt_retained_received"] == 1
    gateway.process.terminate()
    link.expect(mqtt_raw.DISCONNECT)
    assert gateway.wait_end() == 0
    link.close()


def test_filters_of_an_earlier_configuration_leave(make_mosquitto, make_gateway):
    """Cases C85: x/# y/# becomes y/# z/# over a restart; what was queued for x/# is acknowledged."""
    broker = make_mosquitto().start()
    gateway = make_gateway(broker, gateway_config(
        mqtt_router=primed("x/#"), mqtt_mongo_writer=sink("y/#"))).start()
    healthy(gateway)
    gateway.stop()
    with broker.client("pub") as publisher:
        publisher.publish("x/1", "old", 1)
        publisher.publish("y/1", "kept", 1, packet_id=2)
    gateway.config["mqtt-router"] = {"enabled": True, **primed("z/#")}
    gateway.write_config()
    gateway.start()
    healthy(gateway)
    gateway.wait_log("MQTT-UNSUBSCRIBE.*filter=x/#")
    assert len(gateway.events("MQTT-UNSUBSCRIBE")) == 1
    wait_until(lambda: [row["topic"] for row in gateway.documents("events")] == ["y/1"], what="the document of y/1")
    wait_until(lambda: gateway.metrics()["mqtt_inflight_unacked"] == 0, what="all acknowledged")
    assert gateway.metrics()["mqtt_router_messages_unmatched"] == 1
    with broker.client("pub") as publisher:
        publisher.publish("x/2", "gone", 1)
        publisher.publish("z/2", "new", 1, packet_id=2)
    wait_until(lambda: gateway.metrics()["mqtt_router_messages_received"] == 3, what="z/2")
    assert gateway.metrics()["mqtt_router_messages_unmatched"] == 1


def test_overlapping_filters_give_one_copy(make_mosquitto, make_gateway):
    """Cases C89 and G25: sink on sensors/#, streams inside it: one event each, one document, received + 1."""
    broker = make_mosquitto().start()
    gateway = make_gateway(broker, gateway_config(mqtt_mongo_writer=sink())).start()
    healthy(gateway)
    with gateway.stream("sensors/+") as one, gateway.stream("sensors/t") as two, broker.client("pub") as publisher:
        wait_until(lambda: gateway.metrics()["mqtt_router_listeners"] == 3, what="three listeners")
        assert gateway.metrics()["mqtt_subscriptions_wanted"] == 1
        publisher.publish("sensors/t", "only", 1)
        assert one.next().data == two.next().data == "only"
        wait_until(lambda: len(gateway.documents("events")) == 1, what="the document")
        assert gateway.metrics()["mqtt_router_messages_received"] == 1
        assert one.events.empty() and two.events.empty()


def test_poison_does_not_fill_the_window(make_mosquitto, make_gateway):
    """Cases C84: window of 20, 400 messages whose identifier belongs to another topic, a good one each 50."""
    broker = make_mosquitto().start()
    config = gateway_config(
        mqtt_client={"receive-maximum": 20},
        mqtt_mongo_writer=sink(**{"id-strategy": "payload-field", "id-field": "id"}))
    gateway = make_gateway(broker, config).start()
    healthy(gateway)
    with broker.client("pub") as publisher:
        publisher.publish("sensors/owner", json.dumps({"id": "taken"}), 1)
        wait_until(lambda: len(gateway.documents("events")) == 1, what="the first document")
        for number in range(400):
            good = number % 50 == 49
            body = {"id": f"good{number}" if good else "taken", "n": number}
            publisher.publish("sensors/other", json.dumps(body), 1, packet_id=number + 1)
    wait_until(lambda: len(gateway.documents("events")) == 9, 60, "the good documents")
    wait_until(lambda: gateway.metrics()["mqtt_inflight_unacked"] == 0, 60, "all acknowledged")
    owner = [row for row in gateway.documents("events") if row["id"] == "taken"]
    assert [row["topic"] for row in owner] == ["sensors/owner"]
    letters = [json.loads(line) for line in (gateway.folder / "mqtt-dead-letter.log").read_text().splitlines()]
    assert letters and {letter["_deadLetter"]["reason"] for letter in letters} == {"id-conflict"}
    figures = gateway.metrics()
    assert figures["mqtt_dead_letter_written"] == len(letters) and figures["mqtt_buffer_dropped"] == 0


@pytest.mark.parametrize("kind", ["sluice", "mosquitto"])
def test_two_gateways_with_one_client_id(kind, make_broker, make_mosquitto, make_gateway):
    """Cases C88: no storm of takeovers; one clear line. Mosquitto 2.0.11 does not tell the reason: it is guessed."""
    broker = (make_broker() if kind == "sluice" else make_mosquitto()).start()
    config = gateway_config(mqtt_router=primed("sensors/#"))
    pair = [make_gateway(broker, config, name=name).start() for name in ("first", "second")]
    wait_until(lambda: any(gateway.events("MQTT-TAKEN-OVER") for gateway in pair), 30, "the line of a takeover")
    loser = next(gateway for gateway in pair if gateway.events("MQTT-TAKEN-OVER"))
    winner = next(gateway for gateway in pair if gateway is not loser)
    sign = "reason 0x8E" if kind == "sluice" else "short connections"
    assert sign in loser.events("MQTT-TAKEN-OVER")[0] and "core/name" in loser.events("MQTT-TAKEN-OVER")[0]
    wait_until(lambda: winner.health().status == 200, what="the health of the winner")
    assert loser.health().status == 503 and loser.metrics()["mqtt_connection_takeovers"] == 1
    connected = len(winner.events("MQTT-CONNECTED")), len(loser.events("MQTT-CONNECTED"))
    assert max(connected) <= (1 if kind == "sluice" else 4)
    time.sleep(5)
    assert (len(winner.events("MQTT-CONNECTED")), len(loser.events("MQTT-CONNECTED"))) == connected


def test_old_protocol_guesses_the_takeover(scripted, make_gateway):
    """3.1.1 has no reason: several young connections that the broker ended."""
    gateway = make_gateway(scripted, gateway_config(mqtt_client={"protocol-version": 3})).start()
    for _ in range(3):
        link = scripted.accept()
        link.expect(mqtt_raw.CONNECT)
        link.send(mqtt_raw.packet(mqtt_raw.CONNACK, 0, b"\0\0"))
        wait_until(lambda: gateway.health().json()["connected"], what="connected")
        link.close()
        wait_until(lambda: not gateway.health().json()["connected"], what="disconnected")
    gateway.wait_log("MQTT-TAKEN-OVER.*short connections")


def test_configuration_that_cannot_be_run(make_gateway, scripted):
    """Cases C107: an error that names the key, status 1, nothing started."""
    for blocks, words in [
        (dict(mqtt_sse={"pipeline": [{"topic": "a", "stages": []}]}), "mqtt-sse/pipeline"),
        (dict(mqtt_client={"broker-url": "wss://h"}), "broker-url"),
        (dict(mqtt_mongo_writer=sink(**{"id-strategy": "hash"})), "id-strategy"),
        (dict(mqtt_mongo_writer={"enabled": True, "mongo-sink": [{"topic": "a", "database": "x.y", "collection": "c"}]}),
         "mongo-sink"),
        (dict(fileAclAuthorizer={"permissions": [{"role": "a", "predicate": "path-prefix("}]}), "fileAclAuthorizer"),
    ]:
        gateway = make_gateway(scripted, gateway_config(**blocks))
        if "broker-url" in words:
            gateway.config["mqtt-client"]["broker-url"] = "wss://h"
            gateway.write_config()
        gateway.expected_failure = True
        gateway.start(ready=None)
        assert gateway.wait_end() == 1
        assert words in gateway.log(), gateway.log()


def test_diagnosis_at_start(make_gateway, scripted):
    """Traps are named in the log: keys of MQTT 5 under 3, no sink, nothing primes the cache, empty ACL, typo."""
    gateway = make_gateway(scripted, gateway_config(
        core={"name": "default"}, mqtt_client={"protocol-version": 3, "receive-maximum": 5, "keepalive-seconds": 3},
        mqtt_mongo_writer={"enabled": True}, mqtt_topic_authorizer={"acl": {"admin": None}})).start()
    log = gateway.log()
    for words in ("key=mqtt-client/receive-maximum", "key=mqtt-mongo-writer/mongo-sink", "key=mqtt-router/subscriptions",
                  "key=mqtt-topic-authorizer/acl", "key=core/name", "key=mqtt-client/keepalive-seconds",
                  "nearest=mqtt-client/keep-alive-seconds", "inactive=mqtt-mongo-writer"):
        assert words in log, (words, log)
