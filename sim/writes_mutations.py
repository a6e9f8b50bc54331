"""Deliberate bugs of writes by applications, each of which their scenario must catch. See `mutations`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from catena.formats.record_batch import BatchHeader
from catena.loglets import memory, producers
from catena.loglets.base import Stored
from catena.loglets.diskless import plan
from catena.loglets.producers import ProducerState
from catena.meta import keys
from catena.pipeline.references import References
from catena.source import adopting
from catena.source.adopting import Adopter, Written
from catena.types import ANY, Offset
from catena.virtual_log import intents
from catena.virtual_log.intents import Begun, Body, Done, Intent, Intents, WriteHead
from sim.mutating import Mutation, listing, nothing, replaced
from sim.writes_run import run_seed

WRITES_MUTATIONS: list[Mutation] = []
writes_mutation = listing(WRITES_MUTATIONS, run_seed)


@writes_mutation
def runs_that_come_too_late_are_taken() -> Iterator[None]:
    """Whoever slept appends what was appended meanwhile, and the log has forgotten it by then."""
    real = adopting._Partition._stored

    def for_ever(self: adopting._Partition, piece: adopting._Piece, _not_after_ms: int) -> Stored:
        return real(self, piece, 1 << 60)

    with replaced(adopting._Partition, "_stored", for_ever):
        yield


@writes_mutation
def runs_are_appended_without_a_look_at_their_producer() -> Iterator[None]:
    real = producers.find_duplicate

    def blind(state: ProducerState | None, header: BatchHeader) -> Offset | None:
        return None if header.producer_id >> adopting.ID_BITS else real(state, header)

    with replaced(plan, "find_duplicate", blind), replaced(memory, "find_duplicate", blind):
        yield


@writes_mutation
def who_comes_late_does_not_look_for_what_was_appended() -> Iterator[None]:
    async def none(_self: object, _pieces: object) -> set[adopting.Stamp]:
        return set()

    with replaced(adopting._Partition, "_look", none):
        yield


@writes_mutation
def blobs_of_intents_are_no_references() -> Iterator[None]:
    with replaced(References, "read_writes", nothing):
        yield


@writes_mutation
def a_second_attempts_runs_are_appended_too() -> Iterator[None]:
    """It finishes what was begun, and then goes on with its own."""
    real = Adopter.commit

    async def both(self: Adopter, version: int, written: Written) -> None:
        await real(self, version, written)
        if written.blobs:
            body = await self._body(written)
            intent = Intent(version, "0" * 32, self._clock.now_ms(), is_confirmed=True, body=body)
            await self._finish(intent)

    with replaced(Adopter, "commit", both):
        yield


@writes_mutation
def an_intent_is_published_over_one_that_is_open() -> Iterator[None]:
    async def blind(self: Intents, app: str, version: int, body: Body) -> Begun:
        intent = await self._prepare(app, version, body)
        head = await self.find(app)
        if head.done >= version:
            return Done(version)
        await self._meta.put(keys.write_head(app), intents._encode(WriteHead(head.done, intent)), ANY)
        return intent

    with replaced(Intents, "begin", blind):
        yield


@writes_mutation
def an_intent_is_confirmed_whatever_the_age_of_its_blobs() -> Iterator[None]:
    with replaced(Adopter, "_age_ms", lambda _self, _blobs: 0):
        yield


@writes_mutation
def a_write_is_over_before_all_of_it_is_appended() -> Iterator[None]:
    real = adopting._Partition.adopt

    async def some(self: adopting._Partition, intent: Intent, pieces: Sequence[Any]) -> None:
        await real(self, intent, pieces[:1])

    with replaced(adopting._Partition, "adopt", some):
        yield
