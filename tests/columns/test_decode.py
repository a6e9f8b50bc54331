from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.columns import walk_numpy
from catena.columns.decode import LIMIT_BYTES, decode
from catena.columns.gather import Body, OpaqueBatch
from catena.columns.schema import COLUMNS, schema_of
from catena.columns.walking import Walk, load_compiled
from catena.errors import ConfigError, Corrupt, InvalidBatch
from catena.formats import bytes_batch
from catena.formats.batch_scan import Source
from catena.formats.compression import Compression
from catena.formats.record_batch import HEADER, HEADER_BYTES, parse_header
from catena.formats.records import MAX_TIMESTAMP, build_batch
from tests.columns.nonsense import some_nonsense
from tests.columns.rows import ORDERS, Drawn, as_rows, logs, rows_of, some, thinned, with_attributes
from tests.formats.independent import GOLDEN_BATCH, GOLDEN_COMPRESSED
from tests.formats.test_records import UNSOUND, batch_of

TRANSACTIONAL, CONTROL = 0x10, 0x20


@some
@given(logs())
def test_rows_are_those_of_the_other_reader(drawn: Drawn) -> None:
    batches = list(decode(drawn.bodies, ORDERS))
    assert as_rows(batches) == drawn.rows
    assert {batch.schema for batch in batches} == {schema_of()}


@some
@given(logs(), st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True), st.data())
def test_some_columns_and_offsets(drawn: Drawn, columns: list[str], data: st.DataObject) -> None:
    first, last = drawn.rows[0]["offset"], drawn.rows[-1]["offset"]
    start, end = (data.draw(st.integers(first - 2, last + 2)) for _ in range(2))
    expected = [row for row in drawn.rows if start <= row["offset"] < end]
    found = list(decode(drawn.bodies, ORDERS, columns=columns, start=start, end=end))
    assert sum(batch.num_rows for batch in found) == len(expected)
    assert as_rows(found) == [{name: row[name] for name in columns} for row in expected]
    assert {batch.schema for batch in found} <= {schema_of(columns)}


@some
@given(st.lists(st.one_of(st.integers(1, 5), some_nonsense), min_size=1, max_size=12), st.integers(1, 30), st.data())
def test_batches_that_can_not_be_decoded_are_set_aside(
    parts: list[int | bytes], rows: int, data: st.DataObject
) -> None:
    """Two who divide the offsets between them have all records, and one of them is told of each batch."""
    batches = [
        build_batch([(b"k", b"%d" % n, (), n) for n in range(part)]) if isinstance(part, int) else part
        for part in parts
    ]
    offsets = [0, *itertools.accumulate(parse_header(batch).count for batch in batches)]
    cut = data.draw(st.integers(0, offsets[-1]))
    bodies = [Body(b"".join(batches[:4]), 0), Body(b"".join(batches[4:]), offsets[min(4, len(batches))])]
    found, aside = list[int](), list[OpaqueBatch]()
    for start, end in ((0, cut), (cut, offsets[-1])):
        told: list[OpaqueBatch] = []
        for batch in decode(bodies, ORDERS, start=start, end=end, max_rows=rows, aside=told.append):
            found += batch.column("offset").to_pylist()
        assert all(start <= each.last < end for each in told)
        aside += told
    sound = [place for place, part in enumerate(parts) if isinstance(part, int)]
    assert found == [offset for place in sound for offset in range(offsets[place], offsets[place + 1])]
    opaque = {offsets[place]: batches[place] for place in range(len(parts)) if place not in sound}
    assert {each.offset: bytes(each.data) for each in aside} == opaque
    assert len(aside) == len(opaque)
    for each in aside:
        assert f"the batch at offset {each.offset}" in str(each.fault)


@some
@given(logs(), st.integers(1, 20), st.integers(1, 3000))
def test_batches_are_bounded(drawn: Drawn, max_rows: int, max_bytes: int) -> None:
    batches = list(decode(drawn.bodies, ORDERS, max_rows=max_rows, max_bytes=max_bytes))
    assert as_rows(batches) == drawn.rows
    for batch in batches:
        assert batch.num_rows <= max_rows
        payload = sum(len(row["key"] or b"") + len(row["value"] or b"") for row in batch.to_pylist())
        assert payload <= max_bytes or batch.num_rows == 1


def test_one_large_batch_is_cut() -> None:
    values = [b"%05d" % number * 20 for number in range(5000)]
    body = Body(build_batch([(None, value, (), 0) for value in values]), 7)
    batches = list(decode([body], ORDERS, columns=["value", "offset"], max_rows=10_000, max_bytes=100_000))
    assert [row["value"] for row in as_rows(batches)] == values
    assert [row["offset"] for row in as_rows(batches)] == list(range(7, 5007))
    sizes = [sum(len(value.as_py()) for value in batch.column("value")) for batch in batches]
    assert max(sizes) <= 100_000
    assert min(sizes[:-1]) > 90_000


@pytest.mark.parametrize("kind", GOLDEN_COMPRESSED)
def test_batches_that_other_clients_compressed(kind: str) -> None:
    assert as_rows(decode([Body(GOLDEN_COMPRESSED[kind], 5)], ORDERS)) == rows_of(GOLDEN_BATCH, 5)


def test_any_buffer_will_do() -> None:
    for data in (GOLDEN_BATCH, bytearray(GOLDEN_BATCH), memoryview(b"x" + GOLDEN_BATCH)[1:]):
        assert as_rows(decode([Body(data, 5)], ORDERS)) == rows_of(GOLDEN_BATCH, 5)


def test_older_bodies_are_made_batches_of_at_the_door() -> None:
    body = bytes_batch.encode([b"a", b"", b"c"])
    found = as_rows(decode([Body(bytes_batch.as_record_batch(body, 70), 5)], ORDERS))
    assert [(row["offset"], row["value"], row["key"]) for row in found] == [
        (5, b"a", None),
        (6, b"", None),
        (7, b"c", None),
    ]
    for unchanged in (body, bytes_batch.encode([b"long enough for the header of a batch" * 10])):
        with pytest.raises(Corrupt, match="the batch at offset 5: byte"):
            list(decode([Body(unchanged, 5)], ORDERS))


def test_headers_of_many_cuts() -> None:
    records = [(None, b"%d" % number, (("n", b"%d" % number),) * (number % 4), 0) for number in range(500)]
    body = Body(build_batch(records), 0)
    found = as_rows(decode([body], ORDERS, max_rows=7))
    assert found == rows_of(bytes(body.data), 0)


def test_nothing() -> None:
    assert list(decode([], ORDERS)) == []
    assert list(decode([Body(b"", 0)], ORDERS)) == []


def test_control_batches_are_left_out_and_transactional_ones_are_not() -> None:
    data = build_batch([(b"k", b"v", (), 5)])
    control = with_attributes(build_batch([(b"\x00\x00\x00\x01", b"\x00\x00\x00\x00\x00\x00", (), 5)]), CONTROL)
    body = Body(b"".join([data, control, with_attributes(data, TRANSACTIONAL), control, data]), 10)
    for columns in (COLUMNS, ["offset"]):
        assert [row["offset"] for row in as_rows(decode([body], ORDERS, columns=columns))] == [10, 12, 14]


@pytest.mark.parametrize("columns", [COLUMNS, ["offset"], ["offset", "timestampType"]])
def test_offsets_of_thinned_and_emptied_batches(columns: Sequence[str]) -> None:
    body = Body(thinned([(2, b"a"), (5, b"b")], 9) + thinned([], 4) + thinned([(0, b"c")], 0), 100)
    found = as_rows(decode([body], ORDERS, columns=columns))
    assert [row["offset"] for row in found] == [102, 105, 115]
    assert [row["offset"] for row in as_rows(decode([body], ORDERS, start=105, end=115))] == [105]


def test_where_headers_tell_all_records_are_not_read() -> None:
    unread = batch_of(b"no record at all, and none is read", 4)
    stamped = with_attributes(unread, 0x08)
    assert [row["offset"] for row in as_rows(decode([Body(unread, 3)], ORDERS, columns=["offset"]))] == [3, 4, 5, 6]
    assert len(as_rows(decode([Body(stamped, 3)], ORDERS, columns=["offset", "timestamp"]))) == 4
    for body, columns in ((unread, ["timestamp"]), (stamped, ["offset", "key"])):
        with pytest.raises(Corrupt):
            list(decode([Body(body, 3)], ORDERS, columns=columns))


def test_times_that_microseconds_do_not_hold() -> None:
    body = Body(build_batch([(None, None, (), time) for time in (5, MAX_TIMESTAMP, -1)]), 0)
    (batch,) = decode([body], ORDERS, columns=["timestamp"])
    last = (2**63 - 1) // 1000 * 1000
    assert batch.column(0).cast(pa.int64()).to_pylist() == [5000, last, -1000]
    overflowing = bytearray(batch_of(b"\x1e\x00" + b"\xfe" + b"\xff" * 8 + b"\x01\x00\x01\x01\x00", 1))
    HEADER.pack_into(overflowing, 0, *HEADER.unpack_from(overflowing)[:7], 2**62, 0, -1, -1, -1, 1)
    (batch,) = decode([Body(overflowing, 0)], ORDERS, columns=["timestamp"], check_crc=False)
    assert batch.column(0).cast(pa.int64()).to_pylist() == [last]


def test_header_names_that_are_no_text_are_replaced() -> None:
    body = batch_of(b"\x16\x00\x00\x00\x01\x01\x02\x04\xff\x41\x02z", 1)
    (row,) = as_rows(decode([Body(body, 0)], ORDERS))
    assert row["headers"] == [{"key": "\ufffdA", "value": b"z"}]


def test_an_error_names_topic_partition_offset_and_object() -> None:
    good = build_batch([(None, b"v", (), 0)] * 3)
    bad = bytearray(good)
    bad[-2] ^= 1
    body = Body(good + bytes(bad), 40, Source("wal/7", 1000))
    place = f"topic orders, partition 3, the batch at offset 43, object wal/7 at byte {1000 + len(good)}: "
    with pytest.raises(Corrupt, match=f"^{re.escape(place)}byte 17: the stored CRC is"):
        list(decode([body], ORDERS))
    assert len(as_rows(decode([body], ORDERS, end=43))) == 3
    assert len(as_rows(decode([body], ORDERS, check_crc=False))) == 6


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD], ids=lambda kind: kind.name.lower())
@pytest.mark.parametrize("name", UNSOUND)
def test_unsound_records_behind_a_right_crc(name: str, compression: Compression) -> None:
    if "no text" in name:
        return
    body, because = UNSOUND[name]
    good = build_batch([(None, b"v", (), 0)])
    data = good + batch_of(body, 1, compression=compression) + good
    fewer = "with \\d+ bytes for all of them"
    with pytest.raises(Corrupt, match=rf"^topic orders, partition 3, the batch at offset 9: .*({because}|{fewer})"):
        list(decode([Body(data, 8)], ORDERS))


@pytest.mark.parametrize("compression", Compression, ids=lambda kind: kind.name.lower())
def test_any_flipped_or_missing_byte_is_detected(compression: Compression) -> None:
    batch = build_batch([(b"k", b"hello", (("trace", b"\x01"),), 5), (None, None, (), 9)], compression=compression)
    for at in range(16, len(batch)):
        flipped = bytearray(batch)
        flipped[at] ^= 0x01
        for damaged in (bytes(flipped), batch[:at] + batch[at + 1 :], batch[:at]):
            for columns in (COLUMNS, ["offset"]):
                with pytest.raises(Corrupt, match=r"^topic orders, partition 3, the batch at offset 0: "):
                    list(decode([Body(damaged, 0)], ORDERS, columns=columns))


@some
@given(logs(), st.data())
def test_damage_is_refused_or_read_but_never_worse(drawn: Drawn, data: st.DataObject) -> None:
    damaged = [bytearray(body.data) for body in drawn.bodies]
    for _ in range(data.draw(st.integers(1, 3))):
        body = data.draw(st.sampled_from(damaged))
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    bodies = [old._replace(data=bytes(new)) for old, new in zip(drawn.bodies, damaged, strict=True)]
    try:
        for batch in decode(bodies, ORDERS, check_crc=False):
            batch.validate(full=True)
    except Corrupt:
        pass


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("load", [lambda: walk_numpy.walk, load_compiled], ids=["numpy", "compiled"])
def test_what_is_damaged_behind_a_right_crc_is_read_as_the_other_reader_does(
    seed: int, load: Callable[[], Walk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("catena.columns.decode.walk", load())
    chance = random.Random(seed)
    refused = 0
    for _ in range(5000):
        count = chance.randrange(1, 12)
        fields = [None, b"", b"short", b"v" * 70, b"w" * 9000]
        headers = [(), (("a", b"1"),), (("name", None), ("", b"x" * 70))]
        plain = [
            (chance.choice(fields), chance.choice(fields), chance.choice(headers), chance.randrange(-1, 9000))
            for _ in range(count)
        ]
        body = bytearray(build_batch(plain)[HEADER_BYTES:])
        for _ in range(chance.randrange(3)):
            at = min(chance.randrange(len(body)), chance.randrange(len(body)))
            body[at : at + chance.randrange(3)] = chance.randbytes(chance.randrange(3))
        damaged = batch_of(bytes(body), count, count - 1, chance.choice([Compression.NONE, Compression.LZ4]))
        try:
            expected = rows_of(damaged, 5)
        except InvalidBatch as error:
            refused += 1
            if "utf-8" not in str(error):
                with pytest.raises(Corrupt):
                    list(decode([Body(damaged, 5)], ORDERS))
        except OverflowError:  # a time that no date of Python can be
            list(decode([Body(damaged, 5)], ORDERS))
        else:
            assert as_rows(decode([Body(damaged, 5)], ORDERS)) == expected
    assert 1000 < refused < 4000


def test_bodies_that_take_the_same_offsets() -> None:
    bodies = [Body(GOLDEN_BATCH, 5), Body(GOLDEN_BATCH, 6)]
    with pytest.raises(Corrupt, match="the batch at offset 6: those before it reach up to offset 7"):
        list(decode(bodies, ORDERS))


def test_what_cannot_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="there is no column 'wrong'"):
        list(decode([], ORDERS, columns=["wrong"]))
    for max_rows, max_bytes in ((0, 1), (1, 0), (1, LIMIT_BYTES + 1)):
        with pytest.raises(ValueError, match="can't be made"):
            list(decode([], ORDERS, max_rows=max_rows, max_bytes=max_bytes))


def test_a_batch_that_claims_millions_of_records_is_refused_at_once() -> None:
    for compression in Compression:
        claim = batch_of(b"\x0c\x00\x00\x00\x01\x01\x00", 2**31 - 1, compression=compression)
        for columns in (COLUMNS, ["offset"]):
            with pytest.raises(Corrupt, match="2147483647 records, with 7 bytes for all of them"):
                list(decode([Body(claim, 0)], ORDERS, columns=columns))


def test_decoding_goes_on_as_batches_are_taken() -> None:
    taken = []

    def bodies() -> Iterator[Body]:
        for number in range(10):
            taken.append(number)
            yield Body(build_batch([(None, b"v", (), 0)] * 10), number * 10)

    batches = decode(bodies(), ORDERS, max_rows=10)
    next(batches)
    assert len(taken) <= 2
