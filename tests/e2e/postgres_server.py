# SPDX-License-Identifier: Apache-2.0
"""The PostgreSQL server of tests/support/services as an object, and the broker's settings for it."""
import os
import pathlib
import shutil
import subprocess
import tempfile

from process import free_port
from service import SERVICES, Service

SCRIPT = SERVICES / "postgres.sh"


class Postgres(Service):
    script = "postgres.sh"
    password = "secret word"
    environment = {"POSTGRES_PASSWORD": password}

    def __init__(self):
        # pytest's own folders are closed to the user that the server runs as
        self.parent = pathlib.Path(tempfile.mkdtemp(prefix="sluice-pg-"))
        self.parent.chmod(0o755)
        super().__init__(self.parent / "pg", free_port())

    def remove(self):
        if self.folder.exists():
            self.kill()
        shutil.rmtree(self.parent)

    def sql(self, text):
        """Rows of psql, one a line, columns with |."""
        done = subprocess.run(["psql", "-XAtq", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-c", text],
                              env=dict(os.environ, PGPASSWORD=self.password), capture_output=True, text=True, timeout=30,
                              check=True)
        return done.stdout.strip()

    def settings(self, **more):
        return {"SLUICE_METADATA": "postgres", "SPRING_DATASOURCE_PASSWORD": self.password,
                "SPRING_DATASOURCE_URL": f"jdbc:postgresql://127.0.0.1:{self.port}/postgres", **more}
