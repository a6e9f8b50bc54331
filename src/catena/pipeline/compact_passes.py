"""Passes of compaction over all partitions, in another order each time; `passes` does the same of tiering."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from catena.pipeline.compact import CompactPlace
from catena.pipeline.compact_pass import CompactionReport, CompactPass
from catena.pipeline.service import Ran, ShouldStop
from catena.pipeline.set_aside import SetAside
from catena.pipeline.settings import CompactSettings
from catena.pipeline.site import Site
from catena.pipeline.work import Work

log = logging.getLogger(__name__)


class CompactCounts(msgspec.Struct):
    """Since the first pass."""

    partitions: int = 0
    """That the last pass looked at."""
    outcomes: dict[str, int] = {}
    """Of partitions: compacted, busy, stale, failed."""
    records_read: int = 0
    records_removed: int = 0
    bytes_read: int = 0
    """Of segments, once, though each is read twice."""
    bytes_freed: int = 0
    """By how much segments have become smaller."""
    tombstones: int = 0
    """Marks of deleted keys that went."""
    opaque_batches: int = 0
    """That could not be decoded and stayed as they are, each time that they were looked at."""

    def add(self, reports: Sequence[CompactionReport]) -> None:
        self.partitions = len(reports)
        found = Counter(each.outcome for each in reports if each.outcome != "idle")
        self.outcomes = dict(sorted((Counter(self.outcomes) + found).items()))
        done = [each for each in reports if each.outcome == "compacted"]
        self.records_read += sum(each.records_before for each in done)
        self.records_removed += sum(each.records_before - each.records for each in done)
        self.bytes_read += sum(each.bytes_before for each in done)
        self.bytes_freed += sum(each.bytes_before - each.bytes for each in done)
        self.tombstones += sum(each.tombstones for each in done)
        self.opaque_batches += sum(each.opaque_batches for each in done)


class CompactPasses:
    def __init__(
        self,
        site: Site,
        work: Work,
        settings: CompactSettings,
        find_places: Callable[[], Awaitable[list[CompactPlace]]],
    ) -> None:
        self._site = site
        self._work = work
        self._settings = settings
        self._find_places = find_places
        self.counts = CompactCounts()
        self.set_aside = SetAside(site.clock)

    async def run(self, should_stop: ShouldStop = lambda: False) -> Ran:
        places = await self._find_places()
        self.set_aside.keep({where.place.tp for where in places})
        due = [where for where in places if not self.set_aside.is_aside(where.place.tp)]
        due.sort(key=lambda _: self._site.entropy.jitter())
        compacting = CompactPass(self._site, self._work, self._settings, should_stop=should_stop)
        try:
            reports = await compacting.run(due)
        finally:
            self._note(places, compacting.reports)  # what was done before it had to be given up was done
        if failing := self.set_aside.all:
            tp, failed = next(iter(failing.items()))
            return Ran("partly", f"{tp}: {failed.error}")
        return Ran("stopped" if len(reports) < len(due) else "good")

    def _note(self, places: Sequence[CompactPlace], reports: Sequence[CompactionReport]) -> None:
        self.counts.add(reports)
        by_name = {(where.place.tp.topic, where.place.tp.partition): where.place.tp for where in places}
        for report in reports:
            tp = by_name[report.topic, report.partition]
            if report.outcome == "failed":
                self.set_aside.failed(tp, report.error)
                log.warning("%s was not compacted: %s", tp, report.error)
            elif report.outcome in ("compacted", "idle"):
                self.set_aside.succeeded(tp)
