"""The composition root: stores in, a node out. What is chosen by kind is chosen here, in one `match` each."""

from __future__ import annotations

import asyncio
from collections.abc import Container, Iterable, Sequence
from typing import Any

from catena.config import Settings
from catena.errors import CatenaError, ConfigError, UnknownPartition
from catena.loglets.base import Entry, LinkSpec, Loglet
from catena.loglets.diskless.loglet import Diskless
from catena.loglets.diskless.tail_wire import ConnectTails, tails_in_folder
from catena.loglets.memory import MemoryLoglet, MemoryMedium
from catena.loglets.tiered.loglet import Tiered
from catena.meta.base import MetaStore
from catena.meta.read_only import GuardedMeta
from catena.objects.base import ObjectStore
from catena.objects.read_only import GuardedObjects
from catena.runtime import Clock, Entropy, Tasks
from catena.types import Offset, TopicId
from catena.virtual_log.chain_store import ChainStore
from catena.virtual_log.cluster import join_cluster
from catena.virtual_log.incarnation import IncarnationKeeper
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topics import TopicRecord, Topics


class LogletKinds:
    """One `match` for each question that depends on the kind of a link."""

    def __init__(self, diskless: Diskless, tiered: Tiered, memory: MemoryMedium, clock: Clock) -> None:
        self._diskless = diskless
        self._tiered = tiered
        self._memory = memory
        self._clock = clock

    def params(self, kind: str) -> dict[str, Any]:
        match kind:
            case "diskless":
                return {}
            case "memory":
                return {"medium": self._memory.name}
            case _:
                raise ConfigError(f"this node has no loglet of kind {kind!r}; it has diskless and memory")

    def open(self, kind: str, link: LinkSpec) -> Loglet:
        match kind:
            case "diskless":
                return self._diskless.open(link)
            case "tiered":
                return self._tiered.open(link)
            case "memory":
                return MemoryLoglet(self._memory, link, self._clock)
            case _:
                raise ConfigError(f"{link.partition} has a link of kind {kind!r}, which this node can't open")


class Node:
    """One process's way into the log. It holds nothing that another node could not hold as well."""

    def __init__(
        self,
        cluster_id: str,
        settings: Settings,
        meta: MetaStore,
        objects: ObjectStore,
        clock: Clock,
        entropy: Entropy,
        memory: MemoryMedium,
        incarnation: IncarnationKeeper,
        tails: ConnectTails | None = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.incarnation = incarnation
        """Whoever stays starts it, and closes it after the node."""
        self.meta = meta
        self.objects = objects
        self.clock = clock
        self._chains = ChainStore(meta, clock, entropy)
        if tails is None and settings.diskless.tail_folder and incarnation.branch is not None:
            folder, size = settings.diskless.tail_folder, settings.diskless.tail_ring_bytes
            tails = tails_in_folder(folder, size, f"{cluster_id} {incarnation.branch}", clock, entropy)
        self.diskless = Diskless(meta, objects, clock, entropy, cluster_id, settings.diskless, tails)
        self._tasks = Tasks("node")
        self.tiered = Tiered(objects, clock, self._tasks, settings.tiered)
        self._kinds = LogletKinds(self.diskless, self.tiered, memory, clock)
        self._logs: dict[tuple[str, int], VirtualLog] = {}
        self.topics = Topics(meta, clock, entropy, self.open_log)

    @classmethod
    async def start(
        cls,
        settings: Settings,
        meta: MetaStore,
        objects: ObjectStore,
        clock: Clock,
        entropy: Entropy,
        memory: MemoryMedium | None = None,
        tails: ConnectTails | None = None,
    ) -> Node:
        """Read-only if the meta store was set back.

        `memory` is what the memory loglets of several nodes share; `tails` is how they tell each other what they
        commit, if not in a folder.
        """
        cluster = await join_cluster(meta, objects, clock, entropy)
        medium = memory or MemoryMedium(entropy.hex_id())
        guarded = GuardedMeta(meta)
        incarnation = IncarnationKeeper(meta, objects, clock, guarded)
        await incarnation.check()
        guarded_objects = GuardedObjects(objects, guarded.require_writes)
        return cls(cluster.cluster_id, settings, guarded, guarded_objects, clock, entropy, medium, incarnation, tails)

    async def log(self, topic: str, partition: int) -> VirtualLog:
        """The log of this partition of the topic that has this name now."""
        record = await self.topics.get(topic)
        if not 0 <= partition < record.partitions:
            raise UnknownPartition(topic, partition, record.partitions)
        return self.open_log(record, partition)

    async def append_shared(self, batches: Sequence[tuple[VirtualLog, Entry]]) -> list[Offset | CatenaError]:
        """Append to many partitions at once. Diskless ones share a blob; each has a result of its own, in order."""
        results: list[Offset | CatenaError] = []
        for result in await asyncio.gather(*(log.append(entry) for log, entry in batches), return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, CatenaError):
                raise result
            results.append(result)
        return results

    async def drain(self) -> None:
        """Return once everything that was taken is answered, and nothing of it is left to be written down."""
        await self.diskless.writer.drain()

    async def close(self) -> None:
        """Answer what was taken, then stop. The stores are closed by whoever opened them."""
        await self.diskless.close()
        await self._tasks.close()

    def keep_topics(self, topic_ids: Container[TopicId]) -> None:
        """Forget what is known of the logs of other topics; one that is asked for all the same is opened anew."""
        for at, log in list(self._logs.items()):
            if log.tp.topic_id not in topic_ids:
                self.diskless.forget(log.tp)
                del self._logs[at]

    @property
    def logs(self) -> Iterable[VirtualLog]:
        """Those that were opened here, and are still of use."""
        return self._logs.values()

    def open_log(self, topic: TopicRecord, partition: int) -> VirtualLog:
        """The log of this partition of this very topic."""
        log = self._logs.get((topic.name, partition))
        if log is None or log.tp.topic_id != topic.topic_id:
            if log is not None:
                self.diskless.forget(log.tp)
            log = VirtualLog(topic.partition(partition), topic.kind, self.meta, self._chains, self._kinds, self.clock)
            self._logs[topic.name, partition] = log
        return log
