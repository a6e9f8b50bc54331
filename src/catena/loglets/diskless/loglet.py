"""The diskless loglet: a link whose bytes are in object storage and which has no leader: any node appends and reads.

`Diskless` is what a node has once: writer, reader, caches. A `DisklessLoglet` is one link of one partition, and holds
nothing but its spec.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from catena.loglets.base import Batch, Entry, Extent, LinkSpec, Run, SealResult, Stored, Tail
from catena.loglets.diskless.blobs import BlobReader
from catena.loglets.diskless.commit import Committer, CommitWay
from catena.loglets.diskless.commit_by_group import CommitByGroup
from catena.loglets.diskless.commit_by_pending import CommitByPending
from catena.loglets.diskless.counts import TailCounts
from catena.loglets.diskless.partition import Partition
from catena.loglets.diskless.reader import Reader
from catena.loglets.diskless.seal import seal
from catena.loglets.diskless.tail_cache import TailCache
from catena.loglets.diskless.tail_sharing import TailSharing
from catena.loglets.diskless.tail_wire import ConnectTails
from catena.loglets.diskless.writer import AtLeast0, Writer, WriterSettings
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Entropy, Tasks
from catena.types import Offset, TopicPartition


class DisklessSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    writer: WriterSettings = WriterSettings()
    tail_cache_bytes: AtLeast0 = 64 << 20
    blob_cache_bytes: AtLeast0 = 128 << 20
    tail_folder: str = ""
    """Where processes of one host tell each other what they commit; empty: nowhere."""
    tail_ring_bytes: Annotated[int, msgspec.Meta(ge=1 << 20, le=4 << 30)] = 64 << 20
    """Of each process that commits, in that folder."""


class Diskless:
    def __init__(
        self,
        meta: MetaStore,
        objects: ObjectStore,
        clock: Clock,
        entropy: Entropy,
        cluster_id: str,
        settings: DisklessSettings,
        tails: ConnectTails | None = None,
    ) -> None:
        """`tails`: how processes of this host tell each other what they commit; None: they do not."""
        self.meta = meta
        self.clock = clock
        self._tasks = Tasks("diskless")
        self._partitions: dict[TopicPartition, Partition] = {}
        way: CommitWay = (CommitByGroup if meta.can_transact else CommitByPending)(meta, clock, entropy)
        self.tail_cache = tail_cache = TailCache(settings.tail_cache_bytes)
        self.tail_sharing = None if tails is None else TailSharing(tails, tail_cache, clock)
        publish = None if self.tail_sharing is None else self.tail_sharing.publish
        self.committer = Committer(way, tail_cache, clock, self._tasks, publish)
        self.writer = Writer(objects, self.committer, clock, entropy, self._tasks, cluster_id, settings.writer)
        self.blobs = BlobReader(objects, clock, self._tasks, settings.blob_cache_bytes)
        self.reader = Reader(meta, self.blobs, tail_cache, clock, self._tasks, self.tail_sharing)

    def open(self, link: LinkSpec) -> DisklessLoglet:
        partition = self._partitions.get(link.partition)
        if partition is None:
            partition = self._partitions[link.partition] = Partition(link.partition)
        partition.epoch = max(partition.epoch, link.epoch)
        return DisklessLoglet(self, partition, link)

    def forget(self, tp: TopicPartition) -> None:
        """The topic is gone; what is cached of it is of no use."""
        if (partition := self._partitions.pop(tp, None)) is not None:
            self.reader.forget(partition)
            if self.tail_sharing is not None:
                self.tail_sharing.forget(partition)

    def tail_counts(self) -> TailCounts:
        return TailCounts() if self.tail_sharing is None else self.tail_sharing.counts()

    async def close(self) -> None:
        """Answer what was taken, then stop."""
        await self.writer.close()
        if self.tail_sharing is not None:
            await self.tail_sharing.close()
        await self._tasks.close()


class DisklessLoglet:
    def __init__(self, node: Diskless, partition: Partition, link: LinkSpec) -> None:
        self._node = node
        self._partition = partition
        self._link = link

    async def append(self, entry: Entry) -> Offset:
        return await self._node.writer.append(self._partition, self._link, entry)

    async def append_stored(self, stored: Stored) -> Offset:
        return await self._node.writer.append_stored(self._partition, self._link, stored)

    async def read(self, offset: Offset, max_bytes: int) -> list[Batch]:
        return await self._node.reader.read(self._partition, self._link, offset, max_bytes)

    async def tail(self) -> Tail:
        return await self._node.reader.tail(self._partition, self._link)

    async def wait_for_tail(self, beyond: Offset) -> Offset | None:
        return await self._node.reader.wait_for_tail(self._partition, self._link, beyond)

    async def find_time(self, timestamp_ms: int, start: Offset) -> Offset | None:
        return await self._node.reader.find_time(self._partition, timestamp_ms, start)

    async def find_max_time(self, start: Offset, end: Offset | None) -> Offset | None:
        return await self._node.reader.find_max_time(self._partition, start, end)

    async def runs(self, start: Offset, limit: int) -> list[Run]:
        return await self._node.reader.runs(self._partition, start, limit)

    async def extents(self, start: Offset, end: Offset, limit: int) -> list[Extent]:
        return await self._node.reader.extents(self._partition, start, end, limit)

    async def seal(self) -> SealResult:
        return await seal(self._node.meta, self._node.clock, self._link)

    async def trim(self, offset: Offset) -> None:
        tp = self._link.partition
        await self._node.meta.delete_range(keys.index_prefix(tp), keys.index(tp, offset))

    async def close(self) -> None:
        pass
