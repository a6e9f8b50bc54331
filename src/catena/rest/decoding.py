"""Stored batches to what JSON says of their records.

Many records are decoded at a time (`walked`). For fewer, numpy's calls cost more than all the rest, so these are gone
through one by one, past everything but their values. Which way is taken is decided here, by their number
(`bench/http_codec.py` has the figures), and numpy is loaded with the first request that needs it.

A batch may hold far more bytes than it takes, so what is too much for an answer is cut off by the record. Batches of
which no record is wanted any more are not even decompressed. One that holds more records than anybody would take over
HTTP is refused: it would be decoded again for each small part of it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from catena.errors import BatchTooLarge, InvalidBatch
from catena.formats import varint
from catena.formats.compression import Compression, decompress
from catena.formats.record_batch import COMPRESSION_MASK, CONTROL, HEADER_BYTES
from catena.formats.records import MAX_DECOMPRESSED_BYTES
from catena.loglets.base import Batch
from catena.rest.bodies import Base64, Data, FullRecord
from catena.types import Offset, TopicPartition

FEW = 700
"""Up to so many are gone through one by one."""
MAX_BATCH_RECORDS = 1_000_000

NULL = 1
"""The length of a field that is null, as it is written."""
_HEAD = struct.Struct(">21xhi30xi")
"""Attributes, last offset delta, record count."""


class Asked(NamedTuple):
    start: Offset
    """No record before it is told."""
    max_bytes: int
    """Of what is told of the records."""
    at_least_one: bool
    """Whatever its size: a client could never get past it otherwise."""
    details: bool
    """Keys, headers and times are told as well."""


class Decoded(NamedTuple):
    records: list[Data] | list[FullRecord]
    first: Offset
    """Of the first record; `Asked.start` if there is none."""
    next: Offset
    """To go on from."""
    offsets: list[Offset] | None
    """Of each record, where they are not one after the other."""
    size: int


class Unusual(Exception):
    """Records are missing from a batch, or it is not sound: the other way knows what to do."""


def decode(batches: Sequence[Batch], tp: TopicPartition, asked: Asked) -> Decoded:
    """The records of these batches, which follow each other; the first one holds `asked.start`.

    Raises Corrupt where a batch is not sound, BatchTooLarge.
    """
    counts = [_HEAD.unpack_from(batch.data)[2] for batch in batches]
    most = max(counts, default=0)
    if most > MAX_BATCH_RECORDS:
        raise BatchTooLarge(f"a batch of {tp} has {most} records; over HTTP up to {MAX_BATCH_RECORDS} are read")
    if not asked.details and sum(counts) <= FEW:
        try:
            return decode_few(batches, asked)
        except Unusual:
            pass
    from catena.rest.walked import decode_walked

    return decode_walked(batches, tp, asked)


def text_of(data: bytes) -> Data:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return Base64(data)


def decode_few(batches: Sequence[Batch], asked: Asked) -> Decoded:
    """Raises Unusual."""
    records: list[Data] = []
    told: list[range] = []
    size = 0
    following = batches[-1].end if batches else asked.start
    for batch in batches:
        values = _values_of(batch)
        offset = batch.offset
        if offset < asked.start:
            values = values[asked.start - offset :]
            offset = asked.start
        if not values:
            continue
        lengths = [0 if value is None else len(value) for value in values]
        fits = len(values)
        if size + sum(lengths) > asked.max_bytes:
            fits = sum(reached <= asked.max_bytes - size for reached in accumulate(lengths))
            fits = 1 if not fits and not records and asked.at_least_one else fits
        is_cut = fits < len(values)
        if is_cut:
            values, lengths, following = values[:fits], lengths[:fits], offset + fits
        records += _texts_of(values)
        size += sum(lengths)
        told.append(range(offset, offset + len(values)))
        if is_cut:
            break
    told = [some for some in told if some]
    if not told:
        return Decoded([], asked.start, following, None, 0)
    first = told[0].start
    in_a_row = told[-1].stop - first == len(records)
    return Decoded(records, first, following, None if in_a_row else list(chain.from_iterable(told)), size)


def _texts_of(values: Sequence[bytes | None]) -> list[Data]:
    try:
        return [value.decode() for value in values]  # type: ignore[union-attr]
    except (UnicodeDecodeError, AttributeError):
        return [None if value is None else text_of(value) for value in values]


def _values_of(batch: Batch) -> list[bytes | None]:
    """One for each offset; none at all where it is a control batch, or emptied."""
    data = batch.data
    attributes, last_delta, count = _HEAD.unpack_from(data)
    if attributes & CONTROL or not count:
        return []
    if count != last_delta + 1:
        raise Unusual
    try:
        records = decompress(Compression(attributes & COMPRESSION_MASK), data[HEADER_BYTES:], MAX_DECOMPRESSED_BYTES)
        return _walk(records, count)
    except (InvalidBatch, ValueError, IndexError) as error:
        raise Unusual from error


def _walk(data: bytes, count: int) -> list[bytes | None]:
    """The values of so many records; what stands before and behind a value is passed over.

    Lengths of one or two bytes, as most are, are read in place: a call would cost more than all else does.
    """
    values: list[bytes | None] = []
    end = 0
    for _ in range(count):
        byte = data[end]
        if byte < 0x80:
            at = end + 2
            end += 1 + (byte >> 1)
        elif (following := data[end + 1]) < 0x80:
            at = end + 3
            end += 2 + ((byte & 0x7F | following << 7) >> 1)
        else:
            length, at = varint.read_int32(data, end)
            end = at + length
            at += 1
        while data[at] >= 0x80:  # the time; the attributes are behind us
            at += 1
        at += 1
        while data[at] >= 0x80:  # the offset
            at += 1
        at += 1
        if data[at] == NULL:
            at += 1
        else:
            length, at = varint.read_int32(data, at)
            at += max(length, 0)
        byte = data[at]
        if byte >= 0x80 and (following := data[at + 1]) < 0x80 and not byte & 1:
            at += 2
            stop = at + ((byte & 0x7F | following << 7) >> 1)
        else:
            length, at = varint.read_int32(data, at)
            stop = at + length
        if stop >= end:  # a byte at least follows, which counts headers
            raise Unusual
        values.append(data[at:stop] if stop >= at else None)
    if end != len(data):
        raise Unusual
    return values
