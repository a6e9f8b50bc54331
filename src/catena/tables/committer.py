"""What a table of any format does for us: the contract, and the rule by which a change may follow another.

Contract (the suite in `catena.testing.contracts.tables` runs it against every format):

- A table is made of immutable files, a schema, and **guards**: for each partition the offset of the next record that is
  not in the table (its progress), which dead letters belong to it (`letters`, see `dead_letters`), and a number that
  upkeep raises before it deletes files (`fence`).
- `commit` applies a change of files and guards atomically, or not at all. It is made from a state that was loaded, and
  MUST be refused with StaleView if the table has moved on so that `may_follow` denies it. Readers see all of it, or
  none.
- A change of unknown outcome MUST be settled by a look at the table, or raised as OutcomeUnknown.
- Other changes in between, also by other programs (compaction, added columns), do not disturb.
- Files that are removed stay readable for who has opened the table before, until `expire`.

**Fence.** Files that no state refers to are deleted by who has listed them first, raised the fence then, and looked at
the references last. A driver that planned before the fence was raised can't commit any more, so what it had written is
either referred to or never will be, however long it slept.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from catena.types import Offset, TopicId

if TYPE_CHECKING:
    import pyarrow as pa


class Owner(NamedTuple):
    """Whose records a table holds."""

    topic: str
    topic_id: TopicId
    partitions: int


class Span(msgspec.Struct, frozen=True):
    """The least and the greatest in a file."""

    partition: tuple[int, int]
    offset: tuple[Offset, Offset]
    timestamp_us: tuple[int, int]

    def __or__(self, other: Span) -> Span:
        return Span(*(_widened(mine, its) for mine, its in zip(_pairs(self), _pairs(other), strict=True)))


class DataFile(msgspec.Struct, frozen=True):
    path: str
    """Below the table's own folder."""
    day: str
    """As ISO 8601 has it."""
    rows: int
    bytes: int
    span: Span | None = None
    """None: nobody has told."""


class Guards(NamedTuple):
    progress: Mapping[int, Offset]
    letters: int = 0
    fence: int = 0


class TableState(NamedTuple):
    """A table as it was at a moment."""

    version: int
    topic_id: TopicId
    schema: pa.Schema
    """Of all columns, `day` last."""
    guards: Guards


class Change(NamedTuple):
    added: Sequence[DataFile] = ()
    removed: Sequence[DataFile] = ()
    progress: Mapping[int, Offset] = {}
    """Of the partitions that move."""
    letters: int | None = None
    fence: int | None = None

    @property
    def is_data(self) -> bool:
        """It brings records; else it only rearranges them, or drops old ones."""
        return bool(self.progress) or self.letters is not None


class Committer(Protocol):
    """One table. Calls come one after the other; any number of processes have the same table open."""

    name: str
    uri: str
    """Where other programs find it."""
    has_day: bool
    """Whether files have a column for their day as well, or the table alone knows it."""

    async def load(self) -> TableState | None:
        """As it is now; None if there is none."""

    async def create(self, schema: pa.Schema) -> TableState:
        """If there is none yet; what is there then, whoever made it."""

    async def evolve(self, state: TableState, schema: pa.Schema) -> TableState:
        """The table has these columns then, and says what they hold, or StaleView. They have grown from those of the
        state (`naming`)."""

    async def commit(self, state: TableState, change: Change) -> TableState:
        """Raises StaleView if it can't be applied any more: load, and plan anew. OutcomeUnknown, if nobody can tell."""

    def file_schema(self, state: TableState) -> pa.Schema:
        """What a file that is added to this state looks like inside."""

    async def files(self) -> list[DataFile]:
        """Those of which the table is made now."""

    async def expire(self, older_than_ms: int) -> int:
        """Forget states from before, but for the last one; returns how many states or files are gone."""

    async def in_use(self, paths: Collection[str]) -> set[str]:
        """Of these files, those that a state refers to that is not expired."""

    async def close(self) -> None: ...


class OpenTable(NamedTuple):
    """A topic's table and the one of its dead letters, and where their files are in the object store."""

    table: Committer
    prefix: str
    letters: Committer
    letters_prefix: str


def may_follow(made_from: Guards, now: Guards, change: Change) -> bool:
    """Whether a change that was made from a state may be applied to the one that there is now."""
    if change.fence is not None:
        return now.fence < change.fence
    return now == made_from if change.is_data else now.fence == made_from.fence


def guards_after(guards: Guards, change: Change) -> Guards:
    return Guards(
        {**guards.progress, **change.progress},
        guards.letters if change.letters is None else change.letters,
        guards.fence if change.fence is None else change.fence,
    )


def _pairs(span: Span) -> tuple[tuple[int, int], ...]:
    return span.partition, span.offset, span.timestamp_us


def _widened(mine: tuple[int, int], its: tuple[int, int]) -> tuple[int, int]:
    return min(mine[0], its[0]), max(mine[1], its[1])
