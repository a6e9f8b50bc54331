"""A server over real sockets, and clients of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from catena.http.base import HttpRequest, HttpResponse, Routes
from catena.http.connection import HttpLimits, Observe
from catena.http.server import HttpServer
from catena.runtime import Clock, SystemClock, SystemNetwork

LIMITS = HttpLimits(head_max_bytes=1_000, body_max_bytes=100, max_connections=2, idle_max_ms=10_000)
CUT_OFF = pytest.raises((ConnectionError, asyncio.IncompleteReadError))
GET = b"GET /echo?a=1 HTTP/1.1\r\nhost: x\r\n\r\n"


async def echo(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, f"{request.method} {request.query} ".encode() + request.body, "text/plain")


async def fail(_request: HttpRequest) -> HttpResponse:
    raise ZeroDivisionError("as if by a bug")


ROUTES: Routes = {"/echo": {"GET": echo, "POST": echo}, "/fail": {"GET": fail}}

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@asynccontextmanager
async def serving(
    clock: Clock, limits: HttpLimits, routes: Routes = ROUTES, observe: Observe | None = None
) -> AsyncIterator[Connect]:
    server = HttpServer(SystemNetwork(), clock, routes, limits, observe)
    port = await server.listen("127.0.0.1", 0)
    writers = []

    async def connect() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writers.append(writer)
        return reader, writer

    try:
        yield connect
    finally:
        await server.close()
        for writer in writers:
            writer.close()


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    async with serving(SystemClock(), LIMITS) as connect:
        yield connect
