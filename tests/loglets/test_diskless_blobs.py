"""Runs are read out of blobs: few gets, old data apart from new, and no byte taken on trust."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.errors import Corrupt, ObjectMissing
from catena.formats import bytes_batch
from catena.formats.records import iter_records
from catena.formats.wal_blob import BYTES_BATCH_V1
from catena.loglets.base import Batch
from catena.loglets.diskless.blobs import COLD_SLOTS, OLD_AFTER_MS, BlobReader, decode_run
from catena.loglets.diskless.records import IndexEntry
from catena.loglets.pieces import OVERHEAD_BYTES
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.runtime import Tasks
from catena.testing.contracts.loglet import make_entry, values_of
from catena.testing.faults import Faults, FaultyObjects, Stall
from tests.loglets.stores import QuickClock

RUN = b"".join(make_entry(*values).data for values in (("a", "b"), ("c",), ("d", "e", "f")))
SIZE = len(RUN)
KEPT = SIZE + 3 * OVERHEAD_BYTES
"""What the cache counts."""


def entry(number: int = 0, key: str = "blob", created_at_ms: int | None = None) -> IndexEntry:
    """The run that lies `number` runs after the start of its blob."""
    now = QuickClock().now_ms() if created_at_ms is None else created_at_ms
    return IndexEntry(15, 6, key, SIZE, SIZE * number, created_at_ms=now)


class Reading:
    """A reader, and what it asks of the store."""

    def __init__(self, cache_bytes: int = 1 << 20) -> None:
        self.clock = QuickClock()
        self.faults = Faults()
        self.store = MemoryObjects(self.clock)
        self.counted = CountedObjects(FaultyObjects(self.store, self.faults), self.clock)
        self.tasks = Tasks("test")
        self.reader = BlobReader(self.counted, self.clock, self.tasks, cache_bytes)

    async def read(self, *entries: IndexEntry) -> list[list[Batch]]:
        return await asyncio.gather(*(self.reader.read_run(entry) for entry in entries))

    @property
    def gets(self) -> int:
        counts = self.counted.snapshot()
        return counts["get"].requests + counts["range_get"].requests


@pytest.fixture
def reading() -> Reading:
    return Reading()


class TestCache:
    async def test_runs_of_one_blob_that_are_wanted_together_cost_one_get(self, reading: Reading) -> None:
        await reading.store.put("blob", [RUN * 20])
        runs = await reading.read(*(entry(number) for number in range(20)))
        assert reading.gets == 1
        assert all(values_of(run) == ["a", "b", "c", "d", "e", "f"] for run in runs)
        assert [batch.offset for batch in runs[7]] == [10, 12, 13]

    async def test_a_run_that_was_read_is_kept(self, reading: Reading) -> None:
        await reading.store.put("blob", [RUN])
        await reading.read(entry())
        await reading.read(entry())
        assert reading.gets == 1
        assert (reading.reader.hits, reading.reader.misses) == (1, 1)

    async def test_the_run_that_was_not_used_for_longest_goes_first(self) -> None:
        reading = Reading(cache_bytes=4 * KEPT)  # three runs of them for what is new
        await reading.store.put("blob", [RUN * 10])
        for number in (0, 1, 2, 0, 3):
            await reading.read(entry(number))
        assert reading.gets == 4
        await reading.read(entry(0), entry(2), entry(3))
        assert reading.gets == 4
        await reading.read(entry(1))
        assert reading.gets == 5

    async def test_old_data_does_not_push_out_what_is_new(self) -> None:
        reading = Reading(cache_bytes=4 * KEPT)
        old_ms = reading.clock.now_ms() - 2 * OLD_AFTER_MS
        await reading.store.put("blob", [RUN * 3])
        await reading.store.put("old", [RUN * 50])
        await reading.read(entry(0), entry(1), entry(2))
        for number in range(50):
            await reading.read(entry(number, "old", old_ms))
        gets = reading.gets
        await reading.read(entry(0), entry(1), entry(2))
        assert reading.gets == gets
        await reading.read(entry(0, "old", old_ms))
        assert reading.gets == gets + 1

    async def test_a_slow_backfill_does_not_hold_up_the_tail(self, reading: Reading) -> None:
        old_ms = reading.clock.now_ms() - 2 * OLD_AFTER_MS
        await reading.store.put("blob", [RUN])
        stalls = [reading.faults.at("old get_ranges", Stall(), nth) for nth in range(1, 41)]
        for number in range(40):
            await reading.store.put(f"{number}/old", [RUN])
        old = [asyncio.ensure_future(reading.reader.read_run(entry(0, f"{n}/old", old_ms))) for n in range(40)]
        await stalls[COLD_SLOTS - 1].reached.wait()
        assert values_of((await reading.read(entry()))[0]) == ["a", "b", "c", "d", "e", "f"]
        assert not stalls[COLD_SLOTS].reached.is_set()
        for stall in stalls:
            stall.let_go()
        await asyncio.gather(*old)


class TestTrouble:
    async def test_a_missing_object_is_named(self, reading: Reading) -> None:
        with pytest.raises(ObjectMissing, match="blob"):
            await reading.read(entry())
        await reading.store.put("blob", [RUN])
        assert values_of((await reading.read(entry()))[0])[0] == "a"

    async def test_one_broken_run_does_not_spoil_the_others_of_its_blob(self, reading: Reading) -> None:
        broken = bytearray(RUN * 3)
        broken[SIZE + 70] ^= 1
        await reading.store.put("blob", [broken])
        results = await asyncio.gather(
            *(reading.reader.read_run(entry(number)) for number in range(3)), return_exceptions=True
        )
        assert [type(result) for result in results] == [list, Corrupt, list]

    async def test_an_object_that_ends_too_early_is_corrupt(self, reading: Reading) -> None:
        await reading.store.put("blob", [RUN[:-1]])
        with pytest.raises(Corrupt, match="blob"):
            await reading.read(entry())


class TestDecoding:
    @given(st.integers(0, SIZE - 1), st.integers(1, 255))
    def test_a_changed_byte_is_found_or_makes_no_difference(self, at: int, flip: int) -> None:
        damaged = bytearray(RUN)
        damaged[at] ^= flip
        starts = (0, len(make_entry("a", "b").data), len(make_entry("a", "b").data) + len(make_entry("c").data))
        number = sum(start <= at for start in starts) - 1
        in_batch = at - starts[number]
        if in_batch < 8 or 12 <= in_batch < 16:
            # Base offset and leader epoch: replaced whenever a batch is sent, so nobody goes by what is stored.
            assert values_of(decode_run(entry(), damaged)) == ["a", "b", "c", "d", "e", "f"]
            return
        with pytest.raises(Corrupt) as error:
            decode_run(entry(3), damaged)
        place = f"object blob, the batch at byte {3 * SIZE + starts[number]} for offset {(10, 12, 13)[number]}: "
        assert str(error.value).startswith(place)

    @given(st.integers(0, SIZE - 1))
    def test_missing_bytes_are_found(self, length: int) -> None:
        with pytest.raises(Corrupt, match="object blob"):
            decode_run(entry(), RUN[:length])

    def test_batches_too_many_are_found(self) -> None:
        with pytest.raises(Corrupt, match=r"object blob, the batch at byte \d+ for offset 17: the run ends here"):
            decode_run(entry(), RUN + make_entry("g").data)

    def test_an_encoding_that_is_not_known_is_refused(self) -> None:
        with pytest.raises(Corrupt, match=r"object blob.*'bytes-batch-v9'"):
            decode_run(IndexEntry(5, 6, "blob", SIZE, encoding="bytes-batch-v9"), RUN)


class TestOlderData:
    """Bodies and names as they were before this version; the index says which."""

    BODY = bytes_batch.encode([b"one", b"", b"three"])

    def values(self, run: list[Batch]) -> list[tuple[int, int, bytes | None]]:
        return [
            (record.offset, record.timestamp, record.value)
            for batch in run
            for record in iter_records(batch.data, batch.offset)
        ]

    async def test_a_body_of_values_in_a_shared_blob(self, reading: Reading) -> None:
        await reading.store.put("llog/wal-shared/1", [b"header", self.BODY, b"others"])
        old = IndexEntry(
            9, 3, "s3://bucket/llog/wal-shared/1", len(self.BODY), 6, created_at_ms=77, encoding=BYTES_BATCH_V1
        )
        assert self.values((await reading.read(old))[0]) == [(7, 77, b"one"), (8, 77, b""), (9, 77, b"three")]

    async def test_a_body_that_is_a_whole_object_of_one_partition(self, reading: Reading) -> None:
        await reading.store.put("llog/orders/partitions/0/data/wal/1", [self.BODY])
        old = IndexEntry(
            2, 3, "s3://bucket/llog/orders/partitions/0/data/wal/1", created_at_ms=77, encoding=BYTES_BATCH_V1
        )
        assert self.values((await reading.read(old))[0]) == [(0, 77, b"one"), (1, 77, b""), (2, 77, b"three")]
        assert reading.counted.snapshot()["get"].requests == 1

    def test_a_damaged_body_is_found(self) -> None:
        old = IndexEntry(2, 3, "s3://bucket/x", encoding=BYTES_BATCH_V1)
        with pytest.raises(Corrupt, match=r"object s3://bucket/x.* for offset 0: byte "):
            decode_run(old, self.BODY[:-1])
        with pytest.raises(Corrupt, match="object s3://bucket/x"):
            decode_run(IndexEntry(3, 4, "s3://bucket/x", encoding=BYTES_BATCH_V1), self.BODY)
