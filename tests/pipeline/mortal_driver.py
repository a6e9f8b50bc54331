"""Drivers in processes of their own, which are killed, or stopped and woken up, at a step of their job.

Their tasks run in them, so that a step is a step of the whole job. They are forked off a process that has everything
imported, which makes it cheap to have many of them.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, TypeVar

import msgspec

from catena import jobs
from catena.config import Settings
from catena.errors import NeedsOperator, RetryLater
from catena.jobs.compacting import find_compacted
from catena.objects.base import ObjectInfo
from catena.objects.counted import CountedObjects
from catena.pipeline.compact_pass import CompactionReport, CompactPass
from catena.pipeline.site import Site
from catena.pipeline.tasks import TaskContext
from catena.pipeline.tier_pass import PartitionReport, TierPass
from catena.pipeline.vacuum import check_grace, vacuum
from catena.pipeline.work import InlineWork
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.faults import Faults, FaultyMeta, FaultyObjects
from catena.virtual_log.chain_store import ChainStore
from tests.clients.waiting import until

T = TypeVar("T")

PATIENCE_S = 60.0
HANDED_ON = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "NO_PROXY")
LISTED = ("0", "8")
"""A vacuum lists 32 prefixes; these four count as steps."""

_processes = multiprocessing.get_context("forkserver")
_processes.set_forkserver_preload([__name__])


class Plan(msgspec.Struct, frozen=True):
    settings: Settings
    job: Literal["tier", "compact", "vacuum"] = "tier"
    topic: str | None = None
    """None: all."""
    at: int = 0
    """The step at which it gets a signal; 0: none."""
    signal: signal.Signals = signal.SIGKILL
    applied: bool = False
    """It gets it after the step and not before."""


class Told(msgspec.Struct, frozen=True):
    """What a driver says at its end."""

    steps: tuple[str, ...]
    reports: tuple[PartitionReport, ...] = ()
    compactions: tuple[CompactionReport, ...] = ()
    deleted: int = 0
    refused: str = ""
    """By a vacuum: why an operator should look."""
    interrupted: str = ""
    """By a vacuum: why it should be run again."""

    @property
    def outcomes(self) -> set[str]:
        return {report.outcome for report in self.reports}

    @property
    def recovered(self) -> set[str]:
        return {report.recovered for report in self.reports}


class SignalAt(Faults):
    """Numbers the steps. Those that only read do not count when a log is tiered or compacted: they leave nothing."""

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan = plan
        self.steps: list[str] = []

    async def take(self, step: str, apply: Callable[[], Awaitable[T]]) -> T:
        if self._plan.job != "vacuum" and not any(word in ("put", "delete", "delete_range") for word in step.split()):
            return await apply()
        self.steps.append(step)
        is_it = len(self.steps) == self._plan.at
        if is_it and not self._plan.applied:
            os.kill(os.getpid(), self._plan.signal)
        try:
            return await apply()
        finally:
            if is_it and self._plan.applied:
                os.kill(os.getpid(), self._plan.signal)


class ListingObjects(FaultyObjects):
    """Some listings are steps as well."""

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        if prefix.endswith(LISTED):
            await self._faults.take(f"list {prefix}", lambda: asyncio.sleep(0))
        async for info in self._store.list(prefix, after):
            yield info


def live(plan: Plan, environment: Mapping[str, str], told: Connection) -> None:
    os.environ.update(environment)
    told.send(asyncio.run(_live(plan)))


async def _live(plan: Plan) -> Told:
    clock, entropy = SystemClock(), SystemEntropy()
    faults = SignalAt(plan)
    async with jobs.open_site(plan.settings, clock, entropy) as (site, _):
        meta = FaultyMeta(site.meta, faults)
        objects = CountedObjects(ListingObjects(site.objects, faults), clock)
        site = site._replace(meta=meta, objects=objects, chains=ChainStore(meta, clock, entropy))
        # One task at a time: then the steps have the same numbers each time.
        work = InlineWork(TaskContext(objects, clock, entropy, objects), at_once=1)
        do = {"tier": _tier, "compact": _compact, "vacuum": _vacuum}[plan.job]
        told = await do(plan, site, work)
        return msgspec.structs.replace(told, steps=tuple(faults.steps))


async def _tier(plan: Plan, site: Site, work: InlineWork) -> Told:
    places = await jobs.find_places(site, jobs.Which(plan.topic))
    reports = await TierPass(site, work, plan.settings.pipeline.tier, jobs.MAX_OFFSET).run(places)
    return Told((), tuple(reports))


async def _compact(plan: Plan, site: Site, work: InlineWork) -> Told:
    places = await find_compacted(site, jobs.Which(plan.topic))
    return Told((), compactions=tuple(await CompactPass(site, work, plan.settings.pipeline.compact).run(places)))


async def _vacuum(plan: Plan, site: Site, work: InlineWork) -> Told:
    check_grace(plan.settings.pipeline.vacuum, plan.settings.diskless.writer.commit_deadline_ms)
    try:
        report = await vacuum(site, work, plan.settings.pipeline.vacuum)
    except NeedsOperator as error:
        return Told((), refused=str(error))
    except RetryLater as error:
        return Told((), interrupted=f"{type(error).__name__}: {error}")
    assert not report.failed, report.error
    return Told((), deleted=report.deleted.objects)


class MortalDriver:
    """One that has begun."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        environment = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
        self._told, theirs = _processes.Pipe(duplex=False)
        self._process = _processes.Process(target=live, args=(plan, environment, theirs))
        self._process.start()
        theirs.close()

    async def end(self) -> Told:
        """It must end well."""
        told = await self.end_anyhow()
        assert told is not None, f"it was killed at step {self.plan.at}"
        return told

    async def end_anyhow(self) -> Told | None:
        """None: it was killed, as its plan says."""
        return await asyncio.to_thread(self._end)

    async def stops(self) -> bool:
        """Wait until it has stopped; False: it has come to its end before."""
        return await asyncio.to_thread(until, self._has_stopped, "it stops or ends", PATIENCE_S) == "stopped"

    def wake(self) -> None:
        pid = self._process.pid
        assert pid is not None
        os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """However it is."""
        self._process.kill()
        self._process.join()
        self._process.close()
        self._told.close()

    def _end(self) -> Told | None:
        told: Told | None = None
        if self._told.poll(PATIENCE_S):
            try:
                told = self._told.recv()
            except EOFError:
                pass
        self._process.join(PATIENCE_S)
        expected = 0 if told is not None else -signal.SIGKILL
        assert self._process.exitcode == expected, f"it ended with {self._process.exitcode}; stderr says why"
        return told

    def _has_stopped(self) -> str | None:
        if not self._process.is_alive():
            return "ended"
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except FileNotFoundError:
            return None
        return "stopped" if "T (stopped)" in status else None


class Drivers:
    """All that a test has begun; what is left of them at its end is ended."""

    def __init__(self) -> None:
        self._begun: list[MortalDriver] = []

    def begin(self, plan: Plan) -> MortalDriver:
        driver = MortalDriver(plan)
        self._begun.append(driver)
        return driver

    async def finish(self, settings: Settings) -> Told:
        """One that nothing happens to tiers all that there is."""
        return await self.begin(Plan(settings)).end()

    def close(self) -> None:
        for driver in self._begun:
            driver.close()
