"""Commit uploaded runs: line them up by partition, plan, compare-and-set, answer the appenders.

A partition is in one commit at a time, and takes along all runs that stand uploaded at the head of its line, so offsets
follow the order in which entries came in, and commits of a busy partition grow instead of queueing up. The commit
itself is done in one of two ways, `commit_by_group` or `commit_by_pending`, by what the meta store can do.

What an appender is told: an offset only after the compare-and-set is known to have happened; OutcomeUnknown if it can't
be told within the deadline; any other error only if it surely did not happen and can't happen any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from catena.errors import CatenaError, Contended, OutcomeUnknown, StoreUnavailable
from catena.loglets.base import Entry, LinkSpec
from catena.loglets.diskless.partition import KnownProducer, Partition, Run
from catena.loglets.diskless.plan import Plan, ProducerEpoch
from catena.loglets.diskless.tail_cache import TailCache
from catena.runtime import Clock, Entropy, Tasks

MAX_CALLS = 4
MAX_PARTITIONS_PER_CALL = 1000
MAX_ENTRIES_PER_COMMIT = 2000
"""Of one partition: what they leave in the control record has to fit a meta record."""


class Work:
    """One partition's part in a commit. Ends exactly once, by `finish` or by `fail`."""

    __slots__ = (
        "_ended",
        "_tail_cache",
        "deadline",
        "done",
        "known",
        "link",
        "partition",
        "plan",
        "producer_ids",
        "runs",
        "trouble",
        "unknown",
    )

    def __init__(
        self, partition: Partition, runs: Sequence[Run], tail_cache: TailCache, ended: Callable[[Work], None]
    ) -> None:
        self.partition = partition
        self.runs = runs
        self.link: LinkSpec = runs[0].link
        self.deadline = min(run.deadline for run in runs)
        headers = [entry.header for run in runs for entry in run.entries]
        self.producer_ids = list(dict.fromkeys(header.producer_id for header in headers if header.has_producer))
        self.plan: Plan | None = None
        self.unknown = False
        """Whether `plan` was sent and may have been applied, or may still be."""
        self.known: dict[int, KnownProducer] = {}
        """The producers that `plan` was made with."""
        self.trouble: CatenaError | None = None
        """Why the last attempt did not succeed."""
        self.done = False
        self._tail_cache = tail_cache
        self._ended = ended

    def ack(self) -> None:
        """The plan has come true: tell each appender what it has for them."""
        assert self.plan is not None
        for offset, entry in self.plan.placed:
            if isinstance(entry, Entry):
                self._tail_cache.add(self.partition.tp, offset, entry)
        if self.plan.placed:
            self.partition.see_tail(self.plan.control.next)
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

    def fail(self, error: CatenaError) -> None:
        if self.unknown and not isinstance(error, OutcomeUnknown):
            unknown = OutcomeUnknown(f"{self.partition.tp}: it is not known whether the append took place: {error}")
            unknown.__cause__ = error
            error = unknown
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
    def __init__(self, way: CommitWay, tail_cache: TailCache, tasks: Tasks) -> None:
        self._way = way
        self._tail_cache = tail_cache
        self._tasks = tasks
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
            for partition in list(self._ready)[:MAX_PARTITIONS_PER_CALL]:
                del self._ready[partition]
                partition.committing = True
                works.append(Work(partition, _head_runs(partition), self._tail_cache, self._ended))
            self._calls += 1
            self._tasks.spawn("commit", self._call(works))

    async def _call(self, works: Sequence[Work]) -> None:
        try:
            await self._way.commit(works)
        finally:
            self._calls -= 1
            for work in works:
                if not work.done:
                    work.unknown = True
                    work.fail(OutcomeUnknown(f"{work.partition.tp}: the commit was interrupted"))
            if not self._tasks.closed:
                self._pump()

    def _ended(self, work: Work) -> None:
        partition = work.partition
        for run in work.runs:
            assert partition.runs[0] is run
            partition.runs.popleft()
            run.release()
        partition.committing = False
        partition.forget_producers()
        self._line_up(partition)
        if not self._tasks.closed:
            self._pump()


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
