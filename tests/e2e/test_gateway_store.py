# SPDX-License-Identifier: Apache-2.0
"""The gateway's durable path against other people's brokers and stores: what it acknowledges is stored or
dead-lettered, whatever happens to the store, to the dead letter and to the gateway itself."""
import collections
import json
import subprocess
import time

import pytest

import mqtt_raw
import sensor_stream
from gateway_peers import Mosquitto, ScriptedBroker
from process import wait_until
from sluice import BIN, gateway_config
from test_real_input import Player, check_kept

SINK = {"topic": "sensors/#", "database": "iot", "collection": "readings"}
BROKERS = ["mosquitto", "sluice"]
SHORT_OUTAGE = 8  # seconds; nothing may be dead-lettered below 10


@pytest.fixture
def store_broker(request, tmp_path, processes, make_broker):
    """The broker that request.param names, running."""
    if request.param == "sluice":
        return make_broker().start()
    # The player has 64 messages in flight, and Mosquitto closes connections with more than it allows.
    processes.append(Mosquitto(tmp_path / "mosquitto", ["max_queued_messages 0", "max_inflight_messages 100"]))
    return processes[-1].start()


@pytest.fixture
def mosquitto(tmp_path, processes):
    processes.append(Mosquitto(tmp_path / "mosquitto", ["max_queued_messages 0", "max_inflight_messages 20"]))
    return processes[-1].start()


class Store:
    """A gateway with a writer, and what became of the messages it was given."""

    def __init__(self, make_gateway, broker, folder, mongo=None, drain=None, **more):
        self.dead_path = folder / "dead" / "letter.log"
        self.dead_path.parent.mkdir(exist_ok=True)
        self.mongo = mongo
        writer = {"enabled": True, "id-strategy": "payload-field", "id-field": "messageId",
                  "dead-letter-file": str(self.dead_path), "mongo-sink": [SINK], "drain": drain or {}}
        config = gateway_config(mqtt_mongo_writer=writer, mclient={"connection-string": mongo.uri if mongo else None}, **more)
        self.gateway = make_gateway(broker, config)

    def start(self):
        self.gateway.start()
        wait_until(lambda: self.gateway.health().json()["connected"], 60, "the connection to the broker")
        return self

    def documents(self):
        if not self.mongo:
            return [json.loads(row["doc"]) for row in self.gateway.documents("readings")]
        with self.mongo.client() as client:
            return list(client.iot.readings.find({}))

    def dead(self):
        return [json.loads(line) for line in self.dead_path.read_text().splitlines()] if self.dead_path.exists() else []

    def ids(self):
        return collections.Counter(str(doc["_id"]) for doc in self.documents())

    def metric(self, name):
        return self.gateway.metrics()[name]


def message(number, **more):
    return json.dumps({"messageId": f"m{number}", **more})


def publish(client, numbers, topic="sensors/a", qos=1):
    for number in numbers:
        client.publish(topic, message(number), qos, packet_id=number % 60000 + 1)


@pytest.mark.parametrize("store_broker", BROKERS, indirect=True)
@pytest.mark.parametrize("kind", ["sqlite", "mongodb"])
def test_every_reading_is_stored(request, store_broker, make_gateway, tmp_path, tool, kind):
    mongo = request.getfixturevalue("mongo") if kind == "mongodb" else None
    readings = sensor_stream.readings(seed=11, count=1500)
    store = Store(make_gateway, store_broker, tmp_path, mongo).start()
    wait_until(lambda: store.gateway.health().status == 200, 30, "/health/mqtt")
    Player(tool("paho_player"), store_broker, readings).wait()
    wanted = {reading.id for reading in readings if reading.id and reading.qos > 0}
    wait_until(lambda: wanted <= set(store.ids()), 60, "all documents")
    wait_until(lambda: store.metric("mqtt_buffer_size") == 0, 60, "an empty buffer")
    check_kept(readings, store.documents())
    assert store.dead() == []
    assert store.metric("mqtt_buffer_dropped") == 0


def connect_session(broker, present):
    """The scripted broker's end of a new connection of the gateway, its filters granted."""
    connection = broker.accept(30)
    connection.accept_connect(session_present=present)
    asked = connection.expect_subscribe()
    connection.suback(asked, *[options & 3 for _, options in asked.filters])
    return connection


def deliver_both(connection, dup):
    connection.publish("sensors/a", message(1), 1, 1, dup=dup)
    connection.publish("sensors/a", message(2), 2, 2, dup=dup)


def take_acks(connection):
    """PUBACK and PUBREC in order of receipt, each only after storage."""
    assert connection.expect(mqtt_raw.PUBACK, 30)[:2] == b"\0\1"
    assert connection.expect(mqtt_raw.PUBREC, 30)[:2] == b"\0\2"
    connection.send(mqtt_raw.pubrel(2, version=5))
    connection.expect(mqtt_raw.PUBCOMP)


def test_no_acknowledgement_leaves_before_storage(make_gateway, tmp_path, mongo):
    """C82: store frozen, then the gateway killed: neither PUBACK nor PUBREC; both come again and are stored once."""
    broker = ScriptedBroker()
    store = Store(make_gateway, broker, tmp_path, mongo)
    store.gateway.start()
    connection = connect_session(broker, present=False)
    mongo.freeze()
    deliver_both(connection, dup=False)
    assert connection.quiet(3)
    store.gateway.kill()
    assert connection.recv() is None  # nor in the last moment
    mongo.resume()
    store.gateway.start()
    connection = connect_session(broker, present=True)
    deliver_both(connection, dup=True)
    take_acks(connection)
    assert store.ids() == {"m1": 1, "m2": 1}
    broker.close()


def test_acknowledgement_that_got_lost_doubles_nothing(make_gateway, tmp_path):
    """C82: stored, killed before the broker read the acknowledgement, delivered again."""
    broker = ScriptedBroker()
    store = Store(make_gateway, broker, tmp_path)
    store.gateway.start()
    connection = connect_session(broker, present=False)
    deliver_both(connection, dup=False)
    wait_until(lambda: len(store.ids()) == 2, 20, "both documents")
    store.gateway.kill()
    store.gateway.start()
    connection = connect_session(broker, present=True)
    deliver_both(connection, dup=True)
    take_acks(connection)
    assert store.ids() == {"m1": 1, "m2": 1}
    broker.close()


def test_kill_at_any_moment_loses_nothing(mosquitto, make_gateway, tmp_path, mongo):
    """C82, G10: the gateway is killed while it writes into MongoDB, again and again."""
    store = Store(make_gateway, mosquitto, tmp_path, mongo).start()
    wait_until(lambda: store.gateway.health().status == 200, 30, "/health/mqtt")
    with mosquitto.client("pub") as publisher:
        for number in range(600):
            publish(publisher, [number], qos=number % 2 + 1)
            if number % 150 == 75:
                store.gateway.kill()
                store.gateway.start()
    wait_until(lambda: len(store.ids()) == 600, 60, "all documents")
    assert set(store.ids().values()) == {1}
    assert store.dead() == []


def frozen(mongo, seconds):
    mongo.freeze()
    time.sleep(seconds)  # the length of the outage is what is tested
    mongo.resume()


def stopped(mongo, seconds):
    mongo.stop()
    time.sleep(seconds)
    mongo.start()


@pytest.mark.parametrize("outage", [frozen, stopped])
def test_short_outage_dead_letters_nothing(mosquitto, make_gateway, tmp_path, mongo, outage):
    store = Store(make_gateway, mosquitto, tmp_path, mongo).start()
    wait_until(lambda: store.gateway.health().status == 200, 30, "/health/mqtt")
    with mosquitto.client("pub") as publisher:
        publish(publisher, range(50))
        wait_until(lambda: len(store.ids()) == 50, 30, "the documents before")
        publish(publisher, range(50, 60))
        outage(mongo, SHORT_OUTAGE)
        publish(publisher, range(60, 100))
    wait_until(lambda: len(store.ids()) == 100, 30, "all documents")
    assert set(store.ids().values()) == {1}
    assert store.dead() == []
    assert store.metric("mqtt_dead_letter_written") == 0


def test_long_outage_keeps_everything_in_store_and_dead_letter(mosquitto, make_gateway, tmp_path, mongo):
    """And the dashboards go on: the broker's window of 20 is smaller than what waits (F1)."""
    store = Store(make_gateway, mosquitto, tmp_path, mongo, drain={"max-unacked-ms": 2000},
                  mqtt_client={"protocol-version": 3}).start()
    wait_until(lambda: store.gateway.health().status == 200, 30, "/health/mqtt")
    mongo.stop()
    with store.gateway.stream("sensors/#") as stream, mosquitto.client("pub") as publisher:
        assert stream.status == 200
        publish(publisher, range(100))
        seen = stream.until(lambda event: event.data == message(99), 60)
        assert len(seen) == 100
        assert store.gateway.latest("sensors/a").status == 200
    assert store.gateway.get("/health/db", user=None).status == 503
    mongo.start()
    wait_until(lambda: len(set(store.ids()) | {doc["_id"] for doc in store.dead()}) == 100, 60, "all readings")
    assert all(doc["_deadLetter"]["collection"] == "readings" for doc in store.dead())
    assert len(store.dead()) >= 20  # at least the first window
    wait_until(lambda: store.gateway.get("/health/db", user=None).status == 200, 30, "/health/db")


def test_start_without_a_store_waits_for_it(mosquitto, make_gateway, tmp_path, mongo):
    """C91: down at the start; the gateway serves, holds the messages and stores them."""
    mongo.stop()
    store = Store(make_gateway, mosquitto, tmp_path, mongo).start()
    wait_until(lambda: store.gateway.health().json()["connected"], 30, "the connection")
    with store.gateway.stream("sensors/#") as stream, mosquitto.client("pub") as publisher:
        wait_until(lambda: stream.status == 200, 10, "the stream")
        publish(publisher, range(10))
        stream.until(lambda event: event.data == message(9), 30)
    mongo.start()
    wait_until(lambda: len(store.ids()) == 10, 30, "all documents")
    assert store.dead() == []


def replay(store):
    done = subprocess.run([BIN / "sluice-gateway", "--config", store.gateway.config_path, "--replay-dead-letter"],
                          env=store.gateway.env, cwd=store.gateway.folder, capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_stop_in_an_outage_dead_letters_and_replay_stores(mosquitto, make_gateway, tmp_path, mongo):
    store = Store(make_gateway, mosquitto, tmp_path, mongo, drain={"shutdown-timeout-ms": 1000}).start()
    wait_until(lambda: store.gateway.health().status == 200, 30, "/health/mqtt")
    mongo.stop()
    with mosquitto.client("pub") as publisher:
        publish(publisher, range(15))
    wait_until(lambda: store.metric("mqtt_buffer_size") == 15, 20, "the buffered messages")
    store.gateway.stop()
    assert {doc["_id"] for doc in store.dead()} == {f"m{n}" for n in range(15)}
    assert store.dead_path.stat().st_mode & 0o777 == 0o600
    mongo.start()
    replay(store)
    assert len(store.ids()) == 15
    replay(store)  # idempotent
    assert store.ids() == {f"m{n}": 1 for n in range(15)}
    store.start()
    wait_until(lambda: store.gateway.health().status == 200, 30, "/health/mqtt")
    assert len(store.ids()) == 15  # all were acknowledged


@pytest.mark.parametrize("kind", ["sqlite", "mongodb"])
def test_same_id_on_another_topic_never_overwrites(request, mosquitto, make_gateway, tmp_path, kind):
    """C93, and C84: what the store refuses goes to the dead letter at once and holds nobody."""
    mongo = request.getfixturevalue("mongo") if kind == "mongodb" else None
    store = Store(make_gateway, mosquitto, tmp_path, mongo).start()
    wait_until(lambda: store.gateway.health().status == 200, 30, "/health/mqtt")
    with mosquitto.client("pub") as publisher:
        publisher.publish("sensors/first", message(0, value="mine"), 1)
        wait_until(lambda: store.ids() == {"m0": 1}, 20, "the first document")
        for number in range(1, 501):
            poison = number % 50 != 0
            publisher.publish("sensors/second", message(0 if poison else number, value="theirs"), 1, packet_id=number)
    wait_until(lambda: len(store.ids()) == 11, 20, "the good documents")
    wait_until(lambda: len(store.dead()) == 490, 20, "the dead letters")
    assert {doc["_deadLetter"]["reason"] for doc in store.dead()} == {"id-conflict"}
    kept = next(doc for doc in store.documents() if doc["_id"] == "m0")
    assert (kept["topic"], json.loads(kept["payload"])["value"]) == ("sensors/first", "mine")
    assert store.metric("mqtt_writer_id_conflicts") == 490


def test_unwritable_dead_letter_holds_only_its_messages(mosquitto, make_gateway, tmp_path):
    """C97: no folder for the file: not acknowledged, alarm, other messages go on; heals without a restart."""
    store = Store(make_gateway, mosquitto, tmp_path)
    store.dead_path.parent.rmdir()
    store.start()
    with mosquitto.client("pub") as publisher:
        publisher.publish("sensors/first", message(0), 1)
        wait_until(lambda: store.ids() == {"m0": 1}, 20, "the first document")
        publisher.publish("sensors/second", message(0), 1)
        publish(publisher, range(1, 6))
    wait_until(lambda: len(store.ids()) == 6, 20, "the good documents")
    wait_until(lambda: store.metric("mqtt_dead_letter_write_errors") >= 1, 20, "the counted failure")
    assert store.metric("mqtt_buffer_size") == 1
    assert store.gateway.health().status == 503
    assert store.gateway.events("DEADLETTER-UNWRITABLE")
    store.dead_path.parent.mkdir()
    wait_until(lambda: len(store.dead()) == 1, 20, "the dead letter")
    wait_until(lambda: store.metric("mqtt_buffer_size") == 0, 20, "an empty buffer")
    wait_until(lambda: store.gateway.health().status == 200, 20, "/health/mqtt")


def test_binary_and_properties_arrive_unchanged(mosquitto, make_gateway, tmp_path, mongo):
    """C96"""
    store = Store(make_gateway, mosquitto, tmp_path, mongo).start()
    wait_until(lambda: store.gateway.health().status == 200, 30, "/health/mqtt")
    payloads = [b"\x00\xff\xfe", b"\xe9", b"", b'"\\ud800"', b"a\0b"]
    with mosquitto.client("pub", 5) as publisher:
        for number, payload in enumerate(payloads, 1):
            publisher.publish(f"sensors/{number}", payload, 1, packet_id=number,
                              props={"user": [("k", "1"), ("k", "2")], "content_type": "x/y"})
    wait_until(lambda: len(store.documents()) == len(payloads), 20, "all documents")
    by_topic = {doc["topic"]: doc for doc in store.documents()}
    for number, payload in enumerate(payloads, 1):
        doc = by_topic[f"sensors/{number}"]
        stored = doc["payload"].encode() if isinstance(doc["payload"], str) else bytes(doc["payload"])
        assert stored == payload
        assert isinstance(doc["payload"], str) == (number in (3, 4, 5))
        assert doc["mqtt5"]["userProperties"] == [{"name": "k", "value": "1"}, {"name": "k", "value": "2"}]
        assert doc["mqtt5"]["contentType"] == "x/y"
    assert store.metric("mqtt_writer_id_missing") == len(payloads)
