"""Hears what other processes of this host have committed: reads their rings when it is woken, and now and then.

A writer wakes it by a byte in its pipe. One that does not know of it yet, or that finds the pipe full, does not; so it
looks by itself every `TICK_S`, for new rings as well. A ring whose writer is gone is read to its end and deleted.

It starts with the first who wants to hear something, so a process that only writes has no pipe.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from catena.loglets.diskless.tail_folder import MAX_RINGS, RingFile, TailFolder
from catena.loglets.diskless.tail_ring import Frame, NotARing, RingReader, Wanted
from catena.runtime import Clock, Tasks

log = logging.getLogger(__name__)

TICK_S = 0.25
RETRY_S = 60.0
PIPE_BYTES = 64 << 10
MAX_IGNORED = 1024


class _Ring:
    __slots__ = ("file", "has_more", "reader")

    def __init__(self, file: RingFile, reader: RingReader) -> None:
        self.file = file
        self.reader = reader
        self.has_more = False
        """Whether the last poll has left something."""


class TailListener:
    def __init__(
        self,
        folder: TailFolder,
        history: str,
        clock: Clock,
        wanted: Wanted,
        heard: Callable[[Sequence[Frame]], None],
        missed: Callable[[], None],
    ) -> None:
        """`missed` is called when something that was wanted may never be heard."""
        self._folder = folder
        self._history = history
        self._clock = clock
        self._wanted = wanted
        self._heard = heard
        self._missed = missed
        self._tasks = Tasks("tail listener")
        self._pipe: tuple[Path, int] | None = None
        self._not_before = float("-inf")
        self._rings: dict[str, _Ring] = {}
        self._ignored: dict[str, None] = {}
        self._polling = False
        self.lost = 0
        """How often a writer was too fast, or what it wrote could not be read."""

    @property
    def rings(self) -> int:
        """How many are read."""
        return len(self._rings)

    def start(self) -> None:
        """Returns at once if it runs."""
        if self._pipe is not None or self._tasks.closed or self._clock.monotonic() < self._not_before:
            return
        try:
            self._folder.sweep()
            self._pipe = self._folder.create_wake()
        except OSError as error:
            self._not_before = self._clock.monotonic() + RETRY_S
            log.warning("tails of other processes are not heard for %g s: %s", RETRY_S, error.strerror)
            return
        asyncio.get_running_loop().add_reader(self._pipe[1], self._woken)
        self._tasks.spawn("look now and then", self._tick())
        self._look()

    async def close(self) -> None:
        await self._tasks.close()
        if self._pipe is not None:
            path, fd = self._pipe
            asyncio.get_running_loop().remove_reader(fd)
            self._pipe = None
            with suppress(OSError):
                path.unlink()
            os.close(fd)
        for ring in self._rings.values():
            ring.file.close()
        self._rings.clear()

    def poll(self) -> None:
        """Hear what there is to hear by now, without waiting for the byte that says so."""
        if not self._polling:  # else there is more than fits one turn
            self._poll()

    def _woken(self) -> None:
        if self._pipe is not None:
            with suppress(BlockingIOError):
                os.read(self._pipe[1], PIPE_BYTES)
            self.poll()

    async def _tick(self) -> None:
        while True:
            await self._clock.sleep(TICK_S)
            self._look()

    def _look(self) -> None:
        """Find new rings, read all, and let go of those whose writers are gone."""
        gone = [name for name, ring in self._rings.items() if ring.file.is_abandoned()]
        names = self._folder.rings()
        self._ignored = {name: None for name in names if name in self._ignored}
        for name in names:
            if name not in self._rings and name not in self._ignored and len(self._rings) < MAX_RINGS:
                self._open(name)
        self._poll()
        for name in gone:
            ring = self._rings.get(name)
            if ring is not None and not ring.has_more:
                del self._rings[name]
                ring.file.delete()
                ring.file.close()

    def _open(self, name: str) -> None:
        file = self._folder.open_ring(name)
        if file is not None:
            try:
                self._rings[name] = _Ring(file, RingReader(file, self._history))
                return
            except (NotARing, OSError) as error:
                log.debug("%s is not read: %s", name, error)
                file.close()
        if len(self._ignored) < MAX_IGNORED:
            self._ignored[name] = None

    def _poll(self) -> None:
        frames: list[Frame] = []
        lost = more = False
        for name, ring in list(self._rings.items()):
            try:
                polled = ring.reader.poll(self._wanted)
            except OSError as error:
                log.warning("%s can't be read any more: %s", name, error.strerror)
                self._rings.pop(name).file.close()
                self._ignored[name] = None
                lost = True
                continue
            frames += polled.frames
            ring.has_more = polled.more
            lost, more = lost or polled.lost, more or polled.more
        if frames:
            # Of a log that several processes append to each has a part: put together they have no gaps.
            frames.sort(key=_offset)
            self._heard(frames)
        if lost:
            self.lost += 1
            self._missed()
        if more and not self._polling:
            self._polling = True
            asyncio.get_running_loop().call_soon(self._poll_on)

    def _poll_on(self) -> None:
        self._polling = False
        if not self._tasks.closed:
            self._poll()


def _offset(frame: Frame) -> int:
    return frame.offset
