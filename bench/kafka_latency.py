"""Produce and end-to-end latency of 100-byte records, linger 0, at fixed rates; and again when the log has grown.

Embedded default, fsync on: an ack comes after fdatasync of the blob and of SQLite's log. BENCH_SECONDS is how long each
rate is held (20 unless told), BENCH_DRIFT_RECORDS how many records are written before the second look (a million; the
aim is for 10 million). They are written as fast as they are acked, in small batches: it is the number of flushes that
makes an index grow, and large batches would hide it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from bench.figures import Figure, at_most
from bench.kafka_clients import Client, create_topic, run_clients, setting
from bench.kafka_open_loop import Latencies, measure
from bench.serving import catena_node

RATES = (1_000, 5_000, 20_000)
AIMED_RATE = 5_000
P50_MS, P99_MS = 5, 30
P50_DRIFT, P99_DRIFT = 1.25, 1.5


def run(folder: Path) -> list[Figure]:
    seconds = setting("BENCH_SECONDS", 20)
    grown = int(setting("BENCH_DRIFT_RECORDS", 1_000_000))
    with catena_node(folder / "rates") as node:
        figures = list(at_rates(node.address, seconds))
    with catena_node(folder / "drift") as node:
        return figures + list(drift(node.address, seconds, grown))


def at_rates(address: str, seconds: float) -> Iterator[Figure]:
    for rate in RATES:
        topic = f"at-{rate}"
        create_topic(address, topic)
        produced, consumed = measure(address, topic, rate, seconds)
        has_aim = rate == AIMED_RATE
        yield from figures_of(f"{rate:,}/s, produce", produced, has_aim)
        yield from figures_of(f"{rate:,}/s, end to end", consumed, has_aim)


def figures_of(name: str, found: Latencies, has_aim: bool = False) -> Iterator[Figure]:
    yield at_most(f"{name}, p50", found.p50, P50_MS, "ms") if has_aim else Figure(f"{name}, p50", found.p50, "ms")
    yield at_most(f"{name}, p99", found.p99, P99_MS, "ms") if has_aim else Figure(f"{name}, p99", found.p99, "ms")
    yield Figure(f"{name}, p99.9", found.p999, "ms")


def drift(address: str, seconds: float, records: int) -> Iterator[Figure]:
    create_topic(address, "drift")
    before = measure(address, "drift", AIMED_RATE, seconds)
    filled_s, _ = run_clients([Client("kafka_fill", address, "drift", records)])
    after = measure(address, "drift", AIMED_RATE, seconds)
    yield Figure("records written in between", records)
    yield Figure("rate at which they were", records / filled_s, "records/s")
    for name, old, new in zip(("produce", "end to end"), before, after, strict=True):
        yield at_most(f"drift of {name}, p50 after / before", new.p50 / old.p50, P50_DRIFT)
        yield at_most(f"drift of {name}, p99 after / before", new.p99 / old.p99, P99_DRIFT)
