from __future__ import annotations

import tracemalloc

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import InvalidBatch
from catena.formats import varint
from catena.formats.compression import Compression, compress
from catena.formats.record_batch import HEADER, HEADER_BYTES, check_crc, parse_header
from catena.formats.records import MAX_TIMESTAMP, Headers, Record, build_batch, iter_records
from tests.formats.independent import GOLDEN_BATCH, GOLDEN_COMPRESSED

FIRST = (b"k", b"hello", (("trace", b"\x01\x02"),), 1700000000000)
SECOND = (None, None, (), 1700000000250)
GOLDEN_RECORDS = [Record(0, 1700000000000, *FIRST[:3]), Record(1, 1700000000250, *SECOND[:3])]
NULL_RECORD = b"\x00\x00\x00\x01\x01\x00"
"""Time and offset delta 0, null key, null value, no headers; its length goes in front."""

fields = st.none() | st.binary(max_size=200)
header_lists: st.SearchStrategy[Headers] = st.lists(
    st.tuples(st.text(max_size=20), st.none() | st.binary(max_size=20)), max_size=4
).map(tuple)
timestamps = st.one_of(st.just(-1), st.integers(1_600_000_000_000, 1_800_000_000_000), st.integers(-1, MAX_TIMESTAMP))
record_lists = st.lists(st.tuples(fields, fields, header_lists, timestamps), min_size=1, max_size=30)


def batch_of(
    body: bytes, record_count: int, last_offset_delta: int | None = None, compression: Compression = Compression.NONE
) -> bytes:
    """A batch around any bytes at all, with a CRC that is right: what a hostile or broken producer could send."""
    last = record_count - 1 if last_offset_delta is None else last_offset_delta
    records = compress(compression, body)
    length = HEADER_BYTES - 12 + len(records)
    fields = (int(compression), last, 0, 0, -1, -1, -1, record_count)
    crc = crc32c(HEADER.pack(0, length, 0, 2, 0, *fields)[21:] + records)
    return HEADER.pack(0, length, 0, 2, crc, *fields) + records


def sized(record: bytes) -> bytes:
    return varint.encode(len(record)) + record


def test_builds_the_golden_batch() -> None:
    assert build_batch([FIRST, SECOND]) == GOLDEN_BATCH


def test_reads_the_golden_batch() -> None:
    assert list(iter_records(GOLDEN_BATCH)) == GOLDEN_RECORDS


@pytest.mark.parametrize("kind", GOLDEN_COMPRESSED)
def test_reads_batches_that_other_clients_compressed(kind: str) -> None:
    assert parse_header(GOLDEN_COMPRESSED[kind]).compression is Compression[kind]
    assert list(iter_records(GOLDEN_COMPRESSED[kind])) == GOLDEN_RECORDS


@given(record_lists, st.sampled_from(Compression), st.integers(0, 2**62))
def test_round_trip(
    records: list[tuple[bytes | None, bytes | None, Headers, int]], compression: Compression, base_offset: int
) -> None:
    batch = build_batch(iter(records), compression=compression, base_offset=base_offset)
    header = parse_header(batch)
    check_crc(batch, header)
    assert (header.length, header.count, header.record_count) == (len(batch), len(records), len(records))
    assert header.compression is compression
    assert header.max_timestamp == max(timestamp for *_, timestamp in records)
    expected = [
        Record(base_offset + delta, timestamp, key, value, headers)
        for delta, (key, value, headers, timestamp) in enumerate(records)
    ]
    assert list(iter_records(memoryview(batch))) == expected


@given(record_lists, st.integers(0, 2**63 - 1))
def test_with_log_append_time_all_records_have_that_time(
    records: list[tuple[bytes | None, bytes | None, Headers, int]], append_time: int
) -> None:
    batch = build_batch(records, log_append_time=append_time)
    header = parse_header(batch)
    assert header.log_append_time
    assert header.max_timestamp == append_time
    assert {record.timestamp for record in iter_records(batch)} == {append_time}


def test_the_given_base_offset_takes_the_place_of_the_stored_one() -> None:
    assert [record.offset for record in iter_records(build_batch([FIRST, SECOND], base_offset=7))] == [7, 8]
    assert [record.offset for record in iter_records(build_batch([FIRST, SECOND], base_offset=7), 500)] == [500, 501]


def test_the_producer_stamp_is_in_the_header() -> None:
    header = parse_header(build_batch([FIRST], producer_id=9, producer_epoch=2, base_sequence=2**31 - 1))
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 2**31 - 1)
    assert header.has_producer


def test_what_cannot_be_built() -> None:
    with pytest.raises(InvalidBatch, match="one record at least"):
        build_batch([])
    with pytest.raises(InvalidBatch, match="record 1: -2 is not a timestamp"):
        build_batch([FIRST, (None, None, (), -2)])
    with pytest.raises(InvalidBatch, match="is not a timestamp"):
        build_batch([(None, None, (), MAX_TIMESTAMP + 1)])
    with pytest.raises(InvalidBatch, match="is not Unicode text"):
        build_batch([(None, None, (("\udc80", b""),), 0)])


def test_the_widest_range_of_timestamps() -> None:
    batch = build_batch([(None, None, (), timestamp) for timestamp in (-1, MAX_TIMESTAMP, -1)])
    assert [record.timestamp for record in iter_records(batch)] == [-1, MAX_TIMESTAMP, -1]


def test_offsets_of_a_batch_thinned_out_by_compaction() -> None:
    body = sized(b"\x00\x00\x04\x01\x01\x00") + sized(b"\x00\x00\x0a\x01\x01\x00")
    batch = batch_of(body, record_count=2, last_offset_delta=9)
    assert [record.offset for record in iter_records(batch, 100)] == [102, 105]
    assert list(iter_records(batch_of(b"", record_count=0, last_offset_delta=9))) == []


@pytest.mark.parametrize("compression", Compression, ids=lambda kind: kind.name.lower())
def test_any_flipped_or_missing_byte_is_detected(compression: Compression) -> None:
    batch = build_batch([FIRST, SECOND], compression=compression)
    for at in range(16, len(batch)):
        flipped = bytearray(batch)
        flipped[at] ^= 0x01
        for damaged in (bytes(flipped), batch[:at] + batch[at + 1 :], batch[:at]):
            with pytest.raises(InvalidBatch, match=r"^byte \d+: "):
                list(iter_records(damaged))


def test_bytes_after_the_batch_are_refused() -> None:
    with pytest.raises(InvalidBatch, match="byte 91: 3 bytes follow the end of the batch"):
        list(iter_records(GOLDEN_BATCH + b"abc"))


HUGE = varint.encode(2**31 - 1)

UNSOUND = {
    "no record at all": (b"", "the records end in the middle"),
    "a record longer than the batch": (HUGE + NULL_RECORD, "a record of 2147483647 bytes, with 6 left"),
    "a record of negative length": (varint.encode(-5) + NULL_RECORD, "a record of -5 bytes"),
    "a length without an end": (b"\x80" * 20, "more than 5 bytes"),
    "a key longer than the record": (sized(b"\x00\x00\x00" + HUGE), "a field of 2147483647 bytes, with 0 left"),
    "a key of negative length": (sized(b"\x00\x00\x00\x03\x01\x00"), "a field of -2 bytes"),
    "a value longer than the record": (sized(b"\x00\x00\x00\x01" + HUGE), "a field of 2147483647 bytes"),
    "more headers than bytes": (sized(b"\x00\x00\x00\x01\x01" + HUGE), "2147483647 headers, with 0 bytes left"),
    "fewer than no headers": (sized(b"\x00\x00\x00\x01\x01\x01"), "-1 headers"),
    "a header without a name": (sized(b"\x00\x00\x00\x01\x01\x02\x01\x01"), "a header without a name"),
    "a header name that is no text": (sized(b"\x00\x00\x00\x01\x01\x02\x02\xff\x01"), "utf-8"),
    "fields that end before the record": (sized(NULL_RECORD + b"\x00"), "its fields have 7 bytes"),
    "an offset outside the batch": (sized(b"\x00\x00\x02\x01\x01\x00"), "offset delta 1 after -1, of 0"),
    "a negative offset": (sized(b"\x00\x00\x01\x01\x01\x00"), "offset delta -1 after -1"),
    "a timestamp without an end": (sized(b"\x00" + b"\xff" * 12), "more than 10 bytes"),
}


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD], ids=lambda kind: kind.name.lower())
@pytest.mark.parametrize("name", UNSOUND)
def test_an_unsound_record_is_named(name: str, compression: Compression) -> None:
    body, because = UNSOUND[name]
    where = "byte 61: " if compression is Compression.NONE else "byte 0 of the decompressed records: "
    with pytest.raises(InvalidBatch, match=f"^{where}record 0 of 1 is unsound: .*{because}"):
        list(iter_records(batch_of(body, record_count=1, compression=compression)))


def test_a_field_cannot_reach_into_the_next_record() -> None:
    reaches_over = sized(b"\x00\x00\x00\x01" + varint.encode(4))
    with pytest.raises(InvalidBatch, match="byte 61: record 0 of 2 is unsound: a field of 4 bytes, with 0 left"):
        list(iter_records(batch_of(reaches_over + sized(NULL_RECORD), record_count=2)))


def test_offsets_must_grow() -> None:
    with pytest.raises(InvalidBatch, match="byte 68: record 1 of 2 is unsound: offset delta 0 after 0"):
        list(iter_records(batch_of(sized(NULL_RECORD) * 2, record_count=2)))


def test_bytes_after_the_last_record_are_refused() -> None:
    with pytest.raises(InvalidBatch, match="byte 68: 2 bytes follow the last record"):
        list(iter_records(batch_of(sized(NULL_RECORD) + b"ab", record_count=1)))


def test_huge_claims_allocate_nothing() -> None:
    hostile = [batch_of(body, record_count=2**31 - 1) for body, _ in UNSOUND.values()]
    hostile.append(batch_of(bytes(16 * 1024 * 1024), record_count=1, compression=Compression.ZSTD))
    tracemalloc.start()
    try:
        for batch in hostile:
            with pytest.raises(InvalidBatch):
                list(iter_records(batch, max_bytes=1024 * 1024))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 1024 * 1024


@given(st.binary(max_size=100), st.integers(0, 5), st.sampled_from(Compression))
def test_noise_with_a_right_crc_is_refused_or_read(body: bytes, count: int, compression: Compression) -> None:
    try:
        records = list(iter_records(batch_of(body, count, last_offset_delta=5, compression=compression)))
    except InvalidBatch:
        return
    assert len(records) == count


@given(record_lists, st.data())
def test_damage_with_a_right_crc_is_refused_or_read(
    records: list[tuple[bytes | None, bytes | None, Headers, int]], data: st.DataObject
) -> None:
    body = bytearray(build_batch(records)[HEADER_BYTES:])
    body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(list(iter_records(batch_of(bytes(body), len(records))))) == len(records)
    except InvalidBatch:
        pass
