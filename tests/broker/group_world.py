"""Nodes that coordinate groups over one meta store, and members that ask them as clients would."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from catena.broker.base import Client, Handler
from catena.broker.coordinator import Coordinator, CoordinatorSettings
from catena.broker.group_offsets import GroupOffsets
from catena.broker.groups import Groups
from catena.cluster.membership import Membership, MembershipSettings
from catena.cluster.placement import Placement
from catena.cluster.view import Address, NodeProfile
from catena.groups.base import GroupSettings
from catena.meta import keys
from catena.meta.base import MetaStore
from catena.meta.memory import MemoryMeta
from catena.meta.sqlite import SqliteMeta
from catena.runtime import Clock, SystemClock, SystemEntropy
from catena.testing.faults import Faults, FaultyMeta, Stall
from catena.types import TopicId
from catena.virtual_log.topic_view import TopicView, TopicViewSettings
from catena.virtual_log.topics import TopicRecord
from catena.wire.codes import Code
from catena.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from catena.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from catena.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from catena.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from catena.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from catena.wire.requests import Request, response_frame
from catena.wire.schema import Message
from tests.broker.world import api_of

M = TypeVar("M", bound=Message)

SESSION_MS = 600_000
QUICK = GroupSettings(initial_rebalance_delay_s=0.0, consumer_session_timeout_s=SESSION_MS / 1000)
STATE = "state"
CHUNK = "0"
"""How fault injection calls the records of a group: by the last part of their keys."""


class FastClock(SystemClock):
    """Runs so many times faster than time, and a test can let it leap forward."""

    SPEED = 50

    def __init__(self) -> None:
        self._leapt_s = 0.0
        self._start_ms = super().now_ms()

    def leap(self, seconds: float) -> None:
        self._leapt_s += seconds

    def now_ms(self) -> int:
        return self._start_ms + int(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return super().monotonic() * self.SPEED + self._leapt_s

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds / self.SPEED)


class Member(NamedTuple):
    """Of a classic group."""

    group: str
    member_id: str
    generation: int


class GroupNode:
    def __init__(
        self,
        membership: Membership,
        view: TopicView,
        coordinator: Coordinator,
        faults: Faults,
        nodes_faults: Faults,
        clock: Clock,
    ) -> None:
        self.membership, self.view, self.coordinator = membership, view, coordinator
        self.faults = faults
        """Of what the coordinator does."""
        self._nodes_faults = nodes_faults
        self._clock = clock
        groups = Groups(coordinator, membership, view, SystemEntropy())
        offsets = GroupOffsets(coordinator, view)
        self._handlers: dict[str, Handler] = {
            "FindCoordinator": groups.find_coordinator,
            "JoinGroup": groups.join_group,
            "SyncGroup": groups.sync_group,
            "Heartbeat": groups.heartbeat,
            "LeaveGroup": groups.leave_group,
            "ListGroups": groups.list_groups,
            "DescribeGroups": groups.describe_groups,
            "DeleteGroups": groups.delete_groups,
            "ConsumerGroupHeartbeat": groups.consumer_group_heartbeat,
            "ConsumerGroupDescribe": groups.consumer_group_describe,
            "OffsetCommit": offsets.offset_commit,
            "OffsetFetch": offsets.offset_fetch,
            "OffsetDelete": offsets.offset_delete,
        }

    async def ask(self, body: Message, response: type[M], version: int | None = None, listener: str = "main") -> M:
        """The answer, which must be one that can be sent in this version; None: the newest."""
        api = api_of(type(body))
        version = api.last if version is None else version
        answer = await self._handlers[api.name](Request(api, version, 1, "test", body), Client("host", listener))
        assert isinstance(answer, response)
        assert response_frame(api, version, 1, answer)
        return answer

    async def blind(self) -> Stall:
        """See no change of the nodes from now on."""
        stall = self._nodes_faults.at("scan ", Stall())
        await stall.reached.wait()
        return stall

    def blind_to_registering(self) -> Stall:
        """Once its session is lost, it can't have another one until it is let go."""
        return self._nodes_faults.at(f"put {self.membership.node_id}", Stall())

    async def sees(self, *nodes: GroupNode) -> None:
        ids = [node.membership.node_id for node in nodes]
        while [node.node_id for node in self.membership.view.nodes] != ids:
            await self.membership.changed(self.membership.view.revision)

    async def comes_back(self) -> None:
        """Wait until it is registered again after its session was lost."""
        while not self.membership.alive:
            await self._clock.sleep(0.1)

    # What members do

    async def join(
        self, group: str, member_id: str = "", topics: bytes = b"", session_ms: int = SESSION_MS
    ) -> JoinGroupResponse:
        """A dynamic member; its id is had first if it has none."""
        body = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=SESSION_MS,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=topics)],
        )
        answer = await self.ask(body, JoinGroupResponse)
        if answer.error_code == Code.MEMBER_ID_REQUIRED:
            return await self.join(group, answer.member_id, topics, session_ms)
        return answer

    async def sync(self, member: Member, assignments: dict[str, bytes] | None = None) -> SyncGroupResponse:
        given = [SyncGroupRequestAssignment(member_id=to, assignment=what) for to, what in (assignments or {}).items()]
        body = SyncGroupRequest(
            group_id=member.group,
            generation_id=member.generation,
            member_id=member.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=given,
        )
        return await self.ask(body, SyncGroupResponse)

    async def heartbeat(self, member: Member) -> int:
        body = HeartbeatRequest(group_id=member.group, generation_id=member.generation, member_id=member.member_id)
        return (await self.ask(body, HeartbeatResponse)).error_code

    async def lone_member(self, group: str, session_ms: int = SESSION_MS) -> Member:
        """Of a stable group in which nobody else is."""
        joined = await self.join(group, session_ms=session_ms)
        assert joined.error_code == Code.NONE
        member = Member(group, joined.member_id, joined.generation_id)
        synced = await self.sync(member, {member.member_id: b"all"})
        assert (synced.error_code, synced.assignment) == (Code.NONE, b"all")
        return member

    async def commit(self, group: str, offset: int, topic: str = "t", partition: int = 0, metadata: str = "") -> int:
        """By nobody of the group."""
        return await self._commit(OffsetCommitRequest(group_id=group), topic, partition, offset, metadata)

    async def commit_as(self, member: Member, offset: int, topic: str = "t", partition: int = 0) -> int:
        body = OffsetCommitRequest(
            group_id=member.group, generation_id_or_member_epoch=member.generation, member_id=member.member_id
        )
        return await self._commit(body, topic, partition, offset, "")

    async def _commit(self, body: OffsetCommitRequest, topic: str, partition: int, offset: int, metadata: str) -> int:
        one = OffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        body.topics = [OffsetCommitRequestTopic(name=topic, partitions=[one])]
        answer = await self.ask(body, OffsetCommitResponse, version=9)
        return answer.topics[0].partitions[0].error_code

    async def fetch(self, group: str, topic: str = "t", partition: int = 0) -> int | Code:
        """The offset, or the group's error."""
        wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])
        body = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])])
        answer = (await self.ask(body, OffsetFetchResponse, version=9)).groups[0]
        if answer.error_code:
            return Code(answer.error_code)
        assert answer.topics[0].partitions[0].error_code == Code.NONE
        return answer.topics[0].partitions[0].committed_offset


class GroupWorld:
    def __init__(self, can_transact: bool, opened: AsyncExitStack, folder: Path | None = None) -> None:
        """In memory, or in a database file that every node opens for itself."""
        self.clock = FastClock()
        self.can_transact = can_transact
        self._path = None if folder is None else folder / "meta.db"
        self._memory = MemoryMeta(self.clock, can_transact)
        self.write_step = "transact" if can_transact else f"put {CHUNK}"
        """The step that stores the offset of a partition below 100."""
        self._opened = opened
        self.meta = self._open_meta()

    def _open_meta(self) -> MetaStore:
        if self._path is None:
            return self._memory
        # With the real time: it polls.
        meta = SqliteMeta(self._path, SystemClock(), SystemEntropy(), self.can_transact)
        self._opened.push_async_callback(meta.close)
        return meta

    async def topic(self, name: str, partitions: int = 10, topic_id: str = "") -> TopicRecord:
        record = TopicRecord(name, TopicId(topic_id or SystemEntropy().hex_id()), partitions, "diskless", 0)
        await self.meta.put(keys.topic(name), msgspec.json.encode(record))
        return record

    async def node(self, node_id: int, settings: CoordinatorSettings | None = None) -> GroupNode:
        faults, nodes_faults = Faults(), Faults()
        store = self._open_meta()
        meta = FaultyMeta(store, faults)
        membership = await Membership.join(
            FaultyMeta(store, nodes_faults),
            self.clock,
            SystemEntropy(),
            NodeProfile(listeners={"main": Address(f"host-{node_id}", 9092)}),
            node_id,
            MembershipSettings(session_ttl_ms=600_000, refresh_ms=1_000),
        )
        self._opened.push_async_callback(membership.close)
        view = TopicView(store, self.clock, TopicViewSettings(refresh_ms=1_000))
        await view.start()
        self._opened.push_async_callback(view.close)
        coordinator = Coordinator(
            meta, membership, view, self.clock, SystemEntropy(), settings or CoordinatorSettings(limits=QUICK)
        )
        await coordinator.start()
        self._opened.push_async_callback(coordinator.close)
        return GroupNode(membership, view, coordinator, faults, nodes_faults, self.clock)


def group_of(node: GroupNode, *others: GroupNode, but_not: tuple[str, ...] = ()) -> str:
    """A group that `node` coordinates when it and the others are there."""
    placement = Placement([one.membership.node_id for one in (node, *others)])
    names = (f"group {number}" for number in range(10_000))
    return next(
        name for name in names if placement.coordinator(name) == node.membership.node_id and name not in but_not
    )


async def settle() -> None:
    """Let everybody run who can."""
    for _ in range(20):
        await asyncio.sleep(0)
