"""The index of a partition, by ranges of offsets; what was last read of it is kept.

The index is keyed by the last offset of each run, so the run that holds an offset is the ceiling of that offset. An
entry never changes, it only goes away when its offsets are moved elsewhere (tiered, trimmed). So an entry that is kept
may be of no use any more, but it is never wrong: its blob holds these offsets, or is gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from itertools import islice
from operator import attrgetter

from catena.loglets.diskless.partition import Partition
from catena.loglets.diskless.records import IndexEntry, decode_index_entry
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.types import Offset

PAGE = 64
LARGE_PAGE = 512
"""Where runs are so small that a page does not bring what was asked for."""
KEPT_ENTRIES = 1 << 15
"""Of all partitions: about 15 MB."""
MAX_RUNS_PER_READ = 1000

_end_offset = attrgetter("end_offset")


class Index:
    def __init__(self, meta: MetaStore) -> None:
        self._meta = meta
        self._pages: OrderedDict[Partition, list[IndexEntry]] = OrderedDict()
        self._kept = 0

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
                page = await self.page(partition, following, limit)
                self._keep(partition, page)
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
        """What is kept has turned out to be of no use."""
        self._kept -= len(self._pages.pop(partition, ()))

    def _kept_from(self, partition: Partition, offset: Offset) -> tuple[list[IndexEntry], int]:
        page = self._pages.get(partition)
        if page is None or not page[0].start_offset <= offset <= page[-1].end_offset:
            return [], 0
        at = bisect_left(page, offset, key=_end_offset)
        return (page, at) if page[at].start_offset <= offset else ([], 0)

    def _keep(self, partition: Partition, page: list[IndexEntry]) -> None:
        if page:
            self.forget(partition)
            self._pages[partition] = page
            self._kept += len(page)
        while self._kept > KEPT_ENTRIES:
            self._kept -= len(self._pages.popitem(last=False)[1])
