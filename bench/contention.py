"""Four processes append to one partition, beside one process that does: total commits a second, and each one's share.

Every process sends a batch, waits for its offset and sends the next, so that each append is a commit of its own. The
backends that can transact are also made to commit without it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import NamedTuple

from bench.figures import Figure, at_least
from bench.stand import entry_of, open_node
from catena.config import Settings
from catena.node import Node
from catena.testing.postgres_server import PostgresServer

PROCESSES = 4
SECONDS = 4.0


class Place(NamedTuple):
    """Where the log is, and which way commits are made."""

    folder: Path
    meta: str
    transact: bool = True

    def open(self) -> AbstractAsyncContextManager[Node]:
        return open_node(Settings(data=str(self.folder), meta=self.meta), self.transact)


def run(folder: Path) -> list[Figure]:
    figures = [
        *compare("SQLite", Place(folder / "sqlite", "")),
        *compare("SQLite without transact", Place(folder / "sqlite-without", "", transact=False)),
    ]
    # A folder of its own: the server may run as another user, who can't enter ours.
    with tempfile.TemporaryDirectory() as apart, PostgresServer(Path(apart)) as server:
        figures += compare("PostgreSQL", Place(folder / "on-postgres", server.dsn))
    with tempfile.TemporaryDirectory() as apart, PostgresServer(Path(apart)) as server:
        place = Place(folder / "on-postgres-without", server.dsn, transact=False)
        figures += compare("PostgreSQL without transact", place)
    figures += compare("object storage (folder)", Place(folder / "on-objects", "objects:"), ratio_aim=False)
    return figures


def compare(name: str, place: Place, ratio_aim: bool = True) -> Iterator[Figure]:
    place.folder.mkdir(parents=True)
    asyncio.run(create_topic(place))
    one = max(appends(place, 1) for _ in range(2))
    four = max((appends(place, PROCESSES) for _ in range(2)), key=sum)
    ratio, share = sum(four) / sum(one), min(four) / sum(four)
    yield Figure(f"{name}: one process", sum(one) / SECONDS, "commits/s")
    yield Figure(f"{name}: {PROCESSES} processes", sum(four) / SECONDS, "commits/s")
    compared = f"{name}: {PROCESSES} processes / one"
    yield at_least(compared, ratio, 0.7) if ratio_aim else Figure(compared, ratio)
    yield at_least(f"{name}: least share of a process", share, 0.15)


async def create_topic(place: Place) -> None:
    async with place.open() as node:
        await node.topics.create("bench")


def appends(place: Place, processes: int) -> list[int]:
    """How many appends each process had acked in the time that all of them ran."""
    command = [sys.executable, "-m", "bench.contention", str(place.folder), place.meta, str(int(place.transact))]
    children = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    return [json.loads(child.communicate()[0]) for child in children]


async def append_for_a_while(place: Place) -> int:
    async with place.open() as node:
        log = await node.log("bench", 0)
        entry = entry_of([b"x" * 100])
        await log.append(entry)
        print("ready", flush=True)
        sys.stdin.readline()
        count = 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            await log.append(entry)
            count += 1
        return count


if __name__ == "__main__":
    folder, meta, transact = sys.argv[1:]
    print(asyncio.run(append_for_a_while(Place(Path(folder), meta, bool(int(transact))))))
