# SPDX-License-Identifier: Apache-2.0
"""Who gets what: QoS, wildcards, overlapping filters, the options of version 5, and the way out."""
import itertools
import time

import pytest

import mqtt_raw
from broker_kit import alive, drain, fresh, publish_many, shared  # noqa: F401
from process import wait_until

NO_LOCAL, AS_PUBLISHED = 4, 8


@pytest.mark.parametrize("sub_version, pub_version", [(4, 4), (4, 5), (5, 4), (5, 5)])
def test_the_qos_delivered_is_the_lower_of_both(shared, sub_version, pub_version):
    for sub_qos, pub_qos in itertools.product((0, 1, 2), repeat=2):
        topic = fresh("t")
        with shared.client(fresh(), sub_version) as subscriber, shared.client(fresh(), pub_version) as publisher:
            assert subscriber.subscribe(topic, sub_qos).codes == (sub_qos,)
            payloads = [f"{n}".encode() for n in range(20)]
            publish_many(publisher, topic, payloads, pub_qos) if pub_qos else \
                publisher.send(*(mqtt_raw.publish(topic, p, version=pub_version) for p in payloads))
            got = drain(subscriber, 20)
            assert [pkt.payload for pkt in got] == payloads
            assert {pkt.qos for pkt in got} == {min(sub_qos, pub_qos)}
            assert not any(pkt.dup or pkt.retain for pkt in got)


@pytest.mark.parametrize("kept", [False, True], ids=["clean", "persistent"])
def test_overlapping_filters_make_one_copy_with_all_identifiers(shared, kept):
    topic = fresh("t")
    rest = {"props": {"session_expiry": 600}} if kept else {}
    with shared.client(fresh(), 5, **rest) as client, shared.client(fresh(), 5) as publisher:
        client.subscribe(f"{topic}/#", 1, 1, {"subscription_id": 1})
        client.subscribe(f"{topic}/+", 2, 2, {"subscription_id": 268435455})
        client.subscribe(f"{topic}/a", 0, 3)
        publisher.publish(f"{topic}/a", b"x", 2)
        got = client.receive()
        assert (got.qos, sorted(got.props["subscription_id"])) == (2, [1, 268435455])
        client.subscribe(f"{topic}/+", 0, 4)  # again, without an identifier and lower
        publisher.publish(f"{topic}/b", b"y", 2)
        got = client.receive()
        assert (got.qos, got.props["subscription_id"]) == (1, [1])
        client.send(mqtt_raw.unsubscribe(5, [f"{topic}/#"], 5))
        assert client.expect(mqtt_raw.UNSUBACK).codes == (0,)
        publisher.publish(f"{topic}/a", b"z", 2)
        got = client.receive()
        assert (got.payload, got.qos, got.props) == (b"z", 0, {})
        assert client.quiet()


def test_c35_subscription_identifiers_survive_restart_and_absence(make_broker):
    broker = make_broker().start()
    keep = {"clean": False, "props": {"session_expiry": 600}}
    with broker.client("subscriber", 5, **keep) as client:
        client.subscribe("a/#", 1, 1, {"subscription_id": 1})
        client.subscribe("a/+", 2, 2, {"subscription_id": 2})
        client.send(mqtt_raw.disconnect())
        client.closed()
    broker.kill()
    broker.start()
    with broker.client("publisher", 5) as publisher:
        publisher.publish("a/b", b"x", 2)
    with broker.client("subscriber", 5, **keep) as client:
        got = client.receive()
        assert (got.qos, sorted(got.props["subscription_id"])) == (2, [1, 2])
        for raw in (mqtt_raw.subscribe(3, [("b", 0)], 5, {"subscription_id": 0}),
                    mqtt_raw.publish("b", b"x", version=5, props={"subscription_id": 1})):
            with broker.client("wrong", 5) as wrong:
                wrong.send(raw)
                assert [pkt.reason for pkt in wrong.closed()] == [0x82]


MATCHES = [
    ("a/b", "a/b", True), ("a/b", "a/B", False), ("+", "a", True), ("+", "a/b", False), ("+/+", "a/b", True),
    ("+/+", "/b", True), ("/+", "/b", True), ("/+", "b", False), ("a/+", "a", False), ("a/+", "a/", True),
    ("a/+/c", "a/b/c", True), ("a/+/c", "a//c", True), ("a/#", "a", True), ("a/#", "a/b/c", True), ("a/#", "ab", False),
    ("#", "a/b", True), ("#", "/", True), ("+/#", "a", True), ("+/#", "a/b/c", True), ("a//b", "a/b", False),
    ("a/b/", "a/b", False), ("é/+", "é/ß", True), ("a b", "a b", True), ("a/+/#", "a/b", True), ("a/+/#", "a", False),
]


@pytest.mark.quick
def test_filters_match_as_the_standard_says(shared):
    """Each filter has an identifier, so that one copy of a topic tells all filters that matched it."""
    filters = sorted({row[0] for row in MATCHES})
    topics = sorted({row[1] for row in MATCHES})
    with shared.client(fresh(), 5) as client, shared.client(fresh()) as publisher:
        for number, filter_ in enumerate(filters, 1):
            assert client.subscribe(filter_, 0, number, {"subscription_id": number}).codes == (0,)
        for topic in topics:
            publisher.publish(topic, topic, 1)
        matched = {}
        for pkt in drain(client, len(topics)):  # "#" is one of the filters
            matched[pkt.topic] = {filters[number - 1] for number in pkt.props["subscription_id"]}
    for filter_, topic, matches in MATCHES:
        assert (filter_ in matched[topic]) == matches, (filter_, topic)


@pytest.mark.parametrize("version", [4, 5])
def test_c38_dollar_topics_are_the_servers(shared, version):
    with shared.client(fresh(), version) as client, shared.client(fresh(), version) as publisher:
        for packet_id, filter_ in enumerate(("#", "+/x", "$SYS/#"), 1):
            assert client.subscribe(filter_, 1, packet_id).codes == (1,)
        for topic in ("$SYS/x", "$share/g/t", "$other/x"):
            publisher.send(mqtt_raw.publish(topic, b"x", 1, 1, version=version))
            assert publisher.expect(mqtt_raw.PUBACK).reason == (0x90 if version == 5 else 0)
            publisher.send(mqtt_raw.publish(topic, b"x", version=version))
        assert alive(publisher) == []
        assert client.quiet()
        for packet_id, filter_ in enumerate(("$share/g/t", "$share/g", "$share//t", "$share/g+/t", "$share/g/"), 10):
            codes = client.subscribe(filter_, 1, packet_id).codes
            assert codes == (0x80,) if version == 4 else codes[0] in (0x8F, 0x9E), filter_


def test_no_local_and_retain_as_published(shared):
    topic = fresh("t")
    with shared.client(fresh(), 5) as client, shared.client(fresh(), 5) as plain, shared.client(fresh()) as publisher:
        client.subscribe(topic, 1 | NO_LOCAL | AS_PUBLISHED)
        plain.subscribe(topic, 1)
        client.send(mqtt_raw.publish(topic, b"own", 1, 1, version=5))
        client.expect(mqtt_raw.PUBACK)
        assert plain.receive().payload == b"own"
        for retain in (True, False):
            publisher.publish(topic, b"x", 1, retain=retain)
            got = client.receive()
            assert (got.payload, got.retain) == (b"x", retain)
            assert not plain.receive().retain
        assert client.quiet()


def test_retain_as_published_goes_through_the_inbox(make_broker):
    broker = make_broker().start()
    keep = {"clean": False, "props": {"session_expiry": 600}}
    with broker.client("kept", 5, **keep) as client:
        client.subscribe("t", 1 | AS_PUBLISHED | NO_LOCAL)
        client.send(mqtt_raw.publish("t", b"own", 1, 1, version=5), mqtt_raw.disconnect())
        client.closed()
    with broker.client("pub") as publisher:
        publisher.publish("t", b"flag", 1, retain=True)
        publisher.publish("t", b"none", 1)
    broker.kill()
    broker.start()
    with broker.client("kept", 5, **keep) as client:
        got = drain(client, 2)
        assert [(pkt.payload, pkt.retain) for pkt in got] == [(b"flag", True), (b"none", False)]
        with broker.client("pub") as publisher:  # no-local is kept as well
            client.send(mqtt_raw.publish("t", b"own", 1, 1, version=5))
            client.expect(mqtt_raw.PUBACK)
            publisher.publish("t", b"end", 1)
        assert client.receive().payload == b"end"


@pytest.mark.parametrize("version", [4, 5])
def test_unsubscribe_ends_delivery(shared, version):
    topic = fresh("t")
    with shared.client(fresh(), version) as client, shared.client(fresh()) as publisher:
        client.subscribe(f"{topic}/+", 1)
        client.subscribe(f"{topic}/other", 1, 2)
        before = shared.metric("sluice_subscriptions")
        client.send(mqtt_raw.unsubscribe(3, [f"{topic}/+", f"{topic}/never"], version))
        assert client.expect(mqtt_raw.UNSUBACK, packet_id=3).codes == ((0, 0x11) if version == 5 else ())
        assert shared.metric("sluice_subscriptions") == before - 1
        publisher.publish(f"{topic}/x", b"no", 1)
        publisher.publish(f"{topic}/other", b"yes", 1)
        assert client.receive().payload == b"yes"
        assert client.quiet()


def test_a_subscription_does_not_see_what_was_published_before_it(shared):
    topic = fresh("t")
    with shared.client(fresh()) as publisher, shared.client(fresh(), 5, props={"session_expiry": 60}) as client:
        for number in range(30):
            publisher.publish(topic, f"before {number}", 1)
            client.subscribe(topic, 1, number + 1)
            publisher.publish(topic, f"after {number}", 1)
            assert client.receive().payload == f"after {number}".encode()
            client.send(mqtt_raw.unsubscribe(number + 1, [topic], 5))
            client.expect(mqtt_raw.UNSUBACK)


def test_many_filters_in_one_packet_and_their_limit(make_broker):
    broker = make_broker({"SLUICE_MAX_SUBSCRIPTIONS_PER_CLIENT": 500}).start()
    with broker.client("many", 5) as client:
        filters = [(f"m/{n}/+/x", n % 3) for n in range(510)]
        client.send(mqtt_raw.subscribe(1, filters[:499] + filters[500:511], 5))
        codes = client.expect(mqtt_raw.SUBACK).codes
        assert codes[:500] == tuple(q for _, q in filters[:499] + filters[500:501]) and set(codes[500:]) == {0x97}
        assert broker.metric("sluice_subscriptions") == 500
        client.send(mqtt_raw.disconnect())
        client.closed()
    wait_until(lambda: broker.metric("sluice_subscriptions") == 0, what="no subscription left")


def test_message_properties_reach_the_subscriber_unchanged(shared):
    topic = fresh("t")
    props = {"payload_format": 1, "content_type": "text/plain", "response_topic": "r/é", "correlation_data": b"\0\xff",
             "user": [("k", "1"), ("a", ""), ("k", "2")]}
    with shared.client(fresh(), 5) as new, shared.client(fresh(), 4) as old, \
            shared.client(fresh(), 5, props={"session_expiry": 60}) as kept, shared.client(fresh(), 5) as publisher:
        for client in (new, old, kept):
            client.subscribe(topic, 1)
        publisher.publish(topic, b"x", 1, props={**props, "message_expiry": 100})
        assert new.receive().props == {**props, "message_expiry": 100}
        assert kept.receive().props == {**props, "message_expiry": 100}
        assert old.receive().payload == b"x"


def test_c30_messages_expire_in_the_inbox(shared):
    name, topic = fresh(), fresh("t")
    keep = {"clean": False, "props": {"session_expiry": 600}}
    with shared.client(name, 5, **keep) as client:
        client.subscribe(topic, 1)
        client.send(mqtt_raw.disconnect())
        client.closed()
    with shared.client(fresh(), 5) as publisher:
        for number in range(100):
            publisher.publish(topic, f"short {number}", 1, props={"message_expiry": 1})
        publisher.publish(topic, b"long", 1, props={"message_expiry": 100})
        publisher.publish(topic, b"ever", 1)
    time.sleep(1.2)  # the interval itself
    with shared.client(name, 5, **keep) as client:
        got = drain(client, 2)
        assert [pkt.payload for pkt in got] == [b"long", b"ever"]
        assert 97 <= got[0].props["message_expiry"] <= 99 and "message_expiry" not in got[1].props
