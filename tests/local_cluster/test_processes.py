"""Processes are found again by who they are, asked to end, and ended if they do not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from catena.local_cluster.processes import Process, end, is_running, kill, launch, send, started_by
from catena.runtime import SystemClock

PATIENT = "import signal; print('up', flush=True); signal.pause()"
STUBBORN = "import signal; signal.signal(15, signal.SIG_IGN); print('up', flush=True)\nwhile True: signal.pause()"
WITH_CHILD = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]).wait()"

LEADERLESS = """
import ctypes, signal, threading
threading.Thread(target=signal.pause).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""
"""Its first thread ends before its second, as it may when a process is killed."""


class Host:
    """Starts processes, and leaves none behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.started: list[Process] = []

    async def run(self, code: str) -> Process:
        out = self._folder / str(len(self.started))
        process = self.launch([sys.executable, "-c", code], out, self.started.append)
        while not out.read_text():
            assert is_running(process), out.with_suffix(".log").read_text()
            await SystemClock().sleep(0.01)
        return process

    def launch(self, command: list[str], out: Path, write_down: Callable[[Process], None]) -> Process:
        return launch(command, os.environ, str(self._folder), out, out.with_suffix(".log"), write_down)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path)
    yield host
    for process in host.started:
        if is_running(process):
            os.killpg(process.pid, signal.SIGKILL)


async def test_ends_when_it_is_asked(host: Host) -> None:
    process = await host.run(PATIENT)
    assert os.getsid(process.pid) == process.pid != os.getsid(0)
    assert await end([process], SystemClock(), 30) == []
    assert not is_running(process)


async def test_one_that_does_not_is_killed_with_all_that_it_started(host: Host) -> None:
    patient, stubborn = await host.run(PATIENT), await host.run(STUBBORN)
    assert await end([patient, stubborn], SystemClock(), 0.2) == [stubborn]
    assert not is_running(patient)
    assert not is_running(stubborn)


async def test_the_group_of_one_that_is_killed_goes_too(host: Host) -> None:
    parent = await host.run(f"import signal; signal.signal(15, signal.SIG_IGN)\n{WITH_CHILD}")
    (child,) = children(parent.pid)
    assert await end([parent], SystemClock(), 0.2) == [parent]
    deadline = SystemClock().monotonic() + 30
    while lives(child):
        assert SystemClock().monotonic() < deadline
        await SystemClock().sleep(0.01)


async def test_what_a_process_has_started_is_known_and_ended_without_it(host: Host) -> None:
    parent = await host.run(WITH_CHILD)
    (child,) = started_by(parent)
    assert [child.pid] == children(parent.pid)
    os.kill(parent.pid, signal.SIGKILL)
    assert await end([parent], SystemClock(), 30) == []
    assert is_running(child)
    # It does not lead a group of its own, and does not listen.
    assert await end([child], SystemClock(), 0.2) == [child]
    assert not is_running(child)


async def test_begins_where_it_is_told_to(host: Host, tmp_path: Path) -> None:
    await host.run("import os, signal, sys; print(os.getcwd(), [sys.stdin.read()], flush=True); signal.pause()")
    assert (tmp_path / "0").read_text() == f"{tmp_path} ['']\n"
    assert Path.cwd() != tmp_path


async def test_one_that_could_not_be_written_down_never_begins(host: Host, tmp_path: Path) -> None:
    found: list[Process] = []

    def write_down(process: Process) -> None:
        found.append(process)
        assert is_running(process)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space left"):
        host.launch(["/bin/sh", "-c", "echo begun"], tmp_path / "out", write_down)
    await _gone(found[0])
    assert (tmp_path / "out").read_text() == ""


async def test_one_that_can_not_be_run_has_ended(host: Host, tmp_path: Path) -> None:
    process = host.launch(["/nowhere"], tmp_path / "out", host.started.append)
    await _gone(process)
    assert "/nowhere" in (tmp_path / "out.log").read_text()


async def _gone(process: Process) -> None:
    deadline = SystemClock().monotonic() + 30
    while is_running(process):
        assert SystemClock().monotonic() < deadline
        await SystemClock().sleep(0.01)


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_another_one_with_the_same_id_is_left_alone(host: Host) -> None:
    process = await host.run(PATIENT)
    earlier = Process(process.pid, process.started - 1)
    assert not is_running(earlier)
    assert await end([earlier], SystemClock(), 30) == []
    assert is_running(process)


def test_one_that_is_long_gone() -> None:
    assert not is_running(Process(2**22 + 1, 1))


async def test_one_whose_first_thread_alone_is_gone_still_runs(host: Host) -> None:
    process = await host.run(LEADERLESS)
    deadline = SystemClock().monotonic() + 30
    while lives(process.pid):
        assert SystemClock().monotonic() < deadline
        await SystemClock().sleep(0.01)
    assert is_running(process)
    assert send(process, signal.SIGKILL)
    await _gone(process)
    assert not send(process, signal.SIGKILL)


async def test_a_child_that_has_ended_unheard_is_not_killed_again() -> None:
    child = await asyncio.create_subprocess_exec("/bin/true", start_new_session=True)
    deadline = SystemClock().monotonic() + 30
    while lives(child.pid):  # the loop does not run here, but a thread of its own may take the child away
        assert SystemClock().monotonic() < deadline
    await kill(child)
    assert child.returncode == 0
