"""What a table lacks: from its progress and the logs as they are now, to ranges of offsets. Pure, but for `look`.

    start ........ progress ......... tail
                   |--- to be read ---|

A partition that the table does not know begins at offset 0. What was trimmed before it was read is lost for the table:
it goes on from the log's start, and the plan says so. A log whose tail is below the progress was set back, and nothing
of it is read before a person has decided.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from catena.node import Node
from catena.runtime.tasks import map_bounded
from catena.source.planning import Bounds, OffsetRange
from catena.source.splitting import Split
from catena.tables.committer import Committer
from catena.types import Offset
from catena.virtual_log.topics import TopicRecord

AT_ONCE = 32
TASK_BYTES = 128 << 20
TASK_EXTENTS = 1000


class Lack(NamedTuple):
    """What a table has not got."""

    ranges: list[OffsetRange]
    """None of them empty."""
    progress: dict[int, Offset]
    """Of the table once it has all of the ranges."""
    losses: list[str]
    rest: int = 0
    """Records beyond the limit, which are left for the next plan."""

    @property
    def records(self) -> int:
        return sum(each.size for each in self.ranges)


class TableProgress(NamedTuple):
    """Where a table ends and the log goes on: records below are in the table, exactly once; those above are not."""

    offsets: Mapping[int, Offset]
    """Of partitions from which the table has something."""
    version: int
    """Of the table that has it; a reader MUST read this one."""

    def of(self, partition: int) -> Offset:
        return self.offsets.get(partition, 0)


async def table_progress(committer: Committer) -> TableProgress | None:
    """For who reads a table and the rest of the log as one; None if there is no table."""
    state = await committer.load()
    return None if state is None else TableProgress(state.guards.progress, state.version)


async def look(node: Node, topic: TopicRecord) -> dict[int, Bounds]:
    """The bounds of its logs, now. Raises UnknownTopic if it is deleted meanwhile."""

    async def bounds(partition: int) -> Bounds:
        log = node.open_log(topic, partition)
        return Bounds(await log.start(), await log.tail())

    found = await map_bounded(AT_ONCE, bounds, range(topic.partitions))
    return dict(enumerate(found))


def plan(topic: TopicRecord, progress: Mapping[int, Offset], now: Mapping[int, Bounds], max_records: int) -> Lack:
    """Up to so many offsets in all, shared evenly by the partitions that have some."""
    lack = Lack([], {}, [])
    starts: dict[int, Offset] = {}
    for number, bounds in sorted(now.items()):
        tp = topic.partition(number)
        at = progress.get(number, 0)
        if at > bounds.tail:
            lack.losses.append(f"{tp} went back: the table has it up to {at}, and the log ends at {bounds.tail}")
            continue
        if at < bounds.start:
            lack.losses.append(f"{tp} was trimmed: offsets {at} to {bounds.start - 1} are not in the table")
        starts[number] = max(at, bounds.start)
    sizes = {number: now[number].tail - start for number, start in starts.items()}
    for number, size in _shares(sizes, max_records).items():
        start = starts[number]
        if size:
            lack.ranges.append(OffsetRange(topic.partition(number), start, start + size))
        if start + size != progress.get(number, 0):
            lack.progress[number] = start + size
    return lack._replace(rest=sum(sizes.values()) - lack.records)


def group_splits(
    splits: Sequence[Split], max_bytes: int = TASK_BYTES, max_extents: int = TASK_EXTENTS
) -> list[tuple[Split, ...]]:
    """What one task does: neighbours, so that many small partitions share a file."""
    groups: list[tuple[Split, ...]] = []
    taken: list[Split] = []
    size = extents = 0
    for split in splits:
        length = sum(extent.length or 0 for extent in split.extents)
        if taken and (size + length > max_bytes or extents + len(split.extents) > max_extents):
            groups.append(tuple(taken))
            taken, size, extents = [], 0, 0
        taken.append(split)
        size += length
        extents += len(split.extents)
    return [*groups, tuple(taken)] if taken else groups


def _shares(sizes: Mapping[int, int], limit: int) -> dict[int, int]:
    """Small ones get all that they ask for, and leave the rest to the large ones."""
    shares: dict[int, int] = {}
    left, waiting = limit, len(sizes)
    for number, size in sorted(sizes.items(), key=lambda item: item[1]):
        shares[number] = min(size, left // waiting)
        left -= shares[number]
        waiting -= 1
    return dict(sorted(shares.items()))


def oldest_ms(splits: Iterable[Split]) -> int | None:
    """When the first of them was appended, as far as it is known."""
    times = [extent.created_at_ms for split in splits for extent in split.extents if extent.created_at_ms]
    return min(times, default=None)
