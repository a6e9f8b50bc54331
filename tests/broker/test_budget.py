"""What all connections may hold together: the rules by themselves, and then over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from catena.broker.budget import Budget
from catena.broker.connection import LEAST_BYTES, Connection, ConnectionSettings
from catena.wire.messages.produce import ProduceRequest, TopicProduceData
from catena.wire.messages.sync_group import SyncGroupRequest
from tests.broker.peers import PRODUCE, SYNC_GROUP, Clients, Desk, Peer, frame, serving, until

MAX = 800
USUAL, VERY_LARGE = 100, 101


class Door:
    """Who asks to be let in, and who was, in their order."""

    def __init__(self) -> None:
        self.budget = Budget(MAX)
        self.inside: list[str] = []
        self.sizes: dict[str, int] = {}
        self._resumes = {name: partial(self.inside.append, name) for name in "abcdefghijklmnopqrstuvwxyz"}

    def ask(self, name: str, size: int) -> None:
        self.sizes[name] = size
        if self.budget.enter(size, self._resumes[name]):
            self.inside.append(name)

    def leave(self, name: str) -> None:
        self.inside.remove(name)
        self.budget.leave(self.sizes.pop(name))

    def wait_no_more(self, name: str) -> None:
        self.budget.wait_no_more(self.sizes.pop(name), self._resumes[name])

    @property
    def waiting(self) -> list[str]:
        return [name for name in self.sizes if name not in self.inside]

    def all_of(self, name: str) -> int:
        """Bytes of those inside that go by the same lane."""
        is_usual = self.sizes[name] <= USUAL
        return sum(self.sizes[other] for other in self.inside if (self.sizes[other] <= USUAL) == is_usual)


@pytest.fixture
def door() -> Door:
    return Door()


def test_first_come_first_served(door: Door) -> None:
    door.ask("a", 500)
    door.ask("b", 700)
    door.ask("c", 200)  # it would fit, and large ones would never get their turn
    assert door.inside == ["a"]
    door.leave("a")
    assert door.inside == ["b"]
    door.leave("b")
    assert door.inside == ["c"]


def test_the_largest_is_let_in_when_nobody_is_there(door: Door) -> None:
    door.ask("a", MAX * 2)
    door.ask("b", VERY_LARGE)
    assert door.inside == ["a"]
    door.leave("a")
    assert door.inside == ["b"]


def test_very_large_ones_do_not_hold_up_the_usual(door: Door) -> None:
    door.ask("a", MAX)
    door.ask("b", VERY_LARGE)
    for name in "cdefghij":
        door.ask(name, USUAL)
    assert door.inside == list("acdefghij")
    door.ask("k", 1)
    assert door.waiting == ["b", "k"]
    assert door.budget.is_awaited(VERY_LARGE)
    assert door.budget.is_awaited(USUAL)


def test_who_goes_away_makes_way(door: Door) -> None:
    door.ask("a", 500)
    door.ask("b", 700)
    door.ask("c", 200)
    door.wait_no_more("b")
    assert door.inside == ["a", "c"]
    assert not door.budget.is_awaited(500)


def test_nobody_is_let_in_while_too_much_was_taken(door: Door) -> None:
    door.budget.take(MAX)
    door.ask("a", USUAL)
    door.ask("b", VERY_LARGE)
    assert door.inside == []
    assert not door.budget.is_awaited(USUAL), "nobody inside is to blame"
    door.budget.give_back(1)
    assert door.inside == ["a", "b"]


def test_small_ones_are_held_up_by_what_was_taken_only(door: Door) -> None:
    called: list[str] = []
    door.ask("a", MAX * 2)
    door.budget.take(MAX - 1)
    spent = [door.budget.is_spent]
    door.budget.take(1)
    assert [*spent, door.budget.is_spent] == [False, True]
    door.budget.wait(partial(called.append, "x"))
    door.leave("a")
    assert called == []
    door.budget.give_back(1)
    assert called == ["x"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "leave", "go", "take", "give back"]),
        st.sampled_from([1, USUAL, VERY_LARGE, MAX // 2, MAX, MAX * 2]),
        st.integers(0, 30),
    ),
    max_size=80,
)


@given(steps)
def test_bounded_and_never_stuck(done: list[tuple[str, int, int]]) -> None:
    door, names, taken = Door(), iter("abcdefghijklmnopqrstuvwxyz"), 0
    for what, size, which in done:
        inside, waiting = door.inside, door.waiting
        match what:
            case "ask" if (name := next(names, None)) is not None:
                door.ask(name, size)
            case "leave" if inside:
                door.leave(inside[which % len(inside)])
            case "go" if waiting:
                door.wait_no_more(waiting[which % len(waiting)])
            case "take":
                door.budget.take(size)
                taken += size
            case "give back":
                back = min(size, taken)
                door.budget.give_back(back)
                taken -= back
        assert door.budget.incoming == sum(door.sizes[name] for name in door.inside)
        for name in door.inside:
            assert door.all_of(name) <= MAX or door.all_of(name) == door.sizes[name]
        assert all(taken >= MAX or door.all_of(name) for name in door.waiting), "they wait, and nobody would call them"
    door.budget.give_back(taken)
    while door.sizes:
        door.leave(door.inside[0])
    assert door.budget.incoming == 0


SETTINGS = ConnectionSettings(
    request_max_bytes=500_000,
    in_flight_max_requests=10,
    in_flight_max_bytes=300_000,
    total_max_bytes=400_000,
    max_connections=100,
)
STALLED_S = SETTINGS.stalled_max_ms / 1000


def large(size: int, number: int = 1) -> bytes:
    """A Produce of a little more than so many bytes, in up to 30 KB of names."""
    names = [TopicProduceData(name="x" * min(30_000, size - at)) for at in range(0, size, 30_000)]
    return frame(PRODUCE, 9, number, ProduceRequest(acks=0, topic_data=names))


@pytest.fixture
def desk() -> Desk:
    return Desk()


@pytest.fixture
async def clients(desk: Desk) -> AsyncIterator[Clients]:
    async with serving(desk, SETTINGS) as clients:
        yield clients


def connections(clients: Clients) -> list[Connection]:
    return list(clients.server._connections)


def inside(clients: Clients) -> list[Connection]:
    return [each for each in connections(clients) if each._inside]


def waiting(clients: Clients) -> list[Connection]:
    return [each for each in connections(clients) if each._frames.large and not each._inside]


def buffered(clients: Clients) -> int:
    """Bytes of the buffers that large requests have."""
    return sum(len(each._frames._buffer or b"") for each in connections(clients))


async def begin(clients: Clients, data: bytes, count: int) -> list[Peer]:
    """Connections that have sent all but the end of a large request."""
    before = len(inside(clients)) + len(waiting(clients))
    peers = [await clients.connect() for _ in range(count)]
    for peer in peers:
        peer.socket.write(data[:-1])
    await until(lambda: len(inside(clients)) + len(waiting(clients)) == before + count)
    return peers


async def finish(desk: Desk, count: int) -> None:
    """Produce requests are handled until there were so many."""
    for number in range(count):
        await desk.until_asked(number + 1)
        desk.waits[number].set_result(None)


@pytest.mark.parametrize(("size", "at_once"), [(300_000, 1), (150_000, 2), (45_000, 8)])
async def test_many_who_send_all_but_the_end_are_bounded_and_all_get_through(
    clients: Clients, desk: Desk, size: int, at_once: int
) -> None:
    data = large(size)
    peers = await begin(clients, data, 20)
    await until(lambda: all(each._frames.filled == len(data) - 5 for each in inside(clients)))
    assert len(inside(clients)) == at_once
    assert clients.server._budget.incoming == at_once * (len(data) - 4)
    assert buffered(clients) <= SETTINGS.total_max_bytes
    for peer in reversed(peers):
        peer.socket.write(data[-1:])
    await finish(desk, 20)
    await until(lambda: clients.server._budget.taken == 0)
    assert clients.server._budget.incoming == 0


async def test_small_requests_go_on_while_large_ones_wait(clients: Clients) -> None:
    await begin(clients, large(300_000), 5)
    await begin(clients, large(45_000), 15)
    other = await clients.connect()
    for number in range(5):
        other.send(number)
        assert await other.answer() == number


async def test_very_large_requests_hold_up_no_usual_ones(clients: Clients, desk: Desk) -> None:
    await begin(clients, large(300_000), 5)
    (await clients.connect()).socket.write(large(45_000, 2))
    await desk.until_asked(1)
    assert desk.asked[0].correlation_id == 2
    desk.waits[0].set_result(None)


async def test_who_was_let_in_is_read_to_the_end_whatever_was_taken(clients: Clients, desk: Desk) -> None:
    data = large(300_000)
    (peer,) = await begin(clients, data[:-100_000], 1)
    for number in range(9):
        (await clients.connect()).socket.write(large(45_000))
        await desk.until_asked(number + 1)
    assert clients.server._budget.is_spent
    peer.socket.write(data[-100_001:])
    await desk.until_asked(10)
    for wait in desk.waits:
        wait.set_result(None)


async def test_who_stops_is_cut_off_and_who_waits_is_not(clients: Clients, desk: Desk) -> None:
    data = large(300_000)
    peers = await begin(clients, data, 3)
    for left in (3, 2, 1):
        (stalled,) = inside(clients)
        now = stalled.last_advanced
        for each in connections(clients):
            each.check(now)
        for each in connections(clients):
            each.check(now + STALLED_S + 1)
        await until(lambda left=left: clients.server.connections == left - 1)  # type: ignore[misc]
    assert [await peer.is_cut_off() for peer in peers] == [True] * 3
    assert clients.server._budget.incoming == 0
    (await clients.connect()).socket.write(data)
    await finish(desk, 1)


async def test_who_is_slow_is_cut_off_if_others_wait(clients: Clients) -> None:
    data = large(300_000)
    slow = await clients.connect()
    slow.socket.write(data[:20_000])
    await until(lambda: len(inside(clients)) == 1 and inside(clients)[0]._frames.filled == 20_000 - 4)
    (connection,) = inside(clients)

    async def send_a_little() -> None:
        before = connection._frames.filled
        slow.socket.write(data[before + 4 :][:LEAST_BYTES])
        await until(lambda: connection._frames.filled == before + LEAST_BYTES)

    for checks in range(5):
        await send_a_little()
        connection.check(connection._inside_since + checks * STALLED_S)
    assert clients.server.connections == 1
    await begin(clients, data, 1)
    await send_a_little()
    connection.check(connection._inside_since + 5 * STALLED_S)
    assert await slow.is_cut_off()
    await until(lambda: len(inside(clients)) == 1)


async def test_who_is_fast_enough_is_not_cut_off_though_others_wait(clients: Clients) -> None:
    data = large(300_000)
    await begin(clients, data, 2)
    (connection,) = inside(clients)
    await until(lambda: connection._frames.filled == len(data) - 5)
    connection.check(connection._inside_since)
    connection.check(connection._inside_since + STALLED_S - 1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert clients.server.connections == 2


@pytest.mark.parametrize("is_inside", [True, False])
async def test_who_leaves_makes_way(clients: Clients, desk: Desk, is_inside: bool) -> None:
    data = large(300_000)
    peers = await begin(clients, data, 3)
    leaves = (inside(clients) if is_inside else waiting(clients))[0]
    stay = [peer for peer in peers if not is_of(peer, leaves)]
    leaves.abort()
    await until(lambda: clients.server.connections == 2)
    assert [len(inside(clients)), len(waiting(clients))] == [1, 1]
    for peer in stay:
        peer.socket.write(data[-1:])
    await finish(desk, 2)
    await until(lambda: clients.server._budget.taken == 0)
    assert clients.server._budget.incoming == 0
    assert not clients.server._budget.is_awaited(len(data))


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
    assert buffered(clients) == 0
    desk.waits[0].set_result(None)
    await desk.until_asked(3)
    for wait in desk.waits[1:]:
        wait.set_result(None)


async def test_a_drain_waits_for_no_request_that_is_not_complete(clients: Clients) -> None:
    peers = await begin(clients, large(300_000), 3)
    await clients.server.drain(10)
    assert [await peer.is_cut_off() for peer in peers] == [True] * 3
    assert clients.server._budget.incoming == 0


def is_of(peer: Peer, connection: Connection) -> bool:
    return bool(peer.socket.get_extra_info("sockname") == connection._transport.get_extra_info("peername"))
