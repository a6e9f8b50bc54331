"""Start several nodes on this host, see how they are, start again what died, and end them.

    up:    servers for the stores, if they are asked for -> all nodes at once -> each says where it is ready
    down:  nodes, which drain -> servers

A cluster exists from its first `up` until its `down`. `up` starts whatever of it does not run: everything the first
time, later on what has died, with the same ids, ports, racks and settings. If its servers have died, all nodes are
started again with them: they can do nothing without their stores, whose addresses are new ones.

Each is a process of its own. The servers, PostgreSQL and SeaweedFS as they come with wheels for tests, are kept by one
more process, `catena.testing.servers`; it is run and not imported, so nothing of the product depends on it.
If anything does not start, everything that was started with it is ended, and what ran before goes on.
"""

from __future__ import annotations

import asyncio
import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import msgspec

from catena.broker.server import ListenerSettings
from catena.config import ENV_PREFIX, Settings, load
from catena.errors import (
    CatenaError,
    ConfigError,
    Contended,
    Corrupt,
    NeedsOperator,
    OutcomeUnknown,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from catena.local_cluster.plan import Plan, check_fits, choose_stores, completed, roles_of
from catena.local_cluster.processes import POLL_S, Process, end, is_running, launch, started_by
from catena.local_cluster.state import Folder, LocalCluster, LocalNode
from catena.runtime import Clock, FileLock, Network

START_MAX_S = 60.0
DRAIN_MAX_S = 30.0
"""Longer than a node takes that is given up by itself."""
SERVERS_STOP_MAX_S = 30.0
LOCK_S = 0.5
LAST_LINES = 10
LOG_TAIL_BYTES = 16 << 10
SERVERS = "servers"
TAIL_FOLDER = f"{ENV_PREFIX}DISKLESS__TAIL_FOLDER"

_SAID = (ConfigError, Contended, Corrupt, OutcomeUnknown, StoreFull, StoreRefused, StoreUnavailable)
"""Errors with which a node may end while it starts, and that are raised here as it said them."""


class Progress(Protocol):
    def state(self, name: str, state: str) -> None: ...

    def last_lines(self, name: str, lines: Sequence[str]) -> None:
        """What stands in the log of one that did not start, before its last words."""


class Started(NamedTuple):
    cluster: LocalCluster
    is_new: bool
    nodes: list[int]
    """Those that did not run before, or whose stores did not."""
    servers: bool
    """Whether those of its stores were started."""


class Ended(NamedTuple):
    nodes: list[int]
    """Those that ran."""
    dead: list[int]
    """Those that did not."""
    killed: list[Process]
    """What did not end when it was asked to."""


async def up(
    data: Path, plan: Plan, clock: Clock, network: Network, progress: Progress, only: int | None = None
) -> Started:
    """`only`: of a cluster whose stores are there, start this node if it does not run, and leave others as they are."""
    folder = Folder(data)
    folder.make()
    with _alone(folder):
        before = folder.load()
        if before is not None:
            check_fits(plan, before.plan, data)
        cluster = _planned(folder, plan) if before is None else before
        ran = [process for process in cluster.processes if is_running(process)]
        try:
            started = await _start(folder, cluster, clock, network, progress, only)
        except BaseException:
            await _end(cluster, clock, but=ran)
            if before is None:
                folder.forget()
            raise
    return Started(cluster, before is None, started, cluster.servers is not None and cluster.servers not in ran)


async def down(data: Path, clock: Clock) -> Ended | None:
    """None if there was nothing."""
    folder = Folder(data)
    if folder.load() is None:
        return None
    with _alone(folder):
        cluster = folder.load()
        if cluster is None:
            return None
        running = [node.id for node in cluster.nodes if node.is_running]
        dead = [node.id for node in cluster.nodes if node.id not in running]
        killed = await _end(cluster, clock)
        folder.forget()
        return Ended(running, dead, killed)


def find(data: Path) -> LocalCluster | None:
    return Folder(data).load()


def node_name(number: int) -> str:
    return f"node-{number}"


def _planned(folder: Folder, asked: Plan) -> LocalCluster:
    """Nothing of it runs yet."""
    plan = completed(asked)
    assert plan.nodes is not None
    _, settings = choose_stores(plan.meta, plan.objects)
    nodes = [
        LocalNode(
            number,
            plan.racks[number % len(plan.racks)] if plan.racks else None,
            str(folder.log(node_name(number))),
            port=plan.base_port + number if plan.base_port else 0,
            roles=roles_of(plan.roles or (), number),
        )
        for number in range(plan.nodes)
    ]
    shell = {name: value for name, value in os.environ.items() if name.startswith(ENV_PREFIX)}
    if plan.roles and not load(plan.config, {**shell, **settings}, data=str(folder.data)).diskless.tail_folder:
        settings[TAIL_FOLDER] = str(folder.tails)
    return LocalCluster(plan, nodes, environment=settings, shell=shell, directory=os.getcwd())


async def _start(
    folder: Folder, cluster: LocalCluster, clock: Clock, network: Network, progress: Progress, only: int | None
) -> list[int]:
    """Start what does not run; returns the ids of the nodes among it."""
    with chdir(cluster.directory):
        settings = load(cluster.plan.config, environment_of(cluster), data=str(folder.data))
    wanted = [node.id for node in cluster.nodes if not node.is_running and only in (None, node.id)]
    await _check_ports([node for node in cluster.nodes if node.id in wanted], settings, network)
    folder.save(cluster)
    servers, _ = choose_stores(cluster.plan.meta, cluster.plan.objects)
    if servers and not (cluster.servers is not None and is_running(cluster.servers)):
        if only is not None:
            raise NeedsOperator(f"{node_name(only)} can't be started: the servers of its stores are gone")
        wanted = [node.id for node in cluster.nodes]
        await _start_servers(folder, servers, cluster, clock, progress)
    asked = [(number, node) for number, node in enumerate(cluster.nodes) if only in (None, node.id)]
    for number, node in asked:
        progress.state(node_name(number), "starting" if node.id in wanted else "running")
        if node.id in wanted:
            _start_node(folder, cluster, number)
    for number, _ in asked:
        node = cluster.nodes[number]
        # One that runs and is not known to be ready was started by a command that was killed.
        if node.id in wanted or not node.kafka:
            assert node.process is not None
            said = await _ready(folder, node_name(number), node.process, clock, progress)
            cluster.nodes[number] = _at(node, said["listeners"]["main"], said["http"])
            folder.save(cluster)
    folder.save_environment({"CATENA_DATA": str(folder.data), **cluster.environment})
    return wanted


async def _start_servers(
    folder: Folder, servers: tuple[str, ...], cluster: LocalCluster, clock: Clock, progress: Progress
) -> None:
    await _end(cluster, clock)
    cluster.helpers = []

    def write_down(process: Process) -> None:
        cluster.servers = process
        folder.save(cluster)

    command = [sys.executable, "-m", "catena.testing.servers", str(folder.path), *servers]
    process = _launch(folder, SERVERS, command, cluster, write_down)
    progress.state(SERVERS, "starting")
    cluster.environment |= await _ready(folder, SERVERS, process, clock, progress)
    cluster.helpers = started_by(process)
    folder.save(cluster)


def _start_node(folder: Folder, cluster: LocalCluster, number: int) -> None:
    node, plan = cluster.nodes[number], cluster.plan

    def write_down(process: Process) -> None:
        cluster.nodes[number] = msgspec.structs.replace(node, process=process)
        folder.save(cluster)

    command = [sys.executable, "-m", "catena.cli", "serve", "--json", "--data", str(folder.data)]
    command += ["--node-id", str(node.id), "--port", str(node.port), "--http-port", str(node.http_port)]
    command += ["--rack", node.rack] if node.rack is not None else []
    command += ["--roles", ",".join(node.roles)] if node.roles else []
    command += ["--config", plan.config] if plan.config is not None else []
    _launch(folder, node_name(number), command, cluster, write_down)


def _launch(
    folder: Folder, name: str, command: list[str], cluster: LocalCluster, write_down: Callable[[Process], None]
) -> Process:
    folder.set_log_aside(name)
    out, log = folder.out(name), folder.log(name)
    return launch(command, environment_of(cluster), cluster.directory, out, log, write_down)


def environment_of(cluster: LocalCluster) -> dict[str, str]:
    """As it was when the cluster was new, whoever starts a process of it."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith(ENV_PREFIX)}
    return {**ours, **cluster.shell, **cluster.environment}


def _at(node: LocalNode, kafka: str, http: str) -> LocalNode:
    """The node, whose ports are known from now on."""
    port, http_port = (int(address.rpartition(":")[2]) for address in (kafka, http))
    return msgspec.structs.replace(node, kafka=kafka, http=http, port=node.port or port, http_port=http_port)


async def _check_ports(nodes: Sequence[LocalNode], settings: Settings, network: Network) -> None:
    """ConfigError that names those which others listen on. One that is taken after this look, its node will name."""
    host = settings.kafka.listeners.get("main", ListenerSettings()).host
    taken = [f"{node.port} (node-{node.id})" for node in nodes if await _is_taken(network, host, node.port)]
    for node in nodes:
        if await _is_taken(network, settings.http.host, node.http_port):
            taken.append(f"{node.http_port} (HTTP of node-{node.id})")
    if not taken:
        return
    # Ports of a cluster that is there can't be changed any more.
    way = "with" if all(node.process is None for node in nodes) else "after `catena cluster down` with"
    raise ConfigError(
        f"port{'s' if len(taken) > 1 else ''} {', '.join(taken)} {'are' if len(taken) > 1 else 'is'} in use: "
        f"end what listens there, or choose others {way} --base-port N (0: any free ones)"
    )


async def _is_taken(network: Network, host: str, port: int) -> bool:
    if not port:
        return False
    try:
        (await network.listen(host, port, asyncio.Protocol)).close()
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


async def _ready(folder: Folder, name: str, process: Process, clock: Clock, progress: Progress) -> dict[str, Any]:
    """What it says on its first line, which is that it is ready."""
    deadline = clock.monotonic() + START_MAX_S
    while not (line := folder.out(name).read_text()).endswith("\n"):
        running = is_running(process)
        if not running or clock.monotonic() >= deadline:
            progress.state(name, "failed")
            lines = _tail(folder.log(name))
            if not running and (said := _said(name, lines)) is not None:
                raise said
            progress.last_lines(name, lines[:-1])
            what = f"is not ready after {START_MAX_S:g} s" if running else "did not start"
            raise NeedsOperator(f"{name} {what}: {lines[-1] if lines else 'it logged nothing'}")
        await clock.sleep(POLL_S)
    progress.state(name, "ready")
    said_line: dict[str, Any] = msgspec.json.decode(line)
    return said_line


class _Report(msgspec.Struct):
    """How a command that was asked for JSON ends its log."""

    error: str
    message: str


def _said(name: str, lines: Sequence[str]) -> CatenaError | None:
    """The error that a node ended with, in its own words; None if it ended without any."""
    try:
        report = msgspec.json.decode(lines[-1] if lines else "", type=_Report)
    except msgspec.MsgspecError:
        return None
    kind = next((kind for kind in _SAID if kind.__name__ == report.error), NeedsOperator)
    return kind(f"{name} did not start: {report.message}")


async def _end(cluster: LocalCluster, clock: Clock, but: Sequence[Process] = ()) -> list[Process]:
    """Returns what had to be killed."""
    nodes = [node.process for node in cluster.nodes if node.process is not None]
    others = [process for process in cluster.processes if process not in nodes]
    killed = await end([process for process in nodes if process not in but], clock, DRAIN_MAX_S)
    for process in others:
        killed += await end([process] if process not in but else [], clock, SERVERS_STOP_MAX_S)
    return killed


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
