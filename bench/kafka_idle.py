"""A thousand consumers that wait for records which do not come, and a thousand connections that ask nothing.

Consumers ask for one byte within 500 ms, as librdkafka's and Java's do by default, and ask again at once when they are
answered: two requests a second from each. They are plain sockets in this process, so that only the node is measured.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.figures import Figure, at_most
from bench.kafka_clients import create_topic, setting
from bench.kafka_wire import Poller
from bench.serving import Serving, catena_node

CONSUMERS = 1_000
MAX_WAIT_MS = 500
SETTLE_S = 3.0
CPU_PERCENT = 5.0
"""What near zero means here."""


def run(folder: Path) -> list[Figure]:
    seconds = setting("BENCH_SECONDS", 10)
    with catena_node(folder) as node:
        create_topic(node.address, "many", CONSUMERS)
        create_topic(node.address, "one")
        return asyncio.run(measure(node, seconds))


async def measure(node: Serving, seconds: float) -> list[Figure]:
    idle = await cpu_percent(node, seconds)
    first = [await Poller.connect(node.address) for _ in range(CONSUMERS)]
    # What the first thousand leaves behind in pools and tables is not what a connection costs.
    before = node.resident_bytes
    second = [await Poller.connect(node.address) for _ in range(CONSUMERS)]
    await answered(second)
    grown = node.resident_bytes - before
    connected = await cpu_percent(node, seconds)
    many, many_rate = await long_poll(node, first, seconds, lambda number: ("many", number))
    one, one_rate = await long_poll(node, first, seconds, lambda _: ("one", 0))
    for poller in first + second:
        poller.close()
    name = f"{CONSUMERS:,} consumers in long poll"
    return [
        Figure("CPU of a node that nobody asks", idle, "% of a core"),
        Figure(f"{CONSUMERS:,} idle connections: memory each", grown / CONSUMERS / 1024, "KiB"),
        Figure(f"{2 * CONSUMERS:,} idle connections: CPU", connected, "% of a core"),
        at_most(f"{name}, a partition each: CPU", many, CPU_PERCENT, "% of a core"),
        Figure(f"{name}, a partition each: answers", many_rate, "1/s"),
        at_most(f"{name}, all on one partition: CPU", one, CPU_PERCENT, "% of a core"),
        Figure(f"{name}, all on one partition: answers", one_rate, "1/s"),
    ]


async def answered(pollers: Sequence[Poller]) -> None:
    """Each has asked once, so that the node has made all that it makes for a connection."""
    for poller in pollers:
        await poller.poll("one", 0, 0)


async def cpu_percent(node: Serving, seconds: float) -> float:
    await asyncio.sleep(SETTLE_S)
    before, started = node.cpu_s, time.perf_counter()
    await asyncio.sleep(seconds)
    return (node.cpu_s - before) / (time.perf_counter() - started) * 100


async def long_poll(
    node: Serving, pollers: Sequence[Poller], seconds: float, place: Callable[[int], tuple[str, int]]
) -> tuple[float, float]:
    """CPU of the node, and how many answers it gave a second, while all wait for their places."""
    answers = 0

    async def go_on(number: int, poller: Poller) -> None:
        nonlocal answers
        topic, partition = place(number)
        while time.perf_counter() < end:
            response = await poller.poll(topic, partition, MAX_WAIT_MS)
            (part,) = response.responses[0].partitions
            assert part.error_code == 0, f"a consumer got error {part.error_code}"
            answers += time.perf_counter() >= begin

    begin = time.perf_counter() + SETTLE_S
    end = begin + seconds
    waiting = asyncio.gather(*(go_on(number, poller) for number, poller in enumerate(pollers)))
    cpu = await cpu_percent(node, seconds)
    await waiting
    return cpu, answers / seconds
