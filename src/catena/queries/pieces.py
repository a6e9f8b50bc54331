"""Ranges of a log in pieces of bounded size, read by threads that may wait, while the event loop does the downloads.

A piece whose objects are gone has moved since it was planned: it was tiered, merged or compacted, and vacuumed. It is
looked for again, and read from where it is now.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from catena.errors import DataLoss, ObjectMissing, OffsetOutOfRange
from catena.node import Node
from catena.objects.base import ObjectStore
from catena.source.planning import OffsetRange
from catena.source.reading import Aside, fetch_extents, group, read_split
from catena.source.splitting import Split, cut_by_extents
from catena.types import Buffer
from catena.virtual_log.extents import find_extents
from catena.virtual_log.topics import TopicRecord

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

LOOKS = 5
"""For a piece, until nothing of it is collected meanwhile."""


class Stopped(Exception):
    """Nobody waits for the answer any more."""


def pieces_of(splits: Iterable[Split]) -> list[Split]:
    """What is downloaded at once, each."""
    return [
        msgspec.structs.replace(
            split,
            start=max(split.start, extents[0].offset),
            end=min(split.end, extents[-1].end),
            extents=tuple(extents),
        )
        for split in splits
        for extents in group(split.extents)
    ]


class PieceReader:
    """Of one topic. Made on the event loop; `read` is for all other threads, and would wait for ever on its own."""

    def __init__(self, node: Node, objects: ObjectStore, topic: TopicRecord) -> None:
        self._node = node
        self._objects = objects
        self._topic = topic
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: list[Future[Any]] = []
        self._is_stopped = False

    def read(self, piece: Split, columns: Sequence[str], aside: Aside | None = None) -> Iterator[pa.RecordBatch]:
        """Raises DataLoss if it is nowhere any more, and Stopped."""
        for part, bodies in self._fetch(piece, LOOKS):
            # It is one group, so it is asked for at once.
            yield from read_split(part, columns, lambda _, given=bodies: given, aside)  # type: ignore[misc]

    def stop(self) -> None:
        """Whoever waits is let go, and nobody waits again."""
        with self._lock:
            self._is_stopped = True
            for future in self._waiting:
                future.cancel()

    def _fetch(self, piece: Split, looks: int) -> Iterator[tuple[Split, Sequence[Buffer]]]:
        try:
            bodies = self._wait(fetch_extents(self._objects, piece.extents))
        except ObjectMissing as error:
            if looks == 1:
                raise self._lost(error) from error
        else:
            yield piece, bodies
            return
        for part in self._wait(self._find(piece)):
            yield from self._fetch(part, looks - 1)

    async def _find(self, piece: Split) -> list[Split]:
        log = self._node.open_log(self._topic, piece.partition)
        try:
            extents = await find_extents(log, piece.start, piece.end)
        except (OffsetOutOfRange, ObjectMissing) as error:
            raise self._lost(error) from error
        return pieces_of(cut_by_extents([OffsetRange(piece.tp, piece.start, piece.end)], extents))

    def _lost(self, error: Exception) -> DataLoss:
        return DataLoss(f"topic {self._topic.name}: {error}; vacuum collects what has moved meanwhile: ask again")

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        with self._lock:
            if self._is_stopped:
                work.close()
                raise Stopped
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._waiting.append(future)
        try:
            return future.result()
        except CancelledError:
            raise Stopped from None
        finally:
            with self._lock:
                self._waiting.remove(future)
