"""A plan can be read for as long as a job may take: whatever takes the place of its objects, however old they are."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import UNSET

from catena.errors import ObjectMissing
from catena.formats.manifest import Manifest, Replaced
from catena.formats.record_batch import split_batches
from catena.formats.records import Record, iter_records
from catena.formats.segment import SegmentInfo
from catena.loglets.base import Extent
from catena.loglets.diskless.records import IndexEntry
from catena.meta import keys
from catena.objects.base import Range
from catena.pipeline.replaced import MAX_REPLACED, late_blobs, replaced_by, taken_at_ms, told
from catena.pipeline.settings import VacuumSettings
from catena.virtual_log import chain as chains
from catena.virtual_log.chain import Chain
from catena.virtual_log.extents import find_extents
from tests.formats.test_manifest import info, manifest_of
from tests.loglets.stores import WAYS
from tests.pipeline.compacting import Compactor, overwrite, read_anew
from tests.pipeline.drivers import SMALL, Driver, Steps
from tests.pipeline.vacuums import SETTINGS, AgingCluster, aging_cluster

MERGING = msgspec.structs.replace(SMALL, segment_bytes=1 << 20, merge_segments=2)
CAN_COMPACT = importlib.util.find_spec("pyarrow") is not None
HOUR_MS = SETTINGS.longest_job_ms
SOON = VacuumSettings(grace_ms=1000, longest_job_ms=100)


def chain_of(manifest: str = "m1", **params: Any) -> Chain:
    begun = chains.begin_tiering(chains.initial("diskless"), "job")
    return chains.finish_tiering(begun, "job", 0, 10, {"manifest": manifest, **params})


def said(before: Manifest | None, *after: SegmentInfo, now_ms: int = 1000, **params: Any) -> Any:
    return replaced_by(chain_of(**params), before, after, now_ms, SOON)


class TestWhatAManifestSays:
    OLD, NEW = info(0, 4), info(4, 10)

    def test_the_first_one_has_replaced_nothing(self) -> None:
        assert said(None, self.OLD) is UNSET

    def test_one_that_has_all_segments_and_more_has_replaced_nothing(self) -> None:
        assert said(manifest_of(self.OLD), self.OLD, self.NEW, at_ms=999) is UNSET

    @pytest.mark.parametrize("after", [(info(0, 10, key="merged"),), (NEW,), ()])
    def test_one_that_lacks_a_segment_names_the_one_before(self, after: Sequence[SegmentInfo]) -> None:
        assert said(manifest_of(self.OLD, self.NEW), *after) == (Replaced("m1", UNSET),)

    def test_what_was_named_before_is_named_on_with_the_time_that_the_chain_tells(self) -> None:
        before = manifest_of(self.OLD, replaced=(Replaced("a", 900), Replaced("b", 901), Replaced("c")))
        assert said(before, self.OLD, at_ms=950) == (Replaced("b", 901), Replaced("c", 950))
        assert said(before, at_ms=950) == (Replaced("b", 901), Replaced("c", 950), Replaced("m1"))
        assert said(before, self.OLD, at_ms=900) == (Replaced("b", 901),)

    def test_one_that_keeps_blobs_is_named_for_its_time(self) -> None:
        before = manifest_of(self.OLD, blobs=("blob",))
        assert said(before, self.OLD, at_ms=950) == (Replaced("m1", 950),)
        assert said(before, self.OLD, at_ms=900) is UNSET
        assert said(before, at_ms=950) == (Replaced("m1"),)

    def test_they_are_bounded(self) -> None:
        before = manifest_of(self.OLD, replaced=tuple(Replaced(f"m{n}", 950) for n in range(2 * MAX_REPLACED)))
        found = said(before)
        assert len(found) == MAX_REPLACED
        assert found[-2:] == (Replaced(f"m{2 * MAX_REPLACED - 1}", 950), Replaced("m1"))

    def test_of_an_older_release_the_chain_tells_no_time(self) -> None:
        assert taken_at_ms(chain_of()) == taken_at_ms(chains.initial("diskless")) == 0
        assert told(chain_of(), manifest_of(replaced=(Replaced("a"), Replaced("b", 7)))) == [("a", 0), ("b", 7)]
        assert taken_at_ms(chain_of(at_ms=8)) == 8


def entry(data_key: str, created_at_ms: int) -> IndexEntry:
    return IndexEntry(0, 1, data_key, created_at_ms=created_at_ms)


def test_blobs_are_late_if_the_grace_does_not_keep_them_for_long_enough() -> None:
    """Of 1,000 ms half is for clocks, and 100 are for a job: so it is from 400 ms on."""
    entries = [entry("old", 599), entry("old", 600), entry("s3://bucket/older", 3), entry("young", 601)]
    assert late_blobs(entries, 1000, SOON) == ("old", "older")
    assert late_blobs(entries[-1:], 1000, SOON) is UNSET
    assert late_blobs([entry("now", 1000)], 1000, VacuumSettings(grace_ms=5, longest_job_ms=5)) == ("now",)
    # By a clock that is ahead.
    assert late_blobs([entry("ahead", 1001)], 1000, VacuumSettings(grace_ms=5, longest_job_ms=5)) == ("ahead",)


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgingCluster]:
    async with aging_cluster(request.param, tmp_path, request) as cluster:
        await overwrite(await (await cluster.node()).log(), keys=5, times=8)
        yield cluster


async def plan(cluster: AgingCluster) -> list[Extent]:
    log = await (await cluster.node()).log()
    return await find_extents(log, await log.start(), await log.tail())


async def read(cluster: AgingCluster, extents: Sequence[Extent]) -> list[Record]:
    """As a task does that has nothing but the plan."""
    found: list[Record] = []
    for extent in extents:
        assert extent.length is not None
        (body,) = await cluster.stores.objects.get_ranges(extent.key, [Range(extent.at, extent.length)])
        offset = extent.offset
        for header, batch in split_batches(body):
            found += list(iter_records(batch, offset))
            offset += header.count
    return found


async def tier(cluster: AgingCluster) -> None:
    (report,) = await Driver(cluster).tier()
    assert report.outcome == "tiered", report


async def merge(cluster: AgingCluster) -> None:
    (report,) = await Driver(cluster, settings=MERGING).tier()
    assert report.merged > 1, report


async def compact(cluster: AgingCluster) -> None:
    (report,) = await Compactor(cluster).compact()
    assert report.outcome == "compacted", report
    assert report.segments > 0


Job = Callable[[AgingCluster], Awaitable[None]]
JOBS = [
    pytest.param([], [tier], id="tier"),
    pytest.param([tier], [merge], id="merge"),
    pytest.param([], [tier, merge], id="tier and merge"),
    *([pytest.param([tier], [compact], id="compact")] if CAN_COMPACT else []),
    *([pytest.param([], [tier, merge, compact], id="tier, merge and compact")] if CAN_COMPACT else []),
]


class TestPlans:
    @pytest.mark.parametrize(("before", "after"), JOBS)
    async def test_can_be_read_for_as_long_as_a_job_may_take(
        self, cluster: AgingCluster, before: list[Job], after: list[Job]
    ) -> None:
        for job in before:
            await job(cluster)
        cluster.age()
        extents = await plan(cluster)
        expected = await read(cluster, extents)
        assert len(expected) == 40
        for job in after:
            await job(cluster)
            await cluster.vacuum()
            assert await read(cluster, extents) == expected
        cluster.time.leap(HOUR_MS - 60_000)
        await cluster.vacuum()
        assert await read(cluster, extents) == expected
        left = await read_anew(cluster)
        cluster.time.leap(120_000)
        report = await cluster.vacuum()
        assert report.deleted.objects > 0
        with pytest.raises(ObjectMissing):
            await read(cluster, extents)
        assert await read_anew(cluster) == left

    async def test_jobs_that_replace_nothing_keep_nothing_longer(self, cluster: AgingCluster) -> None:
        """One after the other, so that there is always a manifest of a moment ago."""
        await tier(cluster)
        cluster.age()
        extents = await plan(cluster)
        await merge(cluster)
        for number in range(4):
            cluster.time.leap(HOUR_MS // 4 + 1000)
            await overwrite(await (await cluster.node()).log(), keys=5, times=1, start=100 * number)
            await tier(cluster)
        await cluster.vacuum()
        with pytest.raises(ObjectMissing):
            await read(cluster, extents)

    async def test_it_counts_from_when_the_chain_took_it(self, cluster: AgingCluster) -> None:
        """Not from when the manifest was written: another driver may finish the job long after."""
        await tier(cluster)
        cluster.age()
        driver = Driver(cluster, Steps(), settings=MERGING)
        await driver.tier()
        at = driver.steps.names.index("put chain", driver.steps.names.index("put chain") + 1) + 1
        await overwrite(await (await cluster.node()).log(), keys=5, times=1)
        await tier(cluster)
        cluster.age()
        (died,) = await Driver(cluster, Steps(at), settings=MERGING).tier()
        assert died.outcome == "failed"
        cluster.age()
        extents = await plan(cluster)
        expected = await read(cluster, extents)
        (report,) = await Driver(cluster, settings=MERGING).tier()
        assert report.recovered == "finished"
        await cluster.vacuum()
        assert await read(cluster, extents) == expected

    async def test_what_a_manifest_keeps_may_be_gone(self, cluster: AgingCluster) -> None:
        """A vacuum whose clock is ahead has taken it; for the others that is no damage."""
        await tier(cluster)
        cluster.age()
        (was,) = [key for key in await cluster.objects() if "/manifests/" in key]
        await merge(cluster)
        await cluster.stores.objects.delete([was])
        report = await cluster.vacuum()
        assert report.orphans["segment"].objects > 0
        assert len(await read_anew(cluster)) == 40

    async def test_blobs_that_are_young_are_not_named(self, cluster: AgingCluster) -> None:
        driver = Compactor(cluster)
        await tier(cluster)
        assert (await driver.manifest()).blobs is UNSET
        await overwrite(await (await cluster.node()).log(), keys=5, times=1)
        cluster.time.leap(SETTINGS.grace_ms // 2)
        await tier(cluster)
        blobs = (await driver.manifest()).blobs
        assert blobs is not UNSET
        assert all(key.startswith(keys.WAL_BLOBS) for key in blobs)
