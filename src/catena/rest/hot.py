"""The newest records that came in over HTTP, as JSON, for those who read them over HTTP.

Most who read are at the tail, and decoding what was JSON a moment ago is most of what an answer costs. A batch is known
by its place and its checksum, so what is kept is never wrong: were it rewritten there, it would have another. Kept is
the text that an answer has of the records of a batch: where whole batches are asked for, no record is looked at.
Bounded in bytes; the oldest go first.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from catena.loglets.base import Batch
from catena.types import Buffer, Offset, TopicPartition

BATCH_BYTES = 512
"""What a batch takes in memory beside its text, about."""
_CRC = slice(17, 21)

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(list[str])


class Text(NamedTuple):
    """Records that are strings, as JSON."""

    json: bytes
    """A list of them, without its brackets."""
    records: int
    size: int
    """Bytes of the values."""

    def listed(self) -> list[str]:
        return _decoder.decode(b"[%b]" % self.json)


def text_of(records: Sequence[Any], is_plain: bool) -> Text | None:
    """None: some are more than strings. `is_plain`: nothing in them is escaped in JSON, and all is ASCII."""
    try:
        joined = '","'.join(records)
    except TypeError:
        return None
    count = len(records)
    if is_plain:
        return Text(b'"%b"' % joined.encode("ascii"), count, len(joined) - 3 * (count - 1))
    return Text(_encoder.encode(records)[1:-1], count, len(joined.encode()) - 3 * (count - 1))


class _Kept(NamedTuple):
    crc: bytes
    text: Text


class HotRecords:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[TopicPartition, Offset], _Kept] = OrderedDict()

    def takes(self, size: int) -> bool:
        """Whether a batch of so many bytes could be kept."""
        return size + BATCH_BYTES <= self._max_bytes

    def add(self, tp: TopicPartition, offset: Offset, data: Buffer, text: Text) -> None:
        """These records are in the log, as the batch of these bytes at this offset."""
        kept = _Kept(bytes(data[_CRC]), text)
        if _memory(kept) > self._max_bytes:
            return
        self._forget(self._kept.pop((tp, offset), None))
        self._kept[tp, offset] = kept
        self._bytes += _memory(kept)
        while self._bytes > self._max_bytes:
            self._forget(self._kept.popitem(last=False)[1])

    def find(self, tp: TopicPartition, batches: Sequence[Batch]) -> Text | None:
        """All records of these batches; None unless all of them are kept."""
        found: list[Text] = []
        for batch in batches:
            kept = self._kept.get((tp, batch.offset))
            if kept is None or kept.crc != batch.data[_CRC]:
                return None
            found.append(kept.text)
        if len(found) == 1:
            return found[0]
        return Text(
            b",".join([text.json for text in found]),
            sum([text.records for text in found]),
            sum([text.size for text in found]),
        )

    def _forget(self, kept: _Kept | None) -> None:
        if kept is not None:
            self._bytes -= _memory(kept)


def _memory(kept: _Kept) -> int:
    return len(kept.text.json) + BATCH_BYTES
