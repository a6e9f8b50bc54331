"""The jobs as the service runs them: on the same stores and the same work, one after the other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

import catena
from catena import jobs
from catena.config import Settings, load
from catena.errors import MetaBehind, RetryLater
from catena.jobs.service_jobs import ServiceJobs
from catena.meta import keys
from catena.pipeline.renewed_work import renewed
from catena.pipeline.service import Ran
from catena.pipeline.settings import PipelineSettings, TierSettings, VacuumSettings
from catena.pipeline.site import Site
from catena.pipeline.work import Work
from catena.runtime import SystemClock, SystemEntropy
from catena.virtual_log.incarnation import raise_incarnation
from tests.backups import SqliteBackups
from tests.jobs.test_vacuuming import make_old
from tests.jobs.topics import inline
from tests.pipeline.mortal_work import MortalWork

VACUUM = VacuumSettings(objects_per_s=1_000_000)


@pytest.fixture
async def settings(tmp_path: Path) -> Settings:
    """A topic with two partitions, the first of which has three records, the first two of them too old."""
    async with catena.open(tmp_path) as log:
        await log.create_topic("t", 2)
        await log.create_topic("other", 1)
        for time in (10, 20):
            await log.append("t", "old", partition=0, timestamp_ms=time)
        await log.append("t", "new", partition=0)
        await log.append("other", "x")
        await log.node.topics.alter_configs("t", lambda _: {"retention.ms": "60000"})
    tier = TierSettings(min_age_ms=0, min_bytes=0)
    return msgspec.structs.replace(load(data=str(tmp_path)), pipeline=PipelineSettings(tier, vacuum=VACUUM))


class Opened:
    def __init__(self, site: Site, jobs: ServiceJobs, sessions: list[MortalWork]) -> None:
        self.site = site
        self.jobs = jobs
        self.sessions = sessions
        self._by_name = {job.name: job for job in jobs.all}

    async def run(self, name: str, stops: bool = False) -> Ran:
        return await self._by_name[name].run(lambda: stops)


@asynccontextmanager
async def opened(settings: Settings, which: jobs.Which = jobs.EVERYTHING) -> AsyncIterator[Opened]:
    clock, sessions = SystemClock(), list[MortalWork]()

    @asynccontextmanager
    async def open_work() -> AsyncIterator[Work]:
        async with inline(settings)() as work:
            sessions.append(MortalWork(work))
            yield sessions[-1]

    async with (
        jobs.open_site(settings, clock, SystemEntropy()) as (site, _),
        renewed(open_work, clock) as work,
    ):
        yield Opened(site, ServiceJobs(settings, site, work, which), sessions)


async def test_one_after_the_other(settings: Settings, tmp_path: Path) -> None:
    async with opened(settings) as service:
        assert await service.run("retention") == Ran("good")
        assert (service.jobs.retention.trimmed, service.jobs.retention.records) == (1, 2)
        assert await service.run("tier") == Ran("good")
        assert service.jobs.passes.counts.outcomes == {"tiered": 2}
        assert await service.run("compact") == Ran("good")
        assert service.jobs.compact_passes.counts.partitions == 0
        make_old(tmp_path)
        assert await service.run("vacuum") == Ran("good")
        found = service.jobs.vacuum
        assert found.deleted == found.orphans
        assert found.deleted > 0
        assert found.deleted_bytes == found.orphan_bytes
        assert await service.run("audit") == Ran("good")
        audited = service.jobs.audit
        assert audited is not None
        assert (audited.partitions, audited.offsets, audited.damage, audited.unchecked) == (3, 2, 0, 0)


async def test_a_topic_alone(settings: Settings) -> None:
    async with opened(settings, jobs.Which("other")) as service:
        assert await service.run("retention") == Ran("good")
        assert service.jobs.retention.trimmed == 0
        await service.run("tier")
        assert service.jobs.passes.counts.partitions == 1
        await service.run("audit")
        assert service.jobs.audit is not None
        assert service.jobs.audit.partitions == 1
        never = [job.name for job in service.jobs.all if not job.every_ms]
        assert never == ["writes", "vacuum"], "they are of no topic alone"


async def test_told_to_stop(settings: Settings) -> None:
    async with opened(settings) as service:
        for name in ("retention", "tier", "vacuum", "audit"):
            assert await service.run(name, stops=True) == Ran("stopped")
        assert service.jobs.retention.trimmed == 0
        assert service.jobs.passes.counts.outcomes == {}
        assert service.jobs.audit is None, "half an audit tells nothing"


async def test_damage_is_told(settings: Settings, tmp_path: Path) -> None:
    for blob in (tmp_path / "objects" / "llog" / "wal-shared").iterdir():
        blob.unlink()
    async with opened(settings) as service:
        ran = await service.run("audit")
        assert ran.outcome == "partly"
        assert "llog/wal-shared" in ran.error
        audited = service.jobs.audit
        assert audited is not None
        assert audited.damage == len(audited.first_damage) > 0


async def test_a_session_that_has_ended_is_opened_again(settings: Settings) -> None:
    async with opened(settings) as service:
        service.sessions[0].kill()
        for name in ("tier", "vacuum", "audit"):
            service.sessions[-1].kill()
            with pytest.raises(RetryLater):
                await service.run(name)
            assert (await service.run(name)).outcome == "good"
        assert len(service.sessions) == 4
        assert service.jobs.passes.counts.recoveries == {"abandoned": 2}


async def test_nothing_is_done_on_a_meta_store_that_was_set_back(settings: Settings, tmp_path: Path) -> None:
    backups = SqliteBackups(tmp_path / "meta.db")
    async with opened(settings) as service:
        assert (await service.run("retention")).outcome == "good"
        await backups.take()
        await raise_incarnation(service.site.meta, service.site.objects, service.site.clock)
        await backups.restore()
        for name in ("retention", "tier", "vacuum", "audit"):
            with pytest.raises(MetaBehind):
                await service.run(name)
        assert service.jobs.passes.counts.outcomes == {}


async def test_topics_that_ask_for_it_are_compacted(settings: Settings, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="what compacts comes with the spark extra")
    async with catena.open(tmp_path) as log:
        await log.create_topic("c", 1)
        await log.node.topics.alter_configs("c", lambda _: {"cleanup.policy": "compact"})
        for number in range(5):
            await log.append("c", f"{number}", key="same")
    async with opened(settings) as service:
        await service.run("tier")
        assert await service.run("compact") == Ran("good")
        counts = service.jobs.compact_passes.counts
        assert (counts.partitions, counts.records_removed) == (1, 4)
    async with opened(settings, jobs.Which("other")) as service:
        assert await service.run("compact") == Ran("good")
        assert service.jobs.compact_passes.counts.partitions == 0


async def test_applications_whose_writes_can_not_be_finished_are_named(settings: Settings) -> None:
    async with opened(settings) as service:
        for app in ("a", "b", "c"):
            await service.site.meta.put(keys.write_head(app), b"{")
        ran = await service.run("writes")
        assert ran.outcome == "partly"
        assert "writes of 3 applications can't be finished: 'a', 'b', 'c'; the first: Corrupt: meta record" in ran.error
