"""Pieces of objects: few gets, nothing copied that need not be, bounded memory, and downloads ahead of their reader."""

from __future__ import annotations

import asyncio
import functools

import pytest

from catena.errors import Corrupt, ObjectMissing, StoreUnavailable
from catena.loglets.base import Batch
from catena.loglets.pieces import (
    COALESCE_MAX_BYTES,
    MAX_PLACES,
    OVERHEAD_BYTES,
    Lane,
    Piece,
    PieceReader,
    Places,
)
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.runtime import Tasks
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Faults, FaultyObjects, Stall
from catena.types import Buffer
from tests.loglets.stores import QuickClock

SIZE = 10 * OVERHEAD_BYTES
"""Of a piece in these tests, which is one batch."""
KEPT = SIZE + OVERHEAD_BYTES
"""What the cache counts."""


def body(number: int) -> bytes:
    return bytes([number]) * SIZE


def decode(number: int, data: Buffer) -> list[Batch]:
    if bytes(data) != body(number):
        raise Corrupt(f"piece {number} is not itself")
    return [Batch(number, 1, memoryview(data))]


class Reading:
    """A reader, and what it asks of the store; object `name` holds pieces 0, 1, ..., one after the other."""

    def __init__(self, cache_bytes: int = 1 << 20) -> None:
        self.clock = QuickClock()
        self.faults = Faults()
        self.store = MemoryObjects(self.clock)
        self.counted = CountedObjects(FaultyObjects(self.store, self.faults), self.clock)
        self.tasks = Tasks("test")
        self.lane = Lane(2, cache_bytes)
        self.reader = PieceReader(self.counted, self.clock, self.tasks, [self.lane])

    async def put(self, name: str, count: int) -> None:
        await self.store.put(name, [body(number) for number in range(count)])

    def piece(self, number: int, name: str = "object") -> Piece:
        return Piece(name, SIZE * number, SIZE, number, self.lane, functools.partial(decode, number))

    async def read(self, *numbers: int, name: str = "object") -> list[int]:
        return [batch.offset for batch in await self.reader.read([self.piece(number, name) for number in numbers])]

    def read_ahead(self, *numbers: int, name: str = "object") -> None:
        self.reader.read_ahead([self.piece(number, name) for number in numbers])

    @property
    def gets(self) -> int:
        counts = self.counted.snapshot()
        return counts["get"].requests + counts["range_get"].requests


@pytest.fixture
async def reading() -> Reading:
    reading = Reading()
    await reading.put("object", 20)
    return reading


async def test_what_is_waited_for_does_not_queue_behind_what_is_read_ahead(reading: Reading) -> None:
    for name in ("a", "b", "c", "d"):
        await reading.put(name, 1)
    stalls = [reading.faults.at(f"{name} get_ranges", Stall()) for name in ("a", "b", "c")]
    for name in ("a", "b", "c"):
        reading.read_ahead(0, name=name)
    await soon(stalls[0].reached.wait())
    assert await reading.read(0, name="d") == [0]
    for stall in stalls:
        stall.let_go()
    assert await reading.read(0, name="c") == [0]


class TestCoalescing:
    async def test_pieces_of_one_object_that_are_wanted_together_cost_one_get(self, reading: Reading) -> None:
        assert await reading.read(*range(20)) == list(range(20))
        assert reading.gets == 1

    async def test_so_do_those_that_several_readers_want(self, reading: Reading) -> None:
        assert await asyncio.gather(*(reading.read(number) for number in range(20))) == [[n] for n in range(20)]
        assert reading.gets == 1

    async def test_each_object_costs_a_get(self, reading: Reading) -> None:
        await reading.put("other", 3)
        both = [reading.piece(0), reading.piece(1, "other"), reading.piece(2)]
        assert [batch.offset for batch in await reading.reader.read(both)] == [0, 1, 2]
        assert reading.gets == 2

    async def test_who_wants_the_same_piece_meanwhile_waits_for_the_same_get(self, reading: Reading) -> None:
        stall = reading.faults.at("object get_ranges", Stall())
        first = asyncio.ensure_future(reading.read(0))
        await stall.reached.wait()
        second = asyncio.ensure_future(reading.read(0))
        await asyncio.sleep(0)
        first.cancel()
        stall.let_go()
        assert await second == [0]
        assert reading.gets == 1

    async def test_more_than_one_get_can_bring_is_read_all_the_same(self, reading: Reading) -> None:
        size = COALESCE_MAX_BYTES // 2 + 1
        await reading.store.put("large", [b"\x00" * size, b"\x01" * size, b"\x02" * size])
        pieces = [
            Piece(
                "large", size * n, size, n, reading.lane, lambda data: [Batch(bytes(data[:1])[0], 1, memoryview(data))]
            )
            for n in range(3)
        ]
        assert [batch.offset for batch in await reading.reader.read(pieces)] == [0, 1, 2]
        assert reading.gets == 3

    async def test_downloads_at_once_are_bounded(self, reading: Reading) -> None:
        for number in range(5):
            await reading.put(f"{number}/slow", 1)
        stalls = [reading.faults.at("slow get_ranges", Stall(), nth) for nth in range(1, 6)]
        all_read = asyncio.gather(*(reading.read(0, name=f"{number}/slow") for number in range(5)))
        await stalls[1].reached.wait()
        for _ in range(20):
            await asyncio.sleep(0)
        assert not stalls[2].reached.is_set()
        for stall in stalls:
            stall.let_go()
        assert await all_read == [[0]] * 5


class TestSelecting:
    """Three pieces, of 3 batches with 2 offsets and 10 bytes each, from offset 4 on."""

    @pytest.fixture
    async def pieces(self, reading: Reading) -> list[Piece]:
        await reading.store.put("object", [b"x" * 90])
        return [
            Piece("object", 30 * number, 30, 4 + 6 * number, reading.lane, functools.partial(self.decode, number))
            for number in range(3)
        ]

    @staticmethod
    def decode(number: int, data: Buffer) -> list[Batch]:
        return [Batch(4 + 6 * number + 2 * n, 2, memoryview(data)[10 * n : 10 * n + 10]) for n in range(3)]

    async def test_it_starts_with_the_batch_that_holds_the_offset_and_stops_at_the_limit(
        self, reading: Reading, pieces: list[Piece]
    ) -> None:
        for offset in range(4, 22):
            for max_bytes in range(0, 100, 5):
                found = [batch.offset for batch in await reading.reader.read_from(pieces, offset, max_bytes)]
                there = range(offset // 2 * 2, 22, 2)
                assert found == list(there[: max(1, max_bytes // 10)])
        assert await reading.reader.read_from(pieces, 22, 100) == []

    async def test_what_is_broken_beyond_the_limit_is_not_looked_at(
        self, reading: Reading, pieces: list[Piece]
    ) -> None:
        broken = [*pieces[:2], pieces[2]._replace(decode=functools.partial(decode, 0))]
        assert len(await reading.reader.read_from(broken, 4, 50)) == 5
        with pytest.raises(Corrupt):
            await reading.reader.read_from(broken, 4, 70)


class TestCache:
    async def test_a_piece_that_was_read_is_kept(self, reading: Reading) -> None:
        await reading.read(0)
        await reading.read(0)
        assert reading.gets == 1
        assert (reading.reader.hits, reading.reader.misses) == (1, 1)

    async def test_what_was_not_used_for_longest_goes_first(self) -> None:
        reading = Reading(cache_bytes=3 * KEPT)
        await reading.put("object", 10)
        for number in (0, 1, 2, 0, 3):
            await reading.read(number)
        assert reading.gets == 4
        assert await reading.read(0, 2, 3) == [0, 2, 3]
        assert reading.gets == 4
        await reading.read(1)
        assert reading.gets == 5

    async def test_batches_count_with_what_is_around_them(self) -> None:
        reading = Reading(cache_bytes=3 * KEPT - 1)
        await reading.put("object", 3)
        for number in (0, 1, 2, 1, 2):
            await reading.read(number)
        assert reading.gets == 3
        await reading.read(0)
        assert reading.gets == 4

    async def test_pieces_that_fill_a_get_are_not_copied_and_leave_together(self) -> None:
        reading = Reading(cache_bytes=4 * KEPT)
        await reading.put("object", 6)
        batches = await reading.reader.read([reading.piece(number) for number in range(3)])
        assert len({id(memoryview(batch.data).obj) for batch in batches}) == 1
        await reading.read(3)
        assert await reading.read(0, 1, 2, 3) == [0, 1, 2, 3]
        assert reading.gets == 2
        await reading.read(4)
        assert await reading.read(3, 4) == [3, 4]
        assert reading.gets == 3
        assert await reading.read(1) == [1]
        assert reading.gets == 4

    async def test_where_others_lie_between_what_is_kept_holds_on_to_nothing_else(self, reading: Reading) -> None:
        for batch in await reading.reader.read([reading.piece(3), reading.piece(9)]):
            assert len(memoryview(batch.data).obj) == SIZE  # type: ignore[arg-type]
        assert reading.gets == 1

    async def test_there_is_always_room_for_one(self) -> None:
        reading = Reading(cache_bytes=0)
        await reading.put("object", 2)
        assert [await reading.read(number) for number in (0, 0, 1, 0)] == [[0], [0], [1], [0]]
        assert reading.gets == 3

    async def test_a_whole_object_is_a_piece_too(self, reading: Reading) -> None:
        await reading.put("small", 1)
        whole = reading.piece(0, "small")._replace(length=None)
        for _ in range(2):
            assert [batch.offset for batch in await reading.reader.read([whole])] == [0]
        assert reading.gets == 1


class TestReadingAhead:
    @pytest.mark.parametrize("is_downloaded", [False, True])
    async def test_half_of_the_cache_is_for_what_nobody_has_read_yet(self, is_downloaded: bool) -> None:
        """Whether its reader comes when it is there, or earlier."""
        reading = Reading(cache_bytes=7 * SIZE)
        await reading.put("object", 8)
        for turn, numbers in enumerate(((0, 1, 2), (4, 5, 6))):
            reading.read_ahead(*range(8))
            for _ in range(20 * is_downloaded):
                await asyncio.sleep(0)
            for number in numbers:
                await reading.read(number)
            assert reading.gets == 1 + 2 * turn
            # There was no room for this one; there will be again: three were read.
            await reading.read(numbers[-1] + 1)
            assert reading.gets == 2 + 2 * turn

    async def test_what_was_pushed_out_makes_room(self) -> None:
        reading = Reading(cache_bytes=7 * SIZE)
        await reading.put("object", 3)
        await reading.put("other", 24)
        for turn in range(4):
            gets = reading.gets
            reading.read_ahead(0, 1, 2)
            await reading.read(*range(6 * turn, 6 * turn + 6), name="other")
            assert reading.gets == gets + 2

    async def test_what_fails_makes_room(self) -> None:
        reading = Reading(cache_bytes=7 * SIZE)
        for _ in range(5):
            reading.read_ahead(0, 1, 2, name="missing")
            with pytest.raises(ObjectMissing):
                await reading.read(0, name="missing")
        await reading.put("object", 3)
        reading.read_ahead(0, 1, 2)
        for number in range(3):
            await reading.read(number)
        assert reading.gets == 6

    async def test_what_is_here_is_not_downloaded_again(self, reading: Reading) -> None:
        await reading.read(0, 1)
        reading.read_ahead(0, 1, 2)
        assert [reading.reader.is_here("object", SIZE * number) for number in range(4)] == [True, True, True, False]
        await reading.read(2)
        assert reading.counted.snapshot()["range_get"].bytes == 3 * SIZE

    async def test_nothing_is_downloaded_after_the_end(self, reading: Reading) -> None:
        await reading.tasks.close()
        reading.read_ahead(0)
        await asyncio.sleep(0)
        assert reading.gets == 0


class TestTrouble:
    async def test_a_missing_object_is_named(self, reading: Reading) -> None:
        with pytest.raises(ObjectMissing, match="missing"):
            await reading.read(0, name="missing")
        await reading.put("missing", 1)
        assert await reading.read(0, name="missing") == [0]

    async def test_one_broken_piece_does_not_spoil_its_neighbours(self, reading: Reading) -> None:
        await reading.store.put("object", [body(0), body(7), body(2)])
        results = await asyncio.gather(*(reading.read(number) for number in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [list, Corrupt, list]
        assert reading.gets == 1

    async def test_an_object_that_ends_too_early_is_corrupt(self, reading: Reading) -> None:
        await reading.store.put("object", [body(0), body(1)[:-1]])
        with pytest.raises(Corrupt, match=f"offset 1 at byte {SIZE}: object object has {2 * SIZE - 1} bytes"):
            await reading.read(1)

    async def test_an_object_without_bytes_is_corrupt(self, reading: Reading) -> None:
        await reading.store.put("empty", [])
        with pytest.raises(Corrupt, match="piece 0"):
            await reading.reader.read([reading.piece(0, "empty")._replace(length=None)])

    async def test_nothing_is_read_after_the_end(self, reading: Reading) -> None:
        await reading.tasks.close()
        with pytest.raises(StoreUnavailable):
            await reading.read(0)

    async def test_who_waits_when_the_end_comes_is_told(self, reading: Reading) -> None:
        stall = reading.faults.at("object get_ranges", Stall())
        waiting = asyncio.ensure_future(reading.read(0))
        await stall.reached.wait()
        await reading.tasks.close()
        with pytest.raises(StoreUnavailable):
            await waiting

    async def test_who_has_just_asked_when_the_end_comes_is_told(self, reading: Reading) -> None:
        waiting = asyncio.ensure_future(reading.read(0))
        asyncio.get_running_loop().call_soon(lambda: asyncio.ensure_future(reading.tasks.close()))
        with pytest.raises(StoreUnavailable):
            await waiting


def test_places_of_the_last_few_readers_are_remembered() -> None:
    places = Places()
    assert not places.reads_on(0, 5)
    assert not places.reads_on(0, 7)
    assert places.reads_on(5, 9)
    assert not places.reads_on(5, 9)
    assert places.reads_on(7, 8)
    for start in range(100, 100 + MAX_PLACES):
        places.reads_on(start, 2 * start)
    assert not places.reads_on(8, 10)
