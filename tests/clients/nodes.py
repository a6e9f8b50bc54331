"""Nodes as users run them: `catena serve` processes, which can be paused, killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.clients.raw import Closed, metadata
from tests.clients.waiting import until

START_MAX_S = 60.0
END_MAX_S = 30.0


class Node:
    """Keeps its id and its port when it is started again."""

    def __init__(self, node_id: int, folder: Path, environment: Mapping[str, str], listener: str = "") -> None:
        """`listener`: one more, as the command line wants it."""
        self.node_id = node_id
        self._listener = listener
        self._folder = folder
        self.environment = environment
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0
        self.http = ""
        """Its address."""
        self._starts = 0
        self._told_to_end = False

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """Of all its starts."""
        return "".join(path.read_text(errors="replace") for path in sorted(self._folder.glob(f"{self.node_id}.*.log")))

    def launch(self) -> None:
        """Returns at once; `wait_until_ready` waits."""
        assert not self.is_running
        self._starts += 1
        self._told_to_end = False
        self._said = self._folder / f"{self.node_id}.{self._starts:03}.json"
        log = self._said.with_suffix(".log")
        command = [sys.executable, "-m", "catena.cli", "serve", "--json", "--listener", f"main={self.address}"]
        command += ["--listener", self._listener] if self._listener else []
        command += ["--node-id", str(self.node_id), "--data", str(self._folder / "data")]
        with self._said.open("wb") as out, log.open("wb") as err:
            self._process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    def wait_until_ready(self) -> None:
        said = until(self._ready, f"node {self.node_id} starts", START_MAX_S)
        self._port = int(said["listeners"]["main"].rpartition(":")[2])
        self.http = str(said["http"])

    def _ready(self) -> dict[str, Any] | None:
        line = self._said.read_text()
        if not line.endswith("\n"):
            assert self.is_running, f"node {self.node_id} ended while it started:\n{self.log[-2000:]}"
            return None
        said: dict[str, Any] = json.loads(line)
        return said

    def kill(self) -> None:
        """With -9."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def ask_to_end(self) -> None:
        if self.is_running and not self._told_to_end:
            self._told_to_end = True  # a second signal would end it at once
            self.resume()
            os.kill(self.pid, signal.SIGTERM)

    def end(self) -> int:
        """Its exit code; one that does not end is killed, and says -9."""
        assert self._process is not None
        self.ask_to_end()
        try:
            return self._process.wait(END_MAX_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()


class Cluster:
    """Nodes that share their stores."""

    def __init__(self, size: int, folder: Path, settings: Mapping[str, str], listener: str = "") -> None:
        """Settings as variables of the environment."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CATENA_")}
        self.nodes = [Node(number, folder, {**ours, **settings}, listener) for number in range(size)]

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    def start(self) -> None:
        for node in self.nodes:
            node.launch()
        for node in self.nodes:
            node.wait_until_ready()
        self.wait_until_listed(self.nodes)

    def wait_until_listed(self, nodes: Sequence[Node]) -> None:
        """Until each of these nodes knows of these, and of no others."""
        ids = [node.node_id for node in nodes]
        until(lambda: all(_listed(node) == ids for node in nodes), f"all nodes see the nodes {ids}")

    def end(self) -> list[int]:
        """Exit codes."""
        for node in self.nodes:
            node.ask_to_end()
        return [node.end() for node in self.nodes]

    def others(self, node: Node) -> list[Node]:
        return [other for other in self.nodes if other is not node]


def _listed(node: Node) -> list[int] | None:
    try:
        return sorted(broker.node_id for broker in metadata(node.address).brokers)
    except (Closed, ConnectionError):
        return None
