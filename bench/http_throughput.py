"""HTTP: records of 100 bytes in requests of 1, 100 and 1,000, in and out, beside a plain threaded broker.

16 connections from one process, each with a partition and one request under way; Catena on the embedded default, a
folder and SQLite with fsync; the plain broker (`http_plain`) is as durable. Read are the newest records that were just
written, in requests of the same size; both brokers have them in memory as they came in. What Kafka's clients wrote has
to be decoded: `decoded` is that, with a node that keeps nothing else. All serve from one core: rates are those of the
machine, and the CPU for a record is the broker's own. The bare server (`http_bare`) stores what comes in and does not
look at it: nobody can be further ahead of the plain broker. BENCH_S is how long each takes (4 s unless told).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, at_least
from bench.http_load import Drove, Load, drive
from bench.kafka_clients import create_topic, setting
from bench.serving import Serving, catena_node, child, first_line

CONNECTIONS = 16
RECORD_BYTES = 100
SIZES = (1, 100, 1_000)
NEWEST = 10_000
"""Records of each partition that are read."""
AIM = 5.0


class Measured(NamedTuple):
    rate: float
    """Records in a second."""
    cpu_us: float
    """Of the broker, for a record."""


def run(folder: Path) -> list[Figure]:
    seconds = setting("BENCH_S", 4)
    with catena_http(folder / "catena") as (node, kafka):
        create_topics(kafka)
        ours = measure(node, seconds)
    with catena_http(folder / "decoded", {"CATENA_HTTP__HOT_RECORDS_BYTES": "0"}) as (node, kafka):
        create_topics(kafka)
        decoded = measure(node, seconds)
    with plain_http(folder / "plain") as server:
        theirs = measure(server, seconds)
    bare: dict[str, Measured] = {}
    for size in SIZES:
        with bare_http(folder / f"bare-{size}", size) as server:
            driven(server, produce_load(server, size, seconds), bare, in_(size))
    return [*figures(ours, theirs), *decoded_figures(decoded), *bare_figures(bare, theirs)]


def create_topics(address: str) -> None:
    for size in SIZES:
        create_topic(address, f"bench-{size}", CONNECTIONS)


def figures(ours: dict[str, Measured], theirs: dict[str, Measured]) -> Iterator[Figure]:
    for name, found in ours.items():
        plain = theirs[name]
        yield Figure(f"{name}", found.rate, "records/s")
        yield Figure(f"{name}: plain broker", plain.rate, "records/s")
        yield at_least(f"{name}: rate / plain", found.rate / plain.rate, AIM)
        yield Figure(f"{name}: CPU for a record", found.cpu_us, "us")
        yield at_least(f"{name}: CPU of plain / ours", plain.cpu_us / found.cpu_us, AIM)


def decoded_figures(decoded: dict[str, Measured]) -> Iterator[Figure]:
    for name, found in decoded.items():
        if name.startswith("out"):
            yield Figure(f"{name}, decoded: CPU for a record", found.cpu_us, "us")


def bare_figures(bare: dict[str, Measured], theirs: dict[str, Measured]) -> Iterator[Figure]:
    for name, found in bare.items():
        yield Figure(f"{name}, bare server: rate / plain", found.rate / theirs[name].rate)
        yield Figure(f"{name}, bare server: CPU for a record", found.cpu_us, "us")
        yield Figure(f"{name}, bare server: CPU of plain / bare", theirs[name].cpu_us / found.cpu_us)


def in_(size: int) -> str:
    return f"in, {size} a request"


def produce_load(server: Serving, size: int, seconds: float) -> Load:
    return Load(server.address, "produce", f"bench-{size}", CONNECTIONS, size, RECORD_BYTES, seconds)


def measure(server: Serving, seconds: float) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for size in SIZES:
        load = produce_load(server, size, seconds)
        wrote = driven(server, load, found, in_(size))
        start = max(0, wrote.least - NEWEST)
        driven(server, load._replace(action="consume", start=start, upto=wrote.least), found, f"out, {size} a request")
    return found


def driven(server: Serving, load: Load, found: dict[str, Measured], name: str) -> Drove:
    before = server.cpu_s
    drove = drive(load)
    cpu_s = server.cpu_s - before
    found[name] = Measured(drove.records / drove.seconds, cpu_s / drove.records * 1e6)
    return drove


@contextmanager
def catena_http(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[tuple[Serving, str]]:
    """A node whose address is that of its HTTP port, and the address of its Kafka listener."""
    with catena_node(folder, settings) as node:
        yield node._replace(address=node.http), node.address


def plain_http(folder: Path) -> AbstractContextManager[Serving]:
    return module_http(folder, "bench.http_plain")


def bare_http(folder: Path, records: int) -> AbstractContextManager[Serving]:
    return module_http(folder, "bench.http_bare", str(records))


@contextmanager
def module_http(folder: Path, module: str, *arguments: str) -> Iterator[Serving]:
    folder.mkdir()
    with child([sys.executable, "-m", module, str(folder), *arguments], folder) as process:
        yield Serving(process.pid, json.loads(first_line(process, folder))["http"], 0.0)
