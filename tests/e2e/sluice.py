# SPDX-License-Identifier: Apache-2.0
"""sluice-broker and sluice-gateway as processes under test, each in a folder of its own."""
import json
import os
import pathlib
import re
import sqlite3
import urllib.parse

import http_client
import mqtt_raw
from process import Process, free_port

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("SLUICE_BIN_DIR", ROOT / "build" / "bin"))
ADMIN = ("admin", "secret")


def parse_metrics(page):
    """Prometheus text -> {'name{labels}': value}."""
    found = {}
    for line in page.splitlines():
        match = re.fullmatch(r"([A-Za-z_:][\w:]*(?:\{.*\})?) (\S+)", line)
        if match:
            found[match.group(1)] = float(match.group(2))
    return found


class Broker(Process):
    """settings: environment variables of docs/configuration-broker.md."""

    def __init__(self, folder, settings=None, config=None, name="broker"):
        self.port, self.admin_port = free_port(), free_port()
        folder = pathlib.Path(folder)
        self.data = folder / "data"
        env = {
            "LISTENER_TCP_BIND_ADDRESS": "127.0.0.1", "LISTENER_TCP_BIND_PORT": str(self.port),
            "HTTP_BIND_ADDRESS": "127.0.0.1", "HTTP_BIND_PORT": str(self.admin_port),
            "SLUICE_DATA_DIR": str(self.data), **{k: str(v) for k, v in (settings or {}).items()},
        }
        command = [BIN / "sluice-broker", "--config", config or ROOT / "etc" / "broker.yml"]
        super().__init__(name, command, folder, env)

    def start(self, ready="BROKER-READY", timeout=60.0):
        return super().start(ready, timeout)

    def get(self, path, **rest):
        return http_client.get(self.admin_port, path, **rest)

    def metrics(self):
        return parse_metrics(self.get("/metrics").text)

    def metric(self, name):
        """The sum over all labels of one metric; an unknown name is a mistake of the test."""
        values = [v for k, v in self.metrics().items() if k == name or k.startswith(name + "{")]
        assert values, f"the broker has no metric {name}"
        return sum(values)

    def raw(self, version=4, **rest):
        return mqtt_raw.RawClient(self.port, version, **rest)

    def client(self, client_id, version=4, clean=True, **rest):
        """A raw client that is connected already."""
        client = self.raw(version)
        client.connect(client_id, clean, **rest)
        return client


def gateway_config(**blocks):
    """A whole gateway configuration; blocks are merged into it, with '_' for '-' in block names."""
    config = {
        "core": {"name": "e2e"},
        "http-listener": {"enabled": True, "host": "127.0.0.1"},
        "basicAuthMechanism": {"enabled": True, "authenticator": "fileRealmAuthenticator"},
        "fileRealmAuthenticator": {"enabled": True, "users": [
            {"userid": ADMIN[0], "password": ADMIN[1], "roles": ["admin"]}]},
        "fileAclAuthorizer": {"enabled": True, "permissions": [
            {"role": "admin", "predicate": "path-prefix('/')", "priority": 0}]},
        "mclient": {"connection-string": None},
        "mqtt-client": {"enabled": True, "protocol-version": 5, "clean-session": False,
                        "reconnect": {"initial-delay-ms": 100, "max-delay-ms": 1000}},
        "mqtt-router": {"enabled": True},
        "mqtt-connector": {"enabled": True},
        "mqtt-sse": {"enabled": True, "default-topic": "sensors/#"},
        "mqtt-rest": {"enabled": True},
        "mqtt-stats": {"enabled": True},
        "mqtt-topic-authorizer": {"enabled": True, "acl": {"admin": ["sensors/#"]}},
    }
    for name, block in blocks.items():
        key = name if name in config else name.replace("_", "-")
        config[key] = merge(config.get(key, {}), block)
    return config


def merge(old, new):
    if not (isinstance(old, dict) and isinstance(new, dict)):
        return new
    return {**old, **{k: merge(old[k], v) if k in old else v for k, v in new.items()}}


def escape(topic):
    """A topic or filter as a query value."""
    return urllib.parse.quote(topic, safe="/")


class Gateway(Process):
    """config: see gateway_config(); the listener's port and the broker's address are filled in."""

    def __init__(self, folder, broker_port, config=None, env=None, name="gateway"):
        self.port = free_port()
        folder = pathlib.Path(folder)
        self.data = folder / "data"
        self.config = merge(config or gateway_config(), {
            "http-listener": {"port": self.port}, "mqtt-client": {"broker-url": f"tcp://127.0.0.1:{broker_port}"}})
        self.config_path = folder / f"{name}.yml"
        folder.mkdir(parents=True, exist_ok=True)
        self.write_config()
        super().__init__(name, [BIN / "sluice-gateway", "--config", self.config_path], folder,
                         {"SLUICE_DATA_DIR": str(self.data), **(env or {})})

    def write_config(self):
        # JSON is YAML, and quotes everything that needs it.
        self.config_path.write_text(json.dumps(self.config, indent=2))

    def start(self, ready="GATEWAY-READY", timeout=60.0):
        return super().start(ready, timeout)

    def get(self, path, user=ADMIN, **rest):
        return http_client.get(self.port, path, user=user, **rest)

    def stream(self, topic, user=ADMIN, **rest):
        """An event stream; topic is a filter, escaped here."""
        return http_client.EventStream(self.port, "/mqtt-sse?topic=" + escape(topic), user=user, **rest)

    def latest(self, topic, user=ADMIN):
        return self.get("/mqtt?topic=" + escape(topic), user=user)

    def health(self):
        return http_client.get(self.port, "/health/mqtt")

    def metrics(self):
        return parse_metrics(self.get("/metrics", headers={"Accept": "text/plain"}).text)

    def documents(self, collection=None):
        """The rows of the embedded sink's view, read while the gateway runs."""
        path = self.data / "gateway-store.db"
        if not path.exists():
            return []
        base = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
        try:
            base.row_factory = sqlite3.Row
            where, values = (" WHERE collection = ?", [collection]) if collection else ("", [])
            return [dict(row) for row in base.execute(
                f"SELECT database, collection, id, topic, received_at_ms, doc FROM documents{where}", values)]
        finally:
            base.close()
