"""How a classic group goes from one generation to the next.

This is the inner half of `classic.ClassicGroup`: the state, the timers, and the steps of a round. The outer half
decides which request may take which step. The theory and the invariants are described there.
"""

from __future__ import annotations

import enum

from catena.groups.base import (
    NO_MEMBER,
    Effect,
    GroupError,
    GroupSettings,
    Persist,
    Reply,
    Response,
    Ticket,
)
from catena.groups.classic_roster import Member, Roster
from catena.groups.classic_values import JoinedMember, JoinResponse, SyncResponse
from catena.groups.timers import Timers


class ClassicState(enum.Enum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Timer(enum.Enum):
    JOIN_PHASE = "join"
    SYNC_PHASE = "sync"


_NOBODY_JOINED_PAUSE_S = 1.0
"""Least time until the next look at a round that nobody has joined, however short the members' time-outs are."""


class Rounds:
    def __init__(self, group_id: str, settings: GroupSettings, generation: int = 0) -> None:
        self.group_id = group_id
        self.generation = generation
        self.state = ClassicState.EMPTY
        self._settings = settings
        self._protocol: str | None = None
        self._roster = Roster()
        self._pending: set[str] = set()
        self._unsynced: set[str] = set()
        self._joins: dict[str, Ticket] = {}
        self._syncs: dict[str, Ticket] = {}
        self._timers: Timers[str | Timer] = Timers()
        self._initial_time_left: float | None = None
        self._grew = False
        self._effects: list[Effect] = []

    def next_deadline(self) -> float | None:
        return self._timers.next_deadline()

    def tick(self, now: float) -> list[Effect]:
        """Handle what is due. What is set again meanwhile lies in the future, so the loop ends."""
        while (due := self._timers.pop_due(now)) is not None:
            if due is Timer.JOIN_PHASE:
                self._expire_join_phase(now)
            elif due is Timer.SYNC_PHASE:
                self._expire_sync_phase(now)
            else:
                self._expire_session(now, due)
        return self._take_effects()

    def touch(self, now: float, member_id: str) -> None:
        """This member was heard of: a heartbeat, or an OffsetCommit that was let through."""
        member = self._roster.members.get(member_id)
        if member is not None:
            self._timers.set(member_id, now + member.session_timeout_s)

    # Tickets

    def _reply(self, ticket: Ticket, response: Response) -> None:
        self._effects.append(Reply(ticket, response))

    def _take_effects(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects

    def _refuse_join(self, ticket: Ticket, member_id: str, error: GroupError) -> None:
        self._reply(ticket, JoinResponse(member_id=member_id, error=error))

    def _wait_for_join(self, member_id: str, ticket: Ticket) -> None:
        self._refuse_waiting(member_id, GroupError.REBALANCE_IN_PROGRESS)
        self._joins[member_id] = ticket

    def _wait_for_sync(self, member_id: str, ticket: Ticket) -> None:
        self._refuse_waiting(member_id, GroupError.REBALANCE_IN_PROGRESS)
        self._syncs[member_id] = ticket

    def _refuse_waiting(self, member_id: str, error: GroupError) -> None:
        if (ticket := self._joins.pop(member_id, None)) is not None:
            told_id = NO_MEMBER if error is GroupError.UNKNOWN_MEMBER_ID else member_id
            self._refuse_join(ticket, told_id, error)
        if (ticket := self._syncs.pop(member_id, None)) is not None:
            self._reply(ticket, SyncResponse(error=error))

    def _generation_for(self, member: Member, leader: str | None = None, skip_assignment: bool = False) -> JoinResponse:
        """What a member is told of the current generation; `leader` is given when it is to think of another as such."""
        leads = leader is None and member.member_id == self._roster.leader
        return JoinResponse(
            member_id=member.member_id,
            generation=self.generation,
            protocol_type=self._roster.protocol_type,
            protocol=self._protocol,
            leader=leader or self._roster.leader or "",
            members=self._everybody() if leads else (),
            skip_assignment=skip_assignment and leads,
        )

    def _everybody(self) -> tuple[JoinedMember, ...]:
        return tuple(
            JoinedMember(member.member_id, member.instance_id, member.metadata(self._protocol))
            for member in self._roster.members.values()
        )

    def _share_of(self, member: Member) -> SyncResponse:
        return SyncResponse(
            protocol_type=self._roster.protocol_type, protocol=self._protocol, assignment=member.assignment
        )

    # Members

    def _remove(self, member_id: str) -> None:
        """A new member may be removed while it waits; UNKNOWN_MEMBER_ID makes it join again if it is still there."""
        self._refuse_waiting(member_id, GroupError.UNKNOWN_MEMBER_ID)
        self._timers.cancel(member_id)
        self._unsynced.discard(member_id)
        self._roster.remove(member_id)

    def _forget_pending(self, member_id: str) -> None:
        self._pending.discard(member_id)
        self._timers.cancel(member_id)

    def _expire_session(self, now: float, member_id: str) -> None:
        if member_id in self._pending:
            self._pending.discard(member_id)
            self._complete_join_if_ready(now)
            return
        member = self._roster.members[member_id]
        waits = member_id in self._joins or member_id in self._syncs
        if waits and not member.is_new:
            self.touch(now, member_id)
            return
        self._remove(member_id)
        self._rebalance(now)

    # Steps of a round

    def _rebalance(self, now: float) -> None:
        """The members are not what they were: begin a round, or see whether the one under way is complete now."""
        if self.state is ClassicState.PREPARING:
            self._complete_join_if_ready(now)
        else:
            self._prepare(now)

    def _prepare(self, now: float) -> None:
        for member_id in list(self._syncs):
            self._refuse_waiting(member_id, GroupError.REBALANCE_IN_PROGRESS)
            self.touch(now, member_id)
        self._unsynced.clear()
        self._timers.cancel(Timer.SYNC_PHASE)
        is_first = self.state is ClassicState.EMPTY
        self.state = ClassicState.PREPARING
        timeout = self._roster.rebalance_timeout_s()
        if is_first and self._settings.initial_rebalance_delay_s > 0:
            self._initial_time_left = timeout
            self._grew = True
            self._wait_for_more(now)
        else:
            self._timers.set(Timer.JOIN_PHASE, now + timeout)
            self._complete_join_if_ready(now)

    def _wait_for_more(self, now: float) -> None:
        """An empty group waits a little after each new member, so that those who start together share a round."""
        assert self._initial_time_left is not None
        delay = min(self._settings.initial_rebalance_delay_s, self._initial_time_left)
        self._initial_time_left -= delay
        self._grew = False
        self._timers.set(Timer.JOIN_PHASE, now + delay)

    def _expire_join_phase(self, now: float) -> None:
        if self._grew and self._initial_time_left:
            self._wait_for_more(now)
        else:
            self._complete_join(now)

    def _complete_join_if_ready(self, now: float) -> None:
        everybody_joined = len(self._joins) >= len(self._roster) and not self._pending
        if self.state is ClassicState.PREPARING and self._initial_time_left is None and everybody_joined:
            self._complete_join(now)

    def _complete_join(self, now: float) -> None:
        """Go on without the dynamic members who have not joined; static ones keep their place for their session."""
        self._initial_time_left = None
        missing = [
            member.member_id
            for member in self._roster.members.values()
            if member.instance_id is None and member.member_id not in self._joins
        ]
        for member_id in missing:
            self._remove(member_id)
        if self._roster.members and not self._roster.elect_joined_leader(self._joins.__contains__):
            pause = max(self._roster.rebalance_timeout_s(), _NOBODY_JOINED_PAUSE_S)
            self._timers.set(Timer.JOIN_PHASE, now + pause)
            return
        self._timers.cancel(Timer.JOIN_PHASE)
        self.generation += 1
        self._effects.append(Persist())
        if self._roster.members:
            self._tell_generation(now)
        else:
            self._protocol = None
            self.state = ClassicState.EMPTY

    def _tell_generation(self, now: float) -> None:
        self._protocol = self._roster.select_protocol()
        self.state = ClassicState.COMPLETING
        self._unsynced = set(self._roster.members)
        self._timers.set(Timer.SYNC_PHASE, now + self._roster.rebalance_timeout_s())
        for member in self._roster.members.values():
            self.touch(now, member.member_id)
            member.is_new = False
            if (ticket := self._joins.pop(member.member_id, None)) is not None:
                self._reply(ticket, self._generation_for(member))

    def _assign(self, now: float, assignments: dict[str, bytes]) -> None:
        """The leader has decided; whom it forgot gets nothing."""
        self.state = ClassicState.STABLE
        for member in self._roster.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        self._effects.append(Persist())
        for member_id, ticket in self._syncs.items():
            self.touch(now, member_id)
            self._reply(ticket, self._share_of(self._roster.members[member_id]))
        self._syncs.clear()

    def _mark_synced(self, member_id: str) -> None:
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._timers.cancel(Timer.SYNC_PHASE)

    def _expire_sync_phase(self, now: float) -> None:
        """Who has not synced in time is not there."""
        for member_id in sorted(self._unsynced):
            self._remove(member_id)
        self._prepare(now)
