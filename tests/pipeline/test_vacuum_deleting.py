"""How vacuum deletes: in bulk, not too fast, slower when the store wants it, and until it is told to stop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest

from catena.errors import OutcomeUnknown, RetryLater, StoreRefused, StoreUnavailable
from catena.meta import keys
from catena.objects.counted import CountedObjects
from catena.pipeline import vacuum as vacuums
from catena.pipeline.settings import VacuumSettings
from catena.pipeline.tasks import TaskContext, run_task
from catena.pipeline.vacuum import Amount, VacuumProgress, vacuum
from catena.pipeline.work import InlineWork, TaskFailed
from catena.testing.faults import Fail
from tests.pipeline.drivers import Driver, append_numbers
from tests.pipeline.vacuums import SETTINGS, AgingCluster, LeapingClock, aging_cluster, vacuum_by, writes

Done: TypeAlias = Callable[[int, bytes | TaskFailed], None]


class Stumbling(InlineWork):
    """Its tasks delete nothing while there are errors left to raise."""

    def __init__(self, driver: Driver, errors: list[Exception]) -> None:
        async def run(name: str, context: TaskContext, plan: bytes) -> bytes:
            if name == "deleting" and errors:
                raise errors.pop(0)
            return await run_task(name, context, plan)

        objects = CountedObjects(driver.site.objects, driver.site.clock)
        super().__init__(TaskContext(objects, driver.site.clock, driver.site.entropy, objects), run, at_once=1)
        self.widths: list[int] = []

    async def run(self, task: str, plans: Sequence[bytes], done: Done) -> list[bytes | TaskFailed]:
        if task == "deleting":
            self.widths.append(len(plans))
        return await super().run(task, plans, done)


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgingCluster]:
    async with aging_cluster("memory", tmp_path, request) as cluster:
        yield cluster


class TestDeleting:
    @pytest.fixture
    async def orphans(self, cluster: AgingCluster, monkeypatch: pytest.MonkeyPatch) -> list[str]:
        monkeypatch.setattr(vacuums, "BULK", 2)
        monkeypatch.setattr(vacuums, "ROUND_BULKS_MAX", 4)
        orphans = [f"{keys.WAL_BLOBS}{number:032x}" for number in range(40)]
        for key in orphans:
            await cluster.stores.objects.put(key, [b"12"])
        cluster.age()
        return orphans

    async def test_a_store_that_throttles_slows_it_down(self, cluster: AgingCluster, orphans: list[str]) -> None:
        driver = Driver(cluster)
        work = Stumbling(driver, [StoreUnavailable("slow down")] * 6)
        report = await vacuum(driver.site, work, SETTINGS)
        assert (report.deleted, report.failed, report.error) == (Amount(40, 80), 0, "")
        assert work.widths == [4, 2, 1, 2, 3, 4, 4, 4, 2]
        assert await cluster.objects() == []

    async def test_but_not_for_ever(self, cluster: AgingCluster, orphans: list[str]) -> None:
        driver = Driver(cluster)
        with pytest.raises(RetryLater, match="has deleted nothing for long: StoreUnavailable: slow down"):
            await vacuum(driver.site, Stumbling(driver, [StoreUnavailable("slow down")] * 1000), SETTINGS)
        assert await cluster.objects() == orphans

    async def test_what_the_store_refuses_is_told(self, cluster: AgingCluster, orphans: list[str]) -> None:
        driver = Driver(cluster)
        report = await vacuum(driver.site, Stumbling(driver, [StoreRefused("not allowed")]), SETTINGS)
        assert (report.failed, report.error) == (2, "StoreRefused: not allowed")
        assert report.deleted.objects == 38
        assert await cluster.objects() == orphans[:2]

    async def test_an_outcome_that_is_unknown_is_tried_again(self, cluster: AgingCluster, orphans: list[str]) -> None:
        driver = Driver(cluster)
        driver.steps.at("delete objects", Fail(OutcomeUnknown("no answer"), applied=True))
        assert (await vacuum_by(driver)).deleted.objects == 40

    async def test_so_many_a_second(self, cluster: AgingCluster, orphans: list[str]) -> None:
        class Counting(LeapingClock):
            slept = 0.0

            async def sleep(self, seconds: float) -> None:
                self.slept += seconds
                await super().sleep(seconds)

        driver, clock = Driver(cluster), Counting()
        clock.leap(SETTINGS.grace_ms + 1000)
        await vacuum(driver.site._replace(clock=clock), driver.work, VacuumSettings(objects_per_s=4))
        assert 9 < clock.slept <= 10

    async def test_it_stops_between_rounds(self, cluster: AgingCluster, orphans: list[str]) -> None:
        driver, told = Driver(cluster), list[VacuumProgress]()
        report = await vacuum(driver.site, driver.work, SETTINGS, False, told.append, lambda: len(told) > 9)
        assert (report.stopped, report.referenced, report.deleted.objects) == (True, None, 16)
        assert await cluster.objects() == orphans[16:]
        assert [progress.stage for progress in told[:3]] == ["listing", "reading references", "deleting"]
        assert told[-1].deleted == report.deleted

    async def test_stopped_before_all_references_are_read_it_deletes_nothing(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 5)
        cluster.age()
        driver = Driver(cluster)
        report = await vacuum(driver.site, driver.work, SETTINGS, should_stop=lambda: True)
        assert (report.stopped, report.deleted) == (True, Amount())
        assert writes(driver) == ["put vacuum-grace"]
        assert await cluster.content() == values
