# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the system tests: real processes in temporary folders, on free ports of loopback."""
import os
import pathlib

import pytest

import mongo as mongo_module
from process import Process, free_port
from sluice import BIN, Broker, Gateway


def pytest_configure(config):
    config.addinivalue_line("markers", "quick: runs in ./test --quick as well")
    config.addinivalue_line("markers", "slow: takes minutes")


def pytest_sessionstart(session):
    for program in ("sluice-broker", "sluice-gateway"):
        if not (BIN / program).exists():
            pytest.exit(f"{BIN / program} is not built; run ./test, or set SLUICE_BIN_DIR", returncode=4)


@pytest.fixture
def processes():
    """Collects the processes of a test; at its end they are stopped in reverse order and checked."""
    started = []
    yield started
    problems = []
    for process in reversed(started):
        problems += process.finish()
    assert not problems, "\n".join(problems)


@pytest.fixture
def run_process(tmp_path, processes):
    """run_process(name, command, env=None): any other program as a Process, not started yet."""
    def make(name, command, env=None):
        processes.append(Process(name, command, tmp_path / name, env))
        return processes[-1]
    return make


@pytest.fixture
def make_broker(tmp_path, processes):
    """make_broker(settings=None, config=None, name='broker'): a Broker, not started yet."""
    def make(settings=None, config=None, name="broker"):
        processes.append(Broker(tmp_path / name, settings, config, name))
        return processes[-1]
    return make


@pytest.fixture
def broker(make_broker):
    """A running broker with its defaults."""
    return make_broker().start()


@pytest.fixture
def make_gateway(tmp_path, processes):
    """make_gateway(broker, config=None, env=None, name='gateway'): a Gateway, not started yet."""
    def make(broker, config=None, env=None, name="gateway"):
        processes.append(Gateway(tmp_path / name, broker.port, config, env, name))
        return processes[-1]
    return make


@pytest.fixture(scope="session")
def tool():
    """tool(name): the path of a program that the build makes for the tests."""
    folder = pathlib.Path(os.environ.get("SLUICE_TOOL_DIR", BIN.parent / "tests"))
    return lambda name: folder / name


@pytest.fixture
def mongo(tmp_path):
    """A running MongoDB-wire server."""
    reason = mongo_module.Mongo.why_not()
    if reason:
        pytest.skip(reason)
    server = mongo_module.Mongo(tmp_path / "mongo", free_port()).start()
    yield server
    server.kill()
