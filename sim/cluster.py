"""Machines that run the product's `Node`, one process at a time, on the stores that all share.

Clients live outside of all processes and speak to a node by `Machine.call`, as over a network: the work runs in the
node's process, and the caller gets its answer, or `NoAnswer` when the process dies or the caller's patience ends; then
the work may have been done, may be done yet, or never. A machine starts a new process some time after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from catena.config import Settings
from catena.errors import OutcomeUnknown, RetryLater
from catena.loglets.memory import MemoryMedium
from catena.node import Node
from catena.objects.memory import MemoryObjects
from catena.virtual_log.log import VirtualLog
from sim.chaos import Chaos, Tally
from sim.checker import Violation
from sim.history import History, LogId
from sim.invariants import Invariants
from sim.loop import Chance, Process, SimLoop
from sim.runtime import SimClock, SimEntropy
from sim.scenario import Scenario
from sim.stores import FaultyMeta, FaultyObjects, ObservedMeta, Wire, at_once

T = TypeVar("T")

RESTART_S = 2.0
PATIENCE_S = 20.0
LEASE = "llog/lease"
"""An ephemeral record that at most one session has."""


class NotConnected(Exception):
    """No node runs on this machine now; nothing was sent."""


class NoAnswer(Exception):
    """The node died, or took too long: the work may or may not be done, now or later."""


class OtherIncarnation(Exception):
    """The node knows the topic under another id; nothing was done."""


class Machine:
    def __init__(self, name: str, world: World) -> None:
        self.name = name
        self.process: Process | None = None
        self.node: Node | None = None
        self._world = world
        self._starts = 0
        self._calls: dict[asyncio.Future[Any], asyncio.Task[Any]] = {}
        self._held: dict[LogId, VirtualLog] = {}
        self._up: asyncio.Future[None] = world.loop.create_future()

    def start(self) -> None:
        """Begin a new process; it retries until its node is up."""
        self._starts += 1
        self.process = process = Process(f"{self.name}#{self._starts}")
        self._world.history.note(f"{process} starts")
        self._world.loop.create_task(self._run(), context=process.context)

    async def _run(self) -> None:
        world = self._world
        clock = SimClock(world.loop, world.random.randint(-1, 1) * world.scenario.processes.skew_ms)
        entropy = SimEntropy(world.random.getrandbits(64))
        while True:
            try:
                node = await Node.start(
                    Settings(diskless=world.scenario.diskless),
                    meta=world.meta_for_a_process(),
                    objects=world.objects_for_a_process(),
                    clock=clock,
                    entropy=entropy,
                    memory=world.medium,
                )
            except (RetryLater, OutcomeUnknown):
                await clock.sleep(0.1)
                continue
            break
        self.node = node
        self._up.set_result(None)

    def crashed(self, process: Process) -> None:
        """Clients see their connections break; some time later the machine is up again."""
        if process is not self.process:
            return
        self.node = None
        self._held.clear()
        if self._up.done():
            self._up = self._world.loop.create_future()
        for answer in list(self._calls):
            self._give_up(answer, f"{process} died")
        delay = RESTART_S * self._world.random.random()
        self._world.loop.call_later(delay, self.start, context=self._world.loop.outside)

    async def wait_until_up(self) -> None:
        await asyncio.shield(self._up)

    async def kill(self) -> None:
        """End the process as `kill -9` would, and wait until the next one is up."""
        process = self.process
        if process is not None and process.alive:
            self._world.history.note(f"{process} killed")
            self._world.loop.crash(process)
            self.crashed(process)
        await self.wait_until_up()

    async def stop(self) -> None:
        """A clean end: close the node and wait until it has."""
        node = self.node
        if node is not None:
            self.node = None
            await self._run_in_process(node.close(), PATIENCE_S)

    async def call(self, work: Callable[[Node], Coroutine[Any, Any, T]], patience_s: float = PATIENCE_S) -> T:
        node, process = self.node, self.process
        if node is None or process is None or not process.alive:
            raise NotConnected(self.name)
        return await self._run_in_process(work(node), patience_s)

    async def call_log(
        self, log: LogId, work: Callable[[VirtualLog], Coroutine[Any, Any, T]], patience_s: float = PATIENCE_S
    ) -> T:
        """`work` on the node's handle of this very incarnation; sometimes one that it got long ago."""
        return await self.call(lambda node: self._on_log(node, log, work), patience_s)

    async def _on_log(self, node: Node, log: LogId, work: Callable[[VirtualLog], Coroutine[Any, Any, T]]) -> T:
        held = self._held.get(log)
        if held is None or self._world.random.random() < 0.5:
            held = await node.log(log.topic, log.partition)
            if held.tp.topic_id != log.topic_id:
                raise OtherIncarnation(str(log))
            self._held[log] = held
        return await work(held)

    async def _run_in_process(self, work: Coroutine[Any, Any, T], patience_s: float) -> T:
        loop, process = self._world.loop, self.process
        assert process is not None
        answer: asyncio.Future[T] = loop.create_future()
        task = loop.create_task(work, context=process.context.copy())
        self._calls[answer] = task
        task.add_done_callback(partial(self._answered, answer), context=loop.outside)
        timer = loop.call_later(patience_s, self._lose_patience, answer, context=loop.outside)
        try:
            return await answer
        finally:
            timer.cancel()
            self._calls.pop(answer, None)

    def _answered(self, answer: asyncio.Future[T], task: asyncio.Task[T]) -> None:
        error = None if task.cancelled() else task.exception()
        if answer.done():
            return
        if task.cancelled():
            answer.set_exception(NoAnswer("cancelled"))
        elif error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(task.result())

    def _lose_patience(self, answer: asyncio.Future[Any]) -> None:
        task = self._calls.get(answer)
        self._give_up(answer, "no answer in time")
        if task is not None and self._world.random.random() < self._world.scenario.processes.cancels:
            task.cancel()

    def _give_up(self, answer: asyncio.Future[Any], why: str) -> None:
        if not answer.done():
            answer.set_exception(NoAnswer(why))


class World:
    """All there is in one run."""

    def __init__(self, scenario: Scenario, loop: SimLoop, history: History, tally: Tally) -> None:
        self.scenario = scenario
        self.loop = loop
        self.history = history
        self.random = Chance(f"world {scenario.seed}")
        self.chaos = Chaos(loop, self.random, scenario.processes, history, tally)
        self.invariants = Invariants()
        self.medium = MemoryMedium()
        clock = SimClock(loop)
        self._meta = ObservedMeta(clock)
        self._meta.observer = self.invariants.changed
        self._meta.index_observer = self.invariants.index_put
        self._objects = MemoryObjects(clock)
        shared = (scenario.watches, self.chaos, history, tally)
        self._meta_wire = Wire("meta", loop, self.random, scenario.meta, *shared)
        self._object_wire = Wire("object", loop, self.random, scenario.objects, *shared)
        self.logs: dict[str, list[LogId]] = {}
        """By topic: the incarnations that clients know of."""
        self.violations: list[Violation] = []
        """What clients met and no rule over the history would see."""
        self.machines = [Machine(f"n{number}", self) for number in range(scenario.nodes)]

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

    def holder(self) -> str | None:
        """The session that has the lease now."""
        record = at_once(self._meta.get(LEASE))
        return None if record is None else record.value.decode()

    def meta_for_a_process(self) -> FaultyMeta:
        return FaultyMeta(self._meta, self.random.random() < self.scenario.transact, self._meta_wire)

    def objects_for_a_process(self) -> FaultyObjects:
        return FaultyObjects(self._objects, self._object_wire)

    def _crashed(self, process: Process) -> None:
        for machine in self.machines:
            machine.crashed(process)
