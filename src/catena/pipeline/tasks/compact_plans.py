"""What the tasks of a compaction are given, and what they answer; see `compacting`.

Apart from what they do, which needs numpy and Arrow: a driver has no use for these.
"""

from __future__ import annotations

import msgspec

from catena.formats.segment import SegmentInfo
from catena.types import Offset, TopicId, TopicPartition


class Part(msgspec.Struct, frozen=True, array_like=True):
    key: str
    at: int
    rows: int
    size: int
    """In bytes; 0: there is no such object."""
    crc: int


class OfJob(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    topic_id: TopicId
    partition: int
    job: str

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.topic_id, self.partition)


class KeysPlan(OfJob, frozen=True, kw_only=True):
    buckets: int
    segments: tuple[SegmentInfo, ...]


class KeysFound(msgspec.Struct, frozen=True):
    buckets: tuple[Part, ...]


class SurvivorsPlan(OfJob, frozen=True, kw_only=True):
    parts: tuple[Part, ...]
    """Of one bucket: those of all groups."""
    ends: tuple[Offset, ...]
    """Of the groups."""
    tombstones_below: Offset


class SurvivorsFound(msgspec.Struct, frozen=True):
    groups: tuple[Part, ...]
    keys: int
    tombstones: int
    """Marks of deleted keys that go."""


class RewritePlan(OfJob, frozen=True, kw_only=True):
    cluster_id: str
    segments: tuple[SegmentInfo, ...]
    survivors: tuple[Part, ...]
    """Of this group: those of all buckets."""


class Rewritten(msgspec.Struct, frozen=True):
    info: SegmentInfo | None
    """None: nothing was removed, and the segments stay."""
    records: int
    """That are left."""
    removed: int
