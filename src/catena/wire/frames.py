"""Cuts the bytes of a connection into frames, with no I/O inside.

Bytes are received into `space()` and announced by `received(n)`. Small frames are cut out of one buffer; a large one
gets a buffer of its own, into which the rest of it is received, so that its bytes are never copied. What a client
announces is not believed before it comes: the buffer of a large frame grows with what has arrived.
"""

from __future__ import annotations

from collections.abc import Iterator

from catena.wire.reader import WireError

SMALL_BYTES = 16 << 10
FIRST_BYTES = 4 << 20
"""What a large frame is given at first; it is doubled as often as it fills up."""
SIZE_BYTES = 4


class FrameTooLarge(WireError):
    """It can't be skipped, since nothing after it can be found but by receiving it: hang up."""


class Frames:
    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._small = memoryview(bytearray(SMALL_BYTES))
        self._start = self._end = 0
        self._large: memoryview | None = None
        self._filled = self._size = 0

    @property
    def is_within(self) -> bool:
        """Whether a frame has begun that is not complete."""
        return self._large is not None or self._end > self._start

    def space(self) -> memoryview:
        """Where to receive the next bytes; never empty."""
        if self._large is not None:
            return self._large[self._filled :]
        return self._small[self._end :]

    def received(self, count: int) -> Iterator[memoryview]:
        """The frames that are complete now. Raises FrameTooLarge; take all before the next call of `space`."""
        if self._large is not None:
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
                    self._begin_large(size, begin)
                break
            self._start = begin + size
            # Copied: the buffer is used again, and what is small is cheap to copy.
            yield memoryview(bytes(self._small[begin : begin + size]))
        self._make_room()

    def _begin_large(self, size: int, begin: int) -> None:
        self._size, self._filled = size, self._end - begin
        self._large = memoryview(bytearray(min(size, FIRST_BYTES)))
        self._large[: self._filled] = self._small[begin : self._end]
        self._start = self._end = 0

    def _received_large(self, count: int) -> Iterator[memoryview]:
        assert self._large is not None
        self._filled += count
        if self._filled == self._size:
            frame, self._large = self._large, None
            yield frame
        elif self._filled == len(self._large):
            larger = memoryview(bytearray(min(self._size, 2 * self._filled)))
            larger[: self._filled] = self._large
            self._large = larger

    def _make_room(self) -> None:
        if self._start == self._end:
            self._start = self._end = 0
        elif self._start:
            left = self._end - self._start
            self._small[:left] = bytes(self._small[self._start : self._end])
            self._start, self._end = 0, left
