# SPDX-License-Identifier: Apache-2.0
"""Everything at once, in no order: connects, takeovers, subscriptions, messages of all kinds, cut connections, and
the pages of the admin port. ./test runs it with ThreadSanitizer as well, whose report is an exit status here."""
import os
import random
import threading
import time

import mqtt_raw
from broker_kit import alive

SECONDS = 8
CLIENTS = 16
NAMES = 12  # fewer than clients: they take each other over
FILTERS = ("a/+", "a/#", "#", "a/b", "+/c")


def open_one(broker, rng):
    version = rng.choice((4, 5))
    client = broker.raw(version)
    rest = {"props": {"session_expiry": rng.choice((0, 1, 60)), "receive_maximum": rng.choice((1, 5, 1000))}}
    if rng.random() < 0.5:
        will = ("a/b", b"will", rng.randrange(3), False)
        rest["will"] = (*will, {"will_delay": rng.choice((0, 1))})
    if version == 4:
        rest = {"will": rest["will"][:4]} if "will" in rest else {}
    client.send(mqtt_raw.connect(f"churn{rng.randrange(NAMES)}", version, clean=rng.random() < 0.3, **rest))
    assert client.expect(mqtt_raw.CONNACK).reason == 0
    return client


def act(client, rng, number, unanswered):
    kind, packet_id = rng.random(), number % 60000 + 1
    if kind < 0.15:
        client.send(mqtt_raw.subscribe(packet_id, [(rng.choice(FILTERS), rng.randrange(3))], client.version))
    elif kind < 0.25:
        client.send(mqtt_raw.unsubscribe(packet_id, [rng.choice(FILTERS)], client.version))
    else:
        qos = rng.randrange(3) if len(unanswered) < 10 else 0
        if qos:
            unanswered.add(packet_id)
        client.send(mqtt_raw.publish(rng.choice(("a/b", "a/c", "x/c")), os.urandom(rng.choice((5, 100, 5000))), qos,
                                     packet_id, version=client.version))


def answer(client, rng, unanswered):
    """Takes what is there; one message in ten is never acknowledged."""
    while True:
        try:
            pkt = client.recv(0.001)
        except TimeoutError:
            return
        if pkt.kind == mqtt_raw.PUBLISH and pkt.qos and rng.random() < 0.9:
            client.send(mqtt_raw.puback(pkt.packet_id) if pkt.qos == 1 else mqtt_raw.pubrec(pkt.packet_id))
        elif pkt.kind == mqtt_raw.PUBREC:
            client.send(mqtt_raw.pubrel(pkt.packet_id))
        elif pkt.kind == mqtt_raw.PUBREL:
            client.send(mqtt_raw.pubcomp(pkt.packet_id))
        elif pkt.kind in (mqtt_raw.PUBACK, mqtt_raw.PUBCOMP):
            unanswered.discard(pkt.packet_id)
        elif pkt.kind == mqtt_raw.DISCONNECT:
            assert pkt.reason == 0x8E, pkt  # nothing but a takeover ends a connection here
            raise mqtt_raw.Closed("taken over")


def churn(broker, rng, end, errors):
    try:
        while time.monotonic() < end:
            try:
                with open_one(broker, rng) as client:
                    unanswered, until, number = set(), time.monotonic() + rng.uniform(0.05, 1.5), 0
                    while time.monotonic() < until:
                        number += 1
                        act(client, rng, number, unanswered)
                        answer(client, rng, unanswered)
                    if rng.random() < 0.5:
                        client.send(mqtt_raw.disconnect())
                    elif rng.random() < 0.3:
                        client.reset()
            except (mqtt_raw.Closed, OSError):
                pass
    except Exception as error:  # shown by the test's own thread
        errors.append(error)


def test_everything_at_once(make_broker):
    broker = make_broker({"TCP_NETTY_WORKER_GROUP_THREADS": 4, "TB_MSG_ALL_CONSUMERS_COUNT": 2,
                          "TB_DEVICE_PERSISTED_MSG_CONSUMERS_COUNT": 2}).start()
    seed = time.time_ns()
    print("seed", seed)
    end, errors = time.monotonic() + SECONDS, []
    threads = [threading.Thread(target=churn, args=(broker, random.Random(seed + n), end, errors)) for n in range(CLIENTS)]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        assert broker.get("/health/ready").status == 200
        broker.metrics()
        time.sleep(0.2)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert errors == []
    assert broker.metric("sluice_session_takeovers_total") > 0
    assert broker.metric("sluice_malformed_packets_total") == 0
    with broker.client("after") as client:
        assert alive(client) == []
    assert " error " not in broker.log()
