"""The meta store in memory keeps the contract."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catena.errors import SessionExpired
from catena.meta.base import Record
from catena.meta.memory import MemoryMeta
from catena.runtime import SystemClock
from catena.testing.contracts.meta import MetaStoreContract
from tests.meta.manual_clock import ManualClock


class TestMemoryMeta(MetaStoreContract):
    @pytest.fixture
    async def meta(self) -> AsyncIterator[MemoryMeta]:
        store = MemoryMeta(SystemClock())
        yield store
        await store.close()

    @pytest.fixture
    def other(self, meta: MemoryMeta) -> MemoryMeta:
        return meta


async def test_sessions_expire_by_the_injected_clock() -> None:
    clock = ManualClock()
    store = MemoryMeta(clock)
    session = await store.session(ttl_ms=9_000)
    await store.put("e/a", b"", ephemeral=session)
    await clock.advance(0)
    for _ in range(10):
        await clock.advance(3)
    assert await store.get("e/a") is not None
    clock.pause(9)
    watch = store.watch("e/")
    assert await store.get("e/a") is None
    await watch.changed()
    await clock.advance(0)
    with pytest.raises(SessionExpired):
        await store.put("e/a", b"", ephemeral=session)
    await store.close()


async def test_the_same_calls_give_the_same_answers() -> None:
    async def run() -> list[Record]:
        store = MemoryMeta(ManualClock())
        for number in range(20):
            await store.put(f"k/{number * 7 % 20:02d}", b"%d" % number)
        session = await store.session(ttl_ms=9_000)
        await store.put(f"s/{session.id}", b"", ephemeral=session)
        await store.close()
        return await store.scan("", "~")

    assert await run() == await run()


def test_it_can_be_told_that_it_cannot_transact() -> None:
    assert not MemoryMeta(ManualClock(), can_transact=False).can_transact
