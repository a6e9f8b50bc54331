"""`catena serve` as a process: it says where it is, is told to end, and ends."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition

from catena.cli.options import Common
from catena.cli.serve import load_settings
from catena.errors import ConfigError
from tests.cli.conftest import CATENA, Catena, clean_environment

ANY_PORT = ("--port", "0")

ENDS_ITSELF = """
import gc, os, signal, sys
from catena.cli.serve import run_until_ended
from catena.config import load

made_since = []

def end(node):
    made_since.extend([] for _ in range(10_000))
    os.kill(os.getpid(), signal.SIGTERM)

run_until_ended(load(data=sys.argv[1], kafka={"listeners": {"main": {"port": 0}}}), end)
print(len(gc.get_objects()))
"""


class Served:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self.process = process
        self.out: IO[str] = process.stdout
        self.err: IO[str] = process.stderr

    def started(self) -> dict[str, Any]:
        """What it says when it is ready."""
        line = self.out.readline()
        assert line, self.err.read()
        said: dict[str, Any] = json.loads(line)
        return said

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[int, list[str]]:
        """Its exit code, and what it has logged."""
        self.process.send_signal(number)
        log = self.err.read().splitlines()
        return self.process.wait(30), log


@contextmanager
def serving(folder: Path, *args: str, **env: str) -> Iterator[Served]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [CATENA, "serve", *args], cwd=folder, env=clean_environment(**env), stdout=pipe, stderr=pipe, text=True
    ) as process:
        try:
            yield Served(process)
        finally:
            process.kill()


def get(address: str, path: str) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection(address, timeout=10)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@contextmanager
def long_fetch(address: str) -> Iterator[None]:
    """A consumer whose fetch is not answered for a while."""
    producer = Producer({"bootstrap.servers": address})
    producer.produce("t", b"one")
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "g", "enable.auto.commit": False, "fetch.wait.max.ms": 60_000}
    )
    consumer.assign([TopicPartition("t", 0, OFFSET_BEGINNING)])
    assert consumer.poll(30) is not None
    yield
    consumer.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_it_is_told_to_end(tmp_path: Path, number: signal.Signals) -> None:
    with serving(tmp_path, "--json", *ANY_PORT, "--rack", "a", "--node-id", "5", "--roles", "write,read") as node:
        said = node.started()
        assert (said["node_id"], said["rack"], said["pid"]) == (5, "a", node.process.pid)
        assert said["roles"] == ["write", "read"]
        assert get(said["http"], "/ready")[0] == 200
        with long_fetch(said["listeners"]["main"]):
            pass
        code, log = node.end(number)
    assert code == 0
    assert [line.split()[1:4] for line in log] == [
        ["INFO", "serve:", "serves"],
        ["INFO", "serve:", "drains"],
        ["INFO", "serve:", "has"],
    ]


def test_a_banner_for_people(tmp_path: Path) -> None:
    with serving(tmp_path, *ANY_PORT, "--listener", "wan=127.0.0.1:0@kafka.example.com:443") as node:
        shown: list[str] = []
        while not shown or "kcat -C" not in shown[-1]:
            shown.append(node.err.readline())
            assert shown[-1], "".join(shown)
        code, _ = node.end()
    banner = "".join(shown)
    assert code == 0
    assert "catena: node 0 serves" in banner
    assert "sqlite:data/meta.db" in banner
    assert "kafka.example.com:443" in banner
    assert "/health" in banner


def test_a_log_for_programs(tmp_path: Path) -> None:
    with serving(tmp_path, "--json", "--log-format", "json", *ANY_PORT) as node:
        said = node.started()
        code, log = node.end()
    assert code == 0
    first = json.loads(log[0])
    assert (first["logger"], first["message"], first["node"]) == ("serve", "serves", said["node_id"])
    assert [json.loads(line)["message"] for line in log[1:]] == ["drains", "has ended"]


def test_a_second_signal_ends_it_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--json", *ANY_PORT, CATENA_KAFKA__DRAIN_MAX_MS="60000") as node:
        said = node.started()
        with long_fetch(said["listeners"]["main"]):
            node.process.send_signal(signal.SIGTERM)
            while get(said["http"], "/ready")[0] == 200:
                pass
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(10) == -signal.SIGTERM


def test_draining_is_bounded(tmp_path: Path) -> None:
    with serving(tmp_path, "--json", *ANY_PORT, CATENA_KAFKA__DRAIN_MAX_MS="300") as node:
        said = node.started()
        with long_fetch(said["listeners"]["main"]):
            node.process.send_signal(signal.SIGTERM)
            assert node.process.wait(10) == 0


def test_what_has_ended_is_not_looked_at_again(tmp_path: Path) -> None:
    """Python looks at all objects several times as it ends, which took seconds with thousands of partitions."""
    ended = subprocess.run(
        [sys.executable, "-c", ENDS_ITSELF, str(tmp_path)],
        env=clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    )
    assert int(ended.stdout) < 1_000


def test_a_start_can_be_given_up(tmp_path: Path) -> None:
    """It waits for an id that another node holds."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        http_port = found.getsockname()[1]
    taken = ("--json", *ANY_PORT, "--node-id", "1")
    with serving(tmp_path, *taken) as first:
        first.started()
        with serving(tmp_path, *taken, "--http-port", str(http_port)) as second:
            while not is_starting(f"127.0.0.1:{http_port}"):
                assert second.process.poll() is None
            code, log = second.end()
            assert (code, log, second.out.read()) == (0, [], "")


def is_starting(address: str) -> bool:
    try:
        return get(address, "/ready") == (503, {"state": "starting", "node_id": None, "cluster_id": None})
    except ConnectionError:
        return False


def test_a_port_that_is_taken_is_one_line(program: Catena) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ran = program("serve", "--port", port)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert f"can't listen on 127.0.0.1:{port}" in ran.err
        assert program("serve", *ANY_PORT, "--http-port", port).code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--roles", "cook"], "there is no role 'cook'"),
        (["--listener", "9092"], "--listener 9092"),
        (["--port", "70000"], "65535"),
    ],
)
def test_what_can_not_be_is_named(program: Catena, arguments: list[str], says: str) -> None:
    ran = program("serve", *arguments)
    assert ran.code == 2
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_options_win_over_the_environment_and_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "catena.toml"
    file.write_text('[node]\nrack = "a"\nid = 1\n[http]\nport = 1\n[kafka.listeners.main]\nhost = "h"\nport = 2\n')
    monkeypatch.setenv("CATENA_NODE__ID", "3")
    options = Common(config=str(file))
    found = load_settings(options, {}, None, {"id": None, "rack": None, "roles": None})
    assert (found.node.id, found.node.rack, found.http.port) == (3, "a", 1)
    found = load_settings(options, {"main": {"port": 9}}, 8, {"id": 4, "rack": "b", "roles": "read, write"})
    assert (found.node.id, found.node.rack, found.http.port, found.node.roles) == (4, "b", 8, ("read", "write"))
    assert (found.kafka.listeners["main"].host, found.kafka.listeners["main"].port) == ("h", 9)
    with pytest.raises(ConfigError, match="no role"):
        load_settings(options, {}, None, {"roles": "read,"})
