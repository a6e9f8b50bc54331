"""One group on the node that coordinates it: its machine, what is stored of it, and the one task that writes.

    request -> machine -> effects, in order -+
                                             +-> a turn: one write -> replies and acks
    offset commits, looks before a fetch ----+

The machine decides, this carries out. A reply waits until every Persist in front of it is stored; nothing else waits
for the store. All that has come in by the time a turn begins goes into its one write, so a slow store makes the turns
larger and not the queue longer. There is never more than one turn under way, so the versions that writes are
conditional on are never guessed.

A turn that has nothing to write but somebody who waits for it reads the state record instead: whoever fetches offsets
waits for a turn that began after it asked, and so is told nothing older than what had been acked anywhere by then. A
lease would be cheaper, but when a node comes and not one goes, the group moves at once and not after a session's time;
what is believed to be ours for any length of time can be somebody else's already.

When the group turns out to be another node's, or its state in the store can't be known, it is dropped with all who
wait. Whoever asks next takes it over anew.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeVar

from catena.broker.group_store import Change, CommittedOffset, GroupStore, HeldGroup, Kind, MachineState, Slot
from catena.errors import CatenaError, RetryLater
from catena.groups.base import Effect, Reply, Response, Ticket
from catena.groups.classic import ClassicGroup
from catena.groups.group import Group
from catena.groups.subscription import CONSUMER_PROTOCOL_TYPE
from catena.runtime import Tasks

T = TypeVar("T")


class _Waiting(NamedTuple):
    """Somebody who is told how the next turn ended."""

    outcome: asyncio.Future[CatenaError | None]
    offsets: Mapping[Slot, CommittedOffset | None]
    delete: bool


class GroupShell:
    def __init__(
        self,
        store: GroupStore,
        held: HeldGroup,
        machine: Group | None,
        tasks: Tasks,
        ran: Callable[[GroupShell], None],
        dropped: Callable[[GroupShell, CatenaError], None],
    ) -> None:
        """`ran`: the machine's next deadline may be another one. `dropped`: this one is of no use any more."""
        self.held = held
        self.machine = machine
        """None: there is no such group yet, or no more."""
        self._store = store
        self._tasks = tasks
        self._ran = ran
        self._on_dropped = dropped
        self._dropped: CatenaError | None = None
        self._last_ticket: Ticket = 0
        self._tickets: dict[Ticket, asyncio.Future[Response | CatenaError]] = {}
        self._effects: deque[Effect] = deque()
        """Begins with a Persist, or is empty."""
        self._waiting: list[_Waiting] = []
        self._is_writing = False

    @property
    def group_id(self) -> str:
        return self.held.group_id

    @property
    def exists(self) -> bool:
        """Whether the group is to be seen: stored, or with somebody in it."""
        return self.machine is not None and (self.held.exists or not self.machine.is_empty)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is lost when it is forgotten: all of it is stored, and nothing goes on."""
        quiet = self.machine is None or (self.machine.is_empty and self.machine.next_deadline() is None)
        return quiet and not (self._tickets or self._effects or self._waiting or self._is_writing)

    async def ask(self, call: Callable[[Ticket], list[Effect]]) -> Response:
        """Give the machine a request, and wait for its reply."""
        self._require()
        self._last_ticket += 1
        ticket = self._last_ticket
        reply: asyncio.Future[Response | CatenaError] = asyncio.get_running_loop().create_future()
        self._tickets[ticket] = reply
        self.run(call(ticket))
        outcome = await reply
        if isinstance(outcome, CatenaError):
            raise outcome
        return outcome

    def run(self, effects: list[Effect]) -> None:
        """Carry out what the machine has returned."""
        if self._dropped is not None:
            return
        self._effects.extend(effects)
        self._answer_settled()
        self._ran(self)
        self._begin_turns()

    async def commit(self, offsets: Mapping[Slot, CommittedOffset | None]) -> None:
        """Returns once they are stored, and the group was ours then. Commits are stored in the order of the calls."""
        await self._wait(offsets, delete=False)

    async def confirm(self) -> None:
        """Returns once it is certain that the group was ours at some time after the call."""
        await self._wait({}, delete=False)

    async def delete(self) -> None:
        """The machine is dead: remove what is stored. From then on there is no such group."""
        await self._wait({}, delete=True)

    def drop(self, error: CatenaError) -> None:
        if self._dropped is not None:
            return
        self._dropped = error
        for reply in self._tickets.values():
            _settle(reply, error)
        self._tickets.clear()
        self._effects.clear()
        self._end(self._waiting, error)
        self._waiting = []
        self._on_dropped(self, error)

    async def _wait(self, offsets: Mapping[Slot, CommittedOffset | None], delete: bool) -> None:
        self._require()
        waiting = _Waiting(asyncio.get_running_loop().create_future(), offsets, delete)
        self._waiting.append(waiting)
        self._begin_turns()
        error = await waiting.outcome
        if error is not None:
            raise error

    def _require(self) -> None:
        if self._dropped is not None:
            raise self._dropped

    def _begin_turns(self) -> None:
        if not self._is_writing and (self._effects or self._waiting):
            self._is_writing = True
            self._tasks.spawn("write group", self._take_turns())

    async def _take_turns(self) -> None:
        try:
            while self._effects or self._waiting:
                await self._take_turn()
        finally:
            self._is_writing = False

    async def _take_turn(self) -> None:
        waiting, self._waiting = self._waiting, []
        effects = len(self._effects)
        change = self._change(waiting, persist=effects > 0)
        try:
            if change == Change():
                await self._store.confirm(self.held)
            else:
                await self._store.write(self.held, change)
        except CatenaError as error:
            self._end(waiting, error)
            # What was told to the machine can't be taken back, so it goes with all that was not stored.
            if effects or change.delete or not isinstance(error, RetryLater):
                self.drop(error)
            return
        except BaseException:
            # This node ends, or has a bug: nobody is to wait for ever.
            gone = RetryLater(f"the coordinator of group {self.group_id!r} goes away")
            self._end(waiting, gone)
            self.drop(gone)
            raise
        if change.delete:
            self.machine = None
        # Fewer if it was dropped meanwhile: its tickets have been answered then.
        for _ in range(min(effects, len(self._effects))):
            self._carry_out(self._effects.popleft())
        self._answer_settled()
        self._end(waiting, None)

    def _change(self, waiting: list[_Waiting], persist: bool) -> Change:
        if any(one.delete for one in waiting):
            return Change(delete=True)
        offsets: dict[Slot, CommittedOffset | None] = {}
        for one in waiting:
            offsets.update(one.offsets)
        creates = bool(offsets) and not self.held.exists
        machine = self.machine if persist or creates else None
        return Change(None if machine is None else _state_of(machine), offsets)

    def _answer_settled(self) -> None:
        while self._effects and isinstance(self._effects[0], Reply):
            self._carry_out(self._effects.popleft())

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Reply):
            reply = self._tickets.pop(effect.ticket, None)
            if reply is not None:
                _settle(reply, effect.response)

    def _end(self, waiting: list[_Waiting], error: CatenaError | None) -> None:
        for one in waiting:
            _settle(one.outcome, error)


def _state_of(machine: Group) -> MachineState:
    kind: Kind = "consumer"
    protocol_type: str | None = CONSUMER_PROTOCOL_TYPE
    if isinstance(machine, ClassicGroup):
        kind, protocol_type = "classic", machine.protocol_type
    return MachineState(kind, protocol_type or "", machine.is_empty, machine.snapshot())


def _settle(future: asyncio.Future[T], outcome: T) -> None:
    """Whoever waits may be gone."""
    if not future.done():
        future.set_result(outcome)
