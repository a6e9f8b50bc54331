"""Several real processes share one SQLite file; some of them are killed."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import IO, TypeAlias

import pytest

from catena.meta.sqlite import SqliteMeta
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.meta import eventually, is_absent

pytestmark = pytest.mark.alone

Process: TypeAlias = subprocess.Popen[str]
Start: TypeAlias = Callable[[str], Process]

CONTENTION_S = 1.5


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "meta.db"


@pytest.fixture
def start(path: Path) -> Iterator[Start]:
    started: list[Process] = []

    def start(work: str) -> Process:
        command = [sys.executable, "-m", "tests.meta.sqlite_worker", work, str(path)]
        started.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def output(process: Process) -> IO[str]:
    assert process.stdout is not None
    return process.stdout


async def test_processes_that_count_together_lose_nothing_and_all_get_their_turn(path: Path, start: Start) -> None:
    processes = [start("count") for _ in range(3)]
    for process in processes:
        assert output(process).readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{CONTENTION_S}\n")
        process.stdin.flush()
    counts = [int(process.communicate(timeout=20)[0]) for process in processes]
    store = SqliteMeta(path, SystemClock(), SystemEntropy())
    found = await store.get("count")
    await store.close()
    assert found is not None
    assert int(found.value) == sum(counts)
    assert min(counts) >= 0.15 * sum(counts), counts


async def test_the_ephemeral_records_of_a_killed_process_expire(path: Path, start: Start) -> None:
    process = start("register")
    assert output(process).readline() == "registered\n"
    store = SqliteMeta(path, SystemClock(), SystemEntropy())
    assert await store.get("nodes/a") is not None
    process.kill()
    await eventually(lambda: is_absent(store, "nodes/a"))
    await store.close()


async def test_a_process_killed_while_it_writes_leaves_whole_groups_and_all_it_acked(path: Path, start: Start) -> None:
    acked: set[str] = set()
    for _ in range(3):
        process = start("pairs")
        for _ in range(40):
            acked.add(output(process).readline().strip())
        process.kill()
        acked.update(output(process).read().split())
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    store = SqliteMeta(path, SystemClock(), SystemEntropy())
    left = [(record.key[-6:], record.value) for record in await store.scan("left/", "left0", limit=1_000_000)]
    right = [(record.key[-6:], record.value) for record in await store.scan("right/", "right0", limit=1_000_000)]
    await store.close()
    assert left == right
    assert acked <= {value.decode() for _, value in left}
