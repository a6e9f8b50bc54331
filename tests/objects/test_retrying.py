from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest

from catena.errors import CatenaError, Conflict, ObjectMissing, OutcomeUnknown, StoreFull, StoreUnavailable
from catena.objects.base import Blob, ObjectInfo, ObjectStore, Range
from catena.objects.memory import MemoryObjects
from catena.objects.retrying import RetryingObjects, RetrySettings
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.objects import ObjectStoreContract, list_keys
from catena.types import ABSENT, ANY, Buffer, Buffers, ETag, Expect

SETTINGS = RetrySettings(max_tries=5, first_pause_ms=100, longest_pause_ms=300, deadline_ms=10_000)


class TestRetryingObjects(ObjectStoreContract):
    @pytest.fixture
    def store(self) -> ObjectStore:
        return RetryingObjects(MemoryObjects(SystemClock()), SystemClock(), SystemEntropy())

    @pytest.fixture
    def second_store(self, store: ObjectStore) -> ObjectStore:
        return store


class RecordingClock(SystemClock):
    """Sleeps at once, and keeps the account."""

    def __init__(self) -> None:
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return sum(self.pauses)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


class FullJitter(SystemEntropy):
    def jitter(self) -> float:
        return 1.0


class FailingObjects(MemoryObjects):
    """Raises what it is told to, one by one, before it does anything."""

    def __init__(self, *errors: CatenaError | None) -> None:
        super().__init__(SystemClock())
        self.errors = list(errors)
        self.tries = 0

    def _fail(self) -> None:
        self.tries += 1
        if self.errors and (error := self.errors.pop(0)) is not None:
            raise error

    async def put(self, key: str, data: Buffers, expect: Expect | ETag = ANY) -> ETag:
        self._fail()
        return await super().put(key, data, expect)

    async def get(self, key: str) -> Blob:
        self._fail()
        return await super().get(key)

    async def get_ranges(self, key: str, ranges: Sequence[Range]) -> list[Buffer]:
        self._fail()
        return await super().get_ranges(key, ranges)

    async def head(self, key: str) -> ObjectInfo:
        self._fail()
        return await super().head(key)

    async def list(self, prefix: str, after: str = "") -> AsyncIterator[ObjectInfo]:
        async for info in super().list(prefix, after):
            self._fail()
            yield info

    async def delete(self, keys: Sequence[str]) -> None:
        self._fail()
        await super().delete(keys)


def retrying(store: ObjectStore, settings: RetrySettings = SETTINGS) -> tuple[RetryingObjects, RecordingClock]:
    clock = RecordingClock()
    return RetryingObjects(store, clock, FullJitter(), settings), clock


Call = Callable[[ObjectStore], Awaitable[object]]
READS: dict[str, Call] = {
    "get": lambda store: store.get("a"),
    "get_ranges": lambda store: store.get_ranges("a", [Range(0, 1)]),
    "head": lambda store: store.head("a"),
    "list": lambda store: list_keys(store, ""),
}
CONDITIONAL: dict[str, Call] = {
    "create": lambda store: store.put("a", [b"1"], ABSENT),
    "replace": lambda store: store.put("a", [b"1"], ETag("1")),
}
REPEATABLE: dict[str, Call] = {
    "put": lambda store: store.put("a", [b"1"]),
    "delete": lambda store: store.delete(["a"]),
}


@pytest.mark.parametrize("call", (READS | REPEATABLE).values(), ids=(READS | REPEATABLE).keys())
async def test_what_was_not_applied_is_tried_again(call: Call) -> None:
    inner = FailingObjects(None, StoreUnavailable("down"), StoreUnavailable("down"))
    await inner.put("a", [b"1"])
    store, clock = retrying(inner)
    await call(store)
    assert clock.pauses == [0.1, 0.2]


async def test_a_condition_that_was_not_tried_is_tried_again() -> None:
    store, clock = retrying(FailingObjects(StoreUnavailable("409")))
    await store.put("a", [b"1"], ABSENT)
    assert clock.pauses == [0.1]


@pytest.mark.parametrize("call", CONDITIONAL.values(), ids=CONDITIONAL.keys())
async def test_a_condition_with_unknown_outcome_is_not_tried_again(call: Call) -> None:
    inner = FailingObjects(OutcomeUnknown("lost"))
    store, _ = retrying(inner)
    with pytest.raises(OutcomeUnknown):
        await call(store)
    assert inner.tries == 1


@pytest.mark.parametrize("call", REPEATABLE.values(), ids=REPEATABLE.keys())
async def test_what_may_be_done_twice_is(call: Call) -> None:
    inner = FailingObjects(OutcomeUnknown("lost"))
    store, _ = retrying(inner)
    await call(store)
    assert inner.tries == 2


@pytest.mark.parametrize("error", [Conflict("a"), ObjectMissing("a"), StoreFull("full")])
async def test_an_answer_is_not_asked_for_again(error: CatenaError) -> None:
    inner = FailingObjects(error)
    store, clock = retrying(inner)
    with pytest.raises(type(error)):
        await store.put("a", [b"1"])
    assert (inner.tries, clock.pauses) == (1, [])


async def test_tries_are_bounded_and_pauses_grow_up_to_a_limit() -> None:
    inner = FailingObjects(*(StoreUnavailable(f"try {number}") for number in range(1, 9)))
    store, clock = retrying(inner)
    with pytest.raises(StoreUnavailable, match="try 5"):
        await store.get("a")
    assert clock.pauses == [0.1, 0.2, 0.3, 0.3]


async def test_no_try_starts_after_the_deadline() -> None:
    inner = FailingObjects(*(StoreUnavailable("down") for _ in range(9)))
    settings = RetrySettings(max_tries=100, first_pause_ms=1_000, longest_pause_ms=1_000, deadline_ms=3_500)
    store, clock = retrying(inner, settings)
    with pytest.raises(StoreUnavailable):
        await store.get("a")
    assert sum(clock.pauses) <= 3.5
    assert inner.tries == 4


async def test_jitter_takes_up_to_half_of_a_pause() -> None:
    clock = RecordingClock()
    inner = FailingObjects(*(StoreUnavailable("down") for _ in range(4)))
    store = RetryingObjects(inner, clock, SystemEntropy(), SETTINGS)
    with pytest.raises(ObjectMissing):
        await store.get("a")
    for pause, longest in zip(clock.pauses, [0.1, 0.2, 0.3, 0.3], strict=True):
        assert longest / 2 <= pause < longest


async def test_a_listing_goes_on_where_it_was_and_counts_tries_anew() -> None:
    inner = FailingObjects()
    for number in range(6):
        await inner.put(f"{number}", [b"1"])
    down = StoreUnavailable("down")
    inner.errors = [None, None, down, down, down, down, None, None, down, down, down, down]
    store, _ = retrying(inner)
    assert await list_keys(store, "") == ["0", "1", "2", "3", "4", "5"]
