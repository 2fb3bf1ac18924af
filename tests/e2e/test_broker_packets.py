# SPDX-License-Identifier: Apache-2.0
"""Packets as clients send them: malformed, out of place, in odd pieces. In each case the connection ends with the
right reason, nothing of it is routed, and everybody else is served on."""
import re
import struct
import time

import pytest

import mqtt_raw
from broker_kit import alive, cpu_seconds, fresh, refused, rss_kb, sanitized, shared, witness  # noqa: F401
from mqtt_raw import packet, text

SETTINGS = {"SLUICE_CONNECT_TIMEOUT_MS": 3000}

BAD_UTF8 = [b"a\0b", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xff\xfe", b"ab\xe2\x82"]


def names(values):
    return [value.hex() for value in values]


def connected(broker, version):
    return broker.client(fresh(), version)


def bad_text_packets(place, bad, version):
    """(needs a connection, packet) with `bad` where text is expected."""
    v5 = version >= 5
    if place == "client id":
        return False, mqtt_raw.connect(bad, version)
    if place == "user name":
        return False, mqtt_raw.connect(fresh(), version, username=bad)
    if place == "will topic":
        return False, mqtt_raw.connect(fresh(), version, will=(bad, b"x", 0, False))
    if place == "topic":
        return True, mqtt_raw.publish(bad, b"x", version=version)
    if place == "filter":
        return True, mqtt_raw.subscribe(1, [(bad, 0)], version)
    assert v5
    user = b"\x26" + text(bad) + text("v")
    return True, packet(mqtt_raw.PUBLISH, 0, text("t") + bytes([len(user)]) + user + b"x")


@pytest.mark.quick
@pytest.mark.parametrize("version", [4, 5])
def test_c01_text_that_is_not_utf8_is_refused(shared, version):
    places = ["client id", "user name", "will topic", "topic", "filter"] + (["user property"] if version == 5 else [])
    with witness(shared):
        for place in places:
            for bad in BAD_UTF8:
                needs, raw = bad_text_packets(place, bad, version)
                with (connected(shared, version) if needs else shared.raw(version)) as client:
                    client.send(raw)
                    reasons = (0x81, 0x82, 0x85) if place == "client id" else (0x81, 0x90) if place == "topic" else (0x81,)
                    assert refused(client, *reasons) == [], (place, bad)


@pytest.mark.parametrize("version", [4, 5])
def test_c01_a_byte_order_mark_is_part_of_the_name(shared, version):
    topic = b"\xef\xbb\xbf" + fresh("bom").encode()
    with connected(shared, version) as client:
        client.subscribe(topic)
        client.subscribe(topic[3:], packet_id=2)
        client.send(mqtt_raw.publish(topic, b"with", version=version))
        assert client.receive().topic.encode() == topic
        assert client.quiet()
    name = fresh().encode()
    with shared.client(name, version) as plain, shared.client(b"\xef\xbb\xbf" + name, version) as marked:
        assert alive(plain) == [] and alive(marked) == []  # two clients: neither takes the other over


def connect_31(name, clean=True):
    return packet(mqtt_raw.CONNECT, 0, text("MQIsdp") + bytes([3, 2 if clean else 0]) + b"\0\0" + text(name))


def test_c02_empty_and_long_client_ids(shared):
    with shared.raw(4) as one, shared.raw(4) as two:  # 3.1.1 and a clean session: the broker chooses
        one.connect("")
        two.connect("")
        assert alive(one) == [] and alive(two) == []
    for version, raw in ((4, mqtt_raw.connect("", 4, clean=False)), (4, connect_31("")), (4, connect_31("", False)),
                         (4, connect_31("x" * 1025))):
        with shared.raw(version) as client:
            client.send(raw)
            client.expect(mqtt_raw.CONNACK, reason=2, session_present=False)
            assert client.closed() == []
    ids = set()
    for clean in (True, False):
        with shared.raw(5) as client:
            ids.add(client.connect("", clean=clean).props["assigned_client_id"])
    assert len(ids) == 2
    for name in ("x" * 1024, "a/b +#$", "é" * 500):
        with shared.raw(4) as client:
            client.send(connect_31(name))
            client.expect(mqtt_raw.CONNACK, reason=0)
    with shared.raw(5) as client:  # as long as a packet may be
        assert "assigned_client_id" not in client.connect("y" * 65000).props
        assert alive(client) == []


def test_version_31_is_served(shared):
    name, topic = fresh(), fresh("t")
    for part in range(2):
        with shared.raw(4) as client:
            client.send(connect_31(name, clean=False))
            client.expect(mqtt_raw.CONNACK, reason=0, session_present=False)  # 3.1 has no such bit
            if part == 0:
                client.subscribe(topic, 2)
            else:
                assert client.receive().payload == b"kept"
        if part == 0:
            with shared.client(fresh()) as publisher:
                publisher.publish(topic, b"kept", 2)


@pytest.mark.parametrize("level, name", [(0, "MQTT"), (3, "MQTT"), (6, "MQTT"), (0x84, "MQTT"), (4, "MQIsdp"), (4, "mqtt"),
                                         (4, ""), (4, "MQTTX")])
def test_unknown_protocols_are_refused(shared, level, name):
    with shared.raw(4) as client:
        client.send(packet(mqtt_raw.CONNECT, 0, text(name) + bytes([level, 2]) + b"\0\0" + text(fresh())))
        answer = b""
        while chunk := client.sock.recv(100):
            answer += chunk
        # nothing, or "unacceptable protocol version" in the form of 3.1.1 or of 5.0
        assert answer in (b"", b"\x20\x02\x00\x01", b"\x20\x03\x00\x84\x00"), answer


WILL_FAULTS = [("will flag 0 with QoS 1", 0x0A, b""), ("will flag 0 with retain", 0x22, b""),
               ("will flag 1 with QoS 3", 0x1E, text("w") + text("x")), ("reserved bit", 0x03, b""),
               ("payload ends early", 0x06, text("w") + b"\0\5ab")]


def connect_with_flags(level, flags, rest):
    name, properties = ("MQIsdp", b"") if level == 3 else ("MQTT", b"\0" if level == 5 else b"")
    will_properties = b"\0" if level == 5 and flags & 4 else b""
    body = text(name) + bytes([level, flags]) + struct.pack(">H", 0) + properties + text(fresh())
    return packet(mqtt_raw.CONNECT, 0, body + (will_properties + rest if flags & 4 else rest))


@pytest.mark.parametrize("fault, flags, rest", WILL_FAULTS, ids=[row[0] for row in WILL_FAULTS])
@pytest.mark.parametrize("level", [3, 4, 5])
def test_c03_connect_flags_that_contradict_themselves(shared, level, fault, flags, rest):
    with shared.raw(5 if level == 5 else 4) as client:
        client.send(connect_with_flags(level, flags, rest))
        if level == 3 and fault in ("will flag 0 with QoS 1", "will flag 0 with retain", "reserved bit"):
            client.expect(mqtt_raw.CONNACK, reason=0)  # unused bits of 3.1 mean nothing
        else:
            assert refused(client, 0x81, 0x82) == []


def test_c05_a_subscribe_that_ends_too_early(shared):
    for version in (4, 5):
        head = b"\0\1" + (b"\0" if version == 5 else b"")
        for total in (64, 1024, 4096):
            filter_ = text("f" * (total - len(head) - 2))
            with connected(shared, version) as client:  # no options byte behind the filter
                client.send(packet(mqtt_raw.SUBSCRIBE, 2, head + filter_))
                assert refused(client, 0x81, 0x82) == []
        second = text("ok") + b"\1" + struct.pack(">H", 5000) + b"cut"
        with connected(shared, version) as client:
            client.send(packet(mqtt_raw.SUBSCRIBE, 2, head + second))
            assert refused(client, 0x81, 0x82) == []


PUBLISH_FAULTS = [
    ("no packet id", lambda v5: packet(mqtt_raw.PUBLISH, 2, text("t"))),
    ("topic longer than the packet", lambda v5: packet(mqtt_raw.PUBLISH, 0, struct.pack(">H", 500) + b"t")),
    ("QoS 3", lambda v5: packet(mqtt_raw.PUBLISH, 6, text("t") + b"\0\1" + (b"\0" if v5 else b"") + b"x")),
    ("DUP with QoS 0", lambda v5: packet(mqtt_raw.PUBLISH, 8, text("t") + (b"\0" if v5 else b"") + b"x")),
    ("packet id 0", lambda v5: packet(mqtt_raw.PUBLISH, 2, text("t") + b"\0\0" + (b"\0" if v5 else b"") + b"x")),
    ("empty", lambda v5: packet(mqtt_raw.PUBLISH, 0, b"")),
    ("wildcard", lambda v5: mqtt_raw.publish("a/+", version=5 if v5 else 4)),
    ("empty topic", lambda v5: mqtt_raw.publish("", b"x", version=5 if v5 else 4)),
]


@pytest.mark.parametrize("version", [4, 5])
def test_c06_a_publish_that_contradicts_itself(shared, version):
    with witness(shared):
        for fault, make in PUBLISH_FAULTS:
            with connected(shared, version) as client:
                client.send(make(version == 5))
                assert refused(client, 0x81, 0x82, 0x90) == [], fault
        if version == 5:
            for body in (text("t"), text("t") + b"\xff\xff\xff\x7f", text("t") + b"\5\x01\1"):  # property length
                with connected(shared, 5) as client:
                    client.send(packet(mqtt_raw.PUBLISH, 0, body))
                    assert refused(client, 0x81) == []


OUT_OF_PLACE = [
    ("CONNACK", b"\x20\2\0\0", (4, 5)), ("SUBACK", b"\x90\3\0\1\0", (4, 5)), ("UNSUBACK", b"\xb0\2\0\1", (4, 5)),
    ("PINGRESP", b"\xd0\0", (4, 5)), ("type 0", b"\0\0", (4, 5)), ("type 15", b"\xf0\0", (4,)),
    ("AUTH without a method", b"\xf0\0", (5,)), ("PUBREL with flags 0", b"\x60\2\0\1", (4, 5)),
    ("PINGREQ with a body", b"\xc0\1x", (4, 5)), ("length of five bytes", b"\x30\xff\xff\xff\xff\1", (4, 5)),
]


@pytest.mark.parametrize("name, raw, versions", OUT_OF_PLACE, ids=[row[0] for row in OUT_OF_PLACE])
def test_c09_packets_that_no_client_sends(shared, name, raw, versions):
    for version in versions:
        with connected(shared, version) as client:
            client.send(raw)
            assert refused(client, 0x81, 0x82) == []


@pytest.mark.parametrize("version", [4, 5])
def test_c10_packets_in_the_segment_of_the_connect(shared, version):
    topic = fresh("t")
    with shared.raw(version) as client:
        client.send(mqtt_raw.connect(fresh(), version), mqtt_raw.subscribe(9, [(topic, 1)], version),
                    mqtt_raw.publish(topic, b"x", 1, 3, version=version))
        client.expect(mqtt_raw.CONNACK, reason=0)
        kinds = {pkt.kind: pkt for pkt in (client.recv(), client.recv(), client.recv())}
        assert set(kinds) == {mqtt_raw.SUBACK, mqtt_raw.PUBACK, mqtt_raw.PUBLISH}
        assert kinds[mqtt_raw.PUBLISH].payload == b"x"


@pytest.mark.parametrize("version", [4, 5])
def test_c10_nothing_behind_a_refused_connect_counts(shared, version):
    topic = fresh("t")
    with shared.client(fresh(), version) as seen, shared.raw(version) as client:
        seen.subscribe(topic)
        client.send(mqtt_raw.connect("", 4, clean=False) if version == 4 else
                    mqtt_raw.connect(fresh(), 5, props={"auth_method": "NONE"}),
                    mqtt_raw.publish(topic, b"x", version=version))
        client.expect(mqtt_raw.CONNACK, reason=2 if version == 4 else 0x8C)
        assert client.closed() == []
        assert seen.quiet()


@pytest.mark.parametrize("version", [4, 5])
def test_c10_a_second_connect_is_a_protocol_error(shared, version):
    name = fresh()
    with shared.client(name, version) as client:
        client.send(mqtt_raw.connect(name, version))
        assert refused(client, 0x82) == []


def test_c10_anything_before_the_connect_ends_the_connection(shared):
    for raw in (mqtt_raw.publish("t", b"x"), mqtt_raw.pingreq(), b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\0\1\0"):
        with shared.raw() as client:
            client.send(raw)
            assert client.closed() == []


@pytest.mark.parametrize("version", [4, 5])
def test_c11_a_dialogue_byte_by_byte(shared, version):
    topic = fresh("t")
    with shared.raw(version) as client:
        for raw in (mqtt_raw.connect(fresh(), version), mqtt_raw.subscribe(1, [(topic, 2)], version),
                    mqtt_raw.publish(topic, b"payload", 2, 77, version=version), mqtt_raw.pubrel(77)):
            for at in range(len(raw)):
                client.send(raw[at:at + 1])
        kinds = []
        while len(kinds) < 5:
            pkt = client.recv()
            kinds.append(pkt.name)
            if pkt.kind == mqtt_raw.PUBLISH:
                assert (pkt.topic, pkt.payload, pkt.qos) == (topic, b"payload", 2)
                client.send(mqtt_raw.pubrec(pkt.packet_id))
        assert kinds[0] == "CONNACK" and set(kinds[1:]) <= {"SUBACK", "PUBREC", "PUBCOMP", "PUBLISH", "PUBREL"}


@pytest.mark.quick
@pytest.mark.parametrize("version", [4, 5])
def test_c11_two_hundred_packets_in_one_segment(shared, version):
    topic = fresh("t")
    with connected(shared, version) as client:
        client.subscribe(topic)
        client.send(*(mqtt_raw.publish(topic, str(n), 1, n + 1, version=version) for n in range(200)))
        packets = [client.recv() for _ in range(400)]
    assert [pkt.packet_id for pkt in packets if pkt.kind == mqtt_raw.PUBACK] == list(range(1, 201))
    assert [pkt.payload for pkt in packets if pkt.kind == mqtt_raw.PUBLISH] == [str(n).encode() for n in range(200)]


def test_c11_a_reader_that_takes_few_bytes_gets_the_whole_packet(shared):
    topic, payload = fresh("t"), bytes(range(256)) * 234
    with shared.raw(4, receive_buffer=2048) as slow, shared.client(fresh()) as publisher:
        slow.connect(fresh())
        slow.subscribe(topic, 1)
        publisher.publish(topic, payload, 1)
        end = time.monotonic() + 1.0
        while time.monotonic() < end:  # 100 bytes at a time, 100 times a second
            slow.buffer += slow.sock.recv(100)
            time.sleep(0.01)
        assert slow.receive().payload == payload
        assert alive(slow) == []


BAD_FILTERS = ["", "a#", "a/#/b", "+a", "a/+b", "#/a", "a/b+/c"]


@pytest.mark.parametrize("version", [4, 5])
def test_c12_subscribes_that_are_not_valid(shared, version):
    props = b"\0" if version == 5 else b""
    head = b"\0\1" + props
    cases = [("packet id 0", 2, b"\0\0" + props + text("f") + b"\0"), ("no filter", 2, head),
             ("reserved option bits", 2, head + text("f") + b"\xc0"), ("QoS 3", 2, head + text("f") + b"\3"),
             ("wrong header flags", 0, head + text("f") + b"\0")]
    if version == 5:
        cases += [("retain handling 3", 2, head + text("f") + b"\x30")]
    for name, flags, body in cases:
        with connected(shared, version) as client:
            client.send(packet(mqtt_raw.SUBSCRIBE, flags, body))
            assert refused(client, 0x81, 0x82) == [], name
    for filter_ in BAD_FILTERS:
        with connected(shared, version) as client:
            client.send(mqtt_raw.subscribe(1, [(filter_, 1)], version))
            granted = [pkt for pkt in refused(client, 0x81, 0x82, 0x8F) if pkt.kind == mqtt_raw.SUBACK]
            assert granted == [], filter_


@pytest.mark.parametrize("version", [4, 5])
def test_c12_unsubscribes_that_are_not_valid(shared, version):
    props = b"\0" if version == 5 else b""
    for name, flags, body in [("packet id 0", 2, b"\0\0" + props + text("f")), ("no filter", 2, b"\0\1" + props),
                              ("wrong header flags", 0, b"\0\1" + props + text("f")),
                              ("cut short", 2, b"\0\1" + props + b"\0\5ab")]:
        with connected(shared, version) as client:
            client.send(packet(mqtt_raw.UNSUBSCRIBE, flags, body))
            assert refused(client, 0x81, 0x82) == [], name


def test_c08_memory_before_the_login(shared):
    with shared.raw() as client:  # warm
        client.connect(fresh())
    before = rss_kb(shared)
    openers = []
    try:
        for _ in range(500):
            client = shared.raw()
            client.send(b"\x30\xff\xff\xff\x7f")
            openers.append(client)
        for client in openers:
            assert client.closed() == []  # not a CONNECT: at once
        waiting = []
        half = mqtt_raw.connect(fresh())[:9]
        began = time.monotonic()
        for _ in range(500):
            client = shared.raw()
            client.send(half)
            waiting.append(client)
        openers += waiting
        with shared.raw() as huge:
            huge.send(b"\x10\xff\xff\xff\x7f" + b"\0\4MQTT")
            assert huge.closed(2) == []  # refused from the header
        with shared.client(fresh()) as other:
            assert alive(other) == []
        assert rss_kb(shared) - before < (200_000 if sanitized(shared) else 20_000)
        for client in waiting:
            assert client.closed(10) == []
        assert 2.5 < time.monotonic() - began < 12
    finally:
        for client in openers:
            client.close()


HOSTILE = ["cr\r\nlf 2026-01-01T00:00:00.000Z info FORGED-LINE component=broker", "esc\x1b[2J\x1b]0;owned\x07",
           "k" * 60000, "quote\" end=1 x=\"y"]


def test_c51_client_ids_and_topics_cannot_forge_log_lines(make_broker):
    broker = make_broker({"SLUICE_TRACE": "all"}).start()
    for name in HOSTILE:
        with broker.client(name, 5, props={"session_expiry": 60}) as client:
            client.subscribe("f/" + name)
            client.send(mqtt_raw.publish("f/" + name[:30000], b"x", 1, 1, version=5))
            client.expect(mqtt_raw.PUBACK)
            client.send(packet(mqtt_raw.PUBLISH, 6, text("t") + b"\0\1\0"))
            client.closed()
    broker.stop()
    lines = broker.log().split("\n")
    assert "\x1b" not in broker.log() and "\r" not in broker.log()
    for line in lines:
        assert line == "" or re.match(r"\d{4}-\d\d-\d\dT[\d:.]+Z (trace|info|warn|error) [A-Z0-9-]+( |$)", line), line[:200]
        assert len(line) < 2000
        assert not re.match(r"\S+ \S+ FORGED-LINE", line)
    assert any("PACKET-REFUSED" in line for line in lines)


def test_c51_a_flood_of_faults_makes_few_lines(make_broker):
    broker = make_broker().start()
    before = len(broker.log())
    for _ in range(3000):
        with broker.raw() as client:
            client.send(b"GET / HTTP/1.0\r\n\r\n")
    for _ in range(1000):
        with broker.raw(5) as client:
            client.send(mqtt_raw.connect(fresh(), 5), packet(mqtt_raw.PUBLISH, 6, b""))
            client.closed()
    with broker.client(fresh()) as client:
        assert alive(client) == []
    used = cpu_seconds(broker)
    grown = len(broker.log()) - before
    assert grown < 40_000, f"{grown} bytes of log for 4000 faults"
    assert broker.metric("sluice_malformed_packets_total") >= 2000
    time.sleep(1)
    assert cpu_seconds(broker) - used < 0.5  # nothing goes on turning
