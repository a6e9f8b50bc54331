"""Tells the other processes of this host what this one has committed, as soon as it is acked: into a ring of its own.

Opportunistic throughout. Nobody who appends waits for it or hears of its troubles: files are written by a thread of its
own, what waits for that thread is bounded and what does not fit is left out, and after an error the ring is deleted,
and made anew a while later. What is left out is read from the stores, as it would be without all this.

The ring is made with the first commit, so a process that only reads has none.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress

from catena.loglets.diskless.tail_folder import MAX_RINGS, RingFile, TailFolder
from catena.loglets.diskless.tail_ring import HEAD_BYTES, Frame, RingWriter
from catena.runtime import Clock, Disk, Tasks

log = logging.getLogger(__name__)

RETRY_S = 60.0
LOOK_S = 0.25
"""How often it looks for readers that are new; until then these look by themselves."""


class TailPublisher:
    def __init__(self, folder: TailFolder, ring_bytes: int, history: str, clock: Clock) -> None:
        self._folder = folder
        self._ring_bytes = ring_bytes
        self._history = history
        self._clock = clock
        self._disk = Disk(threads=1)
        self._tasks = Tasks("tail publisher")
        self._waiting: list[Frame] = []
        self._waiting_bytes = 0
        self._writing = False
        self.published = 0
        """Batches that readers could find."""
        self.published_bytes = 0
        self.left_out = 0
        # What follows is used by the thread alone.
        self._file: RingFile | None = None
        self._ring: RingWriter | None = None
        self._not_before = float("-inf")
        self._wakes: dict[str, int] = {}
        self._looked_at = float("-inf")

    def publish(self, frame: Frame) -> None:
        if self._tasks.closed or self._waiting_bytes > self._ring_bytes // 4:
            self.left_out += 1
            return
        self._waiting.append(frame)
        self._waiting_bytes += HEAD_BYTES + len(frame.data)
        if not self._writing:
            self._writing = True
            # It begins in the next turn of the loop: what else is acked in this one comes along.
            self._tasks.spawn("publish", self._write_all())

    async def close(self) -> None:
        if self._tasks.closed:
            return
        await self._tasks.close()
        await self._disk.run(self._close_files)  # behind whatever the thread still does
        self._disk.close()

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                frames, self._waiting = self._waiting, []
                await self._disk.run(self._write, frames)
                self._waiting_bytes -= sum(HEAD_BYTES + len(frame.data) for frame in frames)
        finally:
            self._writing = False

    def _write(self, frames: list[Frame]) -> None:
        try:
            ring = self._ring or self._make_ring()
            if ring is None:
                self.left_out += len(frames)
                return
            ring.append(frames)
            self.published += len(frames)
            self.published_bytes += sum(len(frame.data) for frame in frames)
            self._wake_readers()
        except OSError as error:
            self._give_up(f"{error.strerror}", len(frames))

    def _make_ring(self) -> RingWriter | None:
        if self._clock.monotonic() < self._not_before:
            return None
        self._folder.sweep()
        if len(self._folder.rings()) >= MAX_RINGS:
            self._give_up(f"{MAX_RINGS} processes share their tails there, which is the limit", 0)
            return None

        def prepare(file: RingFile) -> None:
            self._ring = RingWriter(file, self._ring_bytes, self._history)

        try:
            self._file = self._folder.create_ring(self._ring_bytes, prepare)
        except BaseException:
            self._ring = None
            raise
        return self._ring

    def _give_up(self, reason: str, left_out: int) -> None:
        self.left_out += left_out
        self._not_before = self._clock.monotonic() + RETRY_S
        self._ring = None
        if self._file is not None:
            self._file.delete()
            self._file.close()
            self._file = None
        log.warning("what is appended here is not shared with other processes for %g s: %s", RETRY_S, reason)

    def _wake_readers(self) -> None:
        now = self._clock.monotonic()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._find_readers()
        for name, fd in list(self._wakes.items()):
            try:
                os.write(fd, b"\n")
            except BlockingIOError:
                pass  # it is full: whoever reads it will be woken
            except OSError:
                os.close(self._wakes.pop(name))

    def _find_readers(self) -> None:
        names = self._folder.wakes()
        for name in self._wakes.keys() - set(names):
            os.close(self._wakes.pop(name))
        for name in names[:MAX_RINGS]:
            if name not in self._wakes and (fd := self._folder.open_wake(name)) is not None:
                self._wakes[name] = fd

    def _close_files(self) -> None:
        for fd in self._wakes.values():
            with suppress(OSError):
                os.close(fd)
        self._wakes.clear()
        if self._file is not None:
            self._file.delete()
            self._file.close()
            self._file = self._ring = None
