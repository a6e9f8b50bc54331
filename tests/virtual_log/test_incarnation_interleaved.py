"""Every order in which the steps of raisers, checkers, a restore and a crash can come, and every lost answer.

An actor is a coroutine of the product that stops before each call of a store. A run is a list of choices: who takes the
next step, and what becomes of it. `explore` makes every such list, by going back to the last choice that has an
alternative.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeAlias, TypeVar

from catena.errors import CatenaError, Conflict, MetaBehind, OutcomeUnknown
from catena.meta.base import Record, Session
from catena.meta.memory import MemoryMeta
from catena.objects.base import Blob
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemEntropy
from catena.types import ANY, Buffers, ETag, Expect, Version
from catena.virtual_log.incarnation import (
    Compared,
    Incarnation,
    accept_older_meta,
    check_incarnation,
    compare,
    raise_incarnation,
)
from tests.meta.manual_clock import ManualClock

T = TypeVar("T")
Actor: TypeAlias = Coroutine[Any, Any, Incarnation]

MAX_RUNS = 100_000


class Choices:
    """Those of one run: the given ones first, then the first alternative each time."""

    def __init__(self, given: list[int]) -> None:
        self._given = given
        self.made: list[tuple[int, int]] = []

    def __call__(self, alternatives: int) -> int:
        number = len(self.made)
        choice = self._given[number] if number < len(self._given) else 0
        self.made.append((choice, alternatives))
        return choice


def explore(run: Callable[[Choices], None]) -> int:
    """Returns how many runs there were."""
    given: list[int] = []
    for runs in range(1, MAX_RUNS):
        choices = Choices(given)
        run(choices)
        made = choices.made
        while made and made[-1][0] + 1 == made[-1][1]:
            made.pop()
        if not made:
            return runs
        given = [choice for choice, _ in made]
        given[-1] += 1
    raise AssertionError("there are too many to try them all")


class Stop:
    """Awaited before a step; whoever drives the actor lets it go on."""

    def __await__(self) -> Generator[Stop, None, None]:
        yield self


class Answers:
    """Up to `lost` writes get no answer, and are applied or not."""

    def __init__(self, choose: Choices, lost: int) -> None:
        self._choose = choose
        self._lost = lost

    async def of(self, write: Callable[[], Awaitable[T]]) -> T:
        await Stop()
        fate = self._choose(3) if self._lost else 0
        if fate == 0:
            return await write()
        self._lost -= 1
        if fate == 1:
            try:
                await write()
            except Conflict:
                pass
        raise OutcomeUnknown("no answer")


class SteppedMeta(MemoryMeta):
    def __init__(self, clock: ManualClock, answers: Answers) -> None:
        super().__init__(clock)
        self._answers = answers

    async def get(self, key: str) -> Record | None:
        await Stop()
        return await super().get(key)

    async def put(
        self, key: str, value: bytes, expect: Version | Expect = ANY, ephemeral: Session | None = None
    ) -> Version:
        put = super().put
        return await self._answers.of(lambda: put(key, value, expect, ephemeral))

    def back_up(self) -> tuple[Any, ...]:
        return copy.deepcopy((self._keys, self._stored, self._last_version))

    def restore(self, backup: tuple[Any, ...]) -> None:
        """Versions that were given out since the backup will be given out again."""
        self._keys, self._stored, self._last_version = copy.deepcopy(backup)


class SteppedObjects(MemoryObjects):
    def __init__(self, clock: ManualClock, answers: Answers) -> None:
        super().__init__(clock)
        self._answers = answers

    async def get(self, key: str) -> Blob:
        await Stop()
        return await super().get(key)

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        put = super().put
        return await self._answers.of(lambda: put(key, data, expect))


class World:
    def __init__(self, choose: Choices, lost: int = 0, deaths: int = 0) -> None:
        """Up to `deaths` actors die, anywhere."""
        self.choose = choose
        self.deaths = deaths
        self.clock = ManualClock()
        answers = Answers(choose, lost)
        self.meta = SteppedMeta(self.clock, answers)
        self.objects = SteppedObjects(self.clock, answers)
        self.outcomes: dict[str, Incarnation | CatenaError] = {}

    def raiser(self, since: Incarnation | None = None) -> Actor:
        return raise_incarnation(self.meta, self.objects, self.clock, since)

    def checker(self) -> Actor:
        return check_incarnation(self.meta, self.objects)

    def accepter(self) -> Actor:
        return accept_older_meta(self.meta, self.objects, self.clock, SystemEntropy())

    def compared(self) -> Compared:
        """What is in the stores at this moment."""
        return at_once(compare(self.meta, self.objects))

    def run(self, actors: dict[str, Actor], look: Callable[[], None] = lambda: None) -> None:
        """Until all have ended, or died; `look` after each step."""
        for actor in actors.values():
            actor.send(None)  # up to its first step
        while actors:
            name = list(actors)[self.choose(len(actors))]
            if self.deaths and self.choose(2):
                self.deaths -= 1
                actors.pop(name).close()
                continue
            try:
                actors[name].send(None)
            except StopIteration as end:
                self.outcomes[name] = end.value
                del actors[name]
            except CatenaError as error:
                self.outcomes[name] = error
                del actors[name]
            look()


def at_once(work: Coroutine[Any, Any, T]) -> T:
    while True:
        try:
            work.send(None)
        except StopIteration as end:
            result: T = end.value
            return result


def look_at(world: World) -> Callable[[], None]:
    """After each step: no number goes down, and the bucket is not ahead."""
    before = Compared(Incarnation(), Incarnation())

    def look() -> None:
        nonlocal before
        now = world.compared()
        assert before.in_bucket.number <= now.in_bucket.number <= now.in_meta.number
        assert before.in_meta.number <= now.in_meta.number
        before = now

    return look


def failures(world: World) -> list[CatenaError]:
    return [outcome for outcome in world.outcomes.values() if isinstance(outcome, CatenaError)]


def test_there_is_no_false_alarm() -> None:
    def run(choose: Choices) -> None:
        world = World(choose)
        world.run({"a": world.raiser(), "b": world.raiser(), "c": world.checker()}, look_at(world))
        assert failures(world) == []
        assert world.compared().in_bucket == world.compared().in_meta

    assert explore(run) > 1_000


def test_the_bucket_is_never_ahead_whoever_dies() -> None:
    def run(choose: Choices) -> None:
        world = World(choose, deaths=2)
        world.run({"a": world.raiser(), "b": world.raiser()}, look_at(world))
        assert failures(world) == []
        for outcome in world.outcomes.values():
            assert isinstance(outcome, Incarnation)
            assert outcome.number <= world.compared().in_bucket.number, "whoever has raised it has marked the bucket"

    assert explore(run) > 500


def test_nor_whichever_answers_are_lost() -> None:
    def run(choose: Choices) -> None:
        world = World(choose, lost=1)
        world.run({"a": world.raiser(), "b": world.raiser()}, look_at(world))
        assert failures(world) == []
        assert world.compared().in_bucket == world.compared().in_meta

    assert explore(run) > 1_000


def test_meta_that_is_set_back_is_never_raised_again() -> None:
    """One raise was made since the backup; others are anywhere in theirs, that they began after it, at the restore."""

    def run(choose: Choices) -> None:
        world = World(choose)
        at_once(world.raiser())
        backup = world.meta.back_up()
        seen = at_once(world.raiser())
        is_restored = False

        def look() -> None:
            nonlocal is_restored
            if is_restored:
                assert world.compared().in_meta.number == 1
                assert world.compared().is_behind
            elif choose(2):
                world.meta.restore(backup)
                is_restored = True

        world.run({"a": world.raiser(), "b": world.raiser(seen)}, look)
        if is_restored:
            for actor in (world.checker(), world.raiser(), world.raiser(seen)):
                world.run({"c": actor}, look)
                assert isinstance(world.outcomes["c"], MetaBehind)

    assert explore(run) > 100


def test_accepting_ends_it_wherever_others_are_and_whichever_answers_are_lost() -> None:
    def run(choose: Choices) -> None:
        world = World(choose, lost=1)
        world.run({"before": world.raiser()})
        backup = world.meta.back_up()
        world.run({"seen": world.raiser()})
        seen = world.outcomes["seen"]
        assert isinstance(seen, Incarnation)
        world.meta.restore(backup)
        world.run({"a": world.accepter(), "b": world.raiser(seen)})
        compared = world.compared()
        assert not compared.is_behind
        assert compared.in_meta == compared.in_bucket == world.outcomes["a"]
        assert isinstance(world.outcomes["b"], MetaBehind)

    assert explore(run) > 100
