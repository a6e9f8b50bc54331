"""Batches to what JSON says: both ways of decoding say the same, whatever is asked for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import BatchTooLarge, Corrupt
from catena.formats.compression import Compression
from catena.formats.recompress import assemble
from catena.formats.record_batch import CONTROL, parse_header
from catena.formats.records import build_batch, iter_records
from catena.loglets.base import Batch
from catena.rest import decoding
from catena.rest.bodies import Base64, FullRecord, Header
from catena.rest.decoding import FEW, Asked, Decoded, decode, decode_few, text_of
from catena.rest.walked import decode_walked
from catena.types import TopicId, TopicPartition

TP = TopicPartition("t", TopicId("0" * 32), 0)
ALL = Asked(0, 1 << 30, True, False)
VALUES = st.none() | st.binary(max_size=8) | st.text(max_size=8).map(str.encode)


def batch(offset: int, *values: bytes | None, compression: Compression = Compression.NONE) -> Batch:
    data = build_batch([(None, value, (), 1) for value in values], compression=compression)
    return Batch(offset, len(values), memoryview(data))


def control(offset: int) -> Batch:
    data = build_batch([(None, b"control", (), 1)])
    header = parse_header(data)
    data = assemble(header._replace(attributes=header.attributes | CONTROL), data[61:])
    return Batch(offset, 1, memoryview(data))


def thinned(offset: int, count: int, *kept: int) -> Batch:
    """Of so many records these are left; each is its own offset."""
    records = [(None, b"%d" % (offset + number), (), 1) for number in range(count)]
    whole = build_batch(records)
    parts = []
    body, at = whole[61:], 0
    for number in range(count):
        length = (body[at] >> 1) + 1
        if number in kept:
            parts.append(body[at : at + length])
        at += length
    data = assemble(parse_header(whole)._replace(record_count=len(kept)), b"".join(parts))
    assert [record.offset for record in iter_records(data, offset)] == [offset + number for number in kept]
    return Batch(offset, count, memoryview(data))


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    batches, offset = [], draw(st.integers(0, 1 << 40))
    for values in draw(st.lists(st.lists(VALUES, min_size=1, max_size=12), min_size=1, max_size=6)):
        found = batch(offset, *values, compression=draw(st.sampled_from(Compression)))
        batches.append(control(offset) if draw(st.integers(0, 5)) == 0 else found)
        offset = batches[-1].end
    return batches


@given(logs(), st.data())
def test_both_ways_say_the_same(batches: list[Batch], data: st.DataObject) -> None:
    start = data.draw(st.integers(batches[0].offset, batches[0].end - 1))
    asked = Asked(start, data.draw(st.integers(0, 60)), data.draw(st.booleans()), False)
    headers = [parse_header(each.data) for each in batches]
    few = decode_few(batches, asked)
    assert decode_walked(batches, TP, asked) == few
    visible = [
        record
        for each, header in zip(batches, headers, strict=True)
        if not header.is_control
        for record in iter_records(each.data, each.offset)
        if record.offset >= start
    ]
    assert few.records == [None if r.value is None else text_of(r.value) for r in visible[: len(few.records)]]
    assert few.next == (visible[len(few.records)].offset if len(few.records) < len(visible) else batches[-1].end)


def test_one_record_that_is_too_much_and_nothing_visible_behind_it() -> None:
    batches, asked = [batch(0, b"too much"), control(1)], Asked(0, 2, True, False)
    assert decode_few(batches, asked) == (["too much"], 0, 2, None, 8)
    assert decode_walked(batches, TP, asked) == (["too much"], 0, 2, None, 8)


def test_text_where_it_is_and_bytes_where_not() -> None:
    found = decode([batch(5, b"a", b"\xff", None, "ü".encode(), b"")], TP, ALL._replace(start=5))
    assert found == Decoded(["a", Base64(b"\xff"), None, "ü", ""], 5, 10, None, 4)


@pytest.mark.parametrize("count", [3, FEW + 1])
def test_from_the_middle_of_a_batch(count: int) -> None:
    batches = [batch(10, *[b"%d" % number for number in range(10, 10 + count)])]
    found = decode(batches, TP, ALL._replace(start=12))
    assert (found.first, found.records[0], len(found.records), found.next) == (12, "12", count - 2, 10 + count)


@pytest.mark.parametrize("count", [3, FEW + 1])
def test_what_is_too_much_is_cut_by_the_record(count: int) -> None:
    batches = [batch(0, *[b"%03d" % (number % 1000) for number in range(count)], compression=Compression.ZSTD)]
    assert decode(batches, TP, Asked(0, 7, False, False))[:3] == (["000", "001"], 0, 2)
    assert decode(batches, TP, Asked(0, 2, True, False))[:3] == (["000"], 0, 1)
    assert decode(batches, TP, Asked(1, 2, False, False))[:3] == ([], 1, 1)


@pytest.mark.parametrize("many", [False, True])
def test_of_compacted_logs_every_offset_is_told(many: bool) -> None:
    batches = [thinned(0, 5, 1, 4), control(5), thinned(6, 3), batch(9, *[b"x"] * (FEW if many else 1))]
    found = decode(batches, TP, ALL)
    assert found.offsets is not None
    assert found.offsets[:3] == [1, 4, 9]
    assert (found.records[:3], found.first, found.next) == (["1", "4", "x"], 1, batches[-1].end)
    assert decode([thinned(0, 5, 1, 2)], TP, ALL).offsets is None, "in a row"


def test_nothing_but_gaps_moves_on() -> None:
    assert decode([thinned(0, 5), control(5)], TP, ALL) == Decoded([], 0, 6, None, 0)
    assert decode_walked([thinned(0, 5), control(5)], TP, ALL) == Decoded([], 0, 6, None, 0)
    assert decode([], TP, ALL._replace(start=7)) == Decoded([], 7, 7, None, 0)


def test_details() -> None:
    records = [
        (b"k", b"v", (("h", b"\x80"), ("i", None)), 100),
        (None, None, (), 90),
        (b"\xff", b"w", (("j", b"z"),), 120),
    ]
    data = memoryview(build_batch(records, compression=Compression.GZIP))
    stamped = memoryview(build_batch(records[:1], log_append_time=7))
    found = decode([Batch(3, 3, data), Batch(6, 1, stamped)], TP, Asked(4, 1 << 20, True, True))
    assert found.records == [
        FullRecord(4, 90, None, None, ()),
        FullRecord(5, 120, Base64(b"\xff"), "w", (Header("j", "z"),)),
        FullRecord(6, 7, "k", "v", (Header("h", Base64(b"\x80")), Header("i", None))),
    ]


def test_a_header_whose_name_is_no_text_harms_nobody() -> None:
    data = bytearray(build_batch([(None, b"v", (("name", b"x"),), 1)]))
    at = data.index(b"name")
    data[at : at + 4] = b"\xff\xff\xff\xff"
    sound = assemble(parse_header(bytes(data)), bytes(data[61:]))
    assert decode([Batch(0, 1, memoryview(sound))], TP, ALL).records == ["v"]
    (full,) = decode([Batch(0, 1, memoryview(sound))], TP, ALL._replace(details=True)).records
    assert isinstance(full, FullRecord)
    assert full.headers[0].name == "\ufffd" * 4


@pytest.mark.parametrize("count", [1, FEW + 1])
def test_what_is_not_sound_is_named(count: int) -> None:
    data = build_batch([(None, b"v", (), 1)] * count)
    broken = assemble(parse_header(data), b"\x7f" + data[62:])
    with pytest.raises(Corrupt, match="topic t, partition 0, the batch at offset 7"):
        decode([Batch(7, count, memoryview(broken))], TP, ALL._replace(start=7))


def test_a_batch_of_too_many_records_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "MAX_BATCH_RECORDS", 2)
    with pytest.raises(BatchTooLarge, match="has 3 records"):
        decode([batch(0, b"a", b"b", b"c")], TP, ALL)
