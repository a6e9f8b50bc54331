"""What of a log need not be kept any longer, by age (`retention.ms`) and size (`retention.bytes`).

Only topics whose cleanup policy has `delete`. Whole runs go, from the start of a log on, whichever links hold them, and
stop at the first one that has to stay:

- by time: a run goes when its newest record is older than `retention.ms`. Times are those of the records, so with
  CreateTime a record from the far future keeps itself and all behind it, as in Kafka. Records without a time count from
  when they were appended; where not even that is known they stay. The time now is this node's clock.
- by size: a run goes as long as at least `retention.bytes` are left behind it.

Trimmed records can't be read any more; the objects that hold them are vacuum's to collect.
"""

from __future__ import annotations

from catena.loglets.base import Run
from catena.meta.base import SCAN_LIMIT
from catena.types import Offset
from catena.virtual_log.log import VirtualLog
from catena.virtual_log.topic_configs import TopicSettings

FIRST_PAGE = 4
"""Mostly the oldest run stays, and then one is enough."""
MAX_RUNS = 100_000
"""That are counted, or trimmed, of one partition in one round. The next round goes on."""
NOT_KNOWN = -1


class Seen:
    """What is known of a log that starts at `start`."""

    def __init__(self, start: Offset) -> None:
        self.start = start
        self.oldest_ms: int | None = None
        """When its first run is from; None: nobody looked, or there was none."""
        self.counted_to = start
        self.size = 0
        """Of its runs up to `counted_to`."""

    def stays(self, run: Run, settings: TopicSettings, now_ms: int) -> bool:
        """Whether a run that is the first one has to stay."""
        keep_ms, keep_bytes = settings.retention_ms, settings.retention_bytes
        is_due = keep_ms is not None and run.newest_ms != NOT_KNOWN and run.newest_ms < now_ms - keep_ms
        return not is_due and (keep_bytes is None or self.size - run.size < keep_bytes)

    def drop(self, run: Run) -> None:
        """The first run goes."""
        self.start, self.oldest_ms = run.end, None
        if run.end <= self.counted_to:
            self.size -= run.size
        else:
            self.counted_to, self.size = run.end, 0

    def may_shrink(self, settings: TopicSettings, now_ms: int) -> bool:
        """Whether something may have to go even if nothing was appended since."""
        keep_ms, keep_bytes = settings.retention_ms, settings.retention_bytes
        if keep_bytes is not None and self.size > keep_bytes:
            return True
        if self.oldest_ms is None:
            return self.start < self.counted_to
        return keep_ms is not None and self.oldest_ms < now_ms - keep_ms

    def is_settled(self, settings: TopicSettings) -> bool:
        """Whether, if nothing has to go, that is so whatever was appended since."""
        return self.oldest_ms is not None and settings.retention_bytes is None


async def is_quiet(partition: VirtualLog, seen: Seen, settings: TopicSettings, now_ms: int) -> bool:
    """Whether it is known, without a look at the runs, that nothing has to go."""
    if seen.may_shrink(settings, now_ms):
        return False
    return seen.is_settled(settings) or await partition.tail() == seen.counted_to


async def count(partition: VirtualLog, seen: Seen) -> None:
    """Add up what has come since."""
    for _ in range(MAX_RUNS // SCAN_LIMIT):
        runs = await partition.runs(seen.counted_to, SCAN_LIMIT)
        if runs:
            seen.counted_to = runs[-1].end
            seen.size += sum(run.size for run in runs)
        if len(runs) < SCAN_LIMIT:
            return


async def drop(partition: VirtualLog, seen: Seen, settings: TopicSettings, now_ms: int) -> None:
    """Drop what may go: from what is seen; it is the caller who trims."""
    limit, left = FIRST_PAGE, MAX_RUNS
    while left > 0:
        runs = await partition.runs(seen.start, min(limit, left))
        for run in runs:
            if seen.stays(run, settings, now_ms):
                seen.oldest_ms = run.newest_ms if run.newest_ms != NOT_KNOWN else now_ms
                return
            seen.drop(run)
        if len(runs) < limit:
            return
        left -= len(runs)
        limit = min(8 * limit, SCAN_LIMIT)


def is_limited(settings: TopicSettings) -> bool:
    return settings.retention_ms is not None or settings.retention_bytes is not None
