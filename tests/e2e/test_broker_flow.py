# SPDX-License-Identifier: Apache-2.0
"""How much may be under way: receive maximum both ways, packet sizes, keep-alive, and subscribers that do not keep up.
A slow one costs bounded memory, is counted, and slows nobody else."""
import os
import threading
import time

import pytest

import mqtt_raw
from broker_kit import alive, drain, fresh, publish_many, refused, rss_kb, sanitized, shared  # noqa: F401
from process import wait_until

SETTINGS = {"MQTT_MAX_IN_FLIGHT_MSGS": 20, "TCP_NETTY_MAX_PAYLOAD_SIZE": 65536}


@pytest.mark.quick
@pytest.mark.parametrize("kept", [False, True], ids=["clean", "persistent"])
def test_c33_the_receive_maximum_of_a_client_is_obeyed(shared, kept):
    topic = fresh("t")
    props = {"receive_maximum": 2, **({"session_expiry": 60} if kept else {})}
    with shared.client(fresh(), 5, props=props) as client, shared.client(fresh()) as publisher:
        client.subscribe(topic, 2)
        for number in range(6):
            publisher.publish(topic, str(number), 1 + number % 2)
        first, second = client.expect(mqtt_raw.PUBLISH), client.expect(mqtt_raw.PUBLISH)
        publisher.publish(topic, b"qos 0", 0)
        assert client.expect(mqtt_raw.PUBLISH).payload == b"qos 0"  # it needs no slot
        assert alive(client) == [] and client.quiet()
        client.send(mqtt_raw.puback(first.packet_id))
        third = client.expect(mqtt_raw.PUBLISH)
        client.send(mqtt_raw.pubrec(second.packet_id, version=5, reason=0x87))  # an error frees the slot
        fourth = client.expect(mqtt_raw.PUBLISH)
        client.send(mqtt_raw.pubrec(fourth.packet_id))
        client.expect(mqtt_raw.PUBREL)
        assert client.quiet()  # a handshake half done still holds it
        client.send(mqtt_raw.pubcomp(fourth.packet_id), mqtt_raw.puback(third.packet_id))
        rest = [client.expect(mqtt_raw.PUBLISH), client.expect(mqtt_raw.PUBLISH)]
        assert [pkt.payload for pkt in (first, second, third, fourth, *rest)] == [str(n).encode() for n in range(6)]


def test_c33_a_takeover_brings_its_own_receive_maximum(shared):
    name, topic = fresh(), fresh("t")
    with shared.client(name, 5, props={"session_expiry": 60, "receive_maximum": 2}) as client:
        client.subscribe(topic, 1)
        with shared.client(fresh()) as publisher:
            publish_many(publisher, topic, [str(n) for n in range(20)], window=10)
        assert {client.expect(mqtt_raw.PUBLISH).payload for _ in range(2)} == {b"0", b"1"}
        with shared.client(name, 5, clean=False, props={"session_expiry": 60, "receive_maximum": 5}) as new:
            got = [new.expect(mqtt_raw.PUBLISH) for _ in range(5)]
            assert [(pkt.payload, pkt.dup) for pkt in got] == [(str(n).encode(), n < 2) for n in range(5)]
            assert new.quiet()


@pytest.mark.parametrize("kept", [False, True], ids=["clean", "persistent"])
@pytest.mark.parametrize("version", [4, 5])
def test_c33_our_own_receive_maximum(shared, version, kept):
    props = {"session_expiry": 60} if version == 5 and kept else None
    with shared.raw(version) as client:
        connack = client.connect(fresh(), clean=version == 5 or not kept, **({"props": props} if version == 5 else {}))
        assert version == 4 or connack.props["receive_maximum"] == 20
        for packet_id in range(1, 21):
            client.send(mqtt_raw.publish("t", b"x", 2, packet_id, version=version))
            client.expect(mqtt_raw.PUBREC, packet_id=packet_id)
        client.send(mqtt_raw.publish("t", b"x", 2, 7, dup=True, version=version))  # a repetition is none more
        client.expect(mqtt_raw.PUBREC, packet_id=7)
        client.send(mqtt_raw.pubrel(3))
        client.expect(mqtt_raw.PUBCOMP, packet_id=3)
        client.send(mqtt_raw.publish("t", b"x", 2, 100, version=version))
        client.expect(mqtt_raw.PUBREC, packet_id=100)
        client.send(mqtt_raw.publish("t", b"x", 2, 101, version=version))
        assert refused(client, 0x93) == []


@pytest.mark.parametrize("version", [4, 5])
def test_c32_the_largest_packet(shared, version):
    with shared.raw(version) as client:
        connack = client.connect(fresh())
        limit = connack.props["maximum_packet_size"] if version == 5 else 65536 + 5
        head = len(mqtt_raw.publish("t", b"", 1, 1, version=version)) + 2  # two more bytes of length
        topic = "t"
        client.send(mqtt_raw.publish(topic, b"x" * (limit - head), 1, 1, version=version))
        client.expect(mqtt_raw.PUBACK)
        over = mqtt_raw.publish(topic, b"x" * (limit - head + 1), 1, 2, version=version)
        client.send(over[:10])  # refused from the header
        assert refused(client, 0x95) == []


def test_the_clients_own_largest_packet_is_obeyed(shared):
    topic = fresh("t")
    with shared.client(fresh(), 5, props={"maximum_packet_size": 60}) as small, \
            shared.client(fresh(), 5, props={"maximum_packet_size": 60, "session_expiry": 60}) as kept, \
            shared.client(fresh(), 5) as large, shared.client(fresh()) as publisher:
        for client in (small, kept, large):
            client.subscribe(topic, 1)
        before = shared.metric("sluice_messages_dropped_total")
        publisher.publish(topic, b"x" * 61, 1)
        publisher.publish(topic, b"fits", 1)
        assert large.receive().payload == b"x" * 61
        for client in (small, kept, large):
            assert client.receive().payload == b"fits"
        assert shared.metric("sluice_messages_dropped_total") == before + 2
        small.send(mqtt_raw.subscribe(2, [(f"{topic}/{n}", 0) for n in range(60)], 5))  # whose SUBACK does not fit
        assert refused(small, 0x95) == []
        kept.send(mqtt_raw.subscribe(2, [(f"{topic}/{n}", 1) for n in range(30)], 5))
        assert len(kept.expect(mqtt_raw.SUBACK).codes) == 30
    with shared.raw(5) as client:  # a CONNACK that says only what is new
        connack = client.connect(fresh(), keep_alive=60, props={"maximum_packet_size": 20, "session_expiry": 60})
        assert "session_expiry" not in connack.props and connack.props["retain_available"] == 0
        assert alive(client) == []
    with shared.raw(5) as client:  # not even that
        client.send(mqtt_raw.connect(fresh(), 5, props={"maximum_packet_size": 10}))
        assert client.closed() == []


@pytest.mark.parametrize("version", [4, 5])
def test_c47_keep_alive(shared, version):
    with shared.client(fresh(), version, keep_alive=2) as silent, shared.client(fresh(), version, keep_alive=2) as drip, \
            shared.client(fresh(), version, keep_alive=1) as pinging, shared.client(fresh(), version) as never, \
            shared.client(fresh(), version, keep_alive=2) as listening:
        listening.subscribe("ka")
        began = time.monotonic()
        ended = {}
        left = mqtt_raw.publish("t", b"0123456789012345", version=version)
        while len(ended) < 3 and time.monotonic() - began < 8:
            at = time.monotonic() - began
            if drip not in ended:
                try:
                    drip.send(left[:1])  # a byte of a packet is no packet
                    left = left[1:]
                except OSError:
                    ended[drip] = (at, None)
            pinging.send(mqtt_raw.pingreq())
            never.send(mqtt_raw.publish("ka", b"x", version=version))  # what we send is no sign of life of theirs
            for client in (silent, drip, listening):
                if client in ended:
                    continue
                try:
                    while True:
                        pkt = client.recv(0.05)
                        if pkt.kind == mqtt_raw.DISCONNECT:
                            ended[client] = (time.monotonic() - began, pkt.reason)
                            break
                except TimeoutError:
                    pass
                except mqtt_raw.Closed:
                    ended[client] = (time.monotonic() - began, None)
            time.sleep(0.3)
        assert len(ended) == 3, ended
        for at, reason in ended.values():
            assert 2.0 <= at <= 4.4  # 3 s and a second, and our own steps
            assert reason == (0x8D if version == 5 else None)
        pinging.send(mqtt_raw.pingreq())
        assert all(pkt.kind == mqtt_raw.PINGRESP for pkt in alive(pinging))
        assert alive(never) == []


def test_c47_the_keep_alive_of_the_server(make_broker):
    broker = make_broker({"MQTT_KEEP_ALIVE_MAX_KEEP_ALIVE_SEC": 1}).start()
    for asked in (1, 60):
        with broker.raw(5) as client:
            assert client.connect(f"ka{asked}", keep_alive=asked).props["server_keep_alive"] == 1
            began = time.monotonic()
            assert [pkt.reason for pkt in client.closed(6)] == [0x8D]
            assert time.monotonic() - began < 4
    with broker.client("old", 4, keep_alive=60) as client:  # version 3 cannot be told another one
        time.sleep(2.5)
        assert alive(client) == []


def flood(broker, topic, seconds, size, qos, sent):
    """Publishes for so long; sent gets the number."""
    payload = os.urandom(size)
    end = time.monotonic() + seconds
    with broker.client(fresh("flood")) as publisher:
        while time.monotonic() < end:
            if qos:
                publish_many(publisher, topic, [payload] * 50, qos, window=50)
            else:
                publisher.send(*[mqtt_raw.publish(topic, payload)] * 50)
                alive(publisher)
            sent.append(50)


@pytest.mark.parametrize("size", [3000, 60000])
@pytest.mark.parametrize("qos", [0, 1])
def test_c45_subscribers_that_do_not_read(make_broker, qos, size):
    """50 clients stop reading in the middle of a flood: memory stays bounded, drops are counted, another subscriber
    gets everything at once, and they are cut after the write time-out."""
    broker = make_broker({"SLUICE_WRITE_TIMEOUT_MS": 4000}).start()
    topic = "flood/t"
    stuck = []
    for number in range(50):
        client = broker.raw(4, receive_buffer=4096)
        client.connect(f"stuck{number}")
        client.subscribe(topic, qos)
        stuck.append(client)
    latencies, stop = [], threading.Event()

    def watch():
        with broker.client("good") as good:
            good.subscribe("ping")
            while not stop.is_set():
                began = time.monotonic()
                good.publish("ping", b"p")
                good.expect(mqtt_raw.PUBLISH, 20)
                latencies.append(time.monotonic() - began)
                time.sleep(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    before = rss_kb(broker)
    sent, peak = [], 0
    loader = threading.Thread(target=flood, args=(broker, topic, 4, size, qos, sent))
    loader.start()
    while loader.is_alive():
        peak = max(peak, rss_kb(broker))
        time.sleep(0.1)
    loader.join()
    try:
        assert sum(sent) > 200
        wait_until(lambda: broker.metric("sluice_write_timeouts_total") == 50, 30, "all of them cut")
        assert broker.metric("sluice_messages_dropped_total") > 0
        if not sanitized(broker):  # 50 queues of 1.25 MB, the log's ring, and what is under way
            assert peak - before < 400_000
        wait_until(lambda: broker.metric("sluice_connections") == 1, what="their connections gone")
    finally:
        stop.set()
        thread.join(30)
        for client in stuck:
            client.close()
    assert latencies and sorted(latencies)[len(latencies) * 95 // 100] < 1.0, sorted(latencies)[-5:]


def test_c45_a_persistent_one_that_does_not_read_misses_nothing(make_broker):
    broker = make_broker({"SLUICE_WRITE_TIMEOUT_MS": 1500}).start()
    with broker.raw(4, receive_buffer=4096) as client:
        client.connect("kept", clean=False)
        client.subscribe("t", 1)
        with broker.client("pub") as publisher:
            publish_many(publisher, "t", [f"{n:05} {'x' * 5000}" for n in range(2000)], window=100)
        wait_until(lambda: broker.metric("sluice_write_timeouts_total") == 1, 20, "the cut")
    with broker.client("kept", clean=False) as client:
        got = [int(pkt.payload[:5]) for pkt in drain(client, 2000, 60)]
    assert list(dict.fromkeys(got)) == list(range(2000))
    assert broker.metric("sluice_messages_dropped_total") == 0


def test_c37_an_inbox_that_is_full_drops_the_oldest_and_counts(make_broker):
    broker = make_broker({"MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_LIMIT": 10}).start()
    with broker.client("absent", clean=False) as client:
        client.subscribe("t", 1)
        client.send(mqtt_raw.disconnect())
        client.closed()
    with broker.client("present") as present, broker.client("pub") as publisher:
        present.subscribe("t", 1)
        publish_many(publisher, "t", [str(n) for n in range(15)])
        assert len(drain(present, 15)) == 15
    with broker.client("absent", clean=False) as client:
        assert [pkt.payload for pkt in drain(client, 10)] == [str(n).encode() for n in range(5, 15)]
        assert client.quiet()
    assert broker.metric("sluice_inbox_evicted_rows_total") == 5
