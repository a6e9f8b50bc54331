"""What the tasks of a compaction are given, and what they answer; see `compacting`.

Apart from what they do, which needs numpy and Arrow: a driver has no use for these.

There is a part for each group and each bucket, and a driver holds what is told of all of them: so it is told in 8 bytes
each, and plans name objects without what all of a job's have in common.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import msgspec

from catena.formats.opaque import Opaque
from catena.formats.segment import SegmentInfo
from catena.meta import keys
from catena.types import Offset, TopicId, TopicPartition

_SIZE_AND_CRC = struct.Struct("<II")


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Of a scratch object; one without bytes is nowhere."""

    name: str
    """Of the object, among those of the job."""
    at: int
    size: int
    crc: int


class Parts(msgspec.Struct, frozen=True):
    """All parts of one object, one behind the other."""

    name: str
    table: bytes
    """Of each: how many bytes it has, and their CRC-32C."""

    @staticmethod
    def of(name: str, sizes_and_crcs: Iterable[tuple[int, int]]) -> Parts:
        return Parts(name, b"".join(_SIZE_AND_CRC.pack(*each) for each in sizes_and_crcs))

    def __len__(self) -> int:
        return len(self.table) // _SIZE_AND_CRC.size

    def __iter__(self) -> Iterator[Part]:
        at = 0
        for size, crc in _SIZE_AND_CRC.iter_unpack(self.table):
            yield Part(self.name, at, size, crc)
            at += size

    @property
    def is_empty(self) -> bool:
        return not any(part.size for part in self)


class OfJob(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    topic_id: TopicId
    partition: int
    job: str

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.topic_id, self.partition)

    def scratch(self, name: str) -> str:
        """The key of an object of the job. It has the form of a segment's."""
        return keys.segment(self.tp, self.job, name)


class KeysPlan(OfJob, frozen=True, kw_only=True):
    buckets: int
    segments: tuple[SegmentInfo, ...]


class KeysFound(msgspec.Struct, frozen=True):
    buckets: Parts
    opaque: Opaque
    """Batches of which nobody can tell the keys."""


class SurvivorsPlan(OfJob, frozen=True, kw_only=True):
    parts: tuple[Part, ...]
    """Of one bucket: those of all groups, in their order, that have any bytes."""
    ends: tuple[Offset, ...]
    """Of the groups."""
    tombstones_below: Offset


class SurvivorsFound(msgspec.Struct, frozen=True):
    groups: Parts
    keys: int
    tombstones: int
    """Marks of deleted keys that go."""


class RewritePlan(OfJob, frozen=True, kw_only=True):
    cluster_id: str
    segments: tuple[SegmentInfo, ...]
    survivors: tuple[Part, ...]
    """Of this group: those of all buckets that have any bytes."""
    opaque: Opaque
    """As the first stage found them in this group."""


class Rewritten(msgspec.Struct, frozen=True):
    info: SegmentInfo | None
    """None: nothing was removed, and the segments stay."""
    records: int
    """That are left."""
    removed: int


def with_bytes(parts: Iterable[Part]) -> tuple[Part, ...]:
    return tuple(part for part in parts if part.size)
