"""Requests, responses and the stored form of the classic group protocol."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from catena.groups.base import GroupError, Response


class Protocol(NamedTuple):
    """One way to assign that a member supports, in its order of preference, with the member's subscription."""

    name: str
    metadata: bytes


class JoinRequest(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    session_timeout_ms: int
    rebalance_timeout_ms: int = -1
    """JoinGroup v0 has none: below 0 stands for the session time-out."""

    protocol_type: str
    protocols: tuple[Protocol, ...]
    require_known_member_id: bool = False
    """True from JoinGroup v4 on: a dynamic member is given its id in a round of its own."""

    can_skip_assignment: bool = False
    """True from JoinGroup v9 on (KIP-814)."""

    fresh_hex: str
    """Chance for the id of a new member, from the shell; used only if one is needed."""


class JoinedMember(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    metadata: bytes


class JoinResponse(Response, frozen=True, kw_only=True):
    member_id: str
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[JoinedMember, ...] = ()
    """For the leader only: everybody, with the metadata of the chosen protocol."""

    skip_assignment: bool = False


class SyncRequest(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    generation: int
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignments: tuple[tuple[str, bytes], ...] = ()
    """From the leader: member id and assignment."""


class SyncResponse(Response, frozen=True, kw_only=True):
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


class HeartbeatRequest(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    generation: int
    instance_id: str | None = None


class HeartbeatResponse(Response, frozen=True, kw_only=True):
    pass


class LeavingMember(msgspec.Struct, frozen=True, kw_only=True):
    """By member id, or (for administrators) by instance id with an empty member id."""

    member_id: str
    instance_id: str | None = None


class LeftMember(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    error: GroupError


class LeaveResponse(Response, frozen=True, kw_only=True):
    """LeaveGroup below v3 names one member: its answer is that member's error."""

    members: tuple[LeftMember, ...] = ()


class MemberSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[Protocol, ...]
    assignment: bytes


class ClassicSnapshot(msgspec.Struct, frozen=True, kw_only=True, tag="classic"):
    """`stable` False: the group was between two generations, or its members did not fit."""

    generation: int
    stable: bool
    protocol_type: str | None
    protocol: str | None
    leader: str | None
    members: tuple[MemberSnapshot, ...]
