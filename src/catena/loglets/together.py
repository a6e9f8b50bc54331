"""Reads of one request that go on at the same time: what they have in the same object is to be got once.

Each finds out by itself where its bytes are, and a meta store may tell them one after the other. So downloads are held
back until every read of the request has said what it wants, or has ended; for a moment at most, and never for who reads
alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar
from typing import Any, TypeVar

HOLD_MAX_S = 0.05

T = TypeVar("T")


async def read_together(reads: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """What the reads of a request bring, in their order."""
    if len(reads) == 1:  # as most are: a task less
        return [await reads[0]()]
    together = Together(len(reads))

    async def one(read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        mine = _Read(together)
        _current.set(mine)  # in this task alone
        try:
            return await read()
        finally:
            mine.say()

    return await asyncio.gather(*map(one, reads))


class Together:
    def __init__(self, reads: int) -> None:
        self.silent = reads
        self._all_have_said = asyncio.Event()

    async def wait(self) -> None:
        """Until all have said what they want, or for long enough."""
        try:
            async with asyncio.timeout(HOLD_MAX_S):
                await self._all_have_said.wait()
        except TimeoutError:
            self.silent = 0

    def one_has_said(self) -> None:
        self.silent -= 1
        if self.silent <= 0:
            self._all_have_said.set()


class _Read:
    __slots__ = ("_is_silent", "_together")

    def __init__(self, together: Together) -> None:
        self._together = together
        self._is_silent = True

    def say(self) -> None:
        if self._is_silent:
            self._is_silent = False
            self._together.one_has_said()

    def others(self) -> Together | None:
        return self._together if self._together.silent > self._is_silent else None


_current: ContextVar[_Read | None] = ContextVar("read of a request", default=None)


def say() -> None:
    """The read that is under way has said what it wants."""
    if (read := _current.get()) is not None:
        read.say()


def others() -> Together | None:
    """Those that the read under way has to wait for before what it wants is got."""
    read = _current.get()
    return None if read is None else read.others()
