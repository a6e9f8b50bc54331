"""What the tests of columns share: records to draw, batches of any bytes, and rows as `formats.records` reads them."""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
from crc32c import crc32c
from hypothesis import settings
from hypothesis import strategies as st

from catena.columns.gather import Body
from catena.formats import varint
from catena.formats.compression import Compression
from catena.formats.record_batch import HEADER, HEADER_BYTES, parse_header
from catena.formats.records import Headers, build_batch, iter_records
from catena.types import TopicId, TopicPartition
from tests.formats.test_records import batch_of, sized

ORDERS = TopicPartition("orders", TopicId("0" * 32), 3)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
LAST_MS = 253_402_300_799_999
"""The last that Python's dates hold."""

some = settings(max_examples=30, deadline=None)
"""Logs are slow to draw; `make test-long` tries many more."""

RecordInput: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]

fields = st.none() | st.binary(max_size=200)
header_lists: st.SearchStrategy[Headers] = st.lists(
    st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=4
).map(tuple)
timestamps = st.one_of(st.just(-1), st.integers(1_600_000_000_000, 1_800_000_000_000), st.integers(-1, LAST_MS))
records = st.tuples(fields, fields, header_lists, timestamps)
record_lists = st.lists(records, min_size=1, max_size=8)


class Drawn(NamedTuple):
    """Batches that follow each other, some of them neighbours in one body."""

    bodies: list[Body]
    rows: list[dict[str, Any]]


@st.composite
def logs(draw: st.DrawFn) -> Drawn:
    """Bodies of a log that begins anywhere, as producers and brokers make them, and what is in them."""
    offset = draw(st.integers(0, 2**40))
    bodies: list[Body] = []
    rows: list[dict[str, Any]] = []
    for batch_count in draw(st.lists(st.integers(1, 3), min_size=1, max_size=3)):
        first, parts = offset, []
        for _ in range(batch_count):
            part = build_batch(
                draw(record_lists),
                compression=draw(st.sampled_from(Compression)),
                log_append_time=draw(st.none() | st.integers(0, LAST_MS)),
            )
            rows += rows_of(part, offset)
            offset += parse_header(part).count
            parts.append(part)
        bodies.append(Body(b"".join(parts), first))
    return Drawn(bodies, rows)


def rows_of(batch: bytes, offset: int) -> list[dict[str, Any]]:
    """One batch as Spark's Kafka source would show it."""
    is_append_time = parse_header(batch).log_append_time
    return [
        {
            "key": record.key,
            "value": record.value,
            "topic": ORDERS.topic,
            "partition": ORDERS.partition,
            "offset": record.offset,
            "timestamp": EPOCH + datetime.timedelta(milliseconds=record.timestamp),
            "timestampType": int(is_append_time),
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in iter_records(batch, offset)
    ]


def as_rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for batch in batches:
        batch.validate(full=True)
        assert batch.num_rows
        rows += batch.to_pylist()
    return rows


def thinned(records: Sequence[tuple[int, bytes]], last_delta: int) -> bytes:
    """A batch as key compaction leaves it: some of its offsets only, each (delta, value)."""
    bodies = [
        sized(b"\x00\x00" + varint.encode(delta) + b"\x01" + varint.encode(len(value)) + value + b"\x00")
        for delta, value in records
    ]
    return batch_of(b"".join(bodies), len(records), last_delta)


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """The batch with these bits set in addition, and a CRC that is right."""
    header = parse_header(batch)
    covered = (header.attributes | attributes, *header[5:])
    head = HEADER.pack(0, header.length - 12, -1, 2, 0, *covered)
    crc = crc32c(batch[HEADER_BYTES:], crc32c(head[21:]))
    return HEADER.pack(0, header.length - 12, -1, 2, crc, *covered) + batch[HEADER_BYTES:]
