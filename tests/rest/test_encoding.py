"""Records of a request to a batch: byte for byte what the plain codec makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.formats.compression import Compression
from catena.formats.record_batch import check_crc, parse_header
from catena.formats.records import Record, build_batch, iter_records
from catena.rest.bodies import Base64, GivenRecord, Header, InvalidBody
from catena.rest.encoding import NewRecord, contents_of, entry_of

NOW_MS = 1_760_000_000_000


def plain(values: list[bytes], compression: Compression = Compression.NONE, append_time: int | None = None) -> bytes:
    records = [(None, value, (), NOW_MS) for value in values]
    return build_batch(records, compression=compression, log_append_time=append_time)


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=200))
def test_values_are_what_the_plain_codec_makes_of_them(values: list[bytes]) -> None:
    entry = entry_of(values, Compression.NONE, NOW_MS, log_append_time=False)
    assert entry.data == plain(values)
    assert entry.header == parse_header(entry.data)


@pytest.mark.parametrize("count", [1, 63, 64, 65, 8_191, 8_192, 8_193, 16_384, 16_385, 20_000])
@pytest.mark.parametrize("length", [0, 1, 57, 58, 63, 64, 8_191])
def test_where_numbers_grow_by_a_byte(count: int, length: int) -> None:
    values = [b"v" * length] * (count if length < 100 else 70)
    assert entry_of(values, Compression.NONE, NOW_MS, log_append_time=False).data == plain(values)


@pytest.mark.parametrize("length", [4_095, 4_096, 100_000, 1 << 21])
def test_long_values(length: int) -> None:
    values = [b"a", b"v" * length, b"b"]
    assert entry_of(values, Compression.NONE, NOW_MS, log_append_time=False).data == plain(values)


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize("log_append_time", [False, True])
def test_as_the_topic_has_it(compression: Compression, log_append_time: bool) -> None:
    values = [b"value %d" % number for number in range(100)]
    entry = entry_of(values, compression, NOW_MS, log_append_time)
    assert entry.header == parse_header(entry.data)
    check_crc(entry.data, entry.header)
    assert (entry.header.compression, entry.header.log_append_time) == (compression, log_append_time)
    assert [(record.value, record.timestamp) for record in iter_records(entry.data)] == [
        (value, NOW_MS) for value in values
    ]


def test_strings_are_values() -> None:
    assert contents_of(["a", "ü", ""], "at") == [b"a", "ü".encode(), b""]


def test_bytes_are_values_too() -> None:
    objects = [GivenRecord(base64=b"\x00\x01"), GivenRecord(value="b"), GivenRecord(value=Base64(b"\xff"))]
    assert contents_of(["a", *objects], "at") == [b"a", b"\x00\x01", b"b", b"\xff"]


def test_what_is_more_than_a_value_is_told_in_full() -> None:
    full = GivenRecord(value=None, key="k", headers=(Header("h", Base64(b"\x80")), Header("n")), timestamp=7)
    contents = contents_of(["a", full], "at")
    expected: list[NewRecord] = [(None, b"a", (), -1), (b"k", None, (("h", b"\x80"), ("n", None)), 7)]
    assert contents == expected
    assert list(iter_records(entry_of(contents, Compression.LZ4, NOW_MS, log_append_time=False).data)) == [
        Record(0, NOW_MS, None, b"a", ()),
        Record(1, 7, b"k", None, (("h", b"\x80"), ("n", None))),
    ]


def test_a_deleted_key_needs_no_value() -> None:
    assert contents_of([GivenRecord(value=None)], "at") == [(None, None, (), -1)]


@pytest.mark.parametrize(
    ("record", "at"),
    [
        (GivenRecord(), "at[1]"),
        (GivenRecord(base64=b"", value="a"), "at[1]"),
        (GivenRecord(value="\ud800"), "at[1].value"),
        (GivenRecord(value="a", key="\ud800"), "at[1].key"),
        (GivenRecord(value="a", headers=(Header("a"), Header("\ud800"))), "at[1].headers[1].name"),
    ],
    ids=str,
)
def test_what_is_no_record(record: GivenRecord, at: str) -> None:
    with pytest.raises(InvalidBody) as caught:
        contents_of(["a", record], "at")
    assert caught.value.at == at


def test_text_that_is_no_unicode() -> None:
    with pytest.raises(InvalidBody, match="UTF-8"):
        contents_of(["a", "\ud800"], "at")
