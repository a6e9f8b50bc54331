"""Wherever a driver that compacts dies or sleeps, whoever works beside it: the last record of each key stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from catena.errors import StoreUnavailable
from catena.formats.records import Record
from catena.meta import keys
from catena.pipeline import compact, compact_pass
from catena.pipeline.compact import CompactJob
from catena.pipeline.compact_pass import CompactPass, plan_all
from catena.pipeline.compact_work import Compacting
from catena.pipeline.settings import CompactSettings
from catena.pipeline.site import Site
from catena.pipeline.tier_pass import Progress
from catena.pipeline.work import Work
from catena.runtime import SystemClock
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Stall
from catena.virtual_log.log import VirtualLog
from tests.loglets.stores import WAYS, Stores
from tests.pipeline.compacting import (
    POLICY,
    Compactor,
    Keyed,
    compacted,
    entry,
    overwrite,
    read_anew,
    read_records,
    state_of,
)
from tests.pipeline.drivers import Steps, is_clean
from tests.virtual_log.cluster import Cluster

FEW = CompactSettings(group_bytes=1500, group_records=12, bucket_records=12)
TIMES, KEYS = 6, 4
END = TIMES * KEYS


@pytest.fixture(params=[WAYS[0], pytest.param(WAYS[1], marks=pytest.mark.long)])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Stores(request.param, tmp_path, request) as stores:
        stores.clock, stores.quick_clock.speed = SystemClock(), 1
        yield Cluster(stores)


async def fill(cluster: Cluster, partition: int = 0, start: int = 0) -> tuple[VirtualLog, list[Record]]:
    """A log that is tiered and not compacted, and what it holds."""
    log = await (await cluster.node()).log(partition)
    first = await log.tail()
    await overwrite(log, KEYS, TIMES, start)
    (report,) = await Compactor(cluster).tier(partition)
    assert report.outcome == "tiered"
    return log, await read_records(log, first)


async def test_partitions_are_taken_together_up_to_so_many_parts(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver holds what is told of all parts of those that it works on."""
    for partition in range(3):
        await fill(cluster, partition)
    monkeypatch.setattr(compact_pass, "AT_ONCE", 1)
    driver = Compactor(cluster, compacting=FEW)
    plans = [await compact.make_plan(driver.site, where, FEW) for where in await driver.where(0, 1, 2)]
    parts = [plan.choice.parts for plan in plans if plan is not None]
    assert len(parts) == 3
    assert min(parts) >= 4
    together: list[int] = []

    class Counting(Compacting):
        def __init__(self, site: Site, work: Work, jobs: Sequence[CompactJob], done: Callable[[int], None]) -> None:
            together.append(len(jobs))
            super().__init__(site, work, jobs, done)

    monkeypatch.setattr(compact_pass, "Compacting", Counting)
    monkeypatch.setattr(compact_pass, "GROUP_PARTS", 2 * parts[0])
    assert [report.outcome for report in await driver.compact(0, 1, 2)] == ["compacted"] * 3
    assert together == [2, 1]


async def count_steps(cluster: Cluster) -> int:
    await fill(cluster, 99)
    driver = Compactor(cluster, Steps(), FEW)
    (report,) = await driver.compact(99)
    assert report.outcome == "compacted"
    return len(driver.steps.names)


def is_whole(found: list[Record], before: list[Record]) -> bool:
    """It is what was written, or what a compaction leaves of it."""
    return found in (before, compacted(before, END))


@pytest.mark.parametrize("applied", [False, True])
class TestDeath:
    async def test_at_every_step_another_driver_goes_on(self, cluster: Cluster, applied: bool) -> None:
        steps = await count_steps(cluster)
        assert steps > 30
        for at in range(1, steps + 1):
            await self.dies_at(cluster, at, applied, partition=at % 98)

    async def dies_at(self, cluster: Cluster, at: int, applied: bool, partition: int) -> None:
        log, before = await fill(cluster, partition)
        dying = Compactor(cluster, Steps(at, applied=applied), FEW)
        with suppress(StoreUnavailable):
            await dying.compact(partition)
        assert is_whole(await read_anew(cluster, partition=partition), before), dying.steps.names
        (report,) = await Compactor(cluster, compacting=FEW).compact(partition)
        assert report.outcome in ("compacted", "idle"), (at, report, dying.steps.names)
        assert await read_anew(cluster, partition=partition) == compacted(before, END), (at, report)
        chain = await log.refresh()
        assert chain.boundary == END
        assert chain.tiering is None or report.outcome == "idle"
        await is_clean(cluster, log.tp, END)


@pytest.mark.parametrize("applied", [False, True])
class TestSleep:
    async def test_who_wakes_up_after_others_have_gone_on_changes_nothing(
        self, cluster: Cluster, applied: bool
    ) -> None:
        steps = await count_steps(cluster)
        for at in range(1, steps + 1):
            await self.sleeps_at(cluster, at, applied, partition=at % 98)

    async def sleeps_at(self, cluster: Cluster, at: int, applied: bool, partition: int) -> None:
        log, before = await fill(cluster, partition)
        sleeper = Compactor(cluster, Steps(at, sleeps=True, applied=applied), FEW)
        sleeping = asyncio.ensure_future(sleeper.compact(partition))
        asleep = asyncio.ensure_future(sleeper.steps.asleep.wait())
        await soon(asyncio.wait([asleep, sleeping], return_when=asyncio.FIRST_COMPLETED))
        asleep.cancel()
        with suppress(Exception):
            await cluster.stores.meta.delete(keys.compactor_claim(log.tp))  # its session has expired
        await Compactor(cluster, compacting=FEW).compact(partition)
        _, more = await fill(cluster, partition, start=500)
        sleeper.steps.wake.set()
        (report,) = await sleeping
        assert report.outcome in ("compacted", "stale", "idle", "busy"), (at, report)
        found = await read_anew(cluster, partition=partition)
        assert state_of(found) == state_of(more), (at, sleeper.steps.names)
        assert [record for record in found if record.offset >= END] in (more, compacted(more, 2 * END))
        await Compactor(cluster, compacting=FEW).tier_and_compact(partition, min_cleanable_dirty_ratio="0")
        assert await read_anew(cluster, partition=partition) == compacted(before + more, 2 * END)
        await is_clean(cluster, log.tp, 2 * END)


class TestRaces:
    async def test_of_drivers_at_once_one_works(self, cluster: Cluster) -> None:
        _, before = await fill(cluster)
        found = await asyncio.gather(*(Compactor(cluster, compacting=FEW).compact() for _ in range(4)))
        outcomes = {report.outcome for (report,) in found}
        assert "compacted" in outcomes
        assert outcomes <= {"compacted", "busy", "idle", "stale"}
        assert await read_anew(cluster) == compacted(before, END)

    async def test_tiering_waits_and_loses_nothing(self, cluster: Cluster) -> None:
        log, before = await fill(cluster)
        driver = Compactor(cluster, compacting=FEW)
        stall = driver.steps.at("manifest put", Stall())
        compacting = asyncio.ensure_future(driver.compact())
        await soon(stall.reached.wait())
        await overwrite(log, KEYS, 1, start=900)
        more = await read_records(log, END)
        (report,) = await Compactor(cluster).tier()
        assert report.outcome == "busy"
        stall.let_go()
        ((compaction,), (report,)) = await compacting, await Compactor(cluster).tier()
        assert (compaction.outcome, report.outcome) == ("compacted", "tiered")
        assert await read_anew(cluster) == compacted(before, END) + more

    async def test_readers_find_each_key_all_the_time(self, cluster: Cluster) -> None:
        log, before = await fill(cluster)
        state = state_of(before)
        is_over = False

        async def read() -> int:
            rounds = 0
            reader = await (await cluster.node()).log()
            while not is_over:
                await reader.refresh()
                assert state_of(await read_records(reader)) == state
                rounds += 1
            return rounds

        readers = [asyncio.ensure_future(read()) for _ in range(3)]
        for _ in range(5):
            driver = Compactor(cluster, compacting=FEW)
            (report,) = await driver.compact(min_cleanable_dirty_ratio="0")
            assert report.outcome == "compacted"
            # The same state once more, with other offsets: a compaction has something to do again.
            for key, value in state.items():
                await log.append(entry(Keyed(key, value)))
            await driver.tier()
        is_over = True
        assert min(await asyncio.gather(*readers)) > 0


class TestMany:
    async def test_a_partition_that_fails_does_not_stop_the_others(self, cluster: Cluster) -> None:
        logs = {number: await fill(cluster, number) for number in range(3)}
        lost = (await Compactor(cluster).manifest(1)).segments[-1].key
        await cluster.stores.objects.delete([lost])
        found = await Compactor(cluster, compacting=FEW).compact(0, 1, 2)
        assert sorted((each.partition, each.outcome) for each in found) == [
            (0, "compacted"),
            (1, "failed"),
            (2, "compacted"),
        ]
        (error,) = [each.error for each in found if each.error]
        assert lost in error
        for number in (0, 2):
            assert await read_anew(cluster, partition=number) == compacted(logs[number][1], END)
        await is_clean(cluster, logs[1][0].tp, END)
        assert (await logs[1][0].refresh()).tiering is None

    async def test_progress_is_told_and_it_stops_between_groups(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("catena.pipeline.compact_pass.AT_ONCE", 1)
        monkeypatch.setattr("catena.pipeline.compact_pass.GROUP", 1)
        for number in range(3):
            await fill(cluster, number)
        shown: list[Progress] = []
        driver = Compactor(cluster)
        doing = CompactPass(
            driver.site, driver.work, FEW, shown.append, lambda: bool(shown) and shown[-1].partitions_done == 2
        )
        found = await doing.run(await driver.where(0, 1, 2))
        assert [(each.partition, each.outcome) for each in found] == [(0, "compacted"), (1, "compacted")]
        assert (shown[-1].partitions, shown[-1].partitions_done) == (3, 2)
        assert shown[-1].bytes == shown[-1].bytes_done > 0

    async def test_a_plan_tells_what_would_be_done_and_does_nothing(self, cluster: Cluster) -> None:
        await fill(cluster)
        driver = Compactor(cluster)
        (report,) = await plan_all(driver.site, await driver.where(), FEW)
        assert (report.outcome, report.cleaned_up_to, report.records_before) == ("planned", END, END)
        assert report.dirty_bytes == report.bytes_before > 0
        assert not [step for step in driver.steps.names if "put" in step or "delete" in step]

    async def test_a_plan_tells_of_a_job_that_was_left_behind(self, cluster: Cluster) -> None:
        await fill(cluster)
        dying = Compactor(cluster, Steps(), FEW)
        stall = dying.steps.at("segment put", Stall())
        compacting = asyncio.ensure_future(dying.compact())
        await soon(stall.reached.wait())
        driver = Compactor(cluster)
        (report,) = await plan_all(driver.site, await driver.where(), FEW)
        assert (report.outcome, report.recovered) == ("planned", "left in WRITING_COMPACTED_INDEX")
        stall.let_go()
        await compacting


class TestPolicy:
    async def test_one_that_is_taken_back_before_the_job_begins(self, cluster: Cluster) -> None:
        log, before = await fill(cluster)
        driver = Compactor(cluster, None, FEW)
        where = await driver.where(0)
        await driver.configure("topic", {})
        (report,) = await driver.compact_pass().run(where)
        assert (report.outcome, await read_records(log)) == ("idle", before)

    async def test_one_that_is_taken_back_while_tasks_are_at_work(self, cluster: Cluster) -> None:
        log, before = await fill(cluster)
        driver = Compactor(cluster, None, FEW)
        where = await driver.where(0)
        inner = driver.work.run

        async def run(task: str, plans: Sequence[bytes], done: Callable[..., None]) -> list[Any]:
            await driver.configure("topic", POLICY | {"min.compaction.lag.ms": "86400000"})
            return await inner(task, plans, done)

        driver.work.run = run  # type: ignore[method-assign]
        (report,) = await driver.compact_pass().run(where)
        assert (report.outcome, report.error) == ("stale", "the topic's configs have changed meanwhile")
        assert await read_records(log) == before
        (report,) = await Compactor(cluster, None, FEW).compact()
        assert report.outcome == "compacted", "and the job is out of the way"
