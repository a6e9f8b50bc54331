"""One HTTP/1.1 connection: h11 knows the protocol, this carries the bytes.

    bytes -> h11 -> request, complete -> handler -> response -> h11 -> bytes

One request at a time, and the next one only when the client has taken nearly all of the answer; until then the socket
is not read, so a client that sends on waits in its own send buffer. Bounded: the size of a head and of a body; what
clients have not taken yet, of all connections, past which only probes are answered; the time from one answer to the
next complete request, so a client that sends a byte now and then is cut off as well, and so is one that takes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, cast

import h11
import msgspec

from catena.http.base import HttpRequest, HttpResponse, Routes, error_response, respond
from catena.runtime import Clock, Tasks
from catena.runtime.network import set_socket_options

log = logging.getLogger(__name__)


class HttpLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    head_max_bytes: int = 16 << 10
    body_max_bytes: int = 8 << 20
    untaken_max_bytes: int = 128 << 20
    """Of answers, of all connections; more is not begun then."""
    max_connections: int = 256
    idle_max_ms: int = 30_000
    """From the last byte of an answer that was taken to the next complete request."""


PROBES = ("/health", "/ready")
"""Small, and answered in any case: who does not get them takes the node for dead."""


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
    ) -> None:
        """`untaken`: the bytes that clients of all connections have not taken yet."""
        self._routes = routes
        self._clock = clock
        self._tasks = tasks
        self._limits = limits
        self._opened, self._closed, self._untaken = opened, closed, untaken
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_max_bytes)
        self._head: h11.Request | None = None
        self._body = bytearray()
        self._answering: asyncio.Task[Any] | None = None
        self._is_full = False
        self._untaken_before = 0
        self.idle_since = clock.monotonic()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        set_socket_options(transport)
        self._opened(self)

    def connection_lost(self, _error: Exception | None) -> None:
        if self._answering is not None:
            self._answering.cancel()
        self._closed(self)

    def data_received(self, data: bytes) -> None:
        self._http.receive_data(data)
        self._advance()

    def eof_received(self) -> bool:
        self._http.receive_data(b"")
        self._advance()
        return self._answering is not None

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
        try:
            while self._answering is None and not self._is_full and not self._transport.is_closing():
                event = self._http.next_event()
                if event is h11.NEED_DATA or event is h11.PAUSED:
                    return
                self._take(event)
        except h11.RemoteProtocolError as error:
            self._head = None
            self._send(error_response(error.error_status_hint, str(error)), last=True)

    def _take(self, event: object) -> None:
        match event:
            case h11.Request():
                self._head = event
                self._body = bytearray()
            case h11.Data():
                self._body += event.data
                if len(self._body) > self._limits.body_max_bytes:
                    too_large = f"the body is larger than {self._limits.body_max_bytes} bytes"
                    self._send(error_response(413, too_large), last=True)
            case h11.EndOfMessage():
                self._transport.pause_reading()
                self._answering = self._tasks.spawn("answer", self._answer())
            case h11.ConnectionClosed():
                self._transport.close()

    async def _answer(self) -> None:
        assert self._head is not None
        path, _, query = self._head.target.decode("ascii").partition("?")
        headers = tuple((name, value) for name, value in self._head.headers)
        request = HttpRequest(self._head.method.decode("ascii"), path, query, headers, bytes(self._body))
        try:
            if path not in PROBES and self._untaken() > self._limits.untaken_max_bytes:
                response = error_response(503, "clients have not taken their answers yet: ask again in a moment")
            else:
                response = await respond(self._routes, request)
        except Exception:
            log.exception("an HTTP request failed", extra={"method": request.method, "path": path})
            response = error_response(500, "this could not be answered; the log of the node says why")
        self._answering = None
        self._send(response)
        if not self._is_full:
            self._go_on()

    def _go_on(self) -> None:
        if not self._transport.is_closing():
            self._transport.resume_reading()
            self._advance()

    def _send(self, response: HttpResponse, last: bool = False) -> None:
        """`last`: what the client sends can't be told apart any more, so the connection ends with this answer."""
        self.idle_since = self._clock.monotonic()
        if self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._transport.close()
            return
        headers = [
            ("content-type", response.content_type),
            ("content-length", str(len(response.body))),
            *response.headers,
            *([("connection", "close")] if last else []),
        ]
        parts = [self._http.send(h11.Response(status_code=response.status, headers=headers))]
        if response.body and not (self._head is not None and self._head.method == b"HEAD"):
            parts.append(self._http.send(h11.Data(data=response.body)))
        parts.append(self._http.send(h11.EndOfMessage()))
        self._transport.write(b"".join(part for part in parts if part))
        self._head = None
        if self._http.states == {h11.CLIENT: h11.DONE, h11.SERVER: h11.DONE}:
            self._http.start_next_cycle()
        else:
            self._transport.close()
