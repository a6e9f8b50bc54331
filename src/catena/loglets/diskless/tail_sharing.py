"""What processes of one host tell each other of their commits, so that readers at the tail need not ask the stores.

A process publishes every batch that it commits, and hears of those of others (`tail_wire`). What it hears of a log that
somebody reads here goes into the tail cache, beside its own commits, and wakes who waits.

- **What is served is right.** Only batches that are committed are published, and these never change. They are told
  with the epoch of their link; one of another epoch than this process knows is not taken, since only the chain tells
  where links begin and end. Who reads goes by the chain as ever, and so do trims, seals and deletes.
- **What is not heard is found.** A gap, a batch that was evicted, a ring that was too fast, a writer that died or has
  no ring: the tail cache lacks it, and the reader goes to the index. What was lost wakes everybody who waits, to look.
- **Who waits leaves the store alone for `TRUST_S`.** A commit tells that the log ended just there at that moment. Nodes
  of other hosts may go on from there, and processes that share nothing: so who waits for more begins to watch the store
  a second after the last commit that it knows of, and hears of theirs so much later. The second counts from before the
  commit was sent, not from when it was heard of: whoever committed may have been stopped in between. That is all that
  is later than without sharing. Who asks, and does not wait, is told what the store says: a read that finds nothing
  at the tail, and `tail`, are linearizable as ever.
- **Restored meta stores.** A ring names the cluster and the branch of its history (`virtual_log/incarnation.py`), and
  is only ever opened while its writer lives. So what an accepted restore has undone is not heard of afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from catena.formats.record_batch import parse_header
from catena.loglets.base import Entry, Stored
from catena.loglets.diskless.counts import TailCounts
from catena.loglets.diskless.partition import Partition
from catena.loglets.diskless.tail_cache import TailCache
from catena.loglets.diskless.tail_ring import Frame
from catena.loglets.diskless.tail_wire import ConnectTails, Hearing
from catena.runtime import Clock
from catena.types import Epoch, Offset, TopicId, TopicPartition

TRUST_S = 1.0
WANTED_S = 60.0
"""Of a log that nobody has read for so long nothing is kept."""


class TailSharing:
    def __init__(self, connect: ConnectTails, tail_cache: TailCache, clock: Clock) -> None:
        self._clock = clock
        self._tail_cache = tail_cache
        self._read: dict[tuple[TopicId, int], Partition] = {}
        self.wire = connect(Hearing(self._is_wanted, self._heard, self._missed))
        self.heard = 0
        """Batches of others that were taken over."""
        self._heard_bytes = 0
        self._gaps = 0
        self._fallbacks = 0
        self.told: Callable[[Partition], None] = _nothing
        """Called when another process has told of a commit to this partition."""

    def publish(self, tp: TopicPartition, epoch: Epoch, offset: Offset, entry: Entry | Stored, at: float) -> None:
        # What was stored before is told of without its bytes: they never were here.
        data = entry.data if isinstance(entry, Entry) else b""
        self.wire.publish(Frame(tp.topic_id, tp.partition, epoch, offset, entry.header.count, at, data))

    def want(self, partition: Partition) -> None:
        """Somebody reads this log here, or waits for more of it."""
        partition.wanted_at = self._clock.monotonic()
        self._read[partition.tp.topic_id, partition.tp.partition] = partition
        self.wire.start()

    def forget(self, partition: Partition) -> None:
        self._read.pop((partition.tp.topic_id, partition.tp.partition), None)
        partition.told_from = -1

    def hear(self) -> None:
        """Take over what others have published by now."""
        self.wire.poll()

    def not_cached(self, partition: Partition, offset: Offset) -> None:
        """Somebody reads this offset, which the log reaches, and has to ask the stores for it."""
        if 0 <= partition.told_from <= offset:
            self._fallbacks += 1

    def counts(self) -> TailCounts:
        wire = self.wire.counts()
        return TailCounts(
            published_batches=wire.published_batches,
            published_bytes=wire.published_bytes,
            left_out_batches=wire.left_out_batches,
            rings=wire.rings,
            heard_batches=self.heard,
            heard_bytes=self._heard_bytes,
            gaps=self._gaps,
            lost=wire.lost,
            evicted_batches=self._tail_cache.evicted,
            fallbacks=self._fallbacks,
        )

    def trusted_s(self, partition: Partition, epoch: Epoch) -> float:
        """For how long who waits may leave it to others to tell of what comes; 0 or less: not at all."""
        if partition.told_epoch != epoch or partition.told_tail != partition.tail:
            return 0.0
        return partition.told_at + TRUST_S - self._clock.monotonic()

    async def close(self) -> None:
        await self.wire.close()

    def _is_wanted(self, topic_id: TopicId, number: int) -> bool:
        partition = self._read.get((topic_id, number))
        if partition is None:
            return False
        if self._clock.monotonic() - partition.wanted_at < WANTED_S:
            return True
        self.forget(partition)
        return False

    def _heard(self, frames: Sequence[Frame]) -> None:
        now = self._clock.monotonic()
        for frame in frames:
            partition = self._read.get((frame.topic_id, frame.partition))
            if partition is None:
                continue
            end = self._tail_cache.end(partition.tp)
            if len(frame.data) and frame.offset >= (end or 0) and frame.epoch == partition.epoch:
                self._tail_cache.add(partition.tp, frame.offset, Entry(parse_header(frame.data), frame.data))
                self.heard += 1
                self._heard_bytes += len(frame.data)
                self._gaps += end is not None and frame.offset > end
            if partition.told_from < 0:
                partition.told_from = frame.offset
            # A writer in another container may have another clock: what comes from the future is as old as now.
            partition.told(frame.epoch, frame.end, min(frame.at, now))
            self.told(partition)

    def _missed(self) -> None:
        for partition in self._read.values():
            partition.told_at = float("-inf")
            partition.wake()


def _nothing(_partition: Partition) -> None:
    pass
