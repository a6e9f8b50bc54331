"""The last record of each key: what a compaction needs to know of a stretch of the log.

A key is known by a hash of 128 bits, salted with what nobody can guess before: keys that collide by chance are never
seen, and nobody can make some on purpose. Kafka's cleaner trusts MD5 in the same way.

Most keys of a chunk are the same, in logs that are worth compacting, and Arrow finds those faster than any hash in
Python is made; so each chunk is thinned out first, by the keys themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from catena.columns.decode import cut_binary
from catena.columns.gather import Body, Wanted, chunks
from catena.columns.varints import Ints, Unsound
from catena.columns.walking import walk
from catena.types import TopicPartition

HASH_BYTES = 16
MAX_ROWS = 262_144
MAX_BYTES = 16 << 20

Words: TypeAlias = NDArray[np.uint64]


class LastOfKeys(NamedTuple):
    """One number of each kind for each key, in no order."""

    high: Words
    """Of the key's hash, as is `low`."""
    low: Words
    offset: Ints
    is_tombstone: NDArray[np.bool_]

    @property
    def rows(self) -> int:
        return len(self.offset)


NONE = LastOfKeys(np.empty(0, np.uint64), np.empty(0, np.uint64), np.empty(0, np.int64), np.empty(0, np.bool_))


def find_last(bodies: Iterable[Body], partition: TopicPartition, salt: bytes) -> Iterator[LastOfKeys]:
    """Of one chunk of these bodies after the other; keys that are in several are in each. Records without a key are
    not looked at. Raises Corrupt, with topic, partition, offset and object. CRCs are checked."""
    wanted = Wanted(0, 2**63 - 1, MAX_ROWS, MAX_BYTES, True, headers_tell=False, headers_tell_append_time=False)
    for chunk in chunks(bodies, partition, wanted):
        spans, base, _, _ = chunk.numbers()
        data = chunk.data()
        view = np.frombuffer(data, np.uint8)
        view.flags.writeable = False
        try:
            fields = walk(view, spans)
        except Unsound:
            raise chunk.fault() from None
        has_key = fields.key_size >= 0
        offset = (np.repeat(base, spans.record_count) + fields.offset_delta)[has_key]
        if len(offset):
            keys = cut_binary(pa.py_buffer(data), fields.key_at[has_key], fields.key_size[has_key])
            yield _last(keys, offset, (fields.value_size < 0)[has_key], salt)


def merged(parts: Iterable[LastOfKeys]) -> LastOfKeys:
    """The last of each key over all of these, in the order of hashes."""
    found = [part for part in parts if part.rows]
    if not found:
        return NONE
    high, low, offset, is_tombstone = (np.concatenate(columns) for columns in zip(*found, strict=True))
    order = np.lexsort((offset, low, high))
    high, low = high[order], low[order]
    is_last = np.ones(len(order), np.bool_)
    is_last[:-1] = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return LastOfKeys(high[is_last], low[is_last], offset[order][is_last], is_tombstone[order][is_last])


def _last(keys: pa.Array, offset: Ints, is_tombstone: NDArray[np.bool_], salt: bytes) -> LastOfKeys:
    encoded = keys.dictionary_encode()
    last = np.empty(len(encoded.dictionary), np.int64)
    last[encoded.indices.to_numpy()] = np.arange(len(keys))  # of equal places the last one stays
    hashes = np.frombuffer(
        b"".join([blake2b(key, digest_size=HASH_BYTES, key=salt).digest() for key in encoded.dictionary.to_pylist()]),
        np.uint64,
    ).reshape(-1, 2)
    return LastOfKeys(hashes[:, 0].copy(), hashes[:, 1].copy(), offset[last], is_tombstone[last])
