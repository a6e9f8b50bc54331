"""Processes that outlive the command which started them, and are found again by another one.

A process id is given out again once its process is gone. So a process is known by its id and by when it started, and
nothing is ever signalled whose start does not match.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from catena.runtime import Clock

POLL_S = 0.02
_WAITING = ("/bin/sh", "-c", 'read -r _ && exec "$@" </dev/null', "sh")
"""Becomes the command behind it when it gets a line, and ends when nobody can send one any more."""


class Process(msgspec.Struct, frozen=True):
    pid: int
    started: int
    """In clock ticks since the host was booted."""


def launch(
    command: Sequence[str],
    environment: Mapping[str, str],
    directory: str,
    out: Path,
    log: Path,
    write_down: Callable[[Process], None],
) -> Process:
    """Start it in a session of its own, so that no Ctrl-C of ours reaches it; what it prints goes into files.

    It begins once it is written down. If we are killed before that it ends, so nothing runs that nobody knows of.
    """
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    reads, writes = os.pipe()
    try:
        with chdir(directory):
            pid = os.posix_spawn(
                _WAITING[0],
                [*_WAITING, *command],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reads, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(out), write, 0o600),
                    (os.POSIX_SPAWN_OPEN, 2, str(log), write, 0o600),
                ],
                setsid=True,
            )
        process = Process(pid, _look(pid).started)
        write_down(process)
        with suppress(BrokenPipeError):  # it has ended already, and its log says why
            os.write(writes, b"\n")
        return process
    finally:
        os.close(reads)
        os.close(writes)


def started_by(leader: Process) -> list[Process]:
    """What lives in its session beside itself."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            look = _look(pid := int(path.name))
            if look.session == leader.pid != pid and look.started >= leader.started:
                found.append(Process(pid, look.started))
    return sorted(found, key=lambda process: process.pid)


def is_running(process: Process) -> bool:
    # If it is a child of ours that has ended, it is a zombie until somebody asks for it.
    with suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
    try:
        look = _look(process.pid)
    except OSError:
        return False
    return look.started == process.started and look.state not in "ZX"


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
            if number == signal.SIGKILL:
                os.killpg(os.getpgid(process.pid), number)
            else:
                os.kill(process.pid, number)


class _Look(NamedTuple):
    state: str
    session: int
    started: int


def _look(pid: int) -> _Look:
    """OSError if there is none."""
    # The name, which may hold anything, stands in parentheses before the rest.
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return _Look(fields[0], int(fields[3]), int(fields[19]))
