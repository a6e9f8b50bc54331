"""The index, page after page."""

from __future__ import annotations

from catena.loglets.diskless.records import IndexEntry, encode
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT
from tests.pipeline.drivers import Driver
from tests.virtual_log.cluster import Cluster


async def test_entries_come_in_order_from_where_they_are_asked_for(cluster: Cluster) -> None:
    driver = Driver(cluster)
    (place,) = await driver.places(0)
    count = 2 * SCAN_LIMIT
    for number in range(count):
        await cluster.stores.meta.put(keys.index(place.tp, 2 * number + 1), encode(IndexEntry(2 * number + 1, 2, "b")))
    found = [entry.end_offset async for entry in driver.site.index_entries(place.tp, 100)]
    assert found == list(range(101, 2 * count, 2))
    assert [entry async for entry in driver.site.index_entries(place.tp, 2 * count)] == []
