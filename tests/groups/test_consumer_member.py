"""A member's way to its target, step by step."""

from __future__ import annotations

from catena.groups.assignors import Slot
from catena.groups.consumer_member import ConsumerMember, MemberState, to_assignment, to_slots
from tests.groups.consumer_world import T, topic_id


def slots(*partitions: int) -> frozenset[Slot]:
    return frozenset((T, partition) for partition in partitions)


def test_a_member_gives_up_before_it_gets() -> None:
    member = ConsumerMember(member_id="a", epoch=1, assigned=slots(0, 1))
    member.reconcile(2, slots(1, 2), lambda _: True, None)
    assert (member.state, member.epoch, member.assigned, member.revoking) == (
        MemberState.UNREVOKED,
        1,
        slots(1),
        slots(0),
    )
    member.reconcile(2, slots(1, 2), lambda _: True, slots(1))
    assert (member.state, member.epoch, member.assigned, member.revoking) == (
        MemberState.STABLE,
        2,
        slots(1, 2),
        slots(),
    )
    assert member.previous_epoch == 1


def test_what_is_not_free_is_waited_for_at_the_new_epoch() -> None:
    member = ConsumerMember(member_id="a", epoch=1)
    member.reconcile(2, slots(0, 1), lambda slot: slot[1] == 0, None)
    assert (member.state, member.epoch, member.assigned) == (MemberState.UNRELEASED, 2, slots(0))
    member.reconcile(2, slots(0, 1), lambda _: True, None)
    assert (member.state, member.assigned) == (MemberState.STABLE, slots(0, 1))


def test_what_the_member_never_had_needs_no_revocation() -> None:
    member = ConsumerMember(member_id="a", epoch=1, assigned=slots(0))
    member.reconcile(2, slots(1), lambda _: True, frozenset())
    assert (member.state, member.epoch, member.assigned) == (MemberState.STABLE, 2, slots(1))


def test_a_target_that_moves_on_during_a_revocation_is_followed_after_it() -> None:
    member = ConsumerMember(member_id="a", epoch=1, assigned=slots(0, 1))
    member.reconcile(2, slots(1), lambda _: True, None)
    member.reconcile(3, slots(), lambda _: True, slots(1))
    assert (member.state, member.epoch, member.assigned, member.revoking) == (
        MemberState.UNREVOKED,
        2,
        slots(),
        slots(1),
    )
    member.reconcile(3, slots(), lambda _: True, slots())
    assert member.is_reconciled_to(3)


def test_assignments_are_sorted_and_come_back_as_they_were() -> None:
    u = topic_id("u")
    assignment = to_assignment([(u, 1), (T, 2), (T, 0)])
    assert assignment == {T: [0, 2], u: [1]}
    assert to_slots(assignment) == {(T, 0), (T, 2), (u, 1)}
