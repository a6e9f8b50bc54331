"""What a consumer group's heartbeat must look like, whatever the group is."""

from __future__ import annotations

from collections.abc import Callable

from catena.groups.assignors import ASSIGNORS, Slot
from catena.groups.base import GroupError
from catena.groups.consumer_member import ConsumerMember
from catena.groups.consumer_values import JOIN_EPOCH, STATIC_LEAVE_EPOCH, ConsumerHeartbeatRequest


class Refused(Exception):
    """The request is answered with this error; nothing has been changed."""

    def __init__(self, error: GroupError, message: str) -> None:
        super().__init__(message)
        self.error = error


def check_request(request: ConsumerHeartbeatRequest, check_regex: Callable[[str], None]) -> None:
    def require(condition: bool, message: str) -> None:
        if not condition:
            raise Refused(GroupError.INVALID_REQUEST, message)

    epoch = request.member_epoch
    require(request.instance_id != "", "InstanceId can't be empty.")
    require(request.rack_id != "", "RackId can't be empty.")
    require(epoch >= STATIC_LEAVE_EPOCH, f"MemberEpoch {epoch} is invalid.")
    require(epoch == JOIN_EPOCH or request.member_id != "", "MemberId can't be empty.")
    if epoch == JOIN_EPOCH:
        subscribes = request.topic_names is not None or request.topic_regex is not None
        require(request.rebalance_timeout_ms >= 0, "RebalanceTimeoutMs must be provided in first request.")
        require(request.owned == {}, "TopicPartitions must be empty when (re-)joining.")
        require(subscribes, "Either SubscribedTopicNames or SubscribedTopicRegex must be set when (re-)joining.")
    if epoch == STATIC_LEAVE_EPOCH:
        require(request.instance_id is not None, "InstanceId can't be null.")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise Refused(GroupError.UNSUPPORTED_ASSIGNOR, f"Assignor {request.assignor} is not one of: {known}.")
    if request.topic_regex:
        try:
            check_regex(request.topic_regex)
        except ValueError as error:
            raise Refused(GroupError.INVALID_REGULAR_EXPRESSION, str(error)) from None


def check_epoch(member: ConsumerMember, received: int, owned: frozenset[Slot] | None) -> None:
    """The epoch before the current one is as good, if an answer may have been lost: the member has nothing else."""
    if received == member.epoch:
        return
    lost_an_answer = received == member.previous_epoch and owned is not None and owned <= member.assigned
    if received > member.epoch or not lost_an_answer:
        message = f"Epoch {received} of member {member.member_id} is not {member.epoch}: it must join again."
        raise Refused(GroupError.FENCED_MEMBER_EPOCH, message)
