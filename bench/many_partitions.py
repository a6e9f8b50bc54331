"""10,000 partitions in one node: memory, the time until a new node has read from all, and a flush of all of them."""

from __future__ import annotations

import asyncio
import resource
import time
from pathlib import Path

from bench.figures import Figure, cpu_seconds
from bench.stand import embedded_node, entry_of

PARTITIONS = 10_000


def run(folder: Path) -> list[Figure]:
    return asyncio.run(measure(folder))


async def measure(folder: Path) -> list[Figure]:
    entry = entry_of([b"x" * 100])
    async with embedded_node(folder) as node:
        await node.topics.create("bench", PARTITIONS)
        before = resident_bytes()
        logs = [await node.log("bench", number) for number in range(PARTITIONS)]
        started = time.perf_counter()
        await asyncio.gather(*(log.append(entry) for log in logs))
        first_s = time.perf_counter() - started
        cpu, started = cpu_seconds(), time.perf_counter()
        await asyncio.gather(*(log.append(entry) for log in logs))
        flush_s, flush_cpu = time.perf_counter() - started, cpu_seconds() - cpu
        memory = resident_bytes() - before
    started = time.perf_counter()
    async with embedded_node(folder) as node:
        (topic,) = await node.topics.list()
        ready_s = time.perf_counter() - started
        logs = [await node.log(topic.name, number) for number in range(PARTITIONS)]
        tails = await asyncio.gather(*(log.tail() for log in logs))
        all_tails_s = time.perf_counter() - started
    assert tails == [2] * PARTITIONS
    return [
        Figure("memory a partition", memory / PARTITIONS / 1024, "KiB"),
        Figure("first flush of all, links opened", first_s, "s"),
        Figure("next flush of all", flush_s, "s"),
        Figure("CPU of it, a partition", flush_cpu / PARTITIONS * 1e6, "µs"),
        Figure("a new node is ready", ready_s, "s"),
        Figure("a new node has asked all tails", all_tails_s, "s"),
    ]


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
