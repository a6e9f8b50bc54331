"""Reports become counts."""

from __future__ import annotations

from typing import Any

import msgspec

from catena.jobs.figures import DEFECTS_SHOWN, AuditFigures, RetentionCounts, VacuumCounts
from catena.jobs.trimming import RetentionReport
from catena.pipeline.audit import AuditReport, Unchecked
from catena.pipeline.defects import Defect, defect
from catena.pipeline.retention import Trimmed
from catena.pipeline.vacuum import Amount, VacuumReport
from catena.types import TopicId, TopicPartition

TP = TopicPartition("t", TopicId("1" * 32), 0)


def vacuumed(**changes: Any) -> VacuumReport:
    report = VacuumReport(
        started_at_ms=0,
        duration_ms=1,
        dry_run=False,
        stopped=False,
        cutoff_ms=0,
        listed=100,
        kept_young=30,
        unknown=0,
        referenced=50,
        orphans={"wal": Amount(15, 1500), "segment": Amount(5, 50)},
        first_keys=(),
        deleted=Amount(18, 1530),
        failed=2,
        error="no",
        forgotten_topics=(),
        executors={},
    )
    return msgspec.structs.replace(report, **changes)


def test_retention_adds_up() -> None:
    counts = RetentionCounts()
    report = RetentionReport("retention", 0, 1, False, (Trimmed("t", 0, 5, 9), Trimmed("t", 1, 3, 3, "no")))
    counts.add(report)
    counts.add(report)
    assert counts == RetentionCounts(trimmed=2, records=8, failed=2)


def test_vacuum_tells_what_was_there_and_what_is_gone_by_now() -> None:
    counts = VacuumCounts()
    counts.add(vacuumed())
    counts.add(vacuumed(listed=70, orphans={}, deleted=Amount(), failed=0))
    assert counts == VacuumCounts(70, 30, 0, 0, 18, 1530, 2)


def test_damage_is_counted_and_some_of_it_named() -> None:
    damage: list[Defect] = [defect("gap", TP, "k", number, number, "a gap") for number in range(DEFECTS_SHOWN + 5)]
    left = defect("stale_entry", TP, "k", 0, 1, "left")
    report = AuditReport(1000, 500, 3, 70, 7, 7000, (left, *damage), 4, (Unchecked("t", 1, "away"),), True, None, {})
    figures = AuditFigures.of(report)
    assert figures.first_damage == tuple(damage[:DEFECTS_SHOWN])
    assert msgspec.structs.replace(figures, first_damage=()) == AuditFigures(
        1500, 3, 70, 7000, DEFECTS_SHOWN + 9, 1, 1, ()
    )
