"""The members of a classic group: who they are, which protocols they share, who leads.

Invariants: there is a leader exactly while there are members, and it is one of them; an instance id names at most one
member; `_supporters[p]` is how many members support p, so that agreement is a lookup and not a scan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from catena.groups.base import GroupError
from catena.groups.classic_values import Protocol


@dataclass(slots=True, kw_only=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_s: float
    rebalance_timeout_s: float
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    is_new: bool = False
    """It has not been told its first generation yet, and maybe not even its member id."""

    def metadata(self, protocol: str | None) -> bytes:
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


class Roster:
    def __init__(self) -> None:
        self.members: dict[str, Member] = {}
        self.statics: dict[str, str] = {}
        self.leader: str | None = None
        self.protocol_type: str | None = None
        self._supporters: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, member_id: str) -> bool:
        return member_id in self.members

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            self.protocol_type = protocol_type
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id
        self._count(member.protocols, 1)

    def remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            self.statics.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        self._count(member.protocols, -1)

    def rename(self, old_id: str, new_id: str) -> Member:
        """Give a static member's place, lead and assignment to its next incarnation."""
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        if member.instance_id is not None:
            self.statics[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        return member

    def change_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self._count(member.protocols, -1)
        member.protocols = protocols
        self._count(protocols, 1)

    def elect_joined_leader(self, has_joined: Callable[[str], bool]) -> bool:
        """Keep the leader if it has joined this round, else choose the first who has; False if nobody has."""
        if self.leader is not None and has_joined(self.leader):
            return True
        candidate = next((member_id for member_id in self.members if has_joined(member_id)), None)
        if candidate is None:
            return False
        self.leader = candidate
        return True

    def agrees(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether somebody with these protocols could be in a group with all who are there."""
        if not self.members:
            return bool(protocol_type) and any(True for _ in names)
        everybody = len(self.members)
        return protocol_type == self.protocol_type and any(self._supporters[name] == everybody for name in names)

    def select_protocol(self) -> str:
        """Each member votes for its first protocol that all support; of equals, the first that got a vote wins."""
        everybody = len(self.members)
        votes: Counter[str] = Counter()
        for member in self.members.values():
            votes[next(name for name, _ in member.protocols if self._supporters[name] == everybody)] += 1
        return max(votes, key=votes.__getitem__)

    def check(self, member_id: str, instance_id: str | None) -> GroupError:
        if instance_id is not None:
            owner = self.statics.get(instance_id)
            if owner is None:
                return GroupError.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return GroupError.FENCED_INSTANCE_ID
        return GroupError.NONE if member_id in self.members else GroupError.UNKNOWN_MEMBER_ID

    def rebalance_timeout_s(self) -> float:
        return max((member.rebalance_timeout_s for member in self.members.values()), default=0.0)

    def _count(self, protocols: tuple[Protocol, ...], step: int) -> None:
        for name in {name for name, _ in protocols}:
            self._supporters[name] += step
            if not self._supporters[name]:
                del self._supporters[name]
