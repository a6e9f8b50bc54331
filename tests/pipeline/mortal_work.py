"""Work that ends for good, as a session of Spark does whose JVM is gone."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from catena.errors import RetryLater
from catena.pipeline.work import Executor, Table, TaskFailed, Usage, Work


class MortalWork:
    def __init__(self, work: Work, runs: int = 1 << 30) -> None:
        """It lives for so many runs."""
        self._work = work
        self._runs = runs

    def kill(self) -> None:
        self._runs = 0

    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        self._require_life()
        self._runs -= 1
        return await self._work.run(task, plans, done)

    @asynccontextmanager
    async def table(self, task: str, plans: Sequence[bytes]) -> AsyncIterator[Table]:
        self._require_life()
        async with self._work.table(task, plans) as table:
            yield table

    @property
    def usage(self) -> Mapping[Executor, Usage]:
        return self._work.usage

    def _require_life(self) -> None:
        if not self._runs:
            raise RetryLater("it has ended, and a new one has to be opened")
