"""Lines about bad connections: the first ones, and then a sum."""

from __future__ import annotations

import pytest

from catena.broker.bad_connections import MAX_HOSTS, MAX_OF_A_HOST, WINDOW_S, BadConnections
from catena.broker.connection import ConnectionSettings
from tests.broker.peers import Desk, serving, until
from tests.meta.manual_clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def bad(clock: ManualClock) -> BadConnections:
    return BadConnections(clock)


def test_the_first_ones_of_a_host_are_said_and_the_rest_is_counted(
    bad: BadConnections, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(100):
        bad.ended("scanner", f"reason {number}")
    bad.ended("other", "odd")
    first = [f"connection of scanner ends: reason {number}" for number in range(MAX_OF_A_HOST)]
    assert caplog.messages == [*first, "connection of other ends: odd"]
    caplog.clear()
    clock.pause(WINDOW_S - 1)
    bad.check()
    assert caplog.messages == []
    clock.pause(1)
    bad.check()
    bad.check()
    assert caplog.messages == ["97 more connections were ended; the last, of scanner: reason 99"]
    caplog.clear()
    bad.ended("scanner", "again")
    assert caplog.messages == ["connection of scanner ends: again"]


def test_many_hosts_take_neither_many_lines_nor_memory(bad: BadConnections, caplog: pytest.LogCaptureFixture) -> None:
    for number in range(1000):
        for _ in range(5):
            bad.ended(f"host {number}", "odd")
    assert len(caplog.messages) == MAX_HOSTS * MAX_OF_A_HOST
    assert len(bad._said) == MAX_HOSTS
    bad.sum_up()
    assert (
        caplog.messages[-1]
        == f"{5000 - MAX_HOSTS * MAX_OF_A_HOST} more connections were ended; the last, of host 999: odd"
    )


def test_a_minute_in_which_all_was_said_has_no_sum(
    bad: BadConnections, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(MAX_OF_A_HOST):
        bad.ended("host", "odd")
    clock.pause(WINDOW_S)
    bad.ended("host", "odd")
    bad.sum_up()
    assert caplog.messages == ["connection of host ends: odd"] * (MAX_OF_A_HOST + 1)


async def test_a_scanner_does_not_fill_the_log(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(Desk(), ConnectionSettings(), clock) as clients:
        for _ in range(20):
            peer = await clients.connect()
            peer.socket.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await peer.is_cut_off()
        assert [message.split(":")[0] for message in caplog.messages] == ["connection of 127.0.0.1 ends"] * 3
        await clock.advance(WINDOW_S)
        await until(lambda: len(caplog.messages) == 4)
        assert caplog.messages[3].startswith("17 more connections were ended; the last, of 127.0.0.1: a request of ")
        for _ in range(5):
            peer = await clients.connect()
            peer.socket.write(b"GET / HTTP/1.1\r\n\r\n")
            assert await peer.is_cut_off()
    assert caplog.messages[7].startswith("2 more connections were ended")
