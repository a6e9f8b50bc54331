"""Plans of queries on real stores, while logs grow, are trimmed, tiered, deleted and made again."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.errors import ConfigError, DataLoss, UnknownPartition, UnknownTopic
from catena.loglets.base import Extent
from catena.source import planner as planners
from catena.source.offsets import StreamOffsets
from catena.virtual_log.extents import find_extents
from catena.virtual_log.log import VirtualLog
from tests.source.world import START_MS, World, fill, open_world, shown, tier

TAIL = 10
"""Of each of two partitions."""


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    await fill(tmp_path, 2, 2)
    async with open_world(tmp_path) as world:
        yield world


def positions(offsets: StreamOffsets) -> dict[str, dict[int, int]]:
    return {name: topic.partitions for name, topic in offsets.topics.items()}


async def test_what_was_acked_is_in_the_plan(world: World) -> None:
    planner = world.batch(subscribe="orders")
    assert shown(await planner.plan_batch()) == [("orders", 0, 0, TAIL), ("orders", 1, 0, TAIL)]
    for more in range(1, 6):
        await world.log.append("orders", "x", partition=1)
        assert shown(await planner.plan_batch())[1] == ("orders", 1, 0, TAIL + more)


async def test_tiered_or_not_it_is_found(world: World, tmp_path: Path) -> None:
    planner = world.batch(subscribe="orders")
    await tier(tmp_path)
    await world.log.append("orders", "x")
    (split, _) = await planner.plan_batch()
    assert (split.start, split.end) == (0, TAIL + 1)
    assert len({extent.key for extent in split.extents}) == 2


async def test_which_topics(world: World) -> None:
    await world.log.create_topic("orders-2")
    await world.log.append("orders-2", "x")
    assert len(await world.batch(subscribe="orders,orders-2").plan_batch()) == 3
    assert shown(await world.batch(subscribePattern="orders-.").plan_batch()) == [("orders-2", 0, 0, 1)]
    assert await world.batch(subscribePattern="order").plan_batch() == []
    assert shown(await world.batch(assign='{"orders": [1]}').plan_batch()) == [("orders", 1, 0, TAIL)]
    with pytest.raises(UnknownTopic, match="others"):
        await world.batch(subscribe="orders,others").plan_batch()
    with pytest.raises(UnknownPartition, match="partitions 0 to 1, not 2"):
        await world.batch(assign='{"orders": [1, 2]}').plan_batch()


async def test_limits(world: World) -> None:
    async def plan(**options: str) -> list[tuple[int, int, int]]:
        splits = await world.batch(subscribe="orders", **options).plan_batch()
        return [(split.partition, split.start, split.end) for split in splits]

    assert await plan(startingOffsets='{"orders": {"0": 3, "1": -2}}') == [(0, 3, TAIL), (1, 0, TAIL)]
    assert await plan(endingOffsets='{"orders": {"0": 3, "1": -1}}') == [(0, 0, 3), (1, 0, TAIL)]
    assert await plan(startingTimestamp=f"{START_MS + 4}", endingTimestamp=f"{START_MS + 6}") == [(0, 4, 6), (1, 4, 6)]
    times = f'{{"orders": {{"0": {START_MS + 9}, "1": {START_MS}}}}}'
    assert await plan(startingOffsetsByTimestamp=times) == [(0, 9, TAIL), (1, 0, TAIL)]
    assert await plan(endingTimestamp=f"{START_MS + 99}") == [(0, 0, TAIL), (1, 0, TAIL)]
    late = f"{START_MS + 99}"
    assert await plan(startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []
    with pytest.raises(ConfigError, match=r"option startingTimestamp: orders/. has no record"):
        await plan(startingTimestamp=late)
    with pytest.raises(DataLoss, match="offset 11 of orders/0 is outside of its log"):
        await plan(endingOffsets='{"orders": {"0": 11, "1": 1}}')
    assert await plan(minPartitions="4") == [(0, 0, 5), (0, 5, TAIL), (1, 0, 5), (1, 5, TAIL)]
    assert len(await plan(maxRecordsPerPartition="3")) == 8


async def test_a_trimmed_start(world: World, caplog: pytest.LogCaptureFixture) -> None:
    await world.log.trim("orders", 4)
    assert shown(await world.batch(subscribe="orders").plan_batch())[0] == ("orders", 0, 4, TAIL)
    given = {"subscribe": "orders", "startingOffsets": '{"orders": {"0": 1, "1": 0}}'}
    with pytest.raises(DataLoss, match="With the option failOnDataLoss=false the query goes on without"):
        await world.batch(**given).plan_batch()
    with caplog.at_level(logging.WARNING):
        assert shown(await world.batch(**given, failOnDataLoss="false").plan_batch())[0] == ("orders", 0, 4, TAIL)
    assert "offset 1 of orders/0 is outside of its log" in caplog.text


@pytest.mark.parametrize("fails", [True, False])
async def test_what_is_trimmed_while_it_is_planned(world: World, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Between the look at the log's bounds and the search for its extents."""
    trimmed = iter([3, 6])

    async def trim_first(log: VirtualLog, start: int, end: int) -> list[Extent]:
        if (offset := next(trimmed, None)) is not None:
            await world.log.trim("orders", offset)
        return await find_extents(log, start, end)

    monkeypatch.setattr(planners, "find_extents", trim_first)
    if fails:
        planner = world.batch(assign='{"orders": [0]}', minPartitions="5")
        with pytest.raises(DataLoss, match="orders/0 was trimmed just now"):
            await planner.plan_batch()
    else:
        planner = world.batch(assign='{"orders": [0]}', minPartitions="5", failOnDataLoss="false")
        assert shown(await planner.plan_batch()) == [("orders", 0, 6, 8), ("orders", 0, 8, TAIL)]


async def test_a_topic_that_is_deleted_while_it_is_planned(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def delete_first(log: VirtualLog, start: int, end: int) -> list[Extent]:
        if log.tp.partition == 0:
            await world.log.delete_topic("orders")
        return await find_extents(log, start, end)

    monkeypatch.setattr(planners, "find_extents", delete_first)
    planner = world.batch(assign='{"orders": [0]}', failOnDataLoss="false")
    assert await planner.plan_batch() == []


async def test_a_stream_begins_and_goes_on(world: World) -> None:
    planner = world.stream(subscribe="orders", startingOffsets="earliest")
    start = await planner.initial_offsets()
    assert positions(start) == {"orders": {0: 0, 1: 0}}
    assert positions(await world.stream(subscribe="orders").initial_offsets()) == {"orders": {0: TAIL, 1: TAIL}}
    latest = await planner.latest_offsets(start, 4)
    assert positions(latest.end) == {"orders": {0: 2, 1: 2}}
    assert positions(latest.tails) == {"orders": {0: TAIL, 1: TAIL}}
    assert shown(await planner.plan_stream(start, latest.end)) == [("orders", 0, 0, 2), ("orders", 1, 0, 2)]
    target = await planner.tails()
    await world.log.append("orders", "x")
    assert positions((await planner.latest_offsets(start, None, target)).end) == {"orders": {0: TAIL, 1: TAIL}}
    end = (await planner.latest_offsets(latest.end)).end
    assert positions(end) == {"orders": {0: TAIL + 1, 1: TAIL}}
    assert await planner.plan_stream(end, end) == []


async def test_added_partitions_are_read_from_their_beginning(world: World) -> None:
    planner = world.stream(subscribe="orders")
    start = await planner.initial_offsets()
    await world.node.topics.add_partitions("orders", 3)
    await world.log.append("orders", "x", partition=2)
    end = (await planner.latest_offsets(start)).end
    assert shown(await planner.plan_stream(start, end)) == [("orders", 2, 0, 1)]


async def test_a_topic_that_was_created_again(world: World) -> None:
    planner, careless = world.stream(subscribe="orders"), world.stream(subscribe="orders", failOnDataLoss="false")
    start = await planner.initial_offsets()
    await world.log.delete_topic("orders")
    gone = (await careless.latest_offsets(start)).end
    assert positions(gone) == {}
    with pytest.raises(DataLoss, match="topic orders is gone"):
        await planner.plan_stream(start, gone)
    assert await careless.plan_stream(start, gone) == []
    await world.log.create_topic("orders")
    await world.log.append("orders", "x")
    end = (await careless.latest_offsets(start)).end
    with pytest.raises(DataLoss, match="topic orders was deleted and created again"):
        await planner.plan_stream(start, end)
    assert shown(await careless.plan_stream(start, end)) == [("orders", 0, 0, 1)]
    assert shown(await planner.plan_stream(gone, end)) == [("orders", 0, 0, 1)]
