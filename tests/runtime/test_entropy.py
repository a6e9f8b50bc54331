"""The system's chance: ids that fit a key, and jitter that stays in its bounds."""

from __future__ import annotations

import re

from catena.runtime import SystemEntropy


def test_ids_are_32_hex_digits_and_differ() -> None:
    entropy = SystemEntropy()
    ids = [entropy.hex_id() for _ in range(1000)]
    assert len(set(ids)) == 1000
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)


def test_jitter_is_at_least_0_and_below_1() -> None:
    entropy = SystemEntropy()
    drawn = [entropy.jitter() for _ in range(1000)]
    assert 0 <= min(drawn) < max(drawn) < 1
