"""What a job of the pipeline costs, in all of its processes: the driver, its JVM, and Spark's Python workers.

They are one tree of processes, and /proc tells their CPU and the most memory that each has had. Workers live as long as
their session, so all is read while it is open; what one that has ended used is counted with its parent.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

from bench.serving import ServerError, cpu_seconds_of, status_bytes

PROC = Path("/proc")

Role: TypeAlias = Literal["driver", "jvm", "workers"]
ROLES: tuple[Role, ...] = ("driver", "jvm", "workers")


class Process(NamedTuple):
    pid: int
    parent: int
    name: str
    cpu_s: float


def cpu_by_role(root: int) -> dict[Role, float]:
    """CPU seconds so far of this process and of all below it."""
    used: dict[Role, float] = dict.fromkeys(ROLES, 0.0)
    for each in tree(all_processes(), root):
        used[role_of(each, root)] += each.cpu_s
    return used


def peak_by_role(root: int) -> dict[Role, int]:
    """The most memory that a process had resident, in bytes: of the workers the largest one's."""
    peak: dict[Role, int] = dict.fromkeys(ROLES, 0)
    for each in tree(all_processes(), root):
        try:
            size = status_bytes((PROC / str(each.pid) / "status").read_text(), "VmHWM")
        except (OSError, ServerError):
            continue  # it has ended, and a process that nobody has waited for yet has no memory
        role = role_of(each, root)
        peak[role] = max(peak[role], size)
    return peak


def role_of(process: Process, root: int) -> Role:
    if process.pid == root:
        return "driver"
    return "jvm" if process.name == "java" else "workers"


def tree(processes: dict[int, Process], root: int) -> list[Process]:
    """The process `root` and all below it."""
    children: dict[int, list[Process]] = {}
    for each in processes.values():
        children.setdefault(each.parent, []).append(each)
    found = [processes[root]]
    for each in found:  # grows while it is walked
        found += children.get(each.pid, [])
    return found


def all_processes() -> dict[int, Process]:
    found = {}
    for name in os.listdir(PROC):
        if not name.isdecimal():
            continue
        try:
            process = parse_stat((PROC / name / "stat").read_text())
        except OSError:
            continue  # it has ended
        found[process.pid] = process
    return found


def parse_stat(stat: str) -> Process:
    before, _, after = stat.rpartition(")")
    pid, _, name = before.partition(" (")
    return Process(int(pid), int(after.split()[1]), name, cpu_seconds_of(stat))


def fetch_memory(size: int) -> None:
    """Let another process use as much memory, and end.

    In a virtual machine what has been free for a while belongs to the host, and to get it back takes a second or two of
    CPU a GB. Who comes later would pay for it, or not, by chance.
    """
    available = status_bytes((PROC / "meminfo").read_text(), "MemAvailable")
    subprocess.run([sys.executable, "-c", f"b'x' * {min(size, available // 2)}"], check=True)
