"""Passes of tiering over all partitions, in another order each time, and what is remembered from one to the next.

Topics are found anew for each pass. Any number of drivers may do passes: claims share the work out between them. A
partition that keeps failing is set aside, with its error shown, and the rest goes on.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import get_args

import msgspec

from catena.pipeline.lag import Lag, Lags
from catena.pipeline.records import State
from catena.pipeline.service import Ran, ShouldStop
from catena.pipeline.set_aside import SetAside
from catena.pipeline.settings import TierSettings
from catena.pipeline.settled import Settled
from catena.pipeline.site import Place, Site
from catena.pipeline.stages import Stages
from catena.pipeline.tier_pass import PartitionReport, TierPass
from catena.pipeline.work import Work

log = logging.getLogger(__name__)


class TierCounts(msgspec.Struct):
    """Since the first pass."""

    partitions: int = 0
    """That the last pass looked at."""
    candidates: int = 0
    """Of these, where there was something to do."""
    outcomes: dict[str, int] = {}
    """Of partitions: tiered, busy, stale, failed."""
    recoveries: dict[str, int] = {}
    """Of jobs that were left behind: finished, abandoned."""
    segments: int = 0
    merged: int = 0
    dropped: int = 0
    runs: int = 0
    bytes: int = 0

    def add(self, reports: Sequence[PartitionReport]) -> None:
        self.partitions = len(reports)
        self.candidates = sum(each.outcome != "idle" for each in reports)
        self.outcomes = _sum(self.outcomes, Counter(each.outcome for each in reports if each.outcome != "idle"))
        recovered = Counter(each.recovered for each in reports if each.recovered != "nothing")
        self.recoveries = _sum(self.recoveries, recovered)
        done = [each for each in reports if each.outcome == "tiered"]
        self.segments += sum(each.segments for each in done)
        self.merged += sum(each.merged for each in done)
        self.dropped += sum(each.dropped for each in done)
        self.runs += sum(each.runs for each in done)
        self.bytes += sum(each.bytes for each in done)


class Passes:
    def __init__(
        self, site: Site, work: Work, settings: TierSettings, find_places: Callable[[], Awaitable[list[Place]]]
    ) -> None:
        self._site = site
        self._work = work
        self._settings = settings
        self._find_places = find_places
        self._lags = Lags()
        self._settled = Settled()
        self.counts = TierCounts()
        self.set_aside = SetAside(site.clock)
        self.stages = Stages(site.clock)

    @property
    def lag(self) -> Lag:
        return self._lags.lag(self._site.clock.now_ms(), self._settings.min_age_ms)

    @property
    def pending(self) -> dict[str, int]:
        """Partitions on which a job of another driver is under way or left behind, by how far it has come."""
        found = self._lags.pending
        return {state: found.get(state, 0) for state in get_args(State)}

    async def run(self, should_stop: ShouldStop = lambda: False) -> Ran:
        reports, due = await self._pass(should_stop)
        if failing := self.set_aside.all:
            tp, failed = next(iter(failing.items()))
            return Ran("partly", f"{tp}: {failed.error}")
        return Ran("stopped" if len(reports) < due else "good")

    async def pass_once(self) -> list[PartitionReport]:
        reports, _ = await self._pass(lambda: False)
        return reports

    async def _pass(self, should_stop: ShouldStop) -> tuple[list[PartitionReport], int]:
        """And how many partitions were to be looked at."""
        places = await self._find_places()
        there = {place.tp for place in places}
        self.set_aside.keep(there)
        self._lags.keep(there)
        self._settled.keep(there)
        due = [place for place in places if not self.set_aside.is_aside(place.tp)]
        due.sort(key=lambda _: self._site.entropy.jitter())
        tiering = TierPass(
            self._site,
            self._work,
            self._settings,
            should_stop=should_stop,
            stages=self.stages,
            lags=self._lags,
            settled=self._settled,
        )
        try:
            return await tiering.run(due), len(due)
        finally:
            self._note(places, tiering.reports)  # what was done before it had to be given up was done

    def _note(self, places: Sequence[Place], reports: Sequence[PartitionReport]) -> None:
        self.counts.add(reports)
        by_name = {(place.tp.topic, place.tp.partition): place.tp for place in places}
        for report in reports:
            tp = by_name[report.topic, report.partition]
            if report.outcome == "failed":
                self.set_aside.failed(tp, report.error)
                log.warning("%s failed: %s", tp, report.error)
            elif report.outcome in ("tiered", "idle"):
                self.set_aside.succeeded(tp)


def _sum(first: dict[str, int], second: Counter[str]) -> dict[str, int]:
    return dict(sorted((Counter(first) + second).items()))
