"""Logs lose what they need not keep: by time, by size, on the node that leads them, and at little cost."""

from __future__ import annotations

import asyncio
import logging

import pytest

from catena.broker.retention import SLICE, Retention, RetentionSettings
from catena.cluster.placement import PartitionOf
from catena.errors import StoreUnavailable
from catena.meta import keys
from catena.runtime import SystemEntropy
from catena.testing.contracts.loglet import make_entry, soon
from catena.testing.faults import Fail, Stall
from catena.virtual_log import retention as module
from catena.virtual_log.log import VirtualLog
from tests.broker.world import BrokerNode, LeapingClock, World

HOUR_MS = 3600 * 1000
OF_THE_LOG = ("get chain", "get control", "scan index", "put chain")


class PatientClock(LeapingClock):
    """Its time passes by sleeping, at once."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await super().sleep(0)


class Site:
    """A node with a topic of these configs, and what it does to obey them."""

    def __init__(self, node: BrokerNode, clock: LeapingClock) -> None:
        self.node, self.clock = node, clock
        self.retention = Retention(
            node.membership, node.view, node.node.open_log, clock, SystemEntropy(), RetentionSettings()
        )

    @classmethod
    async def make(cls, world: World, partitions: int = 1, **configs: object) -> Site:
        node = await world.node()
        named = {name.replace("_", "."): str(value) for name, value in configs.items()}
        await node.node.topics.create("t", partitions, configs=named)
        await node.view.refresh()
        return cls(node, world.clock)

    async def log(self, number: int = 0) -> VirtualLog:
        return await self.node.node.log("t", number)

    async def append(self, *ages_h: float, number: int = 0, size: int = 10) -> int:
        """One record, in a run of its own, for each age; negative: of the future. Returns the size of one."""
        log, now_ms = await self.log(number), self.clock.now_ms()
        for age_h in ages_h:
            await log.append(make_entry("x" * size, timestamp_ms=now_ms - int(age_h * HOUR_MS)))
        await self.node.node.drain()
        return len(make_entry("x" * size).data)

    async def round(self) -> int:
        """Returns where the log starts afterwards."""
        await self.retention.round(0)
        return await (await self.log()).start()

    async def alter(self, name: str, value: str) -> None:
        await self.node.node.topics.alter_configs("t", {name: value})
        await self.node.view.read("t")

    def asked(self) -> int:
        """How often the meta store was asked for a log since the last time."""
        count = sum(self.node.faults.taken[step] for step in OF_THE_LOG)
        self.node.faults.taken.clear()
        return count


class TestTime:
    async def test_what_is_too_old_goes_up_to_the_first_that_is_not(self, world: World) -> None:
        site = await Site.make(world, retention_ms=2 * HOUR_MS)
        await site.append(5, 4, 3, 1, 3, 0)
        assert await site.round() == 3
        assert [batch.offset for batch in await (await site.log()).read(3, 1000)] == [3, 4, 5]
        site.clock.leap(1.1 * 3600)
        assert await site.round() == 5
        site.clock.leap(3600)
        assert await site.round() == 6

    async def test_a_log_that_lost_everything_goes_on(self, world: World) -> None:
        site = await Site.make(world, retention_ms=HOUR_MS)
        await site.append(3, 2)
        assert await site.round() == 2
        log = await site.log()
        assert await log.tail() == 2
        assert await site.round() == 2
        await site.append(0)
        assert await site.round() == 2
        assert [batch.offset for batch in await log.read(2, 1000)] == [2]
        await site.append(5)
        site.clock.leap(2 * 3600)
        assert await site.round() == 4

    async def test_the_default_is_seven_days(self, world: World) -> None:
        site = await Site.make(world)
        await site.append(24 * 8, 24 * 6)
        assert await site.round() == 1

    async def test_a_record_of_the_future_keeps_all_behind_it(self, world: World) -> None:
        site = await Site.make(world, retention_ms=HOUR_MS)
        await site.append(2, -1000, 2)
        assert await site.round() == 1
        site.clock.leap(900 * 3600)
        assert await site.round() == 1

    async def test_records_without_a_time_count_from_when_they_were_appended(self, world: World) -> None:
        site = await Site.make(world, retention_ms=HOUR_MS)
        await (await site.log()).append(make_entry("x", timestamp_ms=-1))
        assert await site.round() == 0
        site.clock.leap(2 * 3600)
        assert await site.round() == 1

    async def test_those_of_which_nothing_is_known_stay(self, world: World) -> None:
        site = await Site.make(world, retention_ms=HOUR_MS)
        await (await site.log()).reconfigure("memory")
        await (await site.log()).append(make_entry("x", timestamp_ms=-1))
        for _ in range(3):
            site.clock.leap(2 * 3600)
            assert await site.round() == 0

    async def test_it_goes_from_link_to_link(self, world: World) -> None:
        site = await Site.make(world, retention_ms=2 * HOUR_MS)
        log = await site.log()
        await site.append(7, 6)
        await log.reconfigure("memory")
        await site.append(5, 4)
        await log.reconfigure("diskless")
        await site.append(3, 1, 0)
        assert await site.round() == 5
        assert len((await log.refresh()).links) == 1


class TestSize:
    async def test_at_least_so_many_bytes_stay(self, world: World) -> None:
        site = await Site.make(world, retention_bytes=1000, retention_ms=-1)
        size = await site.append(0, 0, 0, size=400)
        assert 2 * size < 1000 < 3 * size
        assert await site.round() == 0
        await site.append(0, size=400)
        assert await site.round() == 1
        await site.append(*[0] * 10, size=400)
        assert await site.round() == 11
        # What is counted is what there is, also after a trim by hand.
        await (await site.log()).trim(13)
        await site.append(0, 0, size=400)
        assert await site.round() == 13
        await site.alter("retention.bytes", str(2 * size))
        assert await site.round() == 14
        await site.alter("retention.bytes", "0")
        assert await site.round() == 16
        assert await (await site.log()).tail() == 16

    async def test_both_limits_hold(self, world: World) -> None:
        site = await Site.make(world, retention_bytes=1000, retention_ms=2 * HOUR_MS)
        await site.append(0, 0, 0, 0, 3, 3, 0, 0, 0, size=400)
        # Six must go for their size, and then the first is not too old.
        assert await site.round() == 6
        site.clock.leap(3 * 3600)
        await site.append(0, size=400)
        assert await site.round() == 9
        await site.append(*[0] * 4, size=400)
        assert await site.round() == 11


class TestWhichLogs:
    @pytest.mark.parametrize(
        ("policy", "limit_bytes", "limit_ms"), [("compact", 0, 0), ("delete", -1, -1)], ids=["compacted", "for ever"]
    )
    async def test_topics_that_keep_all_are_left_alone(
        self, world: World, policy: str, limit_bytes: int, limit_ms: int
    ) -> None:
        site = await Site.make(world, cleanup_policy=policy, retention_bytes=limit_bytes, retention_ms=limit_ms)
        await site.append(1000 * 24)
        site.asked()
        await site.retention.round(0)
        assert site.asked() == 0
        assert await (await site.log()).start() == 0

    async def test_those_that_are_compacted_and_deleted_are_not(self, world: World) -> None:
        site = await Site.make(world, cleanup_policy="compact,delete")
        await site.append(1000 * 24)
        assert await site.round() == 1

    async def test_each_node_looks_after_those_that_it_leads(self, world: World) -> None:
        site = await Site.make(world, partitions=20, retention_ms=HOUR_MS)
        node = await world.node()
        await world.together(site.node, node)
        other = Site(node, world.clock)
        await node.view.refresh()
        for number in range(20):
            await site.append(2, number=number)
        leader, topic = node.membership.view.placement.leader, await node.view.get("t")
        places = [PartitionOf(topic.topic_id, number, 20) for number in range(20)]
        own = [each.partition for each in places if leader(each) == node.membership.node_id]
        assert len(own) == 10
        await other.retention.round(0)
        starts = [await (await site.log(number)).start() for number in range(20)]
        assert starts == [int(number in own) for number in range(20)]
        await site.retention.round(0)
        assert [await (await site.log(number)).start() for number in range(20)] == [1] * 20

    async def test_a_topic_that_is_deleted_meanwhile_is_no_trouble(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        site = await Site.make(world, retention_ms=HOUR_MS)
        await site.append(2)
        stall = site.node.faults.at("scan index", Stall())
        going = asyncio.ensure_future(site.retention.round(0))
        await stall.reached.wait()
        await site.node.node.topics.delete("t")
        stall.let_go()
        await going
        assert not caplog.records

    async def test_who_gives_a_topic_more_time_loses_nothing(self, world: World) -> None:
        site = await Site.make(world, retention_ms=HOUR_MS)
        await site.append(3, 2)
        stall = site.node.faults.at("scan index", Stall())
        going = asyncio.ensure_future(site.retention.round(0))
        await stall.reached.wait()
        await site.node.node.topics.alter_configs("t", {"retention.ms": str(5 * HOUR_MS // 2)})
        stall.let_go()
        await going
        assert await (await site.log()).start() == 0
        assert await site.round() == 1


class TestCost:
    async def test_nothing_is_asked_until_the_oldest_is_due(self, world: World) -> None:
        site = await Site.make(world, partitions=3, retention_ms=2 * HOUR_MS)
        for number in range(3):
            await site.append(*[1] * 20, number=number)
        await site.retention.round(0)
        assert 0 < site.asked() <= 3 * 3
        for _ in range(3):
            await site.append(0)
            site.asked()
            await site.retention.round(0)
            assert site.asked() == 0
        site.clock.leap(1.5 * 3600)
        assert await site.round() == 20

    async def test_an_empty_log_costs_one_look(self, world: World) -> None:
        site = await Site.make(world)
        await site.retention.round(0)
        site.asked()
        await site.retention.round(0)
        assert site.asked() == 1

    async def test_only_new_runs_are_counted(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "SCAN_LIMIT", 10)
        site = await Site.make(world, retention_bytes=1_000_000)
        await site.append(*[0] * 55)
        await site.retention.round(0)
        assert site.node.faults.taken["scan index"] == 7
        site.asked()
        await site.retention.round(0)
        assert site.asked() == 1
        await site.append(*[0] * 5)
        site.asked()
        await site.retention.round(0)
        assert site.node.faults.taken["scan index"] == 2

    @pytest.mark.parametrize(("limit_ms", "limit_bytes"), [(0, -1), (-1, 0)], ids=["by time", "by size"])
    async def test_one_round_takes_so_many_runs_at_most(
        self, world: World, monkeypatch: pytest.MonkeyPatch, limit_ms: int, limit_bytes: int
    ) -> None:
        monkeypatch.setattr(module, "MAX_RUNS", 20)
        monkeypatch.setattr(module, "SCAN_LIMIT", 10)
        site = await Site.make(world, retention_ms=limit_ms, retention_bytes=limit_bytes)
        await site.append(*[1] * 45)
        assert [await site.round() for _ in range(4)] == [20, 40, 45, 45]

    async def test_the_rest_goes_also_if_nothing_comes(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_RUNS", 20)
        monkeypatch.setattr(module, "SCAN_LIMIT", 10)
        site = await Site.make(world, retention_ms=HOUR_MS, retention_bytes=1_000_000)
        await site.append(*[0] * 45)
        assert [await site.round() for _ in range(3)] == [0, 0, 0]
        site.clock.leap(2 * 3600)
        assert [await site.round() for _ in range(3)] == [20, 40, 45]

    async def test_a_round_is_spread_over_its_time(self, world: World) -> None:
        site = await Site.make(world, partitions=3 * SLICE + 1)
        clock = PatientClock()
        site.retention._clock = clock
        await site.retention.round(300)
        assert clock.slept == [300 / 4] * 4
        await site.alter("retention.ms", "-1")
        clock.slept.clear()
        await site.retention.round(300)
        assert clock.slept == [300]


class TestLife:
    async def test_rounds_follow_each_other_until_it_is_closed(self, world: World) -> None:
        site = await Site.make(world, retention_ms=HOUR_MS)
        await site.append(2)
        site.retention._clock = clock = PatientClock()
        await site.retention.start()
        log = await site.log()

        watch = site.node.node.meta.watch(keys.chain(log.tp))

        async def trimmed(start: int) -> None:
            while await log.start() < start:
                await watch.changed()

        await soon(trimmed(1))
        await site.append(3)
        await soon(trimmed(2))
        watch.close()
        await site.retention.close()
        first, *others = clock.slept
        assert 150 <= first < 300
        assert set(others) == {300}

    async def test_a_store_that_is_away_is_asked_again_in_the_next_round(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        site = await Site.make(world, partitions=2, retention_ms=HOUR_MS, retention_bytes=0)
        await site.append(2)
        for nth, step in ((1, "get chain"), (2, "get chain")):
            site.node.faults.at(step, Fail(StoreUnavailable("away")), nth=nth)
        assert await site.round() == 0
        (line,) = [record for record in caplog.records if record.name == "catena.broker.retention"]
        assert (line.levelno, "away" in line.getMessage()) == (logging.WARNING, True)
        site.node.faults.at("put chain", Fail(StoreUnavailable("away")))
        assert await site.round() == 0
        assert await site.round() == 1

    async def test_it_says_when_all_was_last_looked_at(self, world: World) -> None:
        site = await Site.make(world, partitions=2, retention_ms=HOUR_MS)
        await site.append(2)
        site.node.faults.at("get chain", Fail(StoreUnavailable("away")))
        await site.round()
        assert (site.retention.last_round_at_ms, site.retention.trimmed) == (None, 0)
        site.clock.leap(60)
        await site.round()
        assert site.retention.last_round_at_ms is not None
        assert site.clock.now_ms() - site.retention.last_round_at_ms < 60_000
        assert site.retention.trimmed == 1
