"""A node is listed while it lives, under an id that nobody else has, and sees the others."""

from __future__ import annotations

import asyncio
import logging

import msgspec
import pytest

from catena.cluster.membership import MAX_NODE_ID, Membership, MembershipSettings
from catena.cluster.placement import NO_NODE
from catena.cluster.view import Address, NodeRecord, encode_node
from catena.errors import ConfigError, Corrupt, OutcomeUnknown, SessionExpired, StoreUnavailable
from catena.meta import keys
from catena.runtime.refresher import USED_S
from catena.testing.faults import Fail, Late, Stall, kind_of
from tests.cluster.world import REFRESH_S, STEP_S, TTL_S, World

PUT_0 = f"put {kind_of(keys.node(0))}"
SCAN = f"scan {kind_of(keys.NODES)}"
ACKS_MAY_PAUSE_S = TTL_S + 2.0
"""What a client may notice at the most of a node's death."""


def ids(membership: Membership) -> list[int]:
    return [node.node_id for node in membership.view.nodes]


def sees(membership: Membership, *expected: int) -> bool:
    return ids(membership) == list(expected)


class TestJoin:
    async def test_what_is_stored(self, world: World) -> None:
        meta = world.open()
        member = await world.join(7, meta, http=Address("h", 80), rack="a", roles=("write", "x"), version="1.2")
        record = await meta.get(keys.node(7))
        assert record is not None
        assert msgspec.json.decode(record.value) == {
            "listeners": {"main": {"host": "host", "port": 9092}},
            "http": {"host": "h", "port": 80},
            "rack": "a",
            "roles": ["write", "x"],
            "version": "1.2",
            "node_id": 7,
            "incarnation": member.record.incarnation,
            "started_at_ms": world.clock.now_ms(),
        }
        assert (member.node_id, member.alive, member.view.nodes) == (7, True, (member.record,))

    async def test_without_an_id_it_is_the_lowest_free_one(self, world: World) -> None:
        await world.join(1)
        members = [await world.join() for _ in range(3)]
        assert [member.node_id for member in members] == [0, 2, 3]
        for member in members:
            await world.until(lambda member=member: sees(member, 0, 1, 2, 3), TTL_S)  # type: ignore[misc]

    async def test_the_id_of_a_node_that_left_is_free(self, world: World) -> None:
        first, _ = await world.join(), await world.join()
        await first.close()
        assert (await world.join()).node_id == 0

    async def test_many_at_once_get_an_id_each(self, world: World) -> None:
        members = await asyncio.gather(*(world.join() for _ in range(8)))
        assert sorted(member.node_id for member in members) == list(range(8))
        assert all(member.alive for member in members)

    async def test_an_id_that_a_live_node_holds_is_refused(self, world: World) -> None:
        holder = await world.join(5)
        meta = world.open()
        joining = asyncio.ensure_future(world.join(5, meta))
        took = await world.until(joining.done)
        assert TTL_S <= took <= 2 * TTL_S
        with pytest.raises(ConfigError, match=r"node id: 5 is held by a node that lives \(main host:9092\)"):
            await joining
        assert holder.alive
        assert [session.alive for session in meta.sessions] == [False], "what it had is given back"
        record = await meta.get(keys.node(5))
        assert record is not None
        assert record.value == encode_node(holder.record)

    async def test_a_node_that_was_killed_comes_back_under_its_id(self, sqlite_world: World) -> None:
        world, meta = sqlite_world, sqlite_world.open()
        dead = await world.join(5, meta)
        await world.kill(meta)
        joining = asyncio.ensure_future(world.join(5))
        assert await world.until(joining.done) <= TTL_S + STEP_S
        member = await joining
        assert (member.node_id, ids(member)) == (5, [5])
        assert member.record.incarnation != dead.record.incarnation

    @pytest.mark.parametrize("node_id", [-1, MAX_NODE_ID + 1])
    async def test_not_every_number_is_an_id(self, world: World, node_id: int) -> None:
        with pytest.raises(ConfigError, match=str(node_id)):
            await world.join(node_id)

    @pytest.mark.parametrize("applied", [True, False])
    @pytest.mark.parametrize("given", [0, None])
    async def test_a_registration_without_an_answer_is_settled(
        self, world: World, given: int | None, applied: bool
    ) -> None:
        meta = world.open()
        meta.faults.at(PUT_0, Fail(OutcomeUnknown("no answer"), applied))
        member = await world.join(given, meta)
        assert (member.node_id, ids(member), member.alive) == (0, [0], True)

    async def test_a_store_that_is_away_is_said(self, world: World) -> None:
        meta = world.open()
        meta.is_down = True
        with pytest.raises(StoreUnavailable):
            await world.join(0, meta)

    async def test_a_record_that_cannot_be_read_is_named(self, world: World) -> None:
        meta = world.open()
        await meta.put(keys.node(3), b"{")
        with pytest.raises(Corrupt, match=keys.node(3)):
            await world.join(0, meta)


class TestView:
    async def test_a_node_that_was_killed_is_gone_in_time(self, sqlite_world: World) -> None:
        world, meta = sqlite_world, sqlite_world.open()
        member, _ = await world.join(), await world.join(meta=meta)
        await world.until(lambda: sees(member, 0, 1))
        await world.kill(meta)
        assert await world.until(lambda: sees(member, 0)) <= ACKS_MAY_PAUSE_S

    async def test_a_node_that_leaves_is_gone_at_once(self, world: World) -> None:
        member, other = await world.join(), await world.join()
        await world.until(lambda: sees(member, 0, 1))
        await other.close()
        assert await world.until(lambda: sees(member, 0)) <= REFRESH_S
        assert sees(other, 0), "a node that has left sends nobody to itself"
        assert not other.alive
        await other.close()

    async def test_it_waits_for_changes(self, world: World) -> None:
        member = await world.join()
        first = member.view
        assert await member.changed(first.revision - 1) is first
        waiting = asyncio.ensure_future(member.changed(first.revision))
        await world.clock.advance(0)
        assert not waiting.done()
        await world.join()
        await world.until(waiting.done)
        second = await waiting
        assert second.revision == first.revision + 1
        assert ([node.node_id for node in first.nodes], [node.node_id for node in second.nodes]) == ([0], [0, 1])

    async def test_nothing_new_is_no_new_view(self, world: World) -> None:
        meta = world.open()
        member = await world.join(meta=meta)
        view = member.view
        await world.until(lambda: member.view is not view or meta.faults.taken[SCAN] > 10)
        assert member.view is view

    async def test_a_view_that_nobody_looks_at_is_read_more_seldom(self, world: World) -> None:
        meta = world.open()
        await world.join(meta=meta)
        began = world.clock.monotonic()
        await world.until(lambda: world.clock.monotonic() - began > USED_S + REFRESH_S, 2 * USED_S)
        scans = meta.faults.taken[SCAN]
        await world.until(lambda: world.clock.monotonic() - began > USED_S + 21 * REFRESH_S, 2 * USED_S)
        assert meta.faults.taken[SCAN] - scans <= 2

    async def test_a_node_that_nobody_asks_registers_again_at_once(self, world: World) -> None:
        meta = world.open()
        await world.join(meta=meta)
        await meta.lose_session()
        assert await world.until(lambda: len(meta.sessions) == 2) <= 2 * REFRESH_S

    async def test_it_outlives_a_store_that_is_away(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        meta = world.open()
        member, other = await world.join(meta=meta), await world.join()
        await world.until(lambda: sees(member, 0, 1))
        meta.is_down = True
        await other.close()
        began = world.clock.monotonic()
        await world.until(lambda: world.clock.monotonic() - began > 10 * REFRESH_S)
        assert sees(member, 0, 1)
        meta.is_down = False
        await world.until(lambda: sees(member, 0), TTL_S)
        assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2, "once down, once up"

    async def test_a_record_that_cannot_be_read_leaves_it_as_it_is(self, world: World) -> None:
        meta = world.open()
        member = await world.join(meta=meta)
        await meta.put(keys.node(3), b"{")
        scans = meta.faults.taken[SCAN]
        await world.until(lambda: meta.faults.taken[SCAN] > scans + 2)
        assert sees(member, 0)
        await meta.delete(keys.node(3))
        await world.join()
        await world.until(lambda: sees(member, 0, 1), TTL_S)

    async def test_only_brokers_are_given_work(self, world: World) -> None:
        member = await world.join(roles=("transformer",))
        assert member.view.placement.coordinator("group") == NO_NODE
        await world.join()
        await world.until(lambda: sees(member, 0, 1))
        assert member.view.placement.coordinator("group") == 1


class TestLostSession:
    async def test_it_registers_again(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        meta = world.open()
        member, other = await world.join(3, meta), await world.join(4)
        await world.until(lambda: sees(other, 3, 4) and sees(member, 3, 4))
        await meta.lose_session()
        assert not member.alive
        await world.until(lambda: member.alive, TTL_S)
        await world.until(lambda: sees(other, 3, 4) and sees(member, 3, 4), TTL_S)
        assert len(meta.sessions) == 2
        assert "node 3 is not registered any more: its session was lost" in caplog.text
        assert "node 3 is registered again, as node 3" in caplog.text

    async def test_a_node_that_was_paused_for_too_long_knows_it_at_once(self, world: World) -> None:
        member, other = await world.join(), await world.join()
        world.clock.pause(TTL_S)
        assert not member.alive
        assert not other.alive
        await world.until(lambda: member.alive and other.alive, TTL_S)
        await world.until(lambda: sees(member, 0, 1) and sees(other, 0, 1), TTL_S)

    async def test_a_node_that_cannot_register_sees_itself_and_the_others(self, world: World) -> None:
        """Whoever asks it has reached it."""
        meta = world.open()
        member, other = await world.join(3, meta), await world.join(4)
        await world.until(lambda: sees(member, 3, 4), TTL_S)
        meta.is_read_only = True
        await meta.lose_session()
        await world.until(lambda: sees(other, 4), TTL_S)
        await other.close()
        await world.until(lambda: sees(member, 3), TTL_S)
        assert not member.alive

    async def test_as_soon_as_the_store_is_back(self, world: World) -> None:
        meta = world.open()
        member = await world.join(meta=meta)
        meta.is_down = True
        await meta.lose_session()
        began = world.clock.monotonic()
        await world.until(lambda: world.clock.monotonic() - began > 3 * TTL_S)
        assert not member.alive
        meta.is_down = False
        assert await world.until(lambda: member.alive) <= REFRESH_S + STEP_S

    @pytest.mark.parametrize("applied", [True, False])
    async def test_without_an_answer_it_is_settled(self, world: World, applied: bool) -> None:
        meta = world.open()
        member = await world.join(meta=meta)
        meta.faults.at(PUT_0, Fail(OutcomeUnknown("no answer"), applied))
        await meta.lose_session()
        await world.until(lambda: member.alive, TTL_S)
        assert sees(await world.join(), 0, 1)

    async def test_a_session_that_ends_while_it_registers_is_replaced(self, world: World) -> None:
        meta = world.open()
        member = await world.join(meta=meta)
        stall = meta.faults.at(PUT_0, Stall())
        await meta.lose_session()
        await world.until(stall.reached.is_set, TTL_S)
        await meta.lose_session()
        stall.let_go()
        await world.until(lambda: member.alive, TTL_S)
        assert len(meta.sessions) == 3

    async def test_a_session_that_the_store_does_not_know_is_replaced(self, world: World) -> None:
        meta = world.open()
        meta.faults.at(PUT_0, Fail(SessionExpired("gone")))
        member = await world.join(meta=meta)
        assert len(meta.sessions) == 2
        assert member.alive

    async def test_it_keeps_its_id_though_a_lower_one_is_free_by_now(self, world: World) -> None:
        meta = world.open()
        first, member = await world.join(), await world.join(meta=meta)
        await first.close()
        await meta.lose_session()
        await world.until(lambda: member.alive, TTL_S)
        assert member.node_id == 1

    async def test_a_record_that_was_removed_is_written_again(self, world: World) -> None:
        meta = world.open()
        member = await world.join(meta=meta)
        await meta.delete(keys.node(0))
        await world.until(lambda: len(meta.sessions) == 1 and meta.faults.taken[PUT_0] == 2, TTL_S)
        assert sees(await world.join(), 0, 1)
        assert member.alive

    async def test_one_without_a_given_id_takes_another_if_its_own_is_taken(self, world: World) -> None:
        meta = world.open()
        member = await world.join(meta=meta)
        meta.is_down = True
        await meta.lose_session()
        rival = await world.join()
        assert rival.node_id == 0
        meta.is_down = False
        await world.until(lambda: member.alive, TTL_S)
        assert member.node_id == 1
        await world.until(lambda: sees(member, 0, 1) and sees(rival, 0, 1), TTL_S)

    async def test_one_with_a_given_id_waits_until_it_is_free(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        meta = world.open()
        member = await world.join(3, meta)
        meta.is_down = True
        await meta.lose_session()
        rival = await world.join(3)
        meta.is_down = False
        await world.until(lambda: member.view.nodes == (rival.record,), TTL_S)
        attempts = meta.faults.taken[f"put {kind_of(keys.node(3))}"]
        await world.until(lambda: meta.faults.taken[f"put {kind_of(keys.node(3))}"] > attempts + 3)
        assert not member.alive
        assert caplog.text.count("node id 3 has been taken by another node") == 1
        await rival.close()
        await world.until(lambda: member.view.nodes == (member.record,), TTL_S)
        assert member.alive


async def test_a_registration_that_lands_late_is_taken_back(world: World) -> None:
    meta, late = world.open(), Late()
    meta.faults.at(PUT_0, late)
    second_try = meta.faults.at(PUT_0, Stall(), nth=2)
    joining = asyncio.ensure_future(world.join(meta=meta))
    await second_try.reached.wait()
    rival = await world.join()
    second_try.let_go()
    member = await joining
    assert (rival.node_id, member.node_id) == (0, 1)
    await rival.close()
    await late.arrive()
    ghost = await meta.get(keys.node(0))
    assert ghost is not None
    assert msgspec.json.decode(ghost.value, type=NodeRecord).incarnation == member.record.incarnation
    scans = meta.faults.taken[SCAN]
    await world.until(lambda: meta.faults.taken[SCAN] > scans + 1)
    assert await meta.get(keys.node(0)) is None
    assert (sees(member, 1), member.alive) == (True, True)


async def test_leaving_while_the_store_is_away_is_possible(world: World, caplog: pytest.LogCaptureFixture) -> None:
    meta = world.open()
    member = await world.join(meta=meta)
    meta.is_down = True
    await member.close()
    assert not member.alive


@pytest.mark.parametrize(("ttl", "refresh"), [(99, 50), (600_001, 50), (6_000, 9), (6_000, 6_001)])
def test_settings_have_bounds(ttl: int, refresh: int) -> None:
    with pytest.raises(ConfigError, match="_ms"):
        MembershipSettings(ttl, refresh)
