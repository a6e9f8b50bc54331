"""What is in segments is read as it was put in, from every offset, and no byte of it is taken on trust."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import Corrupt, ObjectMissing, Sealed, StaleView, StoreUnavailable
from catena.formats.record_batch import parse_header
from catena.loglets.base import Batch, Run, SealResult, Tail
from catena.loglets.tiered.loglet import TieredSettings
from catena.objects.base import ObjectStore
from catena.objects.folder import FolderObjects
from catena.objects.memory import MemoryObjects
from catena.objects.s3 import S3Objects
from catena.runtime import Disk, SystemClock, SystemEntropy
from catena.testing.contracts.loglet import EVERYTHING, Links, make_entry, soon
from catena.testing.faults import Stall
from catena.testing.s3_server import SeaweedServer
from catena.types import Offset
from tests.formats.batches import batch, batches
from tests.loglets.segments import SegmentedLog, TieredNode

NO_CACHE = TieredSettings(cache_bytes=0, index_cache_bytes=0, manifest_cache_bytes=0)

logs = st.lists(st.lists(batches, min_size=1, max_size=6), min_size=1, max_size=4)
"""The batches of each segment."""


@pytest.fixture(params=["memory", "folder", "s3"])
async def objects(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[ObjectStore]:
    match request.param:
        case "memory":
            yield MemoryObjects(SystemClock())
        case "folder":
            disk = Disk(2)
            yield await FolderObjects.open(tmp_path, disk, SystemClock(), SystemEntropy())
            disk.close()
        case "s3":
            server: SeaweedServer = request.getfixturevalue("s3_server")
            yield S3Objects(server.settings(f"tiered/{SystemEntropy().hex_id()}"))


async def log_of(segments: list[list[bytes]], base: Offset = 0, interval_bytes: int = 300) -> SegmentedLog:
    log = SegmentedLog(MemoryObjects(SystemClock()), Links(), base, interval_bytes)
    for bodies in segments:
        await log.add(bodies)
    return log


def placed(segments: list[list[bytes]], base: Offset) -> list[tuple[Offset, int, bytes]]:
    """Offset, count and bytes of each batch."""
    found = []
    for data in (each for bodies in segments for each in bodies):
        count = parse_header(data).count
        found.append((base, count, data))
        base += count
    return found


def told(found: list[Batch]) -> list[tuple[Offset, int, bytes]]:
    return [(each.offset, each.count, bytes(each.data)) for each in found]


class TestReading:
    @given(logs, st.integers(0, 1000), st.integers(1, 1500), st.sampled_from([TieredSettings(), NO_CACHE]))
    async def test_every_offset_gives_what_was_put_in(
        self, segments: list[list[bytes]], base: Offset, interval_bytes: int, settings: TieredSettings
    ) -> None:
        log = await log_of(segments, base, interval_bytes)
        loglet = TieredNode(log.objects, settings=settings).open(await log.link())
        expected = placed(segments, base)
        for offset in range(base, log.end):
            assert told(await loglet.read(offset, EVERYTHING)) == [each for each in expected if sum(each[:2]) > offset]
            (first,) = await loglet.read(offset, 0)
            assert first.offset <= offset < first.end

    @given(logs, st.integers(1, 600), st.integers(1, 2000))
    async def test_who_reads_on_gets_every_batch_once(
        self, segments: list[list[bytes]], interval_bytes: int, max_bytes: int
    ) -> None:
        log = await log_of(segments, 7, interval_bytes)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        found: list[Batch] = []
        while not found or found[-1].end < log.end:
            more = await loglet.read(found[-1].end if found else 7, max_bytes)
            assert len(more) == 1 or sum(len(each.data) for each in more) <= max_bytes
            found += more
        assert told(found) == placed(segments, 7)
        await node.tasks.close()

    @given(logs, st.integers(1, 600), st.data())
    async def test_times_are_found_as_by_a_look_at_every_batch(
        self, segments: list[list[bytes]], interval_bytes: int, data: st.DataObject
    ) -> None:
        log = await log_of(segments, 5, interval_bytes)
        loglet = TieredNode(log.objects).open(await log.link())
        times = [(*each[:2], parse_header(each[2]).max_timestamp) for each in placed(segments, 5)]
        start = data.draw(st.integers(5, log.end))
        wanted = data.draw(st.integers(0, 52))
        later = [offset for offset, count, time in times if offset + count > start and time >= wanted]
        assert await loglet.find_time(wanted, start) == (later[0] if later else None)
        end = data.draw(st.none() | st.integers(start + 1, log.end + 1))
        inside = [
            (time, -offset)
            for offset, count, time in times
            if offset + count > start and (end is None or offset < end) and time >= 0
        ]
        assert await loglet.find_max_time(start, end) == (-max(inside)[1] if inside else None)

    async def test_one_read_goes_over_many_segments(self, objects: ObjectStore) -> None:
        log = SegmentedLog(objects, Links())
        bodies = [[batch(2, 1000)] for _ in range(10)]
        for each in bodies:
            await log.add(each)
        loglet = TieredNode(objects).open(await log.link())
        assert told(await loglet.read(0, EVERYTHING)) == placed(bodies, 0)
        assert told(await loglet.read(7, EVERYTHING)) == placed(bodies, 0)[3:]

    async def test_batches_larger_than_an_interval(self, objects: ObjectStore) -> None:
        log = SegmentedLog(objects, Links())
        bodies = [[batch(3, 1 << 20), batch(1), batch(2, 200_000)]]
        await log.add(bodies[0])
        loglet = TieredNode(objects).open(await log.link())
        for offset, number in enumerate((0, 0, 0, 1, 2, 2)):
            assert told(await loglet.read(offset, EVERYTHING)) == placed(bodies, 0)[number:]
            assert told(await loglet.read(offset, 1)) == placed(bodies, 0)[number : number + 1]


class TestTheRestOfTheContract:
    async def test_it_is_sealed_where_its_manifest_ends(self) -> None:
        log = await log_of([[batch(3)], [batch(4)]], base=10)
        loglet = TieredNode(log.objects).open(await log.link())
        assert await loglet.tail() == Tail(17, sealed=True)
        assert await loglet.seal() == SealResult(17, {})
        await soon(loglet.wait_for_tail(1000))
        with pytest.raises(Sealed):
            await loglet.append(make_entry("late"))
        for offset in (17, 18, 1000):
            with pytest.raises(Sealed, match="ends at 17"):
                await loglet.read(offset, EVERYTHING)
        await loglet.trim(12)
        assert (await loglet.read(10, 1))[0].offset == 10
        await loglet.close()

    async def test_what_is_below_its_manifest_is_not_here_any_more(self) -> None:
        log = await log_of([[batch(3)], [batch(4)]], base=10)
        link = await log.link(base=13, segments=tuple(log.segments[1:]))
        loglet = TieredNode(log.objects).open(link)
        with pytest.raises(StaleView) as error:
            await loglet.read(12, EVERYTHING)
        assert not isinstance(error.value, Sealed)
        assert (await loglet.read(13, 1))[0].offset == 13
        assert await loglet.find_time(0, 0) == 13
        assert await loglet.find_max_time(0, None) == 13
        assert [run.end for run in await loglet.runs(0, 10)] == [17]

    async def test_there_may_be_nothing_in_it(self) -> None:
        log = await log_of([], base=10)
        loglet = TieredNode(log.objects).open(await log.link())
        assert await loglet.tail() == Tail(10, sealed=True)
        with pytest.raises(Sealed):
            await loglet.read(10, EVERYTHING)
        assert await loglet.runs(10, 5) == []
        assert await loglet.find_time(0, 10) is None
        assert await loglet.find_max_time(10, None) is None

    async def test_a_run_is_a_segment(self) -> None:
        log = await log_of([], base=10)
        untimed = batch(2, 50, time=-1)
        for bodies, appended_at_ms in (
            ([batch(3, time=30), batch(1, time=70), batch(1, time=50)], 99),
            ([untimed, untimed], 88),
            ([untimed], -1),
        ):
            await log.add(bodies, appended_at_ms)
        node = TieredNode(log.objects)
        loglet = node.open(await log.link())
        runs = [
            Run(15, sum(map(len, [batch(3), batch(1), batch(1)])), 70),
            Run(19, 2 * len(untimed), 88),
            Run(21, len(untimed), -1),
        ]
        assert await loglet.runs(10, 10) == runs
        assert await loglet.runs(14, 2) == runs[:2]
        assert await loglet.runs(15, 1) == runs[1:2]
        assert await loglet.runs(20, 5) == runs[2:]
        assert await loglet.runs(21, 5) == []
        assert node.gets == (1, 0)


class TestTrouble:
    async def test_what_is_gone_is_named_so_that_the_chain_is_read_anew(self, objects: ObjectStore) -> None:
        log = SegmentedLog(objects, Links())
        gone, here = await log.add([batch(2)]), await log.add([batch(2)])
        link = await log.link()
        node = TieredNode(objects)
        await objects.delete([gone.key])
        with pytest.raises(ObjectMissing, match=gone.key):
            await node.open(link).read(0, 1)
        assert (await node.open(link).read(2, 1))[0].offset == 2
        await objects.delete([here.key])
        assert (await node.open(link).read(2, 1))[0].offset == 2
        with pytest.raises(ObjectMissing, match=here.key):
            await TieredNode(objects).open(link).read(2, 1)
        await objects.delete([link.params["manifest"]])
        for asked in (TieredNode(objects).open(link).tail(), TieredNode(objects).open(link).runs(0, 1)):
            with pytest.raises(ObjectMissing, match=link.params["manifest"]):
                await asked

    async def test_a_segment_that_is_gone_while_its_index_is_known(self, objects: ObjectStore) -> None:
        log = SegmentedLog(objects, Links(), interval_bytes=1)
        info = await log.add([batch(), batch()])
        loglet = TieredNode(objects).open(await log.link())
        await loglet.read(0, 1)
        await objects.delete([info.key])
        with pytest.raises(ObjectMissing, match=info.key):
            await loglet.read(1, 1)

    async def test_a_damaged_batch_is_named_with_object_byte_and_offset(self, objects: ObjectStore) -> None:
        log = SegmentedLog(objects, Links(), base=40, interval_bytes=1)
        one = batch(2, 50)
        info = await log.add([one] * 3)
        data = bytearray((await objects.get(info.key)).data)
        data[info.body_at + 2 * len(one) - 1] ^= 0x10
        await objects.put(info.key, [data])
        loglet = TieredNode(objects).open(await log.link())
        place = f"object {info.key}, the batch at byte {info.body_at + len(one)} for offset 42: byte 17: the stored CRC"
        for _ in range(2):
            with pytest.raises(Corrupt, match=place):
                await loglet.read(40, EVERYTHING)
            with pytest.raises(Corrupt, match=place):
                await loglet.read(43, 1)
            assert told(await loglet.read(40, 1)) == [(40, 2, one)]
            assert told(await loglet.read(44, 1)) == [(44, 2, one)]

    @given(st.data())
    async def test_whatever_is_damaged_nothing_wrong_is_read(self, data: st.DataObject) -> None:
        segments = [[batch(2, 60, time=3), batch(1, 10)], [batch(3)]]
        log = await log_of(segments, 5, interval_bytes=100)
        link = await log.link()
        key = data.draw(st.sampled_from([*(info.key for info in log.segments), link.params["manifest"]]))
        stored = (await log.objects.get(key)).data
        at = data.draw(st.integers(0, len(stored) - 1))
        damaged = bytearray(stored)
        damaged[at] ^= data.draw(st.integers(1, 255))
        await log.objects.put(key, [damaged if data.draw(st.booleans()) else stored[:at] + stored[at + 1 :]])
        loglet = TieredNode(log.objects).open(link)
        found: dict[Offset, list[tuple[Offset, int, bytes]] | Corrupt] = {}
        for offset in range(5, log.end):
            try:
                found[offset] = told(await loglet.read(offset, EVERYTHING))
            except Corrupt as error:
                found[offset] = error
        expected = placed(segments, 5)
        for offset, each in found.items():
            if isinstance(each, Corrupt):
                assert key in str(each)
            else:
                assert each == [one for one in expected if sum(one[:2]) > offset]
        # Header and footer are not looked at: the manifest says the same.
        info = next((info for info in log.segments if info.key == key), None)
        is_used = info is None or info.body_at <= at < info.index_at + info.index_length
        assert isinstance(found[5], Corrupt) or not is_used

    async def test_a_segment_that_is_cut_off_is_named(self, objects: ObjectStore) -> None:
        log = SegmentedLog(objects, Links(), base=40)
        info = await log.add([batch(2, 50)] * 3)
        data = (await objects.get(info.key)).data
        link = await log.link()
        for length in (0, info.body_at, info.index_at, info.index_at + info.index_length - 1):
            await objects.put(info.key, [data[:length]])
            place = f"offsets 40 to 45, index at byte {info.index_at}: object {info.key} "
            with pytest.raises(Corrupt, match=place):
                await TieredNode(objects).open(link).read(42, 1)

    async def test_what_is_cut_off_while_the_index_is_known_is_named_with_its_offset(self) -> None:
        log = await log_of([[batch(2, 50)] * 3], base=40, interval_bytes=1)
        (info,) = log.segments
        loglet = TieredNode(log.objects).open(await log.link())
        await loglet.read(40, 1)
        data = (await log.objects.get(info.key)).data
        await log.objects.put(info.key, [data[: info.index_at - 1]])
        at = info.index_at - len(batch(2, 50))
        with pytest.raises(Corrupt, match=f"offset 44 at byte {at}: object {info.key} has {info.index_at - 1} bytes"):
            await loglet.read(45, 1)
        assert (await loglet.read(42, 1))[0].offset == 42

    async def test_the_manifest_of_another_partition_is_not_taken(self) -> None:
        log = await log_of([[batch()]])
        link = await log.link(partition=1)
        with pytest.raises(
            Corrupt, match=rf"object {link.params['manifest']} is the manifest of topic/1, topic id 1+, "
        ):
            await TieredNode(log.objects).open(link).tail()
        link = await log.link(topic_id="2" * 32)
        with pytest.raises(Corrupt, match=r"topic id 2+, and the chain of topic/0, topic id 1+, names it"):
            await TieredNode(log.objects).open(link).read(0, 1)

    @pytest.mark.parametrize("params", [{}, {"manifest": None}, {"manifest": 7}])
    async def test_a_link_without_a_manifest_is_refused(self, params: dict[str, object]) -> None:
        log = await log_of([])
        with pytest.raises(Corrupt, match="topic/0: the tiered link of epoch 1 names no manifest"):
            TieredNode(log.objects).open(log.spec(params))

    async def test_nobody_is_left_waiting_at_the_end(self) -> None:
        log = await log_of([[batch()]])
        link = await log.link()
        for step in ("manifest get", "segment get_ranges"):
            node = TieredNode(log.objects)
            stall = node.faults.at(step, Stall())
            reading = asyncio.ensure_future(node.open(link).read(0, 1))
            await soon(stall.reached.wait())
            await node.tasks.close()
            with pytest.raises(StoreUnavailable):
                await reading
