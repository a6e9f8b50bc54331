"""The stages of a compaction: what one partition's tasks do to it is not the others' affair."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from catena.objects.counted import CountedObjects
from catena.pipeline import compact
from catena.pipeline.compact import CompactJob
from catena.pipeline.compact_work import Compacted, Compacting
from catena.pipeline.tasks import TaskContext
from catena.pipeline.work import InlineWork, TaskFailed
from tests.pipeline.compacting import SMALL, Compactor, overwrite
from tests.virtual_log.cluster import Cluster


class Failing(InlineWork):
    """Work of which one task fails."""

    def __init__(self, driver: Compactor, task: str, number: int) -> None:
        objects = CountedObjects(driver.cluster.stores.objects, driver.site.clock)
        super().__init__(TaskContext(objects, driver.site.clock, driver.site.entropy, objects))
        self._fails = (task, number)
        self.tasks: list[tuple[str, int]] = []

    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        self.tasks.append((task, len(plans)))
        results = await super().run(task, plans, done)
        if task == self._fails[0]:
            results[self._fails[1]] = TaskFailed("it was not to be", True)
        return results


async def begun(cluster: Cluster, driver: Compactor, *partitions: int) -> list[CompactJob]:
    for number in partitions:
        await overwrite(await (await cluster.node()).log(number), keys=10, times=10)
    await driver.tier(*partitions)
    jobs = []
    for where in await driver.where(*partitions):
        plan = await compact.make_plan(driver.site, where, SMALL)
        assert plan is not None
        jobs.append(await compact.begin(driver.site, plan))
    return jobs


async def test_what_each_partition_has_become(cluster: Cluster) -> None:
    driver = Compactor(cluster)
    jobs = await begun(cluster, driver, 0, 1)
    read = list[int]()
    compacting = Compacting(driver.site, driver.work, jobs, read.append)
    for job, done in zip(jobs, await compacting.run(), strict=True):
        assert isinstance(done, Compacted)
        assert (done.records, done.keys, done.tombstones) == (10, 10, 0)
        assert len(done.written) == len(job.plan.choice.groups)
    assert sum(read) == 2 * sum(job.plan.choice.bytes for job in jobs)


@pytest.mark.parametrize("task", ["keys", "survivors", "rewrite"])
async def test_a_task_that_fails_is_its_partitions_alone(cluster: Cluster, task: str) -> None:
    driver = Compactor(cluster)
    jobs = await begun(cluster, driver, 0, 1)
    work = Failing(driver, task, 1)
    compacting = Compacting(driver.site, work, jobs)
    first, second = await compacting.run()
    assert first == "it was not to be"
    assert isinstance(second, Compacted)
    groups, buckets = len(jobs[0].plan.choice.groups), jobs[0].plan.choice.buckets
    tasks = ["keys", "survivors", "rewrite"]
    counts = [groups, buckets, groups]
    reached = tasks.index(task)
    assert work.tasks == [
        (name, count * (2 if number <= reached else 1))
        for number, (name, count) in enumerate(zip(tasks, counts, strict=True))
    ]


async def test_scratch_is_deleted_and_segments_are_not(cluster: Cluster) -> None:
    driver = Compactor(cluster)
    jobs = await begun(cluster, driver, 0)
    before = {info.key async for info in cluster.stores.objects.list("llog/")}
    compacting = Compacting(driver.site, driver.work, jobs)
    (done,) = await compacting.run()
    assert isinstance(done, Compacted)
    made = {info.key async for info in cluster.stores.objects.list("llog/")} - before
    written = {info.key for info in done.written if info is not None}
    assert written < made
    await compacting.delete_scratch()
    assert {info.key async for info in cluster.stores.objects.list("llog/")} == before | written


async def test_nothing_is_to_be_done_for_nobody(cluster: Cluster) -> None:
    driver = Compactor(cluster)
    work = Failing(driver, "keys", 0)
    compacting = Compacting(driver.site, work, [])
    assert await compacting.run() == []
    assert work.tasks == []
    await compacting.delete_scratch()


async def test_where_all_have_failed_no_more_tasks_are_begun(cluster: Cluster) -> None:
    driver = Compactor(cluster)
    jobs = await begun(cluster, driver, 0)
    work = Failing(driver, "keys", 0)
    assert await Compacting(driver.site, work, jobs).run() == ["it was not to be"]
    assert [task for task, _ in work.tasks] == ["keys"]
