"""One member of a consumer group, and its way to the target assignment.

    STABLE -------- the target has moved on ------> give up first what is not in the target any more
    UNREVOKED ----- told to give up partitions; waits until a heartbeat says they are no longer owned
    UNRELEASED ---- has all of its target that is free; waits for others to give up the rest

A member goes to the target's epoch only when it owns nothing that the target gives to others; and a partition is
granted only while no other member has it, neither assigned nor still to be revoked. So no partition has two owners.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from catena.groups.assignors import Slot
from catena.groups.consumer_values import STATIC_LEAVE_EPOCH, Assignment, ConsumerMemberSnapshot
from catena.types import TopicId


class MemberState(enum.Enum):
    STABLE = "stable"
    UNREVOKED = "unrevoked"
    UNRELEASED = "unreleased"


@dataclass(slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_s: float = 0.0
    topic_names: tuple[str, ...] = ()
    topic_regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: frozenset[Slot] = frozenset()
    revoking: frozenset[Slot] = frozenset()

    @property
    def subscription(self) -> tuple[tuple[str, ...], str]:
        return self.topic_names, self.topic_regex

    @property
    def holds(self) -> frozenset[Slot]:
        """What nobody else may be given."""
        return self.assigned | self.revoking

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch

    def reconcile(
        self, epoch: int, target: frozenset[Slot], is_free: Callable[[Slot], bool], owned: frozenset[Slot] | None
    ) -> None:
        """Go as far towards the target as the others allow. `owned` is what the member says it has; None says nothing.

        `is_free` is True for what no other member holds.
        """
        if self.is_reconciled_to(epoch):
            return
        next_epoch = self.epoch
        if self.state is MemberState.UNREVOKED:
            if _still_owns(self.revoking, owned):
                return
            next_epoch += 1
        keeps = self.assigned & target
        loses = self.assigned - target
        if loses and _still_owns(loses, owned):
            self._move_to(MemberState.UNREVOKED, next_epoch, keeps, loses)
            return
        wanted = target - keeps
        granted = frozenset(slot for slot in wanted if is_free(slot))
        state = MemberState.STABLE if granted == wanted else MemberState.UNRELEASED
        self._move_to(state, epoch, keeps | granted, frozenset())

    def restart(self) -> None:
        """It joins again and says that it owns nothing."""
        self.epoch = self.previous_epoch = 0
        self.state = MemberState.STABLE
        self.assigned = self.revoking = frozenset()

    def pause(self) -> None:
        """A static member leaves for now: it keeps what is assigned to it, and nothing that it was to give up."""
        self.epoch = STATIC_LEAVE_EPOCH
        self.state = MemberState.STABLE
        self.revoking = frozenset()

    def resume(self, member_id: str) -> None:
        """The instance is back, under a new id."""
        self.member_id = member_id
        self.epoch = self.previous_epoch = 0

    def _move_to(self, state: MemberState, epoch: int, assigned: frozenset[Slot], revoking: frozenset[Slot]) -> None:
        if epoch != self.epoch:
            self.previous_epoch, self.epoch = self.epoch, epoch
        self.state, self.assigned, self.revoking = state, assigned, revoking

    def to_snapshot(self, target: frozenset[Slot]) -> ConsumerMemberSnapshot:
        return ConsumerMemberSnapshot(
            member_id=self.member_id,
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_s=self.rebalance_timeout_s,
            topic_names=self.topic_names,
            topic_regex=self.topic_regex,
            assignor=self.assignor,
            epoch=self.epoch,
            previous_epoch=self.previous_epoch,
            state=self.state.value,
            assigned=to_assignment(self.assigned),
            revoking=to_assignment(self.revoking),
            target=to_assignment(target),
        )

    @classmethod
    def from_snapshot(cls, stored: ConsumerMemberSnapshot) -> ConsumerMember:
        return cls(
            member_id=stored.member_id,
            instance_id=stored.instance_id,
            rack_id=stored.rack_id,
            client_id=stored.client_id,
            client_host=stored.client_host,
            rebalance_timeout_s=stored.rebalance_timeout_s,
            topic_names=stored.topic_names,
            topic_regex=stored.topic_regex,
            assignor=stored.assignor,
            epoch=stored.epoch,
            previous_epoch=stored.previous_epoch,
            state=MemberState(stored.state),
            assigned=to_slots(stored.assigned),
            revoking=to_slots(stored.revoking),
        )


def _still_owns(slots: frozenset[Slot], owned: frozenset[Slot] | None) -> bool:
    return owned is None or not slots.isdisjoint(owned)


def to_assignment(slots: Iterable[Slot]) -> Assignment:
    assignment: dict[TopicId, list[int]] = {}
    for topic, partition in sorted(slots):
        assignment.setdefault(topic, []).append(partition)
    return assignment


def to_slots(assignment: Assignment) -> frozenset[Slot]:
    return frozenset((topic, partition) for topic, partitions in assignment.items() for partition in partitions)
