"""Each rule over the history of groups: what breaks it is seen, and what only looks like it is not."""

from __future__ import annotations

from sim.group_checker import check
from sim.group_history import NOTHING, Ask, Beat, Commit, Fetch, GroupHistory, Join, Removal, Slot, Sync
from sim.history import NEVER, Outcome

A, B = Slot("a", 0), Slot("b", 0)
UNKNOWN, FAILED = Outcome.UNKNOWN, Outcome.FAILED


def commit(invoked: int, returned: int, offset: int, outcome: Outcome = Outcome.OK, generation: int = -1) -> Commit:
    ended = NEVER if outcome is UNKNOWN else returned
    return Commit("g", "c", invoked, ended, outcome, offsets={A: offset}, member="m", generation=generation)


def fetch(invoked: int, returned: int, offset: int) -> Fetch:
    return Fetch("g", "r", invoked, returned, Outcome.OK, offsets={A: offset})


def delete(
    invoked: int, returned: int, outcome: Outcome = Outcome.OK, slots: tuple[Slot, ...] | None = None
) -> Removal:
    return Removal("g", "d", invoked, NEVER if outcome is UNKNOWN else returned, outcome, slots=slots)


def join(invoked: int, generation: int, leader: str = "m", members: tuple[str, ...] = ("m",)) -> Join:
    ok = Outcome.OK
    return Join("g", "j", invoked, invoked + 1, ok, member="m", generation=generation, leader=leader, members=members)


def sync(invoked: int, generation: int, member: str, *slots: Slot) -> Sync:
    return Sync("g", "j", invoked, invoked + 1, Outcome.OK, member=member, generation=generation, slots=slots)


def rules(*asks: Ask) -> list[str]:
    history = GroupHistory()
    history.asks.extend(asks)
    return [violation.rule for violation in check(history)]


def test_what_is_committed_is_fetched() -> None:
    assert rules(fetch(1, 2, NOTHING), commit(3, 4, 1), fetch(5, 6, 1), commit(7, 8, 2), fetch(9, 10, 2)) == []


def test_a_fetch_beside_a_commit_sees_either() -> None:
    assert rules(commit(1, 2, 1), commit(3, 8, 2), fetch(4, 5, 1)) == []
    assert rules(commit(1, 2, 1), commit(3, 8, 2), fetch(4, 5, 2)) == []


def test_an_acked_commit_is_not_lost() -> None:
    assert rules(commit(1, 2, 1), fetch(3, 4, NOTHING)) == ["offset lost"]
    assert rules(commit(1, 2, 1), commit(3, 4, 2), fetch(5, 6, 1)) == ["offset moved back"]


def test_what_was_seen_once_is_not_undone() -> None:
    seen_then_gone = [commit(1, 2, 1), commit(3, 4, 2, UNKNOWN), fetch(5, 6, 2), fetch(7, 8, 1)]
    assert rules(*seen_then_gone) == ["offset moved back"]
    assert rules(commit(3, 4, 2, UNKNOWN), fetch(5, 6, 2), fetch(7, 8, NOTHING)) == ["offset lost"]


def test_a_commit_of_unknown_outcome_may_come_late_or_never() -> None:
    assert rules(commit(1, 2, 1, UNKNOWN), commit(3, 4, 2), fetch(5, 6, 1)) == []
    assert rules(commit(1, 2, 1, UNKNOWN), commit(3, 4, 2), fetch(5, 6, 2)) == []


def test_offsets_come_from_commits_only() -> None:
    assert rules(fetch(1, 2, 7)) == ["offset from nowhere"]
    assert rules(commit(1, 2, 7, FAILED), fetch(3, 4, 7)) == ["offset from nowhere"]
    assert rules(fetch(1, 2, 7), commit(3, 4, 7)) == ["offset from nowhere"]


def test_removed_offsets_stay_away() -> None:
    assert rules(commit(1, 2, 1), delete(3, 4), fetch(5, 6, NOTHING)) == []
    assert rules(commit(1, 2, 1), delete(3, 4, slots=(A,)), fetch(5, 6, NOTHING)) == []
    assert rules(commit(1, 2, 1), delete(3, 4), fetch(5, 6, 1)) == ["offset came back"]
    back = [commit(1, 2, 1), delete(3, 4, UNKNOWN), fetch(5, 6, NOTHING), fetch(7, 8, 1)]
    assert rules(*back) == ["offset came back"]
    assert rules(commit(1, 2, 1), delete(3, 4, slots=(B,)), fetch(5, 6, NOTHING)) == ["offset lost"]
    assert rules(commit(1, 2, 1), delete(3, 4, FAILED), fetch(5, 6, NOTHING)) == ["offset lost"]


def test_a_removal_of_unknown_outcome_may_come_at_any_time() -> None:
    assert rules(delete(1, 2, UNKNOWN), commit(3, 4, 1), fetch(5, 6, 1), fetch(7, 8, NOTHING)) == []


def test_a_generation_is_given_once() -> None:
    assert rules(join(1, 1), join(3, 1), join(5, 2, "n", ("n", "o"))) == []
    assert rules(join(1, 1), join(3, 1, "n")) == ["generation given twice"]
    assert rules(join(1, 1), join(3, 1, "m", ("m", "n"))) == ["generation given twice"]
    assert rules(join(1, 1), join(3, 1, "m", ())) == []
    assert rules(join(1, 2), join(3, 1)) == ["generation went back"]


def test_a_group_that_was_deleted_counts_anew() -> None:
    assert rules(join(1, 2), delete(3, 4), join(5, 1, "n")) == []
    assert rules(join(1, 2), delete(3, 4, UNKNOWN), join(5, 1, "n")) == []
    assert rules(delete(1, 2), join(3, 2), join(5, 1)) == ["generation went back"]


def test_a_partition_is_assigned_once() -> None:
    assert rules(sync(1, 1, "m", A), sync(3, 1, "n", B), sync(5, 2, "n", A)) == []
    assert rules(sync(1, 1, "m", A), sync(3, 1, "n", A)) == ["assigned twice"]
    assert rules(sync(1, 1, "m", A), sync(3, 1, "m", B)) == ["generation given twice"]


def test_a_commit_of_a_former_generation_is_not_acked() -> None:
    assert rules(commit(1, 9, 1, generation=1), join(2, 2)) == []
    assert rules(join(2, 2), commit(5, 6, 1, FAILED, generation=1)) == []
    assert rules(join(2, 2), commit(5, 6, 1, generation=1)) == ["not fenced"]
    assert rules(join(2, 2), commit(5, 6, 1, generation=2)) == []


def test_a_commit_of_a_former_epoch_is_not_acked() -> None:
    beat = Beat("g", "k", 1, 2, Outcome.OK, member="m", epoch=3)
    other = Beat("g", "k", 1, 2, Outcome.OK, member="n", epoch=9)
    assert rules(beat, other, commit(5, 6, 1, generation=3)) == []
    assert rules(beat, commit(5, 6, 1, generation=2)) == ["not fenced"]
