"""The four compressions of Kafka, written as every client reads them and read with a bound.

What Kafka's clients expect is narrower than the formats: snappy comes in the framing of snappy-java (older clients
send it bare, so both are read), LZ4 is one frame whose blocks do not depend on each other, because the Java client
refuses linked blocks. Compressed bytes come from the network, so a few of them may claim to be gigabytes:
decompression never makes more than `limit` bytes, nor more than the format can make of what is there.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Callable, Iterator

import cramjam

from catena.errors import InvalidBatch
from catena.types import Buffer


class Compression(enum.IntEnum):
    """How the records of a batch are compressed; the value is the one in the batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


GZIP_WINDOW = 31
"""zlib's wbits for the largest window with a gzip header and checksum around it."""
GZIP_LEVEL = 6
ZSTD_LEVEL = 3

SNAPPY_JAVA_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
SNAPPY_JAVA_MAGIC = SNAPPY_JAVA_HEADER[:8]
SNAPPY_BLOCK_BYTES = 32 * 1024

SNAPPY_MAX_RATIO = 22
"""Three bytes stand for 64 at the most."""
LZ4_MAX_RATIO = 255
"""One byte of a match's length stands for 255 at the most."""

DAMAGE = (
    "Unknown frame descriptor",
    "Version not supported",
    "Unsupported frame parameter",
    "incomplete frame",
    "Src size is incorrect",
    "Data corruption detected",
    "Header of Literals' block doesn't respect format specification",
    "Restored data doesn't match checksum",
)
"""What is said of Zstandard that no room would make whole. Whatever else is said may be for want of room."""

FIRST_GUESS_BYTES = 64 * 1024
FIRST_GUESS_RATIO = 8


def compress(kind: Compression, data: Buffer) -> bytes:
    match kind:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return zlib.compress(data, GZIP_LEVEL, GZIP_WINDOW)
        case Compression.SNAPPY:
            return b"".join(_snappy_java_parts(memoryview(data)))
        case Compression.LZ4:
            compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
            compressor.compress(bytes(data))  # it takes nothing else
            return bytes(compressor.finish())
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, ZSTD_LEVEL))


def decompress(kind: Compression, data: Buffer, limit: int) -> bytes:
    """The bytes that were compressed; raises InvalidBatch if they are damaged or would be more than `limit`."""
    try:
        match kind:
            case Compression.NONE:
                return bytes(data)
            case Compression.GZIP:
                return _gunzip(data, limit)
            case Compression.SNAPPY:
                return b"".join(_unsnappy(memoryview(data), limit))
            case Compression.LZ4:
                return _decompress_frame(cramjam.lz4.decompress_into, data, min(limit, LZ4_MAX_RATIO * len(data)))
            case Compression.ZSTD:
                return _decompress_frame(cramjam.zstd.decompress_into, data, limit)
    except (zlib.error, cramjam.DecompressionError) as error:
        raise InvalidBatch(
            f"{len(data)} bytes of {kind.name.lower()} cannot be decompressed into at most {limit} bytes: {error}"
        ) from error


def _gunzip(data: Buffer, limit: int) -> bytes:
    """One gzip member: no client writes several, and some read the first alone."""
    member = zlib.decompressobj(GZIP_WINDOW)
    plain = member.decompress(data, limit + 1)  # zlib takes 0 for "no limit"
    if len(plain) > limit:
        raise InvalidBatch(f"{len(data)} bytes of gzip are more than {limit} bytes when decompressed")
    if not member.eof:
        raise InvalidBatch(f"{len(data)} bytes of gzip end in the middle")
    if member.unused_data:
        raise InvalidBatch(f"{len(member.unused_data)} bytes follow the end of {len(data)} bytes of gzip")
    return plain


def _decompress_frame(decompress_into: Callable[[Buffer, bytearray], int], data: Buffer, limit: int) -> bytes:
    """Frames need not say how long their content is, so guess, and guess higher until it fits.

    Not for what is no frame: else a few bytes of nonsense would cost `limit` of memory.
    """
    guess = max(FIRST_GUESS_BYTES, FIRST_GUESS_RATIO * len(data))
    while True:
        output = bytearray(min(guess, limit))
        try:
            length = decompress_into(data, output)
        except cramjam.DecompressionError as error:
            if guess >= limit or any(words in str(error) for words in DAMAGE):
                raise
            guess *= FIRST_GUESS_RATIO
        else:
            return bytes(memoryview(output)[:length])


def _snappy_java_parts(data: memoryview) -> Iterator[bytes]:
    yield SNAPPY_JAVA_HEADER
    for start in range(0, len(data), SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + SNAPPY_BLOCK_BYTES]))
        yield len(block).to_bytes(4, "big")
        yield block


def _unsnappy(data: memoryview, limit: int) -> Iterator[bytes]:
    if data[: len(SNAPPY_JAVA_MAGIC)] != SNAPPY_JAVA_MAGIC:
        yield _snappy_block(data, limit)
        return
    at = len(SNAPPY_JAVA_HEADER)
    left = limit
    while at != len(data):
        start = at + 4
        end = start + int.from_bytes(data[at:start], "big")
        if start > len(data) or end > len(data):
            raise InvalidBatch(f"byte {at} of snappy: a block up to byte {end}, but only {len(data)} bytes are there")
        part = _snappy_block(data[start:end], left)
        yield part
        left -= len(part)
        at = end


def _snappy_block(block: memoryview, limit: int) -> bytes:
    claimed = cramjam.snappy.decompress_raw_len(block)
    if claimed > min(limit, SNAPPY_MAX_RATIO * len(block)):
        raise InvalidBatch(f"{len(block)} bytes of snappy claim to be {claimed}, with {limit} allowed")
    return bytes(cramjam.snappy.decompress_raw(block))
