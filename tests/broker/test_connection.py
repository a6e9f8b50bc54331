"""Connections over real sockets: order, bounds, and clients that do not behave."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest

from catena.broker.base import HangUp
from catena.broker.connection import ConnectionSettings
from catena.broker.server import Server
from catena.errors import ConfigError
from catena.runtime import SystemClock, SystemNetwork
from catena.wire.apis import APIS
from catena.wire.codes import Code
from catena.wire.messages.api_versions import ApiVersionsResponse
from catena.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from catena.wire.messages.metadata import MetadataRequest
from catena.wire.messages.produce import ProduceRequest, TopicProduceData
from catena.wire.messages.sync_group import SyncGroupRequest
from catena.wire.reader import read_message
from catena.wire.requests import HEADER
from tests.broker.peers import (
    API_VERSIONS,
    END_TXN,
    HEARTBEAT,
    METADATA,
    PATIENCE_S,
    PRODUCE,
    SYNC_GROUP,
    Clients,
    Desk,
    frame,
    serving,
    until,
)

SETTINGS = ConnectionSettings(
    request_max_bytes=100_000,
    in_flight_max_requests=4,
    in_flight_max_bytes=50_000,
    total_max_bytes=60_000,
    max_connections=3,
)


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def clients(desk: Desk) -> AsyncIterator[Clients]:
    async with serving(desk, SETTINGS) as clients:
        yield clients


class TestOrder:
    async def test_answers_come_in_the_order_of_the_requests(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        for number, group in enumerate(["later", "", "later", ""]):
            peer.send(number, group)
        await desk.until_asked(4)
        desk.later[1].set_result(HeartbeatResponse())
        desk.later[0].set_result(HeartbeatResponse())
        assert [await peer.answer() for _ in range(4)] == [0, 1, 2, 3]

    async def test_who_wants_no_answer_gets_none(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        peer.send(1, "silent")
        peer.send(2, "later")
        peer.send(3)
        await desk.until_asked(3)
        desk.later[0].set_result(None)
        assert await peer.answer() == 3


class TestBounds:
    async def test_no_more_requests_are_taken_than_may_be_in_flight(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        for number in range(20):
            peer.send(number, "later")
            await asyncio.sleep(0.001)
        await desk.until_asked(4)
        for _ in range(50):
            await asyncio.sleep(0)
        # One segment may bring several at once, so a few more may have been received; they wait for the first ones.
        assert len(desk.asked) < 20
        for number in range(20):
            await desk.until_asked(number + 1)
            desk.later[number].set_result(HeartbeatResponse())
            assert await peer.answer() == number

    async def test_all_producers_together_are_bounded(self, clients: Clients, desk: Desk) -> None:
        greedy, other = await clients.connect(), await clients.connect()
        large = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="x" * 31_000)])
        for number in range(2):
            greedy.socket.write(frame(PRODUCE, 9, number, large))
        await until(lambda: clients.server._budget.is_spent)
        other.send(4)
        await until(lambda: len(desk.asked) == 2)  # what is in the buffers already is taken
        assert await other.answer() == 4
        other.send(5)
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert len(desk.asked) == 2
        desk.waits[0].set_result(None)
        assert await other.answer() == 5
        await until(lambda: len(desk.waits) == 2)
        desk.waits[1].set_result(None)

    async def test_who_waits_holds_up_nobody_else(self, clients: Clients, desk: Desk) -> None:
        waiting, other = await clients.connect(), await clients.connect()
        waiting.socket.write(frame(SYNC_GROUP, 4, 1, SyncGroupRequest(group_id="x" * 32_000, member_id="y" * 32_000)))
        await desk.until_asked(1)
        for number in range(3):
            other.send(number)
            assert await other.answer() == number

    async def test_no_more_answers_are_made_than_are_taken(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        peer.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(30):
            peer.socket.write(frame(METADATA, 9, number, MetadataRequest()))
        await until(lambda: clients.server.connections == 1)
        (connection,) = clients.server._connections
        await until(lambda: not connection._may_write.is_set())
        for _ in range(50):
            await asyncio.sleep(0.001)
        made = len(desk.asked)
        assert made < 10
        assert clients.server._answer_budget.left < SETTINGS.answers_max_bytes
        peer.reader._transport.resume_reading()  # type: ignore[attr-defined]
        for number in range(30):
            assert await peer.answer() == number
        await until(lambda: clients.server._answer_budget.left == SETTINGS.answers_max_bytes)

    async def test_a_request_that_is_too_large_ends_the_connection_and_no_other(self, clients: Clients) -> None:
        peer, other = await clients.connect(), await clients.connect()
        peer.socket.write(struct.pack(">i", 100_001))
        assert await peer.is_cut_off()
        other.send(1)
        assert await other.answer() == 1

    async def test_one_connection_too_many_is_closed(self, clients: Clients) -> None:
        peers = [await clients.connect() for _ in range(3)]
        for peer in peers:
            peer.send(1)
            assert await peer.answer() == 1
        assert await (await clients.connect()).is_cut_off()
        peers[0].send(2)
        assert await peers[0].answer() == 2

    async def test_who_stops_within_a_request_is_cut_off(self, clients: Clients) -> None:
        peer, idle = await clients.connect(), await clients.connect()
        peer.send(1)
        idle.send(1)
        assert await peer.answer() == await idle.answer() == 1
        peer.socket.write(b"\0\0")
        await peer.socket.drain()
        connections = clients.server._connections
        await until(lambda: any(each._frames.is_within for each in connections))
        (stalled,) = [each for each in connections if each._frames.is_within]
        now = stalled.last_advanced
        for second in range(0, 31, 5):
            peer.socket.write(b"\0")  # a byte now and then is no progress
            await peer.socket.drain()
            stalled.check(now + second)
        stalled.check(now + SETTINGS.stalled_max_ms / 1000 + 6)
        assert await peer.is_cut_off()
        idle.send(2)
        assert await idle.answer() == 2

    async def test_who_does_not_take_answers_is_cut_off(self, clients: Clients, desk: Desk) -> None:
        with socket.socket() as peer:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
            peer.connect(("127.0.0.1", clients.port))
            peer.setblocking(False)
            for number in range(30):
                peer.send(frame(METADATA, 9, number, MetadataRequest()))
            await until(lambda: clients.server.connections == 1)
            (connection,) = clients.server._connections
            await until(lambda: not connection._may_write.is_set())
            assert len(desk.asked) < 30
            now, stalled_s = connection.last_drained, SETTINGS.stalled_max_ms / 1000
            connection.check(now + stalled_s - 1)
            left = connection._transport.get_write_buffer_size()

            def takes_some() -> bool:
                with suppress(BlockingIOError):
                    peer.recv(1 << 16)
                return connection._transport.get_write_buffer_size() < left

            await until(takes_some)
            connection.check(now + stalled_s + 1)  # slow, but it goes on
            assert clients.server.connections == 1
            for checks in range(2, 50, 2):  # the first ones still see what the kernel has taken since
                connection.check(now + checks * stalled_s)
                await asyncio.sleep(0.001)
            await until(lambda: clients.server.connections == 0)

    async def test_who_is_idle_for_long_is_let_go(self, clients: Clients) -> None:
        peer = await clients.connect()
        peer.send(1)
        assert await peer.answer() == 1
        (connection,) = clients.server._connections
        connection.check(connection.last_seen + SETTINGS.idle_max_ms / 1000 - 1)
        peer.send(2)
        assert await peer.answer() == 2
        connection.check(connection.last_seen + SETTINGS.idle_max_ms / 1000 + 1)
        assert await peer.is_cut_off()


class TestBadInput:
    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(HEADER.pack(METADATA, 9, 1, -1) + b"\xff" * 50, id="garbage"),
            pytest.param(HEADER.pack(METADATA, 9, 1, -1) + b"\0\xff\xff\xff\xff\x07", id="too many entries"),
        ],
    )
    async def test_a_request_that_can_not_be_read_ends_its_connection_only(self, clients: Clients, body: bytes) -> None:
        peer, other = await clients.connect(), await clients.connect()
        peer.socket.write(struct.pack(">i", len(body)) + body)
        assert await peer.is_cut_off()
        other.send(1)
        assert await other.answer() == 1

    async def test_what_is_not_supported_is_refused_in_its_turn(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        peer.send(1, "later")
        request = HEADER.pack(END_TXN, 3, 2, -1)
        peer.socket.write(struct.pack(">i", len(request)) + request)
        peer.send(3)
        await desk.until_asked(2)
        desk.later[0].set_result(HeartbeatResponse())
        assert await peer.answer() == 1
        async with asyncio.timeout(PATIENCE_S):
            assert await peer.reader.readexactly(16) == struct.pack(">iibihb", 12, 2, 0, 0, Code.UNSUPPORTED_VERSION, 0)
        assert await peer.answer() == 3

    @pytest.mark.parametrize(
        "request_bytes",
        [
            pytest.param(b"\xff" * 50, id="garbage"),
            pytest.param(HEADER.pack(999, 0, -1, -1), id="unknown request"),
            pytest.param(HEADER.pack(HEARTBEAT, 99, -1, -1), id="unknown version"),
            pytest.param(HEADER.pack(0, 2, -1, -1), id="version that is advertised and refused"),
            pytest.param(HEADER.pack(1, 99, -1, -1), id="unknown version of a request that waits"),
        ],
    )
    async def test_what_nobody_knows_is_refused_and_the_connection_goes_on(
        self, clients: Clients, request_bytes: bytes
    ) -> None:
        peer = await clients.connect()
        for n in range(2 * SETTINGS.in_flight_max_requests):
            peer.socket.write(struct.pack(">i", len(request_bytes)) + request_bytes)
            async with asyncio.timeout(PATIENCE_S):
                assert await peer.reader.readexactly(10) == struct.pack(">iih", 6, -1, Code.UNSUPPORTED_VERSION)
            peer.send(n)
            assert await peer.answer() == n
        (connection,) = clients.server._connections
        assert not connection.is_busy

    async def test_an_unknown_version_of_api_versions_is_answered_in_v0(self, clients: Clients) -> None:
        peer = await clients.connect()
        body = HEADER.pack(API_VERSIONS, 99, 5, -1) + b"\0\0"
        peer.socket.write(struct.pack(">i", len(body)) + body)
        (size,) = struct.unpack(">i", await peer.reader.readexactly(4))
        data = memoryview(await peer.reader.readexactly(size))
        answer, end = read_message(ApiVersionsResponse, 0, False, data, 4)
        assert (answer.error_code, end) == (35, size)
        assert {key.api_key for key in answer.api_keys} == set(APIS)

    @pytest.mark.parametrize("group", ["broken", "bye", "unwritable"])
    async def test_a_handler_that_fails_ends_its_connection_only(self, clients: Clients, group: str) -> None:
        peer, other = await clients.connect(), await clients.connect()
        peer.send(1, group)
        assert await peer.is_cut_off()
        other.send(1)
        assert await other.answer() == 1

    async def test_an_answer_that_fails_later_ends_its_connection(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        peer.send(1, "later")
        await desk.until_asked(1)
        desk.later[0].set_result(HangUp("no"))
        assert await peer.is_cut_off()

    async def test_answers_before_the_one_that_fails_are_sent(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        for number in range(3):
            peer.send(number, "later")
        await desk.until_asked(3)
        desk.later[2].set_exception(ZeroDivisionError())
        desk.later[1].set_result(HeartbeatResponse())
        desk.later[0].set_result(HeartbeatResponse())
        assert [await peer.answer(), await peer.answer()] == [0, 1]
        assert await peer.is_cut_off()


class TestEnd:
    async def test_a_long_poll_ends_with_its_client(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        peer.socket.write(frame(SYNC_GROUP, 4, 1, SyncGroupRequest()))
        await desk.until_asked(1)
        peer.socket.close()
        await until(desk.waits[0].cancelled)

    async def test_what_was_produced_before_the_client_left_is_handled(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        peer.socket.write(frame(PRODUCE, 9, 1, ProduceRequest(acks=0)))
        peer.send(2)
        peer.socket.write(frame(PRODUCE, 9, 3, ProduceRequest(acks=0)))
        await until(lambda: clients.server.connections == 1)
        (connection,) = clients.server._connections
        await until(lambda: len(connection._requests) == 2)
        peer.socket.close()
        await until(lambda: clients.server.connections == 0)
        desk.waits[0].set_result(None)
        await until(lambda: len(desk.waits) == 2)
        desk.waits[1].set_result(None)
        kinds = [ProduceRequest, HeartbeatRequest, ProduceRequest]
        assert [type(request.body) for request in desk.asked] == kinds

    async def test_who_waits_for_a_group_leaves_and_what_it_produced_is_handled(
        self, clients: Clients, desk: Desk
    ) -> None:
        peer = await clients.connect()
        peer.socket.write(frame(SYNC_GROUP, 4, 1, SyncGroupRequest()))
        peer.socket.write(frame(PRODUCE, 9, 2, ProduceRequest(acks=0)))
        await desk.until_asked(1)
        await until(lambda: clients.server.connections == 1)
        (connection,) = clients.server._connections
        await until(lambda: len(connection._requests) == 1)
        peer.socket.close()
        await until(lambda: len(desk.waits) == 2)
        assert desk.waits[0].cancelled()
        desk.waits[1].set_result(None)

    async def test_what_was_taken_goes_on_without_its_client(self, clients: Clients, desk: Desk) -> None:
        peer = await clients.connect()
        peer.send(1, "later")
        await desk.until_asked(1)
        peer.socket.close()
        await until(lambda: clients.server.connections == 0)
        assert not desk.later[0].done()
        assert not clients.server._budget.taken

    async def test_a_drain_answers_what_was_taken_and_takes_no_more(self, clients: Clients, desk: Desk) -> None:
        peer, idle = await clients.connect(), await clients.connect()
        idle.send(1)
        assert await idle.answer() == 1
        peer.send(1, "later")
        await desk.until_asked(2)
        draining = asyncio.ensure_future(clients.server.drain(10))
        assert await idle.is_cut_off()
        peer.send(2)
        desk.later[0].set_result(HeartbeatResponse())
        assert await peer.answer() == 1
        assert await peer.is_cut_off()
        await draining
        assert clients.server.connections == 0
        with pytest.raises(ConnectionError):
            await clients.connect()

    async def test_a_port_that_is_taken_is_named(self, clients: Clients, desk: Desk) -> None:
        server = Server(SystemNetwork(), SystemClock(), desk.handle, SETTINGS)
        with pytest.raises(ConfigError, match=f"'extra'.*{clients.port}.*another port"):
            await server.listen("extra", "127.0.0.1", clients.port)
