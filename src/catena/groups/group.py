"""Both kinds of groups under one name: restoring them, and turning one into the other.

An empty group becomes the other kind when a client of the other kind joins it; its offsets stay, and its numbers go on
where they were, so that no generation is given out twice. A group with members is not converted: a classic consumer
that joins a consumer group is told INCONSISTENT_GROUP_PROTOCOL, and a heartbeat of the consumer protocol to a classic
group GROUP_ID_NOT_FOUND, which is what Kafka says when its migration policy is `disabled`. To change the protocol of
a group, stop its members first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from catena.errors import Corrupt
from catena.groups.base import GroupError, GroupSettings
from catena.groups.classic import ClassicGroup
from catena.groups.classic_values import ClassicSnapshot
from catena.groups.consumer import ConsumerGroup
from catena.groups.consumer_values import JOIN_EPOCH, ConsumerSnapshot, TopicInfo

Group: TypeAlias = ClassicGroup | ConsumerGroup

_decode = msgspec.json.Decoder(ClassicSnapshot | ConsumerSnapshot).decode


def restore(group_id: str, data: bytes, now: float, settings: GroupSettings, topics: Mapping[str, TopicInfo]) -> Group:
    """The group as another coordinator left it; every member has a new session from now on."""
    try:
        snapshot = _decode(data)
        if isinstance(snapshot, ClassicSnapshot):
            return ClassicGroup.restore(group_id, snapshot, now, settings)
        return ConsumerGroup.restore(group_id, snapshot, now, settings, topics)
    except (msgspec.DecodeError, ValueError) as error:
        raise Corrupt(f"the stored state of group {group_id!r} can't be read: {error}") from error


def classic_for_join(group: Group | None, group_id: str, settings: GroupSettings) -> ClassicGroup | GroupError:
    """The machine that a JoinGroup goes to; if it is not `group`, it takes its place."""
    match group:
        case None:
            return ClassicGroup(group_id, settings)
        case ClassicGroup():
            return group
        case ConsumerGroup() if group.is_empty:
            return ClassicGroup(group_id, settings, generation=group.epoch)
    return GroupError.INCONSISTENT_GROUP_PROTOCOL


def consumer_for_heartbeat(
    group: Group | None, group_id: str, member_epoch: int, settings: GroupSettings, topics: Mapping[str, TopicInfo]
) -> ConsumerGroup | GroupError:
    """The machine that a ConsumerGroupHeartbeat goes to; if it is not `group`, it takes its place.

    Only a member that joins creates or converts a group.
    """
    joins = member_epoch == JOIN_EPOCH
    match group:
        case ConsumerGroup():
            return group
        case None if joins:
            return ConsumerGroup(group_id, settings, topics)
        case ClassicGroup() if joins and group.is_empty:
            return ConsumerGroup(group_id, settings, topics, epoch=group.generation)
    return GroupError.GROUP_ID_NOT_FOUND
