# SPDX-License-Identifier: Apache-2.0
"""A server of tests/support/services as an object: what mongo.py, redis_server.py and postgres_server.py share."""
import os
import subprocess

from sluice import ROOT

SERVICES = ROOT / "tests" / "support" / "services"


class Service:
    """script: the name in tests/support/services; environment: what the script wants besides ours."""
    script = ""
    environment = {}

    def __init__(self, folder, port):
        self.folder, self.port = folder, port

    def run(self, *arguments):
        done = subprocess.run([SERVICES / self.script, *map(str, arguments)], env={**os.environ, **self.environment},
                              capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"{self.script} {arguments}: {done.stderr}"

    def start(self):
        self.run("start", self.folder, self.port)
        return self

    def stop(self):
        self.run("stop", self.folder)

    def kill(self):
        self.run("kill", self.folder)

    def freeze(self):
        self.run("freeze", self.folder)

    def resume(self):
        self.run("continue", self.folder)
