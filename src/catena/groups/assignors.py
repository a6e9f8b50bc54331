"""Who gets which partition: the two assignors that a consumer group can ask for.

`uniform` gives everybody the same number, give or take one, and moves as little as possible for that. `range` gives
each member a run of each topic's partitions, in the order of members, so that topics with equally many partitions are
split alike. Both are functions of their arguments only, and look at partitions and members in sorted order.

When all members subscribe to the same topics, `uniform` is optimal: loads differ by at most one, and no assignment with
such loads keeps more partitions where they are. When they do not, each topic is balanced among its subscribers in
turn, a bounded number of times; the result is valid and near balance, not always at it.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from catena.types import TopicId

Slot: TypeAlias = tuple[TopicId, int]
"""One partition of a topic, which at most one member may read at a time."""


class Candidate(msgspec.Struct, frozen=True):
    """A member, as an assignor sees it: the topics it wants, and what it has."""

    topics: frozenset[TopicId]
    current: frozenset[Slot]
    instance_id: str | None = None


Candidates: TypeAlias = Mapping[str, Candidate]
Targets: TypeAlias = dict[str, frozenset[Slot]]
Assignor: TypeAlias = Callable[[Candidates, Mapping[TopicId, int]], Targets]

_BALANCING_PASSES = 8


def uniform(candidates: Candidates, partitions: Mapping[TopicId, int]) -> Targets:
    if not candidates:
        return {}
    first = next(iter(candidates.values())).topics
    if all(candidate.topics == first for candidate in candidates.values()):
        return _uniform_alike(candidates, {topic: partitions[topic] for topic in first if topic in partitions})
    return _uniform_mixed(candidates, partitions)


def range_(candidates: Candidates, partitions: Mapping[TopicId, int]) -> Targets:
    """Static members are ordered by instance id, so that a restart moves nothing."""
    order = sorted(candidates, key=lambda member: (candidates[member].instance_id or member, member))
    subscribers: dict[TopicId, list[str]] = defaultdict(list)
    for member in order:
        for topic in candidates[member].topics:
            subscribers[topic].append(member)
    targets: dict[str, set[Slot]] = {member: set() for member in candidates}
    for topic, members in subscribers.items():
        share, extra = divmod(partitions.get(topic, 0), len(members))
        start = 0
        for i, member in enumerate(members):
            end = start + share + (i < extra)
            targets[member].update((topic, partition) for partition in range(start, end))
            start = end
    return {member: frozenset(slots) for member, slots in targets.items()}


ASSIGNORS: dict[str, Assignor] = {"uniform": uniform, "range": range_}
DEFAULT_ASSIGNOR = "uniform"


def _uniform_alike(candidates: Candidates, partitions: Mapping[TopicId, int]) -> Targets:
    kept, free = _kept(candidates, partitions)
    share, extra = divmod(sum(partitions.values()), len(candidates))
    # The larger shares go to those who have most, since these lose the fewest partitions by it.
    largest_first = sorted(candidates, key=lambda member: (-len(kept[member]), member))
    wanting: deque[tuple[str, int]] = deque()
    for i, member in enumerate(largest_first):
        quota = share + (i < extra)
        slots = kept[member]
        free += slots[quota:]
        del slots[quota:]
        if len(slots) < quota:
            wanting.append((member, quota - len(slots)))
    for slot in sorted(free):
        member, missing = wanting.popleft()
        kept[member].append(slot)
        if missing > 1:
            wanting.append((member, missing - 1))
    return {member: frozenset(slots) for member, slots in kept.items()}


def _uniform_mixed(candidates: Candidates, partitions: Mapping[TopicId, int]) -> Targets:
    kept, free = _kept(candidates, partitions)
    loads = {member: len(slots) for member, slots in kept.items()}
    subscribers: dict[TopicId, list[str]] = defaultdict(list)
    for member in sorted(candidates):
        for topic in candidates[member].topics:
            if topic in partitions:
                subscribers[topic].append(member)
    owned: dict[TopicId, dict[str, list[Slot]]] = {topic: defaultdict(list) for topic in subscribers}
    for member, slots in kept.items():
        for slot in slots:
            owned[slot[0]][member].append(slot)
    unowned: dict[TopicId, list[Slot]] = defaultdict(list)
    for slot in sorted(free):
        unowned[slot[0]].append(slot)
    # Topics with few subscribers first: the others can go round them.
    topics = sorted(subscribers, key=lambda topic: (len(subscribers[topic]), topic))
    for topic in topics:
        heap = [(loads[member], member) for member in subscribers[topic]]
        heapq.heapify(heap)
        for slot in unowned[topic]:
            load, member = heapq.heappop(heap)
            owned[topic][member].append(slot)
            loads[member] = load + 1
            heapq.heappush(heap, (load + 1, member))
    for _ in range(_BALANCING_PASSES):
        if not sum(_balance(owned[topic], subscribers[topic], loads) for topic in topics):
            break
    targets: dict[str, list[Slot]] = {member: [] for member in candidates}
    for by_member in owned.values():
        for member, slots in by_member.items():
            targets[member] += slots
    return {member: frozenset(slots) for member, slots in targets.items()}


def _balance(owned: dict[str, list[Slot]], subscribers: list[str], loads: dict[str, int]) -> bool:
    """Move partitions of one topic from its most to its least loaded subscribers; whether anything moved."""
    moved = False
    lightest = [(loads[member], member) for member in subscribers]
    heapq.heapify(lightest)
    givers = sorted((member for member in subscribers if owned.get(member)), key=lambda m: (-loads[m], m))
    for giver in givers:
        while owned[giver]:
            load, member = lightest[0]
            if load != loads[member]:
                heapq.heapreplace(lightest, (loads[member], member))
                continue
            if loads[giver] - load < 2:
                break
            owned[member].append(owned[giver].pop())
            loads[giver] -= 1
            loads[member] += 1
            heapq.heapreplace(lightest, (load + 1, member))
            moved = True
    return moved


def _kept(candidates: Candidates, partitions: Mapping[TopicId, int]) -> tuple[dict[str, list[Slot]], list[Slot]]:
    """What each member has and may keep, sorted; and what nobody has. Of two who have the same, the first keeps it."""
    taken: set[Slot] = set()
    kept: dict[str, list[Slot]] = {}
    for member in sorted(candidates):
        candidate = candidates[member]
        kept[member] = sorted(
            slot
            for slot in candidate.current
            if slot[0] in candidate.topics and slot[1] < partitions.get(slot[0], 0) and slot not in taken
        )
        taken.update(kept[member])
    wanted = frozenset[TopicId]().union(*{candidate.topics for candidate in candidates.values()})
    free = [(t, p) for t in sorted(wanted) for p in range(partitions.get(t, 0)) if (t, p) not in taken]
    return kept, free
