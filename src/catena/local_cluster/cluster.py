"""Start several nodes on this host, see how they are, and end them.

    up:    servers for the stores, if they are asked for -> all nodes at once -> each says where it is ready
    down:  nodes, which drain -> servers

Each is a process of its own. The servers, PostgreSQL and SeaweedFS as they come with wheels for tests, are kept by one
more process, `catena.testing.servers`; it is run and not imported, so nothing of the product depends on it.
If anything does not start, everything that was started is ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from catena.errors import ConfigError, Contended, NeedsOperator
from catena.local_cluster.processes import POLL_S, Process, end, is_running, launch
from catena.local_cluster.state import Folder, LocalCluster, LocalNode
from catena.runtime import Clock, FileLock

START_MAX_S = 60.0
DRAIN_MAX_S = 30.0
"""Longer than a node takes that is given up by itself."""
SERVERS_STOP_MAX_S = 30.0
LOCK_S = 0.5
LAST_LINES = 10
LOG_TAIL_BYTES = 16 << 10
MAX_NODES = 100
SERVERS = "servers"


class Plan(NamedTuple):
    """What to start."""

    nodes: int
    racks: Sequence[str] = ()
    """Given to the nodes in turn."""
    base_port: int = 9092
    """Of the first node, the others follow; 0: any free ones."""
    servers: tuple[str, ...] = ()
    """`postgres`, `s3`."""
    config: str | None = None
    environment: Mapping[str, str] = {}
    """Settings, beyond those of the process that starts it."""


class Progress(Protocol):
    def state(self, name: str, state: str) -> None: ...

    def last_lines(self, name: str, lines: Sequence[str]) -> None:
        """The end of the log of one that did not start."""


async def up(data: Path, plan: Plan, clock: Clock, progress: Progress) -> LocalCluster:
    folder = Folder(data)
    folder.make()
    with _alone(folder):
        before = folder.load()
        if before is not None and before.is_running:
            raise ConfigError(
                f"a cluster runs in {data} already: `catena cluster status` shows it, `catena cluster down` ends it"
            )
        cluster = LocalCluster()
        try:
            await _start(folder, plan, cluster, clock, progress)
        except BaseException:
            await _end(folder, cluster, clock)
            raise
    return cluster


async def down(data: Path, clock: Clock) -> tuple[LocalCluster, list[Process]] | None:
    """Returns what there was, and which processes had to be killed; None if there was nothing."""
    folder = Folder(data)
    if folder.load() is None:
        return None
    with _alone(folder):
        cluster = folder.load()
        return None if cluster is None else (cluster, await _end(folder, cluster, clock))


def find(data: Path) -> LocalCluster | None:
    return Folder(data).load()


async def _start(folder: Folder, plan: Plan, cluster: LocalCluster, clock: Clock, progress: Progress) -> None:
    environment = {**os.environ, **plan.environment}
    cluster.environment = dict(plan.environment)
    if plan.servers:
        command = [sys.executable, "-m", "catena.testing.servers", str(folder.path), *plan.servers]
        cluster.servers = launch(command, environment, folder.out(SERVERS), folder.log(SERVERS))
        folder.save(cluster)
        progress.state(SERVERS, "starting")
        cluster.environment |= await _ready(folder, SERVERS, cluster.servers, clock, progress)
        environment |= cluster.environment
    for number in range(plan.nodes):
        name = node_name(number)
        rack = plan.racks[number % len(plan.racks)] if plan.racks else None
        process = launch(_command(folder, plan, number, rack), environment, folder.out(name), folder.log(name))
        cluster.nodes.append(LocalNode(number, rack, process, str(folder.log(name))))
        folder.save(cluster)
        progress.state(name, "starting")
    for number, node in enumerate(cluster.nodes):
        said = await _ready(folder, node_name(number), node.process, clock, progress)
        cluster.nodes[number] = msgspec.structs.replace(node, kafka=said["listeners"]["main"], http=said["http"])
    folder.save(cluster)
    folder.save_environment({"CATENA_DATA": str(folder.data), **cluster.environment})


async def _ready(folder: Folder, name: str, process: Process, clock: Clock, progress: Progress) -> dict[str, Any]:
    """What it says on its first line, which is that it is ready."""
    deadline = clock.monotonic() + START_MAX_S
    while not (line := folder.out(name).read_text()).endswith("\n"):
        running = is_running(process)
        if not running or clock.monotonic() >= deadline:
            progress.state(name, "failed")
            lines = _tail(folder.log(name))
            progress.last_lines(name, lines)
            what = f"is not ready after {START_MAX_S:g} s" if running else "ended while it started"
            raise NeedsOperator(f"{name} {what}: {lines[-1] if lines else 'it logged nothing'}")
        await clock.sleep(POLL_S)
    progress.state(name, "ready")
    said: dict[str, Any] = msgspec.json.decode(line)
    return said


async def _end(folder: Folder, cluster: LocalCluster, clock: Clock) -> list[Process]:
    killed = await end([node.process for node in cluster.nodes], clock, DRAIN_MAX_S)
    if cluster.servers is not None:
        killed += await end([cluster.servers], clock, SERVERS_STOP_MAX_S)
    folder.forget()
    return killed


def node_name(number: int) -> str:
    return f"node-{number}"


def _command(folder: Folder, plan: Plan, number: int, rack: str | None) -> list[str]:
    port = plan.base_port + number if plan.base_port else 0
    command = [sys.executable, "-m", "catena.cli", "serve", "--json", "--data", str(folder.data)]
    command += ["--node-id", str(number), "--port", str(port), "--http-port", "0"]
    command += ["--rack", rack] if rack is not None else []
    return command + (["--config", plan.config] if plan.config is not None else [])


def _tail(log: Path) -> list[str]:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - LOG_TAIL_BYTES))
        return file.read().decode(errors="replace").splitlines()[-LAST_LINES:]


@contextmanager
def _alone(folder: Folder) -> Iterator[None]:
    """One command at a time."""
    with ExitStack() as held:
        try:
            held.enter_context(FileLock(folder.lock, LOCK_S).hold())
        except TimeoutError:
            raise Contended(f"another `catena cluster` command is at work in {folder.data}") from None
        yield
