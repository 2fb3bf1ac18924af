# SPDX-License-Identifier: Apache-2.0
"""The inbox in Redis: what the broker promises stays true while Redis is away, hangs, forgets or is full."""
import time

import pytest

import mqtt_raw
from broker_kit import drain, publish_many
from process import free_port, wait_until
from redis_server import Cluster, Redis


@pytest.fixture
def redis(tmp_path):
    server = Redis(tmp_path / "redis").start()
    yield server
    server.kill()


@pytest.fixture
def cluster(tmp_path):
    servers = Cluster(tmp_path / "cluster").start()
    yield servers
    servers.kill()


def numbers(packets):
    return [int(pkt.payload) for pkt in packets]


def finished(client, seconds=0.5):
    """Handshakes come to their end, and no other message comes."""
    while True:
        try:
            pkt = client.recv(seconds)
        except TimeoutError:
            return
        assert pkt.kind == mqtt_raw.PUBREL, pkt
        client.send(mqtt_raw.pubcomp(pkt.packet_id))


def leave(client):
    client.send(mqtt_raw.disconnect())
    client.closed()


def absent(broker, name, topic, qos):
    """A persistent session that subscribes and goes."""
    with broker.client(name, clean=False) as client:
        client.subscribe(topic, qos)
        leave(client)


def is_ready(broker):
    return broker.get("/health/ready").status == 200


@pytest.mark.quick
def test_messages_wait_in_redis_and_come_in_order(redis, make_broker):
    broker = make_broker(redis.settings()).start()
    wait_until(lambda: is_ready(broker), what="readiness")
    absent(broker, "dev", "a/#", 2)
    with broker.client("pub", 5) as publisher:
        for number in range(300):
            publisher.publish("a/b", str(number), 1 + number % 2, packet_id=number + 1)  # order is by topic
    wait_until(lambda: redis.cli("ZCARD", "e2e:{dev}_messages") == "300", what="300 rows in Redis")
    assert redis.cli("GET", "e2e:{dev}_last_packet_id") == "300"
    assert 0 < int(redis.cli("TTL", "e2e:{dev}_messages_300")) <= 604800
    with broker.raw() as client:
        assert client.connect("dev", clean=False).session_present
        got = drain(client, 300)
        assert numbers(got) == list(range(300))
        finished(client)
        wait_until(lambda: redis.cli("EXISTS", "e2e:{dev}_messages") == "0", what="an empty box")
    assert redis.cli("KEYS", "e2e:{dev}_messages*") == ""
    with broker.client("dev") as client:  # a clean session: nothing is kept
        leave(client)
    wait_until(lambda: redis.cli("KEYS", "e2e:{dev}_messages*") == "", what="no keys")


@pytest.mark.parametrize("way", ["stop", "kill", "freeze"])
def test_redis_away_for_seconds_costs_nobody_anything(redis, make_broker, way):
    """A connected and an absent persistent client get everything once and in order; publishers go on meanwhile."""
    broker = make_broker(redis.settings(REDIS_LETTUCE_COMMAND_TIMEOUT_SEC=1)).start()
    absent(broker, "absent", "t", 1)
    with broker.client("here", clean=False) as here, broker.client("plain") as plain, broker.client("pub") as publisher:
        here.subscribe("t", 2)
        plain.subscribe("t", 0)
        publish_many(publisher, "t", [str(n) for n in range(200)], 1)
        assert numbers(drain(here, 100)) == list(range(100))
        getattr(redis, way)()
        began = time.monotonic()
        publish_many(publisher, "t", [str(n) for n in range(200, 700)], 2)
        assert numbers([plain.expect(mqtt_raw.PUBLISH) for _ in range(700)]) == list(range(700))
        if way != "freeze":
            wait_until(lambda: not is_ready(broker), what="readiness to say that Redis is away")
        wait_until(lambda: time.monotonic() > began + 5, what="five seconds of outage")
        if way == "freeze":
            redis.resume()
        else:
            redis.start()
        assert numbers(drain(here, 600, 60)) == list(range(100, 700))
        wait_until(lambda: is_ready(broker), what="readiness")
        publish_many(publisher, "t", [str(n) for n in range(700, 750)], 2)
        assert numbers(drain(here, 50)) == list(range(700, 750))
        finished(here)
    with broker.client("absent", clean=False) as client:
        assert numbers(drain(client, 750)) == list(range(750))
    assert broker.metric("sluice_inbox_failed_operations_total") == 0


def test_redis_away_at_start(redis, make_broker):
    """The broker starts without it, takes everything, says that it is not ready, and delivers when Redis comes."""
    redis.stop()
    broker = make_broker(redis.settings()).start()
    assert broker.get("/health/live").status == 200 and not is_ready(broker)
    assert broker.metric("sluice_inbox_unreachable") == 1
    absent(broker, "dev", "t", 1)
    with broker.client("pub") as publisher:
        publish_many(publisher, "t", [str(n) for n in range(100)])
    redis.start()
    wait_until(lambda: is_ready(broker), what="readiness")
    with broker.client("dev", clean=False) as client:
        assert numbers(drain(client, 100)) == list(range(100))


def test_the_broker_ends_while_redis_is_away_and_nothing_is_lost(redis, make_broker):
    broker = make_broker(redis.settings()).start()
    absent(broker, "dev", "t", 2)
    wait_until(lambda: is_ready(broker), what="readiness")
    redis.stop()
    with broker.client("pub") as publisher:
        publish_many(publisher, "t", [str(n) for n in range(100)], 2)
    broker.stop()
    redis.start()
    broker.start()
    with broker.client("dev", clean=False) as client:
        assert numbers(drain(client, 100)) == list(range(100))
        finished(client)


def test_crashes_of_the_broker_give_each_message_once(redis, make_broker):
    """What Redis has is not stored again by a replay of the log."""
    broker = make_broker(redis.settings()).start()
    absent(broker, "dev", "t", 2)
    for round_ in range(4):
        with broker.client("pub") as publisher:
            publish_many(publisher, "t", [str(n) for n in range(round_ * 100, round_ * 100 + 100)], 2)
            broker.kill()
        broker.start()
    with broker.client("dev", clean=False) as client:
        assert numbers(drain(client, 400)) == list(range(400))
        finished(client)


def test_a_handshake_goes_on_after_redis_was_away(redis, make_broker):
    """PUBREC while Redis is away: PUBREL comes when the marker is stored, and a reconnect finds the marker."""
    broker = make_broker(redis.settings()).start()
    with broker.client("dev", clean=False) as client, broker.client("pub") as publisher:
        client.subscribe("t", 2)
        publisher.publish("t", b"x", 2)
        got = client.expect(mqtt_raw.PUBLISH)
        redis.stop()
        client.send(mqtt_raw.pubrec(got.packet_id))
        assert client.quiet()
        redis.start()
        client.expect(mqtt_raw.PUBREL, packet_id=got.packet_id)
    with broker.client("dev", clean=False) as client:
        client.expect(mqtt_raw.PUBREL, packet_id=got.packet_id)
        client.send(mqtt_raw.pubcomp(got.packet_id))
        wait_until(lambda: redis.cli("EXISTS", "e2e:{dev}_messages") == "0", what="an empty box")


def test_lost_scripts_are_loaded_again(redis, make_broker):
    broker = make_broker(redis.settings()).start()
    with broker.client("dev", clean=False) as client, broker.client("pub") as publisher:
        client.subscribe("t", 1)
        for number in range(20):
            if number % 5 == 0:
                redis.cli("SCRIPT", "FLUSH")
            publisher.publish("t", str(number), 1, packet_id=number + 1)
        assert numbers(drain(client, 20)) == list(range(20))
    assert broker.events("REDIS-SCRIPTS-RELOADED")


def test_a_full_redis_is_waited_for(redis, make_broker):
    broker = make_broker(redis.settings()).start()
    absent(broker, "dev", "t", 1)
    wait_until(lambda: is_ready(broker), what="readiness")
    redis.cli("CONFIG", "SET", "maxmemory", "1")
    with broker.client("pub") as publisher:
        publish_many(publisher, "t", [str(n) for n in range(50)])
    broker.wait_log("INBOX-NOT-WRITTEN")
    redis.cli("CONFIG", "SET", "maxmemory", "0")
    with broker.client("dev", clean=False) as client:
        assert numbers(drain(client, 50)) == list(range(50))


def test_c72_odd_client_ids_have_boxes_of_their_own(redis, make_broker):
    broker = make_broker(redis.settings()).start()
    names = ["{}", "a}b", "a", "}", "%7D", "a}_messages", "../../x", "é", "a b"]
    for at, name in enumerate(names):
        absent(broker, name, f"to/{at}", 1)
    with broker.client("pub") as publisher:
        for at in range(len(names)):
            publisher.publish(f"to/{at}", str(at), 1, packet_id=at + 1)
    for at, name in enumerate(names):
        with broker.client(name, clean=False) as client:
            assert numbers(drain(client, 1)) == [at], name
            assert client.quiet(0.1), name


def test_expired_messages_are_gone_and_the_later_one_comes_at_once(redis, make_broker):
    broker = make_broker(redis.settings()).start()
    absent(broker, "dev", "t", 1)
    with broker.client("pub", 5) as publisher:
        for number in range(300):
            publisher.publish("t", str(number), 1, packet_id=number + 1, props={"message_expiry": 1})
        publisher.publish("t", "300", 1, packet_id=301)
    wait_until(lambda: redis.cli("EXISTS", "e2e:{dev}_messages_300") == "0", what="expiry in Redis")
    with broker.client("dev", clean=False) as client:
        assert numbers(drain(client, 1)) == [300]
        assert client.quiet(0.1)


def test_a_cluster_loses_a_master_for_a_while(cluster, make_broker):
    """Clients in every part of the cluster: those of the lost master wait, nobody misses anything."""
    names = [f"dev{n}" for n in range(12)]
    broker = make_broker(cluster.settings()).start()
    wait_until(lambda: is_ready(broker), what="readiness")
    for name in names:
        absent(broker, name, "t", 1)
    with broker.client("pub") as publisher:
        publish_many(publisher, "t", [str(n) for n in range(50)])
        wait_until(lambda: broker.metric("sluice_inbox_added_rows_total") == 600, what="600 rows stored")
        cluster.cut(2)
        wait_until(lambda: not is_ready(broker), what="readiness to say that a master is away")
        publish_many(publisher, "t", [str(n) for n in range(50, 150)])
    cluster.join(2)
    for name in names:
        with broker.client(name, clean=False) as client:
            assert numbers(drain(client, 150, 60)) == list(range(150)), name


def test_a_slot_moves_while_messages_come(cluster, make_broker):
    """MOVED and ASK by a real migration of the slot of one client."""
    broker = make_broker(cluster.settings()).start()
    absent(broker, "dev", "t", 2)
    slot = cluster.cli("CLUSTER", "KEYSLOT", "e2e:{dev}_messages")
    ports = [cluster.port + n for n in range(3)]
    node_ids = {port: cluster.cli("CLUSTER", "MYID", port=port) for port in ports}
    owner = ports[0 if int(slot) <= 5460 else 1 if int(slot) <= 10922 else 2]
    target = next(port for port in ports if port != owner)
    with broker.client("pub") as publisher:
        publish_many(publisher, "t", [str(n) for n in range(100)], 2)
        wait_until(lambda: broker.metric("sluice_inbox_added_rows_total") == 100, what="100 rows stored")
        cluster.cli("CLUSTER", "SETSLOT", slot, "IMPORTING", node_ids[owner], port=target)
        cluster.cli("CLUSTER", "SETSLOT", slot, "MIGRATING", node_ids[target], port=owner)
        publish_many(publisher, "t", [str(n) for n in range(100, 150)], 2)
        while keys := cluster.cli("CLUSTER", "GETKEYSINSLOT", slot, 50, port=owner).split():
            cluster.cli("MIGRATE", "127.0.0.1", target, "", 0, 5000, "AUTH", cluster.password, "KEYS", *keys, port=owner)
            publish_many(publisher, "t", ["skip"], 1)
        for port in (target, owner):
            cluster.cli("CLUSTER", "SETSLOT", slot, "NODE", node_ids[target], port=port)
        publish_many(publisher, "t", [str(n) for n in range(150, 200)], 2)
    with broker.client("dev", clean=False) as client:
        got = []
        while len(got) < 200:
            got += [int(p.payload) for p in drain(client, 1, distinct=False) if p.payload != b"skip"]
    assert got == list(range(200))


@pytest.mark.parametrize("settings, word", [
    ({"REDIS_SSL_ENABLED": "true", "REDIS_SSL_CERT_FILE": "/no/ca.pem"}, "/no/ca.pem"),
    ({"REDIS_SSL_CERT_FILE": "/no/ca.pem"}, "REDIS_SSL_ENABLED"),
    ({"REDIS_CONNECTION_TYPE": "cluster", "REDIS_NODES": "host"}, "REDIS_NODES"),
    ({"REDIS_CONNECTION_TYPE": "cluster", "REDIS_NODES": "h:1", "REDIS_DB": "3"}, "REDIS_DB"),
    ({"REDIS_CONNECTION_TYPE": "sentinel", "REDIS_SENTINELS": "h:1"}, "REDIS_MASTER"),
    ({"CACHE_PREFIX": "a{b}"}, "CACHE_PREFIX"),
    ({"REDIS_USERNAME": "u"}, "REDIS_USERNAME"),
])
def test_settings_that_cannot_be_are_refused_by_name(make_broker, settings, word):
    broker = make_broker({"SLUICE_INBOX": "redis", **settings})
    broker.expected_failure = True
    broker.start(ready=None)
    assert broker.wait_end() != 0
    assert word in broker.log()


def test_a_user_with_the_rights_of_the_documents_is_enough(redis, make_broker):
    """docs/redis.md lists them."""
    inside = "get set unlink del type zadd zrem zrange zrangebyscore zremrangebyrank zcard zscore hget hmget hset hdel hlen hgetall"
    rights = ["evalsha", "script|load", "client|info", "client|kill", *inside.split()]
    redis.cli("ACL", "SETUSER", "sluice", "on", ">its password", "~e2e:*", *[f"+{right}" for right in rights])
    broker = make_broker(redis.settings(REDIS_USERNAME="sluice", REDIS_PASSWORD="its password")).start()
    absent(broker, "dev", "t", 2)
    with broker.client("pub") as publisher:
        publish_many(publisher, "t", [str(n) for n in range(50)], 2)
    with broker.client("dev", clean=False) as client:
        assert numbers(drain(client, 50)) == list(range(50))
        finished(client)
        leave(client)
    with broker.client("dev", clean=True) as client:
        leave(client)
    assert not broker.events("REDIS-OPERATION-REFUSED")


def test_sentinels_name_the_new_master(tmp_path, make_broker, run_process):
    """The master is killed when its replica has everything: the broker goes on at the replica."""
    master, replica = Redis(tmp_path / "master").start(), Redis(tmp_path / "replica")
    replica.start()
    try:
        replica.cli("REPLICAOF", "127.0.0.1", master.port)
        port = free_port()
        config = tmp_path / "sentinel.conf"
        config.write_text(f"port {port}\nbind 127.0.0.1\nrequirepass watcher\n"
                          f"sentinel monitor main 127.0.0.1 {master.port} 1\nsentinel auth-pass main \"{master.password}\"\n"
                          "sentinel down-after-milliseconds main 1000\nsentinel failover-timeout main 3000\n")
        run_process("sentinel", ["redis-server", config, "--sentinel"]).start(ready="Sentinel")
        wait_until(lambda: "master_link_status:up" in replica.cli("INFO", "replication"), what="a replica")
        broker = make_broker(master.settings(REDIS_CONNECTION_TYPE="sentinel", REDIS_SENTINELS=f"127.0.0.1:{port}",
                                             REDIS_MASTER="main", REDIS_SENTINEL_PASSWORD="watcher")).start()
        absent(broker, "dev", "t", 1)
        with broker.client("pub") as publisher:
            publish_many(publisher, "t", [str(n) for n in range(100)])
            wait_until(lambda: replica.cli("ZCARD", "e2e:{dev}_messages") == "100", what="100 rows at the replica")
            master.kill()
            publish_many(publisher, "t", [str(n) for n in range(100, 200)])
        with broker.client("dev", clean=False) as client:
            assert numbers(drain(client, 200, 60)) == list(range(200))
        assert is_ready(broker) and "role:master" in replica.cli("INFO", "replication")
    finally:
        master.kill()
        replica.kill()


def test_a_wrong_password_is_told_and_not_shown(redis, make_broker):
    broker = make_broker(redis.settings(REDIS_PASSWORD="guessed")).start()
    broker.wait_log("REDIS-REFUSED")
    assert "guessed" not in broker.log() and not is_ready(broker)
