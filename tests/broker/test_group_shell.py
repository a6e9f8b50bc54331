"""A group's machine, its queue and its one writer: what waits for what, and who is told when it ends."""

from __future__ import annotations

import asyncio

import pytest

from catena.broker.group_shell import GroupShell
from catena.broker.group_store import CommittedOffset, GroupStore, decode_state
from catena.errors import CatenaError, OutcomeUnknown, StaleView, StoreUnavailable
from catena.groups.base import GroupError, GroupSettings, Response
from catena.groups.classic import ClassicGroup
from catena.groups.classic_values import HeartbeatRequest, JoinRequest, JoinResponse, Protocol, SyncRequest
from catena.meta import keys
from catena.meta.memory import MemoryMeta
from catena.runtime import SystemEntropy, Tasks
from catena.testing.faults import Fail, Faults, FaultyMeta, Stall
from catena.types import TopicId
from tests.broker.group_world import FastClock, settle

T = TopicId("0" * 32)
SETTINGS = GroupSettings(initial_rebalance_delay_s=0.0)


class Held:
    """A shell on a store of its own."""

    def __init__(self) -> None:
        self.clock = FastClock()
        self.meta = MemoryMeta(self.clock)
        self.faults = Faults()
        self.tasks = Tasks("test")
        self.machine = ClassicGroup("g", SETTINGS)
        self.dropped: list[CatenaError] = []

    async def open(self) -> GroupShell:
        store = GroupStore(FaultyMeta(self.meta, self.faults), self.clock, SystemEntropy())
        held, _ = await store.take_over("g", 1)
        return GroupShell(
            store, held, self.machine, self.tasks, lambda _: None, lambda _, error: self.dropped.append(error)
        )

    async def generation(self) -> bytes | None:
        record = await self.meta.get(keys.group_state("g"))
        return None if record is None else decode_state(record)[1]

    def join(self, shell: GroupShell, name: str, member_id: str = "") -> asyncio.Future[Response]:
        request = JoinRequest(
            member_id=member_id,
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(Protocol("range", b""),),
            fresh_hex=name,
        )
        return asyncio.ensure_future(
            shell.ask(lambda ticket: self.machine.join(self.clock.monotonic(), ticket, request))
        )

    def heartbeat(self, shell: GroupShell, member_id: str, generation: int) -> asyncio.Future[Response]:
        request = HeartbeatRequest(member_id=member_id, generation=generation)
        return asyncio.ensure_future(
            shell.ask(lambda ticket: self.machine.heartbeat(self.clock.monotonic(), ticket, request))
        )

    def sync(self, shell: GroupShell, member_id: str, generation: int) -> asyncio.Future[Response]:
        request = SyncRequest(member_id=member_id, generation=generation)
        return asyncio.ensure_future(
            shell.ask(lambda ticket: self.machine.sync(self.clock.monotonic(), ticket, request))
        )


@pytest.fixture
def held() -> Held:
    return Held()


def at(offset: int) -> CommittedOffset:
    return CommittedOffset(offset, 1, "", 0)


async def test_a_reply_waits_for_what_must_be_stored_before_it_and_no_other_does(held: Held) -> None:
    shell = await held.open()
    stall = held.faults.at("transact", Stall())
    joining = held.join(shell, "a")
    await stall.reached.wait()
    # Behind the generation that is being stored: a member that knows it can't have heard of it yet.
    early = held.heartbeat(shell, "-a", 1)
    await settle()
    assert not joining.done()
    assert not early.done()
    stall.let_go()
    joined = await joining
    assert isinstance(joined, JoinResponse)
    assert (joined.generation, (await early).error) == (1, GroupError.NONE)

    stall = held.faults.at("transact", Stall())
    commit = asyncio.ensure_future(shell.commit({(T, 0): at(1)}))
    await stall.reached.wait()
    assert (await held.heartbeat(shell, "-a", 1)).error is GroupError.NONE
    assert not commit.done()
    stall.let_go()
    await commit


async def test_what_comes_in_during_a_write_shares_the_next_one(held: Held) -> None:
    shell = await held.open()
    stall = held.faults.at("transact", Stall())
    joining = held.join(shell, "a")
    await stall.reached.wait()
    commits = [asyncio.ensure_future(shell.commit({(T, 0): at(number)})) for number in range(20)]
    looks = [asyncio.ensure_future(shell.confirm()) for _ in range(20)]
    await settle()
    stall.let_go()
    await joining
    await asyncio.gather(*commits, *looks)
    assert held.faults.taken["transact"] == 2
    assert held.faults.taken["get state"] == 1
    assert shell.held.offset(T, 0) == at(19)
    assert shell.is_idle is False


async def test_who_waits_is_told_when_the_group_is_dropped(held: Held) -> None:
    shell = await held.open()
    stall = held.faults.at("transact", Stall())
    joining = held.join(shell, "a")
    await stall.reached.wait()
    commit = asyncio.ensure_future(shell.commit({(T, 0): at(1)}))
    await settle()
    shell.drop(StaleView("elsewhere"))
    for waiting in (joining, commit):
        with pytest.raises(StaleView):
            await waiting
    stall.let_go()
    with pytest.raises(StaleView):
        await shell.commit({(T, 0): at(1)})
    with pytest.raises(StaleView):
        await held.heartbeat(shell, "-a", 1)
    assert len(held.dropped) == 1


async def test_a_machine_that_could_not_be_stored_is_dropped(held: Held) -> None:
    shell = await held.open()
    for nth in range(1, 7):
        held.faults.at("transact", Fail(StoreUnavailable("away")), nth)
    with pytest.raises(StoreUnavailable):
        await held.join(shell, "a")
    assert [type(error) for error in held.dropped] == [StoreUnavailable]
    assert await held.generation() is None


async def test_commits_that_could_not_be_stored_leave_the_group(held: Held) -> None:
    shell = await held.open()
    await shell.commit({(T, 0): at(1)})
    for nth in range(1, 7):
        held.faults.at("transact", Fail(StoreUnavailable("away")), nth)
    with pytest.raises(StoreUnavailable):
        await shell.commit({(T, 0): at(2)})
    assert held.dropped == []
    assert shell.held.offset(T, 0) == at(1)
    await shell.commit({(T, 0): at(3)})


async def test_commits_of_unknown_outcome_end_it(held: Held) -> None:
    shell = await held.open()
    await shell.commit({(T, 0): at(1)})
    for nth in range(1, 7):
        held.faults.at("transact", Fail(OutcomeUnknown("lost")), nth)
    with pytest.raises(OutcomeUnknown):
        await shell.commit({(T, 0): at(2)})
    assert [type(error) for error in held.dropped] == [OutcomeUnknown]


async def test_who_has_gone_is_not_waited_for(held: Held) -> None:
    shell = await held.open()
    stall = held.faults.at("transact", Stall())
    joining = held.join(shell, "a")
    commit = asyncio.ensure_future(shell.commit({(T, 0): at(1)}))
    await stall.reached.wait()
    joining.cancel()
    commit.cancel()
    stall.let_go()
    await shell.confirm()
    assert shell.held.offset(T, 0) == at(1)
    assert held.machine.generation == 1


async def test_nobody_waits_for_ever_when_the_node_ends(held: Held) -> None:
    shell = await held.open()
    stall = held.faults.at("transact", Stall())
    joining = held.join(shell, "a")
    commit = asyncio.ensure_future(shell.commit({(T, 0): at(1)}))
    await stall.reached.wait()
    await held.tasks.close()
    for waiting in (joining, commit):
        with pytest.raises(CatenaError):
            await waiting


async def test_a_group_is_gone_after_its_end(held: Held) -> None:
    shell = await held.open()
    await shell.commit({(T, 0): at(1)})
    assert (shell.exists, shell.is_idle) == (True, True)
    assert held.machine.delete() is GroupError.NONE
    await shell.delete()
    assert (shell.exists, shell.is_idle, shell.machine) == (False, True, None)
    assert shell.held.offset(T, 0) is None


async def test_a_sync_is_stored_once_for_all(held: Held) -> None:
    shell = await held.open()
    first = held.join(shell, "a")
    joined = await first
    assert isinstance(joined, JoinResponse)
    before = held.faults.taken["transact"]
    assert (await held.sync(shell, joined.member_id, joined.generation)).error is GroupError.NONE
    assert held.faults.taken["transact"] == before + 1
    snapshot = await held.generation()
    assert snapshot == held.machine.snapshot()
