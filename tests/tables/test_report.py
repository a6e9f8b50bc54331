"""Reports and figures add up."""

from __future__ import annotations

from catena.tables.report import TableReport, TablesReport, UpkeepReport


def test_what_failed() -> None:
    good = TableReport(topic="a", format="delta", outcome="committed")
    bad = TableReport(topic="b", format="delta", outcome="failed", error="no")
    report = TablesReport(
        started_at_ms=0,
        duration_ms=1,
        dry_run=False,
        tables=(good, bad),
        upkeep=(UpkeepReport(table="x", error="no"), UpkeepReport(table="y")),
    )
    assert report.failed == 2
