"""The newest entries that this node committed, kept as the very buffers they arrived in, for readers at the tail.

Those that other processes of the host committed are kept beside them, where these tell of them (`tail_sharing`).
Committed entries never change, so the cache is never wrong; it may lack entries (evicted, or committed by other nodes),
and then the reader goes to the index. Bounded in bytes over all partitions, what Python needs around the payload
included; the oldest entries go first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from catena.loglets.base import Batch, Entry
from catena.types import Offset, TopicPartition

OVERHEAD_BYTES = 512
"""What a cached batch takes beside its payload: the objects around it, and its places in the lists. Measured."""


class _Tail:
    """Contiguous batches of one partition. `gone` of them, at the front, are evicted and await removal."""

    __slots__ = ("batches", "gone", "offsets")

    def __init__(self) -> None:
        self.batches: list[Batch | None] = []
        self.offsets: list[Offset] = []
        self.gone = 0


class TailCache:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._tails: dict[TopicPartition, _Tail] = {}
        self._order: deque[tuple[TopicPartition, _Tail]] = deque()
        self.hits = 0
        self.misses = 0
        self.evicted = 0
        """Batches."""

    def add(self, tp: TopicPartition, offset: Offset, entry: Entry) -> None:
        tail = self._tails.get(tp)
        if tail is None or not tail.batches or _end(tail) != offset:
            # Others have committed in between: what is cached before the gap is of little use.
            tail = self._tails[tp] = _Tail()
        tail.batches.append(Batch(offset, entry.header.count, memoryview(entry.data)))
        tail.offsets.append(offset)
        self._order.append((tp, tail))
        self._bytes += len(entry.data) + OVERHEAD_BYTES
        while self._bytes > self._max_bytes:
            self._evict()

    def read(self, tp: TopicPartition, offset: Offset, max_bytes: int) -> list[Batch]:
        """Batches from the one that holds `offset`; at least one, then up to `max_bytes`; empty if it is not cached."""
        tail = self._tails.get(tp)
        if tail is not None and tail.gone < len(tail.batches) and tail.offsets[tail.gone] <= offset < _end(tail):
            self.hits += 1
            at = bisect_right(tail.offsets, offset) - 1
            found: list[Batch] = []
            for i in range(at, len(tail.batches)):
                batch = tail.batches[i]
                assert batch is not None
                max_bytes -= len(batch.data)
                if found and max_bytes < 0:
                    break
                found.append(batch)
            return found
        self.misses += 1
        return []

    def start(self, tp: TopicPartition) -> Offset | None:
        """The first offset that is cached; all that follow are."""
        tail = self._tails.get(tp)
        return tail.offsets[tail.gone] if tail is not None and tail.gone < len(tail.batches) else None

    def end(self, tp: TopicPartition) -> Offset | None:
        """Behind the last that is cached."""
        tail = self._tails.get(tp)
        return _end(tail) if tail is not None and tail.batches else None

    def _evict(self) -> None:
        tp, tail = self._order.popleft()
        batch = tail.batches[tail.gone]
        assert batch is not None
        self._bytes -= len(batch.data) + OVERHEAD_BYTES
        self.evicted += 1
        tail.batches[tail.gone] = None
        tail.gone += 1
        if tail.gone == len(tail.batches):
            tail.batches, tail.offsets, tail.gone = [], [], 0
            if self._tails.get(tp) is tail:
                del self._tails[tp]
        elif tail.gone * 2 > len(tail.batches):
            del tail.batches[: tail.gone]
            del tail.offsets[: tail.gone]
            tail.gone = 0


def _end(tail: _Tail) -> Offset:
    last = tail.batches[-1]
    assert last is not None
    return last.end
