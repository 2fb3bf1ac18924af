# SPDX-License-Identifier: Apache-2.0
"""What the two programs answer on the command line, without serving anything."""
import re
import subprocess

import pytest

from sluice import BIN, ROOT

pytestmark = pytest.mark.quick
PROGRAMS = ["sluice-broker", "sluice-gateway"]


def run(program, *arguments, env=None, cwd=None):
    return subprocess.run([BIN / program, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=env,
                          cwd=cwd, check=False)


@pytest.mark.parametrize("program", PROGRAMS)
def test_version_is_the_projects(program):
    version = re.search(r"project\(sluice VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text()).group(1)
    done = run(program, "--version")
    assert done.returncode == 0
    assert done.stdout.strip() == f"{program} {version}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_unknown_argument_is_refused_and_named(program):
    done = run(program, "--nonsense")
    assert done.returncode != 0
    assert "--nonsense" in done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_shipped_configuration_is_accepted(program, tmp_path):
    shipped = ROOT / "etc" / (program.removeprefix("sluice-") + ".yml")
    done = run(program, "--config", shipped, "--check-config", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir()), "checking a configuration must not make files"


@pytest.mark.parametrize("program", PROGRAMS)
def test_missing_configuration_file_is_named(program, tmp_path):
    done = run(program, "--config", tmp_path / "none.yml", "--check-config")
    assert done.returncode != 0
    assert "none.yml" in done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
def test_broken_yaml_is_refused_with_file_and_line(program, tmp_path):
    path = tmp_path / "broken.yml"
    path.write_text("a: 1\nb: [1, 2\nc: 3\n")
    done = run(program, "--config", path, "--check-config")
    assert done.returncode != 0
    assert re.search(r"broken\.yml.*\b[234]\b", done.stderr), done.stderr


def test_broker_refuses_an_unknown_key_with_file_line_and_key(tmp_path):
    path = tmp_path / "bad.yml"
    path.write_text("listener:\n  tcp:\n    bind_prt: 1883\n")
    done = run("sluice-broker", "--config", path, "--check-config")
    assert done.returncode != 0
    assert re.search(r"bad\.yml:3.*bind_prt", done.stderr), done.stderr


def test_broker_refuses_a_number_out_of_range(tmp_path):
    path = tmp_path / "bad.yml"
    path.write_text("listener:\n  tcp:\n    bind_port: 70000\n")
    done = run("sluice-broker", "--config", path, "--check-config")
    assert done.returncode != 0
    assert re.search(r"bad\.yml:3.*bind_port", done.stderr) and "70000" in done.stderr, done.stderr


def test_broker_refuses_a_bad_environment_value_by_name(tmp_path):
    done = run("sluice-broker", "--check-config", env={"LISTENER_TCP_BIND_PORT": "many"}, cwd=tmp_path)
    assert done.returncode != 0
    assert "LISTENER_TCP_BIND_PORT" in done.stderr, done.stderr


def test_broker_prints_what_environment_and_file_make_of_it(tmp_path):
    path = tmp_path / "some.yml"
    path.write_text("listener:\n  tcp:\n    bind_port: 2001\nserver:\n  port: 2002\n")
    done = run("sluice-broker", "--config", path, "--print-config", env={"HTTP_BIND_PORT": "2003"})
    assert done.returncode == 0, done.stderr
    assert "2001" in done.stdout and "2003" in done.stdout and "2002" not in done.stdout


def test_gateway_warns_of_an_unknown_key_with_the_nearest_known_one(tmp_path):
    path = tmp_path / "odd.yml"
    path.write_text("mqtt-sse:\n  enabled: false\n  keep-alive-mss: 5\n")
    done = run("sluice-gateway", "--config", path, "--check-config")
    assert done.returncode == 0, done.stderr
    assert "keep-alive-mss" in done.stderr and re.search(r"keep-alive-ms\b(?!s)", done.stderr), done.stderr


def test_gateway_refuses_a_bad_value_with_its_key(tmp_path):
    path = tmp_path / "bad.yml"
    path.write_text("mqtt-mongo-writer:\n  enabled: true\n  id-strategy: hash\n")
    done = run("sluice-gateway", "--config", path, "--check-config")
    assert done.returncode != 0
    assert "id-strategy" in done.stderr and "hash" in done.stderr, done.stderr


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", ["config", "metrics", "template"])
def test_reference_is_printed(program, kind):
    done = run(program, "--print-reference", kind)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") > 10
