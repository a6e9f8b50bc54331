"""What the virtual log adds to a loglet: microseconds on append and on read, one call at a time.

Both calls take turns on the same link of a node on the embedded default, so that what the store does in between hits
both; the figure is the difference of their percentiles.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.figures import Figure, at_most, percentile
from bench.stand import embedded_node, entry_of
from catena.loglets.base import LinkSpec
from catena.loglets.memory import MemoryLoglet, MemoryMedium
from catena.runtime import SystemClock
from catena.types import TopicId, TopicPartition

CALLS = 3000
WARM_UP = 300


def run(folder: Path) -> list[Figure]:
    return asyncio.run(measure(folder))


async def measure(folder: Path) -> list[Figure]:
    entry = entry_of([b"x" * 1024])
    async with embedded_node(folder) as node:
        await node.topics.create("bench", kind="memory")
        log = await node.log("bench", 0)
        await log.append(entry)
        bare = await bare_loglet()
        await bare.append(entry)
        appends = await compare(lambda: log.append(entry), lambda: bare.append(entry))
        reads = await compare(lambda: log.read(0, 1), lambda: bare.read(0, 1))
    return [
        *figures("append", appends),
        *figures("read", reads),
    ]


async def bare_loglet() -> MemoryLoglet:
    async def no_handoff() -> dict[int, object]:
        return {}

    async def no_boundary() -> int:
        return 0

    tp = TopicPartition("bare", TopicId("0" * 32), 0)
    return MemoryLoglet(MemoryMedium(), LinkSpec(tp, 1, 0, {}, no_handoff, no_boundary), SystemClock())  # type: ignore[arg-type]


async def compare(
    through_the_log: Callable[[], Awaitable[object]], bare: Callable[[], Awaitable[object]]
) -> tuple[list[float], list[float]]:
    """Microseconds of each call, the two taking turns."""
    measured: tuple[list[float], list[float]] = ([], [])
    for number in range(WARM_UP + CALLS):
        for times, call in zip(measured, (through_the_log, bare), strict=True):
            started = time.perf_counter_ns()
            await call()
            if number >= WARM_UP:
                times.append((time.perf_counter_ns() - started) / 1000)
    return measured


def figures(name: str, measured: tuple[list[float], list[float]]) -> list[Figure]:
    log, bare = measured
    return [
        at_most(f"added to {name}, p{percent}", percentile(log, percent) - percentile(bare, percent), 50, "µs")
        for percent in (50, 99)
    ]
