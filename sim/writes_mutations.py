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
from catena.meta.base import MetaStore
from catena.pipeline import vacuum
from catena.pipeline.references import References
from catena.source import adopting
from catena.source.adopting import Adopter, Written
from catena.types import ANY, Offset
from catena.virtual_log import intents
from catena.virtual_log.intents import Begun, Body, Done, Intent, Intents, WriteHead
from sim.chaos import Tally
from sim.mutating import Mutation, listing, nothing, replaced
from sim.trial import Result
from sim.writes_run import run_seed
from sim.writes_world import draw

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


def _run_if_large(seed: int) -> Result:
    """Other seeds can't show it, and are not looked at, to save time."""
    return run_seed(seed) if draw(seed).large else Result(seed, [], "", 0, Tally())


mutation_of_large_bodies = listing(WRITES_MUTATIONS, _run_if_large)


@mutation_of_large_bodies
def bodies_that_nobody_has_begun_stay() -> Iterator[None]:
    async def none(*_: object) -> int:
        return 0

    with replaced(vacuum, "forget_unpublished", none):
        yield


@mutation_of_large_bodies
def bodies_are_collected_though_a_head_names_them() -> Iterator[None]:
    async def all_that_are_old(meta: MetaStore, before_ms: int, _limit: int, _dry_run: bool) -> int:
        records = await meta.scan(keys.WRITES, keys.after(keys.WRITES))
        for body in [keys.parse_write_body_part(record.key) for record in records]:
            if body is not None and intents._was_made_before(body.nonce, before_ms):
                await meta.delete_range(body.prefix, keys.after(body.prefix))
        return 0

    with replaced(vacuum, "forget_unpublished", all_that_are_old):
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
    async def blind(self: Intents, app: str, version: int, body: Body, is_once: bool = False) -> Begun:
        intent = await self._prepare(app, version, body, is_once)
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


@writes_mutation
def who_finishes_for_others_appends_nothing() -> Iterator[None]:
    async def blind(self: Adopter, older_than_ms: int) -> bool | None:
        head = await self.find()
        if head.open is None or head.open.created_at_ms >= older_than_ms:
            return None
        await self._intents.finish(self._app, head.open)
        return True

    with replaced(Adopter, "finish_open", blind):
        yield


@writes_mutation
def heads_are_forgotten_at_once() -> Iterator[None]:
    """A second attempt at a version that is done does not know it."""
    real = Intents.forget

    async def eager(self: Intents, app: str, _keep_ms: int) -> bool:
        return await real(self, app, -1)

    with replaced(Intents, "forget", eager):
        yield


@writes_mutation
def heads_are_forgotten_while_they_are_open() -> Iterator[None]:
    async def blind(self: Intents, app: str, _keep_ms: int) -> bool:
        await self._meta.delete(keys.write_head(app), ANY)
        return True

    with replaced(Intents, "forget", blind):
        yield
