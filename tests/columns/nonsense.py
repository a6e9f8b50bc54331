"""Batches whose CRC is right and whose records are nonsense, as a broken producer sends them."""

from __future__ import annotations

import enum

from hypothesis import strategies as st

from catena.formats.compression import Compression
from catena.formats.recompress import assemble
from catena.formats.record_batch import HEADER_BYTES, BatchHeader, parse_header
from catena.formats.records import build_batch


class Fault(enum.Enum):
    NOT_COMPRESSED = "it says that it is compressed"
    CUT = "the last record is cut off"
    TOO_MANY = "more records than bytes"
    ONE_MORE = "one more record than there is"
    OFFSETS = "two records have one offset"
    RANDOM = "random bytes"


def nonsense(count: int, fault: Fault = Fault.RANDOM, keys: int = 2, body: bytes = b"nonsense" * 4) -> bytes:
    """A batch that takes so many offsets."""
    sound = build_batch([(b"%d" % (number % keys), b"value", (), number) for number in range(count)])
    header, records = parse_header(sound), sound[HEADER_BYTES:]
    match fault:
        case Fault.NOT_COMPRESSED:
            return assemble(header._replace(attributes=Compression.ZSTD), records)
        case Fault.CUT:
            return assemble(header, records[:-1])
        case Fault.TOO_MANY:
            return assemble(_counting(header, count), b"")
        case Fault.ONE_MORE:
            return assemble(_counting(header, count), records[: -(records[0] // 2 + 1)])
        case Fault.OFFSETS:
            broken = bytearray(records)
            broken[3] = 0x7E  # the offset of the first record: 63, which is beyond the batch, or as great as another's
            return assemble(header, bytes(broken))
        case Fault.RANDOM:
            return assemble(header, body)


def _counting(header: BatchHeader, count: int) -> BatchHeader:
    return header._replace(record_count=count, last_offset_delta=count - 1)


some_nonsense = st.builds(
    nonsense,
    st.integers(1, 60),
    st.sampled_from(Fault),
    body=st.binary(max_size=40).filter(lambda body: not _sound(body)),
)
"""Random bytes may be sound by chance, but not with 7 bytes for each record of a batch."""


def _sound(body: bytes) -> bool:
    return len(body) >= 7 and body[0] == 2 * (len(body) - 1)
