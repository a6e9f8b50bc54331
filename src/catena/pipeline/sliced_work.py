"""Work in slices, so that others get their turn in between.

Spark does the tasks of the job that was there first, and those of the next one when slots are left over. A job with
thousands of tasks would keep out for hours what comes after it; one that asks for a slice at a time lets it in at the
end of a slice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager

from catena.pipeline.work import Executor, Table, TaskFailed, Usage, Work


class SlicedWork:
    def __init__(self, work: Work, plans_at_once: int) -> None:
        self._work = work
        self._plans_at_once = plans_at_once

    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        results: list[bytes | TaskFailed] = []
        for start in range(0, len(plans), self._plans_at_once):

            def done_here(number: int, result: bytes | TaskFailed, start: int = start) -> None:
                done(start + number, result)

            results += await self._work.run(task, plans[start : start + self._plans_at_once], done_here)
        return results

    def table(self, task: str, plans: Sequence[bytes]) -> AbstractAsyncContextManager[Table]:
        """In one piece: a table can't be put together."""
        return self._work.table(task, plans)

    @property
    def usage(self) -> Mapping[Executor, Usage]:
        return self._work.usage
