"""Producers are handed from link to link: once, as a whole, and within what a meta record holds."""

from __future__ import annotations

import pytest

from catena.errors import Corrupt, OutcomeUnknown, StoreUnavailable
from catena.loglets.producers import ProducerBatch, ProducerState
from catena.meta import keys
from catena.meta.base import MAX_VALUE_BYTES
from catena.meta.memory import MemoryMeta
from catena.testing.contracts.loglet import Links
from catena.testing.faults import Fail, Faults, FaultyMeta
from catena.virtual_log.handoff import MAX_ATTEMPTS, PRODUCERS_PER_PART, create_handoff, load_handoff
from tests.loglets.stores import QuickClock

TP = Links().partition


def state(updated_ms: int) -> ProducerState:
    """As long as a state can be."""
    return ProducerState(32767, updated_ms, (ProducerBatch(2**31 - 1, 2**31 - 1, 2**63 - 1, 2**31 - 1),) * 5)


@pytest.fixture
def meta() -> MemoryMeta:
    return MemoryMeta(QuickClock())


async def test_it_is_found_by_the_link_it_is_for(meta: MemoryMeta) -> None:
    producers = {7: state(1), 2**63 - 1: state(2)}
    await create_handoff(meta, TP, 3, producers)
    assert await load_handoff(meta, TP, 3) == producers
    assert await load_handoff(meta, TP, 2) == {}


async def test_nothing_is_stored_for_nobody(meta: MemoryMeta) -> None:
    await create_handoff(meta, TP, 3, {})
    assert await meta.get(keys.handoff(TP, 3)) is None


async def test_what_is_there_stays_and_what_is_missing_is_added(meta: MemoryMeta) -> None:
    await create_handoff(meta, TP, 3, {7: state(1)})
    await create_handoff(meta, TP, 3, {7: state(2), 8: state(1)})
    assert await load_handoff(meta, TP, 3) == {7: state(1), 8: state(1)}


@pytest.mark.parametrize("applied", [True, False])
async def test_an_answer_that_did_not_come_is_no_trouble(meta: MemoryMeta, applied: bool) -> None:
    faults = Faults()
    faults.at("put handoff", Fail(OutcomeUnknown("no answer"), applied))
    await create_handoff(FaultyMeta(meta, faults), TP, 3, {7: state(1)})
    assert await load_handoff(meta, TP, 3) == {7: state(1)}


async def test_a_store_that_never_answers_is_an_error(meta: MemoryMeta) -> None:
    faults = Faults()
    for nth in range(1, MAX_ATTEMPTS + 1):
        faults.at("put handoff", Fail(OutcomeUnknown("no answer")), nth)
    with pytest.raises(StoreUnavailable):
        await create_handoff(FaultyMeta(meta, faults), TP, 3, {7: state(1)})


async def test_many_producers_take_several_parts_none_too_large(meta: MemoryMeta) -> None:
    producers = {number + 2**62: state(2**41 + number) for number in range(2 * PRODUCERS_PER_PART + 10)}
    await create_handoff(meta, TP, 3, producers)
    assert await load_handoff(meta, TP, 3) == producers
    parts = await meta.scan(keys.handoff(TP, 3), keys.handoff(TP, 4))
    assert len(parts) == 3
    assert max(len(part.value) for part in parts) <= MAX_VALUE_BYTES


async def test_a_handoff_that_another_began_is_completed(meta: MemoryMeta) -> None:
    producers = {number: state(number) for number in range(PRODUCERS_PER_PART + 10)}
    await create_handoff(meta, TP, 3, {number: producers[number] for number in range(10)})
    await create_handoff(meta, TP, 3, producers)
    assert await load_handoff(meta, TP, 3) == producers


async def test_what_is_no_handoff_is_corrupt(meta: MemoryMeta) -> None:
    await meta.put(keys.handoff(TP, 3), b"[]")
    with pytest.raises(Corrupt, match=keys.handoff(TP, 3)):
        await load_handoff(meta, TP, 3)
