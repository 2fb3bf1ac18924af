# SPDX-License-Identifier: Apache-2.0
"""The broker is killed at 200 random instants under QoS 2 load, some of them while it starts: a persistent
publisher and a persistent subscriber that follow the standard see every message exactly once, in order.

SLUICE_FAST_BIN_DIR: a folder with a sluice-broker without sanitizers, which starts faster; without it the test does as
many kills as fit into its time."""
import collections
import os
import pathlib
import random
import time

import pytest

import mqtt_raw
from process import wait_until
from test_broker_crash import Publisher, Subscriber

KILLS = 200
BUDGET = 130  # seconds of killing
FAST = os.environ.get("SLUICE_FAST_BIN_DIR")


class Qos2Publisher(Publisher):
    def fresh(self):
        payload, topic = f"{self.name} {self.next} 2", f"crash/{self.name}/2"
        self.next += 1
        self.packet_id = self.packet_id % 60000 + 1
        self.open[self.packet_id] = [payload, topic, 2, "publish"]
        return mqtt_raw.publish(topic, payload, 2, self.packet_id, version=self.version)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_two_hundred_kills_deliver_each_qos_2_message_exactly_once(make_broker):
    seed = time.time_ns()
    print("seed", seed)  # of the moments; what happens in them is the machine's
    rng = random.Random(seed)
    broker = make_broker()
    if FAST:
        broker.command[0] = str(pathlib.Path(FAST) / "sluice-broker")
    broker.start()
    with broker.raw(5) as client:
        client.connect("subscriber", clean=False, props={"session_expiry": 3600})
        client.subscribe("crash/#", 2)
    subscriber = Subscriber(broker)
    publishers = [Qos2Publisher(broker, number) for number in range(2)]
    end, kills = time.monotonic() + BUDGET, 0
    try:
        while kills < KILLS and time.monotonic() < end:
            time.sleep(rng.uniform(0.01, 0.4))  # a random moment, not a synchronisation
            broker.kill()
            kills += 1
            if rng.random() < 0.15:  # it does not even get ready
                broker.start(ready=None)
                time.sleep(rng.uniform(0, 0.3))
                broker.kill()
                kills += 1
            broker.start()
    finally:
        for publisher in publishers:
            publisher.end()
    print("kills", kills)
    assert kills >= (KILLS if FAST else 40)
    wanted = {payload for publisher in publishers for payload in publisher.acked}
    assert len(wanted) >= kills
    try:
        wait_until(lambda: wanted <= {payload for _, payload in list(subscriber.got)}, 30, "all of them")
    finally:
        subscriber.end()
    counts = collections.Counter(payload for _, payload in subscriber.got)
    assert not wanted - set(counts), sorted(wanted - set(counts))[:10]
    doubled = {payload: n for payload, n in counts.items() if n > 1}
    assert not doubled, sorted(doubled.items())[:10]
    for publisher in publishers:
        numbers = [int(payload.split()[1]) for _, payload in subscriber.got if payload.startswith(publisher.name)]
        assert numbers == sorted(numbers), publisher.name
