"""What both kinds of groups share: errors, effects, settings.

Theory. A group is a machine without I/O and without a clock. It takes an input (a request with a ticket, the time)
and returns effects. Its owner, the shell, carries them out.

- `Reply(ticket, response)`: answer the request that came with this ticket. Every ticket gets exactly one reply, maybe
  by a later call. A ticket that waits always has a deadline, which `next_deadline` covers.
- `Persist()`: store `machine.snapshot()` under the compare-and-set of this coordinator.

The shell MUST carry out the effects of one machine in the order in which they were returned, across calls: a reply
waits for every Persist in front of it. It takes the snapshot when it begins to write, not when the effect was returned:
a later state holds all of an earlier one, so one write settles every Persist that was returned before it began, and a
thousand joins need not be a thousand writes. When a write fails because another coordinator took over, the shell drops
the machine and answers NOT_COORDINATOR to all tickets.

That order is what makes a generation (or an epoch) unique: it is stored before anybody is told, and only one of two
coordinators can store it.
"""

from __future__ import annotations

import enum
from typing import TypeAlias

import msgspec

Ticket: TypeAlias = int
"""Names one waiting request; the shell chooses it, and never uses one twice."""

NO_MEMBER = ""
"""The member id of somebody who has none yet."""


class GroupError(enum.IntEnum):
    """Kafka's error codes, as far as groups give them."""

    NONE = 0
    COORDINATOR_NOT_AVAILABLE = 15
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    INVALID_REGULAR_EXPRESSION = 128


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What a request is answered with; each kind of request adds its fields."""

    error: GroupError = GroupError.NONE


class Reply(msgspec.Struct, frozen=True):
    ticket: Ticket
    response: Response


class Persist(msgspec.Struct, frozen=True):
    """Store the machine's snapshot before any effect behind this one."""


Effect: TypeAlias = Reply | Persist


class GroupSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits and delays of all groups of a node. Times are seconds."""

    min_session_timeout_s: float = 6.0
    max_session_timeout_s: float = 1800.0
    """Classic members choose their session time-out within these bounds."""

    initial_rebalance_delay_s: float = 0.25
    """How long an empty group waits for more members after each one that comes, at most the rebalance time-out in all.
    Kafka's default is 3 s; consumers that are started together join within much less, and a lone one need not wait."""

    new_member_join_timeout_s: float = 300.0
    """How long a first JoinGroup may wait. Its sender knows no member id yet, so it can't heartbeat."""

    max_rebalance_timeout_s: float = 3600.0
    """A client's rebalance time-out is cut to this, so that no ticket waits for weeks."""

    max_members: int = 10_000
    max_snapshot_bytes: int = 900_000
    """A larger snapshot is stored without its members, and a failover then costs a rebalance."""

    consumer_session_timeout_s: float = 45.0
    consumer_heartbeat_interval_s: float = 5.0
    consumer_unsettled_heartbeat_interval_s: float = 1.0
    """For members that are on their way to a new assignment: they ask again sooner."""

    assignment_pause_per_member_s: float = 0.0005
    """A consumer group's target is computed at most once in this time per member: many joins share one computation,
    and small groups do not notice."""


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    """A classic member, as DescribeGroups shows it; metadata and assignment are shown while the group is stable."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    """A classic group, as DescribeGroups and ListGroups show it."""

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[MemberView, ...]
