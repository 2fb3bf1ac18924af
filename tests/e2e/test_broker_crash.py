# SPDX-License-Identifier: Apache-2.0
"""The broker is killed again and again under load: everything it acknowledged arrives, QoS 2 exactly once, in the
order of each publisher."""
import collections
import random
import threading
import time

import pytest

import mqtt_raw
from process import wait_until

CRASHES = 30
PUBLISHERS = 4


class Restarting:
    """A client that comes back after every crash; subclasses say what it sends and takes."""

    def __init__(self, broker, name, version):
        self.broker, self.name, self.version = broker, name, version
        self.stop = threading.Event()
        self.error = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self):
        try:
            while not self.stop.is_set():
                try:
                    with self.broker.raw(self.version) as client:
                        props = {"session_expiry": 3600} if self.version == 5 else None
                        client.send(mqtt_raw.connect(self.name, self.version, clean=False, props=props))
                        assert client.expect(mqtt_raw.CONNACK, 30).reason == 0
                        self.session(client)
                except (OSError, mqtt_raw.Closed):
                    time.sleep(0.02)
        except Exception as error:  # shown by the test's own thread
            self.error = error

    def end(self):
        self.stop.set()
        self.thread.join(60)
        assert not self.thread.is_alive()
        if self.error:
            raise self.error


class Publisher(Restarting):
    """Numbered messages of QoS 0, 1 and 2 over topics of its own; repeats after a crash what was not acknowledged, in
    order, as the standard asks of a client."""

    def __init__(self, broker, number):
        self.next = 0
        self.acked = []  # QoS 1 and 2
        self.open = collections.OrderedDict()  # packet id -> [payload, topic, qos, "publish" or "pubrel"]
        self.packet_id = 0
        self.limit = None
        super().__init__(broker, f"publisher{number}", 4 + number % 2)

    def fresh(self):
        qos = (0, 1, 1, 2)[self.next % 4]
        payload, topic = f"{self.name} {self.next} {qos}", f"crash/{self.name}/{qos}"
        self.next += 1
        if qos == 0:
            return mqtt_raw.publish(topic, payload, version=self.version)
        self.packet_id = self.packet_id % 60000 + 1
        self.open[self.packet_id] = [payload, topic, qos, "publish"]
        return mqtt_raw.publish(topic, payload, qos, self.packet_id, version=self.version)

    def session(self, client):
        for packet_id, (payload, topic, qos, state) in self.open.items():
            client.send(mqtt_raw.pubrel(packet_id) if state == "pubrel" else
                        mqtt_raw.publish(topic, payload, qos, packet_id, dup=True, version=self.version))
        while not self.stop.is_set() or self.open:
            while len(self.open) < 20 and not self.stop.is_set():
                client.send(self.fresh())
            pkt = client.recv(30)
            if pkt.packet_id not in self.open:
                continue
            assert pkt.reason in (0, 0x92), pkt
            if pkt.kind == mqtt_raw.PUBREC:
                self.open[pkt.packet_id][3] = "pubrel"
                client.send(mqtt_raw.pubrel(pkt.packet_id))
            else:
                self.acked.append(self.open.pop(pkt.packet_id)[0])
            time.sleep(0.002)


class Subscriber(Restarting):
    """Takes everything; QoS 2 by its packet id, as a receiver must, to hand each message on once."""

    def __init__(self, broker):
        self.got = []
        self.taken = set()  # packet ids of QoS 2 whose PUBREL has not come
        super().__init__(broker, "subscriber", 5)

    def session(self, client):
        client.send(mqtt_raw.subscribe(1, [("crash/#", 2)], 5))
        while not self.stop.is_set():
            try:
                pkt = client.recv(0.5)
            except TimeoutError:
                continue
            if pkt.kind == mqtt_raw.PUBLISH:
                if pkt.qos < 2 or pkt.packet_id not in self.taken:
                    self.got.append((pkt.topic, pkt.payload.decode()))
                if pkt.qos == 1:
                    client.send(mqtt_raw.puback(pkt.packet_id))
                elif pkt.qos == 2:
                    self.taken.add(pkt.packet_id)
                    client.send(mqtt_raw.pubrec(pkt.packet_id))
            elif pkt.kind == mqtt_raw.PUBREL:
                self.taken.discard(pkt.packet_id)
                client.send(mqtt_raw.pubcomp(pkt.packet_id))


@pytest.mark.timeout(170)
def test_thirty_crashes_lose_nothing_that_was_acknowledged(make_broker):
    seed = time.time_ns()
    print("seed", seed)  # of the moments; what happens in them is the machine's
    rng = random.Random(seed)
    broker = make_broker().start()
    with broker.raw(5) as client:
        client.connect("subscriber", clean=False, props={"session_expiry": 3600})
        client.subscribe("crash/#", 2)
    subscriber = Subscriber(broker)
    publishers = [Publisher(broker, number) for number in range(PUBLISHERS)]
    for _ in range(CRASHES):
        time.sleep(rng.uniform(0.05, 0.9))  # a random moment, not a synchronisation
        broker.kill()
        broker.start()
    for publisher in publishers:
        publisher.end()
    wanted = {payload for publisher in publishers for payload in publisher.acked}
    assert len(wanted) > 200 * PUBLISHERS
    try:
        wait_until(lambda: wanted <= {payload for _, payload in list(subscriber.got)}, 60, "all of them")
    except AssertionError:
        missing = sorted(wanted - {payload for _, payload in subscriber.got})
        raise AssertionError(f"{len(missing)} of {len(wanted)} lost: {missing[:10]}") from None
    finally:
        subscriber.end()
    by_topic = collections.defaultdict(list)
    for topic, payload in subscriber.got:
        by_topic[topic].append(int(payload.split()[1]))
    for topic, numbers in by_topic.items():
        if topic.endswith("/2"):
            doubled = [n for n, count in collections.Counter(numbers).items() if count > 1]
            assert not doubled, f"{topic}: more than once: {doubled[:10]}"
        first = list(dict.fromkeys(numbers))
        assert first == sorted(first), f"{topic}: out of order"
