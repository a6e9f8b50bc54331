"""A pass of compaction over many partitions: their tasks run together, stage by stage, and each partition commits.

What goes wrong with one partition is told in its report, and the others go on. A partition that another driver works on
is left to it. Between two groups of partitions `should_stop` is asked, so that a pass never ends in the middle of a
commit.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from catena.errors import CatenaError, StaleView
from catena.meta import keys
from catena.meta.base import Session
from catena.pipeline import compact, compactions
from catena.pipeline.compact import CompactJob, CompactPlace, CompactPlan
from catena.pipeline.compact_work import Compacted, Compacting
from catena.pipeline.settings import CompactSettings
from catena.pipeline.site import Place, Site
from catena.pipeline.tier_pass import SESSION_TTL_MS, Progress
from catena.pipeline.work import Work
from catena.runtime.tasks import map_bounded
from catena.types import Offset, Version
from catena.virtual_log.topic_configs import TopicSettings, settings_of
from catena.virtual_log.topics import decode_topic

log = logging.getLogger(__name__)

T = TypeVar("T")

AT_ONCE = 16
"""Partitions that the driver asks the meta store about at the same time."""
GROUP_BYTES = 64 << 30
GROUP = 100
GROUP_PARTS = 1_000_000
"""Partitions that are compacted together: up to so many, so many bytes of them, unless one alone has more, and so many
parts (`compact_plan`), and those of AT_ONCE partitions more. A part takes 100 bytes in the driver."""

Outcome: TypeAlias = Literal["compacted", "planned", "idle", "busy", "stale", "failed"]


class CompactionReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a pass did to a partition. `stale`: others changed it meanwhile, and it is left to the next pass."""

    topic: str
    partition: int
    outcome: Outcome
    cleaned_up_to: Offset = 0
    records_before: int = 0
    records: int = 0
    """That are left."""
    bytes_before: int = 0
    bytes: int = 0
    """Of segments, those that stay as they are included."""
    dirty_bytes: int = 0
    """Of those before, what had not been compacted yet."""
    keys: int = 0
    tombstones: int = 0
    """Marks of deleted keys that went."""
    segments: int = 0
    """Written."""
    opaque_batches: int = 0
    """That can't be decoded; they stay as they are."""
    first_opaque: Offset = -1
    """-1: there is none."""
    recovered: str = "nothing"
    """What became of a job that was left behind: nothing, abandoned or finished."""
    error: str = ""


class _Begun(NamedTuple):
    job: CompactJob
    topic: TopicSettings
    """By which it was planned."""
    claim: Version
    recovered: str


async def plan_all(site: Site, places: Sequence[CompactPlace], settings: CompactSettings) -> list[CompactionReport]:
    """What a pass would do, and nothing is changed."""

    async def report(where: CompactPlace) -> CompactionReport:
        if (left := await compactions.load(site, where.place.tp)) is not None:
            return _report(where.place, "planned", recovered=f"left in {left.record.state}")
        plan = await compact.make_plan(site, where, settings)
        return _report(where.place, "idle") if plan is None else _of_plan(plan, "planned")

    return await _each(places, report)


class CompactPass:
    def __init__(
        self,
        site: Site,
        work: Work,
        settings: CompactSettings,
        show: Callable[[Progress], None] = lambda _: None,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self._site = site
        self._work = work
        self._settings = settings
        self._show = show
        self._should_stop = should_stop
        self._progress = Progress(0, 0, 0, 0)
        self.reports: list[CompactionReport] = []
        """Of the partitions that are done."""

    async def run(self, places: Sequence[CompactPlace]) -> list[CompactionReport]:
        self.reports = []
        self._progress = Progress(len(places), 0, 0, 0)
        session = await self._site.meta.session(SESSION_TTL_MS)
        try:
            left = list(reversed(places))
            while left and not self._should_stop():
                self.reports += await self._run_group(left, session)
        finally:
            await session.close()
        return self.reports

    async def _run_group(self, left: list[CompactPlace], session: Session) -> list[CompactionReport]:
        """Of the last ones that are left, as many as fit together."""
        begun: list[_Begun] = []
        reports: list[CompactionReport] = []
        size = parts = 0
        while left and len(begun) < GROUP and size < GROUP_BYTES and parts < GROUP_PARTS:
            places = [left.pop() for _ in range(min(len(left), AT_ONCE))]
            for found in await _each(places, lambda where: self._begin(where, session)):
                if isinstance(found, _Begun):
                    begun.append(found)
                    size += found.job.plan.choice.bytes
                    parts += found.job.plan.choice.parts
                else:
                    reports.append(found)
        self._tell(bytes=2 * size, partitions_done=len(reports))
        compacting = Compacting(
            self._site, self._work, [each.job for each in begun], lambda size: self._tell(bytes_done=size)
        )
        try:
            done = await compacting.run()
            ends = list(zip(begun, done, strict=True))
            return reports + await map_bounded(AT_ONCE, lambda each: self._finish(*each), ends)
        finally:
            await compacting.delete_scratch()

    async def _begin(self, where: CompactPlace, session: Session) -> _Begun | CompactionReport:
        """A job that was left behind is dealt with first, also where there is nothing else to do."""
        place = where.place
        left = await compactions.load(self._site, place.tp)
        if left is None and await compact.make_plan(self._site, where, self._settings) is None:
            return _report(place, "idle")
        claim = await compactions.claim(self._site, place.tp, session)
        if claim is None:
            return _report(place, "busy")
        begun: _Begun | None = None
        try:
            recovered = await compactions.recover(self._site, place)
            # Again: it may have changed, and now nobody else works on it.
            if await self._topic_now(place) != where.topic:
                return _report(place, "idle", recovered=recovered)
            plan = await compact.make_plan(self._site, where, self._settings)
            if plan is None:
                return _report(place, "idle", recovered=recovered)
            begun = _Begun(await compact.begin(self._site, plan), where.topic, claim, recovered)
            return begun
        finally:
            if begun is None:
                await compactions.unclaim(self._site, place.tp, claim)

    async def _finish(self, begun: _Begun, done: Compacted | str) -> CompactionReport:
        job, place = begun.job, begun.job.plan.place
        report = msgspec.structs.replace(_of_plan(job.plan, "failed"), recovered=begun.recovered)
        try:
            if isinstance(done, str):
                await compactions.abandon(self._site, place, job.opened)
                return msgspec.structs.replace(report, error=done)
            if await self._topic_now(place) != begun.topic:
                await compactions.abandon(self._site, place, job.opened)
                return msgspec.structs.replace(
                    report, outcome="stale", error="the topic's configs have changed meanwhile"
                )
            await compact.finish(self._site, job, done.written)
        except StaleView as error:
            return msgspec.structs.replace(report, outcome="stale", error=str(error))
        except CatenaError as error:
            return msgspec.structs.replace(report, error=f"{type(error).__name__}: {error}")
        finally:
            await compactions.unclaim(self._site, place.tp, begun.claim)
            self._tell(partitions_done=1)
        if done.opaque_batches:
            log.warning(
                "topic %s, partition %d: the batch at offset %d can't be decoded and stays as it is, one of %d",
                place.tp.topic,
                place.tp.partition,
                done.first_opaque,
                done.opaque_batches,
            )
        return msgspec.structs.replace(
            report,
            outcome="compacted",
            records=done.records,
            bytes=done.bytes,
            keys=done.keys,
            tombstones=done.tombstones,
            segments=sum(info is not None for info in done.written),
            opaque_batches=done.opaque_batches,
            first_opaque=done.first_opaque,
        )

    async def _topic_now(self, place: Place) -> TopicSettings | None:
        """Who has taken back that the topic is compacted loses nothing, however long a pass takes. None: it is gone."""
        record = await self._site.meta.get(keys.topic(place.tp.topic))
        topic = None if record is None else decode_topic(record)
        return None if topic is None or topic.topic_id != place.tp.topic_id else settings_of(topic.configs)

    def _tell(self, partitions_done: int = 0, bytes: int = 0, bytes_done: int = 0) -> None:
        was = self._progress
        self._progress = Progress(
            was.partitions, was.partitions_done + partitions_done, was.bytes + bytes, was.bytes_done + bytes_done
        )
        self._show(self._progress)


async def _each(
    places: Sequence[CompactPlace], do: Callable[[CompactPlace], Awaitable[T]]
) -> list[T | CompactionReport]:
    """What goes wrong with a partition is its own report."""

    async def one(where: CompactPlace) -> T | CompactionReport:
        try:
            return await do(where)
        except StaleView as error:
            return _report(where.place, "stale", error=str(error))
        except CatenaError as error:
            return _report(where.place, "failed", error=f"{type(error).__name__}: {error}")

    return await map_bounded(AT_ONCE, one, places)


def _of_plan(plan: CompactPlan, outcome: Outcome) -> CompactionReport:
    choice, tp = plan.choice, plan.place.tp
    return CompactionReport(
        topic=tp.topic,
        partition=tp.partition,
        outcome=outcome,
        cleaned_up_to=choice.end,
        records_before=choice.records,
        bytes_before=choice.bytes,
        dirty_bytes=choice.dirty_bytes,
    )


def _report(place: Place, outcome: Outcome, recovered: str = "nothing", error: str = "") -> CompactionReport:
    return CompactionReport(place.tp.topic, place.tp.partition, outcome, recovered=recovered, error=error)
