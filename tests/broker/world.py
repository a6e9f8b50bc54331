"""Nodes that share their stores, with the handlers that a broker has, and a way to ask them as a client would."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

from catena.broker.base import Client, Handler, TopicDefaults
from catena.broker.configs import Configs
from catena.broker.describe import Describe
from catena.broker.metadata import Metadata
from catena.broker.offsets import Offsets
from catena.broker.topic_admin import TopicAdmin
from catena.cluster.membership import Membership, MembershipSettings
from catena.cluster.view import ROLES, Address, NodeProfile
from catena.config import Settings
from catena.loglets.memory import MemoryMedium
from catena.meta.base import MetaStore
from catena.meta.memory import MemoryMeta
from catena.meta.sqlite import SqliteMeta
from catena.node import Node
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.faults import Faults, FaultyMeta
from catena.virtual_log.topic_view import TopicView
from catena.wire.apis import APIS, Api
from catena.wire.requests import Request, response_frame
from catena.wire.schema import Message

MAIN = {"main": Address("main-host", 9092)}
LONG_MS = 600_000
M = TypeVar("M", bound=Message)


class LeapingClock(SystemClock):
    def __init__(self) -> None:
        self._leapt_s = 0.0

    def leap(self, seconds: float) -> None:
        self._leapt_s += seconds

    def now_ms(self) -> int:
        return super().now_ms() + int(self._leapt_s * 1000)

    def monotonic(self) -> float:
        return super().monotonic() + self._leapt_s


class BrokerNode:
    def __init__(
        self, node: Node, membership: Membership, view: TopicView, faults: Faults, defaults: TopicDefaults
    ) -> None:
        self.node, self.membership, self.view, self.faults = node, membership, view, faults
        metadata = Metadata(node.cluster_id, membership, node.topics, view, node.open_log, node.clock, defaults)
        admin = TopicAdmin(membership, node.topics, view, node.open_log, defaults)
        configs = Configs(membership, node.topics, view, defaults)
        offsets = Offsets(view, node.open_log)
        describe = Describe(membership, view, node.open_log, node.meta, node.clock)
        self._handlers: dict[str, Handler] = {
            "Metadata": metadata.metadata,
            "DescribeCluster": metadata.describe_cluster,
            "DescribeTopicPartitions": metadata.describe_topic_partitions,
            "CreateTopics": admin.create_topics,
            "DeleteTopics": admin.delete_topics,
            "CreatePartitions": admin.create_partitions,
            "DeleteRecords": admin.delete_records,
            "DescribeConfigs": configs.describe_configs,
            "AlterConfigs": configs.alter_configs,
            "IncrementalAlterConfigs": configs.incremental_alter_configs,
            "ListOffsets": offsets.list_offsets,
            "OffsetForLeaderEpoch": offsets.offset_for_leader_epoch,
            "DescribeLogDirs": describe.describe_log_dirs,
            "DescribeProducers": describe.describe_producers,
        }

    async def ask(self, body: Message, response: type[M], version: int | None = None, listener: str = "main") -> M:
        """The answer, which must be one that can be sent in this version; None: the newest."""
        api = api_of(type(body))
        version = api.last if version is None else version
        assert api.first <= version <= api.last
        answer = await self._handlers[api.name](Request(api, version, 1, "test", body), Client("client", listener))
        assert isinstance(answer, response)
        assert response_frame(api, version, 1, answer)
        return answer


class World:
    def __init__(self, backend: str, folder: Path, opened: AsyncExitStack) -> None:
        self.clock = LeapingClock()
        self._path = folder / "meta.db" if backend == "sqlite" else None
        self._memory = MemoryMeta(self.clock)
        self._objects = MemoryObjects(self.clock)
        self._medium = MemoryMedium()
        self._opened = opened

    async def node(
        self,
        node_id: int | None = None,
        listeners: Mapping[str, Address] = MAIN,
        rack: str | None = None,
        defaults: TopicDefaults | None = None,
        roles: tuple[str, ...] = ROLES,
    ) -> BrokerNode:
        store: MetaStore = self._memory
        if self._path is not None:
            store = SqliteMeta(self._path, self.clock, SystemEntropy())
            self._opened.push_async_callback(store.close)
        faults = Faults()
        meta = FaultyMeta(store, faults)
        node = await Node.start(Settings(), meta, self._objects, self.clock, SystemEntropy(), self._medium)
        self._opened.push_async_callback(node.close)
        profile = NodeProfile(listeners=dict(listeners), rack=rack, roles=roles)
        membership = await Membership.join(
            meta,
            self.clock,
            SystemEntropy(),
            profile,
            node_id,
            MembershipSettings(session_ttl_ms=LONG_MS, refresh_ms=100),
        )
        self._opened.push_async_callback(membership.close)
        view = TopicView(meta, self.clock)
        await view.start()
        self._opened.push_async_callback(view.close)
        return BrokerNode(node, membership, view, faults, defaults or TopicDefaults())

    async def together(self, *nodes: BrokerNode) -> None:
        """Wait until all of them see each other."""
        for node in nodes:
            while len(node.membership.view.nodes) < len(nodes):
                await node.membership.changed(node.membership.view.revision)


def api_of(request: type[Message]) -> Api:
    return next(api for api in APIS.values() if api.request is request)
