from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import Corrupt
from catena.formats import bytes_batch
from catena.formats.records import Record, iter_records

values_lists = st.lists(st.binary(max_size=100), max_size=20)


def test_known_bytes() -> None:
    body = bytes.fromhex("000000030000000268690000000000000001ff")
    assert bytes_batch.encode([b"hi", b"", b"\xff"]) == body
    assert bytes_batch.decode(body) == [b"hi", b"", b"\xff"]


@given(values_lists)
def test_round_trip(values: list[bytes]) -> None:
    assert bytes_batch.decode(memoryview(bytes_batch.encode(values))) == values


@given(values_lists.filter(bool), st.integers(0, 2**62))
def test_as_a_record_batch(values: list[bytes], timestamp_ms: int) -> None:
    batch = bytes_batch.as_record_batch(bytes_batch.encode(values), timestamp_ms)
    assert list(iter_records(batch, 40)) == [
        Record(40 + delta, timestamp_ms, None, value, ()) for delta, value in enumerate(values)
    ]


def test_a_body_without_records_has_no_batch() -> None:
    with pytest.raises(Corrupt, match="no records"):
        bytes_batch.as_record_batch(bytes_batch.encode([]), 0)


@given(values_lists)
def test_any_cut_or_addition_is_detected(values: list[bytes]) -> None:
    body = bytes_batch.encode(values)
    for damaged in (*(body[:length] for length in range(len(body))), body + b"\x00"):
        with pytest.raises(Corrupt, match=r"^byte \d+ of bytes-batch-v1: "):
            bytes_batch.decode(damaged)


@pytest.mark.parametrize(
    ("body", "because"),
    [
        ("", "byte 0 .*: a length of 4 bytes, of which 0 are there"),
        ("ffffffff00000000", "byte 0 .*: 4294967295 records, with 4 bytes left"),
        ("00000001ffffffff61", "byte 4 .*: record 0 has 4294967295 bytes, and 1 are left"),
        ("00000001000000016162", "byte 9 .*: 1 bytes follow the last of 1 records"),
    ],
)
def test_what_is_wrong_is_named(body: str, because: str) -> None:
    with pytest.raises(Corrupt, match=because):
        bytes_batch.decode(bytes.fromhex(body))
