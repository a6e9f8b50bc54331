"""Samples of nodes, processes and host, every so often, into the run directory.

What a node says is kept as it is, so that a figure which nobody thought of can be had afterwards. A node that does
not answer is a sample as well.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from catena.loadtest.http_client import HttpClient, NotSent
from catena.loadtest.proc import Host, Usage, look_at_host, usage_of
from catena.loadtest.run_folder import HOST, METRICS, PROCESSES, RunFolder
from catena.runtime import Clock, Disk

PATH = "/metrics"
ANSWER_MAX_S = 5.0


class NodeSample(msgspec.Struct, omit_defaults=True):
    t: float
    node: str
    pid: int
    """Counts begin anew with another one."""
    metrics: dict[str, Any] | None = None
    error: str = ""


class ProcessSample(msgspec.Struct):
    t: float
    usage: dict[str, Usage]


class HostSample(msgspec.Struct):
    t: float
    host: Host


class Sampler:
    """`nodes` gives HTTP addresses by name, `roots` process ids by name; both may change while it runs."""

    def __init__(
        self,
        folder: RunFolder,
        clock: Clock,
        disk: Disk,
        origin: float,
        nodes: Mapping[str, str],
        roots: Callable[[], dict[str, int]],
    ) -> None:
        self._folder = folder
        self._clock = clock
        self._disk = disk
        self._origin = origin
        self._roots = roots
        self._clients = {name: HttpClient(address, ANSWER_MAX_S) for name, address in nodes.items()}
        self.latest: dict[str, NodeSample] = {}

    async def run(self, every_s: float) -> None:
        due = self._clock.monotonic()
        while True:
            await self.sample()
            # What was missed is left out: two samples at once say no more than one.
            due += every_s * (1 + max(0.0, self._clock.monotonic() - due) // every_s)
            await self._clock.sleep(due - self._clock.monotonic())

    async def sample(self) -> None:
        roots = await self._disk.run(self._roots)
        asked = [self._ask(name, client, roots.get(name, 0)) for name, client in self._clients.items()]
        nodes = await asyncio.gather(*asked)
        t = self._t()
        for node in nodes:
            node.t = t
        self._folder.append(METRICS, *nodes)
        usage, host = await self._disk.run(self._look, {**roots, "orchestrator": os.getpid()})
        self._folder.append(PROCESSES, usage)
        self._folder.append(HOST, host)
        self.latest |= {sample.node: sample for sample in nodes if sample.metrics is not None}

    def _look(self, roots: Mapping[str, int]) -> tuple[ProcessSample, HostSample]:
        """Each with its own time, since CPU is divided by the time between two looks."""
        usage = ProcessSample(self._t(), usage_of(roots))
        return usage, HostSample(self._t(), look_at_host())

    def close(self) -> None:
        for client in self._clients.values():
            client.close()

    async def _ask(self, name: str, client: HttpClient, pid: int) -> NodeSample:
        try:
            answer = await client.ask("GET", PATH)
            if answer.status != 200:
                return NodeSample(0.0, name, pid, error=f"HTTP {answer.status}")
            return NodeSample(0.0, name, pid, msgspec.json.decode(answer.body, type=dict[str, Any]))
        except (NotSent, OSError, msgspec.MsgspecError) as error:
            return NodeSample(0.0, name, pid, error=str(error) or type(error).__name__)

    def _t(self) -> float:
        return round(self._clock.monotonic() - self._origin, 3)
