"""What one seed of the scenario of writes turns on, machines whose processes write as applications, and their world.

Applications write as Spark's drivers do: blobs first, then an intent, then runs into the logs. Their processes die at
any step, or sleep for an hour; others finish what they have begun: the same application, or the pipeline, also for
writes that have no name and that nobody comes back for. Producers are forgotten within that hour, so that
who wakes up can't rely on what logs remember. Vacuum runs beside all this.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from catena.config import Settings
from catena.loglets import producers
from catena.meta import keys
from catena.node import Node
from catena.source import adopting
from catena.virtual_log import intents
from sim import pipeline_scenario
from sim.chaos import Tally
from sim.history import History
from sim.loop import Chance, Process, SimLoop
from sim.machine import Machine
from sim.mutating import replaced
from sim.pipeline_cluster import DRIVER, GRACE, PipelineWorld
from sim.pipeline_scenario import PipelineScenario
from sim.pipeline_steps import PipelineMeta
from sim.runtime import SimClock, SimEntropy
from sim.steps import kind_of
from sim.stores import at_once

T = TypeVar("T")

EXPIRY_MS = 40 * 60_000
"""A producer is forgotten while a process sleeps for an hour."""
MAX_BLOB_AGE_MS = GRACE.grace_ms // 4
HEAD = "head"
BODY_STEP = "body:create"
WRITE_STEPS = ("head:confirm", "head:done", "head:open")
WRITES_STEPS = (*WRITE_STEPS, BODY_STEP, "blob:put", "control:append", "transact:append")
"""Those that a long run must hit."""


@dataclass(frozen=True)
class WritesScenario(PipelineScenario):
    applications: int
    versions: int
    """Of each application in each burst."""
    writers: int
    """Machines that write."""
    finishers: int
    unnamed: int
    """Writes without a name, in each burst."""
    large: bool
    """Bodies of intents are records of their own, some of them several."""


def draw(seed: int) -> WritesScenario:
    random = Chance(f"writes scenario {seed}")
    drawn = pipeline_scenario.draw(seed)
    aims = {*WRITE_STEPS, random.choice(("transact:append", "control:append", "blob:put"))}
    large = random.random() < 0.5
    if large:
        aims.add(BODY_STEP)
    base = replace(
        drawn,
        plain_writers=1,
        idempotent_writers=random.choice((0, 1)),
        readers=1,
        lookers=0,
        fencers=0,
        reconfigurers=random.choice((0, 0, 1)),
        trimmers=0,
        outrunners=0,
        deleters=0,
        restarters=0,
        retainers=0,
        auditors=int(random.random() < 0.3),
        drivers=random.choice((0, 0, 1)),
        vacuums=random.choice((0, 1, 1)),
        bursts=random.choice((1, 2, 2, 3)),
        vacuums_first=random.random() < 0.7,
        abrupt=False,
        sleeps=random.choice((0.5, 1.0)),
        partitions=random.choice((1, 2, 3)),
        processes=replace(
            drawn.processes,
            aims=tuple(sorted(aims)) if random.random() < 0.8 else (),
            pauses=random.choice((0.3, 0.7, 1.0)),
        ),
        meta=replace(drawn.meta, refused=drawn.meta.refused * random.choice((0.0, 0.3))),
    )
    return WritesScenario(
        **{field.name: getattr(base, field.name) for field in fields(PipelineScenario)},
        applications=random.choice((1, 1, 2)),
        versions=random.randint(1, 3),
        writers=random.choice((2, 2, 3)),
        finishers=random.choice((0, 1, 1)),
        unnamed=random.choice((0, 0, 1, 2)),
        large=large,
    )


@contextmanager
def small_limits(scenario: WritesScenario) -> Iterator[None]:
    """Producers are forgotten soon, and bodies are large soon."""
    with (
        replaced(producers, "EXPIRY_MS", EXPIRY_MS),
        replaced(adopting, "REMEMBERED_MS", EXPIRY_MS // 2),
        replaced(intents, "MAX_INLINE_BYTES", 0 if scenario.large else intents.MAX_INLINE_BYTES),
        replaced(intents, "PART_BYTES", 400),
    ):
        yield


class WritesMeta(PipelineMeta):
    def _name_put(self, key: str, value: bytes) -> str:
        if kind_of(key) == HEAD:
            return "head:confirm" if b"is_confirmed" in value else "head:open" if b'"open"' in value else "head:done"
        return BODY_STEP if keys.parse_write_body_part(key) is not None else super()._name_put(key, value)


class WriterMachine(Machine[Node]):
    """Its process may sleep for an hour, as those of drivers do."""

    def __init__(self, name: str, world: WritesWorld) -> None:
        super().__init__(name, world.loop, world.random, world.history, world.scenario.processes.skew_ms)
        self._world = world

    async def _start_node(self, clock: SimClock, entropy: SimEntropy) -> Node:
        world = self._world
        return await Node.start(
            Settings(diskless=world.scenario.diskless, tiered=world.scenario.tiered),
            meta=world.meta_for_a_process(),
            objects=world.objects_for_a_process(),
            clock=clock,
            entropy=entropy,
            memory=world.medium,
        )

    async def call(self, work: Callable[[Node], Coroutine[Any, Any, T]], patience_s: float) -> T:
        node, process = self._connect()
        return await self._run_in_process(process, work(node), patience_s, self._world.draws_cancel)


class WritesWorld(PipelineWorld):
    scenario: WritesScenario

    def __init__(self, scenario: WritesScenario, loop: SimLoop, history: History, tally: Tally) -> None:
        super().__init__(scenario, loop, history, tally)
        self.writers = [WriterMachine(f"{DRIVER}-w{number}", self) for number in range(scenario.writers)]

    async def start(self) -> None:
        await super().start()
        for machine in self.writers:
            machine.start()

    def bodies(self) -> list[str]:
        """Parts of what writes consist of that are not inline."""
        records = at_once(self._meta.scan(keys.WRITES, keys.after(keys.WRITES)))
        return [record.key for record in records if keys.parse_write_body_part(record.key) is not None]

    def meta_for_a_process(self) -> PipelineMeta:
        can_transact = self.random.random() < self.scenario.transact
        return WritesMeta(self._meta, can_transact, self._meta_wire, self._begun, self.scenario.claims, self._linger)

    def _crashed(self, process: Process) -> None:
        super()._crashed(process)
        for machine in self.writers:
            machine.crashed(process)
