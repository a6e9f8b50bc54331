"""Hammers as processes. What they do against a node is in test_run.py; here is what happens when there is none."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from catena.errors import NeedsOperator
from catena.loadtest import fleet as module
from catena.loadtest.fleet import Fleet, Hammer, read_back
from catena.loadtest.hammers.base import Interval, Order
from catena.loadtest.routing import make_manifest
from catena.loadtest.scenario import Http, Load
from catena.runtime import SystemClock
from tests.loadtest.test_hammers import PLACES, order

NOBODY = {"a": "127.0.0.1:1"}
LOAD = Load(duration_s=0.5, warm_up_s=0, record_bytes=64, interval_s=0.1, drain_s=0.5, backlog_max=100)


def http_order(load: Load = LOAD) -> Order:
    http = Http(timeout_s=0.2, records_per_request=30)  # so the last request is a smaller one
    return order(role="http-produce", http=NOBODY, load=load, http_load=http, per_s=400.0)


async def test_where_nobody_answers_records_are_refused_and_dropped_and_none_is_forgotten(tmp_path: Path) -> None:
    heard: list[Interval] = []
    fleet = Fleet(SystemClock(), tmp_path, heard.append)
    try:
        await fleet.launch([http_order()])
        assert len(fleet.roots) == 1
        fleet.go()
        await fleet.finish(1.0, 2.0)
        assert fleet.dead == {}
    finally:
        await fleet.close()
    assert sum(each.due for each in heard) == 200
    assert sum(each.failed + each.dropped for each in heard) == 200
    assert heard[-1].backlog == 0
    errors = {name for each in heard for name in each.errors}
    assert errors <= {"no owner could be reached", "not sent before the end"}
    remaps = [remap for each in heard for remap in each.remaps]
    assert [remap.node for remap in remaps] == ["a"]
    assert os.listdir(tmp_path) == []


async def test_a_node_that_can_not_now_is_passed_over(tmp_path: Path) -> None:
    """503: it has done nothing, so another owner may be asked."""
    answers = {
        "starts": b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 2\r\n\r\n{}",
        "ready": b"HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n" + b'{"results":[{"ok":true,"start_offset":777}]}',
    }
    asked: list[str] = []

    async def serve(name: str) -> asyncio.Server:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while head := await reader.readuntil(b"\r\n\r\n"):
                    await reader.readexactly(int(re.findall(rb"Content-Length: (\d+)", head)[0]))
                    asked.append(name)
                    writer.write(answers[name])
            writer.close()

        return await asyncio.start_server(answer, "127.0.0.1", 0)

    servers = {name: await serve(name) for name in answers}
    http = {name: f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for name, server in servers.items()}
    heard: list[Interval] = []
    fleet = Fleet(SystemClock(), tmp_path, heard.append)
    try:
        manifest = make_manifest(1, PLACES, list(http), 2, "round_robin")
        load = Load(duration_s=0.5, warm_up_s=0, record_bytes=64, interval_s=0.1, drain_s=20)
        await fleet.launch([msgspec.structs.replace(http_order(load), http=http, manifest=manifest)])
        fleet.go()
        await fleet.finish(1.0, 20.0)
        assert fleet.dead == {}
    finally:
        await fleet.close()
        for server in servers.values():
            server.close()
    assert "starts" in asked
    assert sum(each.acked for each in heard) == sum(each.due for each in heard) == 200
    remaps = [remap for each in heard for remap in each.remaps]
    assert {(remap.node, remap.why) for remap in remaps} == {("starts", "HTTP 503")}


async def test_what_a_hammer_never_got_to_is_dropped_and_not_forgotten(tmp_path: Path) -> None:
    """It stood still, and is told to stop as soon as it goes on."""
    heard: list[Interval] = []
    fleet = Fleet(SystemClock(), tmp_path, heard.append)
    clock = SystemClock()
    try:
        await fleet.launch([http_order(Load(duration_s=600, record_bytes=64, interval_s=0.1, drain_s=0))])
        start = fleet.go()
        os.kill(fleet.hammers[0].pid, signal.SIGSTOP)
        await clock.sleep(start + 1.0 - clock.monotonic())
        fleet.hammers[0].stop()
        await clock.sleep(0.1)
        os.kill(fleet.hammers[0].pid, signal.SIGCONT)
        async with asyncio.timeout(100):
            await fleet.hammers[0].has_ended.wait()
        seconds = clock.monotonic() - start
    finally:
        await fleet.close()
    due = sum(each.due for each in heard)
    assert 400 <= due <= 400 * seconds + 30
    assert sum(each.failed + each.dropped for each in heard) == due


async def test_a_hammer_that_dies_is_told_of(tmp_path: Path) -> None:
    fleet = Fleet(SystemClock(), tmp_path, lambda _: None)
    try:
        await fleet.launch([http_order()])
        fleet.go()
        os.kill(fleet.hammers[0].pid, signal.SIGKILL)
        await fleet.finish(1.0, 2.0)
        assert fleet.dead == {"kafka-produce-1": "it said nothing"}
    finally:
        await fleet.close()


async def test_a_role_that_there_is_not_says_so(tmp_path: Path) -> None:
    fleet = Fleet(SystemClock(), tmp_path, lambda _: None)
    try:
        with pytest.raises(NeedsOperator, match="did not start: there is no role 'juggle'"):
            await fleet.launch([order(role="juggle")])
    finally:
        await fleet.close()


async def test_stopped_before_its_time(tmp_path: Path) -> None:
    heard: list[Interval] = []
    fleet = Fleet(SystemClock(), tmp_path, heard.append)
    long = http_order(load=Load(duration_s=600, record_bytes=64, interval_s=0.2, drain_s=2, backlog_max=50))
    try:
        await fleet.launch([long])
        fleet.go()
        fleet.stopping.set()
        async with asyncio.timeout(100):
            await fleet.finish(1.0, 2.0)
        assert fleet.dead == {}
    finally:
        await fleet.close()


async def test_no_hammer_outlives_its_orchestrator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if that had been killed: all that a hammer sees of it is the end of its stdin."""
    hammer = await Hammer.start(order(role="http-produce", http=NOBODY), tmp_path)
    await hammer.wait_ready()
    stdin = hammer._process.stdin
    assert stdin is not None
    stdin.close()
    async with asyncio.timeout(100):
        await hammer.listen(lambda _: None)
    await hammer.end()
    monkeypatch.setattr(module, "READY_MAX_S", 0.0)
    late = await Hammer.start(order(role="http-produce", http=NOBODY), tmp_path)
    with pytest.raises(NeedsOperator, match="is not ready after 0 s"):
        await late.wait_ready()
    await late.end()


async def test_what_can_not_be_read_back_is_told(tmp_path: Path) -> None:
    with pytest.raises(NeedsOperator, match="did not start"):
        await read_back(order(role="verify", ledger=str(tmp_path / "none"), ends=[1, 1]), SystemClock(), tmp_path)
