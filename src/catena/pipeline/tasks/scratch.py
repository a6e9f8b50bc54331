"""What the stages of a compaction hand over to each other, in objects of the job: numbers, in parts that have a CRC.

    object   part, part, part ...
    part     of keys:     hashes (high, then low), then offset * 2 + is tombstone; three columns of 8 bytes a row
             of offsets:  one such column, in order

All are little-endian, and rows are in the order of offsets. Whoever wrote an object tells where its parts are; nothing
in it does. Its name is that of a segment of the job: so it is kept as long as the job may need it, and collected by
vacuum when nobody has deleted it.
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
from catena.pipeline.tasks.compact_plans import OfJob, Part, Parts
from catena.runtime.tasks import map_bounded
from catena.types import ABSENT, Buffer

READS_AT_ONCE = 8
_WORD = np.dtype("<u8")


async def write_parts(objects: ObjectStore, plan: OfJob, name: str, parts: Iterable[bytes]) -> Parts:
    """Nothing is written if all are empty."""
    bodies: list[Buffer] = list(parts)
    if any(bodies):
        with suppress(Conflict):  # an earlier try of ours: the name is known to nobody else
            await objects.put(plan.scratch(name), bodies, ABSENT)
    return Parts.of(name, ((len(body), crc32c(body)) for body in bodies))


async def read_parts(objects: ObjectStore, plan: OfJob, parts: Sequence[Part]) -> list[Buffer]:
    """The bytes of each, checked."""

    async def read(part: Part) -> Buffer:
        key = plan.scratch(part.name)
        (body,) = await objects.get_ranges(key, [Range(part.at, part.size)])
        if crc32c(body) != part.crc:
            raise Corrupt(f"object {key}, byte {part.at}: {part.size} bytes of scratch have changed")
        return body

    return await map_bounded(READS_AT_ONCE, read, parts)


def pack_keys(last: LastOfKeys) -> bytes:
    return bytes(np.concatenate(last).astype(_WORD, copy=False).data)


def unpack_keys(body: Buffer) -> LastOfKeys:
    return LastOfKeys(*np.frombuffer(body, _WORD).reshape(3, -1))


def pack_offsets(offsets: Ints) -> bytes:
    return bytes(offsets.astype("<i8", copy=False).data)


def unpack_offsets(bodies: Sequence[Buffer]) -> Ints:
    """All of them, in order."""
    found = [np.frombuffer(body, "<i8") for body in bodies]
    return np.sort(np.concatenate(found)) if found else np.empty(0, np.int64)
