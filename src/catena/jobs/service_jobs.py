"""The jobs of the service, each as its schedule runs it: on stores and a session that are open already.

Each run begins with a look whether the meta store was set back; then nothing is done until a person has decided.
"""

from __future__ import annotations

from collections.abc import Mapping

from catena.config import Settings
from catena.errors import CatenaError
from catena.jobs.compacting import find_compacted
from catena.jobs.figures import AuditFigures, RetentionCounts, VacuumCounts
from catena.jobs.finishing import finish_writes_on
from catena.jobs.opening import EVERYTHING, Which, find_places
from catena.jobs.tabling import TablePasses
from catena.jobs.trimming import retention_on
from catena.pipeline.audit import AuditReport, audit
from catena.pipeline.compact_passes import CompactPasses
from catena.pipeline.passes import Passes
from catena.pipeline.renewed_work import RenewedWork
from catena.pipeline.service import Job, Ran, ShouldStop
from catena.pipeline.site import Place, Site
from catena.pipeline.sliced_work import SlicedWork
from catena.pipeline.vacuum import vacuum
from catena.virtual_log.incarnation import Incarnation, check_incarnation

TASKS_AT_ONCE = 64
"""16 GB, as tasks are by default: for so long tiering that becomes due meanwhile waits for a slot."""
NAMED_MAX = 10
"""Applications in one line; the log has all of them."""


class ServiceJobs:
    def __init__(self, settings: Settings, site: Site, work: RenewedWork, which: Which) -> None:
        self._settings = settings
        self._site = site
        self._work = work
        self._which = which
        self._since: Incarnation | None = None
        self.passes = Passes(site, work, settings.pipeline.tier, self._find_places)
        self.compact_passes = CompactPasses(
            site,
            SlicedWork(work, TASKS_AT_ONCE),
            settings.pipeline.compact,
            lambda: find_compacted(site, which, is_asked_for=False),
        )
        self.tables = TablePasses(settings, site, work, which)
        self.retention = RetentionCounts()
        self.vacuum = VacuumCounts()
        self.audit: AuditFigures | None = None
        every = settings.pipeline.service
        # Orphans are of no topic. Whoever makes this has looked whether the grace is long enough: `check_vacuum`.
        vacuum_every_ms = every.vacuum_every_ms if which == EVERYTHING else 0
        writes_every_ms = every.writes_every_ms if which == EVERYTHING else 0  # they may be of several topics
        self.all = [
            # First, so that tiering lets go of what it has trimmed.
            Job("retention", every.retention_every_ms, self._run_retention),
            Job("tier", every.every_ms, self._run_tier),
            Job("compact", every.compact_every_ms, self._run_compact),
            Job("tables", every.tables_every_ms, self._run_tables),
            Job("tables-upkeep", every.tables_upkeep_every_ms, self._run_tables_upkeep, begins_at_once=False),
            Job("writes", writes_every_ms, self._run_writes),
            Job("vacuum", vacuum_every_ms, self._run_vacuum, begins_at_once=False),
            Job(
                "audit",
                every.audit_every_ms,
                self._run_audit,
                begins_at_once=False,
                by_schedule_only=True,
                changes_nothing=True,
            ),
        ]

    async def _run_retention(self, should_stop: ShouldStop) -> Ran:
        await self._check()
        report = await retention_on(self._site, self._settings, self._which, should_stop=should_stop)
        self.retention.add(report)
        failed = [each for each in report.partitions if each.error]
        if failed:
            return Ran("partly", f"{failed[0].topic}/{failed[0].partition}: {failed[0].error}")
        return Ran("stopped" if report.stopped else "good")

    async def _run_tier(self, should_stop: ShouldStop) -> Ran:
        await self._check()
        await self._work.ready()  # before anything is begun that would be left behind without it
        return await self.passes.run(should_stop)

    async def _run_compact(self, should_stop: ShouldStop) -> Ran:
        await self._check()
        await self._work.ready()
        return await self.compact_passes.run(should_stop)

    async def _run_tables(self, should_stop: ShouldStop) -> Ran:
        await self._check()
        return await self.tables.build(should_stop)

    async def _run_tables_upkeep(self, should_stop: ShouldStop) -> Ran:
        await self._check()
        return await self.tables.keep_up(should_stop)

    async def _run_writes(self, should_stop: ShouldStop) -> Ran:
        await self._check()
        report = await finish_writes_on(self._site, self._settings, should_stop)
        if report.failures:
            return Ran("partly", _unfinished(report.failures))
        return Ran("stopped" if should_stop() else "good")

    async def _run_vacuum(self, should_stop: ShouldStop) -> Ran:
        await self._check()
        report = await vacuum(self._site, self._work, self._settings.pipeline.vacuum, should_stop=should_stop)
        self.vacuum.add(report)
        if report.failed:
            return Ran("partly", f"{report.failed} objects could not be deleted: {report.error}")
        return Ran("stopped" if report.stopped else "good")

    async def _run_audit(self, should_stop: ShouldStop) -> Ran:
        """Orphans are not counted: vacuum does that all the time."""
        await self._check()
        work = SlicedWork(self._work, TASKS_AT_ONCE)
        places = await find_places(self._site, self._which)
        report = await audit(self._site, work, places, self._settings.pipeline.audit, should_stop=should_stop)
        if not report.is_complete:
            return Ran("stopped")
        self.audit = AuditFigures.of(report)
        trouble = _trouble(report)
        return Ran("partly" if trouble else "good", trouble)

    async def _find_places(self) -> list[Place]:
        return await find_places(self._site, self._which)

    async def _check(self) -> None:
        self._since = await check_incarnation(self._site.meta, self._site.objects, self._since)


def _unfinished(failures: Mapping[str, CatenaError]) -> str:
    names, error = ", ".join(map(repr, list(failures)[:NAMED_MAX])), next(iter(failures.values()))
    count = "1 application" if len(failures) == 1 else f"{len(failures)} applications"
    return f"writes of {count} can't be finished: {names}; the first: {type(error).__name__}: {error}"


def _trouble(report: AuditReport) -> str:
    """Empty: all was looked at, and is sound."""
    if report.damage:
        found = report.damage[0]
        return f"{found.topic}/{found.partition}: {found.what} ({found.key})"
    if report.unlisted:
        return f"damage in {report.unlisted} places"
    if report.unchecked:
        left = report.unchecked[0]
        return f"{left.topic}/{left.partition} was not checked: {left.error}"
    return ""
