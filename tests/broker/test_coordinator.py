"""Two coordinators over one store: a group moves from one to the other, and who has lost it can change nothing."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec
import pytest

from catena.broker import coordinator
from catena.broker.coordinator import Committer, CoordinatorSettings, NewOffset
from catena.broker.group_store import decode_state
from catena.errors import Conflict, OutcomeUnknown, StoreUnavailable
from catena.groups.base import GroupError
from catena.meta import keys
from catena.meta.base import Record
from catena.testing.faults import Fail, Late, Stall
from catena.wire.codes import Code
from catena.wire.messages import consumer_group_heartbeat as beat
from catena.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from catena.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from tests.broker.group_world import QUICK, SESSION_MS, STATE, GroupNode, GroupWorld, Member, group_of, settle

DAY_S = 24 * 3600


async def pair(cluster: GroupWorld) -> tuple[GroupNode, GroupNode]:
    one, two = await cluster.node(0), await cluster.node(1)
    await one.sees(one, two)
    await two.sees(one, two)
    return one, two


async def state_of(node: GroupNode, group: str) -> str:
    listed = await node.ask(ListGroupsRequest(), ListGroupsResponse)
    return next((found.group_state for found in listed.groups if found.group_id == group), "none")


async def test_a_stable_group_survives_its_coordinator_without_a_rebalance(cluster: GroupWorld) -> None:
    one, two = await pair(cluster)
    group = group_of(one, two)
    member = await one.lone_member(group)
    assert await one.commit_as(member, 7) == Code.NONE
    assert await two.heartbeat(member) == Code.NOT_COORDINATOR

    await one.membership.close()
    await two.sees(two)
    assert await two.heartbeat(member) == Code.NONE
    assert (await two.sync(member)).assignment == b"all"
    assert await two.fetch(group) == 7
    assert await two.commit_as(member, 8) == Code.NONE
    assert await two.fetch(group) == 8


async def test_a_group_goes_to_a_node_that_comes_and_whoever_waits_is_sent_there(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    blind = await one.blind()
    two = await cluster.node(1)
    group = group_of(two, one)
    await one.lone_member(group)
    # The second member has to wait for the first one to join again.
    waiting = asyncio.ensure_future(one.join(group))
    await settle()
    assert not waiting.done()
    blind.let_go()
    assert (await waiting).error_code == Code.NOT_COORDINATOR
    await two.sees(one, two)
    assert await state_of(two, group) == "Stable"


async def test_a_coordinator_that_does_not_know_that_it_was_replaced_changes_and_tells_nothing(
    cluster: GroupWorld,
) -> None:
    one = await cluster.node(0)
    blind = await one.blind()
    two = await cluster.node(1)
    await two.sees(one, two)
    group = group_of(two, one)
    member = await one.lone_member(group)
    assert await one.commit_as(member, 10) == Code.NONE
    assert await one.fetch(group) == 10

    assert await two.heartbeat(member) == Code.NONE
    assert await two.commit_as(member, 20) == Code.NONE

    assert await one.heartbeat(member) == Code.NONE
    assert await one.fetch(group) is Code.NOT_COORDINATOR
    blind.let_go()
    await one.sees(one, two)
    assert await one.fetch(group) is Code.NOT_COORDINATOR
    assert await two.fetch(group) == 20


@pytest.mark.parametrize("act", ["commit", "join", "delete"])
async def test_every_write_of_a_replaced_coordinator_is_refused(cluster: GroupWorld, act: str) -> None:
    one = await cluster.node(0)
    await one.blind()
    two = await cluster.node(1)
    await two.sees(one, two)
    group = group_of(two, one)
    assert await one.commit(group, 10) == Code.NONE
    assert await two.commit(group, 20) == Code.NONE
    before = await everything(cluster)

    if act == "commit":
        assert await one.commit(group, 11) == Code.NOT_COORDINATOR
    elif act == "join":
        assert (await one.join(group)).error_code == Code.NOT_COORDINATOR
    else:
        deleted = await one.ask(DeleteGroupsRequest(groups_names=[group]), DeleteGroupsResponse)
        assert deleted.results[0].error_code == Code.NOT_COORDINATOR
    assert await everything(cluster) == before
    assert await two.fetch(group) == 20


async def everything(cluster: GroupWorld) -> list[Record]:
    found = []
    for prefix in (keys.GROUPS, keys.GROUP_OFFSETS):
        found += await cluster.meta.scan(prefix, keys.after(prefix))
    return found


async def test_a_commit_that_is_under_way_while_another_node_takes_over_is_not_acked_and_moves_nothing_back(
    cluster: GroupWorld,
) -> None:
    one = await cluster.node(0)
    await one.blind()
    two = await cluster.node(1)
    await two.sees(one, two)
    group = group_of(two, one)
    assert await one.commit(group, 10) == Code.NONE

    stall = one.faults.at(cluster.write_step, Stall())
    late = asyncio.ensure_future(one.commit(group, 11))
    await stall.reached.wait()
    assert await two.commit(group, 20) == Code.NONE
    stall.let_go()
    assert await late == Code.NOT_COORDINATOR
    assert await two.fetch(group) == 20


async def test_a_late_chunk_is_overwritten_by_the_coordinator_in_office() -> None:
    async with AsyncExitStack() as opened:
        cluster = GroupWorld(False, opened)
        await cluster.topic("t")
        one = await cluster.node(0)
        await one.blind()
        two = await cluster.node(1)
        await two.sees(one, two)
        group = group_of(two, one)
        assert await one.commit(group, 10) == Code.NONE
        assert await two.fetch(group) == 10
        # It has been loaded there: what lands from now on is not seen, and must not be acked.
        assert await one.commit(group, 11) == Code.NOT_COORDINATOR
        assert await two.fetch(group) == 10
        assert await two.commit(group, 5, partition=1) == Code.NONE
        assert await two.fetch(group) == 10
        await one.membership.close()
        await two.membership.close()
        three = await cluster.node(2)
        assert await three.fetch(group) == 10
        assert await three.fetch(group, partition=1) == 5


async def test_a_node_that_has_lost_its_session_lets_its_groups_go(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    group = group_of(one)
    member = await one.lone_member(group)
    waiting = asyncio.ensure_future(one.join(group))
    await settle()
    stall = one.blind_to_registering()
    cluster.clock.leap(700)
    assert not one.membership.alive
    assert (await waiting).error_code == Code.NOT_COORDINATOR
    assert await one.heartbeat(member) == Code.NOT_COORDINATOR
    assert await one.fetch(group) is Code.NOT_COORDINATOR
    stall.let_go()
    await one.comes_back()
    # Its session is long over by the clock, and it is given a new one: nobody has heard its heartbeats.
    assert await one.heartbeat(member) == Code.NONE


async def test_members_that_are_not_heard_of_are_removed_by_the_clock(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    member = await one.lone_member(group_of(one), session_ms=6_000)
    while await state_of(one, member.group) != "Empty":
        await cluster.clock.sleep(1)
    assert await one.heartbeat(member) == Code.UNKNOWN_MEMBER_ID


@pytest.fixture
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was stopped waits for its members for longer than a busy machine holds them up: its clock runs fast."""
    monkeypatch.setattr(coordinator, "CATCH_UP_S", 3000)


@pytest.mark.usefixtures("patience")
async def test_a_node_that_was_stopped_hears_its_members_before_it_removes_them(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    member = await one.lone_member(group_of(one), session_ms=60_000)
    cluster.clock.leap(70)
    await cluster.clock.sleep(0.2)
    assert await one.heartbeat(member) == Code.NONE


async def test_a_member_that_commits_is_heard_of(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    silent, member = [await one.lone_member(group, session_ms=100_000) for group in ("silent", "heard")]
    while await state_of(one, silent.group) != "Empty":
        assert await one.commit_as(member, 1) == Code.NONE
        cluster.clock.leap(20)
        await cluster.clock.sleep(1)
    assert await one.commit_as(member, 1) == Code.NONE


async def test_commits_that_come_while_one_is_written_share_the_next_write_in_order(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    group = group_of(one)
    assert await one.commit(group, 0) == Code.NONE
    stall = one.faults.at(cluster.write_step, Stall())
    first = asyncio.ensure_future(one.commit(group, 1))
    await stall.reached.wait()
    taken = one.faults.taken[cluster.write_step]
    others = [asyncio.ensure_future(one.commit(group, 2 + number, partition=number % 5)) for number in range(50)]
    await settle()
    stall.let_go()
    assert await first == Code.NONE
    assert await asyncio.gather(*others) == [Code.NONE] * 50
    assert one.faults.taken[cluster.write_step] == taken + 1
    assert [await one.fetch(group, partition=number) for number in range(5)] == [47, 48, 49, 50, 51]


async def test_a_commit_over_many_chunks_is_one_group(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    group = group_of(one)
    await cluster.topic("wide", partitions=10_000)
    wide = await one.view.get("wide")
    offsets = {(wide.topic_id, number): NewOffset(number, 1, "") for number in range(10_000)}
    before = one.faults.taken["transact"]
    error = await one.coordinator.commit(group, Committer("", -1, None, 9), offsets)
    assert error is GroupError.NONE
    if cluster.can_transact:
        assert one.faults.taken["transact"] == before + 1
    two = await cluster.node(1)
    await one.membership.close()
    await two.sees(two)
    assert [await two.fetch(group, "wide", number) for number in (0, 99, 100, 9_999)] == [0, 99, 100, 9_999]


@pytest.mark.parametrize("applied", [True, False])
async def test_a_commit_of_unknown_outcome_is_settled(cluster: GroupWorld, applied: bool) -> None:
    one = await cluster.node(0)
    group = group_of(one)
    for offset in (1, 2, 3):
        one.faults.at(cluster.write_step, Fail(OutcomeUnknown("lost"), applied=applied))
        assert await one.commit(group, offset) == Code.NONE
        assert await one.fetch(group) == offset


async def test_a_commit_that_arrives_late_does_not_undo_what_was_committed_since(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    group = group_of(one)
    assert await one.commit(group, 1) == Code.NONE
    late = one.faults.at(cluster.write_step, Late())
    assert await one.commit(group, 2) == Code.NONE
    assert await one.commit(group, 3) == Code.NONE
    try:
        await late.arrive()
    except Conflict:
        pass
    assert await one.fetch(group) == 3
    assert await one.commit(group, 4) == Code.NONE
    two = await cluster.node(1)
    await one.membership.close()
    await two.sees(two)
    assert await two.fetch(group) == 4


async def test_a_commit_that_can_not_be_settled_is_told_so_and_the_group_is_loaded_anew(
    cluster: GroupWorld,
) -> None:
    one = await cluster.node(0)
    group = group_of(one)
    assert await one.commit(group, 1) == Code.NONE
    for nth in range(1, 10):
        one.faults.at(cluster.write_step, Fail(OutcomeUnknown("lost")), nth)
    assert await one.commit(group, 2) == Code.REQUEST_TIMED_OUT
    assert await one.fetch(group) == 1


async def test_a_store_that_is_away_fails_commits_and_not_the_group(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    member = await one.lone_member(group_of(one))
    for nth in range(1, 7):
        one.faults.at(cluster.write_step, Fail(StoreUnavailable("away")), nth)
    assert await one.commit_as(member, 2) == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert await one.heartbeat(member) == Code.NONE
    assert await one.commit_as(member, 3) == Code.NONE


async def test_a_join_that_can_not_be_stored_is_answered_and_works_later(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    group = group_of(one)
    step = "transact" if cluster.can_transact else f"put {STATE}"
    for nth in range(1, 7):
        one.faults.at(step, Fail(StoreUnavailable("away")), nth)
    assert (await one.join(group)).error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
    await one.lone_member(group)


async def test_a_generation_is_stored_before_anybody_is_told(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    group = group_of(one)
    stall = one.faults.at("transact" if cluster.can_transact else f"put {STATE}", Stall())
    joining = asyncio.ensure_future(one.join(group))
    await stall.reached.wait()
    await settle()
    assert not joining.done()
    assert await cluster.meta.get(keys.group_state(group)) is None
    stall.let_go()
    assert (await joining).generation_id == 1


async def test_a_group_that_takes_long_to_load_is_to_be_asked_again(cluster: GroupWorld) -> None:
    one = await cluster.node(0, CoordinatorSettings(limits=QUICK, load_max_ms=10))
    group = group_of(one)
    stall = one.faults.at(f"get {STATE}", Stall())
    assert (await one.join(group)).error_code == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert await one.fetch(group) is Code.COORDINATOR_LOAD_IN_PROGRESS
    stall.let_go()
    while await one.fetch(group) != -1:
        await settle()
    assert one.faults.taken[f"put {STATE}"] == 0


async def test_a_take_over_of_unknown_outcome_is_settled(cluster: GroupWorld) -> None:
    one, two = await pair(cluster)
    group = group_of(one, two)
    assert await one.commit(group, 1) == Code.NONE
    await one.membership.close()
    await two.sees(two)
    two.faults.at(f"put {STATE}", Fail(OutcomeUnknown("lost"), applied=True))
    assert await two.fetch(group) == 1
    record = await cluster.meta.get(keys.group_state(group))
    assert record is not None
    assert decode_state(record)[0].coordinator_epoch == 2
    assert await two.commit(group, 2) == Code.NONE


async def test_idle_groups_make_room_and_busy_ones_do_not(cluster: GroupWorld) -> None:
    one = await cluster.node(0, CoordinatorSettings(limits=QUICK, max_groups=3))
    for number in range(10):
        assert await one.commit(f"idle {number}", number) == Code.NONE
    assert [await one.fetch(f"idle {number}") for number in range(10)] == list(range(10))
    members = [await one.lone_member(f"busy {number}") for number in range(3)]
    assert await one.commit("one more", 1) == Code.COORDINATOR_LOAD_IN_PROGRESS
    assert [await one.heartbeat(member) for member in members] == [Code.NONE] * 3


async def test_asking_for_groups_that_are_not_there_stores_nothing(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    assert await one.fetch("nobody") == -1
    assert await one.heartbeat(Member("nobody", "m", 1)) == Code.UNKNOWN_MEMBER_ID
    assert await everything(cluster) == []


@pytest.mark.usefixtures("patience")
async def test_offsets_of_an_empty_group_expire_after_its_retention(cluster: GroupWorld) -> None:
    one = await cluster.node(0)
    group, kept = "old", "kept"
    assert await one.commit(group, 1) == Code.NONE
    member = await one.lone_member(kept)
    assert await one.commit_as(member, 1) == Code.NONE
    cluster.clock.leap(6 * DAY_S)
    await one.comes_back()
    await one.coordinator.sweep()
    assert await one.fetch(group) == 1
    cluster.clock.leap(2 * DAY_S)
    await one.comes_back()
    assert await one.heartbeat(member) == Code.NONE
    await one.coordinator.sweep()
    assert await one.fetch(group) == -1
    assert await one.fetch(kept) == 1
    assert [record.key for record in await cluster.meta.scan(keys.GROUP_OFFSETS, keys.after(keys.GROUP_OFFSETS))] == [
        keys.group_offset_chunk(kept, (await one.view.get("t")).topic_id, 0)
    ]


async def test_a_sweep_takes_care_of_members_that_died_with_their_coordinator(cluster: GroupWorld) -> None:
    one, two = await pair(cluster)
    member = await one.lone_member(group_of(one, two), session_ms=20_000)
    await one.membership.close()
    await two.sees(two)
    assert await state_of(two, member.group) == "Stable"
    await two.coordinator.sweep()
    while await state_of(two, member.group) != "Empty":
        await cluster.clock.sleep(1)


async def test_a_large_group_is_stored_and_survives(cluster: GroupWorld) -> None:
    one, two = await pair(cluster)
    group = group_of(one, two)
    leader = await one.join(group, topics=b"x" * 500)
    joins = [asyncio.ensure_future(one.join(group, topics=b"x" * 500)) for _ in range(300)]
    await settle()
    again = await one.join(group, leader.member_id, topics=b"x" * 500)
    joined = await asyncio.gather(*joins)
    while any(answer.generation_id != again.generation_id for answer in joined):
        rejoins = [one.join(group, answer.member_id, topics=b"x" * 500) for answer in (again, *joined)]
        again, *joined = await asyncio.gather(*rejoins)
    members = [Member(group, answer.member_id, answer.generation_id) for answer in (again, *joined)]
    leading = next(member for member in members if member.member_id == again.leader)
    shares = {member.member_id: member.member_id.encode() for member in members}
    answers = await asyncio.gather(*(one.sync(member, shares if member is leading else None) for member in members))
    assert [answer.assignment for answer in answers] == [member.member_id.encode() for member in members]

    await one.membership.close()
    await two.sees(two)
    assert await asyncio.gather(*map(two.heartbeat, members)) == [Code.NONE] * 301
    assert (await two.sync(members[7])).assignment == members[7].member_id.encode()


async def test_a_consumer_group_hears_of_topics_and_survives_its_coordinator(cluster: GroupWorld) -> None:
    one, two = await pair(cluster)
    group = group_of(one, two)
    body = beat.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=["t", "later"],
        topic_partitions=[],
    )
    joined = await one.ask(body, beat.ConsumerGroupHeartbeatResponse)
    assert (joined.error_code, joined.member_id) == (Code.NONE, "m")
    assigned = await assignment(one, group, joined.member_epoch)
    assert {share.topic_id: len(share.partitions) for share in assigned.topic_partitions} == {
        (await one.view.get("t")).topic_id: 200
    }
    later = await cluster.topic("later", partitions=3)
    epoch = joined.member_epoch
    while later.topic_id not in [share.topic_id for share in assigned.topic_partitions]:
        kept = msgspec.structs.replace(body, member_epoch=epoch, topic_partitions=assigned.topic_partitions)
        answer = await one.ask(kept, beat.ConsumerGroupHeartbeatResponse)
        assert answer.error_code == Code.NONE
        epoch, assigned = answer.member_epoch, answer.assignment or assigned
        await cluster.clock.sleep(0.01)
    await one.membership.close()
    await two.sees(two)
    kept = msgspec.structs.replace(body, member_epoch=epoch, topic_partitions=assigned.topic_partitions)
    answer = await two.ask(kept, beat.ConsumerGroupHeartbeatResponse)
    assert (answer.error_code, answer.member_epoch) == (Code.NONE, epoch)


async def assignment(node: GroupNode, group: str, epoch: int) -> beat.Assignment:
    """What a member that says nothing new is told once there is something to tell."""
    body = beat.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="m",
        member_epoch=epoch,
        rebalance_timeout_ms=SESSION_MS,
        subscribed_topic_names=["t", "later"],
        topic_partitions=[],
    )
    while True:
        answer = await node.ask(body, beat.ConsumerGroupHeartbeatResponse)
        assert answer.error_code == Code.NONE
        if answer.assignment is not None and answer.assignment.topic_partitions:
            return answer.assignment
        body.member_epoch = answer.member_epoch
        await settle()


@pytest.mark.parametrize("can_transact", [True, False])
async def test_processes_that_share_a_database_file(tmp_path: Path, can_transact: bool) -> None:
    async with AsyncExitStack() as opened:
        cluster = GroupWorld(can_transact, opened, tmp_path)
        await cluster.topic("t")
        one, two = await pair(cluster)
        group = group_of(one, two)
        member = await one.lone_member(group)
        commits = [one.commit_as(member, number, partition=number % 10) for number in range(100)]
        assert await asyncio.gather(*commits) == [Code.NONE] * 100
        await two.membership.close()
        await one.sees(one)
        await one.blind()
        three = await cluster.node(2)
        await three.sees(one, three)
        moved = group_of(three, one)
        assert await one.commit(moved, 10) == Code.NONE
        assert await three.commit(moved, 20) == Code.NONE
        assert await one.commit(moved, 11) == Code.NOT_COORDINATOR
        assert await three.fetch(moved) == 20
        await one.membership.close()
        await three.sees(three)
        assert await three.heartbeat(member) == Code.NONE
        assert [await three.fetch(group, partition=number) for number in range(10)] == list(range(90, 100))
