"""What hammers send, so that whoever reads it back can tell each record from all others.

    hhhh ssssssssssss dddddddddddddd filler      (hex, no spaces)
    |    |            when it was due: microseconds of this host's monotonic clock
    |    its number among the records of its hammer
    its hammer

The rest is filler, which follows from seed, size and number; so a record is known byte for byte. All is plain ASCII
that JSON need not escape: HTTP and Kafka carry the same.
"""

from __future__ import annotations

import base64
from hashlib import shake_256

HEADER_BYTES = 4 + 12 + 14
_FILLERS = 64
_STRIDE = 7
"""Between two fillers, which overlap, so that they take little memory."""


class RecordForm:
    """Records of one seed and size."""

    def __init__(self, seed: int, record_bytes: int) -> None:
        size = record_bytes - HEADER_BYTES
        assert size > 0
        text = base64.urlsafe_b64encode(shake_256(str(seed).encode()).digest(size + _FILLERS * _STRIDE))
        self._fillers = [text[number * _STRIDE : number * _STRIDE + size] for number in range(_FILLERS)]
        self._size = record_bytes

    def make(self, hammer: int, sequence: int, due_us: int) -> bytes:
        return b"%04x%012x%014x%b" % (hammer, sequence, due_us, self._fillers[sequence % _FILLERS])

    def check(self, value: bytes) -> tuple[int, int] | None:
        """Hammer and number of a record that is whole; None if it is not one of ours as it was sent."""
        if len(value) != self._size:
            return None
        try:
            hammer, sequence = int(value[:4], 16), int(value[4:16], 16)
        except ValueError:
            return None
        return (hammer, sequence) if value[HEADER_BYTES:] == self._fillers[sequence % _FILLERS] else None


def due_s(value: bytes | str) -> float:
    """When it was due, in seconds of the monotonic clock. ValueError if it is no record of ours."""
    return int(value[16:HEADER_BYTES], 16) / 1e6
