"""What Linux says of processes and of the host, in /proc: taken the same way of every process, whoever wrote it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")
SECTOR = 512


class Usage(msgspec.Struct, frozen=True):
    """Of a process and of all that it has started."""

    cpu_s: float
    """So far, of those that run now."""
    rss_bytes: int
    fds: int
    """Open files and sockets; 0 where we may not look."""
    threads: int
    processes: int


class Host(msgspec.Struct, frozen=True):
    cpu_busy_s: float
    """Of all CPUs, since it was started."""
    cpu_idle_s: float
    memory_bytes: int
    available_bytes: int
    load_1m: float
    disk_read_bytes: int
    disk_written_bytes: int


class _Stat(msgspec.Struct, frozen=True):
    parent: int
    cpu_s: float
    threads: int
    rss_bytes: int


def usage_of(roots: Mapping[str, int]) -> dict[str, Usage]:
    """By name; one that is gone is left out. A process that two of them have started counts for the nearest."""
    stats = _all()
    names = {pid: name for name, pid in roots.items() if pid in stats}
    members: dict[str, list[int]] = {name: [] for name in names.values()}
    for pid in stats:
        above: int | None = pid
        while above is not None and above not in names:
            above = stats[above].parent if above in stats else None
        if above is not None:
            members[names[above]].append(pid)
    return {name: _sum([stats[pid] for pid in pids], pids) for name, pids in members.items()}


def look_at_host() -> Host:
    cpu = [int(value) for value in _first_line("/proc/stat").split()[1:9]]
    idle = cpu[3] + cpu[4]
    memory = {
        name: int(value.split()[0]) * 1024
        for name, _, value in (line.partition(":") for line in Path("/proc/meminfo").read_text().splitlines())
        if name in ("MemTotal", "MemAvailable")
    }
    read, written = _disks()
    return Host(
        cpu_busy_s=(sum(cpu) - idle) / TICKS,
        cpu_idle_s=idle / TICKS,
        memory_bytes=memory.get("MemTotal", 0),
        available_bytes=memory.get("MemAvailable", 0),
        load_1m=float(_first_line("/proc/loadavg").split()[0]),
        disk_read_bytes=read,
        disk_written_bytes=written,
    )


def _all() -> dict[int, _Stat]:
    found = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, IndexError, ValueError):
            # The name, which may hold anything, stands in parentheses before the rest.
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
            cpu_s = sum(map(int, fields[11:13])) / TICKS
            found[int(path.parent.name)] = _Stat(int(fields[1]), cpu_s, int(fields[17]), int(fields[21]) * PAGE)
    return found


def _sum(stats: list[_Stat], pids: list[int]) -> Usage:
    return Usage(
        cpu_s=round(sum(stat.cpu_s for stat in stats), 2),
        rss_bytes=sum(stat.rss_bytes for stat in stats),
        fds=sum(map(_fds, pids)),
        threads=sum(stat.threads for stat in stats),
        processes=len(stats),
    )


def _fds(pid: int) -> int:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return 0


def _disks() -> tuple[int, int]:
    """Of whole devices: those of /sys/block, without what is only another view of them."""
    read = written = 0
    for path in Path("/sys/block").glob("*/stat"):
        if path.parent.name.startswith(("loop", "ram", "dm-", "md", "zram")):
            continue
        with suppress(OSError, IndexError, ValueError):
            fields = path.read_text().split()
            read += int(fields[2]) * SECTOR
            written += int(fields[6]) * SECTOR
    return read, written


def _first_line(path: str) -> str:
    with open(path) as file:
        return file.readline()
