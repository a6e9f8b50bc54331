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


class CompactSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    group_bytes: Positive = 128 << 20
    """Neighbouring segments up to this size are rewritten as one, by one task, which holds what is left of them."""
    group_records: Positive = 4_000_000
    """Such a task looks at so many records at the most, or at one segment; it needs 60 bytes for each."""
    bucket_records: Positive = 2_000_000
    """A task compares the keys of so many records at the most; it needs 100 bytes for each."""


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
    """No job and no query takes longer, from its plan to its end. The grace is not shorter than that; and what tiering
    or a compaction has replaced stays for so long, however old it is."""
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
    tables_every_ms: Natural = 5_000
    """Tables are looked at so often; each is committed as its topic's table.commit.interval.ms asks."""
    tables_upkeep_every_ms: Natural = 600_000
    audit_every_ms: Natural = 24 * 3_600_000
    compact_every_ms: Natural = 300_000
    writes_every_ms: Natural = 300_000


class TablesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    catalog: str = ""
    """Of Iceberg tables, as SQLAlchemy has addresses; empty: `tables.db` beside the SQLite file of the meta store, or
    the meta store's PostgreSQL."""
    small_files: Annotated[int, msgspec.Meta(ge=2)] = 8
    """So many small files of a day are made into one."""
    keep_states_ms: Natural = 24 * 3_600_000
    """How long a table can be read as it was; files that it does not need any more are kept for so long."""
    grace_ms: Positive = 24 * 3_600_000
    """Files that nothing refers to are deleted when they are so old. Younger ones may be those of a driver at work."""


class WritesSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    finish_after_ms: Natural = 600_000
    """Writes of applications that were begun so long ago are finished by whoever runs the pipeline."""
    keep_ms: Annotated[int, msgspec.Meta(ge=24 * 3_600_000)] = 90 * 24 * 3_600_000
    """So long after its last write it is known which versions an application has written (txnAppId, or a stream)."""


class PipelineSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    tier: TierSettings = TierSettings()
    compact: CompactSettings = CompactSettings()
    service: ServiceSettings = ServiceSettings()
    audit: AuditSettings = AuditSettings()
    vacuum: VacuumSettings = VacuumSettings()
    tables: TablesSettings = TablesSettings()
    writes: WritesSettings = WritesSettings()
