"""What the service tells of itself: counts of its jobs, and all together. Few, whatever the number of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from catena.jobs.trimming import RetentionReport
from catena.pipeline.audit import AuditReport
from catena.pipeline.compact_passes import CompactCounts
from catena.pipeline.defects import Defect
from catena.pipeline.lag import Lag
from catena.pipeline.passes import TierCounts
from catena.pipeline.renewed_work import Renewals
from catena.pipeline.service import JobCounts
from catena.pipeline.stages import StageTime
from catena.pipeline.vacuum import VacuumReport
from catena.pipeline.work import Usage
from catena.tables.figures import TableFigures

DEFECTS_SHOWN = 20


class RetentionCounts(msgspec.Struct):
    """Since the service began."""

    trimmed: int = 0
    """Partitions; one counts each time."""
    records: int = 0
    """Offsets that are gone with it."""
    failed: int = 0

    def add(self, report: RetentionReport) -> None:
        done = [each for each in report.partitions if not each.error]
        self.trimmed += len(done)
        self.records += sum(each.new_start - each.start for each in done)
        self.failed += report.failed


class VacuumCounts(msgspec.Struct):
    listed: int | None = None
    """By the last run, as the next three; None: there was none."""
    kept_young: int | None = None
    orphans: int | None = None
    orphan_bytes: int | None = None
    deleted: int = 0
    """Since the service began, as the next two."""
    deleted_bytes: int = 0
    failed: int = 0

    def add(self, report: VacuumReport) -> None:
        self.listed = report.listed
        self.kept_young = report.kept_young
        self.orphans = sum(amount.objects for amount in report.orphans.values())
        self.orphan_bytes = sum(amount.bytes for amount in report.orphans.values())
        self.deleted += report.deleted.objects
        self.deleted_bytes += report.deleted.bytes
        self.failed += report.failed


class AuditFigures(msgspec.Struct, frozen=True):
    """Of the last run that came to its end."""

    at_ms: int
    partitions: int
    offsets: int
    """That were read and found sound, as the bytes."""
    bytes: int
    damage: int
    leftovers: int
    unchecked: int
    """Partitions, some of which could not be looked at."""
    first_damage: tuple[Defect, ...]

    @classmethod
    def of(cls, report: AuditReport) -> AuditFigures:
        return cls(
            at_ms=report.started_at_ms + report.duration_ms,
            partitions=report.partitions,
            offsets=report.offsets,
            bytes=report.bytes,
            damage=len(report.damage) + report.unlisted,
            leftovers=len(report.defects) - len(report.damage),
            unchecked=len(report.unchecked),
            first_damage=report.damage[:DEFECTS_SHOWN],
        )


class Figures(msgspec.Struct, frozen=True):
    jobs: Mapping[str, JobCounts]
    tier: TierCounts
    lag: Lag
    pending: Mapping[str, int]
    """Partitions on which a job of another driver is under way or left behind, by how far it has come."""
    stages: Mapping[str, StageTime]
    compact: CompactCounts
    tables: Mapping[str, TableFigures]
    """By topic."""
    retention: RetentionCounts
    vacuum: VacuumCounts
    audit: AuditFigures | None
    spark: Renewals
    failing_partitions: int
    failing: list[dict[str, Any]]
    """The first of them."""
    tasks: Usage
    """What all tasks have asked of the object store."""
    driver: Usage
    requests_cost_usd: float
    """Of both: an estimate."""
    uptime_s: float = 0.0
