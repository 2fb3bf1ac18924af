# SPDX-License-Identifier: Apache-2.0
"""The Redis servers of tests/support/services as objects, and the broker's settings for them."""
import os
import subprocess

from process import free_port
from service import Service


class Redis(Service):
    """One server with a password; Cluster is three."""
    script, kind = "redis.sh", "standalone"
    password = "secret word"
    environment = {"REDIS_PASSWORD": password}

    def __init__(self, folder):
        super().__init__(folder, free_port())

    def cli(self, *words, port=None):
        """redis-cli: the reply as text."""
        done = subprocess.run(["redis-cli", "-p", str(port or self.port), *map(str, words)], capture_output=True,
                              text=True, timeout=30, check=True, env=dict(os.environ, REDISCLI_AUTH=self.password))
        return done.stdout.strip()

    def settings(self, **more):
        return {"SLUICE_INBOX": "redis", "REDIS_CONNECTION_TYPE": self.kind, "REDIS_HOST": "127.0.0.1",
                "REDIS_PORT": self.port, "REDIS_PASSWORD": self.password, "CACHE_PREFIX": "e2e:", **more}


class Cluster(Redis):
    script, kind = "redis-cluster.sh", "cluster"
    password = "secret"
    environment = {"REDIS_PASSWORD": password}

    def settings(self, **more):
        return super().settings(REDIS_NODES=f"127.0.0.1:{self.port},127.0.0.1:{self.port + 2}", **more)

    def cut(self, node):
        self.run("cut", self.folder, node)

    def join(self, node):
        self.run("join", self.folder, node)
