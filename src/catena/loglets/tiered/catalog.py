"""What is where: the manifests that chains name, and the indexes of segments. Both never change, and are kept."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence

from catena.errors import Corrupt
from catena.formats import manifest, segment
from catena.formats.manifest import Manifest
from catena.formats.segment import SegmentIndex, SegmentInfo
from catena.loglets.tiered.kept import Kept, Sized
from catena.objects.base import ObjectStore, Range
from catena.runtime import Tasks
from catena.types import TopicPartition

LOADS_AT_ONCE = 8
MEMORY_PER_BYTE = 2
"""What a manifest takes in memory for each byte that it has as JSON, at most. Measured."""


class Catalog:
    def __init__(self, objects: ObjectStore, tasks: Tasks, manifest_bytes: int, index_bytes: int) -> None:
        self._objects = objects
        self._slots = asyncio.Semaphore(LOADS_AT_ONCE)
        self._manifests: Kept[Manifest] = Kept(tasks, manifest_bytes)
        self._indexes: Kept[SegmentIndex] = Kept(tasks, index_bytes)

    async def manifest(self, key: str, tp: TopicPartition) -> Manifest:
        """The manifest at `key`; raises Corrupt if it is not one of this partition."""
        found = await self._manifests.get(key, functools.partial(self._load_manifest, key))
        if (found.topic_id, found.partition) != (tp.topic_id, tp.partition):
            raise Corrupt(
                f"object {key} is the manifest of {found.topic}/{found.partition}, topic id {found.topic_id}, "
                f"and the chain of {tp}, topic id {tp.topic_id}, names it"
            )
        return found

    async def index(self, info: SegmentInfo) -> SegmentIndex:
        return await self._indexes.get(info.key, functools.partial(self._load_index, info))

    async def indexes(self, infos: Sequence[SegmentInfo]) -> list[SegmentIndex]:
        return [await self.index(infos[0])] if len(infos) == 1 else await asyncio.gather(*map(self.index, infos))

    async def _load_manifest(self, key: str) -> Sized[Manifest]:
        async with self._slots:
            data = (await self._objects.get(key)).data
        return Sized(manifest.decode(data, f"object {key}"), MEMORY_PER_BYTE * len(data))

    async def _load_index(self, info: SegmentInfo) -> Sized[SegmentIndex]:
        try:
            async with self._slots:
                (data,) = await self._objects.get_ranges(info.key, [Range(info.index_at, info.index_length)])
            return Sized(segment.decode_index(info, data), len(data))
        except Corrupt as error:
            place = f"offsets {info.base} to {info.end - 1}, index at byte {info.index_at}"
            raise Corrupt(f"{place}: {error}") from error
