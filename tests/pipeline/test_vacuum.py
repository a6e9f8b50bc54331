"""Vacuum finds what nothing refers to, and deletes nothing else: whoever works meanwhile, and whatever sleeps."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from catena.errors import (
    ConfigError,
    Corrupt,
    MetaBehind,
    NeedsOperator,
    ObjectMissing,
    RetryLater,
    StoreUnavailable,
)
from catena.loglets.diskless.loglet import DisklessSettings
from catena.loglets.diskless.writer import WriterSettings
from catena.meta import keys
from catena.pipeline import compactions
from catena.pipeline import vacuum as vacuums
from catena.pipeline.references import SWEPT_MS
from catena.pipeline.settings import VacuumSettings
from catena.pipeline.vacuum import Amount, check_grace, vacuum
from catena.testing.contracts.loglet import make_entry, soon
from catena.testing.faults import Fail, Stall
from catena.types import ANY
from catena.virtual_log.incarnation import accept_older_meta, raise_incarnation
from tests.loglets.stores import WAYS
from tests.pipeline.drivers import SMALL, Driver, append_numbers
from tests.pipeline.vacuums import SETTINGS, AgingCluster, aging_cluster, counts, vacuum_by, writes
from tests.virtual_log.cluster import TOPIC, read_all

MERGING = msgspec.structs.replace(SMALL, segment_bytes=50_000, merge_segments=2)


@pytest.fixture(params=[*WAYS, "sqlite", "sqlite without transact"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgingCluster]:
    async with aging_cluster(request.param, tmp_path, request) as cluster:
        yield cluster


class TestOrphans:
    async def test_there_are_none(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 10)
        cluster.age()
        driver = Driver(cluster)
        report = await vacuum_by(driver)
        assert (report.listed, report.referenced, report.orphans, report.kept_young) == (11, 10, {}, 0)
        assert report.unknown == 1, "the marker of the incarnation, and that of the cluster"
        assert writes(driver) == ["put vacuum-grace"]
        assert await cluster.content() == values

    async def test_of_tiering(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 10)
        await Driver(cluster).tier()
        cluster.age()
        before = await cluster.kinds()
        report = await cluster.vacuum()
        assert counts(report) == {"wal": 10}
        assert report.deleted == report.orphans["wal"]
        assert report.deleted.bytes > 3000
        assert report.referenced == before["segment"] + 1
        assert await cluster.kinds() == before - Counter({"wal": 10})
        assert await cluster.content() == values
        assert (await cluster.vacuum()).orphans == {}

    async def test_of_writers_that_died(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 3)
        node = await cluster.node(DisklessSettings(writer=WriterSettings(commit_deadline_ms=1)))
        log = await node.log()
        for nth in range(1, 40):
            node.faults.at(cluster.stores.commit_step, Fail(StoreUnavailable("it has died")), nth=nth)
        with pytest.raises(RetryLater):
            await log.append(make_entry("lost"))
        cluster.age()
        report = await cluster.vacuum()
        assert counts(report) == {"wal": 1}
        assert await cluster.content() == values

    async def test_of_abandoned_jobs(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 10)
        driver = Driver(cluster)
        stall = driver.steps.at("put chain", Stall(), nth=2)
        tiering = asyncio.ensure_future(driver.tier())
        await soon(stall.reached.wait())
        (place,) = await driver.places(0)
        written = await cluster.kinds()
        assert written["segment"] > 0
        assert written["manifest"] == 1
        cluster.age()
        assert (await cluster.vacuum()).orphans == {}, "it may still finish"
        opened = await compactions.load(driver.site, place.tp)
        assert opened is not None
        assert await compactions.abandon(Driver(cluster).site, place, opened) == "abandoned"
        report = await cluster.vacuum()
        assert counts(report) == {
            "segment": written["segment"],
            "manifest": 1,
        }
        stall.let_go()
        (tiered,) = await tiering
        assert tiered.outcome == "stale"
        assert await cluster.content() == values
        assert await cluster.kinds() == {"wal": 10}

    async def test_of_merged_segments(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 12)
        await Driver(cluster).tier()
        small = (await cluster.kinds())["segment"]
        assert small > 1
        (merged,) = await Driver(cluster, settings=MERGING).tier()
        assert merged.merged == small
        cluster.age()
        report = await cluster.vacuum()
        assert counts(report) == {
            "wal": 12,
            "segment": small,
            "manifest": 1,
        }
        assert await cluster.kinds() == Counter({"segment": 1, "manifest": 1})
        assert await cluster.content() == values

    async def test_of_trimmed_logs(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 10)
        await (await (await cluster.node()).log()).trim(6)
        cluster.age()
        report = await cluster.vacuum()
        assert report.deleted.objects == 6
        assert await cluster.content(6) == values[6:]

    async def test_of_deleted_topics(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 10)
        await Driver(cluster).tier(0, 1)
        await cluster.create_topic("other")
        node = await cluster.node()
        other = await node.log(topic="other")
        await other.append(make_entry("stays"))
        topic = await node.node.topics.get(TOPIC)
        cluster.age()
        await node.node.topics.delete(TOPIC)
        tombstone = keys.deleted(topic.topic_id)
        report = await cluster.vacuum()
        assert report.forgotten_topics == ()
        assert set(report.orphans) == {"wal"}, "it was deleted just now: what its chains name stays"
        assert await cluster.stores.meta.get(tombstone) is not None
        cluster.age()
        dry = await cluster.vacuum(dry_run=True)
        report = await cluster.vacuum()
        assert dry.forgotten_topics == report.forgotten_topics == (TOPIC,)
        assert dry.orphans == report.orphans
        assert set(report.orphans) - {"wal"} == {"segment", "manifest"}
        assert await cluster.kinds() == {"wal": 1}
        assert await cluster.stores.meta.get(keys.index(topic.partition(0), 9)) is None
        assert (await cluster.vacuum()).forgotten_topics == ()
        assert await cluster.stores.meta.get(tombstone) is not None, "something may come late"
        cluster.time.leap(SWEPT_MS)
        await cluster.vacuum()
        assert await cluster.stores.meta.get(tombstone) is None
        assert await read_all(await (await cluster.node()).log(topic="other")) == ["stays"]

    async def test_of_topics_that_the_meta_store_has_forgotten(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 3)
        left = f"{keys.ROOT}/{'e' * 32}/partitions/7/segments/{'0' * 32}/{'1' * 32}"
        await cluster.stores.objects.put(left, [b"12345"])
        cluster.age()
        report = await cluster.vacuum()
        assert (report.orphans, report.first_keys) == ({"segment": Amount(1, 5)}, (left,))
        assert left not in await cluster.objects()
        assert await cluster.content() == values

    async def test_other_objects_are_left_alone(self, cluster: AgingCluster) -> None:
        job = "0" * 32
        others = [
            f"{keys.WAL_BLOBS}{job}.copy",
            f"{keys.WAL_BLOBS}{job[:-1]}",
            f"{keys.WAL_BLOBS}{'F' * 32}",
            f"{keys.ROOT}/{'e' * 32}/partitions/01/manifests/{job}",
            f"{keys.ROOT}/{'e' * 32}/partitions/1/indexes/{job}",
            f"{keys.ROOT}/{'e' * 32}/partitions/1/segments/{job}/{job}/more",
            f"meta/{keys.WAL_BLOBS}{job}",
        ]
        orphan = f"{keys.WAL_BLOBS}{job[:-1]}1"
        for key in [*others, orphan]:
            await cluster.stores.objects.put(key, [b""])
        cluster.age()
        report = await cluster.vacuum()
        assert report.first_keys == (orphan,)
        assert report.deleted.objects == 1
        for key in [*others, keys.CLUSTER, keys.INCARNATION]:
            await cluster.stores.objects.head(key)

    async def test_a_dry_run_changes_nothing(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 10)
        await Driver(cluster).tier()
        cluster.age()
        before, driver = await cluster.objects(), Driver(cluster)
        settings = msgspec.structs.replace(SETTINGS, shown_keys=3)
        report = await vacuum_by(driver, dry_run=True, settings=settings)
        assert writes(driver) == []
        assert await cluster.objects() == before
        assert (report.dry_run, report.deleted, counts(report)) == (
            True,
            Amount(),
            {"wal": 10},
        )
        assert len(report.first_keys) == 3
        assert set(report.first_keys) <= set(before)
        assert (await cluster.vacuum()).orphans == report.orphans


class TestYoung:
    async def test_what_is_young_stays(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 5)
        await Driver(cluster).tier()
        cluster.time.leap(SETTINGS.grace_ms - 60_000)
        report = await cluster.vacuum()
        assert (report.orphans, report.referenced) == ({}, 0)
        assert report.kept_young == report.listed - report.unknown > 5

    async def test_a_blob_that_is_about_to_be_committed_stays(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 3)
        cluster.age()
        node = await cluster.node()
        stall = node.faults.at(cluster.stores.commit_step, Stall())
        appending = asyncio.ensure_future((await node.log()).append(make_entry("late")))
        await soon(stall.reached.wait())
        report = await cluster.vacuum()
        assert (report.kept_young, report.orphans) == (1, {})
        stall.let_go()
        await appending
        assert await cluster.content() == [*values, "late"]

    async def test_a_clock_that_is_ahead_is_no_reason_to_delete(self, cluster: AgingCluster) -> None:
        values = await append_numbers(cluster, 3)
        await Driver(cluster).tier()
        before, driver = await cluster.objects(), Driver(cluster)
        ahead = type(cluster.time)()
        ahead.leap(2 * SETTINGS.grace_ms)
        with pytest.raises(NeedsOperator, match=r"the clock here is 1728.. s ahead of the object store's"):
            await vacuum(driver.site._replace(clock=ahead), driver.work, SETTINGS)
        assert await cluster.objects() == before
        assert await cluster.content() == values

    def test_a_grace_that_is_too_short_is_refused(self) -> None:
        settings = VacuumSettings(grace_ms=50_000, longest_job_ms=1000)
        check_grace(settings, 25_000)
        with pytest.raises(ConfigError, match=r"pipeline\.vacuum\.grace_ms: 50000 .*commit_deadline_ms: 25001"):
            check_grace(settings, 25_001)

    async def test_a_grace_below_the_length_of_a_job_is_refused(self, cluster: AgingCluster) -> None:
        with pytest.raises(ConfigError, match=r"grace_ms: 50000 is less than pipeline\.vacuum\.longest_job_ms, 50001"):
            await cluster.vacuum(settings=VacuumSettings(grace_ms=50_000, longest_job_ms=50_001))


class TestDoubt:
    """What can't be read may refer to anything: vacuum names it, and deletes nothing."""

    @pytest.mark.parametrize("what", ["control", "index", "chain", "manifest", "topic", "tombstone"])
    async def test_a_corrupt_reference(self, cluster: AgingCluster, what: str) -> None:
        await append_numbers(cluster, 5)
        await Driver(cluster).tier()
        await append_numbers(cluster, 2, 5)
        log = await (await cluster.node()).log()
        chain = (await cluster.chains.load(log.tp, log.kind)).chain
        assert chain.tiered is not None
        manifest = chain.tiered.params["manifest"]
        key = {
            "control": keys.control(log.tp),
            "index": keys.index(log.tp, 5),
            "chain": keys.chain(log.tp),
            "manifest": manifest,
            "topic": keys.topic(TOPIC),
            "tombstone": keys.deleted(log.tp.topic_id),
        }[what]
        cluster.age()
        before = await cluster.objects()
        await self.spoil(cluster, key, is_object=what == "manifest")
        with pytest.raises(Corrupt, match=key):
            await cluster.vacuum()
        assert await cluster.objects() == before

    async def spoil(self, cluster: AgingCluster, key: str, is_object: bool) -> None:
        if is_object:
            data = (await cluster.stores.objects.get(key)).data
            await cluster.stores.objects.put(key, [data.replace(b'"base":0', b'"base":1', 1)], ANY)
        else:
            await cluster.stores.meta.put(key, b'{"deleted": ', ANY)

    async def test_a_manifest_that_is_gone(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 5)
        await Driver(cluster).tier()
        cluster.age()
        (manifest,) = [key for key in await cluster.objects() if "/manifests/" in key]
        await cluster.stores.objects.delete([manifest])
        before = await cluster.objects()
        with pytest.raises(ObjectMissing, match=manifest):
            await cluster.vacuum()
        assert await cluster.objects() == before

    async def test_an_entry_that_names_a_place_that_nobody_knows(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 2)
        log = await (await cluster.node()).log()
        entry = (await cluster.stores.index(log.tp))[0]
        moved = msgspec.structs.replace(entry, data_key=f"gs://bucket/{entry.data_key}")
        await cluster.stores.meta.put(keys.index(log.tp, 0), msgspec.json.encode(moved), ANY)
        cluster.age()
        with pytest.raises(Corrupt, match="gs://bucket"):
            await cluster.vacuum()


class TestIncarnation:
    async def test_a_meta_store_that_was_set_back_is_refused(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 5)
        stores = cluster.stores
        await raise_incarnation(stores.meta, stores.objects, stores.clock)
        old = await stores.meta.get(keys.INCARNATION)
        assert old is not None
        await raise_incarnation(stores.meta, stores.objects, stores.clock)
        # What a restore forgets: here, that anything was ever appended.
        log = await (await cluster.node()).log()
        await stores.meta.put(keys.INCARNATION, old.value, ANY)
        await stores.meta.delete_range(keys.partition(log.tp), keys.after(keys.partition(log.tp)))
        cluster.age()
        before = await cluster.objects()
        with pytest.raises(MetaBehind, match="the meta store was set back"):
            await cluster.vacuum()
        assert len(await cluster.objects()) == len(before) == 5

    @pytest.mark.parametrize("step", ["scan topic", "get chain", "delete objects"])
    @pytest.mark.parametrize("accepted", [False, True])
    async def test_even_while_vacuum_is_at_work(
        self, cluster: AgingCluster, step: str, accepted: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """And even if somebody has said that it is fine: what vacuum knows is from before that."""
        monkeypatch.setattr(vacuums, "BULK", 2)
        monkeypatch.setattr(vacuums, "ROUND_BULKS_MAX", 1)
        await append_numbers(cluster, 6)
        stores, driver = cluster.stores, Driver(cluster)
        await raise_incarnation(stores.meta, stores.objects, stores.clock)
        old = await stores.meta.get(keys.INCARNATION)
        assert old is not None
        await Driver(cluster).tier()
        cluster.age()
        stall = driver.steps.at(step, Stall(applied=True))
        vacuuming = asyncio.ensure_future(vacuum_by(driver))
        await soon(stall.reached.wait())
        await raise_incarnation(stores.meta, stores.objects, stores.clock)
        await stores.meta.put(keys.INCARNATION, old.value, ANY)
        if accepted:
            await accept_older_meta(stores.meta, stores.objects, stores.clock, driver.site.entropy)
        stall.let_go()
        with pytest.raises(MetaBehind):
            await vacuuming
        assert (await cluster.kinds())["wal"] == (4 if step == "delete objects" else 6)

    async def test_a_backup_from_before_the_deletes_is_recognized(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 5)
        stores = cluster.stores
        await raise_incarnation(stores.meta, stores.objects, stores.clock)
        old = await stores.meta.get(keys.INCARNATION)
        assert old is not None
        await Driver(cluster).tier()
        cluster.age()
        assert (await cluster.vacuum()).deleted.objects == 5
        await stores.meta.put(keys.INCARNATION, old.value, ANY)
        with pytest.raises(MetaBehind):
            await cluster.vacuum()
