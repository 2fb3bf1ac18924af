# SPDX-License-Identifier: Apache-2.0
"""The MongoDB-wire server of tests/support/services as a fixture object."""
import os
import subprocess

import pymongo

from sluice import ROOT

SCRIPT = ROOT / "tests" / "support" / "services" / "mongo.sh"


class Mongo:
    def __init__(self, folder, port):
        self.folder, self.port = str(folder), port
        self.uri = f"mongodb://127.0.0.1:{port}"

    @staticmethod
    def why_not():
        """The reason why the server cannot run here, or None."""
        if os.environ.get("SLUICE_NO_MONGO"):
            return "the MongoDB-wire server could not be fetched"
        done = subprocess.run([SCRIPT, "fetch"], capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else f"the MongoDB-wire server could not be fetched: {done.stderr.strip()[-300:]}"

    def _run(self, *arguments):
        done = subprocess.run([SCRIPT, *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, f"mongo.sh {arguments}: {done.stderr}"

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

    def client(self):
        return pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=10000, socketTimeoutMS=30000)
