"""The index of a partition, by ranges of offsets; what was last read of it is kept.

The index is keyed by the last offset of each run, so the run that holds an offset is the ceiling of that offset. An
entry never changes, it only goes away when its offsets are moved elsewhere (tiered, trimmed). So an entry that is kept
may be of no use any more, but it is never wrong: its blob holds these offsets, or is gone. It is believed for a second,
so that whoever reads what another node has trimmed soon hears of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from catena.loglets.diskless.counts import FindCounts
from catena.loglets.diskless.partition import Partition
from catena.loglets.diskless.records import IndexEntry, decode_index_entry
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.runtime import Clock
from catena.types import Offset

PAGE = 64
LARGE_PAGE = 512
"""Where runs are so small that a page does not bring what was asked for."""
KEPT_ENTRIES = 1 << 15
"""Of all partitions: about 15 MB."""
PAGES = 3
"""That are kept of a partition: of a reader, of what is read ahead for it, and of another reader."""
MAX_AGE_S = 1.0
MAX_RUNS_PER_READ = 1000

_end_offset = attrgetter("end_offset")


class _Page(NamedTuple):
    entries: list[IndexEntry]
    read_at: float


class Index:
    def __init__(self, meta: MetaStore, clock: Clock) -> None:
        self._meta = meta
        self._clock = clock
        self._pages: OrderedDict[Partition, list[_Page]] = OrderedDict()
        self._kept = 0
        self.counts = FindCounts()

    async def page(self, partition: Partition, offset: Offset, limit: int) -> list[IndexEntry]:
        """Entries from the one that may hold `offset` on, as the store has them."""
        end = keys.after(keys.index_prefix(partition.tp))
        records = await self._meta.scan(keys.index(partition.tp, offset), end, limit)
        return [decode_index_entry(record.key, record.value) for record in records]

    async def find(self, partition: Partition, offset: Offset, max_bytes: int) -> list[IndexEntry]:
        """Entries that hold the bytes from `offset` on, contiguous; none if the index has no such offset."""
        found: list[IndexEntry] = []
        following, size, limit = offset, 0, PAGE
        while True:
            page, at = self._kept_from(partition, following)
            if not page:
                began = self._clock.monotonic()
                page = await self.page(partition, following, limit)
                self._keep(partition, _Page(page, began))
                self.counts.seconds.observe(self._clock.monotonic() - began)
            else:
                self.counts.kept += 1
            for entry in islice(page, at, None):
                is_enough = (found and size >= max_bytes) or len(found) == MAX_RUNS_PER_READ
                if is_enough or entry.start_offset > following:
                    return found
                found.append(entry)
                following = entry.end_offset + 1
                size += entry.byte_length or max_bytes
            if size >= max_bytes or len(page) < limit:
                return found
            limit = LARGE_PAGE

    def forget(self, partition: Partition) -> None:
        """What is kept is of no use any more."""
        for page in self._pages.pop(partition, ()):
            self._kept -= len(page.entries)

    def _kept_from(self, partition: Partition, offset: Offset) -> tuple[list[IndexEntry], int]:
        pages = self._pages.get(partition)
        if pages is None:
            return [], 0
        self._pages.move_to_end(partition)
        oldest = self._clock.monotonic() - MAX_AGE_S
        for entries, read_at in reversed(pages):
            if read_at >= oldest and entries[0].start_offset <= offset <= entries[-1].end_offset:
                at = bisect_left(entries, offset, key=_end_offset)
                if entries[at].start_offset <= offset:
                    return entries, at
        return [], 0

    def _keep(self, partition: Partition, page: _Page) -> None:
        if not page.entries:
            return
        pages = self._pages.setdefault(partition, [])
        pages.append(page)
        self._kept += len(page.entries)
        if len(pages) > PAGES:
            self._kept -= len(pages.pop(0).entries)
        while self._kept > KEPT_ENTRIES:
            self.forget(next(iter(self._pages)))
