"""One client's connection: requests in, answers out in the same order, however long each one takes.

    bytes -> frames -> [queue] -> handler, one after the other -> [answers, in order] -> bytes

Requests start one after the other, as Kafka does, so that a producer's batches take their places in its order. Only
what a handler leaves for later (an append on its way to the store) goes on while the next one starts.

Bounded: bytes and number of requests that were taken and not answered, of a connection and of all together; past it the
socket is not read, and the client waits in its own send buffer. A large request is read only as far as it was granted
room (`budget`). A client that does not take its answers, or stops in the middle of a request, is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple, TypeAlias, cast

import msgspec

from catena.broker.api_versions import api_versions
from catena.broker.bad_connections import BadConnections
from catena.broker.base import Answer, AnswerBudget, Client, HangUp, Later
from catena.broker.budget import Budget
from catena.broker.request_counts import RequestCounts
from catena.errors import CatenaError
from catena.runtime import Clock, Tasks, shielded
from catena.runtime.network import set_socket_options
from catena.types import Buffer
from catena.wire.apis import API_VERSIONS, APIS
from catena.wire.codes import Code
from catena.wire.frames import Frames
from catena.wire.reader import WireError
from catena.wire.requests import Refused, Request, key_of, parse_request, response_frame
from catena.wire.schema import Message

log = logging.getLogger(__name__)

PRODUCE = 0
WAITING = {key for key, api in APIS.items() if api.name in ("Fetch", "JoinGroup", "SyncGroup")}
"""Requests that wait for others."""
LEAST_BYTES = 1024
"""Who sends fewer in the time of `stalled_max_ms`, within a request, has stalled."""
LEAST_BYTES_PER_S = 1 << 20
"""Who sends a large request more slowly than this for more than `stalled_max_ms`, while others wait, is cut off."""
HELD_UP_S = 2.0
"""Who sends nothing for so long within a large request, while others wait, is cut off."""
SEND_BYTES = 1 << 20
"""About so much is given to the socket at once."""


Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class ConnectionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    request_max_bytes: Positive = 100 << 20
    in_flight_max_requests: Positive = 1000
    in_flight_max_bytes: Positive = 32 << 20
    """Of one connection. A larger request is taken when it is alone."""
    total_max_bytes: Positive = 96 << 20
    """Of all connections; below what the writers hold, so that producers wait and hear of no error. As many again, and
    one request, may be on their way in."""
    answers_max_bytes: Positive = 256 << 20
    """Of answers of all connections that clients have not taken yet; fetches get less when they come near it."""
    max_connections: Positive = 10_000
    idle_max_ms: Positive = 600_000
    """A connection on which nothing happens for so long is closed, as Kafka does."""
    stalled_max_ms: Positive = 30_000
    """A client that takes nothing of its answers for so long, or sends next to nothing within a request, is cut off."""


class _Pending(NamedTuple):
    request: Request
    answer: Message | Later
    size: int
    began: float


class Connection(asyncio.BufferedProtocol):
    def __init__(
        self,
        listener: str,
        handle: Callable[[Request, Client], Awaitable[Answer]],
        clock: Clock,
        tasks: Tasks,
        settings: ConnectionSettings,
        budget: Budget,
        answer_budget: AnswerBudget,
        bad_connections: BadConnections,
        counts: RequestCounts,
        opened: Callable[[Connection], None],
        closed: Callable[[Connection], None],
    ) -> None:
        self._listener = listener
        self._handle = handle
        self._clock = clock
        self._tasks = tasks
        self._settings = settings
        self._budget = budget
        self._answer_budget = answer_budget
        self._bad_connections = bad_connections
        self._counts = counts
        self._untaken = 0
        """Bytes that were given to the socket and are not all gone."""
        self._opened, self._closed = opened, closed
        self._frames = Frames(settings.request_max_bytes)
        self._requests: deque[memoryview] = deque()
        self._answers: deque[_Pending] = deque()
        self._held_bytes = self._held = self._charged = self._waits = 0
        self._large = self._inside = self._asked = 0
        """The size of the large request that was let in or waits for it; the bytes of it that were granted, and those
        that it waits for."""
        self._inside_since = self._asked_at = 0.0
        """The first one without the time in which it waited and was not read."""
        self._reading = True
        self._ending = self._lost = self._hung_up = False
        self._handling: int | None = None
        """The key of the request that is being handled."""
        self._wake_handler = asyncio.Event()
        self._wake_sender = asyncio.Event()
        self._may_write = asyncio.Event()
        self._may_write.set()
        self._handler: asyncio.Task[None] | None = None
        self._sender: asyncio.Task[None] | None = None
        self.last_seen = self.last_drained = self.last_advanced = clock.monotonic()
        self._unsent = self._received = 0
        """Bytes, at the last check and since then."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        set_socket_options(transport)
        peer = transport.get_extra_info("peername")
        self.client = Client(str(peer[0]) if peer else "", self._listener)
        self._handler = self._tasks.spawn("handle requests", self._handle_requests())
        self._sender = self._tasks.spawn("send answers", self._send_answers())
        self._opened(self)

    def connection_lost(self, _error: Exception | None) -> None:
        """What was received is done, as in Kafka, though nobody hears of it; but nobody waits for others any more."""
        self._lost = True
        self._may_write.set()
        assert self._handler is not None
        assert self._sender is not None
        self._sender.cancel()
        self._requests = deque(frame for frame in self._requests if not self._hung_up and key_of(frame) not in WAITING)
        if self._handling in WAITING:
            self._handler.cancel()
            if self._requests and not self._tasks.closed:
                self._tasks.spawn("finish what was sent", self._handle_requests())
        self._wake_handler.set()
        if self._large:
            self._budget.leave(self._large, self._inside, self._let_in)
        self._budget.give_back(self._charged)
        self._held = self._held_bytes = self._charged = self._waits = self._large = self._inside = self._asked = 0
        self._answer_budget.give_back(self._untaken)
        self._untaken = 0
        self._answers.clear()
        self._closed(self)

    def get_buffer(self, _size_hint: int) -> memoryview:
        return self._frames.space()

    def buffer_updated(self, nbytes: int) -> None:
        self.last_seen = self._clock.monotonic()
        self._received += nbytes
        try:
            for frame in self._frames.received(nbytes):
                self._requests.append(frame)
                self._held += 1
                self._held_bytes += len(frame)
                key = key_of(frame)
                if key == PRODUCE:
                    self._charged += len(frame)
                    self._budget.take(len(frame))
                elif key in WAITING:
                    self._waits += 1
        except WireError as error:
            self.hang_up(str(error))
            return
        if self._inside:
            if self._frames.large:
                if self._frames.wants and not self._ask():
                    self.throttle()
                return
            self._budget.leave(self._large, self._inside, self._let_in)
            self._large = self._inside = 0
        self._wake_handler.set()
        self.throttle()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self.last_drained = self._clock.monotonic()
        self._unsent = self._transport.get_write_buffer_size()
        self._may_write.clear()

    def resume_writing(self) -> None:
        self.last_drained = self._clock.monotonic()
        self._may_write.set()

    @property
    def is_busy(self) -> bool:
        return self._held > 0 or self._transport.get_write_buffer_size() > 0

    def check(self, now: float) -> None:
        """Called now and then: cut off who is idle or stalled. Whoever is slow but goes on is not."""
        stalled_s = self._settings.stalled_max_ms / 1000
        unsent = self._transport.get_write_buffer_size()
        if unsent < self._unsent:
            self.last_drained = now
        self._unsent = unsent
        if not self._frames.is_within or self._received >= LEAST_BYTES:
            self.last_advanced, self._received = now, 0
        if not self._may_write.is_set() and now - self.last_drained > stalled_s:
            self.hang_up("it does not take its answers")
        elif self._reading and self._frames.is_within and now - self.last_advanced > stalled_s:
            self.hang_up("it does not send the rest of a request")
        elif self._inside and self._reading and self._budget.is_awaited(self._large):
            if now - self.last_seen > HELD_UP_S:
                self.hang_up("it stopped within a large request while others wait")
            elif self._is_slow(now - stalled_s):
                self.hang_up("it sends a large request too slowly, and others wait")
        elif not self.is_busy and now - self.last_seen > self._settings.idle_max_ms / 1000:
            self._transport.close()

    def _is_slow(self, now: float) -> bool:
        return now - self._inside_since > self._frames.filled / LEAST_BYTES_PER_S

    def hang_up(self, why: str) -> None:
        if self._lost:
            return
        self._hung_up = True
        self._counts.connections_cut_off += 1
        self._bad_connections.ended(self.client.host, why)
        self._transport.abort()

    def abort(self) -> None:
        self._hung_up = True
        self._transport.abort()

    def end(self) -> None:
        """Take no more requests, and close once those that were taken are answered."""
        self._ending = True
        self.throttle()
        if not self.is_busy:
            self._transport.close()

    def throttle(self) -> None:
        """Read, or do not, as the bounds say."""
        settings = self._settings
        if self._ending or self._asked or self._inside:
            full = self._ending or self._asked > 0
        elif self._held >= settings.in_flight_max_requests or self._held_bytes >= settings.in_flight_max_bytes:
            full = True
        elif self._frames.large:
            # Behind a request that waits for others it would be kept long, and only what is done soon need not count.
            full = self._waits > 0 or not self._ask()
        else:
            full = self._budget.is_spent
            if full:
                self._budget.wait(self.throttle)
        if full == self._reading and not self._transport.is_closing():
            self._reading = not full
            if full:
                self._transport.pause_reading()
            else:
                self.last_seen = self.last_advanced = self._clock.monotonic()
                self._transport.resume_reading()

    def _ask(self) -> bool:
        """Whether the buffer of the large request may be made, or grow; if not, it waits for that."""
        self._large, self._asked, self._asked_at = self._frames.large, self._frames.wants, self._clock.monotonic()
        if not self._budget.ask(self._large, self._asked, self._let_in):
            return False
        self._granted(self._asked_at)
        return True

    def _let_in(self) -> None:
        self._granted(self._clock.monotonic())
        self.throttle()

    def _granted(self, now: float) -> None:
        self._inside_since = self._inside_since + now - self._asked_at if self._inside else now
        self._inside += self._asked
        self._asked = 0

    async def _handle_requests(self) -> None:
        while True:
            # One read may bring many small requests, so their number is bounded here as well.
            while not self._requests or self._has_too_many_answers:
                if self._lost:
                    return None
                self._wake_handler.clear()
                await self._wake_handler.wait()
            frame = self._requests.popleft()
            size = len(frame)
            began = self._clock.monotonic()
            try:
                request = parse_request(frame)
                del frame  # only the batches of a Produce still need it
                answer = await self._answer(request)
            except Refused as error:
                log.debug("%s asks for what is not here: %s", self.client.host, error)
                request = Request(error.api, error.version, error.correlation_id, None, Message())
                # Whoever asks which versions there are in a version that is not there is told which are.
                is_versions = error.api.key == API_VERSIONS.key
                answer = api_versions(Code.UNSUPPORTED_VERSION) if is_versions else error.answer
            except (WireError, HangUp) as error:
                return self.hang_up(str(error))
            if self._lost:
                continue
            if answer is None:
                self._counts.answered(request, self._clock.monotonic() - began, size, 0, None)
                self._release(request.api.key, size)
                continue
            self._answers.append(_Pending(request, answer, size, began))
            self._wake_sender.set()

    @property
    def _has_too_many_answers(self) -> bool:
        """Answers may be large, and so no more are made while the client does not take those that there are."""
        waiting = len(self._answers)
        return waiting >= self._settings.in_flight_max_requests or (waiting > 0 and not self._may_write.is_set())

    async def _answer(self, request: Request) -> Answer:
        self._handling = request.api.key
        try:
            return await self._handle(request, self.client)
        except HangUp:
            raise
        except CatenaError as error:
            raise HangUp(f"{request.api.name} v{request.version} could not be answered: {error}") from error
        except Exception as error:
            log.exception("%s v%d failed", request.api.name, request.version)
            raise HangUp(f"{request.api.name} v{request.version} could not be answered") from error
        finally:
            self._handling = None

    async def _send_answers(self) -> None:
        while True:
            while not self._answers:
                self._wake_sender.clear()
                await self._wake_sender.wait()
            first = self._answers[0].answer
            if isinstance(first, Later) and not first.answer.done():
                try:
                    # Shielded: what was taken goes on when the connection is lost.
                    await shielded(first.answer)
                except Exception:
                    pass  # it is raised again where answers are taken
            try:
                count, parts = self._frames_that_are_due()
            except HangUp as error:
                return self.hang_up(str(error))
            except Exception:
                log.exception("an answer could not be made")
                return self.hang_up("an answer could not be made")
            if parts:
                self._untaken = sum(map(len, parts))
                self._answer_budget.take(self._untaken)
                # The last one by itself: `writelines` of Python 3.12.0 to 3.13.1 never says that the buffer is full.
                self._transport.writelines(parts[:-1])
                self._transport.write(parts[-1])
                await self._may_write.wait()
                self._answer_budget.give_back(self._untaken)
                self._untaken = 0
            for _ in range(count):
                pending = self._answers.popleft()
                self._release(pending.request.api.key, pending.size)
            self._wake_handler.set()

    def _frames_that_are_due(self) -> tuple[int, list[Buffer]]:
        """Answers that are there, up to the first one that is not: many are sent by one call."""
        parts: list[Buffer] = []
        count = size = 0
        now = self._clock.monotonic()
        message: Message | None
        for request, answer, size_in, began in self._answers:
            if isinstance(answer, Later):
                if not answer.answer.done() or (count and answer.answer.exception() is not None):
                    break
                result = answer.answer.result()
                if isinstance(result, HangUp):
                    if count:
                        break
                    raise result
                message = result
            else:
                message = answer
            count += 1
            size_out = 0
            if message is not None:
                frame = response_frame(request.api, request.version, request.correlation_id, message)
                parts += frame
                size_out = sum(map(len, frame))
                size += size_out
            self._counts.answered(request, now - began, size_in, size_out, message)
            if size >= SEND_BYTES:
                break
        return count, parts

    def _release(self, key: int, size: int) -> None:
        self._held -= 1
        self._held_bytes -= size
        if key == PRODUCE:
            self._charged -= size
            self._budget.give_back(size)
        elif key in WAITING:
            self._waits -= 1
        if self._ending and not self._held:
            self._transport.close()
        elif not self._reading:
            self.throttle()
