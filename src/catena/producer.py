"""Appends of one process to one partition: in the order of the calls, each of them once, however the stores behave.

    append -> waiting -> [batch][batch][batch] -> answers
                          up to 5 in flight

What is appended while as many batches as may be are in flight waits, and goes out together as the next one. So a lone
append waits for nobody, and a thousand at once make a few batches.

Each batch carries this producer's id and the number of its first record. The log refuses a batch whose predecessor is
missing, and answers one that it already has with the offset it got at first. So whatever went wrong, it is right to
wait until everything in flight has been answered, and then to send what was not acked again, in the same order. That
holds after an unknown outcome, too. Three rules make it complete:

- No more batches are in flight than the log remembers of a producer.
- The log takes any number from a producer that it does not know, so the first batch of an id travels alone; and an id
  that has rested for long, and may have been forgotten, is not used again.
- A batch that is given up leaves a gap in the numbers, so what follows it goes on under a new id.

When the topic turns out to be gone, its name is looked up again: what was not appended goes to the topic that has the
name now.

A producer that dies with its process does not come back: the next one has another id, and what was in flight then is
in the log or not. Nothing is buffered that a caller does not wait for.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, TypeAlias

from catena.errors import OutcomeUnknown, OutOfOrderSequence, RetryLater, StoreUnavailable, UnknownTopic
from catena.formats.compression import Compression
from catena.formats.record_batch import parse_header
from catena.formats.records import Headers, build_batch
from catena.loglets.base import Entry
from catena.loglets.producers import EXPIRY_MS, REMEMBERED_BATCHES, advance_sequence
from catena.runtime import Clock, Entropy, Tasks
from catena.types import Offset
from catena.virtual_log.log import VirtualLog

BATCH_BYTES = 1 << 20
"""Appends that wait are gathered up to here; a single larger one is sent as it is."""
RECORD_OVERHEAD_BYTES = 16
RETRY_FOR_S = 60.0
"""More than one commit deadline, so that an unknown outcome is always asked about once more."""
FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 1.0
RESTED_TOO_LONG_S = EXPIRY_MS / 1000 / 2

NewRecord: TypeAlias = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers, timestamp in milliseconds."""


FindLog: TypeAlias = Callable[[VirtualLog | None], Awaitable[VirtualLog]]
"""Finds the log that a name stands for; a log that is known to be gone is passed, and is not the answer."""


class _Waiting(NamedTuple):
    records: Sequence[NewRecord]
    size: int
    compression: Compression
    first_offset: asyncio.Future[Offset]


class _Batch:
    """Some appends under way together."""

    __slots__ = ("answer", "appends", "entry", "first_sent", "maybe_applied", "tries")

    def __init__(self, appends: Sequence[_Waiting], now: float) -> None:
        self.appends = appends
        self.entry: Entry | None = None
        self.answer: Offset | Exception | None = None
        """Of the last try; None while it is under way."""
        self.maybe_applied = False
        """Whether some try had an unknown outcome."""
        self.tries = 0
        self.first_sent = now

    def stamp(self, producer_id: int, sequence: int) -> int:
        """Make the bytes, as this producer's batch from this number on; returns the number after it."""
        records = [record for append in self.appends for record in append.records]
        data = build_batch(
            records,
            compression=self.appends[0].compression,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=sequence,
        )
        self.entry = Entry(parse_header(data), data)
        return advance_sequence(sequence, len(records))

    def succeed(self, offset: Offset) -> None:
        for append in self.appends:
            if not append.first_offset.done():
                append.first_offset.set_result(offset)
            offset += len(append.records)

    def fail(self, error: Exception) -> None:
        if self.maybe_applied and not isinstance(error, OutcomeUnknown):
            unknown = OutcomeUnknown(f"it is not known whether the records were appended: {error}")
            unknown.__cause__ = error
            error = unknown
        for append in self.appends:
            if not append.first_offset.done():
                append.first_offset.set_exception(error)


class Producer:
    """Appends to one log. It has tasks only while something is under way."""

    _id: int
    _next_sequence: int
    _is_known: bool
    """Whether the log has a batch of this id."""
    _last_acked: float

    def __init__(self, name: str, find_log: FindLog, clock: Clock, entropy: Entropy, tasks: Tasks) -> None:
        self._name = name
        self._find_log = find_log
        self._log: VirtualLog | None = None
        self._gone: VirtualLog | None = None
        self._clock = clock
        self._entropy = entropy
        self._tasks = tasks
        self._waiting: deque[_Waiting] = deque()
        self._again: deque[_Batch] = deque()
        """Batches that were sent before, in order; they go before what waits."""
        self._under_way: list[_Batch] = []
        self._worker: asyncio.Task[None] | None = None
        self._something_happened = asyncio.Event()
        self._take_new_id()

    async def append(self, records: Sequence[NewRecord], compression: Compression = Compression.NONE) -> Offset:
        """Append these together, in one batch; returns the offset of the first.

        RetryLater: the stores were in trouble for longer than is waited for, and nothing was appended. OutcomeUnknown:
        it may have been; and so it may when the caller is cancelled.
        """
        if self._tasks.closed:
            raise StoreUnavailable("the log is closed")
        size = sum(RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") for key, value, _, _ in records)
        append = _Waiting(records, size, compression, asyncio.get_running_loop().create_future())
        self._waiting.append(append)
        self._something_happened.set()
        if self._worker is None:
            self._worker = self._tasks.spawn(f"append to {self._name}", self._work())
        return await append.first_offset

    async def drain(self) -> None:
        """Return once everything that was taken is answered."""
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _work(self) -> None:
        try:
            while self._waiting or self._again or self._under_way:
                self._something_happened.clear()
                self._answer_acked()
                if not any(isinstance(batch.answer, Exception) for batch in self._under_way):
                    self._send_more()
                elif all(batch.answer is not None for batch in self._under_way):
                    await self._recover()
                    continue
                if self._under_way:
                    await self._something_happened.wait()
        finally:
            self._worker = None
            self._abandon()

    def _answer_acked(self) -> None:
        left = []
        for batch in self._under_way:
            if isinstance(batch.answer, int):
                batch.succeed(batch.answer)
                self._is_known = True
                self._last_acked = self._clock.monotonic()
            else:
                left.append(batch)
        self._under_way = left

    def _send_more(self) -> None:
        while (self._again or self._waiting) and len(self._under_way) < (REMEMBERED_BATCHES if self._is_known else 1):
            batch = self._again.popleft() if self._again else self._form_batch()
            if batch is not None:
                batch.answer = None
                batch.tries += 1
                self._under_way.append(batch)
                self._tasks.spawn(f"send to {self._name}", self._try(batch))

    def _form_batch(self) -> _Batch | None:
        """A batch of what waits, if anybody still waits for it."""
        if not self._under_way and self._clock.monotonic() - self._last_acked > RESTED_TOO_LONG_S:
            self._take_new_id()
        appends = self._gather()
        if not appends:
            return None
        batch = _Batch(appends, self._clock.monotonic())
        try:
            self._next_sequence = batch.stamp(self._id, self._next_sequence)
        except Exception as error:  # what can't be written down must not stop the others
            batch.fail(error)
            return None
        return batch

    def _gather(self) -> list[_Waiting]:
        appends: list[_Waiting] = []
        size = 0
        while self._waiting:
            append = self._waiting[0]
            if appends and (size + append.size > BATCH_BYTES or append.compression is not appends[0].compression):
                break
            self._waiting.popleft()
            if not append.first_offset.done():
                appends.append(append)
                size += append.size
        return appends

    async def _try(self, batch: _Batch) -> None:
        assert batch.entry is not None
        try:
            if self._log is None:
                self._log = await self._find_log(self._gone)
            batch.answer = await self._log.append(batch.entry)
        except Exception as error:  # a bug, too, must reach the caller
            batch.answer = error
            batch.maybe_applied |= isinstance(error, OutcomeUnknown)
        self._something_happened.set()

    async def _recover(self) -> None:
        """Something has failed, and nothing is under way any more: all of it is sent again, or the first given up."""
        first = self._under_way[0]
        error = first.answer
        assert isinstance(error, Exception)
        self._again.extendleft(reversed(self._under_way))
        self._under_way = []
        if self._clock.monotonic() - first.first_sent > RETRY_FOR_S:
            self._give_up(first, error)
        elif isinstance(error, OutOfOrderSequence) and not first.maybe_applied:
            # Nothing is missing before it, so the log has forgotten this producer.
            self._start_over()
        elif isinstance(error, RetryLater | OutcomeUnknown):
            pause = min(FIRST_PAUSE_S * 2 ** min(first.tries, 16), LONGEST_PAUSE_S)
            await self._clock.sleep(pause * (0.5 + self._entropy.jitter() / 2))
        elif isinstance(error, UnknownTopic) and self._log is not None and not first.maybe_applied:
            self._gone, self._log = self._log, None
            self._start_over()
        else:
            self._give_up(first, error)

    def _give_up(self, first: _Batch, error: Exception) -> None:
        # If the first was surely not applied, those behind it were not either. Otherwise they may have been, and under
        # another id the log would not know them again.
        lost = [batch for batch in self._again if batch.maybe_applied] if first.maybe_applied else [first]
        for batch in lost:
            batch.fail(error)
            self._again.remove(batch)
        self._start_over()

    def _start_over(self) -> None:
        """Go on under a new id with what is left, none of which is in the log."""
        self._take_new_id()
        for batch in self._again:
            batch.maybe_applied = False
            self._next_sequence = batch.stamp(self._id, self._next_sequence)

    def _take_new_id(self) -> None:
        self._id = int(self._entropy.hex_id(), 16) % 2**63
        self._next_sequence = 0
        self._is_known = False
        self._last_acked = self._clock.monotonic()

    def _abandon(self) -> None:
        """There is nothing left, or the process ends and nobody can say what becomes of what is under way."""
        for batch in [*self._under_way, *self._again]:
            batch.fail(OutcomeUnknown(f"{self._name}: the log was closed while the records were under way"))
        for append in self._waiting:
            if not append.first_offset.done():
                append.first_offset.set_exception(StoreUnavailable("the log was closed before the records were sent"))
        self._under_way = []
        self._again.clear()
        self._waiting.clear()
