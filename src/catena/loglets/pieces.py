"""Read pieces of objects: each is downloaded once, checked, cut into batches and kept in a bounded cache.

What is asked for in one turn of the loop, or by the reads of one request (`together`), is gathered by object, and
pieces that lie close together become one get; so a request that reads many partitions downloads each object they share
once. Pieces that fill what one get brought stay in that buffer: no byte is copied, and they leave the cache together.
Where others' bytes lie between them, each gets a buffer of its own, so that the cache holds what it counts.

A lane has slots for downloads and a share of the memory of its own, so that who reads much old data neither pushes out
what others need nor makes them wait.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import accumulate
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from catena.errors import CatenaError, Corrupt, StoreUnavailable
from catena.loglets import together
from catena.loglets.base import Batch
from catena.objects.base import ObjectStore, Range
from catena.objects.ranges import coalesce
from catena.runtime import Clock, Tasks, shielded
from catena.types import Buffer, Offset

COALESCE_GAP_BYTES = 128 << 10
"""Bytes between two pieces that are rather read than asked for in a second get."""
COALESCE_MAX_BYTES = 16 << 20
OVERHEAD_BYTES = 264
"""What a batch takes in memory beside its bytes: the objects around it. Measured."""
MAX_PLACES = 8
"""Where readers of one log stopped, that are remembered."""


_data = attrgetter("data")


class _Key(NamedTuple):
    object_key: str
    start: int


class _Buffer:
    """What is kept, and given up, as one."""

    __slots__ = ("pieces", "size")

    def __init__(self, pieces: Mapping[_Key, list[Batch]], size: int) -> None:
        self.pieces = pieces
        self.size = size


class Lane:
    """Slots for downloads, and a cache of pieces; the buffer that was not used for longest goes first.

    What is downloaded ahead and has not been read takes half of the cache at most: it must still be there when its
    reader comes.
    """

    def __init__(self, slots: int, max_bytes: int) -> None:
        self.slots = asyncio.Semaphore(slots)
        self.slots_ahead = asyncio.Semaphore(max(1, slots // 2))
        """What is read ahead needs one of these as well, so that there is always a slot for what is waited for."""
        self._max_bytes = max_bytes
        self._bytes = self._bytes_ahead = 0
        self._buffers: OrderedDict[_Buffer, None] = OrderedDict()
        self._holders: dict[_Key, _Buffer] = {}
        self._ahead: dict[_Key, int] = {}

    def get(self, key: _Key) -> list[Batch] | None:
        buffer = self._holders.get(key)
        if buffer is None:
            return None
        self._buffers.move_to_end(buffer)
        self.not_ahead(key)
        return buffer.pieces[key]

    def has(self, key: _Key) -> bool:
        return key in self._holders

    def keep(self, pieces: Mapping[_Key, list[Batch]], size: int) -> None:
        """Pieces that share a buffer of this size."""
        buffer = _Buffer(pieces, size + OVERHEAD_BYTES * sum(map(len, pieces.values())))
        self._buffers[buffer] = None
        self._holders.update(dict.fromkeys(pieces, buffer))
        self._bytes += buffer.size
        while self._bytes > self._max_bytes and len(self._buffers) > 1:
            oldest, _ = self._buffers.popitem(last=False)
            self._bytes -= oldest.size
            for key in oldest.pieces:
                del self._holders[key]
                self.not_ahead(key)

    def may_go_ahead(self, key: _Key, size: int) -> bool:
        if self._bytes_ahead + size > self._max_bytes // 2:
            return False
        self._ahead[key] = size
        self._bytes_ahead += size
        return True

    def is_ahead(self, key: _Key) -> bool:
        return key in self._ahead

    def not_ahead(self, key: _Key) -> None:
        """It was read, or is not coming."""
        self._bytes_ahead -= self._ahead.pop(key, 0)


class Piece(NamedTuple):
    """Bytes of an object that are read, checked and kept as one."""

    object_key: str
    start: int
    length: int | None
    """None: up to the end of the object."""
    offset: Offset
    """Of its first batch; for errors."""
    lane: Lane
    """Where it is kept, if it is not yet."""
    decode: Callable[[Buffer], list[Batch]]
    """Makes batches of the bytes; raises Corrupt, and says where, if they are not what they should be."""

    @property
    def key(self) -> _Key:
        return _Key(self.object_key, self.start)


class _Want(NamedTuple):
    piece: Piece
    key: _Key
    batches: asyncio.Future[list[Batch]]


_Place: TypeAlias = tuple[str, Lane]


class PieceReader:
    def __init__(self, objects: ObjectStore, clock: Clock, tasks: Tasks, lanes: Sequence[Lane]) -> None:
        """`lanes` are all that pieces may be kept in."""
        self._objects = objects
        self._clock = clock
        self._tasks = tasks
        self._lanes = lanes
        self._wanted: dict[_Place, list[_Want]] = {}
        self._due: set[_Place] = set()
        """Of those that are wanted: what is got in the next turn; the others wait for the reads of their request."""
        self._coming: dict[_Key, asyncio.Future[list[Batch]]] = {}
        self.hits = 0
        self.misses = 0

    async def read(self, pieces: Sequence[Piece]) -> list[Batch]:
        """The batches of these pieces."""
        batches: list[Batch] = []
        for found in self._start_all(pieces):
            # Shielded: another reader may wait for the same download.
            some = found if isinstance(found, list) else await shielded(found)
            batches += some
        return batches

    async def read_from(self, pieces: Sequence[Piece], offset: Offset, max_bytes: int) -> list[Batch]:
        """Batches from the one that holds `offset` on, at least one, then up to `max_bytes`.

        The pieces follow each other, have a length, and hold batches from end to end.
        """
        selected: list[Batch] = []
        for piece, found in zip(pieces, self._start_all(pieces), strict=True):
            batches = found if isinstance(found, list) else await shielded(found)
            size = piece.length or 0
            if not selected:
                batches = [batch for batch in batches if batch.end > offset]
                size = sum(map(len, map(_data, batches)))
            if size <= max_bytes:
                selected += batches
                max_bytes -= size
                continue
            ends = list(accumulate(map(len, map(_data, batches))))
            selected += batches[: bisect_right(ends, max_bytes) or (0 if selected else 1)]
            break
        return selected

    def is_here(self, object_key: str, start: int) -> bool:
        """Whether the piece that starts there is kept, or coming."""
        key = _Key(object_key, start)
        return key in self._coming or any(lane.has(key) for lane in self._lanes)

    def read_ahead(self, pieces: Sequence[Piece]) -> None:
        """Download what will be asked for, as far as there is room."""
        for piece in pieces:
            if piece.length is None or self.is_here(piece.object_key, piece.start):
                continue
            if self._tasks.closed or not piece.lane.may_go_ahead(piece.key, piece.length):
                return
            self._want(piece, piece.key)

    def _start_all(self, pieces: Sequence[Piece]) -> list[list[Batch] | asyncio.Future[list[Batch]]]:
        started = [self._start(piece) for piece in pieces]
        together.say()
        return started

    def _start(self, piece: Piece) -> list[Batch] | asyncio.Future[list[Batch]]:
        key = piece.key
        for lane in self._lanes:
            if (batches := lane.get(key)) is not None:
                self.hits += 1
                return batches
        if (coming := self._coming.get(key)) is not None:
            for lane in self._lanes:
                lane.not_ahead(key)
            return coming
        self.misses += 1
        return self._want(piece, key)

    def _want(self, piece: Piece, key: _Key) -> asyncio.Future[list[Batch]]:
        if self._tasks.closed:
            raise StoreUnavailable("the node is shutting down")
        coming = self._coming[key] = asyncio.get_running_loop().create_future()
        place = (piece.object_key, piece.lane)
        is_new = place not in self._wanted
        self._wanted.setdefault(place, []).append(_Want(piece, key, coming))
        if place in self._due:
            return coming
        others = together.others()
        if others is None:
            self._due.add(place)
            asyncio.get_running_loop().call_soon(self._fetch_wanted, place)
        elif is_new:
            task = self._tasks.spawn("wait for the reads of a request", others.wait())
            task.add_done_callback(lambda _: self._fetch_wanted(place))
        return coming

    def _fetch_wanted(self, place: _Place) -> None:
        self._due.discard(place)
        wants = self._wanted.pop(place, None)
        if wants is None:  # got meanwhile, for who was not held back
            return
        if self._tasks.closed:
            self._fail(wants, StoreUnavailable("the node is shutting down"))
        else:
            task = self._tasks.spawn("read pieces", self._fetch(*place, wants))
            # Also a task that is cancelled before it has begun must leave nobody waiting.
            task.add_done_callback(lambda _: self._fail(wants, StoreUnavailable(f"reading {place[0]} was interrupted")))

    async def _fetch(self, object_key: str, lane: Lane, wants: list[_Want]) -> None:
        try:
            async with AsyncExitStack() as slots:
                if all(lane.is_ahead(want.key) for want in wants):
                    await slots.enter_async_context(lane.slots_ahead)
                await slots.enter_async_context(lane.slots)
                parts = await self._get(object_key, wants)
            for number, (inside, start, part) in enumerate(parts):
                if number:  # to check and cut a part takes a while: let others go on
                    await self._clock.sleep(0)
                self._deliver(lane, inside, start, part)
        except Corrupt as error:
            for want in wants:
                self._fail([want], Corrupt(f"offset {want.piece.offset} at byte {want.key.start}: {error}"))
        except CatenaError as error:
            self._fail(wants, error)

    async def _get(self, object_key: str, wants: list[_Want]) -> list[tuple[list[_Want], int, memoryview]]:
        """In few gets: what is wanted of each part of the object, where that starts, and its bytes."""
        if any(want.piece.length is None for want in wants):
            return [(wants, 0, memoryview((await self._objects.get(object_key)).data))]
        wanted = [Range(want.piece.start, want.piece.length or 0) for want in wants]
        ranges = coalesce(wanted, COALESCE_GAP_BYTES, COALESCE_MAX_BYTES)
        parts = await self._objects.get_ranges(object_key, ranges)
        return [
            ([want for want in wants if start <= want.piece.start < start + length], start, memoryview(part))
            for (start, length), part in zip(ranges, parts, strict=True)
        ]

    def _deliver(self, lane: Lane, wants: list[_Want], start: int, part: memoryview) -> None:
        bodies: list[memoryview] = []
        for want in wants:
            at, length = want.piece.start - start, want.piece.length
            bodies.append(part[at:] if length is None else part[at : at + length])
        is_filled = sum(map(len, bodies)) == len(part)
        kept: dict[_Key, list[Batch]] = {}
        for want, body in zip(wants, bodies, strict=True):
            try:
                batches = want.piece.decode(body if is_filled else bytes(body))
            except Corrupt as error:
                self._fail([want], error)
                continue
            if is_filled:
                kept[want.key] = batches
            else:
                lane.keep({want.key: batches}, len(body))
            del self._coming[want.key]
            want.batches.set_result(batches)
        if kept:
            lane.keep(kept, len(part))

    def _fail(self, wants: Sequence[_Want], error: CatenaError) -> None:
        for want in wants:
            if not want.batches.done():
                want.piece.lane.not_ahead(want.key)
                del self._coming[want.key]
                want.batches.set_exception(error)
                want.batches.exception()  # nobody may be waiting: it was read ahead, or another piece failed first


class Places:
    """Where readers of one log stopped. Who goes on from there will mostly go on: what follows can be read ahead."""

    __slots__ = ("_stopped_at",)

    def __init__(self) -> None:
        self._stopped_at: dict[Offset, None] = {}

    def reads_on(self, start: Offset, end: Offset) -> bool:
        """Someone reads from `start` to `end`: whether it goes on from where it stopped."""
        reads_on = start in self._stopped_at
        self._stopped_at.pop(start, None)
        self._stopped_at[end] = None
        if len(self._stopped_at) > MAX_PLACES:
            del self._stopped_at[next(iter(self._stopped_at))]
        return reads_on
