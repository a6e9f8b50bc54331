"""Records of a request to one batch.

Most are nothing but values. What is written of those besides the value follows from its length and its place, so it
is looked up in tables, and one join makes the batch: no record is looked at by a line of Python. `bench/http_codec.py`
has the figures, beside those of `formats.records.build_batch` and of Arrow's columns, which have to be made of JSON's
strings first.
Records with a key, headers or a time of their own go the plain way.

    record of a value    length, 0 (attributes), 0 (time delta), offset delta, -1 (no key), length of value, value, 0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from crc32c import crc32c
from msgspec import UNSET, UnsetType

from catena.errors import BatchTooLarge
from catena.formats import varint
from catena.formats.compression import Compression, compress
from catena.formats.record_batch import (
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_END,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    parse_header,
)
from catena.formats.records import MAX_BATCH_LENGTH, NO_LEADER_EPOCH, NO_TIMESTAMP, Headers, build_batch
from catena.loglets.base import Entry
from catena.rest.bodies import Base64, Data, GivenRecord, InvalidBody

NewRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, time."""
Contents: TypeAlias = list[bytes] | list[NewRecord]

_KNOWN_DELTAS = 1 << 14
_KNOWN_LENGTHS = 1 << 12
_NO_PRODUCER = (-1, -1, -1)
_AROUND_VALUE = 4
"""Bytes that every record of a value has, beside the numbers: attributes, time delta, no key, no headers."""


class _Texts(dict[int, bytes]):
    """Bytes by length of a value, made when they are first needed. Bounded: of long values they are not kept."""

    def __init__(self, make: Callable[[int], bytes]) -> None:
        self._make = make

    def __missing__(self, length: int) -> bytes:
        made = self._make(length)
        if length < _KNOWN_LENGTHS:
            self[length] = made
        return made


def _heads(delta_bytes: int) -> _Texts:
    """What stands before an offset delta of so many bytes, after the 0 for the headers of the record before."""

    def head(length: int) -> bytes:
        size = _AROUND_VALUE + delta_bytes + len(varint.encode(length)) + length
        return b"\x00" + varint.encode(size) + b"\x00\x00"

    return _Texts(head)


_DELTAS = [varint.encode(delta) for delta in range(_KNOWN_DELTAS)]
_LENGTHS = _Texts(lambda length: b"\x01" + varint.encode(length))
_HEADS = [(_heads(size), end) for size, end in enumerate((1 << 6, 1 << 13, 1 << 20, 1 << 27, 1 << 31), 1)]
"""By the bytes that an offset delta takes, and the first that takes more."""


def records_of_values(values: Sequence[bytes]) -> bytes:
    """Records that have these values and nothing else, with the offset deltas 0, 1, 2 and so on."""
    lengths = list(map(len, values))
    deltas = _DELTAS[: len(values)]
    deltas += map(varint.encode, range(len(deltas), len(values)))
    heads: list[bytes] = []
    for texts, end in _HEADS:
        heads += map(texts.__getitem__, lengths[len(heads) : end])
        if len(lengths) <= end:
            break
    pieces = [b""] * (4 * len(values) + 1)
    pieces[0:-1:4], pieces[1::4], pieces[2::4], pieces[3::4] = heads, deltas, map(_LENGTHS.__getitem__, lengths), values
    pieces[0], pieces[-1] = heads[0][1:], b"\x00"
    return b"".join(pieces)


def _batch_of_values(values: Sequence[bytes], compression: Compression, time_ms: int, log_append_time: bool) -> Entry:
    """One batch of these values, all of this time, ready to append."""
    records = records_of_values(values)
    if compression is not Compression.NONE:
        records = compress(compression, records)
    length = HEADER_BYTES - LENGTH_END + len(records)
    if length > MAX_BATCH_LENGTH:
        raise BatchTooLarge(f"a batch of {length} bytes; the format has room for {MAX_BATCH_LENGTH}")
    count = len(values)
    attributes = compression | LOG_APPEND_TIME if log_append_time else compression
    covered = (attributes, count - 1, time_ms, time_ms, *_NO_PRODUCER, count)
    crc = crc32c(records, crc32c(HEADER.pack(0, length, NO_LEADER_EPOCH, MAGIC, 0, *covered)[CRC_START:]))
    head = HEADER.pack(0, length, NO_LEADER_EPOCH, MAGIC, crc, *covered)
    header = BatchHeader(0, length + LENGTH_END, NO_LEADER_EPOCH, crc, *covered)
    return Entry(header, head + records)


def contents_of(records: Sequence[str | GivenRecord], at: str) -> Contents:
    """Values where no record has more than that, else all records in full, with NO_TIMESTAMP for a time to be given.

    `at` is where they stand in the JSON. Raises InvalidBody, with the place of the record.
    """
    try:
        return list(map(str.encode, records))  # type: ignore[arg-type]
    except TypeError:
        pass  # one of them is an object
    except UnicodeEncodeError as error:
        raise InvalidBody(f"text that can't be written as UTF-8: {error.reason}", at) from None
    full = [_in_full(record, f"{at}[{number}]") for number, record in enumerate(records)]
    values = [value for key, value, headers, time in full if key is None and not headers and time == NO_TIMESTAMP]
    return [value for value in values if value is not None] if len(values) == len(full) and None not in values else full


def entry_of(contents: Contents, compression: Compression, time_ms: int, log_append_time: bool) -> Entry:
    """One batch of these records, ready to append; `time_ms` is the time of those that have none."""
    if isinstance(contents[0], bytes):
        return _batch_of_values(contents, compression, time_ms, log_append_time)
    timed = ((*record[:3], time_ms if record[3] == NO_TIMESTAMP else record[3]) for record in contents)
    data = build_batch(timed, compression=compression, log_append_time=time_ms if log_append_time else None)
    return Entry(parse_header(data), data)


def _in_full(record: str | GivenRecord, at: str) -> NewRecord:
    if isinstance(record, str):
        return None, _bytes_of(record, at), (), NO_TIMESTAMP
    if (record.base64 is UNSET) is (record.value is UNSET):
        raise InvalidBody("a record has a value or base64, and not both", at)
    value = _bytes_of(record.value, f"{at}.value") if isinstance(record.base64, UnsetType) else record.base64
    headers = []
    for number, header in enumerate(record.headers):
        _bytes_of(header.name, f"{at}.headers[{number}].name")
        headers.append((header.name, _bytes_of(header.value, f"{at}.headers[{number}].value")))
    time = NO_TIMESTAMP if record.timestamp is None else record.timestamp
    return _bytes_of(record.key, f"{at}.key"), value, tuple(headers), time


def _bytes_of(data: Data | UnsetType, at: str) -> bytes | None:
    if isinstance(data, str):
        try:
            return data.encode()
        except UnicodeEncodeError as error:
            raise InvalidBody(f"text that can't be written as UTF-8: {error.reason}", at) from None
    return data.base64 if isinstance(data, Base64) else None
