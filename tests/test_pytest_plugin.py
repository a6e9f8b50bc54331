"""The plugin as a project uses it that has Catena installed: in a pytest run of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from catena.errors import CatenaError, ConfigError, UnknownTopic
from catena.pytest_plugin import running_broker

SYNC = """
import socket
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource


def test_produce_and_consume(catena_broker):
    catena_broker.create_topic("orders", 3, retention_ms=60_000, cleanup_policy="compact")
    servers = {"bootstrap.servers": catena_broker.bootstrap_servers}
    producer = Producer(servers)
    for number in range(30):
        producer.produce("orders", key=str(number), value=b"%d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer({**servers, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    values = sorted(int(message.value()) for message in consumer.consume(30, 30))
    assert values == list(range(30))
    consumer.close()
    admin = AdminClient(servers)
    (configs,) = admin.describe_configs([ConfigResource("topic", "orders")]).values()
    assert configs.result(30)["retention.ms"].value == "60000"


@pytest.mark.parametrize("run", range(2))
def test_has_nothing_in_it(catena_broker, run):
    topics = AdminClient({"bootstrap.servers": catena_broker.bootstrap_servers}).list_topics(timeout=30).topics
    assert list(topics) == []
    catena_broker.create_topic("orders")


def test_leaves_a_consumer_open(catena_broker):
    catena_broker.create_topic("orders")
    consumer = Consumer({"bootstrap.servers": catena_broker.bootstrap_servers, "group.id": "g"})
    consumer.subscribe(["orders"])
    assert consumer.poll(0.1) is None


def test_one_for_all(catena_broker_session):
    catena_broker_session.create_topic("shared")


def test_one_for_all_again(catena_broker_session, catena_broker):
    admin = AdminClient({"bootstrap.servers": catena_broker_session.bootstrap_servers})
    assert list(admin.list_topics(timeout=30).topics) == ["shared"]
    catena_broker_session.delete_topic("shared")
    assert list(admin.list_topics(timeout=30).topics) == []
    assert catena_broker.port != catena_broker_session.port
    with socket.create_connection((catena_broker.host, catena_broker.port)):
        pass
"""

BARE = """
def test_it(catena_broker):
    host, port = catena_broker.bootstrap_servers.split(":")
    assert (host, int(port)) == (catena_broker.host, catena_broker.port)
"""


def run_pytest(folder: Path, code: str, *args: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(code)
    (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "CATENA"))}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", *args],
        cwd=folder,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=100,
    )


def test_works_in_a_run_of_its_own(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, SYNC)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "6 passed" in ran.stdout


def test_is_explained(tmp_path: Path) -> None:
    shown = run_pytest(tmp_path, BARE, "--fixtures").stdout
    assert "A Kafka broker of this test's own" in shown


def test_costs_nothing_where_it_is_not_used() -> None:
    heavy = ("msgspec", "uvloop", "h11", "obstore")
    code = f"import sys, catena.pytest_plugin; print([name for name in {heavy} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ran.stdout.strip() == "[]"


def test_errors_come_through() -> None:
    with running_broker() as broker:
        with pytest.raises(ConfigError, match=r"no\.such\.config"):
            broker.create_topic("t", no_such_config=1)
        with pytest.raises(UnknownTopic):
            broker.delete_topic("t")
        broker.create_topic("t", diskless_enable=True)
    with pytest.raises(CatenaError), running_broker(meta="nonsense:"):
        raise AssertionError("it must not start")


def test_the_examples_work(tmp_path: Path) -> None:
    guide = (Path(__file__).resolve().parents[1] / "docs" / "pytest.md").read_text()
    examples = re.findall(r"^```python\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    used = """
def test_fixtures(broker_that_knows_its_topics, broker_with_files, tmp_path):
    broker_with_files.create_topic("t")
    assert (tmp_path / "meta.db").exists()
    assert broker_that_knows_its_topics.port
"""
    ran = run_pytest(tmp_path, "\n".join([*examples, used]))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
