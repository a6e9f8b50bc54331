"""Commit uploaded runs: line them up by partition, plan, compare-and-set, answer the appenders.

A partition is in one commit at a time, and takes along all runs that stand uploaded at the head of its line, so offsets
follow the order in which entries came in, and commits of a busy partition grow instead of queueing up. The commit
itself is done in one of two ways, `commit_by_group` or `commit_by_pending`, by what the meta store can do.

What an appender is told: an offset only after the compare-and-set is known to have happened; OutcomeUnknown if it can't
be told within the deadline; any other error only if it surely did not happen and can't happen any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Protocol, TypeAlias

from catena.counting import add_to
from catena.errors import CatenaError, Contended, OutcomeUnknown, StoreUnavailable
from catena.loglets.base import Entry, LinkSpec, Receipt, Stored
from catena.loglets.diskless.counts import CommitCounts
from catena.loglets.diskless.partition import KnownProducer, Partition, Run
from catena.loglets.diskless.plan import Plan, ProducerEpoch
from catena.loglets.diskless.tail_cache import TailCache
from catena.meta import keys
from catena.runtime import Clock, Entropy, Tasks
from catena.types import Epoch, Offset, TopicPartition

Publish: TypeAlias = Callable[[TopicPartition, Epoch, Offset, Entry | Stored, float], None]
"""Tells others of an entry that was committed, at this offset, through the link of this epoch, and not before then."""

MAX_CALLS = 4
MAX_PARTITIONS_PER_CALL = 1000
MAX_ENTRIES_PER_COMMIT = 2000
"""Of one partition: what they leave in the control record has to fit a meta record."""

_end_offset = attrgetter("end_offset")


class Work:
    """One partition's part in a commit. Ends exactly once, by `finish` or by `fail`."""

    __slots__ = (
        "_ended",
        "_publish",
        "_tail_cache",
        "acked",
        "deadline",
        "done",
        "known",
        "link",
        "partition",
        "plan",
        "planned_at",
        "producer_ids",
        "runs",
        "trouble",
        "unknown",
    )

    def __init__(
        self,
        partition: Partition,
        runs: Sequence[Run],
        tail_cache: TailCache,
        publish: Publish | None,
        ended: Callable[[Work], None],
    ) -> None:
        self.partition = partition
        self.runs = runs
        self.link: LinkSpec = runs[0].link
        self.deadline = min(run.deadline for run in runs)
        headers = [entry.header for run in runs for entry in run.entries]
        self.producer_ids = list(dict.fromkeys(header.producer_id for header in headers if header.has_producer))
        self.plan: Plan | None = None
        self.planned_at = float("-inf")
        """By the monotonic clock: whatever it does to the log happens later."""
        self.unknown = False
        """Whether `plan` was sent and may have been applied, or may still be."""
        self.known: dict[int, KnownProducer] = {}
        """The producers that `plan` was made with."""
        self.trouble: CatenaError | None = None
        """Why the last attempt did not succeed."""
        self.done = False
        self.acked = False
        self._tail_cache = tail_cache
        self._publish = publish
        self._ended = ended

    def ack(self) -> None:
        """The plan has come true: tell each appender what it has for them."""
        assert self.plan is not None
        self.acked = True
        epoch = self.plan.control.epoch
        for offset, entry in self.plan.placed:
            if isinstance(entry, Entry):
                self._tail_cache.add(self.partition.tp, offset, entry)
                if entry.receipt is not None:
                    self._fill_in(entry.receipt, offset)
            if self._publish is not None:
                self._publish(self.partition.tp, epoch, offset, entry, self.planned_at)
        if self.plan.placed:
            self.partition.told(epoch, self.plan.control.next, self.planned_at)
        for producer_id, state in self.plan.producers.items():
            self.partition.failed.pop(ProducerEpoch(producer_id, state.epoch), None)
        for run, answers in zip(self.runs, self.plan.answers, strict=True):
            for waiter, answer in zip(run.waiters, answers, strict=True):
                if waiter.done():
                    continue
                if isinstance(answer, int):
                    waiter.set_result(answer)
                else:
                    waiter.set_exception(answer)

    def _fill_in(self, receipt: Receipt, offset: Offset) -> None:
        assert self.plan is not None
        entry = self.plan.entries[bisect_left(self.plan.entries, offset, key=_end_offset)]
        receipt.index_key, receipt.object_key = keys.index(self.partition.tp, entry.end_offset), entry.data_key

    def fail(self, error: CatenaError) -> None:
        if self.unknown and not isinstance(error, OutcomeUnknown):
            unknown = OutcomeUnknown(f"{self.partition.tp}: it is not known whether the append took place: {error}")
            unknown.__cause__ = error
            error = unknown
        self.trouble = error
        for run in self.runs:
            run.fail(error)
        self.finish()

    def finish(self) -> None:
        assert not self.done
        self.done = True
        self._ended(self)


class CommitWay(Protocol):
    async def commit(self, works: Sequence[Work]) -> None:
        """Finish every work, one way or the other."""


class Backoff:
    """When to try again, and when to give up. A lost race calls for a short pause, a troubled store for a long one."""

    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy

    def expired(self, work: Work) -> bool:
        """Fail the work if its deadline has passed; the blob that it could not commit is dropped."""
        if self._clock.monotonic() < work.deadline:
            return False
        kind = StoreUnavailable if isinstance(work.trouble, StoreUnavailable | OutcomeUnknown) else Contended
        reason = work.trouble or "its turn did not come in time"
        work.fail(kind(f"{work.partition.tp}: not committed within the deadline: {reason}"))
        return True

    async def pause(self, attempts: int, trouble: CatenaError | None) -> None:
        """Wait before the next attempt; `attempts` were made so far.

        What a refusal found is only good at once, since others commit on: whoever always paused after it would lose
        for ever against one who need not. So every other refusal is answered without a pause.
        """
        if not isinstance(trouble, Contended):
            await self._sleep(min(0.01 * 2 ** min(attempts, 10), 0.5))
        elif attempts % 2 == 0:
            await self._sleep(min(0.0005 * attempts, 0.01))

    async def _sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds * (0.5 + self._entropy.jitter()))


class Committer:
    def __init__(
        self, way: CommitWay, tail_cache: TailCache, clock: Clock, tasks: Tasks, publish: Publish | None = None
    ) -> None:
        self._way = way
        self._tail_cache = tail_cache
        self._publish = publish
        self._clock = clock
        self._tasks = tasks
        self.counts = CommitCounts()
        self._ready: dict[Partition, None] = {}
        self._calls = 0

    def submit(self, partitions: Sequence[Partition]) -> None:
        """The lines of these partitions have changed: runs were uploaded, or have failed and left."""
        for partition in partitions:
            self._line_up(partition)
        self._pump()

    def _line_up(self, partition: Partition) -> None:
        if not partition.committing and partition.runs and partition.runs[0].uploaded:
            self._ready[partition] = None

    def _pump(self) -> None:
        while self._ready and self._calls < MAX_CALLS:
            works = []
            now = self._clock.monotonic()
            for partition in list(self._ready)[:MAX_PARTITIONS_PER_CALL]:
                del self._ready[partition]
                partition.committing = True
                runs = _head_runs(partition)
                for run in runs:
                    self.counts.wait_seconds.observe(now - run.uploaded_at)
                works.append(Work(partition, runs, self._tail_cache, self._publish, self._ended))
            self._calls += 1
            self._tasks.spawn("commit", self._call(works))

    async def _call(self, works: Sequence[Work]) -> None:
        began = self._clock.monotonic()
        try:
            await self._way.commit(works)
        finally:
            self.counts.commit_seconds.observe(self._clock.monotonic() - began)
            self._calls -= 1
            for work in works:
                if not work.done:
                    work.unknown = True
                    work.fail(OutcomeUnknown(f"{work.partition.tp}: the commit was interrupted"))
            if not self._tasks.closed:
                self._pump()

    def _ended(self, work: Work) -> None:
        partition = work.partition
        self._count(work)
        for run in work.runs:
            assert partition.runs[0] is run
            partition.runs.popleft()
            self.counts.queued_bytes -= run.size
            run.release()
        partition.committing = False
        partition.forget_producers()
        self._line_up(partition)
        if not self._tasks.closed:
            self._pump()

    def _count(self, work: Work) -> None:
        counts = self.counts
        if not work.acked:
            add_to(counts.failures, type(work.trouble).__name__)
            return
        assert work.plan is not None
        placed = [entry for _, entry in work.plan.placed]
        counts.batches_per_partition.observe(len(placed))
        counts.batches += len(placed)
        counts.records += sum(entry.header.count for entry in placed)
        counts.bytes += sum(entry.size for entry in placed)
        counts.duplicates += sum(len(run.entries) for run in work.runs) - len(placed)


def _head_runs(partition: Partition) -> list[Run]:
    """The uploaded runs at the head of the line that came through the same link: at least one."""
    runs: list[Run] = []
    entries = 0
    for run in partition.runs:
        entries += len(run.entries)
        if not run.uploaded or run.link.epoch != partition.runs[0].link.epoch:
            break
        if runs and entries > MAX_ENTRIES_PER_COMMIT:
            break
        runs.append(run)
    return runs
