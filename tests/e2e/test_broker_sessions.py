# SPDX-License-Identifier: Apache-2.0
"""Sessions: kept and ended, taken over, redelivered; the handshakes of QoS 2 in both directions, over reconnects and
over SIGKILL."""
import random
import threading
import time

import pytest

import mqtt_raw
from broker_kit import alive, drain, fresh, publish_many, refused, shared  # noqa: F401
from process import wait_until


def leave(client):
    client.send(mqtt_raw.disconnect())
    assert client.closed() == []


def keeping(version, seconds=3600):
    """How a client asks for a session that outlives its connection."""
    return {"clean": False, "props": {"session_expiry": seconds}} if version == 5 else {"clean": False}


@pytest.mark.quick
@pytest.mark.parametrize("version", [4, 5])
def test_session_present_tells_what_is_kept(shared, version):
    name, topic = fresh(), fresh("t")
    with shared.raw(version) as client:
        assert not client.connect(name, **keeping(version)).session_present
        client.subscribe(topic, 1)
        leave(client)
    with shared.client(fresh(), version) as publisher:
        publisher.publish(topic, b"kept", 1)
    with shared.raw(version) as client:
        assert client.connect(name, **keeping(version)).session_present
        got = client.receive()
        assert (got.payload, got.dup) == (b"kept", False)  # never sent before
        leave(client)
    with shared.client(fresh(), version) as publisher:
        publisher.publish(topic, b"to be cleared", 1)
    with shared.raw(version) as client:  # clean start empties inbox and subscriptions
        rest = {"props": {"session_expiry": 3600}} if version == 5 else {}
        assert not client.connect(name, clean=True, **rest).session_present
        assert client.quiet()
        with shared.client(fresh(), version) as publisher:
            publisher.publish(topic, b"not for it", 1)
        assert client.quiet()
        leave(client)
    with shared.raw(version) as client:
        assert client.connect(name, **keeping(version)).session_present == (version == 5)


def test_c20_a_version_5_session_without_expiry_ends_with_its_connection(shared):
    name, topic = fresh(), fresh("t")
    with shared.raw(5) as client:
        assert not client.connect(name, clean=False).session_present
        client.subscribe(topic, 1)
        leave(client)
    with shared.client(fresh()) as publisher:
        publisher.publish(topic, b"x", 1)
    with shared.raw(5) as client:
        assert not client.connect(name, clean=False).session_present
        assert client.quiet()


def test_what_is_stored_comes_also_when_the_session_is_to_end_with_this_connection(shared):
    name, topic = fresh(), fresh("t")
    with shared.client(name, 5, props={"session_expiry": 600}) as client:
        client.subscribe(topic, 2)
        leave(client)
    with shared.client(fresh()) as publisher:
        for qos in (0, 1, 2):
            publisher.publish(topic, f"qos {qos}", qos)
    with shared.raw(5) as client:
        assert client.connect(name, clean=False).session_present  # no expiry interval: 0
        assert [pkt.payload for pkt in drain(client, 2)] == [b"qos 1", b"qos 2"]
        leave(client)
    with shared.raw(5) as client:
        assert not client.connect(name, clean=False, props={"session_expiry": 600}).session_present


def test_c21_an_expired_session_is_gone_at_the_next_connect(shared):
    name, topic = fresh(), fresh("t")
    with shared.client(name, 5, props={"session_expiry": 1}) as client:
        client.subscribe(topic, 1)
        leave(client)
    with shared.client(fresh()) as publisher:
        publisher.publish(topic, b"x", 1)
    time.sleep(1.5)  # the interval itself
    with shared.raw(5) as client:
        assert not client.connect(name, clean=False, props={"session_expiry": 1}).session_present
        assert client.quiet()


def test_c17_the_disconnect_may_change_the_expiry(shared):
    name = fresh()
    with shared.client(name, 5) as client:  # from 0 it may not be raised
        client.send(mqtt_raw.disconnect(5, 0, {"session_expiry": 100}))
        assert refused(client, 0x82) == []
    with shared.client(name, 5, props={"session_expiry": 300}) as client:
        client.send(mqtt_raw.disconnect(5, 0, {"session_expiry": 0}))
        client.closed()
    with shared.raw(5) as client:
        assert not client.connect(name, clean=False, props={"session_expiry": 300}).session_present
        client.send(mqtt_raw.disconnect(5, 0, {"session_expiry": 600}))
        client.closed()
    with shared.raw(5) as client:
        assert client.connect(name, clean=False).session_present


def test_the_end_of_a_session_comes_before_the_next_connect(shared):
    """Over and over: both may go through different I/O loops, and the end must not be overtaken."""
    name = fresh()
    for number in range(100):
        with shared.raw(5) as client:
            assert not client.connect(name, clean=False, props={"session_expiry": 60}).session_present, number
            client.send(mqtt_raw.disconnect(5, 0, {"session_expiry": 0}))
            client.closed()


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_unanswered_messages_come_again_with_dup_and_their_id(shared, version, qos):
    name, topic = fresh(), fresh("t")
    with shared.client(name, version, **keeping(version)) as client:
        client.subscribe(topic, qos)
        with shared.client(fresh(), version) as publisher:
            publish_many(publisher, topic, [str(n) for n in range(10)], qos)
        first = [client.expect(mqtt_raw.PUBLISH) for _ in range(10)]
        assert not any(pkt.dup for pkt in first)
        done = {first[3].packet_id, first[7].packet_id}
        for packet_id in done:  # in any order, and not all
            if qos == 1:
                client.send(mqtt_raw.puback(packet_id))
            else:
                client.send(mqtt_raw.pubrec(packet_id))
                client.expect(mqtt_raw.PUBREL, packet_id=packet_id)
                client.send(mqtt_raw.pubcomp(packet_id))
        alive(client)
        client.reset()
    with shared.raw(version) as client:
        assert client.connect(name, **keeping(version)).session_present
        again = [client.expect(mqtt_raw.PUBLISH) for _ in range(8)]
        assert [(pkt.packet_id, pkt.payload) for pkt in again] == \
            [(pkt.packet_id, pkt.payload) for pkt in first if pkt.packet_id not in done]
        assert all(pkt.dup for pkt in again)
        assert client.quiet()


@pytest.mark.parametrize("version", [4, 5])
def test_c24_a_repeated_qos_2_message_is_delivered_once(shared, version):
    name, topic = fresh(), fresh("t")
    with shared.client(fresh(), version) as seen:
        seen.subscribe(topic, 2)
        for part in range(2):
            with shared.raw(version) as client:
                assert client.connect(name, **keeping(version)).session_present == (part == 1)
                for time_ in range(2):
                    client.send(mqtt_raw.publish(topic, b"once", 2, 7, dup=bool(part or time_), version=version))
                    client.expect(mqtt_raw.PUBREC, packet_id=7, reason=0)
                if part == 0:
                    client.reset()
                    continue
                for count in range(3):
                    client.send(mqtt_raw.pubrel(7))
                    assert client.expect(mqtt_raw.PUBCOMP, packet_id=7).reason == (0x92 if count and version == 5 else 0)
                client.send(mqtt_raw.pubrel(4711))
                assert client.expect(mqtt_raw.PUBCOMP, packet_id=4711).reason == (0x92 if version == 5 else 0)
                client.send(mqtt_raw.publish(topic, b"twice", 2, 7, version=version))  # the id is free again
                client.expect(mqtt_raw.PUBREC, packet_id=7)
        assert [pkt.payload for pkt in drain(seen, 2, distinct=False)] == [b"once", b"twice"]
        with pytest.raises(TimeoutError):  # no third: only what ends the handshakes
            while True:
                assert seen.recv(0.3).kind == mqtt_raw.PUBREL


def test_a_refused_or_unknown_answer_of_a_subscriber(shared):
    topic = fresh("t")
    with shared.client(fresh(), 5, props={"receive_maximum": 1}) as client, shared.client(fresh()) as publisher:
        client.subscribe(topic, 2)
        client.send(mqtt_raw.pubrec(99))  # of no message: the id is unknown
        assert client.expect(mqtt_raw.PUBREL, packet_id=99).reason == 0x92
        client.send(mqtt_raw.pubrec(99, version=5, reason=0x80))  # a refusal ends the exchange
        client.send(mqtt_raw.puback(98), mqtt_raw.pubcomp(97))
        assert alive(client) == []
        for payload in (b"refused", b"next"):
            publisher.publish(topic, payload, 2)
        got = client.expect(mqtt_raw.PUBLISH)
        client.send(mqtt_raw.pubrec(got.packet_id, version=5, reason=0x87))
        assert client.receive().payload == b"next"  # the slot is free


@pytest.mark.parametrize("crash", [False, True], ids=["reconnect", "sigkill"])
@pytest.mark.parametrize("version", [4, 5])
def test_interrupted_qos_2_handshakes_go_on(make_broker, version, crash):
    """Both directions, each broken off at each step; exactly one copy of everything at the end."""
    broker = make_broker().start()
    topic = fresh("t")

    def interrupt(client):
        if crash:
            broker.kill()
            broker.start()
        client.close()

    def back(name):
        client = broker.raw(version)
        assert client.connect(name, **keeping(version)).session_present
        return client

    seen = broker.client("seen", version, **keeping(version))
    seen.subscribe(topic, 2)
    sender = broker.client("sender", version, **keeping(version))
    sender.send(mqtt_raw.publish(topic, b"a", 2, 1, version=version))
    sender.expect(mqtt_raw.PUBREC, packet_id=1)
    got = seen.expect(mqtt_raw.PUBLISH)  # and no PUBREC
    interrupt(sender)
    seen.close()
    sender, seen = back("sender"), back("seen")
    sender.send(mqtt_raw.publish(topic, b"a", 2, 1, dup=True, version=version))
    sender.expect(mqtt_raw.PUBREC, packet_id=1)
    again = seen.expect(mqtt_raw.PUBLISH)
    assert (again.packet_id, again.payload, again.dup) == (got.packet_id, b"a", True)
    seen.send(mqtt_raw.pubrec(again.packet_id))
    seen.expect(mqtt_raw.PUBREL, packet_id=got.packet_id)  # and no PUBCOMP
    sender.send(mqtt_raw.pubrel(1))
    sender.expect(mqtt_raw.PUBCOMP, packet_id=1, reason=0)
    interrupt(sender)
    seen.close()
    sender, seen = back("sender"), back("seen")
    sender.send(mqtt_raw.pubrel(1))  # the PUBCOMP was lost, as far as it knows
    sender.expect(mqtt_raw.PUBCOMP, packet_id=1)
    seen.expect(mqtt_raw.PUBREL, packet_id=got.packet_id)  # not PUBLISH: that was taken
    seen.send(mqtt_raw.pubcomp(got.packet_id))
    assert seen.quiet()
    sender.send(mqtt_raw.publish(topic, b"b", 2, 1, version=version))
    sender.expect(mqtt_raw.PUBREC, packet_id=1)
    assert seen.receive().payload == b"b"
    assert seen.quiet()
    sender.close()
    seen.close()


@pytest.mark.quick
def test_c19_what_came_before_and_after_a_crash_is_kept_in_order(make_broker):
    broker = make_broker().start()
    with broker.client("device", clean=False) as client:
        client.subscribe("d/#", 1)
        leave(client)
    for number in range(2):  # twice in a row
        with broker.client("pub") as publisher:
            publish_many(publisher, "d/x", [f"{number} before {n}" for n in range(100)])
            broker.kill()
        broker.start()
        with broker.client("pub") as publisher:
            publish_many(publisher, "d/x", [f"{number} after {n}" for n in range(100)])
        with broker.raw() as client:
            assert client.connect("device", clean=False).session_present
            got = [pkt.payload.decode() for pkt in drain(client, 200)]
            wanted = [f"{number} {part} {n}" for part in ("before", "after") for n in range(100)]
            assert got == wanted
            assert alive(client) == []
            leave(client)


def test_acknowledged_subscriptions_survive_crashes(make_broker):
    """Subscribed and unsubscribed with SIGKILL right behind the last answer; what is delivered tells what is kept."""
    broker = make_broker().start()
    rng = random.Random(7)
    wanted = set()
    topics = [f"f/{n}" for n in range(60)]
    for part in range(4):
        with broker.raw(5) as client:
            present = client.connect("keeper", clean=False, props={"session_expiry": 3600}).session_present
            assert present == bool(part)
            for packet_id in range(1, 40):
                topic = rng.choice(topics)
                if rng.random() < 0.6:
                    client.subscribe(topic, 1, packet_id)
                    wanted.add(topic)
                else:
                    client.send(mqtt_raw.unsubscribe(packet_id, [topic], 5))
                    client.expect(mqtt_raw.UNSUBACK)
                    wanted.discard(topic)
            broker.kill()
        broker.start()
        assert broker.metric("sluice_subscriptions") == len(wanted)
    with broker.client("pub") as publisher, broker.raw(5) as client:
        assert client.connect("keeper", clean=False, props={"session_expiry": 3600}).session_present
        for topic in topics:
            publisher.publish(topic, topic, 1)
        assert {pkt.topic for pkt in drain(client, len(wanted))} == wanted
        assert client.quiet()


def test_c21_a_session_expires_in_spite_of_a_restart(make_broker):
    broker = make_broker().start()
    for name, expiry in (("short", 3), ("long", 600)):
        with broker.client(name, 5, props={"session_expiry": expiry}) as client:
            client.subscribe("t", 1)
            client.send(mqtt_raw.disconnect())
            client.closed()
    left = time.monotonic()
    broker.kill()
    broker.start()
    time.sleep(max(0.0, 3.2 - (time.monotonic() - left)))  # the interval itself
    for name, expiry in (("short", 3), ("long", 600)):
        with broker.raw(5) as client:
            present = client.connect(name, clean=False, props={"session_expiry": expiry}).session_present
            assert present == (name == "long")


def test_c21_expired_sessions_go_without_being_asked(make_broker):
    broker = make_broker().start()
    with broker.client("short", 5, props={"session_expiry": 1}) as client:
        client.subscribe("t/#", 1)
        client.send(mqtt_raw.disconnect())
        client.closed()
    assert broker.metric("sluice_subscriptions") == 1
    wait_until(lambda: broker.metric("sluice_sessions") == 0 and broker.metric("sluice_subscriptions") == 0, 25,
               "the end of the session")
    broker.kill()
    broker.start()
    assert broker.metric("sluice_sessions") == 0 and broker.metric("sluice_subscriptions") == 0


@pytest.mark.parametrize("kept", [True, False], ids=["persistent", "clean"])
def test_takeovers_under_load(make_broker, kept):
    """One client id connects 50 times over its own connection while QoS 1 messages flow: each old connection gets
    0x8E, and a persistent session misses nothing."""
    broker = make_broker().start()
    topic, total = "load/t", 2000
    stop = threading.Event()
    sent = []

    def load():
        with broker.client("load") as publisher:
            while len(sent) < total and not stop.is_set():
                batch = [str(len(sent) + n) for n in range(20)]
                publish_many(publisher, topic, batch)
                sent.extend(batch)

    rest = {"clean": False, "props": {"session_expiry": 600}} if kept else {}
    old = broker.client("same", 5, **rest)
    old.subscribe(topic, 1)
    thread = threading.Thread(target=load)
    thread.start()
    got = []

    def take(client, until):
        """Takes what has come; returns the reason of the DISCONNECT, if there was one."""
        while True:
            try:
                pkt = client.recv(until)
            except (TimeoutError, mqtt_raw.Closed):
                return None
            if pkt.kind == mqtt_raw.DISCONNECT:
                return pkt.reason
            if pkt.kind == mqtt_raw.PUBLISH:
                got.append(int(pkt.payload))
                try:
                    client.send(mqtt_raw.puback(pkt.packet_id))
                except OSError:
                    pass

    try:
        for _ in range(50):
            take(old, 0.01)
            new = broker.client("same", 5, **rest)
            if not kept:
                new.subscribe(topic, 1)
            assert take(old, 5) == 0x8E
            old.close()
            old = new
        thread.join(60)
        assert len(sent) == total
        if kept:
            end = time.monotonic() + 60
            while len(set(got)) < total and time.monotonic() < end:
                take(old, 0.5)
            missing = set(range(total)) - set(got)
            assert not missing, f"{len(missing)} lost: {sorted(missing)[:10]}"
        assert broker.metric("sluice_session_takeovers_total") == 50
        wait_until(lambda: broker.metric("sluice_sessions_connected") == 1, what="one session connected")
    finally:
        stop.set()
        thread.join(60)
        old.close()


def test_c18_many_at_once_with_one_client_id(make_broker):
    broker = make_broker().start()
    results = []

    def one(number):
        with broker.raw(5) as client:
            client.send(mqtt_raw.connect("same", 5, clean=False, props={"session_expiry": 60}))
            if number % 2:
                return  # gone right after its CONNECT
            try:
                while True:
                    pkt = client.recv(20)
                    results.append(pkt.reason if pkt.kind == mqtt_raw.DISCONNECT else pkt.name)
            except (mqtt_raw.Closed, TimeoutError) as error:
                results.append(type(error).__name__)

    threads = [threading.Thread(target=one, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    with broker.raw(5) as last:
        last.connect("same", clean=False, props={"session_expiry": 60})
        for thread in threads:
            thread.join(30)
        assert not any(thread.is_alive() for thread in threads)
        assert alive(last) == []
        wait_until(lambda: broker.metric("sluice_sessions_connected") == 1, what="one session connected")
        assert broker.metric("sluice_sessions") == 1
    assert set(results) <= {"CONNACK", 0x8E, "Closed"}, set(results)


def test_assigned_client_ids_differ(shared):
    with shared.raw(5) as one, shared.raw(5) as two:
        ids = {client.connect("").props["assigned_client_id"] for client in (one, two)}
        assert len(ids) == 2 and all(name.isalnum() for name in ids)
        assert alive(one) == []
    with shared.raw(4) as client:
        client.connect("")
        assert alive(client) == []
    with shared.raw(4) as client:
        client.connect("", clean=False, want=2)
        client.closed()
