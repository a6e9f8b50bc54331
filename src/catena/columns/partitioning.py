"""Which partitions rows go to: those of their column `partition`, or those that Kafka's clients choose by the key.

MurmurHash2 of all keys is computed at once, four bytes of each key at a time; the few keys that are long are done one
by one, since all would have to wait for the longest. Rows without a key stick together, as Kafka's producers do it: all
that are asked about at once go to one partition, which the caller moves on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from catena.columns import schema
from catena.errors import InvalidBatch, UnknownPartition

_SEED, _M = np.uint32(0x9747B28C), np.uint32(0x5BD1E995)
_LONG = 256
_WORDS = tuple(np.uint32(shift) for shift in (0, 8, 16, 24))


class Routed(NamedTuple):
    """Rows of one partition, in their order."""

    topic: str
    partition: int
    rows: pa.RecordBatch


def route(rows: pa.RecordBatch, topic: str | None, partitions: Callable[[str], int], sticky: int) -> Iterator[Routed]:
    """`partitions` tells how many a topic has, or raises; `topic` None: the column of that name says which it is."""
    if not rows.num_rows:
        return
    for name, some in [(topic, rows)] if topic is not None else _by_topic(rows):
        count = partitions(name)
        for number, of_one in _by_partition(some, _choose(some, name, count, sticky)):
            yield Routed(name, number, of_one)


def join(rows: Sequence[pa.RecordBatch]) -> pa.Table:
    return pa.Table.from_batches(rows)


def murmur2(keys: pa.Array) -> NDArray[np.uint32]:
    """Of each key, which is large binary and not null, with the seed of Kafka's default partitioner."""
    ends = np.frombuffer(keys.buffers()[1], np.int64)[keys.offset : keys.offset + len(keys) + 1]
    buffer = keys.buffers()[2]
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    starts, sizes = ends[:-1], np.diff(ends)
    with np.errstate(over="ignore"):
        hashes = _hash(data, starts, np.minimum(sizes, _LONG), sizes)
        for row in np.flatnonzero(sizes > _LONG):
            start, size = starts[row : row + 1], sizes[row : row + 1]
            hashes[row] = _hash(data, start, size, size)[0]
    return hashes


def _hash(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint32]:
    hashes = _SEED ^ lengths.astype(np.uint32)
    words = sizes // 4
    for word in range(int(words.max(initial=0))):
        which = np.flatnonzero(words > word)
        k = _little_endian(data, starts[which] + 4 * word, np.full(len(which), 4)) * _M
        k ^= k >> np.uint32(24)
        hashes[which] = hashes[which] * _M ^ k * _M
    which = np.flatnonzero(sizes % 4)
    left = _little_endian(data, starts[which] + 4 * words[which], sizes[which] % 4)
    hashes[which] = (hashes[which] ^ left) * _M
    hashes ^= hashes >> np.uint32(13)
    hashes *= _M
    return hashes ^ (hashes >> np.uint32(15))


def _little_endian(data: NDArray[np.uint8], at: NDArray[np.int64], sizes: NDArray[np.int64]) -> NDArray[np.uint32]:
    numbers = np.zeros(len(at), np.uint32)
    for byte, shift in enumerate(_WORDS):
        has = sizes > byte
        numbers[has] |= data[at[has] + byte].astype(np.uint32) << shift
    return numbers


def _by_topic(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    names = rows.column(schema.TOPIC)
    if names.null_count:
        row = int(np.argmax(names.is_null().to_numpy(zero_copy_only=False)))
        raise InvalidBatch(f"row {row}: column topic is null, and there is no option topic")
    distinct = pc.unique(names)
    for name in distinct:
        yield name.as_py(), rows if len(distinct) == 1 else rows.filter(pc.equal(names, name))


def _choose(rows: pa.RecordBatch, topic: str, count: int, sticky: int) -> NDArray[np.int64]:
    chosen = np.full(rows.num_rows, sticky % count, np.int64)
    if schema.KEY in rows.schema.names:
        keys = rows.column(schema.KEY).cast(pa.large_binary())
        has_key = keys.is_valid().to_numpy(zero_copy_only=False)
        hashes = murmur2(keys.drop_null() if keys.null_count else keys)
        chosen[has_key] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)
    if schema.PARTITION in rows.schema.names:
        given = rows.column(schema.PARTITION)
        is_given = given.is_valid().to_numpy(zero_copy_only=False)
        chosen[is_given] = given.drop_null().to_numpy(zero_copy_only=False)
        wrong = chosen[(chosen < 0) | (chosen >= count)]
        if len(wrong):
            raise UnknownPartition(topic, int(wrong[0]), count)
    return chosen


def _by_partition(rows: pa.RecordBatch, chosen: NDArray[np.int64]) -> Iterator[tuple[int, pa.RecordBatch]]:
    first = int(chosen[0])
    if (chosen == first).all():
        yield first, rows
        return
    order = np.argsort(chosen, kind="stable")
    numbers, starts = np.unique(chosen[order], return_index=True)
    ends = [*starts[1:].tolist(), len(order)]
    for number, start, end in zip(numbers.tolist(), starts.tolist(), ends, strict=True):
        yield number, rows.take(pa.array(order[start:end]))
