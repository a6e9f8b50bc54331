"""Batches from which a compaction has removed records, and the gaps where it has removed all of them.

A record keeps its bytes: its offset and its time are counted from those of its batch, which stay. So does all else that
the header says, sequence numbers included, but for the length, the CRC, how many records there are, and the greatest
time, which is that of those that are left.

Neighbouring batches that have lost all their records become one **gap**: a batch of 61 bytes that has no record, no
producer and no time, and takes all their offsets. So also in a log that was compacted every offset is in exactly one
batch, and whoever reads goes from batch to batch as everywhere. Kafka has such batches too, and its clients read on
behind them.
"""

from __future__ import annotations

from catena.formats.compression import compress
from catena.formats.recompress import assemble
from catena.formats.record_batch import CONTROL, BatchHeader
from catena.formats.records import NO_LEADER_EPOCH, NO_TIMESTAMP
from catena.types import Buffer

MAX_GAP = 2**31 - 1
"""The offsets that one batch can take, as a header counts them."""
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def is_gap(header: BatchHeader) -> bool:
    return header.record_count == 0 and not header.attributes & CONTROL


def gaps(offsets: int) -> list[bytes]:
    """What takes so many offsets, and holds nothing; one batch, unless they are too many for one."""
    found = []
    while offsets > 0:
        taken = min(offsets, MAX_GAP)
        found.append(_gap(taken))
        offsets -= taken
    return found


def thinned(header: BatchHeader, records: Buffer, count: int, newest: int) -> bytes:
    """The batch of this header with only these records, `count` of them, not compressed yet; `newest` is their time."""
    if not 0 < count <= header.record_count:
        raise ValueError(f"{count} of {header.record_count} records can't be left in a batch")
    time = header.max_timestamp if header.log_append_time else max(_INT64_MIN, min(_INT64_MAX, newest))
    compressed = compress(header.compression, records)
    return assemble(header._replace(record_count=count, max_timestamp=time), compressed)


def _gap(offsets: int) -> bytes:
    header = BatchHeader(
        base_offset=0,
        length=0,
        leader_epoch=NO_LEADER_EPOCH,
        crc=0,
        attributes=0,
        last_offset_delta=offsets - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        record_count=0,
    )
    return assemble(header, b"")
