"""Inside of a Python worker of Spark: a process that does tasks, one after the other.

It keeps an event loop and the stores that its tasks work on, so that a task costs no more than its work. Nothing that a
task raises fails Spark's: it is an answer like any other. Spark ends its workers without a word; where one ends by
itself its stores are closed.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import gc
import os
import pickle
import socket
from collections.abc import Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from catena.pipeline.tasks import OpenObjects, RunTask, TaskContext
from catena.pipeline.work import Executor, TaskFailed, Usage, attempt, failure, used
from catena.runtime import SystemClock, SystemEntropy
from catena.runtime.heaps import share_heaps

if TYPE_CHECKING:
    from pyarrow import RecordBatch

PLANS_SCHEMA = "place int, number int, plan binary"
ANSWERS_SCHEMA = "number int, answer binary"
STORES_MAX = 4


class Answer(msgspec.Struct, frozen=True):
    result: bytes | None
    error: str
    is_retriable: bool
    executor: Executor
    usage: Usage

    def outcome(self) -> bytes | TaskFailed:
        return TaskFailed(self.error, self.is_retriable) if self.result is None else self.result


def decode_answer(data: bytes) -> Answer:
    return msgspec.msgpack.decode(data, type=Answer)


@dataclass(frozen=True, slots=True)
class Job:
    """What Spark carries to its workers: rows of plans in, rows of answers out."""

    name: str
    task: str
    run: RunTask
    store: bytes
    """A pickled OpenObjects."""
    inbox: Any
    """An accumulator that takes answers to the driver at the end of each task; None: they come with the last one."""

    def __call__(self, batches: Iterable[RecordBatch]) -> Iterator[RecordBatch]:
        import pyarrow

        for batch in batches:
            for number, plan in zip(batch["number"].to_pylist(), batch["plan"].to_pylist(), strict=True):
                answer = msgspec.msgpack.encode(_this_process().do(self, plan))
                if self.inbox is not None:
                    self.inbox.add([(self.name, number, answer)])
                numbers, answers = pyarrow.array([number], pyarrow.int32()), pyarrow.array([answer], pyarrow.binary())
                yield pyarrow.RecordBatch.from_arrays([numbers, answers], ["number", "answer"])


class WorkerProcess:
    def __init__(self) -> None:
        self._executor = Executor(socket.gethostname(), os.getppid())
        self._runner = asyncio.Runner()
        self._stores: dict[bytes, tuple[AsyncExitStack, TaskContext]] = {}
        self._is_warm = False

    def do(self, job: Job, plan: bytes) -> Answer:
        answer = self._runner.run(self._do(job, plan))
        if not self._is_warm:
            # What is here now stays. Spark collects garbage after each task, which would look at all of it.
            gc.collect()
            gc.freeze()
            self._is_warm = True
        return answer

    def close(self) -> None:
        for opened, _ in self._stores.values():
            self._runner.run(opened.aclose())
        self._stores.clear()
        self._runner.close()

    async def _do(self, job: Job, plan: bytes) -> Answer:
        try:
            context = await self._open(job.store)
        except Exception as error:
            return self._answer(failure(error), Usage(tasks=1))
        before = context.counted.snapshot()
        outcome = await attempt(job.run, job.task, context, plan)
        return self._answer(outcome, used(before, context.counted.snapshot()))

    async def _open(self, store: bytes) -> TaskContext:
        if store not in self._stores:
            while len(self._stores) >= STORES_MAX:
                opened, _ = self._stores.pop(next(iter(self._stores)))
                await opened.aclose()
            open_objects: OpenObjects = pickle.loads(store)
            clock, entropy = SystemClock(), SystemEntropy()
            opened = AsyncExitStack()
            objects, counted = await opened.enter_async_context(open_objects(clock, entropy))
            self._stores[store] = opened, TaskContext(objects, clock, entropy, counted)
        return self._stores[store][1]

    def _answer(self, outcome: bytes | TaskFailed, usage: Usage) -> Answer:
        if isinstance(outcome, TaskFailed):
            return Answer(None, outcome.error, outcome.is_retriable, self._executor, usage)
        return Answer(outcome, "", False, self._executor, usage)


@functools.cache
def _this_process() -> WorkerProcess:
    share_heaps()
    process = WorkerProcess()
    atexit.register(process.close)
    return process
