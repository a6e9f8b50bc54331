"""Requests, responses, views and the stored form of the consumer group protocol (KIP-848)."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import msgspec

from catena.groups.base import Response
from catena.types import TopicId

Assignment: TypeAlias = dict[TopicId, list[int]]
"""Partitions by topic id, sorted."""

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2


class TopicInfo(NamedTuple):
    topic_id: TopicId
    partitions: int


class ConsumerHeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A field that is None (or -1, for the time-out) is as it was in an earlier heartbeat."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    """Empty: no subscription by expression any more."""

    assignor: str | None = None
    owned: Assignment | None = None
    fresh_id: str
    """The id of a member that joins without one, as version 0 does; from the shell."""


class ConsumerHeartbeatResponse(Response, frozen=True, kw_only=True):
    message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    """None: unchanged."""


class ConsumerMemberView(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str
    assigned: Assignment
    target: Assignment


class ConsumerGroupView(msgspec.Struct, frozen=True, kw_only=True):
    group_id: str
    state: str
    group_epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[ConsumerMemberView, ...]


class ConsumerMemberSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_s: float
    topic_names: tuple[str, ...]
    topic_regex: str
    assignor: str | None
    epoch: int
    previous_epoch: int
    state: str
    assigned: Assignment
    revoking: Assignment
    target: Assignment


class ConsumerSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag="consumer"):
    """`topics` are those the epoch was made with, so that a failover sees what has changed since."""

    epoch: int
    assignment_epoch: int
    topics: dict[str, TopicInfo]
    members: tuple[ConsumerMemberSnapshot, ...]
