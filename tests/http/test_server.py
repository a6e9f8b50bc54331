"""The server over real sockets: what a client sends is answered or refused, and never held for ever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from catena.errors import ConfigError
from catena.http.base import HttpRequest, HttpResponse, Routes
from catena.http.connection import HttpLimits
from catena.http.server import CHECK_S, HttpServer
from catena.runtime import SystemClock, SystemNetwork
from tests.meta.manual_clock import ManualClock

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
    clock: SystemClock | ManualClock, limits: HttpLimits, routes: Routes = ROUTES
) -> AsyncIterator[Connect]:
    server = HttpServer(SystemNetwork(), clock, routes, limits)
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


async def exchange(connect: Connect, sent: bytes) -> bytes:
    """Send this, and read until the server closes."""
    reader, writer = await connect()
    writer.write(sent)
    writer.write_eof()
    return await reader.read()


async def test_answers_and_keeps_the_connection(connect: Connect) -> None:
    reader, writer = await connect()
    for _ in range(3):
        writer.write(GET)
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        assert b"content-length: 8" in head.lower()
        assert await reader.readexactly(8) == b"GET a=1 "


async def test_pipelined_requests_are_answered_in_their_order(connect: Connect) -> None:
    answers = await exchange(connect, b"".join(GET.replace(b"a=1", b"n=%d" % n) for n in range(20)))
    assert [int(part[:2]) for part in answers.split(b"n=")[1:]] == list(range(20))


async def test_a_body_comes_through(connect: Connect) -> None:
    sent = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello"
    assert (await exchange(connect, sent)).endswith(b"POST  hello")


async def test_head_has_no_body(connect: Connect) -> None:
    answer = await exchange(connect, GET.replace(b"GET", b"HEAD"))
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")


async def test_http_1_0_is_answered_and_closed(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(b"GET /echo HTTP/1.0\r\n\r\n")
    assert (await reader.read()).endswith(b"GET  ")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"GET /no HTTP/1.1\r\nhost: x\r\n\r\n", 404),
        (b"DELETE /echo HTTP/1.1\r\nhost: x\r\n\r\n", 405),
        (b"\x16\x03\x01 garbage\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\n\r\n", 400),
        (b"GET /echo HTTP/1.1\r\nhost: x\r\nlong: " + b"x" * 2_000, 431),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 101\r\n\r\n" + b"x" * 101, 413),
        (b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", 400),
    ],
)
async def test_what_can_not_be_is_refused(connect: Connect, sent: bytes, status: int) -> None:
    assert (await exchange(connect, sent)).startswith(b"HTTP/1.1 %d" % status)
    assert (await exchange(connect, GET)).startswith(b"HTTP/1.1 200"), "and the server lives on"


async def test_a_bug_is_an_answer_too(connect: Connect, caplog: pytest.LogCaptureFixture) -> None:
    assert (await exchange(connect, GET.replace(b"/echo", b"/fail"))).startswith(b"HTTP/1.1 500")
    assert "as if by a bug" in caplog.text


async def test_a_client_that_goes_in_the_middle_leaves_nothing(connect: Connect) -> None:
    assert (await exchange(connect, GET[:20])).startswith(b"HTTP/1.1 400")
    assert (await exchange(connect, GET)).startswith(b"HTTP/1.1 200")


async def test_too_many_connections_are_refused(connect: Connect) -> None:
    first, second = await connect(), await connect()
    for reader, writer in (first, second):
        writer.write(GET)
        await reader.readuntil(b"a=1 ")
    reader, _ = await connect()
    with CUT_OFF:
        await reader.readexactly(1)
    first[1].write(GET)
    assert await first[0].readuntil(b"a=1 ")


async def test_who_sends_a_byte_now_and_then_is_cut_off() -> None:
    clock = ManualClock()
    async with serving(clock, LIMITS) as connect:
        reader, writer = await connect()
        writer.write(GET)
        await reader.readuntil(b"a=1 ")
        for byte in (b"G", b"E", b"T"):
            writer.write(byte)
            await writer.drain()
            await clock.advance(CHECK_S)
        with CUT_OFF:
            await reader.readexactly(1)


async def test_who_waits_for_an_answer_is_not() -> None:
    clock = ManualClock()
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(_request: HttpRequest) -> HttpResponse:
        asked.set()
        await goes_on.wait()
        return HttpResponse(204)

    async with serving(clock, LIMITS, {"/slow": {"GET": slow}}) as connect:
        reader, writer = await connect()
        writer.write(b"GET /slow HTTP/1.1\r\nhost: x\r\n\r\n")
        await asked.wait()
        for _ in range(10):
            await clock.advance(CHECK_S)
        goes_on.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 204")


async def test_a_port_that_is_taken_is_named() -> None:
    first, second = (HttpServer(SystemNetwork(), SystemClock(), ROUTES) for _ in range(2))
    port = await first.listen("127.0.0.1", 0)
    with pytest.raises(ConfigError, match=f"HTTP can't listen on 127.0.0.1:{port}: .*in use.*; choose another port"):
        await second.listen("127.0.0.1", port)
    await second.close()
    await first.close()
