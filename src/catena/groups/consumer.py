"""The consumer group protocol (KIP-848): one heartbeat that joins, keeps, changes and leaves.

Three epochs. The group epoch is bumped when a member comes, goes or subscribes to something else, or when a topic that
is subscribed to changes. The assignment epoch is the group epoch that the target assignment was computed for. A
member's epoch is how far it has got; it follows the target by its own heartbeats, first giving up and then getting
partitions (`consumer_member`).

    Empty      nobody is in it
    Assigning  the target is not of the group epoch yet
    Reconciling  some member has not reached the target
    Stable

Invariants
- `_owners` maps each partition to the one member that holds it, assigned or still to be revoked. A partition is granted
  only if nobody else is there, so no two members are ever told to read it at the same time.
- Whatever changes is stored before the heartbeat that changed it is answered, so no epoch is given out twice.
- Every member has a session timer, and one that is to give something up has a rebalance timer.
- Every ticket is answered by the call that brought it.

The target is computed at most once in a time that grows with the group (`assignment_pause_per_member_s`), so a thousand
joins do not cost a thousand computations; until then new members wait with nothing assigned. A member that has not
reached the target is told to come again sooner than others.

Beyond Kafka: a member that joins again with its own id, after an answer was lost or it was fenced, is taken back at
once; Kafka lets it wait until its session has ended. Racks are stored and shown, and do not matter to the assignors.

A group that is too large to be stored with its members is restored empty: members then join again as they hear of it,
and for up to one heartbeat interval a member that has not heard of it yet may read what another has been given. Its
commits are refused, as those of any member whose session has ended.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Callable, Mapping

import msgspec

from catena.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, Candidate, Slot
from catena.groups.base import NO_MEMBER, Effect, GroupError, GroupSettings, Persist, Reply, Ticket
from catena.groups.consumer_checks import Refused, check_epoch, check_request
from catena.groups.consumer_member import ConsumerMember, MemberState, to_assignment, to_slots
from catena.groups.consumer_topics import Subscriptions
from catena.groups.consumer_values import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroupView,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    ConsumerMemberSnapshot,
    ConsumerMemberView,
    ConsumerSnapshot,
    TopicInfo,
)
from catena.groups.timers import Timers


class _Timer(enum.Enum):
    SESSION = "session"
    REBALANCE = "rebalance"
    ASSIGNMENT = "assignment"


_ASSIGNMENT_TIMER = (_Timer.ASSIGNMENT, NO_MEMBER)


class ConsumerGroup:
    def __init__(self, group_id: str, settings: GroupSettings, topics: Mapping[str, TopicInfo], epoch: int = 0) -> None:
        self.group_id = group_id
        self.epoch = epoch
        self.assignment_epoch = epoch
        self._settings = settings
        self._members: dict[str, ConsumerMember] = {}
        self._statics: dict[str, str] = {}
        self._targets: dict[str, frozenset[Slot]] = {}
        self._owners: dict[Slot, str] = {}
        self._subscriptions = Subscriptions(topics)
        self._topics: dict[str, TopicInfo] = {}
        self._timers: Timers[tuple[_Timer, str]] = Timers()
        self._assign_not_before = float("-inf")
        self._is_dead = False
        self._must_bump = False
        self._changed = False

    # Inputs

    def heartbeat(self, now: float, ticket: Ticket, request: ConsumerHeartbeatRequest) -> list[Effect]:
        try:
            check_request(request, self._subscriptions.check_regex)
            if self._is_dead:
                raise Refused(GroupError.COORDINATOR_NOT_AVAILABLE, "the group has just been deleted")
            answer = self._leave if request.member_epoch < JOIN_EPOCH else self._keep
            response = answer(now, request)
        except Refused as refused:
            response = ConsumerHeartbeatResponse(error=refused.error, message=str(refused))
        return [*self._persist_if_changed(), Reply(ticket, response)]

    def topics_changed(self, now: float, topics: Mapping[str, TopicInfo]) -> list[Effect]:
        """Topics were created or deleted, or have got more partitions; `topics` is all there are now."""
        self._subscriptions.set_topics(topics)
        if self._members and self._subscriptions.topics() != self._topics:
            self._bump()
            self._assign_if_due(now)
        return self._persist_if_changed()

    def tick(self, now: float) -> list[Effect]:
        while (due := self._timers.pop_due(now)) is not None:
            timer, member_id = due
            if timer is _Timer.ASSIGNMENT:
                self._assign_if_due(now)
            else:
                self._remove(now, self._members[member_id])
        return self._persist_if_changed()

    def next_deadline(self) -> float | None:
        return self._timers.next_deadline()

    def delete(self) -> GroupError:
        """Dead from now on, if nobody is in it. The shell then removes what is stored of it."""
        if self._is_dead:
            return GroupError.GROUP_ID_NOT_FOUND
        if self._members:
            return GroupError.NON_EMPTY_GROUP
        self._is_dead = True
        return GroupError.NONE

    # Views

    @property
    def is_empty(self) -> bool:
        return not self._members and not self._is_dead

    @property
    def is_dead(self) -> bool:
        return self._is_dead

    def member_epoch(self, member_id: str) -> int | None:
        member = self._members.get(member_id)
        return None if member is None else member.epoch

    def subscribed_topics(self) -> frozenset[str]:
        return frozenset(self._subscriptions.topics())

    def describe(self) -> ConsumerGroupView:
        members = tuple(
            ConsumerMemberView(
                member_id=member.member_id,
                instance_id=member.instance_id,
                rack_id=member.rack_id,
                member_epoch=member.epoch,
                client_id=member.client_id,
                client_host=member.client_host,
                topic_names=member.topic_names,
                topic_regex=member.topic_regex,
                assigned=to_assignment(member.assigned),
                target=to_assignment(self._targets[member.member_id]),
            )
            for member in self._members.values()
        )
        return ConsumerGroupView(
            group_id=self.group_id,
            state=self._state(),
            group_epoch=self.epoch,
            assignment_epoch=self.assignment_epoch,
            assignor=self._assignor(),
            members=members,
        )

    def _state(self) -> str:
        if self._is_dead:
            return "Dead"
        if not self._members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        stable = all(member.is_reconciled_to(self.assignment_epoch) for member in self._members.values())
        return "Stable" if stable else "Reconciling"

    # Failover

    def snapshot(self) -> bytes:
        members = tuple(member.to_snapshot(self._targets[member.member_id]) for member in self._members.values())
        encoded = self._encode(self._topics, members)
        return encoded if len(encoded) <= self._settings.max_snapshot_bytes else self._encode({}, ())

    @classmethod
    def restore(
        cls,
        group_id: str,
        snapshot: ConsumerSnapshot,
        now: float,
        settings: GroupSettings,
        topics: Mapping[str, TopicInfo],
    ) -> ConsumerGroup:
        """If topics have changed since, the group bumps its epoch with the next heartbeat."""
        group = cls(group_id, settings, topics, snapshot.epoch)
        if not snapshot.members:
            return group
        group.assignment_epoch = snapshot.assignment_epoch
        group._topics = snapshot.topics
        for stored in snapshot.members:
            member = ConsumerMember.from_snapshot(stored)
            group._subscriptions.add(member.subscription)
            group._members[member.member_id] = member
            if member.instance_id is not None:
                group._statics[member.instance_id] = member.member_id
            group._targets[member.member_id] = to_slots(stored.target)
            group._owners.update(dict.fromkeys(member.holds, member.member_id))
            group._restart_session(now, member)
            group._watch_revocation(now, member)
        group._must_bump = group._subscriptions.topics() != group._topics
        if group.epoch > group.assignment_epoch:
            group._timers.set(_ASSIGNMENT_TIMER, now)
        return group

    def _encode(self, topics: dict[str, TopicInfo], members: tuple[ConsumerMemberSnapshot, ...]) -> bytes:
        return msgspec.json.encode(
            ConsumerSnapshot(epoch=self.epoch, assignment_epoch=self.assignment_epoch, topics=topics, members=members)
        )

    def _persist_if_changed(self) -> list[Effect]:
        changed, self._changed = self._changed, False
        return [Persist()] if changed else []

    # Joining and staying

    def _keep(self, now: float, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatResponse:
        owned = None if request.owned is None else to_slots(request.owned)
        if request.member_epoch == JOIN_EPOCH:
            member = self._joining(now, request)
        else:
            member = self._known(request.member_id, request.instance_id)
            check_epoch(member, request.member_epoch, owned)
        self._update(member, request)
        if self._must_bump:
            self._bump()
        self._assign_if_due(now)
        before = member.assigned
        self._reconcile(now, member, owned)
        self._restart_session(now, member)
        is_full = request.member_epoch == JOIN_EPOCH or (
            request.rebalance_timeout_ms >= 0
            and owned is not None
            and (request.topic_names is not None or request.topic_regex is not None)
        )
        settled = member.is_reconciled_to(self.epoch)
        interval = (
            self._settings.consumer_heartbeat_interval_s
            if settled
            else self._settings.consumer_unsettled_heartbeat_interval_s
        )
        # An answer may be lost: who has not given something up, or says that it has something else, is told again.
        is_told = member.state is not MemberState.UNREVOKED and owned in (None, member.assigned)
        return ConsumerHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=round(interval * 1000),
            assignment=None
            if is_told and not is_full and member.assigned == before
            else to_assignment(member.assigned),
        )

    def _joining(self, now: float, request: ConsumerHeartbeatRequest) -> ConsumerMember:
        member_id = request.member_id or request.fresh_id
        instance_id = request.instance_id
        known = self._members.get(member_id)
        previous = self._members.get(self._statics.get(instance_id, NO_MEMBER)) if instance_id is not None else known
        if previous is None:
            if known is not None:
                raise Refused(GroupError.INVALID_REQUEST, "a member can't take another instance id")
            if len(self._members) >= self._settings.max_members:
                raise Refused(GroupError.GROUP_MAX_SIZE_REACHED, f"the group has {len(self._members)} members")
            return self._add(ConsumerMember(member_id=member_id, instance_id=instance_id))
        if previous.member_id == member_id:
            if previous.instance_id != instance_id:
                raise Refused(GroupError.INVALID_REQUEST, "a member can't give up its instance id")
            self._set_holdings(previous, previous.restart)
            return previous
        if previous.epoch != STATIC_LEAVE_EPOCH:
            taken = f"instance id {instance_id} is in use by member {previous.member_id}"
            raise Refused(GroupError.UNRELEASED_INSTANCE_ID, taken)
        return self._replace_static(now, previous, member_id)

    def _add(self, member: ConsumerMember) -> ConsumerMember:
        self._members[member.member_id] = member
        if member.instance_id is not None:
            self._statics[member.instance_id] = member.member_id
        self._subscriptions.add(member.subscription)
        self._targets[member.member_id] = frozenset()
        self._must_bump = self._changed = True
        return member

    def _replace_static(self, now: float, previous: ConsumerMember, member_id: str) -> ConsumerMember:
        """The instance has started again: it gets what it had, under its new id, and nobody else notices."""
        del self._members[previous.member_id]
        self._targets[member_id] = self._targets.pop(previous.member_id)
        self._timers.cancel((_Timer.SESSION, previous.member_id))
        self._timers.cancel((_Timer.REBALANCE, previous.member_id))
        previous.resume(member_id)
        self._members[member_id] = previous
        if previous.instance_id is not None:
            self._statics[previous.instance_id] = member_id
        self._owners.update(dict.fromkeys(previous.holds, member_id))
        self._restart_session(now, previous)
        self._changed = True
        return previous

    def _known(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is not None:
            owner = self._statics.get(instance_id)
            if owner is None:
                raise Refused(GroupError.UNKNOWN_MEMBER_ID, f"instance id {instance_id} is unknown")
            if owner != member_id:
                raise Refused(GroupError.FENCED_INSTANCE_ID, f"instance id {instance_id} is member {owner} now")
        member = self._members.get(member_id)
        if member is None:
            raise Refused(GroupError.UNKNOWN_MEMBER_ID, f"member {member_id} is not in the group")
        return member

    def _update(self, member: ConsumerMember, request: ConsumerHeartbeatRequest) -> None:
        if request.rebalance_timeout_ms >= 0:
            limit = self._settings.max_rebalance_timeout_s
            self._set(member, "rebalance_timeout_s", min(request.rebalance_timeout_ms / 1000, limit))
        for name in ("rack_id", "assignor"):
            if (value := getattr(request, name)) is not None:
                self._set(member, name, value)
        self._set(member, "client_id", request.client_id)
        self._set(member, "client_host", request.client_host)
        before = member.subscription
        names = member.topic_names if request.topic_names is None else tuple(sorted(set(request.topic_names)))
        regex = member.topic_regex if request.topic_regex is None else request.topic_regex
        if (names, regex) != before:
            self._subscriptions.add((names, regex))
            self._subscriptions.remove(before)
            member.topic_names, member.topic_regex = names, regex
            self._must_bump = True

    def _set(self, member: ConsumerMember, name: str, value: object) -> None:
        if getattr(member, name) != value:
            setattr(member, name, value)
            self._changed = True

    # Leaving

    def _leave(self, now: float, request: ConsumerHeartbeatRequest) -> ConsumerHeartbeatResponse:
        """A static member that leaves for now keeps its partitions for the time of a session."""
        member = self._known(request.member_id, request.instance_id)
        if request.member_epoch == LEAVE_EPOCH:
            self._remove(now, member)
        else:
            self._set_holdings(member, member.pause)
            self._watch_revocation(now, member)
            self._restart_session(now, member)
            self._changed = True
        return ConsumerHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)

    def _remove(self, now: float, member: ConsumerMember) -> None:
        self._set_holdings(member, member.restart)
        del self._members[member.member_id], self._targets[member.member_id]
        if member.instance_id is not None:
            del self._statics[member.instance_id]
        self._subscriptions.remove(member.subscription)
        self._timers.cancel((_Timer.SESSION, member.member_id))
        self._timers.cancel((_Timer.REBALANCE, member.member_id))
        self._bump()
        self._assign_if_due(now)

    # Steps

    def _bump(self) -> None:
        self.epoch += 1
        self._topics = self._subscriptions.topics()
        self._must_bump = False
        self._changed = True

    def _assignor(self) -> str:
        """What most members ask for."""
        votes = Counter(member.assignor for member in self._members.values() if member.assignor is not None)
        return max(votes, key=votes.__getitem__, default=DEFAULT_ASSIGNOR)

    def _assign_if_due(self, now: float) -> None:
        if self.epoch == self.assignment_epoch:
            return
        if self._members and now < self._assign_not_before:
            self._timers.set(_ASSIGNMENT_TIMER, self._assign_not_before)
            return
        ids = {subscription: self._subscriptions.topic_ids(subscription) for subscription in self._subscriptions}
        candidates = {
            member.member_id: Candidate(ids[member.subscription], self._targets[member.member_id], member.instance_id)
            for member in self._members.values()
        }
        partitions = {info.topic_id: info.partitions for info in self._topics.values()}
        self._targets = ASSIGNORS[self._assignor()](candidates, partitions)
        self.assignment_epoch = self.epoch
        self._assign_not_before = now + self._settings.assignment_pause_per_member_s * len(self._members)
        self._timers.cancel(_ASSIGNMENT_TIMER)
        self._changed = True

    def _reconcile(self, now: float, member: ConsumerMember, owned: frozenset[Slot] | None) -> None:
        def is_free(slot: Slot) -> bool:
            return self._owners.get(slot, member.member_id) == member.member_id

        def step() -> None:
            member.reconcile(self.assignment_epoch, self._targets[member.member_id], is_free, owned)

        before = (member.epoch, member.state, member.revoking)
        self._set_holdings(member, step)
        if (member.epoch, member.state, member.revoking) != before:
            self._watch_revocation(now, member)
            self._changed = True

    def _set_holdings(self, member: ConsumerMember, change: Callable[[], None]) -> None:
        """Change what a member holds, and `_owners` with it."""
        before = member.holds
        change()
        after = member.holds
        if before != after:
            for slot in before - after:
                del self._owners[slot]
            self._owners.update(dict.fromkeys(after - before, member.member_id))
            self._changed = True

    def _restart_session(self, now: float, member: ConsumerMember) -> None:
        self._timers.set((_Timer.SESSION, member.member_id), now + self._settings.consumer_session_timeout_s)

    def _watch_revocation(self, now: float, member: ConsumerMember) -> None:
        timer = (_Timer.REBALANCE, member.member_id)
        if member.state is MemberState.UNREVOKED:
            self._timers.set(timer, now + member.rebalance_timeout_s)
        else:
            self._timers.cancel(timer)
