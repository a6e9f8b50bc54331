"""Control records that are asked for together are read together, and each is as it is then."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import Corrupt, OutcomeUnknown, StoreUnavailable
from catena.loglets.diskless.controls import MAX_CHECKS, Controls
from catena.loglets.diskless.partition import Partition
from catena.meta import keys
from catena.runtime import Tasks
from catena.testing.contracts.loglet import Links, make_entry
from catena.testing.faults import Fail, Stall
from tests.loglets.stores import DisklessNode, Stores


def some(count: int) -> list[Links]:
    return [Links(number) for number in range(count)]


async def tails(node: DisklessNode, links: list[Links]) -> list[int]:
    return [tail.offset for tail in await asyncio.gather(*(node.open(each.spec()).tail() for each in links))]


async def test_each_is_as_it_is_now_whoever_wrote_it(stores: Stores) -> None:
    node, other = await stores.node(), await stores.node()
    links = some(5)
    await node.open(links[1].spec()).append(make_entry("a"))
    await other.open(links[2].spec()).append(make_entry("a", "b"))
    await node.open(links[3].spec()).append(make_entry("a"))
    await other.open(links[3].spec()).append(make_entry("a"))
    assert await tails(node, links) == await tails(other, links) == [0, 1, 2, 2, 0]
    await other.open(links[1].spec()).append(make_entry("b"))
    assert await tails(node, links) == [0, 2, 2, 2, 0]


async def test_many_are_one_call_where_the_store_can(stores: Stores) -> None:
    node = await stores.node()
    await tails(node, some(20))
    calls = node.faults.taken
    assert (calls["transact"], calls["get control"]) == ((1, 0) if node.diskless.meta.can_transact else (0, 20))


async def test_who_asks_while_a_call_is_under_way_sees_what_came_before_its_own(stores: Stores) -> None:
    node, other = await stores.node(), await stores.node()
    link = Links()
    stall = node.faults.at("get control", Stall(applied=True))
    early = asyncio.ensure_future(node.open(link.spec()).tail())
    await stall.reached.wait()
    await other.open(link.spec()).append(make_entry("a"))
    late = asyncio.ensure_future(node.open(link.spec()).tail())
    assert (await late).offset == 1
    stall.let_go()
    assert (await early).offset == 0


async def test_a_store_that_is_down_fails_all_who_ask_and_nobody_later(stores: Stores) -> None:
    node = await stores.node()
    links = some(3)
    if not node.diskless.meta.can_transact:
        pytest.skip("one call each")
    for error in (StoreUnavailable("down"), OutcomeUnknown("lost")):
        node.faults.at("transact", Fail(error))
        results = await asyncio.gather(*(node.open(each.spec()).tail() for each in links), return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable] * 3
        assert await tails(node, links) == [0, 0, 0]


async def test_one_that_can_not_be_read_harms_no_other(stores: Stores) -> None:
    node = await stores.node()
    links = some(3)
    await node.diskless.meta.put(keys.control(links[1].spec().partition), b"garbage")
    results = await asyncio.gather(*(node.open(each.spec()).tail() for each in links), return_exceptions=True)
    assert isinstance(results[1], Corrupt)
    assert [isinstance(result, BaseException) for result in results] == [False, True, False]


async def test_more_than_fit_into_a_call(stores: Stores) -> None:
    node = await stores.node()
    assert await tails(node, some(MAX_CHECKS + 1)) == [0] * (MAX_CHECKS + 1)


async def test_who_asks_when_the_node_ends_is_told_so(stores: Stores) -> None:
    node = await stores.node()
    if not node.diskless.meta.can_transact:
        pytest.skip("nothing waits there")
    tasks = Tasks("test")
    controls = Controls(node.diskless.meta, tasks)
    links = some(2)
    stall = node.faults.at("transact", Stall())
    asked = [asyncio.ensure_future(controls.read(Partition(each.spec().partition))) for each in links]
    await stall.reached.wait()
    await tasks.close()
    results = await asyncio.gather(*asked, return_exceptions=True)
    assert [type(result) for result in results] == [StoreUnavailable] * 2
