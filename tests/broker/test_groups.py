"""Requests about groups, version by version where versions differ."""

from __future__ import annotations

import asyncio

import pytest

from catena.broker.groups import NO_TRANSACTIONS
from catena.wire.codes import Code
from catena.wire.messages import consumer_group_describe as consumers
from catena.wire.messages import consumer_group_heartbeat as beat
from catena.wire.messages import describe_groups as classics
from catena.wire.messages import leave_group as leaves
from catena.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from catena.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from catena.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from catena.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from catena.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from catena.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from tests.broker.group_world import SESSION_MS, GroupNode, GroupWorld, Member, group_of


@pytest.fixture
async def node(cluster: GroupWorld) -> GroupNode:
    return await cluster.node(0)


async def consumer(node: GroupNode, group: str, member_id: str = "m") -> beat.ConsumerGroupHeartbeatResponse:
    body = beat.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    return await node.ask(body, beat.ConsumerGroupHeartbeatResponse)


@pytest.mark.parametrize("version", range(7))
async def test_a_coordinator_is_found_by_any_node_at_the_address_of_the_listener(
    cluster: GroupWorld, version: int
) -> None:
    one, two = await cluster.node(0), await cluster.node(1)
    await one.sees(one, two)
    await two.sees(one, two)
    for asked in (one, two):
        for owner, others in ((one, two), (two, one)):
            group = group_of(owner, others)
            body = FindCoordinatorRequest(key=group, coordinator_keys=[group])
            answer = await asked.ask(body, FindCoordinatorResponse, version)
            found = answer.coordinators[0] if version >= 4 else answer
            node_id = owner.membership.node_id
            assert (found.error_code, found.node_id, found.host, found.port) == (0, node_id, f"host-{node_id}", 9092)


@pytest.mark.parametrize(
    ("key", "key_type", "code"),
    [
        ("tx", 1, Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ("share", 2, Code.INVALID_REQUEST),
        ("", 0, Code.INVALID_GROUP_ID),
        ("g" * 300, 0, Code.INVALID_GROUP_ID),
    ],
)
@pytest.mark.parametrize("version", [1, 6])
async def test_what_has_no_coordinator(node: GroupNode, key: str, key_type: int, code: Code, version: int) -> None:
    body = FindCoordinatorRequest(key=key, key_type=key_type, coordinator_keys=[key])
    answer = await node.ask(body, FindCoordinatorResponse, version)
    found = answer.coordinators[0] if version >= 4 else answer
    assert (found.error_code, found.node_id) == (code, -1)
    assert found.error_message
    assert (found.error_message == NO_TRANSACTIONS) == (key_type == 1)


async def test_a_coordinator_without_the_listener_is_not_available(node: GroupNode) -> None:
    body = FindCoordinatorRequest(coordinator_keys=["g"])
    [found] = (await node.ask(body, FindCoordinatorResponse, listener="other")).coordinators
    assert found.error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert "other" in (found.error_message or "")


async def test_a_node_without_a_session_knows_no_coordinators(cluster: GroupWorld, node: GroupNode) -> None:
    stall = node.blind_to_registering()
    cluster.clock.leap(700)
    [found] = (await node.ask(FindCoordinatorRequest(coordinator_keys=["g"]), FindCoordinatorResponse)).coordinators
    assert found.error_code == Code.COORDINATOR_NOT_AVAILABLE
    stall.let_go()


@pytest.mark.parametrize("version", range(10))
async def test_a_member_joins_syncs_beats_and_leaves_in_every_version(node: GroupNode, version: int) -> None:
    body = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS if version else -1,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"topics")],
    )
    joined = await node.ask(body, JoinGroupResponse, version)
    if version >= 4:
        assert joined.error_code == Code.MEMBER_ID_REQUIRED
        body.member_id = joined.member_id
        joined = await node.ask(body, JoinGroupResponse, version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (Code.NONE, 1, joined.member_id)
    assert (joined.protocol_name, joined.protocol_type) == ("range", "consumer")
    assert [(member.member_id, member.metadata) for member in joined.members] == [(joined.member_id, b"topics")]

    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id, assignments=[share])
    synced = await node.ask(sync, SyncGroupResponse, min(version, 5))
    assert (synced.error_code, synced.assignment) == (Code.NONE, b"share")
    alive = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert (await node.ask(alive, HeartbeatResponse, min(version, 4))).error_code == Code.NONE

    leaver = leaves.MemberIdentity(member_id=joined.member_id)
    leave = leaves.LeaveGroupRequest(group_id="g", member_id=joined.member_id, members=[leaver])
    for code in (Code.NONE, Code.UNKNOWN_MEMBER_ID):
        left = await node.ask(leave, leaves.LeaveGroupResponse, min(version, 5))
        if version >= 3:
            assert left.error_code == Code.NONE
            assert [(one.member_id, one.error_code) for one in left.members] == [(joined.member_id, code)]
        else:
            assert left.error_code == code


async def test_a_static_member_that_comes_back_keeps_its_place(node: GroupNode) -> None:
    body = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        group_instance_id="i",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    joined = await node.ask(body, JoinGroupResponse)
    assert joined.error_code == Code.NONE
    share = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"share")
    sync = SyncGroupRequest(
        group_id="g",
        generation_id=1,
        member_id=joined.member_id,
        group_instance_id="i",
        assignments=[share],
        protocol_type="consumer",
        protocol_name="range",
    )
    await node.ask(sync, SyncGroupResponse)
    again = await node.ask(body, JoinGroupResponse)
    assert (again.error_code, again.generation_id, again.skip_assignment) == (Code.NONE, 1, True)
    alive = HeartbeatRequest(group_id="g", generation_id=1, member_id=joined.member_id, group_instance_id="i")
    assert (await node.ask(alive, HeartbeatResponse)).error_code == Code.FENCED_INSTANCE_ID


async def test_nothing_is_done_for_what_is_no_group_id(node: GroupNode) -> None:
    for name in ("", "g" * 256):
        assert (await node.join(name)).error_code == Code.INVALID_GROUP_ID
        member = Member(name, "m", 1)
        assert (await node.sync(member)).error_code == Code.INVALID_GROUP_ID
        assert await node.heartbeat(member) == Code.INVALID_GROUP_ID
        left = await node.ask(leaves.LeaveGroupRequest(group_id=name), leaves.LeaveGroupResponse)
        assert left.error_code == Code.INVALID_GROUP_ID
        assert (await consumer(node, name)).error_code == Code.INVALID_GROUP_ID
        deleted = await node.ask(DeleteGroupsRequest(groups_names=[name]), DeleteGroupsResponse)
        assert deleted.results[0].error_code == Code.INVALID_GROUP_ID
        [found] = (
            await node.ask(classics.DescribeGroupsRequest(groups=[name]), classics.DescribeGroupsResponse)
        ).groups
        assert found.error_code == Code.INVALID_GROUP_ID


async def test_a_group_is_described(node: GroupNode) -> None:
    member = await node.lone_member("g")
    body = classics.DescribeGroupsRequest(groups=["g", "nobody"])
    found, missing = (await node.ask(body, classics.DescribeGroupsResponse)).groups
    assert (found.error_code, found.group_state, found.protocol_type) == (Code.NONE, "Stable", "consumer")
    assert found.protocol_data == "range"
    [described] = found.members
    assert (described.member_id, described.client_id, described.client_host) == (member.member_id, "test", "/host")
    assert described.member_assignment == b"all"
    assert (missing.error_code, missing.group_state) == (Code.GROUP_ID_NOT_FOUND, "Dead")
    assert "nobody" in (missing.error_message or "")
    older = await node.ask(body, classics.DescribeGroupsResponse, version=5)
    assert [(one.error_code, one.group_state) for one in older.groups] == [(0, "Stable"), (0, "Dead")]


async def test_a_consumer_group_is_described_by_its_own_request_only(node: GroupNode) -> None:
    joined = await consumer(node, "g")
    assert joined.error_code == Code.NONE
    await node.lone_member("classic")
    topic = await node.view.get("t")
    body = consumers.ConsumerGroupDescribeRequest(group_ids=["g", "classic", "nobody"])
    while True:
        found, classic, missing = (await node.ask(body, consumers.ConsumerGroupDescribeResponse)).groups
        assert (found.error_code, found.assignor_name) == (Code.NONE, "uniform")
        [member] = found.members
        if member.target_assignment.topic_partitions:
            break
        await asyncio.sleep(0)
    [share] = member.target_assignment.topic_partitions
    assert (share.topic_id, share.topic_name, len(share.partitions)) == (topic.topic_id, "t", 200)
    assert (member.subscribed_topic_names, member.member_type, member.client_host) == (["t"], 1, "/host")
    assert (classic.error_code, missing.error_code) == (Code.GROUP_ID_NOT_FOUND, Code.GROUP_ID_NOT_FOUND)
    other = await node.ask(classics.DescribeGroupsRequest(groups=["g"]), classics.DescribeGroupsResponse)
    assert other.groups[0].error_code == Code.GROUP_ID_NOT_FOUND


async def test_a_group_of_one_kind_is_not_mixed_with_the_other(node: GroupNode) -> None:
    member = await node.lone_member("classic")
    assert (await consumer(node, "classic")).error_code == Code.GROUP_ID_NOT_FOUND
    assert await node.heartbeat(member) == Code.NONE
    await consumer(node, "g")
    assert (await node.join("g")).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert await node.heartbeat(Member("g", "m", 1)) == Code.UNKNOWN_MEMBER_ID


async def test_groups_are_listed_with_filters(node: GroupNode) -> None:
    await node.lone_member("stable")
    assert await node.commit("offsets only", 1) == Code.NONE
    await consumer(node, "consumer")

    async def listed(version: int, states: list[str], types: list[str]) -> dict[str, tuple[str, str, str]]:
        body = ListGroupsRequest(states_filter=states, types_filter=types)
        answer = await node.ask(body, ListGroupsResponse, version)
        assert answer.error_code == Code.NONE
        return {one.group_id: (one.protocol_type, one.group_state, one.group_type) for one in answer.groups}

    everything = await listed(5, [], [])
    assert everything["stable"] == ("consumer", "Stable", "classic")
    assert everything["offsets only"] == ("", "Empty", "classic")
    assert everything["consumer"][0::2] == ("consumer", "consumer")
    assert list(await listed(0, [], [])) == ["consumer", "offsets only", "stable"]
    assert list(await listed(4, ["empty"], [])) == ["offsets only"]
    assert list(await listed(5, [], ["Classic"])) == ["offsets only", "stable"]
    assert list(await listed(5, ["Stable"], ["classic"])) == ["stable"]


async def test_every_group_is_listed_by_one_node_also_if_it_is_not_loaded(cluster: GroupWorld, node: GroupNode) -> None:
    for number in range(20):
        assert await node.commit(f"g{number:02d}", 1) == Code.NONE
    two = await cluster.node(1)
    await node.sees(node, two)
    await two.sees(node, two)
    answers = [(await one.ask(ListGroupsRequest(), ListGroupsResponse)).groups for one in (node, two)]
    names = [[group.group_id for group in groups] for groups in answers]
    assert all(names)
    assert sorted(names[0] + names[1]) == [f"g{number:02d}" for number in range(20)]


async def test_groups_are_deleted_if_nobody_is_in_them(node: GroupNode) -> None:
    assert await node.commit("empty", 1) == Code.NONE
    member = await node.lone_member("busy")
    body = DeleteGroupsRequest(groups_names=["empty", "busy", "nobody"])
    results = (await node.ask(body, DeleteGroupsResponse)).results
    assert [result.error_code for result in results] == [Code.NONE, Code.NON_EMPTY_GROUP, Code.GROUP_ID_NOT_FOUND]
    assert await node.fetch("empty") == -1
    assert await node.heartbeat(member) == Code.NONE
    assert [one.group_id for one in (await node.ask(ListGroupsRequest(), ListGroupsResponse)).groups] == ["busy"]
    [again] = (await node.ask(DeleteGroupsRequest(groups_names=["empty"]), DeleteGroupsResponse)).results
    assert again.error_code == Code.GROUP_ID_NOT_FOUND
    await node.lone_member("empty")
    assert await node.fetch("empty") == -1


async def test_a_consumer_joins_without_an_id_in_version_0(node: GroupNode) -> None:
    body = beat.ConsumerGroupHeartbeatRequest(
        group_id="g", rebalance_timeout_ms=SESSION_MS, subscribed_topic_names=["t"], topic_partitions=[]
    )
    joined = await node.ask(body, beat.ConsumerGroupHeartbeatResponse, version=0)
    assert joined.error_code == Code.NONE
    assert joined.member_id
    unknown = beat.ConsumerGroupHeartbeatRequest(group_id="g", member_id="else", member_epoch=5)
    refused = await node.ask(unknown, beat.ConsumerGroupHeartbeatResponse)
    assert refused.error_code == Code.UNKNOWN_MEMBER_ID
    assert refused.error_message
