"""What becomes of a job is named by who does it, and a claim can be everyone's."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from catena.errors import Conflict
from catena.meta import keys
from catena.types import ABSENT, TopicId, TopicPartition
from catena.virtual_log import chain as chains
from sim.chaos import Chaos, Tally
from sim.history import History
from sim.loop import Chance, Process, SimLoop
from sim.pipeline_steps import PIPELINE_STEPS, VACUUM, PipelineMeta
from sim.runtime import SimClock
from sim.scenario import ProcessFaults, StoreFaults, WatchFaults
from sim.stores import ObservedMeta, Wire, at_once

TP = TopicPartition("t", TopicId("1" * 32), 0)


class Bench:
    """Two processes on one store."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.tally = Tally()
        self.store = ObservedMeta(SimClock(loop))
        self.store.observer = lambda _key, _old, _new: None
        self.one, self.other = Process("driver 1"), Process("driver 2")
        self._begun: dict[str, Process | None] = {}

    def meta(self, claims: bool) -> PipelineMeta:
        random, history = Chance(1), History()
        chaos = Chaos(self.loop, random, ProcessFaults(), history, self.tally)
        wire = Wire("meta", self.loop, random, StoreFaults(), WatchFaults(), chaos, history, self.tally)
        return PipelineMeta(self.store, True, wire, self._begun, claims)

    def put(self, process: Process, key: str, value: bytes, claims: bool = True) -> None:
        """Created if it is not there, else replaced."""
        meta = self.meta(claims)
        found = at_once(self.store.get(key))

        async def put() -> None:
            await meta.put(key, value, ABSENT if found is None or key.endswith("claim") else found.version)

        async def main() -> None:
            await self.loop.create_task(put(), context=process.context.copy())

        self.loop.run(main())


@pytest.fixture
def bench() -> Iterator[Bench]:
    loop = SimLoop(seed=1)
    yield Bench(loop)
    loop.bury()


@pytest.mark.parametrize("recovers", [False, True])
def test_the_end_of_a_job_is_named_by_who_began_it(bench: Bench, recovers: bool) -> None:
    who = bench.other if recovers else bench.one
    begun = chains.begin_tiering(chains.initial("diskless"), "job")
    abandoned = chains.abandon_tiering(begun, "job")
    finished = chains.finish_tiering(begun, "job", 0, 3, {"manifest": "m"})
    for end in (abandoned, finished):
        bench.put(bench.one, keys.chain(TP), msgspec.json.encode(begun))
        bench.put(who, keys.chain(TP), msgspec.json.encode(end))
    name = "recover" if recovers else "tier"
    assert bench.tally.steps == {"chain:tier begin": 2, f"chain:{name} abandon": 1, f"chain:{name} finish": 1}
    assert set(bench.tally.steps) <= set(PIPELINE_STEPS)


def test_a_claim_is_one_drivers_or_everyones(bench: Bench) -> None:
    bench.put(bench.one, keys.compactor_claim(TP), b"")
    with pytest.raises(Conflict):
        bench.put(bench.other, keys.compactor_claim(TP), b"")
    bench.put(bench.other, keys.compactor_claim(TP), b"", claims=False)
    bench.put(bench.one, keys.compactor_claim(TP), b"", claims=False)


def test_what_vacuum_reads_has_a_name(bench: Bench) -> None:
    meta = bench.meta(claims=True)
    keys_read = (keys.control(TP), keys.index_prefix(TP), keys.chain(TP), keys.topic("t"))

    def names(process: Process) -> list[str]:
        return [process.context.copy().run(meta._name_read, key) for key in keys_read]

    assert names(bench.one) == [""] * len(keys_read)
    assert names(Process(f"{VACUUM}0#1")) == ["vacuum:read control", "vacuum:read index", "vacuum:read chain", ""]
