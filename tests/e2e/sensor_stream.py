#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A seeded sensor stream as real input: readings on 20 topics with text, binary, empty and 60 KB payloads.

usage: sensor_stream.py [--seed N] [--count N] > FILE

One reading per line: QoS, topic, payload in hexadecimal ('-' for an empty one). The same seed gives the same
stream. Text payloads are JSON with a messageId of their own; the others have no identity.
"""
import argparse
import dataclasses
import json
import random
import sys

TOPICS = [f"sensors/{room}/{kind}" for room in ("hall", "lab", "roof", "größe", "pump 1")
          for kind in ("temperature", "humidity", "image", "state")]
LARGE_BYTES = 60000


@dataclasses.dataclass(frozen=True)
class Reading:
    number: int
    topic: str
    qos: int
    payload: bytes

    @property
    def id(self):
        """The messageId, or None for a payload that is no JSON."""
        return json.loads(self.payload)["messageId"] if self.payload[:1] == b"{" else None

    def line(self):
        return f"{self.qos} {self.topic.replace(' ', '%20')} {self.payload.hex() or '-'}\n"


def _payload(rng, number):
    kind = rng.random()
    text = {"messageId": f"r{number:06}", "value": round(rng.uniform(-40, 120), 3), "unit": rng.choice(["°C", "%", "hPa"])}
    if kind < 0.015:
        text["note"] = "x" * (LARGE_BYTES - len(json.dumps(text)) - 12)
    elif kind < 0.02:
        return b"\x00" + rng.randbytes(LARGE_BYTES - 1)
    elif kind < 0.10:
        # The first byte keeps it from being text, the number makes it tellable from all others.
        return b"\xff" + number.to_bytes(4, "big") + rng.randbytes(rng.randrange(60))
    elif kind < 0.14:
        return b""
    return json.dumps(text, ensure_ascii=False).encode()


def readings(seed=1, count=10000):
    """The stream. The last 20 readings are one per topic, as JSON with QoS 1 or 2, so that the latest value of each
    topic is known whatever happens to readings with QoS 0."""
    rng = random.Random(seed)
    made = []
    for number in range(count):
        last_round = count - number <= len(TOPICS)
        topic = TOPICS[number % len(TOPICS)] if last_round else rng.choice(TOPICS)
        payload = _payload(rng, number)
        if last_round:
            payload = json.dumps({"messageId": f"r{number:06}", "value": number}).encode()
        qos = rng.choice([1, 2]) if last_round else rng.choice([0, 1, 1, 2])
        made.append(Reading(number, topic, qos, payload))
    return made


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=10000)
    options = parser.parse_args()
    for reading in readings(options.seed, options.count):
        sys.stdout.write(reading.line())


if __name__ == "__main__":
    main()
