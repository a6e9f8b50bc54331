"""Time in a classic group: delays, time-outs, and what they do to a round."""

from __future__ import annotations

import pytest

from catena.groups.base import GroupError, GroupSettings, Persist
from tests.groups.classic_world import World


@pytest.fixture
def world() -> World:
    return World()


def test_an_empty_group_waits_a_little_for_more_members() -> None:
    world = World(GroupSettings(initial_rebalance_delay_s=3.0))
    first = world.join()
    world.wait(2.0)
    second = world.join()
    world.wait(1.5)
    assert world.waits(first)
    world.wait(3.0)
    assert world.joined(first).generation == world.joined(second).generation == 1


def test_the_initial_delay_ends_when_nobody_else_comes() -> None:
    world = World(GroupSettings(initial_rebalance_delay_s=3.0))
    first = world.join()
    assert world.group.next_deadline() == world.now + 3.0
    world.wait(3.0)
    assert world.joined(first).generation == 1


def test_the_initial_delay_is_never_longer_than_the_rebalance_timeout() -> None:
    world = World(GroupSettings(initial_rebalance_delay_s=3.0))
    first = world.join(rebalance_timeout_ms=7_000)
    for _ in range(6):
        world.wait(1.0)
        world.join(rebalance_timeout_ms=7_000)
    assert world.waits(first)
    world.wait(1.0)
    assert not world.waits(first)


def test_without_a_rebalance_timeout_the_session_timeout_counts(world: World) -> None:
    (a,) = world.stable(1)
    world.leave((a, None))
    a = world.joined(world.join(rebalance_timeout_ms=-1, session_timeout_ms=8_000)).member_id
    world.sync(a)
    ticket = world.join(rebalance_timeout_ms=-1, session_timeout_ms=8_000)
    world.wait(4.0)
    world.heartbeat(a)
    world.wait(3.9)
    assert world.waits(ticket)
    world.wait(0.2)
    assert world.joined(ticket).leader == world.joined(ticket).member_id


def test_members_who_do_not_join_in_time_are_out(world: World) -> None:
    a, b = world.stable(2)
    ticket = world.join(a, session_timeout_ms=30_000)
    for _ in range(12):
        world.wait(5.0)
        world.heartbeat(b)
    world.wait(0.1)
    assert [member.member_id for member in world.joined(ticket).members] == [a]
    assert world.heartbeat(b) is GroupError.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_after_its_session_timeout(world: World) -> None:
    a, b = world.stable(2)
    world.wait(8.0)
    world.heartbeat(a)
    world.wait(3.0)
    assert world.heartbeat(a) is GroupError.REBALANCE_IN_PROGRESS
    assert world.heartbeat(b) is GroupError.UNKNOWN_MEMBER_ID


def test_a_commit_counts_as_a_heartbeat(world: World) -> None:
    a, _ = world.stable(2)
    world.wait(8.0)
    world.group.touch(world.now, a)
    world.wait(8.0)
    assert [member.member_id for member in world.group.describe().members] == [a]


def test_a_member_that_waits_needs_no_heartbeat(world: World) -> None:
    a, b = world.stable(2)
    ticket = world.join(a)
    for _ in range(5):
        world.wait(9.0)
        world.heartbeat(b)
    assert world.waits(ticket)
    world.join(b)
    assert world.joined(ticket).error is GroupError.NONE


def test_a_pending_member_is_forgotten_after_its_session_timeout(world: World) -> None:
    (a,) = world.stable(1)
    pending = world.joined(world.join(known=True)).member_id
    ticket = world.join(a)
    assert world.waits(ticket)
    world.wait(10.0)
    assert world.joined(ticket).error is GroupError.NONE
    assert world.joined(world.join(pending)).error is GroupError.UNKNOWN_MEMBER_ID


def test_a_new_member_waits_no_longer_than_its_join_timeout() -> None:
    world = World(GroupSettings(initial_rebalance_delay_s=0.0, new_member_join_timeout_s=20.0))
    (a,) = world.stable(1)
    ticket = world.join()
    world.wait(9.0)
    world.heartbeat(a)
    world.wait(9.0)
    world.heartbeat(a)
    assert world.waits(ticket)
    world.wait(2.0)
    assert (world.joined(ticket).error, world.joined(ticket).member_id) == (GroupError.UNKNOWN_MEMBER_ID, "")


def test_who_never_syncs_is_out_after_the_rebalance_timeout(world: World) -> None:
    a, b = world.stable(2)
    world.join(a)
    world.join(b)
    ticket = world.sync(b)
    for _ in range(13):
        world.wait(4.9)
        world.heartbeat(a)
    assert world.synced(ticket).error is GroupError.REBALANCE_IN_PROGRESS
    assert world.heartbeat(a) is GroupError.UNKNOWN_MEMBER_ID
    assert world.joined(world.join(b)).leader == b


def test_a_follower_that_never_syncs_is_out_even_if_the_group_is_stable(world: World) -> None:
    a, b = world.stable(2)
    world.join(a)
    world.join(b)
    world.sync(a)
    for _ in range(13):
        world.wait(4.9)
        world.heartbeat(a)
        world.heartbeat(b)
    assert [member.member_id for member in world.group.describe().members] == [a]
    assert world.heartbeat(a) is GroupError.REBALANCE_IN_PROGRESS


def test_static_members_keep_their_place_when_they_do_not_join_in_time(world: World) -> None:
    a, _ = world.stable(2, static=True)
    ticket = world.join(rebalance_timeout_ms=1_000)
    world.join(a, instance_id="i0", rebalance_timeout_ms=1_000, session_timeout_ms=300_000)
    world.wait(9.0)
    assert world.waits(ticket)
    assert world.heartbeat(world.group._roster.statics["i1"]) is GroupError.REBALANCE_IN_PROGRESS
    for _ in range(6):
        world.wait(9.0)
        world.heartbeat(world.group._roster.statics["i1"])
    assert len(world.joined(world.join(a, instance_id="i0")).members) == 3


def test_a_round_that_nobody_joins_is_postponed_until_all_are_gone(world: World) -> None:
    world.stable(2, static=True)
    generation = world.group.generation
    ticket = world.join(rebalance_timeout_ms=0)
    world.leave((world.group.describe().members[2].member_id, None))
    assert world.joined(ticket).error is GroupError.UNKNOWN_MEMBER_ID
    world.wait(5.0)
    assert world.group.generation == generation
    world.wait(6.0)
    assert (world.group.describe().state, world.group.generation) == ("Empty", generation + 1)
    assert Persist() in world.effects
    assert world.group.next_deadline() is None


def test_nothing_is_due_in_an_empty_group(world: World) -> None:
    assert world.group.next_deadline() is None
    assert world.group.tick(world.now) == []


def test_a_rebalance_timeout_of_weeks_is_cut(world: World) -> None:
    a = world.joined(world.join(session_timeout_ms=1_800_000)).member_id
    world.sync(a)
    ticket = world.join(rebalance_timeout_ms=2**31 - 1)
    world.heartbeat(a)
    assert world.waits(ticket)
    world.wait(3601.0)
    assert not world.waits(ticket)
