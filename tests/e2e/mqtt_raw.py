# SPDX-License-Identifier: Apache-2.0
"""A raw MQTT peer: every byte is in the test's hand, nothing is answered by itself.

encode functions give bytes, so a test can cut, change or join them; RawClient sends bytes and reads
packets as Packet objects. Knows 3.1.1 (level 4) and 5.0 (level 5) in both directions.
"""
import dataclasses
import socket
import struct
import time

(CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK,
 PINGREQ, PINGRESP, DISCONNECT, AUTH) = range(1, 16)
NAMES = ("RESERVED CONNECT CONNACK PUBLISH PUBACK PUBREC PUBREL PUBCOMP SUBSCRIBE SUBACK UNSUBSCRIBE "
         "UNSUBACK PINGREQ PINGRESP DISCONNECT AUTH").split()

# MQTT 5 properties: name -> (identifier, kind)
PROPERTIES = {
    "payload_format": (1, "byte"), "message_expiry": (2, "u32"), "content_type": (3, "text"),
    "response_topic": (8, "text"), "correlation_data": (9, "bytes"), "subscription_id": (11, "varint"),
    "session_expiry": (17, "u32"), "assigned_client_id": (18, "text"), "server_keep_alive": (19, "u16"),
    "auth_method": (21, "text"), "auth_data": (22, "bytes"), "request_problem": (23, "byte"),
    "will_delay": (24, "u32"), "request_response": (25, "byte"), "response_information": (26, "text"),
    "server_reference": (28, "text"), "reason": (31, "text"), "receive_maximum": (33, "u16"),
    "topic_alias_maximum": (34, "u16"), "topic_alias": (35, "u16"), "maximum_qos": (36, "byte"),
    "retain_available": (37, "byte"), "user": (38, "pair"), "maximum_packet_size": (39, "u32"),
    "wildcard_available": (40, "byte"), "subscription_id_available": (41, "byte"),
    "shared_available": (42, "byte"),
}
PROPERTY_BY_ID = {number: (name, kind) for name, (number, kind) in PROPERTIES.items()}
REPEATABLE = {"user", "subscription_id"}


def varint(number):
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


def text(value):
    """A length-prefixed string; bytes are taken as they are, so that bad UTF-8 can be sent."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(raw)) + raw


def _value(kind, value):
    if kind == "byte":
        return bytes([value])
    if kind == "u16":
        return struct.pack(">H", value)
    if kind == "u32":
        return struct.pack(">I", value)
    if kind == "varint":
        return varint(value)
    if kind == "pair":
        return text(value[0]) + text(value[1])
    return text(value)


def properties(props):
    """props: {name: value}; for user and subscription_id a list. Returns length and content."""
    out = b""
    for name, value in (props or {}).items():
        number, kind = PROPERTIES[name]
        for one in value if name in REPEATABLE and isinstance(value, list) else [value]:
            out += varint(number) + _value(kind, one)
    return varint(len(out)) + out


def packet(kind, flags, body):
    return bytes([kind << 4 | flags]) + varint(len(body)) + body


def connect(client_id="raw", version=4, clean=True, keep_alive=0, username=None, password=None, will=None,
            props=None, flags=None):
    """will: (topic, payload, qos, retain[, properties]). flags overrides the connect flags."""
    body = text("MQTT") + bytes([version])
    bits = 0x02 if clean else 0
    if will:
        bits |= 0x04 | will[2] << 3 | (0x20 if will[3] else 0)
    bits |= (0x80 if username is not None else 0) | (0x40 if password is not None else 0)
    body += bytes([bits if flags is None else flags]) + struct.pack(">H", keep_alive)
    if version >= 5:
        body += properties(props)
    body += text(client_id)
    if will:
        if version >= 5:
            body += properties(will[4] if len(will) > 4 else None)
        body += text(will[0]) + text(will[1])
    if username is not None:
        body += text(username)
    if password is not None:
        body += text(password)
    return packet(CONNECT, 0, body)


def publish(topic, payload=b"", qos=0, packet_id=0, retain=False, dup=False, version=4, props=None):
    payload = payload.encode() if isinstance(payload, str) else payload
    body = text(topic) + (struct.pack(">H", packet_id) if qos else b"")
    if version >= 5:
        body += properties(props)
    return packet(PUBLISH, (8 if dup else 0) | qos << 1 | int(retain), body + payload)


def ack(kind, packet_id, version=4, reason=None, props=None):
    body = struct.pack(">H", packet_id)
    if version >= 5 and (reason is not None or props):
        body += bytes([reason or 0]) + (properties(props) if props else b"")
    return packet(kind, 2 if kind == PUBREL else 0, body)


def puback(packet_id, **rest):
    return ack(PUBACK, packet_id, **rest)


def pubrec(packet_id, **rest):
    return ack(PUBREC, packet_id, **rest)


def pubrel(packet_id, **rest):
    return ack(PUBREL, packet_id, **rest)


def pubcomp(packet_id, **rest):
    return ack(PUBCOMP, packet_id, **rest)


def subscribe(packet_id, filters, version=4, props=None):
    """filters: [(filter, options byte)]; in 3.1.1 the options are the QoS."""
    body = struct.pack(">H", packet_id) + (properties(props) if version >= 5 else b"")
    return packet(SUBSCRIBE, 2, body + b"".join(text(f) + bytes([o]) for f, o in filters))


def unsubscribe(packet_id, filters, version=4, props=None):
    body = struct.pack(">H", packet_id) + (properties(props) if version >= 5 else b"")
    return packet(UNSUBSCRIBE, 2, body + b"".join(text(f) for f in filters))


def pingreq():
    return packet(PINGREQ, 0, b"")


def disconnect(version=4, reason=None, props=None):
    body = b"" if version < 5 or reason is None else bytes([reason]) + properties(props)
    return packet(DISCONNECT, 0, body)


@dataclasses.dataclass
class Packet:
    """A packet from the broker; only the fields of its type are set."""
    kind: int
    flags: int
    body: bytes
    packet_id: int = 0
    reason: int = 0  # CONNACK, acks, DISCONNECT
    codes: tuple = ()  # SUBACK, UNSUBACK
    session_present: bool = False
    topic: str = ""
    payload: bytes = b""
    props: dict = dataclasses.field(default_factory=dict)

    @property
    def name(self):
        return NAMES[self.kind]

    @property
    def qos(self):
        return self.flags >> 1 & 3

    @property
    def dup(self):
        return bool(self.flags & 8)

    @property
    def retain(self):
        return bool(self.flags & 1)


class _Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        if self.at + count > len(self.data):
            raise ValueError(f"packet body too short: {self.data!r}")
        self.at += count
        return self.data[self.at - count:self.at]

    def left(self):
        return len(self.data) - self.at

    def byte(self):
        return self.take(1)[0]

    def u16(self):
        return struct.unpack(">H", self.take(2))[0]

    def bytes(self):
        return self.take(self.u16())

    def text(self):
        return self.bytes().decode()

    def varint(self):
        number = shift = 0
        while True:
            byte = self.byte()
            number |= (byte & 127) << shift
            if not byte & 128:
                return number
            shift += 7

    def value(self, kind):
        if kind == "u32":
            return struct.unpack(">I", self.take(4))[0]
        if kind == "pair":
            return self.text(), self.text()
        return getattr(self, kind)()

    def properties(self):
        end = self.varint() + self.at
        props = {}
        while self.at < end:
            name, kind = PROPERTY_BY_ID[self.varint()]
            value = self.value(kind)
            if name in REPEATABLE:
                props.setdefault(name, []).append(value)
            elif name in props:
                raise ValueError(f"property {name} twice")
            else:
                props[name] = value
        return props


def decode(first, body, version):
    """The packet with this first byte and body; raises ValueError on anything malformed."""
    pkt = Packet(first >> 4, first & 15, body)
    read = _Reader(body)
    v5 = version >= 5
    if pkt.kind == CONNACK:
        pkt.session_present = bool(read.byte() & 1)
        pkt.reason = read.byte()
        pkt.props = read.properties() if v5 else {}
    elif pkt.kind == PUBLISH:
        pkt.topic = read.text()
        pkt.packet_id = read.u16() if pkt.qos else 0
        pkt.props = read.properties() if v5 else {}
        pkt.payload = read.take(read.left())
    elif pkt.kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        pkt.packet_id = read.u16()
        pkt.reason = read.byte() if v5 and read.left() else 0
        pkt.props = read.properties() if v5 and read.left() else {}
    elif pkt.kind in (SUBACK, UNSUBACK):
        pkt.packet_id = read.u16()
        pkt.props = read.properties() if v5 else {}
        pkt.codes = tuple(read.take(read.left()))
    elif pkt.kind in (DISCONNECT, AUTH):
        pkt.reason = read.byte() if read.left() else 0
        pkt.props = read.properties() if read.left() else {}
    elif pkt.kind != PINGRESP:
        raise ValueError(f"a broker sends no {pkt.name}")
    if read.left():
        raise ValueError(f"{pkt.name} has {read.left()} bytes too many: {body!r}")
    return pkt


class Closed(Exception):
    """The broker closed the connection."""


class RawClient:
    """One TCP connection to a broker."""

    def __init__(self, port, version=4, host="127.0.0.1", receive_buffer=None):
        self.version = version
        self.sock = socket.socket()
        if receive_buffer:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.sock.settimeout(10)
        self.sock.connect((host, port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def reset(self):
        """Ends the connection by RST, as a pulled cable would in the end."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def send(self, *packets):
        self.sock.sendall(b"".join(packets))

    def _fill(self, until):
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no packet in time")
        self.sock.settimeout(left)
        try:
            data = self.sock.recv(1 << 16)
        except ConnectionError as error:
            raise Closed(str(error)) from None
        except socket.timeout:
            raise TimeoutError("no packet in time") from None
        if not data:
            raise Closed("end of file")
        self.buffer += data

    def recv(self, timeout=10.0):
        """The next packet. Raises TimeoutError, or Closed when the broker closed first."""
        until = time.monotonic() + timeout
        while True:
            frame = self._frame()
            if frame:
                return decode(frame[0], frame[1], self.version)
            self._fill(until)

    def _frame(self):
        length = shift = 0
        for at in range(1, min(len(self.buffer), 5)):
            byte = self.buffer[at]
            length |= (byte & 127) << shift
            shift += 7
            if not byte & 128:
                end = at + 1 + length
                if len(self.buffer) < end:
                    return None
                first, body = self.buffer[0], self.buffer[at + 1:end]
                self.buffer = self.buffer[end:]
                return first, body
        return None

    def expect(self, kind, timeout=10.0, **fields):
        """The next packet, which must be of this kind and have these fields."""
        pkt = self.recv(timeout)
        assert pkt.kind == kind, f"expected {NAMES[kind]}, got {pkt}"
        for name, want in fields.items():
            assert getattr(pkt, name) == want, f"expected {name} {want!r}, got {pkt}"
        return pkt

    def quiet(self, seconds=0.3):
        """True when nothing arrives for that long."""
        try:
            pkt = self.recv(seconds)
        except TimeoutError:
            return True
        raise AssertionError(f"expected nothing, got {pkt}")

    def closed(self, timeout=10.0):
        """Waits for the broker to close; returns the packets that it sent before that."""
        packets = []
        until = time.monotonic() + timeout
        while True:
            try:
                packets.append(self.recv(until - time.monotonic()))
            except Closed:
                return packets

    # Whole exchanges, for tests whose subject is something else.
    def connect(self, client_id="raw", clean=True, want=0, **rest):
        self.send(connect(client_id, version=self.version, clean=clean, **rest))
        return self.expect(CONNACK, reason=want)

    def subscribe(self, filter_, options=0, packet_id=1, props=None):
        self.send(subscribe(packet_id, [(filter_, options)], self.version, props))
        return self.expect(SUBACK, packet_id=packet_id)

    def publish(self, topic, payload=b"", qos=0, packet_id=1, **rest):
        """Publishes and completes the acknowledgement."""
        self.send(publish(topic, payload, qos, packet_id, version=self.version, **rest))
        if qos == 1:
            return self.expect(PUBACK, packet_id=packet_id)
        if qos == 2:
            self.expect(PUBREC, packet_id=packet_id)
            self.send(pubrel(packet_id))
            return self.expect(PUBCOMP, packet_id=packet_id)
        return None

    def receive(self, timeout=10.0):
        """The next PUBLISH, acknowledged to its end."""
        pkt = self.expect(PUBLISH, timeout)
        if pkt.qos == 1:
            self.send(puback(pkt.packet_id))
        elif pkt.qos == 2:
            self.send(pubrec(pkt.packet_id))
            self.expect(PUBREL, timeout, packet_id=pkt.packet_id)
            self.send(pubcomp(pkt.packet_id))
        return pkt
