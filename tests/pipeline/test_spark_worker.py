"""What a worker keeps between its tasks, without Spark around it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from catena.config import Settings
from catena.objects.base import ObjectStore
from catena.objects.counted import CountedObjects
from catena.objects.memory import MemoryObjects
from catena.pipeline.spark.worker import STORES_MAX, Job, WorkerProcess, decode_answer
from catena.pipeline.work import TaskFailed, Usage
from catena.runtime import Clock, Entropy
from catena.store_spec import StoreSpec
from tests.pipeline.deeds import run_deed

opened: list[str] = []
closed: list[str] = []


class Noted(msgspec.Struct, frozen=True):
    """Writes down when it is opened and closed."""

    name: str

    @asynccontextmanager
    async def __call__(self, clock: Clock, _: Entropy) -> AsyncIterator[tuple[ObjectStore, CountedObjects]]:
        opened.append(self.name)
        counted = CountedObjects(MemoryObjects(clock), clock)
        yield counted, counted
        closed.append(self.name)


@pytest.fixture
def process() -> Iterator[WorkerProcess]:
    opened.clear()
    closed.clear()
    process = WorkerProcess()
    yield process
    process.close()


def job(task: str, store: str) -> Job:
    return Job("run", task, run_deed, pickle.dumps(Noted(store)), None)


def test_a_store_is_opened_once(process: WorkerProcess) -> None:
    answers = [process.do(job("echo", "a"), plan).outcome() for plan in (b"1", b"2", b"3")]
    assert answers == [b"1", b"2", b"3"]
    assert (opened, closed) == (["a"], [])


def test_few_stores_are_kept(process: WorkerProcess) -> None:
    names = [str(number) for number in range(STORES_MAX + 2)]
    for name in names:
        process.do(job("echo", name), b"")
    assert (opened, closed) == (names, names[:2])
    process.close()
    assert sorted(closed) == names


def test_each_answer_has_its_own_counts(process: WorkerProcess) -> None:
    assert process.do(job("echo", "a"), b"").usage == Usage(tasks=1)
    for _ in range(2):
        answer = process.do(job("meet", "a"), b"me me")
        assert answer.outcome() == b"met"
        assert answer.usage == Usage(tasks=1, requests={"put": 1, "list": 1})


@pytest.mark.parametrize(
    ("task", "outcome"), [("echo", b"this"), ("fail", TaskFailed("ValueError: this is no good", False))]
)
def test_answers_travel_as_bytes(process: WorkerProcess, task: str, outcome: bytes | TaskFailed) -> None:
    answer = process.do(job(task, "a"), b"this")
    assert decode_answer(msgspec.msgpack.encode(answer)) == answer
    assert answer.outcome() == outcome
    assert answer.executor.pid == os.getppid()


AT_EXIT = """
import pickle, sys
from catena.pipeline.spark.worker import Job
from catena.store_spec import StoreSpec
from tests.pipeline.deeds import run_deed
import pyarrow
job = Job("run", "copy", run_deed, pickle.dumps(StoreSpec(sys.argv[1])), None)
rows = pyarrow.RecordBatch.from_pydict({"place": [0], "number": [7], "plan": [b"from to"]})
[answer] = job([rows])
print(answer["number"].to_pylist())
"""


def test_a_worker_that_ends_by_itself_ends_well(tmp_path: Path) -> None:
    """Its threads, of a disk here, would hold it."""
    pytest.importorskip("pyarrow")
    store = StoreSpec.of(Settings(data=str(tmp_path)))
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "from").write_bytes(bytes(1000))
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-W", "error", "-c", AT_EXIT, store.objects_url]
    ended = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "[7]\n", "")
    assert (tmp_path / "objects" / "to").stat().st_size == 500
