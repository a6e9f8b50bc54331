"""Names for the few things that every layer speaks of."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import NamedTuple, NewType, TypeAlias

Offset: TypeAlias = int
"""Position of a record in a partition; the first is 0, as in Kafka."""

Epoch: TypeAlias = int
"""Generation of a partition's chain; a link owns exactly one, and none is ever used twice."""

TopicId = NewType("TopicId", str)
"""32 hex digits. A topic that is deleted and created again gets a new one, so old keys never meet new data."""

Version = NewType("Version", str)
"""Opaque version of a meta record. Versions of a key are never reused, not even after a delete."""

ETag = NewType("ETag", str)
"""Opaque version of an object."""

Buffer: TypeAlias = bytes | bytearray | memoryview
Buffers: TypeAlias = Sequence[Buffer]


class Expect(enum.Enum):
    """What a conditional write expects to find, when it is not one particular version."""

    ABSENT = "absent"
    ANY = "any"


ABSENT = Expect.ABSENT
ANY = Expect.ANY


class TopicPartition(NamedTuple):
    """One log. The id is its identity; the name is for people and for blob headers."""

    topic: str
    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"
