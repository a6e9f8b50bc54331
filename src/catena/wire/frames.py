"""Cuts the bytes of a connection into frames, with no I/O inside.

Bytes are received into `space()` and announced by `received(n)`. Small frames are cut out of one buffer; a large one
gets a buffer of its own, into which the rest of it is received, so that its bytes are never copied. What a client
announces is not believed before it comes: the buffer of a large frame begins small, and is doubled as often as it is
full. It is made and grows in `space()` alone, by as much as `wants` has said: whoever counts bytes asks before that.
"""

from __future__ import annotations

from collections.abc import Iterator

from catena.wire.reader import WireError

SMALL_BYTES = 16 << 10
FIRST_BYTES = (1 << 20) + (16 << 10)
"""What a large frame is given at first: enough for a batch of `max.message.bytes` as it is by default."""
SIZE_BYTES = 4


class FrameTooLarge(WireError):
    """It can't be skipped, since nothing after it can be found but by receiving it: hang up."""


class Frames:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._small = memoryview(bytearray(SMALL_BYTES))
        self._start = self._end = 0
        self.large = 0
        """The size of the large frame that has begun and is not complete, if there is one."""
        self.filled = 0
        """So much of it has arrived in its own buffer."""
        self.wants = 0
        """By so many bytes its buffer has to grow before more is received; 0: there is room."""
        self._buffer: memoryview | None = None

    @property
    def is_within(self) -> bool:
        """Whether a frame has begun that is not complete."""
        return self.large > 0 or self._end > self._start

    def space(self) -> memoryview:
        """Where to receive the next bytes; never empty."""
        if self.wants:
            self._grow()
        if self._buffer is not None:
            return self._buffer[self.filled :]
        return self._small[self._end :]

    def received(self, count: int) -> Iterator[memoryview]:
        """The frames that are complete now. Raises FrameTooLarge; take all before the next call of `space`."""
        if self._buffer is not None:
            yield from self._received_large(count)
            return
        self._end += count
        while self._end - self._start >= SIZE_BYTES:
            size = int.from_bytes(self._small[self._start : self._start + SIZE_BYTES], "big", signed=True)
            if not 0 <= size <= self._max_bytes:
                raise FrameTooLarge(f"a request of {size} bytes; up to {self._max_bytes} are taken")
            begin = self._start + SIZE_BYTES
            if size > self._end - begin:
                if size > SMALL_BYTES - SIZE_BYTES:
                    self.large, self._start = size, begin
                    self.wants = min(size, FIRST_BYTES)
                    return
                break
            self._start = begin + size
            # Copied: the buffer is used again, and what is small is cheap to copy.
            yield memoryview(bytes(self._small[begin : begin + size]))
        self._make_room()

    def _grow(self) -> None:
        if self._buffer is None:
            self.filled = self._end - self._start
            larger = memoryview(bytearray(self.wants))
            larger[: self.filled] = self._small[self._start : self._end]
            self._start = self._end = 0
        else:
            larger = memoryview(bytearray(self.filled + self.wants))
            larger[: self.filled] = self._buffer
        self._buffer, self.wants = larger, 0

    def _received_large(self, count: int) -> Iterator[memoryview]:
        assert self._buffer is not None
        self.filled += count
        if self.filled == self.large:
            frame, self._buffer = self._buffer, None
            self.large = self.filled = 0
            yield frame
        elif self.filled == len(self._buffer):
            self.wants = min(self.large - self.filled, self.filled)

    def _make_room(self) -> None:
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            left = self._end - self._start
            self._small[:left] = bytes(self._small[self._start : self._end])
            self._start, self._end = 0, left
