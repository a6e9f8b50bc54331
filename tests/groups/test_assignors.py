"""What both assignors promise, for any members, topics and earlier assignments."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from catena.groups.assignors import ASSIGNORS, Candidate, Candidates, Slot, range_, uniform
from catena.types import TopicId

TOPICS = [TopicId(f"{i:032x}") for i in range(4)]
SIZES = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 7))
SUBSETS = st.frozensets(st.sampled_from(TOPICS))


@st.composite
def groups(draw: st.DrawFn, alike: bool) -> tuple[Candidates, dict[TopicId, int]]:
    """Members whose earlier shares overlap with nobody's, but may hold what is gone or not wanted any more."""
    sizes = draw(SIZES)
    members = [f"m{i}" for i in range(draw(st.integers(1, 6)))]
    owners = draw(st.dictionaries(st.tuples(st.sampled_from(TOPICS), st.integers(0, 8)), st.sampled_from(members)))
    common = draw(SUBSETS)
    return {
        member: Candidate(
            common if alike else draw(SUBSETS), frozenset(s for s, owner in owners.items() if owner == member)
        )
        for member in members
    }, sizes


def check(candidates: Candidates, sizes: dict[TopicId, int], targets: dict[str, frozenset[Slot]]) -> None:
    assert targets.keys() == candidates.keys()
    given_out = Counter(slot for slots in targets.values() for slot in slots)
    assert all(count == 1 for count in given_out.values())
    wanted = {topic for candidate in candidates.values() for topic in candidate.topics}
    assert given_out.keys() == {(topic, p) for topic in wanted for p in range(sizes.get(topic, 0))}
    for member, slots in targets.items():
        assert {topic for topic, _ in slots} <= candidates[member].topics


@given(groups(alike=True))
def test_uniform_is_even_and_keeps_as_much_as_can_be_kept(group: tuple[Candidates, dict[TopicId, int]]) -> None:
    candidates, sizes = group
    targets = uniform(candidates, sizes)
    check(candidates, sizes, targets)
    loads = sorted(len(slots) for slots in targets.values())
    assert loads[-1] - loads[0] <= 1
    valid = [
        sum(topic in candidate.topics and p < sizes.get(topic, 0) for topic, p in candidate.current)
        for candidate in candidates.values()
    ]
    best = sum(min(load, have) for load, have in zip(loads, sorted(valid), strict=True))
    assert sum(len(targets[member] & candidates[member].current) for member in candidates) == best


@given(groups(alike=False))
def test_uniform_is_complete_and_stays_when_nothing_changes(group: tuple[Candidates, dict[TopicId, int]]) -> None:
    candidates, sizes = group
    targets = uniform(candidates, sizes)
    check(candidates, sizes, targets)
    again = uniform({m: Candidate(candidates[m].topics, targets[m]) for m in candidates}, sizes)
    assert sum(len(again[m] - targets[m]) for m in candidates) == 0 or _spread(again) < _spread(targets)


def _spread(targets: dict[str, frozenset[Slot]]) -> int:
    return sum(len(slots) ** 2 for slots in targets.values())


@given(groups(alike=False))
def test_range_gives_runs_of_each_topic(group: tuple[Candidates, dict[TopicId, int]]) -> None:
    candidates, sizes = group
    targets = range_(candidates, sizes)
    check(candidates, sizes, targets)
    for slots in targets.values():
        for topic in TOPICS:
            mine = sorted(p for t, p in slots if t == topic)
            assert mine == list(range(mine[0], mine[0] + len(mine))) if mine else True


def test_uniform_balances_members_with_other_topics() -> None:
    a, b = TOPICS[:2]
    everything = frozenset((a, p) for p in range(4)) | frozenset((b, p) for p in range(4))
    candidates = {"x": Candidate(frozenset({a, b}), everything), "y": Candidate(frozenset({a}), frozenset())}
    targets = uniform(candidates, {a: 4, b: 4})
    assert (len(targets["x"]), len(targets["y"])) == (4, 4)
    assert targets["y"] <= {(a, p) for p in range(4)}


def test_range_orders_static_members_by_instance_id() -> None:
    topic = TOPICS[0]
    candidates = {
        "z": Candidate(frozenset({topic}), frozenset(), "1"),
        "y": Candidate(frozenset({topic}), frozenset(), "2"),
    }
    assert range_(candidates, {topic: 3}) == {"z": {(topic, 0), (topic, 1)}, "y": {(topic, 2)}}


def test_nobody_gets_nothing() -> None:
    assert all(assignor({}, {TOPICS[0]: 3}) == {} for assignor in ASSIGNORS.values())
