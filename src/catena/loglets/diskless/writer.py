"""The batching writer: entries of all partitions of a node share blobs.

    append -> forming blob -> upload -> line up for commit -> answer

Adaptive: a blob is sent at once when nothing is in flight, so a lone producer waits for nobody; those who were answered
together get a moment to come back together (`company`). While uploads are in flight entries gather, until the blob is
full or its first entry has waited for the delay limit. Several uploads run in parallel; commits keep the order in which
entries of a partition came in, whichever upload ends first.

Crash before or during the upload: nothing is in the log. After it: an orphan, which vacuum collects. An upload of
unknown outcome is done again under a new name, for the same reason.

What others have stored before lines up for commit at once. Nothing of it is held here; a crash before the commit leaves
it to whoever handed it over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Annotated, TypeAlias

import msgspec

from catena.errors import (
    BackPressure,
    BatchTooLarge,
    CatenaError,
    Conflict,
    OutcomeUnknown,
    StoreUnavailable,
)
from catena.formats import wal_blob
from catena.loglets.base import Entry, LinkSpec, Stored
from catena.loglets.diskless.commit import MAX_ENTRIES_PER_COMMIT, Committer
from catena.loglets.diskless.company import Company
from catena.loglets.diskless.counts import Reason, WriterCounts, WriterQueue
from catena.loglets.diskless.partition import Partition, Run
from catena.meta import keys
from catena.objects.base import ObjectStore
from catena.runtime import Clock, Entropy, Tasks
from catena.types import ABSENT, Buffers, Epoch, Offset

MAX_RUNS_PER_BLOB = 10_000
"""They are all named in the blob's header."""
UPLOAD_ATTEMPTS = 5
UPLOAD_BACKOFF_S = 0.05


AtLeast0: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
AtLeast1: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class WriterSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    batch_max_bytes: AtLeast1 = 8 << 20
    """A blob is sent once it holds this many bytes of batches."""
    batch_max_delay_ms: AtLeast0 = 250
    """The longest time that an entry waits for company while other blobs are in flight."""
    uploads_in_flight: AtLeast1 = 4
    buffer_max_bytes: AtLeast1 = 128 << 20
    """Bytes that were taken and not yet answered; past it appends get BackPressure."""
    commit_deadline_ms: AtLeast1 = 30_000
    """A blob that could not be committed so long after its upload began is dropped."""


class _Blob:
    """The runs that go into one object, in order of arrival."""

    __slots__ = ("entries", "reason", "runs", "size")

    def __init__(self) -> None:
        self.entries = 0
        self.reason: Reason = "full"
        self.runs: dict[tuple[Partition, Epoch], Run] = {}
        self.size = 0


class Writer:
    def __init__(
        self,
        objects: ObjectStore,
        committer: Committer,
        clock: Clock,
        entropy: Entropy,
        tasks: Tasks,
        cluster_id: str,
        settings: WriterSettings,
    ) -> None:
        self._objects = objects
        self._committer = committer
        self._clock = clock
        self._entropy = entropy
        self._tasks = tasks
        self._cluster_id = cluster_id
        self._settings = settings
        self._forming = _Blob()
        self._full: deque[_Blob] = deque()
        self._uploads = 0
        self._held_bytes = 0
        self._runs_in_flight = 0
        self._stored_runs = 0
        self._pump_scheduled = False
        self._closing = False
        self._delay: asyncio.TimerHandle | None = None
        self._company = Company()
        self._wait: asyncio.TimerHandle | None = None
        """Until the forming blob is sent, whoever has come by then."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.counts = WriterCounts()

    @property
    def queue(self) -> WriterQueue:
        return WriterQueue(self._held_bytes, self._forming.size, len(self._full), self._uploads)

    async def append(self, partition: Partition, link: LinkSpec, entry: Entry) -> Offset:
        size = len(entry.data)
        if size > self._settings.buffer_max_bytes:
            raise BatchTooLarge(f"a batch of {size} bytes does not fit the buffer of {self._settings.buffer_max_bytes}")
        if self._held_bytes + size > self._settings.buffer_max_bytes:
            self.counts.back_pressure += 1
            raise BackPressure(f"{self._held_bytes} bytes wait to be committed; slow down and try again")
        if self._closing:
            raise StoreUnavailable("the node is shutting down")
        waiter: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        self._hold(partition, link, entry, waiter, size)
        return await waiter

    async def append_stored(self, partition: Partition, link: LinkSpec, stored: Stored) -> Offset:
        if self._closing:
            raise StoreUnavailable("the node is shutting down")
        if any(held is partition for held, _ in self._forming.runs):
            # What is appended later must not join what stands before it in the line.
            self._full.append(self._forming)
            self._forming = _Blob()
            self._pump_soon()
        waiter: asyncio.Future[Offset] = asyncio.get_running_loop().create_future()
        run = Run(partition, link, self._stored_released)
        run.add(stored, waiter)
        run.data_key, run.byte_offset, run.created_at_ms = stored.key, stored.at, stored.created_at_ms
        run.deadline = self._clock.monotonic() + self._settings.commit_deadline_ms / 1000
        self._line_up(run)
        partition.runs.append(run)
        self._stored_runs += 1
        self._idle.clear()
        self._committer.submit([partition])
        return await waiter

    async def drain(self) -> None:
        """Return once everything that was taken is answered."""
        await self._idle.wait()

    async def close(self) -> None:
        """Take nothing more, and answer what was taken."""
        self._closing = True
        await self.drain()

    def _hold(
        self, partition: Partition, link: LinkSpec, entry: Entry, waiter: asyncio.Future[Offset], size: int
    ) -> None:
        blob = self._forming
        run = blob.runs.get((partition, link.epoch))
        if run is None:
            run = blob.runs[partition, link.epoch] = Run(partition, link, self._released)
            partition.runs.append(run)
        run.add(entry, waiter)
        blob.entries += 1
        blob.size += size
        self._held_bytes += size
        self._idle.clear()
        if (
            blob.size >= self._settings.batch_max_bytes
            or len(run.entries) >= MAX_ENTRIES_PER_COMMIT
            or len(blob.runs) >= MAX_RUNS_PER_BLOB
        ):
            self._full.append(blob)
            self._forming = _Blob()
        self._pump_soon()

    def _pump_soon(self) -> None:
        if not self._pump_scheduled:
            # Not yet: what else is appended in this turn of the loop comes along.
            self._pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_scheduled = False
        if self._tasks.closed:
            return
        while self._uploads < self._settings.uploads_in_flight:
            if self._full:
                self._send(self._full.popleft())
            elif self._forming.runs and self._runs_in_flight == 0 and not self._waits():
                self._send_forming()
            else:
                break
        if self._forming.runs and self._delay is None:
            delay_s = self._settings.batch_max_delay_ms / 1000
            self._delay = asyncio.get_running_loop().call_later(delay_s, self._delay_is_over)

    def _waits(self) -> bool:
        """Whether the forming blob waits for those who were just answered."""
        wait_s = self._company.wait_s(self._forming.entries, self._clock.monotonic())
        if wait_s <= 0:
            return False
        if self._wait is None:
            self._wait = asyncio.get_running_loop().call_later(wait_s, self._wait_is_over)
        return True

    def _wait_is_over(self) -> None:
        self._wait = None
        self._company.is_over(self._forming.entries)
        self._pump()

    def _delay_is_over(self) -> None:
        self._delay = None
        if self._forming.runs and not self._tasks.closed:
            self._forming.reason = "delay"
            self._full.append(self._forming)
            self._forming = _Blob()
            self._pump()

    def _send_forming(self) -> None:
        blob, self._forming = self._forming, _Blob()
        blob.reason = "idle"
        self._send(blob)

    def _send(self, blob: _Blob) -> None:
        if not self._forming.runs and self._delay is not None:
            self._delay.cancel()
            self._delay = None
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None
        runs = list(blob.runs.values())
        self.counts.blobs[blob.reason] += 1
        self.counts.blob_bytes.observe(blob.size)
        self.counts.blob_partitions.observe(len(runs))
        self._company.sent(blob.entries, self._clock.monotonic())
        self._uploads += 1
        self._runs_in_flight += len(runs)
        self._tasks.spawn("upload", self._upload(runs))

    async def _upload(self, runs: list[Run]) -> None:
        began = self._clock.monotonic()
        try:
            await self._put_blob(runs)
        except CatenaError as error:
            self.counts.upload_failures += 1
            self._drop(runs, error)
        except BaseException as error:
            self._drop(runs, StoreUnavailable(f"the upload was interrupted: {error!r}"))
            raise
        finally:
            self.counts.upload_seconds.observe(self._clock.monotonic() - began)
            self._uploads -= 1
            if not self._tasks.closed:
                self._committer.submit([run.partition for run in runs])
                self._pump()

    async def _put_blob(self, runs: list[Run]) -> None:
        deadline = self._clock.monotonic() + self._settings.commit_deadline_ms / 1000
        created_at_ms = self._clock.now_ms()
        chunks, positions = wal_blob.encode(self._cluster_id, created_at_ms, [_section(run) for run in runs])
        key = await self._put_under_new_name(chunks, deadline)
        for run, position in zip(runs, positions, strict=True):
            run.data_key, run.byte_offset = key, position
            run.created_at_ms, run.deadline = created_at_ms, deadline
            self._line_up(run)

    def _line_up(self, run: Run) -> None:
        run.uploaded, run.uploaded_at = True, self._clock.monotonic()
        self._committer.counts.queued_bytes += run.size

    async def _put_under_new_name(self, chunks: Buffers, deadline: float) -> str:
        trouble: CatenaError | None = None
        for attempt in range(UPLOAD_ATTEMPTS):
            key = keys.wal_blob(self._entropy.hex_id())
            try:
                await self._objects.put(key, chunks, ABSENT)
            except (OutcomeUnknown, StoreUnavailable, Conflict) as error:
                trouble = error
            else:
                return key
            if self._clock.monotonic() >= deadline:
                break
            await self._clock.sleep(UPLOAD_BACKOFF_S * 2**attempt * (0.5 + self._entropy.jitter()))
        raise StoreUnavailable(f"the blob could not be stored: {trouble}") from trouble

    def _drop(self, runs: list[Run], error: CatenaError) -> None:
        """None of it was committed: there is no blob that a commit could name."""
        for run in runs:
            run.partition.runs.remove(run)
            run.fail(error)
            run.release()

    def _released(self, size: int) -> None:
        self._held_bytes -= size
        self._runs_in_flight -= 1
        if self._runs_in_flight == 0:
            self._company.all_answered(self._forming.entries, self._clock.monotonic())
        self._look_if_idle()
        if not self._pump_scheduled and not self._tasks.closed:
            self._pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _stored_released(self, _size: int) -> None:
        self._stored_runs -= 1
        self._look_if_idle()

    def _look_if_idle(self) -> None:
        if self._held_bytes == 0 and self._stored_runs == 0:
            self._idle.set()


def _section(run: Run) -> wal_blob.Section:
    topic, topic_id, number = run.link.partition
    count = sum(entry.header.count for entry in run.entries)
    bodies = [entry.data for entry in run.entries if isinstance(entry, Entry)]
    return wal_blob.Section(topic, topic_id, number, count, wal_blob.KAFKA_BATCH_V2, bodies)
