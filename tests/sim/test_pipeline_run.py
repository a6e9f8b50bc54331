"""What only the pipeline scenario has; whole runs of it are in `test_run`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from sim import pipeline_scenario
from sim.pipeline_run import run_seed

SEEDS_MIN, SEEDS_MAX = 20, 400
"""It goes on until all has been seen: what comes up in which seed differs between Pythons."""
WANTED = {
    "outcome tiered",
    "outcome idle",
    "outcome busy",
    "outcome stale",
    "outcome failed",
    "recovered finished",
    "recovered abandoned",
    "merged",
    "trimmed by retention",
    "audited",
    "forgotten",
    "left pending",
    "vacuumed",
    "slept through",
}


def sleeps(text: str) -> Iterator[tuple[float, float]]:
    """From when to when each driver slept."""
    fell: dict[str, float] = {}
    for at, name, what in re.findall(r"^\d+ (\S+) (driver\S+) (pause|goes on)", text, re.MULTILINE):
        if what == "pause":
            fell[name] = float(at)
        else:
            yield fell.pop(name), float(at)


def test_jobs_do_all_that_they_can_do_while_drivers_die_and_sleep() -> None:
    """Not only in the end, when nothing is in their way: each of these comes up within a few seeds."""
    seen: set[str] = set()
    for seed in range(SEEDS_MAX):
        text = "\n".join(run_seed(seed, keep_transcript=True).transcript)
        storm = text[: text.index(" heal\n")]
        seen |= {f"outcome {found}" for found in re.findall(r"PartitionReport\(.*outcome='(\w+)'", storm)}
        seen |= {f"recovered {found}" for found in re.findall(r"recovered='(\w+)'", storm)}
        seen |= {found for found in ("merged", "dropped") if re.search(rf"PartitionReport\(.*{found}=[1-9]", storm)}
        seen |= {"trimmed by retention"} if re.search(r"k0b\d \S+ Trim -> [1-9]", storm) else set()
        seen |= {"audited"} if re.search(r"driver-a0b\d: [1-9]\d* offsets", storm) else set()
        seen |= {"forgotten"} if " deleted:forget applied" in storm else set()
        seen |= {"left pending"} if re.search(r" n\d#\d+ killed\n", storm) else set()
        seen |= {"vacuumed"} if re.search(r"vacuum: \{.*segment", storm) else set()
        seen |= {"slept through"} if any(woke - fell > 3600 for fell, woke in sleeps(text)) else set()
        if seed + 1 >= SEEDS_MIN and seen >= WANTED:
            break
    assert seen >= WANTED, WANTED - seen


def test_seeds_differ_in_what_they_turn_on() -> None:
    drawn = [pipeline_scenario.draw(seed) for seed in range(100)]
    assert {each.claims for each in drawn} == {True, False}
    assert {each.abrupt for each in drawn} == {True, False}
    assert {each.auditors for each in drawn} == {each.retainers for each in drawn} == {0, 1}
    assert {each.bursts for each in drawn} == {1, 2, 3}
    assert {each.drivers for each in drawn} == {0, 1, 2, 3}
    assert {each.sleeps for each in drawn} == {0.0, 0.5, 1.0}
    assert {len(each.kinds) for each in drawn} == {1, 2}
