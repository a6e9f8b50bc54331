"""Batches that were compressed anew or stamped hold the same records, and every reader takes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import InvalidBatch
from catena.formats.compression import Compression
from catena.formats.recompress import recompress, stamp_append_time, timestamp_fault
from catena.formats.record_batch import CONTROL, LOG_APPEND_TIME, TRANSACTIONAL, check_crc, parse_header
from catena.formats.records import Headers, build_batch, iter_records
from tests.formats.independent import GOLDEN_BATCH, GOLDEN_COMPRESSED, crc32c_by_definition
from tests.formats.test_records import batch_of, record_lists, sized

NOW = 1_800_000_000_000


@given(record_lists, st.sampled_from(Compression), st.sampled_from(Compression), st.integers(0, 2**40))
def test_recompressed_records_are_the_same(
    records: list[tuple[bytes | None, bytes | None, Headers, int]],
    source: Compression,
    target: Compression,
    base_offset: int,
) -> None:
    batch = build_batch(
        records, compression=source, base_offset=base_offset, producer_id=9, producer_epoch=3, base_sequence=77
    )
    result = recompress(batch, target)
    old, new = parse_header(batch), parse_header(result)
    check_crc(result, new)
    assert new.compression is target
    assert new.length == len(result)
    assert new._replace(crc=0, length=0, attributes=0) == old._replace(crc=0, length=0, attributes=0)
    assert list(iter_records(result)) == list(iter_records(batch))


@pytest.mark.parametrize("kind", GOLDEN_COMPRESSED)
def test_what_others_compressed_becomes_the_golden_batch(kind: str) -> None:
    assert recompress(GOLDEN_COMPRESSED[kind], Compression.NONE) == GOLDEN_BATCH


def test_a_batch_that_is_compressed_so_already_is_not_copied() -> None:
    batch = build_batch([(b"k", b"v", (), 0)], compression=Compression.ZSTD)
    assert recompress(batch, Compression.ZSTD) is batch


def test_other_attributes_are_kept() -> None:
    batch = bytearray(stamp_append_time(GOLDEN_BATCH, NOW))
    batch[21:23] = (LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | Compression.NONE).to_bytes(2, "big")
    batch[17:21] = crc32c_by_definition(bytes(batch[21:])).to_bytes(4, "big")
    result = recompress(batch, Compression.LZ4)
    assert parse_header(result).attributes == LOG_APPEND_TIME | TRANSACTIONAL | CONTROL | Compression.LZ4
    assert parse_header(stamp_append_time(result, 5)).attributes == parse_header(result).attributes


def test_records_that_cannot_be_decompressed_are_refused() -> None:
    damaged = bytearray(GOLDEN_COMPRESSED["GZIP"])
    damaged[65:80] = bytes(15)
    with pytest.raises(InvalidBatch, match="gzip"):
        recompress(damaged, Compression.ZSTD)


def test_a_bomb_is_refused() -> None:
    batch = build_batch([(None, bytes(1_000_000), (), 0)], compression=Compression.ZSTD)
    with pytest.raises(InvalidBatch, match="at most 100000 bytes"):
        recompress(batch, Compression.GZIP, max_bytes=100_000)


@given(record_lists, st.sampled_from(Compression), st.integers(0, 2**62))
def test_a_stamped_batch_has_one_time(
    records: list[tuple[bytes | None, bytes | None, Headers, int]], compression: Compression, now_ms: int
) -> None:
    batch = build_batch(records, compression=compression, producer_id=9, producer_epoch=3, base_sequence=77)
    result = stamp_append_time(memoryview(batch), now_ms)
    header = parse_header(result)
    check_crc(result, header)
    assert (header.log_append_time, header.max_timestamp, header.compression) == (True, now_ms, compression)
    assert header.base_timestamp == parse_header(batch).base_timestamp
    assert list(iter_records(result)) == [record._replace(timestamp=now_ms) for record in iter_records(batch)]


def test_a_stamp_changes_three_fields_only() -> None:
    result = stamp_append_time(GOLDEN_BATCH, NOW)
    changed = [at for at, (old, new) in enumerate(zip(GOLDEN_BATCH, result, strict=True)) if old != new]
    assert {at for at in changed if not 17 <= at < 21} <= {22, *range(35, 43)}
    assert result[21:23] == b"\x00\x08"
    assert result[35:43] == NOW.to_bytes(8, "big")
    assert int.from_bytes(result[17:21], "big") == crc32c_by_definition(result[21:])


def test_a_stamp_can_be_renewed() -> None:
    assert stamp_append_time(stamp_append_time(GOLDEN_BATCH, 5), NOW) == stamp_append_time(GOLDEN_BATCH, NOW)


def batch_at(*timestamps: int) -> bytes:
    return build_batch([(None, b"v", (), timestamp) for timestamp in timestamps], compression=Compression.SNAPPY)


class TestTimestampFault:
    @pytest.mark.parametrize("timestamps", [(NOW,), (NOW - 100, NOW + 50), (NOW + 50, NOW - 100, -1), (-1,)])
    def test_times_within_the_bounds(self, timestamps: tuple[int, ...]) -> None:
        assert timestamp_fault(batch_at(*timestamps), NOW, 100, 50) is None

    def test_without_bounds_any_time_will_do(self) -> None:
        assert timestamp_fault(batch_at(0, 2**60), NOW, None, None) is None

    @pytest.mark.parametrize("timestamps", [(NOW + 51,), (NOW, NOW + 51, NOW)])
    def test_too_far_ahead(self, timestamps: tuple[int, ...]) -> None:
        fault = timestamp_fault(batch_at(*timestamps), NOW, None, 50)
        assert fault == f"timestamp {NOW + 51} is more than 50 ms ahead of the broker's time {NOW}"

    @pytest.mark.parametrize("timestamps", [(NOW - 101,), (NOW, NOW - 101, NOW)])
    def test_too_far_behind(self, timestamps: tuple[int, ...]) -> None:
        fault = timestamp_fault(batch_at(*timestamps), NOW, 100, None)
        assert fault == f"timestamp {NOW - 101} is more than 100 ms behind the broker's time {NOW}"

    def test_the_time_of_the_append_is_not_the_producers_to_give(self) -> None:
        assert "must not say" in str(timestamp_fault(stamp_append_time(GOLDEN_BATCH, NOW), NOW, None, None))

    def test_damaged_records_are_found_where_they_are_read(self) -> None:
        batch = batch_of(sized(b"\x00\x00"), record_count=1)
        assert timestamp_fault(batch, NOW, None, 50) is None
        with pytest.raises(InvalidBatch):
            timestamp_fault(batch, NOW, 100, 50)
