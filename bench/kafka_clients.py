"""Kafka clients for the benchmarks, each in a process of its own: kcat for one connection, librdkafka for many.

Client and server share the machine: what a client costs is taken from the server. So clients do as little as they can,
and a figure says whose CPU it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from bench.serving import Missing, Serving

RECORD_BYTES = 1024
CLIENT_MAX_S = 1800.0
GB = 1e9


def setting(name: str, default: float) -> float:
    """How long or how large a benchmark is: BENCH_... of the environment."""
    return float(os.environ.get(name, default))


class Flow(NamedTuple):
    """Bytes of records that went through, how long that took, and the CPU of the servers."""

    size: int
    seconds: float
    cpu_s: float

    @property
    def mb_per_s(self) -> float:
        return self.size / self.seconds / 1e6

    @property
    def cpu_per_gb(self) -> float:
        return self.cpu_s / self.size * GB


def flow(servers: Sequence[Serving], records: int, action: Callable[[], float]) -> Flow:
    """What the servers spend while `action`, which says how many seconds it took, moves so many records."""
    before = sum(server.cpu_s for server in servers)
    seconds = action()
    return Flow(records * RECORD_BYTES, seconds, sum(server.cpu_s for server in servers) - before)


def write_records(file: Path, size: int) -> int:
    """Lines for kcat, each a record; returns how many."""
    records = max(1, size // RECORD_BYTES)
    line = os.urandom(RECORD_BYTES).replace(b"\n", b"x") + b"\n"
    many = 1024
    with file.open("wb") as out:
        for _ in range(records // many):
            out.write(line * many)
        out.write(line * (records % many))
    return records


def kcat_produce(address: str, topic: str, file: Path) -> float:
    """Seconds to send the lines of a file to partition 0: librdkafka's defaults, so batches of up to 1 MB, all acks."""
    return timed(["kcat", "-P", "-b", address, "-t", topic, "-p", "0", "-l", str(file)])


def kcat_consume(address: str, topic: str, offset: int, records: int) -> float:
    return timed(
        ["kcat", "-C", "-q", "-b", address, "-t", topic, "-p", "0", "-o", str(offset), "-c", str(records)],
    )


def timed(command: Sequence[str]) -> float:
    if shutil.which(command[0]) is None:
        raise Missing(f"{command[0]} is not on the PATH")
    started = time.perf_counter()
    result = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=CLIENT_MAX_S,
        check=False,
    )
    seconds = time.perf_counter() - started
    if result.returncode:
        raise RuntimeError(f"{command[0]} failed: {result.stderr.decode(errors='replace')[-500:]}")
    return seconds


def create_topic(address: str, topic: str, partitions: int = 1) -> None:
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({"bootstrap.servers": address, "log_level": 3})
    for created in admin.create_topics([NewTopic(topic, partitions, 1)], operation_timeout=30).values():
        created.result(60)


class Client:
    """A client of ours: `python -m bench.MODULE ...`, which says `ready`, waits for `go`, and prints what it found."""

    def __init__(self, module: str, *arguments: object) -> None:
        command = [sys.executable, "-m", f"bench.{module}", *map(str, arguments)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise RuntimeError(f"a client ended before it was ready: {self._process.args!r}")

    def go(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()

    def result(self) -> str:
        out, _ = self._process.communicate(timeout=CLIENT_MAX_S)
        if self._process.returncode:
            raise RuntimeError(f"a client failed: {self._process.args!r}")
        return out

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


def run_clients(clients: Sequence[Client]) -> tuple[float, list[str]]:
    """Let them go when all are ready; seconds until the last is done, and what they found. They end in any case."""
    try:
        for client in clients:
            client.wait_ready()
        started = time.perf_counter()
        for client in clients:
            client.go()
        results = [client.result() for client in clients]
        return time.perf_counter() - started, results
    finally:
        for client in clients:
            client.end()


def wait_for_go() -> None:
    """The other side of it, in the client."""
    print("ready", flush=True)
    sys.stdin.readline()
