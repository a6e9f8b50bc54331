from __future__ import annotations

import numpy as np
import pytest
from aiokafka.record.default_records import DefaultRecordBatch  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from catena.columns import thinning
from catena.columns.gather import Body
from catena.columns.last_of_keys import KeyFinder
from catena.columns.thinning import Thinner
from catena.errors import Corrupt
from catena.formats.batch_scan import Source
from catena.formats.compression import Compression
from catena.formats.opaque import Opaque
from catena.formats.recompress import assemble
from catena.formats.record_batch import CONTROL, HEADER, parse_header, patched, split_batches
from catena.formats.records import Record, build_batch, iter_records
from catena.types import Offset
from tests.columns.nonsense import Fault, nonsense, some_nonsense
from tests.columns.rows import ORDERS, Drawn, logs, some


def thin(bodies: list[Body], kept: set[Offset]) -> Thinner:
    thinner = Thinner(ORDERS)
    for body in bodies:
        thinner.add(body, np.array(sorted(kept), np.int64))
    thinner.finish()
    return thinner


def records_of(bodies: list[Body]) -> list[Record]:
    return [record for body in bodies for record in records_from(body.offset, body.data)]


def records_from(offset: Offset, data: object) -> list[Record]:
    found = []
    for header, batch in split_batches(data):  # type: ignore[arg-type]
        found += list(iter_records(batch, offset))
        offset += header.count
    return found


def end_of(bodies: list[Body]) -> Offset:
    return bodies[-1].offset + sum(header.count for header, _ in split_batches(bodies[-1].data))


def body(*batches: bytes, offset: Offset = 10) -> Body:
    return Body(b"".join(batches), offset, Source("object", 100))


@some
@given(drawn=logs(), data=st.data())
def test_what_is_left_is_what_a_plain_filter_leaves(drawn: Drawn, data: st.DataObject) -> None:
    before = records_of(drawn.bodies)
    kept = data.draw(st.sets(st.sampled_from([record.offset for record in before])))
    thinner = thin(drawn.bodies, kept)
    expected = [record for record in before if record.offset in kept or record.key is None]
    offset = drawn.bodies[0].offset
    assert records_from(offset, b"".join(thinner.batches)) == expected
    assert (thinner.records, thinner.removed) == (len(expected), len(before) - len(expected))
    assert offset + sum(parse_header(batch).count for batch in thinner.batches) == end_of(drawn.bodies)
    for batch in thinner.batches:
        count = parse_header(batch).count
        inside = [record for record in expected if offset <= record.offset < offset + count]
        found = DefaultRecordBatch(patched(batch, offset, 0))  # another's code
        assert found.validate_crc()
        assert [(each.offset, each.key, each.value) for each in found] == [each[:1] + each[2:4] for each in inside]
        assert found.next_offset == offset + count
        offset += count


@some
@given(drawn=logs(), data=st.data())
def test_to_thin_twice_is_to_thin_once(drawn: Drawn, data: st.DataObject) -> None:
    offsets = [record.offset for record in records_of(drawn.bodies)]
    first, second = data.draw(st.sets(st.sampled_from(offsets))), data.draw(st.sets(st.sampled_from(offsets)))
    start = drawn.bodies[0].offset
    once = b"".join(thin(drawn.bodies, first & second).batches)
    twice = b"".join(thin([Body(b"".join(thin(drawn.bodies, first).batches), start)], second).batches)
    assert records_from(start, once) == records_from(start, twice)
    assert [header.count for header, _ in split_batches(once)] == [header.count for header, _ in split_batches(twice)]


TWO = ((b"a", b"1", (), 7), (b"b", b"2", (), 9))


class TestBatches:
    @pytest.mark.parametrize("compression", Compression)
    def test_one_that_loses_nothing_keeps_its_bytes(self, compression: Compression) -> None:
        batch = build_batch(TWO, compression=compression, base_offset=77)
        assert thin([body(batch)], {10, 11}).batches == [batch]

    @pytest.mark.parametrize("compression", Compression)
    def test_one_that_loses_a_record_is_compressed_as_before(self, compression: Compression) -> None:
        batch = build_batch(TWO, compression=compression, producer_id=5, producer_epoch=0, base_sequence=3)
        (left,) = thin([body(batch)], {10}).batches
        header = parse_header(left)
        assert (header.compression, header.producer_id, header.base_sequence) == (compression, 5, 3)
        assert (header.count, header.record_count, header.base_timestamp, header.max_timestamp) == (2, 1, 7, 7)

    def test_neighbours_that_lose_all_become_one_gap_also_across_bodies(self) -> None:
        batch = build_batch(TWO)
        bodies = [body(batch, batch), body(batch, batch, batch, offset=14)]
        thinner = thin(bodies, {18})
        found = [(header.count, header.record_count) for header, _ in split_batches(b"".join(thinner.batches))]
        assert found == [(8, 0), (2, 1)]
        thinner = thin(bodies, set())
        assert [(header.count, len(data)) for header, data in split_batches(b"".join(thinner.batches))] == [(10, 61)]

    def test_gaps_grow_together(self) -> None:
        batch = build_batch(TWO)
        first = thin([body(batch, batch, batch)], {10, 14}).batches
        assert [parse_header(each).record_count for each in first] == [1, 0, 1]
        second = thin([body(*first)], set()).batches
        assert [(parse_header(each).count, parse_header(each).record_count) for each in second] == [(6, 0)]

    def test_records_without_a_key_stay(self) -> None:
        batch = build_batch([(None, b"1", (), 7), (b"b", b"2", (), 9), (b"", b"3", (), 9)])
        thinner = thin([body(batch)], set())
        assert [record.offset for record in records_from(10, b"".join(thinner.batches))] == [10]

    def test_control_batches_stay(self) -> None:
        plain = build_batch(TWO)
        header = parse_header(plain)
        control = assemble(header._replace(attributes=CONTROL), plain[HEADER.size :])
        assert thin([body(plain, control, plain)], set()).batches[1] == control

    @pytest.mark.parametrize("dense", [0, 1 << 40])
    def test_where_offsets_are_far_from_each_other_they_are_found_as_well(
        self, monkeypatch: pytest.MonkeyPatch, dense: int
    ) -> None:
        monkeypatch.setattr(thinning, "DENSE", dense)
        batches = [build_batch(TWO) for _ in range(20)]
        thinner = thin([body(*batches)], set(range(10, 50, 2)) | {1, 9, 50, 70})
        assert (thinner.records, thinner.removed, thinner.survivors) == (20, 20, 20)


class TestDamage:
    def test_a_wrong_crc_is_named_with_its_place(self) -> None:
        batch = bytearray(build_batch(TWO))
        batch[-1] ^= 1
        with pytest.raises(Corrupt, match="topic orders, partition 3, the batch at offset 12, object object at byte"):
            thin([body(build_batch(TWO), bytes(batch))], set())


class TestNonsense:
    """Records that can't be decoded under a right CRC."""

    @pytest.mark.parametrize("fault", Fault)
    def test_a_batch_of_it_stays_byte_for_byte(self, fault: Fault) -> None:
        sound, opaque = build_batch(TWO), nonsense(5, fault)
        thinner = thin([body(sound, sound, opaque, sound)], {19})
        first, second, third = thinner.batches
        assert (parse_header(first).record_count, parse_header(first).count) == (0, 4)
        assert second == opaque
        assert parse_header(third).record_count == 1
        assert (thinner.opaque, thinner.survivors, thinner.removed) == (Opaque().plus(14), 1, 5)
        assert thinner.records == 1 + parse_header(opaque).record_count

    @some
    @given(drawn=logs(), found=st.lists(st.tuples(st.integers(0, 9), some_nonsense), max_size=3), data=st.data())
    def test_the_others_are_thinned_as_if_it_were_not_there(
        self, drawn: Drawn, found: list[tuple[int, bytes]], data: st.DataObject
    ) -> None:
        batches = [bytes(batch) for each in drawn.bodies for _, batch in split_batches(each.data)]
        for place, batch in found:
            batches.insert(place % (len(batches) + 1), batch)
        mixed, at = body(*batches, offset=0), 0
        records, opaque, places = list[Record](), Opaque(), list[tuple[Offset, bytes]]()
        for batch in batches:
            if any(batch is each for _, each in found):
                opaque = opaque.plus(at)
                places.append((at, batch))
            else:
                records += list(iter_records(batch, at))
            at += parse_header(batch).count
        kept = data.draw(st.sets(st.sampled_from([record.offset for record in records])))
        thinner, finder = thin([mixed], kept), KeyFinder(ORDERS, b"salt")
        finder.add(mixed)
        assert thinner.opaque == finder.opaque == opaque
        last = {record.key: record.offset for record in records if record.key is not None}
        assert finder.finish().offset.tolist() == sorted(last.values())
        left, at = list[Record](), 0
        for batch in thinner.batches:
            if (at, batch) in places:
                places.remove((at, batch))
            else:
                left += list(iter_records(batch, at))
            at += parse_header(batch).count
        assert places == []
        assert left == [record for record in records if record.offset in kept or record.key is None]
