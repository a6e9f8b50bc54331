"""An audit beside all others: whatever happens at any of its steps, it finds no damage where there is none."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

import msgspec
import pytest

from catena.errors import Contended
from catena.meta import keys
from catena.pipeline.audit import AuditReport, audit, look
from catena.pipeline.audit_views import read_view, still_stands
from catena.pipeline.defects import defect
from catena.pipeline.settings import AuditSettings, TierSettings
from catena.pipeline.site import Place
from catena.pipeline.tier_pass import TierPass
from catena.testing.contracts.loglet import Stamp, make_entry, soon
from catena.virtual_log import chain as chains
from catena.virtual_log.log import VirtualLog
from tests.pipeline.auditing import TINY, collect_orphans, driver, found, in_wal, index_of, place_of, put_entry
from tests.pipeline.drivers import EVERYTHING, SMALL, Steps
from tests.virtual_log.cluster import Cluster

MERGING = msgspec.structs.replace(SMALL, segment_bytes=50_000, merge_segments=2)


class Scene(NamedTuple):
    """A log that is half tiered, in several segments."""

    cluster: Cluster
    place: Place
    log: VirtualLog

    @classmethod
    async def make(cls, cluster: Cluster, topic: str) -> Scene:
        node = (await cluster.node()).node
        record = await node.topics.create(topic, 1)
        scene = cls(cluster, Place(record.partition(0), record.kind), await node.log(topic, 0))
        await scene.append(0, 8)
        await scene.tier()
        await scene.append(8, 8)
        return scene

    async def append(self, start: int, count: int = 2) -> None:
        for number in range(start, start + count):
            await self.log.append(make_entry(f"{number} {'x' * 300}", stamp=Stamp(7, 0, number)))

    async def tier(self, settings: TierSettings = SMALL, steps: Steps | None = None) -> None:
        tiering = await driver(self.cluster, steps)
        (report,) = await TierPass(tiering.site, tiering.work, settings, EVERYTHING).run([self.place])
        assert report.outcome in ("tiered", "idle", "stale"), report

    async def audit(self, steps: Steps | None = None, settings: AuditSettings = TINY) -> AuditReport:
        auditor = await driver(self.cluster, steps)
        return await audit(auditor.site, auditor.work, [self.place], settings)

    async def append_more(self) -> None:
        await self.append(16)

    async def tier_more(self) -> None:
        await self.tier()

    async def merge(self) -> None:
        await self.tier(MERGING)
        await self.tier(MERGING)

    async def trim(self) -> None:
        await self.log.trim(3)

    async def trim_into_the_wal(self) -> None:
        await self.log.trim(12)

    async def tier_and_trim(self) -> None:
        await self.append(16)
        await self.tier()
        await self.log.trim(14)
        await self.tier()

    async def reconfigure(self) -> None:
        await self.log.reconfigure("diskless")
        await self.append(16)

    async def seal(self) -> None:
        await self.log.seal()

    async def delete(self) -> None:
        await (await self.cluster.node()).node.topics.delete(self.place.tp.topic)


DEEDS: list[Callable[[Scene], Awaitable[None]]] = [
    Scene.append_more,
    Scene.tier_more,
    Scene.merge,
    Scene.trim,
    Scene.trim_into_the_wal,
    Scene.tier_and_trim,
    Scene.reconfigure,
    Scene.seal,
    Scene.delete,
]


@pytest.mark.parametrize("applied", [False, True])
@pytest.mark.parametrize("deed", DEEDS, ids=lambda deed: deed.__name__)
async def test_what_others_do_at_any_step_of_an_audit_is_no_damage(
    cluster: Cluster, deed: Callable[[Scene], Awaitable[None]], applied: bool
) -> None:
    """Vacuum comes along at once, although its grace is far longer than an audit."""
    counting = Steps()
    await (await Scene.make(cluster, "first")).audit(counting)
    assert len(counting.names) > 15
    for at in range(1, len(counting.names) + 1):
        scene = await Scene.make(cluster, f"topic-{at}")
        steps = Steps(at, sleeps=True, applied=applied)
        auditing = asyncio.ensure_future(scene.audit(steps))
        asleep = asyncio.ensure_future(steps.asleep.wait())
        await soon(asyncio.wait([asleep, auditing], return_when=asyncio.FIRST_COMPLETED))
        asleep.cancel()
        await deed(scene)
        await collect_orphans(cluster, scene.place)
        steps.wake.set()
        report = await auditing
        assert report.damage == (), (at, steps.names, report.damage)
        assert report.unchecked == ()
        after = await scene.audit()
        assert (after.defects, after.ok) == ((), True)


@pytest.mark.parametrize("applied", [False, True])
async def test_what_a_job_does_at_any_of_its_steps_is_no_damage(cluster: Cluster, applied: bool) -> None:
    counting = Steps()
    await (await Scene.make(cluster, "first")).tier(steps=counting)
    for at in range(1, len(counting.names) + 1):
        scene = await Scene.make(cluster, f"topic-{at}")
        steps = Steps(at, sleeps=True, applied=applied)
        tiering = asyncio.ensure_future(scene.tier(steps=steps))
        asleep = asyncio.ensure_future(steps.asleep.wait())
        await soon(asyncio.wait([asleep, tiering], return_when=asyncio.FIRST_COMPLETED))
        asleep.cancel()
        report = await scene.audit()
        assert report.ok, (at, steps.names, report)
        assert {each.kind for each in report.defects} <= {"stale_entry"}, "its claim shows that it is at work"
        steps.wake.set()
        await tiering


async def test_audits_beside_everything_at_once(cluster: Cluster) -> None:
    scene = await Scene.make(cluster, "busy")
    is_over = False

    async def write() -> None:
        for start in range(16, 60, 2):
            await scene.append(start)
            await asyncio.sleep(0)

    async def tier() -> None:
        for number in range(6):
            await scene.tier(MERGING if number % 2 else SMALL)
            await scene.log.trim(2 * number)

    async def keep_auditing() -> int:
        audits = 0
        while not is_over or audits == 0:
            report = await scene.audit()
            assert report.damage == (), report.damage
            audits += 1
            await asyncio.sleep(0)
        return audits

    auditing = asyncio.ensure_future(keep_auditing())
    await asyncio.gather(write(), tier())
    is_over = True
    assert await auditing > 0
    await scene.tier()
    assert (await scene.audit()).defects == ()


class TestLooks:
    async def test_a_chain_that_never_rests_is_not_judged(
        self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tp = await in_wal(cluster)
        await cluster.stores.meta.delete(keys.index(tp, 4))
        place = await place_of(cluster)
        site = (await driver(cluster)).site
        jobs = iter(range(1000))

        async def restless(*arguments: object) -> object:
            view = await read_view(site, place, 0, 1000)
            await cluster.chains.change(*place, lambda chain: chains.begin_tiering(chain, f"job {next(jobs)}"))
            return view._replace(is_settled=False)

        monkeypatch.setattr("catena.pipeline.audit.read_view", restless)
        with pytest.raises(Contended, match="was changed 10 times"):
            await look(site, place, 0, 1000)

    async def test_a_gap_that_the_boundary_has_passed_is_not_reported(self, cluster: Cluster) -> None:
        """The index is read after the chain, and what was tiered in between is gone from it."""
        scene = await Scene.make(cluster, "moved")
        steps = Steps(1 + (await names_of(scene)).index("scan index"), sleeps=True)
        auditor = await driver(cluster, steps)
        looking = asyncio.ensure_future(look(auditor.site, scene.place, 0, 1000))
        await soon(steps.asleep.wait())
        await scene.tier()
        steps.wake.set()
        view, defects = await looking
        assert defects == []
        assert view.chain.boundary == 16

    async def test_a_job_that_ends_between_two_reads_has_left_nothing(self, cluster: Cluster) -> None:
        """Its record is seen, and then its claim is gone."""
        counting = Steps()
        await (await Scene.make(cluster, "first")).tier(steps=counting)
        scene = await Scene.make(cluster, "ending")
        working = Steps(1 + counting.names.index("put compaction"), sleeps=True, applied=True)
        tiering = asyncio.ensure_future(scene.tier(steps=working))
        await soon(working.asleep.wait())
        steps = Steps(1 + (await names_of(scene)).index("get compactor-claim"), sleeps=True)
        auditor = await driver(cluster, steps)
        looking = asyncio.ensure_future(look(auditor.site, scene.place, 0, 1000))
        await soon(steps.asleep.wait())
        working.wake.set()
        await tiering
        steps.wake.set()
        _, defects = await looking
        assert defects == []
        assert steps.names.count("get compactor-claim") == 2, "what it saw at first had to be looked at again"

    @pytest.mark.parametrize("deed", [Scene.tier_more, Scene.merge], ids=lambda deed: deed.__name__)
    async def test_what_is_tiered_between_two_windows_is_read_all_the_same(
        self, cluster: Cluster, deed: Callable[[Scene], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("catena.pipeline.audit.MIN_WINDOW", 1)
        windows = msgspec.structs.replace(TINY, max_runs=3)
        counting = Steps()
        report = await (await Scene.make(cluster, "first")).audit(counting, windows)
        assert (report.ok, report.offsets) == (True, 16)
        for at in range(1, len(counting.names) + 1):
            scene = await Scene.make(cluster, f"topic-{at}")
            steps = Steps(at, sleeps=True)
            auditing = asyncio.ensure_future(scene.audit(steps, windows))
            asleep = asyncio.ensure_future(steps.asleep.wait())
            await soon(asyncio.wait([asleep, auditing], return_when=asyncio.FIRST_COMPLETED))
            asleep.cancel()
            await deed(scene)
            steps.wake.set()
            report = await auditing
            assert (report.defects, report.unchecked) == ((), ()), (at, steps.names)
            assert report.offsets >= 16, (at, steps.names)


class TestStands:
    async def test_what_is_said_of_an_object_counts_while_it_holds_the_offsets(self, cluster: Cluster) -> None:
        scene = await Scene.make(cluster, "moved")
        tp, site = scene.place.tp, (await driver(cluster)).site
        run = (await index_of(cluster, tp))[2]
        segment = (await read_view(site, scene.place, 0, 10)).manifest
        assert segment is not None
        key, last = segment.segments[0].key, segment.segments[0].end - 1
        of_run = defect("corrupt_batch", tp, run.data_key, run.start_offset, run.end_offset, "bad")
        of_segment = defect("corrupt_batch", tp, key, 0, last, "bad")
        of_content = defect("duplicate_batch", tp, run.data_key, run.end_offset, run.end_offset, "twice")
        said = [of_run, of_segment, of_content]
        assert await still_stands(site, scene.place, said) == said
        await scene.tier(MERGING)
        assert await still_stands(site, scene.place, said) == [of_content]
        await put_entry(cluster, tp, run)  # nobody looks there any more
        assert await still_stands(site, scene.place, said) == [of_content]
        await scene.log.trim(run.end_offset + 1)
        assert await still_stands(site, scene.place, said) == []

    async def test_it_does_not_count_for_a_deleted_topic(self, cluster: Cluster) -> None:
        scene = await Scene.make(cluster, "gone")
        said = [defect("duplicate_batch", scene.place.tp, "x", 9, 9, "twice")]
        site = (await driver(cluster)).site
        assert await still_stands(site, scene.place, said) == said
        await scene.delete()
        assert await still_stands(site, scene.place, said) == []

    async def test_damage_is_still_found_where_a_stale_entry_names_the_same_object(self, cluster: Cluster) -> None:
        tp = await in_wal(cluster)
        entry = (await index_of(cluster, tp))[9]
        await cluster.stores.objects.delete([entry.data_key])
        await put_entry(cluster, tp, entry)
        assert await found(cluster) == [("missing_object", entry.data_key, (9, 9))]


async def names_of(scene: Scene) -> list[str]:
    """The steps of a look."""
    auditor = await driver(scene.cluster)
    await look(auditor.site, scene.place, 0, 1000)
    return auditor.steps.names
