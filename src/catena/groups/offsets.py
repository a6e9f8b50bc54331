"""Who may commit, fetch and delete the offsets of a group.

A commit with generation -1 comes from somebody outside of the protocol: an administrator, or a consumer that assigns
its partitions itself. It is let through while nobody else could commit: in a group that is empty, or in none at all,
which then is a "simple" group, one with offsets and no members.
"""

from __future__ import annotations

from catena.groups.base import NO_MEMBER, GroupError
from catena.groups.classic import ClassicGroup
from catena.groups.classic_rounds import ClassicState
from catena.groups.consumer import ConsumerGroup
from catena.groups.group import Group
from catena.groups.subscription import CONSUMER_PROTOCOL_TYPE

FIRST_VERSION_WITH_MEMBER_EPOCHS = 9
"""Of OffsetCommit and OffsetFetch."""


def check_commit(
    group: Group | None, member_id: str, generation: int, instance_id: str | None, *, version: int
) -> GroupError:
    """`generation` is the member's epoch in a consumer group. After NONE, `touch` a classic group's member."""
    match group:
        case None if generation < 0:
            return GroupError.NONE
        case None if version >= FIRST_VERSION_WITH_MEMBER_EPOCHS:
            return GroupError.GROUP_ID_NOT_FOUND
        case None:
            return GroupError.ILLEGAL_GENERATION
        case ClassicGroup():
            return _check_classic_commit(group, member_id, generation, instance_id)
        case ConsumerGroup():
            return _check_consumer_commit(group, member_id, generation, version)


def check_fetch(group: Group | None, member_id: str | None, member_epoch: int) -> GroupError:
    """Below version 9 a fetch names no member: None and -1. A group that does not exist has no offsets."""
    if isinstance(group, ConsumerGroup):
        if not member_id and member_epoch < 0:
            return GroupError.NONE
        return _check_member_epoch(group, member_id or NO_MEMBER, member_epoch)
    if group is not None and group.state is ClassicState.DEAD:
        return GroupError.GROUP_ID_NOT_FOUND
    return GroupError.NONE


def check_offset_delete(group: Group | None, topic: str) -> GroupError:
    """GROUP_SUBSCRIBED_TO_TOPIC is the topic's error; the others are the whole request's."""
    match group:
        case ClassicGroup() if group.state is not ClassicState.DEAD:
            if group.is_empty:
                return GroupError.NONE
            if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
                return GroupError.NON_EMPTY_GROUP
            topics = group.subscribed_topics()
        case ConsumerGroup() if not group.is_dead:
            topics = group.subscribed_topics()
        case _:
            return GroupError.GROUP_ID_NOT_FOUND
    return GroupError.GROUP_SUBSCRIBED_TO_TOPIC if topics is None or topic in topics else GroupError.NONE


def _check_classic_commit(group: ClassicGroup, member_id: str, generation: int, instance_id: str | None) -> GroupError:
    if group.state is ClassicState.DEAD:
        return GroupError.COORDINATOR_NOT_AVAILABLE
    if generation < 0 and group.is_empty:
        return GroupError.NONE
    if generation < 0 and member_id == NO_MEMBER and instance_id is None:
        return GroupError.UNKNOWN_MEMBER_ID
    error = group.check_member(member_id, instance_id, generation)
    if error is GroupError.NONE and group.state is ClassicState.COMPLETING:
        return GroupError.REBALANCE_IN_PROGRESS
    return error


def _check_consumer_commit(group: ConsumerGroup, member_id: str, epoch: int, version: int) -> GroupError:
    if group.is_dead:
        return GroupError.COORDINATOR_NOT_AVAILABLE
    if epoch < 0 and group.is_empty:
        return GroupError.NONE
    error = _check_member_epoch(group, member_id, epoch)
    if error is not GroupError.UNKNOWN_MEMBER_ID and version < FIRST_VERSION_WITH_MEMBER_EPOCHS:
        return GroupError.UNSUPPORTED_VERSION
    return error


def _check_member_epoch(group: ConsumerGroup, member_id: str, epoch: int) -> GroupError:
    current = group.member_epoch(member_id)
    if current is None:
        return GroupError.UNKNOWN_MEMBER_ID
    return GroupError.NONE if epoch == current else GroupError.STALE_MEMBER_EPOCH
