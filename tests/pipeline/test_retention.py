"""The job trims what may go, once the topic still says so, and tells of what could not be."""

from __future__ import annotations

import msgspec

from catena.errors import StoreUnavailable
from catena.pipeline.retention import Kept, Trimmed, trim_all
from catena.runtime import SystemClock
from catena.testing.contracts.loglet import make_entry
from catena.testing.faults import Fail
from catena.virtual_log.topics import TopicRecord
from tests.pipeline.drivers import SMALL, Driver
from tests.virtual_log.cluster import Cluster, ClusterNode, read_all


async def kept_by(node: ClusterNode, **configs: str) -> list[Kept]:
    topic = await node.node.topics.get("topic")
    names = {name.replace("_", "."): value for name, value in configs.items()}
    topic = await node.node.topics.alter_configs("topic", lambda _: dict(names))
    return [Kept(topic, node.node.open_log(topic, number)) for number in (0, 1)]


async def fill(cluster: Cluster) -> ClusterNode:
    """Three old records and a new one, in partition 0."""
    node = await cluster.node()
    log = await node.log()
    for time in (10, 20, 30, SystemClock().now_ms()):
        await log.append(make_entry("x", timestamp_ms=time))
    return node


async def test_what_is_old_goes_tiered_or_not(cluster: Cluster) -> None:
    node = await fill(cluster)
    await Driver(cluster, settings=msgspec.structs.replace(SMALL, min_age_ms=1_000_000)).tier(force_up_to=2)
    kept = await kept_by(node, retention_ms="60000")
    assert await trim_all(kept, node.node.topics.get, SystemClock(), dry_run=True) == [Trimmed("topic", 0, 0, 3)]
    assert await kept[0].log.start() == 0
    assert await trim_all(kept, node.node.topics.get, SystemClock(), dry_run=False) == [Trimmed("topic", 0, 0, 3)]
    assert await kept[0].log.start() == 3
    assert await trim_all(kept, node.node.topics.get, SystemClock(), dry_run=False) == []
    assert len(await read_all(kept[0].log, 3)) == 1


async def test_without_a_limit_all_stays(cluster: Cluster) -> None:
    node = await fill(cluster)
    kept = await kept_by(node, retention_ms="-1")
    assert await trim_all(kept, node.node.topics.get, SystemClock(), dry_run=False) == []


async def test_a_longer_retention_that_comes_meanwhile_counts(cluster: Cluster) -> None:
    node = await fill(cluster)
    kept = await kept_by(node, retention_ms="60000")

    async def changed(name: str) -> TopicRecord:
        await kept_by(node, retention_ms="-1")
        return await node.node.topics.get(name)

    assert await trim_all(kept, changed, SystemClock(), dry_run=False) == []
    assert await kept[0].log.start() == 0


async def test_what_fails_is_told_and_the_rest_goes_on(cluster: Cluster) -> None:
    node = await fill(cluster)
    kept = await kept_by(node, retention_ms="60000")
    node.faults.at("get chain", Fail(StoreUnavailable("away")))
    told = await trim_all(kept, node.node.topics.get, SystemClock(), dry_run=False)
    assert [each.error for each in told if each.error] == ["StoreUnavailable: away"]
