"""One log made of several links: appends go to the last, reads across all, and answers come from the chain as it is."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from crc32c import crc32c

from catena.errors import (
    BackPressure,
    Corrupt,
    LogSealed,
    ObjectMissing,
    OffsetOutOfRange,
    StoreUnavailable,
)
from catena.formats.record_batch import CRC_START, parse_header
from catena.formats.records import build_batch
from catena.loglets.base import Batch, Entry, LinkSpec, Loglet
from catena.loglets.memory import MemoryLoglet
from catena.meta import keys
from catena.meta.base import Watch
from catena.testing.contracts.loglet import EVERYTHING, Stamp, make_entry, values_of
from catena.testing.faults import Fail, FaultyMeta, Stall
from catena.virtual_log import chain as chains
from catena.virtual_log.log import VirtualLog
from tests.virtual_log.cluster import Cluster, read_all, tiered

LONG_S = 30


async def append_each(log: VirtualLog, *values: str) -> None:
    for value in values:
        await log.append(make_entry(*value))


async def three_links(log: VirtualLog) -> None:
    """abcd in diskless, efg in memory, hij in diskless again."""
    await append_each(log, "ab", "c", "d")
    await log.reconfigure("memory")
    await append_each(log, "e", "fg")
    await log.reconfigure("diskless")
    await append_each(log, "hi", "j")


class TestAcrossLinks:
    async def test_offsets_go_on(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await three_links(log)
        links = (await log.refresh()).links
        assert [(link.kind, link.base, link.end) for link in links] == [
            ("diskless", 0, 4),
            ("memory", 4, 7),
            ("diskless", 7, None),
        ]
        assert await other.tail() == 10
        for start in range(10):
            assert await read_all(other, start) == list("abcdefghij"[start:])

    async def test_a_node_with_an_old_view_appends_and_reads_where_the_log_is_now(self, cluster: Cluster) -> None:
        log, old = await cluster.logs(2)
        assert await old.append(make_entry("a")) == 0
        assert await read_all(old) == ["a"]
        await log.reconfigure("memory")
        assert await old.append(make_entry("b")) == 1
        await log.reconfigure("diskless")
        await log.append(make_entry("c"))
        assert await old.tail() == 3
        assert values_of(await old.read(2, EVERYTHING)) == ["c"]
        assert await old.append(make_entry("d")) == 3
        assert await cluster.content() == ["a", "b", "c", "d"]

    async def test_a_read_ends_with_its_link(self, cluster: Cluster) -> None:
        (log,) = await cluster.logs(1)
        await three_links(log)
        assert values_of(await log.read(0, EVERYTHING)) == list("abcd")
        assert values_of(await log.read(4, EVERYTHING)) == list("efg")

    async def test_what_a_zombie_wrote_beyond_its_link_is_never_read(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await three_links(log)
        memory = (await log.chain()).links[1]
        zombie = cluster.medium.find(log._spec(memory))
        assert zombie is not None
        zombie.batches.append(Batch(7, 2, memoryview(make_entry("no", "no").data)))
        for each in (log, other):
            assert values_of(await each.read(4, EVERYTHING)) == list("efg")
            assert values_of(await each.read(7, EVERYTHING)) == list("hij")
            assert (await each.find_time(0)) is not None
            assert [run.end for run in await each.runs(0, 100)] == [2, 3, 4, 5, 7, 9, 10]
            assert [run.end for run in await each.runs(3, 3)] == [4, 5, 7]
            assert await read_all(each) == list("abcdefghij")

    async def test_an_offset_outside_of_the_log_is_answered_with_its_bounds(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        assert await other.read(0, EVERYTHING) == []
        await three_links(log)
        await log.trim(3)
        for each in (other, log):
            assert await each.read(10, EVERYTHING) == []
            for offset in (-1, 0, 2, 11, 100):
                with pytest.raises(OffsetOutOfRange) as error:
                    await each.read(offset, EVERYTHING)
                assert (error.value.start, error.value.tail) == (3, 10)

    async def test_what_a_store_in_trouble_raises_reaches_the_caller(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log = await node.log()
        await log.append(make_entry("a"))
        node.faults.at("get control", Fail(StoreUnavailable("down")))
        with pytest.raises(StoreUnavailable):
            await log.tail()
        node.faults.at("blob put", Fail(BackPressure("slow down")))
        with pytest.raises(BackPressure):
            await log.append(make_entry("b"))
        assert await log.append(make_entry("c")) == 1


class TestSeal:
    async def test_a_sealed_log_takes_nothing_until_it_is_reopened(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await append_each(log, "a", "b")
        await other.append(make_entry("c"))
        assert await log.seal() == 3
        for each in (log, other):
            with pytest.raises(LogSealed, match="sealed at 3"):
                await each.append(make_entry("late"))
            assert await each.seal() == 3
            assert await each.tail() == 3
            assert await read_all(each) == ["a", "b", "c"]
            assert await each.read(3, EVERYTHING) == []
            with pytest.raises(OffsetOutOfRange):
                await each.read(4, EVERYTHING)
        await other.reconfigure("memory")
        assert await log.append(make_entry("d")) == 3
        assert await cluster.content() == ["a", "b", "c", "d"]

    async def test_an_empty_log_can_be_sealed(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        assert await log.seal() == 0
        with pytest.raises(LogSealed):
            await other.append(make_entry("late"))
        await other.reconfigure("diskless")
        assert await log.append(make_entry("a")) == 0

    async def test_idempotence_outlives_a_seal(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        entry = make_entry("a", stamp=Stamp(7, 0, 0))
        await log.append(entry)
        await log.seal()
        await other.reconfigure("diskless")
        assert await log.append(entry) == 0
        assert await other.append(entry) == 0
        assert await log.append(make_entry("b", stamp=Stamp(7, 0, 1))) == 1

    async def test_many_seal_and_reopen_at_once(self, cluster: Cluster) -> None:
        logs = await cluster.logs(4)
        await logs[0].append(make_entry("a"))
        assert await asyncio.gather(*(log.seal() for log in logs)) == [1] * 4
        await asyncio.gather(*(log.reconfigure("memory") for log in logs))
        assert sorted(await asyncio.gather(*(log.append(make_entry("b")) for log in logs))) == [1, 2, 3, 4]


class TestTrim:
    async def test_links_below_the_start_are_dropped(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await three_links(log)
        for offset, links in ((2, 3), (4, 2), (5, 2), (7, 1), (10, 1)):
            assert await other.trim(offset) == offset
            assert len((await log.refresh()).links) == links
            assert await log.start() == offset
            assert await log.tail() == 10
            assert await read_all(log, offset) == list("abcdefghij"[offset:])
        assert await log.append(make_entry("k")) == 10

    async def test_it_only_goes_forward_and_not_beyond_the_tail(self, cluster: Cluster) -> None:
        (log,) = await cluster.logs(1)
        await three_links(log)
        assert await log.trim(5) == 5
        assert await log.trim(3) == 5
        with pytest.raises(OffsetOutOfRange):
            await log.trim(11)
        assert await log.start() == 5

    async def test_a_reader_with_an_old_view_is_told_where_the_log_starts(self, cluster: Cluster) -> None:
        log, old = await cluster.logs(2)
        await three_links(log)
        assert await read_all(old) == list("abcdefghij")
        fresh_view_of_the_bytes = await (await cluster.node()).log()
        await fresh_view_of_the_bytes.chain()
        await log.trim(6)
        with pytest.raises(OffsetOutOfRange) as error:
            await fresh_view_of_the_bytes.read(0, EVERYTHING)
        assert error.value.start == 6

    async def test_nothing_is_left_of_what_is_trimmed(self, cluster: Cluster) -> None:
        (log,) = await cluster.logs(1)
        await log.append(make_entry("a", stamp=Stamp(7, 0, 0)))
        await three_links(log)
        meta = cluster.stores.meta
        assert await meta.get(keys.handoff(log.tp, 2)) is not None
        await log.trim(8)
        assert [end for end in await cluster.index_ends(log.tp) if end < 8] == []
        assert await meta.get(keys.handoff(log.tp, 2)) is None
        assert await meta.get(keys.handoff(log.tp, 3)) is not None

    async def test_producers_of_links_behind_a_tiered_one_are_kept(self, cluster: Cluster) -> None:
        (log,) = await cluster.logs(1)
        entry = make_entry("a", stamp=Stamp(7, 0, 0))
        await log.append(entry)
        await log.append(make_entry("b"))
        await log.reconfigure("diskless")
        await cluster.chains.change(log.tp, log.kind, lambda chain: tiered(chain, 2))

        class MemoryOnly:
            """No kind of this version holds tiered links; memory can stand for one that does."""

            def params(self, kind: str) -> dict[str, Any]:
                return {"kind": kind}

            def open(self, kind: str, link: LinkSpec) -> Loglet:
                assert kind in (chains.TIERED, "diskless")
                return MemoryLoglet(cluster.medium, link, cluster.stores.clock)

        trimmer = VirtualLog(log.tp, log.kind, log.meta, log.store, MemoryOnly(), cluster.stores.clock)
        assert await trimmer.trim(1) == 1
        other = await (await cluster.node()).log()
        assert await other.append(entry) == 0

    async def test_a_log_in_a_single_link_goes_on_after_all_of_it_is_trimmed(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await append_each(log, "a", "b")
        await log.trim(2)
        assert await other.read(2, EVERYTHING) == []
        assert await other.append(make_entry("c")) == 2
        assert await cluster.content(2) == ["c"]


class TestTime:
    async def append_times(self, log: VirtualLog, *times: int) -> None:
        await log.append(timed_entry(*times))

    async def test_the_first_record_of_a_time_is_found_across_links(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await self.append_times(log, 10, 20)
        await log.reconfigure("memory")
        await self.append_times(log, 15, 40, 30)
        await log.reconfigure("diskless")
        await self.append_times(log, 25, 50)
        for each in (log, other):
            for timestamp_ms, found in (
                (0, (0, 10)),
                (10, (0, 10)),
                (11, (1, 20)),
                (21, (3, 40)),
                (41, (6, 50)),
                (50, (6, 50)),
            ):
                assert await each.find_time(timestamp_ms) == found
            assert await each.find_time(51) is None

    async def test_what_lies_below_the_start_is_not_found(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await self.append_times(log, 50, 10, 10)
        await self.append_times(log, 10)
        await self.append_times(log, 50)
        await log.trim(1)
        for each in (log, other):
            assert await each.find_time(50) == (4, 50)
            assert await each.find_time(10) == (1, 10)

    async def test_a_header_that_promises_too_much_does_not_end_the_search(self, cluster: Cluster) -> None:
        (log,) = await cluster.logs(1)
        await log.append(timed_entry(10, claimed=1000))
        await self.append_times(log, 100)
        assert await log.find_time(50) == (1, 100)
        assert await log.find_time(500) is None


def timed_entry(*times: int, claimed: int | None = None) -> Entry:
    """A batch whose records have these times; its header claims the greatest, or what it is told to."""
    data = bytearray(build_batch([(None, b"", (), timestamp_ms) for timestamp_ms in times]))
    if claimed is not None:
        data[35:43] = claimed.to_bytes(8, "big")
        data[17:21] = crc32c(bytes(data[CRC_START:])).to_bytes(4, "big")
    return Entry(parse_header(data), bytes(data))


class TestWaiting:
    async def test_an_append_anywhere_wakes_who_waits(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        for writer in (log, other):
            tail = await log.tail()
            waiting = asyncio.ensure_future(log.wait_for_tail(tail, LONG_S))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not waiting.done()
            await writer.append(make_entry("a"))
            assert await waiting

    async def test_waiting_goes_on_through_a_change_of_the_chain(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await other.append(make_entry("a"))
        waiting = asyncio.ensure_future(log.wait_for_tail(1, LONG_S))
        for kind in ("memory", "diskless"):
            for _ in range(20):
                await asyncio.sleep(0)
            await other.reconfigure(kind)
        assert not waiting.done()
        await other.append(make_entry("b"))
        assert await waiting

    async def test_waiting_goes_on_while_the_log_is_sealed(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await other.seal()
        waiting = asyncio.ensure_future(log.wait_for_tail(0, LONG_S))
        for _ in range(20):
            await asyncio.sleep(0)
        await other.reconfigure("diskless")
        await other.append(make_entry("a"))
        assert await waiting

    async def test_a_change_that_was_begun_and_left_does_not_make_it_deaf(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await cluster.chains.change(log.tp, log.kind, lambda chain: chains.intend(chain, "left", "memory"))
        await log.refresh()
        waiting = asyncio.ensure_future(log.wait_for_tail(0, LONG_S))
        for _ in range(20):
            await asyncio.sleep(0)
        await other.append(make_entry("a"))
        async with asyncio.timeout(LONG_S / 2):
            assert await waiting

    async def test_patience_ends(self, cluster: Cluster) -> None:
        (log,) = await cluster.logs(1)
        await log.append(make_entry("a"))
        assert not await log.wait_for_tail(1, 0.01)
        assert await log.wait_for_tail(0, 0.01)

    async def test_a_watch_that_tells_nothing_is_made_up_for_at_the_end(self, cluster: Cluster) -> None:
        node, other = await cluster.node(wrapper=DeafMeta), await cluster.node()
        log = await node.log()
        seen, last_look = node.faults.at("get control", Stall(applied=True)), node.faults.at("get control", Stall(), 2)
        waiting = asyncio.ensure_future(log.wait_for_tail(0, 0.05))
        await seen.reached.wait()
        await (await other.log()).append(make_entry("a"))
        seen.let_go()
        last_look.let_go()
        assert await waiting


class DeafWatch:
    async def changed(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None:
        pass


class DeafMeta(FaultyMeta):
    """All wake-ups are lost."""

    def watch(self, prefix: str) -> Watch:
        return DeafWatch()


class TestLostBytes:
    async def test_a_missing_object_is_looked_for_once_more_and_then_an_error(self, cluster: Cluster) -> None:
        log, _ = await cluster.logs(2)
        await append_each(log, "a", "b")
        entry = (await cluster.stores.index(log.tp))[0]
        await cluster.stores.objects.delete([entry.data_key])
        node = await cluster.node()
        with pytest.raises(ObjectMissing, match=entry.data_key):
            await (await node.log()).read(0, 1)
        assert node.faults.taken["blob get_ranges"] == 2
        assert values_of(await (await node.log()).read(1, EVERYTHING)) == ["b"]

    async def test_an_object_that_vacuum_took_after_a_trim_is_no_error(self, cluster: Cluster) -> None:
        log, _ = await cluster.logs(2)
        await append_each(log, "a", "b")
        entry = (await cluster.stores.index(log.tp))[0]
        node = await cluster.node()
        old_view = await node.log()
        await old_view.chain()
        stall = node.faults.at("blob get_ranges", Stall())
        reading = asyncio.ensure_future(old_view.read(0, 1))
        await stall.reached.wait()
        await log.trim(1)
        await cluster.stores.objects.delete([entry.data_key])
        stall.let_go()
        with pytest.raises(OffsetOutOfRange) as error:
            await reading
        assert error.value.start == 1

    async def test_an_offset_that_the_chain_has_and_the_index_lacks_is_corruption(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await append_each(log, "a", "b", "c")
        await cluster.stores.meta.delete(keys.index(log.tp, 1))
        assert values_of(await other.read(0, EVERYTHING)) == ["a"]
        with pytest.raises(Corrupt, match="offset 1"):
            await other.read(1, EVERYTHING)
        assert values_of(await other.read(2, EVERYTHING)) == ["c"]

    async def test_a_damaged_object_is_corruption(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await append_each(log, "a")
        (entry,) = await cluster.stores.index(log.tp)
        blob = bytearray((await cluster.stores.objects.get(entry.data_key)).data)
        blob[-1] ^= 1
        await cluster.stores.objects.put(entry.data_key, [blob])
        with pytest.raises(
            Corrupt, match=f"object {entry.data_key}, the batch at byte {entry.byte_offset} for offset 0"
        ):
            await other.read(0, EVERYTHING)

    @pytest.mark.parametrize("kind", ["control", "index", "producer"])
    async def test_a_record_that_cannot_be_read_is_named(self, cluster: Cluster, kind: str) -> None:
        (log,) = await cluster.logs(1)
        entry = make_entry("a", stamp=Stamp(7, 0, 0))
        await log.append(entry)
        await log.append(make_entry("b"))
        key = {"control": keys.control(log.tp), "index": keys.index(log.tp, 0), "producer": keys.producer(log.tp, 7)}
        await cluster.stores.meta.put(key[kind], b"{")
        other = await (await cluster.node()).log()
        with pytest.raises(Corrupt, match=key[kind]):
            await (other.read(0, EVERYTHING) if kind == "index" else other.append(entry))


class TestBoundary:
    """Offsets below the boundary are elsewhere; what wakes up late must not bring them back."""

    async def tier(self, cluster: Cluster, log: VirtualLog, boundary: int) -> None:
        """What the end of a tiering job does."""
        await cluster.chains.change(log.tp, log.kind, lambda chain: tiered(chain, boundary))
        await cluster.stores.meta.delete_range(keys.index_prefix(log.tp), keys.index(log.tp, boundary))

    async def test_appends_and_reads_above_it_go_on(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await append_each(log, "ab", "cd", "ef")
        await self.tier(cluster, log, 4)
        assert await other.append(make_entry("g")) == 6
        assert await cluster.content(4) == ["e", "f", "g"]

    @pytest.mark.parametrize("cluster", ["memory without transact"], indirect=True)
    async def test_a_writer_that_stalled_before_it_looked_writes_nothing_below_it(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log, other = await node.log(), await (await cluster.node()).log()
        await log.chain()
        stall = node.faults.at("get chain", Stall())
        await log.append(make_entry("a", "b"))
        await stall.reached.wait()
        await other.append(make_entry("c"))
        await self.tier(cluster, other, 2)
        stall.let_go()
        await node.node.drain()
        assert await cluster.index_ends(log.tp) == [2]
        assert await cluster.content(2) == ["c"]

    @pytest.mark.parametrize("cluster", ["memory without transact"], indirect=True)
    async def test_a_writer_that_stalled_after_it_looked_does_no_harm(self, cluster: Cluster) -> None:
        """Its entry comes to lie where nobody looks; it replaces none."""
        node = await cluster.node()
        log, other = await node.log(), await (await cluster.node()).log()
        stall = node.faults.at("put index", Stall())
        await log.append(make_entry("a", "b"))
        await stall.reached.wait()
        await other.append(make_entry("c"))
        (written, _) = await cluster.stores.index(log.tp)
        await self.tier(cluster, other, 2)
        stall.let_go()
        await node.node.drain()
        assert (await cluster.stores.index(log.tp))[0] == written
        assert await cluster.content(2) == ["c"]
        for each in (log, other, await (await cluster.node()).log()):
            await each.append(make_entry("d"))
        assert await cluster.content(2) == ["c", "d", "d", "d"]
