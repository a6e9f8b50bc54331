"""Hashes of 128 bits, of many keys at a time: by them a compaction knows which keys are the same.

A key is its length, and words of 4 bytes, the last one filled up with zeros. Each of four hashes is the upper half of

    m[0] + length * m[1] + word[0] * m[2] + word[1] * m[3] + ...     modulo 2^64

with numbers m of 64 bits, others for each of the four. Two keys that differ have the same hash with a probability of
2^-32, whatever they are (multilinear hashing is strongly universal), and so all four with 2^-128: as long as the
numbers were drawn after the keys. They are: BLAKE2b makes them of a salt, which is the job's name, and a job has none
before it has looked at what is there to compact. Kafka's cleaner trusts MD5 in the same place, which anybody can make
collisions of.

Long keys are rare, and are hashed by BLAKE2b, one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from catena.columns.varints import Bytes, Ints

Words: TypeAlias = NDArray[np.uint64]

WORD = 4
PAIR = 2 * WORD
LONG = 256
"""Bytes of a key from which on it is hashed by itself."""
ROWS = 16_384
"""That are worked on at a time, so that they stay in a core's cache."""
HASHES = 4
HASH_BYTES = 16

_ONE, _HALF = np.uint64(1), np.uint64(32)
_LOWER = np.uint64(0x0000_0000_FFFF_FFFF)
_UPPER = np.uint64(0xFFFF_FFFF_0000_0000)


class KeyHashes:
    """Of one job: equal keys have equal hashes wherever they are hashed with the same salt."""

    def __init__(self, salt: bytes) -> None:
        self._salt = salt
        self._numbers = _numbers(salt, 2 + LONG // WORD)

    def __call__(self, data: Bytes, at: Ints, size: Ints) -> tuple[Words, Words]:
        """The upper and the lower half of the hash of each key, which stands at this byte of `data`.

        Where there are keys that are not empty, there are 8 bytes in all at least, as in any record.
        """
        high, low = np.empty(len(at), np.uint64), np.empty(len(at), np.uint64)
        for start in range(0, len(at), ROWS):
            rows = slice(start, start + ROWS)
            first, second, third, fourth = self._sums(data, at[rows], size[rows])
            high[rows] = first & _UPPER | second >> _HALF
            low[rows] = third & _UPPER | fourth >> _HALF
        for row in np.flatnonzero(size >= LONG).tolist():
            key = data[at[row] : at[row] + size[row]]
            high[row], low[row] = np.frombuffer(
                blake2b(key, digest_size=HASH_BYTES, key=self._salt, person=b"long").digest(), "<u8"
            )
        return high, low

    def _sums(self, data: Bytes, at: Ints, size: Ints) -> list[Words]:
        """Two words at a time. Of long keys they are sums of something."""
        numbers = self._numbers
        size = np.minimum(size, LONG - 1)
        length, whole = size.view(np.uint64), size // PAIR
        sums = [length * of[1] + of[0] for of in numbers]
        least, most = int(whole.min()), int(whole.max())
        pairs = np.ndarray((max(0, len(data) - PAIR + 1),), "<u8", data.data, strides=(1,))
        """From each byte on."""
        for number in range(most):
            rows = slice(None) if number < least else np.flatnonzero(whole > number)
            pair = pairs[at[rows] + PAIR * number]
            _add(sums, rows, pair, [(of[2 + 2 * number], of[3 + 2 * number]) for of in numbers])
        left = size % PAIR
        rows = np.flatnonzero(left)
        if len(rows):
            first, left, whole = at[rows] + PAIR * whole[rows], left[rows], whole[rows]
            place = np.maximum(first + left - PAIR, 0)  # so that nothing is read beyond the end
            pair = pairs[place] >> (8 * (first - place)).view(np.uint64)
            pair &= (_ONE << (8 * left).view(np.uint64)) - _ONE
            _add(sums, rows, pair, [(of[2 + 2 * whole], of[3 + 2 * whole]) for of in numbers])
        return sums


def _add(
    sums: list[Words], rows: slice | Ints, pair: Words, numbers: Sequence[tuple[np.uint64 | Words, np.uint64 | Words]]
) -> None:
    lower, upper = pair & _LOWER, pair >> _HALF
    for total, (first, second) in zip(sums, numbers, strict=True):
        total[rows] += lower * first + upper * second


def _numbers(salt: bytes, count: int) -> Words:
    """`count` numbers for each hash."""
    drawn = b"".join(
        blake2b(number.to_bytes(8, "little"), key=salt, person=b"numbers").digest()
        for number in range(-(-count * HASHES // 8))
    )
    return np.frombuffer(drawn, "<u8")[: count * HASHES].reshape(HASHES, count).astype(np.uint64)
