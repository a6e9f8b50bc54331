"""A real process is killed, or stopped and woken up, at a write of a job: another one goes on, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import catena
from catena.config import load
from catena.embedded import open_log
from catena.meta import keys

RECORDS = 6


def begin(data: Path, at: int, how: str = "kill", when: str = "before") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.pipeline.mortal_driver", str(data), str(at), how, when]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2])


def finish(data: Path) -> list[str]:
    """A driver that nothing happens to: how many steps it took, and what came of it."""
    process = begin(data, 0)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    return out.split()


async def fill(data: Path, *values: str) -> None:
    async with catena.open(data) as log:
        if not await log.topics():
            await log.create_topic("t")
        for value in values:
            await log.append("t", value)


async def content(data: Path) -> list[str]:
    async with open_log(load(data=str(data))) as log:
        return [(record.value or b"").decode() async for record in log.read("t")]


async def left_behind(data: Path) -> list[str]:
    """What of a job is in the meta store."""
    async with open_log(load(data=str(data))) as log:
        tp = (await log.topic("t")).partition(0)
        found = [await log.stores.meta.get(key) for key in (keys.compaction(tp), keys.compactor_claim(tp))]
        return [record.key for record in found if record is not None]


async def test_a_driver_that_is_killed(tmp_path: Path) -> None:
    values = [f"{number}" + "x" * 500 for number in range(RECORDS)]
    await fill(tmp_path / "whole", *values)
    steps = int(finish(tmp_path / "whole")[0])
    assert steps >= 9
    for at in range(1, steps + 1):
        data = tmp_path / f"{at}"
        await fill(data, *values)
        process = begin(data, at, "kill", "after" if at % 2 else "before")
        process.communicate(timeout=60)
        assert process.returncode == -signal.SIGKILL, at
        assert await content(data) == values, at
        await expire_claim(data)
        finish(data)
        assert await content(data) == values, at
        assert await left_behind(data) == [], at


async def expire_claim(data: Path) -> None:
    """Its session would do so in half a minute."""
    async with open_log(load(data=str(data))) as log:
        await log.stores.meta.delete(keys.compactor_claim((await log.topic("t")).partition(0)))


async def test_a_driver_that_sleeps_and_wakes_up(tmp_path: Path) -> None:
    values = [f"{number}" + "x" * 500 for number in range(RECORDS)]
    await fill(tmp_path / "whole", *values)
    steps = int(finish(tmp_path / "whole")[0])
    # A step that holds a lock of the database would hold up the others, and none does: each is a transaction.
    for at in range(1, steps + 1, 2):
        data = tmp_path / f"{at}"
        await fill(data, *values)
        sleeper = begin(data, at, "stop", "after" if at % 4 == 1 else "before")
        wait_until_stopped(sleeper.pid)
        await expire_claim(data)
        for number in range(2):
            finish(data)
            await fill(data, f"more {number}")
        os.kill(sleeper.pid, signal.SIGCONT)
        out, _ = sleeper.communicate(timeout=60)
        assert out.split()[1] in ("tiered", "stale", "idle", "busy"), (at, out)
        expected = [*values, "more 0", "more 1"]
        assert await content(data) == expected, at
        finish(data)
        assert await content(data) == expected, at
        assert await left_behind(data) == [], at


def wait_until_stopped(pid: int) -> None:
    until = time.monotonic() + 60
    while "T (stopped)" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < until, "it did not stop"
        time.sleep(0.01)
