from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.columns import key_hashes
from catena.columns.key_hashes import LONG, WORD, KeyHashes

BEFORE, AFTER = b"\xff" * 5, b"\xee" * 2
"""A key has other bytes of its record before it, and behind it."""


def hashed(keys: list[bytes], salt: bytes = b"job", between: bytes = b"\xaa") -> list[tuple[int, int]]:
    data, at = bytearray(BEFORE), list[int]()
    for key in keys:
        data += between
        at.append(len(data))
        data += key
    data += AFTER
    sizes = np.array([len(key) for key in keys], np.int64)
    high, low = KeyHashes(salt)(np.frombuffer(bytes(data), np.uint8), np.array(at, np.int64), sizes)
    return list(zip(high.tolist(), low.tolist(), strict=True))


def by_definition(key: bytes, salt: bytes = b"job") -> tuple[int, int]:
    numbers = KeyHashes(salt)._numbers.tolist()
    words = [int.from_bytes(key[at : at + WORD], "little") for at in range(0, len(key), WORD)]
    sums = [
        (first + sum(value * number for value, number in zip((len(key), *words), more, strict=False))) % 2**64 >> 32
        for first, *more in numbers
    ]
    return sums[0] << 32 | sums[1], sums[2] << 32 | sums[3]


@given(st.lists(st.binary(max_size=3) | st.binary(max_size=40)), st.binary(max_size=9))
def test_it_is_what_the_definition_says(keys: list[bytes], between: bytes) -> None:
    assert hashed(keys, between=between) == [by_definition(key) for key in keys]


@given(st.lists(st.binary(max_size=3) | st.binary(max_size=2 * LONG), max_size=20))
def test_keys_are_told_apart(keys: list[bytes]) -> None:
    found = hashed(keys)
    assert len(set(found)) == len(set(keys))
    assert dict(zip(keys, found, strict=True)) == dict(zip(keys, hashed(keys[::-1])[::-1], strict=True))


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 8, LONG - 1, LONG, LONG + 1, 5000])
def test_zeros_at_the_end_count(size: int) -> None:
    found = hashed([bytes(size), bytes(size + 1), b"\x01" + bytes(size)])
    assert len(set(found)) == 3


@pytest.mark.parametrize("size", [7, LONG])
def test_another_salt_gives_other_hashes(size: int) -> None:
    assert hashed([b"k" * size], b"one") != hashed([b"k" * size], b"other")


def test_many_are_hashed_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(7)
    keys = [draw.randbytes(draw.randrange(20)) for _ in range(1000)]
    expected = hashed(keys)
    monkeypatch.setattr(key_hashes, "ROWS", 17)
    assert hashed(keys) == expected


def test_bits_are_spread_evenly() -> None:
    """Buckets go by the upper bits: numbers that are alike must not end up in one of them."""
    high = np.array([high for high, _ in hashed([b"%d" % number for number in range(40_000)])], np.uint64)
    counts = np.bincount((high >> np.uint64(60)).astype(np.int64), minlength=16)
    assert counts.min() > 2000, counts
