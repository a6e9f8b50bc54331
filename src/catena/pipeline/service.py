"""The service: pass after pass over all partitions, in another order each time, until it is told to end.

Topics are found anew for each pass. Any number of services may run: claims share the work out between them. A partition
that keeps failing is set aside, with its error shown, and the rest goes on. Told to end, it ends between two groups of
partitions, never within a commit; killed, it leaves what the next pass of anyone finishes.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from catena.errors import CatenaError
from catena.pipeline.set_aside import SetAside
from catena.pipeline.settings import PipelineSettings
from catena.pipeline.site import Place, Site
from catena.pipeline.tier_pass import PartitionReport, TierPass
from catena.pipeline.work import Work

log = logging.getLogger(__name__)

LOOK_S = 0.2
"""How soon the service notices, between passes, that it is told to end."""


class ServiceCounts(msgspec.Struct):
    """Since the service began."""

    passes: int = 0
    failed_passes: int = 0
    """Those that could not even begin, or that ended in the middle."""
    pass_seconds: float = 0.0
    last_pass_at_ms: int | None = None
    last_good_pass_at_ms: int | None = None
    """One in which no partition failed."""
    last_error: str = ""
    partitions: int = 0
    """That the last pass found."""
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


class Service:
    def __init__(
        self, site: Site, work: Work, settings: PipelineSettings, find_places: Callable[[], Awaitable[list[Place]]]
    ) -> None:
        self._site = site
        self._work = work
        self._settings = settings
        self._find_places = find_places
        self._ending = False
        self.counts = ServiceCounts()
        self.set_aside = SetAside(site.clock)

    def end(self) -> None:
        """After the group of partitions that is under way."""
        self._ending = True

    @property
    def is_ending(self) -> bool:
        return self._ending

    async def run(self) -> None:
        """Until `end` is called."""
        while not self.is_ending:
            await self.pass_once()
            await self._pause()

    async def pass_once(self) -> list[PartitionReport]:
        """What it did; nothing if it could not be done, and then the counts say why."""
        clock, counts = self._site.clock, self.counts
        began = clock.monotonic()
        reports: list[PartitionReport] = []
        try:
            places = await self._find_places()
            self.set_aside.keep({place.tp for place in places})
            due = [place for place in places if not self.set_aside.is_aside(place.tp)]
            due.sort(key=lambda _: self._site.entropy.jitter())
            tiering = TierPass(self._site, self._work, self._settings.tier, should_stop=lambda: self.is_ending)
            reports = await tiering.run(due)
        except CatenaError as error:
            counts.failed_passes += 1
            counts.last_error = f"{type(error).__name__}: {error}"
            log.warning("a pass could not be done: %s", counts.last_error)
        else:
            self._note(places, reports)
        counts.passes += 1
        counts.pass_seconds += clock.monotonic() - began
        counts.last_pass_at_ms = clock.now_ms()
        return reports

    def _note(self, places: Sequence[Place], reports: Sequence[PartitionReport]) -> None:
        self.counts.add(reports)
        by_name = {(place.tp.topic, place.tp.partition): place.tp for place in places}
        for report in reports:
            tp = by_name[report.topic, report.partition]
            if report.outcome == "failed":
                self.set_aside.failed(tp, report.error)
                self.counts.last_error = f"{tp}: {report.error}"
                log.warning("%s failed: %s", tp, report.error)
            elif report.outcome in ("tiered", "idle"):
                self.set_aside.succeeded(tp)
        if not self.set_aside.all:
            self.counts.last_good_pass_at_ms = self._site.clock.now_ms()

    async def _pause(self) -> None:
        """Passes begin at different times in different services, so that they meet less often."""
        pause_s = self._settings.service.every_ms / 1000 * (0.75 + self._site.entropy.jitter() / 2)
        until = self._site.clock.monotonic() + pause_s
        while not self._ending and (left := until - self._site.clock.monotonic()) > 0:
            await self._site.clock.sleep(min(left, LOOK_S))


def _sum(first: dict[str, int], second: Counter[str]) -> dict[str, int]:
    return dict(sorted((Counter(first) + second).items()))
