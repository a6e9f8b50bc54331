"""Logs in segments, written as tiering writes them, and nodes that read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from catena.formats import manifest, segment
from catena.formats.manifest import Manifest
from catena.formats.record_batch import split_batches
from catena.formats.segment import INTERVAL_BYTES, SegmentHeader, SegmentInfo
from catena.loglets.base import LinkSpec
from catena.loglets.tiered.loglet import Tiered, TieredLoglet, TieredSettings
from catena.meta import keys
from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.runtime import Clock, SystemClock, Tasks
from catena.testing.contracts.loglet import Links
from catena.testing.faults import Faults, FaultyObjects
from catena.types import Buffer, Offset


class SegmentedLog:
    """Segments of one partition, and the link whose manifest names them."""

    def __init__(self, objects: ObjectStore, links: Links, base: Offset = 0, interval_bytes: int = INTERVAL_BYTES):
        self.objects = objects
        self.links = links
        self.base = base
        self.interval_bytes = interval_bytes
        self.segments: list[SegmentInfo] = []
        self._manifests = 0

    @property
    def end(self) -> Offset:
        return self.segments[-1].end if self.segments else self.base

    async def add(self, bodies: Sequence[Buffer], appended_at_ms: int = 0) -> SegmentInfo:
        """Put these batches into one more segment."""
        tp = self.links.partition
        count = sum(header.count for body in bodies for header, _ in split_batches(body))
        header = SegmentHeader(
            cluster_id="cluster",
            topic=tp.topic,
            topic_id=tp.topic_id,
            partition=tp.partition,
            base_offset=self.end,
            end_offset=self.end + count,
            created_at_ms=10**12,
            appended_at_ms=appended_at_ms,
            compaction_id="job",
        )
        key = f"{keys.partition(tp)}segments/job/{len(self.segments)}"
        encoded = segment.encode(key, header, bodies, interval_bytes=self.interval_bytes)
        await self.objects.put(key, encoded.buffers)
        self.segments.append(encoded.info)
        return encoded.info

    async def link(self, **changes: Any) -> LinkSpec:
        """As the chain has it once all this is published."""
        tp = self.links.partition
        fields: dict[str, Any] = {
            "cluster_id": "cluster",
            "topic": tp.topic,
            "topic_id": tp.topic_id,
            "partition": tp.partition,
            "base": self.base,
            "end": self.end,
            "segments": tuple(self.segments),
        }
        self._manifests += 1
        key = f"{keys.partition(tp)}manifests/{self._manifests}"
        await self.objects.put(key, [manifest.encode(Manifest(**(fields | changes)))])
        return self.spec({"manifest": key})

    def spec(self, params: Mapping[str, Any]) -> LinkSpec:
        return self.links.spec(epoch=self._manifests + 1, base=self.base)._replace(params=params)


class TieredNode:
    """What one process has of the tiered loglet, with faults of its own, and what it asks of the store."""

    def __init__(
        self, objects: ObjectStore, clock: Clock | None = None, settings: TieredSettings | None = None
    ) -> None:
        clock = clock or SystemClock()
        self.faults = Faults()
        self.counted = CountedObjects(FaultyObjects(objects, self.faults), clock)
        self.tasks = Tasks("test")
        self.tiered = Tiered(self.counted, clock, self.tasks, settings or TieredSettings())

    def open(self, link: LinkSpec) -> TieredLoglet:
        return self.tiered.open(link)

    @property
    def gets(self) -> tuple[int, int]:
        """Of whole objects, and of ranges."""
        counts = self.counted.snapshot()
        return counts["get"].requests, counts["range_get"].requests

    @property
    def bytes_read(self) -> int:
        return self.counted.snapshot()["range_get"].bytes
