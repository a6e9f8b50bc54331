"""What is read from the extents is what the log has, wherever it lies and whatever happens to it meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence

import pytest

from catena.errors import OffsetOutOfRange, StoreRefused
from catena.formats.record_batch import parse_header
from catena.formats.records import iter_records
from catena.loglets.base import Extent
from catena.loglets.tiered import reader as tiered
from catena.objects.base import Range
from catena.types import Offset
from catena.virtual_log.extents import find_extents
from tests.pipeline.drivers import Driver, append_numbers
from tests.virtual_log.cluster import Cluster


async def read(cluster: Cluster, extents: Sequence[Extent], start: Offset, end: Offset) -> list[str]:
    values: list[str] = []
    for before, after in itertools.pairwise(extents):
        assert before.end == after.offset
    for extent in extents:
        assert extent.length is not None
        (body,) = await cluster.stores.objects.get_ranges(extent.key, [Range(extent.at, extent.length)])
        offset, rest = extent.offset, memoryview(body)
        while rest:
            header = parse_header(rest)
            values += [
                record.value.decode()
                for record in iter_records(rest[: header.length], offset)
                if record.value is not None and start <= record.offset < end
            ]
            offset, rest = offset + header.count, rest[header.length :]
        assert offset == extent.end
    return values


async def test_each_part_of_a_log_is_found(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "EXTENT_BYTES", 300)
    values = await append_numbers(cluster, 12)
    await Driver(cluster).tier()
    values += await append_numbers(cluster, 5, 12)
    log = await (await cluster.node()).log()
    for start in range(len(values)):
        for end in range(start, len(values) + 1):
            extents = await find_extents(log, start, end)
            assert await read(cluster, extents, start, end) == values[start:end]
            assert not extents or extents[0].offset <= start < extents[0].end
            assert not extents or extents[-1].offset < end <= extents[-1].end


async def test_a_large_segment_is_cut_for_several_readers(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiered, "EXTENT_BYTES", 1)
    values = await append_numbers(cluster, 40)
    await Driver(cluster).tier()
    log = await (await cluster.node()).log()
    chain = await log.refresh()
    assert chain.boundary == 40
    extents = await find_extents(log, 0, 40)
    assert await read(cluster, extents, 0, 40) == values


async def test_what_is_outside_of_the_log_is_refused(cluster: Cluster) -> None:
    await append_numbers(cluster, 10)
    log = await (await cluster.node()).log()
    await log.trim(4)
    for start, end in ((3, 10), (4, 11), (11, 12)):
        with pytest.raises(OffsetOutOfRange):
            await find_extents(log, start, end)
    assert await find_extents(log, 10, 10) == []


async def test_a_node_that_knows_an_old_chain_finds_what_was_tiered_meanwhile(cluster: Cluster) -> None:
    values = await append_numbers(cluster, 10)
    log = await (await cluster.node()).log()
    await log.refresh()
    await Driver(cluster).tier()
    assert await read(cluster, await find_extents(log, 2, 10), 2, 10) == values[2:]


async def test_extents_found_while_jobs_and_writers_work_are_whole(cluster: Cluster) -> None:
    await append_numbers(cluster, 10)
    log = await (await cluster.node()).log()

    async def work() -> None:
        for number in range(5):
            await append_numbers(cluster, 5, 10 + 5 * number)
            await Driver(cluster).tier()

    working = asyncio.ensure_future(work())
    looks = 0
    while not working.done():
        tail = await log.tail()
        found = await read(cluster, await find_extents(log, 0, tail), 0, tail)
        assert [int(value.split()[0]) for value in found] == list(range(tail))
        looks += 1
        await cluster.stores.clock.sleep(0.001)
    await working
    assert looks > 1


async def test_what_is_in_memory_is_in_no_object(cluster: Cluster) -> None:
    await append_numbers(cluster, 3)
    log = await (await cluster.node()).log()
    await log.reconfigure("memory")
    await append_numbers(cluster, 1, 3)
    with pytest.raises(StoreRefused, match="memory"):
        await find_extents(log, 0, 4)
    assert len(await find_extents(log, 0, 3))
