"""The hammers of a phase: started, let go at the same moment, heard, and ended.

Producers end by themselves once all that was due is answered or given up. Then consumers get time to take what was
acked, and are told to stop. A hammer that dies is told of; the others go on. None outlives the orchestrator: they
stop when their stdin is closed, and are killed if they do not.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from catena.errors import NeedsOperator
from catena.loadtest.hammers.base import Interval, Order, Said, Told
from catena.local_cluster.processes import kill
from catena.runtime import Clock, Tasks

READY_MAX_S = 120.0
STOP_MAX_S = 30.0
LINE_MAX_BYTES = 64 << 20
LEAD_S = 0.5
"""From the moment they are told to go until they begin."""
LOOK_S = 0.1


class Hammer:
    def __init__(self, order: Order, process: asyncio.subprocess.Process, log: Path) -> None:
        self.order = order
        self.name = order.name
        self.verified: dict[str, Any] | None = None
        self._process = process
        self._log = log
        self.is_done = False
        self.has_ended = asyncio.Event()

    @classmethod
    async def start(cls, order: Order, logs: Path) -> Hammer:
        log = logs / f"{order.name}.log"
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "catena.loadtest.hammers",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=errors,
                limit=LINE_MAX_BYTES,
                start_new_session=True,
            )
        hammer = cls(order, process, log)
        hammer._tell(order)
        return hammer

    @property
    def pid(self) -> int:
        return self._process.pid

    def is_producer(self) -> bool:
        return self.order.role.endswith("produce")

    async def wait_ready(self) -> None:
        """NeedsOperator if it is not within its time."""
        try:
            async with asyncio.timeout(READY_MAX_S):
                said = await self._heard()
        except TimeoutError:
            raise NeedsOperator(f"hammer {self.name} is not ready after {READY_MAX_S:g} s") from None
        if said is None or not said.ready:
            raise NeedsOperator(f"hammer {self.name} did not start: {self.last_words()}")

    def go(self, start: float) -> None:
        self._tell(Told(start=start))

    def stop(self) -> None:
        self._tell(Told(stop=True))

    async def listen(self, heard: Callable[[Interval], None]) -> None:
        try:
            while (said := await self._heard()) is not None:
                if said.interval is not None:
                    heard(said.interval)
                self.verified = said.verified or self.verified
                self.is_done = self.is_done or said.done
        finally:
            self.has_ended.set()

    async def end(self) -> None:
        await kill(self._process)
        if not self._log.stat().st_size:
            self._log.unlink()

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    async def _heard(self) -> Said | None:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        return msgspec.json.decode(line, type=Said) if line.endswith(b"\n") else None

    def _tell(self, what: Order | Told) -> None:
        assert self._process.stdin is not None
        if not self._process.stdin.is_closing():
            self._process.stdin.write(msgspec.json.encode(what) + b"\n")


class Fleet:
    def __init__(self, clock: Clock, logs: Path, heard: Callable[[Interval], None]) -> None:
        self._clock = clock
        self._logs = logs
        self._heard = heard
        self._tasks = Tasks("hammers")
        self._read: dict[str, int] = {}
        self._acked = 0
        self.hammers: list[Hammer] = []
        self.stopping = asyncio.Event()
        """Set: producers end before their time."""

    @property
    def roots(self) -> dict[str, int]:
        return {hammer.name: hammer.pid for hammer in self.hammers if not hammer.has_ended.is_set()}

    @property
    def dead(self) -> dict[str, str]:
        """Those that ended before they were done, or did not end at all, and what they said."""
        return {hammer.name: hammer.last_words() for hammer in self.hammers if not hammer.is_done}

    async def launch(self, orders: Sequence[Order]) -> None:
        for order in orders:
            self.hammers.append(await Hammer.start(order, self._logs))
        for hammer in self.hammers:
            await hammer.wait_ready()

    def go(self) -> float:
        """Returns when they begin."""
        start = self._clock.monotonic() + LEAD_S
        for hammer in self.hammers:
            self._tasks.spawn(hammer.name, hammer.listen(self._take))
            hammer.go(start)
        return start

    async def finish(self, seconds: float, drain_s: float) -> None:
        """Wait for the producers, which take so long, let consumers take what is left, and end these."""
        producers = [hammer for hammer in self.hammers if hammer.is_producer()]
        late = self._clock.monotonic() + LEAD_S + seconds + drain_s + STOP_MAX_S
        while not all(hammer.has_ended.is_set() for hammer in producers):
            if self.stopping.is_set() or self._clock.monotonic() > late:
                for hammer in producers:
                    hammer.stop()
                await self._wait(producers, drain_s + STOP_MAX_S)
                break
            await self._clock.sleep(LOOK_S)
        consumers = [hammer for hammer in self.hammers if not hammer.is_producer()]
        deadline = self._clock.monotonic() + drain_s
        while not self._is_taken(consumers) and self._clock.monotonic() < deadline:
            await self._clock.sleep(LOOK_S)
        for hammer in consumers:
            hammer.stop()
        await self._wait(consumers, STOP_MAX_S)

    async def close(self) -> None:
        for hammer in self.hammers:
            await hammer.end()
        await self._tasks.close()

    def _is_taken(self, consumers: Sequence[Hammer]) -> bool:
        """Whether each kind of consumers has read what producers saw acked."""
        kinds = {hammer.order.role for hammer in consumers if not hammer.has_ended.is_set()}
        return all(self._read.get(kind, 0) >= self._acked for kind in kinds)

    async def _wait(self, hammers: Sequence[Hammer], patience_s: float) -> None:
        deadline = self._clock.monotonic() + patience_s
        while not all(hammer.has_ended.is_set() for hammer in hammers) and self._clock.monotonic() < deadline:
            await self._clock.sleep(LOOK_S)

    def _take(self, interval: Interval) -> None:
        self._acked += interval.acked
        self._read[interval.role] = self._read.get(interval.role, 0) + interval.read
        self._heard(interval)


async def read_back(order: Order, clock: Clock, logs: Path) -> dict[str, Any]:
    """What the verifier found. NeedsOperator if it could not look."""
    hammer = await Hammer.start(order, logs)
    try:
        await hammer.wait_ready()
        hammer.go(clock.monotonic())
        await hammer.listen(lambda _interval: None)
        if hammer.verified is None:
            raise NeedsOperator(f"what was acked could not be read back: {hammer.last_words()}")
        return hammer.verified
    finally:
        await hammer.end()
