"""Which walk is used, decided here and nowhere else: see `fields` for the two.

The compiled one is eight times as fast, and costs half a second of CPU in each process, before it has walked anything,
to load numba and code that was compiled before; compiling it takes one more, once on a machine. A process that reads
little would wait for nothing. So the first records of a process are walked without it, about as many as take the time
that loading it does: whatever is read, it takes no more than twice the time of the better choice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from catena.columns import walk_numpy
from catena.columns.fields import Fields, Spans
from catena.columns.varints import Bytes

COMPILED_AFTER = 2_000_000

Walk: TypeAlias = Callable[[Bytes, Spans], Fields]


def load_compiled() -> Walk:
    """The compiled walk, where numba is there and has a place to keep what it compiles; else the other one."""
    try:
        from catena.columns import walk_compiled
    except (ImportError, RuntimeError):
        return walk_numpy.walk
    return walk_compiled.walk


class Walking:
    """One walk, then another. Threads may share it: which of them is used changes no result."""

    def __init__(self, load: Callable[[], Walk] = load_compiled, compiled_after: int = COMPILED_AFTER) -> None:
        self._load = load
        self._records_left = compiled_after
        self._walk: Walk = walk_numpy.walk
        self._is_loaded = False

    def __call__(self, data: Bytes, spans: Spans) -> Fields:
        if not self._is_loaded:
            if self._records_left <= 0:
                self._walk = self._load()
                self._is_loaded = True
            self._records_left -= int(spans.record_count.sum())
        return self._walk(data, spans)


walk = Walking()
