# SPDX-License-Identifier: Apache-2.0
"""A server process under test: start, wait for an event in its log, stop, crash, freeze.

The log file is kept over restarts; waiting looks only at what the present run has written. A process
that ended without being told to, or that a sanitizer complained about, fails the test (check()).
"""
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import time


def free_port():
    """A TCP port below the range of outgoing connections that nobody listens on."""
    for _ in range(200):
        port = random.randrange(20000, 32000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError("no free port between 20000 and 32000")


def wait_until(condition, timeout=20.0, what="the condition"):
    """Polls until condition() is true and returns its value."""
    end = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come about in {timeout:g} s")
        time.sleep(0.02)


class Process:
    def __init__(self, name, command, folder, env=None):
        self.name, self.command = name, [str(part) for part in command]
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_path = self.folder / f"{name}.log"
        self.env = dict(os.environ, **(env or {}))
        self.env["ASAN_OPTIONS"] = f"log_path={self.folder / (name + '.sanitizer')}:exitcode=99:detect_stack_use_after_return=0"
        self.env["UBSAN_OPTIONS"] = "print_stacktrace=1"
        self.process = None
        self.log_start = 0
        self.problems = []

    def start(self, ready=None, timeout=60.0):
        """ready: an event id to wait for in the log."""
        assert not self.running(), f"{self.name} runs already"
        self.log_start = self.log_path.stat().st_size if self.log_path.exists() else 0
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(self.command, cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log, start_new_session=True)
        if ready:
            self.wait_log(rf"\b{re.escape(ready)}\b", timeout)
        return self

    @property
    def pid(self):
        return self.process.pid

    def running(self):
        return self.process is not None and self.process.poll() is None

    def log(self):
        """What the present run has written."""
        if not self.log_path.exists():
            return ""
        with open(self.log_path, "rb") as log:
            log.seek(self.log_start)
            return log.read().decode("utf-8", "replace")

    def events(self, event):
        """The log lines of this event id, in the present run."""
        return [line for line in self.log().splitlines() if re.search(rf"\b{re.escape(event)}\b", line)]

    def wait_log(self, pattern, timeout=20.0):
        def found():
            match = re.search(pattern, self.log())
            if not match and not self.running():
                raise AssertionError(f"{self.name} ended (status {self.process.returncode}):\n{self.log()[-4000:]}")
            return match
        try:
            return wait_until(found, timeout, f"/{pattern}/ in the log of {self.name}")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log()[-4000:]}") from None

    def stop(self, timeout=30.0):
        """SIGTERM; the clean end with status 0 is checked."""
        self.resume()
        self.process.terminate()
        try:
            status = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} does not end {timeout:g} s after SIGTERM:\n{self.log()[-4000:]}") from None
        assert status == 0, f"{self.name} ended with status {status} after SIGTERM:\n{self.log()[-4000:]}"

    def kill(self):
        """SIGKILL, as a crash; returns when the process is gone."""
        if self.running():
            self.process.kill()
            self.process.wait(30)

    def freeze(self):
        self.process.send_signal(signal.SIGSTOP)

    def resume(self):
        if self.running():
            self.process.send_signal(signal.SIGCONT)

    def wait_end(self, timeout=30.0):
        """For a process that is expected to end by itself; returns its status."""
        return self.process.wait(timeout)

    def sanitizer_reports(self):
        return [path.read_text(errors="replace") for path in sorted(self.folder.glob(f"{self.name}.sanitizer.*"))]

    def finish(self):
        """Ends what still runs and returns what went wrong, for the fixture to report."""
        problems = []
        if self.process is not None and self.process.poll() not in (None, 0, -signal.SIGKILL) and not self.expected_failure:
            problems.append(f"{self.name} ended by itself with status {self.process.returncode}:\n{self.log()[-4000:]}")
        elif self.running():
            try:
                self.stop()
            except AssertionError as error:
                problems.append(str(error))
        problems += [f"sanitizer report of {self.name}:\n{text[:6000]}" for text in self.sanitizer_reports()]
        return problems

    # A test of a refusal (bad configuration, damaged file) sets this.
    expected_failure = False
