"""Offsets of groups: committed, fetched and deleted, in every version."""

from __future__ import annotations

import asyncio

import pytest

from catena.broker.group_offsets import METADATA_MAX_BYTES
from catena.errors import StoreUnavailable
from catena.testing.faults import Fail, Stall
from catena.wire.codes import Code
from catena.wire.messages import consumer_group_heartbeat as beat
from catena.wire.messages import offset_commit as commits
from catena.wire.messages import offset_delete as deletes
from catena.wire.messages import offset_fetch as fetches
from tests.broker.group_world import SESSION_MS, STATE, GroupNode, GroupWorld, Member

UNKNOWN_ID = "f" * 32


@pytest.fixture
async def node(cluster: GroupWorld) -> GroupNode:
    return await cluster.node(0)


async def commit(node: GroupNode, version: int, *topics: commits.OffsetCommitRequestTopic) -> list[list[int]]:
    body = commits.OffsetCommitRequest(group_id="g", topics=list(topics))
    answer = await node.ask(body, commits.OffsetCommitResponse, version)
    assert [(one.topic_id, one.name) for one in answer.topics] == [(one.topic_id, one.name) for one in topics]
    return [[partition.error_code for partition in topic.partitions] for topic in answer.topics]


def asked(
    topic_id: str, name: str, *partitions: commits.OffsetCommitRequestPartition
) -> commits.OffsetCommitRequestTopic:
    return commits.OffsetCommitRequestTopic(topic_id=topic_id, name=name, partitions=list(partitions))


def partition(number: int, offset: int, metadata: str | None = None) -> commits.OffsetCommitRequestPartition:
    return commits.OffsetCommitRequestPartition(
        partition_index=number, committed_offset=offset, committed_leader_epoch=3, committed_metadata=metadata
    )


async def fetch(
    node: GroupNode, version: int, topic_id: str, name: str, *numbers: int
) -> list[tuple[int, str | None, int]]:
    if version >= 8:
        topics = [fetches.OffsetFetchRequestTopics(topic_id=topic_id, name=name, partition_indexes=list(numbers))]
        group = fetches.OffsetFetchRequestGroup(group_id="g", topics=topics)
        answer = await node.ask(fetches.OffsetFetchRequest(groups=[group]), fetches.OffsetFetchResponse, version)
        [answered] = answer.groups
        assert answered.error_code == Code.NONE
        found = answered.topics[0].partitions
        return [(one.committed_offset, one.metadata, one.error_code) for one in found]
    wanted = fetches.OffsetFetchRequestTopic(name=name, partition_indexes=list(numbers))
    body = fetches.OffsetFetchRequest(group_id="g", topics=[wanted])
    answer = await node.ask(body, fetches.OffsetFetchResponse, version)
    assert answer.error_code == Code.NONE
    return [(one.committed_offset, one.metadata, one.error_code) for one in answer.topics[0].partitions]


@pytest.mark.parametrize("version", range(2, 11))
async def test_a_commit_is_fetched_in_every_version(node: GroupNode, version: int) -> None:
    topic = await node.view.get("t")
    topic_id, name = (topic.topic_id, "") if version >= 10 else ("0" * 32, "t")
    codes = await commit(node, version, asked(topic_id, name, partition(0, 5, "note"), partition(150, 6)))
    assert codes == [[Code.NONE, Code.NONE]]
    for fetching in range(1, 11):
        of = (topic.topic_id, "") if fetching >= 10 else ("0" * 32, "t")
        found = await fetch(node, fetching, *of, 0, 150, 7)
        assert found == [(5, "note", 0), (6, "", 0), (-1, "", 0)]


async def test_a_leader_epoch_comes_back(node: GroupNode) -> None:
    await commit(node, 9, asked("0" * 32, "t", partition(0, 5)))
    topics = [fetches.OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
    body = fetches.OffsetFetchRequest(groups=[fetches.OffsetFetchRequestGroup(group_id="g", topics=topics)])
    [group] = (await node.ask(body, fetches.OffsetFetchResponse, 9)).groups
    assert [one.committed_leader_epoch for one in group.topics[0].partitions] == [3, -1]


async def test_what_can_not_be_committed_does_not_keep_the_rest_from_it(node: GroupNode) -> None:
    codes = await commit(
        node,
        9,
        asked("0" * 32, "t", partition(0, 1), partition(200, 1), partition(-1, 1), partition(1, 1, "m" * 4097)),
        asked("0" * 32, "nothing", partition(0, 1)),
        asked("0" * 32, "no/name", partition(0, 1)),
        asked("0" * 32, "t", partition(2, 1, "m" * METADATA_MAX_BYTES), partition(3, 1, "\0" * METADATA_MAX_BYTES)),
    )
    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    too_large = Code.OFFSET_METADATA_TOO_LARGE
    assert codes == [[0, unknown, unknown, too_large], [unknown], [unknown], [0, too_large]]
    assert [offset for offset, _, _ in await fetch(node, 9, "", "t", 0, 1, 2, 3)] == [1, -1, 1, -1]


async def test_an_unknown_topic_id_is_said_and_an_unknown_name_has_no_offset(node: GroupNode) -> None:
    assert await commit(node, 10, asked(UNKNOWN_ID, "", partition(0, 1))) == [[Code.UNKNOWN_TOPIC_ID]]
    assert await fetch(node, 10, UNKNOWN_ID, "", 0) == [(-1, "", Code.UNKNOWN_TOPIC_ID)]
    assert await fetch(node, 9, "", "nothing", 0) == [(-1, "", Code.NONE)]


async def test_a_partition_that_another_node_has_added_is_known(cluster: GroupWorld, node: GroupNode) -> None:
    topic = await node.view.get("t")
    await cluster.topic("t", partitions=300, topic_id=topic.topic_id)
    assert await commit(node, 9, asked("0" * 32, "t", partition(299, 1))) == [[Code.NONE]]


async def test_a_topic_that_was_made_again_has_no_offsets(cluster: GroupWorld, node: GroupNode) -> None:
    assert await commit(node, 9, asked("0" * 32, "t", partition(0, 5))) == [[Code.NONE]]
    await cluster.topic("t")
    await node.view.refresh()
    assert await fetch(node, 9, "", "t", 0) == [(-1, "", 0)]
    body = fetches.OffsetFetchRequest(groups=[fetches.OffsetFetchRequestGroup(group_id="g", topics=None)])
    [group] = (await node.ask(body, fetches.OffsetFetchResponse)).groups
    assert group.topics == []


@pytest.mark.parametrize("version", [2, 7, 8, 10])
async def test_all_offsets_are_fetched_by_asking_for_none_in_particular(
    cluster: GroupWorld, node: GroupNode, version: int
) -> None:
    other = await cluster.topic("other")
    for topic, number in (("t", 0), ("t", 150), ("other", 1)):
        assert await node.commit("g", 10 + number, topic, number) == Code.NONE
    body = fetches.OffsetFetchRequest(
        group_id="g", topics=None, groups=[fetches.OffsetFetchRequestGroup(group_id="g", topics=None)]
    )
    answer = await node.ask(body, fetches.OffsetFetchResponse, version)
    topics = answer.groups[0].topics if version >= 8 else answer.topics
    found = {topic.name: [(one.partition_index, one.committed_offset) for one in topic.partitions] for topic in topics}
    assert found == {"t": [(0, 10), (150, 160)], "other": [(1, 11)]}
    if version >= 8:
        assert other.topic_id in [topic.topic_id for topic in answer.groups[0].topics]


async def test_many_groups_are_fetched_at_once(node: GroupNode) -> None:
    for number in range(40):
        assert await node.commit(f"g{number}", number) == Code.NONE
    topics = [fetches.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    names = [*(f"g{number}" for number in range(40)), "nobody", ""]
    body = fetches.OffsetFetchRequest(
        groups=[fetches.OffsetFetchRequestGroup(group_id=name, topics=topics) for name in names]
    )
    groups = (await node.ask(body, fetches.OffsetFetchResponse, 9)).groups
    assert [group.group_id for group in groups] == names
    assert [group.topics[0].partitions[0].committed_offset for group in groups] == [*range(40), -1, -1]
    assert [group.error_code for group in groups] == [0] * 41 + [Code.INVALID_GROUP_ID]


async def test_members_commit_and_others_do_not_while_they_are_there(node: GroupNode) -> None:
    member = await node.lone_member("g")
    assert await node.commit_as(member, 1) == Code.NONE
    assert await node.commit("g", 9) == Code.UNKNOWN_MEMBER_ID
    assert await node.commit_as(member._replace(generation=7), 9) == Code.ILLEGAL_GENERATION
    assert await node.commit_as(member._replace(member_id="else"), 9) == Code.UNKNOWN_MEMBER_ID
    assert await node.commit_as(Member("nobody", "m", 1), 9) == Code.GROUP_ID_NOT_FOUND
    assert await node.fetch("g") == 1


async def test_a_consumer_group_member_commits_and_fetches_by_its_epoch(node: GroupNode) -> None:
    body = beat.ConsumerGroupHeartbeatRequest(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    joined = await node.ask(body, beat.ConsumerGroupHeartbeatResponse)
    member = Member("g", "m", joined.member_epoch)
    assert await node.commit_as(member, 4) == Code.NONE
    assert await node.commit_as(member._replace(generation=member.generation + 1), 5) == Code.STALE_MEMBER_EPOCH
    topics = [fetches.OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    for epoch, code, offset in ((member.generation, 0, 4), (member.generation + 1, Code.STALE_MEMBER_EPOCH, -1)):
        group = fetches.OffsetFetchRequestGroup(group_id="g", member_id="m", member_epoch=epoch, topics=topics)
        [answer] = (await node.ask(fetches.OffsetFetchRequest(groups=[group]), fetches.OffsetFetchResponse, 9)).groups
        assert (answer.error_code, answer.topics[0].partitions[0].committed_offset) == (code, offset)


async def test_a_fetch_asks_the_store_whether_the_group_is_still_ours_and_many_share_a_look(node: GroupNode) -> None:
    assert await node.commit("g", 1) == Code.NONE
    before = node.faults.taken[f"get {STATE}"]
    assert await node.fetch("g") == 1
    assert node.faults.taken[f"get {STATE}"] == before + 1
    stall = node.faults.at(f"get {STATE}", Stall())
    first = asyncio.ensure_future(node.fetch("g"))
    await stall.reached.wait()
    others = [asyncio.ensure_future(node.fetch("g")) for _ in range(30)]
    await asyncio.sleep(0)
    stall.let_go()
    assert await asyncio.gather(first, *others) == [1] * 31
    assert node.faults.taken[f"get {STATE}"] == before + 3


async def test_a_fetch_is_not_answered_while_the_store_can_not_be_asked(node: GroupNode) -> None:
    assert await node.commit("g", 1) == Code.NONE
    for nth in range(1, 7):
        node.faults.at(f"get {STATE}", Fail(StoreUnavailable("away")), nth)
    assert await node.fetch("g") is Code.COORDINATOR_LOAD_IN_PROGRESS
    assert await node.fetch("g") == 1


async def delete(node: GroupNode, group: str, *topics: tuple[str, list[int]]) -> deletes.OffsetDeleteResponse:
    body = deletes.OffsetDeleteRequest(
        group_id=group,
        topics=[
            deletes.OffsetDeleteRequestTopic(
                name=name,
                partitions=[deletes.OffsetDeleteRequestPartition(partition_index=number) for number in numbers],
            )
            for name, numbers in topics
        ],
    )
    return await node.ask(body, deletes.OffsetDeleteResponse)


async def test_offsets_are_deleted(node: GroupNode) -> None:
    for number in (0, 1, 150):
        assert await node.commit("g", 5, partition=number) == Code.NONE
    answer = await delete(node, "g", ("t", [0, 150, 500]), ("nothing", [0]))
    assert answer.error_code == Code.NONE
    codes = [[one.error_code for one in topic.partitions] for topic in answer.topics]
    assert codes == [[0, 0, Code.UNKNOWN_TOPIC_OR_PARTITION], [Code.UNKNOWN_TOPIC_OR_PARTITION]]
    assert [await node.fetch("g", partition=number) for number in (0, 1, 150)] == [-1, 5, -1]


async def test_offsets_of_what_is_read_are_not_deleted(node: GroupNode) -> None:
    assert (await delete(node, "nobody", ("t", [0]))).error_code == Code.GROUP_ID_NOT_FOUND
    assert (await delete(node, "nobody")).error_code == Code.GROUP_ID_NOT_FOUND
    assert (await delete(node, "", ("t", [0]))).error_code == Code.INVALID_GROUP_ID
    member = await node.lone_member("g")
    assert await node.commit_as(member, 3) == Code.NONE
    # Its metadata can't be read, so it may subscribe to anything.
    answer = await delete(node, "g", ("t", [0]))
    assert answer.topics[0].partitions[0].error_code == Code.GROUP_SUBSCRIBED_TO_TOPIC
    assert await node.fetch("g") == 3
