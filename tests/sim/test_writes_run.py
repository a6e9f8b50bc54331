"""What only the scenario of writes has: seeds are clean, the same each time, and do what they are there for."""

from __future__ import annotations

import re

from sim.writes_run import run_seed

SEEDS_MIN, SEEDS_MAX = 25, 400
"""It goes on until all has been seen: what comes up in which seed differs between Pythons."""
WANTED = {"done", "no answer", "struck at its intent", "finished for others", "vacuumed"}


def test_writes_die_sleep_race_and_are_finished() -> None:
    seen: set[str] = set()
    for seed in range(SEEDS_MAX):
        result = run_seed(seed, keep_transcript=True)
        assert result.violations == [], f"seed {seed}"
        text = "\n".join(result.transcript)
        seen |= {"done"} if re.search(r"app\d v\d+: done", text) else set()
        seen |= {"no answer"} if re.search(r"app\d v\d+: NoAnswer", text) else set()
        seen |= {"struck at its intent"} if re.search(r"driver-w\d#\d+ (crash|pause).*head:open", text) else set()
        seen |= {"finished for others"} if re.search(r"finisher\d+b\d+: [1-9]\d* finished", text) else set()
        seen |= {"vacuumed"} if re.search(r"vacuum: \{.*Amount", text) else set()
        if seed + 1 >= SEEDS_MIN and seen >= WANTED:
            break
    assert seen >= WANTED, seen


def test_a_seed_is_the_same_each_time() -> None:
    assert run_seed(3).fingerprint == run_seed(3).fingerprint
