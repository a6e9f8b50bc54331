"""Settings of the pipeline's jobs."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec

Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class TierSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    segment_bytes: Positive = 128 << 20
    """What segments are cut to, and merged up to."""
    min_age_ms: Natural = 60_000
    """What is younger stays where it is: it is read from caches, and may still grow to a larger segment."""
    min_bytes: Natural = 16 << 20
    """Less than this is not tiered until it is `max_wait_ms` old."""
    max_wait_ms: Natural = 3_600_000
    max_runs: Positive = 100_000
    """Of one partition in one pass."""
    merge_segments: Annotated[int, msgspec.Meta(ge=2)] = 8
    """So many small neighbours are merged; fewer when they fill a segment."""
    task_bytes: Positive = 256 << 20
    """What a task holds in memory, about."""


class AuditSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    task_bytes: Positive = 256 << 20
    """What a task reads, about; it holds a small part of it in memory."""
    max_runs: Positive = 200_000
    """What the driver has in memory at the same time, of all partitions."""


class VacuumSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    grace_ms: Positive = 24 * 3_600_000
    """What is younger is not looked at. At least twice as long as any writer tries to commit a blob
    (`diskless.writer.commit_deadline_ms` of all nodes), so that clocks need not agree; and `longest_job_ms`."""
    longest_job_ms: Positive = 3_600_000
    """No job takes longer; the grace is not shorter than that."""
    objects_per_s: Positive = 3_000
    """So many are deleted in a second, at the most."""
    wal_digits: Annotated[int, msgspec.Meta(ge=1, le=3)] = 1
    """WAL blobs are listed by so many first digits of their names: 16, 256 or 4,096 tasks. One task holds a million
    names with ease."""
    shown_keys: Natural = 20
    """How many orphans the report names."""


class ServiceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    every_ms: Positive = 60_000
    """From one pass of tiering to the next, a quarter more or less, as with the other jobs."""
    retention_every_ms: Natural = 300_000
    """0: never, as with those below."""
    vacuum_every_ms: Natural = 3_600_000
    audit_every_ms: Natural = 24 * 3_600_000


class PipelineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tier: TierSettings = TierSettings()
    service: ServiceSettings = ServiceSettings()
    audit: AuditSettings = AuditSettings()
    vacuum: VacuumSettings = VacuumSettings()
