"""Commit with `transact`: control record, index entries and producer records of a partition are one atomic group.

All partitions of a commit go in one call; one that is fenced or contended is refused alone. A refusal brings back the
records that were found, so the next attempt needs no reads: what is not known at first is guessed to be absent.

Crash before the call: nothing happened, the blobs are orphans. Crash after it: the commit stands, the appender never
hears of it. An unknown outcome: the same group is sent again; it expects the versions it was planned from, so it
applies at most once, and where it is refused the index entry tells whose append stands there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from catena.errors import CatenaError, Contended, Corrupt, OutcomeUnknown, Sealed, StoreUnavailable
from catena.loglets.diskless.commit import Backoff, Work
from catena.loglets.diskless.materialize import materialize
from catena.loglets.diskless.plan import make_plan, opened
from catena.loglets.diskless.records import ProducerRecord, decode_index_entry, encode
from catena.meta import keys
from catena.meta.base import Check, Committed, Group, GroupResult, MetaStore, Op, Put, Refused
from catena.runtime import Clock, Entropy
from catena.types import ABSENT


class CommitByGroup:
    def __init__(self, meta: MetaStore, clock: Clock, entropy: Entropy) -> None:
        self._meta = meta
        self._clock = clock
        self._entropy = entropy
        self._backoff = Backoff(clock, entropy)

    async def commit(self, works: Sequence[Work]) -> None:
        left = list(works)
        attempts = 0
        while left := [work for work in left if not self._backoff.expired(work)]:
            fresh = [work for work in left if not work.unknown]
            await asyncio.gather(*(self._load(work) for work in fresh if _has_to_load(work)))
            for work in fresh:
                self._plan(work)
            planned = [work for work in left if not work.done and work.plan is not None]
            if planned:
                await self._send(planned)
            left = [work for work in left if not work.done]
            attempts += 1
            if left:
                await self._backoff.pause(attempts, left[0].trouble)

    async def _load(self, work: Work) -> None:
        """Leftovers of other links and of the other way to commit; nothing else costs a round trip before the call."""
        partition, link = work.partition, work.link
        try:
            if partition.control is not None and partition.control.pending is not None and not partition.materialized:
                await materialize(self._meta, link, partition.control.epoch, partition.control.pending)
                partition.materialized = True
            await partition.load_handoff(link)
        except (StoreUnavailable, OutcomeUnknown, Contended) as error:
            work.trouble = error
        except CatenaError as error:
            work.fail(error)

    def _plan(self, work: Work) -> None:
        """Plan from what is known; producers that are not known are guessed to be as the link found them."""
        partition, link = work.partition, work.link
        work.plan = None
        if work.done or _has_to_load(work):
            return
        try:
            control = opened(partition.control, link)
        except Sealed as error:
            work.fail(error)
            return
        work.known = {
            each: partition.producers.get(each) or partition.learn_producer(link, each, None)
            for each in work.producer_ids
        }
        states = {each: known.state for each, known in work.known.items()}
        now_ms, work.planned_at = self._clock.now_ms(), self._clock.monotonic()
        work.plan = make_plan(control, work.runs, states, partition.failed, self._entropy.hex_id(), now_ms)

    async def _send(self, works: list[Work]) -> None:
        try:
            results = await self._meta.transact([_group(work) for work in works])
        except (OutcomeUnknown, StoreUnavailable) as error:
            for work in works:
                work.trouble = error
                work.unknown = work.unknown or isinstance(error, OutcomeUnknown)
        except CatenaError as error:
            for work in works:
                work.fail(error)
        else:
            for work, result in zip(works, results, strict=True):
                await self._take(work, result)

    async def _take(self, work: Work, result: GroupResult) -> None:
        if isinstance(result, Committed):
            _remember(work, result)
            work.ack()
            work.finish()
            return
        try:
            stands = work.unknown and await _stands(work, result)
            _learn(work, result)
        except StoreUnavailable as error:
            work.trouble = error  # still unknown: the same group is sent, and refused, once more
            return
        except CatenaError as error:
            work.fail(error)
            return
        if stands:
            work.ack()
            work.finish()
        else:
            work.unknown = False
            work.trouble = Contended("others committed first")


def _has_to_load(work: Work) -> bool:
    partition = work.partition
    return not partition.materialized or bool(work.producer_ids and not partition.has_handoff(work.link))


def _group(work: Work) -> Group:
    """The control record first, then the index entries, then one operation for each producer."""
    partition, plan = work.partition, work.plan
    assert plan is not None
    tp = partition.tp
    ops: list[Op] = []
    if plan.is_empty:
        # Duplicates and rejections only: they are right if what they were judged by still holds.
        ops.append(Check(keys.control(tp), partition.expect))
    else:
        ops.append(Put(keys.control(tp), encode(plan.control), partition.expect))
    ops += [Put(keys.index(tp, entry.end_offset), encode(entry), ABSENT) for entry in plan.entries]
    for producer_id, known in work.known.items():
        key, state = keys.producer(tp, producer_id), plan.producers.get(producer_id)
        if state is not None:
            ops.append(Put(key, encode(ProducerRecord(plan.control.epoch, state)), known.expect))
        else:
            ops.append(Check(key, known.expect))
    return ops


def _remember(work: Work, result: Committed) -> None:
    """The plan came true: it is what the next commit starts from."""
    partition, plan = work.partition, work.plan
    assert plan is not None
    control, *others = result.versions
    if control is not None:
        partition.control, partition.expect, partition.materialized = plan.control, control, True
    for producer_id, version in zip(work.known, others[len(plan.entries) :], strict=True):
        if version is not None:
            partition.remember_producer(producer_id, plan.producers[producer_id], version)


def _learn(work: Work, result: Refused) -> None:
    """Take over what the refusal found."""
    partition, plan = work.partition, work.plan
    assert plan is not None
    control, *others = result.found
    if control is not None and control.version == partition.expect and any(others[: len(plan.entries)]):
        raise Corrupt(
            f"{partition.tp}: the index has entries at or after {plan.entries[0].start_offset}, the next offset"
        )
    partition.see(control)
    for producer_id, record in zip(work.known, others[len(plan.entries) :], strict=True):
        partition.learn_producer(work.link, producer_id, record)


async def _stands(work: Work, result: Refused) -> bool:
    """Whether a plan of unknown outcome, now refused, was applied before. If not it never will be."""
    plan = work.plan
    assert plan is not None
    if plan.is_empty:
        return False
    last = plan.entries[-1]
    found = result.found[len(plan.entries)]
    if found is not None:
        return decode_index_entry(found.key, found.value).append_id == plan.append_id
    if await work.link.boundary() > last.end_offset:
        raise OutcomeUnknown(f"{work.partition.tp}: the index around {last.end_offset} has moved on; nothing can tell")
    return False
