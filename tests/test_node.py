"""The node puts the parts together; these tests ask whether they are the right ones."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from catena.errors import (
    CatenaError,
    ConfigError,
    OutOfOrderSequence,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
    UnknownPartition,
    UnknownTopic,
)
from catena.loglets.base import Entry
from catena.meta import keys
from catena.testing.contracts.loglet import EVERYTHING, Stamp, make_entry, values_of
from catena.testing.faults import Fail, Stall
from catena.virtual_log.log import VirtualLog
from tests.loglets.stores import WAYS, Stores
from tests.virtual_log.cluster import TOPIC, Cluster, read_all

PARTITIONS = 100


@pytest.fixture(params=WAYS)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with Stores(request.param, tmp_path, request) as stores:
        yield Cluster(stores)


class TestLogs:
    async def test_a_node_has_one_log_for_each_partition(self, cluster: Cluster) -> None:
        node = await cluster.node()
        assert await node.log(1) is await node.log(1)
        assert await node.log(1) is not await node.log(2)

    async def test_a_topic_that_was_created_again_has_other_logs(self, cluster: Cluster) -> None:
        node, other = await cluster.node(), await cluster.node()
        old = await node.log()
        await old.append(make_entry("old"))
        await other.node.topics.delete(TOPIC)
        await other.node.topics.create(TOPIC)
        new = await node.log()
        assert new is not old
        assert await new.append(make_entry("new")) == 0
        assert values_of(await new.read(0, EVERYTHING)) == ["new"]

    async def test_what_is_not_there_is_said(self, cluster: Cluster) -> None:
        node = await cluster.node()
        with pytest.raises(UnknownTopic, match="'nothing'"):
            await node.log(0, "nothing")
        for partition in (-1, PARTITIONS):
            with pytest.raises(UnknownPartition, match="0 to 99"):
                await node.log(partition)

    async def test_a_topic_may_begin_in_memory(self, cluster: Cluster) -> None:
        node, other = await cluster.node(), await cluster.node()
        await node.node.topics.create("fast", kind="memory")
        assert await (await node.log(0, "fast")).append(make_entry("a")) == 0
        assert await read_all(await other.log(0, "fast")) == ["a"]
        assert not [info async for info in cluster.stores.objects.list(keys.WAL_BLOBS)]

    async def test_a_kind_that_this_node_lacks_is_named(self, cluster: Cluster) -> None:
        node = await cluster.node()
        await node.node.topics.create("odd", kind="tape")
        with pytest.raises(ConfigError, match="'tape'"):
            await (await node.log(0, "odd")).append(make_entry("a"))


class TestAppendShared:
    async def test_many_partitions_share_a_blob_and_have_their_own_results(self, cluster: Cluster) -> None:
        node, other = await cluster.node(), await cluster.node()
        logs = [await node.log(partition) for partition in range(4)]
        await (await other.log(1)).seal()
        await logs[2].append(make_entry("x", stamp=Stamp(7, 0, 0)))
        before = node.faults.taken["blob put"]
        entries = [make_entry("a"), make_entry("a"), make_entry("a", stamp=Stamp(7, 0, 5)), make_entry("a", "b")]
        results = await node.node.append_shared(list(zip(logs, entries, strict=True)))
        assert [result if isinstance(result, int) else type(result).__name__ for result in results] == [
            0,
            "LogSealed",
            "OutOfOrderSequence",
            0,
        ]
        assert isinstance(results[2], OutOfOrderSequence)
        assert node.faults.taken["blob put"] == before + 1

    async def test_a_failed_upload_fails_all_alike(self, cluster: Cluster) -> None:
        node = await cluster.node()
        logs = [await node.log(partition) for partition in range(3)]
        node.faults.at("blob put", Fail(StoreFull("full")))
        results = await node.node.append_shared([(log, make_entry("a")) for log in logs])
        assert [type(result) for result in results] == [StoreFull] * 3

    async def test_nothing_is_fine(self, cluster: Cluster) -> None:
        assert await (await cluster.node()).node.append_shared([]) == []


class TestRoundTrips:
    """What a flush of many partitions asks of the meta store, everything counted."""

    async def flush(self, cluster: Cluster, idempotent: bool) -> dict[str, int]:
        node = await cluster.node()
        logs = [await node.log(partition) for partition in range(PARTITIONS)]
        taken: dict[str, int] = {}
        for sequence in range(3):
            node.faults.taken.clear()
            batches: list[tuple[VirtualLog, Entry]] = [
                (log, make_entry("a", stamp=Stamp(7, 0, sequence) if idempotent else None)) for log in logs
            ]
            assert await node.node.append_shared(batches) == [sequence] * PARTITIONS
            await node.node.drain()
            taken = dict(node.faults.taken)
            assert taken.pop("blob put") == 1
        return taken

    @pytest.mark.parametrize("idempotent", [False, True])
    async def test_of_a_flush(self, cluster: Cluster, idempotent: bool) -> None:
        taken = await self.flush(cluster, idempotent)
        if cluster.stores.can_transact:
            assert taken == {"transact": 1}
        else:
            assert taken.pop("put producer", 0) == (PARTITIONS if idempotent else 0)
            assert taken == {"put control": PARTITIONS, "get chain": PARTITIONS, "put index": PARTITIONS}

    @pytest.mark.parametrize("idempotent", [False, True])
    async def test_of_the_first_flush_of_another_node(self, cluster: Cluster, idempotent: bool) -> None:
        await self.flush(cluster, idempotent)
        node = await cluster.node()
        logs = [await node.log(partition) for partition in range(PARTITIONS)]
        node.faults.taken.clear()
        await node.node.append_shared(
            [(log, make_entry("b", stamp=Stamp(7, 0, 3) if idempotent else None)) for log in logs]
        )
        if cluster.stores.can_transact:
            assert node.faults.taken["transact"] == 2
            assert node.faults.taken["put control"] == 0


class TestClose:
    async def test_what_was_taken_is_answered(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log = await node.log()
        stall = node.faults.at("blob put", Stall())
        append = asyncio.ensure_future(log.append(make_entry("a")))
        await stall.reached.wait()
        closing = asyncio.ensure_future(node.node.close())
        for _ in range(20):
            await asyncio.sleep(0)
        with pytest.raises(StoreUnavailable):
            await log.append(make_entry("late"))
        stall.let_go()
        await closing
        assert await append == 0
        assert await cluster.content() == ["a"]

    async def test_readers_and_who_waits_are_told(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log = await node.log()
        await (await (await cluster.node()).log()).append(make_entry("a"))
        waiting = asyncio.ensure_future(log.wait_for_tail(1, 30))
        for _ in range(20):
            await asyncio.sleep(0)
        await node.node.close()
        with pytest.raises(CatenaError):
            await waiting
        with pytest.raises(StoreUnavailable):
            await log.read(0, EVERYTHING)

    async def test_a_node_is_closed_twice_without_harm(self, cluster: Cluster) -> None:
        node = await cluster.node()
        await node.node.close()
        await node.node.close()


async def test_stores_that_do_not_belong_together_are_refused_at_the_start(cluster: Cluster) -> None:
    await cluster.node()
    await cluster.stores.objects.put(keys.CLUSTER, [b'{"cluster_id": "another", "format": 1, "created_at_ms": 0}'])
    with pytest.raises(StoreRefused, match="another"):
        await cluster.node()
