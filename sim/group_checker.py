"""What the history of groups may not contain. Pure: a history goes in, the violations come out.

Offsets. A group's offset of a partition is a register: commits write it, removals empty it, fetches read it. A history
of it must be linearizable; an ask of unknown outcome may take effect at any time after it was made, or never. No
acked commit is lost then, no fetch sees less than was acked before it began, and nothing moves back.

Generations. One number means one leader, one set of members and one assignment, to whomever it is told, and it never
goes back. Once anybody was told a number, a commit that is made under a lower one is not acked.

A group that is deleted and made again begins to count anew, so asks are compared only if no delete can lie between.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from sim.checker import Violation
from sim.group_history import NOTHING, Ask, Beat, Commit, Fetch, GroupHistory, Join, Removal, Slot, Sync
from sim.history import Outcome


def check(history: GroupHistory) -> list[Violation]:
    by_group: dict[str, list[Ask]] = defaultdict(list)
    for ask in history.asks:
        by_group[ask.group].append(ask)
    violations: list[Violation] = []
    for group, asks in by_group.items():
        one = _Group(group, asks)
        violations += [*one.offsets(), *one.generations(), *one.assignments(), *one.fencing()]
    return violations


class _Value:
    """One commit of one slot with all that saw it, as an interval in which it surely stood."""

    def __init__(self, commit: Commit, fetches: Sequence[Fetch]) -> None:
        self.commit = commit
        self.first_end = min([commit.returned, *(fetch.returned for fetch in fetches)])
        """By then it was in effect; NEVER if nobody can tell."""
        self.last_begin = max([commit.invoked, *(fetch.invoked for fetch in fetches)])
        """Then it was not yet overwritten, or not yet made."""


class _Group:
    def __init__(self, group: str, asks: Sequence[Ask]) -> None:
        self.group = group
        self.commits = [ask for ask in asks if isinstance(ask, Commit)]
        self.fetches = [ask for ask in asks if isinstance(ask, Fetch) and ask.outcome is Outcome.OK]
        removals = [ask for ask in asks if isinstance(ask, Removal) and ask.outcome is not Outcome.FAILED]
        self.removals = removals
        self.deletes = [removal for removal in removals if removal.slots is None]
        self.joins = [ask for ask in asks if isinstance(ask, Join) and ask.outcome is Outcome.OK]
        self.syncs = [ask for ask in asks if isinstance(ask, Sync) and ask.outcome is Outcome.OK]
        self.beats = [ask for ask in asks if isinstance(ask, Beat) and ask.outcome is Outcome.OK]

    # Offsets

    def offsets(self) -> Iterator[Violation]:
        told = [*(commit.offsets for commit in self.commits), *(fetch.offsets for fetch in self.fetches)]
        for slot in dict.fromkeys(slot for offsets in told for slot in offsets):
            yield from self._register(slot)

    def _register(self, slot: Slot) -> Iterator[Violation]:
        commits = {commit.offsets[slot]: commit for commit in self.commits if slot in commit.offsets}
        seen: dict[int, list[Fetch]] = defaultdict(list)
        for fetch in self.fetches:
            if slot in fetch.offsets:
                seen[fetch.offsets[slot]].append(fetch)
        where = f"{self.group} {slot}"
        values = []
        for offset, fetches in seen.items():
            commit = commits.get(offset)
            if offset == NOTHING:
                continue
            if commit is None or commit.outcome is Outcome.FAILED or commit.invoked > min(f.returned for f in fetches):
                yield Violation("offset from nowhere", f"{where} is {offset} for {fetches[0].client}")
            else:
                values.append(_Value(commit, fetches))
        values += [
            _Value(commit, ())
            for offset, commit in commits.items()
            if offset not in seen and commit.outcome is Outcome.OK
        ]
        yield from self._order(where, slot, values)
        yield from self._gaps(where, slot, values, seen[NOTHING])

    def _order(self, where: str, slot: Slot, values: Sequence[_Value]) -> Iterator[Violation]:
        """Of two values, one stood first. One that stood from `first_end` to `last_begin` had no other in between."""
        spans = [value for value in values if value.first_end < value.last_begin]
        for value in values:
            for span in spans:
                if span is not value and span.first_end < value.last_begin and value.first_end < span.last_begin:
                    yield Violation(
                        "offset moved back",
                        f"{where} was {span.commit.offsets[slot]} in [{span.first_end}, {span.last_begin}] and "
                        f"{value.commit.offsets[slot]} in [{value.first_end}, {value.last_begin}]",
                    )
                    return

    def _gaps(self, where: str, slot: Slot, values: Sequence[_Value], empties: Sequence[Fetch]) -> Iterator[Violation]:
        removals = [removal for removal in self.removals if removal.slots is None or slot in removal.slots]
        for fetch in empties:
            lost = [v for v in values if v.first_end < fetch.invoked]
            for value in lost:
                # Something has emptied it since, or can have.
                since = [r for r in removals if r.returned > value.commit.invoked and r.invoked < fetch.returned]
                if not since:
                    yield Violation(
                        "offset lost", f"{where}={value.commit.offsets[slot]} is nothing at {fetch.invoked}"
                    )
                    return
        emptied = [*(removal for removal in removals if removal.outcome is Outcome.OK), *empties]
        for ask in emptied:
            for value in values:
                if value.first_end < ask.invoked and ask.returned < value.last_begin:
                    what = f"{where}={value.commit.offsets[slot]} was nothing by {ask.returned} and was there after"
                    yield Violation("offset came back", f"{what} at {value.last_begin}")
                    return

    # Generations

    def generations(self) -> Iterator[Violation]:
        for at, one in enumerate(self.joins):
            for other in self.joins[at + 1 :]:
                if self._apart(one, other):
                    continue
                if one.generation == other.generation:
                    if one.leader != other.leader or (one.members and other.members and one.members != other.members):
                        yield self._twice(f"{_told(one)} and {_told(other)}")
                elif (one.returned < other.invoked and one.generation > other.generation) or (
                    other.returned < one.invoked and other.generation > one.generation
                ):
                    yield Violation("generation went back", f"{self.group}: {_told(one)} and {_told(other)}")

    def assignments(self) -> Iterator[Violation]:
        for at, one in enumerate(self.syncs):
            for other in self.syncs[at + 1 :]:
                if one.generation != other.generation or self._apart(one, other):
                    continue
                if one.member == other.member and one.slots != other.slots:
                    yield self._twice(f"{one.member} has {_names(one.slots)} and {_names(other.slots)}")
                if one.member != other.member and set(one.slots) & set(other.slots):
                    what = f"{one.member} has {_names(one.slots)}, {other.member} has {_names(other.slots)}"
                    yield Violation("assigned twice", f"{self.group} {one.generation}: {what}")

    def _twice(self, what: str) -> Violation:
        return Violation("generation given twice", f"{self.group}: {what}")

    def fencing(self) -> Iterator[Violation]:
        """A commit of a generation that was over when it was made is not acked; nor is one of a former epoch."""
        for commit in self.commits:
            if commit.outcome is not Outcome.OK or commit.generation < 0:
                continue
            newer: list[Join | Beat] = [join for join in self.joins if join.generation > commit.generation]
            newer += [b for b in self.beats if b.member == commit.member and b.epoch > commit.generation]
            for told in newer:
                if told.returned < commit.invoked and not self._apart(told, commit):
                    number = told.generation if isinstance(told, Join) else told.epoch
                    what = f"{commit.member} commits {commit.generation} at {commit.invoked}"
                    yield Violation("not fenced", f"{self.group}: {what}; {number} was told at {told.returned}")
                    break

    def _apart(self, one: Ask, other: Ask) -> bool:
        """Whether the group may have been deleted between these two."""
        begin, end = min(one.invoked, other.invoked), max(one.returned, other.returned)
        return any(delete.returned > begin and delete.invoked < end for delete in self.deletes)


def _told(join: Join) -> str:
    return f"{join.client} was told {join.generation} with leader {join.leader} of {_names(join.members)}"


def _names(names: Sequence[object]) -> str:
    return "[" + " ".join(map(str, names)) + "]"
