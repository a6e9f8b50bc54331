"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

    EMPTY --first join--> PREPARING --all joined, or time is up--> COMPLETING --leader syncs--> STABLE
      ^                     |    ^                                   |                            |
      +-- nobody is left ---+    +---- somebody joins, changes, leaves or is lost ----------------+

A round: members join and wait; once all have joined, or the rebalance time-out has passed, the generation is bumped and
stored, and everybody is told it; the leader sends the assignment, which is stored, and then everybody gets a share.

Invariants
- A generation is stored before anybody is told it (Persist stands in front of the replies), and is never used twice.
- `_joins` and `_syncs` hold every ticket that waits. Joins wait in PREPARING only, syncs in COMPLETING only. A second
  request of a member takes the place of the first, which is answered REBALANCE_IN_PROGRESS: its sender tries again.
- PREPARING has a join timer, every member and every pending member a session timer, so that nothing waits for ever.
- The members of a generation support its protocol: nobody joins or changes without sharing one with all.

Stored is what members were told: the generation, the members who know it, and, while stable, their assignments. After
a failover a stable group goes on as it was. One that was between two generations rebalances once. Pending members are
not stored: they learn UNKNOWN_MEMBER_ID and ask for another id.

Beyond Kafka: a static member that comes back with another set of topics starts a rebalance, where Kafka would leave
its new topics unread until the next one; a sync that waits is answered when its member is removed.
"""

from __future__ import annotations

import msgspec

from catena.groups.base import NO_MEMBER, Effect, GroupError, GroupSettings, GroupView, MemberView, Persist, Ticket
from catena.groups.classic_roster import Member
from catena.groups.classic_rounds import ClassicState, Rounds, Timer
from catena.groups.classic_values import (
    ClassicSnapshot,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinRequest,
    LeaveResponse,
    LeavingMember,
    LeftMember,
    MemberSnapshot,
    Protocol,
    SyncRequest,
    SyncResponse,
)
from catena.groups.subscription import CONSUMER_PROTOCOL_TYPE, subscribed_topics


class ClassicGroup(Rounds):
    def join(self, now: float, ticket: Ticket, request: JoinRequest) -> list[Effect]:
        session_s = request.session_timeout_ms / 1000
        if not self._settings.min_session_timeout_s <= session_s <= self._settings.max_session_timeout_s:
            self._refuse_join(ticket, request.member_id, GroupError.INVALID_SESSION_TIMEOUT)
        elif self.state is ClassicState.DEAD:
            self._refuse_join(ticket, request.member_id, GroupError.COORDINATOR_NOT_AVAILABLE)
        elif not self._has_room(request):
            self._refuse_join(ticket, NO_MEMBER, GroupError.GROUP_MAX_SIZE_REACHED)
        elif not self._roster.agrees(request.protocol_type, [name for name, _ in request.protocols]):
            self._refuse_join(ticket, request.member_id, GroupError.INCONSISTENT_GROUP_PROTOCOL)
        elif request.member_id == NO_MEMBER:
            self._join_unknown(now, ticket, request)
        elif request.member_id in self._pending and request.instance_id is None:
            self._forget_pending(request.member_id)
            self._add(now, ticket, request, request.member_id)
        else:
            self._join_known(now, ticket, request)
        return self._take_effects()

    def sync(self, now: float, ticket: Ticket, request: SyncRequest) -> list[Effect]:
        error = self._check_sync(request)
        if error is not GroupError.NONE:
            self._reply(ticket, SyncResponse(error=error))
        elif self.state is ClassicState.COMPLETING:
            self._wait_for_sync(request.member_id, ticket)
            self._mark_synced(request.member_id)
            if request.member_id == self._roster.leader:
                self._assign(now, dict(request.assignments))
        else:
            self._mark_synced(request.member_id)
            self._reply(ticket, self._share_of(self._roster.members[request.member_id]))
        return self._take_effects()

    def heartbeat(self, now: float, ticket: Ticket, request: HeartbeatRequest) -> list[Effect]:
        """While members still are to sync, a heartbeat is as good as in a stable group."""
        error = self.check_member(request.member_id, request.instance_id, request.generation)
        if error is GroupError.NONE:
            self.touch(now, request.member_id)
            if self.state is ClassicState.PREPARING:
                error = GroupError.REBALANCE_IN_PROGRESS
        self._reply(ticket, HeartbeatResponse(error=error))
        return self._take_effects()

    def leave(self, now: float, ticket: Ticket, members: tuple[LeavingMember, ...]) -> list[Effect]:
        if self.state is ClassicState.DEAD:
            self._reply(ticket, LeaveResponse(error=GroupError.COORDINATOR_NOT_AVAILABLE))
            return self._take_effects()
        before = len(self._roster)
        left = tuple(
            LeftMember(member_id=m.member_id, instance_id=m.instance_id, error=self._leave_one(m)) for m in members
        )
        if len(self._roster) < before:
            self._rebalance(now)
        else:
            self._complete_join_if_ready(now)
        self._reply(ticket, LeaveResponse(members=left))
        return self._take_effects()

    def delete(self) -> GroupError:
        """Dead from now on, if nobody is in it. The shell then removes what is stored of it."""
        if self.state is ClassicState.DEAD:
            return GroupError.GROUP_ID_NOT_FOUND
        if self.state is not ClassicState.EMPTY:
            return GroupError.NON_EMPTY_GROUP
        self.state = ClassicState.DEAD
        for member_id in list(self._pending):
            self._forget_pending(member_id)
        return GroupError.NONE

    # Views

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    @property
    def protocol_type(self) -> str | None:
        return self._roster.protocol_type

    def check_member(self, member_id: str, instance_id: str | None, generation: int) -> GroupError:
        if self.state is ClassicState.DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        error = self._roster.check(member_id, instance_id)
        if error is GroupError.NONE and generation != self.generation:
            return GroupError.ILLEGAL_GENERATION
        return error

    def subscribed_topics(self) -> frozenset[str] | None:
        """All that its members subscribe to; None when they are not consumers or their metadata can't be read."""
        if not self._roster.members:
            return frozenset()
        if self._roster.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        topics: set[str] = set()
        for member in self._roster.members.values():
            found = subscribed_topics(member.protocols[0].metadata)
            if found is None:
                return None
            topics |= found
        return frozenset(topics)

    def describe(self) -> GroupView:
        stable = self.state is ClassicState.STABLE
        members = tuple(
            MemberView(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(self._protocol) if stable else b"",
                assignment=member.assignment if stable else b"",
            )
            for member in self._roster.members.values()
        )
        return GroupView(
            group_id=self.group_id,
            state=self.state.value,
            protocol_type=self._roster.protocol_type or "",
            protocol=(self._protocol or "") if stable else "",
            members=members,
        )

    # Failover

    def snapshot(self) -> bytes:
        members = tuple(_stored(member) for member in self._roster.members.values() if not member.is_new)
        encoded = self._encode(self.state is ClassicState.STABLE, members)
        return encoded if len(encoded) <= self._settings.max_snapshot_bytes else self._encode(False, ())

    @classmethod
    def restore(cls, group_id: str, snapshot: ClassicSnapshot, now: float, settings: GroupSettings) -> ClassicGroup:
        group = cls(group_id, settings, snapshot.generation)
        group._roster.protocol_type = snapshot.protocol_type
        if not snapshot.members:
            return group
        for stored in snapshot.members:
            group._roster.add(_restored(stored), snapshot.protocol_type or "")
            group.touch(now, stored.member_id)
        if snapshot.leader is not None and snapshot.leader in group._roster:
            group._roster.leader = snapshot.leader
        group._protocol = snapshot.protocol
        if snapshot.stable:
            group.state = ClassicState.STABLE
        else:
            group.state = ClassicState.PREPARING
            group._timers.set(Timer.JOIN_PHASE, now + group._roster.rebalance_timeout_s())
        return group

    def _encode(self, stable: bool, members: tuple[MemberSnapshot, ...]) -> bytes:
        return msgspec.json.encode(
            ClassicSnapshot(
                generation=self.generation,
                stable=stable,
                protocol_type=self._roster.protocol_type,
                protocol=self._protocol,
                leader=self._roster.leader,
                members=members,
            )
        )

    # Who may join, and how

    def _has_room(self, request: JoinRequest) -> bool:
        """A full group takes the members it has. A static one that comes back takes the place it had."""
        known = request.member_id in self._roster or request.instance_id in self._roster.statics
        others_pending = len(self._pending) - (request.member_id in self._pending)
        return known or len(self._roster) + others_pending < self._settings.max_members

    def _join_unknown(self, now: float, ticket: Ticket, request: JoinRequest) -> None:
        if request.instance_id is not None:
            new_id = f"{request.instance_id}-{request.fresh_hex}"
            old_id = self._roster.statics.get(request.instance_id)
            if old_id is None:
                self._add(now, ticket, request, new_id)
            else:
                self._replace_static(now, ticket, request, old_id, new_id)
        elif request.require_known_member_id:
            new_id = f"{request.client_id}-{request.fresh_hex}"
            self._pending.add(new_id)
            self._timers.set(new_id, now + request.session_timeout_ms / 1000)
            self._refuse_join(ticket, new_id, GroupError.MEMBER_ID_REQUIRED)
        else:
            self._add(now, ticket, request, f"{request.client_id}-{request.fresh_hex}")

    def _join_known(self, now: float, ticket: Ticket, request: JoinRequest) -> None:
        error = self._roster.check(request.member_id, request.instance_id)
        if error is not GroupError.NONE:
            self._refuse_join(ticket, request.member_id, error)
            return
        member = self._roster.members[request.member_id]
        leads = member.member_id == self._roster.leader
        unchanged = member.protocols == request.protocols
        keeps_generation = self.state is ClassicState.COMPLETING or (self.state is ClassicState.STABLE and not leads)
        if unchanged and keeps_generation:
            self._reply(ticket, self._generation_for(member))
        else:
            # A leader joins again when it has seen a change that its metadata does not show, such as a new partition.
            self._update(member, request)
            self._wait_in_round(now, ticket, member)

    def _add(self, now: float, ticket: Ticket, request: JoinRequest, member_id: str) -> None:
        member = Member(
            member_id=member_id,
            instance_id=request.instance_id,
            client_id=request.client_id,
            client_host=request.client_host,
            session_timeout_s=request.session_timeout_ms / 1000,
            rebalance_timeout_s=self._rebalance_timeout_s(request),
            protocols=request.protocols,
            is_new=True,
        )
        self._roster.add(member, request.protocol_type)
        self._grew = True
        self._wait_in_round(now, ticket, member)

    def _wait_in_round(self, now: float, ticket: Ticket, member: Member) -> None:
        if member.is_new:
            self._timers.set(member.member_id, now + self._settings.new_member_join_timeout_s)
        self._wait_for_join(member.member_id, ticket)
        self._rebalance(now)

    def _update(self, member: Member, request: JoinRequest) -> None:
        self._roster.change_protocols(member, request.protocols)
        member.session_timeout_s = request.session_timeout_ms / 1000
        member.rebalance_timeout_s = self._rebalance_timeout_s(request)

    def _rebalance_timeout_s(self, request: JoinRequest) -> float:
        given = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
        return min(given / 1000, self._settings.max_rebalance_timeout_s)

    def _replace_static(self, now: float, ticket: Ticket, request: JoinRequest, old_id: str, new_id: str) -> None:
        """The instance has started again. Its older self is fenced from here on."""
        leader_before = self._roster.leader
        self._refuse_waiting(old_id, GroupError.FENCED_INSTANCE_ID)
        self._timers.cancel(old_id)
        member = self._roster.rename(old_id, new_id)
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)
        before = member.protocols
        self._update(member, request)
        member.client_id, member.client_host = request.client_id, request.client_host
        self.touch(now, new_id)
        if self.state is ClassicState.STABLE and self._goes_on_with(before, request):
            self._effects.append(Persist())
            leader = None if request.can_skip_assignment or leader_before != old_id else leader_before
            self._reply(ticket, self._generation_for(member, leader, skip_assignment=True))
        else:
            # Its new id may be in no leader's list, and is known to nobody until the round ends.
            member.is_new = True
            self._wait_in_round(now, ticket, member)

    def _goes_on_with(self, before: tuple[Protocol, ...], request: JoinRequest) -> bool:
        """Whether a stable group can keep its generation with a static member that came back with these protocols."""
        names_before = [name for name, _ in before]
        names = [name for name, _ in request.protocols]
        if names != names_before and self._roster.select_protocol() != self._protocol:
            return False
        if request.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return True
        old = subscribed_topics(next(metadata for name, metadata in before if name == self._protocol))
        new = subscribed_topics(next(metadata for name, metadata in request.protocols if name == self._protocol))
        return old is None or new is None or old == new

    # Who may sync and leave

    def _check_sync(self, request: SyncRequest) -> GroupError:
        error = self.check_member(request.member_id, request.instance_id, request.generation)
        if error is not GroupError.NONE:
            return error
        if request.protocol_type not in (None, self._roster.protocol_type):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        if request.protocol not in (None, self._protocol):
            return GroupError.INCONSISTENT_GROUP_PROTOCOL
        return GroupError.REBALANCE_IN_PROGRESS if self.state is ClassicState.PREPARING else GroupError.NONE

    def _leave_one(self, leaving: LeavingMember) -> GroupError:
        member_id = leaving.member_id
        if member_id in self._pending:
            self._forget_pending(member_id)
            return GroupError.NONE
        if member_id == NO_MEMBER and leaving.instance_id is not None:
            member_id = self._roster.statics.get(leaving.instance_id, NO_MEMBER)
        error = self._roster.check(member_id, leaving.instance_id)
        if error is GroupError.NONE:
            self._remove(member_id)
        return error


def _stored(member: Member) -> MemberSnapshot:
    return MemberSnapshot(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        session_timeout_s=member.session_timeout_s,
        rebalance_timeout_s=member.rebalance_timeout_s,
        protocols=member.protocols,
        assignment=member.assignment,
    )


def _restored(stored: MemberSnapshot) -> Member:
    return Member(
        member_id=stored.member_id,
        instance_id=stored.instance_id,
        client_id=stored.client_id,
        client_host=stored.client_host,
        session_timeout_s=stored.session_timeout_s,
        rebalance_timeout_s=stored.rebalance_timeout_s,
        protocols=stored.protocols,
        assignment=stored.assignment,
    )
