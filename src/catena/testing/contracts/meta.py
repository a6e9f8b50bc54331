"""The contract of `catena.meta.base`, as tests.

A backend's test module subclasses MetaStoreContract and gives two fixtures: `meta`, and `other`, a second handle on the
same data, such as another process would have. Nothing in here may be overridden. The tests of `transact` are skipped
where the store itself declares that it can't.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from catena.errors import Conflict, Rejected, SessionExpired, StoreUnavailable
from catena.meta.base import MAX_KEY_BYTES, MAX_VALUE_BYTES, MetaStore, Record, Session
from catena.meta.keys import after
from catena.runtime import SystemClock
from catena.testing.contracts.meta_transact import PATIENCE_S, STALE, TransactContract
from catena.types import ABSENT, ANY, Version

SHORT_TTLS_MS = (300, 3_000, 30_000)
KEPT_TTLS_MS = (800, 4_000, 20_000)
"""The next one where a busy machine held its owner up for longer than the one before it, which lost it rightly."""
LONG_TTL_MS = 60_000


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait for something that time alone brings about, such as an expiry."""
    clock = SystemClock()
    deadline = clock.monotonic() + PATIENCE_S
    while not await condition():
        assert clock.monotonic() < deadline, "it did not happen"
        await clock.sleep(0.01)


async def is_absent(meta: MetaStore, key: str) -> bool:
    return await meta.get(key) is None


async def leave_behind(meta: MetaStore, owner: MetaStore, *keys: str) -> tuple[Session, list[Record]]:
    """Records whose owner is gone while its session is alive: with nobody to renew it, it is about to expire."""
    for ttl_ms in SHORT_TTLS_MS:
        session = await owner.session(ttl_ms)
        try:
            records = [Record(key, b"", await owner.put(key, b"", ephemeral=session)) for key in keys]
        except SessionExpired:
            continue
        found = [await meta.get(key) for key in keys]
        if session.alive:
            assert found == records
            await owner.close()
            return session, records
    raise AssertionError("every session was lost while its owner was there")


async def outlives(ttl_ms: int, meta: MetaStore, other: MetaStore) -> bool:
    """Whether a session is alive after one and a half of its time-to-live, and its record was there all the time."""
    clock = SystemClock()
    session = await meta.session(ttl_ms)
    try:
        await meta.put("e/a", b"", ephemeral=session)
    except SessionExpired:
        return False
    end = clock.monotonic() + 1.5 * ttl_ms / 1000
    while clock.monotonic() < end:
        found = await other.get("e/a")
        if not session.alive:
            return False
        assert found is not None
        await clock.sleep(0.05)
    return session.alive


async def increment(meta: MetaStore, key: str, times: int) -> None:
    """Count up by compare-and-set, going on from what a Conflict carries."""
    found = await meta.get(key)
    for _ in range(times):
        while True:
            value = b"%d" % (int(found.value) + 1 if found else 1)
            try:
                found = Record(key, value, await meta.put(key, value, found.version if found else ABSENT))
                break
            except Conflict as conflict:
                found = conflict.current


class RecordContract:
    async def test_a_record_is_read_as_it_was_put_through_every_handle(self, meta: MetaStore, other: MetaStore) -> None:
        for value in (b"", b"one", bytes(range(256))):
            version = await meta.put("t/a", value)
            assert await meta.get("t/a") == Record("t/a", value, version)
            assert await other.get("t/a") == Record("t/a", value, version)

    async def test_what_was_never_put_is_absent(self, meta: MetaStore) -> None:
        await meta.put("t/a", b"")
        assert await meta.get("t/A") is None
        assert await meta.get("t/a0") is None

    async def test_a_write_is_seen_by_the_next_read_elsewhere(self, meta: MetaStore, other: MetaStore) -> None:
        for number in range(20):
            writer, reader = (meta, other) if number % 2 else (other, meta)
            await writer.put("t/a", b"%d" % number)
            found = await reader.get("t/a")
            assert found is not None
            assert found.value == b"%d" % number
            assert await reader.scan("t/", after("t/")) == [found]

    async def test_create_if_absent_creates_once(self, meta: MetaStore, other: MetaStore) -> None:
        version = await meta.put("t/a", b"mine", ABSENT)
        with pytest.raises(Conflict) as refused:
            await other.put("t/a", b"theirs", ABSENT)
        assert refused.value.current == Record("t/a", b"mine", version)

    async def test_a_write_with_an_old_version_is_refused_with_what_is_there(
        self, meta: MetaStore, other: MetaStore
    ) -> None:
        first = await meta.put("t/a", b"1")
        second = await other.put("t/a", b"2", first)
        with pytest.raises(Conflict) as refused:
            await meta.put("t/a", b"3", first)
        assert refused.value.current == Record("t/a", b"2", second)
        with pytest.raises(Conflict) as refused:
            await meta.delete("t/a", first)
        assert refused.value.current == Record("t/a", b"2", second)
        assert await other.get("t/a") == Record("t/a", b"2", second)

    async def test_a_version_of_what_is_absent_is_refused(self, meta: MetaStore) -> None:
        for write in (meta.put("t/a", b"", STALE), meta.delete("t/a", STALE)):
            with pytest.raises(Conflict) as refused:
                await write
            assert refused.value.current is None

    async def test_delete(self, meta: MetaStore, other: MetaStore) -> None:
        await meta.delete("t/a")
        await meta.delete("t/a", ABSENT)
        version = await meta.put("t/a", b"")
        with pytest.raises(Conflict):
            await other.delete("t/a", ABSENT)
        await other.delete("t/a", version)
        assert await meta.get("t/a") is None
        await meta.put("t/a", b"")
        await other.delete("t/a", ANY)
        assert await meta.get("t/a") is None

    async def test_versions_are_never_used_again(self, meta: MetaStore, other: MetaStore) -> None:
        versions = []
        for number in range(6):
            store = (meta, other)[number % 2]
            versions.append(await store.put("t/a", b"the same"))
            if number % 3:
                await store.delete("t/a", versions[-1])
        assert len(dict.fromkeys(versions)) == len(versions)
        await meta.put("t/a", b"the same")
        for version in versions:
            with pytest.raises(Conflict):
                await other.put("t/a", b"fooled", version)

    async def test_racing_increments_lose_nothing(self, meta: MetaStore, other: MetaStore) -> None:
        await asyncio.gather(*[increment(store, "t/count", 8) for store in (meta, other) for _ in range(3)])
        found = await meta.get("t/count")
        assert found is not None
        assert found.value == b"48"

    async def test_one_of_many_racing_creates_wins(self, meta: MetaStore, other: MetaStore) -> None:
        attempts = [(meta, other)[number % 2].put("t/a", b"%d" % number, ABSENT) for number in range(10)]
        results = await asyncio.gather(*attempts, return_exceptions=True)
        (winner,) = [number for number, result in enumerate(results) if isinstance(result, str)]
        found = await meta.get("t/a")
        assert found == Record("t/a", b"%d" % winner, Version(str(results[winner])))
        assert all(isinstance(result, str | Conflict) for result in results)

    async def test_keys_and_values_that_cannot_be_are_rejected(self, meta: MetaStore) -> None:
        for key in ("", "/a", "a/", "a//b", "a b", "a/../b", ".", "ä", "a\n", "k" * (MAX_KEY_BYTES + 1)):
            with pytest.raises(Rejected):
                await meta.put(key, b"")
        with pytest.raises(Rejected):
            await meta.put("t/a", bytes(MAX_VALUE_BYTES + 1))
        assert await meta.scan("", "~") == []

    async def test_the_largest_value_fits(self, meta: MetaStore, other: MetaStore) -> None:
        value = bytes(range(256)) * (MAX_VALUE_BYTES // 256)
        version = await meta.put("t/a", value)
        assert await other.get("t/a") == Record("t/a", value, version)
        with pytest.raises(Conflict) as refused:
            await other.put("t/a", b"", ABSENT)
        assert refused.value.current == Record("t/a", value, version)


class RangeContract:
    # In byte order, which is not the order of any language.
    KEYS = ("r/-", "r/.x", "r/0", "r/09", "r/1", "r/=", "r/A", "r/Z", "r/_", "r/a", "r/a-b", "r/a.b", "r/aa", "r/z")

    async def test_scan_is_in_byte_order_within_its_bounds(self, meta: MetaStore, other: MetaStore) -> None:
        await asyncio.gather(*[meta.put(key, key.encode()) for key in reversed(self.KEYS)])
        await meta.put("q/z", b"")
        await meta.put("s", b"")
        found = await other.scan("r/", after("r/"))
        assert [(record.key, record.value) for record in found] == [(key, key.encode()) for key in self.KEYS]
        for end in range(len(self.KEYS)):
            for start in range(end + 1):
                found = await meta.scan(self.KEYS[start], self.KEYS[end])
                assert [record.key for record in found] == list(self.KEYS[start:end])

    async def test_scan_stops_at_its_limit_and_can_go_on(self, meta: MetaStore) -> None:
        await asyncio.gather(*[meta.put(key, b"") for key in self.KEYS])
        seen: list[str] = []
        while page := await meta.scan(seen[-1] + "\0" if seen else "r/", after("r/"), limit=5):
            assert len(page) <= 5
            seen += [record.key for record in page]
        assert tuple(seen) == self.KEYS

    async def test_ceiling(self, meta: MetaStore, other: MetaStore) -> None:
        entries = {number: f"c/{number:020d}" for number in (5, 9, 10)}
        for key in entries.values():
            await meta.put(key, b"")

        async def ceiling(number: int) -> str | None:
            found = await other.ceiling(f"c/{number:020d}", after("c/"))
            return found.key if found else None

        await meta.put("d/1", b"")
        assert [await ceiling(number) for number in (0, 5)] == [entries[5]] * 2
        assert [await ceiling(number) for number in (6, 9)] == [entries[9]] * 2
        assert await ceiling(10) == entries[10]
        assert await ceiling(11) is None
        assert await other.ceiling(entries[5] + "0", entries[9]) is None
        assert await other.ceiling("x", "a") is None

    async def test_deleted_records_are_in_no_range(self, meta: MetaStore, other: MetaStore) -> None:
        for key in self.KEYS[:3]:
            await meta.put(key, b"")
        await other.delete(self.KEYS[0])
        assert [record.key for record in await meta.scan("r/", after("r/"), limit=1)] == [self.KEYS[1]]
        found = await meta.ceiling("r/", after("r/"))
        assert found is not None
        assert found.key == self.KEYS[1]

    async def test_delete_range_takes_just_the_range(self, meta: MetaStore, other: MetaStore) -> None:
        await asyncio.gather(*[meta.put(f"d/{number:03d}", b"") for number in range(60)])
        await other.delete_range("d/010", "d/050")
        left = [record.key for record in await meta.scan("d/", after("d/"))]
        assert left == [f"d/{number:03d}" for number in (*range(10), *range(50, 60))]
        await meta.delete_range("d/010", "d/050")
        await meta.delete_range("d/", after("d/"))
        assert await other.scan("", "~") == []
        await other.put("d/020", b"again", ABSENT)
        assert await meta.get("d/020") is not None


class WatchContract:
    @pytest.mark.parametrize("through_other", [False, True])
    async def test_a_watch_wakes_for_puts_and_deletes(
        self, meta: MetaStore, other: MetaStore, through_other: bool
    ) -> None:
        writer = other if through_other else meta
        watch = meta.watch("w/")
        for key in ("w/a", "w/b/c"):
            async with asyncio.timeout(PATIENCE_S):
                await writer.put(key, b"")
                while await meta.get(key) is None:
                    await watch.changed()
                deleting = asyncio.ensure_future(writer.delete(key))
                while await meta.get(key) is not None:
                    await watch.changed()
                await deleting
        watch.close()

    async def test_every_change_elsewhere_wakes_whoever_waits(self, meta: MetaStore, other: MetaStore) -> None:
        watch = meta.watch("w/")
        for number in range(3):
            waiting = asyncio.ensure_future(self._wait_for(meta, watch.changed, b"%d" % number))
            await other.put("w/a", b"%d" % number)
            await asyncio.wait_for(waiting, PATIENCE_S)
        watch.close()

    async def test_a_watch_on_one_key_wakes_for_it(self, meta: MetaStore, other: MetaStore) -> None:
        watch = meta.watch("w/a")
        async with asyncio.timeout(PATIENCE_S):
            for number in range(3):
                waiting = asyncio.ensure_future(self._wait_for(meta, watch.changed, b"%d" % number))
                await other.put("w/ab", b"")
                await other.put("w/a", b"%d" % number)
                await waiting
            deleting = asyncio.ensure_future(other.delete("w/a"))
            while await meta.get("w/a") is not None:
                await watch.changed()
            await deleting
        watch.close()

    async def test_a_change_from_before_the_wait_is_not_lost(self, meta: MetaStore) -> None:
        watch = meta.watch("w/")
        await meta.put("w/a", b"")
        await asyncio.wait_for(watch.changed(), PATIENCE_S)
        watch.close()

    async def test_closing_a_watch_ends_the_wait(self, meta: MetaStore) -> None:
        watch = meta.watch("w/")

        async def wait() -> None:
            while True:
                await watch.changed()

        waiting = asyncio.ensure_future(wait())
        await meta.get("w/a")
        watch.close()
        watch.close()
        with pytest.raises(StoreUnavailable):
            await asyncio.wait_for(waiting, PATIENCE_S)

    @staticmethod
    async def _wait_for(meta: MetaStore, changed: Callable[[], Awaitable[None]], value: bytes) -> None:
        while (found := await meta.get("w/a")) is None or found.value != value:
            await changed()


class SessionContract:
    async def test_an_ephemeral_record_is_seen_by_all_until_its_session_is_closed(
        self, meta: MetaStore, other: MetaStore
    ) -> None:
        session = await meta.session(LONG_TTL_MS)
        version = await meta.put("e/a", b"", ABSENT, ephemeral=session)
        assert await other.scan("e/", after("e/")) == [Record("e/a", b"", version)]
        with pytest.raises(Conflict) as refused:
            await other.put("e/a", b"", ABSENT)
        assert refused.value.current == Record("e/a", b"", version)
        await session.close()
        await session.close()
        assert not session.alive
        assert await other.get("e/a") is None
        assert await other.scan("e/", after("e/")) == []
        assert await other.ceiling("e/", after("e/")) is None
        assert await other.put("e/a", b"", ABSENT) != version

    async def test_the_records_of_an_owner_that_is_gone_expire(self, meta: MetaStore, other: MetaStore) -> None:
        session, (left, _) = await leave_behind(meta, other, "e/a", "e/b")
        await eventually(lambda: is_absent(meta, "e/a"))
        assert await meta.get("e/b") is None
        with pytest.raises(Conflict) as refused:
            await meta.put("e/a", b"", left.version)
        assert refused.value.current is None
        assert await meta.put("e/a", b"", ABSENT) != left.version
        assert not session.alive

    async def test_a_claim_passes_to_whoever_waits_for_it(self, meta: MetaStore, other: MetaStore) -> None:
        mine = await meta.session(LONG_TTL_MS)
        await leave_behind(meta, other, "e/claim")

        async def claimed() -> bool:
            try:
                await meta.put("e/claim", b"second", ABSENT, ephemeral=mine)
            except Conflict:
                return False
            return True

        await eventually(claimed)
        found = await meta.get("e/claim")
        assert found is not None
        assert found.value == b"second"

    async def test_a_session_that_is_kept_alive_outlives_its_time_to_live(
        self, meta: MetaStore, other: MetaStore
    ) -> None:
        for ttl_ms in KEPT_TTLS_MS:
            if await outlives(ttl_ms, meta, other):
                return
        raise AssertionError("none did")

    async def test_a_session_that_is_over_takes_no_records(self, meta: MetaStore, other: MetaStore) -> None:
        closed = await meta.session(LONG_TTL_MS)
        await closed.close()
        lost, _ = await leave_behind(meta, other, "e/a")
        await eventually(lambda: is_absent(meta, "e/a"))
        for session in (closed, lost):
            with pytest.raises(SessionExpired):
                await meta.put("e/b", b"", ephemeral=session)
        assert await meta.get("e/b") is None

    async def test_writing_without_a_session_makes_a_record_stay(self, meta: MetaStore, other: MetaStore) -> None:
        session = await meta.session(LONG_TTL_MS)
        version = await meta.put("e/a", b"1", ephemeral=session)
        await other.put("e/a", b"2", version)
        await meta.put("e/b", b"3")
        await meta.put("e/b", b"4", ephemeral=session)
        await session.close()
        assert [record.value for record in await other.scan("e/", after("e/"))] == [b"2"]


class MetaStoreContract(RecordContract, RangeContract, WatchContract, SessionContract, TransactContract):
    """Everything; this is what a backend's tests subclass."""
