"""Who may commit, fetch and delete offsets."""

from __future__ import annotations

import pytest

from catena.groups.base import GroupError
from catena.groups.classic_values import Protocol
from catena.groups.offsets import check_commit, check_fetch, check_offset_delete
from tests.groups import classic_world, consumer_world


@pytest.fixture
def classic() -> classic_world.World:
    return classic_world.World()


@pytest.fixture
def consumer() -> consumer_world.World:
    return consumer_world.World()


def test_without_a_group_only_commits_from_outside_the_protocol_are_taken() -> None:
    assert check_commit(None, "", -1, None, version=8) is GroupError.NONE
    assert check_commit(None, "m", 1, None, version=8) is GroupError.ILLEGAL_GENERATION
    assert check_commit(None, "m", 1, None, version=9) is GroupError.GROUP_ID_NOT_FOUND


def test_a_member_commits_with_its_generation(classic: classic_world.World) -> None:
    a, _ = classic.stable(2, static=True)
    generation = classic.group.generation
    assert check_commit(classic.group, a, generation, "i0", version=8) is GroupError.NONE
    assert check_commit(classic.group, a, generation, None, version=8) is GroupError.NONE
    assert check_commit(classic.group, a, generation - 1, None, version=8) is GroupError.ILLEGAL_GENERATION
    assert check_commit(classic.group, a, generation, "i1", version=8) is GroupError.FENCED_INSTANCE_ID
    assert check_commit(classic.group, "ghost", generation, None, version=8) is GroupError.UNKNOWN_MEMBER_ID
    assert check_commit(classic.group, "", -1, None, version=0) is GroupError.UNKNOWN_MEMBER_ID
    assert check_commit(classic.group, a, -1, None, version=8) is GroupError.ILLEGAL_GENERATION


def test_a_commit_is_let_through_while_preparing_and_not_while_completing(classic: classic_world.World) -> None:
    a, b = classic.stable(2)
    classic.join(a)
    assert check_commit(classic.group, b, classic.group.generation, None, version=8) is GroupError.NONE
    classic.join(b)
    told = check_commit(classic.group, b, classic.group.generation, None, version=8)
    assert told is GroupError.REBALANCE_IN_PROGRESS


def test_an_empty_classic_group_takes_commits_from_outside(classic: classic_world.World) -> None:
    (a,) = classic.stable(1)
    classic.leave((a, None))
    assert check_commit(classic.group, "", -1, None, version=8) is GroupError.NONE
    assert check_commit(classic.group, a, classic.group.generation, None, version=8) is GroupError.UNKNOWN_MEMBER_ID
    classic.group.delete()
    assert check_commit(classic.group, "", -1, None, version=8) is GroupError.COORDINATOR_NOT_AVAILABLE


def test_a_member_of_a_consumer_group_commits_with_its_epoch(consumer: consumer_world.World) -> None:
    a, _ = consumer.two()
    assert check_commit(consumer.group, "a", a.epoch, None, version=9) is GroupError.NONE
    assert check_commit(consumer.group, "a", a.epoch - 1, None, version=9) is GroupError.STALE_MEMBER_EPOCH
    assert check_commit(consumer.group, "a", a.epoch, None, version=8) is GroupError.UNSUPPORTED_VERSION
    assert check_commit(consumer.group, "ghost", 1, None, version=9) is GroupError.UNKNOWN_MEMBER_ID
    assert check_commit(consumer.group, "", -1, None, version=9) is GroupError.UNKNOWN_MEMBER_ID


def test_an_empty_consumer_group_takes_commits_from_outside(consumer: consumer_world.World) -> None:
    assert check_commit(consumer.group, "", -1, None, version=2) is GroupError.NONE
    consumer.group.delete()
    assert check_commit(consumer.group, "", -1, None, version=9) is GroupError.COORDINATOR_NOT_AVAILABLE


def test_fetches_name_a_member_only_in_consumer_groups(
    classic: classic_world.World, consumer: consumer_world.World
) -> None:
    a, _ = consumer.two()
    assert check_fetch(None, None, -1) is GroupError.NONE
    assert check_fetch(consumer.group, None, -1) is GroupError.NONE
    assert check_fetch(consumer.group, "", -1) is GroupError.NONE
    assert check_fetch(consumer.group, "a", a.epoch) is GroupError.NONE
    assert check_fetch(consumer.group, "a", a.epoch - 1) is GroupError.STALE_MEMBER_EPOCH
    assert check_fetch(consumer.group, "ghost", 1) is GroupError.UNKNOWN_MEMBER_ID
    assert check_fetch(classic.group, "any", 7) is GroupError.NONE
    classic.group.delete()
    assert check_fetch(classic.group, None, -1) is GroupError.GROUP_ID_NOT_FOUND


def test_offsets_of_subscribed_topics_are_kept(classic: classic_world.World, consumer: consumer_world.World) -> None:
    assert check_offset_delete(None, "t") is GroupError.GROUP_ID_NOT_FOUND
    assert check_offset_delete(classic.group, "t") is GroupError.NONE
    classic.stable(1)
    consumer.two()
    for group in (classic.group, consumer.group):
        assert check_offset_delete(group, "t") is GroupError.GROUP_SUBSCRIBED_TO_TOPIC
        assert check_offset_delete(group, "u") is GroupError.NONE


def test_offsets_of_groups_that_are_not_consumers_are_kept_while_they_have_members() -> None:
    world = classic_world.World()
    world.join(protocol_type="connect", protocols=(Protocol("default", b""),))
    assert check_offset_delete(world.group, "t") is GroupError.NON_EMPTY_GROUP


def test_offsets_are_kept_when_the_subscription_can_not_be_read() -> None:
    world = classic_world.World()
    world.join(protocols=(Protocol("range", b"?"),))
    assert check_offset_delete(world.group, "t") is GroupError.GROUP_SUBSCRIBED_TO_TOPIC


def test_a_dead_consumer_group_has_no_offsets_to_delete(consumer: consumer_world.World) -> None:
    assert check_offset_delete(consumer.group, "t") is GroupError.NONE
    consumer.group.delete()
    assert check_offset_delete(consumer.group, "t") is GroupError.GROUP_ID_NOT_FOUND
