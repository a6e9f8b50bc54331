"""What partitions refer to, and which topics still do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from functools import partial
from pathlib import Path

import msgspec
import pytest

from catena.errors import Corrupt, ObjectMissing, StoreUnavailable, UnknownTopic
from catena.meta import keys
from catena.pipeline import references
from catena.pipeline.references import SWEPT_MS, References, find_topics, forget_topic, has_leftovers
from catena.testing.contracts.loglet import Stamp, make_entry, soon
from catena.testing.faults import Fail, Stall
from catena.types import ANY, TopicId
from catena.virtual_log import chain as chains
from catena.virtual_log.topics import TopicRecord
from tests.loglets.stores import WAYS
from tests.pipeline.drivers import Driver, append, append_numbers
from tests.pipeline.vacuums import AgingCluster, aging_cluster
from tests.virtual_log.cluster import TOPIC, tiered


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[AgingCluster]:
    async with aging_cluster(request.param, tmp_path, request) as cluster:
        yield cluster


async def referred_to(driver: Driver, *partitions: int) -> set[str]:
    found: set[str] = set()

    async def take(keys: Collection[str]) -> None:
        found.update(keys)

    await References(driver.site, take).read(await driver.places(*(partitions or (0,))))
    return found


class TestPartitions:
    async def test_nothing_was_ever_written(self, cluster: AgingCluster) -> None:
        assert await referred_to(Driver(cluster), 0, 1) == set()

    async def test_blobs_of_the_index_and_of_what_is_pending(self, cluster: AgingCluster) -> None:
        node = await cluster.node()
        await append(await node.log(0), "a", "b", "c")
        await append(await node.log(1), "d")
        assert await referred_to(Driver(cluster), 0, 1) == set(await cluster.objects())
        assert len(await referred_to(Driver(cluster), 0)) == 3

    async def test_an_append_that_nobody_has_materialized(self, cluster: AgingCluster) -> None:
        if cluster.stores.can_transact:
            return
        node = await cluster.node()
        stall = node.faults.at("put index", Stall())
        appending = asyncio.ensure_future(append(await node.log(), "a"))
        await soon(stall.reached.wait())
        assert await referred_to(Driver(cluster)) == set(await cluster.objects()) != set()
        stall.let_go()
        await appending

    async def test_addresses_of_older_data(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 2)
        log = await (await cluster.node()).log()
        entry = (await cluster.stores.index(log.tp))[0]
        moved = msgspec.structs.replace(entry, data_key=f"s3://bucket/{entry.data_key}")
        await cluster.stores.meta.put(keys.index(log.tp, 0), msgspec.json.encode(moved), ANY)
        assert await referred_to(Driver(cluster)) == set(await cluster.objects())

    async def test_the_manifest_and_its_segments(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 10)
        await Driver(cluster).tier()
        tiers = {key for key in await cluster.objects() if not key.startswith(keys.WAL_BLOBS)}
        assert len(tiers) > 2
        found = await referred_to(Driver(cluster))
        assert {key for key in found if not key.startswith(keys.WAL_BLOBS)} == tiers
        assert found == tiers, "what is pending lies below the boundary"

    async def test_what_is_pending_counts_from_the_boundary_on(self, cluster: AgingCluster) -> None:
        """Whether it was tiered or trimmed; and as long as one of its records is not."""
        log = await (await cluster.node()).log()
        await log.append(make_entry("a", "b", "c"))
        for start, blobs in ((2, 1), (3, 0)):
            await cluster.chains.change(log.tp, log.kind, partial(chains.trim, offset=start))
            await cluster.stores.meta.delete_range(keys.index_prefix(log.tp), keys.after(keys.index_prefix(log.tp)))
            expected = 0 if cluster.stores.can_transact else blobs
            assert len(await referred_to(Driver(cluster))) == expected

    async def test_all_of_a_job_that_may_still_finish(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 10)
        driver = Driver(cluster)
        stall = driver.steps.at("segment put", Stall(), nth=2)
        tiering = asyncio.ensure_future(driver.tier())
        await soon(stall.reached.wait())
        found = await referred_to(Driver(cluster))
        assert found >= set(await cluster.objects())
        (manifest,) = found - set(await cluster.objects())
        stall.let_go()
        await tiering
        assert manifest in await cluster.objects()

    async def test_many_are_handed_over_in_chunks(self, cluster: AgingCluster, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(references, "CHUNK", 4)
        await append_numbers(cluster, 30)
        chunks = []

        async def take(keys: Collection[str]) -> None:
            await asyncio.sleep(0)
            chunks.append(len(keys))

        driver = Driver(cluster)
        await References(driver.site, take).read(await driver.places(0, 1))
        assert max(chunks) <= 4
        assert sum(chunks) >= 30

    async def test_pending_is_read_before_the_index_and_the_index_before_the_chain(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 3)
        driver = Driver(cluster)
        await referred_to(driver)
        assert driver.steps.names == ["get control", "scan index", "get chain"]

    @pytest.mark.parametrize("step", ["get control", "scan index", "get chain", "manifest get"])
    async def test_a_store_that_is_away_is_an_error(self, cluster: AgingCluster, step: str) -> None:
        await append_numbers(cluster, 3)
        await Driver(cluster).tier()
        driver = Driver(cluster)
        driver.steps.at(step, Fail(StoreUnavailable("away")))
        with pytest.raises(StoreUnavailable):
            await referred_to(driver)

    async def test_a_tiered_link_that_names_no_manifest(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 3)
        log = await (await cluster.node()).log()
        await cluster.chains.change(log.tp, log.kind, lambda chain: tiered(chain, 2))
        with pytest.raises(Corrupt, match=keys.chain(log.tp)):
            await referred_to(Driver(cluster))

    async def test_a_manifest_that_is_gone(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 3)
        await Driver(cluster).tier()
        (manifest,) = [key for key in await cluster.objects() if "/manifests/" in key]
        await cluster.stores.objects.delete([manifest])
        driver = Driver(cluster)
        with pytest.raises(ObjectMissing, match=manifest):
            await referred_to(driver)
        assert driver.steps.names.count("get chain") == 2, "it may have been replaced"


async def fences_only(cluster: AgingCluster, topic: TopicRecord) -> bool:
    prefix = f"{keys.ROOT}/{topic.topic_id}/"
    left = {record.key for record in await cluster.stores.meta.scan(prefix, keys.after(prefix))}
    partitions = [topic.partition(number) for number in range(topic.partitions)]
    return left == {key(tp) for tp in partitions for key in (keys.chain, keys.control)}


class TestTopics:
    async def topics(self, cluster: AgingCluster, cutoff_ms: int) -> tuple[set[str], set[str]]:
        found = await find_topics(cluster.stores.meta, cutoff_ms)
        return {topic.name for topic in found.referring}, {topic.name for topic in found.expired}

    async def test_those_that_there_are_and_those_that_were(self, cluster: AgingCluster) -> None:
        await cluster.create_topic("deleted")
        assert await self.topics(cluster, cluster.time.now_ms() + 1) == ({TOPIC, "deleted"}, set())
        topics = (await cluster.node()).node.topics
        await topics.delete("deleted")
        deleted_ms = cluster.time.now_ms()
        assert await self.topics(cluster, deleted_ms - 1000) == ({TOPIC, "deleted"}, set())
        assert await self.topics(cluster, deleted_ms + 1) == ({TOPIC}, {"deleted"})

    async def test_a_name_that_was_given_out_again(self, cluster: AgingCluster) -> None:
        topics = (await cluster.node()).node.topics
        old = await topics.get(TOPIC)
        await topics.delete(TOPIC)
        await cluster.create_topic()
        found = await find_topics(cluster.stores.meta, cluster.time.now_ms() - 1000)
        assert sorted(topic.topic_id for topic in found.referring) == sorted(
            [old.topic_id, (await topics.get(TOPIC)).topic_id]
        )
        found = await find_topics(cluster.stores.meta, cluster.time.now_ms() + 1)
        assert [topic.topic_id for topic in found.expired] == [old.topic_id]

    async def test_one_that_is_being_deleted_counts_until_that_is_done(self, cluster: AgingCluster) -> None:
        """Even if its tombstone is there."""
        node = await cluster.node()
        stall = node.faults.at("put topic", Stall(), nth=2)
        deleting = asyncio.ensure_future(node.node.topics.delete(TOPIC))
        await soon(stall.reached.wait())
        assert await cluster.stores.meta.scan(keys.DELETED, keys.after(keys.DELETED)) != []
        assert await self.topics(cluster, cluster.time.now_ms() + 1) == ({TOPIC}, set())
        stall.let_go()
        await deleting
        assert await self.topics(cluster, cluster.time.now_ms() + 1) == (set(), {TOPIC})

    async def test_more_topics_than_fit_on_a_page(self, cluster: AgingCluster) -> None:
        names = {f"t{number:04d}" for number in range(1500)}
        for name in names:
            record = TopicRecord(name, TopicId(name), 1, "diskless", 0)
            await cluster.stores.meta.put(keys.topic(name), msgspec.json.encode(record))
        assert (await self.topics(cluster, 0))[0] == {*names, TOPIC}

    async def test_a_topic_is_forgotten_and_others_are_not(self, cluster: AgingCluster) -> None:
        await append_numbers(cluster, 3)
        log = await (await cluster.node()).log()
        await log.append(make_entry("by an idempotent producer", stamp=Stamp(7, 0, 0)))
        await cluster.create_topic("other")
        node = await cluster.node()
        await append(await node.log(topic="other"), "stays")
        topic = await node.node.topics.get(TOPIC)
        await node.node.topics.delete(TOPIC)
        for _ in range(2):
            await forget_topic(cluster.stores.meta, topic)
            assert await fences_only(cluster, topic)
            assert not await has_leftovers(cluster.stores.meta, topic)
            found = await find_topics(cluster.stores.meta, cluster.time.now_ms() + 1)
            assert (found.expired, [each.topic_id for each in found.forgotten]) == ([], [topic.topic_id])
            assert found.over == []
        found = await find_topics(cluster.stores.meta, cluster.time.now_ms() + SWEPT_MS + 1)
        assert [each.topic_id for each in found.over] == [topic.topic_id]
        assert await cluster.content(topic="other") == ["stays"]

    @pytest.mark.parametrize("has_written", [False, True])
    async def test_who_has_not_looked_since_is_told_all_the_same(
        self, cluster: AgingCluster, has_written: bool
    ) -> None:
        """Nothing is acked that nobody will read."""
        log = await (await cluster.node()).log()
        if has_written:
            await append(log, "a")
        topics = (await cluster.node()).node.topics
        topic = await topics.get(TOPIC)
        await topics.delete(TOPIC)
        await forget_topic(cluster.stores.meta, topic)
        with pytest.raises(UnknownTopic):
            await append(log, "late")

    async def test_what_comes_late_is_swept_and_brings_nothing_back(self, cluster: AgingCluster) -> None:
        """A writer that has slept since before the delete writes down what was pending."""
        node = await cluster.node()
        topic, log = await node.node.topics.get(TOPIC), await node.log()
        await append(log, "a")
        await node.node.topics.delete(TOPIC)
        meta = cluster.stores.meta
        await forget_topic(meta, topic)
        for key in (keys.index(log.tp, 0), keys.producer(log.tp, 7), keys.handoff(log.tp, 2), keys.compaction(log.tp)):
            await meta.put(key, b"late")
            assert await has_leftovers(meta, topic)
            await forget_topic(meta, topic)
            assert await fences_only(cluster, topic)
        with pytest.raises(UnknownTopic):
            await append(log, "late")

    async def test_a_topic_that_is_deleted_once_more_stays_forgotten(self, cluster: AgingCluster) -> None:
        """Whoever deletes it has slept since, too, right before the tombstone is written."""
        node = await cluster.node()
        topic = await node.node.topics.get(TOPIC)
        stall = node.faults.at("put deleted", Stall())
        deleting = asyncio.ensure_future(node.node.topics.delete(TOPIC))
        await soon(stall.reached.wait())
        await (await cluster.node()).node.topics.delete(TOPIC)
        await forget_topic(cluster.stores.meta, topic)
        stall.let_go()
        await deleting
        found = await find_topics(cluster.stores.meta, 0)
        assert (found.referring, [each.topic_id for each in found.forgotten]) == ([], [topic.topic_id])

    async def test_a_deleted_topic_need_not_have_its_manifest(self, cluster: AgingCluster) -> None:
        """Whoever was about to delete it wakes up when vacuum has collected what it held."""
        await append_numbers(cluster, 3)
        driver = Driver(cluster)
        await driver.tier()
        places = await driver.places(0)
        await (await cluster.node()).node.topics.delete(TOPIC)
        (manifest,) = [key for key in await cluster.objects() if "/manifests/" in key]
        await cluster.stores.objects.delete([manifest])

        async def take(_: Collection[str]) -> None:
            pass

        await References(driver.site, take).read(places)
