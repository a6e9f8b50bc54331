from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.columns.gather import Body
from catena.columns.walked_batches import Walked, Whole, walked
from catena.errors import Corrupt
from catena.formats.compression import Compression
from catena.formats.recompress import assemble
from catena.formats.record_batch import CONTROL, HEADER_BYTES, parse_header, split_batches
from catena.formats.records import build_batch, iter_records
from catena.formats.thinned import gaps
from tests.columns.nonsense import Fault, nonsense, some_nonsense
from tests.columns.rows import ORDERS, Drawn, logs, some
from tests.columns.test_thinning import body

TWO = ((b"a", b"1", (), 7), (b"b", b"2", (), 9))


def batches_of(parts: list[Walked | Whole]) -> list[tuple[int, bytes]]:
    stored = [each for part in parts for each in (part.batches if isinstance(part, Walked) else [part.batch])]
    return [(each.offset, bytes(each.data)) for each in stored]


def opaque_in(parts: list[Walked | Whole]) -> list[int]:
    return [part.batch.offset for part in parts if isinstance(part, Whole) and part.is_opaque]


@some
@given(drawn=logs(), max_rows=st.integers(1, 20), max_bytes=st.integers(1, 2000))
def test_records_stand_where_they_are_said_to(drawn: Drawn, max_rows: int, max_bytes: int) -> None:
    for each in drawn.bodies:
        parts = list(walked(each, ORDERS, max_rows, max_bytes))
        at, expected, found = each.offset, [], []
        for header, batch in split_batches(each.data):
            expected += [(record.offset, record.key, record.value) for record in iter_records(batch, at)]
            at += header.count
        for part in parts:
            assert isinstance(part, Walked)
            assert len(part.batches) == 1 or part.spans.record_count.sum() <= max_rows
            data, fields = part.data.tobytes(), part.fields
            for row, offset in enumerate(part.offsets.tolist()):
                key, value = (
                    None if size[row] < 0 else data[where[row] : where[row] + size[row]]
                    for where, size in ((fields.key_at, fields.key_size), (fields.value_at, fields.value_size))
                )
                found.append((offset, key, value))
        assert found == expected


@some
@given(drawn=logs(), found=st.lists(st.tuples(st.integers(0, 9), some_nonsense), max_size=4))
def test_nonsense_is_told_apart_wherever_it_is(drawn: Drawn, found: list[tuple[int, bytes]]) -> None:
    batches = [bytes(batch) for each in drawn.bodies for _, batch in split_batches(each.data)]
    for place, batch in found:
        batches.insert(place % (len(batches) + 1), batch)
    offsets = [0]
    for batch in batches:
        offsets.append(offsets[-1] + parse_header(batch).count)
    parts = list(walked(body(*batches, offset=0), ORDERS))
    assert batches_of(parts) == list(zip(offsets, batches, strict=False))
    expected = [
        offset for offset, batch in zip(offsets, batches, strict=False) if any(batch is each for _, each in found)
    ]
    assert opaque_in(parts) == expected


@pytest.mark.parametrize("fault", Fault)
@pytest.mark.parametrize("count", [1, 2, 50])
def test_each_kind_of_nonsense(fault: Fault, count: int) -> None:
    assert opaque_in(list(walked(body(nonsense(count, fault)), ORDERS))) == [10]


def test_control_batches_and_gaps_are_not_looked_into() -> None:
    plain = build_batch(TWO)
    control = assemble(parse_header(plain)._replace(attributes=CONTROL), b"any bytes")
    parts = list(walked(body(plain, control, *gaps(5), plain), ORDERS))
    assert [type(part) for part in parts] == [Walked, Whole, Whole, Walked]
    assert opaque_in(parts) == []
    assert [offset for offset, _ in batches_of(parts)] == [10, 12, 14, 19]


def test_what_is_not_compressed_is_not_copied() -> None:
    plain = build_batch(TWO)
    each = body(plain, plain, plain)
    (part,) = walked(each, ORDERS)
    assert isinstance(part, Walked)
    assert part.data.nbytes == len(each.data)
    packed = build_batch(TWO, compression=Compression.LZ4)
    (part,) = walked(body(plain, packed, plain), ORDERS)
    assert isinstance(part, Walked)
    assert part.data.nbytes == 3 * (len(plain) - HEADER_BYTES)


def test_a_wrong_crc_is_damage() -> None:
    batch = bytearray(nonsense(3))
    batch[-1] ^= 1
    place = "topic orders, partition 3, the batch at offset 12, object object at byte"
    with pytest.raises(Corrupt, match=place):
        list(walked(body(build_batch(TWO), bytes(batch)), ORDERS))
    with pytest.raises(Corrupt, match="the batch at offset 12"):
        list(walked(Body(build_batch(TWO) + b"short", 10), ORDERS))
