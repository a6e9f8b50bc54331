from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import InvalidBatch
from catena.formats.compression import Compression
from catena.formats.record_batch import (
    HEADER_BYTES,
    BatchHeader,
    check_crc,
    parse_header,
    patched,
    split_batches,
    wire_prefix,
)
from catena.formats.records import build_batch
from catena.types import Buffer
from tests.formats.independent import GOLDEN_BATCH, crc32c_by_definition

OUTSIDE_THE_CRC = {*range(8), *range(12, 16)}
"""Base offset and leader epoch: the log gives them out, so they change on the way, and no checksum covers them."""


def check_all(data: Buffer) -> None:
    """What a broker does with what it received."""
    at = 0
    for header, batch in split_batches(data):
        check_crc(data, header, at)
        assert len(batch) == header.length
        at += header.length


def named_byte(error: InvalidBatch) -> int:
    found = re.match(r"byte (\d+): ", str(error))
    assert found, f"{error} names no byte"
    return int(found[1])


def with_field(at: int, field: bytes) -> bytes:
    return GOLDEN_BATCH[:at] + field + GOLDEN_BATCH[at + len(field) :]


def test_the_golden_batch() -> None:
    header = parse_header(GOLDEN_BATCH)
    assert header == BatchHeader(
        base_offset=0,
        length=91,
        leader_epoch=-1,
        crc=0xA474BFEE,
        attributes=0,
        last_offset_delta=1,
        base_timestamp=1700000000000,
        max_timestamp=1700000000250,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=2,
    )
    assert header.count == 2
    assert header.compression is Compression.NONE
    assert not any((header.is_control, header.is_transactional, header.log_append_time, header.has_producer))
    check_crc(GOLDEN_BATCH, header)
    assert crc32c_by_definition(b"123456789") == 0xE3069283
    assert crc32c_by_definition(GOLDEN_BATCH[21:]) == header.crc


def test_attributes() -> None:
    def header(attributes: int) -> BatchHeader:
        return parse_header(with_field(21, attributes.to_bytes(2, "big")))

    assert [header(code).compression for code in range(5)] == list(Compression)
    assert header(0x08).log_append_time
    assert header(0x10).is_transactional
    assert header(0x20).is_control
    assert header(0x40).compression is Compression.NONE
    assert parse_header(with_field(43, bytes(8))).has_producer


def test_a_header_is_read_at_any_place_of_any_buffer() -> None:
    for buffer in (bytes, bytearray, memoryview):
        data = buffer(b"xyz" + GOLDEN_BATCH + b"behind it")
        header = parse_header(data, 3)
        assert header == parse_header(GOLDEN_BATCH)
        check_crc(data, header, 3)


@pytest.mark.parametrize(
    ("at", "field", "names", "because"),
    [
        (16, b"\x01", 16, "magic is 1"),
        (16, b"\xff", 16, "magic is -1"),
        (8, (48).to_bytes(4, "big"), 8, "batch length 48 is too short"),
        (8, b"\xff\xff\xff\xff", 8, "batch length -1 is too short"),
        (8, b"\x80\x00\x00\x00", 8, "batch length -2147483648 is too short"),
        (8, (80).to_bytes(4, "big"), 8, "a batch of 92 bytes, of which 91 are there"),
        (8, b"\x7f\xff\xff\xff", 8, "a batch of 2147483659 bytes"),
        (21, b"\x00\x05", 21, "no compression 5"),
        (21, b"\x00\x07", 21, "no compression 7"),
        (23, b"\xff\xff\xff\xff", 23, "last offset delta -1 is negative"),
        (57, b"\xff\xff\xff\xff", 57, "-1 records cannot take 2 offsets"),
        (57, b"\x00\x00\x00\x03", 57, "3 records cannot take 2 offsets"),
    ],
)
def test_what_is_structurally_wrong_is_named(at: int, field: bytes, names: int, because: str) -> None:
    with pytest.raises(InvalidBatch, match=because) as refused:
        parse_header(with_field(at, field))
    assert named_byte(refused.value) == names
    with pytest.raises(InvalidBatch, match=because) as refused:
        split_batches(GOLDEN_BATCH + with_field(at, field))
    assert named_byte(refused.value) == len(GOLDEN_BATCH) + names


def test_a_batch_thinned_out_by_compaction_is_sound() -> None:
    header = parse_header(with_field(57, bytes(4)))
    assert (header.record_count, header.count) == (0, 2)


def test_any_flipped_bit_is_detected_but_in_the_fields_that_the_log_gives_out() -> None:
    for at in range(len(GOLDEN_BATCH)):
        for bit in range(8):
            flipped = bytearray(GOLDEN_BATCH + GOLDEN_BATCH)
            flipped[len(GOLDEN_BATCH) + at] ^= 1 << bit
            if at in OUTSIDE_THE_CRC:
                check_all(flipped)
                continue
            with pytest.raises(InvalidBatch) as refused:
                check_all(flipped)
            assert len(GOLDEN_BATCH) <= named_byte(refused.value) < len(flipped)


def test_a_wrong_crc_is_named_with_both_values_and_the_bytes_it_covers() -> None:
    damaged = with_field(70, b"\x00")
    with pytest.raises(InvalidBatch, match=r"byte 17: the stored CRC is a474bfee, but bytes 21 to 90 have [0-9a-f]{8}"):
        check_crc(damaged, parse_header(damaged))


def test_any_missing_byte_is_detected() -> None:
    for at in range(len(GOLDEN_BATCH)):
        with pytest.raises(InvalidBatch) as refused:
            check_all(GOLDEN_BATCH + GOLDEN_BATCH[:at] + GOLDEN_BATCH[at + 1 :])
        assert named_byte(refused.value) >= len(GOLDEN_BATCH)


@pytest.mark.parametrize("length", range(1, len(GOLDEN_BATCH)))
def test_any_cut_is_detected(length: int) -> None:
    with pytest.raises(InvalidBatch) as refused:
        check_all(GOLDEN_BATCH + GOLDEN_BATCH[:length])
    assert named_byte(refused.value) >= len(GOLDEN_BATCH)


def test_split_batches_gives_views_of_the_same_memory() -> None:
    data = bytearray(GOLDEN_BATCH * 3)
    batches = split_batches(data)
    assert [bytes(view) for _, view in batches] == [GOLDEN_BATCH] * 3
    data[-1] ^= 0xFF
    assert batches[-1][1][-1] == data[-1]
    assert split_batches(b"") == []


@given(st.binary(min_size=1, max_size=200))
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidBatch) as refused:
        check_all(data)
    assert named_byte(refused.value) <= len(data)


@given(st.binary(min_size=HEADER_BYTES, max_size=200))
def test_noise_with_the_right_magic_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidBatch):
        check_all(data[:16] + b"\x02" + data[17:])


@given(st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1), st.lists(st.binary(max_size=50), min_size=1, max_size=5))
def test_patching_changes_offset_and_epoch_alone(offset: int, epoch: int, values: list[bytes]) -> None:
    stored = build_batch((None, value, (), 0) for value in values)
    served = patched(memoryview(stored), offset, epoch)
    assert served == wire_prefix(len(stored), offset, epoch) + stored[16:]
    header = parse_header(served)
    assert header == parse_header(stored)._replace(base_offset=offset, leader_epoch=epoch)
    check_crc(served, header)
