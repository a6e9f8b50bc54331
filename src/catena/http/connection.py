"""One HTTP/1.1 connection: `parsing` knows the protocol, this carries the bytes.

    bytes -> request, complete -> handler -> response -> bytes

One request at a time, and the next one only when the client has taken nearly all of the answer. The socket is read on
until then, so that the end of a client is noticed; but only up to a bound, and a client that sends on behind it waits
in its own send buffer. Bounded: the size of a head and of a body; what has come in of requests that are not answered
yet, of all connections, past which larger ones are refused; what clients have not taken yet, of all connections, past
which only probes are answered; the time from one answer to the next complete request, so a client that sends a byte now
and then is cut off as well, and so is one that takes nothing.

Whoever sends what is refused may go on sending for a while, before it reads. Were the connection closed at once its
kernel would throw the answer away. So only our side is closed, and what still comes in is passed over, up to a bound.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeAlias, cast

import msgspec

from catena.http.base import JSON, HttpRequest, HttpResponse, Routes, error_response, respond
from catena.http.parsing import BadRequest, Incoming, Requests
from catena.runtime import Clock, Tasks
from catena.runtime.network import set_socket_options

log = logging.getLogger(__name__)


class HttpLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    head_max_bytes: int = 16 << 10
    body_max_bytes: int = 8 << 20
    held_max_bytes: int = 64 << 20
    """Of requests that are on their way in, or not answered yet, of all connections."""
    small_bytes: int = 64 << 10
    """A request that has no more is taken however many are held."""
    untaken_max_bytes: int = 128 << 20
    """Of answers, of all connections; more is not begun then."""
    max_connections: int = 256
    idle_max_ms: int = 30_000
    """From the last byte of an answer that was taken to the next complete request."""


PROBES = ("/health", "/ready")
"""Small, and answered in any case: who does not get them takes the node for dead."""

OTHER = "other"
"""Stands for paths that are not there, and for methods that nobody uses: whoever counts them has few names."""
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")

Observe: TypeAlias = Callable[[str, str, int, float, int, int], None]
"""Path and method, or OTHER; status; seconds from the complete request to its answer; bytes of both bodies."""

RETRY_AFTER = (("retry-after", "1"),)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_USUAL_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_FIRST_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n" for status in HTTPStatus}
_PASSED_OVER_MAX_BYTES = 64 << 20
_LARGE_BYTES = 64 << 10
"""A body from this size on is not copied behind its head."""


class HttpConnection(asyncio.Protocol):
    def __init__(
        self,
        routes: Routes,
        clock: Clock,
        tasks: Tasks,
        limits: HttpLimits,
        opened: Callable[[HttpConnection], None],
        closed: Callable[[HttpConnection], None],
        untaken: Callable[[], int],
        lags: Callable[[HttpConnection], None],
        hold: Callable[[int], int],
        observe: Observe | None = None,
    ) -> None:
        """`untaken`: the bytes that clients of all connections have not taken yet. `lags` is told where this begins.
        `hold` is told of bytes that are held more, or less, and says how many all connections hold."""
        self._routes = routes
        self._clock = clock
        self._tasks = tasks
        self._limits = limits
        self._opened, self._closed, self._untaken, self._lags = opened, closed, untaken, lags
        self._hold = hold
        self._held = 0
        self._observe = observe
        self._requests = Requests(limits.head_max_bytes, limits.body_max_bytes)
        self._answering: asyncio.Task[Any] | None = None
        self._answering_bytes = 0
        """Of the body of the request that is being answered."""
        self._is_full = False
        self._is_paused = False
        """The socket is not read: enough has come in behind what is being answered."""
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once the client sends no more; it may still wait for answers."""
        self._passed_over: int | None = None
        """Bytes that came in since what was sent before them was refused."""
        self._untaken_before = 0
        self.idle_since = clock.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        set_socket_options(transport)
        self._opened(self)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()
        self._count_held(0)
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        if self._passed_over is not None:
            self._passed_over += len(data)
            if self._passed_over > _PASSED_OVER_MAX_BYTES:
                self._transport.abort()
            return
        self._requests.feed(data)
        if self._answering is None and not self._is_full:
            self._advance()
            return
        held = self._requests.held
        self._count_held(self._answering_bytes + held)
        if held > self._limits.small_bytes and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def eof_received(self) -> bool:
        self._ended.set_result(None)
        self._advance()
        return self._answering is not None or self._is_full

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        if self._answering is None:
            self._go_on()

    @property
    def is_busy(self) -> bool:
        return self._answering is not None or self.untaken > 0

    @property
    def untaken(self) -> int:
        return self._transport.get_write_buffer_size()

    def check(self, now: float) -> None:
        """Called now and then: cut off who is idle, or does not take an answer. Whoever is slow but goes on is not."""
        untaken = self.untaken
        if untaken < self._untaken_before:
            self.idle_since = now
        self._untaken_before = untaken
        if self._answering is None and now - self.idle_since > self._limits.idle_max_ms / 1000:
            self._transport.abort()

    def abort(self) -> None:
        self._transport.abort()

    def _advance(self) -> None:
        """Go on with what has been received, up to the next complete request."""
        is_held_up = self._answering is not None or self._is_full
        if is_held_up or self._passed_over is not None or self._transport.is_closing():
            return
        try:
            incoming = self._requests.take()
        except BadRequest as bad:
            self._refuse(bad.status, str(bad))
            return
        if self._count_held(self._requests.held if incoming is None else len(incoming.request.body)):
            self._refuse(503, "too many bytes of requests are on their way: ask again in a moment", RETRY_AFTER)
        elif incoming is not None:
            self._answering_bytes = len(incoming.request.body)
            self._answering = self._tasks.spawn("answer", self._answer(incoming))
        elif self._ended.done():
            if self._requests.is_between:
                self._transport.close()
            else:
                self._refuse(400, "the request ends in the middle")
        elif self._requests.wants_continue:
            self._requests.wants_continue = False
            self._transport.write(_CONTINUE)

    async def _answer(self, incoming: Incoming) -> None:
        request = HttpRequest(*incoming.request[:-1], self._ended)
        began = self._clock.monotonic()
        try:
            if request.path not in PROBES and self._untaken() > self._limits.untaken_max_bytes:
                untaken = "clients have not taken their answers yet: ask again in a moment"
                response = error_response(503, untaken, RETRY_AFTER)
            else:
                response = await respond(self._routes, request)
        except Exception:
            log.exception("an HTTP request failed", extra={"method": request.method, "path": request.path})
            response = error_response(500, "this could not be answered; the log of the node says why")
        self._answering = None
        self._answering_bytes = 0
        self._count_held(self._requests.held)
        self._send(response, incoming.keeps_alive, request, began)
        if not self._is_full:
            self._go_on()

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            if self._is_paused:
                self._is_paused = False
                self._transport.resume_reading()
            self._advance()

    def _count_held(self, size: int) -> bool:
        """Whether this is too much, with what others hold."""
        if size == self._held:
            return False
        total = self._hold(size - self._held)
        self._held = size
        return total > self._limits.held_max_bytes and size > self._limits.small_bytes

    def _refuse(self, status: int, message: str, headers: tuple[tuple[str, str], ...] = ()) -> None:
        """What the client sends can't be told apart any more, so the connection ends with this answer."""
        self._passed_over = 0
        self._requests = Requests(0, 0)
        self._count_held(0)
        self._send(error_response(status, message, headers), keeps_alive=False)

    def _send(
        self, response: HttpResponse, keeps_alive: bool, request: HttpRequest | None = None, began: float = 0.0
    ) -> None:
        """None: what the client sent is no request."""
        now = self.idle_since = self._clock.monotonic()
        head = _head_of(response, keeps_alive)
        body = b"" if request is not None and request.method == "HEAD" else response.body
        if len(body) < _LARGE_BYTES:
            self._transport.write(head + body)
        else:
            # Not `writelines`: that of Python 3.12.0 to 3.13.1 never says that the buffer is full.
            self._transport.write(head)
            self._transport.write(body)
        if self.untaken:
            self._lags(self)
        if self._passed_over is not None and not self._ended.done():
            self._transport.write_eof()
        elif not keeps_alive:
            self._transport.close()
        if self._observe is None:
            return
        if request is None:
            self._observe(OTHER, OTHER, response.status, 0.0, 0, len(body))
        else:
            path = request.path if request.path in self._routes else OTHER
            method = request.method if request.method in METHODS else OTHER
            self._observe(path, method, response.status, now - began, len(request.body), len(body))


def _head_of(response: HttpResponse, keeps_alive: bool) -> bytes:
    if keeps_alive and response.status == HTTPStatus.OK and response.content_type == JSON and not response.headers:
        return _USUAL_HEAD % len(response.body)
    lines = [_FIRST_LINES[response.status]]
    if response.status != HTTPStatus.NO_CONTENT:
        lines.append(f"content-type: {response.content_type}\r\ncontent-length: {len(response.body)}\r\n")
    lines += [f"{name}: {value}\r\n" for name, value in response.headers]
    lines.append("\r\n" if keeps_alive else "connection: close\r\n\r\n")
    return "".join(lines).encode("latin-1")
