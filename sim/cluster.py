"""Machines that run the product's `Node` on the stores that all share, and the world that they make up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from catena.broker.long_polls import LongPolls, News
from catena.config import Settings
from catena.loglets.base import Batch
from catena.loglets.memory import MemoryMedium
from catena.node import Node
from catena.runtime import Tasks, shielded
from catena.types import Offset
from catena.virtual_log.log import VirtualLog
from sim.chaos import Chaos, Tally
from sim.checker import Violation
from sim.history import History, LogId
from sim.invariants import Invariants
from sim.loop import Chance, Process, SimLoop
from sim.machine import Machine
from sim.runtime import SimClock, SimEntropy
from sim.scenario import Scenario
from sim.stores import FaultyMeta, FaultyObjects, ObservedMeta, ObservedObjects, Wire, at_once
from sim.tails import SimTails

T = TypeVar("T")

PATIENCE_S = 20.0
LEASE = "llog/lease"
"""An ephemeral record that at most one session has."""


class OtherIncarnation(Exception):
    """The node knows the topic under another id; nothing was done."""


class LogMachine(Machine[Node]):
    def __init__(self, name: str, world: World) -> None:
        super().__init__(name, world.loop, world.random, world.history, world.scenario.processes.skew_ms)
        self._world = world
        self._held: dict[LogId, VirtualLog] = {}
        self._up: asyncio.Future[None] = world.loop.create_future()
        self._polls: LongPolls | None = None

    async def _start_node(self, clock: SimClock, entropy: SimEntropy) -> Node:
        world = self._world
        self._polls = LongPolls(clock, Tasks("polls"))
        return await Node.start(
            Settings(diskless=world.scenario.diskless, tiered=world.scenario.tiered),
            meta=world.meta_for_a_process(),
            objects=world.objects_for_a_process(),
            clock=clock,
            entropy=entropy,
            memory=world.medium,
            tails=None if world.tails is None else world.tails.for_a_process(),
        )

    async def _run(self) -> None:
        await super()._run()
        self._up.set_result(None)

    def crashed(self, process: Process) -> None:
        if process is self.process:
            self._held.clear()
            if self._up.done():
                self._up = self._world.loop.create_future()
        super().crashed(process)

    async def wait_until_up(self) -> None:
        await shielded(self._up)

    async def restart(self) -> None:
        """Kill the process, and wait until the next one is up."""
        self.kill()
        await self.wait_until_up()

    async def stop(self) -> None:
        """A clean end: close the node and wait until it has."""
        node, process = self.node, self.process
        if node is not None and process is not None:
            self.node = None
            await self._run_in_process(process, node.close(), PATIENCE_S, self._world.draws_cancel)

    async def call(self, work: Callable[[Node], Coroutine[Any, Any, T]], patience_s: float = PATIENCE_S) -> T:
        node, process = self._connect()
        return await self._run_in_process(process, work(node), patience_s, self._world.draws_cancel)

    async def call_log(
        self, log: LogId, work: Callable[[VirtualLog], Coroutine[Any, Any, T]], patience_s: float = PATIENCE_S
    ) -> T:
        """`work` on the node's handle of this very incarnation; sometimes one that it got long ago."""
        return await self.call(lambda node: self._on_log(node, log, work), patience_s)

    async def poll(self, log: VirtualLog, offset: Offset, max_bytes: int, max_wait_s: float) -> list[Batch]:
        """As a fetch does, in a process of this machine: read, and wait for more."""
        polls, found = self._polls, list[Batch]()
        assert polls is not None

        async def look(news: News | None) -> bool:
            found[:] = [] if polls.has_nothing(log, offset, news) else await log.read(offset, max_bytes)
            return bool(found)

        await polls.look_until([log], max_wait_s, look)
        return found

    async def _on_log(self, node: Node, log: LogId, work: Callable[[VirtualLog], Coroutine[Any, Any, T]]) -> T:
        held = self._held.get(log)
        if held is None or self._world.random.random() < 0.5:
            held = await node.log(log.topic, log.partition)
            if held.tp.topic_id != log.topic_id:
                raise OtherIncarnation(str(log))
            self._held[log] = held
        return await work(held)


class World:
    """All there is in one run."""

    def __init__(self, scenario: Scenario, loop: SimLoop, history: History, tally: Tally) -> None:
        self.scenario = scenario
        self.loop = loop
        self.history = history
        self.tally = tally
        self.random = Chance(f"world {scenario.seed}")
        self.chaos = self._make_chaos()
        self.medium = MemoryMedium()
        self.tails: SimTails | None = None
        clock = SimClock(loop)
        self._meta = ObservedMeta(clock)
        self._objects = ObservedObjects(clock)
        self.invariants = Invariants(self._objects.peek)
        self._meta.observer = self.invariants.changed
        self._meta.index_observer = self.invariants.index_put
        self._objects.observer = self.invariants.object_deleted
        shared = (scenario.watches, self.chaos, history, tally)
        self._meta_wire = Wire("meta", loop, self.random, scenario.meta, *shared)
        self._object_wire = Wire("object", loop, self.random, scenario.objects, *shared)
        self.logs: dict[str, list[LogId]] = {}
        """By topic: the incarnations that clients know of."""
        self.violations: list[Violation] = []
        """What clients met and no rule over the history would see."""
        self.machines = [LogMachine(f"n{number}", self) for number in range(scenario.nodes)]

    def share_tails(self, tails: SimTails) -> None:
        """All machines are processes of one host, and tell each other what they commit."""
        self.tails = tails

    async def start(self) -> None:
        self.chaos.start(self._crashed)
        for machine in self.machines:
            machine.start()
        for machine in self.machines:
            await machine.wait_until_up()

    def heal(self) -> None:
        self.history.note("heal")
        self.chaos.heal()
        self._meta_wire.heal()
        self._object_wire.heal()

    def draws_cancel(self) -> bool:
        return self.random.random() < self.scenario.processes.cancels

    def holder(self) -> str | None:
        """The session that has the lease now."""
        record = at_once(self._meta.get(LEASE))
        return None if record is None else record.value.decode()

    def meta_for_a_process(self) -> FaultyMeta:
        return FaultyMeta(self._meta, self.random.random() < self.scenario.transact, self._meta_wire)

    def objects_for_a_process(self) -> FaultyObjects:
        return FaultyObjects(self._objects, self._object_wire)

    def _make_chaos(self) -> Chaos:
        return Chaos(self.loop, self.random, self.scenario.processes, self.history, self.tally)

    def _crashed(self, process: Process) -> None:
        for machine in self.machines:
            machine.crashed(process)
