"""Producers that have been silent for long are forgotten: what the meta store has of them goes.

A log takes a producer that has been silent for `EXPIRY_MS`, a day, for one that it does not know, whatever its record
says (`loglets.producers`). So a record that is older changes no answer, and may go; twice that time leaves a day for
clocks that do not agree. It is deleted under the version that was looked at:

- Whoever commits with `transact` expects the version that it knows, is refused, and learns that there is none. What the
  link's handoff has of the producer is older than the record, and so expired as well.
- Without `transact` a record is looked at before the compare-and-set of the control record, which a deletion does not
  disturb: what was planned with an expired producer is what is planned with none.
- Whoever writes down late what was pending creates the record again if it is gone, which is right if that is news, and
  else it is as old as before, and goes the next time.

Crash at any step: some are gone, and the next one goes on.
"""

from __future__ import annotations

from contextlib import suppress

from catena.errors import Conflict, OutcomeUnknown
from catena.loglets.diskless.records import decode_producer
from catena.loglets.producers import EXPIRY_MS
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, MetaStore, Record
from catena.runtime.tasks import map_bounded
from catena.types import TopicPartition

SILENT_MS = 2 * EXPIRY_MS
AT_ONCE = 4


async def forget_silent(meta: MetaStore, tp: TopicPartition, now_ms: int, limit: int, dry_run: bool = False) -> int:
    """How many records were deleted, `limit` at the most; or would be. Raises Corrupt if one can't be read."""

    async def forget(record: Record) -> None:
        with suppress(Conflict, OutcomeUnknown):  # it has written again; or whoever looks next finds out
            await meta.delete(record.key, record.version)

    forgotten = 0
    start, end = keys.producer_prefix(tp), keys.after(keys.producer_prefix(tp))
    while forgotten < limit and (page := await meta.scan(start, end)):
        silent = [record for record in page if _is_silent(record, now_ms)][: limit - forgotten]
        if not dry_run:
            await map_bounded(AT_ONCE, forget, silent)
        forgotten += len(silent)
        if len(page) < SCAN_LIMIT:
            break
        start = page[-1].key + "\0"
    return forgotten


def _is_silent(record: Record, now_ms: int) -> bool:
    return decode_producer(record.key, record.value).state.updated_ms < now_ms - SILENT_MS
