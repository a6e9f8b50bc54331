"""The meta store on SQLite keeps the contract, and says clearly what is wrong with a file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from catena.errors import (
    BackPressure,
    Conflict,
    Corrupt,
    OutcomeUnknown,
    SessionExpired,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from catena.meta.base import Record
from catena.meta.sqlite import SqliteMeta
from catena.meta.sqlite.batch_thread import CALL_TIMEOUT_S, QUEUE_LIMIT
from catena.meta.sqlite.commit import CHANGES_KEPT
from catena.meta.sqlite.database import translate
from catena.meta.sqlite.write_lock import WriteLock
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.meta import MetaStoreContract
from catena.testing.contracts.meta_transact import PATIENCE_S
from catena.types import ABSENT, Version
from tests.meta.manual_clock import ManualClock


def open_store(path: Path) -> SqliteMeta:
    return SqliteMeta(path, SystemClock(), SystemEntropy())


class TestSqliteMeta(MetaStoreContract):
    @pytest.fixture
    async def meta(self, tmp_path: Path) -> AsyncIterator[SqliteMeta]:
        store = open_store(tmp_path / "data" / "meta.db")
        yield store
        await store.close()

    @pytest.fixture
    async def other(self, tmp_path: Path) -> AsyncIterator[SqliteMeta]:
        store = open_store(tmp_path / "data" / "meta.db")
        yield store
        await store.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "meta.db"


async def test_records_and_versions_outlive_the_store(path: Path) -> None:
    store = open_store(path)
    kept = await store.put("t/kept", b"1")
    gone = await store.put("t/gone", b"2")
    await store.delete("t/gone")
    await store.close()
    store = open_store(path)
    assert await store.get("t/kept") == Record("t/kept", b"1", kept)
    again = await store.put("t/gone", b"2", ABSENT)
    await store.close()
    assert again not in (kept, gone)


async def test_many_stores_may_make_the_file_at_once(tmp_path: Path) -> None:
    stores = [open_store(tmp_path / "new" / "folder" / "meta.db") for _ in range(5)]
    await asyncio.gather(*[store.put(f"t/{number}", b"") for number, store in enumerate(stores)])
    assert len(await stores[0].scan("t/", "t0")) == 5
    for store in stores:
        await store.close()


async def test_writes_that_come_together_are_committed_together(path: Path) -> None:
    store = open_store(path)
    lock = WriteLock(path)
    with lock.held():
        writing = [asyncio.ensure_future(store.put(f"t/{number}", b"")) for number in range(500)]
        await asyncio.sleep(0)
    await asyncio.gather(*writing)
    lock.close()
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        ((commits,),) = connection.execute("SELECT commits FROM counters").fetchall()
    assert commits <= 2, "the first may have been taken alone"


async def test_a_batch_sees_its_own_writes_in_order(path: Path) -> None:
    store = open_store(path)
    session = await store.session(ttl_ms=60_000)
    lock = WriteLock(path)
    with lock.held():
        results = asyncio.gather(
            store.put("t/a", b"1", ABSENT),
            store.put("t/a", b"2", ABSENT),
            store.put("t/e", b"", ABSENT, ephemeral=session),
            store.delete("t/a"),
            session.close(),
            store.put("t/a", b"3", ABSENT),
            store.put("t/e", b"", ephemeral=session),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
    first, second, _, _, _, third, late = await results
    lock.close()
    assert isinstance(second, Conflict)
    assert second.current == Record("t/a", b"1", Version(str(first)))
    assert isinstance(late, SessionExpired)
    assert await store.scan("t/", "t0") == [Record("t/a", b"3", Version(str(third)))]
    await store.close()


async def test_a_read_does_not_wait_for_a_writer(path: Path) -> None:
    store = open_store(path)
    version = await store.put("t/a", b"before")
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("UPDATE records SET value = x'00'")
        assert await store.get("t/a") == Record("t/a", b"before", version)
        writer.execute("ROLLBACK")
    await store.close()


async def test_a_store_that_only_reads_does_not_wait_for_a_writer_to_open_the_file(path: Path) -> None:
    first = open_store(path)
    version = await first.put("a/b", b"1")
    await first.close()
    store = open_store(path)
    lock = WriteLock(path)
    with lock.held():
        async with asyncio.timeout(PATIENCE_S):
            assert await store.get("a/b") == Record("a/b", b"1", version)
    lock.close()
    await store.close()


async def test_a_file_that_was_left_half_made_is_finished(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    store = open_store(path)
    assert await store.get("a/b") is None
    await store.close()


async def test_a_write_that_gets_no_turn_in_time_was_surely_not_applied(path: Path) -> None:
    clock = ManualClock()
    store = SqliteMeta(path, clock, SystemEntropy())
    await store.put("t/a", b"")
    lock = WriteLock(path)
    with lock.held():
        writing = asyncio.ensure_future(store.put("t/b", b""))
        await clock.advance(CALL_TIMEOUT_S / 2)
        assert not writing.done()
        await clock.advance(CALL_TIMEOUT_S)
        with pytest.raises(StoreUnavailable, match="did not answer"):
            await writing
    lock.close()
    assert await store.get("t/b") is None
    await store.put("t/c", b"")
    assert [record.key for record in await store.scan("t/", "t0")] == ["t/a", "t/c"]
    await store.close()


async def test_too_many_waiting_writes_are_turned_away(path: Path) -> None:
    store = open_store(path)
    await store.put("t/a", b"")
    lock = WriteLock(path)
    with lock.held():
        writing = [asyncio.ensure_future(store.put("t/a", b"")) for _ in range(QUEUE_LIMIT)]
        await asyncio.sleep(0)
        with pytest.raises(BackPressure):
            await store.put("t/b", b"")
        closing_store = asyncio.ensure_future(store.close())
        await asyncio.sleep(0)
    lock.close()
    results = await asyncio.gather(*writing, return_exceptions=True)
    await closing_store
    assert all(isinstance(result, str | StoreUnavailable) for result in results)


async def test_sessions_from_before_the_host_was_restarted_are_gone(path: Path) -> None:
    clock = ManualClock(monotonic=50_000)
    store = SqliteMeta(path, clock, SystemEntropy())
    await store.put("e/a", b"", ephemeral=await store.session(ttl_ms=10_000))
    await store.close()
    store = SqliteMeta(path, ManualClock(monotonic=5), SystemEntropy())
    assert await store.get("e/a") is None
    await store.close()


async def test_a_watch_that_missed_too_much_wakes(path: Path) -> None:
    store = open_store(path)
    watch = store.watch("w/")
    await asyncio.wait_for(watch.changed(), PATIENCE_S)
    number = 3 * CHANGES_KEPT
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE counters SET commits = ?", (number,))
        other.execute("INSERT INTO changes VALUES (?, ?, 'other', 'x/a')", (number % CHANGES_KEPT, number))
    await asyncio.wait_for(watch.changed(), PATIENCE_S)
    await store.close()


async def test_watches_of_other_keys_sleep_on_while_another_process_writes(path: Path) -> None:
    store, other = open_store(path), open_store(path)
    watched, bystander = store.watch("w/"), store.watch("b/")
    for watch in (watched, bystander):
        await asyncio.wait_for(watch.changed(), PATIENCE_S)
    for _ in range(3):
        await other.put("w/a", b"")
        await asyncio.wait_for(watched.changed(), PATIENCE_S)
    waiting = asyncio.ensure_future(bystander.changed())
    await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()
    await store.close()
    await other.close()


async def test_a_closed_store_says_so(path: Path) -> None:
    store = open_store(path)
    await store.put("t/a", b"")
    await store.close()
    await store.close()
    for call in (store.get("t/a"), store.put("t/a", b"")):
        with pytest.raises(StoreUnavailable, match="closed"):
            await call


@pytest.fixture
def damaged(path: Path) -> Path:
    path.write_bytes(b"This is no database." * 1000)
    return path


async def test_a_damaged_file_is_reported(damaged: Path) -> None:
    store = open_store(damaged)
    with pytest.raises(Corrupt, match="is damaged"):
        await store.get("t/a")
    with pytest.raises(Corrupt):
        await store.put("t/a", b"")
    await store.close()


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [("PRAGMA user_version = 2", "has format 2.*upgrade"), ("PRAGMA application_id = 1", "some other program")],
)
async def test_a_file_of_a_newer_version_or_another_program_is_refused(
    path: Path, statement: str, complaint: str
) -> None:
    store = open_store(path)
    await store.put("t/a", b"")
    await store.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    store = open_store(path)
    with pytest.raises(StoreRefused, match=complaint):
        await store.get("t/a")
    await store.close()


async def test_a_place_where_no_file_can_be_is_refused(damaged: Path) -> None:
    store = open_store(damaged / "meta.db")
    with pytest.raises(StoreRefused, match="cannot be opened"):
        await store.put("t/a", b"")
    await store.close()


def test_errors_of_sqlite_say_what_to_do(path: Path) -> None:
    with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (a)")
        connection.execute("PRAGMA max_page_count = 2")
        with pytest.raises(sqlite3.OperationalError) as full:
            connection.execute("INSERT INTO t VALUES (zeroblob(100000))")
        connection.execute("BEGIN IMMEDIATE")
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as second:
            with pytest.raises(sqlite3.OperationalError) as busy:
                second.execute("BEGIN IMMEDIATE")
            with pytest.raises(sqlite3.OperationalError) as other:
                second.execute("nonsense")
    for committing in (False, True):
        assert isinstance(translate(full.value, path, committing), StoreFull)
        assert isinstance(translate(busy.value, path, committing), StoreUnavailable)
    assert isinstance(translate(other.value, path), StoreUnavailable)
    assert isinstance(translate(other.value, path, committing=True), OutcomeUnknown)
