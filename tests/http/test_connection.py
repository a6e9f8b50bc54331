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


async def test_the_end_of_a_client_is_noticed_and_its_last_answer_sent() -> None:
    """It may have closed one direction only."""
    asked = asyncio.Event()

    async def waits_for_news(request: HttpRequest) -> HttpResponse:
        asked.set()
        assert request.ended is not None
        await request.ended
        return HttpResponse(200, b"what there is")

    async with serving(ManualClock(), LIMITS, {"/echo": {"GET": waits_for_news}}) as connect:
        reader, writer = await connect()
        writer.write(GET)
        await asked.wait()
        writer.write_eof()
        async with asyncio.timeout(30):
            assert (await reader.read()).endswith(b"what there is")


async def test_what_is_sent_behind_a_request_waits_with_the_client() -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(_request: HttpRequest) -> HttpResponse:
        asked.set()
        await goes_on.wait()
        return HttpResponse(200, b"done")

    async with serving(ManualClock(), LIMITS, {"/echo": {"GET": slow}}) as connect:
        reader, writer = await connect()
        writer.write(GET)
        await asked.wait()
        writer.write(GET * 1_000_000)
        for _ in range(5_000):
            await asyncio.sleep(0)
        assert writer.transport.get_write_buffer_size() > 20 << 20, "the server would have taken it all"
        goes_on.set()
        for _ in range(100):
            assert await reader.readuntil(b"done")


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


async def test_who_waits_for_a_word_before_its_body_gets_it(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 5\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"hello")
    assert await reader.readuntil(b"hello")


async def test_a_body_that_is_too_large_is_refused_before_it_is_sent(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(b"POST /echo HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 101\r\n\r\n")
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"connection: close" in answer


async def test_chunks_in_pieces(connect: Connect) -> None:
    reader, writer = await connect()
    for piece in (
        b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-",
        b"encoding: chunked\r\n\r\n3\r\nab",
        b"c\r\n0\r\n\r\n",
    ):
        writer.write(piece)
        await writer.drain()
    assert (await reader.readuntil(b"POST  abc")).startswith(b"HTTP/1.1 200")


async def test_who_wants_no_more_is_told_goodbye(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(GET.replace(b"host", b"connection: close\r\nhost"))
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    assert b"connection: close" in head
    assert body == b"GET a=1 "


async def test_every_answer_is_observed() -> None:
    seen: list[tuple[str, str, int, int, int]] = []

    def observe(path: str, method: str, status: int, seconds: float, bytes_in: int, bytes_out: int) -> None:
        assert seconds >= 0
        seen.append((path, method, status, bytes_in, bytes_out))

    post = b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nhello"
    async with serving(ManualClock(), LIMITS, observe=observe) as connect:
        for sent in (GET, post, GET.replace(b"GET", b"HEAD"), GET.replace(b"GET", b"BREW"), b"nonsense\r\n\r\n"):
            await exchange(connect, sent)
        await exchange(connect, GET.replace(b"/echo", b"/made/up/by/a/client"))
    assert [each[:4] for each in seen] == [
        ("/echo", "GET", 200, 0),
        ("/echo", "POST", 200, 5),
        ("/echo", "HEAD", 200, 0),
        ("/echo", "other", 405, 0),
        ("other", "other", 400, 0),
        ("other", "GET", 404, 0),
    ]
    assert [each[4] for each in seen[:3]] == [8, 11, 0]


async def test_past_the_bound_of_what_is_held_larger_requests_are_refused() -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def slow(_request: HttpRequest) -> HttpResponse:
        asked.set()
        await goes_on.wait()
        return HttpResponse(200, b"done")

    def post(size: int) -> bytes:
        return b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % size + b"x" * size

    limits = msgspec.structs.replace(LIMITS, held_max_bytes=150, small_bytes=10, max_connections=9)
    async with serving(ManualClock(), limits, {"/echo": {"POST": slow}}) as connect:
        first, writer = await connect()
        writer.write(post(90))
        await asked.wait()
        for large in (
            post(90),
            post(90)[:-1],
            b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5a\r\n",
        ):
            reader, writer = await connect()
            writer.write(large)
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"retry-after: 1" in answer
        small, writer = await connect()
        writer.write(post(10))
        goes_on.set()
        assert await first.readuntil(b"done")
        assert await small.readuntil(b"done")
        again, writer = await connect()
        writer.write(post(90))
        assert await again.readuntil(b"done"), "what was answered is held no more"


async def test_who_is_refused_may_send_on_and_still_hears_why(connect: Connect) -> None:
    reader, writer = await connect()
    writer.write(b"POST /echo HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000000\r\n\r\n")
    for _ in range(64):
        writer.write(bytes(64 << 10))
        await writer.drain()
    assert (await reader.read()).startswith(b"HTTP/1.1 413")
