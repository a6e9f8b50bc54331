"""The bad wire: what each fate does to the caller and to the store, and what a struck process leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from catena.errors import Conflict, OutcomeUnknown, StoreUnavailable
from catena.meta import keys
from catena.meta.base import Put, Record, Session
from catena.types import ABSENT, TopicId, TopicPartition
from sim.chaos import Blow, Chaos, Moment, Tally
from sim.history import History
from sim.loop import Chance, Process, SimLoop
from sim.runtime import SimClock
from sim.scenario import ProcessFaults, StoreFaults, WatchFaults
from sim.stores import LATE_S, TIMEOUT_S, FaultyMeta, FaultyObjects, ObservedMeta, ObservedObjects, Wire, at_once

KEY = "llog/cluster"
STEP = "cluster:create"
TP, OTHER = (TopicPartition("t", TopicId("1" * 32), number) for number in range(2))


class Bench:
    """One process, one store of each kind, and the faults that a test asks for."""

    def __init__(self, loop: SimLoop, seed: int = 1) -> None:
        self.loop = loop
        self.random = Chance(seed)
        self.process = Process("p")
        self.tally = Tally()
        self.dead: list[Process] = []
        self.store = ObservedMeta(SimClock(loop))
        self.store.observer = lambda _key, _old, _new: None
        self.blobs = ObservedObjects(SimClock(loop))

    def meta(
        self, faults: StoreFaults, strikes: ProcessFaults | None = None, watches: WatchFaults | None = None
    ) -> FaultyMeta:
        return FaultyMeta(self.store, True, self.wire(faults, strikes, watches))

    def objects(self, faults: StoreFaults) -> FaultyObjects:
        return FaultyObjects(self.blobs, self.wire(faults))

    def wire(
        self, faults: StoreFaults, strikes: ProcessFaults | None = None, watches: WatchFaults | None = None
    ) -> Wire:
        history = History(now=self.loop.time)
        chaos = Chaos(self.loop, self.random, strikes or ProcessFaults(), history, self.tally)
        chaos.start(self.dead.append)
        return Wire("meta", self.loop, self.random, faults, watches or WatchFaults(), chaos, history, self.tally)

    def in_process(self, work: Coroutine[Any, Any, None]) -> None:
        self.loop.create_task(work, context=self.process.context.copy())

    def stored(self) -> Record | None:
        return at_once(self.store.get(KEY))


@pytest.fixture
def bench() -> Iterator[Bench]:
    loop = SimLoop(seed=1)
    yield Bench(loop)
    loop.bury()


def run(bench: Bench, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    bench.loop.run(main())


def test_served_means_applied_and_answered(bench: Bench) -> None:
    async def main() -> None:
        meta = bench.meta(StoreFaults())
        version = await meta.put(KEY, b"v", ABSENT)
        assert await meta.get(KEY) == Record(KEY, b"v", version)
        with pytest.raises(Conflict):
            await meta.put(KEY, b"w", ABSENT)
        assert bench.loop.time() > 0

    run(bench, main)


def test_refused_means_never_applied(bench: Bench) -> None:
    async def main() -> None:
        with pytest.raises(StoreUnavailable):
            await bench.meta(StoreFaults(refused=1)).put(KEY, b"v")
        await bench.loop.sleep(LATE_S * 2)
        assert bench.stored() is None

    run(bench, main)


def test_a_lost_request_is_unknown_and_never_applied(bench: Bench) -> None:
    async def main() -> None:
        with pytest.raises(OutcomeUnknown):
            await bench.meta(StoreFaults(lost_request=1)).put(KEY, b"v")
        await bench.loop.sleep(LATE_S * 2)
        assert bench.stored() is None

    run(bench, main)


def test_a_lost_answer_is_unknown_and_applied(bench: Bench) -> None:
    async def main() -> None:
        with pytest.raises(OutcomeUnknown):
            await bench.meta(StoreFaults(lost_answer=1)).put(KEY, b"v")
        assert bench.stored() is not None

    run(bench, main)


def test_a_late_write_is_unknown_and_applied_after_the_caller_was_told(bench: Bench) -> None:
    async def main() -> None:
        with pytest.raises(OutcomeUnknown):
            await bench.meta(StoreFaults(late=1)).put(KEY, b"v")
        assert bench.stored() is None
        await bench.loop.sleep(LATE_S + TIMEOUT_S)
        assert bench.stored() is not None

    run(bench, main)


@pytest.mark.parametrize("faults", [StoreFaults(lost_answer=1), StoreFaults(late=1)])
def test_of_several_groups_some_may_be_applied(faults: StoreFaults) -> None:
    counts = set()
    for seed in range(20):
        loop = SimLoop(seed)
        bench = Bench(loop, seed)

        async def main(bench: Bench = bench) -> None:
            with pytest.raises(OutcomeUnknown):
                await bench.meta(faults).transact([[Put(f"{KEY}/{number}", b"v")] for number in range(3)])
            counts.add(len(at_once(bench.store.scan(KEY, "m"))))
            await bench.loop.sleep(LATE_S * 2)
            assert faults.late == 0 or len(at_once(bench.store.scan(KEY, "m"))) == 3

        loop.run(main())
        loop.bury()
    assert counts >= {1, 2, 3}


def test_a_store_that_is_down_refuses_reads_and_never_applies_writes(bench: Bench) -> None:
    async def main() -> None:
        meta = bench.meta(StoreFaults(outage=1))
        with pytest.raises(StoreUnavailable):
            await meta.get(KEY)
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):
            await meta.put(KEY, b"v")
        assert bench.stored() is None

    run(bench, main)


def test_a_create_may_meet_its_own_first_attempt(bench: Bench) -> None:
    async def main() -> None:
        with pytest.raises(Conflict):
            await bench.objects(StoreFaults(own_conflict=1)).put("a", [b"x"], ABSENT)
        assert at_once(bench.blobs.get("a")).data == b"x"
        await bench.objects(StoreFaults(own_conflict=1)).delete(["a"])  # which expects nothing
        assert bench.blobs.peek("a") is None

    run(bench, main)


def test_of_objects_that_are_deleted_together_some_may_be_gone_and_each_is_told_of() -> None:
    counts = set()
    for seed in range(20):
        loop = SimLoop(seed)
        bench = Bench(loop, seed)
        gone: list[str] = []
        bench.blobs.observer = gone.append

        async def main(bench: Bench = bench, gone: list[str] = gone) -> None:
            for key in ("a", "b", "c"):
                await bench.objects(StoreFaults()).put(key, [b"x"])
            with pytest.raises(OutcomeUnknown):
                await bench.objects(StoreFaults(lost_answer=1)).delete(["a", "b", "c", "d"])
            assert sorted(gone) == [key for key in ("a", "b", "c") if bench.blobs.peek(key) is None]
            counts.add(len(gone))

        loop.run(main())
        loop.bury()
    assert counts >= {1, 2, 3}


def test_objects_are_what_they_were_when_they_were_sent(bench: Bench) -> None:
    async def main() -> None:
        buffer = bytearray(b"before")
        objects = bench.objects(StoreFaults())
        task = bench.loop.create_task(objects.put("a", [buffer]))
        while bench.tally.steps["object:put"] == 0:
            await bench.loop.sleep(0)
        buffer[:] = b"after!"
        await task
        assert (await objects.get("a")).data == b"before"
        assert [info.key async for info in objects.list("")] == ["a"]

    run(bench, main)


def strikes(blow: Blow) -> ProcessFaults:
    return ProcessFaults(target_strike=1, targets=(STEP,), pauses=1 if blow is Blow.PAUSE else 0, strikes_max=1)


@pytest.mark.parametrize("blow", Blow)
def test_a_process_is_struck_before_a_step_or_after_it(blow: Blow) -> None:
    """Over some seeds both moments come up; what the store holds tells which it was."""
    seen = set()
    for seed in range(20):
        loop = SimLoop(seed)
        bench = Bench(loop, seed)
        answers: list[str] = []

        async def main(bench: Bench = bench, answers: list[str] = answers) -> None:
            meta = bench.meta(StoreFaults(), strikes(blow))

            async def write() -> None:
                await meta.put(KEY, b"v")
                answers.append("answered")

            bench.in_process(write())
            await bench.loop.sleep(0.01)
            applied = bench.stored() is not None
            ((_, moment, struck),) = bench.tally.strikes
            assert struck == blow.value
            assert applied == (moment == Moment.APPLIED.value)
            assert (bench.dead == [bench.process]) == (blow is Blow.CRASH)
            await bench.loop.sleep(100)
            assert answers == ([] if blow is Blow.CRASH else ["answered"])
            seen.add(moment)

        loop.run(main())
        loop.bury()
    assert seen == {"before", "applied"}


@pytest.mark.parametrize("blow", Blow)
def test_who_reads_is_struck_where_the_read_has_a_name(blow: Blow) -> None:
    """Before the store is asked, or with the answer in hand."""
    seen = set()
    for seed in range(20):
        loop = SimLoop(seed)
        bench = Bench(loop, seed)
        wire = bench.wire(StoreFaults(), strikes(blow))

        async def main(bench: Bench = bench, wire: Wire = wire) -> None:
            served, answers = [], []

            async def read() -> None:
                await wire.read(lambda: None)
                await wire.read(lambda: served.append("served"), STEP)
                answers.append("answered")

            bench.in_process(read())
            await bench.loop.sleep(100)
            ((_, moment, struck),) = bench.tally.strikes
            assert struck == blow.value
            assert bool(served) == (moment == Moment.APPLIED.value or blow is Blow.PAUSE)
            assert bool(answers) == (blow is Blow.PAUSE)
            seen.add(moment)

        loop.run(main())
        loop.bury()
    assert seen == {"before", "applied"}


def test_what_a_process_sent_before_it_died_is_still_applied(bench: Bench) -> None:
    async def main() -> None:
        meta = bench.meta(StoreFaults())

        async def write() -> None:
            await meta.put(KEY, b"v")
            raise AssertionError("a dead process went on")

        bench.in_process(write())
        while bench.tally.steps[STEP] == 0:
            await bench.loop.sleep(0)
        bench.loop.crash(bench.process)
        assert bench.stored() is None
        await bench.loop.sleep(1)
        assert bench.stored() is not None

    run(bench, main)


def test_a_watch_wakes_for_changes(bench: Bench) -> None:
    async def main() -> None:
        meta = bench.meta(StoreFaults())
        watch = meta.watch("llog/")
        await meta.put(KEY, b"v")
        await watch.changed()
        watch.close()

    run(bench, main)


def test_a_watch_wakes_for_nothing_and_misses_changes(bench: Bench) -> None:
    async def main() -> None:
        nervous = bench.meta(StoreFaults(), watches=WatchFaults(spurious=1)).watch("llog/")
        await nervous.changed()
        meta = bench.meta(StoreFaults(), watches=WatchFaults(lost=1))
        deaf = bench.loop.create_task(meta.watch("llog/").changed())
        await bench.loop.sleep(1)
        await meta.put(KEY, b"v")
        await bench.loop.sleep(100)
        assert not deaf.done()

    run(bench, main)


def test_a_session_is_kept_alive_over_the_wire(bench: Bench) -> None:
    async def main() -> None:
        meta = bench.meta(StoreFaults())
        session = await meta.session(ttl_ms=1000)
        await meta.put(KEY, b"v", ABSENT, session)
        await bench.loop.sleep(10)
        assert session.alive
        assert bench.stored() is not None
        assert bench.tally.steps["session:renew"] >= 10
        await session.close()
        assert bench.stored() is None

    run(bench, main)


@pytest.mark.parametrize("faults", [StoreFaults(refused=1), StoreFaults(lost_request=1)])
def test_a_session_whose_renewals_fail_is_lost_to_its_owner_first(bench: Bench, faults: StoreFaults) -> None:
    async def main() -> None:
        wire = bench.wire(StoreFaults())
        meta = FaultyMeta(bench.store, True, wire)
        session = await meta.session(ttl_ms=1000)
        await meta.put(KEY, b"v", ABSENT, session)
        wire.become(faults)
        while session.alive:
            assert bench.stored() is not None
            await bench.loop.sleep(0.01)
        await bench.loop.sleep(0.1)
        assert bench.stored() is None

    run(bench, main)


@pytest.mark.parametrize("blow", Blow)
def test_a_session_ends_while_its_process_is_dead_or_paused(bench: Bench, blow: Blow) -> None:
    sessions: list[Session] = []

    async def main() -> None:
        meta = bench.meta(StoreFaults())

        async def hold() -> None:
            sessions.append(await meta.session(ttl_ms=1000))
            await meta.put(KEY, b"v", ABSENT, sessions[0])

        bench.in_process(hold())
        await bench.loop.sleep(0.5)
        assert bench.stored() is not None
        if blow is Blow.CRASH:
            bench.loop.crash(bench.process)
        else:
            bench.loop.pause(bench.process)
        await bench.loop.sleep(5)
        assert bench.stored() is None
        bench.loop.resume(bench.process)
        await bench.loop.sleep(5)
        assert not sessions[0].alive
        assert bench.stored() is None

    run(bench, main)


def test_the_writer_of_an_index_entry_is_asked_when_it_looked_at_the_chain(bench: Bench) -> None:
    looks: list[int | None] = []
    bench.store.index_observer = lambda _key, looked: looks.append(looked)

    async def main() -> None:
        meta = bench.meta(StoreFaults())
        await meta.put(keys.index(TP, 0), b"v")
        await meta.get(keys.chain(OTHER))
        await meta.put(keys.index(TP, 1), b"v")
        await meta.get(keys.chain(TP))
        await meta.put(keys.index(TP, 2), b"v")
        await meta.put(keys.index(TP, 3), b"v")
        with pytest.raises(Conflict):
            await meta.put(keys.index(TP, 3), b"v", ABSENT)

    run(bench, main)
    assert looks == [None, None, 2, 2]
