"""Both kinds of groups: restoring them, and one becoming the other."""

from __future__ import annotations

import pytest

from catena.errors import Corrupt
from catena.groups.base import GroupError
from catena.groups.classic import ClassicGroup
from catena.groups.consumer import ConsumerGroup
from catena.groups.group import classic_for_join, consumer_for_heartbeat, restore
from tests.groups import classic_world, consumer_world
from tests.groups.classic_world import SETTINGS

TOPICS = consumer_world.topics(t=4)


def test_each_kind_is_restored_as_it_was() -> None:
    classic = classic_world.World()
    classic.stable(2)
    consumer = consumer_world.World()
    consumer.two()
    for group in (classic.group, consumer.group):
        again = restore("g", group.snapshot(), 0.0, SETTINGS, TOPICS)
        assert type(again) is type(group)
        assert again.describe() == group.describe()
        assert again.snapshot() == group.snapshot()


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"type":"share"}', b'{"type":"classic"}', b'{"type":"consumer","epoch":"x"}']
)
def test_what_can_not_be_read_names_the_group(data: bytes) -> None:
    with pytest.raises(Corrupt, match="'g'"):
        restore("g", data, 0.0, SETTINGS, TOPICS)


def test_a_group_is_made_by_the_first_who_joins() -> None:
    assert isinstance(classic_for_join(None, "g", SETTINGS), ClassicGroup)
    assert isinstance(consumer_for_heartbeat(None, "g", 0, SETTINGS, TOPICS), ConsumerGroup)
    assert consumer_for_heartbeat(None, "g", 1, SETTINGS, TOPICS) is GroupError.GROUP_ID_NOT_FOUND


def test_an_empty_classic_group_becomes_a_consumer_group_and_its_numbers_go_on() -> None:
    world = classic_world.World()
    (member,) = world.stable(1)
    assert consumer_for_heartbeat(world.group, "g", 0, SETTINGS, TOPICS) is GroupError.GROUP_ID_NOT_FOUND
    world.leave((member, None))
    assert consumer_for_heartbeat(world.group, "g", 1, SETTINGS, TOPICS) is GroupError.GROUP_ID_NOT_FOUND
    group = consumer_for_heartbeat(world.group, "g", 0, SETTINGS, TOPICS)
    assert isinstance(group, ConsumerGroup)
    new = consumer_world.World()
    new.group = group
    assert new.join("a").member_epoch == 3


def test_an_empty_consumer_group_becomes_a_classic_group_and_its_numbers_go_on() -> None:
    world = consumer_world.World()
    world.join("a")
    assert classic_for_join(world.group, "g", SETTINGS) is GroupError.INCONSISTENT_GROUP_PROTOCOL
    world.send("a", -1)
    group = classic_for_join(world.group, "g", SETTINGS)
    assert isinstance(group, ClassicGroup)
    new = classic_world.World()
    new.group = group
    assert new.joined(new.join()).generation == 3


def test_a_group_of_the_right_kind_stays_what_it_is() -> None:
    classic, consumer = ClassicGroup("g", SETTINGS), ConsumerGroup("g", SETTINGS, TOPICS)
    assert classic_for_join(classic, "g", SETTINGS) is classic
    assert consumer_for_heartbeat(consumer, "g", 7, SETTINGS, TOPICS) is consumer
