"""The shared WAL blob: what many partitions appended at about the same time, in one object.

    byte 0          magic `LLS1`
         4          length of the JSON header, uint32, big-endian
         8          JSON header
         8 + length the bodies, one after another, one per partition in the header's order

    {"version": 1, "created_at_ms": ..., "cluster_id": "...",
     "partitions": [{"topic": "...", "topic_id": "...", "partition": 0, "msg_count": 3, "encoding": "kafka-batch-v2",
                     "body_offset": 0, "body_length": 271, "crc32c": "1a2b3c4d"}, ...],
     "header_crc32c": "5e6f7a8b"}

`body_offset` counts from the end of the header, where the first body starts; so the header can be written without
knowing its own length. Index entries hold absolute offsets, which `encode` returns: a read needs no header. The header
is there so that a bucket explains itself to people, to recovery and to audits.

Every byte is covered. The header is sealed: see `sealed_json`. Bodies have a CRC each. They follow each other without
gaps up to the end of the object, so that bytes can neither be missing nor be added.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from catena.errors import BatchTooLarge, Corrupt
from catena.formats import sealed_json
from catena.formats.sealed_json import JsonVersion, Natural
from catena.types import Buffer, TopicId

MAGIC = b"LLS1"
VERSION = 1
MAX_HEADER_BYTES = 16 * 1024 * 1024

KAFKA_BATCH_V2 = "kafka-batch-v2"
"""Concatenated RecordBatches v2."""
BYTES_BATCH_V1 = "bytes-batch-v1"
"""See `bytes_batch`; found in older blobs only."""

_WHAT = "the WAL blob"


class Section(NamedTuple):
    """What one partition puts into a blob."""

    topic: str
    topic_id: TopicId
    partition: int
    msg_count: int
    encoding: str
    bodies: Sequence[Buffer]
    """Its body, in pieces."""


class SectionHeader(msgspec.Struct, frozen=True):
    """What the blob's header says of one partition's body."""

    topic: str
    topic_id: TopicId
    partition: Natural
    msg_count: Natural
    encoding: str
    body_offset: Natural
    """From the end of the blob's header."""
    body_length: Natural
    crc32c: str


class WalHeader(NamedTuple):
    header_bytes: int
    """Where the bodies start: magic, length and JSON."""
    created_at_ms: int
    cluster_id: str
    partitions: tuple[SectionHeader, ...]

    @property
    def blob_bytes(self) -> int:
        """Length of the whole object."""
        return self.header_bytes + sum(section.body_length for section in self.partitions)


class _HeaderJson(msgspec.Struct, frozen=True):
    version: JsonVersion
    created_at_ms: int
    cluster_id: str
    partitions: tuple[SectionHeader, ...]


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_HeaderJson)


def encode(cluster_id: str, created_at_ms: int, sections: Sequence[Section]) -> tuple[list[Buffer], list[int]]:
    """The blob as a list of buffers, none of them copied, and the byte in the blob at which each section starts."""
    headers: list[SectionHeader] = []
    bodies: list[Buffer] = []
    at = 0
    for section in sections:
        crc = length = 0
        for body in section.bodies:
            crc = crc32c(body, crc)
            length += len(body)
        headers.append(
            SectionHeader(
                topic=section.topic,
                topic_id=section.topic_id,
                partition=section.partition,
                msg_count=section.msg_count,
                encoding=section.encoding,
                body_offset=at,
                body_length=length,
                crc32c=f"{crc:08x}",
            )
        )
        bodies += section.bodies
        at += length
    header = sealed_json.encode_header(
        MAGIC, _ENCODER.encode(_HeaderJson(VERSION, created_at_ms, cluster_id, tuple(headers)))
    )
    json_bytes = len(header) - sealed_json.FRAME_BYTES
    if json_bytes > MAX_HEADER_BYTES:
        raise BatchTooLarge(f"{len(sections)} partitions need a blob header of {json_bytes} bytes; split them")
    return [header, *bodies], [len(header) + section.body_offset for section in headers]


def header_bytes(data: Buffer) -> int:
    """How many bytes from the start of the blob are header; the first 8 bytes tell."""
    return sealed_json.header_bytes(data, MAGIC, MAX_HEADER_BYTES, _WHAT)


def decode_header(data: Buffer) -> WalHeader:
    """The header, checked, of a blob of which `data` is the first part: `header_bytes` of it or more."""
    json = sealed_json.open_header(data, MAGIC, MAX_HEADER_BYTES, _WHAT)
    header = sealed_json.decode(json, _DECODER, VERSION, _WHAT, sealed_json.FRAME_BYTES)
    _check_contiguous(header.partitions)
    return WalHeader(header_bytes(data), header.created_at_ms, header.cluster_id, header.partitions)


def check(data: Buffer) -> WalHeader:
    """Verify every byte of a whole blob; raise Corrupt, naming the byte and the section, unless all of it is right."""
    header = decode_header(data)
    if len(data) != header.blob_bytes:
        raise Corrupt(f"byte {len(data)} of the WAL blob: it ends here, but its header says {header.blob_bytes}")
    view = memoryview(data)
    for number, section in enumerate(header.partitions):
        start = header.header_bytes + section.body_offset
        end = start + section.body_length
        computed = f"{crc32c(view[start:end]):08x}"
        if computed != section.crc32c:
            raise Corrupt(
                f"bytes {start} to {end - 1} of the WAL blob: section {number}, {section.topic}/{section.partition}, "
                f"has CRC {computed}, but its header says {section.crc32c}"
            )
    return header


def _check_contiguous(sections: Sequence[SectionHeader]) -> None:
    at = 0
    for number, section in enumerate(sections):
        if section.body_offset != at:
            raise Corrupt(
                f"section {number} of the WAL blob, {section.topic}/{section.partition}: its body starts at "
                f"{section.body_offset} after the header, but the bodies before it end at {at}"
            )
        at += section.body_length
