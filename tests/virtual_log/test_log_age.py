"""What this node keeps in memory must not hide for long what others do to the log."""

from __future__ import annotations

import pytest

from catena.errors import OffsetOutOfRange
from catena.testing.contracts.loglet import EVERYTHING, make_entry
from catena.virtual_log.log import MAX_AGE_S, VirtualLog
from tests.virtual_log.cluster import Cluster, read_all


async def append_each(log: VirtualLog, *values: str) -> None:
    for value in values:
        await log.append(make_entry(*value))


class TestAge:
    async def test_what_another_node_has_trimmed_is_soon_not_read_any_more(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await append_each(log, "a", "b", "c", "d")
        assert await read_all(log) == await read_all(other) == ["a", "b", "c", "d"]
        await other.trim(3)
        cluster.stores.quick_clock.leap(MAX_AGE_S + 1)
        for reader in (log, other):
            with pytest.raises(OffsetOutOfRange):
                await reader.read(0, EVERYTHING)
            assert reader.seen_start == 3
            assert await read_all(reader, 3) == ["d"]

    async def test_the_index_is_looked_at_again_sooner(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await append_each(log, "a", "b", "c", "d")
        assert await read_all(other) == ["a", "b", "c", "d"]
        await log.trim(3)
        cluster.stores.quick_clock.leap(1.5)
        with pytest.raises(OffsetOutOfRange):
            await other.read(0, EVERYTHING)

    async def test_a_reader_that_is_far_behind_knows_how_far(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await append_each(log, *"abcdefgh")
        await other.read(0, 1)
        assert other.seen_tail == 8
        await append_each(log, "i")
        cluster.stores.quick_clock.leap(MAX_AGE_S + 1)
        await other.read(0, 1)
        assert other.seen_tail == 9

    async def test_reads_go_on_where_the_last_link_is_elsewhere(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await append_each(log, "a")
        await log.reconfigure("memory", {"medium": "of another process"})
        assert [batch.offset for batch in await other.read(0, EVERYTHING)] == [0]
