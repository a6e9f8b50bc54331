"""The end of a node that has requests which do not end: it waits for as long as it may, gives them up, and closes."""

from __future__ import annotations

import asyncio
import logging

import pytest

from catena.broker.connection import ConnectionSettings
from catena.config import load
from catena.serve import serve
from catena.wire.messages.api_versions import ApiVersionsRequest
from catena.wire.messages.heartbeat import HeartbeatResponse
from catena.wire.messages.sync_group import SyncGroupRequest
from tests.broker.peers import API_VERSIONS, SYNC_GROUP, Desk, Peer, frame, serving, until
from tests.meta.manual_clock import ManualClock

GIVEN_UP = "some requests did not end in time, and are given up"
DRAIN_S = 10


async def test_what_does_not_end_is_given_up_at_the_limit(caplog: pytest.LogCaptureFixture) -> None:
    clock, desk = ManualClock(), Desk()
    async with serving(desk, ConnectionSettings(), clock) as clients:
        waits, appends, quick = [await clients.connect() for _ in range(3)]
        waits.socket.write(frame(SYNC_GROUP, 4, 1, SyncGroupRequest()))
        appends.send(2, "later")
        quick.send(3, "later")
        await desk.until_asked(3)
        draining = asyncio.ensure_future(clients.server.drain(DRAIN_S))
        await clock.advance(0)
        await clock.advance(DRAIN_S / 2)
        asked = [request.correlation_id for request in desk.asked if request.correlation_id in (2, 3)]
        desk.later[asked.index(3)].set_result(HeartbeatResponse())
        assert await quick.answer() == 3
        assert await quick.is_cut_off()
        await clock.advance(DRAIN_S / 2 - 0.1)
        assert not draining.done()
        assert clients.server.connections == 2
        assert GIVEN_UP not in caplog.messages
        await clock.advance(0.2)
        assert draining.done()
        (record,) = [record for record in caplog.records if record.message == GIVEN_UP]
        assert (record.levelno, record.__dict__["connections"]) == (logging.WARNING, 2)
        assert not desk.waits[0].done()

        await clients.server.close()
        assert desk.waits[0].cancelled()
        assert await waits.is_cut_off()
        assert await appends.is_cut_off()
        assert clients.server.connections == 0
        assert len(clients.server._tasks) == 0
        assert not desk.later[asked.index(2)].done(), "an append goes on in the log that took it"


async def test_nothing_is_given_up_if_all_ends_in_time(caplog: pytest.LogCaptureFixture) -> None:
    clock, desk = ManualClock(), Desk()
    async with serving(desk, ConnectionSettings(), clock) as clients:
        peer = await clients.connect()
        peer.send(1, "later")
        await desk.until_asked(1)
        draining = asyncio.ensure_future(clients.server.drain(DRAIN_S))
        await clock.advance(0)
        await clock.advance(1)
        desk.later[0].set_result(HeartbeatResponse())
        assert await peer.answer() == 1
        assert await peer.is_cut_off()
        await until(lambda: clients.server.connections == 0)
        await clock.advance(0.1)
        assert draining.done()
    assert GIVEN_UP not in caplog.messages


async def test_a_node_ends_though_a_client_does_not_take_its_answers(caplog: pytest.LogCaptureFixture) -> None:
    kafka = {"listeners": {"main": {"port": 0}}, "drain_max_ms": 100}
    async with serve(load(meta="memory:", objects="memory:", kafka=kafka)) as node:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", node.address().port))
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        peer.socket.write(frame(API_VERSIONS, 0, 1, ApiVersionsRequest()) * 100_000)
        await until(lambda: node.server.connections == 1)
        (connection,) = node.server._connections
        await until(lambda: not connection._may_write.is_set())
    assert GIVEN_UP in caplog.messages
    assert node.server.connections == 0
    peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
    assert await peer.is_cut_off()
    peer.socket.close()
