"""A ring of committed batches in a file that one process writes, and others read while it does. Pure but for `Storage`.

    file:    | identity | position | ring of `size` bytes ...................... |
    stream:  frame after frame, for ever; its byte p is byte p % size of the ring
    frame:   | head: of which log, where in the stream, checksums | bytes of the batch |

- The writer puts whole frames into the ring, and only then moves the position behind them. Nobody waits for anybody.
- From one move to the next it writes a **stride** at the most, a quarter of the ring. So while the position is P it
  overwrites bytes of the stream below P + stride - size, and no others. A reader copies frames, then reads the position
  again, and keeps what is not below that: all else may have been overwritten while it was copied.
- A head also says where in the stream it is, and has a checksum, as the bytes behind it have. So a copy in which old
  and new bytes met is known for what it is, even where writes are seen in another order than they were made in.
- Either way the reader has fallen behind, or what it finds is damaged. It goes on at the position, and says that it has
  lost something: who reads the log then asks the stores.
- A writer that dies leaves a position behind which nobody looks. One that dies while it moves the position leaves the
  old one, the new one, or one whose checksum is wrong, at which nobody looks either.

A batch that is larger than a stride is told of without its bytes: the log reaches so far, the stores have it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import NamedTuple, Protocol, TypeAlias

from crc32c import crc32c

from catena.types import Buffer, Buffers, Epoch, Offset, TopicId

MAGIC = b"catenatl"
VERSION = 1
CATCH_UP_BYTES = 1 << 20
"""A ring that holds no more yet is read from its beginning: its reader was not there when the writer made it."""
POLL_BYTES = 4 << 20
"""Of the stream, in one poll; whoever polls does other things in between."""
FRAME_COST = 1 << 10
"""What a frame counts in that beside its bytes."""

_identity = struct.Struct(">8sHQ16s")
_position = struct.Struct(">Q")
_head = struct.Struct(">IIQ16sIIqqdI")
_crc = struct.Struct(">I")
_FRAME_MAGIC = 0xCA7E4A01
HEAD_BYTES = _head.size + _crc.size
POSITION_AT = 64
RING_AT = 128
MIN_RING_BYTES = 8 * HEAD_BYTES

Wanted: TypeAlias = Callable[[TopicId, int], bool]


class Storage(Protocol):
    """A file. What is read while it is written may be old, new, or of both."""

    def read(self, at: int, length: int) -> bytes:
        """Fewer bytes where the file ends."""

    def write(self, at: int, data: Buffers) -> None: ...


class Frame(NamedTuple):
    """One batch that was committed."""

    topic_id: TopicId
    partition: int
    epoch: Epoch
    """Of the link that it was committed to."""
    offset: Offset
    records: int
    at: float
    """Not after the commit, by the monotonic clock, which all processes of a host share: the log ended behind this
    batch then, or later."""
    data: Buffer
    """Empty: to be read from the stores."""

    @property
    def end(self) -> Offset:
        return self.offset + self.records


class Polled(NamedTuple):
    frames: list[Frame]
    """Those that were wanted, in the order of the stream."""
    lost: bool
    """Others were there that nobody will see any more."""
    more: bool
    """There is more to poll at once."""


class NotARing(Exception):
    """The file is not a ring, is one of another version, or tells of another history."""


class RingWriter:
    def __init__(self, storage: Storage, size: int, history: str) -> None:
        """`history` names the cluster and its branch: offsets mean the same to all who have the same."""
        assert size >= MIN_RING_BYTES
        self._storage = storage
        self._size = size
        self._stride = size // 4
        self._position = 0
        identity = _identity.pack(MAGIC, VERSION, size, _digest(history))
        storage.write(0, [identity, _crc.pack(crc32c(identity))])
        self._move()

    def append(self, frames: Sequence[Frame]) -> None:
        parts: list[Buffer] = []
        length = 0
        for frame in frames:
            data = frame.data if HEAD_BYTES + len(frame.data) <= self._stride else b""
            if length + HEAD_BYTES + len(data) > self._stride:
                self._put(parts, length)
                parts, length = [], 0
            parts += (_head_of(frame, data, self._position + length), data)
            length += HEAD_BYTES + len(data)
        if parts:
            self._put(parts, length)

    def _put(self, parts: list[Buffer], length: int) -> None:
        assert length <= self._stride
        at = self._position % self._size
        if (first := self._size - at) >= length:
            self._storage.write(RING_AT + at, parts)
        else:
            whole = memoryview(b"".join(parts))
            self._storage.write(RING_AT + at, [whole[:first]])
            self._storage.write(RING_AT, [whole[first:]])
        self._position += length
        self._move()

    def _move(self) -> None:
        position = _position.pack(self._position)
        self._storage.write(POSITION_AT, [position + _crc.pack(crc32c(position))])


class _Head(NamedTuple):
    length: int
    crc: int
    frame: Frame
    """Without its bytes."""


class RingReader:
    def __init__(self, storage: Storage, history: str) -> None:
        """Raises NotARing."""
        self._storage = storage
        self._size = _size_of(storage, history)
        self._stride = self._size // 4
        position = self._position()
        if position is None:
            raise NotARing("its position can't be read")
        self._at = 0 if position <= min(CATCH_UP_BYTES, self._size - self._stride) else position

    def poll(self, wanted: Wanted) -> Polled:
        """What is new since the last call: some of it."""
        end = self._position()
        if end is None or end <= self._at:
            return Polled([], lost=False, more=False)
        lost = not self._stands(self._at, end)
        found: list[tuple[int, Frame]] = []
        left = POLL_BYTES
        while not lost and self._at < end and left > 0:
            head = self._head(end)
            if head is None:
                lost = True
                break
            frame = head.frame
            if wanted(frame.topic_id, frame.partition):
                data = self._read(self._at + HEAD_BYTES, head.length)
                if data is None or crc32c(data) != head.crc:
                    lost = True
                    break
                found.append((self._at, frame._replace(data=data)))
            self._at += HEAD_BYTES + head.length
            left -= FRAME_COST + head.length
        # Only now it is known what was copied in time.
        after = self._position()
        frames = [] if after is None else [frame for at, frame in found if self._stands(at, after)]
        if lost or len(frames) < len(found):
            self._at = max(self._at, end, after or 0)
            return Polled(frames, lost=True, more=False)
        return Polled(frames, lost=False, more=self._at < end)

    def _stands(self, at: int, position: int) -> bool:
        """Whether the stream from there on was not being overwritten yet when the position was read."""
        return at >= position + self._stride - self._size

    def _position(self) -> int | None:
        stored = self._storage.read(POSITION_AT, _position.size + _crc.size)
        if len(stored) < _position.size + _crc.size:
            return None
        (position,) = _position.unpack_from(stored)
        (crc,) = _crc.unpack_from(stored, _position.size)
        return int(position) if crc32c(stored[: _position.size]) == crc else None

    def _head(self, end: int) -> _Head | None:
        """Of the frame that begins here; None if none does."""
        stored = self._read(self._at, HEAD_BYTES)
        if stored is None or _crc.unpack_from(stored, _head.size)[0] != crc32c(stored[: _head.size]):
            return None
        magic, length, at, topic_id, partition, count, offset, epoch, when, crc = _head.unpack_from(stored)
        if magic != _FRAME_MAGIC or at != self._at or length > self._stride or at + HEAD_BYTES + length > end:
            return None
        return _Head(length, crc, Frame(TopicId(topic_id.hex()), partition, epoch, offset, count, when, b""))

    def _read(self, position: int, length: int) -> bytes | None:
        at = position % self._size
        first = min(length, self._size - at)
        data = self._storage.read(RING_AT + at, first)
        if first < length:
            data += self._storage.read(RING_AT, length - first)
        return data if len(data) == length else None


def _head_of(frame: Frame, data: Buffer, position: int) -> bytes:
    head = _head.pack(
        _FRAME_MAGIC,
        len(data),
        position,
        bytes.fromhex(frame.topic_id),
        frame.partition,
        frame.records,
        frame.offset,
        frame.epoch,
        frame.at,
        crc32c(data),
    )
    return head + _crc.pack(crc32c(head))


def _size_of(storage: Storage, history: str) -> int:
    stored = storage.read(0, _identity.size + _crc.size)
    if len(stored) < _identity.size + _crc.size:
        raise NotARing("it is too short")
    magic, version, size, digest = _identity.unpack_from(stored)
    if (
        magic != MAGIC
        or version != VERSION
        or _crc.unpack_from(stored, _identity.size)[0] != crc32c(stored[: _identity.size])
    ):
        raise NotARing("it is something else, or of another version")
    if digest != _digest(history):
        raise NotARing("it tells of another cluster, or of a branch of its history that is not this one")
    return int(size)


def _digest(history: str) -> bytes:
    return blake2b(history.encode(), digest_size=16).digest()
