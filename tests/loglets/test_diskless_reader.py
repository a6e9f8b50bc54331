"""Reading while others write, by index, by `pending` and out of the tail cache; and waiting for more."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import Corrupt, ObjectMissing, StaleView, StoreUnavailable
from catena.loglets.base import Loglet
from catena.loglets.diskless import index, reader
from catena.loglets.diskless.index import MAX_RUNS_PER_READ, PAGE
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.diskless.tail_cache import OVERHEAD_BYTES
from catena.objects.counted import CountedObjects
from catena.testing.contracts.loglet import EVERYTHING, Links, make_entry, read_values, soon, values_of
from catena.testing.faults import Fail, Stall
from tests.loglets.stores import DisklessNode, Stores


def unavailable() -> StoreUnavailable:
    return StoreUnavailable("down")


async def append_apart(loglet: Loglet, count: int) -> None:
    """Each in a blob, and an index entry, of its own."""
    for number in range(count):
        await loglet.append(make_entry(f"{number}"))


@pytest.fixture(autouse=True)
def is_patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of the index does not get old, however long a busy machine takes."""
    monkeypatch.setattr(index, "MAX_AGE_S", 3600.0)


class TestIndex:
    async def test_a_read_goes_over_many_pages_of_the_index(self, stores: Stores, links: Links) -> None:
        count = 2 * PAGE + 10
        await append_apart((await stores.node()).open(links.spec()), count)
        loglet = (await stores.node()).open(links.spec())
        assert values_of(await loglet.read(0, EVERYTHING)) == [f"{number}" for number in range(count)]
        assert values_of(await loglet.read(PAGE, EVERYTHING))[0] == f"{PAGE}"

    async def test_one_read_is_bounded_in_runs(self, stores: Stores, links: Links) -> None:
        await append_apart((await stores.node()).open(links.spec()), MAX_RUNS_PER_READ + PAGE + 1)
        found = await (await stores.node()).open(links.spec()).read(0, EVERYTHING)
        assert MAX_RUNS_PER_READ <= len(found) <= MAX_RUNS_PER_READ + PAGE

    async def test_a_page_costs_one_scan_however_many_runs_it_has(self, stores: Stores, links: Links) -> None:
        await append_apart((await stores.node()).open(links.spec()), 10)
        node = await stores.node()
        await node.open(links.spec()).read(0, EVERYTHING)
        assert node.faults.taken["scan index"] == 1

    async def test_partitions_that_share_a_blob_are_read_with_one_get(self, stores: Stores) -> None:
        partitions = [Links(number) for number in range(20)]
        writer = await stores.node()
        await asyncio.gather(*(writer.open(each.spec()).append(make_entry("x" * 1000)) for each in partitions))
        counted = CountedObjects(stores.objects, stores.clock)
        reader = DisklessNode(await stores.open_meta(), counted, stores.clock, DisklessSettings())
        found = await asyncio.gather(*(reader.open(each.spec()).read(0, EVERYTHING) for each in partitions))
        assert [values_of(each) for each in found] == [["x" * 1000]] * 20
        assert counted.snapshot()["range_get"].requests == 1
        await reader.diskless.close()

    async def test_what_is_in_no_index_is_not_here_any_more(self, stores: Stores, links: Links) -> None:
        await append_apart((await stores.node()).open(links.spec()), 5)
        links.boundary = 3
        await (await stores.node()).open(links.spec()).trim(3)
        with pytest.raises(StaleView):
            await (await stores.node()).open(links.spec()).read(1, EVERYTHING)

    async def test_a_page_is_read_once_however_many_reads_it_serves(self, stores: Stores, links: Links) -> None:
        await append_apart((await stores.node()).open(links.spec()), 10)
        node = await stores.node()
        for offset in range(10):
            assert values_of(await node.open(links.spec()).read(offset, 1)) == [f"{offset}"]
        assert node.faults.taken["scan index"] == 1
        await append_apart((await stores.node()).open(links.spec()), 1)
        assert values_of(await node.open(links.spec()).read(10, 1)) == ["0"]

    async def test_of_many_partitions_only_so_much_is_kept(
        self, stores: Stores, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(index, "KEPT_ENTRIES", 6)
        partitions = [Links(number) for number in range(5)]
        writer, node = await stores.node(), await stores.node()
        for each in partitions:
            await append_apart(writer.open(each.spec()), 3)
            assert values_of(await node.open(each.spec()).read(1, 1)) == ["1"]
        node.faults.taken.clear()
        for each in reversed(partitions):
            assert values_of(await node.open(each.spec()).read(2, 1)) == ["2"]
        # The first read asked from offset 1 on: of 5 pages with 2 entries each 3 are kept.
        assert node.faults.taken["scan index"] == 2

    async def test_what_is_kept_of_the_index_is_dropped_when_its_blob_is_gone(
        self, stores: Stores, links: Links
    ) -> None:
        await append_apart((await stores.node()).open(links.spec()), 5)
        node = await stores.node(DisklessSettings(blob_cache_bytes=0))
        assert values_of(await node.open(links.spec()).read(0, 1)) == ["0"]
        links.boundary = 3
        moved = (await stores.index(links.partition))[1]
        await (await stores.node()).open(links.spec()).trim(3)
        await stores.objects.delete([moved.data_key])
        with pytest.raises(ObjectMissing):
            await node.open(links.spec()).read(1, 1)
        with pytest.raises(StaleView):
            await node.open(links.spec()).read(1, 1)


class TestReadingAhead:
    async def test_who_reads_on_finds_what_follows_already_there(self, stores: Stores, links: Links) -> None:
        await append_apart((await stores.node()).open(links.spec()), 20)
        node = await stores.node()
        loglet = node.open(links.spec())
        await loglet.read(5, 1)
        assert node.faults.taken["blob get_ranges"] == 1
        last = node.faults.at("blob get_ranges", Stall(), nth=14)
        await loglet.read(6, 1)
        await soon(last.reached.wait())
        last.let_go()
        for offset in range(7, 20):
            assert values_of(await loglet.read(offset, 1)) == [f"{offset}"]
        assert node.faults.taken["blob get_ranges"] == 15

    async def test_who_jumps_about_reads_what_it_asks_for(self, stores: Stores, links: Links) -> None:
        await append_apart((await stores.node()).open(links.spec()), 20)
        node = await stores.node()
        for offset in (3, 9, 1, 15):
            await node.open(links.spec()).read(offset, 1)
        assert node.faults.taken["blob get_ranges"] == 4


@pytest.mark.parametrize("stores", ["memory without transact"], indirect=True)
class TestPending:
    async def test_an_entry_on_its_way_from_pending_to_the_index_is_found(self, stores: Stores, links: Links) -> None:
        """It is in the index at the second look only, and by then `pending` holds a later one."""
        writer, reader = await stores.node(), await stores.node()
        writer.faults.at("put index", Fail(unavailable()))
        await writer.open(links.spec()).append(make_entry("a"))
        stall = reader.faults.at("get control", Stall(), nth=2)
        reading = asyncio.ensure_future(reader.open(links.spec()).read(0, EVERYTHING))
        await stall.reached.wait()
        writer.faults.at("put index", Fail(unavailable()), nth=2)
        await writer.open(links.spec()).append(make_entry("b"))
        assert [entry.end_offset for entry in await stores.index(links.partition)] == [0]
        stall.let_go()
        assert values_of(await reading)[0] == "a"

    async def test_a_search_by_time_finds_it_too(self, stores: Stores, links: Links) -> None:
        writer, reader = await stores.node(), await stores.node()
        writer.faults.at("put index", Fail(unavailable()))
        await writer.open(links.spec()).append(make_entry("a", timestamp_ms=10))
        stall = reader.faults.at("scan index", Stall(applied=True))
        finding = asyncio.ensure_future(reader.open(links.spec()).find_time(10, 0))
        await stall.reached.wait()
        await writer.open(links.spec()).append(make_entry("b", timestamp_ms=20))
        stall.let_go()
        assert await finding == 0

    async def test_it_is_told_as_a_run_once(self, stores: Stores, links: Links) -> None:
        writer, reader = await stores.node(), await stores.node()
        writer.faults.at("put index", Fail(unavailable()))
        await writer.open(links.spec()).append(make_entry("a", timestamp_ms=10))
        loglet = reader.open(links.spec())
        assert [(run.end, run.newest_ms) for run in await loglet.runs(0, 10)] == [(1, 10)]
        stall = reader.faults.at("scan index", Stall(applied=True))
        telling = asyncio.ensure_future(loglet.runs(0, 10))
        await stall.reached.wait()
        await writer.open(links.spec()).append(make_entry("b", timestamp_ms=20))
        stall.let_go()
        assert [run.end for run in await telling] == [1]
        assert [run.end for run in await loglet.runs(0, 10)] == [1, 2]
        assert [run.end for run in await loglet.runs(0, 1)] == [1]

    async def test_pending_is_read_from_the_offset_on(self, stores: Stores, links: Links) -> None:
        writer, reader = await stores.node(), await stores.node()
        writer.faults.at("put index", Fail(unavailable()))
        entries = [make_entry("a", "b"), make_entry("c"), make_entry("d", "e")]
        await asyncio.gather(*(writer.open(links.spec()).append(entry) for entry in entries))
        loglet = reader.open(links.spec())
        for offset, start in enumerate((0, 0, 2, 3, 3)):
            assert (await loglet.read(offset, EVERYTHING))[0].offset == start
        assert len(await loglet.read(0, 0)) == 1


class TestTail:
    async def test_what_this_node_wrote_is_read_without_the_stores(self, stores: Stores, links: Links) -> None:
        node = await stores.node()
        loglet = node.open(links.spec())
        await append_apart(loglet, 5)
        node.faults.taken.clear()
        assert values_of(await loglet.read(2, EVERYTHING)) == ["2", "3", "4"]
        assert not node.faults.taken

    async def test_what_others_wrote_in_between_is_read_from_the_stores(self, stores: Stores, links: Links) -> None:
        node, other = await stores.node(), await stores.node()
        for writer in (node, other, node):
            await append_apart(writer.open(links.spec()), 2)
        for each in (node, other):
            assert await read_values(each.open(links.spec()), 0, 6) == ["0", "1", "0", "1", "0", "1"]

    async def test_what_fell_out_of_the_cache_is_read_from_the_stores(self, stores: Stores, links: Links) -> None:
        size = len(make_entry("0").data) + OVERHEAD_BYTES
        node = await stores.node(DisklessSettings(tail_cache_bytes=2 * size))
        loglet = node.open(links.spec())
        await append_apart(loglet, 5)
        for offset in range(5):
            assert values_of(await loglet.read(offset, 1)) == [f"{offset}"]
        assert node.faults.taken["blob get_ranges"] == 3

    async def test_the_tail_is_asked_of_the_store_every_time(self, stores: Stores, links: Links) -> None:
        node, other = await stores.node(), await stores.node()
        for number in range(3):
            assert (await node.open(links.spec()).tail()).offset == number
            await other.open(links.spec()).append(make_entry("x"))
            assert values_of(await node.open(links.spec()).read(number, EVERYTHING)) == ["x"]


class TestWaiting:
    async def test_all_who_wait_on_a_node_share_one_watch_and_leave_none_behind(
        self, stores: Stores, links: Links, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reader, "WATCH_LINGER_S", 0)
        node, other = await stores.node(), await stores.node()
        waiting = [asyncio.ensure_future(node.open(links.spec()).wait_for_tail(0)) for _ in range(10)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert node.faults.taken["get control"] == 1
        await other.open(links.spec()).append(make_entry("x"))
        for each in waiting:
            await soon(each)
        gone = asyncio.ensure_future(node.open(links.spec()).wait_for_tail(1))
        for _ in range(10):
            await asyncio.sleep(0)
        gone.cancel()
        for _ in range(100):
            await asyncio.sleep(0.001)
            if len(node.diskless._tasks) == 0:
                break
        assert len(node.diskless._tasks) == 0

    async def test_who_waits_while_the_store_goes_down_looks_again(self, stores: Stores, links: Links) -> None:
        node = await stores.node()
        node.faults.at("get control", Fail(unavailable()))
        await soon(node.open(links.spec()).wait_for_tail(0))


class TestTrouble:
    async def test_an_object_that_is_gone_is_named(self, stores: Stores, links: Links) -> None:
        await append_apart((await stores.node()).open(links.spec()), 1)
        (entry,) = await stores.index(links.partition)
        await stores.objects.delete([entry.data_key])
        with pytest.raises(ObjectMissing, match=entry.data_key):
            await (await stores.node()).open(links.spec()).read(0, EVERYTHING)

    async def test_a_damaged_object_is_named_with_byte_and_offset(self, stores: Stores, links: Links) -> None:
        await append_apart((await stores.node()).open(links.spec()), 3)
        entry = (await stores.index(links.partition))[1]
        blob = bytearray((await stores.objects.get(entry.data_key)).data)
        blob[-1] ^= 0x80
        await stores.objects.put(entry.data_key, [blob])
        loglet = (await stores.node()).open(links.spec())
        assert values_of(await loglet.read(0, 1)) == ["0"]
        place = f"object {entry.data_key}, the batch at byte {entry.byte_offset} for offset 1"
        with pytest.raises(Corrupt, match=place):
            await loglet.read(1, 1)
        assert values_of(await loglet.read(2, 1)) == ["2"]
