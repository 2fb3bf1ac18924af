# SPDX-License-Identifier: Apache-2.0
"""The MongoDB-wire server of tests/support/services as a fixture object."""
import os
import subprocess

import pymongo

from service import SERVICES, Service


class Mongo(Service):
    script = "mongo.sh"

    def __init__(self, folder, port):
        super().__init__(folder, port)
        self.uri = f"mongodb://127.0.0.1:{port}"

    @staticmethod
    def why_not():
        """The reason why the server cannot run here, or None."""
        if os.environ.get("SLUICE_NO_MONGO"):
            return "the MongoDB-wire server could not be fetched"
        done = subprocess.run([SERVICES / "mongo.sh", "fetch"], capture_output=True, text=True, check=False)
        return None if done.returncode == 0 else f"the MongoDB-wire server could not be fetched: {done.stderr.strip()[-300:]}"

    def client(self):
        return pymongo.MongoClient(self.uri, serverSelectionTimeoutMS=10000, socketTimeoutMS=30000)
