"""Tasks on real Spark, local: two at once, three tries."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from catena.objects.base import ObjectStore
from catena.pipeline.spark import work as spark_work
from catena.pipeline.spark.session import open_spark
from catena.pipeline.spark.work import SparkWork, open_spark_work
from catena.pipeline.tasks import probe
from catena.pipeline.work import TaskFailed, Usage
from catena.runtime import SystemEntropy
from catena.store_spec import StoreSpec
from tests.clients.waiting import until
from tests.pipeline.conftest import LOCAL, Sparks, deeds_on
from tests.pipeline.deeds import Seen
from tests.pipeline.test_work import Done

PATIENCE_S = 60.0


async def started(store: StoreSpec, count: int) -> list[int]:
    """The processes of so many waiting tasks."""
    folder = Path(store.objects_url.partition(":")[2], "started")

    def look() -> list[int] | None:
        pids = [int(path.read_text()) for path in folder.glob("*")]
        return pids if len(pids) >= count else None

    return await asyncio.to_thread(until, look, f"{count} tasks have started")


async def gone(pid: int) -> None:
    await asyncio.to_thread(until, lambda: not Path(f"/proc/{pid}").exists(), f"process {pid} is gone")


async def test_results_are_in_the_order_of_the_plans(work: SparkWork) -> None:
    plans, done = [b"plan %d" % number for number in range(10)], Done()
    assert await work.run("echo", plans, done) == plans
    assert [done[number] for number in range(10)] == plans


async def test_nothing_to_do(work: SparkWork) -> None:
    assert await work.run("echo", [], Done()) == []


async def test_tasks_run_in_processes_of_their_own_that_stay(sparks: Sparks, store: StoreSpec, work: SparkWork) -> None:
    probes = SparkWork(sparks.get(LOCAL), store, SystemEntropy())
    results = await probes.run("probe", [b"a", b"b"], Done())
    probes.close()
    probed = [probe.decode(result) for result in results if isinstance(result, bytes)]
    assert [each.echo for each in probed] == [b"a", b"b"]
    assert os.getpid() not in [each.pid for each in probed]
    looks = [await work.run("look around", [b""] * 8, Done()) for _ in range(2)]
    first, second = ([msgspec.json.decode(r, type=Seen) for r in run if isinstance(r, bytes)] for run in looks)
    assert {seen.pid for seen in second} <= {seen.pid for seen in first}
    assert all(seen.frozen > 10_000 for seen in second), "garbage is collected after each task, of all there is"


async def test_warm_tasks_cost_little(work: SparkWork) -> None:
    await work.run("echo", [b""] * 2, Done())
    loop = asyncio.get_running_loop()
    began = loop.time()
    await work.run("echo", [b""] * 64, Done())
    assert (loop.time() - began) / 64 < 0.25, "4 ms on an idle machine, 28 ms without sockets and freezing"


async def test_what_a_task_raises_is_its_result(work: SparkWork) -> None:
    done = Done()
    results = await work.run("fail", [b"this", b"that"], done)
    assert results == [TaskFailed(f"ValueError: {word} is no good", False) for word in ("this", "that")]
    assert dict(done) == dict(enumerate(results))
    assert await work.run("fail later", [b""], Done()) == [TaskFailed("StoreUnavailable: the store is down", True)]
    damaged = TaskFailed("Corrupt: object x is damaged", False)
    assert await work.run("find it damaged", [b"x"], Done()) == [damaged]


async def test_a_store_that_cannot_be_opened_is_a_result(sparks: Sparks) -> None:
    work = deeds_on(sparks.get(LOCAL), StoreSpec("nfs:elsewhere"))
    [result] = await work.run("echo", [b""], Done())
    work.close()
    assert isinstance(result, TaskFailed)
    assert result.error.startswith("ConfigError: setting objects: 'nfs:elsewhere' is no object store")


async def test_done_is_told_while_others_are_at_work(work: SparkWork, objects: ObjectStore) -> None:
    """The second task goes on only after the first is known to be done; and the loop is free to say so."""
    thread, told, first_done = threading.get_ident(), [], asyncio.Event()

    def done(number: int, _: bytes | TaskFailed) -> None:
        assert threading.get_ident() == thread
        told.append(number)
        first_done.set()

    run = asyncio.create_task(work.run("wait", [b"go/0", b"go/1"], done))
    await objects.put("go/0", [b""])
    async with asyncio.timeout(PATIENCE_S):
        await first_done.wait()
    assert told == [0]
    await objects.put("go/1", [b""])
    assert await run == [b"went", b"went"]
    assert told == [0, 1]


async def test_what_done_raises_is_raised(work: SparkWork) -> None:
    def done(*_: object) -> None:
        raise LookupError("nobody knows this plan")

    with pytest.raises(LookupError, match="nobody knows this plan"):
        await work.run("echo", [b""], done)
    assert await work.run("echo", [b"as ever"], Done()) == [b"as ever"]


async def test_cancelled_it_ends_its_tasks(work: SparkWork, store: StoreSpec) -> None:
    run = asyncio.create_task(work.run("wait", [b"started/0", b"started/1", b"started/2"], Done()))
    pids = await started(store, 2)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    for pid in pids:
        await gone(pid)
    assert await work.run("echo", [b"as ever"], Done()) == [b"as ever"]
    assert len(await started(store, 2)) == 2, "the third never began"


async def test_two_runs_at_the_same_time(work: SparkWork) -> None:
    runs = [work.run("echo", [b"%d" % (10 * run + plan) for plan in range(4)], Done()) for run in range(2)]
    assert await asyncio.gather(*runs) == [[b"0", b"1", b"2", b"3"], [b"10", b"11", b"12", b"13"]]


async def test_a_run_does_not_wait_for_all_that_came_before_it(
    work: SparkWork, store: StoreSpec, objects: ObjectStore
) -> None:
    """Two slots, and ten tasks that are in no hurry: whenever one of them ends, those of another name come first. If
    Spark served who came first, nine of them would have to end."""
    waits = [b"started/%d go/%d" % (number, number) for number in range(10)]
    slow = asyncio.create_task(work.run("wait", waits, Done()))
    await started(store, 2)
    quick = asyncio.create_task(work.run("echo", [b"x"], Done()))
    for number in range(8):
        if quick.done():
            break
        await objects.put(f"go/{number}", [b""])
        await asyncio.wait([quick], timeout=2)
    assert quick.done()
    for number in range(10):
        await objects.put(f"go/{number}", [b""])
    assert (await quick, await slow) == ([b"x"], [b"went"] * 10)


async def test_a_worker_that_dies_is_replaced(work: SparkWork) -> None:
    plans = [b"lives", b"dies", b"lives too"]
    assert await work.run("die once", plans, Done()) == plans


async def test_a_plan_that_always_kills_its_worker_fails_alone(work: SparkWork) -> None:
    """Spark gives the job up because of it while another plan is still at work."""
    plans, done = [b"dies", b"waits", b"lives"], Done()
    failed, *others = await work.run("die", plans, done)
    assert others == plans[1:]
    assert isinstance(failed, TaskFailed)
    assert failed.error.startswith("Spark gave it up after 3 tries: ")
    assert "\n" not in failed.error
    assert dict(done) == dict(enumerate([failed, *others]))


async def test_it_is_not_tried_for_ever(work: SparkWork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_work, "GIVEN_UP_MAX", 0)
    results = await work.run("die", [b"dies"] * 2, Done())
    assert all(isinstance(result, TaskFailed) for result in results)


async def test_many_plans_are_several_jobs(work: SparkWork, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_work, "JOB_BYTES_MAX", 10)
    plans = [b"12345678", b"1", b"1234567890123", b"12", b"123"]
    assert list(spark_work._jobs(plans, 100)) == [[0, 1], [2], [3, 4]]
    assert list(spark_work._jobs(plans, 1)) == [[0], [1], [2], [3], [4]]
    assert await work.run("echo", plans, Done()) == plans


async def test_what_the_store_was_asked(work: SparkWork, objects: ObjectStore) -> None:
    await objects.put("from", [bytes(1000)])
    assert work.usage == {}
    await work.run("copy", [b"from to/%d" % number for number in range(4)], Done())
    assert list(work.usage.values()) == [Usage(4, 2000, 2000, {"range_get": 4, "put": 4})]
    [executor] = work.usage
    assert executor.pid != os.getpid()
    assert [info.size async for info in objects.list("to/")] == [500] * 4


class TestConnect:
    """The same through Spark Connect, where there are no accumulators and no SparkContext."""

    @pytest.fixture
    async def remote_work(self, sparks: Sparks, store: StoreSpec) -> AsyncIterator[SparkWork]:
        with open_spark(remote=sparks.remote) as session:
            work = deeds_on(session, store)
            yield work
            work.close()

    async def test_results_and_failures(self, remote_work: SparkWork) -> None:
        plans, done = [b"lives", b"dies", b"lives too"], Done()
        assert await remote_work.run("die once", plans, done) == plans
        assert len(done) == 3
        assert sum(usage.tasks for usage in remote_work.usage.values()) == 3
        assert await remote_work.run("fail", [b"it"], Done()) == [TaskFailed("ValueError: it is no good", False)]

    async def test_cancelled_it_ends_its_tasks(self, remote_work: SparkWork, store: StoreSpec) -> None:
        run = asyncio.create_task(remote_work.run("wait", [b"started/0"], Done()))
        [pid] = await started(store, 1)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await gone(pid)

    async def test_session_and_work_in_one(self, sparks: Sparks, store: StoreSpec) -> None:
        async with open_spark_work(store, remote=sparks.remote) as work:
            [result] = await work.run("probe", [b"hello"], Done())
        assert isinstance(result, bytes)
        assert probe.decode(result).echo == b"hello"
