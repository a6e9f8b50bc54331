"""Against a server of a few lines, which answers what a test wants, byte by byte."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from catena.loadtest.http_client import Answer, HttpClient, NotSent

Answering = Callable[[bytes], bytes | None]
"""From a request to the bytes of its answer; None: the connection is cut."""


class Server:
    def __init__(self, address: str) -> None:
        self.address = address
        self.connections = 0
        self.requests: list[bytes] = []


@asynccontextmanager
async def serving(answer: Answering) -> AsyncIterator[Server]:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        found.connections += 1
        try:
            while True:
                request = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in request.split(b"\r\n") if line.lower().startswith(b"content-length:")),
                    0,
                )
                request += await reader.readexactly(length)
                found.requests.append(request)
                said = answer(request)
                if said is None:
                    return
                writer.write(said)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    async def talk_until_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        talks.append(task)
        await talk(reader, writer)

    talks: list[asyncio.Task[None]] = []
    server = await asyncio.start_server(talk_until_the_end, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    found = Server(f"{host}:{port}")
    try:
        yield found
    finally:
        server.close()
        await asyncio.gather(*talks)


def plain(body: bytes = b"yes", status: int = 200, more: str = "") -> bytes:
    return f"HTTP/1.1 {status} OK\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


async def test_a_connection_is_kept_from_one_request_to_the_next() -> None:
    async with serving(lambda _: plain()) as server:
        client = HttpClient(server.address, 5.0, token="t0ken")
        assert await client.ask("GET", "/health") == Answer(200, b"yes")
        assert await client.ask("POST", "/produce", b'{"a":1}') == Answer(200, b"yes")
        client.close()
    assert server.connections == 1
    assert server.requests[0].startswith(b"GET /health HTTP/1.1\r\n")
    assert b"Authorization: Bearer t0ken\r\n" in server.requests[0]
    assert server.requests[1].endswith(b'\r\n\r\n{"a":1}')


async def test_other_ways_to_send_a_body() -> None:
    chunked = b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n"
    async with serving(lambda _: chunked) as server:
        client = HttpClient(server.address, 5.0)
        assert [await client.ask("GET", "/") for _ in range(2)] == [Answer(409, b"abcde")] * 2
        client.close()
    assert server.connections == 1


async def test_who_says_close_is_connected_to_anew() -> None:
    async with serving(lambda _: plain(more="Connection: close\r\n")) as server:
        client = HttpClient(server.address, 5.0)
        await client.ask("GET", "/")
        await client.ask("GET", "/")
        client.close()
    assert server.connections == 2


async def test_where_nobody_listens_nothing_was_sent() -> None:
    async with serving(lambda _: plain()) as server:
        address = server.address
    with pytest.raises(NotSent):
        await HttpClient(address, 5.0).ask("GET", "/")


@pytest.mark.parametrize(
    "said", [None, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", b"hello\r\n\r\n", plain(more="X: y\r\n")[:20]]
)
async def test_what_is_not_answered_may_have_been_done(said: bytes | None) -> None:
    answers = [said, None]
    async with serving(lambda _: answers.pop(0)) as server:
        client = HttpClient(server.address, 0.3)
        with pytest.raises(OSError):  # noqa: PT011 - a ConnectionError or a TimeoutError, as it comes
            await client.ask("POST", "/produce", b"{}")
        client.close()


async def test_after_an_error_the_next_request_has_a_new_connection() -> None:
    answers = [None, plain()]
    async with serving(lambda _: answers.pop(0)) as server:
        client = HttpClient(server.address, 5.0)
        with pytest.raises(ConnectionError):
            await client.ask("GET", "/")
        assert (await client.ask("GET", "/")).status == 200
        client.close()
    assert server.connections == 2


async def test_a_body_without_end_is_refused() -> None:
    async with serving(lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n") as server:
        client = HttpClient(server.address, 5.0)
        with pytest.raises(ConnectionAbortedError, match="a body of"):
            await client.ask("GET", "/")
