"""A split to Arrow: its extents are downloaded in groups of bounded size, several at once, and decoded as they come.

What is in an extent is held against what the plan says: a body that ends early would be records that nobody misses.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from catena.columns.decode import decode
from catena.columns.gather import Body
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

GROUP_BYTES = 32 << 20
GROUP_EXTENTS = 64
AT_ONCE = 8

Fetch: TypeAlias = Callable[[Sequence[Extent]], Sequence[Buffer]]
"""The bytes of each extent."""

_LENGTH_AND_LAST_DELTA = struct.Struct(">8xi11xi34x")


def read_split(split: Split, columns: Sequence[str], fetch: Fetch) -> Iterator[pa.RecordBatch]:
    """Only these columns, in this order."""
    return decode(_bodies(split, fetch), split.tp, columns=columns, start=split.start, end=split.end)


async def split_batches_of(objects: ObjectStore, split: Split, columns: Sequence[str]) -> AsyncIterator[pa.RecordBatch]:
    """The same where downloads can be awaited: a group at a time; what is decoded is there already."""
    for extents in group(split.extents):
        bodies = await fetch_extents(objects, extents)
        part = msgspec.structs.replace(split, extents=tuple(extents))
        for batch in read_split(part, columns, functools.partial(_given, bodies)):
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


def _bodies(split: Split, fetch: Fetch) -> Iterator[Body]:
    for extents in group(split.extents):
        try:
            bodies = fetch(extents)
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
