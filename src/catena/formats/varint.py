"""Kafka's variable-length integers: zigzag, then 7 bits a byte, the lowest first, the high bit set on all but the last.

A varint holds 32 bits in at most 5 bytes, a varlong 64 bits in at most 10. A longer or larger one is refused, so a
reader never loops over hostile bytes. Readers raise ValueError for those and IndexError where the bytes end too early;
who calls them knows what was being read, and says so.
"""

from __future__ import annotations

INT32_BYTES = 5
INT64_BYTES = 10


def encode(value: int) -> bytes:
    """A varint or a varlong: a value has the same bytes as either."""
    zigzag = value << 1 if value >= 0 else ~(value << 1)
    if zigzag < 0x80:
        return _ONE_BYTE[zigzag]
    if zigzag < 0x4000:
        return bytes((zigzag & 0x7F | 0x80, zigzag >> 7))
    out = bytearray()
    while zigzag >= 0x80:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def read_int32(data: bytes, at: int) -> tuple[int, int]:
    """The varint at byte `at`, and the byte after it."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    following = data[at + 1]
    if following < 0x80:  # lengths of up to 8 KiB, the common ones
        return ((byte & 0x7F | following << 7) >> 1) ^ -(byte & 1), at + 2
    return _read(data, at, INT32_BYTES, 32)


def read_int64(data: bytes, at: int) -> tuple[int, int]:
    """The varlong at byte `at`, and the byte after it."""
    byte = data[at]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), at + 1
    return _read(data, at, INT64_BYTES, 64)


def _read(data: bytes, at: int, max_bytes: int, bits: int) -> tuple[int, int]:
    zigzag = 0
    for i in range(max_bytes):
        byte = data[at + i]
        zigzag |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            if zigzag >> bits:
                raise ValueError(f"a number that does not fit in {bits} bits")
            return (zigzag >> 1) ^ -(zigzag & 1), at + i + 1
    raise ValueError(f"a number of more than {max_bytes} bytes")


_ONE_BYTE = tuple(bytes((zigzag,)) for zigzag in range(0x80))
