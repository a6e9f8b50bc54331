"""Servers in processes of their own: `catena serve`, and what can be said of any server from outside.

CPU and memory are read from /proc, so that they are taken the same way of every server. A server always ends with its
context: it is asked to, and killed if it does not.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

START_MAX_S = 60.0
END_MAX_S = 30.0
TICKS = os.sysconf("SC_CLK_TCK")


class Missing(Exception):
    """Something that a benchmark needs is not on this machine; says what. The benchmark is left out."""


class ServerError(Exception):
    """A server did not start, or ended by itself; says why."""


class Serving(NamedTuple):
    """A server that answers. `address` is what clients connect to, `started_s` how long it took to get there."""

    pid: int
    address: str
    started_s: float
    http: str = ""
    """Where its HTTP port is, if it says so."""

    @property
    def cpu_s(self) -> float:
        """CPU seconds so far, of all its threads and of the children that it has waited for."""
        return cpu_seconds_of(Path(f"/proc/{self.pid}/stat").read_text())

    @property
    def peak_bytes(self) -> int:
        """The most memory that it has had resident at once."""
        return status_bytes(Path(f"/proc/{self.pid}/status").read_text(), "VmHWM")

    @property
    def resident_bytes(self) -> int:
        return status_bytes(Path(f"/proc/{self.pid}/status").read_text(), "VmRSS")


def cpu_seconds_of(stat: str) -> float:
    # The name, which may hold anything, stands in parentheses before the rest: utime, stime, cutime and cstime.
    fields = stat.rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def status_bytes(status: str, name: str) -> int:
    for line in status.splitlines():
        label, _, value = line.partition(":")
        if label == name:
            return int(value.split()[0]) * 1024
    raise ServerError(f"there is no {name} in the status of a process")


@contextmanager
def catena_node(folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[Serving]:
    """A node on `folder/data`, or on what the settings (CATENA_...) say. Those of one folder are a cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "catena.cli", "serve", "--port", "0", "--data", str(folder / "data"), "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CATENA_")}
    started = time.perf_counter()
    with child(command, folder, {**environment, **(settings or {})}) as process:
        ready = json.loads(first_line(process, folder))
        yield Serving(process.pid, ready["listeners"]["main"], time.perf_counter() - started, ready["http"])


@contextmanager
def child(
    command: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that ends with the context. Its errors go to `folder/log`, and are shown if it fails in the context."""
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment
        )
    try:
        yield process
        if process.poll() is not None:
            raise ServerError(f"{command[0]} ended with {process.returncode}: {last_words(folder)}")
    finally:
        end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_MAX_S)
    except subprocess.TimeoutExpired:
        print(f"a server did not end within {END_MAX_S:g} s, and is killed: {process.args!r}", file=sys.stderr)
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def first_line(process: subprocess.Popen[bytes], folder: Path) -> bytes:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_MAX_S)
    line = process.stdout.readline() if ready else b""
    if not line or process.poll() is not None:
        raise ServerError(f"not ready within {START_MAX_S:g} s: {last_words(folder)}")
    return line


def last_words(folder: Path) -> str:
    return (folder / "log").read_text(errors="replace").strip()[-1000:] or "it said nothing"
