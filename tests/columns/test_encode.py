from __future__ import annotations

import datetime
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatch  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from catena.columns.decode import decode
from catena.columns.encode import Producer, encode
from catena.columns.gather import Body
from catena.columns.schema import schema_of
from catena.errors import BatchTooLarge, InvalidBatch
from catena.formats.compression import Compression
from catena.formats.record_batch import HEADER_BYTES, check_crc, parse_header
from catena.formats.records import MAX_TIMESTAMP, build_batch, iter_records
from tests.columns.rows import EPOCH, ORDERS, RecordInput, as_rows, record_lists, some
from tests.formats.independent import GOLDEN_BATCH

NAMES = ["key", "value", "timestamp", "headers"]
SCHEMA = schema_of(NAMES)


def table_of(records: list[RecordInput]) -> pa.RecordBatch:
    rows = [
        {
            "key": key,
            "value": value,
            "timestamp": EPOCH + datetime.timedelta(milliseconds=time),
            "headers": [{"key": name, "value": content} for name, content in headers] or None,
        }
        for key, value, headers, time in records
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


def records_in(batches: list[bytes]) -> list[RecordInput]:
    return [(r.key, r.value, r.headers, r.timestamp) for batch in batches for r in iter_records(batch)]


def test_writes_the_golden_batch() -> None:
    records: list[RecordInput] = [
        (b"k", b"hello", (("trace", b"\x01\x02"),), 1700000000000),
        (None, None, (), 1700000000250),
    ]
    assert encode(table_of(records)) == [GOLDEN_BATCH]


@some
@given(record_lists)
def test_one_batch_is_that_of_the_other_writer(records: list[RecordInput]) -> None:
    assert encode(table_of(records)) == [build_batch(records)]


@some
@given(record_lists, st.sampled_from(Compression), st.integers(1, 2000))
def test_both_readers_read_it(records: list[RecordInput], compression: Compression, max_batch_bytes: int) -> None:
    table = table_of(records)
    batches = encode(table, compression=compression, max_batch_bytes=max_batch_bytes)
    assert records_in(batches) == records
    body = Body(b"".join(batches), 7)
    decoded = list(decode([body], ORDERS, columns=[*NAMES, "offset"]))
    assert as_rows(decoded) == [{**row, "offset": 7 + at} for at, row in enumerate(table.to_pylist())]


@some
@given(record_lists, st.integers(1, 2000))
def test_batches_are_bounded_and_filled(records: list[RecordInput], max_batch_bytes: int) -> None:
    batches = encode(table_of(records), max_batch_bytes=max_batch_bytes)
    headers = [parse_header(batch) for batch in batches]
    for header, following in pairwise(headers):
        assert header.length <= max_batch_bytes or header.count == 1
        # Two neighbours that would fit into one batch, with room for longer numbers, were not kept apart.
        assert header.length + following.length + 20 * (header.count + following.count) > max_batch_bytes


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.GZIP, Compression.ZSTD])
def test_a_client_reads_it(compression: Compression) -> None:
    records: list[RecordInput] = [
        (b"k%d" % number, b"v" * number, (("h", b"%d" % number), ("n", None)), 1_700_000_000_000 - 977 * number)
        for number in range(500)
    ]
    (batch,) = encode(table_of(records), compression=compression)
    theirs = DefaultRecordBatch(batch)
    assert theirs.validate_crc()
    assert [(r.key, r.value, tuple(r.headers), r.timestamp) for r in theirs] == records


def test_slices_tables_and_other_types_of_columns() -> None:
    records: list[RecordInput] = [
        (b"k%d" % number, None if number % 3 else b"v", (("h", b"x"),) * (number % 3), number) for number in range(20)
    ]
    table = table_of(records)
    expected = [build_batch(records[5:15])]
    assert encode(table.slice(5, 10)) == expected
    assert encode(pa.Table.from_batches([table.slice(5, 4), table.slice(9, 6)])) == expected
    large = pa.table(
        {
            "key": pa.chunked_array([table["key"]]).cast(pa.string()),
            "value": pa.chunked_array([table["value"]]).cast(pa.large_binary()),
            "timestamp": pa.chunked_array([table["timestamp"]]).cast(pa.timestamp("ns")),
            "headers": table["headers"],
            "unknown": table["key"],
        }
    )
    assert encode(large.slice(5, 10)) == expected


def test_columns_may_be_missing() -> None:
    assert encode(pa.table({"value": ["a", "b"]}), time_ms=9) == [
        build_batch([(None, b"a", (), 9), (None, b"b", (), 9)])
    ]
    assert encode(pa.table({"key": ["a", None]})) == [build_batch([(b"a", None, (), -1), (None, None, (), -1)])]
    assert encode(pa.table({"value": pa.array([], pa.binary())})) == []


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns", "integers"])
def test_units_of_time(unit: str) -> None:
    times = pa.array([1, None, 1_700_000_000_000_999 if unit in ("us", "ns") else 1_700_000_000])
    if unit != "integers":
        times = times.cast(pa.timestamp(unit, "UTC"))
    (batch,) = encode(pa.table({"value": ["", "", ""], "timestamp": times}), time_ms=77)
    factor = {"s": 1000, "ms": 1, "us": 1e-3, "ns": 1e-6, "integers": 1}[unit]
    last = 1_700_000_000_000_999 if unit in ("us", "ns") else 1_700_000_000
    assert [record.timestamp for record in iter_records(batch)] == [int(factor), 77, int(last * factor)]
    header = parse_header(batch)
    assert header.max_timestamp == max(int(last * factor), 77)


def test_the_stamp_of_a_producer_counts_records() -> None:
    rows = pa.table({"value": ["x" * 100] * 10})
    batches = encode(rows, max_batch_bytes=500, producer=Producer(9, 2, 2**31 - 5))
    headers = [parse_header(batch) for batch in batches]
    assert [header.count for header in headers] == [4, 4, 2]
    assert [header.base_sequence for header in headers] == [2**31 - 5, 2**31 - 1, 3]
    assert {(header.producer_id, header.producer_epoch) for header in headers} == {(9, 2)}
    without = [parse_header(batch) for batch in encode(rows, max_batch_bytes=500)]
    assert {(header.producer_id, header.producer_epoch, header.base_sequence) for header in without} == {(-1, -1, -1)}


def test_a_record_that_is_too_large_has_a_batch_of_its_own() -> None:
    batches = encode(pa.table({"value": [b"a", b"b" * 1000, b"c", b"d"]}), max_batch_bytes=200)
    assert [parse_header(batch).count for batch in batches] == [1, 1, 2]
    assert len(batches[1]) > 1000 + HEADER_BYTES
    for batch in batches:
        check_crc(batch, parse_header(batch))


def headers_column(*rows: Any, names: pa.DataType | None = None) -> pa.Array:
    header = pa.struct([("key", names or pa.string()), ("value", pa.binary())])
    return pa.array(rows, pa.list_(header))


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"value": pa.array([1, 2])}, "column value is int64, and must be binary or text"),
        ({"key": pa.array([1.5, 2])}, "column key is double, and must be binary or text"),
        ({"timestamp": pa.array(["now", "then"])}, "column timestamp is string, and must be a timestamp"),
        ({"timestamp": pa.array([5, -2])}, "row 1: -2 int64 is not a time"),
        ({"timestamp": pa.array([5, MAX_TIMESTAMP + 1])}, "row 1: 9223372036854775807 int64 is not a time"),
        ({"timestamp": pa.array([5, 2**60], pa.timestamp("s"))}, "row 1: 1152921504606846976 timestamp"),
        ({"timestamp": pa.array([-(2**61), 1], pa.timestamp("s"))}, "row 0: -2305843009213693952 timestamp"),
        ({"headers": pa.array([1, 2])}, "column headers is int64, and must be list"),
        ({"headers": pa.array([[1], [2]])}, "column headers is list<item: int64>, and must be list"),
        ({"headers": headers_column(None, [{"key": "a"}, {"key": None}])}, "row 1: a header without a name"),
        ({"headers": headers_column([], [None])}, "row 1: a header without a name"),
        ({"headers": headers_column([{"key": b"\xff"}], names=pa.binary())}, "a header's name is not UTF-8"),
    ],
    ids=lambda each: each if isinstance(each, str) else next(iter(each)),
)
def test_what_no_batch_can_hold(columns: dict[str, pa.Array], why: str) -> None:
    with pytest.raises(InvalidBatch, match=why):
        encode(pa.table(columns))


def test_what_readers_would_not_decompress_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catena.columns.encode.MAX_DECOMPRESSED_BYTES", 1000)
    rows = pa.table({"value": [b"a", b"b" * 1000]})
    with pytest.raises(BatchTooLarge, match=r"row 0: 1\d+ bytes of records in one batch"):
        encode(rows, compression=Compression.ZSTD)
