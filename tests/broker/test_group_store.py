"""What is stored of groups: keys, sizes, take-overs, and writes of which one hears nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.broker.group_offsets import METADATA_MAX_BYTES, METADATA_MAX_STORED_BYTES
from catena.broker.group_store import (
    PARTITIONS_PER_CHUNK,
    Change,
    CommittedOffset,
    GroupStore,
    HeldGroup,
    MachineState,
    decode_state,
)
from catena.errors import Conflict, Corrupt, OutcomeUnknown, StaleView, StoreRefused, StoreUnavailable
from catena.meta import keys
from catena.meta.base import MAX_VALUE_BYTES, check_put
from catena.meta.memory import MemoryMeta
from catena.runtime import SystemEntropy
from catena.testing.faults import Fail, Faults, FaultyMeta, Late
from catena.types import TopicId
from tests.broker.group_world import CHUNK, STATE, FastClock

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
