"""Deliberate bugs of groups and their coordinators, each of which the group scenario must catch. See `mutations`.

One that might be looked for can't show: a write of unknown outcome that is taken for failed. The coordinator then lets
the group go and takes it over anew, so it costs time and nothing else. The opposite is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec

from catena.broker import coordinator as coordinator_module
from catena.broker import group_store
from catena.broker.coordinator import Coordinator
from catena.broker.group_shell import GroupShell
from catena.broker.group_store import GroupHeader, GroupStore, HeldGroup, TakenOver
from catena.cluster.membership import Membership
from catena.errors import OutcomeUnknown
from catena.groups import consumer_member, offsets
from catena.groups.base import GroupError, Persist, Reply
from catena.groups.classic import ClassicGroup
from catena.groups.classic_roster import Roster
from catena.groups.classic_rounds import Rounds
from catena.groups.consumer import ConsumerGroup
from catena.meta import keys
from catena.meta.base import Check, Committed, Put
from catena.types import ANY, Version
from sim.group_run import run_seed
from sim.mutating import Mutation, listing, nothing, replaced

GROUP_MUTATIONS: list[Mutation] = []
group_mutation = listing(GROUP_MUTATIONS, run_seed)


# The store


@group_mutation
def offsets_are_written_whoever_coordinates() -> Iterator[None]:
    """With `transact`: the state is not checked."""
    real = GroupStore._patiently

    async def unchecked(self: GroupStore, call: Any) -> Any:
        if isinstance(call, partial) and call.func == self._meta.transact:
            [[state, *puts]] = call.args[0]
            if isinstance(state, Check):
                state = Check(state.key, ANY)
            call = partial(self._meta.transact, [[state, *[Put(put.key, put.value, ANY) for put in puts]]])
        return await real(self, call)

    with replaced(GroupStore, "_patiently", unchecked):
        yield


@group_mutation
def offsets_are_written_over_those_of_a_later_coordinator() -> Iterator[None]:
    """Without `transact`: chunks are put whatever is there."""

    async def overwrite(self: GroupStore, _held: HeldGroup, chunk: Any, _epoch: int) -> Version:
        return await self._patiently(partial(self._meta.put, chunk.key, chunk.value, ANY))

    with replaced(GroupStore, "_put_chunk", overwrite):
        yield


@group_mutation
def commit_is_acked_before_it_is_confirmed() -> Iterator[None]:
    """Without `transact`: whether the group is still ours after the chunks were written is not looked at."""
    real = GroupStore._write_apart

    async def hasty(self: GroupStore, *args: Any) -> None:
        # Of a subclass instead of the instance: fetches, which confirm, too, go on beside it.
        unsure = _Hasty(self._meta, self._clock, self._entropy)
        await real(unsure, *args)

    with replaced(GroupStore, "_write_apart", hasty):
        yield


class _Hasty(GroupStore):
    async def confirm(self, held: HeldGroup) -> None:
        """Believes."""


@group_mutation
def group_is_taken_over_without_a_new_epoch() -> Iterator[None]:
    real = GroupStore.take_over

    async def quietly(self: GroupStore, group_id: str, node_id: int) -> TakenOver:
        record = await self._patiently(partial(self._meta.get, keys.group_state(group_id)))
        header, snapshot = (None, b"") if record is None else group_store.decode_state(record)
        if record is None or header is None or header.kind == "deleted":
            return await real(self, group_id, node_id)
        held = HeldGroup(group_id, node_id, header, record.version)
        await self._load_offsets(held)
        return TakenOver(held, snapshot)

    with replaced(GroupStore, "take_over", quietly):
        yield


class _Unread(GroupStore):
    async def _load_offsets(self, held: HeldGroup) -> None:
        """They were read before."""


@group_mutation
def offsets_are_read_before_the_group_is_taken_over() -> Iterator[None]:
    real_load, real_take = GroupStore._load_offsets, GroupStore.take_over

    async def early(self: GroupStore, group_id: str, node_id: int) -> TakenOver:
        record = await self._patiently(partial(self._meta.get, keys.group_state(group_id)))
        if record is None:
            return await real_take(self, group_id, node_id)
        before = HeldGroup(group_id, node_id, group_store.decode_state(record)[0], record.version)
        await real_load(self, before)
        unread = _Unread(self._meta, self._clock, self._entropy)
        taken = await real_take(unread, group_id, node_id)
        taken.held.chunks = before.chunks
        return taken

    with replaced(GroupStore, "take_over", early):
        yield


@group_mutation
def write_of_unknown_outcome_is_taken_for_done() -> Iterator[None]:
    real = GroupStore._patiently

    async def hopeful(self: GroupStore, call: Any) -> Any:
        if call.func not in (self._meta.put, self._meta.transact):
            return await real(self, call)
        try:
            return await call()
        except OutcomeUnknown:
            made_up = Version("made up")
            return made_up if call.func == self._meta.put else [Committed((made_up,) * len(call.args[0][0]))]

    with replaced(GroupStore, "_patiently", hopeful):
        yield


@group_mutation
def offsets_of_a_deleted_group_count_again() -> Iterator[None]:
    """Those that were not removed, which is allowed to fail, and here does."""
    real = GroupStore._next_state

    def forgetful(self: GroupStore, *args: Any) -> tuple[GroupHeader | None, bytes]:
        header, snapshot = real(self, *args)
        return (None if header is None else msgspec.structs.replace(header, offsets_from_epoch=0)), snapshot

    with replaced(GroupStore, "_next_state", forgetful), replaced(GroupStore, "_clear", nothing):
        yield


@group_mutation
def fetch_is_answered_without_a_look() -> Iterator[None]:
    with replaced(GroupShell, "confirm", nothing):
        yield


# The shell


@group_mutation
def replies_do_not_wait_for_the_store() -> Iterator[None]:
    real = GroupShell.run

    def eager(self: GroupShell, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                self._carry_out(effect)
        real(self, effects)

    with replaced(GroupShell, "run", eager):
        yield


@group_mutation
def group_is_kept_after_a_refused_write() -> Iterator[None]:
    real = GroupShell.drop

    def stubborn(self: GroupShell, error: Any) -> None:
        if "another node coordinates" not in str(error):
            real(self, error)

    with replaced(GroupShell, "drop", stubborn):
        yield


# The coordinator


@group_mutation
def members_are_missed_by_a_coordinator_that_was_stopped() -> Iterator[None]:
    """It does not read what lies in its sockets before it looks at the clock."""
    with replaced(coordinator_module, "STOPPED_S", float("inf")):
        yield


@group_mutation
def coordinator_goes_on_without_its_session() -> Iterator[None]:
    """And so does not see that others have taken over; it answers heartbeats for ever."""
    with (
        replaced(Membership, "alive", property(lambda self: self._registered)),
        replaced(Membership, "_look", _look_of_the_blind),
    ):
        yield


async def _look_of_the_blind(self: Membership) -> bool:
    if not self._view.nodes:
        self._publish([node for _, node in await self._list()])
    return True


@group_mutation
def groups_of_the_dead_are_left_alone() -> Iterator[None]:
    """Restored members have no session, so that nobody ever misses them."""
    with replaced(Rounds, "touch", _touch_nobody_new):
        yield


def _touch_nobody_new(self: Rounds, now: float, member_id: str) -> None:
    member = self._roster.members.get(member_id)
    if member is not None and (member_id in self._timers or self.state.value != "Empty"):
        self._timers.set(member_id, now + member.session_timeout_s)


# The machines


@group_mutation
def commit_of_any_generation_is_taken() -> Iterator[None]:
    def careless(group: ClassicGroup, member_id: str, *_: Any) -> GroupError:
        return GroupError.NONE if group.is_empty or member_id in group._roster else GroupError.UNKNOWN_MEMBER_ID

    with replaced(offsets, "_check_classic_commit", careless):
        yield


@group_mutation
def commit_of_any_member_epoch_is_taken() -> Iterator[None]:
    def careless(group: ConsumerGroup, member_id: str, _epoch: int) -> GroupError:
        return GroupError.UNKNOWN_MEMBER_ID if group.member_epoch(member_id) is None else GroupError.NONE

    with replaced(offsets, "_check_member_epoch", careless):
        yield


@group_mutation
def generation_is_told_before_it_is_stored() -> Iterator[None]:
    real = Rounds._complete_join

    def unstored(self: Rounds, now: float) -> None:
        real(self, now)
        self._effects = [effect for effect in self._effects if not isinstance(effect, Persist)]

    with replaced(Rounds, "_complete_join", unstored):
        yield


@group_mutation
def assignment_is_not_stored() -> Iterator[None]:
    real = Rounds._assign

    def unstored(self: Rounds, now: float, assignments: dict[str, bytes]) -> None:
        real(self, now, assignments)
        self._effects = [effect for effect in self._effects if not isinstance(effect, Persist)]

    with replaced(Rounds, "_assign", unstored):
        yield


@group_mutation
def epochs_of_consumers_are_not_stored() -> Iterator[None]:
    with replaced(ConsumerGroup, "_persist_if_changed", lambda self: [] if self.assignment_epoch > 1 else [Persist()]):
        yield


@group_mutation
def sessions_of_members_do_not_end() -> Iterator[None]:
    real = Rounds._expire_session

    def patient(self: Rounds, now: float, member_id: str) -> None:
        if member_id in self._pending:
            real(self, now, member_id)
        else:
            self.touch(now, member_id)

    with replaced(Rounds, "_expire_session", patient):
        yield


@group_mutation
def partitions_are_handed_over_before_they_are_given_up() -> Iterator[None]:
    with replaced(consumer_member, "_still_owns", lambda _slots, _owned: False):
        yield


@group_mutation
def member_that_gives_nothing_up_is_waited_for_for_ever() -> Iterator[None]:
    """A dead member of a consumer group keeps what it had."""
    with replaced(ConsumerGroup, "_restart_session", lambda _self, _now, _member: None):
        yield


@group_mutation
def generations_begin_anew_after_a_failover() -> Iterator[None]:
    real = ClassicGroup.restore.__func__  # type: ignore[attr-defined]

    def anew(cls: type[ClassicGroup], group_id: str, snapshot: Any, *args: Any) -> ClassicGroup:
        group: ClassicGroup = real(cls, group_id, snapshot, *args)
        group.generation = 0
        return group

    with replaced(ClassicGroup, "restore", classmethod(anew)):
        yield


@group_mutation
def former_self_of_a_static_member_goes_on() -> Iterator[None]:
    real_rename = Roster.rename

    def both(self: Roster, old_id: str, new_id: str) -> Any:
        member = real_rename(self, old_id, new_id)
        self.members[old_id] = member
        return member

    with replaced(Roster, "rename", both):
        yield


@group_mutation
def node_answers_for_groups_of_others() -> Iterator[None]:
    """It looks neither when it is asked nor when nodes come and go."""

    async def never(_self: Coordinator) -> None:
        return None

    with (
        replaced(Coordinator, "_follow_nodes", never),
        replaced(Coordinator, "_is_ours", lambda self, _group_id: self._membership.alive),
    ):
        yield
