# SPDX-License-Identifier: Apache-2.0
"""The test peers against servers that are not ours, so that their faults are not taken for ours."""
import http.server
import sys
import threading

import pytest

import http_client
import mqtt_raw
from process import free_port, wait_until

pytestmark = pytest.mark.quick


@pytest.fixture
def mosquitto(run_process, tmp_path):
    port = free_port()
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\npersistence false\n")
    run_process("mosquitto", ["/usr/sbin/mosquitto", "-c", config]).start(ready="running")
    return port


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_raw_client_exchanges_a_message(mosquitto, version, qos):
    with mqtt_raw.RawClient(mosquitto, version) as subscriber, mqtt_raw.RawClient(mosquitto, version) as publisher:
        subscriber.connect("sub")
        assert subscriber.subscribe("a/+", qos).codes == (qos,)
        publisher.connect("pub")
        publisher.publish("a/b", b"x\0y", qos)
        got = subscriber.receive()
        assert (got.topic, got.payload, got.qos, got.dup, got.retain) == ("a/b", b"x\0y", qos, False, False)
        assert subscriber.quiet()


def test_raw_client_carries_properties(mosquitto):
    with mqtt_raw.RawClient(mosquitto, 5) as client:
        client.connect("props", props={"receive_maximum": 10, "session_expiry": 0})
        client.subscribe("p", 1, props={"subscription_id": 300})
        sent = {"payload_format": 1, "content_type": "text/plain", "correlation_data": b"\x00\xff",
                "response_topic": "r", "user": [("k", "1"), ("k", "2")]}
        client.send(mqtt_raw.publish("p", "v", 1, 7, version=5, props=sent))
        packets = [client.recv(), client.recv()]
        kinds = {pkt.kind: pkt for pkt in packets}
        assert kinds[mqtt_raw.PUBACK].packet_id == 7
        assert kinds[mqtt_raw.PUBLISH].props == {**sent, "subscription_id": [300]}


def test_raw_client_sees_the_close(mosquitto):
    with mqtt_raw.RawClient(mosquitto) as client:
        client.connect("bad")
        client.send(b"\x30\x04\x00\x02a")  # body cut short, then a second packet in the wrong place
        client.send(b"#\xf0\x00")
        client.closed()


def test_every_property_survives_encode_and_decode():
    samples = {"byte": 1, "u16": 513, "u32": 70000, "varint": 16384, "text": "é", "bytes": b"\0\1", "pair": ("a", "b")}
    for name, (_, kind) in mqtt_raw.PROPERTIES.items():
        value = [samples[kind]] if name in mqtt_raw.REPEATABLE else samples[kind]
        assert mqtt_raw._Reader(mqtt_raw.properties({name: value})).properties() == {name: value}


@pytest.mark.parametrize("number, encoded", [(0, b"\0"), (127, b"\x7f"), (128, b"\x80\1"), (268435455, b"\xff\xff\xff\x7f")])
def test_variable_byte_integers(number, encoded):
    assert mqtt_raw.varint(number) == encoded
    assert mqtt_raw._Reader(encoded).varint() == number


STREAM = (b"retry:3000\n: hello\n\nid:1\nevent:mqtt-message\ndata:one\r\ndata: two\rdata:\n\n"
          b"data:last\n\nid:unfinished\ndata:never\n")


def test_event_stream_parses_all_line_ends():
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for at in range(len(STREAM)):  # byte by byte: a CRLF is cut in the middle
                self.wfile.write(STREAM[at:at + 1])
                self.wfile.flush()

        def log_message(self, *_):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with http_client.EventStream(server.server_port, "/") as stream:
            first = stream.next()
            assert (first.id, first.event, first.data) == ("1", "mqtt-message", "one\ntwo\n")
            assert stream.next().data == "last"
            assert stream.ended.wait(5)
            assert stream.events.empty() and stream.comments == [" hello"]


def test_a_process_that_ends_by_itself_is_reported(tmp_path):
    from process import Process
    process = Process("faulty", [sys.executable, "-c", "import os; os.abort()"], tmp_path)
    process.start()
    process.wait_end()
    assert "ended by itself with status -6" in process.finish()[0]


def test_mongo_server_keeps_documents_over_a_crash(mongo):
    with mongo.client() as client:
        client.test.docs.insert_one({"_id": 1})
    mongo.kill()
    mongo.start()
    with mongo.client() as client:
        assert client.test.docs.count_documents({}) == 1
        mongo.freeze()
        answered = threading.Event()
        thread = threading.Thread(target=lambda: (client.test.docs.count_documents({}), answered.set()))
        thread.start()
        assert not answered.wait(0.5)
        mongo.resume()
        wait_until(answered.is_set, 10, "an answer after the freeze")
        thread.join()
