"""The owner of a session renews it in time, and knows before anybody else when it is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catena.errors import OutcomeUnknown, StoreUnavailable
from catena.meta.sessions import KeptSession
from catena.runtime import Tasks
from tests.meta.manual_clock import ManualClock

TTL_MS = 9_000


class Store:
    """Answers renewals as the test says."""

    def __init__(self) -> None:
        self.answer: bool | Exception = True
        self.renewals = 0
        self.ended: list[str] = []

    async def renew(self, session: str, ttl_ms: int) -> bool:
        assert (session, ttl_ms) == ("s", TTL_MS)
        self.renewals += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    async def end(self, session: str) -> None:
        self.ended.append(session)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store() -> Store:
    return Store()


@pytest.fixture
async def session(clock: ManualClock, store: Store) -> AsyncIterator[KeptSession]:
    session = KeptSession("s", TTL_MS, clock.monotonic(), clock, store.renew, store.end)
    tasks = Tasks("test")
    tasks.spawn("keep alive", session.keep_alive())
    await clock.advance(0)
    yield session
    await tasks.close()


async def test_it_is_renewed_three_times_per_time_to_live(
    clock: ManualClock, store: Store, session: KeptSession
) -> None:
    for _ in range(9):
        await clock.advance(3)
    assert store.renewals == 9
    assert session.alive


async def test_renewals_that_fail_are_tried_again_until_the_time_is_over(
    clock: ManualClock, store: Store, session: KeptSession
) -> None:
    store.answer = StoreUnavailable("down")
    await clock.advance(3)
    store.answer = OutcomeUnknown("lost")
    await clock.advance(3)
    store.answer = True
    await clock.advance(2.9)
    just_before = session.alive
    await clock.advance(0.1)
    assert (just_before, session.alive) == (True, False), "the renewal of this moment came too late"
    assert store.renewals == 2


async def test_a_renewal_counts_from_when_it_was_sent(clock: ManualClock, store: Store, session: KeptSession) -> None:
    await clock.advance(3)
    clock.pause(8.9)
    just_before = session.alive
    clock.pause(0.1)
    assert (just_before, session.alive) == (True, False)


async def test_a_paused_owner_finds_it_lost_and_does_not_renew(
    clock: ManualClock, store: Store, session: KeptSession
) -> None:
    clock.pause(TTL_MS / 1000)
    assert not session.alive
    await clock.advance(3)
    assert store.renewals == 0


async def test_it_is_lost_when_the_store_says_so(clock: ManualClock, store: Store, session: KeptSession) -> None:
    store.answer = False
    await clock.advance(3)
    assert not session.alive
    await session.close()
    assert store.ended == [], "there is nothing left to end"


async def test_closing_ends_it_once(clock: ManualClock, store: Store, session: KeptSession) -> None:
    await session.close()
    await session.close()
    assert store.ended == ["s"]
    assert not session.alive
    await clock.advance(3)
    assert store.renewals == 0
