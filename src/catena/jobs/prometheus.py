"""The figures of the service, as Prometheus reads them. Few series, whatever the number of partitions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import Metric

from catena.jobs.figures import AuditFigures, Figures, RetentionCounts, VacuumCounts
from catena.metrics import families
from catena.pipeline.compact_passes import CompactCounts
from catena.pipeline.lag import Lag
from catena.pipeline.passes import TierCounts
from catena.pipeline.service import JobCounts
from catena.pipeline.stages import StageTime
from catena.tables.figures import TableFigures

PREFIX = "catena_pipeline_"

_families = families.Families(PREFIX)
_counter, _counters, _gauge, _gauges = _families.counter, _families.counters, _families.gauge, _families.gauges


def exposition(figures: Figures) -> bytes:
    return families.exposition(_all(figures))


def _all(figures: Figures) -> Iterator[Metric]:
    yield from _of_jobs(figures.jobs)
    yield from _of_tier(figures.tier, figures.stages)
    yield _gauge("failing_partitions", "Partitions that tiering failed on the last time.", figures.failing_partitions)
    yield from _of_lag(figures.lag, figures.pending)
    yield from _of_compact(figures.compact)
    yield from _of_tables(figures.tables)
    yield from _of_retention(figures.retention)
    yield from _of_vacuum(figures.vacuum)
    if figures.audit is not None:
        yield from _of_audit(figures.audit)
    yield from _of_usage(figures)


def _of_jobs(jobs: Mapping[str, JobCounts]) -> Iterator[Metric]:
    """The label is `name`: Prometheus has a label `job` of its own."""
    each = _families.each("job_", "name", jobs)
    yield each.counters("runs", "Runs of jobs that have ended, and how.", "outcome", lambda job: dict(job.runs.items()))
    text = "Time that runs of jobs took."
    yield each.summary("seconds", text, lambda job: (sum(job.runs.values()), job.seconds))
    yield each.gauge("every_seconds", "How often a job is due; 0: never.", lambda job: job.every_ms / 1000)
    yield each.gauge("running", "Whether a job is under way.", lambda job: job.running_since_ms is not None)
    yield each.gauge("last_run_seconds", "Time that the last run took.", lambda job: job.last_seconds)
    text = "When the last run ended; 0: there was none."
    yield each.gauge("last_run_timestamp_seconds", text, lambda job: _seconds(job.last_at_ms))
    text = "When the last run ended in which nothing failed; 0: none."
    yield each.gauge("last_good_run_timestamp_seconds", text, lambda job: _seconds(job.last_good_at_ms))


def _of_tier(counts: TierCounts, stages: Mapping[str, StageTime]) -> Iterator[Metric]:
    yield _gauge("partitions", "Partitions that the last pass of tiering looked at.", counts.partitions)
    yield _gauge("candidates", "Of these, where there was something to do.", counts.candidates)
    yield _counters("partition_outcomes", "What became of partitions.", "outcome", counts.outcomes)
    yield _counters("recoveries", "What became of jobs that were left behind.", "recovery", counts.recoveries)
    yield _counter("segments_written", "Segments written.", counts.segments)
    yield _counter("segments_merged", "Small segments that became larger ones.", counts.merged)
    yield _counter("segments_dropped", "Segments let go, below the start of their log.", counts.dropped)
    yield _counter("runs_tiered", "Runs of the WAL that were tiered.", counts.runs)
    yield _counter("bytes_tiered", "Bytes of runs and segments that were rewritten.", counts.bytes)
    text = "Time that the stages of tiering took, of partitions side by side; tasks: of groups of partitions."
    stage = _families.each("stage_", "stage", stages)
    yield stage.summary("seconds", text, lambda time: (time.count, time.seconds))


def _of_lag(lag: Lag, pending: Mapping[str, int]) -> Iterator[Metric]:
    yield _gauge(
        "lag_partitions", "Partitions of which something is old enough to be tiered, and is not.", lag.partitions
    )
    yield _gauge("lag_bytes", "Bytes that are old enough to be tiered, and are not.", lag.bytes)
    yield _gauge("lag_bytes_max", "The same of the partition that has most of them.", lag.bytes_max)
    yield _gauge("lag_records", "Records that are old enough to be tiered, and are not.", lag.records)
    yield _gauge("lag_records_max", "The same of the partition that has most of them.", lag.records_max)
    yield _gauge("lag_seconds_max", "Since when the oldest of them is old enough.", lag.seconds_max)
    text = "Partitions on which a job of another driver is under way or left behind, by how far it has come."
    yield _gauges("pending_partitions", text, "state", pending)


def _of_compact(counts: CompactCounts) -> Iterator[Metric]:
    yield _gauge("compact_partitions", "Partitions that the last pass of compaction looked at.", counts.partitions)
    yield _counters("compact_partition_outcomes", "What became of these.", "outcome", counts.outcomes)
    yield _counter("compact_records", "Records that were looked at.", counts.records_read)
    yield _counter("compact_removed_records", "Of these, removed.", counts.records_removed)
    yield _counter("compact_bytes", "Bytes of segments that were looked at.", counts.bytes_read)
    yield _counter("compact_freed_bytes", "By how much segments have become smaller.", counts.bytes_freed)
    yield _counter("compact_tombstones", "Marks of deleted keys that were removed.", counts.tombstones)
    yield _counter(
        "compact_opaque_batches",
        "Batches that can't be decoded and stay as they are, each time that they are looked at.",
        counts.opaque_batches,
    )


def _of_tables(tables: Mapping[str, TableFigures]) -> Iterator[Metric]:
    """The only ones that there are of each of something: topics that have a table."""
    each = _families.each("table_", "topic", tables)
    counter, gauge = each.counter, each.gauge
    yield counter("rows", "Records that came into the table.", lambda each: each.rows)
    yield counter("files", "Files that were written for them.", lambda each: each.files)
    yield counter("bytes", "Bytes of these.", lambda each: each.bytes)
    yield counter("commits", "Commits of the table.", lambda each: each.commits)
    yield counter("dead_letters", "Records that are not what the table's schema says.", lambda each: each.dead_letters)
    text = "Of the dead letters, batches that can't be decoded, each of which is one."
    yield counter("opaque_batches", text, lambda each: each.opaque_batches)
    yield counter("failures", "Runs that failed for this table.", lambda each: each.failures)
    yield counter("compacted_files", "Small files that became larger ones.", lambda each: each.compacted_files)
    yield counter("deleted_files", "Files that nothing needed any more.", lambda each: each.deleted_files)
    yield gauge("lag_records", "Records that are not in the table yet.", lambda each: each.records_behind)
    yield gauge("lag_seconds", "Age of the oldest of them.", lambda each: each.behind_ms / 1000)
    text = "How old the oldest record was when it came in, at the last commit."
    yield gauge("freshness_seconds", text, lambda each: each.freshness_ms / 1000)
    text = "The same, at the worst since the service began."
    yield gauge("freshness_seconds_max", text, lambda each: each.freshness_max_ms / 1000)


def _of_retention(counts: RetentionCounts) -> Iterator[Metric]:
    yield _counter("retention_trimmed_partitions", "Partitions of which something was trimmed.", counts.trimmed)
    yield _counter("retention_trimmed_records", "Offsets that were trimmed.", counts.records)
    yield _counter("retention_failed_partitions", "Partitions that could not be looked at or trimmed.", counts.failed)


def _of_vacuum(counts: VacuumCounts) -> Iterator[Metric]:
    yield _counter("vacuum_deleted_objects", "Orphans that were deleted.", counts.deleted)
    yield _counter("vacuum_deleted_bytes", "Bytes of these.", counts.deleted_bytes)
    yield _counter("vacuum_failed_objects", "Orphans that the store would not delete.", counts.failed)
    for name, text, value in (
        ("vacuum_listed_objects", "Objects that the last run has listed.", counts.listed),
        ("vacuum_young_objects", "Of these, too young to be looked at.", counts.kept_young),
        ("vacuum_orphan_objects", "Of the others, those that nothing refers to.", counts.orphans),
        ("vacuum_orphan_bytes", "Bytes of these.", counts.orphan_bytes),
    ):
        if value is not None:
            yield _gauge(name, text, value)


def _of_audit(audit: AuditFigures) -> Iterator[Metric]:
    yield _gauge("audit_timestamp_seconds", "When the last audit came to its end.", audit.at_ms / 1000)
    yield _gauge("audit_partitions", "Partitions that it looked at.", audit.partitions)
    yield _gauge("audit_records", "Records that it read and found sound.", audit.offsets)
    yield _gauge("audit_bytes", "Bytes that it read and found sound.", audit.bytes)
    yield _gauge("audit_damage", "Defects that are damage.", audit.damage)
    yield _gauge("audit_leftovers", "Defects that are harmless, and go by themselves.", audit.leftovers)
    yield _gauge("audit_unchecked_partitions", "Partitions, some of which it could not look at.", audit.unchecked)


def _of_usage(figures: Figures) -> Iterator[Metric]:
    yield _counter(
        "spark_restarts", "Sessions of Spark that were opened because one has ended.", figures.spark.restarts
    )
    yield _counter("spark_restart_failures", "Tries to do so that were in vain.", figures.spark.failures)
    tasks, driver = figures.tasks, figures.driver
    yield _counter("tasks", "Tasks that have ended.", tasks.tasks)
    yield _counter("task_read_bytes", "Bytes that tasks have read from the object store.", tasks.bytes_read)
    yield _counter("task_written_bytes", "Bytes that tasks have written to it.", tasks.bytes_written)
    users = _families.each("object_store_", "by", {"tasks": tasks, "driver": driver})
    yield users.counters("requests", "Requests to the object store.", "kind", lambda usage: usage.requests)
    text = "What these cost on S3 Standard, as an estimate."
    yield _counter("object_store_requests_cost_usd", text, figures.requests_cost_usd)


def _seconds(timestamp_ms: int | None) -> float:
    return 0.0 if timestamp_ms is None else timestamp_ms / 1000
