"""What scans have read, so that the next one reads only what has changed.

A listing tells each object's etag, and no two writes have the same one (`envelope`). So what was read under an etag is
what the object holds for as long as a listing shows that etag: the memory can lack things, and is never wrong. Bounded
in bytes; what was not asked for longest goes first.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

from catena.meta.object_storage.envelope import Envelope
from catena.types import ETag

OVERHEAD_BYTES = 800
"""Of the objects around a key and a value."""


class _Read(NamedTuple):
    etag: ETag
    envelope: Envelope
    size: int


class Remembered:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._read: OrderedDict[str, _Read] = OrderedDict()

    def get(self, key: str, etag: ETag) -> Envelope | None:
        found = self._read.get(key)
        if found is None or found.etag != etag:
            return None
        self._read.move_to_end(key)
        return found.envelope

    def keep(self, key: str, etag: ETag, envelope: Envelope) -> None:
        if (before := self._read.pop(key, None)) is not None:
            self._bytes -= before.size
        size = OVERHEAD_BYTES + len(key) + len(envelope.value or b"")
        self._read[key] = _Read(etag, envelope, size)
        self._bytes += size
        while self._bytes > self._max_bytes:
            self._bytes -= self._read.popitem(last=False)[1].size
