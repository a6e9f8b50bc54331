"""The broker on SeaweedFS and PostgreSQL: what it adds to a PUT and a commit, what an ack waits for.

PUT and commit are made straight on the stores, one after the other, with an object and records as large as those that
the broker writes for one record of 100 bytes. They take turns with a producer that has one request in flight. The aim
of the lone producer is a rate of at least 0.8 acks in the time of one PUT. BENCH_SECONDS is the length of a turn (5).
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, at_least, percentile
from bench.kafka_clients import Client, create_topic, run_clients, setting
from bench.kafka_latency import figures_of
from bench.kafka_open_loop import Latencies, measure
from bench.serving import Serving, catena_node, child, first_line
from catena.config import load
from catena.meta.base import Committed, Put
from catena.runtime import SystemClock, SystemEntropy
from catena.stores import Stores, open_stores
from catena.types import ABSENT

ROUNDS = 3
OPEN_LOOP_RATE = 1_000
OBJECT = bytes(256)
CONTROL = bytes(120)
INDEX = bytes(240)


class Floor(NamedTuple):
    """Seconds of PUTs, and of PUTs with the commits that follow them."""

    puts: list[float]
    both: list[float]


def run(folder: Path) -> list[Figure]:
    seconds = setting("BENCH_SECONDS", 5)
    floor, lone = Floor([], []), []
    # A folder of its own: the servers may run as another user, who can't enter ours.
    with tempfile.TemporaryDirectory() as apart, servers(Path(apart)) as settings:
        os.environ.update({name: value for name, value in settings.items() if not name.startswith("CATENA_")})
        with catena_node(folder, settings) as node:
            create_topic(node.address, "bench")
            for _ in range(ROUNDS):
                asyncio.run(measure_floor(settings, seconds, floor))
                _, (acks,) = run_clients([Client("kafka_lone", node.address, "bench", seconds)])
                lone += json.loads(acks)
            open_loop = open_loop_of(node, seconds * ROUNDS)
    return list(figures(floor, lone, open_loop))


def figures(floor: Floor, lone: list[float], open_loop: tuple[Latencies, Latencies]) -> Iterator[Figure]:
    put = statistics.mean(floor.puts)
    yield Figure("PUT, p50", percentile(floor.puts, 50) * 1e3, "ms")
    yield Figure("PUT, p99", percentile(floor.puts, 99) * 1e3, "ms")
    yield Figure("PUT and commit, p50", percentile(floor.both, 50) * 1e3, "ms")
    yield Figure("PUT and commit, p99", percentile(floor.both, 99) * 1e3, "ms")
    yield Figure("lone producer, p50", percentile(lone, 50) * 1e3, "ms")
    yield Figure("lone producer, p99", percentile(lone, 99) * 1e3, "ms")
    yield Figure("p50 of produce / p50 of PUT and commit", percentile(lone, 50) / percentile(floor.both, 50))
    yield Figure("p99 of produce / p99 of PUT and commit", percentile(lone, 99) / percentile(floor.both, 99))
    yield at_least("rate of a lone producer x PUT", put / statistics.mean(lone), 0.8)
    yield Figure("rate of PUT and commit x PUT", put / statistics.mean(floor.both))
    for name, found in zip(("produce", "end to end"), open_loop, strict=True):
        yield from figures_of(f"{OPEN_LOOP_RATE:,}/s, {name}", found)


def open_loop_of(node: Serving, seconds: float) -> tuple[Latencies, Latencies]:
    create_topic(node.address, "open-loop")
    return measure(node.address, "open-loop", OPEN_LOOP_RATE, seconds)


@contextmanager
def servers(folder: Path) -> Iterator[Mapping[str, str]]:
    """The settings with which nodes reach them."""
    folder.chmod(0o755)
    command = [sys.executable, "-m", "catena.testing.servers", str(folder), "postgres", "s3"]
    with child(command, folder, os.environ) as process:
        yield json.loads(first_line(process, folder))


async def measure_floor(settings: Mapping[str, str], seconds: float, floor: Floor) -> None:
    clock, entropy = SystemClock(), SystemEntropy()
    chosen = {name: value for name, value in settings.items() if name.startswith("CATENA_")}
    async with open_stores(load(environment=chosen), clock, entropy) as stores:
        name = entropy.hex_id()
        await put_and_commit(stores, f"floor/{name}/warm-up")
        end = time.perf_counter() + seconds
        number = 0
        while (started := time.perf_counter()) < end:
            put_s = await put_and_commit(stores, f"floor/{name}/{number:08}")
            floor.puts.append(put_s)
            floor.both.append(time.perf_counter() - started)
            number += 1


async def put_and_commit(stores: Stores, key: str) -> float:
    """Seconds of the PUT."""
    started = time.perf_counter()
    await stores.objects.put(key, [OBJECT], ABSENT)
    put_s = time.perf_counter() - started
    (result,) = await stores.meta.transact([[Put(f"{key}/control", CONTROL), Put(f"{key}/index", INDEX, ABSENT)]])
    assert isinstance(result, Committed)
    return put_s
