"""What all connections may hold together, over real sockets: half-sent requests, and clients that stop or are slow."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from catena.broker.connection import HELD_UP_S, LEAST_BYTES, Connection, ConnectionSettings
from catena.broker.server import CHECK_AWAITED_S
from catena.wire import frames
from catena.wire.messages.produce import ProduceRequest, TopicProduceData
from catena.wire.messages.sync_group import SyncGroupRequest
from tests.broker.peers import PRODUCE, SYNC_GROUP, Clients, Desk, Peer, frame, serving, until
from tests.meta.manual_clock import ManualClock

SETTINGS = ConnectionSettings(
    request_max_bytes=500_000,
    in_flight_max_requests=10,
    in_flight_max_bytes=300_000,
    total_max_bytes=400_000,
    max_connections=100,
)
"""Up to 50,000 bytes are usual, and 250,000 of such fit; of the larger ones 100,000."""
STALLED_S = SETTINGS.stalled_max_ms / 1000
FIRST_BYTES = 20_000


def large(size: int, number: int = 1) -> bytes:
    """A Produce of a little more than so many bytes, in up to 30 KB of names."""
    names = [TopicProduceData(name="x" * min(30_000, size - at)) for at in range(0, size, 30_000)]
    return frame(PRODUCE, 9, number, ProduceRequest(acks=0, topic_data=names))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture(autouse=True)
def buffers_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "FIRST_BYTES", FIRST_BYTES)


@pytest.fixture
async def clients(desk: Desk) -> AsyncIterator[Clients]:
    async with serving(desk, SETTINGS) as clients:
        yield clients


def connections(clients: Clients) -> list[Connection]:
    return list(clients.server._connections)


def inside(clients: Clients) -> list[Connection]:
    """Those within a large request that are read."""
    return [each for each in connections(clients) if each._inside and not each._asked]


def waiting(clients: Clients) -> list[Connection]:
    return [each for each in connections(clients) if each._frames.large and (each._asked or not each._inside)]


def buffered(clients: Clients) -> int:
    """Bytes of the buffers that large requests have."""
    return sum(len(each._frames._buffer or b"") for each in connections(clients))


def privileged(clients: Clients) -> list[Connection]:
    budget = clients.server._budget
    who = (budget._usual.privileged, budget._larger.privileged)
    return [each for each in connections(clients) if each._let_in in who]


def arrived(connection: Connection) -> int:
    """Bytes of a large request; the first ones are moved to its own buffer when more are received."""
    return connection._frames.filled or connection._frames._end - connection._frames._start


async def begin(clients: Clients, data: bytes, count: int) -> list[Peer]:
    """Connections that send this, which ends within a large request; as far as they are read."""
    before = set(connections(clients))
    peers = [await clients.connect() for _ in range(count)]
    for peer in peers:
        peer.socket.write(data)
    await until(lambda: len(connections(clients)) == len(before) + count)
    await until_read(clients, [each for each in connections(clients) if each not in before], len(data))
    return peers


async def begin_together(clients: Clients, data: bytes, count: int) -> list[Peer]:
    """The same, but all begin before the first one goes on: so some that wait have a buffer already."""
    peers = await begin(clients, data[:1000], count)
    for peer in peers:
        peer.socket.write(data[1000:])
    await until_read(clients, connections(clients), len(data))
    return peers


async def until_read(clients: Clients, connections: list[Connection], size: int) -> None:
    budget = clients.server._budget

    def are_read() -> bool:
        assert buffered(clients) <= budget.incoming <= SETTINGS.total_max_bytes + SETTINGS.request_max_bytes
        return all(each._asked or arrived(each) == size - 4 for each in connections)

    await until(are_read)


async def a_check(clock: ManualClock, after_s: float) -> None:
    await clock.advance(after_s)
    await clock.advance(0)  # what has arrived is read first


def check_all(clients: Clients, now: float) -> None:
    for each in connections(clients):
        each.check(now)


async def finish(desk: Desk, count: int) -> None:
    """Produce requests are handled until there were so many."""
    for number in range(count):
        await desk.until_asked(number + 1)
        desk.waits[number].set_result(None)


@pytest.mark.parametrize("size", [300_000, 150_000, 45_000, 18_000])
async def test_many_who_send_all_but_the_end_are_bounded_and_all_get_through(
    clients: Clients, desk: Desk, size: int
) -> None:
    data = large(size)
    peers = await begin(clients, data[:-1], 20)
    assert inside(clients)
    assert waiting(clients)
    for peer in reversed(peers):
        peer.socket.write(data[-1:])
    await finish(desk, 20)
    await until(lambda: clients.server._budget.taken == 0)
    assert clients.server._budget.incoming == 0
    assert privileged(clients) == waiting(clients) == []


async def test_who_announces_much_and_sends_little_holds_up_nobody(clients: Clients, desk: Desk) -> None:
    await begin(clients, large(45_000)[:18], 12)
    (await clients.connect()).socket.write(large(9_000 + FIRST_BYTES, 2))
    await desk.until_asked(1)
    assert desk.asked[0].correlation_id == 2
    assert len(inside(clients)) == 12
    desk.waits[0].set_result(None)


async def test_many_who_stop_hold_up_others_for_seconds_only(desk: Desk) -> None:
    clock = ManualClock()
    async with serving(desk, SETTINGS, clock) as clients:
        data = large(19_000)
        stopped = await begin(clients, data[:18], 20)
        assert len(waiting(clients)) == 6
        (await clients.connect()).socket.write(large(45_000, 2))
        await until(lambda: len(waiting(clients)) == 7)
        for _ in range(int(HELD_UP_S / CHECK_AWAITED_S)):
            await a_check(clock, CHECK_AWAITED_S)
        assert not desk.asked
        await a_check(clock, CHECK_AWAITED_S)
        await desk.until_asked(1)
        assert desk.asked[0].correlation_id == 2
        await until(lambda: clients.server.connections == 7)
        assert clients.server._budget.incoming == 6 * (len(data) - 4)
        await a_check(clock, STALLED_S - 1)
        assert clients.server.connections == 7, "nobody waits any more"
        desk.waits[0].set_result(None)
        for peer in stopped:
            peer.socket.close()
        await until(lambda: clients.server.connections == 1)
        assert clients.server._budget.incoming == 0


async def test_a_node_that_was_held_up_blames_no_client(desk: Desk) -> None:
    clock = ManualClock()
    async with serving(desk, SETTINGS, clock) as clients:
        data = large(300_000)
        peers = await begin(clients, data[:100_000], 3)
        (connection,) = privileged(clients)
        (peer,) = [peer for peer in peers if is_of(peer, connection)]
        await until(lambda: connection._frames.filled == 100_000 - 4)
        peer.socket.write(data[100_000:-1])
        clock.pause(HELD_UP_S + 1)
        await a_check(clock, 0)
        assert not connection._transport.is_closing()
        await until(lambda: connection._frames.filled == len(data) - 5)
        await a_check(clock, HELD_UP_S + 1)
        assert await peer.is_cut_off()


async def test_small_requests_go_on_while_large_ones_wait(clients: Clients) -> None:
    await begin(clients, large(300_000)[:-1], 5)
    await begin(clients, large(45_000)[:-1], 15)
    assert waiting(clients)
    other = await clients.connect()
    for number in range(5):
        other.send(number)
        assert await other.answer() == number


async def test_larger_requests_hold_up_no_usual_ones(clients: Clients, desk: Desk) -> None:
    await begin(clients, large(300_000)[:-1], 5)
    assert waiting(clients)
    (await clients.connect()).socket.write(large(45_000, 2))
    await desk.until_asked(1)
    assert desk.asked[0].correlation_id == 2
    desk.waits[0].set_result(None)


async def test_what_was_taken_is_answered_before_a_buffer_grows(clients: Clients, desk: Desk) -> None:
    data = large(300_000)
    (peer,) = await begin(clients, data[:FIRST_BYTES], 1)
    for number in range(9):
        (await clients.connect()).socket.write(large(45_000))
        await desk.until_asked(number + 1)
    assert clients.server._budget.is_spent
    peer.socket.write(data[FIRST_BYTES:])
    await until(lambda: len(waiting(clients)) == 1)
    assert clients.server._budget.incoming == buffered(clients) == FIRST_BYTES
    check_all(clients, waiting(clients)[0].last_seen + STALLED_S + 1)
    assert clients.server.connections == 10, "it can do nothing about it"
    desk.waits[0].set_result(None)
    await desk.until_asked(10)
    for wait in desk.waits[1:]:
        wait.set_result(None)


async def test_who_stops_while_others_wait_is_cut_off_and_the_next_gets_its_turn(clients: Clients, desk: Desk) -> None:
    data = large(300_000)
    peers = await begin(clients, data[:-1], 6)
    turns: list[Connection] = []
    for left in (5, 4, 3, 2, 1):
        (stopped,) = privileged(clients)
        await until(lambda stopped=stopped: stopped._frames.filled == len(data) - 5)  # type: ignore[misc]
        turns.append(stopped)
        check_all(clients, stopped.last_seen + HELD_UP_S)
        assert clients.server.connections == left + 1
        stopped.check(stopped.last_seen + HELD_UP_S + 0.1)
        await until(lambda left=left: clients.server.connections == left)  # type: ignore[misc]
    assert len(set(turns)) == 5
    await until(lambda: len(inside(clients)) == 1 and inside(clients)[0]._frames.filled == len(data) - 5)
    (last,) = connections(clients)
    last.check(last.last_seen + STALLED_S - 1)
    (peer,) = [peer for peer in peers if is_of(peer, last)]
    peer.socket.write(data[-1:])
    await finish(desk, 1)
    await until(lambda: clients.server._budget.taken == 0)
    assert clients.server._budget.incoming == 0


async def test_who_waits_is_not_cut_off(clients: Clients) -> None:
    await begin_together(clients, large(300_000)[:-1], 6)
    held_up = waiting(clients)
    assert any(each._inside for each in held_up)
    for each in held_up:
        each.check(each.last_seen + 10 * STALLED_S)
    assert waiting(clients) == held_up


async def test_who_stops_is_cut_off_later_if_nobody_waits(clients: Clients) -> None:
    (peer,) = await begin(clients, large(300_000)[:-1], 1)
    (stopped,) = inside(clients)
    now = stopped.last_seen
    stopped.check(now)
    stopped.check(now + STALLED_S)
    assert clients.server.connections == 1
    stopped.check(now + STALLED_S + 1)
    assert await peer.is_cut_off()
    await until(lambda: clients.server._budget.incoming == 0)


async def test_who_is_slow_is_cut_off_if_others_wait(clients: Clients) -> None:
    data = large(300_000)
    (slow,) = await begin(clients, data[: 100_000 + 4], 1)
    (connection,) = inside(clients)

    async def send_a_little() -> None:
        before = connection._frames.filled
        slow.socket.write(data[before + 4 :][:LEAST_BYTES])
        await until(lambda: connection._frames.filled == before + LEAST_BYTES)

    for checks in range(5):
        await send_a_little()
        connection.check(connection._inside_since + checks * STALLED_S)
    assert clients.server.connections == 1
    await begin(clients, data[:-1], 1)
    await send_a_little()
    connection.last_seen = connection._inside_since + 5 * STALLED_S
    connection.check(connection._inside_since + 5 * STALLED_S)
    assert await slow.is_cut_off()
    await until(lambda: len(inside(clients)) == 1)


async def test_time_that_one_waits_makes_nobody_slow(desk: Desk) -> None:
    clock = ManualClock()
    async with serving(desk, SETTINGS, clock) as clients:
        data = large(300_000)
        await begin_together(clients, data[:-1], 2)
        (first,), (second,) = privileged(clients), waiting(clients)
        assert second._inside
        await clock.advance(HELD_UP_S)
        first._transport.abort()
        await until(lambda: privileged(clients) == [second])
        await until(lambda: second._frames.filled == len(data) - 5)
        assert second._inside_since == second.last_seen == clock.monotonic()


async def test_who_is_fast_enough_is_not_cut_off_though_others_wait(clients: Clients) -> None:
    data = large(300_000)
    await begin(clients, data[:-1], 3)
    (connection,) = privileged(clients)
    await until(lambda: connection._frames.filled == len(data) - 5)
    connection.last_seen = connection._inside_since + STALLED_S
    connection.check(connection._inside_since)
    connection.check(connection._inside_since + STALLED_S)
    for _ in range(20):
        await asyncio.sleep(0)
    assert clients.server.connections == 3


@pytest.mark.parametrize("who", ["privileged", "waits and has some", "waits and has nothing"])
async def test_who_leaves_makes_way(clients: Clients, desk: Desk, who: str) -> None:
    data = large(300_000)
    peers = await begin_together(clients, data[:-1], 10)
    if who == "privileged":
        (leaves,) = privileged(clients)
    else:
        leaves = next(each for each in waiting(clients) if (each._inside > 0) == (who == "waits and has some"))
    stay = [peer for peer in peers if not is_of(peer, leaves)]
    leaves.abort()
    await until(lambda: clients.server.connections == 9)
    assert clients.server._budget.incoming == sum(each._inside for each in connections(clients))
    for peer in stay:
        peer.socket.write(data[-1:])
    await finish(desk, 9)
    await until(lambda: clients.server._budget.taken == 0)
    assert clients.server._budget.incoming == 0
    assert not clients.server._budget.has_waiting


async def test_nothing_is_left_when_all_are_gone(clients: Clients) -> None:
    peers = [
        *await begin(clients, large(300_000)[:-1], 10),
        *await begin(clients, large(45_000)[:-1], 20),
    ]
    assert waiting(clients)
    for peer in peers:
        peer.socket.close()
    await until(lambda: clients.server.connections == 0)
    budget = clients.server._budget
    assert (budget.incoming, budget.taken, budget.has_waiting) == (0, 0, False)
    assert budget._usual.privileged is budget._larger.privileged is None


async def test_a_large_request_behind_one_that_waits_is_not_read(clients: Clients, desk: Desk) -> None:
    peer = await clients.connect()
    peer.socket.write(frame(SYNC_GROUP, 4, 1, SyncGroupRequest()) + large(300_000, 2))
    await desk.until_asked(1)
    await until(lambda: len(waiting(clients)) == 1)
    assert clients.server._budget.incoming == buffered(clients) == 0
    desk.waits[0].set_result(None)
    await desk.until_asked(2)
    desk.waits[1].set_result(None)


async def test_large_requests_wait_until_what_was_taken_is_answered(clients: Clients, desk: Desk) -> None:
    data = large(300_000)
    first, second, third = [await clients.connect() for _ in range(3)]
    first.socket.write(data)
    await desk.until_asked(1)
    second.socket.write(data)
    await desk.until_asked(2)
    third.socket.write(data)
    await until(lambda: len(waiting(clients)) == 1)
    assert buffered(clients) == clients.server._budget.incoming == 0
    desk.waits[0].set_result(None)
    await desk.until_asked(3)
    for wait in desk.waits[1:]:
        wait.set_result(None)


async def test_a_drain_waits_for_no_request_that_is_not_complete(clients: Clients) -> None:
    peers = await begin(clients, large(300_000)[:-1], 3)
    await clients.server.drain(10)
    assert [await peer.is_cut_off() for peer in peers] == [True] * 3
    assert clients.server._budget.incoming == 0


def is_of(peer: Peer, connection: Connection) -> bool:
    return bool(peer.socket.get_extra_info("sockname") == connection._transport.get_extra_info("peername"))
