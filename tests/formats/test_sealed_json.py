from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import Corrupt, StoreRefused
from catena.formats import sealed_json, wal_blob
from catena.formats.wal_blob import KAFKA_BATCH_V2, Section
from catena.types import TopicId
from tests.formats.independent import crc32c_by_definition


class Thing(msgspec.Struct, frozen=True):
    version: int
    name: str


THING = msgspec.json.Decoder(Thing)
PLAIN = b'{"version":1,"name":"a"}'
SEALED = sealed_json.sealed(PLAIN, "crc")
HEADER = sealed_json.encode_header(b"TEST", PLAIN)


def open_header(data: bytes) -> Thing:
    return sealed_json.decode(sealed_json.open_header(data, b"TEST", 1000, "the thing"), THING, 1, "the thing", 8)


def test_known_bytes() -> None:
    covered = b'{"version":1,"name":"a"'
    assert b'%s,"crc":"%08x"}' % (covered, crc32c_by_definition(covered)) == SEALED
    covered = b"TEST\x00\x00\x00\x33" + covered
    assert b'%s,"header_crc32c":"%08x"}' % (covered, crc32c_by_definition(covered)) == HEADER
    assert len(HEADER) == 8 + 0x33


def test_it_is_the_header_that_wal_blobs_have() -> None:
    (header, *_), _ = wal_blob.encode("c", 5, [Section("t", TopicId("0" * 32), 0, 1, KAFKA_BATCH_V2, [b"abc"])])
    plain = bytes(header)[8:].rpartition(b",")[0] + b"}"
    assert sealed_json.encode_header(wal_blob.MAGIC, plain) == header
    assert sealed_json.header_bytes(header, wal_blob.MAGIC, 1 << 20, "the blob") == len(header)


def test_round_trip() -> None:
    sealed_json.unseal(SEALED, "crc", "the thing")
    assert sealed_json.decode(SEALED, THING, 1, "the thing") == Thing(1, "a")
    assert open_header(HEADER + b"more") == Thing(1, "a")
    assert json.loads(SEALED)["name"] == json.loads(HEADER[8:])["name"] == "a"


def test_any_changed_missing_or_added_byte_is_detected() -> None:
    for at in range(len(SEALED)):
        for bit in range(8):
            flipped = bytearray(SEALED)
            flipped[at] ^= 1 << bit
            with pytest.raises(Corrupt, match=r"byte \d+ of the thing"):
                sealed_json.unseal(flipped, "crc", "the thing")
        for damaged in (SEALED[:at], SEALED[:at] + SEALED[at + 1 :], SEALED[:at] + b" " + SEALED[at:]):
            with pytest.raises(Corrupt, match=r"byte \d+ of the thing"):
                sealed_json.unseal(damaged, "crc", "the thing")


def test_any_changed_or_missing_byte_of_a_header_is_detected() -> None:
    for at in range(len(HEADER)):
        for bit in range(8):
            flipped = bytearray(HEADER)
            flipped[at] ^= 1 << bit
            with pytest.raises(Corrupt, match=r"byte \d+ of the thing"):
                open_header(bytes(flipped))
        with pytest.raises(Corrupt, match=r"byte \d+ of the thing"):
            open_header(HEADER[:at])
        with pytest.raises(Corrupt, match=r"byte \d+ of the thing"):
            open_header(HEADER[:at] + HEADER[at + 1 :])


@pytest.mark.parametrize(
    ("start", "because"),
    [
        (b"", "byte 0 of the thing: it ends before the length"),
        (b"TEST\x00\x00", "byte 6 of the thing: it ends before the length"),
        (b"TSET\x00\x00\x00\x80", "byte 0 of the thing: magic is b'TSET'"),
        (b"TEST\x00\x00\x00\x05", "byte 4 of the thing: a header of 5 bytes cannot be"),
        (b"TEST\x00\x00\x03\xe9", "byte 4 of the thing: a header of 1001 bytes cannot be"),
        (b"TEST\x00\x00\x03\xe8", "byte 8 of the thing: it ends before its header, which has 1008 bytes"),
    ],
)
def test_a_start_that_cannot_be_is_named(start: bytes, because: str) -> None:
    with pytest.raises(Corrupt, match=because):
        open_header(start)


def test_fields_that_are_not_known_are_taken() -> None:
    assert open_header(sealed_json.encode_header(b"TEST", b'{"version":1,"name":"a","age":7}')) == Thing(1, "a")


def test_a_newer_version_is_refused_even_if_nothing_else_in_it_is_known() -> None:
    for text in (b'{"version":2,"name":"a"}', b'{"version":7}'):
        with pytest.raises(StoreRefused, match=r"the thing is of version [27]; this release reads up to 1"):
            open_header(sealed_json.encode_header(b"TEST", text))


@pytest.mark.parametrize(
    "text", [b"{}", b'{"version":0,"name":"a"}', b'{"version":1}', b'{"version":1,"name":3}', b"no"]
)
def test_what_cannot_be_is_corrupt_even_if_its_seal_is_right(text: bytes) -> None:
    with pytest.raises(Corrupt, match="byte 8 of the thing: this is not what version 1 has"):
        open_header(sealed_json.encode_header(b"TEST", text))


@given(st.binary(max_size=100))
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(Corrupt):
        sealed_json.unseal(data, "crc", "the thing")
    with pytest.raises(Corrupt):
        open_header(b"TEST\x00\x00\x00\x40" + data)
