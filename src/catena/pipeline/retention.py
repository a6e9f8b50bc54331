"""Retention as a job: the same rules as nodes go by, over all partitions at once, and told in a report.

Nodes trim by themselves; this is for a log that no node serves, and for whoever wants to see what would go. It touches
records of the meta store only, so it needs no Spark. Segments that hold nothing any more are dropped by tiering.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

import msgspec

from catena.errors import CatenaError
from catena.runtime import Clock
from catena.runtime.tasks import map_bounded
from catena.types import Offset
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.retention import Seen, count, drop, is_limited
from catena.virtual_log.topic_configs import TopicSettings, settings_of
from catena.virtual_log.topics import TopicRecord

AT_ONCE = 8


class Kept(NamedTuple):
    """A partition, and the topic that says how long it is kept."""

    topic: TopicRecord
    log: VirtualLog


class Trimmed(msgspec.Struct, frozen=True, omit_defaults=True):
    topic: str
    partition: int
    start: Offset
    """Where the log started."""
    new_start: Offset
    """Where it starts now, or would."""
    error: str = ""


async def trim_all(
    partitions: Sequence[Kept], read_topic: Callable[[str], Awaitable[TopicRecord]], clock: Clock, dry_run: bool
) -> list[Trimmed]:
    """What was trimmed, and what could not be; partitions of which nothing has to go are not told."""

    async def visit(kept: Kept) -> Trimmed | None:
        tp = kept.log.tp
        start = -1
        try:
            settings = settings_of(kept.topic.configs)
            if not is_limited(settings):
                return None
            start = await kept.log.start()
            new_start = await due(kept.log, start, settings, clock.now_ms())
            if new_start == start:
                return None
            if not dry_run:
                latest = await read_topic(kept.topic.name)
                if latest.topic_id != kept.topic.topic_id or settings_of(latest.configs) != settings:
                    return None  # who has given the topic a longer retention meanwhile loses nothing
                new_start = await kept.log.trim(new_start)
        except CatenaError as error:
            return Trimmed(tp.topic, tp.partition, start, start, f"{type(error).__name__}: {error}")
        return Trimmed(tp.topic, tp.partition, start, new_start)

    return [each for each in await map_bounded(AT_ONCE, visit, partitions) if each is not None]


async def due(log: VirtualLog, start: Offset, settings: TopicSettings, now_ms: int) -> Offset:
    """Where the log would start."""
    seen = Seen(start)
    if settings.retention_bytes is not None:
        await count(log, seen)
    await drop(log, seen, settings, now_ms)
    return seen.start
