"""Stores are joined only when they belong together and are in a format that this version knows."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from catena.errors import Corrupt, OutcomeUnknown, StoreRefused
from catena.meta import keys
from catena.meta.memory import MemoryMeta
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemEntropy
from catena.testing.faults import Fail, Faults, FaultyMeta, FaultyObjects
from catena.virtual_log.cluster import FORMAT, ClusterRecord, join_cluster
from tests.loglets.stores import QuickClock


class Stores:
    def __init__(self) -> None:
        self.clock = QuickClock()
        self.meta = MemoryMeta(self.clock)
        self.objects = MemoryObjects(self.clock)
        self.faults = Faults()

    async def join(self) -> ClusterRecord:
        meta, objects = FaultyMeta(self.meta, self.faults), FaultyObjects(self.objects, self.faults)
        return await join_cluster(meta, objects, self.clock, SystemEntropy())


@pytest.fixture
def stores() -> Stores:
    return Stores()


async def test_empty_stores_become_a_cluster_which_is_found_again(stores: Stores) -> None:
    cluster = await stores.join()
    assert cluster.format == FORMAT
    assert await stores.join() == cluster


async def test_of_nodes_that_start_at_once_all_join_the_same(stores: Stores) -> None:
    assert len(set(await asyncio.gather(*(stores.join() for _ in range(10))))) == 1


@pytest.mark.parametrize("step", ["put cluster", "cluster put"])
@pytest.mark.parametrize("applied", [True, False])
async def test_an_answer_that_did_not_come_is_no_trouble(stores: Stores, step: str, applied: bool) -> None:
    stores.faults.at(step, Fail(OutcomeUnknown("no answer"), applied))
    cluster = await stores.join()
    assert stores.faults.armed == []
    assert await stores.join() == cluster


async def test_a_start_that_was_interrupted_is_finished_by_the_next(stores: Stores) -> None:
    cluster = await stores.join()
    await stores.objects.delete([keys.CLUSTER])
    assert await stores.join() == cluster
    assert msgspec.json.decode((await stores.objects.get(keys.CLUSTER)).data, type=ClusterRecord) == cluster


async def test_a_bucket_without_its_meta_store_is_refused(stores: Stores) -> None:
    cluster = await stores.join()
    stores.meta = MemoryMeta(stores.clock)
    with pytest.raises(StoreRefused, match=f"{cluster.cluster_id}.*meta store is empty"):
        await stores.join()
    assert await stores.meta.get(keys.CLUSTER) is None


async def test_stores_of_two_clusters_are_refused(stores: Stores) -> None:
    ours = await stores.join()
    others = Stores()
    theirs = await others.join()
    stores.objects = others.objects
    with pytest.raises(StoreRefused, match=f"{theirs.cluster_id}.*{ours.cluster_id}"):
        await stores.join()


@pytest.mark.parametrize("where", ["meta", "bucket"])
@pytest.mark.parametrize(
    ("value", "error"), [(msgspec.json.encode(ClusterRecord("x", FORMAT + 1, 0)), StoreRefused), (b"{}", Corrupt)]
)
async def test_a_record_that_is_newer_or_broken_is_refused(
    stores: Stores, where: str, value: bytes, error: type[Exception]
) -> None:
    await stores.join()
    if where == "meta":
        await stores.meta.put(keys.CLUSTER, value)
    else:
        await stores.objects.put(keys.CLUSTER, [value])
    with pytest.raises(error, match=keys.CLUSTER):
        await stores.join()
