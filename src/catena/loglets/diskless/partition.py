"""What one node knows of one partition: a cache of its control record and producers, and the line of runs to commit.

Everything here is a view that may be old. It is safe to act on, because every commit is conditional on it and a refusal
brings the current records along; it is not safe to answer from, so answers about the tail read the store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from catena.errors import CatenaError, Sealed
from catena.loglets.base import Entry, LinkSpec, Stored
from catena.loglets.diskless.plan import ProducerEpoch
from catena.loglets.diskless.records import Control, decode_control, decode_producer
from catena.loglets.pieces import Places
from catena.loglets.producers import ProducerState
from catena.meta.base import Record
from catena.types import ABSENT, Epoch, Expect, Offset, TopicPartition, Version

MAX_CACHED_PRODUCERS = 1000


class Run:
    """What one blob holds of one partition, written through one link."""

    __slots__ = (
        "_released",
        "byte_offset",
        "created_at_ms",
        "data_key",
        "deadline",
        "entries",
        "link",
        "partition",
        "size",
        "uploaded",
        "uploaded_at",
        "waiters",
    )

    def __init__(self, partition: Partition, link: LinkSpec, released: Callable[[int], None]) -> None:
        self.partition = partition
        self.link = link
        self.size = 0
        self._released = released
        self.entries: list[Entry | Stored] = []
        self.waiters: list[asyncio.Future[Offset]] = []
        self.data_key = ""
        self.byte_offset = 0
        self.created_at_ms = 0
        self.deadline = 0.0
        self.uploaded = False
        self.uploaded_at = 0.0

    def add(self, entry: Entry | Stored, waiter: asyncio.Future[Offset]) -> None:
        self.entries.append(entry)
        self.waiters.append(waiter)
        self.size += entry.size

    def release(self) -> None:
        """Its entries are no longer held here, whatever became of them."""
        self._released(self.size)

    def fail(self, error: CatenaError) -> None:
        if not isinstance(error, Sealed):  # then the entries go on to the next link, all of them
            self.partition.note_failed(self.entries)
        for waiter in self.waiters:
            if not waiter.done():
                waiter.set_exception(error)


class KnownProducer(NamedTuple):
    state: ProducerState | None
    expect: Version | Expect


class Partition:
    __slots__ = (
        "_handoff",
        "_handoff_epoch",
        "committing",
        "control",
        "epoch",
        "expect",
        "failed",
        "materialized",
        "places",
        "producers",
        "runs",
        "tail",
        "tail_waiters",
        "told_at",
        "told_epoch",
        "told_from",
        "told_tail",
        "tp",
        "wanted_at",
        "watch",
        "watch_lingers",
        "watched_in_store",
    )

    def __init__(self, tp: TopicPartition) -> None:
        self.tp = tp
        self.control: Control | None = None
        self.expect: Version | Expect = ABSENT
        """Nothing is known at first, and most partitions are new: a wrong guess costs one refusal, which tells."""
        self.materialized = True
        """Whether what `control.pending` stands for is known to be in the index."""
        self.producers: dict[int, KnownProducer] = {}
        self.failed: dict[ProducerEpoch, int] = {}
        """The least first sequence number of the batches that failed since one was committed: see `plan.make_plan`."""
        self.places = Places()
        self.runs: deque[Run] = deque()
        self.committing = False
        self.tail: Offset = -1
        """The greatest `next` that was ever seen; -1: none."""
        self.epoch: Epoch = 0
        """The greatest of the links that were opened here."""
        self.told_tail: Offset = -1
        """Where the log ended after the newest commit that this process has made or was told of; -1: none."""
        self.told_epoch: Epoch = 0
        """Of the link of that commit."""
        self.told_at = float("-inf")
        """It was not made before this moment, by the monotonic clock."""
        self.told_from: Offset = -1
        """From here on other processes have told of commits, since somebody reads the log here; -1: they have not."""
        self.wanted_at = float("-inf")
        self.tail_waiters: list[asyncio.Future[None]] = []
        self.watch: asyncio.Task[None] | None = None
        self.watch_lingers = False
        self.watched_in_store: LinkSpec | None = None
        """The link whose tail `watch` watches in the meta store; None: it does not, or not yet."""
        self._handoff: Mapping[int, ProducerState] = {}
        self._handoff_epoch: Epoch | None = None

    def see(self, record: Record | None) -> None:
        """Take over the control record as a refusal brought it. For the committer only: it plans from all of this."""
        self.producers.clear()
        if record is None:
            self.control, self.expect, self.materialized = None, ABSENT, True
            return
        self.control, self.expect = decode_control(record.key, record.value), record.version
        self.materialized = self.control.pending is None
        self.see_tail(self.control.next)

    def see_tail(self, tail: Offset) -> None:
        if tail > self.tail:
            self.tail = tail
            self.wake()

    def told(self, epoch: Epoch, tail: Offset, at: float) -> None:
        """A commit moved the tail there, and not before `at`: all below is in the log, and nothing else was then."""
        if tail > self.told_tail:
            self.told_tail, self.told_epoch, self.told_at = tail, epoch, at
        self.see_tail(tail)

    def surely_reaches(self, epoch: Epoch) -> Offset:
        """The log has all offsets below this one, and they are in the link of this epoch; -1: not known."""
        return self.told_tail if self.told_epoch == epoch else -1

    def wake(self) -> None:
        waiters, self.tail_waiters = self.tail_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def note_failed(self, entries: Sequence[Entry | Stored]) -> None:
        for entry in entries:
            if entry.header.has_producer:
                producer = ProducerEpoch(entry.header.producer_id, entry.header.producer_epoch)
                # Uploads run in parallel: a later batch may be the first to fail, and an earlier one fail after it.
                sequence = entry.header.base_sequence
                self.failed[producer] = min(sequence, self.failed.get(producer, sequence))
        while len(self.failed) > MAX_CACHED_PRODUCERS:
            del self.failed[next(iter(self.failed))]

    def has_handoff(self, link: LinkSpec) -> bool:
        return self._handoff_epoch == link.epoch

    async def load_handoff(self, link: LinkSpec) -> Mapping[int, ProducerState]:
        """Producer state at the base of the link; it never changes, so it is read once.

        What was cached through another link says nothing here: that link had another handoff.
        """
        if not self.has_handoff(link):
            self._handoff = await link.handoff()
            self._handoff_epoch = link.epoch
            self.producers.clear()
        return self._handoff

    def learn_producer(self, link: LinkSpec, producer_id: int, record: Record | None) -> KnownProducer:
        """Take over a producer's record as the store has it; one that an earlier link wrote counts as unwritten."""
        assert self._handoff_epoch == link.epoch
        state = self._handoff.get(producer_id)
        if record is None:
            return self.remember_producer(producer_id, state, ABSENT)
        written = decode_producer(record.key, record.value)
        if written.link_epoch == link.epoch:
            state = written.state
        return self.remember_producer(producer_id, state, record.version)

    def remember_producer(
        self, producer_id: int, state: ProducerState | None, expect: Version | Expect
    ) -> KnownProducer:
        self.producers.pop(producer_id, None)
        known = self.producers[producer_id] = KnownProducer(state, expect)
        return known

    def forget_producers(self) -> None:
        """Keep the cache small. Between commits only: one that forgets what it has just learned learns for ever."""
        while len(self.producers) > MAX_CACHED_PRODUCERS:
            del self.producers[next(iter(self.producers))]
