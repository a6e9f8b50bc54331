"""What became of a table, for people and for programs."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from catena.pipeline.work import Usage

Outcome: TypeAlias = Literal["idle", "waiting", "planned", "committed", "left", "failed"]
"""It has all; it lacks something that is younger than asked for; it would be committed; it was; another is at it; it
could not be done."""


class TableReport(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    table: str = ""
    """Where it is."""
    format: str
    outcome: Outcome
    commits: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    """Of the files."""
    dead_letters: int = 0
    opaque_batches: int = 0
    """Of these, batches that can't be decoded: each is one dead letter, however many records it may have had."""
    records_behind: int = 0
    """That the table lacked at the last look; the next too."""
    behind_ms: int = 0
    """Age of the oldest of them."""
    freshness_ms: int = 0
    """How old the oldest record was when it came into the table, at the most."""
    losses: tuple[str, ...] = ()
    error: str = ""


class UpkeepReport(msgspec.Struct, frozen=True, kw_only=True):
    """Of one table; dead letters are a table of their own."""

    table: str
    compacted: int = 0
    """Files that became fewer."""
    compacted_into: int = 0
    dropped: int = 0
    """Files of days that the table need not keep."""
    expired: int = 0
    orphans: int = 0
    error: str = ""


class TablesReport(msgspec.Struct, frozen=True, kw_only=True):
    job: str = "tables"
    started_at_ms: int
    duration_ms: int
    dry_run: bool
    tables: tuple[TableReport, ...]
    upkeep: tuple[UpkeepReport, ...] = ()
    executors: dict[str, Usage] = {}
    driver: Usage = Usage()

    @property
    def failed(self) -> int:
        return sum(each.outcome == "failed" for each in self.tables) + sum(bool(each.error) for each in self.upkeep)
