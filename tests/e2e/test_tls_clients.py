# SPDX-License-Identifier: Apache-2.0
"""TLS outwards: the broker to Redis, the gateway to its broker. Cases C59 and C60: never unverified, and told why."""
import re
import ssl
import time

import pytest

from broker_kit import drain, publish_many
from gateway_peers import Mosquitto
from process import free_port, wait_until
from redis_server import Redis
from sluice import gateway_config
from tls_files import Authority

RETRIES = 5


class TlsRedis(Redis):
    """Redis with a port for TLS beside the plain one, which the test itself uses."""

    def __init__(self, folder, authority, *options):
        super().__init__(folder)
        self.tls_port, self.authority = free_port(), authority
        crt, key = authority.issue("redis")
        self.options = ["--tls-port", self.tls_port, "--tls-cert-file", crt, "--tls-key-file", key,
                        "--tls-ca-cert-file", authority.ca, *options]

    def run(self, *arguments):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("REDIS_OPTIONS", " ".join(map(str, self.options)))
            super().run(*arguments)

    def settings(self, **more):
        return super().settings(**{"REDIS_PORT": self.tls_port, "REDIS_SSL_ENABLED": "true",
                                   "REDIS_SSL_CERT_FILE": self.authority.ca, **more})


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "pki")


@pytest.fixture
def make_redis(tmp_path, authority):
    started = []

    def make(*options):
        started.append(TlsRedis(tmp_path / "redis", authority, *options).start())
        return started[-1]
    yield make
    for server in started:
        server.kill()


def is_ready(broker):
    return broker.get("/health/ready").status == 200


# ---- the broker and Redis ----

def test_redis_with_tls_keeps_the_inbox(make_redis, make_broker):
    redis = make_redis("--tls-auth-clients", "no")
    broker = make_broker(redis.settings()).start()
    wait_until(lambda: is_ready(broker), what="readiness")
    with broker.client("dev", clean=False) as client:
        client.subscribe("sensors/#", 1)
    with broker.client("pub") as publisher:
        publish_many(publisher, "sensors/b", [str(n).rjust(5000, "0") for n in range(400)])  # many records, 2 MB
    wait_until(lambda: redis.cli("ZCARD", "e2e:{dev}_messages") == "400", what="400 rows in Redis")
    with broker.client("dev", clean=False) as client:
        assert [int(pkt.payload[-5:]) for pkt in drain(client, 400)] == list(range(400))
    # and again after Redis was away
    redis.kill()
    broker.wait_log("REDIS-LOST")
    redis.start()
    wait_until(lambda: is_ready(broker), 60, what="readiness after the restart")


def test_redis_that_asks_for_a_client_certificate(make_redis, make_broker, authority):
    redis = make_redis("--tls-auth-clients", "yes")
    crt, key = authority.issue("broker")
    with_one = make_broker(redis.settings(REDIS_SSL_USER_CERT_FILE=crt, REDIS_SSL_USER_KEY_FILE=key)).start()
    wait_until(lambda: is_ready(with_one), what="readiness")
    without = make_broker(redis.settings(), name="without").start()
    without.wait_log("REDIS-NOT-REACHED.*certificate required")
    assert not is_ready(without)


@pytest.mark.parametrize("kind, why", [("ca", "certificate of the peer is not accepted"),
                                       ("name", "certificate of the server is not for 'localhost'"),
                                       ("plain", "does the server speak TLS on this port")])
def test_redis_that_cannot_be_verified_is_never_used(kind, why, make_redis, make_broker, tmp_path):
    redis = make_redis("--tls-auth-clients", "no")
    settings = {
        "ca": lambda: redis.settings(REDIS_SSL_CERT_FILE=Authority(tmp_path / "other", "other").ca),
        "name": lambda: redis.settings(REDIS_HOST="localhost"),
        "plain": lambda: redis.settings(REDIS_PORT=redis.port, REDIS_CLIENT_CONNECT_TIMEOUT=200),
    }[kind]()
    broker = make_broker(settings).start()
    broker.wait_log(f"REDIS-NOT-REACHED.*{why}")
    # only some lines are written; the last one says how many were not
    wait_until(lambda: len(lines := broker.events("REDIS-NOT-REACHED")) >= RETRIES - 1 and
               int(re.search(r"suppressed=(\d+)", str(lines[-1])).group(1)) >= 1, 60, "five attempts")
    assert not is_ready(broker) and "REDIS-CONNECTED" not in broker.log()
    assert "sluice-inbox" not in redis.cli("CLIENT", "LIST")


@pytest.mark.parametrize("text", ["", "this is no certificate\n"])
def test_broker_refuses_a_ca_file_that_trusts_nobody(text, tmp_path, make_broker):
    ca = tmp_path / "ca.pem"
    ca.write_text(text)
    broker = make_broker({"SLUICE_INBOX": "redis", "REDIS_SSL_ENABLED": "true", "REDIS_SSL_CERT_FILE": ca})
    broker.expected_failure = True
    broker.start(ready=None)
    assert broker.wait_end() != 0
    assert str(ca) in broker.log() and "holds no certificate" in broker.log()


# ---- the gateway and its broker ----

@pytest.fixture
def make_tls_mosquitto(tmp_path, processes, authority):
    def make(*extra, san="IP:127.0.0.1"):
        crt, key = authority.issue("mosquitto", san)
        processes.append(Mosquitto(tmp_path / "mosquitto", ["user root", f"cafile {authority.ca}",
                                                            f"certfile {crt}", f"keyfile {key}", *extra]))
        return processes[-1]
    return make


def gateway_to(broker, make_gateway, **link):
    config = gateway_config(mqtt_client={"reconnect": {"initial-delay-ms": 50, "max-delay-ms": 100}, **link},
                            mqtt_router={"subscriptions": [{"topic": "sensors/#", "qos": 1}]})
    gateway = make_gateway(broker, config)
    return gateway


def point_to(gateway, url):
    gateway.config["mqtt-client"]["broker-url"] = url
    gateway.write_config()
    return gateway


def publish_by_tls(broker, authority, topic, payload):
    context = ssl.create_default_context(cafile=authority.ca)
    client = broker.raw()
    client.sock = context.wrap_socket(client.sock, server_hostname="127.0.0.1")
    with client:
        client.connect("pub")
        client.publish(topic, payload, 1, packet_id=1)


@pytest.mark.parametrize("scheme, flag", [("ssl", False), ("mqtts", False), ("tcp", True)])
def test_gateway_with_the_right_ca_connects(scheme, flag, make_tls_mosquitto, make_gateway, authority):
    broker = make_tls_mosquitto().start()
    gateway = gateway_to(broker, make_gateway, **{"tls-trust-store": str(authority.ca), "tls": flag})
    point_to(gateway, f"{scheme}://127.0.0.1:{broker.port}").start()
    wait_until(lambda: gateway.health().status == 200, what="/health/mqtt")
    publish_by_tls(broker, authority, "sensors/b", "hello " * 20000)
    wait_until(lambda: gateway.latest("sensors/b").status == 200, what="the message")
    assert gateway.latest("sensors/b").json()["payload"] == "hello " * 20000
    broker.kill()
    broker.start()
    wait_until(lambda: gateway.health().status == 200, what="/health/mqtt after the restart")


def test_gateway_with_a_certificate_of_its_own(make_tls_mosquitto, make_gateway, authority, tmp_path):
    broker = make_tls_mosquitto("require_certificate true").start()
    crt, key = authority.issue("gateway")
    both = tmp_path / "gateway.pem"
    both.write_text(crt.read_text() + key.read_text())
    link = {"tls-trust-store": str(authority.ca), "tls": True, "tls-key-store": str(both)}
    gateway = gateway_to(broker, make_gateway, **link).start()
    wait_until(lambda: gateway.health().status == 200, what="/health/mqtt")
    gateway.stop()
    del gateway.config["mqtt-client"]["tls-key-store"]
    gateway.write_config()
    gateway.start()
    gateway.wait_log("MQTT-DOWN.*(certificate required|handshake failure)")
    assert gateway.health().status == 503


@pytest.mark.parametrize("kind, why", [("ca", "certificate of the peer is not accepted"),
                                       ("name", "certificate of the server is not for 'localhost'"),
                                       ("expired", "expired"),
                                       ("plain", "does the peer speak TLS on this port")])
def test_gateway_never_connects_unverified(kind, why, make_tls_mosquitto, make_gateway, make_broker, authority,
                                           tmp_path):
    if kind == "plain":
        broker = make_broker().start()  # ours, without TLS
    else:
        broker = make_tls_mosquitto().start()
    if kind == "expired":
        broker.stop()
        authority.issue("mosquitto", days=0)
        time.sleep(1.1)  # a certificate of 0 days ends in the second of its birth
        broker.start()
    ca = Authority(tmp_path / "other", "other").ca if kind == "ca" else authority.ca
    gateway = gateway_to(broker, make_gateway, **{"tls-trust-store": str(ca), "tls": True})
    host = "localhost" if kind == "name" else "127.0.0.1"
    point_to(gateway, f"tcp://{host}:{broker.port}").start()
    wait_until(lambda: len(gateway.events("MQTT-DOWN")) >= RETRIES, what="five attempts")
    gateway.wait_log(f"MQTT-DOWN.*{why}")
    assert gateway.health().status == 503
    assert not gateway.events("MQTT-CONNECTED")
    assert "New client connected" not in broker.log()
    if kind == "plain":
        broker.wait_log("PACKET-REFUSED.*looks like TLS")


def test_gateway_without_tls_at_a_tls_port_is_told_down(make_tls_mosquitto, make_gateway):
    broker = make_tls_mosquitto().start()
    gateway = gateway_to(broker, make_gateway).start()
    gateway.wait_log("MQTT-DOWN")
    assert gateway.health().status == 503 and not gateway.events("MQTT-CONNECTED")


@pytest.mark.parametrize("text", ["", "this is no certificate\n"])
def test_gateway_refuses_a_ca_file_that_trusts_nobody(text, tmp_path, make_broker, make_gateway):
    ca = tmp_path / "ca.pem"
    ca.write_text(text)
    gateway = gateway_to(make_broker(), make_gateway, **{"tls": True, "tls-trust-store": str(ca)})
    gateway.expected_failure = True
    gateway.start(ready=None)
    assert gateway.wait_end() != 0
    assert str(ca) in gateway.log() and "holds no certificate" in gateway.log()
