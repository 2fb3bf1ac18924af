# SPDX-License-Identifier: Apache-2.0
"""The PostgreSQL server of tests/support/services as an object, and the broker's settings for it."""
import os
import pathlib
import shutil
import subprocess
import tempfile

from process import free_port
from sluice import ROOT

SCRIPT = ROOT / "tests" / "support" / "services" / "postgres.sh"


class Postgres:
    password = "secret word"

    def __init__(self):
        # pytest's own folders are closed to the user that the server runs as
        self.parent = pathlib.Path(tempfile.mkdtemp(prefix="sluice-pg-"))
        self.parent.chmod(0o755)
        self.folder, self.port = self.parent / "pg", free_port()

    def _run(self, *arguments):
        env = dict(os.environ, POSTGRES_PASSWORD=self.password)
        done = subprocess.run([SCRIPT, *map(str, arguments)], env=env, capture_output=True, text=True, timeout=120,
                              check=False)
        assert done.returncode == 0, f"postgres.sh {arguments}: {done.stderr}"

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
