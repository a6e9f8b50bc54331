"""What the service tells of tables, each by itself: how much it has brought in, and how far behind it is."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from catena.tables.report import TableReport, UpkeepReport


class TableFigures(msgspec.Struct):
    """Of one topic's table. Counts are since the service began."""

    table: str = ""
    rows: int = 0
    files: int = 0
    bytes: int = 0
    commits: int = 0
    dead_letters: int = 0
    opaque_batches: int = 0
    """Of these, batches that can't be decoded."""
    failures: int = 0
    records_behind: int = 0
    """That it lacked at the last look; the next too."""
    behind_ms: int = 0
    """Age of the oldest of them."""
    freshness_ms: int = 0
    """How old the oldest record was when it came in, at the last commit; the next: ever."""
    freshness_max_ms: int = 0
    compacted_files: int = 0
    deleted_files: int = 0
    last_error: str = ""
    last_losses: tuple[str, ...] = ()

    def add(self, report: TableReport) -> None:
        self.table = report.table or self.table
        self.rows += report.rows
        self.files += report.files
        self.bytes += report.bytes
        self.commits += report.commits
        self.dead_letters += report.dead_letters
        self.opaque_batches += report.opaque_batches
        self.records_behind = report.records_behind
        self.behind_ms = report.behind_ms
        if report.commits:
            self.freshness_ms = report.freshness_ms
            self.freshness_max_ms = max(self.freshness_max_ms, report.freshness_ms)
        if report.error:
            self.failures += 1
            self.last_error = report.error
        if report.losses:
            self.last_losses = report.losses

    def add_upkeep(self, reports: Sequence[UpkeepReport]) -> None:
        self.compacted_files += sum(each.compacted for each in reports)
        self.deleted_files += sum(each.orphans for each in reports)
        for each in reports:
            if each.error:
                self.failures += 1
                self.last_error = each.error
