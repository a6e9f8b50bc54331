"""`catena cluster` with real processes: what is started is there, is shown, and is gone when it is ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from catena.cli.cluster import nodes_named
from catena.testing.postgres_server import PostgresServer
from tests.cli.conftest import Catena
from tests.conftest import cannot_have

SHORT_SESSIONS = {"CATENA_CLUSTER__SESSION_TTL_MS": "3000"}
"""So that a node which died is forgotten soon."""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below pytest's own, which only root may enter if root runs the tests: PostgreSQL runs as nobody then."""
    with tempfile.TemporaryDirectory(prefix="catena-cluster-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.fixture
def cluster(catena: Catena, folder: Path) -> Iterator[Catena]:
    """Runs `catena cluster`, and ends what it has started."""

    def run(*args: str, env: dict[str, str] | None = None) -> Any:
        return catena("cluster", *args, at=folder, env=env)

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

    status = cluster("status", "--json")
    assert status.code == 0
    assert [node["state"] for node in status.json["nodes"]] == ["ready"] * 3

    down = cluster("down", "--json")
    assert (down.code, down.json) == (0, {"nodes": [0, 1, 2], "dead": [], "killed": []})
    assert not any(lives(node["pid"]) for node in nodes)
    assert cluster("status", "--json").json == {"nodes": []}
    assert cluster("down").code == 0


def test_nodes_with_roles_share_their_tails(cluster: Catena, folder: Path) -> None:
    up = cluster("up", "--nodes", "2", "--roles", "write,read", "--base-port", "0", "--json")
    assert up.code == 0, up.err
    writer, reader = up.json["nodes"]
    assert (writer["roles"], reader["roles"]) == (["write"], ["read"])
    tails = Path(up.json["environment"]["CATENA_DISKLESS__TAIL_FOLDER"])
    assert tails.parent.parent == folder
    write_and_read(writer["kafka"], writer["kafka"])
    with urllib.request.urlopen(f"http://{writer['http']}/metrics", timeout=30) as answer:
        told = json.load(answer)
    assert told["reads"]["shared_tail"]["published_batches"] > 0
    assert told["kafka"]["fetches_sent_on"]["sent"] > 0
    assert {path.suffix for path in tails.iterdir()} == {".ring", ".wake"}
    os.kill(writer["pid"], signal.SIGKILL)
    status = cluster("status")
    titles, *rows = [line.split() for line in status.out.split("\n\n")[0].splitlines()]
    assert (titles[:3], [row[1] for row in rows]) == (["NODE", "RACK", "ROLES"], ["write", "read"])
    assert cluster("down").code == 0
    assert not tails.exists()
    refused = cluster("up", "--nodes", "1", "--roles", "write,read")
    assert refused.code == 2
    assert "option --roles: no node would read" in refused.err


def test_a_node_that_died_is_shown_and_started_again_as_it_was(cluster: Catena) -> None:
    up = cluster("up", "--racks", "a,b", "--base-port", "0", "--json", env=SHORT_SESSIONS)
    assert (up.code, up.json["started"]) == (0, [0, 1, 2]), up.err
    before = up.json["nodes"]
    os.kill(before[1]["pid"], signal.SIGKILL)

    status = cluster("status")
    assert status.code == 1
    titles, *rows = [line.split() for line in status.out.split("\n\n")[0].splitlines()]
    assert [row[-1] for row in (titles, *rows)] == ["STATE", "ready", "dead", "ready"]
    assert "node 1 is dead" in status.out
    assert "`catena cluster up --data" in status.out

    again = cluster("up", "--nodes", "3")
    assert again.code == 0, again.err
    assert again.out.splitlines()[0] == "started node 1 again; nodes 0 and 2 went on"
    assert [line.split()[1:] for line in again.err.splitlines()] == [
        ["node-0", "running"],
        ["node-1", "ready"],
        ["node-2", "running"],
    ]
    status = cluster("status", "--json")
    assert status.code == 0
    after = [{name: value for name, value in node.items() if name != "state"} for node in status.json["nodes"]]
    assert (after[0], after[2]) == (before[0], before[2])
    assert after[1] == {**before[1], "pid": after[1]["pid"]}
    assert after[1]["pid"] != before[1]["pid"]
    write_and_read(after[0]["kafka"], after[1]["kafka"])

    again = cluster("up")
    assert (again.code, again.out.splitlines()[0]) == (0, "nothing to start: nodes 0, 1 and 2 run already")
    again = cluster("up", "--nodes", "4")
    assert (again.code, again.out) == (2, "")
    assert "was started with 3; `catena cluster down` ends it" in again.err

    os.kill(after[0]["pid"], signal.SIGKILL)
    os.kill(after[2]["pid"], signal.SIGKILL)
    assert cluster("down").out == "ended 1 node; nodes 0 and 2 were dead before\n"
    assert not lives(after[1]["pid"])
    assert cluster("status", "--json").json == {"nodes": []}


def test_people_are_shown_where_it_is(cluster: Catena) -> None:
    up = cluster("up", "--nodes", "1", "--base-port", "0")
    assert up.code == 0, up.err
    titles, node = up.out.splitlines()[:2]
    assert titles.split() == ["NODE", "RACK", "KAFKA", "HTTP", "PID"]
    assert node.split()[1] in up.out.split("bootstrap servers: ")[1]
    assert "node-0  ready" in up.err
    assert cluster("down").out == "ended 1 node\n"


def test_a_port_in_use_is_named(cluster: Catena, folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        up = cluster("up", "--nodes", "1", "--base-port", str(port))
        as_json = cluster("up", "--nodes", "1", "--base-port", str(port), "--json")
    assert (up.code, up.out) == (2, "")
    assert up.err == (
        f"catena: port {port} (node-0) is in use: end what listens there, "
        "or choose others with --base-port N (0: any free ones)\n"
    )
    assert (as_json.code, as_json.out) == (2, "")
    assert json.loads(as_json.err)["message"] == up.err.removeprefix("catena: ").strip()
    assert not (folder / "cluster" / "state.json").exists()
    assert cluster("status", "--json").json == {"nodes": []}


def test_a_node_that_does_not_start_ends_all(cluster: Catena, folder: Path) -> None:
    (folder / "meta.db").write_bytes(b"what is this" * 1000)
    up = cluster("up", "--nodes", "2", "--base-port", "0")
    assert up.code == 3
    assert "\ncatena: node-0 did not start: the meta store" in up.err
    assert "{" not in up.err
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

    # Also if the servers have died: they leave nothing behind, and the node is given their new addresses.
    os.kill(up.json["servers"]["pid"], signal.SIGKILL)
    status = cluster("status")
    assert status.code == 1
    assert "the servers of its stores are dead" in status.out
    again = cluster("up")
    assert again.code == 0, again.err
    assert again.out.startswith("started the servers of its stores and node 0 again\n")
    status = cluster("status", "--json")
    assert (status.code, status.json["servers"]["state"]) == (0, "running")
    assert status.json["nodes"][0]["kafka"] == up.json["nodes"][0]["kafka"]
    assert catena("consume", "t", env=status.json["environment"], at=folder).out.split() == [str(n) for n in range(10)]

    servers = status.json["servers"]["pid"]
    children = [int(pid) for pid in Path(f"/proc/{servers}/task/{servers}/children").read_text().split()]
    assert children
    os.kill(servers, signal.SIGKILL)
    assert cluster("down").out == "ended 1 node\n"
    assert not any(lives(pid) for pid in children)


def test_a_database_of_another_version_is_named(cluster: Catena, folder: Path, postgres_server: PostgresServer) -> None:
    database = folder / "cluster" / "postgres" / "data"
    database.mkdir(parents=True)
    (database / "PG_VERSION").write_text("7\n")
    up = cluster("up", "--nodes", "1", "--meta", "postgres", "--base-port", "0")
    assert up.code == 3
    said = f"catena: servers did not start: the database in {database} was written by PostgreSQL 7, and can be read by"
    assert said in up.err
    assert "put initdb and postgres of PostgreSQL 7 on PATH, or begin anew in another folder (--data DIR)" in up.err
    assert "FATAL" not in up.err


def test_a_database_gets_the_version_that_wrote_it(
    cluster: Catena, folder: Path, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here one that comes second, after those of the wheel, and says who it is."""
    database = folder / "cluster" / "postgres" / "data"
    database.mkdir(parents=True)
    (database / "PG_VERSION").write_text("7\n")
    on_path = folder / "bin"
    on_path.mkdir()
    for name in ("initdb", "postgres"):
        (on_path / name).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 7.4'; test $1 = -V || exit 77\n")
        (on_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(on_path), prepend=os.pathsep)
    up = cluster("up", "--nodes", "1", "--meta", "postgres", "--base-port", "0")
    ended = "postgres ended with code 77 while it started: postgres (PostgreSQL) 7.4"
    assert f"servers did not start: {ended}" in up.err


def test_names_of_nodes() -> None:
    assert [nodes_named(ids) for ids in ([1], [0, 2], [0, 1, 2])] == ["node 1", "nodes 0 and 2", "nodes 0, 1 and 2"]
