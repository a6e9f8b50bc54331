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

Every byte is covered. `header_crc32c` is always the last key, in exactly the form above (without spaces), and is the
CRC-32C of all that stands before its comma: magic, length and JSON. Bodies have a CRC each. They follow each other
without gaps up to the end of the object, so that bytes can neither be missing nor be added.

A reader takes fields that it does not know; a writer that changes what the known ones mean has to raise `version`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple, TypeAlias

import msgspec
from crc32c import crc32c

from catena.errors import BatchTooLarge, Corrupt, StoreRefused
from catena.types import Buffer, TopicId

MAGIC = b"LLS1"
VERSION = 1
PREFIX_BYTES = 8
"""Magic and header length: what has to be read to know how much more is header."""
MAX_HEADER_BYTES = 16 * 1024 * 1024

KAFKA_BATCH_V2 = "kafka-batch-v2"
"""Concatenated RecordBatches v2."""
BYTES_BATCH_V1 = "bytes-batch-v1"
"""See `bytes_batch`; found in older blobs only."""

_Natural: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Version: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


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
    partition: _Natural
    msg_count: _Natural
    encoding: str
    body_offset: _Natural
    """From the end of the blob's header."""
    body_length: _Natural
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
    version: _Version
    created_at_ms: int
    cluster_id: str
    partitions: tuple[SectionHeader, ...]


class _VersionJson(msgspec.Struct, frozen=True):
    version: _Version


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(_HeaderJson)
_VERSION_DECODER = msgspec.json.Decoder(_VersionJson)


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
    json = _ENCODER.encode(_HeaderJson(VERSION, created_at_ms, cluster_id, tuple(headers)))[:-1]
    json_bytes = len(json) + _SEAL_BYTES
    if json_bytes > MAX_HEADER_BYTES:
        raise BatchTooLarge(f"{len(sections)} partitions need a blob header of {json_bytes} bytes; split them")
    covered = b"".join((MAGIC, json_bytes.to_bytes(4, "big"), json))
    header = covered + _seal(crc32c(covered))
    return [header, *bodies], [len(header) + section.body_offset for section in headers]


def header_bytes(data: Buffer) -> int:
    """How many bytes from the start of the blob are header; the first 8 bytes tell."""
    if len(data) < PREFIX_BYTES:
        raise Corrupt(f"byte {len(data)} of the WAL blob: it ends before the length of its header")
    magic = bytes(data[:4])
    if magic != MAGIC:
        raise Corrupt(f"byte 0 of the WAL blob: magic is {magic!r}, not {MAGIC!r}")
    json_bytes = int.from_bytes(data[4:PREFIX_BYTES], "big")
    if not _SEAL_BYTES <= json_bytes <= MAX_HEADER_BYTES:
        raise Corrupt(f"byte 4 of the WAL blob: a header of {json_bytes} bytes cannot be")
    return PREFIX_BYTES + json_bytes


def decode_header(data: Buffer) -> WalHeader:
    """The header, checked, of a blob of which `data` is the first part: `header_bytes` of it or more."""
    end = header_bytes(data)
    if end > len(data):
        raise Corrupt(f"byte {len(data)} of the WAL blob: it ends before its header, which has {end} bytes")
    view = memoryview(data)
    seal_at = end - _SEAL_BYTES
    seal, computed = bytes(view[seal_at:end]), _seal(crc32c(view[:seal_at]))
    if seal != computed:
        raise Corrupt(f"byte {seal_at} of the WAL blob: bytes 0 to {seal_at - 1} give {computed!r}, not {seal!r}")
    json = view[PREFIX_BYTES:end]
    try:
        version = _VERSION_DECODER.decode(json).version
        if version > VERSION:
            raise StoreRefused(f"a WAL blob of version {version}; this release reads up to {VERSION}: upgrade it")
        header = _DECODER.decode(json)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"byte {PREFIX_BYTES} of the WAL blob: its header is not what version {VERSION} has: {error}"
        ) from error
    _check_contiguous(header.partitions)
    return WalHeader(end, header.created_at_ms, header.cluster_id, header.partitions)


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


def _seal(crc: int) -> bytes:
    """The end of the header. It is compared as text: read as a number, `A` and `a` would be the same."""
    return b',"header_crc32c":"%08x"}' % crc


_SEAL_BYTES = len(_seal(0))
