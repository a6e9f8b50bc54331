"""Connections over real sockets: what a client sends is answered or refused."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from catena.http.base import HttpRequest, HttpResponse
from catena.http.server import CHECK_S
from tests.http.conftest import GET, LIMITS, Connect, serving
from tests.meta.manual_clock import ManualClock


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


async def test_the_next_request_waits_until_the_answer_is_taken() -> None:
    """Who asks and does not read would fill the memory otherwise."""
    asked = 0

    async def large(_request: HttpRequest) -> HttpResponse:
        nonlocal asked
        asked += 1
        return HttpResponse(200, bytes(4 << 20))

    async with serving(ManualClock(), LIMITS, {"/echo": {"GET": large}}) as connect:
        reader, writer = await connect()
        writer.write(GET * 20)
        await writer.drain()
        first = await reader.readexactly(1 << 20)
        assert first.startswith(b"HTTP/1.1 200")
        assert asked <= 3, "those that the sockets have room for, and one more"
        for _ in range(20 * 4 - 1):
            await reader.readexactly(1 << 20)
        assert asked == 20


async def test_past_the_bound_only_probes_are_answered() -> None:
    async def large(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, bytes(8 << 20))

    limits = msgspec.structs.replace(LIMITS, untaken_max_bytes=1 << 20, max_connections=5)
    async with serving(ManualClock(), limits, {"/echo": {"GET": large}, "/health": {"GET": large}}) as connect:
        slow, _ = first = await connect()
        first[1].write(GET)
        await slow.readexactly(100)
        reader, writer = await connect()
        writer.write(GET)
        assert (await reader.readline()).startswith(b"HTTP/1.1 503")
        prober, probe = await connect()
        probe.write(GET.replace(b"/echo", b"/health"))
        assert (await prober.readline()).startswith(b"HTTP/1.1 200")


async def test_who_is_slow_but_goes_on_is_not_cut_off() -> None:
    async def large(_request: HttpRequest) -> HttpResponse:
        return HttpResponse(200, bytes(16 << 20))

    clock = ManualClock()
    async with serving(clock, LIMITS, {"/echo": {"GET": large}}) as connect:
        reader, writer = await connect()
        writer.write(GET)
        for _ in range(12):
            await reader.readexactly(1 << 20)
            await clock.advance(CHECK_S)
        assert await reader.readexactly(4 << 20)
