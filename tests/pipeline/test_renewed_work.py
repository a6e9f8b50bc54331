"""A session that has ended is opened again, by whoever needs it next. Time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from catena.errors import ConfigError, NeedsOperator, RetryLater, StoreUnavailable
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.renewed_work import EARLIER, TRIES, RenewedWork, renewed
from catena.pipeline.tasks import TaskContext, probe, run_task
from catena.pipeline.work import InlineWork, Work
from sim.loop import SimLoop
from sim.runtime import SimClock, SimEntropy
from tests.pipeline.mortal_work import MortalWork

T = TypeVar("T")


class Sessions:
    """Opens them one after the other, never two at once; some can't be opened, and some can't be ended cleanly."""

    def __init__(self) -> None:
        self.loop = SimLoop(seed=1)
        self.clock = SimClock(self.loop)
        self.made: list[MortalWork] = []
        self.is_open = False
        self.refusals = 0
        self.ends_badly = False
        self.tries: list[float] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Work]:
        assert not self.is_open, "PySpark has one driver in a process"
        self.tries.append(self.loop.time())
        if self.refusals:
            self.refusals -= 1
            raise ConfigError("Spark's JVM could not be started")
        await self.clock.sleep(3)
        objects = CountedObjects(MemoryObjects(self.clock), self.clock)
        self.made.append(MortalWork(InlineWork(TaskContext(objects, self.clock, SimEntropy(1), objects), run_task)))
        self.is_open = True
        try:
            yield self.made[-1]
        finally:
            self.is_open = False
            if self.ends_badly:
                raise OSError("the JVM is gone")

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        return self.loop.run(main)


@pytest.fixture
def sessions() -> Iterator[Sessions]:
    sessions = Sessions()
    yield sessions
    sessions.loop.bury()


async def echo(work: Work) -> bytes:
    (result,) = await work.run("probe", [b"hello"], lambda *_: None)
    assert isinstance(result, bytes)
    return probe.decode(result).echo


def test_the_next_one_opens_it_again(sessions: Sessions) -> None:
    async def main() -> None:
        async with renewed(sessions.open, sessions.clock) as work:
            assert await echo(work) == b"hello"
            sessions.made[0].kill()
            sessions.ends_badly = True
            with pytest.raises(RetryLater, match="has ended"):
                await echo(work)
            assert len(sessions.made) == 1, "nobody needs it yet"
            assert await echo(work) == b"hello"
            assert len(sessions.made) == 2
            assert (work.renewals.restarts, work.renewals.failures) == (1, 0)
            assert work.renewals.last_error == "OSError: the JVM is gone"
            sessions.ends_badly = False
        assert not sessions.is_open

    sessions.run(main())


def test_all_that_was_done_is_told(sessions: Sessions) -> None:
    async def main() -> None:
        async with renewed(sessions.open, sessions.clock) as work:
            for _ in range(3):
                await echo(work)
                await echo(work)
                sessions.made[-1].kill()
                with pytest.raises(RetryLater):
                    await echo(work)
            assert {executor: usage.tasks for executor, usage in work.usage.items()} == {EARLIER: 6}
            await echo(work)
            assert sorted(usage.tasks for usage in work.usage.values()) == [1, 6]

    sessions.run(main())


def test_those_who_work_at_the_same_time_share_the_new_one(sessions: Sessions) -> None:
    async def main() -> None:
        async with renewed(sessions.open, sessions.clock) as work:
            sessions.made[0].kill()
            with pytest.raises(RetryLater):
                await echo(work)
            assert await asyncio.gather(*(echo(work) for _ in range(3))) == [b"hello"] * 3
            assert (len(sessions.made), work.renewals.restarts) == (2, 1)

    sessions.run(main())


def test_it_is_tried_a_few_times_with_growing_pauses(sessions: Sessions) -> None:
    async def main() -> None:
        async with renewed(sessions.open, sessions.clock) as work:
            sessions.made[0].kill()
            with pytest.raises(RetryLater):
                await echo(work)
            sessions.tries.clear()
            sessions.refusals = TRIES
            with pytest.raises(RetryLater, match=r"can't be started again: ConfigError: Spark's JVM could not"):
                await work.ready()
            pauses = [after - before for before, after in zip(sessions.tries, sessions.tries[1:], strict=False)]
            assert pauses == [1, 2, 4, 8]
            assert work.renewals.failures == TRIES
            sessions.refusals = 2
            await work.ready()
            assert (work.renewals.restarts, work.renewals.failures) == (1, TRIES + 2)
            assert await echo(work) == b"hello"

    sessions.run(main())


def test_who_is_told_to_end_does_not_wait_for_a_new_one(sessions: Sessions) -> None:
    async def main() -> None:
        async with renewed(sessions.open, sessions.clock) as work:
            sessions.made[0].kill()
            with pytest.raises(RetryLater):
                await echo(work)
            sessions.refusals = TRIES
            waits = asyncio.ensure_future(work.ready())
            await sessions.clock.sleep(4)
            assert not waits.done()
            work.end()
            before = sessions.loop.time()
            with pytest.raises(RetryLater, match="the service ends"):
                await waits
            assert sessions.loop.time() - before < 1
            tries = len(sessions.tries)
            with pytest.raises(RetryLater, match="the service ends"):
                await work.ready()
            assert len(sessions.tries) == tries

    sessions.run(main())


def test_without_a_first_one_there_is_nothing(sessions: Sessions) -> None:
    async def main() -> None:
        sessions.refusals = 1
        with pytest.raises(ConfigError):
            async with renewed(sessions.open, sessions.clock):
                pass
        assert len(sessions.tries) == 1

    sessions.run(main())


def test_it_ends_also_where_there_is_none_at_the_moment(sessions: Sessions) -> None:
    async def main() -> None:
        async with renewed(sessions.open, sessions.clock) as work:
            sessions.made[0].kill()
            sessions.ends_badly = True
            with pytest.raises(RetryLater):
                await echo(work)

    sessions.run(main())


class TestTables:
    @pytest.mark.parametrize("error", [StoreUnavailable("throttled"), LookupError("a bug")])
    def test_an_error_alone_is_no_end(self, sessions: Sessions, error: Exception) -> None:
        async def main() -> None:
            async with renewed(sessions.open, sessions.clock) as work:
                with pytest.raises(type(error)):
                    await use_table(work, error)
                await work.ready()
                assert len(sessions.made) == 1

        sessions.run(main())

    @pytest.mark.parametrize("error", [StoreUnavailable("throttled"), EOFError("Spark says nothing any more")])
    def test_an_end_is_noticed(self, sessions: Sessions, error: Exception) -> None:
        async def main() -> None:
            async with renewed(sessions.open, sessions.clock) as work:
                with pytest.raises(type(error)):
                    await use_table(work, error, sessions)
                await work.ready()
                assert work.renewals.restarts == 1

        sessions.run(main())

    def test_nobody_looks_after_an_error_that_says_what_it_is(self, sessions: Sessions) -> None:
        async def main() -> None:
            async with renewed(sessions.open, sessions.clock) as work:
                with pytest.raises(NeedsOperator):
                    await use_table(work, NeedsOperator("damaged"), sessions)
                assert sum(usage.tasks for usage in work.usage.values()) == 0
                await work.ready()
                assert work.renewals.restarts == 0

        sessions.run(main())


async def use_table(work: RenewedWork, error: Exception, kills: Sessions | None = None) -> None:
    async with work.table("listing", []):
        if kills is not None:
            kills.made[-1].kill()
        raise error
