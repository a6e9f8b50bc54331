"""Catena beside Apache Kafka: same client, same machine, same disk, new nodes that take turns; medians are compared.

The two do not promise the same: Kafka acks what is in the page cache of one machine, Catena what was put to the disk by
fdatasync. What Kafka has left to the kernel is written (sync) before the other has its turn. Both start with an empty
disk, and are warmed up by as much as is measured: a JVM compiles what it has run for a while.

BENCH_ROUNDS is how often each has its turn (3 unless told), BENCH_GB how much is sent in one (1), BENCH_SECONDS how
long a rate is held (10).
"""

from __future__ import annotations

import os
import shutil
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from bench.apache_kafka import apache_kafka
from bench.figures import Figure, at_least, at_most
from bench.kafka_clients import create_topic, flow, kcat_consume, kcat_produce, setting, write_records
from bench.kafka_open_loop import measure
from bench.serving import Serving, catena_node

RATES = (1_000, 5_000)
Server = Callable[[Path], AbstractContextManager[Serving]]


class Compared(NamedTuple):
    """What is compared, and how Catena's value should be to Kafka's: None if nothing is aimed at."""

    name: str
    unit: str
    aim: Callable[[str, float, float], Figure] | None = None


COMPARED = (
    Compared("produce", "MB/s", at_least),
    Compared("CPU per GB in", "s", at_most),
    Compared("consume", "MB/s", at_least),
    Compared("CPU per GB out", "s", at_most),
    *(
        Compared(f"{rate:,}/s, {what}, {percent}", "ms")
        for rate in RATES
        for what in ("produce", "end to end")
        for percent in ("p50", "p99")
    ),
    Compared("memory", "MB"),
    Compared("start", "s"),
)


def run(folder: Path) -> list[Figure]:
    records = write_records(folder / "lines", int(setting("BENCH_GB", 1) * 1e9))
    servers: dict[str, Server] = {"Catena": catena_node, "Kafka": apache_kafka}
    found: dict[str, list[list[float]]] = {name: [] for name in servers}
    for number in range(int(setting("BENCH_ROUNDS", 3))):
        for name, server in servers.items():
            place = folder / f"{name}-{number}"
            found[name].append(list(one_turn(server, place, folder / "lines", records)))
            shutil.rmtree(place)
            os.sync()
    return list(compare(found["Catena"], found["Kafka"]))


def one_turn(server: Server, place: Path, lines: Path, records: int) -> Iterator[float]:
    """The values of COMPARED, in its order."""
    with server(place) as node:
        for topic in ("warm-up", "bench"):
            create_topic(node.address, topic)
        kcat_produce(node.address, "warm-up", lines)
        kcat_consume(node.address, "warm-up", 0, records)
        sent = flow([node], records, lambda: kcat_produce(node.address, "bench", lines))
        got = flow([node], records, lambda: kcat_consume(node.address, "bench", 0, records))
        yield from (sent.mb_per_s, sent.cpu_per_gb, got.mb_per_s, got.cpu_per_gb)
        for rate in RATES:
            create_topic(node.address, f"at-{rate}")
            for each in measure(node.address, f"at-{rate}", rate, setting("BENCH_SECONDS", 10)):
                yield from (each.p50, each.p99)
        yield node.peak_bytes / 1e6
        yield node.started_s


def compare(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Iterator[Figure]:
    for compared, our, their in zip(COMPARED, zip(*ours, strict=True), zip(*theirs, strict=True), strict=True):
        our_median, their_median = statistics.median(our), statistics.median(their)
        yield Figure(f"{compared.name}: Catena", our_median, compared.unit)
        yield Figure(f"{compared.name}: Kafka", their_median, compared.unit)
        name, ratio = f"{compared.name}: Catena / Kafka", our_median / max(their_median, 1e-9)
        yield compared.aim(name, ratio, 1.0) if compared.aim else Figure(name, ratio)
