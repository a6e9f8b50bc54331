"""Groups: how far behind the tails of their logs they are. Each node tells of the groups that it coordinates.

A refresh reads the tails of up to `SLOTS` partitions, all in a few calls where the meta store can transact. Groups that
were used last come first; those for which it is not enough are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from catena.broker.base import OpenLog
from catena.broker.group_store import HeldGroup, Slot
from catena.errors import CatenaError
from catena.metrics.others import first_and_others
from catena.runtime.tasks import map_bounded
from catena.types import Offset
from catena.virtual_log.topic_view import TopicView

SLOTS = 10_000
SLOTS_APART = 50
"""Where each tail is a request of its own, as in object storage."""
AT_ONCE = 1_000
"""As many as one call of the diskless loglets asks for."""


class GroupFigures(msgspec.Struct):
    partitions: int = 0
    """That it has committed offsets of."""
    lag: int = 0
    """Offsets from what was committed to the tail, all together."""
    lag_max: int = 0
    """Of the partition that has most of them."""
    groups: int = 1
    """That this stands for."""

    def add(self, other: GroupFigures) -> None:
        self.partitions += other.partitions
        self.lag += other.lag
        self.lag_max = max(self.lag_max, other.lag_max)
        self.groups += other.groups


class GroupsFigures(msgspec.Struct, frozen=True):
    coordinated: int
    """Groups that are loaded on this node."""
    unmeasured: int
    """Of these, for whose tails there was no time."""
    by_name: dict[str, GroupFigures]


class GroupLooks:
    def __init__(self, view: TopicView, open_log: OpenLog, slots: int, shown: int) -> None:
        """`shown`: so many groups are told of one by one, those that are furthest behind."""
        self._view = view
        self._open_log = open_log
        self._slots = slots
        self._shown = shown

    async def look(self, groups: Iterable[HeldGroup]) -> GroupsFigures:
        """`groups`: the one that was used last stands last."""
        committed: dict[str, dict[Slot, Offset]] = {}
        wanted: dict[Slot, None] = {}
        unmeasured = 0
        for group in reversed(list(groups)):
            if len(wanted) + sum(len(chunk.partitions) for chunk in group.chunks.values()) > self._slots:
                unmeasured += 1
                continue
            offsets = {slot: each.offset for slot, each in group.offsets()}
            committed[group.group_id] = offsets
            wanted.update(dict.fromkeys(offsets))
        tails = await self._tails(list(wanted))
        found = {name: _measured(offsets, tails) for name, offsets in committed.items()}
        shown = first_and_others(found, self._shown, lambda group: -group.lag, GroupFigures(groups=0))
        return GroupsFigures(len(found) + unmeasured, unmeasured, shown)

    async def _tails(self, slots: list[Slot]) -> dict[Slot, Offset]:
        tails = await map_bounded(AT_ONCE, self._tail, slots)
        return {slot: tail for slot, tail in zip(slots, tails, strict=True) if tail is not None}

    async def _tail(self, slot: Slot) -> Offset | None:
        topic_id, number = slot
        topic = self._view.cached_by_id(topic_id)
        if topic is None or number >= topic.partitions:
            return None  # the topic is gone, and what was committed for it means nothing
        try:
            return await self._open_log(topic, number).tail()
        except CatenaError:
            return None


def _measured(offsets: Mapping[Slot, Offset], tails: Mapping[Slot, Offset]) -> GroupFigures:
    lags = [max(0, tails[slot] - offset) for slot, offset in offsets.items() if slot in tails]
    return GroupFigures(len(lags), sum(lags), max(lags, default=0))
