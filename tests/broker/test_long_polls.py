"""Who waits for more to come: woken by news, by the end of its time, and by the end of the node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from catena.broker.long_polls import LongPolls, News
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.loglets.base import Entry
from catena.runtime import Tasks
from catena.virtual_log.log import VirtualLog
from tests.broker.world import World

LONG_S = 60.0


class Waiter:
    def __init__(self, polls: LongPolls, logs: list[VirtualLog]) -> None:
        self.polls, self.logs = polls, logs
        self.looks: list[set[VirtualLog] | None] = []
        self.is_enough = False
        self._looked = asyncio.Event()

    async def look(self, news: News | None) -> bool:
        self.looks.append(None if news is None else set(news))
        self._looked.set()
        return self.is_enough

    async def looked(self, times: int) -> None:
        while len(self.looks) < times:
            self._looked.clear()
            await self._looked.wait()

    def start(self, max_wait_s: float = LONG_S) -> asyncio.Task[None]:
        return asyncio.ensure_future(self.polls.look_until(self.logs, max_wait_s, self.look))


@pytest.fixture
async def waiter(tmp_path: Path) -> AsyncIterator[Waiter]:
    async with AsyncExitStack() as opened:
        node = await World("memory", tmp_path, opened).node(1)
        await node.node.topics.create("t", 2)
        tasks = Tasks("polls")
        opened.push_async_callback(tasks.close)
        logs = [await node.node.log("t", number) for number in range(2)]
        yield Waiter(LongPolls(node.node.clock, tasks), logs)


async def append(log: VirtualLog) -> None:
    data = build_batch([(None, b"x", (), 1)])
    await log.append(Entry(parse_header(data), data))


async def test_what_is_enough_is_looked_at_once(waiter: Waiter) -> None:
    waiter.is_enough = True
    await waiter.polls.look_until(waiter.logs, LONG_S, waiter.look)
    assert waiter.looks == [set()]


async def test_who_does_not_wait_asks_the_store(waiter: Waiter) -> None:
    await waiter.polls.look_until(waiter.logs, 0.0, waiter.look)
    assert waiter.looks == [None]


async def test_news_wake_and_say_of_what(waiter: Waiter) -> None:
    waits = waiter.start()
    await waiter.looked(2)
    assert len(waiter.polls) == 1
    await append(waiter.logs[1])
    await waiter.looked(3)
    waiter.is_enough = True
    await append(waiter.logs[0])
    async with asyncio.timeout(30):
        await waits
    assert waiter.looks[2] == {waiter.logs[1]}
    assert waiter.looks[-1] == {waiter.logs[0]}
    assert not len(waiter.polls)


async def test_at_the_end_of_its_time_it_looks_once_more(waiter: Waiter) -> None:
    await waiter.polls.look_until(waiter.logs, 0.05, waiter.look)
    assert waiter.looks[0] == set()
    assert waiter.looks[-1] is None
    assert None not in waiter.looks[:-1]


async def test_a_node_that_ends_wakes_all_and_lets_nobody_wait(waiter: Waiter) -> None:
    waits = waiter.start()
    await waiter.looked(2)
    waiter.polls.end()
    async with asyncio.timeout(30):
        await waits
        await waiter.polls.look_until(waiter.logs, LONG_S, waiter.look)
    assert waiter.looks[-2:] == [None, None]


async def test_where_nobody_may_be_there_any_more_the_wait_is_over(waiter: Waiter) -> None:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    waits = asyncio.ensure_future(waiter.polls.look_until(waiter.logs, LONG_S, waiter.look, ended))
    await waiter.looked(2)
    ended.set_result(None)
    async with asyncio.timeout(30):
        await waits
        assert waiter.looks[-1] is None
        await waiter.polls.look_until(waiter.logs, LONG_S, waiter.look, ended)
    assert waiter.looks[-2:] == [None, None]
    assert not len(waiter.polls)


async def test_who_is_gone_leaves_nothing(waiter: Waiter) -> None:
    waits = waiter.start()
    await waiter.looked(2)
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert not len(waiter.polls)
