"""What the clients of groups asked and were told. See `history` for ticks and outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from sim.history import NEVER, History, Outcome

NOTHING = -1
"""The offset of a partition for which none is committed."""
SIMPLE = -1
"""The generation of those who are in no group."""


class Slot(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}{self.partition}"


@dataclass(slots=True)
class Ask:
    """Any request of a client; the kinds below add what was asked and answered."""

    group: str
    client: str
    invoked: int = 0
    returned: int = NEVER
    outcome: Outcome = Outcome.UNKNOWN


@dataclass(slots=True)
class Commit(Ask):
    """Every offset is committed once only, so a fetch names the commit that it saw."""

    offsets: dict[Slot, int] = field(default_factory=dict)
    member: str = ""
    generation: int = SIMPLE
    """Or the member's epoch."""


@dataclass(slots=True)
class Fetch(Ask):
    offsets: dict[Slot, int] = field(default_factory=dict)


@dataclass(slots=True)
class Removal(Ask):
    """Of offsets, or of the group with all of them."""

    slots: tuple[Slot, ...] | None = None
    """None: the whole group."""


@dataclass(slots=True)
class Join(Ask):
    """A JoinGroup that was told a generation. Members are named by their instance ids where they have one."""

    member: str = ""
    generation: int = 0
    leader: str = ""
    members: tuple[str, ...] = ()
    """Told to the leader only."""


@dataclass(slots=True)
class Sync(Ask):
    member: str = ""
    generation: int = 0
    slots: tuple[Slot, ...] = ()


@dataclass(slots=True)
class Beat(Ask):
    """A heartbeat of the consumer protocol that was answered with an epoch."""

    member: str = ""
    epoch: int = 0


A = TypeVar("A", bound=Ask)


@dataclass(slots=True)
class GroupHistory(History):
    asks: list[Ask] = field(default_factory=list)

    def begin(self, ask: A, what: str) -> A:
        ask.invoked = self.note(f"{ask.client} {ask.group} {what} ...")
        self.asks.append(ask)
        return ask

    def end(self, ask: Ask, outcome: Outcome, what: str) -> None:
        """An ask of unknown outcome counts as under way for ever."""
        tick = self.note(f"{ask.client} {ask.group} {type(ask).__name__} {outcome.value}: {what}")
        ask.outcome = outcome
        if outcome is not Outcome.UNKNOWN:
            ask.returned = tick

    def of(self, kind: type[A]) -> list[A]:
        return [ask for ask in self.asks if isinstance(ask, kind)]
