"""What a record costs between JSON and a batch, by the ways there are: which of them HTTP takes follows from this.

In: `formats.records.build_batch`, Arrow's columns (`columns.encode`, where pyarrow is there), and `rest.encoding`; from
strings of 100 bytes. Out: `formats.records.iter_records`, and into strings by `rest.decoding`, values alone, and by
`rest.walked`, with numpy. In nanoseconds a record, for batches of 1 to 10,000, and 20 batches of one record each.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.figures import Figure, percentile
from catena.formats.compression import Compression
from catena.formats.records import build_batch, iter_records
from catena.loglets.base import Batch
from catena.rest.decoding import Asked, decode_few
from catena.rest.encoding import contents_of, entry_of
from catena.rest.walked import decode_walked
from catena.types import TopicId, TopicPartition

SIZES = (1, 10, 100, 300, 1_000, 10_000)
ROUNDS = 15
TP = TopicPartition("bench", TopicId("0" * 32), 0)
EVERYTHING = Asked(0, 1 << 30, True, False)


def run(_folder: Path) -> list[Figure]:
    return [*encoding(), *decoding()]


def encoding() -> Iterator[Figure]:
    for size in SIZES:
        yield from ways_in(size, [f"{number:0100}" for number in range(size)])


def ways_in(size: int, texts: list[str]) -> Iterator[Figure]:
    yield timed(f"in, {size}: plain", size, lambda: build_batch((None, text.encode(), (), 1) for text in texts))
    if arrow := by_arrow(texts):
        yield timed(f"in, {size}: Arrow", size, arrow)
    yield timed(f"in, {size}: tables", size, lambda: entry_of(contents_of(texts, ""), Compression.NONE, 1, False))


def by_arrow(texts: list[str]) -> Callable[[], object] | None:
    try:
        import pyarrow as pa

        from catena.columns.encode import encode
    except ImportError:
        return None
    return lambda: encode(pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], names=["value"]), time_ms=1)


def decoding() -> Iterator[Figure]:
    for size in SIZES:
        data = build_batch((None, b"%0100d" % number, (), 1) for number in range(size))
        yield from both(f"out, {size}", size, [Batch(0, size, memoryview(data))])
    one = memoryview(build_batch([(None, b"%0100d" % 1, (), 1)]))
    yield from both("out, 20 batches of 1", 20, [Batch(number, 1, one) for number in range(20)])


def both(name: str, size: int, batches: list[Batch]) -> Iterator[Figure]:
    yield timed(f"{name}: plain", size, lambda: [record for batch in batches for record in iter_records(batch.data)])
    yield timed(f"{name}: values", size, lambda: decode_few(batches, EVERYTHING))
    yield timed(f"{name}: walk", size, lambda: decode_walked(batches, TP, EVERYTHING))


def timed(name: str, size: int, work: Callable[[], object]) -> Figure:
    times = []
    repeat = max(1, 2_000 // size)
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(repeat):
            work()
        times.append((time.perf_counter() - began) / repeat / size * 1e9)
    return Figure(name, percentile(times, 20), "ns")
