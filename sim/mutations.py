"""Deliberate protocol bugs, each of which the simulator must catch: what proves the checker and the workload.

A mutation is a context manager that replaces one function or method of the product by a broken one and puts it back.
It is named by the rule that it breaks. Some are mistakes of known systems, some were in this one until a seed found
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import msgspec

from catena.errors import OutcomeUnknown, StaleView, StoreUnavailable
from catena.loglets.base import Batch, Entry, LinkSpec, SealResult, Tail
from catena.loglets.diskless import commit_by_group, commit_by_pending, loglet, plan, seal
from catena.loglets.diskless.commit import Work
from catena.loglets.diskless.loglet import DisklessLoglet
from catena.loglets.diskless.materialize import materialize
from catena.loglets.diskless.partition import Partition
from catena.loglets.diskless.reader import Reader
from catena.loglets.diskless.records import Control, IndexEntry
from catena.loglets.diskless.tail_cache import TailCache
from catena.loglets.diskless.writer import Writer
from catena.meta import keys
from catena.meta.base import Group, MetaStore, Put
from catena.runtime import Clock
from catena.types import ANY, Buffers, Expect, Offset, TopicPartition, Version
from catena.virtual_log import chain as chains
from catena.virtual_log import log as log_module
from catena.virtual_log import reconfigure
from catena.virtual_log.chain import Chain
from catena.virtual_log.chain_store import ChainStore, Published
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topics import TopicRecord, Topics
from sim.run import Result, run_seed


class Mutation(NamedTuple):
    name: str
    broken: Callable[[], AbstractContextManager[None]]


MUTATIONS: list[Mutation] = []


def first_catch(mutation: Mutation, seeds: Iterable[int]) -> Result | None:
    """The first of these seeds that fails while the bug is in; None if it goes unnoticed."""
    with mutation.broken():
        return next((result for result in map(run_seed, seeds) if result.violations), None)


@contextmanager
def replaced(owner: Any, name: str, new: object) -> Iterator[None]:
    old = getattr(owner, name)
    setattr(owner, name, new)
    try:
        yield
    finally:
        setattr(owner, name, old)


def mutation(make: Callable[[], Iterator[None]]) -> Callable[[], AbstractContextManager[None]]:
    """Register the bug under the name of the function that lets it loose."""
    broken = contextmanager(make)
    MUTATIONS.append(Mutation(make.__name__.replace("_", " "), broken))
    return broken


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
def epoch_is_used_twice() -> Iterator[None]:
    real = chains.intend

    def same_epoch(chain: Chain, *args: Any) -> Chain:
        changed = real(chain, *args)
        assert changed.intent is not None
        return msgspec.structs.replace(changed, intent=msgspec.structs.replace(changed.intent, epoch=chain.last.epoch))

    with replaced(chains, "intend", same_epoch), replaced(chains, "_checked", lambda _, new: new):
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
    with replaced(seal, "materialize", _nothing):
        yield


@mutation
def producers_are_not_handed_over() -> Iterator[None]:
    with replaced(reconfigure, "create_handoff", _nothing):
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
def change_is_finished_by_whoever_sealed_for_another() -> Iterator[None]:
    real = chains.finish

    def anyones(chain: Chain, nonce: str, tail: Offset) -> Chain:
        return real(chain, chain.intent.nonce if chain.intent is not None else nonce, tail)

    with replaced(chains, "finish", anyones), replaced(chains, "_checked", lambda _, new: new):
        yield


@mutation
def chain_is_published_without_compare_and_set() -> Iterator[None]:
    real = ChainStore._publish

    async def overwrite(
        self: ChainStore, tp: TopicPartition, kind: str, signed: Chain, _expect: Version | Expect
    ) -> Published:
        return await real(self, tp, kind, signed, ANY)

    with replaced(ChainStore, "_publish", overwrite):
        yield


@mutation
def trim_deletes_index_entries_above_the_start() -> Iterator[None]:
    async def too_much(self: DisklessLoglet, offset: Offset) -> None:
        tp = self._link.partition
        await self._node.meta.delete_range(keys.index_prefix(tp), keys.index(tp, offset + 3))

    with replaced(DisklessLoglet, "trim", too_much):
        yield


@mutation
def deleted_topic_is_left_open_to_late_writers() -> Iterator[None]:
    async def name_only(self: Any, topic: TopicRecord) -> None:
        await self._free_name(topic)

    with replaced(Topics, "_finish_delete", name_only):
        yield


@mutation
def name_of_a_deleted_topic_becomes_absent_again() -> Iterator[None]:
    async def remove(self: Any, topic: TopicRecord) -> None:
        await self._meta.delete(keys.topic(topic.name))

    with replaced(Topics, "_free_name", remove):
        yield


@mutation
def pending_of_an_earlier_epoch_is_forgotten() -> Iterator[None]:
    async def of_this_epoch(meta: Any, link: LinkSpec, epoch: Any, pending: Any, expect: Any = None) -> Any:
        return await materialize(meta, link, epoch, pending, expect) if epoch == link.epoch else {}

    with replaced(seal, "materialize", _nothing), replaced(commit_by_pending, "materialize", of_this_epoch):
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
def start_comes_from_a_cache() -> Iterator[None]:
    async def cached(self: VirtualLog) -> Offset:
        return (await self.chain()).start

    with replaced(VirtualLog, "start", cached):
        yield


@mutation
def change_of_a_dead_node_is_left_unfinished() -> Iterator[None]:
    async def wait(_log: Any, chain: Chain) -> Chain:
        return chain

    with replaced(log_module, "finish", wait):
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
    with replaced(commit_by_pending.CommitByPending, "_verify", _nothing):
        yield


@mutation
def trim_deletes_the_handoff_of_a_link_that_is_left() -> Iterator[None]:
    real = VirtualLog.trim

    async def greedy(self: VirtualLog, offset: Offset) -> Offset:
        start = await real(self, offset)
        await self.meta.delete_range(keys.handoff(self.tp, 0), keys.handoff(self.tp, 1 << 60))
        return start

    with replaced(VirtualLog, "trim", greedy):
        yield


@mutation
def empty_read_below_the_start_is_taken_for_the_tail() -> Iterator[None]:
    real = VirtualLog._nothing_at

    async def at_tail(self: VirtualLog, offset: Offset) -> list[Batch]:
        return [] if offset == self._seen_tail else await real(self, offset)

    with replaced(VirtualLog, "_nothing_at", at_tail):
        yield


@mutation
def appends_wake_nobody_who_waits_for_the_tail() -> Iterator[None]:
    with replaced(Partition, "wake", lambda _: None):
        yield


async def _nothing(*_: Any) -> dict[int, Version]:
    return {}
