"""A pass of tiering over many partitions: all of them are planned, their segments are written by tasks, each commits.

What goes wrong with one partition is told in the report, and the others go on. A partition that another driver works on
is left to it. Between two groups of partitions `should_stop` is asked, so that a pass ends soon, and never in the
middle of a commit.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from catena.errors import CatenaError, StaleView
from catena.formats.segment import SegmentInfo
from catena.meta.base import Session
from catena.pipeline import compactions, tier
from catena.pipeline.lag import Lags
from catena.pipeline.plan import size_of
from catena.pipeline.settings import TierSettings
from catena.pipeline.settled import Settled
from catena.pipeline.site import Place, Site
from catena.pipeline.stages import Stages
from catena.pipeline.tasks.segments import SegmentPlan, SegmentsPlan, SegmentsResult, SegmentWritten
from catena.pipeline.tier import TierJob, TierPlan
from catena.pipeline.work import TaskFailed, Work
from catena.runtime.tasks import map_bounded
from catena.types import Offset, TopicPartition, Version

T = TypeVar("T")

AT_ONCE = 16
"""Partitions that the driver asks the meta store about at the same time."""
GROUP = 500
"""Partitions whose segments are written together: enough to share blobs and to keep a cluster busy."""
GROUP_RUNS = 25_000
"""Of the partitions of a group, and those of AT_ONCE partitions more. A run takes 1 KB in the driver."""
SESSION_TTL_MS = 30_000

Outcome: TypeAlias = Literal["tiered", "planned", "idle", "busy", "stale", "failed"]

_result = msgspec.json.Decoder(SegmentsResult)


class PartitionReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pass did to a partition. `stale`: others changed it meanwhile, and it is left to the next pass."""

    topic: str
    partition: int
    outcome: Outcome
    boundary: Offset = 0
    segments: int = 0
    """Written, those made of smaller ones included."""
    merged: int = 0
    dropped: int = 0
    runs: int = 0
    bytes: int = 0
    recovered: str = "nothing"
    """What became of a job that was left behind: nothing, abandoned or finished."""
    error: str = ""


class Progress(NamedTuple):
    """Told to whoever shows it."""

    partitions: int
    partitions_done: int
    bytes: int
    bytes_done: int


class _Begun(NamedTuple):
    job: TierJob
    claim: Version
    recovered: str


async def plan_all(
    site: Site, places: Sequence[Place], settings: TierSettings, force_up_to: Offset | None = None
) -> list[PartitionReport]:
    """What a pass would do, and nothing is changed."""

    async def report(place: Place) -> PartitionReport:
        if (left := await compactions.load(site, place.tp)) is not None:
            return _report(place, "planned", recovered=f"left in {left.record.state}")
        plan = await tier.make_plan(site, place, settings, force_up_to)
        return _report(place, "idle") if plan is None else _of_plan(plan, "planned")

    return await _each(places, report)


class TierPass:
    def __init__(
        self,
        site: Site,
        work: Work,
        settings: TierSettings,
        force_up_to: Offset | None = None,
        show: Callable[[Progress], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
        stages: Stages | None = None,
        lags: Lags | None = None,
        settled: Settled | None = None,
    ) -> None:
        self._site = site
        self._work = work
        self._settings = settings
        self._force_up_to = force_up_to
        self._show = show
        self._should_stop = should_stop
        self._stages = stages or Stages(site.clock)
        self._lags = lags or Lags()
        self._settled = settled or Settled()
        self._progress = Progress(0, 0, 0, 0)
        self.reports: list[PartitionReport] = []
        """Of the partitions that are done."""

    async def run(self, places: Sequence[Place]) -> list[PartitionReport]:
        self.reports = []
        self._progress = Progress(len(places), 0, 0, 0)
        session = await self._site.meta.session(SESSION_TTL_MS)
        try:
            left = deque(places)
            while left and not self._should_stop():
                self.reports += await self._run_group(left, session)
        finally:
            await session.close()
        return self.reports

    async def _run_group(self, left: deque[Place], session: Session) -> list[PartitionReport]:
        """Of the first ones that are left, as many as fit together."""
        found: list[_Begun | PartitionReport] = []
        runs = 0
        while left and len(found) < GROUP and runs < GROUP_RUNS:
            places = [left.popleft() for _ in range(min(len(left), AT_ONCE, GROUP - len(found)))]
            begun_now = await _each(places, lambda place: self._begin(place, session))
            runs += sum(len(plan.runs) for each in begun_now if isinstance(each, _Begun) for plan in each.job.segments)
            found += begun_now
        begun = [each for each in found if isinstance(each, _Begun)]
        reports = [each for each in found if isinstance(each, PartitionReport)]
        plans = [plan for each in begun for plan in each.job.segments]
        self._tell(bytes=sum(plan.size for plan in plans), partitions_done=len(reports))
        written = iter(await self._write(plans))
        ends = [(each, [next(written) for _ in each.job.segments]) for each in begun]
        return reports + await map_bounded(AT_ONCE, lambda end: self._finish(*end), ends)

    async def _begin(self, place: Place, session: Session) -> _Begun | PartitionReport:
        """A job that was left behind is dealt with first, also where there is nothing else to do."""
        left = await compactions.load(self._site, place.tp)
        self._lags.found(place.tp, None if left is None else left.record.state)
        if self._force_up_to is not None:
            await tier.materialize_pending(self._site, place)
        if left is None and await self._make_plan(place) is None:
            return _report(place, "idle")
        claim = await compactions.claim(self._site, place.tp, session)
        if claim is None:
            return _report(place, "busy")
        begun: _Begun | None = None
        try:
            recovered = await self._recover(place, left)
            plan = await self._make_plan(place)  # again: it may have changed, and now nobody else works on it
            if plan is None:
                return _report(place, "idle", recovered=recovered)
            with self._stages.timing("begin"):
                begun = _Begun(await tier.begin(self._site, plan), claim, recovered)
            return begun
        finally:
            if begun is None:
                await compactions.unclaim(self._site, place.tp, claim)

    async def _recover(self, place: Place, left: compactions.Open | None) -> compactions.Recovery:
        if left is None:
            return await compactions.recover(self._site, place)
        with self._stages.timing("recover"):
            recovered = await compactions.recover(self._site, place)
        self._lags.found(place.tp, None)
        return recovered

    async def _make_plan(self, place: Place) -> TierPlan | None:
        with self._stages.timing("plan"):
            seen = await tier.look(self._site, place, self._settings, self._force_up_to, self._settled)
        self._lags.waits(place.tp, seen.waiting)
        return seen.plan

    async def _finish(self, begun: _Begun, written: Sequence[SegmentInfo | str]) -> PartitionReport:
        job, place = begun.job, begun.job.plan.place
        report = msgspec.structs.replace(_of_plan(job.plan, "tiered"), recovered=begun.recovered)
        try:
            if errors := [each for each in written if isinstance(each, str)]:
                await compactions.abandon(self._site, place, job.opened)
                return msgspec.structs.replace(report, outcome="failed", error=errors[0])
            with self._stages.timing("commit"):
                await tier.finish(self._site, job, [each for each in written if isinstance(each, SegmentInfo)])
            self._lags.waits(place.tp, job.plan.left)
        except StaleView as error:
            return msgspec.structs.replace(report, outcome="stale", error=str(error))
        except CatenaError as error:
            return msgspec.structs.replace(report, outcome="failed", error=f"{type(error).__name__}: {error}")
        finally:
            await compactions.unclaim(self._site, place.tp, begun.claim)
            self._tell(partitions_done=1)
        return report

    async def _write(self, plans: Sequence[SegmentPlan]) -> list[SegmentInfo | str]:
        """What each plan has become; a text says why it failed."""
        if not plans:
            return []
        order = in_turns(plans)
        groups = list(group_by_size([plans[number] for number in order], self._settings.task_bytes))

        def done(number: int, _: bytes | TaskFailed) -> None:
            self._tell(bytes_done=sum(plan.size for plan in groups[number]))

        tasks = [msgspec.json.encode(SegmentsPlan(tuple(group))) for group in groups]
        found: list[SegmentInfo | str] = []
        with self._stages.timing("tasks"):
            results = await self._work.run("segments", tasks, done)
        for group, result in zip(groups, results, strict=True):
            if isinstance(result, TaskFailed):
                found += [result.error] * len(group)
                continue
            for each in _result.decode(result).segments:
                found.append(each.info if isinstance(each, SegmentWritten) else each.error)
        by_number = dict(zip(order, found, strict=True))
        return [by_number[number] for number in range(len(plans))]

    def _tell(self, partitions_done: int = 0, bytes: int = 0, bytes_done: int = 0) -> None:
        was = self._progress
        self._progress = Progress(
            was.partitions, was.partitions_done + partitions_done, was.bytes + bytes, was.bytes_done + bytes_done
        )
        self._show(self._progress)


async def _each(places: Sequence[Place], do: Callable[[Place], Awaitable[T]]) -> list[T | PartitionReport]:
    """What goes wrong with a partition is its own report."""

    async def one(place: Place) -> T | PartitionReport:
        try:
            return await do(place)
        except StaleView as error:
            return _report(place, "stale", error=str(error))
        except CatenaError as error:
            return _report(place, "failed", error=f"{type(error).__name__}: {error}")

    return await map_bounded(AT_ONCE, one, places)


def in_turns(plans: Sequence[SegmentPlan]) -> list[int]:
    """Numbers of the plans: the first ones of all partitions, then the second ones, and so on.

    What was written to neighbouring partitions at the same time lies side by side in the same blobs. A task that makes
    both reads it with one get.
    """
    had: dict[TopicPartition, int] = {}
    turns = []
    for plan in plans:
        had[plan.tp] = had.get(plan.tp, 0) + 1
        turns.append(had[plan.tp])
    return sorted(range(len(plans)), key=turns.__getitem__)


def group_by_size(plans: Sequence[SegmentPlan], max_bytes: int) -> Iterator[list[SegmentPlan]]:
    """What one task does: neighbours, about so many bytes, at least one plan."""
    group: list[SegmentPlan] = []
    size = 0
    for plan in plans:
        if group and size + plan.size > max_bytes:
            yield group
            group, size = [], 0
        group.append(plan)
        size += plan.size
    if group:
        yield group


def _of_plan(plan: TierPlan, outcome: Outcome) -> PartitionReport:
    merged = [segment for merge in plan.merges for segment in plan.segments[merge.start : merge.end]]
    runs = [run for runs in plan.runs for run in runs]
    return PartitionReport(
        topic=plan.place.tp.topic,
        partition=plan.place.tp.partition,
        outcome=outcome,
        boundary=plan.boundary,
        segments=len(plan.merges) + len(plan.runs),
        merged=len(merged),
        dropped=plan.dropped,
        runs=len(runs),
        bytes=sum(map(size_of, runs)) + sum(segment.size for segment in merged),
    )


def _report(place: Place, outcome: Outcome, recovered: str = "nothing", error: str = "") -> PartitionReport:
    return PartitionReport(place.tp.topic, place.tp.partition, outcome, recovered=recovered, error=error)
