"""The commit protocol where it could break: fences, stalled writers, answers that never came, epochs used twice.

Each test names a hole that protocols of this kind have had, and fails when it is opened.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from catena.errors import CatenaError, OutcomeUnknown, RetryLater, Sealed, StoreUnavailable
from catena.loglets.base import Tail
from catena.loglets.diskless.records import decode_control, encode
from catena.meta import keys
from catena.testing.contracts.loglet import Links, Stamp, make_entry, read_values
from catena.testing.faults import Fail, Fault, Late, Stall
from catena.types import Offset
from tests.loglets.stores import BACKENDS, DisklessNode, Stores

on_every_backend = pytest.mark.parametrize("stores", BACKENDS, indirect=True)
without_transact = pytest.mark.parametrize(
    "stores", [backend for backend in BACKENDS if "without" in backend or backend == "objects"], indirect=True
)


def unknown() -> OutcomeUnknown:
    return OutcomeUnknown("no answer")


def unavailable() -> StoreUnavailable:
    return StoreUnavailable("down")


async def log_of(stores: Stores, links: Links, epoch: int = 1, base: Offset = 0) -> list[str]:
    """What a node that has just started finds in the link."""
    loglet = (await stores.node()).open(links.spec(epoch, base))
    return await read_values(loglet, base, (await loglet.tail()).offset)


@on_every_backend
class TestFence:
    async def test_a_commit_that_was_under_way_when_the_link_was_sealed_fails(
        self, stores: Stores, links: Links
    ) -> None:
        writer, sealer = await stores.node(), await stores.node()
        await writer.open(links.spec()).append(make_entry("before"))
        stall = writer.faults.at(stores.commit_step, Stall())
        late = asyncio.ensure_future(writer.open(links.spec()).append(make_entry("late")))
        await stall.reached.wait()
        assert (await sealer.open(links.spec()).seal()).tail == 1
        stall.let_go()
        with pytest.raises(Sealed):
            await late
        assert await log_of(stores, links) == ["before"]
        assert (await sealer.open(links.spec()).seal()).tail == 1

    async def test_a_first_commit_that_was_under_way_when_the_empty_link_was_sealed_fails(
        self, stores: Stores, links: Links
    ) -> None:
        writer, sealer = await stores.node(), await stores.node()
        stall = writer.faults.at(stores.commit_step, Stall())
        late = asyncio.ensure_future(writer.open(links.spec(base=3)).append(make_entry("late")))
        await stall.reached.wait()
        assert (await sealer.open(links.spec(base=3)).seal()).tail == 3
        stall.let_go()
        with pytest.raises(Sealed):
            await late
        assert await stores.index(links.partition) == []

    async def test_a_seal_counts_what_was_committed_while_it_was_under_way(self, stores: Stores, links: Links) -> None:
        writer, sealer = await stores.node(), await stores.node()
        await writer.open(links.spec()).append(make_entry("a"))
        stall = sealer.faults.at("put control", Stall())
        sealing = asyncio.ensure_future(sealer.open(links.spec()).seal())
        await stall.reached.wait()
        await writer.open(links.spec()).append(make_entry("b", stamp=Stamp(7, 0, 0)))
        stall.let_go()
        tail, producers = await sealing
        assert tail == 2
        assert producers[7].batches[-1].offset == 1
        assert await log_of(stores, links) == ["a", "b"]

    @pytest.mark.parametrize("applied", [True, False])
    async def test_a_seal_without_an_answer_is_settled(self, stores: Stores, links: Links, applied: bool) -> None:
        node = await stores.node()
        await node.open(links.spec()).append(make_entry("a"))
        node.faults.at("put control", Fail(unknown(), applied))
        assert (await node.open(links.spec()).seal()).tail == 1
        with pytest.raises(Sealed):
            await node.open(links.spec()).append(make_entry("late"))


@on_every_backend
class TestEpochs:
    async def test_a_stale_opener_cannot_open_a_link_that_was_sealed_unopened(
        self, stores: Stores, links: Links
    ) -> None:
        stale, other = await stores.node(), await stores.node()
        await stale.open(links.spec()).append(make_entry("a"))
        await other.open(links.spec()).seal()
        stall = stale.faults.at(stores.commit_step, Stall(), nth=2)  # the first one finds link 1 fenced
        opening = asyncio.ensure_future(stale.open(links.spec(epoch=2, base=1)).append(make_entry("stale")))
        await stall.reached.wait()
        assert (await other.open(links.spec(epoch=2, base=1)).seal()).tail == 1
        stall.let_go()
        with pytest.raises(Sealed):
            await opening
        assert (await other.open(links.spec(epoch=2, base=1)).seal()).tail == 1

    async def test_an_epoch_is_not_opened_again_below_a_later_one(self, stores: Stores, links: Links) -> None:
        stale, other = await stores.node(), await stores.node()
        await stale.open(links.spec()).append(make_entry("a"))
        await other.open(links.spec()).seal()
        await other.open(links.spec(epoch=3, base=1)).append(make_entry("b"))
        for node in (stale, other):
            with pytest.raises(Sealed):
                await node.open(links.spec(epoch=2, base=1)).append(make_entry("stale"))
            with pytest.raises(Sealed):
                await node.open(links.spec(epoch=2, base=1)).seal()
            with pytest.raises(Sealed):
                await node.open(links.spec(epoch=2, base=1)).tail()
        assert await log_of(stores, links, epoch=3, base=1) == ["b"]

    async def test_an_open_link_is_opened_once_however_many_open_it(self, stores: Stores, links: Links) -> None:
        nodes = [await stores.node() for _ in range(3)]
        await nodes[0].open(links.spec()).append(make_entry("a"))
        await nodes[0].open(links.spec()).seal()
        appends = [
            node.open(links.spec(epoch=2, base=1)).append(make_entry(f"{number}")) for number, node in enumerate(nodes)
        ]
        assert sorted(await asyncio.gather(*appends)) == [1, 2, 3]

    async def test_a_record_that_was_changed_and_changed_back_is_not_the_same(
        self, stores: Stores, links: Links
    ) -> None:
        writer = await stores.node()
        await writer.open(links.spec()).append(make_entry("a"))
        stall = writer.faults.at(stores.commit_step, Stall())
        late = asyncio.ensure_future(writer.open(links.spec()).append(make_entry("b")))
        await stall.reached.wait()
        key = keys.control(links.partition)
        record = await stores.meta.get(key)
        assert record is not None
        fenced = msgspec.structs.replace(decode_control(key, record.value), state="FENCED")
        await stores.meta.put(key, encode(fenced))
        await stores.meta.put(key, record.value)
        before = writer.faults.taken[stores.commit_step]
        stall.let_go()
        assert await late == 1
        assert writer.faults.taken[stores.commit_step] == before + 1, "the first one should have been refused"


@without_transact
class TestPending:
    """What a commit without `transact` leaves to be written down."""

    async def leave_pending(self, stores: Stores, links: Links, *values: str, stamp: Stamp | None = None) -> None:
        """Append as a writer does that dies right after its commit."""
        node = await stores.node()
        node.faults.at("put index", Fail(unavailable()))
        await node.open(links.spec()).append(make_entry(*values, stamp=stamp))
        await node.diskless.close()

    async def test_it_can_be_read(self, stores: Stores, links: Links) -> None:
        await self.leave_pending(stores, links, "a", "b")
        assert await stores.index(links.partition) == []
        assert await log_of(stores, links) == ["a", "b"]
        assert await (await stores.node()).open(links.spec()).find_time(0, 1) == 0

    async def test_no_commit_replaces_what_could_not_be_written_down(self, stores: Stores, links: Links) -> None:
        await self.leave_pending(stores, links, "a", stamp=Stamp(7, 0, 0))
        node = await stores.hasty_node()
        for nth in range(1, 100):
            node.faults.at("put index", Fail(unavailable()), nth)
        with pytest.raises(RetryLater):
            await node.open(links.spec()).append(make_entry("b"))
        assert await log_of(stores, links) == ["a"]
        assert (await stores.control(links.partition)).next == 1

    @pytest.mark.parametrize("step", ["get producer", "put producer", "put index"])
    async def test_a_commit_goes_on_once_it_is_written_down(self, stores: Stores, links: Links, step: str) -> None:
        await self.leave_pending(stores, links, "a", stamp=Stamp(7, 0, 0))
        node = await stores.node()
        node.faults.at(step, Fail(unavailable()))
        assert await node.append(links.spec(), make_entry("b", stamp=Stamp(7, 0, 1))) == 1
        assert node.faults.armed == []
        assert [entry.end_offset for entry in await stores.index(links.partition)] == [0, 1]
        assert await log_of(stores, links) == ["a", "b"]

    async def test_a_seal_writes_it_down(self, stores: Stores, links: Links) -> None:
        await self.leave_pending(stores, links, "a", stamp=Stamp(7, 0, 0))
        tail, producers = await (await stores.node()).open(links.spec()).seal()
        assert tail == 1
        assert producers[7].batches[-1].offset == 0
        assert [entry.end_offset for entry in await stores.index(links.partition)] == [0]

    async def test_opening_or_sealing_a_later_link_writes_it_down(self, stores: Stores, links: Links) -> None:
        for append in (True, False):
            partition = Links(number=int(append))
            await self.leave_pending(stores, partition, "a")
            loglet = (await stores.node()).open(partition.spec(epoch=2, base=1))
            if append:
                await loglet.append(make_entry("b"))
            else:
                await loglet.seal()
            assert (await stores.index(partition.partition))[0].end_offset == 0

    async def test_who_writes_it_down_late_overwrites_nothing(self, stores: Stores, links: Links) -> None:
        writer, other = await stores.node(), await stores.node()
        stall = writer.faults.at("put index", Stall())
        await writer.open(links.spec()).append(make_entry("a"))
        await stall.reached.wait()
        await other.append(links.spec(), make_entry("b"))
        (entry, _) = await stores.index(links.partition)
        moved = msgspec.structs.replace(entry, data_key="llog/elsewhere")
        await stores.meta.put(keys.index(links.partition, 0), encode(moved))
        stall.let_go()
        assert await writer.append(links.spec(), make_entry("c")) == 2
        assert (await stores.index(links.partition))[0] == moved

    async def test_who_writes_it_down_late_does_not_bring_back_what_is_below_the_boundary(
        self, stores: Stores, links: Links
    ) -> None:
        writer, other = await stores.node(), await stores.node()
        spec, stall = links.spec(), Stall()
        stalled = spec._replace(boundary=lambda: stall.strike(spec.boundary))
        await writer.open(stalled).append(make_entry("a", "b"))
        await stall.reached.wait()
        await other.open(links.spec()).append(make_entry("c"))
        links.boundary = 2
        await other.open(links.spec()).trim(2)
        stall.let_go()
        assert await writer.append(links.spec(), make_entry("d")) == 3
        assert [entry.end_offset for entry in await stores.index(links.partition)] == [2, 3]

    async def test_a_producer_state_that_is_written_down_late_does_not_replace_a_newer_one(
        self, stores: Stores, links: Links
    ) -> None:
        writer, other = await stores.node(), await stores.node()
        stall = writer.faults.at("put producer", Stall())
        await writer.open(links.spec()).append(make_entry("a", stamp=Stamp(7, 0, 0)))
        await stall.reached.wait()
        await other.open(links.spec()).append(make_entry("b", stamp=Stamp(7, 0, 1)))
        stall.let_go()
        await writer.diskless.writer.drain()
        _, producers = await other.open(links.spec()).seal()
        assert [batch.first_sequence for batch in producers[7].batches] == [0, 1]


@on_every_backend
class TestUnknownOutcomes:
    """An append whose commit got no answer, with the commits of others between that and the second try."""

    async def append_ambiguously(
        self, stores: Stores, links: Links, fault: Fault, others: tuple[str, ...], node: DisklessNode
    ) -> Offset:
        other = await stores.node()
        await node.open(links.spec()).append(make_entry("first"))
        node.faults.at(stores.commit_step, fault)
        second_try = node.faults.at(stores.commit_step, Stall(), nth=2)
        append = asyncio.ensure_future(node.open(links.spec()).append(make_entry("mine")))
        await second_try.reached.wait()
        for value in others:
            await other.open(links.spec()).append(make_entry(value))
        second_try.let_go()
        return await append

    @pytest.mark.parametrize("others", [(), ("x",), ("x", "y", "z")], ids=len)
    async def test_it_was_applied(self, stores: Stores, links: Links, others: tuple[str, ...]) -> None:
        fault = Fail(unknown(), applied=True)
        assert await self.append_ambiguously(stores, links, fault, others, await stores.node()) == 1
        assert await log_of(stores, links) == ["first", "mine", *others]

    @pytest.mark.parametrize("others", [(), ("x",), ("x", "y", "z")], ids=len)
    async def test_it_was_not_applied(self, stores: Stores, links: Links, others: tuple[str, ...]) -> None:
        fault = Fail(unknown())
        offset = await self.append_ambiguously(stores, links, fault, others, await stores.node())
        assert offset == 1 + len(others)
        assert await log_of(stores, links) == ["first", *others, "mine"]

    @pytest.mark.parametrize("others", [(), ("x",)], ids=len)
    async def test_it_arrives_after_the_second_try(self, stores: Stores, links: Links, others: tuple[str, ...]) -> None:
        late = Late()
        offset = await self.append_ambiguously(stores, links, late, others, await stores.node())
        try:
            await late.arrive()
        except CatenaError:
            pass
        assert offset == 1 + len(others)
        assert await log_of(stores, links) == ["first", *others, "mine"]
        assert await (await stores.node()).open(links.spec()).append(make_entry("next")) == 2 + len(others)

    async def test_it_arrives_before_the_second_try(self, stores: Stores, links: Links) -> None:
        node, other, late = await stores.node(), await stores.node(), Late()
        node.faults.at(stores.commit_step, late)
        second_try = node.faults.at(stores.commit_step, Stall(), nth=2)
        append = asyncio.ensure_future(node.open(links.spec()).append(make_entry("mine")))
        await second_try.reached.wait()
        await late.arrive()
        await other.open(links.spec()).append(make_entry("x"))
        second_try.let_go()
        assert await append == 0
        assert await log_of(stores, links) == ["mine", "x"]

    async def test_it_was_applied_and_the_link_was_sealed_since(self, stores: Stores, links: Links) -> None:
        node, other = await stores.node(), await stores.node()
        node.faults.at(stores.commit_step, Fail(unknown(), applied=True))
        second_try = node.faults.at(stores.commit_step, Stall(), nth=2)
        append = asyncio.ensure_future(node.open(links.spec()).append(make_entry("mine")))
        await second_try.reached.wait()
        assert (await other.open(links.spec()).seal()).tail == 1
        await other.open(links.spec(epoch=2, base=1)).append(make_entry("x"))
        second_try.let_go()
        assert await append == 0

    async def test_it_was_not_applied_and_the_link_was_sealed_since(self, stores: Stores, links: Links) -> None:
        node, other = await stores.node(), await stores.node()
        node.faults.at(stores.commit_step, Fail(unknown()))
        second_try = node.faults.at(stores.commit_step, Stall(), nth=2)
        append = asyncio.ensure_future(node.open(links.spec()).append(make_entry("mine")))
        await second_try.reached.wait()
        assert (await other.open(links.spec()).seal()).tail == 0
        await other.open(links.spec(epoch=2)).append(make_entry("x"))
        second_try.let_go()
        with pytest.raises(Sealed):
            await append

    @pytest.mark.parametrize("applied", [True, False])
    async def test_nobody_can_tell_any_more(self, stores: Stores, links: Links, applied: bool) -> None:
        node, other = await stores.node(), await stores.node()
        await node.open(links.spec()).append(make_entry("first"))
        node.faults.at(stores.commit_step, Fail(unknown(), applied))
        second_try = node.faults.at(stores.commit_step, Stall(), nth=2)
        append = asyncio.ensure_future(node.open(links.spec()).append(make_entry("mine")))
        await second_try.reached.wait()
        await other.open(links.spec()).append(make_entry("x", "y"))
        links.boundary = (await other.open(links.spec()).tail()).offset
        await other.open(links.spec()).trim(links.boundary)
        second_try.let_go()
        with pytest.raises(OutcomeUnknown):
            await append
        assert await node.open(links.spec()).append(make_entry("next")) == links.boundary

    @pytest.mark.parametrize("applied", [True, False])
    async def test_the_store_stays_silent_until_the_deadline(self, stores: Stores, links: Links, applied: bool) -> None:
        node = await stores.hasty_node()
        for nth in range(1, 100):
            node.faults.at(stores.commit_step, Fail(unknown(), applied=applied and nth == 1), nth)
        with pytest.raises(OutcomeUnknown):
            await node.open(links.spec()).append(make_entry("mine"))
        assert await log_of(stores, links) == (["mine"] if applied else [])

    async def test_the_store_is_down_until_the_deadline(self, stores: Stores, links: Links) -> None:
        node = await stores.hasty_node()
        for nth in range(1, 100):
            node.faults.at(stores.commit_step, Fail(unavailable()), nth)
        with pytest.raises(StoreUnavailable):
            await node.open(links.spec()).append(make_entry("mine"))
        loglet = (await stores.node()).open(links.spec())
        assert await loglet.tail() == Tail(0, sealed=False)

    async def test_an_idempotent_batch_that_was_applied_is_not_applied_again(
        self, stores: Stores, links: Links
    ) -> None:
        node, other = await stores.hasty_node(), await stores.node()
        entry = make_entry("mine", stamp=Stamp(7, 0, 0))
        for nth in range(1, 100):
            node.faults.at(stores.commit_step, Fail(unknown(), applied=nth == 1), nth)
        with pytest.raises(OutcomeUnknown):
            await node.open(links.spec()).append(entry)
        assert await other.open(links.spec()).append(entry) == 0
        assert await log_of(stores, links) == ["mine"]


class TestDeadline:
    async def test_a_blob_that_waited_too_long_for_its_commit_is_dropped(self, stores: Stores, links: Links) -> None:
        """By then vacuum may have taken it."""
        node = await stores.node()
        upload = node.faults.at("blob put", Stall(applied=True))
        append = asyncio.ensure_future(node.open(links.spec()).append(make_entry("old")))
        await upload.reached.wait()
        stores.quick_clock.leap(60)
        upload.let_go()
        with pytest.raises(CatenaError):
            await append
        assert node.faults.taken[stores.commit_step] == 0
        assert await node.open(links.spec()).append(make_entry("new")) == 0
