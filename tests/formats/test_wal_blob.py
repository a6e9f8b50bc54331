from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import BatchTooLarge, Corrupt, StoreRefused
from catena.formats import wal_blob
from catena.formats.wal_blob import BYTES_BATCH_V1, KAFKA_BATCH_V2, Section
from catena.types import TopicId
from tests.formats.independent import GOLDEN_BATCH, crc32c_by_definition

ORDERS = Section("orders", TopicId("0" * 32), 3, 4, KAFKA_BATCH_V2, [GOLDEN_BATCH, memoryview(GOLDEN_BATCH)])
LEGACY = Section("legacy", TopicId("f" * 32), 0, 1, BYTES_BATCH_V1, [b"\x00\x00\x00\x01\x00\x00\x00\x01x"])
CREATED_AT_MS = 1700000000000
SEAL = b',"header_crc32c":"xxxxxxxx"}'


def blob_of(*sections: Section) -> bytes:
    chunks, _ = wal_blob.encode("cluster-1", CREATED_AT_MS, sections)
    return b"".join(chunks)


BLOB = blob_of(ORDERS, LEGACY)


def sealed(header: str, bodies: bytes = b"") -> bytes:
    """A blob with any JSON at all as its header, whose last brace makes place for a CRC that is right."""
    text = header.removesuffix("}").encode()
    covered = b"LLS1" + (len(text) + len(SEAL)).to_bytes(4, "big") + text
    return covered + SEAL.replace(b"xxxxxxxx", b"%08x" % crc32c_by_definition(covered)) + bodies


def header_json(**changes: object) -> str:
    section = {
        "topic": "t",
        "topic_id": "0" * 32,
        "partition": 0,
        "msg_count": 1,
        "encoding": KAFKA_BATCH_V2,
        "body_offset": 0,
        "body_length": 3,
        "crc32c": f"{crc32c_by_definition(b'abc'):08x}",
    }
    header = {"version": 1, "created_at_ms": 5, "cluster_id": "c", "partitions": [section]}
    for name, value in changes.items():
        (header if name in header else section)[name] = value
    return json.dumps(header)


def test_known_bytes() -> None:
    body = b"\x00\x00\x00\x01\x00\x00\x00\x01x"
    text = (
        b'{"version":1,"created_at_ms":1700000000000,"cluster_id":"cluster-1","partitions":[{"topic":"legacy",'
        b'"topic_id":"ffffffffffffffffffffffffffffffff","partition":0,"msg_count":1,"encoding":"bytes-batch-v1",'
        b'"body_offset":0,"body_length":9,"crc32c":"%08x"}]' % crc32c_by_definition(body)
    )
    covered = b"LLS1" + (len(text) + len(SEAL)).to_bytes(4, "big") + text
    assert blob_of(LEGACY) == covered + SEAL.replace(b"xxxxxxxx", b"%08x" % crc32c_by_definition(covered)) + body


def test_anyone_can_read_the_header_as_json() -> None:
    header = json.loads(BLOB[8 : 8 + int.from_bytes(BLOB[4:8], "big")])
    assert header["cluster_id"] == "cluster-1"
    assert [partition["topic"] for partition in header["partitions"]] == ["orders", "legacy"]
    assert list(header)[-1] == "header_crc32c"


def test_bodies_are_not_copied() -> None:
    chunks, offsets = wal_blob.encode("cluster-1", CREATED_AT_MS, [ORDERS, LEGACY])
    assert [id(chunk) for chunk in chunks[1:]] == [id(body) for body in (*ORDERS.bodies, *LEGACY.bodies)]
    assert offsets == [len(chunks[0]), len(chunks[0]) + 2 * len(GOLDEN_BATCH)]


sections = st.builds(
    Section,
    topic=st.text(max_size=10),
    topic_id=st.just(TopicId("a" * 32)),
    partition=st.integers(0, 2**31 - 1),
    msg_count=st.integers(0, 2**31 - 1),
    encoding=st.sampled_from([KAFKA_BATCH_V2, BYTES_BATCH_V1]),
    bodies=st.lists(st.binary(max_size=50), max_size=3),
)


@given(st.lists(sections, max_size=5), st.text(max_size=10), st.integers(0, 2**53))
def test_round_trip(given_sections: list[Section], cluster_id: str, created_at_ms: int) -> None:
    chunks, offsets = wal_blob.encode(cluster_id, created_at_ms, given_sections)
    blob = b"".join(chunks)
    header = wal_blob.check(memoryview(blob))
    assert (header.cluster_id, header.created_at_ms) == (cluster_id, created_at_ms)
    assert (header.header_bytes, header.blob_bytes) == (len(chunks[0]), len(blob))
    assert len(header.partitions) == len(given_sections)
    for section, found, at in zip(given_sections, header.partitions, offsets, strict=True):
        assert found.body_offset == at - header.header_bytes
        assert blob[at : at + found.body_length] == b"".join(section.bodies)
        assert (found.topic, found.topic_id, found.partition) == section[:3]
        assert (found.msg_count, found.encoding) == section[3:5]


def test_the_header_is_readable_from_the_first_bytes_alone() -> None:
    header_bytes = wal_blob.header_bytes(BLOB[:8])
    assert wal_blob.decode_header(BLOB[:header_bytes]) == wal_blob.decode_header(BLOB) == wal_blob.check(BLOB)
    assert wal_blob.decode_header(BLOB).header_bytes == header_bytes
    with pytest.raises(Corrupt, match=f"it ends before its header, which has {header_bytes} bytes"):
        wal_blob.decode_header(BLOB[: header_bytes - 1])


def test_any_flipped_bit_is_detected() -> None:
    for at in range(len(BLOB)):
        for bit in range(8):
            flipped = bytearray(BLOB)
            flipped[at] ^= 1 << bit
            with pytest.raises(Corrupt, match=r"bytes? \d+"):
                wal_blob.check(flipped)


@given(st.integers(0, len(BLOB) - 1), st.integers(1, 255))
def test_any_changed_byte_is_detected(at: int, change: int) -> None:
    changed = bytearray(BLOB)
    changed[at] ^= change
    with pytest.raises(Corrupt):
        wal_blob.check(changed)


def test_any_missing_or_added_byte_is_detected() -> None:
    for at in range(len(BLOB)):
        for damaged in (BLOB[:at] + BLOB[at + 1 :], BLOB[:at] + b"\x00" + BLOB[at:], BLOB[:at]):
            with pytest.raises(Corrupt, match=r"bytes? \d+"):
                wal_blob.check(damaged)
    with pytest.raises(Corrupt, match=f"byte {len(BLOB) + 1} "):
        wal_blob.check(BLOB + b"\x00")


def test_a_damaged_body_is_named() -> None:
    header_bytes = wal_blob.header_bytes(BLOB)
    start = header_bytes + 2 * len(GOLDEN_BATCH)
    damaged = BLOB[:-1] + b"y"
    with pytest.raises(Corrupt, match=f"bytes {start} to {start + 8} of the WAL blob: section 1, legacy/0, has CRC"):
        wal_blob.check(damaged)


def test_fields_that_are_not_known_are_taken() -> None:
    header = header_json().removesuffix("}") + ', "written_by": {"node": 4}}'
    assert wal_blob.check(sealed(header, b"abc")).partitions[0].topic == "t"
    assert wal_blob.check(sealed(header_json(colour="blue"), b"abc")).partitions[0].msg_count == 1


def test_a_newer_version_is_refused_even_if_nothing_else_in_it_is_known() -> None:
    for header in (header_json(version=2), '{"version": 7, "sections": []}'):
        with pytest.raises(StoreRefused, match=r"version [27]; this release reads up to 1"):
            wal_blob.check(sealed(header, b"abc"))


@pytest.mark.parametrize(
    "header",
    [
        header_json(version=0),
        header_json(version="1"),
        header_json(partition=-1),
        header_json(msg_count=-1),
        header_json(body_length=-3),
        header_json(body_offset=1),
        header_json(body_offset=-1),
        header_json(body_length=4),
        header_json(body_length=2**62),
        header_json(crc32c="00000000"),
        header_json(partitions={}),
        '{"version": 1}',
        "{}",
        "not json at all",
    ],
)
def test_a_header_that_cannot_be_is_corrupt_even_if_its_crc_is_right(header: str) -> None:
    with pytest.raises(Corrupt):
        wal_blob.check(sealed(header, b"abc"))


@pytest.mark.parametrize(
    ("start", "because"),
    [
        (b"", "byte 0 .*ends before the length"),
        (b"LLS1\x00\x00", "byte 6 .*ends before the length"),
        (b"LLS2\x00\x00\x01\x00", "byte 0 .*magic is b'LLS2'"),
        (b"LLS1\x00\x00\x00\x05", "byte 4 .*a header of 5 bytes cannot be"),
        (b"LLS1\x01\x00\x00\x01", "byte 4 .*a header of 16777217 bytes cannot be"),
        (b"LLS1\xff\xff\xff\xff", "byte 4 .*a header of 4294967295 bytes cannot be"),
    ],
)
def test_a_start_that_cannot_be_is_named(start: bytes, because: str) -> None:
    with pytest.raises(Corrupt, match=because):
        wal_blob.header_bytes(start)


def test_a_header_beyond_the_limit_is_not_written() -> None:
    name = "x" * (wal_blob.MAX_HEADER_BYTES // 2)
    with pytest.raises(BatchTooLarge, match="2 partitions need a blob header of"):
        blob_of(ORDERS._replace(topic=name), LEGACY._replace(topic=name))


@given(st.binary(max_size=200))
def test_noise_is_refused(data: bytes) -> None:
    for blob in (data, b"LLS1" + data, b"LLS1\x00\x00\x00\x40" + data):
        with pytest.raises(Corrupt):
            wal_blob.check(blob)
