from __future__ import annotations

import pytest

from catena.formats.compression import Compression
from catena.formats.record_batch import HEADER_BYTES, check_crc, parse_header, split_batches
from catena.formats.records import build_batch, iter_records
from catena.formats.thinned import MAX_GAP, gaps, is_gap, thinned

RECORDS = [(b"k%d" % number, b"value", (), 1000 + number) for number in range(3)]


class TestGaps:
    @pytest.mark.parametrize("offsets", [1, 7, MAX_GAP])
    def test_a_gap_takes_offsets_and_holds_nothing(self, offsets: int) -> None:
        (gap,) = gaps(offsets)
        header = parse_header(gap)
        check_crc(gap, header)
        assert len(gap) == HEADER_BYTES
        assert (header.count, header.record_count, header.producer_id, header.max_timestamp) == (offsets, 0, -1, -1)
        assert is_gap(header)
        assert list(iter_records(gap, 5)) == []

    def test_one_that_is_too_long_for_a_batch_is_several(self) -> None:
        found = gaps(2 * MAX_GAP + 5)
        assert [header.count for header, _ in split_batches(b"".join(found))] == [MAX_GAP, MAX_GAP, 5]

    def test_there_may_be_none(self) -> None:
        assert gaps(0) == []

    def test_a_batch_with_records_is_none(self) -> None:
        assert not is_gap(parse_header(build_batch(RECORDS)))


class TestThinned:
    @pytest.mark.parametrize("compression", Compression)
    def test_the_header_stays_but_for_what_must_change(self, compression: Compression) -> None:
        whole = build_batch(RECORDS, compression=compression, producer_id=7, producer_epoch=2, base_sequence=40)
        plain = build_batch(RECORDS)[HEADER_BYTES:]
        header = parse_header(whole)
        left = thinned(header, plain[: len(plain) // 3 * 2], 2, 1001)
        found = parse_header(left)
        check_crc(left, found)
        changed = {"length", "crc", "max_timestamp", "record_count"}
        assert {name for name in header._fields if getattr(header, name) != getattr(found, name)} <= changed
        assert (found.record_count, found.count, found.max_timestamp, found.length) == (2, 3, 1001, len(left))
        assert [record.key for record in iter_records(left)] == [b"k0", b"k1"]

    def test_the_time_of_the_append_is_that_of_all(self) -> None:
        whole = build_batch(RECORDS, log_append_time=5000)
        left = thinned(parse_header(whole), whole[HEADER_BYTES:][: (len(whole) - HEADER_BYTES) // 3], 1, 1000)
        assert [record.timestamp for record in iter_records(left)] == [5000]

    def test_a_time_that_no_header_can_hold_is_the_last_that_it_can(self) -> None:
        whole = build_batch(RECORDS)
        assert parse_header(thinned(parse_header(whole), whole[HEADER_BYTES:], 3, 2**64)).max_timestamp == 2**63 - 1

    @pytest.mark.parametrize("count", [0, 4])
    def test_it_never_holds_none_or_more_than_there_were(self, count: int) -> None:
        whole = build_batch(RECORDS)
        with pytest.raises(ValueError, match=f"{count} of 3 records"):
            thinned(parse_header(whole), whole[HEADER_BYTES:], count, 0)
