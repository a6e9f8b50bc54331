"""When jobs last ran, as the meta store tells."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from catena.errors import CatenaError, OutcomeUnknown, StoreUnavailable
from catena.meta import keys
from catena.meta.memory import MemoryMeta
from catena.pipeline.last_runs import NOTE_EVERY_MS, GoodRun, LastRuns, last_runs, note_good_run
from catena.pipeline.service import Job, Ran, Service, ShouldStop
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.faults import Fail, Faults, FaultyMeta
from tests.meta.manual_clock import ManualClock


@pytest.fixture
async def meta() -> AsyncIterator[MemoryMeta]:
    store = MemoryMeta(SystemClock())
    yield store
    await store.close()


async def test_the_latest_run_counts_whoever_is_late(meta: MemoryMeta) -> None:
    await note_good_run(meta, "tier", GoodRun(2_000, 1.5, 60_000))
    await note_good_run(meta, "tier", GoodRun(1_000, 9.0, 60_000))
    assert await last_runs(meta) == {"tier": GoodRun(2_000, 1.5, 60_000)}
    await note_good_run(meta, "tier", GoodRun(3_000, 2.5, 60_000))
    await note_good_run(meta, "tables-upkeep", GoodRun(4_000, 0.5, 0))
    assert await last_runs(meta) == {"tier": GoodRun(3_000, 2.5, 60_000), "tables-upkeep": GoodRun(4_000, 0.5, 0)}


async def test_a_run_by_hand_leaves_the_schedule(meta: MemoryMeta) -> None:
    await note_good_run(meta, "tier", GoodRun(1_000, 1.0, 0))
    await note_good_run(meta, "tier", GoodRun(2_000, 1.0, 60_000))
    await note_good_run(meta, "tier", GoodRun(3_000, 2.0, 0))
    assert await last_runs(meta) == {"tier": GoodRun(3_000, 2.0, 60_000)}


async def test_one_that_cannot_be_read_is_written_anew(meta: MemoryMeta) -> None:
    await meta.put(keys.job("tier"), b"what?")
    assert await last_runs(meta) == {}
    await note_good_run(meta, "tier", GoodRun(1_000, 1.0, 0))
    assert await last_runs(meta) == {"tier": GoodRun(1_000, 1.0, 0)}


async def test_a_name_that_could_not_be_a_key(meta: MemoryMeta) -> None:
    with pytest.raises(ValueError, match="can't be the name of a job"):
        await note_good_run(meta, "../tier", GoodRun(1_000, 1.0, 0))


async def test_frequent_runs_are_noted_now_and_then(meta: MemoryMeta) -> None:
    clock = ManualClock()
    runs = LastRuns(meta, clock)
    first_ms = clock.now_ms()
    await runs.note("tables", 0.1, 5_000)
    clock.pause(NOTE_EVERY_MS / 1000 - 1)
    await runs.note("tables", 0.1, 5_000)
    assert (await last_runs(meta))["tables"].at_ms == first_ms
    clock.pause(1)
    await runs.note("tables", 0.1, 5_000)
    assert (await last_runs(meta))["tables"].at_ms == first_ms + NOTE_EVERY_MS


@pytest.mark.parametrize("error", [StoreUnavailable("away"), OutcomeUnknown("who knows")])
async def test_trouble_stops_no_job_and_the_next_run_tells(meta: MemoryMeta, error: CatenaError) -> None:
    faults = Faults()
    faults.at("put tier", Fail(error))
    clock = ManualClock()
    runs = LastRuns(FaultyMeta(meta, faults), clock)
    await runs.note("tier", 1.0, 60_000)
    clock.pause(1)
    await runs.note("tier", 1.0, 60_000)
    assert (await last_runs(meta))["tier"].at_ms == clock.now_ms()


async def test_the_service_notes_good_runs_only(meta: MemoryMeta) -> None:
    outcomes = iter([Ran("partly", "some"), Ran("good")])

    async def run(_should_stop: ShouldStop) -> Ran:
        return next(outcomes)

    service = Service([Job("tier", 60_000, run)], SystemClock(), SystemEntropy(), LastRuns(meta, SystemClock()).note)
    await service.run_once()
    assert await last_runs(meta) == {}
    await service.run_once()
    noted = await last_runs(meta)
    assert noted.keys() == {"tier"}
    assert noted["tier"].every_ms == 60_000
    await service.close()
