"""The stores as a process sees them over a bad wire: every call is a request, an effect and an answer, apart in time.

The effect belongs to the store and not to the caller: once the request has left, it comes about whether or not the
caller lives. Each write draws its fate:

    served        applied and answered          refused       StoreUnavailable, never applied
    lost request  OutcomeUnknown, not applied   lost answer   OutcomeUnknown, applied
    late          OutcomeUnknown, applied after the caller was told so, maybe much later

A write may have several parts, each atomic by itself (the groups of a `transact`): where its outcome is unknown, some
of them may be applied at once, and the others late or never. Reads are served or refused. Behind the wire are the
product's memory stores, whose calls never wait.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextvars import ContextVar
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from catena.errors import CatenaError, Conflict, OutcomeUnknown, StoreUnavailable
from catena.meta.base import SCAN_LIMIT, Committed, Group, GroupResult, Record, Refused, Session, Watch
from catena.meta.memory import MemoryMeta
from catena.meta.sessions import KeptSession
from catena.objects.base import Blob, ObjectInfo, Range
from catena.objects.memory import MemoryObjects
from catena.runtime import Tasks
from catena.types import ANY, Buffer, Buffers, ETag, Expect, Version
from sim import steps
from sim.chaos import Chaos, Moment, Strike, Tally
from sim.history import History
from sim.loop import PROCESS, Chance, Process, SimLoop
from sim.runtime import SimClock
from sim.scenario import StoreFaults, WatchFaults

T = TypeVar("T")

LATENCY_S = 0.004
SLOW_S = 3.0
TIMEOUT_S = 1.0
LATE_S = 20.0
OUTAGE_S = 10.0


class Fate(enum.Enum):
    SERVED = "served"
    REFUSED = "refused"
    LOST_REQUEST = "lost request"
    LOST_ANSWER = "lost answer"
    LATE = "late"
    OWN_CONFLICT = "own conflict"


class Answer(NamedTuple):
    values: list[Any]
    """One for each part."""
    error: CatenaError | None = None


class Request(NamedTuple):
    step: str
    """Empty: a read."""
    parts: Sequence[Callable[[], Any]]
    fate: Fate
    caller: Process | None
    strike: Strike | None
    answer: asyncio.Future[Answer]


def at_once(call: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that never waits."""
    try:
        call.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise AssertionError(f"{call} waits, and a memory store must not")


class Wire:
    """All calls to one store go through here."""

    def __init__(
        self,
        name: str,
        loop: SimLoop,
        random: Chance,
        faults: StoreFaults,
        watches: WatchFaults,
        chaos: Chaos,
        history: History,
        tally: Tally,
    ) -> None:
        self._name = name
        self._watches = watches
        self._history = history
        self._loop = loop
        self._random = random
        self._faults = faults
        self._chaos = chaos
        self._tally = tally
        self._down_until = 0.0

    def heal(self) -> None:
        """No call fails from now on; what is under way or late still arrives."""
        self.become(StoreFaults())
        self._watches = WatchFaults()
        self._down_until = 0.0

    def become(self, faults: StoreFaults) -> None:
        self._faults = faults

    async def wake_up(self, watch: Watch) -> None:
        """Loses wake-ups, delays them, and wakes for nothing: all that a hint may do."""
        if self._random.random() < self._watches.spurious:
            self._tally.faults["watch: spurious"] += 1
            await self._loop.sleep(self._random.random())
            return
        await watch.changed()
        while self._random.random() < self._watches.lost:
            self._tally.faults["watch: lost"] += 1
            await watch.changed()
        stale = self._random.random() < self._watches.stale
        if stale:
            self._tally.faults["watch: stale"] += 1
        await self._loop.sleep(self._random.random() * (SLOW_S if stale else LATENCY_S))

    async def read(self, serve: Callable[[], T], step: str = "") -> T:
        """Who reads may be struck as well, where the read has a name."""
        caller = PROCESS.get()
        strike = self._chaos.draw(caller, step) if step else None
        await self._strike_at(Moment.BEFORE, caller, step, strike)
        refused = self._random.random() < self._faults.refused
        (result,) = await self._send("", [serve], Fate.REFUSED if refused else Fate.SERVED, None)
        await self._strike_at(Moment.APPLIED, caller, step, strike)
        return result

    async def write(self, step: str, serve: Callable[[], T]) -> T:
        (result,) = await self.write_parts(step, [serve])
        return result

    async def write_parts(self, step: str, parts: Sequence[Callable[[], T]]) -> list[T]:
        caller = PROCESS.get()
        strike = self._chaos.draw(caller, step)
        await self._strike_at(Moment.BEFORE, caller, step, strike)
        if strike is not None and strike.moment is Moment.BEFORE:
            strike = None
        return await self._send(step, parts, self._draw_fate(step), strike)

    async def _strike_at(self, moment: Moment, caller: Process | None, step: str, strike: Strike | None) -> None:
        if caller is not None and strike is not None and strike.moment is moment:
            self._chaos.strike(caller, step, strike)
            # Nothing of a dead process runs after this await, and a frozen one is held by it.
            await self._loop.sleep(0)

    async def _send(self, step: str, parts: Sequence[Callable[[], T]], fate: Fate, strike: Strike | None) -> list[T]:
        answer: asyncio.Future[Answer] = self._loop.create_future()
        request = Request(step, parts, fate, PROCESS.get(), strike, answer)
        self._loop.call_later(self._latency(), self._arrive, request, context=self._loop.outside)
        values, error = await answer
        if error is not None:
            raise error
        return values

    def _draw_fate(self, step: str) -> Fate:
        faults, drawn = self._faults, self._random.random()
        own_conflict = 0.0 if step.endswith(":delete") else faults.own_conflict  # a delete expects nothing
        for fate, chance in (
            (Fate.REFUSED, faults.refused),
            (Fate.LOST_REQUEST, faults.lost_request),
            (Fate.LOST_ANSWER, faults.lost_answer),
            (Fate.LATE, faults.late),
            (Fate.OWN_CONFLICT, own_conflict),
        ):
            if drawn < chance:
                return fate
            drawn -= chance
        return Fate.SERVED

    def _arrive(self, request: Request) -> None:
        fate = request.fate
        if self._is_down() and fate is not Fate.LATE:
            fate = Fate.REFUSED if not request.step or self._random.random() < 0.5 else Fate.LOST_REQUEST
        if fate is not Fate.SERVED:
            self._tally.faults[f"{self._name}: {fate.value}"] += 1
        match fate:
            case Fate.SERVED:
                self._reply(request, self._apply(request), self._latency())
            case Fate.REFUSED:
                self._reply(request, Answer([], StoreUnavailable(f"{self._name} store: refused")), self._latency())
            case Fate.LOST_REQUEST:
                self._reply(request, self._unknown(), TIMEOUT_S)
            case Fate.LOST_ANSWER:
                self._apply(request._replace(parts=self._some(request.parts) or request.parts))
                self._reply(request, self._unknown(), TIMEOUT_S)
            case Fate.LATE:
                self._reply(request, self._unknown(), TIMEOUT_S * self._random.random())
                early = self._some(request.parts)
                if early:
                    self._apply(request._replace(parts=early))
                late = request._replace(parts=[part for part in request.parts if part not in early], strike=None)
                delay = TIMEOUT_S + LATE_S * self._random.random() ** 3
                self._loop.call_later(delay, self._apply, late, context=self._loop.outside)
            case Fate.OWN_CONFLICT:
                answer = self._apply(request)
                self._reply(request, Answer([], answer.error or Conflict("own first attempt")), self._latency())

    def _apply(self, request: Request) -> Answer:
        try:
            answer = Answer([part() for part in request.parts])
        except CatenaError as error:
            answer = Answer([], error)
        if request.step:
            self._history.note(f"{request.caller} {request.step} {_brief(answer)} ({request.fate.value})")
        if request.strike is not None and request.caller is not None and _took_effect(answer):
            self._chaos.strike(request.caller, request.step, request.strike)
        return answer

    def _some(self, parts: Sequence[Callable[[], Any]]) -> list[Callable[[], Any]]:
        """Of several parts some, of a single one none: half of it can't be applied."""
        return [part for part in parts if self._random.random() < 0.5] if len(parts) > 1 else []

    def _reply(self, request: Request, answer: Answer, delay: float) -> None:
        self._loop.call_later(delay, _deliver, request.answer, answer, context=self._loop.outside)

    def _unknown(self) -> Answer:
        return Answer([], OutcomeUnknown(f"{self._name} store: no answer"))

    def _latency(self) -> float:
        slow = self._random.random() < self._faults.slow
        return self._random.random() * (SLOW_S if slow else LATENCY_S)

    def _is_down(self) -> bool:
        if self._loop.time() >= self._down_until and self._random.random() < self._faults.outage:
            self._tally.faults[f"{self._name}: outage"] += 1
            self._down_until = self._loop.time() + OUTAGE_S * self._random.random()
        return self._loop.time() < self._down_until


def _took_effect(answer: Answer) -> bool:
    return not all(isinstance(value, Refused) for value in answer.values)


def _brief(answer: Answer) -> str:
    if answer.error is not None:
        return type(answer.error).__name__
    return " ".join(
        type(value).__name__ if isinstance(value, Committed | Refused) else "applied" for value in answer.values
    )


def _deliver(future: asyncio.Future[Answer], answer: Answer) -> None:
    if not future.done():
        future.set_result(answer)


class FaultyWatch:
    def __init__(self, inner: Watch, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    async def changed(self) -> None:
        await self._wire.wake_up(self._inner)

    def close(self) -> None:
        self._inner.close()


LOOKS: ContextVar[Mapping[str, int]] = ContextVar("looks", default=MappingProxyType({}))
"""By chain key: at which change of the store the running task last looked at that chain."""


class ObservedMeta(MemoryMeta):
    """The one store behind all wires; tells an observer of every change, in the order in which they take effect."""

    observer: Callable[[str, bytes | None, bytes | None], None]

    def __init__(self, clock: SimClock) -> None:
        super().__init__(clock)
        self.clock = clock
        self.changes = 0
        """How many there were: the store's own time."""
        self.index_observer: Callable[[str, int | None], None] = lambda _key, _looked: None
        """Told of each index entry that was put alone, and when its writer had last looked at the chain."""

    def put_index(self, key: str, value: bytes, expect: Version | Expect, looked: int | None) -> Version:
        version = at_once(self.put(key, value, expect))
        self.index_observer(key, looked)
        return version

    def open_session(self, ttl_ms: int) -> str:
        """As `session` does, but kept alive by the process that asks, over its own wire."""
        self._last_session += 1
        name = f"session-{self._last_session}"
        self._deadlines[name] = self.clock.monotonic() + ttl_ms / 1000
        return name

    def renew_session(self, name: str, ttl_ms: int) -> bool:
        return at_once(self._renew(name, ttl_ms))

    def end_session(self, name: str) -> None:
        at_once(self._end(name))

    def _write(self, key: str, value: bytes, session: str | None) -> Version:
        old = self._find(key)
        version = super()._write(key, value, session)
        self.changes += 1
        self.observer(key, old and old.value, value)
        return version

    def _remove(self, key: str) -> None:
        old = self._find(key)
        super()._remove(key)
        self.changes += 1
        self.observer(key, old and old.value, None)


class ObservedObjects(MemoryObjects):
    """The one object store behind all wires; tells an observer of each object that is gone."""

    def __init__(self, clock: SimClock) -> None:
        super().__init__(clock)
        self.observer: Callable[[str], None] = lambda _key: None

    async def list_now(self) -> list[ObjectInfo]:
        return await _listed(self, "", "")

    def peek(self, key: str) -> bytes | None:
        stored = self._objects.get(key)
        return None if stored is None else stored.data

    async def delete(self, keys: Sequence[str]) -> None:
        gone = [key for key in keys if key in self._objects]
        await super().delete(keys)
        for key in gone:
            self.observer(key)


class FaultyMeta:
    """One process's way to the meta store that all share."""

    def __init__(self, inner: ObservedMeta, can_transact: bool, wire: Wire) -> None:
        self._inner = inner
        self._can_transact = can_transact
        self._wire = wire
        self._tasks = Tasks("sessions")

    @property
    def can_transact(self) -> bool:
        return self._can_transact

    async def get(self, key: str) -> Record | None:
        step = self._name_read(key)
        record, looked = await self._wire.read(lambda: (at_once(self._inner.get(key)), self._inner.changes), step)
        if steps.kind_of(key) == "chain":
            LOOKS.set({**LOOKS.get(), key: looked})
        return record

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        step = self._name_put(key, value)
        if step == "index:create":
            looked = LOOKS.get().get(steps.chain_of(key))
            return await self._wire.write(step, lambda: self._inner.put_index(key, value, expect, looked))
        return await self._wire.write(step, lambda: at_once(self._inner.put(key, value, expect, ephemeral)))

    async def delete(self, key: str, expect: Version | Expect = ANY) -> None:
        step = f"{steps.kind_of(key)}:delete"
        await self._wire.write(step, lambda: at_once(self._inner.delete(key, expect)))

    async def ceiling(self, key: str, end: str) -> Record | None:
        return await self._wire.read(lambda: at_once(self._inner.ceiling(key, end)))

    async def scan(self, start: str, end: str, limit: int = SCAN_LIMIT) -> list[Record]:
        return await self._wire.read(lambda: at_once(self._inner.scan(start, end, limit)), self._name_read(start))

    async def delete_range(self, start: str, end: str) -> None:
        step = f"{steps.kind_of(start)}:delete range"
        await self._wire.write(step, lambda: at_once(self._inner.delete_range(start, end)))

    async def transact(self, groups: Sequence[Group]) -> list[GroupResult]:
        step = steps.name_transact(groups, self._value)
        return await self._wire.write_parts(step, [partial(self._apply_group, group) for group in groups])

    def watch(self, prefix: str) -> FaultyWatch:
        return FaultyWatch(self._inner.watch(prefix), self._wire)

    async def session(self, ttl_ms: int) -> KeptSession:
        inner, started = self._inner, self._inner.clock.monotonic()
        name = await self._wire.write("session:open", lambda: inner.open_session(ttl_ms))
        session = KeptSession(name, ttl_ms, started, inner.clock, self._renew, self._end)
        self._tasks.spawn(f"keep {name} alive", session.keep_alive())
        return session

    async def close(self) -> None:
        """The store outlives each process."""

    async def _renew(self, name: str, ttl_ms: int) -> bool:
        return await self._wire.write("session:renew", lambda: self._inner.renew_session(name, ttl_ms))

    async def _end(self, name: str) -> None:
        await self._wire.write("session:end", lambda: self._inner.end_session(name))

    def _name_read(self, _key: str) -> str:
        """Most have none."""
        return ""

    def _name_put(self, key: str, value: bytes) -> str:
        return steps.name_put(key, value, self._value(key))

    def _apply_group(self, group: Group) -> GroupResult:
        (result,) = at_once(self._inner.transact([group]))
        return result

    def _value(self, key: str) -> bytes | None:
        record = at_once(self._inner.get(key))
        return None if record is None else record.value


class FaultyObjects:
    """One process's way to the object store that all share."""

    def __init__(self, inner: MemoryObjects, wire: Wire) -> None:
        self._inner = inner
        self._wire = wire

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        # A real client has sent these bytes, or made its own copy, before anyone can change them.
        sent = [bytes(part) for part in data]
        return await self._wire.write(steps.name_object_put(key), lambda: at_once(self._inner.put(key, sent, expect)))

    async def get(self, key: str) -> Blob:
        return await self._wire.read(lambda: at_once(self._inner.get(key)))

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        return await self._wire.read(lambda: at_once(self._inner.get_ranges(key, ranges)))

    async def head(self, key: str) -> ObjectInfo:
        return await self._wire.read(lambda: at_once(self._inner.head(key)))

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        for info in await self._wire.read(lambda: at_once(_listed(self._inner, prefix, after))):
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        """Each by itself: of a delete whose outcome is unknown some may be done, and the others late or never."""
        if keys:
            await self._wire.write_parts("blob:delete", [partial(self._delete, key) for key in keys])

    async def close(self) -> None:
        """The store outlives each process."""

    def _delete(self, key: str) -> None:
        at_once(self._inner.delete([key]))


async def _listed(objects: MemoryObjects, prefix: str, after: str) -> list[ObjectInfo]:
    return [info async for info in objects.list(prefix, after)]
