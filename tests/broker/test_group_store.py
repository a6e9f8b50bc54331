"""What is stored of groups: keys, sizes, take-overs, and writes of which one hears nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.broker.group_offsets import METADATA_MAX_BYTES, METADATA_MAX_STORED_BYTES
from catena.broker.group_store import (
    CHUNKS_AT_ONCE,
    MAX_REBASES,
    PAGE,
    PARTITIONS_PER_CHUNK,
    Change,
    CommittedOffset,
    GroupStore,
    HeldGroup,
    MachineState,
    OffsetChunk,
    TakenOver,
    decode_state,
)
from catena.errors import Conflict, Contended, Corrupt, OutcomeUnknown, StaleView, StoreRefused, StoreUnavailable
from catena.meta import keys
from catena.meta.base import MAX_VALUE_BYTES, Record, check_put
from catena.meta.memory import MemoryMeta
from catena.runtime import SystemEntropy
from catena.testing.faults import Fail, Faults, FaultyMeta, Late, Stall
from catena.types import TopicId
from tests.broker.group_world import CHUNK, STATE, FastClock, settle
from tests.loglets.stores import Stores

T = TopicId("0" * 32)
EMPTY = MachineState("classic", "consumer", True, b"snapshot")


class Stored:
    """A store, and coordinators with faults of their own on it."""

    def __init__(self, can_transact: bool) -> None:
        self.clock = FastClock()
        self.meta = MemoryMeta(self.clock, can_transact)
        self.state_step = "transact" if can_transact else f"put {STATE}"
        self.chunk_step = "transact" if can_transact else f"put {CHUNK}"
        self.faults = Faults()

    def store(self) -> GroupStore:
        return GroupStore(FaultyMeta(self.meta, self.faults), self.clock, SystemEntropy())

    async def epoch(self, group: str = "g") -> int:
        record = await self.meta.get(keys.group_state(group))
        assert record is not None
        return decode_state(record)[0].coordinator_epoch


@pytest.fixture(params=[True, False], ids=["transact", "without transact"])
def stored(request: pytest.FixtureRequest) -> Stored:
    return Stored(request.param)


def at(offset: int, metadata: str = "") -> CommittedOffset:
    return CommittedOffset(offset, 1, metadata, 1_000)


def values(held: HeldGroup) -> dict[int, int]:
    return {partition: committed.offset for (_, partition), committed in held.offsets()}


async def created(store: GroupStore, **offsets: int) -> HeldGroup:
    held, _ = await store.take_over("g", 1)
    new = {(T, int(name[1:])): at(offset) for name, offset in offsets.items()}
    await store.write(held, Change(EMPTY, new))
    return held


@given(st.text())
def test_group_ids_are_quoted_reversibly_into_keys(group: str) -> None:
    assert keys.unquoted_group(keys.quoted_group(group)) == group
    if keys.is_group_id(group):
        check_put(keys.group_state(group), b"")
        check_put(keys.group_offset_chunk(group, T, 999), b"")
        assert keys.routing_key(keys.group_state(group)) == keys.routing_key(keys.group_offset_chunk(group, T, 1))
        assert keys.group_offset_chunk(group, T, 1).startswith(keys.group_offsets(group))


@given(st.text(), st.text())
def test_two_groups_share_no_key(one: str, two: str) -> None:
    if one != two:
        assert keys.quoted_group(one) != keys.quoted_group(two)
        assert not keys.group_offset_chunk(one, T, 1).startswith(keys.group_offsets(two))


@pytest.mark.parametrize(("group", "is_one"), [("", False), (".", True), ("..", True), ("a=b/c", True)])
def test_odd_group_ids(group: str, is_one: bool) -> None:
    assert keys.is_group_id(group) is is_one


def test_the_longest_group_id() -> None:
    assert keys.is_group_id("g" * 255)
    assert not keys.is_group_id("g" * 256)
    assert keys.is_group_id("é" * 42)
    assert not keys.is_group_id("é" * 43)


async def test_what_does_not_exist_is_not_created_by_looking(stored: Stored) -> None:
    held, snapshot = await stored.store().take_over("g", 1)
    assert not held.exists
    assert snapshot == b""
    await stored.store().confirm(held)
    assert await stored.meta.get(keys.group_state("g")) is None


async def test_a_take_over_brings_everything_along_and_refuses_the_one_before(stored: Stored) -> None:
    one, two = stored.store(), stored.store()
    first = await created(one, p0=10, p150=20)
    second, snapshot = await two.take_over("g", 2)
    assert snapshot == b"snapshot"
    assert values(second) == {0: 10, 150: 20}
    assert await stored.epoch() == 2
    for change in (Change(offsets={(T, 0): at(11)}), Change(EMPTY), Change(delete=True)):
        with pytest.raises(StaleView):
            await one.write(first, change)
    with pytest.raises(StaleView):
        await one.confirm(first)
    await two.confirm(second)
    await two.write(second, Change(offsets={(T, 0): at(12)}))
    third, _ = await one.take_over("g", 1)
    assert values(third) == {0: 12, 150: 20}


async def test_two_that_create_a_group_at_once_do_not_both(stored: Stored) -> None:
    one, two = stored.store(), stored.store()
    first, _ = await one.take_over("g", 1)
    second, _ = await two.take_over("g", 2)
    await one.write(first, Change(EMPTY, {(T, 0): at(1)}))
    with pytest.raises(StaleView):
        await two.write(second, Change(EMPTY, {(T, 0): at(2)}))
    held, _ = await two.take_over("g", 2)
    assert values(held) == {0: 1}


async def test_offsets_are_removed(stored: Stored) -> None:
    store = stored.store()
    held = await created(store, p0=1, p1=2, p200=3)
    await store.write(held, Change(offsets={(T, 0): None, (T, 200): None, (T, 7): None}))
    assert values(held) == {1: 2}
    assert values((await store.take_over("g", 1)).held) == {1: 2}


@pytest.mark.parametrize("applied", [True, False])
@pytest.mark.parametrize("what", ["state", "chunk"])
async def test_a_write_of_which_nothing_is_heard_is_made_once(stored: Stored, applied: bool, what: str) -> None:
    store = stored.store()
    held = await created(store, p0=1)
    step = stored.state_step if what == "state" else stored.chunk_step
    stored.faults.at(step, Fail(OutcomeUnknown("lost"), applied=applied))
    await store.write(held, Change(EMPTY._replace(snapshot=b"next"), {(T, 0): at(2), (T, 300): at(3)}))
    assert not stored.faults.armed
    assert values(held) == {0: 2, 300: 3}
    await store.write(held, Change(offsets={(T, 1): at(4)}))
    again, snapshot = await store.take_over("g", 1)
    assert (values(again), snapshot) == ({0: 2, 1: 4, 300: 3}, b"next")


async def test_a_creation_of_which_nothing_is_heard_is_made_once(stored: Stored) -> None:
    store = stored.store()
    stored.faults.at(stored.state_step, Fail(OutcomeUnknown("lost"), applied=True))
    held = await created(store, p0=1)
    assert (await stored.epoch(), values(held)) == (1, {0: 1})


async def test_what_can_not_be_settled_is_said(stored: Stored) -> None:
    store = stored.store()
    held = await created(store, p0=1)
    stored.faults.at(stored.chunk_step, Fail(OutcomeUnknown("lost"), applied=True))
    for nth in range(2, 7):
        stored.faults.at(stored.chunk_step, Fail(StoreUnavailable("away")), nth)
    with pytest.raises(OutcomeUnknown):
        await store.write(held, Change(offsets={(T, 0): at(2)}))


async def test_what_surely_was_not_applied_leaves_what_is_held(stored: Stored) -> None:
    store = stored.store()
    held = await created(store, p0=1)
    for nth in range(1, 7):
        stored.faults.at(stored.chunk_step, Fail(StoreUnavailable("away")), nth)
    with pytest.raises(StoreUnavailable):
        await store.write(held, Change(offsets={(T, 0): at(2)}))
    assert values(held) == {0: 1}
    await store.write(held, Change(offsets={(T, 0): at(3)}))
    assert values((await store.take_over("g", 1)).held) == {0: 3}


async def test_a_write_that_arrives_after_a_take_over_changes_nothing_that_was_acked(stored: Stored) -> None:
    one, two = stored.store(), stored.store()
    first = await created(one, p0=1)
    late = stored.faults.at(stored.chunk_step, Late())
    for nth in range(2, 7):
        stored.faults.at(stored.chunk_step, Fail(StoreUnavailable("away")), nth)
    with pytest.raises(OutcomeUnknown):
        await one.write(first, Change(offsets={(T, 0): at(2)}))
    second, _ = await two.take_over("g", 2)
    await two.write(second, Change(offsets={(T, 0): at(3)}))
    try:
        await late.arrive()
    except Conflict:
        pass
    assert values((await two.take_over("g", 2)).held) == {0: 3}


async def test_a_deleted_group_is_gone_and_what_arrives_late_does_not_bring_it_back(stored: Stored) -> None:
    one, two = stored.store(), stored.store()
    first = await created(one, p0=1, p100=2)
    step = "transact" if stored.meta.can_transact else "put 3"
    late = stored.faults.at(step, Late())
    for nth in range(2, 7):
        stored.faults.at(step, Fail(StoreUnavailable("away")), nth)
    with pytest.raises(OutcomeUnknown):
        await one.write(first, Change(offsets={(T, 300): at(9)}))
    second, _ = await two.take_over("g", 2)
    await two.write(second, Change(delete=True))
    assert not second.exists
    assert values(second) == {}
    assert [found async for found in two.headers()] == []
    assert await stored.meta.scan(keys.GROUP_OFFSETS, keys.after(keys.GROUP_OFFSETS)) == []
    epoch = await stored.epoch()
    await late.arrive()

    third, snapshot = await two.take_over("g", 2)
    assert (third.exists, snapshot, values(third)) == (False, b"", {})
    await two.write(third, Change(EMPTY, {(T, 0): at(5)}))
    assert await stored.epoch() > epoch
    fourth, _ = await one.take_over("g", 1)
    assert values(fourth) == {0: 5}
    # A chunk of the old group may still lie there: the new one's takes its place.
    await one.write(fourth, Change(offsets={(T, 300): at(6)}))
    assert values((await two.take_over("g", 2)).held) == {0: 5, 300: 6}


async def test_the_largest_chunk_fits_into_a_record(stored: Stored) -> None:
    metadata = '"' * (METADATA_MAX_BYTES - 1)
    assert len(metadata) * 2 + 2 <= METADATA_MAX_STORED_BYTES
    store = stored.store()
    held, _ = await store.take_over("g", 1)
    huge = CommittedOffset(2**63 - 1, 2**31 - 1, metadata, 2**42)
    await store.write(held, Change(EMPTY, {(T, number): huge for number in range(10**5, 10**5 + PARTITIONS_PER_CHUNK)}))
    [record] = await stored.meta.scan(keys.GROUP_OFFSETS, keys.after(keys.GROUP_OFFSETS))
    assert len(record.value) <= MAX_VALUE_BYTES
    assert values((await store.take_over("g", 1)).held) == dict.fromkeys(range(10**5, 10**5 + 100), 2**63 - 1)


async def test_groups_are_listed_over_many_pages(stored: Stored) -> None:
    store = stored.store()
    names = [f"group/{number:03d}" for number in range(250)]
    for name in names:
        held, _ = await store.take_over(name, 1)
        await store.write(held, Change(EMPTY, {(T, 0): at(1)}))
    assert sorted([name async for name, _ in store.headers()]) == names


@pytest.mark.parametrize("value", [b"{", b'{"format": 1, "kind": "classic"}', b""])
async def test_a_record_that_can_not_be_read_is_named(value: bytes) -> None:
    stored = Stored(True)
    await stored.meta.put(keys.group_state("g"), value)
    with pytest.raises(Corrupt, match="llog/groups/g/state"):
        await stored.store().take_over("g", 1)


async def test_a_record_of_a_newer_version_is_not_touched() -> None:
    stored = Stored(True)
    await created(stored.store(), p0=1)
    record = await stored.meta.get(keys.group_state("g"))
    assert record is not None
    newer = record.value.replace(b'"format":1', b'"format":2')
    await stored.meta.put(keys.group_state("g"), newer)
    with pytest.raises(StoreRefused):
        await stored.store().take_over("g", 1)


class Coordinator(NamedTuple):
    store: GroupStore
    faults: Faults

    async def take_over_until(self, step: str, applied: bool = False) -> tuple[Stall, asyncio.Task[TakenOver]]:
        stall = self.faults.at(step, Stall(applied))
        taking_over = asyncio.create_task(self.store.take_over("g", 2))
        await stall.reached.wait()
        return stall, taking_over


class Real:
    """Coordinators on a store that is not in memory only."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self.can_transact = stores.can_transact

    async def coordinators(self, count: int) -> list[Coordinator]:
        return [await self._coordinator(Faults()) for _ in range(count)]

    async def _coordinator(self, faults: Faults) -> Coordinator:
        meta = FaultyMeta(await self._stores.open_meta(), faults)
        return Coordinator(GroupStore(meta, FastClock(), SystemEntropy()), faults)

    async def records(self) -> list[Record]:
        """All that is stored of the group, its state first."""
        prefixes = (keys.GROUPS, keys.GROUP_OFFSETS)
        return [record for prefix in prefixes for record in await self._stores.meta.scan(prefix, keys.after(prefix))]

    async def epochs(self) -> list[int]:
        """Of its chunks."""
        _, *chunks = await self.records()
        return [msgspec.json.decode(chunk.value, type=OffsetChunk).coordinator_epoch for chunk in chunks]


WITHOUT_TRANSACT = ("sqlite without transact", "postgres without transact", "objects")


@pytest.fixture(params=["sqlite", "postgres", *WITHOUT_TRANSACT])
async def real(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Real]:
    async with Stores(request.param, tmp_path, request) as stores:
        yield Real(stores)


without_transact = pytest.mark.parametrize("real", WITHOUT_TRANSACT, indirect=True)


class TestClaim:
    """What a take-over does for the chunks where the state can't be checked together with them."""

    async def test_one_that_was_replaced_changes_nothing(self, real: Real) -> None:
        first, second = await real.coordinators(2)
        old = await created(first.store, p0=10, p150=20)
        new, _ = await second.store.take_over("g", 2)
        before = await real.records()
        # With `transact` nothing has to be claimed, and nothing is written for it.
        assert await real.epochs() == ([1, 1] if real.can_transact else [2, 2])
        assert second.faults.taken["put 0"] + second.faults.taken["put 1"] == (0 if real.can_transact else 2)
        offsets = {(T, 0): at(11), (T, 150): None}
        for change in (Change(offsets=offsets), Change(EMPTY, offsets), Change(delete=True)):
            with pytest.raises(StaleView):
                await first.store.write(old, change)
            assert await real.records() == before
        assert values(new) == {0: 10, 150: 20}
        await second.store.write(new, Change(offsets={(T, 0): at(12)}))
        assert values((await first.store.take_over("g", 1)).held) == {0: 12, 150: 20}

    async def test_a_write_on_its_way_during_a_take_over_comes_too_late(self, real: Real) -> None:
        first, second = await real.coordinators(2)
        old = await created(first.store, p0=10)
        stall = first.faults.at("transact" if real.can_transact else "put 0", Stall())
        writing = asyncio.create_task(first.store.write(old, Change(offsets={(T, 0): at(9)})))
        await stall.reached.wait()
        await second.store.take_over("g", 2)
        before = await real.records()
        stall.let_go()
        with pytest.raises(StaleView):
            await writing
        assert await real.records() == before

    async def test_what_a_take_over_has_seen_is_not_gone_again(self, real: Real) -> None:
        first, second, third = await real.coordinators(3)
        step = "transact" if real.can_transact else "put 1"
        oldest = await created(first.store, p0=10)
        late = first.faults.at(step, Late())
        for nth in range(2, 7):
            first.faults.at(step, Fail(StoreUnavailable("away")), nth)
        with pytest.raises(OutcomeUnknown):
            await first.store.write(oldest, Change(offsets={(T, 150): at(20)}))
        # The second knows of no chunk for partition 150, and is paused; now the first one's arrives.
        old, _ = await second.store.take_over("g", 2)
        assert values(old) == {0: 10}
        await late.arrive()
        new, _ = await third.store.take_over("g", 3)
        assert values(new) == ({0: 10} if real.can_transact else {0: 10, 150: 20})
        with pytest.raises(StaleView):
            await second.store.write(old, Change(offsets={(T, 151): at(30)}))
        assert values((await third.store.take_over("g", 3)).held) == values(new)

    async def test_a_new_chunk_of_one_that_was_replaced_is_not_acked_and_gives_way(self, real: Real) -> None:
        first, second = await real.coordinators(2)
        old = await created(first.store, p0=10)
        new, _ = await second.store.take_over("g", 2)
        with pytest.raises(StaleView):
            await first.store.write(old, Change(offsets={(T, 300): at(1)}))
        assert values(new) == {0: 10}
        await second.store.write(new, Change(offsets={(T, 301): at(2)}))
        assert values((await first.store.take_over("g", 1)).held) == {0: 10, 301: 2}

    @without_transact
    @pytest.mark.parametrize("applied", [False, True])
    async def test_is_made_by_the_next_one_after_a_crash_in_the_middle(self, real: Real, applied: bool) -> None:
        first, second, third = await real.coordinators(3)
        old = await created(first.store, p0=10, p100=20, p200=30)
        _, taking_over = await second.take_over_until("put 1", applied)
        taking_over.cancel()
        with pytest.raises(asyncio.CancelledError):
            await taking_over
        assert (await real.epochs())[1] == (2 if applied else 1)
        new, _ = await third.store.take_over("g", 3)
        assert await real.epochs() == [3, 3, 3]
        assert values(new) == {0: 10, 100: 20, 200: 30}
        before = await real.records()
        for partition in (0, 100, 200):
            with pytest.raises(StaleView):
                await first.store.write(old, Change(offsets={(T, partition): at(9)}))
        assert await real.records() == before

    @without_transact
    async def test_one_that_wakes_in_the_middle_claims_nothing_of_the_next_one(self, real: Real) -> None:
        first, second, third = await real.coordinators(3)
        await created(first.store, p0=10, p100=20)
        stall, taking_over = await second.take_over_until("put 1")
        new, _ = await third.store.take_over("g", 3)
        before = await real.records()
        stall.let_go()
        with pytest.raises(StaleView):
            await taking_over
        assert await real.records() == before
        await third.store.write(new, Change(offsets={(T, 100): at(21)}))
        assert values((await third.store.take_over("g", 3)).held) == {0: 10, 100: 21}

    @without_transact
    async def test_takes_along_what_lands_in_the_meantime(self, real: Real) -> None:
        first, second = await real.coordinators(2)
        old = await created(first.store, p0=10)
        stall, taking_over = await second.take_over_until("put 0")
        with pytest.raises(StaleView):
            await first.store.write(old, Change(offsets={(T, 0): at(11)}))
        stall.let_go()
        assert values((await taking_over).held) == {0: 11}
        assert await real.epochs() == [2]

    @without_transact
    async def test_brings_no_chunk_of_a_deleted_group_back(self, real: Real) -> None:
        first, second, third = await real.coordinators(3)
        await created(first.store, p0=10)
        stall, taking_over = await second.take_over_until("put 0")
        new, _ = await third.store.take_over("g", 3)
        await third.store.write(new, Change(delete=True))
        before = await real.records()
        stall.let_go()
        old, _ = await taking_over
        assert values(old) == {}
        with pytest.raises(StaleView):
            await second.store.write(old, Change(EMPTY, {(T, 0): at(11)}))
        assert await real.records() == before

    @without_transact
    @pytest.mark.parametrize("applied", [False, True])
    async def test_one_of_which_nothing_is_heard_is_made_again(self, real: Real, applied: bool) -> None:
        first, second = await real.coordinators(2)
        await created(first.store, p0=10)
        second.faults.at("put 0", Fail(OutcomeUnknown("lost"), applied=applied))
        new, _ = await second.store.take_over("g", 2)
        assert not second.faults.armed
        assert await real.epochs() == [2]
        await second.store.write(new, Change(offsets={(T, 0): at(11)}))
        assert values((await first.store.take_over("g", 1)).held) == {0: 11}

    @without_transact
    async def test_is_given_up_when_others_change_the_chunk_all_the_time(self, real: Real) -> None:
        first, second = await real.coordinators(2)
        await created(first.store, p0=10)
        chunk = (await real.records())[-1]
        for nth in range(1, MAX_REBASES + 1):
            second.faults.at("put 0", Fail(Conflict(chunk.key, chunk)), nth)
        with pytest.raises(Contended):
            await second.store.take_over("g", 2)
        assert values((await second.store.take_over("g", 2)).held) == {0: 10}

    @without_transact
    async def test_of_many_chunks_are_made_a_few_at_once_and_each_once(self, real: Real) -> None:
        first, second = await real.coordinators(2)
        held, _ = await first.store.take_over("g", 1)
        topics = [TopicId(f"{number:032x}") for number in range(PAGE + 10)]
        await first.store.write(held, Change(EMPTY, {(topic, 0): at(number) for number, topic in enumerate(topics)}))
        stalls = [second.faults.at("put 0", Stall(), nth) for nth in range(1, len(topics) + 1)]
        taking_over = asyncio.create_task(second.store.take_over("g", 2))
        for done in range(3):
            await stalls[done + CHUNKS_AT_ONCE - 1].reached.wait()
            await settle()
            assert sum(stall.reached.is_set() for stall in stalls) == done + CHUNKS_AT_ONCE
            stalls[done].let_go()
        for stall in stalls:
            stall.let_go()
        new, _ = await taking_over
        assert [committed.offset for _, committed in new.offsets()] == list(range(len(topics)))
        assert await real.epochs() == [2] * len(topics)
        assert second.faults.taken["put 0"] == len(topics)
