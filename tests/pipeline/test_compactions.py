"""What a job leaves behind in each state is finished or abandoned by anyone, and an abandoned job never finishes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
import pytest

from catena.errors import StaleView, StoreUnavailable
from catena.meta import keys
from catena.pipeline import compactions
from catena.pipeline.records import DELETING, UPDATING, WRITING, State
from catena.testing.contracts.loglet import soon
from catena.testing.faults import Stall
from catena.types import ABSENT
from tests.pipeline.drivers import Driver, Steps, append_numbers, is_clean, shape
from tests.virtual_log.cluster import Cluster

T = TypeVar("T")


class DiesAt(Steps):
    """The driver dies when it takes this step for the nth time."""

    def __init__(self, step: str, nth: int) -> None:
        super().__init__()
        self._dies_at = (step, nth)
        self._is_dead = False

    async def take(self, step: str, apply: Callable[[], Awaitable[T]]) -> T:
        if (step, self.taken[step] + 1) == self._dies_at:
            self._is_dead = True
        if self._is_dead:
            raise StoreUnavailable("this driver has died")
        return await super().take(step, apply)


class TestAbandoning:
    async def test_an_abandoned_job_cannot_finish(self, cluster: Cluster) -> None:
        """Were it to, the chain would name objects that vacuum may have collected."""
        values = await append_numbers(cluster, 10)
        driver = Driver(cluster)
        stall = driver.steps.at("segment put", Stall())
        tiering = asyncio.ensure_future(driver.tier())
        await soon(stall.reached.wait())
        (place,) = await driver.places(0)
        await cluster.stores.meta.delete(keys.compactor_claim(place.tp))
        assert await compactions.recover(Driver(cluster).site, place) == "abandoned"
        stall.let_go()
        (report,) = await tiering
        assert report.outcome == "stale"
        log = await (await cluster.node()).log()
        assert shape(await log.refresh()) == [("diskless", 0, None)]
        assert await cluster.content() == values

    async def test_another_job_can_begin(self, cluster: Cluster) -> None:
        values = await append_numbers(cluster, 10)
        await left_in(cluster, WRITING)
        (report,) = await Driver(cluster).tier()
        assert (report.outcome, report.recovered, report.boundary) == ("tiered", "abandoned", 10)
        assert await cluster.content() == values


async def left_in(cluster: Cluster, state: State) -> None:
    """A driver dies when its record is in this state."""
    step, nth = {WRITING: ("segment put", 1), UPDATING: ("put chain", 2), DELETING: ("delete_range index", 1)}[state]
    trial = Driver(cluster)
    (place,) = await trial.places(0)
    driver = Driver(cluster, DiesAt(step, nth))
    await driver.tier()
    found = await compactions.load(trial.site, place.tp)
    assert found is not None
    assert found.record.state == state


@pytest.mark.parametrize(
    ("state", "recovery"), [(WRITING, "abandoned"), (UPDATING, "finished"), (DELETING, "finished")]
)
async def test_what_was_left_is_dealt_with(cluster: Cluster, state: State, recovery: str) -> None:
    values = await append_numbers(cluster, 10)
    await left_in(cluster, state)
    driver = Driver(cluster)
    (place,) = await driver.places(0)
    assert await compactions.recover(driver.site, place) == recovery
    assert await compactions.recover(driver.site, place) == "nothing"
    chain = (await driver.site.chains.load(*place)).chain
    assert chain.tiering is None
    assert chain.boundary == (0 if recovery == "abandoned" else 10)
    await is_clean(cluster, place.tp, chain.boundary)
    assert await cluster.content() == values


async def test_a_manifest_that_is_gone_is_not_put_into_the_chain(cluster: Cluster) -> None:
    values = await append_numbers(cluster, 10)
    await left_in(cluster, UPDATING)
    driver = Driver(cluster)
    (place,) = await driver.places(0)
    left = await compactions.load(driver.site, place.tp)
    assert left is not None
    await cluster.stores.objects.delete([left.record.data_key])
    assert await compactions.recover(driver.site, place) == "abandoned"
    assert await cluster.content() == values


async def test_a_record_is_changed_under_its_version_only(cluster: Cluster) -> None:
    await append_numbers(cluster, 3)
    await left_in(cluster, WRITING)
    driver = Driver(cluster)
    (place,) = await driver.places(0)
    left = await compactions.load(driver.site, place.tp)
    assert left is not None
    moved = await compactions.move(driver.site, place.tp, left, UPDATING)
    with pytest.raises(StaleView):
        await compactions.move(driver.site, place.tp, left, DELETING)
    other = msgspec.structs.replace(left.record, compaction_id="another")
    with pytest.raises(StaleView):
        await compactions.write(driver.site, place.tp, other, ABSENT)
    await compactions.remove(driver.site, place.tp, left)
    assert await compactions.load(driver.site, place.tp) == moved


async def test_a_claim_is_one_at_a_time_and_ends_with_its_session(cluster: Cluster) -> None:
    driver = Driver(cluster)
    (place,) = await driver.places(0)
    first, second = await driver.site.meta.session(10_000), await driver.site.meta.session(10_000)
    claimed = await compactions.claim(driver.site, place.tp, first)
    assert claimed is not None
    assert await compactions.claim(driver.site, place.tp, second) is None
    await first.close()
    again = await compactions.claim(driver.site, place.tp, second)
    assert again is not None
    await compactions.unclaim(driver.site, place.tp, claimed)
    assert await cluster.stores.meta.get(keys.compactor_claim(place.tp)) is not None
    await compactions.unclaim(driver.site, place.tp, again)
    assert await cluster.stores.meta.get(keys.compactor_claim(place.tp)) is None
    await second.close()
