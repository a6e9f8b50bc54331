"""The guard is a meta store like any other, until writes end; then nothing of the log changes, and reads go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from catena.errors import Conflict, MetaBehind, OutcomeUnknown
from catena.meta import keys
from catena.meta.base import Check, Committed, Delete, MetaStore, Put
from catena.meta.memory import MemoryMeta
from catena.meta.read_only import GuardedMeta
from catena.runtime import SystemClock
from catena.testing.contracts.meta import MetaStoreContract
from catena.testing.faults import Fail, Faults, FaultyMeta
from catena.types import ABSENT

WRITES: dict[str, Callable[[MetaStore], Awaitable[object]]] = {
    "put": lambda meta: meta.put("t/a", b"new"),
    "put of what is not there": lambda meta: meta.put("t/b", b"new", ABSENT),
    "delete": lambda meta: meta.delete("t/a"),
    "delete_range": lambda meta: meta.delete_range("t/", "t0"),
    "transact": lambda meta: meta.transact([[Check("t/b", ABSENT)], [Put("t/a", b"new")]]),
    "transact that deletes": lambda meta: meta.transact([[Delete("t/a")]]),
}


@pytest.fixture
async def store() -> AsyncIterator[MemoryMeta]:
    store = MemoryMeta(SystemClock())
    await store.put("t/a", b"old")
    yield store
    await store.close()


class TestGuardedMeta(MetaStoreContract):
    @pytest.fixture
    async def meta(self) -> AsyncIterator[GuardedMeta]:
        store = MemoryMeta(SystemClock())
        yield GuardedMeta(store)
        await store.close()

    @pytest.fixture
    def other(self, meta: GuardedMeta) -> GuardedMeta:
        return meta


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_no_write_is_taken_once_they_have_ended(
    store: MemoryMeta, write: Callable[[MetaStore], Awaitable[object]]
) -> None:
    meta = GuardedMeta(store)
    meta.end_writes("it was set back")
    for _ in range(2):
        with pytest.raises(MetaBehind, match="it was set back"):
            await write(meta)
    assert [record.value for record in await store.scan("", "~")] == [b"old"]
    assert meta.writes == 0


async def test_reads_go_on(store: MemoryMeta) -> None:
    meta = GuardedMeta(store)
    meta.end_writes("it was set back")
    record = await meta.get("t/a")
    assert record is not None
    assert await meta.ceiling("t/", "t0") == record
    assert await meta.scan("t/", "t0") == [record]
    assert await meta.transact([[Check("t/a", record.version)]]) == [Committed((None,))]
    watch = meta.watch("t/")
    await store.put("t/a", b"by somebody else")
    await watch.changed()


async def test_a_node_still_says_that_it_lives(store: MemoryMeta) -> None:
    meta = GuardedMeta(store)
    meta.end_writes("it was set back")
    session = await meta.session(60_000)
    version = await meta.put(keys.node(1), b"here", ABSENT, session)
    await meta.delete(keys.node(1), version)
    assert await store.get(keys.node(1)) is None
    assert meta.writes == 0


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
async def test_writes_are_counted_and_reads_are_not(
    store: MemoryMeta, write: Callable[[MetaStore], Awaitable[object]]
) -> None:
    meta = GuardedMeta(store)
    await meta.get("t/a")
    await meta.transact([[Check("t/a", ABSENT)]])
    assert meta.writes == 0
    await write(meta)
    assert meta.writes == 1


async def test_a_write_that_failed_counts_since_it_may_have_been_made(store: MemoryMeta) -> None:
    faults = Faults()
    faults.at("put a", Fail(OutcomeUnknown("no answer"), applied=True))
    meta = GuardedMeta(FaultyMeta(store, faults))
    with pytest.raises(OutcomeUnknown):
        await meta.put("t/a", b"new")
    with pytest.raises(Conflict):
        await meta.put("t/a", b"new", ABSENT)
    assert meta.writes == 2
