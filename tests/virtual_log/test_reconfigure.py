"""The chain is changed while the log is used, by several at once, and by those who die half way."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from catena.errors import CatenaError, ConfigError, LogSealed, OutOfOrderSequence, StoreUnavailable
from catena.meta import keys
from catena.testing.contracts.loglet import Stamp, make_entry
from catena.testing.faults import Fail, Stall
from catena.virtual_log.chain import Chain
from catena.virtual_log.log import VirtualLog
from tests.loglets.stores import BACKENDS
from tests.virtual_log.cluster import Cluster, ClusterNode, read_all, tiered
from tests.virtual_log.workload import Acks, Writer, check

# From diskless to memory, in the order in which they are taken. The number tells apart what is done twice.
STEPS = [
    ("get chain", 1),
    ("put chain", 1),  # the intent
    ("put control", 1),  # the fence
    ("scan producer", 1),
    ("put handoff", 1),
    ("put chain", 2),  # the new link
]
MAX_CHANGES = 8
MOMENTS = [(step, nth, applied) for step, nth in STEPS for applied in (False, True)]


def shape(chain: Chain) -> list[tuple[str, int, int | None]]:
    return [(link.kind, link.base, link.end) for link in chain.links]


async def die_at(node: ClusterNode, work: asyncio.Task[Chain], stall: Stall) -> None:
    """Nothing of `work` happens after this point."""
    await stall.reached.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert node.faults.armed == []


@pytest.mark.parametrize("cluster", BACKENDS, indirect=True)
class TestUnderLoad:
    async def test_the_log_moves_between_kinds_while_all_write(self, cluster: Cluster) -> None:
        logs, acks = await cluster.logs(3), Acks()
        writers = [
            *(Writer(f"plain-{number}", [log], acks) for number, log in enumerate(logs)),
            *(Writer(f"idempotent-{number}", logs[number:], acks, number) for number in range(3)),
        ]

        async def move(turn: int) -> None:
            await logs[turn % 3].reconfigure(("memory", "diskless")[turn % 2])

        await write_while(writers, acks, move)
        check(await cluster.content(), writers)
        chain = await logs[0].refresh()
        assert chain.next_epoch == 2 + MAX_CHANGES
        assert len(chain.links) == 1 + MAX_CHANGES, "a link is empty: nobody wrote meanwhile"
        for log in logs:
            assert await read_all(log) == await cluster.content()

    async def test_racing_reconfigurers_under_load(self, cluster: Cluster) -> None:
        logs, acks = await cluster.logs(3), Acks()
        writers = [Writer(f"w-{number}", logs, acks, number if number % 2 else None) for number in range(4)]

        async def race(turn: int) -> None:
            kinds = list(itertools.islice(itertools.cycle(("memory", "diskless", "diskless")), turn, turn + 3))
            await asyncio.gather(*(log.reconfigure(kind) for log, kind in zip(logs, kinds, strict=True)))

        await write_while(writers, acks, race)
        check(await cluster.content(), writers)

    async def test_the_log_is_sealed_and_reopened_under_load(self, cluster: Cluster) -> None:
        logs, acks = await cluster.logs(2), Acks()
        for round_number in range(3):
            writers = [Writer(f"{round_number}.{number}", [log], acks) for number, log in enumerate(logs * 2)]
            writing = [asyncio.ensure_future(writer.write(until=asyncio.Event())) for writer in writers]
            await acks.more(30)
            start = await logs[0].start()
            tail = await logs[round_number % 2].seal()
            results = await asyncio.gather(*writing, return_exceptions=True)
            assert [type(result) for result in results] == [LogSealed] * 4
            acked = {offset: value for writer in writers for offset, value in writer.acked.items()}
            assert await read_all(logs[0], start) == [acked[offset] for offset in range(start, tail)]
            await logs[0].trim(tail)
            await logs[0].reconfigure("diskless" if round_number % 2 else "memory")


async def write_while(writers: list[Writer], acks: Acks, change: Callable[[int], Awaitable[None]]) -> None:
    """Let all write, and change the chain again and again while they do."""
    done = asyncio.Event()
    writing = asyncio.gather(*(writer.write(until=done) for writer in writers))
    for turn in range(MAX_CHANGES):
        await acks.more(30)
        await change(turn)
    await acks.more(30)
    done.set()
    await writing


class TestRaces:
    @pytest.mark.parametrize("first", ["memory", "diskless"])
    async def test_all_end_with_the_same_chain_and_no_epoch_is_used_twice(self, cluster: Cluster, first: str) -> None:
        logs = await cluster.logs(5)
        await logs[0].append(make_entry("a", stamp=Stamp(7, 0, 0)))
        await logs[0].reconfigure(first)
        kinds = ["memory", "diskless", "memory", "diskless", "memory"]
        await asyncio.gather(*(log.reconfigure(kind) for log, kind in zip(logs, kinds, strict=True)))
        chain = await logs[0].refresh()
        assert [await log.refresh() for log in logs] == [chain] * 5
        assert chain.intent is None
        assert chain.last.epoch < chain.next_epoch <= 2 + 6
        assert [link.end for link in chain.links] == [1, None]
        assert sorted(await asyncio.gather(*(log.append(make_entry("b")) for log in logs))) == [1, 2, 3, 4, 5]
        for log in logs:
            assert await log.append(make_entry("a", stamp=Stamp(7, 0, 0))) == 0

    async def test_two_who_finish_the_same_change(self, cluster: Cluster) -> None:
        """The second one was stalled after its seal, and wakes when the new link is in use."""
        node = await cluster.node()
        log, other = await node.log(), await (await cluster.node()).log()
        await log.append(make_entry("a", stamp=Stamp(7, 0, 0)))
        stall = node.faults.at("put handoff", Stall())
        slow = asyncio.ensure_future(log.reconfigure("diskless"))
        await stall.reached.wait()
        assert await other.append(make_entry("b", stamp=Stamp(7, 0, 1))) == 1
        handoff = await cluster.stores.meta.get(keys.handoff(log.tp, 2))
        stall.let_go()
        assert shape(await slow) == [("diskless", 0, 1), ("diskless", 1, None)]
        assert await cluster.stores.meta.get(keys.handoff(log.tp, 2)) == handoff
        assert await log.append(make_entry("b", stamp=Stamp(7, 0, 1))) == 1
        assert await cluster.content() == ["a", "b"]

    async def test_one_who_wakes_up_after_the_next_change(self, cluster: Cluster) -> None:
        """Stalled before its seal: by then the link it wants to seal has been followed twice."""
        node = await cluster.node()
        log, other = await node.log(), await (await cluster.node()).log()
        await log.append(make_entry("a"))
        stall = node.faults.at("put control", Stall())
        slow = asyncio.ensure_future(log.reconfigure("memory"))
        await stall.reached.wait()
        await other.append(make_entry("b"))
        await other.reconfigure("diskless")
        await other.append(make_entry("c"))
        stall.let_go()
        expected = [("diskless", 0, 2), ("diskless", 2, None)]
        assert shape(await slow) == expected
        assert shape(await other.refresh()) == expected
        assert await cluster.content() == ["a", "b", "c"]

    async def test_a_boundary_that_moves_meanwhile_does_not_undo_it(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log = await node.log()
        await log.append(make_entry("a", "b"))
        stall = node.faults.at("get chain", Stall(applied=True), nth=2)
        changing = asyncio.ensure_future(log.reconfigure("memory"))
        await stall.reached.wait()
        await cluster.chains.change(log.tp, log.kind, lambda chain: tiered(chain, 1))
        stall.let_go()
        assert shape(await changing) == [("tiered", 0, 1), ("diskless", 1, 2), ("memory", 2, None)]

    async def test_a_seal_and_a_reconfigure_at_once(self, cluster: Cluster) -> None:
        log, other = await cluster.logs(2)
        await log.append(make_entry("a"))
        tail, _ = await asyncio.gather(log.seal(), other.reconfigure("memory"))
        assert tail == 1
        chain = await log.refresh()
        assert chain.intent is None
        assert chain.links[0].end == 1


class TestOrder:
    """Appends that were called one after the other on a node stay in their order, whatever becomes of the links."""

    @pytest.mark.parametrize("kind", ["memory", "diskless"])
    async def test_nobody_overtakes_what_is_still_under_way_to_the_old_link(self, cluster: Cluster, kind: str) -> None:
        node = await cluster.node()
        log, other = await node.log(), await (await cluster.node()).log()
        upload = node.faults.at("blob put", Stall())
        first = asyncio.ensure_future(log.append(make_entry("a", stamp=Stamp(7, 0, 0))))
        await upload.reached.wait()
        await other.reconfigure(kind)
        await log.refresh()
        second = asyncio.ensure_future(log.append(make_entry("b", stamp=Stamp(7, 0, 1))))
        for _ in range(20):
            await asyncio.sleep(0)
        upload.let_go()
        assert (await first, await second) == (0, 1)

    async def test_who_leaves_the_line_does_not_let_others_overtake(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log, other = await node.log(), await (await cluster.node()).log()
        upload = node.faults.at("blob put", Stall())
        first = asyncio.ensure_future(log.append(make_entry("first")))
        await upload.reached.wait()
        await other.reconfigure("diskless")
        await log.refresh()
        leaves, last = (asyncio.ensure_future(log.append(make_entry(value))) for value in ("leaves", "last"))
        for _ in range(20):
            await asyncio.sleep(0)
        leaves.cancel()
        for _ in range(20):
            await asyncio.sleep(0)
        upload.let_go()
        assert await first < await last

    async def test_who_waits_behind_one_that_fails_fails_too(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log, other = await node.log(), await (await cluster.node()).log()
        await log.chain()
        await other.reconfigure("diskless")
        node.faults.at("get chain", Fail(StoreUnavailable("down")))
        entries = [make_entry("y", stamp=Stamp(7, 0, n)) for n in range(3)]
        # A new producer: if a later batch were taken, the first one would be refused for ever.
        results = await asyncio.gather(*(log.append(entry) for entry in entries), return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable, OutOfOrderSequence, OutOfOrderSequence]
        assert await asyncio.gather(*(log.append(entry) for entry in entries)) == [0, 1, 2]

    @pytest.mark.parametrize("kind", ["memory", "diskless"])
    async def test_what_a_seal_sends_back_goes_on_in_order(self, cluster: Cluster, kind: str) -> None:
        node = await cluster.node()
        log, other = await node.log(), await (await cluster.node()).log()
        await other.append(make_entry("x"))
        await log.chain()
        await other.reconfigure(kind)
        # The first one to learn of the new chain is the last to hear back.
        stalls = [node.faults.at("get chain", Stall(applied=True), nth) for nth in range(1, 11)]
        appends = [asyncio.ensure_future(log.append(make_entry("y", stamp=Stamp(7, 0, n)))) for n in range(10)]
        await stalls[0].reached.wait()
        appends += [asyncio.ensure_future(log.append(make_entry("y", stamp=Stamp(7, 0, n)))) for n in range(10, 15)]
        for _ in range(50):
            await asyncio.sleep(0)
        for stall in reversed(stalls):
            stall.let_go()
        assert await asyncio.gather(*appends) == list(range(1, 16))


class TestDying:
    """Whoever reconfigures dies before or after a step; somebody else comes along."""

    async def prepare(self, cluster: Cluster) -> ClusterNode:
        node = await cluster.node()
        log = await node.log()
        await log.append(make_entry("a", stamp=Stamp(7, 0, 0)))
        await log.append(make_entry("b"))
        await node.node.drain()
        return node

    async def check(self, cluster: Cluster, log: VirtualLog, others: list[str]) -> None:
        values = await cluster.content()
        assert values == ["a", "b", *others]
        assert await log.append(make_entry("a", stamp=Stamp(7, 0, 0))) == 0
        assert await log.append(make_entry("next", stamp=Stamp(7, 0, 1))) == len(values)

    @pytest.mark.parametrize(("step", "nth", "applied"), MOMENTS)
    async def test_an_appender_goes_on(self, cluster: Cluster, step: str, nth: int, applied: bool) -> None:
        node = await self.prepare(cluster)
        other = await (await cluster.node()).log()
        stall = node.faults.at(step, Stall(applied), nth)
        await die_at(node, asyncio.ensure_future((await node.log()).reconfigure("memory")), stall)
        assert await other.append(make_entry("c")) == 2
        chain = await other.refresh()
        if MOMENTS.index((step, nth, applied)) >= MOMENTS.index(("put control", 1, True)):
            assert shape(chain) == [("diskless", 0, 2), ("memory", 2, None)]
            assert chain.intent is None
        else:
            # Nothing is sealed: the log goes on as it is, and whoever changes the chain next finishes this first.
            assert shape(chain) == [("diskless", 0, None)]
        await self.check(cluster, other, ["c"])

    @pytest.mark.parametrize(("step", "nth", "applied"), MOMENTS)
    async def test_another_reconfigurer_goes_on(self, cluster: Cluster, step: str, nth: int, applied: bool) -> None:
        node = await self.prepare(cluster)
        other = await (await cluster.node()).log()
        stall = node.faults.at(step, Stall(applied), nth)
        await die_at(node, asyncio.ensure_future((await node.log()).reconfigure("memory")), stall)
        chain = await other.reconfigure("diskless")
        assert chain.intent is None
        assert chain.last.kind == "diskless"
        assert await other.append(make_entry("c")) == 2
        await self.check(cluster, other, ["c"])

    @pytest.mark.parametrize(("step", "nth", "applied"), MOMENTS)
    async def test_a_sealer_and_a_reader_go_on(self, cluster: Cluster, step: str, nth: int, applied: bool) -> None:
        node = await self.prepare(cluster)
        other = await (await cluster.node()).log()
        stall = node.faults.at(step, Stall(applied), nth)
        await die_at(node, asyncio.ensure_future((await node.log()).reconfigure("memory")), stall)
        assert await other.tail() == 2
        assert await read_all(other) == ["a", "b"]
        assert await other.read(2, 1000) == []
        assert await other.seal() == 2
        await other.reconfigure("diskless")
        await self.check(cluster, other, [])

    @pytest.mark.parametrize(("step", "nth", "applied"), MOMENTS)
    async def test_it_fails_instead_and_is_done_again(
        self, cluster: Cluster, step: str, nth: int, applied: bool
    ) -> None:
        node = await self.prepare(cluster)
        log = await node.log()
        node.faults.at(step, Fail(StoreUnavailable("down"), applied), nth)
        with pytest.raises(CatenaError):
            await log.reconfigure("memory")
        await log.reconfigure("memory")
        assert (await log.refresh()).last.kind == "memory"
        assert await log.append(make_entry("c")) == 2
        await self.check(cluster, log, ["c"])

    @pytest.mark.parametrize("cluster", ["memory without transact"], indirect=True)
    @pytest.mark.parametrize("step", ["get chain", "put index", "put producer"])
    async def test_a_seal_that_dies_before_it_wrote_down_what_was_pending(self, cluster: Cluster, step: str) -> None:
        writer = await cluster.node()
        writer.faults.at("put index", Fail(StoreUnavailable("down")))
        await (await writer.log()).append(make_entry("a", stamp=Stamp(7, 0, 0)))
        node = await cluster.node()
        log = await node.log()
        await log.chain()
        stall = node.faults.at(step, Stall(), nth=3 if step == "get chain" else 1)
        await die_at(node, asyncio.ensure_future(log.reconfigure("memory")), stall)
        other = await (await cluster.node()).log()
        assert await other.append(make_entry("b", stamp=Stamp(7, 0, 1))) == 1
        assert await other.append(make_entry("a", stamp=Stamp(7, 0, 0))) == 0
        assert await cluster.content() == ["a", "b"]


class TestRefusals:
    async def test_a_kind_that_is_not_known_is_refused_before_anything_is_sealed(self, cluster: Cluster) -> None:
        (log,) = await cluster.logs(1)
        with pytest.raises(ConfigError, match="'tape'"):
            await log.reconfigure("tape")
        assert await log.append(make_entry("a")) == 0

    async def test_nothing_is_sealed_while_the_meta_store_is_down(self, cluster: Cluster) -> None:
        node = await cluster.node()
        log = await node.log()
        await log.append(make_entry("a"))
        node.faults.at("get chain", Fail(StoreUnavailable("down")))
        with pytest.raises(StoreUnavailable):
            await log.reconfigure("memory")
        assert node.faults.taken["put control"] == (0 if cluster.stores.can_transact else 1)
        assert await log.append(make_entry("b")) == 1


async def test_params_of_a_link_reach_its_loglet(cluster: Cluster) -> None:
    (log,) = await cluster.logs(1)
    chain = await log.reconfigure("memory", {"nodeset": [1, 2, 3]})
    assert chain.last.params == {"medium": cluster.medium.name, "nodeset": [1, 2, 3]}
    assert log._spec(chain.last).params == chain.last.params
