"""Bytes of requests, of all connections together: of those that were taken, and of large ones on their way in.

**Taken** are Produce requests that were received and not answered; others do not keep their bytes. At the bound nobody
is read. What was taken is done without reading anybody, and so the reading goes on.

**On its way in** is a large request, which gets a buffer of its own. It is let in first, by its full size; until then
its connection is not read, and has no such buffer. There is no deadlock:

- Who was let in is read to the end, whatever else is full. It needs nobody but its client; a client that stops is cut
  off, and so is one that is slow while others wait.
- Who waits has nothing that others wait for.
- Whoever is first in an empty lane is let in, however large. So when somebody waits, either there is someone inside who
  will leave, or what was taken is at its bound and will be answered; both let in the next ones.

There are two lanes, each first come, first served: a few very large requests on slow lines hold up each other, and
not the usual ones. All together are bounded by three times the bound, or two and the largest request, beside the small
buffer that each connection has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

VERY_LARGE = 8
"""A request that takes more than this part of the bound, one eighth, goes by the lane for such."""

Resume: TypeAlias = Callable[[], None]


class _Lane:
    def __init__(self) -> None:
        self.bytes = 0
        self.waiting: OrderedDict[Resume, int] = OrderedDict()


class Budget:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._taken = 0
        self.is_spent = False
        """Whether what was taken is at its bound. Every read of every connection asks, so it is no property."""
        self._held_up: dict[Resume, None] = {}
        self._usual_max = max_bytes // VERY_LARGE
        self._usual, self._very_large = _Lane(), _Lane()

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def incoming(self) -> int:
        """Bytes of the large requests that were let in."""
        return self._usual.bytes + self._very_large.bytes

    def take(self, size: int) -> None:
        self._taken += size
        self.is_spent = self._taken >= self._max_bytes

    def give_back(self, size: int) -> None:
        self._taken -= size
        self.is_spent = self._taken >= self._max_bytes
        if self.is_spent:
            return
        if self._held_up:
            waiting, self._held_up = self._held_up, {}
            for resume in waiting:
                resume()
        if self._usual.waiting:
            self._let_in(self._usual)
        if self._very_large.waiting:
            self._let_in(self._very_large)

    def wait(self, resume: Resume) -> None:
        """It is called when there is room for what is small."""
        self._held_up[resume] = None

    def enter(self, size: int, let_in: Resume) -> bool:
        """Whether a large request may come in now; if not, `let_in` is called when it has been let in."""
        lane = self._lane(size)
        if not lane.waiting and self._fits(lane, size):
            lane.bytes += size
            return True
        lane.waiting[let_in] = size
        return False

    def leave(self, size: int) -> None:
        """It is complete, or will never be. If it is a Produce it was taken before that."""
        lane = self._lane(size)
        lane.bytes -= size
        if lane.waiting:
            self._let_in(lane)

    def wait_no_more(self, size: int, let_in: Resume) -> None:
        lane = self._lane(size)
        lane.waiting.pop(let_in, None)
        self._let_in(lane)

    def is_awaited(self, size: int) -> bool:
        """Whether others wait because requests such as this one are inside."""
        return not self.is_spent and bool(self._lane(size).waiting)

    def _lane(self, size: int) -> _Lane:
        return self._usual if size <= self._usual_max else self._very_large

    def _fits(self, lane: _Lane, size: int) -> bool:
        return not self.is_spent and (not lane.bytes or lane.bytes + size <= self._max_bytes)

    def _let_in(self, lane: _Lane) -> None:
        while lane.waiting:
            let_in, size = next(iter(lane.waiting.items()))
            if not self._fits(lane, size):
                return
            del lane.waiting[let_in]
            lane.bytes += size
            let_in()
