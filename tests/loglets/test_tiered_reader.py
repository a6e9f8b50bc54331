"""What reads of segments cost: few range gets, nothing twice, downloads ahead of who reads on, and bounded caches."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import ObjectMissing
from catena.loglets.base import Batch
from catena.loglets.tiered import reader
from catena.loglets.tiered.loglet import TieredLoglet, TieredSettings
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemClock
from catena.testing.contracts.loglet import EVERYTHING, Links, soon
from catena.testing.faults import Stall
from tests.formats.batches import batch
from tests.loglets.segments import SegmentedLog, TieredNode

ONE = batch(1, 1000)
"""An interval of its own, in most of these tests."""
SIZE = len(ONE)


async def log_of(*counts: int, interval_bytes: int = 1, beside: SegmentedLog | None = None) -> SegmentedLog:
    """A segment for each of these counts, of so many batches of one record; in the same store as another log."""
    objects = MemoryObjects(SystemClock()) if beside is None else beside.objects
    log = SegmentedLog(objects, Links(0 if beside is None else 1), 0, interval_bytes)
    for count in counts:
        await log.add([ONE] * count)
    return log


async def read_all(loglet: TieredLoglet, start: int, max_bytes: int) -> list[Batch]:
    found: list[Batch] = []
    end = (await loglet.tail()).offset
    while start < end:
        found += await loglet.read(start, max_bytes)
        start = found[-1].end
    return found


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def quiet(node: TieredNode) -> None:
    """Until nothing is downloaded any more."""
    for _ in range(1000):
        if len(node.tasks) == 0:
            return
        await asyncio.sleep(0)
    raise AssertionError("it never ends")


class TestGets:
    async def test_a_first_read_costs_a_manifest_an_index_and_one_range(self) -> None:
        log = await log_of(100)
        node = TieredNode(log.objects)
        assert len(await node.open(await log.link()).read(20, 30 * SIZE)) == 30
        assert node.gets == (1, 2)
        assert node.bytes_read == log.segments[0].index_length + 30 * SIZE

    async def test_a_read_of_one_record_reads_one_interval(self) -> None:
        log = await log_of(1000, interval_bytes=10 * SIZE)
        node = TieredNode(log.objects)
        for offset in (509, 500, 505):
            assert (await node.open(await log.link()).read(offset, 1))[0].offset == offset
        assert node.bytes_read == log.segments[0].index_length + 10 * SIZE

    async def test_a_read_that_starts_inside_of_an_interval_still_brings_what_was_asked_for(self) -> None:
        log = await log_of(100, interval_bytes=10 * SIZE)
        node = TieredNode(log.objects)
        found = await node.open(await log.link()).read(19, 10 * SIZE)
        assert [batch.offset for batch in found] == list(range(19, 29))

    async def test_all_that_is_known_is_read_without_the_store(self) -> None:
        log = await log_of(10, 10)
        node = TieredNode(log.objects)
        link = await log.link()
        for _ in range(3):
            assert len(await node.open(link).read(5, EVERYTHING)) == 15
            assert await node.open(link).find_time(0, 12) == 12
        assert node.gets == (1, 4)

    async def test_a_new_manifest_costs_nothing_but_itself(self) -> None:
        """Segments stay what they are, and so does what is known of them."""
        log = await log_of(10)
        node = TieredNode(log.objects)
        await node.open(await log.link()).read(0, EVERYTHING)
        await log.add([ONE])
        await node.open(await log.link()).read(0, 10 * SIZE)
        assert node.gets == (2, 2)

    async def test_a_read_over_many_segments_asks_for_all_of_them_at_once(self) -> None:
        log = await log_of(*[3] * 20)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        await loglet.tail()
        stall = node.faults.at("segment get_ranges", Stall())
        reading = asyncio.ensure_future(loglet.read(1, 30 * SIZE))
        await soon(stall.reached.wait())
        await turns()
        assert node.faults.taken["segment get_ranges"] == 11  # indexes: the others don't wait for the first one
        stall.let_go()
        assert len(await reading) == 30
        assert node.gets == (1, 22)

    async def test_a_read_is_bounded_in_segments_and_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "MAX_SEGMENTS_PER_READ", 4)
        log = await log_of(*[2] * 10)
        loglet = TieredNode(log.objects).open(await log.link())
        assert [batch.offset for batch in await loglet.read(1, EVERYTHING)] == list(range(1, 8))
        monkeypatch.setattr(reader, "MAX_READ_BYTES", 3 * SIZE)
        assert [batch.offset for batch in await loglet.read(1, EVERYTHING)] == [1, 2, 3]

    async def test_readers_of_the_same_place_share_their_gets(self) -> None:
        log = await log_of(10)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        found = await asyncio.gather(*(loglet.read(3, SIZE) for _ in range(10)))
        assert [batches[0].offset for batches in found] == [3] * 10
        assert node.gets == (1, 2)


class TestTimes:
    async def test_segments_that_can_not_tell_are_not_looked_at(self) -> None:
        log = await log_of()
        for times in ((10, 20), (90, 30), (40, 50), (60, 80)):
            await log.add([batch(1, 1000, time=time) for time in times])
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        assert await loglet.find_time(91, 0) is None
        assert node.gets == (1, 0)
        assert await loglet.find_time(85, 0) == 2
        assert node.gets == (1, 2)
        assert await loglet.find_time(85, 3) is None  # its segment is looked at, and its index says no
        assert node.gets == (1, 2)
        assert await loglet.find_max_time(0, None) == 2
        assert node.gets == (1, 2)
        assert await loglet.find_max_time(4, None) == 7
        assert node.gets == (1, 4)

    async def test_inside_of_a_segment_the_edges_and_one_interval_are_read(self) -> None:
        log = await log_of()
        await log.add([batch(1, 1000, time=(37 * number) % 101) for number in range(100)])
        times = [(37 * number) % 101 for number in range(100)]
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        found = await loglet.find_max_time(10, 90)
        assert found is not None
        assert times[found] == max(times[10:90])
        assert node.gets[1] <= 1 + 3

    async def test_equal_times_are_found_where_they_come_first(self) -> None:
        log = await log_of()
        for _ in range(3):
            await log.add([batch(1, 1000, time=time) for time in (5, 7, 7, 3)])
        loglet = TieredNode(log.objects).open(await log.link())
        assert [await loglet.find_max_time(start, None) for start in (0, 1, 2, 3, 6, 7)] == [1, 1, 2, 5, 6, 9]
        assert [await loglet.find_max_time(2, end) for end in (3, 4, 6, 9)] == [2, 2, 2, 2]
        assert [await loglet.find_max_time(3, end) for end in (4, 5, 6, 8, 9)] == [3, 4, 5, 5, 5]


class TestReadingAhead:
    @pytest.fixture(autouse=True)
    def window(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "READ_AHEAD_BYTES", 8 * SIZE)

    async def test_who_reads_on_finds_what_follows_already_there(self) -> None:
        log = await log_of(40)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        await loglet.read(10, SIZE)
        await quiet(node)
        assert node.gets == (1, 2)
        await loglet.read(11, SIZE)
        await quiet(node)
        assert node.gets == (1, 4)
        for offset in range(12, 20):
            assert (await loglet.read(offset, SIZE))[0].offset == offset
            assert node.counted.snapshot()["range_get"].bytes <= log.segments[0].index_length + (offset + 2) * SIZE

    async def test_more_is_asked_for_once_half_of_it_is_used_up(self) -> None:
        log = await log_of(100)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        for offset in range(80):
            assert (await loglet.read(offset, SIZE))[0].offset == offset
            await quiet(node)
        # One for each 4 batches, after two that nobody could know of.
        assert node.gets[1] <= 1 + 2 + 80 / 4 + 1
        assert node.bytes_read <= log.segments[0].index_length + 88 * SIZE

    async def test_it_goes_on_into_the_next_segment(self) -> None:
        log = await log_of(4, 20)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        for offset in (0, 1):
            await loglet.read(offset, SIZE)
            await quiet(node)
        gets = node.gets
        for offset in range(2, 6):
            await loglet.read(offset, SIZE)
        assert node.gets == gets

    @pytest.mark.parametrize("count", range(4, 17))
    async def test_half_of_the_window_is_always_there(self, count: int) -> None:
        """Wherever in it a segment ends."""
        log = await log_of(count, 3, 20)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        places = [
            (info.key, info.body_at + SIZE * number) for info in log.segments for number in range(info.end - info.base)
        ]
        for offset in range(log.end):
            await loglet.read(offset, SIZE)
            await quiet(node)
            if offset:
                assert all(node.tiered.reader._pieces.is_here(*place) for place in places[offset + 1 : offset + 5])

    async def test_the_whole_log_is_read_once(self) -> None:
        log = await log_of(30, 1, 50)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        assert [batch.offset for batch in await read_all(loglet, 0, 2 * SIZE)] == list(range(81))
        await quiet(node)
        assert node.bytes_read == sum(info.index_length for info in log.segments) + 81 * SIZE

    async def test_who_jumps_about_reads_what_it_asks_for(self) -> None:
        log = await log_of(40)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        for offset in (3, 9, 1, 15):
            await loglet.read(offset, SIZE)
            await quiet(node)
        assert node.bytes_read == log.segments[0].index_length + 4 * SIZE

    async def test_it_takes_half_of_the_cache_at_most(self) -> None:
        log = await log_of(40)
        node = TieredNode(log.objects, settings=TieredSettings(cache_bytes=6 * SIZE))
        loglet = node.open(await log.link())
        for offset in (0, 1):
            await loglet.read(offset, SIZE)
            await quiet(node)
        assert node.bytes_read == log.segments[0].index_length + (2 + 3) * SIZE

    async def test_so_many_readers_at_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reader, "READERS_AHEAD", 1)
        slow = await log_of(4, 30)
        quick = await log_of(20, beside=slow)
        node = TieredNode(slow.objects)
        first, second = node.open(await slow.link()), node.open(await quick.link())
        await first.read(0, SIZE)
        await second.read(0, SIZE)
        stall = node.faults.at("segment get_ranges", Stall(), nth=2)
        await first.read(1, SIZE)
        await soon(stall.reached.wait())  # an index, for what is to be read ahead
        bytes_read = node.bytes_read
        await second.read(1, SIZE)
        await turns()
        assert node.bytes_read == bytes_read + SIZE
        stall.let_go()
        await quiet(node)
        bytes_read = node.bytes_read
        await second.read(2, SIZE)
        await quiet(node)
        assert node.bytes_read == bytes_read + (1 + 8) * SIZE

    async def test_what_goes_wrong_ahead_is_told_to_who_comes_there(self) -> None:
        log = await log_of(3, 3)
        await log.objects.delete([log.segments[1].key])
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        for offset in range(3):
            assert (await loglet.read(offset, SIZE))[0].offset == offset
            await quiet(node)
        with pytest.raises(ObjectMissing):
            await loglet.read(3, SIZE)


class TestBounds:
    async def test_batches_that_were_not_used_for_longest_go_first(self) -> None:
        log = await log_of(20)
        node = TieredNode(log.objects, settings=TieredSettings(cache_bytes=4 * SIZE))  # 3, with what is around them
        loglet = node.open(await log.link())
        for offset in (0, 5, 10, 0, 15):
            await loglet.read(offset, SIZE)
        gets = node.gets[1]
        for offset in (0, 10, 15):
            await loglet.read(offset, SIZE)
        assert node.gets[1] == gets
        await loglet.read(5, SIZE)
        assert node.gets[1] == gets + 1

    async def test_indexes_and_manifests_are_kept_as_far_as_there_is_room(self) -> None:
        objects = MemoryObjects(SystemClock())
        logs = [SegmentedLog(objects, Links(number), interval_bytes=1) for number in range(4)]
        for log in logs:
            await log.add([ONE] * 2)
        links = [await log.link() for log in logs]
        manifest_bytes = max([(await objects.head(link.params["manifest"])).size for link in links])
        settings = TieredSettings(
            index_cache_bytes=3 * logs[0].segments[0].index_length, manifest_cache_bytes=2 * 2 * manifest_bytes
        )
        node = TieredNode(objects, settings=settings)
        for link in links:
            await node.open(link).read(0, 1)
        assert node.gets == (4, 8)
        for link in reversed(links[2:]):
            await node.open(link).read(0, 1)
        assert node.gets == (4, 8)
        await node.open(links[1]).read(0, 1)
        assert node.gets == (5, 8)
        await node.open(links[0]).read(0, 1)
        assert node.gets == (6, 9)
