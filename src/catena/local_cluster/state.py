"""What is known of a local cluster, in `cluster/state.json` of its folder: enough to find, to end and to start again
every process.

It is written before the first process is started, and no process begins before it stands here. So a command that is
killed in between leaves nothing behind that `catena cluster down` does not find, or `catena cluster up` not complete.
"""

from __future__ import annotations

import os
import shlex
import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from catena.errors import Corrupt
from catena.local_cluster.plan import Plan
from catena.local_cluster.processes import Process, is_running


class LocalNode(msgspec.Struct, frozen=True):
    id: int
    rack: str | None
    log: str
    process: Process | None = None
    """None: not started yet."""
    port: int = 0
    """For Kafka; 0: any free one, until it has one. It is kept from then on."""
    http_port: int = 0
    kafka: str = ""
    """HOST:PORT, known once it is ready."""
    http: str = ""
    roles: tuple[str, ...] = ()
    """None: what the settings say."""

    @property
    def is_running(self) -> bool:
        return self.process is not None and is_running(self.process)


class LocalCluster(msgspec.Struct):
    plan: Plan = Plan()
    nodes: list[LocalNode] = []
    servers: Process | None = None
    """Holds the stores that were started with the nodes."""
    helpers: list[Process] = []
    """What the servers' process has started, and leaves behind if it is killed."""
    environment: dict[str, str] = {}
    """What other processes need to reach the same stores."""
    shell: dict[str, str] = {}
    """Settings in the environment of whoever started it."""
    directory: str = "."
    """Where that was: a relative path in a setting begins there."""

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(node.kafka for node in self.nodes if node.kafka)

    @property
    def processes(self) -> list[Process]:
        """Nodes first, and what keeps their stores after them."""
        nodes = [node.process for node in self.nodes if node.process is not None]
        return [*nodes, *([self.servers] if self.servers is not None else []), *self.helpers]


class Folder:
    """The files of a local cluster."""

    def __init__(self, data: Path) -> None:
        self.path = data.absolute() / "cluster"
        self.data = data.absolute()
        self.environment = self.path / "env"
        self.lock = self.path / "lock"
        self.tails = self.path / "tails"
        """Where nodes that have roles tell each other what they commit."""
        self._state = self.path / "state.json"

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)

    def out(self, name: str) -> Path:
        """Where a process says that it is ready."""
        return self.path / f"{name}.json"

    def log(self, name: str) -> Path:
        return self.path / f"{name}.log"

    def set_log_aside(self, name: str) -> None:
        """Keep what the last process of this name logged: it may say why that one died."""
        with suppress(FileNotFoundError):
            os.replace(self.log(name), self.path / f"{name}.log.old")

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
        """What is stored stays, and so do the logs."""
        for file in (*self.path.glob("*-*.json"), *self.path.glob("servers.json"), self.environment, self._state):
            file.unlink(missing_ok=True)
        shutil.rmtree(self.tails, ignore_errors=True)  # what processes that were killed have left
