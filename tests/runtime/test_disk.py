from __future__ import annotations

import asyncio
import signal
import sys
import threading
from pathlib import Path

import pytest

from catena.runtime import Disk, FileLock

HOLDER = """
import sys
from catena.runtime import FileLock

with FileLock(sys.argv[1]).hold():
    print("held", flush=True)
    sys.stdin.read()
"""


async def test_work_runs_off_the_loop_and_its_result_and_error_come_back() -> None:
    disk = Disk(threads=1)
    assert await disk.run(threading.get_ident) != threading.get_ident()
    with pytest.raises(ZeroDivisionError):
        await disk.run(divmod, 1, 0)
    disk.close()


async def test_a_lock_excludes_threads(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock")
    inside: list[int] = []
    most = 0

    def work() -> None:
        nonlocal most
        for _ in range(20):
            with lock.hold():
                inside.append(1)
                most = max(most, len(inside))
                inside.pop()

    disk = Disk(threads=4)
    await asyncio.gather(*(disk.run(work) for _ in range(4)))
    disk.close()
    assert most == 1


@pytest.mark.parametrize("same", [True, False])
def test_waiting_for_a_lock_has_an_end(tmp_path: Path, same: bool) -> None:
    lock = FileLock(tmp_path / "lock", timeout_seconds=0.02)
    other = lock if same else FileLock(tmp_path / "lock", timeout_seconds=0.02)
    with lock.hold(), pytest.raises(TimeoutError, match="is a process stopped"), other.hold():
        raise AssertionError("two hold the lock")
    with other.hold():
        pass


async def test_a_lock_excludes_processes_and_a_dead_one_lets_go(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    holder = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(path), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    with pytest.raises(TimeoutError), FileLock(path, timeout_seconds=0.02).hold():
        raise AssertionError("two processes hold the lock")
    holder.kill()
    assert await holder.wait() == -signal.SIGKILL
    with FileLock(path, timeout_seconds=0.02).hold():
        pass


def test_what_fails_under_a_lock_lets_go_of_it(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "lock", timeout_seconds=0.02)
    with pytest.raises(ZeroDivisionError), lock.hold():
        divmod(1, 0)
    with lock.hold():
        pass
