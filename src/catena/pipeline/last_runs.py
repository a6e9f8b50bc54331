"""When each job last ran and nothing of it failed, in the meta store: so that nodes can tell, and whoever watches them.

One small record for each job, `llog/jobs/{job}`, written after a good run by whoever ran it. It only goes forward: of
several services the latest run counts. It decides nothing.

Crash before it is written: the record is as old as the run before, and says so. Of unknown outcome: the next run writes
it again.
"""

from __future__ import annotations

import logging
import re

import msgspec

from catena.errors import CatenaError, Conflict
from catena.meta import keys
from catena.meta.base import SCAN_LIMIT, MetaStore, Record
from catena.runtime import Clock
from catena.types import ABSENT, Expect, Version

log = logging.getLogger(__name__)

MAX_TRIES = 5
NOTE_EVERY_MS = 60_000
"""A job that runs more often is noted once in so long: a record in object storage costs money."""
JOB = re.compile(r"[a-z][a-z-]{0,62}")


class GoodRun(msgspec.Struct, frozen=True):
    at_ms: int
    """When it ended."""
    seconds: float
    """That it took."""
    every_ms: int
    """How often the job is due, where it last ran by a schedule; 0: it never did."""
    format: int = 1


class LastRuns:
    def __init__(self, meta: MetaStore, clock: Clock) -> None:
        self._meta = meta
        self._clock = clock
        self._noted_ms: dict[str, int] = {}

    async def note(self, job: str, seconds: float, every_ms: int) -> None:
        """A run of it has just ended, and all was well. Trouble is logged: the job has done its work."""
        now_ms = self._clock.now_ms()
        noted_ms = self._noted_ms.get(job)
        if noted_ms is not None and 0 <= now_ms - noted_ms < NOTE_EVERY_MS:
            return
        try:
            await note_good_run(self._meta, job, GoodRun(now_ms, round(seconds, 3), every_ms))
        except CatenaError as error:
            log.warning("it could not be noted that %s has run: %s", job, error)
        else:
            self._noted_ms[job] = now_ms


async def note_good_run(meta: MetaStore, job: str, run: GoodRun) -> None:
    """One by hand (`every_ms` is 0) says nothing of the schedule, and leaves it as it is."""
    if not JOB.fullmatch(job):
        raise ValueError(f"{job!r} can't be the name of a job")
    expect: Version | Expect = ABSENT
    for _ in range(MAX_TRIES):
        try:
            await meta.put(keys.job(job), msgspec.json.encode(run), expect)
            return
        except Conflict as conflict:
            current = conflict.current
            found = None if current is None else _decode(current)
            if found is not None and found.at_ms >= run.at_ms:
                return
            if found is not None and not run.every_ms:
                run = msgspec.structs.replace(run, every_ms=found.every_ms)
            expect = ABSENT if current is None else current.version


async def last_runs(meta: MetaStore) -> dict[str, GoodRun]:
    """By job. One that can't be read is left out: it is written again soon."""
    records = await meta.scan(keys.JOBS, keys.after(keys.JOBS), SCAN_LIMIT)
    runs = {record.key.removeprefix(keys.JOBS): _decode(record) for record in records}
    return {job: run for job, run in runs.items() if run is not None}


def _decode(record: Record) -> GoodRun | None:
    try:
        return msgspec.json.decode(record.value, type=GoodRun)
    except msgspec.MsgspecError:
        return None
