#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the systematic packet vectors (*.json beside this file).

The rules of the standard are written down here a second time, in another language and without
looking at the C table, so that a slip in one of them shows. The JSON files are committed and are what the
tests read; run this only after changing it: `python3 tests/vectors/generate.py`. Vectors that were
found by hand go to a file of their own (README.md).
"""
import json
import pathlib

HERE = pathlib.Path(__file__).parent
V31, V311, V5 = 3, 4, 5
ALL = (V31, V311, V5)
NAMES = ["", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP", "SUBSCRIBE",
         "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH"]
CODE = {name: i for i, name in enumerate(NAMES) if name}


# ---- wire forms ----

def u16(n):
    return n.to_bytes(2, "big")


def u32(n):
    return n.to_bytes(4, "big")


def varint(n):
    out = bytearray()
    while True:
        n, low = divmod(n, 128)
        out.append(low | (0x80 if n else 0))
        if not n:
            return bytes(out)


def raw(data):
    data = data.encode() if isinstance(data, str) else data
    return u16(len(data)) + data


def packet(name, body=b"", flags=None):
    if flags is None:
        flags = 2 if name in ("PUBREL", "SUBSCRIBE", "UNSUBSCRIBE") else 0
    return bytes([CODE[name] << 4 | flags]) + varint(len(body)) + body


# ---- properties: id -> (kind, packets, a good value, bad values with their reason code) ----

ACKS = "PUBACK PUBREC PUBREL PUBCOMP SUBACK UNSUBACK"
EVERY = "CONNECT WILL CONNACK PUBLISH SUBSCRIBE UNSUBSCRIBE DISCONNECT AUTH " + ACKS
BAD_TOPIC = [("a/+", 0x82, "[MQTT-3.3.2-14]"), ("#", 0x82, "[MQTT-3.3.2-14]"), ("", 0x82, "[MQTT-4.7.3-1]")]
BOOL = [(2, 0x82, "neither 0 nor 1"), (255, 0x82, "neither 0 nor 1")]
ZERO = [(0, 0x82, "is 0")]
PROPS = {
    0x01: ("byte", "PUBLISH WILL", 1, BOOL),
    0x02: ("u32", "PUBLISH WILL", 120, []),
    0x03: ("text", "PUBLISH WILL", "application/json", []),
    0x08: ("text", "PUBLISH WILL", "answers/7", BAD_TOPIC),
    0x09: ("data", "PUBLISH WILL", b"\x00\xff\x01", []),
    0x0B: ("varint", "PUBLISH SUBSCRIBE", 268435455, ZERO),
    0x11: ("u32", "CONNECT CONNACK DISCONNECT", 0xFFFFFFFF, []),
    0x12: ("text", "CONNACK", "auto-1", []),
    0x13: ("u16", "CONNACK", 30, []),
    0x15: ("text", "CONNECT CONNACK AUTH", "SCRAM-SHA-256", []),
    0x16: ("data", "CONNECT CONNACK AUTH", b"n,,n=user", []),
    0x17: ("byte", "CONNECT", 0, BOOL),
    0x18: ("u32", "WILL", 60, []),
    0x19: ("byte", "CONNECT", 1, BOOL),
    0x1A: ("text", "CONNACK", "answers/", []),
    0x1C: ("text", "CONNACK DISCONNECT", "other.example:1883", []),
    0x1F: ("text", "CONNACK DISCONNECT AUTH " + ACKS, "because", []),
    0x21: ("u16", "CONNECT CONNACK", 20, ZERO),
    0x22: ("u16", "CONNECT CONNACK", 10, []),
    0x23: ("u16", "PUBLISH", 3, [(0, 0x94, "[MQTT-3.3.2-8]")]),
    0x24: ("byte", "CONNACK", 1, BOOL),
    0x25: ("byte", "CONNACK", 0, BOOL),
    0x26: ("pair", EVERY, ("name", "value"), []),
    0x27: ("u32", "CONNECT CONNACK", 65536, ZERO),
    0x28: ("byte", "CONNACK", 1, BOOL),
    0x29: ("byte", "CONNACK", 1, BOOL),
    0x2A: ("byte", "CONNACK", 0, BOOL),
}


def prop(pid, value):
    kind = PROPS[pid][0]
    head = varint(pid)
    if kind == "byte":
        return head + bytes([value])
    if kind == "u16":
        return head + u16(value)
    if kind == "u32":
        return head + u32(value)
    if kind == "varint":
        return head + varint(value)
    if kind == "pair":
        return head + raw(value[0]) + raw(value[1])
    return head + raw(value)


def shown(pid, value):
    """A property as the runner shows it."""
    kind = PROPS[pid][0]
    if kind == "data":
        return [pid, value.hex()]
    if kind == "pair":
        return [pid, value[0], value[1]]
    return [pid, value]


def props_wire(items):
    body = b"".join(prop(pid, value) for pid, value in items)
    return varint(len(body)) + body


def props_shown(items):
    return [shown(pid, value) for pid, value in items]


# ---- packets from fields ----

def connect(version=V311, clean=True, keep=60, cid="c1", will=None, user=None, password=None, props=(),
            flags=None, flag_or=0, name=None, level=None, tail=b"", header=0):
    bits = (2 if clean else 0) | flag_or
    if will:
        bits |= 4 | will.get("qos", 0) << 3 | (32 if will.get("retain") else 0)
    bits |= (128 if user is not None else 0) | (64 if password is not None else 0)
    body = raw(name if name is not None else ("MQIsdp" if version == V31 else "MQTT"))
    body += bytes([version if level is None else level, bits if flags is None else flags]) + u16(keep)
    if version == V5:
        body += props_wire(props)
    body += raw(cid)
    if will:
        if version == V5:
            body += props_wire(will.get("props", ()))
        body += raw(will["topic"]) + raw(will.get("payload", b""))
    if user is not None:
        body += raw(user)
    if password is not None:
        body += raw(password)
    return packet("CONNECT", body + tail, header)


def connect_shown(version=V311, clean=True, keep=60, cid="c1", will=None, user=None, password=None, props=()):
    out = {"type": "CONNECT", "version": version, "clean_start": clean, "keep_alive": keep, "client_id": cid}
    if will:
        out["will"] = {"topic": will["topic"], "payload": will.get("payload", b"").hex(),
                       "qos": will.get("qos", 0), "retain": bool(will.get("retain")),
                       "props": props_shown(will.get("props", ()))}
    if user is not None:
        out["username"] = user
    if password is not None:
        out["password"] = password.hex()
    out["props"] = props_shown(props)
    return out


def publish(version, topic="a/b", payload=b"x", qos=0, dup=False, retain=False, pid=7, props=(), flags=None):
    body = raw(topic) + (u16(pid) if qos else b"")
    if version == V5:
        body += props_wire(props)
    bits = (8 if dup else 0) | qos << 1 | (1 if retain else 0)
    return packet("PUBLISH", body + payload, bits if flags is None else flags)


def publish_shown(topic="a/b", payload=b"x", qos=0, dup=False, retain=False, pid=7, props=()):
    return {"type": "PUBLISH", "dup": dup, "qos": qos, "retain": retain, "packet_id": pid if qos else 0,
            "topic": topic, "payload": payload.hex(), "props": props_shown(props)}


def sub_byte(opt):
    return opt.get("qos", 0) | (4 if opt.get("nl") else 0) | (8 if opt.get("rap") else 0) | opt.get("rh", 0) << 4


def subscribe(version, filters, pid=9, props=(), flags=None):
    body = u16(pid) + (props_wire(props) if version == V5 else b"")
    for opt in filters:
        body += raw(opt["filter"]) + bytes([opt.get("byte", sub_byte(opt))])
    return packet("SUBSCRIBE", body, flags)


def subscribe_shown(filters, pid=9, props=()):
    return {"type": "SUBSCRIBE", "packet_id": pid, "props": props_shown(props),
            "filters": [{"filter": o["filter"], "qos": o.get("qos", 0), "nl": bool(o.get("nl")),
                         "rap": bool(o.get("rap")), "rh": o.get("rh", 0)} for o in filters]}


def unsubscribe(version, filters, pid=9, props=(), flags=None):
    body = u16(pid) + (props_wire(props) if version == V5 else b"")
    return packet("UNSUBSCRIBE", body + b"".join(raw(f) for f in filters), flags)


def suback(name, version, reasons, pid=9, props=()):
    body = u16(pid) + (props_wire(props) if version == V5 else b"")
    if not (name == "UNSUBACK" and version != V5):
        body += bytes(reasons)
    return packet(name, body)


# ---- the vectors ----

FILES = {}


class Book:
    """One JSON file."""

    def __init__(self, name, purpose):
        self.rows = []
        self.seen = set()
        FILES[name] = (purpose, self.rows)

    def _add(self, row):
        assert row["name"] not in self.seen, row["name"]
        self.seen.add(row["name"])
        self.rows.append(row)

    def good(self, name, version, side, wire, fields, why="", recode=True):
        row = {"name": name, "version": version, "side": side, "hex": wire.hex(), "packet": fields}
        if why:
            row["comment"] = why
        if not recode:
            row["recode"] = False  # legal, but not the form that we write
        self._add(row)

    def bad(self, name, version, side, wire, err, rc, why, comment=""):
        row = {"name": name, "version": version, "side": side, "hex": wire.hex(),
               "error": {"err": err, "rc": rc, "why": why}}
        if comment:
            row["comment"] = comment
        self._add(row)

    def malformed(self, name, version, side, wire, why, comment=""):
        self.bad(name, version, side, wire, "EMALFORMED", 0x81, why, comment)

    def violation(self, name, version, side, wire, why, comment="", rc=0x82):
        self.bad(name, version, side, wire, "EPROTOCOL", rc, why, comment)


def text_of(version):
    return {V31: "3.1", V311: "3.1.1", V5: "5.0"}[version]


BAD_UTF8 = {
    "a NUL": b"a\x00b", "an overlong NUL": b"\xc0\x80", "an overlong slash": b"\xe0\x80\xaf",
    "an overlong four byte form": b"\xf0\x80\x80\xaf", "a high surrogate": b"\xed\xa0\x80",
    "a low surrogate": b"\xed\xbf\xbf", "a code point over U+10FFFF": b"\xf4\x90\x80\x80",
    "bytes that begin nothing": b"\xff\xfe", "a lone continuation byte": b"\x80",
    "a cut-off character": b"\xe2\x82", "a cut-off character behind ASCII": b"abcdefghijk\xe2\x82",
    "a bad byte behind a whole word": b"abcdefgh\xc3(", "an invalid lead byte": b"\xf5\x80\x80\x80",
}
GOOD_UTF8 = {
    "a byte order mark": "\ufeffa", "control characters": "a\x01\x1f\x7fb", "a C1 control": "a\u0085b",
    "a non-character": "\uffff", "the last code point": "\U0010ffff", "an emoji": "\U0001f600/x",
    "the code point before surrogates": "\ud7ff", "the code point after surrogates": "\ue000",
    "accents": "é/ü/ß", "long mixed text": "0123456789abcdefé0123456789abcdef€0123456789",
}


def connect_vectors():
    b = Book("connect", "CONNECT of 3.1, 3.1.1 and 5.0 (cases C01, C03, C04, C06)")
    utf8 = "[MQTT-1.5.4-1]"
    for v in ALL:
        t = text_of(v)
        for clean in (True, False):
            for keep in (0, 1, 65535):
                kw = dict(version=v, clean=clean, keep=keep)
                b.good(f"{t} clean={int(clean)} keep alive {keep}", v, "server", connect(**kw), connect_shown(**kw))
        for qos in (0, 1, 2):
            for retain in (False, True):
                for payload in (b"", b"\x00gone\xff"):
                    kw = dict(version=v, will=dict(topic="w/t", payload=payload, qos=qos, retain=retain))
                    b.good(f"{t} will QoS {qos} retain {int(retain)} payload of {len(payload)} bytes", v, "server",
                           connect(**kw), connect_shown(**kw))
        kw = dict(version=v, user="u", password=b"\x00\xff")
        b.good(f"{t} user name and binary password", v, "server", connect(**kw), connect_shown(**kw))
        kw = dict(version=v, user="")
        b.good(f"{t} empty user name", v, "server", connect(**kw), connect_shown(**kw))
        kw = dict(version=v, user="u", password=b"")
        b.good(f"{t} empty password", v, "server", connect(**kw), connect_shown(**kw))
        kw = dict(version=v, user="u", password=b"p", will=dict(topic="w", payload=b"x", qos=1))
        b.good(f"{t} everything", v, "server", connect(**kw), connect_shown(**kw))
        kw = dict(version=v, cid="c" * 300)
        b.good(f"{t} client identifier of 300 bytes", v, "server", connect(**kw), connect_shown(**kw))
        for label, text in GOOD_UTF8.items():
            kw = dict(version=v, cid=text)
            b.good(f"{t} client identifier with {label}", v, "server", connect(**kw), connect_shown(**kw),
                   "C01: kept as it is [MQTT-1.5.4-3]")
        for label, text in BAD_UTF8.items():
            b.malformed(f"{t} client identifier with {label}", v, "server", connect(version=v, cid=text), utf8, "C01")
            b.malformed(f"{t} user name with {label}", v, "server", connect(version=v, user=text), utf8, "C01")
            b.malformed(f"{t} will topic with {label}", v, "server", connect(version=v, will=dict(topic=text)), utf8,
                        "C01")
        for topic in ("a/+", "#", "a#"):
            b.bad(f"{t} will topic {topic}", v, "server", connect(version=v, will=dict(topic=topic)), "EMALFORMED",
                  0x90, "[MQTT-4.7.1-1]")
        b.bad(f"{t} empty will topic", v, "server", connect(version=v, will=dict(topic="")), "EMALFORMED", 0x90,
              "[MQTT-4.7.3-1]")
        b.malformed(f"{t} will QoS 3", v, "server", connect(version=v, will=dict(topic="w", qos=3)), "[MQTT-3.1.2-12]",
                    "C03")
        b.malformed(f"{t} bytes behind the end", v, "server", connect(version=v, tail=b"\x00"), "behind the last field")
        whole = connect(version=v, will=dict(topic="w", payload=b"12345"))
        b.malformed(f"{t} will payload ends early", v, "server", packet("CONNECT", whole[2:-3], 0), "beyond the packet",
                    "C03")
        b.malformed(f"{t} will flag without will fields", v, "server", connect(version=v, flags=0x06),
                    "ends", "C03")
        b.malformed(f"{t} empty body", v, "server", packet("CONNECT"), "ends inside a length")
        loose = v == V31
        for label, flags in (("will QoS 1", 0x0A), ("will QoS 2", 0x12), ("will QoS 3", 0x1A), ("will retain", 0x22)):
            clause = "[MQTT-3.1.2-13]" if flags == 0x22 else "[MQTT-3.1.2-11]"
            wire = connect(version=v, flags=flags)
            if loose:
                b.good(f"{t} {label} without a will", v, "server", wire, connect_shown(version=v),
                       "C03: unused bits in 3.1", recode=False)
            else:
                b.malformed(f"{t} {label} without a will", v, "server", wire, clause, "C03")
        wire = connect(version=v, flags=0x03)
        if loose:
            b.good(f"{t} reserved flag", v, "server", wire, connect_shown(version=v), "C03: unused in 3.1", recode=False)
        else:
            b.malformed(f"{t} reserved flag", v, "server", wire, "[MQTT-3.1.2-3]", "C03")
        wire = connect(version=v, password=b"p")
        if v == V5:
            b.good(f"{t} password without a user name", v, "server", wire, connect_shown(version=v, password=b"p"),
                   "C04: a token as password")
        else:
            b.malformed(f"{t} password without a user name", v, "server", wire, "[MQTT-3.1.2-22]", "C04")
        for label, flags in (("user name", 0x82), ("user name and password", 0xC2)):
            wire = connect(version=v, flags=flags)
            if loose:
                b.good(f"{t} {label} flagged but not there", v, "server", wire, connect_shown(version=v),
                       "3.1 lets the remaining length decide", recode=False)
            else:
                b.malformed(f"{t} {label} flagged but not there", v, "server", wire, "ends inside a length", "C04")
        wire = connect(version=v, user="u", flags=0xC2)
        if loose:
            b.good(f"{t} password flagged but not there", v, "server", wire, connect_shown(version=v, user="u"),
                   "3.1 lets the remaining length decide", recode=False)
        else:
            b.malformed(f"{t} password flagged but not there", v, "server", wire, "ends inside a length", "C04")
        b.malformed(f"{t} user name cut off", v, "server", connect(version=v, flags=0x82, tail=b"\x00\x05ab"),
                    "beyond the packet", "C04")
        for flags in (1, 2, 4, 8):
            wire = connect(version=v, header=flags)
            if loose:
                b.good(f"{t} fixed header flags {flags}", v, "server", wire, connect_shown(version=v),
                       "unused in 3.1", recode=False)
            else:
                b.malformed(f"{t} fixed header flags {flags}", v, "server", wire, "[MQTT-2.1.3-1]")
        padded = connect(version=v)
        padded = padded[:1] + bytes([padded[1] | 0x80, 0x00]) + padded[2:]
        if v == V5:
            b.good(f"{t} remaining length in two bytes", v, "server", padded, connect_shown(version=v),
                   "the version is known too late to refuse it", recode=False)
        else:
            b.good(f"{t} remaining length in two bytes", v, "server", padded, connect_shown(version=v),
                   "3.x does not ask for the shortest form", recode=False)
    # empty client identifiers
    for clean in (True, False):
        kw = dict(version=V5, cid="", clean=clean)
        b.good(f"5.0 empty client identifier clean={int(clean)}", V5, "server", connect(**kw), connect_shown(**kw), "C02")
        b.violation(f"3.1 empty client identifier clean={int(clean)}", V31, "server",
                    connect(version=V31, cid="", clean=clean), "client identifier is empty", "C02", rc=0x85)
    b.good("3.1.1 empty client identifier clean=1", V311, "server", connect(cid=""), connect_shown(cid=""), "C02")
    b.violation("3.1.1 empty client identifier clean=0", V311, "server", connect(cid="", clean=False),
                "[MQTT-3.1.3-8]", "C02", rc=0x85)
    # protocol names and levels
    for name, level in (("MQTT", 3), ("MQTT", 6), ("MQTT", 0), ("MQTT", 0x84), ("MQIsdp", 4), ("MQIsdp", 5),
                        ("MQIsdp", 2)):
        b.violation(f"{name} level {level}", V311, "server", connect(name=name, level=level), "[MQTT-3.1.2-2]", rc=0x84)
    for name in ("mqtt", "MQTT5", "HTTP", ""):
        b.violation(f"protocol name '{name}'", V311, "server", connect(name=name), "[MQTT-3.1.2-1]", rc=0x84)
    b.malformed("protocol name cut off", V311, "server", packet("CONNECT", b"\x00\x04MQ"), "beyond the packet")
    b.malformed("nothing behind the protocol name", V311, "server", packet("CONNECT", raw("MQTT")), "ends before a byte")
    b.malformed("nothing behind the level", V311, "server", packet("CONNECT", raw("MQTT") + b"\x04"),
                "ends before a byte")
    b.malformed("keep alive cut off", V311, "server", packet("CONNECT", raw("MQTT") + b"\x04\x02\x00"),
                "two byte integer")
    b.malformed("5.0 without a property length", V5, "server", packet("CONNECT", raw("MQTT") + b"\x05\x02\x00\x00"),
                "variable byte integer")
    b.malformed("5.0 will with properties beyond the packet", V5, "server",
                packet("CONNECT", raw("MQTT") + b"\x05\x06\x00\x00\x00" + raw("c") + b"\x7f"), "property length")
    b.violation("a client is sent CONNECT", V5, "client", connect(version=V5), "other direction")


HOLDERS = {  # how to put properties into each packet: (side, build, shown)
    "CONNECT": ("server", lambda p: connect(version=V5, props=p), lambda p: connect_shown(version=V5, props=p)),
    "WILL": ("server", lambda p: connect(version=V5, will=dict(topic="w", props=p)),
             lambda p: connect_shown(version=V5, will=dict(topic="w", props=p))),
    "CONNACK": ("client", lambda p: packet("CONNACK", b"\x00\x00" + props_wire(p)),
                lambda p: {"type": "CONNACK", "session_present": False, "reason": 0, "props": props_shown(p)}),
    "PUBLISH": ("client", lambda p: publish(V5, props=p), lambda p: publish_shown(props=p)),
    "SUBSCRIBE": ("server", lambda p: subscribe(V5, [{"filter": "a"}], props=p),
                  lambda p: subscribe_shown([{"filter": "a"}], props=p)),
    "UNSUBSCRIBE": ("server", lambda p: unsubscribe(V5, ["a"], props=p),
                    lambda p: {"type": "UNSUBSCRIBE", "packet_id": 9, "filters": ["a"], "props": props_shown(p)}),
    "SUBACK": ("client", lambda p: suback("SUBACK", V5, [0], props=p),
               lambda p: {"type": "SUBACK", "packet_id": 9, "reasons": [0], "props": props_shown(p)}),
    "UNSUBACK": ("client", lambda p: suback("UNSUBACK", V5, [0], props=p),
                 lambda p: {"type": "UNSUBACK", "packet_id": 9, "reasons": [0], "props": props_shown(p)}),
    "DISCONNECT": ("client", lambda p: packet("DISCONNECT", b"\x80" + props_wire(p)),
                   lambda p: {"type": "DISCONNECT", "reason": 0x80, "props": props_shown(p)}),
    "AUTH": ("server", lambda p: packet("AUTH", b"\x18" + props_wire(p)),
             lambda p: {"type": "AUTH", "reason": 0x18, "props": props_shown(p)}),
}
for _name in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"):
    HOLDERS[_name] = ("client", lambda p, n=_name: packet(n, u16(7) + b"\x00" + props_wire(p)),
                      lambda p, n=_name: {"type": n, "packet_id": 7, "reason": 0, "props": props_shown(p)})


def companions(holder, pid):
    """Other properties without which this one would be refused for another reason."""
    if holder == "AUTH" and pid != 0x15:
        return [(0x15, "m")]
    if pid == 0x16:
        return [(0x15, "m")]
    return []


def property_vectors():
    b = Book("properties", "each of the 27 properties in each packet: allowed, twice, bad value, not allowed "
                           "(2.2.2.2; cases C34, C35, C40)")
    for holder, (side, build, show) in HOLDERS.items():
        for pid, (kind, where, good, bads) in PROPS.items():
            label = f"{holder} property 0x{pid:02X}"
            extra = companions(holder, pid)
            allowed = holder in where.split()
            if holder == "DISCONNECT" and pid == 0x11:
                b.violation(f"{label} from a server", V5, side, build([(pid, good)]), "[MQTT-3.14.2-2]")
                wire = packet("DISCONNECT", b"\x00" + props_wire([(pid, good)]))
                b.good(f"{label} from a client", V5, "server", wire,
                       {"type": "DISCONNECT", "reason": 0, "props": props_shown([(pid, good)])})
                continue
            if not allowed:
                b.malformed(f"{label} does not belong", V5, side, build(extra + [(pid, good)]), "does not belong")
                continue
            items = extra + [(pid, good)]
            b.good(f"{label}", V5, side, build(items), show(items))
            twice = extra + [(pid, good), (pid, good)]
            if pid == 0x26 or (pid == 0x0B and holder == "PUBLISH"):
                b.good(f"{label} twice", V5, side, build(twice), show(twice))
            else:
                b.violation(f"{label} twice", V5, side, build(twice), "twice")
            for value, rc, why in bads:
                b.violation(f"{label} = {value!r}", V5, side, build(extra + [(pid, value)]), why, rc=rc)
            if kind == "text" or kind == "pair":
                for what, text in BAD_UTF8.items():
                    value = (text, "v") if kind == "pair" else text
                    b.malformed(f"{label} with {what}", V5, side, build(extra + [(pid, value)]), "[MQTT-1.5.4-1]", "C01")
            if kind == "pair":
                for what, text in BAD_UTF8.items():
                    b.malformed(f"{label} value with {what}", V5, side, build(extra + [(pid, ("n", text))]),
                                "[MQTT-1.5.4-1]", "C01")
                items = extra + [(pid, ("", "")), (pid, ("n", "1")), (pid, ("n", "2")), (pid, ("é", "\ufeff"))]
                b.good(f"{label} repeated names in order", V5, side, build(items), show(items), "order is kept")
    for holder in ("CONNECT", "CONNACK", "AUTH"):
        side, build, show = HOLDERS[holder]
        b.violation(f"{holder} authentication data without a method", V5, side, build([(0x16, b"x")]),
                    "without a method")
    b.violation("PUBLISH from a client with a subscription identifier", V5, "server",
                publish(V5, props=[(0x0B, 5)]), "[MQTT-3.3.4-6]", "C35")
    many = [(pid, PROPS[pid][2]) for pid in PROPS if "PUBLISH" in PROPS[pid][1].split()]
    b.good("PUBLISH with all of its properties", V5, "client", publish(V5, props=many), publish_shown(props=many))
    ids = [(0x0B, n) for n in (1, 127, 128, 16383, 16384, 2097151, 2097152, 268435455)]
    b.good("PUBLISH with eight subscription identifiers", V5, "client", publish(V5, props=ids), publish_shown(props=ids))
    many = [(pid, PROPS[pid][2]) for pid in PROPS if "CONNACK" in PROPS[pid][1].split()]
    b.good("CONNACK with all of its properties", V5, "client", HOLDERS["CONNACK"][1](many), HOLDERS["CONNACK"][2](many))
    many = [(pid, PROPS[pid][2]) for pid in PROPS if "CONNECT" in PROPS[pid][1].split()]
    b.good("CONNECT with all of its properties", V5, "server", HOLDERS["CONNECT"][1](many), HOLDERS["CONNECT"][2](many))
    many = [(pid, PROPS[pid][2]) for pid in PROPS if "WILL" in PROPS[pid][1].split()]
    b.good("will with all of its properties", V5, "server", HOLDERS["WILL"][1](many), HOLDERS["WILL"][2](many))
    for pid in (0x00, 0x04, 0x0A, 0x10, 0x14, 0x1B, 0x2B, 0x7F):
        b.malformed(f"unknown property 0x{pid:02X}", V5, "client", packet("PUBLISH", raw("t") + b"\x02" + bytes([pid, 0])),
                    "unknown")
    b.malformed("property identifier in two bytes", V5, "client", packet("PUBLISH", raw("t") + b"\x03\x81\x00\x01"),
                "shortest form")
    b.malformed("large property identifier", V5, "client", packet("PUBLISH", raw("t") + b"\x03\x81\x01\x01"), "unknown")
    b.malformed("property length in two bytes", V5, "client", packet("PUBLISH", raw("t") + b"\x82\x00\x01\x01"),
                "[MQTT-1.5.5-1]")
    b.malformed("property length 0 in two bytes", V5, "client", packet("PUBLISH", raw("t") + b"\x80\x00"),
                "[MQTT-1.5.5-1]")
    b.malformed("property length of five bytes", V5, "client",
                packet("PUBLISH", raw("t") + b"\x80\x80\x80\x80\x01"), "longer than four")
    b.malformed("property length missing", V5, "client", packet("PUBLISH", raw("t")), "variable byte integer", "C06")
    b.malformed("property length cut off", V5, "client", packet("PUBLISH", raw("t") + b"\x80"), "variable byte integer")
    b.malformed("property length beyond the packet", V5, "client", packet("PUBLISH", raw("t") + b"\x05\x01\x01"),
                "property length")
    b.malformed("byte property without its byte", V5, "client", packet("PUBLISH", raw("t") + b"\x01\x01"), "a byte")
    b.malformed("property crosses the end of the properties", V5, "client",
                packet("PUBLISH", raw("t") + b"\x03\x02\x00\x00\x00\x01"), "four byte integer")
    b.malformed("two byte property cut off", V5, "client", packet("PUBLISH", raw("t") + b"\x02\x23\x00"),
                "two byte integer")
    b.malformed("text property cut off", V5, "client", packet("PUBLISH", raw("t") + b"\x04\x03\x00\x05a"),
                "beyond the packet")
    b.malformed("user property without a value", V5, "client", packet("PUBLISH", raw("t") + b"\x04\x26\x00\x01n"),
                "inside a length")
    b.malformed("subscription identifier in two bytes for 1", V5, "client",
                packet("PUBLISH", raw("t") + b"\x03\x0b\x81\x00"), "[MQTT-1.5.5-1]")
    b.malformed("subscription identifier of five bytes", V5, "client",
                packet("PUBLISH", raw("t") + b"\x06\x0b\x80\x80\x80\x80\x01"), "longer than four")


def publish_vectors():
    b = Book("publish", "PUBLISH of all versions and both directions (cases C01, C06, C34)")
    for v in ALL:
        t = text_of(v)
        for side in ("server", "client"):
            for qos in (0, 1, 2):
                for dup in ((False, True) if qos else (False,)):
                    for retain in (False, True):
                        kw = dict(qos=qos, dup=dup, retain=retain)
                        b.good(f"{t} {side} reads QoS {qos} dup {int(dup)} retain {int(retain)}", v, side,
                               publish(v, **kw), publish_shown(**kw))
        for size in (0, 1, 120, 127, 128, 300, 16383, 16384):
            kw = dict(payload=bytes(i & 255 for i in range(size)))
            b.good(f"{t} payload of {size} bytes", v, "server", publish(v, **kw), publish_shown(**kw))
        for topic in ("/", "//", "a", "a/", "/a", "a//b", "$SYS/x", "$share/g/t", " ", "a b", "$"):
            b.good(f"{t} topic '{topic}'", v, "server", publish(v, topic=topic), publish_shown(topic=topic))
        kw = dict(topic="x" * 65535)
        if v == V311:
            b.good(f"{t} topic of 65535 bytes", v, "server", publish(v, **kw), publish_shown(**kw))
        for label, text in GOOD_UTF8.items():
            b.good(f"{t} topic with {label}", v, "server", publish(v, topic=text), publish_shown(topic=text), "C01")
        for label, text in BAD_UTF8.items():
            b.malformed(f"{t} topic with {label}", v, "server", publish(v, topic=text), "[MQTT-1.5.4-1]", "C01")
        for topic in ("#", "+", "a/#", "a/+/b", "a+", "abcdefgh#", "abcdefghi/+/jklmnopq"):
            b.bad(f"{t} topic '{topic}'", v, "server", publish(v, topic=topic), "EMALFORMED", 0x90, "[MQTT-3.3.2-2]")
        for pid in (1, 255, 256, 65535):
            b.good(f"{t} packet identifier {pid}", v, "server", publish(v, qos=1, pid=pid), publish_shown(qos=1, pid=pid))
        for qos in (1, 2):
            b.violation(f"{t} packet identifier 0 with QoS {qos}", v, "server", publish(v, qos=qos, pid=0),
                        "[MQTT-2.2.1-3]")
        for flags in (6, 7, 14, 15):
            b.malformed(f"{t} QoS 3 flags {flags}", v, "server", publish(v, qos=1, flags=flags), "[MQTT-3.3.1-4]", "C06")
        for flags in (8, 9):
            b.malformed(f"{t} DUP with QoS 0 flags {flags}", v, "server", publish(v, flags=flags), "[MQTT-3.3.1-2]", "C06")
        b.malformed(f"{t} QoS 1 ends behind the topic", v, "server", packet("PUBLISH", raw("a/b"), 2), "two byte integer",
                    "C06")
        b.malformed(f"{t} QoS 1 ends inside the packet identifier", v, "server", packet("PUBLISH", raw("a/b") + b"\x00", 2),
                    "two byte integer", "C06")
        b.malformed(f"{t} topic longer than the packet", v, "server", packet("PUBLISH", b"\x00\x09abc"),
                    "beyond the packet", "C06")
        b.malformed(f"{t} topic length cut off", v, "server", packet("PUBLISH", b"\x00"), "inside a length", "C06")
        b.malformed(f"{t} empty body", v, "server", packet("PUBLISH"), "inside a length", "C06")
        if v != V5:
            b.bad(f"{t} empty topic", v, "server", publish(v, topic=""), "EMALFORMED", 0x90, "[MQTT-4.7.3-1]")
        wire = publish(v)
        padded = wire[:1] + bytes([wire[1] | 0x80, 0x80, 0x00]) + wire[2:]
        if v == V5:
            b.malformed(f"{t} remaining length in three bytes", v, "server", padded, "[MQTT-1.5.5-1]")
        else:
            b.good(f"{t} remaining length in three bytes", v, "server", padded, publish_shown(),
                   "3.x does not ask for the shortest form", recode=False)
    b.violation("5.0 empty topic without an alias", V5, "server", publish(V5, topic=""), "no alias", "C34")
    for alias in (1, 65535):
        p = [(0x23, alias)]
        b.good(f"5.0 empty topic with alias {alias}", V5, "server", publish(V5, topic="", props=p),
               publish_shown(topic="", props=p), "C34")
        b.good(f"5.0 topic with alias {alias}", V5, "server", publish(V5, props=p), publish_shown(props=p), "C34")
    b.violation("5.0 empty topic with alias 0", V5, "server", publish(V5, topic="", props=[(0x23, 0)]),
                "[MQTT-3.3.2-8]", "C34", rc=0x94)
    b.malformed("5.0 ends behind the topic", V5, "server", packet("PUBLISH", raw("a")), "variable byte integer", "C06")


def ack_vectors():
    b = Book("acks", "PUBACK, PUBREC, PUBREL, PUBCOMP (case C09)")
    codes = {"PUBACK": [0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99], "PUBREL": [0x00, 0x92]}
    codes["PUBREC"] = codes["PUBACK"]
    codes["PUBCOMP"] = codes["PUBREL"]
    for name in ("PUBACK", "PUBREC", "PUBREL", "PUBCOMP"):
        for v in ALL:
            t = f"{text_of(v)} {name}"
            for side in ("server", "client"):
                for pid in (1, 65535):
                    b.good(f"{t} {side} reads id {pid}", v, side, packet(name, u16(pid)),
                           {"type": name, "packet_id": pid, "reason": 0, "props": []})
            b.violation(f"{t} id 0", v, "server", packet(name, u16(0)), "[MQTT-2.2.1-3]")
            b.malformed(f"{t} empty", v, "server", packet(name), "two byte integer")
            b.malformed(f"{t} one byte", v, "server", packet(name, b"\x00"), "two byte integer")
            if v != V5:
                b.malformed(f"{t} with a reason", v, "server", packet(name, u16(7) + b"\x00"), "behind the last field")
            right = 2 if name == "PUBREL" else 0
            for flags in range(16):
                if flags == right:
                    continue
                wire = packet(name, u16(7), flags)
                fits = v == V31 and (name != "PUBREL" or flags & 6 == 2)
                if fits:
                    b.good(f"{t} flags {flags}", v, "server", wire,
                           {"type": name, "packet_id": 7, "reason": 0, "props": []}, "bits that 3.1 does not use",
                           recode=False)
                else:
                    b.malformed(f"{t} flags {flags}", v, "server", wire, "3.1" if v == V31 else "[MQTT-2.1.3-1]", "C09")
        for rc in range(256):
            wire = packet(name, u16(7) + bytes([rc]))
            if rc in codes[name]:
                b.good(f"5.0 {name} reason 0x{rc:02X}", V5, "server", wire,
                       {"type": name, "packet_id": 7, "reason": rc, "props": []}, recode=rc != 0)
                b.good(f"5.0 {name} reason 0x{rc:02X} and property length 0", V5, "server",
                       packet(name, u16(7) + bytes([rc, 0])), {"type": name, "packet_id": 7, "reason": rc, "props": []},
                       recode=False)
            elif rc < 0xA4 and (rc in (1, 2, 4, 0x11, 0x18, 0x19) or rc >= 0x7F):
                b.violation(f"5.0 {name} reason 0x{rc:02X}", V5, "server", wire, "[MQTT-3.4.2-1]")
        b.malformed(f"5.0 {name} bytes behind the properties", V5, "server", packet(name, u16(7) + b"\x00\x00\x00"),
                    "behind the last field")
        b.malformed(f"5.0 {name} properties beyond the packet", V5, "server", packet(name, u16(7) + b"\x00\x03\x26"),
                    "property length")


SUB_BAD_FILTERS = ["a#", "a/#/b", "+a", "a+", "a+/b", "##", "#/", "a/b#", "++", "abcdefgh/+x"]
FILTERS = ["#", "+", "a", "/", "a/#", "+/+", "+/a/#", "a/+/b", "/#", "$SYS/#", "$share/g/a/#", "a//b", "//", "+/#"]
SHARES = ["$share/g", "$share//t", "$share/g+/t", "$share/g/", "$share/", "$share", "$share/g/a#"]


def subscribe_vectors():
    b = Book("subscribe", "SUBSCRIBE and UNSUBSCRIBE (cases C01, C05, C12, C38, C44)")
    for v in ALL:
        t = text_of(v)
        for qos in (0, 1, 2):
            f = [{"filter": "a/b", "qos": qos}]
            b.good(f"{t} SUBSCRIBE QoS {qos}", v, "server", subscribe(v, f), subscribe_shown(f))
        f = [{"filter": x, "qos": i % 3} for i, x in enumerate(FILTERS)]
        b.good(f"{t} SUBSCRIBE many filters", v, "server", subscribe(v, f), subscribe_shown(f))
        b.good(f"{t} UNSUBSCRIBE many filters", v, "server", unsubscribe(v, FILTERS),
               {"type": "UNSUBSCRIBE", "packet_id": 9, "filters": FILTERS, "props": []})
        for name, build in (("SUBSCRIBE", lambda x, **k: subscribe(v, [{"filter": y} for y in x], **k)),
                            ("UNSUBSCRIBE", lambda x, **k: unsubscribe(v, x, **k))):
            b.violation(f"{t} {name} packet identifier 0", v, "server", build(["a"], pid=0), "[MQTT-2.2.1-3]", "C12")
            b.violation(f"{t} {name} without filters", v, "server", build([]), "[MQTT-3.8.3-2]", "C12")
            b.malformed(f"{t} {name} empty filter", v, "server", build([""]), "[MQTT-4.7.3-1]", "C12")
            b.malformed(f"{t} {name} second filter empty", v, "server", build(["a", ""]), "[MQTT-4.7.3-1]", "C12")
            for x in SUB_BAD_FILTERS:
                b.malformed(f"{t} {name} filter '{x}'", v, "server", build([x]), "[MQTT-4.7.1-", "C12")
            for x in SHARES:
                shown_as = (subscribe_shown([{"filter": x}]) if name == "SUBSCRIBE" else
                            {"type": name, "packet_id": 9, "filters": [x], "props": []})
                b.good(f"{t} {name} filter '{x}'", v, "server", build([x]), shown_as,
                       "C38: refused one by one, by the session, with a SUBACK")
            for label, text in BAD_UTF8.items():
                b.malformed(f"{t} {name} filter with {label}", v, "server", build([text]), "[MQTT-1.5.4-1]", "C01")
            for label, text in BAD_UTF8.items():
                b.malformed(f"{t} {name} share name with {label}", v, "server", build([b"$share/" + text + b"/t"]),
                            "[MQTT-1.5.4-1]", "C01")
            for flags in range(16):
                if flags == 2:
                    continue
                wire = build(["a"], flags=flags)
                if v == V31 and flags & 6 == 2:
                    shown_as = (subscribe_shown([{"filter": "a"}]) if name == "SUBSCRIBE" else
                                {"type": name, "packet_id": 9, "filters": ["a"], "props": []})
                    b.good(f"{t} {name} flags {flags}", v, "server", wire, shown_as, "bits that 3.1 does not use",
                           recode=False)
                else:
                    b.malformed(f"{t} {name} flags {flags}", v, "server", wire, "3.1" if v == V31 else "[MQTT-2.1.3-1]",
                                "C12")
            head = u16(9) + (b"\x00" if v == V5 else b"")
            b.malformed(f"{t} {name} filter length cut off", v, "server", packet(name, head + b"\x00"), "inside a length",
                        "C05")
            b.malformed(f"{t} {name} filter beyond the packet", v, "server", packet(name, head + b"\x00\x05ab"),
                        "beyond the packet", "C05")
            tail = b"\x00" if name == "SUBSCRIBE" else b""
            b.malformed(f"{t} {name} second filter beyond the packet", v, "server",
                        packet(name, head + raw("a") + tail + b"\xff\xffb"), "beyond the packet", "C05")
            b.malformed(f"{t} {name} empty body", v, "server", packet(name), "two byte integer", "C05")
        head = u16(9) + (b"\x00" if v == V5 else b"")
        b.malformed(f"{t} SUBSCRIBE ends behind the filter", v, "server", packet("SUBSCRIBE", head + raw("a/b")),
                    "ends before a byte", "C05")
        for total in (64, 1024, 4096):
            text = "x" * (total - len(head) - 2)
            b.malformed(f"{t} SUBSCRIBE of {total} bytes ends behind the filter", v, "server",
                        packet("SUBSCRIBE", head + raw(text)), "ends before a byte", "C05")
        for byte in range(256):
            wire = subscribe(v, [{"filter": "a", "byte": byte}])
            label = f"{t} SUBSCRIBE options 0x{byte:02X}"
            qos = byte & 3
            if v == V31:
                if qos == 3:
                    b.malformed(label, v, "server", wire, "QoS is 3", "C12")
                elif byte > 2 and byte % 37 == 4:
                    b.good(label, v, "server", wire, subscribe_shown([{"filter": "a", "qos": qos}]),
                           "upper bits unused in 3.1", recode=False)
            elif v == V311:
                if byte in (3, 4, 8, 16, 32, 64, 128, 131, 255):
                    b.malformed(label, v, "server", wire, "not 0, 1 or 2", "C12")
            elif byte & 0xC0:
                if byte in (0x40, 0x80, 0xC0, 0xFF, 0x43):
                    b.malformed(label, v, "server", wire, "[MQTT-3.8.3-5]", "C12")
            elif qos == 3:
                b.violation(label, v, "server", wire, "maximum QoS", "C12")
            elif byte & 0x30 == 0x30:
                b.violation(label, v, "server", wire, "retain handling", "C12")
            else:
                f = [{"filter": "a", "qos": qos, "nl": bool(byte & 4), "rap": bool(byte & 8), "rh": byte >> 4}]
                b.good(label, v, "server", wire, subscribe_shown(f))
    b.violation("5.0 no local on a shared subscription", V5, "server",
                subscribe(V5, [{"filter": "$share/g/t", "nl": True}]), "[MQTT-3.8.3-4]", "C44")
    for v in ALL:
        for name, wire in (("SUBSCRIBE", subscribe(v, [{"filter": "a"}])), ("UNSUBSCRIBE", unsubscribe(v, ["a"]))):
            b.violation(f"{text_of(v)} a client is sent {name}", v, "client", wire, "other direction")


def suback_vectors():
    b = Book("subacks", "SUBACK and UNSUBACK (case C09)")
    codes = {"SUBACK": [0, 1, 2, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2],
             "UNSUBACK": [0, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91]}
    for name in ("SUBACK", "UNSUBACK"):
        for v in ALL:
            t = f"{text_of(v)} {name}"
            bare = name == "UNSUBACK" and v != V5
            allowed = [] if bare else codes[name] if v == V5 else [0, 1, 2, 0x80]
            b.good(f"{t} every code", v, "client", suback(name, v, allowed),
                   {"type": name, "packet_id": 9, "reasons": allowed, "props": []})
            b.violation(f"{t} packet identifier 0", v, "client", suback(name, v, [0], pid=0), "[MQTT-2.2.1-3]")
            b.violation(f"{t} sent to a server", v, "server", suback(name, v, [0]), "other direction", "C09")
            b.malformed(f"{t} flags 2", v, "client", packet(name, suback(name, v, [0])[2:], 2), "[MQTT-2.1.3-1]") \
                if v != V31 else None
            b.malformed(f"{t} empty body", v, "client", packet(name), "two byte integer")
            if bare:
                b.malformed(f"{t} with a code", v, "client", packet(name, u16(9) + b"\x00"), "behind the packet identifier")
                continue
            b.malformed(f"{t} without a code", v, "client", suback(name, v, []), "no reason code")
            for rc in range(256):
                if rc not in allowed and (rc in (1, 2, 3, 4, 0x10, 0x11, 0x7F, 0xFF) or 0x80 <= rc <= 0xA3):
                    b.violation(f"{t} code 0x{rc:02X}", v, "client", suback(name, v, [0, rc]), "[MQTT-3.9.3-2]")


def connack_vectors():
    b = Book("connack", "CONNACK")
    five = [0x00] + list(range(0x80, 0x8B)) + [0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F]
    for v in ALL:
        t = text_of(v)
        for rc in range(256):
            body = bytes([0, rc]) + (b"\x00" if v == V5 else b"")
            allowed = rc in five if v == V5 else rc <= 5
            label = f"{t} code 0x{rc:02X}"
            if allowed:
                b.good(label, v, "client", packet("CONNACK", body),
                       {"type": "CONNACK", "session_present": False, "reason": rc, "props": []})
            elif rc in (1, 4, 6, 0x10, 0x7F, 0xFF) or 0x80 <= rc <= 0xA3:
                b.violation(label, v, "client", packet("CONNACK", body), "of CONNACK")
        tail = b"\x00" if v == V5 else b""
        if v == V31:
            b.good(f"{t} first byte 0xFF", v, "client", packet("CONNACK", b"\xff\x00"),
                   {"type": "CONNACK", "session_present": False, "reason": 0, "props": []}, "reserved in 3.1",
                   recode=False)
        else:
            b.good(f"{t} session present", v, "client", packet("CONNACK", b"\x01\x00" + tail),
                   {"type": "CONNACK", "session_present": True, "reason": 0, "props": []})
            code = 0x87 if v == V5 else 5
            b.violation(f"{t} session present in a refusal", v, "client", packet("CONNACK", bytes([1, code]) + tail),
                        "[MQTT-3.2.2-6]")
            for flags in (2, 4, 0x80, 0xFF):
                b.malformed(f"{t} acknowledge flags 0x{flags:02X}", v, "client",
                            packet("CONNACK", bytes([flags, 0]) + tail), "[MQTT-3.2.2-1]")
            b.malformed(f"{t} fixed header flags 1", v, "client", packet("CONNACK", b"\x00\x00" + tail, 1),
                        "[MQTT-2.1.3-1]")
        b.malformed(f"{t} one byte", v, "client", packet("CONNACK", b"\x00"), "a byte")
        b.malformed(f"{t} empty", v, "client", packet("CONNACK"), "a byte")
        b.malformed(f"{t} bytes behind the end", v, "client", packet("CONNACK", b"\x00\x00" + tail + b"\x00"),
                    "behind the last field")
        b.violation(f"{t} sent to a server", v, "server", packet("CONNACK", b"\x00\x00" + tail), "other direction", "C09")
    b.malformed("5.0 without properties", V5, "client", packet("CONNACK", b"\x00\x00"), "variable byte integer")


def simple_vectors():
    b = Book("simple", "PINGREQ, PINGRESP, DISCONNECT, AUTH, reserved types (case C09)")
    client_codes = [0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x90, 0x93, 0x94, 0x95, 0x96, 0x97, 0x98, 0x99]
    server_codes = [0x00, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, 0x8B, 0x8C, 0x8D, 0x8E, 0x8F, 0x90] + \
        list(range(0x93, 0xA3))
    for v in ALL:
        t = text_of(v)
        for name, side, other in (("PINGREQ", "server", "client"), ("PINGRESP", "client", "server")):
            b.good(f"{t} {name}", v, side, packet(name), {"type": name})
            b.malformed(f"{t} {name} with a body", v, side, packet(name, b"\x00"), "behind the last field")
            b.violation(f"{t} {name} to the wrong side", v, other, packet(name), "other direction", "C09")
            if v != V31:
                for flags in (1, 2, 8, 15):
                    b.malformed(f"{t} {name} flags {flags}", v, side, packet(name, flags=flags), "[MQTT-2.1.3-1]")
        for side in ("server", "client"):
            for flags in (0, 15):
                b.malformed(f"{t} type 0 flags {flags}, {side} reads", v, side, bytes([flags, 0]), "reserved", "C09")
        b.good(f"{t} DISCONNECT", v, "server", packet("DISCONNECT"), {"type": "DISCONNECT", "reason": 0, "props": []})
        if v != V31:
            b.malformed(f"{t} DISCONNECT flags 1", v, "server", packet("DISCONNECT", flags=1), "[MQTT-2.1.3-1]")
        if v != V5:
            b.malformed(f"{t} DISCONNECT with a reason", v, "server", packet("DISCONNECT", b"\x00"),
                        "behind the last field")
            b.violation(f"{t} DISCONNECT from a server", v, "client", packet("DISCONNECT"), "from a server in 3.x")
            for side in ("server", "client"):
                b.malformed(f"{t} AUTH, {side} reads", v, side, packet("AUTH"), "reserved", "C09")
    b.good("5.0 DISCONNECT from a server", V5, "client", packet("DISCONNECT"),
           {"type": "DISCONNECT", "reason": 0, "props": []})
    for rc in range(256):
        for side, allowed in (("server", client_codes), ("client", server_codes)):
            label = f"5.0 DISCONNECT 0x{rc:02X}, {side} reads"
            wire = packet("DISCONNECT", bytes([rc]))
            if rc in allowed:
                b.good(label, V5, side, wire, {"type": "DISCONNECT", "reason": rc, "props": []}, recode=rc != 0)
            elif rc in (1, 2, 0x10, 0x11, 0x18, 0x19, 0xFF) or 0x80 <= rc <= 0xA3:
                b.violation(label, V5, side, wire, "[MQTT-3.14.2-1]")
    b.good("5.0 DISCONNECT with an empty property list", V5, "server", packet("DISCONNECT", b"\x04\x00"),
           {"type": "DISCONNECT", "reason": 4, "props": []}, recode=False)
    b.malformed("5.0 DISCONNECT with bytes behind the properties", V5, "server", packet("DISCONNECT", b"\x00\x00\x00"),
                "behind the last field")
    b.violation("5.0 DISCONNECT from a client with a server reference", V5, "server",
                packet("DISCONNECT", b"\x00" + props_wire([(0x1C, "x")])), "server reference")
    method = [(0x15, "SCRAM-SHA-1"), (0x16, b"\x01\x02")]
    for side, allowed in (("server", [0x18, 0x19]), ("client", [0x00, 0x18])):
        for rc in (0x00, 0x18, 0x19, 0x80, 0x87):
            wire = packet("AUTH", bytes([rc]) + props_wire(method))
            if rc in allowed:
                b.good(f"5.0 AUTH 0x{rc:02X}, {side} reads", V5, side, wire,
                       {"type": "AUTH", "reason": rc, "props": props_shown(method)})
            else:
                b.violation(f"5.0 AUTH 0x{rc:02X}, {side} reads", V5, side, wire, "[MQTT-3.15.2-1]")
    b.violation("5.0 AUTH without a method", V5, "server", packet("AUTH", b"\x18\x00"), "without an authentication", "C09")
    b.violation("5.0 AUTH reason alone", V5, "server", packet("AUTH", b"\x18"), "without an authentication", "C09")
    b.violation("5.0 empty AUTH from a client", V5, "server", packet("AUTH"), "[MQTT-3.15.2-1]", "C09")
    b.good("5.0 empty AUTH from a server", V5, "client", packet("AUTH"), {"type": "AUTH", "reason": 0, "props": []},
           "success without properties may leave out all (3.15.2.1)")
    b.malformed("5.0 AUTH flags 1", V5, "server", packet("AUTH", b"\x18" + props_wire(method), 1), "[MQTT-2.1.3-1]")
    b.malformed("remaining length larger than the packet", V5, "server", b"\xc0\x01", "not the length")
    b.malformed("remaining length smaller than the packet", V5, "server", b"\xc0\x00\x00", "not the length")
    b.malformed("remaining length of five bytes", V5, "server", b"\xc0\x80\x80\x80\x80\x01", "longer than four")
    b.malformed("5.0 PINGREQ with length 0 in two bytes", V5, "server", b"\xc0\x80\x00", "[MQTT-1.5.5-1]")
    b.good("3.1.1 PINGREQ with length 0 in two bytes", V311, "server", b"\xc0\x80\x00", {"type": "PINGREQ"},
           recode=False)
    b.malformed("a lone first byte", V5, "server", b"\xc0", "a byte")
    b.malformed("no byte at all", V5, "server", b"", "a byte")


def main():
    for make in (connect_vectors, property_vectors, publish_vectors, ack_vectors, subscribe_vectors, suback_vectors,
                 connack_vectors, simple_vectors):
        make()
    total = 0
    for name, (purpose, rows) in sorted(FILES.items()):
        lines = ",\n".join(json.dumps(row, ensure_ascii=True) for row in rows)
        text = '{"purpose": %s,\n"vectors": [\n%s\n]}\n' % (json.dumps(purpose), lines)
        (HERE / f"{name}.json").write_text(text, encoding="ascii")
        total += len(rows)
        print(f"{name}.json: {len(rows)} vectors")
    print(f"{total} vectors")


if __name__ == "__main__":
    main()
