"""What comes after a crash: another process goes on, and the history of all of them is checked against the log."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from catena.config import Settings
from catena.loglets.base import Entry
from catena.node import Node
from catena.runtime import SystemClock, SystemEntropy
from catena.testing.contracts.loglet import Stamp, make_entry, values_of
from catena.types import Offset
from catena.virtual_log.log import VirtualLog
from tests.crash.writer import PARTITIONS, TOPIC, Place, Plan, open_stores, plain

ROOT = Path(__file__).parents[2]
PATIENCE_S = 60


class Attempt(NamedTuple):
    partition: int
    value: str


class History:
    """What writers tried to append and what they were told."""

    def __init__(self) -> None:
        self.tried: set[Attempt] = set()
        self.acked: dict[Attempt, Offset] = {}

    def take(self, line: str) -> None:
        match line.split():
            case ["try", partition, value]:
                self.tried.add(Attempt(int(partition), value))
            case ["ack", partition, value, offset]:
                self.ack(Attempt(int(partition), value), int(offset))

    def ack(self, attempt: Attempt, offset: Offset) -> None:
        self.tried.add(attempt)
        assert self.acked.setdefault(attempt, offset) == offset, f"{attempt} was acked with two offsets"

    def check(self, partition: int, values: list[str]) -> None:
        """`values` is the whole log, by offset: nothing acked is lost, nothing is there twice or from nowhere."""
        assert len(set(values)) == len(values), "a value is there twice"
        assert {Attempt(partition, value) for value in values} <= self.tried
        for attempt, offset in self.acked.items():
            if attempt.partition == partition:
                assert values[offset] == attempt.value


def start(plan: Plan) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.crash.writer", msgspec.json.encode(plan).decode()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def run_until_it_dies(plan: Plan, history: History) -> None:
    with start(plan) as process:
        try:
            output, _ = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    for line in output.splitlines():
        history.take(line)
    assert process.returncode == -signal.SIGKILL, f"it should have died at {plan.death}; it ended {process.returncode}"


async def create_topic(place: Place) -> None:
    async with open_stores(place) as stores:
        node = await Node.start(Settings(), *stores, SystemClock(), SystemEntropy())
        await node.topics.create(TOPIC, PARTITIONS)
        await node.close()


async def recover(place: Place, plan: Plan, history: History) -> None:
    """Go on in the same way to commit and, where there is one, in the other; then read and check everything."""
    ways = [None] if place.backend == "objects" else [None, "without" in place.backend]
    for number, transact in enumerate(ways):
        async with open_stores(place, transact) as stores:
            node = await Node.start(Settings(), *stores, SystemClock(), SystemEntropy())
            logs = [await node.log(TOPIC, partition) for partition in range(PARTITIONS)]
            await resend(logs[0], plan, history)
            for partition, log in enumerate(logs):
                attempt = Attempt(partition, f"after-{plan.name}-{number}")
                await append(log, plain(attempt.value), attempt, history)
                history.check(partition, await read_all(log))
            await node.close()


async def resend(log: VirtualLog, plan: Plan, history: History) -> None:
    """What the client of the dead writer does: send again what it has no answer for, and then the next."""
    for number in range(plan.rounds + 1):
        attempt = Attempt(0, f"{plan.name}-idempotent-{number}")
        if attempt not in history.acked:
            await append(log, make_entry(attempt.value, stamp=Stamp(plan.producer_id, 0, number)), attempt, history)


async def append(log: VirtualLog, entry: Entry, attempt: Attempt, history: History) -> None:
    history.ack(attempt, await log.append(entry))


async def read_all(log: VirtualLog) -> list[str]:
    """Every value, by offset. After a gap or an overlap a batch would not begin where the last one ended."""
    tail, values = await log.tail(), list[str]()
    while len(values) < tail:
        batches = await log.read(len(values), 1000)
        assert batches[0].offset == len(values)
        values += values_of(batches)
    assert len(values) == tail
    return values
