"""The rules of JoinGroup, SyncGroup, Heartbeat and LeaveGroup, one by one."""

from __future__ import annotations

import dataclasses

import pytest

from catena.groups.base import GroupError, GroupSettings, Persist, Reply
from catena.groups.classic_values import LeftMember, Protocol
from tests.groups.classic_world import RANGE, SETTINGS, World, subscription

STICKY = Protocol("sticky", subscription("t"))


@pytest.fixture
def world() -> World:
    return World()


def test_a_first_member_leads_and_gets_generation_1_after_it_is_stored(world: World) -> None:
    ticket = world.join()
    assert [type(effect) for effect in world.effects] == [Persist, Reply]
    response = world.joined(ticket)
    assert (response.error, response.generation, response.protocol) == (GroupError.NONE, 1, "range")
    assert response.leader == response.member_id
    assert [member.member_id for member in response.members] == [response.member_id]


def test_only_the_leader_is_told_the_members_with_the_metadata_of_the_chosen_protocol(world: World) -> None:
    a = world.joined(world.join()).member_id
    follower = world.join(protocols=(Protocol("range", b"mine"),))
    leader = world.join(a)
    assert [member.metadata for member in world.joined(leader).members] == [subscription("t"), b"mine"]
    assert world.joined(follower).members == ()
    assert world.joined(follower).leader == a
    assert world.joined(follower).generation == world.joined(leader).generation == 2


def test_member_ids_begin_with_the_client_id_or_the_instance_id(world: World) -> None:
    assert world.joined(world.join(client_id="app")).member_id == "app-0001"
    ticket = world.join(instance_id="inst", client_id="app")
    world.join("app-0001")
    assert world.joined(ticket).member_id == "inst-0002"


def test_members_with_the_same_client_id_are_two_members(world: World) -> None:
    first, second = world.stable(2)
    assert first != second


@pytest.mark.parametrize(("timeout", "ok"), [(5_999, False), (6_000, True), (1_800_000, True), (1_800_001, False)])
def test_session_timeouts_are_bounded(world: World, timeout: int, ok: bool) -> None:
    expected = GroupError.NONE if ok else GroupError.INVALID_SESSION_TIMEOUT
    assert world.joined(world.join(session_timeout_ms=timeout)).error is expected


def test_a_dynamic_member_is_given_its_id_in_a_round_of_its_own_from_v4_on(world: World) -> None:
    asked = world.joined(world.join(known=True))
    assert asked.error is GroupError.MEMBER_ID_REQUIRED
    assert world.group.describe().state == "Empty"
    joined = world.joined(world.join(asked.member_id, known=True))
    assert (joined.error, joined.member_id) == (GroupError.NONE, asked.member_id)


def test_a_static_member_needs_no_round_for_its_id(world: World) -> None:
    assert world.joined(world.join(instance_id="i", known=True)).error is GroupError.NONE


def test_an_id_that_nobody_gave_out_is_unknown(world: World) -> None:
    assert world.joined(world.join("ghost")).error is GroupError.UNKNOWN_MEMBER_ID
    assert world.heartbeat("ghost", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert world.synced(world.sync("ghost", 1)).error is GroupError.UNKNOWN_MEMBER_ID


def test_an_instance_id_that_nobody_has_is_unknown(world: World) -> None:
    (member,) = world.stable(1)
    assert world.heartbeat(member, instance_id="i") is GroupError.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_pending_members(world: World) -> None:
    leader, follower = world.stable(2)
    pending = world.joined(world.join(known=True)).member_id
    world.join(leader)
    ticket = world.join(follower)
    assert world.waits(ticket)
    world.join(pending)
    assert world.joined(ticket).error is GroupError.NONE


def test_the_protocol_type_must_be_the_groups(world: World) -> None:
    world.stable(1)
    assert world.joined(world.join(protocol_type="connect")).error is GroupError.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("kind", "protocols"), [("", RANGE), ("consumer", ())])
def test_a_first_member_must_bring_a_type_and_a_protocol(
    world: World, kind: str, protocols: tuple[Protocol, ...]
) -> None:
    response = world.joined(world.join(protocol_type=kind, protocols=protocols))
    assert response.error is GroupError.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_takes_another_protocol_type(world: World) -> None:
    (member,) = world.stable(1)
    world.leave((member, None))
    joined = world.joined(world.join(protocol_type="connect", protocols=(Protocol("default", b""),)))
    assert (joined.error, joined.protocol_type, joined.protocol) == (GroupError.NONE, "connect", "default")


def test_members_without_a_common_protocol_are_refused(world: World) -> None:
    world.stable(1)
    assert world.joined(world.join(protocols=(STICKY,))).error is GroupError.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_chosen_by_votes_among_those_that_all_support(world: World) -> None:
    both = (*RANGE, STICKY)
    a = world.joined(world.join(protocols=both)).member_id
    b = world.join(protocols=(STICKY, *RANGE))
    world.join(a, protocols=both)
    c = world.join(protocols=(Protocol("own", b""), STICKY, *RANGE))
    world.join(a, protocols=both)
    world.join(world.joined(b).member_id, protocols=(STICKY, *RANGE))
    assert world.joined(c).protocol == "sticky"


def test_followers_wait_in_sync_until_the_leader_has_sent_the_assignment(world: World) -> None:
    a = world.joined(world.join()).member_id
    ticket = world.join()
    world.join(a)
    b = world.joined(ticket).member_id
    follower = world.sync(b)
    assert world.waits(follower)
    leader = world.sync(a, assignments=[(a, b"A"), (b, b"B")])
    assert isinstance(world.effects[0], Persist)
    assert (world.synced(leader).assignment, world.synced(follower).assignment) == (b"A", b"B")
    assert (world.synced(leader).protocol_type, world.synced(leader).protocol) == ("consumer", "range")


def test_a_member_that_the_leader_forgot_gets_an_empty_assignment(world: World) -> None:
    a = world.joined(world.join()).member_id
    assert world.synced(world.sync(a)).assignment == b""
    assert world.group.describe().state == "Stable"


def test_a_late_sync_in_a_stable_group_gets_the_assignment(world: World) -> None:
    _, b = world.stable(2)
    assert world.synced(world.sync(b)).assignment == b"1"


def test_sync_with_another_generation_or_protocol_is_refused(world: World) -> None:
    a, _ = world.stable(2)
    assert world.synced(world.sync(a, 1)).error is GroupError.ILLEGAL_GENERATION
    assert world.synced(world.sync(a, protocol_type="connect")).error is GroupError.INCONSISTENT_GROUP_PROTOCOL
    assert world.synced(world.sync(a, protocol="sticky")).error is GroupError.INCONSISTENT_GROUP_PROTOCOL


def test_sync_during_a_rebalance_says_so(world: World) -> None:
    _, b = world.stable(2)
    world.join()
    assert world.synced(world.sync(b)).error is GroupError.REBALANCE_IN_PROGRESS


def test_heartbeats_say_rebalance_while_preparing_and_ok_while_completing(world: World) -> None:
    a, b = world.stable(2)
    assert world.heartbeat(a) is GroupError.NONE
    world.join(a)
    assert world.heartbeat(b) is GroupError.REBALANCE_IN_PROGRESS
    world.join(b)
    assert world.group.describe().state == "CompletingRebalance"
    assert world.heartbeat(b) is GroupError.NONE
    assert world.heartbeat(b, world.group.generation - 1) is GroupError.ILLEGAL_GENERATION


def test_a_follower_that_joins_again_unchanged_keeps_the_generation(world: World) -> None:
    _, b = world.stable(2)
    generation = world.group.generation
    assert world.joined(world.join(b)).generation == generation
    assert world.group.describe().state == "Stable"


def test_a_leader_that_joins_again_starts_a_rebalance(world: World) -> None:
    a, b = world.stable(2)
    generation = world.group.generation
    ticket = world.join(a)
    assert world.waits(ticket)
    world.join(b)
    assert world.joined(ticket).generation == generation + 1


def test_a_follower_with_changed_metadata_starts_a_rebalance(world: World) -> None:
    _, b = world.stable(2)
    assert world.waits(world.join(b, protocols=(Protocol("range", subscription("u")),)))
    assert world.group.describe().state == "PreparingRebalance"


def test_a_join_that_is_repeated_while_completing_gets_the_same_generation(world: World) -> None:
    a = world.joined(world.join()).member_id
    again = world.joined(world.join(a))
    assert (again.generation, len(again.members)) == (1, 1)


def test_changed_metadata_while_completing_turns_the_waiting_syncs_away(world: World) -> None:
    a = world.joined(world.join()).member_id
    ticket = world.join()
    world.join(a)
    b = world.joined(ticket).member_id
    waiting = world.sync(b)
    changed = world.join(b, protocols=(Protocol("range", b"new"),))
    assert world.synced(waiting).error is GroupError.REBALANCE_IN_PROGRESS
    assert world.waits(changed)
    world.join(a)
    assert world.joined(changed).generation == 3


def test_a_late_joiner_bumps_the_generation(world: World) -> None:
    a, b = world.stable(2)
    generation = world.group.generation
    ticket = world.join()
    world.join(a)
    world.join(b)
    assert world.joined(ticket).generation == generation + 1


def test_a_second_join_of_a_waiting_member_takes_the_place_of_the_first(world: World) -> None:
    a, _ = world.stable(2)
    first = world.join(a)
    second = world.join(a)
    assert world.joined(first).error is GroupError.REBALANCE_IN_PROGRESS
    assert world.waits(second)


def test_a_full_group_refuses_new_members_and_keeps_its_own() -> None:
    world = World(GroupSettings(initial_rebalance_delay_s=0.0, max_members=2))
    a, b = world.stable(2)
    assert world.joined(world.join()).error is GroupError.GROUP_MAX_SIZE_REACHED
    assert world.joined(world.join(known=True)).error is GroupError.GROUP_MAX_SIZE_REACHED
    assert world.joined(world.join(b)).error is GroupError.NONE
    world.leave((a, None))
    assert world.waits(world.join())


def test_pending_members_count_for_the_size() -> None:
    world = World(GroupSettings(initial_rebalance_delay_s=0.0, max_members=1))
    asked = world.joined(world.join(known=True))
    assert world.joined(world.join(known=True)).error is GroupError.GROUP_MAX_SIZE_REACHED
    assert world.joined(world.join(asked.member_id)).error is GroupError.NONE


# Static members


def test_a_static_follower_that_comes_back_gets_a_new_id_and_no_rebalance(world: World) -> None:
    a, b = world.stable(2, static=True)
    generation = world.group.generation
    back = world.joined(world.join(instance_id="i1"))
    assert isinstance(world.effects[0], Persist)
    assert (back.error, back.generation, back.leader) == (GroupError.NONE, generation, a)
    assert back.member_id != b
    assert world.synced(world.sync(back.member_id, instance_id="i1")).assignment == b"1"
    assert world.heartbeat(a, instance_id="i0") is GroupError.NONE


def test_the_older_self_of_a_static_member_is_fenced(world: World) -> None:
    _, b = world.stable(2, static=True)
    world.join(instance_id="i1")
    assert world.heartbeat(b, instance_id="i1") is GroupError.FENCED_INSTANCE_ID
    assert world.synced(world.sync(b, instance_id="i1")).error is GroupError.FENCED_INSTANCE_ID
    assert world.joined(world.join(b, instance_id="i1")).error is GroupError.FENCED_INSTANCE_ID
    assert world.leave((b, "i1")).members[0].error is GroupError.FENCED_INSTANCE_ID
    assert world.heartbeat(b) is GroupError.UNKNOWN_MEMBER_ID


def test_a_static_leader_that_comes_back_may_skip_the_assignment_from_v9_on(world: World) -> None:
    world.stable(2, static=True)
    back = world.joined(world.join(instance_id="i0", skip=True))
    assert (back.leader, back.skip_assignment, len(back.members)) == (back.member_id, True, 2)
    assert world.synced(world.sync(back.member_id)).assignment == b"0"


def test_a_static_leader_that_can_not_skip_is_told_its_older_id_as_the_leader(world: World) -> None:
    a, _ = world.stable(2, static=True)
    back = world.joined(world.join(instance_id="i0"))
    assert (back.leader, back.skip_assignment, back.members) == (a, False, ())


def test_a_static_member_with_other_topics_starts_a_rebalance(world: World) -> None:
    world.stable(2, static=True)
    assert world.waits(world.join(instance_id="i1", protocols=(Protocol("range", subscription("t", "u")),)))


def test_a_static_member_with_other_owned_partitions_does_not(world: World) -> None:
    world.stable(2, static=True)
    moved = (Protocol("range", subscription("t", tail=b"owns 3")),)
    assert world.joined(world.join(instance_id="i1", protocols=moved)).error is GroupError.NONE


def test_a_static_member_that_changes_the_chosen_protocol_starts_a_rebalance(world: World) -> None:
    both = (*RANGE, STICKY)
    world.stable(2, static=True, protocols=both)
    ticket = world.join(instance_id="i0", protocols=(STICKY,))
    assert world.waits(ticket)
    assert world.group.describe().state == "PreparingRebalance"


def test_a_static_member_that_comes_back_while_completing_starts_a_rebalance(world: World) -> None:
    a, b = world.stable(2, static=True)
    world.join(a, instance_id="i0")
    world.join(b, instance_id="i1")
    waiting = world.sync(b, instance_id="i1")
    back = world.join(instance_id="i1")
    assert world.synced(waiting).error is GroupError.FENCED_INSTANCE_ID
    world.join(a, instance_id="i0")
    assert world.joined(back).error is GroupError.NONE


def test_a_static_member_that_comes_back_while_its_join_waits_fences_it(world: World) -> None:
    a, b = world.stable(2, static=True)
    world.join(a, instance_id="i0")
    world.join()
    waiting = world.join(b, instance_id="i1")
    assert world.joined(waiting).error is GroupError.NONE
    world.join()
    waiting = world.join(b, instance_id="i1")
    back = world.join(instance_id="i1")
    assert world.joined(waiting).error is GroupError.FENCED_INSTANCE_ID
    assert world.waits(back)


# Leaving


def test_leaving_starts_a_rebalance_and_is_answered(world: World) -> None:
    a, b = world.stable(2)
    left = world.leave((b, None))
    assert left.members == (LeftMember(member_id=b, instance_id=None, error=GroupError.NONE),)
    assert world.heartbeat(a) is GroupError.REBALANCE_IN_PROGRESS
    assert world.heartbeat(b) is GroupError.UNKNOWN_MEMBER_ID


def test_several_members_leave_at_once_with_a_result_each(world: World) -> None:
    _, b, c = world.stable(3, static=True)
    left = world.leave((b, None), ("", "i2"), ("", "nobody"), ("ghost", None), (c, None))
    assert [member.error.name for member in left.members] == [
        "NONE",
        "NONE",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
        "UNKNOWN_MEMBER_ID",
    ]
    assert len(world.group.describe().members) == 1


def test_when_the_last_member_leaves_the_empty_generation_is_stored(world: World) -> None:
    (a,) = world.stable(1)
    world.leave((a, None))
    assert [type(effect) for effect in world.effects] == [Persist, Reply]
    assert (world.group.describe().state, world.group.generation) == ("Empty", 2)


def test_a_waiting_sync_of_a_removed_member_is_answered(world: World) -> None:
    a, b = world.stable(2, static=True)
    world.join(a, instance_id="i0")
    world.join(b, instance_id="i1")
    waiting = world.sync(b, instance_id="i1")
    world.leave(("", "i1"))
    assert world.synced(waiting).error is GroupError.UNKNOWN_MEMBER_ID


def test_a_pending_member_may_leave_and_disturbs_nobody(world: World) -> None:
    (a,) = world.stable(1)
    pending = world.joined(world.join(known=True)).member_id
    assert world.leave((pending, None)).members[0].error is GroupError.NONE
    assert world.heartbeat(a) is GroupError.NONE
    assert world.joined(world.join(pending)).error is GroupError.UNKNOWN_MEMBER_ID


def test_when_the_leader_leaves_another_leads(world: World) -> None:
    a, b = world.stable(2)
    world.leave((a, None))
    joined = world.joined(world.join(b))
    assert (joined.leader, len(joined.members)) == (b, 1)


# Deleting and describing


def test_only_an_empty_group_can_be_deleted_and_then_it_is_dead(world: World) -> None:
    (a,) = world.stable(1)
    assert world.group.delete() is GroupError.NON_EMPTY_GROUP
    world.leave((a, None))
    assert world.group.delete() is GroupError.NONE
    assert world.group.describe().state == "Dead"
    assert world.group.delete() is GroupError.GROUP_ID_NOT_FOUND
    assert world.joined(world.join()).error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert world.synced(world.sync(a)).error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert world.heartbeat(a) is GroupError.COORDINATOR_NOT_AVAILABLE
    assert world.leave((a, None)).error is GroupError.COORDINATOR_NOT_AVAILABLE
    assert world.group.next_deadline() is None


def test_metadata_and_assignments_are_described_while_stable_only(world: World) -> None:
    a, _ = world.stable(2)
    view = world.group.describe()
    assert (view.state, view.protocol_type, view.protocol) == ("Stable", "consumer", "range")
    assert [(m.metadata, m.assignment) for m in view.members] == [(subscription("t"), b"0"), (subscription("t"), b"1")]
    world.join(a)
    view = world.group.describe()
    assert (view.state, view.protocol) == ("PreparingRebalance", "")
    assert [(m.metadata, m.assignment) for m in view.members] == [(b"", b"")] * 2


def test_topics_are_read_from_the_metadata_of_consumers_only(world: World) -> None:
    assert world.group.subscribed_topics() == frozenset()
    world.join(protocols=(Protocol("range", subscription("t", "u")),))
    assert world.group.subscribed_topics() == frozenset({"t", "u"})
    other = World()
    other.join(protocol_type="connect")
    assert other.group.subscribed_topics() is None
    garbage = World()
    garbage.join(protocols=(Protocol("range", b"?"),))
    assert garbage.group.subscribed_topics() is None


# Failover


def test_a_stable_group_goes_on_after_a_failover(world: World) -> None:
    a, b = world.stable(2, static=True)
    before = world.group.describe()
    world.failover()
    assert world.group.describe() == before
    assert world.heartbeat(a, instance_id="i0") is GroupError.NONE
    assert world.synced(world.sync(b)).assignment == b"1"
    assert world.joined(world.join(b)).leader == a
    world.wait(9.0)
    assert len(world.group.describe().members) == 2
    world.wait(2.0)
    assert world.group.describe().members == ()


def test_a_failover_in_a_rebalance_costs_one_rebalance(world: World) -> None:
    a, b = world.stable(2)
    world.join(a)
    told = world.joined(world.join(b)).generation
    world.failover()
    assert world.synced(world.sync(b, told)).error is GroupError.REBALANCE_IN_PROGRESS
    assert world.heartbeat(a, told) is GroupError.REBALANCE_IN_PROGRESS
    ticket = world.join(a)
    world.join(b)
    assert world.joined(ticket).generation == told + 1


def test_members_who_were_not_told_their_id_are_not_stored(world: World) -> None:
    a, _ = world.stable(2)
    world.join()
    world.stored = world.group.snapshot()
    world.failover()
    assert len(world.group.describe().members) == 2
    assert world.heartbeat(a) is GroupError.REBALANCE_IN_PROGRESS


def test_a_group_that_is_too_large_to_store_is_stored_without_its_members() -> None:
    world = World(GroupSettings(initial_rebalance_delay_s=0.0, max_snapshot_bytes=500))
    a, _ = world.stable(2)
    generation = world.group.generation
    assert world.stored is not None
    assert len(world.stored) <= 500
    world.failover()
    assert world.group.describe().state == "Empty"
    assert world.heartbeat(a) is GroupError.UNKNOWN_MEMBER_ID
    assert world.joined(world.join()).generation == generation + 1


def test_every_field_of_a_member_survives_a_failover(world: World) -> None:
    world.stable(2, static=True)
    before = [dataclasses.asdict(member) for member in world.group._roster.members.values()]
    world.failover()
    assert [dataclasses.asdict(member) for member in world.group._roster.members.values()] == before


def test_settings_of_the_tests_differ_from_the_defaults_in_the_delay_only() -> None:
    assert GroupSettings(initial_rebalance_delay_s=0.0) == SETTINGS
