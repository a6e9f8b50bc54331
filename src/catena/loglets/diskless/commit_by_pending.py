"""Commit without `transact`: one compare-and-set of the control record, which carries what is still to be written.

    1. materialize what the last commit left in `pending`      crash: it stays pending
    2. compare-and-set {next, pending} in the control record   crash before: orphan blob; after: committed, see 1
    3. answer the appenders
    4. materialize our own pending                             crash: the next committer does it, as 1

`pending` is not cleared: the next commit replaces it, and until then it says what the index says. So a commit costs a
compare-and-set, a look at the boundary and an index entry, and one write for each idempotent producer.

An unknown outcome of 2 is settled by the append id: in `pending`, or, when others have committed since, in the index,
since they had to materialize ours first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from catena.errors import CatenaError, Conflict, Contended, OutcomeUnknown, StoreUnavailable
from catena.loglets.diskless.commit import Backoff, Work
from catena.loglets.diskless.materialize import materialize
from catena.loglets.diskless.plan import make_plan, opened
from catena.loglets.diskless.records import Control, Pending, decode_control, decode_index_entry, encode
from catena.meta import keys
from catena.meta.base import MetaStore, Record
from catena.runtime import Clock, Entropy
from catena.types import ABSENT, Version

log = logging.getLogger(__name__)

MAX_AT_ONCE = 32


class CommitByPending:
    def __init__(self, meta: MetaStore, clock: Clock, entropy: Entropy) -> None:
        self._meta = meta
        self._clock = clock
        self._entropy = entropy
        self._backoff = Backoff(clock, entropy)
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)

    async def commit(self, works: Sequence[Work]) -> None:
        await asyncio.gather(*(self._commit(work) for work in works))

    async def _commit(self, work: Work) -> None:
        async with self._slots:
            attempts = 0
            while not work.done and not self._backoff.expired(work):
                try:
                    await self._attempt(work)
                except (Contended, StoreUnavailable, OutcomeUnknown) as error:
                    work.trouble = error
                except CatenaError as error:
                    work.fail(error)
                attempts += 1
                if not work.done:
                    await self._backoff.pause(attempts, work.trouble)

    async def _attempt(self, work: Work) -> None:
        """One try. Raises Contended when it is to be planned anew, StoreUnavailable when it is to be tried again."""
        partition = work.partition
        if not work.unknown:
            await self._plan(work)
        plan = work.plan
        assert plan is not None
        if plan.is_empty:
            await self._verify(work)
            work.ack()
            work.finish()
            return
        pending = Pending(plan.append_id, plan.entries, plan.producers)
        after = msgspec.structs.replace(plan.control, pending=pending)
        try:
            version = await self._meta.put(keys.control(partition.tp), encode(after), partition.expect)
        except OutcomeUnknown:
            work.unknown = True
            raise
        except Conflict as conflict:
            # Looked at even if every answer came in: something on the way may have sent the write twice.
            try:
                stands = await self._stands(work, conflict.current)
            except StoreUnavailable:
                work.unknown = True  # nobody looked yet: the same plan again, not another one
                raise
            partition.see(conflict.current)
            if stands is None:
                work.fail(OutcomeUnknown(f"{partition.tp}: the index at {plan.entries[-1].end_offset} has moved on"))
                return
            if not stands:
                work.unknown = False
                raise Contended("others committed first") from None
            work.ack()
        else:
            self._take_over(work, after, version)
            work.ack()
            await self._materialize_own(work, pending)
        work.finish()

    async def _plan(self, work: Work) -> None:
        partition, link = work.partition, work.link
        control = opened(partition.control, link)
        if work.producer_ids:
            await partition.load_handoff(link)
        await self._settle_pending(work)
        # Read after the control record was and before the compare-and-set: if that succeeds they were right.
        unknown = [each for each in work.producer_ids if each not in partition.producers]
        found = await asyncio.gather(*(self._meta.get(keys.producer(partition.tp, each)) for each in unknown))
        learnt = {
            each: partition.learn_producer(link, each, record) for each, record in zip(unknown, found, strict=True)
        }
        work.known = {each: learnt.get(each) or partition.producers[each] for each in work.producer_ids}
        states = {each: known.state for each, known in work.known.items()}
        now_ms, work.planned_at = self._clock.now_ms(), self._clock.monotonic()
        work.plan = make_plan(control, work.runs, states, partition.failed, self._entropy.hex_id(), now_ms)

    async def _settle_pending(self, work: Work) -> None:
        """Write down what the last commit left; its producers are then known without being read."""
        partition, link, last = work.partition, work.link, work.partition.control
        if last is None or last.pending is None or partition.materialized:
            return
        versions = await materialize(self._meta, link, last.epoch, last.pending)
        partition.materialized = True
        if last.epoch == link.epoch and partition.has_handoff(link):
            for producer_id, version in versions.items():
                partition.remember_producer(producer_id, last.pending.producers[producer_id], version)

    async def _verify(self, work: Work) -> None:
        """Nothing is to be written, only answered: make sure that what it was judged by is still so."""
        partition = work.partition
        record = await self._meta.get(keys.control(partition.tp))
        if (ABSENT if record is None else record.version) != partition.expect:
            partition.see(record)
            raise Contended("others committed first")

    async def _stands(self, work: Work, found: Record | None) -> bool | None:
        """Whether a plan that is refused now was applied before; if not it can't be any more. None: unclear."""
        plan, tp = work.plan, work.partition.tp
        assert plan is not None
        if found is not None:
            pending = decode_control(found.key, found.value).pending
            if pending is not None and pending.append_id == plan.append_id:
                return True
        last = plan.entries[-1]
        record = await self._meta.get(keys.index(tp, last.end_offset))
        if record is not None:
            return decode_index_entry(record.key, record.value).append_id == plan.append_id
        if not work.unknown:
            return False  # a second sending so long ago that its entry is gone is not worth failing for
        # Asked after the index: an entry at or above the boundary is never deleted, so its absence means something.
        return None if await work.link.boundary() > last.end_offset else False

    def _take_over(self, work: Work, after: Control, version: Version) -> None:
        partition, plan = work.partition, work.plan
        assert plan is not None
        partition.control, partition.expect, partition.materialized = after, version, False
        for producer_id, state in plan.producers.items():
            partition.remember_producer(producer_id, state, work.known[producer_id].expect)

    async def _materialize_own(self, work: Work, pending: Pending) -> None:
        partition, plan = work.partition, work.plan
        assert plan is not None
        expect = {producer_id: known.expect for producer_id, known in work.known.items()}
        try:
            versions = await materialize(self._meta, work.link, plan.control.epoch, pending, expect)
        except CatenaError as error:
            log.info("%s: append %s stays pending: %s", partition.tp, pending.append_id, error)
            return
        partition.materialized = True
        for producer_id, state in pending.producers.items():
            if producer_id in versions:
                partition.remember_producer(producer_id, state, versions[producer_id])
            else:
                partition.producers.pop(producer_id, None)
