"""Record batches to Arrow and back, in memory, on one core: the codec of Spark's source, of tables and of HTTP.

Values differ in length by up to a fifth, half of each is random, half the same in all. Each figure is the best of some
rounds of CPU time: what other programs on the machine take is not the codec's. The first decoding of a new process
is measured apart, from `import` on, because Spark starts many; all other figures are with the compiled walk loaded,
where numba is installed, but for those that say so.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from bench.figures import Figure, at_least
from bench.serving import Missing
from catena.formats.compression import Compression
from catena.formats.record_batch import parse_header
from catena.formats.records import Headers, build_batch, iter_records
from catena.types import TopicId, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from catena.columns.gather import Body

TOTAL_BYTES = 64 << 20
PYTHON_BYTES = 8 << 20
"""What plain Python gets, which is far slower."""
BATCH_BYTES = 500_000
ROUNDS = 5
MB = 1e6
PARTITION = TopicPartition("bench", TopicId("0" * 32), 0)

FIRST = """
import time
from bench.decoding import PARTITION, bodies_of
ready = time.perf_counter()
from catena.columns.decode import decode
imported = time.perf_counter()
data = bodies_of(100, total=1)
decoded = time.perf_counter()
list(decode(data, PARTITION))
print(imported - ready + time.perf_counter() - decoded)
"""


def run(_: Path) -> list[Figure]:
    if importlib.util.find_spec("pyarrow") is None:
        raise Missing("it needs pyarrow: install the extra spark")
    from catena.columns.schema import COLUMNS

    figures: list[Figure] = []
    _load_numba()
    for size in (100, 1000):
        for compression in Compression:
            bodies = bodies_of(size, compression)
            figures += _decoding(
                f"{size} B, {compression.name.lower()}", bodies, COLUMNS, size == 100 and not compression
            )
    bodies = bodies_of(100)
    figures += _decoding("100 B, value only", bodies, ["value"])
    figures += _decoding("100 B, offset and timestamp only", bodies, ["offset", "timestamp"])
    figures += _decoding("100 B, offset only", bodies, ["offset"])
    figures += _decoding("100 B, in batches of 16 kB", bodies_of(100, batch_bytes=16_000), COLUMNS)
    figures += _decoding("100 B and 2 headers", bodies_of(100, headers=2), COLUMNS)
    figures += _without_numba(bodies)
    figures += _plain_python(bodies_of(100, total=PYTHON_BYTES))
    for size in (100, 1000):
        for compression in (Compression.NONE, Compression.ZSTD):
            figures.append(_encoding(f"{size} B, {compression.name.lower()}", bodies_of(size), compression))
    figures.append(Figure("first batch of 500 kB in a new process, imports included", _first(), "s"))
    return figures


def bodies_of(
    size: int,
    compression: Compression = Compression.NONE,
    headers: int = 0,
    total: int = TOTAL_BYTES,
    batch_bytes: int = BATCH_BYTES,
) -> list[Body]:
    """Values of about this size with keys of 8 bytes, in runs of 16 batches."""
    from catena.columns.gather import Body

    per_batch = batch_bytes // size
    bodies = []
    offset = 0
    run: list[bytes] = []
    distinct = distinct_batches(size, compression, headers, batch_bytes)
    for number in range(max(1, total // (per_batch * size))):
        run.append(distinct[number % len(distinct)])
        if len(run) == 16 or (number + 1) * per_batch * size + per_batch * size > total:
            bodies.append(Body(b"".join(run), offset))
            offset += per_batch * len(run)
            run = []
    return bodies


def distinct_batches(
    size: int,
    compression: Compression = Compression.NONE,
    headers: int = 0,
    batch_bytes: int = BATCH_BYTES,
    count: int = 8,
) -> list[bytes]:
    """Some, to be used again and again: to make them takes longer than all else."""
    return [
        build_batch(_records(size, headers, batch_bytes // size, seed), compression=compression)
        for seed in range(count)
    ]


def _records(
    size: int, headers: int, count: int, seed: int
) -> Iterator[tuple[bytes | None, bytes | None, Headers, int]]:
    same = b'{"customer": "somebody", "country": "somewhere", "amount": 12.5}' * (size // 64 + 1)
    of_record: Headers = tuple((f"header-{number}", b"content") for number in range(headers))
    for number in range(count):
        length = size - size // 10 + (number * 7 + seed) % (size // 5)
        value = os.urandom(length // 4).hex().encode() + same
        yield b"%08d" % number, value[:length], of_record, 1_700_000_000_000 + number // 10


def _decoding(name: str, bodies: list[Body], columns: object, has_aim: bool = False) -> list[Figure]:
    from catena.columns.decode import decode

    rows = 0

    def work() -> None:
        nonlocal rows
        rows = sum(batch.num_rows for batch in decode(bodies, PARTITION, columns=columns))  # type: ignore[arg-type]

    seconds = _best(work)
    rate = rows / seconds / 1e6
    stored = sum(len(body.data) for body in bodies)
    title = f"decode {name}"
    first = at_least(title, rate, 8, "Mrec/s") if has_aim else Figure(title, rate, "Mrec/s")
    return [first, Figure(f"{title}, as stored", stored / seconds / MB, "MB/s")]


def _load_numba() -> None:
    """As a process that has read enough would."""
    from catena.columns import decode, walking

    decode.walk = walking.Walking(compiled_after=0)  # type: ignore[attr-defined]


def _without_numba(bodies: list[Body]) -> list[Figure]:
    from catena.columns import decode, walking
    from catena.columns.schema import COLUMNS

    decode.walk = walking.Walking(compiled_after=sys.maxsize)  # type: ignore[attr-defined]
    try:
        return _decoding("100 B, none, without numba", bodies, COLUMNS)
    finally:
        _load_numba()


def _plain_python(bodies: list[Body]) -> list[Figure]:
    rows = 0

    def work() -> None:
        nonlocal rows
        rows = 0
        for body in bodies:
            view = memoryview(body.data)
            while view:
                length = parse_header(view).length
                rows += sum(1 for _ in iter_records(view[:length]))
                view = view[length:]

    seconds = _best(work)
    return [Figure("the same by the record: formats.records, 100 B, none", rows / seconds / 1e6, "Mrec/s")]


def _encoding(name: str, bodies: list[Body], compression: Compression) -> Figure:
    from catena.columns.decode import decode
    from catena.columns.encode import encode

    tables: list[pa.RecordBatch] = list(decode(bodies, PARTITION))
    rows = sum(table.num_rows for table in tables)

    def work() -> None:
        for table in tables:
            encode(table, compression=compression)

    rate = rows / _best(work) / 1e6
    title = f"encode {name}"
    return at_least(title, rate, 5, "Mrec/s") if name == "100 B, none" else Figure(title, rate, "Mrec/s")


def _best(work: Callable[[], None]) -> float:
    """CPU seconds; the first round warms up, and does not count."""
    times = []
    for _ in range(ROUNDS + 1):
        started = time.process_time()
        work()
        times.append(time.process_time() - started)
    return min(times[1:])


def _first() -> float:
    found = [
        float(subprocess.run([sys.executable, "-c", FIRST], check=True, capture_output=True, text=True).stdout)
        for _ in range(3)
    ]
    return min(found)
