"""What may go, of a log in several links: whole runs from its start on, by age and by size."""

from __future__ import annotations

from catena.testing.contracts.loglet import make_entry
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.retention import Seen, count, drop, is_limited, is_quiet
from catena.virtual_log.topic_configs import TopicSettings, settings_of
from tests.virtual_log.cluster import Cluster


def keep(ms: int | None = None, size: int | None = None) -> TopicSettings:
    configs = {"retention.ms": "-1" if ms is None else str(ms)}
    return settings_of(configs if size is None else configs | {"retention.bytes": str(size)})


async def due(log: VirtualLog, settings: TopicSettings, now_ms: int) -> int:
    """Where the log would start."""
    seen = Seen(await log.start())
    if settings.retention_bytes is not None:
        await count(log, seen)
    await drop(log, seen, settings, now_ms)
    return seen.start


async def three_links(cluster: Cluster) -> VirtualLog:
    """Records of times 10 to 60, two in each link."""
    (log,) = await cluster.logs(1)
    for number, kind in enumerate(("diskless", "memory", "diskless")):
        if number:
            await log.reconfigure(kind)
        for time in (20 * number + 10, 20 * number + 20):
            await log.append(make_entry("x" * 100, timestamp_ms=time))
    return log


async def test_by_time_across_links(cluster: Cluster) -> None:
    log = await three_links(cluster)
    for now_ms, start in ((110, 0), (111, 1), (131, 3), (151, 5), (161, 6)):
        assert await due(log, keep(ms=100), now_ms) == start


async def test_by_size_across_links(cluster: Cluster) -> None:
    log = await three_links(cluster)
    size = len(make_entry("x" * 100).data)
    for kept, start in ((6, 0), (5, 1), (3, 3), (1, 5), (0, 6)):
        assert await due(log, keep(size=kept * size), 0) == start


async def test_what_is_known_to_stay_costs_no_look(cluster: Cluster) -> None:
    log = await three_links(cluster)
    settings = keep(ms=100)
    seen = Seen(await log.start())
    await drop(log, seen, settings, 50)
    assert await is_quiet(log, seen, settings, 110)
    assert not await is_quiet(log, seen, settings, 111)


def test_what_has_no_limit_is_kept() -> None:
    assert not is_limited(keep())
    assert is_limited(keep(ms=1))
    assert is_limited(keep(size=1))
