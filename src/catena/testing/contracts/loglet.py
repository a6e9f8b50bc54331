"""The contract of `catena.loglets.base`, as tests.

A kind's test module subclasses LogletContract and gives two fixtures, `open_here` and `open_there`: both open links on
the same stores, as two nodes would. Nothing in here may be overridden.

What is asked of every loglet is asked here; how the chain puts loglets together is not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple, TypeAlias

import pytest

from catena.errors import OutOfOrderSequence, ProducerFenced, Sealed, StaleView
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch, iter_records
from catena.loglets.base import Batch, Entry, LinkSpec, Loglet, Tail
from catena.loglets.producers import ProducerState
from catena.types import Epoch, Offset, TopicId, TopicPartition

PATIENCE_S = 30
EVERYTHING = 1 << 30

OpenLink: TypeAlias = Callable[[LinkSpec], Loglet]


class Stamp(NamedTuple):
    """What an idempotent producer puts on a batch."""

    producer_id: int
    epoch: int
    sequence: int


def make_entry(*values: str, stamp: Stamp | None = None, timestamp_ms: int = 0) -> Entry:
    """One batch with a record for each value."""
    producer_id, producer_epoch, base_sequence = stamp or (-1, -1, -1)
    data = build_batch(
        [(None, value.encode(), (), timestamp_ms) for value in values],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    return Entry(parse_header(data), data)


def values_of(batches: list[Batch]) -> list[str]:
    """The values of all records, which must have the offsets that follow from the first batch."""
    records = [record for batch in batches for record in iter_records(batch.data, batch.offset)]
    assert [record.offset for record in records] == list(range(batches[0].offset, batches[0].offset + len(records)))
    return [(record.value or b"").decode() for record in records]


async def read_values(loglet: Loglet, start: Offset, end: Offset) -> list[str]:
    """What a reader that goes forward finds from `start` up to `end`, where the link ends or the test stops."""
    values: list[str] = []
    while start < end:
        batches = [batch for batch in await loglet.read(start, 1000) if batch.offset < end]
        assert batches[0].offset == start
        values += values_of(batches)
        start = batches[-1].end
    return values


async def soon(waiting: Awaitable[object]) -> None:
    """It must happen, and a test that waits for ever says nothing."""
    async with asyncio.timeout(PATIENCE_S):
        await waiting


class Links:
    """Makes the specs of a partition's links, as the chain would; `boundary` moves when something is trimmed."""

    def __init__(self, number: int = 0) -> None:
        self.partition = TopicPartition("topic", TopicId("1" * 32), number)
        self.boundary: Offset = 0

    def spec(
        self, epoch: Epoch = 1, base: Offset = 0, producers: Mapping[int, ProducerState] | None = None
    ) -> LinkSpec:
        async def handoff() -> Mapping[int, ProducerState]:
            return producers or {}

        async def boundary() -> Offset:
            return self.boundary

        return LinkSpec(self.partition, epoch, base, {}, handoff, boundary)


class AppendContract:
    async def test_offsets_are_contiguous_from_the_base(self, open_here: OpenLink, links: Links) -> None:
        loglet = open_here(links.spec(base=40))
        assert await loglet.tail() == Tail(40, sealed=False)
        assert await loglet.append(make_entry("a")) == 40
        assert await loglet.append(make_entry("b", "c", "d")) == 41
        assert await loglet.append(make_entry("e")) == 44
        assert await loglet.tail() == Tail(45, sealed=False)
        assert await read_values(loglet, 40, 45) == ["a", "b", "c", "d", "e"]

    async def test_an_append_is_at_once_the_same_for_all(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        for number in range(6):
            writer, reader = (here, there) if number % 2 else (there, here)
            entry = make_entry(f"value {number}")
            assert await writer.append(entry) == number
            assert await reader.tail() == Tail(number + 1, sealed=False)
            for loglet in (reader, writer):
                (batch,) = await loglet.read(number, EVERYTHING)
                assert (batch.offset, batch.count, bytes(batch.data)) == (number, 1, entry.data)

    async def test_appends_from_two_nodes_interleave_without_gaps(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        async def append_some(loglet: Loglet, name: str) -> list[Offset]:
            return [await loglet.append(make_entry(f"{name} {number}", "more")) for number in range(15)]

        here, there = open_here(links.spec()), open_there(links.spec())
        ours, theirs = await asyncio.gather(append_some(here, "here"), append_some(there, "there"))
        assert ours == sorted(ours)
        assert theirs == sorted(theirs)
        assert sorted(ours + theirs) == list(range(0, 60, 2))
        values = await read_values(there, 0, 60)
        assert [values[offset] for offset in ours] == [f"here {number}" for number in range(15)]
        assert values == await read_values(here, 0, 60)

    async def test_appends_that_run_at_once_keep_the_order_they_were_made_in(
        self, open_here: OpenLink, links: Links
    ) -> None:
        loglet = open_here(links.spec())
        offsets = await asyncio.gather(*(loglet.append(make_entry(f"{number}")) for number in range(50)))
        assert offsets == list(range(50))
        assert await read_values(loglet, 0, 50) == [f"{number}" for number in range(50)]

    async def test_an_appender_that_goes_away_harms_nobody(self, open_here: OpenLink, links: Links) -> None:
        loglet = open_here(links.spec())
        impatient = asyncio.ensure_future(loglet.append(make_entry("maybe")))
        patient = asyncio.ensure_future(loglet.append(make_entry("surely")))
        await asyncio.sleep(0)
        impatient.cancel()
        offset = await patient
        tail = await loglet.tail()
        assert offset == tail.offset - 1
        assert await read_values(loglet, 0, tail.offset) in (["surely"], ["maybe", "surely"])


class ReadContract:
    async def test_a_read_starts_with_the_batch_that_holds_the_offset(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        loglet = open_here(links.spec())
        for values in (("a", "b", "c"), ("d",), ("e", "f"), ("g",)):
            await loglet.append(make_entry(*values))
        for reader in (loglet, open_there(links.spec())):
            for offset, starts in enumerate((0, 0, 0, 3, 4, 4)):
                found = [batch.offset for batch in await reader.read(offset, EVERYTHING)]
                # What was appended last may be found by a read of its own only.
                assert found in ([start for start in (0, 3, 4, 6)[:end] if start >= starts] for end in (3, 4))

    async def test_a_read_has_at_least_one_batch_and_then_up_to_max_bytes(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        loglet = open_here(links.spec())
        size = len(make_entry("x" * 500).data)
        for _ in range(5):
            await loglet.append(make_entry("x" * 500))
        for reader in (loglet, open_there(links.spec())):
            for max_bytes, count in ((0, 1), (1, 1), (size, 1), (2 * size - 1, 1), (2 * size, 2), (5 * size - 1, 4)):
                assert len(await reader.read(0, max_bytes)) == count
            assert len(await reader.read(2, EVERYTHING)) in (2, 3)

    async def test_there_is_nothing_at_the_tail_and_beyond(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec(base=5)), open_there(links.spec(base=5))
        assert await here.read(5, EVERYTHING) == []
        await here.append(make_entry("a"))
        for loglet in (here, there):
            assert await loglet.read(6, EVERYTHING) == []
            assert await loglet.read(60, EVERYTHING) == []

    async def test_the_first_batch_with_a_record_of_a_time_is_found(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        loglet = open_here(links.spec())
        for timestamp_ms in (100, 300, 200, 400):
            await loglet.append(make_entry("a", "b", timestamp_ms=timestamp_ms))
        for reader in (loglet, open_there(links.spec())):
            assert await reader.find_time(0, 0) == 0
            assert await reader.find_time(101, 0) == 2
            assert await reader.find_time(101, 3) == 2
            assert await reader.find_time(101, 4) == 4
            assert await reader.find_time(301, 0) == 6
            assert await reader.find_time(401, 0) is None

    async def test_the_first_batch_with_the_greatest_time_is_found(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        loglet = open_here(links.spec())
        assert await loglet.find_max_time(0, None) is None
        for timestamp_ms in (100, 300, 200, 300, -1, 250):
            await loglet.append(make_entry("a", "b", timestamp_ms=timestamp_ms))
        for reader in (loglet, open_there(links.spec())):
            assert await reader.find_max_time(0, None) == 2
            assert await reader.find_max_time(3, None) == 2
            assert await reader.find_max_time(4, None) == 6
            assert await reader.find_max_time(8, None) == 10
            assert await reader.find_max_time(8, 10) is None
            assert await reader.find_max_time(0, 2) == 0
            assert await reader.find_max_time(0, 3) == 2
            assert await reader.find_max_time(4, 6) == 4
            assert await reader.find_max_time(12, None) is None

    async def test_the_greatest_time_is_found_inside_of_what_was_written_together(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        loglet = open_here(links.spec())
        before, *together, after = (
            make_entry("a", "b", timestamp_ms=timestamp_ms) for timestamp_ms in (250, 10, 100, 400, 200, 350)
        )
        await loglet.append(before)
        await asyncio.gather(*(loglet.append(entry) for entry in together))
        await loglet.append(after)
        for reader in (loglet, open_there(links.spec())):
            assert await reader.find_max_time(0, None) == 6
            assert await reader.find_max_time(4, 8) == 6
            assert await reader.find_max_time(4, 6) == 4
            assert await reader.find_max_time(8, 10) == 8
            # What lies outside counts for nothing, even if it was written together with what lies inside.
            assert await reader.find_max_time(8, None) == 10
            assert await reader.find_max_time(0, 6) == 0

    async def test_runs_tell_of_all_that_is_there(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        loglet = open_here(links.spec(base=5))
        assert await loglet.runs(5, 10) == []
        apart = [make_entry("a" * 100 * number, "b", timestamp_ms=number) for number in (300, 100, 200)]
        for entry in apart:
            await loglet.append(entry)
        together = [make_entry("x" * number, timestamp_ms=number) for number in (10, 30, 20)]
        await asyncio.gather(*(loglet.append(entry) for entry in together))
        sizes = [len(entry.data) for entry in apart]
        for reader in (loglet, open_there(links.spec(base=5))):
            runs = await reader.runs(5, 100)
            assert runs[:3] == [(7, sizes[0], 300), (9, sizes[1], 100), (11, sizes[2], 200)]
            assert runs[-1].end == 14
            assert sum(run.size for run in runs[3:]) == sum(len(entry.data) for entry in together)
            assert max(run.newest_ms for run in runs[3:]) == 30
            assert await reader.runs(8, 2) == runs[1:3]
            assert await reader.runs(13, 100) == runs[-1:]
            assert await reader.runs(14, 100) == []
        links.boundary = 8
        await loglet.trim(8)
        assert await loglet.runs(8, 1) == [(9, sizes[1], 100)]

    async def test_nobody_waits_for_a_tail_that_is_there(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        await open_here(links.spec()).append(make_entry("a"))
        await soon(open_here(links.spec()).wait_for_tail(0))
        await soon(open_there(links.spec()).wait_for_tail(0))

    async def test_who_waits_for_the_tail_hears_of_appends_and_of_the_seal(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())

        async def woken_by(work: Awaitable[object]) -> None:
            tail = (await here.tail()).offset
            waiting = [asyncio.ensure_future(loglet.wait_for_tail(tail)) for loglet in (here, there, here)]
            for _ in range(10):
                await asyncio.sleep(0)
            assert not any(task.done() for task in waiting)
            await work
            for task in waiting:
                await soon(task)

        await woken_by(here.append(make_entry("a")))
        await woken_by(there.append(make_entry("b")))
        await woken_by(there.seal())
        await soon(here.wait_for_tail(2))

    async def test_who_stops_waiting_leaves_the_others_waiting(self, open_here: OpenLink, links: Links) -> None:
        loglet = open_here(links.spec())
        impatient, patient = (asyncio.ensure_future(loglet.wait_for_tail(0)) for _ in range(2))
        for _ in range(10):
            await asyncio.sleep(0)
        impatient.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not patient.done()
        await loglet.append(make_entry("a"))
        await soon(patient)


class SealContract:
    async def test_after_a_seal_nothing_is_appended_from_anywhere(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        await here.append(make_entry("a"))
        await there.append(make_entry("b", "c"))
        assert (await there.seal()).tail == 3
        for loglet in (here, there):
            with pytest.raises(Sealed):
                await loglet.append(make_entry("late"))
            assert await loglet.tail() == Tail(3, sealed=True)
            assert (await loglet.seal()).tail == 3
            assert await read_values(loglet, 0, 3) == ["a", "b", "c"]

    async def test_a_batch_behind_one_that_failed_is_no_first_one(self, open_here: OpenLink, links: Links) -> None:
        loglet = open_here(links.spec())
        first, second = make_entry("a", stamp=Stamp(7, 0, 3)), make_entry("b", stamp=Stamp(7, 0, 4))
        with pytest.raises(OutOfOrderSequence):
            await loglet.append(second._replace(not_before=3))
        assert await loglet.append(first) == 0
        assert await loglet.append(second._replace(not_before=3)) == 1

    async def test_a_link_that_nobody_wrote_to_is_sealed_too(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        assert (await open_here(links.spec(base=7)).seal()).tail == 7
        with pytest.raises(Sealed):
            await open_there(links.spec(base=7)).append(make_entry("late"))
        assert await open_there(links.spec(base=7)).tail() == Tail(7, sealed=True)

    async def test_the_tail_of_a_sealed_link_sends_readers_on(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        loglet = open_here(links.spec())
        await loglet.append(make_entry("a"))
        await loglet.seal()
        for reader in (loglet, open_there(links.spec())):
            with pytest.raises(Sealed):
                await reader.read(1, EVERYTHING)
            assert values_of(await reader.read(0, EVERYTHING)) == ["a"]

    async def test_every_append_that_races_a_seal_is_below_it_or_nowhere(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        acked: dict[Offset, str] = {}
        some_were_acked = asyncio.Event()

        async def append_until_sealed(loglet: Loglet, name: str) -> None:
            for number in range(10_000):
                try:
                    offset = await loglet.append(make_entry(f"{name} {number}"))
                except Sealed:
                    return
                assert offset not in acked
                acked[offset] = f"{name} {number}"
                if len(acked) >= 20:
                    some_were_acked.set()

        async def seal(loglet: Loglet) -> Offset:
            await some_were_acked.wait()
            return (await loglet.seal()).tail

        appenders = [append_until_sealed(loglet, f"{n}") for n, loglet in enumerate((here, there, here, there))]
        *_, tail, same_tail = await asyncio.gather(*appenders, seal(here), seal(there))
        assert tail == same_tail == len(acked)
        assert await read_values(there, 0, len(acked)) == [acked[offset] for offset in range(len(acked))]

    async def test_the_next_link_goes_on_where_the_sealed_one_ends(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        old = open_here(links.spec())
        await old.append(make_entry("a", "b"))
        tail, producers = await old.seal()
        for open_link in (open_there, open_here):
            loglet = open_link(links.spec(epoch=2, base=tail, producers=producers))
            assert await loglet.append(make_entry("c")) == tail
            with pytest.raises(Sealed):
                await open_link(links.spec()).append(make_entry("late"))
            tail += 1
        assert await read_values(open_here(links.spec(epoch=2, base=2)), 2, 4) == ["c", "c"]
        assert await read_values(open_there(links.spec()), 0, 2) == ["a", "b"]


class TrimContract:
    async def test_what_is_trimmed_is_gone_and_the_rest_stays(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        for number in range(6):
            await here.append(make_entry(f"{number}a", f"{number}b"))
        links.boundary = 6
        for trimmer in (there, here):
            await trimmer.trim(6)
            assert await there.tail() == Tail(12, sealed=False)
            assert await read_values(there, 6, 12) == ["3a", "3b", "4a", "4b", "5a", "5b"]
            with pytest.raises(StaleView):
                await there.read(4, EVERYTHING)
        assert await here.append(make_entry("6a")) == 12

    async def test_a_batch_that_is_trimmed_in_part_stays_whole(self, open_here: OpenLink, links: Links) -> None:
        loglet = open_here(links.spec())
        await loglet.append(make_entry("a"))
        await loglet.append(make_entry("b", "c", "d"))
        links.boundary = 2
        await loglet.trim(2)
        assert values_of(await loglet.read(2, EVERYTHING)) == ["b", "c", "d"]

    async def test_all_of_it_can_be_trimmed_and_it_goes_on(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec(base=3)), open_there(links.spec(base=3))
        await here.append(make_entry("a", "b"))
        links.boundary = 5
        await here.trim(5)
        assert await there.tail() == Tail(5, sealed=False)
        assert await there.read(5, EVERYTHING) == []
        assert await there.append(make_entry("c")) == 5
        assert await read_values(here, 5, 6) == ["c"]
        assert (await here.seal()).tail == 6


class ProducerContract:
    async def test_a_batch_that_is_sent_again_gets_its_first_offset_everywhere(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        first = make_entry("a", "b", stamp=Stamp(7, 0, 0))
        second = make_entry("c", stamp=Stamp(7, 0, 2))
        assert await here.append(first) == 0
        assert await there.append(first) == 0
        assert await there.append(second) == 2
        for loglet in (here, there):
            assert await loglet.append(first) == 0
            assert await loglet.append(second) == 2
        assert await here.tail() == Tail(3, sealed=False)

    async def test_a_producer_moves_from_node_to_node_and_back(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        for sequence in range(8):
            loglet = here if sequence // 2 % 2 else there
            assert await loglet.append(make_entry(f"{sequence}", stamp=Stamp(7, 0, sequence))) == sequence

    async def test_a_batch_that_does_not_follow_is_refused_and_not_in_the_log(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        await here.append(make_entry("a", stamp=Stamp(7, 3, 0)))
        for loglet in (here, there):
            with pytest.raises(OutOfOrderSequence):
                await loglet.append(make_entry("c", stamp=Stamp(7, 3, 2)))
            with pytest.raises(ProducerFenced):
                await loglet.append(make_entry("old", stamp=Stamp(7, 2, 1)))
            with pytest.raises(OutOfOrderSequence):
                await loglet.append(make_entry("new", stamp=Stamp(7, 4, 1)))
        assert await there.append(make_entry("new", stamp=Stamp(7, 4, 0))) == 1
        assert await read_values(here, 0, 2) == ["a", "new"]
        assert await here.tail() == Tail(2, sealed=False)

    async def test_retries_that_run_at_once_are_appended_once(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        here, there = open_here(links.spec()), open_there(links.spec())
        entry = make_entry("a", stamp=Stamp(7, 0, 0))
        offsets = await asyncio.gather(*(loglet.append(entry) for loglet in (here, there) * 5))
        assert len(set(offsets)) == 1
        assert await here.tail() == Tail(1, sealed=False)

    async def test_idempotence_crosses_from_link_to_link(
        self, open_here: OpenLink, open_there: OpenLink, links: Links
    ) -> None:
        base: Offset = 0
        producers: Mapping[int, ProducerState] = {}
        for epoch in range(1, 5):
            here, there = (open_link(links.spec(epoch, base, producers)) for open_link in (open_here, open_there))
            if epoch > 1:
                last = make_entry(f"7 in {epoch - 1}", stamp=Stamp(7, 0, epoch - 2))
                assert await there.append(last) == base - 1
                assert await here.append(last) == base - 1
            if epoch == 2:
                await here.append(make_entry("8", stamp=Stamp(8, 0, 0)))
            await here.append(make_entry(f"7 in {epoch}", stamp=Stamp(7, 0, epoch - 1)))
            base, producers = await there.seal()
            # Refused here, it must leave nothing behind that the next link would go by.
            with pytest.raises(Sealed):
                await here.append(make_entry("late", stamp=Stamp(7, 0, epoch)))
        assert base == 5
        assert producers[7].batches[-1].offset == 4
        assert producers[8].batches[-1].offset == 1


class LogletContract(AppendContract, ReadContract, SealContract, TrimContract, ProducerContract):
    """All of it."""

    @pytest.fixture
    def links(self) -> Links:
        return Links()
