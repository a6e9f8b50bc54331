"""Requests about groups and their members, between the wire and the coordinator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from catena.broker.base import Client
from catena.broker.coordinator import Coordinator, group_code
from catena.broker.handling import Fault
from catena.cluster.membership import Membership
from catena.cluster.placement import NO_NODE
from catena.errors import CatenaError
from catena.groups.base import GroupView
from catena.groups.classic_values import HeartbeatRequest as Heartbeat
from catena.groups.classic_values import JoinRequest, LeavingMember, Protocol, SyncRequest
from catena.groups.consumer_values import Assignment, ConsumerGroupView, ConsumerHeartbeatRequest
from catena.meta import keys
from catena.runtime import Entropy
from catena.runtime.tasks import map_bounded
from catena.types import TopicId
from catena.virtual_log.topic_view import TopicView
from catena.wire.codes import Code
from catena.wire.messages import consumer_group_describe as consumers
from catena.wire.messages import consumer_group_heartbeat as beat
from catena.wire.messages import describe_groups as classics
from catena.wire.messages import leave_group as leaves
from catena.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from catena.wire.messages.find_coordinator import Coordinator as Found
from catena.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from catena.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from catena.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from catena.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from catena.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from catena.wire.requests import Request

GROUPS_AT_ONCE = 16

OF_GROUPS = 0
OF_TRANSACTIONS = 1

NO_TRANSACTIONS = "transactions are not supported here yet: unset transactional.id (enable.idempotence works)"

_FIRST_JOIN_WITH_REQUIRED_ID = 4
_FIRST_JOIN_WITHOUT_PROTOCOL = 7
_FIRST_JOIN_THAT_SKIPS = 9
_FIRST_FIND_OF_MANY = 4
_FIRST_LEAVE_OF_MANY = 3
_FIRST_DESCRIBE_WITH_NOT_FOUND = 6
_CONSUMER_MEMBER = 1


class Groups:
    def __init__(self, coordinator: Coordinator, membership: Membership, view: TopicView, entropy: Entropy) -> None:
        self._coordinator = coordinator
        self._membership = membership
        self._view = view
        self._entropy = entropy

    async def find_coordinator(self, request: Request, client: Client) -> FindCoordinatorResponse:
        body = cast(FindCoordinatorRequest, request.body)
        if request.version >= _FIRST_FIND_OF_MANY:
            found = [self._find(key, body.key_type, client) for key in body.coordinator_keys]
            return FindCoordinatorResponse(coordinators=found)
        one = self._find(body.key, body.key_type, client)
        return FindCoordinatorResponse(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    async def join_group(self, request: Request, client: Client) -> JoinGroupResponse:
        body = cast(JoinGroupRequest, request.body)
        no_protocol = None if request.version >= _FIRST_JOIN_WITHOUT_PROTOCOL else ""
        if not keys.is_group_id(body.group_id):
            return JoinGroupResponse(
                error_code=Code.INVALID_GROUP_ID, member_id=body.member_id, protocol_name=no_protocol
            )
        asked = JoinRequest(
            member_id=body.member_id,
            instance_id=body.group_instance_id,
            client_id=request.client_id or "",
            client_host=_host(client),
            session_timeout_ms=body.session_timeout_ms,
            rebalance_timeout_ms=body.rebalance_timeout_ms,
            protocol_type=body.protocol_type,
            protocols=tuple(Protocol(protocol.name, protocol.metadata) for protocol in body.protocols),
            require_known_member_id=request.version >= _FIRST_JOIN_WITH_REQUIRED_ID,
            can_skip_assignment=request.version >= _FIRST_JOIN_THAT_SKIPS,
            fresh_hex=self._entropy.hex_id(),
        )
        try:
            joined = await self._coordinator.join(body.group_id, asked)
        except CatenaError as error:
            return JoinGroupResponse(error_code=group_code(error), member_id=body.member_id, protocol_name=no_protocol)
        return JoinGroupResponse(
            error_code=joined.error,
            generation_id=joined.generation,
            protocol_type=joined.protocol_type,
            protocol_name=no_protocol if joined.protocol is None else joined.protocol,
            leader=joined.leader,
            skip_assignment=joined.skip_assignment,
            member_id=joined.member_id,
            members=[
                JoinGroupResponseMember(
                    member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
                )
                for member in joined.members
            ],
        )

    async def sync_group(self, request: Request, _client: Client) -> SyncGroupResponse:
        body = cast(SyncGroupRequest, request.body)
        if not keys.is_group_id(body.group_id):
            return SyncGroupResponse(error_code=Code.INVALID_GROUP_ID)
        asked = SyncRequest(
            member_id=body.member_id,
            generation=body.generation_id,
            instance_id=body.group_instance_id,
            protocol_type=body.protocol_type,
            protocol=body.protocol_name,
            assignments=tuple((given.member_id, given.assignment) for given in body.assignments),
        )
        try:
            synced = await self._coordinator.sync(body.group_id, asked)
        except CatenaError as error:
            return SyncGroupResponse(error_code=group_code(error, Code.COORDINATOR_NOT_AVAILABLE))
        return SyncGroupResponse(
            error_code=synced.error,
            protocol_type=synced.protocol_type,
            protocol_name=synced.protocol,
            assignment=synced.assignment,
        )

    async def heartbeat(self, request: Request, _client: Client) -> HeartbeatResponse:
        body = cast(HeartbeatRequest, request.body)
        if not keys.is_group_id(body.group_id):
            return HeartbeatResponse(error_code=Code.INVALID_GROUP_ID)
        asked = Heartbeat(member_id=body.member_id, generation=body.generation_id, instance_id=body.group_instance_id)
        try:
            answer = await self._coordinator.heartbeat(body.group_id, asked)
        except CatenaError as error:
            return HeartbeatResponse(error_code=group_code(error, Code.COORDINATOR_NOT_AVAILABLE))
        return HeartbeatResponse(error_code=answer.error)

    async def leave_group(self, request: Request, _client: Client) -> leaves.LeaveGroupResponse:
        body = cast(leaves.LeaveGroupRequest, request.body)
        if not keys.is_group_id(body.group_id):
            return leaves.LeaveGroupResponse(error_code=Code.INVALID_GROUP_ID)
        of_many = request.version >= _FIRST_LEAVE_OF_MANY
        leaving: tuple[LeavingMember, ...] = (LeavingMember(member_id=body.member_id),)
        if of_many:
            leaving = tuple(
                LeavingMember(member_id=member.member_id, instance_id=member.group_instance_id)
                for member in body.members
            )
        try:
            left = await self._coordinator.leave(body.group_id, leaving)
        except CatenaError as error:
            return leaves.LeaveGroupResponse(error_code=group_code(error, Code.COORDINATOR_NOT_AVAILABLE))
        if not of_many and left.members:
            return leaves.LeaveGroupResponse(error_code=left.error or left.members[0].error)
        return leaves.LeaveGroupResponse(
            error_code=left.error,
            members=[
                leaves.MemberResponse(
                    member_id=member.member_id, group_instance_id=member.instance_id, error_code=member.error
                )
                for member in left.members
            ],
        )

    async def consumer_group_heartbeat(self, request: Request, client: Client) -> beat.ConsumerGroupHeartbeatResponse:
        body = cast(beat.ConsumerGroupHeartbeatRequest, request.body)
        if not keys.is_group_id(body.group_id):
            return beat.ConsumerGroupHeartbeatResponse(error_code=Code.INVALID_GROUP_ID)
        names, owned = body.subscribed_topic_names, body.topic_partitions
        asked = ConsumerHeartbeatRequest(
            member_id=body.member_id,
            member_epoch=body.member_epoch,
            instance_id=body.instance_id,
            rack_id=body.rack_id,
            rebalance_timeout_ms=body.rebalance_timeout_ms,
            client_id=request.client_id or "",
            client_host=_host(client),
            topic_names=None if names is None else tuple(names),
            topic_regex=body.subscribed_topic_regex,
            assignor=body.server_assignor,
            owned=None if owned is None else _owned(owned),
            fresh_id=self._entropy.hex_id(),
        )
        try:
            answer = await self._coordinator.consumer_heartbeat(body.group_id, asked)
        except CatenaError as error:
            return beat.ConsumerGroupHeartbeatResponse(error_code=group_code(error), error_message=str(error))
        assignment = None
        if answer.assignment is not None:
            assignment = beat.Assignment(
                topic_partitions=[
                    beat.TopicPartitions(topic_id=topic_id, partitions=partitions)
                    for topic_id, partitions in answer.assignment.items()
                ]
            )
        return beat.ConsumerGroupHeartbeatResponse(
            error_code=answer.error,
            error_message=answer.message,
            member_id=answer.member_id,
            member_epoch=answer.member_epoch,
            heartbeat_interval_ms=answer.heartbeat_interval_ms,
            assignment=assignment,
        )

    async def list_groups(self, request: Request, _client: Client) -> ListGroupsResponse:
        body = cast(ListGroupsRequest, request.body)
        states = [state.lower() for state in body.states_filter]
        kinds = [kind.lower() for kind in body.types_filter]
        try:
            groups = await self._coordinator.list_groups()
        except CatenaError as error:
            return ListGroupsResponse(error_code=group_code(error))
        listed = [
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.kind,
            )
            for group in groups
            if (not states or group.state.lower() in states) and (not kinds or group.kind in kinds)
        ]
        return ListGroupsResponse(groups=listed)

    async def describe_groups(self, request: Request, _client: Client) -> classics.DescribeGroupsResponse:
        body = cast(classics.DescribeGroupsRequest, request.body)

        async def describe(group_id: str) -> classics.DescribedGroup:
            view = await self._describe(group_id)
            if isinstance(view, GroupView):
                return _classic(view)
            code, message = view if isinstance(view, Fault) else _not_found("classic", group_id)
            if code is Code.GROUP_ID_NOT_FOUND and request.version < _FIRST_DESCRIBE_WITH_NOT_FOUND:
                code = Code.NONE
            return classics.DescribedGroup(
                group_id=group_id, group_state="Dead", error_code=code, error_message=message
            )

        groups = await map_bounded(GROUPS_AT_ONCE, describe, body.groups)
        return classics.DescribeGroupsResponse(groups=groups)

    async def consumer_group_describe(
        self, request: Request, _client: Client
    ) -> consumers.ConsumerGroupDescribeResponse:
        body = cast(consumers.ConsumerGroupDescribeRequest, request.body)

        async def describe(group_id: str) -> consumers.DescribedGroup:
            view = await self._describe(group_id)
            if isinstance(view, ConsumerGroupView):
                return self._consumer(view)
            code, message = view if isinstance(view, Fault) else _not_found("consumer", group_id)
            return consumers.DescribedGroup(
                group_id=group_id, group_state="Dead", error_code=code, error_message=message
            )

        groups = await map_bounded(GROUPS_AT_ONCE, describe, body.group_ids)
        return consumers.ConsumerGroupDescribeResponse(groups=groups)

    async def delete_groups(self, request: Request, _client: Client) -> DeleteGroupsResponse:
        body = cast(DeleteGroupsRequest, request.body)

        async def delete(group_id: str) -> DeletableGroupResult:
            code: int = Code.INVALID_GROUP_ID
            if keys.is_group_id(group_id):
                try:
                    code = await self._coordinator.delete(group_id)
                except CatenaError as error:
                    code = group_code(error)
            return DeletableGroupResult(group_id=group_id, error_code=code)

        results = await map_bounded(GROUPS_AT_ONCE, delete, body.groups_names)
        return DeleteGroupsResponse(results=results)

    def _find(self, key: str, key_type: int, client: Client) -> Found:
        if key_type == OF_TRANSACTIONS:
            # Of all codes only this one makes librdkafka give up at once and say why; Java clients do so with most.
            return _not_there(key, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS)
        if key_type != OF_GROUPS:
            return _not_there(key, Code.INVALID_REQUEST, f"there are no coordinators of type {key_type} here")
        if not keys.is_group_id(key):
            return _not_there(key, Code.INVALID_GROUP_ID, f"{key!r} can't be a group id here: it is empty or too long")
        if not self._membership.alive:
            return _not_there(key, Code.COORDINATOR_NOT_AVAILABLE, "this node is not in the cluster at the moment")
        view = self._membership.view
        node = view.get(view.placement.coordinator(key))
        address = None if node is None else node.listeners.get(client.listener)
        if node is None or address is None:
            where = "no node is there" if node is None else f"node {node.node_id} has no listener {client.listener!r}"
            return _not_there(key, Code.COORDINATOR_NOT_AVAILABLE, where)
        return Found(key=key, node_id=node.node_id, host=address.host, port=address.port, error_message=None)

    async def _describe(self, group_id: str) -> GroupView | ConsumerGroupView | Fault | None:
        if not keys.is_group_id(group_id):
            return Fault(Code.INVALID_GROUP_ID, f"{group_id!r} can't be a group id here: it is empty or too long")
        try:
            return await self._coordinator.describe(group_id)
        except CatenaError as error:
            return Fault(group_code(error), str(error))

    def _consumer(self, view: ConsumerGroupView) -> consumers.DescribedGroup:
        return consumers.DescribedGroup(
            group_id=view.group_id,
            group_state=view.state,
            group_epoch=view.group_epoch,
            assignment_epoch=view.assignment_epoch,
            assignor_name=view.assignor,
            members=[
                consumers.Member(
                    member_id=member.member_id,
                    instance_id=member.instance_id,
                    rack_id=member.rack_id,
                    member_epoch=member.member_epoch,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    subscribed_topic_names=list(member.topic_names),
                    subscribed_topic_regex=member.topic_regex or None,
                    assignment=self._named(member.assigned),
                    target_assignment=self._named(member.target),
                    member_type=_CONSUMER_MEMBER,
                )
                for member in view.members
            ],
        )

    def _named(self, assignment: Assignment) -> consumers.Assignment:
        """Without topics that were just deleted: nobody can tell their names."""
        return consumers.Assignment(
            topic_partitions=[
                consumers.TopicPartitions(topic_id=topic_id, topic_name=topic.name, partitions=partitions)
                for topic_id, partitions in assignment.items()
                if (topic := self._view.cached_by_id(topic_id)) is not None
            ]
        )


def _not_there(key: str, code: Code, message: str) -> Found:
    return Found(key=key, node_id=NO_NODE, port=-1, error_code=code, error_message=message)


def _not_found(kind: str, group_id: str) -> Fault:
    return Fault(Code.GROUP_ID_NOT_FOUND, f"there is no {kind} group {group_id!r}")


def _classic(view: GroupView) -> classics.DescribedGroup:
    return classics.DescribedGroup(
        group_id=view.group_id,
        group_state=view.state,
        protocol_type=view.protocol_type,
        protocol_data=view.protocol,
        members=[
            classics.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in view.members
        ],
    )


def _owned(topics: Sequence[beat.TopicPartitions]) -> Assignment:
    owned: dict[TopicId, set[int]] = {}
    for topic in topics:
        owned.setdefault(TopicId(topic.topic_id), set()).update(topic.partitions)
    return {topic_id: sorted(partitions) for topic_id, partitions in owned.items()}


def _host(client: Client) -> str:
    """As Kafka shows it."""
    return f"/{client.host}"
