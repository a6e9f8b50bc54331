"""Deliberate bugs of the virtual log: its chain, changes of it, topics, and reads across links. See `mutations`.

Three that one might look for can't show here. A change of the chain that is not known again by its nonce: all that a
log does to its chain today (intend, finish, trim, tombstone) sees by itself that it was done; tests of `chain_store`
have it. An intent that is put in the place of another's: that is safe, since the seal tells both the same and only the
nonce that stands finishes. And the cut at a link's end in what a loglet returns: neither kind ever holds more, since a
seal and the tail that it seals are one write.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from catena.errors import OutcomeUnknown
from catena.loglets.base import Batch
from catena.meta import keys
from catena.types import ANY, Expect, Offset, TopicPartition, Version
from catena.virtual_log import chain as chains
from catena.virtual_log import log as log_module
from catena.virtual_log import reconfigure
from catena.virtual_log.chain import Chain, Link
from catena.virtual_log.chain_store import MAX_ATTEMPTS, ChainStore, Published
from catena.virtual_log.failed_producers import FailedProducers
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topics import TopicRecord, Topics
from sim.mutating import mutation, nothing, replaced


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
def producers_are_not_handed_over() -> Iterator[None]:
    with replaced(reconfigure, "create_handoff", nothing):
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
def chain_change_of_unknown_outcome_is_taken_for_done() -> Iterator[None]:
    async def hopeful(
        self: ChainStore, tp: TopicPartition, _kind: str, signed: Chain, expect: Version | Expect
    ) -> Published:
        try:
            return Published(signed, await self._meta.put(keys.chain(tp), msgspec.json.encode(signed), expect))
        except OutcomeUnknown:
            return Published(signed, expect)

    with replaced(ChainStore, "_publish", hopeful):
        yield


@mutation
def chain_change_of_unknown_outcome_is_repeated_blindly() -> Iterator[None]:
    async def stubborn(
        self: ChainStore, tp: TopicPartition, kind: str, signed: Chain, expect: Version | Expect
    ) -> Published:
        for _ in range(MAX_ATTEMPTS):
            try:
                return Published(signed, await self._meta.put(keys.chain(tp), msgspec.json.encode(signed), expect))
            except OutcomeUnknown:
                expect = (await self.load(tp, kind)).expect
        raise OutcomeUnknown("no attempt was answered")

    with replaced(ChainStore, "_publish", stubborn):
        yield


@mutation
def append_goes_on_to_a_link_that_is_only_intended() -> Iterator[None]:
    real = VirtualLog._find_next

    async def ahead(self: VirtualLog, link: Link, hop: int) -> None:
        chain = await self.refresh()
        if chain.intent is None or chain.intent.kind is None:
            await real(self, link, hop)
            return
        sealed = await self.loglet(chain.last).seal()
        self._chain = chains.finish(chain, chain.intent.nonce, sealed.tail)

    with replaced(VirtualLog, "_find_next", ahead):
        yield


@mutation
def intent_is_left_to_appends() -> Iterator[None]:
    real = reconfigure.reconfigure

    async def lazy(log: Any, kind: str | None, params: dict[str, Any]) -> Chain:
        chain: Chain = await log.refresh()
        return chain if chain.intent is not None else await real(log, kind, params)

    with replaced(log_module, "reconfigure", lazy):
        yield


@mutation
def ends_of_links_are_ignored_by_reads() -> Iterator[None]:
    def first(self: Chain, offset: Offset) -> Link | None:
        return next((link for link in self.links if link.base <= offset), None)

    with replaced(Chain, "link_at", first):
        yield


@mutation
def batches_sent_after_a_failed_one_are_taken() -> Iterator[None]:
    with replaced(FailedProducers, "note", lambda _self, _header, _now: None):
        yield
