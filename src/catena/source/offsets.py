"""How far a stream is: what Spark keeps in its checkpoint and hands back after a restart, as JSON.

    {"version": 1, "topics": {"orders": {"id": "<topic id>", "partitions": {"0": 123, "1": 7}}}}

A number is the offset of the next record to be read. Ids tell a topic from another that has got its name. Spark
compares offsets by their text, so that equal ones MUST be written in the same order: by name, and by number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from catena.errors import Corrupt, StoreRefused
from catena.types import Offset, TopicId

VERSION = 1


class TopicOffsets(msgspec.Struct, frozen=True):
    id: TopicId
    partitions: dict[int, Offset]


class StreamOffsets(msgspec.Struct, frozen=True):
    topics: dict[str, TopicOffsets]

    def find(self, topic: str, topic_id: TopicId, partition: int) -> Offset | None:
        """None also if another topic had the name."""
        found = self.topics.get(topic)
        return None if found is None or found.id != topic_id else found.partitions.get(partition)


def encode(offsets: StreamOffsets) -> dict[str, Any]:
    """Only of what JSON has."""
    return {
        "version": VERSION,
        "topics": {
            name: {
                "id": topic.id,
                "partitions": {str(number): topic.partitions[number] for number in sorted(topic.partitions)},
            }
            for name, topic in sorted(offsets.topics.items())
        },
    }


def decode(stored: Mapping[str, Any]) -> StreamOffsets:
    version = stored.get("version")
    if isinstance(version, int) and version > VERSION:
        raise StoreRefused(
            f"the checkpoint's offsets are in version {version}, and this version of Catena knows up to {VERSION}: "
            "use a newer version"
        )
    try:
        if version != VERSION:
            raise msgspec.ValidationError(f"version is {version!r}")
        offsets = msgspec.convert(dict(stored), StreamOffsets, str_keys=True)
        for name, topic in offsets.topics.items():
            for number, offset in topic.partitions.items():
                if number < 0 or offset < 0:
                    raise msgspec.ValidationError(f"{name}/{number} is at {offset}")
    except msgspec.ValidationError as error:
        raise Corrupt(f"the checkpoint's offsets can't be read: {error}") from None
    return offsets
