"""The loglet: one store's way to hold a range of one partition's log. A link of the chain owns one.

                 base                          tail
                  |                             |
     offsets:     5   6   7   8   9  10  11  12 . . .
                  [ entry  ][ entry    ][ entry ]
                  ^ readable, the same for all ^ ^ the next append

Contract (the suite in `catena.testing.contracts.loglet` runs it against every kind):

- Offsets are contiguous from `base`; an append of n records takes n of them, in one piece.
- Appends that were called on one loglet object, one after the other, take their offsets in that order.
- An append that returned is durable, and every reader that starts later sees it, with these bytes, at this offset.
- An append that raised RetryLater, Sealed or Rejected is not in the log. One that raised OutcomeUnknown may be.
- `seal` returns (T, producers). After the first seal returned no append is ever acked at or above T; all seals return
  the same T. `seal`, `trim` and `tail` are idempotent, and any process may call them at any time.
- `tail` is linearizable: it is above every append acked before it was called. It works on a sealed loglet.
- A loglet may hold entries at or above its link's end in the chain (a zombie's); only the chain bounds a link, so
  whoever reads passes no offset outside of the link.
- Entries that carry a producer stamp are deduplicated by Kafka's rules, also against what earlier links saw.
- `append_stored` is an append in all of this. What it appends is in the object store before, and is one piece: all its
  batches get their offsets together or none does, and to idempotence they are one batch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple, Protocol

import msgspec

from catena.formats.record_batch import BatchHeader
from catena.formats.wal_blob import KAFKA_BATCH_V2
from catena.loglets.producers import ProducerState
from catena.types import Buffer, Epoch, Offset, TopicPartition


class Receipt:
    """Filled in by a loglet that keeps batches in objects, before the append returns; others leave it as it is."""

    __slots__ = ("index_key", "object_key")

    def __init__(self) -> None:
        self.index_key: str | None = None
        """Of the record in the meta store that says where the batch is."""
        self.object_key: str | None = None


class Entry(NamedTuple):
    """One RecordBatch on its way into a log. The header was parsed and checked by whoever made the entry."""

    header: BatchHeader
    data: Buffer
    not_before: int | None = None
    """A sequence number of its producer that failed and is to come first: if the log does not know the producer, it
    MUST refuse a batch with a higher one, with OutOfOrderSequence."""
    receipt: Receipt | None = None
    """For those who want to know where the batch went."""

    @property
    def size(self) -> int:
        return len(self.data)


class Stored(NamedTuple):
    """Neighbouring batches of one idempotent producer that lie in the object store already, on their way into a log."""

    header: BatchHeader
    """Of all of them as if they were one batch, see `spanning_header`."""
    key: str
    at: int
    """The byte of the object at which the first batch begins."""
    created_at_ms: int
    not_after_ms: int
    """A log MUST refuse it later than this by its clock, with StaleView. Whoever hands it over knows that it was in no
    log a while before; until then no log has forgotten its producer, if it was taken meanwhile."""
    fetch: Callable[[], Awaitable[Buffer]]
    """Reads the bytes, for a log that keeps them elsewhere."""
    not_before: int | None = None
    """As an entry has it."""

    @property
    def size(self) -> int:
        return self.header.length


def spanning_header(
    count: int, length: int, max_timestamp: int, producer_id: int, producer_epoch: int, base_sequence: int = 0
) -> BatchHeader:
    """The header of neighbouring batches as if they were one: what logs look at. Nothing is stored of it."""
    return BatchHeader(
        0, length, -1, 0, 0, count - 1, max_timestamp, max_timestamp, producer_id, producer_epoch, base_sequence, count
    )


class Batch(msgspec.Struct, frozen=True, gc=False):
    """One RecordBatch on its way out. The base offset that counts is `offset`; the one inside `data` is not patched."""

    offset: Offset
    count: int
    data: memoryview

    @property
    def end(self) -> Offset:
        return self.offset + self.count


class Tail(NamedTuple):
    """Where a loglet ended at some moment of the call; `sealed`: and it takes no appends any more."""

    offset: Offset
    sealed: bool


class Run(NamedTuple):
    """Neighbouring batches that a loglet keeps track of as one piece."""

    end: Offset
    """After its last record."""
    size: int
    """Bytes of its batches; 0 where old data does not tell."""
    newest_ms: int
    """The greatest time of its batches; where they have none, when they were appended; -1: not known."""


class Extent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where neighbouring batches are stored, for whoever reads the object itself.

    It never becomes wrong, but it may get out of use: the object does not change, and once its offsets are tiered,
    merged or trimmed, vacuum may delete it. Whoever finds it gone asks again.
    """

    offset: Offset
    """Of the first record of its first batch."""
    end: Offset
    key: str
    at: int = 0
    length: int | None = None
    """None: the whole object, in old data."""
    encoding: str = KAFKA_BATCH_V2
    created_at_ms: int = 0
    """When it was appended, where old data has no other time."""


class SealResult(NamedTuple):
    tail: Offset
    producers: Mapping[int, ProducerState]


class LinkSpec(NamedTuple):
    """What a loglet is opened with; all of it comes from the chain."""

    partition: TopicPartition
    epoch: Epoch
    base: Offset
    params: Mapping[str, Any]
    handoff: Callable[[], Awaitable[Mapping[int, ProducerState]]]
    """Producer state at `base`, read once it is needed."""
    boundary: Callable[[], Awaitable[Offset]]
    """Linearizable read of the offset below which the chain looks elsewhere."""


class Loglet(Protocol):
    async def append(self, entry: Entry) -> Offset:
        """Append one batch; return the offset of its first record."""

    async def append_stored(self, stored: Stored) -> Offset:
        """Append batches that are in the object store; return the offset of their first record."""

    async def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        """Batches from the one that holds `offset` on, at least one if there is one, then up to `max_bytes`.

        Empty at the tail and beyond it. Raises StaleView if the loglet no longer holds `offset`, and Sealed, which is
        one, at the tail of a sealed loglet: the chain knows what follows.
        """

    async def tail(self) -> Tail: ...

    async def wait_for_tail(self, beyond: Offset) -> Offset | None:
        """Return once the tail may be greater than `beyond`, or the loglet may be sealed.

        An offset above `beyond` is returned if it is known without another look that all below it is in the log, and
        was appended through a link of this epoch; else None.
        """

    async def find_time(self, timestamp_ms: int, start: Offset) -> Offset | None:
        """Offset of the first batch at or after `start` that has a record at or after this time."""

    async def find_max_time(self, start: Offset, end: Offset | None) -> Offset | None:
        """Offset of the first batch with the greatest time, among those that have a record in [start, end).

        As the headers of batches tell it; a batch without a time is not found. `end` None: all from `start` on.
        """

    async def runs(self, start: Offset, limit: int) -> list[Run]:
        """Up to `limit` runs, from the one that holds `start` on; fewer only if there are no more. Cheap: no data."""

    async def extents(self, start: Offset, end: Offset, limit: int) -> list[Extent]:
        """Up to `limit` extents, contiguous, from the one that holds `start` on; none that begins at `end` or later.

        Empty at the tail and beyond it. Cheap: no data is read. Raises StaleView if the loglet no longer holds `start`,
        and StoreRefused if what it holds is in no object.
        """

    async def seal(self) -> SealResult: ...

    async def trim(self, offset: Offset) -> None:
        """Give up what is below `offset`; the chain already says that nobody reads there."""

    async def close(self) -> None: ...
