"""`catena cluster` with real processes: what is started is there, is shown, and is gone when it is ended."""

from __future__ import annotations

import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from catena.cli.cluster import choose_stores
from catena.errors import ConfigError
from tests.cli.conftest import Catena
from tests.conftest import cannot_have


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own, which only root may enter if root runs the tests: PostgreSQL runs as nobody then."""
    with tempfile.TemporaryDirectory(prefix="catena-cluster-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def cluster(catena: Catena, folder: Path) -> Iterator[Catena]:
    """Runs `catena cluster`, and ends what it has started."""

    def run(*args: str) -> Any:
        return catena("cluster", *args, at=folder)

    yield run
    run("down")


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def write_and_read(write_to: str, read_from: str) -> None:
    producer = Producer({"bootstrap.servers": write_to})
    for number in range(10):
        producer.produce("t", b"%d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": read_from, "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    messages = consumer.consume(10, 30)
    assert [message.value() for message in messages] == [b"%d" % number for number in range(10)]
    consumer.close()


def test_up_status_down(cluster: Catena) -> None:
    up = cluster("up", "--nodes", "3", "--racks", "a,b", "--base-port", "0", "--json")
    assert up.code == 0, up.err
    nodes = up.json["nodes"]
    assert [(node["id"], node["rack"]) for node in nodes] == [(0, "a"), (1, "b"), (2, "a")]
    assert up.json["bootstrap_servers"] == ",".join(node["kafka"] for node in nodes)
    write_and_read(nodes[0]["kafka"], nodes[2]["kafka"])

    again = cluster("up", "--base-port", "0")
    assert again.code == 2
    assert "`catena cluster down` ends it" in again.err

    status = cluster("status", "--json")
    assert status.code == 0
    assert [node["state"] for node in status.json["nodes"]] == ["ready"] * 3

    os.kill(nodes[1]["pid"], signal.SIGKILL)
    status = cluster("status")
    assert status.code == 1
    assert [line.split()[-1] for line in status.out.splitlines()[1:]] == ["ready", "ended", "ready"]

    down = cluster("down", "--json")
    assert (down.code, down.json) == (0, {"nodes": [0, 1, 2], "killed": []})
    assert not any(lives(node["pid"]) for node in nodes)
    assert cluster("status", "--json").json == {"nodes": []}
    assert cluster("down").code == 0


def test_people_are_shown_where_it_is(cluster: Catena) -> None:
    up = cluster("up", "--nodes", "1", "--base-port", "0")
    assert up.code == 0, up.err
    titles, node = up.out.splitlines()[:2]
    assert titles.split() == ["NODE", "RACK", "KAFKA", "HTTP", "PID"]
    assert node.split()[1] in up.out.split("bootstrap servers: ")[1]
    assert "node-0  ready" in up.err
    assert cluster("down").out == "ended 1 node\n"


def test_a_node_that_does_not_start_ends_all(cluster: Catena, folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        up = cluster("up", "--nodes", "2", "--base-port", str(port - 1))
    assert up.code == 3
    assert "the log of node-1 ends with" in up.err
    assert f"can't listen on 127.0.0.1:{port}" in up.err
    assert not (folder / "cluster" / "state.json").exists()
    assert cluster("status", "--json").json == {"nodes": []}


def test_with_servers_for_its_stores(cluster: Catena, catena: Catena, folder: Path) -> None:
    up = cluster("up", "--nodes", "2", "--meta", "postgres", "--objects", "s3", "--base-port", "0", "--json")
    if "pip install" in up.err:
        cannot_have("postgres", up.err)
    assert up.code == 0, up.err
    kept = up.json["environment"]
    assert kept["CATENA_META"].startswith("postgresql://")
    assert kept["CATENA_OBJECTS"].startswith("s3://")
    first, second = up.json["nodes"]
    write_and_read(first["kafka"], second["kafka"])
    assert "t " in catena("topic", "list", env=kept, at=folder).out
    assert cluster("down", "--json").json["killed"] == []

    # What was stored is there again.
    up = cluster("up", "--nodes", "1", "--meta", "postgres", "--objects", "s3", "--base-port", "0", "--json")
    assert up.code == 0, up.err
    assert catena("consume", "t", env=up.json["environment"], at=folder).out.split() == [str(n) for n in range(10)]


def test_stores() -> None:
    assert choose_stores(None, None) == ((), {})
    assert choose_stores("postgres", "s3") == (("postgres", "s3"), {})
    assert choose_stores("sqlite", "folder") == ((), {"CATENA_META": "", "CATENA_OBJECTS": ""})
    assert choose_stores("objects:", "s3://b") == ((), {"CATENA_META": "objects:", "CATENA_OBJECTS": "s3://b"})
    with pytest.raises(ConfigError, match="--meta: nodes are processes"):
        choose_stores("memory:", None)
    with pytest.raises(ConfigError, match="--objects: 'gcs' is not folder, s3 or an address"):
        choose_stores(None, "gcs")
