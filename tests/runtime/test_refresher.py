"""A view is refreshed when hinted and every so often, and trouble with it is said once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catena.errors import CatenaError, StoreUnavailable
from catena.runtime import Tasks
from catena.runtime.refresher import UNUSED_TICKS, USED_S, Refresher, Revision
from tests.meta.manual_clock import ManualClock

EVERY_S = 5.0


class Source:
    """Hints as the test gives them, and counts how often it was asked."""

    def __init__(self) -> None:
        self.hints: asyncio.Queue[CatenaError | None] = asyncio.Queue()
        self.refreshes = 0
        self.trouble: CatenaError | None = None

    async def hint(self) -> None:
        if (error := await self.hints.get()) is not None:
            raise error

    async def refresh(self) -> None:
        self.refreshes += 1
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def source(clock: ManualClock) -> AsyncIterator[Source]:
    source, tasks = Source(), Tasks("test")
    Refresher("view of the test", clock, tasks, EVERY_S, source.hint, source.refresh)
    await clock.advance(0)
    yield source
    await tasks.close()


async def test_it_refreshes_every_so_often(clock: ManualClock, source: Source) -> None:
    await clock.advance(EVERY_S - 0.1)
    assert source.refreshes == 0
    for _ in range(3):
        await clock.advance(EVERY_S)
    assert source.refreshes == 3


async def test_it_refreshes_when_hinted(clock: ManualClock, source: Source) -> None:
    source.hints.put_nowait(None)
    await clock.advance(0)
    assert source.refreshes == 1


async def test_a_hint_that_fails_is_waited_for_again(clock: ManualClock, source: Source) -> None:
    source.hints.put_nowait(StoreUnavailable("no watch"))
    source.hints.put_nowait(None)
    await clock.advance(0)
    assert source.refreshes == 0
    await clock.advance(EVERY_S)
    await clock.advance(0)
    assert source.hints.empty()
    assert source.refreshes >= 1


async def test_a_view_that_nobody_uses_is_left_alone_by_most_ticks(clock: ManualClock) -> None:
    source, tasks, urgent = Source(), Tasks("test"), False
    refresher = Refresher("view", clock, tasks, EVERY_S, source.hint, source.refresh, is_urgent=lambda: urgent)
    await clock.advance(0)

    async def refreshes_in(ticks: int) -> int:
        before = source.refreshes
        for _ in range(ticks):
            await clock.advance(EVERY_S)
        return source.refreshes - before

    in_use = round(USED_S / EVERY_S)
    await refreshes_in(in_use + UNUSED_TICKS)
    assert await refreshes_in(3 * UNUSED_TICKS) == 3
    before = source.refreshes
    source.hints.put_nowait(None)
    await clock.advance(0)
    assert source.refreshes == before + 1, "hints always count"
    assert await refreshes_in(1) == 0
    before = source.refreshes
    refresher.used()
    await clock.advance(0)
    assert source.refreshes == before + 1, "a tick was passed over, and it is made up for at once"
    refresher.used()
    await clock.advance(0)
    assert source.refreshes == before + 1, "once"
    assert await refreshes_in(in_use) == in_use, "who has used it may come back"
    await refreshes_in(UNUSED_TICKS)
    urgent = True
    assert await refreshes_in(3) == 3
    await tasks.close()


async def test_trouble_is_said_once_and_again_when_it_is_over(
    clock: ManualClock, source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.trouble = StoreUnavailable("down")
    for _ in range(4):
        await clock.advance(EVERY_S)
    source.trouble = None
    for _ in range(2):
        await clock.advance(EVERY_S)
    assert source.refreshes == 6
    assert [record.getMessage() for record in caplog.records] == [
        "view of the test: cannot be refreshed, and stays as it is: StoreUnavailable: down",
        "view of the test: fresh again",
    ]


async def test_a_revision_can_be_waited_for() -> None:
    revision = Revision()
    await revision.beyond(-1)
    waiting = [asyncio.ensure_future(revision.beyond(number)) for number in (0, 0, 1)]
    await asyncio.sleep(0)
    revision.advance()
    await asyncio.gather(*waiting[:2])
    assert not waiting[2].done()
    revision.advance()
    await waiting[2]
    assert revision.number == 2
