"""Processes of one host that tell each other of their commits, here as nodes with a store and a folder in common."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from catena.errors import ConfigError, Sealed
from catena.loglets.base import Loglet
from catena.loglets.diskless import tail_listener, tail_publisher, tail_ring, tail_sharing
from catena.loglets.diskless.counts import TailCounts
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.diskless.tail_publisher import RETRY_S, TailPublisher
from catena.loglets.diskless.tail_ring import Frame
from catena.loglets.diskless.tail_sharing import TRUST_S, WANTED_S, TailSharing
from catena.loglets.diskless.tail_wire import FolderWire, tails_in_folder
from catena.meta.memory import MemoryMeta
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemEntropy
from catena.testing.contracts.loglet import EVERYTHING, PATIENCE_S, Links, make_entry, read_values, soon, values_of
from tests.loglets.stores import DisklessNode, QuickClock

RING = 64 << 10
HISTORY = "cluster branch"


class Host:
    def __init__(self, folder: Path, opened: AsyncExitStack) -> None:
        self.folder = folder
        self.clock = QuickClock()
        self.clock.speed = 1
        self._meta = MemoryMeta(self.clock)
        self._objects = MemoryObjects(self.clock)
        self._opened = opened

    def node(self, *, shares: bool = True, ring_bytes: int = RING, tail_cache_bytes: int = 64 << 20) -> DisklessNode:
        tails = tails_in_folder(str(self.folder), ring_bytes, HISTORY, self.clock, SystemEntropy()) if shares else None
        settings = DisklessSettings(tail_cache_bytes=tail_cache_bytes)
        node = DisklessNode(self._meta, self._objects, self.clock, settings, tails)
        self._opened.push_async_callback(node.diskless.close)
        return node

    @property
    def files(self) -> list[str]:
        return sorted(each.suffix for each in self.folder.iterdir())


@pytest.fixture
async def host(tmp_path: Path) -> AsyncIterator[Host]:
    async with AsyncExitStack() as opened:
        yield Host(tmp_path / "tails", opened)


def sharing(node: DisklessNode) -> TailSharing:
    assert node.diskless.tail_sharing is not None
    return node.diskless.tail_sharing


def wire(node: DisklessNode) -> FolderWire:
    wire = sharing(node).wire
    assert isinstance(wire, FolderWire)
    return wire


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000 * int(PATIENCE_S)):
        if condition():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not come true")


async def until_published(publisher: TailPublisher, count: int) -> None:
    await until(lambda: publisher.published == count)


async def connect(writer: DisklessNode, reader: DisklessNode, links: Links) -> int:
    """Return the tail once the reader has heard something of the writer."""
    waiting = asyncio.ensure_future(reader.open(links.spec()).wait_for_tail(0))
    await asyncio.sleep(0)
    offset = await writer.open(links.spec()).append(make_entry("first"))
    await soon(waiting)
    await until(lambda: sharing(reader).heard > 0)
    return offset + 1


async def follow(loglet: Loglet, offset: int) -> list[str]:
    """As a long poll does: wait, then read."""
    async with asyncio.timeout(PATIENCE_S):
        await loglet.wait_for_tail(offset)
        return values_of(await loglet.read(offset, EVERYTHING))


@pytest.fixture
def trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For longer than a busy machine may hold up who tells: no watch begins, and none lingers once it is connected."""
    monkeypatch.setattr(tail_sharing, "TRUST_S", 1000.0)
    monkeypatch.setattr("catena.loglets.diskless.reader.WATCH_LINGER_S", 0)


class TestHotTail:
    @pytest.mark.usefixtures("trusting")
    async def test_what_one_appends_another_reads_without_the_stores(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        loglet = reader.open(links.spec())
        await until(lambda: loglet._partition.watch is None)
        reader.faults.taken.clear()
        for number in range(200):
            waiting = asyncio.ensure_future(follow(loglet, tail))
            await asyncio.sleep(0)
            assert await writer.open(links.spec()).append(make_entry(f"{number}")) == tail
            assert await waiting == [f"{number}"]
            tail += 1
        assert not reader.faults.taken

    async def test_those_who_share_nothing_ask_the_stores_each_time(self, host: Host, links: Links) -> None:
        """So that it is seen that the test above could fail."""
        writer, reader = host.node(shares=False), host.node(shares=False)
        for number in range(20):
            waiting = asyncio.ensure_future(follow(reader.open(links.spec()), number))
            await asyncio.sleep(0)
            await writer.open(links.spec()).append(make_entry(f"{number}"))
            assert await waiting == [f"{number}"]
        assert min(reader.faults.taken[step] for step in ("get control", "scan index", "blob get_ranges")) >= 20

    @pytest.mark.usefixtures("trusting")
    async def test_who_waits_is_told_how_far_the_log_reaches(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        tail, loglet = await connect(writer, reader, links), reader.open(links.spec())
        await until(lambda: loglet._partition.watch is None)
        waiting = asyncio.ensure_future(loglet.wait_for_tail(tail))
        await asyncio.sleep(0)
        await writer.open(links.spec()).append(make_entry("a", "b"))
        assert await asyncio.wait_for(waiting, PATIENCE_S) == tail + 2

    async def test_the_tail_itself_is_asked_of_the_store(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        await connect(writer, reader, links)
        for number in range(2, 5):
            await writer.open(links.spec()).append(make_entry("x"))
            assert (await reader.open(links.spec()).tail()).offset == number

    async def test_that_there_is_nothing_new_is_asked_of_the_store(self, host: Host, links: Links) -> None:
        """However fresh what was heard is: others may have gone on from there."""
        writer, reader, stranger = host.node(), host.node(), host.node(shares=False)
        tail = await connect(writer, reader, links)
        reader.faults.taken.clear()
        assert await reader.open(links.spec()).read(tail, EVERYTHING) == []
        assert reader.faults.taken == {"get control": 1}
        await stranger.open(links.spec()).append(make_entry("from elsewhere"))
        assert values_of(await reader.open(links.spec()).read(tail, EVERYTHING)) == ["from elsewhere"]

    @pytest.mark.usefixtures("trusting")
    async def test_who_reads_before_it_is_woken_finds_what_is_told(
        self, host: Host, links: Links, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        publisher, loglet = wire(writer).publisher, reader.open(links.spec())
        monkeypatch.setattr(publisher, "_wake_readers", lambda: None)
        await until(lambda: loglet._partition.watch is None)
        reader.faults.taken.clear()
        for number in range(20):
            await writer.open(links.spec()).append(make_entry(f"{number}"))
            await until_published(publisher, number + 2)
            assert values_of(await reader.open(links.spec()).read(tail + number, EVERYTHING)) == [f"{number}"]
        assert not reader.faults.taken

    async def test_who_waits_hears_of_what_strangers_append(
        self, host: Host, links: Links, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tail_sharing, "TRUST_S", 0.05)
        writer, reader, stranger = host.node(), host.node(), host.node(shares=False)
        tail = await connect(writer, reader, links)
        for number in range(3):
            waiting = asyncio.ensure_future(follow(reader.open(links.spec()), tail + number))
            await asyncio.sleep(0)
            await stranger.open(links.spec()).append(make_entry(f"{number}"))
            assert await waiting == [f"{number}"]

    async def test_what_strangers_put_in_between_is_read_from_the_stores(self, host: Host, links: Links) -> None:
        writer, reader, stranger = host.node(), host.node(), host.node(shares=False)
        tail = await connect(writer, reader, links)
        for number in range(10):
            waiting = asyncio.ensure_future(follow(reader.open(links.spec()), tail + 1))
            await asyncio.sleep(0)
            await stranger.open(links.spec()).append(make_entry(f"stranger {number}"))
            await writer.open(links.spec()).append(make_entry(f"writer {number}"))
            assert await waiting == [f"writer {number}"]
            values = await read_values(reader.open(links.spec()), tail, tail + 2)
            assert values == [f"stranger {number}", f"writer {number}"]
            tail += 2

    async def test_two_writers_of_one_log(self, host: Host, links: Links) -> None:
        one, two, reader = host.node(), host.node(), host.node()
        tail = await connect(one, reader, links)
        expected = []
        for number in range(100):
            writer = (one, two)[number % 3 == 0]
            await writer.open(links.spec()).append(make_entry(f"{number}"))
            expected.append(f"{number}")
        host.clock.leap(TRUST_S)
        assert await read_values(reader.open(links.spec()), tail, tail + 100) == expected
        await until(lambda: wire(reader).listener.rings == 2)

    async def test_a_batch_that_does_not_fit_a_ring_is_told_of(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        waiting = asyncio.ensure_future(follow(reader.open(links.spec()), tail))
        await asyncio.sleep(0)
        await writer.open(links.spec()).append(make_entry("x" * RING))
        assert await waiting == ["x" * RING]

    async def test_what_was_evicted_is_read_from_the_stores(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node(tail_cache_bytes=2000)
        tail = await connect(writer, reader, links)
        for number in range(10):
            await writer.open(links.spec()).append(make_entry(f"{number}"))
        await until(lambda: sharing(reader).heard == 11)
        assert await read_values(reader.open(links.spec()), tail, tail + 10) == [f"{number}" for number in range(10)]

    async def test_logs_that_nobody_reads_here_are_not_kept(self, host: Host, links: Links) -> None:
        writer, reader, other = host.node(), host.node(), Links(1)
        await connect(writer, reader, links)
        heard = sharing(reader).heard
        await writer.open(other.spec()).append(make_entry("x"))
        await writer.open(links.spec()).append(make_entry("x"))
        await until(lambda: sharing(reader).heard > heard)
        assert reader.diskless.tail_cache.start(other.partition) is None
        host.clock.leap(WANTED_S)
        await writer.open(links.spec()).append(make_entry("x"))
        await until(lambda: not sharing(reader)._read)
        assert sharing(reader).heard == heard + 1


class TestCounts:
    async def test_what_was_told_and_heard(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        entry = make_entry("x")
        await writer.open(links.spec()).append(entry)
        await until(lambda: sharing(reader).heard == 2)
        await reader.open(links.spec()).read(tail, EVERYTHING)
        told, heard = writer.diskless.tail_counts(), reader.diskless.tail_counts()
        assert (told.published_batches, told.left_out_batches, told.rings, told.heard_batches) == (2, 0, 0, 0)
        assert (heard.heard_batches, heard.heard_bytes, heard.rings) == (2, told.published_bytes, 1)
        assert (heard.gaps, heard.lost, heard.fallbacks, heard.evicted_batches) == (0, 0, 0, 0)
        assert len(entry.data) < heard.heard_bytes
        assert reader.diskless.tail_cache.hits > 0
        assert host.node(shares=False).diskless.tail_counts() == TailCounts()

    async def test_a_gap_is_one_and_what_lies_in_it_is_read_from_the_stores(self, host: Host, links: Links) -> None:
        writer, reader, stranger = host.node(), host.node(), host.node(shares=False)
        tail = await connect(writer, reader, links)
        await stranger.open(links.spec()).append(make_entry("unheard"))
        await writer.open(links.spec()).append(make_entry("heard"))
        await until(lambda: sharing(reader).heard == 2)
        assert reader.diskless.tail_counts().gaps == 1
        assert await read_values(reader.open(links.spec()), tail, tail + 1) == ["unheard"]
        assert reader.diskless.tail_counts().fallbacks == 1

    async def test_what_was_there_before_anybody_told_is_no_fallback(self, host: Host, links: Links) -> None:
        writer, reader, stranger = host.node(), host.node(tail_cache_bytes=2000), host.node(shares=False)
        tail = await connect(writer, reader, links)
        assert await read_values(reader.open(links.spec()), 0, 1) == ["first"]
        assert reader.diskless.tail_counts().fallbacks == 0
        for number in range(10):
            await writer.open(links.spec()).append(make_entry(f"{number}"))
        await until(lambda: sharing(reader).heard == 11)
        assert values_of((await reader.open(links.spec()).read(tail, 1))[:1]) == ["0"]
        counts = reader.diskless.tail_counts()
        assert (counts.fallbacks, counts.evicted_batches > 0) == (1, True)
        await stranger.open(Links(1).spec()).append(make_entry("old"))
        assert values_of(await reader.open(Links(1).spec()).read(0, EVERYTHING)) == ["old"]
        assert reader.diskless.tail_counts().fallbacks == 1


class TestChain:
    async def test_a_seal_is_noticed_by_who_reads(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        await writer.open(links.spec()).seal()
        with pytest.raises(Sealed):
            await reader.open(links.spec()).read(tail, EVERYTHING)

    async def test_who_waits_on_a_sealed_link_is_woken(
        self, host: Host, links: Links, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tail_sharing, "TRUST_S", 0.05)
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        waiting = asyncio.ensure_future(reader.open(links.spec()).wait_for_tail(tail))
        await asyncio.sleep(0)
        await writer.open(links.spec()).seal()
        async with asyncio.timeout(PATIENCE_S):
            assert await waiting is None

    async def test_what_comes_through_a_later_link_is_not_served_through_an_earlier_one(
        self, host: Host, links: Links
    ) -> None:
        """Only the chain knows its epoch: the reader has to see it first."""
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        old = reader.open(links.spec())
        waiting = asyncio.ensure_future(old.wait_for_tail(tail))
        await asyncio.sleep(0)
        await writer.open(links.spec()).seal()
        await writer.open(links.spec(epoch=2, base=tail)).append(make_entry("second link"))
        async with asyncio.timeout(PATIENCE_S):
            assert await waiting is None
        assert sharing(reader).heard == 1
        new = reader.open(links.spec(epoch=2, base=tail))
        assert values_of(await new.read(tail, EVERYTHING)) == ["second link"]
        reader.faults.taken.clear()
        waiting_for_next = asyncio.ensure_future(follow(new, tail + 1))
        await asyncio.sleep(0)
        await writer.open(links.spec(epoch=2, base=tail)).append(make_entry("next"))
        assert await waiting_for_next == ["next"]
        await until(lambda: reader.diskless.tail_cache.end(links.partition) == tail + 2)


class TestFallingBehind:
    async def test_a_reader_that_was_too_slow_looks_in_the_stores_at_once(
        self, host: Host, links: Links, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tail_sharing, "TRUST_S", 1000.0)
        writer, reader, stranger = host.node(), host.node(), host.node(shares=False)
        tail = await connect(writer, reader, links)
        loglet = reader.open(links.spec())
        waiting = asyncio.ensure_future(loglet.wait_for_tail(tail))
        await asyncio.sleep(0)
        await stranger.open(links.spec()).append(make_entry("unheard"))
        # All that the ring has room for is overwritten before the reader gets its turn.
        for _ in range(2):
            wire(writer).publisher._write([frame(links, number) for number in range(200)])
        await soon(waiting)
        assert wire(reader).listener.lost == 1
        assert values_of(await loglet.read(tail, EVERYTHING)) == ["unheard"]


def frame(links: Links, offset: int, size: int = 500) -> Frame:
    """Of a log that nobody reads."""
    return Frame(links.partition.topic_id, 99, 1, offset, 1, 0.0, b"x" * size)


class TestTrouble:
    async def test_who_only_reads_makes_no_ring_and_who_only_writes_no_pipe(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        assert host.files == []
        await writer.open(links.spec()).append(make_entry("x"))
        await until(lambda: host.files == [".ring"])
        await reader.open(links.spec()).read(0, EVERYTHING)
        assert host.files == [".ring", ".wake"]

    async def test_a_process_that_ends_leaves_nothing(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        await connect(writer, reader, links)
        await writer.diskless.close()
        assert host.files == [".wake"]
        await until(lambda: wire(reader).listener.rings == 0)
        await reader.diskless.close()
        assert host.files == []

    async def test_a_writer_that_died_is_heard_to_its_end_and_cleared_away(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        await writer.open(links.spec()).append(make_entry("last words"))
        publisher = wire(writer).publisher
        await until(lambda: publisher.published == 2)
        assert publisher._file is not None
        publisher._file.close()  # as the kernel does when a process dies: its lock is free
        publisher._file = publisher._ring = None
        assert values_of(await reader.open(links.spec()).read(tail, EVERYTHING)) == ["last words"]
        await until(lambda: wire(reader).listener.rings == 0)
        assert host.files == [".wake"]

    async def test_a_long_ring_of_a_writer_that_died_is_heard_to_its_end(
        self, host: Host, links: Links, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tail_ring, "POLL_BYTES", 1)
        writer, reader = host.node(), host.node()
        await connect(writer, reader, links)
        publisher = wire(writer).publisher
        monkeypatch.setattr(publisher, "_wake_readers", lambda: None)
        for number in range(20):
            await writer.open(links.spec()).append(make_entry(f"{number}"))
        await until(lambda: publisher.published == 21)
        assert publisher._file is not None
        publisher._file.close()
        publisher._file = publisher._ring = None
        await until(lambda: wire(reader).listener.rings == 0)
        assert sharing(reader).heard == 21

    async def test_what_dead_processes_left_is_cleared_away_by_who_only_reads(self, host: Host, links: Links) -> None:
        host.folder.mkdir(mode=0o700)
        (host.folder / "1-a.ring").write_bytes(b"x")
        os.mkfifo(host.folder / "1-b.wake")
        await host.node().open(links.spec()).read(0, EVERYTHING)
        assert host.files == [".wake"]
        assert not (host.folder / "1-b.wake").exists()

    async def test_a_reader_that_is_not_woken_looks_by_itself(
        self, host: Host, links: Links, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tail_publisher.TailPublisher, "_wake_readers", lambda _: None)
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        waiting = asyncio.ensure_future(follow(reader.open(links.spec()), tail))
        await asyncio.sleep(0)
        await writer.open(links.spec()).append(make_entry("x"))
        assert await waiting == ["x"]

    @pytest.mark.parametrize("failing", ["posix_fallocate", "pwritev"])
    async def test_a_disk_in_trouble_stops_no_append_and_is_tried_again(
        self,
        host: Host,
        links: Links,
        failing: str,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def fail(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        writer, reader = host.node(), host.node()
        with monkeypatch.context() as patched:
            patched.setattr(os, failing, fail)
            for _ in range(3):
                await writer.open(links.spec()).append(make_entry("x"))
            await until(lambda: wire(writer).publisher.left_out == 3)
        assert [record.getMessage() for record in caplog.records].count(
            "what is appended here is not shared with other processes for 60 s: No space left on device"
        ) == 1
        assert host.files == []
        assert await read_values(reader.open(links.spec()), 0, 3) == ["x"] * 3
        host.clock.leap(RETRY_S)
        await writer.open(links.spec()).append(make_entry("y"))
        await until(lambda: wire(writer).publisher.published == 1)

    async def test_a_folder_that_vanishes_harms_nobody(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        tail = await connect(writer, reader, links)
        shutil.rmtree(host.folder)
        await writer.open(links.spec()).append(make_entry("x"))
        host.folder.write_text("")
        with pytest.raises(ConfigError):
            host.node()
        host.clock.leap(TRUST_S)
        assert values_of(await reader.open(links.spec()).read(tail, EVERYTHING)) == ["x"]

    async def test_a_reader_without_a_pipe_reads_from_the_stores(
        self, host: Host, links: Links, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(_path: object, _mode: int) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        monkeypatch.setattr(os, "mkfifo", fail)
        writer, reader = host.node(), host.node()
        for number in range(3):
            await writer.open(links.spec()).append(make_entry(f"{number}"))
            assert values_of(await reader.open(links.spec()).read(number, EVERYTHING)) == [f"{number}"]
        assert sum("not heard" in record.getMessage() for record in caplog.records) == 1

    async def test_more_than_it_can_write_is_left_out(self, host: Host, links: Links) -> None:
        writer = host.node()
        publisher = wire(writer).publisher
        for offset in range(100):
            publisher.publish(frame(links, offset, 1000))
        assert publisher.left_out > 0
        await until(lambda: publisher.published + publisher.left_out == 100)

    async def test_rings_beyond_the_limit_are_not_made(
        self, host: Host, links: Links, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tail_publisher, "MAX_RINGS", 1)
        monkeypatch.setattr(tail_listener, "MAX_RINGS", 1)
        one, two = host.node(), host.node()
        await one.open(links.spec()).append(make_entry("x"))
        await until(lambda: wire(one).publisher.published == 1)
        await two.open(links.spec()).append(make_entry("x"))
        await until(lambda: wire(two).publisher.left_out == 1)
        assert host.files == [".ring"]

    async def test_another_history_is_not_heard(self, host: Host, links: Links) -> None:
        writer, reader = host.node(), host.node()
        wire(writer).publisher._history = "cluster another branch"
        await reader.open(links.spec()).read(0, EVERYTHING)
        await writer.open(links.spec()).append(make_entry("x"))
        await until(lambda: wire(writer).publisher.published == 1)
        wire(reader).listener._look()
        assert wire(reader).listener.rings == 0
        assert values_of(await reader.open(links.spec()).read(0, EVERYTHING)) == ["x"]
