"""Processes that outlive the command which started them, and are found again by another one.

A process id is given out again once its process is gone. So a process is known by its id and by when it started, and
nothing is ever signalled whose start does not match.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import chdir, suppress
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from catena.runtime import Clock

POLL_S = 0.02
WAITING = ("/bin/sh", "-c", 'read -r _ && exec "$@" </dev/null', "sh")
"""Becomes the command behind it when it gets a line, and ends when nobody can send one any more."""


class Process(msgspec.Struct, frozen=True):
    pid: int
    started: int
    """In clock ticks since the host was booted."""

    @classmethod
    def of(cls, child: int) -> Self:
        """Of a child of ours that nobody has waited for."""
        return cls(child, _look(child).started)


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
                WAITING[0],
                [*WAITING, *command],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, reads, 0),
                    (os.POSIX_SPAWN_OPEN, 1, str(out), write, 0o600),
                    (os.POSIX_SPAWN_OPEN, 2, str(log), write, 0o600),
                ],
                setsid=True,
            )
        process = Process.of(pid)
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
    # The first thread of a process that was killed may be gone before the others, which hold its ports until they are.
    return look.started == process.started and (look.state not in "ZX" or look.threads > 1)


def send(process: Process, number: signal.Signals, *, group: bool = False) -> bool:
    """A signal, to it alone or to its whole group; whether it was there to get it."""
    if not is_running(process):
        return False
    try:
        if group:
            os.killpg(os.getpgid(process.pid), number)
        else:
            os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


async def kill(child: asyncio.subprocess.Process) -> None:
    """The child, which leads a group, with that group; and see it ended."""
    if child.returncode is None:
        with suppress(ProcessLookupError):  # it has ended, and the loop has not heard of it yet
            os.killpg(child.pid, signal.SIGKILL)
    await child.wait()


async def end(processes: Sequence[Process], clock: Clock, patience_s: float) -> list[Process]:
    """Ask them to end, and end those that have not within this time; returns these."""
    # Asked alone, to end in its own order what it has started itself; but killed with that.
    for process in processes:
        send(process, signal.SIGTERM)
    if await _wait_for_end(processes, clock, patience_s):
        return []
    stubborn = [process for process in processes if is_running(process)]
    for process in stubborn:
        send(process, signal.SIGKILL, group=True)
    await _wait_for_end(stubborn, clock, patience_s)
    return stubborn


async def _wait_for_end(processes: Sequence[Process], clock: Clock, patience_s: float) -> bool:
    deadline = clock.monotonic() + patience_s
    while any(is_running(process) for process in processes):
        if clock.monotonic() >= deadline:
            return False
        await clock.sleep(POLL_S)
    return True


class _Look(NamedTuple):
    state: str
    session: int
    threads: int
    started: int


def _look(pid: int) -> _Look:
    """OSError if there is none."""
    # The name, which may hold anything, stands in parentheses before the rest.
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return _Look(fields[0], int(fields[3]), int(fields[17]), int(fields[19]))
