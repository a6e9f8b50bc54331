"""What the diskless loglets count of themselves, while they do what is counted."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import BackPressure, StoreFull, StoreUnavailable
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.diskless.writer import WriterSettings
from catena.testing.contracts.loglet import Links, Stamp, make_entry
from catena.testing.faults import Fail, Stall
from tests.loglets.stores import Stores

AN_HOUR_MS = 3_600_000


async def turns(count: int = 20) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_appends(stores: Stores, links: Links) -> None:
    node = await stores.node()
    entries = [make_entry("a" * 100), make_entry("b", "c", "d")]
    for entry in entries:
        await node.open(links.spec()).append(entry)
    await node.diskless.writer.drain()
    await turns()
    writer, commit = node.diskless.writer.counts, node.diskless.committer.counts
    size = sum(entry.size for entry in entries)
    assert writer.blobs == {"idle": 2, "full": 0, "delay": 0}
    assert (writer.blob_bytes.count, writer.blob_bytes.sum) == (2, size)
    assert (writer.blob_partitions.sum, writer.upload_seconds.count, writer.upload_failures) == (2, 2, 0)
    assert (commit.batches, commit.records, commit.bytes, commit.duplicates) == (2, 4, size, 0)
    assert (commit.commit_seconds.count, commit.wait_seconds.count, commit.batches_per_partition.sum) == (2, 2, 2)
    assert (commit.queued_bytes, commit.failures) == (0, {})


async def test_what_gathers_behind_an_upload_is_seen_in_the_queue(stores: Stores, links: Links) -> None:
    node = await stores.node(DisklessSettings(writer=WriterSettings(batch_max_delay_ms=AN_HOUR_MS)))
    stall = node.faults.at("blob put", Stall(), 1)
    entry = make_entry("a")
    loglet = node.open(links.spec())
    appends = [asyncio.ensure_future(loglet.append(entry))]
    await stall.reached.wait()
    appends += [asyncio.ensure_future(loglet.append(entry)) for _ in range(2)]
    await turns()
    queue = node.diskless.writer.queue
    assert (queue.held_bytes, queue.forming_bytes, queue.uploads) == (3 * entry.size, 2 * entry.size, 1)
    stall.let_go()
    await asyncio.gather(*appends)
    await node.diskless.writer.drain()
    assert node.diskless.writer.counts.blobs == {"idle": 2, "full": 0, "delay": 0}
    assert node.diskless.writer.queue.held_bytes == 0
    assert node.diskless.committer.counts.batches_per_partition.buckets[:2] == [1, 1]


async def test_duplicates_are_not_new_records(stores: Stores, links: Links) -> None:
    node = await stores.node()
    entry = make_entry("a", stamp=Stamp(7, 0, 0))
    for _ in range(2):
        assert await node.open(links.spec()).append(entry) == 0
    commit = node.diskless.committer.counts
    assert (commit.batches, commit.records, commit.duplicates) == (1, 1, 1)


async def test_what_fails(stores: Stores, links: Links) -> None:
    entry = make_entry("a")
    node = await stores.node(DisklessSettings(writer=WriterSettings(buffer_max_bytes=entry.size)))
    node.faults.at("blob put", Fail(StoreFull("no room")), 1)
    with pytest.raises(StoreFull):
        await node.open(links.spec()).append(entry)
    stall = node.faults.at("blob put", Stall())
    first = asyncio.ensure_future(node.open(links.spec()).append(entry))
    await stall.reached.wait()
    with pytest.raises(BackPressure):
        await node.open(links.spec()).append(entry)
    stall.let_go()
    await first
    writer = node.diskless.writer.counts
    assert (writer.upload_failures, writer.upload_seconds.count, writer.back_pressure) == (1, 2, 1)
    assert node.diskless.committer.counts.records == 1


async def test_a_commit_that_is_given_up_is_counted_by_its_error(stores: Stores, links: Links) -> None:
    node = await stores.hasty_node()
    for nth in range(1, 100):
        node.faults.at(stores.commit_step, Fail(StoreUnavailable("away")), nth)
    with pytest.raises(StoreUnavailable):
        await node.open(links.spec()).append(make_entry("a"))
    commit = node.diskless.committer.counts
    assert (commit.records, commit.failures, commit.queued_bytes) == (0, {"StoreUnavailable": 1}, 0)


async def test_reads(stores: Stores, links: Links) -> None:
    writer = await stores.node()
    for _ in range(3):
        await writer.open(links.spec()).append(make_entry("a"))
    await writer.diskless.writer.drain()
    await writer.open(links.spec()).read(0, 1)
    assert (writer.diskless.tail_cache.hits, writer.diskless.tail_cache.misses) == (1, 0)
    reader = await stores.node()
    for offset in range(3):
        await reader.open(links.spec()).read(offset, 1)
    found = reader.diskless.reader.index.counts
    assert found.seconds.count + found.kept >= 3
    assert found.seconds.count >= 1
    assert found.kept >= 1
    assert reader.diskless.tail_cache.misses == 3
    assert reader.diskless.blobs.misses >= 1
    assert reader.diskless.blobs.lagging == 0
