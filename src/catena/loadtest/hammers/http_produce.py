"""Produce over HTTP at a given rate: requests are due at fixed times, and a fixed number of connections takes them.

A request is the records of one partition. It goes to a node that is one of the partition's owners; where that one
can't be reached, and so has not seen it, or says that it can't take it now (503), to another owner. What was sent and
not answered is not sent again: it may be in the log.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from catena.loadtest.hammers.base import Orders, Tally
from catena.loadtest.http_client import Answer, HttpClient, NotSent
from catena.loadtest.ledger import DROPPED, FAILED, UNKNOWN, Ledger
from catena.loadtest.pace import Pace
from catena.loadtest.records import RecordForm
from catena.loadtest.routing import Router
from catena.runtime import Clock, Tasks

IDLE_S = 0.02
NOT_SENT = "not sent before the end"
NOT_NOW = 503
"""The node starts, ends or has too much to do, and has done nothing."""
NOBODY_S = 0.05
"""Between two looks for an owner where none can be reached."""


class Request(NamedTuple):
    due: float
    sequence: int
    records: int
    place: tuple[str, int]


class Result(msgspec.Struct):
    ok: bool
    start_offset: int | None = None
    error_type: str = ""


class Results(msgspec.Struct):
    results: list[Result]


async def produce_over_http(orders: Orders, clock: Clock) -> None:
    order = orders.order
    start = await asyncio.get_running_loop().run_in_executor(None, orders.wait_for_start)
    hammer = _HttpHammer(orders, Tally(order, start), clock)
    tasks = Tasks(order.name)
    for number in range(order.http_load.connections):
        tasks.spawn(f"connection {number}", hammer.work())
    many = order.http_load.records_per_request
    seconds = order.load.warm_up_s + order.load.duration_s
    pace = Pace.of(start, seconds, order.per_s / many, order.number, order.of)
    sent = 0

    def send(records: int) -> None:
        nonlocal sent
        hammer.add(Request(pace.due_at(sent), sent * many, records, order.places[sent % len(order.places)]))
        sent += 1

    while sent < pace.total and not orders.stopped.is_set():
        while sent < pace.due_by(clock.monotonic()):
            send(many)
        hammer.tally.tell(clock.monotonic())
        await clock.sleep(min(max(0.0, pace.due_at(sent) - clock.monotonic()), IDLE_S))
    hammer.leave((pace.due_by(clock.monotonic()) - sent) * many)
    rest = int(seconds * order.per_s / order.of) - pace.total * many
    if rest > 0 and not orders.stopped.is_set():  # too few for a request of that size
        send(rest)
    deadline = clock.monotonic() + order.load.drain_s
    while hammer.tally.outstanding and clock.monotonic() < deadline:
        hammer.tally.tell(clock.monotonic())
        await clock.sleep(IDLE_S)
    await tasks.close()
    hammer.give_up_waiting()
    hammer.tally.tell(clock.monotonic(), last=True)
    if order.ledger:
        hammer.ledger.save(Path(order.ledger))


class _HttpHammer:
    def __init__(self, orders: Orders, tally: Tally, clock: Clock) -> None:
        self.tally = tally
        self.ledger = Ledger()
        self._order = orders.order
        self._stopped = orders.stopped
        self._clock = clock
        self._router = Router(self._order.manifest)
        self._form = RecordForm(self._order.seed, self._order.load.record_bytes)
        self._waiting: deque[Request] = deque()
        self._news = asyncio.Event()

    def add(self, request: Request) -> None:
        self.ledger.add(request.records)
        self.tally.due(request.records)
        self.tally.got_to(request.due, self._clock.monotonic(), request.records)
        if self.tally.outstanding > self._order.load.backlog_max:
            self.ledger.ended(request.sequence, DROPPED, request.records)
            self.tally.dropped(request.records)
            return
        self._waiting.append(request)
        self._news.set()

    def leave(self, records: int) -> None:
        """What was due, and we never got to before we were stopped."""
        if records > 0:
            self.ledger.ended(self.ledger.add(records), DROPPED, records)
            self.tally.due(records)
            self.tally.dropped(records)

    def give_up_waiting(self) -> None:
        """What was never sent is not in the log."""
        while self._waiting:
            self._ended(self._waiting.popleft(), FAILED, NOT_SENT)

    async def work(self) -> None:
        """One connection to each node, one request at a time."""
        load = self._order.http_load
        token = os.environ.get("CATENA_TOKEN", "")
        clients = {name: HttpClient(address, load.timeout_s, token) for name, address in self._order.http.items()}
        try:
            while True:
                while not self._waiting:
                    self._news.clear()
                    await self._news.wait()
                await self._deliver(self._waiting.popleft(), clients)
        finally:
            for client in clients.values():
                client.close()

    async def _deliver(self, request: Request, clients: dict[str, HttpClient]) -> None:
        body = self._body(request)
        give_up = self._clock.monotonic() + self._order.http_load.timeout_s
        refused: list[str] = []
        failure = "no owner could be reached"
        while (now := self._clock.monotonic()) < give_up:
            node = self._router.choose(request.place, now, refused)
            if node is None:
                refused.clear()
                await self._pause(request)
                continue
            try:
                answer = await self._ask(node, clients[node], body)
            except NotSent as error:
                refused.append(node)
                self.tally.remap(self._router.fails(node, str(error), self._clock.monotonic()))
                continue
            except OSError as error:
                why = error.strerror or str(error) or type(error).__name__
                self.tally.remap(self._router.fails(node, why, self._clock.monotonic()))
                self._ended(request, UNKNOWN, why)
                return
            if answer.status == NOT_NOW:
                refused.append(node)
                failure = f"HTTP {NOT_NOW}"
                self.tally.remap(self._router.fails(node, failure, self._clock.monotonic()))
                continue
            self.tally.remap(self._router.works(node, self._clock.monotonic()))
            self._answered(request, answer)
            return
        self._ended(request, FAILED, failure)

    async def _ask(self, node: str, client: HttpClient, body: bytes) -> Answer:
        self._router.begin(node)
        try:
            return await client.ask("POST", "/produce", body)
        finally:
            self._router.end(node)

    async def _pause(self, request: Request) -> None:
        try:
            await self._clock.sleep(NOBODY_S)
        except asyncio.CancelledError:
            self._ended(request, FAILED, NOT_SENT)
            raise

    def _answered(self, request: Request, answer: Answer) -> None:
        try:
            results = msgspec.json.decode(answer.body, type=Results).results if answer.status in (200, 409) else []
        except msgspec.MsgspecError:
            results = []
        if len(results) == 1 and results[0].ok and results[0].start_offset is not None:
            for number in range(request.records):
                self.ledger.acked(request.sequence + number, results[0].start_offset + number)
            size = request.records * self._order.load.record_bytes
            self.tally.acked(request.due, self._clock.monotonic(), request.records, size)
        elif results and not results[0].ok:
            is_known = results[0].error_type != "OutcomeUnknown"
            self._ended(request, FAILED if is_known else UNKNOWN, results[0].error_type or "refused")
        else:
            # These say that nothing was done: it was not understood, or there were too many.
            is_known = answer.status in (400, 401, 404, 405, 413, 429)
            self._ended(request, FAILED if is_known else UNKNOWN, f"HTTP {answer.status}")

    def _ended(self, request: Request, state: int, why: str) -> None:
        self.ledger.ended(request.sequence, state, request.records)
        (self.tally.failed if state == FAILED else self.tally.unknown)(request.records, why)

    def _body(self, request: Request) -> bytes:
        due_us = int(request.due * 1e6)
        numbers = range(request.sequence, request.sequence + request.records)
        values = b'","'.join([self._form.make(self._order.hammer, number, due_us) for number in numbers])
        topic, partition = request.place
        head: dict[str, Any] = {"topic": topic, "partition": partition}
        # Values need no escaping; to encode them as JSON would cost more than all the rest.
        place = msgspec.json.encode(head)[:-1]
        return b'{"topic_partitions":[%b,"records":["%b"]}]}' % (place, values)
