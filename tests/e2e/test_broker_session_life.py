# SPDX-License-Identifier: Apache-2.0
"""Sessions over their whole life: wills, expiry over restarts, limits, takeover under load, slow readers, many
clients at once after a restart."""
import collections
import os
import pathlib
import socket
import struct
import threading
import time

import pytest

import mqtt_raw
from broker_kit import alive, drain, fresh, publish_many, refused, rss_kb, sanitized, shared  # noqa: F401
from process import wait_until

SETTINGS = {"SLUICE_SESSION_EXPIRY_CHECK_PERIOD": 1}


def keep(seconds, clean=False):
    return {"clean": clean, "props": {"session_expiry": seconds}}


def will(topic, payload=b"gone", qos=1, retain=False, **props):
    return (topic, payload, qos, retain, props)


def watch(broker, topic, qos=1):
    client = broker.client(fresh("watch"), 5)
    client.subscribe(topic, qos)
    return client


def went(seconds, began):
    """The time since `began` is about this many seconds: not before, and soon after."""
    passed = time.monotonic() - began
    assert seconds - 0.3 <= passed <= seconds + 5, passed


# ---- wills ----------------------------------------------------------------------------------------------------


def silence(client):
    time.sleep(3.5)  # longer than 1.5 keep-alives


ENDS = {
    "socket closed": lambda client: client.close(),
    "reset": lambda client: client.reset(),
    "DISCONNECT 0x04": lambda client: client.send(mqtt_raw.disconnect(5, 4)),
    "malformed packet": lambda client: client.send(b"\xf8\x00"),
    "protocol error": lambda client: client.send(mqtt_raw.connect("again", 5)),
    "nothing within the keep-alive": silence,
}


@pytest.mark.parametrize("end", ENDS)
def test_a_will_is_published_when_the_connection_is_lost(shared, end):
    topic = fresh("will")
    with watch(shared, topic) as watcher:
        client = shared.client(fresh(), 5, keep_alive=2, will=will(topic, b"so long", 1, content_type="text/plain",
                                                                   user=[("a", "b"), ("a", "c")], message_expiry=60))
        ENDS[end](client)
        got = watcher.receive()
        assert (got.payload, got.qos, got.retain, got.topic) == (b"so long", 1, False, topic)
        assert got.props["content_type"] == "text/plain" and got.props["user"] == [("a", "b"), ("a", "c")]
        assert 55 <= got.props["message_expiry"] <= 60
        assert "will_delay" not in got.props
        assert watcher.quiet()
        client.close()


@pytest.mark.parametrize("version", [4, 5])
def test_a_will_is_discarded_by_disconnect_even_when_the_socket_closes_at_once(shared, version):
    topic = fresh("will")
    with watch(shared, topic) as watcher:
        for _ in range(20):
            client = shared.client(fresh(), version, will=will(topic))
            client.send(mqtt_raw.disconnect(version, 0 if version == 5 else None))
            client.close()
        assert watcher.quiet(0.5)
    wait_until(lambda: shared.metric("sluice_wills") == 0, what="no will kept")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_will_of_each_qos_comes_behind_what_the_client_published(shared, qos):
    topic = fresh("will")
    with watch(shared, topic, 2) as watcher:
        client = shared.client(fresh(), 4, will=will(topic, b"", qos))
        client.send(*[mqtt_raw.publish(topic, str(n), qos, n + 1) for n in range(50)])
        client.sock.shutdown(socket.SHUT_WR)
        got = drain(watcher, 51)
        client.close()
        assert [pkt.payload for pkt in got] == [str(n).encode() for n in range(50)] + [b""]
        assert got[-1].qos == qos


@pytest.mark.parametrize("version", [4, 5])
def test_a_will_topic_of_the_server_is_refused(shared, version):
    with shared.raw(version) as client:
        pkt = client.connect(fresh(), want=0x90 if version == 5 else 3, will=will("$SYS/x"))
        assert not pkt.session_present
        refused(client)


def test_a_retained_will_is_refused_while_retain_is_not_available(shared):
    with shared.raw(5) as client:
        client.connect(fresh(), want=0x9A, will=will("a", retain=True))
        refused(client)


def test_c13_a_delayed_will_comes_at_once_when_the_session_ends(shared):
    name, topic = fresh(), fresh("will")
    with watch(shared, topic) as watcher:
        old = shared.client(name, 5, clean=False, will=will(topic, will_delay=60))
        old.subscribe("t", 1)
        new = shared.raw(5)
        assert not new.connect(name, clean=False).session_present
        refused(old, 0x8E)
        assert watcher.receive().payload == b"gone"
        new.close()
        cut = shared.client(fresh(), 5, will=will(topic, b"cut", will_delay=60))
        cut.close()  # no session outlives it
        assert watcher.receive().payload == b"cut"
        assert watcher.quiet()


def test_c14_one_will_for_each_lost_connection_of_a_takeover(shared):
    name, topic = fresh(), fresh("will")
    with watch(shared, topic) as watcher:
        old = shared.client(name, 4, will=will(topic, b"0"))
        for number in range(1, 21):
            new = shared.client(name, 4, will=will(topic, str(number)))
            old.closed()
            assert watcher.receive().payload == str(number - 1).encode()
            old = new
        old.send(mqtt_raw.disconnect())
        assert watcher.quiet()


def test_c14_a_takeover_without_delay_publishes_although_the_session_goes_on(shared):
    name, topic = fresh(), fresh("will")
    with watch(shared, topic) as watcher:
        old = shared.client(name, 5, **keep(60), will=will(topic))
        with shared.raw(5) as new:
            assert new.connect(name, **keep(60)).session_present
            refused(old, 0x8E)
            assert watcher.receive().payload == b"gone"


def test_c15_a_delayed_will_and_the_return_of_its_client(shared):
    topic = fresh("will")
    with watch(shared, topic) as watcher:
        # (a) back in time: none
        name = fresh()
        shared.client(name, 5, **{**keep(20), "will": will(topic, b"a", will_delay=2)}).close()
        time.sleep(0.5)
        with shared.raw(5) as back:
            assert back.connect(name, **keep(20)).session_present
            assert watcher.quiet(2.5)
        # (b) a new session: at once
        name = fresh()
        shared.client(name, 5, **{**keep(20), "will": will(topic, b"b", will_delay=10)}).close()
        time.sleep(0.5)
        with shared.raw(5) as back:
            assert not back.connect(name, **keep(20, clean=True)).session_present
            assert watcher.receive(3).payload == b"b"
        # (c) never: after the delay; with a shorter session: at its end
        for expiry, delay, payload in ((20, 2, b"c"), (1, 10, b"d")):
            shared.client(fresh(), 5, **{**keep(expiry), "will": will(topic, payload, will_delay=delay)}).close()
            began = time.monotonic()
            assert watcher.receive().payload == payload
            went(min(expiry, delay), began)
        assert watcher.quiet()


def test_the_expiry_of_a_disconnect_with_will_counts(shared):
    topic = fresh("will")
    with watch(shared, topic) as watcher:
        client = shared.client(fresh(), 5, **{**keep(300), "will": will(topic, will_delay=100)})
        client.send(mqtt_raw.disconnect(5, 4, {"session_expiry": 1}))
        began = time.monotonic()
        assert watcher.receive().payload == b"gone"
        went(1, began)


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_c14_c15_wills_outlive_the_broker(make_broker, end):
    broker = make_broker(SETTINGS).start()
    with broker.raw(5) as watcher:
        watcher.connect("watcher", **keep(600))
        watcher.subscribe("will/#", 1)
    clients = [broker.client("plain", 4, will=will("will/plain")),
               broker.client("kept", 5, **{**keep(600), "will": will("will/kept", qos=2)}),
               broker.client("delayed", 5, **{**keep(600), "will": will("will/delayed", will_delay=4)}),
               broker.client("long", 5, **{**keep(600), "will": will("will/long", will_delay=300)})]
    waiting = broker.client("waiting", 5, **{**keep(600), "will": will("will/waiting", will_delay=3)})
    waiting.close()
    began = time.monotonic()
    wait_until(lambda: broker.metric("sluice_wills_delayed") == 1, what="one will waits")
    broker.stop() if end == "stop" else broker.kill()
    broker.start()
    with broker.raw(5) as watcher:
        assert watcher.connect("watcher", **keep(600)).session_present
        got = collections.Counter(watcher.receive().topic for _ in range(2))
        assert got == {"will/plain": 1, "will/kept": 1}
        assert watcher.receive().topic == "will/waiting"
        went(3, began)
        assert watcher.receive().topic == "will/delayed"
        assert watcher.quiet()
        broker.kill()
        broker.start()
    with broker.raw(5) as watcher:  # none comes twice, and one still waits
        assert watcher.connect("watcher", **keep(600)).session_present
        assert watcher.quiet()
        assert broker.metric("sluice_wills_delayed") == 1
        with broker.raw(5) as back:
            back.connect("long", **keep(600, clean=True))
            assert watcher.receive().topic == "will/long"
    for client in clients:
        client.close()


# ---- expiry and limits -------------------------------------------------------------------------------------------


def test_c20_the_setting_keeps_sessions_as_tbmq_does(make_broker):
    broker = make_broker({"SLUICE_V5_CLEAN_START_0_KEEPS": "true", "MQTT_CLIENT_SESSION_EXPIRY_TTL": 600}).start()
    with broker.raw(5) as client:
        client.connect("c", clean=False)
        client.subscribe("t", 1)
    with broker.client("p") as publisher:
        publisher.publish("t", b"kept", 1)
    with broker.raw(5) as client:
        assert client.connect("c", clean=False).session_present
        assert client.receive().payload == b"kept"
        client.send(mqtt_raw.disconnect(5, 0, {"session_expiry": 100}))  # from 0 it may still not be raised
        refused(client, 0x82)


def test_c20_a_session_that_ends_with_its_connection_has_an_inbox_meanwhile(shared):
    name, topic = fresh(), fresh("t")
    with shared.raw(5) as client:
        client.connect(name, clean=False, props={"receive_maximum": 1})
        client.subscribe(topic, 1)
        with shared.client(fresh()) as publisher:
            publish_many(publisher, topic, [str(n) for n in range(1500)])  # more than a delay queue holds
        assert [pkt.payload for pkt in drain(client, 1500)] == [str(n).encode() for n in range(1500)]
        client.send(mqtt_raw.disconnect(5))
        client.closed()
    with shared.raw(5) as client:
        assert not client.connect(name, clean=False).session_present


def test_c21_expiry_goes_on_over_a_restart(make_broker):
    broker = make_broker({"SLUICE_SESSION_EXPIRY_CHECK_PERIOD": 1,
                          "MQTT_CLIENT_SESSION_EXPIRY_MAX_EXPIRY_INTERVAL": 0xFFFFFFFF}).start()
    for name, expiry in (("short", 4), ("never", 0xFFFFFFFF), ("far", 0xFFFFFFFE), ("half", 0x7FFFFFFF)):
        with broker.raw(5) as client:
            pkt = client.connect(name, **keep(expiry))
            assert pkt.props.get("session_expiry", expiry) == expiry
            client.subscribe("t", 1)
            client.send(mqtt_raw.disconnect(5))
            client.closed()
    began = time.monotonic()
    time.sleep(1.5)
    broker.kill()
    broker.start()
    assert broker.metric("sluice_sessions") == 4
    wait_until(lambda: broker.metric("sluice_sessions") == 3, what="the session with an expiry of 4 s gone")
    went(4, began)
    assert broker.metric("sluice_sessions_expired_total") == 1
    assert broker.metric("sluice_subscriptions") == 3
    for name in ("never", "far", "half"):
        with broker.raw(5) as client:
            assert client.connect(name, **keep(60)).session_present


def test_a_session_that_ends_with_its_connection_is_gone_after_a_crash(make_broker):
    broker = make_broker(SETTINGS).start()
    client = broker.client("c", 5, clean=False)
    client.subscribe("t", 2)
    broker.kill()
    broker.start()
    wait_until(lambda: broker.metric("sluice_sessions") == 0, what="no session")
    assert broker.metric("sluice_subscriptions") == 0
    client.close()


@pytest.mark.parametrize("version", [4, 5])
def test_the_sessions_limit_counts_stored_ones_and_lets_known_clients_in(make_broker, version):
    broker = make_broker({"MQTT_SESSIONS_LIMIT": 2}).start()
    rest = keep(600) if version == 5 else {"clean": False}
    with broker.raw(version) as client:
        client.connect("stored", **rest)
    live = broker.client("live", version)
    with broker.raw(version) as client:
        client.connect("third", want=0x97 if version == 5 else 3)
        refused(client)
    with broker.raw(version) as client:  # known: also by takeover
        assert client.connect("stored", **rest).session_present
        again = broker.client("live", version)
        live.closed()
        with broker.raw(version) as third:
            third.connect("third", want=0x97 if version == 5 else 3)
        again.send(mqtt_raw.disconnect(version))
        again.closed()
        wait_until(lambda: broker.metric("sluice_sessions") == 1, what="a free place")
        with broker.raw(version) as third:
            third.connect("third")
    assert broker.metrics()['sluice_sessions_refused_total{reason="limit"}'] == 2
    broker.kill()
    broker.start()
    with broker.raw(version) as client:  # counted again after a start
        client.connect("a")
        with broker.raw(version) as other:
            other.connect("b", want=0x97 if version == 5 else 3)


# ---- flow ----------------------------------------------------------------------------------------------------


def test_a_message_waits_for_an_in_flight_slot_no_longer_than_its_time(make_broker):
    broker = make_broker({"MQTT_FLOW_CONTROL_TTL": 1}).start()
    with broker.client("s", 5, props={"receive_maximum": 2}) as client, broker.client("p", 5) as publisher:
        client.subscribe("t", 1)
        publish_many(publisher, "t", [str(n) for n in range(10)])
        first = [client.expect(mqtt_raw.PUBLISH) for _ in range(2)]
        wait_until(lambda: broker.metrics()['sluice_messages_dropped_total{reason="delayed-too-long"}'] == 8,
                   what="8 messages dropped")
        assert broker.metric("sluice_delayed_messages") == 0
        client.send(*[mqtt_raw.puback(pkt.packet_id) for pkt in first])
        publisher.publish("t", b"new", 1)
        assert client.receive().payload == b"new"


def test_without_flow_control_the_receive_maximum_does_not_count(make_broker):
    broker = make_broker({"MQTT_FLOW_CONTROL_ENABLED": "false"}).start()
    with broker.client("s", 5, props={"receive_maximum": 2}) as client, broker.client("p", 5) as publisher:
        client.subscribe("t", 1)
        publish_many(publisher, "t", [str(n) for n in range(50)])
        assert len([client.expect(mqtt_raw.PUBLISH) for _ in range(50)]) == 50


def test_the_receive_maximum_of_the_newest_connection_counts(shared):
    name, topic = fresh(), fresh("t")
    with shared.raw(5) as old:
        old.connect(name, clean=False, props={"session_expiry": 60, "receive_maximum": 10})
        old.subscribe(topic, 1)
        with shared.client(fresh()) as publisher:
            publish_many(publisher, topic, [str(n) for n in range(30)])
        for _ in range(10):
            old.expect(mqtt_raw.PUBLISH)
        assert old.quiet()
        for maximum in (3, 20):
            with shared.raw(5) as new:
                new.connect(name, clean=False, props={"session_expiry": 60, "receive_maximum": maximum})
                for _ in range(maximum):
                    new.expect(mqtt_raw.PUBLISH)
                assert new.quiet()


def test_delivery_from_an_inbox_waits_for_a_client_that_reads_slowly(make_broker):
    broker = make_broker({"NETTY_WRITE_BUFFER_HIGH_WATER_MARK": 64}).start()
    count, size = 1500, 8000
    with broker.raw(5) as client:
        client.connect("slow", **keep(600))
        client.subscribe("t", 1)
    with broker.client("p") as publisher:
        publish_many(publisher, "t", [b"%06d" % n + bytes(size) for n in range(count)])
    with broker.raw(5, receive_buffer=4096) as client:
        client.connect("slow", **keep(600))
        wait_until(lambda: broker.metric("sluice_inbox_pauses_total") > 0, what="the inbox waits")

        def unsent():
            """Bytes of messages that were handed to the connection and not taken by the socket; None while it moves."""
            before = broker.metrics()
            time.sleep(0.3)
            after = broker.metrics()
            if before["sluice_bytes_sent_total"] != after["sluice_bytes_sent_total"]:
                return None
            return broker.metric("sluice_publish_sent_total") * size - after["sluice_bytes_sent_total"]

        assert wait_until(unsent, what="the socket is full") < 64 * 1024 + 512 * 1024  # the mark, and one read
        got = drain(client, count)
        assert [pkt.payload[:6] for pkt in got] == [b"%06d" % n for n in range(count)]
        assert not any(pkt.dup for pkt in got)


# ---- takeover ------------------------------------------------------------------------------------------------


def test_c18_two_hundred_at_once_with_messages_in_flight(make_broker):
    """Each session gets each message once (again only with DUP), and one connection is left."""
    broker = make_broker().start()
    with broker.raw(5) as client:
        client.connect("same", **keep(600))
        client.subscribe("t", 1)
    with broker.client("p") as publisher:
        publish_many(publisher, "t", [str(n) for n in range(20)])
    ends, wrong = [], []

    def one(number):
        seen = set()
        with broker.raw(5) as client:
            client.send(mqtt_raw.connect("same", 5, clean=False, props={"session_expiry": 600}))
            if number % 2:
                return  # gone right after its CONNECT
            try:
                while True:
                    pkt = client.recv(60)
                    if pkt.kind == mqtt_raw.PUBLISH:
                        if pkt.payload in seen:
                            wrong.append((number, pkt))
                        seen.add(pkt.payload)  # not acknowledged: in flight when the next one comes
                    else:
                        ends.append(pkt.reason if pkt.kind == mqtt_raw.DISCONNECT else pkt.name)
            except (mqtt_raw.Closed, ConnectionError):
                ends.append("closed")

    threads = [threading.Thread(target=one, args=(n,)) for n in range(200)]
    for thread in threads:
        thread.start()
    wait_until(lambda: broker.metric("sluice_connections_accepted_total") >= 202, what="all have come")
    with broker.raw(5) as last:
        assert last.connect("same", **keep(600)).session_present
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads)
        assert [pkt.payload for pkt in drain(last, 20)] == [str(n).encode() for n in range(20)]
        assert alive(last) == []
        wait_until(lambda: broker.metric("sluice_sessions_connected") == 1, what="one session connected")
        assert broker.metric("sluice_sessions") == 1
        wait_until(lambda: broker.metric("sluice_connections") == 1, what="one connection")
    assert not wrong, wrong[:3]
    assert set(ends) <= {"CONNACK", 0x8E, "closed"}, set(ends)
    with broker.raw(5) as client:
        assert client.connect("same", **keep(600)).session_present
        assert client.quiet()  # all acknowledged


# ---- the clock -------------------------------------------------------------------------------------------------


class ShiftedClock:
    """A broker whose wall clock can be moved while it runs."""

    def __init__(self, broker, library, folder):
        self.path = folder / "shift"
        self.set(0)
        broker.env["LD_PRELOAD"] = str(library)
        broker.env["CLOCK_SHIFT_FILE"] = str(self.path)
        broker.env["ASAN_OPTIONS"] += ":verify_asan_link_order=0"

    def set(self, seconds):
        with open(self.path, "r+b" if self.path.exists() else "wb") as file:
            file.write(struct.pack("=q", seconds))


def test_c48_a_jump_of_the_wall_clock_ends_nothing(make_broker, tool, tmp_path):
    broker = make_broker(SETTINGS)
    clock = ShiftedClock(broker, tool("libclock_shift.so"), tmp_path)
    broker.start()
    watcher = watch(broker, "will/#")
    clients = [broker.client(f"live{n}", 5, keep_alive=30) for n in range(50)]
    for n in range(20):
        broker.client(f"away{n}", 5, **{**keep(1800), "will": will("will/later", will_delay=1000)}).close()
    wait_until(lambda: broker.metric("sluice_wills_delayed") == 20, what="wills wait")
    for jump in (7200, -7200):
        clock.set(jump)
        time.sleep(2.5)  # two looks for what has expired
        for client in clients:
            assert alive(client) == []
        assert broker.metric("sluice_sessions_expired_total") == (0 if jump > 0 else 1)
        assert broker.metric("sluice_sessions") == 71
        assert broker.metric("sluice_wills_delayed") == 20
        assert watcher.quiet(0.1)
        # What is to happen soon happens soon, on the new time as well.
        broker.client(fresh(), 5, **{**keep(2), "will": will("will/soon", will_delay=1)}).close()
        began = time.monotonic()
        assert watcher.receive().topic == "will/soon"
        went(1, began)
        wait_until(lambda: broker.metric("sluice_sessions") == 71, what="the short session gone")
        went(2, began)
    broker.stop()
    clock.set(-90000)
    broker.start()  # set back further: what was away is still there, and new sessions work
    with broker.raw(5) as client:
        assert client.connect("away0", **keep(1800)).session_present
    with broker.raw(5) as client:
        assert not client.connect("away1", clean=True, props={"session_expiry": 1800}).session_present
        client.subscribe("t", 1)
        client.send(mqtt_raw.disconnect(5))
        client.closed()
    with broker.client("p") as publisher:
        publisher.publish("t", b"stored", 1)
    with broker.raw(5) as client:
        assert client.connect("away1", **keep(1800)).session_present
        assert client.receive().payload == b"stored"
    watcher.close()
    for client in clients:
        client.close()


# ---- many, long, odd ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [4, 10000])
def test_c46_an_inbox_keeps_the_newest_up_to_its_limit(make_broker, limit):
    broker = make_broker({"MQTT_PERSISTENT_SESSION_DEVICE_PERSISTED_MESSAGES_LIMIT": limit}).start()
    total = limit + 500
    with broker.raw(5) as client:
        client.connect("absent", **keep(600))
        client.subscribe("t", 1)
    with broker.client("p") as publisher:
        publish_many(publisher, "t", [str(n) for n in range(total)])
    wait_until(lambda: broker.metric("sluice_inbox_evicted_rows_total") == total - limit, 60, "evicted exactly")
    broker.kill()
    broker.start()
    with broker.raw(5) as client:
        assert client.connect("absent", **keep(600)).session_present
        got = drain(client, limit, 60)
        assert [int(pkt.payload) for pkt in got] == list(range(total - limit, total))
        assert client.quiet()


@pytest.mark.slow
def test_c46_a_million_messages_for_one_absent_client_stay_bounded(make_broker):
    """SLUICE_FAST_BIN_DIR (a build without sanitizers) makes it a million; else a tenth of that."""
    fast = os.environ.get("SLUICE_FAST_BIN_DIR")
    total, limit, batch = 1000000 if fast else 100000, 10000, 500
    broker = make_broker()
    if fast:
        broker.command[0] = str(pathlib.Path(fast) / "sluice-broker")
    broker.start()
    with broker.raw(5) as client:
        client.connect("absent", **keep(600))
        client.subscribe("t", 1)
    with broker.client("p") as publisher:
        for first in range(0, total, batch):
            publisher.send(*[mqtt_raw.publish("t", str(first + n), 1, n + 1) for n in range(batch)])
            left = 4 * batch  # acknowledgements, in order
            while left > 0:
                publisher.sock.settimeout(30)
                left -= len(publisher.sock.recv(left))
    wait_until(lambda: broker.metric("sluice_inbox_evicted_rows_total") == total - limit, 60, "evicted exactly")
    bounded = 500 * 1024
    assert sanitized(broker) or rss_kb(broker) < bounded, rss_kb(broker)
    broker.kill()
    began = time.monotonic()
    broker.start()
    assert time.monotonic() - began < 20
    assert sanitized(broker) or rss_kb(broker) < bounded / 2, rss_kb(broker)
    with broker.raw(5) as client:
        assert client.connect("absent", **keep(600)).session_present
        got = drain(client, limit, 60)
        assert [int(pkt.payload) for pkt in got] == list(range(total - limit, total))
        assert client.quiet()


def test_c50_two_thousand_persistent_clients_back_at_once(make_broker):
    broker = make_broker().start()
    count = 2000
    for n in range(count):
        with broker.raw(5) as client:
            client.send(mqtt_raw.connect(f"c{n}", 5, clean=False, props={"session_expiry": 600}),
                        mqtt_raw.subscribe(1, [(f"t/{n % 50}", 1)], 5))
            client.expect(mqtt_raw.CONNACK, 30)
            client.expect(mqtt_raw.SUBACK, 30)
    with broker.client("p") as publisher:
        publish_many(publisher, "t/7", [str(n) for n in range(5)])
    broker.kill()
    broker.start()
    clients = [broker.raw(5) for _ in range(count)]
    try:
        began = time.monotonic()
        for n, client in enumerate(clients):
            client.send(mqtt_raw.connect(f"c{n}", 5, clean=False, props={"session_expiry": 600}))
        for client in clients:
            assert client.expect(mqtt_raw.CONNACK, 30, reason=0).session_present
        assert time.monotonic() - began < 30
        assert broker.metric("sluice_sessions_connected") == count
        for client in clients[7::50]:
            assert [pkt.payload for pkt in drain(client, 5)] == [str(n).encode() for n in range(5)]
    finally:
        for client in clients:
            client.close()


ODD = ["../../x", "a/b", "a b", "\u00e9", "\U0001f600", "{}", "a}b", "{a}b", "%00", ".", "..", "a\nb", "x" * 300, "y" * 65535]


def test_c72_odd_client_ids_have_sessions_and_inboxes_of_their_own(make_broker):
    broker = make_broker({"TCP_NETTY_MAX_PAYLOAD_SIZE": 100000}).start()
    for number, name in enumerate(ODD):
        with broker.raw(5) as client:
            client.connect(name, **keep(600))
            client.subscribe(f"odd/{number}", 2)
    with broker.client("p") as publisher:
        for number in range(len(ODD)):
            publisher.publish(f"odd/{number}", str(number), 1 + number % 2, packet_id=number + 1)
    broker.kill()
    broker.start()
    for number, name in enumerate(ODD):
        with broker.raw(5) as client:
            assert client.connect(name, **keep(600)).session_present, name[:20]
            assert client.receive().payload == str(number).encode()
            assert client.quiet(0.05)
            client.send(mqtt_raw.disconnect(5, 0, {"session_expiry": 0}))
            client.closed()
        with broker.raw(5) as client:
            assert not client.connect(name).session_present
    wait_until(lambda: broker.metric("sluice_sessions") == 0, what="no session left")
