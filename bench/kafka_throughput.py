"""1 KiB records in batches of 1 MB through the broker, on the embedded default: a folder, SQLite, fsync on.

The limit is that of `throughput`: the same bytes, written by three threads into 8 MiB files with fdatasync. Limit,
produce and consume take turns, a GB each; the medians count, and memory is that of one node through all of it. The
consumer reads what was just written. BENCH_GB says how many GB flow (2 unless told).

One partition is written and read by kcat. 100 partitions are by 20 librdkafka connections in two processes of Python,
which cost more CPU than kcat does: there the CPU of the broker says more than the rate.
"""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.figures import Figure, at_least, at_most
from bench.kafka_clients import (
    RECORD_BYTES,
    Flow,
    create_topic,
    flow,
    kcat_consume,
    kcat_produce,
    setting,
    write_records,
)
from bench.kafka_connections import BATCH_RECORDS, Load, drive
from bench.serving import Serving, catena_node
from bench.stand import entry_of
from bench.throughput import write_files

ROUND_BYTES = 1_000_000_000
CONNECTIONS = 20
PARTITIONS = 100
NODES = 2
MEMORY_MB = 600


def run(folder: Path) -> list[Figure]:
    total = int(setting("BENCH_GB", 2) * 1e9)
    write_limit(folder, total)  # the first touch of a disk is far slower than the next
    return [
        *one_partition(folder, total),
        *many_partitions(folder, total, nodes=1),
        *many_partitions(folder, total, nodes=NODES),
    ]


def one_partition(folder: Path, total: int) -> Iterator[Figure]:
    size = min(ROUND_BYTES, total)
    records = write_records(folder / "lines", size)
    limits, ins, outs = [], [], []
    with catena_node(folder / "one") as node:
        for number in range(max(1, total // size)):
            limits.append(write_limit(folder, size))
            ins.append(flow([node], records, lambda: kcat_produce(node.address, "bench", folder / "lines")))
            consume = partial(kcat_consume, node.address, "bench", number * records, records)
            outs.append(flow([node], records, consume))
        peak = node.peak_bytes
    (folder / "lines").unlink()
    shutil.rmtree(folder / "one")
    limit = statistics.median(limits)
    yield Figure("limit: three threads, 8 MiB files", limit, "MB/s")
    yield from figures("kcat", ins, outs, limit)
    yield at_most(f"kcat: memory while {total / 1e9:g} GB flow", peak / 1e6, MEMORY_MB, "MB")


def many_partitions(folder: Path, total: int, nodes: int) -> Iterator[Figure]:
    name = f"{PARTITIONS} partitions, {CONNECTIONS} connections" + (f", {nodes} nodes" if nodes > 1 else "")
    size = min(ROUND_BYTES, total)
    limits, ins, outs = [], [], []
    with ExitStack() as started:
        # One folder: they are a cluster.
        servers = [started.enter_context(catena_node(folder / "many")) for _ in range(nodes)]
        address = ",".join(server.address for server in servers)
        for number in range(max(1, total // size)):
            limits.append(write_limit(folder, size))
            load = Load(address, f"bench-{number}", CONNECTIONS, PARTITIONS, size // RECORD_BYTES)
            create_topic(address, load.topic, PARTITIONS)
            ins.append(driven("produce", servers, load))
            outs.append(driven("consume", servers, load))
        peak = max(server.peak_bytes for server in servers)
    shutil.rmtree(folder / "many")
    yield from figures(name, ins, outs, statistics.median(limits))
    yield at_most(f"{name}: memory of a node", peak / 1e6, MEMORY_MB, "MB")


def driven(action: str, servers: Sequence[Serving], load: Load) -> Flow:
    return flow(servers, load.sent, lambda: drive(action, load))


def figures(name: str, ins: Sequence[Flow], outs: Sequence[Flow], limit: float) -> Iterator[Figure]:
    rate_in, rate_out = (statistics.median(each.mb_per_s for each in flows) for flows in (ins, outs))
    yield Figure(f"{name}: in", rate_in, "MB/s")
    yield at_least(f"{name}: in / limit", rate_in / limit, 0.7)
    yield at_most(f"{name}: CPU of the broker per GB in", statistics.median(each.cpu_per_gb for each in ins), 3, "s")
    yield Figure(f"{name}: out", rate_out, "MB/s")
    yield at_least(f"{name}: out / in", rate_out / rate_in, 2)
    yield at_most(f"{name}: CPU of the broker per GB out", statistics.median(each.cpu_per_gb for each in outs), 1, "s")


def write_limit(folder: Path, size: int) -> float:
    """MB a second of plain writes."""
    batch = entry_of([bytes(RECORD_BYTES)] * BATCH_RECORDS)
    return write_files(folder / "files", batch, size) / 1e6
