"""Tasks on Spark: a row for each plan, a Spark task for each row, an answer for each task.

    createDataFrame -> repartitionById -> mapInArrow -> collect

Only plans and answers go through Spark; the bytes of the log go from the object store to the worker and back.

Tasks of the same name form a pool, and pools share the slots evenly: a table that is to be fresh does not wait behind
all tasks of an audit.

A worker or executor that dies is Spark's business: it tries the task again. After three tries it gives the whole job up
for the sake of one plan, which needs more memory than there is, say. The plans without an answer are then given to
Spark again in two halves, and so on, until that one is alone and fails alone.
"""

from __future__ import annotations

import asyncio
import functools
import pickle
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from catena.errors import RetryLater
from catena.pipeline.spark.engine import EarlyAnswers, engine_of
from catena.pipeline.spark.session import TRIES, first_line, open_spark
from catena.pipeline.spark.table import SparkTable
from catena.pipeline.spark.worker import ANSWERS_SCHEMA, Answer, Job, decode_answer
from catena.pipeline.tasks import OpenObjects, RunTask, run_task
from catena.pipeline.work import Executor, Table, TaskFailed, Usage
from catena.runtime import Entropy, SystemEntropy, shielded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

JOBS_MAX = 8
JOB_BYTES_MAX = 64 << 20
"""Of plans; one that is larger has a job of its own."""
GIVEN_UP_MAX = 32
"""Jobs of one run that Spark gives up, after which all that is left has failed: it is enough to find a few bad plans
among thousands, and not for ever when no worker can start."""
CANCEL_TRIES = 10
CANCEL_PAUSE_S = 1.0


@dataclass(slots=True)
class _Run:
    name: str
    loop: asyncio.AbstractEventLoop
    task: str
    plans: Sequence[bytes]
    done: Callable[[int, bytes | TaskFailed], None]
    results: dict[int, bytes | TaskFailed] = field(default_factory=dict)
    given_up: int = 0
    trouble: Exception | None = None
    """What `done` raised while Spark was at work."""


@dataclass(frozen=True, slots=True)
class _GaveUp:
    error: Exception


class SparkWork:
    """One for each session. Not more than JOBS_MAX runs are at work at the same time; the others wait."""

    def __init__(
        self,
        session: SparkSession,
        open_objects: OpenObjects,
        entropy: Entropy,
        run: RunTask = run_task,
    ) -> None:
        self._session = session
        self._engine = engine_of(session)
        self._store = pickle.dumps(open_objects)
        self._entropy = entropy
        self._run = run
        self._runs: dict[str, _Run] = {}
        self._usage: dict[Executor, Usage] = {}
        self._is_closed = False
        self._inbox = self._engine.inbox(self._deliver)
        self._jobs = ThreadPoolExecutor(JOBS_MAX, thread_name_prefix="catena-spark-job")
        self._control = ThreadPoolExecutor(1, thread_name_prefix="catena-spark-control")

    def close(self) -> None:
        self._is_closed = True
        self._jobs.shutdown()
        self._control.shutdown()

    @property
    def session(self) -> SparkSession:
        """For what else is to be done on the same Spark."""
        return self._session

    @property
    def usage(self) -> Mapping[Executor, Usage]:
        return dict(self._usage)

    async def run(
        self, task: str, plans: Sequence[bytes], done: Callable[[int, bytes | TaskFailed], None]
    ) -> list[bytes | TaskFailed]:
        run = _Run(self._entropy.hex_id(), asyncio.get_running_loop(), task, plans, done)
        self._runs[run.name] = run
        try:
            for numbers in _jobs(plans, self._engine.plans_per_job):
                await self._do(run, numbers)
        finally:
            del self._runs[run.name]
        return [run.results[number] for number in range(len(plans))]

    @asynccontextmanager
    async def table(self, task: str, plans: Sequence[bytes]) -> AsyncIterator[Table]:
        tag = self._entropy.hex_id()
        table = SparkTable(self._session, functools.partial(self._in_thread, tag, task))
        try:
            await table.fill(Job(tag, task, self._run, self._store, None), plans, self._add_usage)
            yield table
        finally:
            await table.close()

    async def _do(self, run: _Run, numbers: Sequence[int]) -> None:
        error = await self._run_job(run, numbers)
        left = [number for number in numbers if number not in run.results]
        if error is None:
            assert not left, f"Spark ended a job without an answer to the plans {left}"
            return
        if self._is_closed or not await asyncio.wrap_future(self._control.submit(self._engine.is_alive)):
            raise RetryLater(f"Spark has ended, and a new session has to be opened: {first_line(error)}") from error
        run.given_up += 1
        if len(left) == 1 or run.given_up > GIVEN_UP_MAX:
            failed = TaskFailed(f"Spark gave it up after {TRIES} tries: {first_line(error)}", False)
            for number in left:
                self._finish(run, number, failed)
        elif left:
            middle = len(left) // 2
            await self._do(run, left[:middle])
            await self._do(run, left[middle:])

    async def _run_job(self, run: _Run, numbers: Sequence[int]) -> Exception | None:
        """Whatever is known of the plans at its end is in the run's results; returned is why Spark gave it up."""
        answers = await self._blocking(run.name, run.task, lambda: self._collect(run, numbers))
        for number, answer in [] if isinstance(answers, _GaveUp) else answers:
            self._answered(run, number, answer)
        if run.trouble is not None:
            raise run.trouble
        return answers.error if isinstance(answers, _GaveUp) else None

    async def _in_thread(self, tag: str, task: str, do: Callable[[], T]) -> T:
        result = await self._blocking(tag, task, do)
        if isinstance(result, _GaveUp):
            message = f"Spark gave it up after {TRIES} tries: {first_line(result.error)}"
            raise RetryLater(message) from result.error
        return result

    async def _blocking(self, tag: str, task: str, do: Callable[[], T]) -> T | _GaveUp:
        """In a thread. Cancelled, it ends what Spark does for it; nobody is there then to catch an error of Spark's,
        so these are returned."""

        def tagged() -> T | _GaveUp:
            try:
                self._engine.begin(tag, task)
                try:
                    return do()
                finally:
                    self._engine.end(tag)
            except _spark_errors() as error:
                return _GaveUp(error)

        if self._is_closed:  # by another that has found Spark gone before
            raise RetryLater("Spark has ended, and a new session has to be opened")
        job = asyncio.wrap_future(self._jobs.submit(tagged))
        try:
            return await shielded(job)
        except asyncio.CancelledError:
            await self._cancel(tag, job)
            raise

    async def _cancel(self, tag: str, job: asyncio.Future[Any]) -> None:
        """More than once: a job that has not begun yet can't be found."""
        for _ in range(CANCEL_TRIES):
            try:
                await asyncio.wrap_future(self._control.submit(self._engine.cancel, tag))
                await asyncio.wait_for(shielded(job), CANCEL_PAUSE_S)
            except TimeoutError:
                continue
            except Exception:
                pass
            return

    def _collect(self, run: _Run, numbers: Sequence[int]) -> list[tuple[int, bytes]]:
        import pyarrow

        rows = pyarrow.table(
            {
                "place": pyarrow.array(range(len(numbers)), pyarrow.int32()),
                "number": pyarrow.array(numbers, pyarrow.int32()),
                "plan": pyarrow.array([run.plans[number] for number in numbers], pyarrow.binary()),
            }
        )
        job = Job(run.name, run.task, self._run, self._store, self._inbox)
        plans = self._session.createDataFrame(rows).repartitionById(len(numbers), "place")
        answers = plans.mapInArrow(job, ANSWERS_SCHEMA).collect()
        return [(row["number"], bytes(row["answer"])) for row in answers]

    def _deliver(self, answers: EarlyAnswers) -> None:
        """In a thread of PySpark's."""
        for name, number, answer in answers:
            run = self._runs.get(name)
            if run is None:
                continue
            try:
                run.loop.call_soon_threadsafe(self._answered_early, run, number, answer)
            except RuntimeError:
                pass  # the loop is closed, and nobody waits any more

    def _answered_early(self, run: _Run, number: int, answer: bytes) -> None:
        if run.name not in self._runs:
            return
        try:
            self._answered(run, number, answer)
        except Exception as error:
            run.trouble = run.trouble or error

    def _answered(self, run: _Run, number: int, data: bytes) -> None:
        if number in run.results:
            return
        answer = decode_answer(data)
        self._add_usage(answer)
        self._finish(run, number, answer.outcome())

    def _add_usage(self, answer: Answer) -> None:
        self._usage[answer.executor] = self._usage.get(answer.executor, Usage()) + answer.usage

    def _finish(self, run: _Run, number: int, result: bytes | TaskFailed) -> None:
        run.results[number] = result
        run.done(number, result)


def _jobs(plans: Sequence[bytes], plans_per_job: int) -> Iterator[list[int]]:
    job: list[int] = []
    size = 0
    for number, plan in enumerate(plans):
        if job and (len(job) == plans_per_job or size + len(plan) > JOB_BYTES_MAX):
            yield job
            job, size = [], 0
        job.append(number)
        size += len(plan)
    if job:
        yield job


def _spark_errors() -> tuple[type[Exception], ...]:
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    return PySparkException, Py4JError, OSError


@asynccontextmanager
async def open_spark_work(
    open_objects: OpenObjects,
    master: str | None = None,
    remote: str | None = None,
    options: Mapping[str, str] | None = None,
    show_log: bool = False,
    run: RunTask = run_task,
) -> AsyncIterator[SparkWork]:
    """A session with its work; the event loop is free while it opens and ends, which may take some seconds each."""
    thread = ThreadPoolExecutor(1, thread_name_prefix="catena-spark-session")
    session = ExitStack()

    def enter() -> SparkWork:
        spark = session.enter_context(open_spark(master, remote, options, show_log))
        work = SparkWork(spark, open_objects, SystemEntropy(), run)
        session.callback(work.close)
        return work

    opening = thread.submit(enter)
    try:
        yield await shielded(asyncio.wrap_future(opening))
    finally:
        # Behind the opening, which goes on if only its caller was cancelled.
        await shielded(asyncio.wrap_future(thread.submit(session.close)))
        thread.shutdown()
