"""The system's clock, beside the standard library's."""

from __future__ import annotations

import time

from catena.runtime import SystemClock


def test_the_wall_clock_counts_milliseconds_since_1970() -> None:
    before = time.time_ns() // 1_000_000
    now = SystemClock().now_ms()
    assert before <= now <= time.time_ns() // 1_000_000


async def test_sleep_lets_the_monotonic_clock_move_on() -> None:
    clock = SystemClock()
    started = clock.monotonic()
    await clock.sleep(0.01)
    assert clock.monotonic() - started >= 0.009
