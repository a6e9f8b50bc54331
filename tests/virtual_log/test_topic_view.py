"""The cached view of all topics: nothing that was there is called unknown, and nothing old stays for long."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from catena.errors import Corrupt, InvalidTopic, StoreUnavailable, UnknownTopic
from catena.meta import keys
from catena.meta.base import Record, Watch
from catena.runtime import SystemEntropy
from catena.testing.faults import Fail, Stall
from catena.types import TopicId
from catena.virtual_log.topic_view import READS_AT_ONCE, SharedRead, TopicView, TopicViewSettings
from catena.virtual_log.topics import TopicRecord, Topics
from tests.cluster.world import NodeMeta, World

REFRESH_S = 5.0
PAUSE_S = 0.05
SOON_S = 1.0


class DeafWatch:
    async def changed(self) -> None:
        await asyncio.Event().wait()

    def close(self) -> None: ...


class DeafMeta(NodeMeta):
    """Its watches hear nothing."""

    def watch(self, prefix: str) -> Watch:
        return DeafWatch()


class Site:
    """A node that changes topics, and the views of others, on the same store."""

    def __init__(self, world: World, opened: AsyncExitStack) -> None:
        self.world = world
        self._opened = opened
        self.meta = world.open()
        self.topics = Topics(self.meta, world.clock, SystemEntropy(), cannot_open)

    async def view(self, meta: NodeMeta | None = None) -> tuple[TopicView, NodeMeta]:
        meta = meta or self.world.open()
        settings = TopicViewSettings(refresh_ms=int(REFRESH_S * 1000), scan_pause_ms=int(PAUSE_S * 1000))
        view = TopicView(meta, self.world.clock, settings)
        self._opened.push_async_callback(view.close)
        await view.start()
        meta.faults.taken.clear()
        return view, meta

    async def delete(self, topic: TopicRecord) -> None:
        """As a delete leaves the record; what else it does is not seen by a view."""
        deleted = msgspec.structs.replace(topic, state="DELETED")
        await self.meta.put(keys.topic(topic.name), msgspec.json.encode(deleted))


def cannot_open(topic: TopicRecord, partition: int) -> NoReturn:
    raise AssertionError("nothing here opens a log")


@pytest.fixture(params=["memory", "sqlite"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    async with AsyncExitStack() as opened:
        yield Site(World(request.param, tmp_path, opened), opened)


async def test_it_begins_with_all_topics(site: Site) -> None:
    names = [f"topic-{number:04}" for number in range(1100)]
    topics = {name: await site.topics.create(name) for name in reversed(names)}
    await site.delete(topics["topic-0007"])
    view, meta = await site.view()
    assert [topic.name for topic in view.all()] == [name for name in names if name != "topic-0007"]
    for topic in view.all():
        assert topic == topics[topic.name]
        assert await view.get(topic.name) is await view.by_id(topic.topic_id) is topic
        assert view.cached(topic.name) is view.cached_by_id(topic.topic_id) is topic
    assert not meta.faults.taken, "nobody asked the store"


class TestMisses:
    async def test_what_another_node_created_is_there_at_once(self, site: Site) -> None:
        view, _ = await site.view()
        created = await site.topics.create("orders")
        assert await view.get("orders") == created
        assert view.cached("orders") == view.cached_by_id(created.topic_id) == created
        assert list(view.all()) == [created]

    async def test_what_is_not_there_is_asked_for_each_time(self, site: Site) -> None:
        view, meta = await site.view()
        for _ in range(3):
            with pytest.raises(UnknownTopic):
                await view.get("orders")
        assert meta.faults.taken["get topic"] == 3
        with pytest.raises(InvalidTopic):
            await view.get("no/name")

    async def test_those_who_ask_at_the_same_time_share_a_read(self, site: Site) -> None:
        view, meta = await site.view()
        stall = meta.faults.at("get topic", Stall())
        first = asyncio.ensure_future(view.get("orders"))
        await stall.reached.wait()
        others = [asyncio.ensure_future(view.get("orders")) for _ in range(50)]
        others[7].cancel()
        await asyncio.sleep(0)
        stall.let_go()
        results = await asyncio.gather(first, *others, return_exceptions=True)
        assert sum(isinstance(result, UnknownTopic) for result in results) == 50
        assert meta.faults.taken["get topic"] == 2

    async def test_nobody_is_answered_by_a_read_from_before_they_asked(self, site: Site) -> None:
        view, meta = await site.view()
        stall = meta.faults.at("get topic", Stall(applied=True))
        early = asyncio.ensure_future(view.get("orders"))
        await stall.reached.wait()
        created = await site.topics.create("orders")
        late = asyncio.ensure_future(view.get("orders"))
        await asyncio.sleep(0)
        stall.let_go()
        assert await late == created
        await asyncio.gather(early, return_exceptions=True)

    async def test_reads_of_many_names_take_turns(self, site: Site) -> None:
        class Counted(NodeMeta):
            running = most = 0

            async def get(self, key: str) -> Record | None:
                self.running += 1
                self.most = max(self.most, self.running)
                try:
                    await asyncio.sleep(0)
                    return await super().get(key)
                finally:
                    self.running -= 1

        counted = Counted(site.meta.store)
        view, _ = await site.view(counted)
        results = await asyncio.gather(*(view.get(f"no-{number}") for number in range(200)), return_exceptions=True)
        assert all(isinstance(result, UnknownTopic) for result in results)
        assert counted.most == READS_AT_ONCE

    async def test_an_id_that_another_node_has_just_given_is_found(self, site: Site) -> None:
        view, _ = await site.view(DeafMeta(site.meta.store))
        created = await site.topics.create("orders")
        finding = asyncio.ensure_future(view.by_id(created.topic_id))
        await site.world.until(finding.done, SOON_S)
        assert await finding == created

    async def test_ids_that_are_not_there_share_scans(self, site: Site) -> None:
        view, meta = await site.view(DeafMeta(site.meta.store))
        asking = [asyncio.ensure_future(view.by_id(TopicId(f"{number:032x}"))) for number in range(100)]
        await site.world.until(lambda: all(each.done() for each in asking))
        for each in asking:
            with pytest.raises(UnknownTopic):
                await each
        assert meta.faults.taken["scan topic"] <= 3, "theirs, and those of the ticks meanwhile"

    async def test_a_store_that_is_away_is_said(self, site: Site) -> None:
        created = await site.topics.create("orders")
        view, meta = await site.view()
        meta.is_down = True
        assert await view.get("orders") == created
        with pytest.raises(StoreUnavailable):
            await view.get("other")
        asking = asyncio.ensure_future(view.by_id(TopicId("0" * 32)))
        await site.world.until(asking.done, SOON_S)
        with pytest.raises(StoreUnavailable):
            await asking


class TestChanges:
    async def test_they_are_seen_soon(self, site: Site) -> None:
        view, _ = await site.view()
        revision = view.revision
        created = await site.topics.create("orders")
        await site.world.until(lambda: view.revision > revision, SOON_S)
        assert list(view.all()) == [created]
        altered = await site.topics.alter_configs("orders", {"retention.ms": "5"})
        await site.world.until(lambda: view.cached("orders") == altered, SOON_S)
        await site.delete(altered)
        await site.world.until(lambda: view.cached("orders") is None, SOON_S)
        assert view.cached_by_id(created.topic_id) is None
        assert list(view.all()) == []

    async def test_they_are_seen_also_if_no_watch_tells_of_them(self, site: Site) -> None:
        view, _ = await site.view(DeafMeta(site.meta.store))
        created = await site.topics.create("orders")
        took = await site.world.until(lambda: view.cached("orders") == created)
        assert SOON_S < took <= REFRESH_S + SOON_S

    async def test_they_can_be_waited_for(self, site: Site) -> None:
        view, _ = await site.view()
        assert await view.changed(view.revision - 1) == view.revision
        waiting = asyncio.ensure_future(view.changed(view.revision))
        await asyncio.sleep(0)
        assert not waiting.done()
        await site.topics.create("orders")
        await site.world.until(waiting.done, SOON_S)
        assert await waiting == view.revision

    async def test_many_of_them_cost_few_scans(self, site: Site) -> None:
        view, meta = await site.view()
        for number in range(100):
            await site.topics.create(f"topic-{number}")
        took = await site.world.until(lambda: len(view.all()) == 100, SOON_S)
        scans = meta.faults.taken["scan topic"] / 2  # the last page of each is an empty one
        assert scans <= took / PAUSE_S + 2

    async def test_a_name_that_belongs_to_another_topic_now(self, site: Site) -> None:
        old = await site.topics.create("orders")
        view, _ = await site.view()
        await site.delete(old)
        new = await site.topics.create("orders")
        await site.world.until(lambda: view.cached("orders") == new, SOON_S)
        assert view.cached_by_id(old.topic_id) is None
        assert view.cached_by_id(new.topic_id) == new

    async def test_a_store_that_is_away_leaves_the_view_as_it_is(self, site: Site) -> None:
        created = await site.topics.create("orders")
        view, meta = await site.view()
        meta.is_down = True
        await site.topics.create("other")
        began = site.world.clock.monotonic()
        await site.world.until(lambda: site.world.clock.monotonic() - began > 3 * REFRESH_S)
        assert list(view.all()) == [created]
        meta.is_down = False
        await site.world.until(lambda: len(view.all()) == 2, REFRESH_S + SOON_S)

    async def test_a_record_that_cannot_be_read_hides_no_other(
        self, site: Site, caplog: pytest.LogCaptureFixture
    ) -> None:
        await site.meta.put(keys.topic("broken"), b"{")
        created = await site.topics.create("orders")
        view, _ = await site.view()
        assert list(view.all()) == [created]
        with pytest.raises(Corrupt, match="broken"):
            await view.get("broken")
        began = site.world.clock.monotonic()
        await site.world.until(lambda: site.world.clock.monotonic() - began > 3 * REFRESH_S)
        assert caplog.text.count("a topic is passed over") == 1


class TestForget:
    async def test_what_was_forgotten_is_read_again(self, site: Site) -> None:
        created = await site.topics.create("orders")
        view, meta = await site.view(DeafMeta(site.meta.store))
        grown = await site.topics.add_partitions("orders", 5)
        assert await view.get("orders") == created
        view.forget("orders")
        assert view.cached("orders") is view.cached_by_id(created.topic_id) is None
        assert [topic.name for topic in view.all()] == ["orders"], "those who list topics do not miss it meanwhile"
        assert await view.get("orders") == grown
        assert view.cached_by_id(created.topic_id) == grown
        assert meta.faults.taken["get topic"] == 1

    async def test_one_that_is_gone_is_unknown_then(self, site: Site) -> None:
        created = await site.topics.create("orders")
        view, _ = await site.view(DeafMeta(site.meta.store))
        await site.delete(created)
        view.forget("orders")
        with pytest.raises(UnknownTopic):
            await view.get("orders")
        assert list(view.all()) == []

    async def test_a_scan_that_finds_it_unchanged_makes_it_known_again(self, site: Site) -> None:
        created = await site.topics.create("orders")
        view, _ = await site.view()
        view.forget("orders")
        await site.world.until(lambda: view.cached("orders") == created, REFRESH_S + SOON_S)

    async def test_a_scan_from_before_does_not(self, site: Site) -> None:
        await site.topics.create("orders")
        view, meta = await site.view(DeafMeta(site.meta.store))
        stall = meta.faults.at("scan topic", Stall(applied=True))
        scanning = asyncio.ensure_future(view.refresh())
        await site.world.until(stall.reached.is_set, SOON_S)
        grown = await site.topics.add_partitions("orders", 5)
        view.forget("orders")
        stall.let_go()
        await scanning
        assert await view.get("orders") == grown

    async def test_what_is_not_there_can_be_forgotten(self, site: Site) -> None:
        view, _ = await site.view()
        view.forget("orders")
        created = await site.topics.create("orders")
        assert await view.get("orders") == created


class TestOverlap:
    """Of a scan and a read, whichever began later wins; each of them is held up after it looked."""

    async def test_a_read_within_a_scan(self, site: Site) -> None:
        await site.topics.create("orders")
        view, meta = await site.view(DeafMeta(site.meta.store))
        stall = meta.faults.at("scan topic", Stall(applied=True))
        scanning = asyncio.ensure_future(view.refresh())
        await site.world.until(stall.reached.is_set, SOON_S)
        grown = await site.topics.add_partitions("orders", 5)
        created = await site.topics.create("a-new-one")
        assert (await view.read("orders"), await view.get("a-new-one")) == (grown, created)
        stall.let_go()
        await scanning
        assert list(view.all()) == [created, grown]

    async def test_a_scan_within_a_read(self, site: Site) -> None:
        await site.topics.create("orders")
        view, meta = await site.view(DeafMeta(site.meta.store))
        stall = meta.faults.at("get topic", Stall(applied=True))
        reading = asyncio.ensure_future(view.read("orders"))
        await stall.reached.wait()
        grown = await site.topics.add_partitions("orders", 5)
        scanning = asyncio.ensure_future(view.refresh())
        await site.world.until(scanning.done, SOON_S)
        stall.let_go()
        assert await reading == grown
        assert view.cached("orders") == grown

    async def test_a_scan_that_looks_after_a_read_and_is_heard_after_it(self, site: Site) -> None:
        await site.topics.create("orders")
        view, meta = await site.view(DeafMeta(site.meta.store))
        before_scan = meta.faults.at("scan topic", Stall())
        scanning = asyncio.ensure_future(view.refresh())
        await site.world.until(before_scan.reached.is_set, SOON_S)
        await view.read("orders")
        grown = await site.topics.add_partitions("orders", 5)
        before_scan.let_go()
        await scanning
        assert view.cached("orders") == grown


async def test_a_shared_read_that_fails_fails_for_those_who_share_it_only(site: Site) -> None:
    created = await site.topics.create("orders")
    view, meta = await site.view()
    view.forget("orders")
    stall = meta.faults.at("get topic", Stall())
    meta.faults.at("get topic", Fail(StoreUnavailable("down")), nth=2)
    first = asyncio.ensure_future(view.read("orders"))
    await stall.reached.wait()
    sharing = asyncio.gather(*(view.read("orders") for _ in range(3)), return_exceptions=True)
    await asyncio.sleep(0)
    stall.let_go()
    assert await first == created
    assert [type(result) for result in await sharing] == [StoreUnavailable] * 3
    assert await view.read("orders") == created


async def test_a_shared_read_that_is_cancelled_is_made_by_the_next() -> None:
    reads, gate = [0], asyncio.Event()

    async def read() -> int:
        reads[0] += 1
        await gate.wait()
        return reads[0]

    shared = SharedRead(read)
    first, second = asyncio.ensure_future(shared.fresh()), asyncio.ensure_future(shared.fresh())
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    gate.set()
    assert await second == 2
    assert shared.waiting == 0
