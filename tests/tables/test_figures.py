"""What the service tells of a table."""

from __future__ import annotations

from catena.tables.figures import TableFigures
from catena.tables.report import TableReport, UpkeepReport


def test_sums_and_the_last() -> None:
    figures = TableFigures()
    done = TableReport(
        topic="a", table="at", format="delta", outcome="committed", commits=2, rows=5, bytes=7, files=1, freshness_ms=90
    )
    figures.add(done)
    waiting = TableReport(topic="a", format="delta", outcome="waiting", records_behind=3, behind_ms=40)
    figures.add(waiting)
    assert (figures.table, figures.rows, figures.commits, figures.bytes) == ("at", 5, 2, 7)
    assert (figures.records_behind, figures.behind_ms, figures.freshness_ms) == (3, 40, 90)
    figures.add(TableReport(topic="a", format="delta", outcome="failed", error="no", losses=("gone",)))
    figures.add_upkeep([UpkeepReport(table="at", compacted=4, orphans=2), UpkeepReport(table="at", error="worse")])
    assert (figures.failures, figures.last_error, figures.last_losses) == (2, "worse", ("gone",))
    assert (figures.compacted_files, figures.deleted_files, figures.records_behind) == (4, 2, 0)
