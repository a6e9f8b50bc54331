"""Bytes of requests, of all connections together: of those that were taken, and of large ones on their way in.

**Taken** are Produce requests that were received and not answered; others do not keep their bytes. At the bound nobody
is read, but for what has room already. What was taken is done without reading anybody, and so the reading goes on.

**On its way in** is a large request, which gets a buffer of its own. What counts is the buffer and not what the client
has announced: its connection asks before the buffer is made, and before each time it grows. It is granted what fits,
first come, first served. Who does not fit becomes *privileged* if nobody is: it is granted all that it asks for, until
its request is complete or its connection gone. Others who do not fit wait, and are not read.

- Bounded: without the privileged one, what is granted always fits. So it is the bound and one request.
- No deadlock: when somebody waits, either what was taken is at its bound and will be answered, or there is a privileged
  one. That one is before all who wait, so it is read to its end, and needs nobody but its client. A client that stops,
  or is slow, while others wait is cut off (`Connection.check`). So the privilege becomes free.
- No starvation: it goes to the first in line then, and nobody is put before those in line but who is privileged. So
  whoever waits gets its turn after at most as many requests as were before it, and each of these ends in bounded time.

There are two lanes, each with a privilege of its own. A usual request is granted all at once. So whoever is let in
there waits no more, and all whose clients have stopped are cut off together. Larger ones hold what they have while
they wait for more, and only one after the other shows whether its client has stopped; and one alone may fill all that
there is, and send for minutes on a slow line. So they wait for each other, and the usual ones do not wait for them.

The usual ones have five eighths of the bound and their privileged one, which is no larger than an eighth; the larger
ones have a quarter and their privileged one. So both together are within the bound and one request. Taken may become as
much again as was on its way in, since nothing more is granted then; and each connection has its small buffer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeAlias

from catena.wire.frames import FIRST_BYTES

Resume: TypeAlias = Callable[[], None]


class _Lane:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.bytes = 0
        self.privileged: Resume | None = None
        self.waiting: OrderedDict[Resume, int] = OrderedDict()

    def grant(self, size: int, who: Resume) -> bool:
        if self.bytes + size > self._max_bytes and self.privileged != who:
            if self.privileged is not None:
                return False
            self.privileged = who
        self.bytes += size
        return True


class Budget:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._taken = 0
        self.is_spent = False
        """Whether what was taken is at its bound. Every read of every connection asks, so it is no property."""
        self._held_up: dict[Resume, None] = {}
        self._usual_max = min(FIRST_BYTES, max_bytes // 8)
        self._usual, self._larger = _Lane(max_bytes * 5 // 8), _Lane(max_bytes // 4)

    @property
    def taken(self) -> int:
        return self._taken

    @property
    def incoming(self) -> int:
        """Bytes that large requests on their way in were granted."""
        return self._usual.bytes + self._larger.bytes

    @property
    def has_waiting(self) -> bool:
        """Whether some wait for others that are on their way in."""
        return not self.is_spent and bool(self._usual.waiting or self._larger.waiting)

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
        self._let_in(self._usual)
        self._let_in(self._larger)

    def wait(self, resume: Resume) -> None:
        """It is called when there is room for what is small."""
        self._held_up[resume] = None

    def ask(self, request: int, size: int, let_in: Resume) -> bool:
        """Whether so many more bytes of a large request are granted now; if not, `let_in` is called when they are.

        `request` is the size of all of it, and `let_in` stands for who asks, who asks for nothing else until then."""
        lane = self._lane(request)
        is_privileged = lane.privileged == let_in
        if not self.is_spent and (is_privileged or not lane.waiting) and lane.grant(size, let_in):
            return True
        lane.waiting[let_in] = size
        if is_privileged:
            lane.waiting.move_to_end(let_in, last=False)
        return False

    def leave(self, request: int, granted: int, let_in: Resume) -> None:
        """It is complete, or will never be. If it is a Produce it was taken before that."""
        lane = self._lane(request)
        lane.waiting.pop(let_in, None)
        lane.bytes -= granted
        if lane.privileged == let_in:
            lane.privileged = None
        self._let_in(lane)

    def is_awaited(self, request: int) -> bool:
        """Whether others wait because requests such as this one are on their way in."""
        return not self.is_spent and bool(self._lane(request).waiting)

    def _lane(self, request: int) -> _Lane:
        return self._usual if request <= self._usual_max else self._larger

    def _let_in(self, lane: _Lane) -> None:
        while lane.waiting and not self.is_spent:
            let_in, size = next(iter(lane.waiting.items()))
            if not lane.grant(size, let_in):
                return
            del lane.waiting[let_in]
            let_in()
