"""Kafka's variable-length integers (see `catena.formats.varint`), many at a time, in numpy arrays.

Readers refuse what the other module refuses, and never read outside of `data`.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from catena.formats.varint import INT32_BYTES, INT64_BYTES

Bytes: TypeAlias = NDArray[np.uint8]
Ints: TypeAlias = NDArray[np.int64]

_LAST_BYTE_MOST = {INT32_BYTES: 0x0F, INT64_BYTES: 0x01}
"""What the last byte of the longest number may be: 4 bits are left of 32 there, and 1 of 64."""


class Unsound(Exception):
    """The bytes are not what they should be. Who looks at them one by one says where, and why."""


def read(data: Bytes, at: Ints, max_bytes: int) -> tuple[Ints, Ints]:
    """The numbers that stand at these bytes, and the bytes after them; raises Unsound."""
    try:
        byte = data[at]
        zigzag = byte.astype(np.int64)
        after = at + 1
        rows = np.flatnonzero(byte & 0x80)
        if len(rows):
            zigzag[rows] &= 0x7F
            _read_on(data, zigzag, after, rows, max_bytes)
    except IndexError as error:
        raise Unsound from error
    # Shifted as an unsigned number: the highest bit of a varlong is no sign.
    return (zigzag.view(np.uint64) >> np.uint64(1)).view(np.int64) ^ -(zigzag & 1), after


def _read_on(data: Bytes, zigzag: Ints, after: Ints, rows: Ints, max_bytes: int) -> None:
    """The second and further bytes of the numbers in these rows."""
    for number in range(1, max_bytes):
        byte = data[after[rows]]
        if number == max_bytes - 1 and byte.max() > _LAST_BYTE_MOST[max_bytes]:
            raise Unsound
        zigzag[rows] |= (byte & 0x7F).astype(np.int64) << 7 * number
        after[rows] += 1
        rows = rows[byte >= 0x80]
        if not len(rows):
            return


def zigzag_of(values: Ints) -> NDArray[np.uint64]:
    return ((values << 1) ^ (values >> 63)).view(np.uint64)


def sizes_of(zigzag: NDArray[np.uint64]) -> Ints:
    """How many bytes each of them takes."""
    sizes = np.ones(len(zigzag), np.int64)
    greatest = int(zigzag.max(initial=0))
    for bits in range(7, 64, 7):
        if greatest >> bits == 0:
            break
        sizes += zigzag >= np.uint64(1 << bits)
    return sizes


def write(out: Bytes, at: Ints, zigzag: NDArray[np.uint64], sizes: Ints) -> None:
    """Put the numbers where they belong."""
    least, most = int(sizes.min(initial=INT64_BYTES)), int(sizes.max(initial=0))
    for number in range(most):
        if number >= least:
            rows = np.flatnonzero(sizes > number)
            at, zigzag, sizes = at[rows], zigzag[rows], sizes[rows]
            least = number + 1
        byte = (zigzag >> np.uint64(7 * number)).astype(np.uint8) & np.uint8(0x7F)
        if number + 1 < least:
            byte |= np.uint8(0x80)
        elif number + 1 < most:
            byte |= (sizes > number + 1).astype(np.uint8) << np.uint8(7)
        out[at + number] = byte
