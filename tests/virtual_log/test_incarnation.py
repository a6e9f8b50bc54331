"""A number in both stores tells whether the meta store was set back; whoever finds that writes nothing any more."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import msgspec
import pytest

from catena.errors import Corrupt, MetaBehind, OutcomeUnknown, StoreUnavailable
from catena.meta import keys
from catena.meta.memory import MemoryMeta
from catena.meta.read_only import GuardedMeta
from catena.objects.memory import MemoryObjects
from catena.runtime import SystemEntropy
from catena.testing.faults import Fail, Faults, FaultyMeta, FaultyObjects, Late, Stall
from catena.virtual_log.incarnation import (
    EVERY_S,
    LAST_RAISE_MAX_S,
    Compared,
    Incarnation,
    IncarnationKeeper,
    accept_older_meta,
    check_incarnation,
    compare,
    raise_incarnation,
)
from tests.meta.manual_clock import ManualClock

BEHIND = "the meta store was set back"


class Stores:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.faults = Faults()
        self.memory = MemoryMeta(self.clock)
        self.meta = FaultyMeta(self.memory, self.faults)
        self.objects = FaultyObjects(MemoryObjects(self.clock), self.faults)

    async def numbers(self) -> tuple[int, int]:
        """That of meta, and that of the bucket."""
        compared = await compare(self.meta, self.objects)
        return compared.in_meta.number, compared.in_bucket.number

    async def raise_it(self, since: Incarnation | None = None) -> Incarnation:
        return await raise_incarnation(self.meta, self.objects, self.clock, since)

    async def set_back(self, to: Incarnation) -> None:
        await self.memory.put(keys.INCARNATION, msgspec.json.encode(to))

    async def accept(self) -> Incarnation:
        return await accept_older_meta(self.meta, self.objects, self.clock, SystemEntropy())

    def process(self) -> Process:
        return Process(self)


class Process:
    """One that writes, and has a keeper."""

    def __init__(self, stores: Stores) -> None:
        self.meta = GuardedMeta(stores.meta)
        self.keeper = IncarnationKeeper(stores.meta, stores.objects, stores.clock, self.meta)

    async def write(self) -> None:
        await self.meta.put("t/a", b"")


@pytest.fixture
async def stores() -> AsyncIterator[Stores]:
    stores = Stores()
    yield stores
    await stores.memory.close()


class TestRaising:
    async def test_both_stores_get_the_next_number(self, stores: Stores) -> None:
        assert await stores.numbers() == (0, 0)
        for number in (1, 2, 3):
            assert (await stores.raise_it()).number == number
            assert await stores.numbers() == (number, number)

    async def test_of_many_at_once_all_succeed_with_few_numbers(self, stores: Stores) -> None:
        await asyncio.gather(*(stores.raise_it() for _ in range(50)))
        in_meta, in_bucket = await stores.numbers()
        assert in_meta == in_bucket <= 50

    @pytest.mark.parametrize("step", ["put incarnation", "incarnation put"])
    @pytest.mark.parametrize("applied", [True, False])
    async def test_an_answer_that_did_not_come_is_no_trouble(self, stores: Stores, step: str, applied: bool) -> None:
        await stores.raise_it()
        stores.faults.at(step, Fail(OutcomeUnknown("no answer"), applied))
        await stores.raise_it()
        in_meta, in_bucket = await stores.numbers()
        assert stores.faults.armed == []
        assert in_meta == in_bucket > 1

    async def test_what_ended_half_way_is_made_good_by_the_next(self, stores: Stores) -> None:
        stores.faults.at("incarnation put", Fail(StoreUnavailable("down")))
        with pytest.raises(StoreUnavailable):
            await stores.raise_it()
        assert await stores.numbers() == (1, 0)
        await check_incarnation(stores.meta, stores.objects)
        await stores.raise_it()
        assert await stores.numbers() == (2, 2)

    async def test_meta_is_raised_before_the_bucket(self, stores: Stores) -> None:
        stall = stores.faults.at("incarnation put", Stall())
        raising = asyncio.ensure_future(stores.raise_it())
        await stall.reached.wait()
        assert await stores.numbers() == (1, 0)
        stall.let_go()
        await raising

    async def test_a_put_that_comes_late_does_not_go_back(self, stores: Stores) -> None:
        await stores.raise_it()
        late = stores.faults.at("incarnation put", Late())
        raised = await stores.raise_it()
        await stores.raise_it()
        with pytest.raises(Exception, match="not what was expected"):
            await late.arrive()
        assert await stores.numbers() == (raised.number + 1, raised.number + 1)

    async def test_of_two_the_slower_one_does_not_go_back(self, stores: Stores) -> None:
        stall = stores.faults.at("incarnation put", Stall())
        slow = asyncio.ensure_future(stores.raise_it())
        await stall.reached.wait()
        assert (await stores.raise_it()).number == 2
        stall.let_go()
        assert (await slow).number == 1
        assert await stores.numbers() == (2, 2)

    async def test_a_marker_that_somebody_deleted_is_put_again(self, stores: Stores) -> None:
        await stores.raise_it()
        await stores.objects.delete([keys.INCARNATION])
        await check_incarnation(stores.meta, stores.objects)
        await stores.raise_it()
        assert await stores.numbers() == (2, 2)

    async def test_nothing_is_raised_where_meta_is_behind(self, stores: Stores) -> None:
        old = await stores.raise_it()
        await stores.raise_it()
        await stores.set_back(old)
        with pytest.raises(MetaBehind, match=BEHIND):
            await stores.raise_it()
        assert await stores.numbers() == (1, 2)

    async def test_meta_that_is_set_back_in_the_middle_of_it(self, stores: Stores) -> None:
        old = await stores.raise_it()
        await stores.raise_it()
        stall = stores.faults.at("put incarnation", Stall())
        raising = asyncio.ensure_future(stores.raise_it())
        await stall.reached.wait()
        await stores.set_back(old)
        stall.let_go()
        with pytest.raises(MetaBehind, match=BEHIND):
            await raising
        assert await stores.numbers() == (1, 2)


class TestChecking:
    async def test_stores_from_before_there_were_numbers(self, stores: Stores) -> None:
        assert await check_incarnation(stores.meta, stores.objects) == Incarnation()

    async def test_a_backup_from_before_there_were_numbers(self, stores: Stores) -> None:
        await stores.raise_it()
        await stores.memory.delete(keys.INCARNATION)
        with pytest.raises(MetaBehind, match=r"its incarnation is 0, and 1 \(1970-01-01 00:16:40 UTC\) was reached"):
            await check_incarnation(stores.meta, stores.objects)

    async def test_a_raise_between_the_two_reads_is_no_false_alarm(self, stores: Stores) -> None:
        await stores.raise_it()
        stall = stores.faults.at("incarnation get", Stall(applied=True))
        checking = asyncio.ensure_future(check_incarnation(stores.meta, stores.objects))
        await stall.reached.wait()
        await stores.raise_it()
        stall.let_go()
        assert (await checking).number == 2

    async def test_what_was_seen_before_counts_too(self, stores: Stores) -> None:
        old = await stores.raise_it()
        await stores.objects.delete([keys.INCARNATION])
        await check_incarnation(stores.meta, stores.objects, old)
        with pytest.raises(MetaBehind, match=BEHIND):
            await check_incarnation(stores.meta, stores.objects, Incarnation(2))

    async def test_another_branch_than_was_seen_before(self, stores: Stores) -> None:
        """As vacuum would find it, that read what is referred to before somebody accepted an older meta store."""
        old = await stores.raise_it()
        seen = await stores.raise_it()
        await stores.set_back(old)
        await stores.accept()
        await check_incarnation(stores.meta, stores.objects)
        for asks in (check_incarnation(stores.meta, stores.objects, seen), stores.raise_it(seen)):
            with pytest.raises(MetaBehind, match="was accepted while this process ran"):
                await asks

    @pytest.mark.parametrize("where", ["meta record", "object"])
    async def test_what_can_not_be_read_is_named(self, stores: Stores, where: str) -> None:
        if where == "object":
            await stores.objects.put(keys.INCARNATION, [b"[]"])
        else:
            await stores.memory.put(keys.INCARNATION, b'{"number": "1"}')
        with pytest.raises(Corrupt, match=f"{where} {keys.INCARNATION}"):
            await check_incarnation(stores.meta, stores.objects)


@pytest.mark.parametrize(
    ("in_bucket", "in_meta", "is_behind"), [(0, 0, False), (0, 1, False), (1, 1, False), (2, 1, True), (1, 0, True)]
)
def test_only_a_bucket_that_is_ahead_is_a_sign(in_bucket: int, in_meta: int, is_behind: bool) -> None:
    compared = Compared(Incarnation(in_bucket), Incarnation(in_meta))
    assert (compared.is_behind, compared.trouble() is not None) == (is_behind, is_behind)


class TestAccepting:
    async def test_the_loss_is_accepted_once(self, stores: Stores) -> None:
        old = await stores.raise_it()
        await stores.raise_it()
        await stores.set_back(old)
        accepted = await stores.accept()
        assert accepted.number == 3
        assert accepted.branch != old.branch
        assert await stores.numbers() == (3, 3)
        assert await stores.accept() == accepted
        assert (await stores.raise_it()).branch == accepted.branch

    async def test_what_is_not_behind_is_left_as_it_is(self, stores: Stores) -> None:
        raised = await stores.raise_it()
        assert await stores.accept() == raised
        assert await stores.numbers() == (1, 1)

    @pytest.mark.parametrize("step", ["put incarnation", "incarnation put"])
    @pytest.mark.parametrize("applied", [True, False])
    async def test_an_answer_that_did_not_come(self, stores: Stores, step: str, applied: bool) -> None:
        old = await stores.raise_it()
        await stores.raise_it()
        await stores.set_back(old)
        stores.faults.at(step, Fail(OutcomeUnknown("no answer"), applied))
        accepted = await stores.accept()
        assert stores.faults.armed == []
        assert (accepted.number, await stores.numbers()) == (3, (3, 3))

    async def test_one_that_ended_half_way_is_accepted(self, stores: Stores) -> None:
        old = await stores.raise_it()
        await stores.raise_it()
        await stores.set_back(old)
        stores.faults.at("incarnation put", Fail(StoreUnavailable("down")))
        with pytest.raises(StoreUnavailable):
            await stores.accept()
        await check_incarnation(stores.meta, stores.objects)
        assert await stores.numbers() == (3, 2)

    async def test_the_same_backup_again_is_behind_again(self, stores: Stores) -> None:
        old = await stores.raise_it()
        await stores.raise_it()
        await stores.set_back(old)
        first = await stores.accept()
        await stores.set_back(old)
        with pytest.raises(MetaBehind):
            await check_incarnation(stores.meta, stores.objects)
        assert (await stores.accept()).branch != first.branch


class TestKeeper:
    async def test_a_node_that_starts_raises_it(self, stores: Stores) -> None:
        keeper = stores.process().keeper
        await keeper.check()
        assert await stores.numbers() == (0, 0)
        await keeper.start(raise_now=True)
        assert await stores.numbers() == (1, 1)
        await keeper.close()
        assert await stores.numbers() == (1, 1)

    async def test_who_writes_raises_it_and_who_does_not_costs_nothing(self, stores: Stores) -> None:
        process = stores.process()
        await process.keeper.check()
        await process.keeper.start(raise_now=False)
        await stores.clock.advance(0)
        puts = stores.faults.taken["incarnation put"]
        for _ in range(10):
            await stores.clock.advance(EVERY_S)
        assert stores.faults.taken["incarnation put"] == puts
        await process.write()
        await stores.clock.advance(EVERY_S)
        assert await stores.numbers() == (1, 1)
        await stores.clock.advance(EVERY_S)
        assert await stores.numbers() == (1, 1)
        await process.keeper.close()

    async def test_who_has_written_raises_it_once_more_when_it_ends(self, stores: Stores) -> None:
        process = stores.process()
        await process.keeper.start(raise_now=True)
        await process.write()
        await process.keeper.close()
        assert await stores.numbers() == (2, 2)

    async def test_a_store_that_is_away_at_the_end_is_said(
        self, stores: Stores, caplog: pytest.LogCaptureFixture
    ) -> None:
        process = stores.process()
        await process.write()
        stores.faults.at("incarnation get", Fail(StoreUnavailable("it is down")))
        await process.keeper.close()
        assert "it is down" in caplog.text

    async def test_a_store_that_hangs_is_not_waited_for_for_ever(
        self, stores: Stores, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert LAST_RAISE_MAX_S < 10
        monkeypatch.setattr("catena.virtual_log.incarnation.LAST_RAISE_MAX_S", 0.0)
        process = stores.process()
        await process.write()
        stores.faults.at("incarnation get", Stall())
        await process.keeper.close()
        assert "TimeoutError" in caplog.text

    async def test_of_several_that_write_one_raises_it_for_all(self, stores: Stores) -> None:
        processes = [stores.process() for _ in range(3)]
        for process in processes:
            await process.keeper.check()
        for number in range(1, 20):
            for process in processes:
                await process.write()
            for process in processes:
                await process.keeper.tick()
            assert await stores.numbers() == (number, number)

    async def test_what_was_written_is_covered_two_rounds_later(self, stores: Stores) -> None:
        first, second = stores.process(), stores.process()
        for process in (first, second):
            await process.keeper.check()
        await first.write()
        await first.keeper.tick()
        await second.write()
        backup = await stores.numbers()
        await second.keeper.tick()  # the first one has raised it, but not since
        assert await stores.numbers() == backup
        await second.keeper.tick()
        assert (await stores.numbers())[1] > backup[0]

    async def test_a_write_that_comes_while_it_is_raised_waits_for_the_next(self, stores: Stores) -> None:
        process = stores.process()
        await process.write()
        stall = stores.faults.at("incarnation put", Stall())
        ticking = asyncio.ensure_future(process.keeper.tick())
        await stall.reached.wait()
        await process.write()
        stall.let_go()
        await ticking
        await process.keeper.tick()
        assert await stores.numbers() == (2, 2)

    async def test_trouble_is_said_once_and_does_not_end_it(
        self, stores: Stores, caplog: pytest.LogCaptureFixture
    ) -> None:
        process = stores.process()
        await process.keeper.start(raise_now=False)
        await process.write()
        for nth in (1, 2, 3):
            stores.faults.at("incarnation get", Fail(StoreUnavailable("it is down")), nth)
        await stores.clock.advance(0)
        for _ in range(4):
            await stores.clock.advance(EVERY_S)
        assert caplog.text.count("it is down") == 1
        assert await stores.numbers() == (1, 1)
        await process.keeper.close()


class TestReadOnly:
    async def set_back(self, stores: Stores) -> None:
        old = await stores.raise_it()
        await stores.raise_it()
        await stores.set_back(old)

    async def test_a_process_that_starts_with_an_old_meta_store(
        self, stores: Stores, caplog: pytest.LogCaptureFixture
    ) -> None:
        await self.set_back(stores)
        process = stores.process()
        await process.keeper.check()
        assert process.keeper.read_only is not None
        assert BEHIND in process.keeper.read_only
        with pytest.raises(MetaBehind, match="catena doctor"):
            await process.write()
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        await process.keeper.start(raise_now=True)
        await stores.clock.advance(EVERY_S)
        await process.keeper.close()
        assert await stores.numbers() == (1, 2)

    async def test_one_that_runs_while_meta_is_set_back(self, stores: Stores, caplog: pytest.LogCaptureFixture) -> None:
        """It need not have written anything: it remembers what it saw."""
        old = await stores.raise_it()
        process = stores.process()
        await process.keeper.check()
        await process.keeper.start(raise_now=True)
        await stores.clock.advance(0)
        await stores.objects.delete([keys.INCARNATION])
        await stores.set_back(old)
        await stores.clock.advance(EVERY_S)
        assert process.keeper.read_only is not None
        with pytest.raises(MetaBehind):
            await process.write()
        assert caplog.text.count("read-only") == 1
        await process.keeper.close()
        assert await stores.numbers() == (1, 0)

    async def test_one_that_ran_while_an_older_meta_store_was_accepted(self, stores: Stores) -> None:
        old = await stores.raise_it()
        process = stores.process()
        await process.keeper.start(raise_now=True)
        await stores.set_back(old)
        await stores.accept()
        await process.keeper.tick()
        assert process.keeper.read_only is not None
        assert "until it is started again" in process.keeper.read_only
        await process.keeper.close()
        fresh = stores.process()
        await fresh.keeper.check()
        await fresh.write()

    async def test_one_that_only_finds_it_when_it_ends(self, stores: Stores) -> None:
        old = await stores.raise_it()
        await stores.raise_it()
        process = stores.process()
        await process.keeper.check()
        await process.write()
        await stores.set_back(old)
        await process.keeper.close()
        assert process.keeper.read_only is not None
        assert await stores.numbers() == (1, 2)

    async def test_it_stays_read_only_when_the_loss_is_accepted(self, stores: Stores) -> None:
        """What it has in its caches may be of either history."""
        await self.set_back(stores)
        process = stores.process()
        await process.keeper.check()
        await stores.accept()
        await process.keeper.start(raise_now=True)
        with pytest.raises(MetaBehind):
            await process.write()
        await process.keeper.close()
