"""Plans reads on the stores themselves: topics, the bounds of their logs, offsets of times, and where the bytes are.

    topics -> bounds -> ranges (planning) -> cut by offsets (splitting) -> extents -> splits

Tails are linearizable: what was acked before a plan was asked for is in it. Logs go on changing meanwhile: what is
trimmed or deleted between two steps is a loss like any other. What is tiered or compacted after its extents were found
is kept for `pipeline.vacuum.longest_job_ms`; a read that comes later may fail, with an error that says so.
"""

from __future__ import annotations

import itertools
import logging
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from catena.errors import (
    ConfigError,
    Contended,
    DataLoss,
    OffsetOutOfRange,
    Rejected,
    UnknownPartition,
    UnknownTopic,
)
from catena.groups.patterns import TopicPattern
from catena.node import Node
from catena.runtime.tasks import map_bounded
from catena.source import planning
from catena.source.group_commits import GroupCommits
from catena.source.offsets import StreamOffsets
from catena.source.options import Assigned, Limit, SourceOptions, Subscribed, SubscribedPattern
from catena.source.planning import Bounds, OffsetRange, Planned, Resolved, TopicView, View
from catena.source.splitting import Split, cut_by_extents, cut_by_offsets
from catena.types import Offset, TopicId, TopicPartition
from catena.virtual_log.extents import find_extents
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topics import TopicRecord

log = logging.getLogger(__name__)

AT_ONCE = 32
MAX_TRIES = 10
MAX_RANGES = 1_000_000
"""That a plan is cut into."""
MAX_NAMED = 5


class Latest(NamedTuple):
    end: StreamOffsets
    """Of the next batch."""
    tails: StreamOffsets
    """Of the logs."""


class Planner:
    """For one query; may be asked again and again."""

    def __init__(
        self,
        node: Node,
        options: SourceOptions,
        warn: Callable[[str], None] | None = None,
        is_shared: bool = False,
        max_ranges: int = MAX_RANGES,
    ) -> None:
        """`warn` is told what is lost, where that is no error. A node that others use as well keeps their logs open,
        and matches patterns in linear time."""
        self._node = node
        self._options = options
        self._warn = warn or (lambda loss: log.warning("goes on without what is lost: %s", loss))
        self._is_shared = is_shared
        self._max_ranges = max_ranges
        group = options.commit_group
        self._group_commits = None if group is None else GroupCommits(node.meta, group)
        self._topics: dict[TopicId, TopicRecord] = {}
        """Those that the last view is of."""

    async def plan_batch(self) -> list[Split]:
        view = await self._look(must_exist=True)
        starts = await self._resolve(self._options.start, view, not self._options.latest_if_no_match)
        ends = await self._resolve(self._options.end, view, False)
        return await self._split(planning.plan_batch(starts, ends))

    async def initial_offsets(self) -> StreamOffsets:
        """Where a stream begins that has no checkpoint."""
        view = await self._look(must_exist=True)
        starts = await self._resolve(self._options.start, view, not self._options.latest_if_no_match)
        self._report(starts.losses)
        return planning.stream_offsets(starts.offsets)

    async def tails(self) -> StreamOffsets:
        return planning.tails(await self._look(must_exist=False))

    async def latest_offsets(
        self, start: StreamOffsets, max_offsets: int | None = None, target: StreamOffsets | None = None
    ) -> Latest:
        """How far a batch from `start` on goes: by `max_offsets` if there is such a limit, and not beyond `target`."""
        view = await self._look(must_exist=False)
        seen = view if target is None else planning.capped(view, target, start)
        return Latest(planning.advance(start, seen, max_offsets), planning.tails(view))

    async def commit(self, end: StreamOffsets) -> None:
        """A batch up to here is done: told to the consumer group that the options name, if they name one."""
        if self._group_commits is not None:
            await self._group_commits.commit(end)

    async def plan_stream(self, start: StreamOffsets, end: StreamOffsets) -> list[Split]:
        moved = {
            (name, number)
            for name, topic in end.topics.items()
            for number, offset in topic.partitions.items()
            if start.find(name, topic.id, number) != offset
        }
        view = await self._look(must_exist=False, only=moved)
        return await self._split(planning.plan_stream(start, end, view))

    async def _look(self, must_exist: bool, only: Collection[tuple[str, int]] | None = None) -> View:
        """The partitions that the query is for, as they are now. Those that are not there are left out or an error."""
        topics = await self._find_topics(must_exist)
        self._topics = {topic.topic_id: topic for topic in topics}
        if not self._is_shared:
            self._node.keep_topics(self._topics)
        places = [
            topic.partition(number)
            for topic in topics
            for number in self._numbers(topic, must_exist)
            if only is None or (topic.name, number) in only
        ]
        found = await map_bounded(AT_ONCE, self._bounds, places)
        gone = {tp.topic for tp, bounds in zip(places, found, strict=True) if bounds is None}
        if gone and must_exist:
            raise UnknownTopic(min(gone))
        by_topic: dict[str, dict[int, Bounds]] = {topic.name: {} for topic in topics if topic.name not in gone}
        for tp, bounds in zip(places, found, strict=True):
            if bounds is not None and tp.topic in by_topic:
                by_topic[tp.topic][tp.partition] = bounds
        ids = {topic.name: topic.topic_id for topic in topics}
        return {name: TopicView(ids[name], numbers) for name, numbers in by_topic.items()}

    async def _find_topics(self, must_exist: bool) -> list[TopicRecord]:
        subscription = self._options.subscription
        if isinstance(subscription, SubscribedPattern):
            matches = self._matcher(subscription.pattern)
            return [topic for topic in await self._node.topics.list() if matches(topic.name)]
        names = list(subscription.topics if isinstance(subscription, Subscribed) else subscription.partitions)
        found = await map_bounded(AT_ONCE, self._find_topic, names)
        if must_exist:
            for name, topic in zip(names, found, strict=True):
                if topic is None:
                    raise UnknownTopic(name)
        return [topic for topic in found if topic is not None]

    def _matcher(self, pattern: str) -> Callable[[str], object]:
        if not self._is_shared:
            return re.compile(pattern).fullmatch
        try:
            return TopicPattern(pattern).matches
        except ValueError as error:
            raise ConfigError(f"option subscribePattern: {error}") from None

    async def _find_topic(self, name: str) -> TopicRecord | None:
        try:
            return await self._node.topics.get(name)
        except UnknownTopic:
            return None

    def _numbers(self, topic: TopicRecord, must_exist: bool) -> Iterable[int]:
        if not isinstance(self._options.subscription, Assigned):
            return range(topic.partitions)
        numbers = self._options.subscription.partitions[topic.name]
        if must_exist and numbers[-1] >= topic.partitions:
            raise UnknownPartition(topic.name, numbers[-1], topic.partitions)
        return [number for number in numbers if number < topic.partitions]

    async def _bounds(self, tp: TopicPartition) -> Bounds | None:
        """None if the topic was deleted meanwhile. The start is read first: so it is never beyond the tail."""
        try:
            partition = self._log(tp)
            return Bounds(await partition.start(), await partition.tail())
        except UnknownTopic:
            return None

    async def _resolve(self, limit: Limit, view: View, must_match: bool) -> Resolved:
        times = planning.times_to_find(limit, view)
        places = list(times)
        found = await map_bounded(AT_ONCE, lambda tp: self._find_time(tp, times[tp]), places)
        return planning.resolve(limit, view, dict(zip(places, found, strict=True)), must_match)

    async def _find_time(self, tp: TopicPartition, time_ms: int) -> Offset | None:
        found = await self._log(tp).find_time(time_ms)
        return None if found is None else found.offset

    async def _split(self, planned: Planned) -> list[Split]:
        self._report(planned.losses)
        self._check_ranges(planned.ranges)
        ranges = cut_by_offsets(planned.ranges, self._options.min_partitions, self._options.max_records_per_partition)
        by_partition = [list(group) for _, group in itertools.groupby(ranges, lambda each: each.tp)]
        return [split for splits in await map_bounded(AT_ONCE, self._find_splits, by_partition) for split in splits]

    def _check_ranges(self, ranges: Sequence[OffsetRange]) -> None:
        """Before they are made: there may be as many as records."""
        most, offsets = self._options.max_records_per_partition, sum(each.size for each in ranges)
        by_records = len(ranges) if most is None else sum(-(-each.size // most) for each in ranges)
        wanted = max(by_records, min(self._options.min_partitions or 0, offsets))
        if wanted > self._max_ranges:
            raise Rejected(
                f"options minPartitions and maxRecordsPerPartition ask for {wanted} tasks, and there can be "
                f"{self._max_ranges}: ask for fewer, or read less at once"
            )

    async def _find_splits(self, ranges: Sequence[OffsetRange]) -> list[Split]:
        """Of neighbouring ranges of one partition."""
        tp = ranges[0].tp
        for _ in range(MAX_TRIES):
            try:
                return cut_by_extents(ranges, await find_extents(self._log(tp), ranges[0].start, ranges[-1].end))
            except UnknownTopic:
                self._report([f"topic {tp.topic} was deleted just now: {tp} from {ranges[0].start} on can't be read"])
                return []
            except OffsetOutOfRange as error:
                self._report([f"{tp} was trimmed just now: {error}"])
                clipped = [
                    each._replace(start=max(each.start, error.start), end=min(each.end, error.tail)) for each in ranges
                ]
                ranges = [each for each in clipped if each.size > 0]
                if not ranges:
                    return []
        raise Contended(f"{tp} is trimmed faster than it can be planned")

    def _log(self, tp: TopicPartition) -> VirtualLog:
        return self._node.open_log(self._topics[tp.topic_id], tp.partition)

    def _report(self, losses: Sequence[str]) -> None:
        if not losses:
            return
        told = [*losses[:MAX_NAMED], *([f"{len(losses) - MAX_NAMED} more"] if len(losses) > MAX_NAMED else [])]
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{'; '.join(told)}. With the option failOnDataLoss=false the query goes on without")
        for loss in told:
            self._warn(loss)
