"""Who waits for a log is told of what is new in it, by one follower for all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catena.broker.tails import LINGER_S, Tails
from catena.errors import StoreUnavailable
from catena.runtime import Tasks
from catena.testing.contracts.loglet import make_entry
from catena.testing.faults import Fail
from catena.virtual_log.log import VirtualLog
from tests.broker.world import BrokerNode, World


class Waiter:
    def __init__(self) -> None:
        self.told: list[VirtualLog] = []
        self._came = asyncio.Event()

    def wake(self, of: VirtualLog) -> None:
        self.told.append(of)
        self._came.set()

    async def until_told(self) -> None:
        async with asyncio.timeout(30):
            await self._came.wait()
        self._came.clear()


class Following:
    def __init__(self, node: BrokerNode) -> None:
        self.node = node
        self.tasks = Tasks("tails")
        self.tails = Tails(node.node.clock, self.tasks)

    async def until_it_ends(self) -> None:
        for _ in range(10_000):
            if not len(self.tasks):
                return
            await asyncio.sleep(0.001)
        raise AssertionError("it is still followed")


@pytest.fixture
async def following(world: World) -> AsyncIterator[Following]:
    following = Following(await world.node())
    await following.node.node.topics.create("t", 2)
    yield following
    await following.tasks.close()


async def test_all_who_wait_are_told_of_their_log_only(following: Following) -> None:
    one, other = await following.node.node.log("t", 0), await following.node.node.log("t", 1)
    waiters = [Waiter(), Waiter(), Waiter()]
    following.tails.subscribe(one, waiters[0].wake)
    following.tails.subscribe(one, waiters[1].wake)
    following.tails.subscribe(other, waiters[2].wake)
    assert len(following.tasks) == 2
    await one.append(make_entry("x"))
    await waiters[0].until_told()
    await waiters[1].until_told()
    assert set(waiters[0].told) == {one}
    assert waiters[2].told == []
    await other.append(make_entry("x"))
    await waiters[2].until_told()


async def test_appends_of_another_node_are_told(following: Following, world: World) -> None:
    log, waiter = await following.node.node.log("t", 0), Waiter()
    following.tails.subscribe(log, waiter.wake)
    for number in range(3):
        await (await (await world.node()).node.log("t", 0)).append(make_entry("x"))
        await waiter.until_told()
        async with asyncio.timeout(30):
            while log.seen_tail <= number:
                await waiter.until_told()


async def test_a_follower_rests_when_nothing_happens(following: Following) -> None:
    log, waiter = await following.node.node.log("t", 0), Waiter()
    await log.append(make_entry("x"))
    following.tails.subscribe(log, waiter.wake)
    taken = following.node.faults.taken

    def asked() -> int:
        """Of the log: the node's own views look now and then, for topics and for nodes."""
        return sum(taken[step] for step in taken if step.rpartition(" ")[2] in ("chain", "control", "index"))

    for _ in range(100):
        await asyncio.sleep(0.001)
    before = asked()
    assert before
    for _ in range(100):
        await asyncio.sleep(0.001)
    assert asked() - before < 10


async def test_who_has_left_is_not_told_and_the_follower_ends_a_while_later(following: Following, world: World) -> None:
    log, waiter = await following.node.node.log("t", 0), Waiter()
    following.tails.subscribe(log, waiter.wake)
    following.tails.unsubscribe(log, waiter.wake)
    await log.append(make_entry("x"))
    assert following.tails.follow(log)
    world.clock.leap(LINGER_S)
    await log.append(make_entry("x"))
    await following.until_it_ends()
    assert waiter.told == []
    assert not following.tails.follow(log)


async def test_a_log_that_is_asked_for_is_followed_though_nobody_waits(following: Following, world: World) -> None:
    log, theirs = await following.node.node.log("t", 0), await (await world.node()).node.log("t", 0)
    assert not following.tails.follow(log)
    for number in range(3):
        await theirs.append(make_entry("x"))
        for _ in range(10_000):
            if log.seen_tail > number:
                break
            await asyncio.sleep(0.001)
        assert log.seen_tail == number + 1
        world.clock.leap(LINGER_S / 2)
        assert following.tails.follow(log)


async def test_a_store_that_was_away_is_followed_again(following: Following) -> None:
    following.node.faults.at("get control", Fail(StoreUnavailable("down")))
    log, waiter = await following.node.node.log("t", 0), Waiter()
    following.tails.subscribe(log, waiter.wake)
    await waiter.until_told()
    await log.append(make_entry("x"))
    async with asyncio.timeout(30):
        while log.seen_tail < 1:
            await waiter.until_told()


async def test_the_end_of_a_topic_is_told(following: Following) -> None:
    log, waiter = await following.node.node.log("t", 0), Waiter()
    following.tails.subscribe(log, waiter.wake)
    await following.node.node.topics.delete("t")
    await waiter.until_told()
    await following.until_it_ends()
