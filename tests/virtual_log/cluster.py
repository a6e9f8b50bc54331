"""Several nodes on the same stores, in one process, and what tests ask of their logs."""

from __future__ import annotations

from catena.config import Settings
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.memory import MemoryMedium
from catena.node import Node
from catena.runtime import SystemEntropy
from catena.testing.contracts.loglet import values_of
from catena.testing.faults import Faults, FaultyMeta, FaultyObjects
from catena.types import Offset, TopicPartition
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain
from catena.virtual_log.chain_store import ChainStore
from catena.virtual_log.log import VirtualLog
from tests.loglets.stores import Stores

TOPIC = "topic"


class ClusterNode:
    def __init__(self, node: Node, faults: Faults) -> None:
        self.node = node
        self.faults = faults

    async def log(self, partition: int = 0, topic: str = TOPIC) -> VirtualLog:
        return await self.node.log(topic, partition)


class Cluster:
    def __init__(self, stores: Stores) -> None:
        self.stores = stores
        self.medium = MemoryMedium()
        self.chains = ChainStore(stores.meta, stores.clock, SystemEntropy())
        self._topic_exists = False

    async def node(
        self, settings: DisklessSettings | None = None, wrapper: type[FaultyMeta] = FaultyMeta
    ) -> ClusterNode:
        """A node that has just started; there is a topic for it to use."""
        faults = Faults()
        node = await Node.start(
            Settings(diskless=settings or DisklessSettings()),
            wrapper(await self.stores.open_meta(), faults),
            FaultyObjects(self.stores.objects, faults),
            self.stores.clock,
            SystemEntropy(),
            self.medium,
        )
        self.stores.close_at_end(node.close)
        if not self._topic_exists:
            self._topic_exists = True
            await node.topics.create(TOPIC, partitions=100)
        faults.taken.clear()
        return ClusterNode(node, faults)

    async def logs(self, count: int) -> list[VirtualLog]:
        """The same log on so many nodes."""
        return [await (await self.node()).log() for _ in range(count)]

    async def content(self, start: Offset = 0, topic: str = TOPIC) -> list[str]:
        """What a node that has just started reads from `start` to the tail."""
        log = await (await self.node()).log(topic=topic)
        return await read_all(log, start)

    async def index_ends(self, tp: TopicPartition) -> list[Offset]:
        return [entry.end_offset for entry in await self.stores.index(tp)]


def tiered(chain: Chain, boundary: Offset) -> Chain:
    """What a tiering job does to the chain."""
    return chains.finish_tiering(chains.begin_tiering(chain, "job"), "job", chain.links[0].base, boundary, {})


async def read_all(log: VirtualLog, start: Offset = 0) -> list[str]:
    """Read forward, in small steps, from `start` to the tail as it is now."""
    tail, values = await log.tail(), list[str]()
    while start < tail:
        batches = await log.read(start, 500)
        assert batches[0].offset <= start
        values += values_of(batches)[start - batches[0].offset :]
        start = batches[-1].end
    return values
