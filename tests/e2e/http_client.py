# SPDX-License-Identifier: Apache-2.0
"""HTTP for the tests: one request per call, and a reader of event streams that keeps raw lines."""
import base64
import dataclasses
import http.client
import json
import queue
import socket
import threading
import time


@dataclasses.dataclass
class Answer:
    status: int
    headers: dict  # lower-case names
    body: bytes

    @property
    def text(self):
        return self.body.decode()

    def json(self):
        return json.loads(self.body)


def _headers(user, headers):
    sent = dict(headers or {})
    if user:
        sent["Authorization"] = "Basic " + base64.b64encode(":".join(user).encode()).decode()
    return sent


def request(port, path, method="GET", user=None, headers=None, body=None, timeout=15, host="127.0.0.1"):
    """user: (name, password). The path goes out as it is, so bad escapes can be sent."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout)
    try:
        connection.request(method, path, body=body, headers=_headers(user, headers))
        answer = connection.getresponse()
        return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    finally:
        connection.close()


def get(port, path, **rest):
    return request(port, path, **rest)


@dataclasses.dataclass
class Event:
    id: str = ""
    event: str = "message"
    data: str = ""
    retry: int = 0


class EventStream:
    """An SSE client in a thread of its own; parses as the standard says (CR, LF and CRLF end lines)."""

    def __init__(self, port, path, user=None, headers=None, timeout=15):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        sent = {"Accept": "text/event-stream", **_headers(user, headers)}
        self.connection.request("GET", path, headers=sent)
        self.sock = self.connection.sock
        self.answer = self.connection.getresponse()
        self.status = self.answer.status
        self.headers = {k.lower(): v for k, v in self.answer.getheaders()}
        self.events = queue.Queue()
        self.comments = []
        self.ended = threading.Event()
        self.body = b"" if self.status == 200 else self.answer.read()
        self.thread = threading.Thread(target=self._read, daemon=True)
        if self.status == 200:
            self.sock.settimeout(None)
            self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the server was first
        if self.thread.ident:
            self.thread.join(10)
        self.connection.close()

    def _lines(self):
        pending = b""
        while True:
            data = self.answer.read1(1 << 16)
            if not data:
                return
            pending += data
            # A CR at the end may be half of a CRLF: it waits for the next byte.
            held = b"\r" if pending.endswith(b"\r") else b""
            whole = pending[:len(pending) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
            *lines, rest = whole.split(b"\n")
            pending = rest + held
            yield from lines

    def _read(self):
        event, data = Event(), []
        try:
            for raw in self._lines():
                line = raw.decode("utf-8", "replace")
                if line == "":
                    if data:
                        event.data = "\n".join(data)
                        self.events.put(event)
                    event, data = Event(), []
                    continue
                if line.startswith(":"):
                    self.comments.append(line[1:])
                    continue
                field, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if field == "data":
                    data.append(value)
                elif field in ("id", "event"):
                    setattr(event, field, value)
        except (OSError, http.client.HTTPException, ValueError):
            pass  # the connection was cut; `ended` says so
        finally:
            self.ended.set()

    def next(self, timeout=10.0):
        """The next event; raises queue.Empty."""
        return self.events.get(timeout=timeout)

    def until(self, wanted, timeout=10.0):
        """Events up to and including the first for which wanted(event) is true."""
        seen = []
        end = time.monotonic() + timeout
        while True:
            try:
                seen.append(self.events.get(timeout=max(0.0, end - time.monotonic())))
            except queue.Empty:
                raise AssertionError(f"the event did not come; {len(seen)} others did") from None
            if wanted(seen[-1]):
                return seen
