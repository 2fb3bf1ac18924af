# SPDX-License-Identifier: Apache-2.0
"""The gateway as its HTTP clients see it: streams, latest values, rights, limits."""
import json
import os
import signal
import socket
import time

import pytest

import http_client
import mqtt_raw
from gateway_peers import Mosquitto, ScriptedBroker
from process import wait_until
from sluice import ADMIN, escape, gateway_config

VIEWER = ("viewer", "look")


@pytest.fixture(params=["sluice", "mosquitto"])
def any_broker(request, tmp_path, processes):
    """The same scenario at our broker and at Mosquitto."""
    if request.param == "sluice":
        return request.getfixturevalue("broker")
    processes.append(Mosquitto(tmp_path / "mosquitto"))
    return processes[-1].start()


@pytest.fixture
def peer(tmp_path, processes):
    processes.append(Mosquitto(tmp_path / "mosquitto"))
    return processes[-1].start()


def start(make_gateway, broker, **blocks):
    gateway = make_gateway(broker, gateway_config(**blocks)).start()
    wait_until(lambda: gateway.health().status == 200, what="/health/mqtt")
    return gateway


PRIMED = {"subscriptions": [{"topic": "sensors/#", "qos": 1}]}


def ready(gateway, stream):
    """A stream listens once its first bytes have come and its filter is granted."""
    assert stream.status == 200
    wait_until(lambda: stream.comments, what="the first bytes")
    gateway.metrics()  # answered by the router: what it had to do before is done
    wait_until(lambda: gateway.health().status == 200, what="/health/mqtt")
    return stream


@pytest.mark.quick
def test_stream_and_latest_value(any_broker, make_gateway):
    gateway = start(make_gateway, any_broker, mqtt_router=PRIMED)
    with ready(gateway, gateway.stream("sensors/+/t")) as stream, any_broker.client("pub") as publisher:
        for number in range(20):
            publisher.publish(f"sensors/{number % 3}/t", str(number), 1 + number % 2, packet_id=number + 1)
            publisher.publish(f"sensors/{number % 3}/other", "x", 0)
        events = stream.until(lambda event: event.data == "19")
        assert [event.data for event in events] == [str(number) for number in range(20)]
        assert {event.event for event in events} == {"mqtt-message"}
        for number, event in enumerate(events, 1):
            topic, millis, count = event.id.rsplit("-", 2)
            assert topic == f"sensors/{(number - 1) % 3}/t" and int(count) == number
            assert abs(int(millis) / 1000 - time.time()) < 60
        assert stream.headers["cache-control"] == "no-cache, no-transform"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in stream.headers
    assert gateway.latest("sensors/1/t").json()["payload"] == "19"
    # a new stream begins with the cached values, in the order in which they were received
    with gateway.stream("sensors/+/t") as stream:
        assert [stream.next().data for _ in range(3)] == ["17", "18", "19"]


def test_rights_of_every_endpoint(peer, make_gateway):
    gateway = start(
        make_gateway, peer, mqtt_router=PRIMED,
        fileRealmAuthenticator={"users": [
            {"userid": ADMIN[0], "password": ADMIN[1], "roles": ["admin"]},
            {"userid": VIEWER[0], "password": VIEWER[1], "roles": ["viewer"]},
            {"userid": "disabled", "password": None, "roles": ["admin"]}]},
        fileAclAuthorizer={"permissions": [
            {"role": "admin", "predicate": "path-prefix('/')", "priority": 0},
            {"role": "viewer", "predicate": "path-prefix('/mqtt') or path-prefix('/mqtt-sse')"}]},
        mqtt_topic_authorizer={"acl": {"admin": ["sensors/#"], "viewer": ["sensors/temp", "sensors/+/t"]}})
    with peer.client("pub") as publisher:
        publisher.publish("sensors/temp", "21", 1)
    wait_until(lambda: gateway.latest("sensors/temp").status == 200, what="the latest value")
    paths = ["/mqtt?topic=sensors/temp", "/mqtt-sse?topic=sensors/temp", "/mqtt/stats", "/metrics",
             "/metrics/mqtt_connection_up"]
    for path in paths:
        assert gateway.get(path, user=None).status == 401, path
        assert "basic" in gateway.get(path, user=None).headers["www-authenticate"].lower()
        assert gateway.get(path, user=("admin", "no")).status == 401, path
        assert gateway.get(path, user=("disabled", "")).status == 401, path
        stream = http_client.EventStream(gateway.port, path, user=ADMIN)
        assert stream.status == 200, path
        stream.close()
    for path in ("/metrics", "/nothing"):
        assert gateway.get(path, user=VIEWER).status == 403, path
    for asked, status in [("sensors/temp", 200), ("sensors/x/t", 404), ("sensors/+/t", 200), ("sensors/+", 403),
                          ("sensors/#", 403), ("#", 403), ("sensors/temp/", 403), ("$SYS/#", 403)]:
        answer = gateway.latest(asked, user=VIEWER)
        assert answer.status == status, asked
        if status == 403:
            assert answer.json() == {"msg": f"Not authorized for topic: {asked}",
                                     "error": f"Not authorized for topic: {asked}"}
        with gateway.stream(asked, user=VIEWER) as stream:
            assert stream.status == (200 if status == 404 else status), asked
    assert gateway.metrics()["mqtt_authorizer_denied"] == 10
    for path in ("/ping", "/health/live", "/health/ready", "/health/mqtt"):
        assert gateway.get(path, user=None).status == 200, path
    # the default topic needs the right as well
    assert gateway.get("/mqtt-sse", user=VIEWER).status == 403


def test_parameters_that_are_refused(peer, make_gateway):
    """Cases C105: what is checked is what is served, '+' stays '+', nothing is widened."""
    gateway = start(make_gateway, peer, mqtt_router=PRIMED,
                    mqtt_topic_authorizer={"acl": {"admin": ["sensors/#", "a/+/b", "ö b/#"]}})
    bad = ["", "a%23", "%23/a", "a/+b", "a%00b", "%24share/g/a", "sensors/%ff", "x" * 66000]
    for path in ("/mqtt", "/mqtt-sse"):
        for topic in bad:
            status = gateway.get(f"{path}?topic={topic}").status
            assert status == (400 if len(topic) < 10000 else status) and 400 <= status < 500, (path, topic[:20])
        answer = gateway.get(f"{path}?topic=sensors/a&topic=traffic/a")
        assert answer.status == 400 and "more than once" in answer.json()["msg"], path
    for qos in ("3", "-1", "x", "", "11"):
        assert gateway.get(f"/mqtt-sse?topic=sensors/a&qos={qos}").status == 400, qos
    for name, value in [("page", "0"), ("page", "x"), ("pagesize", "0"), ("pagesize", "1001"), ("pagesize", "-1")]:
        answer = gateway.get(f"/mqtt?topic=sensors/%23&{name}={value}")
        assert answer.status == 400 and name in answer.json()["error"], (name, value)
    assert gateway.get("/mqtt").status == 400
    for written in ("a/+/b", "a/%2B/b", "a/%2b/b"):
        with http_client.EventStream(gateway.port, f"/mqtt-sse?topic={written}", user=ADMIN) as stream:
            assert stream.status == 200, written
    assert gateway.get("/mqtt?topic=a/%20/b").status == 404  # a blank level, not a wildcard
    assert gateway.latest("ö b/x").status == 404
    # an unescaped '#' never leaves the client: what arrives is the parent level with its slash
    assert gateway.get("/mqtt?topic=sensors/").status == 404
    answer = gateway.get("/mqtt", method="POST")
    assert answer.status == 405 and "GET" in answer.headers["allow"]
    answer = gateway.get("/mqtt-sse?topic=sensors/a", headers={"Accept": "application/json"})
    assert answer.status == 406
    assert gateway.get("/mqtt-sse/x?topic=sensors/a").status == 404


def test_latest_values_of_a_wildcard(peer, make_gateway):
    gateway = start(make_gateway, peer, mqtt_router=PRIMED)
    with peer.client("pub", 5) as publisher:
        for number in range(25):
            publisher.publish(f"sensors/{number:02}", str(number), 1, packet_id=number + 1)
        publisher.publish("sensors/bin", b"\0\xff", 1, packet_id=99, props={
            "content_type": "a/b", "user": [("k", "1"), ("a", ""), ("k", "2")], "correlation_data": b"\0\1",
            "response_topic": "r", "payload_format": 0, "message_expiry": 300})
    wait_until(lambda: len(gateway.latest("sensors/#").json()) == 26, what="26 values")
    topics = [message["topic"] for message in gateway.latest("sensors/#").json()]
    assert topics == sorted(topics)
    pages = [gateway.get(f"/mqtt?topic=sensors/%23&page={page}&pagesize=10").json() for page in (1, 2, 3, 4)]
    assert [len(page) for page in pages] == [10, 10, 6, 0]
    assert [message["topic"] for page in pages for message in page] == topics
    binary = gateway.latest("sensors/bin")
    message = binary.json()
    assert message["payload"] == "AP8=" and message["payloadEncoding"] == "base64"
    props = message["mqtt5"]
    assert props["userProperties"] == [{"name": "k", "value": "1"}, {"name": "a", "value": ""},
                                       {"name": "k", "value": "2"}]
    assert (props["contentType"], props["correlationData"], props["responseTopic"]) == ("a/b", "AAE=", "r")
    assert props["payloadFormatIndicator"] == 0 and 0 < props["messageExpiryInterval"] <= 300
    assert "mqtt5" not in gateway.latest("sensors/01").json()
    # conditional requests
    tag = binary.headers["etag"]
    same = gateway.get("/mqtt?topic=sensors/bin", headers={"If-None-Match": f'"x", W/{tag}'})
    assert same.status == 304 and same.body == b""
    head = gateway.get("/mqtt?topic=sensors/bin", method="HEAD")
    assert head.status == 200 and head.headers["etag"] == tag and head.body == b""
    with peer.client("pub") as publisher:
        publisher.publish("sensors/bin", "new", 1)
    wait_until(lambda: gateway.latest("sensors/bin").json()["payload"] == "new", what="the new value")
    assert gateway.get("/mqtt?topic=sensors/bin", headers={"If-None-Match": tag}).status == 200


def test_no_payload_forges_an_event(peer, make_gateway):
    """Cases C104: the reader gets exactly the lines that were sent."""
    gateway = start(make_gateway, peer, mqtt_sse={"last-message-cache": False})
    payloads = ["one\ntwo", "one\rtwo", "one\r\n\r\ntwo", "x\n\nevent: forged\ndata: y", "\n", "", " lead", ": c",
                "u\u2028v", "id: 7"]
    with ready(gateway, gateway.stream("sensors/#")) as stream, peer.client("pub") as publisher:
        for payload in payloads:
            publisher.publish("sensors/a", payload, 1)
        publisher.publish("sensors/a", b"\xff\xfe", 1)
        got = [stream.next() for _ in range(len(payloads) + 1)]
    lines = [payload.replace("\r\n", "\n").replace("\r", "\n") for payload in payloads]
    assert [event.data for event in got] == lines + ["//4="]
    assert {event.event for event in got} == {"mqtt-message"}
    assert len(gateway.events("SSE-BINARY-PAYLOAD")) == 1


def test_no_topic_forges_an_event(make_gateway):
    """Cases C104: line ends in a topic, which other brokers than a scripted one may refuse."""
    scripted = ScriptedBroker()
    gateway = make_gateway(scripted, gateway_config()).start()
    link = scripted.accept()
    link.accept_connect()
    with gateway.stream("sensors/#") as stream:
        link.suback(link.expect_subscribe(), 1)
        link.publish("sensors/x\nid: z\r\ndata: w", "p", 1)
        event = stream.next()
    assert event.id.startswith("sensors/x%0Aid: z%0D%0Adata: w-") and event.data == "p"
    assert "\n" in gateway.latest("sensors/#").json()[0]["topic"]
    link.close()
    scripted.close()


def test_envelope_tells_replay_from_retained_and_new(peer, make_gateway):
    gateway = start(make_gateway, peer, mqtt_sse={"payload-envelope": True}, mqtt_router=PRIMED)
    with peer.client("pub") as publisher:
        publisher.publish("sensors/cached", "1\n2", 1)
        wait_until(lambda: gateway.latest("sensors/cached").status == 200, what="the value")
        with ready(gateway, gateway.stream("sensors/#")) as stream:
            publisher.publish("sensors/new", "n", 1)
            first, second = (json.loads(stream.next().data) for _ in range(2))
    assert (first["topic"], first["payload"], first["replay"], first["retain"]) == ("sensors/cached", "1\n2", True, False)
    assert (second["topic"], second["payload"], second["replay"], second["qos"]) == ("sensors/new", "n", False, 1)
    assert first["receivedAt"].endswith("Z") and len(first["receivedAt"]) == 30


def test_limits_of_connections(peer, make_gateway):
    gateway = start(make_gateway, peer, mqtt_sse={"max-connections": 3, "max-connections-per-topic": 2})
    streams = [gateway.stream(topic) for topic in ("sensors/a", "sensors/a", "sensors/b")]
    assert [stream.status for stream in streams] == [200, 200, 200]
    streams[2].close()
    wait_until(lambda: gateway.metrics()["mqtt_sse_open_connections"] == 2, what="the end of one stream")
    refused = gateway.stream("sensors/a")  # there is room in all, not for this topic
    assert refused.status == 503 and refused.headers["retry-after"] and b"topic" in refused.body
    streams[2] = gateway.stream("sensors/c")
    assert streams[2].status == 200
    refused = gateway.stream("sensors/d")
    assert refused.status == 503 and refused.headers["retry-after"]
    assert gateway.metrics()["mqtt_sse_rejected"] == 2
    for stream in streams:
        stream.close()
    wait_until(lambda: gateway.metrics()["mqtt_sse_open_connections"] == 0, what="the end of all streams")
    # filters of streams leave the broker session with them
    wait_until(lambda: gateway.metrics()["mqtt_subscriptions_wanted"] == 0, what="no subscription")


def test_keep_alive_and_end_of_streams(peer, make_gateway):
    gateway = start(make_gateway, peer, mqtt_sse={"keep-alive-ms": 300, "max-stream-seconds": 4})
    with gateway.stream("sensors/#") as stream:
        wait_until(lambda: len(stream.comments) >= 3, what="keep-alive comments")
        assert stream.ended.wait(15), "the stream was not ended after max-stream-seconds"
    assert gateway.metrics()["mqtt_sse_ended"] == 1
    stream = ready(gateway, gateway.stream("sensors/#"))
    gateway.stop()  # the stream is ended cleanly, and the process with status 0
    assert stream.ended.wait(5)
    stream.close()


def rewrite(gateway, **blocks):
    for name, block in blocks.items():
        gateway.config[name.replace("_", "-") if name not in gateway.config else name] = block
    gateway.write_config()
    gateway.process.send_signal(signal.SIGHUP)


def test_rights_taken_away_end_streams(peer, make_gateway):
    """Cases C108, and SIGHUP: within some seconds of the reload."""
    gateway = start(make_gateway, peer, mqtt_topic_authorizer={"acl": {"admin": ["sensors/#", "other/#"]}})
    with gateway.stream("sensors/#") as lost, gateway.stream("other/#") as kept:
        rewrite(gateway, mqtt_topic_authorizer={"acl": {"admin": ["other/#"]}})
        gateway.wait_log("GATEWAY-RELOADED")
        assert lost.ended.wait(5), "the stream goes on without the right"
        assert not kept.ended.is_set()
        assert gateway.stream("sensors/#").status == 403
        # a file that is not good changes nothing
        gateway.config_path.write_text("mqtt-topic-authorizer: {acl: {admin: ['a#']}}\n")
        gateway.process.send_signal(signal.SIGHUP)
        gateway.wait_log("GATEWAY-RELOAD-FAILED.*a#")
        assert gateway.stream("sensors/#").status == 403 and not kept.ended.is_set()
        # the user goes: so does the stream
        rewrite(gateway, fileRealmAuthenticator={"users": []})
        assert kept.ended.wait(5), "the stream goes on without its user"
        assert gateway.latest("other/x").status == 401


def test_rate_limit_is_for_live_readers_only(peer, make_gateway):
    """Cases C106: the writer gets all, the drops are counted, the latest value is right."""
    gateway = start(make_gateway, peer, mqtt_router={"max-inflight-messages-per-second": 10},
                    mqtt_mongo_writer={"enabled": True, "mongo-sink": [
                        {"topic": "sensors/#", "database": "iot", "collection": "events"}]})
    with ready(gateway, gateway.stream("sensors/#")), ready(gateway, gateway.stream("sensors/#")):
        assert gateway.metrics()["mqtt_sse_open_connections"] == 2
        with peer.client("pub") as publisher:
            for number in range(500):
                publisher.publish("sensors/a", str(number), 1, packet_id=number + 1)
        wait_until(lambda: len(gateway.documents("events")) == 500, what="500 documents")
        assert gateway.latest("sensors/a").json()["payload"] == "499"
        figures = gateway.metrics()
        assert figures["mqtt_router_messages_received"] == 500
        live = 500 - figures["mqtt_router_messages_dropped"]
        assert 10 <= live < 450
        wait_until(lambda: gateway.metrics()["mqtt_sse_events_sent"] == 2 * live, what="events of both streams")
        assert figures["mqtt_sse_dropped"] == 0 and figures["mqtt_buffer_dropped"] == 0


def memory(gateway):
    with open(f"/proc/{gateway.pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) * 1024


def descriptors(gateway):
    return len(os.listdir(f"/proc/{gateway.pid}/fd"))


def threads(gateway):
    return len(os.listdir(f"/proc/{gateway.pid}/task"))


def frozen_reader(gateway, topic):
    """A stream whose client has stopped reading, with small buffers."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect(("127.0.0.1", gateway.port))
    headers = "".join(f"{k}: {v}\r\n" for k, v in http_client._headers(ADMIN, None).items())
    sock.sendall(f"GET /mqtt-sse?topic={escape(topic)} HTTP/1.1\r\nHost: x\r\n{headers}\r\n".encode())
    assert b"200" in sock.recv(64)
    return sock


@pytest.mark.timeout(240)
def test_slow_and_frozen_readers(peer, make_gateway):
    """Cases C99: others get everything, the slow one loses the oldest, memory stays flat, the frozen one is cut."""
    gateway = make_gateway(peer, gateway_config(
        mqtt_router={"max-inflight-messages-per-second": 0},
        mqtt_sse={"per-connection-queue-capacity": 64, "gap-events": True, "last-message-cache": False}))
    gateway.env["ASAN_OPTIONS"] += ":quarantine_size_mb=16"  # or freed memory looks like growth
    gateway.start()
    wait_until(lambda: gateway.health().status == 200, what="/health/mqtt")
    with ready(gateway, gateway.stream("sensors/#")) as good, peer.client("pub") as publisher:
        frozen = [frozen_reader(gateway, "sensors/#") for _ in range(10)]
        slow = frozen.pop()
        payload = "x" * 20000
        before = memory(gateway)
        total = 6000
        for number in range(total):
            publisher.send(mqtt_raw.publish("sensors/a", f"{number} {payload}", 0))
            if number % 500 == 499:  # the good reader keeps up
                good.until(lambda event, want=f"{number} ": event.data.startswith(want), timeout=30)
        figures = gateway.metrics()
        assert figures["mqtt_router_messages_received"] == total
        assert figures["mqtt_sse_dropped"] > 10 * 5000
        assert memory(gateway) - before < 100 << 20  # a queue without bound would hold 240 MB
        # the slow one wakes up: it finds a gap, and then the newest messages
        slow.settimeout(5)
        got = b""
        while f"{total - 1} ".encode() not in got:
            got += slow.recv(1 << 16)
        assert b"event:mqtt-gap" in got
        slow.close()
        # the frozen ones are cut by the write deadline
        wait_until(lambda: gateway.metrics()["mqtt_sse_open_connections"] == 1, 90, "the end of the frozen streams")
        publisher.publish("sensors/a", "after", 1)
        good.until(lambda event: event.data == "after")
    for sock in frozen:
        sock.close()


def test_readers_that_go_leave_nothing(peer, make_gateway):
    """Cases C100: 500 readers come and go on a quiet topic."""
    gateway = start(make_gateway, peer)
    with gateway.stream("sensors/warm"):
        pass
    wait_until(lambda: gateway.metrics()["mqtt_sse_open_connections"] == 0, what="the end of the stream")
    had_descriptors, had_threads = descriptors(gateway), threads(gateway)
    for batch in range(2):
        sockets = [frozen_reader(gateway, f"sensors/{number % 50}") for number in range(250)]
        assert gateway.metrics()["mqtt_sse_open_connections"] == 250
        wait_until(lambda: gateway.metrics()["mqtt_subscriptions_granted"] == 50, what="50 subscriptions")
        assert threads(gateway) == had_threads
        for sock in sockets:
            if batch:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # RST
            sock.close()
        wait_until(lambda: gateway.metrics()["mqtt_sse_open_connections"] == 0, what="the end of all streams")
    wait_until(lambda: gateway.metrics()["mqtt_subscriptions_wanted"] == 0, what="no subscription")
    wait_until(lambda: descriptors(gateway) <= had_descriptors + 2, what="closed descriptors")
    assert threads(gateway) == had_threads


def test_browser_login_by_cookie(peer, make_gateway):
    """An EventSource sends no headers: it logs in once, the cookie does the rest."""
    gateway = start(make_gateway, peer, mqtt_router=PRIMED)
    answer = gateway.get("/token/cookie", method="POST")
    cookie = answer.headers["set-cookie"].split(";")[0]
    assert answer.status == 200 and "httponly" in answer.headers["set-cookie"].lower()
    path = "/mqtt-sse?topic=sensors/%23"
    with ready(gateway, http_client.EventStream(gateway.port, path, headers={"Cookie": cookie})) as stream:
        with peer.client("pub") as publisher:
            publisher.publish("sensors/a", "1", 1)
        assert stream.next().data == "1"
    assert gateway.get("/logout", method="POST", user=None, headers={"Cookie": cookie}).status == 204
    assert http_client.EventStream(gateway.port, path, headers={"Cookie": cookie}).status == 401


def test_guessing_is_slowed_down(peer, make_gateway):
    gateway = start(make_gateway, peer, bruteForceAttackGuard={"enabled": True})
    statuses = [gateway.get("/mqtt?topic=sensors/a", user=("admin", f"guess{number}")).status for number in range(8)]
    assert statuses[:5] == [401] * 5 and statuses[-1] == 429
    assert gateway.get("/health/mqtt", user=None).status == 200


def test_old_http_client_reads_a_stream(peer, make_gateway):
    """Cases C101: HTTP/1.0 knows no chunks; the stream goes until the end of the connection."""
    gateway = start(make_gateway, peer)
    sock = socket.create_connection(("127.0.0.1", gateway.port), timeout=10)
    login = http_client._headers(ADMIN, None)["Authorization"]
    sock.sendall(f"GET /mqtt-sse?topic=sensors/a HTTP/1.0\r\nAuthorization: {login}\r\n\r\n".encode())
    got = b""
    while b"retry:3000\n: sluice\n\n" not in got:
        got += sock.recv(4096)
    assert b" 200 " in got.split(b"\r\n")[0] and b"chunked" not in got.lower()
    wait_until(lambda: gateway.metrics()["mqtt_subscriptions_granted"] == 1, what="the subscription")
    with peer.client("pub") as publisher:
        publisher.publish("sensors/a", "old", 1)
    while not got.endswith(b"event:mqtt-message\ndata:old\n\n"):
        got += sock.recv(4096)
    sock.close()


def test_metrics_page_and_families(peer, make_gateway):
    gateway = start(make_gateway, peer)
    page = gateway.get("/metrics")
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    names = gateway.get("/metrics", headers={"Accept": "application/json"}).json()
    assert "/mqtt_buffer_dropped" in names and len(names) == len(set(names))
    for name in names:
        family = gateway.get("/metrics" + name)
        assert family.status == 200 and f"# TYPE {name[1:]} " in family.text and name[1:] in page.text, name
        assert all(name[1:] in line for line in family.text.splitlines())
    assert gateway.get("/metrics/nothing").status == 404
    stats = gateway.get("/mqtt/stats").json()
    assert {"topicFilters", "totalListeners", "cachedMessages", "messagesReceived", "messagesDropped", "connection",
            "inflight", "sse"} <= set(stats)
