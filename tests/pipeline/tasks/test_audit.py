"""The task that audits, by itself: what it reads, how much of it at a time, and what it says."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import msgspec
import pytest
from crc32c import crc32c

from catena.errors import StoreUnavailable
from catena.formats import segment as segments
from catena.formats import wal_blob
from catena.formats.records import build_batch
from catena.formats.segment import SegmentHeader, SegmentInfo
from catena.formats.wal_blob import KAFKA_BATCH_V2, Section
from catena.loglets.diskless.records import IndexEntry
from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.tasks import TaskContext, run_task
from catena.pipeline.tasks import audit as task
from catena.pipeline.tasks.audit import AuditPlan, AuditResult, Piece, PieceResult
from catena.pipeline.tasks.audit_segments import READ_BYTES
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.faults import Fail, Faults, FaultyObjects
from catena.types import Buffer, Offset, TopicId

ID = TopicId("a" * 32)
BLOB = "llog/wal-shared/1"


def batch(value: str = "v", count: int = 1, time: int = 5, sequence: int = -1) -> bytes:
    producer_id, epoch = (7, 0) if sequence >= 0 else (-1, -1)
    return build_batch(
        [(None, value.encode(), (), time)] * count,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )


class Bench:
    """A store with blobs and segments, and tasks on it."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.objects = CountedObjects(FaultyObjects(MemoryObjects(SystemClock()), self.faults), SystemClock())
        self.context = TaskContext(self.objects, SystemClock(), SystemEntropy(), self.objects)

    async def blob(self, key: str, *bodies: Sequence[bytes]) -> list[list[IndexEntry]]:
        """Partition n has the nth body; an entry for each batch, with offsets from 0 on."""
        sections = [
            Section("orders", ID, number, len(body), KAFKA_BATCH_V2, body) for number, body in enumerate(bodies)
        ]
        buffers, starts = wal_blob.encode("cluster", 100, sections)
        await self.objects.put(key, buffers)
        found = []
        for body, start in zip(bodies, starts, strict=True):
            entries, at = [], start
            for offset, each in enumerate(body):
                entries.append(IndexEntry(offset, 1, key, len(each), at, "append", 5, 100))
                at += len(each)
            found.append(entries)
        return found

    async def segment(self, key: str, bodies: Sequence[Buffer], base: Offset) -> SegmentInfo:
        header = SegmentHeader(
            cluster_id="cluster",
            topic="orders",
            topic_id=ID,
            partition=0,
            base_offset=base,
            end_offset=base + len(bodies),
            created_at_ms=1,
            appended_at_ms=100,
            compaction_id="job",
        )
        encoded = segments.encode(key, header, bodies)
        await self.objects.put(key, encoded.buffers)
        return encoded.info

    async def audit(self, *pieces: Piece) -> list[PieceResult]:
        self.before = self.objects.snapshot()
        result = await run_task("audit", self.context, msgspec.json.encode(AuditPlan("cluster", pieces)))
        return list(msgspec.json.decode(result, type=AuditResult).pieces)

    def asked(self, kind: str) -> int:
        return self.objects.snapshot()[kind].requests - self.before[kind].requests


@pytest.fixture
def bench() -> Bench:
    return Bench()


def runs(*entries: IndexEntry, partition: int = 0) -> Piece:
    return Piece("orders", ID, partition, runs=entries)


def kinds(*results: PieceResult) -> list[tuple[str, tuple[Offset, Offset]]]:
    return [(each.kind, each.offsets) for result in results for each in result.defects]


class TestRuns:
    async def test_a_blob_of_many_partitions_is_read_once(self, bench: Bench) -> None:
        entries = await bench.blob(BLOB, *([batch(f"{number} {'x' * 50}")] * 3 for number in range(20)))
        pieces = [runs(*its, partition=number) for number, its in enumerate(entries)]
        results = await bench.audit(*pieces)
        assert kinds(*results) == []
        assert sum(result.offsets for result in results) == sum(result.batches for result in results) == 60
        assert sum(result.bytes for result in results) == sum(piece.size for piece in pieces)
        assert (bench.asked("range_get"), bench.asked("get")) == (1, 0)

    async def test_of_a_blob_of_others_little_is_read(self, bench: Bench) -> None:
        entries = await bench.blob(BLOB, *([batch("x" * 10_000)] for _ in range(100)))
        (result,) = await bench.audit(runs(*entries[50], partition=50))
        assert (kinds(result), result.offsets) == ([], 1)
        counts = bench.objects.snapshot()["range_get"]
        assert counts.requests == 2
        assert counts.bytes < 10_000 + 200 + 32 * 1024

    async def test_a_header_that_is_longer_than_thought(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("catena.pipeline.tasks.audit_runs.HEADER_GUESS_BYTES", 100)
        entries = await bench.blob(BLOB, *([batch("x" * 1000)] for _ in range(100)))
        (result,) = await bench.audit(runs(*entries[50], partition=50))
        assert (kinds(result), result.offsets, bench.asked("range_get")) == ([], 1, 3)

    async def test_a_run_that_is_a_part_of_its_section(self, bench: Bench) -> None:
        """A retry that the log recognized stays in the blob, and no index entry names it."""
        ((first, _, last),) = await bench.blob(BLOB, [batch("a"), batch("b"), batch("c")])
        after = msgspec.structs.replace(last, end_offset=1)
        (result,) = await bench.audit(runs(first, after))
        assert (kinds(result), result.offsets) == ([], 2)

    async def test_bytes_that_no_batch_vouches_for(self, bench: Bench) -> None:
        ((entry,),) = await bench.blob(BLOB, [batch("a")])
        data = bytearray((await bench.objects.get(BLOB)).data)
        data[entry.byte_offset + 3] ^= 1  # the base offset, outside of the batch's CRC
        await bench.objects.put(BLOB, [data])
        (result,) = await bench.audit(runs(entry))
        assert kinds(result) == [("corrupt_batch", (0, 0))]
        assert "the header says" in result.defects[0].what

    async def test_a_blob_that_is_cut_off_has_runs_that_are_whole(self, bench: Bench) -> None:
        entries = await bench.blob(BLOB, [batch("a")], [batch("b")])
        data = (await bench.objects.get(BLOB)).data
        await bench.objects.put(BLOB, [data[:-3]])
        whole, cut = await bench.audit(runs(*entries[0]), runs(*entries[1], partition=1))
        assert (kinds(whole), whole.offsets) == ([("truncated_object", (0, 0))], 1)
        assert "this run is whole" in whole.defects[0].what
        assert (kinds(cut), cut.offsets) == ([("truncated_object", (0, 0))], 0)
        (alone,) = await bench.audit(runs(*entries[0]))
        assert kinds(alone) == []

    async def test_other_counts_than_the_index_says(self, bench: Bench) -> None:
        ((first, second),) = await bench.blob(BLOB, [batch("a", count=2), batch("b")])
        (result,) = await bench.audit(runs(first, second))
        assert kinds(result) == [("count_mismatch", (0, 0))]

    async def test_one_partition_has_the_section_of_another(self, bench: Bench) -> None:
        entries = await bench.blob(BLOB, [batch("a")], [batch("b")])
        (result,) = await bench.audit(runs(*entries[1]))
        assert kinds(result) == [("foreign_run", (0, 0))]

    async def test_a_blob_of_another_cluster(self, bench: Bench) -> None:
        ((entry,),) = await bench.blob(BLOB, [batch("a")])
        plan = msgspec.json.encode(AuditPlan("other", (runs(entry),)))
        result = msgspec.json.decode(await run_task("audit", bench.context, plan), type=AuditResult)
        assert kinds(*result.pieces) == [("foreign_run", (0, 0))]

    async def test_what_cannot_be_read_now_is_an_error_and_no_defect(self, bench: Bench) -> None:
        entries = await bench.blob(BLOB, [batch("a")])
        others = await bench.blob("llog/wal-shared/2", [batch("b")])
        bench.faults.at("blob get_ranges", Fail(StoreUnavailable("down")))
        down, fine = await bench.audit(runs(*entries[0]), runs(*others[0]))
        assert (down.defects, down.errors, down.offsets) == ((), ("StoreUnavailable: down",), 0)
        assert (fine.defects, fine.errors, fine.offsets) == ((), (), 1)

    async def test_defects_are_listed_up_to_a_limit(self, bench: Bench) -> None:
        missing = [IndexEntry(number, 1, "llog/wal-shared/none", 10, 10) for number in range(130)]
        (result,) = await bench.audit(runs(*missing))
        assert (len(result.defects), result.unlisted) == (task.MAX_DEFECTS, 30)

    async def test_a_large_blob_is_read_in_parts(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(task, "BLOB_BYTES", 1000)
        (entries,) = await bench.blob(BLOB, [batch("x" * 300) for _ in range(20)])
        (result,) = await bench.audit(runs(*entries))
        assert (kinds(result), result.offsets) == ([], 20)


class TestSegments:
    async def test_intervals_are_read_together_and_little_at_a_time(self, bench: Bench) -> None:
        bodies = [batch("x" * 60_000)] * 400
        info = await bench.segment("s", bodies, 0)
        assert info.size > 2 * READ_BYTES
        (result,) = await bench.audit(Piece("orders", ID, 0, segments=(info,)))
        assert (kinds(result), result.offsets, result.bytes) == ([], 400, info.body_bytes)
        assert (bench.asked("head"), bench.asked("get")) == (1, 0)
        assert bench.asked("range_get") == 2 + -(-info.body_bytes // READ_BYTES)

    async def test_memory_is_bounded_whatever_the_size(self, bench: Bench, objects: ObjectStore) -> None:
        info = await bench.segment("s", [batch("x" * 60_000)] * 1000, 0)
        await objects.put("s", [(await bench.objects.get("s")).data])
        context = bench.context._replace(objects=objects)
        plan = msgspec.json.encode(AuditPlan("cluster", (Piece("orders", ID, 0, segments=(info,)),)))
        tracemalloc.start()
        await run_task("audit", context, plan)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert info.size > 55 << 20
        assert peak < 3 * READ_BYTES

    async def test_one_bad_interval_does_not_hide_the_others(self, bench: Bench) -> None:
        info = await bench.segment("s", [batch("x" * 60_000)] * 12, 100)
        data = bytearray((await bench.objects.get("s")).data)
        for at in (info.body_at + 10, info.index_at - 10):
            data[at] ^= 1
        await bench.objects.put("s", [data])
        (result,) = await bench.audit(Piece("orders", ID, 0, segments=(info,)))
        assert kinds(result) == [("corrupt_batch", (100, 101)), ("corrupt_batch", (110, 111))]
        assert result.offsets == 8

    async def test_an_index_that_was_wrong_from_the_beginning(self, bench: Bench) -> None:
        """Its CRC is right: whoever wrote it has counted wrong."""
        info = await bench.segment("s", [batch("a", time=5), batch("b", time=9)], 0)
        data = (await bench.objects.get("s")).data
        wrong = _with_index(data, info, time=8)
        await bench.objects.put("s", [wrong[0]])
        (result,) = await bench.audit(Piece("orders", ID, 0, segments=(wrong[1],)))
        assert kinds(result) == [("wrong_timestamp", (0, 1))]

    async def test_a_footer_that_was_wrong_from_the_beginning(self, bench: Bench) -> None:
        info = await bench.segment("s", [batch("a", time=5), batch("b", time=9)], 0)
        data = (await bench.objects.get("s")).data
        for changes, kind in (({"max_timestamp": 10}, "wrong_timestamp"), ({"batches": 3}, "count_mismatch")):
            changed = msgspec.structs.replace(info, **changes)
            await bench.objects.put("s", [_with_footer(data, changed)])
            (result,) = await bench.audit(Piece("orders", ID, 0, segments=(changed,)))
            assert kinds(result) == [(kind, (0, 1))]

    async def test_producers_go_from_one_segment_to_the_next(self, bench: Bench) -> None:
        first = await bench.segment("s1", [batch(sequence=0), batch(sequence=1)], 0)
        second = await bench.segment("s2", [batch(sequence=1), batch(sequence=2)], 2)
        (result,) = await bench.audit(Piece("orders", ID, 0, segments=(first, second)))
        assert [(each.kind, each.key, each.offsets) for each in result.defects] == [("duplicate_batch", "s2", (2, 2))]
        (entries,) = await bench.blob(BLOB, [batch(sequence=4)])
        one, other = await bench.audit(Piece("orders", ID, 0, segments=(second,)), runs(*entries))
        assert kinds(one, other) == [], "pieces are joined by whoever has them all"
        assert (one.track.head[0].next_sequence, other.track.head[0].sequence) == (3, 4)


def _with_index(data: bytes, info: SegmentInfo, time: int) -> tuple[bytes, SegmentInfo]:
    """The time of its only interval is another one."""
    index = bytearray(data[info.index_at :][: info.index_length])
    index[16:24] = time.to_bytes(8, "big")
    changed = msgspec.structs.replace(info, index_crc=crc32c(bytes(index)))
    return _with_footer(
        data[: info.index_at] + bytes(index) + data[info.index_at + info.index_length :], changed
    ), changed


def _with_footer(data: bytes, info: SegmentInfo) -> bytes:
    """The footer says what the info does."""
    footer = segments.Footer(
        info.index_at, info.index_length, info.batches, info.min_timestamp, info.max_timestamp, info.index_crc
    )
    return data[: -segments.FOOTER_BYTES] + segments._encode_footer(footer)
