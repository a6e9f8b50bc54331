"""Processes that outlive the command which started them, and are found again by another one.

A process id is given out again once its process is gone. So a process is known by its id and by when it started, and
nothing is ever signalled whose start does not match.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from catena.runtime import Clock

POLL_S = 0.02


class Process(msgspec.Struct, frozen=True):
    pid: int
    started: int
    """In clock ticks since the host was booted."""


def launch(command: list[str], environment: Mapping[str, str], out: Path, log: Path) -> Process:
    """Start it in a session of its own, so that no Ctrl-C of ours reaches it; what it prints goes into files."""
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    pid = os.posix_spawn(
        command[0],
        command,
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(out), write, 0o600),
            (os.POSIX_SPAWN_OPEN, 2, str(log), write, 0o600),
        ],
        setsid=True,
    )
    return Process(pid, _look(pid)[1])


def is_running(process: Process) -> bool:
    # If it is a child of ours that has ended, it is a zombie until somebody asks for it.
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    try:
        state, started = _look(process.pid)
    except OSError:
        return False
    return started == process.started and state not in "ZX"


async def end(processes: Sequence[Process], clock: Clock, patience_s: float) -> list[Process]:
    """Ask them to end, and end those that have not within this time; returns these."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    if await _wait_for_end(processes, clock, patience_s):
        return []
    stubborn = [process for process in processes if is_running(process)]
    for process in stubborn:
        _signal(process, signal.SIGKILL)
    await _wait_for_end(stubborn, clock, patience_s)
    return stubborn


async def _wait_for_end(processes: Sequence[Process], clock: Clock, patience_s: float) -> bool:
    deadline = clock.monotonic() + patience_s
    while any(is_running(process) for process in processes):
        if clock.monotonic() >= deadline:
            return False
        await clock.sleep(POLL_S)
    return True


def _signal(process: Process, number: signal.Signals) -> None:
    if is_running(process):
        with suppress(ProcessLookupError):
            # To be killed with all that it has started itself; but asked alone, to end these in its own order.
            (os.killpg if number == signal.SIGKILL else os.kill)(process.pid, number)


def _look(pid: int) -> tuple[str, int]:
    """Its state and its start; OSError if there is none."""
    # The name, which may hold anything, stands in parentheses before the rest.
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return fields[0], int(fields[19])
