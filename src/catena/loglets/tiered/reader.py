"""Find and read what is in segments: manifest, then index, then intervals, in few range gets.

A first read costs three requests: the manifest, the segment's index and the intervals. Neighbouring intervals are one
get, and what a read needs of several segments is asked for at once.

Who reads on from where it stopped will mostly go on: what follows is downloaded meanwhile, in large gets. More is asked
for once half of it is used up.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from itertools import islice

from catena.errors import CatenaError
from catena.formats.manifest import Manifest
from catena.formats.record_batch import parse_header
from catena.formats.records import NO_TIMESTAMP
from catena.formats.segment import Interval, SegmentIndex, SegmentInfo, decode_interval
from catena.loglets.base import Batch, Extent
from catena.loglets.pieces import Lane, Piece, PieceReader, Places
from catena.loglets.tiered.catalog import Catalog
from catena.runtime import Tasks
from catena.types import Offset

READ_AHEAD_BYTES = 8 << 20
READERS_AHEAD = 16
"""Of all partitions, at the same time."""
MAX_READ_BYTES = 64 << 20
MAX_SEGMENTS_PER_READ = 32
EXTENT_BYTES = 16 << 20
"""An extent is not much larger, unless a single batch is."""


class Reader:
    def __init__(self, catalog: Catalog, pieces: PieceReader, lane: Lane, tasks: Tasks) -> None:
        self._catalog = catalog
        self._pieces = pieces
        self._lane = lane
        self._tasks = tasks
        self._readers_ahead = 0

    async def read(self, manifest: Manifest, places: Places, offset: Offset, max_bytes: int) -> list[Batch]:
        """Batches from the one that holds `offset`, which is one of the manifest's."""
        pieces = await self._plan(manifest, offset, min(max_bytes, MAX_READ_BYTES))
        batches = await self._pieces.read_from(pieces, offset, max_bytes)
        end = batches[-1].end
        if places.reads_on(offset, end) and end < manifest.end:
            self._read_ahead(manifest, end)
        return batches

    async def find_time(self, manifest: Manifest, timestamp_ms: int, start: Offset) -> Offset | None:
        for segment in _segments_from(manifest, start):
            if segment.max_timestamp < timestamp_ms:
                continue
            index = await self._catalog.index(segment)
            number = index.find_time(timestamp_ms, index.find(max(start, segment.base)))
            while number is not None:  # twice at most: only the first one can hold batches that are too early
                for batch in await self._pieces.read([self._piece(segment, index.interval(number))]):
                    if batch.end > start and parse_header(batch.data).max_timestamp >= timestamp_ms:
                        return batch.offset
                number = index.find_time(timestamp_ms, number + 1)
        return None

    async def find_max_time(self, manifest: Manifest, start: Offset, end: Offset) -> Offset | None:
        """Only of the segment that is found, and of those at the edges, more is read than the manifest."""
        newest, found = NO_TIMESTAMP, None
        found_in: SegmentInfo | None = None
        for segment in _segments_from(manifest, start):
            if segment.base >= end:
                break
            if segment.max_timestamp <= newest:
                continue
            if start <= segment.base and segment.end <= end:
                newest, found_in = segment.max_timestamp, segment
                continue
            timestamp_ms, offset = await self._find_max_time_in(segment, start, end)
            if timestamp_ms > newest:
                newest, found, found_in = timestamp_ms, offset, None
        return found if found_in is None else (await self._find_max_time_in(found_in, start, end))[1]

    async def _find_max_time_in(self, segment: SegmentInfo, start: Offset, end: Offset) -> tuple[int, Offset | None]:
        index = await self._catalog.index(segment)
        first, last = index.find(max(start, segment.base)), index.find(min(end, segment.end) - 1)
        # What the index says of an interval at the edge may be about batches outside.
        is_cut_first, is_cut_last = index.interval(first).offset < start, index.interval(last).end > end
        inside = index.find_max_time(first + is_cut_first, last + 1 - is_cut_last)
        edges = {number for number, is_cut in ((first, is_cut_first), (last, is_cut_last)) if is_cut}
        newest, found = NO_TIMESTAMP, None
        for number in sorted(edges if inside is None else {*edges, inside}):
            interval = index.interval(number)
            if interval.max_timestamp <= newest:
                continue
            for batch in await self._pieces.read([self._piece(segment, interval)]):
                timestamp_ms = parse_header(batch.data).max_timestamp
                if timestamp_ms > newest and batch.end > start and batch.offset < end:
                    newest, found = timestamp_ms, batch.offset
        return newest, found

    async def extents(self, manifest: Manifest, start: Offset, end: Offset, limit: int) -> list[Extent]:
        """Large segments are cut where intervals begin, so that several can read one."""
        found: list[Extent] = []
        for segment in _segments_from(manifest, start):
            if segment.base >= end or len(found) >= limit:
                break
            is_inside = start <= segment.base and segment.end <= end
            if is_inside and segment.body_bytes <= EXTENT_BYTES:
                found.append(Extent(segment.base, segment.end, segment.key, segment.body_at, segment.body_bytes))
            else:
                found += _cut(segment, await self._catalog.index(segment), start, end)
        return found[:limit]

    async def _plan(self, manifest: Manifest, offset: Offset, max_bytes: int) -> list[Piece]:
        """What to read for about so many bytes from `offset` on; at least one piece."""
        segments: list[SegmentInfo] = []
        left = max_bytes
        for segment in _segments_from(manifest, offset):
            segments.append(segment)
            left -= _bytes_from(offset, segment.base, segment.end, segment.body_bytes)
            if left <= 0 or len(segments) == MAX_SEGMENTS_PER_READ:
                break
        pieces: list[Piece] = []
        for segment, index in zip(segments, await self._catalog.indexes(segments), strict=True):
            for number in range(index.find(max(offset, segment.base)), len(index)):
                interval = index.interval(number)
                pieces.append(self._piece(segment, interval))
                max_bytes -= _bytes_from(offset, interval.offset, interval.end, interval.length)
                if max_bytes <= 0:
                    return pieces
        return pieces

    def _piece(self, segment: SegmentInfo, interval: Interval) -> Piece:
        decode = functools.partial(decode_interval, segment.key, interval, make=Batch)
        return Piece(segment.key, interval.position, interval.length, interval.offset, self._lane, decode)

    def _read_ahead(self, manifest: Manifest, offset: Offset) -> None:
        if self._readers_ahead < READERS_AHEAD and not self._tasks.closed:
            self._readers_ahead += 1
            task = self._tasks.spawn("read ahead", self._download(manifest, offset))
            task.add_done_callback(lambda _: self._end_read_ahead())

    def _end_read_ahead(self) -> None:
        self._readers_ahead -= 1

    async def _download(self, manifest: Manifest, offset: Offset) -> None:
        try:
            if not await self._is_far_ahead(manifest, offset):
                self._pieces.read_ahead(await self._plan(manifest, offset, READ_AHEAD_BYTES))
        except CatenaError:
            pass  # whoever comes to read it gets the error

    async def _is_far_ahead(self, manifest: Manifest, offset: Offset) -> bool:
        """Whether what comes half of the way further on is here; at the end of the log, whether the last of it is."""
        left = READ_AHEAD_BYTES // 2
        is_here = True
        for segment in islice(_segments_from(manifest, offset), MAX_SEGMENTS_PER_READ):
            index = await self._catalog.index(segment)
            at = index.interval(index.find(max(offset, segment.base))).position + left
            number = index.find_byte(min(at, segment.index_at - 1))
            is_here = self._pieces.is_here(segment.key, index.interval(number).position)
            left = at - segment.index_at
            if left < 0:
                break
        return is_here


def _segments_from(manifest: Manifest, offset: Offset) -> Iterator[SegmentInfo]:
    for number in range(manifest.segment_at(offset), len(manifest.segments)):
        yield manifest.segments[number]


def _cut(segment: SegmentInfo, index: SegmentIndex, start: Offset, end: Offset) -> Iterator[Extent]:
    number, last = index.find(max(start, segment.base)), index.find(min(end, segment.end) - 1)
    while number <= last:
        first = index.interval(number)
        full_at = first.position + EXTENT_BYTES
        after = last + 1 if full_at >= segment.index_at else min(last, index.find_byte(full_at))
        number = max(number + 1, after)
        until = index.interval(number - 1)
        length = until.position + until.length - first.position
        yield Extent(first.offset, until.end, segment.key, first.position, length)


def _bytes_from(offset: Offset, base: Offset, end: Offset, size: int) -> int:
    """About how many of `size` bytes, which hold the offsets from base to end, come at or after `offset`."""
    return size if offset <= base else max(1, size * (end - offset) // (end - base))
