"""Deadlines by name, for machines that are told the time.

Setting a later deadline, as every heartbeat does, only overwrites a number: the heap keeps the old entry and moves it
when it comes up. So there is about one heap entry for each name, and a heartbeat costs O(1).
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

K = TypeVar("K")


class Timers(Generic[K]):
    def __init__(self) -> None:
        self._deadlines: dict[K, float] = {}
        self._queued: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0

    def __contains__(self, key: K) -> bool:
        return key in self._deadlines

    def set(self, key: K, deadline: float) -> None:
        self._deadlines[key] = deadline
        queued = self._queued.get(key)
        if queued is None or deadline < queued:
            self._push(key, deadline)

    def cancel(self, key: K) -> None:
        self._deadlines.pop(key, None)

    def next_deadline(self) -> float | None:
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> K | None:
        """Take out the name whose deadline has passed first, if there is one."""
        self._settle()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._deadlines[key], self._queued[key]
        return key

    def _push(self, key: K, deadline: float) -> None:
        self._queued[key] = deadline
        self._sequence += 1
        heapq.heappush(self._heap, (deadline, self._sequence, key))

    def _settle(self) -> None:
        """Bring the front of the heap in line with what was set since."""
        while self._heap:
            at, _, key = self._heap[0]
            if self._queued.get(key) != at:
                heapq.heappop(self._heap)
            elif (deadline := self._deadlines.get(key)) != at:
                heapq.heappop(self._heap)
                del self._queued[key]
                if deadline is not None:
                    self._push(key, deadline)
            else:
                return
