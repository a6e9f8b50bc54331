"""The stack of a run: servers of the stores, nodes, and beside them the pipeline and Prometheus, where they are asked
for.

    up:    servers, nodes (local_cluster) -> pipeline -> stack.json says `up`
    down:  commands on the stores, pipeline, Prometheus -> nodes, servers -> logs are copied -> what the stores hold is
           deleted, if it is to be -> stack.json says `down`

Nothing begins before it is written down, in the data folder or in `stack.json`, with its process id and when it
started; and nothing is signalled whose start does not match. So a command that is killed anywhere leaves nothing that
`down` does not end, and `down` never ends what is not ours. If `up` fails, it ends what it has started. A disk that is
full keeps logs from being copied, but nothing from being ended or deleted.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from catena.errors import ConfigError, NeedsOperator
from catena.loadtest.http_client import HttpClient, NotSent
from catena.loadtest.run_folder import CONFIG, STACK, Beside, RunFolder, StackNode, StackState
from catena.loadtest.scenario import Scenario
from catena.local_cluster.cluster import Progress, environment_of, find, node_name
from catena.local_cluster.cluster import down as end_nodes
from catena.local_cluster.cluster import up as start_nodes
from catena.local_cluster.plan import Plan
from catena.local_cluster.processes import POLL_S, WAITING, Process, end, is_running, kill, launch, send
from catena.runtime import Clock, Network

PIPELINE, PROMETHEUS = "pipeline", "prometheus"
START_MAX_S = 180.0
"""Of the pipeline: a JVM starts with it."""
END_MAX_S = 60.0
ASK_MAX_S = 2.0
COMMAND_MAX_S = 3_600.0
CATENA = (sys.executable, "-m", "catena.cli")


class Stack:
    """Of one run directory, whose files say what there is; this has no state of its own."""

    def __init__(self, folder: RunFolder, clock: Clock, network: Network) -> None:
        self.folder = folder
        self._clock = clock
        self._network = network

    @property
    def state(self) -> StackState:
        return self.folder.stack()

    async def up(self, scenario: Scenario, progress: Progress) -> StackState:
        settings = self.folder.data / "settings.toml"
        settings.write_text(settings_file(scenario))
        plan = Plan(
            scenario.stack.nodes,
            base_port=0,
            meta=scenario.stack.meta or None,
            objects=scenario.stack.objects or None,
            config=str(settings),
            roles=scenario.stack.roles or None,
        )
        try:
            await start_nodes(self.folder.data, plan, self._clock, self._network, progress)
            self._save(nodes=self._nodes(), servers=self._servers())
            if scenario.stack.pipeline:
                await self._start_pipeline(scenario, progress)
        except BaseException:
            await self.down(scenario.purge)
            raise
        return self._save(state="up")

    async def down(self, purge: bool = False) -> list[int]:
        """Ids of the processes that had to be killed. `purge` deletes what the stores hold."""
        state = self.state
        beside = [each.process for each in (state.pipeline, state.prometheus) if each is not None]
        beside += state.commands
        resume(beside)
        killed = await end(beside, self._clock, END_MAX_S)
        cluster = find(self.folder.data)
        if cluster is not None:
            resume(cluster.processes)
            ended = await end_nodes(self.folder.data, self._clock)
            killed += ended.killed if ended is not None else []
        try:
            self.keep_logs()
        finally:
            if purge:
                self.folder.purge()
            self._save(state="down", commands=[])
        return [process.pid for process in killed]

    async def states(self) -> dict[str, str]:
        """`dead`, `stopped`, or what it says itself; of the nodes, and of what is beside them."""
        state = self.state
        found = {}
        for node in self._nodes() or state.nodes:
            found[node.name] = await self._ask_state(node.process, node.http, "/ready")
        if state.servers is not None:
            found["servers"] = "running" if is_running(state.servers) else "dead"
        for name, beside in ((PIPELINE, state.pipeline), (PROMETHEUS, state.prometheus)):
            if beside is not None:
                found[name] = "running" if is_running(beside.process) else "dead"
        return found

    def roots(self) -> dict[str, int]:
        """Process ids to be sampled, by name."""
        state = self.state
        found = {node.name: node.process for node in self._nodes() or state.nodes}
        found["servers"] = state.servers
        for name, beside in ((PIPELINE, state.pipeline), (PROMETHEUS, state.prometheus)):
            found[name] = beside.process if beside is not None else None
        return {name: process.pid for name, process in found.items() if process is not None and is_running(process)}

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Whether it was there to get it."""
        state = self.state
        process = next((node.process for node in self._nodes() if node.name == name), None)
        if name == PIPELINE and state.pipeline is not None:
            process = state.pipeline.process
        return process is not None and send(process, number, group=name == PIPELINE)  # with its JVM

    async def restart(self, name: str, progress: Progress) -> None:
        """Start a node that has died, as it was. Others that have died stay dead: nobody asked for that."""
        node_id = next(node.id for node in self._nodes() if node.name == name)
        await start_nodes(self.folder.data, Plan(), self._clock, self._network, progress, only=node_id)
        self._save(nodes=self._nodes())

    async def command(self, *arguments: str) -> Any:
        """What a command of `catena` says of these stores, as JSON. NeedsOperator if it says nothing; where it says
        something, its exit code is not looked at."""
        process = await asyncio.create_subprocess_exec(
            *WAITING,
            *CATENA,
            *arguments,
            "--json",
            env=self.environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        known = Process.of(process.pid)
        try:
            self._save(commands=[*self.state.commands, known])
            async with asyncio.timeout(COMMAND_MAX_S):
                out, log = await process.communicate(b"\n")  # it begins now
        except BaseException:
            await kill(process)
            raise
        finally:
            self._save(commands=[each for each in self.state.commands if each != known])
        lines = out.decode(errors="replace").splitlines()
        if not lines:
            words = log.decode(errors="replace").strip().splitlines()
            raise NeedsOperator(f"catena {' '.join(arguments)} failed: {words[-1] if words else 'it said nothing'}")
        return msgspec.json.decode(lines[-1])

    def environment(self) -> dict[str, str]:
        """Of processes that use these stores."""
        cluster = find(self.folder.data)
        if cluster is None:
            raise ConfigError(f"the stack of {self.folder.path} does not run: `catena loadtest up` starts one")
        config = {"CATENA_CONFIG": cluster.plan.config} if cluster.plan.config else {}
        return {**environment_of(cluster), **config, "CATENA_DATA": str(self.folder.data)}

    async def start_beside(
        self, name: str, command: Sequence[str], environment: Mapping[str, str], progress: Progress
    ) -> Process:
        """A process beside the nodes; it ends with the stack."""
        out, log = self.folder.data / f"{name}.out", self.folder.data / f"{name}.log"

        def write_down(process: Process) -> None:
            self._save(**{name: Beside(process)})

        progress.state(name, "starting")
        return launch(command, environment, str(self.folder.data), out, log, write_down)

    def found_at(self, name: str, process: Process, http: str) -> None:
        self._save(**{name: Beside(process, http)})

    def has_run(self) -> None:
        self._save(has_run=True)

    def last_words(self, name: str) -> str:
        lines = (self.folder.data / f"{name}.log").read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it logged nothing"

    def keep_logs(self) -> None:
        data = self.folder.data
        for log in [*sorted((data / "cluster").glob("*.log*")), *sorted(data.glob("*.log"))]:
            self.folder.keep_log(log, log.name)
        for server in ("s3", "postgres"):
            self.folder.keep_log(data / "cluster" / server / "log", f"{server}.log")

    async def _start_pipeline(self, scenario: Scenario, progress: Progress) -> None:
        command = [*CATENA, "pipeline", "run", "--json", "--http-port", "0"]
        command += ["--master", scenario.stack.pipeline_master]
        process = await self.start_beside(PIPELINE, command, self.environment(), progress)
        deadline = self._clock.monotonic() + START_MAX_S
        while not (line := _first_line(self.folder.data / f"{PIPELINE}.out")):
            running = is_running(process)
            if not running or self._clock.monotonic() > deadline:
                progress.state(PIPELINE, "failed")
                what = f"is not ready after {START_MAX_S:g} s" if running else "did not start"
                raise NeedsOperator(f"the pipeline {what}: {self.last_words(PIPELINE)}")
            await self._clock.sleep(POLL_S)
        self.found_at(PIPELINE, process, msgspec.json.decode(line)["http"])
        progress.state(PIPELINE, "ready")

    async def _ask_state(self, process: Process | None, address: str, path: str) -> str:
        if process is None or not is_running(process):
            return "dead"
        client = HttpClient(address, ASK_MAX_S)
        try:
            answer = msgspec.json.decode((await client.ask("GET", path)).body, type=dict[str, Any])
            return str(answer.get("state", answer.get("status", "running")))
        except (NotSent, OSError, msgspec.MsgspecError):
            return "silent"
        finally:
            client.close()

    def _nodes(self) -> list[StackNode]:
        """As they are now; none if the nodes are not there any more."""
        cluster = find(self.folder.data)
        nodes = [] if cluster is None else cluster.nodes
        return [
            StackNode(node_name(number), node.id, node.kafka, node.http, node.process)
            for number, node in enumerate(nodes)
        ]

    def _servers(self) -> Process | None:
        cluster = find(self.folder.data)
        return None if cluster is None else cluster.servers

    def _save(self, **changes: Any) -> StackState:
        state = msgspec.structs.replace(self.state, **changes)
        self.folder.write(STACK, state)
        return state


def resume(processes: Sequence[Process]) -> None:
    """What is stopped could not end; a JVM is stopped with its process."""
    for process in processes:
        send(process, signal.SIGCONT, group=True)


def settings_file(scenario: Scenario) -> str:
    """Settings of nodes and pipeline, as TOML: its dotted keys are the settings' names, JSON's values are its own."""
    settings: dict[str, Any] = {"metrics.scenario": scenario.name, **scenario.stack.settings}
    return "".join(f"{name} = {msgspec.json.encode(value).decode()}\n" for name, value in settings.items())


def check_same(folder: RunFolder, scenario: Scenario) -> None:
    """ConfigError if the stack was started with another one."""
    if folder.scenario() != scenario:
        raise ConfigError(
            f"the scenario is not what the stack in {folder.path} was started with ({CONFIG}): "
            f"`catena loadtest down {folder.path}` ends it"
        )


def _first_line(file: Path) -> str:
    text = file.read_text() if file.exists() else ""
    line, end_of_line, _ = text.partition("\n")
    return line if end_of_line else ""
