"""Vacuum: objects that nothing refers to are deleted. Nobody else ever deletes one.

Writers that die, jobs that are abandoned, merges, trims and deleted topics leave objects behind. The order of steps:

    1. check the incarnation                 a meta store that was set back knows too little, and vacuum refuses
    2. fix the cutoff: now - grace
    3. list objects that are older           by tasks; the rows stay with them
    4. read what is referred to              `references` says in which order, and why none is missed
    5. raise the incarnation                 from here on no backup from before passes for current
    6. forget topics deleted long ago        what they refer to was not counted in 4; `references` says what stays
       and producers silent for long         `silent_producers` says why nobody misses them
       and writes that were never begun      what the meta store has of them; `virtual_log.intents` says why
    7. delete what is in 3 and not in 4      by tasks, in bulk

**Why it is safe.** Names are drawn anew for each object, so one that is listed is never written again. Take one that is
listed and that step 4 has not found:

- A WAL blob that no partition referred to is older than the grace, and no writer commits a blob that long after it was
  put. It was never committed, or what it held was moved or trimmed. It is never referred to again. (Blobs of Spark's
  tasks are named by an intent within a quarter of the grace, and referred to by it from then on; by which grace, is
  told by `virtual_log.vacuum_grace`.)
- A segment or manifest is of a job that began before the listing. The chain, read later, did not name that job, so it
  has finished, or can't any more; and the manifest that counts does not have it. Time does not matter here.

So what is an orphan once is one for ever. Step 7 needs no further look, whatever happens meanwhile and however long
vacuum sleeps before it; racing vacuums delete the same objects. A reader that still has an old chain misses an object,
reads the chain again and finds the records where they are now.

**What was replaced stays for a while.** Tiering, merging and compaction take objects out of use that may be old by
then, and queries that were planned a moment before name them. Step 4 counts them as referred to for `longest_job_ms`:
see `replaced`. So a plan can be read for so long, whatever jobs and vacuums do meanwhile, but for what is trimmed.

**The listing may be made again**, by Spark, when a worker that held a part of it is lost; even after step 4. What has
come since is younger than the cutoff, which is fixed, and so the second listing has nothing that the first did not.

**Clocks.** Objects are dated by the store, the cutoff comes from our clock. Step 5 has just put an object; if by the
date of that our clock is ahead by more than half of the grace, vacuum refuses. So the other half is what is left for
writers' deadlines, and `check_grace` holds it against them.

**The incarnation is looked at again** before each round of deletes: if an operator restores the meta store while
a vacuum goes on for hours, it stops. What it has deleted was referred to by nothing since step 5, and a backup from
before that is recognized.

**Crash at any step**: nothing is lost, and the next vacuum finds what is left. Topics are forgotten before their
objects are deleted, and a topic's tombstone goes last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from catena.errors import ConfigError, NeedsOperator, RetryLater
from catena.meta import keys
from catena.pipeline.references import AT_ONCE, References, Topics, find_topics, forget_topic, has_leftovers
from catena.pipeline.settings import VacuumSettings
from catena.pipeline.silent_producers import forget_silent
from catena.pipeline.site import Place, Site
from catena.pipeline.tasks.deleting import DeletingPlan
from catena.pipeline.tasks.listing import Kind, ListingPlan, kind_of
from catena.pipeline.work import Row, Table, TaskFailed, Usage, Work
from catena.runtime.tasks import map_bounded
from catena.virtual_log.incarnation import Incarnation, check_incarnation, raise_incarnation
from catena.virtual_log.intents import forget_unpublished
from catena.virtual_log.topics import TopicRecord
from catena.virtual_log.vacuum_grace import publish_grace

PARTITIONS_AT_ONCE = 500
"""After so many `should_stop` is asked."""
BULK = 1000
"""S3 deletes so many with one request."""
ROUND_S = 2.0
"""What is deleted together takes about so long; in between it is looked whether to go on."""
ROUND_BULKS_MAX = 64
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
FORGOTTEN_MAX = 100_000
FORGOTTEN_OF_ONE = 1_000
"""Of one partition so many producers are forgotten at a time, and of all so many, and those of PARTITIONS_AT_ONCE."""
IN_VAIN_MAX = 30
"""Rounds in a row in which a store that throttles has deleted nothing: half an hour."""

Stage: TypeAlias = Literal["listing", "reading references", "deleting"]


class Amount(msgspec.Struct, frozen=True):
    objects: int = 0
    bytes: int = 0

    def __add__(self, rows: Sequence[Row]) -> Amount:
        return Amount(self.objects + len(rows), self.bytes + sum(row.size for row in rows))


class VacuumReport(msgspec.Struct, frozen=True, kw_only=True):
    job: Literal["vacuum"] = "vacuum"
    started_at_ms: int
    duration_ms: int
    dry_run: bool
    stopped: bool
    """Before all was done, because somebody asked for it; `orphans` are those that were seen until then."""
    cutoff_ms: int
    """What was put then or later was not looked at."""
    listed: int
    kept_young: int
    unknown: int
    """Objects that are none of ours, by their names."""
    referenced: int | None
    """Of those that were old enough; None: it was stopped before that was known."""
    orphans: dict[Kind, Amount]
    first_keys: tuple[str, ...]
    """Of orphans."""
    deleted: Amount
    failed: int
    """Objects that the store would not delete."""
    error: str
    """Why, of the first one."""
    forgotten_topics: tuple[str, ...]
    """Deleted long ago: what the meta store still had of them, fences aside, is deleted now, or would be."""
    forgotten_producers: int = 0
    """Records of producers that have been silent for long, which are deleted now, or would be."""
    forgotten_writes: int = 0
    """Large writes that nobody has begun: what the meta store has of them is deleted now, or would be."""
    executors: dict[str, Usage]
    """By who did the tasks: what they asked of the object store."""
    driver: Usage = Usage()


class VacuumProgress(NamedTuple):
    """Told to whoever shows it."""

    stage: Stage
    partitions: int
    partitions_done: int
    deleted: Amount


def check_grace(settings: VacuumSettings, commit_deadline_ms: int) -> None:
    """Raise ConfigError if the grace is shorter than what may still be under way."""
    if settings.grace_ms < 2 * commit_deadline_ms:
        raise ConfigError(
            f"setting pipeline.vacuum.grace_ms: {settings.grace_ms} is less than twice the longest time in which a "
            f"writer may commit what it has stored, diskless.writer.commit_deadline_ms: {commit_deadline_ms}"
        )
    if settings.grace_ms < settings.longest_job_ms:
        raise ConfigError(
            f"setting pipeline.vacuum.grace_ms: {settings.grace_ms} is less than pipeline.vacuum.longest_job_ms, "
            f"{settings.longest_job_ms}: jobs would find what they read deleted"
        )


async def vacuum(
    site: Site,
    work: Work,
    settings: VacuumSettings,
    dry_run: bool = False,
    show: Callable[[VacuumProgress], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> VacuumReport:
    """See above. The caller has held the grace against the writers' deadline: `check_grace`."""
    check_grace(settings, 0)
    return await _Vacuum(site, work, settings, show, should_stop).run(dry_run)


class _Silent(NamedTuple):
    """Records of the meta store that go because nobody will ask for them."""

    producers: int = 0
    writes: int = 0


class _Vacuum:
    def __init__(
        self,
        site: Site,
        work: Work,
        settings: VacuumSettings,
        show: Callable[[VacuumProgress], None],
        should_stop: Callable[[], bool],
    ) -> None:
        self._site = site
        self._work = work
        self._settings = settings
        self._show = show
        self._should_stop = should_stop
        self._stopped = False
        self._orphans: dict[Kind, Amount] = {}
        self._first_keys: list[str] = []
        self._deleted = Amount()
        self._failed = 0
        self._error = ""
        self._forgotten: list[TopicRecord] = []
        """Or to be so: for the first time, or because something has come late."""
        self._silent = _Silent()
        """What was forgotten, or is to be so."""
        self._trouble = ""
        """Why something had to be tried again."""

    async def run(self, dry_run: bool) -> VacuumReport:
        site, started_at_ms = self._site, self._site.clock.now_ms()
        since = await check_incarnation(site.meta, site.objects)
        cutoff_ms = started_at_ms - self._settings.grace_ms
        if not dry_run:
            await publish_grace(site.meta, site.clock, self._settings.grace_ms)
        self._tell("listing")
        async with self._work.table("listing", _listing_plans(self._settings, cutoff_ms)) as table:
            topics = await find_topics(site.meta, cutoff_ms)
            await self._read_references(table, topics, started_at_ms - self._settings.longest_job_ms)
            await self._find_forgotten(topics)
            silent = await self._forget_silent(topics, cutoff_ms, dry_run=True)
            if not self._stopped and dry_run:
                self._silent = silent
                async for rows in table.rows():
                    self._count(rows)
            elif not self._stopped:
                await self._collect(table, topics, since, cutoff_ms if any(silent) else None)
            counts = table.counts
        seen = sum(amount.objects for amount in self._orphans.values())
        return VacuumReport(
            started_at_ms=started_at_ms,
            duration_ms=site.clock.now_ms() - started_at_ms,
            dry_run=dry_run,
            stopped=self._stopped,
            cutoff_ms=cutoff_ms,
            listed=counts["seen"],
            kept_young=counts["young"],
            unknown=counts["unknown"],
            referenced=None if self._stopped else counts["rows"] - seen,
            orphans=self._orphans,
            first_keys=tuple(self._first_keys),
            deleted=self._deleted,
            failed=self._failed,
            error=self._error,
            forgotten_topics=tuple(topic.name for topic in self._forgotten),
            forgotten_producers=self._silent.producers,
            forgotten_writes=self._silent.writes,
            executors={str(executor): usage for executor, usage in self._work.usage.items()},
        )

    async def _read_references(self, table: Table, topics: Topics, replaced_since_ms: int) -> None:
        references = References(self._site, table.remove, replaced_since_ms)
        await references.read_writes()
        total = sum(topic.partitions for topic in topics.referring)
        places = _places(topics)
        done = 0
        while group := list(islice(places, PARTITIONS_AT_ONCE)):
            if self._is_to_stop():
                return
            self._tell("reading references", total, done)
            await references.read(group)
            done += len(group)

    async def _find_forgotten(self, topics: Topics) -> None:
        if self._stopped:
            return
        left = await map_bounded(AT_ONCE, lambda topic: has_leftovers(self._site.meta, topic), topics.forgotten)
        late = [topic for topic, is_left in zip(topics.forgotten, left, strict=True) if is_left]
        self._forgotten = [*topics.expired, *late]

    async def _forget_silent(self, topics: Topics, cutoff_ms: int, dry_run: bool) -> _Silent:
        meta, now_ms, places = self._site.meta, self._site.clock.now_ms(), _places(topics)
        producers = 0
        while producers < FORGOTTEN_MAX and (group := list(islice(places, PARTITIONS_AT_ONCE))):
            if self._is_to_stop():
                break
            found = await map_bounded(
                AT_ONCE, lambda place: forget_silent(meta, place.tp, now_ms, FORGOTTEN_OF_ONE, dry_run), group
            )
            producers += sum(found)
        if self._is_to_stop():
            return _Silent(producers)
        return _Silent(producers, await forget_unpublished(meta, cutoff_ms, FORGOTTEN_MAX, dry_run))

    async def _collect(self, table: Table, topics: Topics, since: Incarnation, silent_before_ms: int | None) -> None:
        """`silent_before_ms`: the cutoff, if anything silent was found."""
        async with aclosing(_bulks(table, min(BULK, self._settings.objects_per_s))) as bulks:
            first = await anext(bulks, None)
            if first is None and not self._forgotten and not topics.over and silent_before_ms is None:
                return  # and so an idle cluster stays as it is
            raised = await raise_incarnation(self._site.meta, self._site.objects, self._site.clock, since)
            await self._check_clock()
            for topic in self._forgotten:
                await forget_topic(self._site.meta, topic)
            for topic in topics.over:
                await self._site.meta.delete(keys.deleted(topic.topic_id))
            if silent_before_ms is not None:
                self._silent = await self._forget_silent(topics, silent_before_ms, dry_run=False)
            if first is not None:
                await self._delete(first, bulks, raised)

    async def _check_clock(self) -> None:
        """The object was put a moment ago: by us, or by somebody who has raised the incarnation since we began to."""
        put_at_ms = (await self._site.objects.head(keys.INCARNATION)).modified_ms
        ahead_ms = self._site.clock.now_ms() - put_at_ms
        if ahead_ms > self._settings.grace_ms // 2:
            raise NeedsOperator(
                f"the clock here is {ahead_ms // 1000} s ahead of the object store's, or this process has slept for as "
                "long just now: what is old enough is not certain, and nothing was deleted; look at the clock, and run "
                "it again"
            )

    async def _delete(self, first: list[Row], more: AsyncIterator[list[Row]], raised: Incarnation) -> None:
        """Fewer at once when the store throttles, and more again when it does not."""
        waiting = deque([first])
        self._count(first)
        widest = max(1, min(ROUND_BULKS_MAX, int(self._settings.objects_per_s * ROUND_S) // len(first)))
        width, in_vain, pause_s = widest, 0, FIRST_PAUSE_S
        while True:
            while len(waiting) < width and (bulk := await anext(more, None)) is not None:
                self._count(bulk)
                waiting.append(bulk)
            if not waiting or self._is_to_stop():
                return
            await check_incarnation(self._site.meta, self._site.objects, raised)
            doing = [waiting.popleft() for _ in range(min(width, len(waiting)))]
            again = await self._delete_round(doing)
            if not again:
                width, in_vain, pause_s = min(widest, width + 1), 0, FIRST_PAUSE_S
                continue
            waiting.extendleft(reversed(again))
            in_vain = in_vain + 1 if len(again) == len(doing) else 0
            if in_vain == IN_VAIN_MAX:
                raise RetryLater(f"the object store has deleted nothing for long: {self._trouble}")
            width = max(1, width // 2)
            await self._site.clock.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _delete_round(self, bulks: Sequence[list[Row]]) -> list[list[Row]]:
        """Those that have to be tried again. It takes as long as the limit wants."""
        clock, began = self._site.clock, self._site.clock.monotonic()

        def done(number: int, result: bytes | TaskFailed) -> None:
            if not isinstance(result, TaskFailed):
                self._deleted += bulks[number]
                self._tell("deleting")

        plans = [msgspec.json.encode(DeletingPlan(tuple(row.key for row in bulk))) for bulk in bulks]
        again = []
        for bulk, result in zip(bulks, await self._work.run("deleting", plans, done), strict=True):
            match result:
                case TaskFailed(error, is_retriable=True):
                    self._trouble = error
                    again.append(bulk)
                case TaskFailed(error):
                    self._error = self._error or error
                    self._failed += len(bulk)
        took_s = clock.monotonic() - began
        await clock.sleep(max(0.0, sum(map(len, bulks)) / self._settings.objects_per_s - took_s))
        return again

    def _count(self, rows: Sequence[Row]) -> None:
        by_kind: dict[Kind, list[Row]] = {}
        for row in rows:
            kind = kind_of(row.key)
            assert kind is not None, f"{row.key} should not have been listed"
            by_kind.setdefault(kind, []).append(row)
        for kind, some in by_kind.items():
            self._orphans[kind] = self._orphans.get(kind, Amount()) + some
        room = self._settings.shown_keys - len(self._first_keys)
        self._first_keys += [row.key for row in rows[: max(0, room)]]

    def _is_to_stop(self) -> bool:
        self._stopped = self._stopped or self._should_stop()
        return self._stopped

    def _tell(self, stage: Stage, partitions: int = 0, partitions_done: int = 0) -> None:
        self._show(VacuumProgress(stage, partitions, partitions_done, self._deleted))


def _listing_plans(settings: VacuumSettings, cutoff_ms: int) -> list[bytes]:
    """Topics by the first digit of their ids, since the meta store need not know of all that have left something."""
    digits = "0123456789abcdef"
    starts = [f"{number:0{settings.wal_digits}x}" for number in range(16**settings.wal_digits)]
    prefixes = [keys.WAL_BLOBS + start for start in starts] + [f"{keys.ROOT}/{digit}" for digit in digits]
    return [msgspec.json.encode(ListingPlan(prefix, cutoff_ms)) for prefix in prefixes]


def _places(topics: Topics) -> Iterator[Place]:
    for topic in topics.referring:
        for number in range(topic.partitions):
            yield Place(topic.partition(number), topic.kind)


async def _bulks(table: Table, size: int) -> AsyncGenerator[list[Row], None]:
    """What is left in the table, so many at a time."""
    bulk: list[Row] = []
    async with aclosing(table.rows()) as pieces:
        async for rows in pieces:
            bulk += rows
            while len(bulk) >= size:
                yield bulk[:size]
                bulk = bulk[size:]
    if bulk:
        yield bulk
