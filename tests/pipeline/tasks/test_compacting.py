"""The tasks of a compaction, by themselves: what they hand over, how much they hold, and what stops them."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
import numpy as np
import pytest
from msgspec import UNSET

from catena.columns.last_of_keys import LastOfKeys
from catena.errors import Corrupt, InvalidBatch, ObjectMissing
from catena.formats import segment as segments
from catena.formats.opaque import Opaque
from catena.formats.record_batch import split_batches
from catena.formats.records import Record, build_batch, iter_records
from catena.formats.segment import SegmentHeader, SegmentInfo
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks import TaskContext, run_task
from catena.pipeline.tasks import bodies as bodies_module
from catena.pipeline.tasks.compact_plans import (
    KeysFound,
    KeysPlan,
    OfJob,
    Part,
    RewritePlan,
    Rewritten,
    SurvivorsFound,
    SurvivorsPlan,
    with_bytes,
)
from catena.pipeline.tasks.compacting import divide, find_keys, find_survivors, rewrite
from catena.pipeline.tasks.listing import kind_of
from catena.runtime import SystemClock, SystemEntropy
from catena.types import Offset, TopicId
from tests.columns.nonsense import Fault, nonsense

ID = TopicId("a" * 32)
NAMES = {"topic": "orders", "topic_id": ID, "partition": 3, "job": "b" * 32}
NOTHING_OPAQUE = Opaque()
SCRATCH = OfJob(**NAMES)  # type: ignore[arg-type]


class Bench:
    """A store with segments, and a compaction of them."""

    def __init__(self) -> None:
        self.objects = CountedObjects(MemoryObjects(SystemClock()), SystemClock())
        self.context = TaskContext(self.objects, SystemClock(), SystemEntropy(), self.objects)
        self.segments: list[SegmentInfo] = []
        self.records: list[Record] = []

    async def add(self, *batches: bytes) -> None:
        base = self.segments[-1].end if self.segments else 0
        end = base
        for header, batch in split_batches(b"".join(batches)):
            with suppress(InvalidBatch):
                self.records += list(iter_records(batch, end))
            end += header.count
        told = SegmentHeader(
            cluster_id="cluster",
            topic="orders",
            topic_id=ID,
            partition=3,
            base_offset=base,
            end_offset=end,
            created_at_ms=7,
            appended_at_ms=100 + len(self.segments),
            compaction_id="earlier",
            records=UNSET,
        )
        encoded = segments.encode(f"s{len(self.segments)}", told, batches)
        await self.objects.put(encoded.info.key, encoded.buffers)
        self.segments.append(encoded.info)

    async def find_keys(self, groups: Sequence[Sequence[SegmentInfo]], buckets: int) -> list[KeysFound]:
        plans = [KeysPlan(**NAMES, buckets=buckets, segments=tuple(group)) for group in groups]  # type: ignore[arg-type]
        return [await find_keys(self.context, plan) for plan in plans]

    async def find_survivors(
        self, groups: Sequence[Sequence[SegmentInfo]], found: Sequence[KeysFound], below: Offset = 0
    ) -> list[SurvivorsFound]:
        ends = tuple(group[-1].end for group in groups)
        return [
            await find_survivors(
                self.context,
                SurvivorsPlan(**NAMES, parts=with_bytes(parts), ends=ends, tombstones_below=below),  # type: ignore[arg-type]
            )
            for parts in zip(*(each.buckets for each in found), strict=True)
        ]

    async def rewrite(
        self, group: Sequence[SegmentInfo], survivors: Iterable[Part], opaque: Opaque = NOTHING_OPAQUE
    ) -> Rewritten:
        plan = RewritePlan(
            **NAMES,  # type: ignore[arg-type]
            cluster_id="cluster",
            segments=tuple(group),
            survivors=with_bytes(survivors),
            opaque=opaque,
        )
        return await rewrite(self.context, plan)

    async def compact(
        self, groups: Sequence[Sequence[SegmentInfo]], buckets: int, below: Offset = 0
    ) -> list[Rewritten]:
        keys = await self.find_keys(groups, buckets)
        found = await self.find_survivors(groups, keys, below)
        parts = zip(*(each.groups for each in found), strict=True)
        return [
            await self.rewrite(group, its, each.opaque) for group, its, each in zip(groups, parts, keys, strict=True)
        ]

    async def read(self, infos: Sequence[SegmentInfo]) -> list[Record]:
        records = []
        for info in infos:
            data = (await self.objects.get(info.key)).data
            segments.check(data, info.key)
            offset = info.base
            for header, batch in split_batches(memoryview(data)[info.body_at : info.index_at]):
                records += list(iter_records(batch, offset))
                offset += header.count
        return records


def batch(*pairs: tuple[bytes | None, bytes | None]) -> bytes:
    return build_batch([(key, value, (), 5) for key, value in pairs])


@pytest.fixture
async def bench() -> Bench:
    """Four segments of ten batches, with keys that come again and again."""
    made, draw = Bench(), random.Random(7)
    for _ in range(4):
        await made.add(
            *(
                batch(*((b"%d" % draw.randrange(30), draw.choice((None, b"v" * 20))) for _ in range(4)))
                for _ in range(10)
            )
        )
    return made


def expected(records: Sequence[Record], below: Offset = 0) -> list[Record]:
    last = {record.key: record for record in records}
    return sorted(each for each in last.values() if each.value is not None or each.offset >= below)


@pytest.mark.parametrize("buckets", [1, 2, 7, 50])
@pytest.mark.parametrize("sizes", [[4], [1, 1, 1, 1], [2, 2], [1, 3]])
async def test_however_it_is_divided_the_last_of_each_key_stays(bench: Bench, buckets: int, sizes: list[int]) -> None:
    left = list(bench.segments)
    groups = [[left.pop(0) for _ in range(size)] for size in sizes]
    found = await bench.compact(groups, buckets, below=80)
    written = [each.info for each in found if each.info is not None]
    assert len(written) == len(sizes)
    assert await bench.read(written) == expected(bench.records, 80)
    assert [(info.base, info.end) for info in written] == [(group[0].base, group[-1].end) for group in groups]
    assert [info.record_count for info in written] == [each.records for each in found]
    assert sum(each.removed for each in found) == 160 - len(expected(bench.records, 80))
    assert written[-1].appended_at_ms == 103


async def test_keys_and_marks_are_counted(bench: Bench) -> None:
    groups = [bench.segments]
    found = await bench.find_survivors(groups, await bench.find_keys(groups, 3), below=1 << 40)
    marks = [each for each in expected(bench.records) if each.value is None]
    assert sum(each.keys for each in found) == len({record.key for record in bench.records})
    assert sum(each.tombstones for each in found) == len(marks) > 0
    sizes = sum(part.size for each in found for part in each.groups)
    assert sizes == 8 * len(expected(bench.records, 1 << 40))


async def test_all_that_is_written_is_the_jobs(bench: Bench) -> None:
    """So vacuum knows it, and leaves it alone as long as the job may need it."""
    before = {info.key async for info in bench.objects.list("")}
    await bench.compact([bench.segments], 3)
    made = {info.key async for info in bench.objects.list("")} - before
    assert len(made) == 1 + 3 + 1
    assert {kind_of(key) for key in made} == {"segment"}
    assert {key.rsplit("/", 1)[0] for key in made} == {f"llog/{ID}/partitions/3/segments/{'b' * 32}"}


async def test_where_nothing_goes_nothing_is_written() -> None:
    bench = Bench()
    await bench.add(batch((b"a", b"1"), (None, b"2")), batch((b"b", b"3")))
    (found,) = await bench.compact([bench.segments], 2)
    assert found == Rewritten(None, 3, 0)


async def test_without_keys_there_is_no_scratch() -> None:
    bench = Bench()
    await bench.add(batch((None, b"1"), (None, b"2")))
    before = {info.key async for info in bench.objects.list("")}
    assert await bench.compact([bench.segments], 4) == [Rewritten(None, 2, 0)]
    assert {info.key async for info in bench.objects.list("")} == before


async def test_by_their_names_tasks_do_the_same(bench: Bench) -> None:
    async def run(name: str, plan: msgspec.Struct) -> bytes:
        return await run_task(name, bench.context, msgspec.json.encode(plan))

    group = tuple(bench.segments)
    keys_plan = KeysPlan(**NAMES, buckets=2, segments=group)  # type: ignore[arg-type]
    found = msgspec.json.decode(await run("keys", keys_plan), type=KeysFound)
    told: list[Part] = []
    for part in found.buckets:
        plan = SurvivorsPlan(**NAMES, parts=(part,), ends=(160,), tombstones_below=0)  # type: ignore[arg-type]
        told += msgspec.json.decode(await run("survivors", plan), type=SurvivorsFound).groups
    rewrite_plan = RewritePlan(
        **NAMES,  # type: ignore[arg-type]
        cluster_id="cluster",
        segments=group,
        survivors=tuple(told),
        opaque=found.opaque,
    )
    written = msgspec.json.decode(await run("rewrite", rewrite_plan), type=Rewritten)
    assert written.info is not None
    assert await bench.read([written.info]) == expected(bench.records)


class TestNothingIsLostInSilence:
    async def test_survivors_of_another_group_are_not_taken(self, bench: Bench) -> None:
        groups = [bench.segments[:2], bench.segments[2:]]
        found = await bench.find_survivors(groups, await bench.find_keys(groups, 2))
        others = [list(each.groups)[1] for each in found]
        with pytest.raises(Corrupt, match=r"orders/3.*offsets 0 to 79: \d+ records are to stay, of which 0 are there"):
            await bench.rewrite(groups[0], others)

    async def test_scratch_that_has_changed_is_found(self, bench: Bench) -> None:
        groups = [bench.segments]
        (found,) = await bench.find_keys(groups, 1)
        (part,) = found.buckets
        key = SCRATCH.scratch(part.name)
        data = bytearray((await bench.objects.get(key)).data)
        data[part.size // 2] ^= 1
        await bench.objects.put(key, [bytes(data)])
        with pytest.raises(Corrupt, match=f"object {key}, byte 0: {part.size} bytes of scratch have changed"):
            await bench.find_survivors(groups, [found])

    async def test_scratch_that_is_gone_is_missed(self, bench: Bench) -> None:
        groups = [bench.segments]
        (found,) = await bench.find_keys(groups, 1)
        await bench.objects.delete([SCRATCH.scratch(found.buckets.name)])
        with pytest.raises(ObjectMissing):
            await bench.find_survivors(groups, [found])

    async def test_keys_of_groups_in_another_order_are_refused(self, bench: Bench) -> None:
        """The last row of a key is the last record of it, as long as groups come in their order."""
        groups = [bench.segments[:2], bench.segments[2:]]
        found = await bench.find_keys(groups, 1)
        with pytest.raises(Corrupt, match="keys of scratch are not in the order of offsets"):
            await bench.find_survivors(groups, found[::-1])

    async def test_keys_beyond_the_end_are_refused(self, bench: Bench) -> None:
        found = await bench.find_keys([bench.segments], 1)
        with pytest.raises(Corrupt, match="keys of scratch lie beyond offset 80"):
            await bench.find_survivors([bench.segments[:2]], found)

    async def test_a_damaged_batch_stops_both_readers(self, bench: Bench) -> None:
        groups = [bench.segments]
        (found,) = await bench.find_survivors(groups, await bench.find_keys(groups, 1))
        info = bench.segments[1]
        data = bytearray((await bench.objects.get(info.key)).data)
        data[info.body_at + 100] ^= 1
        await bench.objects.put(info.key, [bytes(data)])
        place = f"topic orders, partition 3, the batch at offset 40, object s1 at byte {info.body_at}"
        with pytest.raises(Corrupt, match=place):
            await bench.find_keys(groups, 1)
        with pytest.raises(Corrupt, match=place):
            await bench.rewrite(bench.segments, found.groups)


class TestNonsense:
    """Batches under a right CRC that can't be decoded."""

    @pytest.fixture
    async def mixed(self) -> Bench:
        made = Bench()
        sound = [batch((b"a", b"%d" % number), (b"b", b"x")) for number in range(4)]
        await made.add(sound[0], nonsense(3, Fault.CUT), sound[1])
        await made.add(sound[2], nonsense(5, Fault.NOT_COMPRESSED), nonsense(2, Fault.OFFSETS), sound[3])
        return made

    @pytest.mark.parametrize("sizes", [[2], [1, 1]])
    async def test_the_others_are_compacted(self, mixed: Bench, sizes: list[int]) -> None:
        left = list(mixed.segments)
        groups = [[left.pop(0) for _ in range(size)] for size in sizes]
        found = await mixed.find_keys(groups, 2)
        assert sum(each.opaque.batches for each in found) == 3
        written = await mixed.compact(groups, 2)
        stored = b""
        for each in written:
            assert each.info is not None
            data = (await mixed.objects.get(each.info.key)).data
            assert segments.check(data, each.info.key) == each.info
            stored += data[each.info.body_at : each.info.index_at]
        kinds = [(header.count, header.record_count) for header, _ in split_batches(stored)]
        assert kinds == [(2, 0), (3, 3), *([(4, 0)] if sizes == [2] else [(2, 0)] * 2), (5, 5), (2, 2), (2, 2)]
        for one in (nonsense(3, Fault.CUT), nonsense(5, Fault.NOT_COMPRESSED), nonsense(2, Fault.OFFSETS)):
            assert one in stored, "byte for byte"

    async def test_again_and_again(self, mixed: Bench) -> None:
        (first,) = await mixed.compact([mixed.segments], 1)
        assert first.info is not None
        assert await mixed.compact([[first.info]], 1) == [Rewritten(None, 12, 0)]

    async def test_stages_that_do_not_agree_on_it_change_nothing(self, mixed: Bench) -> None:
        """What the first has not looked into, and the third does, would be removed."""
        groups = [mixed.segments]
        keys = await mixed.find_keys(groups, 1)
        (found,) = await mixed.find_survivors(groups, keys)
        with pytest.raises(Corrupt, match="do not agree on which batches can't be decoded"):
            await mixed.rewrite(mixed.segments, found.groups, keys[0].opaque.plus(14))


def test_keys_are_divided_by_their_hash_and_stay_in_order() -> None:
    high = np.array([2**64 - 1, 0, 2**63, 2**62, 1], np.uint64)
    found = divide(LastOfKeys(high, high, np.arange(5, dtype=np.uint64)), 4)
    assert [part.marked.tolist() for part in found] == [[1, 4], [3], [2], [0]]
    many = list(divide(LastOfKeys(high, high, high), 100_000))
    assert [number for number, part in enumerate(many) if part.rows] == [0, 25_000, 50_000, 99_999]


async def test_a_segment_is_read_a_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a task holds does not grow with the segment, but for what is left of it."""
    monkeypatch.setattr(bodies_module, "READ_BYTES", 1 << 20)
    monkeypatch.setattr(bodies_module.read_bodies, "__defaults__", (1 << 20,))
    bench = Bench()
    await bench.add(*(batch(*((b"%d" % (number % 50), b"v" * 1000) for number in range(100))) for _ in range(200)))
    assert bench.segments[0].size > 20_000_000
    tracemalloc.start()
    try:
        (found,) = await bench.compact([bench.segments], 1)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.records == 50
    assert peak < 16 << 20
