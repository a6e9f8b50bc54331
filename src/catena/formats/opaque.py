"""Which batches of a stretch of a log are opaque: their CRC is right, and their records can't be read.

A producer may send such a batch, and a broker, which looks at its header only, takes it. Stages of a job that each find
out for themselves compare what they found by this: how many, and a digest of which.
"""

from __future__ import annotations

from typing import NamedTuple

from crc32c import crc32c

from catena.types import Offset


class Opaque(NamedTuple):
    batches: int = 0
    first: Offset = -1
    """Of the first one; -1: there is none."""
    digest: int = 0
    """Of their offsets, in order."""

    def plus(self, offset: Offset) -> Opaque:
        """With the batch at this offset, which lies behind the others."""
        first = self.first if self.batches else offset
        return Opaque(self.batches + 1, first, crc32c(offset.to_bytes(8, "little"), self.digest))
