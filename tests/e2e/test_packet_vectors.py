# SPDX-License-Identifier: Apache-2.0
"""Every packet of tests/vectors that a client may send, sent to a running broker: what the codec accepts keeps the
connection alive, what it refuses ends it, on 5.0 with the reason the vector names. (C01, C03-C06, C09, C12, C34)"""
import json
import pathlib
import socket
from concurrent.futures import ThreadPoolExecutor

import mqtt_raw

VECTORS = pathlib.Path(__file__).parents[1] / "vectors"
BARRIER_ID = 65000  # of the UNSUBSCRIBE behind each packet: its answer says that the packet was taken
LARGEST = 65536  # bytes of a packet that a listener takes by default
CONNECT, DISCONNECT = 1, 14
AUTH_METHOD, TOPIC_ALIAS = 0x15, 0x23
RETAIN_UNAVAILABLE = b"\x25\x00"


def client_packets():
    """(file, vector) of the packets that a server reads and that are whole frames."""
    for path in sorted(VECTORS.glob("*.json")):
        for vector in json.loads(path.read_text())["vectors"]:
            wire = bytes.fromhex(vector["hex"])
            whole = vector.get("error", {}).get("why") not in ("not the length", "a byte", "longer than four")
            if vector["side"] == "server" and wire and whole and len(wire) < LARGEST:
                yield path.name, vector


def talk(port, number, vector):
    """Sends the vector behind a CONNECT (unless it is one), then an UNSUBSCRIBE, which the broker handles behind it;
    (whether that was answered, all that came back, the CONNACK before)."""
    wire = bytes.fromhex(vector["hex"])
    got = connack = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as sock:
        try:
            if wire[0] >> 4 != CONNECT:
                sock.sendall(v31_connect(number) if vector["version"] == 3 else
                             mqtt_raw.connect(f"vector-{number}", vector["version"]))
                connack = sock.recv(4096)
                assert connack[:1] == b"\x20"
            version = vector["packet"]["version"] if "client_id" in vector.get("packet", {}) else vector["version"]
            sock.sendall(wire + mqtt_raw.unsubscribe(BARRIER_ID, ["none"], 5 if version == 5 else 4))
            while BARRIER_ID.to_bytes(2, "big") not in got:
                more = sock.recv(4096)
                if not more:
                    return False, got, connack
                got += more
        except ConnectionError:
            return False, got, connack
    return True, got, connack


def v31_connect(number):
    body = mqtt_raw.text("MQIsdp") + bytes([3, 2, 0, 0]) + mqtt_raw.text(f"vector-{number}")
    return mqtt_raw.packet(CONNECT, 0, body)


def refused_by_the_session(vector, connack):
    """The reason with which the broker refuses what the codec takes: what depends on its settings, as announced."""
    fields = vector["packet"]
    props = dict((p[0], p[1]) for p in fields.get("props", []))
    if fields["type"] == "AUTH":
        return 0x82  # no authentication is going on
    if fields["type"] == "CONNECT" and AUTH_METHOD in props:
        return 0x8C  # no such method
    if fields["type"] == "PUBLISH" and fields["retain"] and RETAIN_UNAVAILABLE in connack:
        return 0x9A
    if fields["type"] == "CONNECT" and fields["version"] == 5 and fields.get("will", {}).get("retain"):
        return 0x9A  # a will that nobody could keep
    if fields["type"] == "PUBLISH" and TOPIC_ALIAS in props:
        return 0x94  # above the Topic Alias Maximum of the defaults, or unknown
    return None


def check_good(vector, alive, got, connack):
    reason = refused_by_the_session(vector, connack)
    if alive or vector["packet"]["type"] == "DISCONNECT":
        return None
    if reason is not None and got[-4:].find(bytes([reason])) >= 0:
        return None
    # A listener may want the first byte of a connection to be that of a plain CONNECT (C08).
    if vector["packet"]["type"] == "CONNECT" and vector["hex"][:2] != "10":
        return None
    return f"ended: {got.hex()}"


def check_bad(vector, alive, got, _connack):
    if alive:
        return f"still alive: {got.hex()}"
    wire = bytes.fromhex(vector["hex"])
    if vector["version"] != 5 or not got or wire[0] >> 4 == CONNECT:
        return None
    if got[0] >> 4 != DISCONNECT or got[2] != vector["error"]["rc"]:
        return f"want reason {vector['error']['rc']:02x}: {got.hex()}"
    return None


def test_every_vector_sent_to_a_broker_has_the_outcome_it_names(broker):
    rows = list(client_packets())
    assert len(rows) > 1500
    connects = [row for row in rows if row[1]["hex"][0] == "1"]  # they share client identifiers: one by one
    others = [row for row in rows if row[1]["hex"][0] != "1"]
    problems = []

    def one(numbered):
        number, (name, vector) = numbered
        fault = (check_good if "packet" in vector else check_bad)(vector, *talk(broker.port, number, vector))
        if fault:
            problems.append(f"{name}: {vector['name']}: {fault}")

    for row in enumerate(connects):
        one(row)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, enumerate(others, len(connects))))
    assert problems == [], "\n".join(problems[:40])
    with broker.client("afterwards") as client:
        client.send(mqtt_raw.pingreq())
        client.expect(mqtt_raw.PINGRESP)
