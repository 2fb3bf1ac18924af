# SPDX-License-Identifier: Apache-2.0
"""What the tests of the broker share: one broker for a whole file of cheap tests, and a check of refusals."""
import contextlib
import itertools
import pathlib

import pytest

import mqtt_raw
from sluice import Broker

_names = itertools.count()


def fresh(prefix="c"):
    """A client id (or topic) that no other test uses: tests of a file share a broker."""
    return f"{prefix}{next(_names)}"


@pytest.fixture(scope="module")
def shared(tmp_path_factory, request):
    """A broker for all tests of a file; SETTINGS of the file are its environment."""
    settings = getattr(request.module, "SETTINGS", None)
    one = Broker(tmp_path_factory.mktemp("shared") / "broker", settings).start()
    yield one
    problems = one.finish()
    assert not problems, "\n".join(problems)


def refused(client, *reasons, timeout=10.0):
    """The broker closes this connection: version 5 may be told why (only by one of these reasons), 3 may not.
    Returns what was sent besides."""
    packets = client.closed(timeout)
    last = packets[-1] if packets else None
    if client.version >= 5 and last and last.kind in (mqtt_raw.CONNACK, mqtt_raw.DISCONNECT):
        assert last.reason in reasons, f"reason {last.reason:#x}, expected one of {[hex(r) for r in reasons]}"
        packets.pop()
    assert all(pkt.kind not in (mqtt_raw.DISCONNECT, mqtt_raw.CONNACK) for pkt in packets), packets
    return packets


def alive(client):
    """The connection works: a ping is answered (after whatever came before it)."""
    client.send(mqtt_raw.pingreq())
    packets = []
    while not packets or packets[-1].kind != mqtt_raw.PINGRESP:
        packets.append(client.recv())
    return packets[:-1]


@contextlib.contextmanager
def witness(broker):
    """Nothing may be routed meanwhile, and the broker still serves at the end."""
    with broker.client(fresh("witness"), 5) as seen, broker.client(fresh("after"), 5) as other:
        seen.subscribe("#")
        yield
        other.publish("witness/end", b"end", 1)
        got = seen.receive()
        assert got.topic == "witness/end", f"routed: {got}"


def rss_kb(process):
    for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS")


def cpu_seconds(process):
    fields = pathlib.Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100


def sanitized(process):
    """True for a build with AddressSanitizer or ThreadSanitizer, whose memory says nothing."""
    with open(process.command[0], "rb") as program:
        text = program.read()
    return b"__asan_init" in text or b"__tsan_init" in text


def publish_many(client, topic, payloads, qos=1, window=200):
    """Publishes all payloads with a window of unacknowledged ones; returns when all are acknowledged."""
    sent, done, open_ids = 0, 0, {}
    payloads = list(payloads)
    while done < len(payloads):
        batch = []
        while sent < len(payloads) and len(open_ids) < window:
            packet_id = sent % 60000 + 1
            batch.append(mqtt_raw.publish(topic, payloads[sent], qos, packet_id, version=client.version))
            open_ids[packet_id] = sent
            sent += 1
        if batch:
            client.send(*batch)
        pkt = client.recv(30)
        if pkt.kind == mqtt_raw.PUBREC:
            assert pkt.reason < 0x80, pkt
            client.send(mqtt_raw.pubrel(pkt.packet_id))
        elif pkt.kind in (mqtt_raw.PUBACK, mqtt_raw.PUBCOMP):
            assert pkt.reason < 0x80, pkt
            del open_ids[pkt.packet_id]
            done += 1
    return done


def drain(client, count, timeout=30.0, distinct=True):
    """Receives and acknowledges until `count` (distinct) payloads have come; returns all packets in order."""
    got, seen = [], set()
    while len(seen if distinct else got) < count:
        pkt = client.recv(timeout)
        if pkt.kind == mqtt_raw.PUBLISH:
            got.append(pkt)
            seen.add(pkt.payload)
            if pkt.qos == 1:
                client.send(mqtt_raw.puback(pkt.packet_id))
            elif pkt.qos == 2:
                client.send(mqtt_raw.pubrec(pkt.packet_id))
        elif pkt.kind == mqtt_raw.PUBREL:
            client.send(mqtt_raw.pubcomp(pkt.packet_id))
        else:
            raise AssertionError(f"unexpected {pkt}")
    return got
