"""Machines that run drivers of jobs beside the nodes, on the same stores, and the world that they make up."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from catena.meta import keys
from catena.objects.counted import CountedObjects
from catena.objects.retrying import RetryingObjects
from catena.pipeline.audit import AuditReport, audit
from catena.pipeline.settings import AuditSettings, TierSettings, VacuumSettings
from catena.pipeline.site import Place, Site
from catena.pipeline.tasks import TaskContext
from catena.pipeline.tasks.listing import kind_of
from catena.pipeline.tier_pass import PartitionReport, TierPass
from catena.pipeline.vacuum import VacuumReport, vacuum
from catena.pipeline.work import InlineWork
from catena.types import Offset
from catena.virtual_log.chain_store import ChainStore
from catena.virtual_log.cluster import join_cluster
from catena.virtual_log.incarnation import check_incarnation
from catena.virtual_log.topics import list_topics
from sim.chaos import Blow, Chaos, Strike, Tally
from sim.cluster import World
from sim.history import History
from sim.loop import Process, SimLoop
from sim.machine import Machine
from sim.pipeline_scenario import PipelineScenario
from sim.pipeline_steps import READ_STEPS, VACUUM, PipelineMeta
from sim.runtime import SimClock, SimEntropy
from sim.steps import kind_of as kind_of_record
from sim.stores import at_once

T = TypeVar("T")

HOUR_S = 3600.0
GRACE = VacuumSettings(grace_ms=600_000, longest_job_ms=300_000)
"""Above every deadline and pause of nodes, and the skew of clocks; an hour that a driver sleeps is far above it."""
SKEW_MS_MAX = 100_000
AUDIT = AuditSettings(task_bytes=500)
DRIVER = "driver"


class Driver(NamedTuple):
    site: Site
    work: InlineWork

    async def places(self) -> list[Place]:
        topics = await list_topics(self.site.meta)
        return [Place(topic.partition(number), topic.kind) for topic in topics for number in range(topic.partitions)]

    async def tier(
        self, settings: TierSettings, force_up_to: Offset | None = None, places: Sequence[Place] | None = None
    ) -> list[PartitionReport]:
        """One pass, as `catena pipeline tier` does it."""
        chosen = await self.places() if places is None else places
        return await TierPass(self.site, self.work, settings, force_up_to).run(chosen)

    async def vacuum(self) -> VacuumReport:
        return await vacuum(self.site, self.work, GRACE)

    async def audit(self) -> AuditReport:
        return await audit(self.site, self.work, await self.places(), AUDIT)


class DriverMachine(Machine[Driver]):
    def __init__(self, name: str, world: PipelineWorld) -> None:
        super().__init__(name, world.loop, world.random, world.history, world.scenario.processes.skew_ms)
        self.world = world

    async def _start_node(self, clock: SimClock, entropy: SimEntropy) -> Driver:
        meta, objects = self.world.meta_for_a_process(), self.world.objects_for_a_process()
        cluster = await join_cluster(meta, objects, clock, entropy)
        await check_incarnation(meta, objects)
        counted = CountedObjects(objects, clock)
        retrying = RetryingObjects(counted, clock, entropy)
        site = Site(cluster.cluster_id, meta, retrying, ChainStore(meta, clock, entropy), clock, entropy, GRACE)
        return Driver(site, InlineWork(TaskContext(retrying, clock, entropy, counted)))

    async def call(self, work: Callable[[Driver], Coroutine[Any, Any, T]], patience_s: float) -> T:
        driver, process = self._connect()
        return await self._run_in_process(process, work(driver), patience_s, self.world.draws_cancel)


class PipelineChaos(Chaos):
    """A driver may sleep for an hour; nodes wake up long before vacuum takes what they are about to commit."""

    sleeps = 0.0

    def next_burst(self) -> None:
        """All that is aimed at is hit once more."""
        self._aims = set(self._faults.aims)

    def draw(self, process: Process | None, step: str) -> Strike | None:
        """Who reads is mostly held up: to die there is to die anywhere."""
        strike = super().draw(process, step)
        if strike is None or step not in READ_STEPS:
            return strike
        return strike._replace(blow=Blow.PAUSE if self._random.random() < 0.8 else Blow.CRASH)

    def _draw_pause_s(self, process: Process) -> float:
        if process.name.startswith(DRIVER) and self._random.random() < self.sleeps:
            return HOUR_S + 10.0 * self._random.random()
        return super()._draw_pause_s(process)


class PipelineWorld(World):
    scenario: PipelineScenario
    chaos: PipelineChaos

    def __init__(self, scenario: PipelineScenario, loop: SimLoop, history: History, tally: Tally) -> None:
        self._begun: dict[str, Process | None] = {}
        """By job: the process that began it."""
        super().__init__(scenario, loop, history, tally)
        self.invariants.keep_replaced(GRACE.longest_job_ms - SKEW_MS_MAX, self._meta.clock.now_ms)
        self.drivers = [DriverMachine(f"{DRIVER}{number}", self) for number in range(scenario.drivers)]
        self.vacuums = [DriverMachine(f"{VACUUM}{number}", self) for number in range(scenario.vacuums)]
        self.auditors = [DriverMachine(f"{DRIVER}-a{number}", self) for number in range(scenario.auditors)]

    async def start(self) -> None:
        await super().start()
        for driver in self._all_drivers:
            driver.start()

    @property
    def _all_drivers(self) -> list[DriverMachine]:
        return [*self.drivers, *self.vacuums, *self.auditors]

    def has_record(self, key: str) -> bool:
        return at_once(self._meta.get(key)) is not None

    def orphans(self) -> list[str]:
        """Objects that vacuum may delete and that nothing refers to."""
        partitions = self.invariants.partitions.values()
        known = {key for state in partitions if not state.is_deleted for key in state.references(readable=False)}
        jobs = {state.chain.tiering for state in partitions if state.chain is not None}
        old_ms = self._meta.clock.now_ms() - GRACE.grace_ms
        listed = at_once(self._objects.list_now())
        return [
            info.key
            for info in listed
            if kind_of(info.key) is not None and info.modified_ms < old_ms and info.key not in known
            if jobs.isdisjoint(info.key.split("/"))
        ]

    def strays(self) -> list[str]:
        """Records of deleted partitions, but for the fences that keep late writers out."""
        deleted = [state for state in self.invariants.partitions.values() if state.is_deleted]
        found = [
            record.key
            for state in deleted
            for record in at_once(self._meta.scan(state.prefix, keys.after(state.prefix)))
        ]
        return [key for key in found if kind_of_record(key) not in ("chain", "control")]

    def meta_for_a_process(self) -> PipelineMeta:
        can_transact = self.random.random() < self.scenario.transact
        return PipelineMeta(self._meta, can_transact, self._meta_wire, self._begun, self.scenario.claims, self._linger)

    async def _linger(self) -> None:
        if self.scenario.lingers_s:
            await self.loop.sleep(self.scenario.lingers_s * self.random.random())

    def _make_chaos(self) -> PipelineChaos:
        chaos = PipelineChaos(self.loop, self.random, self.scenario.processes, self.history, self.tally)
        chaos.sleeps = self.scenario.sleeps
        return chaos

    def _crashed(self, process: Process) -> None:
        super()._crashed(process)
        for driver in self._all_drivers:
            driver.crashed(process)
