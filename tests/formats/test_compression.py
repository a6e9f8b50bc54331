from __future__ import annotations

import tracemalloc
import zlib
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import InvalidBatch
from catena.formats.compression import Compression, compress, decompress
from tests.formats.independent import FOREIGN_FORMS, PLAIN

LIMIT = 1024 * 1024
COMPRESSIONS = [kind for kind in Compression if kind is not Compression.NONE]

each_compression = pytest.mark.parametrize("kind", COMPRESSIONS, ids=lambda kind: kind.name.lower())


@given(st.sampled_from(Compression), st.binary(max_size=500), st.integers(1, 400))
def test_round_trip(kind: Compression, data: bytes, repeat: int) -> None:
    plain = data * repeat
    assert decompress(kind, memoryview(compress(kind, memoryview(plain))), limit=LIMIT) == plain


@each_compression
def test_reads_what_others_write(kind: Compression) -> None:
    assert decompress(kind, FOREIGN_FORMS[kind.name], limit=len(PLAIN)) == PLAIN


@each_compression
def test_the_limit_is_exact(kind: Compression) -> None:
    plain = b"a line of text, number 1\n" * 10_000
    compressed = compress(kind, plain)
    assert decompress(kind, compressed, limit=len(plain)) == plain
    with pytest.raises(InvalidBatch, match=kind.name.lower()):
        decompress(kind, compressed, limit=len(plain) - 1)


@each_compression
def test_every_cut_is_noticed_or_leaves_less(kind: Compression) -> None:
    """Snappy has no end mark: cut between two blocks it is a shorter stream, which the record count then tells."""
    plain = bytes(range(256)) * 300
    compressed = compress(kind, plain)
    for length in range(0, len(compressed), 7):
        try:
            assert len(decompress(kind, compressed[:length], LIMIT)) < len(plain)
        except InvalidBatch:
            continue
        assert kind is Compression.SNAPPY


@each_compression
@pytest.mark.parametrize("damage", ["nonsense", "no end", "a byte"])
def test_nonsense_does_not_cost_memory(kind: Compression, damage: str) -> None:
    """However much a batch may have when it is decompressed."""
    compressed = bytearray(compress(kind, bytes(range(256)) * 20))
    if damage == "nonsense":
        compressed[:] = b"nonsense" * 20
    elif damage == "no end":
        del compressed[-20:]
    else:
        compressed[len(compressed) // 2] ^= 0xFF
    tracemalloc.start()
    try:
        with suppress(InvalidBatch):  # what is changed may be taken for something else
            decompress(kind, bytes(compressed), 256 << 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 << 20


@each_compression
def test_bytes_after_the_end_are_refused(kind: Compression) -> None:
    with pytest.raises(InvalidBatch):
        decompress(kind, compress(kind, PLAIN) + b"xyz", LIMIT)


def test_a_cut_header_of_snappy_java_is_refused() -> None:
    with pytest.raises(InvalidBatch, match="byte 16 of snappy"):
        decompress(Compression.SNAPPY, compress(Compression.SNAPPY, PLAIN)[:12], LIMIT)


@each_compression
@given(data=st.binary(max_size=300))
def test_noise_is_refused_or_read_but_never_crashes(kind: Compression, data: bytes) -> None:
    try:
        decompress(kind, data, LIMIT)
    except InvalidBatch:
        pass


@each_compression
@given(data=st.data())
def test_damage_is_refused_or_read_but_never_crashes(kind: Compression, data: st.DataObject) -> None:
    damaged = bytearray(compress(kind, PLAIN))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    try:
        decompress(kind, damaged, LIMIT)
    except InvalidBatch:
        pass


def zstd_bomb(blocks: int) -> bytes:
    """A frame of run-length blocks: each makes 128 KiB out of 4 bytes."""
    block_bytes = 128 * 1024
    run = (block_bytes << 3 | 1 << 1).to_bytes(3, "little") + b"\x00"
    last = (block_bytes << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\x00"
    return bytes.fromhex("28b52ffd0058") + run * (blocks - 1) + last


BOMBS = {
    "gzip of 16 MiB": (Compression.GZIP, zlib.compress(bytes(16 * LIMIT), 9, 31)),
    "bare snappy that claims 4 GiB": (Compression.SNAPPY, b"\xff\xff\xff\xff\x0f" + b"\x00" * 100),
    "framed snappy that claims 4 GiB": (
        Compression.SNAPPY,
        compress(Compression.SNAPPY, b"") + (105).to_bytes(4, "big") + b"\xff\xff\xff\xff\x0f" + b"\x00" * 100,
    ),
    "framed snappy with a block of 4 GiB": (Compression.SNAPPY, compress(Compression.SNAPPY, b"") + b"\xff" * 20),
    "lz4 of 16 MiB": (Compression.LZ4, compress(Compression.LZ4, bytes(16 * LIMIT))),
    "zstd of 2 GiB": (Compression.ZSTD, zstd_bomb(16 * 1024)),
}


def test_the_zstd_bomb_is_a_sound_frame() -> None:
    assert decompress(Compression.ZSTD, zstd_bomb(2), LIMIT) == bytes(256 * 1024)


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_within_the_limit_of_memory(name: str) -> None:
    kind, bomb = BOMBS[name]
    tracemalloc.start()
    try:
        with pytest.raises(InvalidBatch):
            decompress(kind, bomb, LIMIT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * LIMIT


def test_a_few_bytes_may_not_claim_the_whole_limit() -> None:
    claim_of_200_mib = b"\x80\x80\x80\x64" + b"\x00" * 10
    with pytest.raises(InvalidBatch, match="claim to be 209715200"):
        decompress(Compression.SNAPPY, claim_of_200_mib, 256 * LIMIT)


def test_lz4_blocks_do_not_depend_on_each_other() -> None:
    """The Java client refuses linked blocks. Bit 5 of the byte after the magic says that these are independent."""
    frame = compress(Compression.LZ4, bytes(200_000))
    assert frame[:4] == bytes.fromhex("04224d18")
    assert frame[4] & 0x20


def test_snappy_is_framed_as_snappy_java_does() -> None:
    framed = compress(Compression.SNAPPY, bytes(33 * 1024))
    assert framed[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    first_block_bytes = int.from_bytes(framed[16:20], "big")
    assert decompress(Compression.SNAPPY, framed[20 : 20 + first_block_bytes], LIMIT) == bytes(32 * 1024)


def test_compression_is_repeatable() -> None:
    for kind in COMPRESSIONS:
        assert compress(kind, PLAIN) == compress(kind, PLAIN)
