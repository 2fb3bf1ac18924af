# SPDX-License-Identifier: Apache-2.0
"""The Redis servers of tests/support/services as objects, and the broker's settings for them."""
import os
import subprocess

from process import free_port
from sluice import ROOT

SERVICES = ROOT / "tests" / "support" / "services"


class Redis:
    """One server with a password; Cluster is three."""
    script, kind = "redis.sh", "standalone"
    password = "secret word"

    def __init__(self, folder):
        self.folder, self.port = str(folder), free_port()

    def _run(self, *arguments):
        env = dict(os.environ, REDIS_PASSWORD=self.password)
        done = subprocess.run([SERVICES / self.script, *map(str, arguments)], env=env, capture_output=True, text=True,
                              timeout=120, check=False)
        assert done.returncode == 0, f"{self.script} {arguments}: {done.stderr}"

    def start(self):
        self._run("start", self.folder, self.port)
        return self

    def stop(self):
        self._run("stop", self.folder)

    def kill(self):
        self._run("kill", self.folder)

    def freeze(self):
        self._run("freeze", self.folder)

    def resume(self):
        self._run("continue", self.folder)

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

    def settings(self, **more):
        return super().settings(REDIS_NODES=f"127.0.0.1:{self.port},127.0.0.1:{self.port + 2}", **more)

    def cut(self, node):
        self._run("cut", self.folder, node)

    def join(self, node):
        self._run("join", self.folder, node)
