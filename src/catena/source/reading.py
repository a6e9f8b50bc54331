"""A split to Arrow: its extents are downloaded in groups of bounded size, several at once, and decoded as they come.

**Read-ahead**: with `read_ahead` some groups are on their way while one is decoded and goes where it is wanted. Small
groups, several at a time: one large group ahead had fewer requests under way, and was slower than none on a store that
takes its time. In memory are `GROUPS_AHEAD` of them beside the one that is decoded.

What is in an extent is held against what the plan says: a body that ends early would be records that nobody misses.
"""

from __future__ import annotations

import functools
import logging
import struct
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from catena.columns.decode import decode
from catena.columns.gather import Body, OpaqueBatch
from catena.errors import Corrupt, DataLoss, ObjectMissing
from catena.formats.batch_scan import Source
from catena.formats.bytes_batch import as_record_batch
from catena.formats.record_batch import HEADER_BYTES, LENGTH_END
from catena.formats.wal_blob import BYTES_BATCH_V1, KAFKA_BATCH_V2
from catena.loglets.base import Extent
from catena.objects.base import ObjectStore, Range
from catena.runtime.tasks import map_bounded
from catena.source.splitting import Split
from catena.types import Buffer

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

GROUP_BYTES = 32 << 20
GROUP_EXTENTS = 64
AT_ONCE = 8
AHEAD_BYTES = 8 << 20
AHEAD_EXTENTS = 16
GROUPS_AHEAD = 3

Fetch: TypeAlias = Callable[[Sequence[Extent]], Sequence[Buffer]]
"""The bytes of each extent."""
Begin: TypeAlias = Callable[[Sequence[Extent]], Future[Sequence[Buffer]]]
"""The same, later; cancelled if nobody wants them any more."""
_Download: TypeAlias = tuple[Sequence[Extent], Callable[[], Sequence[Buffer]]]
Aside: TypeAlias = Callable[[OpaqueBatch], None]
"""Told of each batch that can't be decoded though its CRC is right; where there is none, that is an error."""

_LENGTH_AND_LAST_DELTA = struct.Struct(">8xi11xi34x")


def leave_out(batch: OpaqueBatch) -> None:
    """An `Aside`, for tasks whose log is all that they can tell."""
    log.warning("%s; its offsets, up to %d, are left out", batch.fault, batch.last)


def read_split(
    split: Split, columns: Sequence[str], fetch: Fetch, aside: Aside | None = None
) -> Iterator[pa.RecordBatch]:
    """Only these columns, in this order."""
    downloads = ((extents, functools.partial(fetch, extents)) for extents in group(split.extents))
    return _decode(split, columns, downloads, aside)


def read_ahead(
    split: Split, columns: Sequence[str], begin: Begin, aside: Aside | None = None
) -> Iterator[pa.RecordBatch]:
    """The same where downloads go on by themselves."""
    return _decode(split, columns, _downloads_ahead(split.extents, begin), aside)


def _decode(
    split: Split, columns: Sequence[str], downloads: Iterable[_Download], aside: Aside | None
) -> Iterator[pa.RecordBatch]:
    return decode(_bodies(split, downloads), split.tp, columns=columns, start=split.start, end=split.end, aside=aside)


def _downloads_ahead(extents: Sequence[Extent], begin: Begin) -> Iterator[_Download]:
    under_way: deque[tuple[Sequence[Extent], Future[Sequence[Buffer]]]] = deque()
    try:
        for each in group(extents, AHEAD_BYTES, AHEAD_EXTENTS):
            under_way.append((each, begin(each)))
            if len(under_way) > GROUPS_AHEAD:
                first, future = under_way.popleft()
                yield first, future.result
        while under_way:
            first, future = under_way.popleft()
            yield first, future.result
    finally:
        for _, future in under_way:
            future.cancel()


async def split_batches_of(
    objects: ObjectStore, split: Split, columns: Sequence[str], aside: Aside | None = None
) -> AsyncIterator[pa.RecordBatch]:
    """The same where downloads can be awaited: a group at a time; what is decoded is there already."""
    for extents in group(split.extents):
        bodies = await fetch_extents(objects, extents)
        part = msgspec.structs.replace(split, extents=tuple(extents))
        for batch in read_split(part, columns, functools.partial(_given, bodies), aside):
            yield batch


async def fetch_extents(objects: ObjectStore, extents: Sequence[Extent]) -> Sequence[Buffer]:
    async def fetch(extent: Extent) -> Buffer:
        if extent.length is None:
            return memoryview((await objects.get(extent.key)).data)[extent.at :]
        (body,) = await objects.get_ranges(extent.key, [Range(extent.at, extent.length)])
        return body

    return await map_bounded(AT_ONCE, fetch, extents)


def _given(bodies: Sequence[Buffer], _extents: Sequence[Extent]) -> Sequence[Buffer]:
    return bodies


def group(
    extents: Sequence[Extent], max_bytes: int = GROUP_BYTES, max_extents: int = GROUP_EXTENTS
) -> Iterator[list[Extent]]:
    """What is downloaded at once. One of unknown length comes alone."""
    taken: list[Extent] = []
    size = 0
    for extent in extents:
        length = max_bytes if extent.length is None else extent.length
        if taken and (size + length > max_bytes or len(taken) == max_extents):
            yield taken
            taken, size = [], 0
        taken.append(extent)
        size += length
    if taken:
        yield taken


def _bodies(split: Split, downloads: Iterable[_Download]) -> Iterator[Body]:
    for extents, wait in downloads:
        try:
            bodies = wait()
        except ObjectMissing as error:
            first, last = extents[0].offset, extents[-1].end - 1
            raise DataLoss(
                f"{split.tp}, offsets {first} to {last}: {error}; vacuum collects what was trimmed or moved since this "
                "query was planned: load it again"
            ) from error
        for extent, body in zip(extents, bodies, strict=True):
            yield _body(split, extent, body)


def _body(split: Split, extent: Extent, stored: Buffer) -> Body:
    place = f"{split.tp}, object {extent.key}, the extent at byte {extent.at} for offset {extent.offset}"
    try:
        match extent.encoding:
            case encoding if encoding == KAFKA_BATCH_V2:
                body = stored
            case encoding if encoding == BYTES_BATCH_V1:
                body = as_record_batch(stored, extent.created_at_ms)
            case unknown:
                raise Corrupt(f"encoding {unknown!r} is unknown")
        end = extent.offset + _count_offsets(body)
        if end != extent.end:
            raise Corrupt(f"it ends at offset {end}, and the plan says at {extent.end}")
    except Corrupt as error:
        raise Corrupt(f"{place}: {error}") from error
    return Body(body, extent.offset, Source(extent.key, extent.at))


def _count_offsets(body: Buffer) -> int:
    at, count, size = 0, 0, len(body)
    while at < size:
        if at + HEADER_BYTES > size:
            raise Corrupt(f"byte {at}: {size - at} bytes are left, and a header has {HEADER_BYTES}")
        length, last_delta = _LENGTH_AND_LAST_DELTA.unpack_from(body, at)
        if not (HEADER_BYTES - LENGTH_END <= length <= size - at - LENGTH_END and last_delta >= 0):
            raise Corrupt(f"byte {at}: a batch of {length} bytes and {last_delta} + 1 offsets can't be here")
        at += LENGTH_END + length
        count += last_delta + 1
    return count
