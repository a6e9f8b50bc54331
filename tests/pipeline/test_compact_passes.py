from __future__ import annotations

import pytest

from catena.formats.record_batch import parse_header
from catena.loglets.base import Entry
from catena.pipeline.compact import CompactPlace
from catena.pipeline.compact_pass import CompactionReport
from catena.pipeline.compact_passes import CompactCounts, CompactPasses
from catena.pipeline.service import Ran
from catena.pipeline.set_aside import FAILURES
from tests.columns.nonsense import Fault, nonsense
from tests.pipeline.compacting import SMALL, Compactor, overwrite
from tests.virtual_log.cluster import Cluster


async def passes(cluster: Cluster, *partitions: int) -> CompactPasses:
    driver = Compactor(cluster)
    for number in partitions:
        await overwrite(await (await cluster.node()).log(number), keys=10, times=10)
    await driver.tier(*partitions)

    async def find() -> list[CompactPlace]:
        return await driver.where(*partitions)

    return CompactPasses(driver.site, driver.work, SMALL, find)


async def test_what_was_done_is_counted(cluster: Cluster) -> None:
    made = await passes(cluster, 0, 1)
    assert await made.run() == Ran("good")
    counts = made.counts
    assert (counts.partitions, counts.outcomes) == (2, {"compacted": 2})
    assert (counts.records_read, counts.records_removed, counts.tombstones) == (200, 180, 0)
    assert 0 < counts.bytes_freed < counts.bytes_read
    assert await made.run() == Ran("good")
    assert (counts.partitions, counts.outcomes, counts.records_read) == (2, {"compacted": 2}, 200)


async def test_batches_that_can_not_be_decoded_stay_and_are_told(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    log = await (await cluster.node()).log()
    await overwrite(log, keys=10, times=2)
    sent = [nonsense(3, Fault.CUT), nonsense(2, Fault.NOT_COMPRESSED)]
    first, _ = [await log.append(Entry(parse_header(batch), batch)) for batch in sent]
    made = await passes(cluster, 0)
    assert await made.run() == Ran("good")
    assert (made.counts.outcomes, made.counts.opaque_batches) == ({"compacted": 1}, 2)
    said = (
        f"topic {log.tp.topic}, partition 0: the batch at offset {first} can't be decoded and stays as it is, one of 2"
    )
    assert said in caplog.text
    read = await (await (await cluster.node()).log()).read(first, 1 << 20)
    assert [bytes(batch.data) for batch in read[:2]] == sent


async def test_it_stops_when_it_is_told_to(cluster: Cluster) -> None:
    made = await passes(cluster, 0)
    assert await made.run(lambda: True) == Ran("stopped")
    assert made.counts.outcomes == {}


async def test_what_keeps_failing_is_told_and_set_aside(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    made = await passes(cluster, 0, 1)
    lost = (await Compactor(cluster).manifest(1)).segments[0].key
    await cluster.stores.objects.delete([lost])
    for _ in range(FAILURES):
        ran = await made.run()
        assert ran.outcome == "partly"
        assert lost in ran.error
    assert made.counts.outcomes == {"compacted": 1, "failed": FAILURES}
    assert lost in caplog.text
    assert (await made.run()).outcome == "partly"
    assert made.counts.outcomes == {"compacted": 1, "failed": FAILURES}


def test_only_what_was_done_counts() -> None:
    counts = CompactCounts()
    counts.add(
        [CompactionReport("t", 0, "stale", records_before=5, opaque_batches=2), CompactionReport("t", 1, "idle")]
    )
    assert (counts.partitions, counts.outcomes, counts.records_read) == (2, {"stale": 1}, 0)
    assert counts.opaque_batches == 0
