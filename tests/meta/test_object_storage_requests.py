"""What the meta store on object storage asks for: requests cost money, also while nobody does anything."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import msgspec
import pytest

from catena.cluster.membership import Membership
from catena.cluster.view import NodeProfile
from catena.errors import StoreUnavailable
from catena.meta import keys
from catena.meta.keys import after
from catena.meta.object_storage import ObjectMeta
from catena.meta.object_storage.envelope import Envelope
from catena.meta.object_storage.remembered import OVERHEAD_BYTES, Remembered
from catena.meta.watches import LocalWatch
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemEntropy
from catena.testing.faults import Fail, Faults, FaultyObjects
from catena.types import ETag, TopicId
from catena.virtual_log.topic_view import TopicView
from catena.virtual_log.topics import TopicRecord
from tests.meta.manual_clock import ManualClock

STEP_S = 0.05
TTL_MS = 8_000


class World:
    """A store whose requests are counted, others that change what is in it, and time that the test lets pass."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.objects = MemoryObjects(self.clock)
        self.faults = Faults()
        self.counted = CountedObjects(FaultyObjects(self.objects, self.faults), self.clock)
        self.meta = ObjectMeta(self.counted, self.clock, SystemEntropy())
        self.other = ObjectMeta(self.objects, self.clock, SystemEntropy())

    def requests(self, *kinds: str) -> int:
        counts = self.counted.snapshot()
        return sum(counts[kind].requests for kind in kinds)

    async def requests_in(self, seconds: float, *kinds: str) -> int:
        before = self.requests(*kinds)
        for _ in range(round(seconds / STEP_S)):
            await self.clock.advance(STEP_S)
        return self.requests(*kinds) - before

    async def wait(self, watch: LocalWatch) -> asyncio.Future[None]:
        """Past the first look, which wakes for nothing."""
        await self.wakes(asyncio.ensure_future(watch.changed()), 1)
        return asyncio.ensure_future(watch.changed())

    async def wakes(self, waiting: asyncio.Future[None], within_s: float) -> None:
        for _ in range(round(within_s / STEP_S)):
            if waiting.done():
                break
            await self.clock.advance(STEP_S)
        assert waiting.done()
        await waiting


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.meta.close()
    await world.other.close()


async def test_a_key_is_asked_for_while_somebody_waits_and_ever_more_rarely(world: World) -> None:
    watch = world.meta.watch("w/a")
    assert await world.requests_in(3, "list", "head", "get") == 0
    waiting = await world.wait(watch)
    await world.requests_in(60, "head")
    assert 5 <= await world.requests_in(10, "head") <= 10
    assert world.requests("list") == 0, "which costs twelve times as much"
    await world.other.put("w/a", b"")
    await world.wakes(waiting, 1.1)


async def test_a_prefix_is_listed_while_somebody_waits_and_far_more_rarely(world: World) -> None:
    watch = world.meta.watch("w/")
    assert await world.requests_in(3, "list") == 0
    waiting = await world.wait(watch)
    await world.requests_in(120, "list")
    assert 3 <= await world.requests_in(120, "list") <= 5
    assert not waiting.done()
    await world.other.put("w/a", b"")
    await world.wakes(waiting, 32)
    waiting = asyncio.ensure_future(watch.changed())
    await world.requests_in(2, "list")
    await world.other.put("w/b", b"")
    await world.wakes(waiting, 2.1)


async def test_who_comes_to_a_prefix_where_nothing_happened_is_told_soon(world: World) -> None:
    first = await world.wait(world.meta.watch("w/"))
    await world.requests_in(120, "list")
    second = asyncio.ensure_future(world.meta.watch("w/").changed())
    await world.other.put("w/a", b"")
    await world.wakes(second, 1.1)
    await first


async def test_many_records_below_a_prefix_wake_nobody_for_nothing(world: World) -> None:
    for number in range(1_500):
        await world.other.put(f"w/{number}", b"")
    waiting = await world.wait(world.meta.watch("w/"))
    assert await world.requests_in(20, "list") < 50
    assert not waiting.done()
    await world.other.put("w/1499", b"")
    await world.wakes(waiting, 20)


async def test_a_store_that_is_away_is_not_asked_more_often(world: World) -> None:
    waiting = await world.wait(world.meta.watch("w/a"))
    await world.requests_in(10, "head")
    for number in range(1, 100):
        world.faults.at("a head", Fail(StoreUnavailable("away")), number)
    assert await world.requests_in(20, "head") <= 30
    assert waiting.done(), "who waits is to look for itself"
    await waiting


async def test_a_scan_gets_only_what_has_changed(world: World) -> None:
    for number in range(50):
        await world.other.put(f"t/{number:02}", b"%d" % number)
    found = await world.meta.scan("t/", after("t/"))
    await world.other.put("t/07", b"new")
    await world.other.delete("t/08")
    before = world.requests("get")
    again = await world.meta.scan("t/", after("t/"))
    assert world.requests("get") - before == 2
    assert again == await world.other.scan("t/", after("t/"))
    assert [record for record in again if record.key != "t/07"] == [r for r in found if r.key not in ("t/07", "t/08")]
    await world.other.delete_range("t/", after("t/"))
    assert await world.meta.scan("t/", after("t/")) == []


async def test_what_is_remembered_dies_with_its_session(world: World) -> None:
    session = await world.other.session(TTL_MS)
    await world.other.put("e/a", b"", ephemeral=session)
    assert len(await world.meta.scan("e/", after("e/"))) == 1
    assert len(await world.meta.scan("e/", after("e/"))) == 1
    await session.close()
    assert await world.meta.scan("e/", after("e/")) == []


async def test_watches_wake_when_a_session_is_found_to_be_over(world: World) -> None:
    await world.other.put("e/a", b"", ephemeral=await world.other.session(TTL_MS))
    await world.meta.session(TTL_MS)
    watch = world.meta.watch("e/")
    waiting = await world.wait(watch)
    await world.requests_in(120, "list")
    assert not waiting.done()
    await world.other.close()
    await world.wakes(waiting, 2.5 * TTL_MS / 1000)
    assert await world.meta.get("e/a") is None


async def test_an_idle_node_asks_for_little(world: World) -> None:
    for number in range(100):
        topic = TopicRecord(f"topic-{number}", TopicId(f"{number}"), 3, "diskless", 0)
        await world.other.put(keys.topic(topic.name), msgspec.json.encode(topic))
    others = await Membership.join(world.other, world.clock, SystemEntropy(), NodeProfile(listeners={}))
    membership = await Membership.join(world.meta, world.clock, SystemEntropy(), NodeProfile(listeners={}))
    view = TopicView(world.meta, world.clock)
    await view.start()

    def seen() -> tuple[int, int]:
        return len(membership.view.nodes), len(view.all())

    await world.requests_in(120, "list")
    assert await world.requests_in(100, "list") <= 50
    assert await world.requests_in(100, "get", "head") <= 50
    assert await world.requests_in(100, "put") <= 51, "which keep the node's session alive"
    await world.requests_in(2.5, "list")
    await others.close()
    await world.other.delete(keys.topic("topic-7"))
    assert seen() == (2, 100)
    await world.requests_in(0.5, "list")  # who looks gets what is there, and at once what is new
    assert seen() == (1, 99)
    await view.close()
    await membership.close()


def test_what_scans_remember_is_bounded_and_goes_by_etag() -> None:
    remembered = Remembered(3 * (OVERHEAD_BYTES + 100))
    for key in "abc":
        remembered.keep(key, ETag("1"), Envelope("n", b"v" * 90))
    remembered.keep("a", ETag("2"), Envelope("n", None))
    assert remembered.get("a", ETag("1")) is None
    assert remembered.get("a", ETag("2")) == Envelope("n", None)
    assert remembered.get("b", ETag("1")) is not None
    remembered.keep("d", ETag("1"), Envelope("n", b"v" * 100))
    remembered.keep("e", ETag("1"), Envelope("n", b"v" * 100))
    kept = [key for key in "abcde" if remembered.get(key, ETag("2" if key == "a" else "1")) is not None]
    assert kept == ["b", "d", "e"]
    remembered.keep("f", ETag("1"), Envelope("n", bytes(10_000)))
    assert remembered.get("f", ETag("1")) is None, "larger than all there is room for"
