"""Of the graces of vacuums that may be under way the shortest counts."""

from __future__ import annotations

import pytest

from catena.errors import Corrupt
from catena.meta import keys
from catena.meta.memory import MemoryMeta
from catena.virtual_log.vacuum_grace import LONGEST_VACUUM_MS, RENEWED_MS, publish_grace, published_grace_ms
from tests.meta.manual_clock import ManualClock

HOUR_MS = 3_600_000


async def test_the_shortest_counts_for_as_long_as_a_vacuum_may_run_with_it() -> None:
    clock = ManualClock()
    meta = MemoryMeta(clock)
    assert await published_grace_ms(meta) is None
    await publish_grace(meta, clock, 24 * HOUR_MS)
    assert await published_grace_ms(meta) == 24 * HOUR_MS
    await publish_grace(meta, clock, HOUR_MS)
    assert await published_grace_ms(meta) == HOUR_MS
    await clock.advance(LONGEST_VACUUM_MS / 1000 - 1)
    await publish_grace(meta, clock, 24 * HOUR_MS)
    assert await published_grace_ms(meta) == HOUR_MS
    await clock.advance(2)
    await publish_grace(meta, clock, 24 * HOUR_MS)
    assert await published_grace_ms(meta) == 24 * HOUR_MS


async def test_one_that_goes_on_with_a_grace_renews_it() -> None:
    clock = ManualClock()
    meta = MemoryMeta(clock)
    for _ in range(10):
        await publish_grace(meta, clock, HOUR_MS)
        await clock.advance(max(RENEWED_MS, LONGEST_VACUUM_MS // 5) / 1000)
    await publish_grace(meta, clock, 24 * HOUR_MS)
    assert await published_grace_ms(meta) == HOUR_MS


async def test_what_can_not_be_read_is_said() -> None:
    meta = MemoryMeta(ManualClock())
    await meta.put(keys.VACUUM_GRACE, b"?")
    with pytest.raises(Corrupt, match="vacuum-grace can't be read"):
        await published_grace_ms(meta)
