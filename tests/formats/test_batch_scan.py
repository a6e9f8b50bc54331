from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from catena.errors import Corrupt
from catena.formats.batch_scan import Source, Totals, count_records, scan
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.formats.thinned import gaps
from tests.formats.batches import batch, batches
from tests.formats.independent import GOLDEN_BATCH, crc32c_by_definition


def sources(count: int) -> list[Source]:
    return [Source(f"o{number}", 1000 * number) for number in range(count)]


def test_known_numbers() -> None:
    found = scan([GOLDEN_BATCH * 2, GOLDEN_BATCH], sources(2), 40, 100, 2 * len(GOLDEN_BATCH))
    size = len(GOLDEN_BATCH)
    time = 1700000000250
    assert found.intervals.tolist() == [
        *(40, 100, time, crc32c_by_definition(GOLDEN_BATCH * 2)),
        *(44, 100 + 2 * size, time, crc32c_by_definition(GOLDEN_BATCH)),
    ]
    assert found.totals == Totals(3, 1700000000000, time)
    assert (found.end, found.position) == (46, 100 + 3 * size)


@given(st.lists(st.lists(batches, max_size=4), max_size=6), st.integers(1, 600), st.integers(0, 50))
def test_intervals_are_whole_batches_and_cover_all(bodies: list[list[bytes]], interval_bytes: int, base: int) -> None:
    assume(any(bodies))
    found = scan([b"".join(body) for body in bodies], sources(len(bodies)), base, 7, interval_bytes)
    everything = [each for body in bodies for each in body]
    data = b"".join(everything)
    numbers = found.intervals
    starts, ends = numbers[1::4], [*numbers[5::4], 7 + len(data)]
    assert found.position == 7 + len(data)
    offset, at = base, 7
    left = list(everything)
    for first, start, newest, crc, end in zip(numbers[0::4], starts, numbers[2::4], numbers[3::4], ends, strict=True):
        assert (first, start) == (offset, at)
        inside = []
        while at < end:
            inside.append(left.pop(0))
            at += len(inside[-1])
            offset += parse_header(inside[-1]).count
        assert at == end
        assert crc == crc32c_by_definition(b"".join(inside))
        assert newest == max(parse_header(each).max_timestamp for each in inside)
        assert sum(map(len, inside[:-1])) < interval_bytes
        assert sum(map(len, inside)) >= interval_bytes or not left
    assert not left
    assert found.end == offset
    times = [parse_header(each).max_timestamp for each in everything]
    known = [time for time in times if time >= 0]
    assert found.totals == Totals(len(everything), min(known, default=-1), max(known, default=-1))


@given(st.lists(st.lists(batches, min_size=1, max_size=3), max_size=5))
def test_totals_add_up(bodies: list[list[bytes]]) -> None:
    parts = [b"".join(body) for body in bodies]
    together = Totals()
    for part in parts:
        together = together.plus(scan([part], sources(1), 0).totals)
    assert together == scan(parts, sources(len(parts)), 0).totals


def test_the_time_that_counts_is_the_one_that_readers_see() -> None:
    created = build_batch([(None, b"", (), 30), (None, b"", (), 10), (None, b"", (), 50)])
    appended = build_batch([(None, b"", (), 3)], log_append_time=40)
    assert scan([created], sources(1), 0).totals == Totals(1, 30, 50)
    assert scan([appended], sources(1), 0).totals == Totals(1, 40, 40)
    assert scan([created, appended], sources(2), 0).totals == Totals(2, 30, 50)


@given(st.data())
def test_a_changed_byte_is_named_or_changes_the_crc(data: st.DataObject) -> None:
    first, second, third = batch(2, 10), batch(1, 20), batch(3, 5)
    whole = first + second + third
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole)
    damaged[at] ^= data.draw(st.integers(1, 255))
    number = sum(start <= at for start in (len(first), len(first) + len(second)))
    start, offset = ((0, 10), (len(first), 12), (len(first) + len(second), 13))[number]
    if at - start < 8 or 12 <= at - start < 16:  # base offset, leader epoch: outside of the batch's own CRC
        assert scan([damaged], sources(1), 10).intervals[3] != scan([whole], sources(1), 10).intervals[3]
        return
    with pytest.raises(Corrupt, match=f"object o1, the batch at byte {1000 + start} for offset {offset}: byte "):
        scan([b"", damaged], sources(2), 10)


@given(st.integers(1, len(GOLDEN_BATCH) - 1))
def test_a_batch_that_is_cut_off_is_named(length: int) -> None:
    with pytest.raises(Corrupt, match=f"object o0, the batch at byte {len(GOLDEN_BATCH)} for offset 2: byte "):
        scan([GOLDEN_BATCH + GOLDEN_BATCH[:length]], sources(1), 0)


def test_a_batch_that_takes_no_offsets_is_refused_even_if_its_crc_is_right() -> None:
    none = bytearray(GOLDEN_BATCH)
    none[23:27] = b"\xff\xff\xff\xff"
    none[17:21] = crc32c_by_definition(bytes(none[21:])).to_bytes(4, "big")
    with pytest.raises(Corrupt, match="for offset 5: byte 23: last offset delta -1 is negative"):
        scan([none], sources(1), 5)


def test_nothing_is_made_of_nothing() -> None:
    found = scan([], [], 5, 9)
    assert (found.intervals.tolist(), found.totals, found.end, found.position) == ([], Totals(), 5, 9)


def test_records_are_counted_where_some_were_removed() -> None:
    assert count_records(batch(3) + gaps(1000)[0] + batch(2, 10)) == 5
    assert count_records(b"") == 0
