# SPDX-License-Identifier: Apache-2.0
"""Brokers for the gateway's tests: Mosquitto as a process, and one whose every answer is scripted."""
import collections
import shutil
import socket
import struct

import mqtt_raw
from process import Process, free_port


class Mosquitto(Process):
    """extra: further lines of mosquitto.conf."""

    def __init__(self, folder, extra=()):
        self.port = free_port()
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "mosquitto.conf"
        config.write_text("\n".join([f"listener {self.port} 127.0.0.1", "allow_anonymous true",
                                     "persistence false", *extra]) + "\n")
        super().__init__("mosquitto", [shutil.which("mosquitto", path="/usr/sbin:/usr/bin"), "-c", config], folder)

    def start(self, ready="running", timeout=20.0):
        return super().start(ready, timeout)

    def raw(self, version=4, **rest):
        return mqtt_raw.RawClient(self.port, version, **rest)

    def client(self, client_id, version=4, clean=True, **rest):
        client = self.raw(version)
        client.connect(client_id, clean, **rest)
        return client


Asked = collections.namedtuple("Asked", "packet_id filters")


class Connection:
    """The scripted broker's end of one connection (MQTT 5)."""

    def __init__(self, sock):
        self.sock = sock
        self.sock.settimeout(10)
        self.buffer = b""

    def close(self):
        self.sock.close()

    def send(self, *packets):
        self.sock.sendall(b"".join(packets))

    def recv(self, timeout=10.0):
        """(kind, first byte, body) of the next packet; None at the end of the connection."""
        self.sock.settimeout(timeout)
        while True:
            length = shift = 0
            for at in range(1, min(len(self.buffer), 5)):
                length |= (self.buffer[at] & 127) << shift
                shift += 7
                if self.buffer[at] & 128:
                    continue
                end = at + 1 + length
                if len(self.buffer) < end:
                    break
                first, body, self.buffer = self.buffer[0], self.buffer[at + 1:end], self.buffer[end:]
                return first >> 4, first, body
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionError:
                return None
            if not data:
                return None
            self.buffer += data

    def expect(self, kind, timeout=10.0):
        got = self.recv(timeout)
        assert got and got[0] == kind, f"expected {mqtt_raw.NAMES[kind]}, got {got}"
        return got[2]

    def quiet(self, seconds=0.5):
        """True when nothing but PINGREQ comes for that long."""
        try:
            while True:
                got = self.recv(seconds)
                assert got and got[0] == mqtt_raw.PINGREQ, f"expected nothing, got {got}"
        except socket.timeout:
            return True

    def accept_connect(self, session_present=False, reason=0):
        body = self.expect(mqtt_raw.CONNECT)
        self.send(mqtt_raw.packet(mqtt_raw.CONNACK, 0, bytes([session_present, reason, 0])))
        return body

    def _filters(self, kind, options):
        body = self.expect(kind)
        packet_id, = struct.unpack(">H", body[:2])
        at, filters = 3 + body[2], []  # behind packet id and properties
        while at < len(body):
            length, = struct.unpack(">H", body[at:at + 2])
            name = body[at + 2:at + 2 + length].decode()
            filters.append((name, body[at + 2 + length]) if options else name)
            at += 2 + length + options
        return Asked(packet_id, filters)

    def expect_subscribe(self):
        """Asked(packet_id, [(filter, options byte)])."""
        return self._filters(mqtt_raw.SUBSCRIBE, 1)

    def expect_unsubscribe(self):
        return self._filters(mqtt_raw.UNSUBSCRIBE, 0)

    def suback(self, asked, *codes):
        body = struct.pack(">HB", asked.packet_id, 0) + bytes(codes)
        self.send(mqtt_raw.packet(mqtt_raw.SUBACK, 0, body))

    def unsuback(self, asked):
        body = struct.pack(">HB", asked.packet_id, 0) + bytes(len(asked.filters))
        self.send(mqtt_raw.packet(mqtt_raw.UNSUBACK, 0, body))

    def publish(self, topic, payload, qos=1, packet_id=1, **rest):
        self.send(mqtt_raw.publish(topic, payload, qos, packet_id, version=5, **rest))

    def disconnect(self, reason):
        self.send(mqtt_raw.packet(mqtt_raw.DISCONNECT, 0, bytes([reason])))
        self.close()


class ScriptedBroker:
    """A listening socket; the test plays the broker."""

    def __init__(self):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def accept(self, timeout=10.0):
        self.listener.settimeout(timeout)
        return Connection(self.listener.accept()[0])

    def close(self):
        self.listener.close()
