"""What is known of a local cluster, in `cluster/state.json` of its folder: enough to find and to end every process.

It is written again after each process that is started, so a command that is killed in between leaves nothing behind
that `catena cluster down` does not find.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import msgspec

from catena.errors import Corrupt
from catena.local_cluster.processes import Process, is_running


class LocalNode(msgspec.Struct, frozen=True):
    id: int
    rack: str | None
    process: Process
    log: str
    kafka: str = ""
    """HOST:PORT, known once it is ready."""
    http: str = ""


class LocalCluster(msgspec.Struct):
    nodes: list[LocalNode] = []
    servers: Process | None = None
    """Holds the stores that were started with the nodes."""
    environment: dict[str, str] = {}
    """What other processes need to reach the same stores."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.kafka for node in self.nodes)

    @property
    def processes(self) -> list[Process]:
        return [*(node.process for node in self.nodes), *([self.servers] if self.servers is not None else [])]

    @property
    def is_running(self) -> bool:
        """Whether any of its processes does."""
        return any(is_running(process) for process in self.processes)


class Folder:
    """The files of a local cluster."""

    def __init__(self, data: Path) -> None:
        self.path = data.absolute() / "cluster"
        self.data = data.absolute()
        self.environment = self.path / "env"
        self.lock = self.path / "lock"
        self._state = self.path / "state.json"

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def out(self, name: str) -> Path:
        """Where a process says that it is ready."""
        return self.path / f"{name}.json"

    def log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    def load(self) -> LocalCluster | None:
        try:
            return msgspec.json.decode(self._state.read_bytes(), type=LocalCluster)
        except FileNotFoundError:
            return None
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{self._state} can't be read: {error}; end its processes by hand, and delete it") from error

    def save(self, cluster: LocalCluster) -> None:
        new = self._state.with_suffix(".new")
        new.touch(mode=0o600)  # an address may hold a password
        new.write_bytes(msgspec.json.encode(cluster))
        os.replace(new, self._state)

    def save_environment(self, environment: dict[str, str]) -> None:
        """For `. cluster/env` in a shell."""
        self.environment.touch(mode=0o600)
        lines = [f"export {name}={shlex.quote(value)}\n" for name, value in environment.items()]
        self.environment.write_text("".join(lines))

    def forget(self) -> None:
        self._state.unlink(missing_ok=True)
        self.environment.unlink(missing_ok=True)
