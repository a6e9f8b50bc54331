"""What Prometheus is told, as its own parser reads it."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from prometheus_client.parser import text_string_to_metric_families

from catena.jobs.figures import AuditFigures, Figures, RetentionCounts, VacuumCounts
from catena.jobs.prometheus import exposition
from catena.pipeline.compact_passes import CompactCounts
from catena.pipeline.lag import Lag
from catena.pipeline.passes import TierCounts
from catena.pipeline.renewed_work import Renewals
from catena.pipeline.service import JobCounts, Ran
from catena.pipeline.stages import StageTime
from catena.pipeline.work import Usage
from catena.tables.figures import TableFigures


def figures(**changes: Any) -> Figures:
    fresh = Figures(
        jobs={"tier": JobCounts(60_000), "audit": JobCounts(0)},
        tier=TierCounts(),
        lag=Lag(),
        pending={},
        stages={},
        compact=CompactCounts(),
        tables={},
        retention=RetentionCounts(),
        vacuum=VacuumCounts(),
        audit=None,
        spark=Renewals(),
        failing_partitions=0,
        failing=[],
        tasks=Usage(),
        driver=Usage(),
        requests_cost_usd=0.0,
    )
    return msgspec.structs.replace(fresh, **changes)


def told(figures: Figures) -> dict[tuple[str, ...], float]:
    families = list(text_string_to_metric_families(exposition(figures).decode()))
    assert all(family.documentation for family in families)
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"catena_pipeline_[a-z_]+[a-z]", name) for name in names)
    samples = [sample for family in families for sample in family.samples]
    of_tables = [sample for sample in samples if sample.name.startswith("catena_pipeline_table_")]
    assert all(set(sample.labels) == {"topic"} for sample in of_tables), "there is one for each, and no more"
    labels = {label for sample in samples if sample not in of_tables for label in sample.labels}
    assert labels <= {"name", "outcome", "recovery", "stage", "state", "by", "kind"}, "each has few values"
    return {(sample.name.removeprefix("catena_pipeline_"), *sample.labels.values()): sample.value for sample in samples}


def test_jobs() -> None:
    tier = JobCounts(60_000)
    tier.add(Ran("good"), 2.0, 1500)
    tier.add(Ran("failed", "away"), 3.0, 9000)
    tier.running_since_ms = 10_000
    found = told(figures(jobs={"tier": tier, "audit": JobCounts(0)}))
    assert found["job_runs_total", "tier", "good"] == 1
    assert found["job_runs_total", "tier", "failed"] == 1
    assert found["job_runs_total", "audit", "partly"] == 0
    assert (found["job_seconds_count", "tier"], found["job_seconds_sum", "tier"]) == (2, 5)
    assert found["job_last_run_timestamp_seconds", "tier"] == 9
    assert found["job_last_good_run_timestamp_seconds", "tier"] == 1.5
    assert found["job_last_good_run_timestamp_seconds", "audit"] == 0
    assert found["job_last_run_seconds", "tier"] == 3
    assert (found["job_every_seconds", "tier"], found["job_every_seconds", "audit"]) == (60, 0)
    assert (found["job_running", "tier"], found["job_running", "audit"]) == (1, 0)


def test_tiering() -> None:
    counts = TierCounts(
        partitions=9, candidates=4, outcomes={"tiered": 2, "failed": 1}, recoveries={"abandoned": 1}, bytes=10**12
    )
    found = told(
        figures(
            tier=counts,
            failing_partitions=5,
            stages={"plan": StageTime(3, 0.5)},
            lag=Lag(2, 100, 60, 20, 15, 8.5),
            pending={"DELETING_OLD": 3},
        )
    )
    assert (found["partitions",], found["candidates",], found["failing_partitions",]) == (9, 4, 5)
    assert found["partition_outcomes_total", "tiered"] == 2
    assert found["recoveries_total", "abandoned"] == 1
    assert found["bytes_tiered_total",] == 1e12
    assert (found["stage_seconds_count", "plan"], found["stage_seconds_sum", "plan"]) == (3, 0.5)
    assert (found["lag_partitions",], found["lag_bytes",], found["lag_bytes_max",]) == (2, 100, 60)
    assert (found["lag_records",], found["lag_records_max",], found["lag_seconds_max",]) == (20, 15, 8.5)
    assert found["pending_partitions", "DELETING_OLD"] == 3


def test_the_other_jobs() -> None:
    found = told(
        figures(
            retention=RetentionCounts(1, 2, 3),
            vacuum=VacuumCounts(10, 9, 8, 7, 6, 5, 4),
            audit=AuditFigures(2500, 1, 2, 3, 4, 5, 6, ()),
            spark=Renewals(restarts=2, failures=1),
        )
    )
    assert [found[f"retention_{name}_total",] for name in ("trimmed_partitions", "trimmed_records")] == [1, 2]
    assert found["retention_failed_partitions_total",] == 3
    names = ("listed_objects", "young_objects", "orphan_objects", "orphan_bytes")
    assert [found[f"vacuum_{name}",] for name in names] == [10, 9, 8, 7]
    totals = ("deleted_objects", "deleted_bytes", "failed_objects")
    assert [found[f"vacuum_{name}_total",] for name in totals] == [6, 5, 4]
    assert found["audit_timestamp_seconds",] == 2.5
    audited = ("partitions", "records", "bytes", "damage", "leftovers", "unchecked_partitions")
    assert [found[f"audit_{name}",] for name in audited] == [1, 2, 3, 4, 5, 6]
    assert (found["spark_restarts_total",], found["spark_restart_failures_total",]) == (2, 1)


def test_what_nobody_has_looked_at_is_not_said_to_be_sound() -> None:
    found = told(figures())
    assert not [name for name, *_ in found if name.startswith("audit_")]
    assert ("vacuum_orphan_objects",) not in found
    assert found["vacuum_deleted_objects_total",] == 0


def test_requests_and_their_price() -> None:
    tasks, driver = Usage(4, 100, 200, {"get": 7}), Usage(0, 0, 0, {"put": 1000})
    found = told(figures(tasks=tasks, driver=driver, requests_cost_usd=0.005003))
    assert (found["tasks_total",], found["task_read_bytes_total",], found["task_written_bytes_total",]) == (4, 100, 200)
    assert found["object_store_requests_total", "tasks", "get"] == 7
    assert found["object_store_requests_total", "driver", "put"] == 1000
    assert found["object_store_requests_cost_usd_total",] == 0.005003


def test_compaction() -> None:
    counts = CompactCounts(2, {"compacted": 1, "failed": 3}, 100, 90, 5000, 4000, 7, 8)
    found = told(figures(compact=counts))
    assert found["compact_partitions",] == 2
    assert found["compact_partition_outcomes_total", "failed"] == 3
    assert (found["compact_records_total",], found["compact_removed_records_total",]) == (100, 90)
    assert (found["compact_bytes_total",], found["compact_freed_bytes_total",]) == (5000, 4000)
    assert found["compact_tombstones_total",] == 7
    assert found["compact_opaque_batches_total",] == 8


def test_tables() -> None:
    own = TableFigures(rows=5, dead_letters=3, opaque_batches=2, records_behind=3, behind_ms=1500, freshness_ms=900)
    found = told(figures(tables={"orders": own, "plain": TableFigures()}))
    assert found["table_rows_total", "orders"] == 5
    assert found["table_dead_letters_total", "orders"] == 3
    assert found["table_opaque_batches_total", "orders"] == 2
    assert found["table_lag_records", "orders"] == 3
    assert found["table_lag_seconds", "orders"] == 1.5
    assert found["table_freshness_seconds", "orders"] == 0.9
    assert found["table_rows_total", "plain"] == 0
