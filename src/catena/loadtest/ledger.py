"""What became of each record of a hammer, and at which offset: nine bytes for each, kept in a file for who reads back.

| state | what it means |
|---|---|
| DUE | the hammer ended before it knew; it may be in the log |
| ACKED | it is in the log, at this offset |
| FAILED | it was refused before anything was done: it is not in the log |
| UNKNOWN | it may be in the log |
| DROPPED | it was never sent |
"""

from __future__ import annotations

from array import array
from pathlib import Path

from catena.errors import Corrupt

DUE, ACKED, FAILED, UNKNOWN, DROPPED = range(5)
MAY_BE_THERE = (DUE, ACKED, UNKNOWN)
_MAGIC = b"CATLEDG1"
_NO_OFFSET = -1


class Ledger:
    def __init__(self) -> None:
        self.states = bytearray()
        self.offsets = array("q")

    def __len__(self) -> int:
        return len(self.states)

    def add(self, count: int = 1) -> int:
        """So many more are due; the number of the first."""
        first = len(self.states)
        self.states.extend(bytes(count))
        self.offsets.extend([_NO_OFFSET] * count)
        return first

    def acked(self, sequence: int, offset: int) -> None:
        self.states[sequence] = ACKED
        self.offsets[sequence] = offset

    def ended(self, sequence: int, state: int, count: int = 1) -> None:
        self.states[sequence : sequence + count] = bytes([state]) * count

    def save(self, path: Path) -> None:
        with path.open("wb") as file:
            file.write(_MAGIC + len(self).to_bytes(8, "big"))
            file.write(self.states)
            self.offsets.tofile(file)

    @classmethod
    def load(cls, path: Path) -> Ledger:
        ledger = cls()
        with path.open("rb") as file:
            head = file.read(16)
            count = int.from_bytes(head[8:], "big")
            ledger.states = bytearray(file.read(count))
            try:
                ledger.offsets.fromfile(file, count)
            except (EOFError, ValueError):
                raise Corrupt(f"{path} ends too early") from None
        if head[:8] != _MAGIC or len(ledger.states) != count:
            raise Corrupt(f"{path} is no ledger of a hammer")
        return ledger
