# SPDX-License-Identifier: Apache-2.0
"""The metadata database under a broker: whatever happens to it, clients are served and it heals by itself."""
import shutil
import sqlite3

import pytest

from broker_kit import drain, publish_many
from postgres_server import SCRIPT, Postgres
from process import wait_until


@pytest.fixture
def postgres():
    if shutil.which("psql") is None:
        pytest.skip(f"no PostgreSQL for {SCRIPT.name}")
    server = Postgres()
    yield server
    server.remove()


def is_ready(broker):
    return broker.get("/health/ready").status == 200


def serves(broker, count=200):
    """A persistent subscriber and a publisher get their work done."""
    with broker.client("sub", clean=False) as subscriber, broker.client("pub") as publisher:
        subscriber.subscribe("t", 1)
        publish_many(publisher, "t", [str(n) for n in range(count)], 1)
        drain(subscriber, count)


@pytest.mark.quick
def test_the_embedded_database_needs_nothing(make_broker):
    broker = make_broker().start()
    assert is_ready(broker)
    assert broker.metric("sluice_db_healthy") == 1
    broker.wait_log("NODE-IDENTITY ")
    path = broker.data / "metadata.db"
    assert path.stat().st_mode & 0o777 == 0o600
    broker.stop()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT product FROM tb_schema_settings").fetchone() == ("sluice",)
        assert database.execute("SELECT count(*) FROM admin_settings WHERE key LIKE 'node.%'").fetchone() == (1,)


def test_a_data_folder_remembers_its_service_id(make_broker):
    broker = make_broker({"TB_SERVICE_ID": "first"}).start()
    broker.wait_log("NODE-IDENTITY ")
    broker.stop()
    broker.env["TB_SERVICE_ID"] = "second"
    broker.start()
    line = broker.wait_log("NODE-RENAMED.*").group(0)
    assert "service_id=second" in line and "data_belongs_to=first" in line
    broker.stop()
    broker.env["TB_SERVICE_ID"] = "first"
    broker.start()
    broker.wait_log("NODE-IDENTITY ")
    assert not broker.events("NODE-RENAMED")


def test_a_newer_schema_is_refused(make_broker):
    broker = make_broker().start()
    broker.stop()
    with sqlite3.connect(broker.data / "metadata.db") as database:
        database.execute("UPDATE tb_schema_settings SET schema_version = 77")
    broker.expected_failure = True
    broker.start(ready=None)
    assert broker.wait_end() == 1
    (line,) = broker.events("BROKER-NOT-STARTED")
    assert "version 77" in line and "newer" in line
    with sqlite3.connect(broker.data / "metadata.db") as database:
        assert database.execute("SELECT schema_version FROM tb_schema_settings").fetchone() == (77,)


def test_a_damaged_file_is_put_aside(make_broker):
    """C80"""
    broker = make_broker().start()
    broker.kill()
    for suffix in ("-wal", "-shm"):
        (broker.data / f"metadata.db{suffix}").unlink(missing_ok=True)
    (broker.data / "metadata.db").write_bytes(b"no database at all, but not empty either\n" * 500)
    broker.start()
    assert broker.events("DB-DAMAGED")
    assert len(list(broker.data.glob("metadata.db.damaged-*"))) == 1
    assert is_ready(broker)


def test_postgres_away_at_start(postgres, make_broker):
    """C75, C79: the broker comes first, the database a little later."""
    broker = make_broker(postgres.settings()).start()
    answer = broker.get("/health/ready")
    assert answer.status == 503 and "PostgreSQL" in answer.text
    assert broker.get("/health/live").status == 200
    serves(broker)
    postgres.start()
    wait_until(lambda: is_ready(broker), 40, "readiness")
    wait_until(lambda: postgres.sql("SELECT count(*) FROM admin_settings WHERE key LIKE 'node.%'") == "1", 40,
               "the node's row")


@pytest.mark.parametrize("way", ["stop", "kill", "freeze"])
def test_postgres_goes_and_comes_back(postgres, make_broker, way):
    """C79"""
    broker = make_broker(postgres.start().settings()).start()
    wait_until(lambda: is_ready(broker), what="readiness")
    getattr(postgres, way)()
    wait_until(lambda: not is_ready(broker), what="the news that PostgreSQL is away")
    serves(broker, 2000)
    assert broker.metric("sluice_db_healthy") == 0
    if way == "freeze":
        postgres.resume()
    else:
        postgres.start()
    wait_until(lambda: is_ready(broker), 40, "readiness")
    assert broker.events("DB-UNAVAILABLE") and broker.events("DB-AVAILABLE")


def test_secrets_are_in_no_line(postgres, make_broker):
    url = f"postgresql://postgres:hid%64en-one@127.0.0.1:{postgres.start().port}/postgres"
    broker = make_broker(postgres.settings(SPRING_DATASOURCE_URL=url)).start()
    assert "refuses user or password" in broker.get("/health/ready").text
    broker.wait_log("DB-UNAVAILABLE")
    for secret in ("hidden-one", "hid%64en", postgres.password):
        assert secret not in broker.log()


def test_the_broker_ends_while_postgres_hangs(postgres, make_broker):
    broker = make_broker(postgres.start().settings()).start()
    wait_until(lambda: is_ready(broker), what="readiness")
    postgres.freeze()
    broker.stop(timeout=20)
    postgres.resume()
