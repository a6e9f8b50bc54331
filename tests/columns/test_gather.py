from __future__ import annotations

import pytest

from catena.columns.gather import Body, Chunk, Wanted, chunks
from catena.errors import Corrupt
from catena.formats.compression import Compression
from catena.formats.record_batch import HEADER_BYTES
from catena.formats.records import build_batch
from tests.columns.rows import ORDERS

ALL = Wanted(0, 2**63 - 1, 1000, 1 << 20, check_crc=True, headers_tell=False, headers_tell_append_time=False)


def batch(count: int, compression: Compression = Compression.NONE) -> bytes:
    return build_batch([(None, b"%d" % number, (), 50) for number in range(count)], compression=compression)


def offsets(found: list[Chunk]) -> list[list[int]]:
    return [chunk.numbers()[1].tolist() for chunk in found]


def test_batches_of_one_body_that_are_not_compressed_are_not_copied() -> None:
    data = b"".join([batch(3), batch(2), batch(4)])
    (chunk,) = chunks([Body(data, 10)], ORDERS, ALL)
    assert chunk.rows == 9
    assert chunk.data().obj is data
    spans, offset, time, is_append_time = chunk.numbers()
    for start, end, count in zip(spans.start, spans.end, spans.record_count, strict=True):
        assert chunk.data()[start:end] == batch(count)[HEADER_BYTES:]
    assert (offset.tolist(), time.tolist(), is_append_time.tolist()) == ([10, 13, 15], [50] * 3, [0] * 3)
    assert spans.last_delta.tolist() == [2, 1, 3]


def test_batches_of_several_bodies_and_compressions_stand_side_by_side() -> None:
    kinds = [Compression.NONE, Compression.NONE, Compression.ZSTD, Compression.NONE, Compression.LZ4]
    data = b"".join(batch(number + 1, kind) for number, kind in enumerate(kinds))
    (chunk,) = chunks([Body(data, 0), Body(data, 20)], ORDERS, ALL)
    spans = chunk.numbers()[0]
    assert spans.record_count.tolist() == [1, 2, 3, 4, 5] * 2
    for start, end, count in zip(spans.start, spans.end, spans.record_count, strict=True):
        assert chunk.data()[start:end] == batch(count)[HEADER_BYTES:]


def test_a_chunk_ends_before_it_is_too_large_but_takes_one_batch_at_least() -> None:
    bodies = [Body(batch(count), offset) for count, offset in ((3, 0), (3, 3), (3, 6), (8, 9), (1, 17))]
    assert offsets(list(chunks(bodies, ORDERS, ALL._replace(max_rows=6)))) == [[0, 3], [6], [9], [17]]
    room = len(batch(3)) - HEADER_BYTES
    assert offsets(list(chunks(bodies, ORDERS, ALL._replace(max_bytes=2 * room)))) == [[0, 3], [6], [9], [17]]


def test_batches_outside_of_the_offsets_are_not_looked_into() -> None:
    broken = bytearray(batch(3))
    broken[-1] ^= 1
    body = Body(bytes(broken) + batch(3) + bytes(broken), 0)
    assert offsets(list(chunks([body], ORDERS, ALL._replace(start=3, end=6)))) == [[3]]
    assert offsets(list(chunks([body, Body(b"nothing", 9)], ORDERS, ALL._replace(start=5, end=6)))) == [[3]]
    for start, end in ((2, 6), (3, 7)):
        with pytest.raises(Corrupt, match="the stored CRC"):
            list(chunks([body], ORDERS, ALL._replace(start=start, end=end)))


def test_where_headers_tell_all_there_is_no_data() -> None:
    stamped = build_batch([(None, b"v", (), 5)] * 2, log_append_time=70)
    bodies = [Body(batch(3), 0), Body(stamped, 3), Body(batch(1), 5)]
    found = list(chunks(bodies, ORDERS, ALL._replace(headers_tell=True)))
    assert [(chunk.is_bare, chunk.rows, len(chunk.data())) for chunk in found] == [(True, 6, 0)]
    found = list(chunks(bodies, ORDERS, ALL._replace(headers_tell_append_time=True)))
    assert [(chunk.is_bare, chunk.rows) for chunk in found] == [(False, 3), (True, 2), (False, 1)]
    assert found[1].numbers()[2].tolist() == [70]


def test_what_is_no_batch() -> None:
    for data, why in (
        (b"too short", "9 bytes are left, and a batch has 61 at least"),
        (batch(3)[:-1], "a batch of \\d+ bytes, of which \\d+ are there"),
        (b"\x00" * 100, "magic is 0"),
    ):
        with pytest.raises(Corrupt, match=f"^topic orders, partition 3, the batch at offset 4: .*{why}"):
            list(chunks([Body(batch(2) + data, 2)], ORDERS, ALL))
