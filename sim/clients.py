"""One call of a client, noted in the history with what it was told.

Each kind of answer is put into one of three: done, surely not done, nobody knows. An error that fits none of them
(a traceback out of the product, a view that should have been refreshed inside) is a violation by itself.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from catena.errors import (
    LogSealed,
    OffsetOutOfRange,
    OutcomeUnknown,
    OutOfOrderSequence,
    ProducerFenced,
    RetryLater,
    UnknownTopic,
)
from catena.formats.record_batch import parse_header
from catena.formats.records import build_batch
from catena.loglets.base import Batch, Entry
from catena.virtual_log.log import FoundTime, VirtualLog
from sim.cluster import LogMachine, OtherIncarnation, World
from sim.history import (
    Append,
    Call,
    FindTime,
    LogId,
    Outcome,
    Read,
    Reconfigure,
    Seal,
    Seen,
    Stamp,
    Start,
    Tail,
    Trim,
    Wait,
)
from sim.loop import Chance
from sim.machine import NoAnswer, NotConnected
from sim.runtime import FIRST_TIMESTAMP_MS

T = TypeVar("T")

NOT_DONE = (RetryLater, LogSealed, UnknownTopic, NotConnected, OtherIncarnation)
NOT_KNOWN = (OutcomeUnknown, NoAnswer)
PATCHED_BYTES = 16
"""Base offset, length and leader epoch at the head of a batch; what follows is never touched."""


class Client:
    """A name, a stream of chance of its own, and the calls it can make."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.random = Chance(f"{name} {world.scenario.seed}")
        self.history = world.history

    def some_machine(self) -> LogMachine:
        return self.random.choice(self.world.machines)

    async def think(self, seconds: float | None = None) -> None:
        mean = self.world.scenario.think_s if seconds is None else seconds
        await self.world.loop.sleep(mean * 2 * self.random.random())

    def now_ms(self) -> int:
        return FIRST_TIMESTAMP_MS + int(self.world.loop.time() * 1000)

    def new_append(self, log: LogId, stamp: Stamp | None = None) -> tuple[Append, Entry]:
        """A batch that no other equals; it counts as appended from the first time it is sent."""
        batch, count, now_ms = self.history.new_batch(), self.random.randint(1, 4), self.now_ms()
        data = build_batch(
            [(None, f"{batch}:{number}".encode(), (), now_ms) for number in range(count)],
            producer_id=-1 if stamp is None else stamp.producer_id,
            producer_epoch=-1 if stamp is None else stamp.epoch,
            base_sequence=-1 if stamp is None else stamp.sequence,
        )
        self.history.know(bytes(data[PATCHED_BYTES:]))
        call = Append(log, self.name, 0, batch=batch, count=count, timestamp_ms=now_ms, stamp=stamp)
        return call, Entry(parse_header(data), data)

    async def append(self, call: Append, entry: Entry, machine: LogMachine) -> Exception | None:
        """One attempt; returns why there is no ack. Whether that settles the append is for the caller to say."""
        (error,) = await self.append_in_order([(call, entry)], machine)
        return error

    async def append_in_order(
        self, batches: Sequence[tuple[Append, Entry]], machine: LogMachine
    ) -> list[Exception | None]:
        """One attempt with all of them, called one after the other; for each why there is no ack."""
        pipeline = 0
        for call, _ in batches:
            what = f"append batch {call.batch} x{call.count} on {machine.name}"
            if call.invoked:
                self.history.note(f"{self.name} {call.log} {what} again ...")
            else:
                self.history.invoke(call, what)
                if call.stamp is None:
                    pipeline = call.pipeline = pipeline or call.invoked
        entries = [entry for _, entry in batches]
        answers: list[int | Exception]
        try:
            answers = await machine.call_log(
                batches[0][0].log, lambda log: _append_in_order(log, entries), self._patience()
            )
        except Exception as error:
            answers = [error] * len(batches)
        return [self._take_append(call, answer) for (call, _), answer in zip(batches, answers, strict=True)]

    def _take_append(self, call: Append, answer: int | Exception) -> Exception | None:
        if isinstance(answer, int):
            call.offset = answer
            self.history.ok(call, f"batch {call.batch} at {call.offset}")
            return None
        if not isinstance(answer, (*NOT_DONE, *NOT_KNOWN, OutOfOrderSequence, ProducerFenced)):
            call.error = _with_place(answer)
        self.history.note(f"{self.name} {call.log} append batch {call.batch}: {_brief(answer)}")
        return answer

    async def read(self, log: LogId, offset: int, machine: LogMachine, max_bytes: int, final: bool = False) -> Read:
        call = Read(log, self.name, 0, offset=offset, final=final)
        await self._read(call, "read", machine, lambda handle: handle.read(offset, max_bytes))
        return call

    async def poll(self, log: LogId, offset: int, machine: LogMachine, max_bytes: int, max_wait_s: float) -> Read:
        """As a fetch does. It may wait, and has to know no less than a read that is made when it begins."""
        call = Read(log, self.name, 0, offset=offset)
        await self._read(call, "poll", machine, lambda handle: machine.poll(handle, offset, max_bytes, max_wait_s))
        return call

    async def _read(
        self,
        call: Read,
        what: str,
        machine: LogMachine,
        work: Callable[[VirtualLog], Coroutine[Any, Any, list[Batch]]],
    ) -> None:
        def take(batches: list[Batch]) -> str:
            call.seen = tuple(
                Seen(batch.offset, batch.count, self.history.batch_of(bytes(batch.data[PATCHED_BYTES:])))
                for batch in batches
            )
            return f"{call.offset}: " + (" ".join(f"{each.batch}@{each.offset}" for each in call.seen) or "nothing")

        await self._ask(call, f"{what} {call.offset}", machine, work, take)

    async def wait_for_tail(self, log: LogId, beyond: int, machine: LogMachine, max_wait_s: float) -> None:
        """A hint: nothing to check but that it comes back."""
        await self._ask(
            Wait(log, self.name, 0),
            f"wait beyond {beyond}",
            machine,
            lambda handle: handle.wait_for_tail(beyond, max_wait_s),
            lambda _: "woken",
        )

    async def tail(self, log: LogId, machine: LogMachine) -> Tail:
        call = Tail(log, self.name, 0)

        def take(tail: int) -> str:
            call.tail = tail
            return str(tail)

        await self._ask(call, "tail", machine, lambda handle: handle.tail(), take)
        return call

    async def start(self, log: LogId, machine: LogMachine) -> Start:
        call = Start(log, self.name, 0)

        def take(start: int) -> str:
            call.start = start
            return str(start)

        await self._ask(call, "start", machine, lambda handle: handle.start(), take)
        return call

    async def find_time(self, log: LogId, timestamp_ms: int, machine: LogMachine) -> FindTime:
        call = FindTime(log, self.name, 0, timestamp_ms=timestamp_ms)

        def take(found: FoundTime | None) -> str:
            call.offset = None if found is None else found.offset
            return str(call.offset)

        await self._ask(call, f"find time {timestamp_ms}", machine, lambda handle: handle.find_time(timestamp_ms), take)
        return call

    async def seal(self, log: LogId, machine: LogMachine) -> Seal:
        call = Seal(log, self.name, 0)

        def take(tail: int) -> str:
            call.tail = tail
            return str(tail)

        await self._ask(call, "seal", machine, lambda handle: handle.seal(), take)
        return call

    async def reconfigure(self, log: LogId, kind: str, machine: LogMachine) -> Reconfigure:
        """Whatever it failed with, its intent may stand, and somebody may finish it later."""
        call = Reconfigure(log, self.name, 0, kind=kind)
        await self._ask(
            call, f"reconfigure to {kind}", machine, lambda handle: handle.reconfigure(kind, {}), lambda _: kind
        )
        return call

    async def trim(self, log: LogId, offset: int, machine: LogMachine) -> Trim:
        call = Trim(log, self.name, 0, offset=offset)
        await self._ask(call, f"trim {offset}", machine, lambda handle: handle.trim(offset), lambda _: str(offset))
        return call

    async def _ask(
        self,
        call: Call,
        what: str,
        machine: LogMachine,
        work: Callable[[VirtualLog], Coroutine[Any, Any, T]],
        take: Callable[[T], str],
    ) -> None:
        self.history.invoke(call, f"{what} on {machine.name}")
        try:
            answer = await machine.call_log(call.log, work, self._patience())
        except NOT_DONE as error:
            self.history.failed(call, _brief(error))
        except NOT_KNOWN as error:
            self.history.unknown(call, _brief(error))
        except Exception as error:
            self._take_error(call, error)
        else:
            self.history.ok(call, take(answer))

    def _take_error(self, call: Call, error: Exception) -> None:
        """An offset outside of the log is an answer to a read, and no surprise to a trim."""
        if isinstance(error, OffsetOutOfRange) and isinstance(call, Read):
            call.out_of_range = (error.start, error.tail)
            self.history.ok(call, f"out of range [{error.start}, {error.tail}]")
        elif isinstance(error, OffsetOutOfRange) and isinstance(call, Trim):
            self.history.failed(call, _brief(error))
        else:
            self.history.unknown(call, _brief(error))
            call.error = _with_place(error)

    def _patience(self) -> float:
        return self.random.choice((0.3, 3.0, 20.0, 60.0))


def settle(client: Client, call: Append, errors: list[Exception]) -> None:
    """The verdict on an append that is given up: surely not done only if no attempt leaves a doubt."""
    if call.outcome is Outcome.OK:
        return
    if errors and all(isinstance(error, NOT_DONE) for error in errors):
        client.history.failed(call, _brief(errors[-1]))
    else:
        client.history.unknown(call, _brief(errors[-1]) if errors else "never sent")


async def _append_in_order(log: VirtualLog, entries: Sequence[Entry]) -> list[int | Exception]:
    """Each is called once the one before has been called, whatever has become of it by then."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[int | Exception]] = []
    for entry in entries:
        called: asyncio.Future[None] = loop.create_future()
        tasks.append(loop.create_task(_append(log, entry, called)))
        await called
    return await asyncio.gather(*tasks)


async def _append(log: VirtualLog, entry: Entry, called: asyncio.Future[None]) -> int | Exception:
    """The log has the call before anyone who waits for `called` runs."""
    if not called.done():
        called.set_result(None)
    try:
        return await log.append(entry)
    except Exception as error:
        return error


def _brief(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _with_place(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{_brief(error)} in {where.name}, line {where.lineno} of {where.filename.rpartition('/')[2]}"
