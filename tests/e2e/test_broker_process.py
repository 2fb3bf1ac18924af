# SPDX-License-Identifier: Apache-2.0
"""The broker as a process: start and refusal to start, readiness, the way it stops, scarce descriptors and disks,
damaged stores, and what its admin port tells."""
import json
import os
import resource
import shutil
import socket
import subprocess
import time

import pytest

import http_client
import mqtt_raw
from broker_kit import alive, cpu_seconds, drain, publish_many
from process import wait_until
from sluice import Broker


def not_started(broker, *words, timeout=30):
    """The broker ends by itself with status 1 and one clear line."""
    broker.expected_failure = True
    broker.start(ready=None)
    assert broker.wait_end(timeout) == 1, broker.log()[-3000:]
    lines = broker.events("BROKER-NOT-STARTED")
    assert len(lines) == 1, broker.log()[-3000:]
    for word in words:
        assert str(word) in lines[0], (word, lines[0])
    assert broker.sanitizer_reports() == []
    return lines[0]


# ---- start ---------------------------------------------------------------------------------------------------


def test_a_second_process_on_the_same_data_folder_is_refused(make_broker):
    first = make_broker().start()
    second = make_broker({"SLUICE_DATA_DIR": str(first.data)}, name="second")
    not_started(second, first.data, "in use")
    with first.client("still") as client:
        assert alive(client) == []


@pytest.mark.quick
def test_a_port_in_use_is_refused_and_its_holder_named(make_broker):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        line = not_started(make_broker({"LISTENER_TCP_BIND_PORT": port}), port, "in use", os.getpid())
        assert "tcp" in line
        line = not_started(make_broker({"HTTP_BIND_PORT": port}, name="admin"), port, "in use", os.getpid())
        assert "admin" in line


def test_clients_without_credentials_need_loopback_or_permission(make_broker):
    not_started(make_broker({"LISTENER_TCP_BIND_ADDRESS": "0.0.0.0"}), "0.0.0.0", "SLUICE_ANONYMOUS")
    broker = make_broker({"LISTENER_TCP_BIND_ADDRESS": "0.0.0.0", "SLUICE_ANONYMOUS": "true"}, name="open").start()
    assert "SLUICE_ANONYMOUS=true" in broker.events("ANONYMOUS-ACCESS")[0]
    with broker.client("any") as client:
        assert alive(client) == []


@pytest.mark.parametrize("name, value, word", [
    ("LISTENER_TCP_BIND_PORT", "70000", "LISTENER_TCP_BIND_PORT"), ("SLUICE_DURABILITY", "often", "SLUICE_DURABILITY"),
    ("MQTT_MAX_IN_FLIGHT_MSGS", "many", "MQTT_MAX_IN_FLIGHT_MSGS"), ("SLUICE_ANONYMOUS", "perhaps", "SLUICE_ANONYMOUS"),
    ("SLUICE_TRACE", "nonsense", "nonsense")])
def test_a_bad_setting_is_refused_and_named(make_broker, name, value, word):
    broker = make_broker({name: value})
    broker.expected_failure = True
    broker.start(ready=None)
    assert broker.wait_end() == 1
    assert word in broker.log()


def test_an_address_that_is_none_of_ours_is_named(make_broker):
    not_started(make_broker({"LISTENER_TCP_BIND_ADDRESS": "127.0.0.300"}), "127.0.0.300")


def test_a_data_folder_that_cannot_be_made_is_named(make_broker, tmp_path):
    (tmp_path / "file").write_text("")
    not_started(make_broker({"SLUICE_DATA_DIR": str(tmp_path / "file" / "data")}), tmp_path / "file")


def test_listeners_open_only_after_the_state_is_restored(make_broker):
    """20 000 kept sessions with a subscription each; from the first accepted CONNECT on, all of them count."""
    broker = make_broker().start()
    clients = 20_000

    for first in range(0, clients, 100):
        block = [broker.raw() for _ in range(100)]
        for number, client in enumerate(block, first):
            client.send(mqtt_raw.connect(f"s{number}", clean=False), mqtt_raw.subscribe(1, [(f"s/{number}", 1)]))
        for client in block:
            client.expect(mqtt_raw.CONNACK, 30)
            client.expect(mqtt_raw.SUBACK, 30)
            client.close()
    assert broker.metric("sluice_subscriptions") == clients
    broker.kill()
    broker.start(ready=None)
    seen = set()
    while True:
        try:
            seen.add(broker.get("/health/ready").status)
        except OSError:
            seen.add("closed")
        try:
            with broker.raw() as client:
                assert client.connect("s19999", clean=False).session_present
                break
        except OSError:
            assert broker.running(), broker.log()[-3000:]
    wait_until(lambda: broker.get("/health/ready").status == 200, what="readiness")
    assert 503 in seen or "closed" in seen
    assert broker.metric("sluice_subscriptions") == clients and broker.metric("sluice_sessions") == clients
    with broker.client("pub") as publisher:
        for number in (0, 7777, 19999):
            publisher.publish(f"s/{number}", b"x", 1)
    for number in (0, 7777, 19999):
        with broker.raw() as client:
            assert client.connect(f"s{number}", clean=False).session_present
            assert client.receive().payload == b"x"


# ---- stop ----------------------------------------------------------------------------------------------------


@pytest.mark.quick
def test_sigterm_says_goodbye_and_keeps_what_was_acknowledged(make_broker):
    broker = make_broker().start()
    kept = broker.client("kept", 5, props={"session_expiry": 600})
    kept.subscribe("t", 2)
    old = broker.client("old", 4)
    publisher = broker.client("publisher", 5)
    payloads = [str(n).encode() for n in range(20000)]
    sent, acknowledged, reason = 0, 0, None
    try:
        while True:
            while sent - acknowledged < 100:
                publisher.send(mqtt_raw.publish("t", payloads[sent], 1, sent % 1000 + 1, version=5))
                sent += 1
                if sent == 1500:
                    broker.process.terminate()
            pkt = publisher.recv()
            if pkt.kind == mqtt_raw.PUBACK:
                assert pkt.reason == 0
                acknowledged += 1
            elif pkt.kind == mqtt_raw.DISCONNECT:
                reason = pkt.reason
                break
    except (mqtt_raw.Closed, OSError):
        pass
    assert reason == 0x8B and acknowledged >= 1000
    assert [pkt.reason for pkt in kept.closed() if pkt.kind == mqtt_raw.DISCONNECT] == [0x8B]
    assert old.closed() == []
    assert broker.wait_end() == 0
    assert broker.events("BROKER-STOPPED")
    for client in (kept, old, publisher):
        client.close()
    broker.start()
    with broker.raw(5) as client:
        assert client.connect("kept", clean=False, props={"session_expiry": 600}).session_present
        got = [pkt.payload for pkt in drain(client, acknowledged)]
    assert list(dict.fromkeys(got))[:acknowledged] == payloads[:acknowledged]


def test_sigterm_with_clients_that_do_not_read_or_answer(make_broker):
    broker = make_broker().start()
    with broker.raw(5, receive_buffer=4096) as stuck, broker.raw() as silent, broker.client("pub") as publisher:
        stuck.connect("stuck")
        stuck.subscribe("t")
        silent.send(b"\x10")
        publisher.send(*[mqtt_raw.publish("t", b"x" * 50000)] * 100)
        alive(publisher)
        began = time.monotonic()
        broker.stop()
        assert time.monotonic() - began < 15


# ---- descriptors ---------------------------------------------------------------------------------------------


def test_c49_descriptors_run_out_and_come_back(make_broker):
    broker = make_broker()
    broker.command = ["prlimit", "--nofile=128:128", *broker.command]
    broker.start()
    clients = []
    try:
        served = 0
        for number in range(300):
            client = broker.raw()
            clients.append(client)
            try:
                client.send(mqtt_raw.connect(f"fd{number}"))
            except OSError:
                pass  # closed already
        for client in clients:
            try:
                client.expect(mqtt_raw.CONNACK)
                served += 1
                client.served = True
            except (mqtt_raw.Closed, OSError):
                client.served = False
        assert 8 <= served < 128
        for _ in range(5):
            assert broker.get("/health/ready").status == 200
            assert broker.metric("sluice_connections") == served
        assert broker.metric("sluice_connections_turned_away_total") == 300 - served
        good = [client for client in clients if client.served]
        good[0].subscribe("t", 1)
        good[1].publish("t", b"x", 1)
        good[0].receive()
        before = cpu_seconds(broker)
        time.sleep(2)
        assert cpu_seconds(broker) - before < 0.4  # 20 %
        assert len(broker.events("CONNECTION-REFUSED")) <= 10
        for client in clients:
            client.close()
        wait_until(lambda: broker.metric("sluice_connections") == 0, what="no connection left")
        with broker.client("new") as client:
            assert alive(client) == []
    finally:
        for client in clients:
            client.close()


def test_c49_more_than_a_thousand_descriptors(make_broker):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 4096:
        pytest.skip("the hard limit of open files is below 4096")
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    broker = make_broker().start()
    clients = []
    try:
        for number in range(1500):
            client = broker.client(f"many{number}")
            clients.append(client)
        for client in clients:
            client.send(mqtt_raw.pingreq())
        for client in clients:
            client.expect(mqtt_raw.PINGRESP)
        assert broker.metric("sluice_connections") == 1500
    finally:
        for client in clients:
            client.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_number_of_clients_is_bounded(make_broker):
    broker = make_broker({"SLUICE_MAX_CLIENTS": 3}).start()
    clients = [broker.client(f"c{number}") for number in range(3)]
    with broker.raw(5) as one, broker.raw(4) as two:
        one.connect("more", want=0x97)
        two.connect("more", want=3)
        assert one.closed() == [] and two.closed() == []
    with broker.client("c0") as again:  # a known one
        assert alive(again) == []
    for client in clients:
        client.close()

    def room():
        with broker.raw(5) as client:
            client.send(mqtt_raw.connect("more", 5))
            return client.expect(mqtt_raw.CONNACK).reason == 0

    wait_until(room, what="room for another one")


def test_an_idle_broker_rests(broker):
    with broker.client("idle", keep_alive=60) as client:
        assert alive(client) == []
        before = cpu_seconds(broker)
        time.sleep(3)
        assert cpu_seconds(broker) - before <= 0.3


# ---- disk ----------------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512m", "tmpfs", folder],
                                           capture_output=True, check=False).returncode != 0:
        pytest.skip("needs root and the right to mount")
    yield folder
    subprocess.run(["umount", "-l", folder], check=False)


def test_low_space_refuses_what_is_new_and_heals(make_broker, small_disk):
    """Another file takes the space below the mark, and is removed again."""
    line = not_started(make_broker({"SLUICE_LOW_SPACE_BYTES": 1 << 40}, name="never"), "SLUICE_LOW_SPACE_BYTES", 1 << 40)
    assert "free" in line
    broker = make_broker({"SLUICE_DATA_DIR": str(small_disk / "data"), "SLUICE_LOW_SPACE_BYTES": 200 << 20}).start()
    ballast = small_disk / "ballast"
    with broker.client("five", 5) as five, broker.client("three") as three:
        five.subscribe("t", 1)
        three.publish("t", b"before", 1)
        assert five.receive().payload == b"before"
        ballast.write_bytes(bytes(shutil.disk_usage(small_disk).free - (150 << 20)))
        broker.wait_log("LOG-LOW-SPACE")
        ready = broker.get("/health/ready")
        assert ready.status == 503 and "full" in ready.text, ready.text
        assert broker.get("/health/live").status == 200
        assert broker.metric("sluice_log_low_space") == 1
        five.send(mqtt_raw.publish("t", b"x", 1, 1, version=5), mqtt_raw.publish("t", b"x", 2, 2, version=5))
        assert five.expect(mqtt_raw.PUBACK).reason == 0x97
        assert five.expect(mqtt_raw.PUBREC).reason == 0x97
        assert alive(five) == []
        three.send(mqtt_raw.publish("t", b"x", 1, 1))  # 3.1.1 has no word for it
        assert three.closed() == []
        with broker.raw(5) as late:
            late.connect("late", want=0x88)  # its session cannot be stored
        ballast.unlink()
        wait_until(lambda: broker.get("/health/ready").status == 200, what="readiness")
        five.send(mqtt_raw.publish("t", b"after", 2, 2, version=5))  # the id is not open: it was refused
        assert five.expect(mqtt_raw.PUBREC).reason == 0
        assert five.receive().payload == b"after"
    with broker.client("late", 5) as late:
        assert alive(late) == []


def test_a_full_disk_loses_nothing_that_was_acknowledged(make_broker, small_disk):
    """Without a low-space mark the disk fills up: publishers are refused, the broker lives, and goes on when there is
    room again."""
    broker = make_broker({"SLUICE_DATA_DIR": str(small_disk / "data"), "SLUICE_LOW_SPACE_BYTES": 0}).start()
    with broker.client("kept", 5, props={"session_expiry": 600}) as client:
        client.subscribe("t", 1)
        client.send(mqtt_raw.disconnect())
        client.closed()
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(330 << 20))
    acknowledged, refused = [], 0
    with broker.raw(5) as publisher:
        publisher.connect("pub")
        for number in range(9000):
            payload = f"{number:05}".encode() + os.urandom(30000)
            try:
                publisher.send(mqtt_raw.publish("t", payload, 1, number % 60000 + 1, version=5))
                ack = publisher.expect(mqtt_raw.PUBACK)
            except (mqtt_raw.Closed, OSError, TimeoutError):
                refused += 1
                break
            if ack.reason == 0:
                acknowledged.append(number)
            else:
                assert ack.reason in (0x97, 0x80)
                refused += 1
                if refused == 3:
                    break
    assert refused, "the disk never became full"
    assert broker.running(), broker.log()[-3000:]
    assert broker.get("/health/live").status == 200
    assert broker.get("/health/ready").status == 503
    ballast.unlink()
    deadline = time.monotonic() + 20
    while True:
        try:
            with broker.client("again", 5) as publisher:
                publisher.send(mqtt_raw.publish("t", b"99999", 1, 1, version=5))
                if publisher.expect(mqtt_raw.PUBACK).reason == 0:
                    break
        except (mqtt_raw.Closed, OSError, TimeoutError, AssertionError):
            pass
        assert time.monotonic() < deadline, "nothing is accepted though there is room again:\n" + broker.log()[-2000:]
        time.sleep(0.3)
    with broker.client("kept", 5, clean=False, props={"session_expiry": 600}) as client:
        got = set()
        while not (set(acknowledged) | {99999}) <= got:
            got.add(int(client.receive().payload[:5]))


def test_sigterm_on_a_full_disk(make_broker, small_disk):
    broker = make_broker({"SLUICE_DATA_DIR": str(small_disk / "data"), "SLUICE_LOW_SPACE_BYTES": 0}).start()
    with broker.client("kept", 5, props={"session_expiry": 600}) as kept, broker.raw(5) as publisher:
        kept.subscribe("t", 1)
        publisher.connect("pub")
        publisher.publish("t", b"before", 1)
        assert kept.expect(mqtt_raw.PUBLISH).payload == b"before"
        (small_disk / "ballast").write_bytes(bytes(shutil.disk_usage(small_disk).free - 4096))
        for number in range(5000):
            publisher.send(mqtt_raw.publish("t", os.urandom(30000), 1, number % 60000 + 1, version=5))
            if publisher.expect(mqtt_raw.PUBACK).reason != 0:
                break
        broker.stop()
    (small_disk / "ballast").unlink()
    broker.start()
    with broker.raw(5) as kept:
        assert kept.connect("kept", clean=False, props={"session_expiry": 600}).session_present
        got = kept.expect(mqtt_raw.PUBLISH)
        assert (got.payload, got.dup) == (b"before", True)


# ---- damage --------------------------------------------------------------------------------------------------


def damage(path, kind):
    size = path.stat().st_size
    if kind == "cut":
        os.truncate(path, size // 2)
    elif kind == "empty":
        os.truncate(path, 0)
    elif kind == "zeroed":
        with open(path, "r+b") as file:
            file.seek(size // 3)
            file.write(bytes(max(size // 3, 1)))
    elif kind == "garbage":
        with open(path, "r+b") as file:
            file.seek(size // 3)
            file.write(b"\xa5\x5a garbage \xff" * (size // 40 + 1))
            file.truncate(size)
    else:
        path.unlink()


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A data folder with some of everything, left by a crash."""
    broker = Broker(tmp_path_factory.mktemp("filled") / "broker").start()
    for number in range(20):
        with broker.client(f"kept{number}", clean=False) as client:
            client.subscribe(f"k/{number}/#", 1)
    with broker.client("pub") as publisher:
        for number in range(20):
            publish_many(publisher, f"k/{number}/x", [b"x" * 2000] * 20)
    broker.stop()
    broker.start()  # a second run: tables beside the write-ahead log
    with broker.client("pub") as publisher:
        for number in range(20):
            publish_many(publisher, f"k/{number}/x", [b"y" * 2000] * 20)
    broker.kill()
    return broker.data


@pytest.mark.parametrize("kind", ["cut", "empty", "zeroed", "garbage", "missing"])
def test_c80_a_damaged_store_is_named_or_survived(make_broker, filled, kind):
    """Each file of the store in turn: the broker starts and serves, or refuses once with a line that names the
    trouble; it never crashes and never hangs."""
    files = sorted(path.relative_to(filled) for path in filled.rglob("*") if path.is_file() and path.stat().st_size > 0)
    assert files
    by_suffix = {}
    for path in files:  # one of each kind of file is enough
        by_suffix.setdefault(path.suffix or path.name.rstrip("0123456789"), path)
    outcomes = {}
    for number, path in enumerate(by_suffix.values()):
        broker = make_broker(name=f"b{number}")
        shutil.copytree(filled, broker.data)
        damage(broker.data / path, kind)
        broker.expected_failure = True
        broker.start(ready=None)
        wait_until(lambda: broker.events("BROKER-READY") or not broker.running(), 60, "an end or a start")
        if broker.running():
            with broker.client("probe", 5) as client:
                client.subscribe("probe", 1)
                client.send(mqtt_raw.publish("probe", b"x", 1, 1, version=5))
                kinds = {client.recv().kind, client.recv().kind}
                assert kinds == {mqtt_raw.PUBACK, mqtt_raw.PUBLISH}
            broker.stop()
            outcomes[str(path)] = "served"
        else:
            assert broker.process.returncode == 1, f"{path}: {broker.process.returncode}\n{broker.log()[-3000:]}"
            lines = broker.events("BROKER-NOT-STARTED")
            assert len(lines) == 1 and str(broker.data) in lines[0], f"{path}:\n{broker.log()[-3000:]}"
            outcomes[str(path)] = "refused"
        assert broker.sanitizer_reports() == [], path
        shutil.rmtree(broker.data)
    print(outcomes)


# ---- the admin port ------------------------------------------------------------------------------------------


def test_health_metrics_and_trace(make_broker):
    broker = make_broker({"SLUICE_TRACE_MESSAGES": "true"}).start()
    assert broker.get("/health/live").json() == {"status": "UP"}
    assert broker.get("/health/ready").json() == {"status": "UP"}
    with broker.client("kept", 5, props={"session_expiry": 60}) as kept, broker.client("live") as live, \
            broker.client("pub") as publisher:
        kept.subscribe("t", 1)
        live.subscribe("t", 0)
        publisher.publish("t", b"payload-not-shown", 1)
        kept.receive()
        live.receive()
        publisher.publish("nobody", b"x", 1)
        for name, value in {"sluice_connections": 3, "sluice_sessions": 3, "sluice_sessions_connected": 3,
                            "sluice_subscriptions": 2, "sluice_connects_total": 3,
                            "sluice_connections_accepted_total": 3, "sluice_publish_received_total": 2,
                            "sluice_publish_sent_total": 2, "sluice_messages_dropped_total": 1}.items():
            assert broker.metric(name) == value, name
        page = broker.get("/trace")
        assert page.status == 200 and "payload-not-shown" not in page.text
        steps = [json.loads(line) for line in page.text.splitlines()]
        assert {"RECEIVED", "STORED", "ACKED", "MATCHED", "DERIVED", "INBOXED", "SENT"} <= {step["step"] for step in steps}
    page = broker.get("/metrics").text
    for name in {line.split("{")[0].split(" ")[0] for line in page.splitlines() if line and line[0] != "#"}:
        assert f"# HELP {name} " in page and f"# TYPE {name} " in page
    for path, status in (("/", 404), ("/metrics/x", 404), ("/%00", 400), ("/../etc/passwd", (400, 404))):
        assert broker.get(path).status in (status if isinstance(status, tuple) else (status,)), path
    assert broker.get("/health/live").status == 200
    assert http_client.request(broker.admin_port, "/metrics", "POST", body=b"x").status == 405


def test_the_trace_is_off_by_default(broker):
    answer = broker.get("/trace")
    assert answer.status == 404 and "SLUICE_TRACE_MESSAGES" in answer.text
