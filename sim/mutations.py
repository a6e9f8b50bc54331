"""Deliberate protocol bugs, each of which the simulator must catch: what proves the checker and the workload.

A mutation is a context manager that replaces one function or method of the product by a broken one and puts it back.
It is named by the rule that it breaks. Some are mistakes of known systems, some were in this one until a seed found
them. Those of the loglet and of sessions are here, those of the chain in `chain_mutations`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from catena.broker.long_polls import LongPolls, News
from catena.errors import OutcomeUnknown, StaleView, StoreUnavailable
from catena.loglets.base import Batch, Entry, LinkSpec, SealResult, Tail
from catena.loglets.diskless import commit_by_group, commit_by_pending, loglet, plan, seal
from catena.loglets.diskless import materialize as materialize_module
from catena.loglets.diskless.commit import Work
from catena.loglets.diskless.loglet import DisklessLoglet
from catena.loglets.diskless.materialize import materialize
from catena.loglets.diskless.partition import Partition, Run
from catena.loglets.diskless.reader import Reader
from catena.loglets.diskless.records import Control, IndexEntry, ProducerRecord, encode
from catena.loglets.diskless.tail_cache import TailCache
from catena.loglets.diskless.writer import Writer
from catena.meta import keys
from catena.meta.base import Group, MetaStore, Put
from catena.meta.sessions import KeptSession
from catena.runtime import Clock
from catena.types import ANY, Buffers, Offset, TopicPartition, Version
from catena.virtual_log.log import VirtualLog
from sim import chain_mutations
from sim.mutating import MUTATIONS, Mutation, mutation, nothing, replaced

__all__ = ["MUTATIONS", "Mutation", "chain_mutations"]


@mutation
def pending_is_overwritten_before_it_is_in_the_index() -> Iterator[None]:
    async def own_only(meta: Any, link: Any, epoch: Any, pending: Any, expect: Any = None) -> Any:
        return {} if expect is None else await materialize(meta, link, epoch, pending, expect)

    with replaced(commit_by_pending, "materialize", own_only):
        yield


@mutation
def append_is_acked_before_it_is_committed() -> Iterator[None]:
    real = commit_by_group.CommitByGroup._send

    async def eager(self: Any, works: list[Work]) -> None:
        for work in works:
            work.ack()
        await real(self, works)

    with replaced(commit_by_group.CommitByGroup, "_send", eager):
        yield


@mutation
def fence_is_ignored_by_appends() -> Iterator[None]:
    real = plan.opened

    def unfenced(control: Control | None, link: LinkSpec) -> Control:
        if control is not None and control.epoch == link.epoch:
            return msgspec.structs.replace(control, state="OPEN")
        return real(control, link)

    with replaced(commit_by_group, "opened", unfenced), replaced(commit_by_pending, "opened", unfenced):
        yield


@mutation
def epoch_is_ignored_by_appends() -> Iterator[None]:
    def any_epoch(control: Control | None, link: LinkSpec) -> Control:
        return control if control is not None else Control(link.epoch, "OPEN", link.base)

    with replaced(commit_by_group, "opened", any_epoch), replaced(commit_by_pending, "opened", any_epoch):
        yield


@mutation
def commit_of_unknown_outcome_is_retried_blindly() -> Iterator[None]:
    async def never(*_: Any) -> bool:
        return False

    with (
        replaced(commit_by_group, "_stands", never),
        replaced(commit_by_pending.CommitByPending, "_stands", never),
    ):
        yield


@mutation
def commit_of_unknown_outcome_is_called_failed() -> Iterator[None]:
    real = Work.fail

    def sure(self: Work, error: Any) -> None:
        self.unknown = False
        real(self, StoreUnavailable("surely not") if isinstance(error, OutcomeUnknown) else error)

    with replaced(Work, "fail", sure):
        yield


@mutation
def commit_is_not_conditional_on_the_control_record() -> Iterator[None]:
    real = commit_by_group._group

    def unconditional(work: Work) -> Group:
        first, *others = real(work)
        return [Put(first.key, first.value, ANY) if isinstance(first, Put) else first, *others]

    with replaced(commit_by_group, "_group", unconditional):
        yield


@mutation
def seal_takes_its_tail_before_it_fences() -> Iterator[None]:
    async def early(meta: MetaStore, clock: Clock, link: LinkSpec) -> SealResult:
        before = seal._found(await meta.get(keys.control(link.partition))).control
        sealed = await seal.seal(meta, clock, link)
        is_ours = before is not None and before.epoch == link.epoch
        return sealed._replace(tail=before.next) if before is not None and is_ours else sealed

    with replaced(loglet, "seal", early):
        yield


@mutation
def seal_forgets_producers_that_are_still_pending() -> Iterator[None]:
    with replaced(seal, "materialize", nothing):
        yield


@mutation
def duplicates_are_not_looked_for() -> Iterator[None]:
    with replaced(plan, "find_duplicate", lambda _state, _header: None):
        yield


@mutation
def producers_of_another_link_are_trusted() -> Iterator[None]:
    real = Partition.learn_producer

    def careless(self: Partition, link: LinkSpec, producer_id: int, record: Any) -> Any:
        known = real(self, link, producer_id, record)
        return self.remember_producer(producer_id, self._handoff.get(producer_id), known.expect)

    with replaced(Partition, "learn_producer", careless):
        yield


@mutation
def latest_offset_comes_from_a_cache() -> Iterator[None]:
    async def cached(_self: Reader, partition: Partition, link: LinkSpec) -> Tail:
        return Tail(max(partition.tail, link.base), sealed=False)

    with replaced(Reader, "tail", cached):
        yield


@mutation
def reader_does_not_look_at_pending() -> Iterator[None]:
    async def gone(_self: Reader, partition: Partition, offset: Offset) -> list[IndexEntry]:
        raise StaleView(f"{partition.tp}: offset {offset} is not in the index")

    with replaced(Reader, "_find_pending", gone):
        yield


@mutation
def tail_cache_bridges_gaps() -> Iterator[None]:
    def blindly(self: TailCache, tp: TopicPartition, offset: Offset, entry: Entry) -> None:
        tail = self._tails.get(tp)
        real(
            self, tp, tail.batches[-1].end if tail is not None and tail.batches and tail.batches[-1] else offset, entry
        )

    real = TailCache.add
    with replaced(TailCache, "add", blindly):
        yield


@mutation
def what_is_not_committed_yet_is_told_to_other_processes() -> Iterator[None]:
    real = commit_by_group.CommitByGroup._send

    async def eager(self: Any, works: list[Work]) -> None:
        for work in works:
            if work.plan is not None and work._publish is not None:
                for offset, entry in work.plan.placed:
                    work._publish(work.partition.tp, work.plan.control.epoch, offset, entry, work.planned_at)
        await real(self, works)

    with replaced(commit_by_group.CommitByGroup, "_send", eager):
        yield


@mutation
def nothing_new_is_believed_while_other_processes_tell_of_commits() -> Iterator[None]:
    real = Reader.read

    async def believing(self: Reader, partition: Partition, link: LinkSpec, *asked: int) -> list[Batch]:
        if asked[0] == partition.tail and self._trusted_s(partition, link) > 0:
            return []
        return await real(self, partition, link, *asked)

    with replaced(Reader, "read", believing):
        yield


@mutation
def last_look_of_a_long_poll_goes_by_what_is_remembered() -> Iterator[None]:
    real = LongPolls.has_nothing

    def remembering(self: LongPolls, of: VirtualLog, offset: Offset, news: News | None) -> bool:
        return real(self, of, offset, news or {})

    with replaced(LongPolls, "has_nothing", remembering):
        yield


@mutation
def upload_of_unknown_outcome_is_taken_for_done() -> Iterator[None]:
    async def hopeful(self: Any, chunks: Buffers, _deadline: float) -> str:
        key = keys.wal_blob(self._entropy.hex_id())
        try:
            await self._objects.put(key, chunks)
        except OutcomeUnknown:
            pass
        return key

    with replaced(Writer, "_put_under_new_name", hopeful):
        yield


@mutation
def trim_deletes_index_entries_above_the_start() -> Iterator[None]:
    async def too_much(self: DisklessLoglet, offset: Offset) -> None:
        tp = self._link.partition
        await self._node.meta.delete_range(keys.index_prefix(tp), keys.index(tp, offset + 3))

    with replaced(DisklessLoglet, "trim", too_much):
        yield


@mutation
def pending_of_an_earlier_epoch_is_forgotten() -> Iterator[None]:
    async def of_this_epoch(meta: Any, link: LinkSpec, epoch: Any, pending: Any, expect: Any = None) -> Any:
        return await materialize(meta, link, epoch, pending, expect) if epoch == link.epoch else {}

    with replaced(seal, "materialize", nothing), replaced(commit_by_pending, "materialize", of_this_epoch):
        yield


@mutation
def refused_commit_keeps_what_it_knew_of_producers() -> Iterator[None]:
    real = Partition.see

    def keep(self: Partition, record: Any) -> None:
        kept = dict(self.producers)
        real(self, record)
        self.producers.update(kept)

    with replaced(Partition, "see", keep):
        yield


@mutation
def sealed_links_tail_is_taken_for_the_logs() -> Iterator[None]:
    real = Reader.tail

    async def unsealed(self: Reader, partition: Partition, link: LinkSpec) -> Tail:
        return (await real(self, partition, link))._replace(sealed=False)

    with replaced(Reader, "tail", unsealed):
        yield


@mutation
def unknown_outcome_is_forgotten_when_the_retry_is_refused() -> Iterator[None]:
    real = commit_by_pending.CommitByPending._attempt

    async def forgetful(self: Any, work: Work) -> None:
        try:
            await real(self, work)
        except StoreUnavailable:
            work.unknown = False
            raise

    with replaced(commit_by_pending.CommitByPending, "_attempt", forgetful):
        yield


@mutation
def rejection_is_judged_by_an_old_view() -> Iterator[None]:
    with replaced(commit_by_pending.CommitByPending, "_verify", nothing):
        yield


@mutation
def appends_wake_nobody_who_waits_for_the_tail() -> Iterator[None]:
    with replaced(Partition, "wake", lambda _: None):
        yield


@mutation
def materialize_does_not_look_at_the_boundary() -> Iterator[None]:
    async def nowhere() -> Offset:
        return 0

    async def blindly(meta: Any, link: LinkSpec, epoch: Any, pending: Any, expect: Any = None) -> Any:
        return await materialize(meta, link._replace(boundary=nowhere), epoch, pending, expect)

    with (
        replaced(commit_by_group, "materialize", blindly),
        replaced(commit_by_pending, "materialize", blindly),
        replaced(seal, "materialize", blindly),
    ):
        yield


@mutation
def materialize_overwrites_what_is_in_the_index() -> Iterator[None]:
    async def overwrite(meta: MetaStore, tp: TopicPartition, entry: IndexEntry) -> None:
        await meta.put(keys.index(tp, entry.end_offset), encode(entry))

    with replaced(materialize_module, "_create_index_entry", overwrite):
        yield


@mutation
def materialize_takes_producers_back() -> Iterator[None]:
    async def overwrite(
        meta: MetaStore, tp: TopicPartition, producer_id: int, record: ProducerRecord, _expect: Any
    ) -> Version:
        return await meta.put(keys.producer(tp, producer_id), encode(record))

    with replaced(materialize_module, "_advance_producer", overwrite):
        yield


@mutation
def uploads_are_committed_in_the_order_in_which_they_end() -> Iterator[None]:
    real = Writer._put_blob

    async def first_come(self: Writer, runs: list[Run]) -> None:
        await real(self, runs)
        for run in runs:
            line = run.partition.runs
            line.remove(run)
            line.insert(next((at for at, other in enumerate(line) if not other.uploaded), len(line)), run)

    with replaced(Writer, "_put_blob", first_come):
        yield


@mutation
def batches_behind_a_failed_one_are_taken() -> Iterator[None]:
    with replaced(Partition, "note_failed", lambda _self, _entries: None):
        yield


@mutation
def renewal_of_unknown_outcome_is_taken_for_done() -> Iterator[None]:
    real = KeptSession._renew_once

    async def hopeful(self: KeptSession) -> None:
        sent = self._clock.monotonic()
        await real(self)
        self._deadline = sent + self._ttl_s

    with replaced(KeptSession, "_renew_once", hopeful):
        yield


@mutation
def session_is_believed_in_until_its_loss_is_told() -> Iterator[None]:
    with replaced(KeptSession, "alive", property(lambda self: not self._over)):
        yield
