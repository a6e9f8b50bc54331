"""Chains are changed by compare-and-set, and it is always settled whether a change took place."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from catena.errors import (
    CatenaError,
    Conflict,
    Contended,
    Corrupt,
    OutcomeUnknown,
    StaleView,
    StoreRefused,
    StoreUnavailable,
)
from catena.meta import keys
from catena.meta.memory import MemoryMeta
from catena.runtime import SystemEntropy
from catena.testing.contracts.loglet import Links
from catena.testing.faults import Fail, Faults, FaultyMeta, Late, Stall
from catena.types import ABSENT
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import REMEMBERED_NONCES, Chain
from catena.virtual_log.chain_store import MAX_ATTEMPTS, ChainStore
from tests.loglets.stores import QuickClock

TP = Links().partition
KIND = "diskless"


def step_forward(chain: Chain) -> Chain:
    """A change that can be counted: every one that took place moves the start by one."""
    return chains.trim(chain, chain.start + 1)


class Setup:
    def __init__(self) -> None:
        clock = QuickClock()
        self.meta = MemoryMeta(clock)
        self.faults = Faults()
        self.store = ChainStore(FaultyMeta(self.meta, self.faults), clock, SystemEntropy())
        self.other = ChainStore(self.meta, clock, SystemEntropy())

    async def chain(self) -> Chain:
        return (await self.other.load(TP, KIND)).chain

    async def change_others(self, times: int) -> None:
        for _ in range(times):
            await self.other.change(TP, KIND, step_forward)


@pytest.fixture
def setup() -> Setup:
    return Setup()


async def test_a_chain_that_nobody_changed_is_not_stored(setup: Setup) -> None:
    published = await setup.store.load(TP, KIND)
    assert published == (chains.initial(KIND), ABSENT)
    assert (await setup.store.change(TP, KIND, lambda chain: chain)).chain == chains.initial(KIND)
    assert await setup.meta.get(keys.chain(TP)) is None


async def test_a_change_is_published_for_all(setup: Setup) -> None:
    changed = await setup.store.change(TP, KIND, step_forward)
    assert changed.chain.start == 1
    assert await setup.other.load(TP, "whatever was first") == changed


async def test_changes_at_once_all_take_place(setup: Setup) -> None:
    stores = [setup.store, setup.other] * 10
    changed = await asyncio.gather(*(store.change(TP, KIND, step_forward) for store in stores))
    assert sorted(each.chain.start for each in changed) == list(range(1, 21))


async def test_what_a_change_raises_is_passed_on_and_nothing_changes(setup: Setup) -> None:
    await setup.change_others(1)

    def refuse(chain: Chain) -> Chain:
        raise StaleView("no")

    with pytest.raises(StaleView, match="no"):
        await setup.store.change(TP, KIND, refuse)
    assert (await setup.chain()).start == 1


async def test_a_store_that_is_down_changed_nothing(setup: Setup) -> None:
    setup.faults.at("put chain", Fail(StoreUnavailable("down")))
    with pytest.raises(StoreUnavailable):
        await setup.store.change(TP, KIND, step_forward)
    assert (await setup.chain()).start == 0


async def test_who_always_loses_gives_up(setup: Setup) -> None:
    for nth in range(1, MAX_ATTEMPTS + 1):
        setup.faults.at("put chain", Fail(Conflict(keys.chain(TP))), nth)
    with pytest.raises(Contended):
        await setup.store.change(TP, KIND, step_forward)
    assert (await setup.chain()).start == 0


class TestUnknownOutcomes:
    async def change(self, setup: Setup, fault: Fail | Late, others: int) -> Chain:
        """Others change the chain so often between the lost answer and the second try."""
        await setup.change_others(1)
        setup.faults.at("put chain", fault)
        second_try = setup.faults.at("put chain", Stall(), nth=2)
        changing = asyncio.ensure_future(setup.store.change(TP, KIND, step_forward))
        await second_try.reached.wait()
        await setup.change_others(others)
        second_try.let_go()
        return (await changing).chain

    @pytest.mark.parametrize("others", [0, 1, 5, REMEMBERED_NONCES - 1])
    async def test_it_was_applied(self, setup: Setup, others: int) -> None:
        chain = await self.change(setup, Fail(OutcomeUnknown("no answer"), applied=True), others)
        assert chain.start == 2 + others
        assert await setup.chain() == chain

    @pytest.mark.parametrize("others", [0, 1, 5, REMEMBERED_NONCES - 1])
    async def test_it_was_not_applied(self, setup: Setup, others: int) -> None:
        chain = await self.change(setup, Fail(OutcomeUnknown("no answer")), others)
        assert chain.start == 2 + others
        assert await setup.chain() == chain

    @pytest.mark.parametrize("others", [0, 1])
    async def test_it_arrives_after_all(self, setup: Setup, others: int) -> None:
        late = Late()
        chain = await self.change(setup, late, others)
        with pytest.raises(CatenaError):
            await late.arrive()
        assert await setup.chain() == chain
        assert chain.start == 2 + others

    @pytest.mark.parametrize("applied", [True, False])
    async def test_too_much_has_happened_since(self, setup: Setup, applied: bool) -> None:
        with pytest.raises(OutcomeUnknown):
            await self.change(setup, Fail(OutcomeUnknown("no answer"), applied), REMEMBERED_NONCES + 1)

    async def test_the_store_is_down_for_a_while_after_it(self, setup: Setup) -> None:
        setup.faults.at("put chain", Fail(OutcomeUnknown("no answer"), applied=True))
        for nth in range(2, 5):
            setup.faults.at("put chain", Fail(StoreUnavailable("down")), nth)
        assert (await setup.store.change(TP, KIND, step_forward)).chain.start == 1
        assert (await setup.chain()).start == 1

    async def test_the_store_never_answers(self, setup: Setup) -> None:
        for nth in range(1, MAX_ATTEMPTS + 1):
            setup.faults.at("put chain", Fail(OutcomeUnknown("no answer")), nth)
        with pytest.raises(OutcomeUnknown):
            await setup.store.change(TP, KIND, step_forward)


async def test_a_newer_format_is_refused(setup: Setup) -> None:
    newer = msgspec.structs.replace(chains.initial(KIND), format=chains.FORMAT + 1)
    await setup.meta.put(keys.chain(TP), msgspec.json.encode(newer))
    with pytest.raises(StoreRefused, match="format 2"):
        await setup.store.load(TP, KIND)


@pytest.mark.parametrize("value", [b"", b"{}", b'{"links": 3}', b"\xff"])
async def test_what_is_no_chain_is_corrupt(setup: Setup, value: bytes) -> None:
    await setup.meta.put(keys.chain(TP), value)
    with pytest.raises(Corrupt, match=keys.chain(TP)):
        await setup.store.load(TP, KIND)


def test_a_chain_is_stored_as_it_is() -> None:
    chain = chains.finish(chains.intend(chains.initial(KIND), "n", "memory", {"a": 1}), "n", 10)
    tiered = chains.finish_tiering(chains.begin_tiering(chain, "j"), "j", 0, 5, {"manifest": "m"})
    chain = chains.begin_tiering(chains.intend(chains.signed(tiered, "n"), "o", None), "k")
    assert msgspec.json.decode(msgspec.json.encode(chain), type=Chain) == chain
