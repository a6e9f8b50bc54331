"""What the stages of a compaction hand over to each other, in objects of the job: numbers, in parts that have a CRC.

    object   part, part, part ...
    part     of keys:     hashes (high, then low), then offset * 2 + is tombstone; three columns of 8 bytes a row
             of offsets:  one such column, in order

All are little-endian. Whoever wrote an object tells where its parts are; nothing in it does. Its name is that of a
segment of the job: so it is kept as long as the job may need it, and collected by vacuum when nobody has deleted it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import numpy as np
from crc32c import crc32c

from catena.columns.last_of_keys import LastOfKeys
from catena.columns.varints import Ints
from catena.errors import Conflict, Corrupt
from catena.objects.base import ObjectStore, Range
from catena.pipeline.tasks.compact_plans import Part
from catena.runtime.tasks import map_bounded
from catena.types import ABSENT, Buffer

READS_AT_ONCE = 8
_WORD = np.dtype("<u8")


async def write_parts(objects: ObjectStore, key: str, parts: Iterable[tuple[int, bytes]]) -> tuple[Part, ...]:
    """`parts` are numbers of rows, and their bytes. Nothing is written if all are empty."""
    told: list[Part] = []
    bodies: list[Buffer] = []
    at = 0
    for rows, body in parts:
        told.append(Part(key, at, rows, len(body), crc32c(body)))
        bodies.append(body)
        at += len(body)
    if at:
        with suppress(Conflict):  # an earlier try of ours: the name is known to nobody else
            await objects.put(key, bodies, ABSENT)
    return tuple(told)


async def read_parts(objects: ObjectStore, parts: Sequence[Part]) -> list[Buffer]:
    """The bytes of those that are not empty, checked."""

    async def read(part: Part) -> Buffer:
        (body,) = await objects.get_ranges(part.key, [Range(part.at, part.size)])
        if crc32c(body) != part.crc:
            raise Corrupt(f"object {part.key}, byte {part.at}: {part.size} bytes of scratch have changed")
        return body

    return await map_bounded(READS_AT_ONCE, read, [part for part in parts if part.size])


def pack_keys(last: LastOfKeys) -> bytes:
    marked = last.offset.astype(np.uint64) << np.uint64(1) | last.is_tombstone
    return bytes(np.concatenate([last.high, last.low, marked]).astype(_WORD, copy=False).data)


def unpack_keys(body: Buffer) -> LastOfKeys:
    high, low, marked = np.frombuffer(body, _WORD).reshape(3, -1)
    return LastOfKeys(high, low, (marked >> np.uint64(1)).astype(np.int64), (marked & np.uint64(1)).astype(np.bool_))


def pack_offsets(offsets: Ints) -> bytes:
    return bytes(offsets.astype("<i8", copy=False).data)


def unpack_offsets(bodies: Sequence[Buffer]) -> Ints:
    """All of them, in order."""
    found = [np.frombuffer(body, "<i8") for body in bodies]
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)
