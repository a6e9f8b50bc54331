"""Runs of the compaction scenario: seeds are clean, and jobs get to do all that they can do."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("pyarrow", reason="what compacts comes with the spark extra")

from sim import compact_scenario
from sim.compact_run import run_seed

SEEDS_MIN, SEEDS_MAX = 30, 300
"""It goes on until all has been seen: what comes up in which seed differs between Pythons."""
WANTED = {
    "outcome compacted",
    "outcome idle",
    "outcome busy",
    "outcome stale",
    "outcome failed",
    "recovered finished",
    "recovered abandoned",
    "marks went",
    "nonsense was kept",
}


def test_the_same_seed_gives_the_same_bytes() -> None:
    first = [run_seed(seed).fingerprint for seed in range(4)]
    assert [run_seed(seed).fingerprint for seed in range(4)] == first
    assert len(set(first)) == len(first)


def test_seeds_are_clean_and_jobs_do_all_that_they_can_do() -> None:
    """Not only in the end, when nothing is in their way, but while drivers die and sleep."""
    seen: set[str] = set()
    went_at_last = 0
    for seed in range(SEEDS_MAX):
        result = run_seed(seed, keep_transcript=True)
        assert result.violations == [], f"replay with: python -m sim run --scenario compact --seed {seed} -v"
        text = "\n".join(result.transcript)
        storm = text[: text.index(" heal\n")]
        seen |= {f"outcome {found}" for found in re.findall(r"CompactionReport\(.*outcome='(\w+)'", storm)}
        seen |= {f"recovered {found}" for found in re.findall(r"CompactionReport\(.*recovered='(\w+)'", storm)}
        seen |= {"nonsense was kept"} if re.search(r"CompactionReport\(.*opaque_batches=[1-9]", text) else set()
        marks = re.compile(r"CompactionReport\(.*tombstones=[1-9]")
        seen |= {"marks went"} if marks.search(storm) else set()
        went_at_last += marks.search(text[len(storm) :]) is not None
        if seed + 1 >= SEEDS_MIN and seen >= WANTED:
            break
    assert seen >= WANTED, WANTED - seen
    assert went_at_last > (seed + 1) // 3, "marks of deleted keys go in many seeds, once they are old"


def test_seeds_differ_in_what_they_turn_on() -> None:
    drawn = [compact_scenario.draw(seed) for seed in range(100)]
    assert {each.mark_kept_s for each in drawn} == {0.0, 1500.0}
    assert {each.compact.bucket_records for each in drawn} == {2, 7, 1000}
    assert {each.compact.group_records for each in drawn} == {4, 1000}
    assert {each.drivers for each in drawn} == {1, 2, 3}
    assert {each.nonsense for each in drawn} == {0.0, 0.1}
    assert {each.own_keys for each in drawn} == {0.0, 0.5}
