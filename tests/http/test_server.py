"""The port: who may have it, how many may come, and who has to go."""

from __future__ import annotations

import asyncio

import pytest

from catena.errors import ConfigError
from catena.http.base import HttpRequest, HttpResponse
from catena.http.server import CHECK_S, HttpServer
from catena.runtime import SystemClock, SystemNetwork
from tests.http.conftest import CUT_OFF, GET, LIMITS, ROUTES, Connect, serving
from tests.meta.manual_clock import ManualClock


async def test_of_too_many_connections_the_one_that_was_idle_for_longest_has_to_go(connect: Connect) -> None:
    first, second = await connect(), await connect()
    for reader, writer in (first, second, first):
        writer.write(GET)
        await reader.readuntil(b"a=1 ")
    third = await connect()
    with CUT_OFF:
        await second[0].readexactly(1)
    for reader, writer in (first, third):
        writer.write(GET)
        assert await reader.readuntil(b"a=1 ")


async def test_where_all_are_busy_a_new_one_is_refused() -> None:
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def wait(_request: HttpRequest) -> HttpResponse:
        asked.set()
        await go_on.wait()
        return HttpResponse(200, b"done")

    async with serving(SystemClock(), LIMITS, {"/echo": {"GET": wait}}) as connect:
        busy = [await connect(), await connect()]
        for _, writer in busy:
            asked.clear()
            writer.write(GET)
            await asked.wait()
        reader, _ = await connect()
        with CUT_OFF:
            await reader.readexactly(1)
        go_on.set()
        for reader, _ in busy:
            assert await reader.readuntil(b"done")


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


async def test_a_port_that_is_taken_is_named() -> None:
    first, second = (HttpServer(SystemNetwork(), SystemClock(), ROUTES) for _ in range(2))
    port = await first.listen("127.0.0.1", 0)
    with pytest.raises(ConfigError, match=f"HTTP can't listen on 127.0.0.1:{port}: .*in use.*; choose another port"):
        await second.listen("127.0.0.1", port)
    await second.close()
    await first.close()
