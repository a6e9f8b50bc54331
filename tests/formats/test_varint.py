from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.formats import varint

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (63, "7e"),
        (-64, "7f"),
        (64, "8001"),
        (-65, "8101"),
        (8191, "fe7f"),
        (8192, "808001"),
        (2**31 - 1, "feffffff0f"),
        (-(2**31), "ffffffff0f"),
    ],
)
def test_known_bytes(value: int, encoded: str) -> None:
    data = bytes.fromhex(encoded)
    assert varint.encode(value) == data
    assert varint.read_int32(data, 0) == (value, len(data))
    assert varint.read_int64(data, 0) == (value, len(data))


@given(INT32, st.binary(max_size=4), st.binary(max_size=4))
def test_int32_round_trip_in_place(value: int, before: bytes, after: bytes) -> None:
    encoded = varint.encode(value)
    assert varint.read_int32(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@given(INT64, st.binary(max_size=4), st.binary(max_size=4))
def test_int64_round_trip_in_place(value: int, before: bytes, after: bytes) -> None:
    encoded = varint.encode(value)
    assert varint.read_int64(before + encoded + after, len(before)) == (value, len(before) + len(encoded))


@given(st.one_of(INT32, INT64))
def test_every_cut_is_noticed(value: int) -> None:
    encoded = varint.encode(value)
    for length in range(len(encoded)):
        with pytest.raises(IndexError):
            varint.read_int64(encoded[:length], 0)


def test_never_reads_more_than_the_type_can_have() -> None:
    endless = b"\x80" * 1000
    with pytest.raises(ValueError, match="more than 5 bytes"):
        varint.read_int32(endless, 0)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        varint.read_int64(endless, 0)


def test_refuses_numbers_that_are_too_large_for_the_type() -> None:
    with pytest.raises(ValueError, match="32 bits"):
        varint.read_int32(varint.encode(2**31), 0)
    with pytest.raises(ValueError, match="64 bits"):
        varint.read_int64(varint.encode(2**63), 0)
