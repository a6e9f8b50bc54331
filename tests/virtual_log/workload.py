"""Writers that know what they were told, and the check of a log against it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from catena.errors import CatenaError, OutcomeUnknown, OutOfOrderSequence, RetryLater
from catena.testing.contracts.loglet import Stamp, make_entry
from catena.types import Offset
from catena.virtual_log.log import VirtualLog

IN_FLIGHT = 3


class Acks:
    """How many there were, of all writers together."""

    def __init__(self) -> None:
        self._count = 0
        self._another = asyncio.Event()

    def add(self) -> None:
        self._count += 1
        self._another.set()

    async def more(self, count: int) -> None:
        """Wait for so many more."""
        goal = self._count + count
        while self._count < goal:
            self._another.clear()
            await self._another.wait()


class Writer:
    """Appends values that no other writer has. An idempotent one has several batches in flight, on changing nodes."""

    def __init__(self, name: str, logs: Sequence[VirtualLog], acks: Acks, producer_id: int | None = None) -> None:
        self.acked: dict[Offset, str] = {}
        self.maybe: set[str] = set()
        self.name = name
        self._logs = logs
        self._acks = acks
        self._producer_id = producer_id
        self._sequence = 0

    async def write(self, until: asyncio.Event) -> None:
        while not until.is_set():
            log = self._logs[self._sequence // IN_FLIGHT % len(self._logs)]
            if self._producer_id is None:
                await self._append_plain(log)
            else:
                await self._append_idempotent(log, self._producer_id)

    async def _append_plain(self, log: VirtualLog) -> None:
        value = f"{self.name} {self._sequence}"
        self._sequence += 1
        try:
            self._ack(await log.append(make_entry(value)), value)
        except OutcomeUnknown:
            self.maybe.add(value)
        except RetryLater:
            pass

    async def _append_idempotent(self, log: VirtualLog, producer_id: int) -> None:
        numbers = range(self._sequence, self._sequence + IN_FLIGHT)
        values = {number: f"{self.name} {number}" for number in numbers}
        self._sequence += IN_FLIGHT
        while values:
            entries = [make_entry(value, stamp=Stamp(producer_id, 0, number)) for number, value in values.items()]
            results = await asyncio.gather(*(_result(log.append(entry)) for entry in entries))
            for number, result in zip(list(values), results, strict=True):
                if isinstance(result, int):
                    self._ack(result, values.pop(number))
                else:
                    # A batch that came before the one it follows is refused, and sent again; so do Kafka's clients.
                    assert isinstance(result, RetryLater | OutcomeUnknown | OutOfOrderSequence), repr(result)

    def _ack(self, offset: Offset, value: str) -> None:
        assert offset not in self.acked, f"{offset} was given to {self.acked[offset]!r} and to {value!r}"
        self.acked[offset] = value
        self._acks.add()


async def _result(append: Awaitable[Offset]) -> Offset | CatenaError:
    try:
        return await append
    except CatenaError as error:
        return error


def check(values: list[str], writers: Sequence[Writer]) -> None:
    """Nothing acked is lost, changed or there twice; each writer's values are in the order it wrote them in."""
    assert len(set(values)) == len(values), "a value is there twice"
    allowed: set[str] = set()
    for writer in writers:
        for offset, value in writer.acked.items():
            assert values[offset] == value
        allowed |= {*writer.acked.values(), *writer.maybe}
        own = [int(value.split()[1]) for value in values if value.split()[0] == writer.name]
        assert own == sorted(own)
    assert set(values) <= allowed, "a value is there that nobody was told of"
