# SPDX-License-Identifier: Apache-2.0
"""The main job on real input: a sensor stream, played by clients that are not ours, through broker and gateway
to a browser's event stream, the latest value and a store that keeps every acknowledged reading, crash or not."""
import base64
import collections
import json
import random
import subprocess
import threading
import time

import pytest

import sensor_stream
from process import wait_until
from sluice import gateway_config

FIRST_BY_MOSQUITTO = 300  # readings played one by one with mosquitto_pub
CRASHES = 5


def play_mosquitto(broker, readings):
    for reading in readings:
        content = ["-n"] if not reading.payload else ["-s"]
        command = ["mosquitto_pub", "-p", str(broker.port), "-q", str(reading.qos), "-t", reading.topic, *content]
        subprocess.run(command, input=reading.payload or None, check=True, timeout=30)


class Player:
    """paho_player in the background."""

    def __init__(self, program, broker, readings):
        self.process = subprocess.Popen([program, str(broker.port), "player"], stdin=subprocess.PIPE,
                                        stderr=subprocess.PIPE)
        text = "".join(reading.line() for reading in readings).encode()
        self.errors = b""
        self.thread = threading.Thread(target=self._feed, args=(text,), daemon=True)
        self.thread.start()

    def _feed(self, text):
        _, self.errors = self.process.communicate(text)

    def wait(self, timeout=120):
        self.thread.join(timeout)
        assert not self.thread.is_alive(), "the player does not come to an end"
        assert self.process.returncode == 0, self.errors.decode()


def payload_of(document):
    payload = document["payload"]
    if isinstance(payload, str):
        return payload.encode()
    return base64.b64decode(payload["$binary"]["base64"]) if isinstance(payload, dict) else bytes(payload)


def check_kept(readings, documents, dead=()):
    """Every reading with QoS 1 or 2 is in the store or dead-lettered; in the store, JSON ones exactly once."""
    by_id = collections.Counter(str(doc["_id"]) for doc in documents if payload_of(doc)[:1] == b"{")
    wanted = {reading.id for reading in readings if reading.id and reading.qos > 0}
    missing = sorted(wanted - set(by_id) - {str(doc["_id"]) for doc in dead})
    assert not missing, f"{len(missing)} of {len(wanted)} acknowledged readings are not stored: {missing[:10]}"
    doubled = [key for key, count in by_id.items() if count > 1]
    assert not doubled, f"stored more than once: {doubled[:10]}"
    foreign = set(by_id) - {reading.id for reading in readings if reading.id}
    assert not foreign, f"stored and never published: {sorted(foreign)[:10]}"
    kept = collections.Counter((doc["topic"], payload_of(doc)) for doc in [*documents, *dead])
    rest = collections.Counter((r.topic, r.payload) for r in readings if not r.id and r.qos > 0)
    for (topic, payload), count in rest.items():
        assert kept[topic, payload] >= count, f"{topic}: {count} of {payload[:20]!r} published, {kept[topic, payload]} stored"
    content = {reading.id: (reading.topic, reading.payload) for reading in readings if reading.id}
    for doc in [*documents, *dead]:
        if str(doc["_id"]) in content:
            assert (doc["topic"], payload_of(doc)) == content[str(doc["_id"])]


def check_latest(gateway, readings):
    last = {reading.topic: reading.payload for reading in readings}
    for topic, payload in last.items():
        got = gateway.latest(topic)
        assert got.status == 200, topic
        assert got.json()["payload"].encode() == payload, topic


def writer_config(tmp_path):
    return gateway_config(mqtt_mongo_writer={
        "enabled": True, "id-strategy": "payload-field", "id-field": "messageId",
        "dead-letter-file": str(tmp_path / "dead-letter.log"),
        "mongo-sink": [{"topic": "sensors/#", "database": "iot", "collection": "readings"}]})


def dead_letters(tmp_path):
    path = tmp_path / "dead-letter.log"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def stored(gateway):
    return [json.loads(row["doc"]) for row in gateway.documents("readings")]


def ready(gateway):
    wait_until(lambda: gateway.health().status == 200, 60, "/health/mqtt")


def test_a_plain_run_loses_not_even_qos_0(broker, make_gateway, tool, tmp_path):
    readings = sensor_stream.readings(seed=7, count=2000)
    gateway = make_gateway(broker, writer_config(tmp_path)).start()
    ready(gateway)
    with gateway.stream("sensors/#") as stream:
        play_mosquitto(broker, readings[:100])
        Player(tool("paho_player"), broker, readings[100:]).wait()
        last = readings[-1].payload.decode()
        seen = stream.until(lambda event: event.data == last, 60)
    assert len(seen) > 1000  # live delivery may drop for a reader that is slow; the store may not
    wait_until(lambda: len(gateway.documents("readings")) >= len(readings), 60, "all documents")
    documents = stored(gateway)
    assert len(documents) == len(readings)
    check_kept(readings, documents)
    check_latest(gateway, readings)
    assert dead_letters(tmp_path) == []


@pytest.mark.timeout(600)
def test_what_was_acknowledged_is_kept_over_crashes(broker, make_gateway, tool, tmp_path):
    """Broker and gateway are SIGKILLed five times each, at random moments of the stream."""
    rng = random.Random(time.time_ns())
    readings = sensor_stream.readings(seed=1)
    gateway = make_gateway(broker, writer_config(tmp_path)).start()
    ready(gateway)
    play_mosquitto(broker, readings[:FIRST_BY_MOSQUITTO])
    rest = readings[FIRST_BY_MOSQUITTO:-len(sensor_stream.TOPICS)]
    part = -(-len(rest) // CRASHES)
    for number in range(CRASHES):
        player = Player(tool("paho_player"), broker, rest[number * part:(number + 1) * part])
        for victim in rng.sample([broker, gateway], 2):
            time.sleep(rng.uniform(0.1, 1.0))  # a random moment, not a synchronisation
            victim.kill()
            victim.start()
        player.wait()
    ready(gateway)
    with gateway.stream("sensors/#") as stream:
        Player(tool("paho_player"), broker, readings[-len(sensor_stream.TOPICS):]).wait()
        last = readings[-1].payload.decode()
        stream.until(lambda event: event.data == last, 60)
    wanted = {reading.id for reading in readings if reading.id and reading.qos > 0}
    wait_until(lambda: wanted <= {row["id"] for row in gateway.documents("readings")}, 60, "all documents")
    check_kept(readings, stored(gateway), dead_letters(tmp_path))
    check_latest(gateway, readings)


def mongo_documents(mongo):
    with mongo.client() as client:
        return list(client.iot.readings.find({}))


def outage_frozen(mongo):
    mongo.freeze()
    time.sleep(4)
    mongo.resume()


def outage_stopped(mongo):
    mongo.stop()
    time.sleep(4)
    mongo.start()


def outage_long(mongo):
    mongo.stop()
    time.sleep(25)  # longer than drain.max-unacked-ms, 15 s
    mongo.start()


@pytest.mark.timeout(400)
@pytest.mark.parametrize("outage, short", [(outage_frozen, True), (outage_stopped, True), (outage_long, False)])
def test_mongodb_outage_loses_nothing(broker, make_gateway, tool, tmp_path, mongo, outage, short):
    """Under 10 s nothing is dead-lettered; longer, store and dead letter hold every reading together."""
    readings = sensor_stream.readings(seed=3, count=3000)
    config = writer_config(tmp_path)
    config["mclient"] = {"connection-string": mongo.uri}
    gateway = make_gateway(broker, config).start()
    ready(gateway)
    with gateway.stream("sensors/#") as stream:
        player = Player(tool("paho_player"), broker, readings)
        wait_until(lambda: mongo_documents(mongo), 60, "the first document")
        outage(mongo)
        player.wait(180)
        last = readings[-1].payload.decode()
        stream.until(lambda event: event.data == last, 60)
    wanted = {reading.id for reading in readings if reading.id and reading.qos > 0}

    def kept():
        return {str(doc["_id"]) for doc in mongo_documents(mongo) + dead_letters(tmp_path)}

    wait_until(lambda: wanted <= kept(), 120, "all documents")
    assert not short or dead_letters(tmp_path) == []
    check_kept(readings, mongo_documents(mongo), dead_letters(tmp_path))
    check_latest(gateway, readings)
